/* SPDX-License-Identifier: MIT */
/*
 * Notices: what has happened is told to policies afterwards. Control thread. They are
 * copied and wait in a queue, since a block of a net may end thousands of sessions in a
 * turn and each telling may take a hook's budget of CPU; players' commands go in between.
 * Start reading at mr__notice_add().
 */
#include "service/state.h"

#include "base/alloc.h"

#include <string.h>

struct notice {
    struct list link;
    struct hook_event ev;
    struct hook_session sessions[3];
    struct hook_relay relay;
};

/* ---- copying ------------------------------------------------------------------------------- */

/* Pairs first, since they are aligned, then the bytes of all texts. at NULL: only counts. */
struct copier {
    struct hook_pair *pairs;
    char *text;
    size_t n_pairs, bytes;
};

static void copy_str(struct copier *c, struct str *s)
{
    c->bytes += s->n;
    if (c->text && s->n > 0) {
        memcpy(c->text, s->s, s->n);
        s->s = c->text;
        c->text += s->n;
    }
}

static void copy_map(struct copier *c, struct hook_map *map)
{
    struct hook_pair *pairs = c->pairs;

    c->n_pairs += map->n;
    if (pairs) {
        c->pairs += map->n;
    }
    for (size_t i = 0; i < map->n; i++) {
        struct hook_pair pair = map->items[i];
        copy_str(c, &pair.key);
        copy_str(c, &pair.value);
        if (pairs) {
            pairs[i] = pair;
        }
    }
    if (pairs) {
        map->items = pairs;
    }
}

static void copy_session(struct copier *c, const struct hook_session **from,
                         struct hook_session *to)
{
    struct hook_session copy;

    if (!*from) {
        return;
    }
    copy = **from;
    copy_str(c, &copy.oid);
    copy_map(c, &copy.tags);
    copy_map(c, &copy.meta);
    if (to) {
        *to = copy;
        *from = to;
    }
}

/* ev is a copy already; n: where what it points to goes, or NULL. */
static void copy_event(struct copier *c, struct hook_event *ev, struct notice *n)
{
    copy_str(c, &ev->reason);
    copy_str(c, &ev->oid);
    copy_str(c, &ev->mode);
    copy_str(c, &ev->via);
    copy_map(c, &ev->tags);
    copy_map(c, &ev->meta);
    copy_session(c, &ev->session, n ? &n->sessions[0] : NULL);
    copy_session(c, &ev->from, n ? &n->sessions[1] : NULL);
    copy_session(c, &ev->to, n ? &n->sessions[2] : NULL);
    if (ev->relay) {
        struct hook_relay relay = *ev->relay;
        copy_map(c, &relay.tags);
        if (n) {
            n->relay = relay;
            ev->relay = &n->relay;
        }
    }
}

static struct notice *make_notice(const struct hook_event *ev)
{
    struct hook_event copy = *ev;
    struct copier c = {.text = NULL};

    copy_event(&c, &copy, NULL);
    struct notice *n = mr__alloc(1, sizeof *n + c.n_pairs * sizeof(struct hook_pair) + c.bytes + 1);
    if (n) {
        n->ev = *ev;
        c.pairs = (struct hook_pair *)(n + 1);
        c.text = (char *)(c.pairs + c.n_pairs);
        copy_event(&c, &n->ev, n);
    }
    return n;
}

/* ---- telling ------------------------------------------------------------------------------- */

static struct notice *take_first(struct service *s)
{
    struct notice *n = MR_CONTAINER(s->notices.next, struct notice, link);

    mr__list_remove(&n->link);
    s->n_notices--;
    return n;
}

static void tell_one(struct service *s, struct task *task)
{
    if (mr__list_is_empty(&s->notices)) {
        return;
    }
    struct notice *n = take_first(s);
    if (!mr__list_is_empty(&s->notices)) {
        mr__task_ready(s, task);
    }
    if (mr__ask_is_wanted(s, n->ev.hook)) {
        s->asked++;
        s->hooks->tell(s->hooks->self, &n->ev);
    }
    mr__free(n);
}

void mr__notice_add(struct service *s, struct hook_event *ev)
{
    if (s->is_over || !mr__ask_is_wanted(s, ev->hook)) {
        return;
    }
    mr__notice_fill(s, ev);
    struct notice *n = s->n_notices < MR_NOTICES_MAX ? make_notice(ev) : NULL;
    if (!n) {
        s->figures.notices_lost++;
        MR_JOURNAL(s, MR_JOURNAL_NOTICE, MR_LOG_WARN, "policy",
                   "a notice was lost: too many wait to be told",
                   LOG_UINT("waiting", s->n_notices));
        return;
    }
    mr__list_push_back(&s->notices, &n->link);
    if (s->n_notices++ == 0) {
        mr__task_ready(s, &s->notice_task);
    }
}

void mr__notices_init(struct service *s)
{
    mr__list_init(&s->notices);
    mr__list_init(&s->notice_task.link);
    s->notice_task.run = tell_one;
}

void mr__notices_destroy(struct service *s)
{
    mr__list_remove(&s->notice_task.link);
    while (!mr__list_is_empty(&s->notices)) {
        mr__free(take_first(s));
    }
}
