/* SPDX-License-Identifier: MIT */
/*
 * An array of pointers that grows without being moved, so that no single step costs the
 * time of copying a large one: what players can make grow must not stall everybody else.
 * Control thread.
 */
#ifndef MR_SERVICE_CELLS_H
#define MR_SERVICE_CELLS_H

#include <stddef.h>

enum { MR_CELLS_BITS = 9, MR_CELLS_PART = 1 << MR_CELLS_BITS };

/* Zeroed: an empty one. */
struct cells {
    void ***parts; /* of MR_CELLS_PART pointers each */
    size_t n, cap; /* parts there are, and room for their addresses */
};

/* Makes the first n cells usable; new ones are NULL. -ENOMEM: what is there stays. */
int mr__cells_reserve(struct cells *c, size_t n);
/* Gives back what lies behind the first n, except for one part that the next reserve may need. */
void mr__cells_shrink(struct cells *c, size_t n);
void mr__cells_deinit(struct cells *c);

static inline void **mr__cells_at(const struct cells *c, size_t i)
{
    return &c->parts[i >> MR_CELLS_BITS][i & (MR_CELLS_PART - 1)];
}

#endif
