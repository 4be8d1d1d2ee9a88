/* SPDX-License-Identifier: MIT */
/*
 * Finds the line of a key in the text of a config file, for messages: a table of Lua
 * knows no lines. Pure.
 */
#ifndef MR_SCRIPT_LOCATE_H
#define MR_SCRIPT_LOCATE_H

#include <stddef.h>

/* One step into a table: a key, or (key NULL) the index-th item without a key, from 1. */
struct locate_step {
    const char *key;
    unsigned index;
};

/* The line, from 1, on which path[0..n_path) begins in the table behind the last `return`;
 * 0 when it is not written there (it may be in a variable, or be computed). */
unsigned mr__locate_line(const char *text, size_t n, const struct locate_step *path, size_t n_path);

#endif
