/* SPDX-License-Identifier: MIT */
/*
 * A list of networks out of a setting, for "is this address among them". Control thread.
 */
#ifndef MR_SERVICE_NETS_H
#define MR_SERVICE_NETS_H

#include "core/address.h"

#include <stdbool.h>
#include <stddef.h>

struct net {
    struct mr_addr base;
    unsigned bits;
};

struct nets {
    struct net *items;
    size_t n;
};

/* Parses "10.0.0.0/8" or one address; exactly n bytes. false: it is neither. */
bool mr__net_parse(struct net *out, const char *text, size_t n);

/* Parses a comma list, spaces around the commas fine; an empty text is an empty list. -EINVAL,
 * -ENOMEM. */
int mr__nets_parse(struct nets *out, const char *text, size_t n);
void mr__nets_deinit(struct nets *nets);
bool mr__nets_contain(const struct nets *nets, const struct mr_addr *a);

#endif
