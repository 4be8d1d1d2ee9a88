/* SPDX-License-Identifier: MIT */
/*
 * The module `relay`, as one policy sees it. Control thread only.
 */
#ifndef MR_SCRIPT_MODULE_H
#define MR_SCRIPT_MODULE_H

#include <lua.h>

struct policy;

/* Pushes the policy's own copy of the module. The policy outlives the state. Raises. */
void mr__module_push(lua_State *L, struct policy *policy);

#endif
