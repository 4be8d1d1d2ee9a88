/* SPDX-License-Identifier: MIT */
/*
 * Sizes, durations, booleans and port lists as texts. One thread.
 */
#include "base/alloc.h"
#include "service/settings.h"
#include "test.h"

#include <string.h>

static long long size_of(const char *text)
{
    uint64_t v = 0;
    const char *why = NULL;
    int rc = mr__parse_size(text, strlen(text), &v, &why);

    CHECK_EQ(rc < 0, why != NULL);
    return rc < 0 ? -1 : (long long)v;
}

static long long ns_of(const char *text)
{
    uint64_t v = 0;
    const char *why = NULL;
    int rc = mr__parse_duration(text, strlen(text), &v, &why);

    CHECK_EQ(rc < 0, why != NULL);
    return rc < 0 ? -1 : (long long)v;
}

TEST(a_size_is_a_number_and_a_unit_of_base_1024)
{
    CHECK_EQ(size_of("0"), 0);
    CHECK_EQ(size_of("1"), 1);
    CHECK_EQ(size_of("77b"), 77);
    CHECK_EQ(size_of("128kb"), 131072);
    CHECK_EQ(size_of("1 kb"), 1024);
    CHECK_EQ(size_of("1.5mb"), 1572864);
    CHECK_EQ(size_of("1.5MB"), 1572864);
    CHECK_EQ(size_of("2gB"), 2147483648LL);
    CHECK_EQ(size_of("1tb"), 1099511627776LL);
    CHECK_EQ(size_of("1pb"), 1125899906842624LL);
    CHECK_EQ(size_of("8191pb"), 8191LL * 1125899906842624LL);
}

TEST(a_size_that_is_not_exactly_that_is_an_error)
{
    static const char *const bad[] = {
        "",       " ",       "kb",        "-1",    "+1",    "10k",
        "10kib",  "1kb ",    " 1kb",      "1 ",    "1..5",  "1.",
        ".5mb",   "1e3",     "0x10",      "1kb x", "1,5mb", "99999999999999999999",
        "8192pb", "1kbjunk", "1 kb junk", "0.1b",  "one",   "infinity",
        "nan"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (size_of(bad[i]) != -1) {
            FAIL("\"%s\" was read", bad[i]);
        }
    }
    const char *why;
    uint64_t v;
    CHECK_LT(mr__parse_size("1\0kb", 4, &v, &why), 0);
}

TEST(a_duration_is_a_number_and_a_unit)
{
    CHECK_EQ(ns_of("30"), 30000000000LL);
    CHECK_EQ(ns_of("30s"), 30000000000LL);
    CHECK_EQ(ns_of("30 sec"), 30000000000LL);
    CHECK_EQ(ns_of("7us"), 7000);
    CHECK_EQ(ns_of("100ms"), 100000000);
    CHECK_EQ(ns_of("0.5s"), 500000000);
    CHECK_EQ(ns_of("2m"), 120000000000LL);
    CHECK_EQ(ns_of("2min"), 120000000000LL);
    CHECK_EQ(ns_of("4hr"), 4LL * 3600 * 1000000000);
    CHECK_EQ(ns_of("4H"), 4LL * 3600 * 1000000000);
    CHECK_EQ(ns_of("1d"), 86400LL * 1000000000);
    CHECK_EQ(ns_of("1w"), 7 * 86400LL * 1000000000);
    CHECK_EQ(ns_of("1mo"), 30 * 86400LL * 1000000000);
    CHECK_EQ(ns_of("100yr"), 36500 * 86400LL * 1000000000);
    CHECK_EQ(ns_of("0"), 0);
}

TEST(a_duration_that_is_not_exactly_that_is_an_error)
{
    static const char *const bad[] = {"",      "s",   "-1s",           "1x", "1 hour", "5 m s",
                                      "101yr", "1.s", "0.0000000001us"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (ns_of(bad[i]) != -1) {
            FAIL("\"%s\" was read", bad[i]);
        }
    }
}

TEST(eight_words_are_booleans_in_any_case_and_nothing_else_is)
{
    static const char *const yes[] = {"true", "yes", "on", "1", "TRUE", "Yes"};
    static const char *const no[] = {"false", "no", "off", "0", "OFF", "False"};
    static const char *const bad[] = {"", "flase", "2", "t", "on ", "truefalse", "01"};
    const char *why;
    bool v;

    for (size_t i = 0; i < 6; i++) {
        CHECK_EQ(mr__parse_bool(yes[i], strlen(yes[i]), &v, &why), 0);
        CHECK(v);
        CHECK_EQ(mr__parse_bool(no[i], strlen(no[i]), &v, &why), 0);
        CHECK(!v);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_LT(mr__parse_bool(bad[i], strlen(bad[i]), &v, &why), 0);
    }
}

/* "1 2 3 (+8)" or "error". */
static const char *ports_of(const char *text)
{
    static char buf[512];
    struct port_list list;
    const char *why = NULL;
    size_t n = 0;

    if (mr__parse_ports(text, strlen(text), &list, &why) < 0) {
        CHECK(why != NULL);
        return "error";
    }
    buf[0] = '\0';
    for (size_t i = 0; i < list.n && n < 400; i++) {
        n += (size_t)sprintf(buf + n, "%s%u", i ? " " : "", list.ports[i]);
    }
    if (list.any) {
        sprintf(buf + n, "(+%zu)", list.any);
    }
    mr__port_list_deinit(&list);
    return buf;
}

TEST(ports_are_a_list_of_numbers_ranges_and_counts)
{
    CHECK_STR(ports_of("2048"), "2048");
    CHECK_STR(ports_of("2048-2051"), "2048 2049 2050 2051");
    CHECK_STR(ports_of("2048+3"), "2048 2049 2050 2051");
    CHECK_STR(ports_of(" 2050 , 9 - 11,10+1 , 10"), "9 10 11 2050");
    CHECK_STR(ports_of("5-5"), "5");
    CHECK_STR(ports_of("0+7"), "(+8)");
    CHECK_STR(ports_of("0+0,80,0+1"), "80(+3)");
    CHECK_STR(ports_of("65535,1"), "1 65535");
}

TEST(ports_that_cannot_be_are_an_error)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "0",
                                      "0-5",
                                      "65536",
                                      "65530-65536",
                                      "5-3",
                                      "65530+6",
                                      "1,",
                                      ",1",
                                      "1,,2",
                                      "a",
                                      "1-",
                                      "-1",
                                      "1+",
                                      "1-2-3",
                                      "1+2+3",
                                      "1 2",
                                      "1;2",
                                      "0x50",
                                      "99999999999999999999",
                                      "1-99999999999",
                                      "0+65535",
                                      "1.5",
                                      "2048-"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (strcmp(ports_of(bad[i]), "error") != 0) {
            FAIL("\"%s\" was read", bad[i]);
        }
    }
    CHECK_EQ(mr__alloc_live(), 0);
}

TEST_MAIN(TEST_CASE(a_size_is_a_number_and_a_unit_of_base_1024),
          TEST_CASE(a_size_that_is_not_exactly_that_is_an_error),
          TEST_CASE(a_duration_is_a_number_and_a_unit),
          TEST_CASE(a_duration_that_is_not_exactly_that_is_an_error),
          TEST_CASE(eight_words_are_booleans_in_any_case_and_nothing_else_is),
          TEST_CASE(ports_are_a_list_of_numbers_ranges_and_counts),
          TEST_CASE(ports_that_cannot_be_are_an_error))
