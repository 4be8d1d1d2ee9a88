/* SPDX-License-Identifier: MIT */
/*
 * The world outside of a bench: what policies ask for is queued, and the test answers
 * (bench.h). Nothing is fetched or opened. One thread.
 */
#include "module/bench.h"

#include "base/alloc.h"

#include <errno.h>

static struct errand *add_errand(struct bench *b, void *arg)
{
    struct errand *e = mr__alloc(1, sizeof *e);

    if (e) {
        *e = (struct errand){.next = b->errands, .job = ++b->last_job, .arg = arg};
        b->errands = e;
        b->news++;
    }
    return e;
}

static struct errand **find_errand(struct bench *b, host_job job)
{
    struct errand **at = &b->errands;

    while (*at && (*at)->job != job) {
        at = &(*at)->next;
    }
    return at;
}

static host_job on_http(void *user, const struct host_http_request *req,
                        void (*done)(void *arg, const struct host_http_response *r), void *arg)
{
    struct bench *b = user;
    struct errand *e = add_errand(b, arg);
    struct happening *h;

    if (!e) {
        return 0;
    }
    e->http_done = done;
    h = mr__happening_add(&b->happenings, HAPPENED_HTTP);
    mr__happening_text(&b->happenings, h, 0, req->method);
    mr__happening_text(&b->happenings, h, 1, req->url);
    mr__happening_text(&b->happenings, h, 2,
                       (struct str){req->body.n > 0 ? req->body.s : "", req->body.n});
    for (size_t i = 0; h && i < req->n_headers; i++) {
        mr__happening_pair(&b->happenings, h, &h->fields, req->headers[i].name,
                           req->headers[i].value);
    }
    if (h) {
        h->id = e->job;
        h->number = req->max_bytes;
        h->seconds = (double)req->timeout_ns / 1e9;
    }
    return e->job;
}

static host_job on_read(void *user, struct str folder, struct str path, size_t max_bytes,
                        void (*done)(void *arg, const struct host_file *f), void *arg)
{
    struct bench *b = user;
    struct errand *e = add_errand(b, arg);
    struct happening *h;

    (void)folder; /* t.files is named by what the policy wrote */
    if (!e) {
        return 0;
    }
    e->file_done = done;
    h = mr__happening_add(&b->happenings, HAPPENED_READ);
    mr__happening_text(&b->happenings, h, 0, path);
    if (h) {
        h->id = e->job;
        h->number = max_bytes;
    }
    return e->job;
}

static void on_cancel(void *user, host_job job)
{
    struct bench *b = user;
    struct errand **at = find_errand(user, job), *e = *at;

    if (e) {
        *at = e->next;
        mr__free(e);
    } else {
        mr__bench_lookup_cancel(b, job);
    }
}

struct script_host mr__bench_host(struct bench *b)
{
    return (struct script_host){.user = b,
                                .http = on_http,
                                .read = on_read,
                                .lookup = mr__bench_lookup,
                                .cancel = on_cancel};
}

/* Takes it out of the list first: done() may start the next one. */
static int take_errand(struct bench *b, host_job job, bool is_http, struct errand *out)
{
    struct errand **at = find_errand(b, job), *e = *at;

    if (!e || is_http != (e->http_done != NULL)) {
        return -ENOENT;
    }
    *out = *e;
    *at = e->next;
    mr__free(e);
    return 0;
}

int mr__bench_answer_http(struct bench *b, host_job job, const struct host_http_response *r)
{
    struct errand e;
    int rc = take_errand(b, job, true, &e);

    if (rc == 0) {
        e.http_done(e.arg, r);
        rc = mr__bench_settle(b);
    }
    return rc;
}

int mr__bench_answer_file(struct bench *b, host_job job, const struct host_file *f)
{
    struct errand e;
    int rc = take_errand(b, job, false, &e);

    if (rc == 0) {
        e.file_done(e.arg, f);
        rc = mr__bench_settle(b);
    }
    return rc;
}

void mr__bench_outside_deinit(struct bench *b)
{
    while (b->errands) {
        on_cancel(b, b->errands->job);
    }
}
