/* SPDX-License-Identifier: MIT */
/*
 * JSON for scripts, by jansson, with bounds on depth, size and the number of values.
 * Control thread.
 *
 * A null inside an object is an absent key (so that `if answer.user then` is false), else
 * the light userdata NULL, relay.json.null. An integer that a number of Lua cannot hold
 * (beyond 2^53) is decoded as text. An object that names a key twice is refused: two
 * readers might see two values. An empty table is written {} unless it was marked by
 * relay.json.array(). Keys are written sorted. Start reading at mr__json_push().
 */
#ifndef MR_SCRIPT_JSON_H
#define MR_SCRIPT_JSON_H

#include <lua.h>
#include <stddef.h>

enum {
    MR_JSON_DEPTH_MAX = 32,
    MR_JSON_BYTES_MAX = 1 << 20,
    MR_JSON_VALUES_MAX = 20000, /* jansson takes up to 1 us for one, whatever its text */
    MR_JSON_WHY_MAX = 256,
};

/* Once a state, before the rest. Raises. */
void mr__json_open(lua_State *L);

/* Pushes what the text says; 0. -EINVAL with why when it is no JSON or beyond a bound: nothing is
 * pushed. Raises when out of memory or of CPU time. */
int mr__json_decode(lua_State *L, const char *text, size_t n, char why[MR_JSON_WHY_MAX]);

/* Pushes the value at index as JSON text; 1. Raises when it cannot be written. */
int mr__json_push(lua_State *L, int index);

/* Marks the plain table at index as one that is written as a list even when it is empty. */
void mr__json_mark_array(lua_State *L, int index);

#endif
