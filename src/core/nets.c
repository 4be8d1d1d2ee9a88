/* SPDX-License-Identifier: MIT */
/*
 * See nets.h. A binary search over a million ranges is 20 steps, the last ones in one
 * line of cache; a trie would take fewer, and pointers that a writer has to keep right.
 */
#include "core/nets.h"

#include <string.h>

static uint32_t find4(const struct mr_nets *nets, const uint8_t ip[4])
{
    uint32_t a =
        (uint32_t)ip[0] << 24 | (uint32_t)ip[1] << 16 | (uint32_t)ip[2] << 8 | (uint32_t)ip[3];
    uint32_t low = 0, high = nets->n4;

    while (low < high) { /* the first range that ends at or behind a */
        uint32_t middle = low + (high - low) / 2;
        if (nets->v4[middle].last < a) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < nets->n4 && nets->v4[low].first <= a ? nets->v4[low].value
                                                      : (uint32_t)MR_NETS_NONE;
}

static uint32_t find6(const struct mr_nets *nets, const uint8_t ip[16])
{
    uint32_t low = 0, high = nets->n6;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (memcmp(nets->v6[middle].last, ip, 16) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < nets->n6 && memcmp(nets->v6[low].first, ip, 16) <= 0 ? nets->v6[low].value
                                                                      : (uint32_t)MR_NETS_NONE;
}

uint32_t mr_nets_find(const struct mr_nets *nets, const struct mr_addr *a)
{
    return a->family == 4   ? find4(nets, a->ip)
           : a->family == 6 ? find6(nets, a->ip)
                            : (uint32_t)MR_NETS_NONE;
}
