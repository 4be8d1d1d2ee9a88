/* SPDX-License-Identifier: MIT */
/*
 * What policies are told afterwards, and that nobody waits long while scripts take their
 * time. One thread.
 */
#include "service/players.h"

#include "test.h"
#include "world.h"

#include <string.h>

static struct world *w;
static struct player host, client;

#define LINE(p) world_line(w, (p).conn)

static void want(enum hook hook)
{
    world_answer(w, hook, MR_HOOK_NO_OPINION);
}

static void open_pair(const char *const *settings)
{
    w = world_open(settings);
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
}

static void say(const struct player *p, const char *command, const char *oid)
{
    char line[800];

    snprintf(line, sizeof line, "%s %s\n", command, oid);
    world_say(w, p->conn, line);
}

/* ---- connected ----------------------------------------------------------------------------- */

static size_t lines_seen;

static void count_lines(struct world *world, enum hook hook)
{
    if (hook == MR_HOOK_CONNECTED) {
        lines_seen = world_lines_left(world, client.conn) + world_lines_left(world, host.conn);
    }
}

TEST(connected_is_told_after_the_lines_of_a_join_that_succeeded)
{
    unsigned a, b;

    open_pair(NULL);
    want(MR_HOOK_CONNECTED);
    w->inside = count_lines;
    say(&client, "connect", "nobody");
    CHECK_EQ(w->canned[MR_HOOK_CONNECTED].told, 0);
    LINE(client);
    say(&client, "connect", host.oid);
    CHECK_EQ(w->canned[MR_HOOK_CONNECTED].told, 1);
    CHECK_EQ(lines_seen, 2);
    CHECK(strstr(w->seen[MR_HOOK_CONNECTED], "mode=connect via=direct"));
    CHECK(strstr(w->seen[MR_HOOK_CONNECTED], host.oid));
    CHECK(strstr(w->seen[MR_HOOK_CONNECTED], "@10.0.0.2:6000 to="));
    LINE(client);
    LINE(host);
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    CHECK_EQ(w->canned[MR_HOOK_CONNECTED].told, 2);
    CHECK_EQ(lines_seen, 2);
    CHECK(strstr(w->seen[MR_HOOK_CONNECTED], "mode=relay via=relay"));
    world_close(w);
    open_pair((const char *[]){"connect=relay", NULL});
    want(MR_HOOK_CONNECTED);
    say(&client, "connect", host.oid);
    CHECK(strstr(w->seen[MR_HOOK_CONNECTED], "mode=connect via=relay"));
    world_close(w);
}

TEST(connect_sees_which_way_it_would_go_without_policies)
{
    open_pair(NULL);
    want(MR_HOOK_CONNECT);
    say(&client, "connect", host.oid);
    CHECK(strstr(w->seen[MR_HOOK_CONNECT], "via=direct"));
    say(&client, "connect-relay", host.oid);
    CHECK(strstr(w->seen[MR_HOOK_CONNECT], "via=relay"));
    say(&client, "connect", "nobody");
    CHECK(strstr(w->seen[MR_HOOK_CONNECT], "via=direct"));
    world_close(w);
    w = world_open((const char *[]){"udp_host=::", NULL});
    want(MR_HOOK_CONNECT);
    host = world_join(w, "[2001:db8:1::1]:5000", "[2001:db8:1::1]:6000");
    client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    say(&client, "connect", host.oid);
    CHECK(strstr(w->seen[MR_HOOK_CONNECT], "via=relay"));
    world_close(w);
}

/* ---- created, destroyed -------------------------------------------------------------------- */

TEST(created_is_told_for_every_relay_that_stays_and_for_no_other)
{
    unsigned a, b;

    open_pair(NULL);
    want(MR_HOOK_CREATED);
    want(MR_HOOK_DESTROYED);
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    CHECK_EQ(w->canned[MR_HOOK_CREATED].told, 2);
    CHECK(strstr(w->seen[MR_HOOK_CREATED], "reason=connect addr=10.0.0.2:6000"));
    CHECK(strstr(w->seen[MR_HOOK_CREATED], client.oid));
    CHECK(strstr(w->seen[MR_HOOK_CREATED], " relay="));
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    CHECK_EQ(w->canned[MR_HOOK_CREATED].told, 2);
    world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);
    world_inject(w, "10.0.0.9:7000", a, 10);
    CHECK_EQ(w->canned[MR_HOOK_CREATED].told, 3);
    CHECK(strstr(w->seen[MR_HOOK_CREATED], "reason=dynamic addr=10.0.0.9:7000"));
    CHECK(strstr(w->seen[MR_HOOK_CREATED], "session=-"));
    CHECK_EQ(w->canned[MR_HOOK_DESTROYED].told, 0);
    world_close(w);
    /* One port: neither of a pair is kept, and nobody hears of it. */
    open_pair((const char *[]){"udp_relay_ports=49152", NULL});
    want(MR_HOOK_CREATED);
    want(MR_HOOK_DESTROYED);
    say(&client, "connect-relay", host.oid);
    CHECK_STR(LINE(client), "error connect-relay:no-ports");
    world_settle(w);
    CHECK_EQ(w->canned[MR_HOOK_CREATED].told, 0);
    CHECK_EQ(w->canned[MR_HOOK_DESTROYED].told, 0);
    world_close(w);
}

TEST(a_stop_tells_the_end_of_every_relay_and_session_once)
{
    unsigned a, b;

    open_pair(NULL);
    want(MR_HOOK_DESTROYED);
    want(MR_HOOK_LEFT);
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    mr__service_stop(w->service, w->now_ns);
    mr__service_stop(w->service, w->now_ns);
    world_settle(w);
    CHECK_EQ(w->canned[MR_HOOK_DESTROYED].told, 2);
    CHECK(strstr(w->seen[MR_HOOK_DESTROYED], "reason=shutdown"));
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    mr__service_closed(w->service, w->wires[host.conn].id, MR_CONN_SHUTDOWN, w->now_ns);
    mr__service_closed(w->service, w->wires[client.conn].id, MR_CONN_SHUTDOWN, w->now_ns);
    world_settle(w);
    CHECK_EQ(w->canned[MR_HOOK_LEFT].told, 2);
    CHECK(strstr(w->seen[MR_HOOK_LEFT], "reason=drained"));
    world_advance(w, 31000);
    CHECK_EQ(world_relays(w), 0);
    CHECK_EQ(w->canned[MR_HOOK_DESTROYED].told, 2);
    world_close(w);
}

TEST(a_relay_that_is_made_while_it_stops_is_not_told_as_created_since_nobody_would_tell_its_end)
{
    unsigned a, b;

    open_pair(NULL);
    want(MR_HOOK_CREATED);
    want(MR_HOOK_DESTROYED);
    mr__service_stop(w->service, w->now_ns);
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    world_settle(w);
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(w->canned[MR_HOOK_CREATED].told, 0);
    world_advance(w, 31000);
    CHECK_EQ(world_relays(w), 0);
    CHECK_EQ(w->canned[MR_HOOK_DESTROYED].told, 0);
    world_close(w);
}

/* ---- left ---------------------------------------------------------------------------------- */

TEST(left_says_why_a_session_ended)
{
    static const struct {
        enum conn_end end;
        const char *reason;
    } cases[] = {{MR_CONN_CLOSED, "reason=closed"},
                 {MR_CONN_RESET, "reason=reset"},
                 {MR_CONN_TIMEOUT, "reason=timeout"},
                 {MR_CONN_OUTPUT, "reason=output"}};

    w = world_open(NULL);
    want(MR_HOOK_LEFT);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
        mr__service_closed(w->service, w->wires[host.conn].id, cases[i].end, w->now_ns);
        world_settle(w);
        CHECK_EQ(w->canned[MR_HOOK_LEFT].told, i + 1);
        CHECK(strstr(w->seen[MR_HOOK_LEFT], cases[i].reason));
        CHECK(strstr(w->seen[MR_HOOK_LEFT], host.oid));
        CHECK(strstr(w->seen[MR_HOOK_LEFT], "@10.0.0.1:6000"));
    }
    host = world_join(w, "10.0.0.1:5000", NULL);
    mr__service_eof(w->service, w->wires[host.conn].id, w->now_ns);
    world_settle(w);
    CHECK_EQ(w->canned[MR_HOOK_LEFT].told, 5);
    CHECK(strstr(w->seen[MR_HOOK_LEFT], "reason=closed"));
    world_close(w);
}

TEST(left_says_replaced_when_another_one_takes_the_id)
{
    w = world_open(NULL);
    want(MR_HOOK_LEFT);
    struct hook_answer *a = world_answer(w, MR_HOOK_REGISTER, MR_HOOK_ADMIT);
    a->oid = (struct str){"alice", 5};
    a->takeover = true;
    host = world_join(w, "10.0.0.1:5000", NULL);
    client = world_join(w, "10.0.0.2:5000", NULL);
    CHECK_STR(LINE(host), "error session:replaced");
    CHECK_EQ(w->canned[MR_HOOK_LEFT].told, 1);
    CHECK(strstr(w->seen[MR_HOOK_LEFT], "reason=replaced"));
    world_close(w);
}

/* ---- memory of what is told ---------------------------------------------------------------- */

TEST(a_notice_without_memory_is_lost_and_counted_and_nothing_else_is)
{
    w = world_open(NULL);
    want(MR_HOOK_LEFT);
    host = world_join(w, "10.0.0.1:5000", NULL);
    mr__alloc_fail_after(0);
    mr__service_closed(w->service, w->wires[host.conn].id, MR_CONN_RESET, w->now_ns);
    mr__alloc_fail_after(-1);
    world_settle(w);
    CHECK_EQ(w->canned[MR_HOOK_LEFT].told, 0);
    CHECK_EQ(world_metric(w, "moonrelay_notices_lost_total"), 1.0);
    CHECK_EQ(world_metric(w, "noray_active_hosts"), 0.0);
    world_close(w);
}

/* ---- turns --------------------------------------------------------------------------------- */

enum { BUDGET_NS = 10000000, PLAYERS = 64 };

static unsigned most_between; /* questions between two answers of the registrar */

static void registrar(void)
{
    static unsigned ran_before;
    struct mr_addr from = world_addr("10.0.0.1:6000"), local = world_addr("10.9.9.9:8809");
    unsigned replies = w->replies;

    mr__service_registrar(w->service, &from, &local, host.pid, strlen(host.pid), w->now_ns);
    CHECK_EQ(w->replies, replies + 1);
    if (ran_before <= w->ran && w->ran - ran_before > most_between) {
        most_between = w->ran - ran_before;
    }
    ran_before = w->ran;
}

/* One turn of an adapter's loop: its timer, what the engine has to tell, then every socket that is
 * readable, the registrar's among them. */
static void turn_of_loop(void)
{
    struct mr_event events[64];

    mr__service_tick(w->service, w->now_ns);
    registrar();
    int n = mr_poll(w->mr, events, 64);
    for (int i = 0; i < n; i++) {
        mr__service_engine_event(w->service, &events[i], w->now_ns);
    }
    registrar();
}

static void send_to_all(size_t first, const char *line)
{
    for (size_t i = first; i < first + PLAYERS; i++) {
        mr__service_input(w->service, w->wires[i].id, line, strlen(line), w->now_ns);
    }
    registrar();
}

static size_t open_players(void)
{
    size_t first = w->n_wires;

    for (unsigned i = 0; i < PLAYERS; i++) {
        char peer[40];
        snprintf(peer, sizeof peer, "10.1.%u.1:5000", i);
        world_connect(w, peer);
    }
    return first;
}

TEST(with_64_players_whose_hooks_take_all_their_time_the_registrar_is_served_between_any_two)
{
    unsigned turns = 0, answered = 0;

    w = world_open(NULL);
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    size_t first = open_players();
    want(MR_HOOK_REGISTER);
    world_spend(w, BUDGET_NS);
    registrar();
    most_between = 0;
    send_to_all(first, "register-host\nregister-host\n");
    while (mr__service_deadline(w->service) <= w->now_ns) {
        turn_of_loop();
        REQUIRE(++turns < 1000);
    }
    for (size_t i = first; i < first + PLAYERS; i++) {
        answered += world_lines_left(w, i) == 4;
    }
    CHECK_EQ(answered, PLAYERS);
    CHECK_EQ(w->ran, 2 * PLAYERS);
    CHECK_GE(most_between, 1);
    CHECK_LE(most_between, 2);
    world_close(w);
}

TEST(the_three_hooks_of_one_join_are_asked_in_as_many_turns)
{
    unsigned turns = 0;
    char line[400];

    open_pair(NULL);
    want(MR_HOOK_CONNECT);
    want(MR_HOOK_CREATE);
    world_spend(w, BUDGET_NS);
    mr__service_tick(w->service, w->now_ns);
    registrar();
    most_between = 0;
    snprintf(line, sizeof line, "connect-relay %s\n", host.oid);
    mr__service_input(w->service, w->wires[client.conn].id, line, strlen(line), w->now_ns);
    registrar();
    while (world_lines_left(w, client.conn) == 0) {
        turn_of_loop();
        REQUIRE(++turns < 10);
    }
    CHECK(strncmp(LINE(client), "connect-relay ", 14) == 0);
    CHECK_EQ(w->ran, 3);
    CHECK_EQ(most_between, 1);
    world_close(w);
}

TEST(a_slow_timer_of_a_script_and_a_slow_hook_are_not_run_in_one_tick)
{
    w = world_open(NULL);
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    size_t first = open_players();
    want(MR_HOOK_REGISTER);
    world_spend(w, BUDGET_NS);
    send_to_all(first, "register-host\n");
    w->decider_due_ns = w->now_ns;
    for (int i = 0; i < 20; i++) {
        unsigned ran = w->ran, asked = w->canned[MR_HOOK_REGISTER].asked;
        mr__service_tick(w->service, w->now_ns);
        mr__service_tick(w->service, w->now_ns);
        CHECK_EQ(w->ran, ran + 2);
        CHECK_EQ(w->canned[MR_HOOK_REGISTER].asked, asked + 1);
    }
    w->decider_due_ns = UINT64_MAX;
    world_settle(w);
    world_close(w);
}

TEST(players_strangers_notices_and_timers_take_turns_when_scripts_are_slow)
{
    unsigned turns = 0, port, other;

    w = world_open((const char *[]){"hold_time=60s", NULL});
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    REQUIRE(world_relay(w, &host, &host, &port, &other));
    size_t first = open_players();
    want(MR_HOOK_REGISTER);
    want(MR_HOOK_CREATE);
    want(MR_HOOK_CREATED);
    want(MR_HOOK_LEFT);
    world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);
    world_spend(w, BUDGET_NS);
    registrar();
    most_between = 0;
    for (unsigned i = 0; i < 20; i++) {
        char from[40];
        snprintf(from, sizeof from, "10.2.%u.1:7000", i);
        struct mr_addr a = world_addr(from);
        CHECK_EQ(mr_inject(w->mr, world_port(w, port), &a, "x", 1), 0);
    }
    turn_of_loop();
    send_to_all(first, "register-host\n");
    w->decider_due_ns = w->now_ns; /* a script's timer that is always due */
    /* Soon all of them have had a go. */
    for (turns = 0; turns < 20; turns++) {
        turn_of_loop();
    }
    unsigned left = PLAYERS;
    for (size_t i = first; i < first + PLAYERS; i++) {
        left -= world_lines_left(w, i) > 0;
    }
    CHECK_GE(PLAYERS - left, 2);
    CHECK_GE(left, 40);
    CHECK_GE(w->canned[MR_HOOK_DROP].asked, 2);
    CHECK_LE(w->canned[MR_HOOK_DROP].asked, 10);
    w->decider_due_ns = UINT64_MAX;
    while (mr__service_deadline(w->service) <= w->now_ns) {
        turn_of_loop();
        REQUIRE(++turns < 1000);
    }
    CHECK_EQ(w->canned[MR_HOOK_REGISTER].asked, PLAYERS);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 20);
    CHECK_GE(w->canned[MR_HOOK_CREATED].told, 6);
    CHECK_LE(most_between, 2);
    world_close(w);
}

TEST(many_ends_at_once_are_told_while_others_are_served)
{
    unsigned turns = 0;

    w = world_open(NULL);
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    size_t first = open_players();
    for (size_t i = first; i < first + PLAYERS; i++) {
        world_register(w, i, NULL);
    }
    want(MR_HOOK_LEFT);
    world_spend(w, BUDGET_NS);
    registrar();
    most_between = 0;
    for (uint64_t id = 2; id < 2 + PLAYERS; id++) {
        CHECK_EQ(mr__players_kick(w->service, id, (struct str){"x", 1}), 0);
    }
    while (mr__service_deadline(w->service) <= w->now_ns) {
        turn_of_loop();
        REQUIRE(++turns < 1000);
    }
    CHECK_EQ(w->canned[MR_HOOK_LEFT].told, PLAYERS);
    CHECK_LE(most_between, 2);
    world_close(w);
}

TEST(whoever_asks_for_readiness_gets_no_more_of_the_scripts_time)
{
    w = world_open(NULL);
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    size_t first = open_players();
    want(MR_HOOK_REGISTER);
    world_spend(w, BUDGET_NS);
    mr__service_tick(w->service, w->now_ns);
    send_to_all(first, "register-host\n");
    unsigned ran = w->ran;
    for (int i = 0; i < 50; i++) {
        mr__service_not_ready(w->service, w->now_ns);
    }
    CHECK_EQ(w->ran, ran);
    world_settle(w);
    CHECK_EQ(w->ran, PLAYERS);
    world_close(w);
}

TEST_MAIN(
    TEST_CASE(connected_is_told_after_the_lines_of_a_join_that_succeeded),
    TEST_CASE(connect_sees_which_way_it_would_go_without_policies),
    TEST_CASE(created_is_told_for_every_relay_that_stays_and_for_no_other),
    TEST_CASE(a_stop_tells_the_end_of_every_relay_and_session_once),
    TEST_CASE(
        a_relay_that_is_made_while_it_stops_is_not_told_as_created_since_nobody_would_tell_its_end),
    TEST_CASE(left_says_why_a_session_ended),
    TEST_CASE(left_says_replaced_when_another_one_takes_the_id),
    TEST_CASE(a_notice_without_memory_is_lost_and_counted_and_nothing_else_is),
    TEST_CASE(
        with_64_players_whose_hooks_take_all_their_time_the_registrar_is_served_between_any_two),
    TEST_CASE(the_three_hooks_of_one_join_are_asked_in_as_many_turns),
    TEST_CASE(a_slow_timer_of_a_script_and_a_slow_hook_are_not_run_in_one_tick),
    TEST_CASE(players_strangers_notices_and_timers_take_turns_when_scripts_are_slow),
    TEST_CASE(many_ends_at_once_are_told_while_others_are_served),
    TEST_CASE(whoever_asks_for_readiness_gets_no_more_of_the_scripts_time))
