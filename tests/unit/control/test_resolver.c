/* SPDX-License-Identifier: MIT */
/*
 * Threads that resolve names: how many there are and when they end, who owns a job that
 * hangs, and what is left when none can be started. What answers mean is in test_lookup.c.
 */
#include "control/resolver.h"

#include "base/alloc.h"
#include "loop.h"
#include "names.h"
#include "test.h"

enum { JOBS = 400 };

struct told {
    unsigned times;
    int rc;
    char host[300];
    struct resolver_job *job;
};

static struct fixture {
    uv_loop_t loop;
    struct resolver *resolver;
    struct names names;
    struct told told[JOBS];
    int threads;
    long live;
} f;

static void set_up(struct resolver_options opts)
{
    memset(&f, 0, sizeof f);
    f.live = mr__alloc_live();
    f.threads = test_count_entries("/proc/self/task");
    names_init(&f.names);
    names_answer(&f.names, "10.0.0.1", NULL);
    REQUIRE_EQ(uv_loop_init(&f.loop), 0);
    opts.loop = &f.loop;
    REQUIRE_EQ(mr__resolver_create(&f.resolver, &opts), 0);
}

static void tear_down(void)
{
    mr__resolver_destroy(f.resolver);
    loop_end(&f.loop);
    names_deinit(&f.names);
    CHECK_EVENTUALLY(mr__alloc_live() == f.live);
}

static void on_done(void *arg, const struct resolver_result *r)
{
    struct told *t = arg;

    t->times++;
    t->rc = r->rc;
    snprintf(t->host, sizeof t->host, "%s", r->host);
    CHECK(r->rc == 0 ? r->addr.family == 4 && r->addr.port == 0 : r->why != NULL);
}

static int start(unsigned i, const char *host)
{
    struct told *t = &f.told[i];

    *t = (struct told){.times = 0};
    return mr__resolver_start(f.resolver, &t->job, &f.names.resolver, host, strlen(host), 4,
                              on_done, t);
}

static int threads(void)
{
    return test_count_entries("/proc/self/task") - f.threads;
}

TEST(a_thread_is_started_when_a_name_needs_one_and_ends_when_it_is_idle)
{
    set_up((struct resolver_options){.idle_ms = 30});
    CHECK_EQ(threads(), 0);
    CHECK_EQ(start(0, "a.fleet"), 0);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(f.told[0].times, 1);
    CHECK_EQ(f.told[0].rc, 0);
    CHECK_STR(f.told[0].host, "a.fleet");
    CHECK_EVENTUALLY(threads() == 0);
    CHECK_EQ(start(0, "a.fleet"), 0); /* and another one comes */
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(f.told[0].rc, 0);
    tear_down();
}

TEST(an_idle_thread_is_used_before_another_one_is_started)
{
    set_up((struct resolver_options){.idle_ms = 60000});
    for (unsigned i = 0; i < 20; i++) {
        CHECK_EQ(start(0, "a.fleet"), 0);
        CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
        CHECK_EQ(f.told[0].rc, 0);
        test_pause();
    }
    CHECK_LE(threads(), 3); /* of 4: some may have been on their way from an answer to their wait */
    tear_down();
}

TEST(there_are_never_more_threads_than_allowed)
{
    set_up((struct resolver_options){.threads = 3, .queue = JOBS});
    for (unsigned i = 0; i < JOBS; i++) {
        CHECK_EQ(start(i, "a.fleet"), 0);
        CHECK_LE(threads(), 3);
    }
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_LE(threads(), 3);
    for (unsigned i = 0; i < JOBS; i++) {
        CHECK_EQ(f.told[i].times, 1);
    }
    CHECK_EQ(names_calls(&f.names), JOBS);
    tear_down();
}

TEST(without_a_thread_a_name_is_refused_and_nothing_waits)
{
    set_up((struct resolver_options){.stack_bytes = (size_t)1 << 50}); /* nobody has that much */
    CHECK(start(0, "a.fleet") < 0);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(f.told[0].times, 0);
    CHECK_EQ(names_calls(&f.names), 0);
    tear_down();
}

TEST(without_memory_a_name_is_refused_and_nothing_waits)
{
    set_up((struct resolver_options){.threads = 0});
    mr__alloc_fail_after(0);
    CHECK_EQ(start(0, "a.fleet"), -ENOMEM);
    mr__alloc_fail_after(-1);
    CHECK(!uv_loop_alive(&f.loop));
    tear_down();
}

TEST(the_queue_has_room_for_as_many_as_it_says_beside_those_that_threads_are_at)
{
    set_up((struct resolver_options){.threads = 2, .queue = 3});
    names_hang(&f.names);
    for (unsigned i = 0; i < 5; i++) {
        CHECK_EQ(start(i, "a.fleet"), 0);
    }
    CHECK_EQ(start(5, "a.fleet"), -EBUSY);
    mr__resolver_cancel(f.told[4].job);
    CHECK_EQ(start(5, "b.fleet"), 0);
    CHECK_EQ(start(6, "b.fleet"), -EBUSY);
    names_let_go(&f.names);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(f.told[5].rc, 0);
    CHECK_EQ(f.told[4].times, 0);
    tear_down();
}

/* Wherever it is: in the queue, with a thread, answered and not told yet. */
TEST(a_cancelled_job_is_told_nobody_wherever_it_is)
{
    set_up((struct resolver_options){.threads = 1});
    names_hang(&f.names);
    CHECK_EQ(start(0, "a.fleet"), 0);
    CHECK_EVENTUALLY(names_inside(&f.names) == 1);
    CHECK_EQ(start(1, "b.fleet"), 0);
    mr__resolver_cancel(f.told[1].job);
    mr__resolver_cancel(f.told[0].job);
    CHECK(!uv_loop_alive(&f.loop));
    names_let_go(&f.names);
    CHECK_EQ(start(2, "c.fleet"), 0);
    CHECK_EVENTUALLY(names_calls(&f.names) == 2 && names_inside(&f.names) == 0);
    mr__resolver_cancel(f.told[2].job);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_EQ(f.told[0].times + f.told[1].times + f.told[2].times, 0);
    tear_down();
}

TEST(a_hung_job_is_freed_by_its_thread_long_after_the_loop)
{
    set_up((struct resolver_options){.timeout_ms = 20});
    names_hang(&f.names);
    CHECK_EQ(start(0, "a.fleet"), 0);
    CHECK_EVENTUALLY(names_inside(&f.names) == 1);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(f.told[0].rc, -ETIMEDOUT);
    CHECK_STR(f.told[0].host, "a.fleet");
    CHECK_EQ(start(1, "b.fleet"), 0); /* and one that hangs while it ends */
    CHECK_EVENTUALLY(names_inside(&f.names) == 2);
    mr__resolver_destroy(f.resolver);
    loop_end(&f.loop);
    f.resolver = NULL;
    CHECK_GT(mr__alloc_live(), f.live);
    names_deinit(&f.names); /* lets them go */
    CHECK_EVENTUALLY(mr__alloc_live() == f.live);
    CHECK_EQ(f.told[1].times, 0);
}

/* After a stall of the loop both are due: the answer was in time. */
TEST(an_answer_that_waits_for_a_stalled_loop_is_no_timeout)
{
    struct pollfd loop;
    uint64_t asked;

    set_up((struct resolver_options){.timeout_ms = 20});
    CHECK_EQ(start(1, "a.fleet"), 0); /* once it has run, its descriptor tells of what comes */
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    asked = test_now_ms();
    CHECK_EQ(start(0, "a.fleet"), 0);
    loop = (struct pollfd){.fd = uv_backend_fd(&f.loop), .events = POLLIN};
    CHECK_EQ(poll(&loop, 1, TEST_EVENTUALLY_MS), 1);
    CHECK_EVENTUALLY(test_now_ms() > asked + 25);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(f.told[0].rc, 0);
    tear_down();
}

/* Questions, cancellations and ends in any order, against threads of any speed. */
TEST(whatever_is_cancelled_and_answered_meanwhile_each_job_ends_once)
{
    for (unsigned round = 0; round < 20; round++) {
        unsigned started = 0, cancelled = 0, told = 0;
        bool is_cancelled[64] = {false};

        set_up((struct resolver_options){.timeout_ms = 1 + (uint32_t)test_random_below(4)});
        for (unsigned i = 0; i < 64; i++) {
            unsigned k = (unsigned)test_random_below(i + 1);

            REQUIRE_EQ(start(i, "a.fleet"), 0);
            started++;
            if (test_random_below(3) == 0 && k < i && !is_cancelled[k] && f.told[k].times == 0) {
                mr__resolver_cancel(f.told[k].job);
                is_cancelled[k] = true;
                cancelled++;
            }
            if (test_random_below(2) == 0) {
                uv_run(&f.loop, UV_RUN_NOWAIT);
            }
        }
        if (round % 2 == 0) {
            uv_run(&f.loop, UV_RUN_DEFAULT);
            for (unsigned i = 0; i < 64; i++) {
                CHECK_EQ(f.told[i].times, is_cancelled[i] ? 0 : 1);
                told += f.told[i].times;
            }
            CHECK_EQ(started, told + cancelled);
        }
        tear_down();
    }
}

TEST(without_memory_no_resolver_is_made)
{
    struct resolver *r = NULL;
    struct resolver_options opts = {.loop = &f.loop};

    REQUIRE_EQ(uv_loop_init(&f.loop), 0);
    for (long n = 0; n < 2; n++) {
        mr__alloc_fail_after(n);
        CHECK_EQ(mr__resolver_create(&r, &opts), -ENOMEM);
        mr__alloc_fail_after(-1);
    }
    mr__resolver_destroy(NULL);
    loop_end(&f.loop);
}

TEST_MAIN(TEST_CASE(a_thread_is_started_when_a_name_needs_one_and_ends_when_it_is_idle),
          TEST_CASE(an_idle_thread_is_used_before_another_one_is_started),
          TEST_CASE(there_are_never_more_threads_than_allowed),
          TEST_CASE(without_a_thread_a_name_is_refused_and_nothing_waits),
          TEST_CASE(without_memory_a_name_is_refused_and_nothing_waits),
          TEST_CASE(the_queue_has_room_for_as_many_as_it_says_beside_those_that_threads_are_at),
          TEST_CASE(a_cancelled_job_is_told_nobody_wherever_it_is),
          TEST_CASE(a_hung_job_is_freed_by_its_thread_long_after_the_loop),
          TEST_CASE(an_answer_that_waits_for_a_stalled_loop_is_no_timeout),
          TEST_CASE(whatever_is_cancelled_and_answered_meanwhile_each_job_ends_once),
          TEST_CASE(without_memory_no_resolver_is_made))
