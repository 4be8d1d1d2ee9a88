/* SPDX-License-Identifier: MIT */
/*
 * The hook `lookup`: what it is called with, what it may return and what comes of it. The
 * answers are those of the chain; who asks it in the daemon is tested in test_resolve.c.
 * Start reading at a_lookup_gives_an_address_an_error_or_no_opinion().
 */
#include "base/alloc.h"
#include "rig.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static struct rig rig;

static const char *ask_family(int family)
{
    struct hook_event ev = rig_event(MR_HOOK_LOOKUP);

    ev.family = family;
    return rig_ask(&rig, &ev);
}

TEST(a_lookup_gives_an_address_an_error_or_no_opinion)
{
    static const struct {
        const char *body, *answer;
        int family;
    } rows[] = {
        {"return '10.0.0.5'", "admit 10.0.0.5:0", 4},
        {"return '10.0.0.5'", "admit 10.0.0.5:0", 0},
        {"return '2001:db8::5'", "admit [2001:db8::5]:0", 6},
        {"return '2001:db8::5'", "admit [2001:db8::5]:0", 0},
        {"return '::ffff:10.0.0.5'", "admit 10.0.0.5:0", 4},
        {"return { ip = '10.0.0.5', port = 9, family = 4, text = '10.0.0.5:9' }",
         "admit 10.0.0.5:0", 4},
        {"return", "none", 4},
        {"return nil", "none", 4},
        {"return nil, nil, 'code'", "none", 4},
        {"return nil, 'no such host'", "refuse refused by p: no such host", 4},
        {"return nil, 'no such host', 'not-found'", "refuse not-found by p: no such host", 4},
        {"return nil, 'a\\nb\\0c', 'Not Found!'", "refuse -ot--ound- by p: a | b?c", 4},
        {"return nil, 5, 7", "refuse 7 by p: 5", 4},
        {"return nil, ''", "refuse refused by p: refused by policy p", 4},
        {"return false, 'not-here'", "refuse not-here by p: refused by policy p: not-here", 4},
        {"return false", "refuse p by p: refused by policy p: p", 4},
    };

    rig_start(&rig);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char policy[256];

        snprintf(policy, sizeof policy, "return { lookup = function(host, family, ev) %s end }",
                 rows[i].body);
        REQUIRE_EQ(rig_load_policy(&rig, policy), 0);
        CHECK_STR(ask_family(rows[i].family), rows[i].answer);
    }
    rig_end(&rig);
}

TEST(what_is_no_answer_of_a_lookup_fails_it_and_names_the_line)
{
    static const struct {
        const char *body, *message;
        int family;
    } rows[] = {
        {"return 5", "p.lua:2: returned a number (an address as text, nil, or nil and an error", 4},
        {"return true", "p.lua:2: returned true (nil is no opinion, or an address", 4},
        {"return '::1'", "p.lua:2: returned '::1' (an IPv4 address was asked for)", 4},
        {"return '127.0.0.1'", "returned '127.0.0.1' (an IPv6 address was asked for)", 6},
        {"return '::ffff:1.2.3.4'", "(an IPv6 address was asked for)", 6},
        {"return '10.0.0.1:80'", "returned '10.0.0.1:80' (an address without a port", 4},
        {"return '[::1]'", "returned '[::1]' (an address without a port", 6},
        {"return '127.1'", "returned '127.1' (an address", 4},
        {"return '010.0.0.1'", "returned '010.0.0.1' (an address", 4},
        {"return ' 10.0.0.1'", "returned ' 10.0.0.1' (an address", 4},
        {"return 'db.fleet'", "returned 'db.fleet' (an address", 4},
        {"return ''", "returned '' (an address", 4},
        {"return '10.0.0.1\\0'", "returned '10.0.0.1?' (an address", 4},
        {"return ('x'):rep(100000)", "returned 'xxxxx", 4},
        {"return {}", "returned a table without ip", 4},
        {"return { ip = 5 }", "returned a table without ip", 4},
        {"return { ip = '::1' }", "returned '::1' (an IPv4 address was asked for)", 4},
        {"return setmetatable({}, { __index = { ip = '10.0.0.5' } })", "a table with a metatable",
         4},
        {"return function() end", "returned a function (an address as text", 4},
        {"return nil, {}", "returned nil and a table (an error as text is expected)", 4},
        {"return nil, 'x', {}", "returned nil, an error and a table (a word is expected)", 4},
        {"return false, {}", "returned false and a table (a reason as text is expected)", 4},
        {"error('oops')", "p.lua:2: oops", 4},
        {"while true do end", "took more than", 4},
        {"pcall(function() while true do end end) return '10.0.0.5'", "took more than", 4},
    };

    rig_start(&rig);
    rig.load.cpu_ns = 20000000;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char policy[256];

        snprintf(policy, sizeof policy, "return {\nlookup = function(host, family, ev) %s end }",
                 rows[i].body);
        REQUIRE_EQ(rig_load_policy(&rig, policy), 0);
        rig.log_n = 0;
        CHECK_STR(ask_family(rows[i].family), "failed policy-error by p");
        if (!strstr(rig.log_text, rows[i].message)) {
            CHECK_STR(rig.log_text, rows[i].message);
        }
        CHECK(strstr(rig.log_text, "hook=lookup"));
    }
    rig_end(&rig);
}

TEST(a_lookup_is_called_with_the_host_the_family_and_what_it_is_for)
{
    static const char policy[] = "local relay = require 'relay'\n"
                                 "return { lookup = function(host, family, ev)\n"
                                 "  return nil, table.concat({ host, tostring(family), ev.host, "
                                 "tostring(ev.family), ev.op,\n"
                                 "    ev.id, ev.now, type(ev.tags), next(ev.meta) or '-' }, ' ')\n"
                                 "end }";
    struct hook_event ev = rig_event(MR_HOOK_LOOKUP);

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, policy), 0);
    CHECK_STR(rig_ask(&rig, &ev), "refuse refused by p: db.fleet 4 db.fleet 4 send 7 1700000000.5 "
                                  "table -");
    ev.family = 0;
    ev.op = MR_LOOKUP_RESOLVE;
    ev.host = (struct str){"a\0b", 3};
    CHECK_STR(rig_ask(&rig, &ev), "refuse refused by p: a?b nil a?b nil resolve 7 1700000000.5 "
                                  "table -");
    ev.host = (struct str){NULL, 0};
    CHECK_STR(rig_ask(&rig, &ev), "refuse refused by p:  nil  nil resolve 7 1700000000.5 table -");
    rig_end(&rig);
}

TEST(the_first_address_or_error_ends_the_chain)
{
    struct hook_event ev = rig_event(MR_HOOK_LOOKUP);

    rig_start(&rig);
    rig_file(&rig, "a.lua",
             "return { lookup = function(host)\n"
             "  if host == 'a' then return '10.0.0.1' end\n"
             "  if host == 'e' then return nil, 'no', 'gone' end\n"
             "end }");
    rig_file(&rig, "b.lua",
             "local n = 0\n"
             "return { lookup = function(host)\n"
             "  n = n + 1\n"
             "  if host == 'n' then return '10.0.0.' .. n end\n"
             "  return '10.0.1.1'\n"
             "end }");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { './a.lua', './b.lua' } }"), 0);
    ev.host = rig_str("a");
    CHECK_STR(rig_ask(&rig, &ev), "admit 10.0.0.1:0");
    ev.host = rig_str("e");
    CHECK_STR(rig_ask(&rig, &ev), "refuse gone by a: no");
    ev.host = rig_str("b");
    CHECK_STR(rig_ask(&rig, &ev), "admit 10.0.1.1:0");
    ev.host = rig_str("n"); /* b was asked about b and this */
    CHECK_STR(rig_ask(&rig, &ev), "admit 10.0.0.2:0");
    rig_end(&rig);
}

TEST(a_lookup_that_fails_is_skipped_where_the_config_says_so_and_a_shadow_is_ignored)
{
    struct hook_event ev = rig_event(MR_HOOK_LOOKUP);

    rig_start(&rig);
    rig_file(&rig, "bad.lua", "return { lookup = function() return 5 end }");
    rig_file(&rig, "new.lua", "return { lookup = function() return '10.9.9.9' end }");
    rig_file(&rig, "good.lua", "return { lookup = function() return '10.0.0.5' end }");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { { './bad.lua', on_error = 'skip' },\n"
                              "  { './new.lua', shadow = true }, './good.lua' } }"),
               0);
    CHECK_STR(rig_ask(&rig, &ev), "admit 10.0.0.5:0");
    CHECK(strstr(rig.log_text, "policy=bad"));
    REQUIRE_EQ(rig_load(&rig, "return { policies = { { './bad.lua', on_error = 'skip' } } }"), 0);
    CHECK_STR(rig_ask(&rig, &ev), "none");
    rig_end(&rig);
}

TEST(a_lookup_may_wait_for_two_seconds_and_its_event_lives_as_long)
{
    struct hook_event ev = rig_event(MR_HOOK_LOOKUP);
    char host[] = "db.fleet";
    struct rig_request req;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay'\n"
                                     "return { lookup = function(host, family, ev)\n"
                                     "  relay.sleep(host == 'slow' and 3 or 1)\n"
                                     "  return nil, host .. ev.host .. ev.op\n"
                                     "end }"),
               0);
    ev.host = (struct str){host, strlen(host)};
    CHECK_STR(rig_start_asking(&rig, &req, &ev), "");
    memset(host, 'x', sizeof host);
    rig_advance(&rig, 1.1);
    CHECK_STR(req.text, "refuse refused by p: db.fleetdb.fleetsend");
    ev.host = rig_str("slow");
    CHECK_STR(rig_start_asking(&rig, &req, &ev), "");
    rig_advance(&rig, 2.1);
    CHECK_STR(req.text, "failed policy-error by p");
    CHECK(strstr(rig.log_text, "waited longer than 2 s (relay.sleep)"));
    rig_end(&rig);
}

TEST(a_policy_that_is_asked_after_another_one_waited_is_told_the_same_host)
{
    struct hook_event ev = rig_event(MR_HOOK_LOOKUP);
    char host[] = "db.fleet";
    struct rig_request req;

    rig_start(&rig);
    rig_file(&rig, "a.lua",
             "local relay = require 'relay'\n"
             "return { lookup = function() relay.sleep(1) end }");
    rig_file(&rig, "b.lua",
             "return { lookup = function(host, family, ev)\n"
             "  return nil, host .. family .. ev.host .. ev.op end }");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { './a.lua', './b.lua' } }"), 0);
    ev.host = (struct str){host, strlen(host)};
    CHECK_STR(rig_start_asking(&rig, &req, &ev), "");
    memset(host, 'x', sizeof host);
    rig_advance(&rig, 1.1);
    CHECK_STR(req.text, "refuse refused by b: db.fleet4db.fleetsend");
    rig_end(&rig);
}

TEST(an_error_of_a_lookup_is_one_line_of_bounded_length)
{
    struct hook_event ev = rig_event(MR_HOOK_LOOKUP);
    const char *text;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "return { lookup = function()\n"
                                     "  return nil, ('line\\n'):rep(100000), ('c'):rep(1000)\n"
                                     "end }"),
               0);
    text = rig_ask(&rig, &ev);
    CHECK(strncmp(text, "refuse cccc", 11) == 0);
    CHECK(strlen(text) <= MR_LOOKUP_TEXT_MAX + MR_LOOKUP_CODE_MAX + 20);
    CHECK(!strchr(text, '\n'));
    rig_end(&rig);
}

TEST(a_question_without_memory_for_it_is_an_error_of_that_question)
{
    struct hook_event ev = rig_event(MR_HOOK_LOOKUP);
    bool has_succeeded = false;

    rig_start(&rig);
    for (long n = 0; n < 200 && !has_succeeded; n++) {
        struct rig_request req;

        REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay'\n"
                                         "return { lookup = function() relay.sleep(0.1)\n"
                                         "  return '10.0.0.5' end }"),
                   0);
        mr__alloc_fail_after(n);
        rig_start_asking(&rig, &req, &ev);
        mr__alloc_fail_after(-1);
        has_succeeded = req.calls == 0;
        if (!has_succeeded) {
            CHECK(strstr(req.text, "failed policy-error"));
        }
        rig_advance(&rig, 1);
        CHECK_EQ(req.calls, 1);
    }
    CHECK(has_succeeded);
    rig_end(&rig);
}

TEST_MAIN(
    TEST_CASE(a_lookup_gives_an_address_an_error_or_no_opinion),
    TEST_CASE(what_is_no_answer_of_a_lookup_fails_it_and_names_the_line),
    TEST_CASE(a_lookup_is_called_with_the_host_the_family_and_what_it_is_for),
    TEST_CASE(the_first_address_or_error_ends_the_chain),
    TEST_CASE(a_lookup_that_fails_is_skipped_where_the_config_says_so_and_a_shadow_is_ignored),
    TEST_CASE(a_lookup_may_wait_for_two_seconds_and_its_event_lives_as_long),
    TEST_CASE(a_policy_that_is_asked_after_another_one_waited_is_told_the_same_host),
    TEST_CASE(an_error_of_a_lookup_is_one_line_of_bounded_length),
    TEST_CASE(a_question_without_memory_for_it_is_an_error_of_that_question))
