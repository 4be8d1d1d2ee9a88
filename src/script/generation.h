/* SPDX-License-Identifier: MIT */
/*
 * One generation: the policies of one configuration, loaded into a Lua state of their
 * own. Control thread only. A reload makes another one aside; nothing is shared.
 *
 * Start reading at mr__generation_create() and mr__generation_call().
 */
#ifndef MR_SCRIPT_GENERATION_H
#define MR_SCRIPT_GENERATION_H

#include "script/answer.h"
#include "script/host.h"
#include "script/sandbox.h"
#include "script/source.h"
#include "script/state.h"

struct tallies;

struct generation_options {
    struct log *log;
    struct service *service;         /* may be NULL */
    struct script_host host;         /* zeroed: there is none */
    struct tallies *tallies;         /* of relay.metric(); may be NULL */
    const struct settings *settings; /* valid while it loads */
    uint64_t cpu_ns, load_cpu_ns, wait_ns, memory_bytes;
    double (*wall_s)(void *user);
    uint64_t (*mono_ns)(void *user);
    void *user;
    uint64_t seed;
};

struct policy {
    struct generation *generation;
    char *name, *origin;
    bool is_shadow, is_skipped_on_error;
    int hook_refs[MR_HOOK_COUNT]; /* LUA_NOREF: not defined */
};

struct generation {
    struct generation_options opts;
    struct sandbox_options sandbox;
    struct script_state state;
    struct policy *policies;
    size_t n;
};

/* Loads sources in order and runs each policy's load(cfg). 0, or a negative errno with err. */
int mr__generation_create(struct generation **out, const struct generation_options *opts,
                          const struct policy_sources *sources, struct script_error *err);
void mr__generation_destroy(struct generation *g);

static inline bool mr__policy_has(const struct policy *p, enum hook hook)
{
    return p->hook_refs[hook] != LUA_NOREF;
}

/* Calls one hook of one policy, which must have it. For a decision, `one` is its answer, merged
 * into `all` when it admits something and the policy is no shadow. 0, or a negative errno with
 * *failure; then `all` is as it was. */
int mr__generation_call(struct policy *p, const struct hook_event *ev, struct answer *one,
                        struct merged_answer *all, struct script_failure *failure);

#endif
