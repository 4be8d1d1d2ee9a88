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
#include <string.h>
#include <sys/socket.h>

/* An address as system calls want it. */
union socket_addr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

enum socket_flags {
    SOCKET_DUAL_STACK = 1 << 0, /* an IPv6 socket that also serves IPv4 */
    SOCKET_SUCCESSOR = 1 << 1,  /* takes the address of one that yields */
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

/* For a socket that will be closed when nobody uses it any more: a SOCKET_SUCCESSOR may have its
 * address already, and gets what comes from then on. */
void mr__socket_yield(int fd);

/* How many datagrams the receive buffer has lost since the socket was opened. */
int mr__socket_drops(int fd, uint64_t *drops);

/* For IPv6 sockets: see below. */
socklen_t mr__socket_addr_write_v6(union socket_addr *out, const struct mr_addr *a);
void mr__socket_addr_read_v6(struct mr_addr *out, const union socket_addr *in);

/* Writes the address for a socket of the given family (4, 6) and returns its length.
 * An IPv4 address is mapped for an IPv6 socket. Inline, like its counterpart: once a
 * datagram each. */
static inline socklen_t mr__socket_addr_write(union socket_addr *out, const struct mr_addr *a,
                                              uint8_t family)
{
    if (family != 4)
        return mr__socket_addr_write_v6(out, a);
    out->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(a->port)};
    memcpy(&out->v4.sin_addr, a->ip, 4);
    return sizeof out->v4;
}

/* The canonical address; family 0 for what is neither IPv4 nor IPv6. */
static inline void mr__socket_addr_read(struct mr_addr *out, const union socket_addr *in)
{
    *out = (struct mr_addr){0};
    if (in->any.sa_family != AF_INET) {
        mr__socket_addr_read_v6(out, in);
        return;
    }
    memcpy(out->ip, &in->v4.sin_addr, 4);
    out->port = ntohs(in->v4.sin_port);
    out->family = 4;
}

#endif
