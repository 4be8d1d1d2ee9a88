/* SPDX-License-Identifier: MIT */
/*
 * Opening UDP sockets and turning addresses round. Any thread.
 * Start reading at mr__socket_open().
 */
#include "io/socket.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <unistd.h>

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

/*
 * A privileged process gets what it asks for, anybody else what net.core.*mem_max
 * allows. The kernel doubles the figure for its own bookkeeping; we report it halved,
 * so that it compares with what was asked.
 */
static int grow_buffer(int fd, int force_option, int option, uint32_t bytes)
{
    int want = bytes > INT32_MAX / 2 ? INT32_MAX / 2 : (int)bytes;
    int granted = 0;
    socklen_t len = sizeof granted;

    if (want > 0 && setsockopt(fd, SOL_SOCKET, force_option, &want, sizeof want) < 0)
        (void)setsockopt(fd, SOL_SOCKET, option, &want, sizeof want);
    if (getsockopt(fd, SOL_SOCKET, option, &granted, &len) < 0)
        return 0;
    return granted / 2;
}

/* Two sockets that both have it when the later one binds share an address; the later one gets what
 * comes. */
static int set_reuse(int fd, int is_on)
{
    return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &is_on, sizeof is_on) < 0 ? -errno : 0;
}

/*
 * No SO_REUSEADDR, but for the moment of a succession: on UDP it would let a second
 * instance take the traffic of a first one. IP_RECVERR stays off (said aloud, since everything
 * rests on it): with it, an ICMP error that one peer provokes would fail the next call for another.
 */
static int set_options(int fd, uint8_t family, int is_dual_stack)
{
    const int off = 0;
    const int v6only = !is_dual_stack;

    if (family == 6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof v6only) < 0)
        return -errno;
    if (family == 6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &off, sizeof off);
    if (family == 4 || is_dual_stack)
        (void)setsockopt(fd, IPPROTO_IP, IP_RECVERR, &off, sizeof off);
    return 0;
}

static int bind_and_name(int fd, const struct mr_addr *local, uint8_t family, struct mr_addr *bound)
{
    union socket_addr sa;
    socklen_t len = mr__socket_addr_write(&sa, local, family);

    if (bind(fd, &sa.any, len) < 0)
        return -errno;
    len = sizeof sa;
    if (getsockname(fd, &sa.any, &len) < 0)
        return -errno;
    mr__socket_addr_read(bound, &sa);
    return 0;
}

int mr__socket_open(const struct mr_addr *local, unsigned flags, uint32_t buffer_bytes,
                    struct socket_info *info)
{
    int is_dual_stack = (flags & SOCKET_DUAL_STACK) != 0;
    uint8_t family = is_dual_stack ? 6 : local->family;
    int fd, r;

    if (local->family != 4 && local->family != 6)
        return -EINVAL;
    fd = socket(family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;

    memset(info, 0, sizeof *info);
    r = set_options(fd, family, is_dual_stack);
    if (r == 0 && flags & SOCKET_SUCCESSOR)
        r = set_reuse(fd, 1);
    if (r == 0)
        r = bind_and_name(fd, local, family, &info->local);
    if (r == 0 && flags & SOCKET_SUCCESSOR)
        r = set_reuse(fd, 0);
    if (r < 0) {
        close(fd);
        return r;
    }
    info->rcvbuf = grow_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, buffer_bytes);
    info->sndbuf = grow_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, buffer_bytes);
    info->family = family;
    info->is_dual_stack = (uint8_t)is_dual_stack;
    return fd;
}

void mr__socket_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

void mr__socket_yield(int fd)
{
    (void)set_reuse(fd, 1); /* else the successor is refused, which says why */
}

int mr__socket_drops(int fd, uint64_t *drops)
{
    uint32_t mem[SK_MEMINFO_VARS];
    socklen_t len = sizeof mem;

    memset(mem, 0, sizeof mem);
    if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, mem, &len) < 0)
        return -errno;
    *drops = mem[SK_MEMINFO_DROPS];
    return 0;
}

socklen_t mr__socket_addr_write_v6(union socket_addr *out, const struct mr_addr *a)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const uint8_t unspecified[4];

    out->v6 = (struct sockaddr_in6){
        .sin6_family = AF_INET6, .sin6_port = htons(a->port), .sin6_scope_id = a->scope_id};
    if (a->family != 4) {
        memcpy(&out->v6.sin6_addr, a->ip, 16);
    } else if (memcmp(a->ip, unspecified, 4) != 0) {
        /* Bound to all of IPv4 on a dual-stack socket means bound to everything: "::". */
        memcpy(out->v6.sin6_addr.s6_addr, mapped, 12);
        memcpy(out->v6.sin6_addr.s6_addr + 12, a->ip, 4);
    }
    return sizeof out->v6;
}

void mr__socket_addr_read_v6(struct mr_addr *out, const union socket_addr *in)
{
    *out = (struct mr_addr){0};
    if (in->any.sa_family != AF_INET6)
        return;
    memcpy(out->ip, &in->v6.sin6_addr, 16);
    out->port = ntohs(in->v6.sin6_port);
    out->scope_id = in->v6.sin6_scope_id;
    out->family = 6;
    mr_addr_canonicalize(out);
    if (out->family == 4)
        out->scope_id = 0;
}
