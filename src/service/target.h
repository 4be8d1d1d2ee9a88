/* SPDX-License-Identifier: MIT */
/*
 * How a target is written: host:port, or [IPv6]:port. For policies' answers and the
 * config, which check it before it is anybody's, and for the service. Pure; any thread.
 */
#ifndef MR_SERVICE_TARGET_H
#define MR_SERVICE_TARGET_H

#include "service/hooks.h"

#include <stdbool.h>
#include <stdint.h>

/* false: it is none, or longer than MR_TARGET_MAX. *host is a part of text, without brackets; the
 * port is 1 to 65535. What the host is, a name or an address, is for the lookup to say. */
bool mr__target_parse(struct str text, struct str *host, uint16_t *port);

#endif
