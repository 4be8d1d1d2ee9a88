/* SPDX-License-Identifier: MIT */
/*
 * The pool of waiting datagrams. Payloads lie in chains of small blocks, so that one
 * memory serves empty and 16 KiB datagrams alike without fragmentation. One worker.
 * Start reading at mr__hold_open() and mr__hold_keep().
 */
#include "engine/hold.h"

#include <errno.h>
#include <string.h>

#define NONE UINT32_MAX

/* The first block of a datagram carries its size and the way to the next datagram. */
struct block {
    uint32_t next;          /* of this datagram, or of the free list */
    uint32_t next_datagram; /* of the flow */
    uint32_t size;
    uint32_t reserved;
    uint8_t data[HOLD_BLOCK_BYTES - 16];
};

enum { BLOCK_DATA = sizeof(((struct block *)0)->data) };

static struct block *block_at(const struct hold *h, uint32_t i)
{
    return (struct block *)(h->blocks + (size_t)i * sizeof(struct block));
}

static uint32_t index_of(const struct hold *h, const struct hold_flow *flow)
{
    return (uint32_t)(flow - h->flows);
}

/* ------------------------------------------------------------------ memory */

static uint32_t count_flows(const struct mr_hold_options *limits)
{
    return limits->flows * (1 + HOLD_QUIET_PER_FLOW);
}

static uint32_t count_blocks(const struct mr_hold_options *limits)
{
    return limits->memory_bytes / sizeof(struct block);
}

size_t mr__hold_bytes(const struct mr_hold_options *limits)
{
    return mr__hash_align((size_t)count_flows(limits) * sizeof(struct hold_flow)) +
           mr__hash_align(mr__hash_slots(count_flows(limits)) * sizeof(uint32_t)) +
           mr__hash_align((size_t)limits->flows * sizeof(uint32_t)) +
           (size_t)count_blocks(limits) * sizeof(struct block);
}

/* Nothing is written here but the header: pages that no flow ever needs stay untouched,
 * which is why buckets hold index + 1 and lists of unused things are counters. */
void mr__hold_init(struct hold *h, const struct mr_hold_options *limits, uint32_t worker,
                   const struct hash_key *key, void *mem)
{
    uint8_t *p = mem;
    uint64_t buckets = mr__hash_slots(count_flows(limits));

    memset(h, 0, sizeof *h);
    h->limits = *limits;
    h->flow_count = count_flows(limits);
    h->block_count = count_blocks(limits);
    h->flows = mem;
    p += mr__hash_align((size_t)h->flow_count * sizeof(struct hold_flow));
    h->buckets = (uint32_t *)(void *)p;
    p += mr__hash_align(buckets * sizeof(uint32_t));
    h->heap = (uint32_t *)(void *)p;
    p += mr__hash_align((size_t)limits->flows * sizeof(uint32_t));
    h->blocks = p;
    h->bucket_mask = (uint32_t)buckets - 1;
    h->free_flow = h->free_block = NONE;
    h->pending = h->quiet = (struct hold_list){NONE, NONE, 0};
    h->worker = worker;
    h->key = *key;
}

/* ------------------------------------------------------------------ lists and index */

static struct hold_list *list_of(struct hold *h, const struct hold_flow *flow)
{
    return flow->state == HOLD_PENDING ? &h->pending : &h->quiet;
}

static void list_push(struct hold *h, struct hold_flow *flow)
{
    struct hold_list *list = list_of(h, flow);
    uint32_t i = index_of(h, flow);

    flow->next = NONE;
    flow->prev = list->last;
    if (list->last != NONE)
        h->flows[list->last].next = i;
    else
        list->first = i;
    list->last = i;
    list->count++;
}

static void list_remove(struct hold *h, struct hold_flow *flow)
{
    struct hold_list *list = list_of(h, flow);

    if (flow->prev != NONE)
        h->flows[flow->prev].next = flow->next;
    else
        list->first = flow->next;
    if (flow->next != NONE)
        h->flows[flow->next].prev = flow->prev;
    else
        list->last = flow->prev;
    list->count--;
}

/* ------------------------------------------------------------------ heap of the pending */

/* A heap and not the order of the list, since a policy may give a flow a time of its own, and the
 * time of all may change while some wait. Its size is that of the list. */
static void heap_put(struct hold *h, uint32_t at, uint32_t flow)
{
    h->heap[at] = flow;
    h->flows[flow].heap_at = at;
}

static uint64_t heap_key(const struct hold *h, uint32_t at)
{
    return h->flows[h->heap[at]].until_ns;
}

/* Of n entries the one at `at` may be at the wrong place. */
static void heap_settle(struct hold *h, uint32_t n, uint32_t at)
{
    uint32_t flow = h->heap[at];
    uint64_t until_ns = h->flows[flow].until_ns;

    while (at > 0 && heap_key(h, (at - 1) / 2) > until_ns) {
        heap_put(h, at, h->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < n && heap_key(h, child + 1) < heap_key(h, child))
            child++;
        if (child >= n || heap_key(h, child) >= until_ns)
            break;
        heap_put(h, at, h->heap[child]);
        at = child;
    }
    heap_put(h, at, flow);
}

/* Before the list grows. */
static void heap_add(struct hold *h, struct hold_flow *flow)
{
    heap_put(h, h->pending.count, index_of(h, flow));
    heap_settle(h, h->pending.count + 1, h->pending.count);
}

/* After the list has shrunk. */
static void heap_remove(struct hold *h, const struct hold_flow *flow)
{
    uint32_t n = h->pending.count;

    if (flow->heap_at == n)
        return;
    heap_put(h, flow->heap_at, h->heap[n]);
    heap_settle(h, n, flow->heap_at);
}

/* ------------------------------------------------------------------ flows */

static uint32_t *bucket_of(const struct hold *h, uint32_t port, const struct mr_addr *from)
{
    return &h->buckets[mr__hash_addr(&h->key, from, port) & h->bucket_mask];
}

struct hold_flow *mr__hold_find(const struct hold *h, uint32_t port, const struct mr_addr *from)
{
    uint32_t i = *bucket_of(h, port, from);

    while (i) {
        struct hold_flow *flow = &h->flows[i - 1];

        if (flow->port == port && mr_addr_equal(&flow->from, from))
            return flow;
        i = flow->next_same;
    }
    return NULL;
}

static struct hold_flow *take_flow(struct hold *h)
{
    uint32_t i = h->free_flow;

    if (i == NONE && h->unused_flow == h->flow_count) {
        if (h->quiet.first == NONE)
            return NULL;
        mr__hold_close(h, &h->flows[h->quiet.first]);
        i = h->free_flow;
    }
    if (i == NONE)
        return &h->flows[h->unused_flow++];
    h->free_flow = h->flows[i].next;
    return &h->flows[i];
}

struct hold_flow *mr__hold_open(struct hold *h, uint64_t now_ns, uint32_t port,
                                const struct mr_addr *from, enum mr_verdict reason)
{
    struct hold_flow *flow = h->pending.count < h->limits.flows ? take_flow(h) : NULL;
    uint32_t *bucket = bucket_of(h, port, from);
    uint32_t generation;

    if (!flow)
        return NULL;
    generation = flow->generation + 1 ? flow->generation + 1 : 1;
    *flow = (struct hold_flow){
        .from = *from,
        .port = port,
        .generation = generation,
        .since_ns = now_ns,
        .until_ns = now_ns + h->limits.time_ns,
        .max_datagrams = h->limits.datagrams,
        .max_bytes = h->limits.bytes,
        .first = NONE,
        .last = NONE,
        .next_same = *bucket,
        .state = HOLD_PENDING,
        .verdict = (uint8_t)reason,
    };
    *bucket = index_of(h, flow) + 1;
    heap_add(h, flow);
    list_push(h, flow);
    return flow;
}

void mr__hold_bound(struct hold *h, struct hold_flow *flow, uint32_t datagrams, uint32_t bytes,
                    uint64_t time_ns)
{
    if (datagrams != MR_HOLD_AS_IS)
        flow->max_datagrams = datagrams;
    if (bytes != MR_HOLD_AS_IS)
        flow->max_bytes = bytes;
    if (time_ns) {
        flow->until_ns = flow->since_ns + time_ns;
        heap_settle(h, h->pending.count, flow->heap_at);
    }
}

void mr__hold_close(struct hold *h, struct hold_flow *flow)
{
    uint32_t *link = bucket_of(h, flow->port, &flow->from);
    uint32_t i = index_of(h, flow);

    while (*link != i + 1)
        link = &h->flows[*link - 1].next_same;
    *link = flow->next_same;
    list_remove(h, flow);
    if (flow->state == HOLD_PENDING)
        heap_remove(h, flow);
    flow->state = HOLD_FREE;
    flow->next = h->free_flow;
    h->free_flow = i;
}

void mr__hold_silence(struct hold *h, struct hold_flow *flow, uint64_t until_ns,
                      enum mr_verdict later)
{
    list_remove(h, flow);
    heap_remove(h, flow);
    flow->state = HOLD_QUIET;
    flow->until_ns = until_ns;
    flow->verdict = (uint8_t)later;
    list_push(h, flow);
}

/* ------------------------------------------------------------------ datagrams */

static uint32_t take_block(struct hold *h)
{
    uint32_t i = h->free_block;

    if (i == NONE)
        return h->unused_block < h->block_count ? h->unused_block++ : NONE;
    h->free_block = block_at(h, i)->next;
    return i;
}

static void free_blocks(struct hold *h, uint32_t i)
{
    while (i != NONE) {
        struct block *b = block_at(h, i);
        uint32_t next = b->next;

        b->next = h->free_block;
        h->free_block = i;
        i = next;
    }
}

/* A chain with a copy of the payload, or NONE. An empty datagram needs a block, too. */
static uint32_t write_blocks(struct hold *h, const uint8_t *data, uint32_t size)
{
    uint32_t first = NONE, *link = &first, done = 0;

    do {
        uint32_t part = size - done < BLOCK_DATA ? size - done : BLOCK_DATA;
        uint32_t i = take_block(h);

        if (i == NONE) {
            free_blocks(h, first);
            return NONE;
        }
        *link = i;
        link = &block_at(h, i)->next;
        *link = NONE;
        if (part)
            memcpy(block_at(h, i)->data, data + done, part);
        done += part;
    } while (done < size);
    return first;
}

int mr__hold_keep(struct hold *h, struct hold_flow *flow, const uint8_t *data, uint32_t size)
{
    uint32_t i;

    if (flow->datagrams >= flow->max_datagrams || size > flow->max_bytes ||
        flow->bytes > flow->max_bytes - size)
        return -ENOSPC;
    i = write_blocks(h, data, size);
    if (i == NONE)
        return -ENOSPC;
    block_at(h, i)->size = size;
    block_at(h, i)->next_datagram = NONE;
    if (flow->last != NONE)
        block_at(h, flow->last)->next_datagram = i;
    else
        flow->first = i;
    flow->last = i;
    flow->datagrams++;
    flow->bytes += size;
    return 0;
}

int64_t mr__hold_peek(const struct hold *h, const struct hold_flow *flow)
{
    return flow->first == NONE ? -ENOENT : (int64_t)block_at(h, flow->first)->size;
}

static void forget_oldest(struct hold *h, struct hold_flow *flow)
{
    struct block *b = block_at(h, flow->first);
    uint32_t i = flow->first;

    flow->datagrams--;
    flow->bytes -= b->size;
    flow->first = b->next_datagram;
    if (flow->first == NONE)
        flow->last = NONE;
    free_blocks(h, i);
}

void mr__hold_take(struct hold *h, struct hold_flow *flow, uint8_t *out)
{
    uint32_t left = block_at(h, flow->first)->size;

    for (uint32_t i = flow->first; left > 0; i = block_at(h, i)->next) {
        uint32_t part = left < BLOCK_DATA ? left : BLOCK_DATA;

        memcpy(out, block_at(h, i)->data, part);
        out += part;
        left -= part;
    }
    forget_oldest(h, flow);
}

uint32_t mr__hold_drop(struct hold *h, struct hold_flow *flow)
{
    uint32_t n = flow->datagrams;

    while (flow->first != NONE)
        forget_oldest(h, flow);
    return n;
}

/* ------------------------------------------------------------------ names */

mr_flow_id mr__hold_id(const struct hold *h, const struct hold_flow *flow)
{
    return (uint64_t)flow->generation << 32 | h->worker << 24 | index_of(h, flow);
}

struct hold_flow *mr__hold_get(const struct hold *h, mr_flow_id id)
{
    uint32_t i = mr__hold_id_index(id);
    struct hold_flow *flow = &h->flows[i];

    if (i >= h->unused_flow || mr__hold_id_worker(id) != h->worker)
        return NULL;
    if (flow->state != HOLD_PENDING || flow->generation != (uint32_t)(id >> 32))
        return NULL;
    return flow;
}

static struct hold_flow *at_or_null(const struct hold *h, uint32_t i)
{
    return i == NONE ? NULL : &h->flows[i];
}

struct hold_flow *mr__hold_due(const struct hold *h)
{
    return h->pending.count ? &h->flows[h->heap[0]] : NULL;
}

struct hold_flow *mr__hold_oldest(const struct hold *h)
{
    return at_or_null(h, h->pending.first);
}

struct hold_flow *mr__hold_after(const struct hold *h, const struct hold_flow *flow)
{
    return at_or_null(h, flow->next);
}
