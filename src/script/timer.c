/* SPDX-License-Identifier: MIT */
/*
 * See timer.h. Control thread only. Start reading at on_ring().
 */
#include "script/timer.h"

#include "base/alloc.h"
#include "script/figures.h"
#include "script/generation.h"

#include <errno.h>
#include <lauxlib.h>

struct timer {
    struct run run; /* of the call that is under way */
    struct policy *policy;
    struct timer *prev, *next; /* in generation->timers */
    struct alarm alarm;
    uint64_t number, delay_ns, period_ns;
    int function; /* an anchor */
    bool is_over; /* it ends with its run */
};

static struct runs *runs_of(const struct timer *t)
{
    return t->policy->generation->runs;
}

static struct timer *timer_of_run(struct run *r)
{
    return (struct timer *)(void *)((char *)r - offsetof(struct timer, run));
}

/* ---- life ------------------------------------------------------------------------------------ */

static void destroy(struct timer *t)
{
    struct generation *g = t->policy->generation;

    mr__alarm_clear(&g->runs->alarms, &t->alarm);
    mr__alarms_release(&g->runs->alarms, 1);
    mr__anchor_remove(g->state.L, &g->anchors, t->function);
    if (t->prev) {
        t->prev->next = t->next;
    } else {
        g->timers = t->next;
    }
    if (t->next) {
        t->next->prev = t->prev;
    }
    t->policy->n_timers--;
    mr__free(t);
}

static void start(struct timer *t, uint64_t now_ns)
{
    mr__alarm_set(&runs_of(t)->alarms, &t->alarm, now_ns + t->delay_ns);
}

/* It goes when its run has ended: the run is a part of it. */
static void end(struct timer *t)
{
    mr__alarm_clear(&runs_of(t)->alarms, &t->alarm);
    t->is_over = true;
    if (!t->run.is_running && !t->run.is_waiting) {
        destroy(t);
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void push_function(lua_State *L, struct run *r)
{
    mr__anchor_push(L, &r->policy->generation->anchors, timer_of_run(r)->function);
}

static void take_end(struct timer *t, int rc, const struct script_failure *failure)
{
    struct run *r = &t->run;

    if (rc != -ECANCELED) {
        mr__figures_took(r, FIGURE_TIMER, rc == 0 ? MR_CALL_NONE : MR_CALL_ERROR);
    }
    if (rc != 0 && rc != -ECANCELED) {
        mr__figures_log(r, "timer", failure);
    }
    if (t->is_over) {
        destroy(t);
    }
}

static void on_ended(struct run *r, int rc, const struct script_failure *failure)
{
    take_end(timer_of_run(r), rc, failure);
}

static const struct run_class timer_class = {
    .kind = RUN_TIMER, .push_function = push_function, .ended = on_ended};

/* The next moment of its rhythm; those that went by while nobody looked are left out. */
static void ring_again(struct timer *t, uint64_t now_ns)
{
    uint64_t late_ns = now_ns - t->alarm.at_ns;

    mr__alarm_set(&runs_of(t)->alarms, &t->alarm,
                  t->alarm.at_ns + (late_ns / t->period_ns + 1) * t->period_ns);
}

static void on_ring(struct alarm *a, uint64_t now_ns)
{
    struct timer *t = (struct timer *)(void *)((char *)a - offsetof(struct timer, alarm));
    struct script_failure failure;
    int rc;

    if (t->period_ns > 0) {
        ring_again(t, now_ns);
        if (t->run.is_waiting) {
            return; /* the last one is not over yet */
        }
    } else {
        t->is_over = true;
    }
    rc = mr__run_start(&t->run, &timer_class, t->policy, &failure);
    if (rc != RUN_WAITS) {
        take_end(t, rc, &failure);
    }
}

/* ---- from outside ---------------------------------------------------------------------------- */

static struct timer *create(struct policy *p, int function)
{
    struct generation *g = p->generation;
    struct timer *t;

    if (mr__alarms_reserve(&g->runs->alarms, 1) != 0) {
        return NULL;
    }
    t = mr__alloc(1, sizeof *t);
    if (!t) {
        mr__alarms_release(&g->runs->alarms, 1);
        return NULL;
    }
    t->policy = p;
    t->function = function;
    t->alarm.ring = on_ring;
    t->number = ++g->runs->last_timer;
    t->next = g->timers;
    if (g->timers) {
        g->timers->prev = t;
    }
    g->timers = t;
    p->n_timers++;
    return t;
}

uint64_t mr__timer_add(lua_State *L, struct policy *p, uint64_t delay_ns, uint64_t period_ns)
{
    struct generation *g = p->generation;
    struct timer *t;
    int function;

    if (g->stage == GENERATION_RETIRED) {
        lua_pop(L, 1);
        return 0; /* it would end before it begins */
    }
    if (p->n_timers >= TIMERS_MAX) {
        luaL_error(L, "more than %d timers of one policy", TIMERS_MAX);
    }
    function = mr__anchor_add(L, &g->anchors);
    t = create(p, function);
    if (!t) {
        mr__anchor_remove(L, &g->anchors, function);
        luaL_error(L, "not enough memory");
        return 0;
    }
    t->delay_ns = delay_ns;
    t->period_ns = period_ns;
    if (g->stage == GENERATION_IN_USE) {
        start(t, g->runs->mono_ns(g->runs->user));
    }
    return t->number;
}

void mr__timer_cancel(struct generation *g, uint64_t number)
{
    for (struct timer *t = g->timers; t; t = t->next) {
        if (t->number == number) {
            end(t);
            return;
        }
    }
}

void mr__timers_start(struct generation *g)
{
    uint64_t now_ns = g->runs->mono_ns(g->runs->user);

    for (struct timer *t = g->timers; t; t = t->next) {
        start(t, now_ns);
    }
}

void mr__timers_end(struct generation *g)
{
    for (struct timer *t = g->timers, *next; t; t = next) {
        next = t->next;
        mr__run_abandon(&t->run);
        end(t);
    }
}
