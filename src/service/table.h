/* SPDX-License-Identifier: MIT */
/*
 * A chained hash table whose links lie in the members: adding cannot fail. It grows and
 * shrinks by one bucket at a time, so that no single step is long, however large it is.
 * Control thread. The hash is keyed by the owner, since players choose some of the keys.
 */
#ifndef MR_SERVICE_TABLE_H
#define MR_SERVICE_TABLE_H

#include "service/cells.h"

#include <stddef.h>
#include <stdint.h>

struct table_node {
    struct table_node *next;
    uint64_t hash;
};

struct table {
    struct cells buckets;
    size_t n_buckets, mask; /* mask + 1: the largest power of two that is not above n_buckets */
    size_t n;
};

/* -ENOMEM */
int mr__table_init(struct table *t);
/* Its members are the caller's. */
void mr__table_deinit(struct table *t);

void mr__table_add(struct table *t, struct table_node *node, uint64_t hash);
void mr__table_remove(struct table *t, struct table_node *node);

/* Members with exactly that hash, one after the other: the caller compares their keys. */
struct table_node *mr__table_first(const struct table *t, uint64_t hash);
struct table_node *mr__table_next(const struct table_node *node);

#endif
