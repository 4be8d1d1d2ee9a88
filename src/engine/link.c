/* SPDX-License-Identifier: MIT */
/*
 * Pairs and links, answers about held flows, and datagrams from the embedder. Control
 * thread. Start reading at mr_pair() and mr_flow_release().
 */
#include "engine/engine.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

enum { PAYLOAD_MAX = 65507 };

/* A year: whatever is added to it stays far from the end of the clock. */
#define HOLD_TIME_MAX_NS UINT64_C(31536000000000000)

/* ------------------------------------------------------------------ pairs and links */

static int reaches(const struct mr *mr, uint32_t port, const struct mr_addr *to)
{
    const struct socket_info *info = &mr->ports[port].info;

    return info->is_dual_stack || info->family == to->family;
}

int mr_pair(struct mr *mr, mr_relay_id a, mr_relay_id b)
{
    const struct relay *at = mr->tables.plane.relays.at;
    uint32_t port_a = mr__relay_port(mr, a), port_b = mr__relay_port(mr, b);
    int r;

    if (port_a == MR__NONE || port_b == MR__NONE)
        return -ENOENT;
    if (!reaches(mr, port_a, &at[port_b].addr) || !reaches(mr, port_b, &at[port_a].addr))
        return -EAFNOSUPPORT;
    r = mr__tables_pair(&mr->tables, a, b);
    return r < 0 ? r : 0;
}

int mr_unpair(struct mr *mr, mr_relay_id a, mr_relay_id b)
{
    return mr__tables_unpair(&mr->tables, a, b);
}

int mr_is_paired(const struct mr *mr, mr_relay_id a, mr_relay_id b)
{
    if (mr__relay_port(mr, a) == MR__NONE || mr__relay_port(mr, b) == MR__NONE)
        return -ENOENT;
    return mr__tables_is_paired(&mr->tables, a, b);
}

/* ------------------------------------------------------------------ legs of a pair */

int mr_pair_watch(struct mr *mr, mr_relay_id relay, mr_relay_id other)
{
    return mr__tables_watch(&mr->tables, relay, other);
}

int mr_pair_is_fresh(const struct mr *mr, mr_relay_id relay, mr_relay_id other)
{
    return mr__tables_is_fresh(&mr->tables, relay, other);
}

int mr_pair_latch(struct mr *mr, mr_relay_id relay, mr_relay_id other, const struct mr_addr *seen)
{
    uint32_t egress = mr__relay_port(mr, other), port = mr__relay_port(mr, relay);
    struct mr_addr to = *seen;
    struct latch *latch;
    int r;

    if (egress == MR__NONE || port == MR__NONE)
        return -ENOENT;
    mr_addr_canonicalize(&to);
    /* What goes to it leaves from the other's port. */
    if (to.family && !reaches(mr, egress, &to))
        return -EAFNOSUPPORT;
    r = mr__tables_latch(&mr->tables, relay, other, &to, &latch);
    if (r < 0)
        return r;
    latch->seq = mr->log.last;
    /* Nothing that it waits for, nothing that wakes us: mr_poll() may be far off. */
    mr__tables_open_latches(&mr->tables, mr__control_in_force(mr));
    return 0;
}

int mr_pair_unlatch(struct mr *mr, mr_relay_id relay, mr_relay_id other)
{
    return mr__tables_unlatch(&mr->tables, relay, other);
}

int mr_pair_latched(const struct mr *mr, mr_relay_id relay, mr_relay_id other, struct mr_addr *seen)
{
    const struct mr_addr *latched = mr__tables_latched(&mr->tables, relay, other);

    if (mr__relay_port(mr, relay) == MR__NONE || mr__relay_port(mr, other) == MR__NONE)
        return -ENOENT;
    if (latched)
        *seen = *latched;
    return latched != NULL;
}

int mr_address_unlatch(struct mr *mr, const struct mr_addr *seen)
{
    return (int)mr__tables_unlatch_address(&mr->tables, seen);
}

/* ------------------------------------------------------------------ links by hand */

static int is_open(const struct mr *mr, uint32_t port)
{
    return port < mr->unused_port && mr->ports[port].state == PORT_OPEN;
}

int mr_link_add(struct mr *mr, uint32_t port, const struct mr_addr *remote, uint32_t egress,
                const struct mr_addr *dest, mr_relay_id charged)
{
    struct link link = {.from = *remote, .port = port, .egress = egress, .to = *dest};
    uint32_t owner = mr__relay_port(mr, charged);

    if (!is_open(mr, port) || !is_open(mr, egress))
        return -EINVAL;
    if (owner == MR__NONE)
        return -ENOENT;
    mr_addr_canonicalize(&link.from);
    mr_addr_canonicalize(&link.to);
    if (!link.from.family || !link.to.family)
        return -EINVAL;
    if (!reaches(mr, egress, &link.to))
        return -EAFNOSUPPORT;
    if (mr_is_own_address(mr, &link.to) || mr_is_own_address(mr, &link.from))
        return -EADDRNOTAVAIL;
    link.charged = owner;
    link.target = MR__NONE;
    return mr__tables_link(&mr->tables, &link);
}

int mr_link_remove(struct mr *mr, uint32_t port, const struct mr_addr *remote)
{
    return mr__tables_unlink(&mr->tables, port, remote);
}

static int check_dest(const struct mr *mr, const struct mr_addr *dest)
{
    const unsigned never = MR_ADDR_UNSPECIFIED | MR_ADDR_MULTICAST | MR_ADDR_BROADCAST;

    if (!dest->family)
        return -EINVAL;
    if (!dest->port || (mr_addr_classify(dest) & never))
        return -EDESTADDRREQ;
    return mr_is_own_address(mr, dest) ? -EADDRNOTAVAIL : 0;
}

/*
 * The way back first: when the way out is there what was held goes out at once, and its answer
 * must not be a stranger's. (A worker that has not applied either yet holds that answer, as a
 * datagram of a flow that control will find in its tables.)
 */
int mr_target_add(struct mr *mr, mr_relay_id id, uint32_t port, const struct mr_addr *dest)
{
    uint32_t egress = mr__relay_port(mr, id);
    struct link out = {.port = port, .egress = egress, .charged = egress, .target = MR__NONE};
    struct link back = {.port = egress, .egress = port, .charged = egress, .target = egress};
    int r;

    if (egress == MR__NONE)
        return -ENOENT;
    if (!is_open(mr, port) || port == egress || !(mr->records[egress].flags & MR_RELAY_LINKED))
        return -EINVAL;
    out.from = back.to = mr->tables.plane.relays.at[egress].addr;
    out.to = *dest;
    mr_addr_canonicalize(&out.to);
    back.from = out.to;
    r = check_dest(mr, &out.to);
    if (r < 0)
        return r;
    if (!reaches(mr, egress, &out.to) || !reaches(mr, port, &out.from))
        return -EAFNOSUPPORT;
    if (mr__tables_has_link(&mr->tables, port, &out.from))
        return -EEXIST;
    r = mr__tables_link(&mr->tables, &back);
    if (r < 0)
        return r;
    r = mr__tables_link(&mr->tables, &out);
    if (r < 0)
        (void)mr__tables_unlink(&mr->tables, egress, &out.to);
    return r;
}

int mr_is_linked(const struct mr *mr, uint32_t port, const struct mr_addr *remote)
{
    struct mr_addr from = *remote;

    mr_addr_canonicalize(&from);
    return is_open(mr, port) && from.family && mr__tables_has_link(&mr->tables, port, &from);
}

/* ------------------------------------------------------------------ flows */

void mr_set_miss_events(struct mr *mr, int are_wanted)
{
    struct command *c;

    if (mr->wants_misses == (are_wanted != 0))
        return;
    mr->wants_misses = are_wanted != 0;
    c = mr__control_command(mr, COMMAND_MISS_EVENTS, 0);
    c->u.flags = (uint32_t)mr->wants_misses;
    mr__control_send(mr);
}

/* The note that the flow waits for an answer; NULL: it does not. */
static struct told_flow *find_flow(struct mr *mr, mr_flow_id flow)
{
    uint32_t worker = mr__hold_id_worker(flow), index = mr__hold_id_index(flow);
    struct told_flow *told;

    if (worker >= mr->worker_count || index >= mr->flows_per_worker)
        return NULL;
    told = &mr->flows[(size_t)worker * mr->flows_per_worker + index];
    if (told->generation == 0 || told->generation != (uint32_t)(flow >> 32))
        return NULL;
    return told->expires_ns > mr__engine_now(mr) ? told : NULL;
}

static int take_flow(struct mr *mr, mr_flow_id flow)
{
    struct told_flow *told = find_flow(mr, flow);

    if (!told)
        return -ENOENT;
    told->generation = 0;
    return 0;
}

int mr_flow_hold(struct mr *mr, mr_flow_id flow, uint32_t datagrams, uint32_t bytes,
                 uint64_t time_ns)
{
    struct told_flow *told = find_flow(mr, flow);
    struct command *c;

    if (time_ns > HOLD_TIME_MAX_NS)
        return -EINVAL;
    if (!told)
        return -ENOENT;
    if (time_ns)
        told->expires_ns = told->since_ns + time_ns;
    c = mr__control_command(mr, COMMAND_FLOW_HOLD, 0);
    c->u.hold.flow = flow;
    c->u.hold.datagrams = datagrams;
    c->u.hold.bytes = bytes;
    c->u.hold.time_ns = time_ns;
    mr__control_send(mr);
    return 0;
}

int mr_set_hold(struct mr *mr, const struct mr_hold_options *hold)
{
    struct mr_hold_options *all = &mr->options.hold;
    struct command *c;

    if (hold->time_ns == 0 || hold->time_ns > HOLD_TIME_MAX_NS || hold->events_per_s == 0)
        return -EINVAL;
    all->datagrams = hold->datagrams;
    all->bytes = hold->bytes;
    all->time_ns = hold->time_ns;
    all->events_per_s = hold->events_per_s;
    c = mr__control_command(mr, COMMAND_HOLD, 0);
    c->u.hold.datagrams = all->datagrams;
    c->u.hold.bytes = all->bytes;
    c->u.hold.time_ns = all->time_ns;
    c->u.hold.events_per_s = all->events_per_s;
    mr__control_send(mr);
    return 0;
}

int mr_flow_release(struct mr *mr, mr_flow_id flow)
{
    struct command *c;
    int r = take_flow(mr, flow);

    if (r < 0)
        return r;
    c = mr__control_command(mr, COMMAND_RELEASE, 0);
    c->u.answer.flow = flow;
    mr__control_send(mr);
    return 0;
}

int mr_flow_discard(struct mr *mr, mr_flow_id flow, enum mr_verdict as, uint64_t quiet_ns,
                    enum mr_verdict later)
{
    const uint64_t least_ns = 1000000000, most_ns = UINT64_C(1) << 62;
    struct command *c;
    int r;

    if (as <= MR_VERDICT_FORWARD || as >= MR_VERDICT_COUNT || later <= MR_VERDICT_FORWARD ||
        later >= MR_VERDICT_COUNT)
        return -EINVAL;
    r = take_flow(mr, flow);
    if (r < 0)
        return r;
    c = mr__control_command(mr, COMMAND_DISCARD, 0);
    c->u.answer.flow = flow;
    c->u.answer.quiet_ns = quiet_ns < least_ns ? least_ns : quiet_ns > most_ns ? most_ns : quiet_ns;
    c->u.answer.as = as;
    c->u.answer.later = later;
    mr__control_send(mr);
    return 0;
}

/* ------------------------------------------------------------------ datagrams */

int mr_decide(struct mr *mr, const struct mr_addr *from, uint32_t port, uint32_t size,
              uint64_t now_ns, struct mr_decision *out)
{
    struct plane_out decided;
    int r = mr__tables_decide(&mr->tables, now_ns, from, port, size, &decided);

    if (r < 0)
        return r;
    *out = (struct mr_decision){
        .verdict = (enum mr_verdict)decided.verdict,
        .egress = decided.egress,
        .to = decided.to,
        .sender = decided.charged == MR__NONE ? 0 : mr_relay_at(mr, decided.charged),
        .target = decided.target == MR__NONE ? 0 : mr_relay_at(mr, decided.target),
    };
    return (int)out->verdict;
}

int mr_inject(struct mr *mr, uint32_t port, const struct mr_addr *from, const void *data,
              size_t size)
{
    struct injected *copy;
    struct command *c;
    struct mr_addr sender = *from;

    if (size > PAYLOAD_MAX)
        return -EMSGSIZE;
    mr_addr_canonicalize(&sender);
    if (!is_open(mr, port) || !sender.family)
        return -EINVAL;
    copy = mr__alloc(1, sizeof *copy + size);
    if (!copy)
        return -ENOMEM;
    if (size)
        memcpy(copy->data, data, size);
    c = mr__control_command(mr, COMMAND_INJECT, port);
    c->u.inject.from = sender;
    c->u.inject.data = copy->data;
    c->u.inject.size = (uint32_t)size;
    copy->seq = c->seq;
    mr__control_send(mr);
    *mr->last_injected = copy;
    mr->last_injected = &copy->next;
    return 0;
}
