/* SPDX-License-Identifier: MIT */
/*
 * See columns.h.
 */
#include "server/columns.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

enum { CELL_MAX = 512 };

void mr__columns_init(struct columns *t, const char *const *heads)
{
    *t = (struct columns){.n = 0};
    while (heads[t->n_columns]) {
        t->n_columns++;
    }
    assert(t->n_columns <= MR_COLUMNS_MAX);
    for (size_t i = 0; i < t->n_columns; i++) {
        mr__columns_add(t, "%s", heads[i]);
    }
}

/* How many bytes at s a terminal would obey and not show: controls, also those of 8 bits in
 * UTF-8 (C1), and what turns the direction of a text or ends its line. What players say of
 * themselves gets here as tags. */
static size_t obeyed(const unsigned char *s)
{
    if (s[0] < 0x20 || s[0] == 0x7f) {
        return 1;
    }
    if (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0) {
        return 2;
    }
    if (s[0] == 0xe2 && s[1] == 0x80) { /* U+200E, U+200F, U+2028 to U+202E */
        return (s[2] & 0xfeu) == 0x8e || (s[2] >= 0xa8 && s[2] <= 0xae) ? 3 : 0;
    }
    return s[0] == 0xe2 && s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9 ? 3 : 0; /* U+2066 on */
}

static void clean(char *text)
{
    for (char *at = text; *at; at++) {
        size_t n = obeyed((const unsigned char *)at);

        memset(at, '?', n);
        at += n > 1 ? n - 1 : 0;
    }
}

void mr__columns_add(struct columns *t, const char *format, ...)
{
    char text[CELL_MAX];
    va_list args;
    char *copy;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    clean(text);
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        char **cells = mr__realloc(t->cells, cap, sizeof *cells);
        if (!cells) {
            t->is_short_of_memory = 1;
            return;
        }
        t->cells = cells;
        t->cap = cap;
    }
    copy = mr__strndup(text, strlen(text));
    t->is_short_of_memory |= !copy;
    if (copy) {
        t->cells[t->n++] = copy;
    }
}

int mr__columns_print(const struct columns *t, FILE *out)
{
    size_t widths[MR_COLUMNS_MAX] = {0};

    if (t->is_short_of_memory) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < t->n; i++) {
        size_t n = strlen(t->cells[i]), column = i % t->n_columns;
        widths[column] = n > widths[column] ? n : widths[column];
    }
    for (size_t i = 0; i < t->n; i++) {
        size_t column = i % t->n_columns;
        int is_last = column + 1 == t->n_columns;
        if (is_last) {
            fprintf(out, "%s\n", t->cells[i]);
        } else {
            fprintf(out, "%-*s  ", (int)widths[column], t->cells[i]);
        }
    }
    return 0;
}

void mr__columns_deinit(struct columns *t)
{
    for (size_t i = 0; i < t->n; i++) {
        mr__free(t->cells[i]);
    }
    mr__free(t->cells);
}
