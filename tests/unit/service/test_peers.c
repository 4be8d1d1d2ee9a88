/* SPDX-License-Identifier: MIT */
/*
 * Which addresses are served: classes, lists, our own, low ports; and what an address gets that
 * nobody vouches for. One thread.
 */
#include "test.h"
#include "world.h"

#include <string.h>

/* What the registrar says to a valid PID that comes from there, to that address of ours. */
static const char *seen(struct world *w, const struct player *p, const char *from,
                        const char *local)
{
    struct mr_addr a = world_addr(from), l = world_addr(local);

    w->reply[0] = '\0';
    mr__service_registrar(w->service, &a, &l, p->pid, strlen(p->pid), w->now_ns);
    world_settle(w);
    return w->reply;
}

TEST(private_and_loopback_players_are_served_where_they_can_have_come_from)
{
    static const struct {
        const char *from, *local;
        bool is_served;
    } cases[] = {
        {"203.0.113.5:4000", "192.0.2.1:8809", true},
        {"203.0.113.5:4001", "10.0.0.1:8809", true}, /* ours is behind a NAT */
        {"10.1.2.3:4000", "192.0.2.1:8809", false},
        {"192.168.1.2:4000", "192.0.2.1:8809", false},
        {"172.17.0.1:4000", "192.0.2.1:8809", false},
        {"100.64.0.1:4000", "192.0.2.1:8809", false},
        {"169.254.1.1:4000", "192.0.2.1:8809", false},
        {"172.17.0.1:4001", "172.17.0.2:8809", true}, /* a container's gateway */
        {"192.168.1.2:4001", "10.0.0.1:8809", true},
        {"100.64.0.1:4001", "100.64.0.2:8809", true},
        {"127.0.0.1:4000", "192.0.2.1:8809", false},
        {"127.0.0.1:4001", "10.0.0.1:8809", false},
        {"127.0.0.1:4002", "127.0.0.1:8809", true},
        {"[fd00::1]:4000", "[2001:db8::1]:8809", false},
        {"[fd00::1]:4001", "[fd00::2]:8809", true},
        {"[fe80::1]:4000", "[2001:db8::1]:8809", false},
        {"[::1]:4000", "[2001:db8::1]:8809", false},
        {"[::1]:4001", "[::1]:8809", true},
        {"[::ffff:10.1.2.3]:4000", "[::ffff:192.0.2.1]:8809", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world *w = world_open((const char *[]){"udp_host=::", NULL});
        struct player p = world_join(w, "203.0.113.5:5000", NULL);
        CHECK_STR(seen(w, &p, cases[i].from, cases[i].local), cases[i].is_served ? "OK" : "");
        world_close(w);
    }
}

/* No machine writes such a source on the wire: it is IPv4 that IPv6's own filters let through. */
TEST(a_mapped_source_is_ipv4_only_where_the_datagram_came_to_such_an_address)
{
    struct world *w = world_open((const char *[]){"udp_host=::", NULL});
    struct player p = world_join(w, "203.0.113.5:5000", NULL);

    CHECK_STR(seen(w, &p, "[::ffff:203.0.113.5]:4000", "[2001:db8::1]:8809"), "");
    CHECK_STR(seen(w, &p, "[::ffff:203.0.113.5]:4000", "[::1]:8809"), "");
    CHECK_STR(seen(w, &p, "[::ffff:203.0.113.5]:4000", "[::ffff:192.0.2.1]:8809"), "OK");
    world_close(w);
}

TEST(lists_of_networks_override_the_class_and_denial_wins)
{
    struct world *w = world_open((const char *[]){"allow_peers=10.1.0.0/16, 127.0.0.1",
                                                  "deny_peers=10.1.9.0/24, 203.0.113.7", NULL});
    struct player p = world_join(w, "203.0.113.5:5000", NULL);

    CHECK_STR(seen(w, &p, "10.2.2.3:4000", "192.0.2.1:8809"), "");
    CHECK_STR(seen(w, &p, "203.0.113.7:4000", "192.0.2.1:8809"), "");
    CHECK_STR(seen(w, &p, "10.1.9.3:4000", "192.0.2.1:8809"), "");
    CHECK_STR(seen(w, &p, "10.1.9.3:4000", "10.0.0.1:8809"), "");
    CHECK_STR(seen(w, &p, "10.1.2.3:4000", "192.0.2.1:8809"), "OK");
    CHECK_STR(seen(w, &p, "127.0.0.1:4000", "192.0.2.1:8809"), "OK");
    world_close(w);
}

TEST(nobody_is_registered_at_an_address_that_is_no_players)
{
    static const char *const never[] = {"0.0.0.0:4000",   "224.0.0.1:4000",
                                        "239.1.2.3:4000", "255.255.255.255:4000",
                                        "203.0.113.5:53", "203.0.113.5:1023"};
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "203.0.113.5:5000", NULL);

    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        CHECK_STR(seen(w, &p, never[i], "192.0.2.1:8809"), "");
    }
    CHECK_STR(seen(w, &p, "203.0.113.5:1024", "192.0.2.1:8809"), "OK");
    world_close(w);
}

TEST(our_ports_at_the_public_address_are_our_own)
{
    struct world *w = world_open((const char *[]){"udp_host=127.0.0.1", "udp_relay_ports=0+3",
                                                  "public_address=203.0.113.9", NULL});
    struct player p = world_join(w, "203.0.113.5:5000", NULL);
    struct mr_port_info info;
    struct mr_addr own;

    CHECK_EQ(mr_port_info(w->mr, 0, &info), 0);
    own = world_addr("203.0.113.9:1");
    own.port = info.local.port;
    CHECK_EQ(mr_is_own_address(w->mr, &own), 1);
    struct mr_addr l = world_addr("192.0.2.1:8809");
    w->reply[0] = '\0';
    mr__service_registrar(w->service, &own, &l, p.pid, strlen(p.pid), w->now_ns);
    CHECK_STR(w->reply, "");
    char kept[256];
    CHECK_EQ(
        world_reload(w, (const char *[]){"udp_host=127.0.0.1", "udp_relay_ports=0+3", NULL}, kept),
        0);
    CHECK_EQ(mr_is_own_address(w->mr, &own), 0);
    CHECK_EQ(mr_is_own_address(w->mr, &info.local), 1);
    world_close(w);
}

/* Joins p to a host at `udp` whose TCP connection comes from 10.0.0.2, and returns the port at
 * which p's datagrams go to the host. */
static unsigned join_host(struct world *w, const struct player *p, struct player *host,
                          const char *udp)
{
    unsigned to_host = 0, to_p = 0;

    *host = world_join(w, "10.0.0.2:5000", udp);
    CHECK(world_relay(w, p, host, &to_host, &to_p));
    return to_host;
}

static unsigned passes(struct world *w, const char *from, unsigned number, unsigned n)
{
    uint64_t before = world_verdicts(w, MR_VERDICT_UNPROVEN);

    for (unsigned i = 0; i < n; i++) {
        world_inject(w, from, number, 10);
    }
    return n - (unsigned)(world_verdicts(w, MR_VERDICT_UNPROVEN) - before);
}

TEST(a_player_registered_at_another_ip_than_his_connections_gets_little_until_he_speaks)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"), host;
    unsigned to_host = join_host(w, &p, &host, "10.0.0.66:4000");

    CHECK_EQ(passes(w, "10.0.0.1:4000", to_host, 40), 16);
    CHECK_GT(world_metric(w, "moonrelay_drops_total{reason=\"unproven\"}"), 0.0);
    /* The same IP under another port, and the address again: nothing is given anew. */
    CHECK_STR(world_see(w, &host, "10.0.0.66:4001"), "OK");
    CHECK_EQ(passes(w, "10.0.0.1:4000", to_host, 5), 0);
    CHECK_STR(world_see(w, &host, "10.0.0.67:4000"), "OK");
    CHECK_EQ(passes(w, "10.0.0.1:4000", to_host, 5), 0);
    /* Where his connection comes from there is nothing to prove. */
    CHECK_STR(world_see(w, &host, "10.0.0.2:4000"), "OK");
    CHECK_EQ(passes(w, "10.0.0.1:4000", to_host, 40), 40);
    CHECK_STR(world_see(w, &host, "10.0.0.66:4000"), "OK");
    CHECK_EQ(passes(w, "10.0.0.1:4000", to_host, 40), 0);
    world_close(w);
}

TEST(a_player_at_his_connections_ip_has_nothing_to_prove)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"), host;
    unsigned to_host = join_host(w, &p, &host, "10.0.0.2:4000");

    CHECK_EQ(passes(w, "10.0.0.1:4000", to_host, 100), 100);
    world_close(w);
}

TEST(whoever_moves_to_another_ip_has_to_prove_it)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"), host;
    unsigned to_host = join_host(w, &p, &host, "10.0.0.2:4000");

    CHECK_STR(world_see(w, &host, "10.0.0.66:4000"), "OK");
    CHECK_EQ(passes(w, "10.0.0.1:4000", to_host, 40), 16);
    world_close(w);
}

TEST(another_player_whose_connection_comes_from_there_vouches_for_the_address)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"), host;
    unsigned to_host = join_host(w, &p, &host, "10.0.0.66:4000");

    CHECK_EQ(passes(w, "10.0.0.1:4000", to_host, 20), 16);
    world_join(w, "10.0.0.66:5000", "10.0.0.66:4000");
    CHECK_EQ(passes(w, "10.0.0.1:4000", to_host, 20), 20);
    world_close(w);
}

/* What a victim at 10.0.0.66:4001 gets of 60 kB at once from p, by the relay of his own that one
 * datagram in his name has made. */
static unsigned launder(struct world *w, const struct player *p, struct player *host)
{
    unsigned to_host = 0, to_p = 0, to_victim = 0;
    uint64_t before;
    char to[MR_ADDR_TEXT_MAX];

    world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);
    CHECK(world_relay(w, p, host, &to_host, &to_p));
    world_inject(w, "10.0.0.66:4001", to_p, 10);
    CHECK_EQ(world_metric(w, "moonrelay_relays{kind=\"dynamic\"}"), 1.0);
    CHECK_EQ(world_decide(w, "10.0.0.66:4001", to_p, to, &to_victim), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:4000");
    before = world_verdicts(w, MR_VERDICT_FORWARD);
    for (unsigned i = 0; i < 60; i++) {
        world_inject(w, "10.0.0.1:4000", to_victim, 1000);
    }
    return (unsigned)(world_verdicts(w, MR_VERDICT_FORWARD) - before);
}

TEST(a_stranger_whose_ip_no_players_connection_came_from_gets_as_little)
{
    struct world *w = world_open((const char *[]){"latch_window=0", NULL});
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000");
    /* Known at the registrar, in the victim's name. */
    struct player host = world_join(w, "10.0.0.1:5001", "10.0.0.66:4000");

    CHECK_LT(launder(w, &p, &host), 50);
    CHECK_GT(world_verdicts(w, MR_VERDICT_UNPROVEN), 0);
    world_close(w);
}

TEST(a_stranger_whose_ip_a_players_connection_came_from_lately_has_nothing_to_prove)
{
    struct world *w = world_open((const char *[]){"latch_window=0", NULL});
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000");
    struct player gone = world_join(w, "10.0.0.66:5001", NULL);
    struct player host = world_join(w, "10.0.0.2:5001", "10.0.0.2:4000");

    mr__service_closed(w->service, w->wires[gone.conn].id, MR_CONN_CLOSED, w->now_ns);
    world_settle(w);
    CHECK_EQ(launder(w, &p, &host), 60);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_UNPROVEN), 0);
    world_close(w);
}

/* Whoever can forge a source shows a PID of his own in the name of a player's address, and then
 * moves away from there. */
static void take_away(bool is_owner_gone)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"), host;
    unsigned to_host = join_host(w, &p, &host, "10.0.0.2:4000");
    struct player thief = world_join(w, "10.0.0.66:5000", NULL);
    char to[MR_ADDR_TEXT_MAX];

    if (is_owner_gone) {
        mr__service_closed(w->service, w->wires[host.conn].id, MR_CONN_CLOSED, w->now_ns);
        world_settle(w);
    }
    CHECK_STR(world_see(w, &thief, "10.0.0.2:4000"), "OK");
    if (!is_owner_gone) {
        mr__service_closed(w->service, w->wires[host.conn].id, MR_CONN_CLOSED, w->now_ns);
        world_settle(w);
    }
    CHECK_STR(world_see(w, &thief, "10.0.0.66:4000"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.1:4000", to_host, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.2:4000");
    world_close(w);
}

TEST(a_pid_shown_in_a_players_name_takes_no_relay_away)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"), host;
    unsigned to_host = join_host(w, &p, &host, "10.0.0.2:4000");
    struct player thief = world_join(w, "10.0.0.66:5000", "10.0.0.2:4000");
    char to[MR_ADDR_TEXT_MAX];

    CHECK_STR(world_see(w, &thief, "10.0.0.66:4000"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.1:4000", to_host, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.2:4000");
    world_close(w);
    take_away(true);
    take_away(false);
}

TEST(a_pid_shown_in_a_players_name_before_he_has_a_relay_takes_none_away)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"), host;
    struct player thief = world_join(w, "10.0.0.66:5000", NULL);
    unsigned to_host = 0, to_p = 0;
    char to[MR_ADDR_TEXT_MAX];

    host = world_join(w, "10.0.0.2:5000", "10.0.0.2:4000");
    CHECK_STR(world_see(w, &thief, "10.0.0.2:4000"), "OK");
    CHECK(world_relay(w, &p, &host, &to_host, &to_p));
    CHECK_STR(world_see(w, &thief, "10.0.0.66:4000"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.1:4000", to_host, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.2:4000");
    world_close(w);
}

/* p is connected to a thief who shows his PID from the host's address, and then, if asked, to the
 * host himself; the thief leaves. Returns where p's datagrams go. */
static const char *made_for_a_thief(bool is_host_joined)
{
    static char to[MR_ADDR_TEXT_MAX];
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"), host;
    struct player thief = world_join(w, "10.0.0.66:5000", NULL);
    unsigned to_host = 0, to_p = 0;

    host = world_join(w, "10.0.0.2:5000", "10.0.0.2:4000");
    CHECK_STR(world_see(w, &thief, "10.0.0.2:4000"), "OK");
    CHECK(world_relay(w, &p, &thief, &to_host, &to_p));
    if (is_host_joined) {
        CHECK(world_relay(w, &p, &host, &to_host, &to_p));
    }
    CHECK_STR(world_see(w, &thief, "10.0.0.66:4000"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.1:4000", to_host, to, NULL), MR_VERDICT_FORWARD);
    world_close(w);
    return to;
}

/* Whose relay it is does not depend on whose command has made it. */
TEST(a_relay_that_is_made_for_a_pid_shown_in_a_players_name_is_the_players)
{
    CHECK_STR(made_for_a_thief(true), "10.0.0.2:4000");
    CHECK_STR(made_for_a_thief(false), "10.0.0.2:4000");
}

TEST(a_relay_that_a_pid_brings_to_a_players_address_is_the_players_once_he_joins)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"), host;
    struct player thief = world_join(w, "10.0.0.66:5000", "10.0.0.66:4000");
    unsigned to_host = 0, to_p = 0;
    char to[MR_ADDR_TEXT_MAX];

    host = world_join(w, "10.0.0.2:5000", "10.0.0.2:4000");
    CHECK(world_relay(w, &p, &thief, &to_host, &to_p));
    CHECK_STR(world_see(w, &thief, "10.0.0.2:4000"), "OK");
    CHECK(world_relay(w, &p, &host, &to_host, &to_p));
    CHECK_STR(world_see(w, &thief, "10.0.0.66:4000"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.1:4000", to_host, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.2:4000");
    world_close(w);
}

TEST(a_policy_is_asked_about_the_player_and_not_about_a_pid_shown_in_his_name)
{
    struct world *w = world_open((const char *[]){"latch_window=0", NULL});
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"), host;
    struct player other = world_join(w, "10.0.0.3:5000", "10.0.0.3:4000");
    struct player thief = world_join(w, "10.0.0.66:5000", "10.0.0.3:4000");
    unsigned to_host = join_host(w, &p, &host, "10.0.0.2:4000");

    world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_ADMIT);
    world_inject(w, "10.0.0.3:4000", to_host, 10);
    CHECK(strstr(w->seen[MR_HOOK_CREATE], other.oid));
    CHECK(!strstr(w->seen[MR_HOOK_CREATE], thief.oid));
    world_close(w);
}

TEST(a_player_whom_a_pid_alone_brings_to_anothers_address_speaks_for_nobody_there)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:4000"), host;
    struct player thief = world_join(w, "10.0.0.66:5000", "10.0.0.66:4000");
    unsigned to_host = join_host(w, &p, &host, "10.0.0.2:4000");
    unsigned from_p = 0, out = 0, thief_to_host = 0, to_thief = 0;

    CHECK_EQ(world_decide(w, "10.0.0.1:4000", to_host, NULL, &from_p), MR_VERDICT_FORWARD);
    CHECK(world_relay(w, &thief, &host, &thief_to_host, &to_thief));
    CHECK_STR(world_see(w, &thief, "10.0.0.1:4000"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.1:4000", to_host, NULL, &out), MR_VERDICT_FORWARD);
    CHECK_EQ(out, from_p);
    /* Nor does he play on from where he was. */
    CHECK_NE(world_decide(w, "10.0.0.66:4000", thief_to_host, NULL, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(world_see(w, &thief, "10.0.0.66:4000"), "OK");
    CHECK(world_relay(w, &thief, &host, &thief_to_host, &to_thief));
    CHECK_EQ(world_decide(w, "10.0.0.66:4000", thief_to_host, NULL, &out), MR_VERDICT_FORWARD);
    CHECK_EQ(out, to_thief);
    CHECK_EQ(world_decide(w, "10.0.0.1:4000", to_host, NULL, &out), MR_VERDICT_FORWARD);
    CHECK_EQ(out, from_p);
    world_close(w);
}

TEST_MAIN(
    TEST_CASE(a_mapped_source_is_ipv4_only_where_the_datagram_came_to_such_an_address),
    TEST_CASE(a_relay_that_a_pid_brings_to_a_players_address_is_the_players_once_he_joins),
    TEST_CASE(a_policy_is_asked_about_the_player_and_not_about_a_pid_shown_in_his_name),
    TEST_CASE(a_player_whom_a_pid_alone_brings_to_anothers_address_speaks_for_nobody_there),
    TEST_CASE(a_pid_shown_in_a_players_name_before_he_has_a_relay_takes_none_away),
    TEST_CASE(a_relay_that_is_made_for_a_pid_shown_in_a_players_name_is_the_players),
    TEST_CASE(a_pid_shown_in_a_players_name_takes_no_relay_away),
    TEST_CASE(a_stranger_whose_ip_no_players_connection_came_from_gets_as_little),
    TEST_CASE(a_stranger_whose_ip_a_players_connection_came_from_lately_has_nothing_to_prove),
    TEST_CASE(private_and_loopback_players_are_served_where_they_can_have_come_from),
    TEST_CASE(lists_of_networks_override_the_class_and_denial_wins),
    TEST_CASE(nobody_is_registered_at_an_address_that_is_no_players),
    TEST_CASE(our_ports_at_the_public_address_are_our_own),
    TEST_CASE(a_player_registered_at_another_ip_than_his_connections_gets_little_until_he_speaks),
    TEST_CASE(a_player_at_his_connections_ip_has_nothing_to_prove),
    TEST_CASE(whoever_moves_to_another_ip_has_to_prove_it),
    TEST_CASE(another_player_whose_connection_comes_from_there_vouches_for_the_address))
