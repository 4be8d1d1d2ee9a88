/* SPDX-License-Identifier: MIT */
/*
 * The hot path. A batch goes through three stages, so that the cache lines of many
 * datagrams are fetched at the same time instead of one after the other:
 *
 *     1  hash all        -> prefetch the links' slots
 *     2  find all links  -> prefetch the relays' shared lines and counters
 *        (or senders: a miss waits for the index by address, too)
 *     3  decide in order -> limits, activity, verdict
 *
 * Belongs to one worker's thread; the shared lines belong to all (relaxed atomics,
 * see relay.h). Start reading at mr__plane_batch().
 */
#include "core/plane.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* decide_many() and decide_one() are the callers that matter; calls inside them would
 * cost a third of the decision. */
#define HOT   __attribute__((always_inline)) static inline
#define APART __attribute__((noinline)) static

enum {
    PORTS_MAX = 1 << 24, /* far above any machine's; keeps all sizes below 2^40 */
    LINKS_MAX = 1 << 29,
    DATAGRAM_MAX_BYTES = 65536,
};

/* ---- memory ---------------------------------------------------------------------- */

static size_t counts_bytes(uint32_t ports)
{
    return mr__hash_align(((size_t)ports + 1) * sizeof(struct relay_counts));
}

static size_t drops_bytes(uint32_t ports)
{
    return mr__hash_align(((size_t)ports + 1) * sizeof(_Atomic uint64_t));
}

size_t mr__plane_bytes(const struct plane_config *config)
{
    if (config->ports == 0 || config->ports > PORTS_MAX || config->max_links > LINKS_MAX ||
        config->max_own > LINKS_MAX)
        return 0;
    return mr__relays_bytes(config->ports) + mr__links_bytes(config->max_links) +
           mr__own_bytes(config->max_own) + counts_bytes(config->ports) +
           drops_bytes(config->ports);
}

/*
 * The line that fresh links are charged to is a manual relay's, so that they leave the hot path
 * where it looks for those already: a test of their own would cost every datagram, and they are
 * used once.
 */
static void init_fresh(struct relay_shared *line)
{
    atomic_store_explicit(&line->activity_step_ns, UINT32_MAX, memory_order_relaxed);
    atomic_store_explicit(&line->flags, MR__SHARED_MANUAL, memory_order_relaxed);
}

void mr__plane_init(struct plane *p, const struct plane_config *config, void *mem)
{
    char *m = mem;

    assert(mr__plane_bytes(config) > 0);
    memset(p, 0, sizeof *p);
    p->pairing = config->pairing;
    p->ports = config->ports;
    p->shared = config->shared;
    p->limits = config->limits;
    p->global = config->global;
    mr__relays_init(&p->relays, config->ports, &config->key, m);
    m += mr__relays_bytes(config->ports);
    mr__links_init(&p->links, config->max_links, &config->key, m);
    m += mr__links_bytes(config->max_links);
    mr__own_init(&p->own, config->max_own, &config->key, m);
    m += mr__own_bytes(config->max_own);
    p->counts = (void *)m;
    m += counts_bytes(config->ports);
    p->drops = (void *)m;
    /* "Nobody" has a line so that the hot path needs no branch; its activity means
     * nothing and must not be written by every worker all the time. */
    atomic_store_explicit(&p->shared[config->ports].activity_step_ns, UINT32_MAX,
                          memory_order_relaxed);
    init_fresh(&p->shared[config->ports + 1]);
}

/* ---- words ----------------------------------------------------------------------- */

static inline uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* Of a word that only this thread writes: a load and a store instead of a locked
 * addition, ten times cheaper. */
static inline void add(_Atomic uint64_t *word, uint64_t n)
{
    atomic_store_explicit(word, get(word) + n, memory_order_relaxed);
}

/* Stored only when it moved by a step, or every datagram would take the line from
 * the other workers. Signed, since another worker's clock reading may be newer. */
HOT void touch(struct relay_shared *s, uint64_t now_ns)
{
    int64_t moved_ns = (int64_t)(now_ns - get(&s->activity_ns));

    if (moved_ns > (int64_t)atomic_load_explicit(&s->activity_step_ns, memory_order_relaxed))
        atomic_store_explicit(&s->activity_ns, now_ns, memory_order_relaxed);
}

/* In the place of a verdict: the quick way through a decision leaves what is rare to decide_rare(),
 * which begins anew; nothing was charged. */
#define RARE ((enum mr_verdict)(MR_VERDICT_COUNT + 1))

/* ---- limits ------------------------------------------------------------------------ */

/* What one batch reads once. In a struct of its own that nobody else points at, so
 * that the compiler need not load it again after each counter it stores. */
struct moment {
    uint64_t now_ns;
    uint64_t lifetime_bytes;
    uint64_t window;
    struct relay_shared *shared;
    uint32_t nobody;
    bool has_global;
};

/* A policy's limits: check, or charge when all other checks have passed. */
APART enum mr_verdict check_policy(const struct relay_limits *l, uint64_t now_ns, uint32_t size)
{
    struct limit_rate pps = {get(&l->pps_cost), get(&l->pps_burst_ns)};
    uint64_t max_bytes = get(&l->max_bytes);

    if (!mr__limit_fits(&l->pps_tat_ns, pps, now_ns, 1))
        return MR_VERDICT_BANDWIDTH;
    if (max_bytes && get(&l->bytes) + size >= max_bytes)
        return MR_VERDICT_TRAFFIC;
    return MR_VERDICT_FORWARD;
}

APART void charge_policy(struct relay_limits *l, uint64_t now_ns, uint32_t size)
{
    struct limit_rate pps = {get(&l->pps_cost), get(&l->pps_burst_ns)};

    mr__limit_force(&l->pps_tat_ns, pps, now_ns, 1);
    atomic_fetch_add_explicit(&l->bytes, size, memory_order_relaxed);
}

enum global_pass { GLOBAL_REFUSED, GLOBAL_BUDGET, GLOBAL_SHARE };

/* What the plane has at hand does not do: there is more, or the sender has something left of his
 * share, or the limit refuses. */
APART enum global_pass ask_global(struct plane *p, uint64_t now_ns, const struct relay_shared *s,
                                  uint32_t size)
{
    if (mr__limit_budget_fits(&p->budget, p->global, now_ns, size))
        return GLOBAL_BUDGET;
    return mr__limit_share_fits(&s->share, now_ns) ? GLOBAL_SHARE : GLOBAL_REFUSED;
}

/*
 * All checks in the order of the wire contract, then all charges: a datagram that is
 * refused for its last reason has cost nothing. Between a check and its charge
 * another worker may charge the same relay; the individual bandwidth is then checked
 * again (it is charged first, so that nothing need be given back), the others let
 * that one datagram through.
 */
HOT enum mr_verdict pass_limits(struct plane *p, struct moment m, struct plane_out *out,
                                uint32_t flags, uint32_t size, const bool is_rare)
{
    struct relay_shared *s = &m.shared[out->charged];
    struct limit_rate rate = {get(&s->cost), get(&s->burst_ns)};
    uint64_t life_end = get(&s->life_end_ns), tat = get(&s->tat_ns), next = 0;
    enum global_pass pass = GLOBAL_BUDGET;

    if (rate.cost) {
        next = mr__limit_after(tat, m.now_ns, rate.cost, size);
        if (!mr__limit_is_within(next, m.now_ns, rate))
            return MR_VERDICT_BANDWIDTH;
    }
    if (m.has_global && p->budget.left_bytes < size) {
        if (!is_rare && !mr__limit_budget_fits(&p->budget, p->global, m.now_ns, size))
            return RARE;
        if (is_rare)
            pass = ask_global(p, m.now_ns, s, size);
        if (pass == GLOBAL_REFUSED)
            return MR_VERDICT_GLOBAL;
    }
    if (life_end && m.now_ns >= life_end)
        return MR_VERDICT_DURATION;
    if (m.lifetime_bytes && get(&s->lifetime_bytes) + size >= m.lifetime_bytes)
        return MR_VERDICT_TRAFFIC;
    if (flags & MR__SHARED_LIMITS) {
        enum mr_verdict v = check_policy(&p->limits[out->charged], m.now_ns, size);

        out->is_policy = v != MR_VERDICT_FORWARD;
        if (v != MR_VERDICT_FORWARD)
            return v;
    }

    if (rate.cost &&
        !atomic_compare_exchange_strong_explicit(&s->tat_ns, &tat, next, memory_order_relaxed,
                                                 memory_order_relaxed) &&
        !mr__limit_take(&s->tat_ns, rate, m.now_ns, size))
        return MR_VERDICT_BANDWIDTH;
    if (pass == GLOBAL_SHARE)
        mr__limit_share_charge(p->global, &s->share, m.now_ns, size);
    else if (m.has_global)
        p->budget.left_bytes -= size;
    if (m.lifetime_bytes)
        atomic_fetch_add_explicit(&s->lifetime_bytes, size, memory_order_relaxed);
    if (flags & MR__SHARED_LIMITS)
        charge_policy(&p->limits[out->charged], m.now_ns, size);
    return MR_VERDICT_FORWARD;
}

/* ---- decisions --------------------------------------------------------------------- */

static struct moment begin(struct plane *p, uint64_t now_ns);

/* The same as below with whatever is asked about few datagrams: addresses that nobody vouches for,
 * the first of a sender in a second, a global limit that is short. */
APART enum mr_verdict decide_rare(struct plane *p, uint64_t now_ns, const struct plane_rx *rx,
                                  struct plane_out *out)
{
    const struct moment m = begin(p, now_ns);
    struct relay_shared *s = &m.shared[out->charged], *to = &m.shared[out->target];
    uint32_t flags = atomic_load_explicit(&s->flags, memory_order_relaxed);
    bool is_doubted = atomic_load_explicit(&to->flags, memory_order_relaxed) & MR__SHARED_UNPROVEN;
    enum mr_verdict v;

    if (!mr__limit_is_met(&s->share, m.window))
        mr__limit_meet(p->global, &s->share, m.now_ns);
    if ((flags & MR__SHARED_UNPROVEN) && !(rx->flags & MR__RX_INJECTED))
        mr__proof_sent(&p->limits[out->charged].proof, m.now_ns, rx->size);
    if (is_doubted && !mr__proof_fits(&p->limits[out->target].proof, m.now_ns, rx->size))
        return MR_VERDICT_UNPROVEN;
    v = pass_limits(p, m, out, flags, rx->size, true);
    if (v == MR_VERDICT_FORWARD) {
        touch(to, m.now_ns);
        if (is_doubted)
            mr__proof_charge(&p->limits[out->target].proof, m.now_ns, rx->size);
    }
    return v;
}

/* out has a way, a sender and a receiver. */
HOT enum mr_verdict decide_linked(struct plane *p, struct moment m, const struct plane_rx *rx,
                                  struct plane_out *out)
{
    struct relay_shared *s = &m.shared[out->charged], *to = &m.shared[out->target];
    uint32_t flags = atomic_load_explicit(&s->flags, memory_order_relaxed);
    uint32_t both = flags | atomic_load_explicit(&to->flags, memory_order_relaxed);
    enum mr_verdict v = RARE;

    /* Also when it is refused: a peer that is held back is there. */
    touch(s, m.now_ns);
    if ((flags & MR__SHARED_MANUAL) && !(rx->flags & MR__RX_INJECTED))
        return MR_VERDICT_MANUAL;
    if (!(both & MR__SHARED_UNPROVEN) && mr__limit_is_met(&s->share, m.window))
        v = pass_limits(p, m, out, flags, rx->size, false);
    if (v == MR_VERDICT_FORWARD)
        touch(to, m.now_ns);
    return v == RARE ? decide_rare(p, m.now_ns, rx, out) : v;
}

/*
 * No link, but find_sender() has been here. A known sender's address was compared with our own when
 * it entered, so only a stranger's is here.
 */
APART enum mr_verdict decide_miss(struct plane *p, struct moment m, const struct plane_rx *rx,
                                  struct plane_out *out)
{
    const struct relay *port = &p->relays.at[rx->port], *sender;

    if (out->charged == m.nobody && mr__own_contains(&p->own, &rx->from)) {
        out->is_miss = 0;
        return MR_VERDICT_OWN_ADDRESS;
    }
    if (port->port_flags & MR__PORT_OPEN)
        return MR_VERDICT_NEW_FLOW;
    if (!port->generation)
        return MR_VERDICT_UNKNOWN_TARGET;
    /* A linked relay's port is its own flow's: nobody else is known there, whoever he is. */
    if (out->charged == m.nobody || (port->flags & MR__RELAY_LINKED))
        return MR_VERDICT_UNKNOWN_SENDER;

    sender = &p->relays.at[out->charged];
    /* A manual relay's peer needs no pair to speak at its own port. */
    if (p->pairing == MR__PAIRING_PAIRED &&
        !(out->charged == rx->port && (sender->flags & MR__RELAY_MANUAL) &&
          !(rx->flags & MR__RX_INJECTED)))
        return MR_VERDICT_NOT_PAIRED;
    out->is_miss = 0;
    out->to = port->addr;
    out->egress = sender->egress;
    return decide_linked(p, m, rx, out);
}

/* Asked only about what matched nothing: a flow that is known costs no look at the nets, and
 * whoever blocks a peer ends his relay. A player who sends to a port that is none of his has sent
 * to us all the same. */
APART enum mr_verdict finish_miss(const struct plane *p, struct moment m, const struct plane_rx *rx,
                                  struct plane_out *out, enum mr_verdict found)
{
    uint32_t flags = atomic_load_explicit(&m.shared[out->charged].flags, memory_order_relaxed);

    if ((flags & MR__SHARED_UNPROVEN) && !(rx->flags & MR__RX_INJECTED))
        mr__proof_sent(&p->limits[out->charged].proof, m.now_ns, rx->size);
    if (!p->blocked || mr_nets_find(p->blocked, &rx->from) == (uint32_t)MR_NETS_NONE)
        return found;
    out->is_miss = 0;
    return MR_VERDICT_BLOCKED;
}

/* ---- the three stages ---------------------------------------------------------------- */

HOT void prefetch_relay(const struct plane *p, uint32_t index)
{
    __builtin_prefetch(&p->shared[index], 1);
    __builtin_prefetch(&p->counts[index], 1);
}

static inline uint64_t home_of(const struct plane *p, const struct plane_rx *rx)
{
    return mr__hash_addr(&p->links.key, &rx->from, rx->port) & p->links.mask;
}

/* The datagram's link into out; false, and out is a miss, when it has none. */
HOT bool find_link(const struct plane *p, const struct plane_rx *rx, uint64_t slot,
                   struct plane_out *out)
{
    const struct link *l = &p->links.slots[slot];

    out->verdict = MR_VERDICT_FORWARD;
    out->is_miss = out->is_policy = 0;
    while (l->from.family && (l->port != rx->port || !mr__hash_same_addr(&l->from, &rx->from))) {
        slot = (slot + 1) & p->links.mask;
        l = &p->links.slots[slot];
    }
    if (!l->from.family) {
        out->to = (struct mr_addr){0};
        out->egress = MR__NONE;
        out->is_miss = 1;
        return false;
    }
    out->to = l->to;
    out->egress = l->egress;
    out->charged = l->charged;
    out->target = l->target;
    return true;
}

/* Who a datagram without a link is from, and for whom. */
HOT void find_sender(const struct plane *p, const struct plane_rx *rx, uint64_t hash,
                     struct plane_out *out)
{
    uint32_t sender = mr__relays_find_hashed(&p->relays, &rx->from, hash);

    out->charged = sender == MR__NONE ? p->ports : sender;
    out->target = p->relays.at[rx->port].generation ? rx->port : p->ports;
}

/* With links found, or senders. */
HOT void decide(struct plane *p, struct moment m, const struct plane_rx *rx, struct plane_out *out)
{
    enum mr_verdict v;

    if (rx->flags & MR__RX_TRUNCATED) {
        v = MR_VERDICT_TRUNCATED;
        out->is_miss = 0;
    } else if (!out->is_miss) {
        v = decide_linked(p, m, rx, out);
    } else {
        v = decide_miss(p, m, rx, out);
        if (out->is_miss)
            v = finish_miss(p, m, rx, out, v);
    }
    out->verdict = (uint16_t)v;
    if (out->charged == m.nobody)
        out->charged = MR__NONE;
    if (out->target == m.nobody)
        out->target = MR__NONE;
}

static struct moment begin(struct plane *p, uint64_t now_ns)
{
    struct limit_global *g = p->global;
    uint64_t most = get(&g->slice_bytes) + DATAGRAM_MAX_BYTES;

    /* Slices of a rate that was lowered since. */
    if (p->budget.left_bytes > most)
        p->budget.left_bytes = most;
    return (struct moment){.now_ns = now_ns,
                           .lifetime_bytes = get(&g->lifetime_bytes),
                           .window = mr__limit_window(now_ns),
                           .shared = p->shared,
                           .nobody = p->ports,
                           .has_global = get(&g->cost) != 0};
}

/* Stages 2 and 3 of those without a link: they have one fetch more to wait for. */
APART void find_senders(const struct plane *p, const struct plane_rx *rx, uint32_t n,
                        const uint64_t *hashes, struct plane_out *out)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!out[i].is_miss)
            continue;
        find_sender(p, &rx[i], hashes[i], &out[i]);
        if (out[i].charged < p->ports)
            __builtin_prefetch(&p->relays.at[out[i].charged]);
        prefetch_relay(p, out[i].charged);
        prefetch_relay(p, out[i].target);
    }
}

APART void decide_many(struct plane *p, const struct moment *moment, const struct plane_rx *rx,
                       uint32_t n, struct plane_out *out)
{
    const struct moment m = *moment;
    uint64_t hashes[MR__PLANE_BATCH_MAX], packets = 0, bytes = 0;
    uint32_t misses = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t is_new = !(rx[i].flags & MR__RX_AGAIN);

        hashes[i] = home_of(p, &rx[i]);
        __builtin_prefetch(&p->links.slots[hashes[i]]);
        packets += is_new;
        bytes += is_new * rx[i].size;
    }
    add(&p->totals.received_packets, packets);
    add(&p->totals.received_bytes, bytes);
    for (uint32_t i = 0; i < n; i++) {
        if (find_link(p, &rx[i], hashes[i], &out[i])) {
            prefetch_relay(p, out[i].charged);
            prefetch_relay(p, out[i].target);
        } else {
            hashes[i] = mr__relays_hash(&p->relays, &rx[i].from);
            __builtin_prefetch(&p->relays.slots[hashes[i] & p->relays.mask]);
            __builtin_prefetch(&p->relays.at[rx[i].port]);
            misses++;
        }
    }
    if (misses)
        find_senders(p, rx, n, hashes, out);
    for (uint32_t i = 0; i < n; i++)
        decide(p, m, &rx[i], &out[i]);
}

/* Sparse traffic comes one by one; there is nothing to overlap, and the stages would
 * cost half as much again. */
APART void decide_one(struct plane *p, const struct moment *m, const struct plane_rx *rx,
                      struct plane_out *out)
{
    if (!(rx->flags & MR__RX_AGAIN)) {
        add(&p->totals.received_packets, 1);
        add(&p->totals.received_bytes, rx->size);
    }
    if (!find_link(p, rx, home_of(p, rx), out))
        find_sender(p, rx, mr__relays_hash(&p->relays, &rx->from), out);
    decide(p, *m, rx, out);
}

void mr__plane_batch(struct plane *p, uint64_t now_ns, const struct plane_rx *rx, uint32_t n,
                     struct plane_out *out)
{
    const struct moment m = begin(p, now_ns);

    assert(n <= MR__PLANE_BATCH_MAX);
    if (n == 1)
        decide_one(p, &m, rx, out);
    else
        decide_many(p, &m, rx, n, out);
}

/* ---- counting ---------------------------------------------------------------------- */

/* MR__NONE is counted on the line of "nobody". */
static inline uint32_t line_of(uint32_t ports, uint32_t index)
{
    return index < ports ? index : ports;
}

/* What is not forwarded: out of the way of what is. */
APART void count_other(struct plane *p, const struct plane_out *out)
{
    if (out->verdict >= MR_VERDICT_COUNT) /* held */
        return;
    add(&p->totals.verdicts[out->verdict], 1);
    if (out->verdict != MR_VERDICT_MANUAL)
        add(&p->drops[line_of(p->ports, out->charged)], 1);
}

/* Charged to whom it goes: a linked relay pays for both directions, and this one was not sent by
 * its peer. (An echo's was.) */
static inline bool is_return(const struct plane *p, const struct plane_out *out)
{
    return out->charged == out->target && out->charged < p->ports &&
           (atomic_load_explicit(&p->shared[out->charged].flags, memory_order_relaxed) &
            MR__SHARED_LINKED);
}

void mr__plane_finish(struct plane *p, const struct plane_rx *rx, uint32_t n,
                      const struct plane_out *out)
{
    struct relay_counts *const counts = p->counts;
    const uint32_t ports = p->ports;
    uint64_t forwarded = 0, bytes = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct relay_counts *from, *to;
        uint64_t size = rx[i].size;

        if (out[i].verdict != MR_VERDICT_FORWARD) {
            count_other(p, &out[i]);
            continue;
        }
        from = &counts[line_of(ports, out[i].charged)];
        to = &counts[line_of(ports, out[i].target)];
        if (!is_return(p, &out[i])) {
            add(&from->packets_in, 1);
            add(&from->bytes_in, size);
        }
        add(&to->packets_out, 1);
        add(&to->bytes_out, size);
        forwarded++;
        bytes += size;
    }
    add(&p->totals.verdicts[MR_VERDICT_FORWARD], forwarded);
    add(&p->totals.sent_bytes, bytes);
}

void mr__plane_hold(struct plane *p, struct plane_out *out)
{
    assert(out->is_miss);
    out->verdict = MR__PLANE_HELD;
    add(&p->totals.held, 1);
}

void mr__plane_unhold(struct plane *p, uint32_t n)
{
    assert(get(&p->totals.held) >= n);
    add(&p->totals.held, -(uint64_t)n);
}

void mr__plane_drop_held(struct plane *p, enum mr_verdict verdict, uint32_t n)
{
    mr__plane_unhold(p, n);
    add(&p->totals.verdicts[verdict], n);
}

void mr__plane_sum(const struct plane *p, uint32_t port, struct relay_sum *sum)
{
    const struct relay_counts *c = &p->counts[port];

    sum->packets_in += get(&c->packets_in);
    sum->bytes_in += get(&c->bytes_in);
    sum->packets_out += get(&c->packets_out);
    sum->bytes_out += get(&c->bytes_out);
    sum->drops += get(&p->drops[port]);
}

/* ---- commands ---------------------------------------------------------------------- */

/* Written only where something is: a replica that never saw the relay's traffic then
 * needs no memory for its counters. */
static void clear(_Atomic uint64_t *word)
{
    if (get(word))
        atomic_store_explicit(word, 0, memory_order_relaxed);
}

int mr__plane_add(struct plane *p, uint32_t port, uint32_t generation, const struct mr_addr *addr,
                  uint32_t flags, uint32_t egress)
{
    int rc = mr__relays_add(&p->relays, port, generation, addr, flags, egress);

    if (rc == 0) {
        struct relay_counts *c = &p->counts[port];

        clear(&c->packets_in);
        clear(&c->bytes_in);
        clear(&c->packets_out);
        clear(&c->bytes_out);
        clear(&p->drops[port]);
    }
    return rc;
}

int mr__plane_move(struct plane *p, uint32_t port, const struct mr_addr *addr)
{
    return mr__relays_move(&p->relays, port, addr);
}

int mr__plane_remove(struct plane *p, uint32_t port)
{
    return mr__relays_remove(&p->relays, port);
}

int mr__plane_link(struct plane *p, const struct link *link)
{
    struct link l = *link;

    assert(l.port < p->ports);
    l.charged = l.charged == MR__FRESH ? p->ports + 1 : line_of(p->ports, l.charged);
    l.target = line_of(p->ports, l.target);
    return mr__links_set(&p->links, &l);
}

static void replace(struct plane *p, const struct link *link)
{
    if (mr__links_set(&p->links, link) < 0)
        assert(!"the link is there");
}

bool mr__plane_is_fresh(const struct plane *p, uint32_t port, const struct mr_addr *from)
{
    const struct link *found = mr__links_find(&p->links, port, from);

    return found && found->charged == p->ports + 1;
}

void mr__plane_wear(struct plane *p, uint32_t port, const struct mr_addr *from)
{
    const struct link *found = mr__links_find(&p->links, port, from);
    struct link link;

    if (!found || found->charged != p->ports + 1)
        return;
    link = *found;
    link.charged = link.egress;
    link.egress = p->relays.at[link.charged].egress;
    replace(p, &link);
}

/* Through the link as it will be, which another copy of the decision would not be worth: a fresh
 * link is used once. */
void mr__plane_decide_fresh(struct plane *p, uint64_t now_ns, const struct plane_rx *rx,
                            struct plane_out *out)
{
    const struct link *found = mr__links_find(&p->links, rx->port, &rx->from);
    struct plane_rx again = *rx;
    struct link before;

    assert(found && mr__plane_met_fresh(p, out));
    before = *found;
    again.flags |= MR__RX_AGAIN; /* counted as received already */
    mr__plane_wear(p, rx->port, &rx->from);
    mr__plane_batch(p, now_ns, &again, 1, out);
    replace(p, &before);
}

int mr__plane_unlink(struct plane *p, uint32_t port, const struct mr_addr *from)
{
    return mr__links_remove(&p->links, port, from);
}
