/* SPDX-License-Identifier: MIT */
/*
 * A libuv loop of our own inside somebody else's program, which turns it himself: libuv is
 * not seen from outside, and nothing of ours is ever on a loop of the host's. The thread
 * that turns it. Start reading at mr__loop_wait().
 */
#ifndef MR_CONTROL_LOOP_H
#define MR_CONTROL_LOOP_H

#include <uv.h>

struct loop;

/* -ENOMEM; negative errno of libuv. */
int mr__loop_create(struct loop **out);

/* Turns it until everything that is being closed on it is closed. What is not being closed is a bug
 * of the caller: 0, or -EBUSY and nothing is freed. NULL is fine. Not from inside a turn. */
int mr__loop_destroy(struct loop *l);

uv_loop_t *mr__loop_uv(struct loop *l);

/* One turn: calls what is due, and waits for something when nothing is. */
void mr__loop_wait(struct loop *l);
/* The same without waiting. */
void mr__loop_step(struct loop *l);
/* From inside a turn: it is the last one of mr__loop_wait(); what it called for is still done. */
void mr__loop_stop(struct loop *l);

/* Readable when mr__loop_step() has something to do; else it has after that many ms (-1: never). */
int mr__loop_fd(const struct loop *l);
int mr__loop_timeout_ms(const struct loop *l);

#endif
