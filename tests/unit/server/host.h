/* SPDX-License-Identifier: MIT */
/*
 * A host program of the server: it has it on a loop of its own, in this thread, and reaches it by
 * sockets like everybody else. For the tests of this folder, each of which has a copy. Start
 * reading at start().
 */
#ifndef MR_TESTS_SERVER_HOST_H
#define MR_TESTS_SERVER_HOST_H

#include "server/moonrelay/server.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <uv.h>

static void nothing(uv_work_t *work)
{
    (void)work;
}

static void forget(uv_work_t *work, int status)
{
    (void)work, (void)status;
}

/* libuv keeps a pipe for signals from its first loop on, and its threads from the first work on. */
__attribute__((constructor)) static void warm_up(void)
{
    uv_loop_t loop;
    uv_work_t work;

    if (uv_loop_init(&loop) < 0 || uv_queue_work(&loop, &work, nothing, forget) < 0 ||
        uv_run(&loop, UV_RUN_DEFAULT) != 0 || uv_loop_close(&loop) < 0) {
        abort();
    }
}

static const char *const quiet[] = {
    "socket_host=127.0.0.1", "http_host=127.0.0.1",  "udp_host=127.0.0.1",  "socket_port=0",
    "http_port=0",           "udp_registrar_port=0", "udp_relay_ports=0+7", "control=",
    "loglevel=warn",
};
enum { QUIET = sizeof quiet / sizeof quiet[0], SETS_MAX = QUIET + 4 };

/* A host program: where the log goes, and what it was told. */
struct host {
    struct mr_server *server;
    struct mr_server_error err;
    int log;
    int rc;
};

static inline void start(struct host *h, const char *const *more, size_t n_more)
{
    const char *sets[SETS_MAX];
    struct mr_server_options opts;
    char path[] = "/tmp/moonrelay-server-XXXXXX";

    memset(h, 0, sizeof *h);
    memcpy(sets, quiet, sizeof quiet);
    for (size_t i = 0; i < n_more; i++) {
        sets[QUIET + i] = more[i];
    }
    h->log = mkstemp(path);
    REQUIRE(h->log >= 0);
    unlink(path);
    mr_server_options_init(&opts, sizeof opts);
    opts.sets = sets;
    opts.n_sets = QUIET + n_more;
    opts.log_fd = h->log;
    h->rc = mr_server_create(&h->server, &opts, &h->err);
}

static inline void end(struct host *h)
{
    mr_server_destroy(h->server);
    close(h->log);
}

/* One turn of a host that sleeps elsewhere; never longer than 10 ms, since tests poll. */
static inline int turn(struct host *h)
{
    struct pollfd p = {.fd = mr_server_fd(h->server), .events = POLLIN};
    int wait_ms = mr_server_timeout_ms(h->server);

    poll(&p, 1, wait_ms < 0 || wait_ms > 10 ? 10 : wait_ms);
    return mr_server_step(h->server);
}

#define REQUIRE_IN_TURNS(h, cond) \
    TEST_OR_END(test_report(TEST_UNTIL((turn(h), (cond))), __FILE__, __LINE__, "in the end " #cond))

/* The port of "name=127.0.0.1:PORT". */
static inline uint16_t port_of(const struct host *h, const char *name)
{
    const char *at = strstr(mr_server_endpoints(h->server), name);

    at = at ? strchr(at, ':') : NULL;
    return at ? (uint16_t)strtoul(at + 1, NULL, 10) : 0;
}

static inline int client_open(int type, uint16_t port)
{
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    REQUIRE(fd >= 0);
    if (connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0) {
        REQUIRE_EQ(errno, EINPROGRESS);
    }
    return fd;
}

/* Sends text and waits until the answer has `end` in it. */
static inline void ask(struct host *h, int fd, const char *text, const char *end_mark, char *answer,
                       size_t cap)
{
    size_t n = 0;

    REQUIRE_IN_TURNS(h, send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
    REQUIRE_IN_TURNS(h, ({
                         ssize_t k = recv(fd, answer + n, cap - 1 - n, 0);
                         n += k > 0 ? (size_t)k : 0;
                         answer[n] = 0;
                         strstr(answer, end_mark) != NULL;
                     }));
}

#endif
