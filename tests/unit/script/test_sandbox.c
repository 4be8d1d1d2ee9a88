/* SPDX-License-Identifier: MIT */
/*
 * Hostile scripts: each ends as an error of its hook that says where, and the next call
 * works. Start reading at the table.
 */
#include "base/alloc.h"
#include "rig.h"
#include "script/chain.h"
#include "test.h"

static struct rig rig;

/* Body of a drop hook that runs when the datagram has 100 bytes, and what its error says. */
static const struct {
    const char *body, *error;
} hostile[] = {
    /* time */
    {"while true do end", "p.lua:2: took more than 10 ms of CPU time"},
    {"while true do pcall(function() while true do end end) end", "took more than 10 ms"},
    {"for i = 1, 1e9 do pcall(error) end", "took more than 10 ms"},
    {"local function f() pcall(f) while true do end end f()", "took more than 10 ms"},
    {"local f = function() while true do end end while true do coroutine.wrap(f)() end",
     "took more than 10 ms"},
    {"while true do local c = coroutine.create(function() while true do end end)"
     " coroutine.resume(c) end",
     "took more than 10 ms"},
    {"local c = coroutine.wrap(function() while true do pcall(function() while true do end end) end"
     " end) while true do pcall(c) end",
     "took more than 10 ms"},
    {"local t = setmetatable({}, { __index = function() while true do end end }) return t.x",
     "took more than 10 ms"},
    {"local t = setmetatable({}, { __tostring = function() while true do end end })"
     " return tostring(t)",
     "took more than 10 ms"},
    {"while true do xpcall(error, function() while true do end end) end", "took more than 10 ms"},
    {"local function h() error('x') end while true do xpcall(h, h) end", "took more than 10 ms"},
    {"table.sort({ 3, 2, 1 }, function() while true do end end)", "took more than 10 ms"},
    {"local t = {} for i = 1, 60000 do t[i] = 60000 - i end table.sort(t)",
     "more than 50000 items"},
    {"local co = coroutine.wrap(function() while true do coroutine.yield() end end)"
     " while true do co() end",
     "took more than 10 ms"},
    {"local s = ('x.'):rep(2000) return s:match('^(.-)%.(.-)%.(.-)%.(.-)%.(.+)=$')",
     "p.lua:1: took more than 10 ms"},
    {"local s = ('a'):rep(1e5) while true do pcall(string.find, s, '.-.-.-b') end",
     "took more than 10 ms"},
    {"local s = ('a'):rep(1e6) return s:find(('a'):rep(5e5) .. 'b', 1, true)",
     "took more than 10 ms"},
    {"for k in ('a'):rep(1e5):gmatch('a-a-a-a-a-b') do end", "took more than 10 ms"},
    {"return ('a'):rep(1e5):gsub('.-.-.-b', 'x')", "took more than 10 ms"},
    {"return ('('):rep(1e5):gsub('%b()', 'x')", "took more than 10 ms"},
    {"return ('a'):rep(300):gsub('.', function() while true do end end)", "took more than 10 ms"},
    {"return ('x'):rep(1e6):gsub('x', ('y'):rep(1e6))", "took more than 10 ms|not enough memory"},
    {"return ('x'):rep(1e6):find('[' .. ('y'):rep(1e6) .. ']')", "took more than 10 ms"},
    {"return ('x'):rep(1e4):match(('(x'):rep(40))", "too many captures"},
    {"return ('x'):rep(1e4):match(('x?'):rep(300))", "pattern too complex"},
    {"local s = ('x'):rep(1e6) while true do local _ = s:upper() end", "took more than 10 ms"},
    {"local s = ('x'):rep(1e6) s = s .. s return s:upper()", "string.upper: more than 1024 KiB"},
    {"local s = ('x'):rep(1e6) s = s .. s return s:lower()", "string.lower: more than 1024 KiB"},
    {"local s = ('x'):rep(1e6) s = s .. s return s:reverse()", "string.reverse: more than"},
    {"return ('%q'):format(('x'):rep(3e5))", "string.format: more than 256 KiB"},
    {"return ('%s%s'):format(('x'):rep(2e5), ('y'):rep(2e5))", "string.format: more than 256 KiB"},
    {"return (('%d'):rep(2e5)):format(1)", "string.format: more than 256 KiB"},
    {"return ('%s'):format(setmetatable({}, { __tostring = string.format }))", "bad argument"},
    {"local s = ('x'):rep(1e6) return s .. s .. s .. s .. s",
     "not enough memory: one string or table may take 4 MiB"},
    {"local s = ('x'):rep(1e6) while true do s = s .. s end",
     "one string or table may take 4 MiB|took more than 10 ms"},
    {"local t = {} for i = 1, 1e9 do t[i] = i end",
     "one string or table may take 4 MiB|took more than 10 ms"},
    {"local t = {} for i = 1, 3e5 do t[i] = '' end while true do local _ = table.concat(t) end",
     "took more than 10 ms"},
    {"local t = {} for i = 1, 5000 do t[i] = ('x'):rep(1e4) end return table.concat(t)",
     "the result would be longer than 4 MiB"},
    {"local t = {} for i = 1, 100 do t[i] = '' end return table.concat(t, ('x'):rep(1e6))",
     "the result would be longer than 4 MiB"},
    {"return table.concat({}, '', 1, 2^31)", "index out of range"},
    {"return table.concat({}, '', 1, 2^31 - 1)", "invalid value (nil) at index 1"},
    {"return table.concat({ {} })", "invalid value (table) at index 1"},
    {"local t = {} for i = 1, 1e5 do t[i] = i end while true do table.remove(t, 1) t[1e5] = 1 end",
     "took more than 10 ms"},
    {"table.remove({ 1 }, 0/0)", "index out of range"},
    {"error(tostring(tonumber(('f'):rep(1e6), 16)))", "p.lua:2: nil"},
    {"os.date(('%c'):rep(1e5))", "os.date: a format of more than 1000 bytes"},
    {"local t = {} for i = 1, 1e5 do t[i] = i end while true do table.insert(t, 1, 0) end",
     "took more than 10 ms"},
    {"table.insert({}, -2^31, 1)", "bad argument #2 to 'insert' (position out of bounds)"},
    {"table.insert({}, 0/0, 1)", "bad argument #2 to 'insert' (position out of bounds)"},
    {"table.insert({})", "wrong number of arguments to 'insert'"},
    /* stack */
    {"local f function f() return (('x'):gsub('x', f)) end f()", "C stack overflow"},
    {"local f function f() return (('x'):gsub('x', setmetatable({}, { __index = f }))) end f()",
     "C stack overflow"},
    {"local f function f() table.sort({ 3, 2, 1 }, f) end f()",
     "stack overflow|took more than 10 ms"},
    {"local f function f() return tostring(setmetatable({}, { __tostring = f })) end f()",
     "stack overflow|took more than 10 ms"},
    {"local function f() return 1 + f() end f()", "stack overflow"},
    {"local function f(...) return f(1, ...) end f()",
     "took more than 10 ms|stack overflow|memory"},
    {"local t = {} t.__index = function(t, k) return t[k] end setmetatable(t, t) return t.x",
     "stack overflow|C stack overflow|took more than 10 ms"},
    {"local function f() coroutine.wrap(f)() end f()",
     "overflow|took more than 10 ms|not enough memory"},
    {"local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x", "loop"},
    {"local function f() pcall(string.gsub, 'x', 'x', f) pcall(string.gsub, 'x', 'x', f) end f()",
     "took more than"},
    {"local function f() pcall(coroutine.wrap(f)) pcall(coroutine.wrap(f)) end f()",
     "took more than|not enough memory"},
    {"return tostring(setmetatable({}, { __tostring = tostring }))", "took more than"},
    {"return ('%s'):format(setmetatable({}, { __tostring = tostring }))", "took more than"},
    {"local t = setmetatable({}, { __call = pcall }) error(t() and 'came back', 0)",
     "came back|stack overflow|took more than"},
    {"unpack({}, 1, 1e8)", "too many results to unpack"},
    {"return string.byte(('x'):rep(1e6), 1, -1)", "string slice too long|stack overflow"},
    /* memory */
    {"local t = {} while true do t[#t + 1] = ('x'):rep(1e6) .. #t end",
     "not enough memory|took more than 10 ms"},
    {"local s = 'x' while true do s = s .. s end", "not enough memory|took more than 10 ms"},
    {"local t = {} for i = 1, 1e9 do t[i] = i end", "not enough memory|took more than 10 ms"},
    {"return ('x'):rep(1e9)", "longer than 1 MiB"},
    {"return string.rep('x', 1/0)", "longer than 1 MiB"},
    {"return string.rep('', 1e15), string.rep('x', -1), string.rep('x', 0/0), nil .. 'x'",
     "attempt to concatenate"},
    {"return ('x'):rep(2, ('y'):rep(1e6)) .. ('x'):rep(1e6, 'y')", "longer than 1 MiB"},
    {"pcall(function() local s = 'x' while true do s = s .. s end end) error('went on')",
     "went on|took more than 10 ms"},
    /* errors */
    {"error('plain')", "p.lua:2: plain"},
    {"error('bare', 0)", "p.lua:1: bare"},
    {"error('two\\nlines\\t\\1')", "two | lines?"},
    {"error(('x'):rep(1e5) .. ' the end')", " the end\""},
    {"error(nil)", "raised a nil instead of a message"},
    {"error({ code = 5 })", "raised a table instead of a message"},
    {"error(setmetatable({}, { __tostring = function() error('again') end }))",
     "raised a table instead of a message"},
    {"error(setmetatable({}, { __tostring = function() while true do end end }))",
     "raised a table instead of a message"},
    {"error(42)", "42"},
    {"error(function() end)", "raised a function instead of a message"},
    {"error(coroutine.create(error))", "raised a thread instead of a message"},
    {"error(('x'):rep(1e6))", "xxxxxxxx"},
    {"local x = nil + 1", "p.lua:2: attempt to perform arithmetic on a nil value"},
    {"local x = ev.nothing.field", "attempt to index field 'nothing' (a nil value)"},
    {"coroutine.yield()", "p.lua:2: called coroutine.yield() outside of"},
    {"pcall(coroutine.yield, 1) while true do end", "p.lua:2: called coroutine.yield() outside of"},
    /* what is not there */
    {"io.open('/etc/passwd')", "undeclared global 'io'"},
    {"os.execute('true')", "attempt to call field 'execute' (a nil value)"},
    {"os.exit(0)", "attempt to call field 'exit' (a nil value)"},
    {"os.getenv('HOME')", "attempt to call field 'getenv' (a nil value)"},
    {"load('return 1')", "undeclared global 'load'"},
    {"loadstring('return 1')", "undeclared global 'loadstring'"},
    {"dofile('/etc/passwd')", "undeclared global 'dofile'"},
    {"string.dump(function() end)", "attempt to call field 'dump' (a nil value)"},
    {"getfenv(0)", "undeclared global 'getfenv'"},
    {"setfenv(1, {})", "undeclared global 'setfenv'"},
    {"debug.sethook()", "undeclared global 'debug'"},
    {"newproxy(true)", "undeclared global 'newproxy'"},
    {"collectgarbage('stop')", "undeclared global 'collectgarbage'"},
    {"coroutine.running()", "attempt to call field 'running' (a nil value)"},
    {"jit.on()", "undeclared global 'jit'"},
    {"package.loaded.x = 1", "undeclared global 'package'"},
    {"require 'ffi'", "module 'ffi' is not available"},
    {"require 'jit.util'", "module 'jit.util' is not available"},
    {"math.foo()", "attempt to call field 'foo' (a nil value)"},
    {"counter = 1", "undeclared global 'counter': write local counter"},
    {"pairz({})", "undeclared global 'pairz'; did you mean 'pairs'?"},
    {"setmetatable(_G, nil)", "cannot change a protected metatable"},
    {"setmetatable(_G, { __index = function() return 1 end })", "protected metatable"},
    {"getmetatable(_G).__index = nil", "attempt to index a boolean value"},
    {"getmetatable('').__index = nil", "attempt to index a boolean value"},
    {"setmetatable('', {})", "bad argument #1 to 'setmetatable'"},
    {"_G[{}] = 1", "globals cannot be made"},
    {"return _G[{}]", "there is no global of this name"},
    /* module relay */
    {"require('relay').lgo.info('x')", "relay.lgo does not exist; did you mean log?"},
    {"require('relay').log.warning('x')", "relay.log.warning does not exist; did you mean warn?"},
    {"require('relay').log = nil", "relay is read-only"},
    {"require('relay').log.info = error", "relay.log is read-only"},
    {"setmetatable(require('relay'), nil)", "cannot change a protected metatable"},
    {"require('relay').log.info()", "bad argument #1 to 'info' (string expected, got no value)"},
    {"require('relay').log.info('x', 5)", "bad argument #2 to 'info' (table expected"},
    {"require('relay').log.info('x', { a = {} })", "field a of a log record is a table"},
    {"require('relay').log.info('x', { ['A b'] = 1 })", "cannot be named 'A b'"},
    {"require('relay').log.info('x', { 1 })", "has a key that is a number"},
    {"local t = {} for i = 1, 33 do t['k' .. i] = i end require('relay').log.info('x', t)",
     "more than 32 fields"},
    {"require('relay').isip(5)", "bad argument #1 to 'isip'"},
    {"return require('relay').settings.nonsense", "relay.settings.nonsense does not exist"},
};

/* Whether one of the alternatives, separated by |, is in the text; "two | lines" has spaces. */
static bool has_any(const char *text, const char *alternatives)
{
    char one[128];

    if (strstr(alternatives, " | ")) {
        return strstr(text, alternatives) != NULL;
    }
    for (;;) {
        size_t n = strcspn(alternatives, "|");

        snprintf(one, sizeof one, "%.*s", (int)n, alternatives);
        if (strstr(text, one)) {
            return true;
        }
        if (alternatives[n] == '\0') {
            return false;
        }
        alternatives += n + 1;
    }
}

TEST(what_a_script_does_ends_as_an_error_of_its_hook_and_the_next_call_works)
{
    struct hook_event bad = rig_event(MR_HOOK_DROP), good = rig_event(MR_HOOK_DROP);
    char text[2048];

    good.size = 1;
    rig_start(&rig);
    rig.load.cpu_ns = 10000000;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        snprintf(text, sizeof text,
                 "local calls = 0 return { drop = function(ev) calls = calls + 1\n"
                 "if ev.size == 100 then %s end\n"
                 "return { tags = { calls = calls, upper = ('x'):upper() } } end }",
                 hostile[i].body);
        rig.log_n = 0;
        REQUIRE_EQ(rig_load_policy(&rig, text), 0);
        CHECK_STR(rig_ask(&rig, &good), "admit tags{calls=1,upper=X}");
        CHECK_STR(rig_ask(&rig, &bad), "failed policy-error by p");
        CHECK_STR(rig_ask(&rig, &bad), "failed policy-error by p");
        CHECK(has_any(rig.log_text, hostile[i].error));
        if (!has_any(rig.log_text, hostile[i].error)) {
            fprintf(stderr, "# %s\n# expected: %s\n# %s\n", hostile[i].body, hostile[i].error,
                    rig.log_text);
        }
        rig.log_n = 0;
        rig.log_text[0] = '\0';
        CHECK_STR(rig_ask(&rig, &good), "admit tags{calls=4,upper=X}");
        if (rig.log_n > 0) {
            fprintf(stderr, "# after %s\n# %s\n", hostile[i].body, rig.log_text);
        }
    }
    rig_end(&rig);
}

TEST(a_failure_names_policy_hook_and_line_and_has_a_traceback)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local function inner()\n  error('deep')\nend\n"
                                     "return { create = function()\n  inner()\n  return 1 end }"),
               0);
    CHECK_STR(rig_ask(&rig, &ev), "failed policy-error by p");
    CHECK(strstr(rig.log_text, "policy=p hook=create") != NULL);
    CHECK(strstr(rig.log_text, "p.lua:2: deep") != NULL);
    CHECK(strstr(rig.log_text, "traceback=\"[C]: in function 'error' | ") != NULL);
    CHECK(strstr(rig.log_text, "p.lua:5: in function <") != NULL);
    rig_end(&rig);
}

TEST(one_policy_cannot_touch_what_another_one_uses)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    rig_start(&rig);
    rig_file(&rig, "a.lua",
             "string.upper = function() return 'poison' end\n"
             "string.rep, table.concat, math.floor, pcall = nil, nil, nil, nil\n"
             "rawset(_G, 'shared', 1) _G.type = function() return 'poison' end\n"
             "rawset(_G, 'tostring', nil) os.time = nil coroutine.wrap = nil\n"
             "return {}");
    rig_file(&rig, "b.lua",
             "return { create = function(ev)\n"
             "assert(('x'):upper() == 'X' and string.upper('x') == 'X' and ('x'):rep(2) == 'xx')\n"
             "assert(table.concat { 1, 2 } == '12' and math.floor(1.5) == 1 and pcall(type, 1))\n"
             "assert(type(1) == 'number' and tostring(1) == '1' and rawget(_G, 'shared') == nil)\n"
             "assert(os.time() > 0 and coroutine.wrap(function() return 5 end)() == 5)\n"
             "return {} end }");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { './a.lua', './b.lua' } }"), 0);
    CHECK_STR(rig_ask(&rig, &ev), "admit");
    rig_end(&rig);
}

/* Everything a script can name, sorted. Whoever adds to it has thought about what it can do. */
static const char contents[] =
    "_G _VERSION assert bit bit.arshift bit.band bit.bnot bit.bor bit.bswap bit.bxor bit.lshift "
    "bit.rol bit.ror bit.rshift bit.tobit bit.tohex coroutine coroutine.create "
    "coroutine.isyieldable coroutine.resume coroutine.status coroutine.wrap coroutine.yield error "
    "getmetatable ipairs math math.abs math.acos math.asin math.atan math.atan2 math.ceil math.cos "
    "math.cosh math.deg math.exp math.floor math.fmod math.frexp math.huge math.ldexp math.log "
    "math.log10 math.max math.min math.modf math.pi math.pow math.rad math.random math.randomseed "
    "math.sin math.sinh math.sqrt math.tan math.tanh next os os.clock os.date os.difftime os.time "
    "pairs pcall rawequal rawget rawset require select setmetatable string string.byte string.char "
    "string.find string.format string.gmatch string.gsub string.len string.lower string.match "
    "string.rep string.reverse string.sub string.upper table table.concat table.insert table.maxn "
    "table.remove table.sort tonumber tostring type unpack xpcall";

TEST(a_policys_environment_holds_exactly_this)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local names = {}\n"
                                     "for k, v in pairs(_G) do names[#names + 1] = k\n"
                                     "  if type(v) == 'table' and v ~= _G then for f in pairs(v) do"
                                     " names[#names + 1] = k .. '.' .. f end end end\n"
                                     "table.sort(names)\n"
                                     "return { create = function() require('relay').log.info("
                                     "'[' .. table.concat(names, ' ') .. ']') end }"),
               0);
    rig_ask(&rig, &ev);
    const char *open = strchr(rig.log_text, '['), *close = open ? strchr(open, ']') : NULL;
    REQUIRE(close != NULL);
    CHECK_MEM(open + 1, (size_t)(close - open - 1), contents, sizeof contents - 1);
    if ((size_t)(close - open - 1) != sizeof contents - 1) {
        fprintf(stderr, "# %.*s\n", (int)(close - open), open);
    }
    rig_end(&rig);
}

TEST(functions_that_are_there_do_what_lua_says)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    rig_start(&rig);
    REQUIRE_EQ(
        rig_load_policy(
            &rig,
            "local relay = require 'relay'\n"
            "local function same(a, b) if a ~= b then error(tostring(a) .. ' ~= ' .. tostring(b), "
            "2) end end\n"
            "return { create = function()\n"
            "local ok, a, b = xpcall(function(...) return ... end, error, 1, 2)\n"
            "same(ok, true) same(a, 1) same(b, 2)\n"
            "ok, a = xpcall(error, function(m) return m .. '!' end, 'x') same(ok, false) same(a, "
            "'x!')\n"
            "ok = xpcall(error, error, 'x') same(ok, false)\n"
            "same(('ab'):rep(3), 'ababab') same(('a'):rep(3, ','), 'a,a,a')\n"
            "same(relay.isip('1.2.3.4'), 4) same(relay.isip('::1'), 6)\n"
            "same(relay.isip('::ffff:1.2.3.4'), 6) same(relay.isip('example.org'), nil)\n"
            "same(relay.isip('1.2.3.4.5'), nil) same(relay.isip(''), nil)\n"
            "same(type(relay.now()), 'number') same(relay.monotonic() <= relay.monotonic(), true)\n"
            "same(os.date('!%Y-%m-%d', 0), '1970-01-01') same(os.time() - os.time() <= 0, true)\n"
            "local l = {} table.insert(l, 'b') table.insert(l, 1, 'a') table.insert(l, 3, 'd')\n"
            "table.insert(l, 3, 'c') same(table.concat(l), 'abcd')\n"
            "local t = { 3, 1, 2 } table.sort(t) same(table.concat(t), '123')\n"
            "table.sort(t, function(x, y) return x > y end) same(table.concat(t), '321')\n"
            "same(table.concat({ 1, 2.5, 'x' }, ', '), '1, 2.5, x') same(table.concat({}), '')\n"
            "same(table.concat({ 'a', 'b', 'c', 'd' }, '-', 2, 3), 'b-c')\n"
            "same(table.concat({ 'a', 'b' }, '-', 2, 1), '')\n"
            "l = { 'a', 'b', 'c', 'd' } same(table.remove(l), 'd') same(table.remove(l, 1), 'a')\n"
            "same(table.remove(l, 7), nil) same(table.remove(l, 0), nil)\n"
            "same(table.concat(l), 'bc') same(table.remove({}), nil)\n"
            "same(('aB'):upper() .. ('aB'):lower() .. ('aB'):reverse(), 'ABabBa')\n"
            "same(('%d %s %q'):format(5, 'x', 'y'), '5 x \"y\"')\n"
            "same(tonumber('0x10'), 16) same(tonumber('z', 36), 35) same(tonumber('x'), nil)\n"
            "same(select('#', tonumber('12')), 1) same(pcall(tonumber), false)\n"
            "for _, level in ipairs { 'debug', 'info', 'warn', 'error' } do\n"
            "  relay.log[level]('said at ' .. level, { b = true, a = 1.5, c = 'x\\ny', n = 7 }) "
            "end\n"
            "return {} end }"),
        0);
    CHECK_STR(rig_ask(&rig, &ev), "admit");
    CHECK(strstr(rig.log_text, "debug policy: said at debug policy=p a=1.5 b=true") != NULL);
    CHECK(strstr(rig.log_text, "error policy: said at error policy=p a=1.5 b=true") != NULL);
    CHECK(strstr(rig.log_text, "n=7") != NULL);
    if (!strstr(rig.log_text, "said at error")) {
        fprintf(stderr, "# %s\n", rig.log_text);
    }
    rig_end(&rig);
}

TEST(loading_has_a_budget_of_its_own)
{
    rig_start(&rig);
    rig.load.load_cpu_ns = 20000000;
    CHECK_EQ(rig_load_policy(&rig, "while true do end"), -EINVAL);
    CHECK(strstr(rig.err.text, "policy p: ") != NULL);
    CHECK(strstr(rig.err.text, "p.lua:1: took more than 20 ms of CPU time") != NULL);
    CHECK_EQ(rig_load_policy(&rig, "return { load = function() while true do end end }"), -EINVAL);
    CHECK(strstr(rig.err.text, "policy p: load: ") != NULL);
    /* More than a hook has, less than loading has. */
    rig.load.load_cpu_ns = 0;
    CHECK_EQ(rig_load_policy(&rig, "local stop = os.clock() + 0.03 while os.clock() < stop do end "
                                   "return {}"),
             0);
    rig_end(&rig);
}

TEST(bytecode_is_refused)
{
    rig_start(&rig);
    rig_file(&rig, "p.lua", "\x1bLJ\x02");
    CHECK_EQ(rig_load(&rig, "return { policies = { './p.lua' } }"), -EINVAL);
    CHECK(strstr(rig.err.text, "attempt to load chunk with wrong mode") != NULL);
    rig_end(&rig);
}

TEST(memory_that_scripts_may_use_is_bounded_and_the_next_call_works_at_any_cap)
{
    static const char policy[] =
        "local kept = {} return { load = function() for i = 1, 50 do kept[i] = { i } end end,"
        " create = function(ev) local t = {} for i = 1, 100 do t[i] = ev.session.oid .. i end"
        " return { tags = { n = #t } } end }";
    struct hook_event ev = rig_event(MR_HOOK_CREATE);
    unsigned loaded = 0, refused = 0, answered = 0;

    rig_start(&rig);
    for (uint64_t cap = 20000; cap < 200000; cap += 331) {
        rig.load.memory_bytes = cap;
        int rc = rig_load_policy(&rig, policy);

        CHECK(rc == 0 || rc == -ENOMEM || rc == -EINVAL);
        if (rc != 0) {
            CHECK(strstr(rig.err.text, "not enough memory") != NULL);
            refused++;
            continue;
        }
        loaded++;
        for (int i = 0; i < 3; i++) {
            const char *answer = rig_ask(&rig, &ev);

            CHECK(strcmp(answer, "admit tags{n=100}") == 0 ||
                  strcmp(answer, "failed policy-error by p") == 0);
            answered += answer[0] == 'a';
        }
    }
    CHECK_GT(refused, 0);
    CHECK_GT(loaded, 0);
    CHECK_GT(answered, 0);
    rig_end(&rig);
}

TEST(a_hook_that_uses_up_the_memory_takes_no_other_hook_with_it)
{
    static const char policy[] =
        "return { create = function() return { ttl = 1 } end,"
        " drop = function() local t = {} local function f()"
        " t[#t + 1] = coroutine.create(f) return coroutine.resume(t[#t]) end"
        " f() while true do t = { t } end end }";
    struct hook_event drop = rig_event(MR_HOOK_DROP), create = rig_event(MR_HOOK_CREATE);

    rig_start(&rig);
    for (uint64_t cap = 150000; cap < 300000; cap += 1511) {
        rig.load.memory_bytes = cap;
        REQUIRE_EQ(rig_load_policy(&rig, policy), 0);
        for (int i = 0; i < 3; i++) {
            CHECK_STR(rig_ask(&rig, &drop), "failed policy-error by p");
            CHECK_STR(rig_ask(&rig, &create), "admit ttl=1");
        }
    }
    rig_end(&rig);
}

TEST(ten_thousand_failures_leave_no_memory_and_no_stack_behind)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);
    struct script_state *st;
    size_t used = 0;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "return { create = function(ev) error({ ev }) end }"), 0);
    st = &rig.policies->generation->state;
    for (int i = 0; i < 10000; i++) {
        CHECK_STR(rig_ask(&rig, &ev), "failed policy-error by p");
        if (i == 1000) {
            lua_gc(st->L, LUA_GCCOLLECT, 0);
            used = st->used_bytes;
        }
    }
    lua_gc(st->L, LUA_GCCOLLECT, 0);
    CHECK_LE(st->used_bytes, used + 4096);
    CHECK_EQ(lua_gettop(st->L), 0);
    rig_end(&rig);
}

TEST(running_out_of_memory_anywhere_in_loading_leaves_nothing_behind)
{
    long before = mr__alloc_live();
    bool is_done = false;

    rig_start(&rig);
    rig_file(&rig, "p.lua", "return { load = function() end }");
    for (long n = 0; n < 1000 && !is_done; n++) {
        mr__alloc_fail_after(n);
        int rc = rig_load(&rig, "return { settings = { workers = 2 }, policies = { { './p.lua', "
                                "name = 'x', a = 1 }, 'dynamic' } }");

        mr__alloc_fail_after(-1);
        is_done = rc == 0;
        if (!is_done) {
            CHECK(strstr(rig.err.text, "memory") != NULL);
            if (!strstr(rig.err.text, "memory")) {
                fprintf(stderr, "# %ld: %s\n", n, rig.err.text);
            }
        }
    }
    CHECK(is_done);
    rig_end(&rig);
    CHECK_EQ(mr__alloc_live(), before);
}

TEST(running_out_of_memory_for_an_answer_is_a_refusal)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "return { create = function() return {} end }"), 0);
    mr__alloc_fail_after(0);
    CHECK_STR(rig_ask(&rig, &ev), "failed policy-error by ");
    mr__alloc_fail_after(-1);
    CHECK_STR(rig_ask(&rig, &ev), "admit");
    rig_end(&rig);
}

TEST_MAIN(TEST_CASE(what_a_script_does_ends_as_an_error_of_its_hook_and_the_next_call_works),
          TEST_CASE(a_failure_names_policy_hook_and_line_and_has_a_traceback),
          TEST_CASE(one_policy_cannot_touch_what_another_one_uses),
          TEST_CASE(a_policys_environment_holds_exactly_this),
          TEST_CASE(functions_that_are_there_do_what_lua_says),
          TEST_CASE(loading_has_a_budget_of_its_own), TEST_CASE(bytecode_is_refused),
          TEST_CASE(memory_that_scripts_may_use_is_bounded_and_the_next_call_works_at_any_cap),
          TEST_CASE(a_hook_that_uses_up_the_memory_takes_no_other_hook_with_it),
          TEST_CASE(ten_thousand_failures_leave_no_memory_and_no_stack_behind),
          TEST_CASE(running_out_of_memory_anywhere_in_loading_leaves_nothing_behind),
          TEST_CASE(running_out_of_memory_for_an_answer_is_a_refusal))
