/* SPDX-License-Identifier: MIT */
/*
 * A UDP socket that talks to anybody: each datagram comes with the local address it was
 * sent to, and a reply leaves from that address, so that a machine with several never
 * answers from one the peer did not ask. For the control thread (registrar, endpoints of
 * programs); relaying has batches of its own (transport.h), which know no local address.
 * Any thread. Start reading at mr__endpoint_receive() and mr__endpoint_send_many().
 */
#ifndef MR_IO_ENDPOINT_H
#define MR_IO_ENDPOINT_H

#include "core/address.h"
#include "io/socket.h"

#include <stddef.h>
#include <stdint.h>

/* Opens like mr__socket_open(); with SOCKET_DUAL_STACK `::` serves both families. */
int mr__endpoint_open(const struct mr_addr *local, unsigned flags, uint32_t buffer_bytes,
                      struct socket_info *info);

/* From now on only the peer's datagrams come. *peer and the local address become what the kernel
 * made of them (0.0.0.0 is 127.0.0.1 then). Negative errno of connect(2). */
int mr__endpoint_connect(int fd, struct socket_info *info, struct mr_addr *peer);
/* Back to anybody, at the address it was bound to, `bound`; info says where that is now. */
int mr__endpoint_disconnect(int fd, struct socket_info *info, const struct mr_addr *bound);
/* The error that waits at the socket (an ICMP message to a connected one), which is gone then; a
 * negative errno, or 0. */
int mr__endpoint_take_error(int fd);

/* ------------------------------------------------------------------ receiving */

enum { ENDPOINT_RX_MAX = 16 }; /* datagrams of one call; each has 64 KiB of address space */

struct endpoint_datagram {
    struct mr_addr from;
    struct mr_addr local; /* where it was sent to; port of the socket */
    const uint8_t *data;
    size_t size;
};

/* Buffers of one reader. Their memory is virtual until a datagram touches it. */
struct endpoint_rx;

int mr__endpoint_rx_create(struct endpoint_rx **out); /* -ENOMEM */
void mr__endpoint_rx_destroy(struct endpoint_rx *rx); /* accepts NULL */

/* Reads what waits, at most ENDPOINT_RX_MAX; *d is the first of as many as it returns, valid until
 * the next call. 0: none waits; negative errno: this call found an error, the next may find a
 * datagram. */
int mr__endpoint_receive(int fd, const struct socket_info *info, struct endpoint_rx *rx,
                         const struct endpoint_datagram **d);

/* ------------------------------------------------------------------ sending */

enum { ENDPOINT_TX_MAX = 64 };

struct endpoint_out {
    const struct mr_addr *to; /* NULL: whom the socket is connected to */
    const void *data;
    size_t size;
    int rc; /* set: 0 or a negative errno, which concerns this datagram only */
};

/* Sends one datagram: 0 or a negative errno. */
int mr__endpoint_send_one(int fd, const struct socket_info *info, const struct endpoint_out *out);
/* Sends in order and returns how many were dealt with: fewer than n (at most ENDPOINT_TX_MAX) when
 * the send buffer has no room for the next one (EAGAIN). */
unsigned mr__endpoint_send_many(int fd, const struct socket_info *info, struct endpoint_out *out,
                                unsigned n);

/* Sends one datagram from a local address (NULL or family 0: the route's choice). 0 or negative
 * errno, which concerns this datagram only. */
int mr__endpoint_send(int fd, const struct socket_info *info, const struct mr_addr *to,
                      const struct mr_addr *local, const void *data, size_t n);

#endif
