/* SPDX-License-Identifier: MIT */
/*
 * See event_copy.h. One block of memory: it is gone through twice, first to measure,
 * then to fill, by the same code, so that the two cannot differ.
 */
#include "script/event_copy.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

/* Where the next piece goes; base NULL: only measuring. */
struct block {
    char *base;
    size_t used;
};

static void *take(struct block *b, const void *from, size_t n)
{
    size_t align = alignof(max_align_t), at = (b->used + align - 1) / align * align;

    b->used = at + n;
    if (!b->base) {
        return NULL;
    }
    if (n > 0) {
        memcpy(b->base + at, from, n);
    }
    return b->base + at;
}

static void take_str(struct block *b, struct str *s)
{
    size_t at = b->used;

    b->used += s->n;
    if (b->base) {
        if (s->n > 0) {
            memcpy(b->base + at, s->s, s->n);
        }
        s->s = b->base + at;
    }
}

static void take_map(struct block *b, struct hook_map *map)
{
    struct hook_pair *items = take(b, map->items, map->n * sizeof(map->items[0]));

    for (size_t i = 0; i < map->n; i++) {
        struct hook_pair measured = map->items[i], *item = items ? &items[i] : &measured;

        take_str(b, &item->key);
        take_str(b, &item->value);
    }
    map->items = items;
}

static void take_session(struct block *b, const struct hook_session **session)
{
    struct hook_session *s, measured;

    if (!*session) {
        return;
    }
    s = take(b, *session, sizeof *s);
    if (!s) {
        measured = **session;
        s = &measured;
    }
    take_str(b, &s->oid);
    take_map(b, &s->tags);
    take_map(b, &s->meta);
    *session = b->base ? s : *session;
}

static void take_relay(struct block *b, const struct hook_relay **relay)
{
    struct hook_relay *r, measured;

    if (!*relay) {
        return;
    }
    r = take(b, *relay, sizeof *r);
    if (!r) {
        measured = **relay;
        r = &measured;
    }
    take_map(b, &r->tags);
    *relay = b->base ? r : *relay;
}

/* Puts what ev borrows into the block and lets ev borrow from there. */
static void take_event(struct block *b, struct hook_event *ev)
{
    const uint8_t *peek;

    take_str(b, &ev->reason);
    take_map(b, &ev->tags);
    take_map(b, &ev->meta);
    take_session(b, &ev->session);
    take_session(b, &ev->peer);
    take_session(b, &ev->from);
    take_session(b, &ev->to);
    take_str(b, &ev->oid);
    take_str(b, &ev->mode);
    take_str(b, &ev->via);
    take_str(b, &ev->host);
    take_relay(b, &ev->relay);
    take_relay(b, &ev->target);
    peek = take(b, ev->peek, ev->peek_n);
    ev->peek = ev->peek_n > 0 ? peek : NULL;
}

struct event_copy *mr__event_copy(const struct hook_event *ev)
{
    struct block block = {.base = NULL, .used = sizeof(struct event_copy)};
    struct hook_event measured = *ev;
    struct event_copy *c;
    size_t n;

    take_event(&block, &measured);
    n = block.used;
    c = mr__alloc(n, 1);
    if (!c) {
        return NULL;
    }
    c->refs = 1;
    c->ev = *ev;
    block = (struct block){.base = (char *)c, .used = sizeof *c};
    take_event(&block, &c->ev);
    assert(block.used == n);
    return c;
}

struct event_copy *mr__event_copy_ref(struct event_copy *c)
{
    c->refs++;
    return c;
}

void mr__event_copy_unref(struct event_copy *c)
{
    if (c && --c->refs == 0) {
        mr__free(c);
    }
}
