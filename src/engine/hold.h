/* SPDX-License-Identifier: MIT */
/*
 * Datagrams that wait for a decision, by flow (port, sender), in a fixed pool. A flow is
 * PENDING while somebody is asked about it and keeps its datagrams in order; after a
 * refusal it is QUIET for a while: it asks no more.
 *
 * Belongs to one worker; no allocation, no clock, no counters: the caller does those.
 * Start reading at mr__hold_open().
 */
#ifndef MR_ENGINE_HOLD_H
#define MR_ENGINE_HOLD_H

#include "core/address.h"
#include "core/hash.h"
#include "engine/moonrelay.h"

#include <stddef.h>
#include <stdint.h>

enum hold_state { HOLD_FREE, HOLD_PENDING, HOLD_QUIET };

enum {
    /* Refused flows that are remembered, per pending one: a stranger that is forgotten
     * early costs an event, no more, so the oldest gives way. */
    HOLD_QUIET_PER_FLOW = 3,
    HOLD_BLOCK_BYTES = 256,
    HOLD_FLOWS_MAX = 1 << 20,
};

struct hold_flow {
    struct mr_addr from;
    uint32_t port;
    uint32_t generation;
    uint64_t since_ns;    /* PENDING: it was opened then */
    uint64_t until_ns;    /* PENDING: it is given up then; QUIET: it may ask again then */
    uint32_t first, last; /* blocks of the oldest and the newest datagram */
    uint32_t datagrams, bytes;
    uint32_t max_datagrams, max_bytes;
    uint32_t heap_at;    /* PENDING: its place among those to give up */
    uint32_t next_same;  /* of the hash bucket */
    uint32_t next, prev; /* of the list of its state, oldest first */
    uint8_t state;       /* enum hold_state */
    uint8_t verdict;     /* PENDING: why it is a miss; QUIET: what its datagrams count as */
    uint8_t is_due;      /* PENDING: caller's mark */
    uint8_t is_released; /* PENDING: caller's mark */
};

struct hold_list {
    uint32_t first, last, count;
};

struct hold {
    struct mr_hold_options limits;
    struct hold_flow *flows;
    uint32_t *buckets;
    uint32_t *heap; /* pending flows by until_ns: they may have times of their own */
    uint8_t *blocks;
    uint32_t bucket_mask;
    uint32_t flow_count, block_count;
    uint32_t unused_flow, unused_block; /* never used so far: from here on */
    uint32_t free_flow, free_block;
    uint32_t worker; /* in ids */
    struct hold_list pending, quiet;
    struct hash_key key;
};

size_t mr__hold_bytes(const struct mr_hold_options *limits);
/* mem: zeroed, aligned to 64, alive as long as *h. worker < 64. */
void mr__hold_init(struct hold *h, const struct mr_hold_options *limits, uint32_t worker,
                   const struct hash_key *key, void *mem);

/* NULL when the flow is neither pending nor quiet. */
struct hold_flow *mr__hold_find(const struct hold *h, uint32_t port, const struct mr_addr *from);
/* A pending flow without datagrams; there must be none of its name. NULL when so many
 * are pending already. */
struct hold_flow *mr__hold_open(struct hold *h, uint64_t now_ns, uint32_t port,
                                const struct mr_addr *from, enum mr_verdict reason);
/* Ends a flow; what it held must be gone. */
void mr__hold_close(struct hold *h, struct hold_flow *flow);
/* Makes a pending flow, which holds nothing any more, quiet. */
void mr__hold_silence(struct hold *h, struct hold_flow *flow, uint64_t until_ns,
                      enum mr_verdict later);

/* Other bounds for one pending flow; MR_HOLD_AS_IS and a time of 0 change nothing. What it holds
 * already stays. */
void mr__hold_bound(struct hold *h, struct hold_flow *flow, uint32_t datagrams, uint32_t bytes,
                    uint64_t time_ns);

/* Keeps a copy behind what the flow holds. -ENOSPC: a limit of the flow or of the pool. */
int mr__hold_keep(struct hold *h, struct hold_flow *flow, const uint8_t *data, uint32_t size);
/* Size of the oldest datagram; -ENOENT when there is none. */
int64_t mr__hold_peek(const struct hold *h, const struct hold_flow *flow);
/* Copies the oldest datagram to out (mr__hold_peek() bytes) and forgets it. */
void mr__hold_take(struct hold *h, struct hold_flow *flow, uint8_t *out);
/* Forgets all of them; returns how many those were. */
uint32_t mr__hold_drop(struct hold *h, struct hold_flow *flow);

/* Names for other threads. NULL: the flow is no longer pending. */
mr_flow_id mr__hold_id(const struct hold *h, const struct hold_flow *flow);
struct hold_flow *mr__hold_get(const struct hold *h, mr_flow_id id);
static inline uint32_t mr__hold_id_worker(mr_flow_id id)
{
    return (uint32_t)(id >> 24) & 0xff;
}
static inline uint32_t mr__hold_id_index(mr_flow_id id)
{
    return (uint32_t)id & 0xffffff;
}

/* The pending flow that has to be given up first. NULL: none. */
struct hold_flow *mr__hold_due(const struct hold *h);
/* The pending flow that has waited longest, and the one after it. NULL: none. */
struct hold_flow *mr__hold_oldest(const struct hold *h);
struct hold_flow *mr__hold_after(const struct hold *h, const struct hold_flow *flow);

#endif
