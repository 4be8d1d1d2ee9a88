/* SPDX-License-Identifier: MIT */
/*
 * Builds the contents of a script's state from lists of what may be there. Control
 * thread only. Start reading at mr__sandbox_open(); to give scripts another function of
 * the standard library, add it to a list below and say in lua/README.md what it costs.
 *
 * What is missing is missing on purpose: io, os.execute and kin, package, load and
 * bytecode (they leave the sandbox), debug, getfenv and setfenv (they reach other
 * policies), newproxy (finalisers run outside of any budget), collectgarbage (it can
 * stop the collector), coroutine.running (a policy could keep the coroutine that we use
 * again for the next call).
 */
#include "script/sandbox.h"

#include "base/suggest.h"
#include "script/pattern.h"
#include "script/state.h"

#include <errno.h>
#include <lauxlib.h>
#include <limits.h>
#include <lualib.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum {
    /* string.rep is the one function that makes a gigabyte of nothing in one call. */
    REP_BYTES_MAX = 1024 * 1024,
    MOVES_PER_LOOK = 1024,         /* at the clock, in table.insert and kin: about 10 us */
    TEXT_BYTES_MAX = 1024 * 1024,  /* of upper and kin: 4 to 14 ms */
    FORMAT_BYTES_MAX = 256 * 1024, /* "%q" takes 30 ms a MiB */
    CONCAT_BYTES_MAX = 4 * 1024 * 1024,
};

struct library {
    const char *name; /* "" are the globals themselves */
    const char *functions[24];
};

static const struct library libraries[] = {
    {"",
     {"assert", "error", "getmetatable", "ipairs", "next", "pairs", "pcall", "rawequal", "rawget",
      "rawset", "select", "setmetatable", "tonumber", "tostring", "type", "unpack"}},
    {"string",
     {"byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match", "rep", "reverse",
      "sub", "upper"}},
    {"table", {"concat", "insert", "maxn", "remove", "sort"}},
    {"math",
     {"abs",  "acos",  "asin",  "atan", "atan2", "ceil", "cos", "cosh", "deg", "exp", "floor",
      "fmod", "frexp", "ldexp", "log",  "log10", "max",  "min", "modf", "pow", "rad", "random"}},
    {"math", {"randomseed", "sin", "sinh", "sqrt", "tan", "tanh"}},
    {"bit",
     {"arshift", "band", "bnot", "bor", "bswap", "bxor", "lshift", "rol", "ror", "rshift", "tobit",
      "tohex"}},
    {"coroutine", {"create", "isyieldable", "resume", "status", "wrap", "yield"}},
    {"os", {"clock", "date", "difftime", "time"}},
};

/* What people look for, and what there is instead. */
static const struct {
    const char *name, *hint;
} hints[] = {
    {"print", "write relay.log.info(...)"},
    {"io", "policies have no files; relay.log writes to the log"},
    {"load", "policies cannot compile code"},
    {"loadstring", "policies cannot compile code"},
    {"loadfile", "policies cannot compile code"},
    {"dofile", "policies cannot compile code"},
    {"debug", "not available to policies"},
    {"ffi", "not available to policies"},
    {"jit", "not available to policies"},
    {"package", "require sees \"relay\" and files below the policy's folder"},
    {"module", "return a table instead"},
    {"getfenv", "not available to policies"},
    {"setfenv", "not available to policies"},
    {"newproxy", "not available to policies"},
    {"collectgarbage", "memory is collected by itself"},
    {"env", "it is there in the config file only; pass the value to the policy"},
    {"file", "it is there in the config file only; pass the value to the policy"},
    {"relay", "write local relay = require \"relay\""},
};

/* Wrappers in Lua, so that what they call may yield and is counted. Results are in the order of
 * wrap_functions(). pcall and tostring are wrapped because LuaJIT's own are no frames that it looks
 * at: `__call = pcall` ran over the stack's end, and `__tostring = tostring` for ever. xpcall calls
 * its handler when the stack is unwound already: LuaJIT's own calls it in the middle, and a handler
 * that fails or loops there is called again and again. */
static const char prelude[] =
    "local pcall, tostring, select, error, type, sort, time, date, floor, now, tonumber = ...\n"
    "local function counted_pcall(...) return pcall(...) end\n"
    "local function counted_tostring(...) return tostring(...) end\n"
    "local function finish(handler, ok, ...)\n"
    "  if ok then return true, ... end\n"
    "  return false, select(2, pcall(handler, ...))\n"
    "end\n"
    "local function xpcall(f, handler, ...) return finish(handler, pcall(f, ...)) end\n"
    "local function sort_some(t, less)\n"
    "  if type(t) == 'table' and #t > 50000 then error('table.sort: more than 50000 items', 2) "
    "end\n"
    "  return sort(t, less)\n"
    "end\n"
    "local function os_time(t) if t == nil then return floor(now()) end return time(t) end\n"
    "local function os_date(format, t)\n"
    "  if type(format) == 'string' and #format > 1000 then\n"
    "    error('os.date: a format of more than 1000 bytes', 2)\n"
    "  end\n"
    "  return date(format, t or floor(now()))\n"
    "end\n"
    "local function short_tonumber(...)\n"
    "  local x = ...\n"
    "  if type(x) == 'string' and #x > 1000 then return nil end\n"
    "  return tonumber(...)\n"
    "end\n"
    "return counted_pcall, counted_tostring, xpcall, sort_some, os_time, os_date, short_tonumber\n";

static const char template_key, strict_key; /* their addresses are keys of the registry */

/* ---- own functions --------------------------------------------------------------------------- */

/* A whole number that an array may have as index, 0 included; anything else is out of it. */
static double check_index(lua_State *L, int arg, double preset)
{
    double v = luaL_optnumber(L, arg, preset);

    luaL_argcheck(L, v >= -INT_MAX && v <= INT_MAX, arg, "index out of range");
    return v >= 0 ? floor(v) : 0;
}

static int on_rep(lua_State *L)
{
    size_t n, n_sep = 0;
    double count;

    luaL_checklstring(L, 1, &n);
    count = luaL_checknumber(L, 2);
    luaL_optlstring(L, 3, "", &n_sep);
    if (isnan(count) || count < 1 || n + n_sep == 0) {
        lua_pushliteral(L, "");
        return 1;
    }
    if (count * (double)(n + n_sep) > REP_BYTES_MAX) {
        return luaL_error(L, "string.rep: the result would be longer than 1 MiB");
    }
    lua_settop(L, 3);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 3, 1);
    return 1;
}

/* Calls the function of LuaJIT that is the upvalue with the same arguments, if its texts are no
 * longer than max bytes together: what it does takes up to 30 ms a MiB. */
static int call_bounded(lua_State *L, const char *name, size_t max)
{
    size_t sum = 0;
    int n = lua_gettop(L);

    for (int i = 1; i <= n; i++) {
        sum += lua_type(L, i) == LUA_TSTRING ? lua_objlen(L, i) : 0;
    }
    if (sum > max) {
        return luaL_error(L, "%s: more than %d KiB of text", name, (int)(max / 1024));
    }
    mr__state_check_stack(L); /* format calls __tostring */
    luaL_checkstack(L, 1, name);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, n, LUA_MULTRET);
    return lua_gettop(L);
}

static int on_lower(lua_State *L)
{
    return call_bounded(L, "string.lower", TEXT_BYTES_MAX);
}

static int on_upper(lua_State *L)
{
    return call_bounded(L, "string.upper", TEXT_BYTES_MAX);
}

static int on_reverse(lua_State *L)
{
    return call_bounded(L, "string.reverse", TEXT_BYTES_MAX);
}

static int on_format(lua_State *L)
{
    return call_bounded(L, "string.format", FORMAT_BYTES_MAX);
}

/* LuaJIT's goes through all items, in C that nothing interrupts; an empty one adds no memory that
 * would stop it. */
static int on_concat(lua_State *L)
{
    size_t n_sep, first, last, sum = 0;
    const char *sep;
    luaL_Buffer b;

    luaL_checktype(L, 1, LUA_TTABLE);
    sep = luaL_optlstring(L, 2, "", &n_sep);
    first = (size_t)check_index(L, 3, 1);
    last = (size_t)check_index(L, 4, (double)lua_objlen(L, 1));
    lua_settop(L, 2);
    luaL_buffinit(L, &b);
    for (size_t i = first; i <= last && last != 0; i++) {
        size_t len;

        if (i % MOVES_PER_LOOK == 0) {
            mr__state_charge(L);
        }
        lua_rawgeti(L, 1, (int)i);
        if (!lua_isstring(L, -1)) {
            return luaL_error(L, "invalid value (%s) at index %d in table for 'concat'",
                              luaL_typename(L, -1), (int)i);
        }
        lua_tolstring(L, -1, &len);
        sum += len + n_sep;
        if (sum > CONCAT_BYTES_MAX) {
            return luaL_error(L, "table.concat: the result would be longer than 4 MiB");
        }
        luaL_addvalue(&b);
        if (i < last) {
            luaL_addlstring(&b, sep, n_sep);
        }
    }
    luaL_pushresult(&b);
    return 1;
}

static int on_remove(lua_State *L)
{
    size_t n, at;

    luaL_checktype(L, 1, LUA_TTABLE);
    n = lua_objlen(L, 1);
    at = lua_isnoneornil(L, 2) ? n : (size_t)check_index(L, 2, 0);
    lua_settop(L, 1);
    if (n == 0 || at < 1 || at > n) {
        return 0;
    }
    lua_rawgeti(L, 1, (int)at);
    for (size_t i = at; i < n; i++) {
        if (i % MOVES_PER_LOOK == 0) {
            mr__state_charge(L);
        }
        lua_rawgeti(L, 1, (int)i + 1);
        lua_rawseti(L, 1, (int)i);
    }
    lua_pushnil(L);
    lua_rawseti(L, 1, (int)n);
    return 1;
}

/* LuaJIT's moves from any position, also from -2^31, in C that nothing interrupts. */
static int on_insert(lua_State *L)
{
    size_t n;
    double at;

    luaL_checktype(L, 1, LUA_TTABLE);
    n = lua_objlen(L, 1);
    if (lua_gettop(L) == 2) {
        lua_rawseti(L, 1, (int)n + 1);
        return 0;
    }
    if (lua_gettop(L) != 3) {
        return luaL_error(L, "wrong number of arguments to 'insert'");
    }
    at = luaL_checknumber(L, 2);
    luaL_argcheck(L, at >= 1 && at <= (double)n + 1, 2, "position out of bounds");
    for (size_t i = n + 1; i > (size_t)at; i--) {
        if (i % MOVES_PER_LOOK == 0) {
            mr__state_charge(L);
        }
        lua_rawgeti(L, 1, (int)i - 1);
        lua_rawseti(L, 1, (int)i);
    }
    lua_rawseti(L, 1, (int)at);
    return 0;
}

double mr__sandbox_wall_s(void *user)
{
    struct timespec t;

    (void)user;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int on_now(lua_State *L)
{
    const struct sandbox_options *opts = lua_touserdata(L, lua_upvalueindex(1));

    lua_pushnumber(L, opts->wall_s(opts->user));
    return 1;
}

static const char *hint_for(const char *name)
{
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++) {
        if (strcmp(hints[i].name, name) == 0) {
            return hints[i].hint;
        }
    }
    return NULL;
}

static const char *similar_global(const char *name, size_t n)
{
    const char *names[sizeof libraries / sizeof libraries[0] + 24];
    size_t count = 0;

    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        if (libraries[i].name[0] != '\0') {
            names[count++] = libraries[i].name;
        }
    }
    for (const char *const *f = libraries[0].functions; *f; f++) {
        names[count++] = *f;
    }
    names[count] = NULL;
    return mr__suggest_name(name, n, names);
}

static int on_read_undeclared(lua_State *L)
{
    size_t n;
    const char *name, *hint;

    if (lua_type(L, 2) != LUA_TSTRING) {
        return luaL_error(L, "there is no global of this name (a %s)", luaL_typename(L, 2));
    }
    name = lua_tolstring(L, 2, &n);
    if ((hint = hint_for(name)) != NULL) {
        return luaL_error(L, "undeclared global '%s': %s", name, hint);
    }
    if ((hint = similar_global(name, n)) != NULL) {
        return luaL_error(L, "undeclared global '%s'; did you mean '%s'?", name, hint);
    }
    return luaL_error(L, "undeclared global '%s'", name);
}

static int on_write_undeclared(lua_State *L)
{
    if (lua_type(L, 2) != LUA_TSTRING) {
        return luaL_error(L, "globals cannot be made (a %s)", luaL_typename(L, 2));
    }
    return luaL_error(L, "undeclared global '%s': write local %s", lua_tostring(L, 2),
                      lua_tostring(L, 2));
}

/* ---- building -------------------------------------------------------------------------------- */

static void open_library(lua_State *L, const char *name, lua_CFunction open)
{
    lua_pushcfunction(L, open);
    lua_pushstring(L, name);
    lua_call(L, 1, 0);
}

/* Copies the functions of one list from the global of its name to the template at the top. */
static void copy_library(lua_State *L, const struct library *lib)
{
    lua_getfield(L, -1, lib->name); /* stack: template copy? */
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_setfield(L, -3, lib->name);
    }
    if (lib->name[0] == '\0') {
        lua_pushvalue(L, LUA_GLOBALSINDEX);
    } else {
        lua_getfield(L, LUA_GLOBALSINDEX, lib->name);
    } /* stack: template copy original */
    for (const char *const *f = lib->functions; *f; f++) {
        lua_getfield(L, -1, *f);
        if (lua_isnil(L, -1)) {
            luaL_error(L, "this LuaJIT has no %s.%s", lib->name, *f);
        }
        lua_setfield(L, -3, *f);
    }
    lua_pop(L, 2);
}

static void get_template(lua_State *L, const char *lib, const char *function)
{
    lua_getfield(L, 1, lib);
    lua_getfield(L, -1, function);
    lua_remove(L, -2);
}

/* Puts the function at the top into the template at index 1. */
static void set_template(lua_State *L, const char *lib, const char *function)
{
    lua_getfield(L, 1, lib);
    lua_insert(L, -2);
    lua_setfield(L, -2, function);
    lua_pop(L, 1);
}

/* Puts a function of ours in the place of LuaJIT's, which is its upvalue. */
static void wrap_in_c(lua_State *L, const char *lib, const char *function, lua_CFunction ours)
{
    get_template(L, lib, function);
    lua_pushcclosure(L, ours, 1);
    set_template(L, lib, function);
}

/* stack: 1 template */
static void wrap_functions(lua_State *L, const struct sandbox_options *opts)
{
    if (luaL_loadbufferx(L, prelude, sizeof prelude - 1, "=sandbox", "t") != 0) {
        lua_error(L);
    }
    get_template(L, "", "pcall");
    get_template(L, "", "tostring");
    get_template(L, "", "select");
    get_template(L, "", "error");
    get_template(L, "", "type");
    get_template(L, "table", "sort");
    get_template(L, "os", "time");
    get_template(L, "os", "date");
    get_template(L, "math", "floor");
    lua_pushlightuserdata(L, (void *)(uintptr_t)opts);
    lua_pushcclosure(L, on_now, 1);
    get_template(L, "", "tonumber");
    lua_call(L, 11, 7);
    set_template(L, "", "tonumber");
    set_template(L, "os", "date");
    set_template(L, "os", "time");
    set_template(L, "table", "sort");
    set_template(L, "", "xpcall");
    set_template(L, "", "tostring");
    set_template(L, "", "pcall");

    wrap_in_c(L, "string", "rep", on_rep);
    wrap_in_c(L, "string", "lower", on_lower);
    wrap_in_c(L, "string", "upper", on_upper);
    wrap_in_c(L, "string", "reverse", on_reverse);
    wrap_in_c(L, "string", "format", on_format);
    wrap_in_c(L, "table", "insert", on_insert);
    wrap_in_c(L, "table", "concat", on_concat);
    wrap_in_c(L, "table", "remove", on_remove);

    get_template(L, "math", "randomseed");
    lua_pushnumber(L, (double)(opts->seed >> 11)); /* 53 bits, what a number holds */
    lua_call(L, 1, 0);
}

static void push_copy(lua_State *L)
{
    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, -3) != 0; lua_pop(L, 1)) {
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, -5);
    }
}

/* ("x"):upper() uses a table that no script can reach, behind a metatable that none can read. */
static void lock_strings(lua_State *L)
{
    lua_pushliteral(L, "");
    lua_newtable(L);
    lua_getfield(L, 1, "string");
    push_copy(L);
    lua_setfield(L, -3, "__index");
    lua_pop(L, 1);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}

static void make_strict(lua_State *L)
{
    lua_newtable(L);
    lua_pushcfunction(L, on_read_undeclared);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, on_write_undeclared);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pushlightuserdata(L, (void *)(uintptr_t)&strict_key);
    lua_insert(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
}

/* Nothing may be left in the real globals and among the loaded modules. */
static void clear_table(lua_State *L, int index)
{
    lua_pushvalue(L, index);
    for (lua_pushnil(L); lua_next(L, -2) != 0;) {
        lua_pop(L, 1);
        lua_pushvalue(L, -1);
        lua_pushnil(L);
        lua_rawset(L, -4); /* clearing a field keeps lua_next going */
    }
    lua_pop(L, 1);
}

void mr__sandbox_open(lua_State *L, const struct sandbox_options *opts)
{
    int top = lua_gettop(L);

    open_library(L, "", luaopen_base);
    open_library(L, LUA_STRLIBNAME, luaopen_string);
    open_library(L, LUA_TABLIBNAME, luaopen_table);
    open_library(L, LUA_MATHLIBNAME, luaopen_math);
    open_library(L, LUA_BITLIBNAME, luaopen_bit);
    open_library(L, LUA_OSLIBNAME, luaopen_os);

    lua_newtable(L);
    lua_insert(L, 1); /* the helpers above find the template at 1 */
    lua_pushvalue(L, 1);
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        copy_library(L, &libraries[i]);
    }
    lua_pop(L, 1);
    lua_getfield(L, 1, "math");
    lua_pushnumber(L, 3.14159265358979323846);
    lua_setfield(L, -2, "pi");
    lua_pushnumber(L, HUGE_VAL);
    lua_setfield(L, -2, "huge");
    lua_pop(L, 1);
    lua_getfield(L, 1, "string");
    mr__pattern_open(L);
    lua_pop(L, 1);
    wrap_functions(L, opts);
    lock_strings(L);
    make_strict(L);
    clear_table(L, LUA_GLOBALSINDEX);
    lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
    if (lua_istable(L, -1)) {
        clear_table(L, lua_gettop(L));
    }
    lua_pop(L, 1);
    lua_pushlightuserdata(L, (void *)(uintptr_t)&template_key);
    lua_pushvalue(L, 1);
    lua_rawset(L, LUA_REGISTRYINDEX);
    lua_remove(L, 1);
    lua_settop(L, top);
}

void mr__sandbox_push_env(lua_State *L)
{
    lua_newtable(L);
    lua_pushlightuserdata(L, (void *)(uintptr_t)&template_key);
    lua_rawget(L, LUA_REGISTRYINDEX); /* stack: env template */
    for (lua_pushnil(L); lua_next(L, -2) != 0;) {
        bool is_globals = lua_objlen(L, -2) == 0; /* the name "" */

        /* stack: env template name library */
        if (is_globals) {
            for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
                lua_pushvalue(L, -2);
                lua_pushvalue(L, -2);
                lua_rawset(L, -8);
            }
        } else {
            push_copy(L);
            lua_pushvalue(L, -3);
            lua_insert(L, -2);
            lua_rawset(L, -6);
        }
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "_G");
    lua_pushliteral(L, LUA_VERSION);
    lua_setfield(L, -2, "_VERSION");
    lua_pushlightuserdata(L, (void *)(uintptr_t)&strict_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    lua_setmetatable(L, -2);
}

int mr__sandbox_load(lua_State *L, int env, const char *text, size_t n, const char *name)
{
    if (luaL_loadbufferx(L, text, n, name, "t") != 0) {
        return -EINVAL;
    }
    lua_pushvalue(L, env);
    lua_setfenv(L, -2);
    return 0;
}
