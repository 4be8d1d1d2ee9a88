/* SPDX-License-Identifier: MIT */
/*
 * See resolver.h. What threads and loop share is the pool: it has a lock, counts those
 * that use it and is freed by the last. A job is the loop's and, while a thread is at it,
 * that thread's too; which of the two frees it is said by its state, under the lock.
 */
#include "control/resolver.h"

#include "base/alloc.h"
#include "control/lookup.h"
#include "io/socket.h"
#include "service/list.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

enum {
    THREADS = 4,
    QUEUE = 256,
    TIMEOUT_MS = 5000,
    IDLE_MS = 10000,
    /* getaddrinfo(3) puts up to 64 KiB of answers on it and calls modules of anybody's. */
    STACK_BYTES = 512 * 1024,
};
static const uint64_t ms_ns = 1000000;

enum job_state { QUEUED, RUNNING, FINISHED };

struct resolver_job {
    struct list link; /* in pool.queue or pool.finished; lock */
    enum job_state state;
    bool is_abandoned; /* the thread that is at it frees it; lock */
    struct resolver_result result;
    /* The loop's alone; a thread that is at an abandoned job does not look at them. */
    struct resolver *resolver;
    struct list waiting;
    void (*done)(void *arg, const struct resolver_result *result);
    void *arg;
    uint64_t asked_ns, until_ns;
    /* Never changed. */
    struct mr_resolver whom;
    uint8_t family;
    char host[];
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work;
    uv_async_t *wake; /* NULL: the loop is gone; it is closed with the lock held */
    struct list queue, finished;
    unsigned n_queued, n_running, n_idle, n_threads;
    unsigned users; /* threads, and the resolver */
    uint64_t idle_ns;
};

struct resolver {
    uv_loop_t *loop;
    uv_async_t wake;     /* unreferenced: the timer is what keeps the loop alive */
    uv_timer_t timer;    /* active exactly while a job waits */
    struct list waiting; /* by until_ns, since all have the same limit */
    struct pool *pool;
    uint32_t threads, queue;
    uint64_t timeout_ns;
    size_t stack_bytes;
    unsigned handles;
};

/* ---- the pool ---------------------------------------------------------------------------- */

static struct pool *pool_create(uint64_t idle_ns)
{
    struct pool *p = mr__alloc(1, sizeof *p);
    pthread_condattr_t monotonic;

    if (!p) {
        return NULL;
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    mr__list_init(&p->queue);
    mr__list_init(&p->finished);
    p->users = 1;
    p->idle_ns = idle_ns;
    return p;
}

/* Unlocks it, and frees it when nobody uses it any more. */
static void pool_leave(struct pool *p)
{
    bool is_last = --p->users == 0;

    pthread_mutex_unlock(&p->lock);
    if (is_last) {
        pthread_cond_destroy(&p->work);
        pthread_mutex_destroy(&p->lock);
        mr__free(p);
    }
}

/* ---- in a thread ------------------------------------------------------------------------- */

static bool read_address(struct mr_addr *out, const struct sockaddr *from, socklen_t n)
{
    union socket_addr sa;

    memset(&sa, 0, sizeof sa);
    if (!from || n > sizeof sa || n < sizeof from->sa_family) {
        return false;
    }
    memcpy(&sa, from, n);
    mr__socket_addr_read(out, &sa);
    out->port = 0;
    return out->family != 0;
}

/* The first of the family: they are in the order in which they should be tried. */
static void choose(struct resolver_result *result, const struct addrinfo *list, int family)
{
    struct mr_addr a = {.family = 0}, other = {.family = 0};

    for (const struct addrinfo *i = list; i; i = i->ai_next) {
        if (!read_address(&a, i->ai_addr, i->ai_addrlen)) {
            continue;
        }
        if (family == 0 || a.family == family) {
            result->addr = a;
            return;
        }
        other = a;
    }
    result->addr = other;
    result->rc = other.family != 0 ? -EAFNOSUPPORT : -ENOENT;
    result->why = other.family != 0 ? "it has no address of that family" : "it has no address";
}

static int errno_of(int rc)
{
    switch (rc) {
    case EAI_NONAME:
    case EAI_NODATA:
        return -ENOENT;
    case EAI_ADDRFAMILY:
        return -EAFNOSUPPORT;
    case EAI_MEMORY:
        return -ENOMEM;
    default:
        return -EIO;
    }
}

/* No AI_ADDRCONFIG: whether this machine has a route just now is for whoever sends to find out. */
static void resolve(struct resolver_job *j)
{
    struct addrinfo hints = {.ai_family = j->family == 4   ? AF_INET
                                          : j->family == 6 ? AF_INET6
                                                           : AF_UNSPEC,
                             .ai_socktype = SOCK_DGRAM}; /* each address once */
    struct addrinfo *list = NULL;
    int rc = j->whom.getaddrinfo(j->whom.user, j->host, &hints, &list);

    if (rc != 0) {
        j->result.rc = errno_of(rc);
        j->result.why = gai_strerror(rc);
        return;
    }
    choose(&j->result, list, j->family);
    if (list) {
        j->whom.freeaddrinfo(j->whom.user, list);
    }
}

/* False: it had nothing to do for too long. */
static bool await_work(struct pool *p)
{
    uint64_t end = uv_hrtime() + p->idle_ns;
    struct timespec until = {.tv_sec = (time_t)(end / 1000000000u),
                             .tv_nsec = (long)(end % 1000000000u)};
    int rc = 0;

    p->n_idle++;
    while (p->wake && mr__list_is_empty(&p->queue) && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&p->work, &p->lock, &until);
    }
    p->n_idle--;
    return !mr__list_is_empty(&p->queue);
}

static void *run(void *arg)
{
    struct pool *p = arg;

    pthread_mutex_lock(&p->lock);
    while (await_work(p)) {
        struct resolver_job *j = MR_CONTAINER(p->queue.next, struct resolver_job, link);

        mr__list_remove(&j->link);
        p->n_queued--;
        p->n_running++;
        j->state = RUNNING;
        pthread_mutex_unlock(&p->lock);
        resolve(j);
        pthread_mutex_lock(&p->lock);
        p->n_running--;
        if (j->is_abandoned) {
            mr__free(j);
            continue;
        }
        j->state = FINISHED;
        mr__list_push_back(&p->finished, &j->link);
        uv_async_send(p->wake); /* while a job is not abandoned there is a loop */
    }
    p->n_threads--;
    pool_leave(p);
    return NULL;
}

/* With the lock held. Signals are for the threads that know what to do with them. */
static int start_thread(const struct resolver *r)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int rc = pthread_attr_init(&attr);

    if (rc != 0) {
        return -rc;
    }
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    rc = pthread_attr_setstacksize(&attr, r->stack_bytes);
    if (rc == 0) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        rc = pthread_create(&thread, &attr, run, r->pool);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&attr);
    if (rc == 0) {
        r->pool->n_threads++;
        r->pool->users++;
    }
    return -rc;
}

/* ---- on the loop ------------------------------------------------------------------------- */

/* Takes it away from the loop: whatever happens to it is told nobody. */
static void forget(struct resolver_job *j)
{
    struct resolver *r = j->resolver;

    mr__list_remove(&j->waiting);
    if (mr__list_is_empty(&r->waiting)) {
        uv_timer_stop(&r->timer);
    }
}

static void tell(struct resolver_job *j)
{
    forget(j);
    j->result.took_ns = uv_hrtime() - j->asked_ns;
    j->result.host = j->host;
    j->done(j->arg, &j->result);
    mr__free(j);
}

static void take_finished(struct resolver *r)
{
    struct list finished;

    pthread_mutex_lock(&r->pool->lock);
    mr__list_take_all(&finished, &r->pool->finished);
    pthread_mutex_unlock(&r->pool->lock);
    /* A done that cancels another one takes it out of this list. */
    while (!mr__list_is_empty(&finished)) {
        struct resolver_job *j = MR_CONTAINER(finished.next, struct resolver_job, link);

        mr__list_remove(&j->link);
        tell(j);
    }
}

static void on_wake(uv_async_t *wake)
{
    take_finished(wake->data);
}

/* With the lock held. Whether it may be freed now; else its thread does. */
static bool abandon(struct pool *p, struct resolver_job *j)
{
    if (j->state == RUNNING) {
        j->is_abandoned = true;
        return false;
    }
    p->n_queued -= j->state == QUEUED;
    mr__list_remove(&j->link);
    return true;
}

/* Nobody waits for it any more: it is freed, now or by the thread that runs it. */
static void let_go(struct resolver_job *j)
{
    struct pool *p = j->resolver->pool;
    bool is_ours;

    forget(j);
    pthread_mutex_lock(&p->lock);
    is_ours = abandon(p, j);
    pthread_mutex_unlock(&p->lock);
    if (is_ours) {
        mr__free(j);
    }
}

static void time_out(struct resolver_job *j)
{
    char host[MR_LOOKUP_HOST_MAX + 1]; /* the job may be gone when it is told */
    struct resolver_result late = {.rc = -ETIMEDOUT, .why = "no answer in time", .host = host};
    void (*done)(void *arg, const struct resolver_result *result) = j->done;
    void *arg = j->arg;

    late.took_ns = uv_hrtime() - j->asked_ns;
    memcpy(host, j->host, strlen(j->host) + 1);
    let_go(j);
    done(arg, &late);
}

static void on_timer(uv_timer_t *timer);

/* The timer counts from the loop's idea of now, which may lie behind a long callback. */
static void arm(struct resolver *r, uint64_t now)
{
    uint64_t until = MR_CONTAINER(r->waiting.next, struct resolver_job, waiting)->until_ns;

    uv_update_time(r->loop);
    uv_timer_start(&r->timer, on_timer, until <= now ? 0 : (until - now + ms_ns - 1) / ms_ns, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct resolver *r = timer->data;
    uint64_t now = uv_hrtime();

    take_finished(r); /* after a stall of the loop these are no less in time */
    while (!mr__list_is_empty(&r->waiting)) {
        struct resolver_job *j = MR_CONTAINER(r->waiting.next, struct resolver_job, waiting);

        if (j->until_ns > now) {
            arm(r, now);
            return;
        }
        time_out(j);
    }
}

/* With the lock held. */
static int enqueue(struct resolver *r, struct resolver_job *j)
{
    struct pool *p = r->pool;
    int rc;

    /* Not the queue alone: how soon a thread takes one from it is chance. */
    if (p->n_queued + p->n_running >= r->queue + r->threads) {
        return -EBUSY;
    }
    if (p->n_idle <= p->n_queued && p->n_threads < r->threads) {
        rc = start_thread(r);
        if (rc < 0) {
            return rc;
        }
    }
    mr__list_push_back(&p->queue, &j->link);
    p->n_queued++;
    pthread_cond_signal(&p->work);
    return 0;
}

int mr__resolver_start(struct resolver *r, struct resolver_job **out,
                       const struct mr_resolver *whom, const char *host, size_t n, int family,
                       void (*done)(void *arg, const struct resolver_result *result), void *arg)
{
    struct resolver_job *j = mr__alloc(1, sizeof *j + n + 1);
    int rc;

    assert(n <= MR_LOOKUP_HOST_MAX);
    if (!j) {
        return -ENOMEM;
    }
    j->resolver = r;
    j->done = done;
    j->arg = arg;
    j->whom = *whom;
    j->family = (uint8_t)family;
    j->asked_ns = uv_hrtime();
    j->until_ns = j->asked_ns + r->timeout_ns;
    memcpy(j->host, host, n);
    pthread_mutex_lock(&r->pool->lock);
    rc = enqueue(r, j);
    pthread_mutex_unlock(&r->pool->lock);
    if (rc < 0) {
        mr__free(j);
        return rc;
    }
    mr__list_push_back(&r->waiting, &j->waiting);
    if (!uv_is_active((uv_handle_t *)&r->timer)) {
        arm(r, j->asked_ns);
    }
    *out = j;
    return 0;
}

void mr__resolver_cancel(struct resolver_job *j)
{
    let_go(j);
}

const char *mr__resolver_host(const struct resolver_job *j)
{
    return j->host;
}

uint64_t mr__resolver_age_ns(const struct resolver_job *j)
{
    return uv_hrtime() - j->asked_ns;
}

/* ---- life -------------------------------------------------------------------------------- */

int mr__resolver_create(struct resolver **out, const struct resolver_options *opts)
{
    struct resolver *r = mr__alloc(1, sizeof *r);
    int rc = -ENOMEM;

    if (!r) {
        return -ENOMEM;
    }
    r->loop = opts->loop;
    r->threads = opts->threads ? opts->threads : THREADS;
    r->queue = opts->queue ? opts->queue : QUEUE;
    r->timeout_ns = (opts->timeout_ms ? opts->timeout_ms : TIMEOUT_MS) * ms_ns;
    r->stack_bytes = opts->stack_bytes ? opts->stack_bytes : STACK_BYTES;
    mr__list_init(&r->waiting);
    r->pool = pool_create((opts->idle_ms ? opts->idle_ms : IDLE_MS) * ms_ns);
    if (!r->pool) {
        goto free_resolver;
    }
    rc = uv_async_init(r->loop, &r->wake, on_wake);
    if (rc < 0) {
        goto free_pool;
    }
    uv_unref((uv_handle_t *)&r->wake);
    uv_timer_init(r->loop, &r->timer);
    r->wake.data = r->timer.data = r;
    r->handles = 2;
    r->pool->wake = &r->wake;
    *out = r;
    return 0;

free_pool:
    pthread_mutex_lock(&r->pool->lock);
    pool_leave(r->pool);
free_resolver:
    mr__free(r);
    return rc;
}

static void on_closed(uv_handle_t *handle)
{
    struct resolver *r = handle->data;

    if (--r->handles == 0) {
        mr__free(r);
    }
}

void mr__resolver_destroy(struct resolver *r)
{
    if (!r) {
        return;
    }
    while (!mr__list_is_empty(&r->waiting)) {
        mr__resolver_cancel(MR_CONTAINER(r->waiting.next, struct resolver_job, waiting));
    }
    pthread_mutex_lock(&r->pool->lock);
    r->pool->wake = NULL;
    pthread_cond_broadcast(&r->pool->work);
    pool_leave(r->pool);
    uv_close((uv_handle_t *)&r->wake, on_closed);
    uv_close((uv_handle_t *)&r->timer, on_closed);
}
