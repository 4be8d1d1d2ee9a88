/* SPDX-License-Identifier: MIT */
/*
 * The chain: asks the policies in order and makes one answer of theirs. Control thread
 * only. Start reading at ask().
 *
 *   ask ── policy 1 ── refuses? ──> REFUSE      the first refusal ends the chain
 *            │ fails? ────────────> FAILED      closed, unless on_error = "skip"
 *            │ returns a table: merged; nil: no opinion
 *          policy 2 ... ──────────> ADMIT when one returned a table, else NO_OPINION
 *
 * A chain has its own memory for the answer, since done() may ask again before it
 * returns (a datagram that was admitted wants a relay).
 */
#include "script/policies.h"

#include "base/alloc.h"
#include "script/event.h"
#include "script/figures.h"
#include "script/generation.h"
#include "script/sandbox.h"
#include "script/source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* One request on its way. */
struct chain {
    struct merged_answer all;
    struct answer one;
    struct chain *next; /* in the pool */
};

struct policies {
    struct policies_options opts;
    struct generation *generation;
    struct policy_figures *figures; /* of generation->policies, by index */
    struct log_limiter *limiters;   /* of failures, likewise */
    struct hooks hooks;
    struct chain *pool;
};

static const struct str policy_error = {"policy-error", 12};

enum {
    FAILURES_PER_S = 1, /* log lines a policy; the rest is counted */
    FAILURES_BURST = 10,
};

/* ---- clocks ---------------------------------------------------------------------------------- */

static uint64_t system_mono_ns(void *user)
{
    struct timespec t;

    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- one policy ------------------------------------------------------------------------------ */

static void log_failure(struct policies *p, size_t i, enum hook hook,
                        const struct script_failure *failure, uint64_t now_ns)
{
    const struct policy *policy = &p->generation->policies[i];
    uint32_t suppressed = p->limiters[i].suppressed;
    struct log_field fields[5] = {LOG_STR("policy", policy->name),
                                  LOG_STR("hook", mr__event_hook_name(hook)),
                                  LOG_STR("error", failure->text)};
    size_t n = 3;

    if (!mr__log_limit(&p->limiters[i], now_ns / 1000000, FAILURES_PER_S, FAILURES_BURST) ||
        !p->opts.log) {
        return;
    }
    p->limiters[i].suppressed = 0;
    if (failure->traceback[0] != '\0') {
        fields[n++] = LOG_STR("traceback", failure->traceback);
    }
    if (suppressed > 0) {
        fields[n++] = LOG_UINT("suppressed", suppressed);
    }
    mr__log(p->opts.log, MR_LOG_ERROR, "policy", "hook failed", fields, n);
}

/* Calls a policy's hook, counts and logs. The result is of MR_CALL_*. */
static enum call_result call_policy(struct policies *p, size_t i, const struct hook_event *ev,
                                    struct chain *c)
{
    struct policy *policy = &p->generation->policies[i];
    struct script_failure failure;
    uint64_t start_ns = p->opts.mono_ns(p->opts.user), end_ns;
    int rc = mr__generation_call(policy, ev, &c->one, &c->all, &failure);
    enum call_result result = MR_CALL_NONE;

    end_ns = p->opts.mono_ns(p->opts.user);
    if (rc != 0) {
        result = MR_CALL_ERROR;
        log_failure(p, i, ev->hook, &failure, end_ns);
    } else if (c->one.outcome == MR_HOOK_REFUSE) {
        result = MR_CALL_REFUSE;
        mr__figures_refusal(&p->figures[i], ev->hook, c->one.reason);
    } else if (c->one.outcome == MR_HOOK_ADMIT) {
        result = MR_CALL_ADMIT;
    }
    mr__figures_call(&p->figures[i], ev->hook, result, end_ns - start_ns);
    return result;
}

/* ---- the chain ------------------------------------------------------------------------------- */

static struct chain *take_chain(struct policies *p)
{
    struct chain *c = p->pool;

    if (c) {
        p->pool = c->next;
    } else {
        c = mr__alloc(1, sizeof *c);
    }
    if (c) {
        mr__answer_begin(&c->all);
    }
    return c;
}

static void give_chain(struct policies *p, struct chain *c)
{
    c->next = p->pool;
    p->pool = c;
}

static void end_with(struct hook_answer *answer, const struct policy *policy,
                     enum hook_outcome outcome, const char *reason)
{
    answer->outcome = outcome;
    answer->policy = (struct str){policy->name, strlen(policy->name)};
    snprintf(answer->reason, sizeof answer->reason, "%s", reason);
}

static void run_chain(struct policies *p, const struct hook_event *ev, struct chain *c)
{
    for (size_t i = 0; i < p->generation->n; i++) {
        const struct policy *policy = &p->generation->policies[i];
        enum call_result result;

        if (!mr__policy_has(policy, ev->hook)) {
            continue;
        }
        result = call_policy(p, i, ev, c);
        if (policy->is_shadow) {
            continue;
        }
        if (result == MR_CALL_REFUSE) {
            end_with(&c->all.answer, policy, MR_HOOK_REFUSE, c->one.reason);
            c->all.answer.mute_ns = c->one.mute_ns;
            return;
        }
        if (result == MR_CALL_ERROR && !policy->is_skipped_on_error) {
            end_with(&c->all.answer, policy, MR_HOOK_FAILED, policy_error.s);
            mr__figures_refusal(&p->figures[i], ev->hook, policy_error.s);
            return;
        }
    }
}

static void ask(void *self, struct hook_request *req, const struct hook_event *ev)
{
    struct policies *p = self;
    struct chain *c = take_chain(p);

    req->decider = NULL;
    if (!c) {
        /* No memory even for the answer: refused, as any failure of the chain is. */
        struct hook_answer answer = {.outcome = MR_HOOK_FAILED, .reason = "policy-error"};

        req->done(req, &answer);
        return;
    }
    run_chain(p, ev, c);
    req->done(req, &c->all.answer);
    give_chain(p, c);
}

static void cancel(void *self, struct hook_request *req)
{
    /* Every request is answered from inside ask(), so there is never one to forget. */
    (void)self;
    (void)req;
}

static void tell(void *self, const struct hook_event *ev)
{
    struct policies *p = self;
    struct chain *c = take_chain(p);

    for (size_t i = 0; c && i < p->generation->n; i++) {
        if (mr__policy_has(&p->generation->policies[i], ev->hook)) {
            call_policy(p, i, ev, c);
        }
    }
    if (c) {
        give_chain(p, c);
    }
}

static bool wants(void *self, enum hook hook)
{
    const struct policies *p = self;

    for (size_t i = 0; i < p->generation->n; i++) {
        if (mr__policy_has(&p->generation->policies[i], hook)) {
            return true;
        }
    }
    return false;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void set_defaults(struct policies *p, const struct policies_options *opts)
{
    struct policies_options *o = &p->opts;

    *o = *opts;
    o->cpu_ns = o->cpu_ns ? o->cpu_ns : 10000000;
    o->load_cpu_ns = o->load_cpu_ns ? o->load_cpu_ns : 1000000000;
    o->memory_bytes = o->memory_bytes ? o->memory_bytes : 32u << 20;
    o->wall_s = o->wall_s ? o->wall_s : mr__sandbox_wall_s;
    o->mono_ns = o->mono_ns ? o->mono_ns : system_mono_ns;
    /* Borrowed for the call that created us. */
    o->first = NULL;
    o->n_first = 0;
    o->list = NULL;
    o->config = NULL;
    p->hooks =
        (struct hooks){.self = p, .wants = wants, .ask = ask, .cancel = cancel, .tell = tell};
}

static int make_figures(struct policies *p, const struct policy_sources *sources)
{
    p->figures = mr__alloc(sources->n + 1, sizeof *p->figures);
    p->limiters = mr__alloc(sources->n + 1, sizeof *p->limiters);
    if (!p->figures || !p->limiters) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < sources->n; i++) {
        p->figures[i].policy = mr__strndup(sources->items[i].name, strlen(sources->items[i].name));
        if (!p->figures[i].policy) {
            return -ENOMEM;
        }
    }
    return 0;
}

static int load(struct policies *p, const struct policies_options *opts, struct script_error *err)
{
    struct generation_options g = {
        .log = p->opts.log,
        .settings = p->opts.settings,
        .cpu_ns = p->opts.cpu_ns,
        .load_cpu_ns = p->opts.load_cpu_ns,
        .memory_bytes = p->opts.memory_bytes,
        .wall_s = p->opts.wall_s,
        .mono_ns = p->opts.mono_ns,
        .user = p->opts.user,
        .seed = p->opts.seed,
    };
    struct policy_sources sources;
    int rc = mr__sources_collect(&sources, opts, err);

    if (rc != 0) {
        return rc;
    }
    rc = make_figures(p, &sources);
    if (rc != 0) {
        snprintf(err->text, sizeof err->text, "policies: out of memory");
    } else {
        rc = mr__generation_create(&p->generation, &g, &sources, err);
    }
    mr__sources_deinit(&sources);
    return rc;
}

int mr__policies_create(struct policies **out, const struct policies_options *opts,
                        struct script_error *err)
{
    struct policies *p = mr__alloc(1, sizeof *p);
    int rc;

    if (!p) {
        snprintf(err->text, sizeof err->text, "policies: out of memory");
        return -ENOMEM;
    }
    set_defaults(p, opts);
    rc = load(p, opts, err);
    if (rc != 0) {
        mr__policies_destroy(p);
        return rc;
    }
    *out = p;
    return 0;
}

void mr__policies_destroy(struct policies *p)
{
    if (!p) {
        return;
    }
    for (struct chain *c = p->pool, *next; c; c = next) {
        next = c->next;
        mr__free(c);
    }
    for (size_t i = 0; p->figures && p->figures[i].policy; i++) {
        mr__free(p->figures[i].policy); /* one more is allocated, so a NULL ends them */
    }
    mr__free(p->figures);
    mr__free(p->limiters);
    mr__generation_destroy(p->generation);
    mr__free(p);
}

const struct hooks *mr__policies_hooks(struct policies *p)
{
    return &p->hooks;
}

size_t mr__policies_count(const struct policies *p)
{
    return p->generation->n;
}

void mr__policies_info(const struct policies *p, size_t i, struct policy_info *out)
{
    const struct policy *policy = &p->generation->policies[i];

    *out = (struct policy_info){.name = policy->name,
                                .origin = policy->origin,
                                .is_shadow = policy->is_shadow,
                                .is_skipped_on_error = policy->is_skipped_on_error};
}

void mr__policies_metrics(void *user, struct metrics *m)
{
    const struct policies *p = user;

    mr__figures_write(p->figures, p->generation->n, m);
}
