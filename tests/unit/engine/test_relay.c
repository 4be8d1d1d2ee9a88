/* SPDX-License-Identifier: MIT */
/*
 * Ports, relays, pairs, links, limits, names and figures, over no-op sockets and a
 * virtual clock. One thread. Start reading at the tests.
 */
#include "rig.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t second = 1000000000;

/* Two paired peers: a at port 0, b at port 1. */
struct duo {
    struct rig rig;
    struct mr_addr a, b;
    mr_relay_id ra, rb;
};

static struct duo *duo_open(struct mr_options o)
{
    struct duo *d = calloc(1, sizeof *d);

    rig_open(&d->rig, &o, 4);
    d->a = rig_addr("10.0.0.1:4000");
    d->b = rig_addr("10.0.0.2:4000");
    d->ra = rig_relay(&d->rig, 0, &d->a);
    d->rb = rig_relay(&d->rig, 1, &d->b);
    CHECK_EQ(mr_pair(d->rig.mr, d->ra, d->rb), 0);
    rig_settle(&d->rig);
    rig_forget(&d->rig);
    return d;
}

static void duo_close(struct duo *d)
{
    rig_check_conservation(&d->rig);
    rig_close(&d->rig);
    free(d);
}

/* a sends n bytes to b. */
static void pass(struct duo *d, size_t n)
{
    static const char zeros[65507];

    REQUIRE_EQ(mr_inject(d->rig.mr, 1, &d->a, zeros, n), 0);
    rig_poll(&d->rig);
}

static uint64_t verdicts(struct duo *d, enum mr_verdict v)
{
    return rig_stats(&d->rig).verdicts[v];
}

/* ------------------------------------------------------------------ decisions and counts */

TEST(a_decision_names_way_and_relays_and_is_counted)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_decision out;
    struct mr_addr stranger = rig_addr("10.9.9.9:1"), mapped = d->a;
    struct mr_relay_info info;

    CHECK_EQ(mr_decide(d->rig.mr, &d->a, 1, 100, rig_now_ns, &out), (int)MR_VERDICT_FORWARD);
    CHECK_EQ(out.egress, 0);
    CHECK(mr_addr_equal(&out.to, &d->b));
    CHECK_EQ(out.sender, d->ra);
    CHECK_EQ(out.target, d->rb);
    memset(&mapped, 0, sizeof mapped);
    mapped.family = 6;
    mapped.port = 4000;
    mapped.ip[10] = mapped.ip[11] = 0xff;
    memcpy(mapped.ip + 12, d->a.ip, 4);
    CHECK_EQ(mr_decide(d->rig.mr, &mapped, 1, 100, rig_now_ns, &out), (int)MR_VERDICT_FORWARD);

    CHECK_EQ(mr_decide(d->rig.mr, &stranger, 1, 1, rig_now_ns, &out),
             (int)MR_VERDICT_UNKNOWN_SENDER);
    CHECK_EQ(out.sender, 0);
    CHECK_EQ(mr_decide(d->rig.mr, &stranger, 99999, 1, rig_now_ns, &out), -EINVAL);
    CHECK_EQ(mr_relay_info(d->rig.mr, d->ra, &info), 0);
    CHECK_EQ(info.counts.packets_in, 2);
    CHECK_EQ(info.counts.bytes_in, 200);
    CHECK_EQ(mr_relay_info(d->rig.mr, d->rb, &info), 0);
    CHECK_EQ(info.counts.packets_out, 2);
    CHECK_EQ(rig_stats(&d->rig).received, 3);
    duo_close(d);
}

TEST(counts_are_a_sum_over_all_data_paths)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_decision out;
    struct mr_relay_info info;

    pass(d, 10);
    (void)mr_decide(d->rig.mr, &d->a, 1, 5, rig_now_ns, &out);
    CHECK_EQ(mr_relay_info(d->rig.mr, d->ra, &info), 0);
    CHECK_EQ(info.counts.packets_in, 2);
    CHECK_EQ(info.counts.bytes_in, 15);
    CHECK_EQ(info.last_activity_ns, rig_now_ns);
    duo_close(d);
}

TEST(a_new_relay_has_none_of_the_counts_of_the_one_before_at_its_port)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_addr next = rig_addr("10.0.0.9:1");
    struct mr_relay_info info;

    pass(d, 10);
    CHECK_EQ(mr_relay_close(d->rig.mr, d->ra), 0);
    CHECK(rig_await(&d->rig, MR_EVENT_ENDED, 1));
    CHECK_EQ(rig_event(&d->rig, MR_EVENT_ENDED, 0)->u.ended.counts.packets_in, 1);
    d->ra = rig_relay(&d->rig, 0, &next);
    CHECK_EQ(mr_relay_info(d->rig.mr, d->ra, &info), 0); /* no worker knows it yet */
    CHECK_EQ(info.counts.packets_in, 0);
    rig_settle(&d->rig);
    CHECK_EQ(mr_relay_info(d->rig.mr, d->ra, &info), 0);
    CHECK_EQ(info.counts.packets_in, 0);
    duo_close(d);
}

TEST(histograms_hold_every_datagram)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_stats s;
    uint64_t sizes = 0, durations = 0;

    pass(d, 0);
    pass(d, 1);
    pass(d, 2);
    pass(d, 1024);
    pass(d, 1025);
    pass(d, 65507);
    s = rig_stats(&d->rig);
    CHECK_EQ(s.size_bytes.counts[0], 2);
    CHECK_EQ(s.size_bytes.counts[1], 1);
    CHECK_EQ(s.size_bytes.counts[10], 1);
    CHECK_EQ(s.size_bytes.counts[11], 1);
    CHECK_EQ(s.size_bytes.counts[16], 1);
    CHECK_EQ(s.size_bytes.sum, 1 + 2 + 1024 + 1025 + 65507);
    for (unsigned k = 0; k < MR_HIST_BUCKETS; k++) {
        sizes += s.size_bytes.counts[k];
        durations += s.duration_ns.counts[k];
    }
    CHECK_EQ(sizes, 6);
    CHECK_EQ(durations, 6);
    duo_close(d);
}

TEST(figures_can_be_asked_for_by_an_older_caller)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_stats s;

    memset(&s, 0xee, sizeof s);
    CHECK_EQ(mr_get_stats(d->rig.mr, &s, offsetof(struct mr_stats, sent)), 0);
    CHECK_EQ(s.size, offsetof(struct mr_stats, sent));
    CHECK_EQ(s.received, 0);
    CHECK_EQ(s.sent, UINT64_C(0xeeeeeeeeeeeeeeee));
    CHECK_EQ(mr_get_stats(d->rig.mr, &s, sizeof s + 1), -EINVAL);
    CHECK_EQ(mr_get_stats(d->rig.mr, &s, 3), -EINVAL);
    duo_close(d);
}

/* ------------------------------------------------------------------ relays */

TEST(a_peer_has_to_be_somebody_who_can_be_reached)
{
    static const char *const nowhere[] = {"0.0.0.0:5", "224.0.0.1:5", "255.255.255.255:5",
                                          "10.0.0.1:0"};
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_relay_spec spec;
    mr_relay_id id = 7;

    mr_relay_spec_init(&spec, sizeof spec);
    spec.port = 2;
    for (unsigned i = 0; i < 4; i++) {
        spec.peer = rig_addr(nowhere[i]);
        CHECK_EQ(mr_relay_create(d->rig.mr, &spec, &id), -EDESTADDRREQ);
        CHECK_EQ(mr_relay_move(d->rig.mr, d->ra, &spec.peer, NULL), -EDESTADDRREQ);
    }
    spec.peer = rig_addr("[2001:db8::1]:5");
    CHECK_EQ(mr_relay_create(d->rig.mr, &spec, &id), -EAFNOSUPPORT);
    CHECK_EQ(mr_relay_move(d->rig.mr, d->ra, &spec.peer, NULL), -EAFNOSUPPORT);
    spec.peer.family = 0;
    CHECK_EQ(mr_relay_create(d->rig.mr, &spec, &id), -EINVAL);
    spec.peer = rig_addr("10.0.0.9:5");
    spec.port = 200;
    CHECK_EQ(mr_relay_create(d->rig.mr, &spec, &id), -EINVAL);
    spec.port = 1;
    CHECK_EQ(mr_relay_create(d->rig.mr, &spec, &id), -EBUSY);
    spec.port = 2;
    spec.size = 1;
    CHECK_EQ(mr_relay_create(d->rig.mr, &spec, &id), -EINVAL);
    CHECK_EQ(id, 7);
    CHECK_EQ(rig_stats(&d->rig).relays, 2);
    duo_close(d);
}

TEST(a_stale_id_is_nobody)
{
    struct duo *d = duo_open(rig_virtual_options());
    mr_relay_id old = d->ra;
    struct mr_relay_info info;
    struct mr_relay_limits limits = {0};

    CHECK_EQ(mr_relay_close(d->rig.mr, old), 0);
    rig_settle(&d->rig);
    d->ra = rig_relay(&d->rig, 0, &d->a);
    CHECK_NE(d->ra, old);
    CHECK_EQ(mr_relay_info(d->rig.mr, old, &info), -ENOENT);
    CHECK_EQ(mr_relay_close(d->rig.mr, old), -ENOENT);
    CHECK_EQ(mr_relay_move(d->rig.mr, old, &d->b, NULL), -ENOENT);
    CHECK_EQ(mr_relay_refresh(d->rig.mr, old), -ENOENT);
    CHECK_EQ(mr_relay_restart(d->rig.mr, old), -ENOENT);
    CHECK_EQ(mr_relay_set_user(d->rig.mr, old, 1), -ENOENT);
    CHECK_EQ(mr_relay_set_limits(d->rig.mr, old, &limits), -ENOENT);
    CHECK_EQ(mr_pair(d->rig.mr, old, d->rb), -ENOENT);
    CHECK_EQ(mr_unpair(d->rig.mr, old, d->rb), -ENOENT);
    CHECK_EQ(mr_is_paired(d->rig.mr, old, d->rb), -ENOENT);
    CHECK_EQ(mr_relay_info(d->rig.mr, d->ra, &info), 0);
    CHECK_EQ(mr_relay_info(d->rig.mr, 0, &info), -ENOENT);
    duo_close(d);
}

TEST(relays_are_found_by_port_address_and_order)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_addr nobody = rig_addr("10.0.0.77:1");

    CHECK_EQ(mr_relay_at(d->rig.mr, 0), d->ra);
    CHECK_EQ(mr_relay_at(d->rig.mr, 2), 0);
    CHECK_EQ(mr_relay_at(d->rig.mr, UINT32_MAX), 0);
    CHECK_EQ(mr_relay_of(d->rig.mr, &d->b), d->rb);
    CHECK_EQ(mr_relay_of(d->rig.mr, &nobody), 0);
    CHECK_EQ(mr_relay_next(d->rig.mr, 0), d->ra);
    CHECK_EQ(mr_relay_next(d->rig.mr, d->ra), d->rb);
    CHECK_EQ(mr_relay_next(d->rig.mr, d->rb), 0);
    duo_close(d);
}

TEST(two_relays_of_one_address_send_as_the_newest)
{
    struct duo *d = duo_open(rig_virtual_options());
    mr_relay_id newer = rig_relay(&d->rig, 2, &d->a);
    struct mr_decision out;

    CHECK_EQ(mr_relay_of(d->rig.mr, &d->a), newer);
    CHECK_EQ(mr_pair(d->rig.mr, newer, d->rb), 0);
    CHECK_EQ(mr_decide(d->rig.mr, &d->a, 1, 1, rig_now_ns, &out), (int)MR_VERDICT_FORWARD);
    CHECK_EQ(out.sender, newer);
    CHECK_EQ(out.egress, 2);
    /* Both ports deliver to it. */
    CHECK_EQ(mr_decide(d->rig.mr, &d->b, 0, 1, rig_now_ns, &out), (int)MR_VERDICT_FORWARD);
    CHECK_EQ(mr_decide(d->rig.mr, &d->b, 2, 1, rig_now_ns, &out), (int)MR_VERDICT_FORWARD);
    CHECK_EQ(mr_relay_close(d->rig.mr, newer), 0);
    CHECK_EQ(mr_decide(d->rig.mr, &d->a, 1, 1, rig_now_ns, &out), (int)MR_VERDICT_FORWARD);
    CHECK_EQ(out.sender, d->ra);
    rig_settle(&d->rig);
    pass(d, 1);
    CHECK_EQ(verdicts(d, MR_VERDICT_FORWARD), 5);
    duo_close(d);
}

TEST(a_moved_peer_keeps_port_pair_and_counts)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_addr to = rig_addr("10.0.0.1:5555"), local = rig_addr("192.0.2.1:1"), old = d->a;
    struct mr_relay_info info;

    pass(d, 10);
    CHECK_EQ(mr_relay_move(d->rig.mr, d->ra, &to, &local), 0);
    d->a = to;
    pass(d, 10);
    CHECK_EQ(verdicts(d, MR_VERDICT_FORWARD), 2);
    CHECK_EQ(mr_relay_info(d->rig.mr, d->ra, &info), 0);
    CHECK_EQ(info.port, 0);
    CHECK_EQ(info.counts.packets_in, 2);
    CHECK(mr_addr_equal(&info.peer, &to));
    CHECK(mr_addr_equal(&info.local, &local));
    d->a = old;
    pass(d, 10);
    CHECK_EQ(verdicts(d, MR_VERDICT_UNKNOWN_SENDER), 1);
    duo_close(d);
}

TEST(names_come_back_as_the_same_relay)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_addr twin = rig_addr("127.0.0.2:0");
    struct mr_port_info info = {.relay = 0};
    char text[64], bad[64];
    uint32_t port;
    mr_relay_id id;
    size_t n = mr_relay_format(d->rig.mr, d->ra, text, sizeof text);

    CHECK_EQ(n, strlen(text));
    snprintf(bad, sizeof bad, "%u.1", rig_udp_port(&d->rig, 0));
    CHECK_STR(text, bad);
    CHECK_EQ(mr_relay_parse(d->rig.mr, text, n), d->ra);
    /* Another port with the same UDP number on another address. */
    CHECK_EQ(mr_port_info(d->rig.mr, 0, &info), 0);
    twin.port = info.local.port;
    CHECK_EQ(mr_port_open(d->rig.mr, &twin, 0, &port), 0);
    id = rig_relay(&d->rig, port, &d->a);
    n = mr_relay_format(d->rig.mr, id, text, sizeof text);
    CHECK_EQ(mr_relay_parse(d->rig.mr, text, n), id);
    mr_relay_format(d->rig.mr, d->ra, bad, sizeof bad);
    CHECK(strcmp(text, bad) != 0);
    CHECK_EQ(mr_relay_parse(d->rig.mr, bad, strlen(bad)), d->ra);
    {
        static const char *const wrong[] = {
            "",     ".",    "1.",    ".1",      "1.1",  "x.1",   "-1.1",           "99999999.1",
            "1.1 ", "01.1", "1.1.1", "65536.1", "1@.1", "1@0.1", "1@99999999999.1"};

        for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
            CHECK_EQ(mr_relay_parse(d->rig.mr, wrong[i], strlen(wrong[i])), 0);
    }
    CHECK_EQ(mr_relay_format(d->rig.mr, d->ra, text, 3), 2);
    CHECK_EQ(mr_relay_format(d->rig.mr, 0, text, sizeof text), 0);
    duo_close(d);
}

/* ------------------------------------------------------------------ pairs and links */

TEST(pairing_twice_is_once_and_an_echo_needs_one_relay)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_decision out;

    CHECK_EQ(mr_pair(d->rig.mr, d->rb, d->ra), 0);
    CHECK_EQ(rig_stats(&d->rig).pairs, 1);
    CHECK_EQ(mr_is_paired(d->rig.mr, d->ra, d->rb), 1);
    CHECK_EQ(mr_unpair(d->rig.mr, d->ra, d->rb), 0);
    CHECK_EQ(mr_is_paired(d->rig.mr, d->ra, d->rb), 0);
    CHECK_EQ(mr_unpair(d->rig.mr, d->ra, d->rb), -ENOENT);
    pass(d, 1);
    CHECK_EQ(verdicts(d, MR_VERDICT_NOT_PAIRED), 1);
    CHECK_EQ(mr_pair(d->rig.mr, d->ra, d->ra), 0);
    CHECK_EQ(mr_decide(d->rig.mr, &d->a, 0, 1, rig_now_ns, &out), (int)MR_VERDICT_FORWARD);
    CHECK(mr_addr_equal(&out.to, &d->a));
    duo_close(d);
}

TEST(a_link_by_hand_ends_with_the_relay_that_pays)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_addr from = rig_addr("203.0.113.1:1"), to = rig_addr("198.51.100.1:2");
    struct mr_addr own = rig_addr("0.0.0.0:0");
    struct mr_decision out;
    struct mr_port_info info = {.relay = 0};

    CHECK_EQ(mr_link_add(d->rig.mr, 2, &from, 3, &to, d->ra), 0);
    CHECK_EQ(mr_link_add(d->rig.mr, 2, &from, 3, &to, d->ra), -EEXIST);
    CHECK_EQ(mr_link_add(d->rig.mr, 77, &from, 3, &to, d->ra), -EINVAL);
    CHECK_EQ(mr_link_add(d->rig.mr, 2, &from, 77, &to, d->ra), -EINVAL);
    CHECK_EQ(mr_link_add(d->rig.mr, 3, &from, 3, &to, d->ra + (UINT64_C(1) << 40)), -ENOENT);
    CHECK_EQ(mr_port_info(d->rig.mr, 3, &info), 0);
    own = info.local;
    CHECK_EQ(mr_link_add(d->rig.mr, 3, &from, 3, &own, d->ra), -EADDRNOTAVAIL);
    CHECK_EQ(mr_decide(d->rig.mr, &from, 2, 1, rig_now_ns, &out), (int)MR_VERDICT_FORWARD);
    CHECK_EQ(out.egress, 3);
    CHECK_EQ(out.sender, d->ra);
    CHECK(mr_addr_equal(&out.to, &to));
    CHECK_EQ(mr_link_remove(d->rig.mr, 2, &from), 0);
    CHECK_EQ(mr_link_remove(d->rig.mr, 2, &from), -ENOENT);
    CHECK_EQ(mr_link_add(d->rig.mr, 2, &from, 3, &to, d->ra), 0);
    CHECK_EQ(mr_relay_close(d->rig.mr, d->ra), 0);
    CHECK_EQ(mr_decide(d->rig.mr, &from, 2, 1, rig_now_ns, &out), (int)MR_VERDICT_UNKNOWN_TARGET);
    CHECK_EQ(mr_link_remove(d->rig.mr, 2, &from), -ENOENT);
    duo_close(d);
}

TEST(closing_a_port_takes_its_relay_and_every_link_through_it)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_addr from = rig_addr("203.0.113.1:1"), to = rig_addr("198.51.100.1:2");
    struct mr_decision out;
    struct mr_port_info info;
    uint32_t again;

    CHECK_EQ(mr_link_add(d->rig.mr, 2, &from, 1, &to, d->ra), 0);
    CHECK_EQ(mr_port_close(d->rig.mr, 1), 0);
    CHECK_EQ(mr_port_close(d->rig.mr, 1), -ENOENT);
    CHECK_EQ(mr_port_close(d->rig.mr, 99), -ENOENT);
    CHECK_EQ(mr_port_info(d->rig.mr, 1, &info), -ENOENT);
    CHECK_EQ(mr_decide(d->rig.mr, &from, 2, 1, rig_now_ns, &out), (int)MR_VERDICT_UNKNOWN_TARGET);
    rig_settle(&d->rig);
    REQUIRE_EQ(rig_count(&d->rig, MR_EVENT_ENDED), 1);
    CHECK_EQ((int)rig_event(&d->rig, MR_EVENT_ENDED, 0)->u.ended.reason, (int)MR_END_PORT);
    CHECK_EQ(rig_stats(&d->rig).ports, 3);
    {
        struct mr_addr local = rig_addr("127.0.0.1:0");

        CHECK_EQ(mr_port_open(d->rig.mr, &local, 0, &again), 0);
        CHECK_EQ(again, 1);
    }
    duo_close(d);
}

/* ------------------------------------------------------------------ limits */

TEST(a_burst_passes_and_what_is_above_it_does_not)
{
    struct mr_options o = rig_virtual_options();
    struct duo *d;

    o.limits.relay_bytes_per_s = 128 << 10;
    d = duo_open(o);
    for (unsigned i = 0; i < 256; i++)
        pass(d, 1024);
    CHECK_EQ(verdicts(d, MR_VERDICT_FORWARD), 128);
    CHECK_EQ(verdicts(d, MR_VERDICT_BANDWIDTH), 128);
    /* Told once in this second. */
    CHECK_EQ(rig_count(&d->rig, MR_EVENT_LIMIT), 1);
    CHECK_EQ(rig_event(&d->rig, MR_EVENT_LIMIT, 0)->relay, d->ra);
    CHECK_EQ((int)rig_event(&d->rig, MR_EVENT_LIMIT, 0)->u.limit.kind, (int)MR_LIMIT_BANDWIDTH);
    CHECK_EQ(rig_stats(&d->rig).limit_hits[MR_LIMIT_BANDWIDTH], 1);
    rig_now_ns += second / 2;
    pass(d, 1024);
    CHECK_EQ(verdicts(d, MR_VERDICT_FORWARD), 129);
    rig_now_ns += second;
    for (unsigned i = 0; i < 200; i++)
        pass(d, 1024);
    CHECK_EQ(rig_count(&d->rig, MR_EVENT_LIMIT), 2);
    duo_close(d);
}

TEST(limits_change_while_traffic_flows)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_limits limits;
    struct mr_relay_limits own = {.bytes_per_s = 500};

    pass(d, 60000);
    CHECK_EQ(verdicts(d, MR_VERDICT_FORWARD), 1);
    mr_limits_init(&limits, sizeof limits);
    limits.relay_bytes_per_s = 1000;
    CHECK_EQ(mr_set_limits(d->rig.mr, &limits), 0);
    pass(d, 1001);
    CHECK_EQ(verdicts(d, MR_VERDICT_BANDWIDTH), 1);
    pass(d, 600);
    CHECK_EQ(verdicts(d, MR_VERDICT_FORWARD), 2);
    rig_now_ns += 10 * second;
    /* The stricter of both holds. */
    CHECK_EQ(mr_relay_set_limits(d->rig.mr, d->ra, &own), 0);
    pass(d, 501);
    CHECK_EQ(verdicts(d, MR_VERDICT_BANDWIDTH), 2);
    own.bytes_per_s = 5000;
    CHECK_EQ(mr_relay_set_limits(d->rig.mr, d->ra, &own), 0);
    pass(d, 1001);
    CHECK_EQ(verdicts(d, MR_VERDICT_BANDWIDTH), 3);
    limits.size = 5;
    CHECK_EQ(mr_set_limits(d->rig.mr, &limits), -EINVAL);
    duo_close(d);
}

TEST(lifetime_traffic_drops_and_a_restart_begins_anew)
{
    struct mr_options o = rig_virtual_options();
    struct duo *d;

    o.limits.life_bytes = 100;
    d = duo_open(o);
    pass(d, 98);
    pass(d, 1);
    pass(d, 1); /* 100 is not below 100 */
    CHECK_EQ(verdicts(d, MR_VERDICT_FORWARD), 2);
    CHECK_EQ(verdicts(d, MR_VERDICT_TRAFFIC), 1);
    CHECK_EQ(rig_count(&d->rig, MR_EVENT_LIMIT), 1);
    CHECK_EQ(rig_count(&d->rig, MR_EVENT_ENDED), 0);
    CHECK_EQ(mr_relay_restart(d->rig.mr, d->ra), 0);
    pass(d, 1);
    CHECK_EQ(verdicts(d, MR_VERDICT_FORWARD), 3);
    duo_close(d);
}

TEST(a_global_limit_binds_all)
{
    struct mr_options o = rig_virtual_options();
    struct duo *d;
    uint64_t passed;

    o.limits.global_bytes_per_s = 100000;
    d = duo_open(o);
    for (unsigned i = 0; i < 200; i++)
        pass(d, 1000);
    passed = verdicts(d, MR_VERDICT_FORWARD);
    CHECK_LE(passed, 100);
    CHECK_GE(passed, 98);
    CHECK_EQ(verdicts(d, MR_VERDICT_GLOBAL), 200 - passed);
    CHECK_EQ((int)rig_event(&d->rig, MR_EVENT_LIMIT, 0)->u.limit.kind, (int)MR_LIMIT_GLOBAL);
    duo_close(d);
}

TEST(a_policys_packet_rate_binds_its_relay_only)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_relay_limits own = {.packets_per_s = 10};

    CHECK_EQ(mr_relay_set_limits(d->rig.mr, d->ra, &own), 0);
    for (unsigned i = 0; i < 30; i++)
        pass(d, 1);
    CHECK_EQ(verdicts(d, MR_VERDICT_FORWARD), 10);
    CHECK_EQ(verdicts(d, MR_VERDICT_BANDWIDTH), 20);
    duo_close(d);
}

/* ------------------------------------------------------------------ manual relays */

TEST(a_manual_relays_datagrams_go_to_the_embedder_who_may_send_them_on)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_addr c = rig_addr("10.0.0.3:3");
    struct mr_relay_spec spec;
    struct mr_event e[8];
    mr_relay_id manual;
    uint64_t before;
    int n;

    mr_relay_spec_init(&spec, sizeof spec);
    spec.port = 2;
    spec.peer = c;
    spec.flags = MR_RELAY_MANUAL;
    CHECK_EQ(mr_relay_create(d->rig.mr, &spec, &manual), 0);
    CHECK_EQ(mr_pair(d->rig.mr, manual, d->rb), 0);
    rig_settle(&d->rig);
    before = verdicts(d, MR_VERDICT_FORWARD);

    /* As if received (mr_inject() would forward): over the decision. */
    {
        struct mr_decision out;

        CHECK_EQ(mr_decide(d->rig.mr, &c, 1, 5, rig_now_ns, &out), (int)MR_VERDICT_MANUAL);
    }
    REQUIRE_EQ(mr_inject(d->rig.mr, 1, &c, "hello", 5), 0);
    n = mr_poll(d->rig.mr, e, 8);
    REQUIRE(n >= 0);
    CHECK_EQ(verdicts(d, MR_VERDICT_FORWARD), before + 1);
    CHECK_EQ(mr_inject(d->rig.mr, 1, &c, "x", 65508), -EMSGSIZE);
    CHECK_EQ(mr_inject(d->rig.mr, 99, &c, "x", 1), -EINVAL);
    duo_close(d);
}

/* ------------------------------------------------------------------ ports */

TEST(ports_are_bounded_and_indexes_come_again)
{
    struct mr_options o = rig_virtual_options();
    struct mr_addr local = rig_addr("127.0.0.1:0");
    struct rig *rig = calloc(1, sizeof *rig);
    uint32_t port;

    o.max_ports = 2;
    rig_open(rig, &o, 2);
    CHECK_EQ(mr_port_open(rig->mr, &local, 0, &port), -ENOSPC);
    CHECK_EQ(mr_port_close(rig->mr, 0), 0);
    CHECK_EQ(mr_port_open(rig->mr, &local, 0, &port), -ENOSPC);
    rig_settle(rig);
    CHECK_EQ(mr_port_open(rig->mr, &local, 1u << 30, &port), -EINVAL);
    local.family = 0;
    CHECK_EQ(mr_port_open(rig->mr, &local, 0, &port), -EINVAL);
    local.family = 4;
    CHECK_EQ(mr_port_open(rig->mr, &local, 0, &port), 0);
    CHECK_EQ(port, 0);
    rig_close(rig);
    free(rig);
}

TEST(own_addresses_are_bounded_and_said_once)
{
    struct duo *d = duo_open(rig_virtual_options());
    struct mr_addr a = rig_addr("10.1.1.1:1");

    for (uint16_t i = 1; i <= 64; i++) {
        a.port = i;
        CHECK_EQ(mr_own_address(d->rig.mr, &a), 0);
        CHECK_EQ(mr_own_address(d->rig.mr, &a), 0);
    }
    CHECK_EQ(mr_is_own_address(d->rig.mr, &a), 1);
    a.port = 65;
    CHECK_EQ(mr_own_address(d->rig.mr, &a), -ENOSPC);
    CHECK_EQ(mr_is_own_address(d->rig.mr, &a), 0);
    a.port = 0;
    CHECK_EQ(mr_own_address(d->rig.mr, &a), -EINVAL);
    duo_close(d);
}

/* ------------------------------------------------------------------ commands */

TEST(more_commands_than_a_ring_takes_all_arrive_in_order)
{
    struct duo *d = duo_open(rig_virtual_options());
    uint64_t last = 0;

    /* Ends paired, whatever came before. */
    for (unsigned i = 0; i < 5000; i++) {
        CHECK_EQ(mr_unpair(d->rig.mr, d->ra, d->rb), 0);
        CHECK_EQ(mr_pair(d->rig.mr, d->ra, d->rb), 0);
    }
    last = mr_ping(d->rig.mr);
    CHECK_EQ(last, mr_seq(d->rig.mr));
    CHECK_LT(mr_in_force(d->rig.mr), last);
    CHECK_EQ(mr_timeout_ms(d->rig.mr), 0);
    while (mr_in_force(d->rig.mr) < last)
        rig_poll(&d->rig);
    pass(d, 1);
    CHECK_EQ(verdicts(d, MR_VERDICT_FORWARD), 1);
    duo_close(d);
}

TEST(being_in_force_is_told_with_the_newest_number)
{
    struct duo *d = duo_open(rig_virtual_options());
    uint64_t seq;

    (void)mr_ping(d->rig.mr);
    seq = mr_ping(d->rig.mr);
    rig_poll(&d->rig);
    REQUIRE_EQ(rig_count(&d->rig, MR_EVENT_IN_FORCE), 1);
    CHECK_EQ(rig_event(&d->rig, MR_EVENT_IN_FORCE, 0)->u.in_force.seq, seq);
    rig_poll(&d->rig);
    CHECK_EQ(rig_count(&d->rig, MR_EVENT_IN_FORCE), 1);
    duo_close(d);
}

TEST_MAIN(TEST_CASE(a_decision_names_way_and_relays_and_is_counted),
          TEST_CASE(counts_are_a_sum_over_all_data_paths),
          TEST_CASE(a_new_relay_has_none_of_the_counts_of_the_one_before_at_its_port),
          TEST_CASE(histograms_hold_every_datagram),
          TEST_CASE(figures_can_be_asked_for_by_an_older_caller),
          TEST_CASE(a_peer_has_to_be_somebody_who_can_be_reached), TEST_CASE(a_stale_id_is_nobody),
          TEST_CASE(relays_are_found_by_port_address_and_order),
          TEST_CASE(two_relays_of_one_address_send_as_the_newest),
          TEST_CASE(a_moved_peer_keeps_port_pair_and_counts),
          TEST_CASE(names_come_back_as_the_same_relay),
          TEST_CASE(pairing_twice_is_once_and_an_echo_needs_one_relay),
          TEST_CASE(a_link_by_hand_ends_with_the_relay_that_pays),
          TEST_CASE(closing_a_port_takes_its_relay_and_every_link_through_it),
          TEST_CASE(a_burst_passes_and_what_is_above_it_does_not),
          TEST_CASE(limits_change_while_traffic_flows),
          TEST_CASE(lifetime_traffic_drops_and_a_restart_begins_anew),
          TEST_CASE(a_global_limit_binds_all),
          TEST_CASE(a_policys_packet_rate_binds_its_relay_only),
          TEST_CASE(a_manual_relays_datagrams_go_to_the_embedder_who_may_send_them_on),
          TEST_CASE(ports_are_bounded_and_indexes_come_again),
          TEST_CASE(own_addresses_are_bounded_and_said_once),
          TEST_CASE(more_commands_than_a_ring_takes_all_arrive_in_order),
          TEST_CASE(being_in_force_is_told_with_the_newest_number))
