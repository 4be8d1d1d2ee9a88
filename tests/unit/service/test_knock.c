/* SPDX-License-Identifier: MIT */
/*
 * Datagrams that nobody expected: what policies may do about them, and what no policy can.
 * One thread.
 */
#include "test.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

static struct world *w;
static struct player host, client;
static unsigned hosts, clients;

static void open_pair(const char *const *settings)
{
    w = world_open(settings);
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    REQUIRE(world_relay(w, &client, &host, &hosts, &clients));
}

static struct hook_answer *admit_all(void)
{
    return world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);
}

static uint64_t sent(void)
{
    struct mr_stats st;

    REQUIRE_EQ(mr_get_stats(w->mr, &st, sizeof st), 0);
    return st.sent;
}

TEST(without_a_policy_a_stranger_is_dropped_at_once)
{
    open_pair(NULL);
    world_inject(w, "203.0.113.5:4000", hosts, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_UNKNOWN_SENDER), 1);
    CHECK_EQ(world_metric(w, "moonrelay_held"), 0.0);
    world_close(w);
}

TEST(a_stranger_without_an_opinion_keeps_the_reason_he_was_found_with)
{
    open_pair(NULL);
    world_answer(w, MR_HOOK_DROP, MR_HOOK_NO_OPINION);
    world_inject(w, "203.0.113.5:4000", hosts, 10);
    world_inject(w, "10.0.0.2:6000", clients, 10); /* his own port: an echo, not paired */
    world_inject(w, "10.0.0.9:6000", 49152 == hosts || 49152 == clients ? 49160 : 49152, 10);
    CHECK_GE(world_verdicts(w, MR_VERDICT_UNKNOWN_SENDER), 1);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_REFUSED), 0);
    world_close(w);
}

TEST(an_admitted_stranger_gets_a_relay_and_what_was_held_goes_on_in_order)
{
    char to[MR_ADDR_TEXT_MAX];
    unsigned from_port;
    struct mr_addr from;

    open_pair(NULL);
    admit_all();
    world_keep_waiting(w, MR_HOOK_DROP, true);
    from = world_addr("203.0.113.5:4000");
    uint64_t before = sent();
    for (size_t i = 1; i <= 5; i++) {
        REQUIRE_EQ(mr_inject(w->mr, world_port(w, hosts), &from, "12345", i), 0);
    }
    world_settle(w);
    CHECK_EQ(w->n_pending, 1);
    CHECK_EQ(world_metric(w, "moonrelay_held"), 5.0);
    CHECK(strstr(w->seen[MR_HOOK_DROP], "reason=unknown_sender addr=203.0.113.5:4000"));
    CHECK(strstr(w->seen[MR_HOOK_DROP], "size=1 known=0 target=yes"));
    world_answer_pending(w);
    CHECK_EQ(sent(), before + 5);
    CHECK_EQ(world_relays(w), 3);
    CHECK_EQ(world_metric(w, "moonrelay_relays{kind=\"dynamic\"}"), 1.0);
    CHECK_EQ(world_decide(w, "203.0.113.5:4000", hosts, to, &from_port), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:6000");
    CHECK(from_port != hosts && from_port != clients);
    CHECK_EQ(world_decide(w, "10.0.0.1:6000", from_port, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "203.0.113.5:4000");
    CHECK_NE(world_decide(w, "203.0.113.5:4000", clients, NULL, NULL), MR_VERDICT_FORWARD);
    world_close(w);
}

TEST(a_policy_may_bound_what_is_held_of_a_flow_while_create_is_asked)
{
    static const struct {
        unsigned named, setting, forwarded;
    } cases[] = {{2, 8, 2}, {6, 3, 3}, {0, 8, 1}}; /* the one that was asked about stays */

    for (unsigned i = 0; i < 3; i++) {
        char setting[40];
        snprintf(setting, sizeof setting, "hold_datagrams=%u", cases[i].setting);
        open_pair((const char *[]){setting, NULL});
        struct hook_answer *a = admit_all();
        a->spec.has_hold_packets = true;
        a->spec.hold_packets = cases[i].named;
        world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
        world_keep_waiting(w, MR_HOOK_CREATE, true);
        uint64_t before = sent();
        for (unsigned k = 0; k < 5; k++) {
            world_inject(w, "203.0.113.5:4000", hosts, 10 + k);
        }
        CHECK_EQ(world_verdicts(w, MR_VERDICT_HOLD_FULL), 5 - cases[i].forwarded);
        world_answer_pending(w);
        CHECK_EQ(sent() - before, cases[i].forwarded);
        world_close(w);
    }
    /* And for how long. */
    open_pair(NULL);
    struct hook_answer *a = admit_all();
    a->spec.has_hold_ns = true;
    a->spec.hold_ns = 100000000;
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    world_inject(w, "203.0.113.5:4000", hosts, 10);
    world_advance(w, 300);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_HOLD_EXPIRED), 1);
    world_answer_pending(w);
    world_close(w);
}

TEST(known_is_who_has_or_had_a_session_at_that_ip)
{
    open_pair(NULL);
    world_answer(w, MR_HOOK_DROP, MR_HOOK_NO_OPINION);
    struct player third = world_join(w, "10.0.0.3:5000", "10.9.9.9:6000");
    world_inject(w, "10.0.0.3:4444", hosts, 10);
    CHECK(strstr(w->seen[MR_HOOK_DROP], "known=1"));
    world_inject(w, "10.9.9.9:4444", hosts, 10);
    CHECK(strstr(w->seen[MR_HOOK_DROP], "known=1"));
    mr__service_closed(w->service, w->wires[third.conn].id, MR_CONN_RESET, w->now_ns);
    w->now_ns += 590ull * 1000000000;
    world_settle(w);
    hosts = 49152;
    world_inject(w, "10.0.0.3:4445", hosts, 10);
    CHECK(strstr(w->seen[MR_HOOK_DROP], "addr=10.0.0.3:4445"));
    CHECK(strstr(w->seen[MR_HOOK_DROP], "known=1"));
    w->now_ns += 11ull * 1000000000;
    world_settle(w);
    world_inject(w, "10.0.0.3:4446", hosts, 10);
    CHECK(strstr(w->seen[MR_HOOK_DROP], "addr=10.0.0.3:4446"));
    CHECK(strstr(w->seen[MR_HOOK_DROP], "known=0"));
    world_close(w);
}

TEST(a_refused_flow_is_counted_so_and_a_muted_one_makes_no_event)
{
    open_pair(NULL);
    world_refuse(w, MR_HOOK_DROP, "no");
    world_inject(w, "203.0.113.5:4000", hosts, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_REFUSED), 1);
    w->canned[MR_HOOK_DROP].answer.mute_ns = 5000000000;
    world_inject(w, "203.0.113.6:4000", hosts, 10);
    world_advance(w, 3000);
    world_inject(w, "203.0.113.6:4000", hosts, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_MUTED), 1);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 2);
    world_advance(w, 3000);
    world_inject(w, "203.0.113.6:4000", hosts, 10);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 3);
    world_close(w);
}

TEST(a_free_port_has_nobody_to_reach_even_when_a_policy_admits)
{
    unsigned free_port;

    open_pair(NULL);
    admit_all();
    for (free_port = 49152; free_port == hosts || free_port == clients; free_port++) {
    }
    world_inject(w, "203.0.113.5:4000", free_port, 10);
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_UNKNOWN_TARGET), 1);
    world_close(w);
}

TEST(three_strangers_are_relayed_from_a_range_of_eight)
{
    open_pair((const char *[]){"udp_relay_ports=49152+7", NULL});
    admit_all();
    for (unsigned i = 1; i <= 3; i++) {
        char from[40], to[MR_ADDR_TEXT_MAX];
        unsigned from_port;
        snprintf(from, sizeof from, "203.0.113.%u:4000", i);
        world_inject(w, from, hosts, 10);
        CHECK_EQ(world_decide(w, from, hosts, to, &from_port), MR_VERDICT_FORWARD);
        CHECK(from_port >= 49152 && from_port <= 49159);
        CHECK_EQ(world_decide(w, "10.0.0.1:6000", from_port, to, NULL), MR_VERDICT_FORWARD);
        CHECK_STR(to, from);
    }
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", hosts, NULL, NULL), MR_VERDICT_FORWARD);
    world_close(w);
}

TEST(twenty_strangers_leave_ports_for_players)
{
    struct player third;
    unsigned a, b;

    open_pair((const char *[]){"udp_relay_ports=49152+7", "dynamic_share=100", NULL});
    admit_all();
    for (unsigned i = 1; i <= 20; i++) {
        char from[40];
        snprintf(from, sizeof from, "203.0.113.%u:4000", i);
        world_inject(w, from, hosts, 10);
    }
    CHECK_EQ(world_metric(w, "moonrelay_relays{kind=\"dynamic\"}"), 4.0);
    CHECK_EQ(world_metric(w, "moonrelay_ports{state=\"free\"}"), 2.0);
    third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    struct player fourth = world_join(w, "10.0.0.4:5000", "10.0.0.4:6000");
    CHECK(world_relay(w, &third, &fourth, &a, &b));
    CHECK_EQ(world_verdicts(w, MR_VERDICT_UNKNOWN_SENDER), 16);
    world_close(w);
}

TEST(dynamic_relays_are_capped_by_share_source_and_target)
{
    static const struct {
        const char *settings[3];
        double expected;
        bool one_source;
    } cases[] = {
        {{"dynamic_share=25", NULL}, 4, false},
        {{"dynamic_per_target=3", "dynamic_share=100", NULL}, 3, false},
        {{"dynamic_per_address=2", "dynamic_share=100", NULL}, 2, true},
        {{"dynamic_share=0", NULL}, 0, false},
        {{"dynamic_per_address=2", "caps_exempt=203.0.113.0/24", NULL}, 8, true},
    };

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        open_pair(cases[k].settings);
        admit_all();
        for (unsigned i = 1; i <= 10; i++) {
            char from[40];
            snprintf(from, sizeof from, "203.0.113.%u:%u", cases[k].one_source ? 1 : i, 4000 + i);
            world_inject(w, from, hosts, 10);
        }
        CHECK_EQ(world_metric(w, "moonrelay_relays{kind=\"dynamic\"}"), cases[k].expected);
        /* When they have ended there is room again. */
        w->now_ns += 31ull * 1000000000;
        world_settle(w);
        CHECK_EQ(world_relays(w), 0);
        REQUIRE(world_relay(w, &client, &host, &hosts, &clients));
        world_inject(w, "203.0.113.1:5001", hosts, 10);
        CHECK_EQ(world_metric(w, "moonrelay_relays{kind=\"dynamic\"}"), cases[k].expected > 0);
        world_close(w);
    }
}

TEST(a_stranger_who_sprays_both_ports_changes_nothing)
{
    char to[MR_ADDR_TEXT_MAX];

    open_pair(NULL);
    world_answer(w, MR_HOOK_DROP, MR_HOOK_NO_OPINION);
    world_inject(w, "10.0.0.1:6000", clients, 10); /* by now both are who they say */
    world_inject(w, "10.0.0.2:6000", hosts, 10);
    uint64_t before = sent();
    for (unsigned i = 0; i < 1000; i++) {
        char from[40];
        snprintf(from, sizeof from, "10.0.0.1:%u", 10000 + i);
        world_inject(w, from, i % 2 ? hosts : clients, 10);
    }
    CHECK_EQ(sent(), before);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", hosts, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:6000");
    CHECK_EQ(world_relays(w), 2);
    world_close(w);
}

TEST(a_player_reaches_his_game_and_himself_and_no_other_game)
{
    unsigned a, b;

    open_pair(NULL);
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    struct player fourth = world_join(w, "10.0.0.4:5000", "10.0.0.4:6000");
    REQUIRE(world_relay(w, &third, &fourth, &a, &b));
    for (unsigned port = 49152; port < 49168; port++) {
        enum mr_verdict v = world_decide(w, "10.0.0.2:6000", port, NULL, NULL);
        CHECK_EQ(v == MR_VERDICT_FORWARD, port == hosts || port == clients); /* his own: an echo */
        CHECK_EQ(v == MR_VERDICT_NOT_PAIRED, port == a || port == b);
    }
    world_close(w);
}

TEST(every_stranger_needs_the_create_hook_too)
{
    struct hook_pair tag = {{"game", 4}, {"chess", 5}};

    open_pair(NULL);
    struct hook_answer *answer = admit_all();
    answer->tags = (struct hook_map){&tag, 1};
    world_refuse(w, MR_HOOK_CREATE, "quota");
    world_inject(w, "203.0.113.5:4000", hosts, 10);
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_REFUSED), 1);
    CHECK(strstr(w->seen[MR_HOOK_CREATE], "reason=dynamic addr=203.0.113.5:4000"));
    CHECK(strstr(w->seen[MR_HOOK_CREATE], "session=-"));
    CHECK(strstr(w->seen[MR_HOOK_CREATE], host.oid));
    CHECK(strstr(w->seen[MR_HOOK_CREATE], "tags.game=chess"));
    world_close(w);
}

TEST(two_flows_of_one_stranger_become_one_relay)
{
    open_pair(NULL);
    admit_all();
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    world_inject(w, "203.0.113.5:4000", hosts, 10);
    world_inject(w, "203.0.113.5:4000", clients, 10);
    CHECK_EQ(w->n_pending, 1);
    world_answer_pending(w);
    CHECK_EQ(world_relays(w), 3);
    CHECK_EQ(w->canned[MR_HOOK_CREATE].asked, 1);
    CHECK_EQ(world_decide(w, "203.0.113.5:4000", hosts, NULL, NULL), MR_VERDICT_FORWARD);
    CHECK_EQ(world_decide(w, "203.0.113.5:4000", clients, NULL, NULL), MR_VERDICT_FORWARD);
    world_close(w);
}

TEST(a_knock_and_a_join_for_one_address_make_one_relay)
{
    char line[400];
    unsigned port;

    open_pair(NULL);
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    admit_all();
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    world_inject(w, "10.0.0.3:6000", clients, 10);
    snprintf(line, sizeof line, "connect-relay %s\n", host.oid);
    world_say(w, third.conn, line);
    CHECK_EQ(w->n_pending, 1);
    world_answer_pending(w);
    CHECK_EQ(sscanf(world_line(w, third.conn), "connect-relay %u", &port), 1);
    CHECK_EQ(port, hosts);
    CHECK_EQ(world_relays(w), 3);
    CHECK_EQ(w->canned[MR_HOOK_CREATE].asked, 1);
    CHECK_EQ(world_metric(w, "moonrelay_relays{kind=\"player\"}"), 3.0);
    CHECK_EQ(world_decide(w, "10.0.0.3:6000", hosts, NULL, NULL), MR_VERDICT_FORWARD);
    CHECK_EQ(world_decide(w, "10.0.0.3:6000", clients, NULL, NULL), MR_VERDICT_FORWARD);
    world_close(w);
}

TEST(a_target_that_ends_while_a_policy_thinks_ends_the_question)
{
    open_pair((const char *[]){"udp_relay_timeout=1s", "hold_time=10s", NULL});
    admit_all();
    world_keep_waiting(w, MR_HOOK_DROP, true);
    world_inject(w, "203.0.113.5:4000", hosts, 10);
    CHECK_EQ(w->n_pending, 1);
    world_advance(w, 1500);
    CHECK_EQ(w->n_pending, 0);
    CHECK_EQ(w->cancelled, 1);
    CHECK_EQ(world_relays(w), 0);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_UNKNOWN_SENDER), 1);
    world_close(w);
}

TEST(a_flow_that_became_known_meanwhile_is_released_unasked)
{
    open_pair(NULL);
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    struct mr_addr from = world_addr("10.0.0.3:6000");
    char line[400];

    world_answer(w, MR_HOOK_DROP, MR_HOOK_NO_OPINION);
    /* The datagram is there first, the command is handled first. */
    REQUIRE_EQ(mr_inject(w->mr, world_port(w, hosts), &from, "x", 1), 0);
    snprintf(line, sizeof line, "connect-relay %s\n", host.oid);
    mr__service_input(w->service, w->wires[third.conn].id, line, strlen(line), w->now_ns);
    world_settle(w);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 0);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_FORWARD), 1);
    world_close(w);
}

TEST(a_dynamic_relay_becomes_the_players_who_has_none_with_its_port)
{
    char to[MR_ADDR_TEXT_MAX];
    unsigned dynamic_port, a, b;

    open_pair(NULL);
    admit_all();
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    world_inject(w, "10.0.0.3:6000", hosts, 10);
    CHECK_EQ(world_metric(w, "moonrelay_relays{kind=\"dynamic\"}"), 1.0);
    CHECK_EQ(world_decide(w, "10.0.0.3:6000", hosts, to, &dynamic_port), MR_VERDICT_FORWARD);
    REQUIRE(world_relay(w, &host, &third, &a, &b));
    CHECK_EQ(a, dynamic_port);
    CHECK_EQ(world_metric(w, "moonrelay_relays{kind=\"dynamic\"}"), 0.0);
    CHECK_EQ(world_metric(w, "moonrelay_relays{kind=\"player\"}"), 3.0);
    CHECK_EQ(world_relays(w), 3);
    world_close(w);
}

TEST(a_player_who_moves_to_a_strangers_address_brings_his_own_port)
{
    char to[MR_ADDR_TEXT_MAX];
    unsigned from_port;

    open_pair(NULL);
    admit_all();
    world_advance(w, 11000); /* else it would be the client himself */
    world_inject(w, "10.0.0.2:7000", hosts, 10);
    CHECK_EQ(world_relays(w), 3);
    CHECK_STR(world_see(w, &client, "10.0.0.2:7000"), "OK");
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(world_decide(w, "10.0.0.2:7000", hosts, to, &from_port), MR_VERDICT_FORWARD);
    CHECK_EQ(from_port, clients);
    world_close(w);
}

TEST(services_are_not_relayed_to)
{
    open_pair(NULL);
    admit_all();
    world_inject(w, "203.0.113.5:53", hosts, 10);
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_ADDRESS_CLASS), 1);
    world_inject(w, "224.0.0.1:4000", hosts, 10);
    world_inject(w, "0.0.0.0:4000", hosts, 10);
    world_inject(w, "255.255.255.255:4000", hosts, 10);
    CHECK_EQ(world_relays(w), 2);
    world_close(w);
}

TEST(the_page_is_in_balance_whatever_happens)
{
    static const char *const reasons[] = {
#define X(constant, name, text) name,
        MR_VERDICTS (X)
#undef X
    };

    open_pair(NULL);
    admit_all();
    w->canned[MR_HOOK_DROP].answer.outcome = MR_HOOK_NO_OPINION;
    for (unsigned i = 0; i < 500; i++) {
        char from[40];
        snprintf(from, sizeof from, "10.0.0.%u:%u", (unsigned)test_random_below(6),
                 (unsigned)(5998 + test_random_below(4)));
        world_keep_waiting(w, MR_HOOK_DROP, test_random_below(2));
        world_inject(w, from, (unsigned)(49152 + test_random_below(16)), 10);
        if (test_random_below(20) == 0) {
            world_answer_pending(w);
        }
    }
    double drops = 0;
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        char name[80];
        snprintf(name, sizeof name, "moonrelay_drops_total{reason=\"%s\"}", reasons[i]);
        double v = world_metric(w, name);
        drops += v > 0 ? v : 0;
    }
    CHECK_EQ(world_metric(w, "moonrelay_packets_total{direction=\"in\"}"), 500.0);
    CHECK_EQ(world_metric(w, "moonrelay_packets_total{direction=\"out\"}") + drops +
                 world_metric(w, "moonrelay_held"),
             500.0);
    CHECK_EQ(world_metric(w, "noray_relay_drop_count"), drops);
    world_answer_pending(w);
    world_close(w);
}

TEST_MAIN(TEST_CASE(without_a_policy_a_stranger_is_dropped_at_once),
          TEST_CASE(a_stranger_without_an_opinion_keeps_the_reason_he_was_found_with),
          TEST_CASE(an_admitted_stranger_gets_a_relay_and_what_was_held_goes_on_in_order),
          TEST_CASE(a_policy_may_bound_what_is_held_of_a_flow_while_create_is_asked),
          TEST_CASE(known_is_who_has_or_had_a_session_at_that_ip),
          TEST_CASE(a_refused_flow_is_counted_so_and_a_muted_one_makes_no_event),
          TEST_CASE(a_free_port_has_nobody_to_reach_even_when_a_policy_admits),
          TEST_CASE(three_strangers_are_relayed_from_a_range_of_eight),
          TEST_CASE(twenty_strangers_leave_ports_for_players),
          TEST_CASE(dynamic_relays_are_capped_by_share_source_and_target),
          TEST_CASE(a_stranger_who_sprays_both_ports_changes_nothing),
          TEST_CASE(a_player_reaches_his_game_and_himself_and_no_other_game),
          TEST_CASE(every_stranger_needs_the_create_hook_too),
          TEST_CASE(two_flows_of_one_stranger_become_one_relay),
          TEST_CASE(a_knock_and_a_join_for_one_address_make_one_relay),
          TEST_CASE(a_target_that_ends_while_a_policy_thinks_ends_the_question),
          TEST_CASE(a_flow_that_became_known_meanwhile_is_released_unasked),
          TEST_CASE(a_dynamic_relay_becomes_the_players_who_has_none_with_its_port),
          TEST_CASE(a_player_who_moves_to_a_strangers_address_brings_his_own_port),
          TEST_CASE(services_are_not_relayed_to),
          TEST_CASE(the_page_is_in_balance_whatever_happens))
