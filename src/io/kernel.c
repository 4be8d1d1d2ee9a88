/* SPDX-License-Identifier: MIT */
/*
 * Datagrams through the kernel's sockets: here the way in, one recvfrom while traffic
 * is sparse, recvmmsg when it queues; send.c has the way out. Worker threads.
 * Start reading at kernel_receive().
 */
#include "io/kernel.h"
#include "base/alloc.h"
#include "io/syscall.h"
#include "io/transport.h"

#include <errno.h>
#include <string.h>

/* What recvmmsg wants to be handed. */
struct rx_scratch {
    struct mmsghdr msg[RX_BATCH_MAX];
    struct iovec iov[RX_BATCH_MAX];
    union socket_addr name[RX_BATCH_MAX];
    socklen_t len;
};

enum { PATIENCE_MAX = 32 };

static const size_t arena_bytes = (size_t)BATCH_MAX * RX_STRIDE;

int mr__rx_init(struct rx *rx)
{
    memset(rx, 0, sizeof *rx);
    rx->turn = 1; /* so that a new source (0) was not read at "the turn before" */
    rx->arena = mr__map(arena_bytes);
    rx->scratch = mr__alloc(1, sizeof *rx->scratch);
    if (!rx->arena || !rx->scratch) {
        mr__rx_deinit(rx);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < RX_BATCH_MAX; i++) {
        rx->scratch->iov[i].iov_len = RX_SLOT;
        rx->scratch->msg[i].msg_hdr.msg_iov = &rx->scratch->iov[i];
        rx->scratch->msg[i].msg_hdr.msg_iovlen = 1;
        rx->scratch->msg[i].msg_hdr.msg_name = &rx->scratch->name[i];
    }
    return 0;
}

void mr__rx_deinit(struct rx *rx)
{
    if (rx->arena)
        mr__unmap(rx->arena, arena_bytes);
    mr__free(rx->scratch);
    rx->arena = NULL;
    rx->scratch = NULL;
}

void mr__rx_reset(struct rx *rx)
{
    rx->used = 0;
}

/* ------------------------------------------------------------------ receiving */

static inline void append(struct batch *batch, uint8_t *data, size_t real_size, uint32_t port,
                          const union socket_addr *name)
{
    struct plane_rx *in = &batch->rx[batch->n];

    mr__socket_addr_read(&in->from, name);
    in->port = port;
    in->size = (uint32_t)real_size;
    in->flags = 0;
    if (real_size > RX_SLOT) {
        in->size = RX_SLOT;
        in->flags = MR__RX_TRUNCATED;
    }
    batch->data[batch->n++] = data;
}

/*
 * Single reads lie close together in the arena, so that a turn of small datagrams
 * stays in a few pages. MSG_TRUNC asks for the real length, which tells a cut datagram
 * without the cost of recvmsg.
 */
static inline ssize_t read_one(struct rx *rx, const struct rx_source *source)
{
    union socket_addr *name = &rx->scratch->name[0];
    socklen_t *len = &rx->scratch->len;

    *len = sizeof *name;
    return mr__syscall_recvfrom(source->fd, rx->arena + rx->used, RX_SLOT, MSG_DONTWAIT | MSG_TRUNC,
                                &name->any, len);
}

static inline int keep_one(struct rx *rx, const struct rx_source *source, struct batch *batch,
                           size_t size)
{
    uint8_t *data = rx->arena + rx->used;

    append(batch, data, size, source->port, &rx->scratch->name[0]);
    (void)mr__rx_borrow(rx, batch->rx[batch->n - 1].size);
    return 1;
}

/* Apart, so that the read that succeeds needs no loop. */
static __attribute__((noinline, cold)) int retry_one(struct rx *rx, const struct rx_source *source,
                                                     struct batch *batch, ssize_t r)
{
    for (unsigned tries = 1; r == -EINTR && tries < EINTR_MAX; tries++)
        r = read_one(rx, source);
    if (r >= 0)
        return keep_one(rx, source, batch, (size_t)r);
    return r == -EAGAIN || r == -EINTR ? 0 : (int)r;
}

static int receive_one(struct rx *rx, const struct rx_source *source, struct batch *batch)
{
    ssize_t r = read_one(rx, source);

    if (r < 0)
        return retry_one(rx, source, batch, r);
    return keep_one(rx, source, batch, (size_t)r);
}

static int call_recvmmsg(int fd, struct mmsghdr *msg, unsigned n)
{
    for (unsigned tries = 0; tries < EINTR_MAX; tries++) {
        int got = mr__syscall_recvmmsg(fd, msg, n, MSG_DONTWAIT);

        if (got != -EINTR)
            return got == -EAGAIN ? 0 : got;
    }
    return 0;
}

/*
 * A socket that is readable turn after turn has a queue, or just a steady flow that
 * we keep up with. Only trying tells: recvmmsg that brings one datagram costs more than
 * recvfrom (up to a quarter), so each such failure doubles the patience before the
 * next try, and a full batch makes the next one larger.
 */
static int is_single(struct rx *rx, struct rx_source *source)
{
    uint32_t since = rx->turn - source->last_turn;

    if (since == 0) {
        /* More sockets are readable than one wait can name, and it names them in a circle:
         * this is where the next round begins. */
        rx->turn++;
        since = 1;
    }
    source->last_turn = rx->turn;
    if (source->batch > 1)
        return 0;
    if (since != 1) {
        source->streak = 0;
        return 1;
    }
    if (++source->streak <= source->patience)
        return 1;
    source->batch = RX_BATCH_FIRST;
    return 0;
}

static void learn(struct rx_source *source, unsigned asked, unsigned got)
{
    unsigned patience = source->patience * 2u + 1;

    if (got >= asked) {
        source->patience = 0;
        source->batch = source->batch * 2 > RX_BATCH_MAX ? RX_BATCH_MAX : source->batch * 2;
    } else if (got <= 1) {
        source->patience = patience > PATIENCE_MAX ? PATIENCE_MAX : (uint8_t)patience;
        source->batch = 1;
        source->streak = 0;
    }
}

static __attribute__((noinline)) int receive_many(struct rx *rx, struct rx_source *source,
                                                  struct batch *batch)
{
    unsigned room = BATCH_MAX - batch->n, n = source->batch < room ? source->batch : room;
    struct rx_scratch *s = rx->scratch;
    uint8_t *data = rx->arena + rx->used;
    int got;

    for (unsigned i = 0; i < n; i++) {
        s->iov[i].iov_base = data + (size_t)i * RX_STRIDE;
        s->msg[i].msg_hdr.msg_namelen = sizeof s->name[i];
    }
    got = call_recvmmsg(source->fd, s->msg, n);
    for (int i = 0; i < got; i++) {
        size_t size = s->msg[i].msg_len;

        if (__builtin_expect(s->msg[i].msg_hdr.msg_flags & MSG_TRUNC, 0))
            size = RX_SLOT + 1;
        append(batch, data + (size_t)i * RX_STRIDE, size, source->port, &s->name[i]);
    }
    if (got > 0) {
        rx->used += (uint32_t)(got - 1) * RX_STRIDE;
        (void)mr__rx_borrow(rx, batch->rx[batch->n - 1].size);
    }
    learn(source, n, got < 0 ? 0 : (unsigned)got);
    return got;
}

static int kernel_receive(struct rx *rx, struct rx_source *source, struct batch *batch)
{
    if (batch->n == BATCH_MAX)
        return 0;
    if (is_single(rx, source))
        return receive_one(rx, source, batch);
    return receive_many(rx, source, batch);
}

const struct transport mr__transport_kernel = {
    .name = "kernel",
    .has_sockets = 1,
    .open = mr__socket_open,
    .close = mr__socket_close,
    .yield = mr__socket_yield,
    .drops = mr__socket_drops,
    .receive = kernel_receive,
    .send = mr__kernel_send,
};
