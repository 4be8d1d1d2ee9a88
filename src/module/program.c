/* SPDX-License-Identifier: MIT */
/* Life, turns and errors of a program (program.h). The host's thread. */
#include "module/program.h"

#include "engine/moonrelay.h"
#include "module/debt.h"
#include "module/endpoint.h"
#include "module/oracle.h"

#include <lauxlib.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const char type_name[] = "moonrelay.program";

enum {
    STACK_SLOTS = 40,    /* of Lua, for whatever a turn calls */
    CLOSING_TURNS = 2,   /* endpoints are closed by the loop's next turn */
    TRACEBACK_LEVEL = 1, /* from whoever raised it on */
};

/* ---- calls into Lua -------------------------------------------------------------------------- */

/* A text gets a traceback; what else was raised stays what it is. */
static int add_traceback(lua_State *L)
{
    if (lua_type(L, 1) == LUA_TSTRING) {
        luaL_traceback(L, L, lua_tostring(L, 1), TRACEBACK_LEVEL);
    }
    return 1;
}

/* Keeps the error on top and ends the turn. */
static void keep_error(lua_State *L, struct program *p)
{
    /* stack: ... error */
    lua_rawgeti(L, LUA_REGISTRYINDEX, p->errors_ref);
    lua_insert(L, -2);
    lua_rawseti(L, -2, p->n_errors + 1);
    p->n_errors++;
    lua_pop(L, 1);
    mr__own_loop_stop(p->loop);
}

void mr__program_protect(lua_State *L, struct program *p, int n)
{
    int handler = lua_gettop(L) - n;

    /* stack: ... function arg1 ... argn */
    lua_pushcfunction(L, add_traceback);
    lua_insert(L, handler);
    if (lua_pcall(L, n, 0, handler) != 0) {
        keep_error(L, p);
    }
    lua_remove(L, handler);
}

void mr__program_call(struct program *p, lua_CFunction f, void *ud)
{
    lua_State *L = p->L;

    if (L && lua_cpcall(L, f, ud) != 0) {
        /* Ours do not raise, except when memory ends. */
        lua_pop(L, 1);
        p->is_short = true;
        mr__own_loop_stop(p->loop);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

bool mr__program_is_alive(const struct program *p)
{
    return p->errors_ref != LUA_NOREF;
}

struct program *mr__program_to(lua_State *L, int index)
{
    struct program *p = lua_touserdata(L, index);

    return mr__program_is_alive(p) ? p : NULL;
}

static int start(struct program *p)
{
    struct mr_lookup_options o;
    int rc = mr__own_loop_create(&p->loop);

    if (rc == 0) {
        mr_lookup_options_init(&o, sizeof o);
        o.loop = mr__own_loop_uv(p->loop);
        rc = mr_lookup_create(&p->lookup, &o);
        if (rc < 0) {
            mr__own_loop_destroy(p->loop);
            p->loop = NULL;
        }
    }
    return rc;
}

struct program *mr__program_get(lua_State *L)
{
    struct program *p = mr__program_to(L, lua_upvalueindex(1));
    int rc;

    if (!p) {
        luaL_error(L, "the program has ended");
    } else if (!p->loop) {
        rc = start(p);
        if (rc < 0) {
            luaL_error(L, "the loop cannot be made: %s", mr_strerror(rc));
        }
    }
    return p;
}

/* By lua_close(), or from its last garbage on: nothing of Lua is called any more. */
static int on_end(lua_State *L)
{
    struct program *p = lua_touserdata(L, 1);

    (void)L;
    p->errors_ref = LUA_NOREF;
    p->L = NULL;
    while (p->endpoints) {
        mr__program_endpoint_end(p->endpoints);
    }
    mr__debts_forget(NULL, p, NULL);
    if (p->loop) {
        for (int i = 0; i < CLOSING_TURNS; i++) {
            mr__own_loop_step(p->loop); /* the lookup must outlive the endpoints */
        }
        mr_lookup_destroy(p->lookup);
        if (mr__own_loop_destroy(p->loop) != 0) {
            fprintf(stderr, "moonrelay: the loop did not close\n");
            abort();
        }
    }
    p->lookup = NULL;
    p->loop = NULL;
    return 0;
}

void mr__program_push(lua_State *L)
{
    struct program *p;

    lua_getfield(L, LUA_REGISTRYINDEX, type_name);
    if (!lua_isnil(L, -1)) {
        return;
    }
    lua_pop(L, 1);
    p = lua_newuserdata(L, sizeof *p);
    *p = (struct program){
        .lookup_ref = LUA_NOREF, .resolver_ref = LUA_NOREF, .errors_ref = LUA_NOREF};
    p->refused_end = &p->refused;
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, on_end);
    lua_setfield(L, -2, "__gc");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_newtable(L);
    p->errors_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, type_name);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static bool is_due(const struct program *p)
{
    return p->n_debts > 0 || p->n_reading > 0;
}

static bool has_failed(const struct program *p)
{
    return p->n_errors > 0 || p->is_short;
}

/* Raises what a callback raised, the oldest first; the next call raises the next one. */
static int raise_error(lua_State *L, struct program *p)
{
    if (p->is_short) {
        p->is_short = false;
        return luaL_error(L, "not enough memory for a callback");
    }
    lua_rawgeti(L, LUA_REGISTRYINDEX, p->errors_ref);
    lua_rawgeti(L, -1, 1);
    for (int i = 1; i <= p->n_errors; i++) {
        lua_rawgeti(L, -2, i + 1);
        lua_rawseti(L, -3, i);
    }
    p->n_errors--;
    return lua_error(L);
}

static void turn(lua_State *L, struct program *p, bool is_waiting)
{
    p->L = L;
    if (mr__debts_tell_refused(p) || !is_waiting || !is_due(p)) {
        mr__own_loop_step(p->loop);
    } else {
        mr__own_loop_wait(p->loop);
    }
    p->L = NULL;
}

static struct program *check_idle(lua_State *L, const char *name)
{
    struct program *p = mr__program_get(L);

    if (p->L) {
        luaL_error(L, "%s() is called from inside a callback", name);
    }
    luaL_checkstack(L, STACK_SLOTS, "moonrelay");
    return p;
}

/* run(): until nothing is due any more. */
static int on_run(lua_State *L)
{
    struct program *p = check_idle(L, "run");

    while (is_due(p) && !has_failed(p)) {
        turn(L, p, true);
    }
    return has_failed(p) ? raise_error(L, p) : 0;
}

/* step(): whether there is something left to do. */
static int on_step(lua_State *L)
{
    struct program *p = check_idle(L, "step");

    if (!has_failed(p)) {
        turn(L, p, false);
    }
    if (has_failed(p)) {
        return raise_error(L, p);
    }
    lua_pushboolean(L, is_due(p));
    return 1;
}

/* fd(): readable when step() has something to do. */
static int on_fd(lua_State *L)
{
    lua_pushinteger(L, mr__own_loop_fd(mr__program_get(L)->loop));
    return 1;
}

/* timeout(): the seconds after which step() has something to do anyway, or nil. */
static int on_timeout(lua_State *L)
{
    const struct program *p = mr__program_get(L);
    bool is_now = p->refused || has_failed(p);
    int ms = is_now ? 0 : mr__own_loop_timeout_ms(p->loop);

    if (ms < 0) {
        lua_pushnil(L);
    } else {
        lua_pushnumber(L, (double)ms / 1e3);
    }
    return 1;
}

/* ---- lookups --------------------------------------------------------------------------------- */

static void on_found(struct mr_lookup_request *request, const struct mr_lookup_answer *answer)
{
    mr__debt_tell_address(request->user, answer);
}

/* (host[, family], callback) */
static int ask(lua_State *L, bool is_built_in)
{
    struct program *p = mr__program_get(L);
    int callback = lua_type(L, 2) == LUA_TFUNCTION && lua_isnone(L, 3) ? 2 : 3, family = 0;
    const char *host;
    struct debt *d;
    size_t n;

    luaL_checktype(L, 1, LUA_TSTRING);
    host = lua_tolstring(L, 1, &n);
    if (callback == 3 && !lua_isnil(L, 2)) {
        luaL_checktype(L, 2, LUA_TNUMBER);
        family = lua_tonumber(L, 2) == 4 ? 4 : lua_tonumber(L, 2) == 6 ? 6 : -1;
        luaL_argcheck(L, family > 0, 2, "a family is 4, 6 or nil");
    }
    luaL_checktype(L, callback, LUA_TFUNCTION);
    d = mr__debt_open(L, p, NULL, callback, "resolve");
    d->request.done = on_found;
    d->request.user = d;
    if (is_built_in) {
        mr_lookup_default(p->lookup, &d->request, host, n, family);
    } else {
        mr_lookup_start(p->lookup, &d->request, host, n, family, MR_LOOKUP_RESOLVE, 0);
    }
    return 0;
}

static int on_resolve(lua_State *L)
{
    return ask(L, false);
}

static int on_lookup(lua_State *L)
{
    return ask(L, true);
}

/* counts(): what lookups came to so far. */
static int on_counts(lua_State *L)
{
    struct mr_lookup_counts c;
    const struct {
        const char *key;
        const uint64_t *value;
    } list[] = {{"literals", &c.literals},
                {"resolver", &c.resolver_calls},
                {"custom", &c.script_calls},
                {"ignored", &c.ignored}};

    mr_lookup_count(mr__program_get(L)->lookup, &c);
    lua_createtable(L, 0, 4);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        lua_pushnumber(L, (double)*list[i].value);
        lua_setfield(L, -2, list[i].key);
    }
    return 1;
}

void mr__program_open(lua_State *L)
{
    static const luaL_Reg functions[] = {{"udp", mr__program_endpoint_create},
                                         {"run", on_run},
                                         {"step", on_step},
                                         {"fd", on_fd},
                                         {"timeout", on_timeout},
                                         {"resolve", on_resolve},
                                         {"lookup", on_lookup},
                                         {"set_lookup", mr__oracle_set_lookup},
                                         {"set_resolver", mr__oracle_set_resolver},
                                         {"counts", on_counts},
                                         {NULL, NULL}};

    mr__program_endpoint_open(L);
    for (const luaL_Reg *f = functions; f->name; f++) {
        mr__program_push(L);
        lua_pushcclosure(L, f->func, 1);
        lua_setfield(L, -2, f->name);
    }
}
