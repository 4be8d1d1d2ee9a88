/* SPDX-License-Identifier: MIT */
/*
 * See listener.h. Any thread.
 */
#include "io/listener.h"

#include "io/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <unistd.h>

static void set_int(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

/* Buffers are set before listen(2): the window scale of a connection is decided in its handshake.
 */
static int bind_and_listen(int fd, const struct listener_options *opts, struct mr_addr *bound)
{
    union socket_addr sa;
    socklen_t len = mr__socket_addr_write(&sa, &opts->local, opts->local.family);

    set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1); /* a restart must not wait for TIME_WAIT */
    if (opts->local.family == 6) {
        bool is_any = mr_addr_classify(&opts->local) & MR_ADDR_UNSPECIFIED;
        set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, !is_any);
    }
    if (opts->rcvbuf_bytes > 0) {
        set_int(fd, SOL_SOCKET, SO_RCVBUF, (int)opts->rcvbuf_bytes);
    }
    if (opts->sndbuf_bytes > 0) {
        set_int(fd, SOL_SOCKET, SO_SNDBUF, (int)opts->sndbuf_bytes);
    }
    if (bind(fd, &sa.any, len) < 0) {
        return -errno;
    }
    if (listen(fd, opts->backlog) < 0) {
        return -errno;
    }
    len = sizeof sa;
    if (getsockname(fd, &sa.any, &len) < 0) {
        return -errno;
    }
    mr__socket_addr_read(bound, &sa);
    return 0;
}

int mr__listener_open(const struct listener_options *opts, struct mr_addr *bound)
{
    int domain = opts->local.family == 6 ? AF_INET6 : AF_INET;
    int fd = socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int rc;

    if (fd < 0) {
        return -errno;
    }
    rc = bind_and_listen(fd, opts, bound);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    return fd;
}

int mr__listener_accept(int listener, struct mr_addr *peer, struct mr_addr *local)
{
    union socket_addr sa = {.v6 = {.sin6_family = AF_UNSPEC}};
    socklen_t len = sizeof sa;
    int fd;

    do {
        fd = accept4(listener, &sa.any, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        return -errno;
    }
    mr__socket_addr_read(peer, &sa);
    len = sizeof sa;
    if (getsockname(fd, &sa.any, &len) < 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    mr__socket_addr_read(local, &sa);
    return fd;
}

int mr__listener_reserve(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

int mr__listener_shed(int listener, int *reserve)
{
    struct mr_addr peer, local;
    int fd;

    if (*reserve < 0) {
        *reserve = mr__listener_reserve();
    }
    if (*reserve < 0) {
        *reserve = -1;
        return -EMFILE;
    }
    close(*reserve);
    fd = mr__listener_accept(listener, &peer, &local);
    if (fd >= 0) {
        close(fd);
    }
    *reserve = mr__listener_reserve();
    return fd >= 0 ? 0 : fd;
}

bool mr__listener_is_ended(int fd)
{
    char c;

    return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

void mr__listener_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

void mr__listener_tune(int fd, const struct keepalive *k)
{
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, (int)k->idle_s);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, (int)k->interval_s);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, (int)k->count);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)k->user_timeout_ms);
}
