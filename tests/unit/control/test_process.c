/* SPDX-License-Identifier: MIT */
/*
 * The rule of open files, and the figures of the process.
 */
#include "control/process.h"

#include "base/alloc.h"
#include "service/metrics.h"
#include "test.h"

#include <sys/resource.h>

TEST(connections_get_what_ports_and_spares_leave)
{
    uint32_t granted = 0;

    CHECK_EQ(mr__process_plan_files(20000, 2049, 8192, &granted), 0);
    CHECK_EQ(granted, 8192u);
    CHECK_EQ(mr__process_plan_files(2049 + 64 + 8192, 2049, 8192, &granted), 0);
    CHECK_EQ(granted, 8192u);
    CHECK_EQ(mr__process_plan_files(2049 + 64 + 8191, 2049, 8192, &granted), 0);
    CHECK_EQ(granted, 8191u);
    CHECK_EQ(mr__process_plan_files(2049 + 64 + 64, 2049, 8192, &granted), 0);
    CHECK_EQ(granted, 64u);
}

TEST(fewer_than_64_connections_are_refused_unless_no_more_were_asked_for)
{
    uint32_t granted = 77;

    CHECK_EQ(mr__process_plan_files(2049 + 64 + 63, 2049, 8192, &granted), -EMFILE);
    CHECK_EQ(mr__process_plan_files(100, 2049, 8192, &granted), -EMFILE);
    CHECK_EQ(granted, 77u);
    CHECK_EQ(mr__process_plan_files(2049 + 64 + 10, 2049, 10, &granted), 0);
    CHECK_EQ(granted, 10u);
}

TEST(the_soft_limit_of_open_files_is_raised_to_the_hard_one)
{
    struct rlimit before, lowered, after;

    REQUIRE_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    lowered = before;
    lowered.rlim_cur = 256;
    REQUIRE_EQ(setrlimit(RLIMIT_NOFILE, &lowered), 0);
    CHECK_EQ(mr__process_raise_files(), before.rlim_max);
    REQUIRE_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
    CHECK_EQ(after.rlim_cur, before.rlim_max);
    setrlimit(RLIMIT_NOFILE, &before);
}

static double value_of(const char *page, const char *name)
{
    char start[128];
    const char *at;

    snprintf(start, sizeof start, "\n%s ", name);
    at = strstr(page, start);
    return at ? strtod(at + strlen(start), NULL) : -1;
}

TEST(the_figures_of_the_process_are_those_of_this_process)
{
    struct metrics *m = mr__metrics_create();
    size_t n;

    REQUIRE(m != NULL);
    mr__process_metrics(NULL, m);
    char *page = mr__metrics_finish(m, &n);
    REQUIRE(page != NULL);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double started = value_of(page, "process_start_time_seconds");
    CHECK(started > (double)now.tv_sec - 3600 && started <= (double)now.tv_sec + 2);
    CHECK_GT(value_of(page, "process_resident_memory_bytes"), 100e3);
    CHECK_GT(value_of(page, "process_virtual_memory_bytes"), 1e6);
    CHECK_GE(value_of(page, "process_cpu_seconds_total"), 0.0);
    /* ".", ".." and the folder itself are counted by the harness. */
    CHECK_EQ(value_of(page, "process_open_fds"), test_count_entries("/proc/self/fd") - 3);
    CHECK_GE(value_of(page, "process_max_fds"), 64);
    mr__free(page);
}

TEST_MAIN(TEST_CASE(connections_get_what_ports_and_spares_leave),
          TEST_CASE(fewer_than_64_connections_are_refused_unless_no_more_were_asked_for),
          TEST_CASE(the_soft_limit_of_open_files_is_raised_to_the_hard_one),
          TEST_CASE(the_figures_of_the_process_are_those_of_this_process))
