/* SPDX-License-Identifier: MIT */
/*
 * The caps on relays that nobody asked for, flows to targets among them: per source, per target
 * (not those: one server is what they are for), a share of the ports, and the last two free ones
 * for players. Control thread. Kept in C, below all policies:
 * noray's answer to an exhausted pool was to end its process.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

enum { FREE_PORTS_FOR_PLAYERS = 2 }; /* one pair can always be made */

static struct mr_addr net_of(const struct mr_addr *from)
{
    struct mr_addr net = *from;

    net.port = 0;
    if (net.family == 6) { /* one customer has a /64 */
        memset(net.ip + 8, 0, 8);
        net.scope_id = 0;
    }
    return net;
}

static struct source *find(const struct service *s, const struct mr_addr *net)
{
    uint64_t hash = mr__table_hash(&s->key, net, sizeof(struct mr_addr));

    for (struct table_node *n = mr__table_first(&s->sources, hash); n; n = mr__table_next(n)) {
        struct source *source = MR_CONTAINER(n, struct source, node);
        if (mr_addr_equal(&source->net, net)) {
            return source;
        }
    }
    return NULL;
}

bool mr__dynamic_is_over(const struct service *s, const struct mr_addr *from,
                         const struct seat *target)
{
    const struct settings_values *v = mr__settings_values(s->settings);
    struct mr_addr net = net_of(from);
    const struct source *source = find(s, &net);

    return (source && source->count >= v->dynamic_per_address &&
            !mr__nets_contain(&s->caps_exempt, from)) ||
           (target && target->dynamics_to_me >= v->dynamic_per_target) ||
           (s->pool.n_kind[MR_SEAT_DYNAMIC] + s->pool.n_kind[MR_SEAT_TARGET] + 1) * 100 >
               s->pool.n * v->dynamic_share ||
           mr__pool_free(s) <= FREE_PORTS_FOR_PLAYERS;
}

int mr__dynamic_count(struct service *s, struct seat *seat, const struct mr_addr *from,
                      struct seat *target)
{
    struct mr_addr net = net_of(from);
    struct source *source = find(s, &net);

    if (!source) {
        source = mr__alloc(1, sizeof *source);
        if (!source) {
            return -ENOMEM;
        }
        source->net = net;
        mr__table_add(&s->sources, &source->node,
                      mr__table_hash(&s->key, &net, sizeof(struct mr_addr)));
    }
    source->count++;
    seat->source = source;
    seat->target = 0;
    if (target) {
        seat->target = target->relay;
        seat->target_port = target->port;
        target->dynamics_to_me++;
    }
    return 0;
}

void mr__dynamic_uncount(struct service *s, struct seat *seat)
{
    struct source *source = seat->source;

    if (!source) {
        return;
    }
    seat->source = NULL;
    struct seat *target = seat->target ? mr__pool_seat(s, seat->target_port) : NULL;
    /* The target's port may have another player by now, or not be ours any more. */
    if (target && target->relay == seat->target && target->dynamics_to_me > 0) {
        target->dynamics_to_me--;
    }
    if (--source->count == 0) {
        mr__table_remove(&s->sources, &source->node);
        mr__free(source);
    }
}
