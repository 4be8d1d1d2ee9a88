/* SPDX-License-Identifier: MIT */
/*
 * relay.json and relay.urlencode as policies call them. One thread.
 */
#include "test.h"

#include "base/alloc.h"
#include "rig.h"
#include "script/json.h"
#include "script/state.h"

#include <jansson.h>

static struct rig rig;

/* Runs Lua in a hook; its asserts are the checks. */
static void run(const char *body)
{
    static char text[32768];
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    snprintf(text, sizeof text,
             "local relay = require 'relay' local json = relay.json\n"
             "local function same(a, b) if a ~= b then error(tostring(a) .. ' ~= ' .. tostring(b), "
             "2) end end\n"
             "local function fails(part, f, ...) local ok, e = pcall(f, ...)\n"
             "  if ok or not e:find(part, 1, true) then error(tostring(e) .. ', not ' .. part, 2) "
             "end end\n"
             "return { create = function(ev)\n%s\nreturn {} end }",
             body);
    rig.log_n = 0;
    rig.log_text[0] = '\0';
    REQUIRE_EQ(rig_load_policy(&rig, text), 0);
    CHECK_STR(rig_ask(&rig, &ev), "admit");
    if (rig.log_n > 0) {
        fprintf(stderr, "# %s\n", rig.log_text);
    }
}

TEST(values_are_written_as_json_and_read_back)
{
    rig_start(&rig);
    run("same(json.encode { b = 1, a = 'x', c = { 1, 2, 'three' }, d = true, e = { f = {} } },"
        " '{\"a\":\"x\",\"b\":1,\"c\":[1,2,\"three\"],\"d\":true,\"e\":{\"f\":{}}}')\n"
        "same(json.encode('x'), '\"x\"') same(json.encode(1.5), '1.5') same(json.encode(0.1), "
        "'0.1')\n"
        "same(json.encode(false), 'false') same(json.encode(-3), '-3')\n"
        "same(json.encode(9007199254740992), '9007199254740992')\n"
        "same(json.encode 'a\\0\\n\\\"\\195\\164', '\"a\\\\u0000\\\\n\\\\\\\"\\195\\164\"')\n"
        "local v = json.decode ' {\"a\":[1,-2.5,\"x\\\\u0000y\"],\"b\":{\"c\":true}} '\n"
        "same(v.a[1], 1) same(v.a[2], -2.5) same(v.a[3], 'x\\0y') same(v.b.c, true)\n"
        "same(json.decode '7', 7) same(json.decode '\"x\"', 'x') same(json.decode 'true', true)\n"
        "same(json.encode(json.decode '{\"x\":[[],[1]]}'), '{\"x\":[{},[1]]}')");
    rig_end(&rig);
}

TEST(an_empty_table_is_an_object_unless_it_was_marked_as_a_list)
{
    rig_start(&rig);
    run("same(json.encode {}, '{}') same(json.encode(json.array()), '[]')\n"
        "same(json.encode(json.array {}), '[]') same(json.encode { a = json.array {} }, "
        "'{\"a\":[]}')\n"
        "same(json.encode(json.array { 1, 2 }), '[1,2]')\n"
        "fails('other keys', json.encode, json.array { a = 1 })\n"
        "fails('a plain table is expected', json.array, 'x')\n"
        "fails('a plain table is expected', json.array, json.array())\n"
        "same(getmetatable(json.array()), false)");
    rig_end(&rig);
}

TEST(null_is_an_absent_key_in_objects_and_a_value_elsewhere)
{
    rig_start(&rig);
    run("local v = json.decode '{\"user\":null,\"list\":[null,1]}'\n"
        "same(v.user, nil) same(v.list[1], json.null) same(#v.list, 2)\n"
        "same(json.decode 'null', json.null)\n"
        "same(json.encode { a = json.null, b = { json.null } }, '{\"a\":null,\"b\":[null]}')");
    rig_end(&rig);
}

TEST(an_integer_that_a_number_cannot_hold_is_decoded_as_text)
{
    rig_start(&rig);
    run("same(json.decode '9007199254740991', 9007199254740991)\n"
        "same(json.decode '9007199254740993', '9007199254740993')\n"
        "same(json.decode '{\"id\":-1234567890123456789}'.id, '-1234567890123456789')\n"
        "local v, message, code = json.decode '99999999999999999999'\n"
        "same(v, nil) same(code, 'malformed')");
    rig_end(&rig);
}

TEST(text_that_is_no_json_gives_nil_a_place_and_a_code)
{
    rig_start(&rig);
    run("local function bad(text, part) local v, message, code = json.decode(text)\n"
        "  same(v, nil) same(code, 'malformed')\n"
        "  if not message:find(part, 1, true) then error(message, 2) end end\n"
        "bad('', 'line 1') bad('{', 'line 1') bad('{\\n\"a\":}', 'line 2 column') bad('[1,]', "
        "'line 1')\n"
        "bad('{\"a\":1,\"a\":2}', 'duplicate') bad('1 2', 'end of file') bad('\"\\255\"', 'unable "
        "to decode')\n"
        "bad('1e999', 'line 1') bad('NaN', 'line 1') bad('{a:1}', 'line 1') bad('\"', 'line 1')\n"
        "bad(('['):rep(33) .. (']'):rep(33), 'deeper than 32')\n"
        "same(type(json.decode(('['):rep(32) .. (']'):rep(32))), 'table')\n"
        "same(#json.decode('[\"' .. ('['):rep(100) .. '\"]'), 1)\n"
        "bad('\"' .. ('x'):rep(1048575) .. '\"', 'longer than 1 MiB')\n"
        "bad('[' .. ('1,'):rep(20000) .. '1]', 'more than 20000 values')\n"
        "same(#json.decode('[' .. ('1,'):rep(19000) .. '1]'), 19001)\n"
        "fails('relay.json.decode: text is nil (a text is expected)', json.decode)\n"
        "fails('relay.json.decode: text is 5 (a text is expected)', json.decode, 5)");
    rig_end(&rig);
}

TEST(what_cannot_be_written_raises_and_names_the_place)
{
    rig_start(&rig);
    run("fails('value.a.b[2] is a function', json.encode, { a = { b = { 1, function() end "
        "} } })\n"
        "fails('value.n is not finite', json.encode, { n = 0 / 0 })\n"
        "fails('value is not finite', json.encode, math.huge)\n"
        "fails('value.s is not UTF-8', json.encode, { s = '\\255' })\n"
        "fails('value.s is not UTF-8', json.encode, { s = '\\237\\160\\128' })\n"
        "fails('a key that is not UTF-8', json.encode, { ['\\192\\128'] = 1 })\n"
        "fails('a key that holds a NUL', json.encode, { ['a\\0b'] = 1 })\n"
        "fails('value is a list with holes', json.encode, { 1, nil, nil, 4 })\n"
        "fails('has both a list', json.encode, { 1, a = 2 })\n"
        "fails('has both a list', json.encode, { 1, [1.5] = 2 })\n"
        "fails('has a key that is a boolean', json.encode, { [true] = 1 })\n"
        "fails('a metatable', json.encode, { setmetatable({}, {}) })\n"
        "fails('a metatable', json.encode, relay)\n"
        "local t = {} t.t = t fails('inside of itself', json.encode, t)\n"
        "local d = {} for i = 1, 31 do d = { d } end same(#json.encode(d), 64)\n"
        "fails('nested deeper', json.encode, { d })\n"
        "fails('longer than 1 MiB', json.encode, { ('x'):rep(600000), ('x'):rep(600000) })\n"
        "fails('longer than 1 MiB', json.encode, ('\\1'):rep(300000))\n"
        "local m = {} for i = 1, 20000 do m[i] = 1 end fails('more than 20000 values', "
        "json.encode, "
        "m)\n"
        "fails('bad argument', json.encode) same(json.encode(json.null), 'null')\n"
        "fails('value is a nil', json.encode, nil)\n"
        "fails('value is a thread', json.encode, coroutine.create(function() end))");
    rig_end(&rig);
}

TEST(urlencode_leaves_unreserved_characters_and_nothing_else)
{
    rig_start(&rig);
    run("same(relay.urlencode('AZaz09-._~'), 'AZaz09-._~')\n"
        "same(relay.urlencode('a b&c=d/?#%+\\0\\195\\164'), "
        "'a%20b%26c%3Dd%2F%3F%23%25%2B%00%C3%A4')\n"
        "same(relay.urlencode(15), '15') same(relay.urlencode(''), '')\n"
        "fails('text is nil (a text is expected)', relay.urlencode)\n"
        "fails('at most 1048576 bytes', relay.urlencode, ('x'):rep(1048576) .. 'x')\n"
        "same(#relay.urlencode((' '):rep(100000)), 300000)");
    rig_end(&rig);
}

TEST(a_module_or_part_of_it_cannot_be_written_and_names_what_is_near)
{
    rig_start(&rig);
    run("fails('relay.json is read-only', function() json.x = 1 end)\n"
        "fails('relay.json.encoed does not exist; did you mean encode?', function() return "
        "json.encoed end)\n"
        "fails('relay.resolv does not exist; did you mean resolve?', function() return "
        "relay.resolv end)\n"
        "fails('relay.crypto is read-only', function() relay.crypto.equal = nil end)");
    rig_end(&rig);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *take(size_t n)
{
    return mr__alloc(n, 1);
}

static size_t taken_bytes;

static void *take_counting(size_t n)
{
    taken_bytes += n;
    return malloc(n);
}

TEST(a_large_text_that_is_named_often_is_refused_before_it_is_copied_often)
{
    json_set_alloc_funcs(take_counting, free);
    rig_start(&rig);
    taken_bytes = 0;
    run("local t, s = {}, ('x'):rep(1000000) for i = 1, 200 do t[i] = s end\n"
        "fails('longer than 1 MiB', json.encode, t)");
    CHECK_GT(4000000, taken_bytes);
    rig_end(&rig);
    json_set_alloc_funcs(malloc, free);
}

static const char sample[] =
    "{\"a\":[1,2.5,{\"b\":null,\"c\":[\"text\",true]}],\"d\":{\"e\":{\"f\":[[],{}]}}}";

static int round_trip(lua_State *L)
{
    char why[MR_JSON_WHY_MAX];

    mr__json_open(L);
    if (mr__json_decode(L, sample, sizeof sample - 1, why) != 0) {
        return luaL_error(L, "%s", why);
    }
    return mr__json_push(L, -1);
}

/* Bounds for both loops: far more than it takes. */
enum { ALLOCATIONS_MAX = 1000 };

TEST(running_out_of_memory_anywhere_in_a_conversion_leaves_no_tree_behind)
{
    long before = mr__alloc_live();
    struct script_failure failure;
    int failed = 0, n;

    json_set_alloc_funcs(take, mr__free);
    for (n = 0; n < ALLOCATIONS_MAX; n++) {
        struct script_state st;
        int rc;

        REQUIRE_EQ(mr__state_init(&st, 16u << 20), 0);
        mr__alloc_fail_after(n);
        rc = mr__state_enter(&st, round_trip, NULL, &failure);
        mr__alloc_fail_after(-1);
        mr__state_deinit(&st);
        CHECK_EQ(mr__alloc_live(), before);
        if (rc == 0) {
            break;
        }
        /* Where jansson runs out of it, it may also say that the text is wrong. */
        CHECK(failure.text[0] != '\0');
        failed++;
    }
    CHECK_GT(failed, 20);
    CHECK_GT(ALLOCATIONS_MAX, n);
    for (size_t cap = 8000; cap < 60000; cap += 97) {
        struct script_state st;

        REQUIRE_EQ(mr__state_init(&st, cap), 0);
        (void)mr__state_enter(&st, round_trip, NULL, &failure);
        mr__state_deinit(&st);
        CHECK_EQ(mr__alloc_live(), before);
    }
    json_set_alloc_funcs(malloc, free);
}

TEST_MAIN(TEST_CASE(values_are_written_as_json_and_read_back),
          TEST_CASE(an_empty_table_is_an_object_unless_it_was_marked_as_a_list),
          TEST_CASE(null_is_an_absent_key_in_objects_and_a_value_elsewhere),
          TEST_CASE(an_integer_that_a_number_cannot_hold_is_decoded_as_text),
          TEST_CASE(text_that_is_no_json_gives_nil_a_place_and_a_code),
          TEST_CASE(what_cannot_be_written_raises_and_names_the_place),
          TEST_CASE(urlencode_leaves_unreserved_characters_and_nothing_else),
          TEST_CASE(a_module_or_part_of_it_cannot_be_written_and_names_what_is_near),
          TEST_CASE(a_large_text_that_is_named_often_is_refused_before_it_is_copied_often),
          TEST_CASE(running_out_of_memory_anywhere_in_a_conversion_leaves_no_tree_behind))
