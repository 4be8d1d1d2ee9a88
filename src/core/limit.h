/* SPDX-License-Identifier: MIT */
/*
 * Rates as GCRA: a bucket is one 64-bit word, the moment at which it will be full
 * again (its "TAT"). No refill step, an idle bucket costs nothing, and several
 * workers share it by one compare-and-swap. Pure; any thread.
 */
#ifndef MR_CORE_LIMIT_H
#define MR_CORE_LIMIT_H

#include "core/hash.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What a rate means in time. All zero is no limit. */
struct limit_rate {
    uint64_t cost;     /* ns per unit (byte or datagram), 32.32 fixed point; 0 = no limit */
    uint64_t burst_ns; /* depth of the bucket, in time */
};

enum { MR__LIMIT_BURST_MIN_MS = 1000 };

/* A rate in units per second with a burst of rate * interval, at least one
 * second's worth. 0 units per second is no limit. */
struct limit_rate mr__limit_rate(uint64_t units_per_s, uint64_t interval_ns);

/* ns that `units` cost, rounded up. Saturates. */
static inline uint64_t mr__limit_cost(uint64_t cost, uint64_t units)
{
    mr__u128 ns = ((mr__u128)cost * units + UINT32_MAX) >> 32;

    return ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

/* The word after `units` more. Wraps where the sum does not fit, to a moment that
 * mr__limit_is_within() refuses: a cost is at most 2^62 ns per call of 32-bit units. */
static inline uint64_t mr__limit_after(uint64_t tat, uint64_t now_ns, uint64_t cost, uint32_t units)
{
    return (tat > now_ns ? tat : now_ns) + (uint64_t)(((mr__u128)cost * units + UINT32_MAX) >> 32);
}

/* Is a word within the burst? */
static inline bool mr__limit_is_within(uint64_t tat, uint64_t now_ns, struct limit_rate rate)
{
    return tat - now_ns <= rate.burst_ns;
}

/* Would `units` pass now? Charges nothing. */
bool mr__limit_fits(const _Atomic uint64_t *tat, struct limit_rate rate, uint64_t now_ns,
                    uint32_t units);

/* Charges `units` if they pass, else changes nothing and returns false. A rate
 * without cost always passes and leaves the word alone. */
bool mr__limit_take(_Atomic uint64_t *tat, struct limit_rate rate, uint64_t now_ns, uint32_t units);

/* Charges without asking (into debt). */
void mr__limit_force(_Atomic uint64_t *tat, struct limit_rate rate, uint64_t now_ns,
                     uint32_t units);

/* What all relays share. Memory of the engine, one for all planes; zeroed memory
 * is "no limits". The first line is written by control (relaxed: a batch that
 * sees half of a change limits by one old number for one batch) and read by a
 * plane once a batch; the second is the bucket, written once a slice. */
struct limit_global {
    _Atomic uint64_t cost, burst_ns; /* struct limit_rate of the global bandwidth */
    _Atomic uint64_t slice_bytes;    /* 1 ms worth: what a plane takes at once */
    _Atomic uint64_t lifetime_bytes; /* a relay's traffic passes below this; 0 = none */
    unsigned char apart_1[64];
    _Atomic uint64_t tat_ns;
    /* Who sends: window << 40 | senders of the window before << 20 | of this one */
    _Atomic uint64_t senders;
    unsigned char apart_2[64];
};

/* bytes_per_s 0: no limit. */
void mr__limit_global_set(struct limit_global *g, uint64_t bytes_per_s, uint64_t interval_ns,
                          uint64_t lifetime_bytes);

/* A plane's share of the global bucket: what it took and has not used yet. */
struct limit_budget {
    uint64_t left_bytes;
};

/* Sees to it that the budget covers `bytes`, by taking a slice where it must. What
 * was taken stays in the budget, so asking costs nothing when the datagram is
 * refused for another reason. The caller subtracts when it charges. */
bool mr__limit_budget_fits(struct limit_budget *b, struct limit_global *g, uint64_t now_ns,
                           uint32_t bytes);

/*
 * A fair share. While the global bandwidth is short each sender may still send at the rate of his
 * share: the limit divided by the senders that were seen in this window, a second by the shift, or
 * in the last one. It is charged into debt, so that others find less. A sender's word is
 * window << 52 | the moment (TAT, ns) his share will be whole again; datagrams that the budget
 * covers cost him nothing of it.
 */
enum { MR__WINDOW_SHIFT = 30, MR__WINDOW_MASK = (1 << 12) - 1, MR__SHARE_SHIFT = 52 };

/* Not 0 for the first one, so that a zeroed word was never seen. */
static inline uint64_t mr__limit_window(uint64_t now_ns)
{
    return ((now_ns >> MR__WINDOW_SHIFT) + 1) & MR__WINDOW_MASK;
}

static inline bool mr__limit_is_met(const _Atomic uint64_t *share, uint64_t window)
{
    return atomic_load_explicit(share, memory_order_relaxed) >> MR__SHARE_SHIFT == window;
}

/* Counts a sender that is not met in this window yet. */
void mr__limit_meet(struct limit_global *g, _Atomic uint64_t *share, uint64_t now_ns);
/* Has a met sender something left of his share? Charges nothing. */
bool mr__limit_share_fits(const _Atomic uint64_t *share, uint64_t now_ns);
/* Charges the share, and the global bandwidth into debt. */
void mr__limit_share_charge(struct limit_global *g, _Atomic uint64_t *share, uint64_t now_ns,
                            uint32_t bytes);

#endif
