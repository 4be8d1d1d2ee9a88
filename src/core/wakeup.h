/* SPDX-License-Identifier: MIT */
/*
 * Who must be woken: the half of a wake-up that needs no system call.
 *
 *     sleeper: mr__wakeup_prepare(); look at all rings AGAIN;
 *              work? mr__wakeup_cancel() and do it : block in the kernel, then cancel
 *     poster:  publish (ring commit, store); if (mr__wakeup_post()) write the eventfd
 *
 * Both sides exchange the flag, seq_cst. The exchanges of one flag have one order:
 * either the poster's comes second and sees 1, so it wakes; or the sleeper's comes
 * second and, having read the poster's value, sees all it published before. Plain
 * stores and loads with acquire and release would let the sleeper's look move
 * before its flag, and each could miss the other.
 */
#ifndef MR_CORE_WAKEUP_H
#define MR_CORE_WAKEUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct wakeup {
    unsigned char apart_1[60];
    _Atomic uint32_t is_asleep;
    unsigned char apart_2[60];
};

/* Pairs with mr__wakeup_post(). */
static inline void mr__wakeup_prepare(struct wakeup *w)
{
    atomic_exchange_explicit(&w->is_asleep, 1, memory_order_seq_cst);
}

static inline void mr__wakeup_cancel(struct wakeup *w)
{
    atomic_exchange_explicit(&w->is_asleep, 0, memory_order_seq_cst);
}

/* True: the sleeper must be woken, and the caller is the one to do it. Pairs with
 * mr__wakeup_prepare(). */
static inline bool mr__wakeup_post(struct wakeup *w)
{
    return atomic_exchange_explicit(&w->is_asleep, 0, memory_order_seq_cst) != 0;
}

#endif
