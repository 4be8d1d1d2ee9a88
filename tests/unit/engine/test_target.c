/* SPDX-License-Identifier: MIT */
/*
 * Relays that are reached by links only, and the two links that send a flow on to a server,
 * over no-op sockets and a virtual clock. One thread. Start reading at the tests.
 */
#include "rig.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t second = 1000000000;

enum { FRONT = 0, EGRESS = 1, SPARE = 2 }; /* port indexes */

/* A client at the open port FRONT, whose flow goes through EGRESS to a server. */
struct flow {
    struct rig rig;
    struct mr_addr client, server;
    mr_relay_id relay;
};

static int make(struct rig *rig, uint32_t port, const struct mr_addr *peer,
                const struct mr_relay_limits *limits, mr_relay_id *id)
{
    struct mr_relay_spec spec;

    mr_relay_spec_init(&spec, sizeof spec);
    spec.port = port;
    spec.peer = *peer;
    spec.flags = MR_RELAY_LINKED;
    if (limits)
        spec.limits = *limits;
    return mr_relay_create(rig->mr, &spec, id);
}

static struct flow *flow_open(struct mr_options o, const struct mr_relay_limits *limits)
{
    struct flow *f = calloc(1, sizeof *f);

    rig_open(&f->rig, &o, 4);
    f->client = rig_addr("203.0.113.7:4000");
    f->server = rig_addr("10.4.4.4:7777");
    REQUIRE_EQ(make(&f->rig, EGRESS, &f->client, limits, &f->relay), 0);
    REQUIRE_EQ(mr_target_add(f->rig.mr, f->relay, FRONT, &f->server), 0);
    rig_settle(&f->rig);
    rig_forget(&f->rig);
    return f;
}

static void flow_close(struct flow *f)
{
    rig_check_conservation(&f->rig);
    rig_close(&f->rig);
    free(f);
}

static void send(struct flow *f, uint32_t port, const struct mr_addr *from, size_t n)
{
    static const char zeros[1500];

    REQUIRE_EQ(mr_inject(f->rig.mr, port, from, zeros, n), 0);
    rig_poll(&f->rig);
}

static int decide(struct flow *f, uint32_t port, const struct mr_addr *from,
                  struct mr_decision *out)
{
    return mr_decide(f->rig.mr, from, port, 1, rig_now_ns, out);
}

TEST(a_flow_leaves_from_its_own_port_and_the_answers_from_the_open_one)
{
    struct flow *f = flow_open(rig_virtual_options(), NULL);
    struct mr_decision out;

    REQUIRE_EQ(decide(f, FRONT, &f->client, &out), (int)MR_VERDICT_FORWARD);
    CHECK_EQ(out.egress, (uint32_t)EGRESS);
    CHECK(mr_addr_equal(&out.to, &f->server));
    CHECK_EQ(out.sender, f->relay);
    REQUIRE_EQ(decide(f, EGRESS, &f->server, &out), (int)MR_VERDICT_FORWARD);
    CHECK_EQ(out.egress, (uint32_t)FRONT);
    CHECK(mr_addr_equal(&out.to, &f->client));
    CHECK_EQ(out.sender, f->relay);
    CHECK_EQ(mr_is_linked(f->rig.mr, FRONT, &f->client), 1);
    CHECK_EQ(mr_is_linked(f->rig.mr, FRONT, &f->server), 0);
    flow_close(f);
}

TEST(what_the_client_sends_is_counted_in_and_what_the_server_sends_out)
{
    struct flow *f = flow_open(rig_virtual_options(), NULL);
    struct mr_relay_info info;

    for (unsigned i = 0; i < 3; i++)
        send(f, FRONT, &f->client, 10);
    for (unsigned i = 0; i < 2; i++)
        send(f, EGRESS, &f->server, 100);
    REQUIRE_EQ(mr_relay_info(f->rig.mr, f->relay, &info), 0);
    CHECK_EQ(info.counts.packets_in, 3);
    CHECK_EQ(info.counts.bytes_in, 30);
    CHECK_EQ(info.counts.packets_out, 2);
    CHECK_EQ(info.counts.bytes_out, 200);
    CHECK_EQ(rig_stats(&f->rig).verdicts[MR_VERDICT_FORWARD], 5);
    flow_close(f);
}

TEST(nobody_but_the_server_is_known_at_the_port_of_a_flow)
{
    for (int is_open = 0; is_open <= 1; is_open++) {
        struct mr_options o = rig_virtual_options();
        struct mr_addr other = rig_addr("10.4.4.4:7778"), player = rig_addr("10.0.0.1:4000");
        struct mr_decision out;
        struct flow *f;

        o.pairing = is_open ? MR_PAIRING_OPEN : MR_PAIRING_PAIRED;
        f = flow_open(o, NULL);
        rig_relay(&f->rig, SPARE, &player);
        CHECK_EQ(decide(f, EGRESS, &other, &out), (int)MR_VERDICT_UNKNOWN_SENDER);
        CHECK_EQ(decide(f, EGRESS, &player, &out), (int)MR_VERDICT_UNKNOWN_SENDER);
        CHECK_EQ(decide(f, EGRESS, &f->client, &out), (int)MR_VERDICT_UNKNOWN_SENDER);
        /* Neither is the client known at a player's. */
        CHECK_EQ(decide(f, SPARE, &f->client, &out), (int)MR_VERDICT_UNKNOWN_SENDER);
        flow_close(f);
    }
}

TEST(a_linked_relay_is_nobody_at_its_address)
{
    struct flow *f = flow_open(rig_virtual_options(), NULL);
    mr_relay_id player;

    CHECK_EQ(mr_relay_of(f->rig.mr, &f->client), 0);
    player = rig_relay(&f->rig, SPARE, &f->client);
    CHECK_EQ(mr_relay_of(f->rig.mr, &f->client), player);
    CHECK_EQ(mr_relay_close(f->rig.mr, f->relay), 0);
    CHECK_EQ(mr_relay_of(f->rig.mr, &f->client), player);
    flow_close(f);
}

TEST(a_linked_relay_is_no_partner_and_does_not_move)
{
    struct flow *f = flow_open(rig_virtual_options(), NULL);
    struct mr_addr player = rig_addr("10.0.0.1:4000");
    mr_relay_id other = rig_relay(&f->rig, SPARE, &player);

    CHECK_EQ(mr_pair(f->rig.mr, f->relay, other), -EINVAL);
    CHECK_EQ(mr_pair(f->rig.mr, other, f->relay), -EINVAL);
    CHECK_EQ(mr_pair(f->rig.mr, f->relay, f->relay), -EINVAL);
    CHECK_EQ(mr_relay_move(f->rig.mr, f->relay, &player, NULL), -EINVAL);
    CHECK_EQ(mr_target_add(f->rig.mr, other, FRONT, &f->server), -EINVAL);
    flow_close(f);
}

TEST(both_directions_keep_a_flow_alive_and_its_end_takes_both_links)
{
    struct mr_options o = rig_virtual_options();
    struct mr_decision out;
    struct flow *f;

    o.limits.idle_ns = 30 * second;
    f = flow_open(o, NULL);
    for (unsigned i = 0; i < 5; i++) {
        rig_now_ns += 20 * second;
        send(f, i % 2 ? FRONT : EGRESS, i % 2 ? &f->client : &f->server, 1);
        rig_settle(&f->rig);
    }
    CHECK_EQ(rig_count(&f->rig, MR_EVENT_ENDED), 0);
    rig_now_ns += 31 * second;
    rig_settle(&f->rig);
    REQUIRE_EQ(rig_count(&f->rig, MR_EVENT_ENDED), 1);
    CHECK_EQ((int)rig_event(&f->rig, MR_EVENT_ENDED, 0)->u.ended.reason, (int)MR_END_IDLE);
    CHECK_EQ(rig_event(&f->rig, MR_EVENT_ENDED, 0)->u.ended.counts.packets_out, 3);
    CHECK_EQ(decide(f, FRONT, &f->client, &out), (int)MR_VERDICT_UNKNOWN_TARGET);
    CHECK_EQ(decide(f, EGRESS, &f->server, &out), (int)MR_VERDICT_UNKNOWN_TARGET);
    CHECK_EQ(mr_is_linked(f->rig.mr, FRONT, &f->client), 0);
    flow_close(f);
}

TEST(the_limits_of_a_flow_hold_for_both_directions_together)
{
    const struct mr_relay_limits limits = {.max_bytes = 1000};
    struct flow *f = flow_open(rig_virtual_options(), &limits);

    send(f, FRONT, &f->client, 500);
    send(f, EGRESS, &f->server, 499);
    CHECK_EQ(rig_stats(&f->rig).verdicts[MR_VERDICT_TRAFFIC], 0);
    send(f, EGRESS, &f->server, 1);
    CHECK_EQ(rig_stats(&f->rig).verdicts[MR_VERDICT_TRAFFIC], 1);
    rig_settle(&f->rig);
    REQUIRE_EQ(rig_count(&f->rig, MR_EVENT_ENDED), 1);
    CHECK_EQ((int)rig_event(&f->rig, MR_EVENT_ENDED, 0)->u.ended.reason, (int)MR_END_TRAFFIC);
    flow_close(f);
}

TEST(a_target_is_never_ours_nor_many_nor_nobody_and_a_refused_one_leaves_no_link)
{
    static const char *const never[] = {"0.0.0.0:80", "224.0.0.1:5353", "255.255.255.255:9",
                                        "10.4.4.4:0"};
    struct flow *f = flow_open(rig_virtual_options(), NULL);
    struct mr_addr client = rig_addr("203.0.113.8:4000"), v6 = rig_addr("[2001:db8::1]:9");
    struct mr_port_info info = {.relay = 0};
    struct mr_decision out;
    mr_relay_id relay;

    REQUIRE_EQ(make(&f->rig, SPARE, &client, NULL, &relay), 0);
    for (unsigned i = 0; i < sizeof never / sizeof never[0]; i++) {
        struct mr_addr dest = rig_addr(never[i]);

        CHECK_EQ(mr_target_add(f->rig.mr, relay, FRONT, &dest), -EDESTADDRREQ);
    }
    REQUIRE_EQ(mr_port_info(f->rig.mr, EGRESS, &info), 0);
    CHECK_EQ(mr_target_add(f->rig.mr, relay, FRONT, &info.local), -EADDRNOTAVAIL);
    CHECK_EQ(mr_target_add(f->rig.mr, relay, FRONT, &v6), -EAFNOSUPPORT);
    CHECK_EQ(mr_target_add(f->rig.mr, relay, 77, &f->server), -EINVAL);
    CHECK_EQ(mr_target_add(f->rig.mr, relay, SPARE, &f->server), -EINVAL);
    CHECK_EQ(mr_target_add(f->rig.mr, relay + (UINT64_C(1) << 40), FRONT, &f->server), -ENOENT);
    CHECK_EQ(decide(f, SPARE, &f->server, &out), (int)MR_VERDICT_UNKNOWN_SENDER);
    CHECK_EQ(mr_target_add(f->rig.mr, relay, FRONT, &f->server), 0);
    CHECK_EQ(mr_target_add(f->rig.mr, relay, FRONT, &f->server), -EEXIST);
    /* One client, one port: the second server finds the flow there already. */
    CHECK_EQ(mr_relay_close(f->rig.mr, relay), 0);
    rig_settle(&f->rig);
    REQUIRE_EQ(make(&f->rig, SPARE, &f->client, NULL, &relay), 0);
    CHECK_EQ(mr_target_add(f->rig.mr, relay, FRONT, &client), -EEXIST);
    CHECK_EQ(decide(f, SPARE, &client, &out), (int)MR_VERDICT_UNKNOWN_SENDER);
    flow_close(f);
}

TEST(closing_the_open_port_takes_both_links)
{
    struct flow *f = flow_open(rig_virtual_options(), NULL);
    struct mr_decision out;

    CHECK_EQ(mr_port_close(f->rig.mr, FRONT), 0);
    CHECK_EQ(decide(f, EGRESS, &f->server, &out), (int)MR_VERDICT_UNKNOWN_SENDER);
    CHECK_EQ(mr_relay_close(f->rig.mr, f->relay), 0);
    rig_settle(&f->rig);
    CHECK_EQ(rig_count(&f->rig, MR_EVENT_ENDED), 1);
    flow_close(f);
}

/* An answer may be there before a worker has the link for it: it waits, as any flow does. */
TEST(an_answer_that_comes_before_its_link_is_held_and_not_lost)
{
    struct flow *f = flow_open(rig_virtual_options(), NULL);
    struct mr_addr client = rig_addr("203.0.113.8:4000");
    struct mr_relay_info info;
    mr_relay_id relay;

    mr_set_miss_events(f->rig.mr, 1);
    REQUIRE_EQ(make(&f->rig, SPARE, &client, NULL, &relay), 0);
    send(f, SPARE, &f->server, 5);
    REQUIRE_EQ(rig_count(&f->rig, MR_EVENT_MISS), 1);
    CHECK_EQ((int)rig_event(&f->rig, MR_EVENT_MISS, 0)->u.miss.reason,
             (int)MR_VERDICT_UNKNOWN_SENDER);
    CHECK_EQ(mr_target_add(f->rig.mr, relay, FRONT, &f->server), 0);
    rig_settle(&f->rig);
    REQUIRE_EQ(mr_relay_info(f->rig.mr, relay, &info), 0);
    CHECK_EQ(info.counts.packets_out, 1);
    CHECK_EQ(info.counts.packets_in, 0);
    flow_close(f);
}

TEST_MAIN(TEST_CASE(a_flow_leaves_from_its_own_port_and_the_answers_from_the_open_one),
          TEST_CASE(what_the_client_sends_is_counted_in_and_what_the_server_sends_out),
          TEST_CASE(nobody_but_the_server_is_known_at_the_port_of_a_flow),
          TEST_CASE(a_linked_relay_is_nobody_at_its_address),
          TEST_CASE(a_linked_relay_is_no_partner_and_does_not_move),
          TEST_CASE(both_directions_keep_a_flow_alive_and_its_end_takes_both_links),
          TEST_CASE(the_limits_of_a_flow_hold_for_both_directions_together),
          TEST_CASE(a_target_is_never_ours_nor_many_nor_nobody_and_a_refused_one_leaves_no_link),
          TEST_CASE(closing_the_open_port_takes_both_links),
          TEST_CASE(an_answer_that_comes_before_its_link_is_held_and_not_lost))
