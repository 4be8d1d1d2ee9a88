/* SPDX-License-Identifier: MIT */
/*
 * The data plane's copy of the blocked nets: the union of blocks by hand and of all lists,
 * as few ranges as possible. Control thread. It is made anew after a change, when the turn
 * is over; a large one not more often than every 50 ms for each 100,000 ranges, or a policy that
 * blocks one address after the other beside a list of a million nets would have the loop for
 * itself. Until it is there knocks are refused by blocks.c. Start reading at mr__mirror_run().
 */
#include "service/blocks.h"
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE_RANGES = 10000, PERIOD_RANGES = 100000, PERIOD_MS = 50 };

struct span {
    mr__wide first, last;
};

/* Sorted and disjoint; one family. */
struct spans {
    struct span *items;
    size_t n;
};

static mr__wide read_bytes(const uint8_t ip[16])
{
    mr__wide v = 0;

    for (int i = 0; i < 16; i++) {
        v = v << 8 | ip[i];
    }
    return v;
}

static void write_bytes(uint8_t ip[16], mr__wide v)
{
    for (int i = 16; i-- > 0; v >>= 8) {
        ip[i] = (uint8_t)v;
    }
}

/* ---- sources --------------------------------------------------------------------------------- */

static struct span span_of(const struct block_what *what)
{
    const uint8_t *ip = what->addr.ip;
    unsigned width = what->addr.family == 4 ? 32 : 128, host = width - what->bits;
    mr__wide first = read_bytes(ip) >> (128 - width);
    mr__wide mask = host == 128 ? ~(mr__wide)0 : ((mr__wide)1 << host) - 1;

    return (struct span){.first = first, .last = first | mask};
}

static int compare(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    return x->first < y->first ? -1 : x->first > y->first;
}

static int read_by_hand(const struct service *s, unsigned family, struct spans *out)
{
    const uint32_t *lengths = family == 4 ? s->blocks.lengths4 : s->blocks.lengths6;
    size_t n = 0;

    for (unsigned bits = 0; bits <= (family == 4 ? 32u : 128u); bits++) {
        n += lengths[bits];
    }
    out->n = 0;
    out->items = mr__alloc(n, sizeof *out->items);
    if (!out->items) {
        return -ENOMEM;
    }
    for (const struct list *l = s->blocks.all.next; l != &s->blocks.all; l = l->next) {
        const struct block_what *what = &MR_CONTAINER(l, struct block, link)->what;
        if (what->kind == MR_BLOCK_NET && what->addr.family == family) {
            out->items[out->n++] = span_of(what);
        }
    }
    qsort(out->items, out->n, sizeof *out->items, compare);
    return 0;
}

static int read_list(const struct mr_nets *nets, unsigned family, struct spans *out)
{
    out->n = family == 4 ? nets->n4 : nets->n6;
    out->items = mr__alloc(out->n, sizeof *out->items);
    if (!out->items) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < out->n; i++) {
        out->items[i] = family == 4 ? (struct span){nets->v4[i].first, nets->v4[i].last}
                                    : (struct span){read_bytes(nets->v6[i].first),
                                                    read_bytes(nets->v6[i].last)};
    }
    return 0;
}

/* ---- union ----------------------------------------------------------------------------------- */

/* Joined to the last one where they overlap or touch. */
static void append(struct spans *to, struct span next)
{
    struct span *last = to->n > 0 ? &to->items[to->n - 1] : NULL;

    if (last && (next.first <= last->last || next.first == last->last + 1)) {
        last->last = next.last > last->last ? next.last : last->last;
    } else {
        to->items[to->n++] = next;
    }
}

/* Takes both. */
static int unite(struct spans *all, struct spans *with)
{
    struct spans to = {.items = mr__alloc(all->n + with->n, sizeof *to.items)};
    size_t i = 0, j = 0;

    while (to.items && (i < all->n || j < with->n)) {
        if (j == with->n || (i < all->n && all->items[i].first <= with->items[j].first)) {
            append(&to, all->items[i++]);
        } else {
            append(&to, with->items[j++]);
        }
    }
    mr__free(all->items);
    mr__free(with->items);
    *all = to;
    return to.items ? 0 : -ENOMEM;
}

/* On failure nothing is left. */
static int collect(const struct service *s, unsigned family, struct spans *out)
{
    struct spans none = {.items = mr__alloc(0, sizeof *none.items)}, part;

    *out = none;
    if (!out->items) {
        return -ENOMEM;
    }
    int rc = read_by_hand(s, family, &part);
    rc = rc < 0 ? rc : unite(out, &part);
    for (const struct list *l = s->blocks.lists.next; rc == 0 && l != &s->blocks.lists;
         l = l->next) {
        rc = read_list(mr__cidr_ranges(MR_CONTAINER(l, struct block_list, link)->nets), family,
                       &part);
        rc = rc < 0 ? rc : unite(out, &part);
    }
    if (rc < 0) {
        mr__free(out->items);
        out->items = NULL;
    }
    return rc;
}

/* ---- publishing ------------------------------------------------------------------------------ */

static int publish(struct service *s, const struct spans *four, const struct spans *six)
{
    struct mr_range4 *v4 = mr__alloc(four->n, sizeof *v4);
    struct mr_range6 *v6 = mr__alloc(six->n, sizeof *v6);
    int rc = -ENOMEM;

    if (v4 && v6) {
        for (size_t i = 0; i < four->n; i++) {
            v4[i] = (struct mr_range4){(uint32_t)four->items[i].first,
                                       (uint32_t)four->items[i].last, 0};
        }
        for (size_t i = 0; i < six->n; i++) {
            write_bytes(v6[i].first, six->items[i].first);
            write_bytes(v6[i].last, six->items[i].last);
        }
        rc = mr_set_blocked(
            s->mr,
            &(struct mr_nets){.v4 = v4, .v6 = v6, .n4 = (uint32_t)four->n, .n6 = (uint32_t)six->n});
    }
    mr__free(v4);
    mr__free(v6);
    return rc;
}

static int build(struct service *s)
{
    struct spans four, six = {.n = 0};
    int rc = collect(s, 4, &four);

    if (rc == 0) {
        rc = collect(s, 6, &six);
    }
    if (rc == 0) {
        rc = publish(s, &four, &six);
        s->blocks.mirrored = four.n + six.n;
    }
    mr__free(four.items);
    mr__free(six.items);
    return rc;
}

static uint64_t due_at(const struct service *s)
{
    size_t n = s->blocks.mirrored + s->blocks.n_by_hand + s->blocks.n_listed;
    uint64_t period_ms = PERIOD_MS * (1 + (uint64_t)n / PERIOD_RANGES);

    return n > LARGE_RANGES || s->blocks.is_mirror_failing
               ? s->blocks.mirrored_ns + period_ms * 1000000
               : s->now_ns;
}

void mr__mirror_run(struct service *s)
{
    if (!s->blocks.is_mirror_old || due_at(s) > s->now_ns) {
        return;
    }
    int rc = build(s);
    s->blocks.mirrored_ns = s->now_ns;
    s->blocks.is_mirror_old = rc < 0;
    s->blocks.is_mirror_failing = rc < 0;
    if (rc < 0) {
        MR_JOURNAL(s, MR_JOURNAL_BLOCK, MR_LOG_WARN, "block",
                   "the data plane does not know the blocked nets yet",
                   LOG_STR("error", mr_strerror(rc)));
    }
}

uint64_t mr__mirror_deadline(const struct service *s)
{
    return s->blocks.is_mirror_old ? due_at(s) : UINT64_MAX;
}
