/* SPDX-License-Identifier: MIT */
/*
 * The networks behind cidr.h. Control thread. Nets are collected in the order in which
 * they are named; finishing sorts them and cuts them into disjoint ranges, so that the
 * longest match is the only range that has an address:
 *
 *     named     |---------- 10.0.0.0/8 ----------|
 *                      |-- 10.2.0.0/16 --|
 *     ranges    |--/8-||------ /16 ------||--/8--|
 *
 * Start reading at cut(). Both families are handled as 128-bit numbers; IPv4 uses the
 * low 32 bits, and a v4-mapped net is the IPv4 net that it maps.
 */
#include "service/cidr.h"

#include "base/alloc.h"
#include "service/hash.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_ENTRIES = 64,
    FIRST_BYTES = 1024,
    SHOWN_MAX = 64, /* bytes of a wrong text that a message repeats */
    DEPTH_MAX = 129 /* nets around one address: one a prefix length, /0 to /128 */
};

struct entry {
    mr__wide first;
    uint32_t number;
    uint8_t family, bits;
};

struct span {
    uint32_t at, n; /* in texts */
};

struct cidr {
    unsigned refs;
    struct mr_nets nets;
    struct mr_range4 *v4;
    struct mr_range6 *v6;
    struct span *values; /* NULL: no net has one */
    char *texts;
    uint32_t n_numbers, n_nets;
    size_t bytes;
};

struct cidr_builder {
    struct entry *entries;
    size_t n, cap;
    struct span *values; /* as many as entries, or NULL */
    char *texts;
    size_t texts_n, texts_cap;
};

/* ---- one net --------------------------------------------------------------------------------- */

static unsigned width(unsigned family)
{
    return family == 4 ? 32 : 128;
}

/* The bits behind the prefix, all set. */
static mr__wide host_bits(unsigned family, unsigned bits)
{
    unsigned n = width(family) - bits;

    return n == 128 ? ~(mr__wide)0 : ((mr__wide)1 << n) - 1;
}

static mr__wide to_wide(const struct mr_addr *a)
{
    mr__wide v = 0;

    for (unsigned i = 0; i < width(a->family) / 8; i++) {
        v = v << 8 | a->ip[i];
    }
    return v;
}

static void from_wide(uint8_t *ip, unsigned bytes, mr__wide v)
{
    for (unsigned i = bytes; i-- > 0; v >>= 8) {
        ip[i] = (uint8_t)v;
    }
}

static bool parse_bits(const char *digits, size_t n, unsigned *out)
{
    unsigned bits = 0;

    if (n == 0 || n > 3 || (n > 1 && digits[0] == '0')) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (digits[i] < '0' || digits[i] > '9') {
            return false;
        }
        bits = bits * 10 + (unsigned)(digits[i] - '0');
    }
    *out = bits;
    return true;
}

bool mr__cidr_net(struct str text, struct mr_addr *base, unsigned *bits)
{
    const char *slash = text.n > 0 ? memchr(text.s, '/', text.n) : NULL;
    size_t ip_n = slash ? (size_t)(slash - text.s) : text.n;
    unsigned named;

    if (text.n == 0 || mr_addr_parse_ip(base, text.s, ip_n, NULL) != MR_ADDR_OK ||
        base->scope_id != 0) {
        return false;
    }
    bool is_mapped = base->family == 4 && memchr(text.s, ':', ip_n) != NULL;
    unsigned most = is_mapped ? 128 : width(base->family);
    if (!slash) {
        *bits = width(base->family);
        return true;
    }
    if (!parse_bits(slash + 1, text.n - ip_n - 1, &named) || named > most) {
        return false;
    }
    if (is_mapped && named < 96) {
        return false; /* half of the mapping: neither an IPv4 net nor one of IPv6 peers */
    }
    *bits = is_mapped ? named - 96 : named;
    return true;
}

bool mr__cidr_trim(struct mr_addr *base, unsigned bits)
{
    mr__wide v = to_wide(base), host = host_bits(base->family, bits);

    from_wide(base->ip, width(base->family) / 8, v & ~host);
    return (v & host) != 0;
}

/* What a message shows of a text: its beginning, on one line. */
static void shown(char out[SHOWN_MAX + 1], struct str text)
{
    size_t n = text.n < SHOWN_MAX ? text.n : SHOWN_MAX;

    for (size_t i = 0; i < n; i++) {
        out[i] = text.s[i] >= 0x20 && text.s[i] < 0x7f ? text.s[i] : '?';
    }
    out[n] = '\0';
}

/* A message that is too long is cut. */
__attribute__((format(printf, 2, 3))) static void say(char why[MR_CIDR_WHY_MAX], const char *format,
                                                      ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, MR_CIDR_WHY_MAX, format, args);
    va_end(args);
}

static int read_net(struct entry *out, struct str text, char why[MR_CIDR_WHY_MAX])
{
    char word[SHOWN_MAX + 1], ip[MR_ADDR_TEXT_MAX];
    struct mr_addr base;
    unsigned bits;

    if (!mr__cidr_net(text, &base, &bits)) {
        shown(word, text);
        say(why, "not a network: %s", word);
        return -EINVAL;
    }
    if (mr__cidr_trim(&base, bits)) {
        shown(word, text);
        mr_addr_format_ip(&base, ip, sizeof ip);
        say(why, "%s has bits behind its prefix (%s/%u?)", word, ip, bits);
        return -EINVAL;
    }
    *out = (struct entry){.first = to_wide(&base), .family = base.family, .bits = (uint8_t)bits};
    return 0;
}

/* ---- collecting ------------------------------------------------------------------------------ */

struct cidr_builder *mr__cidr_begin(void)
{
    return mr__alloc(1, sizeof(struct cidr_builder));
}

void mr__cidr_cancel(struct cidr_builder *b)
{
    if (!b) {
        return;
    }
    mr__free(b->entries);
    mr__free(b->values);
    mr__free(b->texts);
    mr__free(b);
}

static int reserve(struct cidr_builder *b)
{
    size_t cap = b->cap ? b->cap * 2 : FIRST_ENTRIES;

    if (b->n < b->cap) {
        return 0;
    }
    struct entry *entries = mr__realloc(b->entries, cap, sizeof *entries);
    if (!entries) {
        return -ENOMEM;
    }
    b->entries = entries;
    if (b->values) {
        struct span *values = mr__realloc(b->values, cap, sizeof *values);
        if (!values) {
            return -ENOMEM;
        }
        b->values = values;
    }
    b->cap = cap;
    return 0;
}

/* Keeps the value of the net that will be the next one. */
static int keep_value(struct cidr_builder *b, struct str value)
{
    if (!b->values) {
        if (value.n == 0) {
            return 0;
        }
        b->values = mr__alloc(b->cap, sizeof *b->values);
        if (!b->values) {
            return -ENOMEM;
        }
    }
    if (value.n > UINT32_MAX - b->texts_n) {
        return -E2BIG;
    }
    if (b->texts_n + value.n > b->texts_cap) {
        size_t cap = (b->texts_n + value.n) * 2 + FIRST_BYTES;
        char *texts = mr__realloc(b->texts, cap, 1);
        if (!texts) {
            return -ENOMEM;
        }
        b->texts = texts;
        b->texts_cap = cap;
    }
    if (value.n > 0) {
        memcpy(b->texts + b->texts_n, value.s, value.n);
    }
    b->values[b->n] = (struct span){.at = (uint32_t)b->texts_n, .n = (uint32_t)value.n};
    b->texts_n += value.n;
    return 0;
}

static int append(struct cidr_builder *b, struct str net, struct str value,
                  char why[MR_CIDR_WHY_MAX])
{
    struct entry e;
    int rc = read_net(&e, net, why);

    if (rc < 0) {
        return rc;
    }
    if (b->n == MR_CIDR_NETS_MAX) {
        say(why, "more than %d networks", MR_CIDR_NETS_MAX);
        return -E2BIG;
    }
    rc = reserve(b);
    rc = rc < 0 ? rc : keep_value(b, value);
    if (rc < 0) {
        say(why, "%s", rc == -ENOMEM ? "out of memory" : "too much text");
        return rc;
    }
    e.number = (uint32_t)b->n;
    b->entries[b->n++] = e;
    return 0;
}

int mr__cidr_add(struct cidr_builder *b, struct str net, char why[MR_CIDR_WHY_MAX])
{
    return append(b, net, (struct str){.n = 0}, why);
}

/* ---- cutting into ranges --------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->family != y->family) {
        return x->family < y->family ? -1 : 1;
    }
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    if (x->bits != y->bits) {
        return x->bits < y->bits ? -1 : 1; /* the net around comes before those inside */
    }
    return x->number < y->number ? -1 : 1;
}

static void sort(struct entry *entries, size_t n)
{
    size_t i = 1;

    while (i < n && compare(&entries[i - 1], &entries[i]) < 0) {
        i++;
    }
    if (i < n) { /* most lists come sorted */
        qsort(entries, n, sizeof *entries, compare);
    }
}

/* Of a net named twice the later one stays. Sorted before and after. */
static size_t unite_same(struct entry *entries, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        struct entry *last = kept > 0 ? &entries[kept - 1] : NULL;

        if (last && last->family == entries[i].family && last->first == entries[i].first &&
            last->bits == entries[i].bits) {
            last->number = entries[i].number;
        } else {
            entries[kept++] = entries[i];
        }
    }
    return kept;
}

/* Where ranges go; without arrays they are counted only. */
struct sink {
    struct mr_range4 *v4;
    struct mr_range6 *v6;
    uint32_t n4, n6;
};

static void emit(struct sink *out, unsigned family, mr__wide first, mr__wide last, uint32_t value)
{
    if (family == 4) {
        if (out->v4) {
            out->v4[out->n4] = (struct mr_range4){(uint32_t)first, (uint32_t)last, value};
        }
        out->n4++;
        return;
    }
    if (out->v6) {
        from_wide(out->v6[out->n6].first, 16, first);
        from_wide(out->v6[out->n6].last, 16, last);
        out->v6[out->n6].value = value;
    }
    out->n6++;
}

/* The nets around the place that the cut has come to, the smallest on top. */
struct nest {
    struct open_net {
        mr__wide last;
        uint32_t number;
    } open[DEPTH_MAX];
    unsigned depth;
    unsigned family;
    mr__wide next;  /* the first address that no range has yet */
    bool is_at_end; /* there is none: the last one was the highest there is */
};

/* Ends the nets that lie before `first` wholly; all of them when there is no next net. */
static void leave(struct nest *nest, const mr__wide *first, struct sink *out)
{
    while (nest->depth > 0 && (!first || nest->open[nest->depth - 1].last < *first)) {
        const struct open_net *top = &nest->open[--nest->depth];

        if (!nest->is_at_end && nest->next <= top->last) {
            emit(out, nest->family, nest->next, top->last, top->number);
            nest->next = top->last + 1;
            nest->is_at_end = top->last == host_bits(nest->family, 0);
        }
    }
}

/*
 * One walk over the sorted nets with a stack of those that are open. A net that starts
 * ends those before it and interrupts the one around it, which goes on behind it. Two nets
 * never overlap in part, so the stack is no deeper than there are prefix lengths.
 */
static void cut(const struct entry *entries, size_t n, struct sink *out)
{
    struct nest nest = {.depth = 0};

    for (size_t i = 0; i < n; i++) {
        const struct entry *e = &entries[i];

        if (e->family != nest.family) {
            leave(&nest, NULL, out);
            nest.family = e->family;
            nest.is_at_end = false;
        }
        leave(&nest, &e->first, out);
        if (nest.depth > 0 && nest.next < e->first) {
            emit(out, nest.family, nest.next, e->first - 1, nest.open[nest.depth - 1].number);
        }
        nest.next = e->first;
        nest.open[nest.depth++] = (struct open_net){
            .last = e->first | host_bits(e->family, e->bits), .number = e->number};
    }
    leave(&nest, NULL, out);
}

static int make_ranges(struct cidr *c, const struct entry *entries, size_t n)
{
    struct sink sink = {.n4 = 0};

    cut(entries, n, &sink);
    c->v4 = mr__alloc(sink.n4, sizeof *c->v4);
    c->v6 = mr__alloc(sink.n6, sizeof *c->v6);
    if (!c->v4 || !c->v6) {
        return -ENOMEM;
    }
    c->bytes += sink.n4 * sizeof *c->v4 + sink.n6 * sizeof *c->v6;
    sink = (struct sink){.v4 = c->v4, .v6 = c->v6};
    cut(entries, n, &sink);
    c->nets = (struct mr_nets){.v4 = c->v4, .v6 = c->v6, .n4 = sink.n4, .n6 = sink.n6};
    return 0;
}

int mr__cidr_finish(struct cidr_builder *b, struct cidr **out)
{
    struct cidr *c = mr__alloc(1, sizeof *c);

    if (!c) {
        mr__cidr_cancel(b);
        return -ENOMEM;
    }
    c->refs = 1;
    c->n_numbers = (uint32_t)b->n;
    c->bytes = sizeof *c;
    sort(b->entries, b->n);
    c->n_nets = (uint32_t)unite_same(b->entries, b->n);
    int rc = make_ranges(c, b->entries, c->n_nets);
    if (rc == 0 && b->values) {
        c->values = b->values;
        c->texts = b->texts;
        c->bytes += b->cap * sizeof *b->values + b->texts_cap;
        b->values = NULL;
        b->texts = NULL;
    }
    mr__cidr_cancel(b);
    if (rc < 0) {
        mr__cidr_unref(c);
        return rc;
    }
    *out = c;
    return 0;
}

/* ---- text ------------------------------------------------------------------------------------ */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct str trimmed(struct str s)
{
    while (s.n > 0 && is_blank(s.s[0])) {
        s.s++;
        s.n--;
    }
    while (s.n > 0 && is_blank(s.s[s.n - 1])) {
        s.n--;
    }
    return s;
}

static int add_line(struct cidr_builder *b, struct str line, char why[MR_CIDR_WHY_MAX])
{
    const char *hash = line.n > 0 ? memchr(line.s, '#', line.n) : NULL;

    line.n = hash ? (size_t)(hash - line.s) : line.n;
    line = trimmed(line);
    struct str net = {.s = line.s};
    while (net.n < line.n && !is_blank(line.s[net.n])) {
        net.n++;
    }
    struct str value = trimmed((struct str){.s = line.s + net.n, .n = line.n - net.n});
    return net.n == 0 ? 0 : append(b, net, value, why);
}

static int add_text(struct cidr_builder *b, const char *text, size_t n, char why[MR_CIDR_WHY_MAX])
{
    char reason[MR_CIDR_WHY_MAX];
    unsigned long number = 1;

    for (size_t start = 0; start < n; number++) {
        const char *lf = memchr(text + start, '\n', n - start);
        size_t end = lf ? (size_t)(lf - text) : n;
        int rc = add_line(b, (struct str){.s = text + start, .n = end - start}, reason);
        if (rc < 0) {
            say(why, "line %lu: %s", number, reason);
            return rc;
        }
        start = end + 1;
    }
    return 0;
}

int mr__cidr_parse(struct cidr **out, const char *text, size_t n, char why[MR_CIDR_WHY_MAX])
{
    struct cidr_builder *b = mr__cidr_begin();

    say(why, "out of memory");
    if (!b) {
        return -ENOMEM;
    }
    int rc = add_text(b, text, n, why);
    if (rc < 0) {
        mr__cidr_cancel(b);
        return rc;
    }
    return mr__cidr_finish(b, out);
}

/* ---- using it -------------------------------------------------------------------------------- */

struct cidr *mr__cidr_ref(struct cidr *c)
{
    c->refs++;
    return c;
}

void mr__cidr_unref(struct cidr *c)
{
    if (!c || --c->refs > 0) {
        return;
    }
    mr__free(c->v4);
    mr__free(c->v6);
    mr__free(c->values);
    mr__free(c->texts);
    mr__free(c);
}

uint32_t mr__cidr_find(const struct cidr *c, const struct mr_addr *a)
{
    struct mr_addr canonical = *a;

    mr_addr_canonicalize(&canonical);
    return mr_nets_find(&c->nets, &canonical);
}

struct str mr__cidr_value(const struct cidr *c, uint32_t number)
{
    if (!c->values || number >= c->n_numbers) {
        return (struct str){.s = "", .n = 0};
    }
    const struct span *v = &c->values[number];
    return (struct str){.s = c->texts ? c->texts + v->at : "", .n = v->n};
}

size_t mr__cidr_count(const struct cidr *c)
{
    return c->n_nets;
}

size_t mr__cidr_bytes(const struct cidr *c)
{
    return c->bytes;
}

const struct mr_nets *mr__cidr_ranges(const struct cidr *c)
{
    return &c->nets;
}
