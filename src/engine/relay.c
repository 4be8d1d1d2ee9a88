/* SPDX-License-Identifier: MIT */
/*
 * Relays: creation, changes, limits, ends, names. Control thread.
 * Start reading at mr_relay_create() and mr__relay_end().
 */
#include "engine/engine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void mr_relay_spec_init(struct mr_relay_spec *spec, size_t size)
{
    memset(spec, 0, size);
    spec->size = size;
}

uint32_t mr__relay_port(const struct mr *mr, mr_relay_id id)
{
    return mr__relays_get(&mr->tables.plane.relays, id);
}

/* ------------------------------------------------------------------ limits */

uint64_t mr__relay_idle_ns(const struct mr *mr, const struct record *record)
{
    return record->limits.idle_ns ? record->limits.idle_ns : mr->options.limits.idle_ns;
}

static uint64_t stricter(uint64_t a, uint64_t b)
{
    return a == 0 ? b : b == 0 || a < b ? a : b;
}

static void write_setup(const struct mr *mr, const struct record *record, struct relay_setup *out)
{
    const struct mr_limits *all = &mr->options.limits;
    const struct mr_relay_limits *own = &record->limits;
    const uint64_t never_idle_ns = 3600 * UINT64_C(1000000000); /* only the step follows from it */
    uint64_t idle_ns = mr__relay_idle_ns(mr, record);

    *out = (struct relay_setup){
        .now_ns = record->life_start_ns,
        .timeout_ns = idle_ns ? idle_ns : never_idle_ns,
        .duration_ns = all->life_ns,
        .bandwidth =
            mr__limit_rate(stricter(all->relay_bytes_per_s, own->bytes_per_s), all->burst_ns),
        .pps = mr__limit_rate(own->packets_per_s, all->burst_ns),
        .max_bytes = own->max_bytes,
        .is_manual = (record->flags & MR_RELAY_MANUAL) != 0,
        .is_linked = (record->flags & MR_RELAY_LINKED) != 0,
        .is_unproven = (record->flags & MR_RELAY_UNPROVEN) != 0,
    };
}

static void adjust(struct mr *mr, uint32_t port)
{
    struct record *record = &mr->records[port];
    struct relay_setup setup;

    write_setup(mr, record, &setup);
    mr__relay_shared_adjust(&mr->shared[port], &mr->relay_limits[port], &setup);
    mr__expiry_arm(mr, port);
}

int mr_set_limits(struct mr *mr, const struct mr_limits *limits)
{
    struct mr_limits *all = &mr->options.limits;
    uint32_t left = mr->tables.plane.relays.live;

    if (limits->size != sizeof *limits)
        return -EINVAL;
    *all = *limits;
    mr__limit_global_set(&mr->global, all->global_bytes_per_s, all->burst_ns, all->life_bytes);
    for (uint32_t port = 0; left > 0; port++) {
        if (mr__relays_is_live(&mr->tables.plane.relays, port)) {
            adjust(mr, port);
            left--;
        }
    }
    return 0;
}

int mr_relay_set_limits(struct mr *mr, mr_relay_id id, const struct mr_relay_limits *limits)
{
    uint32_t port = mr__relay_port(mr, id);

    if (port == MR__NONE)
        return -ENOENT;
    mr->records[port].limits = *limits;
    adjust(mr, port);
    return 0;
}

/* ------------------------------------------------------------------ life */

/* A dual-stack socket reaches both families. */
static int check_family(const struct mr *mr, uint32_t port, const struct mr_addr *peer)
{
    const struct socket_info *info = &mr->ports[port].info;

    if (info->is_dual_stack || info->family == peer->family)
        return 0;
    return -EAFNOSUPPORT;
}

static int are_flags(unsigned flags)
{
    return flags == 0 || flags == MR_RELAY_MANUAL || flags == MR_RELAY_LINKED ||
           flags == MR_RELAY_UNPROVEN;
}

static int check_spec(const struct mr *mr, const struct mr_relay_spec *spec)
{
    struct mr_addr peer = spec->peer;

    if (spec->size != sizeof *spec || spec->port >= mr->options.max_ports ||
        mr->ports[spec->port].state != PORT_OPEN || !are_flags(spec->flags))
        return -EINVAL;
    if (mr->records[spec->port].state != RELAY_NONE)
        return -EBUSY;
    mr_addr_canonicalize(&peer);
    return peer.family ? check_family(mr, spec->port, &peer) : -EINVAL;
}

static void send_add(struct mr *mr, uint32_t port, unsigned flags)
{
    const struct relay *relay = &mr->tables.plane.relays.at[port];
    struct command *c = mr__control_command(mr, COMMAND_ADD, port);

    c->u.add.addr = relay->addr;
    c->u.add.generation = relay->generation;
    c->u.add.flags = flags;
    c->u.add.egress = relay->egress;
    mr__control_send(mr);
}

int mr_relay_create(struct mr *mr, const struct mr_relay_spec *spec, mr_relay_id *id)
{
    uint32_t flags = (spec->flags & MR_RELAY_MANUAL ? MR__RELAY_MANUAL : 0) |
                     (spec->flags & MR_RELAY_LINKED ? MR__RELAY_LINKED : 0);
    struct record *record;
    struct relay_setup setup;
    int r = check_spec(mr, spec);

    if (r < 0)
        return r;
    r = mr__tables_create(&mr->tables, spec->port, &spec->peer, flags, spec->port, id);
    if (r < 0)
        return r == -EEXIST ? -EBUSY : r;
    record = &mr->records[spec->port];
    memset(record, 0, sizeof *record);
    record->id = *id;
    record->user = spec->user;
    record->created_ns = record->life_start_ns = mr__engine_now(mr);
    record->limits = spec->limits;
    record->local = spec->local;
    record->flags = (uint8_t)spec->flags;
    record->has_proof = (spec->flags & MR_RELAY_UNPROVEN) != 0;
    record->state = RELAY_LIVE;
    write_setup(mr, record, &setup);
    mr__relay_shared_init(&mr->shared[spec->port], &mr->relay_limits[spec->port], &setup);
    send_add(mr, spec->port, flags);
    record->add_seq = mr->log.last;
    mr__expiry_arm(mr, spec->port);
    return 0;
}

int mr_relay_move(struct mr *mr, mr_relay_id id, const struct mr_addr *peer,
                  const struct mr_addr *local)
{
    uint32_t port = mr__relay_port(mr, id);
    struct mr_addr to = *peer;
    struct command *c;
    int r;

    if (port == MR__NONE)
        return -ENOENT;
    mr_addr_canonicalize(&to);
    if (!to.family)
        return -EINVAL;
    r = check_family(mr, port, &to);
    if (r < 0)
        return r;
    /* The links of the new address follow the move, so that no worker ever sees them
     * with an address its relay does not have yet. */
    r = mr__tables_move(&mr->tables, id, &to);
    if (r < 0)
        return r;
    if (local)
        mr->records[port].local = *local;
    c = mr__control_command(mr, COMMAND_MOVE, port);
    c->u.addr = to;
    mr__control_send(mr);
    return 0;
}

int mr_relay_refresh(struct mr *mr, mr_relay_id id)
{
    uint32_t port = mr__relay_port(mr, id);

    if (port == MR__NONE)
        return -ENOENT;
    atomic_store_explicit(&mr->shared[port].activity_ns, mr__engine_now(mr), memory_order_relaxed);
    return 0;
}

int mr_relay_restart(struct mr *mr, mr_relay_id id)
{
    uint32_t port = mr__relay_port(mr, id);
    struct record *record;

    if (port == MR__NONE)
        return -ENOENT;
    record = &mr->records[port];
    record->life_start_ns = mr__engine_now(mr);
    record->is_soon_told = 0;
    mr__relay_shared_renew(&mr->shared[port], record->life_start_ns, mr->options.limits.life_ns);
    mr__expiry_arm(mr, port);
    return 0;
}

int mr_relay_set_proof(struct mr *mr, mr_relay_id id, enum mr_proof proof)
{
    uint32_t port = mr__relay_port(mr, id);
    struct record *record;

    if (port == MR__NONE)
        return -ENOENT;
    record = &mr->records[port];
    if (record->flags & (MR_RELAY_MANUAL | MR_RELAY_LINKED))
        return -EINVAL;
    if (proof == MR_PROOF_NEEDED) {
        mr__relay_shared_doubt(&mr->shared[port], &mr->relay_limits[port], !record->has_proof);
        record->has_proof = 1;
        record->flags |= MR_RELAY_UNPROVEN;
    } else if (record->flags & MR_RELAY_UNPROVEN) {
        mr__relay_shared_trust(&mr->shared[port]);
        record->flags &= (uint8_t)~MR_RELAY_UNPROVEN;
    }
    return 0;
}

int mr_relay_set_user(struct mr *mr, mr_relay_id id, uint64_t user)
{
    uint32_t port = mr__relay_port(mr, id);

    if (port == MR__NONE)
        return -ENOENT;
    mr->records[port].user = user;
    return 0;
}

/*
 * For the caller the relay is gone at once: its id is stale, its pairs and links are
 * undone. Its port stays taken until the removal is in force everywhere and has been
 * told, and its counters with it.
 */
void mr__relay_end(struct mr *mr, uint32_t port, enum mr_end_reason reason)
{
    struct record *record = &mr->records[port];

    mr__expiry_disarm(mr, port);
    record->peer = mr->tables.plane.relays.at[port].addr;
    (void)mr__tables_free(&mr->tables, record->id);
    (void)mr__control_command(mr, COMMAND_REMOVE, port);
    mr__control_send(mr);
    record->remove_seq = mr->log.last;
    record->ended_ns = mr__engine_now(mr);
    record->end_reason = (uint8_t)reason;
    record->state = RELAY_REMOVING;
    QUEUE_PUSH(&mr->removing, mr->records, port);
}

int mr_relay_close(struct mr *mr, mr_relay_id id)
{
    uint32_t port = mr__relay_port(mr, id);

    if (port == MR__NONE)
        return -ENOENT;
    mr__relay_end(mr, port, MR_END_CLOSED);
    return 0;
}

/* ------------------------------------------------------------------ questions */

void mr__relay_counts(const struct mr *mr, uint32_t port, struct mr_relay_counts *out)
{
    struct relay_sum sum = {0};

    mr__plane_sum(&mr->tables.plane, port, &sum);
    for (uint32_t i = 0; i < mr->worker_count; i++) {
        const struct worker *w = &mr->workers[i];

        /* Until it knows this relay it still counts for the one before at this port. */
        if (atomic_load_explicit(&w->applied_seq, memory_order_acquire) >=
            mr->records[port].add_seq)
            mr__plane_sum(&w->plane, port, &sum);
    }
    *out = (struct mr_relay_counts){.packets_in = sum.packets_in,
                                    .bytes_in = sum.bytes_in,
                                    .packets_out = sum.packets_out,
                                    .bytes_out = sum.bytes_out,
                                    .drops = sum.drops};
}

int mr_relay_info(const struct mr *mr, mr_relay_id id, struct mr_relay_info *out)
{
    uint32_t port = mr__relay_port(mr, id);
    const struct record *record;

    if (port == MR__NONE)
        return -ENOENT;
    record = &mr->records[port];
    *out = (struct mr_relay_info){
        .id = id,
        .port = port,
        .peer = mr->tables.plane.relays.at[port].addr,
        .local = record->local,
        .flags = record->flags,
        .user = record->user,
        .created_ns = record->created_ns,
        .last_activity_ns =
            atomic_load_explicit(&mr->shared[port].activity_ns, memory_order_relaxed),
        .limits = record->limits,
    };
    mr__relay_counts(mr, port, &out->counts);
    return 0;
}

mr_relay_id mr_relay_at(const struct mr *mr, uint32_t port)
{
    const struct relays *relays = &mr->tables.plane.relays;

    return mr__relays_is_live(relays, port) ? mr__relay_id(port, relays->at[port].generation) : 0;
}

mr_relay_id mr_relay_of(const struct mr *mr, const struct mr_addr *peer)
{
    struct mr_addr addr = *peer;
    uint32_t port;

    mr_addr_canonicalize(&addr);
    port = addr.family ? mr__relays_find(&mr->tables.plane.relays, &addr) : MR__NONE;
    return port == MR__NONE ? 0 : mr_relay_at(mr, port);
}

mr_relay_id mr_relay_next(const struct mr *mr, mr_relay_id id)
{
    for (uint32_t port = mr__relay_id_port(id) + 1; port < mr->unused_port; port++) {
        if (mr__relays_is_live(&mr->tables.plane.relays, port))
            return mr_relay_at(mr, port);
    }
    return 0;
}

/* ------------------------------------------------------------------ names */

/*
 * Two ports may share a UDP number (on two local addresses). The one that had it first
 * gives its relays the bare number, the other adds its index: "51200@7.3".
 */
size_t mr_relay_format(const struct mr *mr, mr_relay_id id, char *buf, size_t cap)
{
    uint32_t port = mr__relay_id_port(id);
    uint32_t generation = mr__relay_id_generation(id);
    unsigned udp;
    int n;

    if (cap == 0)
        return 0;
    buf[0] = '\0';
    if (port >= mr->unused_port)
        return 0;
    udp = mr->ports[port].info.local.port;
    if (mr->port_by_udp[udp] == port + 1)
        n = snprintf(buf, cap, "%u.%u", udp, generation);
    else
        n = snprintf(buf, cap, "%u@%u.%u", udp, port, generation);
    return n < 0 ? 0 : (size_t)n < cap ? (size_t)n : cap - 1;
}

/* A decimal number without sign or leading zero; moves *at behind it. */
static int parse_number(const char *text, size_t n, size_t *at, uint32_t *out)
{
    uint64_t value = 0;
    size_t start = *at;

    while (*at < n && text[*at] >= '0' && text[*at] <= '9' && value <= UINT32_MAX)
        value = value * 10 + (uint64_t)(text[(*at)++] - '0');
    *out = (uint32_t)value;
    return *at > start && value <= UINT32_MAX && (text[start] != '0' || *at == start + 1);
}

mr_relay_id mr_relay_parse(const struct mr *mr, const char *text, size_t n)
{
    uint32_t udp, port, generation;
    size_t at = 0;

    if (!parse_number(text, n, &at, &udp) || udp > UINT16_MAX || at == n)
        return 0;
    port = mr->port_by_udp[udp] - 1;
    if (text[at] == '@') {
        at++;
        if (!parse_number(text, n, &at, &port) || at == n)
            return 0;
    }
    if (text[at++] != '.' || !parse_number(text, n, &at, &generation) || at != n)
        return 0;
    if (port >= mr->unused_port || mr->ports[port].info.local.port != udp)
        return 0;
    return mr_relay_at(mr, port) == mr__relay_id(port, generation) && generation
               ? mr__relay_id(port, generation)
               : 0;
}
