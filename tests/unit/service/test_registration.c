/* SPDX-License-Identifier: MIT */
/*
 * register-host: ids, sessions, what policies say about them. One thread.
 */
#include "test.h"
#include "world.h"

#include <string.h>

TEST(a_registration_gives_an_oid_and_then_a_pid_of_the_settings_alphabets)
{
    const char *const settings[] = {"oid_length=9", "oid_charset=abc", "pid_length=40",
                                    "pid_charset=XYZ!", NULL};
    struct world *w = world_open(settings);
    struct player p = world_register(w, world_connect(w, "10.0.0.1:5000"), "anything at=all");

    CHECK_EQ(strlen(p.oid), 9);
    CHECK_EQ(strspn(p.oid, "abc"), 9);
    CHECK_EQ(strlen(p.pid), 40);
    CHECK_EQ(strspn(p.pid, "XYZ!"), 40);
    CHECK_EQ(world_lines_left(w, p.conn), 0);
    world_close(w);
}

TEST(ids_have_no_favourite_letters)
{
    const char *const settings[] = {"oid_charset=abcdefghijk", "max_sessions_per_connection=4096",
                                    NULL};
    struct world *w = world_open(settings);
    size_t c = world_connect(w, "10.0.0.1:5000");
    unsigned counts[11] = {0};

    for (int i = 0; i < 2000; i++) {
        struct player p = world_register(w, c, NULL);
        for (const char *q = p.oid; *q; q++) {
            counts[*q - 'a']++;
        }
    }
    /* 42,000 letters, 3,818 of each; eight standard deviations either way. */
    for (int i = 0; i < 11; i++) {
        CHECK_GT(counts[i], 3818 - 480);
        CHECK_LT(counts[i], 3818 + 480);
    }
    world_close(w);
}

TEST(ids_may_be_words)
{
    const char *const settings[] = {"enable_words_oid=yes", "words_oid_length=4", NULL};
    struct world *w = world_open(settings);
    struct player p = world_register(w, world_connect(w, "10.0.0.1:5000"), NULL);
    int capitals = 0;

    for (const char *q = p.oid; *q; q++) {
        capitals += *q >= 'A' && *q <= 'Z';
    }
    CHECK_EQ(capitals, 4);
    CHECK_GE(strlen(p.oid), 12);
    world_close(w);
}

TEST(a_space_of_two_ids_is_used_up_exactly_and_comes_back)
{
    const char *const settings[] = {"oid_length=1", "oid_charset=ab", NULL};
    struct world *w = world_open(settings);
    struct player a = world_join(w, "10.0.0.1:5000", NULL),
                  b = world_join(w, "10.0.0.2:5000", NULL);
    size_t c = world_connect(w, "10.0.0.3:5000");

    CHECK_EQ(a.oid[0] + b.oid[0], 'a' + 'b');
    world_say(w, c, "register-host\nregister-host?5\n");
    CHECK_STR(world_line(w, c), "error register-host:no-ids");
    CHECK_STR(world_line(w, c), "!5 no-ids");
    mr__service_closed(w->service, w->wires[a.conn].id, MR_CONN_RESET, w->now_ns);
    struct player d = world_register(w, c, NULL);
    CHECK_STR(d.oid, a.oid);
    world_close(w);
}

TEST(a_space_of_secret_ids_that_is_used_up_is_told_as_well)
{
    const char *const settings[] = {"pid_length=1", "pid_charset=ab", NULL};
    struct world *w = world_open(settings);
    size_t c = world_connect(w, "10.0.0.3:5000");

    world_register(w, c, NULL);
    world_register(w, c, NULL);
    world_say(w, c, "register-host\n");
    CHECK_STR(world_line(w, c), "error register-host:no-ids");
    CHECK_EQ(world_metric(w, "noray_active_hosts"), 2.0);
    world_close(w);
}

TEST(sessions_of_a_connection_are_capped)
{
    struct world *w = world_open((const char *[]){"max_sessions_per_connection=2", NULL});
    size_t c = world_connect(w, "10.0.0.3:5000");

    world_register(w, c, NULL);
    world_register(w, c, NULL);
    world_say(w, c, "register-host\nregister-host\n");
    CHECK_STR(world_line(w, c), "error register-host:too-many");
    CHECK_STR(world_line(w, c), "error register-host:too-many");
    CHECK_EQ(world_metric(w, "moonrelay_errors_total{command=\"register-host\",code=\"too-many\"}"),
             2.0);
    CHECK_EQ(world_metric(w, "noray_command_exception{command=\"register-host\"}"), 2.0);
    world_close(w);
}

TEST(twenty_thousand_registrations_on_one_connection_take_no_more_than_sixteen)
{
    enum { CAP = 16, ASKED = 20000 };
    struct world *w = world_open((const char *[]){"commands_burst=1000000", NULL});
    size_t c = world_connect(w, "10.0.0.3:5000");

    for (int i = 0; i < CAP; i++) {
        world_register(w, c, NULL);
    }
    world_say(w, c, "register-host\n");
    long blocks = mr__alloc_live();
    for (int i = 1; i < ASKED; i++) {
        world_say(w, c, "register-host\n");
    }
    CHECK_EQ(mr__alloc_live(), blocks);
    CHECK_EQ(world_metric(w, "noray_active_hosts"), (double)CAP);
    for (int i = 0; i < ASKED; i++) {
        REQUIRE_STR(world_line(w, c), "error register-host:too-many");
    }
    world_close(w);
}

TEST(register_and_close_leave_nothing_behind)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    mr__service_closed(w->service, w->wires[p.conn].id, MR_CONN_RESET, w->now_ns);
    world_settle(w);
    long blocks = mr__alloc_live();

    for (int i = 0; i < 300; i++) {
        p = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
        mr__service_closed(w->service, w->wires[p.conn].id, MR_CONN_CLOSED, w->now_ns);
    }
    CHECK_EQ(mr__alloc_live(), blocks);
    CHECK_EQ(world_metric(w, "noray_active_hosts"), 0.0);
    world_close(w);
}

/* Each from an address of his own, as somebody with a /32 of IPv6 has them. */
static void come_and_go(struct world *w, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++) {
        char peer[64];
        snprintf(peer, sizeof peer, "[2001:db8:%x:%x::1]:5000", i >> 16, i & 0xffff);
        struct player p = world_register(w, world_connect(w, peer), NULL);
        mr__service_closed(w->service, w->wires[p.conn].id, MR_CONN_CLOSED, w->now_ns);
        free(w->wires[--w->n_wires].text);
    }
}

TEST(only_so_many_who_were_here_are_remembered)
{
    enum { REMEMBERED = 65536 };
    struct world *w = world_open(NULL);

    come_and_go(w, 0, REMEMBERED);
    long blocks = mr__alloc_live();
    come_and_go(w, REMEMBERED, 4000);
    CHECK_LT(mr__alloc_live(), blocks + 100);
    w->now_ns += 601ull * 1000000000;
    world_settle(w);
    CHECK_LT(mr__alloc_live(), blocks - REMEMBERED / 2);
    world_close(w);
}

TEST(no_record_ever_holds_a_pid)
{
    struct world *w = world_open((const char *[]){"loglevel=trace", NULL});
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    struct player q = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    unsigned a, b;
    size_t n;

    CHECK(world_relay(w, &p, &q, &a, &b));
    world_see(w, &p, "10.0.0.1:6001");
    REQUIRE(w->log_text);
    CHECK(strstr(w->log_text, p.oid));
    CHECK(!strstr(w->log_text, p.pid));
    CHECK(!strstr(w->log_text, q.pid));
    char *page = mr__service_metrics(w->service, &n, w->now_ns);
    CHECK(!strstr(page, p.pid) && !strstr(page, p.oid));
    mr__free(page);
    world_close(w);
}

TEST(a_log_without_addresses_has_none)
{
    struct world *w = world_open((const char *[]){"log_addresses=none", NULL});
    struct player p = world_join(w, "10.11.12.13:5000", "10.11.12.13:6000");
    struct player q = world_join(w, "10.11.12.14:5000", "10.11.12.14:6000");
    unsigned a, b;

    CHECK(world_relay(w, &p, &q, &a, &b));
    CHECK(!strstr(w->log_text, "10.11.12"));
    world_close(w);
}

/* ---- policies ------------------------------------------------------------------------------ */

TEST(a_policy_may_refuse_a_registration_and_its_reason_is_told)
{
    struct world *w = world_open(NULL);
    size_t c = world_connect(w, "10.0.0.1:5000");

    world_refuse(w, MR_HOOK_REGISTER, "ticket-missing");
    world_say(w, c, "register-host ticket=abc x=1 junk X=2 x=3\n");
    CHECK_STR(world_line(w, c), "error register-host:rejected:ticket-missing");
    CHECK(strstr(w->seen[MR_HOOK_REGISTER], " meta.ticket=abc meta.x=3"));
    CHECK(!strstr(w->seen[MR_HOOK_REGISTER], "X"));
    world_answer(w, MR_HOOK_REGISTER, MR_HOOK_FAILED);
    world_say(w, c, "register-host\n");
    CHECK_STR(world_line(w, c), "error register-host:rejected:policy-error");
    world_answer(w, MR_HOOK_REGISTER, MR_HOOK_BUSY);
    world_say(w, c, "register-host\n");
    CHECK_STR(world_line(w, c), "error register-host:busy");
    CHECK_EQ(world_metric(w, "noray_active_hosts"), 0.0);
    world_close(w);
}

TEST(words_beyond_sixteen_or_4_kib_are_no_meta)
{
    struct world *w = world_open(NULL);
    size_t c = world_connect(w, "10.0.0.1:5000");
    char line[6000] = "register-host";
    size_t n = strlen(line);

    world_answer(w, MR_HOOK_REGISTER, MR_HOOK_NO_OPINION);
    for (int i = 0; i < 20; i++) {
        n += (size_t)sprintf(line + n, " k%d=v", i);
    }
    strcpy(line + n, "\n");
    world_say(w, c, line);
    CHECK(strstr(w->seen[MR_HOOK_REGISTER], "meta.k15=v"));
    CHECK(!strstr(w->seen[MR_HOOK_REGISTER], "meta.k16=v"));
    n = strlen(strcpy(line, "register-host a=1 big="));
    memset(line + n, 'x', 4090);
    strcpy(line + n + 4090, " z=1\n");
    world_say(w, c, line);
    CHECK(strstr(w->seen[MR_HOOK_REGISTER], "meta.a=1 meta.z=1"));
    world_close(w);
}

TEST(a_policy_may_choose_the_id_and_take_it_over)
{
    struct world *w = world_open(NULL);
    size_t a = world_connect(w, "10.0.0.1:5000"), b = world_connect(w, "10.0.0.2:5000");
    struct hook_answer *answer = world_answer(w, MR_HOOK_REGISTER, MR_HOOK_ADMIT);

    answer->oid = (struct str){"ROOM", 4};
    struct player p = world_register(w, a, NULL);
    CHECK_STR(p.oid, "ROOM");
    world_say(w, b, "register-host\n");
    CHECK_STR(world_line(w, b), "error register-host:rejected:oid-taken");
    answer->takeover = true;
    struct player q = world_register(w, b, NULL);
    CHECK_STR(q.oid, "ROOM");
    CHECK_STR(world_line(w, a), "error session:replaced");
    CHECK(w->wires[a].is_closed);
    CHECK_STR(world_see(w, &p, "10.0.0.1:6000"), "Unknown host pid!");
    CHECK_STR(world_see(w, &q, "10.0.0.2:6000"), "OK");
    /* His own again: no line about the old one, and the connection lives. */
    struct player r = world_register(w, b, NULL);
    CHECK_STR(r.oid, "ROOM");
    CHECK(!w->wires[b].is_closed);
    CHECK_EQ(world_metric(w, "noray_active_hosts"), 1.0);
    world_close(w);
}

TEST(slots_are_counted_and_given_back_when_a_session_ends)
{
    struct world *w = world_open(NULL);
    size_t a = world_connect(w, "10.0.0.1:5000"), b = world_connect(w, "10.0.0.2:5000");
    const struct hook_slot slots[] = {{{"User/alice b", 12}, 1}, {{"all", 3}, 10}};
    struct hook_answer *answer = world_answer(w, MR_HOOK_REGISTER, MR_HOOK_ADMIT);

    answer->slots = slots;
    answer->n_slots = 2;
    world_register(w, a, NULL);
    for (int i = 0; i < 20; i++) {
        world_say(w, b, "register-host\n");
        CHECK_STR(world_line(w, b), "error register-host:full:-ser/alice-b");
    }
    mr__service_closed(w->service, w->wires[a].id, MR_CONN_RESET, w->now_ns);
    world_register(w, b, NULL);
    world_close(w);
}

TEST(who_takes_over_an_id_has_the_slots_of_the_old_session)
{
    struct world *w = world_open(NULL);
    size_t a = world_connect(w, "10.0.0.1:5000"), b = world_connect(w, "10.0.0.2:5000");
    const struct hook_slot slots[] = {{{"user/alice", 10}, 1}};
    struct hook_answer *answer = world_answer(w, MR_HOOK_REGISTER, MR_HOOK_ADMIT);

    answer->slots = slots;
    answer->n_slots = 1;
    answer->takeover = true;
    answer->oid = (struct str){"ROOM", 4};
    world_register(w, a, NULL);
    world_register(w, b, NULL);
    CHECK(w->wires[a].is_closed);
    answer->oid = (struct str){"ELSE", 4};
    world_say(w, b, "register-host\n");
    CHECK_STR(world_line(w, b), "error register-host:full:user/alice");
    world_close(w);
}

TEST(of_two_that_wait_for_the_last_slot_one_gets_it)
{
    struct world *w = world_open(NULL);
    size_t a = world_connect(w, "10.0.0.1:5000"), b = world_connect(w, "10.0.0.2:5000");
    const struct hook_slot slots[] = {{{"k", 1}, 1}};
    struct hook_answer *answer = world_answer(w, MR_HOOK_REGISTER, MR_HOOK_ADMIT);

    answer->slots = slots;
    answer->n_slots = 1;
    world_keep_waiting(w, MR_HOOK_REGISTER, true);
    world_say(w, a, "register-host\n");
    world_say(w, b, "register-host\n");
    CHECK_EQ(w->n_pending, 2);
    world_answer_one(w, 1);
    world_answer_one(w, 0);
    CHECK_STR(world_line(w, a), "error register-host:full:k");
    CHECK_EQ(world_lines_left(w, b), 2);
    world_close(w);
}

TEST(the_next_command_waits_for_the_answer_and_others_go_on)
{
    struct world *w = world_open(NULL);
    size_t a = world_connect(w, "10.0.0.1:5000"), b = world_connect(w, "10.0.0.2:5000");

    world_answer(w, MR_HOOK_REGISTER, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_REGISTER, true);
    world_say(w, a, "register-host?1\necho after\n");
    CHECK(w->wires[a].is_paused);
    CHECK_EQ(world_lines_left(w, a), 0);
    world_say(w, b, "echo b\n");
    CHECK_STR(world_line(w, b), "echo b");
    mr__service_eof(w->service, w->wires[a].id, w->now_ns);
    world_settle(w);
    CHECK(!w->wires[a].is_closed);
    world_answer_pending(w);
    CHECK(strncmp(world_line(w, a), "set-oid ", 8) == 0);
    CHECK(strncmp(world_line(w, a), "set-pid ", 8) == 0);
    CHECK_STR(world_line(w, a), ".1");
    CHECK_STR(world_line(w, a), "echo after");
    CHECK(w->wires[a].is_closed);
    world_close(w);
}

TEST(who_leaves_while_a_policy_thinks_is_forgotten)
{
    struct world *w = world_open(NULL);
    size_t a = world_connect(w, "10.0.0.1:5000");

    world_answer(w, MR_HOOK_REGISTER, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_REGISTER, true);
    world_say(w, a, "register-host\n");
    mr__service_closed(w->service, w->wires[a].id, MR_CONN_RESET, w->now_ns);
    CHECK_EQ(w->cancelled, 1);
    CHECK_EQ(w->n_pending, 0);
    CHECK_EQ(world_metric(w, "noray_active_hosts"), 0.0);
    world_close(w);
}

/* Every player has a connection of his own. */
static unsigned count_busy(struct world *w, size_t first, size_t n)
{
    unsigned busy = 0;

    for (size_t i = first; i < first + n; i++) {
        busy += strcmp(world_line(w, i), "error register-host:busy") == 0;
    }
    return busy;
}

TEST(of_5000_joins_1024_wait_for_a_backend_that_hangs_and_the_others_are_busy_at_once)
{
    enum { JOINS = 5000, MOST = 1024 };
    struct world *w = world_open(NULL);

    world_answer(w, MR_HOOK_REGISTER, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_REGISTER, true);
    for (unsigned i = 0; i < JOINS; i++) {
        char peer[40];
        snprintf(peer, sizeof peer, "10.%u.%u.1:5000", 1 + i / 200, i % 200);
        world_connect(w, peer);
        world_say(w, i, i == 0 ? "register-host\necho second\n" : "register-host\n");
    }
    CHECK_EQ(w->n_pending, MOST);
    CHECK_EQ(count_busy(w, MOST, JOINS - MOST), JOINS - MOST);
    CHECK_STR(world_line(w, 0), "");
    /* The hooks' time is up. */
    world_refuse(w, MR_HOOK_REGISTER, "policy-error");
    world_answer_pending(w);
    CHECK_STR(world_line(w, 0), "error register-host:rejected:policy-error");
    CHECK_STR(world_line(w, 0), "echo second");
    CHECK_EQ(w->n_pending, 0);
    CHECK_EQ(count_busy(w, 1, MOST - 1), 0);
    world_answer(w, MR_HOOK_REGISTER, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_REGISTER, false);
    world_register(w, JOINS - 1, NULL);
    world_close(w);
}

TEST(strangers_that_policies_think_about_leave_half_of_the_chains_to_players)
{
    struct world *w = world_open(NULL);

    world_answer(w, MR_HOOK_DROP, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_DROP, true);
    world_answer(w, MR_HOOK_REGISTER, MR_HOOK_NO_OPINION);
    for (unsigned i = 0; i < 600; i++) {
        char from[40];
        snprintf(from, sizeof from, "10.%u.%u.1:7000", 1 + i / 200, i % 200);
        world_inject(w, from, 49152, 10);
    }
    CHECK_EQ(w->n_pending, 512);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_EVENT_FULL), 600 - 512);
    world_register(w, world_connect(w, "10.0.0.1:5000"), NULL);
    world_answer_pending(w);
    world_inject(w, "10.9.9.9:7000", 49152, 10);
    CHECK_EQ(w->n_pending, 1);
    world_answer_pending(w);
    world_close(w);
}

TEST_MAIN(
    TEST_CASE(a_registration_gives_an_oid_and_then_a_pid_of_the_settings_alphabets),
    TEST_CASE(ids_have_no_favourite_letters), TEST_CASE(ids_may_be_words),
    TEST_CASE(a_space_of_two_ids_is_used_up_exactly_and_comes_back),
    TEST_CASE(a_space_of_secret_ids_that_is_used_up_is_told_as_well),
    TEST_CASE(sessions_of_a_connection_are_capped),
    TEST_CASE(twenty_thousand_registrations_on_one_connection_take_no_more_than_sixteen),
    TEST_CASE(register_and_close_leave_nothing_behind),
    TEST_CASE(only_so_many_who_were_here_are_remembered), TEST_CASE(no_record_ever_holds_a_pid),
    TEST_CASE(a_log_without_addresses_has_none),
    TEST_CASE(a_policy_may_refuse_a_registration_and_its_reason_is_told),
    TEST_CASE(words_beyond_sixteen_or_4_kib_are_no_meta),
    TEST_CASE(a_policy_may_choose_the_id_and_take_it_over),
    TEST_CASE(slots_are_counted_and_given_back_when_a_session_ends),
    TEST_CASE(who_takes_over_an_id_has_the_slots_of_the_old_session),
    TEST_CASE(of_two_that_wait_for_the_last_slot_one_gets_it),
    TEST_CASE(the_next_command_waits_for_the_answer_and_others_go_on),
    TEST_CASE(who_leaves_while_a_policy_thinks_is_forgotten),
    TEST_CASE(of_5000_joins_1024_wait_for_a_backend_that_hangs_and_the_others_are_busy_at_once),
    TEST_CASE(strangers_that_policies_think_about_leave_half_of_the_chains_to_players))
