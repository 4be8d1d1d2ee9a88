/* SPDX-License-Identifier: MIT */
/*
 * Counting calls and refusals of policies, and writing them. Control thread only. Every
 * label has a bounded set of values: hooks and results are closed sets, policies are
 * those of the configuration, and of reasons, which scripts make up, a policy gets 32.
 */
#include "script/figures.h"

#include "base/alloc.h"
#include "script/event.h"
#include "script/generation.h"

#include <assert.h>
#include <string.h>

enum {
    FAILURES_PER_S = 1, /* log lines a policy; the rest is counted */
    FAILURES_BURST = 10,
};

static const double bounds_s[FIGURE_BUCKETS] = {5e-6, 2e-5, 1e-4, 5e-4, 1e-3,
                                                5e-3, 1e-2, 5e-2, 0.5,  2};

static const char *const result_names[MR_CALL_RESULT_COUNT] = {
    [MR_CALL_NONE] = "none",
    [MR_CALL_ADMIT] = "admit",
    [MR_CALL_REFUSE] = "refuse",
    [MR_CALL_ERROR] = "error",
};

/* ---- by name --------------------------------------------------------------------------------- */

static void destroy(struct policy_figures *f)
{
    mr__free(f->policy);
    mr__free(f);
}

void mr__figures_deinit(struct figures *fs)
{
    for (size_t i = 0; i < fs->n; i++) {
        destroy(fs->items[i]);
    }
    mr__free(fs->items);
    *fs = (struct figures){0};
}

/* Makes room for one by dropping what nobody has used for the longest time. */
static void drop_oldest(struct figures *fs)
{
    size_t oldest = fs->n;

    for (size_t i = 0; i < fs->n; i++) {
        if (fs->items[i]->users == 0 &&
            (oldest == fs->n || fs->items[i]->used_at < fs->items[oldest]->used_at)) {
            oldest = i;
        }
    }
    if (oldest < fs->n) {
        destroy(fs->items[oldest]);
        memmove(&fs->items[oldest], &fs->items[oldest + 1], (fs->n - oldest - 1) * sizeof(void *));
        fs->n--;
    }
}

static struct policy_figures *add(struct figures *fs, const char *policy)
{
    struct policy_figures *f;

    if (fs->n >= FIGURE_POLICIES_MAX) {
        drop_oldest(fs);
    }
    if (fs->n == fs->cap) {
        size_t cap = fs->cap ? fs->cap * 2 : 8;
        struct policy_figures **grown = mr__realloc(fs->items, cap, sizeof(void *));

        if (!grown) {
            return NULL;
        }
        fs->items = grown;
        fs->cap = cap;
    }
    f = mr__alloc(1, sizeof *f);
    if (f) {
        f->policy = mr__strndup(policy, strlen(policy));
        if (!f->policy) {
            mr__free(f);
            return NULL;
        }
        fs->items[fs->n++] = f;
    }
    return f;
}

struct policy_figures *mr__figures_take(struct figures *fs, const char *policy)
{
    struct policy_figures *f = NULL;

    for (size_t i = 0; i < fs->n && !f; i++) {
        f = strcmp(fs->items[i]->policy, policy) == 0 ? fs->items[i] : NULL;
    }
    f = f ? f : add(fs, policy);
    if (f) {
        f->users++;
        f->used_at = ++fs->taken;
    }
    return f;
}

void mr__figures_give(struct policy_figures *f)
{
    if (f) {
        assert(f->users > 0);
        f->users--;
    }
}

/* ---- counting -------------------------------------------------------------------------------- */

void mr__figures_took(const struct run *r, size_t what, enum call_result result)
{
    struct hook_figures *h;
    double s = (double)(r->end_ns - r->start_ns) / 1e9;
    size_t i = 0;

    if (!r->policy->figures) {
        return;
    }
    h = &r->policy->figures->calls[what];
    while (i < FIGURE_BUCKETS && s > bounds_s[i]) {
        i++;
    }
    h->buckets[i]++;
    h->sum_s += s;
    h->results[result]++;
}

void mr__figures_log(const struct run *r, const char *name, const struct script_failure *failure)
{
    struct policy_figures *figures = r->policy->figures;
    struct log *log = r->policy->generation->opts.log;
    struct log_field fields[5] = {LOG_STR("policy", r->policy->name), LOG_STR("hook", name),
                                  LOG_STR("error", failure->text)};
    uint32_t suppressed;
    size_t n = 3;

    if (!figures) {
        return;
    }
    suppressed = figures->limiter.suppressed;
    if (!mr__log_limit(&figures->limiter, r->end_ns / 1000000, FAILURES_PER_S, FAILURES_BURST) ||
        !log) {
        return;
    }
    figures->limiter.suppressed = 0;
    if (failure->traceback[0] != '\0') {
        fields[n++] = LOG_STR("traceback", failure->traceback);
    }
    if (suppressed > 0) {
        fields[n++] = LOG_UINT("suppressed", suppressed);
    }
    mr__log(log, MR_LOG_ERROR, "policy", "hook failed", fields, n);
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
    const struct hook_figures *h = &f->calls[hook];

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

static const char *name_of(size_t what)
{
    return what == FIGURE_TIMER     ? "timer"
           : what == FIGURE_COMMAND ? "command"
           : what == FIGURE_MESSAGE ? "message"
                                    : mr__event_hook_name((enum hook)what);
}

static void write_calls(const struct figures *fs, struct metrics *m)
{
    mr__metrics_family(
        m, "moonrelay_script_calls_total", MR_METRIC_COUNTER,
        "Calls of policies' hooks, timers, commands and handlers of messages by what "
        "came of them.");
    for (size_t what = 0; what < FIGURE_COUNT; what++) {
        for (size_t result = 0; result < MR_CALL_RESULT_COUNT; result++) {
            struct metric_label labels[] = {label("hook", name_of(what)),
                                            label("result", result_names[result])};
            uint64_t sum = 0;

            for (size_t i = 0; i < fs->n; i++) {
                sum += fs->items[i]->calls[what].results[result];
            }
            mr__metrics_uint(m, labels, 2, sum);
        }
    }
}

static void write_duration(const struct policy_figures *f, size_t what, struct metrics *m)
{
    const struct hook_figures *h = &f->calls[what];
    struct metric_label labels[] = {label("policy", f->policy), label("hook", name_of(what))};
    uint64_t calls = 0;

    for (size_t r = 0; r < MR_CALL_RESULT_COUNT; r++) {
        calls += h->results[r];
    }
    if (calls > 0) {
        mr__metrics_histogram(m, labels, 2, bounds_s, h->buckets, FIGURE_BUCKETS, h->sum_s);
    }
}

static void write_durations(const struct figures *fs, struct metrics *m)
{
    mr__metrics_family(m, "moonrelay_script_duration_seconds", MR_METRIC_HISTOGRAM,
                       "Time that one call of a policy's hook took, with what it waited.");
    for (size_t i = 0; i < fs->n; i++) {
        for (size_t what = 0; what < FIGURE_COUNT; what++) {
            write_duration(fs->items[i], what, m);
        }
    }
}

static void write_refusals_of(const struct policy_figures *f, size_t reason, struct metrics *m)
{
    const struct refusal_figures *refusal = &f->refusals[reason];

    for (size_t hook = 0; hook < MR_HOOK_COUNT; hook++) {
        struct metric_label labels[] = {
            label("policy", f->policy), label("hook", mr__event_hook_name(hook)),
            label("reason", reason == FIGURE_REASONS_MAX ? "other" : refusal->reason)};

        if (refusal->counts[hook] > 0) {
            mr__metrics_uint(m, labels, 3, refusal->counts[hook]);
        }
    }
}

static void write_refusals(const struct figures *fs, struct metrics *m)
{
    mr__metrics_family(m, "moonrelay_policy_refusals_total", MR_METRIC_COUNTER,
                       "Refusals by policy, hook and reason; 32 reasons a policy, then other.");
    for (size_t i = 0; i < fs->n; i++) {
        for (size_t reason = 0; reason <= FIGURE_REASONS_MAX; reason++) {
            write_refusals_of(fs->items[i], reason, m);
        }
    }
}

void mr__figures_write(const struct figures *fs, struct metrics *m)
{
    write_calls(fs, m);
    write_durations(fs, m);
    write_refusals(fs, m);
}
