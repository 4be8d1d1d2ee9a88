/* SPDX-License-Identifier: MIT */
/*
 * The table `ev` that a hook is given. Control thread only.
 */
#ifndef MR_SCRIPT_EVENT_H
#define MR_SCRIPT_EVENT_H

#include "service/hooks.h"

#include <lua.h>

/* "register", ... */
const char *mr__event_hook_name(enum hook hook);

/* Prepares a state for mr__event_push(). Raises. */
void mr__event_open(lua_State *L);

/* Pushes a new table with what the event carries; tags are those of the event and, over them, what
 * earlier policies set. Raises when out of memory: call it inside mr__state_enter(). */
void mr__event_push(lua_State *L, const struct hook_event *ev, struct hook_map set_tags);
/* Pushes what a hook is called with, and returns how many values that are: the event; in `lookup`
 * the host and the family (nil: either) before it. Likewise. */
int mr__event_push_arguments(lua_State *L, const struct hook_event *ev, struct hook_map set_tags);
/* "bind", ... */
const char *mr__event_op_name(enum mr_lookup_op op);
/* The same tables as inside of an event. */
void mr__event_push_session(lua_State *L, const struct hook_session *session);
void mr__event_push_address(lua_State *L, const struct mr_addr *address);
void mr__event_push_relay(lua_State *L, const struct hook_relay *relay);

#endif
