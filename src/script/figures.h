/* SPDX-License-Identifier: MIT */
/*
 * What is counted about policies, and its lines of /metrics. Figures belong to a
 * policy's name and not to a generation, so a reload keeps them. Control thread only.
 */
#ifndef MR_SCRIPT_FIGURES_H
#define MR_SCRIPT_FIGURES_H

#include "service/hooks.h"
#include "service/metrics.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum call_result {
    MR_CALL_NONE, /* no opinion; a notice that ended well */
    MR_CALL_ADMIT,
    MR_CALL_REFUSE,
    MR_CALL_ERROR,
    MR_CALL_RESULT_COUNT
};

enum { FIGURE_BUCKETS = 10, FIGURE_REASONS_MAX = 32 };

struct hook_figures {
    uint64_t buckets[FIGURE_BUCKETS + 1], results[MR_CALL_RESULT_COUNT];
    double sum_s;
};

struct refusal_figures {
    char reason[MR_REASON_MAX + 1];
    uint64_t counts[MR_HOOK_COUNT];
};

struct policy_figures {
    char *policy; /* name; owned */
    struct hook_figures hooks[MR_HOOK_COUNT];
    struct refusal_figures refusals[FIGURE_REASONS_MAX + 1]; /* the last is `other` */
    size_t n_reasons;
};

void mr__figures_call(struct policy_figures *f, enum hook hook, enum call_result result,
                      uint64_t duration_ns);
void mr__figures_refusal(struct policy_figures *f, enum hook hook, const char *reason);
void mr__figures_sum(const struct policy_figures *f, enum hook hook, uint64_t *calls,
                     uint64_t *refusals, uint64_t *errors, double *seconds);
void mr__figures_write(const struct policy_figures *f, size_t n, struct metrics *m);

#endif
