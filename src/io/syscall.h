/* SPDX-License-Identifier: MIT */
/*
 * The system calls of the hot path, without the C library's wrapper. Those are
 * cancellation points: in a process with threads each call marks and unmarks its thread
 * by two locked instructions, which took 120 instructions of every relayed datagram. Our
 * threads are never cancelled. Results are negative errnos. Worker threads.
 */
#ifndef MR_IO_SYSCALL_H
#define MR_IO_SYSCALL_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Old 32-bit machines have one call for all of sockets: there the wrappers have to do. */
#if defined(SYS_recvfrom) && defined(SYS_sendto) && defined(SYS_recvmmsg) && defined(SYS_sendmmsg)

static inline ssize_t mr__syscall_recvfrom(int fd, void *buf, size_t n, int flags,
                                           struct sockaddr *addr, socklen_t *len)
{
    long r = syscall(SYS_recvfrom, fd, buf, n, flags, addr, len);

    return r < 0 ? -errno : r;
}

static inline int mr__syscall_recvmmsg(int fd, struct mmsghdr *msg, unsigned n, int flags)
{
    long r = syscall(SYS_recvmmsg, fd, msg, n, flags, NULL);

    return r < 0 ? -errno : (int)r;
}

static inline ssize_t mr__syscall_sendto(int fd, const void *buf, size_t n, int flags,
                                         const struct sockaddr *addr, socklen_t len)
{
    long r = syscall(SYS_sendto, fd, buf, n, flags, addr, len);

    return r < 0 ? -errno : r;
}

static inline int mr__syscall_sendmmsg(int fd, struct mmsghdr *msg, unsigned n, int flags)
{
    long r = syscall(SYS_sendmmsg, fd, msg, n, flags);

    return r < 0 ? -errno : (int)r;
}

#else

static inline ssize_t mr__syscall_recvfrom(int fd, void *buf, size_t n, int flags,
                                           struct sockaddr *addr, socklen_t *len)
{
    ssize_t r = recvfrom(fd, buf, n, flags, addr, len);

    return r < 0 ? -errno : r;
}

static inline int mr__syscall_recvmmsg(int fd, struct mmsghdr *msg, unsigned n, int flags)
{
    int r = recvmmsg(fd, msg, n, flags, NULL);

    return r < 0 ? -errno : r;
}

static inline ssize_t mr__syscall_sendto(int fd, const void *buf, size_t n, int flags,
                                         const struct sockaddr *addr, socklen_t len)
{
    ssize_t r = sendto(fd, buf, n, flags, addr, len);

    return r < 0 ? -errno : r;
}

static inline int mr__syscall_sendmmsg(int fd, struct mmsghdr *msg, unsigned n, int flags)
{
    int r = sendmmsg(fd, msg, n, flags);

    return r < 0 ? -errno : r;
}

#endif
#endif
