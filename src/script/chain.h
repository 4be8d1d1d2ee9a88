/* SPDX-License-Identifier: MIT */
/*
 * What the files behind policies.h share. Control thread only.
 *
 *   chain.c    decisions: policies in order, one answer
 *   notice.c   what is told afterwards, to every policy for itself; shadows
 *   command.c  `moonrelay call`
 *   reload.c   loads, swaps and rollbacks
 */
#ifndef MR_SCRIPT_CHAIN_H
#define MR_SCRIPT_CHAIN_H

#include "script/answer.h"
#include "script/event_copy.h"
#include "script/figures.h"
#include "script/generation.h"
#include "script/policies.h"
#include "script/run.h"

struct chain;
struct notice;

/* A notice that could not be told at once, because a script was running. */
struct told {
    struct event_copy *event;
    struct told *next;
};

enum {
    TOLD_MAX = 8192,       /* notices that wait to be told */
    CHAINS_KEPT_MAX = 16,  /* for the next; one is 14 KiB */
    NOTICES_KEPT_MAX = 16, /* likewise */
    TICK_RUNS_MAX = 1000,  /* what a tick rings and tells at most */
    TICK_SCRIPT_NS = 10000000,
};

struct policies {
    struct policies_options opts;
    struct hooks hooks;
    struct runs runs;
    struct figures figures;
    struct tallies *tallies;
    struct generation *generation; /* in use; NULL: nothing was loaded yet */
    struct generation *retired;    /* which still have users */
    uint64_t number;
    double loaded_at, load_seconds;
    struct policy_sources *before; /* of the generation before; NULL: there was none */

    /* The load that is under way. */
    struct generation *loading;
    uint64_t load_start_ns;
    int load_mode;
    bool is_loading;
    void (*load_done)(void *user, int rc, const struct script_error *err);
    void *load_user;

    struct answer one; /* of the policy that was asked last */
    struct chain *chains;
    size_t n_chains;
    struct notice *notices;
    size_t n_notices;
    struct told *told_first, *told_last;
    size_t n_told;
    uint64_t lost_notices;
    struct log_limiter lost_limiter;
};

/* chain.c */
void mr__chain_ask(void *self, struct hook_request *req, const struct hook_event *ev);
void mr__chain_cancel(void *self, struct hook_request *req);
void mr__chains_deinit(struct policies *p);

/* Reads what a hook returned: the results are merged into all, unless that is NULL. For
 * run_class.take. */
int mr__chain_read(lua_State *L, struct policies *p, struct policy *policy,
                   const struct hook_event *ev, int index, int n, struct merged_answer *all,
                   struct script_failure *failure);
/* Counts and logs how a decision of a policy ended; p->one is its answer. */
enum call_result mr__chain_count(struct policies *p, const struct run *r, enum hook hook, int rc,
                                 const struct script_failure *failure);

/* notice.c */
void mr__notice_tell(void *self, const struct hook_event *ev);
/* Tells what had to wait; false: there is nothing. */
bool mr__notice_tell_next(struct policies *p);
/* Asks a shadow on its own: its chain does not wait for it. */
void mr__notice_shadow(struct policies *p, struct policy *policy, const struct hook_event *ev,
                       struct hook_map tags);
void mr__notices_deinit(struct policies *p);

/* reload.c. A generation is held while anything of it is under way; a retired one ends when it is
 * let go by the last. */
void mr__generation_hold(struct generation *g);
void mr__generation_let_go(struct policies *p, struct generation *g);
void mr__reload_deinit(struct policies *p);

#endif
