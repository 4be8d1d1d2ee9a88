/* SPDX-License-Identifier: MIT */
/*
 * Counting calls and refusals of policies, and writing them. Control thread only. Every
 * label has a bounded set of values: hooks and results are closed sets, policies are
 * those of the configuration, and of reasons, which scripts make up, a policy gets 32.
 */
#include "script/figures.h"

#include "script/event.h"

#include <string.h>

static const double bounds_s[FIGURE_BUCKETS] = {5e-6, 2e-5, 1e-4, 5e-4, 1e-3,
                                                5e-3, 1e-2, 5e-2, 0.5,  2};

static const char *const result_names[MR_CALL_RESULT_COUNT] = {
    [MR_CALL_NONE] = "none",
    [MR_CALL_ADMIT] = "admit",
    [MR_CALL_REFUSE] = "refuse",
    [MR_CALL_ERROR] = "error",
};

void mr__figures_call(struct policy_figures *f, enum hook hook, enum call_result result,
                      uint64_t duration_ns)
{
    struct hook_figures *h = &f->hooks[hook];
    double s = (double)duration_ns / 1e9;
    size_t i = 0;

    while (i < FIGURE_BUCKETS && s > bounds_s[i]) {
        i++;
    }
    h->buckets[i]++;
    h->sum_s += s;
    h->results[result]++;
}

void mr__figures_refusal(struct policy_figures *f, enum hook hook, const char *reason)
{
    size_t i = 0;

    while (i < f->n_reasons && strcmp(f->refusals[i].reason, reason) != 0) {
        i++;
    }
    if (i == f->n_reasons && i < FIGURE_REASONS_MAX && strcmp(reason, "other") != 0) {
        size_t n = strnlen(reason, MR_REASON_MAX);

        memcpy(f->refusals[i].reason, reason, n);
        f->refusals[i].reason[n] = '\0';
        f->n_reasons++;
    } else if (i == f->n_reasons) {
        i = FIGURE_REASONS_MAX;
    }
    f->refusals[i].counts[hook]++;
}

void mr__figures_sum(const struct policy_figures *f, enum hook hook, uint64_t *calls,
                     uint64_t *refusals, uint64_t *errors, double *seconds)
{
    const struct hook_figures *h = &f->hooks[hook];

    *calls = 0;
    for (size_t i = 0; i < MR_CALL_RESULT_COUNT; i++) {
        *calls += h->results[i];
    }
    *refusals = h->results[MR_CALL_REFUSE];
    *errors = h->results[MR_CALL_ERROR];
    *seconds = h->sum_s;
}

static struct metric_label label(const char *key, const char *value)
{
    return (struct metric_label){key, {value, strlen(value)}};
}

static void write_calls(const struct policy_figures *f, size_t n, struct metrics *m)
{
    mr__metrics_family(m, "moonrelay_script_calls_total", MR_METRIC_COUNTER,
                       "Calls of policies' hooks by what came of them.");
    for (size_t hook = 0; hook < MR_HOOK_COUNT; hook++) {
        for (size_t result = 0; result < MR_CALL_RESULT_COUNT; result++) {
            struct metric_label labels[] = {label("hook", mr__event_hook_name(hook)),
                                            label("result", result_names[result])};
            uint64_t sum = 0;

            for (size_t i = 0; i < n; i++) {
                sum += f[i].hooks[hook].results[result];
            }
            mr__metrics_uint(m, labels, 2, sum);
        }
    }
}

static void write_durations(const struct policy_figures *f, size_t n, struct metrics *m)
{
    mr__metrics_family(m, "moonrelay_script_duration_seconds", MR_METRIC_HISTOGRAM,
                       "Time that one call of a policy's hook took.");
    for (size_t i = 0; i < n; i++) {
        for (size_t hook = 0; hook < MR_HOOK_COUNT; hook++) {
            const struct hook_figures *h = &f[i].hooks[hook];
            struct metric_label labels[] = {label("policy", f[i].policy),
                                            label("hook", mr__event_hook_name(hook))};
            uint64_t calls = 0;

            for (size_t r = 0; r < MR_CALL_RESULT_COUNT; r++) {
                calls += h->results[r];
            }
            if (calls > 0) {
                mr__metrics_histogram(m, labels, 2, bounds_s, h->buckets, FIGURE_BUCKETS, h->sum_s);
            }
        }
    }
}

static void write_refusals(const struct policy_figures *f, size_t n, struct metrics *m)
{
    mr__metrics_family(m, "moonrelay_policy_refusals_total", MR_METRIC_COUNTER,
                       "Refusals by policy, hook and reason; 32 reasons a policy, then other.");
    for (size_t i = 0; i < n; i++) {
        for (size_t r = 0; r <= FIGURE_REASONS_MAX; r++) {
            const struct refusal_figures *refusal = &f[i].refusals[r];

            for (size_t hook = 0; hook < MR_HOOK_COUNT; hook++) {
                struct metric_label labels[] = {
                    label("policy", f[i].policy), label("hook", mr__event_hook_name(hook)),
                    label("reason", r == FIGURE_REASONS_MAX ? "other" : refusal->reason)};

                if (refusal->counts[hook] > 0) {
                    mr__metrics_uint(m, labels, 3, refusal->counts[hook]);
                }
            }
        }
    }
}

void mr__figures_write(const struct policy_figures *f, size_t n, struct metrics *m)
{
    write_calls(f, n, m);
    write_durations(f, n, m);
    write_refusals(f, n, m);
}
