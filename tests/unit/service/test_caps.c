/* SPDX-License-Identifier: MIT */
/*
 * Caps per address and what is held back instead of refused: connections, the pace of
 * commands, wrong ids. One thread.
 */
#include "test.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

#define HITS(kind) "moonrelay_limit_hits_total{kind=\"" kind "\"}"

/* Is a connection from there told that it is one of too many? */
static bool is_refused(struct world *w, const char *peer)
{
    size_t c = world_connect(w, peer);

    world_advance(w, 10);
    if (w->wires[c].is_closed) {
        CHECK_STR(world_line(w, c), "error connection:too-many");
        return true;
    }
    CHECK_STR(world_line(w, c), "");
    return false;
}

TEST(one_address_may_have_so_many_connections_and_others_get_in)
{
    struct world *w = world_open((const char *[]){"max_connections_per_address=3", NULL});
    size_t first = world_connect(w, "10.0.0.1:5000");

    CHECK(!is_refused(w, "10.0.0.1:5001"));
    CHECK(!is_refused(w, "10.0.0.1:5002"));
    CHECK(is_refused(w, "10.0.0.1:5003"));
    CHECK(is_refused(w, "[::ffff:10.0.0.1]:5004"));
    CHECK(!is_refused(w, "10.0.0.2:5000"));
    CHECK_EQ(world_metric(w, HITS("connections")), 2.0);
    mr__service_closed(w->service, w->wires[first].id, MR_CONN_CLOSED, w->now_ns);
    CHECK(!is_refused(w, "10.0.0.1:5005"));
    CHECK(is_refused(w, "10.0.0.1:5006"));
    world_close(w);
}

/* A byte now and then is no reason to end a connection: a player in a lobby says nothing for hours.
 */
TEST(a_thousand_connections_that_drip_keep_nobody_from_another_address_out)
{
    enum { CROWD = 1000, CAP = 256, EVERY_MS = 5000, TIMES = 60 };
    struct world *w = world_open(NULL);
    size_t first = w->n_wires, inside = 0;

    for (unsigned i = 0; i < CROWD; i++) {
        char from[32];
        snprintf(from, sizeof from, "10.0.0.1:%u", 5000 + i);
        inside += !is_refused(w, from);
    }
    CHECK_EQ(inside, CAP);
    CHECK_EQ(world_metric(w, HITS("connections")), CROWD - CAP);
    long blocks = 0;
    for (int round = 0; round < TIMES; round++) {
        for (size_t i = 0; i < CAP; i++) {
            mr__service_input(w->service, w->wires[first + i].id, "e", 1, w->now_ns);
        }
        world_advance(w, EVERY_MS);
        blocks = round == 0 ? mr__alloc_live() : blocks;
    }
    CHECK_EQ(mr__alloc_live(), blocks);
    CHECK_EQ(world_metric(w, "noray_tcp_connections"), CAP);
    CHECK(is_refused(w, "10.0.0.1:7000"));
    struct player p = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    struct player q = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    unsigned a, b;
    CHECK(world_relay(w, &p, &q, &a, &b));
    world_close(w);
}

TEST(a_customers_whole_64_of_ipv6_counts_as_one_address)
{
    struct world *w = world_open((const char *[]){"max_connections_per_address=2", NULL});

    CHECK(!is_refused(w, "[2001:db8::1]:5000"));
    CHECK(!is_refused(w, "[2001:db8::2:0:0:1]:5000"));
    CHECK(is_refused(w, "[2001:db8::ffff:ffff:ffff:ffff]:5000"));
    CHECK(!is_refused(w, "[2001:db8:0:1::1]:5000"));
    world_close(w);
}

TEST(networks_that_are_exempt_have_no_cap_per_address)
{
    struct world *w =
        world_open((const char *[]){"max_connections_per_address=1", "failed_oids_per_minute=1",
                                    "caps_exempt=10.1.0.0/16, 2001:db8::/32", NULL});
    struct player p = world_join(w, "10.1.2.3:5000", "10.1.2.3:4000");

    CHECK(!is_refused(w, "10.1.2.3:5001"));
    CHECK(!is_refused(w, "[2001:db8::1]:5000"));
    CHECK(!is_refused(w, "[2001:db8::1]:5001"));
    for (int i = 0; i < 5; i++) {
        world_say(w, p.conn, "connect nope\n");
        CHECK_STR(world_line(w, p.conn), "error connect:unknown-oid");
    }
    CHECK(!is_refused(w, "10.2.2.3:5000"));
    CHECK(is_refused(w, "10.2.2.3:5001"));
    world_close(w);
}

TEST(one_host_of_a_64_may_be_exempt)
{
    struct world *w = world_open((const char *[]){"max_connections_per_address=1",
                                                  "caps_exempt=2001:db8::5, 2001:db8:1::", NULL});

    CHECK(!is_refused(w, "[2001:db8::5]:5000"));
    CHECK(!is_refused(w, "[2001:db8::5]:5001"));
    CHECK(is_refused(w, "[2001:db8::6]:5000"));
    CHECK(!is_refused(w, "[2001:db8:1::1]:5000")); /* the first address of its /64 is another one */
    CHECK(is_refused(w, "[2001:db8:1::1]:5001"));
    world_close(w);
}

TEST(whoever_opens_thousands_over_the_cap_is_not_answered_for_ever)
{
    struct world *w = world_open((const char *[]){"max_connections_per_address=1", NULL});
    struct mr_addr peer = world_addr("10.0.0.1:5000"), local = world_addr("10.9.9.9:8890");
    unsigned answered = 0;

    for (unsigned i = 0; i < 5000; i++) {
        conn_id id = mr__service_accept(w->service, &peer, &local, w->now_ns);
        if (id != 0) {
            w->wires[w->n_wires++] = (struct wire){.id = id};
            answered++;
        }
        world_settle(w);
    }
    CHECK_GE(answered, 1000);
    CHECK_LT(answered, 1100);
    peer = world_addr("10.0.0.2:5000");
    CHECK(mr__service_accept(w->service, &peer, &local, w->now_ns) != 0);
    world_close(w);
}

TEST(thirty_players_behind_one_address_register_join_mistype_and_play)
{
    struct world *w = world_open((const char *[]){"udp_relay_ports=0+63", NULL});
    struct player players[30];
    unsigned a, b;

    for (int i = 0; i < 30; i++) {
        char tcp[64], udp[64];
        snprintf(tcp, sizeof tcp, "203.0.113.7:%d", 5000 + i);
        snprintf(udp, sizeof udp, "203.0.113.7:%d", 4000 + i);
        players[i] = world_join(w, tcp, udp);
        world_say(w, players[i].conn, "connect-relay mistyped\n");
        CHECK_STR(world_line(w, players[i].conn), "error connect-relay:unknown-oid");
    }
    for (int i = 1; i < 30; i++) {
        CHECK(world_relay(w, &players[i], &players[0], &a, &b));
    }
    world_close(w);
}

static void send_echoes(struct world *w, size_t conn, int n)
{
    for (int i = 0; i < n; i++) {
        char line[32];
        snprintf(line, sizeof line, "echo %d\n", i);
        mr__service_input(w->service, w->wires[conn].id, line, strlen(line), w->now_ns);
    }
    world_settle(w);
}

TEST(who_commands_too_fast_is_read_more_slowly_and_loses_nothing)
{
    struct world *w =
        world_open((const char *[]){"commands_per_second=10", "commands_burst=20", NULL});
    size_t fast = world_connect(w, "10.0.0.1:5000"), other = world_connect(w, "10.0.0.1:5001");

    send_echoes(w, fast, 60);
    CHECK_EQ(world_lines_left(w, fast), 20);
    CHECK(w->wires[fast].is_paused);
    CHECK_GT(mr__service_deadline(w->service), w->now_ns); /* it does not spin */
    world_say(w, other, "echo me\n");
    CHECK_STR(world_line(w, other), "echo me");
    CHECK(!w->wires[other].is_paused);
    CHECK_GT(world_metric(w, HITS("commands")), 0.0);
    for (int tenths = 0; tenths < 10; tenths++) {
        world_advance(w, 100);
    }
    CHECK_GE(world_lines_left(w, fast), 28);
    CHECK_LE(world_lines_left(w, fast), 30);
    for (int tenths = 0; tenths < 50; tenths++) {
        world_advance(w, 100);
    }
    for (int i = 0; i < 60; i++) {
        char line[32];
        snprintf(line, sizeof line, "echo %d", i);
        CHECK_STR(world_line(w, fast), line);
    }
    CHECK(!w->wires[fast].is_paused);
    CHECK(!w->wires[fast].is_closed);
    world_close(w);
}

TEST(what_came_before_a_fin_is_answered_however_slowly)
{
    struct world *w =
        world_open((const char *[]){"commands_per_second=10", "commands_burst=1", NULL});
    size_t c = world_connect(w, "10.0.0.1:5000");

    send_echoes(w, c, 10);
    mr__service_eof(w->service, w->wires[c].id, w->now_ns);
    world_settle(w);
    CHECK_EQ(world_lines_left(w, c), 1);
    CHECK(!w->wires[c].is_closed);
    for (int tenths = 0; tenths < 20; tenths++) {
        world_advance(w, 100);
    }
    CHECK_EQ(world_lines_left(w, c), 10);
    CHECK(w->wires[c].is_closed);
    world_close(w);
}

TEST(five_thousand_commands_at_once_are_a_burst_that_nobody_holds_back)
{
    struct world *w = world_open(NULL);
    size_t c = world_connect(w, "10.0.0.1:5000");

    send_echoes(w, c, 5000);
    CHECK_EQ(world_lines_left(w, c), 5000);
    CHECK_EQ(world_metric(w, HITS("commands")), 0.0);
    send_echoes(w, c, 1);
    CHECK_EQ(world_lines_left(w, c), 5000);
    world_advance(w, 200);
    CHECK_EQ(world_lines_left(w, c), 5001);
    world_close(w);
}

TEST(after_so_many_wrong_ids_the_same_answer_comes_two_seconds_late)
{
    struct world *w = world_open((const char *[]){"failed_oids_per_minute=3", NULL});
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"),
                  q = world_join(w, "10.0.0.2:5000", "10.0.0.2:4000");

    for (int i = 0; i < 3; i++) {
        world_say(w, p.conn, "connect nope\n");
        CHECK_STR(world_line(w, p.conn), "error connect:unknown-oid");
    }
    world_say(w, p.conn, "connect-relay?7 nope\necho next\n");
    CHECK_STR(world_line(w, p.conn), "");
    CHECK_EQ(world_metric(w, HITS("failed-oids")), 1.0);
    world_say(w, q.conn, "connect nope\n");
    CHECK_STR(world_line(w, q.conn), "error connect:unknown-oid");
    world_advance(w, 1990);
    CHECK_STR(world_line(w, p.conn), "");
    world_advance(w, 20);
    CHECK_STR(world_line(w, p.conn), "!7 unknown-oid");
    CHECK_STR(world_line(w, p.conn), "echo next");
    CHECK(!w->wires[p.conn].is_closed);
    for (int seconds = 0; seconds < 60; seconds++) {
        world_advance(w, 1000);
    }
    world_say(w, p.conn, "connect nope\n");
    CHECK_STR(world_line(w, p.conn), "error connect:unknown-oid");
    world_close(w);
}

TEST(a_right_id_is_never_late)
{
    struct world *w = world_open((const char *[]){"failed_oids_per_minute=1", NULL});
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"),
                  host = world_join(w, "10.0.0.2:5000", "10.0.0.2:4000");
    unsigned a, b;

    world_say(w, p.conn, "connect nope\n");
    world_say(w, p.conn, "connect nope\n");
    CHECK_STR(world_line(w, p.conn), "error connect:unknown-oid");
    world_advance(w, 2010);
    CHECK_STR(world_line(w, p.conn), "error connect:unknown-oid");
    CHECK(world_relay(w, &p, &host, &a, &b));
    world_close(w);
}

TEST(who_leaves_while_his_answer_is_late_is_forgotten)
{
    struct world *w = world_open((const char *[]){"failed_oids_per_minute=1", NULL});
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"),
                  q = world_join(w, "10.0.0.1:5001", "10.0.0.1:4001");

    world_say(w, p.conn, "connect nope\nconnect nope\n");
    world_say(w, q.conn, "connect nope\n");
    CHECK_STR(world_line(w, p.conn), "error connect:unknown-oid");
    CHECK_STR(world_line(w, q.conn), "");
    mr__service_closed(w->service, w->wires[p.conn].id, MR_CONN_RESET, w->now_ns);
    world_advance(w, 2010);
    CHECK_STR(world_line(w, p.conn), "");
    CHECK_STR(world_line(w, q.conn), "error connect:unknown-oid");
    world_say(w, q.conn, "connect nope\n");
    world_close(w); /* with one that is late still */
}

TEST(who_is_closed_for_what_he_did_not_read_is_counted_and_who_leaves_is_not)
{
    struct world *w = world_open(NULL);
    size_t deaf = world_connect(w, "10.0.0.1:5000"), other = world_connect(w, "10.0.0.1:5001");

    mr__service_closed(w->service, w->wires[other].id, MR_CONN_RESET, w->now_ns);
    CHECK_EQ(world_metric(w, HITS("output")), 0.0);
    mr__service_closed(w->service, w->wires[deaf].id, MR_CONN_OUTPUT, w->now_ns);
    CHECK_EQ(world_metric(w, HITS("output")), 1.0);
    world_close(w);
}

TEST_MAIN(TEST_CASE(one_address_may_have_so_many_connections_and_others_get_in),
          TEST_CASE(a_thousand_connections_that_drip_keep_nobody_from_another_address_out),
          TEST_CASE(a_customers_whole_64_of_ipv6_counts_as_one_address),
          TEST_CASE(networks_that_are_exempt_have_no_cap_per_address),
          TEST_CASE(one_host_of_a_64_may_be_exempt),
          TEST_CASE(whoever_opens_thousands_over_the_cap_is_not_answered_for_ever),
          TEST_CASE(thirty_players_behind_one_address_register_join_mistype_and_play),
          TEST_CASE(who_commands_too_fast_is_read_more_slowly_and_loses_nothing),
          TEST_CASE(what_came_before_a_fin_is_answered_however_slowly),
          TEST_CASE(five_thousand_commands_at_once_are_a_burst_that_nobody_holds_back),
          TEST_CASE(after_so_many_wrong_ids_the_same_answer_comes_two_seconds_late),
          TEST_CASE(a_right_id_is_never_late),
          TEST_CASE(who_leaves_while_his_answer_is_late_is_forgotten),
          TEST_CASE(who_is_closed_for_what_he_did_not_read_is_counted_and_who_leaves_is_not))
