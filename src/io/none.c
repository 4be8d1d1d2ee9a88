/* SPDX-License-Identifier: MIT */
/*
 * No sockets: a port is only a number, nothing arrives by itself, and what leaves is
 * gone. Everything above runs as it does over the kernel, so benchmarks see all but
 * the kernel and tests need no real time. Any thread.
 */
#include "io/transport.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* Where the kernel's ephemeral range begins, so that made-up numbers look like real ones. */
enum { FIRST_PORT = 32768, LAST_PORT = 60999 };

/* Relaxed: any number will do. */
static _Atomic uint32_t next_port;

static int none_open(const struct mr_addr *local, unsigned flags, uint32_t buffer_bytes,
                     struct socket_info *info)
{
    if (local->family != 4 && local->family != 6)
        return -EINVAL;
    memset(info, 0, sizeof *info);
    info->local = *local;
    if (local->port == 0) {
        uint32_t k = atomic_fetch_add_explicit(&next_port, 1, memory_order_relaxed);

        info->local.port = (uint16_t)(FIRST_PORT + k % (LAST_PORT - FIRST_PORT + 1));
    }
    info->is_dual_stack = (flags & SOCKET_DUAL_STACK) != 0;
    info->family = info->is_dual_stack ? 6 : local->family;
    info->rcvbuf = info->sndbuf = buffer_bytes > INT32_MAX ? INT32_MAX : (int)buffer_bytes;
    return 0;
}

static void none_close(int fd)
{
    (void)fd;
}

static void none_yield(int fd)
{
    (void)fd;
}

static int none_drops(int fd, uint64_t *drops)
{
    (void)fd;
    *drops = 0;
    return 0;
}

static int none_receive(struct rx *rx, struct rx_source *source, struct batch *batch)
{
    (void)rx;
    (void)source;
    (void)batch;
    return 0;
}

static void none_send(struct tx *tx, const struct tx_socket *socket, struct batch *batch,
                      const uint16_t *index, unsigned n)
{
    (void)tx;
    (void)socket;
    (void)batch;
    (void)index;
    (void)n;
}

const struct transport mr__transport_none = {
    .name = "none",
    .has_sockets = 0,
    .open = none_open,
    .close = none_close,
    .yield = none_yield,
    .drops = none_drops,
    .receive = none_receive,
    .send = none_send,
};
