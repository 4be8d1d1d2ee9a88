/* SPDX-License-Identifier: MIT */
/*
 * epoll and eventfd. Level triggered on purpose: a socket that still has datagrams
 * simply shows up again, so that one read a turn suffices (an edge would ask for one more
 * read that fails, at every socket). Start reading at mr__poller_wait().
 */
#include "io/poller.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const uint32_t wake_tag = UINT32_MAX;

int mr__poller_init(struct poller *p)
{
    int r;

    p->wake_fd = -1;
    p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (p->epoll_fd < 0)
        return -errno;
    p->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    r = p->wake_fd < 0 ? -errno : mr__poller_add(p, p->wake_fd, wake_tag);
    if (r < 0)
        mr__poller_deinit(p);
    return r;
}

void mr__poller_deinit(struct poller *p)
{
    if (p->wake_fd >= 0)
        close(p->wake_fd);
    if (p->epoll_fd >= 0)
        close(p->epoll_fd);
    p->wake_fd = p->epoll_fd = -1;
}

int mr__poller_add(struct poller *p, int fd, uint32_t tag)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = tag};

    return epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

/* An error of the socket is reported whether one asks or not; by its edge, so that nobody spins
 * over a descriptor that he does not read yet. */
int mr__poller_reserve(struct poller *p, int fd, uint32_t tag)
{
    struct epoll_event ev = {.events = EPOLLET, .data.u32 = tag};

    return epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

void mr__poller_start(struct poller *p, int fd, uint32_t tag)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = tag};

    (void)epoll_ctl(p->epoll_fd, EPOLL_CTL_MOD, fd, &ev);
}

void mr__poller_remove(struct poller *p, int fd)
{
    struct epoll_event unused = {0};

    (void)epoll_ctl(p->epoll_fd, EPOLL_CTL_DEL, fd, &unused);
}

/* Rounded up: waking a little late beats spinning through the last millisecond. */
static int to_ms(uint64_t ns)
{
    const uint64_t hour_ms = 3600000;
    uint64_t ms = ns / 1000000 + (ns % 1000000 != 0);

    if (ns == UINT64_MAX)
        return -1;
    return ms > hour_ms ? (int)hour_ms : (int)ms;
}

unsigned mr__poller_wait(struct poller *p, uint32_t tags[POLLER_READY_MAX], uint64_t timeout_ns)
{
    struct epoll_event ev[POLLER_READY_MAX];
    int n = epoll_wait(p->epoll_fd, ev, POLLER_READY_MAX, to_ms(timeout_ns));
    unsigned ready = 0;

    for (int i = 0; i < n; i++) {
        if (ev[i].data.u32 == wake_tag)
            mr__poller_drain(p);
        else
            tags[ready++] = ev[i].data.u32;
    }
    return ready;
}

void mr__poller_wake(struct poller *p)
{
    const uint64_t one = 1;
    ssize_t n;

    do
        n = write(p->wake_fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    /* EAGAIN: 2^64 - 2 wake-ups are waiting already. */
}

void mr__poller_drain(struct poller *p)
{
    uint64_t count;
    ssize_t n;

    do
        n = read(p->wake_fd, &count, sizeof count);
    while (n < 0 && errno == EINTR);
}
