/* SPDX-License-Identifier: MIT */
/*
 * The pool of held datagrams by itself, and the tray. One thread.
 * Start reading at struct pool.
 */
#include "base/alloc.h"
#include "engine/hold.h"
#include "engine/tray.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

struct pool {
    struct hold hold;
    void *mem;
    size_t bytes;
};

static struct pool *pool_open(struct mr_hold_options limits)
{
    struct pool *p = calloc(1, sizeof *p);
    struct hash_key key = {{1, 2, 3, 4}};

    p->bytes = mr__hold_bytes(&limits);
    p->mem = mr__map(p->bytes);
    mr__hold_init(&p->hold, &limits, 5, &key, p->mem);
    return p;
}

static void pool_close(struct pool *p)
{
    mr__unmap(p->mem, p->bytes);
    free(p);
}

static struct mr_hold_options limits_of(uint32_t flows, uint32_t memory)
{
    return (struct mr_hold_options){.datagrams = 8,
                                    .bytes = 16384,
                                    .time_ns = 1000,
                                    .flows = flows,
                                    .memory_bytes = memory,
                                    .events_per_s = 1};
}

static struct mr_addr sender(uint32_t k)
{
    struct mr_addr a = {.family = 4, .port = (uint16_t)(1000 + k % 60000)};

    a.ip[0] = 10;
    memcpy(&a.ip[1], &k, 3);
    return a;
}

static struct hold_flow *open_flow(struct pool *p, uint32_t k)
{
    struct mr_addr from = sender(k);

    return mr__hold_open(&p->hold, 0, k % 3, &from, MR_VERDICT_UNKNOWN_SENDER);
}

static struct hold_flow *find(struct pool *p, uint32_t k)
{
    struct mr_addr from = sender(k);

    return mr__hold_find(&p->hold, k % 3, &from);
}

TEST(datagrams_of_every_size_come_back_in_order)
{
    static const uint32_t sizes[] = {0, 1, 239, 240, 241, 480, 481, 5000};
    struct pool *p = pool_open(limits_of(4, 1 << 16));
    struct hold_flow *f = open_flow(p, 1);
    uint8_t in[5000], out[5000];

    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)test_random();
    for (unsigned k = 0; k < 8; k++)
        CHECK_EQ(mr__hold_keep(&p->hold, f, in + k, sizes[k] > k ? sizes[k] - k : 0), 0);
    for (unsigned k = 0; k < 8; k++) {
        uint32_t size = sizes[k] > k ? sizes[k] - k : 0;

        REQUIRE_EQ(mr__hold_peek(&p->hold, f), size);
        mr__hold_take(&p->hold, f, out);
        CHECK_MEM(out, size, in + k, size);
    }
    CHECK_EQ(mr__hold_peek(&p->hold, f), -ENOENT);
    CHECK_EQ(f->bytes, 0);
    pool_close(p);
}

TEST(a_flow_is_bounded_by_datagrams_and_by_bytes)
{
    struct pool *p = pool_open(limits_of(4, 1 << 20));
    struct hold_flow *few = open_flow(p, 1), *large = open_flow(p, 2);
    static uint8_t data[16385];

    for (unsigned k = 0; k < 8; k++)
        CHECK_EQ(mr__hold_keep(&p->hold, few, data, 1), 0);
    CHECK_EQ(mr__hold_keep(&p->hold, few, data, 1), -ENOSPC);
    CHECK_EQ(mr__hold_keep(&p->hold, large, data, 16385), -ENOSPC);
    CHECK_EQ(mr__hold_keep(&p->hold, large, data, 16000), 0);
    CHECK_EQ(mr__hold_keep(&p->hold, large, data, 385), -ENOSPC);
    CHECK_EQ(mr__hold_keep(&p->hold, large, data, 384), 0);
    pool_close(p);
}

TEST(a_flow_may_have_bounds_of_its_own)
{
    struct pool *p = pool_open(limits_of(4, 1 << 16));
    struct hold_flow *f = open_flow(p, 1), *other = open_flow(p, 2);
    uint8_t data[200] = {0};

    mr__hold_bound(&p->hold, f, 2, MR_HOLD_AS_IS, 0);
    CHECK_EQ(mr__hold_keep(&p->hold, f, data, 1), 0);
    CHECK_EQ(mr__hold_keep(&p->hold, f, data, 1), 0);
    CHECK_EQ(mr__hold_keep(&p->hold, f, data, 1), -ENOSPC);
    mr__hold_bound(&p->hold, f, 4, 100, 0);
    CHECK_EQ(mr__hold_keep(&p->hold, f, data, 99), -ENOSPC);
    CHECK_EQ(mr__hold_keep(&p->hold, f, data, 98), 0);
    CHECK_EQ(mr__hold_keep(&p->hold, other, data, 200), 0);
    pool_close(p);
}

TEST(the_flow_that_is_due_first_is_found_whatever_times_flows_have)
{
    enum { FLOWS = 32, STEPS = 20000 };
    struct pool *p = pool_open(limits_of(FLOWS, 1 << 14));

    for (unsigned step = 0; step < STEPS; step++) {
        uint32_t k = (uint32_t)test_random_below(100);
        struct hold_flow *f = find(p, k);
        uint64_t least = UINT64_MAX;

        if (!f) {
            (void)open_flow(p, k);
        } else if (f->state == HOLD_QUIET || test_random_below(4) == 0) {
            mr__hold_close(&p->hold, f);
        } else if (test_random_below(4) == 0) {
            mr__hold_silence(&p->hold, f, 1, MR_VERDICT_MUTED);
        } else {
            mr__hold_bound(&p->hold, f, MR_HOLD_AS_IS, MR_HOLD_AS_IS, 1 + test_random_below(1000));
        }
        for (f = mr__hold_oldest(&p->hold); f; f = mr__hold_after(&p->hold, f))
            least = f->until_ns < least ? f->until_ns : least;
        f = mr__hold_due(&p->hold);
        REQUIRE_EQ(f ? f->until_ns : UINT64_MAX, least);
    }
    pool_close(p);
}

TEST(the_pool_is_bounded_and_gets_all_of_it_back)
{
    struct pool *p = pool_open(limits_of(64, 8192)); /* 32 blocks */
    static uint8_t data[1000];
    struct hold_flow *f[10];

    for (unsigned round = 0; round < 3; round++) {
        for (unsigned k = 0; k < 7; k++) {
            f[k] = open_flow(p, k);
            /* 1,000 bytes take 5 blocks: six fit, the seventh leaves nothing behind. */
            CHECK_EQ(mr__hold_keep(&p->hold, f[k], data, 1000), k < 6 ? 0 : -ENOSPC);
        }
        CHECK_EQ(mr__hold_keep(&p->hold, f[6], data, 480), 0);
        CHECK_EQ(mr__hold_keep(&p->hold, f[6], data, 0), -ENOSPC);
        for (unsigned k = 0; k < 7; k++) {
            CHECK_EQ(mr__hold_drop(&p->hold, f[k]), 1);
            mr__hold_close(&p->hold, f[k]);
        }
    }
    pool_close(p);
}

TEST(an_id_names_one_pending_flow_only)
{
    struct pool *p = pool_open(limits_of(4, 8192));
    struct hold_flow *f = open_flow(p, 1);
    mr_flow_id id = mr__hold_id(&p->hold, f);

    CHECK_NE(id, 0);
    CHECK_EQ(mr__hold_id_worker(id), 5);
    CHECK(mr__hold_get(&p->hold, id) == f);
    CHECK(mr__hold_get(&p->hold, id + 1) == NULL);
    CHECK(mr__hold_get(&p->hold, id ^ (1u << 24)) == NULL);
    CHECK(mr__hold_get(&p->hold, 0) == NULL);
    mr__hold_silence(&p->hold, f, 10, MR_VERDICT_MUTED);
    CHECK(mr__hold_get(&p->hold, id) == NULL);
    mr__hold_close(&p->hold, f);
    CHECK(open_flow(p, 1) == f);
    CHECK(mr__hold_get(&p->hold, id) == NULL);
    CHECK_NE(mr__hold_id(&p->hold, f), id);
    pool_close(p);
}

TEST(quiet_flows_give_way_and_pending_ones_do_not)
{
    enum { FLOWS = 8, ALL = FLOWS * (1 + HOLD_QUIET_PER_FLOW) };
    struct pool *p = pool_open(limits_of(FLOWS, 8192));

    for (uint32_t k = 0; k < ALL; k++) {
        struct hold_flow *f = open_flow(p, k);

        REQUIRE(f != NULL);
        mr__hold_silence(&p->hold, f, 10, MR_VERDICT_MUTED);
    }
    CHECK(find(p, 0) != NULL);
    for (uint32_t k = 0; k < FLOWS; k++)
        CHECK(open_flow(p, ALL + k) != NULL);
    /* The oldest quiet ones are forgotten, the younger are there. */
    CHECK(find(p, 0) == NULL);
    CHECK(find(p, FLOWS) != NULL);
    CHECK(open_flow(p, 1000) == NULL);
    CHECK_EQ(p->hold.pending.count, FLOWS);
    pool_close(p);
}

TEST(any_sequence_keeps_index_lists_and_memory_in_step)
{
    enum { KEYS = 200, STEPS = 50000 };
    struct pool *p = pool_open(limits_of(32, 1 << 14));
    uint32_t held[KEYS] = {0};
    static uint8_t data[2000];

    for (unsigned step = 0; step < STEPS; step++) {
        uint32_t k = (uint32_t)test_random_below(KEYS);
        struct hold_flow *f = find(p, k);

        if (!f) {
            f = open_flow(p, k);
            held[k] = 0;
        } else if (f->state == HOLD_QUIET) {
            mr__hold_close(&p->hold, f);
        } else if (test_random_below(4) == 0) {
            CHECK_EQ(mr__hold_drop(&p->hold, f), held[k]);
            if (test_random_below(2))
                mr__hold_close(&p->hold, f);
            else
                mr__hold_silence(&p->hold, f, 1, MR_VERDICT_MUTED);
        } else if (mr__hold_keep(&p->hold, f, data, (uint32_t)test_random_below(2000)) == 0) {
            held[k]++;
        }
        if (f)
            CHECK_LE(p->hold.pending.count, 32);
    }
    for (struct hold_flow *f = mr__hold_oldest(&p->hold); f; f = mr__hold_oldest(&p->hold)) {
        (void)mr__hold_drop(&p->hold, f);
        mr__hold_close(&p->hold, f);
    }
    /* All memory is back: the pool can be filled to its last block. */
    {
        struct hold_flow *f = NULL;
        unsigned blocks = 0;

        for (uint32_t k = 0; k < 8; k++) {
            f = find(p, 5000 + k) ? NULL : open_flow(p, 5000 + k);
            REQUIRE(f != NULL);
            while (mr__hold_keep(&p->hold, f, data, 240) == 0)
                blocks++;
        }
        CHECK_EQ(blocks, 64);
    }
    pool_close(p);
}

TEST(a_tray_gives_whole_pieces_and_takes_them_back_in_order)
{
    static struct tray t; /* as aligned as it asks for */
    uint8_t *mem = malloc(TRAY_BYTES), *pieces[64];
    uint32_t bytes[64], sizes[64], first = 0, n = 0;

    mr__tray_init(&t, mem);
    for (unsigned step = 0; step < 20000; step++) {
        uint32_t size = (uint32_t)test_random_below(65508), k = (first + n) % 64;

        if (n < 64 && test_random_below(2) && (pieces[k] = mr__tray_reserve(&t, size, &bytes[k]))) {
            REQUIRE(pieces[k] >= mem && pieces[k] + size <= mem + TRAY_BYTES);
            sizes[k] = size;
            memset(pieces[k], (int)k, size);
            n++;
        } else if (n > 0) {
            for (uint32_t i = 0; i < sizes[first]; i += 997)
                REQUIRE_EQ(pieces[first][i], first);
            mr__tray_release(&t, bytes[first]);
            first = (first + 1) % 64;
            n--;
        }
    }
    while (n > 0) {
        mr__tray_release(&t, bytes[first]);
        first = (first + 1) % 64;
        n--;
    }
    CHECK(mr__tray_reserve(&t, TRAY_BYTES / 2, bytes) != NULL);
    free(mem);
}

TEST_MAIN(TEST_CASE(datagrams_of_every_size_come_back_in_order),
          TEST_CASE(a_flow_is_bounded_by_datagrams_and_by_bytes),
          TEST_CASE(a_flow_may_have_bounds_of_its_own),
          TEST_CASE(the_flow_that_is_due_first_is_found_whatever_times_flows_have),
          TEST_CASE(the_pool_is_bounded_and_gets_all_of_it_back),
          TEST_CASE(an_id_names_one_pending_flow_only),
          TEST_CASE(quiet_flows_give_way_and_pending_ones_do_not),
          TEST_CASE(any_sequence_keeps_index_lists_and_memory_in_step),
          TEST_CASE(a_tray_gives_whole_pieces_and_takes_them_back_in_order))
