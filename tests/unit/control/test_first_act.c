/* SPDX-License-Identifier: MIT */
/*
 * Programs whose first act is to bind an endpoint to a literal on a fresh loop. Each is a process
 * of its own, in which nothing of libuv has run before.
 */
#include "control/udp.h"

#include "test.h"

#include <uv.h>

enum {
    TURNS_MAX = 3
}; /* of uv_run() until the callback has come: one lookup, one bind, one spare */

struct act {
    struct mr_udp *udp;
    unsigned called;
    int rc;
    struct mr_addr local;
};

static void on_bound(void *arg, const struct mr_udp_result *r)
{
    struct act *a = arg;

    a->called++;
    a->rc = r->rc;
    if (r->rc == 0) {
        a->rc = mr_udp_address(a->udp, &a->local);
    }
    mr_udp_close(a->udp, NULL, NULL); /* or UV_RUN_DEFAULT would wait for datagrams */
}

/* 0, or what went wrong. */
static int program(const char *host, int family, uv_run_mode mode)
{
    struct mr_lookup_options lookup_options = {.size = sizeof(struct mr_lookup_options),
                                               .threads = 0};
    struct mr_udp_options options;
    struct mr_lookup *lookup;
    struct act a = {.called = 0};
    uv_loop_t loop;
    unsigned turns = 0;

    if (uv_loop_init(&loop) != 0) {
        return 1;
    }
    lookup_options.loop = &loop;
    mr_udp_options_init(&options, sizeof options);
    options.loop = &loop;
    options.family = family;
    if (mr_lookup_create(&lookup, &lookup_options) < 0 ||
        mr_udp_create(&a.udp, lookup, &options) < 0 ||
        mr_udp_bind(a.udp, host, strlen(host), 0, on_bound, &a) < 0) {
        return 2;
    }
    if (a.called != 0) {
        return 3; /* before the call returned */
    }
    while (a.called == 0 && turns < TURNS_MAX) {
        turns++;
        uv_run(&loop, mode);
    }
    if (a.called != 1 || a.rc != 0 || a.local.port == 0 || a.local.family != family) {
        return 4;
    }
    if (mode == UV_RUN_DEFAULT && turns != 1) {
        return 5; /* it returned although something was due */
    }
    mr_lookup_destroy(lookup);
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 && a.called == 1 ? 0 : 6;
}

static int in_a_process(const char *host, int family, uv_run_mode mode)
{
    pid_t child = fork();
    int status = -1;

    REQUIRE(child >= 0);
    if (child == 0) {
        _exit(program(host, family, mode));
    }
    REQUIRE_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(a_bind_that_is_the_first_act_is_called_back_by_uv_run_default)
{
    CHECK_EQ(in_a_process("127.0.0.1", 4, UV_RUN_DEFAULT), 0);
    CHECK_EQ(in_a_process("::1", 6, UV_RUN_DEFAULT), 0);
}

TEST(a_bind_that_is_the_first_act_is_called_back_by_uv_run_once)
{
    CHECK_EQ(in_a_process("127.0.0.1", 4, UV_RUN_ONCE), 0);
    CHECK_EQ(in_a_process("::1", 6, UV_RUN_ONCE), 0);
}

TEST(a_bind_that_is_the_first_act_is_called_back_by_uv_run_nowait)
{
    CHECK_EQ(in_a_process("127.0.0.1", 4, UV_RUN_NOWAIT), 0);
    CHECK_EQ(in_a_process("::1", 6, UV_RUN_NOWAIT), 0);
}

TEST_MAIN(TEST_CASE(a_bind_that_is_the_first_act_is_called_back_by_uv_run_default),
          TEST_CASE(a_bind_that_is_the_first_act_is_called_back_by_uv_run_once),
          TEST_CASE(a_bind_that_is_the_first_act_is_called_back_by_uv_run_nowait))
