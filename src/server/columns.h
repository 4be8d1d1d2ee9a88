/* SPDX-License-Identifier: MIT */
/*
 * A table for a person's terminal: columns as wide as what is in them, and nothing in a
 * cell that a terminal would obey. One thread.
 */
#ifndef MR_SERVER_COLUMNS_H
#define MR_SERVER_COLUMNS_H

#include <stddef.h>
#include <stdio.h>

enum { MR_COLUMNS_MAX = 12 };

struct columns {
    size_t n_columns;
    char **cells; /* by row */
    size_t n, cap;
    int is_short_of_memory;
};

/* heads: "ID", "ADDRESS", ...; NULL at the end. */
void mr__columns_init(struct columns *t, const char *const *heads);
/* The next cell; rows fill up one after the other. */
__attribute__((format(printf, 2, 3))) void mr__columns_add(struct columns *t, const char *format,
                                                           ...);
/* -ENOMEM: some cell found no room, nothing is printed. */
int mr__columns_print(const struct columns *t, FILE *out);
void mr__columns_deinit(struct columns *t);

#endif
