/* SPDX-License-Identifier: MIT */
/*
 * The watchdog beside a loop that is made to hang.
 */
#include "control/watchdog.h"

#include "base/alloc.h"
#include "loop.h"
#include "test.h"

/* A hang is one however busy the machine is, so it may be short. */
enum { SHORT_MS = 150 };

struct fixture {
    uv_loop_t loop;
    uv_timer_t timer;
    struct log log;
    struct watchdog *watchdog;
    atomic_uint lines, stuck, over; /* the sink is called by two threads */
};

static void sink(void *user, enum log_level level, const char *line, size_t n)
{
    struct fixture *f = user;

    CHECK_EQ(level, MR_LOG_WARN);
    CHECK_EQ(line[n - 1], '\n');
    atomic_fetch_add(&f->lines, 1);
    atomic_fetch_add(&f->stuck, memmem(line, n, "is stuck", 8) != NULL);
    atomic_fetch_add(&f->over, memmem(line, n, "goes on", 7) != NULL);
}

static void set_up(struct fixture *f, uint32_t stall_ms)
{
    memset(f, 0, sizeof *f);
    f->log = (struct log){.level = MR_LOG_INFO, .sink = sink, .user = f};
    REQUIRE_EQ(uv_loop_init(&f->loop), 0);
    REQUIRE_EQ(uv_loop_configure(&f->loop, UV_METRICS_IDLE_TIME), 0);
    uv_timer_init(&f->loop, &f->timer);
    f->timer.data = f;
    REQUIRE_EQ(mr__watchdog_create(&f->watchdog, &f->loop, &f->log, stall_ms), 0);
}

static void tear_down(struct fixture *f)
{
    mr__watchdog_destroy(f->watchdog);
    uv_close((uv_handle_t *)&f->timer, NULL);
    loop_end(&f->loop);
}

/* As the control does. */
static void turn(struct fixture *f)
{
    uint64_t from = uv_hrtime(), idle = uv_metrics_idle_time(&f->loop), took, slept;

    mr__watchdog_enter(f->watchdog);
    uv_run(&f->loop, UV_RUN_ONCE);
    took = uv_hrtime() - from;
    slept = uv_metrics_idle_time(&f->loop) - idle;
    mr__watchdog_leave(f->watchdog, took > slept ? took - slept : 0);
}

static void hang(uv_timer_t *timer)
{
    struct fixture *f = timer->data;

    CHECK(TEST_UNTIL(atomic_load(&f->stuck) > 0));
    /* Longer: the same stall is told once. */
    for (uint64_t until = test_now_ms() + 3 * SHORT_MS; test_now_ms() < until;) {
        test_pause();
    }
}

TEST(a_turn_that_hangs_is_told_once_while_it_lasts_and_once_when_it_is_over)
{
    struct fixture f;

    set_up(&f, SHORT_MS);
    uv_timer_start(&f.timer, hang, 0, 0);
    turn(&f);
    CHECK_EQ(atomic_load(&f.stuck), 1);
    CHECK_EQ(atomic_load(&f.over), 1);
    CHECK_EQ(mr__watchdog_stalls(f.watchdog), 1);
    f.stuck = 0;
    uv_timer_start(&f.timer, hang, 0, 0); /* and the next one again */
    turn(&f);
    CHECK_EQ(atomic_load(&f.stuck), 1);
    CHECK_EQ(mr__watchdog_stalls(f.watchdog), 2);
    tear_down(&f);
}

static void nothing(uv_timer_t *timer)
{
    (void)timer;
}

/* All the while in one turn. */
static void *sleep_long(void *arg)
{
    struct fixture *f = arg;

    uv_timer_start(&f->timer, nothing, 3 * MR_WATCHDOG_STALL_MS, 0);
    turn(f);
    return NULL;
}

/* Never asleep. */
static void *turn_often(void *arg)
{
    struct fixture *f = arg;

    for (uint64_t until = test_now_ms() + 3 * MR_WATCHDOG_STALL_MS; test_now_ms() < until;) {
        uv_timer_start(&f->timer, nothing, 0, 0);
        turn(f);
    }
    return NULL;
}

/* Whoever has the loop does something else. */
static void *be_elsewhere(void *arg)
{
    uv_timer_start(&((struct fixture *)arg)->timer, nothing, 0, 0);
    turn(arg);
    for (uint64_t until = test_now_ms() + 3 * MR_WATCHDOG_STALL_MS; test_now_ms() < until;) {
        test_pause();
    }
    return NULL;
}

TEST(sleeping_turning_and_being_elsewhere_are_no_stalls)
{
    static void *(*const live[])(void *) = {sleep_long, turn_often, be_elsewhere};
    struct fixture f[3];
    pthread_t threads[3];

    for (unsigned i = 0; i < 3; i++) {
        set_up(&f[i], MR_WATCHDOG_STALL_MS);
        REQUIRE_EQ(pthread_create(&threads[i], NULL, live[i], &f[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(atomic_load(&f[i].stuck), 0);
        tear_down(&f[i]);
    }
}

TEST(memory_that_runs_out_is_an_error)
{
    struct watchdog *w = NULL;
    struct log log = {.level = MR_LOG_SILENT};
    uv_loop_t loop;

    REQUIRE_EQ(uv_loop_init(&loop), 0);
    mr__alloc_fail_after(0);
    CHECK_EQ(mr__watchdog_create(&w, &loop, &log, SHORT_MS), -ENOMEM);
    mr__alloc_fail_after(-1);
    CHECK_EQ(w, NULL);
    mr__watchdog_destroy(NULL);
    CHECK_EQ(uv_loop_close(&loop), 0);
}

TEST_MAIN(TEST_CASE(a_turn_that_hangs_is_told_once_while_it_lasts_and_once_when_it_is_over),
          TEST_CASE(sleeping_turning_and_being_elsewhere_are_no_stalls),
          TEST_CASE(memory_that_runs_out_is_an_error))
