/* SPDX-License-Identifier: MIT */
/*
 * What policies count themselves, by relay.metric(), and its lines of /metrics. Tallies
 * belong to a policy's name and not to a generation, so a reload keeps them. Control
 * thread only.
 *
 * A family is moonrelay_policy_NAME{policy,label}; policies that use one name share the
 * family, so its kind. Bounded: 32 metrics a policy, 64 labels a metric, then `other`.
 */
#ifndef MR_SCRIPT_TALLY_H
#define MR_SCRIPT_TALLY_H

#include "service/hooks.h"
#include "service/metrics.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TALLY_NAME_MAX = 48,
    TALLY_HELP_MAX = 256,
    TALLY_LABEL_MAX = 64, /* bytes; a longer one is cut */
    TALLY_LABELS_MAX = 64,
    TALLIES_PER_POLICY = 32,
    TALLIES_MAX = 1024, /* in all: names of policies come and go with reloads */
    TALLY_WHY_MAX = 128,
};

struct tallies;
struct tally;

/* What a policy declares; strings are copied when it is opened. */
struct tally_declaration {
    const char *policy, *name, *help;
    enum metric_type kind; /* COUNTER or GAUGE */
};

/* NULL: out of memory. */
struct tallies *mr__tallies_create(void);
void mr__tallies_destroy(struct tallies *t); /* accepts NULL */

/* May it be opened? false with why. */
bool mr__tally_check(const struct tallies *t, const struct tally_declaration *d,
                     char why[TALLY_WHY_MAX]);
/* The policy's metric of that name, made when it is not there. It lives as long as the tallies.
 * -EINVAL with why as above; -ENOMEM. */
int mr__tally_open(struct tallies *t, const struct tally_declaration *d, struct tally **out,
                   char why[TALLY_WHY_MAX]);

/* label n = 0: the sample without one. */
void mr__tally_add(struct tally *t, struct str label, double n);
void mr__tally_set(struct tally *t, struct str label, double value);

void mr__tallies_write(const struct tallies *t, struct metrics *m);

#endif
