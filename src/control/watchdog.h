/* SPDX-License-Identifier: MIT */
/*
 * Notices when a turn of the control loop does not end: a thread of its own says so while
 * it lasts, since the one that is stuck cannot, and the control thread says and counts it
 * when it is over. Sleeping is no work.
 *
 * Control thread, but for run(). Start reading there.
 */
#ifndef MR_CONTROL_WATCHDOG_H
#define MR_CONTROL_WATCHDOG_H

#include "base/log.h"

#include <stdint.h>
#include <uv.h>

enum { MR_WATCHDOG_STALL_MS = 1000 };

struct watchdog;

/* loop: configured for UV_METRICS_IDLE_TIME, outlives it. log is copied; its sink and user outlive
 * the watchdog. stall_ms: the work that is a stall, MR_WATCHDOG_STALL_MS but in tests. -ENOMEM,
 * -EAGAIN (no thread). */
int mr__watchdog_create(struct watchdog **out, uv_loop_t *loop, const struct log *log,
                        uint32_t stall_ms);
/* Accepts NULL. */
void mr__watchdog_destroy(struct watchdog *w);

/* Around each turn of the loop. worked_ns: what it took without its sleep. Both accept NULL. */
void mr__watchdog_enter(struct watchdog *w);
void mr__watchdog_leave(struct watchdog *w, uint64_t worked_ns);

/* Turns that worked for as long as a stall or longer. Accepts NULL. */
uint64_t mr__watchdog_stalls(const struct watchdog *w);

#endif
