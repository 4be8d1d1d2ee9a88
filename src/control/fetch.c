/* SPDX-License-Identifier: MIT */
/*
 * See fetch.h. The loop and libcurl meet in three places: it says which sockets to watch
 * (on_socket) and when to look at its clock (on_timeout), and we tell it what happened
 * (act). Results are handed out in take_messages(), outside of every callback of
 * libcurl's, so that whoever gets one may start and cancel as he likes.
 *
 * A job is with the lookup first (look_up) and with libcurl once it has an address
 * (connect_to). What is refused at once waits in the same list for the next turn of the
 * loop.
 */
#include "control/fetch.h"

#include "base/alloc.h"
#include "service/lookup_answer.h"

#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    BODY_FIRST = 16 * 1024,
    JOINED_BYTES = MR_FETCH_HEAD_BYTES + 2 * MR_FETCH_HEADERS_MAX, /* with ", " between them */
};

/* A header of a response, as it came. */
struct line {
    size_t name, name_n, value, value_n; /* in job.head */
};

struct job {
    struct job *next, **link;
    struct fetch *owner;
    uint64_t id;
    void (*done)(void *arg, const struct host_http_response *r);
    void *arg;
    CURL *easy; /* NULL: refused, it only waits to be told */
    struct curl_slist *headers, *address;
    struct mr_lookup_request ask;
    bool is_looked_up; /* it is with the lookup */
    bool is_added;     /* it is with libcurl */
    bool is_second;    /* the other family is tried */
    uint8_t family;    /* of the address that it has */
    uint8_t flags;     /* of the lookup */
    uint64_t until_ns;
    char *host;
    size_t max_bytes;
    const char *code, *message; /* why it is refused or was given up; NULL: not by us */
    int rc;
    char *body;
    size_t body_n, body_cap;
    size_t head_n, head_seen; /* kept; read, also of what is not kept */
    size_t n_lines;
    bool is_head_over;
    struct line lines[MR_FETCH_HEADERS_MAX];
    char head[MR_FETCH_HEAD_BYTES];
    char error[CURL_ERROR_SIZE];
};

struct fetch {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t clock; /* libcurl's */
    uv_timer_t later; /* tells what is refused */
    uv_timer_t limit; /* of those that are looked up; libcurl has its own */
    struct mr_lookup *lookup;
    struct job *jobs;
    unsigned running;
    uint64_t last_id;
    unsigned handles;
    long connect_ms;
    char *roots;
    char agent[64];
};

/* A socket of libcurl's on our loop. */
struct watch {
    uv_poll_t poll;
    struct fetch *owner;
    curl_socket_t fd;
};

/* ---- a job ------------------------------------------------------------------------------- */

static void unlink_job(struct job *j)
{
    *j->link = j->next;
    if (j->next) {
        j->next->link = j->link;
    }
    j->link = NULL;
}

static void link_job(struct fetch *f, struct job *j)
{
    j->next = f->jobs;
    j->link = &f->jobs;
    if (f->jobs) {
        f->jobs->link = &j->next;
    }
    f->jobs = j;
}

/* Takes it away from the lookup and libcurl. */
static void detach(struct job *j)
{
    mr_lookup_cancel(&j->ask);
    if (j->easy) {
        if (j->is_added) {
            curl_multi_remove_handle(j->owner->multi, j->easy);
        }
        j->owner->running--;
        curl_easy_cleanup(j->easy);
        j->easy = NULL;
    }
}

static void free_job(struct job *j)
{
    curl_slist_free_all(j->headers);
    curl_slist_free_all(j->address);
    mr__free(j->host);
    mr__free(j->body);
    mr__free(j);
}

static void give_up(struct job *j, int rc, const char *code, const char *message)
{
    if (!j->code) {
        j->rc = rc;
        j->code = code;
        j->message = message;
    }
}

static bool is_same_name(const struct job *j, const struct line *a, const struct line *b)
{
    return a->name_n == b->name_n && memcmp(j->head + a->name, j->head + b->name, a->name_n) == 0;
}

/* Headers of one name become one, in the order of the first. */
static size_t join_headers(const struct job *j, struct host_header *out, char *text)
{
    size_t n = 0;

    for (size_t i = 0; i < j->n_lines; i++) {
        const struct line *a = &j->lines[i];
        size_t before = 0;
        struct str value;

        while (before < i && !is_same_name(j, a, &j->lines[before])) {
            before++;
        }
        if (before < i) {
            continue;
        }
        value = (struct str){text, a->value_n};
        memcpy(text, j->head + a->value, a->value_n);
        for (size_t k = i + 1; k < j->n_lines; k++) {
            const struct line *b = &j->lines[k];
            if (is_same_name(j, a, b)) {
                memcpy(text + value.n, ", ", 2);
                memcpy(text + value.n + 2, j->head + b->value, b->value_n);
                value.n += 2 + b->value_n;
            }
        }
        text += value.n;
        out[n++] = (struct host_header){.name = {j->head + a->name, a->name_n}, .value = value};
    }
    return n;
}

/* libcurl's words may quote what a server sent. */
static void make_one_line(char *text)
{
    for (char *at = text; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            *at = ' ';
        }
    }
}

static void explain(struct host_http_response *r, struct job *j, CURLcode rc)
{
    switch (rc) {
    case CURLE_OPERATION_TIMEDOUT:
        r->rc = -ETIMEDOUT;
        r->code = "timeout";
        break;
    case CURLE_COULDNT_CONNECT:
        r->rc = -ECONNREFUSED;
        r->code = "refused";
        break;
    case CURLE_COULDNT_RESOLVE_HOST:
        r->rc = -ENXIO;
        r->code = "resolve";
        break;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
        r->rc = -EPROTO;
        r->code = "tls";
        break;
    default:
        r->rc = rc == CURLE_OUT_OF_MEMORY ? -ENOMEM : -EIO;
        r->code = "failed";
        break;
    }
    make_one_line(j->error);
    r->message = j->error[0] ? j->error : curl_easy_strerror(rc);
}

/* Tells the result of a job that is in no list any more, and frees it. */
static void finish(struct job *j, CURLcode rc)
{
    struct host_header headers[MR_FETCH_HEADERS_MAX];
    char joined[JOINED_BYTES];
    struct host_http_response r = {.rc = j->rc, .code = j->code, .message = j->message};
    long status = 0;

    if (!j->code && rc != CURLE_OK) {
        explain(&r, j, rc);
    } else if (!j->code) {
        curl_easy_getinfo(j->easy, CURLINFO_RESPONSE_CODE, &status);
        r.status = (int)status;
        r.headers = headers;
        r.n_headers = join_headers(j, headers, joined);
        r.body = (struct str){j->body ? j->body : "", j->body_n};
    }
    detach(j);
    j->done(j->arg, &r);
    free_job(j);
}

/* ---- what libcurl hands us --------------------------------------------------------------- */

static bool grow_body(struct job *j, size_t n)
{
    size_t cap = j->body_cap ? j->body_cap : BODY_FIRST;
    char *body;

    while (cap < n) {
        cap *= 2;
    }
    cap = cap < j->max_bytes ? cap : j->max_bytes;
    if (j->body_cap >= n) {
        return true;
    }
    body = mr__realloc(j->body, cap, 1);
    if (!body) {
        return false;
    }
    j->body = body;
    j->body_cap = cap;
    return true;
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    struct job *j = user;
    size_t n = size * count;

    if (n > j->max_bytes - j->body_n) {
        give_up(j, -EFBIG, "too-large", "the response is larger than max_bytes");
        return 0;
    }
    if (n > 0 && !grow_body(j, j->body_n + n)) {
        give_up(j, -ENOMEM, "failed", "out of memory");
        return 0;
    }
    if (n > 0) {
        memcpy(j->body + j->body_n, data, n);
    }
    j->body_n += n;
    return n;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Keeps "Name: value"; what is none is left out, as browsers do. False: one too many. */
static bool keep_header(struct job *j, const char *data, size_t n)
{
    const char *colon = memchr(data, ':', n);
    size_t name_n = colon ? (size_t)(colon - data) : 0;
    const char *value = data + name_n + 1, *end = data + n;
    struct line *l = &j->lines[j->n_lines];

    if (name_n == 0 || is_blank(data[0])) {
        return true;
    }
    if (j->n_lines == MR_FETCH_HEADERS_MAX) {
        return false;
    }
    while (value < end && is_blank(*value)) {
        value++;
    }
    while (end > value && is_blank(end[-1])) {
        end--;
    }
    *l = (struct line){.name = j->head_n,
                       .name_n = name_n,
                       .value = j->head_n + name_n,
                       .value_n = (size_t)(end - value)};
    for (size_t i = 0; i < name_n; i++) {
        char c = data[i];
        j->head[l->name + i] = (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    }
    memcpy(j->head + l->value, value, l->value_n);
    j->head_n += name_n + l->value_n;
    j->n_lines++;
    return true;
}

/*
 * One line of a head. A status line begins a head and forgets what an interim response
 * (100, 103) said; what follows the empty line and is no status line is a trailer, which
 * nobody asked for. All of them count, so that none of them can be endless.
 */
static size_t on_header(char *data, size_t size, size_t count, void *user)
{
    struct job *j = user;
    size_t n = size * count;

    if (n > MR_FETCH_HEAD_BYTES - j->head_seen) {
        give_up(j, -EFBIG, "too-large", "the response's headers are larger than 16 KiB");
        return 0;
    }
    j->head_seen += n;
    if (n >= 5 && memcmp(data, "HTTP/", 5) == 0) {
        j->is_head_over = false;
        j->n_lines = 0;
        j->head_n = 0;
    } else if (n == 0 || data[0] == '\r' || data[0] == '\n') {
        j->is_head_over = true;
    } else if (!j->is_head_over && !keep_header(j, data, n)) {
        give_up(j, -EFBIG, "too-large", "the response has more than 100 headers");
        return 0;
    }
    return n;
}

/* ---- the loop ---------------------------------------------------------------------------- */

static void look_up(struct job *j, int family);

/* A name may have addresses of both families and a server of one; nothing was sent yet. */
static bool try_other_family(struct job *j, CURLcode rc)
{
    struct mr_addr literal;

    if (rc != CURLE_COULDNT_CONNECT || j->code || j->is_second ||
        mr__lookup_literal(j->host, strlen(j->host), 0, &literal)) {
        return false;
    }
    curl_multi_remove_handle(j->owner->multi, j->easy);
    j->is_added = false;
    j->is_second = true;
    look_up(j, j->family == 4 ? 6 : 4);
    return true;
}

/* Jobs that libcurl is through with. */
static void take_messages(struct fetch *f)
{
    CURLMsg *msg;
    int left;

    while ((msg = curl_multi_info_read(f->multi, &left)) != NULL) {
        CURLcode rc = msg->data.result;
        char *private = NULL;
        struct job *j;

        if (msg->msg != CURLMSG_DONE) {
            continue;
        }
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &private);
        j = (struct job *)(void *)private;
        if (!try_other_family(j, rc)) {
            unlink_job(j);
            finish(j, rc);
        }
    }
}

static void act(struct fetch *f, curl_socket_t fd, int events)
{
    int running;

    curl_multi_socket_action(f->multi, fd, events, &running);
    take_messages(f);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct watch *w = poll->data;
    int flags = status < 0 ? CURL_CSELECT_ERR : 0;

    flags |= events & UV_READABLE ? CURL_CSELECT_IN : 0;
    flags |= events & UV_WRITABLE ? CURL_CSELECT_OUT : 0;
    act(w->owner, w->fd, flags); /* w may be gone from here on */
}

static void on_watch_closed(uv_handle_t *handle)
{
    mr__free(handle->data);
}

static void on_later(uv_timer_t *timer);

/* Saying so would make libcurl give up the whole multi handle; one request is enough. */
static void give_up_soon(struct fetch *f, CURL *easy)
{
    char *private = NULL;

    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &private);
    if (private) {
        give_up((struct job *)(void *)private, -ENOMEM, "failed", "out of memory");
        uv_timer_start(&f->later, on_later, 0, 0);
    }
}

static struct watch *watch_open(struct fetch *f, CURL *easy, curl_socket_t fd)
{
    struct watch *w = mr__alloc(1, sizeof *w);

    if (w && uv_poll_init_socket(f->loop, &w->poll, fd) == 0) {
        w->poll.data = w;
        w->owner = f;
        w->fd = fd;
        curl_multi_assign(f->multi, fd, w);
        return w;
    }
    mr__free(w);
    give_up_soon(f, easy);
    return NULL;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *socket)
{
    struct fetch *f = user;
    struct watch *w = socket;
    int events = what == CURL_POLL_IN    ? UV_READABLE
                 : what == CURL_POLL_OUT ? UV_WRITABLE
                                         : UV_READABLE | UV_WRITABLE;

    if (what == CURL_POLL_REMOVE) {
        if (w) {
            uv_poll_stop(&w->poll);
            uv_close((uv_handle_t *)&w->poll, on_watch_closed);
            curl_multi_assign(f->multi, fd, NULL);
        }
        return 0;
    }
    w = w ? w : watch_open(f, easy, fd);
    if (w && uv_poll_start(&w->poll, events, on_event) < 0) {
        give_up_soon(f, easy);
    }
    return 0;
}

static void on_clock(uv_timer_t *timer)
{
    act(timer->data, CURL_SOCKET_TIMEOUT, 0);
}

static int on_timeout(CURLM *multi, long timeout_ms, void *user)
{
    struct fetch *f = user;

    (void)multi;
    if (timeout_ms < 0) {
        uv_timer_stop(&f->clock);
    } else {
        /* Counted from the loop's idea of now, which may be old when a hook asks. */
        uv_update_time(f->loop);
        uv_timer_start(&f->clock, on_clock, (uint64_t)timeout_ms, 0);
    }
    return 0;
}

/* Tells those that were refused. Each may start or cancel others meanwhile. */
static void on_later(uv_timer_t *timer)
{
    struct fetch *f = timer->data;
    uint64_t last = f->last_id;
    struct job *j;

    do {
        for (j = f->jobs; j && (!j->code || j->id > last); j = j->next) {
        }
        if (j) {
            unlink_job(j);
            finish(j, CURLE_OK);
        }
    } while (j);
}

/* ---- the address ------------------------------------------------------------------------- */

static void on_limit(uv_timer_t *timer);

static void arm_limit(struct fetch *f)
{
    uint64_t first = UINT64_MAX, now = uv_hrtime();

    for (const struct job *j = f->jobs; j; j = j->next) {
        first = j->is_looked_up && j->until_ns < first ? j->until_ns : first;
    }
    if (first == UINT64_MAX) {
        uv_timer_stop(&f->limit);
        return;
    }
    uv_update_time(f->loop);
    uv_timer_start(&f->limit, on_limit, first <= now ? 0 : (first - now) / 1000000 + 1, 0);
}

static void on_limit(uv_timer_t *timer)
{
    struct fetch *f = timer->data;
    uint64_t now = uv_hrtime(), last = f->last_id;
    struct job *j;

    do {
        for (j = f->jobs; j && (!j->is_looked_up || j->until_ns > now || j->id > last);
             j = j->next) {
        }
        if (j) {
            snprintf(j->error, sizeof j->error, "%s: no address within the timeout", j->host);
            give_up(j, -ETIMEDOUT, "timeout", j->error);
            unlink_job(j);
            finish(j, CURLE_OK);
        }
    } while (j);
    arm_limit(f);
}

/* Whatever the url says, libcurl connects there: no name and no thread of its own. TLS and the
 * header Host still go by the url. */
static bool connect_to(struct job *j, const struct mr_addr *a)
{
    char ip[MR_ADDR_TEXT_MAX], text[MR_ADDR_TEXT_MAX + 8];
    struct mr_addr unscoped = *a;
    uint64_t now = uv_hrtime();
    long ms = j->until_ns > now ? (long)((j->until_ns - now) / 1000000) : 0;
    CURLcode rc;

    unscoped.scope_id = 0;
    mr_addr_format_ip(&unscoped, ip, sizeof ip);
    snprintf(text, sizeof text, a->family == 6 ? "::[%s]:" : "::%s:", ip);
    curl_slist_free_all(j->address);
    j->address = curl_slist_append(NULL, text);
    j->family = a->family;
    ms = ms > 0 ? ms : 1; /* 0 would be none at all */
    rc = curl_easy_setopt(j->easy, CURLOPT_CONNECT_TO, j->address);
    rc = rc ? rc : curl_easy_setopt(j->easy, CURLOPT_ADDRESS_SCOPE, (long)a->scope_id);
    rc = rc ? rc : curl_easy_setopt(j->easy, CURLOPT_TIMEOUT_MS, ms);
    rc = rc ? rc
            : curl_easy_setopt(j->easy, CURLOPT_CONNECTTIMEOUT_MS,
                               ms < j->owner->connect_ms ? ms : j->owner->connect_ms);
    j->is_added = j->address && !rc && curl_multi_add_handle(j->owner->multi, j->easy) == CURLM_OK;
    return j->is_added;
}

static void on_address(struct mr_lookup_request *ask, const struct mr_lookup_answer *answer)
{
    struct job *j = ask->user;
    struct fetch *f = j->owner;
    CURLcode rc = CURLE_OK;

    j->is_looked_up = false;
    arm_limit(f);
    if (answer->rc == 0 && connect_to(j, &answer->addr)) {
        return;
    }
    if (answer->rc == 0) {
        give_up(j, -ENOMEM, "failed", "out of memory");
    } else if (j->is_second) {
        rc = CURLE_COULDNT_CONNECT; /* what the first one came to, in its words */
    } else {
        snprintf(j->error, sizeof j->error, "%s", answer->message);
        give_up(j, answer->rc, "resolve", j->error);
    }
    unlink_job(j);
    finish(j, rc);
}

static void look_up(struct job *j, int family)
{
    j->ask.done = on_address;
    j->ask.user = j;
    j->is_looked_up = true;
    mr_lookup_start(j->owner->lookup, &j->ask, j->host, strlen(j->host), family, MR_LOOKUP_HTTP,
                    j->flags);
    arm_limit(j->owner);
}

/* As libcurl reads the url; the host of an IPv6 literal without its brackets. False: no memory. */
static bool read_host(struct job *j, const char *url)
{
    CURLU *u = curl_url();
    char *host = NULL, *zone = NULL;
    CURLUcode rc = u ? curl_url_set(u, CURLUPART_URL, url, 0) : CURLUE_OUT_OF_MEMORY;
    size_t n;

    rc = rc ? rc : curl_url_get(u, CURLUPART_HOST, &host, CURLU_URLDECODE);
    if (!rc && curl_url_get(u, CURLUPART_ZONEID, &zone, 0) == CURLUE_OUT_OF_MEMORY) {
        rc = CURLUE_OUT_OF_MEMORY;
    }
    if (!rc) {
        bool is_bracketed = host[0] == '[';
        n = strlen(host) + (zone ? strlen(zone) : 0) + 2;
        j->host = mr__alloc(n, 1);
        if (j->host) {
            snprintf(j->host, n, "%.*s%s%s", (int)strcspn(host + is_bracketed, "]"),
                     host + is_bracketed, zone ? "%" : "", zone ? zone : "");
        }
    } else if (rc != CURLUE_OUT_OF_MEMORY) {
        give_up(j, -EINVAL, "failed", curl_url_strerror(rc));
    }
    curl_free(zone);
    curl_free(host);
    curl_url_cleanup(u);
    return j->host || j->code;
}

/* ---- starting ---------------------------------------------------------------------------- */

static bool is_header_clean(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.s[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return true;
}

static bool is_named(const struct host_header *h, const char *name)
{
    return h->name.n == strlen(name) && strncasecmp(h->name.s, name, h->name.n) == 0;
}

static bool append(struct job *j, const char *text)
{
    struct curl_slist *list = curl_slist_append(j->headers, text);

    j->headers = list ? list : j->headers;
    return list != NULL;
}

/* libcurl's own form: "Name: value", "Name;" for an empty value, "Name:" to send none. */
static bool append_header(struct job *j, const struct host_header *h)
{
    size_t n = h->name.n + h->value.n + 3;
    char *text = mr__alloc(n, 1);
    bool ok;

    if (!text) {
        return false;
    }
    if (h->value.n == 0) {
        snprintf(text, n, "%.*s;", (int)h->name.n, h->name.s);
    } else {
        snprintf(text, n, "%.*s: %.*s", (int)h->name.n, h->name.s, (int)h->value.n, h->value.s);
    }
    ok = append(j, text);
    mr__free(text);
    return ok;
}

static bool set_headers(struct job *j, const struct host_http_request *req)
{
    bool has_type = false, ok = append(j, "Expect:");

    for (size_t i = 0; ok && i < req->n_headers; i++) {
        const struct host_header *h = &req->headers[i];
        if (h->name.n == 0 || memchr(h->name.s, ':', h->name.n) || !is_header_clean(h->name) ||
            !is_header_clean(h->value)) {
            give_up(j, -EINVAL, "failed", "a header has a byte that none may have");
            return true;
        }
        has_type |= is_named(h, "content-type");
        ok = append_header(j, h);
    }
    ok = ok && (has_type || append(j, "Content-Type:"));
    return ok && curl_easy_setopt(j->easy, CURLOPT_HTTPHEADER, j->headers) == CURLE_OK;
}

/* Method and body. */
static bool set_method(CURL *easy, const struct host_http_request *req)
{
    char method[32];
    bool is_head = req->method.n == 4 && memcmp(req->method.s, "HEAD", 4) == 0;
    bool has_body = req->body.n > 0 || (req->method.n > 0 && req->method.s[0] == 'P');
    CURLcode rc = CURLE_OK;

    snprintf(method, sizeof method, "%.*s", (int)req->method.n, req->method.s);
    if (is_head) {
        return curl_easy_setopt(easy, CURLOPT_NOBODY, 1L) == CURLE_OK;
    }
    if (has_body) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body.n);
        rc = curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, req->body.n ? req->body.s : "");
    }
    return rc == CURLE_OK && curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method) == CURLE_OK;
}

static bool set_limits(struct job *j)
{
    CURLcode rc = CURLE_OK;

#define SET(option, value) rc = rc == CURLE_OK ? curl_easy_setopt(j->easy, option, value) : rc
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_FORBID_REUSE, 1L);
    SET(CURLOPT_FRESH_CONNECT, 1L);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    if (j->owner->roots) {
        SET(CURLOPT_CAINFO, j->owner->roots);
        SET(CURLOPT_CAPATH, NULL);
    }
    SET(CURLOPT_USERAGENT, j->owner->agent);
    SET(CURLOPT_ERRORBUFFER, j->error);
    SET(CURLOPT_PRIVATE, j);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, j);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, j);
#undef SET
    return rc == CURLE_OK;
}

static bool set_up(struct job *j, const struct host_http_request *req)
{
    char *url = mr__strndup(req->url.s, req->url.n);
    bool ok = url && curl_easy_setopt(j->easy, CURLOPT_URL, url) == CURLE_OK && read_host(j, url);

    mr__free(url);
    return ok && set_limits(j) && set_method(j->easy, req) && set_headers(j, req);
}

static void refuse(struct job *j, int rc, const char *code, const char *message)
{
    give_up(j, rc, code, message);
    uv_timer_start(&j->owner->later, on_later, 0, 0);
}

uint64_t mr__fetch_start(struct fetch *f, const struct host_http_request *req,
                         void (*done)(void *arg, const struct host_http_response *r), void *arg)
{
    struct job *j = mr__alloc(1, sizeof *j);

    if (!j) {
        return 0;
    }
    j->owner = f;
    j->done = done;
    j->arg = arg;
    j->max_bytes = req->max_bytes;
    j->flags = (uint8_t)req->lookup;
    j->until_ns = uv_hrtime() + req->timeout_ns;
    if (f->running >= MR_FETCH_MOST) {
        refuse(j, -EBUSY, "busy", "32 requests are under way");
    } else if (memchr(req->url.s, 0, req->url.n)) {
        refuse(j, -EINVAL, "failed", "the url has a NUL byte");
    } else {
        j->easy = curl_easy_init();
        if (!j->easy || !set_up(j, req)) {
            curl_easy_cleanup(j->easy);
            j->easy = NULL;
            free_job(j);
            return 0;
        }
        if (j->code) {
            curl_easy_cleanup(j->easy);
            j->easy = NULL;
            uv_timer_start(&f->later, on_later, 0, 0);
        } else {
            f->running++;
        }
    }
    j->id = ++f->last_id;
    link_job(f, j);
    if (j->easy) {
        look_up(j, 0);
    }
    return j->id;
}

void mr__fetch_cancel(struct fetch *f, uint64_t job)
{
    for (struct job *j = f->jobs; j; j = j->next) {
        if (j->id == job) {
            unlink_job(j);
            detach(j);
            free_job(j);
            arm_limit(f);
            return;
        }
    }
}

/* ---- life -------------------------------------------------------------------------------- */

static uv_once_t is_begun = UV_ONCE_INIT;
static CURLcode begun;

static void begin(void)
{
    begun = curl_global_init(CURL_GLOBAL_DEFAULT);
}

int mr__fetch_create(struct fetch **out, const struct fetch_options *opts)
{
    struct fetch *f = mr__alloc(1, sizeof *f);

    uv_once(&is_begun, begin);
    if (!f || begun != CURLE_OK) {
        goto free_memory;
    }
    f->loop = opts->loop;
    f->lookup = opts->lookup;
    f->connect_ms = opts->connect_ms ? (long)opts->connect_ms : MR_FETCH_CONNECT_MS;
    snprintf(f->agent, sizeof f->agent, "moonrelay/%s", MR_VERSION_STRING);
    if (opts->roots) {
        f->roots = mr__strndup(opts->roots, strlen(opts->roots));
        if (!f->roots) {
            goto free_memory;
        }
    }
    f->multi = curl_multi_init();
    if (!f->multi) {
        goto free_roots;
    }
    curl_multi_setopt(f->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(f->multi, CURLMOPT_SOCKETDATA, f);
    curl_multi_setopt(f->multi, CURLMOPT_TIMERFUNCTION, on_timeout);
    curl_multi_setopt(f->multi, CURLMOPT_TIMERDATA, f);
    uv_timer_init(f->loop, &f->clock);
    uv_timer_init(f->loop, &f->later);
    uv_timer_init(f->loop, &f->limit);
    f->clock.data = f->later.data = f->limit.data = f;
    f->handles = 3;
    *out = f;
    return 0;

free_roots:
    mr__free(f->roots);
free_memory:
    mr__free(f);
    return -ENOMEM;
}

static void on_closed(uv_handle_t *handle)
{
    struct fetch *f = handle->data;

    if (--f->handles == 0) {
        mr__free(f->roots);
        mr__free(f);
    }
}

void mr__fetch_destroy(struct fetch *f)
{
    if (!f) {
        return;
    }
    while (f->jobs) {
        mr__fetch_cancel(f, f->jobs->id);
    }
    curl_multi_cleanup(f->multi);
    uv_close((uv_handle_t *)&f->clock, on_closed);
    uv_close((uv_handle_t *)&f->later, on_closed);
    uv_close((uv_handle_t *)&f->limit, on_closed);
}
