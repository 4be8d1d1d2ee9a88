/* SPDX-License-Identifier: MIT */
/*
 * The HTTP port with real sockets: what it answers, and that slow and numerous clients take
 * it from nobody else.
 */
#include "control/http.h"

#include "base/alloc.h"
#include "loop.h"
#include "test.h"

struct fixture {
    uv_loop_t loop;
    struct http *http;
    struct mr_addr at;
    const char *not_ready;
    unsigned pages; /* made */
};

static char *page(void *user, size_t *n)
{
    ((struct fixture *)user)->pages++;
    *n = 10;
    return mr__strndup("figure 42\n", 10);
}

static const char *not_ready(void *user)
{
    return ((struct fixture *)user)->not_ready;
}

static void set_up(struct fixture *f)
{
    struct http_options opts = {
        .loop = &f->loop, .local = loopback(0), .user = f, .metrics = page, .not_ready = not_ready};

    memset(f, 0, sizeof *f);
    REQUIRE_EQ(uv_loop_init(&f->loop), 0);
    REQUIRE_EQ(mr__http_open(&f->http, &opts, &f->at), 0);
    REQUIRE_NE(f->at.port, 0);
    REQUIRE_EQ(mr__http_start(f->http), 0);
}

static void tear_down(struct fixture *f)
{
    mr__http_destroy(f->http);
    loop_end(&f->loop);
}

#define CLOSE "Connection: close\r\n\r\n"

static struct reply answer;

/* One request over a new connection; the answer is in `answer`. */
static void ask_from(struct fixture *f, const char *from, const char *request)
{
    int fd = client_socket();
    size_t done = 0, n = strlen(request);

    client_connect(fd, &f->at, from);
    answer = (struct reply){.n = 0};
    REQUIRE_IN_TURNS(&f->loop, (done < n ? (void)({
                                    ssize_t k = send(fd, request + done, n - done,
                                                     MSG_DONTWAIT | MSG_NOSIGNAL);
                                    done += k > 0 ? (size_t)k : 0;
                                    0;
                                })
                                         : (void)0,
                                client_read(fd, &answer)));
    close(fd);
}

static void ask(struct fixture *f, const char *request)
{
    ask_from(f, NULL, request);
}

static bool begins(const char *what)
{
    return strncmp(answer.text, what, strlen(what)) == 0;
}

TEST(the_pages_answer_and_nothing_else_does)
{
    struct fixture f;

    set_up(&f);
    ask(&f, "GET /metrics HTTP/1.1\r\nHost: x\r\n" CLOSE);
    CHECK(begins("HTTP/1.1 200"));
    CHECK(strstr(answer.text, "text/plain; version=0.0.4\r\n") != NULL);
    CHECK(strstr(answer.text, "\r\n\r\nfigure 42\n") != NULL);
    ask(&f, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n" CLOSE);
    CHECK(begins("HTTP/1.1 200"));
    CHECK(strstr(answer.text, "figure") == NULL);
    ask(&f, "GET /livez HTTP/1.0\r\n\r\n");
    CHECK(strstr(answer.text, " 200 ") != NULL);
    ask(&f, "GET /nothing HTTP/1.1\r\nHost: x\r\n" CLOSE);
    CHECK(begins("HTTP/1.1 404"));
    ask(&f, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n" CLOSE "abc");
    CHECK(begins("HTTP/1.1 405"));
    CHECK(strstr(answer.text, "Allow: GET, HEAD\r\n") != NULL);
    tear_down(&f);
}

TEST(readiness_says_what_is_missing)
{
    struct fixture f;

    set_up(&f);
    ask(&f, "GET /readyz HTTP/1.1\r\nHost: x\r\n" CLOSE);
    CHECK(begins("HTTP/1.1 200"));
    f.not_ready = "worker 1 has not answered for a second";
    ask(&f, "GET /healthz HTTP/1.1\r\nHost: x\r\n" CLOSE);
    CHECK(begins("HTTP/1.1 503"));
    CHECK(strstr(answer.text, "\r\n\r\nworker 1 has not answered for a second\n") != NULL);
    tear_down(&f);
}

TEST(requests_on_one_connection_are_answered_in_turn)
{
    struct fixture f;
    unsigned n = 0;

    set_up(&f);
    ask(&f, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
            "GET /livez HTTP/1.1\r\nHost: x\r\n" CLOSE);
    for (char *at = answer.text; (at = strstr(at, "HTTP/1.1 200")); at++) {
        n++;
    }
    CHECK_EQ(n, 3u);
    tear_down(&f);
}

#define PAGE "GET /metrics HTTP/1.1\r\nHost: x\r\n"

TEST(pages_that_are_asked_for_at_once_are_made_once)
{
    struct fixture f;
    unsigned n = 0;

    set_up(&f);
    ask(&f, PAGE "\r\n" PAGE "\r\n" PAGE "\r\n" PAGE "\r\n" PAGE "\r\n" PAGE CLOSE);
    for (char *at = answer.text; (at = strstr(at, "figure 42")); at++) {
        n++;
    }
    CHECK_EQ(n, 6u);
    CHECK_GE(f.pages, 1u);
    CHECK_LT(f.pages, 6u);
    n = f.pages;
    ask(&f, PAGE CLOSE);
    CHECK(begins("HTTP/1.1 200"));
    CHECK_EQ(f.pages, n + 1); /* it was not kept */
    tear_down(&f);
}

TEST(junk_costs_its_own_connection_only)
{
    struct fixture f;

    set_up(&f);
    ask(&f, "\x16\x03\x01\x02\r\n\r\n");
    ask(&f, "GET\r\n\r\n");
    ask(&f, "GET /metrics HTTP/1.1\r\n" CLOSE);
    ask(&f, "GET /livez HTTP/1.1\r\nHost: x\r\n" CLOSE);
    CHECK(begins("HTTP/1.1 200"));
    tear_down(&f);
}

enum { CROWD = 200 };

/* Each sends one byte and waits. Returns how many the server has ended. */
static unsigned count_ended(const int *fds, bool *is_ended)
{
    static struct reply r;
    unsigned n = 0;

    for (int i = 0; i < CROWD; i++) {
        if (!is_ended[i]) {
            send(fds[i], "G", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
            r = (struct reply){.n = 0};
            is_ended[i] = client_read(fds[i], &r);
        }
        n += is_ended[i];
    }
    return n;
}

TEST(a_crowd_that_sends_a_byte_at_a_time_is_ended_and_stops_nobody)
{
    struct fixture f;
    int fds[CROWD];
    bool is_ended[CROWD] = {false};
    uint64_t until = test_now_ms() + 20000;

    set_up(&f);
    for (int i = 0; i < CROWD; i++) {
        fds[i] = client_open(&f.at);
    }
    REQUIRE_IN_TURNS(&f.loop,
                     count_ended(fds, is_ended) >= CROWD - MR_HTTP_CONNECTIONS_PER_ADDRESS);
    ask_from(&f, "127.0.0.7", "GET /livez HTTP/1.1\r\nHost: x\r\n" CLOSE);
    CHECK(begins("HTTP/1.1 200"));
    /* They go on sending, so a timeout of silence would never end them. */
    while (count_ended(fds, is_ended) < CROWD && test_now_ms() < until) {
        uv_run(&f.loop, UV_RUN_NOWAIT);
        test_pause();
    }
    CHECK_EQ(count_ended(fds, is_ended), (unsigned)CROWD);
    ask(&f, "GET /livez HTTP/1.1\r\nHost: x\r\n" CLOSE);
    CHECK(begins("HTTP/1.1 200"));
    for (int i = 0; i < CROWD; i++) {
        close(fds[i]);
    }
    tear_down(&f);
}

TEST(a_crowd_from_as_many_addresses_as_there_are_places_keeps_nobody_out)
{
    struct fixture f;
    int fds[MR_HTTP_CONNECTIONS];
    char from[MR_ADDR_TEXT_MAX];

    set_up(&f);
    for (int i = 0; i < MR_HTTP_CONNECTIONS; i++) {
        snprintf(from, sizeof from, "127.0.1.%d", i + 1);
        fds[i] = client_socket();
        client_connect(fds[i], &f.at, from);
        CHECK_EQ(send(fds[i], "GET /li", 7, MSG_NOSIGNAL), 7);
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    for (int i = 0; i < 3; i++) {
        ask_from(&f, "127.0.0.7", "GET /metrics HTTP/1.1\r\nHost: x\r\n" CLOSE);
        CHECK(begins("HTTP/1.1 200"));
    }
    /* The newest of them was in nobody's way. */
    CHECK_EQ(send(fds[MR_HTTP_CONNECTIONS - 1], "vez HTTP/1.0\r\n\r\n", 16, MSG_NOSIGNAL), 16);
    answer = (struct reply){.n = 0};
    REQUIRE_IN_TURNS(&f.loop, client_read(fds[MR_HTTP_CONNECTIONS - 1], &answer));
    CHECK(strstr(answer.text, " 200 ") != NULL);
    for (int i = 0; i < MR_HTTP_CONNECTIONS; i++) {
        close(fds[i]);
    }
    tear_down(&f);
}

TEST(an_address_that_has_its_share_drives_nobody_out)
{
    enum { FULL = MR_HTTP_CONNECTIONS - 1, MORE = FULL + 10 };
    struct fixture f;
    int one = client_socket(), crowd[MORE];

    set_up(&f);
    client_connect(one, &f.at, "127.0.0.7");
    CHECK_EQ(send(one, "GET /li", 7, MSG_NOSIGNAL), 7);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    for (int i = 0; i < MORE; i++) {
        bool is_of_the_first = i < MR_HTTP_CONNECTIONS_PER_ADDRESS || i >= FULL;

        crowd[i] = client_socket();
        client_connect(crowd[i], &f.at, is_of_the_first ? "127.0.0.8" : "127.0.0.9");
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    CHECK_EQ(send(one, "vez HTTP/1.0\r\n\r\n", 16, MSG_NOSIGNAL), 16);
    answer = (struct reply){.n = 0};
    REQUIRE_IN_TURNS(&f.loop, client_read(one, &answer));
    CHECK(strstr(answer.text, " 200 ") != NULL);
    close(one);
    for (int i = 0; i < MORE; i++) {
        close(crowd[i]);
    }
    tear_down(&f);
}

TEST(it_listens_again_after_its_limit_of_connections_was_reached)
{
    static const char *const from[] = {"127.0.0.2", "127.0.0.3", "127.0.0.4"};
    struct fixture f;
    int fds[3 * MR_HTTP_CONNECTIONS_PER_ADDRESS];
    int n = 0;

    set_up(&f);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < MR_HTTP_CONNECTIONS_PER_ADDRESS; k++) {
            fds[n] = client_socket();
            client_connect(fds[n++], &f.at, from[i]);
        }
    }
    for (int i = 0; i < 50; i++) {
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    for (int i = 0; i < n; i++) {
        close(fds[i]);
    }
    ask(&f, "GET /livez HTTP/1.1\r\nHost: x\r\n" CLOSE);
    CHECK(begins("HTTP/1.1 200"));
    tear_down(&f);
}

TEST(connections_that_were_reset_do_not_count_against_the_next)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    struct fixture f;

    set_up(&f);
    /* All of these are over before the server has met the first of them. */
    for (int i = 0; i < MR_HTTP_CONNECTIONS_PER_ADDRESS + 2; i++) {
        int fd = client_open(&f.at);
        CHECK_EQ(send(fd, "GET /li", 7, MSG_NOSIGNAL), 7);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        close(fd);
    }
    ask(&f, "GET /livez HTTP/1.1\r\nHost: x\r\n" CLOSE);
    CHECK(begins("HTTP/1.1 200"));
    tear_down(&f);
}

TEST(a_client_that_ends_within_a_request_is_ended_long_before_the_timeout)
{
    struct fixture f;
    uint64_t from;

    set_up(&f);
    for (int i = 0; i < 10; i++) {
        int fd = client_open(&f.at);
        from = test_now_ms();
        CHECK_EQ(send(fd, "\x16\x03\x01\x02\x00\x01", 6, MSG_NOSIGNAL), 6);
        shutdown(fd, SHUT_WR);
        answer = (struct reply){.n = 0};
        REQUIRE_IN_TURNS(&f.loop, client_read(fd, &answer));
        CHECK_LT(test_now_ms() - from, (MR_HTTP_TIMEOUT_S - 2) * 1000u);
        close(fd);
    }
    tear_down(&f);
}

TEST(a_client_that_asks_and_says_no_more_gets_its_answer)
{
    struct fixture f;

    set_up(&f);
    int fd = client_open(&f.at);
    CHECK_EQ(send(fd, "GET /livez HTTP/1.0\r\n\r\n", 23, MSG_NOSIGNAL), 23);
    shutdown(fd, SHUT_WR);
    answer = (struct reply){.n = 0};
    REQUIRE_IN_TURNS(&f.loop, client_read(fd, &answer));
    CHECK(strstr(answer.text, " 200 ") != NULL);
    close(fd);
    tear_down(&f);
}

TEST(without_a_descriptor_left_a_connection_is_ended_and_nothing_spins)
{
    struct fixture f;
    struct shortage s;

    need_the_kernels_limit();
    set_up(&f);
    int late = client_socket();
    shortage_begin(&s);
    client_connect(late, &f.at, NULL);
    answer = (struct reply){.n = 0};
    REQUIRE_IN_TURNS(&f.loop, client_read(late, &answer));
    CHECK(loop_sleeps(&f.loop));
    shortage_end(&s);
    ask(&f, "GET /livez HTTP/1.1\r\nHost: x\r\n" CLOSE);
    CHECK(begins("HTTP/1.1 200"));
    close(late);
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
    shortage_end(&s);
    ask(&f, "GET /livez HTTP/1.1\r\nHost: x\r\n" CLOSE);
    CHECK(begins("HTTP/1.1 200"));
    close(late);
    tear_down(&f);
}

TEST(a_port_in_use_is_an_error_that_leaves_nothing)
{
    struct fixture f;
    struct http *second = NULL;
    struct mr_addr bound;

    set_up(&f);
    struct http_options opts = {.loop = &f.loop, .local = f.at};
    CHECK_EQ(mr__http_open(&second, &opts, &bound), -EADDRINUSE);
    CHECK_EQ(second, NULL);
    tear_down(&f);
}

TEST_MAIN(TEST_CASE(requests_on_one_connection_are_answered_in_turn),
          TEST_CASE(pages_that_are_asked_for_at_once_are_made_once),
          TEST_CASE(the_pages_answer_and_nothing_else_does),
          TEST_CASE(readiness_says_what_is_missing), TEST_CASE(junk_costs_its_own_connection_only),
          TEST_CASE(a_crowd_that_sends_a_byte_at_a_time_is_ended_and_stops_nobody),
          TEST_CASE(a_crowd_from_as_many_addresses_as_there_are_places_keeps_nobody_out),
          TEST_CASE(an_address_that_has_its_share_drives_nobody_out),
          TEST_CASE(it_listens_again_after_its_limit_of_connections_was_reached),
          TEST_CASE(connections_that_were_reset_do_not_count_against_the_next),
          TEST_CASE(a_client_that_ends_within_a_request_is_ended_long_before_the_timeout),
          TEST_CASE(a_client_that_asks_and_says_no_more_gets_its_answer),
          TEST_CASE(without_a_descriptor_left_a_connection_is_ended_and_nothing_spins),
          TEST_CASE(a_listener_that_has_lost_its_spare_descriptor_rests_and_comes_back),
          TEST_CASE(a_port_in_use_is_an_error_that_leaves_nothing))
