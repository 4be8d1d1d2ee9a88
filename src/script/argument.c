/* SPDX-License-Identifier: MIT */
/*
 * Checks of arguments (argument.h). Control thread only. Nothing is acquired here, so that
 * raising leaks nothing.
 */
#include "script/argument.h"

#include "base/suggest.h"

#include <lauxlib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_MAX = 64, NAME_MAX_BYTES = 64, OPTIONS_MAX = 16 };

/* Long text is told by its length: it may be a ban list, or a key. */
static const char *describe(lua_State *L, int index, char shown[SHOWN_MAX])
{
    switch (lua_type(L, index)) {
    case LUA_TNONE:
    case LUA_TNIL:
        return "nil";
    case LUA_TNUMBER:
        if (isnan(lua_tonumber(L, index))) {
            return "nan"; /* printf adds a sign that means nothing */
        }
        snprintf(shown, SHOWN_MAX, "%.14g", lua_tonumber(L, index));
        return shown;
    case LUA_TBOOLEAN:
        return lua_toboolean(L, index) ? "true" : "false";
    case LUA_TSTRING:
        snprintf(shown, SHOWN_MAX, "a text of %zu bytes", lua_objlen(L, index));
        return shown;
    default:
        snprintf(shown, SHOWN_MAX, "a %s", luaL_typename(L, index));
        return shown;
    }
}

int mr__argument_error(lua_State *L, const char *function, const char *name, int index,
                       const char *expected)
{
    char shown[SHOWN_MAX];

    return luaL_error(L, "%s: %s is %s (%s)", function, name, describe(L, index, shown), expected);
}

struct str mr__argument_text(lua_State *L, int index, const char *function, const char *name)
{
    struct str s = {NULL, 0};

    if (lua_type(L, index) != LUA_TSTRING) {
        mr__argument_error(L, function, name, index, "a text is expected");
    }
    s.s = lua_tolstring(L, index, &s.n);
    return s;
}

struct str mr__argument_bounded(lua_State *L, int index, const char *function, const char *name,
                                size_t max)
{
    struct str s = mr__argument_text(L, index, function, name);

    if (s.n > max) {
        char expected[SHOWN_MAX];

        snprintf(expected, sizeof expected, "at most %zu bytes are expected", max);
        mr__argument_error(L, function, name, index, expected);
    }
    return s;
}

struct str mr__argument_key(lua_State *L, int index, const char *function, const char *name,
                            size_t max)
{
    struct str s = {NULL, 0};

    if (lua_type(L, index) != LUA_TSTRING && lua_type(L, index) != LUA_TNUMBER) {
        mr__argument_error(L, function, name, index, "a text or number is expected");
    }
    s.s = lua_tolstring(L, index, &s.n);
    if (s.n < 1 || s.n > max) {
        char expected[SHOWN_MAX];

        snprintf(expected, sizeof expected, "1 to %zu bytes are expected", max);
        mr__argument_error(L, function, name, index, expected);
    }
    return s;
}

struct str mr__argument_name(lua_State *L, int index, const char *function, const char *name)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    struct str s = mr__argument_text(L, index, function, name);

    if (s.n < 1 || s.n > NAME_MAX_BYTES || strspn(s.s, letters) != s.n) {
        mr__argument_error(L, function, name, index, "1 to 64 of A-Z a-z 0-9 . _ - are expected");
    }
    return s;
}

double mr__argument_number(lua_State *L, int index, const char *function, const char *name,
                           double min, double max, const char *expected)
{
    double v = lua_type(L, index) == LUA_TNUMBER ? lua_tonumber(L, index) : (double)NAN;

    if (!(v >= min && v <= max)) {
        mr__argument_error(L, function, name, index, expected);
    }
    return v;
}

static void check_plain_table(lua_State *L, int index, const char *function, const char *name,
                              const char *expected)
{
    if (lua_type(L, index) != LUA_TTABLE) {
        mr__argument_error(L, function, name, index, expected);
    }
    if (lua_getmetatable(L, index)) {
        luaL_error(L, "%s: %s is a table with a metatable (a plain one is expected)", function,
                   name);
    }
}

void mr__argument_options(lua_State *L, int index, const char *function, const char *const *names)
{
    check_plain_table(L, index, function, "the argument", "a table is expected");
    for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
        size_t n = 0;
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tolstring(L, -2, &n) : NULL;
        const char *near = NULL;
        size_t i = 0;

        if (!key) {
            luaL_error(L, "%s: the table has a key that is a %s (names are expected)", function,
                       luaL_typename(L, -2));
        }
        while (names[i] && (strlen(names[i]) != n || memcmp(names[i], key, n) != 0)) {
            i++;
        }
        if (!names[i]) {
            near = mr__suggest_name(key, n, names);
            luaL_error(L, "%s: unknown key '%s'%s%s%s", function, key,
                       near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
        }
    }
}

void mr__argument_field(lua_State *L, int index, const char *name)
{
    lua_pushstring(L, name);
    lua_rawget(L, index);
}

/* The value at the top as text; of a number, written to buf: the table keeps its number. */
static struct str tag_value(lua_State *L, const char *function, const char *name, char *buf)
{
    struct str s = {buf, 0};

    if (lua_type(L, -1) == LUA_TNUMBER) {
        s.n = (size_t)snprintf(buf, ARGUMENT_NUMBER_BYTES, "%.14g", lua_tonumber(L, -1));
    } else if (lua_type(L, -1) == LUA_TSTRING) {
        s.s = lua_tolstring(L, -1, &s.n);
    } else {
        luaL_error(L, "%s: %s.%s is a %s (a text or number is expected)", function, name,
                   lua_tostring(L, -2), luaL_typename(L, -1));
    }
    return s;
}

struct hook_map mr__argument_tags(lua_State *L, int index, const char *function, const char *name,
                                  struct argument_tags *memory)
{
    struct hook_map map = {memory->pairs, 0};

    if (lua_isnoneornil(L, index)) {
        return map;
    }
    check_plain_table(L, index, function, name, "a table of tags is expected");
    for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
        struct hook_pair *pair = &memory->pairs[map.n];

        if (map.n == ARGUMENT_PAIRS_MAX) {
            luaL_error(L, "%s: %s has more than %d tags", function, name, ARGUMENT_PAIRS_MAX);
        }
        if (lua_type(L, -2) != LUA_TSTRING) {
            luaL_error(L, "%s: %s has a key that is a %s (names of tags are expected)", function,
                       name, luaL_typename(L, -2));
        }
        pair->key.s = lua_tolstring(L, -2, &pair->key.n);
        pair->value = tag_value(L, function, name, memory->numbers[map.n]);
        map.n++;
    }
    return map;
}

void *mr__argument_object(lua_State *L, int index, const char *type)
{
    void *object = lua_type(L, index) == LUA_TUSERDATA ? lua_touserdata(L, index) : NULL;

    if (!object || !lua_getmetatable(L, index)) {
        return NULL;
    }
    lua_getfield(L, LUA_REGISTRYINDEX, type);
    if (!lua_rawequal(L, -1, -2)) {
        object = NULL;
    }
    lua_pop(L, 2);
    return object;
}

void *mr__argument_self(lua_State *L, const char *type, const char *usage)
{
    void *object = mr__argument_object(L, 1, type);

    if (!object) {
        luaL_error(L, "call it as %s, with a colon, on what %s gave", usage, type);
    }
    return object;
}
