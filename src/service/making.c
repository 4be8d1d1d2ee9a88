/* SPDX-License-Identifier: MIT */
/*
 * One creation per address at a time: while policies think about a relay for an address,
 * whoever needs one as well waits, and gets the same refusal or finds the relay. Control
 * thread. Nobody waits while he holds a making, so there is no circle to wait in.
 */
#include "service/state.h"

static struct making *find(const struct service *s, const struct mr_addr *addr, uint32_t entry)
{
    uint64_t hash = mr__table_hash(&s->key, addr, sizeof(struct mr_addr));

    for (struct table_node *n = mr__table_first(&s->makings, hash); n; n = mr__table_next(n)) {
        struct making *m = MR_CONTAINER(n, struct making, node);
        if (m->entry == entry && mr_addr_equal(&m->addr, addr)) {
            return m;
        }
    }
    return NULL;
}

bool mr__making_is_free(const struct service *s, const struct mr_addr *addr, uint32_t entry)
{
    return find(s, addr, entry) == NULL;
}

void mr__making_begin(struct service *s, struct making *m, const struct mr_addr *addr,
                      uint32_t entry)
{
    m->addr = *addr;
    m->entry = entry;
    m->is_held = true;
    mr__list_init(&m->waiters);
    mr__table_add(&s->makings, &m->node, mr__table_hash(&s->key, addr, sizeof(struct mr_addr)));
}

void mr__making_wait(struct service *s, const struct mr_addr *addr, uint32_t entry,
                     struct waiter *w)
{
    struct making *m = find(s, addr, entry);

    w->has_refusal = false;
    mr__list_push_back(&m->waiters, &w->link);
}

void mr__making_end(struct service *s, struct making *m, const struct refusal *refusal)
{
    if (!m->is_held) {
        return;
    }
    m->is_held = false;
    mr__table_remove(&s->makings, &m->node);
    while (!mr__list_is_empty(&m->waiters)) {
        struct waiter *w = MR_CONTAINER(m->waiters.next, struct waiter, link);
        mr__list_remove(&w->link);
        w->has_refusal = refusal != NULL;
        if (refusal) {
            w->refusal = *refusal;
        }
        mr__task_ready(s, w->task);
    }
}
