/* SPDX-License-Identifier: MIT */
/*
 * See view.h. Sessions come in the order of their ids, which are never used again, so an
 * id is a cursor. Relays come in the order in which they were made. Blocks have no name, so
 * their cursor is how many came before.
 */
#include "control/view.h"

#include "base/alloc.h"
#include "core/address.h"
#include "service/blocks.h"
#include "service/players.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct page {
    json_t *items;
    size_t limit;
    uint64_t after;   /* sessions: id; blocks: how many are skipped */
    double since;     /* relays */
    struct str relay; /* skipped up to it; n = 0: nothing is skipped */
    uint64_t seen;    /* blocks */
    bool is_complete, has_more;
    char next[96];
};

json_t *mr__view_text(struct str s)
{
    json_t *v = json_stringn(s.n > 0 ? s.s : "", s.n);
    char *copy;

    if (v || s.n == 0) {
        return v;
    }
    copy = mr__strndup(s.s, s.n);
    if (!copy) {
        return NULL;
    }
    for (size_t i = 0; i < s.n; i++) {
        copy[i] = (unsigned char)copy[i] < 0x80 ? copy[i] : '?';
    }
    v = json_stringn(copy, s.n);
    mr__free(copy);
    return v;
}

static json_t *address(const struct mr_addr *a)
{
    char text[MR_ADDR_TEXT_MAX];

    if (a->family == 0) {
        return json_null();
    }
    mr_addr_format(a, text, sizeof text);
    return json_string(text);
}

static json_t *tags_of(struct hook_map tags)
{
    json_t *v = json_object();

    for (size_t i = 0; v && i < tags.n; i++) {
        const struct hook_pair *t = &tags.items[i];
        char key[MR_KEY_MAX + 1];

        snprintf(key, sizeof key, "%.*s", (int)t->key.n, t->key.s);
        json_object_set_new(v, key, mr__view_text(t->value));
    }
    return v;
}

static json_t *id_text(uint64_t id)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)id);
    return json_string(text);
}

/* Takes v, and the page's word for it that there is room. False: the page is full. */
static bool add(struct page *p, json_t *v)
{
    if (!v || json_array_append_new(p->items, v) < 0) {
        p->is_complete = false;
        return false;
    }
    return true;
}

static bool is_full(struct page *p)
{
    if (json_array_size(p->items) < p->limit) {
        return false;
    }
    p->has_more = true;
    return true;
}

/* ---- sessions ---------------------------------------------------------------------------- */

static bool visit_session(void *user, const struct hook_session *s)
{
    struct page *p = user;
    char ip[MR_ADDR_TEXT_MAX], net[MR_ADDR_TEXT_MAX];

    if (s->id <= p->after) {
        return true;
    }
    if (is_full(p)) {
        return false;
    }
    snprintf(p->next, sizeof p->next, "%llu", (unsigned long long)s->id);
    mr_addr_format_ip(&s->tcp, ip, sizeof ip);
    mr_addr_format_net(&s->tcp, net, sizeof net);
    return add(p, json_pack("{s:o, s:o, s:s, s:s, s:o, s:o, s:f, s:i}", "id", id_text(s->id), "oid",
                            mr__view_text(s->oid), "ip", ip, "net", net, "addr", address(&s->addr),
                            "tags", tags_of(s->tags), "since", s->since, "joins", (int)s->joins));
}

/* ---- relays ------------------------------------------------------------------------------ */

/* Skips what was on earlier pages. The relay that ended the last one may have ended
 * itself; then all of its moment come, rather twice than never. */
static bool was_before(struct page *p, const struct hook_relay *r)
{
    if (p->relay.n > 0) {
        if (strlen(r->text) == p->relay.n && memcmp(r->text, p->relay.s, p->relay.n) == 0) {
            p->relay.n = 0;
        }
        return true;
    }
    return r->since < p->since;
}

static bool visit_relay(void *user, const struct hook_relay *r)
{
    struct page *p = user;

    if (was_before(p, r)) {
        return true;
    }
    if (is_full(p)) {
        return false;
    }
    snprintf(p->next, sizeof p->next, "%.17g/%s", r->since, r->text);
    return add(
        p, json_pack("{s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "id",
                     r->text, "kind", r->kind, "port", (int)r->port, "addr", address(&r->addr),
                     "target", address(&r->dest), "session",
                     r->session ? id_text(r->session) : json_null(), "tags", tags_of(r->tags),
                     "since", r->since, "age", r->age, "packets_in", (json_int_t)r->packets_in,
                     "packets_out", (json_int_t)r->packets_out, "bytes_in", (json_int_t)r->bytes_in,
                     "bytes_out", (json_int_t)r->bytes_out, "drops", (json_int_t)r->drops));
}

/* ---- blocks ------------------------------------------------------------------------------ */

static bool visit_block(void *user, const struct block_view *b)
{
    struct page *p = user;
    char what[1024] = "";

    if (p->seen++ < p->after) {
        return true;
    }
    if (is_full(p)) {
        return false;
    }
    snprintf(p->next, sizeof p->next, "%llu", (unsigned long long)p->seen);
    if (b->is_list) {
        return add(p, json_pack("{s:I, s:o, s:o}", "nets", (json_int_t)b->nets, "by",
                                mr__view_text(b->by), "reason", mr__view_text(b->reason)));
    }
    mr__block_format(&b->what, what, sizeof what);
    return add(p, json_pack("{s:o, s:o, s:o, s:o}", "what",
                            mr__view_text((struct str){what, strlen(what)}), "seconds_left",
                            isfinite(b->seconds_left) ? json_real(b->seconds_left) : json_null(),
                            "by", mr__view_text(b->by), "reason", mr__view_text(b->reason)));
}

/* ---- pages ------------------------------------------------------------------------------- */

static json_t *finish(struct page *p, const char *name)
{
    if (!p->is_complete) {
        json_decref(p->items);
        return NULL;
    }
    return json_pack("{s:o, s:o}", name, p->items, "next",
                     p->has_more ? json_string(p->next) : json_null());
}

static struct page begin(size_t limit, struct str after)
{
    char text[24];

    snprintf(text, sizeof text, "%.*s", (int)after.n, after.s ? after.s : "");
    return (struct page){.items = json_array(),
                         .limit = limit,
                         .after = strtoull(text, NULL, 10),
                         .is_complete = true};
}

json_t *mr__view_sessions(const struct service *s, size_t limit, struct str after)
{
    struct page p = begin(limit, after);

    if (!p.items) {
        return NULL;
    }
    mr__players_sessions(s, (struct hook_map){NULL, 0}, visit_session, &p);
    return finish(&p, "sessions");
}

json_t *mr__view_blocks(const struct service *s, size_t limit, struct str after)
{
    struct page p = begin(limit, after);

    if (!p.items) {
        return NULL;
    }
    mr__blocks_each(s, visit_block, &p);
    return finish(&p, "blocks");
}

json_t *mr__view_relays(const struct service *s, size_t limit, struct str after)
{
    struct page p = {.items = json_array(), .limit = limit, .is_complete = true};
    const char *slash = after.n > 0 ? memchr(after.s, '/', after.n) : NULL;
    struct hook_relay found;
    char text[64];

    if (!p.items) {
        return NULL;
    }
    if (slash) {
        snprintf(text, sizeof text, "%.*s", (int)(slash - after.s), after.s);
        p.since = strtod(text, NULL);
        p.relay = (struct str){slash + 1, after.n - (size_t)(slash + 1 - after.s)};
        p.relay.n = mr__players_relay(s, p.relay, &found) ? p.relay.n : 0;
    }
    mr__players_relays(s, (struct hook_map){NULL, 0}, visit_relay, &p);
    if (p.relay.n > 0) {
        p.relay.n = 0; /* it is just ending and was not shown */
        mr__players_relays(s, (struct hook_map){NULL, 0}, visit_relay, &p);
    }
    return finish(&p, "relays");
}
