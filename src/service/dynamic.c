/* SPDX-License-Identifier: MIT */
/*
 * The caps on relays that nobody asked for, flows to targets among them: per source, per target
 * (not those: one server is what they are for), a share of the ports, and the last two free ones
 * for players. Control thread. Kept in C, below all policies:
 * noray's answer to an exhausted pool was to end its process.
 */
#include "service/state.h"

#include <errno.h>

enum { FREE_PORTS_FOR_PLAYERS = 2 }; /* one pair can always be made */

static bool is_over(const struct service *s, const struct mr_addr *from, const struct seat *target)
{
    const struct settings_values *v = mr__settings_values(s->settings);
    const struct source *source = mr__source_find(s, from);

    return (source && source->dynamics >= v->dynamic_per_address &&
            !mr__source_is_exempt(s, from)) ||
           (target && target->dynamics_to_me >= v->dynamic_per_target) ||
           (s->pool.n_kind[MR_SEAT_DYNAMIC] + s->pool.n_kind[MR_SEAT_TARGET] + 1) * 100 >
               s->pool.n * v->dynamic_share ||
           mr__pool_free(s) <= FREE_PORTS_FOR_PLAYERS;
}

bool mr__dynamic_is_over(struct service *s, const struct mr_addr *from, const struct seat *target)
{
    bool over = is_over(s, from, target);

    s->figures.caps[MR_CAP_DYNAMIC] += over;
    return over;
}

int mr__dynamic_count(struct service *s, struct seat *seat, const struct mr_addr *from,
                      struct seat *target)
{
    struct source *source = mr__source_get(s, from);

    if (!source) {
        return -ENOMEM;
    }
    source->dynamics++;
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
    source->dynamics--;
    mr__source_put(s, source);
}
