/* SPDX-License-Identifier: MIT */
/*
 * Which value wins, and what is said about the others. One thread.
 */
#include "base/alloc.h"
#include "service/settings.h"
#include "test.h"

#include <string.h>

static struct settings *s;

static void open_settings(void)
{
    s = mr__settings_create();
    REQUIRE(s);
}

static void close_settings(void)
{
    mr__settings_destroy(s);
    CHECK_EQ(mr__alloc_live(), 0);
}

static void offer(enum settings_source source, const char *key, const char *value,
                  const char *place)
{
    CHECK_EQ(mr__settings_offer(s, source, key, value, strlen(value), place), 0);
}

static const struct settings_values *values(void)
{
    return mr__settings_values(s);
}

/* The only message, or "". */
static const char *message(void)
{
    CHECK_LE(mr__settings_message_count(s), 1);
    return mr__settings_message_count(s) ? mr__settings_message(s, 0)->text : "";
}

TEST(without_a_word_the_defaults_hold)
{
    open_settings();
    CHECK_EQ(values()->oid_length, 21);
    CHECK_EQ(values()->pid_length, 128);
    CHECK_EQ(strlen(values()->oid_charset), 64);
    CHECK_EQ(values()->socket_port, 8890);
    CHECK_STR(values()->udp_host, "0.0.0.0");
    CHECK_EQ(values()->udp_relay_ports.n, 2049);
    CHECK_EQ(values()->udp_relay_timeout_ns, 30000000000ull);
    CHECK_EQ(values()->max_individual_traffic, 131072);
    CHECK_EQ(values()->max_global_traffic, 1073741824);
    CHECK_EQ(values()->max_lifetime_duration_ns, 0);
    CHECK_EQ(values()->workers, -1);
    CHECK(values()->errors);
    CHECK(!values()->pairing_open);
    CHECK_STR(values()->policies, "");
    CHECK_EQ(mr__settings_message_count(s), 0);
    close_settings();
}

TEST(the_higher_source_wins_and_the_other_value_is_named)
{
    open_settings();
    offer(MR_SETTING_CONFIG, "socket_port", "1001", "moonrelay.lua:3");
    CHECK_EQ(mr__settings_resolve(s), 0);
    CHECK_EQ(values()->socket_port, 1001);
    CHECK_STR(message(), "");
    offer(MR_SETTING_DOTENV, "NORAY_SOCKET_PORT", "1002", "line 1 of .env");
    CHECK_EQ(mr__settings_resolve(s), 0);
    CHECK_EQ(values()->socket_port, 1002);
    CHECK_STR(message(),
              "socket_port is set twice: \"1002\" (.env, line 1 of .env, NORAY_SOCKET_PORT) is "
              "used, \"1001\" (config file, moonrelay.lua:3, socket_port) is not");
    offer(MR_SETTING_DOTENV, "MOONRELAY_SOCKET_PORT", "1003", "line 2 of .env");
    offer(MR_SETTING_DOTENV, "NORAY_SOCKET_PORT", "1009", "line 3 of .env");
    CHECK_EQ(mr__settings_resolve(s), 0);
    CHECK_EQ(values()->socket_port, 1003);
    offer(MR_SETTING_NORAY_ENV, "NORAY_SOCKET_PORT", "1004", NULL);
    CHECK_EQ(mr__settings_resolve(s), 0);
    CHECK_EQ(values()->socket_port, 1004);
    offer(MR_SETTING_MOONRELAY_ENV, "MOONRELAY_SOCKET_PORT", "1005", NULL);
    CHECK_EQ(mr__settings_resolve(s), 0);
    CHECK_EQ(values()->socket_port, 1005);
    offer(MR_SETTING_COMMAND_LINE, "socket_port", "1006", NULL);
    CHECK_EQ(mr__settings_resolve(s), 0);
    CHECK_EQ(values()->socket_port, 1006);
    CHECK_EQ(mr__settings_message_count(s), 6);
    mr__settings_forget(s, MR_SETTING_COMMAND_LINE);
    CHECK_EQ(mr__settings_resolve(s), 0);
    CHECK_EQ(values()->socket_port, 1005);
    close_settings();
}

TEST(the_same_value_twice_is_nothing_to_talk_about)
{
    open_settings();
    offer(MR_SETTING_CONFIG, "errors", "off", "x:1");
    offer(MR_SETTING_NORAY_ENV, "MOONRELAY_ERRORS", "off", NULL);
    CHECK_EQ(mr__settings_resolve(s), 0);
    CHECK_STR(message(), "");
    CHECK(!values()->errors);
    close_settings();
}

TEST(a_bad_value_is_named_with_key_place_and_what_is_expected_and_changes_nothing)
{
    static const struct {
        const char *key, *value;
    } bad[] = {
        {"NORAY_UDP_RELAY_PORTS", "0"},
        {"NORAY_UDP_RELAY_PORTS", "49152-65536"},
        {"NORAY_UDP_RELAY_PORTS", "5-3"},
        {"NORAY_SOCKET_PORT", "65536"},
        {"NORAY_SOCKET_PORT", ""},
        {"NORAY_SOCKET_PORT", "80 "},
        {"NORAY_HTTP_PORT", "-1"},
        {"NORAY_UDP_RELAY_MAX_INDIVIDUAL_TRAFFIC", "1kb junk"},
        {"NORAY_UDP_RELAY_MAX_GLOBAL_TRAFFIC", "10kib"},
        {"NORAY_ENABLE_WORDS_OID", "flase"},
        {"NORAY_LOGLEVEL", "loud"},
        {"NORAY_OID_LENGTH", "0"},
        {"NORAY_OID_LENGTH", "257"},
        {"NORAY_OID_CHARSET", "a"},
        {"NORAY_OID_CHARSET", "abca"},
        {"NORAY_PID_CHARSET", "ab c"},
        {"NORAY_PID_CHARSET", "ab\xc3\xa4"},
        {"NORAY_SOCKET_HOST", "local host"},
        {"NORAY_SOCKET_HOST", "127.1"},
        {"NORAY_SOCKET_HOST", ""},
        {"MOONRELAY_UDP_HOST", "1.2.3"},
        {"MOONRELAY_PUBLIC_ADDRESS", "0.0.0.0"},
        {"MOONRELAY_PAIRING", "shut"},
        {"MOONRELAY_CONNECT", "yes"},
        {"MOONRELAY_WORKERS", "65"},
        {"MOONRELAY_UDP_BUFFER", "1"},
        {"MOONRELAY_CAPS_EXEMPT", "10.0.0.0/33"},
        {"MOONRELAY_ALLOW_PEERS", "10.0.0.0/8,"},
        {"MOONRELAY_DENY_PEERS", "example.org"},
        {"MOONRELAY_LOG_FORMAT", "xml"},
        {"MOONRELAY_LOG_ADDRESSES", "some"},
        {"MOONRELAY_DYNAMIC_SHARE", "101"},
        {"MOONRELAY_HOLD_TIME", "0"},
        {"MOONRELAY_USER", "a\nb"},
        {"NORAY_UDP_RELAY_TIMEOUT", "0"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        open_settings();
        offer(MR_SETTING_MOONRELAY_ENV, bad[i].key, bad[i].value, NULL);
        CHECK_EQ(mr__settings_resolve(s), -EINVAL);
        CHECK_EQ(mr__settings_message_count(s), 1);
        CHECK(mr__settings_message(s, 0)->is_error);
        if (!strstr(message(), bad[i].key) || !strstr(message(), "(environment)") ||
            strchr(message(), '\n') || strlen(message()) < strlen(bad[i].key) + 30) {
            FAIL("%s = \"%s\": %s", bad[i].key, bad[i].value, message());
        }
        CHECK_EQ(values()->socket_port, 8890);
        close_settings();
    }
}

TEST(an_unknown_key_is_an_error_with_a_suggestion_and_noray_s_only_a_warning)
{
    open_settings();
    offer(MR_SETTING_CONFIG, "udp_relay_port", "1-2", "moonrelay.lua:7");
    CHECK_EQ(mr__settings_resolve(s), -EINVAL);
    CHECK_STR(message(),
              "\"udp_relay_port\" (config file, moonrelay.lua:7): no such setting; did you mean "
              "udp_relay_ports?");
    mr__settings_forget(s, MR_SETTING_CONFIG);
    CHECK_EQ(mr__settings_resolve(s), 0);
    offer(MR_SETTING_MOONRELAY_ENV, "MOONRELAY_EROR", "on", NULL);
    CHECK_STR(message(), "\"MOONRELAY_EROR\" (environment): no such setting; did you mean "
                         "MOONRELAY_ERRORS?");
    CHECK_EQ(mr__settings_resolve(s), -EINVAL);
    mr__settings_forget(s, MR_SETTING_MOONRELAY_ENV);
    offer(MR_SETTING_NORAY_ENV, "NORAY_CONNECT", "relay", NULL);
    CHECK_EQ(mr__settings_resolve(s), 0);
    CHECK(!mr__settings_message(s, 0)->is_error);
    CHECK(strstr(message(), "did you mean MOONRELAY_CONNECT?"));
    CHECK(!values()->connect_relay);
    mr__settings_forget(s, MR_SETTING_NORAY_ENV);
    offer(MR_SETTING_COMMAND_LINE, "xyzzy", "1", NULL);
    CHECK_STR(message(), "\"xyzzy\" (command line): no such setting");
    close_settings();
}

TEST(the_environment_gives_only_what_bears_our_prefixes)
{
    char text[][40] = {"PATH=/bin", "NORAY_SOCKET_PORT=1",  "MOONRELAY_ERRORS=off", "SOCKET_PORT=2",
                       "X",         "NORAY_OID_CHARSET=a=b"};
    char *env[] = {text[0], text[1], text[2], text[3], text[4], text[5], NULL};

    open_settings();
    CHECK_EQ(mr__settings_offer_environment(s, env), 0);
    CHECK_EQ(mr__settings_offer_environment(s, NULL), 0);
    CHECK_EQ(mr__settings_resolve(s), 0);
    CHECK_EQ(values()->socket_port, 1);
    CHECK(!values()->errors);
    CHECK_STR(values()->oid_charset, "a=b");
    close_settings();
}

TEST(a_dotenv_file_has_comments_exports_and_quotes)
{
    static const char text[] = "\xef\xbb\xbf# noray's\r\n"
                               "NORAY_SOCKET_PORT=1001\r\n"
                               "  export NORAY_HTTP_PORT = 1002   # the page\n"
                               "NORAY_OID_CHARSET='ab #c'x\n"
                               "\n"
                               "OTHER=thing \"\n"
                               "NORAY_PID_CHARSET=\"ab#c\" # quoted\n"
                               "NORAY_OID_CHARSET=ab#c\n"
                               "MOONRELAY_USER=''\n"
                               "NORAY_OID_LENGTH=5";

    open_settings();
    CHECK_EQ(mr__settings_offer_dotenv(s, text, strlen(text), ".env"), 0);
    CHECK_EQ(mr__settings_resolve(s), -EINVAL);
    CHECK_STR(message(),
              "NORAY_OID_CHARSET (line 4 of .env): expected a closing quote and nothing after it");
    mr__settings_forget(s, MR_SETTING_DOTENV);
    CHECK_EQ(mr__settings_resolve(s), 0);
    char *fixed = strdup(text);
    memcpy(strstr(fixed, "'x"), "'\n", 2);
    memcpy(strstr(fixed, "'ab #c'"), "ab   # ", 7);
    CHECK_EQ(mr__settings_offer_dotenv(s, fixed, strlen(fixed), ".env"), 0);
    CHECK_EQ(mr__settings_resolve(s), 0);
    CHECK_EQ(values()->socket_port, 1001);
    CHECK_EQ(values()->http_port, 1002);
    CHECK_STR(values()->pid_charset, "ab#c");
    CHECK_STR(values()->oid_charset, "ab#c");
    CHECK_EQ(values()->oid_length, 5);
    free(fixed);
    close_settings();
}

TEST(a_line_of_dotenv_that_is_none_is_warned_of)
{
    open_settings();
    CHECK_EQ(mr__settings_offer_dotenv(s, "NORAY_SOCKET_PORT 5\n", 20, NULL), 0);
    CHECK_EQ(mr__settings_resolve(s), 0);
    CHECK_STR(message(), "line 1 of .env: expected KEY=VALUE; the line is ignored");
    close_settings();
}

TEST(rows_show_value_source_and_place)
{
    struct settings_row row;

    open_settings();
    offer(MR_SETTING_CONFIG, "udp_relay_ports", "1-2", "moonrelay.lua:9");
    CHECK_EQ(mr__settings_resolve(s), 0);
    int i = mr__settings_find("NORAY_UDP_RELAY_PORTS");
    CHECK_EQ(mr__settings_find("udp_relay_ports"), i);
    CHECK_EQ(mr__settings_find("MOONRELAY_UDP_RELAY_PORTS"), i);
    CHECK_EQ(mr__settings_find("NORAY_ERRORS"), -ENOENT);
    CHECK_EQ(mr__settings_find("nothing"), -ENOENT);
    REQUIRE_GE(i, 0);
    mr__settings_row(s, (size_t)i, &row);
    CHECK_STR(row.key, "udp_relay_ports");
    CHECK_STR(row.noray, "NORAY_UDP_RELAY_PORTS");
    CHECK_STR(row.value, "1-2");
    CHECK_STR(row.preset, "49152-51200");
    CHECK_STR(row.place, "moonrelay.lua:9");
    CHECK_STR(mr__settings_source_name(row.source), "config file");
    for (size_t k = 0; k < mr__settings_row_count(); k++) {
        mr__settings_row(s, k, &row);
        CHECK(row.key && row.value && row.preset && row.help && row.help[0]);
        CHECK_EQ(mr__settings_find(row.key), (int)k);
        if (row.noray) {
            CHECK_EQ(mr__settings_find(row.noray), (int)k);
        }
    }
    close_settings();
}

TEST(every_failed_allocation_is_told_and_nothing_leaks)
{
    bool has_succeeded = false;

    for (long n = 0; n < 2000 && !has_succeeded; n++) {
        mr__alloc_fail_after(n);
        struct settings *x = mr__settings_create();
        if (x) {
            has_succeeded =
                mr__settings_offer(x, MR_SETTING_CONFIG, "udp_relay_ports", "5", 1, "a") == 0 &&
                mr__settings_offer(x, MR_SETTING_CONFIG, "errorss", "5", 1, "a") == 0 &&
                mr__settings_offer(x, MR_SETTING_DOTENV, "udp_relay_ports", "6", 1, "b") == 0 &&
                mr__settings_resolve(x) == -EINVAL;
            CHECK_EQ(mr__settings_values(x)->udp_relay_ports.n, 2049);
        }
        mr__settings_destroy(x);
        mr__alloc_fail_after(-1);
        CHECK_EQ(mr__alloc_live(), 0);
    }
    CHECK(has_succeeded);
}

TEST_MAIN(TEST_CASE(without_a_word_the_defaults_hold),
          TEST_CASE(the_higher_source_wins_and_the_other_value_is_named),
          TEST_CASE(the_same_value_twice_is_nothing_to_talk_about),
          TEST_CASE(a_bad_value_is_named_with_key_place_and_what_is_expected_and_changes_nothing),
          TEST_CASE(an_unknown_key_is_an_error_with_a_suggestion_and_noray_s_only_a_warning),
          TEST_CASE(the_environment_gives_only_what_bears_our_prefixes),
          TEST_CASE(a_dotenv_file_has_comments_exports_and_quotes),
          TEST_CASE(a_line_of_dotenv_that_is_none_is_warned_of),
          TEST_CASE(rows_show_value_source_and_place),
          TEST_CASE(every_failed_allocation_is_told_and_nothing_leaks))
