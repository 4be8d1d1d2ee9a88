/* SPDX-License-Identifier: MIT */
/*
 * A chained hash table whose links lie in the members: it never allocates when
 * something is added, so adding cannot fail. Control thread. The hash is keyed by the
 * service, since players choose some of the keys.
 */
#ifndef MR_SERVICE_TABLE_H
#define MR_SERVICE_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct table_node {
    struct table_node *next;
    uint64_t hash;
};

struct table {
    struct table_node **buckets;
    size_t mask, n;
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
