/* SPDX-License-Identifier: MIT */
/*
 * Memory of C for the time of one call: an error of Lua frees nothing, so what must be
 * freed is handed to a userdata, whose collection frees it if the call did not come to
 * its end. Control thread.
 */
#ifndef MR_SCRIPT_HOLDER_H
#define MR_SCRIPT_HOLDER_H

#include <lua.h>

struct holder {
    void *p;
    void (*release)(void *p);
};

/* Once a state, before the first is pushed. Raises. */
void mr__holder_open(lua_State *L);

/* Pushes an empty one. Raises. */
struct holder *mr__holder_push(lua_State *L, void (*release)(void *p));

/* Frees what it holds now. */
void mr__holder_release(struct holder *h);

#endif
