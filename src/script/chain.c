/* SPDX-License-Identifier: MIT */
/*
 * Decisions: asks the policies in order and makes one answer of theirs. Control thread
 * only. Start reading at mr__chain_ask().
 *
 *   ask ── policy 1 ── refuses? ──> REFUSE      the first refusal ends the chain
 *            │ fails? ────────────> FAILED      closed, unless on_error = "skip"
 *            │ waits? ────────────> the chain rests, with a copy of the event
 *            │ returns a table: merged; nil: no opinion; in `lookup` an address ends it
 *          policy 2 ... ──────────> ADMIT when one returned a table, else NO_OPINION
 *
 * A chain has its own memory for the answer, since done() may ask again before it
 * returns (a datagram that was admitted wants a relay). It stays with the generation it
 * began in, also when that is replaced while it waits.
 */
#include "script/chain.h"

#include "base/alloc.h"
#include "script/event.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One request on its way. */
struct chain {
    struct run run; /* of the policy that is asked */
    struct policies *p;
    struct generation *g;
    struct hook_request *req;    /* NULL: it was cancelled */
    const struct hook_event *ev; /* the caller's, then the copy's */
    struct event_copy *copy;
    size_t i;         /* the policy that is asked */
    bool is_on_stack; /* a function of this file works on it: it must not go */
    struct merged_answer all;
    struct chain *next; /* among those kept */
};

static const char policy_error[] = "policy-error";

/* ---- one policy ------------------------------------------------------------------------------ */

static struct chain *chain_of(struct run *r)
{
    return (struct chain *)(void *)((char *)r - offsetof(struct chain, run));
}

static void push_function(lua_State *L, struct run *r)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->policy->hook_refs[chain_of(r)->ev->hook]);
}

static int push_arguments(lua_State *L, struct run *r)
{
    const struct chain *c = chain_of(r);

    return mr__event_push_arguments(L, c->ev, c->all.answer.tags);
}

int mr__chain_read(lua_State *L, struct policies *p, struct policy *policy,
                   const struct hook_event *ev, int index, int n, struct merged_answer *all,
                   struct script_failure *failure)
{
    char why[ANSWER_WHY_MAX];
    int rc;

    luaL_checkstack(L, LUA_MINSTACK, "answer");
    if (ev->hook == MR_HOOK_LOOKUP) {
        rc = mr__answer_read_address(L, index, n, ev->family, policy->name, &p->one, why);
    } else {
        rc = mr__answer_read(L, index, n, ev->hook, policy->name, &p->one, why);
    }
    if (rc == 0 && all && p->one.outcome == MR_HOOK_ADMIT) {
        rc = mr__answer_merge(all, &p->one, why);
    }
    if (rc != 0) {
        snprintf(failure->text, sizeof failure->text, "%s", why);
    }
    return rc;
}

static int take(lua_State *L, struct run *r, int index, int n, struct script_failure *failure)
{
    struct chain *c = chain_of(r);

    return mr__chain_read(L, c->p, r->policy, c->ev, index, n, &c->all, failure);
}

enum call_result mr__chain_count(struct policies *p, const struct run *r, enum hook hook, int rc,
                                 const struct script_failure *failure)
{
    enum call_result result = MR_CALL_NONE;

    if (rc != 0) {
        result = MR_CALL_ERROR;
        mr__figures_log(r, mr__event_hook_name(hook), failure);
    } else if (p->one.outcome == MR_HOOK_REFUSE) {
        result = MR_CALL_REFUSE;
        mr__figures_refusal(r->policy->figures, hook, p->one.reason);
    } else if (p->one.outcome == MR_HOOK_ADMIT) {
        result = MR_CALL_ADMIT;
    }
    mr__figures_took(r, hook, result);
    return result;
}

/* ---- the chain ------------------------------------------------------------------------------- */

static struct chain *take_chain(struct policies *p)
{
    struct chain *c = p->chains;

    if (c) {
        p->chains = c->next;
        p->n_chains--;
    } else {
        c = mr__alloc(1, sizeof *c);
    }
    if (c) {
        mr__answer_begin(&c->all);
        c->p = p;
        c->g = p->generation;
        c->copy = NULL;
        c->i = 0;
        c->is_on_stack = false;
        c->run = (struct run){.class = NULL};
        mr__generation_hold(c->g);
    }
    return c;
}

static void give_chain(struct chain *c)
{
    struct policies *p = c->p;

    mr__event_copy_unref(c->copy);
    mr__generation_let_go(p, c->g);
    if (p->n_chains < CHAINS_KEPT_MAX) {
        c->next = p->chains;
        p->chains = c;
        p->n_chains++;
    } else {
        mr__free(c);
    }
}

void mr__chains_deinit(struct policies *p)
{
    for (struct chain *c = p->chains, *next; c; c = next) {
        next = c->next;
        mr__free(c);
    }
    p->chains = NULL;
}

static void end_with(struct chain *c, enum hook_outcome outcome, const char *reason)
{
    struct hook_answer *answer = &c->all.answer;
    const char *name = c->g->policies[c->i].name;

    answer->outcome = outcome;
    answer->policy = (struct str){name, strlen(name)};
    snprintf(answer->reason, sizeof answer->reason, "%s", reason);
}

/* What came of the policy that was asked. true: that ends the chain. */
static bool end_policy(struct chain *c, int rc, const struct script_failure *failure)
{
    const struct policy *policy = &c->g->policies[c->i];
    enum hook hook = c->ev->hook;

    switch (mr__chain_count(c->p, &c->run, hook, rc, failure)) {
    case MR_CALL_REFUSE:
        end_with(c, MR_HOOK_REFUSE, c->p->one.reason);
        c->all.answer.mute_ns = c->p->one.mute_ns;
        snprintf(c->all.message, sizeof c->all.message, "%s", c->p->one.message);
        c->all.answer.message = (struct str){c->all.message, strlen(c->all.message)};
        return true;
    case MR_CALL_ADMIT:
        return hook == MR_HOOK_LOOKUP; /* a name has one address: the first that is given */
    case MR_CALL_ERROR:
        if (c->run.is_refused_to_wait) {
            end_with(c, MR_HOOK_BUSY, "busy");
            return true;
        }
        if (policy->is_skipped_on_error) {
            return false;
        }
        end_with(c, MR_HOOK_FAILED, policy_error);
        mr__figures_refusal(policy->figures, hook, policy_error);
        return true;
    default:
        return false;
    }
}

/* The caller's event is his again when ask() returns. */
static bool keep_event(struct chain *c)
{
    if (!c->copy) {
        c->copy = mr__event_copy(c->ev);
        c->ev = c->copy ? &c->copy->ev : c->ev;
    }
    return c->copy != NULL;
}

static const struct run_class decision_class, create_class, lookup_class;

static const struct run_class *class_of(enum hook hook)
{
    return hook == MR_HOOK_LOOKUP   ? &lookup_class
           : hook == MR_HOOK_CREATE ? &create_class
                                    : &decision_class;
}

/* Asks policies from the i-th on. true: the chain has its answer (or was cancelled); false: it
 * rests. */
static bool go_on(struct chain *c)
{
    const struct run_class *class = class_of(c->ev->hook);

    for (; c->i < c->g->n; c->i++) {
        struct policy *policy = &c->g->policies[c->i];
        struct script_failure failure;
        int rc;

        if (!mr__policy_has(policy, c->ev->hook)) {
            continue;
        }
        if (policy->is_shadow) {
            mr__notice_shadow(c->p, policy, c->ev, c->all.answer.tags);
            if (!c->req) {
                return true;
            }
            continue;
        }
        rc = mr__run_start(&c->run, class, policy, &failure);
        if (rc == RUN_WAITS) {
            if (keep_event(c)) {
                return false;
            }
            mr__run_abandon(&c->run);
            rc = -ENOMEM;
            failure = (struct script_failure){.text = "not enough memory to wait"};
        }
        if (!c->req || end_policy(c, rc, &failure)) {
            return true;
        }
    }
    return true;
}

static void finish(struct chain *c)
{
    struct hook_request *req = c->req;

    if (req) {
        req->decider = NULL;
        req->done(req, &c->all.answer);
    }
    give_chain(c);
}

static void go_on_or_finish(struct chain *c)
{
    bool has_ended;

    c->is_on_stack = true;
    has_ended = go_on(c);
    c->is_on_stack = false;
    if (has_ended) {
        finish(c);
    }
}

static void on_ended(struct run *r, int rc, const struct script_failure *failure)
{
    struct chain *c = chain_of(r);

    if (rc == -ECANCELED) {
        c->req = NULL; /* nothing is answered when the policies end */
    }
    if (!c->req || end_policy(c, rc, failure)) {
        finish(c);
        return;
    }
    c->i++;
    go_on_or_finish(c);
}

static const struct run_class decision_class = {
    .kind = RUN_DECISION,
    .push_function = push_function,
    .push_arguments = push_arguments,
    .take = take,
    .ended = on_ended,
};

static const struct run_class create_class = {
    .kind = RUN_DECISION,
    .is_create = true,
    .push_function = push_function,
    .push_arguments = push_arguments,
    .take = take,
    .ended = on_ended,
};

static const struct run_class lookup_class = {
    .kind = RUN_DECISION,
    .is_lookup = true,
    .push_function = push_function,
    .push_arguments = push_arguments,
    .take = take,
    .ended = on_ended,
};

void mr__chain_ask(void *self, struct hook_request *req, const struct hook_event *ev)
{
    struct policies *p = self;
    struct hook_answer answer = {.outcome = MR_HOOK_NO_OPINION};
    struct chain *c;

    req->decider = NULL;
    if (!p->generation) {
        req->done(req, &answer);
        return;
    }
    if (p->runs.depth >= RUN_DEPTH_MAX) {
        answer.outcome = MR_HOOK_BUSY;
        req->done(req, &answer);
        return;
    }
    c = take_chain(p);
    if (!c) {
        /* No memory even for the answer: refused, as any failure of the chain is. */
        answer = (struct hook_answer){.outcome = MR_HOOK_FAILED, .reason = "policy-error"};
        req->done(req, &answer);
        return;
    }
    req->decider = c;
    c->req = req;
    c->ev = ev;
    go_on_or_finish(c);
}

/* A script may do what ends the request that is its own: go_on() sees it when it is over. */
void mr__chain_cancel(void *self, struct hook_request *req)
{
    struct chain *c = req->decider;

    (void)self;
    if (!c) {
        return;
    }
    req->decider = NULL;
    c->req = NULL;
    if (c->run.is_running || c->run.is_waiting) {
        bool is_running = c->run.is_running;

        mr__run_abandon(&c->run);
        if (is_running) {
            return;
        }
    }
    if (!c->is_on_stack) {
        give_chain(c);
    }
}
