/* SPDX-License-Identifier: MIT */
/*
 * HTTP asked, against servers on the same loop that answer well, badly, slowly and without
 * end. To add a behaviour, add a path to answer().
 */
#include "control/fetch.h"

#include "base/alloc.h"
#include "loop.h"
#include "names.h"
#include "test.h"
#include "tls.h"

#include <microhttpd.h>

enum { RESULTS = 64 };

/* ---- a server ---------------------------------------------------------------------------- */

struct conn {
    uv_tcp_t tcp;
    struct fixture *f;
    struct conn *next;
    size_t n;
    char request[8192];
    uv_write_t write;
    uv_buf_t endless; /* sent again and again */
};

struct result {
    unsigned calls;
    int rc, status;
    char code[16], message[256];
    size_t n_headers;
    char headers[1024]; /* "name: value\n" each */
    size_t body_n;
    char body[4096];
};

struct fixture {
    uv_loop_t loop;
    struct names names;
    struct mr_lookup *lookup;
    struct fetch *fetch;
    uv_tcp_t listener, listener6;
    unsigned port, port6, accepted, open;
    struct conn *conns;
    char seen[8192]; /* the last request */
    struct result results[RESULTS];
    struct fixture *again; /* of a done that starts another */
};

static void on_conn_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;

    c->f->open--;
    for (struct conn **at = &c->f->conns; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    free(c);
}

static void conn_close(struct conn *c)
{
    if (!uv_is_closing((uv_handle_t *)&c->tcp)) {
        uv_close((uv_handle_t *)&c->tcp, on_conn_closed);
    }
}

static void say(struct conn *c, const char *text, size_t n)
{
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)text, (unsigned)n);

    CHECK_EQ(uv_try_write((uv_stream_t *)&c->tcp, &buf, 1), (int)n);
}

#define SAY(c, text) say((c), (text), sizeof(text) - 1)

enum { ENDLESS_AT_ONCE = 64 }; /* a megabyte in few turns, also where each of them is slow */

static void say_more(uv_write_t *write, int status)
{
    struct conn *c = write->data;

    if (status < 0) {
        conn_close(c);
    } else {
        uv_buf_t many[ENDLESS_AT_ONCE];

        for (int i = 0; i < ENDLESS_AT_ONCE; i++) {
            many[i] = c->endless;
        }
        uv_write(&c->write, (uv_stream_t *)&c->tcp, many, ENDLESS_AT_ONCE, say_more);
    }
}

static void say_for_ever(struct conn *c, const char *text)
{
    c->endless = uv_buf_init((char *)(uintptr_t)text, (unsigned)strlen(text));
    c->write.data = c;
    say_more(&c->write, 0);
}

static void reset(struct conn *c)
{
    uv_tcp_close_reset(&c->tcp, on_conn_closed);
}

static bool asks(const struct conn *c, const char *path)
{
    const char *at = strchr(c->request, ' ');

    return at && strncmp(at + 1, path, strlen(path)) == 0 && at[1 + strlen(path)] == ' ';
}

static void answer_oddly(struct conn *c)
{
    if (asks(c, "/many-headers")) {
        SAY(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n");
        for (int i = 0; i < MR_FETCH_HEADERS_MAX; i++) {
            SAY(c, "A: b\r\n");
        }
        SAY(c, "\r\n");
    } else if (asks(c, "/interim")) {
        SAY(c, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nB: c\r\n"
               "Transfer-Encoding: chunked\r\nTrailer: T\r\n\r\n2\r\nhi\r\n0\r\nT: late\r\n\r\n");
    } else if (asks(c, "/interim-for-ever")) {
        say_for_ever(c, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
    } else if (asks(c, "/headers-for-ever")) {
        SAY(c, "HTTP/1.1 200 OK\r\n");
        say_for_ever(c, "A: 12345678901234567890123456789012345678901234567890\r\n");
    } else if (asks(c, "/header-for-ever")) {
        SAY(c, "HTTP/1.1 200 OK\r\nA: ");
        say_for_ever(c, "12345678901234567890123456789012345678901234567890");
    } else if (asks(c, "/body-for-ever")) {
        SAY(c, "HTTP/1.1 200 OK\r\n\r\n");
        say_for_ever(c, "12345678901234567890123456789012345678901234567890");
    } else if (asks(c, "/no-http")) {
        SAY(c, "just some words\r\n");
        conn_close(c);
    } else if (asks(c, "/cut")) {
        SAY(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        conn_close(c);
    } else if (asks(c, "/reset")) {
        reset(c);
    } else if (asks(c, "/gone")) {
        conn_close(c);
    } else if (asks(c, "/stops")) {
        SAY(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    } /* "/hang": not a word */
}

static void answer(struct conn *c)
{
    if (asks(c, "/plain")) {
        SAY(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhe\0lo");
    } else if (asks(c, "/twice")) {
        SAY(c, "HTTP/1.1 404 Not Found\r\nSet-Thing: a\r\nX:\r\nset-THING:  b \r\nContent-Length: "
               "0\r\n\r\n");
    } else if (asks(c, "/redirect")) {
        SAY(c, "HTTP/1.1 302 Found\r\nLocation: /plain\r\nContent-Length: 0\r\n\r\n");
    } else if (asks(c, "/cookie")) {
        SAY(c, "HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n");
    } else if (asks(c, "/ten")) {
        SAY(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1234567890");
    } else if (asks(c, "/ten-unsaid")) {
        SAY(c, "HTTP/1.1 200 OK\r\n\r\n1234567890");
        conn_close(c);
    } else if (asks(c, "/head")) {
        SAY(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    } else {
        answer_oddly(c);
    }
}

static void on_alloc(uv_handle_t *handle, size_t n, uv_buf_t *buf)
{
    struct conn *c = handle->data;

    (void)n;
    *buf = uv_buf_init(c->request + c->n, (unsigned)(sizeof c->request - 1 - c->n));
}

/* A request is there when its head is, and as much of a body as the head says. */
static bool is_whole(const struct conn *c)
{
    const char *end = strstr(c->request, "\r\n\r\n");
    const char *length = strcasestr(c->request, "Content-Length: ");
    size_t body = length ? strtoul(length + 16, NULL, 10) : 0;

    return end && c->n >= (size_t)(end + 4 - c->request) + body;
}

static void on_request(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = stream->data;

    (void)buf;
    if (n < 0) {
        conn_close(c);
        return;
    }
    c->n += (size_t)n;
    c->request[c->n] = 0;
    if (is_whole(c)) {
        memcpy(c->f->seen, c->request, sizeof c->request);
        answer(c);
        c->n = 0;
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct fixture *f = listener->data;
    struct conn *c = calloc(1, sizeof *c);

    (void)status;
    REQUIRE(c != NULL);
    c->f = f;
    c->tcp.data = c;
    c->next = f->conns;
    f->conns = c;
    f->accepted++;
    f->open++;
    uv_tcp_init(&f->loop, &c->tcp);
    CHECK_EQ(uv_accept(listener, (uv_stream_t *)&c->tcp), 0);
    uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_request);
}

static void serve(struct fixture *f)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int len = sizeof sa;

    uv_tcp_init(&f->loop, &f->listener);
    f->listener.data = f;
    REQUIRE_EQ(uv_tcp_bind(&f->listener, (struct sockaddr *)&sa, 0), 0);
    REQUIRE_EQ(uv_listen((uv_stream_t *)&f->listener, 128, on_connection), 0);
    REQUIRE_EQ(uv_tcp_getsockname(&f->listener, (struct sockaddr *)&sa, &len), 0);
    f->port = ntohs(sa.sin_port);
}

static void serve6(struct fixture *f)
{
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int len = sizeof sa;

    uv_tcp_init(&f->loop, &f->listener6);
    f->listener6.data = f;
    REQUIRE_EQ(uv_tcp_bind(&f->listener6, (struct sockaddr *)&sa, 0), 0);
    REQUIRE_EQ(uv_listen((uv_stream_t *)&f->listener6, 128, on_connection), 0);
    REQUIRE_EQ(uv_tcp_getsockname(&f->listener6, (struct sockaddr *)&sa, &len), 0);
    f->port6 = ntohs(sa.sin6_port);
}

/* ---- asking ------------------------------------------------------------------------------ */

static void set_up_with(struct fixture *f, const char *roots)
{
    /* A busy machine may take long to read the system's roots in a handshake. */
    struct fetch_options opts = {.loop = &f->loop, .roots = roots, .connect_ms = 60000};
    struct mr_lookup_options lookup = {.size = sizeof(struct mr_lookup_options), .loop = &f->loop};

    memset(f, 0, sizeof *f);
    names_init(&f->names);
    REQUIRE_EQ(uv_loop_init(&f->loop), 0);
    REQUIRE_EQ(mr_lookup_create(&f->lookup, &lookup), 0);
    mr_lookup_set_resolver(f->lookup, &f->names.resolver);
    opts.lookup = f->lookup;
    REQUIRE_EQ(mr__fetch_create(&f->fetch, &opts), 0);
    serve(f);
}

static void set_up(struct fixture *f)
{
    set_up_with(f, NULL);
}

static void tear_down(struct fixture *f)
{
    mr__fetch_destroy(f->fetch);
    mr_lookup_destroy(f->lookup);
    uv_close((uv_handle_t *)&f->listener, NULL);
    if (f->port6) {
        uv_close((uv_handle_t *)&f->listener6, NULL);
    }
    for (struct conn *c = f->conns; c; c = c->next) {
        conn_close(c);
    }
    loop_end(&f->loop);
    names_deinit(&f->names);
}

static void copy(char *to, size_t cap, const char *from, size_t n)
{
    n = n < cap - 1 ? n : cap - 1;
    memcpy(to, from, n);
    to[n] = 0;
}

static void on_done(void *arg, const struct host_http_response *r)
{
    struct result *out = arg;
    size_t at = 0;

    out->calls++;
    out->rc = r->rc;
    out->status = r->status;
    if (r->rc < 0) {
        copy(out->code, sizeof out->code, r->code, strlen(r->code));
        copy(out->message, sizeof out->message, r->message, strlen(r->message));
        CHECK(strchr(r->message, '\n') == NULL);
        return;
    }
    out->n_headers = r->n_headers;
    for (size_t i = 0; i < r->n_headers; i++) {
        at += (size_t)snprintf(out->headers + at, sizeof out->headers - at, "%.*s: %.*s\n",
                               (int)r->headers[i].name.n, r->headers[i].name.s,
                               (int)r->headers[i].value.n, r->headers[i].value.s);
    }
    out->body_n = r->body.n;
    copy(out->body, sizeof out->body, r->body.s, r->body.n);
}

static struct str text(const char *s)
{
    return (struct str){s, strlen(s)};
}

static struct host_http_request request(const struct fixture *f, const char *path)
{
    static char url[128];

    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", f->port, path);
    return (struct host_http_request){
        .method = text("GET"), .url = text(url), .timeout_ns = 60000000000u, .max_bytes = 1 << 20};
}

static uint64_t start(struct fixture *f, const struct host_http_request *req, struct result *out)
{
    uint64_t id;

    *out = (struct result){.calls = 0};
    id = mr__fetch_start(f->fetch, req, on_done, out);
    REQUIRE_NE(id, 0);
    CHECK_EQ(out->calls, 0); /* never from inside */
    return id;
}

/* Asks and waits; the result is in f->results[0]. */
static struct result *ask(struct fixture *f, const struct host_http_request *req)
{
    struct result *r = &f->results[0];

    start(f, req, r);
    REQUIRE_IN_TURNS(&f->loop, r->calls > 0);
    CHECK_EQ(r->calls, 1);
    return r;
}

static struct result *get(struct fixture *f, const char *path)
{
    struct host_http_request req = request(f, path);

    return ask(f, &req);
}

static void check_fails(struct fixture *f, const char *path, const char *code)
{
    struct result *r = get(f, path);

    if (r->rc >= 0) {
        FAIL("%s answers %d", path, r->status);
    }
    CHECK_STR(r->code, code);
    CHECK(r->message[0] != 0);
}

/* ---- tests ------------------------------------------------------------------------------- */

TEST(a_response_has_status_headers_and_any_bytes)
{
    struct fixture f;
    struct result *r;

    set_up(&f);
    r = get(&f, "/plain");
    CHECK_EQ(r->rc, 0);
    CHECK_EQ(r->status, 200);
    CHECK_EQ(r->body_n, 5);
    CHECK_MEM(r->body, r->body_n, "he\0lo", 5);
    CHECK_STR(r->headers, "content-type: text/plain\ncontent-length: 5\n");
    CHECK(strstr(f.seen, "User-Agent: moonrelay/" MR_VERSION_STRING "\r\n") != NULL);
    CHECK(strstr(f.seen, "Accept-Encoding") == NULL);
    tear_down(&f);
}

TEST(headers_of_one_name_are_joined_and_their_names_are_lower_case)
{
    struct fixture f;
    struct result *r;

    set_up(&f);
    r = get(&f, "/twice");
    CHECK_EQ(r->status, 404);
    CHECK_STR(r->headers, "set-thing: a, b\nx: \ncontent-length: 0\n");
    tear_down(&f);
}

TEST(interim_responses_and_trailers_are_no_headers)
{
    struct fixture f;
    struct result *r;

    set_up(&f);
    r = get(&f, "/interim");
    CHECK_EQ(r->status, 200);
    CHECK_STR(r->headers, "b: c\ntransfer-encoding: chunked\ntrailer: T\n");
    CHECK_STR(r->body, "hi");
    tear_down(&f);
}

TEST(a_request_carries_method_headers_and_body_and_nothing_of_its_own)
{
    struct fixture f;
    struct host_header headers[] = {{text("X-Key"), text("v w")}, {text("Empty"), text("")}};
    struct host_http_request req;

    set_up(&f);
    req = request(&f, "/plain");
    req.method = text("PUT");
    req.headers = headers;
    req.n_headers = 2;
    req.body = (struct str){"a\0b", 3};
    CHECK_EQ(ask(&f, &req)->status, 200);
    CHECK(strncmp(f.seen, "PUT /plain HTTP/1.1\r\n", 21) == 0);
    CHECK(strstr(f.seen, "\r\nX-Key: v w\r\n") != NULL);
    CHECK(strstr(f.seen, "\r\nEmpty:\r\n") != NULL);
    CHECK(strstr(f.seen, "\r\nContent-Length: 3\r\n") != NULL);
    CHECK(strstr(f.seen, "Content-Type") == NULL);
    CHECK(strstr(f.seen, "Expect") == NULL);
    CHECK_MEM(strstr(f.seen, "\r\n\r\n") + 4, 3, "a\0b", 3);
    req.method = text("DELETE");
    req.body = (struct str){NULL, 0};
    CHECK_EQ(ask(&f, &req)->status, 200);
    CHECK(strncmp(f.seen, "DELETE /plain HTTP/1.1\r\n", 24) == 0);
    req.method = text("POST");
    CHECK_EQ(ask(&f, &req)->status, 200);
    CHECK(strstr(f.seen, "\r\nContent-Length: 0\r\n") != NULL);
    req = request(&f, "/head");
    req.method = text("HEAD");
    CHECK_EQ(ask(&f, &req)->status, 200);
    tear_down(&f);
}

TEST(a_redirect_is_an_answer_and_not_followed)
{
    struct fixture f;
    struct result *r;

    set_up(&f);
    r = get(&f, "/redirect");
    CHECK_EQ(r->status, 302);
    CHECK(strstr(r->headers, "location: /plain\n") != NULL);
    CHECK_EQ(f.accepted, 1);
    tear_down(&f);
}

TEST(no_cookie_is_kept_and_no_connection)
{
    struct fixture f;

    set_up(&f);
    get(&f, "/cookie");
    get(&f, "/plain");
    CHECK(strstr(f.seen, "Cookie") == NULL);
    CHECK_EQ(f.accepted, 2);
    REQUIRE_IN_TURNS(&f.loop, f.open == 0);
    tear_down(&f);
}

TEST(a_proxy_of_the_environment_is_not_asked)
{
    struct fixture f;

    setenv("http_proxy", "http://127.0.0.1:9", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:9", 1);
    set_up(&f);
    CHECK_EQ(get(&f, "/plain")->status, 200);
    tear_down(&f);
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
}

TEST(a_body_may_have_max_bytes_and_not_one_more)
{
    struct fixture f;
    struct host_http_request req;
    static const char *const paths[] = {"/ten", "/ten-unsaid"};

    set_up(&f);
    for (int i = 0; i < 2; i++) {
        req = request(&f, paths[i]);
        req.max_bytes = 10;
        CHECK_EQ(ask(&f, &req)->body_n, 10);
        req.max_bytes = 9;
        CHECK_STR(ask(&f, &req)->code, "too-large");
        CHECK_EQ(f.results[0].rc, -EFBIG);
    }
    check_fails(&f, "/body-for-ever", "too-large");
    tear_down(&f);
}

TEST(headers_without_end_are_given_up)
{
    struct fixture f;

    set_up(&f);
    check_fails(&f, "/headers-for-ever", "too-large");
    check_fails(&f, "/header-for-ever", "failed"); /* libcurl's own limit of a line */
    check_fails(&f, "/interim-for-ever", "too-large");
    check_fails(&f, "/many-headers", "too-large");
    tear_down(&f);
}

TEST(what_is_no_answer_is_an_error)
{
    struct fixture f;

    set_up(&f);
    check_fails(&f, "/no-http", "failed");
    check_fails(&f, "/cut", "failed");
    check_fails(&f, "/reset", "failed");
    check_fails(&f, "/gone", "failed");
    tear_down(&f);
}

TEST(a_server_that_hangs_costs_the_timeout_and_no_more)
{
    struct fixture f;
    static const char *const paths[] = {"/hang", "/stops"};

    set_up(&f);
    for (int i = 0; i < 2; i++) {
        struct host_http_request req = request(&f, paths[i]);
        req.timeout_ns = 50000000;
        CHECK_STR(ask(&f, &req)->code, "timeout");
        CHECK_EQ(f.results[0].rc, -ETIMEDOUT);
    }
    tear_down(&f);
}

TEST(nobody_listening_and_no_such_name_are_told_apart)
{
    struct fixture f;
    struct host_http_request req;
    char url[64];
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof sa;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* bound and not listening */

    set_up(&f);
    REQUIRE_EQ(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    REQUIRE_EQ(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
    req = request(&f, "/");
    snprintf(url, sizeof url, "http://127.0.0.1:%u/", ntohs(sa.sin_port));
    req.url = text(url);
    CHECK_STR(ask(&f, &req)->code, "refused");
    names_fail(&f.names, EAI_NONAME);
    req.url = text("http://name.with.a..hole/");
    CHECK_STR(ask(&f, &req)->code, "resolve");
    CHECK_EQ(f.results[0].rc, -ENOENT);
    CHECK(strncmp(f.results[0].message, "name.with.a..hole: ", 19) == 0);
    close(fd);
    tear_down(&f);
}

TEST(only_http_and_https_are_spoken_and_hostile_words_are_refused)
{
    struct fixture f;
    struct host_header header = {text("X"), text("a\r\nInjected: 1")};
    struct host_http_request req;

    set_up(&f);
    req = request(&f, "/plain");
    req.url = text("file:///etc/passwd");
    CHECK_STR(ask(&f, &req)->code, "failed");
    req.url = text("gopher://127.0.0.1/");
    CHECK_STR(ask(&f, &req)->code, "failed");
    req = request(&f, "/plain");
    req.headers = &header;
    req.n_headers = 1;
    CHECK_STR(ask(&f, &req)->code, "failed");
    header = (struct host_header){{"X\0Y", 3}, text("a")};
    CHECK_STR(ask(&f, &req)->code, "failed");
    req = request(&f, "/plain");
    req.url = (struct str){"http://127.0.0.1\0.example/", 26};
    CHECK_STR(ask(&f, &req)->code, "failed");
    CHECK_EQ(f.accepted, 0);
    tear_down(&f);
}

TEST(thirty_two_are_under_way_at_once_and_the_next_is_told_busy)
{
    struct fixture f;
    struct host_http_request req;
    uint64_t ids[MR_FETCH_MOST];

    set_up(&f);
    req = request(&f, "/hang");
    for (int i = 0; i < MR_FETCH_MOST; i++) {
        ids[i] = start(&f, &req, &f.results[i]);
    }
    start(&f, &req, &f.results[MR_FETCH_MOST]);
    REQUIRE_IN_TURNS(&f.loop, f.results[MR_FETCH_MOST].calls == 1);
    CHECK_STR(f.results[MR_FETCH_MOST].code, "busy");
    CHECK_EQ(f.results[MR_FETCH_MOST].rc, -EBUSY);
    REQUIRE_IN_TURNS(&f.loop, f.accepted == MR_FETCH_MOST);
    mr__fetch_cancel(f.fetch, ids[5]);
    req = request(&f, "/plain");
    start(&f, &req, &f.results[40]);
    REQUIRE_IN_TURNS(&f.loop, f.results[40].calls == 1);
    CHECK_EQ(f.results[40].status, 200);
    for (int i = 0; i < MR_FETCH_MOST; i++) {
        CHECK_EQ(f.results[i].calls, 0);
    }
    tear_down(&f);
}

TEST(a_cancelled_request_says_nothing_whenever_it_is_cancelled)
{
    struct fixture f;
    struct host_http_request req;

    set_up(&f);
    for (int turns = 0; turns < 8; turns++) {
        uint64_t id;
        req = request(&f, "/hang");
        id = start(&f, &req, &f.results[0]);
        for (int i = 0; i < turns; i++) {
            uv_run(&f.loop, UV_RUN_NOWAIT);
        }
        mr__fetch_cancel(f.fetch, id);
        mr__fetch_cancel(f.fetch, id);
        CHECK_EQ(f.results[0].calls, 0);
    }
    req.url = text("ftp://x/");
    for (int i = 0; i <= MR_FETCH_MOST; i++) {
        req = request(&f, "/hang");
        start(&f, &req, &f.results[i]);
    }
    mr__fetch_cancel(f.fetch, start(&f, &req, &f.results[50])); /* one that is refused */
    REQUIRE_IN_TURNS(&f.loop, f.results[MR_FETCH_MOST].calls == 1);
    CHECK_EQ(f.results[50].calls, 0);
    tear_down(&f);
}

static void ask_again(void *arg, const struct host_http_response *r)
{
    struct fixture *f = arg;
    struct host_http_request req = request(f, "/plain");

    CHECK_EQ(r->status, 200);
    start(f, &req, &f->results[0]);
}

TEST(a_result_may_start_the_next_request)
{
    struct fixture f;
    struct host_http_request req;

    set_up(&f);
    req = request(&f, "/plain");
    REQUIRE_NE(mr__fetch_start(f.fetch, &req, ask_again, &f), 0);
    REQUIRE_IN_TURNS(&f.loop, f.results[0].calls == 1);
    CHECK_EQ(f.results[0].status, 200);
    tear_down(&f);
}

TEST(it_ends_with_requests_under_way_in_every_state)
{
    static const char *const paths[] = {"/hang", "/stops", "/body-for-ever", "/plain"};

    for (int turns = 0; turns < 6; turns++) {
        struct fixture f;
        set_up(&f);
        names_hang(&f.names);
        for (int i = 0; i < 4; i++) {
            struct host_http_request req = request(&f, paths[i]);
            start(&f, &req, &f.results[i]);
        }
        struct host_http_request req = request(&f, "/");
        req.url = text("http://a-name-that-is-looked-up.invalid/");
        start(&f, &req, &f.results[5]);
        req.url = text("ftp://refused/");
        start(&f, &req, &f.results[6]);
        for (int i = 0; i < turns; i++) {
            uv_run(&f.loop, UV_RUN_NOWAIT);
        }
        tear_down(&f);
    }
}

/* ---- the url's host ---------------------------------------------------------------------- */

static struct result *ask_at(struct fixture *f, const char *host, unsigned port)
{
    struct host_http_request req = request(f, "/");
    char url[128];

    snprintf(url, sizeof url, "http://%s:%u/plain", host, port);
    req.url = text(url);
    return ask(f, &req);
}

TEST(a_name_is_looked_up_once_and_by_nobody_but_the_lookup)
{
    struct fixture f;
    int threads;

    set_up(&f);
    threads = test_count_entries("/proc/self/task");
    names_answer(&f.names, "127.0.0.1", NULL);
    CHECK_EQ(ask_at(&f, "a.fleet", f.port)->status, 200);
    CHECK_STR(f.names.host, "a.fleet");
    CHECK_EQ(f.names.family, AF_UNSPEC);
    CHECK_EQ(names_calls(&f.names), 1);
    CHECK(strstr(f.seen, "\r\nHost: a.fleet:") != NULL);
    CHECK_LE(test_count_entries("/proc/self/task"), threads + 1); /* the lookup's */
    CHECK_EQ(ask_at(&f, "a%2eflee%74", f.port)->status, 200);     /* as the url means it */
    CHECK_STR(f.names.host, "a.fleet");
    tear_down(&f);
}

TEST(a_literal_in_a_url_needs_no_resolver_and_no_thread)
{
    struct fixture f;
    int threads;

    set_up(&f);
    serve6(&f);
    threads = test_count_entries("/proc/self/task");
    CHECK_EQ(ask_at(&f, "127.0.0.1", f.port)->status, 200);
    CHECK_EQ(ask_at(&f, "[::1]", f.port6)->status, 200);
    CHECK(strstr(f.seen, "\r\nHost: [::1]:") != NULL);
    CHECK_EQ(names_calls(&f.names), 0);
    CHECK_EQ(test_count_entries("/proc/self/task"), threads);
    tear_down(&f);
}

struct decided {
    struct mr_lookup *lookup;
    unsigned asked;
    int family;
    enum mr_lookup_op op;
    char host[64];
};

static void decide(void *user, mr_lookup_ticket ticket, const char *host, size_t n, int family,
                   enum mr_lookup_op op)
{
    struct decided *d = user;
    struct mr_lookup_answer a = {.addr = loopback(0)};

    d->asked++;
    d->family = family;
    d->op = op;
    copy(d->host, sizeof d->host, host, n);
    CHECK_EQ(mr_lookup_answer(d->lookup, ticket, &a), 0);
}

TEST(a_custom_lookup_decides_where_a_request_goes_also_for_a_literal)
{
    struct fixture f;
    struct decided d = {.asked = 0};
    struct mr_lookup_custom custom = {.user = &d, .ask = decide};
    struct host_http_request req;

    set_up(&f);
    d.lookup = f.lookup;
    mr_lookup_set_custom(f.lookup, &custom);
    CHECK_EQ(ask_at(&f, "192.0.2.1", f.port)->status, 200);
    CHECK(strstr(f.seen, "\r\nHost: 192.0.2.1:") != NULL);
    CHECK_EQ(ask_at(&f, "[fe80::1%25lo]", f.port)->status, 200);
    CHECK_STR(d.host, "fe80::1%lo");
    CHECK_EQ(d.asked, 2);
    CHECK_EQ(d.family, 0);
    CHECK_EQ(d.op, MR_LOOKUP_HTTP);
    req = request(&f, "/plain");
    req.lookup = MR_LOOKUP_BUILT_IN; /* asked by it */
    CHECK_EQ(ask(&f, &req)->status, 200);
    CHECK_EQ(d.asked, 2);
    CHECK_EQ(names_calls(&f.names), 0);
    tear_down(&f);
}

TEST(where_nobody_listens_at_one_family_the_other_is_tried)
{
    struct fixture f;

    set_up(&f);
    serve6(&f);
    names_answer(&f.names, "::1", "127.0.0.1");
    CHECK_EQ(ask_at(&f, "a.fleet", f.port)->status, 200);
    CHECK_EQ(names_calls(&f.names), 2);
    names_answer(&f.names, "127.0.0.1", "::1");
    CHECK_EQ(ask_at(&f, "a.fleet", f.port6)->status, 200);
    names_answer(&f.names, "127.0.0.1", NULL); /* there is no other */
    CHECK_STR(ask_at(&f, "a.fleet", f.port6)->code, "refused");
    CHECK(strstr(f.results[0].message, "127.0.0.1") != NULL);
    CHECK_EQ(names_calls(&f.names), 6);
    CHECK_STR(ask_at(&f, "127.0.0.1", f.port6)->code, "refused"); /* it is what was asked for */
    CHECK_EQ(names_calls(&f.names), 6);
    tear_down(&f);
}

TEST(where_nobody_listens_at_either_family_each_is_tried_once)
{
    struct fixture f;
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    socklen_t len = sizeof sa;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0); /* has the port and does not listen */

    set_up(&f);
    REQUIRE_EQ(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    REQUIRE_EQ(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
    names_answer(&f.names, "::1", "127.0.0.1");
    CHECK_STR(ask_at(&f, "a.fleet", ntohs(sa.sin6_port))->code, "refused");
    CHECK_EQ(names_calls(&f.names), 2);
    close(fd);
    tear_down(&f);
}

TEST(a_lookup_counts_to_the_timeout_of_its_request)
{
    struct fixture f;
    struct host_http_request req;

    set_up(&f);
    names_hang(&f.names);
    req = request(&f, "/");
    req.url = text("http://a.fleet/");
    req.timeout_ns = 50000000;
    CHECK_STR(ask(&f, &req)->code, "timeout");
    CHECK_EQ(f.results[0].rc, -ETIMEDOUT);
    CHECK_STR(f.results[0].message, "a.fleet: no address within the timeout");
    req.timeout_ns = 60000000000u;
    mr__fetch_cancel(f.fetch, start(&f, &req, &f.results[1]));
    CHECK_EQ(f.results[1].calls, 0);
    tear_down(&f);
}

TEST(what_the_lookup_cannot_say_is_an_error_of_the_name)
{
    struct fixture f;

    set_up(&f);
    names_fail(&f.names, EAI_AGAIN);
    CHECK_STR(ask_at(&f, "a.fleet", f.port)->code, "resolve");
    CHECK_EQ(f.results[0].rc, -EIO);
    tear_down(&f);
}

/* ---- TLS --------------------------------------------------------------------------------- */

static enum MHD_Result answer_tls(void *user, struct MHD_Connection *to, const char *path,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_n, void **state)
{
    static char hello[] = "over tls";
    struct MHD_Response *r =
        MHD_create_response_from_buffer(sizeof hello - 1, hello, MHD_RESPMEM_PERSISTENT);
    enum MHD_Result rc = MHD_queue_response(to, 200, r);

    (void)user, (void)path, (void)method, (void)version, (void)body, (void)body_n, (void)state;
    MHD_destroy_response(r);
    return rc;
}

/* In a thread of its own. */
static struct MHD_Daemon *serve_tls(unsigned *port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct MHD_Daemon *mhd;

    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
        TEST_SKIP("this libmicrohttpd serves no TLS");
    }
    mhd = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_TLS, 0, NULL, NULL, answer_tls,
                           NULL, MHD_OPTION_SOCK_ADDR, &sa, MHD_OPTION_HTTPS_MEM_KEY, tls_key,
                           MHD_OPTION_HTTPS_MEM_CERT, tls_certificate, MHD_OPTION_END);
    REQUIRE(mhd != NULL);
    *port = MHD_get_daemon_info(mhd, MHD_DAEMON_INFO_BIND_PORT)->port;
    return mhd;
}

static struct result *ask_tls(struct fixture *f, const char *host, unsigned port)
{
    struct host_http_request req = request(f, "/");
    char url[64];

    snprintf(url, sizeof url, "https://%s:%u/", host, port);
    req.url = text(url);
    return ask(f, &req);
}

TEST(an_unknown_authority_is_refused_and_a_known_one_accepted)
{
    char path[] = "/tmp/moonrelay-roots-XXXXXX";
    struct fixture f;
    unsigned port;
    struct MHD_Daemon *mhd = serve_tls(&port);
    int fd = mkstemp(path);

    REQUIRE(fd >= 0);
    REQUIRE_EQ(write(fd, tls_roots, strlen(tls_roots)), (ssize_t)strlen(tls_roots));
    close(fd);
    set_up(&f);
    names_answer(&f.names, "127.0.0.1", NULL);
    CHECK_STR(ask_tls(&f, "localhost", port)->code, "tls");
    tear_down(&f);
    set_up_with(&f, path);
    names_answer(&f.names, "127.0.0.1", NULL);
    CHECK_EQ(ask_tls(&f, "localhost", port)->status, 200);
    CHECK_STR(f.results[0].body, "over tls");
    CHECK_STR(ask_tls(&f, "127.0.0.1", port)->code, "tls"); /* a name that is not the server's */
    tear_down(&f);
    unlink(path);
    MHD_stop_daemon(mhd);
}

TEST(memory_that_runs_out_leaves_nothing)
{
    long before = mr__alloc_live();
    bool is_through = false;

    for (long n = 0; !is_through; n++) {
        struct fixture f = {.port = 0};
        struct fetch_options opts = {.loop = &f.loop};
        struct mr_lookup_options lookup = {.size = sizeof(struct mr_lookup_options),
                                           .loop = &f.loop};
        struct host_http_request req;

        names_init(&f.names);
        REQUIRE_EQ(uv_loop_init(&f.loop), 0);
        REQUIRE_EQ(mr_lookup_create(&f.lookup, &lookup), 0);
        opts.lookup = f.lookup;
        serve(&f);
        req = request(&f, "/plain");
        mr__alloc_fail_after(n);
        if (mr__fetch_create(&f.fetch, &opts) == 0) {
            if (mr__fetch_start(f.fetch, &req, on_done, &f.results[0]) != 0) {
                REQUIRE_IN_TURNS(&f.loop, f.results[0].calls == 1);
                is_through = f.results[0].rc == 0;
            }
        }
        mr__alloc_fail_after(-1);
        tear_down(&f);
        CHECK_EQ(mr__alloc_live(), before);
        REQUIRE(n < 100);
    }
}

TEST_MAIN(TEST_CASE(a_response_has_status_headers_and_any_bytes),
          TEST_CASE(headers_of_one_name_are_joined_and_their_names_are_lower_case),
          TEST_CASE(interim_responses_and_trailers_are_no_headers),
          TEST_CASE(a_request_carries_method_headers_and_body_and_nothing_of_its_own),
          TEST_CASE(a_redirect_is_an_answer_and_not_followed),
          TEST_CASE(no_cookie_is_kept_and_no_connection),
          TEST_CASE(a_proxy_of_the_environment_is_not_asked),
          TEST_CASE(a_body_may_have_max_bytes_and_not_one_more),
          TEST_CASE(headers_without_end_are_given_up), TEST_CASE(what_is_no_answer_is_an_error),
          TEST_CASE(a_server_that_hangs_costs_the_timeout_and_no_more),
          TEST_CASE(nobody_listening_and_no_such_name_are_told_apart),
          TEST_CASE(only_http_and_https_are_spoken_and_hostile_words_are_refused),
          TEST_CASE(thirty_two_are_under_way_at_once_and_the_next_is_told_busy),
          TEST_CASE(a_cancelled_request_says_nothing_whenever_it_is_cancelled),
          TEST_CASE(a_result_may_start_the_next_request),
          TEST_CASE(it_ends_with_requests_under_way_in_every_state),
          TEST_CASE(a_name_is_looked_up_once_and_by_nobody_but_the_lookup),
          TEST_CASE(a_literal_in_a_url_needs_no_resolver_and_no_thread),
          TEST_CASE(a_custom_lookup_decides_where_a_request_goes_also_for_a_literal),
          TEST_CASE(where_nobody_listens_at_one_family_the_other_is_tried),
          TEST_CASE(where_nobody_listens_at_either_family_each_is_tried_once),
          TEST_CASE(a_lookup_counts_to_the_timeout_of_its_request),
          TEST_CASE(what_the_lookup_cannot_say_is_an_error_of_the_name),
          TEST_CASE(an_unknown_authority_is_refused_and_a_known_one_accepted),
          TEST_CASE(memory_that_runs_out_leaves_nothing))
