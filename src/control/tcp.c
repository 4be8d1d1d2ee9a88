/* SPDX-License-Identifier: MIT */
/*
 * See tcp.h. A connection's output waits in `out` while the kernel takes no more, and in
 * `inflight` while libuv has it:
 *
 *      send -> out --settle: uv_try_write--> kernel
 *               \--what is left: swap--> inflight --uv_write--> kernel
 *
 * Ways to end: the handler closes it (flush, shutdown, read on until the peer's FIN, so
 * that unread input does not turn our last line into a reset), or it fails (`doomed`,
 * reported by the next settle). All memory goes in on_closed().
 *
 * The listener is ours and not libuv's: when no descriptor is left and the one libuv keeps
 * for that case was lost to another thread, libuv's accept loop never returns.
 */
#include "control/tcp.h"

#include "base/alloc.h"
#include "io/listener.h"

#include <errno.h>
#include <string.h>

enum {
    /* All players of a server that was stopped for a moment come back at once. Whom the queue does
     * not hold waits for the next of TCP's tries, tens of seconds in the end. As much as Linux
     * gives. */
    LISTEN_BACKLOG = 4096,
    ACCEPTS_PER_TURN = 64,      /* a burst of connections lets others have their turn */
    BACK_OFF_MS = 100,          /* listener rests when the machine is out of descriptors */
    CLOSE_MS = 3000,            /* flush and the peer's FIN take at most so long */
    READ_BYTES = 64 * 1024,     /* one buffer for all connections */
    RECEIVE_BUFFER = 64 * 1024, /* the kernel's, so that a paused client costs little */
    OUT_FIRST = 512,            /* first size of an output buffer; most lines are shorter */
    OUT_KEEP = 4096,            /* a larger one is given back when it has been flushed */
    TABLE_BITS = 12,            /* buckets by id: a chain of two at the default 8,192 */
};

/* A ghost host must be gone within 65 s: first probe after 30 s, three at 10 s. */
static const struct keepalive keepalive = {
    .idle_s = 30, .interval_s = 10, .count = 3, .user_timeout_ms = 60000};

struct out_buffer {
    char *data;
    size_t n, cap;
};

struct conn {
    uv_tcp_t uv; /* first: a uv handle's address is its connection's */
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct tcp *tcp;
    conn_id id; /* 0: not known to the handler (yet, or any more) */
    struct conn *table_next;
    struct conn *next, **link; /* in tcp->all */
    struct conn *dirty_next;   /* in tcp->dirty */
    struct conn *closing_next; /* in tcp->closing, by close_at_ms */
    struct conn **dirty_link,
        **closing_link; /* what points to it there: thousands may leave at once */
    uint64_t close_at_ms;
    struct out_buffer out, inflight;
    enum conn_end why; /* of a doomed one */
    unsigned is_dirty : 1, is_paused : 1, saw_eof : 1;
    unsigned is_closing : 1;  /* the handler said so */
    unsigned is_doomed : 1;   /* it failed; settle reports and ends it */
    unsigned is_shut : 1;     /* shutdown was asked for */
    unsigned is_queued : 1;   /* in tcp->closing */
    unsigned is_released : 1; /* uv_close() was called */
};

struct tcp {
    uv_poll_t poll;   /* of the listener */
    uv_timer_t timer; /* ends closing connections, wakes a resting listener */
    /* libuv opens a descriptor with a loop's first stream; so it does that now and not when a
     * player comes and there may be none left. */
    uv_tcp_t first_stream;
    uv_loop_t *loop;
    struct log *log;
    struct tcp_handler handler;
    size_t max_connections, output_bytes;
    int listener, reserve;
    struct conn *all, *dirty;
    struct conn *closing, **closing_end;
    size_t n_conns;
    struct conn *accepting; /* its id is not known yet */
    uint64_t resume_at_ms;  /* 0: the listener does not rest */
    struct log_limiter short_limit;
    unsigned handles; /* uv handles of our own still open */
    unsigned is_started : 1, is_stopping : 1, is_destroyed : 1;
    char read_buffer[READ_BYTES];
    struct conn *table[1 << TABLE_BITS];
};

static void arm_timer(struct tcp *t);

/* ---- table by id ------------------------------------------------------------------------- */

static struct conn **bucket(struct tcp *t, conn_id id)
{
    return &t->table[id * 0x9e3779b97f4a7c15u >> (64 - TABLE_BITS)];
}

static void add_id(struct conn *c, conn_id id)
{
    struct conn **b = bucket(c->tcp, id);

    c->id = id;
    c->table_next = *b;
    *b = c;
}

static void remove_id(struct conn *c)
{
    struct conn **p;

    if (c->id == 0) {
        return;
    }
    for (p = bucket(c->tcp, c->id); *p != c; p = &(*p)->table_next) {
    }
    *p = c->table_next;
    c->id = 0;
}

/* While a connection is being accepted, an id that nobody has is its own: the handler
 * may speak to it before it has told us the id. */
static struct conn *find(struct tcp *t, conn_id id)
{
    struct conn *c;

    for (c = *bucket(t, id); c; c = c->table_next) {
        if (c->id == id) {
            return c;
        }
    }
    c = t->accepting;
    if (c && c->id == 0 && !c->is_closing && id != 0) {
        add_id(c, id);
        return c;
    }
    return NULL;
}

/* ---- ending ------------------------------------------------------------------------------ */

static void mark_dirty(struct conn *c)
{
    if (!c->is_dirty) {
        struct tcp *t = c->tcp;

        c->is_dirty = 1;
        c->dirty_next = t->dirty;
        c->dirty_link = &t->dirty;
        if (t->dirty) {
            t->dirty->dirty_link = &c->dirty_next;
        }
        t->dirty = c;
    }
}

static void unmark_dirty(struct conn *c)
{
    if (c->is_dirty) {
        c->is_dirty = 0;
        *c->dirty_link = c->dirty_next;
        if (c->dirty_next) {
            c->dirty_next->dirty_link = c->dirty_link;
        }
    }
}

static void doom(struct conn *c, enum conn_end why)
{
    if (!c->is_doomed && !c->is_released) {
        c->is_doomed = 1;
        c->why = why;
        mark_dirty(c);
    }
}

static void doom_by_error(struct conn *c, int error)
{
    doom(c, error == UV_ETIMEDOUT || error == UV_EHOSTUNREACH ? MR_CONN_TIMEOUT : MR_CONN_RESET);
}

static void free_tcp(struct tcp *t)
{
    if (t->is_destroyed && t->handles == 0 && t->n_conns == 0) {
        mr__free(t);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *c = (struct conn *)handle;
    struct tcp *t = c->tcp;

    unmark_dirty(c);
    *c->link = c->next;
    if (c->next) {
        c->next->link = c->link;
    }
    mr__free(c->out.data);
    mr__free(c->inflight.data);
    mr__free(c);
    t->n_conns--;
    free_tcp(t);
}

static void dequeue_closing(struct conn *c)
{
    if (!c->is_queued) {
        return;
    }
    *c->closing_link = c->closing_next;
    if (c->closing_next) {
        c->closing_next->closing_link = c->closing_link;
    } else {
        c->tcp->closing_end = c->closing_link;
    }
    c->is_queued = 0;
}

static void release(struct conn *c)
{
    if (!c->is_released) {
        c->is_released = 1;
        remove_id(c);
        dequeue_closing(c);
        uv_close((uv_handle_t *)&c->uv, on_closed);
    }
}

static void begin_closing(struct conn *c)
{
    struct tcp *t = c->tcp;

    remove_id(c);
    if (c->is_closing || c->is_released) {
        return;
    }
    c->is_closing = 1;
    c->close_at_ms = uv_now(t->loop) + CLOSE_MS;
    c->closing_next = NULL;
    c->is_queued = 1;
    c->closing_link = t->closing_end;
    *t->closing_end = c;
    t->closing_end = &c->closing_next;
    mark_dirty(c);
    arm_timer(t);
}

/* ---- output ------------------------------------------------------------------------------ */

static void flush(struct conn *c);

static void on_written(uv_write_t *req, int status)
{
    struct conn *c = req->data;

    c->inflight.n = 0;
    if (c->inflight.cap > OUT_KEEP) {
        mr__free(c->inflight.data);
        c->inflight = (struct out_buffer){0};
    }
    if (status < 0) {
        if (status != UV_ECANCELED) {
            doom_by_error(c, status);
        }
        return;
    }
    flush(c);
}

static void on_shutdown(uv_shutdown_t *req, int status)
{
    struct conn *c = req->data;

    if (c->is_released) {
        return;
    }
    if (status < 0 || c->saw_eof || c->tcp->is_stopping) {
        release(c);
    }
}

static void hand_to_libuv(struct conn *c, size_t done)
{
    struct out_buffer rest = c->out;
    uv_buf_t buf = uv_buf_init(rest.data + done, (unsigned)(rest.n - done));
    int rc;

    c->out = c->inflight;
    c->inflight = rest;
    c->inflight.n -= done;
    c->write.data = c;
    rc = uv_write(&c->write, (uv_stream_t *)&c->uv, &buf, 1, on_written);
    if (rc < 0) {
        c->inflight.n = 0;
        doom_by_error(c, rc);
    }
}

static void flush(struct conn *c)
{
    size_t done = 0;

    if (c->is_doomed || c->is_released || c->inflight.n > 0) {
        return;
    }
    while (done < c->out.n) {
        uv_buf_t buf = uv_buf_init(c->out.data + done, (unsigned)(c->out.n - done));
        int k = uv_try_write((uv_stream_t *)&c->uv, &buf, 1);
        if (k == UV_EAGAIN) {
            hand_to_libuv(c, done);
            return;
        }
        if (k < 0) {
            doom_by_error(c, k);
            return;
        }
        done += (size_t)k;
    }
    c->out.n = 0;
    if (c->out.cap > OUT_KEEP) {
        mr__free(c->out.data);
        c->out = (struct out_buffer){0};
    }
    if (c->is_closing && !c->is_shut) {
        c->is_shut = 1;
        c->shutdown.data = c;
        if (uv_shutdown(&c->shutdown, (uv_stream_t *)&c->uv, on_shutdown) < 0) {
            release(c);
        }
    }
}

static bool append(struct out_buffer *b, const char *data, size_t n)
{
    if (n > b->cap - b->n) {
        size_t cap = b->cap > 0 ? b->cap : OUT_FIRST;
        char *grown;
        while (cap < b->n + n) {
            cap *= 2;
        }
        grown = mr__realloc(b->data, cap, 1);
        if (!grown) {
            return false;
        }
        b->data = grown;
        b->cap = cap;
    }
    memcpy(b->data + b->n, data, n);
    b->n += n;
    return true;
}

void mr__tcp_send(struct tcp *t, conn_id id, const char *data, size_t n)
{
    struct conn *c = find(t, id);

    if (!c || c->is_doomed || n == 0) {
        return;
    }
    if (!append(&c->out, data, n)) {
        doom(c, MR_CONN_OUTPUT);
        return;
    }
    /* What the kernel takes at once does not count against the peer. */
    if (c->out.n + c->inflight.n > t->output_bytes) {
        flush(c);
    }
    if (c->out.n + c->inflight.n > t->output_bytes) {
        doom(c, MR_CONN_OUTPUT);
        return;
    }
    mark_dirty(c);
}

void mr__tcp_close(struct tcp *t, conn_id id)
{
    struct conn *c = find(t, id);

    if (c) {
        begin_closing(c);
    }
}

/* ---- input ------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct tcp *t = ((struct conn *)handle)->tcp;

    (void)suggested;
    *buf = uv_buf_init(t->read_buffer, sizeof t->read_buffer);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = (struct conn *)stream;
    struct tcp *t = c->tcp;

    if (n == 0 || c->is_released || c->is_doomed) {
        return;
    }
    if (n == UV_EOF) {
        c->saw_eof = 1;
        uv_read_stop(stream);
        if (!c->is_closing) {
            t->handler.eof(t->handler.user, c->id);
        } else if (c->is_shut) {
            release(c);
        }
    } else if (n < 0) {
        uv_read_stop(stream);
        doom_by_error(c, (int)n);
    } else if (!c->is_closing) {
        t->handler.input(t->handler.user, c->id, buf->base, (size_t)n);
    }
}

/* Reading stops while the handler wants no more; a closing connection is read to its FIN and
 * what comes is thrown away. */
static void update_reading(struct conn *c)
{
    bool is_wanted = c->is_closing || !c->is_paused;

    if (c->saw_eof || c->is_doomed || c->is_released) {
        return;
    }
    if (!is_wanted) {
        uv_read_stop((uv_stream_t *)&c->uv);
    } else {
        int rc = uv_read_start((uv_stream_t *)&c->uv, on_alloc, on_read);
        if (rc < 0 && rc != UV_EALREADY) {
            doom_by_error(c, rc);
        }
    }
}

void mr__tcp_pause(struct tcp *t, conn_id id, bool is_paused)
{
    struct conn *c = find(t, id);

    if (c && c->is_paused != is_paused) {
        c->is_paused = is_paused;
        update_reading(c);
    }
}

/* ---- settling ---------------------------------------------------------------------------- */

static void settle(struct conn *c)
{
    struct tcp *t = c->tcp;
    conn_id id = c->id;

    if (c->is_released) {
        return;
    }
    if (c->is_doomed) {
        bool is_known = id != 0 && !c->is_closing;
        release(c);
        if (is_known) {
            t->handler.closed(t->handler.user, id, c->why);
        }
        return;
    }
    if (c->is_closing) {
        update_reading(c);
    }
    flush(c);
}

void mr__tcp_settle(struct tcp *t)
{
    while (t->dirty) {
        struct conn *c = t->dirty;

        unmark_dirty(c);
        settle(c);
    }
}

/* ---- accepting --------------------------------------------------------------------------- */

static void end_overdue(struct tcp *t, uint64_t now_ms)
{
    while (t->closing && t->closing->close_at_ms <= now_ms) {
        release(t->closing);
    }
}

static void on_acceptable(uv_poll_t *poll, int status, int events);

static void on_timer(uv_timer_t *timer)
{
    struct tcp *t = timer->data;
    uint64_t now_ms = uv_now(t->loop);

    end_overdue(t, now_ms);
    if (t->resume_at_ms > 0 && t->resume_at_ms <= now_ms && !t->is_stopping) {
        bool is_back = uv_poll_start(&t->poll, UV_READABLE, on_acceptable) == 0;
        t->resume_at_ms = is_back ? 0 : now_ms + BACK_OFF_MS;
    }
    arm_timer(t);
}

static void arm_timer(struct tcp *t)
{
    uint64_t at = t->closing ? t->closing->close_at_ms : UINT64_MAX;
    uint64_t now_ms = uv_now(t->loop);

    if (t->is_destroyed) {
        return;
    }
    if (t->resume_at_ms > 0 && t->resume_at_ms < at) {
        at = t->resume_at_ms;
    }
    if (at == UINT64_MAX) {
        uv_timer_stop(&t->timer);
    } else {
        uv_timer_start(&t->timer, on_timer, at > now_ms ? at - now_ms : 0, 0);
    }
}

static void rest(struct tcp *t)
{
    uv_poll_stop(&t->poll);
    t->resume_at_ms = uv_now(t->loop) + BACK_OFF_MS;
    arm_timer(t);
}

static void add_connection(struct tcp *t, int fd, const struct mr_addr *peer,
                           const struct mr_addr *local)
{
    struct conn *c = t->n_conns < t->max_connections ? mr__alloc(1, sizeof *c) : NULL;
    conn_id id;

    if (!c) {
        mr__listener_close(fd);
        return;
    }
    if (uv_tcp_init(t->loop, &c->uv) < 0) {
        mr__listener_close(fd);
        mr__free(c);
        return;
    }
    mr__listener_tune(fd, &keepalive);
    c->tcp = t;
    c->next = t->all;
    c->link = &t->all;
    if (c->next) {
        c->next->link = &c->next;
    }
    t->all = c;
    t->n_conns++;
    if (uv_tcp_open(&c->uv, fd) < 0) {
        mr__listener_close(fd);
        release(c);
        return;
    }
    t->accepting = c;
    id = t->handler.accepted(t->handler.user, peer, local);
    t->accepting = NULL;
    if (id == 0 && !c->is_closing) {
        release(c); /* nobody waits for its FIN: it is one of too many */
    } else if (c->id == 0 && !c->is_closing) {
        add_id(c, id);
    }
    update_reading(c);
}

static bool is_shortage(int error)
{
    return error == -EMFILE || error == -ENFILE || error == -ENOBUFS || error == -ENOMEM;
}

/* Ends one waiting connection. False: none waits, or the listener rests now. Without a descriptor
 * the kernel says so before it looks whether anybody waits. */
static bool shed(struct tcp *t)
{
    int rc = mr__listener_shed(t->listener, &t->reserve);

    if (rc == 0 && mr__log_limit(&t->short_limit, uv_now(t->loop), 1, 1)) {
        MR_LOG(t->log, MR_LOG_WARN, "tcp", "a connection was ended: no descriptor left",
               LOG_UINT("connections", t->n_conns));
    }
    if (rc < 0 && rc != -EAGAIN) {
        rest(t);
    }
    return rc == 0;
}

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
    struct tcp *t = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN && !t->is_stopping; i++) {
        struct mr_addr peer, local;
        int fd = mr__listener_accept(t->listener, &peer, &local);

        if (fd >= 0) {
            add_connection(t, fd, &peer, &local);
        } else if (fd == -EAGAIN) {
            return;
        } else if (is_shortage(fd) && !shed(t)) {
            return;
        }
    }
}

/* ---- life -------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct tcp *t = handle->data;

    t->handles--;
    free_tcp(t);
}

static int open_handles(struct tcp *t)
{
    int rc = uv_poll_init(t->loop, &t->poll, t->listener);

    if (rc < 0) {
        return rc;
    }
    t->poll.data = t->timer.data = t->first_stream.data = t;
    t->handles = 1;
    rc = uv_tcp_init(t->loop, &t->first_stream);
    if (rc < 0) {
        t->is_destroyed = 1;
        uv_close((uv_handle_t *)&t->poll, on_handle_closed);
        return rc;
    }
    uv_timer_init(t->loop, &t->timer);
    t->handles = 3;
    return 0;
}

int mr__tcp_open(struct tcp **out, const struct tcp_options *opts, struct mr_addr *bound)
{
    struct tcp *t = mr__alloc(1, sizeof *t);
    struct listener_options listen = {.local = opts->local,
                                      .backlog = LISTEN_BACKLOG,
                                      .rcvbuf_bytes = RECEIVE_BUFFER,
                                      .sndbuf_bytes = (uint32_t)opts->output_bytes};
    int rc;

    if (!t) {
        return -ENOMEM;
    }
    t->listener = mr__listener_open(&listen, bound);
    if (t->listener < 0) {
        rc = t->listener;
        goto free_memory;
    }
    t->loop = opts->loop;
    t->log = opts->log;
    t->handler = opts->handler;
    t->max_connections = opts->max_connections;
    t->output_bytes = opts->output_bytes;
    t->closing_end = &t->closing;
    t->reserve = mr__listener_reserve();
    rc = open_handles(t);
    if (rc < 0) {
        goto close_listener;
    }
    *out = t;
    return 0;

close_listener:
    mr__listener_close(t->listener);
    mr__listener_close(t->reserve);
    if (t->handles > 0) {
        return rc; /* the loop frees it with the handle */
    }
free_memory:
    mr__free(t);
    return rc;
}

int mr__tcp_start(struct tcp *t)
{
    t->is_started = 1;
    return uv_poll_start(&t->poll, UV_READABLE, on_acceptable);
}

size_t mr__tcp_count(const struct tcp *t)
{
    return t->n_conns;
}

static void close_listener(struct tcp *t)
{
    if (t->listener >= 0) {
        uv_poll_stop(&t->poll);
        mr__listener_close(t->listener);
        t->listener = -1;
    }
}

void mr__tcp_stop_accepting(struct tcp *t)
{
    t->is_stopping = 1;
    t->resume_at_ms = 0;
    close_listener(t);
}

void mr__tcp_stop(struct tcp *t)
{
    mr__tcp_stop_accepting(t);
    for (struct conn *c = t->all, *next; c; c = next) {
        conn_id id = c->id;

        next = c->next;
        if (id == 0) {
            continue;
        }
        begin_closing(c);
        t->handler.closed(t->handler.user, id, MR_CONN_SHUTDOWN);
    }
    mr__tcp_settle(t);
}

void mr__tcp_destroy(struct tcp *t)
{
    if (!t) {
        return;
    }
    mr__tcp_stop_accepting(t);
    mr__listener_close(t->reserve);
    for (struct conn *c = t->all; c; c = c->next) {
        release(c);
    }
    t->is_destroyed = 1;
    uv_close((uv_handle_t *)&t->poll, on_handle_closed);
    uv_close((uv_handle_t *)&t->timer, on_handle_closed);
    uv_close((uv_handle_t *)&t->first_stream, on_handle_closed);
}
