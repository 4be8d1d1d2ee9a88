/* SPDX-License-Identifier: MIT */
/*
 * The engine as an embedder would run it, with limits, counters and pairs on. Run by
 * bench_relay (bench_child.h has the protocol): relay_engine RELAYS WORKERS.
 */
#include "bench_child.h"
#include "engine/moonrelay.h"

#include <poll.h>
#include <stdio.h>

static mr_relay_id ids[BENCH_RELAYS_MAX];

static void fail(const char *what, int r)
{
    fprintf(stderr, "relay_engine: %s: %s\n", what, mr_strerror(r));
    exit(1);
}

static struct mr_addr loopback(uint16_t port)
{
    return (struct mr_addr){.ip = {127, 0, 0, 1}, .port = port, .family = 4};
}

static struct mr *create(unsigned relays, int workers)
{
    struct mr_options o;
    struct mr *mr;
    int r;

    mr_options_init(&o, sizeof o);
    o.workers = workers;
    o.max_ports = relays;
    o.socket_buffer_bytes = BENCH_BUFFER_BYTES;
    o.limits.relay_bytes_per_s = UINT64_C(1) << 30;
    o.limits.global_bytes_per_s = UINT64_C(1) << 36;
    o.limits.life_ns = UINT64_C(1) << 50;
    r = mr_create(&mr, &o);
    if (r < 0)
        fail("create", r);
    return mr;
}

static void open_ports(struct mr *mr, unsigned n)
{
    struct mr_addr any = loopback(0);
    static uint16_t ports[BENCH_RELAYS_MAX];

    for (unsigned i = 0; i < n; i++) {
        struct mr_port_info info;
        uint32_t port;
        int r = mr_port_open(mr, &any, 0, &port);

        if (r == 0)
            r = mr_port_info(mr, port, &info);
        if (r < 0)
            fail("port", r);
        ports[i] = info.local.port;
    }
    bench_write(STDOUT_FILENO, ports, n * sizeof ports[0]);
}

static void create_relays(struct mr *mr, unsigned n)
{
    static uint16_t peers[BENCH_RELAYS_MAX];

    bench_read(STDIN_FILENO, peers, n * sizeof peers[0]);
    for (unsigned i = 0; i < n; i++) {
        struct mr_relay_spec spec;
        int r;

        mr_relay_spec_init(&spec, sizeof spec);
        spec.port = i;
        spec.peer = loopback(peers[i]);
        r = mr_relay_create(mr, &spec, &ids[i]);
        if (r == 0 && i % 2 == 1)
            r = mr_pair(mr, ids[i - 1], ids[i]);
        if (r < 0)
            fail("relay", r);
    }
}

int main(int argc, char **argv)
{
    unsigned n = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    struct mr_event events[64];
    struct pollfd fds[2];
    struct mr *mr;

    if (n == 0 || n > BENCH_RELAYS_MAX || argc < 3)
        return 2;
    mr = create(n, atoi(argv[2]));
    open_ports(mr, n);
    create_relays(mr, n);
    while (mr_in_force(mr) < mr_seq(mr)) {
        if (mr_poll(mr, events, 64) < 0)
            return 1;
    }
    bench_write(STDOUT_FILENO, "r", 1);
    fds[0] = (struct pollfd){.fd = mr_fd(mr), .events = POLLIN};
    fds[1] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    while (fds[1].revents == 0) {
        if (poll(fds, 2, mr_timeout_ms(mr)) < 0 || mr_poll(mr, events, 64) < 0)
            return 1;
    }
    mr_destroy(mr);
    return 0;
}
