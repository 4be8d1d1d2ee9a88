/* SPDX-License-Identifier: MIT */
/*
 * System calls of a daemon under test that fail when they are told to (LD_PRELOAD, behind a
 * sanitizer's own library). $MR_TEST_FAULT is a file with one line, "SERIAL CALL ERRNO": the next
 * call of that name fails so, once for each serial, and the serial is appended to
 * $MR_TEST_FAULT_LOG. The data plane makes its calls through syscall(2) (io/syscall.h), the rest
 * through the C library.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef long raw_syscall(long number, ...);

static _Atomic long served;

/* The C library's. Found by everybody who comes early: it is the same for all. */
static raw_syscall *raw(void)
{
    static raw_syscall *_Atomic found;
    raw_syscall *f = atomic_load(&found);

    if (!f) {
        void *symbol = dlsym(RTLD_NEXT, "syscall");
        memcpy(&f, &symbol, sizeof f);
        atomic_store(&found, f);
    }
    return f;
}

static void note(long serial)
{
    const char *path = getenv("MR_TEST_FAULT_LOG");
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", serial);
    long fd =
        path ? raw()(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644)
             : -1;

    if (fd < 0 || raw()(SYS_write, fd, text, (size_t)n) != n) {
        abort(); /* the test waits for it */
    }
    raw()(SYS_close, fd);
}

/* Whether this call is to fail; errno is set then. */
static int is_told_to_fail(const char *call)
{
    const char *path = getenv("MR_TEST_FAULT");
    char text[64] = "", name[32];
    long serial, before = atomic_load(&served);
    int error, kept = errno;
    long fd = path ? raw()(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        (void)!raw()(SYS_read, fd, text, sizeof text - 1);
        raw()(SYS_close, fd);
    }
    errno = kept;
    if (sscanf(text, "%ld %31s %d", &serial, name, &error) != 3 || serial <= before ||
        strcmp(name, call) != 0 || !atomic_compare_exchange_strong(&served, &before, serial)) {
        return 0;
    }
    note(serial);
    errno = error;
    return 1;
}

static const char *name_of(long number)
{
    switch (number) {
    case SYS_recvfrom:
        return "recvfrom";
    case SYS_recvmmsg:
        return "recvmmsg";
    case SYS_sendto:
        return "sendto";
    case SYS_sendmmsg:
        return "sendmmsg";
    default:
        return NULL;
    }
}

long syscall(long number, ...)
{
    const char *name = name_of(number);
    long a[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long); /* what was not given is not looked at */
    }
    va_end(list);
    return name && is_told_to_fail(name) ? -1 : raw()(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int accept4(int fd, __SOCKADDR_ARG sa, socklen_t *restrict len, int flags)
{
    return is_told_to_fail("accept4") ? -1
                                      : (int)raw()(SYS_accept4, fd, sa.__sockaddr__, len, flags);
}

int epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
    return is_told_to_fail("epoll_wait") ? -1 : (int)raw()(SYS_epoll_wait, fd, events, n, timeout);
}
