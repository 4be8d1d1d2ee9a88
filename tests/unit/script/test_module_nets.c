/* SPDX-License-Identifier: MIT */
/*
 * relay.cidr as policies call it. That its matches are right is tested where they are made
 * (unit/service/cidr). One thread.
 */
#include "test.h"

#include "base/alloc.h"
#include "rig.h"

static struct rig rig;
static char text[1 << 16];

static const char *ask(const char *load, const char *body)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    snprintf(text, sizeof text,
             "local relay = require 'relay'\n"
             "local function same(a, b) if a ~= b then error(tostring(a) .. ' ~= ' .. tostring(b), "
             "2) end end\n"
             "local function fails(part, f, ...) local ok, e = pcall(f, ...)\n"
             "  if ok or not e:find(part, 1, true) then error(tostring(e) .. ', not ' .. part, 2) "
             "end end\n"
             "local state = {}\n"
             "return { load = function()\n%s\nend, create = function(ev)\n%s\nreturn {} end }",
             load, body);
    rig.log_n = 0;
    rig.log_text[0] = '\0';
    int rc = rig_load_policy(&rig, text);
    if (rc != 0) {
        fprintf(stderr, "# %s\n", rig.err.text);
    }
    REQUIRE_EQ(rc, 0);
    return rig_ask(&rig, &ev);
}

static void run(const char *body)
{
    CHECK_STR(ask("", body), "admit");
    if (rig.log_n > 0) {
        fprintf(stderr, "# %s\n", rig.log_text);
    }
}

TEST(a_list_a_map_and_a_text_of_networks_answer_by_the_longest_match)
{
    rig_start(&rig);
    run("local l = relay.cidr { '10.0.0.0/8', '2001:db8::/32' }\n"
        "same(l:contains '10.1.2.3', true) same(l:contains '11.1.2.3', false)\n"
        "same(l:get '2001:db8::1', true) same(l:get '2001:db9::1', nil) same(l:len(), 2)\n"
        "same(l:contains '::ffff:10.0.0.1', true)\n"
        "local t = {} local m = relay.cidr { ['10.0.0.0/8'] = 'big', ['10.1.0.0/16'] = t,\n"
        "  ['10.1.2.3'] = false, ['::1'] = 7 }\n"
        "same(m:get '10.2.0.1', 'big') same(m:get '10.1.9.9', t) same(m:get '10.1.2.3', false)\n"
        "same(m:get '::1', 7) same(m:contains '10.1.2.3', true) same(m:len(), 4)\n"
        "local x = relay.cidr '# who\\n10.0.0.0/8 eu west # note\\r\\n\\n 10.1.0.0/16\\n'\n"
        "same(x:get '10.2.0.1', 'eu west') same(x:get '10.1.0.1', true) same(x:len(), 2)\n"
        "same(relay.cidr {}:len(), 0) same(relay.cidr '':contains '1.2.3.4', false)");
    rig_end(&rig);
}

TEST(a_text_that_is_no_address_is_in_no_network)
{
    rig_start(&rig);
    run("local l = relay.cidr { '0.0.0.0/0', '::/0' }\n"
        "for _, s in ipairs { '', 'x', '1.2.3', '1.2.3.4:5', '1.2.3.4/8', '1.2.3.4\\0' } do\n"
        "  same(l:contains(s), false) same(l:get(s), nil) end\n"
        "fails('nets:get: ip is nil (a text is expected)', l.get, l)\n"
        "fails('nets:contains: ip is a table (a text is expected)', l.contains, l, {})\n"
        "fails('with a colon', l.get, '1.2.3.4') fails('with a colon', l.len)\n"
        "fails('with a colon', l.get, relay.cidr, '1.2.3.4')\n"
        "fails('cidr.gte does not exist', function() return l:gte '1.2.3.4' end)\n"
        "fails('attempt to index', function() l.x = 1 end) same(getmetatable(l), false)");
    rig_end(&rig);
}

TEST(bad_text_gives_nil_and_its_line_and_a_bad_table_raises)
{
    rig_start(&rig);
    run("local nets, why, code = relay.cidr '10.0.0.0/8\\n\\n10.0.0.0/33'\n"
        "same(nets, nil) same(why, 'line 3: not a network: 10.0.0.0/33') same(code, 'malformed')\n"
        "nets, why, code = relay.cidr '10.0.0.1/8'\n"
        "same(nets, nil) assert(why:find('line 1: 10.0.0.1/8 has bits', 1, true), why)\n"
        "fails('relay.cidr: not a network: 10.0.0.0/33', relay.cidr, { '10.0.0.0/33' })\n"
        "fails('has bits behind', relay.cidr, { ['10.0.0.1/8'] = 1 })\n"
        "fails('a number under a number', relay.cidr, { 5 })\n"
        "fails('a boolean under a boolean', relay.cidr, { [true] = true })\n"
        "fails('relay.cidr: nets is nil (a text, a list or a map', relay.cidr)\n"
        "fails('relay.cidr: nets is 5', relay.cidr, 5)\n"
        "fails('relay.cidr: nets is a table', relay.cidr, setmetatable({}, {}))\n"
        "fails('relay.cidr: nets is a table', relay.cidr, relay)");
    rig_end(&rig);
}

static const char many[] = "local parts = {}\n"
                           "for i = 0, 99999 do parts[#parts + 1] = ('%d.%d.%d.0/24'):format("
                           "i / 65536 + 1, i / 256 % 256, i % 256) end\n"
                           "state.text = table.concat(parts, '\\n')\n";

TEST(parsing_a_hundred_thousand_networks_is_not_the_hooks_time)
{
    rig_start(&rig);
    rig.load.cpu_ns = 10000000;
    rig.load.load_cpu_ns = 10000000000;
    /* Tens of milliseconds each, so that without the credit the second one raises. */
    CHECK_STR(ask(many, "for i = 1, 2 do same(relay.cidr(state.text):len(), 100000)\n"
                        "for j = 1, 200 do end end"),
              "admit");
    CHECK_STR(rig.log_text, "");
    /* But it does not go on for ever. */
    CHECK_STR(ask(many, "while true do relay.cidr(state.text) end"), "failed policy-error by p");
    CHECK(strstr(rig.log_text, "took more than 10 ms of CPU time") != NULL);
    rig_end(&rig);
}

/* About 3.5 MB a list, most of it values, so that few of them are enough. */
static const char large[] = "local parts, value = {}, (' v'):rep(75)\n"
                            "for i = 0, 19999 do parts[#parts + 1] = ('1.%d.%d.0/24'):format("
                            "i / 256 % 256, i % 256) .. value end\n"
                            "state.text = table.concat(parts, '\\n')\n";

TEST(memory_of_networks_is_bounded_and_what_is_dead_is_collected_for_it)
{
    rig_start(&rig);
    rig.load.cpu_ns = 20000000000;
    rig.load.load_cpu_ns = 20000000000;
    CHECK_STR(ask(large, "for i = 1, 30 do relay.cidr(state.text) end"), "admit");
    CHECK_STR(rig.log_text, "");
    CHECK_STR(ask(large, "local kept = {} for i = 1, 30 do kept[i] = relay.cidr(state.text) end"),
              "failed policy-error by p");
    CHECK(strstr(rig.log_text, "may take 64 MiB") != NULL);
    rig_end(&rig);
}

TEST(running_out_of_memory_anywhere_leaves_no_network_behind)
{
    static const char policy[] = "local relay = require 'relay'\n"
                                 "return { load = function() local l = relay.cidr { '10.0.0.0/8', "
                                 "'10.1.0.0/16' }\n"
                                 "local m = relay.cidr '10.0.0.0/8 x\\n::/0'\n"
                                 "local ok = pcall(relay.cidr, { '10.0.0.0/8', 'x' })\n"
                                 "assert(not ok and l:get '10.0.0.1' and m:get '10.0.0.1' == 'x') "
                                 "end }";
    long before = mr__alloc_live();
    unsigned failed = 0;
    bool is_done = false;

    rig_start(&rig);
    for (long n = 0; n < 1000 && !is_done; n++) {
        mr__alloc_fail_after(n);
        is_done = rig_load_policy(&rig, policy) == 0;
        mr__alloc_fail_after(-1);
        failed += !is_done;
    }
    CHECK(is_done);
    CHECK_GT(failed, 10);
    for (uint64_t cap = 100000; cap < 400000; cap += 1033) {
        rig.load.memory_bytes = cap;
        (void)rig_load_policy(&rig, policy);
    }
    rig_end(&rig);
    CHECK_EQ(mr__alloc_live(), before);
}

TEST_MAIN(TEST_CASE(a_list_a_map_and_a_text_of_networks_answer_by_the_longest_match),
          TEST_CASE(a_text_that_is_no_address_is_in_no_network),
          TEST_CASE(bad_text_gives_nil_and_its_line_and_a_bad_table_raises),
          TEST_CASE(parsing_a_hundred_thousand_networks_is_not_the_hooks_time),
          TEST_CASE(memory_of_networks_is_bounded_and_what_is_dead_is_collected_for_it),
          TEST_CASE(running_out_of_memory_anywhere_leaves_no_network_behind))
