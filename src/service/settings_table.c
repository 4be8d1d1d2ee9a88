/* SPDX-License-Identifier: MIT */
/*
 * Every setting: key, default, how it is read, what it means. Control thread.
 *
 * To add one: a row here, a field in struct settings_values, the row in the table of
 * scripts/README.md. Start reading at mr__setting_rows, at the end.
 */
#include "service/settings_table.h"

#include "base/alloc.h"
#include "core/address.h"
#include "service/nets.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ALPHABET "useandom-26T198340PX75pxJACKVERYMINDBUSHWOLF_GQZbfghjklqvwyzrict"

enum {
    TEXT_MAX = 4096,
    LIST_MAX = 65536,
    WORKERS_MAX = 64,
    CHARSET_MIN = 2,
    CHARSET_MAX = 94,
};

static int refuse(char *why, const char *text)
{
    snprintf(why, MR_SETTING_WHY_MAX, "%s", text);
    return -EINVAL;
}

static int explain(int rc, char *why, const char *text)
{
    if (rc < 0) {
        snprintf(why, MR_SETTING_WHY_MAX, "%s", text);
    }
    return rc;
}

/* ---- numbers ------------------------------------------------------------------------------- */

static bool parse_count(const char *text, size_t n, uint64_t *out)
{
    uint64_t v = 0;

    if (n == 0 || n > 18) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(text[i] - '0');
    }
    *out = v;
    return true;
}

static int read_count(const struct setting_row *row, const char *text, size_t n, void *field,
                      char *why)
{
    uint64_t v;

    if (!parse_count(text, n, &v) || v < row->min || v > row->max) {
        snprintf(why, MR_SETTING_WHY_MAX, "expected a whole number from %llu to %llu",
                 (unsigned long long)row->min, (unsigned long long)row->max);
        return -EINVAL;
    }
    *(uint32_t *)field = (uint32_t)v;
    return 0;
}

static int read_port(const struct setting_row *row, const char *text, size_t n, void *field,
                     char *why)
{
    uint64_t v;

    (void)row;
    if (!parse_count(text, n, &v) || v > 65535) {
        return refuse(why, "expected a port from 1 to 65535, or 0 for one of the kernel's choice");
    }
    *(uint16_t *)field = (uint16_t)v;
    return 0;
}

static int read_workers(const struct setting_row *row, const char *text, size_t n, void *field,
                        char *why)
{
    uint64_t v;

    (void)row;
    if (n == 4 && strncasecmp(text, "auto", 4) == 0) {
        *(int *)field = -1;
        return 0;
    }
    if (!parse_count(text, n, &v) || v > WORKERS_MAX) {
        return refuse(why, "expected auto or a number of threads from 0 to 64");
    }
    *(int *)field = (int)v;
    return 0;
}

static int check_size(const struct setting_row *row, const char *text, size_t n, uint64_t *v,
                      char *why)
{
    const char *text_why = "";
    int rc = mr__parse_size(text, n, v, &text_why);

    rc = explain(rc, why, text_why);
    if (rc == 0 && (*v < row->min || *v > row->max)) {
        snprintf(why, MR_SETTING_WHY_MAX, "expected a size from %llu to %llu bytes",
                 (unsigned long long)row->min, (unsigned long long)row->max);
        return -ERANGE;
    }
    return rc;
}

static int read_size(const struct setting_row *row, const char *text, size_t n, void *field,
                     char *why)
{
    return check_size(row, text, n, field, why);
}

static int read_size32(const struct setting_row *row, const char *text, size_t n, void *field,
                       char *why)
{
    uint64_t v = 0;
    int rc = check_size(row, text, n, &v, why);

    if (rc == 0) {
        *(uint32_t *)field = (uint32_t)v;
    }
    return rc;
}

static int read_duration(const struct setting_row *row, const char *text, size_t n, void *field,
                         char *why)
{
    const char *text_why = "";
    uint64_t v = 0;
    int rc = mr__parse_duration(text, n, &v, &text_why);

    rc = explain(rc, why, text_why);
    if (rc == 0 && (v < row->min || v > row->max)) {
        snprintf(why, MR_SETTING_WHY_MAX, "expected a duration from %gs to %gs",
                 (double)row->min / 1e9, (double)row->max / 1e9);
        return -ERANGE;
    }
    if (rc == 0) {
        *(uint64_t *)field = v;
    }
    return rc;
}

/* ---- words --------------------------------------------------------------------------------- */

static int read_bool(const struct setting_row *row, const char *text, size_t n, void *field,
                     char *why)
{
    const char *text_why = "";
    int rc = mr__parse_bool(text, n, field, &text_why);

    (void)row;
    return explain(rc, why, text_why);
}

static bool is_word(const char *text, size_t n, const char *word)
{
    return strlen(word) == n && strncasecmp(text, word, n) == 0;
}

static int read_pairing(const struct setting_row *row, const char *text, size_t n, void *field,
                        char *why)
{
    (void)row;
    if (!is_word(text, n, "open") && !is_word(text, n, "paired")) {
        return refuse(why, "expected paired or open");
    }
    *(bool *)field = is_word(text, n, "open");
    return 0;
}

static int read_connect(const struct setting_row *row, const char *text, size_t n, void *field,
                        char *why)
{
    (void)row;
    if (!is_word(text, n, "direct") && !is_word(text, n, "relay")) {
        return refuse(why, "expected direct or relay");
    }
    *(bool *)field = is_word(text, n, "relay");
    return 0;
}

static int read_level(const struct setting_row *row, const char *text, size_t n, void *field,
                      char *why)
{
    (void)row;
    if (!mr__log_level_parse(text, n, field)) {
        return refuse(why, "expected silent, trace, debug, info, warn, error or fatal");
    }
    return 0;
}

static int read_format(const struct setting_row *row, const char *text, size_t n, void *field,
                       char *why)
{
    (void)row;
    if (!is_word(text, n, "text") && !is_word(text, n, "json")) {
        return refuse(why, "expected text or json");
    }
    *(enum log_format *)field = is_word(text, n, "json") ? MR_LOG_JSON : MR_LOG_TEXT;
    return 0;
}

static int read_addresses(const struct setting_row *row, const char *text, size_t n, void *field,
                          char *why)
{
    static const char *const words[] = {"full", "net", "none"}; /* enum settings_log_addresses */

    (void)row;
    for (int i = 0; i < 3; i++) {
        if (is_word(text, n, words[i])) {
            *(int *)field = i;
            return 0;
        }
    }
    return refuse(why, "expected full, net or none");
}

/* ---- texts --------------------------------------------------------------------------------- */

static int keep_text(const char *text, size_t n, void *field)
{
    char *copy = mr__strndup(text, n);

    if (!copy) {
        return -ENOMEM;
    }
    *(const char **)field = copy;
    return 0;
}

static int read_text(const struct setting_row *row, const char *text, size_t n, void *field,
                     char *why)
{
    (void)row;
    if (n > TEXT_MAX) {
        return refuse(why, "expected at most 4096 bytes");
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            return refuse(why, "expected text without control characters");
        }
    }
    return keep_text(text, n, field);
}

/* Labels of letters, digits, `-` and `_`. The last one is no number: that would be a mistyped
 * address, which a resolver may read as another one. */
static bool is_host_name(const char *text, size_t n)
{
    size_t label = 0, digits = 0;

    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
        bool is_digit = c >= '0' && c <= '9';

        if (c == '.' && label > 0 && i + 1 < n) {
            label = digits = 0;
        } else if (is_letter || is_digit) {
            label++;
            digits += is_digit;
        } else {
            return false;
        }
    }
    return n <= 253 && label > 0 && digits < label;
}

static int read_host(const struct setting_row *row, const char *text, size_t n, void *field,
                     char *why)
{
    struct mr_addr a;

    (void)row;
    if (mr_addr_parse_ip(&a, text, n, NULL) != MR_ADDR_OK && !is_host_name(text, n)) {
        return refuse(why, "expected an IP address such as 0.0.0.0 or ::, or a host name");
    }
    return keep_text(text, n, field);
}

static int read_public_address(const struct setting_row *row, const char *text, size_t n,
                               void *field, char *why)
{
    struct mr_addr a;

    (void)row;
    if (n > 0 && mr_addr_parse_ip(&a, text, n, NULL) != MR_ADDR_OK) {
        return refuse(why, "expected an IP address that players reach, or nothing");
    }
    if (n > 0 &&
        mr_addr_classify(&a) & (MR_ADDR_UNSPECIFIED | MR_ADDR_MULTICAST | MR_ADDR_BROADCAST)) {
        return refuse(why, "expected an IP address that one machine can have");
    }
    return keep_text(text, n, field);
}

static int read_charset(const struct setting_row *row, const char *text, size_t n, void *field,
                        char *why)
{
    bool seen[256] = {false};

    (void)row;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x21 || c > 0x7e || seen[c]) {
            return refuse(why, "expected 2 to 94 distinct characters from ! to ~ (no space)");
        }
        seen[c] = true;
    }
    if (n < CHARSET_MIN || n > CHARSET_MAX) {
        return refuse(why, "expected 2 to 94 distinct characters from ! to ~ (no space)");
    }
    return keep_text(text, n, field);
}

static int read_nets(const struct setting_row *row, const char *text, size_t n, void *field,
                     char *why)
{
    struct nets nets;
    int rc = n > LIST_MAX ? -EINVAL : mr__nets_parse(&nets, text, n);

    (void)row;
    if (rc == -EINVAL) {
        return refuse(why, "expected a comma list of networks such as 10.0.0.0/8,2001:db8::/32");
    }
    if (rc < 0) {
        return rc;
    }
    mr__nets_deinit(&nets);
    return keep_text(text, n, field);
}

static int read_ports(const struct setting_row *row, const char *text, size_t n, void *field,
                      char *why)
{
    const char *text_why = "";
    int rc = mr__parse_ports(text, n, field, &text_why);

    (void)row;
    return explain(rc, why, text_why);
}

/* ---- the table ----------------------------------------------------------------------------- */

#define AT(name) \
    offsetof(struct settings_values, name), sizeof(((struct settings_values *)NULL)->name)
#define NORAY      MR_SETTING_NORAY
#define STRING     MR_SETTING_STRING
#define LIVE       MR_SETTING_LIVE
#define SECOND     1000000000ull
#define FOREVER    (100ull * 365 * 24 * 3600 * SECOND)
#define SIZE_LIMIT ((uint64_t)INT64_MAX)
#define KB         1024ull
#define MB         (1024ull * KB)
#define GB         (1024ull * MB)

/* clang-format off */
const struct setting_row mr__setting_rows[] = {
    /* noray's, in its order */
    {"oid_length", "21", "characters of an id that players tell each other", read_count, AT(oid_length), NORAY | LIVE, 1, 256},
    {"oid_charset", ALPHABET, "what these ids are made of: 2 to 94 distinct characters", read_charset, AT(oid_charset), NORAY | STRING | LIVE, 0, 0},
    {"pid_length", "128", "characters of a player's secret id; below 17 the registrar is silent to unknown ones", read_count, AT(pid_length), NORAY | LIVE, 1, 256},
    {"pid_charset", ALPHABET, "what secret ids are made of: 2 to 94 distinct characters", read_charset, AT(pid_charset), NORAY | STRING | LIVE, 0, 0},
    {"enable_words_oid", "false", "ids made of words, like FalconTimberYolk, instead of characters", read_bool, AT(enable_words_oid), NORAY | LIVE, 0, 0},
    {"words_oid_length", "3", "how many words", read_count, AT(words_oid_length), NORAY | LIVE, 1, 32},
    {"socket_host", "0.0.0.0", "address or name of the command channel (TCP)", read_host, AT(socket_host), NORAY | STRING, 0, 0},
    {"socket_port", "8890", "its port; 0: the kernel's choice", read_port, AT(socket_port), NORAY, 0, 0},
    {"http_host", "0.0.0.0", "address or name of metrics and health checks (HTTP)", read_host, AT(http_host), NORAY | STRING, 0, 0},
    {"http_port", "8891", "its port; 0: the kernel's choice", read_port, AT(http_port), NORAY, 0, 0},
    {"udp_registrar_port", "8809", "port of the registrar (UDP), at udp_host; 0: the kernel's choice", read_port, AT(udp_registrar_port), NORAY, 0, 0},
    {"udp_relay_ports", "49152-51200", "ports of the relays (UDP), at udp_host: 2048, 2048-2051, 2048+3, 0+7", read_ports, AT(udp_relay_ports), NORAY | LIVE, 0, 0},
    {"udp_relay_timeout", "30s", "a relay ends when it neither sent nor received for so long", read_duration, AT(udp_relay_timeout_ns), NORAY | LIVE, SECOND / 1000, FOREVER},
    {"udp_relay_cleanup_interval", "30s", "accepted for noray's sake and unused: a relay ends when it is due", read_duration, AT(udp_relay_cleanup_interval_ns), NORAY | LIVE, 0, FOREVER},
    {"udp_relay_max_individual_traffic", "128kb", "bytes a second that a relay may send; 0: no limit", read_size, AT(max_individual_traffic), NORAY | LIVE, 0, SIZE_LIMIT},
    {"udp_relay_max_global_traffic", "1gb", "bytes a second that all relays together may send; 0: no limit", read_size, AT(max_global_traffic), NORAY | LIVE, 0, SIZE_LIMIT},
    {"udp_relay_traffic_interval", "100ms", "how much of a rate may come at once; at least a second's worth does", read_duration, AT(traffic_interval_ns), NORAY | LIVE, 0, FOREVER},
    {"udp_relay_max_lifetime_duration", "0", "a relay forwards for so long after its last connect-relay; 0: no limit", read_duration, AT(max_lifetime_duration_ns), NORAY | LIVE, 0, FOREVER},
    {"udp_relay_max_lifetime_traffic", "0", "bytes a relay may send after its last connect-relay; 0: no limit", read_size, AT(max_lifetime_traffic), NORAY | LIVE, 0, SIZE_LIMIT},
    {"loglevel", "info", "silent, trace, debug, info, warn, error or fatal", read_level, AT(log_level), NORAY | LIVE, 0, 0},
    /* our own */
    {"config", "", "path of the config file, a Lua file", read_text, AT(config), STRING, 0, 0},
    {"policies", "dynamic", "comma list of shipped policies and of paths, instead of the config file's", read_text, AT(policies), STRING | LIVE, 0, 0},
    {"udp_host", "0.0.0.0", "address or name of registrar and relay ports; :: serves both families", read_host, AT(udp_host), STRING, 0, 0},
    {"public_address", "", "address players reach us at, for connect through the relay; empty: the one they connected to", read_public_address, AT(public_address), STRING | LIVE, 0, 0},
    {"pairing", "paired", "paired: datagrams pass within pairs only; open: from every relay to every relay", read_pairing, AT(pairing_open), 0, 0, 0},
    {"connect", "direct", "direct: connect tells addresses; relay: it goes through the relay", read_connect, AT(connect_relay), LIVE, 0, 0},
    {"errors", "on", "whether error, limit and notice lines are sent; off: noray's silence", read_bool, AT(errors), LIVE, 0, 0},
    {"workers", "auto", "threads that forward, 0 to 64; auto: one a core allowed to us", read_workers, AT(workers), 0, 0, 0},
    {"udp_buffer", "1mb", "receive and send buffer of each relay port", read_size32, AT(udp_buffer), 0, 4 * KB, GB},
    {"control", "auto", "path of the control socket; auto: its usual place; empty: none", read_text, AT(control), STRING, 0, 0},
    {"drain_timeout", "0s", "how long a stop lets running games go on", read_duration, AT(drain_timeout_ns), LIVE, 0, FOREVER},
    {"watch", "off", "reload when a policy file changes", read_bool, AT(watch), LIVE, 0, 0},
    {"user", "", "whom a daemon that root started becomes; empty: nobody else", read_text, AT(user), STRING, 0, 0},
    {"log_format", "text", "text or json", read_format, AT(log_format), LIVE, 0, 0},
    {"log_addresses", "full", "how players' addresses are logged: full, net (a /64 in IPv6) or none", read_addresses, AT(log_addresses), LIVE, 0, 0},
    {"caps_exempt", "", "comma list of networks to which no per-address cap applies", read_nets, AT(caps_exempt), STRING | LIVE, 0, 0},
    {"max_connections", "8192", "connections at once", read_count, AT(max_connections), 0, 1, 1000000},
    {"max_connections_per_address", "256", "connections at once from one address", read_count, AT(max_connections_per_address), LIVE, 1, 1000000},
    {"max_sessions_per_connection", "16", "registrations of one connection", read_count, AT(max_sessions_per_connection), LIVE, 1, 4096},
    {"commands_per_second", "500", "a client that commands faster is read more slowly", read_count, AT(commands_per_second), LIVE, 1, 1000000},
    {"commands_burst", "5000", "commands that may come at once", read_count, AT(commands_burst), LIVE, 1, 1000000},
    {"output_buffer", "64kb", "a connection that leaves more than this unread is closed", read_size32, AT(output_buffer), 0, KB, GB},
    {"failed_oids_per_minute", "60", "wrong ids from one address before answers come late", read_count, AT(failed_oids_per_minute), LIVE, 1, 1000000},
    {"registrar_errors_per_second", "10", "answers to unknown ids per address; 0: none", read_count, AT(registrar_errors_per_second), LIVE, 0, 1000000},
    {"dynamic_per_address", "8", "dynamic relays of one address", read_count, AT(dynamic_per_address), LIVE, 1, 65536},
    {"dynamic_per_target", "32", "dynamic relays to one relay port", read_count, AT(dynamic_per_target), LIVE, 1, 65536},
    {"dynamic_share", "50", "percent of the ports that dynamic relays may have; never the last two free ones", read_count, AT(dynamic_share), LIVE, 0, 100},
    {"hold_datagrams", "8", "datagrams kept of a flow while a policy decides", read_count, AT(hold_datagrams), LIVE, 1, 4096},
    {"hold_bytes", "16kb", "bytes kept of a flow", read_size32, AT(hold_bytes), LIVE, 1, GB},
    {"hold_time", "2s", "how long", read_duration, AT(hold_time_ns), LIVE, SECOND / 1000, 3600 * SECOND},
    {"hold_flows", "4096", "flows kept at once, per worker", read_count, AT(hold_flows), 0, 1, 1048576},
    {"hold_memory", "4mb", "bytes kept at once, per worker", read_size32, AT(hold_memory), 0, 64 * KB, GB},
    {"latch_window", "10s", "how long a new port of a known address may take over a pair; 0: never", read_duration, AT(latch_window_ns), LIVE, 0, FOREVER},
    {"allow_peers", "", "comma list of networks served although they are private", read_nets, AT(allow_peers), STRING | LIVE, 0, 0},
    {"deny_peers", "", "comma list of networks never served", read_nets, AT(deny_peers), STRING | LIVE, 0, 0},
    {"allow_low_ports", "off", "serve players whose UDP port is below 1024", read_bool, AT(allow_low_ports), LIVE, 0, 0},
    {"script_cpu", "10ms", "computing time of a hook", read_duration, AT(script_cpu_ns), LIVE, SECOND / 1000, 60 * SECOND},
    {"script_load_cpu", "1s", "computing time of a policy's load", read_duration, AT(script_load_cpu_ns), LIVE, SECOND / 1000, 600 * SECOND},
    {"script_wait", "2s", "how long a hook may wait", read_duration, AT(script_wait_ns), LIVE, SECOND / 1000, 600 * SECOND},
    {"script_memory", "32mb", "memory of the policies", read_size, AT(script_memory), LIVE, MB, 64 * GB},
};
/* clang-format on */

const size_t mr__setting_row_count = sizeof mr__setting_rows / sizeof mr__setting_rows[0];
