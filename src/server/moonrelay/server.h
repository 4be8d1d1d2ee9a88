/* SPDX-License-Identifier: MIT */
/*
 * The relay server as a library: engine, service, sockets and policies wired together
 * on a loop of their own. The daemon is a client of this header and of nothing else.
 *
 * One thread makes all calls on a handle. A host program puts mr_server_fd() into its
 * loop, sleeps no longer than mr_server_timeout_ms() and calls mr_server_step(); a
 * program without a loop calls mr_server_run().
 *
 * Whatever ends a start is one line in struct mr_server_error: what was wrong, where,
 * what is expected.
 */
#ifndef MOONRELAY_SERVER_H
#define MOONRELAY_SERVER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MR_SERVER_API __attribute__((visibility("default"), warn_unused_result))
#else
#define MR_SERVER_API
#endif

struct mr_server;

/* Exit codes of the daemon, and what an error means for one. */
enum mr_server_exit {
    MR_SERVER_EXIT_OK = 0,     /* ended as asked */
    MR_SERVER_EXIT_FAILED = 1, /* could not run or bind */
    MR_SERVER_EXIT_USAGE = 2,  /* bad usage, setting or script */
};

struct mr_server_error {
    enum mr_server_exit code;
    char text[1024]; /* one line, no LF */
};

/* All strings are copied by the call that takes the options. */
struct mr_server_options {
    size_t size;                 /* sizeof(struct mr_server_options), set by init */
    const char *config;          /* --config; NULL: CONFIG of the settings, or none */
    const char *const *policies; /* --policy, in order */
    size_t n_policies;
    const char *const *sets; /* --set key=value, in order */
    size_t n_sets;
    char *const *environment; /* as environ(7); NULL: empty */
    const char *dotenv;       /* path of the .env file; NULL: none; a missing file is fine */
    int log_fd;               /* where the log goes; default 1 */
    int warning_fd;           /* where warnings of the start go besides the log; -1: nowhere */
};
void mr_server_options_init(struct mr_server_options *opts, size_t size);

/* Reads settings and policies without opening anything. 0, or -EINVAL with *err filled. Warnings go
 * to `out` (may be NULL), a line each. */
MR_SERVER_API int mr_server_check(const struct mr_server_options *opts, FILE *out,
                                  struct mr_server_error *err);

/* Prints a table: each setting, its value, source, whether it is live; key NULL: all. -ENOENT for
 * an unknown key (*err has "did you mean"). */
MR_SERVER_API int mr_server_print_settings(const struct mr_server_options *opts, const char *key,
                                           FILE *out, struct mr_server_error *err);

/* Binds everything and loads the policies: on success the server is ready to step. On failure
 * nothing is left open or running. Three things concern the whole process: the soft limit of open
 * files is raised to the hard one, SIGPIPE is ignored if its action was the default, and with the
 * setting `user` a process of root's becomes that user, in all of its threads and for ever. */
MR_SERVER_API int mr_server_create(struct mr_server **out, const struct mr_server_options *opts,
                                   struct mr_server_error *err);
/* Accepts NULL. */
void mr_server_destroy(struct mr_server *server);

int mr_server_fd(const struct mr_server *server);
int mr_server_timeout_ms(struct mr_server *server);
/* Does what is due. 1: goes on, 0: has stopped, negative errno: cannot go on. */
MR_SERVER_API int mr_server_step(struct mr_server *server);

/* Steps until stopped. */
MR_SERVER_API int mr_server_run(struct mr_server *server);

/* Lets running games go on for drain_timeout at most, then stops accepting and finishes what is
 * queued (at most a few seconds); a second one ends at once. Safe in a signal handler and from any
 * thread. */
void mr_server_stop(struct mr_server *server);
/* USR1: no new games, and a stop when the running ones have ended, at the latest after
 * drain_timeout (30 minutes where that is 0). Safe in a signal handler and from any thread. */
void mr_server_drain(struct mr_server *server);
/* HUP. Safe in a signal handler and from any thread. */
void mr_server_hangup(struct mr_server *server);

/* Addresses in use, as in the line `ready`: "command=0.0.0.0:8890 registrar=...". Valid until
 * mr_server_destroy(). */
const char *mr_server_endpoints(const struct mr_server *server);

/* Writes out what the log still holds, waiting at most timeout_ms. */
void mr_server_flush_log(struct mr_server *server, int timeout_ms);

/* ---- asking one that runs ---- */

struct mr_server_question {
    size_t size;         /* sizeof(struct mr_server_question), set by init */
    const char *control; /* path of its control socket; NULL: where the settings say */
    /* "status", "sessions", "relays", "policies", "blocks", "kick", "close", "block", "unblock",
     * "reload", "rollback", "drain", "call"; args: what stands behind it */
    const char *command;
    const char *const *args;
    size_t n_args;
    int is_json;   /* print the answer as it came, or {error, code}; else tables for a person */
    int is_check;  /* reload: only say whether it would work */
    int is_cancel; /* drain: take it back */
};
void mr_server_question_init(struct mr_server_question *q, size_t size);

/* Prints the answer. -ECONNREFUSED and its kin: nobody there; -EINVAL: refused; err->code is what a
 * command line ends with. */
MR_SERVER_API int mr_server_ask(const struct mr_server_options *opts,
                                const struct mr_server_question *q, FILE *out,
                                struct mr_server_error *err);

/* A ticket for the shipped policy of that name: a JWT signed with HS256. */
struct mr_server_ticket {
    size_t size;              /* sizeof(struct mr_server_ticket), set by init */
    const char *subject;      /* whose it is */
    const char *game;         /* NULL: not said */
    const char *key;          /* NULL: what the variable `key_variable` of the environment says */
    const char *key_variable; /* default "TICKET_KEY" */
    const char *ttl;          /* how long it is good, as a setting is written; default "1h" */
};
void mr_server_ticket_init(struct mr_server_ticket *t, size_t size);
MR_SERVER_API int mr_server_print_ticket(const struct mr_server_ticket *t, char *const *environment,
                                         FILE *out, struct mr_server_error *err);

/* "0.1.0" and the versions of the libraries in use, a line each. */
void mr_server_print_version(FILE *out);

#ifdef __cplusplus
}
#endif
#endif
