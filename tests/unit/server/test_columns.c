/* SPDX-License-Identifier: MIT */
/*
 * Tables for a terminal: see server/columns.h.
 */
#include "server/columns.h"

#include "test.h"

#include <string.h>

static char *printed(const char *const *cells, size_t n)
{
    static const char *const heads[] = {"A", "LONGER", NULL};
    static char text[1024];
    FILE *out = fmemopen(text, sizeof text, "w");
    struct columns t;

    mr__columns_init(&t, heads);
    for (size_t i = 0; i < n; i++) {
        mr__columns_add(&t, "%s", cells[i]);
    }
    CHECK_EQ(mr__columns_print(&t, out), 0);
    mr__columns_deinit(&t);
    fclose(out);
    return text;
}

TEST(columns_are_as_wide_as_what_is_in_them)
{
    static const char *const cells[] = {"four", "x", "1", "2"};

    CHECK_STR(printed(cells, 4), "A     LONGER\nfour  x\n1     2\n");
}

TEST(nothing_in_a_cell_is_obeyed_by_a_terminal)
{
    static const char *const cells[] = {"a\x1b[2J\n\x7f",
                                        "b\xc2\x9b"
                                        "2J",
                                        "c\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8",
                                        "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
                                        "cut \xc2",
                                        "cut \xe2\x80"};
    const char *text = printed(cells, 6);

    CHECK(strstr(text, "a?[2J??") != NULL);
    CHECK(strstr(text, "b??2J\n") != NULL);
    CHECK(strstr(text, "c????????? ") != NULL);
    CHECK(strstr(text, "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\n") != NULL);
    CHECK(strstr(text, "cut \xc2") != NULL);
}

TEST_MAIN(TEST_CASE(columns_are_as_wide_as_what_is_in_them),
          TEST_CASE(nothing_in_a_cell_is_obeyed_by_a_terminal))
