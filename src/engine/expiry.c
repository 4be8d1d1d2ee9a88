/* SPDX-License-Identifier: MIT */
/*
 * Ends by time: one entry a relay in a binary heap, at the earliest moment it has to be
 * looked at; no sweep. Traffic does not touch the heap: activity is read when the entry
 * fires, and if it has moved, the entry moves.
 *
 * Before anything ends for being idle, every worker has looked at its sockets (a barrier
 * that was asked for after the deadline): when a process was stopped for a while, what
 * waits in its sockets is activity, too. One barrier serves all that are due by then.
 * Control thread. Start reading at mr__expiry_run().
 */
#include "engine/engine.h"

/* ------------------------------------------------------------------ heap */

static uint64_t key(const struct mr *mr, uint32_t at)
{
    return mr->records[mr->heap[at]].when_ns;
}

static void put(struct mr *mr, uint32_t at, uint32_t port)
{
    mr->heap[at] = port;
    mr->records[port].heap_at = at + 1;
}

static void sift_up(struct mr *mr, uint32_t at)
{
    uint32_t port = mr->heap[at];
    uint64_t when_ns = mr->records[port].when_ns;

    while (at > 0 && key(mr, (at - 1) / 2) > when_ns) {
        put(mr, at, mr->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put(mr, at, port);
}

static void sift_down(struct mr *mr, uint32_t at)
{
    uint32_t port = mr->heap[at];
    uint64_t when_ns = mr->records[port].when_ns;

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < mr->heap_count && key(mr, child + 1) < key(mr, child))
            child++;
        if (child >= mr->heap_count || key(mr, child) >= when_ns)
            break;
        put(mr, at, mr->heap[child]);
        at = child;
    }
    put(mr, at, port);
}

static void heap_set(struct mr *mr, uint32_t port, uint64_t when_ns)
{
    struct record *record = &mr->records[port];
    uint64_t before_ns = record->when_ns;

    record->when_ns = when_ns;
    if (record->heap_at == 0) {
        put(mr, mr->heap_count++, port);
        sift_up(mr, mr->heap_count - 1);
    } else if (when_ns < before_ns) {
        sift_up(mr, record->heap_at - 1);
    } else {
        sift_down(mr, record->heap_at - 1);
    }
}

static void heap_remove(struct mr *mr, uint32_t port)
{
    uint32_t at = mr->records[port].heap_at - 1;
    uint32_t last = mr->heap[--mr->heap_count];

    mr->records[port].heap_at = 0;
    if (last == port)
        return;
    put(mr, at, last);
    sift_up(mr, at);
    sift_down(mr, mr->records[last].heap_at - 1);
}

/* ------------------------------------------------------------------ moments */

static uint64_t after(uint64_t start_ns, uint64_t span_ns)
{
    uint64_t sum;

    return span_ns == 0 || __builtin_add_overflow(start_ns, span_ns, &sum) ? UINT64_MAX : sum;
}

static uint64_t idle_at(const struct mr *mr, uint32_t port)
{
    uint64_t idle_ns = mr__relay_idle_ns(mr, &mr->records[port]);

    return idle_ns ? mr__relay_shared_idle_at(&mr->shared[port], idle_ns) : UINT64_MAX;
}

static uint64_t ttl_at(const struct record *record)
{
    return after(record->created_ns, record->limits.ttl_ns);
}

static uint64_t soon_at(const struct mr *mr, const struct record *record)
{
    uint64_t life_ns = mr->options.limits.life_ns;

    if (record->is_soon_told || life_ns <= SOON_NS)
        return UINT64_MAX;
    return after(record->life_start_ns, life_ns - SOON_NS);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void mr__expiry_arm(struct mr *mr, uint32_t port)
{
    const struct record *record = &mr->records[port];
    uint64_t when_ns = least(least(idle_at(mr, port), ttl_at(record)), soon_at(mr, record));

    if (record->state != RELAY_LIVE)
        return;
    if (when_ns != UINT64_MAX)
        heap_set(mr, port, when_ns);
    else if (record->heap_at)
        heap_remove(mr, port);
}

void mr__expiry_disarm(struct mr *mr, uint32_t port)
{
    if (mr->records[port].heap_at)
        heap_remove(mr, port);
}

/* ------------------------------------------------------------------ firing */

enum { LOOKS_PER_POLL = 4 * ENDS_PER_POLL }; /* entries that only move cost less */

static void fill_soon(const struct mr *mr, uint32_t port, struct mr_event *e)
{
    *e = (struct mr_event){.type = MR_EVENT_LIMIT, .relay = mr->records[port].id};
    e->u.limit.kind = MR_LIMIT_DURATION_SOON;
    e->u.limit.user = mr->records[port].user;
}

/* 1: the relay at the top is dealt with; 0: it has to wait for a barrier. */
static int fire(struct mr *mr, uint32_t port)
{
    const struct record *record = &mr->records[port];

    if (ttl_at(record) <= mr->now_ns) {
        mr__relay_end(mr, port, MR_END_LIFETIME);
        mr->ended_now++;
        return 1;
    }
    if (idle_at(mr, port) > mr->now_ns) {
        mr__expiry_arm(mr, port);
        return 1;
    }
    if (mr__control_await_barrier(mr) || mr->observed_ns < idle_at(mr, port)) {
        mr__control_ask_barrier(mr, mr->now_ns);
        return 0;
    }
    mr__relay_end(mr, port, MR_END_IDLE);
    mr->ended_now++;
    return 1;
}

unsigned mr__expiry_run(struct mr *mr, struct mr_event *events, unsigned max)
{
    unsigned n = 0;

    for (unsigned looks = 0; looks < LOOKS_PER_POLL && mr->ended_now < ENDS_PER_POLL; looks++) {
        uint32_t port = mr->heap_count ? mr->heap[0] : NO_PORT;

        if (port == NO_PORT || mr->records[port].when_ns > mr->now_ns)
            break;
        if (soon_at(mr, &mr->records[port]) <= mr->now_ns) {
            if (n == max)
                break;
            fill_soon(mr, port, &events[n++]);
            mr->records[port].is_soon_told = 1;
            mr->soon_hits++;
        }
        if (!fire(mr, port))
            break;
    }
    return n;
}

uint64_t mr__expiry_next_ns(struct mr *mr)
{
    if (mr->heap_count == 0)
        return UINT64_MAX;
    /* Whoever ends the barrier wakes us. */
    if (key(mr, 0) <= mr->now_ns && mr__control_await_barrier(mr))
        return UINT64_MAX;
    return key(mr, 0);
}
