/* SPDX-License-Identifier: MIT */
/*
 * See watchdog.h. The watching thread looks once in the time that is a stall. The loop is stuck
 * when it is in the same turn as at the last look and has not slept since: its callbacks run in the
 * middle of a turn, so that nothing else tells work from sleep (uv_metrics_idle_time() may be asked
 * by any thread).
 */
#include "control/watchdog.h"

#include "base/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

struct watchdog {
    /* Odd while a turn lasts. Written by the control thread, read by the other; relaxed: nothing
     * else is read by what it says. */
    _Atomic uint64_t turn;
    uint64_t stalls; /* control thread's */
    uint64_t stall_ns;
    uv_loop_t *loop;
    struct log log; /* as it was; a reload may change the level of the one it was copied from */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool is_ended; /* under lock */
};

/* What the watching thread saw when it last looked. */
struct sight {
    uint64_t turn, idle_ns, at_ns, told;
};

static void look(struct watchdog *w, struct sight *last)
{
    struct sight now = {.turn = atomic_load_explicit(&w->turn, memory_order_relaxed),
                        .idle_ns = uv_metrics_idle_time(w->loop),
                        .at_ns = uv_hrtime(),
                        .told = last->told};

    if ((now.turn & 1) && now.turn == last->turn && now.idle_ns == last->idle_ns &&
        now.turn != now.told) {
        now.told = now.turn;
        MR_LOG(&w->log, MR_LOG_WARN, "server",
               "the control thread is stuck: who joins or registers waits",
               LOG_DOUBLE("seconds_at_least", (double)(now.at_ns - last->at_ns) / 1e9));
    }
    *last = now;
}

static void *run(void *arg)
{
    struct watchdog *w = arg;
    struct sight last = {.turn = 0};

    pthread_mutex_lock(&w->lock);
    while (!w->is_ended) {
        uint64_t next = uv_hrtime() + w->stall_ns;
        struct timespec until = {.tv_sec = (time_t)(next / 1000000000u),
                                 .tv_nsec = (long)(next % 1000000000u)};

        look(w, &last);
        while (!w->is_ended && pthread_cond_timedwait(&w->ended, &w->lock, &until) != ETIMEDOUT) {
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void mr__watchdog_enter(struct watchdog *w)
{
    if (w) {
        atomic_fetch_add_explicit(&w->turn, 1, memory_order_relaxed);
    }
}

void mr__watchdog_leave(struct watchdog *w, uint64_t worked_ns)
{
    if (!w) {
        return;
    }
    atomic_fetch_add_explicit(&w->turn, 1, memory_order_relaxed);
    if (worked_ns >= w->stall_ns) {
        w->stalls++;
        MR_LOG(&w->log, MR_LOG_WARN, "server", "the control thread goes on after a stall",
               LOG_DOUBLE("seconds", (double)worked_ns / 1e9));
    }
}

uint64_t mr__watchdog_stalls(const struct watchdog *w)
{
    return w ? w->stalls : 0;
}

/* Signals are for the threads that know what to do with them. */
static int start_thread(struct watchdog *w)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&w->thread, NULL, run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

int mr__watchdog_create(struct watchdog **out, uv_loop_t *loop, const struct log *log,
                        uint32_t stall_ms)
{
    struct watchdog *w = mr__alloc(1, sizeof *w);
    pthread_condattr_t monotonic;
    int rc;

    if (!w) {
        return -ENOMEM;
    }
    w->loop = loop;
    w->log = *log;
    w->stall_ns = stall_ms * UINT64_C(1000000);
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    rc = start_thread(w);
    if (rc < 0) {
        pthread_cond_destroy(&w->ended);
        pthread_mutex_destroy(&w->lock);
        mr__free(w);
        return rc;
    }
    *out = w;
    return 0;
}

void mr__watchdog_destroy(struct watchdog *w)
{
    if (!w) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->is_ended = true;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->ended);
    pthread_mutex_destroy(&w->lock);
    mr__free(w);
}
