/* SPDX-License-Identifier: MIT */
/*
 * The texts of settings as numbers: sizes, durations, booleans, port lists. Pure; any
 * thread. Declared in settings.h; nothing is trimmed and nothing is guessed, since noray
 * reads `1 kb` as one byte and nobody notices. Start reading at parse_decimal().
 */
#include "service/settings.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

__extension__ typedef unsigned __int128 wide;

enum {
    FRACTION_DIGITS_MAX = 18, /* 10^18 still fits 64 bits */
    NUMBER_DIGITS_MAX = 18,
};

/* A hundred years: any moment plus any duration stays far from the end of 64 bits. */
static const uint64_t duration_max_ns = 100ull * 365 * 24 * 3600 * 1000000000;

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},
    {"b", 1},
    {"kb", 1ull << 10},
    {"mb", 1ull << 20},
    {"gb", 1ull << 30},
    {"tb", 1ull << 40},
    {"pb", 1ull << 50},
};

/* Months and years as noray has them: 30 and 365 days. */
static const struct unit duration_units[] = {
    {"", 1000000000},
    {"us", 1000},
    {"ms", 1000000},
    {"s", 1000000000},
    {"sec", 1000000000},
    {"m", 60ull * 1000000000},
    {"min", 60ull * 1000000000},
    {"h", 3600ull * 1000000000},
    {"hr", 3600ull * 1000000000},
    {"d", 24ull * 3600 * 1000000000},
    {"w", 7ull * 24 * 3600 * 1000000000},
    {"mo", 30ull * 24 * 3600 * 1000000000},
    {"yr", 365ull * 24 * 3600 * 1000000000},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const struct unit *find_unit(const struct unit *units, size_t n_units, const char *text,
                                    size_t n)
{
    for (size_t i = 0; i < n_units; i++) {
        if (strlen(units[i].name) == n && strncasecmp(units[i].name, text, n) == 0) {
            return &units[i];
        }
    }
    return NULL;
}

/*
 * digits[.digits] [spaces] unit. In integers and exact to the last unit, so that `0.1mb` means the
 * same on every machine; what is left below one unit is rounded to the nearest.
 */
static int parse_decimal(const char *text, size_t n, const struct unit *units, size_t n_units,
                         uint64_t max, uint64_t *out)
{
    size_t i = 0, digits = 0, places = 0;
    uint64_t whole = 0, fraction = 0, scale = 1;
    bool is_zero = true;

    for (; i < n && is_digit(text[i]); i++, digits++) {
        if (digits >= NUMBER_DIGITS_MAX) {
            return -ERANGE;
        }
        whole = whole * 10 + (uint64_t)(text[i] - '0');
    }
    if (digits == 0) {
        return -EINVAL;
    }
    if (i < n && text[i] == '.') {
        for (i++; i < n && is_digit(text[i]); i++, places++) {
            if (places >= FRACTION_DIGITS_MAX) {
                return -EINVAL;
            }
            fraction = fraction * 10 + (uint64_t)(text[i] - '0');
            scale *= 10;
        }
        if (places == 0) {
            return -EINVAL;
        }
    }
    is_zero = whole == 0 && fraction == 0;
    size_t before = i;
    while (i < n && text[i] == ' ') {
        i++;
    }
    const struct unit *unit = find_unit(units, n_units, text + i, n - i);
    if (!unit || (i == n && i > before)) {
        return -EINVAL;
    }
    wide value = (wide)whole * unit->factor + ((wide)fraction * unit->factor + scale / 2) / scale;
    /* A value that rounds to 0 would be read as "no limit". */
    if (value > max || (value == 0 && !is_zero)) {
        return -ERANGE;
    }
    *out = (uint64_t)value;
    return 0;
}

int mr__parse_size(const char *text, size_t n, uint64_t *bytes, const char **why)
{
    int rc = parse_decimal(text, n, size_units, sizeof size_units / sizeof size_units[0], INT64_MAX,
                           bytes);

    if (rc == -ERANGE) {
        *why = "a size is at least one byte (0 is fine) and less than 8192pb";
    } else if (rc < 0) {
        *why = "expected a size: a number and b, kb, mb, gb, tb or pb (a bare number is bytes)";
    }
    return rc;
}

int mr__parse_duration(const char *text, size_t n, uint64_t *ns, const char **why)
{
    int rc = parse_decimal(text, n, duration_units,
                           sizeof duration_units / sizeof duration_units[0], duration_max_ns, ns);

    if (rc == -ERANGE) {
        *why = "a duration is at least a nanosecond (0 is fine) and at most 100yr";
    } else if (rc < 0) {
        *why = "expected a duration: a number and us, ms, s, sec, m, min, h, hr, d, w, mo or yr "
               "(a bare number is seconds)";
    }
    return rc;
}

int mr__parse_bool(const char *text, size_t n, bool *out, const char **why)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {{"true", true}, {"false", false}, {"yes", true}, {"no", false},
                 {"on", true},   {"off", false},   {"1", true},   {"0", false}};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i].word) == n && strncasecmp(words[i].word, text, n) == 0) {
            *out = words[i].value;
            return 0;
        }
    }
    *why = "expected true, false, yes, no, on, off, 1 or 0";
    return -EINVAL;
}

/* ---- ports --------------------------------------------------------------------------------- */

struct port_set {
    uint8_t bits[65536 / 8];
    size_t n;
    size_t any;
};

static const char *ports_expected =
    "expected ports: a comma list of 2048, 2048-2051 or 2048+3 (four ports)";

static void skip_spaces(const char *text, size_t n, size_t *i)
{
    while (*i < n && (text[*i] == ' ' || text[*i] == '\t')) {
        (*i)++;
    }
}

/* A number of at most five digits, so that it fits whatever it is. -EINVAL, -ERANGE. */
static int parse_number(const char *text, size_t n, size_t *i, uint32_t *out)
{
    size_t digits = 0;
    uint32_t value = 0;

    skip_spaces(text, n, i);
    for (; *i < n && is_digit(text[*i]); (*i)++) {
        if (value > 0 && ++digits >= 6) {
            return -ERANGE;
        }
        value = value * 10 + (uint32_t)(text[*i] - '0');
        if (digits == 0) {
            digits = 1;
        }
    }
    skip_spaces(text, n, i);
    *out = value;
    return digits > 0 ? 0 : -EINVAL;
}

static void add_range(struct port_set *set, uint32_t first, uint32_t last)
{
    for (uint32_t p = first; p <= last; p++) {
        uint8_t bit = (uint8_t)(1u << (p % 8));

        set->n += (set->bits[p / 8] & bit) == 0;
        set->bits[p / 8] |= bit;
    }
}

/* One element of the list; leaves *i at the comma or the end. */
static int parse_range(const char *text, size_t n, size_t *i, struct port_set *set,
                       const char **why)
{
    uint32_t first, second = 0;
    char sign = 0;
    int rc = parse_number(text, n, i, &first);

    if (rc == 0 && *i < n && (text[*i] == '-' || text[*i] == '+')) {
        sign = text[(*i)++];
        rc = parse_number(text, n, i, &second);
    }
    if (rc == -EINVAL || (rc == 0 && *i < n && text[*i] != ',')) {
        *why = ports_expected;
        return -EINVAL;
    }
    uint32_t last = sign == '-' ? second : first + second;
    if (rc == -ERANGE || first > 65535 || last > 65535) {
        *why = "a port is above 65535; expected 1 to 65535";
        return -ERANGE;
    }
    if (first == 0) {
        if (sign != '+') {
            *why = "port 0 is possible only as 0+7 (eight ports of the kernel's choice)";
            return -EINVAL;
        }
        set->any += second + 1;
        if (set->any > 65535) {
            *why = "more ports of the kernel's choice than there are ports";
            return -ERANGE;
        }
        return 0;
    }
    if (last < first) {
        *why = "a port range is reversed; expected the lower port first";
        return -EINVAL;
    }
    add_range(set, first, last);
    return 0;
}

int mr__parse_ports(const char *text, size_t n, struct port_list *out, const char **why)
{
    struct port_set set = {.n = 0};
    size_t i = 0;

    for (bool more = true; more; i++) {
        int rc = parse_range(text, n, &i, &set, why);

        if (rc < 0) {
            return rc;
        }
        more = i < n;
    }
    uint16_t *ports = mr__alloc(set.n ? set.n : 1, sizeof *ports);
    if (!ports) {
        *why = "out of memory";
        return -ENOMEM;
    }
    size_t k = 0;
    for (uint32_t p = 1; k < set.n; p++) {
        if (set.bits[p / 8] == 0) {
            p |= 7; /* none of these eight: a reload reads the ports several times */
        } else if (set.bits[p / 8] & (1u << (p % 8))) {
            ports[k++] = (uint16_t)p;
        }
    }
    *out = (struct port_list){.ports = ports, .n = k, .any = set.any};
    return 0;
}

void mr__port_list_deinit(struct port_list *list)
{
    mr__free(list->ports);
    *list = (struct port_list){.n = 0};
}
