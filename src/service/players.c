/* SPDX-License-Identifier: MIT */
/*
 * See players.h. Control thread. Nothing here runs a turn: a script may be on the stack,
 * inside of a turn or (after a wait) outside of one, so what must end is marked and ends
 * when the turn is over, or in the next one, for which mr__service_deadline() asks.
 */
#include "service/players.h"

#include "service/state.h"

#include <errno.h>
#include <string.h>

enum { WORD_MAX = 128 };

/* ---- looking ------------------------------------------------------------------------------- */

static bool has_tag(const struct tags *tags, const struct hook_pair *tag)
{
    for (size_t i = 0; i < tags->n; i++) {
        const struct hook_pair *t = &tags->items[i];
        if (t->key.n == tag->key.n && t->value.n == tag->value.n &&
            (t->key.n == 0 || memcmp(t->key.s, tag->key.s, t->key.n) == 0) &&
            (t->value.n == 0 || memcmp(t->value.s, tag->value.s, t->value.n) == 0)) {
            return true;
        }
    }
    return false;
}

bool mr__tags_have(const struct tags *tags, struct hook_map wanted)
{
    for (size_t i = 0; i < wanted.n; i++) {
        if (!has_tag(tags, &wanted.items[i])) {
            return false;
        }
    }
    return true;
}

void mr__players_sessions(const struct service *s, struct hook_map tags,
                          bool (*visit)(void *user, const struct hook_session *v), void *user)
{
    for (const struct list *l = s->all_sessions.next; l != &s->all_sessions; l = l->next) {
        const struct session *p = MR_CONTAINER(l, struct session, at_all);
        struct hook_session view;

        if (p->is_ending || !mr__tags_have(&p->tags, tags)) {
            continue;
        }
        mr__session_view(p, &view);
        if (!visit(user, &view)) {
            return;
        }
    }
}

/* An id as it is written: no sign, no zeros in front. 0: it is none. */
static uint64_t parse_id(struct str text)
{
    uint64_t id = 0;

    if (text.n == 0 || text.n > 19 || text.s[0] == '0') {
        return 0;
    }
    for (size_t i = 0; i < text.n; i++) {
        if (text.s[i] < '0' || text.s[i] > '9') {
            return 0;
        }
        id = id * 10 + (uint64_t)(text.s[i] - '0');
    }
    return id;
}

bool mr__players_session(const struct service *s, struct str id_or_oid, struct hook_session *out)
{
    const struct session *p = mr__session_find(s, parse_id(id_or_oid));

    if (!p) {
        p = mr__session_by_oid(s, id_or_oid.s, id_or_oid.n);
    }
    if (p) {
        mr__session_view(p, out);
    }
    return p != NULL;
}

void mr__players_relays(const struct service *s, struct hook_map tags,
                        bool (*visit)(void *user, const struct hook_relay *v), void *user)
{
    for (const struct list *l = s->pool.used.next; l != &s->pool.used; l = l->next) {
        const struct seat *seat = MR_CONTAINER(l, struct seat, used);
        struct hook_relay view;

        if (seat->is_closing || !mr__tags_have(&seat->tags, tags)) {
            continue;
        }
        mr__seat_view(s, seat, &view);
        if (!visit(user, &view)) {
            return;
        }
    }
}

static struct seat *find_relay(const struct service *s, struct str text)
{
    return text.n > 0 ? mr__seat_of_relay(s, mr_relay_parse(s->mr, text.s, text.n)) : NULL;
}

bool mr__players_relay(const struct service *s, struct str text, struct hook_relay *out)
{
    const struct seat *seat = find_relay(s, text);

    if (seat) {
        mr__seat_view(s, seat, out);
    }
    return seat != NULL;
}

/* ---- doing --------------------------------------------------------------------------------- */

void mr__reason_clean(char out[MR_REASON_MAX + 1], struct str reason, const char *preset)
{
    size_t n = reason.n < MR_REASON_MAX ? reason.n : MR_REASON_MAX;

    if (n == 0) {
        reason.s = preset;
        n = strlen(preset);
    }
    for (size_t i = 0; i < n; i++) {
        char c = reason.s[i];
        bool is_fine =
            (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        out[i] = is_fine ? c : '-';
    }
    out[n] = '\0';
}

int mr__players_kick(struct service *s, uint64_t session, struct str reason)
{
    struct session *p = mr__session_find(s, session);
    char word[MR_REASON_MAX + 1];

    if (!p) {
        return -ENOENT;
    }
    mr__reason_clean(word, reason, "kicked");
    mr__session_end_soon(s, p, MR_SESSION_KICKED, word);
    MR_JOURNAL(s, MR_JOURNAL_SESSION, MR_LOG_INFO, "session", "kicked", LOG_UINT("session", p->id),
               LOG_STRN("oid", p->oid, p->oid_n), LOG_STR("reason", word));
    return 0;
}

int mr__players_close(struct service *s, struct str relay, struct str reason)
{
    struct seat *seat = find_relay(s, relay);
    char word[MR_REASON_MAX + 1];

    if (!seat) {
        return -ENOENT;
    }
    mr__reason_clean(word, reason, "closed");
    mr__seat_close(s, seat, MR_SEAT_END_API);
    MR_JOURNAL(s, MR_JOURNAL_RELAY, MR_LOG_INFO, "relay", "closed", LOG_STR("relay", seat->text),
               LOG_STR("reason", word));
    return 0;
}

int mr__players_notify(struct service *s, uint64_t session, struct str word)
{
    const struct session *p = mr__session_find(s, session);

    if (word.n == 0 || word.n > WORD_MAX) {
        return -EINVAL;
    }
    for (size_t i = 0; i < word.n; i++) {
        if (word.s[i] < 0x21 || word.s[i] > 0x7e) {
            return -EINVAL;
        }
    }
    if (!p) {
        return -ENOENT;
    }
    if (mr__settings_values(s->settings)->errors) {
        mr__connection_say(s, p->connection, "notice %.*s", (int)word.n, word.s);
    }
    return 0;
}

struct stores *mr__service_stores(struct service *s)
{
    return s->stores;
}
