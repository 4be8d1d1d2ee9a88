/* SPDX-License-Identifier: MIT */
/*
 * A UDP endpoint of a policy (relay.udp): what comes in goes to its handler, lookups to its
 * own function where it has one. Control thread. It is the host's (struct script_host);
 * here is what of it belongs to a script. Start reading at on_ring() in outlet.c.
 *
 *     datagram ──> queue ──┐
 *     lookup  ──> queue ───┴─ alarm ──> a run of the function, one at a ring
 *
 * So what strangers send takes its turn with timers and deadlines, and all of it within
 * what scripts may use of a tick. What finds no room is dropped and counted.
 *
 * It lives until it is closed; until its generation is replaced; or until nobody can reach
 * its object any more, it has no handler, and nothing is under way.
 */
#ifndef MR_SCRIPT_OUTLET_H
#define MR_SCRIPT_OUTLET_H

#include "service/host.h"

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct outlet;
struct generation;
struct policy;
struct wait;

enum {
    OUTLETS_MAX = 32,       /* of a policy */
    OUTLET_QUEUE_MAX = 256, /* datagrams that wait for the handler */
    OUTLET_QUEUE_BYTES_MAX = 1 << 18,
    OUTLET_HANDLERS_MAX = 64, /* handlers that wait; then the queue does */
    OUTLET_LOOKUPS_MAX = 1024,
};

/* Opens one whose lookups go to the function at index `lookup` (0: to the chain). 0 with *out, a
 * reference of the caller's; -EDQUOT: the policy has too many; -ESHUTDOWN: another generation took
 * over; -ENOMEM. Raises when out of Lua's memory. */
int mr__outlet_open(struct outlet **out, lua_State *L, struct policy *p, int family, int lookup,
                    unsigned flags);

/* Its object is gone. */
void mr__outlet_abandon(struct outlet *e);

/* Whoever waits for it is told "closed". */
void mr__outlet_close(struct outlet *e);
/* All of a generation; their handlers that wait end as well. */
void mr__outlets_end(struct generation *g);

/* NULL when it is closed. */
struct host_udp *mr__outlet_udp(const struct outlet *e);
struct policy *mr__outlet_policy(const struct outlet *e);

/* The function at index handles what comes in; nil: nobody, and what waits is dropped. Raises. */
void mr__outlet_handle(struct outlet *e, lua_State *L, int index);

/* A call that waits (bind, connect, send). Begin, hand `done` and the result to the host, then
 * return go(); nothing may raise between. Raises. */
struct outlet_call;
struct outlet_call *mr__outlet_begin(struct outlet *e, lua_State *L, const char *function);
int mr__outlet_go(lua_State *L, struct outlet_call *c, host_job job);
void mr__outlet_done(void *arg, const struct host_udp_result *r); /* arg: the call */

struct outlet_stats {
    uint64_t received, dropped;
    size_t waiting; /* in the queue */
};
void mr__outlet_stats(const struct outlet *e, struct outlet_stats *out);

#endif
