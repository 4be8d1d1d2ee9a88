/* SPDX-License-Identifier: MIT */
/*
 * What sources may still do of something that strangers can cause, like asking for unknown ids: a
 * four-way table of fixed size with a GCRA word an entry. Control thread. A source that is
 * pushed out by others begins anew: it takes four of its set, which a key of ours chooses.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>

int mr__budget_init(struct budget_entry **table)
{
    *table = mr__alloc((size_t)MR_BUDGET_SETS * MR_BUDGET_WAYS, sizeof **table);
    return *table ? 0 : -ENOMEM;
}

/* Its entry, else the one of the set that is nearest to full and has least to lose. */
static struct budget_entry *find(const struct service *s, struct budget_entry *table,
                                 const struct mr_addr *net)
{
    struct budget_entry *set =
        table +
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

bool mr__budget_take(struct service *s, struct budget_entry *table, const struct mr_addr *from,
                     struct pace pace)
{
    struct mr_addr net = mr_addr_net(from);

    return mr__pace_take(&find(s, table, &net)->full_at_ns, pace, s->now_ns);
}
