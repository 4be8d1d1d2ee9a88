/* SPDX-License-Identifier: MIT */
/*
 * Players behind symmetric NATs. After `connect-relay` the pair is remembered for a while: a
 * stranger at the port of one who comes from the other's IP is then the other one, whose NAT gives
 * him another port for each of ours. Control thread. Start reading at mr__latch_try().
 *
 * Only the chance is kept here, once a side. Whether somebody has spoken for himself, what follows
 * from a latch and what undoes it is the engine's (mr_pair_latch()); so nothing has to be kept in
 * step with relays that move or end: their ids tell.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>

struct latch_side {
    struct table_node node; /* while it is open: by the partner's relay and the IP */
    struct latch *latch;
    mr_relay_id relay, partner;
    struct mr_addr ip; /* of the relay's peer */
    bool is_open;
};

/* A pair that connect-relay made. */
struct latch {
    struct list link; /* in service.latches, the oldest first */
    uint64_t since_ns;
    uint64_t order; /* of two in one tick the later is the newer */
    struct latch_side sides[2];
};

static uint64_t hash_of(const struct service *s, mr_relay_id partner, const struct mr_addr *ip)
{
    struct {
        struct mr_addr ip;
        mr_relay_id partner;
    } key = {.ip = *ip, .partner = partner};

    _Static_assert(sizeof key == sizeof(struct mr_addr) + sizeof(mr_relay_id), "no padding");
    return mr__service_hash(s, &key, sizeof key);
}

static struct mr_addr ip_of(const struct mr_addr *addr)
{
    struct mr_addr ip = *addr;

    ip.port = 0;
    return ip;
}

/* ---- what is remembered -------------------------------------------------------------------- */

static void close_side(struct service *s, struct latch_side *side)
{
    if (side->is_open) {
        mr__table_remove(&s->latch_sides, &side->node);
        side->is_open = false;
    }
}

static void forget(struct service *s, struct latch *l)
{
    close_side(s, &l->sides[0]);
    close_side(s, &l->sides[1]);
    mr__list_remove(&l->link);
    mr__free(l);
    s->n_latches--;
}

static void open_side(struct service *s, struct latch *l, unsigned i, const struct seat *seat,
                      const struct seat *partner)
{
    struct latch_side *side = &l->sides[i];
    struct mr_relay_info info;

    *side = (struct latch_side){.latch = l, .relay = seat->relay, .partner = partner->relay};
    if (mr_relay_info(s->mr, seat->relay, &info) < 0 ||
        mr_pair_watch(s->mr, seat->relay, partner->relay) < 0) {
        return;
    }
    side->ip = ip_of(&info.peer);
    side->is_open = true;
    mr__table_add(&s->latch_sides, &side->node, hash_of(s, partner->relay, &side->ip));
}

/* The same two again: the later one counts. */
static void forget_pair(struct service *s, const struct latch *fresh)
{
    for (unsigned i = 0; i < 2; i++) {
        const struct latch_side *side = &fresh->sides[i];
        struct table_node *n =
            side->is_open ? mr__table_first(&s->latch_sides, side->node.hash) : NULL;

        for (; n; n = mr__table_next(n)) {
            struct latch_side *old = MR_CONTAINER(n, struct latch_side, node);
            if (old->latch != fresh && old->relay == side->relay && old->partner == side->partner) {
                forget(s, old->latch);
                break;
            }
        }
    }
}

void mr__latch_remember(struct service *s, const struct seat *a, const struct seat *b)
{
    struct latch *l = NULL;

    if (mr__settings_values(s->settings)->latch_window_ns == 0 || a == b) {
        return;
    }
    if (s->n_latches >= MR_LATCHES_MAX) {
        forget(s, MR_CONTAINER(s->latches.next, struct latch, link));
    }
    l = mr__alloc(1, sizeof *l);
    if (!l) {
        return; /* they play, if no NAT is in their way */
    }
    l->since_ns = s->now_ns;
    l->order = ++s->latch_order;
    open_side(s, l, 0, a, b);
    open_side(s, l, 1, b, a);
    mr__list_push_back(&s->latches, &l->link);
    s->n_latches++;
    forget_pair(s, l);
    mr__misses_watch(s);
}

static bool is_over(const struct service *s, const struct latch *l)
{
    return s->now_ns - l->since_ns >= mr__settings_values(s->settings)->latch_window_ns;
}

void mr__latches_expire(struct service *s)
{
    size_t before = s->n_latches;

    while (!mr__list_is_empty(&s->latches)) {
        struct latch *oldest = MR_CONTAINER(s->latches.next, struct latch, link);
        if (!is_over(s, oldest)) {
            break;
        }
        forget(s, oldest);
    }
    if (before > 0 && s->n_latches == 0) {
        mr__misses_watch(s);
    }
}

void mr__latches_destroy(struct service *s)
{
    while (!mr__list_is_empty(&s->latches)) {
        forget(s, MR_CONTAINER(s->latches.next, struct latch, link));
    }
}

/* ---- whose datagram it is ------------------------------------------------------------------ */

/* The newest side that such a stranger may be; NULL: none. */
static struct latch_side *find(const struct service *s, mr_relay_id partner,
                               const struct mr_addr *ip)
{
    struct table_node *n = mr__table_first(&s->latch_sides, hash_of(s, partner, ip));
    struct latch_side *best = NULL;

    for (; n; n = mr__table_next(n)) {
        struct latch_side *side = MR_CONTAINER(n, struct latch_side, node);
        if (side->partner == partner && mr_addr_equal(&side->ip, ip) && !is_over(s, side->latch) &&
            (!best || side->latch->order > best->latch->order)) {
            best = side;
        }
    }
    return best;
}

/* His relay is there, and he has not registered from elsewhere since. */
static bool is_still_at(const struct service *s, const struct latch_side *side)
{
    struct mr_relay_info info;

    if (!mr__seat_of_relay(s, side->relay) || mr_relay_info(s->mr, side->relay, &info) < 0) {
        return false;
    }
    info.peer.port = 0;
    return mr_addr_equal(&info.peer, &side->ip);
}

static void log_latched(struct service *s, const struct mr_addr *from, mr_relay_id relay,
                        const struct seat *at)
{
    char buf[MR_ADDR_TEXT_MAX];
    const struct seat *seat = mr__seat_of_relay(s, relay);

    MR_JOURNAL(s, MR_JOURNAL_KNOCK, MR_LOG_DEBUG, "relay", "peer seen from another port",
               LOG_STR("sender", mr__journal_address(s, buf, from)), LOG_STR("relay", seat->text),
               LOG_STR("at", at->text));
}

/*
 * A side that is of no use is closed and the next one tried: a player who has spoken for himself,
 * one who has a latch already, one who has gone. So each is looked at once, whatever a flood from
 * his IP sends.
 */
mr_relay_id mr__latch_try(struct service *s, const struct mr_addr *from, uint32_t port)
{
    const struct seat *at = mr__seat_of_relay(s, mr_relay_at(s->mr, port));
    struct mr_addr ip = ip_of(from);
    struct latch_side *side;

    if (s->n_latches == 0 || !at || mr__session_at(s, from) || mr__unwelcome_has(s, from)) {
        return 0;
    }
    while ((side = find(s, at->relay, &ip)) != NULL) {
        mr_relay_id relay = side->relay;
        int rc = is_still_at(s, side) ? mr_pair_latch(s->mr, relay, at->relay, from) : -EBUSY;

        if (rc == 0 || rc == -EBUSY || rc == -ENOENT) {
            close_side(s, side);
        }
        if (rc == 0) {
            log_latched(s, from, relay, at);
            return relay;
        }
        if (rc != -EBUSY && rc != -ENOENT) {
            return 0; /* this source will be nobody's latch */
        }
    }
    return 0;
}
