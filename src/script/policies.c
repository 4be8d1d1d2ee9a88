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
#include "script/tally.h"

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
    struct generation *generation; /* NULL: nothing was loaded yet */
    struct config *config;         /* what it was made of */
    uint64_t number;
    double loaded_at, load_seconds;
    struct policy_figures *figures; /* of generation->policies, by index */
    struct log_limiter *limiters;   /* of failures, likewise */
    struct tallies *tallies;
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
    for (size_t i = 0; i < mr__policies_count(p); i++) {
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

    for (size_t i = 0; c && i < mr__policies_count(p); i++) {
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

    for (size_t i = 0; i < mr__policies_count(p); i++) {
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
    o->wall_s = o->wall_s ? o->wall_s : mr__sandbox_wall_s;
    o->mono_ns = o->mono_ns ? o->mono_ns : system_mono_ns;
    p->hooks =
        (struct hooks){.self = p, .wants = wants, .ask = ask, .cancel = cancel, .tell = tell};
}

int mr__policies_create(struct policies **out, const struct policies_options *opts)
{
    struct policies *p = mr__alloc(1, sizeof *p);

    if (!p) {
        return -ENOMEM;
    }
    p->tallies = mr__tallies_create();
    if (!p->tallies) {
        mr__free(p);
        return -ENOMEM;
    }
    set_defaults(p, opts);
    *out = p;
    return 0;
}

static void drop_figures(struct policy_figures *figures, struct log_limiter *limiters)
{
    for (size_t i = 0; figures && figures[i].policy; i++) {
        mr__free(figures[i].policy); /* one more is allocated, so a NULL ends them */
    }
    mr__free(figures);
    mr__free(limiters);
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
    drop_figures(p->figures, p->limiters);
    mr__generation_destroy(p->generation);
    mr__config_unref(p->config);
    mr__tallies_destroy(p->tallies); /* policies' objects point into them */
    mr__free(p);
}

const struct hooks *mr__policies_hooks(struct policies *p)
{
    return &p->hooks;
}

/* ---- generations ----------------------------------------------------------------------------- */

static int make_figures(struct policy_figures **figures, struct log_limiter **limiters,
                        const struct policy_sources *sources)
{
    *figures = mr__alloc(sources->n + 1, sizeof **figures);
    *limiters = mr__alloc(sources->n + 1, sizeof **limiters);
    for (size_t i = 0; *figures && i < sources->n; i++) {
        const char *name = sources->items[i].name;

        (*figures)[i].policy = mr__strndup(name, strlen(name));
        if (!(*figures)[i].policy) {
            return -ENOMEM;
        }
    }
    return *figures && *limiters ? 0 : -ENOMEM;
}

static void swap(struct policies *p, struct generation *g, struct policy_figures *figures,
                 struct log_limiter *limiters, struct config *config)
{
    drop_figures(p->figures, p->limiters);
    mr__generation_destroy(p->generation);
    mr__config_ref(config);
    mr__config_unref(p->config);
    p->generation = g;
    p->figures = figures;
    p->limiters = limiters;
    p->config = config;
    p->number++;
    p->loaded_at = p->opts.wall_s(p->opts.user);
}

static int load_now(struct policies *p, const struct policies_load *load, struct script_error *err)
{
    struct generation_options g = {
        .log = p->opts.log,
        .service = p->opts.service,
        .host = p->opts.host,
        .tallies = p->tallies,
        .settings = load->settings,
        .cpu_ns = load->cpu_ns ? load->cpu_ns : 10000000,
        .load_cpu_ns = load->load_cpu_ns ? load->load_cpu_ns : 1000000000,
        .wait_ns = load->wait_ns ? load->wait_ns : 2000000000,
        .memory_bytes = load->memory_bytes ? load->memory_bytes : 32u << 20,
        .wall_s = p->opts.wall_s,
        .mono_ns = p->opts.mono_ns,
        .user = p->opts.user,
        .seed = p->opts.seed,
    };
    struct policy_sources sources;
    struct policy_figures *figures = NULL;
    struct log_limiter *limiters = NULL;
    struct generation *made = NULL;
    int rc = mr__sources_collect(&sources, load, err);

    if (rc != 0) {
        return rc;
    }
    rc = make_figures(&figures, &limiters, &sources);
    if (rc != 0) {
        snprintf(err->text, sizeof err->text, "policies: out of memory");
    } else {
        rc = mr__generation_create(&made, &g, &sources, err);
    }
    mr__sources_deinit(&sources);
    if (rc == 0 && load->mode == MR_LOAD_SWAP) {
        swap(p, made, figures, limiters, load->config);
    } else {
        mr__generation_destroy(made);
        drop_figures(figures, limiters);
    }
    return rc;
}

int mr__policies_load(struct policies *p, const struct policies_load *load)
{
    struct script_error err = {.text = ""};
    uint64_t start_ns = p->opts.mono_ns(p->opts.user);
    int rc = load_now(p, load, &err);

    if (rc == 0 && load->mode == MR_LOAD_SWAP) {
        p->load_seconds = (double)(p->opts.mono_ns(p->opts.user) - start_ns) / 1e9;
    }
    load->done(load->user, rc, &err);
    return 0;
}

int mr__policies_rollback(struct policies *p,
                          void (*done)(void *user, int rc, const struct script_error *err),
                          void *user)
{
    (void)p;
    (void)done;
    (void)user;
    return -ENOENT;
}

struct config *mr__policies_config(const struct policies *p)
{
    return p->config;
}

void mr__policies_files(const struct policies *p, void (*visit)(void *user, const char *path),
                        void *user)
{
    for (size_t i = 0; i < mr__policies_count(p); i++) {
        if (strcmp(p->generation->policies[i].origin, "shipped") != 0) {
            visit(user, p->generation->policies[i].origin);
        }
    }
}

void mr__policies_call(struct policies *p, struct str policy, struct str verb,
                       const struct str *args, size_t n_args, policies_called done, void *user)
{
    static const char text[] = "no such policy or command";

    (void)p;
    (void)policy;
    (void)verb;
    (void)args;
    (void)n_args;
    done(user, -ENOENT, (struct str){text, sizeof text - 1}, false);
}

/* ---- what is there --------------------------------------------------------------------------- */

void mr__policies_generation(const struct policies *p, struct generation_info *out)
{
    *out = (struct generation_info){.number = p->number,
                                    .loaded_at = p->loaded_at,
                                    .load_seconds = p->load_seconds,
                                    .generations = p->generation ? 1 : 0};
    if (p->generation) {
        out->memory_bytes = p->generation->state.used_bytes;
    }
}

size_t mr__policies_count(const struct policies *p)
{
    return p->generation ? p->generation->n : 0;
}

void mr__policies_info(const struct policies *p, size_t i, struct policy_info *out)
{
    const struct policy *policy = &p->generation->policies[i];
    const struct policy_figures *f = &p->figures[i];

    *out = (struct policy_info){.name = policy->name,
                                .origin = policy->origin,
                                .is_shadow = policy->is_shadow,
                                .is_skipped_on_error = policy->is_skipped_on_error};
    for (size_t hook = 0; hook < MR_HOOK_COUNT; hook++) {
        struct policy_hook_info *h = &out->hooks[hook];

        h->is_defined = mr__policy_has(policy, hook);
        mr__figures_sum(f, hook, &h->calls, &h->refusals, &h->errors, &h->seconds);
    }
}

const char *mr__policies_hook_name(enum hook hook)
{
    return mr__event_hook_name(hook);
}

void mr__policies_metrics(void *user, struct metrics *m)
{
    const struct policies *p = user;

    mr__figures_write(p->figures, mr__policies_count(p), m);
    mr__tallies_write(p->tallies, m);
}
