/* SPDX-License-Identifier: MIT */
/*
 * Takes finished log lines to a file descriptor without ever making the speaker wait: a
 * ring of bytes and one thread that writes. When whoever reads the log stands still, the
 * ring fills, further lines are dropped and counted, and a line says so once there is room.
 *
 * Any thread pushes; the ring's lock is held for one copy of a line and never across a
 * system call that can wait. Start reading at mr__log_writer_push() and write_ring().
 */
#ifndef MR_CONTROL_LOG_WRITER_H
#define MR_CONTROL_LOG_WRITER_H

#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct log_writer;

enum { MR_LOG_RING_BYTES = 1 << 20 }; /* some 8,000 lines: seconds of the busiest log we write */

/* fd stays the caller's and must live until destroy; it is not made non-blocking, since that would
 * change it for everybody who shares it. format: of the line that reports what was dropped.
 * ring_bytes is rounded up to pages. -ENOMEM, -EAGAIN (no thread). */
int mr__log_writer_create(struct log_writer **out, int fd, enum log_format format,
                          size_t ring_bytes);

/* Flushes for at most timeout_ms, gives up on the rest and frees. Accepts NULL. */
void mr__log_writer_destroy(struct log_writer *w, int timeout_ms);

/* An mr_log_sink; user is the writer. */
void mr__log_writer_push(void *user, enum log_level level, const char *line, size_t n);

/* Waits until everything pushed so far is written, at most timeout_ms. True when it is. */
bool mr__log_writer_flush(struct log_writer *w, int timeout_ms);

/* Lines that did not make it, since creation. */
uint64_t mr__log_writer_dropped(struct log_writer *w);

#endif
