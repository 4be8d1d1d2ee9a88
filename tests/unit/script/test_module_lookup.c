/* SPDX-License-Identifier: MIT */
/*
 * relay.resolve, and what relay.resolve and relay.http ask from inside of a lookup, with a
 * host that is a table of this test. One thread.
 */
#include "act.h"
#include "base/alloc.h"
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct act a;

static struct host {
    char seen[512];
    void (*done)(void *arg, const struct mr_lookup_answer *a);
    void *arg;
    host_job job;
    unsigned cancelled;
    bool is_refusing;
} host;

static host_job on_lookup(void *user, struct str name, int family, enum mr_lookup_op op,
                          unsigned flags, void (*done)(void *arg, const struct mr_lookup_answer *a),
                          void *arg)
{
    (void)user;
    if (host.is_refusing) {
        return 0;
    }
    snprintf(host.seen, sizeof host.seen, "%.*s/%d/%d/%u", (int)name.n, name.s, family, (int)op,
             flags);
    host.done = done;
    host.arg = arg;
    return ++host.job;
}

static host_job on_http(void *user, const struct host_http_request *q,
                        void (*done)(void *arg, const struct host_http_response *r), void *arg)
{
    (void)user;
    (void)done;
    (void)arg;
    snprintf(host.seen, sizeof host.seen, "http %u", q->lookup);
    return ++host.job;
}

static void on_cancel(void *user, host_job job)
{
    (void)user;
    CHECK_EQ(job, host.job);
    host.cancelled++;
}

static void begin(void)
{
    host = (struct host){.job = 0};
    act_begin(&a, NULL);
    a.rig.opts.host = (struct script_host){
        .user = &host, .http = on_http, .lookup = on_lookup, .cancel = on_cancel};
}

static struct rig_request waiting;

static void start(const char *body)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    REQUIRE_EQ(act_load(&a, "", body), 0);
    CHECK_STR(rig_start_asking(&a.rig, &waiting, &ev), "");
}

static void answer(int rc, const char *text, const char *code)
{
    struct mr_lookup_answer told = {.rc = rc, .code = code, .message = text};

    if (rc == 0) {
        mr_addr_parse_ip(&told.addr, text, strlen(text), NULL);
    }
    host.done(host.arg, &told);
    CHECK_STR(waiting.text, "admit");
    if (strcmp(waiting.text, "admit") != 0) {
        fprintf(stderr, "# %s\n", a.rig.log_text);
    }
}

TEST(a_name_is_resolved_to_an_address_as_text_or_an_error)
{
    char expected[64];

    begin();
    start("same(relay.resolve('db.fleet'), '10.4.4.4')");
    snprintf(expected, sizeof expected, "db.fleet/0/%d/0", MR_LOOKUP_RESOLVE);
    CHECK_STR(host.seen, expected);
    answer(0, "10.4.4.4", NULL);
    start("same(relay.resolve('::1', 6), '::1')");
    snprintf(expected, sizeof expected, "::1/6/%d/0", MR_LOOKUP_RESOLVE);
    CHECK_STR(host.seen, expected);
    answer(0, "::1", NULL);
    start("local ip, message, code = relay.resolve('db.fleet', 4)\n"
          "same(ip, nil) same(message, 'db.fleet: no such host') same(code, 'not-found')");
    answer(-ENOENT, "db.fleet: no such host", "not-found");
    act_end(&a);
}

TEST(what_cannot_be_resolved_is_told_at_once_and_misuse_raises)
{
    begin();
    CHECK_STR(act(&a, "fails('relay.resolve: host is nil', relay.resolve)\n"
                      "fails('host is 5', relay.resolve, 5) fails('host is a table', "
                      "relay.resolve, {})\n"
                      "for _, f in ipairs { 5, 0, 46, 4.5, 'x', '4', {} } do\n"
                      "  fails('(4 or 6 is expected)', relay.resolve, 'h', f) end\n"
                      "for _, h in ipairs { '', 'a\\0b', ('x'):rep(256), ('x'):rep(1000000) } do\n"
                      "  local ip, message, code = relay.resolve(h)\n"
                      "  same(ip, nil) same(code, 'not-found') end"),
              "admit");
    CHECK_EQ(host.job, 0u);
    host.is_refusing = true;
    CHECK_STR(act(&a, "local ip, message, code = relay.resolve 'h'\n"
                      "same(ip, nil) same(message, 'not enough memory') same(code, 'failed')"),
              "admit");
    a.rig.opts.host.lookup = NULL;
    CHECK_STR(act(&a, "same(select(3, relay.resolve 'h'), 'unavailable')"), "admit");
    act_end(&a);
}

TEST(a_question_is_cancelled_with_the_hook_that_waits_for_it)
{
    const struct hooks *hooks;

    begin();
    start("relay.resolve 'h'");
    hooks = mr__policies_hooks(a.rig.policies);
    hooks->cancel(hooks->self, &waiting.request);
    CHECK_EQ(host.cancelled, 1u);
    start("relay.resolve 'h'");
    rig_spoil_event();
    mr__policies_destroy(a.rig.policies);
    a.rig.policies = NULL;
    CHECK_EQ(host.cancelled, 2u);
    act_end(&a);
}

/* What a lookup asks would come back to it for ever. */
TEST(what_is_asked_inside_of_a_lookup_goes_to_the_built_in_one)
{
    static const struct {
        const char *body, *seen;
    } rows[] = {
        {"relay.resolve('h', 4)", "h/4/6/1"},
        {"relay.http { url = 'http://x' }", "http 1"},
        {"relay.await(function(done) done() end) relay.resolve('h', 4)", "h/4/6/1"},
        {"relay.sleep(0.1) relay.resolve('h', 4)", "h/4/6/1"},
        {"pcall(relay.resolve, 'h', 4)", "h/4/6/1"},
        {"relay.after(0, function() relay.resolve('h', 4) end) relay.sleep(0.1)", "h/4/6/0"},
        {"relay.after(0, function() relay.http { url = 'http://x' } end) relay.sleep(0.1)",
         "http 0"},
    };
    struct hook_event ev = rig_event(MR_HOOK_LOOKUP);

    CHECK_EQ(MR_LOOKUP_RESOLVE, 6);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char policy[512];

        begin();
        snprintf(policy, sizeof policy,
                 "local relay = require 'relay'\n"
                 "return { lookup = function() %s end }",
                 rows[i].body);
        REQUIRE_EQ(rig_load_policy(&a.rig, policy), 0);
        rig_start_asking(&a.rig, &waiting, &ev);
        for (int k = 0; k < 20; k++) {
            const struct hooks *hooks = mr__policies_hooks(a.rig.policies);

            a.world->now_ns += 20000000;
            hooks->tick(hooks->self, a.world->now_ns);
        }
        CHECK_STR(host.seen, rows[i].seen);
        act_end(&a);
    }
}

TEST(running_out_of_memory_anywhere_leaves_no_question_behind)
{
    bool is_done = false;
    unsigned failed = 0;

    begin();
    REQUIRE_EQ(act_load(&a, "", "relay.resolve 'h'"), 0);
    for (long n = 0; n < 1000 && !is_done; n++) {
        struct hook_event ev = rig_event(MR_HOOK_CREATE);

        mr__alloc_fail_after(n);
        is_done = rig_start_asking(&a.rig, &waiting, &ev)[0] == '\0';
        if (is_done) {
            host.done(host.arg, &(struct mr_lookup_answer){.addr = {.family = 4}});
        }
        mr__alloc_fail_after(-1);
        failed += !is_done;
    }
    CHECK(is_done);
    CHECK_GT(failed, 0);
    act_end(&a);
}

TEST_MAIN(TEST_CASE(a_name_is_resolved_to_an_address_as_text_or_an_error),
          TEST_CASE(what_cannot_be_resolved_is_told_at_once_and_misuse_raises),
          TEST_CASE(a_question_is_cancelled_with_the_hook_that_waits_for_it),
          TEST_CASE(what_is_asked_inside_of_a_lookup_goes_to_the_built_in_one),
          TEST_CASE(running_out_of_memory_anywhere_leaves_no_question_behind))
