/* SPDX-License-Identifier: MIT */
/*
 * A peer whose NAT gives it another port for each of ours: one leg of its pair is latched to where
 * it was seen. Over real sockets, by one thread and by two workers; what needs no socket over
 * no-op ones. Start reading at struct game.
 */
#include "rig.h"
#include "test.h"

#include "engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { HOST, CLIENT };

/* A host at port 0, a client at port 1, each with a second socket that nobody registered. */
struct game {
    struct rig rig;
    mr_relay_id host, client;
    struct peer host_peer, client_peer, host_nat, client_nat, stranger;
};

static struct game *game_open(struct mr_options o)
{
    struct game *g = calloc(1, sizeof *g);

    rig_open(&g->rig, &o, 4);
    g->host_peer = rig_peer();
    g->client_peer = rig_peer();
    g->host_nat = rig_peer();
    g->client_nat = rig_peer();
    g->stranger = rig_peer();
    g->host = rig_relay(&g->rig, HOST, &g->host_peer.addr);
    g->client = rig_relay(&g->rig, CLIENT, &g->client_peer.addr);
    CHECK_EQ(mr_pair(g->rig.mr, g->host, g->client), 0);
    CHECK_EQ(mr_pair_watch(g->rig.mr, g->host, g->client), 0);
    CHECK_EQ(mr_pair_watch(g->rig.mr, g->client, g->host), 0);
    mr_set_miss_events(g->rig.mr, 1);
    rig_settle(&g->rig);
    rig_forget(&g->rig);
    return g;
}

static void game_close(struct game *g)
{
    rig_check_conservation(&g->rig);
    rig_peer_close(&g->host_peer);
    rig_peer_close(&g->client_peer);
    rig_peer_close(&g->host_nat);
    rig_peer_close(&g->client_nat);
    rig_peer_close(&g->stranger);
    rig_close(&g->rig);
    free(g);
}

/* What one sends to a port arrives at the other, from the sender's own port. */
static void check_passes(struct game *g, const struct peer *from, uint32_t port,
                         const struct peer *to, uint32_t egress, const char *text)
{
    uint16_t seen_port = 0;
    char buf[32];
    int n;

    rig_send(&g->rig, from, port, text, strlen(text));
    n = rig_receive(&g->rig, to, buf, sizeof buf, &seen_port);
    REQUIRE_EQ(n, (int)strlen(text));
    CHECK_MEM(buf, (size_t)n, text, strlen(text));
    CHECK_EQ(seen_port, rig_udp_port(&g->rig, egress));
}

static int latch_host(struct game *g)
{
    return mr_pair_latch(g->rig.mr, g->host, g->client, &g->host_nat.addr);
}

static int latch_client(struct game *g)
{
    return mr_pair_latch(g->rig.mr, g->client, g->host, &g->client_nat.addr);
}

static void latch_what_is_held(struct game *g)
{
    uint16_t from = 0;
    char buf[32];

    rig_send(&g->rig, &g->host_nat, CLIENT, "held", 4);
    REQUIRE(rig_await(&g->rig, MR_EVENT_MISS, 1));
    REQUIRE_EQ(latch_host(g), 0);
    CHECK_EQ(rig_receive(&g->rig, &g->client_peer, buf, sizeof buf, &from), 4);
    CHECK_EQ(from, rig_udp_port(&g->rig, HOST));
}

static void latched_host(int workers)
{
    struct game *g = game_open(rig_options(workers));
    struct mr_addr seen = {0};
    char buf[32];

    latch_what_is_held(g);
    check_passes(g, &g->host_nat, CLIENT, &g->client_peer, HOST, "from the host");
    check_passes(g, &g->client_peer, HOST, &g->host_nat, CLIENT, "to the host");
    CHECK_EQ(rig_try_receive(&g->host_peer, buf, sizeof buf), -1);
    CHECK_EQ(mr_pair_latched(g->rig.mr, g->host, g->client, &seen), 1);
    CHECK(mr_addr_equal(&seen, &g->host_nat.addr));
    CHECK_EQ(mr_pair_latched(g->rig.mr, g->client, g->host, &seen), 0);
    CHECK_EQ(rig_stats(&g->rig).latches, 1u);
    game_close(g);
}

TEST(a_latched_source_speaks_as_its_relay_and_is_sent_what_is_for_it)
{
    latched_host(0);
}

TEST(a_latch_is_the_same_when_workers_forward)
{
    latched_host(2);
}

TEST(what_a_latched_source_sends_is_charged_to_its_relay)
{
    struct game *g = game_open(rig_options(0));
    struct mr_relay_info info;

    REQUIRE_EQ(latch_host(g), 0);
    check_passes(g, &g->host_nat, CLIENT, &g->client_peer, HOST, "twelve bytes");
    REQUIRE_EQ(mr_relay_info(g->rig.mr, g->host, &info), 0);
    CHECK_EQ(info.counts.packets_in, 1u);
    CHECK_EQ(info.counts.bytes_in, 12u);
    CHECK(mr_addr_equal(&info.peer, &g->host_peer.addr));
    game_close(g);
}

TEST(two_latches_of_a_pair_point_at_each_other)
{
    struct game *g = game_open(rig_options(2));

    REQUIRE_EQ(latch_host(g), 0);
    REQUIRE_EQ(latch_client(g), 0);
    rig_settle(&g->rig);
    check_passes(g, &g->host_nat, CLIENT, &g->client_nat, HOST, "down");
    check_passes(g, &g->client_nat, HOST, &g->host_nat, CLIENT, "up");
    game_close(g);
}

static void spoken(int workers)
{
    struct game *g = game_open(rig_options(workers));
    struct mr_addr seen;

    REQUIRE_EQ(latch_host(g), 0);
    rig_settle(&g->rig);
    check_passes(g, &g->host_nat, CLIENT, &g->client_peer, HOST, "latched");
    check_passes(g, &g->host_peer, CLIENT, &g->client_peer, HOST, "it is me");
    rig_settle(&g->rig);
    CHECK_EQ(mr_pair_latched(g->rig.mr, g->host, g->client, &seen), 0);
    check_passes(g, &g->client_peer, HOST, &g->host_peer, CLIENT, "welcome back");
    rig_send(&g->rig, &g->host_nat, CLIENT, "x", 1);
    CHECK(rig_await(&g->rig, MR_EVENT_MISS, 1));
    CHECK_EQ(latch_host(g), -EBUSY);
    game_close(g);
}

TEST(a_peer_that_speaks_itself_is_forwarded_at_once_and_undoes_its_latch)
{
    spoken(0);
}

TEST(a_peer_that_speaks_itself_undoes_its_latch_when_workers_forward)
{
    spoken(2);
}

/* The knock is told after what came before it at that port. */
TEST(a_leg_whose_peer_has_spoken_is_never_latched_and_its_partner_may_be)
{
    struct game *g = game_open(rig_options(2));
    char buf[32];

    rig_send(&g->rig, &g->host_peer, CLIENT, "first", 5);
    rig_send(&g->rig, &g->host_nat, CLIENT, "second", 6);
    REQUIRE(rig_await(&g->rig, MR_EVENT_MISS, 1));
    CHECK_EQ(latch_host(g), -EBUSY);
    CHECK_EQ(mr_pair_watch(g->rig.mr, g->host, g->client), 0); /* changes nothing */
    CHECK_EQ(mr_pair_is_fresh(g->rig.mr, g->host, g->client), 0);
    CHECK_EQ(mr_pair_is_fresh(g->rig.mr, g->client, g->host), 1);
    CHECK_EQ(latch_host(g), -EBUSY);
    CHECK_EQ(latch_client(g), 0);
    CHECK_EQ(latch_client(g), -EBUSY);
    CHECK_EQ(rig_receive(&g->rig, &g->client_peer, buf, sizeof buf, NULL), 5);
    game_close(g);
}

TEST(a_pair_that_nobody_watches_is_never_latched)
{
    struct game *g = game_open(rig_options(0));
    mr_relay_id other = rig_relay(&g->rig, 2, &g->stranger.addr);

    CHECK_EQ(mr_pair_latch(g->rig.mr, other, g->client, &g->host_nat.addr), -ENOENT);
    CHECK_EQ(mr_pair_watch(g->rig.mr, other, g->client), -ENOENT);
    REQUIRE_EQ(mr_pair(g->rig.mr, other, g->client), 0);
    CHECK_EQ(mr_pair_latch(g->rig.mr, other, g->client, &g->host_nat.addr), -EBUSY);
    game_close(g);
}

TEST(a_move_undoes_the_latches_of_who_moved_and_not_his_partners)
{
    struct game *g = game_open(rig_options(0));
    struct mr_addr seen;

    REQUIRE_EQ(latch_host(g), 0);
    REQUIRE_EQ(latch_client(g), 0);
    REQUIRE_EQ(mr_relay_move(g->rig.mr, g->host, &g->host_peer.addr, NULL), 0);
    CHECK_EQ(mr_pair_latched(g->rig.mr, g->host, g->client, &seen), 1);
    REQUIRE_EQ(mr_relay_move(g->rig.mr, g->host, &g->stranger.addr, NULL), 0);
    CHECK_EQ(mr_pair_latched(g->rig.mr, g->host, g->client, &seen), 0);
    check_passes(g, &g->client_nat, HOST, &g->stranger, CLIENT, "where you are now");
    check_passes(g, &g->stranger, CLIENT, &g->client_nat, HOST, "where you were seen");
    game_close(g);
}

/* A range that is used again: what the first game's host sends reaches nobody. */
TEST(a_latch_ends_with_its_relays)
{
    struct game *g = game_open(rig_options(0));
    struct mr_addr seen;

    REQUIRE_EQ(latch_host(g), 0);
    CHECK_EQ(mr_relay_close(g->rig.mr, g->client), 0);
    CHECK_EQ(rig_stats(&g->rig).latches, 0u);
    CHECK_EQ(mr_pair_latched(g->rig.mr, g->host, g->client, &seen), -ENOENT);
    REQUIRE(rig_await(&g->rig, MR_EVENT_ENDED, 1));
    g->client = rig_relay(&g->rig, CLIENT, &g->stranger.addr);
    REQUIRE_EQ(mr_pair(g->rig.mr, g->host, g->client), 0);
    rig_settle(&g->rig);
    rig_send(&g->rig, &g->host_nat, CLIENT, "stale", 5);
    CHECK(rig_await(&g->rig, MR_EVENT_MISS, 1));
    check_passes(g, &g->stranger, HOST, &g->host_peer, CLIENT, "new game");
    game_close(g);
}

TEST(an_address_that_somebody_registers_is_nobodys_latch_any_more)
{
    struct game *g = game_open(rig_options(0));
    struct mr_addr seen;

    REQUIRE_EQ(latch_host(g), 0);
    REQUIRE_EQ(latch_client(g), 0);
    CHECK_EQ(mr_address_unlatch(g->rig.mr, &g->stranger.addr), 0);
    CHECK_EQ(mr_address_unlatch(g->rig.mr, &g->host_nat.addr), 1);
    CHECK_EQ(mr_pair_latched(g->rig.mr, g->host, g->client, &seen), 0);
    CHECK_EQ(mr_pair_latched(g->rig.mr, g->client, g->host, &seen), 1);
    CHECK_EQ(mr_pair_unlatch(g->rig.mr, g->client, g->host), 0);
    CHECK_EQ(mr_pair_unlatch(g->rig.mr, g->client, g->host), -ENOENT);
    check_passes(g, &g->client_peer, HOST, &g->host_peer, CLIENT, "as registered");
    game_close(g);
}

TEST(an_address_that_no_relay_may_have_is_no_latch_either)
{
    static const struct {
        const char *text;
        int rc;
    } rows[] = {{"224.0.0.1:5", -EDESTADDRREQ},
                {"0.0.0.0:5", -EDESTADDRREQ},
                {"[2001:db8::1]:5", -EAFNOSUPPORT}};
    struct game *g = game_open(rig_options(0));
    struct mr_addr own = rig_addr("127.0.0.1:1"), none = {0};

    own.port = rig_udp_port(&g->rig, 3);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mr_addr a = rig_addr(rows[i].text);

        CHECK_EQ(mr_pair_latch(g->rig.mr, g->host, g->client, &a), rows[i].rc);
    }
    CHECK_EQ(mr_pair_latch(g->rig.mr, g->host, g->client, &none), -EINVAL);
    CHECK_EQ(mr_pair_latch(g->rig.mr, g->host, g->client, &own), -EADDRNOTAVAIL);
    CHECK_EQ(mr_pair_latch(g->rig.mr, g->host, g->client, &g->client_peer.addr), -EADDRINUSE);
    CHECK_EQ(mr_pair_latch(g->rig.mr, g->host, g->host, &g->host_nat.addr), -ENOENT);
    CHECK_EQ(mr_pair_latch(g->rig.mr, 4711, g->client, &g->host_nat.addr), -ENOENT);
    REQUIRE_EQ(mr_link_add(g->rig.mr, CLIENT, &g->host_nat.addr, 2, &g->stranger.addr, g->client),
               0);
    CHECK_EQ(latch_host(g), -EEXIST);
    game_close(g);
}

/* Otherwise a flood of strangers could hide that a peer has spoken. */
/* A link by hand says where the client's datagrams go, so the latch changes nothing for them. */
TEST(a_latch_that_has_nothing_to_wait_for_is_open_at_once)
{
    struct game *g = game_open(rig_options(0));

    REQUIRE_EQ(mr_link_add(g->rig.mr, HOST, &g->client_peer.addr, 2, &g->stranger.addr, g->client),
               0);
    rig_settle(&g->rig);
    REQUIRE_EQ(latch_host(g), 0);
    CHECK_EQ(mr_is_linked(g->rig.mr, CLIENT, &g->host_nat.addr), 1);
    game_close(g);
}

TEST(first_words_that_find_no_room_to_be_told_pass_and_are_told_by_the_next_ones)
{
    struct game *g = game_open(rig_virtual_options());
    struct worker *w = &g->rig.mr->workers[0];
    struct worker_event *e;

    while ((e = mr__ring_reserve(&w->events)) != NULL) {
        *e = (struct worker_event){.type = WORKER_LIMIT};
        mr__ring_commit(&w->events);
    }
    REQUIRE_EQ(mr_inject(g->rig.mr, CLIENT, &g->host_peer.addr, "one", 3), 0);
    rig_settle(&g->rig);
    CHECK_EQ(rig_stats(&g->rig).sent, 1u);
    CHECK(mr__plane_is_fresh(&w->plane, CLIENT, &g->host_peer.addr));
    REQUIRE_EQ(mr_inject(g->rig.mr, CLIENT, &g->host_peer.addr, "two", 3), 0);
    rig_settle(&g->rig);
    CHECK_EQ(rig_stats(&g->rig).sent, 2u);
    CHECK(!mr__plane_is_fresh(&w->plane, CLIENT, &g->host_peer.addr));
    CHECK_EQ(latch_host(g), -EBUSY);
    game_close(g);
}

TEST(first_words_that_come_in_one_batch_all_pass_in_order_and_are_told_once)
{
    struct game *g = game_open(rig_options(0));
    char buf[8];

    for (char c = 'a'; c <= 'z'; c++)
        rig_send(&g->rig, &g->host_peer, CLIENT, &c, 1);
    for (char c = 'a'; c <= 'z'; c++) {
        REQUIRE_EQ(rig_receive(&g->rig, &g->client_peer, buf, sizeof buf, NULL), 1);
        CHECK_EQ(buf[0], c);
    }
    CHECK_EQ(rig_stats(&g->rig).received, 26u);
    CHECK_EQ(latch_host(g), -EBUSY);
    game_close(g);
}

TEST(with_open_pairing_a_latch_is_made_and_undone_as_well)
{
    struct mr_options o = rig_options(0);
    struct game *g;
    struct mr_addr seen;

    o.pairing = MR_PAIRING_OPEN;
    g = game_open(o);
    latch_what_is_held(g);
    check_passes(g, &g->client_peer, HOST, &g->host_nat, CLIENT, "to the host");
    check_passes(g, &g->host_peer, CLIENT, &g->client_peer, HOST, "it is me");
    rig_settle(&g->rig);
    CHECK_EQ(mr_pair_latched(g->rig.mr, g->host, g->client, &seen), 0);
    game_close(g);
}

TEST(a_decision_without_sockets_uses_a_fresh_link_like_a_datagram)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_decision d;

    CHECK_EQ(mr_decide(g->rig.mr, &g->host_peer.addr, CLIENT, 10, 1, &d), MR_VERDICT_FORWARD);
    CHECK_EQ(d.egress, (uint32_t)HOST);
    CHECK_EQ(d.sender, g->host);
    CHECK_EQ(latch_host(g), -EBUSY);
    game_close(g);
}

TEST_MAIN(TEST_CASE(a_latched_source_speaks_as_its_relay_and_is_sent_what_is_for_it),
          TEST_CASE(a_latch_is_the_same_when_workers_forward),
          TEST_CASE(what_a_latched_source_sends_is_charged_to_its_relay),
          TEST_CASE(two_latches_of_a_pair_point_at_each_other),
          TEST_CASE(a_peer_that_speaks_itself_is_forwarded_at_once_and_undoes_its_latch),
          TEST_CASE(a_peer_that_speaks_itself_undoes_its_latch_when_workers_forward),
          TEST_CASE(a_leg_whose_peer_has_spoken_is_never_latched_and_its_partner_may_be),
          TEST_CASE(a_pair_that_nobody_watches_is_never_latched),
          TEST_CASE(a_move_undoes_the_latches_of_who_moved_and_not_his_partners),
          TEST_CASE(a_latch_ends_with_its_relays),
          TEST_CASE(an_address_that_somebody_registers_is_nobodys_latch_any_more),
          TEST_CASE(an_address_that_no_relay_may_have_is_no_latch_either),
          TEST_CASE(a_latch_that_has_nothing_to_wait_for_is_open_at_once),
          TEST_CASE(first_words_that_find_no_room_to_be_told_pass_and_are_told_by_the_next_ones),
          TEST_CASE(first_words_that_come_in_one_batch_all_pass_in_order_and_are_told_once),
          TEST_CASE(with_open_pairing_a_latch_is_made_and_undone_as_well),
          TEST_CASE(a_decision_without_sockets_uses_a_fresh_link_like_a_datagram))
