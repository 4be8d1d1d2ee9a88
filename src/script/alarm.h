/* SPDX-License-Identifier: MIT */
/*
 * Moments at which something is due: the deadlines of what waits, sleeps, timers. Knows
 * no clock; whoever ticks says what time it is. Control thread only.
 */
#ifndef MR_SCRIPT_ALARM_H
#define MR_SCRIPT_ALARM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Lives in what it belongs to; zeroed it is not set. */
struct alarm {
    uint64_t at_ns;
    size_t place; /* in the heap, from 1; 0: it is not set */
    void (*ring)(struct alarm *a, uint64_t now_ns);
};

/* The earliest first. */
struct alarms {
    struct alarm **heap;
    size_t n, cap;
    size_t reserved; /* places that are promised */
};

void mr__alarms_deinit(struct alarms *as);

/* Promises a place for n more alarms, so that setting them cannot fail. -ENOMEM. */
int mr__alarms_reserve(struct alarms *as, size_t n);
void mr__alarms_release(struct alarms *as, size_t n);

/* Sets an alarm for which there is a reserved place, or moves one that is set. */
void mr__alarm_set(struct alarms *as, struct alarm *a, uint64_t at_ns);
/* Also when it is not set. The place stays reserved. */
void mr__alarm_clear(struct alarms *as, struct alarm *a);

/* UINT64_MAX: nothing is set. */
uint64_t mr__alarms_next(const struct alarms *as);
/* Takes the earliest out when it is due, and rings it. false: nothing is due. */
bool mr__alarms_ring(struct alarms *as, uint64_t now_ns);

#endif
