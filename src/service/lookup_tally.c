/* SPDX-License-Identifier: MIT */
/* See lookup_tally.h. Any thread that owns the tally. */
#include "service/lookup_tally.h"

#include "service/metrics.h"

#include <stdbool.h>
#include <string.h>

static const char *const kind_names[] = {
#define X(constant, label) label,
    MR_LOOKUP_KINDS(X)
#undef X
};

static const struct {
    const char *label;
    bool has[MR_LOOKUP_KIND_COUNT];
} results[] = {
#define X(constant, label, l, s, r) {label, {l, s, r}},
    MR_LOOKUP_RESULTS(X)
#undef X
};

/* A policy's own words are no labels: there may be any number of them. */
enum lookup_result mr__lookup_tally_result(const struct mr_lookup_answer *a, enum lookup_kind kind)
{
    if (a->rc == 0) {
        return MR_LOOKUP_WAS_OK;
    }
    for (unsigned i = MR_LOOKUP_WAS_NOT_FOUND; i <= MR_LOOKUP_WAS_POLICY_ERROR; i++) {
        if (results[i].has[kind] && strcmp(a->code, results[i].label) == 0) {
            return (enum lookup_result)i;
        }
    }
    return kind == MR_LOOKUP_BY_SCRIPT ? MR_LOOKUP_WAS_REFUSED : MR_LOOKUP_WAS_FAILED;
}

const char *mr__lookup_tally_name(enum lookup_result result)
{
    return results[result].label;
}

void mr__lookup_tally_metrics(void *user, struct metrics *m)
{
    const struct lookup_tally *t = user;

    mr__metrics_family(m, "moonrelay_lookup_total", MR_METRIC_COUNTER,
                       "Names and literals that became an address or did not, by who answered.");
    for (unsigned kind = 0; kind < MR_LOOKUP_KIND_COUNT; kind++) {
        for (unsigned i = 0; i < MR_LOOKUP_RESULT_COUNT; i++) {
            const struct metric_label labels[] = {
                {"kind", {kind_names[kind], strlen(kind_names[kind])}},
                {"result", {results[i].label, strlen(results[i].label)}}};

            if (results[i].has[kind]) {
                mr__metrics_uint(m, labels, 2, t->counts[kind][i]);
            }
        }
    }
}
