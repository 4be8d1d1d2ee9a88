/* SPDX-License-Identifier: MIT */
/*
 * Relays that a script wants to be there (relay.open): a flow of a peer to a target, through
 * an open port, or a relay at a port of the pool that belongs to an address. Control thread.
 * It is a knock that nobody made: nothing is held, nobody is asked `drop`, all else goes its
 * way. Start reading at mr__players_open().
 */
#include "service/players.h"
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

struct opening {
    struct list link; /* in service.openings */
    uint64_t id;
    struct task start;
    struct knock *knock;
    mr_relay_id pair; /* 0: none */
    bool wants_pair;
    void (*done)(void *arg, const struct open_answer *a);
    void *arg;
};

/* ---- ends ---------------------------------------------------------------------------------- */

static void free_opening(struct opening *o)
{
    mr__list_remove(&o->link);
    mr__list_remove(&o->start.link);
    mr__free(o);
}

/* o->knock ends, or never was. */
static void answer(struct opening *o, const struct open_answer *a)
{
    void (*done)(void *arg, const struct open_answer *a) = o->done;
    void *arg = o->arg;

    free_opening(o);
    done(arg, a);
}

void mr__opening_refuse(struct opening *o, const char *code, const char *reason)
{
    answer(o, &(struct open_answer){.code = code, .reason = reason});
}

void mr__opening_drop(struct service *s, struct opening *o, enum mr_verdict as)
{
    const struct knock *k = o->knock;
    bool is_gone = k->grant.spec.target[0] && !mr__front_at(s, k->port);

    mr__opening_refuse(o,
                       as == MR_VERDICT_BLOCKED ? "blocked"
                       : is_gone                ? "not-found"
                                                : "no-ports",
                       "");
}

/* A flow that was there already. */
static const struct seat *find_flow(const struct service *s, const struct knock *k)
{
    for (const struct list *l = s->pool.used.next; l != &s->pool.used; l = l->next) {
        const struct seat *seat = MR_CONTAINER(l, struct seat, used);
        if (seat->kind == MR_SEAT_TARGET && seat->entry == k->port && !seat->is_closing &&
            mr_addr_equal(&seat->peer, &k->from)) {
            return seat;
        }
    }
    return NULL;
}

void mr__opening_succeed(struct service *s, struct opening *o, const struct seat *seat)
{
    struct hook_relay view;

    seat = seat ? seat : find_flow(s, o->knock);
    if (!seat) {
        mr__opening_refuse(o, "busy", "");
        return;
    }
    mr__seat_view(s, seat, &view);
    answer(o, &(struct open_answer){.reason = "", .relay = &view});
}

void mr__openings_destroy(struct service *s)
{
    while (!mr__list_is_empty(&s->openings)) {
        answer(MR_CONTAINER(s->openings.next, struct opening, link), NULL);
    }
}

/* ---- a relay for an address ---------------------------------------------------------------- */

/* true: it is a pair as wanted. Else the knock is done with. */
static bool pair(struct service *s, struct knock *k, const struct seat *seat)
{
    const struct opening *o = k->opening;
    struct refusal why = {.code = MR_CODE_NO_PORTS};

    if (o->wants_pair && mr_pair(s->mr, seat->relay, o->pair) < 0) {
        mr__knock_refuse(s, k, k->reason, &why);
        return false;
    }
    return true;
}

/* false: the knock is done with. */
static bool look(struct service *s, struct knock *k)
{
    const struct opening *o = k->opening;
    const struct seat *partner = mr__seat_of_relay(s, o->pair);
    const struct seat *there = mr__seat_of_relay(s, mr_relay_of(s->mr, &k->from));

    if (mr__blocks_until(s, &k->from) != 0) {
        mr__knock_drop(s, k, MR_VERDICT_BLOCKED);
    } else if (o->wants_pair && (!partner || partner->kind == MR_SEAT_TARGET)) {
        mr__knock_refuse_as(s, k, "not-found", "the relay of pair has ended");
    } else if (there) {
        if (pair(s, k, there)) {
            mr__knock_release(s, k, there);
        }
    } else {
        return true;
    }
    return false;
}

static void commit(struct service *s, struct knock *k)
{
    const struct seat_request req = {
        .kind = MR_SEAT_DYNAMIC, /* a player's from his connect-relay on */
        .peer = &k->from,
        .local = &(struct mr_addr){.family = 0},
        .grant = &k->grant,
    };
    struct refusal why = {.code = MR_CODE_BUSY};
    struct seat *seat;
    int rc;

    if (mr__blocks_have_tags(s, mr__tags_map(&k->grant.tags))) {
        mr__knock_drop(s, k, MR_VERDICT_BLOCKED);
        return;
    }
    rc = mr__seat_open(s, &req, &seat, &why);
    if (rc < 0) {
        mr__making_end(s, &k->making, rc == -ENOMEM ? NULL : &why);
        mr__knock_refuse(s, k, k->reason, &why);
        return;
    }
    mr__making_end(s, &k->making, NULL);
    if (!pair(s, k, seat)) {
        mr__seat_undo(s, seat);
        return;
    }
    mr__seat_announce(s, seat, "script");
    mr__knock_release(s, k, seat);
}

static void on_created(struct service *s, struct pending *pending, const struct hook_answer *a)
{
    struct knock *k = MR_CONTAINER(pending, struct knock, pending);
    struct refusal why;

    if (mr__answer_refuses(a, &why)) {
        mr__knock_refuse_created(s, k, a, &why);
    } else if (mr__grant_merge(&k->grant, a) < 0) {
        mr__knock_drop(s, k, k->reason);
    } else if (look(s, k)) {
        commit(s, k);
    }
}

void mr__opening_make(struct service *s, struct knock *k)
{
    if (look(s, k)) {
        mr__knock_create(s, k, MR_NO_ENTRY, on_created);
    }
}

/* ---- beginning ----------------------------------------------------------------------------- */

static struct front *find_front(const struct service *s, uint16_t number)
{
    for (struct list *l = s->fronts.next; l != &s->fronts; l = l->next) {
        struct front *front = MR_CONTAINER(l, struct front, link);
        if (front->number == number && !front->is_leaving) {
            return front;
        }
    }
    return NULL;
}

/* Not from inside of the call: whoever asked does not wait yet. */
static void start(struct service *s, struct task *task)
{
    struct opening *o = MR_CONTAINER(task, struct opening, start);
    struct knock *k = o->knock;

    struct mr_addr local = mr__peer_local(s, &k->from, k->port);
    enum mr_verdict judged = mr__peer_judge(s, &k->from, &local);

    if (judged != MR_VERDICT_FORWARD) {
        bool is_own = judged == MR_VERDICT_OWN_ADDRESS;
        mr__knock_refuse_as(s, k, is_own ? "own-address" : "address-class", "");
    } else if (k->grant.spec.target[0] && !mr__front_at(s, k->port)) {
        mr__knock_refuse_as(s, k, "not-found", "there is no open port of that number");
    } else {
        mr__knock_make(s, k);
    }
}

static struct opening *make_opening(struct service *s, const struct open_spec *spec)
{
    struct opening *o = mr__alloc(1, sizeof *o);
    const struct hook_answer answer = {
        .spec = spec->spec, .tags = spec->tags, .slots = spec->slots, .n_slots = spec->n_slots};
    struct knock found = {.from = spec->peer,
                          .port = MR_NO_PORT,
                          .reason = MR_VERDICT_NEW_FLOW,
                          .since_ns = s->now_ns,
                          .opening = o};
    const struct front *front = find_front(s, spec->port);

    if (!o) {
        return NULL;
    }
    mr_addr_canonicalize(&found.from);
    if (spec->spec.target[0] && front) {
        found.port = front->port;
    }
    o->knock = mr__knock_add(s, &found);
    if (!o->knock) {
        mr__free(o);
        return NULL;
    }
    mr__list_init(&o->link);
    mr__list_init(&o->start.link);
    o->start.run = start;
    if ((spec->spec.target[0] && front && mr__grant_preset(&o->knock->grant, &front->preset) < 0) ||
        mr__grant_merge(&o->knock->grant, &answer) < 0) {
        mr__knock_forget(s, o->knock);
        mr__free(o);
        return NULL;
    }
    return o;
}

uint64_t mr__players_open(struct service *s, const struct open_spec *spec,
                          void (*done)(void *arg, const struct open_answer *a), void *arg)
{
    struct opening *o = make_opening(s, spec);

    if (!o) {
        return 0;
    }
    o->id = ++s->last_opening;
    o->done = done;
    o->arg = arg;
    o->wants_pair = spec->pair.n > 0;
    o->pair = o->wants_pair ? mr_relay_parse(s->mr, spec->pair.s, spec->pair.n) : 0;
    mr__list_push_back(&s->openings, &o->link);
    mr__task_ready(s, &o->start);
    return o->id;
}

void mr__players_open_cancel(struct service *s, uint64_t id)
{
    for (struct list *l = s->openings.next; l != &s->openings; l = l->next) {
        struct opening *o = MR_CONTAINER(l, struct opening, link);
        if (o->id == id) {
            mr__knock_forget(s, o->knock);
            free_opening(o);
            return;
        }
    }
}
