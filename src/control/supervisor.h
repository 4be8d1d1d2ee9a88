/* SPDX-License-Identifier: MIT */
/*
 * Tells whoever supervises the process how it is, as sd_notify(3) does: ready, reloading,
 * stopping, a line of status, and at half the time of its watchdog that all is alive. That is said
 * from a timer of the control loop and only while the workers answer, so it ends when either is
 * stuck. Control thread. Start reading at on_timer().
 */
#ifndef MR_CONTROL_SUPERVISOR_H
#define MR_CONTROL_SUPERVISOR_H

#include <stdint.h>
#include <uv.h>

struct service;

enum { MR_SUPERVISOR_STATUS_MS = 10000 }; /* at most between two lines of status */

struct supervisor;

struct supervisor_options {
    uv_loop_t *loop;
    struct service *service;
    /* Of the environment, or NULL: NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID; the first is copied.
     */
    const char *socket, *watchdog_us, *watchdog_pid;
};

/* *out is NULL where nobody wants to know; all calls accept that. -ENOMEM. */
int mr__supervisor_create(struct supervisor **out, const struct supervisor_options *opts);
/* Freed when the loop has run its close callback. */
void mr__supervisor_destroy(struct supervisor *s);

void mr__supervisor_ready(struct supervisor *s);
void mr__supervisor_reloading(struct supervisor *s);
/* It may take so long. */
void mr__supervisor_stopping(struct supervisor *s, uint64_t for_ns);

#endif
