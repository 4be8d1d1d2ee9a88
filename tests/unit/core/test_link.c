/* SPDX-License-Identifier: MIT */
/*
 * The table of links against a model that scans a list, at full load and with hash
 * keys that put everything into few places.
 */
#include "tables.h"

/* Room for six doublings from the first slots, with the last at full load. */
enum { MAX_LINKS = 288, ADDRS = 80, PORTS = 5, ROUNDS = 20000, TRIALS = 6 };

struct model {
    struct link links[MAX_LINKS];
    uint32_t n;
};

static int find(const struct model *m, uint32_t port, const struct mr_addr *from)
{
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->links[i].port == port && mr_addr_equal(&m->links[i].from, from))
            return (int)i;
    }
    return -1;
}

/* Sets `sets` times as often as it removes. */
static void change(struct links *l, struct model *m, unsigned sets)
{
    uint32_t port = (uint32_t)test_random_below(PORTS);
    struct mr_addr from = peer((unsigned)test_random_below(ADDRS));
    int i = find(m, port, &from);

    if (test_random_below(sets + 1)) {
        struct link link = {.from = from, .port = port, .egress = (uint32_t)test_random()};
        int rc = mr__links_set(l, &link);

        if (i < 0 && m->n == MAX_LINKS) {
            CHECK_EQ(rc, -ENOSPC);
            return;
        }
        CHECK_EQ(rc, 0);
        m->links[i < 0 ? (int)m->n++ : i] = link;
    } else {
        CHECK_EQ(mr__links_remove(l, port, &from), i < 0 ? -ENOENT : 0);
        if (i >= 0)
            m->links[i] = m->links[--m->n];
    }
}

static void check(const struct links *l, const struct model *m)
{
    CHECK_EQ(l->used, m->n);
    for (uint32_t port = 0; port < PORTS; port++) {
        for (unsigned a = 0; a < ADDRS; a++) {
            struct mr_addr from = peer(a);
            const struct link *found = mr__links_find(l, port, &from);
            int i = find(m, port, &from);

            if ((found != NULL) != (i >= 0) || (found && found->egress != m->links[i].egress))
                REQUIRE(!"the table and the list agree");
        }
    }
}

static void run(const struct hash_key *key)
{
    size_t bytes = mr__links_bytes(MAX_LINKS);
    struct model m = {.n = 0};
    struct links l;
    void *mem = bed_map(bytes);

    mr__links_init(&l, MAX_LINKS, key, mem);
    CHECK_GE(9 * (l.mask_max + 1), 16u * MAX_LINKS);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t slots = l.mask + 1;

        change(&l, &m, round < ROUNDS / 2 ? 3 : 2);
        if (round % 128 == 0 || l.mask + 1 != slots)
            check(&l, &m);
    }
    CHECK_EQ(l.mask, l.mask_max);
    for (uint32_t i = 0; i < m.n; i++)
        CHECK_EQ(mr__links_remove(&l, m.links[i].port, &m.links[i].from), 0);
    CHECK_EQ(l.used, 0u);
    for (uint64_t i = 0; i <= l.mask_max; i++)
        CHECK_EQ(l.slots[i].from.family, 0);
    mr__unmap(mem, bytes);
}

TEST(random_sets_and_removes_leave_what_a_list_would_have)
{
    for (int i = 0; i < TRIALS; i++) {
        struct hash_key key = random_key();

        run(&key);
    }
}

TEST(links_that_all_hash_to_one_place_are_still_found_and_removed)
{
    /* All zero: every product has a factor that is the address alone, so many fold to
     * the same few slots. What a hostile peer would like to know. */
    struct hash_key key = {{0}};

    run(&key);
}

TEST(port_and_every_part_of_the_address_make_the_key)
{
    struct hash_key key = random_key();
    size_t bytes = mr__links_bytes(16);
    void *mem = bed_map(bytes);
    struct mr_addr a = {.ip = {0xfe, 0x80, [15] = 1}, .scope_id = 1, .port = 7, .family = 6}, b;
    struct links l;

    mr__links_init(&l, 16, &key, mem);
    CHECK_EQ(mr__links_set(&l, &(struct link){.from = a, .port = 3}), 0);
    CHECK(mr__links_find(&l, 3, &a) != NULL);
    CHECK(mr__links_find(&l, 4, &a) == NULL);
    b = a;
    b.ip[15] = 2;
    CHECK(mr__links_find(&l, 3, &b) == NULL);
    b = a;
    b.scope_id = 2;
    CHECK(mr__links_find(&l, 3, &b) == NULL);
    b = a;
    b.port = 8;
    CHECK(mr__links_find(&l, 3, &b) == NULL);
    b = a;
    b.family = 4;
    CHECK(mr__links_find(&l, 3, &b) == NULL);
    mr__unmap(mem, bytes);
}

static void fill_and_check(const struct hash_key *key, unsigned n)
{
    size_t bytes = mr__links_bytes(n);
    void *mem = bed_map(bytes);
    struct links l;
    unsigned grown = 0;

    mr__links_init(&l, n, key, mem);
    for (unsigned i = 0; i < n; i++) {
        struct link link = {.from = peer(i), .port = i % 3, .egress = i};
        uint64_t mask = l.mask;

        CHECK_EQ(mr__links_set(&l, &link), 0);
        if (l.mask == mask && i < n - 1)
            continue;
        grown += l.mask != mask;
        for (unsigned k = 0; k <= i; k++) {
            struct mr_addr from = peer(k);
            const struct link *found = mr__links_find(&l, k % 3, &from);

            REQUIRE(found && found->egress == k);
        }
    }
    CHECK_GE(grown, 3);
    CHECK_EQ(l.used, n);
    CHECK_LE(l.mask, l.mask_max);
    mr__unmap(mem, bytes);
}

TEST(a_table_that_grows_keeps_every_link)
{
    struct hash_key bad = {{0}};

    for (unsigned round = 0; round < 100; round++) {
        struct hash_key key = random_key();

        fill_and_check(&key, 40 + (unsigned)test_random_below(1000));
    }
    fill_and_check(&bad, 300);
}

/* Sequential addresses are what a LAN or a school sends from. */
TEST(the_hash_spreads_neighbours_so_that_searches_stay_short)
{
    enum { N = 10000 };
    struct hash_key key = random_key();
    size_t bytes = mr__links_bytes(N);
    void *mem = bed_map(bytes);
    struct links l;
    uint64_t steps = 0;

    mr__links_init(&l, N, &key, mem);
    for (unsigned i = 0; i < N; i++) {
        struct link link = {.from = peer(i / 10), .port = i % 10};

        CHECK_EQ(mr__links_set(&l, &link), 0);
    }
    for (uint64_t i = 0; i <= l.mask; i++) {
        if (l.slots[i].from.family)
            steps += (i - mr__hash_addr(&key, &l.slots[i].from, l.slots[i].port)) & l.mask;
    }
    /* Linear probing at this load needs 0.25 steps on average; 1 is far from chance. */
    CHECK_LT(steps, (uint64_t)N);
    mr__unmap(mem, bytes);
}

TEST_MAIN(TEST_CASE(a_table_that_grows_keeps_every_link),
          TEST_CASE(random_sets_and_removes_leave_what_a_list_would_have),
          TEST_CASE(links_that_all_hash_to_one_place_are_still_found_and_removed),
          TEST_CASE(port_and_every_part_of_the_address_make_the_key),
          TEST_CASE(the_hash_spreads_neighbours_so_that_searches_stay_short))
