/* SPDX-License-Identifier: MIT */
/*
 * See host_udp.h. A job lives from the call until its endpoint tells it or is closed; one
 * that was cancelled stays until then without anybody to tell.
 */
#include "control/host_udp.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>

enum {
    /* Of all policies; each has a descriptor. A reload opens its own before the old ones close. */
    ENDPOINTS_MAX = 128,
    SENDS_MAX = 1024,         /* that wait in one endpoint */
    SEND_BYTES_MAX = 1 << 20, /* their payload */
    BUCKETS = 256,
};

struct job {
    struct job *next, **link; /* of its endpoint */
    struct job *bucket;
    struct host_udp *udp;
    uint64_t id;
    host_udp_done done; /* NULL: cancelled */
    void *arg;
    int refused; /* a negative errno: told by the timer */
};

struct host_udp {
    struct host_udp *next, **link;
    struct host_udps *owner;
    struct mr_udp *udp;
    struct host_udp_options opts;
    struct job *jobs;
};

struct host_udps {
    uv_loop_t *loop;
    struct mr_lookup *lookup;
    uv_timer_t later; /* tells what was refused */
    struct host_udp *endpoints;
    unsigned n_endpoints;
    unsigned parts; /* endpoints whose memory is still there, and the timer */
    uint64_t last_id;
    struct job *jobs[BUCKETS];
};

static void release(struct host_udps *h)
{
    if (--h->parts == 0) {
        mr__free(h);
    }
}

/* ---- jobs --------------------------------------------------------------------------------- */

static struct job **find(struct host_udps *h, uint64_t id)
{
    struct job **at = &h->jobs[id % BUCKETS];

    while (*at && (*at)->id != id) {
        at = &(*at)->bucket;
    }
    return at;
}

static void end_job(struct job *j)
{
    *find(j->udp->owner, j->id) = j->bucket;
    *j->link = j->next;
    if (j->next) {
        j->next->link = j->link;
    }
    mr__free(j);
}

static void tell(struct job *j, const struct host_udp_result *r)
{
    host_udp_done done = j->done;
    void *arg = j->arg;

    end_job(j);
    if (done) {
        done(arg, r);
    }
}

static void on_done(void *arg, const struct mr_udp_result *r)
{
    tell(arg, &(struct host_udp_result){.rc = r->rc, .code = r->code, .message = r->message});
}

static struct job *find_refused(const struct host_udps *h)
{
    for (struct host_udp *u = h->endpoints; u; u = u->next) {
        for (struct job *j = u->jobs; j; j = j->next) {
            if (j->refused < 0) {
                return j;
            }
        }
    }
    return NULL;
}

/* One at a time, and looked for again: whoever is told may close its endpoint. */
static void on_later(uv_timer_t *timer)
{
    struct host_udps *h = timer->data;
    struct job *j = find_refused(h);
    int rc;

    if (!j) {
        return;
    }
    uv_timer_start(timer, on_later, 0, 0);
    rc = j->refused;
    tell(j, &(struct host_udp_result){
                .rc = rc, .code = mr_udp_code(rc), .message = mr_udp_reason(rc)});
}

static struct job *make_job(struct host_udp *u, host_udp_done done, void *arg)
{
    struct job *j = mr__alloc(1, sizeof *j), **at;

    if (!j) {
        return NULL;
    }
    j->udp = u;
    j->id = ++u->owner->last_id;
    j->done = done;
    j->arg = arg;
    j->link = &u->jobs;
    j->next = u->jobs;
    if (j->next) {
        j->next->link = &j->next;
    }
    u->jobs = j;
    at = &u->owner->jobs[j->id % BUCKETS];
    j->bucket = *at;
    *at = j;
    return j;
}

/* The id to give: what the endpoint refused is told on the loop's next turn. */
static uint64_t started(struct job *j, int rc)
{
    if (rc < 0) {
        j->refused = rc;
        uv_timer_start(&j->udp->owner->later, on_later, 0, 0);
    }
    return j->id;
}

void mr__host_udp_cancel(struct host_udps *h, uint64_t job)
{
    struct job *j = *find(h, job);

    if (j) {
        j->done = NULL;
    }
}

/* ---- what policies call ------------------------------------------------------------------- */

uint64_t mr__host_udp_bind(struct host_udp *u, struct str host, uint16_t port, host_udp_done done,
                           void *arg)
{
    struct job *j = make_job(u, done, arg);

    return j ? started(j, mr_udp_bind(u->udp, host.s, host.n, port, on_done, j)) : 0;
}

uint64_t mr__host_udp_connect(struct host_udp *u, struct str host, uint16_t port,
                              host_udp_done done, void *arg)
{
    struct job *j = make_job(u, done, arg);

    return j ? started(j, mr_udp_connect(u->udp, host.s, host.n, port, on_done, j)) : 0;
}

uint64_t mr__host_udp_send(struct host_udp *u, struct str data, struct str host, uint16_t port,
                           host_udp_done done, void *arg)
{
    struct job *j = make_job(u, done, arg);

    return j ? started(j, mr_udp_send(u->udp, data.s, data.n, host.s, host.n, port, on_done, j))
             : 0;
}

void mr__host_udp_flags(struct host_udp *u, unsigned flags)
{
    mr_udp_set_lookup_flags(u->udp, flags);
}

int mr__host_udp_address(struct host_udp *u, struct mr_addr *out)
{
    return mr_udp_address(u->udp, out);
}

int mr__host_udp_answer(struct host_udp *u, uint64_t ticket, const struct mr_lookup_answer *a)
{
    return mr_lookup_answer(u->owner->lookup, ticket, a);
}

/* ---- life --------------------------------------------------------------------------------- */

static void on_message(void *user, const struct mr_addr *from, const struct mr_addr *local,
                       const void *data, size_t n)
{
    struct host_udp *u = user;

    (void)local;
    u->opts.message(u->opts.arg, from, data, n);
}

static void ask_policy(void *user, mr_lookup_ticket ticket, const char *host, size_t n, int family,
                       enum mr_lookup_op op)
{
    struct host_udp *u = user;

    u->opts.lookup(u->opts.arg, ticket, (struct str){.s = host, .n = n}, family, op);
}

static void forget_question(void *user, mr_lookup_ticket ticket)
{
    struct host_udp *u = user;

    if (u->opts.lookup_forget) {
        u->opts.lookup_forget(u->opts.arg, ticket);
    }
}

int mr__host_udp_open(struct host_udps *h, const struct host_udp_options *opts,
                      struct host_udp **out)
{
    struct mr_udp_options udp;
    struct host_udp *u;
    int rc;

    if (h->n_endpoints == ENDPOINTS_MAX) {
        return -EMFILE;
    }
    u = mr__alloc(1, sizeof *u);
    if (!u) {
        return -ENOMEM;
    }
    u->owner = h;
    u->opts = *opts;
    mr_udp_options_init(&udp, sizeof udp);
    udp.loop = h->loop;
    udp.family = opts->family;
    udp.user = u;
    udp.on_message = opts->message ? on_message : NULL;
    udp.lookup_flags = opts->flags;
    udp.queue_max = SENDS_MAX;
    udp.queue_bytes_max = SEND_BYTES_MAX;
    if (opts->has_lookup) {
        udp.lookup =
            (struct mr_lookup_custom){.user = u, .ask = ask_policy, .forget = forget_question};
    }
    rc = mr_udp_create(&u->udp, h->lookup, &udp);
    if (rc < 0) {
        mr__free(u);
        return rc;
    }
    u->link = &h->endpoints;
    u->next = h->endpoints;
    if (u->next) {
        u->next->link = &u->next;
    }
    h->endpoints = u;
    h->n_endpoints++;
    h->parts++;
    *out = u;
    return 0;
}

static void on_closed(void *arg)
{
    struct host_udp *u = arg;

    release(u->owner);
    mr__free(u);
}

/* What asks for a lookup is forgotten by mr_udp_close(), so u stays until that is over. */
void mr__host_udp_close(struct host_udp *u)
{
    *u->link = u->next;
    if (u->next) {
        u->next->link = u->link;
    }
    u->owner->n_endpoints--;
    while (u->jobs) {
        end_job(u->jobs);
    }
    mr_udp_close(u->udp, on_closed, u);
}

int mr__host_udp_create(struct host_udps **out, uv_loop_t *loop, struct mr_lookup *lookup)
{
    struct host_udps *h = mr__alloc(1, sizeof *h);

    if (!h) {
        return -ENOMEM;
    }
    h->loop = loop;
    h->lookup = lookup;
    uv_timer_init(loop, &h->later);
    h->later.data = h;
    h->parts = 1;
    *out = h;
    return 0;
}

static void on_timer_closed(uv_handle_t *timer)
{
    release(timer->data);
}

void mr__host_udp_destroy(struct host_udps *h)
{
    if (!h) {
        return;
    }
    while (h->endpoints) {
        mr__host_udp_close(h->endpoints);
    }
    uv_close((uv_handle_t *)&h->later, on_timer_closed);
}
