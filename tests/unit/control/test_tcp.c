/* SPDX-License-Identifier: MIT */
/*
 * The command channel's connections with real sockets and a handler that echoes: bounded
 * output, half-close, resets, shortage of descriptors, the end.
 */
#include "control/tcp.h"

#include "loop.h"
#include "test.h"

#include <sys/resource.h>

enum { OUTPUT_BYTES = 64 * 1024, CONNS_MAX = 2000 };

struct fixture {
    uv_loop_t loop;
    uv_prepare_t settle;
    struct tcp *tcp;
    struct mr_addr at;
    conn_id next;
    unsigned accepted, eofs, closed;
    enum conn_end why; /* of the last one closed */
    size_t received;
    char last[64]; /* the end of what came */
    conn_id last_conn;
    const char *greeting; /* sent from inside accepted() */
    bool refuses;         /* closes from inside accepted() */
    bool is_silent;       /* does not echo */
    bool keeps_open;      /* does not close at EOF */
};

static conn_id accepted(void *user, const struct mr_addr *peer, const struct mr_addr *local)
{
    struct fixture *f = user;
    conn_id id = ++f->next;

    CHECK_EQ(peer->family, 4);
    CHECK_EQ(local->port, f->at.port);
    f->accepted++;
    f->last_conn = id;
    if (f->greeting) {
        mr__tcp_send(f->tcp, id, f->greeting, strlen(f->greeting));
    }
    if (f->refuses) {
        mr__tcp_close(f->tcp, id);
    }
    return id;
}

static void input(void *user, conn_id id, const void *data, size_t n)
{
    struct fixture *f = user;

    f->received += n;
    if (!f->is_silent) {
        mr__tcp_send(f->tcp, id, data, n);
    }
}

static void eof(void *user, conn_id id)
{
    struct fixture *f = user;

    f->eofs++;
    if (!f->keeps_open) {
        mr__tcp_close(f->tcp, id);
    }
}

static void closed(void *user, conn_id id, enum conn_end why)
{
    struct fixture *f = user;

    (void)id;
    f->closed++;
    f->why = why;
}

static void on_prepare(uv_prepare_t *handle)
{
    mr__tcp_settle(((struct fixture *)handle->data)->tcp);
}

static void set_up(struct fixture *f)
{
    struct tcp_options opts = {
        .loop = &f->loop,
        .handler = {.user = f, .accepted = accepted, .input = input, .eof = eof, .closed = closed},
        .local = loopback(0),
        .max_connections = CONNS_MAX,
        .output_bytes = OUTPUT_BYTES,
    };

    memset(f, 0, sizeof *f);
    REQUIRE_EQ(uv_loop_init(&f->loop), 0);
    REQUIRE_EQ(mr__tcp_open(&f->tcp, &opts, &f->at), 0);
    REQUIRE_EQ(mr__tcp_start(f->tcp), 0);
    uv_prepare_init(&f->loop, &f->settle);
    f->settle.data = f;
    uv_prepare_start(&f->settle, on_prepare);
}

static void tear_down(struct fixture *f)
{
    mr__tcp_destroy(f->tcp);
    uv_close((uv_handle_t *)&f->settle, NULL);
    loop_end(&f->loop);
}

static struct reply got;

static void say(struct fixture *f, int fd, const char *text)
{
    REQUIRE_IN_TURNS(&f->loop, send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

TEST(what_is_sent_comes_back_and_a_half_closed_client_still_gets_it)
{
    struct fixture f;

    set_up(&f);
    int fd = client_open(&f.at);
    got = (struct reply){.n = 0};
    say(&f, fd, "echo one\n");
    say(&f, fd, "echo two");
    shutdown(fd, SHUT_WR);
    REQUIRE_IN_TURNS(&f.loop, client_read(fd, &got));
    CHECK_STR(got.text, "echo one\necho two");
    CHECK_EQ(got.error, 0);
    CHECK_EQ(f.eofs, 1u);
    CHECK_EQ(f.closed, 0u);
    close(fd);
    REQUIRE_IN_TURNS(&f.loop, mr__tcp_count(f.tcp) == 0);
    tear_down(&f);
}

TEST(a_connection_refused_while_it_is_accepted_gets_the_reason)
{
    struct fixture f;

    set_up(&f);
    f.greeting = "error connection:too-many\n";
    f.refuses = true;
    int fd = client_open(&f.at);
    /* It has already spoken: unread input must not turn the reason into a reset. */
    say(&f, fd, "register-host\n");
    got = (struct reply){.n = 0};
    REQUIRE_IN_TURNS(&f.loop, client_read(fd, &got));
    CHECK_STR(got.text, "error connection:too-many\n");
    CHECK_EQ(got.error, 0);
    CHECK_EQ(f.received, 0u);
    close(fd);
    REQUIRE_IN_TURNS(&f.loop, mr__tcp_count(f.tcp) == 0);
    CHECK_EQ(f.closed, 0u);
    tear_down(&f);
}

TEST(a_reset_is_reported_once_and_as_a_reset)
{
    struct fixture f;
    struct linger hard = {.l_onoff = 1, .l_linger = 0};

    set_up(&f);
    int fd = client_open(&f.at);
    say(&f, fd, "regis");
    REQUIRE_IN_TURNS(&f.loop, f.received == 5);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
    REQUIRE_IN_TURNS(&f.loop, mr__tcp_count(f.tcp) == 0);
    CHECK_EQ(f.closed, 1u);
    CHECK_EQ(f.why, MR_CONN_RESET);
    CHECK_EQ(f.eofs, 0u);
    tear_down(&f);
}

TEST(a_client_that_never_reads_is_closed_when_its_output_is_too_much)
{
    static char block[16 * 1024];
    struct fixture f;
    int small = 4096;

    set_up(&f);
    memset(block, 'x', sizeof block);
    int idle = client_open(&f.at);
    int fd = client_socket();
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    client_connect(fd, &f.at, NULL);
    REQUIRE_IN_TURNS(&f.loop, f.accepted == 2);
    REQUIRE_IN_TURNS(&f.loop, (send(fd, block, sizeof block, MSG_NOSIGNAL), f.closed == 1));
    CHECK_EQ(f.why, MR_CONN_OUTPUT);
    got = (struct reply){.n = 0};
    say(&f, idle, "echo there\n");
    REQUIRE_IN_TURNS(&f.loop, (client_read(idle, &got), got.n == 11));
    close(fd);
    close(idle);
    REQUIRE_IN_TURNS(&f.loop, mr__tcp_count(f.tcp) == 0);
    tear_down(&f);
}

TEST(output_that_the_peer_reads_slowly_arrives_whole)
{
    static char sent[200 * 1024];
    struct fixture f;
    size_t done = 0;

    set_up(&f);
    f.is_silent = true;
    for (size_t i = 0; i < sizeof sent; i++) {
        sent[i] = (char)('a' + i % 26);
    }
    int fd = client_open(&f.at);
    REQUIRE_IN_TURNS(&f.loop, f.accepted == 1);
    got = (struct reply){.n = 0};
    while (done < sizeof sent) {
        size_t n = sizeof sent - done < 10000 ? sizeof sent - done : 10000;
        mr__tcp_send(f.tcp, f.last_conn, sent + done, n);
        done += n;
        client_read(fd, &got);
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    mr__tcp_close(f.tcp, f.last_conn);
    REQUIRE_IN_TURNS(&f.loop, client_read(fd, &got));
    CHECK_MEM(got.text, got.n, sent, sizeof sent);
    close(fd);
    REQUIRE_IN_TURNS(&f.loop, mr__tcp_count(f.tcp) == 0);
    CHECK_EQ(f.closed, 0u);
    tear_down(&f);
}

TEST(a_paused_connection_is_not_read_until_it_may_go_on)
{
    struct fixture f;

    set_up(&f);
    int fd = client_open(&f.at);
    REQUIRE_IN_TURNS(&f.loop, f.accepted == 1);
    mr__tcp_pause(f.tcp, f.last_conn, true);
    say(&f, fd, "later\n");
    int other = client_open(&f.at);
    say(&f, other, "now\n");
    REQUIRE_IN_TURNS(&f.loop, f.received == 4);
    for (int i = 0; i < 20; i++) {
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    CHECK_EQ(f.received, 4u);
    mr__tcp_pause(f.tcp, 1, false);
    REQUIRE_IN_TURNS(&f.loop, f.received == 10);
    close(fd);
    close(other);
    REQUIRE_IN_TURNS(&f.loop, mr__tcp_count(f.tcp) == 0);
    tear_down(&f);
}

TEST(without_a_descriptor_left_a_connection_is_ended_and_nothing_spins)
{
    struct fixture f;
    struct shortage s;

    need_the_kernels_limit();
    set_up(&f);
    int first = client_open(&f.at);
    REQUIRE_IN_TURNS(&f.loop, f.accepted == 1);
    int late = client_socket();
    shortage_begin(&s);
    client_connect(late, &f.at, NULL);
    got = (struct reply){.n = 0};
    REQUIRE_IN_TURNS(&f.loop, client_read(late, &got));
    CHECK_EQ(f.accepted, 1u);

    CHECK(loop_sleeps(&f.loop));

    got = (struct reply){.n = 0};
    say(&f, first, "echo a\n");
    REQUIRE_IN_TURNS(&f.loop, (client_read(first, &got), got.n == 7));
    shortage_end(&s);
    int after = client_open(&f.at);
    REQUIRE_IN_TURNS(&f.loop, f.accepted == 2);
    close(first);
    close(late);
    close(after);
    REQUIRE_IN_TURNS(&f.loop, mr__tcp_count(f.tcp) == 0);
    tear_down(&f);
}

TEST(a_listener_that_has_lost_its_spare_descriptor_rests_and_comes_back)
{
    struct fixture f;

    need_the_kernels_limit();
    int low = open("/dev/null", O_RDONLY | O_CLOEXEC);
    set_up(&f);
    int late = client_socket();
    struct shortage s = shortage_below(low);
    client_connect(late, &f.at, NULL);
    CHECK(loop_sleeps(&f.loop));
    CHECK_EQ(f.accepted, 0u);
    shortage_end(&s);
    REQUIRE_IN_TURNS(&f.loop, f.accepted == 1);
    close(late);
    REQUIRE_IN_TURNS(&f.loop, mr__tcp_count(f.tcp) == 0);
    tear_down(&f);
}

TEST(a_stop_flushes_what_is_queued_and_takes_nobody_new)
{
    static char sent[50000];
    struct fixture f;

    set_up(&f);
    memset(sent, 'y', sizeof sent);
    int fd = client_open(&f.at);
    REQUIRE_IN_TURNS(&f.loop, f.accepted == 1);
    mr__tcp_send(f.tcp, f.last_conn, sent, sizeof sent);
    mr__tcp_stop(f.tcp);
    CHECK_EQ(f.closed, 1u);
    CHECK_EQ(f.why, MR_CONN_SHUTDOWN);
    int late = client_open(&f.at);
    got = (struct reply){.n = 0};
    REQUIRE_IN_TURNS(&f.loop, client_read(fd, &got));
    CHECK_EQ(got.n, sizeof sent);
    CHECK_EQ(got.error, 0);
    REQUIRE_IN_TURNS(&f.loop, mr__tcp_count(f.tcp) == 0);
    got = (struct reply){.n = 0};
    REQUIRE_IN_TURNS(&f.loop, client_read(late, &got));
    CHECK_EQ(got.error, ECONNREFUSED);
    close(late);
    close(fd);
    tear_down(&f);
}

TEST(connections_beyond_the_cap_are_ended)
{
    enum { MORE = 20 };
    struct fixture f;
    static int fds[MORE];
    unsigned ended = 0;

    set_up(&f);
    tear_down(&f);
    struct tcp_options opts = {
        .loop = &f.loop,
        .handler = {.user = &f, .accepted = accepted, .input = input, .eof = eof, .closed = closed},
        .local = loopback(0),
        .max_connections = 5,
        .output_bytes = OUTPUT_BYTES,
    };
    REQUIRE_EQ(uv_loop_init(&f.loop), 0);
    REQUIRE_EQ(mr__tcp_open(&f.tcp, &opts, &f.at), 0);
    REQUIRE_EQ(mr__tcp_start(f.tcp), 0);
    for (int i = 0; i < MORE; i++) {
        fds[i] = client_open(&f.at);
    }
    REQUIRE_IN_TURNS(&f.loop, ({
        ended = 0;
        for (int i = 0; i < MORE; i++) {
            got = (struct reply){.n = 0};
            ended += client_read(fds[i], &got);
        }
        ended == MORE - 5;
    }));
    CHECK_EQ(mr__tcp_count(f.tcp), 5u);
    CHECK_EQ(f.accepted, 5u);
    for (int i = 0; i < MORE; i++) {
        close(fds[i]);
    }
    mr__tcp_destroy(f.tcp);
    loop_end(&f.loop);
}

TEST(connections_that_come_and_go_leave_nothing)
{
    struct fixture f;
    static int fds[50];

    set_up(&f);
    f.greeting = "hello\n";
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 50; i++) {
            fds[i] = client_open(&f.at);
        }
        REQUIRE_IN_TURNS(&f.loop, f.accepted == (unsigned)(round + 1) * 50);
        for (int i = 0; i < 50; i++) {
            struct linger hard = {.l_onoff = (int)test_random_below(2), .l_linger = 0};
            setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
            if (test_random_below(2)) {
                send(fds[i], "x\n", 2, MSG_NOSIGNAL);
            }
            close(fds[i]);
        }
    }
    REQUIRE_IN_TURNS(&f.loop, mr__tcp_count(f.tcp) == 0);
    CHECK_EQ(f.closed + f.eofs, 1000u);
    tear_down(&f);
}

static bool is_connected(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    return poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
}

static long system_backlog(void)
{
    FILE *file = fopen("/proc/sys/net/core/somaxconn", "r");
    long n = 0;

    if (file) {
        if (fscanf(file, "%ld", &n) != 1) {
            n = 0;
        }
        fclose(file);
    }
    return n;
}

TEST(players_who_come_while_nobody_accepts_wait_in_line)
{
    enum { PLAYERS = 3000 };
    struct fixture f;
    struct rlimit before, more;
    static int fds[PLAYERS];
    unsigned waiting = 0;

    REQUIRE_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < PLAYERS + 100 || system_backlog() < PLAYERS) {
        TEST_SKIP("this machine has too few descriptors or too short a queue");
    }
    more = (struct rlimit){.rlim_cur = before.rlim_max, .rlim_max = before.rlim_max};
    REQUIRE_EQ(setrlimit(RLIMIT_NOFILE, &more), 0);
    set_up(&f); /* the loop does not turn until the end */
    for (int i = 0; i < PLAYERS; i++) {
        fds[i] = client_open(&f.at);
    }
    CHECK_EVENTUALLY(({
        while (waiting < PLAYERS && is_connected(fds[waiting])) {
            waiting++;
        }
        waiting == PLAYERS;
    }));
    CHECK_EQ(waiting, (unsigned)PLAYERS);
    for (int i = 0; i < PLAYERS; i++) {
        close(fds[i]);
    }
    tear_down(&f);
    REQUIRE_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_MAIN(TEST_CASE(what_is_sent_comes_back_and_a_half_closed_client_still_gets_it),
          TEST_CASE(a_connection_refused_while_it_is_accepted_gets_the_reason),
          TEST_CASE(a_reset_is_reported_once_and_as_a_reset),
          TEST_CASE(a_client_that_never_reads_is_closed_when_its_output_is_too_much),
          TEST_CASE(output_that_the_peer_reads_slowly_arrives_whole),
          TEST_CASE(a_paused_connection_is_not_read_until_it_may_go_on),
          TEST_CASE(without_a_descriptor_left_a_connection_is_ended_and_nothing_spins),
          TEST_CASE(a_listener_that_has_lost_its_spare_descriptor_rests_and_comes_back),
          TEST_CASE(a_stop_flushes_what_is_queued_and_takes_nobody_new),
          TEST_CASE(connections_beyond_the_cap_are_ended),
          TEST_CASE(connections_that_come_and_go_leave_nothing),
          TEST_CASE(players_who_come_while_nobody_accepts_wait_in_line))
