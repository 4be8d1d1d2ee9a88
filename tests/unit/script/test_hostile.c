/* SPDX-License-Identifier: MIT */
/*
 * The constructs that are fatal to LuaJIT without a guard, in every place from which a
 * policy's code is called: each costs its own call only, and the next one works. Start
 * reading at the two tables.
 */
#include "base/alloc.h"
#include "rig.h"
#include "script/chain.h"
#include "test.h"

#include <errno.h>

static struct rig rig;

/* Every one of these ends as an error. */
static const char *const bodies[] = {
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "while true do xpcall(error, function() while true do end end) end",
    "coroutine.wrap(function() while true do end end)()",
    "local co = coroutine.wrap(function() while true do coroutine.yield() end end)"
    " while true do co() end",
    "local t = setmetatable({}, { __index = function() while true do end end }) local _ = t.x",
    "local t = setmetatable({}, { __gc = function() while true do end end }) t = nil"
    " while true do local _ = {} end",
    "local t = setmetatable({}, { __tostring = function() while true do end end }) tostring(t)",
    "table.sort({ 3, 2, 1 }, function() while true do end end)",
    "local _ = ('x.'):rep(2000):match('^(.-)%.(.-)%.(.-)%.(.-)%.(.+)=$')",
    "local _ = ('a'):rep(1e5):gsub('.-.-.-b', 'x')",
    "local _ = ('x'):rep(1e9)",
    "local s = 'x' while true do s = s .. s end",
    "local t = {} for i = 1, 5000 do t[i] = ('x'):rep(1e4) end local _ = table.concat(t)",
    "local t = {} while true do t = { t, t } end",
    "local t = {} for i = 1, 1e9 do t[i] = {} end",
    "local t = {} for i = 1, 1e9 do t['k' .. i] = i end",
    "local function f() return 1 + f() end f()",
    "local function f(...) return f(1, ...) end f()",
    "local function f() coroutine.wrap(f)() end f()",
    "local function f() return (('x'):gsub('x', f)) end f()",
    "local _ = ('%99.99f'):rep(2e5):format(1)",
    "unpack({}, 1, 1e8)",
    "local t = {} for i = 1, 3e5 do t[i] = '' end while true do local _ = table.concat(t) end",
    "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.remove(t, 1) end",
    "local s = ('1'):rep(1e6) while true do local _ = s + 1 end",
    "coroutine.yield()",
    "error(setmetatable({}, { __tostring = function() while true do end end }))",
};

enum place { FILE_ITSELF, REQUIRED, LOAD, LOAD_WAITED, HOOK, HOOK_WAITED, TIMER, EVERY, COMMAND };

static const struct {
    enum place place;
    enum hook hook;
} places[] = {
    {FILE_ITSELF, 0},
    {REQUIRED, 0},
    {LOAD, 0},
    {LOAD_WAITED, 0},
    {HOOK, MR_HOOK_REGISTER},
    {HOOK, MR_HOOK_CONNECT},
    {HOOK, MR_HOOK_CREATE},
    {HOOK, MR_HOOK_DROP},
    {HOOK, MR_HOOK_CONNECTED},
    {HOOK, MR_HOOK_CREATED},
    {HOOK, MR_HOOK_DESTROYED},
    {HOOK, MR_HOOK_LEFT},
    {HOOK_WAITED, MR_HOOK_CREATE},
    {HOOK_WAITED, MR_HOOK_DESTROYED},
    {TIMER, 0},
    {EVERY, 0},
    {COMMAND, 0},
};

#define GOOD " commands = { good = function() return ('x'):upper() .. #tostring({}) end }"

/* Loads a policy that does it in a place where loading goes well. */
static int load_bad(enum place place, enum hook hook, const char *body)
{
    static const char *const forms[] = {
        [FILE_ITSELF] = "%s return {}",
        [REQUIRED] = "require 'bad' return {}--%s",
        [LOAD] = "return { load = function() %s end }",
        [LOAD_WAITED] = "local relay = require 'relay' return { load = function() relay.sleep(1) %s"
                        " end }",
        [TIMER] = "require('relay').after(1, function() %s end) return {" GOOD " }",
        [EVERY] = "require('relay').every(1, function() %s end) return {" GOOD " }",
        [COMMAND] = "return { commands = { bad = function() %s end, good = function() return"
                    " ('x'):upper() .. #tostring({}) end } }",
    };
    char text[2048], form[256];

    if (place == HOOK || place == HOOK_WAITED) {
        snprintf(form, sizeof form,
                 "local relay = require 'relay' return { %s = function() %s%%s end, " GOOD " }",
                 mr__policies_hook_name(hook), place == HOOK ? "" : "relay.sleep(1) ");
    } else {
        snprintf(form, sizeof form, "%s", forms[place]);
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, form, body);
#pragma GCC diagnostic pop
    rig_file(&rig, "bad.lua", body);
    return rig_load_policy(&rig, text);
}

/* Does it; what it says is in the log or in rig.err. */
static void provoke(enum place place, enum hook hook)
{
    const struct hooks *hooks = mr__policies_hooks(rig.policies);
    struct hook_event ev = rig_event(hook);
    struct rig_request req;
    struct rig_answer answer;

    if (place == COMMAND) {
        CHECK_EQ(strncmp(rig_call(&rig, &answer, "p", "bad", NULL), "-", 1), 0);
    } else if (place == TIMER || place == EVERY) {
        rig_advance(&rig, 1.1);
    } else if (hook >= MR_HOOK_CONNECTED) {
        hooks->tell(hooks->self, &ev);
        rig_advance(&rig, 1.1);
    } else {
        rig_start_asking(&rig, &req, &ev);
        rig_advance(&rig, 1.1);
        CHECK_STR(req.text, "failed policy-error by p");
    }
    CHECK(strstr(rig.log_text, "hook failed") != NULL);
}

TEST(a_fatal_construct_costs_its_own_call_only_wherever_it_is)
{
    struct rig_answer answer;

    rig_start(&rig);
    rig.load.cpu_ns = 10000000;
    rig.load.load_cpu_ns = 10000000;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        for (size_t k = 0; k < sizeof bodies / sizeof bodies[0]; k++) {
            int rc = load_bad(places[i].place, places[i].hook, bodies[k]);

            rig.log_n = 0;
            rig.log_text[0] = '\0';
            if (places[i].place <= LOAD_WAITED) {
                CHECK_LT(rc, 0);
                CHECK(strstr(rig.err.text, "policy p: ") != NULL);
                continue;
            }
            REQUIRE_EQ(rc, 0);
            for (int again = 0; again < 2; again++) {
                provoke(places[i].place, places[i].hook);
                rig_call(&rig, &answer, "p", "good", NULL);
                CHECK_EQ(answer.text[0], 'X');
                if (answer.text[0] != 'X') {
                    fprintf(stderr, "# %zu: %s\n# %s\n", i, bodies[k], answer.text);
                }
                if (places[i].place == TIMER) {
                    break;
                }
            }
        }
    }
    rig_end(&rig);
}

/* ---- memory that ends anywhere --------------------------------------------------------------- */

static const char waits_a_lot[] =
    "local relay = require 'relay'\n"
    "relay.every(0.3, function() relay.sleep(0.1) relay.after(0.1, function() end) end)\n"
    "return { load = function() relay.sleep(0.1) end,\n"
    "create = function(ev) relay.sleep(0.1) local a = relay.await(function(done)"
    " relay.after(0.1, function() done({ ev.session.oid .. 'x' }) end) end, 1)"
    " return { tags = { a = a[1] }, ttl = 5 } end,\n"
    "destroyed = function(ev) relay.sleep(0.2) local t = { ev.reason .. ev.relay.id } end,\n"
    "commands = { go = function(x) relay.sleep(0.1) return { x, 1 } end } }";

/* A whole life: load, a chain, notices, timers and a command that wait, a reload. */
static void live(void)
{
    const struct hooks *hooks = mr__policies_hooks(rig.policies);
    struct hook_event create = rig_event(MR_HOOK_CREATE), destroyed = rig_event(MR_HOOK_DESTROYED);
    struct rig_request req;
    struct rig_answer answer;

    rig_start_asking(&rig, &req, &create);
    hooks->tell(hooks->self, &destroyed);
    rig_call(&rig, &answer, "p", "go", "arg");
    rig_advance(&rig, 2.5); /* done() that was not called for want of memory ends by time */
    CHECK_EQ(req.calls, 1);
    CHECK_EQ(answer.calls, 1);
    CHECK(strcmp(req.text, "admit tags{a=HOSTx} ttl=5") == 0 ||
          strncmp(req.text, "failed policy-error by ", 23) == 0);
    CHECK(strcmp(answer.text, "json [\"arg\",1]") == 0 || answer.text[0] == '-');
}

TEST(memory_of_lua_that_ends_anywhere_is_an_error_of_that_call)
{
    unsigned admitted = 0, failed = 0, refused = 0;

    rig_start(&rig);
    for (size_t cap = 60000; cap < 400000; cap += 797) {
        struct hook_event ev = rig_event(MR_HOOK_CREATE);

        rig.load.memory_bytes = cap;
        rig.log_n = 0;
        if (rig_load_policy(&rig, waits_a_lot) != 0) {
            CHECK(strstr(rig.err.text, "not enough memory") != NULL);
            refused++;
            continue;
        }
        live();
        live();
        struct rig_request req;
        rig_start_asking(&rig, &req, &ev);
        rig_advance(&rig, 2.5);
        admitted += req.text[0] == 'a';
        failed += req.text[0] == 'f';
        CHECK_EQ(rig.policies->runs.depth, 0);
    }
    CHECK_GT(refused, 0);
    CHECK_GT(admitted, 0);
    CHECK_GT(failed, 0);
    rig_end(&rig);
}

/* One thing after the other: the n-th allocation of Lua in it fails, and no other. */
TEST(any_single_allocation_of_lua_may_fail)
{
    bool has_ended = false;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, waits_a_lot), 0);
    for (long n = 0; n < 3000 && !has_ended; n++) {
        struct script_state *st = &rig.policies->generation->state;

        lua_gc(st->L, LUA_GCSTOP, 0);
        mr__state_fail_alloc(n + 1);
        live();
        has_ended = mr__state_will_fail();
        mr__state_fail_alloc(0);
        lua_gc(st->L, LUA_GCRESTART, 0);
        lua_gc(st->L, LUA_GCCOLLECT, 0);
        CHECK_EQ(rig.policies->runs.n_waiting[RUN_DECISION], 0);
        CHECK_EQ(lua_gettop(st->L), 0);
    }
    CHECK(has_ended);
    live();
    CHECK(strstr(rig.log_text, "not enough memory") != NULL);
    rig_end(&rig);
}

TEST(any_single_allocation_of_ours_may_fail)
{
    bool has_ended = false;

    rig_start(&rig);
    for (long n = 0; n < 3000 && !has_ended; n++) {
        long before;

        REQUIRE_EQ(rig_load_policy(&rig, waits_a_lot), 0);
        before = mr__alloc_live();
        mr__alloc_fail_after(n);
        live();
        mr__alloc_fail_after(-1);
        has_ended = n > 60; /* far more than a life takes */
        live();
        CHECK_LE(mr__alloc_live(), before + 40);
        CHECK_EQ(rig.policies->runs.depth, 0);
    }
    rig_end(&rig);
    CHECK_EQ(mr__alloc_live(), 0);
}

/* ---- bounds of what waits -------------------------------------------------------------------- */

static const struct {
    enum hook hook;
    size_t max;
} bounds[] = {{MR_HOOK_CREATE, 1024}, {MR_HOOK_DESTROYED, 1024}};

TEST(what_waits_is_bounded_and_the_rest_is_told_so_at_once)
{
    static struct rig_request reqs[1100];
    const struct hooks *hooks;
    struct hook_event ev = rig_event(MR_HOOK_CREATE);
    unsigned busy = 0;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay' return { create = function(ev)"
                                     " if ev.size ~= 1 then relay.sleep(1.5) end return {} end }"),
               0);
    for (size_t i = 0; i < 1100; i++) {
        rig_start_asking(&rig, &reqs[i], &ev);
        busy += strcmp(reqs[i].text, "busy") == 0;
    }
    CHECK_EQ(busy, 1100 - bounds[0].max);
    CHECK_EQ(rig.policies->runs.n_waiting[RUN_DECISION], bounds[0].max);
    hooks = mr__policies_hooks(rig.policies);
    hooks->cancel(hooks->self, &reqs[3].request);
    CHECK_STR(rig_start_asking(&rig, &reqs[3], &ev), "");
    rig_advance(&rig, 2);
    for (size_t i = 0; i < bounds[0].max; i++) {
        CHECK_STR(reqs[i].text, "admit");
    }
    CHECK_EQ(rig.policies->runs.n_waiting[RUN_DECISION], 0);
    rig_end(&rig);
}

TEST(notices_that_wait_are_bounded_and_what_is_lost_is_logged)
{
    const struct hooks *hooks;
    struct hook_event ev = rig_event(MR_HOOK_DESTROYED);

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay' return { destroyed = function()"
                                     " relay.sleep(20) end }"),
               0);
    hooks = mr__policies_hooks(rig.policies);
    for (int i = 0; i < 1100; i++) {
        hooks->tell(hooks->self, &ev);
    }
    CHECK_EQ(rig.policies->runs.n_waiting[RUN_NOTICE], bounds[1].max);
    CHECK(strstr(rig.log_text, "relay.sleep: 1024 of this kind wait already") != NULL);
    rig_advance(&rig, 21);
    CHECK_EQ(rig.policies->runs.n_waiting[RUN_NOTICE], 0);
    rig_end(&rig);
}

TEST(a_notice_may_wait_thirty_seconds_and_each_policy_has_its_own)
{
    const struct hooks *hooks;
    struct hook_event ev = rig_event(MR_HOOK_DESTROYED);

    rig_start(&rig);
    rig_file(&rig, "a.lua",
             "local relay = require 'relay' return { destroyed = function(ev)"
             " relay.sleep(29) relay.log.info('a ' .. ev.relay.id) relay.sleep(2)"
             " end }");
    rig_file(&rig, "b.lua",
             "local relay = require 'relay' return { destroyed = function(ev)"
             " relay.sleep(1) relay.log.info('b ' .. ev.relay.id) end }");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { './a.lua', './b.lua' } }"), 0);
    hooks = mr__policies_hooks(rig.policies);
    hooks->tell(hooks->self, &ev);
    rig_spoil_event();
    rig_advance(&rig, 1.1);
    CHECK(strstr(rig.log_text, "b 51200.17") != NULL);
    CHECK(strstr(rig.log_text, "a 51200.17") == NULL);
    rig_advance(&rig, 28);
    CHECK(strstr(rig.log_text, "a 51200.17") != NULL);
    CHECK(strstr(rig.log_text, "waited longer") == NULL);
    rig_advance(&rig, 1);
    CHECK(strstr(rig.log_text, "a.lua:1: waited longer than 30 s") != NULL);
    rig_end(&rig);
}

TEST(a_shadow_that_hangs_delays_no_decision_and_is_counted)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);
    struct policy_info info;

    rig_start(&rig);
    rig_file(&rig, "a.lua",
             "local relay = require 'relay' return { create = function(ev)"
             " relay.sleep(ev.tags.slow and 5 or 1) return false, ev.reason end }");
    rig_file(&rig, "b.lua", "return { create = function() return { ttl = 5 } end }");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { { './a.lua', shadow = true }, './b.lua' } }"),
               0);
    CHECK_STR(rig_ask(&rig, &ev), "admit ttl=5");
    rig_spoil_event();
    rig_advance(&rig, 1.1);
    mr__policies_info(rig.policies, 0, &info);
    CHECK_EQ(info.hooks[MR_HOOK_CREATE].refusals, 1);
    struct hook_pair slow = {rig_str("slow"), rig_str("1")};
    ev = rig_event(MR_HOOK_CREATE);
    ev.tags = (struct hook_map){&slow, 1};
    CHECK_STR(rig_ask(&rig, &ev), "admit ttl=5");
    rig_advance(&rig, 2.1);
    CHECK(strstr(rig.log_text, "waited longer than 2 s") != NULL);
    rig_end(&rig);
}

static unsigned n_read;

/* Stands for what a script does to the service: it is told of that at once. */
static host_job on_read(void *user, struct str folder, struct str path, size_t max_bytes,
                        void (*done)(void *arg, const struct host_file *f), void *arg)
{
    const struct hooks *hooks = mr__policies_hooks(rig.policies);
    struct hook_event ev = rig_event(MR_HOOK_DESTROYED);

    (void)user;
    (void)folder;
    (void)path;
    (void)max_bytes;
    (void)done;
    (void)arg;
    CHECK_EQ(rig.policies->runs.depth, 1);
    if (n_read++ < 20) {
        hooks->tell(hooks->self, &ev);
    }
    return 1;
}

static void on_cancel(void *user, host_job job)
{
    (void)user;
    CHECK_EQ(job, 1);
}

TEST(what_a_script_causes_is_told_after_it_and_not_inside_of_it)
{
    const struct hooks *hooks;
    struct hook_event ev = rig_event(MR_HOOK_DESTROYED);

    rig_start(&rig);
    n_read = 0;
    rig.opts.host.read = on_read;
    rig.opts.host.cancel = on_cancel;
    REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay' return { destroyed ="
                                     " function(ev) relay.log.info('told ' .. ev.relay.id)"
                                     " relay.read('x') end }"),
               0);
    hooks = mr__policies_hooks(rig.policies);
    hooks->tell(hooks->self, &ev);
    CHECK_EQ(n_read, 1);
    CHECK_EQ(rig.policies->n_told, 1);
    CHECK_EQ(hooks->deadline(hooks->self), 0);
    rig_advance(&rig, 1);
    CHECK_EQ(n_read, 21);
    CHECK_EQ(rig.policies->n_told, 0);
    rig_end(&rig);
}

TEST_MAIN(TEST_CASE(a_fatal_construct_costs_its_own_call_only_wherever_it_is),
          TEST_CASE(memory_of_lua_that_ends_anywhere_is_an_error_of_that_call),
          TEST_CASE(any_single_allocation_of_lua_may_fail),
          TEST_CASE(any_single_allocation_of_ours_may_fail),
          TEST_CASE(what_waits_is_bounded_and_the_rest_is_told_so_at_once),
          TEST_CASE(notices_that_wait_are_bounded_and_what_is_lost_is_logged),
          TEST_CASE(a_notice_may_wait_thirty_seconds_and_each_policy_has_its_own),
          TEST_CASE(a_shadow_that_hangs_delays_no_decision_and_is_counted),
          TEST_CASE(what_a_script_causes_is_told_after_it_and_not_inside_of_it))
