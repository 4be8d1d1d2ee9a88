/* SPDX-License-Identifier: MIT */
/*
 * Reload, check and rollback while games run: the config file is read again, its settings
 * resolved and its policies loaded aside; when all of that is right it is put in use, and
 * else nothing changes. One after the other; who comes meanwhile waits. Control thread.
 *
 * Start reading at begin() and on_loaded().
 */
#ifndef MR_SERVER_RELOAD_H
#define MR_SERVER_RELOAD_H

#include "base/log.h"
#include "control/control.h"
#include "script/policies.h"
#include "server/startup.h"
#include "service/service.h"

#include <stddef.h>
#include <stdint.h>

enum { MR_RELOAD_WAITING_MAX = 16 };

enum reload_kind { MR_RELOAD, MR_RELOAD_CHECK, MR_ROLLBACK };

/* A setting whose value is another one than before. */
struct reload_change {
    const char *key;
    bool is_live; /* in force (of a check: would be); else a restart is needed */
};

/* What could not be done of one that is in use: ports that somebody else has. One line. */
struct reload_warning {
    char text[512];
};

struct reload_result {
    int rc;                /* 0, or a negative errno: -ENOENT (nothing to go back to) ... */
    const char *text;      /* why not, one line; "" */
    const char *traceback; /* of a policy's error, for the log; "" */
    uint64_t generation;
    const struct reload_change *changes;
    size_t n_changes;
    const struct reload_warning *warnings;
    size_t n_warnings;
};

struct reload_options {
    struct log *log;
    struct control *control;
    struct service *service;
    struct policies *policies;
    const struct startup_sources *sources;
    struct startup *start; /* in use; what changes, changes there */
    /* Other settings are in use; those before are gone. */
    void (*on_settings)(void *user, const struct settings_values *v);
    void *user;
};

struct reload;

/* All of the options outlive it. -ENOMEM. */
int mr__reload_create(struct reload **out, const struct reload_options *opts);
/* Nothing more is told. Accepts NULL. */
void mr__reload_destroy(struct reload *r);

/* by: who asks, for the log. done may be NULL and may be called from inside; what it gets is
 * borrowed. -EBUSY: too many wait, done will not be called. */
int mr__reload_ask(struct reload *r, enum reload_kind kind, const char *by,
                   void (*done)(void *user, const struct reload_result *result), void *user);

/* Watches the files in use, if the setting says so. */
void mr__reload_watch(struct reload *r);

/* A metrics_source (service/service.h); user is the struct reload. */
void mr__reload_metrics(void *user, struct metrics *m);

#endif
