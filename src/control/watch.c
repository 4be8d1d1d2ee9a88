/* SPDX-License-Identifier: MIT */
/*
 * See watch.h. A new set keeps the folders that stay, so that nothing which happens
 * meanwhile is missed. Start reading at on_event() and mr__watch_set().
 */
#include "control/watch.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct folder {
    uv_fs_event_t event;
    struct watch *owner; /* NULL: it is closing */
    bool is_kept;
    char path[]; /* without its last slash; "." for a name alone */
};

struct watch {
    uv_loop_t *loop;
    void (*on_change)(void *user);
    void *user;
    uv_timer_t quiet;
    uint64_t since_ms; /* of the first change not yet told; 0: none */
    struct folder *folders[MR_WATCH_FOLDERS_MAX];
    size_t n_folders;
    char **names; /* of the files, without their folders */
    size_t n_names;
};

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* "..data" is the link by which Kubernetes changes a whole folder at once. */
static bool is_ours(const struct watch *w, const char *name)
{
    size_t n = name ? strlen(name) : 0;

    if (!name || strcmp(name, "..data") == 0 || (n > 4 && strcmp(name + n - 4, ".lua") == 0)) {
        return true;
    }
    for (size_t i = 0; i < w->n_names; i++) {
        if (strcmp(w->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void on_quiet(uv_timer_t *timer)
{
    struct watch *w = timer->data;

    w->since_ms = 0;
    w->on_change(w->user);
}

static void on_event(uv_fs_event_t *event, const char *name, int events, int status)
{
    struct folder *f = event->data;
    struct watch *w = f->owner;
    uint64_t now = uv_now(event->loop), waited;

    (void)events;
    if (!w || (status >= 0 && !is_ours(w, name))) {
        return;
    }
    w->since_ms = w->since_ms ? w->since_ms : now;
    waited = now - w->since_ms;
    uv_timer_start(&w->quiet, on_quiet,
                   waited + MR_WATCH_QUIET_MS < MR_WATCH_LONGEST_MS ? MR_WATCH_QUIET_MS
                   : waited < MR_WATCH_LONGEST_MS                   ? MR_WATCH_LONGEST_MS - waited
                                                                    : 0,
                   0);
}

static void on_folder_closed(uv_handle_t *handle)
{
    mr__free(handle->data);
}

static void close_folder(struct folder *f)
{
    f->owner = NULL;
    uv_close((uv_handle_t *)&f->event, on_folder_closed);
}

static struct folder *find_folder(const struct watch *w, const char *path, size_t n)
{
    for (size_t i = 0; i < w->n_folders; i++) {
        if (strncmp(w->folders[i]->path, path, n) == 0 && w->folders[i]->path[n] == 0) {
            return w->folders[i];
        }
    }
    return NULL;
}

/* Watches the folder of a file, unless it is watched. */
static int add_folder(struct watch *w, const char *path)
{
    size_t n = (size_t)(name_of(path) - path);
    struct folder *f;
    int rc;

    n = n > 1 ? n - 1 : n; /* the root keeps its slash */
    path = n > 0 ? path : ".";
    n = n > 0 ? n : 1;
    f = find_folder(w, path, n);
    if (f) {
        f->is_kept = true;
        return 0;
    }
    if (w->n_folders == MR_WATCH_FOLDERS_MAX) {
        return -ENOSPC;
    }
    f = mr__alloc(1, sizeof *f + n + 1);
    if (!f) {
        return -ENOMEM;
    }
    memcpy(f->path, path, n);
    f->owner = w;
    f->is_kept = true;
    rc = uv_fs_event_init(w->loop, &f->event);
    if (rc < 0) {
        mr__free(f);
        return rc;
    }
    f->event.data = f;
    rc = uv_fs_event_start(&f->event, on_event, f->path, 0);
    if (rc < 0) {
        close_folder(f);
        return rc;
    }
    w->folders[w->n_folders++] = f;
    return 0;
}

static void forget_names(struct watch *w)
{
    for (size_t i = 0; i < w->n_names; i++) {
        mr__free(w->names[i]);
    }
    mr__free(w->names);
    w->names = NULL;
    w->n_names = 0;
}

static int add_name(struct watch *w, const char *path)
{
    const char *name = name_of(path);
    char *copy = mr__strndup(name, strlen(name));

    if (!copy) {
        return -ENOMEM;
    }
    w->names[w->n_names++] = copy;
    return 0;
}

int mr__watch_set(struct watch *w, const char *const *paths, size_t n)
{
    size_t kept = 0;
    int rc = 0;

    forget_names(w);
    w->names = n > 0 ? mr__alloc(n, sizeof *w->names) : NULL;
    for (size_t i = 0; i < w->n_folders; i++) {
        w->folders[i]->is_kept = false;
    }
    for (size_t i = 0; i < n; i++) {
        int added = add_folder(w, paths[i]);
        int named = w->names ? add_name(w, paths[i]) : -ENOMEM;
        rc = rc < 0 ? rc : added < 0 ? added : named;
    }
    for (size_t i = 0; i < w->n_folders; i++) {
        if (w->folders[i]->is_kept) {
            w->folders[kept++] = w->folders[i];
        } else {
            close_folder(w->folders[i]);
        }
    }
    w->n_folders = kept;
    if (n == 0) {
        uv_timer_stop(&w->quiet);
        w->since_ms = 0;
    }
    return rc;
}

int mr__watch_create(struct watch **out, uv_loop_t *loop, void (*on_change)(void *user), void *user)
{
    struct watch *w = mr__alloc(1, sizeof *w);

    if (!w) {
        return -ENOMEM;
    }
    w->loop = loop;
    w->on_change = on_change;
    w->user = user;
    uv_timer_init(loop, &w->quiet);
    w->quiet.data = w;
    *out = w;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    mr__free(handle->data);
}

void mr__watch_destroy(struct watch *w)
{
    if (w) {
        (void)mr__watch_set(w, NULL, 0);
        uv_close((uv_handle_t *)&w->quiet, on_closed);
    }
}
