/* SPDX-License-Identifier: MIT */
/*
 * Links: (local port, remote address) -> (egress, destination, who pays, who
 * receives). What is forwarded is forwarded by a link: one lookup and one cache
 * line per datagram. Open addressing, load <= 1/2, deletion by backward shift (no
 * tombstones, so a table that lives for months stays as fast as a new one).
 *
 * Pure: memory is handed in. A struct links belongs to one thread.
 */
#ifndef MR_CORE_LINK_H
#define MR_CORE_LINK_H

#include "core/address.h"
#include "core/hash.h"

#include <stddef.h>
#include <stdint.h>

/* 64 bytes: a slot of the table as well as the record that commands carry. */
struct link {
    struct mr_addr from; /* canonical; family 0 = empty slot */
    uint32_t port;       /* local port index it arrives at */
    uint32_t egress;     /* way out */
    struct mr_addr to;   /* destination */
    uint32_t charged;    /* relay of the sender: limits, activity, counts; MR__NONE: nobody */
    uint32_t target;     /* relay of the receiver: activity, counts; MR__NONE: nobody */
};

struct links {
    struct link *slots;
    uint64_t mask;     /* slots - 1: grows with the links ... */
    uint64_t mask_max; /* ... up to what there is memory for */
    uint32_t used;
    uint32_t max;
    struct hash_key key;
};

size_t mr__links_bytes(uint32_t max_links);
/* mem: zeroed, aligned to 64, alive as long as *l. */
void mr__links_init(struct links *l, uint32_t max_links, const struct hash_key *key, void *mem);

/* Adds the link or replaces the one with its (port, from). -ENOSPC when full. */
int mr__links_set(struct links *l, const struct link *link);
/* -ENOENT when there is none. */
int mr__links_remove(struct links *l, uint32_t port, const struct mr_addr *from);
/* NULL when there is none. Valid until the next change of the table. */
const struct link *mr__links_find(const struct links *l, uint32_t port, const struct mr_addr *from);

#endif
