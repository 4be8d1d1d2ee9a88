/* SPDX-License-Identifier: MIT */
/*
 * The control socket's connections: answers that come at once, later, or never, clients
 * that go away, and an end in the middle of all that. What the endpoints do is held by
 * tests/e2e/control_spec.lua with a whole daemon.
 */
#include "control/api.h"

#include "base/alloc.h"
#include "loop.h"
#include "test.h"

#include <sys/stat.h>
#include <sys/un.h>

enum { WAITING = 8 };

struct fixture {
    uv_loop_t loop;
    struct api *api;
    char dir[64], path[96];
    struct api_later *waiting[WAITING]; /* asked to reload, not answered yet */
    unsigned n_waiting;
    bool is_late; /* reloads are answered by the test */
};

static json_t *status(void *user)
{
    (void)user;
    return json_pack("{s:s}", "is", "fine");
}

static json_t *policies(void *user)
{
    (void)user;
    return NULL; /* out of memory */
}

static void reload(void *user, enum api_reload kind, struct api_later *later)
{
    struct fixture *f = user;

    if (f->is_late) {
        f->waiting[f->n_waiting++ % WAITING] = later;
    } else if (kind == MR_API_CHECK) {
        mr__api_refuse(later, 422, "refused",
                       "a\xff"
                       "b:1: no");
    } else {
        mr__api_answer(later, 200, json_pack("{s:i}", "kind", (int)kind));
    }
}

static void call(void *user, struct str policy, struct str verb, const struct str *args,
                 size_t n_args, struct api_later *later)
{
    (void)user;
    mr__api_answer(later, 200,
                   json_pack("{s:s%, s:s%, s:s%, s:i}", "policy", policy.s, policy.n, "verb",
                             verb.s, verb.n, "last", args[n_args - 1].s, args[n_args - 1].n, "n",
                             (int)n_args));
}

static int open_api(struct fixture *f)
{
    struct api_options opts = {
        .loop = &f->loop,
        .path = f->path,
        .deeds = {
            .user = f, .status = status, .policies = policies, .reload = reload, .call = call}};
    int rc = mr__api_open(&f->api, &opts);

    return rc < 0 ? rc : mr__api_start(f->api);
}

static void set_up(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    strcpy(f->dir, "/tmp/moonrelay-api-XXXXXX");
    REQUIRE(mkdtemp(f->dir) != NULL);
    snprintf(f->path, sizeof f->path, "%s/socket", f->dir);
    REQUIRE_EQ(uv_loop_init(&f->loop), 0);
    REQUIRE_EQ(open_api(f), 0);
}

static void tear_down(struct fixture *f)
{
    mr__api_destroy(f->api);
    loop_end(&f->loop);
    CHECK_EQ(rmdir(f->dir), 0); /* the socket is gone */
}

static int connect_to(const struct fixture *f)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    REQUIRE(fd >= 0);
    strcpy(sa.sun_path, f->path);
    REQUIRE_EQ(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    CHECK_EQ(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void post(int fd, const char *path, const char *body)
{
    char text[1024];

    snprintf(text, sizeof text, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
             path, strlen(body), body);
    say(fd, text);
}

static struct reply answer;

/* Waits until the answer's body has `end` in it. */
static void await(struct fixture *f, int fd, const char *end)
{
    answer = (struct reply){.n = 0};
    REQUIRE_IN_TURNS(&f->loop, (client_read(fd, &answer), strstr(answer.text, end) != NULL));
}

TEST(requests_on_one_connection_are_answered_in_turn)
{
    struct fixture f;

    set_up(&f);
    int fd = connect_to(&f);
    say(fd, "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&f, fd, "{\"is\":\"fine\"}");
    CHECK(strncmp(answer.text, "HTTP/1.1 200", 12) == 0);
    CHECK(strstr(answer.text, "Content-Type: application/json\r\n") != NULL);
    post(fd, "/v1/reload", "");
    await(&f, fd, "{\"kind\":0}");
    post(fd, "/v1/rollback", "{}");
    await(&f, fd, "{\"kind\":2}");
    post(fd, "/v1/reload", "{\"check\": true}");
    await(&f, fd, "{\"error\":\"a?b:1: no\",\"code\":\"refused\"}");
    CHECK(strncmp(answer.text, "HTTP/1.1 422", 12) == 0);
    post(fd, "/v1/call", "{\"policy\": \"p\", \"verb\": \"v\", \"args\": [\"1\", \"two\"]}");
    await(&f, fd, "{\"policy\":\"p\",\"verb\":\"v\",\"last\":\"two\",\"n\":2}");
    close(fd);
    tear_down(&f);
}

TEST(an_answer_that_comes_later_keeps_nobody_waiting)
{
    struct fixture f;

    set_up(&f);
    f.is_late = true;
    int slow = connect_to(&f), other = connect_to(&f);
    post(slow, "/v1/reload", "{}");
    REQUIRE_IN_TURNS(&f.loop, f.n_waiting == 1);
    say(other, "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&f, other, "fine");
    CHECK(loop_sleeps(&f.loop));
    mr__api_answer(f.waiting[0], 200, json_pack("{s:s}", "late", "but here"));
    await(&f, slow, "{\"late\":\"but here\"}");
    post(slow, "/v1/reload", "{}"); /* and the connection goes on */
    REQUIRE_IN_TURNS(&f.loop, f.n_waiting == 2);
    mr__api_refuse(f.waiting[1], 503, "busy", "no");
    await(&f, slow, "{\"error\":\"no\",\"code\":\"busy\"}");
    close(slow);
    close(other);
    tear_down(&f);
}

TEST(a_client_that_goes_away_before_its_answer_is_no_matter)
{
    struct fixture f;

    set_up(&f);
    f.is_late = true;
    for (unsigned i = 0; i < 4; i++) {
        int fd = connect_to(&f);
        post(fd, "/v1/reload", "{}");
        REQUIRE_IN_TURNS(&f.loop, f.n_waiting == i + 1);
        close(fd);
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    for (unsigned i = 0; i < 4; i++) {
        mr__api_answer(f.waiting[i], 200, json_object());
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    f.is_late = false;
    int fd = connect_to(&f);
    post(fd, "/v1/reload", "{}");
    await(&f, fd, "kind");
    close(fd);
    tear_down(&f);
}

TEST(it_ends_with_requests_in_every_state)
{
    struct fixture f;

    set_up(&f);
    f.is_late = true;
    int waits = connect_to(&f), half = connect_to(&f), idle = connect_to(&f);
    post(waits, "/v1/reload", "{}");
    say(half, "POST /v1/kick HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
    REQUIRE_IN_TURNS(&f.loop, f.n_waiting == 1);
    tear_down(&f);
    close(waits);
    close(half);
    close(idle);
}

TEST(more_clients_than_it_serves_are_sent_away_and_come_back)
{
    struct fixture f;
    int fds[MR_API_CONNECTIONS * 2];

    set_up(&f);
    for (int i = 0; i < MR_API_CONNECTIONS * 2; i++) {
        fds[i] = connect_to(&f);
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    for (int i = 0; i < MR_API_CONNECTIONS * 2; i++) {
        close(fds[i]);
    }
    int fd = -1;
    answer = (struct reply){.is_end = true};
    REQUIRE_IN_TURNS(&f.loop, ({
        if (answer.is_end) {
            close(fd);
            fd = connect_to(&f);
            answer = (struct reply){.n = 0};
            (void)send(fd, "GET /v1/status HTTP/1.0\r\n\r\n", 27, MSG_NOSIGNAL);
        }
        client_read(fd, &answer);
        strstr(answer.text, "fine") != NULL;
    }));
    close(fd);
    CHECK(loop_sleeps(&f.loop));
    tear_down(&f);
}

TEST(without_a_descriptor_left_a_client_waits_and_nothing_spins)
{
    struct fixture f;
    struct shortage s;

    need_the_kernels_limit();
    set_up(&f);
    shortage_begin(&s);
    REQUIRE_GE(s.n, 1);
    close(s.fds[--s.n]); /* the client's */
    int late = connect_to(&f);
    say(late, "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(loop_sleeps(&f.loop));
    answer = (struct reply){.n = 0};
    CHECK(!client_read(late, &answer));
    CHECK_EQ(answer.n, 0u);
    shortage_end(&s);
    await(&f, late, "{\"is\":\"fine\"}");
    close(late);
    CHECK(loop_sleeps(&f.loop));
    tear_down(&f);
}

TEST(out_of_memory_is_an_answer)
{
    struct fixture f;

    set_up(&f);
    int fd = connect_to(&f);
    say(fd, "GET /v1/policies HTTP/1.1\r\nHost: x\r\n\r\n");
    await(&f, fd, "\"code\": \"no-memory\"");
    CHECK(strncmp(answer.text, "HTTP/1.1 503", 12) == 0);
    close(fd);
    tear_down(&f);
}

TEST(memory_that_runs_out_in_a_start_leaves_nothing)
{
    long before = mr__alloc_live();
    bool is_through = false;

    for (long n = 0; !is_through; n++) {
        struct fixture f = {.n_waiting = 0};

        strcpy(f.dir, "/tmp/moonrelay-api-XXXXXX");
        REQUIRE(mkdtemp(f.dir) != NULL);
        snprintf(f.path, sizeof f.path, "%s/socket", f.dir);
        REQUIRE_EQ(uv_loop_init(&f.loop), 0);
        mr__alloc_fail_after(n);
        is_through = open_api(&f) == 0;
        mr__alloc_fail_after(-1);
        tear_down(&f);
        CHECK_EQ(mr__alloc_live(), before);
        REQUIRE(n < 100);
    }
}

TEST_MAIN(TEST_CASE(requests_on_one_connection_are_answered_in_turn),
          TEST_CASE(an_answer_that_comes_later_keeps_nobody_waiting),
          TEST_CASE(a_client_that_goes_away_before_its_answer_is_no_matter),
          TEST_CASE(it_ends_with_requests_in_every_state),
          TEST_CASE(more_clients_than_it_serves_are_sent_away_and_come_back),
          TEST_CASE(without_a_descriptor_left_a_client_waits_and_nothing_spins),
          TEST_CASE(out_of_memory_is_an_answer),
          TEST_CASE(memory_that_runs_out_in_a_start_leaves_nothing))
