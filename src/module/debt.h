/* SPDX-License-Identifier: MIT */
/*
 * A callback that is owed to a program (program.h): each is told once, in a later turn
 * than the call that made it, or forgotten. The host's thread.
 */
#ifndef MR_MODULE_DEBT_H
#define MR_MODULE_DEBT_H

#include "control/lookup.h"
#include "module/program.h"

#include <lua.h>

struct debt {
    struct debt *next, **link;
    struct program *program;
    struct endpoint *endpoint;        /* NULL: of none */
    const char *what;                 /* "bind", "send" ...: for what is refused */
    int callback;                     /* a reference; LUA_NOREF: nobody is told */
    int rc;                           /* of what was refused */
    bool is_closing;                  /* cannot be forgotten: it is told in any case */
    struct mr_lookup_request request; /* of a lookup */
};

/* index: a function; 0: nobody is told. Raises, with nothing made. */
struct debt *mr__debt_open(lua_State *L, struct program *p, struct endpoint *e, int index,
                           const char *what);

/* These end it, from inside a turn. */
void mr__debt_tell(struct debt *d, int rc, const char *code, const char *message);
void mr__debt_tell_address(struct debt *d, const struct mr_lookup_answer *answer);

/* What was asked cannot be: it is told in the next turn. */
void mr__debt_refuse(struct debt *d, int rc);
/* Tells those that were refused before this call. Returns whether there were any. */
bool mr__debts_tell_refused(struct program *p);

/* Nobody is told. L NULL: the state is ending, what it held is let go anyway. */
void mr__debts_forget(lua_State *L, struct program *p, const struct endpoint *e); /* NULL: all */

#endif
