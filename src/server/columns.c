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

void mr__columns_add(struct columns *t, const char *format, ...)
{
    char text[CELL_MAX];
    va_list args;
    char *copy;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *at = text; *at; at++) {
        *at = (unsigned char)*at < 0x20 || *at == 0x7f ? '?' : *at;
    }
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
