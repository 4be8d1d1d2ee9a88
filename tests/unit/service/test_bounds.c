/* SPDX-License-Identifier: MIT */
/*
 * What the service remembers of players who are gone, or have joined, has a size that crowds do not
 * change: however many come, what came first is forgotten, and after a while all of it. One thread.
 */
#include "service/state.h"

#include "base/alloc.h"
#include "test.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

enum { FEW_BLOCKS = 600 }; /* a table's cells come in chunks */

static struct world *w;

static struct mr_addr nth_address(unsigned n)
{
    char text[32];

    snprintf(text, sizeof text, "11.%u.%u.%u:5000", n >> 16 & 255, n >> 8 & 255, n & 255);
    return world_addr(text);
}

static bool is_known(unsigned n)
{
    struct mr_addr a = nth_address(n);

    return mr__known_has(w->service, &a);
}

TEST(of_addresses_that_had_players_so_many_are_remembered_and_for_ten_minutes)
{
    enum { MORE = 3000, ALL = MR_KNOWN_GONE_MAX + MORE };
    long before, blocks;

    w = world_open(NULL);
    before = mr__alloc_live();
    for (unsigned i = 0; i < ALL; i++) {
        struct mr_addr a = nth_address(i);
        REQUIRE_EQ(mr__known_enter(w->service, &a), 0);
        mr__known_leave(w->service, &a);
    }
    blocks = mr__alloc_live() - before;
    CHECK_GE(blocks, (long)MR_KNOWN_GONE_MAX);
    CHECK_LE(blocks, (long)MR_KNOWN_GONE_MAX + FEW_BLOCKS);
    CHECK(!is_known(0) && !is_known(MORE - 1));
    CHECK(is_known(MORE) && is_known(ALL - 1));
    world_advance(w, (MR_KNOWN_SECONDS - 1) * 1000);
    CHECK(is_known(ALL - 1));
    world_advance(w, 2000);
    CHECK(!is_known(ALL - 1));
    CHECK_LE(mr__alloc_live() - before, 2); /* not even its table */
    world_close(w);
}

TEST(of_sockets_whose_players_were_kicked_so_many_are_remembered)
{
    long before;

    w = world_open(NULL);
    before = mr__alloc_live();
    for (unsigned i = 0; i < 2 * MR_UNWELCOME_MAX; i++) {
        struct mr_addr a = nth_address(i);
        mr__unwelcome_add(w->service, &a);
    }
    CHECK_EQ(w->service->unwelcome.n, (size_t)MR_UNWELCOME_MAX);
    CHECK_LE(mr__alloc_live() - before, (long)MR_UNWELCOME_MAX + FEW_BLOCKS);
    world_close(w);
}

TEST(of_pairs_that_were_connected_so_many_are_remembered_and_for_the_window)
{
    struct seat a = {0}, b = {0}; /* whose relays have ended already */
    long before;

    w = world_open((const char *[]){"latch_window=10s", NULL});
    before = mr__alloc_live();
    for (unsigned i = 0; i < 2 * MR_LATCHES_MAX; i++) {
        mr__latch_remember(w->service, &a, &b);
    }
    CHECK_EQ(w->service->n_latches, (size_t)MR_LATCHES_MAX);
    CHECK_LE(mr__alloc_live() - before, (long)MR_LATCHES_MAX + FEW_BLOCKS);
    world_advance(w, 9 * 1000);
    CHECK_EQ(w->service->n_latches, (size_t)MR_LATCHES_MAX);
    world_advance(w, 2 * 1000);
    CHECK_EQ(w->service->n_latches, 0u);
    CHECK_LE(mr__alloc_live() - before, 2);
    world_close(w);
}

TEST_MAIN(TEST_CASE(of_addresses_that_had_players_so_many_are_remembered_and_for_ten_minutes),
          TEST_CASE(of_sockets_whose_players_were_kicked_so_many_are_remembered),
          TEST_CASE(of_pairs_that_were_connected_so_many_are_remembered_and_for_the_window))
