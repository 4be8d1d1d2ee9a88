/* SPDX-License-Identifier: MIT */
/*
 * What the end-to-end benchmark and the relays it starts share. A relay opens its
 * sockets and writes their UDP ports to stdout (uint16_t each); reads as many ports of
 * peers from stdin; writes one byte when it is ready; and ends when stdin does. Relay i
 * has peer i, all on 127.0.0.1; 2k and 2k + 1 are a pair.
 */
#ifndef MR_BENCH_CHILD_H
#define MR_BENCH_CHILD_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BENCH_RELAYS_MAX = 16384, BENCH_BUFFER_BYTES = 1 << 20 };

static inline void bench_write(int fd, const void *data, size_t n)
{
    const char *p = data;

    while (n > 0) {
        ssize_t done = write(fd, p, n);

        if (done <= 0)
            exit(1);
        p += done;
        n -= (size_t)done;
    }
}

static inline void bench_read(int fd, void *data, size_t n)
{
    char *p = data;

    while (n > 0) {
        ssize_t done = read(fd, p, n);

        if (done <= 0)
            exit(1);
        p += done;
        n -= (size_t)done;
    }
}

static inline struct sockaddr_in bench_loopback(uint16_t port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
}

/* A socket with buffers like a relay port's. */
static inline int bench_socket(uint16_t *port)
{
    struct sockaddr_in sa = bench_loopback(0);
    socklen_t len = sizeof sa;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int bytes = BENCH_BUFFER_BYTES;

    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 ||
        getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
        exit(1);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    *port = ntohs(sa.sin_port);
    return fd;
}

#endif
