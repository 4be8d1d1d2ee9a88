/* SPDX-License-Identifier: MIT */
/*
 * The keyed hash of the service's tables: players choose addresses, ids and slot keys,
 * and an unkeyed one would let them choose a bucket. Control thread. The mixing step is
 * wyhash's, as in core/hash.h, which is the data plane's own.
 */
#ifndef MR_SERVICE_HASH_H
#define MR_SERVICE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct table_key {
    uint64_t k[4]; /* random; never leaves the process */
};

__extension__ typedef unsigned __int128 mr__wide;

static inline uint64_t mr__table_fold(uint64_t a, uint64_t b)
{
    mr__wide p = (mr__wide)a * b;

    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* Eight bytes at a time; the length goes in first, so that padding adds nothing. */
static inline uint64_t mr__table_hash(const struct table_key *key, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t h = mr__table_fold(key->k[0] ^ n, key->k[1] | 1);

    for (size_t i = 0; i < n; i += 8) {
        uint64_t w = 0;
        memcpy(&w, p + i, n - i < 8 ? n - i : 8);
        h = mr__table_fold(h ^ w ^ key->k[2], key->k[3] | 1);
    }
    return h;
}

#endif
