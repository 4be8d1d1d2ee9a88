/* SPDX-License-Identifier: MIT */
/*
 * The HTTP port: GET and HEAD of /metrics, /livez, /readyz and /healthz. libmicrohttpd
 * without a thread of its own; its epoll descriptor and its timeout are on our loop.
 * Control thread.
 *
 * A request and its answer have 10 s in all: a timeout of silence alone would let one
 * byte every few seconds hold a connection for ever.
 * Start reading at on_request() and drive().
 */
#ifndef MR_CONTROL_HTTP_H
#define MR_CONTROL_HTTP_H

#include "core/address.h"

#include <stddef.h>
#include <uv.h>

struct http;

enum {
    MR_HTTP_CONNECTIONS = 24,             /* at once; they come out of MR_FILES_SPARE */
    MR_HTTP_CONNECTIONS_PER_ADDRESS = 12, /* IPv6: of a /64 */
    MR_HTTP_TIMEOUT_S = 10,
};

struct http_options {
    uv_loop_t *loop;
    struct mr_addr local;
    void *user;
    /* The page of figures for mr__free(), or NULL: out of memory. */
    char *(*metrics)(void *user, size_t *n);
    /* NULL: ready; else one line that says what is not. */
    const char *(*not_ready)(void *user);
};

/* Binds and listens; requests wait until mr__http_start(). Negative errno. */
int mr__http_open(struct http **out, const struct http_options *opts, struct mr_addr *bound);
int mr__http_start(struct http *h);

/* Closes every connection and frees it when the loop has run its close callbacks. Accepts NULL. */
void mr__http_destroy(struct http *h);

#endif
