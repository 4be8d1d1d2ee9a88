/* SPDX-License-Identifier: MIT */
/*
 * The way datagrams come in and leave, behind one table of functions: the kernel's
 * sockets (kernel.c), or none at all (none.c: for benchmarks of everything but the
 * kernel, and for tests with a virtual clock). A worker owns its struct rx and
 * struct tx; open, close and drops may be called from any thread.
 *
 * To add a way (io_uring, say), start at struct transport. Start reading at
 * mr__transport_kernel in kernel.c.
 */
#ifndef MR_IO_TRANSPORT_H
#define MR_IO_TRANSPORT_H

#include "core/address.h"
#include "io/batch.h"
#include "io/socket.h"

#include <stdint.h>

/* ------------------------------------------------------------------ receiving */

enum {
    RX_SLOT = 65536, /* above the largest UDP payload, so a datagram is never cut */
    /* Slots are not a power of two apart: at 64 KiB they would all fall into the same
     * sets of the L1 and L2 caches and push one another out. */
    RX_STRIDE = RX_SLOT + 192,
    RX_BATCH_FIRST = 8,
    RX_BATCH_MAX = 32,
};

/* One socket that is read, with what its past says about the best way to read it. */
struct rx_source {
    int fd;
    uint32_t port;
    uint32_t last_turn;
    uint8_t batch;    /* datagrams to ask for; 0 and 1: a plain recvfrom */
    uint8_t streak;   /* turns in a row at which it was readable */
    uint8_t patience; /* the streak that makes recvmmsg worth a try */
};

struct rx_scratch;

/* A worker's receive buffers. The memory is virtual until a datagram touches it. */
struct rx {
    uint8_t *arena;
    uint32_t used; /* bytes of the arena */
    uint32_t turn; /* counts rounds over all readable sockets (the owner adds 1 to begin one) */
    struct rx_scratch *scratch;
};

int mr__rx_init(struct rx *rx); /* -ENOMEM */
void mr__rx_deinit(struct rx *rx);

/* Gives all buffers back: there is room for BATCH_MAX datagrams again. */
void mr__rx_reset(struct rx *rx);
/* Room for one datagram that comes from elsewhere (a replay), as if received. The next
 * one begins on a cache line of its own. */
static inline uint8_t *mr__rx_borrow(struct rx *rx, uint32_t size)
{
    uint8_t *data = rx->arena + rx->used;

    rx->used += (size + 64) & ~UINT32_C(63);
    return data;
}

/* ------------------------------------------------------------------ sending */

enum {
    /* So many refusals for want of room in a row mean that the buffer is full: the rest
     * of the batch is not tried. One alone may be a single large datagram. */
    TX_FULL_MAX = 4,
    TX_RUN_MAX = 64, /* datagrams that go as one message; the oldest kernels' bound */
};

/* A way out. Immutable while a worker may use it. */
struct tx_socket {
    int fd;
    uint8_t family; /* of the socket: 6 also for dual stack */
};

struct tx_scratch;

struct tx {
    struct tx_scratch *scratch;
    uint8_t run_max;      /* 1: every datagram is a message of its own */
    uint8_t run_refusals; /* runs that the way out could not take */
};

int mr__tx_init(struct tx *tx); /* -ENOMEM */
void mr__tx_deinit(struct tx *tx);

/* ------------------------------------------------------------------ the interface */

struct transport {
    const char *name;
    int has_sockets; /* its descriptors can be polled */

    /* As mr__socket_open(), mr__socket_yield(). */
    int (*open)(const struct mr_addr *local, unsigned flags, uint32_t buffer_bytes,
                struct socket_info *info);
    void (*close)(int fd);
    void (*yield)(int fd);
    int (*drops)(int fd, uint64_t *drops);

    /* Appends what one socket has to the batch, as far as there is room, and returns how
     * many that were. 0: nothing there. A negative errno is that socket's momentary
     * trouble; the next call goes on. */
    int (*receive)(struct rx *rx, struct rx_source *source, struct batch *batch);

    /* Sends the datagrams index[0..n) of the batch in order through one socket. A refusal
     * costs that datagram only: its verdict becomes SEND_FULL or SEND_FAILED. */
    void (*send)(struct tx *tx, const struct tx_socket *socket, struct batch *batch,
                 const uint16_t *index, unsigned n);
};

extern const struct transport mr__transport_kernel;
extern const struct transport mr__transport_none;

/* Sends every FORWARD of the batch, grouped by egress (an index into sockets); the order
 * within an egress is kept. */
void mr__tx_flush(struct tx *tx, const struct transport *transport, const struct tx_socket *sockets,
                  struct batch *batch);

#endif
