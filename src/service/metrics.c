/* SPDX-License-Identifier: MIT */
/*
 * The writer behind metrics.h: text into one growing buffer. Control thread. Being out of
 * memory is remembered and told once, by mr__metrics_finish(), so that sources stay plain.
 */
#include "service/metrics.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_BYTES = 16384, FAMILY_MAX = 96, NUMBER_MAX = 40 };

struct metrics {
    char *text;
    size_t n, cap;
    bool has_failed;
    char family[FAMILY_MAX];
};

static void put(struct metrics *m, const char *s, size_t n)
{
    if (m->has_failed) {
        return;
    }
    if (m->n + n + 1 > m->cap) {
        size_t cap = m->cap ? m->cap : FIRST_BYTES;
        while (cap < m->n + n + 1) {
            cap *= 2;
        }
        char *text = mr__realloc(m->text, cap, 1);
        if (!text) {
            m->has_failed = true;
            return;
        }
        m->text = text;
        m->cap = cap;
    }
    memcpy(m->text + m->n, s, n);
    m->n += n;
    m->text[m->n] = '\0';
}

static void put_text(struct metrics *m, const char *s)
{
    put(m, s, strlen(s));
}

/* quotes: a label's value; a help text keeps its quotes. */
static void put_escaped(struct metrics *m, const char *s, size_t n, bool quotes)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\\') {
            put_text(m, "\\\\");
        } else if (s[i] == '\n') {
            put_text(m, "\\n");
        } else if (s[i] == '"' && quotes) {
            put_text(m, "\\\"");
        } else if (s[i] == '\0' || s[i] == '\r') {
            put_text(m, "?"); /* legal but a trap for readers of lines */
        } else {
            put(m, s + i, 1);
        }
    }
}

static void put_double(struct metrics *m, double v)
{
    char buf[NUMBER_MAX];

    if (isnan(v)) {
        put_text(m, "NaN");
    } else if (isinf(v)) {
        put_text(m, v > 0 ? "+Inf" : "-Inf");
    } else {
        snprintf(buf, sizeof buf, "%.15g", v);
        put_text(m, buf);
    }
}

/* name{labels,le="bound"} and the space behind it. */
static void put_name(struct metrics *m, const char *suffix, const struct metric_label *labels,
                     size_t n, const double *le)
{
    put_text(m, m->family);
    put_text(m, suffix);
    if (n > 0 || le) {
        put_text(m, "{");
        for (size_t i = 0; i < n; i++) {
            put_text(m, i ? "," : "");
            put_text(m, labels[i].key);
            put_text(m, "=\"");
            put_escaped(m, labels[i].value.s, labels[i].value.n, true);
            put_text(m, "\"");
        }
        if (le) {
            put_text(m, n ? ",le=\"" : "le=\"");
            put_double(m, *le);
            put_text(m, "\"");
        }
        put_text(m, "}");
    }
    put_text(m, " ");
}

static void put_uint_line(struct metrics *m, uint64_t v)
{
    char buf[NUMBER_MAX];

    snprintf(buf, sizeof buf, "%" PRIu64 "\n", v);
    put_text(m, buf);
}

void mr__metrics_family(struct metrics *m, const char *name, enum metric_type type,
                        const char *help)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};

    snprintf(m->family, sizeof m->family, "%s", name);
    put_text(m, "# HELP ");
    put_text(m, m->family);
    put_text(m, " ");
    put_escaped(m, help, strlen(help), false);
    put_text(m, "\n# TYPE ");
    put_text(m, m->family);
    put_text(m, " ");
    put_text(m, types[type]);
    put_text(m, "\n");
}

void mr__metrics_uint(struct metrics *m, const struct metric_label *labels, size_t n, uint64_t v)
{
    put_name(m, "", labels, n, NULL);
    put_uint_line(m, v);
}

void mr__metrics_double(struct metrics *m, const struct metric_label *labels, size_t n, double v)
{
    put_name(m, "", labels, n, NULL);
    put_double(m, v);
    put_text(m, "\n");
}

void mr__metrics_histogram(struct metrics *m, const struct metric_label *labels, size_t n,
                           const double *bounds, const uint64_t *counts, size_t n_bounds,
                           double sum)
{
    const double infinity = HUGE_VAL;
    uint64_t total = 0;

    for (size_t i = 0; i <= n_bounds; i++) {
        total += counts[i];
        put_name(m, "_bucket", labels, n, i < n_bounds ? &bounds[i] : &infinity);
        put_uint_line(m, total);
    }
    put_name(m, "_sum", labels, n, NULL);
    put_double(m, sum);
    put_text(m, "\n");
    put_name(m, "_count", labels, n, NULL);
    put_uint_line(m, total);
}

struct metrics *mr__metrics_create(void)
{
    return mr__alloc(1, sizeof(struct metrics));
}

char *mr__metrics_finish(struct metrics *m, size_t *n)
{
    put(m, "", 0); /* an empty page is a text as well */
    char *text = m->has_failed ? NULL : m->text;

    if (!text) {
        mr__free(m->text);
    }
    if (n) {
        *n = text ? m->n : 0;
    }
    mr__free(m);
    return text;
}
