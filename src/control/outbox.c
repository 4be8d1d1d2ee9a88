/* SPDX-License-Identifier: MIT */
/*
 * What an endpoint sends: see udp_state.h for its ways. Control thread. Start reading at
 * mr__outbox_look() and on_looked_up().
 *
 * A send that nobody else is before or beside (the usual case) goes from the lookup's
 * answer straight to the kernel. Where more are due in the same turn they wait for its
 * end and go together.
 */
#include "control/udp_state.h"

#include "base/alloc.h"
#include "io/machine.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    POOLED_BYTES = 1536, /* host and data of a request that is kept: a datagram of one packet */
    POOL_MAX = 32,
    BUCKETS_FIRST = 16,
    FLUSH_MAX = 256, /* datagrams a turn; about a millisecond */
    /* So many times the socket said that there is room and the kernel that there is none: that
     * datagram will not go. Else it would hold the queue, and the loop would spin. */
    REFUSALS_MAX = 16,
};

/* ---- requests ----------------------------------------------------------------------------- */

static void queue_init(struct queue *q)
{
    *q = (struct queue){.end = &q->first};
}

void mr__outbox_push(struct queue *q, struct request *req)
{
    req->next = NULL;
    *q->end = req;
    q->end = &req->next;
    q->n++;
}

static struct request *pop(struct queue *q)
{
    struct request *req = q->first;

    q->first = req->next;
    if (--q->n == 0) {
        q->end = &q->first;
    }
    return req;
}

int mr__outbox_init(struct mr_udp *u)
{
    queue_init(&u->waiting);
    queue_init(&u->for_peer);
    queue_init(&u->ready);
    u->buckets = mr__alloc(BUCKETS_FIRST, sizeof(struct request *));
    if (!u->buckets) {
        return -ENOMEM;
    }
    u->n_buckets = BUCKETS_FIRST;
    return mr__machine_random(&u->key, sizeof u->key);
}

void mr__outbox_deinit(struct mr_udp *u)
{
    while (u->pool) {
        struct request *req = u->pool;
        u->pool = req->next;
        mr__free(req);
    }
    mr__free(u->buckets);
}

static struct request *take_room(struct mr_udp *u, size_t bytes)
{
    struct request *req = u->pool;

    if (bytes <= POOLED_BYTES && req) {
        u->pool = req->next;
        u->n_pool--;
        return req;
    }
    req = mr__alloc(1, sizeof *req + (bytes < POOLED_BYTES ? POOLED_BYTES : bytes));
    if (req) {
        req->udp = u;
        req->lookup.user = req;
        req->is_pooled = bytes <= POOLED_BYTES;
    }
    return req;
}

static const char *omitted(const struct mr_udp *u, enum mr_lookup_op op)
{
    if (op == MR_LOOKUP_BIND) {
        return u->opts.family == 4 ? "0.0.0.0" : "::";
    }
    return u->opts.family == 4 ? "127.0.0.1" : "::1";
}

/* Of one that is kept only what it is from now on is set: this is once a datagram. */
struct request *mr__outbox_request(struct mr_udp *u, enum mr_lookup_op op, const char *host,
                                   size_t n, size_t size)
{
    struct request *req;

    if (n == 0) {
        host = omitted(u, op);
        n = strlen(host);
    }
    req = take_room(u, n + size);
    if (!req) {
        return NULL;
    }
    memcpy(req->bytes, host, n);
    req->n_host = (uint8_t)n;
    req->size = (uint32_t)size;
    req->op = (uint8_t)op;
    req->flags = (uint8_t)u->flags;
    req->failure = NULL;
    req->is_held = req->is_first = false;
    if (op == MR_LOOKUP_SEND) {
        u->n_queued++;
        u->queued_bytes += size;
    }
    return req;
}

void mr__outbox_give_back(struct request *req)
{
    struct mr_udp *u = req->udp;

    if (req->op == MR_LOOKUP_SEND) {
        u->n_queued--;
        u->queued_bytes -= req->size;
    }
    mr__outbox_drop_failure(req->failure);
    if (req->is_pooled && u->n_pool < POOL_MAX) {
        req->next = u->pool;
        u->pool = req;
        u->n_pool++;
    } else {
        mr__free(req);
    }
}

/* ---- telling ------------------------------------------------------------------------------ */

void mr__outbox_tell(struct request *req, const struct mr_udp_result *result)
{
    bool is_wanted = req->udp->state != UDP_CLOSING;
    mr_udp_done done = req->done;
    void *arg = req->arg;

    mr__outbox_give_back(req);
    if (done && is_wanted) {
        done(arg, result);
    }
}

/* What somebody gave as a host may be anything; a message is one line. */
static void put_host(char *out, const struct request *req)
{
    for (unsigned i = 0; i < req->n_host; i++) {
        uint8_t c = req->bytes[i];
        out[i] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
    }
    out[req->n_host] = 0;
}

void mr__outbox_word(char *out, size_t cap, const struct request *req, const char *why)
{
    char host[UINT8_MAX + 1];

    put_host(host, req);
    if (req->op == MR_LOOKUP_SEND) {
        snprintf(out, cap, "cannot send %u bytes to %s port %u: %s", (unsigned)req->size, host,
                 (unsigned)req->port, why);
    } else {
        snprintf(out, cap, "cannot %s %s port %u: %s",
                 req->op == MR_LOOKUP_BIND ? "bind" : "connect to", host, (unsigned)req->port, why);
    }
}

void mr__outbox_tell_error(struct request *req, int rc, const char *code, const char *why)
{
    char message[UDP_MESSAGE_BYTES];

    mr__outbox_word(message, sizeof message, req, why);
    mr__outbox_tell(req, &(struct mr_udp_result){.rc = rc, .code = code, .message = message});
}

static void tell_kernel_error(struct request *req, int rc)
{
    char why[128];

    req->udp->counts.send_errors++;
    mr__outbox_tell_error(req, rc, mr_udp_code(rc), uv_strerror_r(rc, why, sizeof why));
}

/* What is told when there is no memory for the reason. Never written to: refs 0. */
static struct failure no_memory = {
    .rc = -ENOMEM, .code = "memory", .text = "out of memory for the reason"};

struct failure *mr__outbox_failure(int rc, const char *code, const char *text, bool is_whole)
{
    struct failure *f = mr__alloc(1, sizeof *f);

    if (!f) {
        return &no_memory;
    }
    f->refs = 1;
    f->rc = rc;
    f->is_whole = is_whole;
    snprintf(f->code, sizeof f->code, "%s", code);
    snprintf(f->text, sizeof f->text, "%s", text);
    return f;
}

void mr__outbox_drop_failure(struct failure *failure)
{
    if (failure && failure != &no_memory && --failure->refs == 0) {
        mr__free(failure);
    }
}

static void tell_failure(struct request *req)
{
    struct failure *f = req->failure;

    req->failure = NULL;
    req->udp->counts.send_errors++;
    if (f->is_whole) {
        mr__outbox_tell(req,
                        &(struct mr_udp_result){.rc = f->rc, .code = f->code, .message = f->text});
    } else {
        mr__outbox_tell_error(req, f->rc, f->code, f->text);
    }
    mr__outbox_drop_failure(f);
}

/* ---- what is ready ------------------------------------------------------------------------ */

static void on_awake(uv_idle_t *idle)
{
    (void)idle;
}

static void on_flush(uv_prepare_t *prepare)
{
    mr__outbox_flush(prepare->data, FLUSH_MAX);
}

/* Before the loop sleeps, and it does not sleep until then. */
static void arm(struct mr_udp *u, bool is_wanted)
{
    if (is_wanted && !u->is_armed) {
        uv_idle_start(&u->awake, on_awake);
        uv_prepare_start(&u->flush, on_flush);
    } else if (!is_wanted && u->is_armed) {
        uv_idle_stop(&u->awake);
        uv_prepare_stop(&u->flush);
    }
    u->is_armed = is_wanted;
}

void mr__outbox_rouse(struct mr_udp *u)
{
    arm(u, true);
}

void mr__outbox_ready(struct request *req)
{
    struct mr_udp *u = req->udp;

    mr__outbox_push(&u->ready, req);
    if (!u->is_blocked) {
        arm(u, true);
    }
}

void mr__outbox_ready_all(struct queue *q, const struct mr_addr *to, struct failure *failure)
{
    while (q->n > 0) {
        struct request *req = pop(q);

        if (to) {
            req->addr = *to;
        }
        if (failure) {
            req->failure = failure;
            failure->refs += failure != &no_memory;
        }
        mr__outbox_ready(req);
    }
}

/* Gathers what may go in one call: up to the first that is only to be told. */
static unsigned gather(struct mr_udp *u, struct endpoint_out *out, unsigned most)
{
    bool is_connected = u->state == UDP_CONNECTED;
    unsigned n = 0;

    for (struct request *req = u->ready.first; req && n < most && !req->failure; req = req->next) {
        bool is_peer = is_connected && mr_addr_equal(&req->addr, &u->peer);

        out[n++] = (struct endpoint_out){
            .to = is_peer ? NULL : &req->addr, .data = req->bytes + req->n_host, .size = req->size};
    }
    return n;
}

/* Tells the first that is ready without asking the kernel, if that is its lot. */
static bool tell_first(struct mr_udp *u)
{
    struct request *req = u->ready.first;
    int rc = u->waiting_error;

    if (req->failure) {
        tell_failure(pop(&u->ready));
        return true;
    }
    if (rc < 0 && u->state == UDP_CONNECTED && mr_addr_equal(&req->addr, &u->peer)) {
        u->waiting_error = 0;
        tell_kernel_error(pop(&u->ready), rc);
        return true;
    }
    if (u->refusals >= REFUSALS_MAX) {
        u->refusals = 0;
        tell_kernel_error(pop(&u->ready), -EAGAIN);
        return true;
    }
    return false;
}

/* Takes them off the queue before anybody is told: done may close the endpoint, or send. */
static unsigned send_some(struct mr_udp *u, unsigned most)
{
    static const struct mr_udp_result sent = {0};
    struct endpoint_out out[ENDPOINT_TX_MAX];
    struct request *req[ENDPOINT_TX_MAX];
    unsigned n = gather(u, out, most < ENDPOINT_TX_MAX ? most : ENDPOINT_TX_MAX);
    unsigned dealt = mr__endpoint_send_many(u->fd, &u->info, out, n);

    if (dealt < n) {
        u->is_blocked = true;
        u->refusals = dealt > 0 ? 0 : u->refusals + 1;
    } else {
        u->refusals = 0;
    }
    for (unsigned i = 0; i < dealt; i++) {
        req[i] = pop(&u->ready);
    }
    for (unsigned i = 0; i < dealt; i++) {
        if (out[i].rc < 0) {
            tell_kernel_error(req[i], out[i].rc);
        } else {
            u->counts.sent++;
            mr__outbox_tell(req[i], &sent);
        }
    }
    return dealt;
}

void mr__outbox_flush(struct mr_udp *u, unsigned most)
{
    unsigned left = u->ready.n < most ? u->ready.n : most;

    while (left > 0 && !u->is_blocked && u->state != UDP_CLOSING) {
        left -= tell_first(u) ? 1 : send_some(u, left);
    }
    if (u->state != UDP_CLOSING) {
        if (u->is_blocked || u->must_watch) {
            mr__udp_watch(u);
        }
        arm(u, (u->ready.n > 0 && !u->is_blocked) || u->must_watch);
    }
}

void mr__outbox_writable(struct mr_udp *u)
{
    u->is_blocked = false;
    mr__outbox_flush(u, FLUSH_MAX);
    if (u->state != UDP_CLOSING) {
        mr__udp_watch(u);
    }
}

/* ---- destinations ------------------------------------------------------------------------- */

static uint64_t hash_of(const struct mr_udp *u, const struct request *req)
{
    return mr__table_hash(&u->key, req->bytes, req->n_host) ^
           req->port * UINT64_C(0x9e3779b97f4a7c15);
}

static struct request **find(struct mr_udp *u, const struct request *req)
{
    struct request **at = &u->buckets[req->hash & (u->n_buckets - 1)];

    while (*at &&
           ((*at)->hash != req->hash || (*at)->port != req->port || (*at)->n_host != req->n_host ||
            memcmp((*at)->bytes, req->bytes, req->n_host) != 0)) {
        at = &(*at)->bucket;
    }
    return at;
}

/* More buckets, or the same when there is no memory: then it is slower and still right. */
static void grow(struct mr_udp *u)
{
    unsigned n = u->n_buckets * 4;
    struct request **more = mr__alloc(n, sizeof(struct request *));

    if (!more) {
        return;
    }
    for (unsigned i = 0; i < u->n_buckets; i++) {
        for (struct request *req = u->buckets[i], *next; req; req = next) {
            struct request **at = &more[req->hash & (n - 1)];
            next = req->bucket;
            req->bucket = *at;
            *at = req;
        }
    }
    mr__free(u->buckets);
    u->buckets = more;
    u->n_buckets = n;
}

static void enter(struct mr_udp *u, struct request *req)
{
    struct request **at;

    req->hash = hash_of(u, req);
    req->next = NULL;
    at = find(u, req);
    if (*at) {
        (*at)->last->next = req;
        (*at)->last = req;
        return;
    }
    req->is_first = true;
    req->last = req;
    req->bucket = NULL;
    *at = req;
    if (++u->n_destinations > u->n_buckets) {
        grow(u);
    }
}

/* The first of a destination leaves; gives the one that is first now, or NULL. */
static struct request *leave(struct mr_udp *u, struct request *req)
{
    struct request **at = find(u, req), *next = req->next;

    assert(*at == req);
    if (next) {
        next->is_first = true;
        next->last = req->last;
        next->bucket = req->bucket;
        *at = next;
    } else {
        *at = req->bucket;
        u->n_destinations--;
    }
    return next;
}

/* The usual case: nothing is before, behind or beside it. So it takes no queue. */
static bool send_alone(struct mr_udp *u, struct request *req)
{
    static const struct mr_udp_result sent = {0};
    struct endpoint_out out = {
        .to = &req->addr, .data = req->bytes + req->n_host, .size = req->size};
    int rc;

    if (u->looking > 0 || u->ready.n > 0 || u->state != UDP_BOUND) {
        return false;
    }
    rc = mr__endpoint_send_one(u->fd, &u->info, &out);
    if (rc == 0) {
        u->counts.sent++;
        mr__outbox_tell(req, &sent);
    } else if (rc == -EAGAIN) {
        mr__outbox_push(&u->ready, req);
        u->is_blocked = true;
        mr__udp_watch(u);
    } else {
        tell_kernel_error(req, rc);
    }
    return true;
}

/* Nobody waits for more answers: no later one can go with these. Nor would telling a whole queue
 * that was held be bounded here. */
static void flush_soon(struct mr_udp *u)
{
    if (u->ready.n > 0 && !u->is_armed && !u->is_blocked) {
        if (u->looking == 0) {
            mr__outbox_flush(u, ENDPOINT_TX_MAX);
        } else {
            arm(u, true);
        }
    }
}

static void on_looked_up(struct mr_lookup_request *lookup, const struct mr_lookup_answer *answer)
{
    struct request *req = lookup->user, *next;
    struct mr_udp *u = req->udp;

    u->looking--;
    if (answer->rc == 0) {
        req->addr = answer->addr;
        req->addr.port = req->port;
    }
    if (!req->is_first) {
        req->is_held = true;
        if (answer->rc < 0) {
            req->failure = mr__outbox_failure(answer->rc, answer->code, answer->message, true);
        }
        return;
    }
    if (u->lone == req) {
        u->lone = next = NULL;
        if (answer->rc == 0 && send_alone(u, req)) {
            return;
        }
    } else {
        next = leave(u, req);
    }
    if (answer->rc == 0) {
        mr__outbox_push(&u->ready, req);
    }
    while (next && next->is_held) {
        struct request *held = next;
        next = leave(u, held);
        mr__outbox_push(&u->ready, held);
    }
    if (answer->rc < 0) {
        u->counts.send_errors++;
        mr__outbox_tell(req, &(struct mr_udp_result){.rc = answer->rc,
                                                     .code = answer->code,
                                                     .message = answer->message});
        if (u->state == UDP_CLOSING) {
            return;
        }
    }
    flush_soon(u);
}

void mr__outbox_ask(struct request *req, void (*done)(struct mr_lookup_request *lookup,
                                                      const struct mr_lookup_answer *answer))
{
    struct mr_udp *u = req->udp;

    req->lookup.done = done;
    mr_lookup_start_with(u->lookup, &req->lookup, &u->opts.lookup, (const char *)req->bytes,
                         req->n_host, u->opts.family, req->op, req->flags);
}

void mr__outbox_look(struct request *req)
{
    struct mr_udp *u = req->udp;

    if (u->looking++ == 0) {
        req->is_first = true;
        req->next = NULL;
        u->lone = req;
    } else {
        if (u->lone) {
            enter(u, u->lone);
            u->lone = NULL;
        }
        enter(u, req);
    }
    mr__outbox_ask(req, on_looked_up);
}

void mr__outbox_look_all(struct queue *q)
{
    while (q->n > 0) {
        mr__outbox_look(pop(q));
    }
}

/* ---- the end ------------------------------------------------------------------------------ */

static void forget(struct queue *q)
{
    while (q->n > 0) {
        mr__outbox_give_back(pop(q));
    }
}

void mr__outbox_clear(struct mr_udp *u)
{
    arm(u, false);
    forget(&u->waiting);
    forget(&u->for_peer);
    forget(&u->ready);
    if (u->lone) {
        mr_lookup_cancel(&u->lone->lookup);
        mr__outbox_give_back(u->lone);
        u->lone = NULL;
    }
    for (unsigned i = 0; i < u->n_buckets; i++) {
        while (u->buckets[i]) {
            struct request *req = u->buckets[i];
            u->buckets[i] = req->bucket;
            for (struct request *next; req; req = next) {
                next = req->next;
                if (!req->is_held) {
                    mr_lookup_cancel(&req->lookup);
                }
                mr__outbox_give_back(req);
            }
        }
    }
    u->n_destinations = u->looking = 0;
}
