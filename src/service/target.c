/* SPDX-License-Identifier: MIT */
/*
 * Flows that go on to a server: `target = "host:port"`. Control thread. What a client C
 * sends to a port P of ours leaves from a port E that is this flow's alone, and what the
 * server T sends to E leaves from P, so the server sees one port of ours per client:
 *
 *      C --> P =====> E --> T          relay: peer C at port E (MR_RELAY_LINKED)
 *      C <-- P <===== E <-- T          links: (P, C) -> E, T   and   (E, T) -> P, C
 *
 * A knock that was admitted with a target comes here: `create` is asked, the name is
 * looked up once, then the relay and both links are made at once. Between those steps
 * anything may happen, so after each the world is looked at again. The flow stays held
 * meanwhile, for as long as flows are held. Start reading at mr__target_make().
 */
#include "service/target.h"
#include "service/state.h"

#include <errno.h>
#include <string.h>

/* ---- text ---------------------------------------------------------------------------------- */

static bool parse_port(const char *s, size_t n, uint16_t *port)
{
    unsigned v = 0;

    if (n < 1 || n > 5 || s[0] == '0') {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') {
            return false;
        }
        v = v * 10 + (unsigned)(s[i] - '0');
    }
    *port = (uint16_t)v;
    return v <= UINT16_MAX;
}

static bool is_ip6(struct str host)
{
    struct mr_addr a;

    return mr_addr_parse_ip(&a, host.s, host.n, NULL) == MR_ADDR_OK && a.family == 6;
}

bool mr__target_parse(struct str text, struct str *host, uint16_t *port)
{
    const char *colon = text.n > 0 ? memrchr(text.s, ':', text.n) : NULL;

    if (!colon || text.n > MR_TARGET_MAX) {
        return false;
    }
    *host = (struct str){text.s, (size_t)(colon - text.s)};
    if (host->n > 2 && host->s[0] == '[' && host->s[host->n - 1] == ']') {
        host->s++;
        host->n -= 2;
        if (!is_ip6(*host)) {
            return false;
        }
    } else if (host->n > 0 && memchr(host->s, ':', host->n)) {
        return false; /* an IPv6 address without brackets */
    }
    for (size_t i = 0; i < host->n; i++) {
        if (host->s[i] < 0x21 || host->s[i] > 0x7e || host->s[i] == '[' || host->s[i] == ']') {
            return false;
        }
    }
    return host->n >= 1 && host->n <= MR_LOOKUP_HOST_MAX &&
           parse_port(colon + 1, text.n - (size_t)(colon + 1 - text.s), port);
}

/* ---- ends ---------------------------------------------------------------------------------- */

/* Whose fault it is cannot be told by the client's address, so it is said aloud. */
static void refuse_target(struct service *s, struct knock *k, const char *code, const char *message)
{
    struct refusal why = {.code = MR_CODE_HOST_NO_ADDRESS};
    char buf[MR_ADDR_TEXT_MAX];

    mr__reason_clean(why.reason, (struct str){code, strlen(code)}, "failed");
    MR_JOURNAL(s, MR_JOURNAL_TARGET, MR_LOG_WARN, "relay", "no flow to a target",
               LOG_STR("target", k->grant.spec.target), LOG_STR("why", why.reason),
               LOG_STR("error", message), LOG_STR("sender", mr__journal_address(s, buf, &k->from)));
    mr__making_end(s, &k->making, &why);
    mr__knock_refuse(s, k, k->reason, &why);
}

void mr__targets_end_at(struct service *s, uint32_t port)
{
    const struct seat *entry = mr__pool_seat(s, port);

    if (!entry || entry->flows_in == 0) {
        return;
    }
    for (struct list *l = s->pool.used.next; l != &s->pool.used; l = l->next) {
        struct seat *seat = MR_CONTAINER(l, struct seat, used);
        if (seat->kind == MR_SEAT_TARGET && seat->entry == port) {
            mr__seat_close(s, seat, MR_SEAT_END_API);
            /* The port may have another use before its end is told. */
            mr__entry_uncount(s, port);
            seat->entry = MR_NO_PORT;
        }
    }
}

void mr__targets_end_of(struct service *s, const struct mr_addr *client, enum seat_end why)
{
    if (s->pool.n_kind[MR_SEAT_TARGET] == 0) {
        return;
    }
    for (struct list *l = s->pool.used.next; l != &s->pool.used; l = l->next) {
        struct seat *seat = MR_CONTAINER(l, struct seat, used);
        if (seat->kind == MR_SEAT_TARGET && mr_addr_equal(&seat->peer, client)) {
            mr__seat_close(s, seat, why);
        }
    }
}

/* ---- the world as it is now ---------------------------------------------------------------- */

static bool can_enter(const struct service *s, uint32_t port)
{
    const struct front *front = mr__front_at(s, port);
    const struct seat *seat = mr__pool_seat(s, port);

    if (front) {
        return !front->is_leaving;
    }
    return seat && !(seat->state == MR_SEAT_USED && seat->kind == MR_SEAT_TARGET);
}

/* The engine has dropped what it held, and with it the flow: what comes next asks anew. */
static bool is_late(const struct service *s, const struct knock *k)
{
    return !k->opening && s->now_ns - k->since_ns >= k->held_ns;
}

/* false: the knock is done with. */
static bool look(struct service *s, struct knock *k)
{
    uint64_t blocked_ns = mr__blocks_until(s, &k->from);

    /* The caps are for what nobody of ours asked for. */
    if (blocked_ns != 0) {
        mr__knock_discard_blocked(s, k, blocked_ns);
    } else if (mr_is_linked(s->mr, k->port, &k->from)) {
        mr__knock_release(s, k, NULL);
    } else if (is_late(s, k)) {
        mr__knock_drop(s, k, MR_VERDICT_HOLD_EXPIRED);
    } else if (!can_enter(s, k->port) ||
               (!k->opening &&
                (mr__unwelcome_has(s, &k->from) || mr__dynamic_is_over(s, &k->from, NULL)))) {
        mr__knock_drop(s, k, k->reason);
    } else {
        return true;
    }
    return false;
}

/* What no server of somebody's may be. NULL: it is fine. It is of the family that was asked for. */
static const char *fault_of(const struct service *s, const struct mr_addr *dest)
{
    const unsigned never = MR_ADDR_UNSPECIFIED | MR_ADDR_MULTICAST | MR_ADDR_BROADCAST;

    if ((mr_addr_classify(dest) & never) || mr__nets_contain(&s->deny_peers, dest)) {
        return "address-class";
    }
    if (mr_is_own_address(s->mr, dest)) {
        return "own-address";
    }
    if (dest->port < MR_LOWEST_PLAYER_PORT && !mr__settings_values(s->settings)->allow_low_ports) {
        return "low-port";
    }
    return NULL;
}

/* ---- making the flow ----------------------------------------------------------------------- */

static void commit(struct service *s, struct knock *k, const struct mr_addr *dest)
{
    if (mr__blocks_have_tags(s, mr__tags_map(&k->grant.tags))) {
        mr__knock_drop(s, k, MR_VERDICT_BLOCKED);
        return;
    }
    const struct seat_request req = {
        .kind = MR_SEAT_TARGET,
        .peer = &k->from,
        .local = &(struct mr_addr){.family = 0},
        .grant = &k->grant,
        .entry = k->port,
        .dest = dest,
    };
    struct seat *seat = mr__knock_seat(s, k, &req);

    if (!seat) {
        return;
    }
    int rc = mr_target_add(s->mr, seat->relay, k->port, dest);
    if (rc < 0) {
        mr__seat_undo(s, seat);
        refuse_target(s, k, "failed", mr_strerror(rc));
        return;
    }
    mr__making_end(s, &k->making, NULL);
    mr__seat_announce(s, seat, k->opening ? "script" : "dynamic");
    mr__knock_log_admitted(s, k, seat);
    mr__knock_release(s, k, seat);
}

/* Of our ports: what they cannot reach need not be looked up. */
static int family_of(const struct service *s)
{
    const struct mr_addr *a = &s->udp_host;

    return a->family == 6 && mr_addr_classify(a) & MR_ADDR_UNSPECIFIED ? 0 : a->family;
}

static void on_found(void *arg, const struct mr_lookup_answer *found)
{
    struct knock *k = arg;
    struct service *s = k->service;
    struct mr_addr dest = found->addr;
    const char *fault = NULL;
    struct str host;

    k->lookup = 0;
    mr__turn_begin(s, s->now_ns);
    if (found->rc < 0) {
        refuse_target(s, k, found->code ? found->code : "failed",
                      found->message ? found->message : "");
    } else if (look(s, k)) {
        const char *target = k->grant.spec.target;
        (void)mr__target_parse((struct str){target, strlen(target)}, &host, &dest.port);
        mr_addr_canonicalize(&dest);
        fault = fault_of(s, &dest);
        if (fault) {
            refuse_target(s, k, fault, "that address is never a target");
        } else {
            commit(s, k, &dest);
        }
    }
    mr__turn_end(s);
}

static void find(struct service *s, struct knock *k)
{
    const char *target = k->grant.spec.target;
    struct str host;
    uint16_t port;

    if (!mr__target_parse((struct str){target, strlen(target)}, &host, &port)) {
        refuse_target(s, k, "policy-error", "host:port is expected");
        return;
    }
    if (s->out.lookup) {
        k->lookup =
            s->out.lookup(s->out.user, host, family_of(s), MR_LOOKUP_TARGET, 0, on_found, k);
    }
    if (k->lookup == 0) {
        refuse_target(s, k, "failed", s->out.lookup ? "out of memory" : "nothing looks names up");
    }
}

void mr__target_cancel(struct service *s, struct knock *k)
{
    if (k->lookup != 0) {
        s->out.lookup_cancel(s->out.user, k->lookup);
        k->lookup = 0;
    }
}

static void on_created(struct service *s, struct pending *pending, const struct hook_answer *answer)
{
    struct knock *k = MR_CONTAINER(pending, struct knock, pending);
    struct refusal why;

    if (mr__answer_refuses(answer, &why)) {
        mr__knock_refuse_created(s, k, answer, &why);
    } else if (mr__grant_merge(&k->grant, answer) < 0) {
        mr__knock_drop(s, k, k->reason);
    } else if (look(s, k)) {
        find(s, k);
    }
}

/* A game that begins. Who has a relay or a flow here already comes back to one that runs, and what
 * a script opens somebody of ours wants. */
static bool is_kept_out(const struct service *s, const struct knock *k)
{
    const struct source *source = mr__source_find(s, &k->from);

    return s->drain.is_on && !k->opening && (!source || source->dynamics == 0);
}

void mr__target_make(struct service *s, struct knock *k)
{
    const struct refusal draining = {.code = MR_CODE_DRAINING, .reason = ""};

    if (is_kept_out(s, k)) {
        mr__knock_refuse(s, k, k->reason, &draining);
    } else if (look(s, k)) {
        mr__knock_create(s, k, k->port + 1, on_created);
    }
}
