/* SPDX-License-Identifier: MIT */
/*
 * A datagram that no link expected: its flow is held by the engine while policies think.
 * Control thread. `drop` may admit it; then `create` is asked, and the sender gets a relay
 * that is a pair with the one at the port it knocked at, or where the answer names a target a
 * flow to that (target.c). Start reading at
 * mr__knock_missed(). A flow that is refused keeps the reason it was found with, unless a
 * policy said no.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

/* ---- ends ---------------------------------------------------------------------------------- */

static void discard_flow(struct service *s, mr_flow_id flow, enum mr_verdict as)
{
    mr_flow_discard(s->mr, flow, as, 0, as); /* gone by itself: nothing to do */
}

static void free_knock(struct service *s, struct knock *k)
{
    mr__ask_cancel(s, &k->pending);
    mr__target_cancel(s, k);
    mr__making_end(s, &k->making, NULL);
    mr__list_remove(&k->waiter.link);
    mr__list_remove(&k->task.link);
    mr__list_remove(&k->link);
    mr__list_remove(&k->unasked);
    mr__grant_deinit(&k->grant);
    mr__free(k);
    s->n_knocks--;
}

static void tell_end(struct service *s, const struct service_outcome *o)
{
    if (s->ended) {
        s->ended(s->ended_user, o);
    }
}

/* Nobody was asked, or nobody had an opinion: it is told by the datagrams' own reason. */
static void tell_dropped(struct service *s, mr_flow_id flow, enum mr_verdict as)
{
    const char *name = mr_verdict_name(as);

    tell_end(s, &(struct service_outcome){.flow = flow, .code = name, .reason = name});
}

static void tell_refused(struct service *s, const struct knock *k, const struct refusal *why)
{
    if (k->opening) {
        mr__opening_refuse(k->opening, mr__code_name(why->code), why->reason);
        return;
    }
    tell_end(s, &(struct service_outcome){
                    .flow = k->flow, .code = mr__code_name(why->code), .reason = why->reason});
}

void mr__knock_forget(struct service *s, struct knock *k)
{
    free_knock(s, k);
}

/* The flow of one that a script wants is 0, which the engine knows nothing of. */
void mr__knock_drop(struct service *s, struct knock *k, enum mr_verdict as)
{
    if (k->opening) {
        mr__opening_drop(s, k->opening, as);
    } else {
        tell_dropped(s, k->flow, as);
    }
    discard_flow(s, k->flow, as);
    free_knock(s, k);
}

void mr__knock_refuse(struct service *s, struct knock *k, enum mr_verdict as,
                      const struct refusal *why)
{
    tell_refused(s, k, why);
    discard_flow(s, k->flow, as);
    free_knock(s, k);
}

/* Quiet for as long as the block lasts, but not so long that one that was taken back is felt: a
 * question now and then costs little. */
static void discard_blocked(struct service *s, mr_flow_id flow, uint64_t until_ns)
{
    const uint64_t most_ns = (uint64_t)MR_BLOCKED_QUIET_SECONDS * 1000000000;
    uint64_t left_ns = until_ns > s->now_ns ? until_ns - s->now_ns : 0;

    tell_dropped(s, flow, MR_VERDICT_BLOCKED);
    mr_flow_discard(s->mr, flow, MR_VERDICT_BLOCKED, left_ns < most_ns ? left_ns : most_ns,
                    MR_VERDICT_BLOCKED);
}

void mr__knock_refuse_as(struct service *s, struct knock *k, const char *code, const char *reason)
{
    mr__opening_refuse(k->opening, code, reason);
    free_knock(s, k);
}

void mr__knock_discard_blocked(struct service *s, struct knock *k, uint64_t until_ns)
{
    if (k->opening) {
        mr__knock_drop(s, k, MR_VERDICT_BLOCKED);
        return;
    }
    discard_blocked(s, k->flow, until_ns);
    free_knock(s, k);
}

void mr__knock_release(struct service *s, struct knock *k, const struct seat *sender)
{
    if (k->opening) {
        mr__opening_succeed(s, k->opening, sender);
        free_knock(s, k);
        return;
    }
    tell_end(
        s, &(struct service_outcome){.flow = k->flow,
                                     .reason = "",
                                     .relay = sender ? sender->relay : 0,
                                     .spec = &k->grant.spec,
                                     .tags = mr__tags_map(sender ? &sender->tags : &k->grant.tags),
                                     .slots = k->grant.slots,
                                     .n_slots = k->grant.n_slots});
    mr_flow_release(s->mr, k->flow);
    free_knock(s, k);
}

/* The hook that one waits for may itself wait for another of them (relay.open), which then ends
 * with it, or before it: so they are gathered, and taken from the front. */
void mr__knock_target_ended(struct service *s, uint32_t port)
{
    struct list ended, *next;

    mr__list_init(&ended);
    for (struct list *l = s->knocks.next; l != &s->knocks; l = next) {
        struct knock *k = MR_CONTAINER(l, struct knock, link);
        next = l->next;
        if (k->port == port) {
            mr__list_remove(&k->link);
            mr__list_push_back(&ended, &k->link);
        }
    }
    while (!mr__list_is_empty(&ended)) {
        struct knock *k = MR_CONTAINER(ended.next, struct knock, link);
        mr__knock_drop(s, k, k->reason);
    }
}

void mr__knocks_destroy(struct service *s)
{
    while (!mr__list_is_empty(&s->knocks)) {
        free_knock(s, MR_CONTAINER(s->knocks.next, struct knock, link));
    }
}

/* ---- making the relay ---------------------------------------------------------------------- */

void mr__knock_log_admitted(struct service *s, const struct knock *k, const struct seat *seat)
{
    char buf[MR_ADDR_TEXT_MAX];

    MR_JOURNAL(s, MR_JOURNAL_KNOCK, MR_LOG_DEBUG, "relay", "stranger admitted",
               LOG_STR("sender", mr__journal_address(s, buf, &k->from)),
               LOG_STR("relay", seat->text), LOG_STR("reason", mr_verdict_name(k->reason)));
}

static void pair_and_release(struct service *s, struct knock *k, struct seat *sender,
                             struct seat *target)
{
    if (mr_pair(s->mr, sender->relay, target->relay) < 0) {
        mr__knock_drop(s, k, k->reason);
        return;
    }
    mr__knock_log_admitted(s, k, sender);
    mr__knock_release(s, k, sender);
}

struct seat *mr__knock_seat(struct service *s, struct knock *k, const struct seat_request *req)
{
    struct refusal why = {.code = MR_CODE_BUSY};
    struct seat *seat;
    int rc = mr__seat_open(s, req, &seat, &why);

    if (rc < 0) {
        mr__making_end(s, &k->making, rc == -ENOMEM ? NULL : &why);
        mr__knock_refuse(s, k, why.code == MR_CODE_FULL ? MR_VERDICT_REFUSED : k->reason, &why);
        return NULL;
    }
    return seat;
}

static void commit(struct service *s, struct knock *k, struct seat *target)
{
    if (mr__blocks_have_tags(s, mr__tags_map(&k->grant.tags))) {
        mr__knock_drop(s, k, MR_VERDICT_BLOCKED);
        return;
    }
    const struct seat_request req = {
        .kind = MR_SEAT_DYNAMIC,
        .peer = &k->from,
        .local = &(struct mr_addr){.family = 0},
        .grant = &k->grant,
        .owner = 0, /* a player's from his connect-relay on */
        .target = target,
    };
    struct seat *seat = mr__knock_seat(s, k, &req);

    if (!seat) {
        return;
    }
    mr__making_end(s, &k->making, NULL);
    if (mr_pair(s->mr, seat->relay, target->relay) < 0) {
        mr__seat_undo(s, seat);
        mr__knock_drop(s, k, k->reason);
        return;
    }
    mr__seat_announce(s, seat, "dynamic");
    mr__knock_log_admitted(s, k, seat);
    mr__knock_release(s, k, seat);
}

/* Looks at the world as it is now. false: the knock is done with. */
static bool look(struct service *s, struct knock *k, struct seat **target)
{
    struct seat *sender = mr__seat_of_relay(s, mr_relay_of(s->mr, &k->from));

    *target = mr__seat_of_relay(s, mr_relay_at(s->mr, k->port));
    uint64_t blocked_ns = mr__blocks_until(s, &k->from);
    if (blocked_ns != 0) {
        mr__knock_discard_blocked(s, k, blocked_ns);
        return false;
    }
    if (!*target || (*target)->kind == MR_SEAT_TARGET) {
        mr__knock_drop(s, k, k->reason);
        return false;
    }
    if (sender) {
        pair_and_release(s, k, sender, *target);
        return false;
    }
    if (mr__unwelcome_has(s, &k->from) || mr__dynamic_is_over(s, &k->from, *target)) {
        mr__knock_drop(s, k, k->reason);
        return false;
    }
    return true;
}

void mr__knock_refuse_created(struct service *s, struct knock *k, const struct hook_answer *answer,
                              const struct refusal *why)
{
    mr__making_end(s, &k->making, why);
    mr__knock_refuse(s, k, answer->outcome == MR_HOOK_REFUSE ? MR_VERDICT_REFUSED : k->reason, why);
}

static void on_created(struct service *s, struct pending *pending, const struct hook_answer *answer)
{
    struct knock *k = MR_CONTAINER(pending, struct knock, pending);
    struct seat *target;
    struct refusal why;

    if (mr__answer_refuses(answer, &why)) {
        mr__knock_refuse_created(s, k, answer, &why);
        return;
    }
    if (mr__grant_merge(&k->grant, answer) < 0) {
        mr__knock_drop(s, k, k->reason);
        return;
    }
    if (look(s, k, &target)) {
        commit(s, k, target);
    }
}

static void ask_create(struct service *s, struct knock *k,
                       void (*answered)(struct service *s, struct pending *p,
                                        const struct hook_answer *answer))
{
    const struct seat *target = mr__seat_of_relay(s, mr_relay_at(s->mr, k->port));
    const struct session *latest = mr__session_at(s, &k->from);
    const struct session *sender =
        latest ? mr__session_owner_at(s, &k->from, latest) : NULL; /* a PID may be forged */
    const struct session *owner = target ? mr__session_find(s, target->owner) : NULL;
    struct hook_session sender_view, target_view;

    if (sender) {
        mr__session_view(sender, &sender_view);
    }
    if (owner) { /* it is a player's relay that was knocked at */
        mr__session_view(owner, &target_view);
    }
    struct hook_event ev = {
        .hook = MR_HOOK_CREATE,
        .reason = k->opening ? (struct str){"script", 6} : (struct str){"dynamic", 7},
        .addr = k->from,
        .session = sender ? &sender_view : NULL,
        .peer = owner ? &target_view : NULL,
        .tags = mr__tags_map(&k->grant.tags),
    };
    mr__ask(s, &k->pending, &ev, answered);
}

void mr__knock_create(struct service *s, struct knock *k, uint32_t entry,
                      void (*answered)(struct service *s, struct pending *p,
                                       const struct hook_answer *answer))
{
    if (mr__turn_is_spent(s) && mr__ask_is_wanted(s, MR_HOOK_CREATE)) {
        mr__task_later(s, &k->task);
    } else if (!mr__making_is_free(s, &k->from, entry)) {
        mr__making_wait(s, &k->from, entry, &k->waiter);
    } else {
        mr__making_begin(s, &k->making, &k->from, entry);
        ask_create(s, k, answered);
    }
}

void mr__knock_make(struct service *s, struct knock *k)
{
    struct seat *target;

    if (k->grant.spec.target[0]) {
        mr__target_make(s, k);
        return;
    }
    if (k->opening) {
        mr__opening_make(s, k);
        return;
    }
    if (look(s, k, &target)) {
        mr__knock_create(s, k, MR_NO_ENTRY, on_created);
    }
}

/* Others had their go, or somebody else's creation for the sender's address has ended. */
static void run_task(struct service *s, struct task *task)
{
    struct knock *k = MR_CONTAINER(task, struct knock, task);

    if (k->waiter.has_refusal) {
        enum code code = k->waiter.refusal.code;
        bool is_refused = code == MR_CODE_REJECTED || code == MR_CODE_FULL;
        mr__knock_refuse(s, k, is_refused ? MR_VERDICT_REFUSED : k->reason, &k->waiter.refusal);
        return;
    }
    mr__knock_make(s, k);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A policy's bounds of what waits while `create` is asked, within those of the settings. A time
 * that is over already ends the flow, and a decision that comes then is too late. */
static void bound_hold(struct service *s, struct knock *k)
{
    const struct settings_values *v = mr__settings_values(s->settings);
    const struct hook_spec *spec = &k->grant.spec;
    uint32_t packets = MR_HOLD_AS_IS, bytes = MR_HOLD_AS_IS;
    uint64_t time_ns = 0;

    if (spec->has_hold_packets) {
        packets = (uint32_t)least(spec->hold_packets, v->hold_datagrams);
    }
    if (spec->has_hold_bytes) {
        bytes = (uint32_t)least(spec->hold_bytes, v->hold_bytes);
    }
    if (spec->has_hold_ns) {
        time_ns = least(spec->hold_ns, v->hold_time_ns) + (spec->hold_ns == 0);
    }
    if (spec->has_hold_packets || spec->has_hold_bytes || spec->has_hold_ns) {
        mr_flow_hold(s->mr, k->flow, packets, bytes, time_ns);
    }
    k->held_ns = time_ns ? time_ns : v->hold_time_ns;
}

/* ---- asking -------------------------------------------------------------------------------- */

static void warn_no_target(struct service *s, const struct front *front)
{
    MR_JOURNAL(s, MR_JOURNAL_TARGET, MR_LOG_WARN, "relay",
               "a flow at an open port has no target: neither a policy's answer to `drop` nor the "
               "config's `ports` names one",
               LOG_UINT("port", front->number));
}

/* An open port that has a target admits by itself. */
static void on_admitted(struct service *s, struct knock *k, const struct hook_answer *answer)
{
    const struct front *front = mr__front_at(s, k->port);

    if (mr__grant_merge(&k->grant, answer) < 0) {
        mr__knock_drop(s, k, k->reason);
    } else if (front && !k->grant.spec.target[0]) {
        warn_no_target(s, front);
        mr__knock_drop(s, k, k->reason);
    } else {
        bound_hold(s, k);
        mr__knock_make(s, k);
    }
}

static void on_drop_answered(struct service *s, struct pending *pending,
                             const struct hook_answer *answer)
{
    struct knock *k = MR_CONTAINER(pending, struct knock, pending);
    struct refusal why;

    if (answer->outcome == MR_HOOK_ADMIT ||
        (answer->outcome == MR_HOOK_NO_OPINION && k->grant.spec.target[0])) {
        on_admitted(s, k, answer);
    } else if (!mr__answer_refuses(answer, &why)) {
        mr__knock_drop(s, k, k->reason);
    } else if (answer->outcome == MR_HOOK_REFUSE) {
        tell_refused(s, k, &why);
        mr_flow_discard(s->mr, k->flow, MR_VERDICT_REFUSED, answer->mute_ns,
                        answer->mute_ns ? MR_VERDICT_MUTED : MR_VERDICT_REFUSED);
        free_knock(s, k);
    } else {
        mr__knock_refuse(s, k, k->reason, &why);
    }
}

static void give_up(struct service *s, mr_flow_id flow, enum mr_verdict as)
{
    tell_dropped(s, flow, as);
    discard_flow(s, flow, as);
}

/* The port of a flow to a target is that flow's alone. */
static bool is_egress(const struct service *s, uint32_t port)
{
    const struct seat *seat = mr__pool_seat(s, port);

    return seat && seat->state == MR_SEAT_USED && seat->kind == MR_SEAT_TARGET;
}

static bool is_asked_about(struct service *s, uint32_t port)
{
    const struct front *front = mr__front_at(s, port);
    bool is_wanted = mr__ask_is_wanted(s, MR_HOOK_DROP);

    if (!front) {
        return is_wanted && mr__pool_seat(s, port) && !is_egress(s, port);
    }
    if (!is_wanted && !front->preset.spec.target[0]) {
        warn_no_target(s, front);
        return false;
    }
    return !front->is_leaving;
}

/* false: it is done with, without a question. By now a link may exist: the event speaks of the
 * past. */
static bool is_in_question(struct service *s, const struct knock *k)
{
    mr_relay_id sender = mr_relay_of(s->mr, &k->from), target = mr_relay_at(s->mr, k->port);

    if (mr_is_linked(s->mr, k->port, &k->from) ||
        (sender != 0 && target != 0 && mr__settings_values(s->settings)->pairing_open &&
         !is_egress(s, k->port))) {
        tell_end(s, &(struct service_outcome){.flow = k->flow, .reason = "", .relay = sender});
        mr_flow_release(s->mr, k->flow);
        return false;
    }
    struct mr_addr local = mr__peer_local(s, &k->from, k->port);
    enum mr_verdict judged = mr__peer_judge(s, &k->from, &local);
    if (judged != MR_VERDICT_FORWARD) {
        give_up(s, k->flow, judged);
        return false;
    }
    uint64_t blocked_ns = mr__blocks_until(s, &k->from);
    if (blocked_ns != 0) {
        discard_blocked(s, k->flow, blocked_ns);
        return false;
    }
    mr_relay_id latched = mr__latch_try(s, &k->from, k->port);
    if (latched != 0) {
        /* What is held goes on when the way back is known everywhere. */
        tell_end(s, &(struct service_outcome){.flow = k->flow, .reason = "", .relay = latched});
        return false;
    }
    if (!is_asked_about(s, k->port) || mr__unwelcome_has(s, &k->from)) {
        give_up(s, k->flow, k->reason);
        return false;
    }
    return true;
}

static void ask(struct service *s, struct knock *k)
{
    const char *reason = mr_verdict_name(k->reason);
    const struct seat *seat = mr__pool_seat(s, k->port);
    const struct front *front = mr__front_at(s, k->port);
    struct hook_relay target;

    if (front && mr__grant_preset(&k->grant, &front->preset) < 0) {
        mr__knock_drop(s, k, k->reason);
        return;
    }
    struct hook_event hook = {
        .hook = MR_HOOK_DROP,
        .reason = {reason, strlen(reason)},
        .addr = k->from,
        .port = front ? front->number : seat->number,
        .tags = mr__tags_map(&k->grant.tags),
        .size = k->size,
        .known = mr__known_has(s, &k->from),
        .peek = k->peek,
        .peek_n = k->size < MR_PEEK_MAX ? k->size : MR_PEEK_MAX,
    };

    if (mr__seat_of_relay(s, mr_relay_at(s->mr, k->port))) {
        mr__seat_view(s, seat, &target);
        hook.target = &target;
    }
    mr__ask(s, &k->pending, &hook, on_drop_answered);
}

/* One of those that came when scripts had used up their time. The engine has given up on those that
 * waited for longer than it holds. */
static void ask_waiting(struct service *s, struct task *task)
{
    uint64_t held_ns = mr__settings_values(s->settings)->hold_time_ns;

    while (!mr__list_is_empty(&s->unasked)) {
        struct knock *k = MR_CONTAINER(s->unasked.next, struct knock, unasked);

        mr__list_remove(&k->unasked);
        if (s->now_ns - k->since_ns >= held_ns) {
            mr__knock_drop(s, k, MR_VERDICT_HOLD_EXPIRED);
        } else if (!is_in_question(s, k)) {
            free_knock(s, k);
        } else {
            if (!mr__list_is_empty(&s->unasked)) {
                mr__task_ready(s, task);
            }
            ask(s, k);
            return;
        }
    }
}

void mr__knocks_init(struct service *s)
{
    mr__list_init(&s->knocks);
    mr__list_init(&s->unasked);
    mr__list_init(&s->knock_task.link);
    s->knock_task.run = ask_waiting;
}

struct knock *mr__knock_add(struct service *s, const struct knock *found)
{
    struct knock *k = s->n_knocks < MR_KNOCKS_MAX && s->n_pending < MR_PENDING_MAX
                          ? mr__alloc(1, sizeof *k)
                          : NULL;

    if (k) {
        *k = *found;
        k->service = s;
        k->task.run = run_task;
        k->waiter.task = &k->task;
        mr__list_init(&k->task.link);
        mr__list_init(&k->waiter.link);
        mr__list_init(&k->unasked);
        mr__list_push_back(&s->knocks, &k->link);
        s->n_knocks++;
    }
    return k;
}

void mr__knock_missed(struct service *s, const struct mr_event *ev)
{
    struct knock found = {
        .flow = ev->u.miss.flow,
        .from = ev->u.miss.from,
        .port = ev->u.miss.port,
        .reason = ev->u.miss.reason,
        .size = ev->u.miss.size,
        .since_ns = s->now_ns,
    };

    if (!is_in_question(s, &found)) {
        return;
    }
    memcpy(found.peek, ev->u.miss.peek, found.size < MR_PEEK_MAX ? found.size : MR_PEEK_MAX);
    struct knock *k = mr__knock_add(s, &found);
    if (!k) {
        give_up(s, found.flow, MR_VERDICT_EVENT_FULL);
        return;
    }
    if (mr__list_is_empty(&s->unasked) && !mr__turn_is_spent(s)) {
        ask(s, k);
        return;
    }
    if (mr__list_is_empty(&s->unasked)) {
        mr__task_ready(s, &s->knock_task);
    }
    mr__list_push_back(&s->unasked, &k->unasked);
}
