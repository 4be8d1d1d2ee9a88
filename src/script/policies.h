/* SPDX-License-Identifier: MIT */
/*
 * The policy chain: implements the service's hooks (service/hooks.h) in Lua. Control
 * thread only.
 *
 *   policies.c    life, tick, info         chain.c    decisions: who is asked, what came of it
 *   notice.c      notices, shadows         command.c  `moonrelay call`
 *   reload.c      loads, swap, rollback    figures.c  counting, logging failures
 *   source.c      which files the chain is made of     config.c   the config file (locate.c: lines)
 *   generation.c  one lua_State with the loaded policies of one configuration (require.c)
 *   run.c         one call of a policy, which may wait (wait.h, alarm.c, timer.c)
 *   sandbox.c     what such a state contains: one function opens every state
 *   state.c       memory cap, CPU budget, protected calls, tracebacks
 *   event.c       hook_event -> the table `ev`         answer.c   returned values -> hook_answer
 *   module.c      `require "relay"`, its parts are module_*.c; json.c, argument.c, holder.c serve
 *                 them                                 pattern.c  string.find and kin, in budget
 *
 * Start reading at mr__policies_create(). A reload builds another generation aside and
 * swaps one pointer; nothing outside of generation.c and below knows a lua_State.
 */
#ifndef MR_SCRIPT_POLICIES_H
#define MR_SCRIPT_POLICIES_H

#include "base/log.h"
#include "script/config.h"
#include "service/hooks.h"
#include "service/host.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct metrics;
struct policies;
struct service;
struct settings;

struct policies_options {
    struct log *log;         /* outlives the policies; NULL: nothing is logged */
    struct service *service; /* what `relay` acts on; outlives them; NULL: those functions raise */
    struct script_host host; /* zeroed: relay.http and relay.read give nil, "not available" */

    /* For relay.now(), relay.monotonic(), durations and timers. NULL: the system's clocks. */
    double (*wall_s)(void *user);
    uint64_t (*mono_ns)(void *user);
    void *user;
    uint64_t seed; /* of math.random in the scripts */
};

/* No generation is there yet: nothing is wanted, everything is admitted by nobody. -ENOMEM. */
int mr__policies_create(struct policies **out, const struct policies_options *opts);

/* Abandons what is suspended (nothing is answered any more). Accepts NULL. */
void mr__policies_destroy(struct policies *p);

/* For mr__service_set_hooks(). Ends with the policies. */
const struct hooks *mr__policies_hooks(struct policies *p);

/* ---- generations */

/* What a generation is made of. Borrowed until done was called; the config is kept by reference
 * (mr__config_ref()) for a rollback. */
struct policies_load {
    /* The chain: first the files of --policy, then `list` if it is not empty, else the config's
     * `policies`, else "dynamic". */
    const char *const *first; /* names of shipped policies, or paths from the working directory */
    size_t n_first;
    const char *list;                /* setting `policies`: names and paths, separated by commas */
    struct config *config;           /* may be NULL */
    const struct settings *settings; /* for `relay.settings`; NULL: empty */
    /* Budgets and cap, as in struct settings_values; 0: 10 ms, 1 s, 2 s, 32 MiB. */
    uint64_t cpu_ns, load_cpu_ns, wait_ns, memory_bytes;
    enum { MR_LOAD_SWAP, MR_LOAD_CHECK } mode; /* CHECK: load everything, change nothing */

    /* rc 0: it is in use (or could be); else a negative errno and *err says what and where, and the
     * generation before goes on. May be called from inside mr__policies_load(). */
    void (*done)(void *user, int rc, const struct script_error *err);
    void *user;
};

/* Builds a generation aside, runs every `load` (which may wait, so mr__policies_hooks()' tick must
 * be called meanwhile), then swaps. -EBUSY: another load is under way, done will not be called. */
int mr__policies_load(struct policies *p, const struct policies_load *load);
/* Says in the log why a load has failed, with its traceback, for whoever has no line of his own. */
void mr__policies_log_failure(struct log *log, const struct script_error *err);
/* The sources of the generation before, loaded again. -ENOENT: there is none; -EBUSY. */
int mr__policies_rollback(struct policies *p,
                          void (*done)(void *user, int rc, const struct script_error *err),
                          void *user);
/* The config that the generation in use was made of, or NULL. Borrowed. */
struct config *mr__policies_config(const struct policies *p);

/* Every file the generation in use was read from (policies, what they required, not the shipped
 * ones), for a file watch. */
void mr__policies_files(const struct policies *p, void (*visit)(void *user, const char *path),
                        void *user);

/* ---- commands: `moonrelay call POLICY VERB ARGS` */

/* rc 0: text is what it returned, as it is or, when it was a table, as JSON. -ENOENT: no such
 * policy or verb, -EBUSY: too much is suspended, -EINVAL: it failed; text says what and where. */
typedef void (*policies_called)(void *user, int rc, struct str text, bool is_json);
void mr__policies_call(struct policies *p, struct str policy, struct str verb,
                       const struct str *args, size_t n_args, policies_called done, void *user);

/* ---- what is there */

struct generation_info {
    uint64_t number;     /* 1 is the first; 0: none */
    double loaded_at;    /* wall clock, s */
    double load_seconds; /* how long loading took */
    size_t memory_bytes; /* of its state now */
    size_t suspended;    /* chains, notices, timers' runs that wait, of all generations */
    size_t generations;  /* alive: older ones end with their last chain */
};
void mr__policies_generation(const struct policies *p, struct generation_info *out);

/* The chain in order. Strings end with the generation. */
struct policy_info {
    const char *name;
    const char *origin; /* path as given, or "shipped" */
    char sha256[65];    /* of its text, hex */
    bool is_shadow;     /* asked and counted, but its answers are ignored */
    bool is_skipped_on_error;
    size_t n_commands;
    struct policy_hook_info { /* since the start, of the policy's name */
        bool is_defined;
        uint64_t calls, refusals, errors;
        double seconds;
    } hooks[MR_HOOK_COUNT];
};
size_t mr__policies_count(const struct policies *p);
void mr__policies_info(const struct policies *p, size_t i, struct policy_info *out);

/* "register", ... */
const char *mr__policies_hook_name(enum hook hook);

/* A metrics_source (service/service.h); user is the struct policies. */
void mr__policies_metrics(void *user, struct metrics *m);

#endif
