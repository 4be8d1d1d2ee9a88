/* SPDX-License-Identifier: MIT */
/*
 * Holds values of Lua for C, by number: coroutines that wait, functions of timers.
 * Control thread only.
 *
 * luaL_ref() would do, but it makes a table larger while scripts run, and when LuaJIT
 * runs out of memory in the middle of that, what was in the table may be lost. Here
 * places come in small tables that are made whole before they are used.
 */
#ifndef MR_SCRIPT_ANCHOR_H
#define MR_SCRIPT_ANCHOR_H

#include <lua.h>
#include <stddef.h>
#include <stdint.h>

struct anchors {
    int chunks_ref; /* the registry's place for the table of tables */
    unsigned n_chunks;
    uint16_t *free; /* numbers that nobody has */
    size_t n_free;
};

/* Raises when out of memory; to be called before any script runs. */
void mr__anchors_open(lua_State *L, struct anchors *as);
void mr__anchors_deinit(struct anchors *as);

/* Holds the value on top, pops it and returns its number, from 1. Raises when out of memory or of
 * places; then the value is still there. */
int mr__anchor_add(lua_State *L, struct anchors *as);
/* Pushes what has this number. */
void mr__anchor_push(lua_State *L, const struct anchors *as, int number);
/* Lets it go; 0 is nothing. Never raises, so it may be called outside of a protected call. */
void mr__anchor_remove(lua_State *L, struct anchors *as, int number);

#endif
