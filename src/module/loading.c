/* SPDX-License-Identifier: MIT */
/*
 * Settings, config and policies of a bench, by the calls of a start and a reload of the
 * daemon (bench.h). One thread. Start reading at mr__bench_load().
 */
#include "module/bench.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- settings -------------------------------------------------------------------------------- */

static void say_error(const struct settings *settings, struct script_error *why)
{
    for (size_t i = 0; i < mr__settings_message_count(settings); i++) {
        const struct settings_message *m = mr__settings_message(settings, i);

        if (m->is_error) {
            snprintf(why->text, sizeof why->text, "%s", m->text);
            return;
        }
    }
}

static bool is_window(const char *key)
{
    return mr__settings_find(key) == mr__settings_find("latch_window");
}

/* A datagram that the window would take for a player's is asked about by no policy, and a test
 * wants all of them asked about. So there is none, unless it is named. */
static int offer(const struct bench *b, struct settings *to, const struct config *c)
{
    bool has_window = false;
    int rc = 0;

    for (size_t i = 0; i < b->n_overrides && rc == 0; i++) {
        const struct hook_pair *o = &b->overrides[i];

        has_window = has_window || is_window(o->key.s);
        rc =
            mr__settings_offer(to, MR_SETTING_COMMAND_LINE, o->key.s, o->value.s, o->value.n, NULL);
    }
    for (size_t i = 0; c && i < mr__config_setting_count(c) && rc == 0; i++) {
        struct config_setting set;

        mr__config_setting(c, i, &set);
        has_window = has_window || is_window(set.key);
        rc = mr__settings_offer(to, MR_SETTING_CONFIG, set.key, set.value, set.n, set.place);
    }
    if (rc == 0 && !has_window) {
        rc = mr__settings_offer(to, MR_SETTING_CONFIG, "latch_window", "0s", 2, NULL);
    }
    return rc;
}

/* The settings of a config and of new{settings}, from the defaults up. */
static int make_settings(const struct bench *b, const struct config *c, struct settings **out,
                         struct script_error *why)
{
    struct settings *made = mr__settings_create();
    int rc = made ? offer(b, made, c) : -ENOMEM;

    if (rc == 0) {
        rc = mr__settings_resolve(made);
    }
    if (rc == -EINVAL) {
        say_error(made, why);
    }
    if (rc == 0) {
        rc = mr__config_check_ports(c, mr__settings_values(made), why);
    }
    if (rc < 0) {
        mr__settings_destroy(made);
        return rc;
    }
    *out = made;
    return 0;
}

static void drop_override(struct bench *b)
{
    struct hook_pair *o = &b->overrides[--b->n_overrides];

    mr__free((char *)(uintptr_t)o->key.s);
    mr__free((char *)(uintptr_t)o->value.s);
}

static int add_override(struct bench *b, const char *key, const char *value, size_t n)
{
    struct hook_pair *grown = mr__realloc(b->overrides, b->n_overrides + 1, sizeof *grown);
    char *key_copy = mr__strndup(key, strlen(key)), *value_copy = mr__strndup(value, n);

    b->overrides = grown ? grown : b->overrides;
    if (!grown || !key_copy || !value_copy) {
        mr__free(key_copy);
        mr__free(value_copy);
        return -ENOMEM;
    }
    grown[b->n_overrides++] = (struct hook_pair){{key_copy, strlen(key)}, {value_copy, n}};
    return 0;
}

int mr__bench_set(struct bench *b, const char *key, const char *value, size_t n,
                  struct script_error *why)
{
    struct settings *made;
    int rc = add_override(b, key, value, n);

    if (rc < 0) {
        return rc;
    }
    rc = make_settings(b, NULL, &made, why);
    if (rc < 0) {
        drop_override(b);
        return rc;
    }
    mr__settings_destroy(b->settings);
    b->settings = made;
    return 0;
}

void mr__bench_overrides_deinit(struct bench *b)
{
    while (b->n_overrides > 0) {
        drop_override(b);
    }
    mr__free(b->overrides);
}

/* ---- the first start ------------------------------------------------------------------------- */

static uint64_t clock_ns(void *user)
{
    return ((struct bench *)user)->now_ns;
}

static int start_engine(struct bench *b)
{
    struct mr_options o;

    mr_options_init(&o, sizeof o);
    mr__service_engine_options(mr__settings_values(b->settings), &o);
    o.workers = 0;
    o.io = MR_IO_NONE;
    o.clock_ns = clock_ns;
    o.clock_user = b;
    b->max_ports = o.max_ports;
    return mr_create(&b->mr, &o);
}

static int start_service(struct bench *b)
{
    struct service_options o = {.settings = b->settings,
                                .mr = b->mr,
                                .log = &b->log,
                                .out = mr__bench_out(b),
                                .wall_s = mr__bench_wall_s};
    struct port_report report;
    int rc = mr__service_create(&b->service, &o, b->now_ns);

    if (rc == 0) {
        mr__service_observe(b->service, mr__bench_ended, b);
        rc = mr__service_open_ports(b->service, &report);
    }
    return rc;
}

static int start_policies(struct bench *b)
{
    struct policies_options o = {.log = &b->log,
                                 .service = b->service,
                                 .host = mr__bench_host(b),
                                 .wall_s = mr__bench_wall_s,
                                 .mono_ns = clock_ns,
                                 .user = b,
                                 .seed = b->random};
    int rc = mr__policies_create(&b->policies, &o);

    if (rc == 0) {
        rc = mr__service_add_metrics(b->service, mr__policies_metrics, b->policies);
    }
    if (rc == 0) {
        rc = mr__service_add_metrics(b->service, mr__lookup_tally_metrics, &b->lookups);
    }
    if (rc == 0) {
        mr__service_set_hooks(b->service, mr__policies_hooks(b->policies));
    }
    return rc;
}

static int start(struct bench *b, struct script_error *why)
{
    int rc = start_engine(b);

    if (rc == 0) {
        rc = start_service(b);
    }
    if (rc == 0) {
        rc = start_policies(b);
    }
    if (rc < 0) {
        snprintf(why->text, sizeof why->text, "cannot start: %s", mr_strerror(rc));
    }
    return rc;
}

/* ---- loading --------------------------------------------------------------------------------- */

static int read_named(void *user, const char *name, char **text, size_t *n, const char **why)
{
    const struct bench_files *files = user;
    struct str found = files->find(files->user, (struct str){name, strlen(name)});

    if (!found.s) {
        *why = strerror(ENOENT);
        return -ENOENT;
    }
    *text = mr__strndup(found.s, found.n);
    *n = found.n;
    *why = "out of memory";
    return *text ? 0 : -ENOMEM;
}

static int read_config(struct bench *b, const char *path, const char *text, size_t n,
                       const struct bench_files *files, struct config **out,
                       struct script_error *why)
{
    const struct settings_values *v = mr__settings_values(b->settings);
    struct bench_files copy = *files;
    struct config_options opts = {.environment = environ,
                                  .cpu_ns = v->script_load_cpu_ns,
                                  .memory_bytes = v->script_memory,
                                  .read = read_named,
                                  .user = &copy,
                                  .takes_chunks = text != NULL};

    return text ? mr__config_parse(out, &opts, text, n, path, why)
                : mr__config_read(out, &opts, path, why);
}

static void tell_loaded(struct bench *b, const char *why)
{
    struct happening *h = mr__happening_add(&b->happenings, HAPPENED_LOADED);

    b->news++;
    mr__happening_text(&b->happenings, h, 0, (struct str){why, why ? strlen(why) : 0});
}

static void give_up(struct bench *b)
{
    b->is_loading = false;
    mr__config_unref(b->next_config);
    mr__settings_destroy(b->next_settings);
    b->next_config = NULL;
    b->next_settings = NULL;
}

/* The settings of the load are those in use from now on. */
static int switch_settings(struct bench *b)
{
    struct port_report report;
    int rc = mr__service_apply_settings(b->service, b->next_settings, &report, b->now_ns);

    if (rc == 0) {
        mr__settings_destroy(b->settings);
        b->settings = b->next_settings;
        b->next_settings = NULL;
    }
    b->log.level = MR_LOG_TRACE; /* a test sees all of it, whatever loglevel says */
    return rc;
}

/* The config's `ports`. Without sockets none is taken. */
static void open_fronts(struct bench *b)
{
    struct open_report report;

    mr__service_open_fronts(b->service, mr__config_ports(b->next_config),
                            mr__config_port_count(b->next_config), &report, b->now_ns);
    if (report.failed > 0) {
        MR_LOG(&b->log, MR_LOG_ERROR, "reload", "open ports could not be opened",
               LOG_STR("at", report.first_place));
    }
}

static void on_loaded(void *user, int rc, const struct script_error *err)
{
    struct bench *b = user;

    if (rc < 0) {
        mr__policies_log_failure(&b->log, err);
        give_up(b);
        tell_loaded(b, err->text);
        return;
    }
    if (switch_settings(b) < 0) {
        MR_LOG(&b->log, MR_LOG_ERROR, "reload", "settings could not be changed");
    }
    open_fronts(b);
    mr__config_unref(b->config);
    b->config = b->next_config;
    b->next_config = NULL;
    give_up(b);
    mr__service_set_hooks(b->service, mr__policies_hooks(b->policies));
    tell_loaded(b, NULL);
}

static int load_policies(struct bench *b)
{
    const struct settings_values *v = mr__settings_values(b->next_settings);

    b->load = (struct policies_load){.list = v->policies,
                                     .config = b->next_config,
                                     .settings = b->next_settings,
                                     .cpu_ns = v->script_cpu_ns,
                                     .load_cpu_ns = v->script_load_cpu_ns,
                                     .wait_ns = v->script_wait_ns,
                                     .memory_bytes = v->script_memory,
                                     .mode = MR_LOAD_SWAP,
                                     .done = on_loaded,
                                     .user = b};
    b->is_loading = true;
    return mr__policies_load(b->policies, &b->load);
}

/* A relay whose first load failed has never been one: its settings may still change. */
static void stop_unused(struct bench *b)
{
    struct generation_info info = {.number = 0};

    if (b->policies) {
        mr__policies_generation(b->policies, &info);
    }
    if (info.number == 0) {
        mr__bench_stop(b);
    }
}

static void on_kept(void *user, const char *key)
{
    struct bench *b = user;

    MR_LOG(&b->log, MR_LOG_WARN, "reload", "setting needs a restart", LOG_STR("key", key));
}

/* The first settings are the ones that the relay starts with. */
static int adopt_settings(struct bench *b, struct script_error *why)
{
    int rc = make_settings(b, b->next_config, &b->next_settings, why);

    if (rc == 0 && mr__bench_is_running(b)) {
        rc = mr__settings_adopt(b->next_settings, b->settings, on_kept, b);
    } else if (rc == 0) {
        struct settings *in_use;

        rc = make_settings(b, b->next_config, &in_use, why);
        if (rc == 0) {
            mr__settings_destroy(b->settings);
            b->settings = in_use;
            rc = start(b, why);
        }
    }
    return rc;
}

int mr__bench_load(struct bench *b, const char *path, const char *text, size_t n,
                   const struct bench_files *files, struct script_error *why)
{
    int rc;

    snprintf(why->text, sizeof why->text, "out of memory");
    if (b->is_loading) {
        snprintf(why->text, sizeof why->text, "another load is under way");
        return -EBUSY;
    }
    stop_unused(b);
    rc = read_config(b, path, text, n, files, &b->next_config, why);
    if (rc < 0) {
        return rc;
    }
    rc = adopt_settings(b, why);
    if (rc == 0) {
        rc = load_policies(b);
        if (rc < 0 && !b->is_loading) {
            rc = 0; /* done was told */
        }
    }
    if (rc < 0) {
        give_up(b);
        return rc;
    }
    return mr__bench_settle(b);
}

/* ---- commands -------------------------------------------------------------------------------- */

static void on_called(void *user, int rc, struct str text, bool is_json)
{
    struct call *call = user;
    struct bench *b = call->bench;
    struct happening *h = mr__happening_add(&b->happenings, HAPPENED_CALLED);

    if (h) {
        h->id = call->id;
        h->number = (uint64_t)-rc;
        h->is_json = is_json;
    }
    mr__happening_text(&b->happenings, h, 0, (struct str){text.n > 0 ? text.s : "", text.n});
    for (struct call **at = &b->calls; *at; at = &(*at)->next) {
        if (*at == call) {
            *at = call->next;
            mr__free(call);
            return;
        }
    }
}

int mr__bench_call(struct bench *b, uint64_t id, struct str policy, struct str verb,
                   const struct str *args, size_t n)
{
    struct call *call = mr__alloc(1, sizeof *call);

    if (!call) {
        return -ENOMEM;
    }
    *call = (struct call){.next = b->calls, .bench = b, .id = id};
    b->calls = call;
    mr__policies_call(b->policies, policy, verb, args, n, on_called, call);
    return mr__bench_settle(b);
}

void mr__bench_calls_deinit(struct bench *b)
{
    for (struct call *call = b->calls, *next; call; call = next) {
        next = call->next;
        mr__free(call);
    }
    b->calls = NULL;
}
