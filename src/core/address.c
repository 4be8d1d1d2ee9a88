/* SPDX-License-Identifier: MIT */
/*
 * The strict address parser, the formatter (RFC 5952) and the address classes.
 * Written by hand instead of inet_pton(3) because a person must be told which byte
 * of a setting or a ban list is wrong and why. Pure; any thread. Start reading at
 * parse_v6() or mr_addr_parse().
 */
#include "core/address.h"

#include <string.h>

/* What is being parsed: text[at..n), and where the caller wants the position. */
struct scan {
    const char *text;
    size_t n;
    size_t at;
};

static int peek(const struct scan *s)
{
    return s->at < s->n ? (unsigned char)s->text[s->at] : -1;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static int hex_value(int c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/*
 * A decimal number without sign and without leading zeros (some parsers read those
 * as octal, so the two sides would not mean the same address). Stops behind the
 * last digit. On failure s->at is the byte that makes it wrong.
 */
static bool parse_decimal(struct scan *s, uint32_t max, uint32_t *out)
{
    size_t start = s->at;
    uint64_t value = 0;

    if (!is_digit(peek(s)))
        return false;
    for (; is_digit(peek(s)); s->at++) {
        if (s->at == start + 1 && s->text[start] == '0')
            return false;
        value = value * 10 + (uint64_t)(peek(s) - '0');
        if (value > max)
            return false;
    }
    *out = (uint32_t)value;
    return true;
}

static enum mr_addr_error parse_quad(struct scan *s, uint8_t ip[4])
{
    for (int i = 0; i < 4; i++) {
        uint32_t octet;

        if (i > 0) {
            if (peek(s) != '.')
                return MR_ADDR_NOT_AN_IP;
            s->at++;
        }
        if (!is_digit(peek(s)))
            return MR_ADDR_NOT_AN_IP;
        if (!parse_decimal(s, 255, &octet))
            return MR_ADDR_OCTET;
        ip[i] = (uint8_t)octet;
    }
    return MR_ADDR_OK;
}

/* One group of up to four hex digits. On failure s->at is the byte that is wrong. */
static bool parse_group(struct scan *s, uint16_t *out)
{
    size_t start = s->at;
    unsigned value = 0;

    for (; hex_value(peek(s)) >= 0; s->at++) {
        if (s->at - start == 4)
            return false;
        value = value << 4 | (unsigned)hex_value(peek(s));
    }
    *out = (uint16_t)value;
    return s->at > start;
}

/* Moves the groups behind the gap to the end. */
static void close_gap(uint8_t ip[16], unsigned groups, unsigned gap)
{
    unsigned tail = groups - gap;

    memmove(ip + 16 - 2 * (size_t)tail, ip + 2 * (size_t)gap, 2 * (size_t)tail);
    memset(ip + 2 * (size_t)gap, 0, 2 * (8 - (size_t)groups));
}

/* Has the group that starts here a dot before any colon? Then it is an IPv4 tail. */
static bool is_quad_next(const struct scan *s)
{
    size_t i = s->at;

    while (i < s->n && hex_value((unsigned char)s->text[i]) >= 0)
        i++;
    return i < s->n && s->text[i] == '.';
}

/*
 * The sixteen bytes of RFC 4291 text: groups, one "::" for one or more groups of
 * zeros, the last two groups as a dotted quad. Stops behind the address.
 */
static enum mr_addr_error parse_v6(struct scan *s, uint8_t ip[16])
{
    unsigned groups = 0, gap = 0;
    bool has_gap = false;
    enum mr_addr_error e;
    uint16_t value;

    memset(ip, 0, 16);
    if (peek(s) == ':') {
        s->at++;
        if (peek(s) != ':')
            return MR_ADDR_NOT_AN_IP;
        s->at++;
        has_gap = true;
    }
    /* A gap stands for at least one group, so beside it there are at most seven. */
    while (groups < (has_gap ? 7u : 8u)) {
        if (has_gap && gap == groups && hex_value(peek(s)) < 0 && peek(s) != ':')
            break; /* nothing behind the gap */
        if (is_quad_next(s)) {
            if (groups + 2 > (has_gap ? 7u : 8u) || (!has_gap && groups != 6))
                return MR_ADDR_NOT_AN_IP;
            e = parse_quad(s, ip + 2 * (size_t)groups);
            if (e)
                return e;
            groups += 2;
            break;
        }
        if (!parse_group(s, &value))
            return MR_ADDR_NOT_AN_IP;
        ip[2 * groups] = (uint8_t)(value >> 8);
        ip[2 * groups + 1] = (uint8_t)value;
        groups++;
        if (peek(s) != ':' || (groups == (has_gap ? 7u : 8u)))
            break;
        s->at++;
        if (peek(s) == ':') {
            if (has_gap)
                return MR_ADDR_NOT_AN_IP;
            s->at++;
            has_gap = true;
            gap = groups;
        }
    }
    if (!has_gap && groups < 8)
        return MR_ADDR_NOT_AN_IP;
    if (has_gap)
        close_gap(ip, groups, gap);
    return MR_ADDR_OK;
}

/* Does the address exist once per interface? Only then does a zone mean anything. */
static bool is_scoped(const struct mr_addr *a)
{
    if (a->family != 6)
        return false;
    return (a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80) ||
           (a->ip[0] == 0xff && ((a->ip[1] & 0x0f) == 1 || (a->ip[1] & 0x0f) == 2));
}

static enum mr_addr_error parse_zone(struct scan *s, struct mr_addr *a)
{
    if (peek(s) != '%')
        return MR_ADDR_OK;
    if (!is_scoped(a))
        return MR_ADDR_ZONE;
    s->at++;
    /* Zone 0 means "no zone" and would be written without one. */
    if (peek(s) == '0' || !parse_decimal(s, UINT32_MAX, &a->scope_id))
        return MR_ADDR_ZONE;
    return MR_ADDR_OK;
}

/* The first of '.' and ':' tells what somebody meant. */
static bool looks_like_v6(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ':' || text[i] == '.')
            return text[i] == ':';
    }
    return false;
}

static bool has_two_colons(const char *text, size_t n)
{
    const char *first = memchr(text, ':', n);

    return first && memchr(first + 1, ':', n - (size_t)(first + 1 - text));
}

static enum mr_addr_error parse_bare(struct scan *s, struct mr_addr *a, bool is_v6)
{
    enum mr_addr_error e;

    memset(a, 0, sizeof *a);
    a->family = is_v6 ? 6 : 4;
    e = is_v6 ? parse_v6(s, a->ip) : parse_quad(s, a->ip);
    if (e)
        return e;
    mr_addr_canonicalize(a);
    return parse_zone(s, a);
}

/* Ends a parse: position on failure, result on success. */
static enum mr_addr_error finish(const struct scan *s, enum mr_addr_error e, struct mr_addr *out,
                                 const struct mr_addr *parsed, size_t *at)
{
    if (!e && s->at < s->n)
        e = MR_ADDR_TRAILING;
    if (e && at)
        *at = s->at;
    if (!e)
        *out = *parsed;
    return e;
}

/* What parse_quad() takes and nothing else, in a sixth of its time: a program may name the
 * destination of each of its datagrams. Who is refused here goes there, and learns why. */
static bool read_quad(const char *text, size_t n, uint8_t ip[4])
{
    const char *p = text, *end = text + n;

    for (int i = 0; i < 4; i++) {
        unsigned value, c;

        if (p == end || (value = (unsigned char)*p - (unsigned)'0') > 9)
            return false;
        if (++p < end && (c = (unsigned char)*p - (unsigned)'0') <= 9) {
            if (value == 0)
                return false;
            value = value * 10 + c;
            if (++p < end && (c = (unsigned char)*p - (unsigned)'0') <= 9) {
                value = value * 10 + c;
                p++;
            }
        }
        if (value > 255 || (i < 3 && (p == end || *p++ != '.')))
            return false;
        ip[i] = (uint8_t)value;
    }
    return p == end;
}

enum mr_addr_error mr_addr_parse_ip(struct mr_addr *out, const char *text, size_t n, size_t *at)
{
    struct scan s = {text, n, 0};
    struct mr_addr a = {0};
    enum mr_addr_error e = MR_ADDR_EMPTY;

    if (read_quad(text, n, a.ip)) {
        a.family = 4;
        *out = a;
        return MR_ADDR_OK;
    }
    a = (struct mr_addr){0};
    if (n > 0 && text[0] == '[')
        e = MR_ADDR_BRACKET;
    else if (n > 0)
        e = parse_bare(&s, &a, looks_like_v6(text, n));
    return finish(&s, e, out, &a, at);
}

static enum mr_addr_error parse_port(struct scan *s, struct mr_addr *a)
{
    uint32_t port;

    if (peek(s) == -1)
        return MR_ADDR_PORT;
    if (peek(s) != ':')
        return MR_ADDR_TRAILING;
    s->at++;
    if (!parse_decimal(s, 65535, &port))
        return MR_ADDR_PORT;
    a->port = (uint16_t)port;
    return MR_ADDR_OK;
}

static enum mr_addr_error parse_bracketed(struct scan *s, struct mr_addr *a)
{
    const char *close = memchr(s->text, ']', s->n);
    struct scan inner = {s->text, close ? (size_t)(close - s->text) : s->n, 1};
    enum mr_addr_error e;

    if (!close) {
        s->at = s->n;
        return MR_ADDR_BRACKET;
    }
    e = parse_bare(&inner, a, true);
    if (!e && inner.at < inner.n)
        e = MR_ADDR_TRAILING;
    s->at = e ? inner.at : inner.n + 1;
    return e ? e : parse_port(s, a);
}

enum mr_addr_error mr_addr_parse(struct mr_addr *out, const char *text, size_t n, size_t *at)
{
    struct scan s = {text, n, 0};
    struct mr_addr a = {0};
    enum mr_addr_error e = MR_ADDR_EMPTY;

    if (n > 0 && text[0] == '[') {
        e = parse_bracketed(&s, &a);
    } else if (n > 0 && looks_like_v6(text, n)) {
        /* One colon is a name with a port. */
        e = has_two_colons(text, n) ? MR_ADDR_BRACKET : MR_ADDR_NOT_AN_IP;
    } else if (n > 0) {
        e = parse_bare(&s, &a, false);
        if (!e && peek(&s) == ']')
            e = MR_ADDR_BRACKET;
        if (!e)
            e = parse_port(&s, &a);
    }
    return finish(&s, e, out, &a, at);
}

const char *mr_addr_error_text(enum mr_addr_error e)
{
    switch (e) {
    case MR_ADDR_OK:
        return "fine";
    case MR_ADDR_EMPTY:
        return "it is empty";
    case MR_ADDR_NOT_AN_IP:
        return "not an IPv4 or IPv6 address";
    case MR_ADDR_OCTET:
        return "an octet is over 255 or has a leading zero";
    case MR_ADDR_BRACKET:
        return "brackets belong around an IPv6 address that has a port, and nowhere else";
    case MR_ADDR_ZONE:
        return "a zone is a number above 0 behind a link-local IPv6 address";
    case MR_ADDR_PORT:
        return "a port from 0 to 65535 is missing";
    case MR_ADDR_TRAILING:
        return "something follows the address";
    }
    return "?";
}

/* A bounded text: drops what does not fit, always leaves room for the NUL. */
struct text {
    char *buf;
    size_t cap, n;
};

static void put_char(struct text *t, char c)
{
    if (t->n + 1 < t->cap)
        t->buf[t->n++] = c;
}

static void put_text(struct text *t, const char *s)
{
    while (*s)
        put_char(t, *s++);
}

static void put_number(struct text *t, uint32_t value, uint32_t base)
{
    char digits[10];
    int n = 0;

    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value);
    while (n > 0)
        put_char(t, digits[--n]);
}

static void put_quad(struct text *t, const uint8_t ip[4])
{
    for (int i = 0; i < 4; i++) {
        if (i > 0)
            put_char(t, '.');
        put_number(t, ip[i], 10);
    }
}

static unsigned group_at(const uint8_t ip[16], int i)
{
    return (unsigned)ip[2 * i] << 8 | ip[2 * i + 1];
}

/* RFC 5952, 4.2: the longest run of zero groups, of equals the first, at least two. */
static int longest_zeros(const uint8_t ip[16], int *length)
{
    int best = -1;

    *length = 1;
    for (int i = 0; i < 8;) {
        int run = 0;

        while (i + run < 8 && group_at(ip, i + run) == 0)
            run++;
        if (run > *length) {
            *length = run;
            best = i;
        }
        i += run ? run : 1;
    }
    return best;
}

static bool is_mapped(const uint8_t ip[16])
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(ip, prefix, sizeof prefix) == 0;
}

static void put_v6(struct text *t, const uint8_t ip[16])
{
    int length, gap = longest_zeros(ip, &length);

    if (is_mapped(ip)) { /* not canonical, but somebody may want to see it */
        put_text(t, "::ffff:");
        put_quad(t, ip + 12);
        return;
    }
    for (int i = 0; i < 8;) {
        if (i == gap) {
            put_text(t, "::");
            i += length;
            continue;
        }
        if (i > 0 && i != gap + length)
            put_char(t, ':');
        put_number(t, group_at(ip, i), 16);
        i++;
    }
}

static void put_ip(struct text *t, const struct mr_addr *a)
{
    if (a->family == 4) {
        put_quad(t, a->ip);
    } else if (a->family == 6) {
        put_v6(t, a->ip);
        if (a->scope_id) {
            put_char(t, '%');
            put_number(t, a->scope_id, 10);
        }
    } else {
        put_text(t, "none");
    }
}

static size_t end_text(struct text *t)
{
    if (t->cap > 0)
        t->buf[t->n] = '\0';
    return t->n;
}

size_t mr_addr_format(const struct mr_addr *a, char *buf, size_t cap)
{
    struct text t = {buf, cap, 0};

    if (a->family == 6)
        put_char(&t, '[');
    put_ip(&t, a);
    if (a->family == 6)
        put_char(&t, ']');
    if (a->family) {
        put_char(&t, ':');
        put_number(&t, a->port, 10);
    }
    return end_text(&t);
}

size_t mr_addr_format_ip(const struct mr_addr *a, char *buf, size_t cap)
{
    struct text t = {buf, cap, 0};

    put_ip(&t, a);
    return end_text(&t);
}

size_t mr_addr_format_net(const struct mr_addr *a, char *buf, size_t cap)
{
    struct text t = {buf, cap, 0};
    struct mr_addr net = mr_addr_net(a);

    put_ip(&t, &net);
    if (a->family == 6)
        put_text(&t, "/64");
    return end_text(&t);
}

struct mr_addr mr_addr_net(const struct mr_addr *a)
{
    struct mr_addr net = *a;

    net.port = 0;
    if (net.family == 6) {
        memset(net.ip + 8, 0, 8);
        net.scope_id = 0;
    }
    return net;
}

void mr_addr_canonicalize(struct mr_addr *a)
{
    if (a->family == 6 && is_mapped(a->ip)) {
        memcpy(a->ip, a->ip + 12, 4);
        a->family = 4;
    }
    if (a->family != 4 && a->family != 6)
        memset(a, 0, sizeof *a);
    if (a->family == 4)
        memset(a->ip + 4, 0, 12);
    /* A scope on an address that has none would make two keys of one peer. */
    if (!is_scoped(a))
        a->scope_id = 0;
    a->zero = 0;
}

bool mr_addr_equal(const struct mr_addr *a, const struct mr_addr *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

bool mr_addr_same_ip(const struct mr_addr *a, const struct mr_addr *b)
{
    return a->family == b->family && a->scope_id == b->scope_id &&
           memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

static unsigned classify_v4(const uint8_t ip[4])
{
    uint32_t x = (uint32_t)ip[0] << 24 | (uint32_t)ip[1] << 16 | (uint32_t)ip[2] << 8 | ip[3];
    static const struct {
        uint32_t net;
        int bits;
        unsigned class;
    } nets[] = {
        {0x00000000, 8, MR_ADDR_UNSPECIFIED}, {0x7f000000, 8, MR_ADDR_LOOPBACK},
        {0x0a000000, 8, MR_ADDR_PRIVATE},     {0xac100000, 12, MR_ADDR_PRIVATE},
        {0xc0a80000, 16, MR_ADDR_PRIVATE},    {0x64400000, 10, MR_ADDR_PRIVATE},
        {0xa9fe0000, 16, MR_ADDR_LINK_LOCAL}, {0xe0000000, 4, MR_ADDR_MULTICAST},
        {0xf0000000, 4, MR_ADDR_BROADCAST},
    };
    unsigned class = 0;

    for (size_t i = 0; i < sizeof nets / sizeof nets[0]; i++) {
        if ((x ^ nets[i].net) >> (32 - nets[i].bits) == 0)
            class |= nets[i].class;
    }
    return class;
}

static unsigned classify_v6(const uint8_t ip[16])
{
    static const uint8_t zeros[16];

    if (memcmp(ip, zeros, 15) == 0 && ip[15] <= 1)
        return ip[15] ? MR_ADDR_LOOPBACK : MR_ADDR_UNSPECIFIED;
    if ((ip[0] & 0xfe) == 0xfc)
        return MR_ADDR_PRIVATE;
    if (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80)
        return MR_ADDR_LINK_LOCAL;
    return ip[0] == 0xff ? MR_ADDR_MULTICAST : 0;
}

unsigned mr_addr_classify(const struct mr_addr *a)
{
    if (a->family == 4)
        return classify_v4(a->ip);
    if (a->family == 6)
        return is_mapped(a->ip) ? classify_v4(a->ip + 12) : classify_v6(a->ip);
    return 0;
}
