/* SPDX-License-Identifier: MIT */
/*
 * Our own listening tuples: an address that is one of them is never a peer, or two
 * of our sockets could talk to each other for ever. A tuple with the unspecified
 * IP stands for that port on every local IP (loopback always is one, the others
 * are told). Asked where an address enters and on the miss path, never before a
 * lookup. Pure; belongs to one thread.
 */
#ifndef MR_CORE_OWN_H
#define MR_CORE_OWN_H

#include "core/address.h"
#include "core/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct own {
    struct mr_addr *slots; /* tuples, and local IPs as tuples with port 0 */
    uint64_t mask;
    uint32_t used;
    uint32_t max;
    struct hash_key key;
};

size_t mr__own_bytes(uint32_t max);
void mr__own_init(struct own *o, uint32_t max, const struct hash_key *key, void *mem);

/* A listening tuple (port > 0) or a local IP (port 0). Adding twice is no error.
 * -EINVAL no family   -ENOSPC full */
int mr__own_add(struct own *o, const struct mr_addr *a);
/* -ENOENT */
int mr__own_remove(struct own *o, const struct mr_addr *a);
bool mr__own_contains(const struct own *o, const struct mr_addr *a);

#endif
