/* SPDX-License-Identifier: MIT */
/*
 * What the two halves of a UDP endpoint share: udp.c (its life, bind, connect, receiving)
 * and outbox.c (what is sent, from the lookup to the kernel). Control thread.
 *
 *     send ─┬─ not bound yet ──> waiting ─┐
 *           ├─ connect is due ─> for_peer ┼─> ready ──> kernel, and its done
 *           └─> its destination's queue ──┘
 *                 [A] looks up ─ held ─ held      one queue a destination (host and port as given):
 *                 [B] looks up                    the first lets out who follows it and has an
 * answer
 */
#ifndef MR_CONTROL_UDP_STATE_H
#define MR_CONTROL_UDP_STATE_H

#include "control/udp.h"
#include "io/endpoint.h"
#include "service/hash.h"

#include <stdbool.h>

enum udp_state { UDP_MADE, UDP_BINDING, UDP_BOUND, UDP_CONNECTING, UDP_CONNECTED, UDP_CLOSING };

enum {
    UDP_MESSAGE_BYTES = 1200, /* twice what was asked and why it failed: see word_failure() */
};

/* Why several sends will not happen, or one that waits for its turn to be told. Counted. */
struct failure {
    unsigned refs;
    int rc;
    bool is_whole; /* text names what was asked already */
    char code[MR_LOOKUP_CODE_MAX + 1];
    char text[UDP_MESSAGE_BYTES / 2];
};

/* One bind, connect or send, from the call until its done. */
struct request {
    struct mr_lookup_request lookup;
    struct mr_udp *udp;
    struct request *next;   /* of its queue */
    struct request *bucket; /* the next destination; in the first of each */
    struct request *last;   /* of its destination; in the first */
    struct failure *failure;
    mr_udp_done done;
    void *arg;
    struct mr_addr addr;
    uint64_t hash; /* of host and port */
    uint32_t size;
    uint16_t port;
    uint8_t n_host, op, flags;
    bool is_held, is_first, is_pooled;
    uint8_t bytes[]; /* host, then data */
};

struct queue {
    struct request *first, **end;
    unsigned n;
};

struct mr_udp {
    struct mr_udp_options opts;
    struct mr_lookup *lookup;
    enum udp_state state;
    int fd; /* -1: none */
    struct socket_info info;
    struct mr_addr bound, peer; /* before it was connected; while it is */
    struct endpoint_rx *rx;
    uv_poll_t poll;
    uv_idle_t awake; /* runs as long as something is ready, so that no turn sleeps */
    uv_prepare_t flush;
    unsigned handles;
    unsigned flags; /* of the next lookups */
    bool has_poll, is_paused, is_armed, is_blocked;
    bool must_watch;   /* the poll handle could not be started: the next turn tries again */
    int waiting_error; /* an ICMP error of a connected socket, for the next send */
    struct request *bind, *connect;
    struct queue waiting, for_peer, ready;
    /* What is looked up: one alone (then the table is empty), or all by their destination. */
    struct request *lone;
    struct request **buckets;
    unsigned n_buckets, n_destinations, looking;
    struct table_key key;
    unsigned n_queued, refusals; /* refusals: of the first one that is ready, for want of room */
    size_t queued_bytes;
    struct request *pool;
    unsigned n_pool;
    struct mr_udp_counts counts;
    void (*on_closed)(void *arg);
    void *closed_arg;
};

/* ---- outbox.c ---- */

int mr__outbox_init(struct mr_udp *u);
void mr__outbox_deinit(struct mr_udp *u);

/* A request with a copy of its host (NULL: `omitted`) and room for size bytes, or NULL. */
struct request *mr__outbox_request(struct mr_udp *u, enum mr_lookup_op op, const char *host,
                                   size_t n, size_t size);
void mr__outbox_give_back(struct request *req);
void mr__outbox_push(struct queue *q, struct request *req);

/* Asks the lookup about a bind or connect. */
void mr__outbox_ask(struct request *req, void (*done)(struct mr_lookup_request *lookup,
                                                      const struct mr_lookup_answer *answer));
/* Looks up everything of a queue, which is empty then; or one. */
void mr__outbox_look_all(struct queue *q);
void mr__outbox_look(struct request *req);
/* Makes everything of a queue ready for an address, or to be told a failure. */
void mr__outbox_ready_all(struct queue *q, const struct mr_addr *to, struct failure *failure);
void mr__outbox_ready(struct request *req);
/* There is a flush soon, ready or not. */
void mr__outbox_rouse(struct mr_udp *u);
/* Sends what is ready, at most so many, and tells how that went. */
void mr__outbox_flush(struct mr_udp *u, unsigned most);
/* The socket has room again. */
void mr__outbox_writable(struct mr_udp *u);
/* Forgets everything. */
void mr__outbox_clear(struct mr_udp *u);

/* Each gives the request back before it calls done, which may start the next one with it. */
void mr__outbox_tell(struct request *req, const struct mr_udp_result *result);
/* why: one line; it is put behind what was asked. */
void mr__outbox_tell_error(struct request *req, int rc, const char *code, const char *why);
/* "cannot bind nowhere port 7: why". */
void mr__outbox_word(char *out, size_t cap, const struct request *req, const char *why);
/* For the requests that hold it; never NULL. */
struct failure *mr__outbox_failure(int rc, const char *code, const char *text, bool is_whole);
void mr__outbox_drop_failure(struct failure *failure);

/* ---- udp.c ---- */

/* Asks libuv for what is wanted now: reading unless paused, writing when blocked. */
void mr__udp_watch(struct mr_udp *u);

#endif
