/* SPDX-License-Identifier: MIT */
/*
 * The datagrams a worker carries through one pass: received, decided, sent. Beside the
 * plane's view of each (core/plane.h) lies where its payload is. Belongs to one worker.
 */
#ifndef MR_IO_BATCH_H
#define MR_IO_BATCH_H

#include "core/plane.h"

#include <stdint.h>

enum {
    BATCH_MAX = MR__PLANE_BATCH_MAX, /* enough to fill sendmmsg from one busy host, little
                                      * enough that headers and lines stay in the L2 cache */
};

struct batch {
    unsigned n;
    struct plane_rx rx[BATCH_MAX];
    struct plane_out out[BATCH_MAX];
    uint8_t *data[BATCH_MAX];
};

#endif
