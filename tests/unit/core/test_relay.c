/* SPDX-License-Identifier: MIT */
/*
 * The two indexes of relays against a model that scans, and the shared line's life.
 */
#include "tables.h"

enum { PORTS = 24, ADDRS = 9, ROUNDS = 60000 };

struct model {
    struct {
        uint32_t generation; /* 0: free */
        unsigned addr;
        uint64_t since;
    } at[PORTS];
    uint64_t clock;
};

static uint32_t newest(const struct model *m, unsigned addr)
{
    uint32_t best = MR__NONE;

    for (uint32_t i = 0; i < PORTS; i++) {
        if (m->at[i].generation && m->at[i].addr == addr &&
            (best == MR__NONE || m->at[i].since > m->at[best].since))
            best = i;
    }
    return best;
}

static void change(struct relays *r, struct model *m)
{
    uint32_t port = (uint32_t)test_random_below(PORTS);
    unsigned addr = (unsigned)test_random_below(ADDRS);
    struct mr_addr a = peer(addr);
    bool is_live = m->at[port].generation != 0;

    switch (test_random_below(3)) {
    case 0:
        CHECK_EQ(mr__relays_add(r, port, 0, &a, 0, port), is_live ? -EBUSY : 0);
        if (is_live)
            return;
        m->at[port].generation = r->at[port].generation;
        break;
    case 1:
        CHECK_EQ(mr__relays_move(r, port, &a), is_live ? 0 : -ENOENT);
        if (!is_live)
            return;
        break;
    default:
        CHECK_EQ(mr__relays_remove(r, port), is_live ? 0 : -ENOENT);
        m->at[port].generation = 0;
        return;
    }
    m->at[port].addr = addr;
    m->at[port].since = ++m->clock;
}

TEST(random_adds_moves_and_removes_leave_both_indexes_in_step)
{
    struct hash_key key = random_key();
    size_t bytes = mr__relays_bytes(PORTS);
    void *mem = bed_map(bytes);
    struct model m = {0};
    struct relays r;

    mr__relays_init(&r, PORTS, &key, mem);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t live = 0;

        change(&r, &m);
        for (unsigned a = 0; a < ADDRS; a++) {
            struct mr_addr addr = peer(a);

            REQUIRE_EQ(mr__relays_find(&r, &addr), newest(&m, a));
        }
        for (uint32_t i = 0; i < PORTS; i++) {
            REQUIRE_EQ(r.at[i].generation, m.at[i].generation);
            live += m.at[i].generation != 0;
        }
        REQUIRE_EQ(r.live, live);
    }
    mr__unmap(mem, bytes);
}

TEST(an_id_names_one_relay_and_none_that_comes_after_it)
{
    struct hash_key key = random_key();
    size_t bytes = mr__relays_bytes(4);
    struct mr_addr a = peer(1), none = {0};
    void *mem = bed_map(bytes);
    struct relays r;
    mr_relay_id id;

    mr__relays_init(&r, 4, &key, mem);
    CHECK_EQ(mr__relays_add(&r, 3, 0, &a, 0, 3), 0);
    id = mr__relay_id(3, r.at[3].generation);
    CHECK_EQ(mr__relays_get(&r, id), 3u);
    CHECK_EQ(mr__relays_remove(&r, 3), 0);
    CHECK_EQ(mr__relays_get(&r, id), MR__NONE);
    CHECK_EQ(mr__relays_add(&r, 3, 0, &a, 0, 3), 0);
    CHECK_EQ(mr__relays_get(&r, id), MR__NONE);
    CHECK_NE(mr__relay_id(3, r.at[3].generation), id);
    CHECK_EQ(mr__relays_get(&r, 0), MR__NONE);
    CHECK_EQ(mr__relays_get(&r, UINT64_MAX), MR__NONE);
    CHECK_EQ(mr__relays_get(&r, 1), MR__NONE);
    CHECK_EQ(mr__relay_id(3, 0), 0u);
    CHECK_EQ(mr__relays_add(&r, 4, 0, &a, 0, 3), -EINVAL);
    CHECK_EQ(mr__relays_add(&r, 0, 0, &none, 0, 3), -EINVAL);
    CHECK_EQ(mr__relays_move(&r, 3, &none), -EINVAL);
    CHECK_EQ(mr__relays_add(&r, 0, 17, &a, 0, 0), 0); /* a replica is told the generation */
    CHECK_EQ(mr__relays_get(&r, mr__relay_id(0, 17)), 0u);
    mr__unmap(mem, bytes);
}

TEST(activity_is_stored_often_enough_to_end_a_relay_within_100_ms)
{
    static const uint64_t timeouts[] = {1, 100000000, 1000000000, 30000000000, UINT64_MAX};
    static struct relay_shared s; /* gcc's ASan misaligns it on its fake stack */
    static struct relay_limits l;

    for (size_t i = 0; i < sizeof timeouts / sizeof timeouts[0]; i++) {
        struct relay_setup setup = {.now_ns = 5 * second, .timeout_ns = timeouts[i]};

        mr__relay_shared_init(&s, &l, &setup);
        CHECK_LE(s.activity_step_ns, timeouts[i] / 16);
        CHECK_LE(s.activity_step_ns, 50000000u);
        CHECK_GE(mr__relay_shared_idle_at(&s, timeouts[i]), timeouts[i]);
        CHECK(timeouts[i] == UINT64_MAX ||
              mr__relay_shared_idle_at(&s, timeouts[i]) <= 5 * second + timeouts[i] + 50000000);
    }
}

TEST(a_renewal_restarts_the_lifetimes_and_no_policys_limit)
{
    struct relay_setup setup = {
        .now_ns = second, .timeout_ns = second, .duration_ns = 10 * second, .max_bytes = 500};
    static struct relay_shared s; /* gcc's ASan misaligns it on its fake stack */
    static struct relay_limits l;

    mr__relay_shared_init(&s, &l, &setup);
    CHECK_EQ(s.life_end_ns, 11 * second);
    CHECK(s.flags & MR__SHARED_LIMITS);
    s.lifetime_bytes = 100;
    l.bytes = 100;
    mr__relay_shared_renew(&s, 5 * second, 10 * second);
    CHECK_EQ(s.life_end_ns, 15 * second);
    CHECK_EQ(s.lifetime_bytes, 0u);
    CHECK_EQ(s.activity_ns, 5 * second);
    CHECK_EQ(l.bytes, 100u);
    mr__relay_shared_renew(&s, 5 * second, 0);
    CHECK_EQ(s.life_end_ns, 0u);
    mr__relay_shared_renew(&s, 5 * second, UINT64_MAX);
    CHECK_EQ(s.life_end_ns, UINT64_MAX);
}

TEST_MAIN(TEST_CASE(random_adds_moves_and_removes_leave_both_indexes_in_step),
          TEST_CASE(an_id_names_one_relay_and_none_that_comes_after_it),
          TEST_CASE(activity_is_stored_often_enough_to_end_a_relay_within_100_ms),
          TEST_CASE(a_renewal_restarts_the_lifetimes_and_no_policys_limit))
