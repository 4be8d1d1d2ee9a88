/* SPDX-License-Identifier: MIT */
/*
 * string.find, match, gmatch and gsub for scripts, with Lua 5.1's patterns and results,
 * but every step of a match counts against the script's budget. Control thread only.
 */
#ifndef MR_SCRIPT_PATTERN_H
#define MR_SCRIPT_PATTERN_H

#include <lua.h>

/* Puts the four functions into the table at the top of the stack. Raises. */
void mr__pattern_open(lua_State *L);

#endif
