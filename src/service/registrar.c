/* SPDX-License-Identifier: MIT */
/*
 * The registrar's answers: a datagram that holds a PID tells where its player is. Control
 * thread. Everything else is silence or one bounded answer, since sources are forged.
 * Start reading at mr__service_registrar().
 */
#include "service/state.h"

#include <string.h>

enum { PID_LENGTH_MAX = 256 }; /* the setting's most */

static void reply(struct service *s, const struct mr_addr *to, const struct mr_addr *local,
                  const char *text)
{
    s->out.reply(s->out.user, to, local, text, strlen(text));
}

/* Has its source answers to unknown ids left? The burst is a second's worth. */
static bool may_ask(struct service *s, const struct mr_addr *from)
{
    uint32_t per_s = mr__settings_values(s->settings)->registrar_errors_per_second;
    const struct pace pace = {per_s ? 1000000000 / per_s : 0, per_s};

    return mr__source_is_exempt(s, from) ||
           (per_s > 0 && mr__budget_take(s, s->budgets, from, pace));
}

static enum registrar_result answer_unknown(struct service *s, const struct mr_addr *from,
                                            const struct mr_addr *local, size_t n)
{
    /* Only what could have been a PID, and never more bytes than came. */
    if (n != mr__settings_values(s->settings)->pid_length || n < MR_PID_LENGTH_ANSWERED_MIN) {
        return MR_REGISTRAR_SILENT;
    }
    if (!may_ask(s, from)) {
        return MR_REGISTRAR_LIMITED;
    }
    reply(s, from, local, "Unknown host pid!");
    return MR_REGISTRAR_UNKNOWN;
}

static void log_addressed(struct service *s, const struct session *p, const char *msg)
{
    char buf[MR_ADDR_TEXT_MAX];

    MR_JOURNAL(s, MR_JOURNAL_REGISTRAR, MR_LOG_INFO, "registrar", msg, LOG_UINT("session", p->id),
               LOG_STRN("oid", p->oid, p->oid_n),
               LOG_STR("address", mr__journal_address(s, buf, &p->addr)));
}

/* Whoever registers at an address where a player has a relay shares it, and owns it as the later
 * one. A dynamic relay waits for his connect-relay. */
static void share_relay(struct service *s, struct session *p)
{
    struct seat *seat = mr__seat_of_relay(s, mr_relay_of(s->mr, &p->addr));

    if (seat && seat->kind == MR_SEAT_PLAYER) {
        mr__seat_adopt(s, seat, p);
    }
}

/* It may have been anybody's latch, and is not any more, if his connection comes from that IP: a
 * PID alone undoes none, its source may be forged. */
static void unlatch(struct service *s, const struct session *p)
{
    if (mr__session_is_near(p)) {
        mr_address_unlatch(s->mr, &p->addr);
    }
}

static enum registrar_result first_address(struct service *s, struct session *p,
                                           const struct mr_addr *from, const struct mr_addr *local)
{
    if (mr__session_set_address(s, p, from, local) < 0) {
        return MR_REGISTRAR_SILENT; /* he asks again in a tenth of a second */
    }
    unlatch(s, p);
    share_relay(s, p);
    log_addressed(s, p, "address seen");
    reply(s, from, local, "OK");
    return MR_REGISTRAR_OK;
}

/* The relay that goes with him: his own, or a shared one whose owner is gone. */
static struct seat *seat_to_move(const struct service *s, const struct session *p)
{
    struct seat *seat = mr__seat_of_session(s, p);

    if (!seat || seat->kind != MR_SEAT_PLAYER) {
        return NULL; /* a dynamic one belongs to the address */
    }
    if (seat->owner == p->id) {
        return seat;
    }
    return !mr__session_find(s, seat->owner) && mr__session_is_near(p) ? seat : NULL;
}

/* He has not entered his new place yet. Another port of an IP that is in doubt already leaves it as
 * it is: what it has sent is sent. */
static void judge_proof(struct service *s, const struct seat *seat, const struct session *p,
                        const struct mr_addr *to)
{
    if (mr_addr_same_ip(to, &p->connection->peer) || mr__session_vouches(s, to)) {
        mr_relay_set_proof(s->mr, seat->relay, MR_PROOF_GIVEN);
    } else if (!mr_addr_same_ip(to, &p->addr)) {
        mr_relay_set_proof(s->mr, seat->relay, MR_PROOF_NEEDED);
    }
}

static int move_relay(struct service *s, struct seat *seat, struct session *p,
                      const struct mr_addr *from, const struct mr_addr *local)
{
    struct seat *there = mr__seat_of_relay(s, mr_relay_of(s->mr, from));
    int rc = mr_relay_move(s->mr, seat->relay, from, local);

    if (rc < 0) {
        return rc;
    }
    judge_proof(s, seat, p, from);
    if (there && there->kind == MR_SEAT_DYNAMIC) {
        mr__seat_close(s, there, MR_SEAT_END_API); /* the player's own port wins */
    }
    p->relay = seat->relay;
    mr__seat_own(s, seat, p);
    return 0;
}

/* Of two relays at one address the later one speaks for it: whom a PID alone has brought to where
 * another has his may not own one there. */
static bool would_take_over(const struct service *s, const struct session *p,
                            const struct mr_addr *to)
{
    const struct seat *there = mr__seat_of_relay(s, mr_relay_of(s->mr, to));

    return there && there->kind == MR_SEAT_PLAYER && there->owner != p->id &&
           !mr__seat_may_own(p, to, mr__session_find(s, there->owner));
}

/* He is told OK once datagrams from his new address pass, not before: netfox plays on at once. */
static void answer_move(struct service *s, struct session *p, const struct mr_addr *from,
                        const struct mr_addr *local)
{
    if (mr_in_force(s->mr) >= mr_seq(s->mr)) {
        reply(s, from, local, "OK");
        return;
    }
    p->moving_seq = mr_seq(s->mr);
    p->moving_to = *from;
    p->moving_local = *local;
    mr__list_push_back(&s->moving, &p->moving);
}

static enum registrar_result moved(struct service *s, struct session *p, const struct mr_addr *from,
                                   const struct mr_addr *local)
{
    struct seat *seat = seat_to_move(s, p);

    if (!mr__list_is_empty(&p->moving)) {
        /* One move at a time: a client that flaps cannot fill the workers' queues. */
        return MR_REGISTRAR_SILENT;
    }
    if (seat && would_take_over(s, p, from)) {
        mr__seat_close(s, seat, MR_SEAT_END_API); /* left behind it would outlive a kick */
        seat = NULL;
    }
    if (seat && move_relay(s, seat, p, from, local) < 0) {
        return MR_REGISTRAR_SILENT;
    }
    if (!seat) {
        p->relay = 0;
    }
    if (mr__session_set_address(s, p, from, local) < 0) {
        return MR_REGISTRAR_SILENT;
    }
    unlatch(s, p); /* his own went with the move */
    if (!seat) {
        share_relay(s, p);
    }
    log_addressed(s, p, "address moved");
    answer_move(s, p, from, local);
    return MR_REGISTRAR_MOVED;
}

/* An IPv6 packet from `::ffff:a.b.c.d`, which no machine sends: a forged IPv4 source that filters
 * of IPv4 sources do not see. IPv4 itself comes to an IPv4 address of ours. */
static bool is_mapped_by_sender(const struct mr_addr *from, const struct mr_addr *local)
{
    return local->family != 0 && local->family != from->family;
}

static enum registrar_result handle(struct service *s, const struct mr_addr *from,
                                    const struct mr_addr *local, const void *data, size_t n)
{
    if (is_mapped_by_sender(from, local)) {
        return MR_REGISTRAR_SILENT;
    }
    if (mr__peer_judge(s, from, local) != MR_VERDICT_FORWARD || mr__blocks_until(s, from) != 0) {
        return MR_REGISTRAR_SILENT;
    }
    /* Sessions from before a reload may have ids of another length. */
    struct session *p = n > 0 && n <= PID_LENGTH_MAX ? mr__session_by_pid(s, data, n) : NULL;
    if (!p) {
        return answer_unknown(s, from, local, n);
    }
    mr__unwelcome_remove(s, from);
    if (p->addr.family == 0) {
        return first_address(s, p, from, local);
    }
    if (!mr_addr_equal(&p->addr, from)) {
        return moved(s, p, from, local);
    }
    if (mr__list_is_empty(&p->moving)) { /* else the answer to the move is on its way */
        p->local = *local;
        reply(s, from, local, "OK");
    }
    return MR_REGISTRAR_REPEAT;
}

void mr__service_registrar(struct service *s, const struct mr_addr *from,
                           const struct mr_addr *local, const void *data, size_t n, uint64_t now_ns)
{
    struct mr_addr source = *from, dest = *local;

    mr__turn_begin(s, now_ns);
    mr_addr_canonicalize(&source);
    mr_addr_canonicalize(&dest);
    s->figures.registrar[handle(s, &source, &dest, data, n)]++;
    mr__turn_end(s);
}

void mr__registrar_in_force(struct service *s, uint64_t seq)
{
    while (!mr__list_is_empty(&s->moving)) {
        struct session *p = MR_CONTAINER(s->moving.next, struct session, moving);
        if (p->moving_seq > seq) {
            return;
        }
        mr__list_remove(&p->moving);
        reply(s, &p->moving_to, &p->moving_local, "OK");
    }
}
