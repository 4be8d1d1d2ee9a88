/* SPDX-License-Identifier: MIT */
/*
 * Blocks: addresses, nets, single sockets and sets of tags that are refused until a
 * time, and lists of nets that a policy replaces as a whole. Owned by control in C, kept
 * over reloads, bounded. Control thread.
 *
 * They act when a connection is accepted (by net), at the registrar (by net and socket),
 * at register-host and connect (also by tags), at a knock, and in the data plane, which
 * has a copy of the nets (engine: mr_set_blocked()) so that a flood from a blocked net
 * costs no event. What matches when a block is made ends: sessions with `error
 * session:blocked`, relays with the reason `blocked`. The sockets of sessions that end by a
 * block of tags are refused as well until it expires, since their clients keep sending.
 */
#ifndef MR_SERVICE_BLOCKS_H
#define MR_SERVICE_BLOCKS_H

#include "core/address.h"
#include "service/cidr.h"
#include "service/hooks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct service;

enum {
    MR_BLOCKS_MAX = 100000,
    MR_BLOCK_TEXT_MAX = MR_TAGS_MAX * (MR_KEY_MAX + MR_VALUE_MAX + 2), /* of mr__block_format() */
};

struct block_what {
    enum block_kind { MR_BLOCK_NET, MR_BLOCK_SOCKET, MR_BLOCK_TAGS } kind;
    struct mr_addr addr;  /* NET: its base, SOCKET: with port */
    unsigned bits;        /* NET */
    struct hook_map tags; /* TAGS: all of them, at least one; borrowed */
};

/* Reads "1.2.3.4", "10.0.0.0/8", "1.2.3.4:5", "[::1]:5", or "key=value[,key=value...]" (tags; the
 * items are written to pairs, their strings borrowed from text). false with why. */
bool mr__block_parse(struct block_what *out, const char *text, size_t n,
                     struct hook_pair pairs[MR_TAGS_MAX], char why[MR_CIDR_WHY_MAX]);
/* The same text again; the length it has (cut at cap). */
size_t mr__block_format(const struct block_what *what, char *buf, size_t cap);

/* One that is there already gets the later end and the new reason. *ended (may be NULL): how many
 * sessions and relays without one end by it. Safe inside a hook: what ends, ends when this turn of
 * the service does. seconds above 0 (from a thousand million on it is for ever); by: policy's
 * name, or "control". -ENOSPC: there are MR_BLOCKS_MAX; -ENOMEM; -EINVAL. */
int mr__blocks_add(struct service *s, const struct block_what *what, double seconds,
                   struct str reason, struct str by, unsigned *ended);
/* How many there were of exactly that. The sockets that were refused for the sake of tags go with
 * them. Lists are not touched. */
unsigned mr__blocks_remove(struct service *s, const struct block_what *what);

/* Replaces the list of that owner; takes a reference of nets; NULL or an empty one: no list.
 * -ENOMEM: the old one stays. */
int mr__blocks_set_list(struct service *s, struct str owner, struct cidr *nets, struct str reason,
                        unsigned *ended);
/* Forgets lists whose owner is not among the names (policies of the new generation). */
void mr__blocks_keep_lists(struct service *s, const struct str *owners, size_t n);

/* What is blocked now, by hand first, then lists as one entry each; without the sockets that are
 * refused for the sake of tags. visit returns false to stop; it
 * must not call the service and may leave by an error of Lua. */
struct block_view {
    bool is_list;
    struct block_what what; /* not of a list */
    size_t nets;            /* of a list */
    struct str reason, by;
    double seconds_left; /* INFINITY: for ever; 0 for a list */
};
void mr__blocks_each(const struct service *s, bool (*visit)(void *user, const struct block_view *b),
                     void *user);

#endif
