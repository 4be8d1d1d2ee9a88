/* SPDX-License-Identifier: MIT */
/*
 * See startup.h. A start that fails has one line to say, so the first error is told and
 * the others are counted.
 */
#include "server/startup.h"

#include "base/alloc.h"
#include "core/address.h"
#include "engine/moonrelay.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { DOTENV_MAX = 1 << 20 }; /* a .env above it is no .env */

int mr__startup_fail(struct mr_server_error *err, enum mr_server_exit code, int rc,
                     const char *format, ...)
{
    va_list args;

    err->code = code;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    for (char *at = err->text; *at; at++) {
        if (*at == '\n' || *at == '\r') {
            *at = ' ';
        }
    }
    return rc;
}

static int fail_memory(struct mr_server_error *err)
{
    return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, -ENOMEM, "out of memory");
}

/* ---- settings ---------------------------------------------------------------------------- */

static int resolve(struct settings *settings, struct mr_server_error *err)
{
    const char *first = NULL;
    size_t more = 0;
    int rc = mr__settings_resolve(settings);

    if (rc == -ENOMEM) {
        return fail_memory(err);
    }
    if (rc == 0) {
        return 0;
    }
    for (size_t i = 0; i < mr__settings_message_count(settings); i++) {
        const struct settings_message *m = mr__settings_message(settings, i);
        if (m->is_error && first) {
            more++;
        } else if (m->is_error) {
            first = m->text;
        }
    }
    if (more > 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, -EINVAL, "%s (and %zu more)", first,
                                more);
    }
    return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, -EINVAL, "%s", first ? first : "?");
}

static int offer_sets(struct settings *settings, const struct mr_server_options *opts,
                      struct mr_server_error *err)
{
    for (size_t i = 0; i < opts->n_sets; i++) {
        const char *text = opts->sets[i];
        const char *equals = strchr(text, '=');
        char key[128];

        if (!equals || equals == text) {
            return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, -EINVAL,
                                    "--set \"%.200s\": expected key=value", text);
        }
        snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
        if (mr__settings_offer(settings, MR_SETTING_COMMAND_LINE, key, equals + 1,
                               strlen(equals + 1), NULL) < 0) {
            return fail_memory(err);
        }
    }
    if (opts->config && mr__settings_offer(settings, MR_SETTING_COMMAND_LINE, "config",
                                           opts->config, strlen(opts->config), NULL) < 0) {
        return fail_memory(err);
    }
    return 0;
}

/* 0 also when there is no such file. *text is for mr__free(). */
static int read_text(const char *path, char **text, size_t *n)
{
    FILE *f = fopen(path, "re");
    int rc = 0;

    *text = NULL;
    if (!f) {
        return errno == ENOENT ? 0 : -errno;
    }
    *text = mr__alloc(1, DOTENV_MAX + 1);
    if (!*text) {
        rc = -ENOMEM;
    } else {
        *n = fread(*text, 1, DOTENV_MAX + 1, f);
        rc = ferror(f) ? -errno : *n > DOTENV_MAX ? -EFBIG : 0;
    }
    fclose(f);
    if (rc < 0) {
        mr__free(*text);
        *text = NULL;
    }
    return rc;
}

static int offer_dotenv(struct settings *settings, const char *path, struct mr_server_error *err)
{
    char *text;
    size_t n = 0;
    int rc = path ? read_text(path, &text, &n) : 0;

    if (!path) {
        return 0;
    }
    if (rc < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, rc, "cannot read %s: %s", path,
                                mr_strerror(rc));
    }
    rc = text ? mr__settings_offer_dotenv(settings, text, n, path) : 0;
    mr__free(text);
    return rc < 0 ? fail_memory(err) : 0;
}

/* The config file is named by the other sources and is a source itself, so settings are
 * resolved once without it to learn where it is. */
static int offer_config(struct startup *s, const struct mr_server_options *opts,
                        struct mr_server_error *err)
{
    const struct settings_values *v = mr__settings_values(s->settings);
    struct config_options how = {.environment = opts->environment,
                                 .cpu_ns = v->script_load_cpu_ns,
                                 .memory_bytes = v->script_memory};
    struct script_error why = {.text = ""};
    int rc;

    if (!v->config || !*v->config) {
        return 0;
    }
    rc = mr__config_read(&s->config, &how, v->config, &why);
    if (rc < 0) {
        return rc == -ENOMEM && !*why.text
                   ? fail_memory(err)
                   : mr__startup_fail(err, MR_SERVER_EXIT_USAGE, rc, "%s", why.text);
    }
    for (size_t i = 0; i < mr__config_setting_count(s->config); i++) {
        struct config_setting set;
        mr__config_setting(s->config, i, &set);
        if (mr__settings_offer(s->settings, MR_SETTING_CONFIG, set.key, set.value, set.n,
                               set.place) < 0) {
            return fail_memory(err);
        }
    }
    return 0;
}

int mr__startup_read(struct startup *s, const struct mr_server_options *opts,
                     struct mr_server_error *err)
{
    int rc;

    *s = (struct startup){.settings = mr__settings_create()};
    if (!s->settings) {
        return fail_memory(err);
    }
    rc = offer_sets(s->settings, opts, err);
    if (rc == 0 && mr__settings_offer_environment(s->settings, opts->environment) < 0) {
        rc = fail_memory(err);
    }
    if (rc == 0) {
        rc = offer_dotenv(s->settings, opts->dotenv, err);
    }
    if (rc == 0) {
        rc = resolve(s->settings, err);
    }
    if (rc == 0) {
        rc = offer_config(s, opts, err);
    }
    if (rc == 0 && s->config) {
        rc = resolve(s->settings, err);
    }
    if (rc < 0) {
        mr__startup_deinit(s);
    }
    return rc;
}

void mr__startup_deinit(struct startup *s)
{
    mr__config_unref(s->config);
    mr__settings_destroy(s->settings);
    *s = (struct startup){.settings = NULL};
}

void mr__startup_each_warning(const struct startup *s, void (*say)(void *user, const char *text),
                              void *user)
{
    for (size_t i = 0; i < mr__settings_message_count(s->settings); i++) {
        const struct settings_message *m = mr__settings_message(s->settings, i);
        if (!m->is_error) {
            say(user, m->text);
        }
    }
}

/* ---- policies ---------------------------------------------------------------------------- */

struct loaded {
    int rc;
    struct script_error why;
    bool is_done;
};

static void on_loaded(void *user, int rc, const struct script_error *err)
{
    struct loaded *l = user;

    l->is_done = true;
    l->rc = rc;
    l->why = *err;
}

int mr__startup_load_policies(struct policies **out, const struct startup *s,
                              const struct mr_server_options *opts, struct log *log,
                              struct mr_server_error *err)
{
    const struct settings_values *v = mr__settings_values(s->settings);
    struct loaded l = {.rc = 0};
    struct policies_options how = {.log = log};
    struct policies_load load = {
        .first = opts->policies,
        .n_first = opts->n_policies,
        .list = v->policies,
        .config = s->config,
        .settings = s->settings,
        .cpu_ns = v->script_cpu_ns,
        .load_cpu_ns = v->script_load_cpu_ns,
        .wait_ns = v->script_wait_ns,
        .memory_bytes = v->script_memory,
        .done = on_loaded,
        .user = &l,
    };

    if (getrandom(&how.seed, sizeof how.seed, GRND_NONBLOCK) < 0) {
        how.seed = 0; /* math.random is no secret; a start does not wait for entropy */
    }
    if (mr__policies_create(out, &how) < 0) {
        return fail_memory(err);
    }
    mr__policies_load(*out, &load);
    if (l.rc < 0) {
        mr__policies_destroy(*out);
        *out = NULL;
        return l.rc == -ENOMEM && !*l.why.text
                   ? fail_memory(err)
                   : mr__startup_fail(err, MR_SERVER_EXIT_USAGE, l.rc, "%s", l.why.text);
    }
    return 0;
}
