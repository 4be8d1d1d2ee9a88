/* SPDX-License-Identifier: MIT */
/*
 * Relays by the hundred thousand that are due in one tick: how long each call of mr_poll() takes
 * until all have ended. The engine by itself, without sockets, on a virtual clock; time is the
 * real one. One thread.
 *
 *     bench_expiry [RELAYS]     default 100000
 */
#include "engine/moonrelay.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EVENTS = 2048, RELAYS_MAX = 10000000 };

static uint64_t virtual_ns = 1000000000;

static uint64_t virtual_clock(void *user)
{
    (void)user;
    return virtual_ns;
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void must(int r)
{
    if (r < 0) {
        fprintf(stderr, "bench_expiry: %s\n", strerror(-r));
        exit(1);
    }
}

static struct mr *open_relays(uint32_t n, struct mr_event *events)
{
    struct mr_addr local = {.ip = {127, 0, 0, 1}, .family = 4, .port = 7};
    struct mr_options o;
    struct mr *mr;

    mr_options_init(&o, sizeof o);
    o.workers = 0;
    o.io = MR_IO_NONE;
    o.clock_ns = virtual_clock;
    o.max_ports = n;
    o.max_pairs = 1;
    must(mr_create(&mr, &o));
    for (uint32_t i = 0; i < n; i++) {
        struct mr_relay_spec spec;
        mr_relay_id id;

        mr_relay_spec_init(&spec, sizeof spec);
        must(mr_port_open(mr, &local, 0, &spec.port));
        spec.peer = (struct mr_addr){.ip = {10}, .family = 4, .port = 1};
        memcpy(&spec.peer.ip[1], &i, 3);
        must(mr_relay_create(mr, &spec, &id));
    }
    while (mr_in_force(mr) < mr_seq(mr))
        must(mr_poll(mr, events, EVENTS));
    return mr;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    unsigned long n = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
    struct mr_event *events = calloc(EVENTS, sizeof *events);
    double *took = calloc(n + 2, sizeof *took), all = 0;
    unsigned long ended = 0, calls = 0;
    struct mr *mr;

    if (n == 0 || n > RELAYS_MAX || !events || !took) {
        fprintf(stderr, "usage: bench_expiry [RELAYS]\n");
        return 2;
    }
    mr = open_relays((uint32_t)n, events);
    virtual_ns += 3600000000000;
    while (ended < n && calls <= n) {
        double from = now_ms();
        int got = mr_poll(mr, events, EVENTS);

        took[calls] = now_ms() - from;
        all += took[calls++];
        must(got);
        for (int i = 0; i < got; i++)
            ended += events[i].type == MR_EVENT_ENDED;
    }
    mr_destroy(mr);
    qsort(took, calls, sizeof *took, by_size);
    printf("- %lu relays that are due in one tick, the engine alone: %lu calls of mr_poll(), %.2f "
           "ms each "
           "(median), %.2f ms at most, %.0f ms in all.\n",
           ended, calls, took[calls / 2], took[calls - 1], all);
    free(took);
    free(events);
    return ended == n ? 0 : 1;
}
