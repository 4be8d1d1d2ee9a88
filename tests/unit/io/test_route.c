/* SPDX-License-Identifier: MIT */
/*
 * Which of our addresses speaks to a peer. One thread, and a process that may not have a socket of
 * its own. Start reading at the tests.
 */
#include "io/machine.h"
#include "io/route.h"
#include "test.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct mr_addr ip(const char *text)
{
    struct mr_addr a = {.port = 0};

    CHECK_EQ((int)mr_addr_parse_ip(&a, text, strlen(text), NULL), (int)MR_ADDR_OK);
    return a;
}

/* From now on this process gets no socket of the internet's families: EACCES. */
static int forbid_internet_sockets(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof steps / sizeof steps[0], .filter = steps};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}

static int has_address(const char *text)
{
    struct mr_addr found[64], wanted = ip(text);
    int n = mr__machine_addresses(found, 64), is_there = 0;

    for (int i = 0; i < n; i++)
        is_there |= mr_addr_equal(&found[i], &wanted);
    return is_there;
}

static int is_source(const char *peer, const char *expected)
{
    struct mr_addr to = ip(peer), source = {.port = 7}, wanted = ip(expected);

    return mr__route_source(&to, &source) == 0 && mr_addr_equal(&source, &wanted);
}

TEST(loopback_is_spoken_to_from_loopback)
{
    CHECK(is_source("127.0.0.1", "127.0.0.1"));
    CHECK(is_source("127.9.8.7", "127.0.0.1"));
    CHECK(!has_address("::1") || is_source("::1", "::1"));
}

/* Another address may speak to a link-local peer, and is that one whatever the interface. */
TEST(an_address_that_needs_no_interface_has_none)
{
    struct mr_addr peer = ip("::1"), expected = peer, source;

    if (!has_address("::1"))
        TEST_SKIP("no IPv6 here");
    peer.scope_id = 1; /* lo */
    REQUIRE_EQ(mr__route_source(&peer, &source), 0);
    CHECK(mr_addr_equal(&source, &expected));
}

/* A UDP socket that asks by connect(2) makes the kernel lose what is for other ports. */
TEST(the_routes_are_asked_without_a_socket_of_the_internet)
{
    enum { NO_SECCOMP = 2 };
    int has_v6 = has_address("::1"), status = 0;
    pid_t child = fork();

    REQUIRE_GE(child, 0);
    if (child == 0) {
        if (forbid_internet_sockets() < 0)
            _exit(NO_SECCOMP);
        if (socket(AF_INET, SOCK_DGRAM, 0) >= 0 || socket(AF_INET6, SOCK_DGRAM, 0) >= 0)
            _exit(3);
        _exit(is_source("127.0.0.5", "127.0.0.1") && (!has_v6 || is_source("::1", "::1")) ? 0 : 1);
    }
    REQUIRE_EQ(waitpid(child, &status, 0), child);
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_SECCOMP)
        TEST_SKIP("there is no seccomp here");
    CHECK_EQ(WEXITSTATUS(status), 0);
}

TEST(a_peer_that_no_route_leads_to_is_an_error)
{
    struct mr_addr source, nobody = {.family = 0}, link_local = ip("fe80::1");

    CHECK_EQ(mr__route_source(&nobody, &source), -EINVAL);
    link_local.scope_id = 0x7ffffff0; /* no such interface */
    CHECK_LT(mr__route_source(&link_local, &source), 0);
}

TEST_MAIN(TEST_CASE(loopback_is_spoken_to_from_loopback),
          TEST_CASE(an_address_that_needs_no_interface_has_none),
          TEST_CASE(the_routes_are_asked_without_a_socket_of_the_internet),
          TEST_CASE(a_peer_that_no_route_leads_to_is_an_error))
