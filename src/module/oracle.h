/* SPDX-License-Identifier: MIT */
/*
 * A function of Lua that is asked for the addresses of hosts: an endpoint's own lookup, a
 * program's, and what replaces the resolver. The host's thread.
 *
 * It is called as f(host, family, op, done) and answers by what it returns (an address;
 * nil and an error) or, having returned nothing, by done(address) or done(nil, error).
 * What it raises, and an answer that is none, is an error of that question alone.
 */
#ifndef MR_MODULE_ORACLE_H
#define MR_MODULE_ORACLE_H

#include "module/endpoint.h"
#include "module/program.h"

/* The lookups of one endpoint; user is that. */
struct mr_lookup_custom mr__oracle_of_endpoint(struct endpoint *e);

/* set_lookup(f or nil), set_resolver(f or nil); upvalue: the program. */
int mr__oracle_set_lookup(lua_State *L);
int mr__oracle_set_resolver(lua_State *L);

#endif
