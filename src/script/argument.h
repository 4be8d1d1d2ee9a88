/* SPDX-License-Identifier: MIT */
/*
 * Checks of what scripts hand to C functions, with messages that name the function, the
 * argument and what is expected: "relay.block: seconds is -3 (a number above 0 is
 * expected)". Everything here raises and gives borrowed values. Control thread.
 */
#ifndef MR_SCRIPT_ARGUMENT_H
#define MR_SCRIPT_ARGUMENT_H

#include "service/hooks.h"

#include <lua.h>
#include <stddef.h>

enum { ARGUMENT_PAIRS_MAX = MR_TAGS_MAX, ARGUMENT_NUMBER_BYTES = 32 };

/* Raises. Never returns, though C is not told: write return mr__argument_error(...). */
int mr__argument_error(lua_State *L, const char *function, const char *name, int index,
                       const char *expected);

/* A string, of any length and bytes. */
struct str mr__argument_text(lua_State *L, int index, const char *function, const char *name);
/* The same of at most max bytes, since C works on it without a look at the clock. */
struct str mr__argument_bounded(lua_State *L, int index, const char *function, const char *name,
                                size_t max);
/* A string or number of 1 to max bytes; a number becomes text, on the stack as well. */
struct str mr__argument_key(lua_State *L, int index, const char *function, const char *name,
                            size_t max);
/* A name of 1 to 64 of A-Z a-z 0-9 . _ -. */
struct str mr__argument_name(lua_State *L, int index, const char *function, const char *name);
/* A number from min to max. */
double mr__argument_number(lua_State *L, int index, const char *function, const char *name,
                           double min, double max, const char *expected);

/* A plain table whose keys are among names (which ends with NULL): "did you mean". The index is
 * absolute. */
void mr__argument_options(lua_State *L, int index, const char *function, const char *const *names);
/* Pushes a field of such a table. */
void mr__argument_field(lua_State *L, int index, const char *name);

/* Tags: a plain table of texts or numbers by name, or nothing; strings live as long as the table
 * and numbers. */
struct argument_tags {
    struct hook_pair pairs[ARGUMENT_PAIRS_MAX];
    char numbers[ARGUMENT_PAIRS_MAX][ARGUMENT_NUMBER_BYTES];
};
struct hook_map mr__argument_tags(lua_State *L, int index, const char *function, const char *name,
                                  struct argument_tags *memory);

/* The userdata at 1, whose metatable is registered as type; usage is "store:get(key)". */
void *mr__argument_self(lua_State *L, const char *type, const char *usage);
/* NULL when the value is something else. */
void *mr__argument_object(lua_State *L, int index, const char *type);

#endif
