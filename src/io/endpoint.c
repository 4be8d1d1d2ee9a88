/* SPDX-License-Identifier: MIT */
/*
 * See endpoint.h. The local address travels as ancillary data: IP_PKTINFO on an IPv4
 * socket, IPV6_PKTINFO on an IPv6 one, where IPv4 shows as ::ffff:a.b.c.d in both
 * directions.
 */
#include "io/endpoint.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { CONTROL_BYTES = 128 }; /* room for both kinds of pktinfo */

int mr__endpoint_open(const struct mr_addr *local, uint32_t buffer_bytes, struct socket_info *info)
{
    bool is_any6 = local->family == 6 && (mr_addr_classify(local) & MR_ADDR_UNSPECIFIED) != 0;
    int fd = mr__socket_open(local, is_any6 ? SOCKET_DUAL_STACK : 0, buffer_bytes, info);
    const int on = 1;
    int rc;

    if (fd < 0) {
        return fd;
    }
    if (info->family == 6) {
        rc = setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on) < 0 ? -errno : 0;
    } else {
        rc = setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on) < 0 ? -errno : 0;
    }
    if (rc < 0) {
        mr__socket_close(fd);
        return rc;
    }
    return fd;
}

static void read_local(struct msghdr *msg, struct mr_addr *local)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        union socket_addr sa;

        memset(&sa, 0, sizeof sa);
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            /* spec_dst and not addr: a broadcast is answered from our own address. */
            sa.v4.sin_family = AF_INET;
            sa.v4.sin_addr = info.ipi_spec_dst;
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            sa.v6.sin6_family = AF_INET6;
            sa.v6.sin6_addr = info.ipi6_addr;
            if (IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr)) {
                sa.v6.sin6_scope_id = info.ipi6_ifindex;
            }
        } else {
            continue;
        }
        mr__socket_addr_read(local, &sa);
        return;
    }
}

int mr__endpoint_receive(int fd, const struct socket_info *info, void *buf, size_t cap,
                         struct endpoint_datagram *d)
{
    union socket_addr from;
    _Alignas(struct cmsghdr) char control[CONTROL_BYTES];
    struct iovec iov = {.iov_base = buf, .iov_len = cap};
    struct msghdr msg = {.msg_name = &from, .msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    do {
        msg.msg_namelen = sizeof from;
        msg.msg_control = control;
        msg.msg_controllen = sizeof control;
        n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_TRUNC);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return errno == EAGAIN ? 0 : -errno;
    }
    memset(d, 0, sizeof *d);
    mr__socket_addr_read(&d->from, &from);
    read_local(&msg, &d->local);
    if (d->local.family == 0) {
        d->local = info->local;
    }
    d->local.port = info->local.port;
    d->size = (size_t)n;
    return 1;
}

static size_t write_local(struct msghdr *msg, const struct mr_addr *local, uint8_t family)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);
    union socket_addr sa;

    mr__socket_addr_write(&sa, local, family);
    if (family == 4) {
        struct in_pktinfo info = {.ipi_spec_dst = sa.v4.sin_addr};
        c->cmsg_level = IPPROTO_IP;
        c->cmsg_type = IP_PKTINFO;
        c->cmsg_len = CMSG_LEN(sizeof info);
        memcpy(CMSG_DATA(c), &info, sizeof info);
        return CMSG_SPACE(sizeof info);
    }
    struct in6_pktinfo info = {.ipi6_addr = sa.v6.sin6_addr, .ipi6_ifindex = local->scope_id};
    c->cmsg_level = IPPROTO_IPV6;
    c->cmsg_type = IPV6_PKTINFO;
    c->cmsg_len = CMSG_LEN(sizeof info);
    memcpy(CMSG_DATA(c), &info, sizeof info);
    return CMSG_SPACE(sizeof info);
}

/* The wildcard is no source, and on an IPv4 socket an IPv6 source is a mistake of the caller. */
static bool is_source(const struct mr_addr *local, uint8_t family)
{
    return local && local->family != 0 && (family == 6 || local->family == 4) &&
           !(mr_addr_classify(local) & (MR_ADDR_UNSPECIFIED | MR_ADDR_MULTICAST));
}

int mr__endpoint_send(int fd, const struct socket_info *info, const struct mr_addr *to,
                      const struct mr_addr *local, const void *data, size_t n)
{
    union socket_addr dest;
    _Alignas(struct cmsghdr) char control[CONTROL_BYTES];
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = n};
    struct msghdr msg = {.msg_name = &dest, .msg_iov = &iov, .msg_iovlen = 1};
    ssize_t sent;

    msg.msg_namelen = mr__socket_addr_write(&dest, to, info->family);
    if (is_source(local, info->family)) {
        memset(control, 0, sizeof control);
        msg.msg_control = control;
        msg.msg_controllen = sizeof control;
        msg.msg_controllen = write_local(&msg, local, info->family);
    }
    do {
        sent = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}
