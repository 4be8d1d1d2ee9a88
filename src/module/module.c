/* SPDX-License-Identifier: MIT */
/*
 * The C module moonrelay_core for LuaJIT: what lua/relay and lua/moonrelay are built on.
 * It is not linked against LuaJIT, the host that loads it provides that; policies get
 * states of their own, also from the host's. Start reading at luaopen_moonrelay_core();
 * to add a part, add its functions there.
 */
#include "base/alloc.h"
#include "base/suggest.h"
#include "engine/moonrelay.h"
#include "module/program.h"
#include "module/userdata.h"
#include "module/view.h"

#include <lauxlib.h>
#include <lua.h>
#include <string.h>

__attribute__((visibility("default"))) int luaopen_moonrelay_core(lua_State *L);

/* core.address(text): the address, or nil and why. "1.2.3.4:5"; without a port its port is 0. */
static int on_address(lua_State *L)
{
    size_t n, at;
    const char *text = luaL_checklstring(L, 1, &n);
    struct mr_addr a;
    enum mr_addr_error e = mr_addr_parse_ip(&a, text, n, &at);

    if (e != MR_ADDR_OK && lua_toboolean(L, 2) == 0) {
        e = mr_addr_parse(&a, text, n, &at);
    }
    if (e != MR_ADDR_OK) {
        lua_pushnil(L);
        lua_pushstring(L, mr_addr_error_text(e));
        return 2;
    }
    mr__view_address(L, &a);
    return 1;
}

enum { NAMES_MAX = 256 };

/* core.suggest(word, names): the name that is nearest to the word, or nil. */
static int on_suggest(lua_State *L)
{
    const char *names[NAMES_MAX + 1], *near;
    size_t n, count = 0;
    const char *word = luaL_checklstring(L, 1, &n);

    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checkstack(L, NAMES_MAX + 4, "names");
    for (int i = 1; count < NAMES_MAX; i++) {
        lua_rawgeti(L, 2, i); /* stays there, so that it lives */
        if (lua_type(L, -1) != LUA_TSTRING) {
            break;
        }
        names[count++] = lua_tostring(L, -1);
    }
    names[count] = NULL;
    near = mr__suggest_name(word, n, names);
    lua_pushstring(L, near); /* NULL: nil */
    return 1;
}

/* core.json(text): the value, or nil. */
static int on_json(lua_State *L)
{
    struct str text;

    text.s = luaL_checklstring(L, 1, &text.n);
    mr__view_json(L, text);
    return 1;
}

/* core.blocks(): how many blocks of memory are in use, for tests that look for leaks. */
static int on_blocks(lua_State *L)
{
    lua_pushnumber(L, (double)mr__alloc_live());
    return 1;
}

int luaopen_moonrelay_core(lua_State *L)
{
    static const luaL_Reg functions[] = {{"bench", mr__userdata_create}, {"address", on_address},
                                         {"suggest", on_suggest},        {"json", on_json},
                                         {"blocks", on_blocks},          {NULL, NULL}};

    mr__userdata_open(L);
    lua_newtable(L);
    mr__program_open(L);
    for (const luaL_Reg *f = functions; f->name; f++) {
        lua_pushcfunction(L, f->func);
        lua_setfield(L, -2, f->name);
    }
    lua_pushstring(L, mr_version());
    lua_setfield(L, -2, "version");
    return 1;
}
