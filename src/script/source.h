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

/* A file that a policy required. */
struct required_file {
    char *name;  /* "lib.rules" */
    char *chunk; /* "@policies/lib/rules.lua" */
    char *text;
    size_t n;
};

/* One use of a policy. */
struct policy_source {
    char *name;   /* 1 to 32 of [A-Za-z0-9._-]; unique in its chain */
    char *origin; /* path, or "shipped" */
    char *chunk;  /* name for messages, as Lua wants it: "@./bans.lua" */
    char *text;
    size_t n;
    bool is_shipped, is_shadow, is_skipped_on_error;
    const struct config_entry *entry; /* whose table of settings it is given, or NULL */
    struct required_file *required;
    size_t n_required;
};

struct source_setting {
    char *key, *value;
};

/* All that a generation is made of, kept in memory, so that it can be made again. */
struct policy_sources {
    unsigned refs;
    struct policy_source *items;
    size_t n;
    struct config *config; /* a reference; may be NULL */
    struct source_setting *settings;
    size_t n_settings;
    uint64_t cpu_ns, load_cpu_ns, wait_ns, memory_bytes;
};

/* Made with one reference. 0, or a negative errno with err filled. */
int mr__sources_collect(struct policy_sources **out, const struct policies_load *load,
                        struct script_error *err);
struct policy_sources *mr__sources_ref(struct policy_sources *s);
void mr__sources_unref(struct policy_sources *s); /* accepts NULL */

/* Whether generations made of them would be the same. */
bool mr__sources_are_same(const struct policy_sources *a, const struct policy_sources *b);

/* Keeps a file that was required; takes text in any case. NULL: out of memory. */
const struct required_file *mr__source_add_required(struct policy_source *s, const char *name,
                                                    const char *path, char *text, size_t n);

/* Reads a regular file of at most SOURCE_BYTES_MAX bytes; *text is for mr__free(), with a NUL
 * behind its n bytes. A negative errno (-EFBIG when it is larger) with *why a text that says it. */
int mr__source_read(const char *path, char **text, size_t *n, const char **why);

/* The same for a file below a folder ("": the working directory; else with its last slash), which
 * neither `..` nor a symlink leads out of. */
int mr__source_read_below(const char *folder, const char *path, char **text, size_t *n,
                          const char **why);

/* The path of a file named in another file: folder + path, unless that is absolute. NULL: out of
 * memory. folder "" is the working directory. */
char *mr__source_path(const char *folder, const char *path);

#endif
