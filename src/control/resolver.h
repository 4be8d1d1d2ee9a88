/* SPDX-License-Identifier: MIT */
/*
 * Names resolved in at most four threads of ours, which are started when needed and end
 * when idle. Control thread, except for what the threads run. Start reading at
 * mr__resolver_start() and run() in resolver.c.
 *
 * Not uv_getaddrinfo(): its job belongs to the loop, so that one that hangs keeps
 * uv_loop_close() from succeeding and the process from ending. Here a job that outlives
 * its limit, its asker or its loop is left to its thread, which owns the memory from then
 * on; a thread that hangs counts to the four.
 *
 *     start ──> queue ── a thread takes it ──> getaddrinfo() ──> finished ── uv_async ──> done
 *                 └────────────── at the limit: done(-ETIMEDOUT) ────────┘
 */
#ifndef MR_CONTROL_RESOLVER_H
#define MR_CONTROL_RESOLVER_H

#include "core/address.h"

#include <netdb.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct resolver;
struct resolver_job;

/* lookup.h's: whom a job asks. */
struct mr_resolver;

struct resolver_options {
    uv_loop_t *loop;
    uint32_t threads;    /* 0: 4 */
    uint32_t queue;      /* jobs that wait for a thread; 0: 256 */
    uint32_t timeout_ms; /* of a job, from the question on; 0: 5000 */
    uint32_t idle_ms;    /* after which a thread ends; 0: 10000 */
    size_t stack_bytes;  /* of a thread; 0: 512 KiB */
};

/* Borrowed: valid until done returns. */
struct resolver_result {
    int rc; /* 0, -ENOENT (there is no such name, or it has no address), -EAFNOSUPPORT (of the
               family that was asked for), -ETIMEDOUT, -ENOMEM, -EIO */
    const char *why;     /* static text; NULL when rc is 0 */
    const char *host;    /* as it was asked for */
    struct mr_addr addr; /* with -EAFNOSUPPORT one of the other family, or none */
    uint64_t took_ns;    /* from the question on */
};

/* -ENOMEM; negative errno of libuv. No thread is started yet. */
int mr__resolver_create(struct resolver **out, const struct resolver_options *opts);

/* Forgets all jobs and frees it when the loop has run its close callbacks. Accepts NULL. */
void mr__resolver_destroy(struct resolver *r);

/* Asks `whom` for an address of the family (4, 6; 0: either). The host (at most
 * MR_LOOKUP_HOST_MAX bytes, none of them NUL) and *whom are copied. done
 * is called once from the loop; the loop lives until then. It must not destroy the resolver.
 * -EBUSY (the queue is full), -ENOMEM, -EAGAIN (no thread could be started): then it is not. */
int mr__resolver_start(struct resolver *r, struct resolver_job **out,
                       const struct mr_resolver *whom, const char *host, size_t n, int family,
                       void (*done)(void *arg, const struct resolver_result *result), void *arg);

/* done will not be called. */
void mr__resolver_cancel(struct resolver_job *job);

/* What was asked for, and how long ago; until done is called. */
const char *mr__resolver_host(const struct resolver_job *job);
uint64_t mr__resolver_age_ns(const struct resolver_job *job);

#endif
