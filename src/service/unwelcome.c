/* SPDX-License-Identifier: MIT */
/*
 * Sockets whose players were kicked: what they keep sending gets no relay, until the
 * registrar sees a valid PID from them, ten minutes at most. Control thread. Bounded; the
 * one marked longest ago is forgotten first.
 */
#include "service/state.h"

#include "base/alloc.h"

static struct unwelcome *find(const struct service *s, const struct mr_addr *addr)
{
    uint64_t hash = mr__table_hash(&s->key, addr, sizeof(struct mr_addr));

    for (struct table_node *n = mr__table_first(&s->unwelcome, hash); n; n = mr__table_next(n)) {
        struct unwelcome *u = MR_CONTAINER(n, struct unwelcome, node);
        if (mr_addr_equal(&u->addr, addr)) {
            return u;
        }
    }
    return NULL;
}

static void forget(struct service *s, struct unwelcome *u)
{
    mr__list_remove(&u->link);
    mr__table_remove(&s->unwelcome, &u->node);
    mr__free(u);
}

static void expire(struct service *s)
{
    while (!mr__list_is_empty(&s->unwelcomes)) {
        struct unwelcome *u = MR_CONTAINER(s->unwelcomes.next, struct unwelcome, link);
        if (s->now_ns < u->until_ns) {
            return;
        }
        forget(s, u);
    }
}

/* Without memory for the mark the relay has ended all the same, and policies are asked about what
 * comes from the socket. */
void mr__unwelcome_add(struct service *s, const struct mr_addr *addr)
{
    struct unwelcome *u = find(s, addr);

    if (u) {
        mr__list_remove(&u->link);
    } else {
        expire(s);
        if (s->unwelcome.n >= MR_UNWELCOME_MAX) {
            forget(s, MR_CONTAINER(s->unwelcomes.next, struct unwelcome, link));
        }
        u = mr__alloc(1, sizeof *u);
        if (!u) {
            return;
        }
        u->addr = *addr;
        mr__table_add(&s->unwelcome, &u->node,
                      mr__table_hash(&s->key, addr, sizeof(struct mr_addr)));
    }
    u->until_ns = s->now_ns + (uint64_t)MR_UNWELCOME_SECONDS * 1000000000;
    mr__list_push_back(&s->unwelcomes, &u->link);
}

void mr__unwelcome_remove(struct service *s, const struct mr_addr *addr)
{
    struct unwelcome *u = find(s, addr);

    if (u) {
        forget(s, u);
    }
}

bool mr__unwelcome_has(const struct service *s, const struct mr_addr *addr)
{
    const struct unwelcome *u = find(s, addr);

    return u && s->now_ns < u->until_ns;
}

void mr__unwelcome_destroy(struct service *s)
{
    while (!mr__list_is_empty(&s->unwelcomes)) {
        forget(s, MR_CONTAINER(s->unwelcomes.next, struct unwelcome, link));
    }
}
