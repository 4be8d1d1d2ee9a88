/* SPDX-License-Identifier: MIT */
/*
 * Formats log records. Text is `time level area: message key=value key="a value"`,
 * JSON is one object a line. Any thread; no state. Start reading at
 * mr__log_format().
 *
 * A record that is too long is cut at a character and still ends properly: all
 * writing stops RESERVE_BYTES before the end, and what closes a record fits there.
 */
#include "base/log.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    LINE_MAX_BYTES = 4096, /* of mr__log(): on the stack, and within a pipe's atomic write */
    RESERVE_BYTES = 16,    /* a quote, `,"cut":"..."}` and LF, the longest ending */
    LINE_MIN_BYTES = 128,  /* below this not even time and level fit */
    WORD_MAX_BYTES = 64,   /* longer values are quoted, so that they can be cut in the middle */
};

static const char *const level_names[] = {"trace", "debug", "info",  "warn",
                                          "error", "fatal", "silent"};

bool mr__log_level_parse(const char *text, size_t n, enum log_level *out)
{
    for (unsigned i = 0; i < sizeof level_names / sizeof level_names[0]; i++) {
        if (strlen(level_names[i]) == n && strncasecmp(level_names[i], text, n) == 0) {
            *out = (enum log_level)i;
            return true;
        }
    }
    return false;
}

const char *mr__log_level_name(enum log_level level)
{
    return (unsigned)level < sizeof level_names / sizeof level_names[0] ? level_names[level] : "?";
}

struct log_field mr__log_field_str(const char *key, const char *text)
{
    return (struct log_field){
        .key = key, .type = MR_FIELD_STR, .v.str = {text ? text : "", text ? strlen(text) : 0}};
}

/* ---- writing with an end ------------------------------------------------------ */

struct out {
    char *buf;
    size_t n;
    size_t limit; /* nothing but the ending goes beyond */
    enum log_format format;
    bool is_cut;
    bool is_closed; /* the cut value has its dots and its quote already */
};

/* All or nothing; after the first thing that did not fit nothing does any more. */
static void put(struct out *o, const char *s, size_t n)
{
    /* A closing quote may have gone one byte beyond. */
    if (o->is_cut || o->n + n > o->limit) {
        o->is_cut = true;
        return;
    }
    memcpy(o->buf + o->n, s, n);
    o->n += n;
}

static void put_text(struct out *o, const char *s)
{
    put(o, s, strlen(s));
}

/* The ending: into the reserve. */
static void put_end(struct out *o, const char *s)
{
    size_t n = strlen(s);

    assert(o->n + n <= o->limit + RESERVE_BYTES);
    memcpy(o->buf + o->n, s, n);
    o->n += n;
}

/*
 * Bytes of the UTF-8 character at s, or 0 if it is not one (RFC 3629: no overlong
 * forms, no surrogates, nothing above U+10FFFF).
 */
static size_t utf8_length(const unsigned char *s, size_t n, uint32_t *code)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    uint32_t c = s[0];

    if (length == 0 || length > n || s[0] > 0xf4)
        return 0;
    if (length > 1)
        c &= 0x7fu >> length;
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    if (length > 1 && (c < smallest[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)))
        return 0;
    *code = c;
    return length;
}

/* What could end the line, move the cursor of a terminal or turn the text around. */
static bool is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0x200e ||
           c == 0x200f || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) ||
           c == 0xfeff;
}

/*
 * One escaped character. The forms are JSON's; a byte that is no UTF-8 becomes \xff
 * (in JSON as the text of that, since JSON has no bytes).
 */
static void put_escape(struct out *o, const unsigned char *s, size_t length, uint32_t c)
{
    char e[8];
    int n;

    if (length == 0)
        n = snprintf(e, sizeof e, o->format == MR_LOG_JSON ? "\\\\x%02x" : "\\x%02x", s[0]);
    else if (c == '\n' || c == '\r' || c == '\t')
        n = snprintf(e, sizeof e, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else
        n = snprintf(e, sizeof e, "\\u%04" PRIx32, c);
    put(o, e, (size_t)n);
}

/* Hostile text; what is not printable as it is gets escaped. Also escapes quotes
 * when they delimit. */
static void put_escaped(struct out *o, const char *text, size_t n, bool is_quoted)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t i = 0;

    while (i < n && !o->is_cut) {
        uint32_t c = 0;
        size_t length = utf8_length(s + i, n - i, &c);

        if (length == 0 || is_unsafe(c))
            put_escape(o, s + i, length, c);
        else if (c == '\\' || (c == '"' && is_quoted))
            put(o, c == '"' ? "\\\"" : "\\\\", 2);
        else
            put(o, text + i, length);
        i += length ? length : 1;
    }
}

static void put_quoted(struct out *o, const char *text, size_t n)
{
    put_text(o, "\"");
    if (o->is_cut)
        return;
    put_escaped(o, text, n, true);
    if (o->is_cut) {
        put_end(o, "...");
        o->is_closed = true;
    }
    put_end(o, "\"");
}

/* Takes back what was begun at mark when it did not fit, and says so. */
static void end_cut(struct out *o, size_t mark, const char *ending)
{
    if (o->is_cut && !o->is_closed) {
        o->n = mark;
        put_end(o, ending);
        o->is_closed = true;
    }
}

/* Words need no quotes in a text record. Everything else gets them, so that a value
 * can look like neither another field nor another record. */
static bool is_word(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];

        if (c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\')
            return false;
    }
    return n > 0 && n <= WORD_MAX_BYTES;
}

/* A host may have set a locale whose decimal point is a comma. */
static void put_double(struct out *o, double d)
{
    char digits[40], *comma;

    if (!isfinite(d)) {
        put_text(o, o->format == MR_LOG_JSON ? "null" : isnan(d) ? "nan" : d > 0 ? "inf" : "-inf");
        return;
    }
    snprintf(digits, sizeof digits, "%.15g", d);
    comma = strchr(digits, ',');
    if (comma)
        *comma = '.';
    put_text(o, digits);
}

static void put_value(struct out *o, const struct log_field *f)
{
    char digits[24];

    switch (f->type) {
    case MR_FIELD_STR:
        if (o->format == MR_LOG_TEXT && is_word(f->v.str.s, f->v.str.n))
            put_escaped(o, f->v.str.s, f->v.str.n, false);
        else
            put_quoted(o, f->v.str.s, f->v.str.n);
        break;
    case MR_FIELD_INT:
        snprintf(digits, sizeof digits, "%" PRId64, f->v.i);
        put_text(o, digits);
        break;
    case MR_FIELD_UINT:
        snprintf(digits, sizeof digits, "%" PRIu64, f->v.u);
        put_text(o, digits);
        break;
    case MR_FIELD_DOUBLE:
        put_double(o, f->v.d);
        break;
    case MR_FIELD_BOOL:
        put_text(o, f->v.b ? "true" : "false");
        break;
    }
}

/* "2026-03-01T12:00:00.000Z" by civil-from-days (Howard Hinnant's algorithm): no
 * libc state, no time zone. Years beyond 9999 are shown as its end. */
static void format_time(char out[32], uint64_t wall_ms)
{
    const uint64_t last_ms = 253402300799999u; /* 9999-12-31T23:59:59.999Z */
    uint64_t ms = wall_ms < last_ms ? wall_ms : last_ms;
    uint32_t second = (uint32_t)(ms / 1000 % 86400);
    uint32_t days = (uint32_t)(ms / 86400000) + 719468;
    uint32_t era = days / 146097, doe = days % 146097;
    uint32_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    uint32_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    uint32_t month = mp < 10 ? mp + 3 : mp - 9;

    snprintf(out, 32, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ",
             (yoe + era * 400 + (month <= 2)) % 10000, month % 100,
             (doy - (153 * mp + 2) / 5 + 1) % 100, second / 3600, second / 60 % 60, second % 60,
             (unsigned)(ms % 1000));
}

/* ---- the two forms --------------------------------------------------------------- */

static void format_text(struct out *o, const char *time, enum log_level level, const char *area,
                        const char *msg, const struct log_field *fields, size_t n_fields)
{
    put_text(o, time);
    put_text(o, " ");
    put_text(o, mr__log_level_name(level));
    put_text(o, " ");
    put_escaped(o, area, strlen(area), false);
    put_text(o, ": ");
    put_escaped(o, msg, strlen(msg), false);
    end_cut(o, o->n, "...");
    for (size_t i = 0; i < n_fields && !o->is_cut; i++) {
        size_t mark = o->n;

        put_text(o, " ");
        put_text(o, fields[i].key);
        put_text(o, "=");
        if (!o->is_cut)
            put_value(o, &fields[i]);
        end_cut(o, mark, " ...");
    }
    put_end(o, "\n");
}

static void put_member(struct out *o, const struct log_field *f)
{
    size_t mark = o->n;

    if (o->is_cut)
        return;
    put_text(o, ",\"");
    put_text(o, f->key);
    put_text(o, "\":");
    if (!o->is_cut)
        put_value(o, f);
    end_cut(o, mark, ",\"cut\":\"...\"");
}

static void format_json(struct out *o, const char *time, enum log_level level, const char *area,
                        const char *msg, const struct log_field *fields, size_t n_fields)
{
    const struct log_field texts[] = {LOG_STR("area", area), LOG_STR("msg", msg)};

    put_text(o, "{\"time\":\"");
    put_text(o, time);
    put_text(o, "\",\"level\":\"");
    put_text(o, mr__log_level_name(level));
    put_text(o, "\"");
    for (size_t i = 0; i < 2; i++)
        put_member(o, &texts[i]);
    for (size_t i = 0; i < n_fields; i++)
        put_member(o, &fields[i]);
    put_end(o, "}\n");
}

size_t mr__log_format(char *buf, size_t cap, enum log_format format, uint64_t wall_ms,
                      enum log_level level, const char *area, const char *msg,
                      const struct log_field *fields, size_t n_fields)
{
    struct out o = {.buf = buf, .limit = cap - RESERVE_BYTES, .format = format};
    char time[32];

    assert(cap >= LINE_MIN_BYTES);
    format_time(time, wall_ms);
    if (format == MR_LOG_JSON)
        format_json(&o, time, level, area, msg, fields, n_fields);
    else
        format_text(&o, time, level, area, msg, fields, n_fields);
    return o.n;
}

static uint64_t system_wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void mr__log(struct log *log, enum log_level level, const char *area, const char *msg,
             const struct log_field *fields, size_t n_fields)
{
    char line[LINE_MAX_BYTES];
    size_t n;

    if (level >= log->level && log->record)
        log->record(log->user, level, area, msg, fields, n_fields);
    if (level < log->level || log->record || !log->sink)
        return;
    n = mr__log_format(line, sizeof line, log->format,
                       log->wall_ms ? log->wall_ms(log->user) : system_wall_ms(), level, area, msg,
                       fields, n_fields);
    log->sink(log->user, level, line, n);
}

/* GCRA, as in core/limit.h, in milliseconds and without sharing. */
bool mr__log_limit(struct log_limiter *l, uint64_t now_ms, uint32_t per_s, uint32_t burst)
{
    uint64_t cost_ms = per_s ? (1000 + per_s - 1) / per_s : 1000;
    uint64_t full_at = l->full_at_ms > now_ms ? l->full_at_ms : now_ms;

    if (full_at + cost_ms > now_ms + cost_ms * burst) {
        if (l->suppressed < UINT32_MAX)
            l->suppressed++;
        return false;
    }
    l->full_at_ms = full_at + cost_ms;
    return true;
}
