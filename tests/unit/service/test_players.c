/* SPDX-License-Identifier: MIT */
/*
 * What policies and the control socket see of players and do to them, from inside of hooks
 * too. One thread.
 */
#include "service/players.h"

#include "test.h"
#include "world.h"

#include <errno.h>
#include <string.h>

static struct world *w;
static struct player host, client;

#define LINE(p) world_line(w, (p).conn)

static struct str str(const char *s)
{
    return (struct str){s, strlen(s)};
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

static uint64_t id_of(const struct player *p)
{
    struct hook_session view;

    return mr__players_session(w->service, str(p->oid), &view) ? view.id : 0;
}

static int kick(const struct player *p, const char *reason)
{
    int rc = mr__players_kick(w->service, id_of(p), str(reason));

    world_settle(w);
    return rc;
}

/* ---- looking ------------------------------------------------------------------------------- */

struct found {
    char text[512];
    unsigned n, most;
};

static bool note_session(void *user, const struct hook_session *v)
{
    struct found *f = user;
    size_t n = strlen(f->text);

    snprintf(f->text + n, sizeof f->text - n, "%.*s ", (int)v->oid.n, v->oid.s);
    return ++f->n < f->most;
}

static bool note_relay(void *user, const struct hook_relay *v)
{
    struct found *f = user;
    size_t n = strlen(f->text);

    snprintf(f->text + n, sizeof f->text - n, "%s ", v->text);
    return ++f->n < f->most;
}

static struct player join_with_tag(const char *tcp, const char *key, const char *value)
{
    struct hook_pair tag = {str(key), str(value)};
    struct hook_answer *a = world_answer(w, MR_HOOK_REGISTER, MR_HOOK_ADMIT);
    struct player p;

    a->tags = (struct hook_map){&tag, 1};
    p = world_join(w, tcp, NULL);
    world_answer(w, MR_HOOK_REGISTER, MR_HOOK_NO_OPINION);
    return p;
}

TEST(sessions_are_found_by_their_tags_the_longest_there_first)
{
    struct found all = {.most = 10}, red = {.most = 10}, first = {.most = 1}, none = {.most = 10};
    const struct hook_pair wanted[] = {{str("team"), str("red")}, {str("x"), str("y")}};
    char expected[1024];

    w = world_open(NULL);
    struct player a = join_with_tag("10.0.0.1:5000", "team", "red");
    struct player b = join_with_tag("10.0.0.2:5000", "team", "blue");
    struct player c = join_with_tag("10.0.0.3:5000", "team", "red");
    mr__players_sessions(w->service, (struct hook_map){NULL, 0}, note_session, &all);
    snprintf(expected, sizeof expected, "%s %s %s ", a.oid, b.oid, c.oid);
    CHECK_STR(all.text, expected);
    mr__players_sessions(w->service, (struct hook_map){wanted, 1}, note_session, &red);
    snprintf(expected, sizeof expected, "%s %s ", a.oid, c.oid);
    CHECK_STR(red.text, expected);
    mr__players_sessions(w->service, (struct hook_map){wanted, 1}, note_session, &first);
    CHECK_EQ(first.n, 1);
    mr__players_sessions(w->service, (struct hook_map){wanted, 2}, note_session, &none);
    CHECK_EQ(none.n, 0);
    world_close(w);
}

TEST(a_session_is_found_by_its_id_or_its_oid)
{
    struct hook_session view;
    char id[32];

    open_pair(NULL);
    REQUIRE(mr__players_session(w->service, str(host.oid), &view));
    CHECK_EQ(view.oid.n, strlen(host.oid));
    snprintf(id, sizeof id, "%llu", (unsigned long long)view.id);
    view.id = 0;
    REQUIRE(mr__players_session(w->service, str(id), &view));
    CHECK(memcmp(view.oid.s, host.oid, view.oid.n) == 0);
    const char *const wrong[] = {"", "0", "00001", "-1", "99999999999999999999", "12345678", "1 "};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(!mr__players_session(w->service, str(wrong[i]), &view));
    }
    world_close(w);
}

TEST(relays_are_found_by_their_tags_and_by_their_text)
{
    struct hook_pair tag = {str("game"), str("chess")};
    struct found all = {.most = 10}, one = {.most = 1}, none = {.most = 10};
    struct hook_relay view;
    char first[32];
    unsigned a, b;

    open_pair(NULL);
    struct hook_answer *answer = world_answer(w, MR_HOOK_CREATE, MR_HOOK_ADMIT);
    answer->tags = (struct hook_map){&tag, 1};
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    mr__players_relays(w->service, (struct hook_map){&tag, 1}, note_relay, &all);
    CHECK_EQ(all.n, 2);
    snprintf(first, sizeof first, "%u.", a); /* the host's, made first */
    CHECK(strncmp(all.text, first, strlen(first)) == 0);
    mr__players_relays(w->service, (struct hook_map){NULL, 0}, note_relay, &one);
    CHECK_EQ(one.n, 1);
    tag.value = str("go");
    mr__players_relays(w->service, (struct hook_map){&tag, 1}, note_relay, &none);
    CHECK_EQ(none.n, 0);
    snprintf(first, sizeof first, "%.*s", (int)strcspn(all.text, " "), all.text);
    REQUIRE(mr__players_relay(w->service, str(first), &view));
    CHECK_EQ(view.port, a);
    CHECK(!mr__players_relay(w->service, str("49152"), &view));
    CHECK(!mr__players_relay(w->service, str(""), &view));
    world_close(w);
}

TEST(a_relay_id_that_was_kept_while_its_port_went_to_another_names_nobody)
{
    struct found kept = {.most = 1}, now = {.most = 1};
    struct hook_relay view;
    unsigned a, b;

    w = world_open((const char *[]){"udp_relay_ports=49152", NULL});
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    REQUIRE(world_relay(w, &host, &host, &a, &b));
    mr__players_relays(w->service, (struct hook_map){NULL, 0}, note_relay, &kept);
    kept.text[strcspn(kept.text, " ")] = '\0';
    CHECK_EQ(mr__players_close(w->service, str(kept.text), str("x")), 0);
    world_settle(w);
    struct player other = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    REQUIRE(world_relay(w, &other, &other, &a, &b));
    CHECK_EQ(mr__players_close(w->service, str(kept.text), str("x")), -ENOENT);
    CHECK(!mr__players_relay(w->service, str(kept.text), &view));
    world_settle(w);
    mr__players_relays(w->service, (struct hook_map){NULL, 0}, note_relay, &now);
    CHECK_EQ(now.n, 1);
    CHECK(strncmp(now.text, kept.text, strlen(kept.text)) != 0);
    world_close(w);
}

/* ---- ending -------------------------------------------------------------------------------- */

TEST(a_kicked_player_is_told_why_and_loses_connection_relay_and_slots)
{
    const struct hook_slot slots[] = {{{"user/alice", 10}, 1}};
    unsigned a, b;

    w = world_open(NULL);
    world_answer(w, MR_HOOK_LEFT, MR_HOOK_NO_OPINION);
    world_answer(w, MR_HOOK_DESTROYED, MR_HOOK_NO_OPINION);
    struct hook_answer *answer = world_answer(w, MR_HOOK_REGISTER, MR_HOOK_ADMIT);
    answer->slots = slots;
    answer->n_slots = 1;
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    REQUIRE(world_relay(w, &host, &host, &a, &b));
    CHECK_EQ(kick(&host, "Be Nice"), 0);
    CHECK_STR(LINE(host), "error session:-e--ice");
    CHECK(w->wires[host.conn].is_closed);
    CHECK(strstr(w->seen[MR_HOOK_LEFT], "reason=kicked"));
    CHECK(strstr(w->seen[MR_HOOK_LEFT], host.oid));
    CHECK(strstr(w->seen[MR_HOOK_DESTROYED], "reason=api"));
    CHECK_EQ(w->canned[MR_HOOK_DESTROYED].told, 1);
    CHECK_EQ(world_relays(w), 0);
    CHECK_EQ(mr__players_kick(w->service, 1, str("x")), -ENOENT);
    /* His slot is free. */
    host = world_join(w, "10.0.0.1:5000", NULL);
    world_close(w);
}

TEST(a_reason_becomes_one_clean_word)
{
    static char longest[1 << 20];
    char expected[128] = "error session:";

    w = world_open(NULL);
    memset(longest, 'a', sizeof longest);
    memset(expected + strlen(expected), 'a', MR_REASON_MAX);
    host = world_join(w, "10.0.0.1:5000", NULL);
    mr__players_kick(w->service, id_of(&host), (struct str){longest, sizeof longest});
    world_settle(w);
    CHECK_STR(LINE(host), expected);
    host = world_join(w, "10.0.0.1:5000", NULL);
    kick(&host, "a\nb\xc3\xbc");
    CHECK_STR(LINE(host), "error session:a-b--");
    host = world_join(w, "10.0.0.1:5000", NULL);
    kick(&host, "");
    CHECK_STR(LINE(host), "error session:kicked");
    CHECK_EQ(world_metric(w, "moonrelay_errors_total{command=\"session\",code=\"kicked\"}"), 3.0);
    world_close(w);
}

TEST(of_two_sessions_of_a_connection_the_other_one_goes_on)
{
    open_pair(NULL);
    struct player second = world_register(w, client.conn, NULL);
    CHECK_EQ(kick(&second, "no"), 0);
    CHECK_STR(LINE(client), "error session:no");
    CHECK(!w->wires[client.conn].is_closed);
    say(&client, "connect", host.oid);
    CHECK_STR(LINE(client), "connect 10.0.0.1:6000");
    world_close(w);
}

/* Policies admit everybody who knocks; does he get in? */
static bool is_let_in(const char *from, unsigned port)
{
    unsigned before = world_relays(w);

    world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);
    world_inject(w, from, port, 10);
    world_advance(w, 1100); /* the flow may knock again */
    return world_relays(w) > before;
}

TEST(what_a_kicked_players_socket_sends_gets_no_relay_before_it_registers_anew)
{
    unsigned a, b;

    open_pair((const char *[]){"udp_relay_timeout=20m", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    kick(&client, "no");
    CHECK_EQ(world_relays(w), 1);
    CHECK(!is_let_in("10.0.0.2:6000", a));
    CHECK_GT(world_verdicts(w, MR_VERDICT_UNKNOWN_SENDER), 0);
    CHECK(is_let_in("10.0.0.2:6001", a)); /* a neighbour behind the same NAT */
    client = world_join(w, "10.0.0.2:5000", NULL);
    CHECK(!is_let_in("10.0.0.2:6000", a)); /* registered, but not seen */
    CHECK_STR(world_see(w, &client, "10.0.0.2:6000"), "OK");
    CHECK(is_let_in("10.0.0.2:6000", a));
    world_close(w);
}

TEST(a_socket_is_welcome_again_ten_minutes_after_a_kick)
{
    unsigned a, b;

    open_pair((const char *[]){"udp_relay_timeout=20m", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    kick(&client, "no");
    w->now_ns += 590ull * 1000000000;
    CHECK(!is_let_in("10.0.0.2:6000", a));
    w->now_ns += 12ull * 1000000000;
    CHECK(is_let_in("10.0.0.2:6000", a));
    world_close(w);
}

TEST(a_relay_that_another_session_shares_outlives_a_kick)
{
    unsigned a, b;

    open_pair(NULL);
    struct player second = world_register(w, world_connect(w, "10.0.0.2:5001"), NULL);
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    CHECK_STR(world_see(w, &second, "10.0.0.2:6000"), "OK");
    kick(&client, "no");
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    kick(&second, "no");
    CHECK_EQ(world_relays(w), 1);
    CHECK(!is_let_in("10.0.0.2:6000", a));
    world_close(w);
}

TEST(a_kick_ends_every_relay_that_its_socket_has)
{
    unsigned a, b, c, d;

    open_pair((const char *[]){"udp_relay_timeout=60s", NULL});
    struct player third = world_join(w, "10.0.0.2:5001", "10.0.0.3:6000");
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    REQUIRE(world_relay(w, &third, &host, &c, &d));
    /* The third one moves to the client's address, with his relay: now the socket has two. */
    CHECK_STR(world_see(w, &third, "10.0.0.2:6000"), "OK");
    mr__service_closed(w->service, w->wires[client.conn].id, MR_CONN_RESET, w->now_ns);
    world_settle(w);
    CHECK_EQ(world_relays(w), 3);
    kick(&third, "no");
    CHECK_EQ(world_relays(w), 1);
    CHECK_NE(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    world_close(w);
}

static bool check_owner(void *user, const struct hook_relay *v)
{
    struct hook_session session;
    char id[32];

    snprintf(id, sizeof id, "%llu", (unsigned long long)v->session);
    CHECK(v->session == 0 || mr__players_session(w->service, str(id), &session));
    ++*(unsigned *)user;
    return true;
}

/* He moved to where another player is, with his own relay. */
TEST(a_kick_ends_his_relay_and_not_that_of_another_at_his_socket)
{
    unsigned a, b, c, d;

    open_pair((const char *[]){"udp_relay_timeout=60s", NULL});
    struct player third = world_join(w, "10.0.0.2:5001", "10.0.0.3:6000");
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    REQUIRE(world_relay(w, &third, &host, &c, &d));
    CHECK_STR(world_see(w, &third, "10.0.0.2:6000"), "OK");
    CHECK_EQ(world_relays(w), 3);
    kick(&third, "no");
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(world_decide(w, "10.0.0.1:6000", d, NULL, NULL), MR_VERDICT_UNKNOWN_TARGET);
    CHECK_EQ(world_decide(w, "10.0.0.1:6000", b, NULL, NULL), MR_VERDICT_FORWARD);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    world_close(w);
}

TEST(a_relay_names_no_session_that_is_gone)
{
    unsigned a, b, n = 0;

    open_pair((const char *[]){"udp_relay_timeout=60s", NULL});
    struct player third = world_join(w, "10.0.0.2:5001", "10.0.0.3:6000");
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    REQUIRE(world_relay(w, &third, &host, &a, &b));
    /* Two relays at one address, both the client's once the third one is gone. */
    CHECK_STR(world_see(w, &third, "10.0.0.2:6000"), "OK");
    mr__service_closed(w->service, w->wires[third.conn].id, MR_CONN_RESET, w->now_ns);
    mr__players_relays(w->service, (struct hook_map){NULL, 0}, check_owner, &n);
    mr__service_closed(w->service, w->wires[client.conn].id, MR_CONN_RESET, w->now_ns);
    mr__players_relays(w->service, (struct hook_map){NULL, 0}, check_owner, &n);
    CHECK_EQ(n, 6);
    world_close(w);
}

/* ---- from inside of hooks ------------------------------------------------------------------ */

static enum hook kick_in;
static uint64_t kick_whom;

static void kick_inside(struct world *world, enum hook hook)
{
    if (hook == kick_in && kick_whom) {
        uint64_t whom = kick_whom;
        kick_whom = 0;
        CHECK_EQ(mr__players_kick(world->service, whom, str("inside")), 0);
        CHECK_EQ(mr__players_kick(world->service, whom, str("again")), -ENOENT);
    }
}

static void kick_during(enum hook hook, const struct player *p)
{
    kick_in = hook;
    kick_whom = id_of(p);
    w->inside = kick_inside;
    world_answer(w, hook, MR_HOOK_NO_OPINION);
}

TEST(a_caller_who_is_kicked_by_the_hook_that_handles_his_command_gets_nothing_of_it)
{
    static const char *const commands[] = {"connect", "connect-relay"};
    static const enum hook hooks[] = {MR_HOOK_CONNECT, MR_HOOK_CREATE};

    for (int i = 0; i < 3; i++) {
        const char *command = commands[i > 0];
        char expected[100];

        open_pair(NULL);
        kick_during(hooks[i > 1], &client);
        say(&client, command, host.oid);
        snprintf(expected, sizeof expected, "error %s:not-registered", command);
        CHECK_STR(LINE(client), expected);
        CHECK_STR(LINE(client), "error session:inside");
        CHECK(w->wires[client.conn].is_closed);
        CHECK_EQ(world_lines_left(w, host.conn), 0);
        CHECK_EQ(world_relays(w), 0);
        world_close(w);
    }
}

TEST(a_host_who_is_kicked_by_the_hook_of_a_join_is_unknown_to_the_caller)
{
    static const enum hook hooks[] = {MR_HOOK_CONNECT, MR_HOOK_CREATE};

    for (int i = 0; i < 2; i++) {
        open_pair(NULL);
        kick_during(hooks[i], &host);
        say(&client, "connect-relay", host.oid);
        CHECK_STR(LINE(client), "error connect-relay:unknown-oid");
        CHECK_STR(LINE(host), "error session:inside");
        CHECK_EQ(world_relays(w), 0);
        world_close(w);
    }
}

TEST(a_register_hook_may_kick_the_last_session_of_its_user_and_give_him_its_slot)
{
    const struct hook_slot slots[] = {{{"user/alice", 10}, 1}};

    w = world_open(NULL);
    struct hook_answer *answer = world_answer(w, MR_HOOK_REGISTER, MR_HOOK_ADMIT);
    answer->slots = slots;
    answer->n_slots = 1;
    struct player old = world_join(w, "10.0.0.1:5000", NULL);
    kick_in = MR_HOOK_REGISTER;
    kick_whom = id_of(&old);
    w->inside = kick_inside;
    world_register(w, world_connect(w, "10.0.0.2:5000"), NULL);
    CHECK_STR(LINE(old), "error session:inside");
    CHECK(w->wires[old.conn].is_closed);
    /* One slot, one holder. */
    size_t third = world_connect(w, "10.0.0.3:5000");
    world_say(w, third, "register-host\n");
    CHECK_STR(world_line(w, third), "error register-host:full:user/alice");
    world_close(w);
}

TEST(a_kick_from_a_notice_is_as_good_as_any)
{
    open_pair(NULL);
    kick_during(MR_HOOK_CONNECTED, &host);
    say(&client, "connect", host.oid);
    CHECK_STR(LINE(client), "connect 10.0.0.1:6000");
    CHECK_STR(LINE(host), "connect 10.0.0.2:6000");
    CHECK_STR(LINE(host), "error session:inside");
    world_close(w);
}

TEST(a_stranger_whose_session_is_kicked_while_policies_think_about_him_stays_out)
{
    unsigned a, b;

    open_pair(NULL);
    REQUIRE(world_relay(w, &host, &host, &a, &b));
    world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    world_inject(w, "10.0.0.2:6000", a, 10);
    CHECK_EQ(w->n_pending, 1);
    kick(&client, "no");
    world_answer_pending(w);
    CHECK_EQ(world_relays(w), 1);
    world_close(w);
}

/* ---- suspended chains ---------------------------------------------------------------------- */

TEST(a_kick_ends_what_its_session_waits_for)
{
    static const enum hook hooks[] = {MR_HOOK_CONNECT, MR_HOOK_CREATE};

    for (int i = 0; i < 2; i++) {
        open_pair(NULL);
        world_answer(w, hooks[i], MR_HOOK_NO_OPINION);
        world_keep_waiting(w, hooks[i], true);
        say(&client, "connect-relay", host.oid);
        CHECK_EQ(w->n_pending, 1);
        kick(&client, "no");
        CHECK_EQ(w->n_pending, 0);
        CHECK_EQ(w->cancelled, 1);
        CHECK_STR(LINE(client), "error connect-relay:not-registered");
        CHECK_STR(LINE(client), "error session:no");
        CHECK_EQ(world_relays(w), 0);
        world_close(w);
    }
}

TEST(a_chain_ends_when_the_host_that_its_command_names_leaves)
{
    static const enum hook hooks[] = {MR_HOOK_CONNECT, MR_HOOK_CREATE};

    for (int i = 0; i < 4; i++) {
        open_pair(NULL);
        world_answer(w, hooks[i % 2], MR_HOOK_NO_OPINION);
        world_keep_waiting(w, hooks[i % 2], true);
        say(&client, "connect-relay", host.oid);
        CHECK_EQ(w->n_pending, 1);
        if (i < 2) {
            kick(&host, "no");
        } else {
            mr__service_closed(w->service, w->wires[host.conn].id, MR_CONN_RESET, w->now_ns);
        }
        CHECK_EQ(w->n_pending, 0);
        CHECK_STR(LINE(client), "error connect-relay:unknown-oid");
        world_close(w);
    }
}

/* ---- words and relays ---------------------------------------------------------------------- */

TEST(a_player_is_told_a_word_and_nothing_else)
{
    char longest[140];

    open_pair(NULL);
    CHECK_EQ(mr__players_notify(w->service, id_of(&host), str("draining:600")), 0);
    CHECK_STR(LINE(host), "notice draining:600");
    memset(longest, 'a', sizeof longest);
    CHECK_EQ(mr__players_notify(w->service, id_of(&host), (struct str){longest, 128}), 0);
    CHECK_EQ(mr__players_notify(w->service, id_of(&host), (struct str){longest, 129}), -EINVAL);
    static const char *const wrong[] = {"", "two words", "a\nset-oid x", "\x7f", "\xc3\xbc"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_EQ(mr__players_notify(w->service, id_of(&host), str(wrong[i])), -EINVAL);
    }
    CHECK_EQ(mr__players_notify(w->service, 12345, str("x")), -ENOENT);
    CHECK_EQ(world_lines_left(w, host.conn), 1);
    world_close(w);
    open_pair((const char *[]){"errors=off", NULL});
    CHECK_EQ(mr__players_notify(w->service, id_of(&host), str("x")), 0);
    kick(&host, "no");
    CHECK_EQ(world_lines_left(w, host.conn), 0);
    CHECK(w->wires[host.conn].is_closed);
    world_close(w);
}

static char close_text[64];

static void close_inside(struct world *world, enum hook hook)
{
    if (hook == MR_HOOK_CREATE && close_text[0]) {
        CHECK_EQ(mr__players_close(world->service, str(close_text), str("x")), 0);
        CHECK_EQ(mr__players_close(world->service, str(close_text), str("x")), -ENOENT);
        close_text[0] = '\0';
    }
}

TEST(a_hosts_relay_that_is_closed_while_a_join_needs_it_is_made_anew)
{
    struct found f = {.most = 1};
    unsigned a, b, c, d;

    open_pair(NULL);
    world_answer(w, MR_HOOK_DESTROYED, MR_HOOK_NO_OPINION);
    REQUIRE(world_relay(w, &host, &host, &a, &b));
    mr__players_relays(w->service, (struct hook_map){NULL, 0}, note_relay, &f);
    snprintf(close_text, sizeof close_text, "%.*s", (int)strcspn(f.text, " "), f.text);
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    w->inside = close_inside;
    REQUIRE(world_relay(w, &client, &host, &c, &d));
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", c, NULL, NULL), MR_VERDICT_FORWARD);
    CHECK_EQ(w->canned[MR_HOOK_DESTROYED].told, 1);
    world_close(w);
}

TEST_MAIN(TEST_CASE(sessions_are_found_by_their_tags_the_longest_there_first),
          TEST_CASE(a_session_is_found_by_its_id_or_its_oid),
          TEST_CASE(relays_are_found_by_their_tags_and_by_their_text),
          TEST_CASE(a_relay_id_that_was_kept_while_its_port_went_to_another_names_nobody),
          TEST_CASE(a_kicked_player_is_told_why_and_loses_connection_relay_and_slots),
          TEST_CASE(a_reason_becomes_one_clean_word),
          TEST_CASE(of_two_sessions_of_a_connection_the_other_one_goes_on),
          TEST_CASE(what_a_kicked_players_socket_sends_gets_no_relay_before_it_registers_anew),
          TEST_CASE(a_socket_is_welcome_again_ten_minutes_after_a_kick),
          TEST_CASE(a_relay_that_another_session_shares_outlives_a_kick),
          TEST_CASE(a_kick_ends_every_relay_that_its_socket_has),
          TEST_CASE(a_kick_ends_his_relay_and_not_that_of_another_at_his_socket),
          TEST_CASE(a_relay_names_no_session_that_is_gone),
          TEST_CASE(a_caller_who_is_kicked_by_the_hook_that_handles_his_command_gets_nothing_of_it),
          TEST_CASE(a_host_who_is_kicked_by_the_hook_of_a_join_is_unknown_to_the_caller),
          TEST_CASE(a_register_hook_may_kick_the_last_session_of_its_user_and_give_him_its_slot),
          TEST_CASE(a_kick_from_a_notice_is_as_good_as_any),
          TEST_CASE(a_stranger_whose_session_is_kicked_while_policies_think_about_him_stays_out),
          TEST_CASE(a_kick_ends_what_its_session_waits_for),
          TEST_CASE(a_chain_ends_when_the_host_that_its_command_names_leaves),
          TEST_CASE(a_player_is_told_a_word_and_nothing_else),
          TEST_CASE(a_hosts_relay_that_is_closed_while_a_join_needs_it_is_made_anew))
