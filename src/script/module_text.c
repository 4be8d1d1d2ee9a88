/* SPDX-License-Identifier: MIT */
/*
 * relay.json and relay.urlencode. Control thread only. JSON itself is in json.c.
 */
#include "script/argument.h"
#include "script/json.h"
#include "script/module_part.h"
#include "script/state.h"

#include <string.h>

enum {
    URLENCODE_BYTES_MAX = 1 << 20,
    URLENCODE_BYTES_PER_LOOK = 1 << 15, /* at the clock: about 100 us */
};

static int on_encode(lua_State *L)
{
    luaL_checkany(L, 1);
    return mr__json_push(L, 1);
}

static int on_decode(lua_State *L)
{
    struct str text = mr__argument_text(L, 1, "relay.json.decode", "text");
    char why[MR_JSON_WHY_MAX];

    return mr__json_decode(L, text.s, text.n, why) == 0 ? 1 : mr__module_fail(L, why, "malformed");
}

static int on_array(lua_State *L)
{
    lua_settop(L, 1);
    if (lua_isnil(L, 1)) {
        lua_newtable(L);
        lua_replace(L, 1);
    }
    if (!lua_istable(L, 1) || lua_getmetatable(L, 1)) {
        return mr__argument_error(L, "relay.json.array", "list", 1, "a plain table is expected");
    }
    mr__json_mark_array(L, 1);
    return 1;
}

/* All but the unreserved characters of RFC 3986, so that the result may stand anywhere in a URL. */
static int on_urlencode(lua_State *L)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    static const char digits[] = "0123456789ABCDEF";
    struct str s = {"", 0};
    luaL_Buffer b;

    if (lua_type(L, 1) == LUA_TNUMBER) {
        lua_tolstring(L, 1, NULL);
    }
    s = mr__argument_bounded(L, 1, "relay.urlencode", "text", URLENCODE_BYTES_MAX);
    luaL_buffinit(L, &b);
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.s[i];

        if (i % URLENCODE_BYTES_PER_LOOK == URLENCODE_BYTES_PER_LOOK - 1) {
            mr__state_charge(L);
        }
        if (c != '\0' && strchr(plain, c)) {
            luaL_addchar(&b, (char)c);
        } else {
            luaL_addchar(&b, '%');
            luaL_addchar(&b, digits[c >> 4]);
            luaL_addchar(&b, digits[c & 15]);
        }
    }
    luaL_pushresult(&b);
    return 1;
}

void mr__module_open_text(lua_State *L, struct policy *p)
{
    static const luaL_Reg functions[] = {{"urlencode", on_urlencode}, {NULL, NULL}};
    static const luaL_Reg json_functions[] = {
        {"encode", on_encode}, {"decode", on_decode}, {"array", on_array}, {NULL, NULL}};

    mr__module_add(L, functions, p);
    lua_newtable(L);
    mr__module_add(L, json_functions, p);
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "null");
    mr__module_seal(L, "relay.json");
    lua_setfield(L, -2, "json");
}
