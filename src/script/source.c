/* SPDX-License-Identifier: MIT */
/*
 * Finds the policies of the chain and reads their text. Control thread (or before there
 * is one). Start reading at mr__sources_collect().
 */
#include "script/source.h"

#include "base/alloc.h"
#include "base/beneath.h"
#include "base/suggest.h"
#include "script/config_entry.h"
#include "script/embedded.h"

#include "service/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NAME_MAX_BYTES = 32, /* of a policy: it is a label of metrics and a word in every log line */
    CHAIN_MAX = 256,
    SHIPPED_MAX = 32, /* policies inside the program */
};

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads what the descriptor is at, which must be a regular file. */
static int read_all(int fd, char **text, size_t *n)
{
    struct stat st;
    size_t len = 0;
    char *buf;

    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode)) {
        return S_ISDIR(st.st_mode) ? -EISDIR : -ENOTSUP;
    }
    if (st.st_size > SOURCE_BYTES_MAX) {
        return -EFBIG;
    }
    buf = mr__alloc(SOURCE_BYTES_MAX + 2, 1); /* it may grow meanwhile; unused pages cost nothing */
    if (!buf) {
        return -ENOMEM;
    }
    while (len <= SOURCE_BYTES_MAX) {
        ssize_t got = read(fd, buf + len, SOURCE_BYTES_MAX + 1 - len);

        if (got < 0 && errno != EINTR) {
            int rc = -errno;
            mr__free(buf);
            return rc;
        }
        if (got == 0) {
            break;
        }
        len += got > 0 ? (size_t)got : 0;
    }
    *text = len <= SOURCE_BYTES_MAX ? mr__strndup(buf, len) : NULL;
    mr__free(buf);
    *n = len;
    return *text ? 0 : len > SOURCE_BYTES_MAX ? -EFBIG : -ENOMEM;
}

static const char *why_of(int rc)
{
    switch (rc) {
    case -EFBIG:
        return "larger than 1 MiB";
    case -ENOTSUP:
        return "not a regular file";
    case -EXDEV:
    case -ELOOP:
        return "it leads out of the policy's folder";
    default:
        return strerror(-rc);
    }
}

/* O_NONBLOCK: to open a pipe must not wait for somebody who writes to it. */
int mr__source_read(const char *path, char **text, size_t *n, const char **why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rc = fd < 0 ? -errno : read_all(fd, text, n);

    if (fd >= 0) {
        close(fd);
    }
    if (rc != 0) {
        *why = why_of(rc);
    }
    return rc;
}

int mr__source_read_below(const char *folder, const char *path, char **text, size_t *n,
                          const char **why)
{
    int fd = mr__beneath_open(folder, path, MR_BENEATH_BEST), rc = fd;

    if (fd >= 0) {
        rc = read_all(fd, text, n);
        close(fd);
    }
    if (rc != 0) {
        *why = why_of(rc);
    }
    return rc;
}

char *mr__source_path(const char *folder, const char *path)
{
    size_t n = path[0] == '/' ? 0 : strlen(folder), m;
    char *joined;

    while (n > 0 && strncmp(path, "./", 2) == 0) {
        path += 2;
    }
    m = strlen(path);
    joined = mr__alloc(n + m + 1, 1);

    if (joined) {
        memcpy(joined, folder, n);
        memcpy(joined + n, path, m);
    }
    return joined;
}

/* ---- the chain ------------------------------------------------------------------------------- */

/* One wish: what to load, who asked for it. */
struct wish {
    const char *what;
    size_t n;
    const char *folder; /* of relative paths */
    const char *place;  /* "moonrelay.lua:7", "--policy" or "setting policies" */
    const struct config_entry *entry;
};

__attribute__((format(printf, 3, 4))) static int complain(struct script_error *err, int rc,
                                                          const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return rc;
}

/* Names of the shipped policies, as "audit", "bans", ...; the last is NULL. They are `names` with
 * ".lua" cut off, which `text` holds. */
static void list_shipped(const char *names[SHIPPED_MAX + 1], char text[SHIPPED_MAX][32])
{
    size_t n = 0;

    for (const struct embedded_file *f = mr__embedded_files(); f->name && n < SHIPPED_MAX; f++) {
        if (strncmp(f->name, "policies/", 9) == 0) {
            snprintf(text[n], sizeof text[n], "%.*s", (int)strlen(f->name + 9) - 4, f->name + 9);
            names[n] = text[n];
            n++;
        }
    }
    names[n] = NULL;
}

static int complain_unknown(struct script_error *err, const struct wish *w, const char *what)
{
    const char *names[SHIPPED_MAX + 1], *near;
    char text[SHIPPED_MAX][32], all[SHIPPED_MAX * 34] = "";
    size_t n = strlen(what);

    list_shipped(names, text);
    near = mr__suggest_name(what, n, names);
    if (n > 4 && strcmp(what + n - 4, ".lua") == 0) {
        return complain(err, -EINVAL,
                        "%s: no shipped policy %s (a file is named with a slash: ./%s)", w->place,
                        what, what);
    }
    if (near) {
        return complain(err, -EINVAL, "%s: no shipped policy %s; did you mean %s?", w->place, what,
                        near);
    }
    for (size_t i = 0; names[i]; i++) {
        strcat(strcat(all, i > 0 ? ", " : ""), names[i]);
    }
    return complain(err, -EINVAL,
                    "%s: no shipped policy '%s' (there are %s; a file is named with a slash: "
                    "./%s.lua)",
                    w->place, what, all, what);
}

static int find_shipped(struct policy_source *s, const struct wish *w, const char *what,
                        struct script_error *err)
{
    char file[128];
    const struct embedded_file *f;

    snprintf(file, sizeof file, "policies/%.100s.lua", what);
    f = mr__embedded_find(file);
    if (!f) {
        return complain_unknown(err, w, what);
    }
    s->is_shipped = true;
    s->origin = mr__strndup("shipped", 7);
    s->text = mr__strndup((const char *)f->data, f->size);
    s->n = f->size;
    s->chunk = mr__alloc(strlen(file) + 2, 1);
    if (!s->origin || !s->text || !s->chunk) {
        return complain(err, -ENOMEM, "%s: out of memory", w->place);
    }
    s->chunk[0] = '@';
    memcpy(s->chunk + 1, file, strlen(file));
    return 0;
}

static int find_file(struct policy_source *s, const struct wish *w, const char *what,
                     struct script_error *err)
{
    const char *why;
    int rc;

    s->origin = mr__source_path(w->folder, what);
    s->chunk = s->origin ? mr__alloc(strlen(s->origin) + 2, 1) : NULL;
    if (!s->chunk) {
        return complain(err, -ENOMEM, "%s: out of memory", w->place);
    }
    s->chunk[0] = '@';
    memcpy(s->chunk + 1, s->origin, strlen(s->origin));
    if (w->entry && w->entry->text) {
        s->text = mr__strndup(w->entry->text, w->entry->n_text);
        s->n = w->entry->n_text;
        return s->text ? 0 : complain(err, -ENOMEM, "%s: out of memory", w->place);
    }
    rc = mr__source_read(s->origin, &s->text, &s->n, &why);
    return rc == 0 ? 0 : complain(err, rc, "%s: policy %s: %s", w->place, s->origin, why);
}

static bool is_good_name(const char *name)
{
    size_t n = strlen(name);

    return n >= 1 && n <= NAME_MAX_BYTES &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* `name =`, else the file's name without .lua. */
static int name_source(struct policy_source *s, const struct wish *w, const char *what,
                       struct script_error *err)
{
    const char *slash = strrchr(what, '/'), *base = slash ? slash + 1 : what;
    size_t n = strlen(base);

    if (w->entry && w->entry->name) {
        base = w->entry->name;
        n = strlen(base);
    } else if (n > 4 && strcmp(base + n - 4, ".lua") == 0) {
        n -= 4;
    }
    s->name = mr__strndup(base, n);
    if (!s->name) {
        return complain(err, -ENOMEM, "%s: out of memory", w->place);
    }
    if (!is_good_name(s->name)) {
        return complain(err, -EINVAL,
                        "%s: '%.64s' cannot name a policy (1 to 32 of A-Z a-z 0-9 . _ - are "
                        "expected; in the config file name = gives it one)",
                        w->place, s->name);
    }
    return 0;
}

static int check_unique(const struct policy_sources *out, const struct wish *w,
                        struct script_error *err)
{
    const struct policy_source *s = &out->items[out->n - 1];

    for (size_t i = 0; i + 1 < out->n; i++) {
        if (strcmp(out->items[i].name, s->name) == 0) {
            return complain(err, -EINVAL,
                            "%s: two policies are named %s; name = gives one of them another in "
                            "the config file",
                            w->place, s->name);
        }
    }
    return 0;
}

static int add(struct policy_sources *out, const struct wish *w, struct script_error *err)
{
    struct policy_source *grown = mr__realloc(out->items, out->n + 1, sizeof *grown), *s;
    char *what;
    int rc;

    if (!grown) {
        return complain(err, -ENOMEM, "%s: out of memory", w->place);
    }
    out->items = grown;
    if (out->n == CHAIN_MAX) {
        return complain(err, -EINVAL, "%s: more than %d policies", w->place, CHAIN_MAX);
    }
    s = &grown[out->n++];
    *s = (struct policy_source){.entry = w->entry};
    what = mr__strndup(w->what, w->n);
    if (!what) {
        return complain(err, -ENOMEM, "%s: out of memory", w->place);
    }
    if (w->entry) {
        s->is_shadow = w->entry->is_shadow;
        s->is_skipped_on_error = w->entry->is_skipped_on_error;
    }
    rc = name_source(s, w, what, err);
    if (rc == 0) {
        rc = strchr(what, '/') ? find_file(s, w, what, err) : find_shipped(s, w, what, err);
    }
    mr__free(what);
    return rc == 0 ? check_unique(out, w, err) : rc;
}

/* "a, ./b.lua" */
static int add_list(struct policy_sources *out, const char *list, struct script_error *err)
{
    const char *p = list;

    for (;;) {
        size_t n = strcspn(p, ","), end = n;
        struct wish w = {.folder = "", .place = "setting policies"};

        w.what = p + strspn(p, " \t");
        while (end > 0 && (p[end - 1] == ' ' || p[end - 1] == '\t')) {
            end--;
        }
        if (w.what >= p + end) {
            return complain(err, -EINVAL,
                            "setting policies: '%.200s' has an empty item (names and paths, "
                            "separated by commas, are expected)",
                            list);
        }
        w.n = (size_t)(p + end - w.what);
        int rc = add(out, &w, err);
        if (rc != 0 || p[n] == '\0') {
            return rc;
        }
        p += n + 1;
    }
}

static int add_entries(struct policy_sources *out, const struct config *c, struct script_error *err)
{
    for (size_t i = 0; i < mr__config_entry_count(c); i++) {
        const struct config_entry *e = mr__config_entry(c, i);
        struct wish w = {.what = e->what,
                         .n = strlen(e->what),
                         .folder = mr__config_folder(c),
                         .place = e->place,
                         .entry = e};
        int rc = add(out, &w, err);

        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int add_all(struct policy_sources *out, const struct policies_load *load,
                   struct script_error *err)
{
    struct wish dynamic = {.what = "dynamic", .n = 7, .folder = "", .place = "default chain"};

    for (size_t i = 0; i < load->n_first; i++) {
        struct wish w = {
            .what = load->first[i], .n = strlen(load->first[i]), .folder = "", .place = "--policy"};
        int rc = add(out, &w, err);

        if (rc != 0) {
            return rc;
        }
    }
    if (load->list && load->list[0] != '\0') {
        return add_list(out, load->list, err);
    }
    if (load->config && mr__config_has_policies(load->config)) {
        return add_entries(out, load->config, err);
    }
    return add(out, &dynamic, err);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* For `relay.settings`: the text of what was in force when this was loaded. */
static int copy_settings(struct policy_sources *s, const struct settings *settings)
{
    size_t n = settings ? mr__settings_row_count() : 0;

    s->settings = mr__alloc(n + 1, sizeof *s->settings);
    if (!s->settings) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        struct source_setting *set = &s->settings[s->n_settings++];
        struct settings_row row;

        mr__settings_row(settings, i, &row);
        set->key = mr__strndup(row.key, strlen(row.key));
        set->value = mr__strndup(row.value, strlen(row.value));
        if (!set->key || !set->value) {
            return -ENOMEM;
        }
    }
    return 0;
}

int mr__sources_collect(struct policy_sources **out, const struct policies_load *load,
                        struct script_error *err)
{
    struct policy_sources *s = mr__alloc(1, sizeof *s);
    int rc;

    if (!s) {
        return complain(err, -ENOMEM, "policies: out of memory");
    }
    s->refs = 1;
    s->config = mr__config_ref(load->config);
    s->cpu_ns = load->cpu_ns ? load->cpu_ns : 10000000;
    s->load_cpu_ns = load->load_cpu_ns ? load->load_cpu_ns : 1000000000;
    s->wait_ns = load->wait_ns ? load->wait_ns : 2000000000;
    s->memory_bytes = load->memory_bytes ? load->memory_bytes : 32u << 20;
    rc = copy_settings(s, load->settings);
    rc = rc != 0 ? complain(err, rc, "policies: out of memory") : add_all(s, load, err);
    if (rc != 0) {
        mr__sources_unref(s);
        return rc;
    }
    *out = s;
    return 0;
}

static bool is_same_text(const char *a, size_t n_a, const char *b, size_t n_b)
{
    return n_a == n_b && memcmp(a, b, n_a) == 0;
}

/* Flags and tables of settings are the config's, which is compared as a whole. */
static bool is_same_policy(const struct policy_source *a, const struct policy_source *b)
{
    if (strcmp(a->name, b->name) != 0 || strcmp(a->chunk, b->chunk) != 0 ||
        !is_same_text(a->text, a->n, b->text, b->n) || a->n_required != b->n_required) {
        return false;
    }
    for (size_t i = 0; i < a->n_required; i++) {
        const struct required_file *f = &a->required[i], *g = &b->required[i];

        if (strcmp(f->name, g->name) != 0 || !is_same_text(f->text, f->n, g->text, g->n)) {
            return false;
        }
    }
    return true;
}

bool mr__sources_are_same(const struct policy_sources *a, const struct policy_sources *b)
{
    if (a->n != b->n || !mr__config_is_same(a->config, b->config)) {
        return false;
    }
    for (size_t i = 0; i < a->n; i++) {
        if (!is_same_policy(&a->items[i], &b->items[i])) {
            return false;
        }
    }
    return true;
}

struct policy_sources *mr__sources_ref(struct policy_sources *s)
{
    s->refs++;
    return s;
}

static void free_source(struct policy_source *s)
{
    for (size_t i = 0; i < s->n_required; i++) {
        mr__free(s->required[i].name);
        mr__free(s->required[i].chunk);
        mr__free(s->required[i].text);
    }
    mr__free(s->required);
    mr__free(s->name);
    mr__free(s->origin);
    mr__free(s->chunk);
    mr__free(s->text);
}

void mr__sources_unref(struct policy_sources *s)
{
    if (!s || --s->refs > 0) {
        return;
    }
    for (size_t i = 0; i < s->n; i++) {
        free_source(&s->items[i]);
    }
    for (size_t i = 0; i < s->n_settings; i++) {
        mr__free(s->settings[i].key);
        mr__free(s->settings[i].value);
    }
    mr__free(s->items);
    mr__free(s->settings);
    mr__config_unref(s->config);
    mr__free(s);
}

const struct required_file *mr__source_add_required(struct policy_source *s, const char *name,
                                                    const char *path, char *text, size_t n)
{
    struct required_file *grown = mr__realloc(s->required, s->n_required + 1, sizeof *grown), *f;

    if (!grown) {
        mr__free(text);
        return NULL;
    }
    s->required = grown;
    f = &grown[s->n_required++];
    *f = (struct required_file){.text = text, .n = n};
    f->name = mr__strndup(name, strlen(name));
    f->chunk = mr__alloc(strlen(path) + 2, 1);
    if (!f->name || !f->chunk) {
        s->n_required--;
        mr__free(f->name);
        mr__free(f->chunk);
        mr__free(text);
        return NULL;
    }
    f->chunk[0] = '@';
    memcpy(f->chunk + 1, path, strlen(path));
    return f;
}
