/* SPDX-License-Identifier: MIT */
/*
 * A libuv loop for tests and the clients that talk to what runs on it, all in one thread:
 * whatever a test waits for is waited for by turning the loop.
 */
#ifndef MR_TESTS_CONTROL_LOOP_H
#define MR_TESTS_CONTROL_LOOP_H

#include "core/address.h"
#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <uv.h>

/* libuv keeps a pipe for signals from its first loop on; that is not what a test left behind. */
__attribute__((constructor)) static void warm_up(void)
{
    uv_loop_t loop;

    signal(SIGPIPE, SIG_IGN); /* as in every program that uses libuv's streams */
    if (uv_loop_init(&loop) < 0 || uv_loop_close(&loop) < 0) {
        abort();
    }
}

/* Turns the loop until cond holds or the deadline is over. */
#define TURN_UNTIL(loop, cond) TEST_UNTIL((uv_run((loop), UV_RUN_NOWAIT), (cond)))
#define REQUIRE_IN_TURNS(loop, cond) \
    TEST_OR_END(test_report(TURN_UNTIL(loop, cond), __FILE__, __LINE__, "in the end " #cond))

static inline struct mr_addr loopback(uint16_t port)
{
    return (struct mr_addr){.ip = {127, 0, 0, 1}, .family = 4, .port = port};
}

/* A nonblocking socket; its own, so that a test may make it before it runs out of descriptors. */
static inline int client_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    REQUIRE(fd >= 0);
    return fd;
}

/* from: an IPv4 address of loopback, NULL: 127.0.0.1. */
static inline void client_connect(int fd, const struct mr_addr *to, const char *from)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(to->port)};

    if (from) {
        struct sockaddr_in own = {.sin_family = AF_INET};
        REQUIRE_EQ(inet_pton(AF_INET, from, &own.sin_addr), 1);
        REQUIRE_EQ(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    }
    memcpy(&sa.sin_addr, to->ip, 4);
    if (connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0) {
        REQUIRE_EQ(errno, EINPROGRESS);
    }
}

static inline int client_open(const struct mr_addr *to)
{
    int fd = client_socket();

    client_connect(fd, to, NULL);
    return fd;
}

/* What a client has read so far. */
struct reply {
    size_t n;
    bool is_end; /* FIN or an error */
    int error;
    char text[256 * 1024];
};

static inline bool client_read(int fd, struct reply *r)
{
    ssize_t k = recv(fd, r->text + r->n, sizeof r->text - 1 - r->n, MSG_DONTWAIT);

    if (k > 0) {
        r->n += (size_t)k;
    } else if (k == 0) {
        r->is_end = true;
    } else if (errno != EAGAIN && errno != EINPROGRESS) {
        r->is_end = true;
        r->error = errno;
    }
    r->text[r->n] = 0;
    return r->is_end;
}

/* valgrind keeps descriptors for itself and plays the limit: the kernel does not say that none is
 * left. */
static inline void need_the_kernels_limit(void)
{
    if (getenv("MR_TEST_VALGRIND"))
        TEST_SKIP("valgrind plays the limit of descriptors");
}

/* A process that has no descriptor left. */
struct shortage {
    struct rlimit before;
    int fds[128], n;
};

static inline void shortage_begin(struct shortage *s)
{
    struct rlimit low;

    REQUIRE_EQ(getrlimit(RLIMIT_NOFILE, &s->before), 0);
    low = s->before;
    low.rlim_cur = sizeof s->fds / sizeof s->fds[0];
    REQUIRE_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    s->n = 0;
    while ((s->fds[s->n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
        s->n++;
    }
}

static inline void shortage_end(struct shortage *s)
{
    while (s->n > 0) {
        close(s->fds[--s->n]);
    }
    setrlimit(RLIMIT_NOFILE, &s->before);
}

/* From here on there is no descriptor, not even for whoever closes one that was opened after the
 * one that is given up: all smaller numbers are in use. Returns what shortage_end() wants. */
static inline struct shortage shortage_below(int fd)
{
    struct shortage s = {.n = 0};
    struct rlimit low;

    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &s.before), 0);
    low = s.before;
    low.rlim_cur = (rlim_t)fd;
    close(fd);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    return s;
}

/* Whether the loop waits when there is nothing to do: one that spins turns without end. Turns and
 * not time of computing, of which a busy machine gives little to either. */
static inline bool loop_sleeps(uv_loop_t *loop)
{
    uint64_t until = test_now_ms() + 300;
    unsigned turns = 0;

    while (test_now_ms() < until) {
        struct pollfd p = {.fd = uv_backend_fd(loop), .events = POLLIN};
        uv_run(loop, UV_RUN_NOWAIT);
        poll(&p, 1, 50);
        turns++;
    }
    return turns < 50;
}

/* Ends the loop of a test: nothing may be left on it. */
static inline void loop_end(uv_loop_t *loop)
{
    CHECK(TURN_UNTIL(loop, !uv_loop_alive(loop)));
    CHECK_EQ(uv_loop_close(loop), 0);
}

#endif
