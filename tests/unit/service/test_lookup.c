/* SPDX-License-Identifier: MIT */
/*
 * Lookups that the service asks the decider: answers, bounds, turns and ends. Start
 * reading at an_answer_of_the_hook_is_told_to_who_asked().
 */
#include "base/alloc.h"
#include "test.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

/* What was told of one question. */
struct heard {
    unsigned calls;
    bool has_opinion;
    struct mr_lookup_answer answer;
    char code[MR_LOOKUP_CODE_MAX + 1], message[MR_LOOKUP_TEXT_MAX + 1];
};

static void on_told(void *arg, const struct mr_lookup_answer *a)
{
    struct heard *h = arg;

    h->calls++;
    h->has_opinion = a != NULL;
    if (a) {
        h->answer = *a;
        snprintf(h->code, sizeof h->code, "%s", a->code ? a->code : "");
        snprintf(h->message, sizeof h->message, "%s", a->message ? a->message : "");
    }
}

static uint64_t ask(struct world *w, struct heard *h, const char *host)
{
    *h = (struct heard){.calls = 0};
    return mr__service_lookup(w->service, (struct str){host, strlen(host)}, 4, MR_LOOKUP_SEND,
                              on_told, h, w->now_ns);
}

TEST(an_answer_of_the_hook_is_told_to_who_asked)
{
    struct world *w = world_open(NULL);
    struct hook_answer *a;
    struct heard h;

    CHECK(!mr__service_wants_lookup(w->service));
    CHECK_EQ(ask(w, &h, "db.fleet"), 0u);
    CHECK(h.calls == 1 && !h.has_opinion);

    a = world_answer(w, MR_HOOK_LOOKUP, MR_HOOK_ADMIT);
    a->address = world_addr("10.0.0.5:0");
    CHECK(mr__service_wants_lookup(w->service));
    CHECK_EQ(ask(w, &h, "db.fleet"), 0u);
    CHECK(h.calls == 1 && h.has_opinion && h.answer.rc == 0);
    CHECK(mr_addr_equal(&h.answer.addr, &a->address));

    world_answer(w, MR_HOOK_LOOKUP, MR_HOOK_NO_OPINION);
    CHECK_EQ(ask(w, &h, "db.fleet"), 0u);
    CHECK(h.calls == 1 && !h.has_opinion);
    world_close(w);
}

TEST(a_refusal_and_a_failure_are_errors_that_name_the_host)
{
    struct world *w = world_open(NULL);
    struct hook_answer *a;
    struct heard h;

    world_refuse(w, MR_HOOK_LOOKUP, "not-found");
    a = &w->canned[MR_HOOK_LOOKUP].answer;
    a->message = (struct str){"no such host", 12};
    ask(w, &h, "db.fleet");
    CHECK(h.calls == 1 && h.answer.rc < 0);
    CHECK_STR(h.code, "not-found");
    CHECK_STR(h.message, "db.fleet: no such host");
    a->message = (struct str){"db.fleet is gone", 16};
    ask(w, &h, "db.fleet");
    CHECK_STR(h.message, "db.fleet is gone");
    ask(w, &h, "a\nb\xff");
    CHECK_STR(h.message, "a?b?: db.fleet is gone");
    ask(w, &h, "");
    CHECK_STR(h.code, "not-found");

    a = world_answer(w, MR_HOOK_LOOKUP, MR_HOOK_FAILED);
    a->policy = (struct str){"mine", 4};
    ask(w, &h, "db.fleet");
    CHECK_STR(h.code, "policy-error");
    CHECK_STR(h.message, "db.fleet: lookup failed in the policy mine");

    world_answer(w, MR_HOOK_LOOKUP, MR_HOOK_BUSY);
    ask(w, &h, "db.fleet");
    CHECK_STR(h.code, "busy");
    world_close(w);
}

TEST(one_thousand_and_twenty_four_lookups_wait_and_the_next_is_busy)
{
    enum { WAITING = 1024 };
    static struct heard heard[WAITING + 1];
    struct world *w = world_open(NULL);
    struct hook_answer *a = world_answer(w, MR_HOOK_LOOKUP, MR_HOOK_ADMIT);

    a->address = world_addr("10.0.0.5:0");
    world_keep_waiting(w, MR_HOOK_LOOKUP, true);
    for (int i = 0; i < WAITING; i++) {
        CHECK(ask(w, &heard[i], "db.fleet") != 0);
        CHECK_EQ(heard[i].calls, 0u);
    }
    CHECK_EQ(ask(w, &heard[WAITING], "one.more"), 0u);
    CHECK_STR(heard[WAITING].code, "busy");
    CHECK_STR(heard[WAITING].message, "one.more: too many lookups wait for policies");
    world_answer_pending(w);
    for (int i = 0; i < WAITING; i++) {
        CHECK(heard[i].calls == 1 && heard[i].answer.rc == 0);
    }
    world_keep_waiting(w, MR_HOOK_LOOKUP, false);
    ask(w, &heard[0], "db.fleet");
    CHECK(heard[0].calls == 1 && heard[0].answer.rc == 0);
    world_close(w);
}

TEST(a_lookup_waits_for_the_next_tick_when_scripts_have_used_their_time_in_this)
{
    struct world *w = world_open(NULL);
    struct heard h[3];

    world_answer(w, MR_HOOK_LOOKUP, MR_HOOK_ADMIT)->address = world_addr("10.0.0.5:0");
    world_spend(w, 10000000);
    CHECK_EQ(ask(w, &h[0], "a"), 0u);
    CHECK(ask(w, &h[1], "b") != 0);
    CHECK(ask(w, &h[2], "c") != 0);
    CHECK(h[0].calls == 1 && h[1].calls == 0 && h[2].calls == 0);
    CHECK(mr__service_deadline(w->service) <= w->now_ns);
    mr__service_tick(w->service, w->now_ns);
    CHECK(h[1].calls == 1 && h[2].calls == 0);
    mr__service_tick(w->service, w->now_ns);
    CHECK_EQ(h[2].calls, 1u);
    world_close(w);
}

TEST(a_lookup_that_is_cancelled_is_told_to_nobody)
{
    struct world *w = world_open(NULL);
    struct heard h[2];
    uint64_t id;

    world_answer(w, MR_HOOK_LOOKUP, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_LOOKUP, true);
    id = ask(w, &h[0], "a");
    mr__service_lookup_cancel(w->service, id);
    CHECK_EQ(w->cancelled, 1u);
    mr__service_lookup_cancel(w->service, id);
    CHECK_EQ(w->n_pending, 0u);

    /* One that was not asked yet. */
    world_keep_waiting(w, MR_HOOK_LOOKUP, false);
    world_spend(w, 10000000);
    ask(w, &h[0], "a");
    id = ask(w, &h[1], "b");
    mr__service_lookup_cancel(w->service, id);
    mr__service_tick(w->service, w->now_ns);
    CHECK(h[0].calls == 1 && h[1].calls == 0);
    world_close(w);
}

TEST(the_end_of_the_service_takes_pending_lookups_with_it)
{
    struct world *w = world_open(NULL);
    struct heard h[2];

    world_answer(w, MR_HOOK_LOOKUP, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_LOOKUP, true);
    CHECK(ask(w, &h[0], "a") != 0);
    world_spend(w, 10000000);
    world_keep_waiting(w, MR_HOOK_LOOKUP, false);
    ask(w, &h[1], "b");
    CHECK(ask(w, &h[1], "c") != 0);
    world_close(w); /* which checks that nothing is left */
    CHECK(h[0].calls == 0 && h[1].calls == 0);
}

TEST(a_lookup_without_memory_is_an_error_of_it_alone)
{
    struct world *w = world_open(NULL);
    struct heard h;

    world_answer(w, MR_HOOK_LOOKUP, MR_HOOK_ADMIT)->address = world_addr("10.0.0.5:0");
    mr__alloc_fail_after(0);
    CHECK_EQ(ask(w, &h, "db.fleet"), 0u);
    mr__alloc_fail_after(-1);
    CHECK(h.calls == 1 && h.answer.rc < 0);
    CHECK_STR(h.code, "failed");
    ask(w, &h, "db.fleet");
    CHECK(h.calls == 1 && h.answer.rc == 0);
    world_close(w);
}

TEST_MAIN(TEST_CASE(an_answer_of_the_hook_is_told_to_who_asked),
          TEST_CASE(a_refusal_and_a_failure_are_errors_that_name_the_host),
          TEST_CASE(one_thousand_and_twenty_four_lookups_wait_and_the_next_is_busy),
          TEST_CASE(a_lookup_waits_for_the_next_tick_when_scripts_have_used_their_time_in_this),
          TEST_CASE(a_lookup_that_is_cancelled_is_told_to_nobody),
          TEST_CASE(the_end_of_the_service_takes_pending_lookups_with_it),
          TEST_CASE(a_lookup_without_memory_is_an_error_of_it_alone))
