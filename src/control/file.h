/* SPDX-License-Identifier: MIT */
/*
 * Files read for policies, in libuv's threads so that a slow disk stalls nobody. A path
 * never leads out of its folder, whatever links and `..` are on it, and what is no
 * regular file is not read. Control thread.
 *
 * Start reading at mr__file_start() and work().
 */
#ifndef MR_CONTROL_FILE_H
#define MR_CONTROL_FILE_H

#include "base/beneath.h"
#include "service/host.h"

#include <stdint.h>
#include <uv.h>

enum { MR_FILE_MOST = 32 }; /* at once; above that -EBUSY */

struct files;

/* -ENOMEM. */
int mr__file_create(struct files **out, uv_loop_t *loop, enum beneath_way way);

/* As host.h's read; 0: out of memory. */
uint64_t mr__file_start(struct files *f, struct str folder, struct str path, size_t max_bytes,
                        void (*done)(void *arg, const struct host_file *file), void *arg);

/* done will not be called; the read goes on for nobody. A job that is over is ignored. */
void mr__file_cancel(struct files *f, uint64_t job);

/* Forgets all jobs; the loop ends when those that a thread is at have ended. Accepts NULL. */
void mr__file_destroy(struct files *f);

#endif
