/* SPDX-License-Identifier: MIT */
/* See host.h. */
#include "control/host.h"

#include "base/alloc.h"
#include "control/fetch.h"
#include "control/file.h"
#include "control/host_udp.h"
#include "service/list.h"

#include <errno.h>

/* A lookup that somebody waits for. */
struct asking {
    struct list link;
    uint64_t id;
    struct mr_lookup_request req;
    void (*done)(void *arg, const struct mr_lookup_answer *a);
    void *arg;
};

struct host {
    struct mr_lookup *lookup;
    struct fetch *fetch;
    struct files *files;
    struct host_udps *udps;
    struct list askings;
    uint64_t last_asking;
};

/* ---- http and files ---------------------------------------------------------------------- */

static host_job start_http(void *user, const struct host_http_request *req,
                           void (*done)(void *arg, const struct host_http_response *r), void *arg)
{
    return mr__host_job(HOST_HTTP, mr__fetch_start(((struct host *)user)->fetch, req, done, arg));
}

static host_job start_read(void *user, struct str folder, struct str path, size_t max_bytes,
                           void (*done)(void *arg, const struct host_file *f), void *arg)
{
    struct host *h = user;

    return mr__host_job(HOST_READ, mr__file_start(h->files, folder, path, max_bytes, done, arg));
}

/* ---- names ------------------------------------------------------------------------------- */

static void free_asking(struct asking *a)
{
    mr__list_remove(&a->link);
    mr__free(a);
}

static void on_answer(struct mr_lookup_request *req, const struct mr_lookup_answer *answer)
{
    struct asking *a = req->user;
    void (*done)(void *arg, const struct mr_lookup_answer *a) = a->done;
    void *arg = a->arg;

    free_asking(a);
    done(arg, answer);
}

host_job mr__host_start_lookup(void *user, struct str name, int family, enum mr_lookup_op op,
                               unsigned flags,
                               void (*done)(void *arg, const struct mr_lookup_answer *a), void *arg)
{
    struct host *h = user;
    struct asking *a = mr__alloc(1, sizeof *a);

    if (!a) {
        return 0;
    }
    a->id = ++h->last_asking;
    a->done = done;
    a->arg = arg;
    a->req.done = on_answer;
    a->req.user = a;
    mr__list_push_back(&h->askings, &a->link);
    mr_lookup_start(h->lookup, &a->req, name.s, name.n, family, op, flags);
    return mr__host_job(HOST_LOOKUP, a->id);
}

static void cancel_lookup(struct host *h, uint64_t id)
{
    for (struct list *i = h->askings.next; i != &h->askings; i = i->next) {
        struct asking *a = MR_CONTAINER(i, struct asking, link);

        if (a->id == id) {
            mr_lookup_cancel(&a->req);
            free_asking(a);
            return;
        }
    }
}

/* ---- UDP endpoints ----------------------------------------------------------------------- */

static int open_udp(void *user, const struct host_udp_options *opts, struct host_udp **out)
{
    return mr__host_udp_open(((struct host *)user)->udps, opts, out);
}

static host_job bind_udp(void *user, struct host_udp *u, struct str host, uint16_t port,
                         host_udp_done done, void *arg)
{
    (void)user;
    return mr__host_job(HOST_UDP, mr__host_udp_bind(u, host, port, done, arg));
}

static host_job connect_udp(void *user, struct host_udp *u, struct str host, uint16_t port,
                            host_udp_done done, void *arg)
{
    (void)user;
    return mr__host_job(HOST_UDP, mr__host_udp_connect(u, host, port, done, arg));
}

static host_job send_udp(void *user, struct host_udp *u, struct str data, struct str host,
                         uint16_t port, host_udp_done done, void *arg)
{
    (void)user;
    return mr__host_job(HOST_UDP, mr__host_udp_send(u, data, host, port, done, arg));
}

static void set_udp_flags(void *user, struct host_udp *u, unsigned flags)
{
    (void)user;
    mr__host_udp_flags(u, flags);
}

static int find_udp_address(void *user, struct host_udp *u, struct mr_addr *out)
{
    (void)user;
    return mr__host_udp_address(u, out);
}

static int answer_udp(void *user, struct host_udp *u, uint64_t ticket,
                      const struct mr_lookup_answer *a)
{
    (void)user;
    return mr__host_udp_answer(u, ticket, a);
}

static void close_udp(void *user, struct host_udp *u)
{
    (void)user;
    mr__host_udp_close(u);
}

/* ---- all --------------------------------------------------------------------------------- */

void mr__host_cancel(void *user, host_job job)
{
    struct host *h = user;
    uint64_t id = job >> HOST_KIND_BITS;

    switch ((enum host_kind)(job & ((1u << HOST_KIND_BITS) - 1))) {
    case HOST_HTTP:
        mr__fetch_cancel(h->fetch, id);
        break;
    case HOST_READ:
        mr__file_cancel(h->files, id);
        break;
    case HOST_LOOKUP:
        cancel_lookup(h, id);
        break;
    case HOST_UDP:
        mr__host_udp_cancel(h->udps, id);
        break;
    default:
        break;
    }
}

struct script_host mr__host_script(struct host *h)
{
    return (struct script_host){.user = h,
                                .http = start_http,
                                .read = start_read,
                                .lookup = mr__host_start_lookup,
                                .cancel = mr__host_cancel,
                                .udp_open = open_udp,
                                .udp_bind = bind_udp,
                                .udp_connect = connect_udp,
                                .udp_send = send_udp,
                                .udp_flags = set_udp_flags,
                                .udp_address = find_udp_address,
                                .udp_answer = answer_udp,
                                .udp_close = close_udp};
}

struct mr_lookup *mr__host_lookup(const struct host *h)
{
    return h->lookup;
}

/* ---- life -------------------------------------------------------------------------------- */

int mr__host_create(struct host **out, const struct host_options *opts)
{
    struct host *h = mr__alloc(1, sizeof *h);
    struct mr_lookup_options lookup;
    struct fetch_options fetch = {.loop = opts->loop, .roots = opts->roots};
    int rc;

    if (!h) {
        return -ENOMEM;
    }
    mr__list_init(&h->askings);
    mr_lookup_options_init(&lookup, sizeof lookup);
    lookup.loop = opts->loop;
    lookup.log = opts->log;
    rc = mr_lookup_create(&h->lookup, &lookup);
    if (rc == 0) {
        fetch.lookup = h->lookup;
        rc = mr__fetch_create(&h->fetch, &fetch);
    }
    if (rc == 0) {
        rc = mr__file_create(&h->files, opts->loop, MR_BENEATH_BEST);
    }
    if (rc == 0) {
        rc = mr__host_udp_create(&h->udps, opts->loop, h->lookup);
    }
    if (rc < 0) {
        mr__host_destroy(h);
        return rc;
    }
    *out = h;
    return 0;
}

void mr__host_destroy(struct host *h)
{
    if (!h) {
        return;
    }
    mr__fetch_destroy(h->fetch);
    mr__file_destroy(h->files);
    mr__host_udp_destroy(h->udps);
    while (!mr__list_is_empty(&h->askings)) {
        struct asking *a = MR_CONTAINER(h->askings.next, struct asking, link);

        mr_lookup_cancel(&a->req);
        free_asking(a);
    }
    mr_lookup_destroy(h->lookup);
    mr__free(h);
}
