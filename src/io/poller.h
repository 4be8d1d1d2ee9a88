/* SPDX-License-Identifier: MIT */
/*
 * Waiting: an epoll set of sockets and one eventfd by which other threads wake the
 * sleeper (core/wakeup.h says when). One thread waits; any thread may wake, add and
 * remove.
 */
#ifndef MR_IO_POLLER_H
#define MR_IO_POLLER_H

#include <stdint.h>

enum { POLLER_READY_MAX = 256 }; /* sockets of one look; the rest come at the next */

struct poller {
    int epoll_fd;
    int wake_fd;
};

int mr__poller_init(struct poller *p); /* -EMFILE, -ENOMEM, ... */
void mr__poller_deinit(struct poller *p);

/* tag: what mr__poller_wait() gives for the descriptor; not UINT32_MAX. */
int mr__poller_add(struct poller *p, int fd, uint32_t tag);

/* The same in two steps: all that may be missing is taken by the first, on any thread; the second
 * lets it be reported and does not fail. Both with the same tag. */
int mr__poller_reserve(struct poller *p, int fd, uint32_t tag);
void mr__poller_start(struct poller *p, int fd, uint32_t tag);

void mr__poller_remove(struct poller *p, int fd);

/* Waits up to timeout_ns (UINT64_MAX: for ever) and stores the tags of readable
 * descriptors. Returns their number, which says nothing of wake-ups. */
unsigned mr__poller_wait(struct poller *p, uint32_t tags[POLLER_READY_MAX], uint64_t timeout_ns);

void mr__poller_wake(struct poller *p);
/* Takes back wake-ups that came while nobody waited. */
void mr__poller_drain(struct poller *p);

#endif
