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

static const uint64_t tat_mask = (UINT64_C(1) << MR__SHARE_SHIFT) - 1;
static const uint64_t senders_mask = (1 << 20) - 1; /* of a window; more count as so many */
/* Of a share at once: some datagrams that come together, and little beyond the global burst. */
static const uint64_t share_burst_ns = 100000000;

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

/* ---- shares ------------------------------------------------------------------------ */

static uint64_t pack(uint64_t window, uint64_t before, uint64_t now)
{
    return window << 40 | before << 20 | now;
}

/* By how many windows `window` is later than `of`; a worker whose clock lags sees a huge number. */
static uint64_t windows_since(uint64_t of, uint64_t window)
{
    return (window - of) & MR__WINDOW_MASK;
}

static void count_sender(struct limit_global *g, uint64_t window)
{
    uint64_t old = atomic_load_explicit(&g->senders, memory_order_relaxed), next;

    do {
        uint64_t since = windows_since(old >> 40, window), now = old & senders_mask;

        if (since > MR__WINDOW_MASK / 2)
            return;
        if (since == 0)
            next = pack(window, old >> 20 & senders_mask, now < senders_mask ? now + 1 : now);
        else
            next = pack(window, since == 1 ? now : 0, 1);
    } while (!atomic_compare_exchange_weak_explicit(&g->senders, &old, next, memory_order_relaxed,
                                                    memory_order_relaxed));
}

/* A sender who was away begins with nothing of his share, or all who come back would at once be let
 * through what the burst of the whole limit has covered already. */
void mr__limit_meet(struct limit_global *g, _Atomic uint64_t *share, uint64_t now_ns)
{
    uint64_t window = mr__limit_window(now_ns);
    uint64_t old = atomic_load_explicit(share, memory_order_relaxed);
    uint64_t since = windows_since(old >> MR__SHARE_SHIFT, window);
    uint64_t tat = (since == 1 ? old : now_ns + share_burst_ns) & tat_mask;

    if (since == 0 || since > MR__WINDOW_MASK / 2)
        return;
    if (atomic_compare_exchange_strong_explicit(share, &old, window << MR__SHARE_SHIFT | tat,
                                                memory_order_relaxed, memory_order_relaxed))
        count_sender(g, window);
}

/* The window that has just begun has not seen everybody yet, so the one before counts as well. */
static uint64_t senders_at(const struct limit_global *g, uint64_t now_ns)
{
    uint64_t word = atomic_load_explicit(&g->senders, memory_order_relaxed);
    uint64_t since = windows_since(word >> 40, mr__limit_window(now_ns)), now = word & senders_mask;
    uint64_t before = since == 0 ? word >> 20 & senders_mask : 0;
    uint64_t n = now > before ? now : before;

    return n > 0 ? n : 1;
}

/* How far the word's moment lies ahead; 0 when it is past. */
static uint64_t ahead_ns(uint64_t word, uint64_t now_ns)
{
    uint64_t ahead = (word - now_ns) & tat_mask;

    return ahead > tat_mask / 2 ? 0 : ahead;
}

/* Whatever the size: a datagram that is larger than what is left makes the next ones wait for it,
 * or a small share would never let a large one pass. */
bool mr__limit_share_fits(const _Atomic uint64_t *share, uint64_t now_ns)
{
    return ahead_ns(atomic_load_explicit(share, memory_order_relaxed), now_ns) < share_burst_ns;
}

void mr__limit_share_charge(struct limit_global *g, _Atomic uint64_t *share, uint64_t now_ns,
                            uint32_t bytes)
{
    struct limit_rate rate = {atomic_load_explicit(&g->cost, memory_order_relaxed),
                              atomic_load_explicit(&g->burst_ns, memory_order_relaxed)};
    mr__u128 cost_ns = (mr__u128)mr__limit_cost(rate.cost, bytes) * senders_at(g, now_ns);
    uint64_t most_ns = tat_mask / 4, old = atomic_load_explicit(share, memory_order_relaxed), next;

    do {
        mr__u128 ahead = ahead_ns(old, now_ns) + cost_ns;

        next = (now_ns + (ahead < most_ns ? (uint64_t)ahead : most_ns)) & tat_mask;
        next |= old & ~tat_mask;
    } while (!atomic_compare_exchange_weak_explicit(share, &old, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    mr__limit_force(&g->tat_ns, rate, now_ns, bytes);
}
