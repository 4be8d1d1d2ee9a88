/* SPDX-License-Identifier: MIT */
/*
 * The decision: datagrams' headers and the time in, verdicts and ways out. One
 * plane per worker, over its replica of the tables; no system call, no
 * allocation, no lock. A worker's pass is
 *
 *     receive -> mr__plane_batch() -> hold misses, send FORWARDs
 *             -> write what became of them into out[].verdict -> mr__plane_finish()
 *
 * mr__plane_batch() counts what was received; mr__plane_finish() counts verdicts
 * and the relays' datagrams. So at rest (between passes)
 *     received == sum of verdicts + held.
 * Nothing counts FORWARD before it is sent, and no counter ever goes back.
 *
 * Start reading at mr__plane_batch().
 */
#ifndef MR_CORE_PLANE_H
#define MR_CORE_PLANE_H

#include "core/address.h"
#include "core/link.h"
#include "core/nets.h"
#include "core/own.h"
#include "core/relay.h"
#include "core/verdict.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Datagrams of one call. Bounds the lines that are prefetched at once (5 each). */
enum { MR__PLANE_BATCH_MAX = 64 };

enum mr__pairing {
    MR__PAIRING_PAIRED, /* links only */
    MR__PAIRING_OPEN,   /* without a link: known sender, known target */
};

/* Bits of struct plane_rx.flags. */
enum mr__rx_flag {
    MR__RX_TRUNCATED = 1 << 0,
    MR__RX_INJECTED = 1 << 1, /* by the embedder: forwarded though its relay is manual */
    MR__RX_AGAIN = 1 << 2,    /* was held: already counted as received */
};

struct plane_rx {
    struct mr_addr from; /* canonical */
    uint32_t port;       /* local port index, < ports */
    uint32_t size;       /* payload bytes */
    uint32_t flags;
};

/* In out[].verdict: somebody else will finish this one (mr__plane_hold()). */
enum { MR__PLANE_HELD = MR_VERDICT_COUNT };

/* In struct link.charged: the link is fresh, its first use shall be noticed. Its .egress is then
 * the relay that pays, which is not manual and whose own way out is the link's. */
#define MR__FRESH (UINT32_MAX - 1)

/* Shared lines behind the relays' own: "nobody", and the one that all fresh links are charged to.
 */
enum { MR__SHARED_EXTRA = 2 };

struct plane_out {
    struct mr_addr to; /* FORWARD, MANUAL: the destination */
    uint32_t egress;   /* FORWARD, MANUAL: way out */
    uint32_t charged;  /* sender's relay, MR__NONE if it has none (also for drops) */
    uint32_t target;   /* receiver's relay (for misses: the port's), or MR__NONE */
    uint16_t verdict;  /* enum mr_verdict, or MR__PLANE_HELD */
    uint8_t is_miss;   /* no link: verdict is the reason; a policy may admit it */
    uint8_t is_policy; /* BANDWIDTH or TRAFFIC by struct relay_limits */
};

/* One plane's totals. Single writer, relaxed. */
struct plane_totals {
    _Atomic uint64_t received_packets;
    _Atomic uint64_t received_bytes;
    _Atomic uint64_t sent_bytes; /* of FORWARD */
    _Atomic uint64_t held;       /* gauge: received, verdict still open */
    _Atomic uint64_t verdicts[MR_VERDICT_COUNT];
};

struct plane_config {
    uint32_t ports;
    uint32_t max_links;
    uint32_t max_own;
    enum mr__pairing pairing;
    struct hash_key key;
    /* Shared by all planes and control; zeroed by the caller, alive as long as the plane. */
    struct relay_shared *shared; /* [ports + MR__SHARED_EXTRA] */
    struct relay_limits *limits; /* [ports + 1] */
    struct limit_global *global;
};

struct plane {
    struct relays relays;
    struct links links;
    struct own own;
    enum mr__pairing pairing;
    uint32_t ports;
    /* Whose misses are BLOCKED; NULL: nobody's. The caller's, constant while it is here. */
    const struct mr_nets *blocked;
    struct relay_shared *shared;
    struct relay_limits *limits;
    struct limit_global *global;
    struct limit_budget budget;
    struct relay_counts *counts; /* [ports + 1] */
    _Atomic uint64_t *drops;     /* [ports + 1], cold: drops of what this relay's peer sent */
    struct plane_totals totals;
};

/* Memory of one plane: zeroed, aligned to 64 (mr__map() gives such), alive as long
 * as *p. 0 when the configuration is impossible (no ports, or it overflows). */
size_t mr__plane_bytes(const struct plane_config *config);
void mr__plane_init(struct plane *p, const struct plane_config *config, void *mem);

/* Decides n <= MR__PLANE_BATCH_MAX datagrams in order. Charges limits and touches
 * activity; counts them as received (but not those with MR__RX_AGAIN). */
void mr__plane_batch(struct plane *p, uint64_t now_ns, const struct plane_rx *rx, uint32_t n,
                     struct plane_out *out);

/* A fresh link was used: the verdict is MANUAL (or TRUNCATED) and says nothing yet, nothing has
 * been charged. Not for injected ones: whoever injects looks at the link before
 * (mr__plane_is_fresh()). */
static inline bool mr__plane_met_fresh(const struct plane *p, const struct plane_out *out)
{
    return out->charged == p->ports + 1;
}
bool mr__plane_is_fresh(const struct plane *p, uint32_t port, const struct mr_addr *from);
/* Decides it as if its link were one like others, which by now it may be. A fresh one stays
 * fresh. */
void mr__plane_decide_fresh(struct plane *p, uint64_t now_ns, const struct plane_rx *rx,
                            struct plane_out *out);
/* The first use was noticed: the link is one like others from now on. */
void mr__plane_wear(struct plane *p, uint32_t port, const struct mr_addr *from);

/* Counts what became of a batch: out[].verdict as the caller left it (a FORWARD
 * that was not sent is SEND_FULL or SEND_FAILED by now). Skips MR__PLANE_HELD. */
void mr__plane_finish(struct plane *p, const struct plane_rx *rx, uint32_t n,
                      const struct plane_out *out);

/* The caller keeps this datagram (a miss) for later: marks it and counts it as held. */
void mr__plane_hold(struct plane *p, struct plane_out *out);
/* n held datagrams leave the hold: they are counted with a verdict now, ... */
void mr__plane_drop_held(struct plane *p, enum mr_verdict verdict, uint32_t n);
/* ... or go through mr__plane_batch() again with MR__RX_AGAIN. */
void mr__plane_unhold(struct plane *p, uint32_t n);

/* Commands, between batches. As mr__relays_*, and the counts start at 0. */
int mr__plane_add(struct plane *p, uint32_t port, uint32_t generation, const struct mr_addr *addr,
                  uint32_t flags, uint32_t egress);
int mr__plane_move(struct plane *p, uint32_t port, const struct mr_addr *addr);
int mr__plane_remove(struct plane *p, uint32_t port);
/* link->charged: a port, MR__NONE or MR__FRESH; ->target: a port or MR__NONE. As mr__links_*. */
int mr__plane_link(struct plane *p, const struct link *link);
int mr__plane_unlink(struct plane *p, uint32_t port, const struct mr_addr *from);

/* Adds this plane's counters of a relay to *sum. From any thread. */
void mr__plane_sum(const struct plane *p, uint32_t port, struct relay_sum *sum);

#endif
