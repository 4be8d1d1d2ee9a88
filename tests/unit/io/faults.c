/* SPDX-License-Identifier: MIT */
/*
 * Interposed system calls: see faults.h. One thread. Start reading at take().
 */
#include "faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct order {
    int err;
    unsigned limit; /* 0: none */
    int is_truncated;
};

enum { ORDERS_MAX = 512 };

struct calls {
    struct order orders[ORDERS_MAX];
    unsigned first, n, count;
    int always;
};

static struct calls all[FAULT_CALLS];

static void push(enum fault_call call, struct order order)
{
    struct calls *c = &all[call];

    if (c->n == ORDERS_MAX)
        abort();
    c->orders[(c->first + c->n++) % ORDERS_MAX] = order;
}

void fault_next(enum fault_call call, int err)
{
    push(call, (struct order){.err = err});
}

void fault_short(enum fault_call call, unsigned n)
{
    push(call, (struct order){.limit = n});
}

void fault_truncate(enum fault_call call)
{
    push(call, (struct order){.is_truncated = 1});
}

void fault_always(enum fault_call call, int err)
{
    all[call].always = err;
}

void fault_reset(void)
{
    memset(all, 0, sizeof all);
}

unsigned fault_count(enum fault_call call)
{
    return all[call].count;
}

static struct order take(enum fault_call call)
{
    struct calls *c = &all[call];
    struct order order = {.err = c->always};

    c->count++;
    if (c->n > 0) {
        order = c->orders[c->first];
        c->first = (c->first + 1) % ORDERS_MAX;
        c->n--;
    }
    return order;
}

/* ISO C has no cast from an object pointer to a function's. */
static void find_next(const char *name, void *function)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (!found)
        abort();
    memcpy(function, &found, sizeof found);
}

ssize_t recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *addr, socklen_t *len)
{
    static ssize_t (*next)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
    struct order order = take(FAULT_RECVFROM);
    ssize_t got;

    if (!next)
        find_next("recvfrom", &next);
    if (order.err) {
        errno = order.err;
        return -1;
    }
    got = next(fd, buf, n, flags, addr, len);
    return order.is_truncated && got >= 0 ? (ssize_t)n + 1 : got;
}

int recvmmsg(int fd, struct mmsghdr *msg, unsigned n, int flags, struct timespec *timeout)
{
    static int (*next)(int, struct mmsghdr *, unsigned, int, struct timespec *);
    struct order order = take(FAULT_RECVMMSG);
    int got;

    if (!next)
        find_next("recvmmsg", &next);
    if (order.err) {
        errno = order.err;
        return -1;
    }
    got = next(fd, msg, order.limit && order.limit < n ? order.limit : n, flags, timeout);
    if (order.is_truncated && got > 0)
        msg[0].msg_hdr.msg_flags |= MSG_TRUNC;
    return got;
}

ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *addr,
               socklen_t len)
{
    static ssize_t (*next)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    struct order order = take(FAULT_SENDTO);

    if (!next)
        find_next("sendto", &next);
    if (order.err) {
        errno = order.err;
        return -1;
    }
    return next(fd, buf, n, flags, addr, len);
}

int sendmmsg(int fd, struct mmsghdr *msg, unsigned n, int flags)
{
    static int (*next)(int, struct mmsghdr *, unsigned, int);
    struct order order = take(FAULT_SENDMMSG);

    if (!next)
        find_next("sendmmsg", &next);
    if (order.err) {
        errno = order.err;
        return -1;
    }
    return next(fd, msg, order.limit && order.limit < n ? order.limit : n, flags);
}
