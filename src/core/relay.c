/* SPDX-License-Identifier: MIT */
/*
 * Relays: the array by port and the index by address, kept in step. Start reading
 * at mr__relays_add(); attach() and detach() keep the index.
 */
#include "core/relay.h"

#include <errno.h>
#include <string.h>

_Static_assert(sizeof(struct relay) == 64, "a relay is one cache line");
_Static_assert(sizeof(struct relay_shared) == 64, "what a decision needs of a relay is one line");
_Static_assert(sizeof(struct relay_limits) == 128, "and what is cold two more");
_Static_assert(sizeof(struct relay_counts) == 32, "two relays' counters share a line");
_Static_assert(sizeof(struct address_slot) == 32, "two slots to a line");

enum {
    ACTIVITY_STEPS = 16,             /* activity is stored this often in a timeout, ... */
    ACTIVITY_STEP_MAX_NS = 50000000, /* ... and often enough to end a relay within 100 ms */
};

static size_t array_bytes(uint32_t ports)
{
    return (size_t)ports * sizeof(struct relay);
}

size_t mr__relays_bytes(uint32_t ports)
{
    return array_bytes(ports) + (size_t)mr__hash_slots(ports) * sizeof(struct address_slot);
}

void mr__relays_init(struct relays *r, uint32_t ports, const struct hash_key *key, void *mem)
{
    *r = (struct relays){.at = mem,
                         .slots = (void *)((char *)mem + array_bytes(ports)),
                         .mask = mr__hash_slots(ports) - 1,
                         .ports = ports,
                         .key = *key};
}

/* ---- the index by address ------------------------------------------------------ */

/* The address's slot, or the empty one where it would go. */
static uint64_t probe(const struct relays *r, const struct mr_addr *addr, uint64_t hash)
{
    uint64_t i = hash & r->mask;

    while (r->slots[i].addr.family &&
           (r->slots[i].hash != (uint32_t)hash || !mr__hash_same_addr(&r->slots[i].addr, addr)))
        i = (i + 1) & r->mask;
    return i;
}

/* Backward shift, see mr__links_remove(). The stored half of the hash is enough:
 * there are never more than 2^32 slots. */
static void remove_slot(struct relays *r, uint64_t hole)
{
    uint64_t i = hole;

    for (;;) {
        i = (i + 1) & r->mask;
        if (!r->slots[i].addr.family)
            break;
        if (((i - r->slots[i].hash) & r->mask) < ((i - hole) & r->mask))
            continue;
        r->slots[hole] = r->slots[i];
        hole = i;
    }
    memset(&r->slots[hole], 0, sizeof r->slots[hole]);
}

/* Makes the relay the newest of its address. A linked one stays out of the index: it must not
 * answer for an address that a player may have. */
static void attach(struct relays *r, uint32_t port)
{
    struct relay *relay = &r->at[port];
    uint64_t hash = mr__hash_addr(&r->key, &relay->addr, 0);
    struct address_slot *slot = &r->slots[probe(r, &relay->addr, hash)];

    relay->prev_same = relay->next_same = MR__NONE;
    if (relay->flags & MR__RELAY_LINKED)
        return;
    if (slot->addr.family) {
        relay->next_same = slot->head;
        r->at[slot->head].prev_same = port;
    }
    slot->addr = relay->addr;
    slot->hash = (uint32_t)hash;
    slot->head = port;
}

static void detach(struct relays *r, uint32_t port)
{
    struct relay *relay = &r->at[port];

    if (relay->flags & MR__RELAY_LINKED)
        return;
    if (relay->next_same != MR__NONE)
        r->at[relay->next_same].prev_same = relay->prev_same;
    if (relay->prev_same != MR__NONE) {
        r->at[relay->prev_same].next_same = relay->next_same;
    } else {
        uint64_t i = probe(r, &relay->addr, mr__hash_addr(&r->key, &relay->addr, 0));

        if (relay->next_same != MR__NONE)
            r->slots[i].head = relay->next_same;
        else
            remove_slot(r, i);
    }
}

/* ---- relays ---------------------------------------------------------------------- */

int mr__relays_add(struct relays *r, uint32_t port, uint32_t generation, const struct mr_addr *addr,
                   uint32_t flags, uint32_t egress)
{
    struct relay *relay;

    if (port >= r->ports || !addr->family)
        return -EINVAL;
    relay = &r->at[port];
    if (relay->generation)
        return -EBUSY;
    if (!generation) {
        if (relay->last_generation == UINT32_MAX)
            return -EOVERFLOW;
        generation = relay->last_generation + 1;
    }
    relay->generation = relay->last_generation = generation;
    relay->addr = *addr;
    relay->flags = flags;
    relay->egress = egress;
    relay->pairs = relay->raws = MR__NONE;
    attach(r, port);
    r->live++;
    return 0;
}

int mr__relays_remove(struct relays *r, uint32_t port)
{
    struct relay *relay;

    if (!mr__relays_is_live(r, port))
        return -ENOENT;
    relay = &r->at[port];
    detach(r, port);
    relay->generation = 0;
    memset(&relay->addr, 0, sizeof relay->addr);
    relay->flags = 0;
    r->live--;
    return 0;
}

int mr__relays_move(struct relays *r, uint32_t port, const struct mr_addr *addr)
{
    if (!mr__relays_is_live(r, port))
        return -ENOENT;
    if (!addr->family)
        return -EINVAL;
    detach(r, port);
    r->at[port].addr = *addr;
    attach(r, port);
    return 0;
}

uint32_t mr__relays_find(const struct relays *r, const struct mr_addr *addr)
{
    return mr__relays_find_hashed(r, addr, mr__relays_hash(r, addr));
}

uint32_t mr__relays_get(const struct relays *r, mr_relay_id id)
{
    uint32_t port = mr__relay_id_port(id);

    if (!mr__relays_is_live(r, port) || r->at[port].generation != mr__relay_id_generation(id))
        return MR__NONE;
    return port;
}

/* ---- shared lines ---------------------------------------------------------------- */

static void set(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint64_t end_of(uint64_t now_ns, uint64_t duration_ns)
{
    uint64_t end;

    return __builtin_add_overflow(now_ns, duration_ns, &end) ? UINT64_MAX : end;
}

/* Few relays have a policy's limits: the line of one that has none is neither read nor
 * written, so that its page need not exist. What a former relay left there goes when
 * limits are set first. */
static uint32_t set_policy(struct relay_limits *l, const struct relay_setup *setup, bool is_first)
{
    if (!setup->pps.cost && !setup->max_bytes)
        return 0;
    set(&l->pps_cost, setup->pps.cost);
    set(&l->pps_burst_ns, setup->pps.burst_ns);
    set(&l->max_bytes, setup->max_bytes);
    if (is_first) {
        set(&l->pps_tat_ns, 0);
        set(&l->bytes, 0);
    }
    return MR__SHARED_LIMITS;
}

static void set_parameters(struct relay_shared *s, struct relay_limits *l,
                           const struct relay_setup *setup, bool is_first)
{
    uint64_t step_ns = setup->timeout_ns / ACTIVITY_STEPS;
    uint32_t flags = (setup->is_manual ? MR__SHARED_MANUAL : 0) |
                     (setup->is_linked ? MR__SHARED_LINKED : 0) |
                     (setup->is_unproven ? MR__SHARED_UNPROVEN : 0);

    set(&s->life_end_ns, setup->duration_ns ? end_of(setup->now_ns, setup->duration_ns) : 0);
    set(&s->cost, setup->bandwidth.cost);
    set(&s->burst_ns, setup->bandwidth.burst_ns);
    if (step_ns > ACTIVITY_STEP_MAX_NS)
        step_ns = ACTIVITY_STEP_MAX_NS;
    atomic_store_explicit(&s->activity_step_ns, (uint32_t)step_ns, memory_order_relaxed);
    flags |= set_policy(l, setup, is_first);
    atomic_store_explicit(&s->flags, flags, memory_order_relaxed);
}

void mr__relay_shared_adjust(struct relay_shared *s, struct relay_limits *l,
                             const struct relay_setup *setup)
{
    uint32_t flags = atomic_load_explicit(&s->flags, memory_order_relaxed);

    set_parameters(s, l, setup, !(flags & MR__SHARED_LIMITS));
}

void mr__relay_shared_init(struct relay_shared *s, struct relay_limits *l,
                           const struct relay_setup *setup)
{
    set_parameters(s, l, setup, true);
    set(&s->tat_ns, 0);
    set(&s->activity_ns, setup->now_ns);
    set(&s->lifetime_bytes, 0);
    set(&s->share, 0);
    if (setup->is_unproven)
        mr__proof_begin(&l->proof);
}

/* Control only writes flags, so no other change is lost between the load and the store. */
static void set_flag(struct relay_shared *s, uint32_t flag, bool is_set)
{
    uint32_t flags = atomic_load_explicit(&s->flags, memory_order_relaxed);

    atomic_store_explicit(&s->flags, is_set ? flags | flag : flags & ~flag, memory_order_relaxed);
}

void mr__relay_shared_doubt(struct relay_shared *s, struct relay_limits *l, bool is_first)
{
    if (is_first)
        mr__proof_begin(&l->proof);
    else
        mr__proof_doubt(&l->proof);
    set_flag(s, MR__SHARED_UNPROVEN, true);
}

void mr__relay_shared_trust(struct relay_shared *s)
{
    set_flag(s, MR__SHARED_UNPROVEN, false);
}

void mr__relay_shared_renew(struct relay_shared *s, uint64_t now_ns, uint64_t duration_ns)
{
    set(&s->lifetime_bytes, 0);
    set(&s->life_end_ns, duration_ns ? end_of(now_ns, duration_ns) : 0);
    set(&s->activity_ns, now_ns);
}

uint64_t mr__relay_shared_idle_at(const struct relay_shared *s, uint64_t timeout_ns)
{
    uint64_t activity = atomic_load_explicit(&s->activity_ns, memory_order_relaxed);

    activity = end_of(activity, atomic_load_explicit(&s->activity_step_ns, memory_order_relaxed));
    return end_of(activity, timeout_ns);
}
