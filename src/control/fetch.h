/* SPDX-License-Identifier: MIT */
/*
 * HTTP asked: requests of policies, by libcurl's multi interface on a libuv loop, to an
 * address that lookup.h gives for the url's host. Control thread.
 *
 * What a request may not do: follow a redirect, speak another protocol than http and
 * https, go through a proxy of the environment (a policy's request goes where it says,
 * whatever the daemon was started from), keep cookies, read a .netrc, outlive its
 * timeout, bring more than was asked for. Each has a connection of its own, so that
 * nothing of one policy's request is left for another's and no descriptor stays.
 * TLS is verified, with the system's roots.
 *
 * Start reading at mr__fetch_start() and on_message().
 */
#ifndef MR_CONTROL_FETCH_H
#define MR_CONTROL_FETCH_H

#include "control/lookup.h"
#include "service/host.h"

#include <stdint.h>
#include <uv.h>

enum {
    MR_FETCH_MOST = 32, /* at once */
    MR_FETCH_HEADERS_MAX = 100,
    MR_FETCH_HEAD_BYTES = 16 * 1024, /* of a response, interim ones and trailers included */
    MR_FETCH_CONNECT_MS = 5000,
};

struct fetch;

struct fetch_options {
    uv_loop_t *loop;
    struct mr_lookup *lookup; /* outlives it */
    const char *roots;        /* path of a PEM file; NULL: the system's */
    uint32_t connect_ms;      /* 0: MR_FETCH_CONNECT_MS */
};

/* -ENOMEM. */
int mr__fetch_create(struct fetch **out, const struct fetch_options *opts);

/* As host.h's http; 0: out of memory. Everything in req is copied. */
uint64_t mr__fetch_start(struct fetch *f, const struct host_http_request *req,
                         void (*done)(void *arg, const struct host_http_response *r), void *arg);

/* Forgets it, wherever it is; done will not be called. A job that is over is ignored. */
void mr__fetch_cancel(struct fetch *f, uint64_t job);

/* Forgets all of them and frees it when the loop has run its close callbacks. Accepts NULL. Not
 * from inside of a done. */
void mr__fetch_destroy(struct fetch *f);

#endif
