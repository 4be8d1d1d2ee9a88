/* SPDX-License-Identifier: MIT */
/*
 * What the machine's routes say. Any thread; nothing here keeps state.
 * Start reading at mr__route_source().
 */
#ifndef MR_IO_ROUTE_H
#define MR_IO_ROUTE_H

#include "core/address.h"

/* From which local address the machine would send to the peer: port 0. Sends nothing, and uses no
 * UDP port. -EINVAL: a peer without family; -EADDRNOTAVAIL: no address of ours fits; else as
 * socket(2) and what the routes say, e.g. -ENETUNREACH. */
int mr__route_source(const struct mr_addr *peer, struct mr_addr *source);

#endif
