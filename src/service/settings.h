/* SPDX-License-Identifier: MIT */
/*
 * Settings: one table of keys, five sources, one typed result. Reading text and
 * deciding which source wins happens here and nowhere else; files and the environment
 * are read by others and handed in. Control thread.
 *
 * To add a setting, add a row to the table in settings.c and a field below.
 */
#ifndef MR_SERVICE_SETTINGS_H
#define MR_SERVICE_SETTINGS_H

#include "base/log.h"
#include "core/address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct port_list {
    uint16_t *ports; /* sorted, distinct; 0 is not among them */
    size_t n;
    size_t any; /* how many of the kernel's choice besides ("0+7": 8) */
};

/* The typed values. Strings are owned by the settings object and end with it. */
struct settings_values {
    uint32_t oid_length, pid_length, words_oid_length;
    const char *oid_charset, *pid_charset;
    bool enable_words_oid;
    const char *socket_host, *http_host, *udp_host; /* literal addresses or names */
    uint16_t socket_port, http_port, udp_registrar_port;
    struct port_list udp_relay_ports;
    uint64_t udp_relay_timeout_ns;
    uint64_t udp_relay_cleanup_interval_ns;              /* accepted for noray's sake, unused */
    uint64_t max_individual_traffic, max_global_traffic; /* bytes/s, 0 = none */
    uint64_t traffic_interval_ns;
    uint64_t max_lifetime_duration_ns, max_lifetime_traffic; /* 0 = none */
    enum log_level log_level;
    enum log_format log_format;
    int log_addresses;          /* enum settings_log_addresses */
    const char *config;         /* "" = none */
    const char *policies;       /* comma list; "" = not set: the config file's, or dynamic */
    const char *public_address; /* "" = found out */
    bool pairing_open, connect_relay, errors;
    int workers; /* -1 = auto */
    uint32_t udp_buffer;
    const char *control, *user;
    uint64_t drain_timeout_ns;
    bool watch;
    const char *caps_exempt, *allow_peers, *deny_peers;
    uint32_t max_connections, max_connections_per_address, max_sessions_per_connection;
    uint32_t commands_per_second, commands_burst, output_buffer;
    uint32_t failed_oids_per_minute, registrar_errors_per_second;
    uint32_t dynamic_per_address, dynamic_per_target, dynamic_share;
    uint32_t hold_datagrams, hold_bytes, hold_flows, hold_memory;
    uint64_t hold_time_ns, latch_window_ns;
    bool allow_low_ports;
    uint64_t script_cpu_ns, script_load_cpu_ns, script_wait_ns;
    uint64_t script_memory;
};

enum settings_log_addresses { MR_LOG_ADDRESSES_FULL, MR_LOG_ADDRESSES_NET, MR_LOG_ADDRESSES_NONE };

/* Highest first wins: the order of enum values is the order of precedence. */
enum settings_source {
    MR_SETTING_DEFAULT,
    MR_SETTING_CONFIG,
    MR_SETTING_DOTENV,
    MR_SETTING_NORAY_ENV,     /* NORAY_X in the environment */
    MR_SETTING_MOONRELAY_ENV, /* MOONRELAY_X in the environment */
    MR_SETTING_COMMAND_LINE,
};

struct settings;

/* One thing to say to a person: a warning, or why a start is refused. One line, no LF. */
struct settings_message {
    bool is_error;
    char text[512];
};

/* NULL: out of memory. */
struct settings *mr__settings_create(void);
void mr__settings_destroy(struct settings *s);

/* Offers one value. key: "udp_relay_ports", "UDP_RELAY_PORTS", "MOONRELAY_UDP_RELAY_PORTS" or
 * "NORAY_UDP_RELAY_PORTS", in the form that the source uses; place: "line 3 of .env",
 * "moonrelay.lua:7" or NULL. Nothing is parsed yet. An unknown key becomes a message (an error with
 * "did you mean", for an unknown NORAY_ key a warning). -ENOMEM. */
int mr__settings_offer(struct settings *s, enum settings_source source, const char *key,
                       const char *value, size_t n, const char *place);

/* Reads "KEY=VALUE" strings as in environ(7): takes NORAY_* and MOONRELAY_* only. */
int mr__settings_offer_environment(struct settings *s, char *const *environment);

/* Reads the text of a .env file: KEY=VALUE lines, comments, optional export, quotes. */
int mr__settings_offer_dotenv(struct settings *s, const char *text, size_t n, const char *path);

/* Adds a message about something that the source said (a file's line that cannot be read, ...).
 * It counts as the source's: an error fails mr__settings_resolve() until the source is forgotten.
 * -ENOMEM. */
__attribute__((format(printf, 4, 5))) int mr__settings_complain(struct settings *s,
                                                                enum settings_source source,
                                                                bool is_error, const char *format,
                                                                ...);

/* Forgets what a source offered (a config file is read again by a reload). */
void mr__settings_forget(struct settings *s, enum settings_source source);

/* Parses and decides. 0, or -EINVAL when a message is an error; values are then unchanged. May be
 * called again after more offers. */
int mr__settings_resolve(struct settings *s);

/* Of the resolved settings of a reload: what cannot change while we run keeps the running value,
 * and kept (may be NULL) is called for each key that was to have another one. -ENOMEM: fresh is of
 * no use any more. */
int mr__settings_adopt(struct settings *fresh, const struct settings *running,
                       void (*kept)(void *user, const char *key), void *user);

/* Lowers max_connections to what the process has room for, until the next resolve. */
void mr__settings_cap_connections(struct settings *s, uint32_t most);

const struct settings_values *mr__settings_values(const struct settings *s);
size_t mr__settings_message_count(const struct settings *s);
const struct settings_message *mr__settings_message(const struct settings *s, size_t i);

/* For `moonrelay settings`: the keys in table order. */
struct settings_row {
    const char *key;    /* udp_relay_ports */
    const char *noray;  /* NORAY_UDP_RELAY_PORTS, or NULL */
    const char *value;  /* as written, or the default's text */
    const char *preset; /* the default's text */
    enum settings_source source;
    const char *place; /* or NULL */
    bool is_live;      /* a reload can change it */
    const char *help;  /* one line: meaning, unit, range */
};
size_t mr__settings_row_count(void);
void mr__settings_row(const struct settings *s, size_t i, struct settings_row *out);
/* Any form of a key; -ENOENT. */
int mr__settings_find(const char *key);
/* The known key that looks most like an unknown one, or NULL when none comes near. */
const char *mr__settings_suggest(const char *key);
/* "command line", "environment", ".env", "config file", "default". */
const char *mr__settings_source_name(enum settings_source source);

/* The parsers by themselves, for tests, fuzzing and specs in policies. Exactly n bytes; 0, or
 * -EINVAL with *why a static text saying what is expected; -ERANGE likewise; -ENOMEM. */
int mr__parse_size(const char *text, size_t n, uint64_t *bytes, const char **why);
int mr__parse_duration(const char *text, size_t n, uint64_t *ns, const char **why);
int mr__parse_bool(const char *text, size_t n, bool *out, const char **why);
int mr__parse_ports(const char *text, size_t n, struct port_list *out, const char **why);
void mr__port_list_deinit(struct port_list *list);

#endif
