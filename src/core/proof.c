/* SPDX-License-Identifier: MIT */
/*
 * The bookkeeping behind proof.h. "The more of a rate and of what was earned" is two balances
 * that are both charged, and one of them has to have enough: the sum would be twice as much as the
 * larger. What was sent counts in halves of ten seconds, this one and the last, so that nothing
 * older ever does.
 */
#include "core/proof.h"

#include "core/limit.h"

static const uint64_t half_ns = (uint64_t)MR__PROOF_SECONDS * 1000000000 / 2;

static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void set(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

void mr__proof_begin(struct proof *p)
{
    set(&p->left, (uint64_t)MR__PROOF_DATAGRAMS << 32 | MR__PROOF_BYTES);
    mr__proof_doubt(p);
}

void mr__proof_doubt(struct proof *p)
{
    set(&p->has_sent, 0);
    set(&p->tat_ns, 0);
    set(&p->half, 0);
    set(&p->earned, 0);
    set(&p->earned_before, 0);
}

/* Whoever comes first in a half moves the last one's aside; another worker's clock may lag. */
static void turn_over(struct proof *p, uint64_t now_ns)
{
    uint64_t half = now_ns / half_ns, old = get(&p->half);

    if (half <= old || !atomic_compare_exchange_strong_explicit(
                           &p->half, &old, half, memory_order_relaxed, memory_order_relaxed))
        return;
    uint64_t earned = atomic_exchange_explicit(&p->earned, 0, memory_order_relaxed);
    set(&p->earned_before, half - old == 1 ? earned : 0);
}

void mr__proof_sent(struct proof *p, uint64_t now_ns, uint32_t bytes)
{
    turn_over(p, now_ns);
    if (!get(&p->has_sent))
        set(&p->has_sent, 1);
    atomic_fetch_add_explicit(&p->earned, (uint64_t)bytes * MR__PROOF_FACTOR, memory_order_relaxed);
}

static uint64_t earned_at(const struct proof *p, uint64_t now_ns)
{
    uint64_t half = now_ns / half_ns, of = get(&p->half);

    if (half <= of)
        return get(&p->earned) + get(&p->earned_before);
    return half - of == 1 ? get(&p->earned) : 0;
}

static struct limit_rate rate_of(void)
{
    return mr__limit_rate(MR__PROOF_BYTES_PER_S, 0);
}

bool mr__proof_fits(const struct proof *p, uint64_t now_ns, uint32_t bytes)
{
    uint64_t left = get(&p->left);

    if (!get(&p->has_sent))
        return left >> 32 > 0 && (uint32_t)left >= bytes;
    return mr__limit_fits(&p->tat_ns, rate_of(), now_ns, bytes) || earned_at(p, now_ns) >= bytes;
}

/* Never below nothing. */
static uint64_t take(_Atomic uint64_t *word, uint64_t n)
{
    uint64_t old = get(word);

    while (old > 0 &&
           !atomic_compare_exchange_weak_explicit(word, &old, old > n ? old - n : 0,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    return old < n ? old : n;
}

/* The rate is charged as far as its burst: what was earned pays for the rest. */
static void charge_rate(struct proof *p, uint64_t now_ns, uint32_t bytes)
{
    const struct limit_rate rate = rate_of();
    uint64_t old = get(&p->tat_ns), next;

    do {
        next = mr__limit_after(old, now_ns, rate.cost, bytes);
        if (next > now_ns + rate.burst_ns)
            next = now_ns + rate.burst_ns;
    } while (!atomic_compare_exchange_weak_explicit(&p->tat_ns, &old, next, memory_order_relaxed,
                                                    memory_order_relaxed));
}

static void charge_left(struct proof *p, uint32_t bytes)
{
    uint64_t old = get(&p->left), next;

    do {
        uint64_t datagrams = old >> 32, left = (uint32_t)old;

        next = (datagrams > 0 ? datagrams - 1 : 0) << 32 | (left > bytes ? left - bytes : 0);
    } while (!atomic_compare_exchange_weak_explicit(&p->left, &old, next, memory_order_relaxed,
                                                    memory_order_relaxed));
}

void mr__proof_charge(struct proof *p, uint64_t now_ns, uint32_t bytes)
{
    if (!get(&p->has_sent)) {
        charge_left(p, bytes);
        return;
    }
    turn_over(p, now_ns);
    charge_rate(p, now_ns, bytes);
    uint64_t paid = take(&p->earned_before, bytes);
    if (paid < bytes)
        (void)take(&p->earned, bytes - paid);
}
