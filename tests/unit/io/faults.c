/* SPDX-License-Identifier: MIT */
/*
 * Interposed system calls: see faults.h. One thread. Start reading at take().
 */
#include "faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/* The real one, past our own. */
static long call(long number, const long *arg)
{
    static long (*next)(long, ...);
    void *found;

    if (!next) {
        found = dlsym(RTLD_NEXT, "syscall");
        if (!found)
            abort();
        memcpy(&next, &found, sizeof next); /* ISO C has no cast to a function's pointer */
    }
    return next(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

static int fail(int err)
{
    errno = err;
    return -1;
}

static long call_single(enum fault_call kind, long number, const long *arg)
{
    struct order order = take(kind);
    long r;

    if (order.err)
        return fail(order.err);
    r = call(number, arg);
    return order.is_truncated && r >= 0 ? arg[2] + 1 : r;
}

static long call_many(enum fault_call kind, long number, long *arg)
{
    struct order order = take(kind);
    struct mmsghdr *msg;
    long r;

    if (order.err)
        return fail(order.err);
    if (order.limit && order.limit < (unsigned long)arg[2])
        arg[2] = order.limit;
    r = call(number, arg);
    memcpy(&msg, &arg[1], sizeof msg);
    if (order.is_truncated && r > 0)
        msg[0].msg_hdr.msg_flags |= MSG_TRUNC;
    return r;
}

long syscall(long number, ...)
{
    long arg[6];
    va_list list;

    va_start(list, number);
    for (unsigned i = 0; i < 6; i++)
        arg[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_recvfrom)
        return call_single(FAULT_RECVFROM, number, arg);
    if (number == SYS_sendto)
        return call_single(FAULT_SENDTO, number, arg);
    if (number == SYS_recvmmsg)
        return call_many(FAULT_RECVMMSG, number, arg);
    if (number == SYS_sendmmsg)
        return call_many(FAULT_SENDMMSG, number, arg);
    return call(number, arg);
}
