/* SPDX-License-Identifier: MIT */
/*
 * Control's tables: relays, pairs and the links that follow from them, kept in
 * step through create, free, clear, move, pair and unpair. Each change of a link
 * is told to a callback, which turns it into LINK and UNLINK commands for the
 * workers' replicas; the order of the calls is an order in which a replica may
 * apply them.
 *
 * A pair {a, b} wants two links:
 *     (a.port, b.addr) -> (b.egress, a.addr, charged b, target a)   and its mirror;
 * {a, a} is an echo and wants one. When relays share an address, several pairs may
 * want one key: the partner that registered last has it, and when that one goes
 * the next gets it back. A raw link (by the embedder, for `target = host:port`)
 * beats both.
 *
 * Pure: memory is handed in. Belongs to the control thread. Start at refresh() in
 * pair.c: everything that changes a link goes through it.
 */
#ifndef MR_CORE_PAIR_H
#define MR_CORE_PAIR_H

#include "core/plane.h"

#include <stddef.h>
#include <stdint.h>

enum mr__link_op { MR__LINK_SET, MR__LINK_REMOVE };

/* For MR__LINK_REMOVE only port and from matter. */
typedef void (*mr__tables_on_link)(void *user, enum mr__link_op op, const struct link *link);

struct tables_config {
    struct plane_config plane; /* max_links is not looked at: see mr__tables_max_links() */
    uint32_t max_pairs;
    uint32_t max_raws;
    mr__tables_on_link on_link; /* NULL: nobody listens */
    void *user;
};

/* Something that lives between two relays and ends with either: a pair or a raw link.
 * It is in the lists of both; a list's elements are entry << 1 | side. */
struct tie {
    uint32_t relay[2]; /* port indexes; a pair's are ordered; MR__NONE: nobody, or free */
    uint32_t next[2], prev[2];
};

struct raw_link {
    struct link link;
    struct tie tie; /* between charged and target */
};

/* Entries of an array: those given back first, then those never used (so that a
 * table sized for the worst case touches no memory before it needs it). */
struct tie_pool {
    uint32_t max, used;
    uint32_t free;  /* list by next[0], MR__NONE ends it */
    uint32_t fresh; /* entries from here on were never used */
};

struct tables {
    struct plane plane; /* control's own replica */
    struct tie *pairs;
    struct raw_link *raws;
    uint32_t *pair_slots; /* open addressing by both relays: entry + 1 */
    uint64_t pair_mask;
    struct links raw_index; /* .charged is the entry in raws */
    struct tie_pool pair_pool, raw_pool;
    mr__tables_on_link on_link;
    void *user;
};

/* Links never run out before pairs and raw links do: 2 * max_pairs + max_raws. Size
 * the workers' replicas by it too. */
uint32_t mr__tables_max_links(const struct tables_config *config);

/* As mr__plane_bytes(). */
size_t mr__tables_bytes(const struct tables_config *config);
void mr__tables_init(struct tables *t, const struct tables_config *config, void *mem);

/* A relay at a free port; *id gets its name. addr is canonicalized first.
 * -EINVAL port out of range, or no address   -EBUSY the port has a relay
 * -EDESTADDRREQ port 0, unspecified, multicast or broadcast
 * -EADDRNOTAVAIL one of our own addresses   -EOVERFLOW no generation is left */
int mr__tables_create(struct tables *t, uint32_t port, const struct mr_addr *addr, uint32_t flags,
                      uint32_t egress, mr_relay_id *id);
/* Ends the relay, its pairs, its links, its raw links. -ENOENT */
int mr__tables_free(struct tables *t, mr_relay_id id);
/* Ends everything. Ids stay used up. */
void mr__tables_clear(struct tables *t);
/* Another address, port and pairs kept; the relay is that address's newest. The
 * same address again makes it the newest, too. -ENOENT, -EINVAL also for a linked one, else as
 * create. */
int mr__tables_move(struct tables *t, mr_relay_id id, const struct mr_addr *addr);
/* -ENOENT */
int mr__tables_set_egress(struct tables *t, mr_relay_id id, uint32_t egress);

/* Pairing twice is no error (returns 0; 1 when it is new). -ENOENT  -ENOSPC
 * -EINVAL: one is MR__RELAY_LINKED */
int mr__tables_pair(struct tables *t, mr_relay_id a, mr_relay_id b);
/* -ENOENT: no such relay, or no pair */
int mr__tables_unpair(struct tables *t, mr_relay_id a, mr_relay_id b);
bool mr__tables_is_paired(const struct tables *t, mr_relay_id a, mr_relay_id b);
/* Calls fn for each partner of a relay. fn must not change the tables. -ENOENT */
int mr__tables_each_partner(const struct tables *t, mr_relay_id id,
                            void (*fn)(void *user, mr_relay_id partner), void *user);

/* A raw link. link->charged and link->target are port indexes of live relays or
 * MR__NONE, not both; it ends with either.
 * -EINVAL port or address   -ENOENT no such relay   -EEXIST there is one with its key
 * -ENOSPC */
int mr__tables_link(struct tables *t, const struct link *link);
/* Any link, also a pair's. from is canonical. */
bool mr__tables_has_link(const struct tables *t, uint32_t port, const struct mr_addr *from);
/* -ENOENT */
int mr__tables_unlink(struct tables *t, uint32_t port, const struct mr_addr *from);

/* The decision without sockets, the thing behind mr_decide(): `from` (any form) sends
 * `size` bytes to a local port; where do they go? Charged and counted like a datagram
 * that a worker received. -EINVAL: port out of range or no address; *out is untouched. */
int mr__tables_decide(struct tables *t, uint64_t now_ns, const struct mr_addr *from, uint32_t port,
                      uint32_t size, struct plane_out *out);

#endif
