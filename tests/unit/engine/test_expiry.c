/* SPDX-License-Identifier: MIT */
/*
 * Ends of relays, over no-op sockets and a virtual clock; what needs real sockets comes
 * last. One thread. Start reading at the tests.
 */
#include "rig.h"
#include "test.h"

#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t second = 1000000000;
static const uint64_t late = 100000000; /* within which an end is on time */

static struct rig *open_rig(struct mr_options o, unsigned ports)
{
    struct rig *rig = calloc(1, sizeof *rig);

    rig_open(rig, &o, ports);
    rig_forget(rig);
    return rig;
}

static void close_rig(struct rig *rig)
{
    rig_check_conservation(rig);
    rig_close(rig);
    free(rig);
}

static void tick(struct rig *rig, uint64_t ns)
{
    rig_now_ns += ns;
    rig_poll(rig);
}

/* A datagram that arrives now. */
static void arrive(struct rig *rig, uint32_t port, const struct mr_addr *from, size_t size)
{
    static const char zeros[200];

    REQUIRE_EQ(mr_inject(rig->mr, port, from, zeros, size), 0);
    rig_poll(rig);
}

TEST(a_relay_ends_when_it_was_idle_for_its_time_not_before_and_soon_after)
{
    struct rig *rig = open_rig(rig_virtual_options(), 1);
    struct mr_addr peer = rig_addr("10.0.0.1:1");
    mr_relay_id id = rig_relay(rig, 0, &peer);
    const struct mr_event *e;
    struct mr_relay_info info;

    rig_settle(rig);
    CHECK_GT(mr_timeout_ms(rig->mr), 29000);
    tick(rig, 30 * second - 1);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 0);
    CHECK_LE(mr_timeout_ms(rig->mr), (int)(late / 1000000));
    tick(rig, late);
    REQUIRE_EQ(rig_count(rig, MR_EVENT_ENDED), 1);
    e = rig_event(rig, MR_EVENT_ENDED, 0);
    CHECK_EQ(e->relay, id);
    CHECK_EQ((int)e->u.ended.reason, (int)MR_END_IDLE);
    CHECK_EQ(e->u.ended.port, 0);
    CHECK(mr_addr_equal(&e->u.ended.peer, &peer));
    CHECK_EQ(e->u.ended.age_ns, 30 * second - 1 + late);
    CHECK_EQ(mr_relay_info(rig->mr, id, &info), -ENOENT);
    CHECK_EQ(mr_relay_of(rig->mr, &peer), 0);
    CHECK_EQ(rig_stats(rig).relays, 0);
    close_rig(rig);
}

TEST(one_way_traffic_keeps_both_ends_alive)
{
    struct rig *rig = open_rig(rig_virtual_options(), 2);
    struct mr_addr a = rig_addr("10.0.0.1:1"), b = rig_addr("10.0.0.2:2");
    mr_relay_id ra = rig_relay(rig, 0, &a), rb = rig_relay(rig, 1, &b);

    CHECK_EQ(mr_pair(rig->mr, ra, rb), 0);
    for (unsigned i = 0; i < 9; i++) {
        arrive(rig, 1, &a, 1);
        tick(rig, 10 * second);
    }
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 0);
    tick(rig, 20 * second + late);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 2);
    close_rig(rig);
}

TEST(an_end_is_on_time_however_often_traffic_came)
{
    struct rig *rig = open_rig(rig_virtual_options(), 2);
    struct mr_addr a = rig_addr("10.0.0.1:1"), b = rig_addr("10.0.0.2:2");
    mr_relay_id ra = rig_relay(rig, 0, &a), rb = rig_relay(rig, 1, &b);
    uint64_t last_ns = 0;

    CHECK_EQ(mr_pair(rig->mr, ra, rb), 0);
    for (unsigned i = 0; i < 5000; i++) {
        arrive(rig, 1, &a, 1);
        tick(rig, 1 + test_random_below(second / 50));
        last_ns = rig_now_ns;
        rig_forget(rig);
    }
    rig_now_ns = last_ns + 30 * second - second / 50 - 1;
    rig_poll(rig);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 0);
    rig_now_ns = last_ns + 30 * second + late;
    rig_poll(rig);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 2);
    close_rig(rig);
}

TEST(a_refresh_counts_as_activity)
{
    struct rig *rig = open_rig(rig_virtual_options(), 1);
    struct mr_addr peer = rig_addr("10.0.0.1:1");
    mr_relay_id id = rig_relay(rig, 0, &peer);

    tick(rig, 29 * second);
    CHECK_EQ(mr_relay_refresh(rig->mr, id), 0);
    tick(rig, 29 * second);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 0);
    tick(rig, second + late);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 1);
    CHECK_EQ(mr_relay_refresh(rig->mr, id), -ENOENT);
    close_rig(rig);
}

TEST(a_relay_may_have_an_idle_time_of_its_own)
{
    struct rig *rig = open_rig(rig_virtual_options(), 3);
    struct mr_relay_spec spec;
    mr_relay_id id;

    for (uint32_t i = 0; i < 3; i++) {
        mr_relay_spec_init(&spec, sizeof spec);
        spec.port = i;
        spec.peer = rig_addr("10.0.0.1:1");
        spec.limits.idle_ns = i == 0 ? 5 * second : i == 1 ? 0 : 60 * second;
        CHECK_EQ(mr_relay_create(rig->mr, &spec, &id), 0);
    }
    tick(rig, 5 * second + late);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 1);
    tick(rig, 25 * second);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 2);
    tick(rig, 30 * second);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 3);
    close_rig(rig);
}

TEST(a_shorter_idle_time_for_all_takes_effect_at_once)
{
    struct rig *rig = open_rig(rig_virtual_options(), 1);
    struct mr_addr peer = rig_addr("10.0.0.1:1");
    struct mr_limits limits;

    (void)rig_relay(rig, 0, &peer);
    mr_limits_init(&limits, sizeof limits);
    limits.idle_ns = second;
    tick(rig, second / 2);
    CHECK_EQ(mr_set_limits(rig->mr, &limits), 0);
    tick(rig, second / 2 + late);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 1);
    close_rig(rig);
}

TEST(without_an_idle_time_a_relay_stays)
{
    struct mr_options o = rig_virtual_options();
    struct mr_addr peer = rig_addr("10.0.0.1:1");
    struct rig *rig;

    o.limits.idle_ns = 0;
    rig = open_rig(o, 1);
    (void)rig_relay(rig, 0, &peer);
    rig_settle(rig);
    CHECK_EQ(mr_timeout_ms(rig->mr), -1);
    tick(rig, 1000000 * second);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 0);
    close_rig(rig);
}

TEST(its_own_time_and_traffic_end_a_relay)
{
    struct rig *rig = open_rig(rig_virtual_options(), 3);
    struct mr_addr a = rig_addr("10.0.0.1:1"), b = rig_addr("10.0.0.2:2");
    struct mr_relay_spec spec;
    mr_relay_id ttl, eater, host;

    host = rig_relay(rig, 0, &b);
    mr_relay_spec_init(&spec, sizeof spec);
    spec.port = 1;
    spec.peer = rig_addr("10.0.0.3:3");
    spec.limits.ttl_ns = 7 * second;
    CHECK_EQ(mr_relay_create(rig->mr, &spec, &ttl), 0);
    spec.port = 2;
    spec.peer = a;
    spec.limits.ttl_ns = 0;
    spec.limits.max_bytes = 250;
    spec.user = 42;
    CHECK_EQ(mr_relay_create(rig->mr, &spec, &eater), 0);
    CHECK_EQ(mr_pair(rig->mr, eater, host), 0);
    for (unsigned i = 0; i < 2; i++)
        arrive(rig, 0, &a, 100);
    rig_settle(rig);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 0);
    /* This one would be above 250: it is refused and ends the relay. */
    arrive(rig, 0, &a, 100);
    rig_settle(rig);
    rig_poll(rig);
    REQUIRE_EQ(rig_count(rig, MR_EVENT_ENDED), 1);
    {
        const struct mr_event *e = rig_event(rig, MR_EVENT_ENDED, 0);

        CHECK_EQ(e->relay, eater);
        CHECK_EQ((int)e->u.ended.reason, (int)MR_END_TRAFFIC);
        CHECK_EQ(e->u.ended.user, 42);
        CHECK_EQ(e->u.ended.counts.packets_in, 2);
        CHECK_EQ(e->u.ended.counts.bytes_in, 200);
        CHECK_EQ(e->u.ended.counts.drops, 1);
    }
    CHECK_EQ(rig_count(rig, MR_EVENT_LIMIT), 0);
    tick(rig, 7 * second);
    REQUIRE_EQ(rig_count(rig, MR_EVENT_ENDED), 2);
    CHECK_EQ((int)rig_event(rig, MR_EVENT_ENDED, 1)->u.ended.reason, (int)MR_END_LIFETIME);
    CHECK_EQ(rig_event(rig, MR_EVENT_ENDED, 1)->relay, ttl);
    close_rig(rig);
}

TEST(the_lifetimes_of_the_settings_only_drop_and_can_be_restarted)
{
    struct mr_options o = rig_virtual_options();
    struct mr_addr a = rig_addr("10.0.0.1:1"), b = rig_addr("10.0.0.2:2");
    struct rig *rig;
    mr_relay_id ra, rb;

    o.limits.life_ns = 600 * second;
    o.limits.idle_ns = 0;
    rig = open_rig(o, 2);
    ra = rig_relay(rig, 0, &a);
    rb = rig_relay(rig, 1, &b);
    CHECK_EQ(mr_pair(rig->mr, ra, rb), 0);
    tick(rig, 300 * second - 1);
    CHECK_EQ(rig_count(rig, MR_EVENT_LIMIT), 0);
    tick(rig, 1);
    REQUIRE_EQ(rig_count(rig, MR_EVENT_LIMIT), 2);
    CHECK_EQ((int)rig_event(rig, MR_EVENT_LIMIT, 0)->u.limit.kind, (int)MR_LIMIT_DURATION_SOON);
    tick(rig, 299 * second);
    arrive(rig, 1, &a, 1);
    tick(rig, second);
    arrive(rig, 1, &a, 1);
    tick(rig, second);
    CHECK_EQ(rig_stats(rig).verdicts[MR_VERDICT_FORWARD], 1);
    CHECK_EQ(rig_stats(rig).verdicts[MR_VERDICT_DURATION], 1);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 0);
    REQUIRE_EQ(rig_count(rig, MR_EVENT_LIMIT), 3);
    CHECK_EQ((int)rig_event(rig, MR_EVENT_LIMIT, 2)->u.limit.kind, (int)MR_LIMIT_DURATION);

    CHECK_EQ(mr_relay_restart(rig->mr, ra), 0);
    arrive(rig, 1, &a, 1);
    tick(rig, 300 * second);
    CHECK_EQ(rig_stats(rig).verdicts[MR_VERDICT_FORWARD], 2);
    REQUIRE_EQ(rig_count(rig, MR_EVENT_LIMIT), 4);
    CHECK_EQ(rig_event(rig, MR_EVENT_LIMIT, 3)->relay, ra);
    close_rig(rig);
}

TEST(a_short_lifetime_has_no_soon)
{
    struct mr_options o = rig_virtual_options();
    struct mr_addr a = rig_addr("10.0.0.1:1");
    struct rig *rig;

    o.limits.life_ns = 300 * second;
    o.limits.idle_ns = 0;
    rig = open_rig(o, 1);
    (void)rig_relay(rig, 0, &a);
    tick(rig, 400 * second);
    CHECK_EQ(rig_count(rig, MR_EVENT_LIMIT), 0);
    close_rig(rig);
}

TEST(a_hundred_thousand_that_are_due_at_once_end_a_thousand_a_call)
{
    enum { RELAYS = 100000 };
    struct mr_options o = rig_virtual_options();
    struct mr_event *events = calloc(2048, sizeof *events);
    struct mr_addr local = rig_addr("127.0.0.1:7");
    struct mr *mr;
    unsigned ended = 0, calls = 0;
    uint32_t port;

    o.max_ports = RELAYS;
    o.max_pairs = 1;
    REQUIRE_EQ(mr_create(&mr, &o), 0);
    for (uint32_t i = 0; i < RELAYS; i++) {
        struct mr_relay_spec spec;
        mr_relay_id id;

        REQUIRE_EQ(mr_port_open(mr, &local, 0, &port), 0);
        mr_relay_spec_init(&spec, sizeof spec);
        spec.port = port;
        spec.peer = (struct mr_addr){.ip = {10}, .family = 4, .port = 1};
        memcpy(&spec.peer.ip[1], &i, 3);
        REQUIRE_EQ(mr_relay_create(mr, &spec, &id), 0);
    }
    while (mr_in_force(mr) < mr_seq(mr))
        REQUIRE(mr_poll(mr, events, 2048) >= 0);
    rig_now_ns += 31 * second;
    while (ended < RELAYS && calls < RELAYS) {
        int n = mr_poll(mr, events, 2048);
        unsigned now = 0;

        REQUIRE(n >= 0);
        for (int i = 0; i < n; i++)
            now += events[i].type == MR_EVENT_ENDED;
        REQUIRE(now <= 1000);
        ended += now;
        calls++;
        if (ended < RELAYS)
            REQUIRE_EQ(mr_timeout_ms(mr), 0);
    }
    CHECK_EQ(ended, RELAYS);
    CHECK_GE(calls, RELAYS / 1000);
    mr_destroy(mr);
    free(events);
}

/* A clock that looks how many commands a worker could see, whenever it is read. */
static struct {
    struct mr *mr;
    uint32_t most;
} watched;

static uint64_t watching_clock(void *user)
{
    if (watched.mr) {
        uint32_t n = mr__ring_count(&watched.mr->workers[0].commands);

        watched.most = n > watched.most ? n : watched.most;
    }
    return rig_clock(user);
}

TEST(a_hundred_ends_reach_a_worker_together_so_that_it_is_woken_once)
{
    enum { RELAYS = 100 };
    struct mr_options o = rig_virtual_options();
    struct rig *rig;

    o.workers = 1;
    o.clock_ns = watching_clock;
    rig = open_rig(o, RELAYS);
    for (uint32_t i = 0; i < RELAYS; i++) {
        struct mr_relay_spec spec;
        mr_relay_id id;

        mr_relay_spec_init(&spec, sizeof spec);
        spec.port = i;
        spec.peer = rig_addr("10.0.0.1:1");
        spec.limits.ttl_ns = second;
        REQUIRE_EQ(mr_relay_create(rig->mr, &spec, &id), 0);
    }
    rig_settle(rig);
    /* From here on nobody but us touches the worker's ring. */
    mr__worker_stop(&rig->mr->workers[0]);
    rig_now_ns += second;
    watched.mr = rig->mr;
    rig_poll(rig);
    watched.mr = NULL;
    CHECK_EQ(rig->mr->ended_now, RELAYS);
    CHECK_EQ(watched.most, 0);
    CHECK_GE(mr__ring_count(&rig->mr->workers[0].commands), RELAYS);
    rig_close(rig);
    free(rig);
}

TEST(a_port_is_taken_until_the_end_was_told)
{
    struct rig *rig = open_rig(rig_virtual_options(), 1);
    struct mr_addr peer = rig_addr("10.0.0.1:1");
    mr_relay_id id = rig_relay(rig, 0, &peer), next;
    struct mr_relay_spec spec;

    mr_relay_spec_init(&spec, sizeof spec);
    spec.port = 0;
    spec.peer = peer;
    CHECK_EQ(mr_relay_create(rig->mr, &spec, &next), -EBUSY);
    CHECK_EQ(mr_relay_close(rig->mr, id), 0);
    CHECK_EQ(mr_relay_close(rig->mr, id), -ENOENT);
    CHECK_EQ(mr_relay_at(rig->mr, 0), 0);
    CHECK_EQ(mr_relay_create(rig->mr, &spec, &next), -EBUSY);
    rig_settle(rig);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 1);
    CHECK_EQ((int)rig_event(rig, MR_EVENT_ENDED, 0)->u.ended.reason, (int)MR_END_CLOSED);
    CHECK_EQ(mr_relay_create(rig->mr, &spec, &next), 0);
    CHECK_NE(next, id);
    close_rig(rig);
}

/* ------------------------------------------------------------------ real sockets */

/* The virtual clock jumps while datagrams wait in the sockets: what a process sees that
 * was stopped for a while. */
static void jump_with_waiting_traffic(int workers)
{
    struct mr_options o = rig_options(workers);
    struct peer a = rig_peer(), b = rig_peer();
    struct rig *rig;
    mr_relay_id ra, rb;

    o.clock_ns = rig_clock;
    rig_now_ns = UINT64_C(1000000000000);
    rig = open_rig(o, 3);
    ra = rig_relay(rig, 0, &a.addr);
    rb = rig_relay(rig, 1, &b.addr);
    {
        struct mr_addr nobody = rig_addr("127.0.0.1:9");

        (void)rig_relay(rig, 2, &nobody);
    }
    CHECK_EQ(mr_pair(rig->mr, ra, rb), 0);
    rig_settle(rig);
    /* First the jump: what a worker has read before it would not be waiting. */
    rig_now_ns += 40 * second;
    for (unsigned i = 0; i < 300; i++)
        rig_send(rig, &a, 1, "x", 1);
    /* The third relay, idle as well, ends; the pair's traffic is seen first. */
    REQUIRE(rig_await(rig, MR_EVENT_ENDED, 1));
    for (unsigned i = 0; i < 20; i++)
        rig_poll(rig);
    CHECK_EQ(rig_count(rig, MR_EVENT_ENDED), 1);
    CHECK_EQ(rig_event(rig, MR_EVENT_ENDED, 0)->u.ended.port, 2);
    CHECK_EQ(mr_relay_at(rig->mr, 0), ra);
    rig_now_ns += 40 * second;
    REQUIRE(rig_await(rig, MR_EVENT_ENDED, 3));
    rig_peer_close(&a);
    rig_peer_close(&b);
    close_rig(rig);
}

TEST(what_waits_in_the_sockets_is_read_before_anything_ends)
{
    jump_with_waiting_traffic(0);
    jump_with_waiting_traffic(1);
    jump_with_waiting_traffic(2);
}

TEST_MAIN(TEST_CASE(a_relay_ends_when_it_was_idle_for_its_time_not_before_and_soon_after),
          TEST_CASE(one_way_traffic_keeps_both_ends_alive),
          TEST_CASE(an_end_is_on_time_however_often_traffic_came),
          TEST_CASE(a_refresh_counts_as_activity),
          TEST_CASE(a_relay_may_have_an_idle_time_of_its_own),
          TEST_CASE(a_shorter_idle_time_for_all_takes_effect_at_once),
          TEST_CASE(without_an_idle_time_a_relay_stays),
          TEST_CASE(its_own_time_and_traffic_end_a_relay),
          TEST_CASE(the_lifetimes_of_the_settings_only_drop_and_can_be_restarted),
          TEST_CASE(a_short_lifetime_has_no_soon),
          TEST_CASE(a_hundred_thousand_that_are_due_at_once_end_a_thousand_a_call),
          TEST_CASE(a_hundred_ends_reach_a_worker_together_so_that_it_is_woken_once),
          TEST_CASE(a_port_is_taken_until_the_end_was_told),
          TEST_CASE(what_waits_in_the_sockets_is_read_before_anything_ends))
