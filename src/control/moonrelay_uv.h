/* SPDX-License-Identifier: MIT */
/*
 * moonrelay's lookups and UDP endpoints for programs with a libuv loop: what the library
 * libmoonrelay_uv shows. All calls on one loop's handles come from the thread that runs
 * it. Addresses are libmoonrelay's (core/address.h). Start reading at udp.h.
 *
 * The name is not uv.h: its folder is on the include path, where libuv's would be found no more.
 */
#ifndef MR_CONTROL_MOONRELAY_UV_H
#define MR_CONTROL_MOONRELAY_UV_H

#include "control/lookup.h"
#include "control/udp.h"

#endif
