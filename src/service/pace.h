/* SPDX-License-Identifier: MIT */
/*
 * A rate with a burst as one word, the moment it will be full again (GCRA, as core/limit.h has
 * it for workers): what one thread counts and a setting bounds. Control thread.
 */
#ifndef MR_SERVICE_PACE_H
#define MR_SERVICE_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {
    uint64_t cost_ns; /* of one */
    uint64_t burst;   /* that may come at once */
};

static inline uint64_t mr__pace_after(uint64_t full_ns, struct pace pace, uint64_t now_ns)
{
    return (full_ns > now_ns ? full_ns : now_ns) + pace.cost_ns;
}

/* Would one more pass? */
static inline bool mr__pace_fits(uint64_t full_ns, struct pace pace, uint64_t now_ns)
{
    return mr__pace_after(full_ns, pace, now_ns) <= now_ns + pace.cost_ns * pace.burst;
}

/* Charges one if it passes; else nothing, and false. */
static inline bool mr__pace_take(uint64_t *full_ns, struct pace pace, uint64_t now_ns)
{
    if (!mr__pace_fits(*full_ns, pace, now_ns)) {
        return false;
    }
    *full_ns = mr__pace_after(*full_ns, pace, now_ns);
    return true;
}

#endif
