/* SPDX-License-Identifier: MIT */
/*
 * The hash table and the heap of what is due, against plain arrays. One thread.
 */
#include "base/alloc.h"
#include "service/due.h"
#include "service/table.h"
#include "test.h"

#include <stdlib.h>

enum { MEMBERS = 3000 };

struct member {
    struct table_node node;
    struct due_node due;
    uint64_t hash, at_ns;
    bool is_in;
};

static struct member members[MEMBERS];

static bool table_has(const struct table *t, const struct member *m)
{
    struct table_node *node = mr__table_first(t, m->hash);

    while (node && node != &m->node) {
        node = mr__table_next(node);
    }
    return node != NULL;
}

static void check_table(const struct table *t)
{
    size_t n = 0;

    for (int i = 0; i < MEMBERS; i++) {
        n += members[i].is_in;
        if (table_has(t, &members[i]) != members[i].is_in) {
            FAIL("member %d is%s there", i, members[i].is_in ? " not" : "");
        }
    }
    CHECK_EQ(t->n, n);
}

TEST(a_table_finds_what_is_in_it_while_it_grows_and_shrinks)
{
    struct table t;

    REQUIRE_EQ(mr__table_init(&t), 0);
    for (int i = 0; i < MEMBERS; i++) {
        /* Some share a hash. */
        members[i] = (struct member){.hash = test_random_below(4) == 0 ? 7 : test_random()};
    }
    for (int round = 0; round < 40; round++) {
        bool adds = round % 8 < 4;
        for (int i = 0; i < 2000; i++) {
            struct member *m = &members[test_random_below(MEMBERS)];
            if (adds && !m->is_in) {
                mr__table_add(&t, &m->node, m->hash);
            } else if (!adds && m->is_in) {
                mr__table_remove(&t, &m->node);
            } else {
                continue;
            }
            m->is_in = adds;
        }
        check_table(&t);
    }
    mr__table_deinit(&t);
    CHECK_EQ(mr__alloc_live(), 0);
}

TEST(a_walk_that_removes_what_it_finds_meets_every_member)
{
    struct table t;
    size_t met = 0;

    REQUIRE_EQ(mr__table_init(&t), 0);
    for (int i = 0; i < MEMBERS; i++) {
        mr__table_add(&t, &members[i].node, i % 3 == 0 ? 5 : (uint64_t)i << 7);
    }
    for (struct table_node *node = mr__table_first(&t, 5), *next; node; node = next, met++) {
        next = mr__table_next(node);
        mr__table_remove(&t, node);
    }
    CHECK_EQ(met, (size_t)MEMBERS / 3);
    mr__table_deinit(&t);
}

/* What a flood of new members costs at once: one bucket is split, and no cell moves. */
TEST(one_addition_splits_one_bucket_however_large_the_table_is)
{
    enum { MANY = 200000 };
    struct table_node *nodes = calloc(MANY, sizeof *nodes);
    struct table t;

    REQUIRE(nodes != NULL);
    REQUIRE_EQ(mr__table_init(&t), 0);
    void *first_cell = mr__cells_at(&t.buckets, 0);
    for (uint64_t i = 0; i < MANY; i++) {
        size_t before = t.n_buckets;
        mr__table_add(&t, &nodes[i], i * 0x9e3779b97f4a7c15u);
        if (t.n_buckets > before + 1) {
            FAIL("%zu buckets became %zu", before, t.n_buckets);
        }
    }
    CHECK_GE(t.n_buckets, (size_t)MANY - 1);
    CHECK(first_cell == mr__cells_at(&t.buckets, 0));
    for (uint64_t i = 0; i < MANY; i++) {
        size_t before = t.n_buckets;
        mr__table_remove(&t, &nodes[i]);
        if (t.n_buckets + 4 < before) {
            FAIL("%zu buckets became %zu", before, t.n_buckets);
        }
    }
    CHECK_LT(t.n_buckets, (size_t)100);
    CHECK_LE(t.buckets.n, (size_t)2);
    mr__table_deinit(&t);
    free(nodes);
}

TEST(a_table_that_cannot_grow_goes_on)
{
    static struct table_node nodes[2000];
    struct table t;

    REQUIRE_EQ(mr__table_init(&t), 0);
    mr__alloc_fail_after(0);
    for (uint64_t i = 0; i < 2000; i++) {
        mr__table_add(&t, &nodes[i], i);
    }
    mr__alloc_fail_after(-1);
    for (uint64_t i = 0; i < 2000; i++) {
        CHECK(mr__table_first(&t, i) == &nodes[i]);
    }
    mr__table_deinit(&t);
}

static const struct member *earliest(void)
{
    const struct member *best = NULL;

    for (int i = 0; i < MEMBERS; i++) {
        if (members[i].is_in && (!best || members[i].at_ns < best->at_ns)) {
            best = &members[i];
        }
    }
    return best;
}

TEST(the_earliest_is_due_first_whatever_was_added_moved_and_removed)
{
    struct due d = {.n = 0};

    for (int i = 0; i < MEMBERS; i++) {
        members[i].is_in = false;
    }
    for (int i = 0; i < 30000; i++) {
        struct member *m = &members[test_random_below(MEMBERS)];
        uint64_t at_ns = test_random_below(10000);
        if (!m->is_in) {
            REQUIRE_EQ(mr__due_add(&d, &m->due, at_ns), 0);
            m->is_in = true;
        } else if (test_random_below(3) == 0) {
            mr__due_remove(&d, &m->due);
            m->is_in = false;
        } else {
            mr__due_move(&d, &m->due, at_ns);
        }
        m->at_ns = at_ns;
        if (i % 50 == 0) {
            const struct member *best = earliest();
            CHECK_EQ(mr__due_first(&d) ? mr__due_first(&d)->at_ns : UINT64_MAX,
                     best ? best->at_ns : UINT64_MAX);
        }
    }
    for (uint64_t last = 0; d.n > 0;) {
        struct due_node *first = mr__due_first(&d);
        CHECK_GE(first->at_ns, last);
        last = first->at_ns;
        mr__due_remove(&d, first);
    }
    mr__due_deinit(&d);
    CHECK_EQ(mr__alloc_live(), 0);
}

TEST_MAIN(TEST_CASE(a_table_finds_what_is_in_it_while_it_grows_and_shrinks),
          TEST_CASE(a_walk_that_removes_what_it_finds_meets_every_member),
          TEST_CASE(one_addition_splits_one_bucket_however_large_the_table_is),
          TEST_CASE(a_table_that_cannot_grow_goes_on),
          TEST_CASE(the_earliest_is_due_first_whatever_was_added_moved_and_removed))
