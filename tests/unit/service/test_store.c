/* SPDX-License-Identifier: MIT */
/*
 * Stores and limiters, with examples and against plain arrays. One thread; time is a
 * number.
 */
#include "base/alloc.h"
#include "service/hash.h"
#include "service/store.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS ((uint64_t)1000000000)
#define MS_NS     ((uint64_t)1000000)

static const struct table_key hash_key = {{1, 2, 3, 4}};

static struct str text(const char *s)
{
    return (struct str){.s = s, .n = strlen(s)};
}

static struct store_value number(double n)
{
    return (struct store_value){.type = MR_STORE_NUMBER, .number = n};
}

static struct store_value string(const char *s)
{
    return (struct store_value){.type = MR_STORE_TEXT, .text = text(s)};
}

static struct store *opened(struct stores *all, const char *name, uint64_t max, uint64_t ttl_ns)
{
    struct store *s = NULL;

    REQUIRE_EQ(mr__stores_open(all, text("quota"), text(name), max, ttl_ns, &s), 0);
    return s;
}

static struct limiter *limiter(struct stores *all, double rate, double burst, uint64_t max)
{
    struct limiter *l = NULL;

    REQUIRE_EQ(mr__limiters_open(all, text("quota"), text("l"), rate, burst, max, &l), 0);
    return l;
}

static struct stores *created(void)
{
    struct stores *all = mr__stores_create(&hash_key);

    REQUIRE(all != NULL);
    return all;
}

static void destroyed(struct stores *all)
{
    mr__stores_destroy(all);
    CHECK_EQ(mr__alloc_live(), 0);
}

static int set(struct store *s, const char *key, struct store_value v, uint64_t now_ns)
{
    return mr__store_set(s, text(key), &v, now_ns);
}

static struct store_value get(struct store *s, const char *key, uint64_t now_ns)
{
    struct store_value v;

    mr__store_get(s, text(key), now_ns, &v);
    return v;
}

/* -1: there is none, -2: it is no number. */
static double get_number(struct store *s, const char *key, uint64_t now_ns)
{
    struct store_value v = get(s, key, now_ns);

    return v.type == MR_STORE_NIL ? -1 : v.type == MR_STORE_NUMBER ? v.number : -2;
}

TEST(a_store_keeps_numbers_texts_and_booleans)
{
    struct stores *all = created();
    struct store *s = opened(all, "s", 10, 0);
    struct store_value yes = {.type = MR_STORE_BOOLEAN, .boolean = true};

    CHECK_EQ(set(s, "n", number(1.5), 1), 0);
    CHECK_EQ(set(s, "t", string("a text"), 1), 0);
    CHECK_EQ(set(s, "b", yes, 1), 0);
    CHECK_EQ(set(s, "", string(""), 1), 0);
    CHECK_EQ(get_number(s, "n", UINT64_MAX - 1), 1.5);
    struct store_value v = get(s, "t", 1);
    CHECK_EQ((int)v.type, (int)MR_STORE_TEXT);
    CHECK_MEM(v.text.s, v.text.n, "a text", 6);
    CHECK_EQ((int)get(s, "b", 1).type, (int)MR_STORE_BOOLEAN);
    CHECK(get(s, "b", 1).boolean);
    CHECK_EQ((int)get(s, "", 1).type, (int)MR_STORE_TEXT);
    CHECK_EQ((int)get(s, "other", 1).type, (int)MR_STORE_NIL);
    CHECK_EQ(set(s, "t", number(2), 1), 0);
    CHECK_EQ(get_number(s, "t", 1), 2.0);
    CHECK_EQ(mr__store_count(s, 1), 4u);
    CHECK(mr__store_delete(s, text("t"), 1));
    CHECK(!mr__store_delete(s, text("t"), 1));
    CHECK_EQ(set(s, "n", (struct store_value){.type = MR_STORE_NIL}, 1), 0);
    CHECK_EQ(mr__store_count(s, 1), 2u);
    destroyed(all);
}

TEST(a_time_to_live_runs_from_the_first_write)
{
    struct stores *all = created();
    struct store *s = opened(all, "s", 10, 10 * SECOND_NS);
    double sum = 0;

    CHECK_EQ(set(s, "k", number(1), 1), 0);
    CHECK_EQ(set(s, "k", number(2), 9 * SECOND_NS), 0);
    CHECK_EQ(mr__store_incr(s, text("k"), 1, 9 * SECOND_NS, &sum), 0);
    CHECK_EQ(get_number(s, "k", 10 * SECOND_NS), 3.0);
    CHECK_EQ(get_number(s, "k", 10 * SECOND_NS + 1), -1.0);
    CHECK_EQ(mr__store_count(s, 10 * SECOND_NS + 1), 0u);
    destroyed(all);
}

TEST(what_expired_counts_as_never_written)
{
    struct stores *all = created();
    struct store *s = opened(all, "s", 2, SECOND_NS);
    struct store_value v = number(7);
    double sum = 0;

    CHECK_EQ(set(s, "k", number(5), 0), 0);
    CHECK_EQ(mr__store_add(s, text("k"), &v, SECOND_NS - 1), -EEXIST);
    CHECK_EQ(mr__store_add(s, text("k"), &v, SECOND_NS), 0);
    CHECK_EQ(get_number(s, "k", 2 * SECOND_NS - 1), 7.0);
    CHECK(!mr__store_delete(s, text("k"), 2 * SECOND_NS));
    CHECK_EQ(mr__store_incr(s, text("k"), 2, 2 * SECOND_NS, &sum), 0);
    CHECK_EQ(sum, 2.0);
    CHECK_EQ(mr__store_count(s, 2 * SECOND_NS), 1u);
    destroyed(all);
}

TEST(a_key_that_is_written_anew_is_found_beside_what_expired_of_it)
{
    struct stores *all = created();
    struct store *s = opened(all, "s", 100, 10);
    char name[16];

    for (int i = 0; i < 20; i++) { /* more than a write forgets */
        snprintf(name, sizeof name, "%d", i);
        CHECK_EQ(set(s, name, number(1), 0), 0);
    }
    CHECK_EQ(set(s, "19", number(2), 10), 0);
    CHECK_EQ(get_number(s, "19", 10), 2.0);
    CHECK_EQ(mr__store_count(s, 10), 1u);
    CHECK_EQ(get_number(s, "19", 19), 2.0);
    destroyed(all);
}

TEST(a_full_store_refuses_new_keys_until_some_expire)
{
    struct stores *all = created();
    struct store *s = opened(all, "s", 2, 10);

    CHECK_EQ(set(s, "a", number(1), 0), 0);
    CHECK_EQ(set(s, "b", number(1), 5), 0);
    CHECK_EQ(set(s, "c", number(1), 9), -ENOSPC);
    CHECK_EQ(set(s, "b", number(2), 9), 0);
    CHECK_EQ(set(s, "c", number(1), 10), 0);
    CHECK_EQ(set(s, "d", number(1), 10), -ENOSPC);
    CHECK(mr__store_delete(s, text("b"), 10));
    CHECK_EQ(set(s, "d", number(1), 10), 0);
    destroyed(all);
}

TEST(counting_starts_at_nothing_and_wants_numbers)
{
    struct stores *all = created();
    struct store *s = opened(all, "s", 10, 0);
    double sum = 0;

    CHECK_EQ(mr__store_incr(s, text("n"), 2, 1, &sum), 0);
    CHECK_EQ(mr__store_incr(s, text("n"), -5, 1, &sum), 0);
    CHECK_EQ(sum, -3.0);
    CHECK_EQ(set(s, "t", string("1"), 1), 0);
    CHECK_EQ(mr__store_incr(s, text("t"), 1, 1, &sum), -EINVAL);
    CHECK_EQ(set(s, "n", number(1.7e308), 1), 0);
    CHECK_EQ(mr__store_incr(s, text("n"), 1.7e308, 1, &sum), -EINVAL);
    CHECK_EQ(mr__store_incr(s, text("new"), (double)NAN, 1, &sum), -EINVAL);
    CHECK_EQ(get_number(s, "n", 1), 1.7e308);
    CHECK_EQ(sum, -3.0);
    destroyed(all);
}

TEST(a_store_opened_again_is_the_same_with_new_bounds)
{
    struct stores *all = created();
    struct store *s = opened(all, "s", 1, 10), *other = NULL;

    CHECK_EQ(set(s, "a", number(1), 0), 0);
    CHECK(opened(all, "s", 2, 100) == s);
    CHECK(opened(all, "t", 2, 100) != s);
    CHECK_EQ(mr__stores_open(all, text("other"), text("s"), 1, 0, &other), 0);
    CHECK(other != s);
    CHECK_EQ(set(s, "b", number(1), 0), 0);
    CHECK_EQ(get_number(s, "a", 10), -1.0);
    CHECK_EQ(get_number(s, "b", 99), 1.0);
    CHECK_EQ(mr__store_count(s, 100), 0u);
    CHECK_EQ(mr__stores_open(all, text("other"), text("s"), 0, 0, &other), -EINVAL);
    CHECK_EQ(mr__stores_open(all, text("other"), text("s"), (uint64_t)MR_STORE_ENTRIES_MAX + 1, 0,
                             &other),
             -EINVAL);
    destroyed(all);
}

TEST(no_more_stores_and_limiters_are_opened_than_there_may_be)
{
    struct stores *all = created();
    struct limiter *l = NULL;
    struct store *s = NULL;
    char name[16];

    for (int i = 0; i < MR_STORES_MAX; i++) {
        snprintf(name, sizeof name, "%d", i);
        CHECK_EQ(i % 2 ? mr__stores_open(all, text("p"), text(name), 1, 0, &s)
                       : mr__limiters_open(all, text("p"), text(name), 1, 1, 1, &l),
                 0);
    }
    CHECK_EQ(mr__stores_open(all, text("p"), text("x"), 1, 0, &s), -ENOSPC);
    CHECK_EQ(mr__limiters_open(all, text("p"), text("x"), 1, 1, 1, &l), -ENOSPC);
    CHECK_EQ(mr__stores_open(all, text("p"), text("1"), 1, 0, &s), 0);
    destroyed(all);
}

static bool is_of(void *user, struct str owner)
{
    return owner.n == strlen(user) && memcmp(owner.s, user, owner.n) == 0;
}

TEST(what_is_nobodys_any_more_makes_room_at_once_and_goes_a_few_entries_at_a_time)
{
    struct stores *all = created();
    struct store *kept = NULL, *gone = NULL, *empty = NULL, *s = NULL;
    char name[16];

    CHECK_EQ(mr__stores_open(all, text("p"), text("x"), 10, 0, &kept), 0);
    CHECK_EQ(set(kept, "k", number(1), 0), 0);
    CHECK_EQ(mr__stores_open(all, text("q"), text("empty"), 10, 0, &empty), 0);
    CHECK_EQ(mr__stores_open(all, text("q"), text("x"), 10000, 0, &gone), 0);
    for (unsigned i = 0; i < 2500; i++) {
        struct store_value v = number(i);
        CHECK_EQ(mr__store_set(gone, (struct str){(char *)&i, sizeof i}, &v, 0), 0);
    }
    long before = mr__alloc_live();
    mr__stores_keep(all, is_of, (char[]){"p"});
    CHECK_GT(mr__alloc_live(), before - 10); /* the empty one */
    CHECK(mr__stores_find(all, text("q"), text("x")) == NULL);
    CHECK(mr__stores_find(all, text("q"), text("empty")) == NULL);
    CHECK_EQ(get_number(kept, "k", 0), 1);
    for (int i = 1; i < MR_STORES_MAX; i++) {
        snprintf(name, sizeof name, "%d", i);
        CHECK_EQ(mr__stores_open(all, text("r"), text(name), 1, 0, &s), 0);
    }
    before = mr__alloc_live();
    mr__stores_tick(all, 0);
    CHECK_LE(mr__alloc_live(), before - 1000);
    CHECK_GT(mr__alloc_live(), before - 1010);
    CHECK_EQ(mr__stores_deadline(all), 0u); /* there is more to do */
    mr__stores_tick(all, 0);
    mr__stores_tick(all, 0);
    CHECK_EQ(mr__stores_deadline(all), SECOND_NS);
    CHECK_EQ(get_number(kept, "k", 0), 1);
    mr__stores_keep(all, is_of, (char[]){"nobody"}); /* what is left goes with them */
    destroyed(all);
}

TEST(keys_and_texts_have_a_longest_length)
{
    static char big[MR_STORE_VALUE_MAX + 1];
    struct stores *all = created();
    struct store *s = opened(all, "s", 10, 0);
    struct store_value v = {.type = MR_STORE_TEXT, .text = {big, MR_STORE_VALUE_MAX}};
    double sum;

    CHECK_EQ(mr__store_set(s, (struct str){big, MR_STORE_KEY_MAX}, &v, 1), 0);
    CHECK_EQ(mr__store_set(s, (struct str){big, MR_STORE_KEY_MAX + 1}, &v, 1), -EINVAL);
    CHECK_EQ(mr__store_incr(s, (struct str){big, MR_STORE_KEY_MAX + 1}, 1, 1, &sum), -EINVAL);
    v.text.n++;
    CHECK_EQ(mr__store_set(s, text("k"), &v, 1), -EINVAL);
    destroyed(all);
}

TEST(all_entries_together_have_a_bound_in_bytes)
{
    static char big[MR_STORE_VALUE_MAX];
    struct stores *all = created();
    struct store *s = opened(all, "s", 100000, 0), *brief = opened(all, "brief", 100000, 10);
    struct store_value v = {.type = MR_STORE_TEXT, .text = {big, sizeof big}};
    struct store_value one = number(1);
    unsigned n = 0;

    CHECK_EQ(mr__store_set(brief, text("x"), &v, 0), 0);
    for (; mr__store_set(s, (struct str){(char *)&n, sizeof n}, &v, 5) == 0; n++) {
    }
    CHECK_LT(n, (unsigned)MR_STORES_BYTES_MAX / MR_STORE_VALUE_MAX);
    CHECK_GT(n, (unsigned)MR_STORES_BYTES_MAX / MR_STORE_VALUE_MAX - 16);
    CHECK_EQ(mr__store_set(s, text("other"), &v, 9), -ENOSPC);
    /* What expired in another store makes room. */
    CHECK_EQ(mr__store_set(s, text("other"), &v, 10), 0);
    CHECK_EQ(mr__store_set(s, text("more"), &v, 10), -ENOSPC);
    /* A key with a smaller value gives its bytes back. */
    CHECK_EQ(mr__store_set(s, text("other"), &one, 10), 0);
    CHECK_EQ(mr__store_set(s, text("more"), &v, 10), 0);
    destroyed(all);
}

TEST(a_tick_frees_a_bounded_number_and_says_when_it_is_worth_the_next)
{
    struct stores *all = created();
    struct store *s = opened(all, "s", 10000, 10);

    CHECK_EQ(mr__stores_deadline(all), UINT64_MAX);
    for (unsigned i = 0; i < 2500; i++) {
        struct store_value v = number(i);
        CHECK_EQ(mr__store_set(s, (struct str){(char *)&i, sizeof i}, &v, 0), 0);
    }
    long before = mr__alloc_live();
    mr__stores_tick(all, 9);
    CHECK_EQ(mr__alloc_live(), before);
    CHECK_EQ(mr__stores_deadline(all), 9 + SECOND_NS);
    mr__stores_tick(all, 10);
    CHECK_LE(mr__alloc_live(), before - 1000);
    CHECK_GT(mr__alloc_live(), before - 1010); /* 1,000 entries and a few parts of tables */
    CHECK_EQ(mr__stores_deadline(all), 10u);
    mr__stores_tick(all, 10);
    mr__stores_tick(all, 10);
    CHECK_EQ(mr__stores_deadline(all), UINT64_MAX);
    destroyed(all);
}

TEST(a_limiter_gives_its_burst_at_once_and_then_its_rate)
{
    struct stores *all = created();
    struct limiter *l = limiter(all, 3, 10, 100);
    uint64_t now = 12345, wait = 0;

    for (int i = 0; i < 10; i++) {
        CHECK_EQ(mr__limiter_take(l, text("a"), 1, now, &wait), 0);
    }
    for (int i = 0; i < 100; i++) { /* what it says is enough, and less is not */
        uint64_t told = 0;
        REQUIRE_EQ(mr__limiter_take(l, text("a"), 1, now, &told), -EAGAIN);
        REQUIRE_GE(told, SECOND_NS / 3 - 1000);
        CHECK_EQ(mr__limiter_take(l, text("a"), 1, now + told - 1000, &wait), -EAGAIN);
        now += told;
        CHECK_EQ(mr__limiter_take(l, text("a"), 1, now, &wait), 0);
    }
    CHECK_GE(now, 100 * SECOND_NS / 3);
    CHECK_LE(now, 100 * SECOND_NS / 3 + 100000);
    CHECK_EQ(mr__limiter_take(l, text("b"), 10, now, &wait), 0);
    CHECK_EQ(mr__limiter_take(l, text("c"), 10.5, now, &wait), -EAGAIN);
    CHECK_EQ(wait, UINT64_MAX);
    CHECK_EQ(mr__limiter_take(l, text("c"), 0, now, &wait), -EINVAL);
    CHECK_EQ(mr__limiter_take(l, text("c"), -1, now, &wait), -EINVAL);
    CHECK_EQ(mr__limiter_take(l, text("c"), (double)NAN, now, &wait), -EINVAL);
    destroyed(all);
}

TEST(a_bucket_that_is_full_again_is_forgotten)
{
    struct stores *all = created();
    struct limiter *l = limiter(all, 1, 10, 2);
    uint64_t wait;

    CHECK_EQ(mr__limiter_take(l, text("a"), 10, 0, &wait), 0);
    CHECK_EQ(mr__limiter_take(l, text("b"), 2, 0, &wait), 0);
    CHECK_EQ(mr__limiter_take(l, text("c"), 1, 2 * SECOND_NS - 1, &wait), -ENOSPC);
    CHECK_EQ(mr__limiter_take(l, text("c"), 1, 2 * SECOND_NS, &wait), 0);
    CHECK_EQ(mr__limiter_take(l, text("a"), 9, 2 * SECOND_NS, &wait), -EAGAIN);
    CHECK_EQ(wait, 7 * SECOND_NS);
    mr__stores_tick(all, 3 * SECOND_NS);
    CHECK_EQ(mr__limiter_take(l, text("b"), 10, 3 * SECOND_NS, &wait), 0);
    destroyed(all);
}

TEST(a_limiter_opened_again_has_the_new_rate_and_burst)
{
    struct stores *all = created();
    struct limiter *l = limiter(all, 1, 10, 10);
    uint64_t wait;

    CHECK_EQ(mr__limiter_take(l, text("a"), 10, 0, &wait), 0);
    CHECK(limiter(all, 100, 20, 10) == l);
    CHECK_EQ(mr__limiter_take(l, text("a"), 10, 0, &wait), 0);
    CHECK_EQ(mr__limiter_take(l, text("a"), 1, 0, &wait), -EAGAIN);
    CHECK_EQ(wait, 10 * MS_NS);
    struct limiter *other;
    CHECK_EQ(mr__limiters_open(all, text("p"), text("x"), 0, 1, 1, &other), -EINVAL);
    CHECK_EQ(mr__limiters_open(all, text("p"), text("x"), (double)INFINITY, 1, 1, &other), -EINVAL);
    CHECK_EQ(mr__limiters_open(all, text("p"), text("x"), 1, 0.5, 1, &other), -EINVAL);
    CHECK_EQ(mr__limiters_open(all, text("p"), text("x"), 1, 1, 0, &other), -EINVAL);
    destroyed(all);
}

TEST(even_the_slowest_rate_ends_in_a_wait_that_can_be_told)
{
    struct stores *all = created();
    struct limiter *l = limiter(all, 1e-300, 1e300, 10);
    uint64_t wait = 0;

    CHECK_EQ(mr__limiter_take(l, text("a"), 1e300, 5, &wait), 0);
    CHECK_EQ(mr__limiter_take(l, text("a"), 1e299, 5, &wait), -EAGAIN);
    CHECK_EQ(wait, UINT64_MAX - 1);
    destroyed(all);
}

/* ---- against plain arrays -------------------------------------------------------------------- */

enum { KEYS = 60 };

struct model_entry {
    enum store_type type;
    double number;
    char text[24];
    uint64_t end;
} model[KEYS];

static bool is_live(int k, uint64_t now)
{
    return model[k].type != MR_STORE_NIL && model[k].end > now;
}

static size_t live_count(uint64_t now)
{
    size_t n = 0;

    for (int k = 0; k < KEYS; k++) {
        n += is_live(k, now);
    }
    return n;
}

static int model_write(int k, const struct store_value *v, uint64_t max, uint64_t ttl, uint64_t now)
{
    if (!is_live(k, now)) {
        if (live_count(now) >= max) {
            return -ENOSPC;
        }
        model[k].end = ttl ? now + ttl : UINT64_MAX;
    }
    model[k].type = v->type;
    model[k].number = v->number + v->boolean;
    snprintf(model[k].text, sizeof model[k].text, "%.*s", (int)v->text.n,
             v->text.n ? v->text.s : "");
    return 0;
}

static void check_same(struct store *s, int k, const char *key, uint64_t now)
{
    struct store_value v = get(s, key, now);

    REQUIRE_EQ((int)v.type, is_live(k, now) ? (int)model[k].type : (int)MR_STORE_NIL);
    if (v.type == MR_STORE_TEXT) {
        REQUIRE(v.text.n == strlen(model[k].text) &&
                memcmp(v.text.s, model[k].text, v.text.n) == 0);
    } else {
        REQUIRE_EQ(v.number + v.boolean, v.type == MR_STORE_NIL ? 0 : model[k].number);
    }
}

static void step(struct store *s, uint64_t max, uint64_t ttl, uint64_t now)
{
    int k = (int)test_random_below(KEYS);
    char key[16], value[24];
    double sum = 0;

    snprintf(key, sizeof key, "key-%d", k);
    snprintf(value, sizeof value, "%u", (unsigned)test_random_below(100000));
    struct store_value v = number((double)test_random_below(1000));
    if (test_random_below(2)) {
        v = string(value);
    } else if (test_random_below(3) == 0) {
        v = (struct store_value){.type = MR_STORE_BOOLEAN, .boolean = test_random_below(2)};
    }
    switch (test_random_below(6)) {
    case 0:
    case 1:
        REQUIRE_EQ(mr__store_set(s, text(key), &v, now), model_write(k, &v, max, ttl, now));
        break;
    case 2:
        REQUIRE_EQ(mr__store_add(s, text(key), &v, now),
                   is_live(k, now) ? -EEXIST : model_write(k, &v, max, ttl, now));
        break;
    case 3:
        REQUIRE_EQ(mr__store_delete(s, text(key), now), is_live(k, now));
        model[k].type = MR_STORE_NIL;
        break;
    case 4:
        if (is_live(k, now) && model[k].type != MR_STORE_NUMBER) {
            REQUIRE_EQ(mr__store_incr(s, text(key), 3, now, &sum), -EINVAL);
        } else {
            v = number((is_live(k, now) ? model[k].number : 0) + 3);
            REQUIRE_EQ(mr__store_incr(s, text(key), 3, now, &sum),
                       model_write(k, &v, max, ttl, now));
        }
        break;
    default:
        REQUIRE_EQ(mr__store_count(s, now), live_count(now));
    }
    check_same(s, k, key, now);
}

TEST(random_writes_agree_with_an_array)
{
    struct stores *all = created();
    uint64_t now = 1, max = 40, ttl = 50;
    struct store *s = opened(all, "s", max, ttl);

    memset(model, 0, sizeof model);
    for (int i = 0; i < 200000; i++) {
        now += test_random_below(4);
        if (test_random_below(500) == 0) {
            max = 1 + test_random_below(50);
            ttl = test_random_below(80);
            CHECK(opened(all, "s", max, ttl) == s);
        }
        if (test_random_below(100) == 0) {
            mr__stores_tick(all, now);
        }
        step(s, max, ttl, now);
    }
    destroyed(all);
}

/* Rates and times are chosen so that every number is whole: 1 token a millisecond. */
TEST(random_takes_agree_with_buckets_that_are_all_kept)
{
    enum { BURST = 40, MAX = 12 };
    struct stores *all = created();
    struct limiter *l = limiter(all, 1000, BURST, MAX);
    uint64_t full_ms[KEYS] = {0}, now_ms = 1;

    for (int i = 0; i < 200000; i++) {
        unsigned k = (unsigned)test_random_below(KEYS), n = 1 + (unsigned)test_random_below(BURST);
        unsigned in_use = 0;
        uint64_t wait = 0;

        now_ms += test_random_below(5);
        for (int j = 0; j < KEYS; j++) {
            in_use += full_ms[j] > now_ms;
        }
        uint64_t from = full_ms[k] > now_ms ? full_ms[k] : now_ms;
        int want = from + n > now_ms + BURST               ? -EAGAIN
                   : full_ms[k] <= now_ms && in_use == MAX ? -ENOSPC
                                                           : 0;
        REQUIRE_EQ(
            mr__limiter_take(l, (struct str){(char *)&k, sizeof k}, n, now_ms * MS_NS, &wait),
            want);
        if (want == -EAGAIN) {
            REQUIRE_EQ(wait, (from + n - now_ms - BURST) * MS_NS);
        }
        full_ms[k] = want == 0 ? from + n : full_ms[k];
        if (test_random_below(50) == 0) {
            mr__stores_tick(all, now_ms * MS_NS);
        }
    }
    destroyed(all);
}

static int all_kinds(struct stores **all)
{
    struct limiter *l;
    struct store *s;
    uint64_t wait;
    double sum;

    *all = mr__stores_create(&hash_key);
    int rc = *all ? mr__stores_open(*all, text("p"), text("s"), 10, 0, &s) : -ENOMEM;
    rc = rc < 0 ? rc : set(s, "a", string("text"), 1);
    rc = rc < 0 ? rc : set(s, "a", string("longer text"), 1);
    rc = rc < 0 ? rc : mr__store_incr(s, text("b"), 1, 1, &sum);
    rc = rc < 0 ? rc : mr__limiters_open(*all, text("p"), text("l"), 1, 1, 10, &l);
    return rc < 0 ? rc : mr__limiter_take(l, text("a"), 1, 1, &wait);
}

TEST(each_failed_allocation_is_an_error_of_that_write_and_leaks_nothing)
{
    int rc = -ENOMEM;

    for (long n = 0; rc == -ENOMEM && n < 100; n++) {
        struct stores *all = NULL;

        mr__alloc_fail_after(n);
        rc = all_kinds(&all);
        mr__alloc_fail_after(-1);
        destroyed(all);
    }
    CHECK_EQ(rc, 0);
}

TEST(a_write_that_fails_for_memory_changes_nothing)
{
    struct stores *all = created();
    struct store *s = opened(all, "s", 10, 0);

    CHECK_EQ(set(s, "k", string("old"), 1), 0);
    mr__alloc_fail_after(0);
    CHECK_EQ(set(s, "k", string("new"), 1), -ENOMEM);
    CHECK_EQ(set(s, "l", number(1), 1), -ENOMEM);
    mr__alloc_fail_after(-1);
    struct store_value v = get(s, "k", 1);
    CHECK_MEM(v.text.s, v.text.n, "old", 3);
    CHECK_EQ(mr__store_count(s, 1), 1u);
    destroyed(all);
}

TEST_MAIN(TEST_CASE(a_store_keeps_numbers_texts_and_booleans),
          TEST_CASE(a_time_to_live_runs_from_the_first_write),
          TEST_CASE(what_expired_counts_as_never_written),
          TEST_CASE(a_key_that_is_written_anew_is_found_beside_what_expired_of_it),
          TEST_CASE(a_full_store_refuses_new_keys_until_some_expire),
          TEST_CASE(counting_starts_at_nothing_and_wants_numbers),
          TEST_CASE(a_store_opened_again_is_the_same_with_new_bounds),
          TEST_CASE(no_more_stores_and_limiters_are_opened_than_there_may_be),
          TEST_CASE(what_is_nobodys_any_more_makes_room_at_once_and_goes_a_few_entries_at_a_time),
          TEST_CASE(keys_and_texts_have_a_longest_length),
          TEST_CASE(all_entries_together_have_a_bound_in_bytes),
          TEST_CASE(a_tick_frees_a_bounded_number_and_says_when_it_is_worth_the_next),
          TEST_CASE(a_limiter_gives_its_burst_at_once_and_then_its_rate),
          TEST_CASE(a_bucket_that_is_full_again_is_forgotten),
          TEST_CASE(a_limiter_opened_again_has_the_new_rate_and_burst),
          TEST_CASE(even_the_slowest_rate_ends_in_a_wait_that_can_be_told),
          TEST_CASE(random_writes_agree_with_an_array),
          TEST_CASE(random_takes_agree_with_buckets_that_are_all_kept),
          TEST_CASE(each_failed_allocation_is_an_error_of_that_write_and_leaks_nothing),
          TEST_CASE(a_write_that_fails_for_memory_changes_nothing))
