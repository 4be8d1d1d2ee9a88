/* SPDX-License-Identifier: MIT */
/*
 * The heap behind due.h. Control thread.
 */
#include "service/due.h"

void mr__due_deinit(struct due *d)
{
    mr__cells_deinit(&d->heap);
    *d = (struct due){.n = 0};
}

static void put(struct due *d, size_t place, struct due_node *node)
{
    *mr__cells_at(&d->heap, place) = node;
    node->place = place;
}

static void rise(struct due *d, struct due_node *node, size_t place)
{
    while (place > 0) {
        size_t parent = (place - 1) / 2;
        struct due_node *above = mr__due_at(d, parent);

        if (above->at_ns <= node->at_ns) {
            break;
        }
        put(d, place, above);
        place = parent;
    }
    put(d, place, node);
}

static void sink(struct due *d, struct due_node *node, size_t place)
{
    for (;;) {
        size_t child = place * 2 + 1;

        if (child >= d->n) {
            break;
        }
        if (child + 1 < d->n && mr__due_at(d, child + 1)->at_ns < mr__due_at(d, child)->at_ns) {
            child++;
        }
        struct due_node *below = mr__due_at(d, child);
        if (node->at_ns <= below->at_ns) {
            break;
        }
        put(d, place, below);
        place = child;
    }
    put(d, place, node);
}

int mr__due_add(struct due *d, struct due_node *node, uint64_t at_ns)
{
    int rc = mr__cells_reserve(&d->heap, d->n + 1);

    if (rc < 0) {
        return rc;
    }
    node->at_ns = at_ns;
    rise(d, node, d->n++);
    return 0;
}

void mr__due_move(struct due *d, struct due_node *node, uint64_t at_ns)
{
    node->at_ns = at_ns;
    rise(d, node, node->place);
    sink(d, node, node->place);
}

void mr__due_remove(struct due *d, struct due_node *node)
{
    struct due_node *last = mr__due_at(d, --d->n);

    if (last != node) {
        rise(d, last, node->place);
        sink(d, last, last->place);
    }
    *mr__cells_at(&d->heap, d->n) = NULL;
    mr__cells_shrink(&d->heap, d->n);
}
