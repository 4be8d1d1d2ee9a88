/* SPDX-License-Identifier: MIT */
/*
 * What the policy layer reads of a config besides its settings. Control thread.
 */
#ifndef MR_SCRIPT_CONFIG_ENTRY_H
#define MR_SCRIPT_CONFIG_ENTRY_H

#include "script/config.h"

#include <lua.h>

/* One item of `policies`. */
struct config_entry {
    const struct config *config;
    char *what; /* name of a shipped policy, or a path */
    char *name; /* `name =`, or NULL */
    char *text; /* `chunk =`: what a file of that path would hold, or NULL */
    size_t n_text;
    char *place; /* "moonrelay.lua:7" */
    bool is_shadow, is_skipped_on_error;
    int cfg_ref; /* its table of settings, in the config's state */
};

/* Whether both were read from the same text, with the same from `env` and `file`. Accepts NULL. */
bool mr__config_is_same(const struct config *a, const struct config *b);

/* Whether `policies` is there, if only as an empty list. */
bool mr__config_has_policies(const struct config *c);
size_t mr__config_entry_count(const struct config *c);
const struct config_entry *mr__config_entry(const struct config *c, size_t i);

/* The folder of the file, "" or with its last slash. */
const char *mr__config_folder(const struct config *c);

/* Pushes a copy of the entry's settings (always a table) on another state. Raises there when out
 * of memory. */
void mr__config_push_settings(const struct config_entry *e, lua_State *L);

#endif
