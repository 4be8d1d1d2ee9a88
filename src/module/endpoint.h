/* SPDX-License-Identifier: MIT */
/*
 * UDP endpoints of a program as userdata: control/udp.h with callbacks of Lua. The host's
 * thread. lua/moonrelay.lua says what their methods mean.
 *
 * An endpoint is anchored, that is, lives on without anybody referring to it, as long as
 * something is due: a callback, or datagrams that somebody listens to.
 */
#ifndef MR_MODULE_ENDPOINT_H
#define MR_MODULE_ENDPOINT_H

#include "control/udp.h"
#include "module/program.h"

#include <lua.h>

struct endpoint {
    struct endpoint *next, **link;
    struct program *program; /* NULL: it has ended */
    struct mr_udp *udp;      /* NULL: closed */
    size_t n_debts;
    int anchor; /* a reference to the userdata; LUA_NOREF: nothing is due */
    bool has_handler, is_reading;
};

/* Places in the table that is an endpoint's environment. */
enum { ENDPOINT_HANDLER = 1, ENDPOINT_LOOKUP = 2 };

void mr__program_endpoint_open(lua_State *L);  /* makes the metatable */
int mr__program_endpoint_create(lua_State *L); /* udp { family, lookup }; upvalue: the program */

/* Something of it began or ended: whether it is anchored is seen to. The userdata is at the index
 * where something began; 0: something ended. */
void mr__program_endpoint_look(lua_State *L, struct endpoint *e, int index);
/* Its program ends. */
void mr__program_endpoint_end(struct endpoint *e);

#endif
