/* SPDX-License-Identifier: MIT */
/*
 * See endpoint.h. The local address travels as ancillary data: IP_PKTINFO on an IPv4
 * socket, IPV6_PKTINFO on an IPv6 one, where IPv4 shows as ::ffff:a.b.c.d in both
 * directions.
 */
#include "io/endpoint.h"

#include "base/alloc.h"
#include "io/syscall.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    CONTROL_BYTES = 128,            /* room for both kinds of pktinfo */
    SLOT_BYTES = 65536,             /* above the largest UDP payload, so a datagram is never cut */
    SLOT_STRIDE = SLOT_BYTES + 192, /* not a power of two: see RX_STRIDE in transport.h */
    EINTR_TRIES = 16,
};

int mr__endpoint_open(const struct mr_addr *local, unsigned flags, uint32_t buffer_bytes,
                      struct socket_info *info)
{
    bool is_any6 = local->family == 6 && (mr_addr_classify(local) & MR_ADDR_UNSPECIFIED) != 0;
    int fd = mr__socket_open(local, is_any6 ? flags : 0, buffer_bytes, info);
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

/* ---- connecting --------------------------------------------------------------------------- */

static int read_name(int fd, struct mr_addr *local)
{
    union socket_addr sa;
    socklen_t len = sizeof sa;

    memset(&sa, 0, sizeof sa);
    if (getsockname(fd, &sa.any, &len) < 0) {
        return -errno;
    }
    mr__socket_addr_read(local, &sa);
    return 0;
}

int mr__endpoint_connect(int fd, struct socket_info *info, struct mr_addr *peer)
{
    union socket_addr sa;
    socklen_t len = mr__socket_addr_write(&sa, peer, info->family);

    if (connect(fd, &sa.any, len) < 0) {
        return -errno;
    }
    len = sizeof sa;
    if (getpeername(fd, &sa.any, &len) < 0) {
        return -errno;
    }
    mr__socket_addr_read(peer, &sa);
    return read_name(fd, &info->local);
}

/*
 * The kernel gives the port back as well when it was the one that chose it, so it is taken
 * again; should somebody have been faster, there is another one.
 */
int mr__endpoint_disconnect(int fd, struct socket_info *info, const struct mr_addr *bound)
{
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    union socket_addr sa;
    socklen_t len;
    int rc;

    if (connect(fd, &nobody, sizeof nobody) < 0) {
        return -errno;
    }
    rc = read_name(fd, &info->local);
    if (rc == 0 && info->local.port == 0) {
        struct mr_addr again = *bound;
        len = mr__socket_addr_write(&sa, &again, info->family);
        if (bind(fd, &sa.any, len) < 0) {
            again.port = 0;
            len = mr__socket_addr_write(&sa, &again, info->family);
            if (bind(fd, &sa.any, len) < 0) {
                return -errno;
            }
        }
        rc = read_name(fd, &info->local);
    }
    return rc;
}

int mr__endpoint_take_error(int fd)
{
    int err = 0;
    socklen_t len = sizeof err;

    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0 ? -errno : -err;
}

/* ---- receiving ---------------------------------------------------------------------------- */

union control {
    struct cmsghdr align;
    char bytes[CONTROL_BYTES];
};

struct endpoint_rx {
    uint8_t *arena;
    unsigned used; /* headers of the last call, which the kernel wrote into */
    struct mmsghdr msg[ENDPOINT_RX_MAX];
    struct iovec iov[ENDPOINT_RX_MAX];
    union socket_addr from[ENDPOINT_RX_MAX];
    union control control[ENDPOINT_RX_MAX];
    struct endpoint_datagram datagram[ENDPOINT_RX_MAX];
};

static const size_t arena_bytes = (size_t)ENDPOINT_RX_MAX * SLOT_STRIDE;

int mr__endpoint_rx_create(struct endpoint_rx **out)
{
    struct endpoint_rx *rx = mr__alloc(1, sizeof *rx);

    if (!rx) {
        return -ENOMEM;
    }
    rx->arena = mr__map(arena_bytes);
    if (!rx->arena) {
        mr__free(rx);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < ENDPOINT_RX_MAX; i++) {
        rx->iov[i].iov_base = rx->arena + (size_t)i * SLOT_STRIDE;
        rx->iov[i].iov_len = SLOT_BYTES;
        rx->datagram[i].data = rx->iov[i].iov_base;
        rx->msg[i].msg_hdr.msg_iov = &rx->iov[i];
        rx->msg[i].msg_hdr.msg_iovlen = 1;
        rx->msg[i].msg_hdr.msg_name = &rx->from[i];
        rx->msg[i].msg_hdr.msg_control = rx->control[i].bytes;
    }
    rx->used = ENDPOINT_RX_MAX;
    *out = rx;
    return 0;
}

void mr__endpoint_rx_destroy(struct endpoint_rx *rx)
{
    if (rx) {
        mr__unmap(rx->arena, arena_bytes);
        mr__free(rx);
    }
}

static int call_recvmmsg(int fd, struct mmsghdr *msg)
{
    int n = -EINTR;

    for (unsigned tries = 0; n == -EINTR && tries < EINTR_TRIES; tries++) {
        n = mr__syscall_recvmmsg(fd, msg, ENDPOINT_RX_MAX, MSG_DONTWAIT);
    }
    return n == -EAGAIN || n == -EINTR ? 0 : n;
}

/* Always the whole batch: for a single datagram that is one system call, where reading one by one
 * takes a second call to see that there is no more. */
int mr__endpoint_receive(int fd, const struct socket_info *info, struct endpoint_rx *rx,
                         const struct endpoint_datagram **d)
{
    int n;

    for (unsigned i = 0; i < rx->used; i++) {
        rx->msg[i].msg_hdr.msg_namelen = sizeof rx->from[i];
        rx->msg[i].msg_hdr.msg_controllen = sizeof rx->control[i];
    }
    n = call_recvmmsg(fd, rx->msg);
    rx->used = n > 0 ? (unsigned)n : 0;
    for (unsigned i = 0; i < rx->used; i++) {
        struct endpoint_datagram *in = &rx->datagram[i];

        mr__socket_addr_read(&in->from, &rx->from[i]);
        in->local = (struct mr_addr){0};
        read_local(&rx->msg[i].msg_hdr, &in->local);
        if (in->local.family == 0) {
            in->local = info->local;
        }
        in->local.port = info->local.port;
        in->size = rx->msg[i].msg_len;
    }
    *d = rx->datagram;
    return n;
}

/* ---- sending ------------------------------------------------------------------------------ */

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

/* Through sendto(2): the kernel reads one structure less than for sendmsg(2). */
int mr__endpoint_send_one(int fd, const struct socket_info *info, const struct endpoint_out *out)
{
    union socket_addr dest;
    socklen_t len = out->to ? mr__socket_addr_write(&dest, out->to, info->family) : 0;
    ssize_t sent = -EINTR;

    for (unsigned tries = 0; sent == -EINTR && tries < EINTR_TRIES; tries++) {
        sent = mr__syscall_sendto(fd, out->data, out->size, MSG_DONTWAIT | MSG_NOSIGNAL,
                                  out->to ? &dest.any : NULL, len);
    }
    return sent < 0 ? (int)sent : 0;
}

struct tx_headers {
    struct mmsghdr msg[ENDPOINT_TX_MAX];
    struct iovec iov[ENDPOINT_TX_MAX];
    union socket_addr to[ENDPOINT_TX_MAX];
};

static void write_headers(struct tx_headers *h, const struct socket_info *info,
                          const struct endpoint_out *out, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        h->iov[i] =
            (struct iovec){.iov_base = (void *)(uintptr_t)out[i].data, .iov_len = out[i].size};
        h->msg[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &h->iov[i], .msg_iovlen = 1}};
        if (out[i].to) {
            h->msg[i].msg_hdr.msg_name = &h->to[i];
            h->msg[i].msg_hdr.msg_namelen =
                mr__socket_addr_write(&h->to[i], out[i].to, info->family);
        }
    }
}

/*
 * sendmmsg(2) stops at the first datagram that is refused, and fails only when that is the
 * first of those it was given. So a failure names one datagram, is told to that one, and the
 * next call begins behind it.
 */
static unsigned send_batch(int fd, const struct socket_info *info, struct endpoint_out *out,
                           unsigned n)
{
    struct tx_headers h;
    unsigned done = 0, interrupted = 0;

    write_headers(&h, info, out, n);
    while (done < n) {
        int sent = mr__syscall_sendmmsg(fd, h.msg + done, n - done, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (sent == -EAGAIN || (sent == -EINTR && ++interrupted == EINTR_TRIES)) {
            break;
        }
        for (int i = 0; i < sent; i++) {
            out[done++].rc = 0;
        }
        if (sent <= 0 && sent != -EINTR) {
            out[done++].rc = sent < 0 ? sent : -EIO; /* "nothing sent, no error" cannot be */
        }
    }
    return done;
}

unsigned mr__endpoint_send_many(int fd, const struct socket_info *info, struct endpoint_out *out,
                                unsigned n)
{
    if (n != 1) {
        return send_batch(fd, info, out, n < ENDPOINT_TX_MAX ? n : ENDPOINT_TX_MAX);
    }
    out->rc = mr__endpoint_send_one(fd, info, out);
    return out->rc != -EAGAIN;
}
