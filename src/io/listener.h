/* SPDX-License-Identifier: MIT */
/*
 * TCP listeners: a socket that is bound and listens, with the address the kernel gave it.
 * Any thread; nothing here keeps state. Start reading at mr__listener_open().
 */
#ifndef MR_IO_LISTENER_H
#define MR_IO_LISTENER_H

#include "core/address.h"

#include <stdbool.h>
#include <stdint.h>

struct listener_options {
    struct mr_addr local;
    int backlog;
    /* Buffers of each accepted connection; 0 leaves them to the kernel, which lets them grow to
     * some megabytes. */
    uint32_t rcvbuf_bytes, sndbuf_bytes;
};

/* Returns a nonblocking, listening socket and stores what it is bound to. `::` serves both
 * families. Negative errno of socket(2), bind(2) or listen(2). */
int mr__listener_open(const struct listener_options *opts, struct mr_addr *bound);

/* Takes one waiting connection: its nonblocking socket, both addresses stored. -EAGAIN: none waits;
 * -EMFILE, -ENFILE, -ENOBUFS, -ENOMEM: the machine is short of something and the connection still
 * waits; any other error concerned a connection that is gone. */
int mr__listener_accept(int listener, struct mr_addr *peer, struct mr_addr *local);

/* Takes one waiting connection only to end it, through a descriptor kept for that: *reserve is
 * given up and taken again. So a process out of descriptors does not spin on a listener that stays
 * readable. 0, -EAGAIN: none waits, -EMFILE: *reserve is -1 and could not be opened. */
int mr__listener_shed(int listener, int *reserve);

/* Whether the peer has sent its FIN and everything before it was read. */
bool mr__listener_is_ended(int fd);

/* A descriptor to give to mr__listener_shed(); close it with mr__listener_close(). */
int mr__listener_reserve(void);
void mr__listener_close(int fd);

/* What one accepted connection needs: TCP_NODELAY, keepalive and TCP_USER_TIMEOUT, so that a peer
 * that vanished is told from one that is silent. Options the kernel does not know are left out. */
struct keepalive {
    unsigned idle_s, interval_s, count, user_timeout_ms;
};
void mr__listener_tune(int fd, const struct keepalive *k);

#endif
