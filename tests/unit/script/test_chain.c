/* SPDX-License-Identifier: MIT */
/*
 * What bounds a chain: memory that ends when a question is asked, how many may wait, how
 * deep scripts may be asked from inside of scripts. Whatever is refused is refused closed.
 * Start reading at a_question_without_memory_for_it_is_refused().
 */
#include "base/alloc.h"
#include "rig.h"
#include "test.h"

enum { WAITING_MAX = 1024, DEPTH_MORE_THAN_MAX = 50 };

static struct rig rig;

TEST(a_question_without_memory_for_it_is_refused)
{
    static const char policy[] = "local relay = require 'relay'\n"
                                 "return { create = function(ev) relay.sleep(0.1) end }";
    struct hook_event ev = rig_event(MR_HOOK_CREATE);
    bool has_succeeded = false;

    rig_start(&rig);
    for (long n = 0; n < 200 && !has_succeeded; n++) {
        struct rig_request req;

        REQUIRE_EQ(rig_load_policy(&rig, policy), 0); /* nothing is kept of the last time */
        mr__alloc_fail_after(n);
        rig_start_asking(&rig, &req, &ev);
        mr__alloc_fail_after(-1);
        has_succeeded = req.calls == 0;
        if (n == 0) {
            CHECK_STR(req.text, "failed policy-error by ");
        } else if (!has_succeeded) {
            CHECK_STR(req.text, "failed policy-error by p");
        }
        rig_advance(&rig, 1);
        CHECK_EQ(req.calls, 1);
        if (has_succeeded) {
            CHECK_STR(req.text, "none");
        }
    }
    CHECK(has_succeeded);
    rig_end(&rig);
}

TEST(one_thousand_and_twenty_four_questions_wait_and_the_next_is_told_busy)
{
    static struct rig_request waiting[WAITING_MAX], one_more;
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay'\n"
                                     "return { create = function(ev) relay.sleep(1) end }"),
               0);
    for (size_t i = 0; i < WAITING_MAX; i++) {
        rig_start_asking(&rig, &waiting[i], &ev);
        CHECK_EQ(waiting[i].calls, 0);
    }
    rig_start_asking(&rig, &one_more, &ev);
    CHECK_STR(one_more.text, "busy");
    rig_advance(&rig, 1.5);
    for (size_t i = 0; i < WAITING_MAX; i++) {
        CHECK_STR(waiting[i].text, "none");
    }
    rig_start_asking(&rig, &one_more, &ev);
    CHECK_STR(one_more.text, "");
    rig_advance(&rig, 1.5);
    CHECK_STR(one_more.text, "none");
    rig_end(&rig);
}

/* Asks again from inside of each answer, as the service does when a datagram that was admitted
 * wants a relay, but without an end. */
static unsigned deep, deepest, busy;

static void on_log(void *user, enum log_level level, const char *line, size_t n)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);
    struct rig_request req;

    (void)user;
    (void)level;
    (void)line;
    (void)n;
    if (deep == DEPTH_MORE_THAN_MAX) {
        return;
    }
    deep++;
    deepest = deep > deepest ? deep : deepest;
    rig_start_asking(&rig, &req, &ev);
    busy += strcmp(req.text, "busy") == 0;
    deep--;
}

TEST(scripts_asked_from_inside_of_scripts_have_a_depth)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);
    struct rig_request req;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay'\n"
                                     "return { create = function(ev) relay.log.info('x') end }"),
               0);
    rig.log.sink = on_log; /* the one thing of C that a script calls here */
    deep = deepest = busy = 0;
    rig_start_asking(&rig, &req, &ev);
    CHECK_STR(req.text, "none");
    CHECK_LE(deepest, 10);
    CHECK_EQ(busy, 1);
    rig_end(&rig);
}

TEST_MAIN(TEST_CASE(a_question_without_memory_for_it_is_refused),
          TEST_CASE(one_thousand_and_twenty_four_questions_wait_and_the_next_is_told_busy),
          TEST_CASE(scripts_asked_from_inside_of_scripts_have_a_depth))
