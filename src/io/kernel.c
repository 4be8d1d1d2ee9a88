/* SPDX-License-Identifier: MIT */
/*
 * Datagrams through the kernel's sockets: one recvfrom and sendto while traffic is
 * sparse, recvmmsg and sendmmsg when it queues. Worker threads.
 * Start reading at kernel_receive() and kernel_send().
 */
#include "base/alloc.h"
#include "io/transport.h"

#include <errno.h>
#include <string.h>

/* What recvmmsg and sendmmsg want to be handed. */
struct rx_scratch {
    struct mmsghdr msg[RX_BATCH_MAX];
    struct iovec iov[RX_BATCH_MAX];
    union socket_addr name[RX_BATCH_MAX];
};

struct tx_scratch {
    struct mmsghdr msg[BATCH_MAX];
    struct iovec iov[BATCH_MAX];
    union socket_addr name[BATCH_MAX];
};

enum {
    /* Signals are blocked in workers, so EINTR hardly ever comes; a bound keeps even a
     * storm of them from holding the thread. */
    EINTR_MAX = 16,
    PATIENCE_MAX = 32,
    CACHE_LINE = 64,
};

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

uint8_t *mr__rx_borrow(struct rx *rx, uint32_t size)
{
    uint8_t *data = rx->arena + rx->used;

    rx->used += (size + CACHE_LINE) & ~(uint32_t)(CACHE_LINE - 1);
    return data;
}

int mr__tx_init(struct tx *tx)
{
    tx->scratch = mr__alloc(1, sizeof *tx->scratch);
    if (!tx->scratch)
        return -ENOMEM;
    for (unsigned i = 0; i < BATCH_MAX; i++) {
        tx->scratch->msg[i].msg_hdr.msg_iov = &tx->scratch->iov[i];
        tx->scratch->msg[i].msg_hdr.msg_iovlen = 1;
        tx->scratch->msg[i].msg_hdr.msg_name = &tx->scratch->name[i];
    }
    return 0;
}

void mr__tx_deinit(struct tx *tx)
{
    mr__free(tx->scratch);
    tx->scratch = NULL;
}

/* ------------------------------------------------------------------ receiving */

static void append(struct batch *batch, uint8_t *data, size_t real_size, uint32_t port,
                   const union socket_addr *name)
{
    struct plane_rx *in = &batch->rx[batch->n];

    mr__socket_addr_read(&in->from, name);
    in->port = port;
    in->size = real_size > RX_SLOT ? RX_SLOT : (uint32_t)real_size;
    in->flags = real_size > RX_SLOT ? MR__RX_TRUNCATED : 0;
    batch->data[batch->n++] = data;
}

/*
 * Single reads lie close together in the arena, so that a turn of small datagrams
 * stays in a few pages. MSG_TRUNC asks for the real length, which tells a cut datagram
 * without the cost of recvmsg.
 */
static int receive_one(struct rx *rx, struct rx_source *source, struct batch *batch)
{
    uint8_t *data = rx->arena + rx->used;
    union socket_addr name;

    for (unsigned tries = 0; tries < EINTR_MAX; tries++) {
        socklen_t len = sizeof name;
        ssize_t n = recvfrom(source->fd, data, RX_SLOT, MSG_DONTWAIT | MSG_TRUNC, &name.any, &len);
        int err = n < 0 ? errno : 0;

        if (n >= 0) {
            append(batch, data, (size_t)n, source->port, &name);
            (void)mr__rx_borrow(rx, batch->rx[batch->n - 1].size);
            return 1;
        }
        if (err == EAGAIN)
            return 0;
        if (err != EINTR)
            return -err;
    }
    return 0;
}

static int call_recvmmsg(int fd, struct mmsghdr *msg, unsigned n)
{
    for (unsigned tries = 0; tries < EINTR_MAX; tries++) {
        int got = recvmmsg(fd, msg, n, MSG_DONTWAIT, NULL);
        int err = got < 0 ? errno : 0;

        if (got >= 0)
            return got;
        if (err != EINTR)
            return err == EAGAIN ? 0 : -err;
    }
    return 0;
}

static int receive_many(struct rx *rx, struct rx_source *source, struct batch *batch, unsigned n)
{
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

        if (s->msg[i].msg_hdr.msg_flags & MSG_TRUNC)
            size = RX_SLOT + 1;
        append(batch, s->iov[i].iov_base, size, source->port, &s->name[i]);
    }
    if (got > 0) {
        rx->used += (uint32_t)(got - 1) * RX_STRIDE;
        (void)mr__rx_borrow(rx, batch->rx[batch->n - 1].size);
    }
    return got;
}

/*
 * A socket that is readable turn after turn has a queue, or just a steady flow that
 * we keep up with. Only trying tells: recvmmsg that brings one datagram costs more than
 * recvfrom (up to a quarter), so each such failure doubles the patience before the
 * next try, and a full batch makes the next one larger.
 */
static unsigned choose_batch(struct rx_source *source, uint32_t turn, unsigned room)
{
    unsigned batch;

    if (source->batch <= 1) {
        source->streak = turn - source->last_turn == 1 ? (uint8_t)(source->streak + 1) : 0;
        if (source->streak > source->patience)
            source->batch = RX_BATCH_FIRST;
    }
    source->last_turn = turn;
    batch = source->batch ? source->batch : 1;
    return batch < room ? batch : room;
}

static void learn(struct rx_source *source, unsigned asked, unsigned got)
{
    if (got >= asked) {
        source->patience = 0;
        source->batch = source->batch * 2 > RX_BATCH_MAX ? RX_BATCH_MAX : source->batch * 2;
    } else if (got <= 1) {
        source->patience =
            source->patience * 2 + 1 > PATIENCE_MAX ? PATIENCE_MAX : source->patience * 2 + 1;
        source->batch = 1;
        source->streak = 0;
    }
}

static int kernel_receive(struct rx *rx, struct rx_source *source, struct batch *batch)
{
    unsigned want;
    int got;

    if (batch->n == BATCH_MAX)
        return 0;
    want = choose_batch(source, rx->turn, BATCH_MAX - batch->n);
    if (want == 1)
        return receive_one(rx, source, batch);
    got = receive_many(rx, source, batch, want);
    learn(source, want, got < 0 ? 0 : (unsigned)got);
    return got;
}

/* ------------------------------------------------------------------ sending */

static int is_full(int err)
{
    return err == EAGAIN || err == ENOBUFS;
}

static uint16_t refusal(int err)
{
    return is_full(err) ? MR_VERDICT_SEND_FULL : MR_VERDICT_SEND_FAILED;
}

static void send_one(const struct tx_socket *socket, struct batch *batch, unsigned i)
{
    union socket_addr name;
    socklen_t len = mr__socket_addr_write(&name, &batch->out[i].to, socket->family);
    int err = EINTR;

    for (unsigned tries = 0; err == EINTR && tries < EINTR_MAX; tries++) {
        ssize_t n =
            sendto(socket->fd, batch->data[i], batch->rx[i].size, MSG_DONTWAIT, &name.any, len);

        err = n < 0 ? errno : 0;
    }
    if (err)
        batch->out[i].verdict = refusal(err);
}

/*
 * sendmmsg(2) stops at the first datagram that is refused and fails only when that is
 * the first of those it was given. So a failure names one datagram: count it, step over
 * it, go on. Leaving the rest instead would let one unreachable peer cost everybody who
 * is queued behind it.
 *
 * For want of room a datagram is lost like by any other refusal, until TX_FULL_MAX of
 * them in a row say that trying is useless. There is no waiting: the worker has to get
 * back to receiving.
 */
static void send_many(struct tx *tx, int fd, struct batch *batch, const uint16_t *index, unsigned n)
{
    struct mmsghdr *msg = tx->scratch->msg;
    unsigned done = 0, full = 0, interrupted = 0;

    while (done < n && full < TX_FULL_MAX) {
        int sent = sendmmsg(fd, msg + done, n - done, MSG_DONTWAIT);
        int err = sent < 0 ? errno : 0;

        if (err == EINTR && ++interrupted < EINTR_MAX)
            continue;
        interrupted = 0;
        if (sent > 0) {
            done += (unsigned)sent;
            full = 0;
        } else {
            /* "Nothing sent, no error" cannot be, but it must not spin us. */
            batch->out[index[done++]].verdict = refusal(err);
            full = is_full(err) ? full + 1 : 0;
        }
    }
    while (done < n)
        batch->out[index[done++]].verdict = MR_VERDICT_SEND_FULL;
}

static void kernel_send(struct tx *tx, const struct tx_socket *socket, struct batch *batch,
                        const uint16_t *index, unsigned n)
{
    struct tx_scratch *s = tx->scratch;

    if (n == 1) {
        send_one(socket, batch, index[0]);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        s->iov[i].iov_base = batch->data[index[i]];
        s->iov[i].iov_len = batch->rx[index[i]].size;
        s->msg[i].msg_hdr.msg_namelen =
            mr__socket_addr_write(&s->name[i], &batch->out[index[i]].to, socket->family);
    }
    send_many(tx, socket->fd, batch, index, n);
}

const struct transport mr__transport_kernel = {
    .name = "kernel",
    .has_sockets = 1,
    .open = mr__socket_open,
    .close = mr__socket_close,
    .drops = mr__socket_drops,
    .receive = kernel_receive,
    .send = kernel_send,
};
