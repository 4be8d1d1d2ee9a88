/* SPDX-License-Identifier: MIT */
/*
 * An engine's life: options, memory, workers, end. Control thread.
 * Start reading at mr_create().
 */
#include "engine/engine.h"

#include "base/alloc.h"
#include "io/machine.h"

#include <errno.h>
#include <string.h>

static const uint64_t ns_per_s = 1000000000;

enum {
    PORTS_MAX = 1 << 22, /* above a million, which benchmarks use; keeps sizes small numbers */
    PAIRS_PER_PORT = 4,
    UDP_NUMBERS = 65536,
};

/* ------------------------------------------------------------------ options */

void mr_limits_init(struct mr_limits *limits, size_t size)
{
    struct mr_limits l = {
        .size = size,
        .burst_ns = ns_per_s,
        .idle_ns = 30 * ns_per_s,
    };

    memset(limits, 0, size);
    memcpy(limits, &l, size < sizeof l ? size : sizeof l);
}

static uint64_t system_clock(void *user)
{
    (void)user;
    return mr__machine_clock_ns();
}

void mr_options_init(struct mr_options *opts, size_t size)
{
    struct mr_options o = {
        .size = size,
        .workers = MR_WORKERS_AUTO,
        .io = MR_IO_KERNEL,
        .pairing = MR_PAIRING_PAIRED,
        .max_ports = 4096,
        .socket_buffer_bytes = 1 << 20,
        .hold =
            {
                .datagrams = 8,
                .bytes = 16 << 10,
                .time_ns = 2 * ns_per_s,
                .flows = 4096,
                .memory_bytes = 4 << 20,
                .events_per_s = 10000,
            },
    };

    mr_limits_init(&o.limits, sizeof o.limits);
    memset(opts, 0, size);
    memcpy(opts, &o, size < sizeof o ? size : sizeof o);
}

static int check_options(const struct mr_options *o)
{
    const struct mr_hold_options *h = &o->hold;

    if (o->size != sizeof *o || o->limits.size != sizeof o->limits)
        return -EINVAL;
    if (o->workers < MR_WORKERS_AUTO || o->workers > WORKERS_MAX)
        return -EINVAL;
    if (o->io != MR_IO_KERNEL && o->io != MR_IO_NONE)
        return -EINVAL;
    if (o->pairing != MR_PAIRING_PAIRED && o->pairing != MR_PAIRING_OPEN)
        return -EINVAL;
    if (o->max_ports == 0 || o->max_ports > PORTS_MAX || o->max_pairs > 64u * PORTS_MAX)
        return -EINVAL;
    if (h->flows == 0 || h->flows > HOLD_FLOWS_MAX || h->events_per_s == 0 || h->time_ns == 0)
        return -EINVAL;
    return 0;
}

/* ------------------------------------------------------------------ memory */

struct layout {
    size_t shared, limits, sockets, ports, records, heap, by_udp, flows, workers, tables, total;
};

static size_t place(size_t *end, size_t count, size_t bytes)
{
    size_t at = *end;

    *end += mr__hash_align(count * bytes);
    return at;
}

static struct layout lay_out(const struct mr *mr, const struct tables_config *tables)
{
    size_t ports = mr->options.max_ports, end = 0;
    struct layout l;

    l.shared = place(&end, ports + MR__SHARED_EXTRA, sizeof(struct relay_shared));
    l.limits = place(&end, ports + 1, sizeof(struct relay_limits));
    l.sockets = place(&end, ports, sizeof(struct tx_socket));
    l.ports = place(&end, ports, sizeof(struct port));
    l.records = place(&end, ports, sizeof(struct record));
    l.heap = place(&end, ports, sizeof(uint32_t));
    l.by_udp = place(&end, UDP_NUMBERS, sizeof(uint32_t));
    l.flows =
        place(&end, (size_t)mr->flows_per_worker * mr->worker_count, sizeof(struct told_flow));
    l.workers = place(&end, mr->worker_count, sizeof(struct worker));
    l.tables = place(&end, 1, mr__tables_bytes(tables));
    l.total = end;
    return l;
}

static int init_memory(struct mr *mr, struct tables_config *tables)
{
    struct layout l = lay_out(mr, tables);
    uint8_t *mem;

    if (mr__tables_bytes(tables) == 0)
        return -EINVAL;
    mem = mr__map(l.total);
    if (!mem)
        return -ENOMEM;
    mr->memory = mem;
    mr->memory_bytes = l.total;
    mr->shared = (struct relay_shared *)(void *)(mem + l.shared);
    mr->relay_limits = (struct relay_limits *)(void *)(mem + l.limits);
    mr->sockets = (struct tx_socket *)(void *)(mem + l.sockets);
    mr->ports = (struct port *)(void *)(mem + l.ports);
    mr->records = (struct record *)(void *)(mem + l.records);
    mr->heap = (uint32_t *)(void *)(mem + l.heap);
    mr->port_by_udp = (uint32_t *)(void *)(mem + l.by_udp);
    mr->flows = (struct told_flow *)(void *)(mem + l.flows);
    mr->workers = (struct worker *)(void *)(mem + l.workers);
    tables->plane.shared = mr->shared;
    tables->plane.limits = mr->relay_limits;
    tables->plane.global = &mr->global;
    mr__tables_init(&mr->tables, tables, mem + l.tables);
    return 0;
}

static int init_tables(struct mr *mr)
{
    const struct mr_options *o = &mr->options;
    struct tables_config tables = {
        .plane = {.ports = o->max_ports,
                  .max_own = 2 * (o->max_ports + OWN_DECLARED_MAX) + OWN_LOCAL_MAX,
                  .pairing = o->pairing == MR_PAIRING_OPEN ? MR__PAIRING_OPEN : MR__PAIRING_PAIRED},
        .max_pairs = o->max_pairs,
        .reserved_pairs = mr->reserved_pairs,
        .max_raws = 2 * o->max_ports,
        .max_latches = o->max_ports,
        .on_link = mr__control_on_link,
        .user = mr,
    };
    int r = mr__machine_random(&tables.plane.key, sizeof tables.plane.key);

    if (r == 0)
        r = init_memory(mr, &tables);
    return r;
}

/* ------------------------------------------------------------------ workers */

static void worker_config(struct mr *mr, struct plane_config *plane, struct worker_config *out)
{
    const struct plane *p = &mr->tables.plane;

    *plane = (struct plane_config){
        .ports = p->ports,
        .max_links = p->links.max,
        .max_own = p->own.max,
        .pairing = p->pairing,
        .key = p->links.key,
        .shared = mr->shared,
        .limits = mr->relay_limits,
        .global = &mr->global,
    };
    *out = (struct worker_config){
        .count = mr->worker_count,
        .max_ports = mr->options.max_ports,
        .plane = plane,
        .hold = &mr->options.hold,
        .transport = mr->transport,
        .sockets = mr->sockets,
        .clock_ns = mr->options.clock_ns,
        .clock_user = mr->options.clock_user,
        .is_clock_virtual = mr->options.clock_ns != system_clock,
        .control = mr->is_inline ? NULL : &mr->asleep,
        .control_poller = mr->is_inline ? NULL : &mr->poller,
    };
}

static void stop_workers(struct mr *mr, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mr__worker_stop(&mr->workers[i]);
    for (uint32_t i = 0; i < n; i++)
        mr__worker_deinit(&mr->workers[i]);
}

/* All are made before the first runs: a failure then has nobody to stop. */
static int start_workers(struct mr *mr)
{
    struct plane_config plane;
    struct worker_config config;
    uint32_t made = 0;
    int r = 0;

    worker_config(mr, &plane, &config);
    while (r == 0 && made < mr->worker_count) {
        config.index = made;
        r = mr__worker_init(&mr->workers[made], &config);
        made += r == 0;
    }
    for (uint32_t i = 0; r == 0 && !mr->is_inline && i < made; i++)
        r = mr__worker_start(&mr->workers[i]);
    if (r < 0)
        stop_workers(mr, made);
    return r;
}

/* ------------------------------------------------------------------ life */

static void init_fields(struct mr *mr, const struct mr_options *opts)
{
    mr->options = *opts;
    if (!mr->options.clock_ns)
        mr->options.clock_ns = system_clock;
    if (mr->options.max_pairs == 0) {
        mr->options.max_pairs = PAIRS_PER_PORT * mr->options.max_ports;
        mr->reserved_pairs = mr->options.max_ports;
    }
    mr->is_inline = opts->workers == 0;
    mr->worker_count = opts->workers == MR_WORKERS_AUTO ? mr__machine_cores()
                       : mr->is_inline                  ? 1
                                                        : (uint32_t)opts->workers;
    if (mr->worker_count > WORKERS_MAX)
        mr->worker_count = WORKERS_MAX;
    mr->transport = opts->io == MR_IO_NONE ? &mr__transport_none : &mr__transport_kernel;
    mr->flows_per_worker = opts->hold.flows * (1 + HOLD_QUIET_PER_FLOW);
    mr->last_injected = &mr->first_injected;
    mr->last_replaced = &mr->first_replaced;
    mr->free_port = NO_PORT;
    mr->removing = mr->closing = (struct queue){NO_PORT, NO_PORT};
    mr__limit_global_set(&mr->global, opts->limits.global_bytes_per_s, opts->limits.burst_ns,
                         opts->limits.life_bytes);
    /* An embedder may sleep on the descriptor before he ever polled. */
    mr__wakeup_prepare(&mr->asleep);
}

int mr_create(struct mr **out, const struct mr_options *opts)
{
    struct mr *mr;
    int r = check_options(opts);

    if (r < 0)
        return r;
    mr = mr__map(sizeof *mr); /* aligned as its lines ask for, which the heap is not */
    if (!mr)
        return -ENOMEM;
    init_fields(mr, opts);
    r = mr__poller_init(&mr->poller);
    if (r < 0)
        goto unmap_mr;
    r = mr__control_init(mr);
    if (r < 0)
        goto close_poller;
    r = init_tables(mr);
    if (r < 0)
        goto free_log;
    r = start_workers(mr);
    if (r < 0)
        goto unmap_memory;
    *out = mr;
    return 0;

unmap_memory:
    mr__unmap(mr->memory, mr->memory_bytes);
free_log:
    mr__free(mr->log.at);
close_poller:
    mr__poller_deinit(&mr->poller);
unmap_mr:
    mr__unmap(mr, sizeof *mr);
    return r;
}

void mr_destroy(struct mr *mr)
{
    if (!mr)
        return;
    stop_workers(mr, mr->worker_count);
    for (uint32_t port = 0; port < mr->unused_port; port++) {
        if (mr->ports[port].state != PORT_FREE)
            mr->transport->close(mr->sockets[port].fd);
    }
    while (mr->first_injected) {
        struct injected *next = mr->first_injected->next;

        mr__free(mr->first_injected);
        mr->first_injected = next;
    }
    mr__blocked_destroy(mr);
    mr__free(mr->log.at);
    mr__unmap(mr->memory, mr->memory_bytes);
    mr__poller_deinit(&mr->poller);
    mr__unmap(mr, sizeof *mr);
}

const char *mr_strerror(int err)
{
    const char *text = strerrordesc_np(err < 0 ? -err : err);

    return text ? text : "unknown error";
}

const char *mr_version(void)
{
    return MR_VERSION_STRING;
}
