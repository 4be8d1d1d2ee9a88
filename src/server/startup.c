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
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            *at = ' '; /* one line, and nothing that a terminal would obey */
        }
    }
    return rc;
}

static int fail_memory(struct mr_server_error *err)
{
    return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, -ENOMEM, "out of memory");
}

/* ---- sources ----------------------------------------------------------------------------- */

/* O_NONBLOCK: to open a pipe must not wait for somebody who writes to it. /dev/null is fine. */
static int open_text(const char *path, FILE **out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rc = fd < 0 ? -errno : 0;
    struct stat st;

    if (rc == 0 && fstat(fd, &st) < 0) {
        rc = -errno;
    } else if (rc == 0 && !S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode)) {
        rc = S_ISDIR(st.st_mode) ? -EISDIR : -ENOTSUP;
    }
    *out = rc == 0 ? fdopen(fd, "r") : NULL;
    rc = rc == 0 && !*out ? -errno : rc;
    if (rc < 0 && fd >= 0) {
        close(fd);
    }
    return rc;
}

/* 0 also when there is no such file. *text is for mr__free(). */
static int read_text(const char *path, char **text, size_t *n)
{
    FILE *f;
    int rc = open_text(path, &f);

    *text = NULL;
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
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

static int read_dotenv(struct startup_sources *s, struct mr_server_error *err)
{
    int rc = s->dotenv ? read_text(s->dotenv, &s->dotenv_text, &s->dotenv_n) : 0;

    return rc < 0 ? mr__startup_fail(err, MR_SERVER_EXIT_USAGE, rc, "cannot read %s: %s", s->dotenv,
                                     rc == -ENOTSUP ? "not a regular file" : mr_strerror(rc))
                  : 0;
}

/* A list and its texts in one block; NULL: out of memory. */
static const char **copy_list(const char *const *list, size_t n)
{
    size_t bytes = (n + 1) * sizeof *list;
    const char **copy;
    char *text;

    for (size_t i = 0; i < n; i++) {
        bytes += strlen(list[i]) + 1;
    }
    copy = mr__alloc(1, bytes);
    if (!copy) {
        return NULL;
    }
    text = (char *)(copy + n + 1);
    for (size_t i = 0; i < n; i++) {
        copy[i] = text;
        text = stpcpy(text, list[i]) + 1;
    }
    return copy;
}

static size_t count(char *const *list)
{
    size_t n = 0;

    while (list && list[n]) {
        n++;
    }
    return n;
}

int mr__startup_sources_init(struct startup_sources *out, const struct mr_server_options *opts,
                             struct mr_server_error *err)
{
    const char *paths[] = {opts->config ? opts->config : "", opts->dotenv ? opts->dotenv : ""};
    const char **copies = copy_list(paths, 2);
    int rc;

    *out = (struct startup_sources){.n_policies = opts->n_policies, .n_sets = opts->n_sets};
    out->policies = copy_list(opts->policies, opts->n_policies);
    out->sets = copy_list(opts->sets, opts->n_sets);
    out->environment =
        copy_list((const char *const *)(void *)opts->environment, count(opts->environment));
    out->paths = copies;
    if (!copies || !out->policies || !out->sets || !out->environment) {
        mr__startup_sources_deinit(out);
        return fail_memory(err);
    }
    out->config = opts->config ? copies[0] : NULL;
    out->dotenv = opts->dotenv ? copies[1] : NULL;
    rc = read_dotenv(out, err);
    if (rc < 0) {
        mr__startup_sources_deinit(out);
    }
    return rc;
}

void mr__startup_sources_deinit(struct startup_sources *s)
{
    mr__free(s->paths);
    mr__free(s->policies);
    mr__free(s->sets);
    mr__free(s->environment);
    mr__free(s->dotenv_text);
    *s = (struct startup_sources){.n_sets = 0};
}

const char *mr__startup_variable(const struct startup_sources *s, const char *name)
{
    size_t n = strlen(name);

    for (const char **at = s->environment; at && *at; at++) {
        if (strncmp(*at, name, n) == 0 && (*at)[n] == '=') {
            return *at + n + 1;
        }
    }
    return NULL;
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

static int offer_sets(struct settings *settings, const struct startup_sources *from,
                      struct mr_server_error *err)
{
    for (size_t i = 0; i < from->n_sets; i++) {
        const char *text = from->sets[i];
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
    if (from->config && mr__settings_offer(settings, MR_SETTING_COMMAND_LINE, "config",
                                           from->config, strlen(from->config), NULL) < 0) {
        return fail_memory(err);
    }
    return 0;
}

/* The config file is named by the other sources and is a source itself, so settings are
 * resolved once without it to learn where it is. */
static int read_config(struct startup *s, const struct startup_sources *from,
                       struct mr_server_error *err)
{
    const struct settings_values *v = mr__settings_values(s->settings);
    struct config_options how = {.environment = (char *const *)(void *)from->environment,
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
    return 0;
}

static int offer_config(struct startup *s, struct mr_server_error *err)
{
    for (size_t i = 0; i < mr__config_setting_count(s->config); i++) {
        struct config_setting set;
        mr__config_setting(s->config, i, &set);
        if (mr__settings_offer(s->settings, MR_SETTING_CONFIG, set.key, set.value, set.n,
                               set.place) < 0) {
            return fail_memory(err);
        }
    }
    int rc = resolve(s->settings, err);
    if (rc == 0) {
        struct script_error why;
        rc = mr__config_check_ports(s->config, mr__settings_values(s->settings), &why);
        if (rc < 0) {
            return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, rc, "%s", why.text);
        }
    }
    return rc;
}

/* Everything but the config file. */
static int read_sources(struct startup *s, const struct startup_sources *from,
                        struct mr_server_error *err)
{
    int rc;

    *s = (struct startup){.settings = mr__settings_create()};
    if (!s->settings) {
        return fail_memory(err);
    }
    rc = offer_sets(s->settings, from, err);
    if (rc == 0 &&
        mr__settings_offer_environment(s->settings, (char *const *)(void *)from->environment) < 0) {
        rc = fail_memory(err);
    }
    if (rc == 0 && from->dotenv_text &&
        mr__settings_offer_dotenv(s->settings, from->dotenv_text, from->dotenv_n, from->dotenv) <
            0) {
        rc = fail_memory(err);
    }
    return rc == 0 ? resolve(s->settings, err) : rc;
}

int mr__startup_read(struct startup *s, const struct startup_sources *from,
                     struct mr_server_error *err)
{
    int rc = read_sources(s, from, err);

    if (rc == 0) {
        rc = read_config(s, from, err);
    }
    if (rc == 0 && s->config) {
        rc = offer_config(s, err);
    }
    if (rc < 0) {
        mr__startup_deinit(s);
    }
    return rc;
}

int mr__startup_resolve(struct startup *s, const struct startup_sources *from,
                        struct config *config, struct mr_server_error *err)
{
    int rc = read_sources(s, from, err);

    if (rc == 0 && config) {
        s->config = mr__config_ref(config);
        rc = offer_config(s, err);
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

/* ---- control socket ---------------------------------------------------------------------- */

int mr__startup_control_path(char path[MR_CONTROL_PATH_BYTES], const struct settings_values *v,
                             const struct startup_sources *from)
{
    const char *runtime = getuid() == 0 ? "/run" : mr__startup_variable(from, "XDG_RUNTIME_DIR");
    bool is_usual = strcmp(v->control, "auto") == 0;
    int n;

    if (*v->control == 0 || (is_usual && (!runtime || !*runtime))) {
        return -ENOENT;
    }
    n = is_usual ? snprintf(path, MR_CONTROL_PATH_BYTES, "%s/moonrelay/control.sock", runtime)
                 : snprintf(path, MR_CONTROL_PATH_BYTES, "%s", v->control);
    return n >= MR_CONTROL_PATH_BYTES ? -ENAMETOOLONG : !is_usual;
}

/* ---- policies ---------------------------------------------------------------------------- */

void mr__startup_plan(struct policies_load *out, const struct startup *s,
                      const struct startup_sources *from)
{
    const struct settings_values *v = mr__settings_values(s->settings);

    *out = (struct policies_load){
        .first = from->policies,
        .n_first = from->n_policies,
        .list = v->policies,
        .config = s->config,
        .settings = s->settings,
        .cpu_ns = v->script_cpu_ns,
        .load_cpu_ns = v->script_load_cpu_ns,
        .wait_ns = v->script_wait_ns,
        .memory_bytes = v->script_memory,
    };
}
