/* SPDX-License-Identifier: MIT */
/*
 * The table behind table.h: linear hashing (Litwin 1980). Buckets are split one after the
 * other, each into itself and one at the end; those not yet split of this round are found by
 * one bit of the hash less:
 *
 *     0 1 2 3 | 4 5         mask = 3, n_buckets = 6: 0 and 1 are split already,
 *     split     not yet     so a hash of ...110 is in bucket 2, since there is no 6
 *
 * A table that doubled at once would move a million members while everybody waits, and
 * members come from players. Control thread. When it cannot grow for lack of memory it goes
 * on with longer chains.
 */
#include "service/table.h"

enum { FIRST_BUCKETS = 64, MERGES_A_STEP = 4 };

int mr__table_init(struct table *t)
{
    *t = (struct table){.n_buckets = FIRST_BUCKETS, .mask = FIRST_BUCKETS - 1};
    return mr__cells_reserve(&t->buckets, FIRST_BUCKETS);
}

void mr__table_deinit(struct table *t)
{
    mr__cells_deinit(&t->buckets);
    *t = (struct table){.n = 0};
}

static struct table_node **bucket_at(const struct table *t, size_t i)
{
    return (struct table_node **)mr__cells_at(&t->buckets, i);
}

static struct table_node **bucket_of(const struct table *t, uint64_t hash)
{
    size_t i = hash & (t->mask * 2 + 1);

    return bucket_at(t, i < t->n_buckets ? i : i & t->mask);
}

static void grow(struct table *t)
{
    size_t bit = t->mask + 1;

    if (mr__cells_reserve(&t->buckets, t->n_buckets + 1) < 0) {
        return;
    }
    struct table_node **from = bucket_at(t, t->n_buckets - bit);
    struct table_node **to = bucket_at(t, t->n_buckets);
    *to = NULL;
    while (*from) {
        struct table_node *node = *from;
        if (node->hash & bit) {
            *from = node->next;
            node->next = NULL;
            *to = node;
            to = &node->next;
        } else {
            from = &node->next;
        }
    }
    if (++t->n_buckets == bit * 2) {
        t->mask = bit * 2 - 1;
    }
}

/* The last bucket goes back to where it was split from, behind what is there: whoever walks
 * along a chain and removes members of it still finds the next one. */
static void shrink(struct table *t)
{
    t->n_buckets--;
    if (t->n_buckets <= t->mask) {
        t->mask /= 2;
    }
    struct table_node **to = bucket_at(t, t->n_buckets - (t->mask + 1));
    while (*to) {
        to = &(*to)->next;
    }
    *to = *bucket_at(t, t->n_buckets);
    *bucket_at(t, t->n_buckets) = NULL;
    mr__cells_shrink(&t->buckets, t->n_buckets);
}

void mr__table_add(struct table *t, struct table_node *node, uint64_t hash)
{
    if (t->n >= t->n_buckets) {
        grow(t);
    }
    struct table_node **bucket = bucket_of(t, hash);
    node->hash = hash;
    node->next = *bucket;
    *bucket = node;
    t->n++;
}

void mr__table_remove(struct table *t, struct table_node *node)
{
    struct table_node **p = bucket_of(t, node->hash);

    while (*p != node) {
        p = &(*p)->next;
    }
    *p = node->next;
    node->next = NULL;
    t->n--;
    for (int i = 0; i < MERGES_A_STEP && t->n < t->n_buckets / 4; i++) {
        if (t->n_buckets > FIRST_BUCKETS) {
            shrink(t);
        }
    }
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
    return skip_to(*bucket_of(t, hash), hash);
}

struct table_node *mr__table_next(const struct table_node *node)
{
    return skip_to(node->next, node->hash);
}
