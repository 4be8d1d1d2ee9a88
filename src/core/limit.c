/* SPDX-License-Identifier: MIT */
/*
 * GCRA. Stores the moment of fullness instead of a token count: `take` moves it by
 * what the units cost and passes while it stays within the burst of now:
 *
 *     TAT' = max(TAT, now) + cost  <=  now + burst
 *
 * Rounding always costs the sender, never the limit. Any thread.
 */
#include "core/limit.h"

enum {
    NS_PER_S = 1000000000,
    SLICES_PER_S = 1000,
    ROUNDING_NS = 1000, /* a nanosecond for each of so many datagrams */
};

/*
 * The burst is what rate * interval units cost, not the interval itself: both are
 * rounded, and a datagram of exactly the burst must pass an idle bucket. So must as
 * many small ones as make up the burst, each of which was rounded up by itself: the
 * third of "3 datagrams a second" is not refused for a nanosecond.
 */
struct limit_rate mr__limit_rate(uint64_t units_per_s, uint64_t interval_ns)
{
    const uint64_t least_ns = (uint64_t)MR__LIMIT_BURST_MIN_MS * 1000000;
    struct limit_rate rate = {0};
    mr__u128 units;

    if (units_per_s == 0)
        return rate;
    if (interval_ns < least_ns)
        interval_ns = least_ns;
    rate.cost = (uint64_t)((((mr__u128)NS_PER_S << 32) + units_per_s - 1) / units_per_s);
    units = (mr__u128)units_per_s * interval_ns / NS_PER_S;
    rate.burst_ns = mr__limit_cost(rate.cost, units > UINT64_MAX ? UINT64_MAX : (uint64_t)units);
    if (rate.burst_ns < UINT64_MAX - ROUNDING_NS)
        rate.burst_ns += units < ROUNDING_NS ? (uint64_t)units : ROUNDING_NS;
    return rate;
}

bool mr__limit_fits(const _Atomic uint64_t *tat, struct limit_rate rate, uint64_t now_ns,
                    uint32_t units)
{
    uint64_t old = atomic_load_explicit(tat, memory_order_relaxed);

    return rate.cost == 0 ||
           mr__limit_is_within(mr__limit_after(old, now_ns, rate.cost, units), now_ns, rate);
}

/* Relaxed: the word carries its own meaning and publishes nothing. */
bool mr__limit_take(_Atomic uint64_t *tat, struct limit_rate rate, uint64_t now_ns, uint32_t units)
{
    uint64_t old, next;

    if (rate.cost == 0)
        return true;
    old = atomic_load_explicit(tat, memory_order_relaxed);
    do {
        next = mr__limit_after(old, now_ns, rate.cost, units);
        if (!mr__limit_is_within(next, now_ns, rate))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(tat, &old, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

void mr__limit_force(_Atomic uint64_t *tat, struct limit_rate rate, uint64_t now_ns, uint32_t units)
{
    uint64_t old;

    if (rate.cost == 0)
        return;
    old = atomic_load_explicit(tat, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(tat, &old,
                                                  mr__limit_after(old, now_ns, rate.cost, units),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void mr__limit_global_set(struct limit_global *g, uint64_t bytes_per_s, uint64_t interval_ns,
                          uint64_t lifetime_bytes)
{
    struct limit_rate rate = mr__limit_rate(bytes_per_s, interval_ns);
    uint64_t slice;

    atomic_store_explicit(&g->cost, rate.cost, memory_order_relaxed);
    atomic_store_explicit(&g->burst_ns, rate.burst_ns, memory_order_relaxed);
    slice = bytes_per_s / SLICES_PER_S;
    atomic_store_explicit(&g->slice_bytes, slice < UINT32_MAX ? slice : UINT32_MAX,
                          memory_order_relaxed);
    atomic_store_explicit(&g->lifetime_bytes, lifetime_bytes, memory_order_relaxed);
}

/*
 * First a whole slice, so that the shared word is written a thousand times a second
 * and not once a datagram; when there is none left, just what is missing, so that
 * slices do not make the edge of the limit coarse.
 */
bool mr__limit_budget_fits(struct limit_budget *b, struct limit_global *g, uint64_t now_ns,
                           uint32_t bytes)
{
    struct limit_rate rate;
    uint32_t slice, missing;

    if (b->left_bytes >= bytes)
        return true;
    rate.cost = atomic_load_explicit(&g->cost, memory_order_relaxed);
    rate.burst_ns = atomic_load_explicit(&g->burst_ns, memory_order_relaxed);
    slice = (uint32_t)atomic_load_explicit(&g->slice_bytes, memory_order_relaxed);
    missing = bytes - (uint32_t)b->left_bytes;
    if (slice > missing && mr__limit_take(&g->tat_ns, rate, now_ns, slice)) {
        b->left_bytes += slice;
        return true;
    }
    if (!mr__limit_take(&g->tat_ns, rate, now_ns, missing))
        return false;
    b->left_bytes += missing;
    return true;
}
