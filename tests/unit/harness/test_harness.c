/* SPDX-License-Identifier: MIT */
/*
 * The harness judged by itself: what must fail is run in place and its failures are taken back. One
 * thread. It is where the promises of test.h are held.
 */
#include "test.h"

#include <fcntl.h>
#include <pthread.h>

static int left_fd = -1;
static atomic_bool may_end;

/* Runs a case that is expected to fail, silently for stdout's readers, and gives its result. */
static int result_of(const char *name, void (*run)(void))
{
    jmp_buf saved;
    memcpy(&saved, &test_end, sizeof saved);
    int rc = test_run(&(struct test_case){name, run});
    memcpy(&test_end, &saved, sizeof saved);
    atomic_store(&test_failures, 0);
    test_skip_reason = NULL;
    return rc;
}

static void fails_a_check(void)
{
    CHECK_EQ(-1, 4294967295u);
}

static void fails_a_requirement(void)
{
    REQUIRE_STR("a", "b");
    abort();
}

static void leaves_an_fd(void)
{
    left_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void skips(void)
{
    TEST_SKIP("because it is asked to");
}

static void passes(void)
{
    CHECK_EQ(2 + 2, 4u);
    CHECK_LT(-1, 0u);
    CHECK_MEM("ab", 2, "abc", 2);
    CHECK_NE(&left_fd, NULL);
}

static uint64_t drawn;

static void draws(void)
{
    drawn = test_random();
}

/* What a test draws first when the environment says this; NULL: nothing. */
static uint64_t first_of(const char *seed)
{
    if (seed)
        setenv("TEST_SEED", seed, 1);
    else
        unsetenv("TEST_SEED");
    CHECK_EQ(result_of("draws", draws), 0);
    return drawn;
}

TEST(without_a_seed_all_runs_and_tests_draw_the_same)
{
    char *given = getenv("TEST_SEED"), *saved = given ? strdup(given) : NULL;
    uint64_t usual = first_of(NULL), fresh;

    CHECK_EQ(usual, 0x910a2dec89025cc1u);
    CHECK_EQ(first_of(""), usual);
    CHECK_NE(first_of("17849018562371618866"), usual);
    CHECK_EQ(first_of("1"), usual);
    fresh = first_of("random");
    CHECK_NE(fresh, usual);
    CHECK_EQ(first_of(getenv("TEST_SEED")), fresh); /* told there for whoever repeats it */
    CHECK_NE(first_of("random"), fresh);
    first_of(saved);
    free(saved);
}

TEST(a_failed_check_fails_the_test)
{
    CHECK_EQ(result_of("(expected to fail) fails_a_check", fails_a_check), 1);
    CHECK_EQ(result_of("passes", passes), 0);
}

TEST(a_failed_requirement_ends_the_test)
{
    CHECK_EQ(result_of("(expected to fail) fails_a_requirement", fails_a_requirement), 1);
}

TEST(an_fd_left_behind_fails_the_test)
{
    CHECK_EQ(result_of("(expected to fail) leaves_an_fd", leaves_an_fd), 1);
    close(left_fd);
}

TEST(a_skip_is_told_as_one)
{
    CHECK_EQ(result_of("skips", skips), TEST_SKIP_CODE);
}

static void *wait_for_leave(void *arg)
{
    (void)arg;
    while (!atomic_load(&may_end)) {
        test_pause();
    }
    return NULL;
}

TEST(a_running_thread_is_counted)
{
    pthread_t thread;
    int before = test_count_entries("/proc/self/task");

    REQUIRE_EQ(pthread_create(&thread, NULL, wait_for_leave, NULL), 0);
    CHECK_EQ(test_count_entries("/proc/self/task"), before + 1);
    atomic_store(&may_end, true);
    pthread_join(thread, NULL);
    CHECK(test_came_back("/proc/self/task", before));
}

TEST_MAIN(TEST_CASE(a_failed_check_fails_the_test), TEST_CASE(a_failed_requirement_ends_the_test),
          TEST_CASE(an_fd_left_behind_fails_the_test), TEST_CASE(a_skip_is_told_as_one),
          TEST_CASE(a_running_thread_is_counted),
          TEST_CASE(without_a_seed_all_runs_and_tests_draw_the_same))
