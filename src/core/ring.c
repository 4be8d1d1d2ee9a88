/* SPDX-License-Identifier: MIT */
/*
 * The bounded ring between two threads. head and tail run freely and wrap; their
 * difference is the number of records inside.
 */
#include "core/ring.h"

#include <assert.h>

enum { CAPACITY_MAX_BITS = 31 };

/* A power of two, or 0. */
static uint32_t rounded(uint32_t capacity)
{
    uint32_t n = 2;

    if (capacity == 0 || capacity > (uint32_t)1 << CAPACITY_MAX_BITS)
        return 0;
    while (n < capacity)
        n *= 2;
    return n;
}

size_t mr__ring_bytes(uint32_t capacity, uint32_t record_bytes)
{
    size_t bytes;

    if (__builtin_mul_overflow((size_t)rounded(capacity), (size_t)record_bytes, &bytes))
        return 0;
    return bytes;
}

void mr__ring_init(struct ring *r, uint32_t capacity, uint32_t record_bytes, void *mem)
{
    assert(mr__ring_bytes(capacity, record_bytes) > 0);
    r->data = mem;
    r->mask = rounded(capacity) - 1;
    r->record_bytes = record_bytes;
    r->seen_tail = r->seen_head = 0;
    atomic_init(&r->head, 0);
    atomic_init(&r->tail, 0);
}

static void *record(struct ring *r, uint32_t i)
{
    return r->data + (size_t)(i & r->mask) * r->record_bytes;
}

void *mr__ring_reserve(struct ring *r)
{
    /* Relaxed: ours. */
    uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

    if (head - r->seen_tail > r->mask) {
        /* Acquire, pairs with the release in mr__ring_pop(): the consumer has
         * finished reading the record that we are about to overwrite. */
        r->seen_tail = atomic_load_explicit(&r->tail, memory_order_acquire);
        if (head - r->seen_tail > r->mask)
            return NULL;
    }
    return record(r, head);
}

void mr__ring_commit(struct ring *r)
{
    uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

    assert(head - r->seen_tail <= r->mask);
    /* Release, pairs with the acquire in mr__ring_peek(): the record is whole. */
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

void *mr__ring_peek(struct ring *r)
{
    /* Relaxed: ours. */
    uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);

    if (tail == r->seen_head) {
        /* Acquire, pairs with the release in mr__ring_commit(). */
        r->seen_head = atomic_load_explicit(&r->head, memory_order_acquire);
        if (tail == r->seen_head)
            return NULL;
    }
    return record(r, tail);
}

void mr__ring_pop(struct ring *r)
{
    uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);

    assert(tail != r->seen_head);
    /* Release, pairs with the acquire in mr__ring_reserve(). */
    atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
}

uint32_t mr__ring_count(const struct ring *r)
{
    /* The tail first: it only grows, so the difference is never negative. Acquire
     * keeps the two loads in that order. */
    uint32_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
    uint32_t count = atomic_load_explicit(&r->head, memory_order_acquire) - tail;

    return count > r->mask + 1 ? r->mask + 1 : count;
}
