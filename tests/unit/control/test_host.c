/* SPDX-License-Identifier: MIT */
/*
 * Jobs of policies of every kind at once: each has a name of its own, and who cancels one
 * cancels no other.
 */
#include "control/host.h"

#include "base/alloc.h"
#include "loop.h"
#include "names.h"
#include "test.h"

static struct fixture {
    uv_loop_t loop;
    struct host *host;
    struct script_host script;
    struct names names;
    long live;
    unsigned told[5];
    host_job jobs[5];
    struct host_udp *udp;
    int rc;
} f;

enum { HTTP, READ, LOOKUP, BIND };

static void on_work(uv_work_t *work)
{
    (void)work;
}

/* libuv keeps the threads that read files from the first one on; a test has not left them behind.
 */
__attribute__((constructor)) static void start_threads(void)
{
    uv_loop_t loop;
    uv_work_t work;

    if (uv_loop_init(&loop) < 0 || uv_queue_work(&loop, &work, on_work, NULL) < 0 ||
        uv_run(&loop, UV_RUN_DEFAULT) != 0 || uv_loop_close(&loop) < 0) {
        abort();
    }
}

static void set_up(void)
{
    struct host_options opts = {.loop = &f.loop};

    memset(&f, 0, sizeof f);
    f.live = mr__alloc_live();
    names_init(&f.names);
    names_hang(&f.names);
    REQUIRE_EQ(uv_loop_init(&f.loop), 0);
    REQUIRE_EQ(mr__host_create(&f.host, &opts), 0);
    mr_lookup_set_resolver(mr__host_lookup(f.host), &f.names.resolver);
    f.script = mr__host_script(f.host);
}

static void tear_down(void)
{
    mr__host_destroy(f.host);
    loop_end(&f.loop);
    names_deinit(&f.names);
    CHECK_EVENTUALLY(mr__alloc_live() == f.live);
}

static void on_http(void *arg, const struct host_http_response *r)
{
    (void)r;
    ++*(unsigned *)arg;
}

static void on_read(void *arg, const struct host_file *file)
{
    (void)file;
    ++*(unsigned *)arg;
}

static void on_lookup(void *arg, const struct mr_lookup_answer *a)
{
    f.rc = a->rc;
    ++*(unsigned *)arg;
}

static void on_bind(void *arg, const struct host_udp_result *r)
{
    (void)r;
    ++*(unsigned *)arg;
}

static struct str text(const char *s)
{
    return (struct str){s, strlen(s)};
}

/* The first one of each kind, which have one number among their own. */
static void start_all(void)
{
    struct host_http_request req = {.method = text("GET"),
                                    .url = text("http://a.fleet/"),
                                    .timeout_ns = 60000000000u,
                                    .max_bytes = 1000};
    struct host_udp_options udp = {.family = 4};
    void *h = f.script.user;

    REQUIRE_EQ(f.script.udp_open(h, &udp, &f.udp), 0);
    f.jobs[HTTP] = f.script.http(h, &req, on_http, &f.told[HTTP]);
    f.jobs[READ] = f.script.read(h, text(""), text("no-such-file"), 10, on_read, &f.told[READ]);
    f.jobs[LOOKUP] =
        f.script.lookup(h, text("b.fleet"), 4, MR_LOOKUP_RESOLVE, 0, on_lookup, &f.told[LOOKUP]);
    f.jobs[BIND] = f.script.udp_bind(h, f.udp, text("c.fleet"), 0, on_bind, &f.told[BIND]);
}

TEST(jobs_of_every_kind_have_names_of_their_own)
{
    set_up();
    start_all();
    for (int i = 0; i < 4; i++) {
        CHECK_NE(f.jobs[i], 0);
        for (int k = 0; k < i; k++) {
            CHECK_NE(f.jobs[i], f.jobs[k]);
        }
    }
    tear_down();
    CHECK_EQ(f.told[HTTP] + f.told[READ] + f.told[LOOKUP] + f.told[BIND], 0);
}

TEST(who_cancels_a_job_cancels_no_other)
{
    for (int cancelled = 0; cancelled < 4; cancelled++) {
        set_up();
        start_all();
        f.script.cancel(f.script.user, f.jobs[cancelled]);
        f.script.cancel(f.script.user, f.jobs[cancelled]);
        f.script.cancel(f.script.user, 0);
        names_fail(&f.names, EAI_NONAME);
        names_let_go(&f.names);
        for (int i = 0; i < 4; i++) {
            if (i != cancelled) {
                REQUIRE_IN_TURNS(&f.loop, f.told[i] == 1);
            }
        }
        CHECK_EQ(f.told[cancelled], 0);
        f.script.cancel(f.script.user, f.jobs[(cancelled + 1) % 4]); /* it is over */
        tear_down();
    }
}

TEST(a_policys_lookup_is_answered_on_a_later_turn)
{
    set_up();
    CHECK_NE(
        f.script.lookup(f.script.user, text("::1"), 6, MR_LOOKUP_RESOLVE, 0, on_lookup, &f.told[0]),
        0);
    CHECK_EQ(f.told[0], 0);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    CHECK_EQ(f.told[0], 1);
    CHECK_EQ(f.rc, 0);
    CHECK_EQ(names_calls(&f.names), 0);
    tear_down();
}

TEST(without_memory_a_lookup_is_no_job)
{
    set_up();
    mr__alloc_fail_after(0);
    CHECK_EQ(
        f.script.lookup(f.script.user, text("::1"), 6, MR_LOOKUP_RESOLVE, 0, on_lookup, &f.told[0]),
        0);
    mr__alloc_fail_after(-1);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    CHECK_EQ(f.told[0], 0);
    tear_down();
}

TEST(without_memory_no_host_is_made)
{
    struct host *h = NULL;
    struct host_options opts = {.loop = &f.loop};
    long live = mr__alloc_live(), n;

    for (n = 0; !h; n++) {
        REQUIRE_EQ(uv_loop_init(&f.loop), 0);
        mr__alloc_fail_after(n);
        if (mr__host_create(&h, &opts) == 0) {
            mr__host_destroy(h);
        }
        mr__alloc_fail_after(-1);
        loop_end(&f.loop);
        CHECK_EQ(mr__alloc_live(), live);
        REQUIRE(n < 50);
    }
    CHECK_GT(n, 5);
}

TEST_MAIN(TEST_CASE(jobs_of_every_kind_have_names_of_their_own),
          TEST_CASE(who_cancels_a_job_cancels_no_other),
          TEST_CASE(a_policys_lookup_is_answered_on_a_later_turn),
          TEST_CASE(without_memory_a_lookup_is_no_job), TEST_CASE(without_memory_no_host_is_made))
