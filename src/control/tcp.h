/* SPDX-License-Identifier: MIT */
/*
 * The command channel's connections on a libuv loop: accepting, reading, bounded output,
 * closing. It knows bytes and ids; what they mean is the handler's business (in the
 * daemon the relay service). Control thread.
 *
 * The handler may call mr__tcp_send(), _close() and _pause() at any time, also from
 * inside its own callbacks; the handler is called from the loop and from
 * mr__tcp_settle(), never from inside those three.
 *
 * Start reading at on_acceptable(), on_read() and mr__tcp_settle().
 */
#ifndef MR_CONTROL_TCP_H
#define MR_CONTROL_TCP_H

#include "base/log.h"
#include "core/address.h"
#include "service/service.h"

#include <uv.h>

struct tcp;

struct tcp_handler {
    void *user;
    /* A new connection: returns its id, by which it is known from then on. It may send and close
     * before it returns; 0 with nothing said just closes. */
    conn_id (*accepted)(void *user, const struct mr_addr *peer, const struct mr_addr *local);
    void (*input)(void *user, conn_id id, const void *data, size_t n);
    void (*eof)(void *user, conn_id id);
    /* It is gone by itself; the id means nothing any more. */
    void (*closed)(void *user, conn_id id, enum conn_end why);
};

struct tcp_options {
    uv_loop_t *loop;
    struct log *log;
    struct tcp_handler handler;
    struct mr_addr local;
    size_t max_connections; /* above it a connection is ended without a word */
    size_t output_bytes;    /* what a connection may leave unread before it is closed */
};

/* Binds and listens, so that the address is taken and known (*bound); connections wait until
 * mr__tcp_start(). Negative errno of the listener. */
int mr__tcp_open(struct tcp **out, const struct tcp_options *opts, struct mr_addr *bound);
int mr__tcp_start(struct tcp *t);

/* Queues n bytes; an unknown id is ignored, it has gone meanwhile. */
void mr__tcp_send(struct tcp *t, conn_id id, const char *data, size_t n);
/* Ends it once what was queued is flushed, or after some seconds. The id is void from now on. */
void mr__tcp_close(struct tcp *t, conn_id id);
void mr__tcp_pause(struct tcp *t, conn_id id, bool is_paused);

/* Sends what was queued and reports who went away; once a turn of the loop, before it sleeps. */
void mr__tcp_settle(struct tcp *t);

/* No connection is taken any more; those that are there go on. */
void mr__tcp_stop_accepting(struct tcp *t);

/* No connection is taken and nothing read any more; each ends when its output is flushed
 * (`closed` is told MR_CONN_SHUTDOWN at once). mr__tcp_count() falls to 0 within some seconds. */
void mr__tcp_stop(struct tcp *t);
size_t mr__tcp_count(const struct tcp *t);

/* Closes everything at once and frees it when the loop has run its close callbacks. Accepts
 * NULL. */
void mr__tcp_destroy(struct tcp *t);

#endif
