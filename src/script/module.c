/* SPDX-License-Identifier: MIT */
/*
 * The module `relay`: puts its parts (module_part.h) together into strict, read-only
 * tables. Control thread only; everything here runs inside a script's call. Start reading
 * at mr__module_push().
 *
 * Functions find their policy in an upvalue, methods in their object. A C function checks
 * all of its arguments before it takes anything, since an error of Lua frees nothing; what
 * must be freed all the same is in a holder (holder.h).
 */
#include "script/module.h"

#include "base/suggest.h"
#include "script/argument.h"
#include "script/generation.h"
#include "script/json.h"
#include "script/module_part.h"

#include <string.h>

struct policy *mr__module_policy(lua_State *L)
{
    return lua_touserdata(L, lua_upvalueindex(1));
}

struct service *mr__module_service(lua_State *L, const struct policy *p, const char *function)
{
    struct service *service = p->generation->opts.service;

    if (!service) {
        luaL_error(L, "%s: there is no relay here to act on", function);
    }
    return service;
}

void mr__module_check_in_use(lua_State *L, const struct policy *p, const char *function)
{
    if (p->generation->stage == GENERATION_LOADING) {
        luaL_error(
            L, "%s: the policy is not in use yet; call it in relay.after(0, function() ... end)",
            function);
    }
}

struct service *mr__module_acting(lua_State *L, const struct policy *p, const char *function)
{
    mr__module_check_in_use(L, p, function);
    return mr__module_service(L, p, function);
}

struct str mr__module_reason(lua_State *L, int index, const struct policy *p, const char *function)
{
    if (lua_isnoneornil(L, index)) {
        return (struct str){p->name, strlen(p->name)};
    }
    return mr__argument_text(L, index, function, "reason");
}

int mr__module_fail(lua_State *L, const char *message, const char *code)
{
    lua_pushnil(L);
    lua_pushstring(L, message);
    lua_pushstring(L, code);
    return 3;
}

/* ---- strict tables --------------------------------------------------------------------------- */

/* upvalues: the table's name, the table itself (for "did you mean") */
static int on_missing(lua_State *L)
{
    const char *table = lua_tostring(L, lua_upvalueindex(1)), *key, *near;
    const char *names[64];
    size_t n, count = 0;

    if (lua_type(L, 2) != LUA_TSTRING) {
        return luaL_error(L, "%s has no key that is a %s", table, luaL_typename(L, 2));
    }
    key = lua_tolstring(L, 2, &n);
    lua_pushvalue(L, lua_upvalueindex(2));
    for (lua_pushnil(L); lua_next(L, -2) != 0 && count < 63; lua_pop(L, 1)) {
        if (lua_type(L, -2) == LUA_TSTRING) {
            names[count++] = lua_tostring(L, -2);
        }
    }
    names[count] = NULL;
    near = mr__suggest_name(key, n, names);
    return luaL_error(L, "%s.%s does not exist%s%s%s", table, key, near ? "; did you mean " : "",
                      near ? near : "", near ? "?" : "");
}

static int on_write(lua_State *L)
{
    return luaL_error(L, "%s is read-only", lua_tostring(L, lua_upvalueindex(1)));
}

void mr__module_seal(lua_State *L, const char *name)
{
    lua_newtable(L); /* stack: values metatable */
    lua_newtable(L);
    lua_pushstring(L, name);
    lua_pushvalue(L, -4);
    lua_pushcclosure(L, on_missing, 2);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pushvalue(L, -3);
    lua_insert(L, -2);
    lua_setmetatable(L, -2); /* stack: values metatable values */
    lua_setfield(L, -2, "__index");
    lua_pushstring(L, name);
    lua_pushcclosure(L, on_write, 1);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_newtable(L); /* stack: values metatable proxy */
    lua_insert(L, -2);
    lua_setmetatable(L, -2);
    lua_remove(L, -2);
}

/* ---- time ------------------------------------------------------------------------------------ */

static int on_now(lua_State *L)
{
    const struct generation_options *o = &mr__module_policy(L)->generation->opts;

    lua_pushnumber(L, o->wall_s(o->user));
    return 1;
}

static int on_monotonic(lua_State *L)
{
    const struct generation_options *o = &mr__module_policy(L)->generation->opts;

    lua_pushnumber(L, (double)o->mono_ns(o->user) / 1e9);
    return 1;
}

static int on_isip(lua_State *L)
{
    struct mr_addr a;
    size_t n;
    const char *s;

    luaL_checktype(L, 1, LUA_TSTRING);
    s = lua_tolstring(L, 1, &n);
    if (mr_addr_parse_ip(&a, s, n, NULL) == MR_ADDR_OK) {
        /* The family of the text: ::ffff:1.2.3.4 is written as IPv6. */
        lua_pushinteger(L, memchr(s, ':', n) ? 6 : 4);
    } else {
        lua_pushnil(L);
    }
    return 1;
}

/* ---- objects --------------------------------------------------------------------------------- */

void mr__module_define(lua_State *L, const char *type, const luaL_Reg *methods, lua_CFunction gc)
{
    const char *dot = strchr(type, '.');

    if (luaL_newmetatable(L, type)) {
        lua_newtable(L);
        for (; methods->name; methods++) {
            lua_pushcfunction(L, methods->func);
            lua_setfield(L, -2, methods->name);
        }
        mr__module_seal(L, dot ? dot + 1 : type);
        lua_setfield(L, -2, "__index");
        lua_pushboolean(L, 0);
        lua_setfield(L, -2, "__metatable");
        if (gc) {
            lua_pushcfunction(L, gc);
            lua_setfield(L, -2, "__gc");
        }
    }
    lua_pop(L, 1);
}

void *mr__module_new(lua_State *L, const char *type, size_t n)
{
    void *object = lua_newuserdata(L, n);

    memset(object, 0, n);
    luaL_getmetatable(L, type);
    lua_setmetatable(L, -2);
    return object;
}

/* ---- the module ------------------------------------------------------------------------------ */

static void add_settings(lua_State *L, const struct policy_sources *sources)
{
    lua_newtable(L);
    for (size_t i = 0; i < sources->n_settings; i++) {
        lua_pushstring(L, sources->settings[i].value);
        lua_setfield(L, -2, sources->settings[i].key);
    }
    mr__module_seal(L, "relay.settings");
    lua_setfield(L, -2, "settings");
}

void mr__module_add(lua_State *L, const luaL_Reg *functions, struct policy *p)
{
    for (; functions->name; functions++) {
        lua_pushlightuserdata(L, p);
        lua_pushcclosure(L, functions->func, 1);
        lua_setfield(L, -2, functions->name);
    }
}

void mr__module_push(lua_State *L, struct policy *policy)
{
    static const luaL_Reg functions[] = {
        {"now", on_now}, {"monotonic", on_monotonic}, {"isip", on_isip}, {NULL, NULL}};

    luaL_checkstack(L, 16, "module relay");
    mr__json_open(L);
    lua_newtable(L);
    mr__module_add(L, functions, policy);
    add_settings(L, policy->generation->sources);
    mr__module_open_time(L, policy);
    mr__module_open_log(L, policy);
    mr__module_open_text(L, policy);
    mr__module_open_crypto(L, policy);
    mr__module_open_nets(L, policy);
    mr__module_open_players(L, policy);
    mr__module_open_open(L, policy);
    mr__module_open_blocks(L, policy);
    mr__module_open_keep(L, policy);
    mr__module_open_outside(L, policy);
    mr__module_open_lookup(L, policy);
    mr__module_open_udp(L, policy);
    mr__module_open_metric(L, policy);
    mr__module_seal(L, "relay");
}
