/* SPDX-License-Identifier: MIT */
/*
 * The config file: Lua that is evaluated once, in a sandboxed state of its own with
 * `env` and `file`, to a table of settings and a list of policies. Control thread (or
 * before there is one).
 *
 * Reading it is the first of two steps, because what it says about settings is needed
 * before policies load: offer each mr__config_setting() to struct settings, resolve
 * them, then hand the config to mr__policies_load().
 */
#ifndef MR_SCRIPT_CONFIG_H
#define MR_SCRIPT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config;

/* Why a config or a policy is refused: one line without LF, "file:line: what is wrong", and the
 * calls that led there, likewise one line, or "". */
struct script_error {
    char text[1024];
    char traceback[2048];
};

struct config_options {
    char *const *environment; /* what `env` sees, as environ(7); NULL: nothing. Borrowed for the
                                 call */
    uint64_t cpu_ns;          /* budget of evaluating the file; 0: 1 s */
    uint64_t memory_bytes;    /* cap of its state; 0: 32 MiB */

    /* What `file` reads; NULL: files. *text is for mr__free(), with a NUL behind its n bytes; a
     * negative errno with *why. */
    int (*read)(void *user, const char *name, char **text, size_t *n, const char **why);
    void *user;
    bool takes_chunks; /* { chunk = "return { ... }" } is a policy without a file */
};

/* Reads and evaluates a file. -EINVAL: it is wrong (or -ENOENT, -EACCES ...: unreadable), *err
 * says why; -ENOMEM. On failure *out is untouched. */
int mr__config_read(struct config **out, const struct config_options *opts, const char *path,
                    struct script_error *err);

/* The same for text in memory; path names it in messages, and its folder is where relative paths
 * start. */
int mr__config_parse(struct config **out, const struct config_options *opts, const char *text,
                     size_t n, const char *path, struct script_error *err);

/* A config is made with one reference; the last unref ends it. Both accept NULL. */
struct config *mr__config_ref(struct config *c);
void mr__config_unref(struct config *c);

/* Its `settings`, in the order of the file; to be offered with MR_SETTING_CONFIG. All strings live
 * as long as the config. */
struct config_setting {
    const char *key;   /* as written */
    const char *value; /* text; a number or boolean of Lua is written out */
    size_t n;
    const char *place; /* "moonrelay.lua:7" */
};

/* Its `ports`, by number. All lives as long as the config. */
struct open_port;
size_t mr__config_port_count(const struct config *c);
const struct open_port *mr__config_ports(const struct config *c);
/* Whether they go together with the settings: none is a relay port or the registrar's. -EINVAL. */
struct settings_values;
int mr__config_check_ports(const struct config *c, const struct settings_values *v,
                           struct script_error *err);

size_t mr__config_setting_count(const struct config *c);
void mr__config_setting(const struct config *c, size_t i, struct config_setting *out);

#endif
