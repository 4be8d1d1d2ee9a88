/* SPDX-License-Identifier: MIT */
/*
 * The rules by which the answers of a chain become one (see answer.h). Control thread
 * only. Start reading at mr__answer_merge().
 */
#include "script/answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void mr__answer_begin(struct merged_answer *all)
{
    all->answer = (struct hook_answer){
        .outcome = MR_HOOK_NO_OPINION, .tags = {all->tags, 0}, .slots = all->slots};
}

static bool is_same(struct str a, struct str b)
{
    return a.n == b.n && memcmp(a.s, b.s, a.n) == 0;
}

static size_t find_tag(const struct merged_answer *all, struct str key)
{
    size_t i = 0;

    while (i < all->answer.tags.n && !is_same(all->tags[i].key, key)) {
        i++;
    }
    return i;
}

static size_t find_slot(const struct merged_answer *all, struct str key)
{
    size_t i = 0;

    while (i < all->answer.n_slots && !is_same(all->slots[i].key, key)) {
        i++;
    }
    return i;
}

/* Counted before anything changes, so that an answer is merged whole or not at all. */
static int check_room(const struct merged_answer *all, const struct answer *one, char *why)
{
    size_t tags = all->answer.tags.n, slots = all->answer.n_slots;

    for (size_t i = 0; i < one->n_tags; i++) {
        tags += find_tag(all, one->tags[i].key) == all->answer.tags.n;
    }
    for (size_t i = 0; i < one->n_slots; i++) {
        slots += find_slot(all, one->slots[i].key) == all->answer.n_slots;
    }
    if (tags > MR_TAGS_MAX) {
        snprintf(why, ANSWER_WHY_MAX, "with it the chain sets %zu tags (at most %d)", tags,
                 MR_TAGS_MAX);
        return -E2BIG;
    }
    if (slots > MR_SLOTS_MAX) {
        snprintf(why, ANSWER_WHY_MAX, "with it the chain takes %zu slots (at most %d)", slots,
                 MR_SLOTS_MAX);
        return -E2BIG;
    }
    return 0;
}

static void merge_tag(struct merged_answer *all, const struct hook_pair *tag)
{
    size_t i = find_tag(all, tag->key);
    struct hook_pair *mine = &all->tags[i];

    if (i == all->answer.tags.n) {
        memcpy(all->tag_keys[i], tag->key.s, tag->key.n);
        mine->key = (struct str){all->tag_keys[i], tag->key.n};
        all->answer.tags.n++;
    }
    memcpy(all->tag_values[i], tag->value.s, tag->value.n);
    mine->value = (struct str){all->tag_values[i], tag->value.n};
}

static void merge_slot(struct merged_answer *all, const struct hook_slot *slot)
{
    size_t i = find_slot(all, slot->key);
    struct hook_slot *mine = &all->slots[i];

    if (i == all->answer.n_slots) {
        memcpy(all->slot_keys[i], slot->key.s, slot->key.n);
        mine->key = (struct str){all->slot_keys[i], slot->key.n};
        mine->max = slot->max;
        all->answer.n_slots++;
    } else if (slot->max < mine->max) {
        mine->max = slot->max;
    }
}

#define MERGE_SMALLER(all, one, has, field)                               \
    do {                                                                  \
        if ((one)->has && (!(all)->has || (one)->field < (all)->field)) { \
            (all)->has = true;                                            \
            (all)->field = (one)->field;                                  \
        }                                                                 \
    } while (0)

static void merge_spec(struct hook_spec *all, const struct hook_spec *one)
{
    MERGE_SMALLER(all, one, has_ttl, ttl_ns);
    MERGE_SMALLER(all, one, has_idle, idle_ns);
    MERGE_SMALLER(all, one, has_pps, pps);
    MERGE_SMALLER(all, one, has_bps, bps);
    MERGE_SMALLER(all, one, has_max_bytes, max_bytes);
    MERGE_SMALLER(all, one, has_hold_packets, hold_packets);
    MERGE_SMALLER(all, one, has_hold_bytes, hold_bytes);
    MERGE_SMALLER(all, one, has_hold_ns, hold_ns);
    if (one->target[0]) {
        memcpy(all->target, one->target, sizeof all->target);
    }
}

int mr__answer_merge(struct merged_answer *all, const struct answer *one, char why[ANSWER_WHY_MAX])
{
    int rc = check_room(all, one, why);

    if (rc != 0) {
        return rc;
    }
    all->answer.outcome = MR_HOOK_ADMIT;
    if (one->oid.n > 0) {
        memcpy(all->oid, one->oid.s, one->oid.n);
        all->answer.oid = (struct str){all->oid, one->oid.n};
    }
    if (one->has_takeover) {
        all->answer.takeover = one->takeover;
    }
    if (one->via != MR_VIA_NONE) {
        all->answer.via = one->via;
    }
    for (size_t i = 0; i < one->n_tags; i++) {
        merge_tag(all, &one->tags[i]);
    }
    for (size_t i = 0; i < one->n_slots; i++) {
        merge_slot(all, &one->slots[i]);
    }
    merge_spec(&all->answer.spec, &one->spec);
    if (one->address.family != 0) {
        all->answer.address = one->address;
    }
    return 0;
}
