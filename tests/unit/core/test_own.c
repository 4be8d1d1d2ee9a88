/* SPDX-License-Identifier: MIT */
/*
 * Which addresses are our own sockets.
 */
#include "tables.h"

enum { MAX_OWN = 8 };

struct set {
    struct own own;
    void *mem;
};

static void open_set(struct set *s)
{
    struct hash_key key = random_key();

    s->mem = bed_map(mr__own_bytes(MAX_OWN));
    mr__own_init(&s->own, MAX_OWN, &key, s->mem);
}

static void close_set(struct set *s)
{
    mr__unmap(s->mem, mr__own_bytes(MAX_OWN));
}

static struct mr_addr at(const char *text)
{
    struct mr_addr a = {0};

    CHECK_EQ(mr_addr_parse(&a, text, strlen(text), NULL), MR_ADDR_OK);
    return a;
}

static int add(struct set *s, const char *text)
{
    struct mr_addr a = at(text);

    return mr__own_add(&s->own, &a);
}

static bool is_own(struct set *s, const char *text)
{
    struct mr_addr a = at(text);

    return mr__own_contains(&s->own, &a);
}

TEST(a_tuple_is_ours_and_its_neighbours_are_not)
{
    struct set s;

    open_set(&s);
    CHECK(!is_own(&s, "192.0.2.1:8809"));
    CHECK_EQ(add(&s, "192.0.2.1:8809"), 0);
    CHECK_EQ(add(&s, "192.0.2.1:8809"), 0);
    CHECK_EQ(s.own.used, 1u);
    CHECK(is_own(&s, "192.0.2.1:8809"));
    CHECK(!is_own(&s, "192.0.2.1:8810"));
    CHECK(!is_own(&s, "192.0.2.2:8809"));
    CHECK(!is_own(&s, "127.0.0.1:8809"));
    CHECK(!is_own(&s, "192.0.2.1:0"));
    close_set(&s);
}

TEST(a_wildcard_stands_for_loopback_and_the_local_ips_at_its_port_only)
{
    struct set s;

    open_set(&s);
    CHECK_EQ(add(&s, "0.0.0.0:8809"), 0);
    CHECK(is_own(&s, "127.0.0.1:8809"));
    CHECK(is_own(&s, "127.200.0.9:8809"));
    CHECK(is_own(&s, "0.0.0.0:8809"));
    CHECK(!is_own(&s, "127.0.0.1:8810"));
    CHECK(!is_own(&s, "198.51.100.7:8809"));
    CHECK(!is_own(&s, "[::1]:8809"));
    CHECK_EQ(add(&s, "198.51.100.7:0"), 0); /* a local IP */
    CHECK(is_own(&s, "198.51.100.7:8809"));
    CHECK(!is_own(&s, "198.51.100.7:8810"));
    close_set(&s);
}

TEST(an_ipv6_wildcard_serves_both_families)
{
    struct set s;

    open_set(&s);
    CHECK_EQ(add(&s, "[::]:9"), 0);
    CHECK(is_own(&s, "[::1]:9"));
    CHECK(is_own(&s, "127.0.0.1:9"));
    CHECK(!is_own(&s, "[2001:db8::1]:9"));
    CHECK_EQ(add(&s, "[2001:db8::1]:0"), 0);
    CHECK(is_own(&s, "[2001:db8::1]:9"));
    close_set(&s);
}

TEST(what_is_removed_is_no_longer_ours_and_the_rest_still_is)
{
    static const char *const all[] = {"1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3", "1.1.1.1:4",
                                      "1.1.1.1:5", "1.1.1.1:6", "1.1.1.1:7", "1.1.1.1:8"};
    struct mr_addr none = {0}, a;

    for (int round = 0; round < 200; round++) {
        bool present[8] = {false};
        struct set s;

        open_set(&s);
        for (int step = 0; step < 40; step++) {
            uint64_t i = test_random_below(8);

            a = at(all[i]);
            if (present[i])
                CHECK_EQ(mr__own_remove(&s.own, &a), 0);
            else
                CHECK_EQ(mr__own_add(&s.own, &a), 0);
            present[i] = !present[i];
            for (int j = 0; j < 8; j++)
                CHECK_EQ(is_own(&s, all[j]), present[j]);
        }
        close_set(&s);
    }
    struct set s;
    open_set(&s);
    CHECK_EQ(mr__own_remove(&s.own, &none), -ENOENT);
    CHECK_EQ(mr__own_add(&s.own, &none), -EINVAL);
    CHECK(!mr__own_contains(&s.own, &none));
    for (int i = 0; i < 8; i++)
        CHECK_EQ(add(&s, all[i]), 0);
    CHECK_EQ(add(&s, "9.9.9.9:9"), -ENOSPC);
    close_set(&s);
}

TEST_MAIN(TEST_CASE(a_tuple_is_ours_and_its_neighbours_are_not),
          TEST_CASE(a_wildcard_stands_for_loopback_and_the_local_ips_at_its_port_only),
          TEST_CASE(an_ipv6_wildcard_serves_both_families),
          TEST_CASE(what_is_removed_is_no_longer_ours_and_the_rest_still_is))
