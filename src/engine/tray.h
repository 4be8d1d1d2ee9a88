/* SPDX-License-Identifier: MIT */
/*
 * Payloads on their way from a worker to the embedder (manual relays): a byte ring from
 * which pieces are taken whole and given back in order. One thread reserves, another
 * releases.
 */
#ifndef MR_ENGINE_TRAY_H
#define MR_ENGINE_TRAY_H

#include <stdatomic.h>
#include <stdint.h>

enum { TRAY_BYTES = 1 << 20 }; /* sixteen of the largest datagrams, a thousand of a game's */

struct tray {
    uint8_t *data;    /* TRAY_BYTES */
    uint64_t written; /* by whoever reserves */
    /* By whoever releases. Release and acquire: a piece is read before it is given back,
     * and given back before it is written again. */
    _Alignas(64) _Atomic uint64_t released;
};

void mr__tray_init(struct tray *t, void *mem);

/* A piece of size bytes, or NULL when there is no room. *bytes is what has to be
 * released for it. */
uint8_t *mr__tray_reserve(struct tray *t, uint32_t size, uint32_t *bytes);
void mr__tray_release(struct tray *t, uint32_t bytes);

#endif
