/* SPDX-License-Identifier: MIT */
/*
 * Lines and their answers: framing, grammar, order, bounds. One thread.
 */
#include "test.h"
#include "world.h"

#include <string.h>

TEST(echo_gives_back_its_data_as_it_came)
{
    struct world *w = world_open(NULL);
    size_t c = world_connect(w, "10.0.0.1:5000");

    world_say(w, c, "echo hello  world \n");
    CHECK_STR(world_line(w, c), "echo hello  world ");
    world_say(w, c, "echo\n");
    CHECK_STR(world_line(w, c), "echo ");
    world_say(w, c, "echo \n");
    CHECK_STR(world_line(w, c), "echo ");
    world_send(w, c, "echo a\0b\x1b[31m\xff\r\n", 16);
    CHECK_MEM(w->wires[c].text + w->wires[c].read, w->wires[c].n - w->wires[c].read,
              "echo a\0b\x1b[31m\xff\n", 15);
    world_close(w);
}

TEST(lines_may_come_in_any_pieces)
{
    static const char text[] = "echo 1\r\necho 2\n\n\r\necho 3\r\n";
    struct world *w = world_open(NULL);
    size_t c = world_connect(w, "10.0.0.1:5000");

    world_say(w, c, text);
    for (size_t i = 0; i < sizeof text - 1; i++) {
        world_send(w, c, text + i, 1);
    }
    for (int round = 0; round < 2; round++) {
        CHECK_STR(world_line(w, c), "echo 1");
        CHECK_STR(world_line(w, c), "echo 2");
        CHECK_STR(world_line(w, c), "echo 3");
    }
    CHECK_EQ(world_lines_left(w, c), 0);
    world_close(w);
}

TEST(what_is_no_command_is_met_with_silence)
{
    struct world *w = world_open(NULL);
    size_t c = world_connect(w, "10.0.0.1:5000");

    world_say(w, c,
              "\n\r\nECHO x\n echo x\nregister-hostx\nGET / HTTP/1.1\necho? x\n?1\nconnectx y\n");
    CHECK_STR(world_line(w, c), "");
    CHECK(!w->wires[c].is_closed);
    world_say(w, c, "echo alive\n");
    CHECK_STR(world_line(w, c), "echo alive");
    world_close(w);
}

TEST(an_unfinished_last_line_is_executed_at_the_end_of_input)
{
    struct world *w = world_open(NULL);
    size_t c = world_connect(w, "10.0.0.1:5000");

    world_say(w, c, "echo 1\necho 2");
    CHECK_EQ(world_lines_left(w, c), 1);
    mr__service_eof(w->service, w->wires[c].id, w->now_ns);
    world_settle(w);
    CHECK_STR(world_line(w, c), "echo 1");
    CHECK_STR(world_line(w, c), "echo 2");
    CHECK(w->wires[c].is_closed);
    world_close(w);
}

static void check_length(size_t n, const char *end, const char *expected)
{
    struct world *w = world_open(NULL);
    size_t c = world_connect(w, "10.0.0.1:5000");
    char *line = malloc(n + 16);

    memset(line, 'x', n);
    memcpy(line, "echo ", 5);
    strcpy(line + n, end);
    world_say(w, c, line);
    const char *got = world_line(w, c);
    if (expected) {
        CHECK_STR(got, expected);
    } else {
        CHECK_EQ(strlen(got), n);
    }
    world_say(w, c, "echo next\n");
    CHECK_STR(world_line(w, c), "echo next");
    free(line);
    world_close(w);
}

TEST(a_line_of_16_kib_passes_and_one_byte_more_does_not)
{
    check_length(16384, "\n", NULL);
    check_length(16384, "\r\n", NULL);
    check_length(16385, "\n", "error line:too-long");
    check_length(16385, "\r\n", "error line:too-long");
}

TEST(a_line_without_end_is_refused_once_and_costs_no_memory)
{
    struct world *w = world_open(NULL);
    size_t c = world_connect(w, "10.0.0.1:5000");
    char chunk[65536];

    memset(chunk, 'x', sizeof chunk);
    world_send(w, c, chunk, sizeof chunk);
    long blocks = mr__alloc_live();
    for (int i = 0; i < 200; i++) {
        world_send(w, c, chunk, sizeof chunk);
    }
    CHECK_EQ(mr__alloc_live(), blocks);
    world_say(w, c, "\necho next\n");
    CHECK_STR(world_line(w, c), "error line:too-long");
    CHECK_STR(world_line(w, c), "echo next");
    CHECK_EQ(world_lines_left(w, c), 0);
    world_close(w);
}

TEST(the_end_of_a_line_that_is_too_long_is_no_command)
{
    struct world *w = world_open(NULL);
    size_t c = world_connect(w, "10.0.0.1:5000");
    char chunk[20000];

    memset(chunk, 'x', sizeof chunk);
    world_send(w, c, chunk, sizeof chunk);
    world_say(w, c, "echo its end\necho next\n");
    CHECK_STR(world_line(w, c), "error line:too-long");
    CHECK_STR(world_line(w, c), "echo next");
    CHECK_EQ(world_lines_left(w, c), 0);
    world_close(w);
}

TEST(thousands_of_commands_in_one_write_are_answered_in_order_and_others_have_their_turn)
{
    enum { N = 100000 };
    struct world *w = world_open((const char *[]){"commands_burst=1000000", NULL});
    size_t flood = world_connect(w, "10.0.0.1:5000"), other = world_connect(w, "10.0.0.2:5000");
    char *text = malloc((size_t)N * 16);
    size_t n = 0;

    for (int i = 0; i < N; i++) {
        n += (size_t)sprintf(text + n, "echo %d\n", i);
    }
    mr__service_input(w->service, w->wires[flood].id, text, n, w->now_ns);
    CHECK(w->wires[flood].is_paused);
    CHECK_LT(world_lines_left(w, flood), 1000);
    CHECK_LE(mr__service_deadline(w->service), w->now_ns);
    mr__service_input(w->service, w->wires[other].id, "echo me\n", 8, w->now_ns);
    CHECK_STR(world_line(w, other), "echo me");
    world_settle(w);
    CHECK(!w->wires[flood].is_paused);
    CHECK_EQ(w->wires[flood].n, n);
    CHECK(memcmp(w->wires[flood].text, text, n) == 0);
    free(text);
    world_close(w);
}

TEST(a_request_id_is_answered_behind_a_success_and_instead_of_an_error)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    char line[400];

    world_say(w, p.conn, "echo?7 hi\nconnect?a-b nope\nregister-host?x y=z\n");
    CHECK_STR(world_line(w, p.conn), "echo hi");
    CHECK_STR(world_line(w, p.conn), ".7");
    CHECK_STR(world_line(w, p.conn), "!a-b unknown-oid");
    CHECK(strncmp(world_line(w, p.conn), "set-oid ", 8) == 0);
    CHECK(strncmp(world_line(w, p.conn), "set-pid ", 8) == 0);
    CHECK_STR(world_line(w, p.conn), ".x");
    struct player q = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    snprintf(line, sizeof line, "connect?9 %s\n", q.oid);
    world_say(w, p.conn, line);
    CHECK_STR(world_line(w, p.conn), "!9 client-no-address");
    world_close(w);
}

TEST(errors_off_is_silent_as_noray_is)
{
    struct world *w = world_open((const char *[]){"errors=off", NULL});
    size_t c = world_connect(w, "10.0.0.1:5000");

    world_say(w, c, "connect x\nconnect-relay x\nconnect?1 x\necho y\n");
    CHECK_STR(world_line(w, c), "echo y");
    world_close(w);
}

TEST(junk_commands_do_not_make_the_page_of_figures_grow)
{
    struct world *w = world_open(NULL);
    size_t c = world_connect(w, "10.0.0.1:5000"), before, after;
    char line[64];

    mr__free(mr__service_metrics(w->service, &before, w->now_ns));
    for (int i = 0; i < 2000; i++) {
        snprintf(line, sizeof line, "junk%d x\n", i);
        world_say(w, c, line);
    }
    mr__free(mr__service_metrics(w->service, &after, w->now_ns));
    CHECK_LT(after, before + 2048);
    CHECK_EQ(world_metric(w, "noray_command_duration_count{command=\"other\"}"), 2000.0);
    world_close(w);
}

TEST(a_connection_over_the_cap_is_told_and_closed)
{
    struct world *w = world_open((const char *[]){"max_connections=2", NULL});
    size_t a = world_connect(w, "10.0.0.1:5000");

    world_connect(w, "10.0.0.1:5001");
    size_t c = world_connect(w, "10.0.0.1:5002");
    CHECK_STR(world_line(w, c), "error connection:too-many");
    CHECK(w->wires[c].is_closed);
    mr__service_closed(w->service, w->wires[a].id, MR_CONN_RESET, w->now_ns);
    size_t d = world_connect(w, "10.0.0.1:5003");
    world_say(w, d, "echo in\n");
    CHECK_STR(world_line(w, d), "echo in");
    world_close(w);
}

TEST(a_reset_in_the_middle_of_a_line_disturbs_nobody)
{
    struct world *w = world_open(NULL);
    size_t a = world_connect(w, "10.0.0.1:5000"), b = world_connect(w, "10.0.0.2:5000");

    world_say(w, a, "regis");
    mr__service_closed(w->service, w->wires[a].id, MR_CONN_RESET, w->now_ns);
    mr__service_input(w->service, w->wires[a].id, "x\n", 2, w->now_ns);
    mr__service_eof(w->service, w->wires[a].id, w->now_ns);
    world_say(w, b, "echo b\n");
    CHECK_STR(world_line(w, b), "echo b");
    CHECK_EQ(world_metric(w, "noray_tcp_connections"), 1.0);
    world_close(w);
}

static void give(struct world *w, size_t conn, const char *text)
{
    mr__service_input(w->service, w->wires[conn].id, text, strlen(text), w->now_ns);
}

TEST(commands_that_policies_think_about_take_turns_with_everybody_else)
{
    enum { PLAYERS = 20, EACH = 10 };
    struct world *w = world_open(NULL);
    char many[EACH * 16] = "";
    size_t talker = world_connect(w, "10.0.0.1:5000"), others[PLAYERS];

    for (size_t i = 0; i < EACH; i++) {
        strcat(many, "connect x\n");
    }
    for (size_t i = 0; i < PLAYERS; i++) {
        others[i] = world_join(w, "10.0.0.2:5000", NULL).conn;
    }
    world_refuse(w, MR_HOOK_CONNECT, "no");
    give(w, others[0], many);
    CHECK_EQ(w->canned[MR_HOOK_CONNECT].asked, 1); /* the rest of him waits */
    give(w, talker, "echo quick\n");
    CHECK_STR(world_line(w, talker), "echo quick");
    for (size_t i = 1; i < PLAYERS; i++) {
        give(w, others[i], many);
    }
    CHECK_LE(w->canned[MR_HOOK_CONNECT].asked, 8); /* before the loop gets to its sockets */
    give(w, talker, "echo later\n");
    for (int tick = 0; tick < PLAYERS && world_lines_left(w, talker) == 0; tick++) {
        mr__service_tick(w->service, w->now_ns);
    }
    CHECK_STR(world_line(w, talker), "echo later");
    CHECK_LE(w->canned[MR_HOOK_CONNECT].asked, 2 * PLAYERS); /* nobody had a third go before */
    world_settle(w);
    CHECK_EQ(w->canned[MR_HOOK_CONNECT].asked, PLAYERS * EACH);
    for (size_t i = 0; i < PLAYERS; i++) {
        CHECK_EQ(world_lines_left(w, others[i]), EACH);
    }
    world_close(w);
}

TEST_MAIN(
    TEST_CASE(commands_that_policies_think_about_take_turns_with_everybody_else),
    TEST_CASE(echo_gives_back_its_data_as_it_came), TEST_CASE(lines_may_come_in_any_pieces),
    TEST_CASE(what_is_no_command_is_met_with_silence),
    TEST_CASE(an_unfinished_last_line_is_executed_at_the_end_of_input),
    TEST_CASE(a_line_of_16_kib_passes_and_one_byte_more_does_not),
    TEST_CASE(a_line_without_end_is_refused_once_and_costs_no_memory),
    TEST_CASE(the_end_of_a_line_that_is_too_long_is_no_command),
    TEST_CASE(thousands_of_commands_in_one_write_are_answered_in_order_and_others_have_their_turn),
    TEST_CASE(a_request_id_is_answered_behind_a_success_and_instead_of_an_error),
    TEST_CASE(errors_off_is_silent_as_noray_is),
    TEST_CASE(junk_commands_do_not_make_the_page_of_figures_grow),
    TEST_CASE(a_connection_over_the_cap_is_told_and_closed),
    TEST_CASE(a_reset_in_the_middle_of_a_line_disturbs_nobody))
