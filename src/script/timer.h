/* SPDX-License-Identifier: MIT */
/*
 * Timers of a policy: relay.after() and relay.every(). They start when their generation
 * is in use and end with it. Control thread only.
 */
#ifndef MR_SCRIPT_TIMER_H
#define MR_SCRIPT_TIMER_H

#include <lua.h>
#include <stdint.h>

struct generation;
struct policy;

enum { TIMERS_MAX = 1000 }; /* of a policy */

/* Adds one that calls the function on top of L, which it pops: once after delay_ns, or every
 * period_ns when that is not 0. Returns its number, for mr__timer_cancel(). Raises. */
uint64_t mr__timer_add(lua_State *L, struct policy *p, uint64_t delay_ns, uint64_t period_ns);
/* A run of it that waits goes on. Nothing happens when it is gone. */
void mr__timer_cancel(struct generation *g, uint64_t number);

/* The generation is in use. */
void mr__timers_start(struct generation *g);
/* Takes all away, and what waits in their runs. */
void mr__timers_end(struct generation *g);

#endif
