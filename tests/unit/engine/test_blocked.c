/* SPDX-License-Identifier: MIT */
/*
 * Nets whose strangers are dropped at once. Over no-op sockets and a virtual clock, and with
 * workers over real ones. One thread. Start reading at struct game.
 */
#include "base/alloc.h"
#include "rig.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

/* A host at port 0; 203.0.113.0/24 and 2001:db8::/32 are not wanted. */
struct game {
    struct rig rig;
    mr_relay_id host;
    struct mr_addr host_addr, stranger;
};

static const struct mr_range4 v4[] = {{0xcb007100, 0xcb0071ff, 0}};
static const struct mr_range6 v6[] = {{{0x20, 0x01, 0x0d, 0xb8},
                                       {0x20, 0x01, 0x0d, 0xb8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                        0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
                                       0}};
static const struct mr_nets nets = {.v4 = v4, .v6 = v6, .n4 = 1, .n6 = 1};

static struct game *game_open(struct mr_options o)
{
    struct game *g = calloc(1, sizeof *g);

    rig_open(&g->rig, &o, 4);
    g->host_addr = rig_addr("10.0.0.1:4000");
    g->stranger = rig_addr("203.0.113.5:4000");
    g->host = rig_relay(&g->rig, 0, &g->host_addr);
    mr_set_miss_events(g->rig.mr, 1);
    CHECK_EQ(mr_set_blocked(g->rig.mr, &nets), 0);
    rig_settle(&g->rig);
    rig_forget(&g->rig);
    return g;
}

static void game_close(struct game *g)
{
    rig_check_conservation(&g->rig);
    rig_close(&g->rig);
    free(g);
    CHECK_EQ(mr__alloc_live(), 0);
}

static void inject(struct game *g, uint32_t port, const struct mr_addr *from)
{
    REQUIRE_EQ(mr_inject(g->rig.mr, port, from, "x", 1), 0);
    rig_poll(&g->rig);
}

static uint64_t verdicts(struct game *g, enum mr_verdict v)
{
    return rig_stats(&g->rig).verdicts[v];
}

TEST(a_stranger_from_a_blocked_net_costs_neither_hold_nor_event)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_addr six = rig_addr("[2001:db8:1::1]:5"), other = rig_addr("203.0.114.0:4000");

    inject(g, 0, &g->stranger);
    inject(g, 0, &six);
    inject(g, 3, &g->stranger); /* a free port */
    CHECK_EQ(verdicts(g, MR_VERDICT_BLOCKED), 3);
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 0);
    CHECK_EQ(rig_stats(&g->rig).held, 0);
    inject(g, 0, &other);
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 1);
    game_close(g);
}

TEST(blocked_counts_also_when_nobody_wants_events)
{
    struct game *g = game_open(rig_virtual_options());

    mr_set_miss_events(g->rig.mr, 0);
    inject(g, 0, &g->stranger);
    CHECK_EQ(verdicts(g, MR_VERDICT_BLOCKED), 1);
    CHECK_EQ(verdicts(g, MR_VERDICT_UNKNOWN_SENDER), 0);
    game_close(g);
}

TEST(an_open_port_is_closed_to_blocked_nets)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_addr local = rig_addr("127.0.0.1:777");
    uint32_t port;

    REQUIRE_EQ(mr_port_open(g->rig.mr, &local, MR_PORT_OPEN, &port), 0);
    rig_settle(&g->rig);
    inject(g, port, &g->stranger);
    CHECK_EQ(verdicts(g, MR_VERDICT_BLOCKED), 1);
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 0);
    game_close(g);
}

TEST(a_flow_that_is_known_is_not_looked_at)
{
    struct game *g = game_open(rig_virtual_options());
    mr_relay_id guest = rig_relay(&g->rig, 1, &g->stranger);

    CHECK_EQ(mr_pair(g->rig.mr, guest, g->host), 0);
    rig_settle(&g->rig);
    inject(g, 0, &g->stranger);
    CHECK_EQ(verdicts(g, MR_VERDICT_FORWARD), 1);
    inject(g, 2, &g->stranger); /* a free port: that flow is not known */
    CHECK_EQ(verdicts(g, MR_VERDICT_BLOCKED), 1);
    game_close(g);
}

TEST(with_open_pairing_strangers_are_blocked_and_relays_are_not)
{
    struct mr_options o = rig_virtual_options();
    struct game *g;

    o.pairing = MR_PAIRING_OPEN;
    g = game_open(o);
    inject(g, 0, &g->stranger);
    CHECK_EQ(verdicts(g, MR_VERDICT_BLOCKED), 1);
    (void)rig_relay(&g->rig, 1, &g->stranger);
    rig_settle(&g->rig);
    inject(g, 0, &g->stranger);
    CHECK_EQ(verdicts(g, MR_VERDICT_FORWARD), 1);
    game_close(g);
}

TEST(the_decision_alone_knows_blocked_nets)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_decision d;

    CHECK_EQ(mr_decide(g->rig.mr, &g->stranger, 0, 1, rig_now_ns, &d), (int)MR_VERDICT_BLOCKED);
    CHECK_EQ(mr_set_blocked(g->rig.mr, NULL), 0);
    CHECK_EQ(mr_decide(g->rig.mr, &g->stranger, 0, 1, rig_now_ns, &d),
             (int)MR_VERDICT_UNKNOWN_SENDER);
    rig_settle(&g->rig);
    game_close(g);
}

TEST(nobody_is_blocked_any_more_once_the_nets_are_gone)
{
    struct game *g = game_open(rig_virtual_options());
    struct mr_nets none = {.n4 = 0};

    CHECK_EQ(mr_set_blocked(g->rig.mr, &none), 0);
    rig_settle(&g->rig);
    inject(g, 0, &g->stranger);
    CHECK_EQ(verdicts(g, MR_VERDICT_BLOCKED), 0);
    CHECK_EQ(rig_count(&g->rig, MR_EVENT_MISS), 1);
    game_close(g);
}

TEST(what_was_held_before_is_blocked_when_it_is_released)
{
    struct game *g = game_open(rig_virtual_options());

    CHECK_EQ(mr_set_blocked(g->rig.mr, NULL), 0);
    rig_settle(&g->rig);
    inject(g, 0, &g->stranger);
    CHECK_EQ(mr_set_blocked(g->rig.mr, &nets), 0);
    CHECK_EQ(mr_flow_release(g->rig.mr, rig_event(&g->rig, MR_EVENT_MISS, 0)->u.miss.flow), 0);
    rig_settle(&g->rig);
    CHECK_EQ(verdicts(g, MR_VERDICT_BLOCKED), 1);
    CHECK_EQ(rig_stats(&g->rig).held, 0);
    game_close(g);
}

TEST(nets_that_are_not_sorted_are_refused_and_the_old_ones_stay)
{
    static const struct mr_range4 backwards[] = {{9, 8, 0}}, touching[] = {{1, 5, 0}, {5, 6, 0}};
    static const struct mr_range6 unsorted[] = {{{2}, {3}, 0}, {{1}, {1}, 0}};
    struct game *g = game_open(rig_virtual_options());
    struct mr_nets bad = {.v4 = backwards, .n4 = 1};

    CHECK_EQ(mr_set_blocked(g->rig.mr, &bad), -EINVAL);
    bad = (struct mr_nets){.v4 = touching, .n4 = 2};
    CHECK_EQ(mr_set_blocked(g->rig.mr, &bad), -EINVAL);
    bad = (struct mr_nets){.v6 = unsorted, .n6 = 2};
    CHECK_EQ(mr_set_blocked(g->rig.mr, &bad), -EINVAL);
    rig_settle(&g->rig);
    inject(g, 0, &g->stranger);
    CHECK_EQ(verdicts(g, MR_VERDICT_BLOCKED), 1);
    game_close(g);
}

TEST(without_memory_for_new_nets_the_old_ones_stay)
{
    struct game *g = game_open(rig_virtual_options());
    int rc = -ENOMEM;

    for (long n = 0; rc == -ENOMEM && n < 10; n++) {
        mr__alloc_fail_after(n);
        rc = mr_set_blocked(g->rig.mr, &nets);
        mr__alloc_fail_after(-1);
        inject(g, 0, &g->stranger);
        CHECK_EQ(verdicts(g, MR_VERDICT_BLOCKED), (uint64_t)n + 1);
    }
    CHECK_EQ(rc, 0);
    rig_settle(&g->rig);
    game_close(g);
}

TEST(a_copy_is_freed_when_the_next_one_is_in_force_and_by_the_end)
{
    struct game *g = game_open(rig_virtual_options());
    long before = mr__alloc_live();

    for (int i = 0; i < 50; i++) {
        CHECK_EQ(mr_set_blocked(g->rig.mr, &nets), 0);
    }
    rig_settle(&g->rig);
    CHECK_EQ(mr__alloc_live(), before);
    CHECK_EQ(mr_set_blocked(g->rig.mr, &nets), 0); /* both are there when the engine ends */
    game_close(g);
}

/* For ThreadSanitizer and ASan: the nets change while workers look at them. */
TEST(nets_change_under_the_eyes_of_workers)
{
    enum { ROUNDS = 2000 };
    struct game *g = game_open(rig_options(2));
    struct peer peer = rig_peer();
    struct mr_range4 all = {0, UINT32_MAX, 0};
    struct mr_nets everybody = {.v4 = &all, .n4 = 1};
    uint64_t sent = 0;

    for (int i = 0; i < ROUNDS; i++) {
        CHECK_EQ(mr_set_blocked(g->rig.mr, i % 3 == 0 ? NULL : i % 3 == 1 ? &nets : &everybody), 0);
        rig_send(&g->rig, &peer, (uint32_t)i % 4, "x", 1);
        sent++;
        rig_poll(&g->rig);
    }
    CHECK_EQ(mr_set_blocked(g->rig.mr, &everybody), 0);
    rig_settle(&g->rig);
    rig_send(&g->rig, &peer, 0, "x", 1);
    CHECK_EVENTUALLY((rig_poll(&g->rig), rig_stats(&g->rig).received == sent + 1));
    CHECK_GT(verdicts(g, MR_VERDICT_BLOCKED), 0u);
    rig_peer_close(&peer);
    game_close(g);
}

TEST_MAIN(TEST_CASE(a_stranger_from_a_blocked_net_costs_neither_hold_nor_event),
          TEST_CASE(blocked_counts_also_when_nobody_wants_events),
          TEST_CASE(an_open_port_is_closed_to_blocked_nets),
          TEST_CASE(a_flow_that_is_known_is_not_looked_at),
          TEST_CASE(with_open_pairing_strangers_are_blocked_and_relays_are_not),
          TEST_CASE(the_decision_alone_knows_blocked_nets),
          TEST_CASE(nobody_is_blocked_any_more_once_the_nets_are_gone),
          TEST_CASE(what_was_held_before_is_blocked_when_it_is_released),
          TEST_CASE(nets_that_are_not_sorted_are_refused_and_the_old_ones_stay),
          TEST_CASE(without_memory_for_new_nets_the_old_ones_stay),
          TEST_CASE(a_copy_is_freed_when_the_next_one_is_in_force_and_by_the_end),
          TEST_CASE(nets_change_under_the_eyes_of_workers))
