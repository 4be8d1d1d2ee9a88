/* SPDX-License-Identifier: MIT */
/*
 * Which policies make the chain, and their text: from the command line, the setting
 * `policies`, the config file, or the default. Control thread (or before there is one).
 */
#ifndef MR_SCRIPT_SOURCE_H
#define MR_SCRIPT_SOURCE_H

#include "script/policies.h"

#include <stdbool.h>
#include <stddef.h>

enum { SOURCE_BYTES_MAX = 1024 * 1024 }; /* of one file: parsing is outside of any budget */

/* One use of a policy. */
struct policy_source {
    char *name;   /* 1 to 32 of [A-Za-z0-9._-]; unique in its chain */
    char *origin; /* path, or "shipped" */
    char *chunk;  /* name for messages, as Lua wants it: "@./bans.lua" */
    char *text;
    size_t n;
    bool is_shadow, is_skipped_on_error;
    const struct config_entry *entry; /* whose table of settings it is given, or NULL */
};

struct policy_sources {
    struct policy_source *items;
    size_t n;
};

/* 0, or a negative errno with err filled; then there is nothing to deinit. */
int mr__sources_collect(struct policy_sources *out, const struct policies_load *load,
                        struct script_error *err);
void mr__sources_deinit(struct policy_sources *s);

/* Reads a file of at most SOURCE_BYTES_MAX bytes; *text is for mr__free(), with a NUL behind its n
 * bytes. A negative errno (-EFBIG when it is larger) with *why a text that says it. */
int mr__source_read(const char *path, char **text, size_t *n, const char **why);

/* The path of a file named in another file: folder + path, unless that is absolute. NULL: out of
 * memory. folder "" is the working directory. */
char *mr__source_path(const char *folder, const char *path);

#endif
