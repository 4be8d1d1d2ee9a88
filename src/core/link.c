/* SPDX-License-Identifier: MIT */
/*
 * The table of links. Linear probing from the hash, load <= 1/2, so a search ends
 * at the first empty slot. Belongs to one thread. mr__links_remove() is the part
 * worth reading.
 */
#include "core/link.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

_Static_assert(sizeof(struct mr_addr) == 24, "an address is hashed and compared as it lies");
_Static_assert(sizeof(struct link) == 64, "a link is one cache line");

size_t mr__links_bytes(uint32_t max_links)
{
    return (size_t)mr__hash_slots(max_links) * sizeof(struct link);
}

void mr__links_init(struct links *l, uint32_t max_links, const struct hash_key *key, void *mem)
{
    *l = (struct links){.slots = mem,
                        .mask = mr__hash_slots(0) - 1,
                        .mask_max = mr__hash_slots(max_links) - 1,
                        .max = max_links,
                        .key = *key};
}

static uint64_t home_of(const struct links *l, uint32_t port, const struct mr_addr *from)
{
    return mr__hash_addr(&l->key, from, port) & l->mask;
}

/* The link's slot, or the empty one where it would go. */
static uint64_t probe(const struct links *l, uint32_t port, const struct mr_addr *from)
{
    uint64_t i = home_of(l, port, from);

    while (l->slots[i].from.family &&
           (l->slots[i].port != port || !mr__hash_same_addr(&l->slots[i].from, from)))
        i = (i + 1) & l->mask;
    return i;
}

/* Moves what a search would miss to where the search ends; false when all was well. */
static bool settle(struct links *l, uint64_t slots)
{
    bool has_moved = false;

    for (uint64_t i = 0; i < slots; i++) {
        uint64_t j = l->slots[i].from.family ? probe(l, l->slots[i].port, &l->slots[i].from) : i;

        if (j != i) {
            l->slots[j] = l->slots[i];
            memset(&l->slots[i], 0, sizeof l->slots[i]);
            has_moved = true;
        }
    }
    return has_moved;
}

/*
 * Twice as many slots, in place: the memory for the largest table is there from the
 * start, but a table only touches what its links need, and a few links spread over
 * megabytes would cost a page each. A move may open a gap before links that were placed
 * already, so it is repeated until nothing moves; as every move brings a link nearer to
 * its home that ends, after two or three passes.
 */
static void grow(struct links *l)
{
    l->mask = 2 * l->mask + 1;
    while (settle(l, l->mask + 1))
        ;
}

int mr__links_set(struct links *l, const struct link *link)
{
    struct link *slot = &l->slots[probe(l, link->port, &link->from)];

    assert(link->from.family);
    if (!slot->from.family) {
        if (l->used == l->max)
            return -ENOSPC;
        l->used++;
    }
    *slot = *link;
    if (mr__hash_slots(l->used) > l->mask + 1 && l->mask < l->mask_max)
        grow(l);
    return 0;
}

/*
 * Backward shift: each follower of the hole that may lie there (its home is not
 * between the hole and itself) moves into it and leaves a new hole. Tombstones
 * would be simpler, but a table that sees millions of relays come and go would
 * fill up with them and have to be rebuilt in the middle of traffic.
 */
int mr__links_remove(struct links *l, uint32_t port, const struct mr_addr *from)
{
    uint64_t hole = probe(l, port, from), i = hole;

    if (!l->slots[hole].from.family)
        return -ENOENT;
    for (;;) {
        uint64_t home;

        i = (i + 1) & l->mask;
        if (!l->slots[i].from.family)
            break;
        home = home_of(l, l->slots[i].port, &l->slots[i].from);
        if (((i - home) & l->mask) < ((i - hole) & l->mask))
            continue;
        l->slots[hole] = l->slots[i];
        hole = i;
    }
    memset(&l->slots[hole], 0, sizeof l->slots[hole]);
    l->used--;
    return 0;
}

const struct link *mr__links_find(const struct links *l, uint32_t port, const struct mr_addr *from)
{
    const struct link *slot = &l->slots[probe(l, port, from)];

    return slot->from.family ? slot : NULL;
}
