/* SPDX-License-Identifier: MIT */
/*
 * The registrar's UDP endpoint (udp.h) on a libuv loop: datagrams wait in the kernel until
 * it is started, replies leave from the address that was asked. What a datagram means is
 * the handler's business. Control thread. Start reading at mr__registrar_open().
 */
#ifndef MR_CONTROL_REGISTRAR_H
#define MR_CONTROL_REGISTRAR_H

#include "core/address.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct registrar;

struct registrar_options {
    uv_loop_t *loop;
    struct mr_addr local;
    uint32_t buffer_bytes; /* the kernel's, both directions */
    void *user;
    /* May call mr__registrar_reply(). local: the address it was sent to. */
    void (*on_datagram)(void *user, const struct mr_addr *from, const struct mr_addr *local,
                        const void *data, size_t n);
};

struct registrar_counts {
    uint64_t kernel_drops;   /* lost in the receive buffer */
    uint64_t replies_failed; /* the kernel refused to send */
    uint64_t receive_errors;
};

/* Binds; datagrams wait until mr__registrar_start(). Negative errno of socket(2) or bind(2). */
int mr__registrar_open(struct registrar **out, const struct registrar_options *opts,
                       struct mr_addr *bound);
int mr__registrar_start(struct registrar *r);
void mr__registrar_reply(struct registrar *r, const struct mr_addr *to, const struct mr_addr *local,
                         const void *data, size_t n);
void mr__registrar_counts(struct registrar *r, struct registrar_counts *out);

/* Reads no more; what comes is dropped by the kernel. Replies may still be sent. */
void mr__registrar_stop(struct registrar *r);

/* Frees it when the loop has run its close callbacks. Accepts NULL. */
void mr__registrar_destroy(struct registrar *r);

#endif
