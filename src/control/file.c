/* SPDX-License-Identifier: MIT */
/*
 * See file.h. A job belongs to the thread that works on it from uv_queue_work() until
 * on_worked(), in which the loop takes it back; what was cancelled meanwhile is freed
 * there without a word, so nobody ever waits for a disk.
 */
#include "control/file.h"

#include "base/alloc.h"
#include "base/beneath.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_BYTES = 4096,
};

struct job {
    struct job *next, **link;
    struct files *owner; /* NULL: it is gone */
    uint64_t id;
    uv_work_t work;
    void (*done)(void *arg, const struct host_file *file); /* NULL: cancelled */
    void *arg;
    enum beneath_way way;
    size_t max_bytes;
    int rc;
    char *text;
    size_t n;
    char folder[PATH_BYTES], path[PATH_BYTES];
    char message[PATH_BYTES + 128];
};

struct files {
    uv_loop_t *loop;
    uv_timer_t later; /* tells what is refused */
    struct job *jobs; /* at work */
    struct job *refused;
    unsigned running;
    enum beneath_way way;
    uint64_t last_id;
};

/* ---- in a thread ------------------------------------------------------------------------- */

/* The size is asked for first, but a file may grow while it is read: one byte more than
 * allowed is what tells. */
static int read_all(struct job *j, int fd)
{
    struct stat st;
    size_t cap;

    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    if (S_ISDIR(st.st_mode)) {
        return -EISDIR;
    }
    if (!S_ISREG(st.st_mode)) {
        return -ENOTSUP;
    }
    if ((uint64_t)st.st_size > j->max_bytes) {
        return -EFBIG;
    }
    cap = (size_t)st.st_size + 1;
    j->text = mr__alloc(cap, 1);
    while (j->text) {
        ssize_t n = read(fd, j->text + j->n, cap - j->n);
        if (n < 0) {
            return -errno;
        }
        if (n == 0) {
            return 0;
        }
        j->n += (size_t)n;
        if (j->n > j->max_bytes) {
            return -EFBIG;
        }
        if (j->n == cap) {
            char *more = mr__realloc(j->text, cap * 2, 1);
            if (!more) {
                return -ENOMEM;
            }
            j->text = more;
            cap *= 2;
        }
    }
    return -ENOMEM;
}

static void work(uv_work_t *w)
{
    struct job *j = w->data;
    int fd = mr__beneath_open(j->folder, j->path, j->way);

    j->rc = fd;
    if (fd >= 0) {
        j->rc = read_all(j, fd);
        close(fd);
    }
}

/* ---- on the loop ------------------------------------------------------------------------- */

static const char *reason_of(int rc)
{
    switch (rc) {
    case -EXDEV:
    case -ELOOP:
        return "it leads out of its folder";
    case -ENOTSUP:
        return "it is no regular file";
    case -EFBIG:
        return "it is too large";
    case -EBUSY:
        return "too many files are being read";
    case -EINVAL:
        return "this is no path";
    case -ENOMEM:
        return "out of memory";
    default:
        return uv_strerror(rc);
    }
}

static void unlink_job(struct job *j)
{
    *j->link = j->next;
    if (j->next) {
        j->next->link = j->link;
    }
}

static void link_job(struct job **list, struct job *j)
{
    j->next = *list;
    j->link = list;
    if (*list) {
        (*list)->link = &j->next;
    }
    *list = j;
}

static void free_job(struct job *j)
{
    mr__free(j->text);
    mr__free(j);
}

/* Tells the result of a job that is in no list any more. */
static void finish(struct job *j)
{
    struct host_file file = {.rc = j->rc, .text = {j->text ? j->text : "", j->n}};

    if (j->rc < 0) {
        file.text = (struct str){"", 0};
        snprintf(j->message, sizeof j->message, "%.*s: %s", PATH_BYTES, j->path, reason_of(j->rc));
        for (char *at = j->message; *at; at++) {
            *at = (unsigned char)*at < 0x20 || *at == 0x7f ? '?' : *at;
        }
        file.message = j->message;
    }
    j->done(j->arg, &file);
    free_job(j);
}

static void on_worked(uv_work_t *w, int status)
{
    struct job *j = w->data;

    (void)status; /* one that is cancelled has no done */
    if (j->owner) {
        unlink_job(j);
        j->owner->running--;
    }
    if (j->done) {
        finish(j);
    } else {
        free_job(j);
    }
}

static void on_later(uv_timer_t *timer)
{
    struct files *f = timer->data;
    uint64_t last = f->last_id;
    struct job *j;

    do {
        for (j = f->refused; j && j->id > last; j = j->next) {
        }
        if (j) {
            unlink_job(j);
            finish(j);
        }
    } while (j);
}

static int copy_path(char to[PATH_BYTES], struct str from)
{
    if (from.n >= PATH_BYTES) {
        return -ENAMETOOLONG;
    }
    if (from.n > 0) {
        memcpy(to, from.s, from.n);
    }
    to[from.n] = 0;
    return strlen(to) == from.n ? 0 : -EINVAL;
}

uint64_t mr__file_start(struct files *f, struct str folder, struct str path, size_t max_bytes,
                        void (*done)(void *arg, const struct host_file *file), void *arg)
{
    struct job *j = mr__alloc(1, sizeof *j);
    int rc;

    if (!j) {
        return 0;
    }
    j->owner = f;
    j->id = ++f->last_id;
    j->done = done;
    j->arg = arg;
    j->way = f->way;
    j->max_bytes = max_bytes;
    j->work.data = j;
    rc = copy_path(j->folder, folder);
    rc = rc < 0 ? rc : path.n == 0 ? -EINVAL : copy_path(j->path, path);
    rc = rc == 0 && f->running >= MR_FILE_MOST ? -EBUSY : rc;
    if (rc == 0) {
        rc = uv_queue_work(f->loop, &j->work, work, on_worked); /* from here on it is a thread's */
    }
    if (rc < 0) {
        j->rc = rc;
        link_job(&f->refused, j);
        uv_timer_start(&f->later, on_later, 0, 0);
        return j->id;
    }
    f->running++;
    link_job(&f->jobs, j);
    return j->id;
}

void mr__file_cancel(struct files *f, uint64_t job)
{
    for (struct job *j = f->refused; j; j = j->next) {
        if (j->id == job) {
            unlink_job(j);
            free_job(j);
            return;
        }
    }
    for (struct job *j = f->jobs; j; j = j->next) {
        if (j->id == job) {
            j->done = NULL;
            (void)uv_cancel((uv_req_t *)&j->work); /* where no thread has begun it */
            return;
        }
    }
}

int mr__file_create(struct files **out, uv_loop_t *loop, enum beneath_way way)
{
    struct files *f = mr__alloc(1, sizeof *f);

    if (!f) {
        return -ENOMEM;
    }
    f->loop = loop;
    f->way = way;
    uv_timer_init(loop, &f->later);
    f->later.data = f;
    *out = f;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    mr__free(handle->data);
}

void mr__file_destroy(struct files *f)
{
    if (!f) {
        return;
    }
    while (f->refused) {
        mr__file_cancel(f, f->refused->id);
    }
    for (struct job *j = f->jobs; j; j = j->next) {
        j->done = NULL;
        j->owner = NULL;
        (void)uv_cancel((uv_req_t *)&j->work);
    }
    uv_close((uv_handle_t *)&f->later, on_closed);
}
