/* SPDX-License-Identifier: MIT */
/*
 * Who is refused, where, until when, and what ends; the random test compares with a plain
 * array. One thread.
 */
#include "service/blocks.h"

#include "service/state.h"
#include "test.h"
#include "world.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static struct world *w;
static struct player host, client;
static const struct str by = {"bans", 4};
static const struct hook_pair alice = {{"user", 4}, {"alice", 5}};

#define LINE(p) world_line(w, (p).conn)

static struct str str(const char *s)
{
    return (struct str){s, strlen(s)};
}

static struct block_what what_of(const char *text)
{
    static struct hook_pair pairs[MR_TAGS_MAX];
    struct block_what what = {.kind = MR_BLOCK_NET};
    char why[MR_CIDR_WHY_MAX] = "";

    if (!mr__block_parse(&what, text, strlen(text), pairs, why)) {
        FAIL("%s", why);
    }
    return what;
}

/* How many ended. */
static unsigned block(const char *text, double seconds)
{
    struct block_what what = what_of(text);
    unsigned ended = 99;

    CHECK_EQ(mr__blocks_add(w->service, &what, seconds, str("cheating"), by, &ended), 0);
    world_settle(w);
    return ended;
}

static unsigned unblock(const char *text)
{
    struct block_what what = what_of(text);
    unsigned n = mr__blocks_remove(w->service, &what);

    world_settle(w);
    return n;
}

static struct cidr *nets_of(const char *text)
{
    char why[MR_CIDR_WHY_MAX];
    struct cidr *nets = NULL;

    REQUIRE_EQ(mr__cidr_parse(&nets, text, strlen(text), why), 0);
    return nets;
}

static int set_list(const char *owner, const char *text, unsigned *ended)
{
    struct cidr *nets = text ? nets_of(text) : NULL;
    int rc = mr__blocks_set_list(w->service, str(owner), nets, str("list"), ended);

    mr__cidr_unref(nets);
    world_settle(w);
    return rc;
}

static void say(const struct player *p, const char *command, const char *oid)
{
    char line[800];

    snprintf(line, sizeof line, "%s %s\n", command, oid);
    world_say(w, p->conn, line);
}

static void open_pair(void)
{
    w = world_open(NULL);
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
}

static void give_tags(enum hook hook, const struct hook_pair *tag)
{
    struct hook_answer *a = world_answer(w, hook, MR_HOOK_ADMIT);

    a->tags = (struct hook_map){tag, tag ? 1 : 0};
}

/* ---- where they act -------------------------------------------------------------------------- */

TEST(a_connection_from_a_blocked_net_gets_one_line_and_is_closed)
{
    w = world_open(NULL);
    block("10.0.0.0/24", 60);
    size_t conn = world_connect(w, "10.0.0.1:5000"), other = world_connect(w, "10.0.1.1:5000");
    world_settle(w);
    CHECK_STR(world_line(w, conn), "error connection:blocked");
    CHECK(w->wires[conn].is_closed);
    CHECK(!w->wires[other].is_closed);
    CHECK_EQ(world_metric(w, "moonrelay_errors_total{command=\"other\",code=\"blocked\"}"), -1.0);
    world_close(w);
}

TEST(the_registrar_is_silent_to_a_blocked_net)
{
    w = world_open(NULL);
    struct player p = world_join(w, "10.0.1.1:5000", NULL);
    block("10.0.0.0/24", 60);
    CHECK_STR(world_see(w, &p, "10.0.0.1:6000"), "");
    CHECK_STR(world_see(w, &p, "10.0.1.1:6000"), "OK");
    world_close(w);
}

TEST(the_registrar_is_silent_to_a_blocked_socket_and_to_no_other)
{
    w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", NULL);
    block("10.0.0.1:6000", 60);
    CHECK_STR(world_see(w, &p, "10.0.0.1:6000"), "");
    CHECK_STR(world_see(w, &p, "10.0.0.1:6001"), "OK");
    world_close(w);
}

TEST(nobody_moves_to_a_blocked_address)
{
    struct hook_session view;

    open_pair();
    block("10.9.0.0/16", 60);
    CHECK_STR(world_see(w, &client, "10.9.0.1:6000"), "");
    struct session *p = mr__session_by_oid(w->service, client.oid, strlen(client.oid));
    mr__session_view(p, &view);
    struct mr_addr old = world_addr("10.0.0.2:6000");
    CHECK(mr_addr_equal(&view.addr, &old));
    world_close(w);
}

TEST(a_blocked_net_registers_nobody_and_no_policy_is_asked)
{
    w = world_open(NULL);
    world_answer(w, MR_HOOK_REGISTER, MR_HOOK_NO_OPINION);
    size_t conn = world_connect(w, "10.0.0.1:5000");
    block("10.0.0.1", 60);
    world_say(w, conn, "register-host\n");
    CHECK_STR(world_line(w, conn), "error register-host:blocked");
    CHECK_EQ(w->canned[MR_HOOK_REGISTER].asked, 0u);
    CHECK_EQ(world_metric(w, "moonrelay_errors_total{command=\"register-host\",code=\"blocked\"}"),
             1.0);
    unblock("10.0.0.1");
    world_say(w, conn, "register-host\n");
    CHECK_EQ(strncmp(world_line(w, conn), "set-oid ", 8), 0);
    world_close(w);
}

TEST(a_net_that_is_blocked_while_a_policy_thinks_registers_nobody)
{
    w = world_open(NULL);
    world_keep_waiting(w, MR_HOOK_REGISTER, true);
    size_t conn = world_connect(w, "10.0.0.1:5000");
    world_say(w, conn, "register-host\n");
    block("10.0.0.1", 60);
    world_answer_pending(w);
    CHECK_STR(world_line(w, conn), "error register-host:blocked");
    world_close(w);
}

TEST(blocked_tags_register_nobody)
{
    w = world_open(NULL);
    block("user=alice", 60);
    give_tags(MR_HOOK_REGISTER, &alice);
    size_t conn = world_connect(w, "10.0.0.1:5000");
    world_say(w, conn, "register-host\n");
    CHECK_STR(world_line(w, conn), "error register-host:blocked");
    CHECK(!w->wires[conn].is_closed);
    static const struct hook_pair bob = {{"user", 4}, {"bob", 3}};
    give_tags(MR_HOOK_REGISTER, &bob);
    world_say(w, conn, "register-host\n");
    CHECK_EQ(strncmp(world_line(w, conn), "set-oid ", 8), 0);
    world_close(w);
}

TEST(tags_are_blocked_only_where_all_of_them_are)
{
    static const struct hook_pair both[] = {{{"team", 4}, {"red", 3}}, {{"user", 4}, {"alice", 5}}};

    w = world_open(NULL);
    block("user=alice,team=red", 60);
    CHECK(!mr__blocks_have_tags(w->service, (struct hook_map){both, 1}));
    CHECK(!mr__blocks_have_tags(w->service, (struct hook_map){both + 1, 1}));
    CHECK(mr__blocks_have_tags(w->service, (struct hook_map){both, 2}));
    CHECK_EQ(unblock("team=red"), 0u);
    CHECK_EQ(unblock("team=red,user=alice"), 1u); /* in any order */
    CHECK(!mr__blocks_have_tags(w->service, (struct hook_map){both, 2}));
    world_close(w);
}

TEST(a_blocked_net_joins_nobody)
{
    open_pair();
    size_t conn = world_connect(w, "10.0.0.3:5000");
    block("10.0.0.3", 60);
    char line[800];
    snprintf(line, sizeof line, "connect %s\nconnect-relay %s\n", host.oid, host.oid);
    world_say(w, conn, line);
    CHECK_STR(world_line(w, conn), "error connect:blocked");
    CHECK_STR(world_line(w, conn), "error connect-relay:blocked");
    world_close(w);
}

TEST(no_relay_is_made_that_would_carry_blocked_tags)
{
    open_pair();
    block("match=7", 60);
    static const struct hook_pair match = {{"match", 5}, {"7", 1}};
    give_tags(MR_HOOK_CREATE, &match);
    say(&client, "connect-relay", host.oid);
    CHECK_STR(LINE(client), "error connect-relay:blocked");
    CHECK_EQ(world_relays(w), 0u);
    give_tags(MR_HOOK_CREATE, NULL);
    say(&client, "connect-relay", host.oid);
    CHECK_EQ(strncmp(LINE(client), "connect-relay ", 14), 0);
    world_close(w);
}

/* A host with a relay at *port; strangers are asked about. */
static void open_game(unsigned *port)
{
    unsigned other;

    open_pair();
    REQUIRE(world_relay(w, &client, &host, port, &other));
    world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);
    mr__service_set_hooks(w->service, &w->hooks);
    world_settle(w);
}

TEST(the_data_plane_drops_strangers_from_a_blocked_net)
{
    unsigned port;

    open_game(&port);
    block("203.0.113.0/24", 60);
    world_inject(w, "203.0.113.5:4000", port, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_BLOCKED), 1u);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 0u);
    CHECK_EQ(world_relays(w), 2u);
    unblock("203.0.113.0/24");
    world_inject(w, "203.0.113.5:4000", port, 10);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 1u);
    CHECK_EQ(world_relays(w), 3u);
    world_close(w);
}

TEST(a_knock_from_a_blocked_socket_asks_nobody_and_is_quiet_until_the_end)
{
    unsigned port;

    open_game(&port);
    block("203.0.113.5:4000", 5);
    world_inject(w, "203.0.113.5:4000", port, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_BLOCKED), 1u);
    world_advance(w, 4900);
    world_inject(w, "203.0.113.5:4000", port, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_BLOCKED), 2u);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 0u);
    world_inject(w, "203.0.113.5:4001", port, 10);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 1u);
    world_advance(w, 200);
    world_inject(w, "203.0.113.5:4000", port, 10);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 2u);
    world_close(w);
}

TEST(a_block_that_is_taken_back_is_felt_for_ten_seconds_at_most)
{
    unsigned port;

    open_game(&port);
    block("203.0.113.5:4000", 3600);
    world_inject(w, "203.0.113.5:4000", port, 10);
    CHECK_EQ(unblock("203.0.113.5:4000"), 1u);
    world_advance(w, 10000);
    world_inject(w, "203.0.113.5:4000", port, 10);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 1u);
    world_close(w);
}

TEST(a_stranger_who_is_blocked_while_a_policy_thinks_gets_no_relay)
{
    unsigned port;

    open_game(&port);
    world_keep_waiting(w, MR_HOOK_DROP, true);
    world_inject(w, "203.0.113.5:4000", port, 10);
    block("203.0.113.5:4000", 60);
    world_answer_pending(w);
    CHECK_EQ(world_relays(w), 2u);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_BLOCKED), 1u);
    world_close(w);
}

TEST(a_stranger_gets_no_relay_that_would_carry_blocked_tags)
{
    unsigned port;

    open_game(&port);
    block("match=7", 60);
    static const struct hook_pair match = {{"match", 5}, {"7", 1}};
    give_tags(MR_HOOK_DROP, &match);
    world_inject(w, "203.0.113.5:4000", port, 10);
    CHECK_EQ(world_relays(w), 2u);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_BLOCKED), 1u);
    world_close(w);
}

/* ---- what ends ------------------------------------------------------------------------------- */

TEST(players_of_a_net_end_with_a_line_their_relays_and_their_connections)
{
    unsigned a, b;

    open_pair();
    world_answer(w, MR_HOOK_LEFT, MR_HOOK_NO_OPINION);
    world_answer(w, MR_HOOK_DESTROYED, MR_HOOK_NO_OPINION);
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    CHECK_EQ(block("10.0.0.2/32", 60), 1u);
    CHECK_STR(LINE(client), "error session:blocked");
    CHECK(w->wires[client.conn].is_closed);
    CHECK(!w->wires[host.conn].is_closed);
    CHECK_EQ(world_relays(w), 1u);
    CHECK(strstr(w->seen[MR_HOOK_LEFT], "blocked") != NULL);
    CHECK(strstr(w->seen[MR_HOOK_DESTROYED], "blocked") != NULL);
    CHECK_EQ(w->canned[MR_HOOK_LEFT].told, 1u);
    world_inject(w, "10.0.0.2:6000", a, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_BLOCKED), 1u);
    world_close(w);
}

TEST(a_player_ends_by_his_udp_address_too)
{
    w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "192.0.2.1:6000");

    CHECK_EQ(block("192.0.2.1", 60), 1u);
    CHECK_STR(LINE(p), "error session:blocked");
    p = world_join(w, "10.0.0.1:5001", "192.0.2.2:6000");
    CHECK_EQ(block("192.0.2.2:6001", 60), 0u);
    CHECK_EQ(block("192.0.2.2:6000", 60), 1u);
    CHECK_STR(LINE(p), "error session:blocked");
    world_close(w);
}

TEST(relays_of_strangers_end_as_well)
{
    unsigned port;

    open_game(&port);
    world_inject(w, "203.0.113.5:4000", port, 10);
    world_inject(w, "203.0.113.6:4000", port, 10);
    CHECK_EQ(world_relays(w), 4u);
    CHECK_EQ(block("203.0.113.5", 60), 1u);
    CHECK_EQ(world_relays(w), 3u);
    world_inject(w, "203.0.113.5:4000", port, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_BLOCKED), 1u);
    CHECK_EQ(block("203.0.113.6:4000", 60), 1u);
    CHECK_EQ(world_relays(w), 2u);
    world_close(w);
}

TEST(relays_end_by_their_own_tags)
{
    unsigned port;

    open_game(&port);
    static const struct hook_pair match = {{"match", 5}, {"7", 1}};
    give_tags(MR_HOOK_DROP, &match);
    world_inject(w, "203.0.113.5:4000", port, 10);
    CHECK_EQ(world_relays(w), 3u);
    CHECK_EQ(block("match=7", 60), 1u);
    CHECK_EQ(world_relays(w), 2u);
    give_tags(MR_HOOK_DROP, NULL);
    world_inject(w, "203.0.113.5:4000", port, 10); /* his socket is blocked as well */
    CHECK_EQ(world_relays(w), 2u);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_BLOCKED), 1u);
    world_close(w);
}

/* ---- a block by tags ------------------------------------------------------------------------- */

/* Alice hosts from 10.0.0.1:6000; the client and a neighbour on her address play with her. */
static struct player neighbour;
static unsigned her_port;

static void open_neighbours(void)
{
    unsigned other;

    w = world_open(NULL);
    give_tags(MR_HOOK_REGISTER, &alice);
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    give_tags(MR_HOOK_REGISTER, NULL);
    neighbour = world_join(w, "10.0.0.1:5001", "10.0.0.1:6001");
    client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    REQUIRE(world_relay(w, &client, &host, &her_port, &other));
    REQUIRE(world_relay(w, &client, &neighbour, &her_port, &other));
    her_port = other;
    world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);
    mr__service_set_hooks(w->service, &w->hooks);
    world_settle(w);
}

TEST(what_the_socket_of_blocked_tags_keeps_sending_gets_no_relay_until_the_end)
{
    open_neighbours();
    CHECK_EQ(block("user=alice", 3600), 1u);
    CHECK_STR(LINE(host), "error session:blocked");
    CHECK_EQ(world_relays(w), 2u);
    world_inject(w, "10.0.0.1:6000", her_port, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_BLOCKED), 1u);
    CHECK_EQ(world_relays(w), 2u);
    /* Longer than a kick is remembered; and a pid of another player does not help the socket. */
    world_advance(w, 1000 * 1000);
    struct player other = world_join(w, "10.0.0.1:5009", NULL);
    CHECK_STR(world_see(w, &other, "10.0.0.1:6000"), "");
    world_inject(w, "10.0.0.1:6000", her_port, 10);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 0u);
    world_advance(w, 2600 * 1000);
    CHECK_STR(world_see(w, &other, "10.0.0.1:6000"), "OK");
    world_close(w);
}

TEST(a_neighbour_on_the_same_address_plays_on)
{
    unsigned a, b;

    open_neighbours();
    block("user=alice", 60);
    CHECK(!w->wires[neighbour.conn].is_closed);
    CHECK_STR(LINE(neighbour), "");
    CHECK_STR(world_see(w, &neighbour, "10.0.0.1:6001"), "OK");
    CHECK(world_relay(w, &client, &neighbour, &a, &b));
    size_t conn = world_connect(w, "10.0.0.1:5007");
    world_say(w, conn, "register-host\n");
    CHECK_EQ(strncmp(world_line(w, conn), "set-oid ", 8), 0);
    world_close(w);
}

TEST(a_player_who_shares_the_socket_keeps_it)
{
    w = world_open(NULL);
    give_tags(MR_HOOK_REGISTER, &alice);
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    give_tags(MR_HOOK_REGISTER, NULL);
    struct player guest = world_join(w, "10.0.0.1:5001", "10.0.0.1:6000");

    CHECK_EQ(block("user=alice", 60), 1u);
    CHECK_STR(LINE(host), "error session:blocked");
    CHECK_STR(world_see(w, &guest, "10.0.0.1:6000"), "OK");
    world_close(w);
}

TEST(unblocking_tags_frees_the_sockets_that_were_refused_for_their_sake)
{
    open_neighbours();
    block("user=alice", 60);
    CHECK_EQ(unblock("10.0.0.1:6000"), 0u); /* nobody asked for that one */
    struct player again = world_join(w, "10.0.0.1:5009", NULL);
    CHECK_STR(world_see(w, &again, "10.0.0.1:6000"), "");
    CHECK_EQ(unblock("user=alice"), 1u);
    CHECK_STR(world_see(w, &again, "10.0.0.1:6000"), "OK");
    world_close(w);
}

TEST(a_longer_block_of_tags_is_one_of_their_sockets_too)
{
    open_neighbours();
    block("user=alice", 10);
    CHECK_EQ(block("user=alice", 60), 0u);
    CHECK_EQ(block("user=alice", 5), 0u); /* the later end counts */
    world_advance(w, 59000);
    struct player again = world_join(w, "10.0.0.1:5009", NULL);
    CHECK_STR(world_see(w, &again, "10.0.0.1:6000"), "");
    CHECK(mr__blocks_have_tags(w->service, (struct hook_map){&alice, 1}));
    world_advance(w, 1000);
    CHECK_STR(world_see(w, &again, "10.0.0.1:6000"), "OK");
    CHECK(!mr__blocks_have_tags(w->service, (struct hook_map){&alice, 1}));
    world_close(w);
}

/* ---- from inside of hooks -------------------------------------------------------------------- */

static void block_caller(struct world *world, enum hook hook)
{
    struct block_what what = what_of("10.0.0.2");
    unsigned ended = 0;

    if (hook == MR_HOOK_CONNECT) {
        CHECK_EQ(mr__blocks_add(world->service, &what, 60, str(""), by, &ended), 0);
        CHECK_EQ(ended, 1u);
        CHECK_EQ(world_lines_left(world, client.conn), 0u); /* not yet */
        CHECK_EQ(mr__blocks_add(world->service, &what, 60, str(""), by, &ended), 0);
        CHECK_EQ(ended, 0u); /* it is on its way out already */
    }
}

TEST(a_policy_may_block_the_player_whose_command_it_is_asked_about)
{
    open_pair();
    world_answer(w, MR_HOOK_CONNECT, MR_HOOK_NO_OPINION);
    w->inside = block_caller;
    say(&client, "connect", host.oid);
    CHECK(w->wires[client.conn].is_closed);
    CHECK_STR(LINE(host), ""); /* nobody was connected to him */
    world_close(w);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static bool is_blocked(const char *address)
{
    struct mr_addr a = world_addr(address);

    return mr__blocks_until(w->service, &a) != 0;
}

static bool plane_blocks(const char *address)
{
    struct mr_addr a = world_addr(address);
    struct mr_decision d;

    return mr_decide(w->mr, &a, 0, 1, w->now_ns, &d) == MR_VERDICT_BLOCKED;
}

TEST(a_list_ends_what_it_matches_and_replaces_the_one_before)
{
    unsigned ended = 0;

    open_pair();
    CHECK_EQ(set_list("bans", "10.0.0.2/32\n203.0.113.0/24\n2001:db8::/32\n", &ended), 0);
    CHECK_EQ(ended, 1u);
    CHECK_STR(LINE(client), "error session:blocked");
    CHECK(is_blocked("203.0.113.9:1") && plane_blocks("203.0.113.9:1"));
    CHECK(is_blocked("[2001:db8::1]:1") && plane_blocks("[2001:db8::1]:1"));
    CHECK_EQ(world_metric(w, "moonrelay_blocks"), 3.0);
    CHECK_EQ(set_list("bans", "198.51.100.0/24\n", &ended), 0);
    CHECK_EQ(ended, 0u);
    CHECK(!is_blocked("203.0.113.9:1") && !plane_blocks("203.0.113.9:1"));
    CHECK(is_blocked("198.51.100.1:1") && plane_blocks("198.51.100.1:1"));
    CHECK_EQ(set_list("bans", "", NULL), 0);
    CHECK(!is_blocked("198.51.100.1:1") && !plane_blocks("198.51.100.1:1"));
    CHECK_EQ(set_list("bans", NULL, NULL), 0);
    CHECK_EQ(world_metric(w, "moonrelay_blocks"), 0.0);
    world_close(w);
}

TEST(lists_of_policies_that_are_gone_are_forgotten)
{
    const struct str kept[] = {{"other", 5}, {"bans", 4}};

    w = world_open(NULL);
    set_list("bans", "10.0.0.0/24\n", NULL);
    set_list("region", "10.0.0.0/25\n10.1.0.0/16\n", NULL);
    mr__blocks_keep_lists(w->service, kept, 2);
    world_settle(w);
    CHECK(is_blocked("10.0.0.1:1") && plane_blocks("10.0.0.1:1"));
    CHECK(!is_blocked("10.1.0.1:1") && !plane_blocks("10.1.0.1:1"));
    mr__blocks_keep_lists(w->service, NULL, 0);
    world_settle(w);
    CHECK(!is_blocked("10.0.0.1:1") && !plane_blocks("10.0.0.1:1"));
    world_close(w);
}

TEST(without_memory_for_a_list_the_old_one_stays)
{
    int rc = -ENOMEM;

    w = world_open(NULL);
    struct cidr *nets = nets_of("10.1.0.0/16\n");
    set_list("bans", "10.0.0.0/24\n", NULL);
    for (long n = 0; rc == -ENOMEM && n < 20; n++) {
        mr__alloc_fail_after(n);
        rc = mr__blocks_set_list(w->service, str("bans"), nets, str(""), NULL);
        mr__alloc_fail_after(-1);
        CHECK_EQ(is_blocked("10.0.0.1:1"), rc != 0);
        CHECK_EQ(is_blocked("10.1.0.1:1"), rc == 0);
    }
    CHECK_EQ(rc, 0);
    mr__cidr_unref(nets);
    world_settle(w);
    CHECK(plane_blocks("10.1.0.1:1"));
    world_close(w);
}

/* ---- ends, bounds, failures ------------------------------------------------------------------ */

TEST(a_block_ends_at_its_time_by_itself)
{
    w = world_open(NULL);
    block("10.0.0.0/24", 5);
    CHECK_EQ(world_metric(w, "moonrelay_blocks"), 1.0);
    world_advance(w, 4999);
    CHECK(is_blocked("10.0.0.1:1") && plane_blocks("10.0.0.1:1"));
    CHECK_LE(mr__service_deadline(w->service), w->now_ns + 1000000);
    world_advance(w, 1);
    CHECK(!is_blocked("10.0.0.1:1") && !plane_blocks("10.0.0.1:1"));
    CHECK_EQ(world_metric(w, "moonrelay_blocks"), 0.0);
    world_close(w);
}

TEST(one_that_is_there_already_gets_the_later_end)
{
    w = world_open(NULL);
    block("10.0.0.1", 5);
    block("10.0.0.1/32", 10); /* the same thing */
    block("10.0.0.1", 1);
    CHECK_EQ(world_metric(w, "moonrelay_blocks"), 1.0);
    world_advance(w, 9999);
    CHECK(is_blocked("10.0.0.1:1"));
    world_advance(w, 1);
    CHECK(!is_blocked("10.0.0.1:1"));
    world_close(w);
}

static bool is_seen_for_ever(void *user, const struct block_view *b)
{
    *(bool *)user = isinf(b->seconds_left);
    return true;
}

TEST(a_block_may_be_for_ever)
{
    bool is_for_ever = false;

    w = world_open(NULL);
    block("10.0.0.1", 1e300);
    mr__blocks_each(w->service, is_seen_for_ever, &is_for_ever);
    CHECK(is_for_ever);
    block("10.0.0.1", 60); /* the later end counts */
    is_for_ever = false;
    mr__blocks_each(w->service, is_seen_for_ever, &is_for_ever);
    CHECK(is_for_ever);
    w->now_ns += 1000000000ull * 86400 * 365 * 100;
    world_settle(w);
    CHECK(is_blocked("10.0.0.1:1"));
    CHECK_EQ(unblock("10.0.0.1"), 1u);
    CHECK_EQ(unblock("10.0.0.1"), 0u);
    CHECK(!is_blocked("10.0.0.1:1"));
    world_close(w);
}

TEST(what_is_no_block_is_refused)
{
    w = world_open(NULL);
    struct block_what what = what_of("10.0.0.1");
    CHECK_EQ(mr__blocks_add(w->service, &what, 0, str(""), by, NULL), -EINVAL);
    CHECK_EQ(mr__blocks_add(w->service, &what, -1, str(""), by, NULL), -EINVAL);
    CHECK_EQ(mr__blocks_add(w->service, &what, 0.0 / 0.0, str(""), by, NULL), -EINVAL);
    what.bits = 33;
    CHECK_EQ(mr__blocks_add(w->service, &what, 1, str(""), by, NULL), -EINVAL);
    what = (struct block_what){.kind = MR_BLOCK_TAGS};
    CHECK_EQ(mr__blocks_add(w->service, &what, 1, str(""), by, NULL), -EINVAL);
    CHECK_EQ(mr__blocks_remove(w->service, &what), 0u);
    world_close(w);
}

TEST(there_are_no_more_blocks_than_there_may_be_until_some_end)
{
    w = world_open(NULL);
    struct block_what what = what_of("10.0.0.0:1");
    for (int i = 0; i < MR_BLOCKS_MAX; i++) {
        what.addr.ip[1] = (uint8_t)(i >> 16);
        what.addr.ip[2] = (uint8_t)(i >> 8);
        what.addr.ip[3] = (uint8_t)i;
        if (mr__blocks_add(w->service, &what, 10, str(""), by, NULL) != 0) {
            FAIL("%d", i);
        }
    }
    what.addr.port = 2;
    CHECK_EQ(mr__blocks_add(w->service, &what, 10, str(""), by, NULL), -ENOSPC);
    what.addr.port = 1;
    CHECK_EQ(mr__blocks_add(w->service, &what, 20, str(""), by, NULL), 0);
    world_advance(w, 10000);
    CHECK_EQ(world_metric(w, "moonrelay_blocks"), 1.0);
    world_close(w);
}

static uint64_t blocked_commands(uint64_t before)
{
    return mr_seq(w->mr) - before;
}

TEST(the_data_plane_gets_one_copy_a_turn_however_many_blocks_were_made_in_it)
{
    w = world_open(NULL);
    world_settle(w);
    uint64_t before = mr_seq(w->mr);
    for (int i = 0; i < 100; i++) {
        struct block_what what = what_of("10.0.0.1");
        what.addr.ip[3] = (uint8_t)i;
        CHECK_EQ(mr__blocks_add(w->service, &what, 10, str(""), by, NULL), 0);
    }
    mr__service_tick(w->service, w->now_ns);
    CHECK_EQ(blocked_commands(before), 1u);
    CHECK(plane_blocks("10.0.0.99:1") && !plane_blocks("10.0.0.100:1"));
    world_close(w);
}

TEST(a_large_copy_is_made_every_50_ms_at_most_and_knocks_are_refused_meanwhile)
{
    static char text[20000 * 20];
    char *end = text;

    w = world_open(NULL);
    for (int i = 0; i < 20000; i++) {
        end += sprintf(end, "20.%d.%d.0/25\n", i / 250, i % 250);
    }
    set_list("bans", text, NULL);
    CHECK(plane_blocks("20.0.1.1:1") && !plane_blocks("20.0.1.128:1"));
    uint64_t before = mr_seq(w->mr);
    struct block_what what = what_of("10.0.0.1");
    CHECK_EQ(mr__blocks_add(w->service, &what, 60, str(""), by, NULL), 0);
    mr__service_tick(w->service, w->now_ns);
    CHECK_EQ(blocked_commands(before), 0u);
    CHECK(is_blocked("10.0.0.1:1") && !plane_blocks("10.0.0.1:1"));
    CHECK_LE(mr__service_deadline(w->service), w->now_ns + 50000000);
    world_advance(w, 50);
    CHECK(plane_blocks("10.0.0.1:1"));
    world_close(w);
}

TEST(a_copy_that_finds_no_memory_is_tried_again)
{
    w = world_open(NULL);
    struct block_what what = what_of("10.0.0.1");
    CHECK_EQ(mr__blocks_add(w->service, &what, 60, str(""), by, NULL), 0);
    for (long n = 0; n < 12 && !plane_blocks("10.0.0.1:1"); n++) {
        w->now_ns += 50000000;
        mr__alloc_fail_after(n);
        mr__service_tick(w->service, w->now_ns);
        mr__alloc_fail_after(-1);
    }
    CHECK(plane_blocks("10.0.0.1:1"));
    world_close(w);
}

TEST(each_failed_allocation_is_an_error_of_that_block)
{
    static const char *const texts[] = {"10.0.0.1", "10.0.0.1:1", "user=alice,team=red"};

    for (size_t i = 0; i < 3; i++) {
        int rc = -ENOMEM;
        w = world_open(NULL);
        struct block_what what = what_of(texts[i]);
        for (long n = 0; rc == -ENOMEM && n < 30; n++) {
            mr__alloc_fail_after(n);
            rc = mr__blocks_add(w->service, &what, 60, str(""), by, NULL);
            mr__alloc_fail_after(-1);
            CHECK_EQ(mr__blocks_count(w->service), rc == 0);
        }
        CHECK_EQ(rc, 0);
        world_close(w);
    }
}

/* ---- looking, texts -------------------------------------------------------------------------- */

static bool collect(void *user, const struct block_view *b)
{
    char text[MR_BLOCK_TEXT_MAX] = "list";
    char *to = user;

    if (!b->is_list) {
        mr__block_format(&b->what, text, sizeof text);
    }
    sprintf(to + strlen(to), "%s %zu %.*s %.*s %.1f\n", text, b->nets, (int)b->reason.n,
            b->reason.s, (int)b->by.n, b->by.s, b->seconds_left);
    return strlen(to) < 200;
}

TEST(all_are_seen_those_by_hand_first)
{
    char text[512] = "";

    w = world_open(NULL);
    give_tags(MR_HOOK_REGISTER, &alice);
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    set_list("region", "10.7.0.0/16\n10.8.0.0/16\n", NULL);
    block("user=alice", 60); /* her socket is not listed */
    block("[2001:db8::1]:5", 30);
    block("2001:db8::/32", 30);
    world_advance(w, 10000);
    mr__blocks_each(w->service, collect, text);
    CHECK_STR(text, "user=alice 0 cheating bans 50.0\n[2001:db8::1]:5 0 cheating bans 20.0\n"
                    "2001:db8::/32 0 cheating bans 20.0\nlist 2 list region 0.0\n");
    world_close(w);
}

static void check_text(const char *text, const char *back)
{
    struct block_what what = what_of(text);
    char again[MR_BLOCK_TEXT_MAX];

    CHECK_EQ(mr__block_format(&what, again, sizeof again), strlen(back));
    CHECK_STR(again, back);
    CHECK_EQ(mr__block_format(&what, again, 4), strlen(back) < 3 ? strlen(back) : 3);
    CHECK_EQ(strlen(again), strlen(back) < 3 ? strlen(back) : 3);
}

static void check_no_text(const char *text, const char *message)
{
    struct hook_pair pairs[MR_TAGS_MAX];
    char why[MR_CIDR_WHY_MAX] = "";
    struct block_what what;

    CHECK(!mr__block_parse(&what, text, strlen(text), pairs, why));
    CHECK_STR(why, message);
}

TEST(what_is_blocked_is_read_and_written_as_people_write_it)
{
    check_text("1.2.3.4", "1.2.3.4");
    check_text("10.0.0.0/8", "10.0.0.0/8");
    check_text("1.2.3.4:5", "1.2.3.4:5");
    check_text("2001:db8::1", "2001:db8::1");
    check_text("2001:DB8::/32", "2001:db8::/32");
    check_text("[::1]:5", "[::1]:5");
    check_text("[::ffff:1.2.3.4]:5", "1.2.3.4:5");
    check_text("user=alice", "user=alice");
    check_text("user=,team=a=b", "user=,team=a=b");
    check_no_text("", "not an address, network, address:port or key=value: ");
    check_no_text("alice", "not an address, network, address:port or key=value: alice");
    check_no_text("1.2.3.4:0", "not an address, network, address:port or key=value: 1.2.3.4:0");
    check_no_text("1.2.3.4/8", "not a network (bits are set behind its prefix): 1.2.3.4/8");
    check_no_text("=x", "not a tag (key=value): =x");
    check_no_text("a=1,", "not a tag (key=value): ");
    check_no_text("a=1,a=2", "a tag is named twice: a=2");
    check_no_text("abcdefghijklmnopqrstuvwxyz0123456=x",
                  "not a tag (key=value): abcdefghijklmnopqrstuvwxyz0123456=x");
}

/* ---- against an array ------------------------------------------------------------------------ */

enum { THINGS = 40, PLACES = 24 };

static struct thing {
    char text[64];
    uint64_t end_ns; /* 0: not blocked */
} things[THINGS];
static unsigned listed; /* bits of the places that a list has */

/* Nets nested in each other, sockets in them, and pairs of tags. */
static void name_things(void)
{
    for (unsigned i = 0; i < THINGS; i++) {
        struct thing *t = &things[i];
        t->end_ns = 0;
        if (i < 16) {
            snprintf(t->text, sizeof t->text, "10.0.0.%u/%u", i < 8 ? i * 2 : (i - 8) * 8,
                     i < 8 ? 31 : 29);
        } else if (i < 28) {
            snprintf(t->text, sizeof t->text, "10.0.0.%u:%u", i - 16, 7000 + i % 2);
        } else {
            snprintf(t->text, sizeof t->text, "a=%u,b=%u", i % 3, i % 4);
        }
    }
}

static bool is_in(const struct thing *t, unsigned place, unsigned port)
{
    unsigned d, n;

    if (sscanf(t->text, "10.0.0.%u/%u", &d, &n) == 2) {
        return place >> (32 - n) == d >> (32 - n);
    }
    return sscanf(t->text, "10.0.0.%u:%u", &d, &n) == 2 && d == place && n == port;
}

static bool reference_address(unsigned place, unsigned port, bool with_sockets)
{
    for (unsigned i = 0; i < (with_sockets ? 28u : 16u); i++) {
        if (things[i].end_ns > w->now_ns && is_in(&things[i], place, port)) {
            return true;
        }
    }
    return (listed >> place & 1) != 0;
}

static bool reference_tags(unsigned a, unsigned b)
{
    char text[64];

    snprintf(text, sizeof text, "a=%u,b=%u", a, b);
    for (unsigned i = 28; i < THINGS; i++) {
        if (things[i].end_ns > w->now_ns && strcmp(things[i].text, text) == 0) {
            return true;
        }
    }
    return false;
}

static void check_place(unsigned place, unsigned port)
{
    char text[64];

    snprintf(text, sizeof text, "10.0.0.%u:%u", place, port);
    struct mr_addr a = world_addr(text);
    if (is_blocked(text) != reference_address(place, port, true) ||
        plane_blocks(text) != reference_address(place, port, false) ||
        mr__blocks_have_net(w->service, &a) != reference_address(place, port, false)) {
        FAIL("%s", text);
    }
}

static void check_tags(unsigned a, unsigned b)
{
    char x[2] = {(char)('0' + a), 0}, y[2] = {(char)('0' + b), 0};
    const struct hook_pair tags[] = {{{"z", 1}, {"9", 1}}, {{"b", 1}, {y, 1}}, {{"a", 1}, {x, 1}}};

    REQUIRE_EQ(mr__blocks_have_tags(w->service, (struct hook_map){tags, 3}), reference_tags(a, b));
}

static void replace_list(void)
{
    char text[PLACES * 20] = "";

    listed = (unsigned)(test_random() & test_random()) & ((1u << PLACES) - 1);
    for (unsigned i = 0; i < PLACES; i++) {
        if (listed >> i & 1) {
            sprintf(text + strlen(text), "10.0.0.%u\n", i);
        }
    }
    CHECK_EQ(set_list("bans", text, NULL), 0);
}

/* Two things may have one name (tags): they are one then. */
static void set_end(const struct thing *named, uint64_t end_ns)
{
    for (unsigned i = 0; i < THINGS; i++) {
        if (strcmp(things[i].text, named->text) == 0) {
            things[i].end_ns = end_ns;
        }
    }
}

TEST(random_blocks_agree_with_an_array)
{
    w = world_open(NULL);
    name_things();
    for (int step = 0; step < 3000; step++) {
        struct thing *t = &things[test_random_below(THINGS)];
        unsigned seconds = 1 + (unsigned)test_random_below(20);
        bool is_there = t->end_ns > w->now_ns;

        switch (test_random_below(6)) {
        case 0:
        case 1:
            block(t->text, seconds);
            uint64_t end_ns = w->now_ns + seconds * 1000000000ull;
            set_end(t, is_there && t->end_ns > end_ns ? t->end_ns : end_ns);
            break;
        case 2:
            REQUIRE_EQ(unblock(t->text), is_there);
            set_end(t, 0);
            break;
        case 3:
            world_advance(w, test_random_below(2000));
            break;
        case 4:
            if (test_random_below(4) == 0) {
                replace_list();
            }
            break;
        default:
            check_tags((unsigned)test_random_below(3), (unsigned)test_random_below(4));
        }
        check_place((unsigned)test_random_below(PLACES), 7000 + (unsigned)test_random_below(3));
    }
    world_close(w);
    listed = 0;
}

TEST_MAIN(TEST_CASE(a_connection_from_a_blocked_net_gets_one_line_and_is_closed),
          TEST_CASE(the_registrar_is_silent_to_a_blocked_net),
          TEST_CASE(the_registrar_is_silent_to_a_blocked_socket_and_to_no_other),
          TEST_CASE(nobody_moves_to_a_blocked_address),
          TEST_CASE(a_blocked_net_registers_nobody_and_no_policy_is_asked),
          TEST_CASE(a_net_that_is_blocked_while_a_policy_thinks_registers_nobody),
          TEST_CASE(blocked_tags_register_nobody),
          TEST_CASE(tags_are_blocked_only_where_all_of_them_are),
          TEST_CASE(a_blocked_net_joins_nobody),
          TEST_CASE(no_relay_is_made_that_would_carry_blocked_tags),
          TEST_CASE(the_data_plane_drops_strangers_from_a_blocked_net),
          TEST_CASE(a_knock_from_a_blocked_socket_asks_nobody_and_is_quiet_until_the_end),
          TEST_CASE(a_block_that_is_taken_back_is_felt_for_ten_seconds_at_most),
          TEST_CASE(a_stranger_who_is_blocked_while_a_policy_thinks_gets_no_relay),
          TEST_CASE(a_stranger_gets_no_relay_that_would_carry_blocked_tags),
          TEST_CASE(players_of_a_net_end_with_a_line_their_relays_and_their_connections),
          TEST_CASE(a_player_ends_by_his_udp_address_too),
          TEST_CASE(relays_of_strangers_end_as_well), TEST_CASE(relays_end_by_their_own_tags),
          TEST_CASE(what_the_socket_of_blocked_tags_keeps_sending_gets_no_relay_until_the_end),
          TEST_CASE(a_neighbour_on_the_same_address_plays_on),
          TEST_CASE(a_player_who_shares_the_socket_keeps_it),
          TEST_CASE(unblocking_tags_frees_the_sockets_that_were_refused_for_their_sake),
          TEST_CASE(a_longer_block_of_tags_is_one_of_their_sockets_too),
          TEST_CASE(a_policy_may_block_the_player_whose_command_it_is_asked_about),
          TEST_CASE(a_list_ends_what_it_matches_and_replaces_the_one_before),
          TEST_CASE(lists_of_policies_that_are_gone_are_forgotten),
          TEST_CASE(without_memory_for_a_list_the_old_one_stays),
          TEST_CASE(a_block_ends_at_its_time_by_itself),
          TEST_CASE(one_that_is_there_already_gets_the_later_end),
          TEST_CASE(a_block_may_be_for_ever), TEST_CASE(what_is_no_block_is_refused),
          TEST_CASE(there_are_no_more_blocks_than_there_may_be_until_some_end),
          TEST_CASE(the_data_plane_gets_one_copy_a_turn_however_many_blocks_were_made_in_it),
          TEST_CASE(a_large_copy_is_made_every_50_ms_at_most_and_knocks_are_refused_meanwhile),
          TEST_CASE(a_copy_that_finds_no_memory_is_tried_again),
          TEST_CASE(each_failed_allocation_is_an_error_of_that_block),
          TEST_CASE(all_are_seen_those_by_hand_first),
          TEST_CASE(what_is_blocked_is_read_and_written_as_people_write_it),
          TEST_CASE(random_blocks_agree_with_an_array))
