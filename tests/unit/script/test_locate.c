/* SPDX-License-Identifier: MIT */
/*
 * Finding the line of a key in a config's text.
 */
#include "script/locate.h"
#include "test.h"

static const char config[] =
    /* 1 */ "-- settings = { udp_host = 'in a comment' }\n"
            /* 2 */ "local function f() return { settings = 1 } end\n"
            /* 3 */ "--[==[ return { settings = {\n"
            /* 4 */ "]] ]==]\n"
            /* 5 */ "return {\n"
            /* 6 */ "  settings = { udp_host = '0.0.0.0', -- workers = 1\n"
            /* 7 */ "    ['workers'] = 2; text = [[\n"
            /* 8 */ "    log_level = 'x' ]], log_level = \"a 'quoted\\\" one\",\n"
            /* 9 */ "  },\n"
            /* 10 */ "  policies = {\n"
            /* 11 */ "    'a',\n"
            /* 12 */ "    { 'b', f = function() if x == 1 then return 1, 2 end end,\n"
            /* 13 */ "      key = f { 1, 2 }, on_error = 'skip' },\n"
            /* 14 */ "    { 'c',\n"
            /* 15 */ "      key = 1 == 1 } },\n"
            /* 16 */ "}\n";

static unsigned line(const char *a, unsigned index, const char *b)
{
    struct locate_step path[] = {{.key = a}, {.index = index}, {.key = b}};

    if (index == 0) {
        path[1] = path[2];
        return mr__locate_line(config, sizeof config - 1, path, b ? 2 : 1);
    }
    return mr__locate_line(config, sizeof config - 1, path, b ? 3 : 2);
}

TEST(a_key_is_found_on_its_line)
{
    CHECK_EQ(line("settings", 0, NULL), 6);
    CHECK_EQ(line("settings", 0, "udp_host"), 6);
    CHECK_EQ(line("settings", 0, "workers"), 7);
    CHECK_EQ(line("settings", 0, "log_level"), 8);
    CHECK_EQ(line("policies", 0, NULL), 10);
    CHECK_EQ(line("policies", 1, NULL), 11);
    CHECK_EQ(line("policies", 2, NULL), 12);
    CHECK_EQ(line("policies", 2, "on_error"), 13);
    CHECK_EQ(line("policies", 3, NULL), 14);
    CHECK_EQ(line("policies", 3, "key"), 15);
}

TEST(what_is_not_written_there_has_no_line)
{
    CHECK_EQ(line("ports", 0, NULL), 0);
    CHECK_EQ(line("settings", 0, "nothing"), 0);
    CHECK_EQ(line("policies", 4, NULL), 0);
    CHECK_EQ(line("policies", 1, "key"), 0);
    CHECK_EQ(mr__locate_line("", 0, (struct locate_step[]){{.key = "a"}}, 1), 0);
    CHECK_EQ(mr__locate_line("return {", 8, (struct locate_step[]){{.key = "a"}}, 1), 0);
    CHECK_EQ(mr__locate_line("return { ) a = 1 }", 18, (struct locate_step[]){{.key = "a"}}, 1), 0);
}

TEST(random_text_is_survived)
{
    static const char *const pieces[] = {
        "return", "{",  "}", "[",  "]",  "=",  "==", "a", ",",   "--",
        "[[",     "]]", "'", "\"", "\\", "\n", "(",  ")", "end", "function"};
    char text[256];

    for (int round = 0; round < 20000; round++) {
        size_t n = 0;

        while (n < 200 && test_random_below(40) > 0) {
            const char *piece = pieces[test_random_below(sizeof pieces / sizeof pieces[0])];

            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", piece,
                                  test_random_below(2) ? " " : "");
        }
        char *exact = malloc(n ? n : 1); /* so that a byte too far is seen */
        memcpy(exact, text, n);
        unsigned found = mr__locate_line(exact, n, (struct locate_step[]){{.key = "a"}}, 1);
        CHECK_LE(found, n + 1);
        free(exact);
    }
}

TEST_MAIN(TEST_CASE(a_key_is_found_on_its_line), TEST_CASE(what_is_not_written_there_has_no_line),
          TEST_CASE(random_text_is_survived))
