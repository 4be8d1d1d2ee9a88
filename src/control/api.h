/* SPDX-License-Identifier: MIT */
/*
 * The control socket: HTTP with JSON on a unix socket, for the daemon's own commands and
 * `curl --unix-socket`. Whoever may open the socket's file may do everything; nobody else
 * can reach it. Control thread.
 *
 *     GET  /v1/status /v1/policies
 *     GET  /v1/sessions /v1/relays /v1/blocks                ?limit=500&after=CURSOR
 *     POST /v1/kick /v1/close /v1/block /v1/unblock /v1/reload /v1/rollback /v1/drain /v1/call
 *
 * An error is {"error": "a line", "code": "a-word"} with a status of 4xx or 5xx. No secret
 * id of a player and no key is in any answer.
 *
 * Start reading at on_request(), the table `endpoints` and drive(). The way of driving
 * libmicrohttpd is that of http.c.
 */
#ifndef MR_CONTROL_API_H
#define MR_CONTROL_API_H

#include "service/hooks.h"

#include <jansson.h>
#include <stddef.h>
#include <uv.h>

struct service;

enum { MR_API_CONNECTIONS = 16, MR_API_TIMEOUT_S = 30 };

struct api;
/* An answer that comes later; whoever asked may have gone meanwhile. */
struct api_later;

enum api_reload { MR_API_RELOAD, MR_API_CHECK, MR_API_ROLLBACK };

/* What the layers above do for it. Objects are new references, NULL: out of memory. Each later is
 * answered once, perhaps from inside, unless the api is destroyed before. */
struct api_deeds {
    void *user;
    json_t *(*status)(void *user);
    json_t *(*policies)(void *user);
    void (*reload)(void *user, enum api_reload kind, struct api_later *later);
    void (*call)(void *user, struct str policy, struct str verb, const struct str *args,
                 size_t n_args, struct api_later *later);
};

struct api_options {
    uv_loop_t *loop;
    const char *path;
    struct service *service;
    struct api_deeds deeds; /* user may be given later, by mr__api_start() */
};

/* Makes the socket (io/unix.h says how and what may fail); requests wait until mr__api_start(). */
int mr__api_open(struct api **out, const struct api_options *opts);
int mr__api_start(struct api *a);

/* body: taken; NULL: out of memory. */
void mr__api_answer(struct api_later *later, unsigned status, json_t *body);
void mr__api_refuse(struct api_later *later, unsigned status, const char *code, const char *text);

/* Removes the socket's file, if it is still ours; who is connected is served on. */
void mr__api_hide(struct api *a);

/* Closes everything and frees it when the loop has run its close callbacks; what is still to be
 * answered must not be answered any more. Accepts NULL. */
void mr__api_destroy(struct api *a);

#endif
