/* SPDX-License-Identifier: MIT */
/*
 * See log_writer.h. The ring holds whole lines only, so that what is dropped is always a
 * line and the report about it never lands inside another one.
 *
 *      push: any thread          ring             writer thread
 *      line ---- lock, copy ---> [....] --------> chunk --poll, write--> fd
 *                no room: dropped++                no reader: stays in poll
 */
#include "control/log_writer.h"

#include "base/alloc.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 4096, /* PIPE_BUF: so much a pipe that polls writable takes without waiting */
    REPORT_BYTES = 256, /* the line about dropped ones */
    PAGE_BYTES = 4096,
};

struct log_writer {
    pthread_mutex_t lock; /* guards all below but fd, format, chunk */
    pthread_cond_t work;  /* something was pushed, or stop */
    pthread_cond_t idle;  /* written has moved */
    char *ring;
    size_t size, head, used;
    uint64_t pushed, written; /* bytes since creation; equal: nothing is waiting */
    uint64_t dropped, reported;
    bool is_stopping;
    pthread_t thread;
    int fd;
    int give_up;  /* an eventfd: readable once nobody waits for the rest any more */
    bool is_pipe; /* the writer thread's own, like chunk */
    enum log_format format;
    char chunk[CHUNK_BYTES]; /* the writer thread's own */
};

/* ---- ring; the lock is held -------------------------------------------------------------- */

static void put(struct log_writer *w, const char *data, size_t n)
{
    size_t at = (w->head + w->used) % w->size;
    size_t first = n < w->size - at ? n : w->size - at;

    memcpy(w->ring + at, data, first);
    memcpy(w->ring, data + first, n - first);
    w->used += n;
    w->pushed += n;
}

static size_t take(struct log_writer *w, char *out, size_t cap)
{
    size_t n = w->used < cap ? w->used : cap;
    size_t first = n < w->size - w->head ? n : w->size - w->head;

    memcpy(out, w->ring + w->head, first);
    memcpy(out + first, w->ring, n - first);
    w->used -= n;
    /* An empty ring starts over, so that a quiet log keeps to the first pages. */
    w->head = w->used == 0 ? 0 : (w->head + n) % w->size;
    return n;
}

/* Puts the line about dropped ones where they are missing, when there is room for it. */
static void report_dropped(struct log_writer *w)
{
    char line[REPORT_BYTES];
    struct timespec now;
    struct log_field count = LOG_UINT("lines", w->dropped - w->reported);
    size_t n;

    if (w->dropped == w->reported || w->size - w->used < sizeof line) {
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    n = mr__log_format(line, sizeof line, w->format,
                       (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000, MR_LOG_WARN,
                       "log", "lines dropped: whoever reads the log is too slow", &count, 1);
    w->reported = w->dropped;
    put(w, line, n);
}

void mr__log_writer_push(void *user, enum log_level level, const char *line, size_t n)
{
    struct log_writer *w = user;

    (void)level;
    pthread_mutex_lock(&w->lock);
    report_dropped(w);
    if (n > w->size - w->used || w->dropped != w->reported) {
        w->dropped++;
    } else {
        put(w, line, n);
        pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
}

/* ---- the writer thread ------------------------------------------------------------------- */

static uint64_t count_lines(const char *data, size_t n)
{
    uint64_t lines = 0;

    for (size_t i = 0; i < n; i++) {
        lines += data[i] == '\n';
    }
    return lines;
}

/* poll() says that a pipe takes PIPE_BUF bytes, but whoever else writes to it may be faster;
 * RWF_NOWAIT closes that gap where the kernel has it for pipes. */
static ssize_t write_some(struct log_writer *w, const char *data, size_t n)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = n};

    if (w->is_pipe) {
        ssize_t k = pwritev2(w->fd, &iov, 1, -1, RWF_NOWAIT);
        if (k >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)) {
            return k;
        }
        w->is_pipe = false;
    }
    return write(w->fd, data, n);
}

/*
 * Returns the lines that were lost. An error other than "not now" costs this chunk and no
 * more: a disk has room again, a FIFO gets a new reader, and a thread that gave up for good
 * would leave a daemon that is silent for ever.
 */
static uint64_t write_chunk(struct log_writer *w, size_t n)
{
    size_t done = 0;
    int error = 0;

    while (done < n && error == 0) {
        struct pollfd p[] = {{.fd = w->fd, .events = POLLOUT},
                             {.fd = w->give_up, .events = POLLIN}};
        ssize_t k = poll(p, 2, -1);

        if (k > 0 && p[1].revents != 0) {
            error = ECANCELED;
        } else {
            k = k < 0 ? -1 : write_some(w, w->chunk + done, n - done);
            done += k > 0 ? (size_t)k : 0;
            error = k < 0 && errno != EINTR && errno != EAGAIN ? errno : 0;
        }
    }
    return error ? count_lines(w->chunk + done, n - done) : 0;
}

static void *write_ring(void *arg)
{
    struct log_writer *w = arg;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        size_t n;
        uint64_t lost;

        while (w->used == 0 && !w->is_stopping) {
            pthread_cond_wait(&w->work, &w->lock);
        }
        if (w->used == 0) {
            break;
        }
        n = take(w, w->chunk, sizeof w->chunk);
        pthread_mutex_unlock(&w->lock);
        lost = write_chunk(w, n);
        pthread_mutex_lock(&w->lock);
        w->written += n;
        if (lost > 0) {
            /* Not reported in the log, which is what does not work. */
            w->dropped += lost;
            w->reported += lost;
        }
        report_dropped(w);
        pthread_cond_broadcast(&w->idle);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- life -------------------------------------------------------------------------------- */

/* Signals are for the program's own threads, and SIGPIPE is an error code to us. */
static int start_thread(struct log_writer *w)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&w->thread, NULL, write_ring, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

static int init_sync(struct log_writer *w)
{
    pthread_condattr_t monotonic;

    w->give_up = eventfd(0, EFD_CLOEXEC);
    if (w->give_up < 0) {
        return -errno;
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->work, NULL);
    pthread_cond_init(&w->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return 0;
}

static bool is_pipe(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

int mr__log_writer_create(struct log_writer **out, int fd, enum log_format format,
                          size_t ring_bytes)
{
    struct log_writer *w = mr__alloc(1, sizeof *w);
    int rc = -ENOMEM;

    if (!w) {
        return -ENOMEM;
    }
    w->fd = fd;
    w->is_pipe = is_pipe(fd);
    w->format = format;
    w->size = (ring_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    w->ring = mr__map(w->size);
    if (!w->ring) {
        goto free_writer;
    }
    rc = init_sync(w);
    if (rc < 0) {
        goto unmap_ring;
    }
    rc = start_thread(w);
    if (rc < 0) {
        goto close_give_up;
    }
    *out = w;
    return 0;

close_give_up:
    close(w->give_up);
unmap_ring:
    mr__unmap(w->ring, w->size);
free_writer:
    mr__free(w);
    return rc;
}

bool mr__log_writer_flush(struct log_writer *w, int timeout_ms)
{
    struct timespec until;
    uint64_t goal;
    bool is_written;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;

    pthread_mutex_lock(&w->lock);
    report_dropped(w);
    pthread_cond_signal(&w->work);
    goal = w->pushed;
    while (w->written < goal && pthread_cond_timedwait(&w->idle, &w->lock, &until) == 0) {
    }
    is_written = w->written >= goal;
    pthread_mutex_unlock(&w->lock);
    return is_written;
}

void mr__log_writer_destroy(struct log_writer *w, int timeout_ms)
{
    bool is_flushed;

    if (!w) {
        return;
    }
    is_flushed = mr__log_writer_flush(w, timeout_ms);
    pthread_mutex_lock(&w->lock);
    w->is_stopping = true;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    if (!is_flushed) {
        eventfd_write(w->give_up, 1);
    }
    pthread_join(w->thread, NULL);
    close(w->give_up);
    pthread_cond_destroy(&w->work);
    pthread_cond_destroy(&w->idle);
    pthread_mutex_destroy(&w->lock);
    mr__unmap(w->ring, w->size);
    mr__free(w);
}

uint64_t mr__log_writer_dropped(struct log_writer *w)
{
    uint64_t n;

    pthread_mutex_lock(&w->lock);
    n = w->dropped;
    pthread_mutex_unlock(&w->lock);
    return n;
}
