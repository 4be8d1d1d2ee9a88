/* SPDX-License-Identifier: MIT */
/*
 * What policies hand out: tags, slots, and the merged spec of a relay to come. Control
 * thread. Answers are borrowed, so whatever lives longer is copied here.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- tags ---------------------------------------------------------------------------------- */

static bool is_equal(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

static bool has_key(const struct hook_map *map, struct str key)
{
    for (size_t i = 0; i < map->n; i++) {
        if (is_equal(map->items[i].key, key)) {
            return true;
        }
    }
    return false;
}

static size_t pair_bytes(const struct hook_pair *p)
{
    return sizeof *p + p->key.n + p->value.n;
}

static struct str copy_str(char **at, struct str from)
{
    struct str to = {*at, from.n};

    if (from.n > 0) { /* an empty one may have no address */
        memcpy(*at, from.s, from.n);
        *at += from.n;
    }
    return to;
}

int mr__tags_merge(struct tags *t, const struct hook_map *add)
{
    size_t n = 0, bytes = 0, k = 0;

    if (add->n == 0) {
        return 0;
    }
    for (size_t i = 0; i < t->n; i++) {
        if (!has_key(add, t->items[i].key)) {
            n++;
            bytes += pair_bytes(&t->items[i]);
        }
    }
    for (size_t i = 0; i < add->n; i++, n++) {
        bytes += pair_bytes(&add->items[i]);
    }
    struct hook_pair *items = mr__alloc(bytes, 1);
    if (!items) {
        return -ENOMEM;
    }
    char *at = (char *)(items + n);
    for (size_t i = 0; i < t->n; i++) {
        if (!has_key(add, t->items[i].key)) {
            items[k].key = copy_str(&at, t->items[i].key);
            items[k++].value = copy_str(&at, t->items[i].value);
        }
    }
    for (size_t i = 0; i < add->n; i++) {
        items[k].key = copy_str(&at, add->items[i].key);
        items[k++].value = copy_str(&at, add->items[i].value);
    }
    mr__free(t->items);
    *t = (struct tags){items, k};
    return 0;
}

void mr__tags_deinit(struct tags *t)
{
    mr__free(t->items);
    *t = (struct tags){.n = 0};
}

struct hook_map mr__tags_map(const struct tags *t)
{
    return (struct hook_map){t->items, t->n};
}

/* ---- slots --------------------------------------------------------------------------------- */

static struct slot *find_slot(const struct service *s, struct str key, uint64_t hash)
{
    for (struct table_node *n = mr__table_first(&s->slots, hash); n; n = mr__table_next(n)) {
        struct slot *slot = MR_CONTAINER(n, struct slot, node);
        if (is_equal((struct str){slot->key, slot->n}, key)) {
            return slot;
        }
    }
    return NULL;
}

/* One more holder of the key. NULL: out of memory. */
static struct slot *enter_slot(struct service *s, struct str key, uint64_t hash)
{
    struct slot *slot = find_slot(s, key, hash);

    if (!slot) {
        slot = mr__alloc(1, sizeof *slot);
        if (!slot) {
            return NULL;
        }
        slot->n = key.n;
        copy_str(&(char *){slot->key}, key);
        mr__table_add(&s->slots, &slot->node, hash);
    }
    slot->count++;
    return slot;
}

void mr__slots_release(struct service *s, struct held_slots *held)
{
    for (size_t i = 0; i < held->n; i++) {
        struct slot *slot = held->items[i];
        if (--slot->count == 0) {
            mr__table_remove(&s->slots, &slot->node);
            mr__free(slot);
        }
    }
    mr__free(held->items);
    *held = (struct held_slots){.n = 0};
}

static uint32_t count_among(const struct held_slots *held, const struct slot *slot)
{
    uint32_t n = 0;

    for (size_t i = 0; held && i < held->n; i++) {
        n += held->items[i] == slot;
    }
    return n;
}

int mr__slots_take(struct service *s, const struct hook_slot *slots, size_t n,
                   const struct held_slots *leaving, struct held_slots *held, struct str *full)
{
    *held = (struct held_slots){.n = 0};
    if (n == 0) {
        return 0;
    }
    held->items = mr__alloc(n, sizeof(struct slot *));
    if (!held->items) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        struct str key = slots[i].key;
        if (key.n > MR_SLOT_KEY_MAX) {
            key.n = MR_SLOT_KEY_MAX;
        }
        uint64_t hash = mr__service_hash(s, key.s, key.n);
        struct slot *slot = find_slot(s, key, hash);
        if ((slot ? slot->count - count_among(leaving, slot) : 0) >= slots[i].max) {
            mr__slots_release(s, held);
            *full = slots[i].key;
            return -ENOSPC;
        }
        slot = enter_slot(s, key, hash);
        if (!slot) {
            mr__slots_release(s, held);
            return -ENOMEM;
        }
        held->items[held->n++] = slot;
    }
    return 0;
}

/* ---- grants -------------------------------------------------------------------------------- */

static void merge_u64(bool *has, uint64_t *v, bool other_has, uint64_t other)
{
    if (other_has && (!*has || other < *v)) {
        *has = true;
        *v = other;
    }
}

static void merge_spec(struct hook_spec *a, const struct hook_spec *b)
{
    merge_u64(&a->has_ttl, &a->ttl_ns, b->has_ttl, b->ttl_ns);
    merge_u64(&a->has_idle, &a->idle_ns, b->has_idle, b->idle_ns);
    merge_u64(&a->has_pps, &a->pps, b->has_pps, b->pps);
    merge_u64(&a->has_bps, &a->bps, b->has_bps, b->bps);
    merge_u64(&a->has_max_bytes, &a->max_bytes, b->has_max_bytes, b->max_bytes);
    merge_u64(&a->has_hold_packets, &a->hold_packets, b->has_hold_packets, b->hold_packets);
    merge_u64(&a->has_hold_bytes, &a->hold_bytes, b->has_hold_bytes, b->hold_bytes);
    merge_u64(&a->has_hold_ns, &a->hold_ns, b->has_hold_ns, b->hold_ns);
    if (b->target[0]) {
        memcpy(a->target, b->target, sizeof a->target);
    }
}

static int merge_slot(struct grant *g, const struct hook_slot *add)
{
    for (size_t i = 0; i < g->n_slots; i++) {
        if (is_equal(g->slots[i].key, add->key)) {
            g->slots[i].max = add->max < g->slots[i].max ? add->max : g->slots[i].max;
            return 0;
        }
    }
    char *key = mr__strndup(add->key.s, add->key.n);
    struct hook_slot *slots = key ? mr__realloc(g->slots, g->n_slots + 1, sizeof *slots) : NULL;
    if (!slots) {
        mr__free(key);
        return -ENOMEM;
    }
    g->slots = slots;
    g->slots[g->n_slots++] = (struct hook_slot){{key, add->key.n}, add->max};
    return 0;
}

int mr__grant_merge(struct grant *g, const struct hook_answer *answer)
{
    merge_spec(&g->spec, &answer->spec);
    for (size_t i = 0; i < answer->n_slots; i++) {
        int rc = merge_slot(g, &answer->slots[i]);
        if (rc < 0) {
            return rc;
        }
    }
    return mr__tags_merge(&g->tags, &answer->tags);
}

int mr__grant_preset(struct grant *g, const struct grant *from)
{
    const struct hook_answer answer = {.spec = from->spec,
                                       .tags = mr__tags_map(&from->tags),
                                       .slots = from->slots,
                                       .n_slots = from->n_slots};

    return mr__grant_merge(g, &answer);
}

void mr__grant_deinit(struct grant *g)
{
    for (size_t i = 0; i < g->n_slots; i++) {
        mr__free((char *)g->slots[i].key.s);
    }
    mr__free(g->slots);
    mr__tags_deinit(&g->tags);
    *g = (struct grant){.n_slots = 0};
}

void mr__refusal_full(struct refusal *why, struct str key)
{
    size_t n = 0;

    why->code = MR_CODE_FULL;
    for (; n < key.n && n < MR_SLOT_KEY_MAX; n++) {
        char c = key.s[n];
        bool is_fine = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
                       c == '-' || c == '/' || c == ':';
        why->reason[n] = is_fine ? c : '-';
    }
    why->reason[n] = '\0';
}
