/* SPDX-License-Identifier: MIT */
/*
 * What the machine gives: a clock, randomness, cores, local addresses. Any thread.
 */
#ifndef MR_IO_MACHINE_H
#define MR_IO_MACHINE_H

#include "core/address.h"

#include <stddef.h>
#include <stdint.h>

uint64_t mr__machine_clock_ns(void); /* CLOCK_MONOTONIC */

/* Gives the processor away for about a millisecond. */
void mr__machine_pause(void);

/* Fills buf from the kernel's random source. */
int mr__machine_random(void *buf, size_t n);

/* Cores that affinity mask and cgroup quota leave us, rounded up; at least 1. */
unsigned mr__machine_cores(void);

/* Addresses of all local interfaces, port 0, canonical. Returns how many were stored
 * (the rest is left out), or a negative errno. */
int mr__machine_addresses(struct mr_addr *out, unsigned max);

/* The core quota of one cpu.max ("max 100000", "150000 100000"): cores times 1,000,
 * rounded up; 0 when there is none or the text is something else. For tests. */
uint64_t mr__machine_quota_millicores(const char *text);

#endif
