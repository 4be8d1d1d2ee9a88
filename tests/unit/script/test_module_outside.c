/* SPDX-License-Identifier: MIT */
/*
 * relay.read and relay.http as policies use them, with a host that is a table of this test.
 * One thread.
 */
#include "test.h"

#include "act.h"

static struct act a;

TEST(a_request_is_checked_before_it_goes_out)
{
    act_begin(&a, NULL);
    CHECK_STR(act(&a,
                  "local function bad(part, t) fails(part, relay.http, t) end\n"
                  "fails('relay.http: the argument is nil', relay.http)\n"
                  "bad(\"unknown key 'ulr'; did you mean url?\", { ulr = 'http://x' })\n"
                  "bad('relay.http: url is nil', {}) bad('url is 5', { url = 5 })\n"
                  "for _, u in ipairs { '', 'x', 'http://', 'ftp://x', 'http:///x', 'file:///x',\n"
                  "  'http://x y', 'http://x\\n', 'http://x\\0', '//x', ' http://x', "
                  "'http://' .. ('x'):rep(8200) } do\n"
                  "  bad('http:// or https://', { url = u }) end\n"
                  "local u = 'http://x/'\n"
                  "bad('as GET, POST or PUT', { url = u, method = 'GET / HTTP/1.1\\r\\nX' })\n"
                  "bad('as GET', { url = u, method = '' }) bad('as GET', { url = u, method = "
                  "'Connect' })\n"
                  "bad('method is 5', { url = u, method = 5 })\n"
                  "bad('headers is a text', { url = u, headers = 'x' })\n"
                  "bad('headers.a holds a control character', { url = u, headers = { a = "
                  "'x\\r\\ny: z' } })\n"
                  "bad('headers.a holds', { url = u, headers = { a = 'x\\0' } })\n"
                  "bad('is no token', { url = u, headers = { ['a b'] = 'x' } })\n"
                  "bad('is no token', { url = u, headers = { ['a:'] = 'x' } })\n"
                  "bad('is no token', { url = u, headers = { ['a\\r\\n'] = 'x' } })\n"
                  "bad('is no token', { url = u, headers = { [''] = 'x' } })\n"
                  "bad('a key that is a number', { url = u, headers = { 'x' } })\n"
                  "bad('headers.a is a table', { url = u, headers = { a = {} } })\n"
                  "bad('is made by the relay', { url = u, headers = { ['Content-Length'] = 5 } "
                  "})\n"
                  "bad('is made by the relay', { url = u, headers = { ['transfer-Encoding'] = "
                  "'chunked' } })\n"
                  "local many = {} for i = 1, 33 do many['h' .. i] = 1 end\n"
                  "bad('headers are more than 32', { url = u, headers = many })\n"
                  "bad('body and json are both', { url = u, body = '', json = {} })\n"
                  "bad('body is 5', { url = u, body = 5 })\n"
                  "bad('at most 1048576 bytes', { url = u, body = ('x'):rep(2 ^ 20) .. 'x' })\n"
                  "bad('cannot be written as JSON: value.f', { url = u, json = { f = same } })\n"
                  "bad('timeout is 0', { url = u, timeout = 0 })\n"
                  "bad('timeout is 61', { url = u, timeout = 61 })\n"
                  "bad('max_bytes is -1', { url = u, max_bytes = -1 })\n"
                  "bad('max_bytes is nan', { url = u, max_bytes = 0 / 0 })\n"
                  "bad('max_bytes is 16777217', { url = u, max_bytes = 2 ^ 24 + 1 })\n"
                  "local r, message, code = relay.http { url = u, json = { 1 }, headers = { A = "
                  "1 } }\n"
                  "same(r, nil) same(message, 'not available') same(code, 'unavailable')\n"
                  "fails('relay.read: path is nil', relay.read)\n"
                  "fails('path is a text of 0', relay.read, '')\n"
                  "fails('path is a text of 3 bytes', relay.read, 'a\\0b')\n"
                  "fails('at most 4096 bytes', relay.read, ('x'):rep(4097))\n"
                  "same(select(3, relay.read 'x'), 'unavailable')"),
              "admit");
    act_end(&a);
}

/* ---- a host ---------------------------------------------------------------------------------- */

static struct host {
    char seen[8192]; /* the last request, or "folder|path" */
    void (*http_done)(void *arg, const struct host_http_response *r);
    void (*read_done)(void *arg, const struct host_file *f);
    void *arg;
    host_job job;
    unsigned started, cancelled;
    bool is_refusing;
} host;

static host_job on_http(void *user, const struct host_http_request *q,
                        void (*done)(void *arg, const struct host_http_response *r), void *arg)
{
    size_t n;

    (void)user;
    if (host.is_refusing) {
        return 0;
    }
    n = (size_t)snprintf(host.seen, sizeof host.seen, "%.*s %.*s", (int)q->method.n, q->method.s,
                         (int)q->url.n, q->url.s);
    for (size_t i = 0; i < q->n_headers; i++) {
        n += (size_t)snprintf(host.seen + n, sizeof host.seen - n, " [%.*s: %.*s]",
                              (int)q->headers[i].name.n, q->headers[i].name.s,
                              (int)q->headers[i].value.n, q->headers[i].value.s);
    }
    snprintf(host.seen + n, sizeof host.seen - n, " %.*s %.6g s %zu bytes", (int)q->body.n,
             q->body.s ? q->body.s : "", (double)q->timeout_ns / 1e9, q->max_bytes);
    host.http_done = done;
    host.arg = arg;
    host.started++;
    return ++host.job;
}

static host_job on_read(void *user, struct str folder, struct str path, size_t max_bytes,
                        void (*done)(void *arg, const struct host_file *f), void *arg)
{
    (void)user;
    snprintf(host.seen, sizeof host.seen, "%.*s|%.*s|%zu", (int)folder.n, folder.s, (int)path.n,
             path.s, max_bytes);
    host.read_done = done;
    host.arg = arg;
    host.started++;
    return ++host.job;
}

static void on_cancel(void *user, host_job job)
{
    (void)user;
    CHECK_EQ(job, host.job);
    host.cancelled++;
}

static void begin_with_host(void)
{
    host = (struct host){.job = 0};
    act_begin(&a, NULL);
    a.rig.opts.host =
        (struct script_host){.user = &host, .http = on_http, .read = on_read, .cancel = on_cancel};
}

static struct rig_request waiting;

/* Loads, asks, and comes back while the hook waits. */
static void start(const char *body)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    REQUIRE_EQ(act_load(&a, "", body), 0);
    CHECK_STR(rig_start_asking(&a.rig, &waiting, &ev), "");
    REQUIRE_EQ(host.started, 1);
    host.started = 0;
}

static void respond(const struct host_http_response *r)
{
    host.http_done(host.arg, r);
    CHECK_STR(waiting.text, "admit");
    if (strcmp(waiting.text, "admit") != 0) {
        fprintf(stderr, "# %s\n", a.rig.log_text);
    }
}

TEST(a_request_goes_out_as_it_was_written_and_its_response_is_a_table)
{
    static const struct host_header headers[] = {
        {{"content-type", 12}, {"text/plain", 10}}, {{"x", 1}, {"1", 1}}, {{"x", 1}, {"2", 1}}};
    const struct host_http_response r = {
        .status = 404, .headers = headers, .n_headers = 3, .body = {"a\0b", 3}};

    begin_with_host();
    start(
        "local r = relay.http { url = 'http://x/y?z' }\n"
        "same(r.status, 404) same(r.body, 'a\\0b') same(r.headers['content-type'], 'text/plain')\n"
        "same(r.headers.x, '1, 2')");
    CHECK_STR(host.seen, "GET http://x/y?z  5 s 1048576 bytes");
    respond(&r);
    start("same(relay.http { url = 'HTTPS://x', method = 'PUT', body = 'b', headers = { ['X-A'] = "
          "7 },\n"
          "timeout = 0.5, max_bytes = 10 }.body, '')");
    CHECK_STR(host.seen, "PUT HTTPS://x [X-A: 7] b 0.5 s 10 bytes");
    respond(&(struct host_http_response){.status = 204});
    start("same(relay.http { url = 'http://x', json = { b = 1 } }.status, 200)");
    CHECK_STR(host.seen,
              "POST http://x [Content-Type: application/json] {\"b\":1} 5 s 1048576 bytes");
    respond(&(struct host_http_response){.status = 200});
    start("relay.http { url = 'http://x', json = {}, headers = { ['content-type'] = 'a/b' } }");
    CHECK_STR(host.seen, "POST http://x [content-type: a/b] {} 5 s 1048576 bytes");
    respond(&(struct host_http_response){.status = 200});
    start("local r, message, code = relay.http { url = 'http://x' }\n"
          "same(r, nil) same(message, 'took too long') same(code, 'timeout')");
    respond(&(struct host_http_response){
        .rc = -ETIMEDOUT, .code = "timeout", .message = "took too long"});
    act_end(&a);
}

TEST(a_file_is_read_below_the_configs_folder)
{
    static const struct {
        int rc;
        const char *code;
    } rows[] = {{-ENOENT, "not-found"}, {-ENOTDIR, "not-found"}, {-EXDEV, "outside"},
                {-EFBIG, "too-large"},  {-EACCES, "denied"},     {-EIO, "failed"}};
    char expected[256], body[512];

    begin_with_host();
    start("same(relay.read 'lists/bans.txt', 'text')");
    snprintf(expected, sizeof expected, "%s/|lists/bans.txt|16777216", a.rig.folder);
    CHECK_STR(host.seen, expected);
    host.read_done(host.arg, &(struct host_file){.text = {"text", 4}});
    CHECK_STR(waiting.text, "admit");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(body, sizeof body,
                 "local t, message, code = relay.read 'x'\n"
                 "same(t, nil) same(message, 'why') same(code, '%s')",
                 rows[i].code);
        start(body);
        host.read_done(host.arg, &(struct host_file){.rc = rows[i].rc, .message = "why"});
        CHECK_STR(waiting.text, "admit");
    }
    act_end(&a);
}

TEST(what_was_started_ends_with_the_hook_that_waits_for_it)
{
    const struct hooks *hooks;

    begin_with_host();
    start("relay.http { url = 'http://x' }");
    hooks = mr__policies_hooks(a.rig.policies);
    hooks->cancel(hooks->self, &waiting.request);
    CHECK_EQ(host.cancelled, 1);
    start("relay.read 'x'");
    rig_spoil_event();
    mr__policies_destroy(a.rig.policies);
    a.rig.policies = NULL;
    CHECK_EQ(host.cancelled, 2);
    host.is_refusing = true;
    CHECK_STR(act(&a, "local r, message, code = relay.http { url = 'http://x' }\n"
                      "same(r, nil) same(message, 'not enough memory') same(code, 'failed')"),
              "admit");
    act_end(&a);
}

TEST(running_out_of_memory_anywhere_leaves_no_errand_behind)
{
    bool is_done = false;
    unsigned failed = 0;

    begin_with_host();
    REQUIRE_EQ(
        act_load(&a, "", "relay.http { url = 'http://x', json = { 1, 2 }, headers = { a = 1 } }"),
        0);
    for (long n = 0; n < 1000 && !is_done; n++) {
        struct hook_event ev = rig_event(MR_HOOK_CREATE);

        mr__alloc_fail_after(n);
        is_done = rig_start_asking(&a.rig, &waiting, &ev)[0] == '\0';
        if (is_done) {
            host.http_done(host.arg, &(struct host_http_response){.status = 200});
        }
        mr__alloc_fail_after(-1);
        failed += !is_done;
    }
    CHECK(is_done);
    CHECK_GT(failed, 0);
    act_end(&a);
}

TEST_MAIN(TEST_CASE(a_request_is_checked_before_it_goes_out),
          TEST_CASE(a_request_goes_out_as_it_was_written_and_its_response_is_a_table),
          TEST_CASE(a_file_is_read_below_the_configs_folder),
          TEST_CASE(what_was_started_ends_with_the_hook_that_waits_for_it),
          TEST_CASE(running_out_of_memory_anywhere_leaves_no_errand_behind))
