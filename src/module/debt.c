/* SPDX-License-Identifier: MIT */
/* See debt.h. The host's thread. */
#include "module/debt.h"

#include "base/alloc.h"
#include "control/udp.h"
#include "module/endpoint.h"

#include <lauxlib.h>
#include <stdio.h>

enum { MESSAGE_MAX = 128 };

/* ---- how they begin and end ------------------------------------------------------------------ */

struct debt *mr__debt_open(lua_State *L, struct program *p, struct endpoint *e, int index,
                           const char *what)
{
    int callback = LUA_NOREF;
    struct debt *d;

    if (index != 0) {
        lua_pushvalue(L, index);
        callback = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    d = mr__alloc(1, sizeof *d);
    if (!d) {
        luaL_unref(L, LUA_REGISTRYINDEX, callback);
        luaL_error(L, "not enough memory");
    }
    *d = (struct debt){.next = p->debts,
                       .link = &p->debts,
                       .program = p,
                       .endpoint = e,
                       .what = what,
                       .callback = callback};
    if (d->next) {
        d->next->link = &d->next;
    }
    p->debts = d;
    p->n_debts++;
    if (e) {
        e->n_debts++;
    }
    return d;
}

static void unlink_debt(struct debt *d)
{
    struct program *p = d->program;

    if (p->refused_end == &d->next) {
        p->refused_end = d->link;
    }
    *d->link = d->next;
    if (d->next) {
        d->next->link = d->link;
    }
    p->n_debts--;
    if (d->endpoint) {
        d->endpoint->n_debts--;
    }
}

/* ---- telling --------------------------------------------------------------------------------- */

struct telling {
    struct debt *debt;
    const struct mr_addr *addr; /* NULL: true is told */
    int rc;
    const char *code, *message;
};

static int push_result(lua_State *L, const struct telling *t)
{
    char text[MR_ADDR_TEXT_MAX];

    if (t->rc < 0) {
        lua_pushnil(L);
        lua_pushstring(L, t->message);
        lua_pushstring(L, t->code);
        return 3;
    }
    if (t->addr) {
        lua_pushlstring(L, text, mr_addr_format_ip(t->addr, text, sizeof text));
    } else {
        lua_pushboolean(L, 1);
    }
    return 1;
}

/* The endpoint stays on the stack, so that it lives until its callback has returned. */
static int call_back(lua_State *L)
{
    const struct telling *t = lua_touserdata(L, 1);
    struct debt *d = t->debt;

    if (d->endpoint) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, d->endpoint->anchor);
        mr__program_endpoint_look(L, d->endpoint, 0);
    }
    if (d->callback != LUA_NOREF) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, d->callback);
        luaL_unref(L, LUA_REGISTRYINDEX, d->callback);
        mr__program_protect(L, d->program, push_result(L, t));
    }
    return 0;
}

static void tell(struct telling *t)
{
    unlink_debt(t->debt);
    mr__program_call(t->debt->program, call_back, t);
    mr__free(t->debt);
}

void mr__debt_tell(struct debt *d, int rc, const char *code, const char *message)
{
    tell(&(struct telling){.debt = d, .rc = rc, .code = code, .message = message});
}

void mr__debt_tell_address(struct debt *d, const struct mr_lookup_answer *answer)
{
    tell(&(struct telling){.debt = d,
                           .addr = &answer->addr,
                           .rc = answer->rc,
                           .code = answer->code,
                           .message = answer->message});
}

/* ---- what was refused at once ---------------------------------------------------------------- */

void mr__debt_refuse(struct debt *d, int rc)
{
    struct program *p = d->program;

    unlink_debt(d);
    d->rc = rc;
    d->next = NULL;
    d->link = p->refused_end;
    *p->refused_end = d;
    p->refused_end = &d->next;
    p->n_debts++;
    if (d->endpoint) {
        d->endpoint->n_debts++;
    }
}

bool mr__debts_tell_refused(struct program *p)
{
    bool is_any = p->refused != NULL;
    char message[MESSAGE_MAX];

    /* A callback may refuse others, whose turn is the next one, and forget some of these. */
    p->telling = p->refused;
    p->refused = NULL;
    p->refused_end = &p->refused;
    if (p->telling) {
        p->telling->link = &p->telling;
    }
    while (p->telling) {
        struct debt *d = p->telling;

        snprintf(message, sizeof message, "%s: %s", d->what, mr_udp_reason(d->rc));
        mr__debt_tell(d, d->rc, mr_udp_code(d->rc), message);
    }
    return is_any;
}

/* ---- forgetting ------------------------------------------------------------------------------ */

static void forget(lua_State *L, struct debt *d)
{
    if (d->request.lookup) {
        mr_lookup_cancel(&d->request);
    }
    if (L) {
        luaL_unref(L, LUA_REGISTRYINDEX, d->callback);
    }
    unlink_debt(d);
    mr__free(d);
}

static void forget_list(lua_State *L, struct debt *d, const struct endpoint *e)
{
    while (d) {
        struct debt *next = d->next;

        if (!d->is_closing && (!e || d->endpoint == e)) {
            forget(L, d);
        }
        d = next;
    }
}

void mr__debts_forget(lua_State *L, struct program *p, const struct endpoint *e)
{
    forget_list(L, p->debts, e);
    forget_list(L, p->refused, e);
    forget_list(L, p->telling, e);
}
