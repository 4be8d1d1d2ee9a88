/* SPDX-License-Identifier: MIT */
/*
 * The module `relay`: what policies can call. Control thread only; everything here runs
 * inside a script's call. Start reading at mr__module_push(). To add a function: here,
 * out of `later`, in lua/relay/meta.lua and in lua/README.md.
 *
 * Functions find their policy in an upvalue. A C function checks all of its arguments
 * before it takes anything, since an error of Lua frees nothing.
 */
#include "script/module.h"

#include "base/log.h"
#include "base/suggest.h"
#include "script/generation.h"
#include "service/settings.h"

#include <lauxlib.h>
#include <math.h>
#include <string.h>

enum {
    LOG_FIELDS_MAX = 32,
    LOG_KEY_MAX = 32,
};

/* What later versions have. */
static const char *const later[] = {
    "json",  "urlencode", "cidr",   "crypto", "sessions", "session", "relays", "get",
    "kick",  "close",     "notify", "open",   "block",    "unblock", "blocks", "blocklist",
    "store", "limiter",   "read",   "http",   "resolve",  "sleep",   "await",  "udp",
    "after", "every",     "metric", "drain",  "testing",  NULL,
};

static struct policy *policy_of(lua_State *L)
{
    return lua_touserdata(L, lua_upvalueindex(1));
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
    for (size_t i = 0; strcmp(table, "relay") == 0 && later[i]; i++) {
        if (strcmp(later[i], key) == 0) {
            return luaL_error(L, "relay.%s comes with a later version", key);
        }
    }
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

/* Replaces the table at the top by an empty one through which it is read, and only read. */
static void make_read_only(lua_State *L, const char *name)
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

/* ---- relay.log ------------------------------------------------------------------------------- */

struct record {
    struct log_field fields[LOG_FIELDS_MAX + 1];
    size_t n;
};

static const char *check_log_key(lua_State *L, int index)
{
    const char *key;
    size_t n;

    if (lua_type(L, index) != LUA_TSTRING) {
        luaL_error(L, "a field of a log record has a key that is a %s (a name is expected)",
                   luaL_typename(L, index));
    }
    key = lua_tolstring(L, index, &n);
    if (n < 1 || n > LOG_KEY_MAX || strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_") != n) {
        luaL_error(L, "a field of a log record cannot be named '%s' (1 to %d of a-z 0-9 _)", key,
                   LOG_KEY_MAX);
    }
    return key;
}

static void add_field(lua_State *L, struct record *r)
{
    const char *key = check_log_key(L, -2), *s;
    struct log_field *f = &r->fields[r->n];
    double v;
    size_t n;

    if (r->n > LOG_FIELDS_MAX) {
        luaL_error(L, "a log record has more than %d fields", LOG_FIELDS_MAX);
    }
    switch (lua_type(L, -1)) {
    case LUA_TSTRING:
        s = lua_tolstring(L, -1, &n);
        *f = LOG_STRN(key, s, n);
        break;
    case LUA_TBOOLEAN:
        *f = LOG_BOOL(key, lua_toboolean(L, -1));
        break;
    case LUA_TNUMBER:
        v = lua_tonumber(L, -1);
        *f = v == floor(v) && fabs(v) < 9e15 ? LOG_INT(key, (int64_t)v) : LOG_DOUBLE(key, v);
        break;
    default:
        luaL_error(L, "field %s of a log record is a %s (a string, number or boolean is expected)",
                   key, luaL_typename(L, -1));
    }
    r->n++;
}

/* By key, because the order of a Lua table changes from run to run. The first stays. */
static void sort_fields(struct record *r)
{
    for (size_t i = 2; i < r->n; i++) {
        struct log_field f = r->fields[i];
        size_t j = i;

        for (; j > 1 && strcmp(r->fields[j - 1].key, f.key) > 0; j--) {
            r->fields[j] = r->fields[j - 1];
        }
        r->fields[j] = f;
    }
}

static int write_log(lua_State *L, enum log_level level)
{
    struct policy *p = policy_of(L);
    struct record r;
    const char *msg = luaL_checkstring(L, 1);

    if (!lua_isnoneornil(L, 2)) {
        luaL_checktype(L, 2, LUA_TTABLE);
    }
    r.fields[0] = LOG_STRN("policy", p->name, strlen(p->name));
    r.n = 1;
    if (lua_istable(L, 2)) {
        lua_settop(L, 2);
        for (lua_pushnil(L); lua_next(L, 2) != 0; lua_pop(L, 1)) {
            add_field(L, &r);
        }
        sort_fields(&r);
    }
    if (p->generation->opts.log && level >= p->generation->opts.log->level) {
        mr__log(p->generation->opts.log, level, "policy", msg, r.fields, r.n);
    }
    return 0;
}

static int on_log_debug(lua_State *L)
{
    return write_log(L, MR_LOG_DEBUG);
}

static int on_log_info(lua_State *L)
{
    return write_log(L, MR_LOG_INFO);
}

static int on_log_warn(lua_State *L)
{
    return write_log(L, MR_LOG_WARN);
}

static int on_log_error(lua_State *L)
{
    return write_log(L, MR_LOG_ERROR);
}

/* ---- time and text --------------------------------------------------------------------------- */

static int on_now(lua_State *L)
{
    const struct generation_options *o = &policy_of(L)->generation->opts;

    lua_pushnumber(L, o->wall_s(o->user));
    return 1;
}

static int on_monotonic(lua_State *L)
{
    const struct generation_options *o = &policy_of(L)->generation->opts;

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

/* ---- the module ------------------------------------------------------------------------------ */

static void push_settings(lua_State *L, const struct settings *settings)
{
    lua_newtable(L);
    for (size_t i = 0; settings && i < mr__settings_row_count(); i++) {
        struct settings_row row;

        mr__settings_row(settings, i, &row);
        lua_pushstring(L, row.value);
        lua_setfield(L, -2, row.key);
    }
    make_read_only(L, "relay.settings");
}

static void push_functions(lua_State *L, const luaL_Reg *functions, struct policy *policy)
{
    lua_newtable(L);
    for (; functions->name; functions++) {
        lua_pushlightuserdata(L, policy);
        lua_pushcclosure(L, functions->func, 1);
        lua_setfield(L, -2, functions->name);
    }
}

void mr__module_push(lua_State *L, struct policy *policy)
{
    static const luaL_Reg functions[] = {
        {"now", on_now}, {"monotonic", on_monotonic}, {"isip", on_isip}, {NULL, NULL}};
    static const luaL_Reg log_functions[] = {{"debug", on_log_debug},
                                             {"info", on_log_info},
                                             {"warn", on_log_warn},
                                             {"error", on_log_error},
                                             {NULL, NULL}};

    luaL_checkstack(L, 12, "module relay");
    push_functions(L, functions, policy);
    push_functions(L, log_functions, policy);
    make_read_only(L, "relay.log");
    lua_setfield(L, -2, "log");
    push_settings(L, policy->generation->opts.settings);
    lua_setfield(L, -2, "settings");
    make_read_only(L, "relay");
}
