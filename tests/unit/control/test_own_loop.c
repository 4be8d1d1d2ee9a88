/* SPDX-License-Identifier: MIT */
/* A loop that somebody else turns. */
#include "control/own_loop.h"

#include "base/alloc.h"
#include "loop.h"
#include "test.h"

static unsigned called;

static void on_timer(uv_timer_t *timer)
{
    called++;
    uv_close((uv_handle_t *)timer, NULL);
}

TEST(a_wait_waits_although_nothing_else_holds_the_loop)
{
    struct own_loop *l;
    uv_timer_t timer;

    called = 0;
    REQUIRE_EQ(mr__own_loop_create(&l), 0);
    uv_timer_init(mr__own_loop_uv(l), &timer);
    uv_timer_start(&timer, on_timer, 20, 0);
    uv_unref((uv_handle_t *)&timer);
    mr__own_loop_wait(l);
    CHECK_EQ(called, 1);
    CHECK_EQ(mr__own_loop_destroy(l), 0);
}

TEST(a_step_does_not_wait)
{
    struct own_loop *l;
    uv_timer_t timer;

    called = 0;
    REQUIRE_EQ(mr__own_loop_create(&l), 0);
    CHECK_EQ(mr__own_loop_timeout_ms(l), 0); /* the descriptor knows of nothing yet */
    mr__own_loop_step(l);
    CHECK_EQ(mr__own_loop_timeout_ms(l), -1);
    uv_timer_init(mr__own_loop_uv(l), &timer);
    uv_timer_start(&timer, on_timer, 60000, 0);
    mr__own_loop_step(l);
    CHECK_EQ(called, 0);
    CHECK_GT(mr__own_loop_timeout_ms(l), 0);
    uv_timer_start(&timer, on_timer, 0, 0);
    CHECK_EQ(mr__own_loop_timeout_ms(l), 0);
    mr__own_loop_step(l);
    CHECK_EQ(called, 1);
    CHECK_EQ(mr__own_loop_destroy(l), 0);
}

static void on_closed(uv_handle_t *handle)
{
    uv_handle_t *next = handle->data;

    called++;
    if (next) {
        uv_close(next, on_closed);
    }
}

TEST(the_end_waits_for_what_is_closing_one_after_the_other)
{
    struct own_loop *l;
    uv_timer_t timers[4];

    called = 0;
    REQUIRE_EQ(mr__own_loop_create(&l), 0);
    for (unsigned i = 0; i < 4; i++) {
        uv_timer_init(mr__own_loop_uv(l), &timers[i]);
        timers[i].data = i > 0 ? &timers[i - 1] : NULL;
    }
    uv_close((uv_handle_t *)&timers[3], on_closed);
    CHECK_EQ(mr__own_loop_destroy(l), 0);
    CHECK_EQ(called, 4);
}

TEST(the_end_is_refused_as_long_as_somebody_has_a_handle_on_it)
{
    long live = mr__alloc_live();
    struct own_loop *l;
    uv_timer_t timer;

    called = 0;
    REQUIRE_EQ(mr__own_loop_create(&l), 0);
    uv_timer_init(mr__own_loop_uv(l), &timer);
    CHECK_EQ(mr__own_loop_destroy(l), -EBUSY);
    timer.data = NULL;
    uv_close((uv_handle_t *)&timer, on_closed);
    CHECK_EQ(mr__own_loop_destroy(l), 0);
    CHECK_EQ(called, 1);
    CHECK_EQ(mr__own_loop_destroy(NULL), 0);
    CHECK_EQ(mr__alloc_live(), live);
}

TEST(without_memory_none_is_made)
{
    struct own_loop *l = NULL;

    mr__alloc_fail_after(0);
    CHECK_EQ(mr__own_loop_create(&l), -ENOMEM);
    mr__alloc_fail_after(-1);
    CHECK(l == NULL);
}

TEST_MAIN(TEST_CASE(a_wait_waits_although_nothing_else_holds_the_loop),
          TEST_CASE(a_step_does_not_wait),
          TEST_CASE(the_end_waits_for_what_is_closing_one_after_the_other),
          TEST_CASE(the_end_is_refused_as_long_as_somebody_has_a_handle_on_it),
          TEST_CASE(without_memory_none_is_made))
