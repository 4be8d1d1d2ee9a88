/* SPDX-License-Identifier: MIT */
/*
 * How many answers to unknown ids a source may still get: a four-way table of fixed
 * size with a GCRA word an entry. Control thread. A source that is pushed out by others
 * begins anew, which costs at most one answer no longer than its question.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

int mr__budget_init(struct service *s)
{
    s->budgets = mr__alloc((size_t)MR_BUDGET_SETS * MR_BUDGET_WAYS, sizeof *s->budgets);
    return s->budgets ? 0 : -ENOMEM;
}

/* What one customer holds: the address in IPv4, its /64 in IPv6. */
static struct mr_addr net_of(const struct mr_addr *from)
{
    struct mr_addr net = *from;

    net.port = 0;
    if (net.family == 6) {
        memset(net.ip + 8, 0, 8);
        net.scope_id = 0;
    }
    return net;
}

/* Its entry, else the one of the set that is nearest to full and has least to lose. */
static struct budget_entry *find(struct service *s, const struct mr_addr *net)
{
    struct budget_entry *set =
        s->budgets +
        (mr__table_hash(&s->key, net, sizeof(struct mr_addr)) % MR_BUDGET_SETS) * MR_BUDGET_WAYS;
    struct budget_entry *best = set;

    for (unsigned i = 0; i < MR_BUDGET_WAYS; i++) {
        if (mr_addr_equal(&set[i].net, net)) {
            return &set[i];
        }
        if (set[i].full_at_ns < best->full_at_ns) {
            best = &set[i];
        }
    }
    *best = (struct budget_entry){.net = *net};
    return best;
}

bool mr__budget_take(struct service *s, const struct mr_addr *from)
{
    uint32_t per_s = mr__settings_values(s->settings)->registrar_errors_per_second;
    struct mr_addr net = net_of(from);

    if (per_s == 0) {
        return false;
    }
    struct budget_entry *e = find(s, &net);
    uint64_t cost = 1000000000 / per_s;
    uint64_t full_at = e->full_at_ns > s->now_ns ? e->full_at_ns : s->now_ns;
    if (full_at + cost > s->now_ns + cost * per_s) { /* the burst is a second's worth */
        return false;
    }
    e->full_at_ns = full_at + cost;
    return true;
}
