/* SPDX-License-Identifier: MIT */
/*
 * How long datagrams take through pairs: sends from one player's socket at a steady rate, whatever
 * becomes of what it sent before, and looks when each arrives at the other's. bench/probe.lua
 * makes the pairs, passes their sockets as descriptors (pair i: 3 + 2i, the sender, and 4 + 2i)
 * and ends the program by closing its stdin. Then each datagram is written to stdout as three
 * uint64_t, in the order of sending: its pair, when it was sent (CLOCK_MONOTONIC, ns) and how
 * long it took (ns; UINT64_MAX: it has not come).
 *
 *     pair_probe PORT:PERIOD_US:BYTES... <pipe >samples 3<>... 4<>...
 */
#include "bench_child.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PAIRS_MAX = 64, BYTES_MIN = 16, BYTES_MAX = 1400, LATE_MS = 1000, CATCH_UP_NS = 20000000 };

static const uint64_t MAGIC = 0x6d6f6f6e70726f62;

struct sample {
    uint64_t pair, sent_ns, took_ns;
};

struct pair {
    struct sockaddr_in to;
    uint64_t period_ns, due_ns;
    size_t bytes;
};

static struct pair pairs[PAIRS_MAX];
static struct pollfd polled[1 + PAIRS_MAX]; /* stdin and the receivers */
static unsigned pairs_n;
static struct sample *samples;
static size_t samples_n, samples_room, arrived_n;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void send_one(unsigned i)
{
    uint64_t payload[(BYTES_MAX + 7) / 8] = {MAGIC, samples_n};

    if (samples_n == samples_room) {
        samples_room = samples_room ? 2 * samples_room : 1 << 16;
        samples = realloc(samples, samples_room * sizeof *samples);
        if (!samples)
            exit(1);
    }
    samples[samples_n] = (struct sample){.pair = i, .sent_ns = now_ns(), .took_ns = UINT64_MAX};
    /* What the kernel does not take is lost like what the network does not. */
    (void)sendto(3 + 2 * (int)i, payload, pairs[i].bytes, 0, (struct sockaddr *)&pairs[i].to,
                 sizeof pairs[i].to);
    samples_n++;
}

static void receive(int fd)
{
    uint64_t got[(BYTES_MAX + 7) / 8];
    ssize_t n;

    while ((n = recv(fd, got, sizeof got, MSG_DONTWAIT)) >= 0) {
        if (n < BYTES_MIN || got[0] != MAGIC || got[1] >= samples_n ||
            samples[got[1]].took_ns != UINT64_MAX)
            continue;
        samples[got[1]].took_ns = now_ns() - samples[got[1]].sent_ns;
        arrived_n++;
    }
}

/* Sends what is due and returns when the next is. After a stall of ours a few are made up for. */
static uint64_t send_due(void)
{
    uint64_t now = now_ns(), next = UINT64_MAX;

    for (unsigned i = 0; i < pairs_n; i++) {
        struct pair *p = &pairs[i];

        if (p->due_ns + CATCH_UP_NS < now)
            p->due_ns = now;
        while (p->due_ns <= now) {
            send_one(i);
            p->due_ns += p->period_ns;
        }
        next = p->due_ns < next ? p->due_ns : next;
    }
    return next;
}

/* false: stdin has ended. */
static bool wait_until(uint64_t until_ns)
{
    uint64_t now = now_ns(), left = now < until_ns ? until_ns - now : 0;
    struct timespec t = {.tv_sec = (time_t)(left / 1000000000), .tv_nsec = left % 1000000000};

    if (ppoll(polled, 1 + pairs_n, &t, NULL) <= 0)
        return true;
    for (unsigned i = 0; i < pairs_n; i++) {
        if (polled[1 + i].revents)
            receive(polled[1 + i].fd);
    }
    return polled[0].revents == 0;
}

static bool read_pair(const char *text)
{
    unsigned port, period_us, bytes, i = pairs_n;

    if (i == PAIRS_MAX || sscanf(text, "%u:%u:%u", &port, &period_us, &bytes) != 3 || port == 0 ||
        port > UINT16_MAX || period_us == 0 || bytes < BYTES_MIN || bytes > BYTES_MAX)
        return false;
    /* Those of one rate do not send in the same moment. */
    pairs[i] = (struct pair){.to = bench_loopback((uint16_t)port),
                             .period_ns = (uint64_t)period_us * 1000,
                             .due_ns = now_ns() + i * (uint64_t)period_us * 61 % 1000000,
                             .bytes = bytes};
    polled[1 + i] = (struct pollfd){.fd = 4 + 2 * (int)i, .events = POLLIN};
    pairs_n++;
    return true;
}

int main(int argc, char **argv)
{
    uint64_t end_ns;

    for (int i = 1; i < argc; i++) {
        if (!read_pair(argv[i]))
            pairs_n = PAIRS_MAX + 1;
    }
    if (pairs_n == 0 || pairs_n > PAIRS_MAX) {
        fprintf(stderr, "usage: pair_probe PORT:PERIOD_US:BYTES...\n");
        return 2;
    }
    polled[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    while (wait_until(send_due()))
        ;
    polled[0].fd = -1;
    end_ns = now_ns() + LATE_MS * 1000000u;
    while (arrived_n < samples_n && now_ns() < end_ns)
        (void)wait_until(end_ns);
    fwrite(samples, sizeof *samples, samples_n, stdout);
    return fflush(stdout) == 0 ? 0 : 1;
}
