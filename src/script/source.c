/* SPDX-License-Identifier: MIT */
/*
 * Finds the policies of the chain and reads their text. Control thread (or before there
 * is one). Start reading at mr__sources_collect().
 */
#include "script/source.h"

#include "base/alloc.h"
#include "base/suggest.h"
#include "script/config_entry.h"
#include "script/embedded.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    NAME_MAX_BYTES = 32, /* of a policy: it is a label of metrics and a word in every log line */
    CHAIN_MAX = 256,
    SHIPPED_MAX = 32, /* policies inside the program */
};

/* ---- files ----------------------------------------------------------------------------------- */

static int read_all(FILE *f, char **text, size_t *n)
{
    size_t cap = 16384, len = 0;
    char *buf = mr__realloc(NULL, cap + 1, 1);

    while (buf) {
        size_t got = fread(buf + len, 1, cap - len, f);

        len += got;
        if (got == 0 || len > SOURCE_BYTES_MAX) {
            break;
        }
        if (len == cap) {
            char *grown = mr__realloc(buf, cap * 2 + 1, 1);

            if (!grown) {
                mr__free(buf);
                return -ENOMEM;
            }
            buf = grown;
            cap *= 2;
        }
    }
    if (!buf) {
        return -ENOMEM;
    }
    int rc = ferror(f) ? -errno : len > SOURCE_BYTES_MAX ? -EFBIG : 0;
    if (rc != 0) {
        mr__free(buf);
        return rc;
    }
    buf[len] = '\0';
    *text = buf;
    *n = len;
    return 0;
}

int mr__source_read(const char *path, char **text, size_t *n, const char **why)
{
    FILE *f = fopen(path, "rbe");
    int rc;

    if (!f) {
        rc = -errno;
    } else {
        errno = EIO;
        rc = read_all(f, text, n);
        fclose(f);
    }
    if (rc != 0) {
        *why = rc == -EFBIG ? "larger than 1 MiB" : strerror(-rc);
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

int mr__sources_collect(struct policy_sources *out, const struct policies_load *load,
                        struct script_error *err)
{
    int rc;

    *out = (struct policy_sources){0};
    rc = add_all(out, load, err);
    if (rc != 0) {
        mr__sources_deinit(out);
    }
    return rc;
}

void mr__sources_deinit(struct policy_sources *s)
{
    for (size_t i = 0; i < s->n; i++) {
        mr__free(s->items[i].name);
        mr__free(s->items[i].origin);
        mr__free(s->items[i].chunk);
        mr__free(s->items[i].text);
    }
    mr__free(s->items);
    *s = (struct policy_sources){0};
}
