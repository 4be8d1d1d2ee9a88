/* SPDX-License-Identifier: MIT */
/*
 * Datagrams that nobody expected: asked about, held, replayed, refused. Over no-op
 * sockets and a virtual clock; the last tests over real ones. One thread.
 * Start reading at struct game.
 */
#include "rig.h"
#include "test.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t second = 1000000000;

/* A host at port 0; strangers knock there. */
struct game {
    struct rig rig;
    mr_relay_id host;
    struct mr_addr host_addr, stranger;
};

static struct game *game_open(struct mr_options o)
{
    struct game *g = calloc(1, sizeof *g);

    rig_open(&g->rig, &o, 4);
    g->host_addr = rig_addr("10.0.0.1:4000");
    g->stranger = rig_addr("203.0.113.5:4000");
    g->host = rig_relay(&g->rig, 0, &g->host_addr);
    mr_set_miss_events(g->rig.mr, 1);
    rig_settle(&g->rig);
    rig_forget(&g->rig);
    return g;
}

static void game_close(struct game *g)
{
    rig_check_conservation(&g->rig);
    rig_close(&g->rig);
    free(g);
}

static void inject(struct game *g, uint32_t port, const struct mr_addr *from, const char *text)
{
    REQUIRE_EQ(mr_inject(g->rig.mr, port, from, text, strlen(text)), 0);
    rig_poll(&g->rig);
}

static uint64_t verdicts(struct game *g, enum mr_verdict v)
{
    return rig_stats(&g->rig).verdicts[v];
}

static void admit(struct game *g, uint32_t port, const struct mr_addr *from)
{
    mr_relay_id guest = rig_relay(&g->rig, port, from);

    CHECK_EQ(mr_pair(g->rig.mr, guest, g->host), 0);
}

TEST(the_first_of_a_flow_asks_and_later_ones_wait_in_silence)
{
    struct game *g = game_open(rig_virtual_options());
    const struct mr_event *e;

    inject(g, 0, &g->stranger, "knock knock");
    inject(g, 0, &g->stranger, "again");
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 1);
    e = rig_event(&g->rig, MR_EVENT_MISS, 0);
    CHECK(mr_addr_equal(&e->u.miss.from, &g->stranger));
    CHECK_EQ(e->u.miss.port, 0);
    CHECK_EQ((int)e->u.miss.reason, (int)MR_VERDICT_UNKNOWN_SENDER);
    CHECK_EQ(e->u.miss.size, 11);
    CHECK_MEM(e->u.miss.peek, 11, "knock knock", 11);
    CHECK_EQ(rig_stats(&g->rig).held, 2);
    game_close(g);
}

TEST(reasons_say_what_was_missing)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_addr other = rig_addr("10.0.0.2:1");

    (void)rig_relay(&g->rig, 1, &other);
    inject(g, 0, &other, "x");
    inject(g, 2, &other, "x");
    inject(g, 2, &g->stranger, "x");
    REQUIRE_EQ(rig_count(&g->rig, MR_EVENT_MISS), 3);
    CHECK_EQ((int)rig_event(&g->rig, MR_EVENT_MISS, 0)->u.miss.reason, (int)MR_VERDICT_NOT_PAIRED);
    CHECK_EQ((int)rig_event(&g->rig, MR_EVENT_MISS, 1)->u.miss.reason,
             (int)MR_VERDICT_UNKNOWN_TARGET);
    CHECK_EQ((int)rig_event(&g->rig, MR_EVENT_MISS, 2)->u.miss.reason,
             (int)MR_VERDICT_UNKNOWN_TARGET);
    game_close(g);
}

TEST(nobody_wants_events_so_misses_are_dropped_at_once)
{
    struct game *g = game_open(rig_virtual_options());

    mr_set_miss_events(g->rig.mr, 0);
    inject(g, 0, &g->stranger, "x");
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 0);
    CHECK_EQ(verdicts(g, MR_VERDICT_UNKNOWN_SENDER), 1);
    CHECK_EQ(rig_stats(&g->rig).held, 0);
    game_close(g);
}

TEST(a_link_sends_on_what_was_held)
{
    struct game *g = game_open(rig_virtual_options());

    inject(g, 0, &g->stranger, "one");
    inject(g, 0, &g->stranger, "two");
    admit(g, 1, &g->stranger);
    rig_settle(&g->rig);
    CHECK_EQ(verdicts(g, MR_VERDICT_FORWARD), 2);
    CHECK_EQ(rig_stats(&g->rig).held, 0);
    inject(g, 0, &g->stranger, "three");
    CHECK_EQ(verdicts(g, MR_VERDICT_FORWARD), 3);
    CHECK_EQ(rig_stats(&g->rig).received, 3);
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 1);
    game_close(g);
}

TEST(another_flows_link_leaves_the_held_waiting)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_addr other = rig_addr("203.0.113.6:4000");

    inject(g, 0, &g->stranger, "one");
    inject(g, 0, &other, "other");
    admit(g, 1, &other);
    rig_settle(&g->rig);
    CHECK_EQ(verdicts(g, MR_VERDICT_FORWARD), 1);
    CHECK_EQ(rig_stats(&g->rig).held, 1);
    /* A relay alone is no way in either, as long as pairs decide. */
    (void)rig_relay(&g->rig, 2, &g->stranger);
    rig_settle(&g->rig);
    CHECK_EQ(rig_stats(&g->rig).held, 1);
    game_close(g);
}

TEST(with_open_pairing_a_relay_is_a_way_for_what_was_held)
{
    struct mr_options o = rig_virtual_options();
    struct game *g;

    o.pairing = MR_PAIRING_OPEN;
    g = game_open(o);
    inject(g, 0, &g->stranger, "known target, unknown sender");
    inject(g, 2, &g->host_addr, "known sender, unknown target");
    CHECK_EQ(rig_stats(&g->rig).held, 2);
    (void)rig_relay(&g->rig, 1, &g->stranger);
    rig_settle(&g->rig);
    CHECK_EQ(rig_stats(&g->rig).held, 1);
    CHECK_EQ(verdicts(g, MR_VERDICT_FORWARD), 1);
    {
        struct mr_addr third = rig_addr("10.0.0.3:9"), moved = rig_addr("203.0.113.9:1");
        mr_relay_id id = rig_relay(&g->rig, 2, &third);

        rig_settle(&g->rig);
        CHECK_EQ(rig_stats(&g->rig).held, 0);
        CHECK_EQ(verdicts(g, MR_VERDICT_FORWARD), 2);
        inject(g, 0, &moved, "from where somebody moves");
        CHECK_EQ(rig_stats(&g->rig).held, 1);
        CHECK_EQ(mr_relay_move(g->rig.mr, id, &moved, NULL), 0);
        rig_settle(&g->rig);
        CHECK_EQ(rig_stats(&g->rig).held, 0);
    }
    game_close(g);
}

TEST(a_release_drops_what_still_has_no_way_with_the_reason_found)
{
    struct game *g = game_open(rig_virtual_options());
    mr_flow_id flow;

    inject(g, 0, &g->stranger, "one");
    inject(g, 0, &g->stranger, "two");
    flow = rig_event(&g->rig, MR_EVENT_MISS, 0)->u.miss.flow;
    CHECK_EQ(mr_flow_release(g->rig.mr, flow), 0);
    rig_settle(&g->rig);
    CHECK_EQ(verdicts(g, MR_VERDICT_UNKNOWN_SENDER), 2);
    CHECK_EQ(rig_stats(&g->rig).held, 0);
    CHECK_EQ(mr_flow_release(g->rig.mr, flow), -ENOENT);
    /* It may ask again. */
    inject(g, 0, &g->stranger, "three");
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 2);
    CHECK_NE(rig_event(&g->rig, MR_EVENT_MISS, 1)->u.miss.flow, flow);
    game_close(g);
}

TEST(a_discarded_flow_is_quiet_for_its_time)
{
    struct game *g = game_open(rig_virtual_options());
    mr_flow_id flow;

    inject(g, 0, &g->stranger, "one");
    flow = rig_event(&g->rig, MR_EVENT_MISS, 0)->u.miss.flow;
    CHECK_EQ(mr_flow_discard(g->rig.mr, flow, MR_VERDICT_FORWARD, 0, MR_VERDICT_MUTED), -EINVAL);
    CHECK_EQ(mr_flow_discard(g->rig.mr, flow, MR_VERDICT_REFUSED, 0, MR_VERDICT_FORWARD), -EINVAL);
    CHECK_EQ(mr_flow_discard(g->rig.mr, flow, MR_VERDICT_REFUSED, 5 * second, MR_VERDICT_MUTED), 0);
    rig_settle(&g->rig);
    CHECK_EQ(verdicts(g, MR_VERDICT_REFUSED), 1);
    inject(g, 0, &g->stranger, "two");
    rig_now_ns += 5 * second - 1;
    inject(g, 0, &g->stranger, "three");
    CHECK_EQ(verdicts(g, MR_VERDICT_MUTED), 2);
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 1);
    rig_now_ns += 1;
    inject(g, 0, &g->stranger, "four");
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 2);
    game_close(g);
}

TEST(a_quiet_time_of_nothing_is_a_second)
{
    struct game *g = game_open(rig_virtual_options());

    inject(g, 0, &g->stranger, "one");
    CHECK_EQ(mr_flow_discard(g->rig.mr, rig_event(&g->rig, MR_EVENT_MISS, 0)->u.miss.flow,
                             MR_VERDICT_REFUSED, 0, MR_VERDICT_REFUSED),
             0);
    rig_settle(&g->rig);
    rig_now_ns += second - 1;
    inject(g, 0, &g->stranger, "two");
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 1);
    CHECK_EQ(verdicts(g, MR_VERDICT_REFUSED), 2);
    game_close(g);
}

TEST(a_quiet_flow_that_gets_a_link_passes)
{
    struct game *g = game_open(rig_virtual_options());

    inject(g, 0, &g->stranger, "one");
    CHECK_EQ(mr_flow_discard(g->rig.mr, rig_event(&g->rig, MR_EVENT_MISS, 0)->u.miss.flow,
                             MR_VERDICT_REFUSED, 100 * second, MR_VERDICT_MUTED),
             0);
    admit(g, 1, &g->stranger);
    rig_settle(&g->rig);
    inject(g, 0, &g->stranger, "two");
    CHECK_EQ(verdicts(g, MR_VERDICT_FORWARD), 1);
    game_close(g);
}

TEST(what_waits_too_long_is_given_up)
{
    struct game *g = game_open(rig_virtual_options());
    mr_flow_id flow;

    inject(g, 0, &g->stranger, "one");
    rig_now_ns += 2 * second - 1;
    rig_poll(&g->rig);
    CHECK_EQ(rig_stats(&g->rig).held, 1);
    CHECK_LE(mr_timeout_ms(g->rig.mr), 1);
    rig_now_ns += 1;
    CHECK_EQ(mr_timeout_ms(g->rig.mr), 0);
    rig_poll(&g->rig);
    CHECK_EQ(verdicts(g, MR_VERDICT_HOLD_EXPIRED), 1);
    CHECK_EQ(rig_stats(&g->rig).held, 0);
    flow = rig_event(&g->rig, MR_EVENT_MISS, 0)->u.miss.flow;
    CHECK_EQ(mr_flow_release(g->rig.mr, flow), -ENOENT);
    game_close(g);
}

TEST(a_flow_that_was_given_up_before_it_was_told_is_not_asked_about)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_addr other = rig_addr("203.0.113.6:4000");
    struct mr_event e = {.type = MR_EVENT_IN_FORCE};

    REQUIRE_EQ(mr_inject(g->rig.mr, 0, &g->stranger, "one", 3), 0);
    REQUIRE_EQ(mr_inject(g->rig.mr, 0, &other, "two", 3), 0);
    for (int i = 0; i < 8 && e.type != MR_EVENT_MISS; i++)
        CHECK_GE(mr_poll(g->rig.mr, &e, 1), 0); /* one event a call: the other waits */
    CHECK_EQ((int)e.type, (int)MR_EVENT_MISS);
    CHECK_EQ(rig_stats(&g->rig).held, 2);
    rig_now_ns += 2 * second;
    rig_poll(&g->rig);
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 0);
    CHECK_EQ(verdicts(g, MR_VERDICT_HOLD_EXPIRED), 2);
    inject(g, 0, &other, "three");
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 1);
    game_close(g);
}

TEST(a_flow_holds_no_more_than_its_share)
{
    struct game *g = game_open(rig_virtual_options());

    for (unsigned i = 0; i < 12; i++)
        inject(g, 0, &g->stranger, "x");
    CHECK_EQ(rig_stats(&g->rig).held, 8);
    CHECK_EQ(verdicts(g, MR_VERDICT_HOLD_FULL), 4);
    game_close(g);
}

TEST(a_flow_may_hold_more_or_less_than_others)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_addr other = rig_addr("203.0.113.6:4000");
    mr_flow_id flow;

    inject(g, 0, &g->stranger, "x");
    flow = rig_event(&g->rig, MR_EVENT_MISS, 0)->u.miss.flow;
    CHECK_EQ(mr_flow_hold(g->rig.mr, flow, 2, MR_HOLD_AS_IS, 0), 0);
    rig_settle(&g->rig);
    for (unsigned i = 0; i < 3; i++)
        inject(g, 0, &g->stranger, "x");
    CHECK_EQ(rig_stats(&g->rig).held, 2);
    CHECK_EQ(verdicts(g, MR_VERDICT_HOLD_FULL), 2);
    CHECK_EQ(mr_flow_hold(g->rig.mr, flow, 100, 5, 0), 0);
    rig_settle(&g->rig);
    for (unsigned i = 0; i < 4; i++)
        inject(g, 0, &g->stranger, "x");
    CHECK_EQ(rig_stats(&g->rig).held, 5);
    for (unsigned i = 0; i < 9; i++)
        inject(g, 0, &other, "x");
    CHECK_EQ(rig_stats(&g->rig).held, 5 + 8);
    CHECK_EQ(mr_flow_hold(g->rig.mr, flow, 0, MR_HOLD_AS_IS, 0), 0); /* what is held stays */
    rig_settle(&g->rig);
    inject(g, 0, &g->stranger, "x");
    CHECK_EQ(rig_stats(&g->rig).held, 5 + 8);
    game_close(g);
}

TEST(a_flow_may_wait_longer_or_shorter_than_others)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_addr other = rig_addr("203.0.113.6:4000");
    mr_flow_id longer, shorter;

    inject(g, 0, &g->stranger, "x");
    inject(g, 0, &other, "x");
    longer = rig_event(&g->rig, MR_EVENT_MISS, 0)->u.miss.flow;
    shorter = rig_event(&g->rig, MR_EVENT_MISS, 1)->u.miss.flow;
    CHECK_EQ(mr_flow_hold(g->rig.mr, longer, MR_HOLD_AS_IS, MR_HOLD_AS_IS, 10 * second), 0);
    CHECK_EQ(mr_flow_hold(g->rig.mr, shorter, MR_HOLD_AS_IS, MR_HOLD_AS_IS, second), 0);
    rig_settle(&g->rig);
    rig_now_ns += second - 1;
    rig_poll(&g->rig);
    CHECK_EQ(rig_stats(&g->rig).held, 2);
    CHECK_LE(mr_timeout_ms(g->rig.mr), 1);
    rig_now_ns += 1;
    rig_poll(&g->rig);
    CHECK_EQ(verdicts(g, MR_VERDICT_HOLD_EXPIRED), 1);
    CHECK_EQ(mr_flow_hold(g->rig.mr, shorter, 1, 0, 0), -ENOENT);
    rig_now_ns += 8 * second;
    rig_poll(&g->rig);
    CHECK_EQ(rig_stats(&g->rig).held, 1);
    CHECK_EQ(mr_flow_release(g->rig.mr, longer), 0);
    CHECK_EQ(mr_flow_hold(g->rig.mr, longer, 1, 0, 0), -ENOENT);
    CHECK_EQ(mr_flow_hold(g->rig.mr, longer, 1, 0, UINT64_MAX), -EINVAL);
    game_close(g);
}

TEST(bounds_of_all_that_come_change_while_traffic_flows)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_addr other = rig_addr("203.0.113.6:4000");
    struct mr_hold_options hold = {
        .datagrams = 2, .bytes = 2, .time_ns = second, .events_per_s = 10000};

    inject(g, 0, &g->stranger, "long");
    CHECK_EQ(mr_set_hold(g->rig.mr, &hold), 0);
    rig_settle(&g->rig);
    inject(g, 0, &g->stranger, "long"); /* one that is held keeps its bounds */
    CHECK_EQ(rig_stats(&g->rig).held, 2);
    inject(g, 0, &other, "x");
    inject(g, 0, &other, "xx");
    CHECK_EQ(verdicts(g, MR_VERDICT_HOLD_FULL), 1);
    rig_now_ns += second;
    rig_poll(&g->rig);
    CHECK_EQ(verdicts(g, MR_VERDICT_HOLD_EXPIRED), 1);
    CHECK_EQ(rig_stats(&g->rig).held, 2);
    hold.time_ns = 0;
    CHECK_EQ(mr_set_hold(g->rig.mr, &hold), -EINVAL);
    hold.time_ns = 1;
    hold.events_per_s = 0;
    CHECK_EQ(mr_set_hold(g->rig.mr, &hold), -EINVAL);
    game_close(g);
}

TEST(our_own_sockets_are_never_asked_about)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_addr registrar = rig_addr("0.0.0.0:8809"), spoof = rig_addr("127.0.0.1:8809");
    struct mr_port_info info = {.relay = 0};
    mr_relay_id id;
    struct mr_relay_spec spec;

    CHECK_EQ(mr_own_address(g->rig.mr, &registrar), 0);
    CHECK_EQ(mr_is_own_address(g->rig.mr, &spoof), 1);
    inject(g, 0, &spoof, "loop");
    CHECK_EQ(mr_port_info(g->rig.mr, 1, &info), 0);
    inject(g, 0, &info.local, "loop");
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 0);
    CHECK_EQ(verdicts(g, MR_VERDICT_OWN_ADDRESS), 2);

    mr_relay_spec_init(&spec, sizeof spec);
    spec.port = 1;
    spec.peer = spoof;
    CHECK_EQ(mr_relay_create(g->rig.mr, &spec, &id), -EADDRNOTAVAIL);
    CHECK_EQ(mr_relay_move(g->rig.mr, g->host, &spoof, NULL), -EADDRNOTAVAIL);
    game_close(g);
}

TEST(strangers_above_the_budget_cost_no_event)
{
    struct mr_options o = rig_virtual_options();
    struct game *g;

    o.hold.events_per_s = 10;
    g = game_open(o);
    for (uint16_t i = 0; i < 30; i++) {
        g->stranger.port = (uint16_t)(1000 + i);
        inject(g, 0, &g->stranger, "x");
    }
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 10);
    CHECK_EQ(verdicts(g, MR_VERDICT_EVENT_FULL), 20);
    rig_now_ns += second / 10;
    g->stranger.port = 5000;
    inject(g, 0, &g->stranger, "x");
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 11);
    game_close(g);
}

/* Every event of a call is answered: the stranger is nobody we want. Returns how many there were.
 */
static unsigned discard_all(struct game *g)
{
    unsigned n = rig_count(&g->rig, MR_EVENT_MISS);

    for (unsigned i = 0; i < n; i++)
        (void)mr_flow_discard(g->rig.mr, rig_event(&g->rig, MR_EVENT_MISS, i)->u.miss.flow,
                              MR_VERDICT_REFUSED, 5 * second, MR_VERDICT_MUTED);
    rig_forget(&g->rig);
    return n;
}

/* 60,000 a second, one after the other from an address that was never seen; a pair plays at 60 Hz.
 * With and without somebody who answers. */
static void forge_sources(unsigned sources, bool is_answered)
{
    enum { A_TICK = 1000 };
    struct mr_options o = rig_virtual_options();
    struct mr_addr friend = rig_addr("10.0.0.7:7"), forged = rig_addr("192.0.2.1:4000");
    unsigned played = 0, asked = 0;
    struct mr_stats s;
    struct game *g;
    long blocks;

    o.hold.flows = 256;
    o.hold.memory_bytes = 1 << 16;
    o.hold.events_per_s = 1000;
    g = game_open(o);
    admit(g, 1, &friend);
    rig_settle(&g->rig);
    blocks = mr__alloc_live();
    for (unsigned k = 0; k < sources; k++) {
        memcpy(&forged.ip[0], &(uint32_t){0x40000000u + k}, 4);
        REQUIRE_EQ(mr_inject(g->rig.mr, k % 2 ? 0 : 1, &forged, "let me in", 9), 0);
        if (k % 100 == 99)
            rig_poll(&g->rig);
        if (k % A_TICK == A_TICK - 1) {
            rig_now_ns += second / 60;
            inject(g, 0, &friend, "play");
            played++;
            asked += is_answered ? discard_all(g) : 0;
            CHECK_EQ(verdicts(g, MR_VERDICT_FORWARD), played);
            CHECK_LE(rig_stats(&g->rig).held, o.hold.flows * o.hold.datagrams);
        }
    }
    rig_settle(&g->rig);
    s = rig_stats(&g->rig);
    CHECK_EQ(s.received, sources + played);
    /* Questions are bounded by time and not by the flood. */
    CHECK_LE(asked, 1000 + 1000 * (uint64_t)played / 60 + 1);
    CHECK_GT(s.verdicts[MR_VERDICT_EVENT_FULL], sources / 2);
    CHECK_EQ(mr__alloc_live(), blocks);
    game_close(g);
}

TEST(a_flood_of_forged_sources_takes_no_memory_and_nothing_from_a_pair)
{
    forge_sources(200000, true);
    forge_sources(100000, false);
}

TEST(events_that_nobody_reads_are_counted_and_cost_only_their_datagrams)
{
    enum { STRANGERS = 5000 }; /* more than the ring takes */
    struct mr_options o = rig_virtual_options();
    struct game *g;
    struct mr_event one;
    struct mr_stats s;

    o.hold.flows = STRANGERS;
    g = game_open(o);
    for (uint32_t i = 0; i < STRANGERS; i++) {
        g->stranger.port = (uint16_t)(1 + i);
        REQUIRE_EQ(mr_inject(g->rig.mr, 0, &g->stranger, "x", 1), 0);
    }
    /* Room for one event: the rest stays in the ring. */
    while (mr_in_force(g->rig.mr) < mr_seq(g->rig.mr))
        CHECK_EQ(mr_poll(g->rig.mr, &one, 1), 1);
    s = rig_stats(&g->rig);
    CHECK_GT(s.events_lost, 0);
    CHECK_EQ(s.events_lost, s.verdicts[MR_VERDICT_EVENT_FULL]);
    CHECK_EQ(s.held + s.events_lost, STRANGERS);
    /* Somebody who is known passes all the while. */
    {
        struct mr_addr friend = rig_addr("10.0.0.7:7");

        admit(g, 1, &friend);
        REQUIRE_EQ(mr_inject(g->rig.mr, 0, &friend, "x", 1), 0);
        while (mr_in_force(g->rig.mr) < mr_seq(g->rig.mr))
            (void)mr_poll(g->rig.mr, &one, 1);
        CHECK_EQ(verdicts(g, MR_VERDICT_FORWARD), 1);
    }
    game_close(g);
}

TEST(a_miss_that_is_known_by_now_is_released_without_an_event)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_event one;

    REQUIRE_EQ(mr_inject(g->rig.mr, 0, &g->stranger, "x", 1), 0);
    /* The miss is in the ring; before anybody reads it the pair is made. */
    CHECK_EQ(mr_poll(g->rig.mr, &one, 1), 1);
    CHECK_EQ((int)one.type, (int)MR_EVENT_IN_FORCE);
    CHECK_EQ(rig_stats(&g->rig).held, 1);
    admit(g, 1, &g->stranger);
    rig_settle(&g->rig);
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 0);
    CHECK_EQ(verdicts(g, MR_VERDICT_FORWARD), 1);
    game_close(g);
}

TEST(an_open_port_asks_about_every_new_flow_even_when_nobody_else_asks)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_addr local = rig_addr("127.0.0.1:0");
    uint32_t port;

    mr_set_miss_events(g->rig.mr, 0);
    CHECK_EQ(mr_port_open(g->rig.mr, &local, MR_PORT_OPEN, &port), 0);
    inject(g, port, &g->stranger, "x");
    inject(g, 0, &g->stranger, "x");
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 1);
    CHECK_EQ((int)rig_event(&g->rig, MR_EVENT_MISS, 0)->u.miss.reason, (int)MR_VERDICT_NEW_FLOW);
    game_close(g);
}

TEST(closing_a_port_ends_the_flows_that_wait_there)
{
    struct game *g = game_open(rig_virtual_options());
    mr_flow_id flow;

    inject(g, 2, &g->stranger, "x");
    flow = rig_event(&g->rig, MR_EVENT_MISS, 0)->u.miss.flow;
    CHECK_EQ(mr_port_close(g->rig.mr, 2), 0);
    rig_settle(&g->rig);
    CHECK_EQ(rig_stats(&g->rig).held, 0);
    CHECK_EQ(verdicts(g, MR_VERDICT_UNKNOWN_TARGET), 1);
    (void)mr_flow_release(g->rig.mr, flow);
    rig_settle(&g->rig);
    game_close(g);
}

/* ------------------------------------------------------------------ real sockets */

static void hold_and_replay(int workers)
{
    struct rig *rig = calloc(1, sizeof *rig);
    struct mr_options o = rig_options(workers);
    struct peer host = rig_peer(), guest = rig_peer();
    mr_relay_id a, b;

    o.hold.datagrams = 64;
    rig_open(rig, &o, 2);
    mr_set_miss_events(rig->mr, 1);
    a = rig_relay(rig, 0, &host.addr);
    rig_settle(rig);
    rig_forget(rig);
    for (uint32_t i = 0; i < 50; i++)
        rig_send(rig, &guest, 0, &i, sizeof i);
    REQUIRE(rig_await(rig, MR_EVENT_MISS, 1));
    b = rig_relay(rig, 1, &guest.addr);
    CHECK_EQ(mr_pair(rig->mr, a, b), 0);
    for (uint32_t i = 50; i < 100; i++)
        rig_send(rig, &guest, 0, &i, sizeof i);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t got = 0;

        REQUIRE_EQ(rig_receive(rig, &host, &got, sizeof got, NULL), 4);
        REQUIRE_EQ(got, i);
    }
    CHECK_EQ(rig_count(rig, MR_EVENT_MISS), 1);
    rig_check_conservation(rig);
    rig_close(rig);
    rig_peer_close(&host);
    rig_peer_close(&guest);
    free(rig);
}

TEST(held_datagrams_go_out_in_order_before_later_ones)
{
    for (unsigned round = 0; round < 10; round++) {
        hold_and_replay(0);
        hold_and_replay(1);
        hold_and_replay(2);
    }
}

TEST_MAIN(TEST_CASE(the_first_of_a_flow_asks_and_later_ones_wait_in_silence),
          TEST_CASE(reasons_say_what_was_missing),
          TEST_CASE(nobody_wants_events_so_misses_are_dropped_at_once),
          TEST_CASE(a_link_sends_on_what_was_held),
          TEST_CASE(another_flows_link_leaves_the_held_waiting),
          TEST_CASE(with_open_pairing_a_relay_is_a_way_for_what_was_held),
          TEST_CASE(a_release_drops_what_still_has_no_way_with_the_reason_found),
          TEST_CASE(a_discarded_flow_is_quiet_for_its_time),
          TEST_CASE(a_quiet_time_of_nothing_is_a_second),
          TEST_CASE(a_quiet_flow_that_gets_a_link_passes),
          TEST_CASE(what_waits_too_long_is_given_up),
          TEST_CASE(a_flow_that_was_given_up_before_it_was_told_is_not_asked_about),
          TEST_CASE(a_flow_holds_no_more_than_its_share),
          TEST_CASE(a_flow_may_hold_more_or_less_than_others),
          TEST_CASE(a_flow_may_wait_longer_or_shorter_than_others),
          TEST_CASE(bounds_of_all_that_come_change_while_traffic_flows),
          TEST_CASE(our_own_sockets_are_never_asked_about),
          TEST_CASE(strangers_above_the_budget_cost_no_event),
          TEST_CASE(a_flood_of_forged_sources_takes_no_memory_and_nothing_from_a_pair),
          TEST_CASE(events_that_nobody_reads_are_counted_and_cost_only_their_datagrams),
          TEST_CASE(a_miss_that_is_known_by_now_is_released_without_an_event),
          TEST_CASE(an_open_port_asks_about_every_new_flow_even_when_nobody_else_asks),
          TEST_CASE(closing_a_port_ends_the_flows_that_wait_there),
          TEST_CASE(held_datagrams_go_out_in_order_before_later_ones))
