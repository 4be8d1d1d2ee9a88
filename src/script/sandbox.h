/* SPDX-License-Identifier: MIT */
/*
 * What a script finds in its state: copies of what is harmless in the standard library,
 * and nothing else. One function opens every state, of the config file and of policies.
 * Control thread only.
 *
 * All functions raise and are called inside mr__state_enter().
 */
#ifndef MR_SCRIPT_SANDBOX_H
#define MR_SCRIPT_SANDBOX_H

#include <lua.h>
#include <stddef.h>
#include <stdint.h>

struct sandbox_options {
    double (*wall_s)(void *user); /* what os.time() and os.date() call now */
    void *user;
    uint64_t seed; /* of math.random */
};

/* The system's wall clock, for sandbox_options.wall_s. */
double mr__sandbox_wall_s(void *user);

/* Fills an empty state. opts lives as long as the state. */
void mr__sandbox_open(lua_State *L, const struct sandbox_options *opts);

/* Pushes a fresh environment: own copies of every library table, so that what one policy does to
 * `string` is no other policy's business. Reading or writing a global that is not there is an
 * error that names it. */
void mr__sandbox_push_env(lua_State *L);

/* Compiles text (no bytecode) as a function whose globals are the table at index env, and pushes
 * it; or pushes the message and returns -EINVAL. name is "@file.lua", as in Lua. */
int mr__sandbox_load(lua_State *L, int env, const char *text, size_t n, const char *name);

#endif
