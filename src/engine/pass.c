/* SPDX-License-Identifier: MIT */
/*
 * A batch's way through the worker, and the held flows beside it. One worker.
 * Start reading at mr__pass_run().
 */
#include "engine/pass.h"

#include <string.h>

static const uint64_t ns_per_ms = 1000000;

/* ------------------------------------------------------------------ telling control */

/* An event to fill, or NULL (and counted) when control does not keep up. */
static struct worker_event *reserve_event(struct worker *w, enum worker_event_type type,
                                          uint32_t port)
{
    struct worker_event *e = mr__ring_reserve(&w->events);

    if (!e) {
        mr__worker_add(&w->events_lost, 1);
        return NULL;
    }
    e->type = type;
    e->port = port;
    e->relay = 0;
    return e;
}

static void commit_event(struct worker *w)
{
    mr__ring_commit(&w->events);
    w->must_tell = 1;
}

static mr_relay_id relay_id(const struct worker *w, uint32_t port)
{
    return mr__relay_id(port, w->plane.relays.at[port].generation);
}

/* Once a second, kind and relay. What was not told for want of room is tried again. */
static void tell_limit(struct worker *w, uint32_t charged, enum mr_limit_kind kind, unsigned slot,
                       enum worker_event_type type)
{
    uint32_t now_ms = (uint32_t)(w->now_ns / ns_per_ms) | 1;
    uint32_t *told = &w->told[charged].at_ms[slot];
    struct worker_event *e;

    if (*told != 0 && now_ms - *told < 1000)
        return;
    e = reserve_event(w, type, charged);
    if (!e)
        return;
    *told = now_ms;
    e->relay = relay_id(w, charged);
    e->u.limit.kind = kind;
    commit_event(w);
    if (type == WORKER_LIMIT)
        mr__worker_add(&w->limit_hits[kind], 1);
}

static void on_limit(struct worker *w, const struct plane_out *out)
{
    if (out->charged == MR__NONE)
        return;
    switch ((enum mr_verdict)out->verdict) {
    case MR_VERDICT_BANDWIDTH:
        tell_limit(w, out->charged, MR_LIMIT_BANDWIDTH, 0, WORKER_LIMIT);
        break;
    case MR_VERDICT_GLOBAL:
        tell_limit(w, out->charged, MR_LIMIT_GLOBAL, 1, WORKER_LIMIT);
        break;
    case MR_VERDICT_DURATION:
        tell_limit(w, out->charged, MR_LIMIT_DURATION, 2, WORKER_LIMIT);
        break;
    case MR_VERDICT_TRAFFIC:
        tell_limit(w, out->charged, MR_LIMIT_TRAFFIC, 3,
                   out->is_policy ? WORKER_EXHAUSTED : WORKER_LIMIT);
        break;
    default:
        break;
    }
}

/*
 * A relay's own peer speaks to a partner for the first time, or again while a latch speaks for it.
 * He is forwarded like anybody; control hears of it before it hears of whoever knocks at this port
 * later, since both use our ring. What finds no room there is told by the next datagram.
 */
static void on_first_use(struct worker *w, unsigned i)
{
    const struct plane_rx *rx = &w->batch->rx[i];
    struct plane_out *out = &w->batch->out[i];
    int is_fresh = mr__plane_is_fresh(&w->plane, rx->port, &rx->from);
    struct worker_event *e;

    mr__plane_decide_fresh(&w->plane, w->now_ns, rx, out);
    if (!is_fresh) /* another one of this batch was the first */
        return;
    e = reserve_event(w, WORKER_SPOKE, rx->port);
    if (!e)
        return;
    e->relay = relay_id(w, out->charged);
    e->u.spoke.at = relay_id(w, rx->port);
    commit_event(w);
    mr__plane_wear(&w->plane, rx->port, &rx->from);
}

/* A manual relay's datagram goes to the embedder, if he keeps up. */
static void hand_over(struct worker *w, unsigned i)
{
    const struct plane_rx *rx = &w->batch->rx[i];
    struct plane_out *out = &w->batch->out[i];
    struct worker_event *e = reserve_event(w, WORKER_DATAGRAM, rx->port);
    uint32_t bytes = 0;
    uint8_t *data = e ? mr__tray_reserve(&w->tray, rx->size, &bytes) : NULL;

    if (!data) {
        out->verdict = MR_VERDICT_EVENT_FULL;
        return;
    }
    memcpy(data, w->batch->data[i], rx->size);
    e->relay = out->charged == MR__NONE ? 0 : relay_id(w, out->charged);
    e->u.datagram.from = rx->from;
    e->u.datagram.data = data;
    e->u.datagram.size = rx->size;
    e->u.datagram.tray_bytes = bytes;
    commit_event(w);
}

/* ------------------------------------------------------------------ misses */

static int tell_miss(struct worker *w, const struct hold_flow *flow, unsigned i)
{
    const struct plane_rx *rx = &w->batch->rx[i];
    struct worker_event *e = reserve_event(w, WORKER_MISS, rx->port);
    uint32_t peek = rx->size < MR_PEEK_MAX ? rx->size : MR_PEEK_MAX;

    if (!e)
        return 0;
    e->u.miss.flow = mr__hold_id(&w->hold, flow);
    e->u.miss.from = rx->from;
    e->u.miss.since_ns = flow->since_ns;
    e->u.miss.expires_ns = flow->until_ns;
    e->u.miss.reason = flow->verdict;
    e->u.miss.size = rx->size;
    memcpy(e->u.miss.peek, w->batch->data[i], peek);
    memset(e->u.miss.peek + peek, 0, MR_PEEK_MAX - peek);
    commit_event(w);
    return 1;
}

static struct hold_flow *find_flow(struct worker *w, const struct plane_rx *rx)
{
    struct hold_flow *flow = mr__hold_find(&w->hold, rx->port, &rx->from);

    if (flow && flow->state == HOLD_QUIET && flow->until_ns <= w->now_ns) {
        mr__hold_close(&w->hold, flow);
        return NULL;
    }
    return flow;
}

/* A stranger. Asking about him is budgeted, so that a flood of them neither fills the
 * ring nor keeps control busy. NULL: not asked, and the verdict says why. */
static struct hold_flow *ask(struct worker *w, unsigned i)
{
    const struct plane_rx *rx = &w->batch->rx[i];
    struct plane_out *out = &w->batch->out[i];
    struct limit_rate rate = mr__limit_rate(w->hold.limits.events_per_s, 0);
    struct hold_flow *flow;

    if (!mr__limit_take(&w->event_tat_ns, rate, w->now_ns, 1)) {
        out->verdict = MR_VERDICT_EVENT_FULL;
        return NULL;
    }
    flow = mr__hold_open(&w->hold, w->now_ns, rx->port, &rx->from, out->verdict);
    if (!flow) {
        out->verdict = MR_VERDICT_HOLD_FULL;
        return NULL;
    }
    if (!tell_miss(w, flow, i)) {
        mr__hold_close(&w->hold, flow);
        out->verdict = MR_VERDICT_EVENT_FULL;
        return NULL;
    }
    return flow;
}

static void on_miss(struct worker *w, unsigned i)
{
    const struct plane_rx *rx = &w->batch->rx[i];
    struct plane_out *out = &w->batch->out[i];
    struct hold_flow *flow;

    if (!w->wants_misses && out->verdict != MR_VERDICT_NEW_FLOW)
        return;
    flow = find_flow(w, rx);
    if (flow && flow->state == HOLD_QUIET) {
        out->verdict = flow->verdict;
        return;
    }
    if (!flow)
        flow = ask(w, i);
    if (!flow)
        return;
    if (mr__hold_keep(&w->hold, flow, w->batch->data[i], rx->size) < 0)
        out->verdict = MR_VERDICT_HOLD_FULL;
    else
        mr__plane_hold(&w->plane, out);
}

/* ------------------------------------------------------------------ the batch */

static void deal_with(struct worker *w, unsigned i)
{
    struct plane_out *out = &w->batch->out[i];

    if (mr__plane_met_fresh(&w->plane, out))
        on_first_use(w, i);
    if (out->verdict == MR_VERDICT_MANUAL)
        hand_over(w, i);
    else if (out->is_miss && !(w->batch->rx[i].flags & MR__RX_AGAIN))
        on_miss(w, i);
    else if (!out->is_miss)
        on_limit(w, out);
}

/* Sizes of a batch are few different ones: counted here first, then added. */
static void observe_sizes(struct worker *w, unsigned n)
{
    const struct plane_rx *rx = w->batch->rx;
    uint8_t counts[MR_HIST_BUCKETS] = {0};
    uint64_t sum = 0;
    uint32_t used = 0;

    _Static_assert(BATCH_MAX < 256 && MR_HIST_BUCKETS == 32, "a count fits a byte, a bucket a bit");
    for (unsigned i = 0; i < n; i++) {
        if (!(rx[i].flags & MR__RX_AGAIN)) {
            unsigned k = mr__worker_bucket(rx[i].size);

            counts[k]++;
            used |= 1u << k;
            sum += rx[i].size;
        }
    }
    for (; used; used &= used - 1) {
        unsigned k = (unsigned)__builtin_ctz(used);

        mr__worker_add(&w->size_bytes.counts[k], counts[k]);
    }
    mr__worker_add(&w->size_bytes.sum, sum);
}

static void observe_duration(struct worker *w, unsigned n)
{
    uint64_t end_ns = w->config.clock_ns(w->config.clock_user);
    uint64_t each_ns = (end_ns - w->now_ns) / n;

    mr__worker_add(&w->duration_ns.counts[mr__worker_bucket(each_ns)], n);
    mr__worker_add(&w->duration_ns.sum, end_ns - w->now_ns);
    w->now_ns = end_ns;
}

void mr__pass_run(struct worker *w)
{
    struct batch *b = w->batch;
    const unsigned n = b->n;

    if (n == 0)
        return;
    mr__plane_batch(&w->plane, w->now_ns, b->rx, n, b->out);
    for (unsigned i = 0; i < n; i++) {
        if (b->out[i].verdict != MR_VERDICT_FORWARD)
            deal_with(w, i);
    }
    mr__tx_flush(&w->tx, w->config.transport, w->config.sockets, b);
    mr__plane_finish(&w->plane, b->rx, n, b->out);
    observe_sizes(w, n);
    observe_duration(w, n);
    b->n = 0;
    mr__rx_reset(&w->rx);
}

/* Room in the batch for one more that does not come from a socket. */
static uint8_t *append(struct worker *w, const struct mr_addr *from, uint32_t port, uint32_t size,
                       uint32_t flags)
{
    struct batch *b = w->batch;

    if (b->n == BATCH_MAX)
        mr__pass_run(w);
    b->rx[b->n] = (struct plane_rx){.from = *from, .port = port, .size = size, .flags = flags};
    b->data[b->n] = mr__rx_borrow(&w->rx, size);
    return b->data[b->n++];
}

void mr__pass_inject(struct worker *w, const struct command *c)
{
    uint8_t *data;

    mr__pass_replay(w); /* what was held goes first */
    data = append(w, &c->u.inject.from, c->port, c->u.inject.size,
                  mr__plane_is_fresh(&w->plane, c->port, &c->u.inject.from) ? 0 : MR__RX_INJECTED);
    if (c->u.inject.size)
        memcpy(data, c->u.inject.data, c->u.inject.size);
    mr__pass_run(w);
}

/* ------------------------------------------------------------------ held flows */

static void mark(struct worker *w, struct hold_flow *flow)
{
    if (!flow->is_due) {
        flow->is_due = 1;
        w->due_flows++;
    }
}

void mr__pass_mark_flow(struct worker *w, uint32_t port, const struct mr_addr *from)
{
    struct hold_flow *flow = mr__hold_find(&w->hold, port, from);

    if (flow && flow->state == HOLD_PENDING)
        mark(w, flow);
}

void mr__pass_release_flow(struct worker *w, mr_flow_id id)
{
    struct hold_flow *flow = mr__hold_get(&w->hold, id);

    if (!flow)
        return;
    flow->is_released = 1;
    mark(w, flow);
}

static void drop_flow(struct worker *w, struct hold_flow *flow, enum mr_verdict as)
{
    uint32_t n = mr__hold_drop(&w->hold, flow);

    if (n > 0)
        mr__plane_drop_held(&w->plane, as, n);
    if (flow->is_due)
        w->due_flows--;
    flow->is_due = 0;
}

void mr__pass_discard_flow(struct worker *w, const struct command *c)
{
    struct hold_flow *flow = mr__hold_get(&w->hold, c->u.answer.flow);

    if (!flow)
        return;
    drop_flow(w, flow, (enum mr_verdict)c->u.answer.as);
    mr__hold_silence(&w->hold, flow, w->now_ns + c->u.answer.quiet_ns,
                     (enum mr_verdict)c->u.answer.later);
}

void mr__pass_bound_flow(struct worker *w, const struct command *c)
{
    struct hold_flow *flow = mr__hold_get(&w->hold, c->u.hold.flow);

    if (flow)
        mr__hold_bound(&w->hold, flow, c->u.hold.datagrams, c->u.hold.bytes, c->u.hold.time_ns);
}

/* By the walk through all of them: a port is closed once in a long while. */
void mr__pass_forget_port(struct worker *w, uint32_t port)
{
    for (uint32_t i = 0; i < w->hold.unused_flow; i++) {
        struct hold_flow *flow = &w->hold.flows[i];

        if (flow->state == HOLD_FREE || flow->port != port)
            continue;
        if (flow->state == HOLD_PENDING)
            drop_flow(w, flow, (enum mr_verdict)flow->verdict);
        mr__hold_close(&w->hold, flow);
    }
}

/* What mr__plane_batch() would find, without charging anybody. */
static int has_way(const struct plane *p, uint32_t port, const struct mr_addr *from)
{
    if (mr__links_find(&p->links, port, from))
        return 1;
    return p->pairing == MR__PAIRING_OPEN && mr__relays_is_live(&p->relays, port) &&
           mr__relays_find(&p->relays, from) != MR__NONE;
}

/*
 * The whole flow goes at once, so nothing of it can be overtaken: what arrives later is
 * read later. Whatever is still a miss (only a released flow can be) keeps the reason it
 * was found with.
 */
static void replay_flow(struct worker *w, struct hold_flow *flow)
{
    int64_t size;

    mr__plane_unhold(&w->plane, flow->datagrams);
    while ((size = mr__hold_peek(&w->hold, flow)) >= 0) {
        uint8_t *data = append(w, &flow->from, flow->port, (uint32_t)size, MR__RX_AGAIN);

        mr__hold_take(&w->hold, flow, data);
    }
    mr__pass_run(w);
    mr__hold_close(&w->hold, flow);
}

void mr__pass_replay(struct worker *w)
{
    struct hold_flow *flow = mr__hold_oldest(&w->hold);

    if (w->due_flows == 0 && !w->must_rescan)
        return;
    while (flow) {
        struct hold_flow *next = mr__hold_after(&w->hold, flow);
        int is_looked_at = flow->is_due || w->must_rescan;

        flow->is_due = 0;
        if (flow->is_released || (is_looked_at && has_way(&w->plane, flow->port, &flow->from)))
            replay_flow(w, flow);
        flow = next;
    }
    w->due_flows = 0;
    w->must_rescan = 0;
}

void mr__pass_expire(struct worker *w)
{
    struct hold_flow *flow;

    while ((flow = mr__hold_due(&w->hold)) && flow->until_ns <= w->now_ns) {
        drop_flow(w, flow, MR_VERDICT_HOLD_EXPIRED);
        mr__hold_close(&w->hold, flow);
    }
}
