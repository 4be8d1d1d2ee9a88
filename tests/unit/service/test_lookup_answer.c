/* SPDX-License-Identifier: MIT */
/* What a lookup came to, checked before it is told. */
#include "service/lookup_answer.h"

#include "test.h"

static struct lookup_answer a;

static struct mr_addr address(const char *text)
{
    struct mr_addr out = {.family = 0};

    REQUIRE(mr_addr_parse_ip(&out, text, strlen(text), NULL) == MR_ADDR_OK);
    return out;
}

static void take(const char *host, const char *answer, int family)
{
    struct mr_lookup_answer from = {.addr = address(answer)};

    mr__lookup_answer_take(&a, &from, host, strlen(host), family);
}

static bool is_literal(const char *host, int family)
{
    struct mr_addr out;

    return mr__lookup_literal(host, strlen(host), family, &out);
}

TEST(a_literal_is_one_of_its_own_family_only)
{
    CHECK(is_literal("127.0.0.1", 4));
    CHECK(is_literal("::1", 6));
    CHECK(is_literal("2001:db8::1.2.3.4", 6));
    CHECK(is_literal("fe80::1%2", 6));
    CHECK(is_literal("::1", 0));
    CHECK(is_literal("127.0.0.1", 0));
    CHECK(!is_literal("::1", 4));
    CHECK(!is_literal("127.0.0.1", 6));
}

TEST(what_only_looks_like_a_literal_is_none)
{
    static const char *const texts[] = {"127.1",      "127.0.0.01", "0x7f.0.0.1", " 127.0.0.1",
                                        "127.0.0.1 ", "[::1]",      "::1]",       "",
                                        "1.2.3.256",  "::1%",       "localhost",  "2130706433"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK(!is_literal(texts[i], 0));
    }
}

TEST(an_answer_of_the_family_is_taken_without_a_port)
{
    struct mr_lookup_answer from = {.addr = address("10.4.4.4")};

    from.addr.port = 99;
    mr__lookup_answer_take(&a, &from, "a.fleet", 7, 4);
    CHECK_EQ(a.answer.rc, 0);
    CHECK_EQ(a.answer.addr.port, 0);
    CHECK_EQ(a.answer.addr.ip[0], 10);
    take("a.fleet", "::1", 0);
    CHECK_EQ(a.answer.rc, 0);
}

TEST(an_answer_of_the_other_family_is_an_error_that_names_both)
{
    take("a.fleet", "2001:db8::1", 4);
    CHECK_EQ(a.answer.rc, -EAFNOSUPPORT);
    CHECK_STR(a.answer.code, "family");
    CHECK_STR(a.answer.message, "a.fleet: 2001:db8::1 is an IPv6 address and IPv4 is asked for");
    take("10.4.4.4", "10.4.4.4", 6);
    CHECK_STR(a.answer.message, "10.4.4.4 is an IPv4 address and IPv6 is asked for");
}

TEST(no_address_is_an_error)
{
    struct mr_lookup_answer from = {.rc = 0};

    mr__lookup_answer_take(&a, &from, "a.fleet", 7, 0);
    CHECK_STR(a.answer.code, "family");
    from.addr.family = 5;
    mr__lookup_answer_take(&a, &from, "a.fleet", 7, 0);
    CHECK_EQ(a.answer.rc, -EAFNOSUPPORT);
}

TEST(an_error_is_one_line_of_its_own_memory)
{
    char text[600], code[] = "busy";

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    text[3] = '\n';
    mr__lookup_answer_take(
        &a, &(struct mr_lookup_answer){.rc = -EBUSY, .code = code, .message = text}, "a", 1, 4);
    memset(code, 'y', 4);
    CHECK_STR(a.answer.code, "busy");
    CHECK_EQ(strlen(a.answer.message), MR_LOOKUP_TEXT_MAX);
    CHECK_EQ(a.answer.message[3], '?');
    CHECK_EQ(a.answer.rc, -EBUSY);
}

TEST_MAIN(TEST_CASE(a_literal_is_one_of_its_own_family_only),
          TEST_CASE(what_only_looks_like_a_literal_is_none),
          TEST_CASE(an_answer_of_the_family_is_taken_without_a_port),
          TEST_CASE(an_answer_of_the_other_family_is_an_error_that_names_both),
          TEST_CASE(no_address_is_an_error), TEST_CASE(an_error_is_one_line_of_its_own_memory))
