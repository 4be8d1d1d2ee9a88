/* SPDX-License-Identifier: MIT */
/*
 * relay.udp as policies use it, with a host that is a table of this test: what reaches the
 * host, what comes back, and what ends when. One thread. Start reading at
 * calls_reach_the_host_and_wait_for_its_answer().
 */
#include "base/alloc.h"
#include "rig.h"
#include "service/host.h"
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- a host ---------------------------------------------------------------------------------- */

enum { UDPS_MAX = 64, JOBS_MAX = 4096 };

struct host_udp {
    struct host_udp_options opts;
    bool is_open;
    unsigned flags;
};

struct job {
    struct host_udp *udp;
    host_udp_done done;
    void *arg;
    bool is_pending;
};

static struct host {
    struct host_udp udps[UDPS_MAX];
    struct job jobs[JOBS_MAX];
    size_t n_udps, n_jobs;
    char seen[1024]; /* the last call */
    unsigned closed, cancelled, answers;
    char answer[512]; /* the last of a lookup */
    bool is_refusing;
} host;

static struct rig rig;
static struct rig_answer answer;

static int on_open(void *user, const struct host_udp_options *opts, struct host_udp **out)
{
    CHECK(user == &host);
    if (host.is_refusing) {
        return -ENOMEM;
    }
    REQUIRE(host.n_udps < UDPS_MAX);
    *out = &host.udps[host.n_udps++];
    **out = (struct host_udp){.opts = *opts, .is_open = true, .flags = opts->flags};
    return 0;
}

static host_job start(struct host_udp *u, host_udp_done done, void *arg)
{
    CHECK(u->is_open);
    if (host.is_refusing) {
        return 0;
    }
    REQUIRE(host.n_jobs < JOBS_MAX);
    host.jobs[host.n_jobs++] = (struct job){u, done, arg, true};
    return host.n_jobs;
}

static host_job on_bind(void *user, struct host_udp *u, struct str name, uint16_t port,
                        host_udp_done done, void *arg)
{
    (void)user;
    snprintf(host.seen, sizeof host.seen, "bind %u [%.*s] %u", u->flags, (int)name.n,
             name.n ? name.s : "", port);
    return start(u, done, arg);
}

static host_job on_connect(void *user, struct host_udp *u, struct str name, uint16_t port,
                           host_udp_done done, void *arg)
{
    (void)user;
    snprintf(host.seen, sizeof host.seen, "connect %u [%.*s] %u", u->flags, (int)name.n,
             name.n ? name.s : "", port);
    return start(u, done, arg);
}

static host_job on_send(void *user, struct host_udp *u, struct str data, struct str name,
                        uint16_t port, host_udp_done done, void *arg)
{
    (void)user;
    snprintf(host.seen, sizeof host.seen, "send %u %zu %.20s [%.*s] %u", u->flags, data.n,
             data.n ? data.s : "", (int)name.n, name.n ? name.s : "", port);
    return start(u, done, arg);
}

static void on_flags(void *user, struct host_udp *u, unsigned flags)
{
    (void)user;
    u->flags = flags;
}

static int on_address(void *user, struct host_udp *u, struct mr_addr *out)
{
    (void)user;
    CHECK(u->is_open);
    return host.n_jobs > 0 ? (mr_addr_parse(out, "127.0.0.1:4000", 14, NULL), 0) : -ENOTCONN;
}

static int on_answer(void *user, struct host_udp *u, uint64_t ticket,
                     const struct mr_lookup_answer *a)
{
    char text[MR_ADDR_TEXT_MAX] = "";

    (void)user;
    CHECK(u->is_open);
    host.answers++;
    if (!a) {
        snprintf(host.answer, sizeof host.answer, "%llu next", (unsigned long long)ticket);
    } else if (a->rc == 0) {
        mr_addr_format_ip(&a->addr, text, sizeof text);
        snprintf(host.answer, sizeof host.answer, "%llu %s", (unsigned long long)ticket, text);
    } else {
        snprintf(host.answer, sizeof host.answer, "%llu %s: %s", (unsigned long long)ticket,
                 a->code, a->message);
    }
    return 0;
}

static void on_cancel(void *user, host_job job)
{
    (void)user;
    REQUIRE(job >= 1 && job <= host.n_jobs);
    CHECK(host.jobs[job - 1].is_pending);
    host.jobs[job - 1].is_pending = false;
    host.cancelled++;
}

static void on_close(void *user, struct host_udp *u)
{
    (void)user;
    CHECK(u->is_open);
    for (size_t i = 0; i < host.n_jobs; i++) {
        CHECK(host.jobs[i].udp != u || !host.jobs[i].is_pending);
    }
    u->is_open = false;
    host.closed++;
}

static void begin(void)
{
    memset(&host, 0, sizeof host);
    rig_start(&rig);
    rig.opts.host = (struct script_host){.user = &host,
                                         .cancel = on_cancel,
                                         .udp_open = on_open,
                                         .udp_bind = on_bind,
                                         .udp_connect = on_connect,
                                         .udp_send = on_send,
                                         .udp_flags = on_flags,
                                         .udp_address = on_address,
                                         .udp_answer = on_answer,
                                         .udp_close = on_close};
}

/* Every endpoint that was opened is closed by then. */
static void end(void)
{
    rig_end(&rig);
    CHECK_EQ(host.closed, host.n_udps);
    for (size_t i = 0; i < host.n_jobs; i++) {
        CHECK(!host.jobs[i].is_pending);
    }
}

/* The i-th job ends. */
static void finish(size_t i, int rc, const char *code, const char *message)
{
    struct job *j = &host.jobs[i];

    REQUIRE(i < host.n_jobs && j->is_pending);
    j->is_pending = false;
    j->done(j->arg, &(struct host_udp_result){.rc = rc, .code = code, .message = message});
}

static void deliver(size_t udp, const void *data, size_t n)
{
    struct mr_addr from;

    mr_addr_parse(&from, "203.0.113.5:4000", 16, NULL);
    CHECK(host.udps[udp].is_open);
    host.udps[udp].opts.message(host.udps[udp].opts.arg, &from, data, n);
}

static void lookup(size_t udp, uint64_t ticket, const char *name)
{
    host.answer[0] = '\0';
    host.udps[udp].opts.lookup(host.udps[udp].opts.arg, ticket, rig_str(name), 4, MR_LOOKUP_SEND);
}

/* The policy of the tests: its top level, and the commands that they call. */
static int load(const char *top, const char *commands)
{
    static char text[16384];
    int rc;

    snprintf(text, sizeof text,
             "local relay = require 'relay'\n"
             "local u, got, handled = nil, {}, 0\n"
             "local function text(...)\n"
             "  local t = {} for i = 1, select('#', ...) do t[i] = tostring((select(i, ...))) end\n"
             "  return table.concat(t, ' ')\n"
             "end\n"
             "local function fails(part, f, ...) local ok, e = pcall(f, ...)\n"
             "  if ok or not e:find(part, 1, true) then\n"
             "    error(tostring(e) .. ', not ' .. part, 2) end end\n"
             "%s\nreturn { commands = {\n"
             "close = function() return text(u:close()) end,\n"
             "stats = function() local s = u:stats()\n"
             "  return text(s.received, s.dropped, s.waiting) end,\n"
             "got = function() local t = table.concat(got, ',') got = {} return t end,\n"
             "handled = function() return tostring(handled) end,\n"
             "forget = function() u = nil for i = 1, 300000 do got = { i } end return 'ok' end,\n"
             "%s\n} }",
             top, commands);
    rc = rig_load_policy(&rig, text);
    if (rc != 0) {
        fprintf(stderr, "# %s\n", rig.err.text);
    }
    return rc;
}

static const char *call(const char *verb)
{
    return rig_call(&rig, &answer, "p", verb, NULL);
}

/* ---- arguments ------------------------------------------------------------------------------- */

TEST(options_of_an_endpoint_are_checked_when_it_is_made_and_say_what_was_given)
{
    begin();
    REQUIRE_EQ(
        load("",
             "check = function()\n"
             "fails(\"unknown key 'lokup'; did you mean lookup?\", relay.udp, { lokup = 1 })\n"
             "fails('relay.udp: lookup is 5 (a function is expected)', relay.udp, "
             "{ lookup = 5 })\n"
             "fails('lookup is a text of 4 bytes (a function', relay.udp, { lookup = 'text' })\n"
             "fails('lookup is a table (a function', relay.udp, { lookup = {} })\n"
             "fails('lookup is false (a function', relay.udp, { lookup = false })\n"
             "for _, f in ipairs { 5, 0, 4.5, 0 / 0, 'x', '4', {} } do\n"
             "  fails('(4 or 6 is expected)', relay.udp, { family = f }) end\n"
             "fails('relay.udp', relay.udp, 4)\n"
             "fails('relay.udp', relay.udp, setmetatable({}, {}))\n"
             "return text(tostring(relay.udp {}):match('^userdata')) end,\n"
             "six = function() relay.udp { family = 6 } return 'ok' end"),
        0);
    CHECK_STR(call("check"), "userdata");
    CHECK(host.n_udps == 1 && host.udps[0].opts.family == 4);
    CHECK(!host.udps[0].opts.has_lookup);
    CHECK_STR(call("six"), "ok");
    CHECK(host.n_udps == 2 && host.udps[1].opts.family == 6);
    end();
}

TEST(calls_are_checked_before_anything_begins)
{
    begin();
    REQUIRE_EQ(
        load("u = relay.udp()",
             "check = function()\n"
             "fails('call it as u:bind(host, port), with a colon', u.bind)\n"
             "fails('call it as u:bind', u.bind, {}) fails('call it as u:close()', u.close, 5)\n"
             "fails('call it as u:send', u.send, relay.cidr {}) fails('call it as', u.stats)\n"
             "fails('u:bind: host is 5', u.bind, u, 5) fails('host is a table', u.bind, u, {})\n"
             "for _, p in ipairs { -1, 65536, 1.5, 0 / 0, 'x', {} } do\n"
             "  fails('(a whole number from 0 to 65535 is expected)', u.bind, u, nil, p)\n"
             "  fails('(a whole number from 1 to 65535 is expected)', u.connect, u, 'h', p)\n"
             "  fails('(a whole number from 1 to 65535 is expected)', u.send, u, 'x', 'h', p) end\n"
             "fails('port is 0', u.connect, u, 'h', 0) fails('port is nil', u.connect, u)\n"
             "fails('port is nil', u.connect, u, 'h') fails('port is nil', u.send, u, 'x', 'h')\n"
             "fails('data is nil', u.send, u) fails('data is 5', u.send, u, 5)\n"
             "fails('fn is a text', u.on_message, u, 'x') fails('does not exist', function() "
             "return u.sendto end)\n"
             "for _, h in ipairs { '', 'a\\0b', ('x'):rep(256), ('x'):rep(1000000) } do\n"
             "  local r, _, code = u:bind(h) assert(r == nil and code == 'not-found')\n"
             "  r, _, code = u:send('x', h, 1) assert(r == nil and code == 'not-found') end\n"
             "return text(u:address()) end,\n"
             "wait = function() return text(coroutine.wrap(function() return u:bind() end)()) end"),
        0);
    CHECK_STR(call("check"), "nil not bound unbound");
    CHECK_EQ(host.n_jobs, 0u);
    CHECK(strstr(call("wait"), "u:bind: a coroutine of your own cannot wait"));
    end();
}

/* ---- calls ----------------------------------------------------------------------------------- */

TEST(calls_reach_the_host_and_wait_for_its_answer)
{
    static const struct {
        const char *call, *seen;
    } rows[] = {
        {"u:bind()", "bind 0 [] 0"},
        {"u:bind('127.0.0.1')", "bind 0 [127.0.0.1] 0"},
        {"u:bind(nil, 7777)", "bind 0 [] 7777"},
        {"u:bind('a.fleet', 65535)", "bind 0 [a.fleet] 65535"},
        {"u:connect(9)", "connect 0 [] 9"},
        {"u:connect(nil, 9)", "connect 0 [] 9"},
        {"u:connect('a.fleet', 9)", "connect 0 [a.fleet] 9"},
        {"u:send('hi', 'a.fleet', 9)", "send 0 2 hi [a.fleet] 9"},
        {"u:send('hi', nil, 9)", "send 0 2 hi [] 9"},
        {"u:send('hi')", "send 0 2 hi [] 0"},
        {"u:send('')", "send 0 0  [] 0"},
        {"u:send(('x'):rep(70000), 'h', 1)", "send 0 70000 xxxxxxxxxxxxxxxxxxxx [h] 1"},
    };

    begin();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char command[256];

        snprintf(command, sizeof command, "go = function() return text(%s) end", rows[i].call);
        REQUIRE_EQ(load("u = relay.udp { family = 4 }", command), 0);
        CHECK_STR(call("go"), "");
        CHECK_STR(host.seen, rows[i].seen);
        finish(host.n_jobs - 1, 0, NULL, NULL);
        CHECK_STR(answer.text, "true");
        CHECK_STR(call("go"), "");
        finish(host.n_jobs - 1, -ENETUNREACH, "unreachable", "a.fleet: no route");
        CHECK_STR(answer.text, "nil a.fleet: no route unreachable");
        host.is_refusing = true;
        CHECK_STR(call("go"), "nil not enough memory failed");
        host.is_refusing = false;
    }
    end();
}

TEST(an_endpoint_works_in_load_and_says_where_it_is_bound)
{
    begin();
    rig_file(&rig, "p.lua",
             "local relay = require 'relay'\n"
             "return { load = function()\n"
             "  local u = relay.udp()\n"
             "  assert(u:bind('127.0.0.1', 0))\n"
             "  local a = u:address()\n"
             "  assert(a.ip == '127.0.0.1' and a.port == 4000 and a.text == '127.0.0.1:4000')\n"
             "  assert(a.family == 4 and a.net == '127.0.0.1')\n"
             "  error('but then')\n"
             "end }");
    REQUIRE_EQ(rig_load(&rig, "return { policies = {} }"), 0);
    CHECK_EQ(rig_reload(&rig, "return { policies = { './p.lua' } }"), -EINPROGRESS);
    finish(0, 0, NULL, NULL);
    CHECK(strstr(rig.err.text, "but then"));
    CHECK_EQ(host.closed, 1u); /* with the load that failed */
    end();
}

TEST(a_closed_endpoint_answers_closed_whatever_is_asked_of_it)
{
    begin();
    REQUIRE_EQ(load("u = relay.udp()",
                    "after = function() local t = {}\n"
                    "for _, f in ipairs { function() return u:bind() end, function() return "
                    "u:connect(9) end,\n"
                    "  function() return u:send('x', nil, 9) end, function() return u:address() "
                    "end,\n"
                    "  function() return u:on_message(function() end) end, function() return "
                    "u:stats() end,\n"
                    "  function() return u:close() end } do t[#t + 1] = text(f()) end\n"
                    "return table.concat(t, ';') end"),
               0);
    CHECK_STR(call("close"), "true");
    CHECK_EQ(host.closed, 1u);
    CHECK_STR(call("after"), "nil closed closed;nil closed closed;nil closed closed;nil closed "
                             "closed;nil closed closed;nil closed closed;nil closed closed");
    CHECK_EQ(host.closed, 1u);
    end();
}

TEST(who_waits_for_an_endpoint_that_is_closed_is_told_so)
{
    static struct rig_answer bind, send;

    begin();
    REQUIRE_EQ(load("u = relay.udp()", "bind = function() return text(u:bind()) end,\n"
                                       "send = function() return text(u:send('x', 'h', 9)) end"),
               0);
    CHECK_STR(rig_call(&rig, &bind, "p", "bind", NULL), "");
    CHECK_STR(rig_call(&rig, &send, "p", "send", NULL), "");
    CHECK_STR(call("close"), "true");
    CHECK_EQ(host.cancelled, 2u);
    CHECK(bind.calls == 0 && send.calls == 0); /* not from inside of another script */
    rig_advance(&rig, 0.001);
    CHECK_STR(bind.text, "nil closed closed");
    CHECK_STR(send.text, "nil closed closed");
    end();
}

TEST(a_call_ends_with_the_hook_that_waits_for_it)
{
    begin();
    REQUIRE_EQ(load("u = relay.udp()", "bind = function() return text(u:bind()) end"), 0);
    CHECK_STR(call("bind"), "");
    rig_advance(&rig, 31); /* a command waits for 30 s */
    CHECK(strstr(answer.text, "waited longer than 30 s (u:bind)"));
    CHECK_EQ(host.cancelled, 1u);
    CHECK(host.udps[0].is_open);
    end();
}

/* ---- messages -------------------------------------------------------------------------------- */

#define HANDLER                                                 \
    "u = relay.udp()\n"                                         \
    "u:on_message(function(data, addr) handled = handled + 1\n" \
    "  if data == 'wait' then relay.sleep(1) end\n"             \
    "  if data == 'raise' then error('oops') end\n"             \
    "  if data == 'close' then u:close() end\n"                 \
    "  if data == 'stop' then u:on_message(nil) end\n"          \
    "  got[#got + 1] = data:gsub('%z', '0') .. '@' .. addr.text .. '/' .. addr.port end)"

TEST(a_datagram_reaches_the_handler_at_its_turn_and_not_before)
{
    begin();
    REQUIRE_EQ(load(HANDLER, ""), 0);
    deliver(0, "hi\0", 3);
    deliver(0, NULL, 0);
    CHECK_STR(call("got"), "");
    CHECK_STR(call("stats"), "2 0 2");
    rig_advance(&rig, 0.001);
    CHECK_STR(call("got"), "hi0@203.0.113.5:4000/4000,@203.0.113.5:4000/4000");
    CHECK_STR(call("stats"), "2 0 0");
    end();
}

TEST(a_handler_that_raises_is_logged_and_the_next_datagram_is_handled)
{
    begin();
    REQUIRE_EQ(load(HANDLER, ""), 0);
    deliver(0, "raise", 5);
    deliver(0, "b", 1);
    rig_advance(&rig, 0.001);
    CHECK_STR(call("got"), "b@203.0.113.5:4000/4000");
    CHECK(strstr(rig.log_text, "hook=on_message"));
    CHECK(strstr(rig.log_text, "oops"));
    end();
}

TEST(what_finds_no_room_is_dropped_and_counted)
{
    static char large[60000];

    begin();
    REQUIRE_EQ(load(HANDLER, ""), 0);
    for (int i = 0; i < 300; i++) {
        deliver(0, "x", 1);
    }
    CHECK_STR(call("stats"), "300 44 256");
    rig_advance(&rig, 0.001);
    CHECK_STR(call("handled"), "256");
    for (int i = 0; i < 6; i++) { /* 256 KiB hold four of them */
        deliver(0, large, sizeof large);
    }
    CHECK_STR(call("stats"), "306 46 4");
    rig_advance(&rig, 0.001);
    CHECK_STR(call("handled"), "260");
    end();
}

TEST(handlers_that_wait_are_bounded_and_the_queue_waits_for_them)
{
    begin();
    REQUIRE_EQ(load(HANDLER, ""), 0);
    for (int i = 0; i < 200; i++) {
        deliver(0, "wait", 4);
    }
    rig_advance(&rig, 0.5);
    CHECK_STR(call("handled"), "64");
    CHECK_STR(call("stats"), "200 0 136");
    rig_advance(&rig, 0.6);
    CHECK_STR(call("handled"), "128");
    rig_advance(&rig, 2);
    CHECK_STR(call("handled"), "200");
    CHECK_STR(call("stats"), "200 0 0");
    end();
}

TEST(a_timer_keeps_its_moments_while_datagrams_pour_in)
{
    begin();
    REQUIRE_EQ(load("local n = 0 " HANDLER "\nrelay.every(0.01, function() n = n + 1 end)",
                    "ticks = function() return tostring(n) end"),
               0);
    for (int i = 0; i < 100; i++) {
        deliver(0, "x", 1);
        deliver(0, "y", 1);
        rig_advance(&rig, 0.01);
    }
    CHECK_STR(call("ticks"), "100");
    CHECK_STR(call("handled"), "200");
    end();
}

TEST(without_a_handler_datagrams_are_thrown_away)
{
    begin();
    REQUIRE_EQ(load(HANDLER, "stop = function() return text(u:on_message(nil)) end"), 0);
    deliver(0, "a", 1);
    CHECK_STR(call("stop"), "true");
    deliver(0, "b", 1);
    rig_advance(&rig, 0.001);
    CHECK_STR(call("handled"), "0");
    CHECK_STR(call("stats"), "2 2 0");
    end();
    begin();
    REQUIRE_EQ(load(HANDLER, ""), 0);
    deliver(0, "stop", 4); /* takes itself away */
    deliver(0, "b", 1);
    rig_advance(&rig, 0.001);
    CHECK_STR(call("handled"), "1");
    end();
}

TEST(a_handler_may_close_its_endpoint)
{
    begin();
    REQUIRE_EQ(load(HANDLER, ""), 0);
    deliver(0, "wait", 4);
    rig_advance(&rig, 0.001);
    deliver(0, "close", 5);
    deliver(0, "never", 5);
    rig_advance(&rig, 0.001);
    CHECK_EQ(host.closed, 1u);
    CHECK_STR(call("got"), "close@203.0.113.5:4000/4000");
    rig_advance(&rig, 1); /* the one that waits goes on */
    CHECK_STR(call("got"), "wait@203.0.113.5:4000/4000");
    end();
}

/* ---- lookups --------------------------------------------------------------------------------- */

#define LOOKUP                                                         \
    "u = relay.udp { lookup = function(host, family, op)\n"            \
    "  got[#got + 1] = host .. '/' .. tostring(family) .. '/' .. op\n" \
    "  if host == 'number' then return 5 end\n"                        \
    "  if host == 'v6' then return '::1' end\n"                        \
    "  if host == 'raise' then error('oops') end\n"                    \
    "  if host == 'next' then return nil end\n"                        \
    "  if host == 'gone' then return nil, 'it moved', 'gone' end\n"    \
    "  if host == 'wait' then relay.sleep(1) end\n"                    \
    "  if host == 'never' then relay.sleep(60) end\n"                  \
    "  if host == 'close' then u:close() end\n"                        \
    "  if host == 'late' then relay.sleep(1) u:close() end\n"          \
    "  if host == 'loop' then while true do end end\n"                 \
    "  return '10.0.0.5' end }"

TEST(an_endpoints_own_lookup_is_asked_and_its_answer_is_checked)
{
    static const struct {
        const char *name, *answer;
    } rows[] = {
        {"a", "7 10.0.0.5"},
        {"127.0.0.1", "7 10.0.0.5"},
        {"next", "7 next"},
        {"gone", "7 gone: gone: it moved"},
        {"number", "7 policy-error: number: the lookup of the endpoint failed"},
        {"v6", "7 policy-error: v6: the lookup of the endpoint failed"},
        {"raise", "7 policy-error: raise: the lookup of the endpoint failed"},
        {"loop", "7 policy-error: loop: the lookup of the endpoint failed"},
        {"wait", "7 10.0.0.5"},
        {"never", "7 policy-error: never: the lookup of the endpoint failed"},
    };

    begin();
    rig.load.cpu_ns = 20000000;
    REQUIRE_EQ(load(LOOKUP, ""), 0);
    CHECK(host.udps[0].opts.has_lookup);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char got[64];

        lookup(0, 7, rows[i].name);
        CHECK_STR(host.answer, "");
        rig_advance(&rig, 3);
        CHECK_STR(host.answer, rows[i].answer);
        snprintf(got, sizeof got, "%s/4/send", rows[i].name);
        CHECK_STR(call("got"), got);
    }
    CHECK(strstr(rig.log_text, "p.lua:10: returned a number (an address"));
    CHECK(strstr(rig.log_text, "hook=lookup"));
    CHECK_EQ(host.answers, (unsigned)(sizeof rows / sizeof rows[0]));
    end();
}

TEST(a_lookup_that_is_forgotten_or_whose_endpoint_closed_is_not_answered)
{
    begin();
    REQUIRE_EQ(load(LOOKUP, ""), 0);
    lookup(0, 1, "a");
    host.udps[0].opts.lookup_forget(host.udps[0].opts.arg, 1); /* before it was asked */
    host.udps[0].opts.lookup_forget(host.udps[0].opts.arg, 1);
    lookup(0, 2, "wait");
    rig_advance(&rig, 0.5);
    host.udps[0].opts.lookup_forget(host.udps[0].opts.arg, 2);
    rig_advance(&rig, 3);
    CHECK_STR(call("got"), "wait/4/send");
    CHECK_EQ(host.answers, 0u);
    lookup(0, 3, "wait");
    rig_advance(&rig, 0.5);
    lookup(0, 4, "a");
    CHECK_STR(call("close"), "true");
    rig_advance(&rig, 3);
    CHECK_EQ(host.answers, 0u);
    end();
}

TEST(a_lookup_may_close_its_own_endpoint)
{
    static const char *const names[] = {"close", "late"};

    for (size_t i = 0; i < 2; i++) {
        begin();
        REQUIRE_EQ(load(LOOKUP, "send = function() return text(u:send('x', 'h', 9)) end"), 0);
        CHECK_STR(call("send"), "");
        lookup(0, 1, names[i]);
        rig_advance(&rig, 1.5);
        CHECK_STR(answer.text, "nil closed closed");
        CHECK(host.answers == 0 && host.closed == 1);
        end();
    }
}

TEST(one_thousand_and_twenty_four_lookups_of_an_endpoint_wait_and_the_next_is_busy)
{
    begin();
    REQUIRE_EQ(load(LOOKUP, ""), 0);
    for (uint64_t i = 1; i <= 1024; i++) {
        lookup(0, i, "wait");
    }
    CHECK_EQ(host.answers, 0u);
    lookup(0, 2000, "a");
    CHECK_STR(host.answer, "2000 busy: a: too many lookups wait for the endpoint");
    rig_advance(&rig, 2);
    CHECK_EQ(host.answers, 1025u);
    end();
}

TEST(what_a_lookup_asks_itself_goes_to_the_built_in_one)
{
    struct hook_event ev = rig_event(MR_HOOK_LOOKUP);
    struct rig_request req;

    begin();
    rig_file(&rig, "p.lua",
             "local relay = require 'relay'\n"
             "local u = relay.udp()\n"
             "return {\n"
             "  lookup = function(host)\n"
             "    if host == 'open' then relay.udp() return end\n"
             "    if host == 'timer' then relay.after(0, function() u:send('x', 'h', 9) end) end\n"
             "    if host == 'own' then coroutine.wrap(function() relay.udp() end)() return end\n"
             "    u:send('x', '10.0.0.53', 53)\n"
             "  end,\n"
             "  register = function() u:send('x', '10.0.0.53', 53) end,\n"
             "}");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { './p.lua' } }"), 0);
    CHECK_EQ(host.udps[0].opts.flags, 0u);
    rig_start_asking(&rig, &req, &ev);
    CHECK_STR(host.seen, "send 1 1 x [10.0.0.53] 53");
    finish(0, 0, NULL, NULL);
    ev.host = rig_str("open");
    rig_ask(&rig, &ev);
    CHECK_EQ(host.udps[1].opts.flags, (unsigned)MR_LOOKUP_BUILT_IN);
    ev.host = rig_str("own");
    rig_ask(&rig, &ev);
    CHECK_EQ(host.udps[2].opts.flags, (unsigned)MR_LOOKUP_BUILT_IN);
    ev = rig_event(MR_HOOK_REGISTER);
    rig_start_asking(&rig, &req, &ev);
    CHECK_STR(host.seen, "send 0 1 x [10.0.0.53] 53");
    finish(1, 0, NULL, NULL);
    ev = rig_event(MR_HOOK_LOOKUP);
    ev.host = rig_str("timer");
    rig_start_asking(&rig, &req, &ev);
    CHECK_STR(host.seen, "send 1 1 x [10.0.0.53] 53");
    finish(2, 0, NULL, NULL);
    rig_advance(&rig, 0.001);
    CHECK_STR(host.seen, "send 0 1 x [h] 9");
    end();
}

TEST(a_shadow_of_a_lookup_asks_the_built_in_one_too)
{
    struct hook_event ev = rig_event(MR_HOOK_LOOKUP);

    begin();
    rig_file(&rig, "p.lua",
             "local relay = require 'relay'\n"
             "return { lookup = function() relay.udp() end }");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { { './p.lua', shadow = true } } }"), 0);
    rig_ask(&rig, &ev);
    CHECK_EQ(host.udps[0].opts.flags, (unsigned)MR_LOOKUP_BUILT_IN);
    end();
}

/* ---- ends ------------------------------------------------------------------------------------ */

TEST(an_endpoint_that_nobody_can_reach_is_closed_unless_it_has_a_handler)
{
    begin();
    REQUIRE_EQ(load("u = relay.udp()", ""), 0);
    CHECK_STR(call("forget"), "ok");
    rig_advance(&rig, 0.001);
    CHECK_EQ(host.closed, 1u);
    REQUIRE_EQ(load("u = relay.udp() u:on_message(function() handled = handled + 1 end)", ""), 0);
    CHECK_STR(call("forget"), "ok");
    rig_advance(&rig, 0.001);
    CHECK(host.udps[1].is_open);
    deliver(1, "x", 1);
    rig_advance(&rig, 0.001);
    CHECK_STR(call("handled"), "1");
    end();
}

TEST(an_endpoint_that_is_collected_while_it_binds_lives_until_that_is_over)
{
    begin();
    REQUIRE_EQ(load("", "go = function() return text(relay.udp():bind()) end"), 0);
    CHECK_STR(call("go"), "");
    {
        static struct rig_answer forget;

        CHECK_STR(rig_call(&rig, &forget, "p", "forget", NULL), "ok");
    }
    rig_advance(&rig, 0.001);
    CHECK(host.udps[0].is_open);
    finish(0, 0, NULL, NULL);
    CHECK_STR(answer.text, "true");
    CHECK_STR(call("forget"), "ok");
    rig_advance(&rig, 0.001);
    CHECK_EQ(host.closed, 1u);
    end();
}

TEST(a_reload_closes_the_endpoints_of_the_policies_before)
{
    static struct rig_answer bind;
    begin();
    REQUIRE_EQ(load(HANDLER, "bind = function() return text(u:bind()) end"), 0);
    CHECK_STR(rig_call(&rig, &bind, "p", "bind", NULL), "");
    deliver(0, "wait", 4);
    rig_advance(&rig, 0.001);
    deliver(0, "x", 1);
    REQUIRE_EQ(rig_reload(&rig, "return { policies = { './p.lua' } }"), 0);
    CHECK(host.closed == 1 && host.n_udps == 2 && host.udps[1].is_open);
    rig_advance(&rig, 2);
    CHECK_STR(bind.text, "nil closed closed");
    CHECK_STR(call("handled"), "0"); /* of the new one */
    deliver(1, "x", 1);
    rig_advance(&rig, 0.001);
    CHECK_STR(call("handled"), "1");
    end();
}

TEST(a_generation_that_was_replaced_opens_no_endpoint)
{
    begin();
    REQUIRE_EQ(load("", "late = function() relay.sleep(1) return text(relay.udp()) end"), 0);
    CHECK_STR(call("late"), "");
    REQUIRE_EQ(rig_reload(&rig, "return { policies = { './p.lua' } }"), 0);
    rig_advance(&rig, 2);
    CHECK_STR(answer.text, "nil another generation took over closed");
    CHECK_EQ(host.n_udps, 0u);
    end();
}

TEST(a_policy_has_thirty_two_endpoints_and_closing_one_makes_room)
{
    begin();
    REQUIRE_EQ(load("local all = {}",
                    "open = function() for i = 1, 40 do local code\n"
                    "  u, _, code = relay.udp() if not u then return i .. ' ' .. code end\n"
                    "  all[i] = u end end,\n"
                    "again = function() all[3]:close() return text((relay.udp()) ~= nil) end"),
               0);
    CHECK(strstr(call("open"), "undeclared global")); /* _ */
    REQUIRE_EQ(load("local all = {}",
                    "open = function() for i = 1, 40 do local one, _, code = relay.udp()\n"
                    "  if not one then return i .. ' ' .. code end all[i] = one end end,\n"
                    "again = function() all[3]:close() return text((relay.udp()) ~= nil) end"),
               0);
    CHECK_STR(call("open"), "33 full");
    CHECK_STR(call("again"), "true");
    end();
}

TEST(where_the_host_has_no_endpoints_relay_udp_says_so)
{
    begin();
    rig.opts.host.udp_open = NULL;
    REQUIRE_EQ(load("", "go = function() return text(relay.udp()) end"), 0);
    CHECK_STR(call("go"), "nil not available here unavailable");
    end();
    begin();
    REQUIRE_EQ(load("", "go = function() return text(relay.udp { lookup = function() end }) end"),
               0);
    host.is_refusing = true;
    CHECK_STR(call("go"), "nil not enough memory failed");
    end();
}

TEST(the_end_of_the_policies_closes_endpoints_whatever_is_under_way)
{
    static struct rig_answer waits;

    begin();
    REQUIRE_EQ(load(LOOKUP " u:on_message(function() relay.sleep(1) end)",
                    "bind = function() return text(u:bind()) end"),
               0);
    CHECK_STR(rig_call(&rig, &waits, "p", "bind", NULL), "");
    deliver(0, "x", 1);
    lookup(0, 1, "wait");
    rig_advance(&rig, 0.001);
    deliver(0, "x", 1);
    lookup(0, 2, "a");
    end();
}

/* Whatever fails: the next try works, and nothing is left. */
TEST(running_out_of_memory_anywhere_leaves_nothing_behind)
{
    long before, n;
    bool is_done = false;

    begin();
    before = mr__alloc_live();
    for (n = 0; n < 1000 && !is_done; n++) {
        host.n_udps = host.n_jobs = host.closed = 0;
        REQUIRE_EQ(load("", "go = function() local u, _, code = relay.udp { lookup = function() "
                            "return '10.0.0.5' end }\n"
                            "  if not u then return code end\n"
                            "  u:on_message(function() handled = handled + 1 end)\n"
                            "  return text(u:bind()) end"),
                   0);
        mr__alloc_fail_after(n);
        call("go");
        if (host.n_udps == 1 && host.udps[0].is_open) {
            deliver(0, "x", 1);
            lookup(0, 1, "h");
        }
        if (host.n_jobs == 1 && host.jobs[0].is_pending) {
            finish(0, 0, NULL, NULL);
        }
        rig_advance(&rig, 0.1);
        is_done = strcmp(answer.text, "true") == 0 && strcmp(host.answer, "1 10.0.0.5") == 0;
        mr__alloc_fail_after(-1);
        is_done = is_done && strcmp(call("handled"), "1") == 0;
        mr__policies_destroy(rig.policies);
        rig.policies = NULL;
        mr__config_unref(rig.config);
        rig.config = NULL;
        CHECK_EQ(mr__alloc_live(), before);
        CHECK_EQ(host.closed, host.n_udps);
    }
    CHECK(is_done);
    CHECK_GT(n, 5);
    end();
}

TEST_MAIN(TEST_CASE(options_of_an_endpoint_are_checked_when_it_is_made_and_say_what_was_given),
          TEST_CASE(calls_are_checked_before_anything_begins),
          TEST_CASE(calls_reach_the_host_and_wait_for_its_answer),
          TEST_CASE(an_endpoint_works_in_load_and_says_where_it_is_bound),
          TEST_CASE(a_closed_endpoint_answers_closed_whatever_is_asked_of_it),
          TEST_CASE(who_waits_for_an_endpoint_that_is_closed_is_told_so),
          TEST_CASE(a_call_ends_with_the_hook_that_waits_for_it),
          TEST_CASE(a_datagram_reaches_the_handler_at_its_turn_and_not_before),
          TEST_CASE(a_handler_that_raises_is_logged_and_the_next_datagram_is_handled),
          TEST_CASE(what_finds_no_room_is_dropped_and_counted),
          TEST_CASE(handlers_that_wait_are_bounded_and_the_queue_waits_for_them),
          TEST_CASE(a_timer_keeps_its_moments_while_datagrams_pour_in),
          TEST_CASE(without_a_handler_datagrams_are_thrown_away),
          TEST_CASE(a_handler_may_close_its_endpoint),
          TEST_CASE(an_endpoints_own_lookup_is_asked_and_its_answer_is_checked),
          TEST_CASE(a_lookup_that_is_forgotten_or_whose_endpoint_closed_is_not_answered),
          TEST_CASE(a_lookup_may_close_its_own_endpoint),
          TEST_CASE(one_thousand_and_twenty_four_lookups_of_an_endpoint_wait_and_the_next_is_busy),
          TEST_CASE(what_a_lookup_asks_itself_goes_to_the_built_in_one),
          TEST_CASE(a_shadow_of_a_lookup_asks_the_built_in_one_too),
          TEST_CASE(an_endpoint_that_nobody_can_reach_is_closed_unless_it_has_a_handler),
          TEST_CASE(an_endpoint_that_is_collected_while_it_binds_lives_until_that_is_over),
          TEST_CASE(a_reload_closes_the_endpoints_of_the_policies_before),
          TEST_CASE(a_generation_that_was_replaced_opens_no_endpoint),
          TEST_CASE(a_policy_has_thirty_two_endpoints_and_closing_one_makes_room),
          TEST_CASE(where_the_host_has_no_endpoints_relay_udp_says_so),
          TEST_CASE(the_end_of_the_policies_closes_endpoints_whatever_is_under_way),
          TEST_CASE(running_out_of_memory_anywhere_leaves_nothing_behind))
