/* SPDX-License-Identifier: MIT */
/*
 * connect and connect-relay, and the relays that come of them. One thread.
 */
#include "test.h"
#include "world.h"

#include <string.h>

static struct world *w;
static struct player host, client;

/* A host and a client, both seen at the registrar. */
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

#define LINE(p) world_line(w, (p).conn)

/* ---- connect ------------------------------------------------------------------------------- */

TEST(connect_tells_both_the_address_that_the_registrar_saw)
{
    open_pair(NULL);
    say(&client, "connect", host.oid);
    CHECK_STR(LINE(client), "connect 10.0.0.1:6000");
    CHECK_STR(LINE(host), "connect 10.0.0.2:6000");
    say(&client, "connect", client.oid);
    CHECK_STR(LINE(client), "connect 10.0.0.2:6000");
    CHECK_STR(LINE(client), "connect 10.0.0.2:6000");
    CHECK_EQ(world_relays(w), 0);
    world_close(w);
}

TEST(errors_of_joins_come_in_their_order_and_never_as_a_connect_line)
{
    w = world_open(NULL);
    size_t c = world_connect(w, "10.0.0.1:5000");
    struct player other = world_join(w, "10.0.0.9:5000", NULL);

    world_say(w, c, "connect nope\nconnect-relay nope\nconnect\nconnect-relay\n");
    CHECK_STR(world_line(w, c), "error connect:not-registered");
    CHECK_STR(world_line(w, c), "error connect-relay:not-registered");
    CHECK_STR(world_line(w, c), "error connect:not-registered");
    CHECK_STR(world_line(w, c), "error connect-relay:not-registered");
    struct player p = world_register(w, c, NULL);
    world_say(w, c, "connect nope\nconnect \nconnect\nconnect-relay  x\n");
    CHECK_STR(LINE(p), "error connect:unknown-oid");
    CHECK_STR(LINE(p), "error connect:unknown-oid");
    CHECK_STR(LINE(p), "error connect:unknown-oid");
    CHECK_STR(LINE(p), "error connect-relay:unknown-oid");
    say(&p, "connect", other.oid);
    CHECK_STR(LINE(p), "error connect:client-no-address");
    world_see(w, &p, "10.0.0.1:6000");
    say(&p, "connect", other.oid);
    CHECK_STR(LINE(p), "error connect:host-no-address");
    say(&p, "connect-relay", other.oid);
    CHECK_STR(LINE(p), "error connect-relay:host-no-address");
    CHECK_EQ(world_lines_left(w, other.conn), 0);
    world_close(w);
}

TEST(the_latest_registration_is_who_a_player_is)
{
    open_pair(NULL);
    struct player second = world_register(w, client.conn, NULL);
    say(&second, "connect", host.oid);
    CHECK_STR(LINE(second), "error connect:client-no-address");
    CHECK_STR(world_see(w, &second, "10.0.0.2:7777"), "OK");
    say(&second, "connect", host.oid);
    CHECK_STR(LINE(second), "connect 10.0.0.1:6000");
    CHECK_STR(LINE(host), "connect 10.0.0.2:7777");
    say(&host, "connect", client.oid);
    CHECK_STR(LINE(host), "connect 10.0.0.2:6000");
    world_close(w);
}

TEST(sessions_vanish_with_their_connection_and_relays_live_on)
{
    unsigned a, b;

    open_pair(NULL);
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    mr__service_eof(w->service, w->wires[host.conn].id, w->now_ns);
    CHECK(w->wires[host.conn].is_closed);
    say(&client, "connect", host.oid);
    CHECK_STR(LINE(client), "error connect:unknown-oid");
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    world_advance(w, 31000);
    CHECK_EQ(world_relays(w), 0);
    world_close(w);
}

/* ---- connect-relay ------------------------------------------------------------------------- */

TEST(connect_relay_makes_a_pair_and_tells_each_the_others_port)
{
    unsigned hosts, clients, from_port;
    char to[MR_ADDR_TEXT_MAX];

    open_pair(NULL);
    REQUIRE(world_relay(w, &client, &host, &hosts, &clients));
    CHECK_NE(hosts, clients);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", hosts, to, &from_port), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:6000");
    CHECK_EQ(from_port, clients);
    CHECK_EQ(world_decide(w, "10.0.0.1:6000", clients, to, &from_port), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.2:6000");
    CHECK_EQ(from_port, hosts);
    world_close(w);
}

TEST(connect_relay_twice_gives_the_same_two_ports)
{
    unsigned a, b, c, d, e, f;

    open_pair(NULL);
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    REQUIRE(world_relay(w, &client, &host, &c, &d));
    REQUIRE(world_relay(w, &host, &client, &e, &f));
    CHECK(a == c && b == d && a == f && b == e);
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(world_metric(w, "noray_relay_count"), 2.0);
    CHECK_EQ(world_metric(w, "moonrelay_ports{state=\"used\"}"), 2.0);
    world_close(w);
}

TEST(connect_relay_to_oneself_is_an_echo_and_both_lines_come_here)
{
    unsigned a, b;
    char to[MR_ADDR_TEXT_MAX];

    open_pair(NULL);
    REQUIRE(world_relay(w, &host, &host, &a, &b));
    CHECK_EQ(a, b);
    CHECK_EQ(world_relays(w), 1);
    CHECK_EQ(world_decide(w, "10.0.0.1:6000", a, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:6000");
    world_say(w, host.conn, "echo x\n");
    CHECK_STR(LINE(host), "echo x");
    world_close(w);
}

TEST(without_two_ports_neither_is_kept)
{
    unsigned a, b;

    open_pair((const char *[]){"udp_relay_ports=49152+2", NULL});
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    struct player fourth = world_join(w, "10.0.0.4:5000", "10.0.0.4:6000");
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    say(&third, "connect-relay", fourth.oid);
    CHECK_STR(LINE(third), "error connect-relay:no-ports");
    CHECK_STR(LINE(fourth), "");
    world_settle(w);
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(world_metric(w, "noray_relay_count"), 2.0);
    /* One port suffices where one relay is missing. */
    REQUIRE(world_relay(w, &third, &host, &a, &b));
    world_close(w);
}

TEST(a_new_connect_relay_keeps_a_pair_alive)
{
    unsigned a, b, c, d;

    open_pair((const char *[]){"udp_relay_timeout=1s", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    world_advance(w, 700);
    REQUIRE(world_relay(w, &client, &host, &c, &d));
    world_advance(w, 500);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    world_close(w);
}

TEST(one_way_traffic_keeps_both_ends_alive)
{
    unsigned a, b;

    open_pair((const char *[]){"udp_relay_timeout=1s", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    for (int i = 0; i < 6; i++) {
        world_advance(w, 500);
        CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    }
    CHECK_EQ(world_relays(w), 2);
    world_advance(w, 1200);
    CHECK_EQ(world_relays(w), 0);
    CHECK_EQ(world_metric(w, "noray_relay_expired"), 2.0);
    world_close(w);
}

/* Each is the first one of its second, which is decided by another way than those after it. */
TEST(one_way_traffic_now_and_then_keeps_both_ends_alive)
{
    unsigned a, b;

    open_pair((const char *[]){"udp_relay_timeout=3s", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    for (int i = 0; i < 4; i++) {
        world_advance(w, 2000);
        CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    }
    CHECK_EQ(world_relays(w), 2);
    world_close(w);
}

TEST(a_stale_peer_does_not_reach_who_plays_next)
{
    unsigned a, b, c, d;

    open_pair((const char *[]){"udp_relay_timeout=1s", "udp_relay_ports=49152+3", NULL});
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    struct player fourth = world_join(w, "10.0.0.4:5000", "10.0.0.4:6000");
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    world_advance(w, 1300);
    CHECK_EQ(world_relays(w), 0);
    CHECK_EQ(world_metric(w, "moonrelay_ports{state=\"quarantined\"}"), 2.0);
    REQUIRE(world_relay(w, &third, &fourth, &c, &d));
    CHECK(c != a && c != b && d != a && d != b);
    for (unsigned port = 49152; port < 49156; port++) {
        CHECK_NE(world_decide(w, "10.0.0.2:6000", port, NULL, NULL), MR_VERDICT_FORWARD);
    }
    world_advance(w, 500);
    world_decide(w, "10.0.0.3:6000", c, NULL, NULL);
    world_advance(w, 300);
    CHECK_EQ(world_metric(w, "moonrelay_ports{state=\"quarantined\"}"), 2.0);
    world_decide(w, "10.0.0.3:6000", c, NULL, NULL);
    world_advance(w, 900);
    world_decide(w, "10.0.0.3:6000", c, NULL, NULL);
    world_advance(w, 300);
    CHECK_EQ(world_metric(w, "moonrelay_ports{state=\"quarantined\"}"), 0.0);
    CHECK_EQ(world_metric(w, "moonrelay_ports{state=\"free\"}"), 2.0);
    world_close(w);
}

TEST(when_all_free_ports_rest_the_one_freed_longest_ago_is_taken)
{
    unsigned a, b, c, d;

    open_pair((const char *[]){"udp_relay_ports=49152+1", "udp_relay_timeout=1s", NULL});
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    world_advance(w, 1300);
    REQUIRE(world_relay(w, &third, &host, &c, &d));
    CHECK((c == a && d == b) || (c == b && d == a));
    world_close(w);
}

TEST(lifetime_traffic_stops_at_its_limit_and_connect_relay_restarts_it)
{
    unsigned a, b, c, d, passed = 0;

    open_pair((const char *[]){"udp_relay_max_lifetime_traffic=1000", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    for (int i = 0; i < 15; i++) {
        passed += world_decide(w, "10.0.0.2:6000", a, NULL, NULL) == MR_VERDICT_FORWARD;
    }
    CHECK_EQ(passed, 9); /* 100 bytes each: below the limit, not at it */
    CHECK_EQ(world_verdicts(w, MR_VERDICT_TRAFFIC), 6);
    world_inject(w, "10.0.0.2:6000", a, 100);
    CHECK_STR(LINE(client), "limit traffic");
    REQUIRE(world_relay(w, &client, &host, &c, &d));
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    world_close(w);
}

TEST(lifetime_duration_is_told_before_stops_at_its_end_and_connect_relay_restarts_it)
{
    unsigned a, b, c, d;

    open_pair(
        (const char *[]){"udp_relay_max_lifetime_duration=310s", "udp_relay_timeout=20m", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    world_inject(w, "10.0.0.2:6000", a, 10);
    CHECK_STR(LINE(client), "");
    world_advance(w, 10500);
    world_inject(w, "10.0.0.2:6000", a, 10);
    CHECK_STR(LINE(client), "limit duration-soon");
    CHECK_STR(LINE(host), "limit duration-soon"); /* his relay is as old */
    w->now_ns += 299ull * 1000000000;
    world_settle(w);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    world_advance(w, 1000);
    world_inject(w, "10.0.0.2:6000", a, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_DURATION), 1);
    CHECK_STR(LINE(client), "limit duration");
    CHECK_EQ(world_relays(w), 2);
    REQUIRE(world_relay(w, &client, &host, &c, &d));
    CHECK(a == c && b == d);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    world_close(w);
}

TEST(a_limit_is_told_once_in_ten_seconds_to_the_owner_alone)
{
    unsigned a, b;

    open_pair(
        (const char *[]){"udp_relay_max_individual_traffic=100", "udp_relay_timeout=60s", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    for (int i = 0; i < 300; i++) {
        world_inject(w, "10.0.0.2:6000", a, 90);
        world_advance(w, 100);
    }
    CHECK_GE(world_lines_left(w, client.conn), 3);
    CHECK_LE(world_lines_left(w, client.conn), 4);
    CHECK_STR(LINE(client), "limit bandwidth");
    CHECK_EQ(world_lines_left(w, host.conn), 0);
    CHECK_GT(world_metric(w, "moonrelay_limit_hits_total{kind=\"bandwidth\"}"), 0.0);
    world_close(w);
}

/* ---- connect through the relay ------------------------------------------------------------- */

TEST(connect_through_the_relay_tells_our_address_and_the_others_port)
{
    char expected[64];

    open_pair((const char *[]){"connect=relay", NULL});
    say(&client, "connect", host.oid);
    unsigned hosts, clients;
    CHECK_EQ(sscanf(LINE(client), "connect 192.0.2.1:%u", &hosts), 1);
    CHECK_EQ(sscanf(LINE(host), "connect 192.0.2.1:%u", &clients), 1);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", hosts, expected, NULL), MR_VERDICT_FORWARD);
    CHECK_EQ(world_decide(w, "10.0.0.1:6000", clients, expected, NULL), MR_VERDICT_FORWARD);
    world_close(w);
    open_pair((const char *[]){"connect=relay", "public_address=198.51.100.7", NULL});
    say(&client, "connect", host.oid);
    CHECK(strncmp(LINE(client), "connect 198.51.100.7:", 21) == 0);
    CHECK(strncmp(LINE(host), "connect 198.51.100.7:", 21) == 0);
    world_close(w);
}

TEST(players_of_different_families_meet_at_the_relay_and_see_no_address_of_each_other)
{
    char to[MR_ADDR_TEXT_MAX];
    unsigned hosts, clients;

    w = world_open((const char *[]){"udp_host=::", NULL});
    host = world_join(w, "[2001:db8:1::1]:5000", "[2001:db8:1::1]:6000");
    client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    say(&client, "connect", host.oid);
    CHECK_EQ(sscanf(LINE(client), "connect 192.0.2.1:%u", &hosts), 1);
    CHECK_EQ(sscanf(LINE(host), "connect [2001:db8::1]:%u", &clients), 1);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", hosts, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "[2001:db8:1::1]:6000");
    world_close(w);
}

TEST(a_player_is_told_our_address_of_the_family_he_plays_with)
{
    unsigned port;

    w = world_open((const char *[]){"udp_host=::", "connect=relay", NULL});
    /* The command channel over IPv6, the game over IPv4. */
    host = world_join(w, "[2001:db8:1::1]:5000", "10.0.0.1:6000");
    client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    say(&client, "connect", host.oid);
    CHECK_EQ(sscanf(LINE(host), "connect 10.255.255.254:%u", &port), 1);
    world_close(w);
}

TEST(relay_ports_that_are_bound_to_one_address_are_named_by_it)
{
    open_pair((const char *[]){"connect=relay", "udp_host=192.0.2.9", NULL});
    say(&client, "connect", host.oid);
    CHECK(strncmp(LINE(client), "connect 192.0.2.9:", 18) == 0);
    world_close(w);
}

/* ---- policies ------------------------------------------------------------------------------ */

TEST(the_connect_hook_sees_both_and_may_refuse_or_name_another_host)
{
    char to[320];

    open_pair(NULL);
    struct player other = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    world_refuse(w, MR_HOOK_CONNECT, "banned");
    say(&client, "connect-relay", host.oid);
    CHECK_STR(LINE(client), "error connect-relay:rejected:banned");
    CHECK(strstr(w->seen[MR_HOOK_CONNECT], "mode=relay"));
    CHECK(strstr(w->seen[MR_HOOK_CONNECT], "from="));
    snprintf(to, sizeof to, "to=%s", host.oid);
    CHECK(strstr(w->seen[MR_HOOK_CONNECT], to));
    say(&client, "connect", "lobby:any a=1");
    CHECK_STR(LINE(client), "error connect:rejected:banned");
    CHECK(strstr(w->seen[MR_HOOK_CONNECT], "oid=lobby:any mode=connect"));
    CHECK(strstr(w->seen[MR_HOOK_CONNECT], "to=- meta.a=1"));
    struct hook_answer *answer = world_answer(w, MR_HOOK_CONNECT, MR_HOOK_ADMIT);
    answer->oid = (struct str){other.oid, strlen(other.oid)};
    say(&client, "connect", "lobby:any");
    CHECK_STR(LINE(client), "connect 10.0.0.3:6000");
    CHECK_STR(LINE(other), "connect 10.0.0.2:6000");
    answer->via = MR_VIA_RELAY;
    say(&client, "connect", host.oid);
    CHECK(strncmp(LINE(client), "connect 192.0.2.1:", 18) == 0);
    CHECK_EQ(world_lines_left(w, host.conn), 0);
    world_close(w);
}

TEST(a_policy_may_send_players_directly_where_the_setting_says_relay)
{
    open_pair((const char *[]){"connect=relay", NULL});
    struct hook_answer *answer = world_answer(w, MR_HOOK_CONNECT, MR_HOOK_ADMIT);
    answer->via = MR_VIA_DIRECT;
    say(&client, "connect", host.oid);
    CHECK_STR(LINE(client), "connect 10.0.0.1:6000");
    world_close(w);
}

TEST(the_create_hook_is_asked_for_each_relay_that_is_missing)
{
    unsigned a, b;

    open_pair(NULL);
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    CHECK_EQ(w->canned[MR_HOOK_CREATE].asked, 2);
    CHECK(strstr(w->seen[MR_HOOK_CREATE], "reason=connect addr=10.0.0.2:6000"));
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    CHECK_EQ(w->canned[MR_HOOK_CREATE].asked, 2);
    REQUIRE(world_relay(w, &third, &host, &a, &b));
    CHECK_EQ(w->canned[MR_HOOK_CREATE].asked, 3);
    world_close(w);
}

TEST(a_connect_through_the_relay_asks_the_create_hook_and_a_direct_one_does_not)
{
    open_pair(NULL);
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    say(&client, "connect", host.oid);
    CHECK_EQ(w->canned[MR_HOOK_CREATE].asked, 0);
    world_close(w);
    open_pair((const char *[]){"connect=relay", NULL});
    world_refuse(w, MR_HOOK_CREATE, "no");
    say(&client, "connect", host.oid);
    CHECK_STR(LINE(client), "error connect:rejected:no");
    CHECK_EQ(w->canned[MR_HOOK_CREATE].asked, 1);
    CHECK_EQ(world_relays(w), 0);
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    say(&client, "connect", host.oid);
    CHECK_EQ(w->canned[MR_HOOK_CREATE].asked, 3);
    CHECK_EQ(world_relays(w), 2);
    world_close(w);
}

TEST(a_refused_creation_leaves_nothing_behind)
{
    const struct hook_slot slots[] = {{{"ip/x", 4}, 1}};
    unsigned a, b;

    open_pair(NULL);
    world_refuse(w, MR_HOOK_CREATE, "quota");
    say(&client, "connect-relay", host.oid);
    CHECK_STR(LINE(client), "error connect-relay:rejected:quota");
    CHECK_EQ(world_relays(w), 0);
    /* One slot, two relays: the host's is taken back. */
    struct hook_answer *answer = world_answer(w, MR_HOOK_CREATE, MR_HOOK_ADMIT);
    answer->slots = slots;
    answer->n_slots = 1;
    for (int i = 0; i < 5; i++) {
        say(&client, "connect-relay", host.oid);
        CHECK_STR(LINE(client), "error connect-relay:full:ip/x");
        CHECK_EQ(world_relays(w), 0);
    }
    REQUIRE(world_relay(w, &host, &host, &a, &b));
    world_advance(w, 31000);
    REQUIRE(world_relay(w, &client, &client, &a, &b));
    world_close(w);
}

TEST(a_policys_limits_and_tags_come_with_the_relay_and_its_end_is_told)
{
    struct hook_pair tag = {{"game", 4}, {"chess", 5}};
    unsigned a, b;

    open_pair(NULL);
    world_answer(w, MR_HOOK_DESTROYED, MR_HOOK_NO_OPINION);
    struct hook_answer *answer = world_answer(w, MR_HOOK_CREATE, MR_HOOK_ADMIT);
    answer->tags = (struct hook_map){&tag, 1};
    answer->spec.has_ttl = true;
    answer->spec.ttl_ns = 2000000000;
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    world_decide(w, "10.0.0.2:6000", a, NULL, NULL);
    world_advance(w, 2300);
    CHECK_EQ(world_relays(w), 0);
    CHECK_EQ(w->canned[MR_HOOK_DESTROYED].told, 2);
    CHECK(strstr(w->seen[MR_HOOK_DESTROYED], "reason=lifetime"));
    CHECK(strstr(w->seen[MR_HOOK_DESTROYED], " relay=491"));
    world_close(w);
}

TEST(whoever_asks_meanwhile_gets_the_same_result)
{
    open_pair(NULL);
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    say(&client, "connect-relay", host.oid);
    say(&third, "connect-relay", host.oid);
    CHECK_EQ(w->canned[MR_HOOK_CREATE].asked, 1);
    world_answer_pending(w);
    CHECK_EQ(w->canned[MR_HOOK_CREATE].asked, 3);
    CHECK_EQ(world_relays(w), 3);
    unsigned a, b;
    CHECK_EQ(sscanf(LINE(client), "connect-relay %u", &a), 1);
    CHECK_EQ(sscanf(LINE(third), "connect-relay %u", &b), 1);
    CHECK_EQ(a, b);
    world_close(w);
    /* A refusal is everybody's as well. */
    open_pair(NULL);
    third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    world_refuse(w, MR_HOOK_CREATE, "no");
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    say(&client, "connect-relay", host.oid);
    say(&third, "connect-relay", host.oid);
    world_answer_pending(w);
    CHECK_STR(LINE(client), "error connect-relay:rejected:no");
    CHECK_STR(LINE(third), "error connect-relay:rejected:no");
    CHECK_EQ(w->canned[MR_HOOK_CREATE].asked, 1);
    world_close(w);
}

TEST(a_host_that_leaves_ends_what_waits_for_him)
{
    open_pair(NULL);
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    say(&client, "connect-relay?1", host.oid);
    say(&third, "connect-relay", host.oid);
    world_say(w, client.conn, "echo next\n");
    mr__service_closed(w->service, w->wires[host.conn].id, MR_CONN_RESET, w->now_ns);
    world_settle(w);
    CHECK_EQ(w->n_pending, 0);
    CHECK_EQ(w->cancelled, 1);
    CHECK_STR(LINE(client), "!1 unknown-oid");
    CHECK_STR(LINE(client), "echo next");
    CHECK_STR(LINE(third), "error connect-relay:unknown-oid");
    CHECK_EQ(world_relays(w), 0);
    world_close(w);
}

TEST(a_service_that_ends_tells_nobody_anything)
{
    size_t told;

    open_pair(NULL);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    say(&client, "connect-relay", host.oid);
    told = w->wires[client.conn].n;
    mr__service_destroy(w->service);
    w->service = NULL;
    CHECK_EQ(w->wires[client.conn].n, told);
    world_close(w);
}

TEST(a_client_that_leaves_lets_the_next_one_have_his_turn)
{
    open_pair(NULL);
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    say(&client, "connect-relay", host.oid);
    say(&third, "connect-relay", host.oid);
    mr__service_closed(w->service, w->wires[client.conn].id, MR_CONN_RESET, w->now_ns);
    world_settle(w);
    CHECK_EQ(w->n_pending, 1);
    world_answer_pending(w);
    CHECK(strncmp(LINE(third), "connect-relay ", 14) == 0);
    CHECK_EQ(world_relays(w), 2);
    world_close(w);
}

TEST(an_address_that_moves_while_a_policy_thinks_is_asked_about_again)
{
    unsigned a;
    char to[MR_ADDR_TEXT_MAX];

    open_pair(NULL);
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    say(&client, "connect-relay", host.oid);
    CHECK_STR(world_see(w, &host, "10.0.0.1:6009"), "OK");
    world_answer_pending(w);
    REQUIRE_EQ(sscanf(LINE(client), "connect-relay %u", &a), 1);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:6009");
    CHECK_EQ(world_relays(w), 2);
    world_close(w);
}

TEST(many_players_join_one_host_at_once)
{
    enum { N = 100 };
    struct player players[N];
    unsigned first = 0, port;

    w = world_open((const char *[]){"udp_relay_ports=40000+200", NULL});
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    for (unsigned i = 0; i < N; i++) {
        char tcp[32], udp[32];
        snprintf(tcp, sizeof tcp, "10.0.1.%u:5000", i + 1);
        snprintf(udp, sizeof udp, "10.0.1.%u:6000", i + 1);
        players[i] = world_join(w, tcp, udp);
        say(&players[i], "connect-relay", host.oid);
    }
    world_answer_pending(w);
    for (unsigned i = 0; i < N; i++) {
        CHECK_EQ(sscanf(LINE(players[i]), "connect-relay %u", &port), 1);
        first = first ? first : port;
        CHECK_EQ(port, first);
    }
    CHECK_EQ(world_lines_left(w, host.conn), N);
    CHECK_EQ(world_relays(w), N + 1);
    world_close(w);
}

TEST_MAIN(
    TEST_CASE(connect_tells_both_the_address_that_the_registrar_saw),
    TEST_CASE(errors_of_joins_come_in_their_order_and_never_as_a_connect_line),
    TEST_CASE(the_latest_registration_is_who_a_player_is),
    TEST_CASE(sessions_vanish_with_their_connection_and_relays_live_on),
    TEST_CASE(connect_relay_makes_a_pair_and_tells_each_the_others_port),
    TEST_CASE(connect_relay_twice_gives_the_same_two_ports),
    TEST_CASE(connect_relay_to_oneself_is_an_echo_and_both_lines_come_here),
    TEST_CASE(without_two_ports_neither_is_kept), TEST_CASE(a_new_connect_relay_keeps_a_pair_alive),
    TEST_CASE(one_way_traffic_keeps_both_ends_alive),
    TEST_CASE(one_way_traffic_now_and_then_keeps_both_ends_alive),
    TEST_CASE(a_stale_peer_does_not_reach_who_plays_next),
    TEST_CASE(when_all_free_ports_rest_the_one_freed_longest_ago_is_taken),
    TEST_CASE(lifetime_traffic_stops_at_its_limit_and_connect_relay_restarts_it),
    TEST_CASE(lifetime_duration_is_told_before_stops_at_its_end_and_connect_relay_restarts_it),
    TEST_CASE(a_limit_is_told_once_in_ten_seconds_to_the_owner_alone),
    TEST_CASE(connect_through_the_relay_tells_our_address_and_the_others_port),
    TEST_CASE(players_of_different_families_meet_at_the_relay_and_see_no_address_of_each_other),
    TEST_CASE(a_player_is_told_our_address_of_the_family_he_plays_with),
    TEST_CASE(relay_ports_that_are_bound_to_one_address_are_named_by_it),
    TEST_CASE(the_connect_hook_sees_both_and_may_refuse_or_name_another_host),
    TEST_CASE(a_policy_may_send_players_directly_where_the_setting_says_relay),
    TEST_CASE(the_create_hook_is_asked_for_each_relay_that_is_missing),
    TEST_CASE(a_connect_through_the_relay_asks_the_create_hook_and_a_direct_one_does_not),
    TEST_CASE(a_refused_creation_leaves_nothing_behind),
    TEST_CASE(a_policys_limits_and_tags_come_with_the_relay_and_its_end_is_told),
    TEST_CASE(whoever_asks_meanwhile_gets_the_same_result),
    TEST_CASE(a_host_that_leaves_ends_what_waits_for_him),
    TEST_CASE(a_service_that_ends_tells_nobody_anything),
    TEST_CASE(a_client_that_leaves_lets_the_next_one_have_his_turn),
    TEST_CASE(an_address_that_moves_while_a_policy_thinks_is_asked_about_again),
    TEST_CASE(many_players_join_one_host_at_once))
