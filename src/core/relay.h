/* SPDX-License-Identifier: MIT */
/*
 * Relays and their two indexes. A relay sits AT a port: its index is the port's
 * dense index (0..ports-1, not the UDP number), so the index by port is the array
 * itself; the index by address is a keyed open-addressing table beside it.
 *
 *   struct relay         who is there: one line per port in EVERY replica (each
 *                        worker has one, control has one), changed only by commands
 *   struct relay_shared  what all workers write: limit word, activity; one line per
 *                        port, one array for everybody, relaxed atomics
 *   struct relay_limits  a policy's limits, what an unproven address is owed: cold, read when a
 *                        flag asks for it
 *   struct relay_counts  one worker's counters: single writer, many readers
 *
 * Two relays can have one address after a move. They form a list, the newest
 * registration first: the head is who that address "is" when it sends; free the
 * head and the older one is found again.
 *
 * Pure: memory is handed in. A struct relays belongs to one thread.
 */
#ifndef MR_CORE_RELAY_H
#define MR_CORE_RELAY_H

#include "core/address.h"
#include "core/hash.h"
#include "core/limit.h"
#include "core/proof.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* generation << 32 | (port index + 1); 0 is no relay. A port's generations are
 * never reused, so a stale id matches nobody. */
typedef uint64_t mr_relay_id;

#define MR__NONE UINT32_MAX /* no relay, no port, end of a list */

/* Bits of struct relay.flags. */
enum mr__relay_flag {
    MR__RELAY_MANUAL = 1 << 0, /* what its peer sends goes to the embedder, unlimited and
                                * uncounted but for the verdict (mirrored to the shared line) */
    MR__RELAY_LINKED = 1 << 1, /* reached by raw links only: it is not in the index by address,
                                * has no pairs, and no stranger's business (shared line as well) */
};

/* Bits of struct relay.port_flags: they outlive the port's relays. */
enum mr__port_flag {
    MR__PORT_OPEN = 1 << 0, /* whoever is not linked here is a new flow */
};

struct relay {
    struct mr_addr addr; /* family 0 when free */
    uint32_t generation; /* 0 = free */
    uint32_t last_generation;
    uint32_t flags;
    uint32_t port_flags;
    uint32_t egress;    /* way out of what this peer sends; its own port by default */
    uint32_t next_same; /* older relay of the same address */
    uint32_t prev_same; /* newer one; MR__NONE: we are the head */
    uint32_t pairs;     /* control only: head of the list of pairs (pair.h) */
    uint32_t raws;      /* control only: head of the list of raw links (pair.h) */
    uint32_t reserved;
};

/* Bits of struct relay_shared.flags: what the hot path must know beyond numbers. */
enum mr__shared_flag {
    MR__SHARED_MANUAL = 1 << 0,
    MR__SHARED_LIMITS = 1 << 1,   /* look at struct relay_limits, too */
    MR__SHARED_LINKED = 1 << 2,   /* what it is charged and gets goes to its peer */
    MR__SHARED_UNPROVEN = 1 << 3, /* look at relay_limits.proof, too */
};

/*
 * All relaxed: each word stands for itself and orders nothing. Control writes the
 * parameters before the relay's ADD is sent (the ring's release publishes them)
 * and may change single words later; workers write the first three.
 */
struct relay_shared {
    _Alignas(64) _Atomic uint64_t tat_ns; /* individual bandwidth: GCRA word */
    _Atomic uint64_t activity_ns;      /* last datagram from or to the peer, up to one step late */
    _Atomic uint64_t lifetime_bytes;   /* counted while a lifetime traffic limit is set */
    _Atomic uint64_t share;            /* limit.h: of the global limit */
    _Atomic uint64_t life_end_ns;      /* lifetime duration: passes below it; 0 = none */
    _Atomic uint64_t cost, burst_ns;   /* struct limit_rate of the individual bandwidth */
    _Atomic uint32_t flags;            /* enum mr__shared_flag */
    _Atomic uint32_t activity_step_ns; /* activity is stored when it moved by more than this */
};

/* A policy's `rate{pps}` and `max_bytes` (its bps is merged into the shared line). */
struct relay_limits {
    _Alignas(64) _Atomic uint64_t pps_tat_ns;
    _Atomic uint64_t pps_cost, pps_burst_ns; /* 0 = none */
    _Atomic uint64_t max_bytes; /* 0 = none; passes while bytes + this datagram's < max_bytes */
    _Atomic uint64_t bytes;
    struct proof proof; /* a line of its own */
};

/* One replica's counters of a relay. The worker adds (relaxed load and store, no
 * lock: it is the only writer); anybody reads relaxed. */
struct relay_counts {
    _Alignas(32) _Atomic uint64_t packets_in; /* its peer sent and we took */
    _Atomic uint64_t bytes_in;
    _Atomic uint64_t packets_out; /* went out to its peer */
    _Atomic uint64_t bytes_out;
};

struct relay_sum {
    uint64_t packets_in, bytes_in, packets_out, bytes_out, drops;
};

struct address_slot {
    struct mr_addr addr; /* family 0 = empty */
    uint32_t head;       /* newest relay of this address */
    uint32_t hash;       /* low half, so that deletion need not hash again */
};

struct relays {
    struct relay *at; /* [ports] */
    struct address_slot *slots;
    uint64_t mask;
    uint32_t ports;
    uint32_t live;
    struct hash_key key;
};

static inline mr_relay_id mr__relay_id(uint32_t port, uint32_t generation)
{
    return generation ? (uint64_t)generation << 32 | (port + 1) : 0;
}

static inline uint32_t mr__relay_id_port(mr_relay_id id)
{
    return (uint32_t)id - 1; /* MR__NONE for 0 */
}

static inline uint32_t mr__relay_id_generation(mr_relay_id id)
{
    return (uint32_t)(id >> 32);
}

/* Memory for `ports` ports: zeroed, aligned to 64, alive as long as *r. */
size_t mr__relays_bytes(uint32_t ports);
void mr__relays_init(struct relays *r, uint32_t ports, const struct hash_key *key, void *mem);

/* Puts a relay at a free port, as its address's newest. `generation` 0 takes the
 * port's next one (control); a replica is told which.
 * -EINVAL port out of range, or addr has no family   -EBUSY the port has a relay
 * -EOVERFLOW the port has used up its generations */
int mr__relays_add(struct relays *r, uint32_t port, uint32_t generation, const struct mr_addr *addr,
                   uint32_t flags, uint32_t egress);
/* Frees the port. -ENOENT when nothing is there. */
int mr__relays_remove(struct relays *r, uint32_t port);
/* Gives the relay another address (or the same) and makes it that address's
 * newest. -ENOENT, -EINVAL */
int mr__relays_move(struct relays *r, uint32_t port, const struct mr_addr *addr);

/* The newest relay of an address that is not MR__RELAY_LINKED, or MR__NONE. addr must be
 * canonical. */
uint32_t mr__relays_find(const struct relays *r, const struct mr_addr *addr);
/* mr__relays_find() in two steps, so that other work fits between the fetch of the slot
 * and its use. */
static inline uint64_t mr__relays_hash(const struct relays *r, const struct mr_addr *addr)
{
    return mr__hash_addr(&r->key, addr, 0);
}

static inline uint32_t mr__relays_find_hashed(const struct relays *r, const struct mr_addr *addr,
                                              uint64_t hash)
{
    for (uint64_t i = hash & r->mask;; i = (i + 1) & r->mask) {
        const struct address_slot *slot = &r->slots[i];

        if (!slot->addr.family)
            return MR__NONE;
        if (mr__hash_same_addr(&slot->addr, addr))
            return slot->head;
    }
}

/* The port of a live id, or MR__NONE. */
uint32_t mr__relays_get(const struct relays *r, mr_relay_id id);

static inline bool mr__relays_is_live(const struct relays *r, uint32_t port)
{
    return port < r->ports && r->at[port].generation != 0;
}

/* What a relay's shared lines are set to when it is made. */
struct relay_setup {
    uint64_t now_ns;
    uint64_t timeout_ns;         /* idle timeout; decides the activity's step */
    uint64_t duration_ns;        /* lifetime; 0 = none */
    struct limit_rate bandwidth; /* the smaller of setting and policy */
    struct limit_rate pps;
    uint64_t max_bytes;
    bool is_manual, is_linked, is_unproven;
};

/* By control, before the relay's ADD is sent; no worker may know the port. */
void mr__relay_shared_init(struct relay_shared *s, struct relay_limits *l,
                           const struct relay_setup *setup);
/* Other limits for a relay that workers know; what it has used up stays. now_ns of the
 * setup is when its lifetime began. */
void mr__relay_shared_adjust(struct relay_shared *s, struct relay_limits *l,
                             const struct relay_setup *setup);
/* Whether its address is unproven. is_first: it is for the first time of this relay. */
void mr__relay_shared_doubt(struct relay_shared *s, struct relay_limits *l, bool is_first);
void mr__relay_shared_trust(struct relay_shared *s);
/* connect-relay: lifetimes start again and the relay was active now. A policy's
 * max_bytes goes on. */
void mr__relay_shared_renew(struct relay_shared *s, uint64_t now_ns, uint64_t duration_ns);
/* Not before this moment is the relay idle for timeout_ns: stored activity plus
 * one step of what may not be stored yet. */
uint64_t mr__relay_shared_idle_at(const struct relay_shared *s, uint64_t timeout_ns);

#endif
