/* SPDX-License-Identifier: MIT */
/*
 * A bench as a userdata of the host's Lua: the calls under lua/relay/testing.lua, which
 * is their only caller and says what they mean. The host's thread.
 */
#ifndef MR_MODULE_USERDATA_H
#define MR_MODULE_USERDATA_H

#include <lauxlib.h>
#include <lua.h>

/* core.bench { now = seconds, seed = number } */
int mr__userdata_create(lua_State *L);
/* Makes the metatable; to be called once a state, before. */
void mr__userdata_open(lua_State *L);

/* Registers the metatable of a type with these methods, which no script can see or change. */
void mr__userdata_define(lua_State *L, const char *type, const luaL_Reg *methods, lua_CFunction gc);

#endif
