/* SPDX-License-Identifier: MIT */
/*
 * Sessions and the ways to find them: by id, by oid, by pid, by the address that the
 * registrar saw. Control thread. A session lives as long as its connection; its relay may
 * live longer.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

/* ---- finding ------------------------------------------------------------------------------- */

struct session *mr__session_find(const struct service *s, uint64_t id)
{
    struct table_node *n = id ? mr__table_first(&s->sessions, id) : NULL;

    return n ? MR_CONTAINER(n, struct session, by_id) : NULL;
}

struct session *mr__session_by_oid(const struct service *s, const char *oid, size_t n)
{
    uint64_t hash = mr__service_hash(s, oid, n);

    for (struct table_node *t = mr__table_first(&s->oids, hash); t; t = mr__table_next(t)) {
        struct session *p = MR_CONTAINER(t, struct session, by_oid);
        if (p->oid_n == n && memcmp(p->oid, oid, n) == 0) {
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
        if (p->pid_n == n && is_same_secret((const unsigned char *)p->pid, pid, n)) {
            return p;
        }
    }
    return NULL;
}

struct session *mr__session_of(const struct connection *c)
{
    if (mr__list_is_empty(&c->sessions)) {
        return NULL;
    }
    return MR_CONTAINER(c->sessions.next, struct session, at_connection);
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

bool mr__service_session(const struct service *s, uint64_t id, struct hook_session *out)
{
    const struct session *p = mr__session_find(s, id);

    if (p) {
        mr__session_view(p, out);
    }
    return p != NULL;
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

static void leave_place(struct service *s, struct session *p)
{
    if (p->place) {
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

    return place ? MR_CONTAINER(place->sessions.next, struct session, at_place) : NULL;
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

    if (!p || mr__known_enter(s, &c->peer) < 0) {
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
    mr__list_init(&p->at_place);
    mr__list_init(&p->joins);
    mr__list_init(&p->moving);
    mr__list_push_front(&c->sessions, &p->at_connection);
    c->n_sessions++;
    mr__table_add(&s->sessions, &p->by_id, id);
    mr__table_add(&s->oids, &p->by_oid, mr__service_hash(s, oid, oid_n));
    mr__table_add(&s->pids, &p->by_pid, mr__service_hash(s, pid, pid_n));
    return p;
}

void mr__session_end(struct service *s, struct session *p)
{
    /* Found by nobody from here on, so that whoever is told looks and sees that it is gone. */
    mr__table_remove(&s->sessions, &p->by_id);
    mr__table_remove(&s->oids, &p->by_oid);
    mr__table_remove(&s->pids, &p->by_pid);
    s->oids_used_up = s->pids_used_up = false;
    mr__list_remove(&p->at_connection);
    p->connection->n_sessions--;
    mr__list_remove(&p->moving);
    leave_place(s, p);
    mr__known_leave(s, &p->connection->peer);
    mr__seat_owner_left(s, p);
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

void mr__session_kick(struct service *s, struct session *p, enum code code)
{
    struct connection *c = p->connection;

    mr__command_complain(s, c, MR_COMMAND_SESSION, code);
    mr__session_end(s, p);
    if (c->n_sessions == 0) {
        mr__connection_close(s, c);
    }
}
