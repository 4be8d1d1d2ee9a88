/* SPDX-License-Identifier: MIT */
/*
 * What policies ask of the world, as struct script_host (service/host.h): HTTP by fetch.h,
 * files by file.h, names by lookup.h, UDP endpoints by udp.h. It owns them and gives their
 * jobs names of one kind. Control thread.
 */
#ifndef MR_CONTROL_HOST_H
#define MR_CONTROL_HOST_H

#include "base/log.h"
#include "control/lookup.h"
#include "service/host.h"

#include <uv.h>

struct host;

/* A job's kind is in the lowest bits of its name, whatever that is among its own kind; so a job
 * that is over is never mistaken for another one. To add a kind: here, and in mr__host_cancel(). */
enum host_kind { HOST_HTTP, HOST_READ, HOST_LOOKUP, HOST_UDP, HOST_KIND_BITS = 2 };

static inline host_job mr__host_job(enum host_kind kind, uint64_t id)
{
    return id ? id << HOST_KIND_BITS | kind : 0;
}

struct host_options {
    uv_loop_t *loop;
    struct log *log;
    const char *roots; /* fetch.h */
};

/* -ENOMEM; negative errno of libuv. */
int mr__host_create(struct host **out, const struct host_options *opts);

/* Forgets all jobs and frees it; what it closed is freed by the loop. Accepts NULL. */
void mr__host_destroy(struct host *h);

/* Its user is the host. */
struct script_host mr__host_script(struct host *h);
struct mr_lookup *mr__host_lookup(const struct host *h);

/* As in struct script_host; user is the host. */
host_job mr__host_start_lookup(void *user, struct str name, int family, enum mr_lookup_op op,
                               unsigned flags,
                               void (*done)(void *arg, const struct mr_lookup_answer *a),
                               void *arg);
void mr__host_cancel(void *user, host_job job);

#endif
