/* SPDX-License-Identifier: MIT */
/*
 * How a C function of the module `relay` makes the running hook wait, and wakes it.
 * Control thread. Start reading at mr__wait_begin().
 *
 *     static int on_sleep(lua_State *L)
 *     {
 *         double seconds = check(L, 1);                         // all checks first
 *         struct wait *w = mr__wait_begin(L, "relay.sleep", forget, user);
 *         ... start something that calls mr__wait_end(w, push, user) later ...
 *         return mr__wait_yield(L, w);
 *     }
 */
#ifndef MR_SCRIPT_WAIT_H
#define MR_SCRIPT_WAIT_H

#include <lua.h>
#include <stdint.h>

struct wait;

/* Raises where waiting is not possible: in the config file, in a file's top level, in a coroutine
 * of the policy's own, inside of a C function (table.sort, gsub). forget is called when the hook is
 * abandoned (deadline, its player left, shutdown) before mr__wait_end(): whatever was started must
 * be stopped, and w not be used again. */
struct wait *mr__wait_begin(lua_State *L, const char *what, void (*forget)(void *user), void *user);

/* To be returned by the C function. Nothing may raise between begin and this; if the start failed,
 * mr__wait_drop() instead, and return results as usual. */
int mr__wait_yield(lua_State *L, struct wait *w);
void mr__wait_drop(struct wait *w);

/* Wakes the hook with what push leaves on the stack (it returns how many, and may raise: the error
 * is the hook's). Never from inside the call that began it. w is gone afterwards; the hook may have
 * ended, and its chain have been answered, when this returns. */
void mr__wait_end(struct wait *w, int (*push)(lua_State *L, void *user), void *user);

#endif
