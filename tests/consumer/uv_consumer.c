/* SPDX-License-Identifier: MIT */
/*
 * Somebody else's program with a loop of libuv: asks for an address by a literal, and sends one
 * datagram from an endpoint to another. It uses the engine's library, too: both are in one program.
 */
#include <moonrelay.h>
#include <moonrelay_uv.h>

#include <stdio.h>
#include <string.h>

struct program {
    uv_loop_t loop;
    struct mr_lookup *lookup;
    struct mr_udp *from, *to;
    int was_found, was_sent, was_received;
};

static void on_found(struct mr_lookup_request *req, const struct mr_lookup_answer *answer)
{
    struct program *p = req->user;
    char text[MR_ADDR_TEXT_MAX];

    if (answer->rc == 0) {
        mr_addr_format_ip(&answer->addr, text, sizeof text);
        p->was_found = strcmp(text, "2001:db8::1") == 0;
    }
}

static void on_sent(void *arg, const struct mr_udp_result *result)
{
    struct program *p = arg;

    p->was_sent = result->rc == 0;
    if (result->rc < 0)
        fprintf(stderr, "%s: %s\n", result->code, result->message);
    mr_udp_close(p->from, NULL, NULL);
}

static void on_message(void *user, const struct mr_addr *from, const struct mr_addr *local,
                       const void *data, size_t n)
{
    struct program *p = user;
    struct mr_addr to;

    p->was_received = n == 5 && memcmp(data, "hello", 5) == 0 && from->family == 4 &&
                      mr_udp_address(p->to, &to) == 0 && mr_addr_equal(local, &to);
    mr_udp_close(p->to, NULL, NULL);
}

static int open_endpoints(struct program *p)
{
    struct mr_udp_options opts;
    struct mr_addr local;
    int rc;

    mr_udp_options_init(&opts, sizeof opts);
    opts.loop = &p->loop;
    opts.family = 4;
    opts.user = p;
    if ((rc = mr_udp_create(&p->from, p->lookup, &opts)) < 0)
        return rc;
    opts.on_message = on_message;
    if ((rc = mr_udp_create(&p->to, NULL, &opts)) < 0)
        return rc;
    if (mr_addr_parse(&local, "127.0.0.1:0", strlen("127.0.0.1:0"), NULL) != MR_ADDR_OK)
        return -1;
    if ((rc = mr_udp_bind_address(p->to, &local)) < 0 || (rc = mr_udp_address(p->to, &local)) < 0)
        return rc;
    return mr_udp_send(p->from, "hello", 5, NULL, 0, local.port, on_sent, p);
}

/* The engine's library allocates with the same functions under the same hidden names. */
static int use_engine(void)
{
    struct mr_options opts;
    struct mr *mr = NULL;
    int rc;

    mr_options_init(&opts, sizeof opts);
    opts.workers = 0;
    opts.io = MR_IO_NONE;
    opts.max_ports = 16;
    if ((rc = mr_create(&mr, &opts)) == 0)
        mr_destroy(mr);
    return rc;
}

int main(void)
{
    struct program p = {.was_found = 0};
    struct mr_lookup_options opts;
    struct mr_lookup_request req = {.done = on_found, .user = &p};
    int rc = use_engine();

    mr_lookup_options_init(&opts, sizeof opts);
    opts.loop = &p.loop;

    if (rc == 0)
        rc = uv_loop_init(&p.loop);
    if (rc == 0)
        rc = mr_lookup_create(&p.lookup, &opts);
    if (rc == 0)
        rc = open_endpoints(&p);
    if (rc < 0) {
        fprintf(stderr, "%s\n", mr_udp_reason(rc));
        return 1;
    }
    mr_lookup_start(p.lookup, &req, "2001:db8::1", strlen("2001:db8::1"), 6, MR_LOOKUP_RESOLVE, 0);
    uv_run(&p.loop, UV_RUN_DEFAULT);
    mr_lookup_destroy(p.lookup);
    uv_run(&p.loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&p.loop) != 0 || !p.was_found || !p.was_sent || !p.was_received) {
        fprintf(stderr, "found %d, sent %d, received %d\n", p.was_found, p.was_sent,
                p.was_received);
        return 1;
    }
    puts(mr_version());
    return 0;
}
