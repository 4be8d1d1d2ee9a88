/* SPDX-License-Identifier: MIT */
/*
 * See udp.h; udp_state.h has what it is made of. Control thread. Start reading at
 * begin_bind(), which everything rests on.
 *
 * done and on_message may do anything, also close the endpoint: after each of them the
 * state is looked at again. The memory stays until libuv has called every close callback.
 */
#include "control/udp.h"

#include "base/alloc.h"
#include "control/udp_state.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    BATCHES_PER_TURN = 4, /* 64 datagrams, then everybody else on the loop has a turn */
    ERRORS_PER_TURN = 8,  /* an error that stays must not hold the loop */
    DATAGRAM_MAX = 65507, /* bytes of a UDP payload over IPv4 */
    QUEUE_MAX = 16384,
    QUEUE_BYTES_MAX = 16 << 20,
};

const char *mr_udp_code(int rc)
{
    switch (rc) {
    case -EADDRINUSE:
        return "address-in-use";
    case -EACCES:
    case -EPERM:
        return "denied";
    case -EADDRNOTAVAIL:
        return "not-available";
    case -ECONNREFUSED:
        return "refused";
    case -ENETUNREACH:
    case -EHOSTUNREACH:
    case -ENETDOWN:
    case -EHOSTDOWN:
        return "unreachable";
    case -EMSGSIZE:
        return "too-large";
    case -EAGAIN:
    case -ENOBUFS:
        return "busy";
    case -EBADF:
        return "closed";
    case -EAFNOSUPPORT:
        return "family";
    case -EISCONN:
        return "bound";
    case -ENOTCONN:
        return "unbound";
    case -EDESTADDRREQ:
        return "no-port";
    case -ENOMEM:
        return "memory";
    default:
        return "failed";
    }
}

const char *mr_udp_reason(int rc)
{
    switch (rc) {
    case -EBADF:
        return "it is closed";
    case -EISCONN:
        return "it is bound or connected already";
    case -ENOTCONN:
        return "it is not bound or connected";
    case -EDESTADDRREQ:
        return "a port from 1 to 65535 is needed";
    case -EMSGSIZE:
        return "a datagram has at most 65507 bytes";
    case -ENOBUFS:
        return "too much waits to be sent";
    case -ENAMETOOLONG:
        return "a host has at most 255 bytes";
    case -EAFNOSUPPORT:
        return "the address is of another family";
    case -ENOMEM:
        return "out of memory";
    case -EMFILE:
        return "there are too many already";
    default:
        return "it is not possible";
    }
}

/* ---- receiving ---------------------------------------------------------------------------- */

/* A connected socket is told what became of datagrams before. The next send takes it over, as it
 * would have from the kernel, had nobody read in between. */
static void note_error(struct mr_udp *u, int rc)
{
    u->counts.receive_errors++;
    if (u->state == UDP_CONNECTED) {
        u->waiting_error = rc;
    }
}

/* Whether to go on. What came from elsewhere before the socket was connected is nobody's. */
static bool deliver(struct mr_udp *u, const struct endpoint_datagram *d, unsigned n)
{
    for (unsigned i = 0; i < n && u->state != UDP_CLOSING; i++) {
        if (u->state == UDP_CONNECTED && !mr_addr_equal(&d[i].from, &u->peer)) {
            continue;
        }
        u->counts.received++;
        u->opts.on_message(u->opts.user, &d[i].from, &d[i].local, d[i].data, d[i].size);
    }
    return n == ENDPOINT_RX_MAX && !u->is_paused && u->state != UDP_CLOSING;
}

static void receive(struct mr_udp *u)
{
    int batches = 0, errors = 0;

    while (batches < BATCHES_PER_TURN && errors < ERRORS_PER_TURN) {
        const struct endpoint_datagram *d;
        int n = mr__endpoint_receive(u->fd, &u->info, u->rx, &d);

        if (n < 0) {
            errors++;
            note_error(u, n);
        } else if (n == 0 || !deliver(u, d, (unsigned)n)) {
            return;
        } else {
            batches++;
        }
    }
}

/* libuv takes an ICMP error of a connected socket for the end of the descriptor, and stops. */
static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct mr_udp *u = poll->data;

    if (status < 0) {
        int rc = mr__endpoint_take_error(u->fd);
        if (rc < 0) {
            note_error(u, rc);
        }
        mr__udp_watch(u);
        return;
    }
    if (events & UV_READABLE && !u->is_paused) {
        receive(u);
    }
    if (events & UV_WRITABLE && u->state != UDP_CLOSING) {
        mr__outbox_writable(u);
    }
}

/* Whoever only sends is in no epoll set: the kernel wakes those for each datagram that has left,
 * which is 5 to 10 % of a send, whether it was asked about writing or not. */
void mr__udp_watch(struct mr_udp *u)
{
    bool reads = u->opts.on_message && !u->is_paused;
    int events = (reads ? UV_READABLE : 0) | (u->is_blocked ? UV_WRITABLE : 0);

    if (!u->has_poll) {
        return;
    }
    if (events) {
        u->must_watch = uv_poll_start(&u->poll, events, on_poll) < 0;
    } else {
        u->must_watch = false;
        uv_poll_stop(&u->poll);
    }
    if (u->must_watch) {
        mr__outbox_rouse(u); /* it tries again: nobody else would */
    }
}

void mr_udp_pause(struct mr_udp *u)
{
    u->is_paused = true;
    if (u->state != UDP_CLOSING) {
        mr__udp_watch(u);
    }
}

void mr_udp_resume(struct mr_udp *u)
{
    u->is_paused = false;
    if (u->state != UDP_CLOSING) {
        mr__udp_watch(u);
    }
}

/* ---- binding ------------------------------------------------------------------------------ */

static int open_socket(struct mr_udp *u, const struct mr_addr *local, unsigned flags)
{
    int rc = u->rx || !u->opts.on_message ? 0 : mr__endpoint_rx_create(&u->rx);

    if (rc < 0) {
        return rc;
    }
    u->fd = mr__endpoint_open(local, flags, u->opts.buffer_bytes, &u->info);
    if (u->fd < 0) {
        rc = u->fd;
        u->fd = -1;
        return rc;
    }
    rc = uv_poll_init(u->opts.loop, &u->poll, u->fd);
    if (rc < 0) {
        mr__socket_close(u->fd);
        u->fd = -1;
        return rc;
    }
    u->poll.data = u;
    u->has_poll = true;
    u->handles++;
    u->bound = u->info.local;
    u->state = UDP_BOUND;
    mr__udp_watch(u);
    return 0;
}

static void begin_connect(struct mr_udp *u);

static void bound(struct mr_udp *u, struct request *bind)
{
    mr__outbox_look_all(&u->waiting);
    if (u->connect) {
        begin_connect(u);
    }
    mr__outbox_tell(bind, &(struct mr_udp_result){0});
}

/* Everything that waited for it has an end of its own; then the endpoint is as it was made. */
static void bind_failed(struct mr_udp *u, struct request *bind, int rc, const char *code,
                        const char *message)
{
    struct failure *why = mr__outbox_failure(rc, code, message, false);
    struct request *connect = u->connect;

    u->state = UDP_MADE;
    u->connect = NULL;
    mr__outbox_ready_all(&u->waiting, NULL, why);
    mr__outbox_ready_all(&u->for_peer, NULL, why);
    mr__outbox_tell(bind, &(struct mr_udp_result){.rc = rc, .code = code, .message = message});
    if (connect) {
        mr__outbox_tell_error(connect, why->rc, why->code, why->text);
    }
    mr__outbox_drop_failure(why);
}

static void on_bind_address(struct mr_lookup_request *lookup, const struct mr_lookup_answer *answer)
{
    struct request *req = lookup->user;
    struct mr_udp *u = req->udp;
    char message[UDP_MESSAGE_BYTES / 2], why[128];
    struct mr_addr local = answer->addr;
    int rc;

    u->bind = NULL;
    if (answer->rc < 0) {
        bind_failed(u, req, answer->rc, answer->code, answer->message);
        return;
    }
    local.port = req->port;
    rc = open_socket(u, &local, 0);
    if (rc < 0) {
        mr__outbox_word(message, sizeof message, req, uv_strerror_r(rc, why, sizeof why));
        bind_failed(u, req, rc, mr_udp_code(rc), message);
        return;
    }
    bound(u, req);
}

static int begin_bind(struct mr_udp *u, const char *host, size_t n, uint16_t port, mr_udp_done done,
                      void *arg)
{
    struct request *req = mr__outbox_request(u, MR_LOOKUP_BIND, host, n, 0);

    if (!req) {
        return -ENOMEM;
    }
    req->port = port;
    req->done = done;
    req->arg = arg;
    u->bind = req;
    u->state = UDP_BINDING;
    mr__outbox_ask(req, on_bind_address);
    return 0;
}

static int check_call(const struct mr_udp *u, size_t n)
{
    if (u->state == UDP_CLOSING) {
        return -EBADF;
    }
    if (!u->lookup) {
        return -ENOTSUP;
    }
    return n > MR_LOOKUP_HOST_MAX ? -ENAMETOOLONG : 0;
}

int mr_udp_bind(struct mr_udp *u, const char *host, size_t n, uint16_t port, mr_udp_done done,
                void *arg)
{
    int rc = check_call(u, n);

    if (rc == 0 && u->state != UDP_MADE) {
        rc = -EISCONN;
    }
    return rc < 0 ? rc : begin_bind(u, host, n, port, done, arg);
}

int mr_udp_bind_address(struct mr_udp *u, const struct mr_addr *local)
{
    if (u->state == UDP_CLOSING) {
        return -EBADF;
    }
    if (u->state != UDP_MADE) {
        return -EISCONN;
    }
    if (local->family != u->opts.family) {
        return -EAFNOSUPPORT;
    }
    return open_socket(u, local, SOCKET_DUAL_STACK);
}

int mr_udp_address(const struct mr_udp *u, struct mr_addr *local)
{
    if (u->fd < 0) {
        return -ENOTCONN;
    }
    *local = u->info.local;
    return 0;
}

/* ---- connecting --------------------------------------------------------------------------- */

static void connect_failed(struct mr_udp *u, struct request *req, int rc, const char *code,
                           const char *message)
{
    struct failure *why = mr__outbox_failure(rc, code, message, false);

    u->state = UDP_BOUND;
    mr__outbox_ready_all(&u->for_peer, NULL, why);
    mr__outbox_drop_failure(why);
    mr__outbox_tell(req, &(struct mr_udp_result){.rc = rc, .code = code, .message = message});
}

static void on_peer_address(struct mr_lookup_request *lookup, const struct mr_lookup_answer *answer)
{
    struct request *req = lookup->user;
    struct mr_udp *u = req->udp;
    char message[UDP_MESSAGE_BYTES / 2], why[128];
    int rc;

    u->connect = NULL;
    if (answer->rc < 0) {
        connect_failed(u, req, answer->rc, answer->code, answer->message);
        return;
    }
    u->peer = answer->addr;
    u->peer.port = req->port;
    rc = mr__endpoint_connect(u->fd, &u->info, &u->peer);
    if (rc < 0) {
        mr__outbox_word(message, sizeof message, req, uv_strerror_r(rc, why, sizeof why));
        connect_failed(u, req, rc, mr_udp_code(rc), message);
        return;
    }
    u->state = UDP_CONNECTED;
    u->waiting_error = 0;
    mr__outbox_ready_all(&u->for_peer, &u->peer, NULL);
    mr__outbox_tell(req, &(struct mr_udp_result){0});
}

static void begin_connect(struct mr_udp *u)
{
    u->state = UDP_CONNECTING;
    mr__outbox_ask(u->connect, on_peer_address);
}

/* Whom it is for is decided when it is called, not when it is bound. */
static bool has_peer(const struct mr_udp *u)
{
    return u->connect || u->state == UDP_CONNECTED;
}

/* An endpoint that is not bound binds first; the request is given back when that cannot begin. */
static int begin_request(struct mr_udp *u, struct request *req, uint16_t port, mr_udp_done done,
                         void *arg)
{
    int rc = u->state == UDP_MADE ? begin_bind(u, NULL, 0, 0, NULL, NULL) : 0;

    req->port = port;
    req->done = done;
    req->arg = arg;
    if (rc < 0) {
        mr__outbox_give_back(req);
    }
    return rc;
}

int mr_udp_connect(struct mr_udp *u, const char *host, size_t n, uint16_t port, mr_udp_done done,
                   void *arg)
{
    struct request *req;
    int rc = check_call(u, n);

    if (rc < 0) {
        return rc;
    }
    if (has_peer(u)) {
        return -EISCONN;
    }
    if (port == 0) {
        return -EDESTADDRREQ;
    }
    req = mr__outbox_request(u, MR_LOOKUP_CONNECT, host, n, 0);
    if (!req) {
        return -ENOMEM;
    }
    rc = begin_request(u, req, port, done, arg);
    if (rc < 0) {
        return rc;
    }
    u->connect = req;
    if (u->state == UDP_BOUND) {
        begin_connect(u);
    }
    return 0;
}

int mr_udp_disconnect(struct mr_udp *u)
{
    if (u->state != UDP_CONNECTED) {
        return -ENOTCONN;
    }
    u->state = UDP_BOUND;
    u->waiting_error = 0;
    return mr__endpoint_disconnect(u->fd, &u->info, &u->bound);
}

/* ---- sending ------------------------------------------------------------------------------ */

static int check_send(const struct mr_udp *u, size_t size, size_t n, uint16_t port)
{
    int rc = check_call(u, n);

    if (rc < 0) {
        return rc;
    }
    if (size > DATAGRAM_MAX) {
        return -EMSGSIZE;
    }
    if (has_peer(u)) {
        if (n > 0 || port != 0) {
            return -EISCONN;
        }
    } else if (port == 0) {
        return -EDESTADDRREQ;
    }
    if (u->n_queued >= u->opts.queue_max || u->queued_bytes + size > u->opts.queue_bytes_max) {
        return -ENOBUFS;
    }
    return 0;
}

/* To where a send goes first: see udp_state.h. */
static void enqueue(struct mr_udp *u, struct request *req)
{
    if (u->connect) {
        mr__outbox_push(&u->for_peer, req);
    } else if (u->state == UDP_CONNECTED) {
        req->addr = u->peer;
        mr__outbox_ready(req);
    } else if (u->state == UDP_BOUND) {
        mr__outbox_look(req);
    } else {
        mr__outbox_push(&u->waiting, req);
    }
}

int mr_udp_send(struct mr_udp *u, const void *data, size_t size, const char *host, size_t n,
                uint16_t port, mr_udp_done done, void *arg)
{
    int rc = check_send(u, size, n, port);
    struct request *req;

    if (rc < 0) {
        return rc;
    }
    req = mr__outbox_request(u, MR_LOOKUP_SEND, host, n, size);
    if (!req) {
        return -ENOMEM;
    }
    if (size > 0) {
        memcpy(req->bytes + req->n_host, data, size);
    }
    rc = begin_request(u, req, port, done, arg);
    if (rc < 0) {
        return rc;
    }
    enqueue(u, req);
    return 0;
}

int mr_udp_reply(struct mr_udp *u, const struct mr_addr *to, const struct mr_addr *local,
                 const void *data, size_t size)
{
    int rc = u->fd < 0 ? -ENOTCONN : mr__endpoint_send(u->fd, &u->info, to, local, data, size);

    if (rc < 0) {
        u->counts.send_errors++;
    } else {
        u->counts.sent++;
    }
    return rc;
}

/* ---- life --------------------------------------------------------------------------------- */

void mr_udp_options_init(struct mr_udp_options *opts, size_t size)
{
    memset(opts, 0, size);
    opts->size = size;
    opts->family = 4;
}

int mr_udp_create(struct mr_udp **out, struct mr_lookup *lookup, const struct mr_udp_options *opts)
{
    struct mr_udp *u;
    int rc;

    if (opts->size != sizeof *opts || !opts->loop || (opts->family != 4 && opts->family != 6)) {
        return -EINVAL;
    }
    u = mr__alloc(1, sizeof *u);
    if (!u) {
        return -ENOMEM;
    }
    u->opts = *opts;
    u->opts.queue_max = opts->queue_max ? opts->queue_max : QUEUE_MAX;
    u->opts.queue_bytes_max = opts->queue_bytes_max ? opts->queue_bytes_max : QUEUE_BYTES_MAX;
    u->lookup = lookup;
    u->flags = opts->lookup.ask ? 0 : opts->lookup_flags;
    u->fd = -1;
    rc = mr__outbox_init(u);
    if (rc < 0) {
        mr__outbox_deinit(u);
        mr__free(u);
        return rc;
    }
    uv_idle_init(opts->loop, &u->awake);
    uv_prepare_init(opts->loop, &u->flush);
    u->awake.data = u->flush.data = u;
    u->handles = 2;
    *out = u;
    return 0;
}

void mr_udp_set_lookup_flags(struct mr_udp *u, unsigned flags)
{
    u->flags = flags;
}

void mr_udp_count(const struct mr_udp *u, struct mr_udp_counts *out)
{
    *out = u->counts;
    if (u->fd >= 0) {
        (void)mr__socket_drops(u->fd, &out->kernel_drops);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct mr_udp *u = handle->data;

    if (--u->handles == 0) {
        void (*done)(void *arg) = u->on_closed;
        void *arg = u->closed_arg;

        mr__outbox_deinit(u);
        mr__endpoint_rx_destroy(u->rx);
        mr__free(u);
        if (done) {
            done(arg);
        }
    }
}

static void forget(struct request **at)
{
    struct request *req = *at;

    *at = NULL;
    if (req) {
        mr_lookup_cancel(&req->lookup);
        mr__outbox_give_back(req);
    }
}

void mr_udp_close(struct mr_udp *u, void (*done)(void *arg), void *arg)
{
    if (!u || u->state == UDP_CLOSING) {
        return;
    }
    if (u->state == UDP_BINDING && u->connect) {
        mr__outbox_give_back(u->connect); /* its lookup has not begun */
        u->connect = NULL;
    }
    u->state = UDP_CLOSING;
    u->on_closed = done;
    u->closed_arg = arg;
    forget(&u->bind);
    forget(&u->connect);
    mr__outbox_clear(u);
    if (u->has_poll) {
        uv_poll_stop(&u->poll);
        mr__socket_close(u->fd);
        u->fd = -1;
        uv_close((uv_handle_t *)&u->poll, on_closed);
    }
    uv_close((uv_handle_t *)&u->awake, on_closed);
    uv_close((uv_handle_t *)&u->flush, on_closed);
}
