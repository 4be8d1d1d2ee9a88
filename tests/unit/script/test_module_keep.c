/* SPDX-License-Identifier: MIT */
/*
 * relay.store and relay.limiter as policies use them, on a real service and its clock. One
 * thread.
 */
#include "test.h"

#include "act.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct act a;

TEST(a_store_keeps_scalars_by_key)
{
    act_begin(&a, NULL);
    CHECK_STR(act(&a, "local s = relay.store 'x'\n"
                      "same(s:get 'k', nil) same(s:set('k', 'v'), true) same(s:get 'k', 'v')\n"
                      "same(s:set('k', 1.5), true) same(s:get 'k', 1.5)\n"
                      "same(s:set('k', false), true) same(s:get 'k', false)\n"
                      "same(s:set('e', ''), true) same(s:get 'e', '') same(s:count(), 2)\n"
                      "same(s:set('k', nil), true) same(s:get 'k', nil) same(s:count(), 1)\n"
                      "same(s:add('n', 1), true) same(s:add('n', 2), false) same(s:get 'n', 1)\n"
                      "same(s:incr 'n', 2) same(s:incr('n', -5), -3) same(s:incr 'new', 1)\n"
                      "same(s:set(7, 'seven'), true) same(s:get '7', 'seven')\n"
                      "same(s:del 'n', true) same(s:del 'n', false)\n"
                      "same(relay.store('x'):get 'e', '') same(relay.store('y'):get 'e', nil)"),
              "admit");
    act_end(&a);
}

TEST(what_is_kept_outlives_the_generation_and_belongs_to_the_policys_name)
{
    act_begin(&a, NULL);
    CHECK_STR(act(&a, "relay.store('x'):set('k', 'v')"), "admit");
    CHECK_STR(act(&a, "same(relay.store('x'):get 'k', 'v')"), "admit");
    rig_file(&a.rig, "q.lua",
             "local s = require('relay').store 'x'\n"
             "return { create = function() if s:get 'k' then error 'seen' end return {} end }");
    REQUIRE_EQ(rig_load(&a.rig, "return { policies = { './q.lua' } }"), 0);
    CHECK_STR(act_ask(&a), "admit");
    act_end(&a);
}

TEST(a_full_store_says_so_and_time_makes_room)
{
    act_begin(&a, NULL);
    CHECK_STR(act(&a, "local s = relay.store('x', { max = 2, ttl = 10 })\n"
                      "same(s:set('a', 1), true) same(s:set('b', 1), true)\n"
                      "for _, f in ipairs { 'set', 'add', 'incr' } do\n"
                      "  local v, message, code = s[f](s, 'c', 1)\n"
                      "  same(v, nil) same(message, 'store full') same(code, 'full') end\n"
                      "same(s:set('a', 2), true)"),
              "admit");
    world_advance(a.world, 9000);
    CHECK_STR(act(&a, "same(relay.store('x', { max = 2, ttl = 10 }):get 'a', 2)"), "admit");
    world_advance(a.world, 2000);
    CHECK_STR(act(&a, "local s = relay.store('x', { max = 2, ttl = 10 })\n"
                      "same(s:get 'a', nil) same(s:count(), 0) same(s:set('c', 1), true)"),
              "admit");
    act_end(&a);
}

TEST(a_limiter_gives_what_its_rate_allows)
{
    act_begin(&a, NULL);
    CHECK_STR(act(&a, "local l = relay.limiter('x', { rate = 2, burst = 3 })\n"
                      "for _ = 1, 3 do same(l:take 'k', true) end\n"
                      "local ok, seconds = l:take 'k' same(ok, false)\n"
                      "assert(seconds > 0.49 and seconds < 0.51, seconds)\n"
                      "same(l:take 'other', true) same(l:take('third', 3), true)\n"
                      "ok, seconds = l:take('fourth', 4) same(ok, false) same(seconds, math.huge)"),
              "admit");
    world_advance(a.world, 600);
    CHECK_STR(act(&a, "local l = relay.limiter('x', { rate = 2, burst = 3 })\n"
                      "same(l:take 'k', true) same(l:take 'k', false)"),
              "admit");
    CHECK_STR(act(&a, "local l = relay.limiter('full', { rate = 1, max = 1 })\n"
                      "same(l:take 'a', true) local ok, message, code = l:take 'b'\n"
                      "same(ok, nil) same(message, 'limiter full') same(code, 'full')"),
              "admit");
    act_end(&a);
}

TEST(misuse_of_what_is_kept_raises_and_names_the_argument)
{
    act_begin(&a, NULL);
    CHECK_STR(
        act(&a,
            "local s, l = relay.store 'x', relay.limiter('x', { rate = 1 })\n"
            "fails('relay.store: name is nil', relay.store)\n"
            "fails('1 to 64 of A-Z', relay.store, 'a b') fails('1 to 64', relay.store, '')\n"
            "fails('1 to 64', relay.store, ('x'):rep(65)) fails('1 to 64', relay.store, 'a\\0')\n"
            "fails(\"unknown key 'tll'; did you mean ttl?\", relay.store, 'x', { tll = 5 })\n"
            "fails('relay.store: max is 0 (1 to 10 million', relay.store, 'x', { max = 0 })\n"
            "fails('max is 1e+15', relay.store, 'x', { max = 1e15 })\n"
            "fails('ttl is -1 (seconds above 0', relay.store, 'x', { ttl = -1 })\n"
            "fails('ttl is nan', relay.store, 'x', { ttl = 0 / 0 })\n"
            "fails('a table is expected', relay.store, 'x', 5)\n"
            "fails('relay.limiter: rate is nil', relay.limiter, 'x', {})\n"
            "fails('relay.limiter: rate is nil', relay.limiter, 'x')\n"
            "fails('rate is 0', relay.limiter, 'x', { rate = 0 })\n"
            "fails('burst is 0.5', relay.limiter, 'x', { rate = 1, burst = 0.5 })\n"
            "fails('store:get: key is nil', s.get, s) fails('key is a table', s.get, s, {})\n"
            "fails('1 to 256 bytes', s.get, s, '') fails('1 to 256', s.set, s, ('k'):rep(257), 1)\n"
            "fails('store:set: value is a table', s.set, s, 'k', {})\n"
            "fails('at most 65536 bytes', s.set, s, 'k', ('v'):rep(65537))\n"
            "fails('store:add: value is nil', s.add, s, 'k')\n"
            "fails('store:incr: by is a text', s.incr, s, 'k', '1')\n"
            "s:set('t', 'text') fails('is no number', s.incr, s, 't')\n"
            "fails('not finite', s.incr, s, 'h', math.huge)\n"
            "fails('limiter:take: n is 0', l.take, l, 'k', 0) fails('key is nil', l.take, l)\n"
            "fails('with a colon', s.get, 'k') fails('with a colon', s.get, l, 'k')\n"
            "fails('with a colon', l.take, s, 'k') fails('with a colon', s.count, {})\n"
            "fails('store.gte does not exist; did you mean get?', function() return s.gte end)"),
        "admit");
    act_end(&a);
}

TEST(a_store_that_is_only_declared_is_not_made)
{
    static const char top[] = "for i = 1, 300 do kept[i] = relay.store('s' .. i) end";

    act_begin(&a, NULL);
    REQUIRE_EQ(act_load(&a, top, ""), 0);
    CHECK_STR(act_ask(&a), "admit");
    CHECK_STR(act(&a,
                  "for i = 1, 256 do relay.store('s' .. i):count() end\n"
                  "local s = relay.store('s300') fails('256 stores and limiters', s.count, s)\n"
                  "local l = relay.limiter('l', { rate = 1 }) fails('256 stores', l.take, l, 'k')"),
              "admit");
    act_end(&a);
}

TEST(running_out_of_memory_for_what_is_kept_is_an_error_of_the_hook)
{
    long before = 0;
    unsigned failed = 0;
    bool is_done = false;

    act_begin(&a, NULL);
    REQUIRE_EQ(act_load(&a, "",
                        "local s = relay.store('s') local l = relay.limiter('l', { rate = 1 })\n"
                        "for i = 1, 100 do s:set(i, 'text' .. i) l:take(i) end"),
               0);
    for (long n = 0; n < 3000 && !is_done; n++) {
        mr__alloc_fail_after(n);
        struct hook_event ev = rig_event(MR_HOOK_CREATE);
        is_done = strcmp(rig_ask(&a.rig, &ev), "admit") == 0;
        mr__alloc_fail_after(-1);
        failed += !is_done;
        before = mr__alloc_live();
    }
    CHECK(is_done);
    CHECK_GT(failed, 5);
    CHECK_GT(before, 0);
    act_end(&a); /* which looks for what is left */
}

/* A load that fails, or is only tried, must have changed nothing. */
TEST(what_is_kept_is_not_used_before_the_policy_is)
{
    static const char *const uses[] = {
        "relay.store('s'):set('k', 1)",
        "relay.store('s'):del('k')",
        "relay.limiter('l', { rate = 1, burst = 1 }):take('k')",
    };

    act_begin(&a, NULL);
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        CHECK_EQ(act_load(&a, uses[i], ""), -EINVAL);
        CHECK(strstr(a.rig.err.text, "the policy is not in use yet") != NULL);
    }
    act_end(&a);
}

TEST(a_policy_that_loads_may_look_at_what_was_kept)
{
    act_begin(&a, NULL);
    CHECK_STR(act(&a, "local s = relay.store('x', { max = 2 }) same(s:get 'k', nil)\n"
                      "same(s:set('k', 'v'), true)"),
              "admit");
    REQUIRE_EQ(
        act_load(&a,
                 "local s = relay.store('x', { max = 1 }) same(s:get 'k', 'v')\n"
                 "same(s:count(), 1) local none = relay.store 'none' same(none:get 'k', nil)\n"
                 "same(none:count(), 0) error 'and then fails'",
                 ""),
        -EINVAL);
    CHECK(strstr(a.rig.err.text, "and then fails") != NULL);
    act_end(&a);
}

/* A chain of one policy, whose file is written before. */
static int load_chain(const char *name, const char *body)
{
    char file[32], text[1024], config[64];

    snprintf(file, sizeof file, "%s.lua", name);
    snprintf(text, sizeof text,
             "local relay = require 'relay' return { create = function() %s return {} end }", body);
    snprintf(config, sizeof config, "return { policies = { './%s' } }", file);
    rig_file(&a.rig, file, text);
    return a.rig.policies ? rig_reload(&a.rig, config) : rig_load(&a.rig, config);
}

TEST(what_a_policy_kept_goes_when_no_rollback_brings_it_back)
{
    static const char open_all[] = "for i = 1, 256 do relay.store('s' .. i):set('k', 'v') end";
    static const char open_one[] = "relay.limiter('l', { rate = 1 }):take 'k'";
    static const char look[] = "if relay.store('s256'):get 'k' ~= 'v' then error 'lost' end";
    static const char look_again[] = "if relay.store('s256'):get 'k' then error 'kept' end";

    act_begin(&a, NULL);
    REQUIRE_EQ(load_chain("p", open_all), 0);
    CHECK_STR(act_ask(&a), "admit");
    REQUIRE_EQ(load_chain("q", open_one), 0);
    CHECK_STR(act_ask(&a), "failed policy-error by q"); /* 256 are there, for a rollback */
    REQUIRE_EQ(load_chain("p", look), 0);
    CHECK_STR(act_ask(&a), "admit");
    REQUIRE_EQ(load_chain("q", open_one), 0);
    REQUIRE_EQ(load_chain("q", "  relay.limiter('l', { rate = 1 }):take 'k'"), 0);
    CHECK_STR(act_ask(&a), "admit");
    REQUIRE_EQ(load_chain("p", look_again), 0);
    CHECK_STR(act_ask(&a), "admit");
    act_end(&a);
}

TEST(what_a_policy_kept_stays_while_something_of_it_is_under_way)
{
    static const char wait[] = "local s = relay.store 'x' s:set('k', 'v') relay.sleep(1)"
                               " if s:get 'k' ~= 'v' then error 'lost' end";
    struct hook_event ev = rig_event(MR_HOOK_CREATE);
    struct rig_request waiting;
    const struct hooks *hooks;

    act_begin(&a, NULL);
    REQUIRE_EQ(load_chain("p", wait), 0);
    CHECK_STR(rig_start_asking(&a.rig, &waiting, &ev), "");
    REQUIRE_EQ(load_chain("q", ""), 0);
    REQUIRE_EQ(load_chain("q", " "), 0);
    world_advance(a.world, 1100);
    hooks = mr__policies_hooks(a.rig.policies);
    hooks->tick(hooks->self, a.world->now_ns);
    CHECK_STR(waiting.text, "admit");
    REQUIRE_EQ(load_chain("p", "if relay.store('x'):get 'k' then error 'kept' end"), 0);
    CHECK_STR(act_ask(&a), "admit");
    act_end(&a);
}

TEST_MAIN(TEST_CASE(what_a_policy_kept_goes_when_no_rollback_brings_it_back),
          TEST_CASE(what_a_policy_kept_stays_while_something_of_it_is_under_way),
          TEST_CASE(a_store_keeps_scalars_by_key),
          TEST_CASE(a_policy_that_loads_may_look_at_what_was_kept),
          TEST_CASE(what_is_kept_is_not_used_before_the_policy_is),
          TEST_CASE(what_is_kept_outlives_the_generation_and_belongs_to_the_policys_name),
          TEST_CASE(a_full_store_says_so_and_time_makes_room),
          TEST_CASE(a_limiter_gives_what_its_rate_allows),
          TEST_CASE(misuse_of_what_is_kept_raises_and_names_the_argument),
          TEST_CASE(a_store_that_is_only_declared_is_not_made),
          TEST_CASE(running_out_of_memory_for_what_is_kept_is_an_error_of_the_hook))
