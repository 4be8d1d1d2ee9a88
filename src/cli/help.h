/* SPDX-License-Identifier: MIT */
/*
 * What `--help` prints: one page of everything, and one a command. One thread.
 */
#ifndef MR_CLI_HELP_H
#define MR_CLI_HELP_H

/* command: a word of the command line, or NULL for the whole. NULL: there is no such command. */
const char *mr__help_page(const char *command);

#endif
