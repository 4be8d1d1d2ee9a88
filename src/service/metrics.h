/* SPDX-License-Identifier: MIT */
/*
 * A writer of Prometheus' text format, version 0.0.4. Control thread. Whoever has
 * figures registers a source (mr__service_add_metrics()), which is called for every page
 * and writes its families one after the other: the family, then all of its samples.
 *
 *     mr__metrics_family(m, "moonrelay_blocks", MR_METRIC_GAUGE, "Blocks in force.");
 *     mr__metrics_uint(m, NULL, 0, 3);
 *
 * Names, label keys and helps are ours; label values may be anything and are escaped.
 * A player's address or id is never a label, and every label has a bounded set of values.
 */
#ifndef MR_SERVICE_METRICS_H
#define MR_SERVICE_METRICS_H

#include "service/hooks.h"

#include <stddef.h>
#include <stdint.h>

enum metric_type { MR_METRIC_COUNTER, MR_METRIC_GAUGE, MR_METRIC_HISTOGRAM };

struct metrics;

struct metric_label {
    const char *key;
    struct str value;
};

/* Begins a family: its HELP and TYPE. Each name once a page. */
void mr__metrics_family(struct metrics *m, const char *name, enum metric_type type,
                        const char *help);

/* One sample of the family begun last. labels may be NULL when n is 0. */
void mr__metrics_uint(struct metrics *m, const struct metric_label *labels, size_t n, uint64_t v);
void mr__metrics_double(struct metrics *m, const struct metric_label *labels, size_t n, double v);

/* A histogram: counts[i] observations v with bounds[i-1] < v <= bounds[i] (not yet summed up),
 * counts[n_bounds] those above the last bound. Writes the cumulative buckets, +Inf, sum, count. */
void mr__metrics_histogram(struct metrics *m, const struct metric_label *labels, size_t n,
                           const double *bounds, const uint64_t *counts, size_t n_bounds,
                           double sum);

/* A page by itself. NULL: out of memory. */
struct metrics *mr__metrics_create(void);
/* Ends the page and gives its text, NUL-terminated, for mr__free(); the writer is gone. NULL: out
 * of memory at any moment before. */
char *mr__metrics_finish(struct metrics *m, size_t *n);

#endif
