/* SPDX-License-Identifier: MIT */
/*
 * The daemon's command line: a command, its flags, and what is wrong with them. Reads
 * text and touches nothing. One thread.
 */
#ifndef MR_CLI_ARGUMENTS_H
#define MR_CLI_ARGUMENTS_H

#include <stddef.h>

/* X(constant, word, how many operands it takes) */
#define MR_COMMANDS(X)         \
    X(SERVE, "serve", 0)       \
    X(CHECK, "check", 1)       \
    X(SETTINGS, "settings", 1) \
    X(TEST, "test", 0)         \
    X(VERSION, "version", 0)   \
    X(HELP, "help", 0)

enum command {
#define X(constant, word, operands) CLI_##constant,
    MR_COMMANDS(X)
#undef X
        CLI_COMMAND_COUNT
};

struct arguments {
    enum command command;
    const char *operand;           /* of check and settings, or NULL */
    const char *config;            /* or NULL */
    const char **policies, **sets; /* inside of `lists` */
    size_t n_policies, n_sets;
    const char **lists;
};

/* 0, or -EINVAL with a line in error[cap] that says what is wrong; -ENOMEM likewise. All texts stay
 * argv's. */
int mr__arguments_read(struct arguments *out, int argc, char *const *argv, char *error, size_t cap);
void mr__arguments_deinit(struct arguments *a);

#endif
