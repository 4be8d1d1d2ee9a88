/* SPDX-License-Identifier: MIT */
/*
 * The wiring: settings, engine, service, adapters and policies become a server. All in
 * the thread that calls; the engine and the log writer have threads of their own.
 *
 * The order of a start is that of what can fail: read everything, then open, then let
 * players in. mr_server_destroy() undoes any prefix of it, so that a failed start and a
 * normal end are one path. Start reading at mr_server_create().
 */
#include "server/moonrelay/server.h"

#include "base/alloc.h"
#include "base/log.h"
#include "control/control.h"
#include "control/log_writer.h"
#include "control/process.h"
#include "engine/moonrelay.h"
#include "script/policies.h"
#include "server/banner.h"
#include "server/deeds.h"
#include "server/reload.h"
#include "server/startup.h"
#include "server/user.h"
#include "service/metrics.h"
#include "service/service.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>

enum {
    OWN_LOG_FLUSH_MS = 1000, /* at the end of a server whose owner did not flush himself */
    READY_WAIT_MS = 2000,    /* the workers need microseconds */
    READY_LOOK_MS = 5,
    LOAD_WAIT_MS = 12000, /* loading ends by itself before */
};

struct mr_server {
    struct startup_sources sources;
    struct startup start;
    struct user user;
    const struct settings_values *settings;
    struct banner banner;
    struct log_writer *writer;
    struct log log;
    struct mr *mr;
    struct control *control;
    struct service *service;
    struct policies *policies;
    struct reload *reload; /* NULL: still starting */
    struct deeds deeds;
    struct control_endpoints at;
    char *ranges;    /* relay ports */
    char *open;      /* those open to everybody; "" when there are none */
    char *endpoints; /* the line `ready` without its first word */
};

void mr_server_options_init(struct mr_server_options *opts, size_t size)
{
    struct mr_server_options defaults = {.size = size, .log_fd = 1, .warning_fd = -1};

    memset(opts, 0, size);
    memcpy(opts, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

/* A caller built against an older header has a shorter struct: what it lacks has its default. */
static void read_options(struct mr_server_options *out, const struct mr_server_options *given)
{
    mr_server_options_init(out, sizeof *out);
    memcpy(out, given, given->size < sizeof *out ? given->size : sizeof *out);
    out->size = sizeof *out;
}

/* ---- start ------------------------------------------------------------------------------- */

static int open_log(struct mr_server *s, const struct mr_server_options *opts,
                    struct mr_server_error *err)
{
    const struct settings_values *v = s->settings;
    int rc = mr__log_writer_create(&s->writer, opts->log_fd, v->log_format, MR_LOG_RING_BYTES);

    if (rc < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, rc, "cannot start the log: %s",
                                mr_strerror(rc));
    }
    s->log = (struct log){.level = v->log_level,
                          .format = v->log_format,
                          .sink = mr__log_writer_push,
                          .user = s->writer};
    s->banner =
        (struct banner){.log = &s->log, .warning_fd = opts->warning_fd, .settings = s->settings};
    return 0;
}

static void warn(void *user, const char *text)
{
    mr__banner_warn(user, text);
}

static size_t count_ports(const struct settings_values *v)
{
    return v->udp_relay_ports.n + v->udp_relay_ports.any;
}

/* Makes room for ports and connections among the open files. */
static int plan_files(struct mr_server *s, struct mr_server_error *err)
{
    const struct settings_values *v = s->settings;
    uint64_t limit = mr__process_raise_files();
    size_t ports = count_ports(v) + mr__config_port_count(s->start.config);
    uint32_t granted = 0;
    char text[256];
    int rc = mr__process_plan_files(limit, ports, v->max_connections, &granted);

    if (rc < 0) {
        return mr__startup_fail(
            err, MR_SERVER_EXIT_FAILED, rc,
            "the limit of open files is %llu, but %zu relay ports, %d connections and %d more need "
            "%zu: raise it (ulimit -n, LimitNOFILE=) or lower udp_relay_ports",
            (unsigned long long)limit, ports, MR_CONNECTIONS_LEAST, MR_FILES_SPARE,
            ports + MR_CONNECTIONS_LEAST + MR_FILES_SPARE);
    }
    if (granted < v->max_connections) {
        snprintf(
            text, sizeof text,
            "the limit of open files is %llu: max_connections is %u and not %u, for which %llu "
            "are needed",
            (unsigned long long)limit, granted, v->max_connections,
            (unsigned long long)ports + v->max_connections + MR_FILES_SPARE);
        mr__banner_warn(&s->banner, text);
        mr__settings_cap_connections(s->start.settings, granted);
    }
    return 0;
}

/* What forwards; a check has nothing to forward and gets an engine without threads. */
static int start_engine(struct mr_server *s, int workers, struct mr_server_error *err)
{
    const struct settings_values *v = s->settings;
    struct mr_options o;
    int rc;

    mr_options_init(&o, sizeof o);
    mr__service_engine_options(v, &o);
    o.workers = workers;
    rc = mr_create(&s->mr, &o);
    if (rc < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, rc, "cannot start the engine: %s",
                                mr_strerror(rc));
    }
    return 0;
}

static void ask_reload(struct mr_server *s, const char *by)
{
    if (!s->reload || mr__reload_ask(s->reload, MR_RELOAD, by, NULL, NULL) < 0) {
        MR_LOG(&s->log, MR_LOG_WARN, "reload", "not now", LOG_STR("by", by));
    }
}

static void on_hangup(void *user)
{
    ask_reload(user, "HUP");
}

static void on_change(void *user)
{
    ask_reload(user, "watch");
}

/* The loop, and the service on it. */
static int start_service(struct mr_server *s, struct mr_server_error *err)
{
    struct control_options loop = {
        .settings = s->settings,
        .log = &s->log,
        .mr = s->mr,
        .notify_socket = mr__startup_variable(&s->sources, "NOTIFY_SOCKET"),
        .watchdog_us = mr__startup_variable(&s->sources, "WATCHDOG_USEC"),
        .watchdog_pid = mr__startup_variable(&s->sources, "WATCHDOG_PID"),
        .roots = mr__startup_variable(&s->sources, "SSL_CERT_FILE"),
        .user = s,
        .on_hangup = on_hangup,
        .on_change = on_change};
    struct service_options opts = {
        .settings = s->start.settings, .mr = s->mr, .log = &s->log, .wall_s = mr__control_wall_s};
    int rc = mr__control_create(&s->control, &loop);

    if (rc < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, rc, "cannot start the loop: %s",
                                mr_strerror(rc));
    }
    opts.out = mr__control_out(s->control);
    rc = mr__service_create(&s->service, &opts, mr__control_now_ns(s->control));
    if (rc == 0) {
        rc = mr__control_attach(s->control, s->service);
    }
    if (rc < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, rc, "cannot start the service: %s",
                                mr_strerror(rc));
    }
    return 0;
}

/* ---- policies ---------------------------------------------------------------------------- */

/* One turn of the loop, after sleeping at most so long. */
static void turn(struct mr_server *s, int most_ms)
{
    struct pollfd p = {.fd = mr__control_fd(s->control), .events = POLLIN};
    int wait_ms = mr__control_timeout_ms(s->control);

    poll(&p, 1, wait_ms < 0 || wait_ms > most_ms ? most_ms : wait_ms);
    mr__control_step(s->control, CONTROL_NO_WAIT);
}

struct loaded {
    struct log *log;
    bool is_done;
    int rc;
    struct script_error why;
};

static void on_loaded(void *user, int rc, const struct script_error *why)
{
    struct loaded *l = user;

    l->is_done = true;
    l->rc = rc;
    l->why = *why;
    if (rc < 0) {
        mr__policies_log_failure(l->log, why);
    }
}

/* A policy's load may ask and read, so the loop turns meanwhile; nobody was let in yet. */
static void await_load(struct mr_server *s, const struct loaded *l)
{
    uint64_t until = mr__control_now_ns(s->control) + LOAD_WAIT_MS * 1000000ull;

    while (!l->is_done && !mr__control_is_stopped(s->control) &&
           mr__control_now_ns(s->control) < until) {
        turn(s, READY_LOOK_MS * 20);
    }
}

static int load_policies(struct mr_server *s, struct mr_server_error *err)
{
    struct policies_options opts = {
        .log = &s->log, .service = s->service, .host = mr__control_host(s->control)};
    struct loaded l = {.log = &s->log, .rc = -EINTR, .why = {.text = ""}};
    struct policies_load load;
    int rc;

    if (getrandom(&opts.seed, sizeof opts.seed, GRND_NONBLOCK) < 0) {
        opts.seed = 0; /* math.random is no secret; a start does not wait for entropy */
    }
    if (mr__policies_create(&s->policies, &opts) < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, -ENOMEM, "out of memory");
    }
    mr__service_set_hooks(s->service, mr__policies_hooks(s->policies));
    mr__startup_plan(&load, &s->start, &s->sources);
    load.done = on_loaded;
    load.user = &l;
    rc = mr__policies_load(s->policies, &load);
    if (rc == 0) {
        await_load(s, &l);
    } else if (!l.is_done) {
        l.rc = rc;
    }
    /* Again, since only now is it known what they want to be asked about. */
    mr__service_set_hooks(s->service, mr__policies_hooks(s->policies));
    if (l.rc == -ENOMEM && !*l.why.text) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, -ENOMEM, "out of memory");
    }
    return l.rc < 0 ? mr__startup_fail(err, MR_SERVER_EXIT_USAGE, l.rc, "%s",
                                       *l.why.text ? l.why.text : "stopped while policies load")
                    : 0;
}

/* ---- listeners --------------------------------------------------------------------------- */

/* A host that is looked up. */
struct place {
    const char *key, *host;
    struct mr_addr *at;
    struct mr_lookup_request req;
    bool is_told;
    int rc;
    char why[MR_LOOKUP_TEXT_MAX + 1];
};
enum { PLACES = 3 };

static void on_place(struct mr_lookup_request *req, const struct mr_lookup_answer *answer)
{
    struct place *p = req->user;

    p->is_told = true;
    p->rc = answer->rc;
    if (answer->rc < 0) {
        snprintf(p->why, sizeof p->why, "%s", answer->message);
    } else {
        uint16_t port = p->at->port;
        *p->at = answer->addr;
        p->at->port = port;
    }
}

/* Names are asked for like every other, through policies where they want it; the loop turns
 * meanwhile. A literal is there on the next turn. */
static int find_places(struct mr_server *s, struct place *places, struct mr_server_error *err)
{
    unsigned told = 0;
    int rc = 0;

    for (unsigned i = 0; i < PLACES; i++) {
        struct place *p = &places[i];

        p->req = (struct mr_lookup_request){.done = on_place, .user = p};
        mr_lookup_start(mr__control_lookup(s->control), &p->req, p->host, strlen(p->host), 0,
                        MR_LOOKUP_LISTEN, 0);
    }
    while (told < PLACES && !mr__control_is_stopped(s->control)) {
        turn(s, READY_LOOK_MS * 20);
        for (told = 0; told < PLACES && places[told].is_told; told++) {
        }
    }
    for (unsigned i = 0; i < PLACES; i++) {
        struct place *p = &places[i];

        mr_lookup_cancel(&p->req);
        if (rc == 0 && !p->is_told) {
            rc = mr__startup_fail(err, MR_SERVER_EXIT_FAILED, -EINTR,
                                  "stopped while %s = \"%.255s\" is looked up", p->key, p->host);
        } else if (rc == 0 && p->rc < 0) {
            rc = mr__startup_fail(err, MR_SERVER_EXIT_FAILED, p->rc,
                                  "%s = \"%.255s\" cannot be looked up: %s", p->key, p->host,
                                  p->why);
        }
    }
    return rc;
}

static int bind_listeners(struct mr_server *s, struct mr_server_error *err)
{
    const struct settings_values *v = s->settings;
    struct control_endpoints at = {.command.port = v->socket_port,
                                   .registrar.port = v->udp_registrar_port,
                                   .http.port = v->http_port};
    struct place places[PLACES] = {
        {.key = "socket_host", .host = v->socket_host, .at = &at.command},
        {.key = "udp_host", .host = v->udp_host, .at = &at.registrar},
        {.key = "http_host", .host = v->http_host, .at = &at.http}};
    const char *failed = NULL;
    int rc = find_places(s, places, err);

    if (rc < 0) {
        return rc;
    }
    mr__service_set_udp_host(s->service, &at.registrar);
    s->at = at;
    rc = mr__control_bind(s->control, &s->at, &failed);
    if (rc < 0) {
        bool is_udp = strcmp(failed, "udp_registrar_port") == 0;
        bool is_http = strcmp(failed, "http_port") == 0;
        char text[MR_ADDR_TEXT_MAX];
        mr_addr_format(is_udp    ? &at.registrar
                       : is_http ? &at.http
                                 : &at.command,
                       text, sizeof text);
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, rc,
                                "cannot listen on %s/%s (%s, %s): %s", text, is_udp ? "udp" : "tcp",
                                is_udp    ? "udp_host"
                                : is_http ? "http_host"
                                          : "socket_host",
                                failed, mr_strerror(rc));
    }
    /* Only what is UDP can be a relay's peer or loop back. */
    return mr_own_address(s->mr, &s->at.registrar) < 0
               ? mr__startup_fail(err, MR_SERVER_EXIT_FAILED, -ENOSPC, "too many own addresses")
               : 0;
}

/* The config's `ports`. Whoever names one counts on it, so a start without it fails. */
static int open_fronts(struct mr_server *s, struct mr_server_error *err)
{
    const struct config *c = s->start.config;
    struct open_report report;
    char text[MR_ADDR_TEXT_MAX];

    mr__service_open_fronts(s->service, mr__config_ports(c), mr__config_port_count(c), &report,
                            mr__control_now_ns(s->control));
    if (report.failed > 0) {
        mr_addr_format(&report.first_failed, text, sizeof text);
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, report.first_error,
                                "%s: ports[%u]: %s/udp cannot be opened: %s", report.first_place,
                                report.first_failed.port, text, mr_strerror(report.first_error));
    }
    s->open = mr__banner_open_ports(s->service);
    return s->open ? 0 : mr__startup_fail(err, MR_SERVER_EXIT_FAILED, -ENOMEM, "out of memory");
}

static int open_ports(struct mr_server *s, struct mr_server_error *err)
{
    struct port_report report = {.asked = 0};
    int rc = mr__service_open_ports(s->service, &report);

    if (rc < 0 && (report.first_error == 0 || report.opened > 0)) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, rc, "cannot open relay ports: %s",
                                mr_strerror(rc));
    }
    if (rc < 0) {
        char text[MR_ADDR_TEXT_MAX];
        mr_addr_format(&report.first_failed, text, sizeof text);
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, rc,
                                "none of %zu relay ports can be opened (udp_relay_ports), the "
                                "first is %s/udp: %s",
                                report.asked, text, mr_strerror(rc));
    }
    mr__banner_warn_ports(&s->banner, &report);
    rc = open_fronts(s, err);
    if (rc < 0) {
        return rc;
    }
    s->ranges = mr__banner_relay_ranges(s->mr);
    s->endpoints = s->ranges ? mr__banner_endpoints(&s->at, s->ranges, s->open) : NULL;
    if (!s->endpoints) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, -ENOMEM, "out of memory");
    }
    return 0;
}

static void write_log_figures(void *user, struct metrics *m)
{
    struct mr_server *s = user;

    mr__metrics_family(m, "moonrelay_log_dropped_total", MR_METRIC_COUNTER,
                       "Log lines that were not written because the log's reader was too slow.");
    mr__metrics_uint(m, NULL, 0, mr__log_writer_dropped(s->writer));
}

static void on_settings(void *user, const struct settings_values *v)
{
    struct mr_server *s = user;

    s->settings = v;
    s->banner.settings = v;
    s->log.level = v->log_level;
    s->log.format = v->log_format;
}

/* Where nobody asked for one, a start does not fail for want of it. */
static int open_control_socket(struct mr_server *s, struct mr_server_error *err)
{
    char path[MR_CONTROL_PATH_BYTES], text[MR_CONTROL_PATH_BYTES + 128];
    int is_asked_for = mr__startup_control_path(path, s->settings, &s->sources);
    struct api_deeds deeds = mr__deeds_of(&s->deeds);
    const char *why;
    int rc;

    s->deeds = (struct deeds){.mr = s->mr,
                              .control = s->control,
                              .service = s->service,
                              .policies = s->policies,
                              .reload = s->reload,
                              .endpoints = s->endpoints,
                              .started_at = mr__control_wall_s(s->control)};
    if (is_asked_for == -ENOENT) {
        MR_LOG(&s->log, MR_LOG_INFO, "start", "no control socket",
               LOG_STR("why", *s->settings->control ? "XDG_RUNTIME_DIR is not set" : "as asked"));
        return 0;
    }
    rc = is_asked_for < 0 ? is_asked_for : mr__control_open_api(s->control, path, &deeds);
    why = rc == -EADDRINUSE ? "another daemon listens there"
          : rc == -EEXIST   ? "there is something that is no socket"
                            : mr_strerror(rc);
    if (rc < 0 && is_asked_for != 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, rc,
                                "cannot make the control socket (control = \"%.200s\"): %s",
                                s->settings->control, why);
    }
    if (rc < 0) {
        snprintf(text, sizeof text, "no control socket: %s: %s; set `control` to another path%s",
                 path, why,
                 rc == -EADDRINUSE ? ", or commands without --control go to that one" : "");
        mr__banner_warn(&s->banner, text);
    } else {
        MR_LOG(&s->log, MR_LOG_INFO, "start", "control socket", LOG_STR("path", path));
    }
    return 0;
}

static int let_players_in(struct mr_server *s, struct mr_server_error *err)
{
    struct reload_options reload = {.log = &s->log,
                                    .control = s->control,
                                    .service = s->service,
                                    .policies = s->policies,
                                    .sources = &s->sources,
                                    .start = &s->start,
                                    .on_settings = on_settings,
                                    .user = s};
    int rc;

    if (mr__reload_create(&s->reload, &reload) < 0 ||
        mr__service_add_metrics(s->service, mr__reload_metrics, s->reload) < 0 ||
        mr__service_add_metrics(s->service, mr__policies_metrics, s->policies) < 0 ||
        mr__service_add_metrics(s->service, mr__control_metrics, s->control) < 0 ||
        mr__service_add_metrics(s->service, mr__process_metrics, NULL) < 0 ||
        mr__service_add_metrics(s->service, write_log_figures, s) < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, -ENOMEM, "out of memory");
    }
    if ((rc = open_control_socket(s, err)) < 0 ||
        (rc = mr__user_give_up(&s->user, &s->banner, err)) < 0) {
        return rc;
    }
    rc = mr__control_start(s->control);
    if (rc < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, rc, "cannot start the listeners: %s",
                                mr_strerror(rc));
    }
    return 0;
}

/* `ready` means that /readyz says 200, so the workers must have answered once. When they do
 * not, the server goes on all the same: /readyz says so, and they may yet. */
static void wait_until_ready(struct mr_server *s)
{
    uint64_t now = mr__control_now_ns(s->control);
    uint64_t until = now + READY_WAIT_MS * 1000000ull;

    while (mr__service_not_ready(s->service, now) && now < until) {
        turn(s, READY_LOOK_MS);
        now = mr__control_now_ns(s->control);
    }
}

static int read_all(struct mr_server *s, const struct mr_server_options *opts,
                    struct mr_server_error *err)
{
    int rc = mr__startup_sources_init(&s->sources, opts, err);

    if (rc == 0) {
        rc = mr__startup_read(&s->start, &s->sources, err);
    }
    if (rc == 0) {
        s->settings = mr__settings_values(s->start.settings);
        rc = mr__user_find(&s->user, s->settings, err);
    }
    return rc;
}

static int start(struct mr_server *s, const struct mr_server_options *opts,
                 struct mr_server_error *err)
{
    int rc = read_all(s, opts, err);

    if (rc < 0 || (rc = mr__user_begin(&s->user, err)) < 0 || (rc = open_log(s, opts, err)) < 0) {
        return rc;
    }
    MR_LOG(&s->log, MR_LOG_INFO, "start", "moonrelay", LOG_STR("version", mr_version()));
    mr__startup_each_warning(&s->start, warn, &s->banner);
    if ((rc = plan_files(s, err)) < 0 ||
        (rc = mr__user_step_down(&s->user, &s->banner, &s->sources, err)) < 0 ||
        (rc = start_engine(s, s->settings->workers, err)) < 0 || (rc = start_service(s, err)) < 0 ||
        (rc = load_policies(s, err)) < 0 || (rc = bind_listeners(s, err)) < 0 ||
        (rc = open_ports(s, err)) < 0 || (rc = let_players_in(s, err)) < 0) {
        return rc;
    }
    mr__banner_warn_ephemeral(&s->banner);
    mr__banner_warn_addresses(&s->banner, &s->at.registrar);
    mr__banner_listening(&s->banner, &s->at, s->ranges);
    mr__banner_open(&s->banner, s->service);
    mr__banner_policies(&s->banner, s->policies);
    mr__reload_watch(s->reload);
    wait_until_ready(s);
    mr__control_tell(s->control, CONTROL_READY);
    mr__banner_ready(&s->banner, &s->at, s->ranges, s->open, s->endpoints);
    return 0;
}

/* libuv writes to sockets without MSG_NOSIGNAL, and whoever has not thought of SIGPIPE would die
 * of a player who hangs up. A handler of the host's own stays. */
static void ignore_sigpipe(void)
{
    struct sigaction now;

    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
        struct sigaction ignored = {.sa_handler = SIG_IGN};
        sigaction(SIGPIPE, &ignored, NULL);
    }
}

int mr_server_create(struct mr_server **out, const struct mr_server_options *opts,
                     struct mr_server_error *err)
{
    struct mr_server_options all;
    struct mr_server *s = mr__alloc(1, sizeof *s);
    int rc;

    if (!s) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, -ENOMEM, "out of memory");
    }
    read_options(&all, opts);
    ignore_sigpipe();
    rc = start(s, &all, err);
    if (rc < 0) {
        mr_server_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

static void print_warning(void *user, const char *text)
{
    if (user) {
        fprintf(user, "warning: %s\n", text);
    }
}

/* A server that stops short of its listeners, so that policies load as they would: they may
 * ask and read. It says nothing to the log. */
int mr_server_check(const struct mr_server_options *opts, FILE *out, struct mr_server_error *err)
{
    struct mr_server_options all;
    struct mr_server *s = mr__alloc(1, sizeof *s);
    int rc;

    if (!s) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, -ENOMEM, "out of memory");
    }
    read_options(&all, opts);
    ignore_sigpipe();
    s->log.level = MR_LOG_SILENT;
    rc = read_all(s, &all, err);
    if (rc == 0) {
        mr__startup_each_warning(&s->start, print_warning, out);
        if ((rc = start_engine(s, 0, err)) == 0 && (rc = start_service(s, err)) == 0) {
            rc = load_policies(s, err);
        }
    }
    mr_server_destroy(s);
    return rc < 0 ? -EINVAL : 0;
}

/* The listeners first: they call the service. The service may still ask the decider to forget
 * requests and close relays of the engine; the decider takes back what it asked of the loop. The
 * log is last: all of them speak. */
void mr_server_destroy(struct mr_server *s)
{
    if (!s) {
        return;
    }
    mr__control_close(s->control);
    mr__service_destroy(s->service);
    mr__policies_destroy(s->policies);
    mr__reload_destroy(s->reload);
    mr__control_destroy(s->control);
    mr_destroy(s->mr);
    mr__log_writer_destroy(s->writer, OWN_LOG_FLUSH_MS);
    mr__startup_deinit(&s->start);
    mr__startup_sources_deinit(&s->sources);
    mr__free(s->ranges);
    mr__free(s->open);
    mr__free(s->endpoints);
    mr__free(s);
}

/* ---- running ----------------------------------------------------------------------------- */

int mr_server_fd(const struct mr_server *s)
{
    return mr__control_fd(s->control);
}

int mr_server_timeout_ms(struct mr_server *s)
{
    return mr__control_timeout_ms(s->control);
}

int mr_server_step(struct mr_server *s)
{
    if (!mr__control_is_stopped(s->control)) {
        mr__control_step(s->control, CONTROL_NO_WAIT);
    }
    return mr__control_is_stopped(s->control) ? 0 : 1;
}

int mr_server_run(struct mr_server *s)
{
    while (!mr__control_is_stopped(s->control)) {
        mr__control_step(s->control, CONTROL_WAIT);
    }
    return 0;
}

void mr_server_stop(struct mr_server *s)
{
    mr__control_signal(s->control, CONTROL_STOP);
}

void mr_server_drain(struct mr_server *s)
{
    mr__control_signal(s->control, CONTROL_DRAIN);
}

void mr_server_hangup(struct mr_server *s)
{
    mr__control_signal(s->control, CONTROL_HANGUP);
}

const char *mr_server_endpoints(const struct mr_server *s)
{
    return s->endpoints;
}

void mr_server_flush_log(struct mr_server *s, int timeout_ms)
{
    (void)mr__log_writer_flush(s->writer, timeout_ms);
}
