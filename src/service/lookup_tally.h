/* SPDX-License-Identifier: MIT */
/*
 * What became of lookups, by who answered: the daemon's (control/lookup.h) and those of
 * relay.testing count alike. The caller's memory, zeroed; its thread.
 */
#ifndef MR_SERVICE_LOOKUP_TALLY_H
#define MR_SERVICE_LOOKUP_TALLY_H

#include "service/lookup.h"

#include <stdint.h>

struct metrics;

/* X(constant, label) */
#define MR_LOOKUP_KINDS(X) X(LITERAL, "literal") X(SCRIPT, "script") X(RESOLVER, "resolver")

/* X(constant, its label, whether kinds have it: literal, script, resolver) */
#define MR_LOOKUP_RESULTS(X)                 \
    X(OK, "ok", 1, 1, 1)                     \
    X(NOT_FOUND, "not-found", 0, 1, 1)       \
    X(FAMILY, "family", 0, 1, 1)             \
    X(TIMEOUT, "timeout", 0, 1, 1)           \
    X(BUSY, "busy", 0, 1, 1)                 \
    X(FAILED, "failed", 1, 1, 1)             \
    X(POLICY_ERROR, "policy-error", 0, 1, 0) \
    X(REFUSED, "refused", 0, 1, 0)           \
    X(NEXT, "next", 0, 1, 0)                 \
    X(CANCELLED, "cancelled", 0, 1, 1)       \
    X(IGNORED, "ignored", 0, 1, 0)

enum lookup_kind {
#define X(constant, label) MR_LOOKUP_BY_##constant,
    MR_LOOKUP_KINDS(X)
#undef X
        MR_LOOKUP_KIND_COUNT
};

enum lookup_result {
#define X(constant, label, l, s, r) MR_LOOKUP_WAS_##constant,
    MR_LOOKUP_RESULTS(X)
#undef X
        MR_LOOKUP_RESULT_COUNT
};

struct lookup_tally {
    uint64_t counts[MR_LOOKUP_KIND_COUNT][MR_LOOKUP_RESULT_COUNT];
};

enum lookup_result mr__lookup_tally_result(const struct mr_lookup_answer *a, enum lookup_kind kind);
const char *mr__lookup_tally_name(enum lookup_result result);

/* moonrelay_lookup_total{kind,result}. For mr__service_add_metrics(); user is the tally. */
void mr__lookup_tally_metrics(void *user, struct metrics *m);

#endif
