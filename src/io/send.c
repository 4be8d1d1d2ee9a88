/* SPDX-License-Identifier: MIT */
/*
 * Datagrams out through the kernel's sockets: one sendto while traffic is sparse; when
 * it queues, sendmmsg, with runs of one flow handed over as one message that the kernel
 * cuts into datagrams (UDP_SEGMENT). Worker threads. Start reading at mr__kernel_send().
 *
 *     index   0    1    2    3    4         messages   [0 1 2] [3] [4]
 *     to      A    A    A    B    A                    cut at   -   -
 *     size   90   90   60   90   90                      90
 */
#include "base/alloc.h"
#include "core/hash.h"
#include "io/kernel.h"
#include "io/syscall.h"

#include <netinet/udp.h>
#include <string.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

enum {
    /* What passes any usual path in one piece; larger ones are sent one by one, as the
     * kernel refuses to cut into pieces that it would have to fragment. */
    SEGMENT_BYTES_MAX = 1400,
    RUN_BYTES_MAX = 60000, /* one message is one IP packet until it is cut */
    /* So many runs that were refused although their datagrams passed one by one mean that
     * the way out cannot do it (an old driver, IPsec): no more is tried by this worker. */
    RUN_REFUSALS_MAX = 16,
};

union segment_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(uint16_t))];
};

struct tx_scratch {
    struct mmsghdr msg[BATCH_MAX];
    struct iovec iov[BATCH_MAX];
    union socket_addr name[BATCH_MAX];
    union segment_control control[BATCH_MAX];
    uint16_t first[BATCH_MAX + 1]; /* of a message, in the index */
};

int mr__tx_init(struct tx *tx)
{
    struct tx_scratch *s = mr__alloc(1, sizeof *s);

    tx->scratch = s;
    tx->run_max = TX_RUN_MAX;
    tx->run_refusals = 0;
    if (!s)
        return -ENOMEM;
    for (unsigned i = 0; i < BATCH_MAX; i++) {
        s->msg[i].msg_hdr.msg_name = &s->name[i];
        s->control[i].align.cmsg_level = SOL_UDP;
        s->control[i].align.cmsg_type = UDP_SEGMENT;
        s->control[i].align.cmsg_len = CMSG_LEN(sizeof(uint16_t));
    }
    return 0;
}

void mr__tx_deinit(struct tx *tx)
{
    mr__free(tx->scratch);
    tx->scratch = NULL;
}

/* ------------------------------------------------------------------ one */

static int is_full(int err)
{
    return err == EAGAIN || err == ENOBUFS;
}

static uint16_t refusal(int err)
{
    return is_full(err) ? MR_VERDICT_SEND_FULL : MR_VERDICT_SEND_FAILED;
}

/* Returns 0 or an errno, which has become a verdict. */
static int send_one(const struct tx_socket *socket, struct batch *batch, unsigned i)
{
    union socket_addr name;
    socklen_t len = mr__socket_addr_write(&name, &batch->out[i].to, socket->family);
    ssize_t r = -EINTR;

    for (unsigned tries = 0; r == -EINTR && tries < EINTR_MAX; tries++)
        r = mr__syscall_sendto(socket->fd, batch->data[i], batch->rx[i].size, MSG_DONTWAIT,
                               &name.any, len);
    if (r >= 0)
        return 0;
    batch->out[i].verdict = refusal((int)-r);
    return (int)-r;
}

/* ------------------------------------------------------------------ many */

/* May datagram b follow a in one message that is cut at a's size? */
static inline int may_follow(const struct batch *batch, unsigned a, unsigned b)
{
    uint32_t size = batch->rx[a].size, next = batch->rx[b].size;

    return next <= size && next != 0 && size <= SEGMENT_BYTES_MAX &&
           mr__hash_same_addr(&batch->out[a].to, &batch->out[b].to);
}

/* How many datagrams from index[0] on may go as one message, given that the second may:
 * to one address, all of one size but for the last, which may be smaller. */
static unsigned measure_run(const struct tx *tx, const struct batch *batch, const uint16_t *index,
                            unsigned n)
{
    uint32_t size = batch->rx[index[0]].size, total = size, last = size;
    unsigned count = 1;

    while (count < n && count < tx->run_max && last == size &&
           may_follow(batch, index[0], index[count])) {
        last = batch->rx[index[count]].size;
        total += last;
        if (total > RUN_BYTES_MAX)
            break;
        count++;
    }
    return count;
}

static void cut_at(struct tx_scratch *s, unsigned m, uint32_t size)
{
    uint16_t cut = (uint16_t)size;

    memcpy(CMSG_DATA(&s->control[m].align), &cut, sizeof cut);
    s->msg[m].msg_hdr.msg_control = s->control[m].bytes;
    s->msg[m].msg_hdr.msg_controllen = sizeof s->control[m].bytes;
}

/* Writes the messages and returns how many those are. */
static unsigned write_messages(struct tx *tx, const struct tx_socket *socket, struct batch *batch,
                               const uint16_t *index, unsigned n)
{
    struct tx_scratch *s = tx->scratch;
    unsigned m = 0, end = 0;

    for (unsigned i = 0; i < n; i++) {
        struct msghdr *hdr = &s->msg[m].msg_hdr;
        unsigned k = index[i];

        s->iov[i].iov_base = batch->data[k];
        s->iov[i].iov_len = batch->rx[k].size;
        if (i < end)
            continue; /* of the run that is being written */
        end = i + 1;
        hdr->msg_iov = &s->iov[i];
        hdr->msg_iovlen = 1;
        hdr->msg_namelen = mr__socket_addr_write(&s->name[m], &batch->out[k].to, socket->family);
        hdr->msg_control = NULL;
        hdr->msg_controllen = 0;
        if (end < n && may_follow(batch, k, index[end])) {
            end = i + measure_run(tx, batch, index + i, n - i);
            hdr->msg_iovlen = end - i;
            if (end - i > 1)
                cut_at(s, m, batch->rx[k].size);
        }
        s->first[m++] = (uint16_t)i;
    }
    s->first[m] = (uint16_t)n;
    return m;
}

/* A refused message, datagram by datagram. `full` counts refusals for want of room in a
 * row, and is returned. */
static unsigned send_apart(struct tx *tx, const struct tx_socket *socket, struct batch *batch,
                           const uint16_t *index, unsigned n, unsigned full)
{
    unsigned sent = 0;

    for (unsigned i = 0; i < n; i++) {
        int err = full < TX_FULL_MAX ? send_one(socket, batch, index[i]) : ENOBUFS;

        if (full >= TX_FULL_MAX)
            batch->out[index[i]].verdict = MR_VERDICT_SEND_FULL;
        full = !err ? 0 : is_full(err) ? full + 1 : 0;
        sent += !err;
    }
    if (sent == n && ++tx->run_refusals == RUN_REFUSALS_MAX)
        tx->run_max = 1;
    return full;
}

/* What a failure of the first message means; returns the new count of `full`. */
static unsigned refuse(struct tx *tx, const struct tx_socket *socket, struct batch *batch,
                       const uint16_t *index, unsigned n, int err, unsigned full)
{
    if (n > 1)
        return send_apart(tx, socket, batch, index, n, full);
    /* "Nothing sent, no error" cannot be, but it must not spin us. */
    batch->out[index[0]].verdict = refusal(err);
    return is_full(err) ? full + 1 : 0;
}

/*
 * sendmmsg(2) stops at the first message that is refused and fails only when that is the
 * first of those it was given. So a failure names one message: if it is a datagram, count
 * it, step over it, go on; if it is a run, send its datagrams one by one. Leaving the rest
 * instead would let one unreachable peer cost everybody who is queued behind it.
 *
 * For want of room a datagram is lost like by any other refusal, until TX_FULL_MAX of
 * them in a row say that trying is useless. There is no waiting: the worker has to get
 * back to receiving.
 */
static void send_many(struct tx *tx, const struct tx_socket *socket, struct batch *batch,
                      const uint16_t *index, unsigned messages)
{
    struct mmsghdr *msg = tx->scratch->msg;
    const uint16_t *first = tx->scratch->first;
    unsigned done = 0, full = 0, interrupted = 0;

    while (done < messages && full < TX_FULL_MAX) {
        int sent = mr__syscall_sendmmsg(socket->fd, msg + done, messages - done, MSG_DONTWAIT);
        int err = sent < 0 ? -sent : 0;

        if (err == EINTR && ++interrupted < EINTR_MAX)
            continue;
        interrupted = 0;
        if (sent > 0) {
            done += (unsigned)sent;
            full = 0;
        } else {
            full = refuse(tx, socket, batch, index + first[done],
                          (unsigned)first[done + 1] - first[done], err, full);
            done++;
        }
    }
    for (unsigned i = first[done]; i < first[messages]; i++)
        batch->out[index[i]].verdict = MR_VERDICT_SEND_FULL;
}

void mr__kernel_send(struct tx *tx, const struct tx_socket *socket, struct batch *batch,
                     const uint16_t *index, unsigned n)
{
    if (n == 1)
        (void)send_one(socket, batch, index[0]);
    else
        send_many(tx, socket, batch, index, write_messages(tx, socket, batch, index, n));
}
