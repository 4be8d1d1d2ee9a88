/* SPDX-License-Identifier: MIT */
/*
 * Our pattern matcher on any bytes: "pattern LF subject". Short ones must give what
 * LuaJIT's gives; long ones, which LuaJIT's may never end, must end within the budget.
 */
#include "script/pattern.h"
#include "script/state.h"

#include <lualib.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHORT = 12,      /* bytes of pattern and subject that LuaJIT's matcher surely ends */
    RESULTS_MAX = 8, /* compared of one call */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const char *pattern, *subject;
    size_t n_pattern, n_subject;
};

/* stack: 1 input, 2 function; returns the number of results, or -1 for an error (popped) */
static int call(lua_State *L, int function, const struct input *in, const char *name)
{
    int top = lua_gettop(L), nargs = 2;

    lua_pushvalue(L, function);
    lua_pushlstring(L, in->subject, in->n_subject);
    lua_pushlstring(L, in->pattern, in->n_pattern);
    if (strcmp(name, "gsub") == 0) {
        lua_pushliteral(L, "<%0>");
        nargs++;
    }
    if (lua_pcall(L, nargs, LUA_MULTRET, 0) != 0) {
        lua_pop(L, 1);
        return -1;
    }
    return lua_gettop(L) - top;
}

static void compare(lua_State *L, const struct input *in, const char *name)
{
    int base = lua_gettop(L), n, m;

    lua_getfield(L, LUA_GLOBALSINDEX, "string");
    lua_getfield(L, -1, name);
    lua_getfield(L, LUA_GLOBALSINDEX, "ours");
    lua_getfield(L, -1, name);
    n = call(L, base + 2, in, name);
    m = call(L, base + 4, in, name);
    if (n != m) {
        abort();
    }
    for (int i = 1; i <= n && i <= RESULTS_MAX; i++) {
        if (!lua_rawequal(L, base + 4 + i, base + 4 + n + i)) {
            abort();
        }
    }
    lua_settop(L, base);
}

static int run_short(lua_State *L)
{
    const struct input *in = lua_touserdata(L, 1);

    luaL_openlibs(L);
    lua_newtable(L);
    mr__pattern_open(L);
    lua_setfield(L, LUA_GLOBALSINDEX, "ours");
    compare(L, in, "find");
    compare(L, in, "match");
    compare(L, in, "gsub");
    return 0;
}

static int run_long(lua_State *L)
{
    const struct input *in = lua_touserdata(L, 1);
    static const char *const names[] = {"find", "match", "gsub"};

    lua_newtable(L);
    mr__pattern_open(L);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct script_failure failure;
        int n, nargs = 2;

        lua_settop(L, 2);
        lua_getfield(L, 2, names[i]);
        lua_pushlstring(L, in->subject, in->n_subject);
        lua_pushlstring(L, in->pattern, in->n_pattern);
        if (i == 2) {
            lua_pushliteral(L, "<%0>");
            nargs++;
        }
        mr__state_resume(L, nargs, 1, 2000000, &n, &failure);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *lf = size > 0 ? memchr(text, '\n', size) : NULL;
    struct script_failure failure;
    struct script_state state;
    struct input in;

    if (!lf || mr__state_init(&state, 16u << 20) != 0) {
        return 0;
    }
    in.pattern = text;
    in.n_pattern = (size_t)(lf - text);
    in.subject = lf + 1;
    in.n_subject = size - in.n_pattern - 1;
    /* LuaJIT's patterns end at a NUL, ours do not. */
    if (in.n_pattern <= SHORT && in.n_subject <= SHORT && !memchr(text, '\0', in.n_pattern)) {
        if (mr__state_enter(&state, run_short, &in, &failure) != 0) {
            abort();
        }
    } else {
        (void)mr__state_enter(&state, run_long, &in, &failure);
    }
    mr__state_deinit(&state);
    return 0;
}
