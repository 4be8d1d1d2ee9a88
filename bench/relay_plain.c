/* SPDX-License-Identifier: MIT */
/*
 * The yardstick: the least that relays datagrams over sockets. One thread, epoll, one
 * recvfrom and one sendto a datagram, two arrays indexed by UDP port instead of tables;
 * no limits, counters, links or ids. Run by bench_relay (see there for the protocol on
 * stdin and stdout): relay_plain RELAYS one|drain. `one` reads one datagram a readiness,
 * `drain` reads until the socket is empty.
 */
#include "bench_child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { EVENTS = 256, DATAGRAM = 65536, DRAIN_MAX = 64 };

static struct sockaddr_in peers[BENCH_RELAYS_MAX];
static int fds[BENCH_RELAYS_MAX];
static uint16_t sender_of[65536]; /* UDP port of a peer -> relay */
static char buffer[DATAGRAM];

/* Returns 0 when there was nothing. */
static int relay_one(unsigned target)
{
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    ssize_t n =
        recvfrom(fds[target], buffer, sizeof buffer, MSG_DONTWAIT, (struct sockaddr *)&from, &len);
    unsigned sender;

    if (n < 0)
        return 0;
    sender = sender_of[from.sin_port];
    if (peers[sender].sin_port != from.sin_port ||
        peers[sender].sin_addr.s_addr != from.sin_addr.s_addr)
        return 1;
    (void)sendto(fds[sender], buffer, (size_t)n, MSG_DONTWAIT,
                 (const struct sockaddr *)&peers[target], sizeof peers[target]);
    return 1;
}

static void run(int epoll_fd, int is_draining)
{
    struct epoll_event ev[EVENTS];

    for (;;) {
        int n = epoll_wait(epoll_fd, ev, EVENTS, -1);

        for (int i = 0; i < n; i++) {
            if (ev[i].data.u32 == UINT32_MAX)
                return;
            for (unsigned k = 0; relay_one(ev[i].data.u32) && is_draining && k < DRAIN_MAX; k++)
                ;
        }
    }
}

int main(int argc, char **argv)
{
    unsigned n = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    int is_draining = argc > 2 && strcmp(argv[2], "drain") == 0;
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    static uint16_t ports[BENCH_RELAYS_MAX], peer_ports[BENCH_RELAYS_MAX];
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = UINT32_MAX};

    if (n == 0 || n > BENCH_RELAYS_MAX || epoll_fd < 0)
        return 2;
    for (unsigned i = 0; i < n; i++)
        fds[i] = bench_socket(&ports[i]);
    bench_write(STDOUT_FILENO, ports, n * sizeof ports[0]);
    bench_read(STDIN_FILENO, peer_ports, n * sizeof peer_ports[0]);
    for (unsigned i = 0; i < n; i++) {
        peers[i] = bench_loopback(peer_ports[i]);
        sender_of[peers[i].sin_port] = (uint16_t)i;
        ev.data.u32 = i;
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fds[i], &ev) < 0)
            return 1;
    }
    ev.data.u32 = UINT32_MAX;
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &ev) < 0)
        return 1;
    bench_write(STDOUT_FILENO, "r", 1);
    run(epoll_fd, is_draining);
    return 0;
}
