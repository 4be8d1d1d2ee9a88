/* SPDX-License-Identifier: MIT */
/*
 * Datagrams that arrive at relay ports (bench.h). One thread. A test wants every one of
 * them asked about, so what the data plane would do by itself is taken out of the way:
 * of a known sender the pair is undone until the answer is there, and what is muted is
 * asked about as if it were not. All else is the engine's own: it holds, replays, counts.
 */
#include "module/bench.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

/* ---- who it is ------------------------------------------------------------------------------- */

static struct stranger *find_stranger(struct bench *b, const struct mr_addr *from, uint32_t port)
{
    struct stranger *s = b->strangers;

    while (s && !(s->port == port && mr_addr_equal(&s->from, from))) {
        s = s->next;
    }
    if (!s) {
        s = mr__alloc(1, sizeof *s);
        if (s) {
            s->from = *from;
            s->port = port;
            s->reason = MR_VERDICT_UNKNOWN_SENDER;
            s->next = b->strangers;
            b->strangers = s;
        }
    }
    return s;
}

static int find_port(const struct bench *b, uint16_t number, uint32_t *port)
{
    struct mr_port_info info;

    for (uint32_t i = 0; i < b->max_ports; i++) {
        if (mr_port_info(b->mr, i, &info) == 0 && info.local.port == number) {
            *port = i;
            return 0;
        }
    }
    return -ENOENT;
}

/* ---- what happens ---------------------------------------------------------------------------- */

void mr__bench_look(struct bench *b, struct mr_event *ev)
{
    struct stranger *s = b->knocking;

    if (ev->type != MR_EVENT_MISS || !s || ev->u.miss.port != s->port ||
        !mr_addr_equal(&ev->u.miss.from, &s->from)) {
        return;
    }
    if (s->pair[0] != 0) {
        ev->u.miss.reason = s->reason; /* not that he was taken apart from his partner */
    }
    s->reason = ev->u.miss.reason;
    s->flow = ev->u.miss.flow;
    s->state = STRANGER_ASKED;
}

static void tell_relay(struct bench *b, struct happening *h, unsigned i, mr_relay_id id)
{
    char text[32];

    if (id != 0) {
        size_t n = mr_relay_format(b->mr, id, text, sizeof text);
        mr__happening_text(&b->happenings, h, i, (struct str){text, n});
    }
}

static void tell_outcome(struct bench *b, struct happening *h, const struct service_outcome *o)
{
    if (o->code) {
        mr__happening_text(&b->happenings, h, 0, (struct str){o->code, strlen(o->code)});
    }
    mr__happening_text(&b->happenings, h, 1, (struct str){o->reason, strlen(o->reason)});
}

static mr_relay_id relay_at(const struct bench *b, uint16_t number)
{
    uint32_t port;

    return number != 0 && find_port(b, number, &port) == 0 ? mr_relay_at(b->mr, port) : 0;
}

static void command_ended(struct bench *b, const struct service_outcome *o)
{
    struct happening *h = mr__happening_add(&b->happenings, HAPPENED_COMMAND);

    if (h) {
        h->id = o->conn;
        h->number = o->session;
        h->is_relayed = o->client_port != 0; /* the relay may have ended already */
    }
    tell_outcome(b, h, o);
    tell_relay(b, h, 2, relay_at(b, o->host_port));
    tell_relay(b, h, 3, relay_at(b, o->client_port));
}

static void tell_grant(struct bench *b, struct happening *h, const struct service_outcome *o)
{
    if (!h || !o->spec) {
        return;
    }
    h->has_spec = true;
    h->spec = *o->spec;
    for (size_t i = 0; i < o->tags.n; i++) {
        mr__happening_pair(&b->happenings, h, &h->fields, o->tags.items[i].key,
                           o->tags.items[i].value);
    }
    for (size_t i = 0; i < o->n_slots; i++) {
        mr__happening_field(&b->happenings, h, &h->slots,
                            &LOG_UINT(o->slots[i].key.s, o->slots[i].max));
    }
}

static void knock_ended(struct bench *b, const struct service_outcome *o)
{
    struct happening *h = mr__happening_add(&b->happenings, HAPPENED_KNOCK);
    struct mr_relay_info info;

    for (struct stranger *s = b->strangers; s; s = s->next) {
        if (s->state == STRANGER_ASKED && s->flow == o->flow) {
            s->state = o->code ? STRANGER_REFUSED : STRANGER_ADMITTED;
        }
    }
    if (h) {
        h->id = o->flow;
        h->number = mr_relay_info(b->mr, o->relay, &info) == 0 ? info.counts.packets_in : 0;
    }
    tell_outcome(b, h, o);
    tell_relay(b, h, 2, o->relay);
    tell_grant(b, h, o);
}

void mr__bench_ended(void *user, const struct service_outcome *o)
{
    if (o->conn != 0) {
        command_ended(user, o);
    } else {
        knock_ended(user, o);
    }
}

/* ---- putting datagrams in -------------------------------------------------------------------- */

static void forget_data(struct stranger *s)
{
    mr__free(s->data);
    s->data = NULL;
    s->data_n = 0;
}

/* What a muted sender sent follows his admission. */
static void put_in_kept(struct bench *b, struct stranger *s)
{
    for (size_t at = 0; at < s->data_n;) {
        uint32_t n;

        memcpy(&n, s->data + at, sizeof n);
        at += sizeof n;
        if (mr_inject(b->mr, s->port, &s->from, s->data + at, n) < 0) {
            b->happenings.is_short = true;
        }
        at += n;
    }
    forget_data(s);
}

/* They are a pair again: the partner's leg is as it was. The sender has spoken. */
static void restore_leg(struct bench *b, struct stranger *s)
{
    if (s->pair[0] != 0 && s->is_partner_fresh &&
        mr_pair_watch(b->mr, s->pair[1], s->pair[0]) == 0 && s->partner_seen.family != 0 &&
        mr_pair_latch(b->mr, s->pair[1], s->pair[0], &s->partner_seen) < 0) {
        s->partner_seen.family = 0; /* the address is somebody's by now */
    }
    s->pair[0] = s->pair[1] = 0;
}

static void rejoin(struct bench *b, struct stranger *s)
{
    if (s->pair[0] != 0 && mr_pair(b->mr, s->pair[0], s->pair[1]) < 0) {
        s->pair[0] = 0; /* one of them has ended meanwhile */
    }
    restore_leg(b, s);
}

void mr__bench_after(struct bench *b)
{
    for (struct stranger *s = b->strangers; s; s = s->next) {
        if (s->state == STRANGER_ADMITTED) {
            restore_leg(b, s);
            put_in_kept(b, s);
            s->state = STRANGER_REST;
        } else if (s->state == STRANGER_REFUSED) {
            rejoin(b, s);
            forget_data(s);
            s->state = STRANGER_REST;
        }
    }
}

static void part(struct bench *b, struct stranger *s)
{
    mr_relay_id sender = mr_relay_of(b->mr, &s->from), target = mr_relay_at(b->mr, s->port);

    s->is_partner_fresh = mr_pair_is_fresh(b->mr, target, sender) == 1;
    s->partner_seen = (struct mr_addr){.family = 0};
    (void)mr_pair_latched(b->mr, target, sender, &s->partner_seen);
    if (sender != 0 && target != 0 && mr_is_paired(b->mr, sender, target) == 1 &&
        mr_unpair(b->mr, sender, target) == 0) {
        s->pair[0] = sender;
        s->pair[1] = target;
    }
}

/* Asks as the engine would if it had not been told to ask no more. */
static void ask_anew(struct bench *b, struct stranger *s, struct str data)
{
    struct mr_event ev = {.type = MR_EVENT_MISS};
    size_t n = data.n < MR_PEEK_MAX ? data.n : MR_PEEK_MAX;

    ev.u.miss.flow = s->flow;
    ev.u.miss.from = s->from;
    ev.u.miss.port = s->port;
    ev.u.miss.reason = s->reason;
    ev.u.miss.size = (uint32_t)data.n;
    memcpy(ev.u.miss.peek, n > 0 ? data.s : "", n);
    s->state = STRANGER_ASKED;
    mr__service_engine_event(b->service, &ev, b->now_ns);
}

static int keep(struct stranger *s, const struct str *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t size = (uint32_t)data[i].n;
        char *grown = mr__realloc(s->data, s->data_n + sizeof size + size, 1);

        if (!grown) {
            return -ENOMEM;
        }
        memcpy(grown + s->data_n, &size, sizeof size);
        memcpy(grown + s->data_n + sizeof size, size > 0 ? data[i].s : "", size);
        s->data = grown;
        s->data_n += sizeof size + size;
    }
    return 0;
}

/* Whether these are datagrams of a flow that the engine asks no more about for a while. */
static bool is_muted(const struct stranger *s, enum mr_verdict v)
{
    return s->flow != 0 && (v == s->reason || v == MR_VERDICT_MUTED || v == MR_VERDICT_REFUSED ||
                            v == MR_VERDICT_BLOCKED);
}

static enum mr_verdict what_became(const struct mr_stats *before, const struct mr_stats *after)
{
    for (int v = MR_VERDICT_COUNT - 1; v > MR_VERDICT_FORWARD; v--) {
        if (v != MR_VERDICT_HOLD_FULL && after->verdicts[v] > before->verdicts[v]) {
            return (enum mr_verdict)v;
        }
    }
    return MR_VERDICT_FORWARD;
}

static int put_in(struct bench *b, struct stranger *s, const struct str *data, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = mr_inject(b->mr, s->port, &s->from, data[i].n > 0 ? data[i].s : "", data[i].n);
    }
    b->knocking = s;
    if (rc == 0) {
        rc = mr__bench_settle(b);
    }
    b->knocking = NULL;
    return rc;
}

int mr__bench_knock(struct bench *b, const struct mr_addr *from, uint16_t port,
                    const struct str *data, size_t n, struct bench_knock *out)
{
    struct mr_stats before, after;
    struct stranger *s;
    uint32_t index;
    int rc = find_port(b, port, &index);

    *out = (struct bench_knock){.flow = 0};
    if (rc < 0) {
        return rc;
    }
    s = find_stranger(b, from, index);
    if (!s) {
        return -ENOMEM;
    }
    mr_flow_id last = s->flow;
    bool was_asked = s->state == STRANGER_ASKED;
    if (!was_asked) {
        part(b, s);
    }
    if ((rc = mr_get_stats(b->mr, &before, sizeof before)) < 0 ||
        (rc = put_in(b, s, data, n)) < 0 || (rc = mr_get_stats(b->mr, &after, sizeof after)) < 0) {
        return rc;
    }
    out->verdict = what_became(&before, &after);
    out->overflow =
        (uint32_t)(after.verdicts[MR_VERDICT_HOLD_FULL] - before.verdicts[MR_VERDICT_HOLD_FULL]);
    if (s->flow == last && is_muted(s, out->verdict)) {
        if ((rc = keep(s, data, n)) < 0) {
            return rc;
        }
        if (!was_asked) {
            ask_anew(b, s, data[0]);
        }
        rc = mr__bench_settle(b);
    }
    if (s->flow != last || was_asked || is_muted(s, out->verdict)) {
        out->flow = s->flow;
    } else {
        rejoin(b, s);
    }
    return rc;
}

void mr__bench_strangers_deinit(struct bench *b)
{
    for (struct stranger *s = b->strangers, *next; s; s = next) {
        next = s->next;
        forget_data(s);
        mr__free(s);
    }
}
