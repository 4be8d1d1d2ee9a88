/* SPDX-License-Identifier: MIT */
/*
 * Networks as sorted ranges: "which of these nets has this address", by two binary
 * searches at most. Pure and constant once built, so that any number of threads may look
 * at one while its owner builds the next. Memory is the caller's.
 *
 * Ranges of one family are disjoint and sorted, so that the longest match is the only
 * one: whoever builds them (service/cidr.c) has cut larger nets where smaller ones lie
 * inside. Addresses are looked up in their canonical form (v4-mapped is IPv4).
 * Public: installed with moonrelay.h.
 */
#ifndef MR_CORE_NETS_H
#define MR_CORE_NETS_H

#include "core/address.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* part of the shared library's interface */
#endif

struct mr_range4 {
    uint32_t first, last; /* host byte order, inclusive */
    uint32_t value;
};

struct mr_range6 {
    uint8_t first[16], last[16]; /* network byte order, inclusive */
    uint32_t value;
};

struct mr_nets {
    const struct mr_range4 *v4;
    const struct mr_range6 *v6;
    uint32_t n4, n6;
};

enum { MR_NETS_NONE = UINT32_MAX };

/* The value of the range that has the address (port and scope do not matter), or MR_NETS_NONE. */
uint32_t mr_nets_find(const struct mr_nets *nets, const struct mr_addr *a);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
