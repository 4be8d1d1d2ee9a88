/* SPDX-License-Identifier: MIT */
/*
 * A drain: who is told what, who can be joined, when it is over. One thread.
 */
#include "test.h"
#include "world.h"

#include "service/drain.h"
#include "service/players.h"

#include <errno.h>
#include <string.h>

static struct str str(const char *text)
{
    return (struct str){text, strlen(text)};
}

static void drain(struct world *w, uint64_t seconds)
{
    CHECK_EQ(mr__service_drain(w->service, seconds * 1000000000, "test", w->now_ns), 0);
    world_settle(w);
}

#define LINE(player) world_line(w, (player).conn)

/* A game that was there before. */
struct game {
    struct player host, client;
};

static struct game play(struct world *w)
{
    struct game g = {world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"),
                     world_join(w, "10.0.0.2:5000", "10.0.0.2:4000")};
    unsigned a, b;

    CHECK(world_relay(w, &g.client, &g.host, &a, &b));
    return g;
}

static void join(struct world *w, const struct player *who, const struct player *host)
{
    char line[400];

    snprintf(line, sizeof line, "connect-relay %s\n", host->oid);
    world_say(w, who->conn, line);
}

TEST(a_running_game_takes_players_who_come_back_and_a_new_host_cannot_be_joined)
{
    struct world *w = world_open(NULL);
    struct game g = play(w);
    struct player back, late;
    unsigned a, b;

    drain(w, 600);
    CHECK_STR(LINE(g.host), "notice draining:600");
    CHECK_STR(LINE(g.client), "notice draining:600");
    mr__service_closed(w->service, w->wires[g.client.conn].id, MR_CONN_RESET, w->now_ns);
    back = world_join(w, "10.0.0.2:5001", "10.0.0.2:4001");
    CHECK_STR(LINE(back), "notice draining:600");
    CHECK(world_relay(w, &back, &g.host, &a, &b));
    late = world_join(w, "10.0.0.3:5000", "10.0.0.3:4000");
    CHECK_STR(LINE(late), "notice draining:600");
    join(w, &back, &late);
    CHECK_STR(LINE(back), "error connect-relay:draining");
    char line[400];
    snprintf(line, sizeof line, "connect %s\n", late.oid);
    world_say(w, back.conn, line);
    CHECK_STR(LINE(back), "error connect:draining");
    CHECK_EQ(world_lines_left(w, late.conn), 0);
    CHECK_EQ((int)world_metric(w, "moonrelay_draining"), 1);
    CHECK_EQ(
        (int)world_metric(w, "moonrelay_errors_total{command=\"connect-relay\",code=\"draining\"}"),
        1);
    world_close(w);
}

TEST(draining_comes_after_an_unknown_oid_and_before_missing_addresses)
{
    struct world *w = world_open(NULL);
    struct game g = play(w);
    struct player unseen;
    struct player late;

    drain(w, 60);
    unseen = world_join(w, "10.0.0.4:5000", NULL);
    late = world_join(w, "10.0.0.3:5000", NULL);
    (void)LINE(unseen);
    world_say(w, unseen.conn, "connect-relay nope\n");
    CHECK_STR(LINE(unseen), "error connect-relay:unknown-oid");
    join(w, &unseen, &late);
    CHECK_STR(LINE(unseen), "error connect-relay:draining");
    join(w, &unseen, &g.host);
    CHECK_STR(LINE(unseen), "error connect-relay:client-no-address");
    world_close(w);
}

TEST(a_chain_that_ends_at_a_new_host_is_refused_although_it_asked_for_an_old_one)
{
    struct world *w = world_open(NULL);
    struct game g = play(w);
    struct player late;

    drain(w, 60);
    (void)LINE(g.client);
    late = world_join(w, "10.0.0.3:5000", "10.0.0.3:4000");
    world_answer(w, MR_HOOK_CONNECT, MR_HOOK_ADMIT)->oid = str(late.oid);
    join(w, &g.client, &g.host);
    CHECK_STR(LINE(g.client), "error connect-relay:draining");
    world_close(w);
}

TEST(a_cancelled_drain_is_as_if_it_had_never_begun)
{
    struct world *w = world_open(NULL);
    struct game g = play(w);
    struct player late;
    unsigned a, b;

    CHECK_EQ(mr__service_drain_cancel(w->service, "test", w->now_ns), -ENOENT);
    drain(w, 60);
    late = world_join(w, "10.0.0.3:5000", "10.0.0.3:4000");
    CHECK(mr__service_not_ready(w->service, w->now_ns) != NULL);
    CHECK_EQ(mr__service_drain_cancel(w->service, "test", w->now_ns), 0);
    CHECK_STR(LINE(g.host), "notice draining:60");
    CHECK_STR(LINE(g.host), "notice drain-cancelled");
    (void)LINE(late);
    (void)LINE(late);
    (void)LINE(g.client);
    (void)LINE(g.client);
    CHECK(world_relay(w, &g.client, &late, &a, &b));
    CHECK(mr__service_not_ready(w->service, w->now_ns) == NULL);
    CHECK_EQ((int)world_metric(w, "moonrelay_draining"), 0);
    world_advance(w, 61000);
    CHECK(!mr__service_is_drained(w->service));
    world_close(w);
}

TEST(who_registered_during_a_cancelled_drain_can_be_joined_in_the_next_one)
{
    struct world *w = world_open(NULL);
    struct game g = play(w);
    struct player late;
    unsigned a, b;

    drain(w, 60);
    late = world_join(w, "10.0.0.3:5000", "10.0.0.3:4000");
    CHECK_EQ(mr__service_drain_cancel(w->service, "test", w->now_ns), 0);
    drain(w, 60);
    for (int i = 0; i < 3; i++) {
        (void)LINE(late);
        (void)LINE(g.client);
    }
    CHECK(world_relay(w, &g.client, &late, &a, &b));
    world_close(w);
}

TEST(a_drain_of_nobody_is_over_at_once_and_not_before_the_next_tick)
{
    struct world *w = world_open(NULL);

    CHECK_EQ(mr__service_drain(w->service, 600ull * 1000000000, "test", w->now_ns), 0);
    CHECK(!mr__service_is_drained(w->service));
    CHECK(mr__service_deadline(w->service) <= w->now_ns);
    world_settle(w);
    CHECK(mr__service_is_drained(w->service));
    world_close(w);
}

TEST(it_is_over_when_the_last_relay_ends_and_the_last_old_session_has_left)
{
    struct world *w = world_open(NULL);
    struct game g = play(w);

    drain(w, 600);
    mr__service_closed(w->service, w->wires[g.client.conn].id, MR_CONN_RESET, w->now_ns);
    mr__service_closed(w->service, w->wires[g.host.conn].id, MR_CONN_RESET, w->now_ns);
    world_settle(w);
    CHECK(!mr__service_is_drained(w->service)); /* their relays are in use */
    world_join(w, "10.0.0.3:5000", "10.0.0.3:4000");
    world_advance(w, 29000);
    CHECK(!mr__service_is_drained(w->service));
    world_advance(w, 2000);
    CHECK(mr__service_is_drained(w->service)); /* nobody waits for who came later */
    world_close(w);
}

TEST(a_session_without_a_relay_is_waited_for_until_the_deadline)
{
    struct world *w = world_open(NULL);

    world_join(w, "10.0.0.1:5000", NULL);
    drain(w, 600);
    world_advance(w, 599000);
    CHECK(!mr__service_is_drained(w->service));
    world_advance(w, 1100);
    CHECK(mr__service_is_drained(w->service));
    world_close(w);
}

TEST(another_time_moves_the_deadline_and_is_told)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", NULL);

    drain(w, 600);
    drain(w, 5);
    CHECK_STR(LINE(p), "notice draining:600");
    CHECK_STR(LINE(p), "notice draining:5");
    world_advance(w, 5100);
    CHECK(mr__service_is_drained(w->service));
    world_close(w);
}

TEST(one_notice_goes_to_a_connection_with_two_sessions_and_none_to_one_without)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", NULL);
    size_t idle = world_connect(w, "10.0.0.2:5000");

    world_register(w, p.conn, "");
    drain(w, 600);
    CHECK_STR(LINE(p), "notice draining:600");
    CHECK_EQ(world_lines_left(w, p.conn), 0);
    CHECK_EQ(world_lines_left(w, idle), 0);
    world_close(w);
}

TEST(with_errors_off_nobody_is_told_of_a_drain)
{
    static const char *const settings[] = {"errors=off", NULL};
    struct world *w = world_open(settings);
    struct player p = world_join(w, "10.0.0.1:5000", NULL), late;

    drain(w, 600);
    late = world_join(w, "10.0.0.2:5000", NULL);
    CHECK_EQ(mr__service_drain_cancel(w->service, "test", w->now_ns), 0);
    CHECK_EQ(world_lines_left(w, p.conn), 0);
    CHECK_EQ(world_lines_left(w, late.conn), 0);
    world_close(w);
}

TEST(without_a_time_it_is_drain_timeout_or_half_an_hour)
{
    static const char *const settings[] = {"drain_timeout=90s", NULL};
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", NULL);
    char kept[256];

    CHECK_EQ(mr__service_drain(w->service, MR_DRAIN_PRESET, "test", w->now_ns), 0);
    CHECK_STR(LINE(p), "notice draining:1800");
    CHECK_EQ(world_reload(w, settings, kept), 0);
    CHECK_STR(kept, "");
    CHECK_EQ(mr__service_drain(w->service, MR_DRAIN_PRESET, "test", w->now_ns), 0);
    CHECK_STR(LINE(p), "notice draining:90");
    world_close(w);
}

TEST(a_time_without_end_is_a_year)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", NULL);

    CHECK_EQ(mr__service_drain(w->service, UINT64_MAX - 1, "test", w->now_ns), 0);
    CHECK_STR(LINE(p), "notice draining:31622400");
    world_close(w);
}

TEST(a_stop_drains_for_drain_timeout_and_cannot_be_taken_back)
{
    static const char *const settings[] = {"drain_timeout=90s", NULL};
    struct world *w = world_open(settings);
    struct player p = world_join(w, "10.0.0.1:5000", NULL);

    drain(w, 600);
    CHECK_STR(LINE(p), "notice draining:600");
    CHECK(mr__service_drain_to_stop(w->service, w->now_ns));
    CHECK_STR(LINE(p), "notice draining:90");
    CHECK_EQ(mr__service_drain_cancel(w->service, "test", w->now_ns), -EBUSY);
    CHECK_EQ(mr__service_drain(w->service, 91ull * 1000000000, "test", w->now_ns), -EBUSY);
    drain(w, 10);
    CHECK_STR(LINE(p), "notice draining:10");
    CHECK_EQ(mr__service_drain(w->service, 11ull * 1000000000, "test", w->now_ns), -EBUSY);
    world_advance(w, 10100);
    CHECK(mr__service_is_drained(w->service));
    world_close(w);
}

TEST(a_stop_leaves_alone_a_drain_that_ends_before)
{
    static const char *const settings[] = {"drain_timeout=90s", NULL};
    struct world *w = world_open(settings);
    struct player p = world_join(w, "10.0.0.1:5000", NULL);

    drain(w, 30);
    CHECK(mr__service_drain_to_stop(w->service, w->now_ns));
    CHECK_STR(LINE(p), "notice draining:30");
    CHECK_EQ(world_lines_left(w, p.conn), 0);
    world_advance(w, 30100);
    CHECK(mr__service_is_drained(w->service));
    world_close(w);
}

TEST(a_stop_of_an_idle_server_or_without_drain_timeout_waits_for_nobody)
{
    static const char *const settings[] = {"drain_timeout=90s", NULL};
    struct world *w = world_open(settings);

    CHECK(!mr__service_drain_to_stop(w->service, w->now_ns));
    world_close(w);
    w = world_open(NULL);
    world_join(w, "10.0.0.1:5000", NULL);
    CHECK(!mr__service_drain_to_stop(w->service, w->now_ns));
    world_close(w);
}

TEST(at_the_end_sessions_are_told_and_leave_as_drained)
{
    struct world *w = world_open(NULL);
    struct game g = play(w);

    world_answer(w, MR_HOOK_LEFT, MR_HOOK_NO_OPINION);
    drain(w, 0);
    CHECK_STR(LINE(g.host), "notice draining:0");
    CHECK(mr__service_is_drained(w->service));
    mr__service_stop(w->service, w->now_ns);
    mr__service_end_sessions(w->service, w->now_ns);
    world_settle(w);
    CHECK_STR(LINE(g.host), "error session:drained");
    CHECK(w->wires[g.host.conn].is_closed);
    CHECK(w->wires[g.client.conn].is_closed);
    CHECK(strstr(w->seen[MR_HOOK_LEFT], "reason=drained"));
    world_close(w);
}

/* What a policy does inside a hook. */
static void begin_inside(struct world *w, enum hook hook)
{
    if (hook == MR_HOOK_CONNECT) {
        CHECK_EQ(mr__drain_begin(w->service, 60ull * 1000000000, str("policy")), 0);
    }
}

TEST(a_policy_may_begin_a_drain_inside_of_a_join_which_goes_on)
{
    struct world *w = world_open(NULL);
    struct player host = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000");
    struct player client = world_join(w, "10.0.0.2:5000", "10.0.0.2:4000");

    world_answer(w, MR_HOOK_CONNECT, MR_HOOK_NO_OPINION);
    w->inside = begin_inside;
    join(w, &client, &host);
    CHECK_STR(LINE(client), "notice draining:60");
    CHECK(strncmp(LINE(client), "connect-relay ", 14) == 0);
    world_close(w);
}

TEST(readiness_says_that_it_drains_and_how_long)
{
    struct world *w = world_open(NULL);

    world_join(w, "10.0.0.1:5000", NULL);
    drain(w, 600);
    CHECK_STR(mr__service_not_ready(w->service, w->now_ns), "draining: 600 s left");
    world_close(w);
}

/* What a supervisor's watchdog is told goes by this and not by readiness. */
TEST(a_service_that_drains_is_alive_and_one_whose_workers_do_not_answer_is_not)
{
    struct world *w = world_open(NULL);

    world_join(w, "10.0.0.1:5000", NULL);
    drain(w, 600);
    world_advance(w, 2000);
    CHECK(mr__service_not_ready(w->service, w->now_ns) != NULL);
    CHECK(mr__service_is_alive(w->service, w->now_ns));
    w->now_ns += 600000000; /* a ping is sent, and nobody polls the engine */
    CHECK(mr__service_is_alive(w->service, w->now_ns));
    w->now_ns += 1100000000;
    CHECK(!mr__service_is_alive(w->service, w->now_ns));
    world_settle(w);
    CHECK(mr__service_is_alive(w->service, w->now_ns));
    world_close(w);
}

TEST_MAIN(TEST_CASE(a_service_that_drains_is_alive_and_one_whose_workers_do_not_answer_is_not),
          TEST_CASE(a_running_game_takes_players_who_come_back_and_a_new_host_cannot_be_joined),
          TEST_CASE(draining_comes_after_an_unknown_oid_and_before_missing_addresses),
          TEST_CASE(a_chain_that_ends_at_a_new_host_is_refused_although_it_asked_for_an_old_one),
          TEST_CASE(a_cancelled_drain_is_as_if_it_had_never_begun),
          TEST_CASE(who_registered_during_a_cancelled_drain_can_be_joined_in_the_next_one),
          TEST_CASE(a_drain_of_nobody_is_over_at_once_and_not_before_the_next_tick),
          TEST_CASE(it_is_over_when_the_last_relay_ends_and_the_last_old_session_has_left),
          TEST_CASE(a_session_without_a_relay_is_waited_for_until_the_deadline),
          TEST_CASE(another_time_moves_the_deadline_and_is_told),
          TEST_CASE(one_notice_goes_to_a_connection_with_two_sessions_and_none_to_one_without),
          TEST_CASE(with_errors_off_nobody_is_told_of_a_drain),
          TEST_CASE(without_a_time_it_is_drain_timeout_or_half_an_hour),
          TEST_CASE(a_time_without_end_is_a_year),
          TEST_CASE(a_stop_drains_for_drain_timeout_and_cannot_be_taken_back),
          TEST_CASE(a_stop_leaves_alone_a_drain_that_ends_before),
          TEST_CASE(a_stop_of_an_idle_server_or_without_drain_timeout_waits_for_nobody),
          TEST_CASE(at_the_end_sessions_are_told_and_leave_as_drained),
          TEST_CASE(a_policy_may_begin_a_drain_inside_of_a_join_which_goes_on),
          TEST_CASE(readiness_says_that_it_drains_and_how_long))
