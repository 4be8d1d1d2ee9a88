/* SPDX-License-Identifier: MIT */
/*
 * Calls of a daemon under test that fail when they are told to (LD_PRELOAD, behind a sanitizer's
 * own library, or into a program that has it linked in). Told in one of two ways:
 *
 *   - $MR_TEST_FAULT_AT: "CALL N ERRNO", and more of them after commas: call N of that name since
 *     the program began
 *   - $MR_TEST_FAULT: a file with one line "SERIAL CALL ERRNO": the next call of that name, once
 *     for each serial
 *
 * $MR_TEST_FAULT_LOG gets a line for each that failed: the serial, or "CALL N".
 * $MR_TEST_FAULT_COUNTS is a file that always holds how often each was called, in lines of
 * COUNT_WIDTH.
 *
 * What a call is: of the kernel, made by whomever in the process, through syscall(2) too
 * (io/syscall.h); or of libuv, made by others than itself. Two of libuv's own calls are left out,
 * since it ends the process by design when they fail: adding a descriptor to its epoll in the
 * middle of a turn, and waiting there with anything but EINTR (what asks for another errno there
 * gets it for the others).
 *
 * To add a call, start at CALLS.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

/* clang-format off */
#define CALLS(X) \
    X(socket) X(bind) X(listen) X(connect) X(setsockopt) X(getsockname) X(accept4) \
    X(recvfrom) X(recvmsg) X(recvmmsg) X(sendto) X(sendmsg) X(sendmmsg) X(recv) X(send) \
    X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(epoll_pwait) X(eventfd) X(pthread_create) \
    X(uv_loop_init) X(uv_loop_configure) X(uv_async_init) X(uv_poll_init) X(uv_poll_init_socket) \
    X(uv_poll_start) X(uv_tcp_init) X(uv_tcp_open) X(uv_read_start) X(uv_try_write) X(uv_write) \
    X(uv_shutdown) X(uv_fs_event_init) X(uv_fs_event_start) X(uv_queue_work) X(uv_random) \
    X(uv_interface_addresses)
/* clang-format on */

#define AS_ENUM(name) CALL_##name,
#define AS_NAME(name) #name,
enum call { CALLS(AS_ENUM) CALL_MAX };
static const char *const names[CALL_MAX] = {CALLS(AS_NAME)};

enum {
    COUNT_WIDTH = 40,   /* of a line of $MR_TEST_FAULT_COUNTS */
    DESCRIPTORS = 1024, /* those of loops are small */
    PLANS_MAX = 64,
};

static _Atomic long served; /* the last serial */
static _Atomic long counts[CALL_MAX];
static char *shown; /* $MR_TEST_FAULT_COUNTS */
static struct plan {
    char name[32];
    long n;
    int error;
} plans[PLANS_MAX]; /* $MR_TEST_FAULT_AT */
static int n_plans;
static struct {
    uintptr_t from, to;
} libuv;                                /* its code */
static _Atomic char loops[DESCRIPTORS]; /* which are the epoll of a loop */
static __thread int inside_uv;          /* how many of its calls this thread is in */

/* ---- what is behind ---------------------------------------------------------------------- */

/* Found by everybody who comes early: it is the same for all. */
static void *next(const char *name, void *_Atomic *found)
{
    void *f = atomic_load(found);

    if (!f) {
        f = dlsym(RTLD_NEXT, name);
        if (!f) {
            abort();
        }
        atomic_store(found, f);
    }
    return f;
}

#define NEXT(name)                            \
    ({                                        \
        static void *_Atomic found_;          \
        __typeof__(&(name)) f_;               \
        void *symbol_ = next(#name, &found_); \
        memcpy(&f_, &symbol_, sizeof f_);     \
        f_;                                   \
    })

#define raw NEXT(syscall)

/* ---- at the start ------------------------------------------------------------------------ */

static int look_for_libuv(struct dl_phdr_info *info, size_t size, void *unused)
{
    const char *base = strrchr(info->dlpi_name, '/');

    (void)size, (void)unused;
    if (!base || strncmp(base, "/libuv.so", 9) != 0) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && (p->p_flags & PF_X)) {
            libuv.from = info->dlpi_addr + p->p_vaddr;
            libuv.to = libuv.from + p->p_memsz;
        }
    }
    return 1;
}

static void show(enum call call, long count)
{
    char line[COUNT_WIDTH + 1];

    snprintf(line, sizeof line, "%-24s%*ld\n", names[call], COUNT_WIDTH - 25, count);
    memcpy(shown + call * COUNT_WIDTH, line, COUNT_WIDTH);
}

/* Before main(), when there is one thread. */
__attribute__((constructor)) static void prepare(void)
{
    const char *plan = getenv("MR_TEST_FAULT_AT"), *path = getenv("MR_TEST_FAULT_COUNTS");

    dl_iterate_phdr(look_for_libuv, NULL);
    while (plan && *plan) {
        struct plan *p = &plans[n_plans];
        if (n_plans == PLANS_MAX || sscanf(plan, "%31s %ld %d", p->name, &p->n, &p->error) != 3) {
            abort();
        }
        n_plans++;
        plan = strchr(plan, ',');
        plan += plan ? 1 : 0;
    }
    if (path) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        void *p = MAP_FAILED;
        if (fd >= 0 && ftruncate(fd, (off_t)CALL_MAX * COUNT_WIDTH) == 0) {
            p = mmap(NULL, CALL_MAX * COUNT_WIDTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        }
        if (p == MAP_FAILED) {
            abort();
        }
        close(fd);
        shown = p;
        for (enum call c = 0; c < CALL_MAX; c++) {
            show(c, 0);
        }
    }
}

/* ---- whether a call fails ---------------------------------------------------------------- */

static void note(const char *text)
{
    const char *path = getenv("MR_TEST_FAULT_LOG");
    long n = (long)strlen(text), fd = -1;

    if (path) {
        fd = raw(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    }
    if (fd < 0 || raw(SYS_write, fd, text, n) != n) {
        abort(); /* the test waits for it */
    }
    raw(SYS_close, fd);
}

/* For call n of that name, or (0) for any. */
static const struct plan *find_plan(const char *name, long n)
{
    for (int i = 0; i < n_plans; i++) {
        if ((n == 0 || n == plans[i].n) && strcmp(plans[i].name, name) == 0) {
            return &plans[i];
        }
    }
    return NULL;
}

/* By the file of $MR_TEST_FAULT. */
static int is_told(const char *name, int *error)
{
    const char *path = getenv("MR_TEST_FAULT");
    char text[64] = "", told[32];
    long serial, before = atomic_load(&served), fd = -1;

    if (path) {
        fd = raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0) {
        return 0;
    }
    (void)!raw(SYS_read, fd, text, sizeof text - 1);
    raw(SYS_close, fd);
    if (sscanf(text, "%ld %31s %d", &serial, told, error) != 3 || serial <= before ||
        strcmp(told, name) != 0 || !atomic_compare_exchange_strong(&served, &before, serial)) {
        return 0;
    }
    snprintf(text, sizeof text, "%ld\n", serial);
    note(text);
    return 1;
}

/* The errno that this call is to fail with, or 0. */
static int failure(enum call call)
{
    long n = atomic_fetch_add(&counts[call], 1) + 1;
    const struct plan *plan = find_plan(names[call], n);
    int error = 0, kept = errno;
    char text[64];

    if (shown) {
        show(call, n);
    }
    if (plan) {
        snprintf(text, sizeof text, "%s %ld\n", names[call], n);
        note(text);
        error = plan->error;
    } else if (!is_told(names[call], &error)) {
        error = 0;
    }
    errno = kept;
    return error;
}

static int is_libuvs(const void *caller)
{
    return (uintptr_t)caller >= libuv.from && (uintptr_t)caller < libuv.to;
}

/* ---- the kernel's ------------------------------------------------------------------------ */

#define OR_FAIL(name, ...)                 \
    do {                                   \
        int error_ = failure(CALL_##name); \
        if (error_) {                      \
            errno = error_;                \
            return -1;                     \
        }                                  \
        return NEXT(name)(__VA_ARGS__);    \
    } while (0)

static enum call call_of(long number)
{
    switch (number) {
    case SYS_recvfrom:
        return CALL_recvfrom;
    case SYS_recvmmsg:
        return CALL_recvmmsg;
    case SYS_sendto:
        return CALL_sendto;
    case SYS_sendmmsg:
        return CALL_sendmmsg;
    default:
        return CALL_MAX;
    }
}

long syscall(long number, ...)
{
    enum call call = call_of(number);
    int error = call < CALL_MAX ? failure(call) : 0;
    long a[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long); /* what was not given is not looked at */
    }
    va_end(list);
    if (error) {
        errno = error;
        return -1;
    }
    return raw(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int socket(int family, int type, int protocol)
{
    OR_FAIL(socket, family, type, protocol);
}

int bind(int fd, __CONST_SOCKADDR_ARG sa, socklen_t len)
{
    OR_FAIL(bind, fd, sa, len);
}

int listen(int fd, int backlog)
{
    OR_FAIL(listen, fd, backlog);
}

int connect(int fd, __CONST_SOCKADDR_ARG sa, socklen_t len)
{
    OR_FAIL(connect, fd, sa, len);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    OR_FAIL(setsockopt, fd, level, name, value, len);
}

int getsockname(int fd, __SOCKADDR_ARG sa, socklen_t *restrict len)
{
    OR_FAIL(getsockname, fd, sa, len);
}

int accept4(int fd, __SOCKADDR_ARG sa, socklen_t *restrict len, int flags)
{
    OR_FAIL(accept4, fd, sa, len, flags);
}

ssize_t recvfrom(int fd, void *restrict buf, size_t n, int flags, __SOCKADDR_ARG sa,
                 socklen_t *restrict len)
{
    OR_FAIL(recvfrom, fd, buf, n, flags, sa, len);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    OR_FAIL(recvmsg, fd, msg, flags);
}

int recvmmsg(int fd, struct mmsghdr *msg, unsigned n, int flags, struct timespec *timeout)
{
    OR_FAIL(recvmmsg, fd, msg, n, flags, timeout);
}

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    OR_FAIL(recv, fd, buf, n, flags);
}

ssize_t sendto(int fd, const void *buf, size_t n, int flags, __CONST_SOCKADDR_ARG sa, socklen_t len)
{
    OR_FAIL(sendto, fd, buf, n, flags, sa, len);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    OR_FAIL(sendmsg, fd, msg, flags);
}

int sendmmsg(int fd, struct mmsghdr *msg, unsigned n, int flags)
{
    OR_FAIL(sendmmsg, fd, msg, n, flags);
}

ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    OR_FAIL(send, fd, buf, n, flags);
}

/* Known by the descriptor and not by the caller, which may be a sanitizer's. */
static int is_loops(int fd)
{
    return fd >= 0 && fd < DESCRIPTORS && atomic_load(&loops[fd]);
}

static int create_epoll(int flags)
{
    OR_FAIL(epoll_create1, flags);
}

int epoll_create1(int flags)
{
    int fd = create_epoll(flags);

    if (fd >= 0 && fd < DESCRIPTORS) {
        atomic_store(&loops[fd], inside_uv > 0);
    }
    return fd;
}

int epoll_ctl(int fd, int op, int of, struct epoll_event *event)
{
    /* Changing one, and taking it out, needs nothing that may be missing. */
    if ((is_loops(fd) && inside_uv == 0) || op != EPOLL_CTL_ADD) {
        return NEXT(epoll_ctl)(fd, op, of, event);
    }
    OR_FAIL(epoll_ctl, fd, op, of, event);
}

/* Whether this wait is not to fail. */
static int is_spared(const char *name, int fd)
{
    const struct plan *plan = is_loops(fd) ? find_plan(name, 0) : NULL;

    return plan && plan->error != EINTR;
}

int epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
    if (is_spared("epoll_wait", fd)) {
        return NEXT(epoll_wait)(fd, events, n, timeout);
    }
    OR_FAIL(epoll_wait, fd, events, n, timeout);
}

int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout, const sigset_t *set)
{
    if (is_spared("epoll_pwait", fd)) {
        return NEXT(epoll_pwait)(fd, events, n, timeout, set);
    }
    OR_FAIL(epoll_pwait, fd, events, n, timeout, set);
}

int eventfd(unsigned value, int flags)
{
    OR_FAIL(eventfd, value, flags);
}

/* Without the threads for its work libuv ends the process, by design. */
int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                   void *(*fn)(void *), void *restrict arg)
{
    int error = inside_uv > 0 ? 0 : failure(CALL_pthread_create);

    return error ? error : NEXT(pthread_create)(thread, attributes, fn, arg);
}

/* ---- libuv's ----------------------------------------------------------------------------- */

#define UV_OR_FAIL(name, ...)                                                                \
    do {                                                                                     \
        int error_ = is_libuvs(__builtin_return_address(0)) ? 0 : failure(CALL_##name), rc_; \
        if (error_) {                                                                        \
            return -error_;                                                                  \
        }                                                                                    \
        inside_uv++;                                                                         \
        rc_ = NEXT(name)(__VA_ARGS__);                                                       \
        inside_uv--;                                                                         \
        return rc_;                                                                          \
    } while (0)

/* Those that libuv says may fail. Its timers, idle, prepare and check handles "always succeed". */

int uv_loop_init(uv_loop_t *loop)
{
    UV_OR_FAIL(uv_loop_init, loop);
}

int uv_loop_configure(uv_loop_t *loop, uv_loop_option option, ...)
{
    /* The one without a further argument is the one that is used. */
    UV_OR_FAIL(uv_loop_configure, loop, option);
}

int uv_async_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb fn)
{
    UV_OR_FAIL(uv_async_init, loop, async, fn);
}

int uv_poll_init(uv_loop_t *loop, uv_poll_t *poll, int fd)
{
    UV_OR_FAIL(uv_poll_init, loop, poll, fd);
}

int uv_poll_init_socket(uv_loop_t *loop, uv_poll_t *poll, uv_os_sock_t fd)
{
    UV_OR_FAIL(uv_poll_init_socket, loop, poll, fd);
}

int uv_poll_start(uv_poll_t *poll, int events, uv_poll_cb fn)
{
    UV_OR_FAIL(uv_poll_start, poll, events, fn);
}

int uv_tcp_init(uv_loop_t *loop, uv_tcp_t *tcp)
{
    UV_OR_FAIL(uv_tcp_init, loop, tcp);
}

int uv_tcp_open(uv_tcp_t *tcp, uv_os_sock_t fd)
{
    UV_OR_FAIL(uv_tcp_open, tcp, fd);
}

int uv_read_start(uv_stream_t *stream, uv_alloc_cb alloc, uv_read_cb read)
{
    UV_OR_FAIL(uv_read_start, stream, alloc, read);
}

int uv_try_write(uv_stream_t *stream, const uv_buf_t buffers[], unsigned n)
{
    UV_OR_FAIL(uv_try_write, stream, buffers, n);
}

int uv_write(uv_write_t *req, uv_stream_t *stream, const uv_buf_t buffers[], unsigned n,
             uv_write_cb fn)
{
    UV_OR_FAIL(uv_write, req, stream, buffers, n, fn);
}

int uv_shutdown(uv_shutdown_t *req, uv_stream_t *stream, uv_shutdown_cb fn)
{
    UV_OR_FAIL(uv_shutdown, req, stream, fn);
}

int uv_fs_event_init(uv_loop_t *loop, uv_fs_event_t *event)
{
    UV_OR_FAIL(uv_fs_event_init, loop, event);
}

int uv_fs_event_start(uv_fs_event_t *event, uv_fs_event_cb fn, const char *path, unsigned flags)
{
    UV_OR_FAIL(uv_fs_event_start, event, fn, path, flags);
}

int uv_queue_work(uv_loop_t *loop, uv_work_t *req, uv_work_cb work, uv_after_work_cb after)
{
    UV_OR_FAIL(uv_queue_work, loop, req, work, after);
}

int uv_random(uv_loop_t *loop, uv_random_t *req, void *buf, size_t n, unsigned flags,
              uv_random_cb fn)
{
    UV_OR_FAIL(uv_random, loop, req, buf, n, flags, fn);
}

int uv_interface_addresses(uv_interface_address_t **addresses, int *count)
{
    UV_OR_FAIL(uv_interface_addresses, addresses, count);
}
