/* SPDX-License-Identifier: MIT */
/*
 * The set of our own listening tuples; open addressing as in link.c. Belongs to one
 * thread. Start at mr__own_contains().
 */
#include "core/own.h"

#include <errno.h>
#include <string.h>

size_t mr__own_bytes(uint32_t max)
{
    return mr__hash_align((size_t)mr__hash_slots(max) * sizeof(struct mr_addr));
}

void mr__own_init(struct own *o, uint32_t max, const struct hash_key *key, void *mem)
{
    *o = (struct own){.slots = mem, .mask = mr__hash_slots(max) - 1, .max = max, .key = *key};
}

static uint64_t probe(const struct own *o, const struct mr_addr *a)
{
    uint64_t i = mr__hash_addr(&o->key, a, 0) & o->mask;

    while (o->slots[i].family && !mr__hash_same_addr(&o->slots[i], a))
        i = (i + 1) & o->mask;
    return i;
}

static bool has(const struct own *o, const struct mr_addr *a)
{
    return o->slots[probe(o, a)].family != 0;
}

int mr__own_add(struct own *o, const struct mr_addr *a)
{
    uint64_t i = probe(o, a);

    if (!a->family)
        return -EINVAL;
    if (o->slots[i].family)
        return 0;
    if (o->used == o->max)
        return -ENOSPC;
    o->slots[i] = *a;
    o->used++;
    return 0;
}

/* Backward shift, see mr__links_remove(). */
int mr__own_remove(struct own *o, const struct mr_addr *a)
{
    uint64_t hole = probe(o, a), i = hole;

    if (!a->family || !o->slots[hole].family)
        return -ENOENT;
    for (;;) {
        uint64_t home;

        i = (i + 1) & o->mask;
        if (!o->slots[i].family)
            break;
        home = mr__hash_addr(&o->key, &o->slots[i], 0) & o->mask;
        if (((i - home) & o->mask) < ((i - hole) & o->mask))
            continue;
        o->slots[hole] = o->slots[i];
        hole = i;
    }
    memset(&o->slots[hole], 0, sizeof o->slots[hole]);
    o->used--;
    return 0;
}

static bool is_local(const struct own *o, const struct mr_addr *a)
{
    struct mr_addr ip = *a;

    ip.port = 0;
    return (mr_addr_classify(a) & (MR_ADDR_LOOPBACK | MR_ADDR_UNSPECIFIED)) || has(o, &ip);
}

/*
 * The exact tuple, or a socket bound to every local IP: to 0.0.0.0, or to :: which
 * serves both families (an IPv6-only :: is taken for one that does; at worst an
 * IPv4 peer on one of our own IPs is refused).
 */
bool mr__own_contains(const struct own *o, const struct mr_addr *a)
{
    struct mr_addr any4 = {.family = 4, .port = a->port}, any6 = {.family = 6, .port = a->port};

    if (!a->family || !a->port)
        return false;
    if (has(o, a))
        return true;
    if (!(a->family == 4 && has(o, &any4)) && !has(o, &any6))
        return false;
    return is_local(o, a);
}
