/* SPDX-License-Identifier: MIT */
/*
 * One generation: the policies of one configuration, loaded into a Lua state of their
 * own. Control thread only. A reload makes another one aside; nothing is shared.
 *
 *   create ── LOADING ── mr__generation_load(): files are run, then each load(cfg)
 *                │ mr__generation_use()
 *              IN_USE ── hooks, timers
 *                │ mr__generation_retire(): its timers and endpoints end
 *             RETIRED ── until the last run of it ended, then it is destroyed
 *
 * Start reading at mr__generation_create().
 */
#ifndef MR_SCRIPT_GENERATION_H
#define MR_SCRIPT_GENERATION_H

#include "script/anchor.h"
#include "script/run.h"
#include "script/sandbox.h"
#include "script/source.h"
#include "script/state.h"
#include "service/hooks.h"
#include "service/host.h"

struct cidr;
struct outlet;
struct policy_figures;
struct timer;

struct tallies;

struct generation_options {
    struct log *log;
    struct service *service; /* may be NULL */
    struct script_host host; /* zeroed: there is none */
    struct tallies *tallies; /* of relay.metric(); may be NULL */
    struct runs *runs;       /* shared by all generations; outlives them */
    uint64_t cpu_ns, load_cpu_ns, wait_ns, memory_bytes;
    double (*wall_s)(void *user);
    uint64_t (*mono_ns)(void *user);
    void *user;
    uint64_t seed;
};

/* A verb of `commands`. */
struct policy_command {
    char *verb;
    int ref; /* the registry's place of its function */
};

struct policy {
    struct generation *generation;
    struct policy_source *source;
    const char *name, *origin; /* the source's */
    bool is_shadow, is_skipped_on_error;
    int hook_refs[MR_HOOK_COUNT]; /* LUA_NOREF: not defined */
    int load_ref;
    struct policy_command *commands;
    size_t n_commands;
    int env_ref, modules_ref; /* of require */
    size_t n_timers, n_outlets;
    struct policy_figures *figures; /* of its name; NULL before the generation is used */

    /* What relay.blocklist() said in `load`: done at the swap. */
    struct {
        struct cidr *nets;
        char reason[MR_REASON_MAX + 1];
        bool is_set;
    } staged;
};

enum generation_stage { GENERATION_LOADING, GENERATION_IN_USE, GENERATION_RETIRED };

struct generation {
    struct generation_options opts;
    struct sandbox_options sandbox;
    struct script_state state;
    struct runs *runs;
    struct policy_sources *sources;
    struct policy *policies;
    size_t n;
    enum generation_stage stage;
    size_t users; /* chains, notices and calls that are under way */
    struct run *waiting;
    struct timer *timers;
    struct outlet *outlets;
    struct anchors anchors;
    struct {
        lua_State *co;
        int anchor;
    } idle[RUN_IDLE_MAX];
    size_t n_idle;

    struct run load; /* of policies[loading] */
    size_t loading;
    void (*loaded)(void *user, int rc, const struct script_error *err);
    void *user;
    struct generation *next; /* retired */
};

/* An empty one; takes a reference of sources. 0, or a negative errno with err. */
int mr__generation_create(struct generation **out, const struct generation_options *opts,
                          struct policy_sources *sources, struct script_error *err);

/* Runs the files in order, then each policy's load(cfg), one after the other. done is called once,
 * from inside or later, unless the generation is destroyed before. */
void mr__generation_load(struct generation *g,
                         void (*done)(void *user, int rc, const struct script_error *err),
                         void *user);

/* It is the one that is asked now: its timers run, its staged lists are in force. */
void mr__generation_use(struct generation *g);
/* Another one took over: its timers and endpoints end. */
void mr__generation_retire(struct generation *g);

/* Abandons what waits. Nothing may be running in it. Accepts NULL. */
void mr__generation_destroy(struct generation *g);

static inline bool mr__policy_has(const struct policy *p, enum hook hook)
{
    return p->hook_refs[hook] != LUA_NOREF;
}

/* relay.blocklist(): in `load` it is staged until the swap, and a generation that was replaced
 * changes nothing any more. Takes a reference of nets (NULL: no list). reason is clean. As
 * mr__blocks_set_list(). */
int mr__policy_set_blocklist(struct policy *p, struct cidr *nets, struct str reason,
                             unsigned *ended);

#endif
