/* SPDX-License-Identifier: MIT */
/*
 * A libuv loop of our own inside somebody else's program, which turns it himself: libuv is
 * not seen from outside, and nothing of ours is ever on a loop of the host's. The thread
 * that turns it. Start reading at mr__own_loop_wait().
 */
#ifndef MR_CONTROL_OWN_LOOP_H
#define MR_CONTROL_OWN_LOOP_H

#include <uv.h>

struct own_loop;

/* -ENOMEM; negative errno of libuv. */
int mr__own_loop_create(struct own_loop **out);

/* Turns it until everything that is being closed on it is closed. What is not being closed is a bug
 * of the caller: 0, or -EBUSY and nothing is freed. NULL is fine. Not from inside a turn. */
int mr__own_loop_destroy(struct own_loop *l);

uv_loop_t *mr__own_loop_uv(struct own_loop *l);

/* One turn: calls what is due, and waits for something when nothing is. */
void mr__own_loop_wait(struct own_loop *l);
/* The same without waiting. */
void mr__own_loop_step(struct own_loop *l);
/* From inside a turn: it is the last one of mr__own_loop_wait(); what it called for is still done.
 */
void mr__own_loop_stop(struct own_loop *l);

/* Readable when mr__own_loop_step() has something to do; else it has after that many ms (-1:
 * never). */
int mr__own_loop_fd(const struct own_loop *l);
int mr__own_loop_timeout_ms(const struct own_loop *l);

#endif
