/* SPDX-License-Identifier: MIT */
/*
 * TCP listeners over the kernel's loopback. One thread. Start reading at the tests.
 */
#include "io/listener.h"
#include "test.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

/* A listener at 127.0.0.1, a client connected to it, and the accepted end. */
struct fixture {
    int listener, client, accepted;
    struct mr_addr bound, peer, local;
};

static void fixture_open(struct fixture *f)
{
    struct listener_options opts = {.backlog = 4};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};

    REQUIRE_EQ((int)mr_addr_parse(&opts.local, "127.0.0.1:0", 11, NULL), (int)MR_ADDR_OK);
    f->listener = mr__listener_open(&opts, &f->bound);
    REQUIRE_GE(f->listener, 0);
    to.sin_port = htons(f->bound.port);
    f->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE_GE(f->client, 0);
    REQUIRE_EQ(connect(f->client, (struct sockaddr *)&to, sizeof to), 0);
    CHECK_EVENTUALLY((f->accepted = mr__listener_accept(f->listener, &f->peer, &f->local)) >= 0);
}

static void fixture_close(struct fixture *f)
{
    mr__listener_close(f->accepted);
    mr__listener_close(f->client);
    mr__listener_close(f->listener);
}

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t n = sizeof value;

    CHECK_EQ(getsockopt(fd, level, name, &value, &n), 0);
    return value;
}

TEST(a_peer_that_vanished_is_found_by_keepalive_and_a_lost_answer_by_its_timeout)
{
    const struct keepalive k = {
        .idle_s = 30, .interval_s = 10, .count = 3, .user_timeout_ms = 60000};
    struct fixture f;

    fixture_open(&f);
    mr__listener_tune(f.accepted, &k);
    CHECK_EQ(option(f.accepted, SOL_SOCKET, SO_KEEPALIVE), 1);
    CHECK_EQ(option(f.accepted, IPPROTO_TCP, TCP_KEEPIDLE), 30);
    CHECK_EQ(option(f.accepted, IPPROTO_TCP, TCP_KEEPINTVL), 10);
    CHECK_EQ(option(f.accepted, IPPROTO_TCP, TCP_KEEPCNT), 3);
    CHECK_EQ(option(f.accepted, IPPROTO_TCP, TCP_USER_TIMEOUT), 60000);
    CHECK_EQ(option(f.accepted, IPPROTO_TCP, TCP_NODELAY), 1);
    fixture_close(&f);
}

TEST(an_accepted_connection_knows_both_its_addresses)
{
    struct sockaddr_in own = {0};
    socklen_t n = sizeof own;
    struct fixture f;

    fixture_open(&f);
    REQUIRE_EQ(getsockname(f.client, (struct sockaddr *)&own, &n), 0);
    CHECK_EQ(f.peer.port, ntohs(own.sin_port));
    CHECK_EQ(f.local.port, f.bound.port);
    CHECK_EQ(memcmp(f.local.ip, "\x7f\0\0\x01", 4), 0);
    CHECK_EQ(mr__listener_accept(f.listener, &f.peer, &f.local), -EAGAIN);
    fixture_close(&f);
}

TEST(a_newcomer_can_be_ended_without_a_descriptor_to_spare)
{
    struct fixture f;
    int reserve = mr__listener_reserve();
    char c;

    REQUIRE_GE(reserve, 0);
    fixture_open(&f);
    CHECK_EQ(mr__listener_shed(f.listener, &reserve), -EAGAIN);

    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int newcomer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_port = htons(f.bound.port);
    REQUIRE_EQ(connect(newcomer, (struct sockaddr *)&to, sizeof to), 0);
    CHECK_EVENTUALLY(mr__listener_shed(f.listener, &reserve) == 0);
    CHECK_GE(reserve, 0);
    CHECK_LE(recv(newcomer, &c, 1, 0), 0);
    mr__listener_close(newcomer);
    mr__listener_close(reserve);
    fixture_close(&f);
}

TEST_MAIN(TEST_CASE(a_peer_that_vanished_is_found_by_keepalive_and_a_lost_answer_by_its_timeout),
          TEST_CASE(an_accepted_connection_knows_both_its_addresses),
          TEST_CASE(a_newcomer_can_be_ended_without_a_descriptor_to_spare))
