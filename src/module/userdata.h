/* SPDX-License-Identifier: MIT */
/*
 * A bench as a userdata of the host's Lua: the calls under lua/relay/testing.lua, which
 * is their only caller and says what they mean. The host's thread.
 */
#ifndef MR_MODULE_USERDATA_H
#define MR_MODULE_USERDATA_H

#include <lua.h>

/* core.bench { now = seconds, seed = number } */
int mr__userdata_create(lua_State *L);
/* Makes the metatable; to be called once a state, before. */
void mr__userdata_open(lua_State *L);

#endif
