/* SPDX-License-Identifier: MIT */
/*
 * A run: one call of a policy's function, in a coroutine, which may wait in the middle.
 * Control thread only. Start reading at mr__run_start(); who waits is in wait.h.
 *
 *   start ──> runs ──> ended                        what start() returned
 *              │  ^
 *   wait.h     v  │ mr__wait_end()
 *             waits ──> ended                       class->ended() is called
 *                  ──> deadline                     likewise, with what it waited for
 *                  ──> mr__run_abandon()            nothing is called but the wait's forget
 *
 * Its CPU budget goes on over all of it, its deadline is set when it first waits.
 */
#ifndef MR_SCRIPT_RUN_H
#define MR_SCRIPT_RUN_H

#include "script/alarm.h"
#include "script/state.h"
#include "script/wait.h"

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct generation;
struct policy;
struct run;

enum run_kind {
    RUN_DECISION,
    RUN_SHADOW, /* a decision that is ignored */
    RUN_NOTICE,
    RUN_TIMER,
    RUN_COMMAND,
    RUN_LOAD,
    RUN_KIND_COUNT
};

/* What runs of one kind have in common. push_function, push_arguments and take are called inside of
 * the state and may raise. */
struct run_class {
    enum run_kind kind;
    bool is_create; /* it decides about a relay that is being made, and cannot wait for one */
    bool is_lookup; /* it answers lookups: what it asks itself is not for it to answer */
    void (*push_function)(lua_State *L, struct run *r);
    /* Returns how many; NULL: none. */
    int (*push_arguments)(lua_State *L, struct run *r);
    /* Reads the n results at index. 0, or a negative errno with *failure. NULL: they are nothing.
     */
    int (*take)(lua_State *L, struct run *r, int index, int n, struct script_failure *failure);
    /* One that had waited ended: 0, or a negative errno with *failure (-ECANCELED: its generation
     * is taken down). May free the run. */
    void (*ended)(struct run *r, int rc, const struct script_failure *failure);
};

/* Lives in what it is run for; zeroed but for policy and class before each start. */
struct run {
    const struct run_class *class;
    struct policy *policy;

    lua_State *co;
    int anchor; /* holds co */
    struct script_used used;
    uint64_t start_ns, end_ns; /* monotonic */
    struct wait {
        struct run *run;
        const char *what;
        void (*forget)(void *user);
        void *user;
        bool is_begun;
    } wait;
    bool is_running, is_waiting, is_given_up;
    bool is_refused_to_wait; /* since too many do */
    bool has_places;         /* in the alarms, for these two: */
    struct alarm deadline, alarm;
    struct run *prev, *next; /* in generation->waiting */
};

/* Of all generations. */
struct runs {
    struct alarms alarms;
    uint64_t (*mono_ns)(void *user);
    void *user;
    size_t n_waiting[RUN_KIND_COUNT];
    unsigned depth;    /* scripts that run now, one inside of another */
    uint64_t spent_ns; /* in scripts */
    uint64_t last_timer;
};

enum {
    RUN_RESULTS_MAX = 3, /* false, reason, { mute = s } */
    RUN_IDLE_MAX = 16,   /* coroutines that a generation keeps for the next */
    RUN_DEPTH_MAX = 8,
};

/* How many of each kind may wait at once, over all policies and generations. */
extern const size_t mr__run_waiting_max[RUN_KIND_COUNT];

#define RUN_WAITS 1

/* 0: it ended and was taken; RUN_WAITS: class->ended() will be called, unless it is abandoned;
 * else a negative errno with *failure (-ECANCELED: it was abandoned while it ran). */
int mr__run_start(struct run *r, const struct run_class *class, struct policy *policy,
                  struct script_failure *failure);

/* Forgets one that waits; class->ended() is not called. One that is running is dropped as soon as
 * it ends or waits. */
void mr__run_abandon(struct run *r);

/* Abandons, as at its deadline, with a failure that says where it waits; class->ended() is
 * called. */
void mr__run_time_out(struct run *r);

/* Whether what runs in this state answers a lookup: then what it asks is not for it to answer, and
 * carries MR_LOOKUP_BUILT_IN. Timers and the like that it starts are runs of their own. */
bool mr__run_is_lookup(lua_State *L);

/* An alarm that is the wait's: set it by mr__alarm_set(), ring is yours. It is cleared when the
 * wait ends. */
struct alarm *mr__wait_alarm(struct wait *w);
struct wait *mr__wait_of_alarm(struct alarm *a);

#endif
