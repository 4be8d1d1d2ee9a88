/* SPDX-License-Identifier: MIT */
/*
 * How long a datagram takes through a pair, again and again: sends from one player's
 * socket, waits at the other's, one datagram a millisecond. bench/policies.lua makes the
 * pair, passes the sockets as descriptors 3 (the sender) and 4, and ends the program by
 * closing its stdin. Each datagram is written to stdout as two uint64_t: when it was sent
 * (CLOCK_MONOTONIC, ns) and how long it took (ns; UINT64_MAX: it did not come within a second).
 *
 *     pair_probe PORT <pipe >samples 3<>... 4<>...
 */
#include "bench_child.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

enum { FROM = 3, TO = 4, PERIOD_NS = 1000000, LOST_MS = 1000, PAYLOAD_BYTES = 64 };

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Waits for the datagram with this number; older ones, given up as lost, are passed over. */
static uint64_t await(uint64_t number, uint64_t sent_ns)
{
    for (;;) {
        struct pollfd p = {.fd = TO, .events = POLLIN};
        uint64_t waited_ms = (now_ns() - sent_ns) / 1000000, got[PAYLOAD_BYTES / 8];

        if (waited_ms >= LOST_MS || poll(&p, 1, LOST_MS - (int)waited_ms) == 0) {
            return UINT64_MAX;
        }
        if (recv(TO, got, sizeof got, MSG_DONTWAIT) == sizeof got && got[0] == number) {
            return now_ns() - sent_ns;
        }
    }
}

/* false: stdin has ended. */
static bool rest(uint64_t until_ns)
{
    struct pollfd p = {.fd = 0, .events = POLLIN};
    uint64_t now = now_ns();
    struct timespec t = {.tv_nsec = now < until_ns ? (long)(until_ns - now) : 0};

    return ppoll(&p, 1, &t, NULL) == 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_in to = bench_loopback(argc > 1 ? (uint16_t)strtoul(argv[1], NULL, 10) : 0);
    uint64_t payload[PAYLOAD_BYTES / 8] = {0}, sample[2];

    if (to.sin_port == 0) {
        fprintf(stderr, "usage: pair_probe PORT\n");
        return 2;
    }
    do {
        payload[0]++;
        sample[0] = now_ns();
        if (sendto(FROM, payload, sizeof payload, 0, (struct sockaddr *)&to, sizeof to) < 0) {
            perror("sendto");
            return 1;
        }
        sample[1] = await(payload[0], sample[0]);
        fwrite(sample, sizeof sample, 1, stdout);
    } while (rest(sample[0] + PERIOD_NS));
    return fflush(stdout) == 0 ? 0 : 1;
}
