/* SPDX-License-Identifier: MIT */
/*
 * `moonrelay test`: becomes busted under LuaJIT, with relay.testing where it looks. One
 * thread.
 */
#ifndef MR_CLI_BUSTED_H
#define MR_CLI_BUSTED_H

#include <stddef.h>

/* args: what stands behind `test`, NULL at the end; all of it is busted's. Does not return when it
 * worked; else a line in error[cap]. */
void mr__busted_become(char *const *args, char *error, size_t cap);

#endif
