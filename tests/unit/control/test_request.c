/* SPDX-License-Identifier: MIT */
/*
 * Bodies of the control socket's requests: what is read, and that whatever is wrong is
 * refused with a line that says so.
 */
#include "control/request.h"

#include "test.h"

static struct request r;
static char why[MR_REQUEST_WHY_MAX];

static int parse(enum request_kind kind, const char *text)
{
    return mr__request_parse(&r, kind, text, strlen(text), why);
}

static bool is(struct str s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.s, text, s.n) == 0;
}

TEST(fields_are_read_by_their_types)
{
    REQUIRE_EQ(parse(MR_REQUEST_KICK, "{\"id\": \"17\", \"reason\": \"r\\u00fcde\"}"), 0);
    CHECK(is(r.id, "17"));
    CHECK(is(r.reason, "r\xc3\xbc"
                       "de"));
    mr__request_deinit(&r);
    REQUIRE_EQ(parse(MR_REQUEST_BLOCK, "{\"what\": \"10.0.0.0/8\", \"seconds\": 1.5}"), 0);
    CHECK(is(r.what, "10.0.0.0/8"));
    CHECK_EQ(r.seconds, 1.5);
    CHECK_EQ(r.reason.n, 0);
    mr__request_deinit(&r);
    REQUIRE_EQ(parse(MR_REQUEST_RELOAD, "{\"check\": true}"), 0);
    CHECK(r.check);
    mr__request_deinit(&r);
    REQUIRE_EQ(
        parse(MR_REQUEST_CALL, "{\"policy\": \"p\", \"verb\": \"v\", \"args\": [\"a\", \"\"]}"), 0);
    CHECK(is(r.policy, "p"));
    CHECK(is(r.verb, "v"));
    REQUIRE_EQ(r.n_args, 2);
    CHECK(is(r.args[0], "a"));
    CHECK(is(r.args[1], ""));
    mr__request_deinit(&r);
}

TEST(nothing_is_an_empty_object)
{
    REQUIRE_EQ(parse(MR_REQUEST_RELOAD, ""), 0);
    CHECK(!r.check);
    mr__request_deinit(&r);
    CHECK_EQ(parse(MR_REQUEST_KICK, ""), -EINVAL);
    CHECK_STR(why, "id is missing");
}

TEST(whatever_is_wrong_is_named)
{
    static const struct {
        enum request_kind kind;
        const char *text, *words;
    } cases[] = {
        {MR_REQUEST_KICK, "{\"id\": 17}", "id: expected a text"},
        {MR_REQUEST_KICK, "{\"id\": \"\"}", "id: expected a text"},
        {MR_REQUEST_KICK, "{\"id\": \"1\", \"why\": \"x\"}", "unknown key \"why\""},
        {MR_REQUEST_KICK, "{\"id\": \"1\", \"id\": \"2\"}", "duplicate"},
        {MR_REQUEST_KICK, "{\"id\": \"a\\u0000b\"}", "no JSON"},
        {MR_REQUEST_KICK, "{\"id\": \"\xff\"}", "no JSON"},
        {MR_REQUEST_KICK, "[\"id\"]", "expected an object"},
        {MR_REQUEST_KICK, "{\"id\": \"1\"} {}", "no JSON"},
        {MR_REQUEST_KICK, "{\"id\": ", "no JSON"},
        {MR_REQUEST_BLOCK, "{\"what\": \"1.2.3.4\"}", "seconds is missing"},
        {MR_REQUEST_BLOCK, "{\"what\": \"1.2.3.4\", \"seconds\": 0}", "seconds: expected a number"},
        {MR_REQUEST_BLOCK, "{\"what\": \"1.2.3.4\", \"seconds\": \"1\"}",
         "seconds: expected a number"},
        {MR_REQUEST_RELOAD, "{\"check\": 1}", "check: expected true or false"},
        {MR_REQUEST_ROLLBACK, "{\"check\": true}", "unknown key \"check\""},
        {MR_REQUEST_CALL, "{\"policy\": \"p\", \"verb\": \"v\", \"args\": \"a\"}",
         "args: expected"},
        {MR_REQUEST_CALL, "{\"policy\": \"p\", \"verb\": \"v\", \"args\": [1]}", "item 1 is none"},
        {MR_REQUEST_UNBLOCK, "{\"a\\nb\": 1}", "unknown key \"a b\""},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_EQ(parse(cases[i].kind, cases[i].text), -EINVAL);
        if (!strstr(why, cases[i].words)) {
            FAIL("%s: \"%s\"", cases[i].text, why);
        }
        CHECK_EQ(r.root, NULL);
    }
}

TEST(size_depth_and_number_are_bounded)
{
    static char text[MR_REQUEST_BYTES_MAX + 2];
    size_t n = 0;

    memset(text, ' ', sizeof text);
    memcpy(text, "{}", 2);
    CHECK_EQ(mr__request_parse(&r, MR_REQUEST_RELOAD, text, MR_REQUEST_BYTES_MAX, why), 0);
    mr__request_deinit(&r);
    CHECK_EQ(mr__request_parse(&r, MR_REQUEST_RELOAD, text, MR_REQUEST_BYTES_MAX + 1, why),
             -EINVAL);
    CHECK(strstr(why, "larger") != NULL);
    CHECK_EQ(parse(MR_REQUEST_RELOAD, "[[[[[]]]]]"), -EINVAL);
    CHECK(strstr(why, "deeply") != NULL);
    CHECK_EQ(parse(MR_REQUEST_KICK, "{\"id\": \"[[[[[[\\\"[[[\"}"), 0);
    mr__request_deinit(&r);
    n += (size_t)sprintf(text + n, "{\"policy\":\"p\",\"verb\":\"v\",\"args\":[\"\"");
    for (int i = 0; i < MR_REQUEST_ARGS_MAX; i++) {
        n += (size_t)sprintf(text + n, ",\"\"");
    }
    sprintf(text + n, "]}");
    CHECK_EQ(parse(MR_REQUEST_CALL, text), -EINVAL);
    CHECK(strstr(why, "at most 32") != NULL);
}

TEST_MAIN(TEST_CASE(fields_are_read_by_their_types), TEST_CASE(nothing_is_an_empty_object),
          TEST_CASE(whatever_is_wrong_is_named), TEST_CASE(size_depth_and_number_are_bounded))
