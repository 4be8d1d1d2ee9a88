/* SPDX-License-Identifier: MIT */
/*
 * A program with require "moonrelay" (lua/moonrelay.lua) whose memory ends at each possible
 * place: calls fail, callbacks may be lost, but what works is told once, the state closes and
 * nothing is left. What the module does otherwise is tested from Lua
 * (tests/spec/moonrelay_spec.lua).
 */
#include "module/program.h"

#include "base/alloc.h"
#include "test.h"

#include <lauxlib.h>
#include <lualib.h>

int luaopen_moonrelay_core(lua_State *L);

/* libuv keeps a pipe for signals from its first loop on; that is not what a test left behind. */
__attribute__((constructor)) static void warm_up(void)
{
    struct own_loop *l;

    if (mr__own_loop_create(&l) < 0 || mr__own_loop_destroy(l) < 0) {
        abort();
    }
}

enum { FAILURES_MAX = 4000 };

/* Everything that takes memory. Each call may fail; so may each callback. */
static const char program[] =
    "local core = ...\n"
    "local told = 0\n"
    "local function done() told = told + 1 end\n"
    "local function try(f, ...) return pcall(f, ...) end\n"
    "local _, u = try(core.udp, { family = 4 })\n"
    "local _, v = try(core.udp, { family = 4, lookup = function(host, family, op, answer)\n"
    "  if op == 'send' then return answer(host) end\n"
    "  core.lookup(host, family, answer)\n"
    "end })\n"
    "local is_made = type(u) == 'userdata' and type(v) == 'userdata'\n"
    "if is_made then\n"
    "  try(u.on_message, u, done)\n"
    "  try(u.bind, u, '127.0.0.1', 0, function(ok)\n"
    "    if ok then v:send('x', '127.0.0.1', u:address().port, done) end\n"
    "  end)\n"
    "  try(v.bind, v, done)\n"
    "  try(v.bind, v, done)\n"
    "  try(v.send, v, 'x', '::1', 9, done)\n"
    "end\n"
    "try(core.set_resolver, function(host, family, answer)\n"
    "  if host == 'a.example' then answer('127.0.0.1') else error('no') end\n"
    "end)\n"
    "try(core.resolve, 'a.example', 4, done)\n"
    "try(core.resolve, 'b.example', done)\n"
    "try(core.resolve, '127.0.0.1', done)\n"
    "for _ = 1, 12 do try(core.step) end\n"
    "if is_made then try(v.close, v, done) end\n"
    "for _ = 1, 3 do try(core.step) end\n";

static const char afterwards[] =
    "local core = ...\n"
    "local address\n"
    "core.set_resolver(nil)\n"
    "core.resolve('127.0.0.1', 4, function(found) address = found end)\n"
    "for _ = 1, 20 do pcall(core.step) end\n"
    "return address == '127.0.0.1'\n";

static int open_core(lua_State *L)
{
    luaL_openlibs(L);
    lua_settop(L, 0);
    luaopen_moonrelay_core(L);
    lua_setfield(L, LUA_REGISTRYINDEX, "test.core");
    return 0;
}

/* Whether it ran to its end; *result: the truth of what it returned. */
static bool run(lua_State *L, const char *code, bool *result)
{
    lua_settop(L, 0);
    if (luaL_loadstring(L, code) != 0) {
        return false;
    }
    lua_getfield(L, LUA_REGISTRYINDEX, "test.core");
    if (lua_pcall(L, 1, 1, 0) != 0) {
        return false;
    }
    *result = lua_toboolean(L, -1);
    return true;
}

TEST(a_program_whose_c_memory_ends_goes_on_when_there_is_some_again_and_leaves_nothing)
{
    long live = mr__alloc_live();
    bool ok = false;

    for (long n = 0; n < 120; n++) {
        lua_State *L = luaL_newstate();

        REQUIRE(L != NULL);
        REQUIRE_EQ(lua_cpcall(L, open_core, NULL), 0);
        mr__alloc_fail_after(n);
        CHECK(run(L, program, &ok));
        mr__alloc_fail_after(-1);
        CHECK(run(L, afterwards, &ok));
        CHECK(ok);
        lua_close(L);
        CHECK_EQ(mr__alloc_live(), live);
    }
}

/* ---- memory of Lua --------------------------------------------------------------------------- */

static long left; /* allocations that succeed; negative: all */

static void *allocate(void *ud, void *p, size_t old, size_t n)
{
    (void)ud;
    (void)old;
    if (n == 0) {
        free(p);
        return NULL;
    }
    if (left == 0) {
        return NULL;
    }
    left -= left > 0;
    return realloc(p, n);
}

TEST(a_program_whose_lua_memory_ends_leaves_nothing)
{
    long live = mr__alloc_live();
    bool ok = false, is_over = false;

    for (long n = 0; n < FAILURES_MAX && !is_over; n++) {
        lua_State *L;

        left = -1;
        L = lua_newstate(allocate, NULL);
        REQUIRE(L != NULL);
        REQUIRE_EQ(lua_cpcall(L, open_core, NULL), 0);
        left = n;
        run(L, program, &ok);
        is_over = left > 0;
        left = -1;
        /* What LuaJIT's own tables lost then is not for us to say; but it closes. */
        run(L, afterwards, &ok);
        lua_close(L);
        CHECK_EQ(mr__alloc_live(), live);
    }
    CHECK(is_over);
}

TEST_MAIN(
    TEST_CASE(a_program_whose_c_memory_ends_goes_on_when_there_is_some_again_and_leaves_nothing),
    TEST_CASE(a_program_whose_lua_memory_ends_leaves_nothing))
