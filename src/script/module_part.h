/* SPDX-License-Identifier: MIT */
/*
 * The parts of the module `relay`, one file a subject (module_text.c, module_nets.c ...),
 * and what they are put together with. Control thread. Everything here raises.
 *
 * Each part adds its functions to the table at the top of the stack; it is open until
 * module.c closes it. To add a function: in its part, in lua/relay/meta.lua and in
 * lua/README.md. To add a part: a function here, its call in mr__module_push().
 */
#ifndef MR_SCRIPT_MODULE_PART_H
#define MR_SCRIPT_MODULE_PART_H

#include "service/hooks.h"

#include <lauxlib.h>
#include <lua.h>
#include <stdbool.h>

struct cidr;
struct policy;
struct service;

void mr__module_open_time(lua_State *L, struct policy *p);
void mr__module_open_log(lua_State *L, struct policy *p);
void mr__module_open_text(lua_State *L, struct policy *p);
void mr__module_open_crypto(lua_State *L, struct policy *p);
void mr__module_open_nets(lua_State *L, struct policy *p);
void mr__module_open_players(lua_State *L, struct policy *p);
void mr__module_open_open(lua_State *L, struct policy *p);
void mr__module_open_blocks(lua_State *L, struct policy *p);
void mr__module_open_keep(lua_State *L, struct policy *p);
void mr__module_open_outside(lua_State *L, struct policy *p);
void mr__module_open_lookup(lua_State *L, struct policy *p);
void mr__module_open_udp(lua_State *L, struct policy *p);
void mr__module_open_metric(lua_State *L, struct policy *p);

/* The policy a function of the module belongs to: its first upvalue. */
struct policy *mr__module_policy(lua_State *L);

/* The service that the module acts on; raises where there is none. */
struct service *mr__module_service(lua_State *L, const struct policy *p, const char *function);

/* The same for what changes something that others see: raises before the policy is in use, since a
 * load that fails, or is only tried, must have changed nothing. */
struct service *mr__module_acting(lua_State *L, const struct policy *p, const char *function);
void mr__module_check_in_use(lua_State *L, const struct policy *p, const char *function);

/* A reason: a text that will be cleaned, or the policy's name when it is nil. */
struct str mr__module_reason(lua_State *L, int index, const struct policy *p, const char *function);

/* Adds functions to the table at the top, with the policy as their upvalue. */
void mr__module_add(lua_State *L, const luaL_Reg *functions, struct policy *p);

/* Replaces the table at the top by an empty one through which it is read, and only read: writing
 * and reading what is not there raise and name it. */
void mr__module_seal(lua_State *L, const char *name);

/* Registers the metatable of an object of that type ("relay.store"), unless it is there already,
 * with these methods (whose self is what mr__argument_self() gives) and __gc, which may be NULL. */
void mr__module_define(lua_State *L, const char *type, const luaL_Reg *methods, lua_CFunction gc);

/* Pushes an object of n zeroed bytes. */
void *mr__module_new(lua_State *L, const char *type, size_t n);

/* The networks of an object that relay.cidr() gave, or NULL when the value is something else. */
struct cidr *mr__module_nets(lua_State *L, int index);

/* 4 or 6; nothing or nil is the preset. Raises. */
int mr__module_family(lua_State *L, int index, const char *function, int preset);

/* Whether it may be looked up. false: nil, message and `not-found` are pushed as 3 results. */
bool mr__module_check_host(lua_State *L, struct str host);

/* Pushes nil, message and code, which is a lower-case word as in a reason; 3. */
int mr__module_fail(lua_State *L, const char *message, const char *code);

#endif
