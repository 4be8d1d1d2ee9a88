/* SPDX-License-Identifier: MIT */
/*
 * See reload.h. The queue is a ring; one entry is under way at a time, and since it may
 * end from inside of its own start, go_on() is a loop and not a recursion.
 */
#include "server/reload.h"

#include "base/alloc.h"
#include "service/metrics.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { FILES_MAX = 1024, BY_MAX = 24, WARNINGS_MAX = 2 /* relay ports, open ports */ };

struct request {
    enum reload_kind kind;
    char by[BY_MAX];
    void (*done)(void *user, const struct reload_result *result);
    void *user;
};

struct reload {
    struct reload_options opts;
    struct request waiting[MR_RELOAD_WAITING_MAX];
    size_t first, n_waiting;
    struct request now;
    struct startup next; /* of `now`; settings NULL: none */
    bool is_running, is_going_on;
    struct reload_change *changes; /* room for every setting */
    size_t n_changes;
    struct reload_warning warnings[WARNINGS_MAX];
    size_t n_warnings;
    uint64_t ok, failed;
    bool is_last_ok;
};

/* ---- settings ---------------------------------------------------------------------------- */

/* What differs between the settings in use and the next ones. */
static void compare(struct reload *r)
{
    r->n_changes = 0;
    for (size_t i = 0; i < mr__settings_row_count(); i++) {
        struct settings_row before, after;

        mr__settings_row(r->opts.start->settings, i, &before);
        mr__settings_row(r->next.settings, i, &after);
        if (strcmp(before.value, after.value) != 0) {
            r->changes[r->n_changes++] =
                (struct reload_change){.key = after.key, .is_live = after.is_live};
        }
    }
}

/* ---- watching ---------------------------------------------------------------------------- */

struct file_list {
    const char *paths[FILES_MAX];
    size_t n;
};

static void add_file(void *user, const char *path)
{
    struct file_list *list = user;

    if (list->n < FILES_MAX) {
        list->paths[list->n++] = path;
    }
}

void mr__reload_watch(struct reload *r)
{
    const struct settings_values *v = mr__settings_values(r->opts.start->settings);
    struct file_list files = {.n = 0};
    int rc;

    if (v->watch) {
        if (*v->config) {
            add_file(&files, v->config);
        }
        mr__policies_files(r->opts.policies, add_file, &files);
    }
    rc = mr__control_watch(r->opts.control, files.paths, files.n);
    if (rc < 0) {
        MR_LOG(r->opts.log, MR_LOG_WARN, "reload", "cannot watch all files",
               LOG_STR("error", mr_strerror(rc)));
    }
}

/* ---- the end of one ---------------------------------------------------------------------- */

static const char *name_of(enum reload_kind kind)
{
    static const char *const names[] = {"reload", "check", "rollback"};

    return names[kind];
}

/* A check puts nothing in use, and where there is nothing to go back to nothing has failed. */
static bool is_counted(const struct request *q, int rc)
{
    return q->kind != MR_RELOAD_CHECK && !(q->kind == MR_ROLLBACK && rc == -ENOENT);
}

static void log_end(struct reload *r, const struct reload_result *result)
{
    struct log *log = r->opts.log;

    if (result->rc < 0) {
        struct log_field fields[] = {LOG_STR("what", name_of(r->now.kind)),
                                     LOG_STR("by", r->now.by), LOG_STR("error", result->text),
                                     LOG_STR("traceback", result->traceback)};
        mr__log(log, is_counted(&r->now, result->rc) ? MR_LOG_ERROR : MR_LOG_WARN, "reload",
                "refused, what was in use goes on", fields, *result->traceback ? 4 : 3);
        return;
    }
    MR_LOG(log, MR_LOG_INFO, "reload", r->now.kind == MR_RELOAD_CHECK ? "would be fine" : "in use",
           LOG_STR("what", name_of(r->now.kind)), LOG_STR("by", r->now.by),
           LOG_UINT("generation", result->generation));
    for (size_t i = 0; i < result->n_changes; i++) {
        const struct reload_change *c = &result->changes[i];
        MR_LOG(log, c->is_live ? MR_LOG_INFO : MR_LOG_WARN, "reload",
               c->is_live ? "setting has changed" : "setting needs a restart",
               LOG_STR("key", c->key));
    }
}

static void go_on(struct reload *r);

static void finish(struct reload *r, int rc, const char *text, const char *traceback)
{
    struct generation_info info;
    struct reload_result result = {.rc = rc,
                                   .text = text,
                                   .traceback = traceback,
                                   .changes = r->changes,
                                   .warnings = r->warnings};
    struct request now = r->now;

    mr__policies_generation(r->opts.policies, &info);
    result.generation = info.number;
    result.n_changes = rc == 0 ? r->n_changes : 0;
    result.n_warnings = rc == 0 ? r->n_warnings : 0;
    if (is_counted(&now, rc)) {
        r->ok += rc == 0;
        r->failed += rc < 0;
        r->is_last_ok = rc == 0;
    }
    log_end(r, &result);
    if (now.done) {
        now.done(now.user, &result);
    }
    mr__startup_deinit(&r->next);
    r->is_running = false;
    mr__control_tell(r->opts.control, CONTROL_READY);
    go_on(r);
}

static void refuse(struct reload *r, int rc, const char *text)
{
    r->n_changes = 0;
    if (rc == -ENOENT && r->now.kind != MR_ROLLBACK) {
        rc = -EINVAL; /* a file that is missing is a mistake like any other */
    }
    finish(r, rc, text && *text ? text : mr_strerror(rc), "");
}

/* What policies have to say of it. */
static void refuse_load(struct reload *r, int rc, const struct script_error *err)
{
    r->n_changes = 0;
    finish(r, rc == -ENOENT ? -EINVAL : rc, *err->text ? err->text : mr_strerror(rc),
           err->traceback);
}

/* ---- on its way -------------------------------------------------------------------------- */

/* What needs a restart keeps its value, also in what policies see of the settings. */
static int settle_settings(struct reload *r)
{
    compare(r);
    return mr__settings_adopt(r->next.settings, r->opts.start->settings, NULL, NULL);
}

/* "moonrelay.lua:3: ports[7777]: 0.0.0.0:7777/udp cannot be opened: ..., nor can 2 more" */
static void warn_of_ports(struct reload *r, const char *what, const struct mr_addr *first, int rc,
                          size_t n)
{
    char address[MR_ADDR_TEXT_MAX], more[48] = "";

    assert(r->n_warnings < WARNINGS_MAX);
    mr_addr_format(first, address, sizeof address);
    if (n > 1) {
        snprintf(more, sizeof more, ", nor can %zu more", n - 1);
    }
    snprintf(r->warnings[r->n_warnings].text, sizeof r->warnings[0].text,
             "%s: %s/udp cannot be opened: %s%s", what, address, mr_strerror(rc), more);
    r->n_warnings++;
}

static void tell_ports(struct reload *r, const struct port_report *report)
{
    char text[MR_ADDR_TEXT_MAX];

    if (report->opened + report->closed + report->draining > 0) {
        MR_LOG(r->opts.log, MR_LOG_INFO, "reload", "relay ports",
               LOG_UINT("opened", report->opened), LOG_UINT("closed", report->closed),
               LOG_UINT("draining", report->draining));
    }
    if (report->opened < report->asked) {
        mr_addr_format(&report->first_failed, text, sizeof text);
        MR_LOG(r->opts.log, MR_LOG_WARN, "reload", "relay ports cannot be opened",
               LOG_UINT("ports", report->asked - report->opened), LOG_STR("first", text),
               LOG_STR("error", mr_strerror(report->first_error)));
        warn_of_ports(r, "udp_relay_ports", &report->first_failed, report->first_error,
                      report->asked - report->opened);
    }
}

/* The config's `ports`. */
static void open_fronts(struct reload *r)
{
    const struct config *c = r->next.config;
    struct open_report report;
    char text[MR_ADDR_TEXT_MAX], what[320];

    mr__service_open_fronts(r->opts.service, mr__config_ports(c), mr__config_port_count(c), &report,
                            mr__control_now_ns(r->opts.control));
    if (report.opened + report.closed + report.draining > 0) {
        MR_LOG(r->opts.log, MR_LOG_INFO, "reload", "open ports", LOG_UINT("opened", report.opened),
               LOG_UINT("closed", report.closed), LOG_UINT("draining", report.draining));
    }
    if (report.failed > 0) {
        mr_addr_format(&report.first_failed, text, sizeof text);
        MR_LOG(r->opts.log, MR_LOG_WARN, "reload", "open ports cannot be opened",
               LOG_UINT("ports", report.failed), LOG_STR("first", text),
               LOG_STR("at", report.first_place),
               LOG_STR("error", mr_strerror(report.first_error)));
        snprintf(what, sizeof what, "%.300s: ports[%u]", report.first_place,
                 report.first_failed.port);
        warn_of_ports(r, what, &report.first_failed, report.first_error, report.failed);
    }
}

/* The policies are in use already; the settings follow them. */
static int adopt(struct reload *r)
{
    struct startup before = *r->opts.start;
    struct port_report report = {.asked = 0};
    int rc = mr__service_apply_settings(r->opts.service, r->next.settings, &report,
                                        mr__control_now_ns(r->opts.control));

    mr__service_set_hooks(r->opts.service, mr__policies_hooks(r->opts.policies));
    tell_ports(r, &report);
    if (rc == 0) {
        open_fronts(r);
        *r->opts.start = r->next;
        r->next = before;
        r->opts.on_settings(r->opts.user, mr__settings_values(r->opts.start->settings));
    }
    mr__reload_watch(r);
    return rc;
}

static void adopt_and_finish(struct reload *r)
{
    char text[256];
    int rc = adopt(r);

    snprintf(text, sizeof text, "the policies are in use, the settings are not: %s",
             mr_strerror(rc));
    finish(r, rc, rc < 0 ? text : "", "");
}

static void on_loaded(void *user, int rc, const struct script_error *err)
{
    struct reload *r = user;

    if (rc < 0) {
        refuse_load(r, rc, err);
    } else if (r->now.kind == MR_RELOAD_CHECK) {
        finish(r, 0, "", "");
    } else {
        adopt_and_finish(r);
    }
}

/* Going back brings the settings of the config that is in use again; the file may say
 * something else by now. */
static void on_rolled_back(void *user, int rc, const struct script_error *err)
{
    struct reload *r = user;
    struct mr_server_error why = {.text = ""};

    if (rc < 0 && err) {
        refuse_load(r, rc, err);
        return;
    }
    if (rc < 0) {
        refuse(r, rc, rc == -ENOENT ? "there is no generation before this one" : NULL);
        return;
    }
    rc =
        mr__startup_resolve(&r->next, r->opts.sources, mr__policies_config(r->opts.policies), &why);
    if (rc == 0) {
        rc = settle_settings(r);
    }
    if (rc < 0) {
        refuse(r, rc, why.text);
        return;
    }
    adopt_and_finish(r);
}

/* Whether it ended from inside or will end later, finish() is called once. */
static void begin(struct reload *r)
{
    struct mr_server_error why = {.text = ""};
    struct policies_load load;
    int rc;

    r->now = r->waiting[r->first];
    r->first = (r->first + 1) % MR_RELOAD_WAITING_MAX;
    r->n_waiting--;
    r->is_running = true;
    r->n_changes = r->n_warnings = 0;
    mr__control_tell(r->opts.control, CONTROL_RELOADING);
    if (r->now.kind == MR_ROLLBACK) {
        rc = mr__policies_rollback(r->opts.policies, on_rolled_back, r);
        if (rc < 0 && r->is_running) {
            on_rolled_back(r, rc, NULL);
        }
        return;
    }
    rc = mr__startup_read(&r->next, r->opts.sources, &why);
    if (rc == 0) {
        rc = settle_settings(r);
    }
    if (rc < 0) {
        refuse(r, rc, why.text);
        return;
    }
    mr__startup_plan(&load, &r->next, r->opts.sources);
    load.mode = r->now.kind == MR_RELOAD_CHECK ? MR_LOAD_CHECK : MR_LOAD_SWAP;
    load.done = on_loaded;
    load.user = r;
    rc = mr__policies_load(r->opts.policies, &load);
    if (rc < 0 && r->is_running) {
        refuse(r, rc, NULL);
    }
}

static void go_on(struct reload *r)
{
    if (r->is_going_on) {
        return;
    }
    r->is_going_on = true;
    while (!r->is_running && r->n_waiting > 0) {
        begin(r);
    }
    r->is_going_on = false;
}

/* ---- asking ------------------------------------------------------------------------------ */

/* Who asks without waiting for the answer has asked already when the same is waiting. */
static bool is_waiting(const struct reload *r, enum reload_kind kind)
{
    for (size_t i = 0; i < r->n_waiting; i++) {
        if (r->waiting[(r->first + i) % MR_RELOAD_WAITING_MAX].kind == kind) {
            return true;
        }
    }
    return false;
}

int mr__reload_ask(struct reload *r, enum reload_kind kind, const char *by,
                   void (*done)(void *user, const struct reload_result *result), void *user)
{
    struct request *q;

    if (!done && is_waiting(r, kind)) {
        return 0;
    }
    if (r->n_waiting == MR_RELOAD_WAITING_MAX) {
        return -EBUSY;
    }
    q = &r->waiting[(r->first + r->n_waiting++) % MR_RELOAD_WAITING_MAX];
    *q = (struct request){.kind = kind, .done = done, .user = user};
    snprintf(q->by, sizeof q->by, "%s", by);
    go_on(r);
    return 0;
}

/* ---- life -------------------------------------------------------------------------------- */

int mr__reload_create(struct reload **out, const struct reload_options *opts)
{
    struct reload *r = mr__alloc(1, sizeof *r);

    if (!r) {
        return -ENOMEM;
    }
    r->opts = *opts;
    r->is_last_ok = true;
    r->changes = mr__alloc(mr__settings_row_count(), sizeof *r->changes);
    if (!r->changes) {
        mr__free(r);
        return -ENOMEM;
    }
    *out = r;
    return 0;
}

void mr__reload_destroy(struct reload *r)
{
    if (r) {
        mr__startup_deinit(&r->next);
        mr__free(r->changes);
        mr__free(r);
    }
}

void mr__reload_metrics(void *user, struct metrics *m)
{
    const struct reload *r = user;
    struct metric_label ok = {"result", {"ok", 2}}, failed = {"result", {"failed", 6}};
    struct generation_info info;

    mr__policies_generation(r->opts.policies, &info);
    mr__metrics_family(m, "moonrelay_reloads_total", MR_METRIC_COUNTER,
                       "Reloads and rollbacks, by whether they were put in use.");
    mr__metrics_uint(m, &ok, 1, r->ok);
    mr__metrics_uint(m, &failed, 1, r->failed);
    mr__metrics_family(m, "moonrelay_config_last_reload_successful", MR_METRIC_GAUGE,
                       "Whether the last reload was put in use.");
    mr__metrics_uint(m, NULL, 0, r->is_last_ok);
    mr__metrics_family(m, "moonrelay_config_generation", MR_METRIC_GAUGE,
                       "Number of the policies' generation in use, from 1.");
    mr__metrics_uint(m, NULL, 0, info.number);
}
