/* SPDX-License-Identifier: MIT */
/*
 * What is counted about policies, and its lines of /metrics. Figures belong to a
 * policy's name and not to a generation, so a reload keeps them. Control thread only.
 */
#ifndef MR_SCRIPT_FIGURES_H
#define MR_SCRIPT_FIGURES_H

#include "base/log.h"
#include "script/run.h"
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

enum {
    FIGURE_BUCKETS = 10,
    FIGURE_REASONS_MAX = 32,
    FIGURE_POLICIES_MAX = 256, /* names that are kept; those that went out of use go first */
};

/* What is called beside hooks. */
enum { FIGURE_TIMER = MR_HOOK_COUNT, FIGURE_COMMAND, FIGURE_MESSAGE, FIGURE_COUNT };

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
    unsigned users;
    uint64_t used_at;                        /* when it was taken last, by counting */
    struct hook_figures calls[FIGURE_COUNT]; /* by hook, then FIGURE_TIMER ... */
    struct refusal_figures refusals[FIGURE_REASONS_MAX + 1]; /* the last is `other` */
    size_t n_reasons;
    struct log_limiter limiter; /* of failures */
};

/* Of all policies that are there or were. */
struct figures {
    struct policy_figures **items;
    size_t n, cap;
    uint64_t taken;
};

void mr__figures_deinit(struct figures *fs);
/* Those of this name, which stay at least until they are given back. NULL: out of memory. */
struct policy_figures *mr__figures_take(struct figures *fs, const char *policy);
void mr__figures_give(struct policy_figures *f);

/* Counts a run that ended; what is a hook, or FIGURE_TIMER ... Nothing is counted
 * while the policy loads. */
void mr__figures_took(const struct run *r, size_t what, enum call_result result);
void mr__figures_refusal(struct policy_figures *f, enum hook hook, const char *reason);
/* Logs why a run failed, some of them a policy and second; name is the hook's or the like. */
void mr__figures_log(const struct run *r, const char *name, const struct script_failure *failure);

void mr__figures_sum(const struct policy_figures *f, enum hook hook, uint64_t *calls,
                     uint64_t *refusals, uint64_t *errors, double *seconds);
void mr__figures_write(const struct figures *fs, struct metrics *m);

#endif
