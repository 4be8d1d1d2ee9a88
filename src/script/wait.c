/* SPDX-License-Identifier: MIT */
/*
 * See wait.h. Control thread.
 */
#include "script/wait.h"

#include <lauxlib.h>

struct wait *mr__wait_begin(lua_State *L, const char *what, void (*forget)(void *user), void *user)
{
    (void)forget;
    (void)user;
    luaL_error(L, "%s: a hook cannot wait yet", what);
    return NULL;
}

int mr__wait_yield(lua_State *L, struct wait *w)
{
    (void)w;
    return lua_yield(L, 0);
}

void mr__wait_drop(struct wait *w)
{
    (void)w;
}

void mr__wait_end(struct wait *w, int (*push)(lua_State *L, void *user), void *user)
{
    (void)w;
    (void)push;
    (void)user;
}
