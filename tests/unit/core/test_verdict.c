/* SPDX-License-Identifier: MIT */
/*
 * The list of verdicts: complete, distinct, and in the form that metrics need.
 */
#include "test.h"

#include "core/verdict.h"

TEST(every_verdict_has_a_name_of_its_own_that_a_metric_can_carry)
{
    for (int i = 0; i < MR_VERDICT_COUNT; i++) {
        const char *name = mr_verdict_name((enum mr_verdict)i);

        CHECK_EQ(strspn(name, "abcdefghijklmnopqrstuvwxyz_"), strlen(name));
        CHECK_GT(strlen(name), 3u);
        CHECK_GT(strlen(mr_verdict_text((enum mr_verdict)i)), 6u);
        for (int j = 0; j < i; j++)
            CHECK_NE(strcmp(name, mr_verdict_name((enum mr_verdict)j)), 0);
    }
}

TEST(what_is_no_verdict_has_a_question_mark_for_a_name)
{
    CHECK_STR(mr_verdict_name(MR_VERDICT_COUNT), "?");
    CHECK_STR(mr_verdict_name((enum mr_verdict) - 1), "?");
    CHECK_STR(mr_verdict_text(MR_VERDICT_COUNT), "?");
}

TEST_MAIN(TEST_CASE(every_verdict_has_a_name_of_its_own_that_a_metric_can_carry),
          TEST_CASE(what_is_no_verdict_has_a_question_mark_for_a_name))
