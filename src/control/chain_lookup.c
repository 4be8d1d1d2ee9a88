/* SPDX-License-Identifier: MIT */
/*
 * See chain_lookup.h. The lookup puts a question to us on a turn of its own, never from
 * inside the service; so asking the service at once does not enter it twice.
 */
#include "control/chain_lookup.h"

#include "base/alloc.h"
#include "service/list.h"

#include <errno.h>

/* Waits for the service. */
struct question {
    struct list link;
    struct chain_lookup *chain;
    mr_lookup_ticket ticket; /* 0: nobody waits for it any more */
    uint64_t id;             /* the service's; 0: still inside mr__service_lookup() */
};

struct chain_lookup {
    struct mr_lookup *lookup;
    struct service *service; /* NULL: closed */
    struct list questions;
};

static void free_question(struct question *q)
{
    mr__list_remove(&q->link);
    mr__free(q);
}

static void on_answer(void *arg, const struct mr_lookup_answer *a)
{
    struct question *q = arg;

    if (q->ticket != 0) {
        mr_lookup_answer(q->chain->lookup, q->ticket, a);
    }
    free_question(q);
}

static void ask(void *user, mr_lookup_ticket ticket, const char *host, size_t n, int family,
                enum mr_lookup_op op)
{
    struct chain_lookup *c = user;
    struct question *q = c->service ? mr__alloc(1, sizeof *q) : NULL;
    uint64_t id;

    if (!c->service) {
        mr_lookup_answer(c->lookup, ticket, NULL);
        return;
    }
    if (!q) {
        const struct mr_lookup_answer no_memory = {
            .rc = -ENOMEM, .code = "failed", .message = "a lookup failed: not enough memory"};

        mr_lookup_answer(c->lookup, ticket, &no_memory);
        return;
    }
    q->chain = c;
    q->ticket = ticket;
    mr__list_push_back(&c->questions, &q->link);
    id = mr__service_lookup(c->service, (struct str){host, n}, family, op, on_answer, q,
                            uv_hrtime());
    if (id == 0) {
        return; /* answered, and gone */
    }
    q->id = id;
    if (q->ticket == 0) {
        mr__service_lookup_cancel(c->service, id);
        free_question(q);
    }
}

static void forget(void *user, mr_lookup_ticket ticket)
{
    struct chain_lookup *c = user;

    for (struct list *i = c->questions.next; i != &c->questions; i = i->next) {
        struct question *q = MR_CONTAINER(i, struct question, link);

        if (q->ticket != ticket) {
            continue;
        }
        q->ticket = 0;
        if (q->id != 0) {
            mr__service_lookup_cancel(c->service, q->id);
            free_question(q);
        }
        return;
    }
}

static int wants(void *user)
{
    const struct chain_lookup *c = user;

    return c->service && mr__service_wants_lookup(c->service);
}

int mr__chain_lookup_create(struct chain_lookup **out, struct mr_lookup *lookup,
                            struct service *service)
{
    struct chain_lookup *c = mr__alloc(1, sizeof *c);
    struct mr_lookup_custom custom = {.user = c, .ask = ask, .forget = forget, .wants = wants};

    if (!c) {
        return -ENOMEM;
    }
    c->lookup = lookup;
    c->service = service;
    mr__list_init(&c->questions);
    mr_lookup_set_custom(lookup, &custom);
    *out = c;
    return 0;
}

void mr__chain_lookup_close(struct chain_lookup *c)
{
    if (!c) {
        return;
    }
    while (!mr__list_is_empty(&c->questions)) {
        struct question *q = MR_CONTAINER(c->questions.next, struct question, link);
        mr_lookup_ticket ticket = q->ticket;

        mr__service_lookup_cancel(c->service, q->id);
        free_question(q);
        mr_lookup_answer(c->lookup, ticket, NULL);
    }
    c->service = NULL;
}

void mr__chain_lookup_destroy(struct chain_lookup *c)
{
    mr__chain_lookup_close(c);
    mr__free(c);
}
