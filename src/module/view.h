/* SPDX-License-Identifier: MIT */
/*
 * Views of the service and happenings as tables of the host's Lua. The host's thread.
 * All of them push one value and may raise (memory).
 */
#ifndef MR_MODULE_VIEW_H
#define MR_MODULE_VIEW_H

#include "core/address.h"
#include "module/happening.h"
#include "service/hooks.h"

#include <lua.h>

void mr__view_address(lua_State *L, const struct mr_addr *a); /* nil for family 0 */
void mr__view_session(lua_State *L, const struct hook_session *s);
void mr__view_relay(lua_State *L, const struct hook_relay *r);
void mr__view_happening(lua_State *L, const struct happening *h);

/* What a JSON text says; null is left out of tables. Pushes nil when it is none. */
void mr__view_json(lua_State *L, struct str text);

#endif
