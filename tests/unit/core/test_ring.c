/* SPDX-License-Identifier: MIT */
/*
 * The ring under one thread (full, empty, wrapping) and under two; the wake-up
 * protocol, where a lost wake-up would leave the test waiting.
 */
#include "test.h"

#include "base/alloc.h"
#include "core/ring.h"
#include "core/wakeup.h"

#include <pthread.h>
#include <sched.h>

enum { TWO_THREAD_RECORDS = 200000 };

struct record {
    uint64_t n, twice;
    unsigned char rest[40];
};

static void open_ring(struct ring *r, uint32_t capacity)
{
    mr__ring_init(r, capacity, sizeof(struct record),
                  mr__map(mr__ring_bytes(capacity, sizeof(struct record))));
}

static void close_ring(struct ring *r, uint32_t capacity)
{
    mr__unmap(r->data, mr__ring_bytes(capacity, sizeof(struct record)));
}

TEST(a_ring_gives_back_what_was_put_in_in_order_and_is_full_at_its_capacity)
{
    struct ring r;
    uint64_t in = 0, out = 0;

    open_ring(&r, 5); /* rounded up to 8 */
    CHECK(mr__ring_peek(&r) == NULL);
    for (int round = 0; round < 1000; round++) {
        struct record *p;

        for (uint64_t n = test_random_below(9); n > 0 && (p = mr__ring_reserve(&r)); n--) {
            p->n = in++;
            mr__ring_commit(&r);
        }
        CHECK_EQ(mr__ring_count(&r), in - out);
        CHECK_LE(in - out, 8u);
        CHECK((mr__ring_reserve(&r) == NULL) == (in - out == 8));
        for (uint64_t n = test_random_below(9); n > 0 && (p = mr__ring_peek(&r)); n--) {
            CHECK_EQ(p->n, out);
            out++;
            mr__ring_pop(&r);
        }
        CHECK((mr__ring_peek(&r) == NULL) == (in == out));
    }
    CHECK_GT(in, 1000u);
    close_ring(&r, 5);
}

TEST(a_ring_outlives_the_end_of_its_counters)
{
    struct ring r;
    uint64_t in = 0, out = 0;

    open_ring(&r, 4);
    /* As after 2^32 - 2 records. */
    atomic_store(&r.head, UINT32_MAX - 1);
    atomic_store(&r.tail, UINT32_MAX - 1);
    r.seen_head = r.seen_tail = UINT32_MAX - 1;
    for (int round = 0; round < 10; round++) {
        struct record *p;

        while ((p = mr__ring_reserve(&r))) {
            p->n = in++;
            mr__ring_commit(&r);
        }
        CHECK_EQ(mr__ring_count(&r), 4u);
        while ((p = mr__ring_peek(&r))) {
            CHECK_EQ(p->n, out);
            out++;
            mr__ring_pop(&r);
        }
    }
    CHECK_EQ(out, 40u);
    close_ring(&r, 4);
}

TEST(a_reservation_that_is_not_committed_does_not_exist)
{
    struct ring r;

    open_ring(&r, 2);
    CHECK(mr__ring_reserve(&r) != NULL);
    CHECK(mr__ring_reserve(&r) != NULL);
    CHECK(mr__ring_peek(&r) == NULL);
    CHECK_EQ(mr__ring_count(&r), 0u);
    close_ring(&r, 2);
}

TEST(impossible_sizes_are_refused)
{
    CHECK_EQ(mr__ring_bytes(0, 8), 0u);
    CHECK_EQ(mr__ring_bytes(UINT32_MAX, 8), 0u);
    CHECK_EQ(mr__ring_bytes(1, 8), 16u);
    CHECK_EQ(mr__ring_bytes(1u << 31, UINT32_MAX), ((size_t)1 << 31) * UINT32_MAX);
}

/* ---- two threads ------------------------------------------------------------------ */

struct line {
    struct ring ring;
    struct wakeup consumer;
    pthread_mutex_t lock; /* stands for the eventfd that wakes the consumer */
    pthread_cond_t rung;
    bool is_rung;
    uint64_t bad, received;
};

static void ring_bell(struct line *l)
{
    pthread_mutex_lock(&l->lock);
    l->is_rung = true;
    pthread_cond_signal(&l->rung);
    pthread_mutex_unlock(&l->lock);
}

static void wait_for_bell(struct line *l)
{
    pthread_mutex_lock(&l->lock);
    while (!l->is_rung)
        pthread_cond_wait(&l->rung, &l->lock);
    l->is_rung = false;
    pthread_mutex_unlock(&l->lock);
}

static void *consume(void *arg)
{
    struct line *l = arg;

    while (l->received < TWO_THREAD_RECORDS) {
        struct record *p = mr__ring_peek(&l->ring);

        if (!p) {
            mr__wakeup_prepare(&l->consumer);
            p = mr__ring_peek(&l->ring);
            if (!p)
                wait_for_bell(l); /* for ever, if the poster does not see us sleep */
            mr__wakeup_cancel(&l->consumer);
            continue;
        }
        l->bad += p->n != l->received || p->twice != 2 * p->n || p->rest[39] != (uint8_t)p->n;
        l->received++;
        mr__ring_pop(&l->ring);
    }
    return NULL;
}

TEST(two_threads_pass_every_record_whole_and_no_wake_up_is_lost)
{
    struct line l = {.lock = PTHREAD_MUTEX_INITIALIZER, .rung = PTHREAD_COND_INITIALIZER};
    pthread_t consumer;

    open_ring(&l.ring, 16);
    REQUIRE_EQ(pthread_create(&consumer, NULL, consume, &l), 0);
    for (uint64_t n = 0; n < TWO_THREAD_RECORDS;) {
        struct record *p = mr__ring_reserve(&l.ring);

        if (!p) {
            sched_yield();
            continue;
        }
        *p = (struct record){.n = n, .twice = 2 * n};
        p->rest[39] = (uint8_t)n;
        mr__ring_commit(&l.ring);
        n++;
        if (mr__wakeup_post(&l.consumer))
            ring_bell(&l);
        if (n % 64 == 0)
            sched_yield(); /* so that the consumer falls asleep now and then */
    }
    pthread_join(consumer, NULL);
    CHECK_EQ(l.bad, 0u);
    CHECK_EQ(l.received, (uint64_t)TWO_THREAD_RECORDS);
    close_ring(&l.ring, 16);
}

TEST(one_of_several_posters_wakes_a_sleeper_and_nobody_wakes_one_that_is_awake)
{
    struct wakeup w = {0};

    CHECK(!mr__wakeup_post(&w));
    mr__wakeup_prepare(&w);
    CHECK(mr__wakeup_post(&w));
    CHECK(!mr__wakeup_post(&w));
    mr__wakeup_prepare(&w);
    mr__wakeup_cancel(&w);
    CHECK(!mr__wakeup_post(&w));
}

TEST_MAIN(TEST_CASE(a_ring_gives_back_what_was_put_in_in_order_and_is_full_at_its_capacity),
          TEST_CASE(a_ring_outlives_the_end_of_its_counters),
          TEST_CASE(a_reservation_that_is_not_committed_does_not_exist),
          TEST_CASE(impossible_sizes_are_refused),
          TEST_CASE(two_threads_pass_every_record_whole_and_no_wake_up_is_lost),
          TEST_CASE(one_of_several_posters_wakes_a_sleeper_and_nobody_wakes_one_that_is_awake))
