/* SPDX-License-Identifier: MIT */
/*
 * Rates on a virtual clock: the burst, the edge (<=), rounding, debt, the global
 * budget in slices.
 */
#include "test.h"

#include "core/limit.h"

#include <pthread.h>

static const uint64_t second = 1000000000u;

enum { KB = 1024 };

TEST(no_rate_is_no_limit_and_leaves_the_word_alone)
{
    struct limit_rate none = mr__limit_rate(0, second);
    _Atomic uint64_t tat = 0;

    CHECK_EQ(none.cost, 0u);
    for (int i = 0; i < 1000; i++)
        CHECK(mr__limit_take(&tat, none, 5, UINT32_MAX));
    CHECK(mr__limit_fits(&tat, none, 5, UINT32_MAX));
    mr__limit_force(&tat, none, 5, UINT32_MAX);
    CHECK_EQ(tat, 0u);
}

TEST(an_idle_bucket_passes_exactly_its_burst)
{
    static const uint32_t rates[] = {1, 3, 7, 1000, 128 * KB, 999983, 1u << 30, 4000000000u};

    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        struct limit_rate rate = mr__limit_rate(rates[i], 0);
        _Atomic uint64_t tat = 0;

        CHECK(mr__limit_fits(&tat, rate, 10 * second, rates[i]));
        CHECK(!mr__limit_fits(&tat, rate, 10 * second, rates[i] + rates[i] / 100000 + 1));
        CHECK(mr__limit_take(&tat, rate, 10 * second, rates[i]));
        CHECK(!mr__limit_take(&tat, rate, 10 * second, rates[i] / 100000 + 1));
    }
}

TEST(a_burst_of_single_units_is_whole_although_each_is_rounded)
{
    static const uint32_t rates[] = {1, 3, 7, 30, 60, 64, 333, 999};

    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        struct limit_rate rate = mr__limit_rate(rates[i], 0);
        _Atomic uint64_t tat = 0;

        for (uint32_t n = 0; n < rates[i]; n++)
            CHECK(mr__limit_take(&tat, rate, 10 * second, 1));
        CHECK(!mr__limit_take(&tat, rate, 10 * second, 1));
    }
}

TEST(a_longer_interval_makes_a_larger_burst_and_a_shorter_one_does_not_shrink_it)
{
    struct limit_rate second_s = mr__limit_rate(1000, second / 10),
                      ten = mr__limit_rate(1000, 10 * second);
    _Atomic uint64_t tat = 0;

    CHECK(mr__limit_fits(&tat, second_s, 0, 1000));
    CHECK(!mr__limit_fits(&tat, second_s, 0, 1001));
    CHECK(mr__limit_fits(&tat, ten, 0, 10000));
    CHECK(!mr__limit_fits(&tat, ten, 0, 10001));
}

TEST(one_datagram_larger_than_the_burst_never_passes)
{
    struct limit_rate rate = mr__limit_rate(1000, 0);
    _Atomic uint64_t tat = 0;

    for (uint64_t now = 0; now < 100 * second; now += second)
        CHECK(!mr__limit_take(&tat, rate, now, 1001));
    CHECK_EQ(tat, 0u);
}

static uint64_t pour(_Atomic uint64_t *tat, struct limit_rate rate, uint64_t from_ns,
                     uint64_t for_ns, uint64_t bytes, uint32_t size)
{
    uint64_t n = bytes / size, passed = 0;

    for (uint64_t i = 0; i < n; i++) {
        if (mr__limit_take(tat, rate, from_ns + for_ns * i / n, size))
            passed += size;
    }
    return passed;
}

TEST(at_128_kb_a_second_128_kb_pass_at_once_and_256_kb_do_not)
{
    struct limit_rate rate = mr__limit_rate(128 * KB, second / 10);
    _Atomic uint64_t tat = 0, other = 0;
    uint64_t passed;

    CHECK_EQ(pour(&tat, rate, second, second / 10, 128 * KB, KB), 128u * KB);
    passed = pour(&other, rate, second, second / 10, 256 * KB, KB);
    CHECK_GE(passed, 128u * KB);
    CHECK_LE(passed, 160u * KB);
    CHECK(mr__limit_take(&other, rate, second + second / 2 + second / 10, KB));
}

TEST(twice_the_rate_passes_until_the_burst_is_spent_and_then_by_half)
{
    struct limit_rate rate = mr__limit_rate(128 * KB, 0);
    _Atomic uint64_t tat = 0;
    /* Half of twice the rate comes out of the burst, so that lasts a second. */
    uint64_t first = pour(&tat, rate, 0, second, 256 * KB, 512);
    uint64_t later = pour(&tat, rate, second, 5 * second, 5 * 256 * KB, 512);

    CHECK_GE(first, 255u * KB);
    CHECK_GE(later, 5u * 128 * KB * 99 / 100);
    CHECK_LE(later, 5u * 128 * KB * 101 / 100);
}

TEST(a_pause_gives_back_what_the_rate_allows_and_no_more_than_the_burst)
{
    struct limit_rate rate = mr__limit_rate(128 * KB, 0);
    _Atomic uint64_t tat = 0;

    CHECK_EQ(pour(&tat, rate, 0, 0, 128 * KB, KB), 128u * KB);
    CHECK(!mr__limit_take(&tat, rate, 0, KB));
    CHECK_EQ(pour(&tat, rate, second / 2, 0, 128 * KB, KB), 64u * KB);
    CHECK_EQ(pour(&tat, rate, 100 * second, 0, 40 * KB, KB), 40u * KB);
    CHECK_EQ(pour(&tat, rate, 200 * second, 0, 500 * KB, KB), 128u * KB);
}

/* A limit that rounds for the sender would let a swarm of small datagrams through. */
TEST(rounding_never_lets_more_through_than_the_limit)
{
    static const uint64_t rates[] = {1, 3, 999, 1000003, 128 * KB, 333333333};

    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        struct limit_rate rate = mr__limit_rate(rates[i], 0);
        _Atomic uint64_t tat = 0;
        uint64_t passed = 0, now = 0;

        for (int n = 0; n < 20000; n++) {
            uint32_t size = 1 + (uint32_t)test_random_below(rates[i] / 100 + 3);

            now += test_random_below(second / 1000);
            if (mr__limit_take(&tat, rate, now, size))
                passed += size;
        }
        /* A millionth of the burst is there for the rounding of its datagrams. */
        CHECK_LE(passed, rates[i] + (uint64_t)((long double)rates[i] * now / second) +
                             rates[i] / 1000000 + 1);
    }
}

TEST(a_refused_datagram_costs_nothing)
{
    struct limit_rate rate = mr__limit_rate(1000, 0);
    _Atomic uint64_t tat = 0;

    CHECK(mr__limit_take(&tat, rate, 0, 600));
    for (int i = 0; i < 100; i++)
        CHECK(!mr__limit_take(&tat, rate, 0, 401));
    CHECK(mr__limit_take(&tat, rate, 0, 400));
    CHECK(!mr__limit_take(&tat, rate, 0, 1));
    CHECK(mr__limit_take(&tat, rate, 0, 0)); /* an empty datagram weighs nothing */
}

TEST(debt_is_paid_back_before_anything_passes)
{
    struct limit_rate rate = mr__limit_rate(1000, 0);
    _Atomic uint64_t tat = 0;

    mr__limit_force(&tat, rate, 0, 3000);
    CHECK(!mr__limit_take(&tat, rate, 2 * second - second / 1000, 1));
    CHECK(mr__limit_take(&tat, rate, 2 * second + second / 1000, 1));
}

TEST(the_largest_numbers_refuse_instead_of_wrapping)
{
    struct limit_rate slow = mr__limit_rate(1, UINT64_MAX);
    struct limit_rate fast = mr__limit_rate(UINT64_MAX, UINT64_MAX);
    _Atomic uint64_t tat = 0;

    CHECK_EQ(mr__limit_cost(UINT64_MAX, UINT64_MAX), UINT64_MAX);
    CHECK(!mr__limit_take(&tat, mr__limit_rate(1, 0), UINT64_MAX - 1, UINT32_MAX));
    CHECK(!mr__limit_fits(&tat, mr__limit_rate(1, 0), UINT64_MAX - 1, UINT32_MAX));
    CHECK_EQ(tat, 0u);
    CHECK(mr__limit_take(&tat, slow, 0, 1));
    CHECK(mr__limit_fits(&tat, fast, 0, UINT32_MAX));
}

TEST(the_global_budget_passes_exactly_its_burst_whatever_the_slices)
{
    static const uint32_t rates[] = {1000, 128 * KB, 1u << 30};

    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        struct limit_global g = {0};
        struct limit_budget b = {0};
        uint64_t passed = 0;
        uint32_t size = rates[i] / 1000;

        mr__limit_global_set(&g, rates[i], 0, 0);
        for (int n = 0; n < 1500; n++) {
            if (mr__limit_budget_fits(&b, &g, second, size)) {
                b.left_bytes -= size;
                passed += size;
            }
        }
        CHECK_LE(passed, rates[i]);
        CHECK_GE(passed, rates[i] - rates[i] / 100);
        CHECK(!mr__limit_budget_fits(&b, &g, second, rates[i] / 50));
        CHECK(mr__limit_budget_fits(&b, &g, second + second / 10, rates[i] / 50));
    }
}

TEST(asking_the_global_budget_without_charging_costs_nothing)
{
    struct limit_global g = {0};
    struct limit_budget b = {0};

    mr__limit_global_set(&g, 1000, 0, 0);
    for (int n = 0; n < 10000; n++)
        CHECK(mr__limit_budget_fits(&b, &g, second, 100));
    for (int n = 0; n < 10; n++) {
        CHECK(mr__limit_budget_fits(&b, &g, second, 100));
        b.left_bytes -= 100;
    }
    CHECK(!mr__limit_budget_fits(&b, &g, second, 100));
}

TEST(two_budgets_share_one_limit)
{
    struct limit_global g = {0};
    struct limit_budget b[2] = {{0}, {0}};
    uint64_t passed = 0;

    mr__limit_global_set(&g, 1000000, 0, 0);
    for (int n = 0; n < 4000; n++) {
        if (mr__limit_budget_fits(&b[n % 2], &g, second, 700)) {
            b[n % 2].left_bytes -= 700;
            passed += 700;
        }
    }
    CHECK_LE(passed, 1000000u);
    CHECK_GE(passed, 990000u);
}

struct share {
    _Atomic uint64_t tat;
    struct limit_rate rate;
    _Atomic uint64_t passed;
};

static void *take_many(void *arg)
{
    struct share *s = arg;

    for (int i = 0; i < 20000; i++) {
        if (mr__limit_take(&s->tat, s->rate, second, 100))
            atomic_fetch_add(&s->passed, 100);
    }
    return NULL;
}

TEST(two_threads_never_take_more_than_the_limit_together)
{
    struct share s = {.rate = mr__limit_rate(1000000, 0)};
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        REQUIRE_EQ(pthread_create(&threads[i], NULL, take_many, &s), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(s.passed, 1000000u);
}

TEST_MAIN(TEST_CASE(no_rate_is_no_limit_and_leaves_the_word_alone),
          TEST_CASE(an_idle_bucket_passes_exactly_its_burst),
          TEST_CASE(a_burst_of_single_units_is_whole_although_each_is_rounded),
          TEST_CASE(a_longer_interval_makes_a_larger_burst_and_a_shorter_one_does_not_shrink_it),
          TEST_CASE(one_datagram_larger_than_the_burst_never_passes),
          TEST_CASE(at_128_kb_a_second_128_kb_pass_at_once_and_256_kb_do_not),
          TEST_CASE(twice_the_rate_passes_until_the_burst_is_spent_and_then_by_half),
          TEST_CASE(a_pause_gives_back_what_the_rate_allows_and_no_more_than_the_burst),
          TEST_CASE(rounding_never_lets_more_through_than_the_limit),
          TEST_CASE(a_refused_datagram_costs_nothing),
          TEST_CASE(debt_is_paid_back_before_anything_passes),
          TEST_CASE(the_largest_numbers_refuse_instead_of_wrapping),
          TEST_CASE(the_global_budget_passes_exactly_its_burst_whatever_the_slices),
          TEST_CASE(asking_the_global_budget_without_charging_costs_nothing),
          TEST_CASE(two_budgets_share_one_limit),
          TEST_CASE(two_threads_never_take_more_than_the_limit_together))
