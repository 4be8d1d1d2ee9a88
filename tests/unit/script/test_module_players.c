/* SPDX-License-Identifier: MIT */
/*
 * Sessions and relays as policies see them, on a real service. One thread.
 */
#include "test.h"

#include "act.h"

static struct act a;

/* Two players with tags, as an earlier policy would have set them, and a relay each. */
static void begin_with_players(struct player *host, struct player *client)
{
    static const struct hook_pair tags[] = {{{"user", 4}, {"alice", 5}}, {{"open", 4}, {"1", 1}}};
    unsigned x, y;

    act_begin(&a, NULL);
    struct hook_answer *answer = world_answer(a.world, MR_HOOK_REGISTER, MR_HOOK_ADMIT);
    answer->tags = (struct hook_map){tags, 2};
    *host = world_join(a.world, "10.0.0.1:5000", "10.0.0.1:4000");
    answer->tags.n = 0;
    *client = world_join(a.world, "10.0.0.2:5000", "10.0.0.2:4000");
    REQUIRE(world_relay(a.world, client, host, &x, &y));
}

TEST(players_and_relays_are_listed_and_found)
{
    struct player host, client;
    char body[4096];

    begin_with_players(&host, &client);
    snprintf(
        body, sizeof body,
        "local all = relay.sessions() same(#all, 2)\n"
        "same(all[1].oid, '%s') same(all[1].tags.user, 'alice') same(all[1].joins, 1)\n"
        "same(all[1].ip, '10.0.0.1') same(all[1].addr.text, '10.0.0.1:4000')\n"
        "same(type(all[1].id), 'string') same(type(all[1].meta), 'table')\n"
        "same(#relay.sessions { user = 'alice' }, 1) same(#relay.sessions { user = 'bob' }, 0)\n"
        "same(#relay.sessions { user = 'alice', open = 1 }, 1)\n"
        "same(#relay.sessions { user = 'alice', open = 2 }, 0) same(#relay.sessions {}, 2)\n"
        "same(relay.session('%s').id, all[1].id) same(relay.session(all[1].id).oid, '%s')\n"
        "same(relay.session(all[1]).oid, '%s')\n"
        "local s, message, code = relay.session 'nobody'\n"
        "same(s, nil) same(message, 'there is no such session') same(code, 'not-found')\n"
        "local relays = relay.relays() same(#relays, 2) local r = relays[1]\n"
        "same(relay.get(r.id).port, r.port) same(relay.get(r).session, r.session)\n"
        "same(relay.session(r.session).ip, r.addr.ip) same(r.packets_in, 0)\n"
        "same(#relay.relays { user = 'alice' }, 0)\n"
        "same(select(3, relay.get '1.1'), 'not-found') same(relay.get '', nil)\n"
        "fails('relay.sessions: tags is 5 (a table of tags is expected)', relay.sessions, 5)\n"
        "fails('tags.user is a table', relay.relays, { user = {} })\n"
        "fails('a key that is a number', relay.sessions, { 'x' })\n"
        "fails('a metatable', relay.sessions, setmetatable({}, {}))\n"
        "local many = {} for i = 1, 33 do many['k' .. i] = i end\n"
        "fails('more than 32 tags', relay.sessions, many)\n"
        "fails('relay.session: id is nil', relay.session) fails('relay is 5', relay.get, 5)",
        host.oid, host.oid, host.oid, host.oid);
    CHECK_STR(act(&a, body), "admit");
    act_end(&a);
}

TEST(a_player_is_told_a_word_and_kicked_and_a_relay_closed)
{
    struct player host, client;

    begin_with_players(&host, &client);
    while (world_lines_left(a.world, host.conn) > 0) {
        world_line(a.world, host.conn);
    }
    CHECK_STR(act(&a, "local s = relay.sessions()[1]\n"
                      "same(relay.notify(s, 'back-soon'), true)\n"
                      "same(relay.notify(s.id, 'x'), true)\n"
                      "same(select(3, relay.notify('999', 'x')), 'not-found')\n"
                      "same(select(3, relay.notify('x', 'x')), 'not-found')\n"
                      "same(select(3, relay.notify('18446744073709551617', 'x')), 'not-found')\n"
                      "fails('relay.notify: word is a text of 3 bytes (1 to 128 visible', "
                      "relay.notify, s, 'a b')\n"
                      "fails('word is a text of 129 bytes', relay.notify, s, ('x'):rep(129))\n"
                      "fails('word is a text of 2', relay.notify, s, 'a\\n')\n"
                      "fails('relay.notify: word is nil', relay.notify, s)\n"
                      "fails('relay.notify: session is nil', relay.notify, nil, 'x')"),
              "admit");
    world_settle(a.world);
    CHECK_STR(world_line(a.world, host.conn), "notice back-soon");
    CHECK_STR(world_line(a.world, host.conn), "notice x");
    CHECK_STR(act(&a, "local r = relay.relays()[1]\n"
                      "same(relay.close(r, 'done'), true) same(#relay.relays(), 1)\n"
                      "same(select(3, relay.close(r)), 'not-found')\n"
                      "same(select(3, relay.close 'x'), 'not-found')\n"
                      "fails('relay.close: reason is 5', relay.close, r, 5)\n"
                      "fails('relay.close: relay is a function', relay.close, same)"),
              "admit");
    world_advance(a.world, 100);
    CHECK_EQ(world_relays(a.world), 1);
    CHECK_STR(act(&a, "local s = relay.sessions { user = 'alice' }[1]\n"
                      "same(relay.kick(s, 'Too slow'), true)\n"
                      "same(#relay.sessions { user = 'alice' }, 0) same(relay.session(s.id), nil)\n"
                      "same(select(3, relay.kick(s)), 'not-found')\n"
                      "same(select(3, relay.kick('x')), 'not-found')\n"
                      "fails('relay.kick: session is 5', relay.kick, 5)"),
              "admit");
    world_advance(a.world, 100);
    CHECK_STR(world_line(a.world, host.conn), "error session:-oo-slow");
    act_end(&a);
}

TEST(a_reason_that_is_not_given_is_the_policys_name)
{
    struct player host, client;

    begin_with_players(&host, &client);
    while (world_lines_left(a.world, host.conn) > 0) {
        world_line(a.world, host.conn);
    }
    CHECK_STR(act(&a, "relay.kick(relay.sessions { user = 'alice' }[1])"), "admit");
    world_advance(a.world, 100);
    CHECK_STR(world_line(a.world, host.conn), "error session:p");
    act_end(&a);
}

TEST(a_policy_drains_and_takes_it_back)
{
    struct player host, client;

    begin_with_players(&host, &client);
    while (world_lines_left(a.world, host.conn) > 0) {
        world_line(a.world, host.conn);
    }
    CHECK_STR(act(&a, "same(select(3, relay.drain(false)), 'not-found')\n"
                      "same(relay.drain(90.5), true) same(relay.drain(0.25), true)\n"
                      "same(relay.drain(false), true) same(relay.drain(7), true)\n"
                      "for _, bad in ipairs { -1, 0 / 0, 1 / 0, 31622401, '7', {} } do\n"
                      "fails('relay.drain: seconds is', relay.drain, bad) end\n"
                      "fails('relay.drain: seconds is true', relay.drain, true)\n"
                      "fails('a number from 0 to 31622400, or false, is expected', relay.drain)"),
              "admit");
    CHECK_STR(world_line(a.world, host.conn), "notice draining:91");
    CHECK_STR(world_line(a.world, host.conn), "notice draining:1");
    CHECK_STR(world_line(a.world, host.conn), "notice drain-cancelled");
    CHECK_STR(world_line(a.world, host.conn), "notice draining:7");
    world_advance(a.world, 7100);
    CHECK(mr__service_is_drained(a.world->service));
    CHECK_STR(act(&a, "same(select(3, relay.drain(5)), 'busy')\n"
                      "same(select(3, relay.drain(false)), 'busy')"),
              "admit");
    act_end(&a);
}

TEST(without_a_service_functions_that_act_raise)
{
    act_begin(&a, NULL);
    a.rig.opts.service = NULL;
    CHECK_STR(act(&a, "for _, name in ipairs { 'sessions', 'session', 'relays', 'get', 'kick', "
                      "'close', 'notify', 'drain', 'store', 'limiter' } do\n"
                      "fails('relay.' .. name .. ': there is no relay here', relay[name], 'a', "
                      "'x') end"),
              "admit");
    act_end(&a);
}

TEST(a_long_list_is_paid_for_by_whoever_asks_for_it)
{
    act_begin(&a, NULL);
    for (int i = 0; i < 350; i++) {
        char tcp[32];
        snprintf(tcp, sizeof tcp, "10.1.%d.%d:5000", i / 200, i % 200 + 1);
        world_join(a.world, tcp, NULL);
    }
    /* In the middle of the list: a script of a few instructions never sees the clock. */
    a.rig.load.cpu_ns = 100000;
    CHECK_STR(act(&a, "relay.sessions()"), "failed policy-error by p");
    CHECK(strstr(a.rig.log_text, "took more than 0.1 ms of CPU time") != NULL);
    CHECK(strstr(a.rig.log_text, "[C]: in function 'sessions'") != NULL);
    a.rig.load.cpu_ns = 5000000;
    CHECK_STR(act(&a, "same(#relay.sessions { user = 'nobody' }, 0)"), "admit");
    act_end(&a);
}

TEST(lists_at_any_memory_cap_leave_nothing_behind)
{
    struct player host, client;

    begin_with_players(&host, &client);
    long before = mr__alloc_live();
    for (uint64_t cap = 150000; cap < 350000; cap += 2039) {
        a.rig.load.memory_bytes = cap;
        if (act_load(&a, "",
                     "for i = 1, 50 do kept[i] = { relay.sessions(), relay.relays() } end") == 0) {
            struct hook_event ev = rig_event(MR_HOOK_CREATE);
            const char *answer = rig_ask(&a.rig, &ev);
            CHECK(strcmp(answer, "admit") == 0 || strcmp(answer, "failed policy-error by p") == 0);
        }
        mr__policies_destroy(a.rig.policies);
        a.rig.policies = NULL;
        mr__config_unref(a.rig.config);
        a.rig.config = NULL;
        CHECK_EQ(mr__alloc_live(), before);
    }
    act_end(&a);
}

TEST_MAIN(TEST_CASE(players_and_relays_are_listed_and_found),
          TEST_CASE(a_player_is_told_a_word_and_kicked_and_a_relay_closed),
          TEST_CASE(a_reason_that_is_not_given_is_the_policys_name),
          TEST_CASE(a_policy_drains_and_takes_it_back),
          TEST_CASE(without_a_service_functions_that_act_raise),
          TEST_CASE(a_long_list_is_paid_for_by_whoever_asks_for_it),
          TEST_CASE(lists_at_any_memory_cap_leave_nothing_behind))
