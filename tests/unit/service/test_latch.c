/* SPDX-License-Identifier: MIT */
/*
 * A player behind a symmetric NAT is seen from a port that nobody registered: who is taken for him,
 * when, and what ends it. One thread. Start reading at open_pair().
 */
#include "test.h"
#include "world.h"

#include "service/blocks.h"
#include "service/players.h"

#include <stdio.h>
#include <string.h>

static struct world *w;
static struct player host, client;
static unsigned hosts, clients;

#define HOST_NAT   "10.0.0.1:7000"
#define CLIENT_NAT "10.0.0.2:7000"

static void open_pair(const char *const *settings)
{
    w = world_open(settings);
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    REQUIRE(world_relay(w, &client, &host, &hosts, &clients));
}

/* Where a datagram from there to that port goes: "address from port", or why it does not. A source
 * that has no way yet knocks before. */
static const char *way(const char *from, unsigned port)
{
    static char text[128];
    char to[MR_ADDR_TEXT_MAX];
    unsigned egress = 0;

    world_inject(w, from, port, 10);
    enum mr_verdict v = world_decide(w, from, port, to, &egress);
    if (v != MR_VERDICT_FORWARD) {
        return mr_verdict_name(v);
    }
    snprintf(text, sizeof text, "%s from %s", to,
             egress == hosts     ? "host's port"
             : egress == clients ? "client's port"
                                 : "another port");
    return text;
}

static double latches(void)
{
    return world_metric(w, "moonrelay_latches");
}

TEST(a_host_that_speaks_from_another_port_is_the_host_and_is_sent_what_is_for_him)
{
    open_pair(NULL);
    world_answer(w, MR_HOOK_DROP, MR_HOOK_REFUSE);
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    CHECK_STR(way("10.0.0.2:6000", hosts), "10.0.0.1:7000 from client's port");
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 0u);
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(latches(), 1.0);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_FORWARD), 4); /* what knocked has not been lost */
    world_close(w);
}

TEST(a_client_that_speaks_from_another_port_is_the_client_without_any_policy)
{
    open_pair(NULL);
    CHECK_STR(way(CLIENT_NAT, hosts), "10.0.0.1:6000 from client's port");
    CHECK_STR(way("10.0.0.1:6000", clients), "10.0.0.2:7000 from host's port");
    world_close(w);
}

TEST(two_that_speak_from_other_ports_reach_each_other)
{
    open_pair(NULL);
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    CHECK_STR(way(CLIENT_NAT, hosts), "10.0.0.1:7000 from client's port");
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:7000 from host's port");
    CHECK_EQ(latches(), 2.0);
    world_close(w);
}

TEST(the_first_source_is_taken_and_no_other)
{
    open_pair(NULL);
    world_answer(w, MR_HOOK_DROP, MR_HOOK_REFUSE);
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    for (unsigned port = 7001; port < 7100; port++) {
        char from[32];
        snprintf(from, sizeof from, "10.0.0.1:%u", port);
        CHECK_STR(way(from, clients), "unknown_sender");
    }
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 99u);
    CHECK_STR(way("10.0.0.2:6000", hosts), "10.0.0.1:7000 from client's port");
    world_close(w);
}

TEST(a_stranger_is_never_a_player_whose_pair_has_exchanged_datagrams)
{
    open_pair(NULL);
    CHECK_STR(way("10.0.0.1:6000", clients), "10.0.0.2:6000 from host's port");
    CHECK_STR(way("10.0.0.2:6000", hosts), "10.0.0.1:6000 from client's port");
    for (unsigned i = 0; i < 1000; i++) {
        char from[32];
        snprintf(from, sizeof from, "10.0.0.%u:%u", 1 + i % 3, 10000 + i);
        CHECK_STR(way(from, i % 2 ? hosts : clients), "unknown_sender");
    }
    CHECK_STR(way("10.0.0.1:6000", clients), "10.0.0.2:6000 from host's port");
    CHECK_STR(way("10.0.0.2:6000", hosts), "10.0.0.1:6000 from client's port");
    CHECK_EQ(latches(), 0.0);
    world_close(w);
}

TEST(a_player_is_recognized_within_the_window_and_not_after_it)
{
    open_pair(NULL);
    world_advance(w, 9900);
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    world_advance(w, 200);
    CHECK_STR(way(CLIENT_NAT, hosts), "unknown_sender");
    world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);
    world_advance(w, 1500);
    CHECK_STR(way(CLIENT_NAT, hosts), "10.0.0.1:6000 from another port"); /* as himself */
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");  /* it stays */
    world_close(w);
}

TEST(a_window_that_is_over_is_over_before_anybody_has_looked_at_the_clock)
{
    open_pair(NULL);
    w->now_ns += UINT64_C(10000000000);
    CHECK_STR(way(HOST_NAT, clients), "unknown_sender");
    world_close(w);
}

TEST(another_connect_relay_opens_another_window)
{
    open_pair(NULL);
    world_advance(w, 11000);
    CHECK_STR(way(HOST_NAT, clients), "unknown_sender");
    REQUIRE(world_relay(w, &client, &host, &hosts, &clients));
    world_advance(w, 1500);
    REQUIRE(world_relay(w, &client, &host, &hosts, &clients));
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    world_close(w);
}

TEST(without_a_window_nobody_is_recognized)
{
    open_pair((const char *[]){"latch_window=0", NULL});
    CHECK_STR(way(HOST_NAT, clients), "unknown_sender");
    world_close(w);
    open_pair(NULL);
    CHECK_EQ(world_reload(w, (const char *[]){"latch_window=0", NULL}, (char[256]){""}), 0);
    CHECK_STR(way(HOST_NAT, clients), "unknown_sender");
    world_close(w);
}

TEST(a_player_who_speaks_for_himself_undoes_his_latch_and_gets_no_other)
{
    open_pair(NULL);
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    CHECK_STR(way("10.0.0.1:6000", clients), "10.0.0.2:6000 from host's port");
    CHECK_STR(way("10.0.0.2:6000", hosts), "10.0.0.1:6000 from client's port");
    CHECK_STR(way(HOST_NAT, clients), "unknown_sender");
    REQUIRE(world_relay(w, &client, &host, &hosts, &clients));
    world_advance(w, 1500);
    CHECK_STR(way("10.0.0.1:7001", clients), "unknown_sender");
    world_close(w);
}

TEST(a_player_whom_the_registrar_moves_is_where_he_has_registered)
{
    open_pair(NULL);
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    CHECK_STR(way(CLIENT_NAT, hosts), "10.0.0.1:7000 from client's port");
    CHECK_STR(world_see(w, &host, "10.0.0.1:6001"), "OK");
    CHECK_STR(way(HOST_NAT, clients), "unknown_sender"); /* once a side */
    CHECK_STR(way(CLIENT_NAT, hosts), "10.0.0.1:6001 from client's port");
    CHECK_STR(way("10.0.0.1:6001", clients), "10.0.0.2:7000 from host's port");
    CHECK_STR(world_see(w, &client, CLIENT_NAT), "OK"); /* where he was seen */
    CHECK_STR(way(CLIENT_NAT, hosts), "10.0.0.1:6001 from client's port");
    CHECK_EQ(latches(), 0.0);
    world_close(w);
}

TEST(a_player_who_has_moved_is_recognized_from_his_new_ip_no_more_than_from_the_old_one)
{
    open_pair(NULL);
    CHECK_STR(world_see(w, &host, "10.9.9.9:6000"), "OK");
    CHECK_STR(way(HOST_NAT, clients), "unknown_sender");
    CHECK_STR(way("10.9.9.9:7000", clients), "unknown_sender");
    world_close(w);
}

TEST(an_address_that_another_player_registers_is_no_longer_a_latch)
{
    open_pair(NULL);
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    world_join(w, "10.0.0.1:5001", HOST_NAT);
    CHECK_STR(way("10.0.0.2:6000", hosts), "10.0.0.1:6000 from client's port");
    CHECK_STR(way(HOST_NAT, clients), "unknown_sender");
    world_close(w);
}

TEST(a_pid_shown_in_the_name_of_a_latched_source_undoes_no_latch)
{
    open_pair(NULL);
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    struct player forger = world_join(w, "10.0.0.66:5000", HOST_NAT);
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    CHECK_STR(world_see(w, &forger, "10.0.0.66:6000"), "OK");
    CHECK_STR(world_see(w, &forger, HOST_NAT), "OK");
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    CHECK_STR(way("10.0.0.2:6000", hosts), "10.0.0.1:7000 from client's port");
    world_close(w);
}

TEST(nobody_is_taken_for_a_player_who_has_a_name_of_his_own_or_is_not_let_in)
{
    open_pair(NULL);
    world_join(w, "10.0.0.1:5001", "10.0.0.1:7001"); /* registered, no relay */
    CHECK_STR(way("10.0.0.1:7001", clients), "unknown_sender");
    struct player third = world_join(w, "10.0.0.1:5002", "10.0.0.1:7002");
    struct player other = world_join(w, "10.0.0.3:5002", "10.0.0.3:7002");
    unsigned a, b;
    REQUIRE(world_relay(w, &third, &other, &a, &b));
    CHECK_STR(way("10.0.0.1:7002", clients), "not_paired");
    CHECK_STR(way("10.0.0.1:80", clients), "unknown_sender"); /* a victim's service */
    CHECK_STR(way("10.0.0.4:7000", clients), "unknown_sender");
    CHECK_STR(way("10.0.0.1:7003", b), "unknown_sender"); /* of another game */
    CHECK_EQ(latches(), 0.0);
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    world_close(w);
}

/* A latch is a way in as the registrar is one. */
TEST(a_source_that_no_player_may_have_is_not_recognized)
{
    char kept[256];

    open_pair(NULL);
    CHECK_STR(way("10.0.0.1:1023", clients), "unknown_sender"); /* a victim's service */
    CHECK_EQ(world_verdicts(w, MR_VERDICT_ADDRESS_CLASS), 1);
    /* A NAT that sends what is for one of our ports back to us: our port at the host's IP. */
    CHECK_EQ(world_reload(w, (const char *[]){"public_address=10.0.0.1", NULL}, kept), 0);
    char own[32];
    snprintf(own, sizeof own, "10.0.0.1:%u", hosts);
    CHECK_STR(way(own, clients), "own_address");
    /* Denied since he joined: what flows goes on, nobody enters. */
    CHECK_EQ(world_reload(w, (const char *[]){"deny_peers=10.0.0.1", NULL}, kept), 0);
    CHECK_STR(way("10.0.0.1:7001", clients), "unknown_sender");
    CHECK_EQ(world_verdicts(w, MR_VERDICT_ADDRESS_CLASS), 2);
    CHECK_EQ(latches(), 0.0);
    CHECK_EQ(world_reload(w, (const char *[]){NULL}, kept), 0);
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    world_close(w);
}

TEST(an_address_that_was_thrown_out_is_nobody)
{
    struct hook_session view;
    struct block_what what;
    struct hook_pair pairs[MR_TAGS_MAX];
    char why[MR_CIDR_WHY_MAX];
    unsigned ended;

    open_pair(NULL);
    struct player third = world_join(w, "10.0.0.1:5001", "10.0.0.1:7001");
    REQUIRE(mr__players_session(w->service, (struct str){third.oid, strlen(third.oid)}, &view));
    CHECK_EQ(mr__players_kick(w->service, view.id, (struct str){"x", 1}), 0);
    world_settle(w);
    CHECK_STR(way("10.0.0.1:7001", clients), "unknown_sender");
    REQUIRE(mr__block_parse(&what, "10.0.0.1:7002", 13, pairs, why));
    CHECK_EQ(
        mr__blocks_add(w->service, &what, 60, (struct str){"x", 1}, (struct str){"t", 1}, &ended),
        0);
    CHECK_STR(way("10.0.0.1:7002", clients), "unknown_sender");
    CHECK_EQ(world_verdicts(w, MR_VERDICT_BLOCKED), 1);
    CHECK_EQ(latches(), 0.0);
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    world_close(w);
}

TEST(of_several_players_on_one_ip_the_one_connected_last_is_meant)
{
    unsigned old_hosts, old_clients;

    open_pair(NULL);
    old_hosts = hosts;
    old_clients = clients;
    struct player late = world_join(w, "10.0.0.2:5001", "10.0.0.2:6001");
    unsigned late_port;
    REQUIRE(world_relay(w, &late, &host, &hosts, &late_port));
    CHECK_EQ(hosts, old_hosts);
    clients = late_port;
    CHECK_STR(way("10.0.0.2:7001", hosts), "10.0.0.1:6000 from client's port");
    clients = old_clients;
    CHECK_STR(way("10.0.0.2:7000", hosts), "10.0.0.1:6000 from client's port");
    CHECK_STR(way("10.0.0.2:7002", hosts), "unknown_sender");
    world_close(w);
}

TEST(one_of_two_on_an_ip_who_has_spoken_leaves_the_other_to_be_recognized)
{
    open_pair(NULL);
    struct player late = world_join(w, "10.0.0.2:5001", "10.0.0.2:6001");
    unsigned late_port;
    REQUIRE(world_relay(w, &late, &host, &hosts, &late_port));
    world_inject(w, "10.0.0.2:6001", hosts, 10);
    CHECK_STR(way("10.0.0.2:7000", hosts), "10.0.0.1:6000 from client's port");
    world_close(w);
}

TEST(an_ipv6_player_is_recognized_by_the_whole_address)
{
    w = world_open((const char *[]){"udp_host=::", NULL});
    host = world_join(w, "[2001:db8::1]:5000", "[2001:db8::1]:6000");
    client = world_join(w, "[2001:db8::2]:5000", "[2001:db8::2]:6000");
    REQUIRE(world_relay(w, &client, &host, &hosts, &clients));
    CHECK_STR(way("[2001:db8::3]:7000", clients), "unknown_sender");
    CHECK_STR(way("[2001:db8::1]:7000", clients), "[2001:db8::2]:6000 from host's port");
    world_close(w);
}

TEST(a_player_of_one_family_is_recognized_by_one_of_the_other)
{
    w = world_open((const char *[]){"udp_host=::", NULL});
    host = world_join(w, "[2001:db8::1]:5000", "[2001:db8::1]:6000");
    client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    REQUIRE(world_relay(w, &client, &host, &hosts, &clients));
    CHECK_STR(way(CLIENT_NAT, hosts), "[2001:db8::1]:6000 from client's port");
    CHECK_STR(way("[2001:db8::1]:6000", clients), "10.0.0.2:7000 from host's port");
    CHECK_STR(way("[2001:db8::1]:6000", clients), "10.0.0.2:7000 from host's port");
    world_close(w);
}

TEST(a_latch_ends_with_its_relays_and_reaches_nobody_who_has_the_port_later)
{
    open_pair((const char *[]){"udp_relay_timeout=2s", "udp_relay_ports=0+2", NULL});
    CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
    world_advance(w, 2500);
    CHECK_EQ(world_relays(w), 0);
    CHECK_EQ(latches(), 0.0);
    world_advance(w, 5000);
    struct player a = world_join(w, "10.0.0.5:5000", "10.0.0.5:6000");
    struct player b = world_join(w, "10.0.0.6:5000", "10.0.0.6:6000");
    REQUIRE(world_relay(w, &a, &b, &hosts, &clients));
    CHECK_STR(way(HOST_NAT, clients), "unknown_sender");
    CHECK_STR(way(HOST_NAT, hosts), "unknown_sender");
    CHECK_STR(way("10.0.0.5:6000", hosts), "10.0.0.6:6000 from client's port");
    world_close(w);
}

TEST(a_latched_source_keeps_its_relay_alive)
{
    open_pair((const char *[]){"udp_relay_timeout=2s", NULL});
    for (int i = 0; i < 6; i++) {
        CHECK_STR(way(HOST_NAT, clients), "10.0.0.2:6000 from host's port");
        world_advance(w, 1000);
    }
    CHECK_EQ(world_relays(w), 2);
    world_close(w);
}

TEST_MAIN(
    TEST_CASE(a_host_that_speaks_from_another_port_is_the_host_and_is_sent_what_is_for_him),
    TEST_CASE(a_client_that_speaks_from_another_port_is_the_client_without_any_policy),
    TEST_CASE(two_that_speak_from_other_ports_reach_each_other),
    TEST_CASE(the_first_source_is_taken_and_no_other),
    TEST_CASE(a_stranger_is_never_a_player_whose_pair_has_exchanged_datagrams),
    TEST_CASE(a_player_is_recognized_within_the_window_and_not_after_it),
    TEST_CASE(a_window_that_is_over_is_over_before_anybody_has_looked_at_the_clock),
    TEST_CASE(another_connect_relay_opens_another_window),
    TEST_CASE(without_a_window_nobody_is_recognized),
    TEST_CASE(a_player_who_speaks_for_himself_undoes_his_latch_and_gets_no_other),
    TEST_CASE(a_player_whom_the_registrar_moves_is_where_he_has_registered),
    TEST_CASE(a_player_who_has_moved_is_recognized_from_his_new_ip_no_more_than_from_the_old_one),
    TEST_CASE(an_address_that_another_player_registers_is_no_longer_a_latch),
    TEST_CASE(a_pid_shown_in_the_name_of_a_latched_source_undoes_no_latch),
    TEST_CASE(nobody_is_taken_for_a_player_who_has_a_name_of_his_own_or_is_not_let_in),
    TEST_CASE(a_source_that_no_player_may_have_is_not_recognized),
    TEST_CASE(an_address_that_was_thrown_out_is_nobody),
    TEST_CASE(of_several_players_on_one_ip_the_one_connected_last_is_meant),
    TEST_CASE(one_of_two_on_an_ip_who_has_spoken_leaves_the_other_to_be_recognized),
    TEST_CASE(an_ipv6_player_is_recognized_by_the_whole_address),
    TEST_CASE(a_player_of_one_family_is_recognized_by_one_of_the_other),
    TEST_CASE(a_latch_ends_with_its_relays_and_reaches_nobody_who_has_the_port_later),
    TEST_CASE(a_latched_source_keeps_its_relay_alive))
