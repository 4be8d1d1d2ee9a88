/* SPDX-License-Identifier: MIT */
/*
 * The chain: who is asked, how answers become one, what a wrong one costs. Start reading
 * at the tables of answers.
 */
#include "base/alloc.h"
#include "rig.h"
#include "service/metrics.h"
#include "test.h"

static struct rig rig;

/* ---- answers of one policy ------------------------------------------------------------------- */

struct answer_case {
    enum hook hook;
    const char *body; /* of the hook */
    const char *expected;
    const char *log; /* part of the line that a failure logs; NULL: none */
};

#define REGISTER MR_HOOK_REGISTER
#define CONNECT  MR_HOOK_CONNECT
#define CREATE   MR_HOOK_CREATE
#define DROP     MR_HOOK_DROP
#define FAILED   "failed policy-error by p"

static const struct answer_case answers[] = {
    {REGISTER, "", "none", NULL},
    {REGISTER, "return nil", "none", NULL},
    {REGISTER, "return nil, 'x'", "none", NULL},
    {REGISTER, "return {}", "admit", NULL},
    {REGISTER, "return { oid = 'ABCD', takeover = true }", "admit oid=ABCD takeover", NULL},
    {REGISTER, "return { tags = { user = 'bob', n = 5, f = 1.5 }, slots = { ['user/bob'] = 2 } }",
     "admit tags{f=1.5,n=5,user=bob} slots{user/bob=2}", NULL},
    {REGISTER, "return { slots = { k = 0 } }", "admit slots{k=0}", NULL},
    {REGISTER, "return false", "refuse p by p", NULL},
    {REGISTER, "return false, ''", "refuse p by p", NULL},
    {REGISTER, "return false, 'ticket-missing'", "refuse ticket-missing by p", NULL},
    {REGISTER, "return false, 'Bad\\nWord \\195\\164!'", "refuse -ad--ord---- by p", NULL},
    {REGISTER, "return false, ('x'):rep(1000000)",
     "refuse xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx by p", NULL},
    {REGISTER, "return false, 42", "refuse 42 by p", NULL},
    {REGISTER, "return false, {}", FAILED, "false and a reason, a table (a string is expected)"},
    {REGISTER, "return false, 'x', { mute = 1 }", FAILED, "only drop has one"},
    {REGISTER, "return true", FAILED, "returned true"},
    {REGISTER, "return 1", FAILED, "p.lua:1: returned a number"},
    {REGISTER, "return 'no'", FAILED, "returned a string"},
    {REGISTER, "return print", FAILED, "undeclared global 'print': write relay.log.info"},
    {REGISTER, "return function() end", FAILED, "returned a function"},
    {REGISTER, "return { ttl = 5 }", FAILED, "unknown key ttl"},
    {REGISTER, "return { takover = true }", FAILED, "did you mean takeover?"},
    {REGISTER, "return { takeover = 1 }", FAILED, "takeover, 1 (true or false is expected)"},
    {REGISTER, "return { 1 }", FAILED, "a key that is a number"},
    {REGISTER, "return { [{}] = 1 }", FAILED, "a key that is a table"},
    {REGISTER, "return { oid = '' }", FAILED, "1 to 256 of visible ASCII"},
    {REGISTER, "return { oid = 'A B' }", FAILED, "1 to 256 of visible ASCII"},
    {REGISTER, "return { oid = ('A'):rep(257) }", FAILED, "oid of 257 bytes"},
    {REGISTER, "return { oid = 5 }", FAILED, "oid, 5 (a string is expected)"},
    {REGISTER, "return { tags = 'x' }", FAILED, "tags, a string (a table is expected)"},
    {REGISTER, "return { tags = { 'x' } }", FAILED, "tags with a key that is a number"},
    {REGISTER, "return { tags = { user = {} } }", FAILED, "tags.user, a table"},
    {REGISTER, "return { tags = { user = true } }", FAILED, "tags.user, true"},
    {REGISTER, "return { tags = { user = 0/0 } }", FAILED, "tags.user, "},
    {REGISTER, "return { tags = { ['a b'] = 'x' } }", FAILED, "tags with the key 'a b'"},
    {REGISTER, "return { tags = { [('k'):rep(33)] = 'x' } }", FAILED, "1 to 32 bytes"},
    {REGISTER, "return { tags = { k = ('v'):rep(257) } }", FAILED, "257 bytes (at most 256"},
    {REGISTER, "local t = {} for i = 1, 33 do t['k' .. i] = 'v' end return { tags = t }", FAILED,
     "more than 32 tags"},
    {REGISTER, "return { slots = { k = -1 } }", FAILED, "slots.k, -1 (a whole number"},
    {REGISTER, "return { slots = { k = 1.5 } }", FAILED, "slots.k, 1.5"},
    {REGISTER, "return { slots = { k = 1/0 } }", FAILED, "slots.k, inf"},
    {REGISTER, "return { slots = { k = '1' } }", FAILED, "slots.k, a string"},
    {REGISTER, "return { slots = { k = 2^32 } }", FAILED, "slots.k, 4294967296"},
    {REGISTER, "return setmetatable({}, { __index = { oid = 'X' } })", FAILED,
     "a table with a metatable"},
    {REGISTER, "return { tags = setmetatable({}, {}) }", FAILED, "tags, a table with a metatable"},
    {CONNECT, "return { oid = 'OTHER', via = 'relay' }", "admit oid=OTHER via=relay", NULL},
    {CONNECT, "return { via = 'direct' }", "admit via=direct", NULL},
    {CONNECT, "return { via = 'tunnel' }", FAILED, "direct or relay is expected"},
    {CONNECT, "return { via = 'relay\\0x' }", FAILED, "direct or relay is expected"},
    {CONNECT, "return { tags = {} }", FAILED, "unknown key tags"},
    {CREATE, "return true", "none", NULL},
    {CREATE, "return {}", "admit", NULL},
    {CREATE,
     "return { ttl = 60, idle = 0.5, rate = { pps = 100, bps = 8192.9 }, max_bytes = 1e9,"
     " tags = { a = 'b' }, slots = { k = 1 } }",
     "admit tags{a=b} slots{k=1} ttl=60 idle=0.5 pps=100 bps=8192 max_bytes=1000000000", NULL},
    {CREATE, "return { ttl = 0 }", FAILED, "ttl, 0 (seconds above 0"},
    {CREATE, "return { ttl = -1 }", FAILED, "ttl, -1"},
    {CREATE, "return { ttl = 0/0 }", FAILED, "ttl, "},
    {CREATE, "return { ttl = 1/0 }", FAILED, "ttl, inf"},
    {CREATE, "return { ttl = 1e300 }", FAILED, "ttl, 1e+300"},
    {CREATE, "return { ttl = '60' }", FAILED, "ttl, a string"},
    {CREATE, "return { idle = {} }", FAILED, "idle, a table"},
    {CREATE, "return { rate = 100 }", FAILED, "rate, 100 (a table is expected)"},
    {CREATE, "return { rate = { pps = 0 } }", FAILED, "rate.pps, 0"},
    {CREATE, "return { rate = { bps = 0.5 } }", FAILED, "rate.bps, 0.5"},
    {CREATE, "return { rate = { bbs = 1 } }", FAILED, "unknown key rate.bbs; did you mean bps?"},
    {CREATE, "return { max_bytes = -5 }", FAILED, "max_bytes, -5"},
    {CREATE, "return { max_byte = 5 }", FAILED, "did you mean max_bytes?"},
    {CREATE, "return { hold = { packets = 4 } }", "admit hold_packets=4", NULL},
    {DROP, "return { hold = { packets = 0, bytes = 1500.7, ms = 250 } }",
     "admit hold_packets=0 hold_bytes=1500 hold_ms=250", NULL},
    {DROP, "return { hold = {} }", "admit", NULL},
    {DROP, "return { hold = 5 }", FAILED, "hold, 5 (a table is expected)"},
    {DROP, "return { hold = { packets = -1 } }", FAILED, "hold.packets, -1"},
    {DROP, "return { hold = { packets = 2^32 } }", FAILED, "hold.packets, 4294967296"},
    {DROP, "return { hold = { bytes = 0/0 } }", FAILED, "hold.bytes, "},
    {DROP, "return { hold = { ms = 60001 } }", FAILED, "hold.ms, 60001"},
    {DROP, "return { hold = { ms = '1' } }", FAILED, "hold.ms, a string"},
    {DROP, "return { hold = { packet = 1 } }", FAILED, "did you mean packets?"},
    {CREATE, "return { target = '10.0.0.1:5' }", FAILED, "target, which only drop may name"},
    {DROP, "return { target = '10.0.0.1:5' }", "admit target=10.0.0.1:5", NULL},
    {DROP, "return { target = '[2001:db8::1]:65535', idle = 60 }",
     "admit idle=60 target=[2001:db8::1]:65535", NULL},
    {DROP, "return { target = ('a'):rep(255) .. ':1' }", NULL, NULL},
    {DROP, "return { target = ('a'):rep(256) .. ':1' }", FAILED, "host:port or"},
    {DROP, "return { target = 'a.fleet' }", FAILED,
     "target, 'a.fleet' (host:port or [IPv6]:port is expected)"},
    {DROP, "return { target = 'a.fleet:0' }", FAILED, "target, 'a.fleet:0'"},
    {DROP, "return { target = 'a.fleet:65536' }", FAILED, "target, 'a.fleet:65536'"},
    {DROP, "return { target = 'a.fleet:7\\0' }", FAILED, "target, 'a.fleet:7"},
    {DROP, "return { target = '2001:db8::1:7' }", FAILED, "target, '2001:db8::1:7'"},
    {DROP, "return { target = 7777 }", FAILED, "target, 7777 (a text, host:port, is expected)"},
    {DROP, "return { target = {} }", FAILED, "target, a table (a text"},
    {CREATE, "return { ['ttl\\0x'] = 5 }", FAILED, "unknown key ttl"},
    {DROP, "return {}", "admit", NULL},
    {DROP, "return { idle = 60 }", "admit idle=60", NULL},
    {DROP, "return true", FAILED, "a datagram is admitted by a spec, {} for the defaults"},
    {DROP, "return false", "refuse p by p", NULL},
    {DROP, "return false, 'flood', { mute = 2.5 }", "refuse flood by p mute=2.5", NULL},
    {DROP, "return false, nil, { mute = 10 }", "refuse p by p mute=10", NULL},
    {DROP, "return false, 'x', { mute = 0 }", FAILED, "mute, 0"},
    {DROP, "return false, 'x', { mute = 1e9 }", FAILED, "mute, 1000000000"},
    {DROP, "return false, 'x', { mut = 1 }", FAILED, "did you mean mute?"},
    {DROP, "return false, 'x', 5", FAILED, "a third value, 5"},
};

static void check_answer(const struct answer_case *c)
{
    static const char *const names[] = {"register", "connect", "create", "drop"};
    struct hook_event ev = rig_event(c->hook);
    char text[1024];

    rig.log_n = 0;
    rig.log_text[0] = '\0';
    snprintf(text, sizeof text, "return { %s = function(ev) %s end }", names[c->hook], c->body);
    CHECK_EQ(rig_load_policy(&rig, text), 0);
    if (!rig.policies) {
        fprintf(stderr, "# %s\n# %s\n", c->body, rig.err.text);
        return;
    }
    const char *got = rig_ask(&rig, &ev);
    if (c->expected) {
        CHECK_STR(got, c->expected);
    }
    CHECK(c->log ? strstr(rig.log_text, c->log) != NULL : rig.log_n == 0);
    if (c->log && !strstr(rig.log_text, c->log)) {
        fprintf(stderr, "# expected in the log: %s\n# %s", c->log, rig.log_text);
    }
}

TEST(an_answer_is_taken_as_written_or_refused_with_the_reason_in_the_log)
{
    rig_start(&rig);
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        check_answer(&answers[i]);
    }
    rig_end(&rig);
}

/* ---- answers of two policies ----------------------------------------------------------------- */

static const struct {
    enum hook hook;
    const char *first, *second, *expected;
} merges[] = {
    {CREATE, "", "return { ttl = 5 }", "admit ttl=5"},
    {CREATE, "return { ttl = 5 }", "", "admit ttl=5"},
    {CREATE, "return { ttl = 5, idle = 9 }", "return { ttl = 7, idle = 8 }", "admit ttl=5 idle=8"},
    {CREATE, "return { rate = { bps = 8192 } }", "return { rate = { bps = 1e9, pps = 10 } }",
     "admit pps=10 bps=8192"},
    {CREATE, "return { max_bytes = 7 }", "return { max_bytes = 6 }", "admit max_bytes=6"},
    {DROP, "return { hold = { packets = 4, ms = 9 } }",
     "return { hold = { packets = 5, bytes = 1, ms"
     " = 8 } }",
     "admit hold_packets=4 hold_bytes=1 hold_ms=8"},
    {DROP, "return { target = 'a:1', idle = 5 }", "return { target = 'b:2' }",
     "admit idle=5 target=b:2"},
    {DROP, "return { target = 'a:1' }", "return {}", "admit target=a:1"},
    {CREATE, "return { tags = { a = '1', b = '1' } }", "return { tags = { b = '2', c = '2' } }",
     "admit tags{a=1,b=2,c=2}"},
    {CREATE, "return { slots = { x = 3, y = 1 } }", "return { slots = { x = 2, y = 4, z = 9 } }",
     "admit slots{x=2,y=1,z=9}"},
    {CREATE, "return { ttl = 5 }", "return false, 'no'", "refuse no by b"},
    {CREATE, "return false, 'no'", "error('never asked')", "refuse no by a"},
    {CREATE, "error('x')", "return { ttl = 5 }", "failed policy-error by a"},
    {CREATE, "return { ttl = 5 }", "return { ttl = -5 }", "failed policy-error by b"},
    {CREATE, "return true", "return true", "none"},
    {REGISTER, "return { oid = 'A', takeover = true }", "return { oid = 'B' }",
     "admit oid=B takeover"},
    {REGISTER, "return { oid = 'A', takeover = true }", "return { takeover = false }",
     "admit oid=A"},
    {REGISTER, "return { tags = { a = '1' } }",
     "return ev.tags.a == '1' and { tags = { seen = 'yes' } } or false",
     "admit tags{a=1,seen=yes}"},
    {REGISTER, "ev.tags.a = 'poison' ev.session.oid = 'poison' ev.meta = nil",
     "return ev.tags.a == nil and ev.session.oid == 'HOST' and ev.meta.ticket == 't' and {}",
     "admit"},
    {CONNECT, "return { via = 'direct', oid = 'A' }", "return { via = 'relay' }",
     "admit oid=A via=relay"},
    {DROP, "return {}", "return false, 'no', { mute = 3 }", "refuse no by b mute=3"},
    {DROP, "return {}", "error('x')", "failed policy-error by b"},
    {DROP, "", "", "none"},
    {REGISTER, "local t = {} for i = 1, 32 do t['k' .. i] = 'v' end return { tags = t }",
     "return { tags = { k1 = 'w', k33 = 'w' } }", "failed policy-error by b"},
    {REGISTER, "local t = {} for i = 1, 32 do t['k' .. i] = i end return { slots = t }",
     "return { slots = { more = 1 } }", "failed policy-error by b"},
};

static int load_two(const char *hook, const char *first, const char *second, const char *config)
{
    char text[1024];

    snprintf(text, sizeof text, "return { %s = function(ev) %s end }", hook, first);
    rig_file(&rig, "a.lua", text);
    snprintf(text, sizeof text, "return { %s = function(ev) %s end }", hook, second);
    rig_file(&rig, "b.lua", text);
    return rig_load(&rig, config);
}

TEST(answers_of_a_chain_become_one_by_the_merge_rules)
{
    static const char *const names[] = {"register", "connect", "create", "drop"};

    rig_start(&rig);
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++) {
        struct hook_event ev = rig_event(merges[i].hook);

        REQUIRE_EQ(load_two(names[merges[i].hook], merges[i].first, merges[i].second,
                            "return { policies = { './a.lua', './b.lua' } }"),
                   0);
        CHECK_STR(rig_ask(&rig, &ev), merges[i].expected);
    }
    rig_end(&rig);
}

/* ---- the chain ------------------------------------------------------------------------------- */

TEST(a_policy_whose_errors_are_skipped_costs_nobody_anything)
{
    struct hook_event ev = rig_event(CREATE);

    rig_start(&rig);
    REQUIRE_EQ(load_two("create", "error('broken')", "return { ttl = 5 }",
                        "return { policies = { { './a.lua', on_error = 'skip' }, './b.lua' } }"),
               0);
    CHECK_STR(rig_ask(&rig, &ev), "admit ttl=5");
    CHECK(strstr(rig.log_text, "broken") != NULL);
    REQUIRE_EQ(load_two("create", "return false", "return { ttl = 5 }",
                        "return { policies = { { './a.lua', on_error = 'skip' }, './b.lua' } }"),
               0);
    CHECK_STR(rig_ask(&rig, &ev), "refuse a by a");
    rig_end(&rig);
}

TEST(a_shadow_is_asked_and_counted_and_decides_nothing)
{
    struct hook_event ev = rig_event(CREATE);
    struct metrics *m;
    size_t n;
    char *page;

    rig_start(&rig);
    REQUIRE_EQ(load_two("create", "if ev.now > 0 then return false, 'shadowed' end",
                        "return { ttl = 5 }",
                        "return { policies = { { './a.lua', shadow = true }, './b.lua' } }"),
               0);
    CHECK_STR(rig_ask(&rig, &ev), "admit ttl=5");
    m = mr__metrics_create();
    REQUIRE(m != NULL);
    mr__policies_metrics(rig.policies, m);
    page = mr__metrics_finish(m, &n);
    REQUIRE(page != NULL);
    CHECK(strstr(page, "moonrelay_policy_refusals_total{policy=\"a\",hook=\"create\",reason="
                       "\"shadowed\"} 1\n") != NULL);
    CHECK(strstr(page, "moonrelay_script_calls_total{hook=\"create\",result=\"refuse\"} 1\n") !=
          NULL);
    CHECK(strstr(page, "moonrelay_script_calls_total{hook=\"create\",result=\"admit\"} 1\n") !=
          NULL);
    CHECK(strstr(page, "moonrelay_script_duration_seconds_count{policy=\"b\",hook=\"create\"} 1"
                       "\n") != NULL);
    mr__free(page);
    REQUIRE_EQ(load_two("create", "return { ttl = 1 }", "return { ttl = 5 }",
                        "return { policies = { { './a.lua', shadow = true }, './b.lua' } }"),
               0);
    CHECK_STR(rig_ask(&rig, &ev), "admit ttl=5");
    REQUIRE_EQ(load_two("create", "error 'x'", "return { ttl = 5 }",
                        "return { policies = { { './a.lua', shadow = true }, './b.lua' } }"),
               0);
    CHECK_STR(rig_ask(&rig, &ev), "admit ttl=5");
    rig_end(&rig);
}

TEST(only_hooks_that_a_policy_defines_are_wanted)
{
    const struct hooks *hooks;
    struct policy_info info;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "return { connect = function() end }"), 0);
    hooks = mr__policies_hooks(rig.policies);
    CHECK(hooks->wants(hooks->self, MR_HOOK_CONNECT));
    CHECK(!hooks->wants(hooks->self, MR_HOOK_REGISTER));
    CHECK(!hooks->wants(hooks->self, MR_HOOK_DESTROYED));
    REQUIRE_EQ(mr__policies_count(rig.policies), 1);
    mr__policies_info(rig.policies, 0, &info);
    CHECK_STR(info.name, "p");
    CHECK(strstr(info.origin, "/p.lua") != NULL);
    REQUIRE_EQ(rig_load(&rig, "return { policies = {} }"), 0);
    CHECK_EQ(mr__policies_count(rig.policies), 0);
    hooks = mr__policies_hooks(rig.policies);
    CHECK(!hooks->wants(hooks->self, MR_HOOK_DROP));
    rig_end(&rig);
}

TEST(a_notice_reaches_every_policy_whatever_one_of_them_raises)
{
    struct hook_event ev = rig_event(MR_HOOK_DESTROYED);
    const struct hooks *hooks;

    rig_start(&rig);
    REQUIRE_EQ(
        load_two("destroyed", "error('first')",
                 "require('relay').log.info('ended', { id = ev.relay.id, reason = ev.reason,"
                 " age = ev.relay.age, bytes = ev.relay.bytes_in, session = ev.relay.session })"
                 " return false",
                 "return { policies = { './a.lua', './b.lua' } }"),
        0);
    hooks = mr__policies_hooks(rig.policies);
    hooks->tell(hooks->self, &ev);
    CHECK(strstr(rig.log_text, "first") != NULL);
    CHECK(strstr(rig.log_text, "ended") != NULL);
    CHECK(strstr(rig.log_text, "51200.17") != NULL);
    CHECK(strstr(rig.log_text, "policy=b") != NULL);
    rig_end(&rig);
}

/* done() of a datagram asks for its relay before it returns. */
static char inner[256];

static void on_outer(struct hook_request *req, const struct hook_answer *a)
{
    struct hook_event ev = rig_event(CREATE);

    (void)req;
    snprintf(inner, sizeof inner, "%s", rig_ask(&rig, &ev));
    CHECK_EQ(a->outcome, MR_HOOK_ADMIT);
    REQUIRE_EQ(a->tags.n, 1);
    CHECK_MEM(a->tags.items[0].value.s, a->tags.items[0].value.n, "outer", (size_t)5);
}

TEST(an_answer_stays_valid_while_its_receiver_asks_again)
{
    struct hook_event ev = rig_event(DROP);
    struct hook_request req = {.done = on_outer};
    const struct hooks *hooks;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig,
                               "return {"
                               " drop = function() return { tags = { a = 'outer' } } end,"
                               " create = function() return { tags = { a = 'inner' } } end }"),
               0);
    hooks = mr__policies_hooks(rig.policies);
    hooks->ask(hooks->self, &req, &ev);
    CHECK_STR(inner, "admit tags{a=inner}");
    rig_end(&rig);
}

/* ---- ev -------------------------------------------------------------------------------------- */

static void check_event(enum hook hook, const char *name, const char *body)
{
    struct hook_event ev = rig_event(hook);
    char text[2048];

    snprintf(text, sizeof text,
             "local function eq(a, b) if a ~= b then error(tostring(a) .. ' is not ' .."
             " tostring(b), 2) end end\n"
             "return { %s = function(ev)\n"
             "eq(ev.now, 1700000000.5) eq(ev.id, '7') eq(type(ev.tags), 'table')"
             " eq(ev.meta.ticket, 't')\n%s end }",
             name, body);
    CHECK_EQ(rig_load_policy(&rig, text), 0);
    if (rig.policies) {
        CHECK_STR(rig_ask(&rig, &ev), "none");
    }
    if (rig.log_n > 0) {
        fprintf(stderr, "# %s\n", rig.log_text);
    }
}

TEST(ev_carries_the_fields_of_its_hook)
{
    rig_start(&rig);
    check_event(REGISTER, "register",
                "local s = ev.session eq(s.id, '12') eq(s.oid, 'HOST') eq(s.ip, '10.0.0.1')"
                " eq(s.net, '10.0.0.1') eq(s.addr.text, '10.0.0.1:4000') eq(s.addr.port, 4000)"
                " eq(s.addr.family, 4) eq(s.tags.user, 'alice') eq(s.meta.ticket, 't')"
                " eq(s.since, 1699999999) eq(s.joins, 0) eq(ev.addr, nil) eq(ev.reason, nil)");
    check_event(CONNECT, "connect",
                "eq(ev.from.oid, 'CLIENT') eq(ev.to.oid, 'HOST') eq(ev.oid, 'HOST')"
                " eq(ev.mode, 'relay') eq(ev.session, nil)");
    check_event(CREATE, "create",
                "eq(ev.reason, 'connect') eq(ev.addr.net, '10.0.0.1') eq(ev.session.id, '12')"
                " eq(ev.peer.id, '13') eq(ev.peek, nil)");
    check_event(DROP, "drop",
                "eq(ev.reason, 'unknown_sender') eq(ev.sender.ip, '2001:db8:1:2::5')"
                " eq(ev.sender.net, '2001:db8:1:2::/64') eq(ev.sender.family, 6)"
                " eq(ev.sender.text, '[2001:db8:1:2::5]:4000') eq(ev.addr.ip, ev.sender.ip)"
                " eq(ev.port, 51200) eq(ev.size, 100) eq(ev.known, false)"
                " eq(ev:peek(), 'hello') eq(ev:peek(2), 'he') eq(ev:peek(0), '')"
                " eq(pcall(ev.peek, ev, 65), false) eq(pcall(ev.peek, ev, 0/0), false)"
                " eq(pcall(ev.peek, 5), false)");
    CHECK_EQ(rig.log_n, 0);
    rig_end(&rig);
}

/* ---- dynamic --------------------------------------------------------------------------------- */

static const char *ask_dynamic(const char *reason, bool known)
{
    struct hook_event ev = rig_event(DROP);

    ev.reason = rig_str(reason);
    ev.known = known;
    return rig_ask(&rig, &ev);
}

TEST(dynamic_admits_known_senders_and_anyone_when_told_so)
{
    struct policy_info info;

    rig_start(&rig);
    REQUIRE_EQ(rig_load(&rig, "return {}"), 0);
    REQUIRE_EQ(mr__policies_count(rig.policies), 1);
    mr__policies_info(rig.policies, 0, &info);
    CHECK_STR(info.name, "dynamic");
    CHECK_STR(info.origin, "shipped");
    CHECK_STR(ask_dynamic("unknown_sender", true), "admit");
    CHECK_STR(ask_dynamic("unknown_sender", false), "none");
    CHECK_STR(ask_dynamic("not_paired", true), "none");
    CHECK_STR(ask_dynamic("unknown_target", true), "none");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { { 'dynamic', from = 'anyone' } } }"), 0);
    CHECK_STR(ask_dynamic("unknown_sender", false), "admit");
    CHECK_STR(ask_dynamic("not_paired", false), "none");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { { 'dynamic', from = 'sessions' } } }"), 0);
    CHECK_STR(ask_dynamic("unknown_sender", false), "none");
    CHECK_EQ(rig_load(&rig, "return { policies = { { 'dynamic', from = 'all' } } }"), -EINVAL);
    CHECK(strstr(rig.err.text, "policy dynamic: load: ") != NULL);
    CHECK(strstr(rig.err.text,
                 "moonrelay.lua:1: from = all (one of sessions, anyone is expected)") != NULL);
    CHECK_EQ(rig_load(&rig, "return { policies = { { 'dynamic', form = 'anyone' } } }"), -EINVAL);
    CHECK(strstr(rig.err.text, "moonrelay.lua:1: unknown setting 'form' (known: from)") != NULL);
    rig_end(&rig);
}

/* ---- figures --------------------------------------------------------------------------------- */

TEST(reasons_of_a_policy_are_bounded_in_metrics)
{
    struct hook_event ev = rig_event(DROP);
    struct metrics *m;
    size_t n, lines = 0;
    char *page;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local n = 0 return { drop = function() n = n + 1"
                                     " return false, 'reason-' .. n end }"),
               0);
    for (int i = 0; i < 100; i++) {
        rig_ask(&rig, &ev);
    }
    m = mr__metrics_create();
    REQUIRE(m != NULL);
    mr__policies_metrics(rig.policies, m);
    page = mr__metrics_finish(m, &n);
    REQUIRE(page != NULL);
    for (const char *p = page; (p = strstr(p, "\nmoonrelay_policy_refusals_total{")); p++) {
        lines++;
    }
    CHECK_EQ(lines, 33);
    CHECK(strstr(page, "reason=\"other\"} 68\n") != NULL);
    mr__free(page);
    rig_end(&rig);
}

TEST(a_failing_policy_does_not_flood_the_log)
{
    struct hook_event ev = rig_event(DROP);
    size_t lines = 0;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "return { drop = function() error('again') end }"), 0);
    for (int i = 0; i < 1000; i++) {
        rig_ask(&rig, &ev);
    }
    for (size_t i = 0; i < rig.log_n; i++) {
        lines += rig.log_text[i] == '\n';
    }
    CHECK_GE(lines, 1);
    CHECK_LE(lines, 30);
    rig_end(&rig);
}

TEST_MAIN(TEST_CASE(an_answer_is_taken_as_written_or_refused_with_the_reason_in_the_log),
          TEST_CASE(answers_of_a_chain_become_one_by_the_merge_rules),
          TEST_CASE(a_policy_whose_errors_are_skipped_costs_nobody_anything),
          TEST_CASE(a_shadow_is_asked_and_counted_and_decides_nothing),
          TEST_CASE(only_hooks_that_a_policy_defines_are_wanted),
          TEST_CASE(a_notice_reaches_every_policy_whatever_one_of_them_raises),
          TEST_CASE(an_answer_stays_valid_while_its_receiver_asks_again),
          TEST_CASE(ev_carries_the_fields_of_its_hook),
          TEST_CASE(dynamic_admits_known_senders_and_anyone_when_told_so),
          TEST_CASE(reasons_of_a_policy_are_bounded_in_metrics),
          TEST_CASE(a_failing_policy_does_not_flood_the_log))
