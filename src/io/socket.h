/* SPDX-License-Identifier: MIT */
/*
 * UDP sockets: opening, addresses in the kernel's form, and what the kernel lost.
 * Any thread; nothing here keeps state. errno becomes a negative result in this layer
 * and is seen nowhere above it. Start reading at mr__socket_open().
 */
#ifndef MR_IO_SOCKET_H
#define MR_IO_SOCKET_H

#include "core/address.h"

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

/* An address as system calls want it. */
union socket_addr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

enum socket_flags {
    SOCKET_DUAL_STACK = 1 << 0, /* an IPv6 socket that also serves IPv4 */
};

struct socket_info {
    struct mr_addr local;  /* as bound */
    int rcvbuf, sndbuf;    /* granted bytes, as asked for (the kernel reports twice that) */
    uint8_t family;        /* 4 or 6: of the socket, so 6 for dual stack */
    uint8_t is_dual_stack; /* IPv4 peers are reached through mapped addresses */
};

/* Opens a bound, nonblocking UDP socket that shares its address with nobody and
 * returns it. buffer_bytes is asked for in both directions; what was granted is in
 * *info. -EINVAL for an address without family, else as socket(2) and bind(2). */
int mr__socket_open(const struct mr_addr *local, unsigned flags, uint32_t buffer_bytes,
                    struct socket_info *info);
void mr__socket_close(int fd);

/* How many datagrams the receive buffer has lost since the socket was opened. */
int mr__socket_drops(int fd, uint64_t *drops);

/* Writes the address for a socket of the given family (4, 6) and returns its length.
 * An IPv4 address is mapped for an IPv6 socket. */
socklen_t mr__socket_addr_write(union socket_addr *out, const struct mr_addr *a, uint8_t family);

/* The canonical address; family 0 for what is neither IPv4 nor IPv6. */
void mr__socket_addr_read(struct mr_addr *out, const union socket_addr *in);

#endif
