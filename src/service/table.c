/* SPDX-License-Identifier: MIT */
/*
 * The table behind table.h. Control thread. When it cannot grow for lack of memory it
 * goes on with longer chains.
 */
#include "service/table.h"

#include "base/alloc.h"

#include <errno.h>

enum { FIRST_BUCKETS = 64 };

int mr__table_init(struct table *t)
{
    *t = (struct table){.mask = FIRST_BUCKETS - 1};
    t->buckets = mr__alloc(FIRST_BUCKETS, sizeof(struct table_node *));
    return t->buckets ? 0 : -ENOMEM;
}

void mr__table_deinit(struct table *t)
{
    mr__free(t->buckets);
    *t = (struct table){.n = 0};
}

static void push(struct table *t, struct table_node *node)
{
    struct table_node **bucket = &t->buckets[node->hash & t->mask];

    node->next = *bucket;
    *bucket = node;
}

static void grow(struct table *t)
{
    size_t old_n = t->mask + 1;
    struct table_node **old = t->buckets;
    struct table_node **buckets = mr__alloc(old_n * 2, sizeof(struct table_node *));

    if (!buckets) {
        return;
    }
    t->buckets = buckets;
    t->mask = old_n * 2 - 1;
    for (size_t i = 0; i < old_n; i++) {
        while (old[i]) {
            struct table_node *node = old[i];
            old[i] = node->next;
            push(t, node);
        }
    }
    mr__free(old);
}

void mr__table_add(struct table *t, struct table_node *node, uint64_t hash)
{
    if (t->n > t->mask) {
        grow(t);
    }
    node->hash = hash;
    push(t, node);
    t->n++;
}

void mr__table_remove(struct table *t, struct table_node *node)
{
    struct table_node **p = &t->buckets[node->hash & t->mask];

    while (*p != node) {
        p = &(*p)->next;
    }
    *p = node->next;
    node->next = NULL;
    t->n--;
}

static struct table_node *skip_to(struct table_node *node, uint64_t hash)
{
    while (node && node->hash != hash) {
        node = node->next;
    }
    return node;
}

struct table_node *mr__table_first(const struct table *t, uint64_t hash)
{
    return skip_to(t->buckets[hash & t->mask], hash);
}

struct table_node *mr__table_next(const struct table_node *node)
{
    return skip_to(node->next, node->hash);
}
