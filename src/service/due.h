/* SPDX-License-Identifier: MIT */
/*
 * Things that are due at some moment, the earliest first: a binary heap whose places lie in
 * its members, in cells (cells.h). Each step is at most its depth. Control thread.
 */
#ifndef MR_SERVICE_DUE_H
#define MR_SERVICE_DUE_H

#include "service/cells.h"

#include <stddef.h>
#include <stdint.h>

struct due_node {
    uint64_t at_ns;
    size_t place;
};

/* Zeroed: an empty one. */
struct due {
    struct cells heap;
    size_t n;
};

void mr__due_deinit(struct due *d); /* its members are the caller's */

/* -ENOMEM */
int mr__due_add(struct due *d, struct due_node *node, uint64_t at_ns);
void mr__due_remove(struct due *d, struct due_node *node);
void mr__due_move(struct due *d, struct due_node *node, uint64_t at_ns);

/* The earliest, or NULL. */
static inline struct due_node *mr__due_first(const struct due *d)
{
    return d->n > 0 ? *mr__cells_at(&d->heap, 0) : NULL;
}

/* Of all, in no order that means anything; i below n. */
static inline struct due_node *mr__due_at(const struct due *d, size_t i)
{
    return *mr__cells_at(&d->heap, i);
}

#endif
