/* SPDX-License-Identifier: MIT */
/*
 * IPs that have a session here, or had one within ten minutes: what the shipped dynamic
 * policy admits. Control thread. An IP and not an address, because the datagrams in
 * question come from ports that nobody has seen yet (that is why they are unexpected).
 * Those that are gone are bounded; the one gone longest is forgotten first.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>

static struct mr_addr ip_of(const struct mr_addr *addr)
{
    struct mr_addr ip = *addr;

    ip.port = 0;
    return ip;
}

static struct known *find(const struct service *s, const struct mr_addr *ip)
{
    uint64_t hash = mr__table_hash(&s->key, ip, sizeof(struct mr_addr));

    for (struct table_node *n = mr__table_first(&s->knowns, hash); n; n = mr__table_next(n)) {
        struct known *k = MR_CONTAINER(n, struct known, node);
        if (mr_addr_equal(&k->ip, ip)) {
            return k;
        }
    }
    return NULL;
}

static void forget(struct service *s, struct known *k)
{
    mr__list_remove(&k->gone);
    mr__table_remove(&s->knowns, &k->node);
    mr__free(k);
    s->n_gone--;
}

int mr__known_enter(struct service *s, const struct mr_addr *addr)
{
    struct mr_addr ip = ip_of(addr);
    struct known *k = find(s, &ip);

    if (!k) {
        k = mr__alloc(1, sizeof *k);
        if (!k) {
            return -ENOMEM;
        }
        k->ip = ip;
        mr__list_init(&k->gone);
        mr__table_add(&s->knowns, &k->node, mr__table_hash(&s->key, &ip, sizeof(struct mr_addr)));
    } else if (k->live == 0) {
        mr__list_remove(&k->gone);
        s->n_gone--;
    }
    k->live++;
    return 0;
}

void mr__known_leave(struct service *s, const struct mr_addr *addr)
{
    struct mr_addr ip = ip_of(addr);
    struct known *k = find(s, &ip);

    if (!k || --k->live > 0) {
        return;
    }
    k->until_ns = s->now_ns + (uint64_t)MR_KNOWN_SECONDS * 1000000000;
    mr__list_push_back(&s->gone, &k->gone);
    if (++s->n_gone > MR_KNOWN_GONE_MAX) {
        forget(s, MR_CONTAINER(s->gone.next, struct known, gone));
    }
}

int mr__known_enter_near(struct service *s, const struct mr_addr *addr)
{
    struct mr_addr ip = ip_of(addr);
    int rc = mr__known_enter(s, addr);

    if (rc == 0) {
        find(s, &ip)->near++;
    }
    return rc;
}

void mr__known_leave_near(struct service *s, const struct mr_addr *addr)
{
    struct mr_addr ip = ip_of(addr);
    struct known *k = find(s, &ip);

    if (k && --k->near == 0) {
        k->near_until_ns = s->now_ns + (uint64_t)MR_KNOWN_SECONDS * 1000000000;
    }
    mr__known_leave(s, addr);
}

bool mr__known_vouches(const struct service *s, const struct mr_addr *addr)
{
    struct mr_addr ip = ip_of(addr);
    const struct known *k = find(s, &ip);

    return k && (k->near > 0 || s->now_ns < k->near_until_ns);
}

bool mr__known_has(const struct service *s, const struct mr_addr *addr)
{
    struct mr_addr ip = ip_of(addr);
    const struct known *k = find(s, &ip);

    return k && (k->live > 0 || s->now_ns < k->until_ns);
}

void mr__known_expire(struct service *s)
{
    while (!mr__list_is_empty(&s->gone)) {
        struct known *k = MR_CONTAINER(s->gone.next, struct known, gone);
        if (s->now_ns < k->until_ns) {
            return;
        }
        forget(s, k);
    }
}

void mr__known_destroy(struct service *s)
{
    while (!mr__list_is_empty(&s->gone)) {
        forget(s, MR_CONTAINER(s->gone.next, struct known, gone));
    }
}
