/* SPDX-License-Identifier: MIT */
/*
 * Userdata that own memory of C (holder.h). Control thread only. Their __gc frees and does
 * nothing else: collection runs outside of any budget.
 */
#include "script/holder.h"

#include <lauxlib.h>

static const char type_name[] = "moonrelay.holder";

void mr__holder_release(struct holder *h)
{
    void *p = h->p;

    h->p = NULL;
    if (p) {
        h->release(p);
    }
}

static int on_collect(lua_State *L)
{
    mr__holder_release(lua_touserdata(L, 1));
    return 0;
}

void mr__holder_open(lua_State *L)
{
    if (luaL_newmetatable(L, type_name)) {
        lua_pushcfunction(L, on_collect);
        lua_setfield(L, -2, "__gc");
        lua_pushboolean(L, 0);
        lua_setfield(L, -2, "__metatable");
    }
    lua_pop(L, 1);
}

struct holder *mr__holder_push(lua_State *L, void (*release)(void *p))
{
    struct holder *h = lua_newuserdata(L, sizeof *h);

    *h = (struct holder){NULL, release};
    luaL_getmetatable(L, type_name);
    lua_setmetatable(L, -2);
    return h;
}
