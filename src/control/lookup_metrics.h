/* SPDX-License-Identifier: MIT */
/*
 * What a lookup has counted, as metrics of the daemon. lookup.h is public and knows no metrics.
 * Control thread.
 */
#ifndef MR_CONTROL_LOOKUP_METRICS_H
#define MR_CONTROL_LOOKUP_METRICS_H

struct metrics;

/* moonrelay_lookup_total{kind,result}, moonrelay_lookup_duration_seconds (resolver only). For
 * mr__service_add_metrics(); user is the struct mr_lookup. */
void mr__lookup_metrics(void *user, struct metrics *m);

#endif
