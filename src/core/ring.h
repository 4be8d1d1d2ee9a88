/* SPDX-License-Identifier: MIT */
/*
 * A bounded ring of fixed-size records from one producer thread to one consumer
 * thread. Neither ever waits. Records are filled and read in place:
 *
 *     producer: p = mr__ring_reserve(r); if (p) { fill *p; mr__ring_commit(r); }
 *     consumer: while ((p = mr__ring_peek(r))) { use *p; mr__ring_pop(r); }
 */
#ifndef MR_CORE_RING_H
#define MR_CORE_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct ring {
    unsigned char *data;
    uint32_t mask;
    uint32_t record_bytes;
    /* Each side keeps its own index and its last view of the other's on a line of its
     * own (kept apart by padding, so that the struct may lie anywhere), and reads the
     * other's line only when the ring seems full or empty. */
    unsigned char apart_1[64];
    _Atomic uint32_t head; /* next to write; by the producer */
    uint32_t seen_tail;    /* producer only */
    unsigned char apart_2[64];
    _Atomic uint32_t tail; /* next to read; by the consumer */
    uint32_t seen_head;    /* consumer only */
    unsigned char apart_3[64];
};

/* capacity is rounded up to a power of two (2 .. 2^31); 0 when impossible. */
size_t mr__ring_bytes(uint32_t capacity, uint32_t record_bytes);
/* mem: aligned to 64, alive as long as *r. */
void mr__ring_init(struct ring *r, uint32_t capacity, uint32_t record_bytes, void *mem);

/* Producer: room for one record, or NULL when full. */
void *mr__ring_reserve(struct ring *r);
/* Producer: publishes what mr__ring_reserve() gave. */
void mr__ring_commit(struct ring *r);

/* Consumer: the oldest record, or NULL when empty. Valid until mr__ring_pop(). */
void *mr__ring_peek(struct ring *r);
void mr__ring_pop(struct ring *r);

/* Consumer or producer: records inside; the other side may be changing it. */
uint32_t mr__ring_count(const struct ring *r);

#endif
