/* SPDX-License-Identifier: MIT */
/*
 * See registrar.h. Control thread.
 */
#include "control/registrar.h"

#include "base/alloc.h"
#include "io/endpoint.h"

#include <errno.h>

enum {
    DATAGRAMS_PER_TURN = 64, /* then the command channel and the engine have their turn */
    ERRORS_PER_TURN = 8,     /* an error that stays must not hold the loop */
    DATAGRAM_BYTES = 2048,   /* a PID has 256 at most; of a longer one the rest does not matter */
};

struct registrar {
    uv_poll_t poll;
    struct registrar_options opts;
    struct socket_info info;
    int fd;
    uint64_t replies_failed, receive_errors;
};

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct registrar *r = poll->data;
    char data[DATAGRAM_BYTES];
    int errors = 0;

    (void)status;
    (void)events;
    for (int i = 0; i < DATAGRAMS_PER_TURN && errors < ERRORS_PER_TURN; i++) {
        struct endpoint_datagram d;
        int rc = mr__endpoint_receive(r->fd, &r->info, data, sizeof data, &d);

        if (rc == 0) {
            return;
        }
        if (rc < 0) {
            errors++;
            r->receive_errors++;
            continue;
        }
        r->opts.on_datagram(r->opts.user, &d.from, &d.local, data,
                            d.size < sizeof data ? d.size : sizeof data);
    }
}

int mr__registrar_open(struct registrar **out, const struct registrar_options *opts,
                       struct mr_addr *bound)
{
    struct registrar *r = mr__alloc(1, sizeof *r);
    int rc;

    if (!r) {
        return -ENOMEM;
    }
    r->opts = *opts;
    r->fd = mr__endpoint_open(&opts->local, opts->buffer_bytes, &r->info);
    if (r->fd < 0) {
        rc = r->fd;
        goto free_memory;
    }
    rc = uv_poll_init(opts->loop, &r->poll, r->fd);
    if (rc < 0) {
        goto close_socket;
    }
    r->poll.data = r;
    *bound = r->info.local;
    *out = r;
    return 0;

close_socket:
    mr__socket_close(r->fd);
free_memory:
    mr__free(r);
    return rc;
}

int mr__registrar_start(struct registrar *r)
{
    return uv_poll_start(&r->poll, UV_READABLE, on_readable);
}

/* A full send buffer costs this reply: the client asks again in a moment. */
void mr__registrar_reply(struct registrar *r, const struct mr_addr *to, const struct mr_addr *local,
                         const void *data, size_t n)
{
    if (mr__endpoint_send(r->fd, &r->info, to, local, data, n) < 0) {
        r->replies_failed++;
    }
}

void mr__registrar_counts(struct registrar *r, struct registrar_counts *out)
{
    out->replies_failed = r->replies_failed;
    out->receive_errors = r->receive_errors;
    out->kernel_drops = 0;
    (void)mr__socket_drops(r->fd, &out->kernel_drops);
}

void mr__registrar_stop(struct registrar *r)
{
    uv_poll_stop(&r->poll);
}

static void on_closed(uv_handle_t *handle)
{
    mr__free(handle->data);
}

void mr__registrar_destroy(struct registrar *r)
{
    if (r) {
        uv_poll_stop(&r->poll);
        mr__socket_close(r->fd);
        uv_close((uv_handle_t *)&r->poll, on_closed);
    }
}
