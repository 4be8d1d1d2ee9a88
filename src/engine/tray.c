/* SPDX-License-Identifier: MIT */
/*
 * A byte ring with whole pieces: what does not fit before the end starts over at the
 * beginning, and the gap is released with the piece. Start at mr__tray_reserve().
 */
#include "engine/tray.h"

#include <stddef.h>
#include <string.h>

void mr__tray_init(struct tray *t, void *mem)
{
    memset(t, 0, sizeof *t);
    t->data = mem;
}

uint8_t *mr__tray_reserve(struct tray *t, uint32_t size, uint32_t *bytes)
{
    uint32_t at = (uint32_t)(t->written % TRAY_BYTES);
    uint32_t gap = size > TRAY_BYTES - at ? TRAY_BYTES - at : 0;
    uint64_t used = t->written - atomic_load_explicit(&t->released, memory_order_acquire);

    if (size > TRAY_BYTES || used + gap + size > TRAY_BYTES)
        return NULL;
    *bytes = gap + size;
    t->written += *bytes;
    return t->data + (gap ? 0 : at);
}

void mr__tray_release(struct tray *t, uint32_t bytes)
{
    uint64_t released = atomic_load_explicit(&t->released, memory_order_relaxed);

    atomic_store_explicit(&t->released, released + bytes, memory_order_release);
}
