/* SPDX-License-Identifier: MIT */
/*
 * A UDP socket that answers: each datagram comes with the local address it was sent to,
 * and a reply leaves from that address, so that a machine with several never answers
 * from one the peer did not ask. For few datagrams (a registrar); relaying has
 * batches of its own. Any thread. Start reading at mr__endpoint_receive().
 */
#ifndef MR_IO_ENDPOINT_H
#define MR_IO_ENDPOINT_H

#include "core/address.h"
#include "io/socket.h"

#include <stddef.h>
#include <stdint.h>

/* Opens like mr__socket_open(); `::` serves both families. */
int mr__endpoint_open(const struct mr_addr *local, uint32_t buffer_bytes, struct socket_info *info);

struct endpoint_datagram {
    struct mr_addr from;
    struct mr_addr local; /* where it was sent to; port of the socket */
    size_t size;          /* whole datagram, also where it is larger than the buffer */
};

/* Reads one datagram. 1: *d and min(size, cap) bytes of buf are set; 0: none waits; negative errno:
 * this call found an error, the next may find a datagram. */
int mr__endpoint_receive(int fd, const struct socket_info *info, void *buf, size_t cap,
                         struct endpoint_datagram *d);

/* Sends one datagram from a local address (family 0: the route's choice). 0 or negative errno,
 * which concerns this datagram only. */
int mr__endpoint_send(int fd, const struct socket_info *info, const struct mr_addr *to,
                      const struct mr_addr *local, const void *data, size_t n);

#endif
