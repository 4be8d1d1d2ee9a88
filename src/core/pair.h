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
 * One leg of a pair may be LATCHED: b's peer speaks to a's port from `seen` instead of from b.addr.
 * (a.port, seen) is then a link as b's, what goes to b's peer within this pair goes to `seen`, and
 * (a.port, b.addr) stays and is fresh: when it is used the latch is over.
 *
 *     a.addr ---> b.port ......> seen        charged a, leaves from a.port
 *     a.addr <.... b.port   a.port <--- seen        charged b, leaves from b.port
 *
 * With both legs latched the two links of the seen addresses point at each other. A leg is latched
 * only while its link is fresh, that is while b's peer has not itself spoken to a's port since the
 * pair is watched.
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
    uint32_t reserved_pairs; /* the last ones, for relays that have none but their echo */
    uint32_t max_raws;
    uint32_t max_latches;       /* they also take links of pairs that are not there */
    mr__tables_on_link on_link; /* NULL: nobody listens */
    void *user;
};

/* Something that lives between two relays and ends with either: a pair or a raw link.
 * It is in the lists of both; a list's elements are entry << 1 | side. */
struct tie {
    uint32_t relay[2]; /* port indexes; a pair's are ordered; MR__NONE: nobody, or free */
    uint32_t next[2], prev[2];
};

/* How much is known of a leg: of what relay[side]'s own peer sends to the other's port. */
enum leg_state {
    LEG_UNWATCHED,
    LEG_FRESH,  /* nothing came since it is watched: its link is fresh */
    LEG_SPOKEN, /* something came */
};

struct pair {
    struct tie tie;
    uint32_t latch[2]; /* by side: index + 1 in latches; 0: none */
    uint8_t state[2];  /* enum leg_state */
};

/* Dense: the last one moves into a gap. */
struct latch {
    struct mr_addr seen;
    uint64_t seq;     /* the caller's: see mr__tables_open_latches() */
    uint32_t element; /* of the pair: whose leg it is */
    bool is_open;     /* `seen` has its link */
};

struct raw_link {
    struct link link;
    struct tie tie; /* between charged and target */
};

/* Entries of an array: those given back first, then those never used (so that a
 * table sized for the worst case touches no memory before it needs it). */
struct tie_pool {
    uint32_t max, used, reserved;
    uint32_t free;  /* list by next[0], MR__NONE ends it */
    uint32_t fresh; /* entries from here on were never used */
};

struct tables {
    struct plane plane; /* control's own replica */
    struct pair *pairs;
    struct raw_link *raws;
    struct latch *latches; /* [max_latches] */
    uint32_t n_latches, max_latches, n_closed;
    uint32_t *pair_slots; /* open addressing by both relays: entry + 1 */
    uint64_t pair_mask;
    struct links raw_index;   /* .charged is the entry in raws */
    struct links latch_index; /* by (port, seen); .charged is the pair's element */
    struct tie_pool pair_pool, raw_pool;
    mr__tables_on_link on_link;
    void *user;
};

/* Links never run out before pairs with latches and raw links do: 2 * max_pairs + max_raws. Size
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
/* Another address, port and pairs kept; the relay is that address's newest, its latches are
 * undone. The same address again makes it the newest, too, and changes nothing else. -ENOENT,
 * -EINVAL also for a linked one, else as create. */
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

/* From now on it is noticed when id's peer itself sends to the port of `other`, unless the relay is
 * manual; what was noticed before stays. -ENOENT: no such relay, or no pair */
int mr__tables_watch(struct tables *t, mr_relay_id id, mr_relay_id other);
/* Watched, and nothing came. */
bool mr__tables_is_fresh(const struct tables *t, mr_relay_id id, mr_relay_id other);
/* `id`'s peer is speaking from `seen` to the port of `other`, canonical or not. What is for him
 * goes there from now on; what comes from there is his once the latch is opened. -ENOENT: no such
 * relay, or no pair   -EBUSY: the leg is latched, not watched, or the peer itself has spoken
 * -EADDRINUSE: a relay has that address   -EEXIST: it has a link to that port -ENOSPC   else as
 * mr__tables_create() */
int mr__tables_latch(struct tables *t, mr_relay_id id, mr_relay_id other,
                     const struct mr_addr *seen, struct latch **out);
/* Those whose seq is not above this one: the way to them is known wherever it has to be, so that an
 * answer to what they say does not go where they have registered. */
void mr__tables_open_latches(struct tables *t, uint64_t seq);
/* -ENOENT */
int mr__tables_unlatch(struct tables *t, mr_relay_id id, mr_relay_id other);
/* Undoes the latches to an address; returns how many those were. */
unsigned mr__tables_unlatch_address(struct tables *t, const struct mr_addr *seen);
/* NULL: the leg is not latched. Valid until the next change. */
const struct mr_addr *mr__tables_latched(const struct tables *t, mr_relay_id id, mr_relay_id other);
/* A fresh link was used: id's own peer has sent to the port of `at`. That undoes a latch. Stale ids
 * do nothing. */
void mr__tables_spoke(struct tables *t, mr_relay_id id, mr_relay_id at);

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
 * that a worker received, and a fresh link is no longer fresh. -EINVAL: port out of range or no
 * address; *out is untouched. */
int mr__tables_decide(struct tables *t, uint64_t now_ns, const struct mr_addr *from, uint32_t port,
                      uint32_t size, struct plane_out *out);

#endif
