/* SPDX-License-Identifier: MIT */
/*
 * The worker's life and its turn. What happens to a batch is in pass.c.
 * Start reading at mr__worker_turn().
 */
#include "engine/worker.h"

#include "base/alloc.h"
#include "engine/pass.h"
#include "io/machine.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------ life */

struct layout {
    size_t plane, hold, commands, events, sources, told, batch, tray, total;
};

static size_t place(size_t *end, size_t bytes)
{
    size_t at = *end;

    *end += mr__hash_align(bytes);
    return at;
}

static uint32_t count_sources(const struct worker_config *c)
{
    return c->max_ports / c->count + 1;
}

static struct layout lay_out(const struct worker_config *c)
{
    struct layout l;
    size_t end = 0;

    l.plane = place(&end, mr__plane_bytes(c->plane));
    l.hold = place(&end, mr__hold_bytes(c->hold));
    l.commands = place(&end, mr__ring_bytes(COMMAND_RING, sizeof(struct command)));
    l.events = place(&end, mr__ring_bytes(EVENT_RING, sizeof(struct worker_event)));
    l.sources = place(&end, count_sources(c) * sizeof(struct rx_source));
    l.told = place(&end, c->max_ports * sizeof(struct limit_told));
    l.batch = place(&end, sizeof(struct batch));
    l.tray = place(&end, TRAY_BYTES);
    l.total = end;
    return l;
}

/* One mapping for everything, so that there is one thing that can fail. */
static int init_memory(struct worker *w)
{
    const struct worker_config *c = &w->config;
    struct layout l = lay_out(c);
    uint8_t *mem = mr__map(l.total);

    if (!mem)
        return -ENOMEM;
    w->memory = mem;
    w->memory_bytes = l.total;
    mr__plane_init(&w->plane, c->plane, mem + l.plane);
    mr__hold_init(&w->hold, c->hold, c->index, &c->plane->key, mem + l.hold);
    mr__ring_init(&w->commands, COMMAND_RING, sizeof(struct command), mem + l.commands);
    mr__ring_init(&w->events, EVENT_RING, sizeof(struct worker_event), mem + l.events);
    mr__tray_init(&w->tray, mem + l.tray);
    w->sources = (struct rx_source *)(void *)(mem + l.sources);
    w->told = (struct limit_told *)(void *)(mem + l.told);
    w->batch = (struct batch *)(void *)(mem + l.batch);
    return 0;
}

int mr__worker_init(struct worker *w, const struct worker_config *config)
{
    int r;

    w->config = *config;
    r = mr__poller_init(&w->poller);
    if (r < 0)
        return r;
    r = init_memory(w);
    if (r < 0)
        goto close_poller;
    r = mr__rx_init(&w->rx);
    if (r < 0)
        goto unmap;
    r = mr__tx_init(&w->tx);
    if (r < 0)
        goto free_rx;
    return 0;

free_rx:
    mr__rx_deinit(&w->rx);
unmap:
    mr__unmap(w->memory, w->memory_bytes);
    w->memory = NULL;
close_poller:
    mr__poller_deinit(&w->poller);
    return r;
}

void mr__worker_deinit(struct worker *w)
{
    mr__tx_deinit(&w->tx);
    mr__rx_deinit(&w->rx);
    mr__unmap(w->memory, w->memory_bytes);
    mr__poller_deinit(&w->poller);
}

static void *run(void *arg)
{
    struct worker *w = arg;

    while (!atomic_load_explicit(&w->should_stop, memory_order_acquire)) {
        uint64_t timeout_ns = mr__worker_timeout_ns(w, w->now_ns);

        if (timeout_ns > 0) {
            mr__wakeup_prepare(&w->asleep);
            w->is_prepared = 1;
            /* Looked at again: whoever posted before the flag was up has not woken us. */
            if (atomic_load_explicit(&w->should_stop, memory_order_acquire))
                break;
            timeout_ns = mr__worker_timeout_ns(w, w->now_ns);
        }
        mr__worker_turn(w, timeout_ns);
    }
    return NULL;
}

/* Signals are the embedder's and go to his threads. */
int mr__worker_start(struct worker *w)
{
    char name[16];
    sigset_t all, before;
    int r;

    w->now_ns = w->config.clock_ns(w->config.clock_user);
    w->is_threaded = 1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&w->thread, NULL, run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0) {
        w->is_threaded = 0;
        return -EAGAIN;
    }
    snprintf(name, sizeof name, "mr-worker-%u", w->config.index);
    (void)pthread_setname_np(w->thread, name);
    return 0;
}

void mr__worker_stop(struct worker *w)
{
    if (!w->is_threaded)
        return;
    atomic_store_explicit(&w->should_stop, 1, memory_order_release);
    mr__poller_wake(&w->poller);
    pthread_join(w->thread, NULL);
    w->is_threaded = 0;
}

void mr__worker_wake(struct worker *w)
{
    if (mr__wakeup_post(&w->asleep))
        mr__poller_wake(&w->poller);
}

static void tell_control(struct worker *w)
{
    w->must_tell = 0;
    if (w->config.control && mr__wakeup_post(w->config.control))
        mr__poller_wake(w->config.control_poller);
}

/* ------------------------------------------------------------------ commands */

static struct rx_source *source_of(struct worker *w, uint32_t port)
{
    return port % w->config.count == w->config.index ? &w->sources[port / w->config.count] : NULL;
}

static void open_port(struct worker *w, const struct command *c)
{
    struct rx_source *source = source_of(w, c->port);

    w->plane.relays.at[c->port].port_flags = c->u.flags;
    if (!source)
        return;
    *source = (struct rx_source){.fd = w->config.sockets[c->port].fd, .port = c->port};
    /* Nobody could be told of a failure here; mr_port_open() has taken what may be missing. */
    if (w->config.transport->has_sockets)
        mr__poller_start(&w->poller, source->fd, c->port);
}

static void close_port(struct worker *w, const struct command *c)
{
    struct rx_source *source = source_of(w, c->port);

    w->plane.relays.at[c->port].port_flags = 0;
    if (!source)
        return;
    if (w->config.transport->has_sockets)
        mr__poller_remove(&w->poller, source->fd);
    source->fd = -1;
    mr__pass_forget_port(w, c->port);
}

static void add_relay(struct worker *w, const struct command *c)
{
    int r = mr__plane_add(&w->plane, c->port, c->u.add.generation, &c->u.add.addr, c->u.add.flags,
                          c->u.add.egress);

    assert(r == 0); /* control's own tables took it */
    (void)r;
    for (unsigned k = 0; k < 4; k++) {
        if (w->told[c->port].at_ms[k]) /* or the page need not exist */
            w->told[c->port].at_ms[k] = 0;
    }
    w->must_rescan = w->plane.pairing == MR__PAIRING_OPEN;
}

static void set_link(struct worker *w, const struct link *link)
{
    int r;

    /* Only the owner of the port ever looks the link up. */
    if (!source_of(w, link->port))
        return;
    r = mr__plane_link(&w->plane, link);
    assert(r == 0);
    (void)r;
    mr__pass_mark_flow(w, link->port, &link->from);
}

/* What is kept already keeps its time. */
static void set_hold(struct worker *w, const struct command *c)
{
    w->hold.limits.datagrams = c->u.hold.datagrams;
    w->hold.limits.bytes = c->u.hold.bytes;
    w->hold.limits.time_ns = c->u.hold.time_ns;
    w->hold.limits.events_per_s = c->u.hold.events_per_s;
}

static void apply(struct worker *w, const struct command *c)
{
    switch ((enum command_type)c->type) {
    case COMMAND_PING:
        break;
    case COMMAND_ADD:
        add_relay(w, c);
        break;
    case COMMAND_MOVE:
        (void)mr__plane_move(&w->plane, c->port, &c->u.addr);
        w->must_rescan = w->plane.pairing == MR__PAIRING_OPEN;
        break;
    case COMMAND_REMOVE:
        (void)mr__plane_remove(&w->plane, c->port);
        break;
    case COMMAND_LINK:
        set_link(w, &c->u.link);
        break;
    case COMMAND_UNLINK:
        if (source_of(w, c->port))
            (void)mr__plane_unlink(&w->plane, c->port, &c->u.addr);
        break;
    case COMMAND_PORT_OPEN:
        open_port(w, c);
        break;
    case COMMAND_PORT_CLOSE:
        close_port(w, c);
        break;
    case COMMAND_OWN_ADD:
        (void)mr__own_add(&w->plane.own, &c->u.addr);
        break;
    case COMMAND_OWN_REMOVE:
        (void)mr__own_remove(&w->plane.own, &c->u.addr);
        break;
    case COMMAND_RELEASE:
        mr__pass_release_flow(w, c->u.answer.flow);
        break;
    case COMMAND_DISCARD:
        mr__pass_discard_flow(w, c);
        break;
    case COMMAND_MISS_EVENTS:
        w->wants_misses = c->u.flags != 0;
        break;
    case COMMAND_INJECT:
        if (source_of(w, c->port))
            mr__pass_inject(w, c);
        break;
    case COMMAND_BLOCKED:
        w->plane.blocked = c->u.nets;
        break;
    case COMMAND_HOLD:
        set_hold(w, c);
        break;
    case COMMAND_FLOW_HOLD:
        mr__pass_bound_flow(w, c);
        break;
    }
}

/*
 * All that is there, at most one ring full: control cannot keep us from receiving. What
 * was held and has a way now goes out before anything new is read, and before
 * applied_seq says that the change is in force.
 */
static void apply_commands(struct worker *w)
{
    struct command *c;
    unsigned n = 0;

    while (n < COMMAND_RING && (c = mr__ring_peek(&w->commands))) {
        assert(c->seq == w->applied + 1);
        apply(w, c);
        mr__ring_pop(&w->commands);
        w->applied++;
        n++;
    }
    if (n == 0)
        return;
    mr__pass_replay(w);
    atomic_store_explicit(&w->applied_seq, w->applied, memory_order_release);
    w->must_tell = 1;
}

/* ------------------------------------------------------------------ turn */

/* An error is one socket's and over with its read. Only when every ready socket fails
 * turn after turn (the kernel is out of memory) would that become a busy loop. */
static void on_errors(struct worker *w, unsigned failed, unsigned ready)
{
    atomic_fetch_add_explicit(&w->socket_errors, failed, memory_order_relaxed);
    if (failed == ready && w->is_threaded)
        mr__machine_pause();
}

static void receive(struct worker *w, const uint32_t *ports, unsigned n)
{
    unsigned failed = 0;

    if (!w->is_partial)
        w->rx.turn++;
    w->is_partial = n == POLLER_READY_MAX;
    for (unsigned i = 0; i < n; i++) {
        struct rx_source *source = source_of(w, ports[i]);

        if (!source || source->fd < 0)
            continue; /* closed by a command of this turn */
        if (w->batch->n == BATCH_MAX)
            mr__pass_run(w);
        failed += w->config.transport->receive(&w->rx, source, w->batch) < 0;
    }
    mr__pass_run(w);
    if (failed)
        on_errors(w, failed, n);
}

/*
 * A barrier is a look at all sockets that began after control asked. It is over when a
 * turn finds nothing readable: then everything that waited has been seen. A flood could
 * put that off for ever, so running time bounds it.
 */
static void advance_barrier(struct worker *w, uint64_t begin_ns, unsigned ready)
{
    uint64_t spent = w->now_ns - begin_ns;

    if (w->barrier == 0)
        return;
    w->barrier_run_ns += spent < BARRIER_TURN_MAX_NS ? spent : BARRIER_TURN_MAX_NS;
    if (ready > 0 && w->barrier_run_ns < BARRIER_RUN_NS)
        return;
    atomic_store_explicit(&w->barrier_done, w->barrier, memory_order_release);
    w->barrier = 0;
    w->must_tell = 1;
}

static uint64_t barrier_wanted(const struct worker *w)
{
    uint64_t wanted = atomic_load_explicit(&w->barrier_wanted, memory_order_acquire);

    /* Relaxed: we are who writes it. */
    return wanted > atomic_load_explicit(&w->barrier_done, memory_order_relaxed) ? wanted : 0;
}

static void begin_barrier(struct worker *w)
{
    if (w->barrier == 0 && (w->barrier = barrier_wanted(w)) != 0)
        w->barrier_run_ns = 0;
}

void mr__worker_turn(struct worker *w, uint64_t timeout_ns)
{
    uint32_t ports[POLLER_READY_MAX];
    unsigned ready = 0;
    uint64_t begin_ns;

    begin_barrier(w);
    if (w->barrier)
        timeout_ns = 0;
    if (w->config.transport->has_sockets || w->is_threaded)
        ready = mr__poller_wait(&w->poller, ports, timeout_ns);
    if (w->is_prepared)
        mr__wakeup_cancel(&w->asleep);
    w->is_prepared = 0;
    w->now_ns = begin_ns = w->config.clock_ns(w->config.clock_user);

    apply_commands(w);
    if (ready > 0)
        receive(w, ports, ready);
    mr__pass_expire(w);
    advance_barrier(w, begin_ns, ready);
    if (w->must_tell)
        tell_control(w);
}

uint64_t mr__worker_timeout_ns(const struct worker *w, uint64_t now_ns)
{
    /* A virtual clock moves without waking us. */
    const uint64_t virtual_ns = 5000000;
    const struct hold_flow *due = mr__hold_due(&w->hold);
    uint64_t timeout_ns = UINT64_MAX;

    if (mr__ring_count(&w->commands) > 0 || w->barrier || barrier_wanted(w))
        return 0;
    if (due)
        timeout_ns = due->until_ns > now_ns ? due->until_ns - now_ns : 0;
    if (w->config.is_clock_virtual && w->is_threaded && timeout_ns > virtual_ns)
        timeout_ns = virtual_ns;
    return timeout_ns;
}
