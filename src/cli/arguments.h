/* SPDX-License-Identifier: MIT */
/*
 * The daemon's command line: a command, its flags, and what is wrong with them. Reads
 * text and touches nothing. One thread.
 */
#ifndef MR_CLI_ARGUMENTS_H
#define MR_CLI_ARGUMENTS_H

#include <stddef.h>

/* X(constant, word, how many operands it takes, flags of its own besides --help) */
#define MR_COMMANDS(X)                           \
    X(SERVE, "serve", 0, START | WATCH)          \
    X(CHECK, "check", 1, START)                  \
    X(SETTINGS, "settings", 1, START)            \
    X(TEST, "test", 0, 0)                        \
    X(TICKET, "ticket", 0, TICKET)               \
    X(STATUS, "status", 0, START | ASK)          \
    X(SESSIONS, "sessions", 0, START | ASK)      \
    X(RELAYS, "relays", 0, START | ASK)          \
    X(POLICIES, "policies", 0, START | ASK)      \
    X(KICK, "kick", 2, START | ASK)              \
    X(CLOSE, "close", 2, START | ASK)            \
    X(BLOCKS, "blocks", 0, START | ASK)          \
    X(BLOCK, "block", 3, START | ASK)            \
    X(UNBLOCK, "unblock", 1, START | ASK)        \
    X(RELOAD, "reload", 0, START | ASK | RELOAD) \
    X(ROLLBACK, "rollback", 0, START | ASK)      \
    X(DRAIN, "drain", 1, START | ASK | DRAIN)    \
    X(CALL, "call", 34, START | ASK)             \
    X(VERSION, "version", 0, START)              \
    X(HELP, "help", 1, START)

enum command {
#define X(constant, word, operands, flags) CLI_##constant,
    MR_COMMANDS(X)
#undef X
};

enum { CLI_OPERANDS_MAX = 34 };

struct arguments {
    enum command command; /* HELP with the first operand: the page of that command */
    const char *operands[CLI_OPERANDS_MAX];
    size_t n_operands;
    const char *config;            /* or NULL */
    const char **policies, **sets; /* inside of `lists` */
    size_t n_policies, n_sets;
    const char **lists;
    const char *control;                               /* or NULL */
    const char *sub, *game, *key, *key_variable, *ttl; /* of ticket, or NULL */
    int is_json, is_check, is_cancel;
};

/* The word of a command. */
const char *mr__arguments_word(enum command c);

/* 0, or -EINVAL with a line in error[cap] that says what is wrong; -ENOMEM likewise. All texts stay
 * argv's. */
int mr__arguments_read(struct arguments *out, int argc, char *const *argv, char *error, size_t cap);
void mr__arguments_deinit(struct arguments *a);

#endif
