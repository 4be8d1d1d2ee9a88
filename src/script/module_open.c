/* SPDX-License-Identifier: MIT */
/*
 * relay.open: a relay that a policy wants to be there (service/players.h). It waits: `create`
 * is asked, and a target is looked up. Control thread only. Start reading at on_open().
 */
#include "base/alloc.h"
#include "script/answer.h"
#include "script/argument.h"
#include "script/event.h"
#include "script/generation.h"
#include "script/holder.h"
#include "script/module_part.h"
#include "script/run.h"
#include "script/state.h"
#include "script/wait.h"
#include "service/players.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char function[] = "relay.open";

/* One that is under way, for a hook that waits. */
struct errand {
    struct wait *wait;
    struct service *service; /* NULL: it has ended */
    uint64_t id;
};

static void forget(void *user)
{
    struct errand *e = user;

    if (e->service) {
        mr__players_open_cancel(e->service, e->id);
    }
    mr__free(e);
}

/* ---- what is wanted -------------------------------------------------------------------------- */

/* A text, or an address as events have them. stack: ... value */
static void read_peer(lua_State *L, struct mr_addr *out)
{
    static const char expected[] =
        "an address with its port, \"203.0.113.5:4000\", or one of an event is expected";
    const char *s;
    size_t n;

    if (lua_istable(L, -1) && !lua_getmetatable(L, -1)) {
        mr__argument_field(L, lua_gettop(L), "text");
        lua_replace(L, -2);
    }
    s = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &n) : NULL;
    if (!s || mr_addr_parse(out, s, n, NULL) != MR_ADDR_OK) {
        mr__argument_error(L, function, "peer", lua_gettop(L), expected);
    }
}

static void read_port(lua_State *L, struct open_spec *spec)
{
    double v = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : 0;

    if (!(v >= 1 && v <= UINT16_MAX && v == floor(v))) {
        mr__argument_error(L, function, "port", lua_gettop(L),
                           "with a target the number of an open port is expected");
    }
    spec->port = (uint16_t)v;
}

static void read_pair(lua_State *L, struct open_spec *spec)
{
    if (lua_istable(L, -1) && !lua_getmetatable(L, -1)) {
        mr__argument_field(L, lua_gettop(L), "id");
        lua_replace(L, -2);
    }
    if (lua_type(L, -1) != LUA_TSTRING || lua_objlen(L, -1) == 0) {
        mr__argument_error(L, function, "pair", lua_gettop(L), "a relay or its id is expected");
    }
    spec->pair.s = lua_tolstring(L, -1, &spec->pair.n);
}

/* Pushes what is asked for without what is no part of a spec. stack: options at 1 */
static void push_spec(lua_State *L)
{
    static const char *const others[] = {"peer", "port", "pair"};

    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, 1) != 0;) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, -4);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        lua_pushnil(L);
        lua_setfield(L, -2, others[i]);
    }
}

/* Everything in *out is on the stack, or in *answer, which is borrowed from there. */
static void read_options(lua_State *L, struct open_spec *out, struct answer *answer)
{
    static const char *const names[] = {"peer", "port",      "pair", "target", "ttl", "idle",
                                        "rate", "max_bytes", "tags", "slots",  NULL};
    char why[ANSWER_WHY_MAX];
    bool has_target;

    mr__argument_options(L, 1, function, names);
    lua_settop(L, 1);
    push_spec(L);
    if (mr__answer_read_spec(L, 2, answer, why) < 0) {
        luaL_error(L, "%s: %s", function, why);
    }
    has_target = answer->spec.target[0] != '\0';
    mr__argument_field(L, 1, "peer");
    read_peer(L, &out->peer);
    mr__argument_field(L, 1, "port");
    if (has_target) {
        read_port(L, out);
    } else if (!lua_isnil(L, -1)) {
        luaL_error(L, "%s: port is the open port of a flow to a target, and there is no target",
                   function);
    }
    mr__argument_field(L, 1, "pair");
    if (!lua_isnil(L, -1)) {
        if (has_target) {
            luaL_error(L, "%s: a flow to a target is nobody's pair", function);
        }
        read_pair(L, out);
    }
    out->spec = answer->spec;
    out->tags = (struct hook_map){answer->tags, answer->n_tags};
    out->slots = answer->slots;
    out->n_slots = answer->n_slots;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Of the address of a target the word behind the code is what is wrong. */
static int push_answer(lua_State *L, void *user)
{
    const struct open_answer *a = user;
    char message[256];
    bool is_address;

    if (!a->code) {
        mr__event_push_relay(L, a->relay);
        return 1;
    }
    is_address = strcmp(a->code, "host-no-address") == 0;
    snprintf(message, sizeof message, "no relay: %s%s%s", is_address ? "the target: " : a->code,
             is_address || !a->reason[0] ? "" : ": ", a->reason);
    return mr__module_fail(L, message, is_address ? a->reason : a->code);
}

static void on_answer(void *arg, const struct open_answer *a)
{
    struct errand *e = arg;
    struct wait *w = e->wait;

    if (!a) {
        e->service = NULL; /* who waits ends with the policies, which are next */
        return;
    }
    mr__free(e);
    mr__wait_end(w, push_answer, (void *)(uintptr_t)a);
}

/* What is being made waits for `create`, and for `lookup`: they cannot wait for it. */
static void check_hook(lua_State *L)
{
    const struct run *r = mr__state_of(L)->running;

    if (r && (r->class->is_lookup || r->class->is_create)) {
        luaL_error(L, "%s: not in %s, which what it makes would wait for", function,
                   r->class->is_create ? "create" : "lookup");
    }
}

static int on_open(lua_State *L)
{
    struct service *service = mr__module_acting(L, mr__module_policy(L), function);
    struct open_spec spec = {.port = 0};
    struct answer answer;
    struct holder *holder;
    struct errand *e;

    check_hook(L);
    read_options(L, &spec, &answer);
    holder = mr__holder_push(L, mr__free);
    e = holder->p = mr__alloc(1, sizeof *e);
    if (!e) {
        return luaL_error(L, "%s: not enough memory", function);
    }
    e->service = service;
    e->wait = mr__wait_begin(L, function, forget, e);
    holder->p = NULL;
    e->id = mr__players_open(service, &spec, on_answer, e);
    if (e->id == 0) {
        mr__wait_drop(e->wait);
        mr__free(e);
        return mr__module_fail(L, "no relay: too many wait for one", "busy");
    }
    return mr__wait_yield(L, e->wait);
}

void mr__module_open_open(lua_State *L, struct policy *p)
{
    static const luaL_Reg functions[] = {{"open", on_open}, {NULL, NULL}};

    mr__module_add(L, functions, p);
}
