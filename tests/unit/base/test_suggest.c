/* SPDX-License-Identifier: MIT */
/*
 * "Did you mean": near names are found and far ones are not.
 */
#include "base/suggest.h"
#include "test.h"

static const char *const hooks[] = {"register", "connect", "create", "drop", "destroyed", NULL};

static const char *suggest(const char *word)
{
    return mr__suggest_name(word, strlen(word), hooks);
}

TEST(a_slip_finds_the_name_it_was_meant_to_be)
{
    CHECK_STR(suggest("registre"), "register");
    CHECK_STR(suggest("Register"), "register");
    CHECK_STR(suggest("conect"), "connect");
    CHECK_STR(suggest("connected"), "connect");
    CHECK_STR(suggest("dorp"), "drop");
    CHECK_STR(suggest("destroy"), "destroyed");
    CHECK_STR(suggest("reg"), "register");
}

TEST(a_far_name_finds_nothing)
{
    CHECK_STR(suggest("left"), NULL);
    CHECK_STR(suggest(""), NULL);
    CHECK_STR(suggest("x"), NULL);
    CHECK_STR(suggest("commands"), NULL);
    CHECK_STR(suggest("abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"), NULL);
}

TEST(distance_counts_one_for_each_slip)
{
    CHECK_EQ(mr__suggest_distance("drop", 4, "drop", 4), 0);
    CHECK_EQ(mr__suggest_distance("dorp", 4, "drop", 4), 1);
    CHECK_EQ(mr__suggest_distance("dro", 3, "drop", 4), 1);
    CHECK_EQ(mr__suggest_distance("drrop", 5, "drop", 4), 1);
    CHECK_EQ(mr__suggest_distance("drap", 4, "drop", 4), 1);
    CHECK_EQ(mr__suggest_distance("", 0, "drop", 4), 4);
}

TEST_MAIN(TEST_CASE(a_slip_finds_the_name_it_was_meant_to_be), TEST_CASE(a_far_name_finds_nothing),
          TEST_CASE(distance_counts_one_for_each_slip))
