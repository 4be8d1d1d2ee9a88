/* SPDX-License-Identifier: MIT */
/*
 * What policies keep: stores of scalars with a time to live, and limiters (token
 * buckets by key). Owned by control in C, so that a reload keeps them; bounded in number,
 * entries and bytes. Control thread; knows neither the service nor Lua.
 *
 * They belong to an owner (the policy's name) and have a name. Opening one that is there
 * gives the same one, with the new maximum and time to live for what is written from now
 * on. Start reading at mr__stores_open().
 */
#ifndef MR_SERVICE_STORE_H
#define MR_SERVICE_STORE_H

#include "service/hooks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stores;
struct table_key;
struct store;
struct limiter;

enum {
    MR_STORES_MAX = 256,             /* stores and limiters in all */
    MR_STORE_ENTRIES_MAX = 10000000, /* what `max` may be at most */
    MR_STORE_KEY_MAX = 256,          /* bytes */
    MR_STORE_VALUE_MAX = 65536,      /* bytes of one text */
    MR_STORES_BYTES_MAX = 256 << 20, /* of all entries together, with what holds them */
};

struct store_value {
    enum store_type { MR_STORE_NIL, MR_STORE_NUMBER, MR_STORE_TEXT, MR_STORE_BOOLEAN } type;
    double number;
    bool boolean;
    struct str text; /* borrowed: valid until the store is next written */
};

/* key: random, of the tables of keys, which players choose. NULL: out of memory. */
struct stores *mr__stores_create(const struct table_key *key);
void mr__stores_destroy(struct stores *s); /* accepts NULL */

/* max: 1 to MR_STORE_ENTRIES_MAX (else -EINVAL); ttl_ns 0: for ever. -ENOSPC above MR_STORES_MAX,
 * -ENOMEM. The pointer lives until mr__stores_keep() lets go of its owner. */
int mr__stores_open(struct stores *s, struct str owner, struct str name, uint64_t max,
                    uint64_t ttl_ns, struct store **out);

/* As it is, not opened with other bounds; NULL: there is none. */
struct store *mr__stores_find(const struct stores *s, struct str owner, struct str name);

/* Lets go of what has an owner that is not kept; the names are free for others at once. */
void mr__stores_keep(struct stores *s, bool (*is_kept)(void *user, struct str owner), void *user);

/* Expired entries are never seen; a time to live runs from the first write of a key, and is not
 * prolonged by later ones. set with MR_STORE_NIL deletes. 0; -ENOSPC: full; -ENOMEM; -EINVAL: key
 * or text is longer than the bounds above. */
void mr__store_get(struct store *s, struct str key, uint64_t now_ns, struct store_value *out);
int mr__store_set(struct store *s, struct str key, const struct store_value *v, uint64_t now_ns);
/* Only when the key is not there: -EEXIST. */
int mr__store_add(struct store *s, struct str key, const struct store_value *v, uint64_t now_ns);
/* A key that is not there counts as 0. -EINVAL: it is no number, or the sum is not finite. */
int mr__store_incr(struct store *s, struct str key, double by, uint64_t now_ns, double *sum);
bool mr__store_delete(struct store *s, struct str key, uint64_t now_ns); /* was it there? */
size_t mr__store_count(struct store *s, uint64_t now_ns);

/* Token buckets: rate tokens a second (above 0), at most burst at once (1 and above), at most max
 * keys; what is full again is forgotten. Opening one anew changes rate, burst and max. -EINVAL,
 * -ENOSPC, -ENOMEM as above. */
int mr__limiters_open(struct stores *s, struct str owner, struct str name, double rate,
                      double burst, uint64_t max, struct limiter **out);
/* 0: taken. -EAGAIN: *wait_ns until n tokens are there (UINT64_MAX: never, n is above the burst).
 * -ENOSPC: more than max keys are in use. -ENOMEM. -EINVAL: n is not above 0, or the key too long.
 */
int mr__limiter_take(struct limiter *l, struct str key, double n, uint64_t now_ns,
                     uint64_t *wait_ns);

/* Frees what expired, a bounded number a call (at most 1,000 entries). */
void mr__stores_tick(struct stores *s, uint64_t now_ns);
/* When the next tick is worth it: once a second, at once while more is due than a tick frees;
 * UINT64_MAX: nothing is kept. */
uint64_t mr__stores_deadline(const struct stores *s);

#endif
