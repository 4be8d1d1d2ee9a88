/* SPDX-License-Identifier: MIT */
/*
 * The registrar's socket: where replies leave from, on both families, and that a client
 * which is gone or a destination that is refused costs its own reply only.
 */
#include "control/registrar.h"

#include "loop.h"
#include "test.h"

struct fixture {
    uv_loop_t loop;
    struct registrar *registrar;
    struct mr_addr at, from, local; /* of the last datagram */
    unsigned received;
    size_t size;
    bool is_silent;
};

static void on_datagram(void *user, const struct mr_addr *from, const struct mr_addr *local,
                        const void *data, size_t n)
{
    struct fixture *f = user;

    f->received++;
    f->from = *from;
    f->local = *local;
    f->size = n;
    if (!f->is_silent) {
        mr__registrar_reply(f->registrar, from, local, data, n < 8 ? n : 8);
    }
}

static void set_up(struct fixture *f, struct mr_addr local)
{
    struct registrar_options opts = {.loop = &f->loop,
                                     .local = local,
                                     .buffer_bytes = 64 * 1024,
                                     .user = f,
                                     .on_datagram = on_datagram};

    memset(f, 0, sizeof *f);
    REQUIRE_EQ(uv_loop_init(&f->loop), 0);
    REQUIRE_EQ(mr__registrar_open(&f->registrar, &opts, &f->at), 0);
    REQUIRE_EQ(mr__registrar_start(f->registrar), 0);
}

static void tear_down(struct fixture *f)
{
    mr__registrar_destroy(f->registrar);
    loop_end(&f->loop);
}

/* A client that only hears from the address it asked: a connected socket. */
static int client_at(int family, const char *ip, uint16_t port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } sa;
    int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t len = family == AF_INET ? sizeof sa.v4 : sizeof sa.v6;

    REQUIRE(fd >= 0);
    memset(&sa, 0, sizeof sa);
    sa.any.sa_family = (sa_family_t)family;
    if (family == AF_INET) {
        sa.v4.sin_port = htons(port);
        REQUIRE_EQ(inet_pton(AF_INET, ip, &sa.v4.sin_addr), 1);
    } else {
        sa.v6.sin6_port = htons(port);
        REQUIRE_EQ(inet_pton(AF_INET6, ip, &sa.v6.sin6_addr), 1);
    }
    REQUIRE_EQ(connect(fd, &sa.any, len), 0);
    return fd;
}

static void check_answered(struct fixture *f, int fd, const char *text)
{
    char answer[64];
    ssize_t n = -1;

    REQUIRE_EQ(send(fd, text, strlen(text), 0), (ssize_t)strlen(text));
    REQUIRE_IN_TURNS(&f->loop, (n = recv(fd, answer, sizeof answer, 0)) >= 0);
    CHECK_MEM(answer, (size_t)n, text, strlen(text));
}

static bool has_ipv6(void)
{
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool is = fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof sa) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return is;
}

TEST(a_reply_leaves_from_the_address_that_was_asked)
{
    struct fixture f;
    char text[MR_ADDR_TEXT_MAX];

    set_up(&f, (struct mr_addr){.family = 4});
    int first = client_at(AF_INET, "127.0.0.1", f.at.port);
    int second = client_at(AF_INET, "127.7.7.7", f.at.port);
    check_answered(&f, second, "two");
    mr_addr_format_ip(&f.local, text, sizeof text);
    CHECK_STR(text, "127.7.7.7");
    CHECK_EQ(f.local.port, f.at.port);
    check_answered(&f, first, "one");
    close(first);
    close(second);
    tear_down(&f);
}

TEST(one_socket_serves_both_families_and_v4_is_seen_as_v4)
{
    struct fixture f;

    if (!has_ipv6()) {
        TEST_SKIP("no IPv6 here");
    }
    set_up(&f, (struct mr_addr){.family = 6});
    int v4 = client_at(AF_INET, "127.9.9.9", f.at.port);
    int v6 = client_at(AF_INET6, "::1", f.at.port);
    check_answered(&f, v4, "four");
    CHECK_EQ(f.from.family, 4);
    CHECK_EQ(f.local.family, 4);
    check_answered(&f, v6, "six");
    CHECK_EQ(f.from.family, 6);
    CHECK_EQ(f.local.family, 6);
    close(v4);
    close(v6);
    tear_down(&f);
}

TEST(clients_that_are_gone_disturb_nobody)
{
    struct fixture f;

    set_up(&f, loopback(0));
    int stays = client_at(AF_INET, "127.0.0.1", f.at.port);
    for (int i = 0; i < 100; i++) {
        int gone = client_at(AF_INET, "127.0.0.1", f.at.port);
        REQUIRE_EQ(send(gone, "junk", 4, 0), 4);
        close(gone); /* the reply bounces as an ICMP error */
    }
    REQUIRE_IN_TURNS(&f.loop, f.received == 100);
    check_answered(&f, stays, "still");
    close(stays);
    tear_down(&f);
}

TEST(a_refused_reply_costs_itself_and_is_counted)
{
    struct fixture f;
    struct registrar_counts counts;
    struct mr_addr broadcast = {.ip = {255, 255, 255, 255}, .family = 4, .port = 9};
    struct mr_addr foreign = {.ip = {203, 0, 113, 1}, .family = 4};

    set_up(&f, loopback(0));
    int client = client_at(AF_INET, "127.0.0.1", f.at.port);
    mr__registrar_reply(f.registrar, &broadcast, NULL, "x", 1);
    mr__registrar_reply(f.registrar, &broadcast, &foreign, "x", 1);
    check_answered(&f, client, "mine");
    mr__registrar_counts(f.registrar, &counts);
    CHECK_EQ(counts.replies_failed, 2u);
    CHECK_EQ(counts.receive_errors, 0u);
    close(client);
    tear_down(&f);
}

TEST(sizes_from_nothing_to_the_largest_are_told_apart)
{
    static char large[60000];
    struct fixture f;

    set_up(&f, loopback(0));
    f.is_silent = true;
    int client = client_at(AF_INET, "127.0.0.1", f.at.port);
    REQUIRE_EQ(send(client, large, 0, 0), 0);
    REQUIRE_IN_TURNS(&f.loop, f.received == 1);
    CHECK_EQ(f.size, 0u);
    REQUIRE_EQ(send(client, large, 256, 0), 256);
    REQUIRE_IN_TURNS(&f.loop, f.received == 2);
    CHECK_EQ(f.size, 256u);
    REQUIRE_EQ(send(client, large, sizeof large, 0), (ssize_t)sizeof large);
    REQUIRE_IN_TURNS(&f.loop, f.received == 3);
    CHECK_GT(f.size, 256u);
    close(client);
    tear_down(&f);
}

TEST(what_the_receive_buffer_loses_is_counted)
{
    static char data[1000];
    struct fixture f;
    struct registrar_counts counts;

    set_up(&f, loopback(0));
    f.is_silent = true;
    int client = client_at(AF_INET, "127.0.0.1", f.at.port);
    for (int i = 0; i < 5000; i++) {
        REQUIRE_EQ(send(client, data, sizeof data, 0), (ssize_t)sizeof data);
    }
    mr__registrar_counts(f.registrar, &counts);
    CHECK_GT(counts.kernel_drops, 0u);
    REQUIRE_IN_TURNS(&f.loop, f.received + counts.kernel_drops == 5000);
    close(client);
    tear_down(&f);
}

TEST_MAIN(TEST_CASE(a_reply_leaves_from_the_address_that_was_asked),
          TEST_CASE(one_socket_serves_both_families_and_v4_is_seen_as_v4),
          TEST_CASE(clients_that_are_gone_disturb_nobody),
          TEST_CASE(a_refused_reply_costs_itself_and_is_counted),
          TEST_CASE(sizes_from_nothing_to_the_largest_are_told_apart),
          TEST_CASE(what_the_receive_buffer_loses_is_counted))
