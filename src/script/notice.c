/* SPDX-License-Identifier: MIT */
/*
 * Notices: tells every policy that wants to know, each for itself. Control thread only.
 * Start reading at mr__notice_tell().
 *
 * A shadow is asked in the same way: on its own, so that a chain never waits for what
 * is ignored.
 */
#include "script/chain.h"

#include "base/alloc.h"
#include "script/event.h"

#include <errno.h>
#include <string.h>

/* One policy that is told, or a shadow that is asked. */
struct notice {
    struct run run;
    struct policies *p;
    const struct hook_event *ev; /* the caller's, then the copy's */
    struct event_copy *copy;
    struct hook_map tags; /* what was set before a shadow; of the caller, when it starts only */
    struct notice *next;  /* among those kept */
};

static const bool is_decision[MR_HOOK_COUNT] = {
#define X(constant, name, is_decision_) [MR_HOOK_##constant] = is_decision_,
    MR_HOOKS(X)
#undef X
};

/* ---- one policy ------------------------------------------------------------------------------ */

static struct notice *notice_of(struct run *r)
{
    return (struct notice *)(void *)((char *)r - offsetof(struct notice, run));
}

/* g is the policy's: a chain that waited asks its shadows in a generation that is replaced. */
static struct notice *take_notice(struct policies *p, struct generation *g)
{
    struct notice *n = p->notices;

    if (n) {
        p->notices = n->next;
        p->n_notices--;
        memset(n, 0, sizeof *n);
    } else {
        n = mr__alloc(1, sizeof *n);
    }
    if (n) {
        n->p = p;
        mr__generation_hold(g);
    }
    return n;
}

static void give_notice(struct notice *n, struct generation *g)
{
    struct policies *p = n->p;

    mr__event_copy_unref(n->copy);
    mr__generation_let_go(p, g);
    if (p->n_notices < NOTICES_KEPT_MAX) {
        n->next = p->notices;
        p->notices = n;
        p->n_notices++;
    } else {
        mr__free(n);
    }
}

static void push_function(lua_State *L, struct run *r)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->policy->hook_refs[notice_of(r)->ev->hook]);
}

static int push_arguments(lua_State *L, struct run *r)
{
    const struct notice *n = notice_of(r);

    return mr__event_push_arguments(L, n->ev, n->tags);
}

static int take(lua_State *L, struct run *r, int index, int n_results,
                struct script_failure *failure)
{
    struct notice *n = notice_of(r);

    if (!is_decision[n->ev->hook]) {
        return 0;
    }
    return mr__chain_read(L, n->p, r->policy, n->ev, index, n_results, NULL, failure);
}

static void on_ended(struct run *r, int rc, const struct script_failure *failure)
{
    struct notice *n = notice_of(r);

    if (!is_decision[n->ev->hook]) {
        n->p->one.outcome = MR_HOOK_NO_OPINION;
    }
    if (rc != -ECANCELED) {
        mr__chain_count(n->p, r, n->ev->hook, rc, failure);
    }
    give_notice(n, r->policy->generation);
}

static const struct run_class notice_class = {
    .kind = RUN_NOTICE,
    .push_function = push_function,
    .push_arguments = push_arguments,
    .take = take,
    .ended = on_ended,
};

static const struct run_class shadow_class = {
    .kind = RUN_SHADOW,
    .push_function = push_function,
    .push_arguments = push_arguments,
    .take = take,
    .ended = on_ended,
};

static const struct run_class shadow_lookup_class = {
    .kind = RUN_SHADOW,
    .is_lookup = true,
    .push_function = push_function,
    .push_arguments = push_arguments,
    .take = take,
    .ended = on_ended,
};

static const struct run_class *class_of(enum hook hook)
{
    return hook == MR_HOOK_LOOKUP ? &shadow_lookup_class
           : is_decision[hook]    ? &shadow_class
                                  : &notice_class;
}

/* ---- losing ---------------------------------------------------------------------------------- */

static void lose(struct policies *p, enum hook hook, const char *why)
{
    uint64_t now_ms = p->opts.mono_ns(p->opts.user) / 1000000;

    p->lost_notices++;
    if (mr__log_limit(&p->lost_limiter, now_ms, 1, 10)) {
        MR_LOG(p->opts.log, MR_LOG_ERROR, "policy", "notice lost",
               LOG_STR("hook", mr__event_hook_name(hook)), LOG_STR("error", why));
    }
}

/* ---- telling --------------------------------------------------------------------------------- */

/* *copy is made when the first of them waits, and is theirs together. */
static void start(struct policies *p, struct policy *policy, const struct hook_event *ev,
                  struct hook_map tags, struct event_copy **copy)
{
    struct notice *n = take_notice(p, policy->generation);
    struct script_failure failure;
    int rc;

    if (!n) {
        lose(p, ev->hook, "not enough memory");
        return;
    }
    n->ev = ev;
    n->tags = tags;
    rc = mr__run_start(&n->run, class_of(ev->hook), policy, &failure);
    if (rc == RUN_WAITS) {
        *copy = *copy ? *copy : mr__event_copy(ev);
        if (*copy) {
            n->copy = mr__event_copy_ref(*copy);
            n->ev = &n->copy->ev;
            n->tags = (struct hook_map){NULL, 0};
            return;
        }
        mr__run_abandon(&n->run);
        rc = -ENOMEM;
        failure = (struct script_failure){.text = "not enough memory to wait"};
    }
    on_ended(&n->run, rc, &failure);
}

static void tell_all(struct policies *p, const struct hook_event *ev)
{
    struct generation *g = p->generation;
    struct event_copy *copy = NULL;

    if (!g) {
        return;
    }
    mr__generation_hold(g);
    for (size_t i = 0; i < g->n; i++) {
        if (mr__policy_has(&g->policies[i], ev->hook)) {
            start(p, &g->policies[i], ev, (struct hook_map){NULL, 0}, &copy);
        }
    }
    mr__event_copy_unref(copy);
    mr__generation_let_go(p, g);
}

/* Notices of what a script itself does are told when it is over: one that closes relays in
 * `destroyed` would go down into itself. */
static void put_off(struct policies *p, const struct hook_event *ev)
{
    struct told *t = p->n_told < TOLD_MAX ? mr__alloc(1, sizeof *t) : NULL;

    if (t) {
        t->event = mr__event_copy(ev);
    }
    if (!t || !t->event) {
        mr__free(t);
        lose(p, ev->hook, p->n_told < TOLD_MAX ? "not enough memory" : "too many are to be told");
        return;
    }
    if (p->told_last) {
        p->told_last->next = t;
    } else {
        p->told_first = t;
    }
    p->told_last = t;
    p->n_told++;
}

void mr__notice_tell(void *self, const struct hook_event *ev)
{
    struct policies *p = self;

    if (!p->hooks.wants(p, ev->hook)) {
        return;
    }
    if (p->runs.depth > 0 || p->told_first) { /* in the order in which it happened */
        put_off(p, ev);
    } else {
        tell_all(p, ev);
    }
}

static struct told *pop(struct policies *p)
{
    struct told *t = p->told_first;

    if (t) {
        p->told_first = t->next;
        p->told_last = t->next ? p->told_last : NULL;
        p->n_told--;
    }
    return t;
}

bool mr__notice_tell_next(struct policies *p)
{
    struct told *t = pop(p);

    if (t) {
        tell_all(p, &t->event->ev);
        mr__event_copy_unref(t->event);
        mr__free(t);
    }
    return t != NULL;
}

void mr__notice_shadow(struct policies *p, struct policy *policy, const struct hook_event *ev,
                       struct hook_map tags)
{
    struct event_copy *copy = NULL;

    start(p, policy, ev, tags, &copy);
    mr__event_copy_unref(copy);
}

void mr__notices_deinit(struct policies *p)
{
    for (struct notice *n = p->notices, *next; n; n = next) {
        next = n->next;
        mr__free(n);
    }
    p->notices = NULL;
    for (struct told *t = pop(p); t; t = pop(p)) {
        mr__event_copy_unref(t->event);
        mr__free(t);
    }
}
