/* SPDX-License-Identifier: MIT */
/*
 * What a generation may change of the world it shares with others: nothing before it is in
 * use, and nothing after. A real service; one thread. Start reading at the first test.
 */
#include "act.h"
#include "service/blocks.h"
#include "test.h"

static struct act a;

static int reload(const char *text)
{
    rig_file(&a.rig, "p.lua", text);
    return rig_reload(&a.rig, "return { policies = { './p.lua' } }");
}

static void pass(double seconds)
{
    const struct hooks *hooks = mr__policies_hooks(a.rig.policies);

    for (int i = 0; i < 100; i++) {
        a.world->now_ns += (uint64_t)(seconds * 1e7);
        hooks->tick(hooks->self, a.world->now_ns);
    }
}

static bool visit(void *user, const struct block_view *b)
{
    char *text = user;

    snprintf(text, 64, "%zu by %.*s", b->nets, (int)b->reason.n, b->reason.s);
    return true;
}

static const char *list(void)
{
    static char text[64];

    text[0] = '\0';
    mr__blocks_each(a.world->service, visit, text);
    return text;
}

#define RELAY  "local relay = require 'relay' "
#define FIRST  "relay.blocklist(relay.cidr { '192.0.2.0/24' }, 'first') "
#define SECOND "relay.blocklist(relay.cidr { '192.0.2.0/25', '198.51.100.0/24' }, 'second') "

TEST(the_list_of_a_load_is_in_force_when_the_load_is_and_not_before)
{
    act_begin(&a, NULL);
    REQUIRE_EQ(rig_load_policy(&a.rig, RELAY "return { load = function() " FIRST "end }"), 0);
    CHECK_STR(list(), "1 by first");
    CHECK_EQ(reload(RELAY "return { load = function() " SECOND "error('no') end }"), -EINVAL);
    CHECK_STR(list(), "1 by first");
    CHECK_EQ(reload(RELAY "return { load = function() " SECOND "relay.sleep(1) end }"),
             -EINPROGRESS);
    CHECK_STR(list(), "1 by first");
    pass(2);
    CHECK_EQ(a.rig.rc, 0);
    CHECK_STR(list(), "2 by second");
    act_end(&a);
}

TEST(what_still_runs_in_a_replaced_generation_sets_no_list_and_starts_no_timer)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);
    static struct rig_request req;

    act_begin(&a, NULL);
    REQUIRE_EQ(rig_load_policy(&a.rig, RELAY "return { create = function() relay.sleep(1) " SECOND
                                             "relay.after(0.1, function() relay.log.info('late') "
                                             "end) relay.log.info('woken') return {} end }"),
               0);
    rig_start_asking(&a.rig, &req, &ev);
    CHECK_STR(req.text, "");
    CHECK_EQ(reload(RELAY "return { load = function() " FIRST "end }"), 0);
    CHECK_STR(list(), "1 by first");
    pass(3);
    CHECK_STR(req.text, "admit");
    CHECK(strstr(a.rig.log_text, "woken") != NULL);
    CHECK(strstr(a.rig.log_text, "late") == NULL);
    CHECK_STR(list(), "1 by first");
    act_end(&a);
}

TEST_MAIN(TEST_CASE(the_list_of_a_load_is_in_force_when_the_load_is_and_not_before),
          TEST_CASE(what_still_runs_in_a_replaced_generation_sets_no_list_and_starts_no_timer))
