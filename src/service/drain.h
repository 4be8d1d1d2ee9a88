/* SPDX-License-Identifier: MIT */
/*
 * A drain: the games that run go on and take players who come back, but who registers from
 * now on cannot be joined, so that nobody is left in the end. Control thread.
 *
 * It is over at its deadline, or when nobody is left for whom it waits: no relay is in use
 * and no session from before the drain is there. Then mr__service_is_drained() says so, and
 * whoever owns the loop stops. Start reading at mr__drain_begin().
 */
#ifndef MR_SERVICE_DRAIN_H
#define MR_SERVICE_DRAIN_H

#include "service/hooks.h"

#include <stdbool.h>
#include <stdint.h>

struct service;

enum {
    MR_DRAIN_PRESET_S = 30 * 60,      /* where neither who drains nor drain_timeout says */
    MR_DRAIN_MAX_S = 366 * 24 * 3600, /* longer is this long */
};

/* How long: what drain_timeout says, or MR_DRAIN_PRESET_S where that is 0. */
#define MR_DRAIN_PRESET UINT64_MAX

/* Begins one, or gives the one that runs another deadline: so long from now. All players are told.
 * by: for the log. Safe inside a hook. -EBUSY: a stop was asked for, whose drain can only become
 * shorter; 0 also when it became so. */
int mr__drain_begin(struct service *s, uint64_t for_ns, struct str by);

/* A stop was asked for: drains for drain_timeout, or for less when a drain ends before, and cannot
 * be cancelled any more. */
void mr__drain_finally(struct service *s);

/* As if it had never begun; all players are told. Safe inside a hook. -ENOENT: there is none;
 * -EBUSY: a stop was asked for. */
int mr__drain_cancel(struct service *s, struct str by);

struct drain_view {
    bool is_on, is_final;
    double seconds_left;
};
void mr__drain_look(const struct service *s, uint64_t now_ns, struct drain_view *out);

#endif
