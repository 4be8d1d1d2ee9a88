/* SPDX-License-Identifier: MIT */
/*
 * The registrar: who is answered, what a move does. One thread.
 */
#include "test.h"
#include "world.h"

#include <string.h>

TEST(a_known_pid_is_answered_ok_the_first_time_and_every_time)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", NULL);

    for (int i = 0; i < 100; i++) {
        CHECK_STR(world_see(w, &p, "10.0.0.1:6000"), "OK");
    }
    CHECK_EQ(w->replies, 100);
    CHECK_EQ(world_metric(w, "noray_remote_registrar_success"), 1.0);
    CHECK_EQ(world_metric(w, "noray_remote_registrar_repeat"), 99.0);
    CHECK_EQ(world_metric(w, "moonrelay_sessions{state=\"addressed\"}"), 1.0);
    world_close(w);
}

TEST(what_is_not_exactly_a_pid_is_none)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", NULL);
    char data[512];

    memset(data, 'x', sizeof data);
    CHECK_STR(world_registrar(w, "10.0.0.1:6000", data, 0), "");
    CHECK_STR(world_registrar(w, "10.0.0.1:6000", data, 1), "");
    CHECK_STR(world_registrar(w, "10.0.0.1:6000", data, 127), "");
    CHECK_STR(world_registrar(w, "10.0.0.1:6000", data, 128), "Unknown host pid!");
    CHECK_STR(world_registrar(w, "10.0.0.1:6000", data, 129), "");
    snprintf(data, sizeof data, "%s\n", p.pid);
    CHECK_STR(world_registrar(w, "10.0.0.1:6000", data, 129), "");
    data[128] = '\0';
    CHECK_STR(world_registrar(w, "10.0.0.1:6000", data, 129), "");
    for (char *q = data; *q; q++) {
        if (*q >= 'a' && *q <= 'z') {
            *q = (char)(*q - 32);
            break;
        }
    }
    CHECK_STR(world_registrar(w, "10.0.0.1:6000", data, 128), "Unknown host pid!");
    CHECK_STR(world_see(w, &p, "10.0.0.1:6000"), "OK");
    mr__service_closed(w->service, w->wires[p.conn].id, MR_CONN_CLOSED, w->now_ns);
    CHECK_STR(world_see(w, &p, "10.0.0.1:6000"), "Unknown host pid!");
    world_close(w);
}

TEST(short_pids_get_no_answer_that_is_longer_than_the_question)
{
    struct world *w = world_open((const char *[]){"pid_length=16", NULL});
    char data[17] = "0123456789abcdef";

    CHECK_STR(world_registrar(w, "10.0.0.1:6000", data, 16), "");
    CHECK_EQ(world_metric(w, "moonrelay_registrar_total{result=\"silent\"}"), 1.0);
    world_close(w);
}

TEST(answers_to_unknown_ids_have_a_budget_per_source_and_a_real_id_needs_none)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", NULL);
    char data[128];
    unsigned answered = 0;

    memset(data, 'x', sizeof data);
    for (int i = 0; i < 100; i++) {
        answered += world_registrar(w, "10.0.0.1:6000", data, 128)[0] != 0;
    }
    CHECK_EQ(answered, 10);
    CHECK_STR(world_see(w, &p, "10.0.0.1:6000"), "OK");
    CHECK_STR(world_registrar(w, "10.0.0.2:6000", data, 128), "Unknown host pid!");
    world_advance(w, 1000);
    for (int i = 0; i < 100; i++) {
        answered += world_registrar(w, "10.0.0.1:6001", data, 128)[0] != 0;
    }
    CHECK_EQ(answered, 20);
    CHECK_EQ(world_metric(w, "moonrelay_registrar_total{result=\"limited\"}"), 180.0);
    CHECK_EQ(world_metric(w, "moonrelay_registrar_total{result=\"unknown\"}"), 21.0);
    world_close(w);
}

TEST(a_net_that_is_exempt_is_answered_without_a_budget)
{
    struct world *w = world_open((const char *[]){"caps_exempt=10.0.0.0/24", NULL});
    char data[128];

    memset(data, 'x', sizeof data);
    for (int i = 0; i < 100; i++) {
        CHECK_STR(world_registrar(w, "10.0.0.1:6000", data, 128), "Unknown host pid!");
    }
    world_close(w);
}

TEST(a_flood_from_a_thousand_sources_takes_no_memory)
{
    struct world *w = world_open(NULL);
    char data[128], from[32];
    long blocks = mr__alloc_live();

    memset(data, 'x', sizeof data);
    for (unsigned i = 0; i < 5000; i++) {
        snprintf(from, sizeof from, "10.1.%u.%u:6000", i / 250, i % 250);
        world_registrar(w, from, data, 128);
    }
    CHECK_EQ(mr__alloc_live(), blocks);
    CHECK_EQ(w->replies, 5000);
    world_close(w);
}

TEST(services_and_our_own_sockets_are_never_answered)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", NULL);
    struct mr_addr own = world_addr("192.0.2.1:8809");

    REQUIRE_EQ(mr_own_address(w->mr, &own), 0);
    CHECK_STR(world_see(w, &p, "192.0.2.1:8809"), "");
    CHECK_STR(world_see(w, &p, "10.0.0.1:53"), "");
    CHECK_STR(world_see(w, &p, "224.0.0.1:6000"), "");
    CHECK_STR(world_see(w, &p, "255.255.255.255:6000"), "");
    CHECK_STR(world_see(w, &p, "0.0.0.0:6000"), "");
    CHECK_EQ(w->replies, 0);
    world_close(w);
    w = world_open((const char *[]){"allow_low_ports=on", NULL});
    p = world_join(w, "10.0.0.1:5000", NULL);
    CHECK_STR(world_see(w, &p, "10.0.0.1:53"), "OK");
    world_close(w);
}

TEST(a_mapped_address_is_an_ipv4_address)
{
    struct world *w = world_open((const char *[]){"udp_host=::", NULL});
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    struct player q = world_join(w, "10.0.0.2:5000", NULL);
    struct mr_addr mapped = {.family = 6, .port = 6001}, local = world_addr("10.9.9.9:8809");
    char line[400];

    memcpy(mapped.ip + 10, "\xff\xff\x0a\x00\x00\x02", 6);
    mr__service_registrar(w->service, &mapped, &local, q.pid, strlen(q.pid), w->now_ns);
    snprintf(line, sizeof line, "connect %s\n", q.oid);
    world_say(w, p.conn, line);
    CHECK_STR(world_line(w, p.conn), "connect 10.0.0.2:6001");
    world_close(w);
}

/* ---- moving -------------------------------------------------------------------------------- */

TEST(a_host_that_moves_keeps_its_port_and_its_games)
{
    struct world *w = world_open(NULL);
    struct player host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    struct player client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    unsigned hosts, clients, from_port;
    char to[MR_ADDR_TEXT_MAX], line[400];

    REQUIRE(world_relay(w, &client, &host, &hosts, &clients));
    CHECK_STR(world_see(w, &host, "10.0.0.1:6009"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", hosts, to, &from_port), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:6009");
    CHECK_EQ(from_port, clients);
    CHECK_EQ(world_decide(w, "10.0.0.1:6009", clients, to, &from_port), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.2:6000");
    CHECK_EQ(from_port, hosts);
    CHECK_NE(world_decide(w, "10.0.0.1:6000", clients, NULL, NULL), MR_VERDICT_FORWARD);
    snprintf(line, sizeof line, "connect %s\n", host.oid);
    world_say(w, client.conn, line);
    CHECK_STR(world_line(w, client.conn), "connect 10.0.0.1:6009");
    CHECK_EQ(world_metric(w, "moonrelay_registrar_total{result=\"moved\"}"), 1.0);
    CHECK_EQ(world_relays(w), 2);
    world_close(w);
}

TEST(a_move_is_answered_only_when_it_is_in_force)
{
    struct world *w = world_open(NULL);
    struct player host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    struct player client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    struct mr_addr from = world_addr("10.0.0.1:6009"), local = world_addr("10.9.9.9:8809");
    unsigned a, b;

    REQUIRE(world_relay(w, &client, &host, &a, &b));
    w->replies = 0;
    mr__service_registrar(w->service, &from, &local, host.pid, strlen(host.pid), w->now_ns);
    bool was_in_force = mr_in_force(w->mr) >= mr_seq(w->mr);
    CHECK_EQ(w->replies, was_in_force);
    mr__service_registrar(w->service, &from, &local, host.pid, strlen(host.pid), w->now_ns);
    world_settle(w);
    CHECK_EQ(w->replies, 1 + was_in_force);
    world_close(w);
}

TEST(two_players_at_one_address_share_a_relay_and_the_later_owns_it)
{
    struct world *w = world_open(NULL);
    struct player first = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    struct player later = world_join(w, "10.0.0.1:5001", "10.0.0.1:6000");
    struct player client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    unsigned a, b, c, d;
    char to[MR_ADDR_TEXT_MAX];

    REQUIRE(world_relay(w, &client, &first, &a, &b));
    REQUIRE(world_relay(w, &client, &later, &c, &d));
    CHECK_EQ(a, c);
    CHECK_EQ(world_relays(w), 2);
    /* The first one moves alone: the relay stays with the later. */
    CHECK_STR(world_see(w, &first, "10.0.0.1:7000"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:6000");
    /* The later moves: it goes with him. */
    CHECK_STR(world_see(w, &later, "10.0.0.1:8000"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:8000");
    world_close(w);
}

TEST(the_later_player_owns_a_relay_that_was_made_for_the_first)
{
    struct world *w = world_open(NULL);
    struct player first = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    struct player later = world_join(w, "10.0.0.1:5001", "10.0.0.1:6000");
    struct player client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    unsigned a, b;
    char to[MR_ADDR_TEXT_MAX];

    REQUIRE(world_relay(w, &client, &first, &a, &b));
    CHECK_STR(world_see(w, &first, "10.0.0.1:7000"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:6000");
    CHECK_STR(world_see(w, &later, "10.0.0.1:8000"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:8000");
    /* The first one has none any more and gets one of his own. */
    REQUIRE(world_relay(w, &client, &first, &a, &b));
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:7000");
    CHECK_EQ(world_relays(w), 3);
    world_close(w);
}

TEST(a_host_that_reconnects_takes_its_relay_along)
{
    struct world *w = world_open(NULL);
    struct player host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    struct player client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    unsigned a, b;
    char to[MR_ADDR_TEXT_MAX];

    REQUIRE(world_relay(w, &client, &host, &a, &b));
    mr__service_closed(w->service, w->wires[host.conn].id, MR_CONN_RESET, w->now_ns);
    CHECK_EQ(world_relays(w), 2);
    struct player again = world_join(w, "10.0.0.1:5001", "10.0.0.1:6000");
    CHECK_STR(world_see(w, &again, "10.0.0.1:6005"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:6005");
    world_close(w);
}

TEST(when_a_move_brings_two_relays_to_one_address_both_deliver)
{
    struct world *w = world_open(NULL);
    struct player one = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    struct player two = world_join(w, "10.0.0.1:5001", "10.0.0.1:6001");
    struct player client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    unsigned port_one, port_two, c;
    char to[MR_ADDR_TEXT_MAX];

    REQUIRE(world_relay(w, &client, &one, &port_one, &c));
    REQUIRE(world_relay(w, &client, &two, &port_two, &c));
    CHECK_STR(world_see(w, &two, "10.0.0.1:6000"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", port_one, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:6000");
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", port_two, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:6000");
    world_close(w);
}

TEST_MAIN(TEST_CASE(a_known_pid_is_answered_ok_the_first_time_and_every_time),
          TEST_CASE(what_is_not_exactly_a_pid_is_none),
          TEST_CASE(short_pids_get_no_answer_that_is_longer_than_the_question),
          TEST_CASE(answers_to_unknown_ids_have_a_budget_per_source_and_a_real_id_needs_none),
          TEST_CASE(a_net_that_is_exempt_is_answered_without_a_budget),
          TEST_CASE(a_flood_from_a_thousand_sources_takes_no_memory),
          TEST_CASE(services_and_our_own_sockets_are_never_answered),
          TEST_CASE(a_mapped_address_is_an_ipv4_address),
          TEST_CASE(a_host_that_moves_keeps_its_port_and_its_games),
          TEST_CASE(a_move_is_answered_only_when_it_is_in_force),
          TEST_CASE(two_players_at_one_address_share_a_relay_and_the_later_owns_it),
          TEST_CASE(the_later_player_owns_a_relay_that_was_made_for_the_first),
          TEST_CASE(a_host_that_reconnects_takes_its_relay_along),
          TEST_CASE(when_a_move_brings_two_relays_to_one_address_both_deliver))
