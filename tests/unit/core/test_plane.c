/* SPDX-License-Identifier: MIT */
/*
 * The decision: limits in their order on a virtual clock, activity, flags, what is
 * counted, and that received is always the sum of verdicts and what is held.
 */
#include "tables.h"

#include <pthread.h>

enum { PORTS = 16, KB = 1024, A = 1, B = 2 };

/* Relay A (peer 1) and relay B (peer 2) with a link both ways. */
struct scene {
    struct bed bed;
    struct plane p;
    uint64_t now;
};

static void join(struct scene *s, uint32_t from, uint32_t to)
{
    struct link l = {.from = peer(from),
                     .port = to,
                     .egress = from,
                     .to = peer(to),
                     .charged = from,
                     .target = to};

    CHECK_EQ(mr__plane_link(&s->p, &l), 0);
}

static void set_up(struct scene *s, uint32_t port, struct relay_setup setup)
{
    setup.now_ns = s->now;
    if (!setup.timeout_ns)
        setup.timeout_ns = 30 * second;
    mr__relay_shared_init(&s->bed.shared[port], &s->bed.limits[port], &setup);
}

static void open_scene(struct scene *s, struct relay_setup setup)
{
    memset(s, 0, sizeof *s);
    s->now = 100 * second;
    bed_open(&s->bed, PORTS, MR__PAIRING_PAIRED);
    bed_plane(&s->bed, &s->p);
    for (uint32_t port = A; port <= B; port++) {
        struct mr_addr a = peer(port);

        set_up(s, port, setup);
        CHECK_EQ(mr__plane_add(&s->p, port, 1, &a, setup.is_manual ? MR__RELAY_MANUAL : 0, port),
                 0);
    }
    join(s, A, B);
    join(s, B, A);
}

static void close_scene(struct scene *s)
{
    CHECK_EQ(s->p.totals.received_packets, sum_of_verdicts(&s->p) + s->p.totals.held);
    bed_close(&s->bed);
}

static struct plane_out out_of(struct scene *s, uint32_t from, uint32_t port, uint32_t size,
                               uint32_t flags)
{
    struct plane_rx rx = {.from = peer(from), .port = port, .size = size, .flags = flags};
    struct plane_out out;

    mr__plane_batch(&s->p, s->now, &rx, 1, &out);
    mr__plane_finish(&s->p, &rx, 1, &out);
    return out;
}

static enum mr_verdict send(struct scene *s, uint32_t size)
{
    return (enum mr_verdict)out_of(s, A, B, size, 0).verdict;
}

/* ---- limits --------------------------------------------------------------------------- */

TEST(without_limits_everything_passes_whatever_its_size)
{
    struct scene s;

    open_scene(&s, (struct relay_setup){0});
    for (int i = 0; i < 1000; i++)
        CHECK_EQ(send(&s, 65507), MR_VERDICT_FORWARD);
    CHECK_EQ(send(&s, 0), MR_VERDICT_FORWARD);
    CHECK_EQ(s.bed.shared[A].lifetime_bytes, 0u);
    close_scene(&s);
}

TEST(individual_bandwidth_passes_its_burst_and_is_the_senders_alone)
{
    struct scene s;

    open_scene(&s, (struct relay_setup){.bandwidth = mr__limit_rate(128 * KB, 0)});
    for (int i = 0; i < 128; i++)
        CHECK_EQ(send(&s, KB), MR_VERDICT_FORWARD);
    CHECK_EQ(send(&s, 1), MR_VERDICT_BANDWIDTH);
    CHECK_EQ(send(&s, 0), MR_VERDICT_FORWARD);
    CHECK_EQ(out_of(&s, B, A, 128 * KB, 0).verdict, MR_VERDICT_FORWARD);
    s.now += second / 2;
    CHECK_EQ(send(&s, 64 * KB), MR_VERDICT_FORWARD);
    CHECK_EQ(send(&s, 1), MR_VERDICT_BANDWIDTH);
    close_scene(&s);
}

TEST(global_bandwidth_counts_all_senders_together)
{
    struct scene s;
    uint32_t passed = 0;

    open_scene(&s, (struct relay_setup){0});
    mr__limit_global_set(s.bed.global, 100 * KB, 0, 0);
    for (uint32_t i = 0; i < 300; i++)
        passed += out_of(&s, A + i % 2, B - i % 2, KB, 0).verdict == MR_VERDICT_FORWARD;
    CHECK_EQ(passed, 100u);
    CHECK_EQ(send(&s, 1), MR_VERDICT_GLOBAL);
    s.now += second / 10;
    CHECK_EQ(send(&s, 10 * KB), MR_VERDICT_FORWARD);
    for (passed = 0; send(&s, KB) == MR_VERDICT_FORWARD; passed++) /* a tenth of a share */
        CHECK_LT(passed, 10u);
    close_scene(&s);
}

/* A relay for the peer of that number at the port of that number, which sends to B's. */
static void add_sender(struct scene *s, uint32_t port)
{
    struct mr_addr a = peer(port);

    set_up(s, port, (struct relay_setup){0});
    CHECK_EQ(mr__plane_add(&s->p, port, 1, &a, 0, port), 0);
    join(s, port, B);
}

TEST(a_flooding_relay_does_not_push_others_below_their_share_of_the_global_limit)
{
    enum { PLAYERS = 10, MS = 5000, SIZE = 1000 };
    uint32_t sent[PORTS] = {0}, passed[PORTS] = {0};
    const uint64_t limit = 100 * (PLAYERS + 1) * SIZE; /* 100 datagrams a second for each */
    uint64_t flood = 0;
    struct scene s;

    open_scene(&s, (struct relay_setup){0});
    mr__limit_global_set(s.bed.global, limit, 0, 0);
    for (uint32_t port = B + 1; port < B + 1 + PLAYERS; port++)
        add_sender(&s, port);
    for (uint32_t ms = 0; ms < MS; ms++, s.now += second / 1000) {
        for (int i = 0; i < 10; i++)
            flood += send(&s, SIZE) == MR_VERDICT_FORWARD;
        for (uint32_t port = B + 1; port < B + 1 + PLAYERS; port++) {
            if ((ms + port) % 16 == 0) {
                sent[port]++;
                passed[port] += out_of(&s, port, B, SIZE, 0).verdict == MR_VERDICT_FORWARD;
            }
        }
    }
    uint64_t all = flood;
    for (uint32_t port = B + 1; port < B + 1 + PLAYERS; port++) {
        CHECK_GE(passed[port] * 10, sent[port] * 9);
        all += passed[port];
    }
    CHECK_GE(flood, 1000u); /* what others leave is for whoever wants it */
    CHECK_LE(all * SIZE, limit * (MS / 1000 + 1) * 11 / 10);
    close_scene(&s);
}

TEST(a_share_lets_nobody_have_more_than_the_limit_who_is_alone)
{
    struct scene s;
    uint64_t passed = 0;

    open_scene(&s, (struct relay_setup){0});
    mr__limit_global_set(s.bed.global, 100 * KB, 0, 0);
    for (uint32_t ms = 0; ms < 10000; ms++, s.now += second / 1000)
        passed += send(&s, KB) == MR_VERDICT_FORWARD;
    CHECK_GE(passed, 1000u + 90);
    CHECK_LE(passed, 1000u + 100 + 15);
    close_scene(&s);
}

/* ---- addresses that nobody vouches for ------------------------------------------------- */

static void doubt(struct scene *s, uint32_t port)
{
    mr__relay_shared_doubt(&s->bed.shared[port], &s->bed.limits[port], true);
}

TEST(an_unproven_address_gets_sixteen_datagrams_until_it_has_sent_one)
{
    struct scene s;

    open_scene(&s, (struct relay_setup){0});
    doubt(&s, B);
    for (int i = 0; i < 16; i++)
        CHECK_EQ(send(&s, 10), MR_VERDICT_FORWARD);
    CHECK_EQ(send(&s, 10), MR_VERDICT_UNPROVEN);
    s.now += 100 * second;
    CHECK_EQ(send(&s, 10), MR_VERDICT_UNPROVEN);
    CHECK_EQ(out_of(&s, B, A, 1, 0).verdict, MR_VERDICT_FORWARD); /* the other way is free */
    CHECK_EQ(send(&s, 10), MR_VERDICT_FORWARD);
    close_scene(&s);
}

TEST(an_unproven_address_gets_16_kib_until_it_has_sent_something)
{
    struct scene s;

    open_scene(&s, (struct relay_setup){0});
    doubt(&s, B);
    CHECK_EQ(send(&s, 16 * KB + 1), MR_VERDICT_UNPROVEN);
    CHECK_EQ(send(&s, 10 * KB), MR_VERDICT_FORWARD);
    CHECK_EQ(send(&s, 7 * KB), MR_VERDICT_UNPROVEN);
    CHECK_EQ(send(&s, 6 * KB), MR_VERDICT_FORWARD);
    CHECK_EQ(send(&s, 1), MR_VERDICT_UNPROVEN);
    close_scene(&s);
}

TEST(what_is_unproven_costs_its_sender_nothing)
{
    struct scene s;

    open_scene(&s, (struct relay_setup){.bandwidth = mr__limit_rate(20 * KB, 0)});
    doubt(&s, B);
    CHECK_EQ(send(&s, 16 * KB), MR_VERDICT_FORWARD);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(send(&s, KB), MR_VERDICT_UNPROVEN);
    mr__relay_shared_trust(&s.bed.shared[B]);
    CHECK_EQ(send(&s, 4 * KB), MR_VERDICT_FORWARD);
    CHECK_EQ(send(&s, 1), MR_VERDICT_BANDWIDTH);
    close_scene(&s);
}

/* How many KiB pass in so many seconds when that many bytes a second come back. */
static uint64_t pass_unproven(uint32_t seconds, uint32_t back_bytes)
{
    struct scene s;
    uint64_t passed = 0;

    open_scene(&s, (struct relay_setup){0});
    doubt(&s, B);
    CHECK_EQ(out_of(&s, B, A, 1, 0).verdict, MR_VERDICT_FORWARD);
    for (uint32_t ms = 0; ms < seconds * 1000; ms++, s.now += second / 1000) {
        if (ms % 100 == 0 && back_bytes > 0)
            CHECK_EQ(out_of(&s, B, A, back_bytes / 10, 0).verdict, MR_VERDICT_FORWARD);
        passed += send(&s, KB) == MR_VERDICT_FORWARD;
    }
    close_scene(&s);
    return passed;
}

TEST(once_it_has_sent_it_gets_32_kib_a_second_or_ten_times_what_it_sends)
{
    uint64_t passed = pass_unproven(20, 0);

    CHECK_GE(passed, 20u * 32);
    CHECK_LE(passed, 21u * 32 + 1);
    passed = pass_unproven(20, KB); /* ten times it is less than the rate: not the sum */
    CHECK_LE(passed, 21u * 32 * 11 / 10);
    passed = pass_unproven(20, 20 * KB);
    CHECK_GE(passed, 20u * 200 * 9 / 10);
    CHECK_LE(passed, 20u * 200 * 9 / 8);
}

TEST(what_it_sent_more_than_ten_seconds_ago_earns_it_nothing)
{
    struct scene s;
    uint32_t passed = 0;

    open_scene(&s, (struct relay_setup){0});
    doubt(&s, B);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(out_of(&s, B, A, 10 * KB, 0).verdict, MR_VERDICT_FORWARD);
    s.now += 10 * second;
    while (passed < 1000 && send(&s, KB) == MR_VERDICT_FORWARD)
        passed++;
    CHECK_LE(passed, 33u);
    close_scene(&s);
}

TEST(a_datagram_to_any_port_of_ours_proves_that_its_sender_is_there)
{
    struct scene s;

    open_scene(&s, (struct relay_setup){0});
    doubt(&s, B);
    for (int i = 0; i < 17; i++)
        (void)send(&s, 10);
    CHECK_EQ(send(&s, 10), MR_VERDICT_UNPROVEN);
    CHECK_EQ(out_of(&s, B, 5, 10, 0).verdict, MR_VERDICT_UNKNOWN_TARGET);
    CHECK_EQ(send(&s, 10), MR_VERDICT_FORWARD);
    close_scene(&s);
}

TEST(an_address_that_changes_gets_nothing_anew)
{
    struct scene s;

    open_scene(&s, (struct relay_setup){0});
    doubt(&s, B);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(send(&s, 10), MR_VERDICT_FORWARD);
    CHECK_EQ(out_of(&s, B, A, 10, 0).verdict, MR_VERDICT_FORWARD);
    mr__relay_shared_doubt(&s.bed.shared[B], &s.bed.limits[B], false);
    for (int i = 0; i < 6; i++)
        CHECK_EQ(send(&s, 10), MR_VERDICT_FORWARD);
    CHECK_EQ(send(&s, 10), MR_VERDICT_UNPROVEN);
    close_scene(&s);
}

TEST(lifetime_duration_passes_before_its_end_and_not_at_it)
{
    struct scene s;

    open_scene(&s, (struct relay_setup){.duration_ns = 60 * second});
    s.now += 60 * second - 1;
    CHECK_EQ(send(&s, 10), MR_VERDICT_FORWARD);
    s.now += 1;
    CHECK_EQ(send(&s, 10), MR_VERDICT_DURATION);
    CHECK_EQ(send(&s, 0), MR_VERDICT_DURATION);
    mr__relay_shared_renew(&s.bed.shared[A], s.now, 60 * second);
    CHECK_EQ(send(&s, 10), MR_VERDICT_FORWARD);
    close_scene(&s);
}

TEST(lifetime_traffic_passes_below_its_limit_and_not_at_it)
{
    struct scene s;

    open_scene(&s, (struct relay_setup){0});
    mr__limit_global_set(s.bed.global, 0, 0, 1000);
    CHECK_EQ(send(&s, 400), MR_VERDICT_FORWARD);
    CHECK_EQ(send(&s, 600), MR_VERDICT_TRAFFIC); /* would reach it */
    CHECK_EQ(send(&s, 599), MR_VERDICT_FORWARD);
    CHECK_EQ(send(&s, 1), MR_VERDICT_TRAFFIC);
    CHECK_EQ(out_of(&s, B, A, 999, 0).verdict, MR_VERDICT_FORWARD); /* only the sender's */
    mr__relay_shared_renew(&s.bed.shared[A], s.now, 0);
    CHECK_EQ(send(&s, 999), MR_VERDICT_FORWARD);
    close_scene(&s);
}

TEST(a_policys_rate_and_bytes_are_limits_of_their_own)
{
    struct scene s;
    struct plane_out out;

    open_scene(&s, (struct relay_setup){.pps = mr__limit_rate(3, 0)});
    for (int i = 0; i < 3; i++)
        CHECK_EQ(send(&s, 10), MR_VERDICT_FORWARD);
    out = out_of(&s, A, B, 10, 0);
    CHECK_EQ(out.verdict, MR_VERDICT_BANDWIDTH);
    CHECK(out.is_policy);
    s.now += second;
    CHECK_EQ(send(&s, 0), MR_VERDICT_FORWARD);
    close_scene(&s);

    open_scene(&s, (struct relay_setup){.max_bytes = 100});
    CHECK_EQ(send(&s, 60), MR_VERDICT_FORWARD);
    out = out_of(&s, A, B, 40, 0);
    CHECK_EQ(out.verdict, MR_VERDICT_TRAFFIC);
    CHECK(out.is_policy);
    CHECK_EQ(send(&s, 39), MR_VERDICT_FORWARD);
    mr__relay_shared_renew(&s.bed.shared[A], s.now, 0);
    CHECK_EQ(send(&s, 1), MR_VERDICT_TRAFFIC);
    close_scene(&s);
}

/* Each row breaks its limit and all that come after it; the first must be the reason. */
TEST(the_first_limit_in_the_contracts_order_is_the_reason)
{
    static const enum mr_verdict order[] = {MR_VERDICT_BANDWIDTH, MR_VERDICT_GLOBAL,
                                            MR_VERDICT_DURATION, MR_VERDICT_TRAFFIC};

    for (int first = 0; first < 4; first++) {
        struct relay_setup setup = {.duration_ns = second};
        struct scene s;

        if (first <= 0)
            setup.bandwidth = mr__limit_rate(100, 0);
        open_scene(&s, setup);
        mr__limit_global_set(s.bed.global, first <= 1 ? 150 : 0, 0, 200);
        if (first <= 2)
            s.now += 2 * second;
        else
            s.bed.shared[A].life_end_ns = 0;
        CHECK_EQ(send(&s, 300), order[first]);
        close_scene(&s);
    }
}

TEST(a_datagram_refused_for_its_last_reason_has_cost_nothing)
{
    struct scene s;

    open_scene(&s, (struct relay_setup){.bandwidth = mr__limit_rate(1000, 0),
                                        .pps = mr__limit_rate(100, 0),
                                        .max_bytes = 500});
    mr__limit_global_set(s.bed.global, 1000, 0, 5000);
    for (int i = 0; i < 1000; i++)
        CHECK_EQ(send(&s, 500), MR_VERDICT_TRAFFIC); /* the policy's, checked last */
    CHECK_EQ(s.bed.shared[A].tat_ns, 0u);
    CHECK_EQ(s.bed.shared[A].lifetime_bytes, 0u);
    CHECK_EQ(s.bed.limits[A].pps_tat_ns, 0u);
    CHECK_EQ(s.bed.limits[A].bytes, 0u);
    atomic_store(&s.bed.limits[A].max_bytes, 0);
    CHECK_EQ(send(&s, 1000), MR_VERDICT_FORWARD);
    CHECK_EQ(send(&s, 1), MR_VERDICT_BANDWIDTH);
    CHECK_EQ(s.bed.shared[A].lifetime_bytes, 1000u);
    CHECK_EQ(s.bed.limits[A].bytes, 1000u);
    close_scene(&s);
}

TEST(slices_of_a_global_rate_that_was_lowered_are_given_up)
{
    struct scene s;
    uint32_t passed = 0;

    open_scene(&s, (struct relay_setup){0});
    mr__limit_global_set(s.bed.global, (uint64_t)1 << 40, 0, 0);
    CHECK_EQ(send(&s, 10), MR_VERDICT_FORWARD); /* took a slice of a gigabyte */
    mr__limit_global_set(s.bed.global, KB, 0, 0);
    for (int i = 0; i < 100; i++)
        passed += send(&s, 65507) == MR_VERDICT_FORWARD;
    CHECK_LE(passed, 1u);
    close_scene(&s);
}

/* ---- activity -------------------------------------------------------------------------------- */

TEST(a_forwarded_datagram_keeps_both_ends_alive_and_a_refused_one_its_sender)
{
    struct scene s;

    open_scene(&s, (struct relay_setup){.bandwidth = mr__limit_rate(100, 0)});
    s.now += second;
    CHECK_EQ(send(&s, 100), MR_VERDICT_FORWARD);
    CHECK_EQ(s.bed.shared[A].activity_ns, s.now);
    CHECK_EQ(s.bed.shared[B].activity_ns, s.now);
    s.now += second / 2;
    CHECK_EQ(send(&s, 100), MR_VERDICT_BANDWIDTH);
    CHECK_EQ(s.bed.shared[A].activity_ns, s.now);
    CHECK_EQ(s.bed.shared[B].activity_ns, s.now - second / 2);
    close_scene(&s);

    /* Also when the sender was met in this second already. */
    open_scene(&s, (struct relay_setup){.bandwidth = {0, 0}});
    s.now = ((s.now >> MR__WINDOW_SHIFT) + 1) << MR__WINDOW_SHIFT;
    CHECK_EQ(send(&s, 100), MR_VERDICT_FORWARD);
    s.now += second / 2;
    CHECK_EQ(send(&s, 100), MR_VERDICT_FORWARD);
    CHECK_EQ(s.bed.shared[B].activity_ns, s.now);
    close_scene(&s);
}

TEST(activity_is_stored_only_when_it_moved_by_more_than_a_step)
{
    struct scene s;
    uint64_t first;

    open_scene(&s, (struct relay_setup){.timeout_ns = second / 10 * 16}); /* 50 ms steps */
    first = s.now;
    s.now += 50000000;
    send(&s, 1);
    CHECK_EQ(s.bed.shared[A].activity_ns, first);
    s.now += 1;
    send(&s, 1);
    CHECK_EQ(s.bed.shared[A].activity_ns, s.now);
    s.now -= 60000000; /* another worker's clock reading may be older */
    first = s.bed.shared[A].activity_ns;
    send(&s, 1);
    CHECK_EQ(s.bed.shared[A].activity_ns, first);
    close_scene(&s);
}

TEST(a_datagram_without_a_link_keeps_nobody_alive)
{
    struct scene s;
    uint64_t before;

    open_scene(&s, (struct relay_setup){0});
    before = s.bed.shared[A].activity_ns;
    s.now += 10 * second;
    CHECK_EQ(out_of(&s, A, A, 5, 0).verdict, MR_VERDICT_NOT_PAIRED);
    CHECK_EQ(out_of(&s, 7, A, 5, 0).verdict, MR_VERDICT_UNKNOWN_SENDER);
    CHECK_EQ(s.bed.shared[A].activity_ns, before);
    close_scene(&s);
}

/* ---- flags, own addresses, nobody
 * ---------------------------------------------------------------- */

TEST(a_manual_relays_datagrams_go_to_the_embedder_unlimited_and_injected_ones_on)
{
    struct scene s;
    struct plane_out out;

    open_scene(&s, (struct relay_setup){.is_manual = true, .bandwidth = mr__limit_rate(100, 0)});
    for (int i = 0; i < 10; i++)
        CHECK_EQ(send(&s, 1000), MR_VERDICT_MANUAL);
    CHECK_EQ(s.p.counts[A].packets_in, 0u);
    out = out_of(&s, A, B, 100, MR__RX_INJECTED);
    CHECK_EQ(out.verdict, MR_VERDICT_FORWARD);
    CHECK_EQ(out.egress, (uint32_t)A);
    CHECK_EQ(out_of(&s, A, B, 100, MR__RX_INJECTED).verdict, MR_VERDICT_BANDWIDTH);
    CHECK_EQ(out_of(&s, A, A, 5, 0).verdict, MR_VERDICT_MANUAL); /* at its own port, no pair */
    CHECK_EQ(out_of(&s, A, A, 5, MR__RX_INJECTED).verdict, MR_VERDICT_NOT_PAIRED);
    CHECK_EQ(s.p.counts[A].packets_in, 1u);
    CHECK_EQ(s.p.drops[A], 2u);
    close_scene(&s);
}

TEST(a_truncated_datagram_is_dropped_before_it_costs_anything)
{
    struct scene s;

    open_scene(&s, (struct relay_setup){.bandwidth = mr__limit_rate(100, 0)});
    CHECK_EQ(out_of(&s, A, B, 100, MR__RX_TRUNCATED).verdict, MR_VERDICT_TRUNCATED);
    CHECK_EQ(out_of(&s, 7, B, 100, MR__RX_TRUNCATED).verdict, MR_VERDICT_TRUNCATED);
    CHECK_EQ(s.bed.shared[A].tat_ns, 0u);
    CHECK_EQ(s.p.drops[A], 1u);
    close_scene(&s);
}

TEST(our_own_address_is_a_drop_and_no_miss_that_a_policy_could_admit)
{
    struct mr_addr own = peer(7);
    struct scene s;
    struct plane_out out;

    open_scene(&s, (struct relay_setup){0});
    CHECK_EQ(mr__own_add(&s.p.own, &own), 0);
    out = out_of(&s, 7, A, 5, 0);
    CHECK_EQ(out.verdict, MR_VERDICT_OWN_ADDRESS);
    CHECK(!out.is_miss);
    CHECK(out_of(&s, 6, A, 5, 0).is_miss);
    close_scene(&s);
}

TEST(a_link_of_nobody_forwards_and_counts_for_nobody)
{
    struct scene s;
    struct link l = {
        .from = peer(5), .port = 4, .egress = 3, .to = peer(6), .charged = MR__NONE, .target = A};
    struct plane_out out;

    open_scene(&s, (struct relay_setup){0});
    CHECK_EQ(mr__plane_link(&s.p, &l), 0);
    s.now += second;
    out = out_of(&s, 5, 4, 50, 0);
    CHECK_EQ(out.verdict, MR_VERDICT_FORWARD);
    CHECK_EQ(out.charged, MR__NONE);
    CHECK_EQ(out.target, (uint32_t)A);
    CHECK_EQ(out.egress, 3u);
    CHECK_EQ(s.p.counts[A].bytes_out, 50u);
    CHECK_EQ(s.bed.shared[A].activity_ns, s.now);
    close_scene(&s);
}

/* ---- counting
 * ----------------------------------------------------------------------------------------- */

TEST(a_send_that_failed_is_counted_as_such_and_not_as_forwarded)
{
    struct plane_rx rx[3];
    struct plane_out out[3];
    struct relay_sum sum = {0};
    struct scene s;

    open_scene(&s, (struct relay_setup){0});
    for (int i = 0; i < 3; i++)
        rx[i] = (struct plane_rx){.from = peer(A), .port = B, .size = 10};
    mr__plane_batch(&s.p, s.now, rx, 3, out);
    CHECK_EQ(s.p.totals.verdicts[MR_VERDICT_FORWARD], 0u); /* not before it is sent */
    out[1].verdict = MR_VERDICT_SEND_FULL;
    out[2].verdict = MR_VERDICT_SEND_FAILED;
    mr__plane_finish(&s.p, rx, 3, out);
    CHECK_EQ(s.p.totals.verdicts[MR_VERDICT_FORWARD], 1u);
    CHECK_EQ(s.p.totals.verdicts[MR_VERDICT_SEND_FULL], 1u);
    CHECK_EQ(s.p.totals.verdicts[MR_VERDICT_SEND_FAILED], 1u);
    CHECK_EQ(s.p.totals.sent_bytes, 10u);
    CHECK_EQ(s.p.totals.received_bytes, 30u);
    mr__plane_sum(&s.p, A, &sum);
    CHECK_EQ(sum.packets_in, 1u);
    CHECK_EQ(sum.bytes_in, 10u);
    CHECK_EQ(sum.drops, 2u);
    sum = (struct relay_sum){0};
    mr__plane_sum(&s.p, B, &sum);
    CHECK_EQ(sum.packets_out, 1u);
    CHECK_EQ(sum.bytes_out, 10u);
    close_scene(&s);
}

TEST(held_datagrams_are_received_once_and_end_in_one_verdict)
{
    struct plane_rx rx = {.from = peer(9), .port = A, .size = 10};
    struct plane_out out;
    struct scene s;

    open_scene(&s, (struct relay_setup){0});
    for (int i = 0; i < 5; i++) {
        mr__plane_batch(&s.p, s.now, &rx, 1, &out);
        CHECK(out.is_miss);
        mr__plane_hold(&s.p, &out);
        mr__plane_finish(&s.p, &rx, 1, &out);
    }
    CHECK_EQ(s.p.totals.held, 5u);
    CHECK_EQ(sum_of_verdicts(&s.p), 0u);
    mr__plane_drop_held(&s.p, MR_VERDICT_HOLD_EXPIRED, 2);
    CHECK_EQ(s.p.totals.held, 3u);
    CHECK_EQ(s.p.totals.verdicts[MR_VERDICT_HOLD_EXPIRED], 2u);
    CHECK_EQ(s.p.totals.received_packets, 5u);
    close_scene(&s);
}

TEST(a_released_flow_goes_through_the_plane_without_being_received_again)
{
    struct plane_rx rx = {.from = peer(B), .port = B, .size = 10};
    struct plane_out out;
    struct scene s;

    open_scene(&s, (struct relay_setup){0});
    mr__plane_batch(&s.p, s.now, &rx, 1, &out);
    CHECK_EQ(out.verdict, MR_VERDICT_NOT_PAIRED);
    mr__plane_hold(&s.p, &out);
    mr__plane_finish(&s.p, &rx, 1, &out);
    join(&s, B, B);
    mr__plane_unhold(&s.p, 1);
    rx.flags = MR__RX_AGAIN;
    mr__plane_batch(&s.p, s.now, &rx, 1, &out);
    mr__plane_finish(&s.p, &rx, 1, &out);
    CHECK_EQ(out.verdict, MR_VERDICT_FORWARD);
    CHECK_EQ(s.p.totals.received_packets, 1u);
    CHECK_EQ(s.p.totals.received_bytes, 10u);
    CHECK_EQ(s.p.counts[B].packets_in, 1u);
    CHECK_EQ(s.p.counts[B].packets_out, 1u);
    close_scene(&s);
}

TEST(a_new_relay_at_a_port_counts_from_zero)
{
    struct mr_addr a = peer(A);
    struct relay_sum sum = {0};
    struct scene s;

    open_scene(&s, (struct relay_setup){.bandwidth = mr__limit_rate(10, 0)});
    send(&s, 10);
    send(&s, 10);
    CHECK_EQ(mr__plane_unlink(&s.p, B, &a), 0);
    CHECK_EQ(mr__plane_remove(&s.p, A), 0);
    CHECK_EQ(mr__plane_add(&s.p, A, 2, &a, 0, A), 0);
    mr__plane_sum(&s.p, A, &sum);
    CHECK_EQ(sum.packets_in + sum.bytes_in + sum.packets_out + sum.bytes_out + sum.drops, 0u);
    close_scene(&s);
}

TEST(a_batch_decides_exactly_as_its_datagrams_one_by_one)
{
    struct scene many, one;
    struct relay_setup setup = {.bandwidth = mr__limit_rate(1500, 0)};

    open_scene(&many, setup);
    open_scene(&one, setup);
    /* A by its own rate, B by the global one and by a policy's. */
    set_up(&many, B, (struct relay_setup){.pps = mr__limit_rate(50, 0)});
    set_up(&one, B, (struct relay_setup){.pps = mr__limit_rate(50, 0)});
    mr__limit_global_set(many.bed.global, 5000, 0, 100000);
    mr__limit_global_set(one.bed.global, 5000, 0, 100000);
    for (int round = 0; round < 300; round++) {
        struct plane_rx rx[MR__PLANE_BATCH_MAX];
        struct plane_out out[MR__PLANE_BATCH_MAX], single;
        uint32_t n = (uint32_t)test_random_below(MR__PLANE_BATCH_MAX + 1);

        for (uint32_t i = 0; i < n; i++)
            rx[i] = (struct plane_rx){.from = peer((unsigned)test_random_below(4)),
                                      .port = (uint32_t)test_random_below(4),
                                      .size = (uint32_t)test_random_below(200),
                                      .flags = test_random_below(20) ? 0 : MR__RX_TRUNCATED};
        mr__plane_batch(&many.p, many.now, rx, n, out);
        mr__plane_finish(&many.p, rx, n, out);
        for (uint32_t i = 0; i < n; i++) {
            mr__plane_batch(&one.p, one.now, &rx[i], 1, &single);
            mr__plane_finish(&one.p, &rx[i], 1, &single);
            CHECK_EQ(single.verdict, out[i].verdict);
            CHECK_EQ(single.charged, out[i].charged);
            CHECK_EQ(single.target, out[i].target);
            CHECK_EQ(single.egress, out[i].egress);
        }
        many.now += test_random_below(second / 20);
        one.now = many.now;
    }
    CHECK_MEM(&many.p.totals, sizeof many.p.totals, &one.p.totals, sizeof one.p.totals);
    CHECK_GT(many.p.totals.verdicts[MR_VERDICT_BANDWIDTH], 10u);
    CHECK_GT(many.p.totals.verdicts[MR_VERDICT_GLOBAL], 10u);
    CHECK_GT(many.p.totals.verdicts[MR_VERDICT_FORWARD], 10u);
    close_scene(&many);
    close_scene(&one);
}

/* ---- two workers
 * ------------------------------------------------------------------------------------------- */

struct worker {
    struct bed *bed;
    struct bed own;
    struct plane p;
    uint64_t now;
};

static void *work(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < 2000; i++) {
        struct plane_rx rx[8];
        struct plane_out out[8];

        for (int j = 0; j < 8; j++)
            rx[j] = (struct plane_rx){.from = peer(A), .port = B, .size = 100};
        w->now += 1000;
        mr__plane_batch(&w->p, w->now, rx, 8, out);
        mr__plane_finish(&w->p, rx, 8, out);
    }
    return NULL;
}

TEST(two_workers_share_one_relays_limit_and_activity)
{
    struct relay_setup setup = {
        .now_ns = second, .timeout_ns = 30 * second, .bandwidth = mr__limit_rate(500000, 0)};
    struct worker w[2];
    pthread_t threads[2];
    struct relay_sum sum = {0};
    struct bed bed;
    struct link l = {
        .from = peer(A), .port = B, .egress = A, .to = peer(B), .charged = A, .target = B};

    bed_open(&bed, PORTS, MR__PAIRING_PAIRED);
    mr__limit_global_set(bed.global, 100000000, 0, 1u << 30);
    mr__relay_shared_init(&bed.shared[A], &bed.limits[A], &setup);
    mr__relay_shared_init(&bed.shared[B], &bed.limits[B], &setup);
    for (int i = 0; i < 2; i++) {
        w[i] = (struct worker){.own = bed, .now = second};
        bed_plane(&w[i].own, &w[i].p);
        CHECK_EQ(mr__plane_link(&w[i].p, &l), 0);
    }
    for (int i = 0; i < 2; i++)
        REQUIRE_EQ(pthread_create(&threads[i], NULL, work, &w[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        mr__plane_sum(&w[i].p, A, &sum);
        CHECK_EQ(w[i].p.totals.received_packets, sum_of_verdicts(&w[i].p));
        mr__unmap(w[i].own.own, w[i].own.own_bytes);
    }
    /* The burst, 2 ms of rate (their clocks ran 2 ms), and a datagram a worker at the edge. */
    CHECK_GE(sum.bytes_in, 500000u);
    CHECK_LE(sum.bytes_in, 500000u + 1000 + 200);
    CHECK_EQ(sum.bytes_in, bed.shared[A].lifetime_bytes);
    bed.own = NULL;
    bed_close(&bed);
}

TEST_MAIN(TEST_CASE(a_flooding_relay_does_not_push_others_below_their_share_of_the_global_limit),
          TEST_CASE(a_share_lets_nobody_have_more_than_the_limit_who_is_alone),
          TEST_CASE(an_unproven_address_gets_sixteen_datagrams_until_it_has_sent_one),
          TEST_CASE(an_unproven_address_gets_16_kib_until_it_has_sent_something),
          TEST_CASE(what_is_unproven_costs_its_sender_nothing),
          TEST_CASE(once_it_has_sent_it_gets_32_kib_a_second_or_ten_times_what_it_sends),
          TEST_CASE(what_it_sent_more_than_ten_seconds_ago_earns_it_nothing),
          TEST_CASE(a_datagram_to_any_port_of_ours_proves_that_its_sender_is_there),
          TEST_CASE(an_address_that_changes_gets_nothing_anew),
          TEST_CASE(without_limits_everything_passes_whatever_its_size),
          TEST_CASE(individual_bandwidth_passes_its_burst_and_is_the_senders_alone),
          TEST_CASE(global_bandwidth_counts_all_senders_together),
          TEST_CASE(lifetime_duration_passes_before_its_end_and_not_at_it),
          TEST_CASE(lifetime_traffic_passes_below_its_limit_and_not_at_it),
          TEST_CASE(a_policys_rate_and_bytes_are_limits_of_their_own),
          TEST_CASE(the_first_limit_in_the_contracts_order_is_the_reason),
          TEST_CASE(a_datagram_refused_for_its_last_reason_has_cost_nothing),
          TEST_CASE(slices_of_a_global_rate_that_was_lowered_are_given_up),
          TEST_CASE(a_forwarded_datagram_keeps_both_ends_alive_and_a_refused_one_its_sender),
          TEST_CASE(activity_is_stored_only_when_it_moved_by_more_than_a_step),
          TEST_CASE(a_datagram_without_a_link_keeps_nobody_alive),
          TEST_CASE(a_manual_relays_datagrams_go_to_the_embedder_unlimited_and_injected_ones_on),
          TEST_CASE(a_truncated_datagram_is_dropped_before_it_costs_anything),
          TEST_CASE(our_own_address_is_a_drop_and_no_miss_that_a_policy_could_admit),
          TEST_CASE(a_link_of_nobody_forwards_and_counts_for_nobody),
          TEST_CASE(a_send_that_failed_is_counted_as_such_and_not_as_forwarded),
          TEST_CASE(held_datagrams_are_received_once_and_end_in_one_verdict),
          TEST_CASE(a_released_flow_goes_through_the_plane_without_being_received_again),
          TEST_CASE(a_new_relay_at_a_port_counts_from_zero),
          TEST_CASE(a_batch_decides_exactly_as_its_datagrams_one_by_one),
          TEST_CASE(two_workers_share_one_relays_limit_and_activity))
