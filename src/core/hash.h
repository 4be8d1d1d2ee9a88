/* SPDX-License-Identifier: MIT */
/*
 * The keyed hash of our tables. Peers choose their addresses, so an unkeyed mix
 * would let one of them aim at a bucket; the key comes from the kernel's random
 * source at creation and never leaves the process. Pure; any thread.
 */
#ifndef MR_CORE_HASH_H
#define MR_CORE_HASH_H

#include "core/address.h"

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

/* 24 bytes of address and one word (a local port, or 0). */
static inline uint64_t mr__hash_addr(const struct hash_key *key, const struct mr_addr *a,
                                     uint32_t word)
{
    uint64_t w[3];

    memcpy(w, a, sizeof w);
    return mr__hash_fold(mr__hash_fold(w[0] ^ key->k[0], w[1] ^ key->k[1]) ^ w[2] ^ key->k[2],
                         ((uint64_t)word << 32 | word) ^ key->k[3]);
}

/* Slots for n entries at a load of at most one half: a power of two, at least 8. */
static inline uint64_t mr__hash_slots(uint64_t n)
{
    uint64_t slots = 8;

    while (slots < 2 * n)
        slots *= 2;
    return slots;
}

/* Where the next array may start in memory that is handed in. */
static inline size_t mr__hash_align(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

#endif
