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

struct startup {
    struct settings *settings; /* resolved */
    struct config *config;     /* NULL: no config file */
};

/* Fills *s; on failure it is empty again and *err says why. Warnings stay with the settings. */
int mr__startup_read(struct startup *s, const struct mr_server_options *opts,
                     struct mr_server_error *err);
void mr__startup_deinit(struct startup *s);

/* Loads the chain that the options, settings and config name. log may be NULL. */
int mr__startup_load_policies(struct policies **out, const struct startup *s,
                              const struct mr_server_options *opts, struct log *log,
                              struct mr_server_error *err);

/* Calls say() for each warning about settings. */
void mr__startup_each_warning(const struct startup *s, void (*say)(void *user, const char *text),
                              void *user);

/* Words the error that ends a start and returns rc. */
__attribute__((format(printf, 4, 5))) int mr__startup_fail(struct mr_server_error *err,
                                                           enum mr_server_exit code, int rc,
                                                           const char *format, ...);

#endif
