/* SPDX-License-Identifier: MIT */
/*
 * Sessions and the ways to find them: by id, by oid, by pid, by the address that the
 * registrar saw. Control thread. A session lives as long as its connection; its relay may
 * live longer.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- finding ------------------------------------------------------------------------------- */

struct session *mr__session_find(const struct service *s, uint64_t id)
{
    struct table_node *n = id ? mr__table_first(&s->sessions, id) : NULL;
    struct session *p = n ? MR_CONTAINER(n, struct session, by_id) : NULL;

    return p && !p->is_ending ? p : NULL;
}

struct session *mr__session_by_oid(const struct service *s, const char *oid, size_t n)
{
    uint64_t hash = mr__service_hash(s, oid, n);

    for (struct table_node *t = mr__table_first(&s->oids, hash); t; t = mr__table_next(t)) {
        struct session *p = MR_CONTAINER(t, struct session, by_oid);
        if (!p->is_ending && p->oid_n == n && memcmp(p->oid, oid, n) == 0) {
            return p;
        }
    }
    return NULL;
}

/* How long it takes tells nothing about how much of a guess is right. */
static bool is_same_secret(const unsigned char *a, const unsigned char *b, size_t n)
{
    volatile unsigned char difference = 0;

    for (size_t i = 0; i < n; i++) {
        difference |= a[i] ^ b[i];
    }
    return difference == 0;
}

struct session *mr__session_by_pid(const struct service *s, const void *pid, size_t n)
{
    uint64_t hash = mr__service_hash(s, pid, n);

    for (struct table_node *t = mr__table_first(&s->pids, hash); t; t = mr__table_next(t)) {
        struct session *p = MR_CONTAINER(t, struct session, by_pid);
        if (!p->is_ending && p->pid_n == n &&
            is_same_secret((const unsigned char *)p->pid, pid, n)) {
            return p;
        }
    }
    return NULL;
}

struct session *mr__session_of(const struct connection *c)
{
    for (const struct list *l = c->sessions.next; l != &c->sessions; l = l->next) {
        struct session *p = MR_CONTAINER(l, struct session, at_connection);
        if (!p->is_ending) {
            return p;
        }
    }
    return NULL;
}

void mr__session_view(const struct session *p, struct hook_session *out)
{
    *out = (struct hook_session){
        .id = p->id,
        .oid = {p->oid, p->oid_n},
        .tcp = p->connection->peer,
        .addr = p->addr,
        .tags = mr__tags_map(&p->tags),
        .meta = mr__tags_map(&p->meta),
        .since = p->since,
        .joins = p->joins_n,
    };
}

/* ---- places -------------------------------------------------------------------------------- */

static struct place *find_place(const struct service *s, const struct mr_addr *addr)
{
    uint64_t hash = mr__table_hash(&s->key, addr, sizeof(struct mr_addr));

    for (struct table_node *n = mr__table_first(&s->places, hash); n; n = mr__table_next(n)) {
        struct place *place = MR_CONTAINER(n, struct place, node);
        if (mr_addr_equal(&place->addr, addr)) {
            return place;
        }
    }
    return NULL;
}

static struct place *get_place(struct service *s, const struct mr_addr *addr)
{
    struct place *place = find_place(s, addr);

    if (place) {
        return place;
    }
    place = mr__alloc(1, sizeof *place);
    if (place) {
        place->addr = *addr;
        mr__list_init(&place->sessions);
        mr__table_add(&s->places, &place->node,
                      mr__table_hash(&s->key, addr, sizeof(struct mr_addr)));
    }
    return place;
}

static void drop_place_if_empty(struct service *s, struct place *place)
{
    if (mr__list_is_empty(&place->sessions)) {
        mr__table_remove(&s->places, &place->node);
        mr__free(place);
    }
}

bool mr__session_is_near(const struct session *p)
{
    return mr_addr_same_ip(&p->addr, &p->connection->peer);
}

bool mr__session_vouches(const struct service *s, const struct mr_addr *addr)
{
    const struct place *place = find_place(s, addr);

    return place && place->n_near > 0;
}

static void leave_place(struct service *s, struct session *p)
{
    if (p->place) {
        p->place->n_near -= mr__session_is_near(p);
        mr__list_remove(&p->at_place);
        drop_place_if_empty(s, p->place);
        p->place = NULL;
        mr__known_leave(s, &p->addr);
        s->n_addressed--;
    }
}

struct session *mr__session_at(const struct service *s, const struct mr_addr *addr)
{
    const struct place *place = find_place(s, addr);

    for (const struct list *l = place ? place->sessions.next : NULL; l && l != &place->sessions;
         l = l->next) {
        struct session *p = MR_CONTAINER(l, struct session, at_place);
        if (!p->is_ending) {
            return p;
        }
    }
    return NULL;
}

struct session *mr__session_owner_at(const struct service *s, const struct mr_addr *addr,
                                     const struct session *p)
{
    const struct place *place = find_place(s, addr);
    struct session *kin = NULL;

    for (const struct list *l = place ? place->sessions.next : NULL; l && l != &place->sessions;
         l = l->next) {
        struct session *other = MR_CONTAINER(l, struct session, at_place);
        if (other->is_ending) {
            continue;
        }
        if (mr__session_is_near(other)) {
            return other;
        }
        if (!kin && mr_addr_same_ip(&other->connection->peer, &p->connection->peer)) {
            kin = other;
        }
    }
    return kin;
}

int mr__session_set_address(struct service *s, struct session *p, const struct mr_addr *addr,
                            const struct mr_addr *local)
{
    struct place *place = get_place(s, addr);

    if (!place) {
        return -ENOMEM;
    }
    if (mr__known_enter(s, addr) < 0) {
        drop_place_if_empty(s, place);
        return -ENOMEM;
    }
    leave_place(s, p);
    p->addr = *addr;
    p->local = *local;
    p->place = place;
    place->n_near += mr__session_is_near(p);
    p->addressed = ++s->last_addressed;
    mr__list_push_front(&place->sessions, &p->at_place);
    s->n_addressed++;
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------- */

static void free_secret(char *pid, size_t n)
{
    if (pid) {
        explicit_bzero(pid, n);
    }
    mr__free(pid);
}

struct session *mr__session_create(struct service *s, struct connection *c, uint64_t id, char *oid,
                                   size_t oid_n, char *pid, size_t pid_n)
{
    struct session *p = mr__alloc(1, sizeof *p);

    if (!p || mr__known_enter_near(s, &c->peer) < 0) {
        mr__free(p);
        mr__free(oid);
        free_secret(pid, pid_n);
        return NULL;
    }
    p->id = id;
    p->connection = c;
    p->oid = oid;
    p->oid_n = oid_n;
    p->pid = pid;
    p->pid_n = pid_n;
    p->since = mr__wall(s);
    mr__drain_mark(s, p);
    mr__list_init(&p->at_place);
    mr__list_init(&p->ending);
    mr__list_init(&p->owned);
    mr__list_init(&p->joins);
    mr__list_init(&p->moving);
    mr__list_push_front(&c->sessions, &p->at_connection);
    c->n_sessions++;
    mr__list_push_back(&s->all_sessions, &p->at_all);
    mr__table_add(&s->sessions, &p->by_id, id);
    mr__table_add(&s->oids, &p->by_oid, mr__service_hash(s, oid, oid_n));
    mr__table_add(&s->pids, &p->by_pid, mr__service_hash(s, pid, pid_n));
    return p;
}

static void tell_left(struct service *s, const struct session *p, enum session_end why)
{
    const char *reason = mr__session_end_name(why);
    struct hook_session view;
    struct hook_event ev = {
        .hook = MR_HOOK_LEFT,
        .reason = {reason, strlen(reason)},
        .session = &view,
    };

    if (p->is_registered) {
        mr__session_view(p, &view);
        mr__notice_add(s, &ev);
    }
}

/* What it has asked for and a policy, or the engine, still thinks about. */
static void end_request(struct service *s, struct session *p)
{
    struct request *r = &p->connection->request;
    bool is_join = r->command == MR_COMMAND_CONNECT || r->command == MR_COMMAND_CONNECT_RELAY;

    if (r->is_active && is_join && r->session == p->id) {
        mr__command_fail(s, p->connection, MR_CODE_NOT_REGISTERED, "");
    }
}

void mr__session_end(struct service *s, struct session *p, enum session_end why)
{
    tell_left(s, p, why);
    /* Found by nobody from here on, so that whoever is told looks and sees that it is gone. */
    mr__table_remove(&s->sessions, &p->by_id);
    mr__table_remove(&s->oids, &p->by_oid);
    mr__table_remove(&s->pids, &p->by_pid);
    s->oids_used_up = s->pids_used_up = false;
    mr__list_remove(&p->at_all);
    mr__list_remove(&p->ending);
    mr__list_remove(&p->at_connection);
    p->connection->n_sessions--;
    mr__list_remove(&p->moving);
    leave_place(s, p);
    mr__known_leave_near(s, &p->connection->peer);
    mr__seat_owner_left(s, p);
    end_request(s, p);
    while (!mr__list_is_empty(&p->joins)) {
        mr__join_host_left(s, MR_CONTAINER(p->joins.next, struct request, at_host));
    }
    mr__slots_release(s, &p->slots);
    mr__tags_deinit(&p->tags);
    mr__tags_deinit(&p->meta);
    mr__free(p->oid);
    free_secret(p->pid, p->pid_n);
    mr__free(p);
}

static enum code code_of(enum session_end why)
{
    switch (why) {
    case MR_SESSION_KICKED:
        return MR_CODE_KICKED;
    case MR_SESSION_BLOCKED:
        return MR_CODE_BLOCKED;
    case MR_SESSION_DRAINED:
        return MR_CODE_DRAINED;
    default:
        return MR_CODE_REPLACED;
    }
}

void mr__session_expel(struct service *s, struct session *p, enum session_end why,
                       const char *reason)
{
    struct connection *c = p->connection;

    end_request(s, p); /* is answered before the last word */
    mr__command_complain_as(s, c, MR_COMMAND_SESSION, code_of(why), reason);
    mr__session_end(s, p, why);
    if (c->n_sessions == 0) {
        mr__connection_close(s, c);
    }
}

/* ---- ends that somebody wants -------------------------------------------------------------- */

const char *mr__session_end_name(enum session_end why)
{
    static const char *const names[MR_SESSION_END_COUNT] = {
#define X(constant, name) [MR_SESSION_##constant] = name,
        MR_SESSION_ENDS(X)
#undef X
    };

    return names[why];
}

bool mr__session_end_soon(struct service *s, struct session *p, enum session_end why,
                          const char *reason)
{
    if (p->is_ending) {
        return false;
    }
    p->is_ending = true;
    p->end_why = why;
    snprintf(p->end_reason, sizeof p->end_reason, "%s", reason);
    mr__slots_release(s, &p->slots); /* whoever comes in this turn finds the place free */
    mr__list_push_back(&s->ending, &p->ending);
    return true;
}

static bool is_shared(const struct service *s, const struct session *p, const struct seat *seat)
{
    for (struct list *l = p->place->sessions.next; l != &p->place->sessions; l = l->next) {
        const struct session *other = MR_CONTAINER(l, struct session, at_place);
        if (!other->is_ending && mr__seat_of_session(s, other) == seat) {
            return true;
        }
    }
    return false;
}

/*
 * His client knows nothing of it and keeps sending: when nobody else plays from his socket, all
 * relays that it has end (one may be an earlier player's, whose session is gone), and it gets no
 * new one before the registrar sees a PID from it.
 */
static void end_wanted(struct service *s, struct session *p)
{
    const enum seat_end why =
        p->end_why == MR_SESSION_BLOCKED ? MR_SEAT_END_BLOCKED : MR_SEAT_END_API;
    struct mr_addr addr = p->addr;
    struct seat *seat = mr__seat_of_session(s, p);

    if (seat && !is_shared(s, p, seat)) {
        mr__seat_close(s, seat, why);
    }
    mr__session_expel(s, p, p->end_why, p->end_reason);
    if (addr.family == 0 || mr__session_at(s, &addr)) {
        return;
    }
    mr__targets_end_of(s, &addr, why);
    while ((seat = mr__seat_of_relay(s, mr_relay_of(s->mr, &addr))) != NULL) {
        mr__seat_close(s, seat, why);
    }
    mr__unwelcome_add(s, &addr);
}

void mr__sessions_end_due(struct service *s)
{
    while (!mr__list_is_empty(&s->ending)) {
        end_wanted(s, MR_CONTAINER(s->ending.next, struct session, ending));
    }
}

void mr__sessions_end_all(struct service *s)
{
    mr__sessions_end_due(s); /* those that somebody else wanted to end keep their reason */
    while (!mr__list_is_empty(&s->all_sessions)) {
        mr__session_expel(s, MR_CONTAINER(s->all_sessions.next, struct session, at_all),
                          MR_SESSION_DRAINED, mr__session_end_name(MR_SESSION_DRAINED));
    }
}
