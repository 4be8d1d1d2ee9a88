/* SPDX-License-Identifier: MIT */
/*
 * See control.h. A turn of the loop is: timers, then settle() (output goes out, who went
 * away is reported, the timer is set for whoever is due first), then sleep and the
 * callbacks of sockets, then settle() again, so that an embedder who sleeps elsewhere
 * leaves nothing behind.
 */
#include "control/control.h"

#include "base/alloc.h"
#include "control/chain_lookup.h"
#include "control/host.h"
#include "control/http.h"
#include "control/lookup_metrics.h"
#include "control/registrar.h"
#include "control/supervisor.h"
#include "control/tcp.h"
#include "control/watch.h"
#include "control/watchdog.h"
#include "service/drain.h"
#include "service/metrics.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum {
    EVENTS_PER_ROUND = 64,
    PUMP_MS = 5,                /* engine events before players have their turn again */
    CONNECTIONS_BEYOND = 16,    /* over the cap, so that the service can tell them why */
    REGISTRAR_BUFFER = 1 << 20, /* 8 s of a burst of 10 datagrams a second from 5,000 players */
    STOP_ANSWERS_MS = 500,      /* what waits for the engine may still be answered so long */
    STOP_MS = 4000,             /* then the rest is cut off; closing itself takes 3 s */
};
static const uint64_t ms_ns = 1000000;

/* How long a turn of the loop keeps everybody else waiting: from what nobody notices to what a
 * player does. */
static const double stall_bounds[] = {0.0001, 0.001, 0.005, 0.01, 0.025, 0.05,
                                      0.1,    0.25,  0.5,   1,    2.5};
enum { STALL_BOUNDS = sizeof stall_bounds / sizeof stall_bounds[0] };

enum phase {
    RUNS,
    ANSWERS, /* nobody new; what waits for commands in force is still answered */
    CLOSES,  /* connections end as their output is flushed */
    STOPPED,
};

struct control {
    uv_loop_t loop;
    uv_async_t wake;
    uv_prepare_t before_sleep;
    uv_check_t after_sleep;
    uv_timer_t timer;
    uv_poll_t engine;
    struct control_options opts;
    size_t max_connections, output_bytes;
    struct service *service; /* NULL until attached */
    bool is_started;         /* the listeners let in */
    struct host *host;
    struct chain_lookup *chain; /* NULL until attached */
    struct watch *watch;
    struct watchdog *watchdog;     /* NULL until started */
    struct supervisor *supervisor; /* NULL until started, or nobody wants to know */
    struct tcp *tcp;
    struct registrar *registrar;
    struct http *http;
    struct api *api;                    /* NULL: no control socket */
    atomic_uint asked[CONTROL_SIGNALS]; /* by anybody; wake pairs with uv_async_send */
    unsigned seen[CONTROL_SIGNALS];
    enum phase phase;
    uint64_t stop_seq;                  /* engine commands issued before the stop */
    uint64_t answers_until, stop_until; /* ns */
    bool has_more_events;
    unsigned events_per_round; /* fewer when a policy takes long over each */
    uint64_t stalls[STALL_BOUNDS + 1];
    double stall_sum;
};

static uint64_t now_ns(void)
{
    return uv_hrtime();
}

uint64_t mr__control_now_ns(const struct control *c)
{
    (void)c;
    return now_ns();
}

double mr__control_wall_s(void *user)
{
    struct timespec t;

    (void)user;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the service's way out --------------------------------------------------------------- */

static void out_send(void *user, conn_id conn, const char *data, size_t n)
{
    mr__tcp_send(((struct control *)user)->tcp, conn, data, n);
}

static void out_close(void *user, conn_id conn)
{
    mr__tcp_close(((struct control *)user)->tcp, conn);
}

static void out_pause(void *user, conn_id conn, bool is_paused)
{
    mr__tcp_pause(((struct control *)user)->tcp, conn, is_paused);
}

static void out_reply(void *user, const struct mr_addr *to, const struct mr_addr *local,
                      const char *data, size_t n)
{
    mr__registrar_reply(((struct control *)user)->registrar, to, local, data, n);
}

static int out_random(void *user, void *buf, size_t n)
{
    (void)user;
    return uv_random(NULL, NULL, buf, n, 0, NULL);
}

static host_job out_lookup(void *user, struct str host, int family, enum mr_lookup_op op,
                           unsigned flags,
                           void (*done)(void *arg, const struct mr_lookup_answer *a), void *arg)
{
    return mr__host_start_lookup(((struct control *)user)->host, host, family, op, flags, done,
                                 arg);
}

static void out_lookup_cancel(void *user, host_job job)
{
    mr__host_cancel(((struct control *)user)->host, job);
}

struct service_out mr__control_out(struct control *c)
{
    return (struct service_out){.user = c,
                                .send = out_send,
                                .close = out_close,
                                .pause = out_pause,
                                .reply = out_reply,
                                .random = out_random,
                                .lookup = out_lookup,
                                .lookup_cancel = out_lookup_cancel};
}

struct script_host mr__control_host(struct control *c)
{
    return mr__host_script(c->host);
}

struct mr_lookup *mr__control_lookup(const struct control *c)
{
    return mr__host_lookup(c->host);
}

int mr__control_watch(struct control *c, const char *const *paths, size_t n)
{
    return mr__watch_set(c->watch, paths, n);
}

/* ---- the service's way in ---------------------------------------------------------------- */

static conn_id on_accepted(void *user, const struct mr_addr *peer, const struct mr_addr *local)
{
    return mr__service_accept(((struct control *)user)->service, peer, local, now_ns());
}

static void on_input(void *user, conn_id id, const void *data, size_t n)
{
    mr__service_input(((struct control *)user)->service, id, data, n, now_ns());
}

static void on_eof(void *user, conn_id id)
{
    mr__service_eof(((struct control *)user)->service, id, now_ns());
}

static void on_gone(void *user, conn_id id, enum conn_end why)
{
    mr__service_closed(((struct control *)user)->service, id, why, now_ns());
}

static void on_datagram(void *user, const struct mr_addr *from, const struct mr_addr *local,
                        const void *data, size_t n)
{
    mr__service_registrar(((struct control *)user)->service, from, local, data, n, now_ns());
}

static char *on_metrics(void *user, size_t *n)
{
    return mr__service_metrics(((struct control *)user)->service, n, now_ns());
}

static const char *on_not_ready(void *user)
{
    struct control *c = user;

    return c->phase != RUNS ? "stopping" : mr__service_not_ready(c->service, now_ns());
}

/* ---- engine and time --------------------------------------------------------------------- */

/* Bounded by time and not by a number: an event may cost a microsecond or a whole hook's
 * budget, and a flood of strangers must not keep players from the loop. */
static void pump_engine(struct control *c)
{
    struct mr_event events[EVENTS_PER_ROUND];
    uint64_t until = now_ns() + PUMP_MS * ms_ns;

    c->has_more_events = false;
    for (;;) {
        unsigned most = c->events_per_round;
        int n = mr_poll(c->opts.mr, events, most);

        for (int i = 0; i < n; i++) {
            mr__service_engine_event(c->service, &events[i], now_ns());
        }
        if (n < (int)most) {
            return;
        }
        if (now_ns() >= until) {
            c->events_per_round = most > 1 ? most / 2 : 1;
            c->has_more_events = true;
            return;
        }
        c->events_per_round = most < EVENTS_PER_ROUND ? most * 2 : EVENTS_PER_ROUND;
    }
}

static void on_engine(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    pump_engine(poll->data);
}

static void stopped(struct control *c)
{
    c->phase = STOPPED;
    mr__api_hide(c->api); /* not every process that ends takes its server apart */
    uv_stop(&c->loop);
}

static void go_on_stopping(struct control *c, uint64_t now)
{
    if (c->phase == ANSWERS &&
        (mr_in_force(c->opts.mr) >= c->stop_seq || now >= c->answers_until)) {
        c->phase = CLOSES;
        mr__service_end_sessions(c->service, now);
        mr__tcp_stop(c->tcp);
    }
    if (c->phase == CLOSES && (mr__tcp_count(c->tcp) == 0 || now >= c->stop_until)) {
        stopped(c);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct control *c = timer->data;

    pump_engine(c);
    mr__service_tick(c->service, now_ns());
}

static void arm_timer(struct control *c)
{
    uint64_t now = now_ns();
    uint64_t due = mr__service_deadline(c->service);
    int engine_ms = c->has_more_events ? 0 : mr_timeout_ms(c->opts.mr);
    uint64_t wait_ms = due == UINT64_MAX ? UINT64_MAX
                       : due <= now      ? 0
                                         : (due - now + ms_ns - 1) / ms_ns;

    if (engine_ms >= 0 && (uint64_t)engine_ms < wait_ms) {
        wait_ms = (uint64_t)engine_ms;
    }
    if (c->phase != RUNS) {
        uint64_t end = c->phase == ANSWERS ? c->answers_until : c->stop_until;
        uint64_t end_ms = end <= now ? 0 : (end - now + ms_ns - 1) / ms_ns;
        wait_ms = end_ms < wait_ms ? end_ms : wait_ms;
    }
    if (wait_ms == UINT64_MAX) {
        uv_timer_stop(&c->timer);
    } else {
        /* Counted from the loop's idea of now, which may lie behind a long callback. */
        uv_update_time(&c->loop);
        uv_timer_start(&c->timer, on_timer, wait_ms, 0);
    }
}

static void begin_stop(struct control *c)
{
    uint64_t now = now_ns();

    MR_LOG(c->opts.log, MR_LOG_INFO, "server", "stopping",
           LOG_UINT("connections", mr__tcp_count(c->tcp)));
    c->phase = ANSWERS;
    c->answers_until = now + STOP_ANSWERS_MS * ms_ns;
    c->stop_until = now + STOP_MS * ms_ns;
    mr__tcp_stop_accepting(c->tcp);
    mr__registrar_stop(c->registrar);
    mr__supervisor_stopping(c->supervisor, 2 * STOP_MS * ms_ns);
    mr__service_stop(c->service, now);
    c->stop_seq = mr_seq(c->opts.mr);
}

static void settle(struct control *c)
{
    if (!c->service || c->phase == STOPPED) {
        return;
    }
    if (c->is_started) {
        mr__tcp_settle(c->tcp);
    }
    if (c->phase == RUNS && c->is_started && mr__service_is_drained(c->service)) {
        begin_stop(c);
    }
    if (c->phase != RUNS) {
        go_on_stopping(c, now_ns());
    }
    if (c->phase != STOPPED) {
        arm_timer(c);
    }
}

static void on_before_sleep(uv_prepare_t *handle)
{
    settle(handle->data);
}

static void on_after_sleep(uv_check_t *handle)
{
    settle(handle->data);
}

/* ---- signals ----------------------------------------------------------------------------- */

static void ask_stop(struct control *c)
{
    struct drain_view drain;

    if (!mr__service_drain_to_stop(c->service, now_ns())) {
        begin_stop(c);
        return;
    }
    mr__drain_look(c->service, now_ns(), &drain);
    mr__supervisor_stopping(c->supervisor,
                            (uint64_t)(drain.seconds_left * 1e9) + 2 * STOP_MS * ms_ns);
}

static void on_wake(uv_async_t *wake)
{
    struct control *c = wake->data;
    bool is_new[CONTROL_SIGNALS];
    unsigned stops = atomic_load(&c->asked[CONTROL_STOP]);

    for (unsigned i = 0; i < CONTROL_SIGNALS; i++) {
        unsigned asked = atomic_load(&c->asked[i]);
        is_new[i] = asked != c->seen[i];
        c->seen[i] = asked;
    }
    if (is_new[CONTROL_HANGUP]) {
        c->opts.on_hangup(c->opts.user);
    }
    if (is_new[CONTROL_DRAIN] && c->is_started) {
        (void)mr__service_drain(c->service, MR_DRAIN_PRESET, "USR1", now_ns());
    }
    if (is_new[CONTROL_STOP] && c->phase == RUNS && c->is_started) {
        ask_stop(c);
    }
    if (stops > 1 || (stops > 0 && !c->is_started)) {
        stopped(c);
    }
}

void mr__control_signal(struct control *c, enum control_signal signal)
{
    int before = errno; /* a signal handler must not change it */

    atomic_fetch_add(&c->asked[signal], 1);
    uv_async_send(&c->wake);
    errno = before;
}

bool mr__control_is_stopped(const struct control *c)
{
    return c->phase == STOPPED;
}

/* ---- the loop ---------------------------------------------------------------------------- */

static void note_turn(struct control *c, uint64_t worked_ns)
{
    double s = (double)worked_ns / 1e9;
    unsigned i = 0;

    while (i < STALL_BOUNDS && s > stall_bounds[i]) {
        i++;
    }
    c->stalls[i]++;
    c->stall_sum += s;
}

void mr__control_step(struct control *c, enum control_wait wait)
{
    uint64_t from = now_ns(), idle = uv_metrics_idle_time(&c->loop), took, slept;

    mr__watchdog_enter(c->watchdog);
    uv_run(&c->loop, wait == CONTROL_WAIT ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    took = now_ns() - from;
    slept = uv_metrics_idle_time(&c->loop) - idle;
    took = took > slept ? took - slept : 0; /* sleeping does not count */
    mr__watchdog_leave(c->watchdog, took);
    note_turn(c, took);
}

int mr__control_fd(const struct control *c)
{
    return uv_backend_fd(&c->loop);
}

int mr__control_timeout_ms(struct control *c)
{
    settle(c);
    if (c->phase == STOPPED) {
        return 0;
    }
    uv_update_time(&c->loop);
    return uv_backend_timeout(&c->loop);
}

void mr__control_metrics(void *user, struct metrics *m)
{
    struct control *c = user;
    struct registrar_counts counts;

    mr__metrics_family(m, "moonrelay_control_stall_seconds", MR_METRIC_HISTOGRAM,
                       "How long each turn of the control loop kept others waiting.");
    mr__metrics_histogram(m, NULL, 0, stall_bounds, c->stalls, STALL_BOUNDS, c->stall_sum);
    mr__metrics_family(m, "moonrelay_control_stalls_total", MR_METRIC_COUNTER,
                       "Turns of the control loop that took a second or more.");
    mr__metrics_uint(m, NULL, 0, mr__watchdog_stalls(c->watchdog));
    mr__registrar_counts(c->registrar, &counts);
    mr__metrics_family(m, "moonrelay_registrar_kernel_drops_total", MR_METRIC_COUNTER,
                       "Datagrams lost in the registrar's receive buffer.");
    mr__metrics_uint(m, NULL, 0, counts.kernel_drops);
    mr__metrics_family(m, "moonrelay_registrar_replies_failed_total", MR_METRIC_COUNTER,
                       "Registrar replies that the kernel refused to send.");
    mr__metrics_uint(m, NULL, 0, counts.replies_failed);
    mr__lookup_metrics(mr__host_lookup(c->host), m);
}

/* ---- life -------------------------------------------------------------------------------- */

static void init_handles(struct control *c)
{
    uv_prepare_init(&c->loop, &c->before_sleep);
    uv_check_init(&c->loop, &c->after_sleep);
    uv_timer_init(&c->loop, &c->timer);
    c->wake.data = c->engine.data = c;
    c->before_sleep.data = c->after_sleep.data = c->timer.data = c;
}

int mr__control_create(struct control **out, const struct control_options *opts)
{
    struct control *c = mr__alloc(1, sizeof *c);
    struct host_options host = {.log = opts->log, .roots = opts->roots};
    int rc;

    if (!c) {
        return -ENOMEM;
    }
    c->opts = *opts;
    c->max_connections = opts->settings->max_connections + CONNECTIONS_BEYOND;
    c->output_bytes = opts->settings->output_buffer;
    c->events_per_round = 1;
    for (unsigned i = 0; i < CONTROL_SIGNALS; i++) {
        atomic_init(&c->asked[i], 0);
    }
    rc = uv_loop_init(&c->loop);
    if (rc < 0) {
        goto free_memory;
    }
    uv_loop_configure(&c->loop, UV_METRICS_IDLE_TIME);
    rc = uv_async_init(&c->loop, &c->wake, on_wake);
    if (rc < 0) {
        goto close_loop;
    }
    rc = uv_poll_init(&c->loop, &c->engine, mr_fd(opts->mr));
    if (rc < 0) {
        goto close_wake;
    }
    init_handles(c);
    host.loop = &c->loop;
    rc = mr__host_create(&c->host, &host);
    if (rc == 0) {
        rc = mr__watch_create(&c->watch, &c->loop, opts->on_change, opts->user);
    }
    if (rc < 0) {
        mr__control_destroy(c);
        return rc;
    }
    *out = c;
    return 0;

close_wake:
    uv_close((uv_handle_t *)&c->wake, NULL);
    uv_run(&c->loop, UV_RUN_DEFAULT);
close_loop:
    uv_loop_close(&c->loop);
free_memory:
    mr__free(c);
    return rc;
}

static int bind_tcp(struct control *c, struct mr_addr *at)
{
    struct tcp_options opts = {
        .loop = &c->loop,
        .log = c->opts.log,
        .handler = {.user = c,
                    .accepted = on_accepted,
                    .input = on_input,
                    .eof = on_eof,
                    .closed = on_gone},
        .local = *at,
        .max_connections = c->max_connections,
        .output_bytes = c->output_bytes,
    };

    return mr__tcp_open(&c->tcp, &opts, at);
}

static int bind_registrar(struct control *c, struct mr_addr *at)
{
    struct registrar_options opts = {.loop = &c->loop,
                                     .local = *at,
                                     .buffer_bytes = REGISTRAR_BUFFER,
                                     .user = c,
                                     .on_datagram = on_datagram};

    return mr__registrar_open(&c->registrar, &opts, at);
}

static int bind_http(struct control *c, struct mr_addr *at)
{
    struct http_options opts = {.loop = &c->loop,
                                .local = *at,
                                .user = c,
                                .metrics = on_metrics,
                                .not_ready = on_not_ready};

    return mr__http_open(&c->http, &opts, at);
}

/* What one of them closed is freed by the loop, at the latest in mr__control_destroy(). */
static void close_all(struct control *c)
{
    mr__supervisor_destroy(c->supervisor);
    c->supervisor = NULL;
    mr__tcp_destroy(c->tcp);
    mr__registrar_destroy(c->registrar);
    mr__http_destroy(c->http);
    mr__api_destroy(c->api);
    c->api = NULL;
    c->tcp = NULL;
    c->registrar = NULL;
    c->http = NULL;
}

int mr__control_bind(struct control *c, struct control_endpoints *endpoints, const char **failed)
{
    int rc;

    *failed = "socket_port";
    rc = bind_tcp(c, &endpoints->command);
    if (rc == 0) {
        *failed = "udp_registrar_port";
        rc = bind_registrar(c, &endpoints->registrar);
    }
    if (rc == 0) {
        *failed = "http_port";
        rc = bind_http(c, &endpoints->http);
    }
    if (rc < 0) {
        close_all(c);
        return rc;
    }
    *failed = NULL;
    return 0;
}

int mr__control_attach(struct control *c, struct service *service)
{
    int rc = mr__chain_lookup_create(&c->chain, mr__host_lookup(c->host), service);

    if (rc == 0) {
        rc = uv_poll_start(&c->engine, UV_READABLE, on_engine);
    }
    if (rc == 0) {
        c->service = service;
        uv_prepare_start(&c->before_sleep, on_before_sleep);
        uv_check_start(&c->after_sleep, on_after_sleep);
    }
    return rc;
}

int mr__control_open_api(struct control *c, const char *path, const struct api_deeds *deeds)
{
    struct api_options opts = {
        .loop = &c->loop, .path = path, .service = c->service, .deeds = *deeds};

    assert(c->service);
    return mr__api_open(&c->api, &opts);
}

static int start_supervisor(struct control *c)
{
    struct supervisor_options opts = {.loop = &c->loop,
                                      .service = c->service,
                                      .socket = c->opts.notify_socket,
                                      .watchdog_us = c->opts.watchdog_us,
                                      .watchdog_pid = c->opts.watchdog_pid};

    return mr__supervisor_create(&c->supervisor, &opts);
}

void mr__control_tell(struct control *c, enum control_news news)
{
    if (news == CONTROL_READY) {
        mr__supervisor_ready(c->supervisor);
    } else {
        mr__supervisor_reloading(c->supervisor);
    }
}

int mr__control_start(struct control *c)
{
    int rc;

    assert(c->service && c->tcp && c->registrar && c->http);
    rc = mr__tcp_start(c->tcp);
    if (rc == 0) {
        rc = mr__registrar_start(c->registrar);
    }
    if (rc == 0) {
        rc = mr__http_start(c->http);
    }
    if (rc == 0 && c->api) {
        rc = mr__api_start(c->api);
    }
    if (rc == 0) {
        rc = mr__watchdog_create(&c->watchdog, &c->loop, c->opts.log, MR_WATCHDOG_STALL_MS);
    }
    if (rc == 0) {
        rc = start_supervisor(c);
    }
    c->is_started = rc == 0;
    return rc;
}

void mr__control_close(struct control *c)
{
    if (c) {
        c->phase = STOPPED;
        close_all(c);
        mr__chain_lookup_close(c->chain);
    }
}

void mr__control_destroy(struct control *c)
{
    int rc;

    if (!c) {
        return;
    }
    mr__control_close(c);
    mr__watchdog_destroy(c->watchdog);
    mr__host_destroy(c->host);
    mr__chain_lookup_destroy(c->chain);
    mr__watch_destroy(c->watch);
    uv_close((uv_handle_t *)&c->wake, NULL);
    uv_close((uv_handle_t *)&c->engine, NULL);
    uv_close((uv_handle_t *)&c->before_sleep, NULL);
    uv_close((uv_handle_t *)&c->after_sleep, NULL);
    uv_close((uv_handle_t *)&c->timer, NULL);
    while (uv_run(&c->loop, UV_RUN_DEFAULT) != 0) { /* a pending uv_stop() ends a run early */
    }
    rc = uv_loop_close(&c->loop);
    assert(rc == 0);
    (void)rc;
    mr__free(c);
}
