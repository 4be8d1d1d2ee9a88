/* SPDX-License-Identifier: MIT */
/*
 * Figures: sums over the workers' counters, read while they count. Control thread.
 * Start reading at mr_get_stats().
 */
#include "engine/engine.h"

#include <errno.h>
#include <string.h>

/* Relaxed: each number stands for itself. */
static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* What was received is read last: a datagram that comes in between is then one that was
 * received and has no verdict yet, and never the other way round. */
static void add_totals(struct mr_stats *s, const struct plane_totals *t)
{
    s->held += get(&t->held);
    for (unsigned v = 0; v < MR_VERDICT_COUNT; v++)
        s->verdicts[v] += get(&t->verdicts[v]);
    s->sent_bytes += get(&t->sent_bytes);
    s->received += get(&t->received_packets);
    s->received_bytes += get(&t->received_bytes);
}

static void add_histogram(struct mr_histogram *to, const struct worker_histogram *from)
{
    for (unsigned k = 0; k < MR_HIST_BUCKETS; k++)
        to->counts[k] += get(&from->counts[k]);
    to->sum += get(&from->sum);
}

static void add_worker(struct mr_stats *s, const struct worker *w)
{
    add_totals(s, &w->plane.totals);
    s->events_lost += get(&w->events_lost);
    for (unsigned k = 0; k < MR_LIMIT_KINDS; k++)
        s->limit_hits[k] += get(&w->limit_hits[k]);
    add_histogram(&s->size_bytes, &w->size_bytes);
    add_histogram(&s->duration_ns, &w->duration_ns);
}

int mr_get_stats(struct mr *mr, struct mr_stats *out, size_t size)
{
    struct mr_stats s = {.size = size};

    if (size < sizeof s.size || size > sizeof s)
        return -EINVAL;
    add_totals(&s, &mr->tables.plane.totals);
    for (uint32_t i = 0; i < mr->worker_count; i++)
        add_worker(&s, &mr->workers[i]);
    s.sent = s.verdicts[MR_VERDICT_FORWARD];
    s.limit_hits[MR_LIMIT_DURATION_SOON] += mr->soon_hits;
    s.kernel_drops = mr->closed_drops;
    for (uint32_t port = 0; port < mr->unused_port; port++) {
        if (mr->ports[port].state == PORT_OPEN)
            s.kernel_drops += mr->ports[port].kernel_drops;
    }
    s.ports = mr->open_ports;
    s.relays = mr->tables.plane.relays.live;
    s.pairs = mr->tables.pair_pool.used;
    s.latches = mr->tables.n_latches;
    s.workers = mr->is_inline ? 0 : mr->worker_count;
    memcpy(out, &s, size);
    return 0;
}
