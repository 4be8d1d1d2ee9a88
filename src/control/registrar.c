/* SPDX-License-Identifier: MIT */
/*
 * See registrar.h. Control thread.
 */
#include "control/registrar.h"

#include "base/alloc.h"
#include "control/udp.h"

#include <errno.h>

enum {
    DATAGRAM_BYTES = 2048
}; /* a PID has 256 at most; of a longer one the rest does not matter */

struct registrar {
    struct mr_udp *udp;
    struct registrar_options opts;
    uint64_t replies_failed;
};

static void on_message(void *user, const struct mr_addr *from, const struct mr_addr *local,
                       const void *data, size_t n)
{
    struct registrar *r = user;

    r->opts.on_datagram(r->opts.user, from, local, data, n < DATAGRAM_BYTES ? n : DATAGRAM_BYTES);
}

static void on_closed(void *arg)
{
    mr__free(arg);
}

int mr__registrar_open(struct registrar **out, const struct registrar_options *opts,
                       struct mr_addr *bound)
{
    struct registrar *r = mr__alloc(1, sizeof *r);
    struct mr_udp_options udp;
    int rc;

    if (!r) {
        return -ENOMEM;
    }
    r->opts = *opts;
    mr_udp_options_init(&udp, sizeof udp);
    udp.loop = opts->loop;
    udp.family = opts->local.family;
    udp.buffer_bytes = opts->buffer_bytes;
    udp.user = r;
    udp.on_message = on_message;
    rc = mr_udp_create(&r->udp, NULL, &udp);
    if (rc < 0) {
        mr__free(r);
        return rc;
    }
    mr_udp_pause(r->udp);
    rc = mr_udp_bind_address(r->udp, &opts->local);
    if (rc < 0) {
        mr_udp_close(r->udp, on_closed, r);
        return rc;
    }
    (void)mr_udp_address(r->udp, bound);
    *out = r;
    return 0;
}

int mr__registrar_start(struct registrar *r)
{
    mr_udp_resume(r->udp);
    return 0;
}

/* A full send buffer costs this reply: the client asks again in a moment. */
void mr__registrar_reply(struct registrar *r, const struct mr_addr *to, const struct mr_addr *local,
                         const void *data, size_t n)
{
    if (mr_udp_reply(r->udp, to, local, data, n) < 0) {
        r->replies_failed++;
    }
}

void mr__registrar_counts(struct registrar *r, struct registrar_counts *out)
{
    struct mr_udp_counts counts;

    mr_udp_count(r->udp, &counts);
    out->replies_failed = r->replies_failed;
    out->receive_errors = counts.receive_errors;
    out->kernel_drops = counts.kernel_drops;
}

void mr__registrar_stop(struct registrar *r)
{
    mr_udp_pause(r->udp);
}

void mr__registrar_destroy(struct registrar *r)
{
    if (r) {
        mr_udp_close(r->udp, on_closed, r);
    }
}
