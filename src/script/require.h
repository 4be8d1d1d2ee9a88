/* SPDX-License-Identifier: MIT */
/*
 * A policy's environment and its `require`: the module `relay`, and text files below the
 * policy's own folder. Control thread only. Raises; inside of the state.
 */
#ifndef MR_SCRIPT_REQUIRE_H
#define MR_SCRIPT_REQUIRE_H

#include <lua.h>

struct policy;

/* Makes the environment of the policy and pushes it. */
void mr__require_push_env(lua_State *L, struct policy *p);

#endif
