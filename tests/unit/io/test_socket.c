/* SPDX-License-Identifier: MIT */
/*
 * Opening sockets, addresses in the kernel's form, and the poller. One thread.
 * Start reading at the tests.
 */
#include "io/machine.h"
#include "io/poller.h"
#include "io/socket.h"
#include "test.h"

#include <pthread.h>
#include <string.h>

static struct mr_addr addr(const char *text)
{
    struct mr_addr a = {.port = 0};

    CHECK_EQ((int)mr_addr_parse(&a, text, strlen(text), NULL), (int)MR_ADDR_OK);
    return a;
}

static int open_at(const char *text, unsigned flags, struct socket_info *info)
{
    struct mr_addr local = addr(text);

    return mr__socket_open(&local, flags, 1 << 20, info);
}

TEST(a_second_socket_cannot_share_an_address)
{
    struct socket_info info, other;
    int fd = open_at("127.0.0.1:0", 0, &info);
    char text[MR_ADDR_TEXT_MAX];

    REQUIRE_GE(fd, 0);
    CHECK_GT(info.local.port, 0);
    mr_addr_format(&info.local, text, sizeof text);
    CHECK_EQ(open_at(text, 0, &other), -EADDRINUSE);
    mr__socket_close(fd);
}

TEST(a_socket_that_yields_has_one_successor_who_gets_what_comes)
{
    struct socket_info info, other;
    int fd = open_at("127.0.0.1:0", 0, &info), next, sender;
    char text[MR_ADDR_TEXT_MAX], buf[8];
    union socket_addr to;
    socklen_t len;

    REQUIRE_GE(fd, 0);
    mr_addr_format(&info.local, text, sizeof text);
    CHECK_EQ(open_at(text, SOCKET_SUCCESSOR, &other), -EADDRINUSE); /* it does not yield */
    mr__socket_yield(fd);
    CHECK_EQ(open_at(text, 0, &other), -EADDRINUSE);
    next = open_at(text, SOCKET_SUCCESSOR, &other);
    REQUIRE_GE(next, 0);
    CHECK(mr_addr_equal(&info.local, &other.local));
    CHECK_EQ(open_at(text, SOCKET_SUCCESSOR, &other), -EADDRINUSE);
    sender = open_at("127.0.0.1:0", 0, &other);
    REQUIRE_GE(sender, 0);
    len = mr__socket_addr_write(&to, &info.local, 4);
    CHECK_EQ(sendto(sender, "x", 1, 0, &to.any, len), 1);
    CHECK_EVENTUALLY(recv(next, buf, sizeof buf, MSG_DONTWAIT) == 1);
    CHECK_EQ(recv(fd, buf, sizeof buf, MSG_DONTWAIT), -1);
    mr__socket_close(sender);
    mr__socket_close(next);
    mr__socket_close(fd);
}

TEST(an_address_without_family_opens_nothing)
{
    struct mr_addr none = {.port = 1};
    struct socket_info info;

    CHECK_EQ(mr__socket_open(&none, 0, 0, &info), -EINVAL);
}

TEST(a_foreign_address_cannot_be_bound)
{
    struct socket_info info;

    CHECK_EQ(open_at("192.0.2.1:0", 0, &info), -EADDRNOTAVAIL);
}

TEST(buffers_are_asked_for_and_what_was_granted_is_told)
{
    struct socket_info info;
    int fd = open_at("127.0.0.1:0", 0, &info);

    REQUIRE_GE(fd, 0);
    CHECK_GT(info.rcvbuf, 0);
    CHECK_GT(info.sndbuf, 0);
    if (geteuid() == 0) {
        CHECK_EQ(info.rcvbuf, 1 << 20);
        CHECK_EQ(info.sndbuf, 1 << 20);
    }
    mr__socket_close(fd);
}

TEST(what_a_full_buffer_loses_is_counted)
{
    struct mr_addr local = addr("127.0.0.1:0");
    struct socket_info info, sender_info;
    int fd = mr__socket_open(&local, 0, 4096, &info);
    int sender = mr__socket_open(&local, 0, 1 << 20, &sender_info);
    union socket_addr sa;
    uint64_t drops = 77;
    char payload[1000] = {0};

    REQUIRE_GE(fd, 0);
    REQUIRE_GE(sender, 0);
    CHECK_EQ(mr__socket_drops(fd, &drops), 0);
    CHECK_EQ(drops, 0);
    for (unsigned i = 0; i < 100; i++)
        (void)sendto(sender, payload, sizeof payload, 0, &sa.any,
                     mr__socket_addr_write(&sa, &info.local, 4));
    CHECK_EQ(mr__socket_drops(fd, &drops), 0);
    CHECK_GT(drops, 50);
    CHECK_LT(drops, 100);
    mr__socket_close(fd);
    CHECK_EQ(mr__socket_drops(fd, &drops), -EBADF);
    mr__socket_close(sender);
}

TEST(a_dual_stack_socket_shows_ipv4_peers_in_their_own_form)
{
    struct socket_info info, v4;
    int fd = open_at("[::]:0", SOCKET_DUAL_STACK, &info), sender;
    struct mr_addr to = addr("127.0.0.1:1"), from;
    union socket_addr sa;
    socklen_t len = sizeof sa;
    char byte;

    if (fd == -EAFNOSUPPORT)
        TEST_SKIP("no IPv6 here");
    REQUIRE_GE(fd, 0);
    sender = open_at("127.0.0.1:0", 0, &v4);
    to.port = info.local.port;
    CHECK_EQ(sendto(sender, "x", 1, 0, &sa.any, mr__socket_addr_write(&sa, &to, 4)), 1);
    len = sizeof sa;
    CHECK_EQ(recvfrom(fd, &byte, 1, 0, &sa.any, &len), 1);
    CHECK_EQ(sa.any.sa_family, AF_INET6);
    mr__socket_addr_read(&from, &sa);
    CHECK(mr_addr_equal(&from, &v4.local));

    /* And back, through the mapped form. */
    CHECK_EQ(sendto(fd, "y", 1, 0, &sa.any, mr__socket_addr_write(&sa, &from, 6)), 1);
    CHECK_EQ(recv(sender, &byte, 1, 0), 1);
    CHECK_EQ(byte, 'y');
    mr__socket_close(fd);
    mr__socket_close(sender);
}

/* The same number in IPv4 may belong to another program, so some are tried. */
TEST(an_ipv6_socket_leaves_ipv4_alone)
{
    int other = -EADDRINUSE;

    for (unsigned tries = 0; other == -EADDRINUSE && tries < 16; tries++) {
        struct mr_addr same = addr("127.93.17.5:1");
        struct socket_info v6, v4;
        int fd = open_at("[::]:0", 0, &v6);

        if (fd == -EAFNOSUPPORT)
            TEST_SKIP("no IPv6 here");
        REQUIRE_GE(fd, 0);
        same.port = v6.local.port;
        other = mr__socket_open(&same, 0, 0, &v4);
        if (other >= 0)
            mr__socket_close(other);
        mr__socket_close(fd);
    }
    CHECK_GE(other, 0);
}

TEST(addresses_survive_the_way_to_the_kernel_and_back)
{
    static const char *const texts[] = {"1.2.3.4:5", "255.255.255.255:65535", "[2001:db8::1]:80",
                                        "[fe80::1%3]:9", "[::1]:1"};

    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct mr_addr a = addr(texts[i]), back;
        union socket_addr sa;

        mr__socket_addr_write(&sa, &a, a.family);
        mr__socket_addr_read(&back, &sa);
        CHECK(mr_addr_equal(&a, &back));
        if (a.family == 4) {
            mr__socket_addr_write(&sa, &a, 6);
            mr__socket_addr_read(&back, &sa);
            CHECK(mr_addr_equal(&a, &back));
        }
    }
}

/* ------------------------------------------------------------------ poller */

TEST(readable_sockets_are_named_by_their_tags)
{
    struct poller p;
    struct socket_info info[2];
    int fd[2] = {open_at("127.0.0.1:0", 0, &info[0]), open_at("127.0.0.1:0", 0, &info[1])};
    uint32_t tags[POLLER_READY_MAX];
    union socket_addr sa;

    REQUIRE_EQ(mr__poller_init(&p), 0);
    CHECK_EQ(mr__poller_add(&p, fd[0], 10), 0);
    CHECK_EQ(mr__poller_add(&p, fd[1], 11), 0);
    CHECK_EQ(mr__poller_wait(&p, tags, 0), 0);
    CHECK_EQ(sendto(fd[0], "x", 1, 0, &sa.any, mr__socket_addr_write(&sa, &info[1].local, 4)), 1);
    CHECK_EQ(mr__poller_wait(&p, tags, UINT64_MAX), 1);
    CHECK_EQ(tags[0], 11);
    mr__poller_remove(&p, fd[1]);
    CHECK_EQ(mr__poller_wait(&p, tags, 0), 0);
    mr__socket_close(fd[0]);
    mr__socket_close(fd[1]);
    mr__poller_deinit(&p);
}

TEST(a_reserved_socket_is_named_from_when_it_is_started)
{
    struct poller p;
    struct socket_info info;
    int fd = open_at("127.0.0.1:0", 0, &info);
    uint32_t tags[POLLER_READY_MAX];
    union socket_addr sa;

    REQUIRE_EQ(mr__poller_init(&p), 0);
    CHECK_EQ(mr__poller_reserve(&p, fd, 10), 0);
    CHECK_EQ(mr__poller_reserve(&p, fd, 10), -EEXIST);
    CHECK_EQ(sendto(fd, "x", 1, 0, &sa.any, mr__socket_addr_write(&sa, &info.local, 4)), 1);
    CHECK_EQ(mr__poller_wait(&p, tags, 0), 0);
    mr__poller_start(&p, fd, 10);
    CHECK_EQ(mr__poller_wait(&p, tags, UINT64_MAX), 1);
    CHECK_EQ(tags[0], 10);
    mr__socket_close(fd);
    CHECK_EQ(mr__poller_wait(&p, tags, 0), 0);
    mr__poller_deinit(&p);
}

static void *wake_soon(void *arg)
{
    test_pause();
    mr__poller_wake(arg);
    return NULL;
}

TEST(another_thread_ends_the_wait)
{
    struct poller p;
    pthread_t thread;
    uint32_t tags[POLLER_READY_MAX];

    REQUIRE_EQ(mr__poller_init(&p), 0);
    CHECK_EQ(pthread_create(&thread, NULL, wake_soon, &p), 0);
    CHECK_EQ(mr__poller_wait(&p, tags, UINT64_MAX), 0);
    pthread_join(thread, NULL);
    /* The wake-up was used up. */
    CHECK_EQ(mr__poller_wait(&p, tags, 0), 0);
    mr__poller_wake(&p);
    mr__poller_drain(&p);
    mr__poller_deinit(&p);
}

/* ------------------------------------------------------------------ the machine */

TEST(a_quota_of_cores_is_read_from_its_text)
{
    CHECK_EQ(mr__machine_quota_millicores("max 100000\n"), 0);
    CHECK_EQ(mr__machine_quota_millicores("150000 100000\n"), 1500);
    CHECK_EQ(mr__machine_quota_millicores("1 3\n"), 334);
    CHECK_EQ(mr__machine_quota_millicores("50000 0"), 0);
    CHECK_EQ(mr__machine_quota_millicores(""), 0);
    CHECK_EQ(mr__machine_quota_millicores("junk"), 0);
    CHECK_EQ(mr__machine_quota_millicores("18446744073709551615 1"), 0);
    CHECK_GE(mr__machine_cores(), 1);
}

TEST(loopback_is_among_our_addresses)
{
    struct mr_addr found[64], loopback = addr("127.0.0.1:0");
    int n = mr__machine_addresses(found, 64), is_there = 0;

    REQUIRE_GE(n, 1);
    for (int i = 0; i < n; i++)
        is_there |= mr_addr_equal(&found[i], &loopback);
    CHECK(is_there);
    CHECK_EQ(mr__machine_addresses(found, 0), 0);
}

TEST_MAIN(TEST_CASE(a_second_socket_cannot_share_an_address),
          TEST_CASE(a_socket_that_yields_has_one_successor_who_gets_what_comes),
          TEST_CASE(an_address_without_family_opens_nothing),
          TEST_CASE(a_foreign_address_cannot_be_bound),
          TEST_CASE(buffers_are_asked_for_and_what_was_granted_is_told),
          TEST_CASE(what_a_full_buffer_loses_is_counted),
          TEST_CASE(a_dual_stack_socket_shows_ipv4_peers_in_their_own_form),
          TEST_CASE(an_ipv6_socket_leaves_ipv4_alone),
          TEST_CASE(addresses_survive_the_way_to_the_kernel_and_back),
          TEST_CASE(readable_sockets_are_named_by_their_tags),
          TEST_CASE(a_reserved_socket_is_named_from_when_it_is_started),
          TEST_CASE(another_thread_ends_the_wait),
          TEST_CASE(a_quota_of_cores_is_read_from_its_text),
          TEST_CASE(loopback_is_among_our_addresses))
