/* SPDX-License-Identifier: MIT */
/*
 * See http.h. The loop and libmicrohttpd meet in drive(): when its epoll descriptor is
 * readable or its timeout is over, it runs.
 *
 * We accept, not the library: it takes new connections before it looks at those that have
 * ended, so that a scraper's last ones count against it; it stays deaf once its limit was
 * reached; and it spins when no descriptor is left.
 */
#include "control/http.h"

#include "base/alloc.h"
#include "io/listener.h"
#include "io/socket.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/socket.h>

enum {
    LISTEN_BACKLOG = 64,
    CONNECTION_MEMORY = 16 * 1024,
    ACCEPTS_PER_TURN = 16,
    LOOK_MS = 1000,    /* between looks for ends that the library has missed */
    BACK_OFF_MS = 100, /* the listener rests when the machine is out of descriptors */
};

struct client {
    struct client *next, **link;
    uint64_t until_ms;  /* the list is ordered by it, oldest first */
    struct mr_addr net; /* the customer's */
    int fd;
    bool is_cut, is_asking; /* asking: the head of a request is here, its answer is not done */
};

struct http {
    uv_poll_t poll;     /* of libmicrohttpd's epoll descriptor */
    uv_poll_t incoming; /* of the listener */
    uv_timer_t timer;
    struct http_options opts;
    struct MHD_Daemon *mhd;
    struct MHD_Response *page; /* /metrics, during one MHD_run(); else NULL */
    int listener, reserve;
    uint64_t resume_at_ms; /* 0: the listener does not rest */
    struct client *oldest, **newest;
    unsigned handles;
};

/* ---- answers ----------------------------------------------------------------------------- */

static void add_headers(struct MHD_Response *r, const char *type)
{
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
}

static enum MHD_Result respond_line(struct MHD_Connection *to, unsigned status, const char *line)
{
    char text[1024];
    size_t n = strlen(line);
    struct MHD_Response *r;
    enum MHD_Result rc;

    if (n > sizeof text - 1) {
        n = sizeof text - 1;
    }
    memcpy(text, line, n);
    text[n++] = '\n';
    r = MHD_create_response_from_buffer(n, text, MHD_RESPMEM_MUST_COPY);
    if (!r) {
        return MHD_NO;
    }
    add_headers(r, "text/plain; charset=utf-8");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    rc = MHD_queue_response(to, status, r);
    MHD_destroy_response(r);
    return rc;
}

/* A page costs what a thousand commands cost, and a connection may ask for many without
 * reading: all that is answered in one round gets the same one. */
static enum MHD_Result respond_metrics(struct http *h, struct MHD_Connection *to)
{
    if (!h->page) {
        size_t n = 0;
        char *text = h->opts.metrics(h->opts.user, &n);

        if (!text) {
            return respond_line(to, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
        }
        h->page = MHD_create_response_from_buffer_with_free_callback(n, text, mr__free);
        if (!h->page) {
            mr__free(text);
            return MHD_NO;
        }
        add_headers(h->page, "text/plain; version=0.0.4");
    }
    return MHD_queue_response(to, MHD_HTTP_OK, h->page);
}

static void forget_page(struct http *h)
{
    if (h->page) {
        MHD_destroy_response(h->page); /* connections that still send it keep it alive */
    }
    h->page = NULL;
}

static enum MHD_Result answer(struct http *h, struct MHD_Connection *to, const char *path)
{
    const char *what;

    if (strcmp(path, "/metrics") == 0) {
        return respond_metrics(h, to);
    }
    if (strcmp(path, "/livez") == 0) {
        return respond_line(to, MHD_HTTP_OK, "alive");
    }
    if (strcmp(path, "/readyz") == 0 || strcmp(path, "/healthz") == 0) {
        what = h->opts.not_ready(h->opts.user);
        return what ? respond_line(to, MHD_HTTP_SERVICE_UNAVAILABLE, what)
                    : respond_line(to, MHD_HTTP_OK, "ready");
    }
    return respond_line(to, MHD_HTTP_NOT_FOUND, "not found: /metrics, /livez and /readyz are");
}

static struct client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

static void mark_asking(struct MHD_Connection *connection)
{
    struct client *c = client_of(connection);

    if (c) {
        c->is_asking = true;
    }
}

/*
 * Called with the head, then with each part of a body, then once more. An answer at the
 * first call makes libmicrohttpd close the connection, which is right for a method that
 * brings a body and wrong for others: they may go on with their next request.
 */
static enum MHD_Result on_request(void *user, struct MHD_Connection *to, const char *path,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_n, void **state)
{
    struct http *h = user;

    (void)version;
    (void)body;
    mark_asking(to);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        return respond_line(to, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD");
    }
    if (!*state) {
        *state = h; /* any mark will do: the head was seen */
        return MHD_YES;
    }
    if (*body_n > 0) {
        *body_n = 0;
        return MHD_YES;
    }
    return answer(h, to, path);
}

/* ---- connections ------------------------------------------------------------------------- */

static void unlink_client(struct http *h, struct client *c)
{
    *c->link = c->next;
    if (c->next) {
        c->next->link = c->link;
    } else {
        h->newest = c->link;
    }
}

/* Gives it the time of one request, as the last to be over it. */
static void append_client(struct http *h, struct client *c)
{
    c->until_ms = uv_now(h->opts.loop) + MR_HTTP_TIMEOUT_S * 1000;
    c->next = NULL;
    c->link = h->newest;
    *h->newest = c;
    h->newest = &c->next;
}

static void on_connection(void *user, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http *h = user;
    const union MHD_ConnectionInfo *info;
    struct client *c;

    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*state) {
            unlink_client(h, *state);
            mr__free(*state);
            *state = NULL;
        }
        return;
    }
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    c = mr__alloc(1, sizeof *c);
    if (!c || !info) {
        mr__free(c); /* the timeout of silence still holds for this one */
        return;
    }
    c->fd = info->connect_fd;
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (info && info->client_addr) {
        struct mr_addr peer;

        mr__socket_addr_read(&peer, (const union socket_addr *)info->client_addr);
        c->net = mr_addr_net(&peer);
    }
    append_client(h, c);
    *state = c;
}

static void on_completed(void *user, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct http *h = user;
    struct client *c = client_of(connection);

    *state = NULL; /* of the request; the next one on this connection begins anew */
    if (c && !c->is_cut && why == MHD_REQUEST_TERMINATED_COMPLETED_OK) {
        c->is_asking = false;
        unlink_client(h, c);
        append_client(h, c);
    }
}

static void cut(struct client *c)
{
    c->is_cut = true;
    (void)shutdown(c->fd, SHUT_RDWR);
}

/*
 * Ends what is over time, and what the library takes for alive although it is over: a FIN
 * that came with the last bytes of half a request has no event of its own. The library
 * sees the end of its stream and cleans up. Returns when to look again.
 */
static uint64_t cut_overdue(struct http *h, uint64_t now_ms)
{
    uint64_t wait_ms = UINT64_MAX;

    for (struct client *c = h->oldest; c; c = c->next) {
        if (c->is_cut) {
            continue;
        }
        if (c->until_ms <= now_ms || (!c->is_asking && mr__listener_is_ended(c->fd))) {
            cut(c);
        } else {
            wait_ms = LOOK_MS;
        }
    }
    return wait_ms;
}

/* Whoever has his share would drive out everybody else. libmicrohttpd counts by whole addresses. */
static bool has_share(const struct http *h, const struct mr_addr *peer)
{
    struct mr_addr net = mr_addr_net(peer);
    unsigned n = 0;

    for (const struct client *c = h->oldest; c; c = c->next) {
        n += mr_addr_equal(&c->net, &net);
    }
    return n >= MR_HTTP_CONNECTIONS_PER_ADDRESS;
}

/*
 * When all places are taken the longest there goes, first of those that have not asked: an asker's
 * request comes with him, so whoever came before him and said nothing is no loss.
 */
static bool make_room(struct http *h)
{
    struct client *first = NULL;
    unsigned n = 0;

    for (struct client *c = h->oldest; c; c = c->next) {
        n++;
        if (!c->is_cut && (!first || (first->is_asking && !c->is_asking))) {
            first = c;
        }
    }
    if (n < MR_HTTP_CONNECTIONS || !first) {
        return false;
    }
    cut(first);
    return true;
}

static void on_timer(uv_timer_t *timer);

static void drive(struct http *h)
{
    MHD_UNSIGNED_LONG_LONG theirs = 0;
    uint64_t now_ms = uv_now(h->opts.loop);
    uint64_t wait_ms = cut_overdue(h, now_ms);

    MHD_run(h->mhd);
    forget_page(h);
    if (MHD_get_timeout(h->mhd, &theirs) == MHD_YES && theirs < wait_ms) {
        wait_ms = theirs;
    }
    if (h->resume_at_ms > 0) {
        uint64_t rest_ms = h->resume_at_ms > now_ms ? h->resume_at_ms - now_ms : 0;
        wait_ms = rest_ms < wait_ms ? rest_ms : wait_ms;
    }
    if (wait_ms == UINT64_MAX) {
        uv_timer_stop(&h->timer);
    } else {
        uv_timer_start(&h->timer, on_timer, wait_ms, 0);
    }
}

/* One new connection. False when there is none or none can be taken now. */
static bool accept_one(struct http *h)
{
    struct mr_addr peer, local;
    union socket_addr sa;
    socklen_t len;
    int fd = mr__listener_accept(h->listener, &peer, &local);

    if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM) {
        /* Without a descriptor the kernel says so before it looks whether anybody waits. */
        int rc = mr__listener_shed(h->listener, &h->reserve);
        if (rc < 0 && rc != -EAGAIN) {
            uv_poll_stop(&h->incoming);
            h->resume_at_ms = uv_now(h->opts.loop) + BACK_OFF_MS;
        }
        return rc == 0;
    }
    if (fd < 0) {
        return fd != -EAGAIN;
    }
    if (has_share(h, &peer)) {
        mr__listener_close(fd);
        return true;
    }
    if (make_room(h)) {
        drive(h);
    }
    len = mr__socket_addr_write(&sa, &peer, peer.family);
    (void)MHD_add_connection(h->mhd, fd, &sa.any, len); /* closes it where it says no */
    return true;
}

static void on_incoming(uv_poll_t *poll, int status, int events)
{
    struct http *h = poll->data;

    (void)status;
    (void)events;
    /* Who has ended makes room first, also those who ended before we have met them. */
    drive(h);
    for (int i = 0; i < ACCEPTS_PER_TURN && accept_one(h); i++) {
        drive(h);
    }
    drive(h); /* sets the timer for a listener that rests */
}

static void on_timer(uv_timer_t *timer)
{
    struct http *h = timer->data;

    if (h->resume_at_ms > 0 && h->resume_at_ms <= uv_now(h->opts.loop)) {
        bool is_back = uv_poll_start(&h->incoming, UV_READABLE, on_incoming) == 0;
        h->resume_at_ms = is_back ? 0 : uv_now(h->opts.loop) + BACK_OFF_MS;
    }
    drive(h);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    drive(poll->data);
}

/* ---- life -------------------------------------------------------------------------------- */

static int start_mhd(struct http *h)
{
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET; /* and no thread: we run it */

    errno = 0;
    h->mhd = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, h, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)MR_HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)MR_HTTP_TIMEOUT_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_END);
    return h->mhd ? 0 : errno ? -errno : -ENOMEM;
}

static void on_closed(uv_handle_t *handle)
{
    struct http *h = handle->data;

    if (--h->handles == 0) {
        mr__free(h);
    }
}

static int open_handles(struct http *h)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    int rc = info ? uv_poll_init(h->opts.loop, &h->poll, info->epoll_fd) : -ENOTSUP;

    if (rc < 0) {
        return rc;
    }
    h->poll.data = h->incoming.data = h->timer.data = h;
    h->handles = 1;
    rc = uv_poll_init(h->opts.loop, &h->incoming, h->listener);
    if (rc < 0) {
        uv_close((uv_handle_t *)&h->poll, on_closed);
        return rc;
    }
    uv_timer_init(h->opts.loop, &h->timer);
    h->handles = 3;
    return 0;
}

int mr__http_open(struct http **out, const struct http_options *opts, struct mr_addr *bound)
{
    struct http *h = mr__alloc(1, sizeof *h);
    struct listener_options listen = {.local = opts->local, .backlog = LISTEN_BACKLOG};
    int rc;

    if (!h) {
        return -ENOMEM;
    }
    h->opts = *opts;
    h->newest = &h->oldest;
    h->listener = mr__listener_open(&listen, bound);
    if (h->listener < 0) {
        rc = h->listener;
        goto free_memory;
    }
    h->reserve = mr__listener_reserve();
    rc = start_mhd(h);
    if (rc < 0) {
        goto close_listener;
    }
    rc = open_handles(h);
    if (rc < 0) {
        goto stop_mhd;
    }
    *out = h;
    return 0;

stop_mhd:
    MHD_stop_daemon(h->mhd);
close_listener:
    mr__listener_close(h->listener);
    mr__listener_close(h->reserve);
    if (h->handles > 0) {
        return rc; /* the loop frees it with the handle */
    }
free_memory:
    mr__free(h);
    return rc;
}

int mr__http_start(struct http *h)
{
    int rc = uv_poll_start(&h->poll, UV_READABLE, on_readable);

    return rc < 0 ? rc : uv_poll_start(&h->incoming, UV_READABLE, on_incoming);
}

void mr__http_destroy(struct http *h)
{
    if (h) {
        uv_poll_stop(&h->poll);
        uv_poll_stop(&h->incoming);
        uv_timer_stop(&h->timer);
        MHD_stop_daemon(h->mhd);
        mr__listener_close(h->listener);
        mr__listener_close(h->reserve);
        uv_close((uv_handle_t *)&h->poll, on_closed);
        uv_close((uv_handle_t *)&h->incoming, on_closed);
        uv_close((uv_handle_t *)&h->timer, on_closed);
    }
}
