/* SPDX-License-Identifier: MIT */
/*
 * relay.metric as policies use it, and what the page shows. One thread.
 */
#include "test.h"

#include "act.h"
#include "service/metrics.h"

static struct act a;

/* The lines of the page that are of policies' own metrics. Valid until the next call. */
static const char *page(void)
{
    static char out[65536];
    struct metrics *m = mr__metrics_create();
    size_t n = 0;

    REQUIRE(m != NULL);
    mr__policies_metrics(a.rig.policies, m);
    char *text = mr__metrics_finish(m, NULL);
    REQUIRE(text != NULL);
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        if (strstr(line, "moonrelay_policy_refusals") &&
            strstr(line, "moonrelay_policy_refusals") < end) {
            continue;
        }
        const char *at = strstr(line, "moonrelay_policy_");
        if (at && at < end) {
            n += (size_t)snprintf(out + n, sizeof out - n, "%.*s\n", (int)(end - line), line);
        }
    }
    out[n] = '\0';
    mr__free(text);
    return out;
}

TEST(what_a_policy_counts_is_on_the_page)
{
    act_begin(&a, NULL);
    CHECK_STR(act(&a, "local c = relay.metric('joins', 'counter', 'Joins by region.')\n"
                      "c:add() c:add(2) c:add(1, 'eu') c:add(1.5, 'eu') c:add(1, 7) c:add(0)\n"
                      "local g = relay.metric('queue', 'gauge', 'Who waits.')\n"
                      "g:set(5) g:add(-2) g:set(1, 'a\"b\\n\\195\\164')"),
              "admit");
    CHECK_STR(page(), "# HELP moonrelay_policy_joins Joins by region.\n"
                      "# TYPE moonrelay_policy_joins counter\n"
                      "moonrelay_policy_joins{policy=\"p\"} 3\n"
                      "moonrelay_policy_joins{policy=\"p\",label=\"eu\"} 2.5\n"
                      "moonrelay_policy_joins{policy=\"p\",label=\"7\"} 1\n"
                      "# HELP moonrelay_policy_queue Who waits.\n"
                      "# TYPE moonrelay_policy_queue gauge\n"
                      "moonrelay_policy_queue{policy=\"p\"} 3\n"
                      "moonrelay_policy_queue{policy=\"p\",label=\"a\\\"b???\"} 1\n");
    act_end(&a);
}

TEST(labels_beyond_sixty_four_are_counted_as_other)
{
    char first[64];

    act_begin(&a, NULL);
    CHECK_STR(act(&a, "local c = relay.metric('x', 'counter', '')\n"
                      "for i = 1, 100 do c:add(1, 'l' .. i) end c:add(1, 'l1') c:add(1, 'other')\n"
                      "c:add(1, ('y'):rep(100))"),
              "admit");
    const char *text = page();
    snprintf(first, sizeof first, "label=\"l1\"} 2\n");
    CHECK(strstr(text, first) != NULL);
    CHECK(strstr(text, "label=\"l64\"} 1\n") != NULL);
    CHECK(strstr(text, "l65") == NULL);
    CHECK(strstr(text, "label=\"other\"} 38\n") != NULL);
    CHECK(strstr(text, "{policy=\"p\"}") == NULL);
    act_end(&a);
}

TEST(policies_share_a_family_and_must_agree_about_its_kind)
{
    act_begin(&a, NULL);
    rig_file(&a.rig, "q.lua",
             "local relay = require 'relay' local c = relay.metric('x', 'counter', 'second')\n"
             "return { create = function()\n"
             "c:add(1) local ok, e = pcall(relay.metric, 'x', 'gauge', '')\n"
             "assert(e:find('x is a counter of policy r already', 1, true), e) return {} end }");
    rig_file(&a.rig, "r.lua",
             "local c = require('relay').metric('x', 'counter', 'first')\n"
             "return { create = function() c:add(2) return {} end }");
    REQUIRE_EQ(rig_load(&a.rig, "return { policies = { './r.lua', './q.lua' } }"), 0);
    CHECK_STR(page(), "");
    CHECK_STR(act_ask(&a), "admit");
    CHECK_STR(page(), "# HELP moonrelay_policy_x first\n"
                      "# TYPE moonrelay_policy_x counter\n"
                      "moonrelay_policy_x{policy=\"r\"} 2\n"
                      "moonrelay_policy_x{policy=\"q\"} 1\n");
    act_end(&a);
}

TEST(misuse_of_a_metric_raises_and_names_the_argument)
{
    act_begin(&a, NULL);
    CHECK_STR(act(&a,
                  "local m = relay.metric\n"
                  "fails('relay.metric: name is nil', m)\n"
                  "fails('1 to 48 of a-z', m, 'Big', 'counter', '')\n"
                  "fails('a letter first', m, '1x', 'counter', '')\n"
                  "fails('1 to 48', m, ('x'):rep(49), 'counter', '')\n"
                  "fails('counter or gauge', m, 'x', 'histogram', '')\n"
                  "fails('relay.metric: kind is nil', m, 'x')\n"
                  "fails('relay.metric: help is nil', m, 'x', 'gauge')\n"
                  "fails('at most 256 bytes', m, 'x', 'gauge', ('h'):rep(257))\n"
                  "fails('is a metric of the relay itself', m, 'refusals_total', 'counter', '')\n"
                  "local c, g = m('c', 'counter', ''), m('g', 'gauge', '')\n"
                  "fails('metric:add: n is -1 (0 or more', c.add, c, -1)\n"
                  "fails('n is nan', c.add, c, 0 / 0) fails('n is inf', c.add, c, math.huge)\n"
                  "fails('c is a counter', c.set, c, 1) fails('value is nil', g.set, g)\n"
                  "fails('a finite number', g.set, g, 0 / 0)\n"
                  "fails('label is a table', c.add, c, 1, {}) fails('with a colon', c.add, 1)\n"
                  "fails('with a colon', c.add, relay.cidr {}, 1)\n"
                  "for i = 1, 30 do m('m' .. i, 'gauge', ''):set(1) end\n"
                  "fails('there are 32 metrics already', m, 'one_more', 'gauge', '')\n"
                  "same(type(m('m1', 'gauge', '')), 'userdata')"),
              "admit");
    act_end(&a);
}

TEST(running_out_of_memory_for_a_metric_loses_no_other)
{
    unsigned failed = 0;
    bool is_done = false;

    act_begin(&a, NULL);
    REQUIRE_EQ(act_load(&a, "",
                        "local c = relay.metric('x', 'counter', 'X.') c:add(1)\n"
                        "for i = 1, 10 do c:add(1, i) end"),
               0);
    for (long n = 0; n < 1000 && !is_done; n++) {
        struct hook_event ev = rig_event(MR_HOOK_CREATE);
        mr__alloc_fail_after(n);
        is_done = strcmp(rig_ask(&a.rig, &ev), "admit") == 0;
        mr__alloc_fail_after(-1);
        failed += !is_done;
    }
    CHECK(is_done);
    CHECK_GT(failed, 0);
    CHECK(strstr(page(), "moonrelay_policy_x{policy=\"p\"} ") != NULL);
    act_end(&a);
}

TEST_MAIN(TEST_CASE(what_a_policy_counts_is_on_the_page),
          TEST_CASE(labels_beyond_sixty_four_are_counted_as_other),
          TEST_CASE(policies_share_a_family_and_must_agree_about_its_kind),
          TEST_CASE(misuse_of_a_metric_raises_and_names_the_argument),
          TEST_CASE(running_out_of_memory_for_a_metric_loses_no_other))
