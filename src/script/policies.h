/* SPDX-License-Identifier: MIT */
/*
 * The policy chain: implements the service's hooks (service/hooks.h) in Lua. Control
 * thread only.
 *
 *   policies.c    the chain: who is asked, in which order; failures, counting (figures.c)
 *   source.c      which files the chain is made of     config.c   the config file (locate.c: lines)
 *   generation.c  one lua_State with the loaded policies of one configuration
 *   sandbox.c     what such a state contains: one function opens every state
 *   state.c       memory cap, CPU budget, protected calls, tracebacks
 *   event.c       hook_event -> the table `ev`         answer.c   returned values -> hook_answer
 *   module.c      `require "relay"`                    pattern.c  string.find and kin, in budget
 *
 * Start reading at mr__policies_create(). A reload builds another generation aside and
 * swaps one pointer; nothing outside of generation.c and below knows a lua_State.
 */
#ifndef MR_SCRIPT_POLICIES_H
#define MR_SCRIPT_POLICIES_H

#include "base/log.h"
#include "script/config.h"
#include "service/hooks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct metrics;
struct policies;
struct settings;

struct policies_options {
    struct log *log;                 /* outlives the policies */
    const struct settings *settings; /* for `relay.settings`; outlives them; NULL: empty */

    /* Budgets and cap, as in struct settings_values; 0: 10 ms, 1 s, 32 MiB. */
    uint64_t cpu_ns, load_cpu_ns, memory_bytes;

    /* For relay.now(), relay.monotonic() and the durations. NULL: the system's clocks. */
    double (*wall_s)(void *user);
    uint64_t (*mono_ns)(void *user);
    void *user;
    uint64_t seed; /* of math.random in the scripts */

    /* The chain: first the files of --policy, then `list` if it is not empty, else the config's
     * `policies`, else "dynamic". Borrowed for the call. */
    const char *const *first; /* names of shipped policies, or paths from the working directory */
    size_t n_first;
    const char *list;            /* setting `policies`: names and paths, separated by commas */
    const struct config *config; /* may be NULL */
};

/* Loads the chain. -EINVAL (or -ENOENT, -EACCES ...: a policy is unreadable): *err says what is
 * wrong and where; -ENOMEM. On failure *out is untouched and nothing is left. */
int mr__policies_create(struct policies **out, const struct policies_options *opts,
                        struct script_error *err);

/* No request may be pending. Accepts NULL. */
void mr__policies_destroy(struct policies *p);

/* For mr__service_set_hooks(). Ends with the policies. */
const struct hooks *mr__policies_hooks(struct policies *p);

/* The chain in order, for the start banner. Strings end with the policies. */
struct policy_info {
    const char *name;
    const char *origin; /* path as given, or "shipped" */
    bool is_shadow;     /* asked and counted, but its answers are ignored */
    bool is_skipped_on_error;
};
size_t mr__policies_count(const struct policies *p);
void mr__policies_info(const struct policies *p, size_t i, struct policy_info *out);

/* A metrics_source (service/service.h); user is the struct policies. */
void mr__policies_metrics(void *user, struct metrics *m);

#endif
