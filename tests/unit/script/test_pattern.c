/* SPDX-License-Identifier: MIT */
/*
 * Our matcher against LuaJIT's: equal results, or both an error, for random patterns and
 * subjects that are short enough for LuaJIT's to end.
 */
#include "script/pattern.h"

#include "script/state.h"
#include "test.h"

#include <lualib.h>

static struct script_state state;

/* compare(function, subject, pattern, ...) returns what differs, or nil. */
static const char compare[] =
    "local ours = ...\n"
    "local function pack(...) return { n = select('#', ...), ... } end\n"
    "local function show(t) local s = {} for i = 1, t.n do s[i] = tostring(t[i]) end\n"
    "  return '(' .. table.concat(s, ' ') .. ')' end\n"
    "local function clean(t) if not t[1] then\n"
    "  t[2] = t[2]:gsub('^.-:%d+: ', ''):gsub(\"'[%w?]+'\", 'f') end return t end\n"
    "local function collect(f, ...) local t = {}\n"
    "  for a, b, c in f(...) do t[#t + 1] = show(pack(a, b, c)) end return table.concat(t, ';') "
    "end\n"
    "return function(name, ...)\n"
    "  local f, g = string[name], ours[name]\n"
    "  local a, b\n"
    "  if name == 'gmatch' then a, b = pack(pcall(collect, f, ...)), pack(pcall(collect, g, ...))\n"
    "  else a, b = pack(pcall(f, ...)), pack(pcall(g, ...)) end\n"
    "  a, b = show(clean(a)), show(clean(b))\n"
    "  if a ~= b then return name .. show(pack(...)) .. ': ' .. a .. ' but ours ' .. b end\n"
    "end\n";

static const char *const pieces[] = {
    "a",     "b",     ".",    "%a",    "%s",     "%d",     "%W",   "%%",  "%.", "[ab]", "[^a]",
    "[a-c]", "[%a.]", "[]a]", "[^]a]", "*",      "+",      "-",    "?",   "(",  ")",    "()",
    "^",     "$",     "%b()", "%bab",  "%f[%w]", "%f[^a]", "%1",   "%2",  "%",  "[",    "]",
    "x",     "=",     "(a*)", "(.-)",  "%z",     "%g",     "[a-]", "[%]", "%f", "%b",   "[^",
};

static size_t random_pattern(char *out, size_t cap)
{
    size_t n = 0;

    for (size_t i = test_random_below(7); i > 0; i--) {
        const char *piece = pieces[test_random_below(sizeof pieces / sizeof pieces[0])];

        if (n + strlen(piece) < cap) {
            memcpy(out + n, piece, strlen(piece));
            n += strlen(piece);
        }
    }
    return n;
}

static size_t random_subject(char *out)
{
    static const char letters[] = "aabbc().=1 %\0";
    size_t n = test_random_below(13);

    for (size_t i = 0; i < n; i++) {
        out[i] = letters[test_random_below(sizeof letters - 1)];
    }
    return n;
}

/* stack: 1 user, 2 the compare function */
static void push_round(lua_State *L)
{
    static const char *const names[] = {"find", "match", "gmatch", "gsub"};
    static const char *const replacements[] = {"x", "%0%0", "<%1>", "%2", "%%", "%", "%y"};
    const char *name = names[test_random_below(4)];
    char pattern[64], subject[16];
    size_t np = random_pattern(pattern, sizeof pattern), n = random_subject(subject);

    lua_pushvalue(L, 2);
    lua_pushstring(L, name);
    lua_pushlstring(L, subject, n);
    lua_pushlstring(L, pattern, np);
    if (strcmp(name, "gsub") == 0) {
        lua_pushstring(L, replacements[test_random_below(7)]);
        lua_pushinteger(L, (lua_Integer)test_random_below(4));
        lua_call(L, 5, 1);
    } else if (test_random_below(2) && strcmp(name, "gmatch") != 0) {
        lua_pushinteger(L, (lua_Integer)test_random_below(30) - 15);
        lua_pushboolean(L, test_random_below(8) == 0);
        lua_call(L, 5, 1);
    } else {
        lua_call(L, 3, 1);
    }
}

static int run(lua_State *L)
{
    unsigned rounds = *(unsigned *)lua_touserdata(L, 1);

    luaL_openlibs(L);
    if (luaL_loadstring(L, compare) != 0) {
        return lua_error(L);
    }
    lua_newtable(L);
    mr__pattern_open(L);
    lua_call(L, 1, 1);
    for (unsigned i = 0; i < rounds; i++) {
        push_round(L);
        if (!lua_isnil(L, -1)) {
            FAIL("%s", lua_tostring(L, -1));
            return 0;
        }
        lua_pop(L, 1);
    }
    return 0;
}

TEST(random_patterns_match_what_luajits_match)
{
    struct script_failure failure;
    unsigned rounds = 60000;
    int rc;

    REQUIRE_EQ(mr__state_init(&state, 64u << 20), 0);
    rc = mr__state_enter(&state, run, &rounds, &failure);
    CHECK_EQ(rc, 0);
    if (rc != 0) {
        fprintf(stderr, "# %s\n", failure.text);
    }
    mr__state_deinit(&state);
}

static int run_fixed(lua_State *L)
{
    static const char text[] =
        "local s = ...\n"
        "local function same(a, b) if a ~= b then error(tostring(a) .. ' ~= ' .. tostring(b), 2) "
        "end end\n"
        "same(s.match('key=value', '^(%w+)=(%w+)$'), 'key')\n"
        "same(s.gsub('hello world', 'o', { o = '0' }), 'hell0 w0rld')\n"
        "same(s.gsub('abc', '%w', function(c) if c == 'b' then return 'B' end end), 'aBc')\n"
        "same(s.gsub('abc', '', '-'), '-a-b-c-')\n"
        "same(s.find('a.b', '.', 1, true), 2)\n"
        "same(s.find('a\\0b', '\\0', 1, true), 2)\n"
        "same(s.match('THE (quick) fox', '%((%a+)%)'), 'quick')\n"
        "same(s.gsub('THE (quick) fox', '%f[%a]%a+', '*'), '* (*) *')\n"
        "same(pcall(s.gsub, 'x', 'x', function() return {} end), false)\n"
        "same(pcall(s.gsub, 'x', 'x', true), false)\n"
        "same(s.gsub('xxx', 'x', 'y', math.huge), 'yyy')\n"
        "same(s.find('xxx', 'x', math.huge), nil) same(s.find('xxx', 'x', -math.huge), 1)\n"
        "same(pcall(s.find, 'x'), false)\n"
        "same(pcall(s.gmatch, 'x'), false)\n"
        "local t = {} for k, v in s.gmatch('a=1,b=2', '(%w+)=(%w+)') do t[#t + 1] = k .. v end\n"
        "same(table.concat(t), 'a1b2')\n"
        "local it = s.gmatch('', '') same(it(), '') same(it(), nil) same(it(), nil)\n";

    luaL_openlibs(L);
    if (luaL_loadstring(L, text) != 0) {
        return lua_error(L);
    }
    lua_newtable(L);
    mr__pattern_open(L);
    lua_call(L, 1, 0);
    return 0;
}

TEST(the_four_functions_do_what_the_manual_says)
{
    struct script_failure failure;
    int rc;

    REQUIRE_EQ(mr__state_init(&state, 64u << 20), 0);
    rc = mr__state_enter(&state, run_fixed, NULL, &failure);
    CHECK_EQ(rc, 0);
    if (rc != 0) {
        fprintf(stderr, "# %s\n", failure.text);
    }
    mr__state_deinit(&state);
}

TEST_MAIN(TEST_CASE(random_patterns_match_what_luajits_match),
          TEST_CASE(the_four_functions_do_what_the_manual_says))
