/* SPDX-License-Identifier: MIT */
/*
 * `connect` and `connect-relay`: a player wants to reach a host. Control thread.
 *
 *     begin --> connect hook --> direct: both lines
 *                            \-> make: who has no relay yet? <---+ somebody else makes one
 *                                 |  create hooks, one by one    | for the same address: wait
 *                                commit: slots, ports, relays, pair; all or nothing
 *                                 |
 *                                in force: both lines
 *
 * Policies may take seconds, so every step looks at the world again: the host may be gone,
 * an address may have moved, a relay may have come or ended. Nothing is kept but ids.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static void make(struct service *s, struct connection *c);
static void ask_next(struct service *s, struct connection *c);

/* ---- looking ------------------------------------------------------------------------------- */

/* Both players as they are now. false: the command has been answered. */
static bool look(struct service *s, struct connection *c, struct session **caller,
                 struct session **host)
{
    const struct request *r = &c->request;
    enum code code;

    *caller = mr__session_find(s, r->session);
    *host = mr__session_find(s, r->host);
    if (!*caller) {
        code = MR_CODE_NOT_REGISTERED;
    } else if (!*host) {
        code = MR_CODE_UNKNOWN_OID;
    } else if (mr__drain_keeps_from(s, *host)) {
        code = MR_CODE_DRAINING;
    } else if ((*caller)->addr.family == 0) {
        code = MR_CODE_CLIENT_NO_ADDRESS;
    } else if ((*host)->addr.family == 0) {
        code = MR_CODE_HOST_NO_ADDRESS;
    } else {
        return true;
    }
    mr__command_fail(s, c, code, "");
    return false;
}

/* ---- giving up ----------------------------------------------------------------------------- */

/* refused: the side that the refusal is about, whose waiters get the same; or NULL. */
static void end_makings(struct service *s, struct request *r, const struct join_side *refused,
                        const struct refusal *why)
{
    for (size_t i = 0; i < r->n_sides; i++) {
        struct join_side *side = &r->sides[i];
        mr__making_end(s, &side->making, side == refused ? why : NULL);
        mr__grant_deinit(&side->grant);
        side->is_granted = false;
    }
}

void mr__join_abandon(struct service *s, struct connection *c)
{
    struct request *r = &c->request;

    end_makings(s, r, NULL, NULL);
    mr__list_remove(&r->waiter.link);
    mr__list_remove(&r->at_host);
    mr__list_remove(&r->in_force);
    mr__list_remove(&r->task.link);
    mr__list_remove(&r->late);
}

static void refuse(struct service *s, struct connection *c, const struct join_side *side,
                   const struct refusal *why)
{
    end_makings(s, &c->request, side, why);
    mr__command_fail(s, c, why->code, why->reason);
}

void mr__join_host_left(struct service *s, struct request *r)
{
    mr__list_remove(&r->at_host);
    mr__command_fail(s, mr__request_connection(r), MR_CODE_UNKNOWN_OID, "");
}

/* ---- the lines ----------------------------------------------------------------------------- */

static void log_connected(struct service *s, const struct request *r, const struct session *caller,
                          const struct session *host, const char *via)
{
    MR_JOURNAL(s, MR_JOURNAL_JOIN, MR_LOG_INFO, "session", "connected",
               LOG_STRN("from", caller->oid, caller->oid_n), LOG_STRN("to", host->oid, host->oid_n),
               LOG_STR("command", mr__command_name(r->command)), LOG_STR("via", via));
}

static struct str mode_of(const struct request *r)
{
    return r->command == MR_COMMAND_CONNECT ? (struct str){"connect", 7} : (struct str){"relay", 5};
}

/* The notice goes out after the lines, at the end of this turn's work. */
static void tell_connected(struct service *s, const struct request *r, const struct session *caller,
                           const struct session *host, const char *via)
{
    struct hook_session from, to;
    struct hook_event ev = {
        .hook = MR_HOOK_CONNECTED,
        .from = &from,
        .to = &to,
        .oid = r->oid,
        .mode = mode_of(r),
        .via = {via, strlen(via)},
        .meta = mr__request_meta(r),
    };

    mr__session_view(caller, &from);
    mr__session_view(host, &to);
    mr__notice_add(s, &ev);
    log_connected(s, r, caller, host, via);
}

static void finish_direct(struct service *s, struct connection *c, struct session *caller,
                          struct session *host)
{
    char text[MR_ADDR_TEXT_MAX];

    host->joins_n++;
    tell_connected(s, &c->request, caller, host, "direct");
    mr_addr_format(&host->addr, text, sizeof text);
    mr__connection_say(s, c, "connect %s", text);
    mr_addr_format(&caller->addr, text, sizeof text);
    mr__connection_say(s, host->connection, "connect %s", text);
    mr__command_succeed(s, c);
}

static bool is_one_address(const struct mr_addr *a)
{
    return a->family != 0 && !(mr_addr_classify(a) & MR_ADDR_UNSPECIFIED);
}

/* Where a player reaches our relay ports: the public address, else the only one that they are
 * bound to, else the one that his TCP connection or his datagram to the registrar reached; of his
 * family in any case. */
static struct mr_addr reachable(const struct service *s, const struct session *p, uint16_t port)
{
    const struct mr_addr *choice = &p->connection->local;
    struct mr_addr a;

    if (s->public_address.family == p->addr.family) {
        choice = &s->public_address;
    } else if (s->udp_host.family == p->addr.family && is_one_address(&s->udp_host)) {
        choice = &s->udp_host;
    } else if (choice->family != p->addr.family && p->local.family == p->addr.family &&
               is_one_address(&p->local)) {
        choice = &p->local;
    }
    a = *choice;
    a.port = port;
    a.scope_id = 0;
    return a;
}

static void say_relay(struct service *s, const struct request *r, const struct session *to,
                      uint16_t port)
{
    if (r->command == MR_COMMAND_CONNECT_RELAY) {
        mr__connection_say(s, to->connection, "connect-relay %u", port);
    } else {
        char text[MR_ADDR_TEXT_MAX];
        struct mr_addr a = reachable(s, to, port);
        mr_addr_format(&a, text, sizeof text);
        mr__connection_say(s, to->connection, "connect %s", text);
    }
}

static void finish_relayed(struct service *s, struct connection *c)
{
    const struct request *r = &c->request;
    struct session *caller, *host;

    if (!look(s, c, &caller, &host)) {
        return;
    }
    host->joins_n++;
    tell_connected(s, r, caller, host, "relay");
    say_relay(s, r, caller, r->sides[0].port);
    say_relay(s, r, host, r->sides[r->n_sides - 1].port);
    mr__command_succeed(s, c);
}

void mr__join_in_force(struct service *s, uint64_t seq)
{
    while (!mr__list_is_empty(&s->waiting)) {
        struct request *r = MR_CONTAINER(s->waiting.next, struct request, in_force);
        if (r->seq > seq) {
            return;
        }
        mr__list_remove(&r->in_force);
        finish_relayed(s, mr__request_connection(r));
    }
}

/* ---- commit -------------------------------------------------------------------------------- */

static bool has_moved(const struct request *r, const struct session *caller,
                      const struct session *host)
{
    return !mr_addr_equal(&r->sides[0].addr, &host->addr) ||
           !mr_addr_equal(&r->sides[r->n_sides - 1].addr, &caller->addr);
}

/* The relays that were there already count as used from now on. false: one has just ended. */
static bool restart_existing(struct service *s, const struct request *r, struct seat **seats)
{
    for (size_t i = 0; i < r->n_sides; i++) {
        const struct session *p = mr__session_find(s, r->sides[i].session);
        seats[i] = mr__seat_of_session(s, p);
        if (seats[i] && mr_relay_restart(s->mr, seats[i]->relay) < 0) {
            return false;
        }
        if (!seats[i] && !r->sides[i].is_granted) {
            return false;
        }
    }
    return true;
}

static int open_seats(struct service *s, struct request *r, struct seat **seats, bool *is_new,
                      size_t *failed, struct refusal *why)
{
    for (size_t i = 0; i < r->n_sides; i++) {
        struct session *p = mr__session_find(s, r->sides[i].session);

        if (seats[i]) {
            continue;
        }
        const struct seat_request req = {
            .kind = MR_SEAT_PLAYER,
            .peer = &p->addr,
            .local = &p->local,
            .grant = &r->sides[i].grant,
            .owner = mr__session_owner_at(s, &p->addr, p)->id, /* at least p's own */
        };
        int rc = mr__seat_open(s, &req, &seats[i], why);
        if (rc < 0) {
            seats[i] = NULL;
            *failed = i;
            return rc;
        }
        is_new[i] = true;
    }
    *failed = r->n_sides;
    assert(seats[0] && seats[r->n_sides - 1]);
    int rc = mr_pair(s->mr, seats[0]->relay, seats[r->n_sides - 1]->relay);
    if (rc < 0) {
        *why = (struct refusal){.code = MR_CODE_NO_PORTS};
        MR_JOURNAL(s, MR_JOURNAL_RELAY, MR_LOG_WARN, "relay", "no room for another pair",
                   LOG_STR("error", mr_strerror(rc)));
    }
    return rc;
}

/* The side whose relay would carry tags that are blocked, or NULL. */
static const struct join_side *blocked_side(const struct service *s, const struct request *r,
                                            struct seat *const *seats)
{
    for (size_t i = 0; i < r->n_sides; i++) {
        if (!seats[i] && mr__blocks_have_tags(s, mr__tags_map(&r->sides[i].grant.tags))) {
            return &r->sides[i];
        }
    }
    return NULL;
}

static void commit(struct service *s, struct connection *c)
{
    struct request *r = &c->request;
    struct session *caller, *host;
    struct seat *seats[2] = {NULL, NULL};
    bool is_new[2] = {false, false};
    size_t failed = 0;
    struct refusal why = {.code = MR_CODE_BUSY};

    if (!look(s, c, &caller, &host)) {
        return;
    }
    if (has_moved(r, caller, host) || !restart_existing(s, r, seats)) {
        end_makings(s, r, NULL, NULL);
        make(s, c);
        return;
    }
    const struct join_side *blocked = blocked_side(s, r, seats);
    if (blocked) {
        refuse(s, c, blocked, &(struct refusal){.code = MR_CODE_BLOCKED});
        return;
    }
    if (open_seats(s, r, seats, is_new, &failed, &why) < 0) {
        for (size_t i = 0; i < 2; i++) {
            if (is_new[i]) {
                mr__seat_undo(s, seats[i]);
            }
        }
        refuse(s, c, failed < r->n_sides ? &r->sides[failed] : NULL, &why);
        return;
    }
    for (size_t i = 0; i < r->n_sides; i++) {
        mr__seat_adopt(s, seats[i], mr__session_find(s, r->sides[i].session));
        r->sides[i].port = seats[i]->number;
    }
    if (r->n_sides == 1) { /* two players at one address: the caller's as well */
        mr__seat_adopt(s, seats[0], caller);
    } else {
        mr__latch_remember(s, seats[0], seats[1]);
    }
    for (size_t i = 0; i < r->n_sides; i++) {
        if (is_new[i]) {
            mr__seat_announce(s, seats[i], "connect");
        }
    }
    end_makings(s, r, NULL, NULL);
    r->seq = mr_seq(s->mr);
    mr__list_push_back(&s->waiting, &r->in_force); /* answered before this turn ends, or later */
}

/* ---- making -------------------------------------------------------------------------------- */

static void on_created(struct service *s, struct pending *pending, const struct hook_answer *answer)
{
    struct request *r = MR_CONTAINER(pending, struct request, pending);
    struct connection *c = mr__request_connection(r);
    struct join_side *side = &r->sides[r->asked];
    struct refusal why;

    if (mr__answer_refuses(answer, &why)) {
        refuse(s, c, side, &why);
        return;
    }
    if (mr__grant_merge(&side->grant, answer) < 0) {
        refuse(s, c, NULL, &(struct refusal){.code = MR_CODE_BUSY});
        return;
    }
    side->is_granted = true;
    r->asked++;
    ask_next(s, c);
}

/* Asks about the next relay that is missing; when all are granted, makes them. */
static void ask_next(struct service *s, struct connection *c)
{
    struct request *r = &c->request;
    struct session *caller, *host;

    while (r->asked < r->n_sides && !r->sides[r->asked].is_needed) {
        r->asked++;
    }
    if (r->asked == r->n_sides) {
        commit(s, c);
        return;
    }
    if (!look(s, c, &caller, &host)) {
        return;
    }
    if (mr__turn_is_spent(s) && mr__ask_is_wanted(s, MR_HOOK_CREATE)) {
        r->is_resting = true;
        mr__task_later(s, &r->task);
        return;
    }
    struct hook_session views[2];
    bool is_host = r->asked == 0;
    mr__session_view(host, &views[0]);
    mr__session_view(caller, &views[1]);
    struct hook_event ev = {
        .hook = MR_HOOK_CREATE,
        .reason = {"connect", 7},
        .addr = r->sides[r->asked].addr,
        .session = &views[is_host ? 0 : 1],
        .peer = &views[is_host ? 1 : 0],
        .meta = mr__request_meta(r),
    };
    mr__ask(s, &r->pending, &ev, on_created);
}

static void set_sides(struct service *s, struct request *r, const struct session *caller,
                      const struct session *host)
{
    const struct session *players[2] = {host, caller};

    r->n_sides = mr_addr_equal(&host->addr, &caller->addr) ? 1 : 2;
    for (size_t i = 0; i < r->n_sides; i++) {
        r->sides[i] = (struct join_side){
            .session = players[i]->id,
            .addr = players[i]->addr,
            .is_needed = mr__seat_of_session(s, players[i]) == NULL,
        };
    }
}

static void make(struct service *s, struct connection *c)
{
    struct request *r = &c->request;
    struct session *caller, *host;

    if (!look(s, c, &caller, &host)) {
        return;
    }
    if (++r->tries > MR_JOIN_TRIES_MAX) {
        mr__command_fail(s, c, MR_CODE_BUSY, "");
        return;
    }
    set_sides(s, r, caller, host);
    for (size_t i = 0; i < r->n_sides; i++) {
        if (r->sides[i].is_needed && !mr__making_is_free(s, &r->sides[i].addr, MR_NO_ENTRY)) {
            mr__making_wait(s, &r->sides[i].addr, MR_NO_ENTRY, &r->waiter);
            return;
        }
    }
    for (size_t i = 0; i < r->n_sides; i++) {
        if (r->sides[i].is_needed) {
            mr__making_begin(s, &r->sides[i].making, &r->sides[i].addr, MR_NO_ENTRY);
        }
    }
    r->asked = 0;
    ask_next(s, c);
}

/* Others had their go, or whoever made a relay for one of the addresses is done. */
static void run_task(struct service *s, struct task *task)
{
    struct request *r = MR_CONTAINER(task, struct request, task);
    struct connection *c = mr__request_connection(r);

    if (r->is_resting) {
        r->is_resting = false;
        ask_next(s, c);
        return;
    }
    if (r->waiter.has_refusal) {
        mr__command_fail(s, c, r->waiter.refusal.code, r->waiter.refusal.reason);
        return;
    }
    r->tries--; /* waiting is no try */
    make(s, c);
}

/* ---- begin --------------------------------------------------------------------------------- */

/* host: NULL, or one that may have no address yet. */
static bool is_relayed(const struct service *s, const struct request *r, enum hook_via via,
                       const struct session *caller, const struct session *host)
{
    bool are_seen = host && host->addr.family && caller->addr.family;

    if (r->command == MR_COMMAND_CONNECT_RELAY ||
        (are_seen && caller->addr.family != host->addr.family)) {
        return true;
    }
    return via == MR_VIA_RELAY ||
           (via == MR_VIA_NONE && mr__settings_values(s->settings)->connect_relay);
}

static void on_connect_answered(struct service *s, struct pending *pending,
                                const struct hook_answer *answer)
{
    struct request *r = MR_CONTAINER(pending, struct request, pending);
    struct connection *c = mr__request_connection(r);
    struct str oid = answer->oid.n > 0 ? answer->oid : r->oid;
    struct session *caller, *host;
    struct refusal why;

    if (mr__answer_refuses(answer, &why)) {
        mr__command_fail(s, c, why.code, why.reason);
        return;
    }
    host = mr__session_by_oid(s, oid.s, oid.n);
    r->host = host ? host->id : 0;
    mr__list_remove(&r->at_host); /* it may be another one now */
    if (!look(s, c, &caller, &host)) {
        return;
    }
    if (!is_relayed(s, r, answer->via, caller, host)) {
        finish_direct(s, c, caller, host);
        return;
    }
    mr__list_push_back(&host->joins, &r->at_host);
    make(s, c);
}

void mr__join_begin(struct service *s, struct connection *c)
{
    struct request *r = &c->request;
    const struct session *caller = mr__session_of(c);
    struct session *host = mr__session_by_oid(s, r->oid.s, r->oid.n);
    struct hook_session from, to;

    r->task.run = run_task;
    r->waiter.task = &r->task;
    if (mr__blocks_have_net(s, &c->peer)) {
        mr__command_fail(s, c, MR_CODE_BLOCKED, "");
        return;
    }
    if (mr__ask_is_busy(s, MR_HOOK_CONNECT)) {
        mr__command_fail(s, c, MR_CODE_BUSY, "");
        return;
    }
    if (!caller) {
        mr__command_fail(s, c, MR_CODE_NOT_REGISTERED, "");
        return;
    }
    r->session = caller->id;
    mr__session_view(caller, &from);
    if (host) {
        mr__session_view(host, &to);
        mr__list_push_back(&host->joins, &r->at_host); /* when it leaves, the chain ends */
    }
    struct hook_event ev = {
        .hook = MR_HOOK_CONNECT,
        .from = &from,
        .to = host ? &to : NULL,
        .oid = r->oid,
        .mode = mode_of(r),
        .via = is_relayed(s, r, MR_VIA_NONE, caller, host) ? (struct str){"relay", 5}
                                                           : (struct str){"direct", 6},
        .meta = mr__request_meta(r),
    };
    mr__ask(s, &r->pending, &ev, on_connect_answered);
}
