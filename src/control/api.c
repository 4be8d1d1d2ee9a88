/* SPDX-License-Identifier: MIT */
/*
 * See api.h. A request is read whole (collect), handed to its endpoint, and answered at
 * once or later; meanwhile its connection is suspended. An exchange is freed by the
 * library's on_completed(), which comes for suspended ones as well when they are resumed.
 */
#include "control/api.h"

#include "base/alloc.h"
#include "control/request.h"
#include "control/view.h"
#include "io/listener.h"
#include "io/unix.h"
#include "service/blocks.h"
#include "service/drain.h"
#include "service/players.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
    LISTEN_BACKLOG = 128,
    CONNECTION_MEMORY = 16 * 1024,
    ACCEPTS_PER_TURN = 4,
    BACK_OFF_MS = 100, /* the listener rests when the machine is out of descriptors */
};

/* One request; what others see of it is a struct api_later. */
struct api_later {
    struct api_later *next, **link;
    struct api *api;
    struct MHD_Connection *to;
    char *body;
    size_t n, cap;
    bool is_too_large, is_dispatched, is_suspended;
    unsigned status; /* of the answer; 0: none yet */
    char *answer;    /* for free() */
};

struct api {
    uv_poll_t poll;     /* of libmicrohttpd's epoll descriptor */
    uv_poll_t incoming; /* of the listener */
    uv_timer_t timer;
    struct api_options opts;
    char *path;
    struct unix_file file;
    struct MHD_Daemon *mhd;
    int listener;
    uint64_t resume_at_ms; /* 0: the listener does not rest */
    struct api_later *exchanges;
    unsigned handles;
    bool is_hidden;
};

static void on_timer(uv_timer_t *timer);

/* ---- answers ----------------------------------------------------------------------------- */

void mr__api_answer(struct api_later *later, unsigned status, json_t *body)
{
    static const char short_of_memory[] = "{\"error\": \"out of memory\", \"code\": \"no-memory\"}";

    later->answer = body ? json_dumps(body, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(body);
    later->status = later->answer ? status : MHD_HTTP_SERVICE_UNAVAILABLE;
    if (!later->answer) {
        later->answer = strdup(short_of_memory); /* when this fails the connection ends */
    }
    if (later->is_suspended) {
        later->is_suspended = false;
        MHD_resume_connection(later->to);
        uv_timer_start(&later->api->timer, on_timer, 0, 0);
    }
}

void mr__api_refuse(struct api_later *later, unsigned status, const char *code, const char *text)
{
    json_t *body = json_object();

    if (body) {
        json_object_set_new(body, "error", mr__view_text((struct str){text, strlen(text)}));
        json_object_set_new(body, "code", json_string(code));
    }
    mr__api_answer(later, status, body);
}

static enum MHD_Result respond(struct api_later *x)
{
    struct MHD_Response *r;
    enum MHD_Result rc;

    if (!x->answer) {
        return MHD_NO;
    }
    r = MHD_create_response_from_buffer(strlen(x->answer), x->answer, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        return MHD_NO;
    }
    x->answer = NULL;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    if (x->status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, POST");
    }
    rc = MHD_queue_response(x->to, x->status, r);
    MHD_destroy_response(r);
    return rc;
}

/* ---- endpoints --------------------------------------------------------------------------- */

static void show_status(struct api_later *x)
{
    mr__api_answer(x, MHD_HTTP_OK, x->api->opts.deeds.status(x->api->opts.deeds.user));
}

static void show_policies(struct api_later *x)
{
    mr__api_answer(x, MHD_HTTP_OK, x->api->opts.deeds.policies(x->api->opts.deeds.user));
}

/* The page that was asked for; false: it was refused. */
static bool read_page(struct api_later *x, size_t *limit, struct str *after)
{
    const char *l = MHD_lookup_connection_value(x->to, MHD_GET_ARGUMENT_KIND, "limit");
    const char *a = MHD_lookup_connection_value(x->to, MHD_GET_ARGUMENT_KIND, "after");
    char *end = NULL;
    unsigned long n = l ? strtoul(l, &end, 10) : MR_VIEW_PAGE;

    if (l && (*l < '0' || *l > '9' || *end || n < 1 || n > MR_VIEW_PAGE)) {
        mr__api_refuse(x, MHD_HTTP_BAD_REQUEST, "bad-request",
                       "limit: expected a number from 1 to 500");
        return false;
    }
    *limit = n;
    *after = (struct str){a ? a : "", a ? strlen(a) : 0};
    return true;
}

static void show_page(struct api_later *x,
                      json_t *(*view)(const struct service *s, size_t limit, struct str after))
{
    size_t limit;
    struct str after;

    if (read_page(x, &limit, &after)) {
        mr__api_answer(x, MHD_HTTP_OK, view(x->api->opts.service, limit, after));
    }
}

static void show_sessions(struct api_later *x)
{
    show_page(x, mr__view_sessions);
}

static void show_relays(struct api_later *x)
{
    show_page(x, mr__view_relays);
}

static void show_blocks(struct api_later *x)
{
    show_page(x, mr__view_blocks);
}

/* What a deed of the service returned. */
static void answer_rc(struct api_later *x, int rc, const char *what)
{
    if (rc == 0) {
        mr__api_answer(x, MHD_HTTP_OK, json_pack("{s:b}", "ok", 1));
    } else if (rc == -ENOENT) {
        mr__api_refuse(x, MHD_HTTP_NOT_FOUND, "not-found", what);
    } else {
        mr__api_refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, "failed", mr_strerror(rc));
    }
}

static void kick(struct api_later *x, const struct request *r)
{
    struct hook_session s;
    int rc = mr__players_session(x->api->opts.service, r->id, &s)
                 ? mr__players_kick(x->api->opts.service, s.id, r->reason)
                 : -ENOENT;

    answer_rc(x, rc, "no such session");
}

static void close_relay(struct api_later *x, const struct request *r)
{
    answer_rc(x, mr__players_close(x->api->opts.service, r->id, r->reason), "no such relay");
}

/* False: it was refused. */
static bool read_what(struct api_later *x, const struct request *r, struct block_what *what,
                      struct hook_pair pairs[MR_TAGS_MAX])
{
    char why[MR_CIDR_WHY_MAX];

    if (!mr__block_parse(what, r->what.s, r->what.n, pairs, why)) {
        mr__api_refuse(x, MHD_HTTP_BAD_REQUEST, "bad-request", why);
        return false;
    }
    return true;
}

static void block(struct api_later *x, const struct request *r)
{
    struct hook_pair pairs[MR_TAGS_MAX];
    struct block_what what;
    unsigned ended = 0;
    int rc;

    if (!read_what(x, r, &what, pairs)) {
        return;
    }
    rc = mr__blocks_add(x->api->opts.service, &what, r->seconds, r->reason,
                        (struct str){"control", 7}, &ended);
    if (rc == 0) {
        mr__api_answer(x, MHD_HTTP_OK, json_pack("{s:i}", "ended", (int)ended));
    } else {
        answer_rc(x, rc, "");
    }
}

static void unblock(struct api_later *x, const struct request *r)
{
    struct hook_pair pairs[MR_TAGS_MAX];
    struct block_what what;
    unsigned removed;

    if (!read_what(x, r, &what, pairs)) {
        return;
    }
    removed = mr__blocks_remove(x->api->opts.service, &what);
    if (removed > 0) {
        mr__api_answer(x, MHD_HTTP_OK, json_pack("{s:i}", "removed", (int)removed));
    } else {
        answer_rc(x, -ENOENT, "no such block");
    }
}

static void reload(struct api_later *x, const struct request *r)
{
    x->api->opts.deeds.reload(x->api->opts.deeds.user, r->check ? MR_API_CHECK : MR_API_RELOAD, x);
}

static void roll_back(struct api_later *x, const struct request *r)
{
    (void)r;
    x->api->opts.deeds.reload(x->api->opts.deeds.user, MR_API_ROLLBACK, x);
}

static void answer_drain(struct api_later *x)
{
    struct drain_view v;

    mr__drain_look(x->api->opts.service, uv_hrtime(), &v);
    mr__api_answer(
        x, MHD_HTTP_OK,
        json_pack("{s:o}", "seconds_left", v.is_on ? json_real(v.seconds_left) : json_null()));
}

static void drain(struct api_later *x, const struct request *r)
{
    struct service *s = x->api->opts.service;
    uint64_t for_ns = r->seconds > MR_DRAIN_MAX_S ? (uint64_t)MR_DRAIN_MAX_S * 1000000000
                                                  : (uint64_t)(r->seconds * 1e9);
    int rc;

    if (r->cancel && r->seconds > 0) {
        mr__api_refuse(x, MHD_HTTP_BAD_REQUEST, "bad-request", "seconds or cancel, not both");
        return;
    }
    rc = r->cancel ? mr__service_drain_cancel(s, "control", uv_hrtime())
                   : mr__service_drain(s, r->seconds > 0 ? for_ns : MR_DRAIN_PRESET, "control",
                                       uv_hrtime());
    if (rc == 0) {
        answer_drain(x);
    } else if (rc == -ENOENT) {
        mr__api_refuse(x, MHD_HTTP_NOT_FOUND, "not-found", "there is no drain");
    } else {
        mr__api_refuse(x, MHD_HTTP_CONFLICT, "busy", "it is stopping already");
    }
}

static void call(struct api_later *x, const struct request *r)
{
    x->api->opts.deeds.call(x->api->opts.deeds.user, r->policy, r->verb, r->args, r->n_args, x);
}

/* Either shows or does. */
static const struct endpoint {
    const char *path;
    void (*show)(struct api_later *x);
    enum request_kind kind;
    void (*act)(struct api_later *x, const struct request *r);
} endpoints[] = {
    {"/v1/status", show_status, 0, NULL},
    {"/v1/sessions", show_sessions, 0, NULL},
    {"/v1/relays", show_relays, 0, NULL},
    {"/v1/policies", show_policies, 0, NULL},
    {"/v1/blocks", show_blocks, 0, NULL},
    {"/v1/kick", NULL, MR_REQUEST_KICK, kick},
    {"/v1/close", NULL, MR_REQUEST_CLOSE, close_relay},
    {"/v1/block", NULL, MR_REQUEST_BLOCK, block},
    {"/v1/unblock", NULL, MR_REQUEST_UNBLOCK, unblock},
    {"/v1/reload", NULL, MR_REQUEST_RELOAD, reload},
    {"/v1/rollback", NULL, MR_REQUEST_ROLLBACK, roll_back},
    {"/v1/drain", NULL, MR_REQUEST_DRAIN, drain},
    {"/v1/call", NULL, MR_REQUEST_CALL, call},
};

static const struct endpoint *find_endpoint(const char *path)
{
    for (size_t i = 0; i < sizeof endpoints / sizeof endpoints[0]; i++) {
        if (strcmp(endpoints[i].path, path) == 0) {
            return &endpoints[i];
        }
    }
    return NULL;
}

static void act(struct api_later *x, const struct endpoint *e)
{
    char why[MR_REQUEST_WHY_MAX];
    struct request r;
    int rc = mr__request_parse(&r, e->kind, x->body, x->n, why);

    if (rc == -ENOMEM) {
        mr__api_answer(x, 0, NULL);
    } else if (rc < 0) {
        mr__api_refuse(x, MHD_HTTP_BAD_REQUEST, "bad-request", why);
    } else {
        e->act(x, &r);
        mr__request_deinit(&r);
    }
}

/* Answers x, or somebody will. */
static void dispatch(struct api_later *x, const char *path, const char *method)
{
    const struct endpoint *e = find_endpoint(path);
    bool is_get = strcmp(method, "GET") == 0;

    if (!e) {
        mr__api_refuse(x, MHD_HTTP_NOT_FOUND, "not-found", "no such path");
    } else if (!is_get && strcmp(method, "POST") != 0) {
        mr__api_refuse(x, MHD_HTTP_METHOD_NOT_ALLOWED, "bad-method", "GET or POST");
    } else if (is_get != (e->show != NULL)) {
        mr__api_refuse(x, MHD_HTTP_METHOD_NOT_ALLOWED, "bad-method",
                       is_get ? "this path takes POST" : "this path takes GET");
    } else if (x->is_too_large) {
        mr__api_refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, "too-large",
                       "the body is larger than 64 KiB");
    } else if (e->show) {
        e->show(x);
    } else {
        act(x, e);
    }
}

/* ---- requests ---------------------------------------------------------------------------- */

static struct api_later *begin_exchange(struct api *a, struct MHD_Connection *to)
{
    struct api_later *x = mr__alloc(1, sizeof *x);

    if (x) {
        x->api = a;
        x->to = to;
        x->next = a->exchanges;
        x->link = &a->exchanges;
        if (x->next) {
            x->next->link = &x->next;
        }
        a->exchanges = x;
    }
    return x;
}

static void end_exchange(struct api_later *x)
{
    *x->link = x->next;
    if (x->next) {
        x->next->link = x->link;
    }
    mr__free(x->body);
    free(x->answer);
    mr__free(x);
}

/* False: out of memory. */
static bool collect(struct api_later *x, const char *data, size_t n)
{
    if (x->n + n > MR_REQUEST_BYTES_MAX) {
        x->is_too_large = true;
        return true;
    }
    if (x->n + n > x->cap) {
        size_t cap = x->n + n < 1024 ? 1024 : (x->n + n) * 2;
        char *body = mr__realloc(x->body, cap, 1);
        if (!body) {
            return false;
        }
        x->body = body;
        x->cap = cap;
    }
    memcpy(x->body + x->n, data, n);
    x->n += n;
    return true;
}

/* Called with the head, with each part of the body, when all of it is there, and once more
 * when a suspended connection goes on. */
static enum MHD_Result on_request(void *user, struct MHD_Connection *to, const char *path,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_n, void **state)
{
    struct api_later *x = *state;

    (void)version;
    if (!x) {
        *state = begin_exchange(user, to);
        return *state ? MHD_YES : MHD_NO;
    }
    if (*body_n > 0) {
        bool is_kept = collect(x, body, *body_n);
        *body_n = 0;
        return is_kept ? MHD_YES : MHD_NO;
    }
    if (!x->is_dispatched) {
        x->is_dispatched = true;
        dispatch(x, path, method);
        if (x->status == 0) {
            x->is_suspended = true;
            MHD_suspend_connection(to);
            return MHD_YES;
        }
    }
    return x->status ? respond(x) : MHD_NO;
}

static void on_completed(void *user, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    (void)user;
    (void)connection;
    (void)why;
    if (*state) {
        end_exchange(*state);
        *state = NULL;
    }
}

/* ---- the loop ---------------------------------------------------------------------------- */

/* Twice, since what one run accepts or resumes is looked at in the next. */
static void drive(struct api *a)
{
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    uint64_t now_ms = uv_now(a->opts.loop), rest_ms = UINT64_MAX;

    MHD_run(a->mhd);
    MHD_run(a->mhd);
    if (MHD_get_timeout(a->mhd, &wait_ms) == MHD_YES) {
        rest_ms = wait_ms;
    }
    if (a->resume_at_ms > 0) {
        uint64_t ms = a->resume_at_ms > now_ms ? a->resume_at_ms - now_ms : 0;
        rest_ms = ms < rest_ms ? ms : rest_ms;
    }
    if (rest_ms == UINT64_MAX) {
        uv_timer_stop(&a->timer);
    } else {
        uv_timer_start(&a->timer, on_timer, rest_ms, 0);
    }
}

static bool accept_one(struct api *a)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = mr__unix_accept(a->listener);

    if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM) {
        uv_poll_stop(&a->incoming);
        a->resume_at_ms = uv_now(a->opts.loop) + BACK_OFF_MS;
        return false;
    }
    if (fd < 0) {
        return fd != -EAGAIN;
    }
    (void)MHD_add_connection(a->mhd, fd, (struct sockaddr *)&sa, sizeof sa);
    return true;
}

static void on_incoming(uv_poll_t *poll, int status, int events)
{
    struct api *a = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN && accept_one(a); i++) {
        drive(a);
    }
    drive(a); /* sets the timer for a listener that rests */
}

static void on_timer(uv_timer_t *timer)
{
    struct api *a = timer->data;

    if (a->resume_at_ms > 0 && a->resume_at_ms <= uv_now(a->opts.loop)) {
        bool is_back = uv_poll_start(&a->incoming, UV_READABLE, on_incoming) == 0;
        a->resume_at_ms = is_back ? 0 : uv_now(a->opts.loop) + BACK_OFF_MS;
    }
    drive(a);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    drive(poll->data);
}

/* ---- life -------------------------------------------------------------------------------- */

static int start_mhd(struct api *a)
{
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME;

    errno = 0;
    a->mhd = MHD_start_daemon(flags, 0, NULL, NULL, on_request, a, MHD_OPTION_CONNECTION_LIMIT,
                              (unsigned)MR_API_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                              (unsigned)MR_API_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                              (size_t)CONNECTION_MEMORY, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
                              a, MHD_OPTION_END);
    return a->mhd ? 0 : errno ? -errno : -ENOMEM;
}

static void on_closed(uv_handle_t *handle)
{
    struct api *a = handle->data;

    if (--a->handles == 0) {
        mr__free(a->path);
        mr__free(a);
    }
}

static int open_handles(struct api *a)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(a->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    int rc = info ? uv_poll_init(a->opts.loop, &a->poll, info->epoll_fd) : -ENOTSUP;

    if (rc < 0) {
        return rc;
    }
    a->poll.data = a->incoming.data = a->timer.data = a;
    a->handles = 1;
    rc = uv_poll_init(a->opts.loop, &a->incoming, a->listener);
    if (rc < 0) {
        uv_close((uv_handle_t *)&a->poll, on_closed);
        return rc;
    }
    uv_timer_init(a->opts.loop, &a->timer);
    a->handles = 3;
    return 0;
}

int mr__api_open(struct api **out, const struct api_options *opts)
{
    struct api *a = mr__alloc(1, sizeof *a);
    int rc = -ENOMEM;

    if (!a) {
        return -ENOMEM;
    }
    a->opts = *opts;
    a->path = mr__strndup(opts->path, strlen(opts->path));
    if (!a->path) {
        goto free_memory;
    }
    a->listener = mr__unix_open(a->path, LISTEN_BACKLOG, &a->file);
    if (a->listener < 0) {
        rc = a->listener;
        goto free_memory;
    }
    rc = start_mhd(a);
    if (rc < 0) {
        goto close_listener;
    }
    rc = open_handles(a);
    if (rc < 0) {
        goto stop_mhd;
    }
    *out = a;
    return 0;

stop_mhd:
    MHD_stop_daemon(a->mhd);
close_listener:
    mr__listener_close(a->listener);
    mr__unix_remove(a->path, &a->file);
    if (a->handles > 0) {
        return rc; /* the loop frees it with the handle */
    }
free_memory:
    mr__free(a->path);
    mr__free(a);
    return rc;
}

int mr__api_start(struct api *a)
{
    int rc = uv_poll_start(&a->poll, UV_READABLE, on_readable);

    return rc < 0 ? rc : uv_poll_start(&a->incoming, UV_READABLE, on_incoming);
}

void mr__api_hide(struct api *a)
{
    if (a && !a->is_hidden) {
        a->is_hidden = true;
        mr__unix_remove(a->path, &a->file);
    }
}

void mr__api_destroy(struct api *a)
{
    if (!a) {
        return;
    }
    uv_poll_stop(&a->poll);
    uv_poll_stop(&a->incoming);
    for (struct api_later *x = a->exchanges; x; x = x->next) {
        if (x->is_suspended) {
            x->is_suspended = false;
            MHD_resume_connection(x->to); /* the library ends none that is suspended */
        }
    }
    MHD_stop_daemon(a->mhd);
    uv_timer_stop(&a->timer);
    mr__listener_close(a->listener);
    mr__api_hide(a);
    uv_close((uv_handle_t *)&a->poll, on_closed);
    uv_close((uv_handle_t *)&a->incoming, on_closed);
    uv_close((uv_handle_t *)&a->timer, on_closed);
}
