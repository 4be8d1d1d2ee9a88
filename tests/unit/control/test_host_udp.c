/* SPDX-License-Identifier: MIT */
/*
 * The endpoints of policies: what a script may start, how it is told, and that what it
 * leaves behind costs nobody anything.
 */
#include "control/host_udp.h"

#include "lookups.h"

struct told {
    unsigned n;
    int rc;
    char code[64], message[1400];
};

static void on_told(void *arg, const struct host_udp_result *r)
{
    struct told *t = arg;

    t->n++;
    t->rc = r->rc;
    snprintf(t->code, sizeof t->code, "%s", r->code ? r->code : "");
    snprintf(t->message, sizeof t->message, "%s", r->message ? r->message : "");
}

struct fixture {
    struct world w;
    struct host_udps *host;
    int fd;
    uint16_t port;
    char heard[4096];
    /* of an own lookup, and of what came */
    unsigned asked, forgotten, received;
    uint64_t ticket;
    enum mr_lookup_op op;
    char name[64], text[64];
};

static void on_message(void *arg, const struct mr_addr *from, const void *data, size_t n)
{
    struct fixture *f = arg;

    CHECK_EQ(from->family, 4);
    f->received++;
    snprintf(f->text, sizeof f->text, "%.*s", (int)n, (const char *)data);
}

static void on_lookup(void *arg, uint64_t ticket, struct str host, int family, enum mr_lookup_op op)
{
    struct fixture *f = arg;

    CHECK_EQ(family, 4);
    f->asked++;
    f->ticket = ticket;
    f->op = op;
    snprintf(f->name, sizeof f->name, "%.*s", (int)host.n, host.s);
}

static void on_lookup_forget(void *arg, uint64_t ticket)
{
    struct fixture *f = arg;

    CHECK_EQ(ticket, f->ticket);
    f->forgotten++;
}

static void set_up(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    world_open(&f->w, 0);
    REQUIRE_EQ(mr__host_udp_create(&f->host, &f->w.loop, f->w.lookup), 0);
    f->fd = plain_open(4, &f->port);
}

static void tear_down(struct fixture *f)
{
    mr__host_udp_destroy(f->host);
    close(f->fd);
    world_close(&f->w);
}

static struct host_udp *open_one(struct fixture *f, bool has_lookup)
{
    struct host_udp_options opts = {.family = 4,
                                    .has_lookup = has_lookup,
                                    .arg = f,
                                    .message = on_message,
                                    .lookup = on_lookup,
                                    .lookup_forget = on_lookup_forget};
    struct host_udp *u = NULL;

    REQUIRE_EQ(mr__host_udp_open(f->host, &opts, &u), 0);
    return u;
}

static struct str text(const char *s)
{
    return (struct str){.s = s, .n = strlen(s)};
}

static uint64_t send_text(struct fixture *f, struct host_udp *u, const char *data, const char *host,
                          struct told *t)
{
    return mr__host_udp_send(u, text(data), text(host), f->port, on_told, t);
}

#define REQUIRE_HEARD(f, what)                                                          \
    REQUIRE_IN_TURNS(&(f)->w.loop, plain_read((f)->fd, (f)->heard, sizeof(f)->heard) && \
                                       strcmp((f)->heard, (what)) == 0)

TEST(a_policy_sends_and_hears_by_jobs_that_are_told_later)
{
    struct fixture f;
    struct told bound = {0}, sent = {0}, connected = {0};
    struct mr_addr at;

    set_up(&f);
    struct host_udp *u = open_one(&f, false);
    CHECK_EQ(mr__host_udp_address(u, &at), -ENOTCONN);
    CHECK_NE(mr__host_udp_bind(u, text(""), 0, on_told, &bound), 0u);
    CHECK_NE(send_text(&f, u, "hello", "", &sent), 0u);
    CHECK_EQ(bound.n + sent.n, 0u);
    REQUIRE_IN_TURNS(&f.w.loop, bound.n == 1 && sent.n == 1);
    CHECK_EQ(bound.rc + sent.rc, 0);
    REQUIRE_HEARD(&f, "hello ");
    REQUIRE_EQ(mr__host_udp_address(u, &at), 0);
    plain_send(f.fd, 4, at.port, "back");
    REQUIRE_IN_TURNS(&f.w.loop, f.received == 1);
    CHECK_STR(f.text, "back");
    CHECK_NE(mr__host_udp_connect(u, text("127.0.0.1"), f.port, on_told, &connected), 0u);
    REQUIRE_IN_TURNS(&f.w.loop, connected.n == 1);
    CHECK_EQ(connected.rc, 0);
    CHECK_EQ(resolver_calls(&f.w), 0u);
    mr__host_udp_close(u);
    tear_down(&f);
}

TEST(what_is_refused_at_once_is_told_later_as_everything_else)
{
    struct fixture f;
    struct told t[3] = {{0}};

    set_up(&f);
    struct host_udp *u = open_one(&f, false);
    CHECK_NE(mr__host_udp_send(u, text("x"), text(""), 0, on_told, &t[0]), 0u);
    CHECK_NE(mr__host_udp_bind(u, text(""), 0, on_told, &t[1]), 0u);
    CHECK_NE(mr__host_udp_bind(u, text(""), 0, on_told, &t[2]), 0u);
    CHECK_EQ(t[0].n + t[1].n + t[2].n, 0u);
    REQUIRE_IN_TURNS(&f.w.loop, t[0].n == 1 && t[1].n == 1 && t[2].n == 1);
    CHECK_STR(t[0].code, "no-port");
    CHECK_EQ(t[1].rc, 0);
    CHECK_STR(t[2].code, "bound");
    CHECK_NE(t[2].message[0], 0);
    tear_down(&f);
}

TEST(a_cancelled_job_is_not_told_and_its_datagram_may_go)
{
    struct fixture f;
    struct told t[2] = {{0}}, refused = {0};
    uint64_t job;

    set_up(&f);
    struct host_udp *u = open_one(&f, false);
    job = send_text(&f, u, "one", "", &t[0]);
    send_text(&f, u, "two", "", &t[1]);
    mr__host_udp_cancel(f.host, job);
    mr__host_udp_cancel(f.host, mr__host_udp_send(u, text("x"), text(""), 0, on_told, &refused));
    mr__host_udp_cancel(f.host, job + 1000);
    REQUIRE_IN_TURNS(&f.w.loop, t[1].n == 1);
    REQUIRE_HEARD(&f, "one two ");
    mr__host_udp_cancel(f.host, job);
    CHECK_EQ(t[0].n + refused.n, 0u);
    tear_down(&f);
}

TEST(what_an_endpoint_had_begun_is_not_told_after_its_close)
{
    struct fixture f;
    struct told t[3] = {{0}};

    set_up(&f);
    struct host_udp *u = open_one(&f, true);
    send_text(&f, u, "x", "name", &t[0]);
    mr__host_udp_bind(u, text(""), 0, on_told, &t[1]); /* refused: it binds already */
    REQUIRE_IN_TURNS(&f.w.loop, f.asked == 1);
    send_text(&f, u, "y", "name", &t[2]);
    t[1].n = 0;
    mr__host_udp_close(u);
    CHECK_EQ(f.forgotten, 1u);
    for (int i = 0; i < 5; i++) {
        uv_run(&f.w.loop, UV_RUN_NOWAIT);
    }
    CHECK_EQ(t[0].n + t[1].n + t[2].n, 0u);
    tear_down(&f);
}

TEST(an_own_lookup_is_asked_about_each_host_and_its_answer_counts_once)
{
    struct fixture f;
    struct told sent = {0}, failed = {0}, built_in = {0};
    struct mr_lookup_answer any = {.addr = {.family = 4}};
    struct mr_lookup_answer here = {.addr = {.ip = {127, 0, 0, 1}, .family = 4}};
    struct mr_lookup_answer no = {.rc = -EIO, .code = "not-mine", .message = "no"};

    set_up(&f);
    struct host_udp *u = open_one(&f, true);
    send_text(&f, u, "x", "fleet", &sent);
    REQUIRE_IN_TURNS(&f.w.loop, f.asked == 1);
    CHECK_STR(f.name, "0.0.0.0");
    CHECK_EQ(f.op, MR_LOOKUP_BIND);
    CHECK_EQ(mr__host_udp_answer(u, f.ticket, &any), 0);
    REQUIRE_IN_TURNS(&f.w.loop, f.asked == 2);
    CHECK_STR(f.name, "fleet");
    CHECK_EQ(mr__host_udp_answer(u, f.ticket, &here), 0);
    CHECK_EQ(mr__host_udp_answer(u, f.ticket, &here), -EALREADY);
    REQUIRE_HEARD(&f, "x ");
    CHECK_EQ(sent.rc, 0);
    send_text(&f, u, "y", "fleet", &failed);
    REQUIRE_IN_TURNS(&f.w.loop, f.asked == 3);
    CHECK_EQ(mr__host_udp_answer(u, f.ticket, &no), 0);
    REQUIRE_IN_TURNS(&f.w.loop, failed.n == 1);
    CHECK_STR(failed.code, "not-mine");
    mr__host_udp_flags(u, MR_LOOKUP_BUILT_IN);
    send_text(&f, u, "z", "a.test", &built_in);
    mr__host_udp_flags(u, 0);
    REQUIRE_HEARD(&f, "x z ");
    CHECK_EQ(built_in.rc, 0);
    CHECK_EQ(f.asked, 3u);
    CHECK_EQ(resolver_calls(&f.w), 1u);
    tear_down(&f);
}

TEST(policies_have_so_many_endpoints_and_closed_ones_count_no_more)
{
    struct fixture f;
    struct host_udp *u[128], *more = NULL;
    struct host_udp_options opts = {.family = 4, .arg = &f};

    set_up(&f);
    for (int i = 0; i < 128; i++) {
        u[i] = open_one(&f, false);
    }
    CHECK_EQ(mr__host_udp_open(f.host, &opts, &more), -EMFILE);
    mr__host_udp_close(u[7]);
    CHECK_EQ(mr__host_udp_open(f.host, &opts, &more), 0);
    opts.family = 5;
    mr__host_udp_close(u[8]);
    CHECK_EQ(mr__host_udp_open(f.host, &opts, &more), -EINVAL);
    tear_down(&f);
}

TEST(what_waits_in_one_endpoint_of_a_policy_is_bounded)
{
    static char data[60000];
    struct fixture f;
    struct told t[20] = {{0}};
    unsigned refused = 0;

    set_up(&f);
    struct host_udp *u = open_one(&f, false);
    for (int i = 0; i < 20; i++) {
        struct str big = {.s = data, .n = sizeof data};
        CHECK_NE(mr__host_udp_send(u, big, text(""), f.port, on_told, &t[i]), 0u);
    }
    for (int i = 0; i < 20; i++) {
        REQUIRE_IN_TURNS(&f.w.loop, t[i].n == 1);
        refused += t[i].rc == -ENOBUFS;
    }
    CHECK_EQ(refused, 3u); /* a MiB is 17 of them */
    tear_down(&f);
}

TEST(no_memory_is_an_error_and_leaks_nothing)
{
    struct fixture f;
    struct told t = {0};

    set_up(&f);
    struct host_udp *u = open_one(&f, false), *more = NULL;
    struct host_udp_options opts = {.family = 4, .arg = &f};
    for (long n = 0; n < 3; n++) {
        mr__alloc_fail_after(n);
        if (mr__host_udp_open(f.host, &opts, &more) == 0) {
            mr__host_udp_close(more);
        }
        mr__alloc_fail_after(-1);
    }
    mr__alloc_fail_after(0);
    CHECK_EQ(send_text(&f, u, "x", "", &t), 0u);
    mr__alloc_fail_after(1);
    CHECK_NE(send_text(&f, u, "x", "", &t), 0u);
    mr__alloc_fail_after(-1);
    REQUIRE_IN_TURNS(&f.w.loop, t.n == 1);
    CHECK_STR(t.code, "memory");
    tear_down(&f);
}

TEST_MAIN(TEST_CASE(a_policy_sends_and_hears_by_jobs_that_are_told_later),
          TEST_CASE(what_is_refused_at_once_is_told_later_as_everything_else),
          TEST_CASE(a_cancelled_job_is_not_told_and_its_datagram_may_go),
          TEST_CASE(what_an_endpoint_had_begun_is_not_told_after_its_close),
          TEST_CASE(an_own_lookup_is_asked_about_each_host_and_its_answer_counts_once),
          TEST_CASE(policies_have_so_many_endpoints_and_closed_ones_count_no_more),
          TEST_CASE(what_waits_in_one_endpoint_of_a_policy_is_bounded),
          TEST_CASE(no_memory_is_an_error_and_leaks_nothing))
