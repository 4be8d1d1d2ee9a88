/* SPDX-License-Identifier: MIT */
/*
 * Hooks that wait: what goes on meanwhile, how they end, what they may not do. Time is
 * the rig's. Start reading at the first test.
 */
#include "base/alloc.h"
#include "rig.h"
#include "script/chain.h"
#include "test.h"

static struct rig rig;

static size_t suspended(void)
{
    struct generation_info g;

    mr__policies_generation(rig.policies, &g);
    return g.suspended;
}

/* Asks `create` of a policy with this body, "relay" being there. */
static void load_body(const char *hook, const char *body)
{
    char text[4096];

    snprintf(text, sizeof text,
             "local relay = require 'relay'\nlocal n = 0\nreturn { %s = function(ev) %s end }",
             hook, body);
    REQUIRE_EQ(rig_load_policy(&rig, text), 0);
}

static const char *ask_create(struct rig_request *req)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    return rig_start_asking(&rig, req, &ev);
}

TEST(a_hook_that_sleeps_answers_when_it_is_woken)
{
    struct rig_request req;

    rig_start(&rig);
    load_body("create", "local a, b = relay.sleep(1.5), 2 return { ttl = b }");
    CHECK_STR(ask_create(&req), "");
    CHECK_EQ(suspended(), 1);
    rig_advance(&rig, 1.4);
    CHECK_STR(req.text, "");
    rig_advance(&rig, 0.2);
    CHECK_STR(req.text, "admit ttl=2");
    CHECK_EQ(suspended(), 0);
    rig_end(&rig);
}

TEST(the_event_of_a_chain_that_rests_is_its_own)
{
    struct rig_request req;
    struct hook_event ev;
    char reason[] = "connect";

    rig_start(&rig);
    rig_file(&rig, "a.lua",
             "local relay = require 'relay' return { create = function(ev) relay.sleep(1) return {"
             " tags = { seen = ev.reason .. ev.session.oid } } end }");
    rig_file(
        &rig, "b.lua",
        "return { create = function(ev) return { tags = { also = ev.reason .. ev.session.oid .."
        " ev.peer.oid .. ev.session.tags.user .. ev.meta.ticket .. ev.addr.text } } end }");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { './a.lua', './b.lua' } }"), 0);
    ev = rig_event(MR_HOOK_CREATE);
    ev.reason = (struct str){reason, 7};
    CHECK_STR(rig_start_asking(&rig, &req, &ev), "");
    memset(reason, 'X', 7);
    rig_spoil_event();
    rig_advance(&rig, 1);
    CHECK_STR(req.text, "admit tags{also=connectHOSTCLIENTalicet10.0.0.1:4000,seen=connectHOST}");
    rig_end(&rig);
}

TEST(a_hook_that_waits_too_long_is_abandoned_where_it_waits)
{
    struct rig_request req;

    rig_start(&rig);
    load_body("create", "\n  relay.sleep(1)\n  relay.sleep(1.5)\n return {}");
    ask_create(&req);
    rig_advance(&rig, 1.9);
    CHECK_STR(req.text, "");
    rig_advance(&rig, 0.2);
    CHECK_STR(req.text, "failed policy-error by p");
    CHECK(strstr(rig.log_text, "p.lua:5: waited longer than 2 s (relay.sleep)") != NULL);
    CHECK(strstr(rig.log_text, "traceback=") != NULL);
    CHECK_EQ(suspended(), 0);
    rig.load.wait_ns = 500000000;
    load_body("create", "relay.sleep(1) return {}");
    ask_create(&req);
    rig_advance(&rig, 0.6);
    CHECK_STR(req.text, "failed policy-error by p");
    CHECK(strstr(rig.log_text, "waited longer than 0.5 s") != NULL);
    rig_end(&rig);
}

TEST(a_cancelled_request_is_never_answered)
{
    const struct hooks *hooks;
    struct rig_request req;

    rig_start(&rig);
    load_body("create", "relay.sleep(1) return {}");
    ask_create(&req);
    CHECK_EQ(suspended(), 1);
    hooks = mr__policies_hooks(rig.policies);
    hooks->cancel(hooks->self, &req.request);
    CHECK_EQ(suspended(), 0);
    CHECK_EQ(hooks->deadline(hooks->self), UINT64_MAX);
    rig_advance(&rig, 5);
    CHECK_STR(req.text, "");
    rig_end(&rig);
}

static const struct {
    const char *body, *expected, *log;
} places[] = {
    {"coroutine.yield()", "failed policy-error by p",
     "p.lua:3: called coroutine.yield() outside of a coroutine of its own"},
    {"pcall(coroutine.yield)", "failed policy-error by p", "called coroutine.yield()"},
    {"coroutine.wrap(function() relay.sleep(1) end)()", "failed policy-error by p",
     "relay.sleep: a coroutine of your own cannot wait"},
    {"table.sort({3, 2, 1}, function(a, b) relay.sleep(1) return a < b end)",
     "failed policy-error by p", "relay.sleep: cannot wait inside of a function that C calls"},
    {"string.gsub('abc', '.', function() relay.sleep(1) end)", "failed policy-error by p",
     "relay.sleep: cannot wait inside of a function that C calls"},
    {"relay.sleep(-1)", "failed policy-error by p", "relay.sleep: seconds is -1"},
    {"relay.sleep('x')", "failed policy-error by p", "relay.sleep: seconds is a text of 1 bytes"},
    {"relay.await(5)", "failed policy-error by p",
     "p.lua:3: relay.await: a function start(done) is expected"},
    {"relay.await(function() end, -1)", "failed policy-error by p",
     "p.lua:3: relay.await: timeout is no number of seconds"},
    {"coroutine.wrap(function() relay.await(function() end) end)()", "failed policy-error by p",
     "p.lua:3: relay.await: a coroutine of your own cannot wait"},
    {"relay.await(function() error('no start') end)", "failed policy-error by p", "no start"},
    {"pcall(function() relay.sleep(1) end) return { ttl = 1 }", "admit ttl=1", NULL},
    {"local ok, e = pcall(function() relay.sleep(1) error('late', 0) end) return { tags = { e = e "
     "} }",
     "admit tags{e=late}", NULL},
    {"local ok, e = xpcall(function() relay.sleep(1) error('x', 0) end, function(e) "
     "relay.sleep(0.5)"
     " return e .. 'y' end) return { tags = { e = e } }",
     "admit tags{e=xy}", NULL},
    {"for i in (function() relay.sleep(0.2) n = n + 1 return n < 4 and n or nil end) do end"
     " return { ttl = n }",
     "admit ttl=4", NULL},
    {"local t = setmetatable({}, { __index = function(t, k) relay.sleep(0.5) return k .. k end })"
     " return { tags = { v = t.ab } }",
     "admit tags{v=abab}", NULL},
    {"local co = coroutine.wrap(function() coroutine.yield(1) coroutine.yield(2) end)"
     " local a = co() relay.sleep(1) return { ttl = a + co() }",
     "admit ttl=3", NULL},
    {"relay.sleep(0) relay.sleep(0) return { ttl = 1 }", "admit ttl=1", NULL},
    {"while true do relay.sleep(0) end", "failed policy-error by p", "took more than"},
    {"relay.sleep(1) while true do end", "failed policy-error by p", "took more than 20 ms"},
    {"relay.sleep(1) error('after')", "failed policy-error by p", "p.lua:3: after"},
    {"relay.sleep(1) return false, 'late'", "refuse late by p", NULL},
    {"relay.sleep(1) return 5", "failed policy-error by p", "p.lua:3: returned a number"},
    {"relay.sleep(1) coroutine.yield()", "failed policy-error by p", "called coroutine.yield()"},
    {"return { ttl = relay.await(function(done) done(7, 8) done(9) end) }", "admit ttl=7", NULL},
    {"local a, b, c = relay.await(function(done) relay.after(1, function() done(1, nil, 3) end) "
     "end)"
     " return { ttl = a + c }",
     "admit ttl=4", NULL},
    {"local a, b, c = relay.await(function(done) end, 1) return { tags = { a = tostring(a) .. b .. "
     "c"
     " } }",
     "admit tags{a=niltimeouttimeout}", NULL},
    {"local a, b = relay.await(function(done) relay.sleep(0.5) relay.after(0.5, function() "
     "done('x')"
     " end) end, 5) return { tags = { a = a } }",
     "admit tags{a=x}", NULL},
    {"relay.await(function(done) for i = 1, 40 do n = i end done(unpack({}, 1, 40)) end)",
     "failed policy-error by p", "at most 32 values"},
    {"relay.await(function() end)", "failed policy-error by p", "(relay.await)"},
};

TEST(waiting_is_possible_where_it_is_said_to_be)
{
    rig_start(&rig);
    rig.load.cpu_ns = 20000000;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct rig_request req;

        rig.log_n = 0;
        rig.log_text[0] = '\0';
        load_body("create", places[i].body);
        ask_create(&req);
        for (int step = 0; step < 30000 && req.calls == 0; step++) {
            rig_advance(&rig, 0.1);
        }
        CHECK_STR(req.text, places[i].expected);
        if (places[i].log) {
            CHECK(strstr(rig.log_text, places[i].log) != NULL);
        }
        if (strcmp(req.text, places[i].expected) != 0 ||
            (places[i].log && !strstr(rig.log_text, places[i].log))) {
            fprintf(stderr, "# %s\n# %s\n", places[i].body, rig.log_text);
        }
        CHECK_EQ(suspended(), 0);
    }
    rig_end(&rig);
}

TEST_MAIN(TEST_CASE(a_hook_that_sleeps_answers_when_it_is_woken),
          TEST_CASE(the_event_of_a_chain_that_rests_is_its_own),
          TEST_CASE(a_hook_that_waits_too_long_is_abandoned_where_it_waits),
          TEST_CASE(a_cancelled_request_is_never_answered),
          TEST_CASE(waiting_is_possible_where_it_is_said_to_be))
