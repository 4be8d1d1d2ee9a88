/* SPDX-License-Identifier: MIT */
/*
 * Log records: one line each, whatever is in them; cut ones stay valid; JSON is
 * checked by a small strict reader below.
 */
#include "test.h"

#include "base/log.h"

#include <math.h>

enum { WHEN_MS = 1 };
static const uint64_t when_ms = 1700000000123u; /* 2023-11-14T22:13:20.123Z */

static char line[8192];

static size_t format(enum log_format form, const char *msg, const struct log_field *f, size_t n)
{
    size_t length = mr__log_format(line, sizeof line, form, when_ms, MR_LOG_INFO, "tcp", msg, f, n);

    line[length] = '\0';
    return length;
}

/* ---- a strict reader of one flat JSON object ------------------------------------- */

static bool json_string(const char **p)
{
    if (*(*p)++ != '"')
        return false;
    while (**p != '"') {
        unsigned char c = (unsigned char)*(*p)++;

        if (c < 0x20)
            return false;
        if (c != '\\')
            continue;
        c = (unsigned char)*(*p)++;
        if (c == 'u') {
            if (strspn(*p, "0123456789abcdefABCDEF") < 4)
                return false;
            *p += 4;
        } else if (!c || !strchr("\"\\/bfnrt", c)) {
            return false;
        }
    }
    (*p)++;
    return true;
}

static bool json_scalar(const char **p)
{
    static const char *const words[] = {"true", "false", "null"};
    size_t n = strspn(*p, "-+.eE0123456789");

    if (**p == '"')
        return json_string(p);
    for (size_t i = 0; i < 3; i++) {
        if (strncmp(*p, words[i], strlen(words[i])) == 0) {
            *p += strlen(words[i]);
            return true;
        }
    }
    *p += n;
    return n > 0;
}

static bool is_json_line(const char *p)
{
    if (*p++ != '{')
        return false;
    for (;;) {
        if (!json_string(&p) || *p++ != ':' || !json_scalar(&p))
            return false;
        if (*p == '}')
            return strcmp(p, "}\n") == 0;
        if (*p++ != ',')
            return false;
    }
}

/* Valid UTF-8, no control character, exactly one LF at the end. */
static bool is_clean_line(const char *s, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++) {
        unsigned char c = (unsigned char)s[i];
        size_t more = c < 0x80 ? 0 : c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc2 ? 1 : 9;

        if (c < 0x20 || c == 0x7f || more == 9 || i + more + 1 >= n)
            return false;
        for (; more; more--) {
            if (((unsigned char)s[++i] & 0xc0) != 0x80)
                return false;
        }
    }
    return n > 0 && s[n - 1] == '\n';
}

/* ---- tests ----------------------------------------------------------------------------- */

TEST(a_text_record_has_time_level_area_message_and_fields)
{
    const struct log_field f[] = {LOG_STR("who", "alice"), LOG_STR("said", "good day"),
                                  LOG_INT("i", -5),        LOG_UINT("u", UINT64_MAX),
                                  LOG_DOUBLE("d", 1.5),    LOG_BOOL("b", true)};

    format(MR_LOG_TEXT, "a player came", f, 6);
    CHECK_STR(line, "2023-11-14T22:13:20.123Z info tcp: a player came who=alice "
                    "said=\"good day\" i=-5 u=18446744073709551615 d=1.5 b=true\n");
}

TEST(a_json_record_is_one_object_with_the_same_content)
{
    const struct log_field f[] = {LOG_STR("who", "al\"ice"), LOG_INT("i", -5),
                                  LOG_DOUBLE("d", INFINITY), LOG_BOOL("b", false)};

    format(MR_LOG_JSON, "came", f, 4);
    CHECK_STR(line, "{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"info\",\"area\":\"tcp\","
                    "\"msg\":\"came\",\"who\":\"al\\\"ice\",\"i\":-5,\"d\":null,\"b\":false}\n");
    CHECK(is_json_line(line));
}

TEST(control_characters_and_invalid_utf8_are_escaped_in_both_forms)
{
    const struct log_field f[] = {LOG_STRN("v", "a\nb\r\t\0\x1b[0m\x7f\xff\xc3", 13)};

    format(MR_LOG_TEXT, "x\ny", f, 1);
    CHECK_STR(line, "2023-11-14T22:13:20.123Z info tcp: x\\ny "
                    "v=\"a\\nb\\r\\t\\u0000\\u001b[0m\\u007f\\xff\\xc3\"\n");
    format(MR_LOG_JSON, "x\ny", f, 1);
    CHECK(strstr(line, "\"v\":\"a\\nb\\r\\t\\u0000\\u001b[0m\\u007f\\\\xff\\\\xc3\"") != NULL);
    CHECK(is_json_line(line));
}

TEST(what_turns_text_around_or_breaks_a_line_is_escaped_and_letters_are_not)
{
    const struct log_field f[] = {
        LOG_STR("v", "\xe2\x80\xae\xe2\x80\xa8\xc2\x9b \xc3\xa9\xf0\x9f\x98\x80")};

    format(MR_LOG_TEXT, "m", f, 1);
    CHECK(strstr(line, "v=\"\\u202e\\u2028\\u009b \xc3\xa9\xf0\x9f\x98\x80\"") != NULL);
}

TEST(overlong_forms_surrogates_and_too_large_codes_are_no_utf8)
{
    static const char *const bad[] = {"\xc0\x80",         "\xe0\x80\x80",     "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80", "\xf8\x88\x80\x80", "\x80"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct log_field f[] = {LOG_STR("v", bad[i])};
        size_t n = format(MR_LOG_TEXT, "m", f, 1);

        CHECK(strstr(line, "v=\"\\x") != NULL);
        CHECK(is_clean_line(line, n));
    }
}

TEST(a_value_cannot_look_like_another_field)
{
    const struct log_field f[] = {LOG_STR("a", "1 level=fatal"), LOG_STR("b", ""),
                                  LOG_STR("c", "x=y"), LOG_STR("d", "\\"), LOG_STR("e", NULL)};

    format(MR_LOG_TEXT, "m", f, 5);
    CHECK(strstr(line, "m a=\"1 level=fatal\" b=\"\" c=\"x=y\" d=\"\\\\\" e=\"\"\n") != NULL);
}

TEST(a_record_that_does_not_fit_is_cut_says_so_and_stays_one_valid_line)
{
    char value[600];
    const struct log_field f[] = {LOG_INT("first", 1), LOG_STRN("v", value, sizeof value),
                                  LOG_UINT("last", UINT64_MAX)};

    memset(value, '\xc3', sizeof value);
    for (size_t i = 1; i < sizeof value; i += 2)
        value[i] = '\xa9';
    for (int form = MR_LOG_TEXT; form <= MR_LOG_JSON; form++) {
        for (size_t cap = 128; cap < 700; cap++) {
            char *exact = malloc(cap); /* so that ASan sees a byte too many */
            size_t n = mr__log_format(exact, cap, (enum log_format)form, when_ms, MR_LOG_WARN,
                                      "relay", "a message of some words", f, 3);

            CHECK(n <= cap);
            memcpy(line, exact, n);
            line[n] = '\0';
            CHECK(is_clean_line(line, n));
            CHECK(form == MR_LOG_TEXT || is_json_line(line));
            CHECK(strstr(line, "...") != NULL);
            free(exact);
        }
    }
}

TEST(random_bytes_in_any_place_give_one_valid_line)
{
    for (int round = 0; round < 3000; round++) {
        char value[200], msg[40];
        size_t n = test_random_below(sizeof value), cap = 128 + test_random_below(900), length;
        const struct log_field f[] = {LOG_STRN("v", value, n), LOG_INT("i", 5),
                                      LOG_STRN("w", value, n / 2)};

        for (size_t i = 0; i < n; i++)
            value[i] = (char)test_random();
        for (size_t i = 0; i < sizeof msg - 1; i++)
            msg[i] = (char)(1 + test_random_below(255));
        msg[sizeof msg - 1] = '\0';
        for (int form = MR_LOG_TEXT; form <= MR_LOG_JSON; form++) {
            length = mr__log_format(line, cap, (enum log_format)form, test_random(), MR_LOG_TRACE,
                                    msg, msg, f, 3);
            line[length] = '\0';
            if (!is_clean_line(line, length) || (form == MR_LOG_JSON && !is_json_line(line)))
                FAIL("not one valid line: %s", line);
        }
    }
}

static size_t sunk, sunk_level;

static void sink(void *user, enum log_level level, const char *text, size_t n)
{
    (void)user;
    (void)text;
    (void)n;
    sunk++;
    sunk_level = level;
}

static uint64_t fixed_ms(void *user)
{
    (void)user;
    return WHEN_MS;
}

TEST(records_below_the_threshold_reach_no_sink)
{
    struct log log = {.level = MR_LOG_WARN, .sink = sink, .wall_ms = fixed_ms};

    sunk = 0;
    MR_LOG(&log, MR_LOG_INFO, "a", "no", LOG_INT("x", 1));
    CHECK_EQ(sunk, 0u);
    MR_LOG(&log, MR_LOG_ERROR, "a", "yes", LOG_INT("x", 1));
    CHECK_EQ(sunk, 1u);
    CHECK_EQ(sunk_level, MR_LOG_ERROR);
    log.level = MR_LOG_SILENT;
    MR_LOG(&log, MR_LOG_FATAL, "a", "no", LOG_INT("x", 1));
    MR_LOG((struct log *)NULL, MR_LOG_FATAL, "a", "no", LOG_INT("x", 1));
    log = (struct log){.level = MR_LOG_TRACE};
    MR_LOG(&log, MR_LOG_FATAL, "a", "nobody listens", LOG_INT("x", 1));
    CHECK_EQ(sunk, 1u);
}

TEST(levels_are_read_in_any_case_and_nothing_else_is)
{
    enum log_level level = MR_LOG_TRACE;

    for (int i = MR_LOG_TRACE; i <= MR_LOG_SILENT; i++) {
        const char *name = mr__log_level_name((enum log_level)i);

        CHECK(mr__log_level_parse(name, strlen(name), &level));
        CHECK_EQ(level, i);
    }
    CHECK(mr__log_level_parse("WARN", 4, &level));
    CHECK_EQ(level, MR_LOG_WARN);
    CHECK(!mr__log_level_parse("warning", 7, &level));
    CHECK(!mr__log_level_parse("war", 3, &level));
    CHECK(!mr__log_level_parse("", 0, &level));
    CHECK_STR(mr__log_level_name((enum log_level)99), "?");
}

TEST(times_are_written_for_leap_days_and_both_ends)
{
    static const struct {
        uint64_t ms;
        const char *text;
    } rows[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {951782400000u, "2000-02-29T00:00:00.000Z"},
        {1709251199999u, "2024-02-29T23:59:59.999Z"},
        {1709251200000u, "2024-03-01T00:00:00.000Z"},
        {4107542400000u, "2100-03-01T00:00:00.000Z"},
        {1767225599000u, "2025-12-31T23:59:59.000Z"},
        {UINT64_MAX, "9999-12-31T23:59:59.999Z"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        mr__log_format(line, sizeof line, MR_LOG_TEXT, rows[i].ms, MR_LOG_INFO, "a", "b", NULL, 0);
        line[24] = '\0';
        CHECK_STR(line, rows[i].text);
    }
}

TEST(a_limiter_passes_its_burst_then_its_rate_and_counts_the_rest)
{
    struct log_limiter l = {0};
    int passed = 0;

    for (int i = 0; i < 20; i++)
        passed += mr__log_limit(&l, 1000, 2, 5);
    CHECK_EQ(passed, 5);
    CHECK_EQ(l.suppressed, 15u);
    CHECK(!mr__log_limit(&l, 1499, 2, 5));
    CHECK(mr__log_limit(&l, 1500, 2, 5));
    CHECK(!mr__log_limit(&l, 1500, 2, 5));
    passed = 0;
    for (int i = 0; i < 20; i++)
        passed += mr__log_limit(&l, 100000, 2, 5);
    CHECK_EQ(passed, 5);
}

struct taken {
    unsigned records, lines;
    char text[128];
};

static void take_record(void *user, enum log_level level, const char *area, const char *msg,
                        const struct log_field *fields, size_t n)
{
    struct taken *t = user;

    t->records++;
    snprintf(t->text, sizeof t->text, "%s %s %s %zu %s=%.*s", mr__log_level_name(level), area, msg,
             n, fields[0].key, (int)fields[0].v.str.n, fields[0].v.str.s);
}

static void take_line(void *user, enum log_level level, const char *text, size_t n)
{
    (void)level;
    (void)text;
    (void)n;
    ((struct taken *)user)->lines++;
}

TEST(a_record_is_taken_as_it_is_instead_of_its_line)
{
    struct taken t = {.records = 0};
    struct log log = {.level = MR_LOG_INFO, .sink = take_line, .user = &t, .record = take_record};

    MR_LOG(&log, MR_LOG_WARN, "policy", "a message", LOG_STR("k", "v\n"));
    CHECK_EQ(t.records, 1);
    CHECK_EQ(t.lines, 0);
    CHECK_STR(t.text, "warn policy a message 1 k=v\n");
    mr__log(&log, MR_LOG_DEBUG, "policy", "below the level", NULL, 0);
    CHECK_EQ(t.records, 1);
    CHECK_EQ(t.lines, 0);
}

TEST_MAIN(TEST_CASE(a_record_is_taken_as_it_is_instead_of_its_line),
          TEST_CASE(a_text_record_has_time_level_area_message_and_fields),
          TEST_CASE(a_json_record_is_one_object_with_the_same_content),
          TEST_CASE(control_characters_and_invalid_utf8_are_escaped_in_both_forms),
          TEST_CASE(what_turns_text_around_or_breaks_a_line_is_escaped_and_letters_are_not),
          TEST_CASE(overlong_forms_surrogates_and_too_large_codes_are_no_utf8),
          TEST_CASE(a_value_cannot_look_like_another_field),
          TEST_CASE(a_record_that_does_not_fit_is_cut_says_so_and_stays_one_valid_line),
          TEST_CASE(random_bytes_in_any_place_give_one_valid_line),
          TEST_CASE(records_below_the_threshold_reach_no_sink),
          TEST_CASE(levels_are_read_in_any_case_and_nothing_else_is),
          TEST_CASE(times_are_written_for_leap_days_and_both_ends),
          TEST_CASE(a_limiter_passes_its_burst_then_its_rate_and_counts_the_rest))
