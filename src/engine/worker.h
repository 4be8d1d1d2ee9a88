/* SPDX-License-Identifier: MIT */
/*
 * A worker: receives at its ports, decides, holds, sends. It has a replica of the tables
 * that only commands change, so it needs no lock; it never waits for control, never
 * allocates, never runs a script. With workers = 0 the same object runs inside mr_poll().
 *
 *     wait -> clock -> commands -> replay what was held -> publish applied_seq
 *          -> receive, decide, hold or send, batch by batch -> wait ...
 *
 * Fields say who touches them. Start reading at mr__worker_turn().
 */
#ifndef MR_ENGINE_WORKER_H
#define MR_ENGINE_WORKER_H

#include "core/plane.h"
#include "core/ring.h"
#include "core/wakeup.h"
#include "engine/command.h"
#include "engine/event.h"
#include "engine/hold.h"
#include "engine/moonrelay.h"
#include "engine/tray.h"
#include "io/poller.h"
#include "io/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    WORKERS_MAX = 64,
    COMMAND_RING = 1024, /* some milliseconds of the fastest script */
    EVENT_RING = 4096,
};

/* How long a flood may put off a barrier (mr__worker_turn()), and what one turn counts
 * for at most, so that a stop of the whole process is not taken for running time. */
#define BARRIER_RUN_NS      UINT64_C(50000000)
#define BARRIER_TURN_MAX_NS UINT64_C(10000000)

/* Written by one worker, read by everybody; relaxed, each number stands for itself. */
struct worker_histogram {
    _Atomic uint64_t counts[MR_HIST_BUCKETS];
    _Atomic uint64_t sum;
};

/* When a limit of a relay was last told, in ms and never 0; wraps after 49 days, which
 * costs one event. */
struct limit_told {
    uint32_t at_ms[4]; /* BANDWIDTH, GLOBAL, DURATION, TRAFFIC */
};

/* What a worker is made of; the pointers outlive it. */
struct worker_config {
    uint32_t index, count; /* count: of workers, at least 1 */
    uint32_t max_ports;
    const struct plane_config *plane;
    const struct mr_hold_options *hold;
    const struct transport *transport;
    const struct tx_socket *sockets; /* [max_ports], written by control before PORT_OPEN */
    uint64_t (*clock_ns)(void *user);
    void *clock_user;
    int is_clock_virtual;
    /* How to wake control; NULL: it is the same thread. */
    struct wakeup *control;
    struct poller *control_poller;
};

struct worker {
    struct worker_config config;
    struct plane plane;
    struct hold hold;
    struct rx rx;
    struct tx tx;
    struct batch *batch;
    struct rx_source *sources; /* [ports of ours]: by port / count */
    struct limit_told *told;   /* [max_ports] */
    void *memory;
    size_t memory_bytes;
    uint64_t now_ns;               /* of this turn */
    uint64_t applied;              /* commands */
    _Atomic uint64_t event_tat_ns; /* budget of events; atomic only for core/limit.h's sake */
    uint64_t barrier;              /* running: its number, else 0 */
    uint64_t barrier_run_ns;
    uint32_t due_flows; /* marked flows */
    uint8_t wants_misses;
    uint8_t must_rescan; /* open pairing: a relay came or moved */
    uint8_t must_tell;   /* control has something to read */
    uint8_t is_partial;  /* more sockets were readable than the last wait could name */
    uint8_t is_threaded;
    uint8_t is_prepared; /* our flag in `asleep` may be up */
    pthread_t thread;

    struct poller poller;
    struct wakeup asleep; /* control posts */
    struct ring commands; /* control -> us */
    struct ring events;   /* us -> control */
    struct tray tray;     /* us -> control */

    /* Release by us, acquire by control: what the commands did has happened. */
    _Alignas(64) _Atomic uint64_t applied_seq;
    /* Control asks for a look at all sockets that begins now; we answer when it is
     * done. Release and acquire, each way. */
    _Atomic uint64_t barrier_done;
    _Alignas(64) _Atomic uint64_t barrier_wanted;
    _Atomic uint32_t should_stop; /* release by control, acquire by us */

    /* Single writer (us), relaxed. */
    _Alignas(64) _Atomic uint64_t events_lost;
    _Atomic uint64_t socket_errors;
    _Atomic uint64_t limit_hits[MR_LIMIT_KINDS];
    struct worker_histogram size_bytes, duration_ns;
};

/* Caller's memory, zeroed. -ENOMEM, -EMFILE */
int mr__worker_init(struct worker *w, const struct worker_config *config);
/* Not while its thread runs. */
void mr__worker_deinit(struct worker *w);

int mr__worker_start(struct worker *w); /* a thread of its own. -EAGAIN */
void mr__worker_stop(struct worker *w); /* ends the thread; nothing when there is none */

/* One turn. Waits up to timeout_ns for datagrams or a wake-up. */
void mr__worker_turn(struct worker *w, uint64_t timeout_ns);
/* How long a turn may wait: 0 when there is work. */
uint64_t mr__worker_timeout_ns(const struct worker *w, uint64_t now_ns);

/* By control after it has put something into the ring or asked for a barrier. */
void mr__worker_wake(struct worker *w);

/* Adds to a word that only its worker writes: relaxed, and a load and a store instead of
 * a locked addition. */
static inline void mr__worker_add(_Atomic uint64_t *word, uint64_t n)
{
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* The bucket of struct mr_histogram that a value belongs to. */
static inline unsigned mr__worker_bucket(uint64_t value)
{
    unsigned k = value <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(value - 1);

    return k < MR_HIST_BUCKETS ? k : MR_HIST_BUCKETS - 1;
}

#endif
