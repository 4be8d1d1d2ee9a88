/* SPDX-License-Identifier: MIT */
/*
 * Flows to targets and the ports that are open to everybody. One thread. Start reading at
 * the tests.
 */
#include "service/blocks.h"
#include "service/cidr.h"
#include "service/players.h"
#include "service/target.h"
#include "test.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

enum { FRONT = 7777 };

static struct world *w;
static const char client[] = "203.0.113.5:4000";

static void open_world(const char *const *settings, const char *preset_target)
{
    struct open_port port = {.number = FRONT, .place = "moonrelay.lua:3"};

    w = world_open(settings);
    snprintf(port.spec.target, sizeof port.spec.target, "%s", preset_target);
    world_open_fronts(w, &port, 1);
    REQUIRE_EQ(w->fronts.opened, 1);
    REQUIRE_EQ(w->fronts.failed, 0);
}

static struct hook_answer *admit_to(const char *target)
{
    struct hook_answer *a = world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);

    snprintf(a->spec.target, sizeof a->spec.target, "%s", target);
    return a;
}

static void let_world_close(void)
{
    struct mr_stats st;
    uint64_t verdicts = 0;

    REQUIRE_EQ(mr_get_stats(w->mr, &st, sizeof st), 0);
    for (unsigned v = 0; v < MR_VERDICT_COUNT; v++) {
        verdicts += st.verdicts[v];
    }
    CHECK_EQ(st.received, verdicts + st.held);
    world_close(w);
}

static double targets(void)
{
    return world_metric(w, "moonrelay_relays{kind=\"target\"}");
}

static bool log_has(const char *text)
{
    return w->log_text && strstr(w->log_text, text) != NULL;
}

TEST(a_target_is_written_as_host_and_port)
{
    static const struct {
        const char *text, *host;
        unsigned port;
    } good[] = {{"a.fleet:7777", "a.fleet", 7777},
                {"10.4.4.4:1", "10.4.4.4", 1},
                {"[2001:db8::1]:65535", "2001:db8::1", 65535},
                {"127.1:80", "127.1", 80}};
    static const char *const bad[] = {"",
                                      "a",
                                      "a:",
                                      ":7",
                                      "a:0",
                                      "a:65536",
                                      "a:07",
                                      "a:7 ",
                                      "a b:7",
                                      "2001:db8::1:7",
                                      "[2001:db8::1]",
                                      "[]:7",
                                      "[a]:7",
                                      "[1.2.3.4]:7",
                                      "a:-1",
                                      "a:1e3",
                                      "a\n:7",
                                      "[::1]x:7",
                                      "a]:7",
                                      "a:99999999999"};
    char text[MR_TARGET_MAX + 40];
    struct str host;
    uint16_t port;

    for (unsigned i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct str t = {good[i].text, strlen(good[i].text)};
        REQUIRE(mr__target_parse(t, &host, &port));
        CHECK_EQ(host.n, strlen(good[i].host));
        CHECK(strncmp(host.s, good[i].host, host.n) == 0);
        CHECK_EQ(port, good[i].port);
    }
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(!mr__target_parse((struct str){bad[i], strlen(bad[i])}, &host, &port));
    }
    memset(text, 'a', sizeof text);
    memcpy(text + MR_LOOKUP_HOST_MAX, ":7", 2);
    CHECK(mr__target_parse((struct str){text, MR_LOOKUP_HOST_MAX + 2}, &host, &port));
    text[MR_LOOKUP_HOST_MAX] = 'a';
    memcpy(text + MR_LOOKUP_HOST_MAX + 1, ":7", 2);
    CHECK(!mr__target_parse((struct str){text, MR_LOOKUP_HOST_MAX + 3}, &host, &port));
    CHECK(!mr__target_parse((struct str){"a\0b:7", 5}, &host, &port));
}

TEST(a_new_flow_is_asked_about_and_goes_to_the_target_and_back)
{
    char to[MR_ADDR_TEXT_MAX];
    unsigned egress = 0, from_port = 0;

    open_world(NULL, "");
    admit_to("10.4.4.4:7000");
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    world_answer(w, MR_HOOK_CREATED, MR_HOOK_NO_OPINION);
    world_answer(w, MR_HOOK_DESTROYED, MR_HOOK_NO_OPINION);
    world_inject(w, client, FRONT, 10);
    CHECK(strstr(w->seen[MR_HOOK_DROP], "reason=new_flow addr=203.0.113.5:4000"));
    CHECK(strstr(w->seen[MR_HOOK_DROP], "port=7777 size=10 known=0 target=no"));
    CHECK(strstr(w->seen[MR_HOOK_CREATE], "reason=dynamic addr=203.0.113.5:4000"));
    CHECK(strstr(w->seen[MR_HOOK_CREATED], "reason=dynamic"));
    CHECK_EQ(targets(), 1.0);
    CHECK_EQ(world_metric(w, "noray_relay_count"), 1.0);
    CHECK_EQ(world_decide(w, client, FRONT, to, &egress), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.4.4.4:7000");
    CHECK(egress >= 49152 && egress < 49152 + 16);
    CHECK_EQ(world_decide(w, "10.4.4.4:7000", egress, to, &from_port), MR_VERDICT_FORWARD);
    CHECK_STR(to, client);
    CHECK_EQ(from_port, (unsigned)FRONT);
    CHECK_EQ(w->looked_up, 1);
    /* Its end is told, and what comes next asks anew. */
    world_advance(w, 31000);
    CHECK(strstr(w->seen[MR_HOOK_DESTROYED], "reason=idle addr=203.0.113.5:4000"));
    CHECK_EQ(targets(), 0.0);
    unsigned asked = w->canned[MR_HOOK_DROP].asked;
    world_inject(w, client, FRONT, 10);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, asked + 1);
    CHECK_EQ(targets(), 1.0);
    let_world_close();
}

TEST(a_name_is_looked_up_once_for_a_flow_and_not_for_its_datagrams)
{
    char to[MR_ADDR_TEXT_MAX];

    open_world((const char *[]){"dynamic_per_address=10", NULL}, "");
    admit_to("a.fleet:7000");
    w->name_is = "10.4.4.4";
    for (unsigned i = 0; i < 20; i++) {
        world_inject(w, client, FRONT, 10);
    }
    CHECK_EQ(w->looked_up, 1);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 1);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_FORWARD), 20);
    /* Its address changes: a new flow follows, the old one stays. */
    w->name_is = "10.4.4.5";
    world_inject(w, "203.0.113.5:4001", FRONT, 10);
    CHECK_EQ(w->looked_up, 2);
    CHECK_EQ(world_decide(w, client, FRONT, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.4.4.4:7000");
    CHECK_EQ(world_decide(w, "203.0.113.5:4001", FRONT, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.4.4.5:7000");
    let_world_close();
}

TEST(an_open_port_with_a_target_admits_what_no_policy_speaks_of)
{
    char to[MR_ADDR_TEXT_MAX];

    open_world(NULL, "10.4.4.4:7000");
    world_inject(w, client, FRONT, 10); /* there is no policy at all */
    CHECK_EQ(world_decide(w, client, FRONT, to, NULL), MR_VERDICT_FORWARD);
    world_answer(w, MR_HOOK_DROP, MR_HOOK_NO_OPINION);
    world_inject(w, "203.0.113.6:4000", FRONT, 10);
    CHECK_EQ(targets(), 2.0);
    /* A policy's target wins, and its no is a no. */
    admit_to("10.4.4.9:7000");
    world_inject(w, "203.0.113.7:4000", FRONT, 10);
    CHECK_EQ(world_decide(w, "203.0.113.7:4000", FRONT, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.4.4.9:7000");
    world_refuse(w, MR_HOOK_DROP, "no");
    world_inject(w, "203.0.113.8:4000", FRONT, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_REFUSED), 1);
    CHECK_EQ(targets(), 3.0);
    let_world_close();
}

TEST(an_open_port_without_any_target_drops_and_says_so)
{
    open_world(NULL, "");
    world_inject(w, client, FRONT, 10);
    CHECK(log_has("has no target"));
    world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT); /* {} */
    world_inject(w, "203.0.113.6:4000", FRONT, 10);
    world_answer(w, MR_HOOK_DROP, MR_HOOK_NO_OPINION);
    world_inject(w, "203.0.113.7:4000", FRONT, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_NEW_FLOW), 3);
    CHECK_EQ(world_relays(w), 0);
    let_world_close();
}

TEST(the_presets_of_an_open_port_bind_and_the_stricter_one_wins)
{
    struct open_port port = {.number = FRONT, .place = ""};
    struct hook_answer *a;
    struct mr_relay_info info;

    w = world_open(NULL);
    port.spec.has_idle = true;
    port.spec.idle_ns = 60000000000;
    port.spec.has_max_bytes = true;
    port.spec.max_bytes = 1000;
    port.slots = &(struct hook_slot){{"front", 5}, 1};
    port.n_slots = 1;
    port.tags = (struct hook_map){&(struct hook_pair){{"a", 1}, {"b", 1}}, 1};
    world_open_fronts(w, &port, 1);
    a = admit_to("10.4.4.4:7000");
    a->spec.has_idle = true;
    a->spec.idle_ns = 10000000000;
    a->spec.has_max_bytes = true;
    a->spec.max_bytes = 5000;
    world_inject(w, client, FRONT, 10);
    CHECK(strstr(w->seen[MR_HOOK_DROP], "tags.a=b"));
    REQUIRE_EQ(mr_relay_info(w->mr, mr_relay_next(w->mr, 0), &info), 0);
    CHECK_EQ(info.limits.idle_ns, 10000000000);
    CHECK_EQ(info.limits.max_bytes, 1000);
    world_inject(w, "203.0.113.6:4000", FRONT, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_REFUSED), 1); /* full */
    CHECK_EQ(targets(), 1.0);
    let_world_close();
}

TEST(a_hostile_target_gets_nothing_and_the_log_says_why)
{
    static const struct {
        const char *target, *why;
    } cases[] = {{"0.0.0.0:7000", "address-class"},         {"224.0.0.1:7000", "address-class"},
                 {"255.255.255.255:7000", "address-class"}, {"192.0.2.1:22", "low-port"},
                 {"[2001:db8::1]:7000", "family"},          {"nobody.fleet:7000", "not-found"},
                 {"127.0.0.1:7777", "own-address"},         {"127.0.0.1:49153", "own-address"},
                 {"127.0.0.1:8809", "own-address"}};

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mr_addr registrar = world_addr("0.0.0.0:8809");

        open_world(NULL, "");
        REQUIRE_EQ(mr_own_address(w->mr, &registrar), 0);
        admit_to(cases[i].target);
        world_inject(w, client, FRONT, 10);
        CHECK_EQ(world_verdicts(w, MR_VERDICT_NEW_FLOW), 1);
        CHECK_EQ(world_relays(w), 0);
        CHECK(log_has(cases[i].why));
        CHECK(log_has(cases[i].target));
        let_world_close();
    }
    open_world((const char *[]){"allow_low_ports=on", NULL}, "");
    admit_to("192.0.2.1:22");
    world_inject(w, client, FRONT, 10);
    CHECK_EQ(world_relays(w), 1);
    let_world_close();
}

TEST(no_target_lies_in_a_denied_network)
{
    open_world((const char *[]){"deny_peers=10.4.4.0/24", NULL}, "");
    admit_to("10.4.4.4:7000");
    world_inject(w, client, FRONT, 10);
    CHECK_EQ(world_relays(w), 0);
    CHECK(log_has("address-class"));
    admit_to("10.4.5.4:7000");
    world_inject(w, "203.0.113.6:4000", FRONT, 10);
    CHECK_EQ(world_relays(w), 1);
    let_world_close();
}

TEST(nobody_else_reaches_the_port_of_a_flow_and_no_policy_is_asked_about_it)
{
    unsigned egress = 0;

    open_world(NULL, "");
    admit_to("10.4.4.4:7000");
    world_inject(w, client, FRONT, 10);
    REQUIRE_EQ(world_decide(w, client, FRONT, NULL, &egress), MR_VERDICT_FORWARD);
    unsigned asked = w->canned[MR_HOOK_DROP].asked;
    world_inject(w, "10.4.4.4:7001", egress, 10);
    world_inject(w, client, egress, 10);
    world_inject(w, "198.51.100.9:5000", egress, 10);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_UNKNOWN_SENDER), 3);
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, asked);
    CHECK_EQ(world_relays(w), 1);
    let_world_close();
}

TEST(a_player_may_be_the_client_of_an_open_port_and_keeps_his_own_relay)
{
    unsigned hosts, clients;
    char to[MR_ADDR_TEXT_MAX];

    open_world(NULL, "");
    admit_to("10.4.4.4:7000");
    struct player host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    struct player guest = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    world_inject(w, "10.0.0.2:6000", FRONT, 10);
    REQUIRE(world_relay(w, &guest, &host, &hosts, &clients));
    world_inject(w, "10.0.0.1:6000", FRONT, 10);
    CHECK_EQ(targets(), 2.0);
    CHECK_EQ(world_metric(w, "moonrelay_relays{kind=\"player\"}"), 2.0);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", hosts, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.0.0.1:6000");
    /* He moves: his relay follows him, the flow stays with the address it has. */
    CHECK_STR(world_see(w, &guest, "10.0.0.2:6001"), "OK");
    CHECK_EQ(world_decide(w, "10.0.0.2:6001", hosts, to, NULL), MR_VERDICT_FORWARD);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", FRONT, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.4.4.4:7000");
    CHECK_NE(world_decide(w, "10.0.0.2:6001", FRONT, NULL, NULL), MR_VERDICT_FORWARD);
    let_world_close();
}

TEST(a_lookup_that_comes_too_late_leaves_nothing_behind)
{
    open_world(NULL, "");
    admit_to("a.fleet:7000");
    w->name_is = "10.4.4.4";
    w->are_lookups_slow = true;
    world_inject(w, client, FRONT, 10);
    REQUIRE_EQ(w->n_lookups, 1);
    CHECK_EQ(w->lookups[0].op, MR_LOOKUP_TARGET);
    CHECK_STR(w->lookups[0].host, "a.fleet");
    CHECK_EQ(w->lookups[0].family, 4);
    CHECK_EQ(world_metric(w, "moonrelay_held"), 1.0);
    world_advance(w, 2100);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_HOLD_EXPIRED), 1);
    /* Another datagram meanwhile waits for what comes of the first. */
    world_inject(w, client, FRONT, 10);
    CHECK_EQ(w->n_lookups, 1);
    w->are_lookups_slow = false;
    world_answer_lookups(w);
    CHECK_EQ(w->looked_up, 2);
    CHECK_EQ(targets(), 1.0);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_FORWARD), 1);
    let_world_close();
}

TEST(what_changes_during_a_lookup_is_seen_after_it)
{
    for (int what = 0; what < 3; what++) {
        open_world(NULL, "");
        admit_to("10.4.4.4:7000");
        w->are_lookups_slow = true;
        world_inject(w, client, FRONT, 10);
        REQUIRE_EQ(w->n_lookups, 1);
        if (what == 0) { /* the port is closed */
            world_open_fronts(w, NULL, 0);
            CHECK_EQ(w->fronts.closed, 1);
            CHECK_EQ(w->n_lookups, 0);
        } else if (what == 1) { /* the service ends */
            world_close(w);
            continue;
        } else { /* all ports are taken */
            for (unsigned i = 0; i < 7; i++) {
                char other[40];
                snprintf(other, sizeof other, "198.51.100.%u:4000", i + 1);
                world_inject(w, other, FRONT, 10);
            }
            world_answer_lookups(w);
            CHECK_EQ(targets(), 8.0); /* half of 16 */
            world_inject(w, "198.51.100.99:4000", FRONT, 10);
            CHECK_EQ(w->n_lookups, 0);
        }
        let_world_close();
    }
}

TEST(two_open_ports_have_a_flow_of_one_client_each)
{
    const struct open_port ports[] = {{.number = FRONT, .place = ""},
                                      {.number = FRONT + 1, .place = ""}};
    unsigned first = 0, second = 0;

    w = world_open(NULL);
    world_open_fronts(w, ports, 2);
    admit_to("10.4.4.4:7000");
    w->are_lookups_slow = true;
    world_inject(w, client, FRONT, 10);
    world_inject(w, client, FRONT + 1, 10);
    CHECK_EQ(w->n_lookups, 2);
    world_answer_lookups(w);
    CHECK_EQ(world_decide(w, client, FRONT, NULL, &first), MR_VERDICT_FORWARD);
    CHECK_EQ(world_decide(w, client, FRONT + 1, NULL, &second), MR_VERDICT_FORWARD);
    CHECK_NE(first, second);
    let_world_close();
}

TEST(caps_bind_flows_to_targets_by_client_and_share_but_not_by_server)
{
    char from[40];

    open_world((const char *[]){"udp_relay_ports=49152+199", "dynamic_per_address=3",
                                "dynamic_per_target=1", NULL},
               "10.4.4.4:7000");
    for (unsigned i = 0; i < 5; i++) {
        snprintf(from, sizeof from, "203.0.113.5:%u", 4000 + i);
        world_inject(w, from, FRONT, 10);
    }
    CHECK_EQ(targets(), 3.0);
    for (unsigned i = 0; i < 150; i++) {
        snprintf(from, sizeof from, "198.51.100.%u:4000", i + 1);
        world_inject(w, from, FRONT, 10);
    }
    CHECK_EQ(targets(), 100.0); /* half of 200 */
    let_world_close();
}

static double new_flow_drops(void)
{
    return world_metric(w, "moonrelay_drops_total{reason=\"new_flow\"}");
}

TEST(a_drain_lets_flows_go_on_and_their_clients_come_back_but_nobody_new)
{
    char to[MR_ADDR_TEXT_MAX];

    open_world(NULL, "10.4.4.4:7000");
    world_inject(w, client, FRONT, 10);
    REQUIRE_EQ(targets(), 1.0);
    REQUIRE_EQ(mr__service_drain(w->service, 600000000000, "test", w->now_ns), 0);
    world_inject(w, "198.51.100.9:4000", FRONT, 10);
    CHECK_EQ(targets(), 1.0);
    CHECK_EQ(new_flow_drops(), 1.0);
    CHECK_EQ(world_decide(w, client, FRONT, to, NULL), MR_VERDICT_FORWARD);
    world_inject(w, "203.0.113.5:4001", FRONT, 10); /* started again, or behind another mapping */
    CHECK_EQ(targets(), 2.0);
    CHECK_EQ(new_flow_drops(), 1.0);
    REQUIRE_EQ(mr__service_drain_cancel(w->service, "test", w->now_ns), 0);
    world_advance(w, 2000); /* quiet for a second */
    world_inject(w, "198.51.100.9:4000", FRONT, 10);
    CHECK_EQ(targets(), 3.0);
    let_world_close();
}

TEST(a_port_that_is_not_listed_any_more_closes_with_its_last_flow)
{
    struct open_port_info info;
    const struct open_port other = {.number = FRONT + 1, .place = ""};

    open_world(NULL, "10.4.4.4:7000");
    world_inject(w, client, FRONT, 10);
    world_open_fronts(w, &other, 1);
    CHECK_EQ(w->fronts.opened, 1);
    CHECK_EQ(w->fronts.draining, 1);
    REQUIRE(mr__service_front(w->service, 0, &info));
    CHECK(info.is_leaving);
    CHECK_EQ(info.flows, 1);
    CHECK_EQ(world_decide(w, client, FRONT, NULL, NULL), MR_VERDICT_FORWARD);
    world_inject(w, "203.0.113.6:4000", FRONT, 10);
    CHECK_EQ(targets(), 1.0); /* no new one */
    CHECK_EQ(world_verdicts(w, MR_VERDICT_NEW_FLOW), 1);
    world_advance(w, 31000);
    CHECK_EQ(world_port(w, FRONT), UINT32_MAX);
    CHECK(world_port(w, FRONT + 1) != UINT32_MAX);
    REQUIRE(mr__service_front(w->service, 0, &info));
    CHECK_EQ(info.local.port, FRONT + 1);
    CHECK(!mr__service_front(w->service, 1, &info));
    let_world_close();
}

TEST(a_port_that_closes_takes_no_flow_whose_lookup_was_under_way)
{
    open_world(NULL, "10.4.4.4:7000");
    world_inject(w, client, FRONT, 10);
    w->are_lookups_slow = true;
    world_inject(w, "203.0.113.6:4000", FRONT, 10);
    REQUIRE_EQ(w->n_lookups, 1);
    world_open_fronts(w, NULL, 0);
    CHECK_EQ(w->fronts.draining, 1);
    world_answer_lookups(w);
    CHECK_EQ(targets(), 1.0);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_NEW_FLOW), 1);
    let_world_close();
}

TEST(a_flow_never_leaves_from_the_port_that_it_comes_in_at)
{
    for (unsigned i = 0; i < 20; i++) { /* ports are drawn at random */
        unsigned egress = 0;

        w = world_open((const char *[]){"udp_relay_ports=49152+3", "dynamic_share=100", NULL});
        admit_to("10.4.4.4:7000");
        world_inject(w, client, 49152, 10);
        CHECK_EQ(world_decide(w, client, 49152, NULL, &egress), MR_VERDICT_FORWARD);
        CHECK_NE(egress, 49152);
        let_world_close();
    }
}

TEST(a_port_that_is_listed_again_while_it_closes_stays)
{
    struct open_port port = {.number = FRONT, .place = ""};

    open_world(NULL, "10.4.4.4:7000");
    world_inject(w, client, FRONT, 10);
    world_open_fronts(w, NULL, 0);
    snprintf(port.spec.target, sizeof port.spec.target, "10.4.4.5:7000");
    world_open_fronts(w, &port, 1);
    CHECK_EQ(w->fronts.opened, 0);
    world_inject(w, "203.0.113.6:4000", FRONT, 10);
    char to[MR_ADDR_TEXT_MAX];
    CHECK_EQ(world_decide(w, "203.0.113.6:4000", FRONT, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.4.4.5:7000");
    CHECK_EQ(world_decide(w, client, FRONT, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.4.4.4:7000");
    let_world_close();
}

TEST(a_stranger_at_a_players_port_may_be_sent_to_a_target_until_that_relay_ends)
{
    unsigned hosts, clients;
    char to[MR_ADDR_TEXT_MAX];

    w = world_open((const char *[]){"udp_relay_timeout=30s", NULL});
    struct player host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    struct player guest = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    REQUIRE(world_relay(w, &guest, &host, &hosts, &clients));
    struct hook_answer *a = admit_to("10.4.4.4:7000");
    a->spec.has_idle = true;
    a->spec.idle_ns = 300000000000;
    world_inject(w, client, hosts, 10);
    CHECK_EQ(world_decide(w, client, hosts, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.4.4.4:7000");
    world_advance(w, 31000); /* the players' end */
    CHECK_EQ(world_metric(w, "moonrelay_relays{kind=\"player\"}"), 0.0);
    CHECK_EQ(targets(), 0.0);
    CHECK_NE(world_decide(w, client, hosts, NULL, NULL), MR_VERDICT_FORWARD);
    let_world_close();
}

TEST(a_flow_at_a_free_port_ends_when_the_port_gets_a_relay)
{
    unsigned hosts, clients;
    char from[40];

    w = world_open((const char *[]){"udp_relay_ports=49152+3", "dynamic_share=100",
                                    "dynamic_per_address=100", NULL});
    admit_to("10.4.4.4:7000");
    for (unsigned i = 0; i < 4; i++) {
        snprintf(from, sizeof from, "203.0.113.5:%u", 4000 + i);
        world_inject(w, from, 49152 + i, 10);
    }
    CHECK(targets() >= 1.0); /* two, but that a flow may come in at the port of the other */
    struct player host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    struct player guest = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    REQUIRE(world_relay(w, &guest, &host, &hosts, &clients));
    for (unsigned i = 0; i < 4; i++) {
        snprintf(from, sizeof from, "203.0.113.5:%u", 4000 + i);
        if (49152 + i == hosts || 49152 + i == clients) {
            CHECK_NE(world_decide(w, from, 49152 + i, NULL, NULL), MR_VERDICT_FORWARD);
        }
    }
    let_world_close();
}

static unsigned block(const char *text)
{
    static struct hook_pair pairs[MR_TAGS_MAX];
    struct block_what what;
    char why[MR_CIDR_WHY_MAX] = "";
    unsigned ended = 99;

    REQUIRE(mr__block_parse(&what, text, strlen(text), pairs, why));
    CHECK_EQ(mr__blocks_add(w->service, &what, 60, (struct str){"bad", 3}, (struct str){"us", 2},
                            &ended),
             0);
    world_settle(w);
    return ended;
}

TEST(a_block_ends_the_flows_of_whom_it_meets_and_begins_none)
{
    static const char *const blocks[] = {"203.0.113.0/24", "203.0.113.5:4000", "a=b"};

    for (unsigned i = 0; i < 3; i++) {
        struct hook_answer *a;

        open_world(NULL, "");
        a = admit_to("10.4.4.4:7000");
        a->tags = (struct hook_map){&(struct hook_pair){{"a", 1}, {"b", 1}}, 1};
        world_answer(w, MR_HOOK_DESTROYED, MR_HOOK_NO_OPINION);
        world_inject(w, client, FRONT, 10);
        CHECK_EQ(targets(), 1.0);
        CHECK_EQ(block(blocks[i]), 1);
        CHECK(strstr(w->seen[MR_HOOK_DESTROYED], "reason=blocked"));
        CHECK_EQ(targets(), 0.0);
        world_inject(w, client, FRONT, 10);
        CHECK_EQ(world_verdicts(w, MR_VERDICT_BLOCKED), 1);
        CHECK_EQ(targets(), 0.0);
        /* By tags: whoever gets them. */
        world_inject(w, "198.51.100.9:4000", FRONT, 10);
        CHECK_EQ(targets(), i == 2 ? 0.0 : 1.0);
        let_world_close();
    }
}

TEST(a_kicked_players_flows_end_as_well)
{
    open_world(NULL, "10.4.4.4:7000");
    struct player p = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    struct hook_session view;
    world_inject(w, "10.0.0.2:6000", FRONT, 10);
    world_inject(w, "10.0.0.3:6000", FRONT, 10);
    CHECK_EQ(targets(), 2.0);
    REQUIRE(mr__players_session(w->service, (struct str){p.oid, strlen(p.oid)}, &view));
    CHECK_EQ(mr__players_kick(w->service, view.id, (struct str){"", 0}), 0);
    world_settle(w);
    CHECK_EQ(targets(), 1.0);
    world_inject(w, "10.0.0.2:6000", FRONT, 10);
    CHECK_EQ(targets(), 1.0);
    let_world_close();
}

TEST(a_flow_is_a_relay_that_is_seen_and_can_be_closed)
{
    char text[32];
    struct hook_relay view;
    mr_relay_id id;
    char addr[MR_ADDR_TEXT_MAX];

    open_world(NULL, "10.4.4.4:7000");
    world_inject(w, client, FRONT, 10);
    id = mr_relay_next(w->mr, 0);
    struct str name = {text, mr_relay_format(w->mr, id, text, sizeof text)};
    REQUIRE(mr__players_relay(w->service, name, &view));
    CHECK_STR(view.kind, "target");
    mr_addr_format(&view.dest, addr, sizeof addr);
    CHECK_STR(addr, "10.4.4.4:7000");
    mr_addr_format(&view.addr, addr, sizeof addr);
    CHECK_STR(addr, client);
    CHECK_EQ(view.packets_in, 1);
    CHECK_EQ(mr__players_close(w->service, name, (struct str){"", 0}), 0);
    world_settle(w);
    CHECK_EQ(targets(), 0.0);
    CHECK_NE(world_decide(w, client, FRONT, NULL, NULL), MR_VERDICT_FORWARD);
    let_world_close();
}

TEST_MAIN(TEST_CASE(a_target_is_written_as_host_and_port),
          TEST_CASE(a_new_flow_is_asked_about_and_goes_to_the_target_and_back),
          TEST_CASE(a_name_is_looked_up_once_for_a_flow_and_not_for_its_datagrams),
          TEST_CASE(an_open_port_with_a_target_admits_what_no_policy_speaks_of),
          TEST_CASE(an_open_port_without_any_target_drops_and_says_so),
          TEST_CASE(the_presets_of_an_open_port_bind_and_the_stricter_one_wins),
          TEST_CASE(a_hostile_target_gets_nothing_and_the_log_says_why),
          TEST_CASE(no_target_lies_in_a_denied_network),
          TEST_CASE(nobody_else_reaches_the_port_of_a_flow_and_no_policy_is_asked_about_it),
          TEST_CASE(a_player_may_be_the_client_of_an_open_port_and_keeps_his_own_relay),
          TEST_CASE(a_lookup_that_comes_too_late_leaves_nothing_behind),
          TEST_CASE(what_changes_during_a_lookup_is_seen_after_it),
          TEST_CASE(two_open_ports_have_a_flow_of_one_client_each),
          TEST_CASE(caps_bind_flows_to_targets_by_client_and_share_but_not_by_server),
          TEST_CASE(a_drain_lets_flows_go_on_and_their_clients_come_back_but_nobody_new),
          TEST_CASE(a_port_that_is_not_listed_any_more_closes_with_its_last_flow),
          TEST_CASE(a_port_that_closes_takes_no_flow_whose_lookup_was_under_way),
          TEST_CASE(a_flow_never_leaves_from_the_port_that_it_comes_in_at),
          TEST_CASE(a_port_that_is_listed_again_while_it_closes_stays),
          TEST_CASE(a_stranger_at_a_players_port_may_be_sent_to_a_target_until_that_relay_ends),
          TEST_CASE(a_flow_at_a_free_port_ends_when_the_port_gets_a_relay),
          TEST_CASE(a_block_ends_the_flows_of_whom_it_meets_and_begins_none),
          TEST_CASE(a_kicked_players_flows_end_as_well),
          TEST_CASE(a_flow_is_a_relay_that_is_seen_and_can_be_closed))
