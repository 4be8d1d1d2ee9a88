/* SPDX-License-Identifier: MIT */
/*
 * What a start reads before anything is opened: the five sources of settings, the config
 * file and the policies. Also used by `check` and `settings`, which open nothing at all.
 * One thread. Start reading at mr__startup_read().
 */
#ifndef MR_SERVER_STARTUP_H
#define MR_SERVER_STARTUP_H

#include "base/log.h"
#include "script/policies.h"
#include "server/moonrelay/server.h"
#include "service/settings.h"

/* What a start was told and a reload does not ask for again: the command line, the environment and
 * the .env file, all of them copies. */
struct startup_sources {
    const char **policies, **sets; /* lists end with NULL */
    size_t n_policies, n_sets;
    const char **environment, **paths;
    const char *config, *dotenv; /* in paths, or NULL */
    char *dotenv_text;
    size_t dotenv_n;
};

int mr__startup_sources_init(struct startup_sources *out, const struct mr_server_options *opts,
                             struct mr_server_error *err);
void mr__startup_sources_deinit(struct startup_sources *s);
/* A variable of the environment, or NULL. */
const char *mr__startup_variable(const struct startup_sources *s, const char *name);

struct startup {
    struct settings *settings; /* resolved */
    struct config *config;     /* NULL: no config file */
};

/* Fills *s; on failure it is empty again and *err says why. Warnings stay with the settings. */
int mr__startup_read(struct startup *s, const struct startup_sources *from,
                     struct mr_server_error *err);
/* The same with a config that was read before (NULL: none), of which it takes a reference. */
int mr__startup_resolve(struct startup *s, const struct startup_sources *from,
                        struct config *config, struct mr_server_error *err);
void mr__startup_deinit(struct startup *s);

/* Where the control socket is: 1: where the setting says, 0: its usual place, -ENOENT: none is
 * wanted, or there is no usual place; -ENAMETOOLONG. */
enum { MR_CONTROL_PATH_BYTES = 256 };
int mr__startup_control_path(char path[MR_CONTROL_PATH_BYTES], const struct settings_values *v,
                             const struct startup_sources *from);

/* The chain that sources, settings and config name; done and mode are the caller's. All is borrowed
 * from s and from. */
void mr__startup_plan(struct policies_load *out, const struct startup *s,
                      const struct startup_sources *from);

/* Calls say() for each warning about settings. */
void mr__startup_each_warning(const struct startup *s, void (*say)(void *user, const char *text),
                              void *user);

/* Words the error that ends a start and returns rc. */
__attribute__((format(printf, 4, 5))) int mr__startup_fail(struct mr_server_error *err,
                                                           enum mr_server_exit code, int rc,
                                                           const char *format, ...);

#endif
