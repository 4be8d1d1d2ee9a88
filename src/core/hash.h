/* SPDX-License-Identifier: MIT */
/*
 * The keyed hash of our tables. Peers choose their addresses, so an unkeyed mix
 * would let one of them aim at a bucket; the key comes from the kernel's random
 * source at creation and never leaves the process. Pure; any thread.
 */
#ifndef MR_CORE_HASH_H
#define MR_CORE_HASH_H

#include "core/address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Random; the same in all replicas, so that a test can replay them. */
struct hash_key {
    uint64_t k[4];
};

__extension__ typedef unsigned __int128 mr__u128;

/* The two halves of a 128-bit product, folded (wyhash's mixing step). */
static inline uint64_t mr__hash_fold(uint64_t a, uint64_t b)
{
    mr__u128 p = (mr__u128)a * b;

    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* One of an address's three words, as it lies in memory. Word by word, since a copy of
 * all 24 bytes goes through the stack. */
static inline uint64_t mr__hash_word(const struct mr_addr *a, size_t i)
{
    uint64_t w;

    memcpy(&w, (const unsigned char *)a + 8 * i, sizeof w);
    return w;
}

/* An address and one word more (a local port, or 0). */
static inline uint64_t mr__hash_addr(const struct hash_key *key, const struct mr_addr *a,
                                     uint32_t word)
{
    uint64_t h = mr__hash_fold(mr__hash_word(a, 0) ^ key->k[0], mr__hash_word(a, 1) ^ key->k[1]);

    return mr__hash_fold(h ^ mr__hash_word(a, 2) ^ key->k[2],
                         ((uint64_t)word << 32 | word) ^ key->k[3]);
}

/* mr_addr_equal() for the hot path: no call. */
static inline bool mr__hash_same_addr(const struct mr_addr *a, const struct mr_addr *b)
{
    return ((mr__hash_word(a, 0) ^ mr__hash_word(b, 0)) |
            (mr__hash_word(a, 1) ^ mr__hash_word(b, 1)) |
            (mr__hash_word(a, 2) ^ mr__hash_word(b, 2))) == 0;
}

/* Slots for n entries at a load of about one half: a power of two, at least 8. A load of
 * 9/16 is let pass, or the default of 2,049 ports would take twice the memory of 2,048. */
static inline uint64_t mr__hash_slots(uint64_t n)
{
    uint64_t slots = 8;

    while (slots * 9 < n * 16)
        slots *= 2;
    return slots;
}

/* Where the next array may start in memory that is handed in. */
static inline size_t mr__hash_align(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

#endif
