/* SPDX-License-Identifier: MIT */
/*
 * moonrelay in a plain LuaJIT program: a loop of its own with lookups and UDP endpoints,
 * one a lua_State, turned by the program (lua/moonrelay.lua says what its calls mean).
 * The host's thread.
 *
 *   program.c   life, turns, errors of callbacks    endpoint.c  UDP endpoints
 *   debt.c      callbacks that are owed             oracle.c    functions that look up
 *
 * libuv and LuaJIT do not bear each other's ways of leaving: no Lua error may pass through
 * a turn of the loop. So whatever is called from a turn enters Lua by mr__program_call(),
 * and what a callback raises is kept and raised when the turn is over. Start reading at
 * on_run().
 */
#ifndef MR_MODULE_PROGRAM_H
#define MR_MODULE_PROGRAM_H

#include "control/lookup.h"
#include "control/own_loop.h"

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

struct debt;
struct endpoint;

struct program {
    lua_State *L;          /* which turns the loop now; NULL: none does */
    struct own_loop *loop; /* NULL until it is used, and after the end */
    struct mr_lookup *lookup;
    struct mr_resolver resolver;         /* that asks resolver_ref */
    struct endpoint *endpoints;          /* that are open */
    struct debt *debts;                  /* waiting for the loop */
    struct debt *refused, **refused_end; /* to be told in the next turn */
    struct debt *telling;                /* in this one */
    size_t n_debts, n_reading;           /* what keeps run() from returning */
    int lookup_ref, resolver_ref;        /* functions; LUA_NOREF: none */
    int errors_ref;                      /* a list of what callbacks raised */
    int n_errors;
    bool is_short; /* memory ended where nobody could be told */
};

/* Pushes the program of the state, to be the upvalue of functions; makes it when there is none. */
void mr__program_push(lua_State *L);
/* Adds the functions of a program to the table on top. */
void mr__program_open(lua_State *L);

/* The program that is a function's first upvalue, its loop running. Raises. */
struct program *mr__program_get(lua_State *L);
struct program *mr__program_to(lua_State *L, int index); /* NULL: it has ended */
bool mr__program_is_alive(const struct program *p);

/* Calls f protected, with ud as its light userdata, from inside a turn. What it raises is kept for
 * the end of the turn. */
void mr__program_call(struct program *p, lua_CFunction f, void *ud);
/* The same for a value of Lua below its n arguments, from inside of f: with a traceback, no
 * results.
 */
void mr__program_protect(lua_State *L, struct program *p, int n);

#endif
