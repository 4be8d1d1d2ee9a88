/* SPDX-License-Identifier: MIT */
/*
 * relay.log: records of a policy. Control thread only.
 */
#include "base/log.h"
#include "script/generation.h"
#include "script/module_part.h"

#include <math.h>
#include <string.h>

enum {
    LOG_FIELDS_MAX = 32,
    LOG_KEY_MAX = 32,
};

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
    struct policy *p = mr__module_policy(L);
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

void mr__module_open_log(lua_State *L, struct policy *p)
{
    static const luaL_Reg log_functions[] = {{"debug", on_log_debug},
                                             {"info", on_log_info},
                                             {"warn", on_log_warn},
                                             {"error", on_log_error},
                                             {NULL, NULL}};

    lua_newtable(L);
    mr__module_add(L, log_functions, p);
    mr__module_seal(L, "relay.log");
    lua_setfield(L, -2, "log");
}
