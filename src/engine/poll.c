/* SPDX-License-Identifier: MIT */
/*
 * What is due on the control side, and the events that come of it. Control thread.
 * Start reading at mr_poll().
 */
#include "engine/engine.h"

#include "base/alloc.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

/* ------------------------------------------------------------------ what workers told */

/* By now known to our own tables? Then its link is on its way and nobody is asked. */
static int is_known(const struct mr *mr, uint32_t port, const struct mr_addr *from)
{
    const struct plane *p = &mr->tables.plane;

    if (mr__links_find(&p->links, port, from))
        return 1;
    return p->pairing == MR__PAIRING_OPEN && mr__relays_is_live(&p->relays, port) &&
           mr__relays_find(&p->relays, from) != MR__NONE;
}

static int on_miss(struct mr *mr, uint32_t index, const struct worker_event *in,
                   struct mr_event *out)
{
    mr_flow_id flow = in->u.miss.flow;
    struct told_flow *told =
        &mr->flows[(size_t)index * mr->flows_per_worker + mr__hold_id_index(flow)];

    *told = (struct told_flow){.since_ns = in->u.miss.since_ns,
                               .expires_ns = in->u.miss.expires_ns,
                               .generation = (uint32_t)(flow >> 32)};
    if (is_known(mr, in->port, &in->u.miss.from)) {
        (void)mr_flow_release(mr, flow);
        return 0;
    }
    /* What it held is dropped by now. An answer would come to nothing, and whoever is behind
     * must not fall back further by asking for it. */
    if (in->u.miss.expires_ns <= mr->now_ns) {
        told->generation = 0;
        return 0;
    }
    out->type = MR_EVENT_MISS;
    out->u.miss.flow = flow;
    out->u.miss.from = in->u.miss.from;
    out->u.miss.port = in->port;
    out->u.miss.reason = (enum mr_verdict)in->u.miss.reason;
    out->u.miss.size = in->u.miss.size;
    memcpy(out->u.miss.peek, in->u.miss.peek, MR_PEEK_MAX);
    return 1;
}

static int on_limit(struct mr *mr, const struct worker_event *in, struct mr_event *out)
{
    uint32_t port = mr__relay_port(mr, in->relay);

    if (port == MR__NONE)
        return 0;
    out->type = MR_EVENT_LIMIT;
    out->relay = in->relay;
    out->u.limit.kind = (enum mr_limit_kind)in->u.limit.kind;
    out->u.limit.user = mr->records[port].user;
    return 1;
}

static int on_exhausted(struct mr *mr, const struct worker_event *in)
{
    uint32_t port = mr__relay_port(mr, in->relay);

    if (port != MR__NONE) {
        mr__relay_end(mr, port, MR_END_TRAFFIC);
        mr->ended_now++;
    }
    return 0;
}

static int on_datagram(struct mr *mr, uint32_t index, const struct worker_event *in,
                       struct mr_event *out)
{
    mr->tray_bytes[index] += in->u.datagram.tray_bytes;
    out->type = MR_EVENT_DATAGRAM;
    out->relay = in->relay;
    out->u.datagram.port = in->port;
    out->u.datagram.from = in->u.datagram.from;
    out->u.datagram.size = in->u.datagram.size;
    out->u.datagram.data = in->u.datagram.data;
    return 1;
}

/* Returns how many events it stored: 0 or 1. */
static int translate(struct mr *mr, uint32_t index, const struct worker_event *in,
                     struct mr_event *out)
{
    memset(out, 0, sizeof *out);
    switch ((enum worker_event_type)in->type) {
    case WORKER_MISS:
        return on_miss(mr, index, in, out);
    case WORKER_LIMIT:
        return on_limit(mr, in, out);
    case WORKER_EXHAUSTED:
        return on_exhausted(mr, in);
    case WORKER_DATAGRAM:
        return on_datagram(mr, index, in, out);
    case WORKER_SPOKE:
        mr__tables_spoke(&mr->tables, in->relay, in->u.spoke.at);
        return 0;
    }
    return 0;
}

/* Each call begins with another worker, so that a flood at one starves no other. At most
 * one ring full of records a worker and call. */
static unsigned read_events(struct mr *mr, struct mr_event *events, unsigned max)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < mr->worker_count; i++) {
        uint32_t index = (mr->next_worker + i) % mr->worker_count;
        struct ring *ring = &mr->workers[index].events;
        struct worker_event *e;

        for (unsigned k = 0; k < EVENT_RING && n < max && mr->ended_now < ENDS_PER_POLL; k++) {
            e = mr__ring_peek(ring);
            if (!e)
                break;
            n += (unsigned)translate(mr, index, e, &events[n]);
            mr__ring_pop(ring);
        }
    }
    mr->next_worker++;
    return n;
}

/* ------------------------------------------------------------------ what is in force */

static void fill_ended(struct mr *mr, uint32_t port, struct mr_event *e)
{
    const struct record *record = &mr->records[port];

    *e = (struct mr_event){.type = MR_EVENT_ENDED, .relay = record->id};
    e->u.ended.reason = (enum mr_end_reason)record->end_reason;
    e->u.ended.port = port;
    e->u.ended.user = record->user;
    e->u.ended.age_ns = record->ended_ns - record->created_ns;
    e->u.ended.peer = record->peer;
    mr__relay_counts(mr, port, &e->u.ended.counts);
}

static void free_injected(struct mr *mr, uint64_t in_force)
{
    while (mr->first_injected && mr->first_injected->seq <= in_force) {
        struct injected *next = mr->first_injected->next;

        mr__free(mr->first_injected);
        mr->first_injected = next;
    }
    if (!mr->first_injected)
        mr->last_injected = &mr->first_injected;
}

static unsigned settle(struct mr *mr, struct mr_event *events, unsigned max)
{
    uint64_t in_force = mr__control_in_force(mr);
    unsigned n = 0;

    if (in_force > mr->told_in_force && max > 0) {
        events[n] = (struct mr_event){.type = MR_EVENT_IN_FORCE};
        events[n++].u.in_force.seq = in_force;
        mr->told_in_force = in_force;
    }
    while (n < max && mr->removing.first != NO_PORT) {
        uint32_t port = mr->removing.first;

        if (mr->records[port].remove_seq > in_force)
            break;
        QUEUE_POP(&mr->removing, mr->records);
        fill_ended(mr, port, &events[n++]);
        mr->records[port].state = RELAY_NONE;
    }
    mr__tables_open_latches(&mr->tables, in_force);
    mr__port_run(mr, in_force);
    free_injected(mr, in_force);
    mr__blocked_run(mr, in_force);
    return n;
}

/* ------------------------------------------------------------------ the call */

static void release_trays(struct mr *mr)
{
    for (uint32_t i = 0; i < mr->worker_count; i++) {
        if (mr->tray_bytes[i])
            mr__tray_release(&mr->workers[i].tray, mr->tray_bytes[i]);
        mr->tray_bytes[i] = 0;
    }
}

static int has_inline_work(const struct mr *mr)
{
    return mr->is_inline && (mr->log.sent[0] < mr->log.last ||
                             mr__worker_timeout_ns(&mr->workers[0], mr->now_ns) == 0);
}

static unsigned step(struct mr *mr, struct mr_event *events, unsigned max)
{
    unsigned n;

    mr__control_flush(mr);
    if (mr->is_inline)
        mr__worker_turn(&mr->workers[0], 0);
    mr->now_ns = mr__engine_now(mr);
    mr__control_gather(mr);
    mr__port_refresh_addresses(mr);
    n = settle(mr, events, max);
    n += read_events(mr, events + n, max - n);
    n += mr__expiry_run(mr, events + n, max - n);
    mr__control_gathered(mr);
    return n;
}

/* Something that this call left for the next one. */
static int has_more(struct mr *mr)
{
    uint64_t in_force = mr__control_in_force(mr);
    int is_removed =
        mr->removing.first != NO_PORT && mr->records[mr->removing.first].remove_seq <= in_force;

    for (uint32_t i = 0; i < mr->worker_count; i++) {
        if (mr__ring_count(&mr->workers[i].events) > 0)
            return 1;
    }
    return in_force > mr->told_in_force || is_removed || has_inline_work(mr) ||
           mr__expiry_next_ns(mr) <= mr->now_ns;
}

/*
 * The order matters little, its end a lot: the flag that asks workers to wake us goes up
 * first, then we look again whether there is something already.
 *
 * Without threads a change takes a few steps to come round (issued, applied, in force,
 * told); they are all made here, so that one call shows what the calls before it did.
 */
int mr_poll(struct mr *mr, struct mr_event *events, unsigned max)
{
    enum { STEPS_MAX = 4 };
    unsigned n = 0;

    if (max == 0)
        return -EINVAL;
    if (!mr->is_inline) {
        mr__wakeup_cancel(&mr->asleep);
        mr__poller_drain(&mr->poller);
    }
    release_trays(mr);
    mr->ended_now = 0;
    for (unsigned k = 0; k < STEPS_MAX && n < max; k++) {
        n += step(mr, events + n, max - n);
        if (!mr->is_inline || !has_more(mr))
            break;
    }
    if (!mr->is_inline)
        mr__wakeup_prepare(&mr->asleep);
    mr->must_poll = has_more(mr);
    return (int)n;
}

int mr_fd(const struct mr *mr)
{
    return mr->is_inline ? mr->workers[0].poller.epoll_fd : mr->poller.wake_fd;
}

int mr_timeout_ms(struct mr *mr)
{
    const uint64_t most_ms = INT_MAX;
    uint64_t now_ns = mr__engine_now(mr), due_ns = mr__expiry_next_ns(mr), left_ns;

    if (mr->must_poll || has_inline_work(mr) || due_ns <= now_ns)
        return 0;
    left_ns = due_ns == UINT64_MAX ? UINT64_MAX : due_ns - now_ns;
    if (mr->is_inline) {
        uint64_t worker_ns = mr__worker_timeout_ns(&mr->workers[0], now_ns);

        left_ns = worker_ns < left_ns ? worker_ns : left_ns;
    }
    if (left_ns == UINT64_MAX)
        return -1;
    left_ns = (left_ns + 999999) / 1000000;
    return left_ns > most_ms ? INT_MAX : (int)left_ns;
}
