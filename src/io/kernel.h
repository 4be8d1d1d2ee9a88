/* SPDX-License-Identifier: MIT */
/*
 * What the two halves of the kernel's transport (kernel.c, send.c) share. Worker threads.
 */
#ifndef MR_IO_KERNEL_H
#define MR_IO_KERNEL_H

#include "io/transport.h"

enum {
    /* Signals are blocked in workers, so EINTR hardly ever comes; a bound keeps even a
     * storm of them from holding the thread. */
    EINTR_MAX = 16,
};

/* As struct transport's send. */
void mr__kernel_send(struct tx *tx, const struct tx_socket *socket, struct batch *batch,
                     const uint16_t *index, unsigned n);

#endif
