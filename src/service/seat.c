/* SPDX-License-Identifier: MIT */
/*
 * Relays as the service sees them: a seat is a port of ours and, while it is used, the
 * relay that has it, whose it is and what it holds. Control thread. Start reading at
 * mr__seat_open() and mr__seat_ended(): everything a relay takes is given back there.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *mr__seat_kind_name(enum seat_kind kind)
{
    static const char *const names[] = {
#define X(constant, name) name,
        MR_SEAT_KINDS(X)
#undef X
    };

    return names[kind];
}

struct seat *mr__seat_of_relay(const struct service *s, mr_relay_id id)
{
    struct mr_relay_info info;

    if (id == 0 || mr_relay_info(s->mr, id, &info) < 0) {
        return NULL;
    }
    struct seat *seat = mr__pool_seat(s, info.port);
    return seat && seat->state == MR_SEAT_USED && seat->relay == id && !seat->is_closing ? seat
                                                                                         : NULL;
}

struct seat *mr__seat_of_session(const struct service *s, const struct session *p)
{
    struct mr_relay_info info;

    if (p->addr.family == 0) {
        return NULL;
    }
    if (p->relay && mr_relay_info(s->mr, p->relay, &info) == 0 &&
        mr_addr_equal(&info.peer, &p->addr)) {
        return mr__seat_of_relay(s, p->relay);
    }
    return mr__seat_of_relay(s, mr_relay_of(s->mr, &p->addr));
}

/* ---- opening ------------------------------------------------------------------------------- */

static struct mr_relay_limits limits_of(const struct hook_spec *spec)
{
    return (struct mr_relay_limits){
        .bytes_per_s = spec->has_bps ? spec->bps : 0,
        .packets_per_s = spec->has_pps ? spec->pps : 0,
        .max_bytes = spec->has_max_bytes ? spec->max_bytes : 0,
        .ttl_ns = spec->has_ttl ? spec->ttl_ns : 0,
        .idle_ns = spec->has_idle ? spec->idle_ns : 0,
    };
}

/* Whether its address may be a victim's: a source is easily forged, the registrar's as well as a
 * stranger's, a TCP connection is not. What a script opens, the script vouches for. */
static bool is_in_doubt(const struct service *s, const struct seat_request *req)
{
    switch (req->kind) {
    case MR_SEAT_PLAYER:
        return !mr__session_vouches(s, req->peer);
    case MR_SEAT_DYNAMIC:
        return req->target && !mr__known_vouches(s, req->peer);
    default:
        return false;
    }
}

static int create_relay(struct service *s, const struct seat_request *req, struct seat *seat)
{
    struct mr_relay_spec spec;

    if (req->kind == MR_SEAT_TARGET && seat->port == req->entry) {
        return -EBUSY; /* it comes in there, and would go round */
    }
    mr_relay_spec_init(&spec, sizeof spec);
    spec.port = seat->port;
    spec.peer = *req->peer;
    spec.local = *req->local;
    spec.user = req->owner;
    spec.limits = limits_of(&req->grant->spec);
    if (req->kind == MR_SEAT_TARGET) {
        spec.flags = MR_RELAY_LINKED;
    } else if (is_in_doubt(s, req)) {
        spec.flags = MR_RELAY_UNPROVEN;
    }

    int rc = mr_relay_create(s->mr, &spec, &seat->relay);
    if (rc == 0 && req->kind != MR_SEAT_TARGET && mr_pair(s->mr, seat->relay, seat->relay) < 0) {
        /* A peer gets back what it sends to its own port. Where pairs have run out this is the one
         * that can be missed. */
        MR_JOURNAL(s, MR_JOURNAL_RELAY, MR_LOG_WARN, "relay", "no room for the echo of a relay",
                   LOG_UINT("port", seat->number));
    }
    return rc;
}

static void count_in(struct service *s, const struct seat_request *req, struct seat *seat)
{
    seat->kind = req->kind;
    s->pool.n_kind[req->kind]++;
    if (req->kind == MR_SEAT_TARGET) {
        seat->peer = *req->peer;
        seat->dest = *req->dest;
        seat->entry = req->entry;
        mr__entry_count(s, req->entry);
    }
}

/* Fills a seat whose relay exists. */
static void occupy(struct service *s, const struct seat_request *req, struct seat *seat)
{
    seat->is_closing = false;
    seat->is_announced = false;
    mr__list_push_back(&s->pool.used, &seat->used);
    seat->since = mr__wall(s);
    seat->dynamics_to_me = 0;
    seat->tags = req->grant->tags;
    req->grant->tags = (struct tags){.n = 0};
    mr_relay_format(s->mr, seat->relay, seat->text, sizeof seat->text);
    count_in(s, req, seat);
    /* Flows that came in here while the port was free. */
    mr__targets_end_at(s, seat->port);
    struct session *p = mr__session_find(s, req->owner);
    mr__seat_own(s, seat, p);
    if (p) {
        p->relay = seat->relay;
    }
}

void mr__seat_announce(struct service *s, struct seat *seat, const char *reason)
{
    char buf[MR_ADDR_TEXT_MAX];
    const struct session *p = mr__session_find(s, seat->owner);
    struct hook_session session;
    struct hook_relay relay;
    struct hook_event ev = {
        .hook = MR_HOOK_CREATED,
        .reason = {reason, strlen(reason)},
        .session = p ? &session : NULL,
        .relay = &relay,
    };

    if (s->is_stopping) {
        return; /* the ends of all have been told, and nobody would hear of this one's */
    }
    seat->is_announced = true;
    mr__seat_view(s, seat, &relay);
    ev.addr = relay.addr;
    if (p) {
        mr__session_view(p, &session);
    }
    mr__notice_add(s, &ev);
    MR_JOURNAL(s, MR_JOURNAL_RELAY, MR_LOG_INFO, "relay", "relay created",
               LOG_STR("relay", seat->text), LOG_UINT("port", seat->number),
               LOG_STR("peer", mr__journal_address(s, buf, &relay.addr)),
               LOG_STR("kind", mr__seat_kind_name(seat->kind)));
}

/*
 * Takes another port when the engine still has the last relay of the one it got (a port
 * taken out of its quarantine early): that port goes to the back of the queue.
 */
static int take_port(struct service *s, const struct seat_request *req, struct seat **out)
{
    size_t tries = mr__pool_free(s);
    int rc = -ENOSPC;

    while (tries-- > 0) {
        struct seat *seat = mr__pool_take(s);
        if (!seat) {
            return -ENOSPC;
        }
        rc = create_relay(s, req, seat);
        if (rc == 0) {
            *out = seat;
            return 0;
        }
        mr__pool_give_back(s, seat, rc == -EBUSY);
        if (rc != -EBUSY) {
            break;
        }
    }
    return rc;
}

int mr__seat_open(struct service *s, const struct seat_request *req, struct seat **out,
                  struct refusal *why)
{
    struct held_slots slots;
    struct str full = {"", 0};
    struct seat *seat = NULL;
    int rc = mr__slots_take(s, req->grant->slots, req->grant->n_slots, NULL, &slots, &full);

    if (rc == -ENOSPC) {
        mr__refusal_full(why, full);
    }
    if (rc < 0) {
        return rc;
    }
    rc = take_port(s, req, &seat);
    if (rc == 0 && req->kind != MR_SEAT_PLAYER) {
        rc = mr__dynamic_count(s, seat, req->peer, req->target);
        if (rc < 0) {
            mr_relay_close(s->mr, seat->relay);
            seat->is_closing = true;
            count_in(s, req, seat);
        }
    }
    if (rc < 0) {
        mr__slots_release(s, &slots);
        if (rc != -ENOMEM) {
            *why = (struct refusal){.code = MR_CODE_NO_PORTS};
            rc = -ENOSPC;
        }
        return rc;
    }
    assert(seat);
    seat->slots = slots;
    occupy(s, req, seat);
    *out = seat;
    return 0;
}

/* ---- ending -------------------------------------------------------------------------------- */

static void count_out(struct service *s, struct seat *seat)
{
    s->pool.n_kind[seat->kind]--;
    mr__dynamic_uncount(s, seat);
    if (seat->kind == MR_SEAT_TARGET) {
        mr__entry_uncount(s, seat->entry);
    }
}

void mr__seat_close(struct service *s, struct seat *seat, enum seat_end why)
{
    if (!seat->is_closing && mr_relay_close(s->mr, seat->relay) == 0) {
        seat->is_closing = true;
        seat->end = why;
    }
}

void mr__seat_undo(struct service *s, struct seat *seat)
{
    mr__seat_close(s, seat, MR_SEAT_END_API);
    /* Nobody was told of it, so nobody has to wait for its end to have its slots. */
    mr__slots_release(s, &seat->slots);
}

static const char *end_name(const struct seat *seat, enum mr_end_reason reason)
{
    switch (reason) {
    case MR_END_IDLE:
        return "idle";
    case MR_END_LIFETIME:
        return "lifetime";
    case MR_END_TRAFFIC:
        return "traffic";
    case MR_END_PORT:
        return "shutdown";
    case MR_END_CLOSED:
        break;
    }
    return seat->end == MR_SEAT_END_BLOCKED ? "blocked" : "api";
}

void mr__seat_view(const struct service *s, const struct seat *seat, struct hook_relay *out)
{
    struct mr_relay_info info;

    *out = (struct hook_relay){
        .id = seat->relay,
        .port = seat->number,
        .session = seat->owner,
        .tags = mr__tags_map(&seat->tags),
        .since = seat->since,
        .kind = mr__seat_kind_name(seat->kind),
        .dest = seat->kind == MR_SEAT_TARGET ? seat->dest : (struct mr_addr){.family = 0},
    };
    memcpy(out->text, seat->text, sizeof out->text);
    if (mr_relay_info(s->mr, seat->relay, &info) == 0) {
        out->addr = info.peer;
        out->age = (double)(s->now_ns - info.created_ns) / 1e9;
        out->packets_in = info.counts.packets_in;
        out->bytes_in = info.counts.bytes_in;
        out->packets_out = info.counts.packets_out;
        out->bytes_out = info.counts.bytes_out;
        out->drops = info.counts.drops;
    }
}

static void tell_destroyed(struct service *s, const struct seat *seat, const struct mr_event *ev)
{
    const struct mr_relay_counts *c = &ev->u.ended.counts;
    const char *reason = end_name(seat, ev->u.ended.reason);
    struct hook_relay relay;
    struct hook_event hook = {
        .hook = MR_HOOK_DESTROYED,
        .reason = {reason, strlen(reason)},
        .addr = ev->u.ended.peer,
        .relay = &relay,
    };

    mr__seat_view(s, seat, &relay); /* what only the engine knew came with the event */
    relay.addr = ev->u.ended.peer;
    relay.age = (double)ev->u.ended.age_ns / 1e9;
    relay.packets_in = c->packets_in;
    relay.bytes_in = c->bytes_in;
    relay.packets_out = c->packets_out;
    relay.bytes_out = c->bytes_out;
    relay.drops = c->drops;
    MR_JOURNAL(s, MR_JOURNAL_RELAY, MR_LOG_INFO, "relay", "relay ended",
               LOG_STR("relay", seat->text), LOG_STR("reason", reason),
               LOG_DOUBLE("seconds", relay.age), LOG_UINT("bytes_in", c->bytes_in),
               LOG_UINT("bytes_out", c->bytes_out), LOG_UINT("drops", c->drops));
    mr__notice_add(s, &hook);
}

void mr__seats_tell_shutdown(struct service *s)
{
    for (struct list *l = s->pool.used.next; l != &s->pool.used; l = l->next) {
        struct seat *seat = MR_CONTAINER(l, struct seat, used);
        struct hook_relay relay;
        struct hook_event ev = {
            .hook = MR_HOOK_DESTROYED,
            .reason = {"shutdown", 8},
            .relay = &relay,
        };

        if (seat->is_announced && !seat->is_closing) {
            seat->is_announced = false;
            mr__seat_view(s, seat, &relay);
            ev.addr = relay.addr;
            mr__notice_add(s, &ev);
        }
    }
}

void mr__seat_ended(struct service *s, const struct mr_event *ev)
{
    struct seat *seat = mr__pool_seat(s, ev->u.ended.port);

    if (!seat || seat->state != MR_SEAT_USED || seat->relay != ev->relay) {
        return;
    }
    s->figures.expired += ev->u.ended.reason == MR_END_IDLE;
    if (seat->is_announced) {
        tell_destroyed(s, seat, ev);
        seat->is_announced = false;
    }
    count_out(s, seat);
    mr__slots_release(s, &seat->slots);
    mr__tags_deinit(&seat->tags);
    struct session *p = mr__session_find(s, seat->owner);
    if (p && p->relay == seat->relay) {
        p->relay = 0;
    }
    mr__list_remove(&seat->used);
    mr__list_remove(&seat->owned);
    seat->relay = 0;
    seat->owner = 0;
    seat->is_closing = false;
    seat->dynamics_to_me = 0;
    mr__targets_end_at(s, seat->port);
    mr__pool_give_back(s, seat, true);
    mr__knock_target_ended(s, ev->u.ended.port);
}

/* ---- owners -------------------------------------------------------------------------------- */

void mr__seat_own(struct service *s, struct seat *seat, struct session *p)
{
    seat->owner = p ? p->id : 0;
    mr__list_remove(&seat->owned);
    if (p) {
        mr__list_push_back(&p->owned, &seat->owned);
    }
    mr_relay_set_user(s->mr, seat->relay, seat->owner); /* gone by itself: its end is on its way */
}

bool mr__seat_may_own(const struct session *p, const struct mr_addr *at,
                      const struct session *owner)
{
    return mr_addr_same_ip(at, &p->connection->peer) ||
           (owner && mr_addr_same_ip(&p->connection->peer, &owner->connection->peer));
}

/* The later one, unless a PID alone has brought him there, and the other not. */
static bool goes_before(const struct session *p, const struct session *owner)
{
    return mr__seat_may_own(p, &p->addr, owner) &&
           (!owner || owner->addressed < p->addressed || !mr__seat_may_own(owner, &owner->addr, p));
}

void mr__seat_adopt(struct service *s, struct seat *seat, struct session *p)
{
    const struct session *owner = mr__session_find(s, seat->owner);

    if (seat->kind == MR_SEAT_DYNAMIC) {
        count_out(s, seat);
        seat->kind = MR_SEAT_PLAYER;
        s->pool.n_kind[MR_SEAT_PLAYER]++;
    }
    p->relay = seat->relay;
    if (mr__session_vouches(s, &p->addr)) {
        mr_relay_set_proof(s->mr, seat->relay, MR_PROOF_GIVEN);
    }
    if (goes_before(p, owner)) {
        mr__seat_own(s, seat, p);
    }
}

void mr__seat_owner_left(struct service *s, struct session *p)
{
    /* p has left its place already; there are two relays where a player has moved to another's
     * address. */
    struct session *next =
        mr__list_is_empty(&p->owned) ? NULL : mr__session_owner_at(s, &p->addr, p);

    while (!mr__list_is_empty(&p->owned)) {
        mr__seat_own(s, MR_CONTAINER(p->owned.next, struct seat, owned), next);
    }
}

void mr__seat_limited(struct service *s, const struct mr_event *ev)
{
    static const char *const names[MR_LIMIT_KINDS] = {
        [MR_LIMIT_BANDWIDTH] = "bandwidth", [MR_LIMIT_GLOBAL] = "global",
        [MR_LIMIT_DURATION] = "duration",   [MR_LIMIT_DURATION_SOON] = "duration-soon",
        [MR_LIMIT_TRAFFIC] = "traffic",
    };
    const uint64_t pause_ns = (uint64_t)MR_LIMIT_NOTICE_SECONDS * 1000000000;
    const struct seat *seat = mr__seat_of_relay(s, ev->relay);
    struct session *p = seat ? mr__session_find(s, seat->owner) : NULL;
    enum mr_limit_kind kind = ev->u.limit.kind;

    if (!p || (unsigned)kind >= MR_LIMIT_KINDS || !mr__settings_values(s->settings)->errors) {
        return;
    }
    uint64_t *told_ns = &p->connection->limit_told_ns[kind];
    if (*told_ns == 0 || s->now_ns - *told_ns >= pause_ns) {
        *told_ns = s->now_ns ? s->now_ns : 1;
        mr__connection_say(s, p->connection, "limit %s", names[kind]);
    }
}
