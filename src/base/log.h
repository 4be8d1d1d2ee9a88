/* SPDX-License-Identifier: MIT */
/*
 * Log records: levels, fields, and their two forms (text, JSON). Formatting is
 * pure; where a finished line goes is the sink's business (the daemon's is a ring
 * with a writer thread of its own, see control/log_writer.h). Any thread.
 *
 * One record is one line, whatever a player or a script put into it: control
 * characters and invalid UTF-8 are escaped. A PID never gets here: nothing that
 * logs is ever given one.
 */
#ifndef MR_BASE_LOG_H
#define MR_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level {
    MR_LOG_TRACE,
    MR_LOG_DEBUG,
    MR_LOG_INFO,
    MR_LOG_WARN,
    MR_LOG_ERROR,
    MR_LOG_FATAL,
    MR_LOG_SILENT, /* as a threshold: nothing passes */
};

enum log_format { MR_LOG_TEXT, MR_LOG_JSON };

enum log_field_type { MR_FIELD_STR, MR_FIELD_INT, MR_FIELD_UINT, MR_FIELD_DOUBLE, MR_FIELD_BOOL };

/* key is ours and trusted ([a-z_]+); a string value is hostile and may hold NULs. */
struct log_field {
    const char *key;
    enum log_field_type type;
    union {
        struct {
            const char *s;
            size_t n;
        } str;
        int64_t i;
        uint64_t u;
        double d;
        bool b;
    } v;
};

#define LOG_STR(k, text) mr__log_field_str((k), (text))
#define LOG_STRN(k, text, len) \
    ((struct log_field){.key = (k), .type = MR_FIELD_STR, .v.str = {(text), (len)}})
#define LOG_INT(k, x)    ((struct log_field){.key = (k), .type = MR_FIELD_INT, .v.i = (x)})
#define LOG_UINT(k, x)   ((struct log_field){.key = (k), .type = MR_FIELD_UINT, .v.u = (x)})
#define LOG_DOUBLE(k, x) ((struct log_field){.key = (k), .type = MR_FIELD_DOUBLE, .v.d = (x)})
#define LOG_BOOL(k, x)   ((struct log_field){.key = (k), .type = MR_FIELD_BOOL, .v.b = (x)})

struct log_field mr__log_field_str(const char *key, const char *text);

/* Takes a finished line, its LF included. Must not block and may drop. */
typedef void (*mr_log_sink)(void *user, enum log_level level, const char *line, size_t n);

/* Takes a record as it is, instead of a line. All of it is borrowed. */
typedef void (*mr_log_record)(void *user, enum log_level level, const char *area, const char *msg,
                              const struct log_field *fields, size_t n_fields);

struct log {
    enum log_level level; /* records below it cost one comparison */
    enum log_format format;
    mr_log_sink sink;
    void *user;
    uint64_t (*wall_ms)(void *user); /* time stamp source; NULL: the system's clock */
    mr_log_record record;            /* NULL: sink gets lines */
};

bool mr__log_level_parse(const char *text, size_t n, enum log_level *out);
const char *mr__log_level_name(enum log_level level);

/* msg is ours (no control characters needed escaping, but they are escaped too).
 * area names the part that speaks: "tcp", "relay", "policy", ... */
void mr__log(struct log *log, enum log_level level, const char *area, const char *msg,
             const struct log_field *fields, size_t n_fields);

#define MR_LOG(to, severity, part, text, ...)                                        \
    do {                                                                             \
        struct log *log_ = (to);                                                     \
        if (log_ && (severity) >= log_->level) {                                     \
            const struct log_field f_[] = {__VA_ARGS__};                             \
            mr__log(log_, (severity), (part), (text), f_, sizeof f_ / sizeof f_[0]); \
        }                                                                            \
    } while (0)

/* Formats a record into buf with its LF and returns the length; a record that
 * does not fit is cut at a character and says so ("...") but stays one valid line. */
size_t mr__log_format(char *buf, size_t cap, enum log_format format, uint64_t wall_ms,
                      enum log_level level, const char *area, const char *msg,
                      const struct log_field *fields, size_t n_fields);

/* Lets at most `burst` records of one kind through, then `per_s` a second, and
 * counts the rest in `suppressed`, which the next one that passes reports and sets to 0. */
struct log_limiter {
    uint64_t full_at_ms;
    uint32_t suppressed;
};
bool mr__log_limit(struct log_limiter *l, uint64_t now_ms, uint32_t per_s, uint32_t burst);

#endif
