/* SPDX-License-Identifier: MIT */
/*
 * Ports and our own addresses. A socket outlives every command that could make a worker
 * use it: it is closed when PORT_CLOSE is in force. Control thread.
 * Start reading at mr_port_open() and mr_port_close().
 */
#include "engine/engine.h"

#include "io/machine.h"
#include "io/route.h"
#include "io/socket.h"

#include <errno.h>
#include <string.h>

/* Interfaces come and go seldom; asking costs some ten microseconds. */
static const uint64_t addresses_interval_ns = 30000000000u;

/* ------------------------------------------------------------------ own addresses */

static void send_own(struct mr *mr, enum command_type type, const struct mr_addr *a)
{
    struct command *c = mr__control_command(mr, type, 0);

    c->u.addr = *a;
    mr__control_send(mr);
}

static int add_own(struct mr *mr, const struct mr_addr *a)
{
    int r = mr__own_add(&mr->tables.plane.own, a);

    if (r == 0)
        send_own(mr, COMMAND_OWN_ADD, a);
    return r;
}

static void remove_own(struct mr *mr, const struct mr_addr *a)
{
    if (mr__own_remove(&mr->tables.plane.own, a) == 0)
        send_own(mr, COMMAND_OWN_REMOVE, a);
}

static int is_in(const struct mr_addr *list, uint32_t n, const struct mr_addr *a)
{
    for (uint32_t i = 0; i < n; i++) {
        if (mr_addr_equal(&list[i], a))
            return 1;
    }
    return 0;
}

static int is_wildcard(const struct mr_addr *a)
{
    return (mr_addr_classify(a) & MR_ADDR_UNSPECIFIED) != 0;
}

static void read_addresses(struct mr *mr)
{
    struct mr_addr found[OWN_LOCAL_MAX];
    int n = mr__machine_addresses(found, OWN_LOCAL_MAX);

    mr->addresses_read_ns = mr__engine_now(mr);
    if (n < 0)
        return; /* what we knew is better than nothing */
    for (uint32_t i = 0; i < mr->n_local; i++) {
        if (!is_in(found, (uint32_t)n, &mr->local[i]) &&
            !mr_addr_equal(&mr->local[i], &mr->public_ip))
            remove_own(mr, &mr->local[i]);
    }
    for (uint32_t i = 0; i < (uint32_t)n; i++) {
        if (!is_in(mr->local, mr->n_local, &found[i]))
            (void)add_own(mr, &found[i]);
    }
    mr->n_local = (uint32_t)n;
    memcpy(mr->local, found, (size_t)n * sizeof found[0]);
}

/* Without sockets there is no machine: tests see the same everywhere. */
void mr__port_refresh_addresses(struct mr *mr)
{
    if (mr->n_wildcards == 0 || !mr->transport->has_sockets)
        return;
    if (mr->addresses_read_ns == 0 || mr->now_ns - mr->addresses_read_ns >= addresses_interval_ns)
        read_addresses(mr);
}

static void note_wildcard(struct mr *mr, const struct mr_addr *a)
{
    if (!is_wildcard(a))
        return;
    mr->n_wildcards++;
    if (mr->addresses_read_ns == 0 && mr->transport->has_sockets)
        read_addresses(mr);
}

/* A wildcard's port is ours on every local IP, and this is one. A port on one IP needs a tuple of
 * its own. */
static int public_of(const struct mr *mr, const struct mr_addr *local, struct mr_addr *seen)
{
    *seen = mr->public_ip;
    seen->port = local->port;
    return seen->family && !is_wildcard(local) && !mr_addr_equal(seen, local);
}

static int add_public(struct mr *mr, const struct mr_addr *local)
{
    struct mr_addr seen;

    return public_of(mr, local, &seen) ? add_own(mr, &seen) : 0;
}

static void remove_public(struct mr *mr, const struct mr_addr *local)
{
    struct mr_addr seen;

    if (public_of(mr, local, &seen))
        remove_own(mr, &seen);
}

int mr_own_address(struct mr *mr, const struct mr_addr *a)
{
    struct mr_addr addr = *a;
    int r;

    mr_addr_canonicalize(&addr);
    if (!addr.family || !addr.port)
        return -EINVAL;
    if (is_in(mr->declared, mr->n_declared, &addr))
        return 0;
    if (mr->n_declared == OWN_DECLARED_MAX)
        return -ENOSPC;
    r = add_own(mr, &addr);
    if (r < 0)
        return r;
    mr->declared[mr->n_declared++] = addr;
    (void)add_public(mr, &addr);
    note_wildcard(mr, &addr);
    return 0;
}

static void forget_public(struct mr *mr)
{
    for (uint32_t i = 0; i < mr->n_declared; i++)
        remove_public(mr, &mr->declared[i]);
    for (uint32_t port = 0; port < mr->unused_port; port++) {
        if (mr->ports[port].state == PORT_OPEN)
            remove_public(mr, &mr->ports[port].info.local);
    }
    if (mr->public_ip.family && !is_in(mr->local, mr->n_local, &mr->public_ip))
        remove_own(mr, &mr->public_ip);
    mr->public_ip = (struct mr_addr){0};
}

int mr_set_public_ip(struct mr *mr, const struct mr_addr *ip)
{
    struct mr_addr addr = ip ? *ip : (struct mr_addr){0};
    int r;

    mr_addr_canonicalize(&addr);
    addr.port = 0;
    if (mr_addr_equal(&addr, &mr->public_ip))
        return 0;
    forget_public(mr);
    if (!addr.family)
        return 0;
    r = add_own(mr, &addr);
    if (r < 0)
        return r;
    mr->public_ip = addr;
    for (uint32_t i = 0; i < mr->n_declared; i++)
        (void)add_public(mr, &mr->declared[i]); /* there is room for each twice */
    for (uint32_t port = 0; port < mr->unused_port; port++) {
        if (mr->ports[port].state == PORT_OPEN)
            (void)add_public(mr, &mr->ports[port].info.local);
    }
    return 0;
}

int mr_port_local(const struct mr *mr, uint32_t port, const struct mr_addr *peer,
                  struct mr_addr *local)
{
    struct mr_addr to = *peer;
    const struct port *p;
    int r;

    if (port >= mr->unused_port || mr->ports[port].state != PORT_OPEN)
        return -ENOENT;
    mr_addr_canonicalize(&to);
    p = &mr->ports[port];
    *local = p->info.local;
    if (!is_wildcard(local))
        return 0;
    if (!mr->transport->has_sockets)
        return -ENODATA;
    r = mr__route_source(&to, local);
    local->port = p->info.local.port;
    return r;
}

int mr_is_own_address(const struct mr *mr, const struct mr_addr *a)
{
    struct mr_addr addr = *a;

    mr_addr_canonicalize(&addr);
    return mr__own_contains(&mr->tables.plane.own, &addr);
}

/* ------------------------------------------------------------------ opening */

static uint32_t take_index(struct mr *mr)
{
    uint32_t port = mr->free_port;

    if (port == NO_PORT)
        return mr->unused_port < mr->options.max_ports ? mr->unused_port++ : NO_PORT;
    mr->free_port = mr->ports[port].next;
    return port;
}

static void give_index(struct mr *mr, uint32_t port)
{
    mr->ports[port].state = PORT_FREE;
    mr->ports[port].next = mr->free_port;
    mr->free_port = port;
}

/* A worker that could not watch the socket would have no way to say so, hence here. Closing the
 * socket takes this back. */
static int reserve_polling(struct mr *mr, int fd, uint32_t port)
{
    struct worker *w = &mr->workers[port % mr->worker_count];

    return mr->transport->has_sockets ? mr__poller_reserve(&w->poller, fd, port) : 0;
}

static void announce(struct mr *mr, uint32_t port, unsigned flags, int fd)
{
    struct port *p = &mr->ports[port];
    struct command *c;

    p->state = PORT_OPEN;
    p->flags = (uint8_t)flags;
    mr->open_ports++;
    mr->sockets[port] = (struct tx_socket){.fd = fd, .family = p->info.family};
    mr->tables.plane.relays.at[port].port_flags = flags & MR_PORT_OPEN ? MR__PORT_OPEN : 0;
    if (mr->port_by_udp[p->info.local.port] == 0)
        mr->port_by_udp[p->info.local.port] = port + 1;
    (void)add_own(mr, &p->info.local);
    (void)add_public(mr, &p->info.local);
    note_wildcard(mr, &p->info.local);
    c = mr__control_command(mr, COMMAND_PORT_OPEN, port);
    c->u.flags = mr->tables.plane.relays.at[port].port_flags;
    mr__control_send(mr);
}

/* A port there was closed, but a worker may still use its socket: who lets go of a port and wants
 * it again need not wait. */
static int is_yielding(const struct mr *mr, const struct mr_addr *local)
{
    for (uint32_t i = mr->closing.first; i != NO_PORT; i = mr->ports[i].next) {
        if (mr_addr_equal(&mr->ports[i].info.local, local))
            return 1;
    }
    return 0;
}

int mr_port_open(struct mr *mr, const struct mr_addr *local, unsigned flags, uint32_t *port)
{
    unsigned socket_flags = flags & MR_PORT_DUAL_STACK ? SOCKET_DUAL_STACK : 0;
    struct mr_addr addr = *local;
    uint32_t index;
    int fd, r;

    if (flags & ~(unsigned)(MR_PORT_DUAL_STACK | MR_PORT_OPEN))
        return -EINVAL;
    mr_addr_canonicalize(&addr);
    index = take_index(mr);
    if (index == NO_PORT)
        return -ENOSPC;
    memset(&mr->ports[index], 0, sizeof mr->ports[index]);
    socket_flags |= is_yielding(mr, &addr) ? SOCKET_SUCCESSOR : 0;
    fd = mr->transport->open(&addr, socket_flags, mr->options.socket_buffer_bytes,
                             &mr->ports[index].info);
    r = fd < 0 ? fd : reserve_polling(mr, fd, index);
    if (r < 0) {
        if (fd >= 0)
            mr->transport->close(fd);
        give_index(mr, index);
        return r;
    }
    announce(mr, index, flags, fd);
    *port = index;
    return 0;
}

/* ------------------------------------------------------------------ closing */

/* Links by hand that come in or go out here, whoever pays for them. */
static void remove_raw_links(struct mr *mr, uint32_t port)
{
    const struct tables *t = &mr->tables;

    for (uint32_t i = 0; i < t->raw_pool.fresh; i++) {
        struct link link = t->raws[i].link;
        int is_used = t->raws[i].tie.relay[0] != MR__NONE || t->raws[i].tie.relay[1] != MR__NONE;

        if (is_used && (link.port == port || link.egress == port))
            (void)mr__tables_unlink(&mr->tables, link.port, &link.from);
    }
}

int mr_port_close(struct mr *mr, uint32_t port)
{
    struct port *p;

    if (port >= mr->unused_port || mr->ports[port].state != PORT_OPEN)
        return -ENOENT;
    p = &mr->ports[port];
    if (mr->records[port].state == RELAY_LIVE)
        mr__relay_end(mr, port, MR_END_PORT);
    remove_raw_links(mr, port);
    if (!is_in(mr->declared, mr->n_declared, &p->info.local)) {
        remove_own(mr, &p->info.local);
        remove_public(mr, &p->info.local);
    }
    if (is_wildcard(&p->info.local))
        mr->n_wildcards--;
    if (mr->port_by_udp[p->info.local.port] == port + 1)
        mr->port_by_udp[p->info.local.port] = 0;
    mr->tables.plane.relays.at[port].port_flags = 0;
    (void)mr__control_command(mr, COMMAND_PORT_CLOSE, port);
    mr__control_send(mr);
    mr->transport->yield(mr->sockets[port].fd);
    p->close_seq = mr->log.last;
    p->state = PORT_CLOSING;
    mr->open_ports--;
    QUEUE_PUSH(&mr->closing, mr->ports, port);
    return 0;
}

/* The index is free once its last relay's end was told, too. */
void mr__port_run(struct mr *mr, uint64_t in_force)
{
    while (mr->closing.first != NO_PORT) {
        uint32_t port = mr->closing.first;
        struct port *p = &mr->ports[port];
        uint64_t drops = p->kernel_drops;

        if (p->close_seq > in_force || mr->records[port].state != RELAY_NONE)
            return;
        QUEUE_POP(&mr->closing, mr->ports);
        (void)mr->transport->drops(mr->sockets[port].fd, &drops);
        mr->closed_drops += drops;
        mr->transport->close(mr->sockets[port].fd);
        mr->sockets[port].fd = -1;
        give_index(mr, port);
    }
}

int mr_port_info(const struct mr *mr, uint32_t port, struct mr_port_info *out)
{
    const struct port *p;

    if (port >= mr->unused_port || mr->ports[port].state != PORT_OPEN)
        return -ENOENT;
    p = &mr->ports[port];
    *out = (struct mr_port_info){
        .local = p->info.local,
        .relay = mr_relay_at(mr, port),
        .rcvbuf = p->info.rcvbuf,
        .sndbuf = p->info.sndbuf,
        .kernel_drops = p->kernel_drops,
        .worker = port % mr->worker_count,
        .flags = p->flags,
    };
    return 0;
}

void mr_refresh_kernel_drops(struct mr *mr)
{
    uint32_t n = mr->unused_port < DROPS_PER_CALL ? mr->unused_port : DROPS_PER_CALL;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t port = mr->next_drops = (mr->next_drops + 1) % mr->unused_port;

        if (mr->ports[port].state == PORT_OPEN)
            (void)mr->transport->drops(mr->sockets[port].fd, &mr->ports[port].kernel_drops);
    }
}
