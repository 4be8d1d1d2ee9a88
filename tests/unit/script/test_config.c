/* SPDX-License-Identifier: MIT */
/*
 * The config file and the sources of the chain: what is read from them, and one clear
 * line for everything that is wrong. Start reading at the tables of refusals.
 */
#include "base/alloc.h"
#include "rig.h"
#include "script/config.h"
#include "service/service.h"
#include "test.h"

static struct rig rig;

TEST(settings_are_offered_as_text_in_the_order_of_the_file_with_their_lines)
{
    static const struct {
        const char *key, *value;
        unsigned line;
    } expected[] = {
        {"udp_relay_ports", "31000-31299", 3},
        {"connect", "relay", 4},
        {"workers", "2", 4},
        {"connect_x", "0.5", 5},
        {"errors", "false", 6},
        {"allow_low_ports", "true", 7},
        {"max_global_traffic", "1073741824", 8},
    };
    struct config_setting s;
    char place[256];

    rig_start(&rig);
    REQUIRE_EQ(rig_load(&rig, "local n = 1024\n"
                              "return { settings = {\n"
                              "  udp_relay_ports = '31000-31299',\n"
                              "  connect = 'relay', workers = 2,\n"
                              "  connect_x = 0.5,\n"
                              "  errors = false,\n"
                              "  ['allow_low_ports'] = true,\n"
                              "  max_global_traffic = n * n * n,\n"
                              "} }"),
               0);
    REQUIRE_EQ(mr__config_setting_count(rig.config), sizeof expected / sizeof expected[0]);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        mr__config_setting(rig.config, i, &s);
        snprintf(place, sizeof place, "%s/moonrelay.lua:%u", rig.folder, expected[i].line);
        CHECK_STR(s.key, expected[i].key);
        CHECK_STR(s.value, expected[i].value);
        CHECK_EQ(s.n, strlen(s.value));
        CHECK_STR(s.place, place);
    }
    rig_end(&rig);
}

TEST(env_and_file_read_what_the_config_needs)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    rig_start(&rig);
    rig.environment[0] = (char[]){"KEY=secret=1"};
    rig.environment[1] = (char[]){"KEYS=other"};
    rig_file(&rig, "key.txt", "from a file\n");
    rig_file(&rig, "p.lua",
             "local c return { load = function(cfg) c = cfg end, create = function()\n"
             "return { tags = { a = c.a, b = tostring(c.b), c = c.c, d = c.d, e = c.list[2].x } } "
             "end }");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { { './p.lua', a = env 'KEY', b = env 'NONE',\n"
                              " c = env('NONE', 'default'), d = file 'key.txt',\n"
                              " list = { 1, { x = 5 } } } } }"),
               0);
    CHECK_STR(rig_ask(&rig, &ev), "admit tags{a=secret=1,b=nil,c=default,d=from a file\n,e=5}");
    rig_end(&rig);
}

TEST(two_uses_of_one_policy_have_names_and_settings_of_their_own)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);
    struct policy_info info;

    rig_start(&rig);
    rig_file(&rig, "p.lua",
             "local n return { load = function(cfg) n = cfg.n end,"
             " create = function() return { slots = { [n] = 1 } } end }");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { { './p.lua', name = 'one', n = 'a' },"
                              " { './p.lua', name = 'two', n = 'b', on_error = 'refuse' } } }"),
               0);
    CHECK_STR(rig_ask(&rig, &ev), "admit slots{a=1,b=1}");
    mr__policies_info(rig.policies, 1, &info);
    CHECK_STR(info.name, "two");
    rig_end(&rig);
}

TEST(open_ports_are_read_by_number_with_what_their_flows_begin_with)
{
    static const char text[] = "return { ports = {\n"
                               "[7778] = { target = 'a.fleet:7000', idle = 60,\n"
                               "           tags = { game = 'x' }, slots = { all = 5 } },\n"
                               "[0] = {}, [7777] = { rate = { pps = 10 } } } }";
    struct config_options opts = {.environment = NULL};
    struct script_error err;
    struct config *c;

    REQUIRE_EQ(mr__config_parse(&c, &opts, text, strlen(text), "x/m.lua", &err), 0);
    const struct open_port *p = mr__config_ports(c);
    REQUIRE_EQ(mr__config_port_count(c), 3);
    CHECK_EQ(p[0].number, 0);
    CHECK_STR(p[0].place, "x/m.lua:4");
    CHECK_EQ(p[1].number, 7777);
    CHECK_EQ(p[1].spec.pps, 10);
    CHECK_EQ(p[2].number, 7778);
    CHECK_STR(p[2].place, "x/m.lua:2");
    CHECK_STR(p[2].spec.target, "a.fleet:7000");
    CHECK_EQ(p[2].spec.idle_ns, 60000000000);
    REQUIRE_EQ(p[2].tags.n, 1);
    CHECK(strncmp(p[2].tags.items[0].value.s, "x", 1) == 0);
    REQUIRE_EQ(p[2].n_slots, 1);
    CHECK_EQ(p[2].slots[0].max, 5);
    mr__config_unref(c);
}

static void check_ports(const char *ports, const char *relay_ports, const char *registrar,
                        const char *why)
{
    struct settings *s = mr__settings_create();
    struct config_options opts = {.environment = NULL};
    struct script_error err = {.text = ""};
    char text[200];
    struct config *c;

    snprintf(text, sizeof text, "return {\n ports = %s }", ports);
    REQUIRE_EQ(mr__config_parse(&c, &opts, text, strlen(text), "m.lua", &err), 0);
    mr__settings_offer(s, MR_SETTING_CONFIG, "udp_relay_ports", relay_ports, strlen(relay_ports),
                       NULL);
    mr__settings_offer(s, MR_SETTING_CONFIG, "udp_registrar_port", registrar, strlen(registrar),
                       NULL);
    REQUIRE_EQ(mr__settings_resolve(s), 0);
    CHECK_EQ(mr__config_check_ports(c, mr__settings_values(s), &err), why[0] ? -EINVAL : 0);
    CHECK_STR(err.text, why);
    mr__config_unref(c);
    mr__settings_destroy(s);
}

TEST(an_open_port_is_no_relay_port_and_not_the_registrars)
{
    check_ports("{ [7777] = {}, [0] = {} }", "7000-7776,7778", "0", "");
    check_ports("{ [7777] = {} }", "7000-7777", "0",
                "m.lua:2: ports[7777] is among udp_relay_ports (an open port is one of its own)");
    check_ports("{ [7777] = {} }", "7000", "7777",
                "m.lua:2: ports[7777] is udp_registrar_port (an open port is one of its own)");
    CHECK_EQ(mr__config_check_ports(NULL, NULL, NULL), 0);
}

/* ---- what is wrong --------------------------------------------------------------------------- */

/* %s in the message: the config's path. */
static const struct {
    const char *config, *message;
} refusals[] = {
    {"return {", "%s:1: unexpected symbol near '<eof>'"},
    {"", "%s: the file returns nothing (a table is expected"},
    {"return 5", "%s: the file returns no plain table"},
    {"return setmetatable({}, {})", "%s: the file returns no plain table"},
    {"\nerror('oops')", "%s:2: oops"},
    {"\nlocal x = nil .. 'x'", "%s:2: attempt to concatenate a nil value"},
    {"x = 1", "%s:1: undeclared global 'x': write local x"},
    {"return { settings = { a = env_('x') } }", "%s:1: undeclared global 'env_'"},
    {"require 'relay'", "%s:1: undeclared global 'require'"},
    {"while true do end", "%s:1: took more than 1000 ms of CPU time"},
    {"local t = {} for i = 1, 1e8 do t[i] = {} end", "%s: not enough memory"},
    {"return { file 'missing.txt' }", "%s:1: file \"missing.txt\": No such file or directory"},
    {"return { file '/' }", "%s:1: file \"/\": Is a directory"},
    {"return {\n setings = {} }", "%s:2: unknown key setings; did you mean settings?"},
    {"return { policy = {} }", "%s:1: unknown key policy; did you mean policies?"},
    {"return { xyz = {} }", "%s:1: unknown key xyz (settings, policies and ports are expected)"},
    {"return { 'dynamic' }", "%s:1: the config has a value without a key"},
    {"return {\n\n ports = 7777 }", "%s:3: ports is a number (a table is expected)"},
    {"return {\n\n ports = { 7777 } }", "ports[1]: a spec, 7777 (a table is expected)"},
    {"return { ports = {\n[7777] = {},\n['7778'] = {} } }",
     "%s:3: ports has a key that is a string (UDP port numbers are expected: [7777] = { ... })"},
    {"return {\n ports = { [65536] = {} } }", "%s:2: ports[65536] is no UDP port"},
    {"return {\n ports = { [1.5] = {} } }", "%s:2: ports[1.5] is no UDP port"},
    {"return {\n ports = { [-1] = {} } }", "%s:2: ports[-1] is no UDP port"},
    {"return { ports = {\n[7777] = { idel = 3 } } }",
     "%s:2: ports[7777]: the unknown key idel; did you mean idle?"},
    {"return { ports = {\n[7777] = { idle = -3 } } }",
     "%s:2: ports[7777]: idle, -3 (seconds above"},
    {"return { ports = {\n[7777] = { target = 'a' } } }", "%s:2: ports[7777]: target, 'a' (host:"},
    {"return { ports = {\n[7777] = setmetatable({}, {}) } }",
     "%s:2: ports[7777]: a spec, a table with a metatable"},
    {"local t = {} for i = 1, 1025 do t[i] = {} end return {\n ports = t }",
     "%s:2: more than 1024 ports"},
    {"return { settings = 5 }", "%s:1: settings is a number (a table is expected)"},
    {"return { settings = setmetatable({}, {}) }", "%s:1: settings has a metatable"},
    {"return { settings = { 'x' } }", "%s:1: settings has a key that is a number"},
    {"return { settings = {\n a = {} } }",
     "%s:2: settings.a is a table (a string, number or boolean is expected)"},
    {"return { policies = 'dynamic' }", "%s:1: policies is a string (a table is expected)"},
    {"return { policies = { a = 'dynamic' } }", "%s:1: policies is a list without names"},
    {"return { policies = { 'dynamic', nil, 'dynamic' } }", "%s:1: policies "},
    {"return { policies = {\n 5 } }", "%s:2: policies[1] is a number (a name, or {"},
    {"return { policies = { {} } }", "%s:1: policies[1] does not begin with a name or path"},
    {"return { policies = { { 'dynamic', 'x' } } }", "%s:1: policies[1] has more than a name"},
    {"return { policies = { { 'dynamic',\n on_error = 'ignore' } } }",
     "%s:2: policies[1].on_error is not understood (\"refuse\" or \"skip\" is expected)"},
    {"return { policies = { { 'dynamic', on_eror = 'skip' } } }",
     "%s:1: policies[1].on_eror is no option; did you mean on_error?"},
    {"return { policies = { { 'dynamic', shadow = 'yes' } } }",
     "%s:1: policies[1].shadow is a string (true or false is expected)"},
    {"return { policies = { { 'dynamic', shadw = true } } }", "did you mean shadow?"},
    {"return { policies = { { 'dynamic', name = 5 } } }", "%s:1: policies[1].name is a number"},
    {"return { policies = { { 'dynamic', name = 'a b' } } }",
     "%s:1: 'a b' cannot name a policy (1 to 32 of"},
    {"return { policies = { { 'dynamic', name = ('x'):rep(33) } } }", "cannot name a policy"},
    {"return { policies = { { 'dynamic',\n from = print_ } } }",
     "%s:2: undeclared global 'print_'"},
    {"return { policies = { { 'dynamic', f = function() end } } }",
     "%s:1: policies[1].f holds a function (strings, numbers, booleans and tables of them"},
    {"local t = {} t.t = t return { policies = { { 'dynamic',\n t = t } } }",
     "%s:2: policies[1].t is nested more than 16 tables deep"},
    {"return { policies = { { 'dynamic', t = setmetatable({}, {}) } } }",
     "policies[1].t has a metatable"},
    {"return { policies = { 'dynamic', 'dynamic' } }", "%s:1: two policies are named dynamic"},
    {"return { policies = { 'dynamik' } }",
     "%s:1: no shipped policy dynamik; did you mean dynamic?"},
    {"return { policies = { 'quotas' } }", "%s:1: no shipped policy quotas; did you mean quota?"},
    {"return { policies = { 'mine.lua' } }",
     "%s:1: no shipped policy mine.lua (a file is named with a slash: ./mine.lua)"},
    {"return { policies = { 'mine' } }",
     "%s:1: no shipped policy 'mine' (there are allowlist, audit, bans, canary, dynamic, hosts, "
     "lobby, "
     "quota, region, ticket, webhook; a file is named with a slash: ./mine.lua)"},
    {"return { policies = { './missing.lua' } }", "missing.lua: No such file or directory"},
    {"return { policies = { './sub/' } }", "cannot name a policy"},
};

static void check_refusal(const char *config, const char *message)
{
    char expected[512], path[128];
    const char *at = strstr(message, "%s");

    snprintf(path, sizeof path, "%s/moonrelay.lua", rig.folder);
    if (at) {
        snprintf(expected, sizeof expected, "%.*s%s%s", (int)(at - message), message, path, at + 2);
    } else {
        snprintf(expected, sizeof expected, "%s", message);
    }
    CHECK_LT(rig_load(&rig, config), 0);
    CHECK(strstr(rig.err.text, expected) != NULL);
    CHECK(strchr(rig.err.text, '\n') == NULL);
    if (!strstr(rig.err.text, expected)) {
        fprintf(stderr, "# expected: %s\n# got: %s\n", expected, rig.err.text);
    }
}

TEST(a_wrong_config_is_refused_in_one_line_that_says_where)
{
    rig_start(&rig);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        check_refusal(refusals[i].config, refusals[i].message);
    }
    rig_end(&rig);
}

static const struct {
    const char *policy, *message;
} bad_policies[] = {
    {"return {", "p.lua:1: unexpected symbol near '<eof>'"},
    {"", "p.lua: the file returns nothing (a table of hooks is expected)"},
    {"return 5", "p.lua: the file returns no plain table"},
    {"return setmetatable({}, {})", "p.lua: the file returns no plain table"},
    {"\n\nerror('oops')", "p.lua:3: oops"},
    {"error({})", "p.lua: raised a table instead of a message"},
    {"\x1bLJ\x01", "p.lua: attempt to load chunk with wrong mode"},
    {"local s = 'x' while true do s = s .. s end", "p.lua: not enough memory"},
    {"coroutine.yield()", "p.lua: called coroutine.yield() outside of a coroutine of its own"},
    {"return { registr = function() end }", "unknown hook 'registr'; did you mean register?"},
    {"return { on_tick = function() end }", "unknown hook 'on_tick' (register, connect, create,"},
    {"return { lookup = 5 }", "lookup is a number (a function is expected)"},
    {"return { lokup = function() end }", "unknown hook 'lokup'; did you mean lookup?"},
    {"return { commands = function() end }", "p.lua: commands is function (a table of functions"},
    {"return { commands = setmetatable({}, {}) }", "commands is a table with a metatable"},
    {"return { commands = { 1 } }", "commands has a key that is a number"},
    {"return { commands = { Kick = function() end } }", "'Kick' cannot name a command"},
    {"return { commands = { ['2nd'] = function() end } }", "'2nd' cannot name a command"},
    {"return { commands = { ['a b'] = function() end } }", "'a b' cannot name a command"},
    {"return { commands = { [''] = function() end } }", "'' cannot name a command"},
    {"return { commands = { list = {} } }", "commands.list is a table (a function"},
    {"local t = {} for i = 1, 65 do t['c' .. i] = print end return t", "undeclared global 'print'"},
    {"local t = {} for i = 1, 65 do t['c' .. i] = pcall end return { commands = t }",
     "more than 64 commands"},
    {"return { create = 5 }", "create is a number (a function is expected)"},
    {"return { load = {} }", "load is a table (a function is expected)"},
    {"return { function() end }", "a key that is a number (names of hooks are expected)"},
    {"return { api = 2 }", "api 2 is not known (this version knows 1)"},
    {"return { api = '1' }", "api is a string (the number 1 is expected)"},
    {"return { load = function() error('no key', 0) end }", "p.lua:1: no key"},
    {"return { load = function(cfg) assert(cfg.key, 'set key') end }", "p.lua:1: set key"},
};

TEST(a_wrong_policy_is_refused_in_one_line_that_says_where)
{
    rig_start(&rig);
    for (size_t i = 0; i < sizeof bad_policies / sizeof bad_policies[0]; i++) {
        CHECK_EQ(rig_load_policy(&rig, bad_policies[i].policy), -EINVAL);
        CHECK(strncmp(rig.err.text, "policy p: ", 10) == 0);
        CHECK(strstr(rig.err.text, bad_policies[i].message) != NULL);
        CHECK(strchr(rig.err.text, '\n') == NULL);
        if (!strstr(rig.err.text, bad_policies[i].message)) {
            fprintf(stderr, "# expected: %s\n# got: %s\n", bad_policies[i].message, rig.err.text);
        }
    }
    rig_file(&rig, "p.lua", "return {}");
    CHECK_EQ(rig_load(&rig, "return {\n policies = { { './p.lua', per_ip = 5 } } }"), -EINVAL);
    CHECK(strstr(rig.err.text, "moonrelay.lua:2: has no load function, so its setting per_ip is "
                               "read by nobody") != NULL);
    CHECK_EQ(rig_load_policy(&rig, "return { api = 1 }"), 0);
    rig_end(&rig);
}

/* ---- the chain's sources --------------------------------------------------------------------- */

static const char *chain(void)
{
    static char text[256];
    struct policy_info info;

    text[0] = '\0';
    if (rig_load_policies(&rig) != 0) {
        return rig.err.text;
    }
    for (size_t i = 0; i < mr__policies_count(rig.policies); i++) {
        mr__policies_info(rig.policies, i, &info);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", info.name);
    }
    mr__policies_destroy(rig.policies);
    rig.policies = NULL;
    return text;
}

TEST(files_of_the_command_line_come_first_then_the_setting_or_the_config_or_dynamic)
{
    char a[128], list[256];
    const char *first[] = {a};
    struct config_options copts = {0};

    rig_start(&rig);
    rig_file(&rig, "a.lua", "return {}");
    rig_file(&rig, "b.lua", "return {}");
    snprintf(a, sizeof a, "%s/a.lua", rig.folder);
    CHECK_STR(chain(), "dynamic");
    rig.load.first = first;
    rig.load.n_first = 1;
    CHECK_STR(chain(), "a dynamic");

    snprintf(list, sizeof list, " %s/b.lua , dynamic", rig.folder);
    rig.load.list = list;
    CHECK_STR(chain(), "a b dynamic");
    rig.load.list = "dynamic,";
    CHECK(strstr(chain(), "setting policies: 'dynamic,' has an empty item") != NULL);
    rig.load.list = "dynamic,,x";
    CHECK(strstr(chain(), "has an empty item") != NULL);
    rig.load.list = "nothing";
    CHECK(strstr(chain(), "setting policies: no shipped policy 'nothing'") != NULL);
    rig.load.list = "";

    char path[128];
    snprintf(path, sizeof path, "%s/moonrelay.lua", rig.folder);
    rig_file(&rig, "moonrelay.lua", "return { policies = { 'dynamic', './b.lua' } }");
    REQUIRE_EQ(mr__config_read(&rig.config, &copts, path, &rig.err), 0);
    CHECK_STR(chain(), "a dynamic b");
    rig.load.list = "dynamic";
    CHECK_STR(chain(), "a dynamic");
    first[0] = "missing.lua/x";
    CHECK(strstr(chain(), "--policy: policy missing.lua/x: No such file or directory") != NULL);
    rig_end(&rig);
}

TEST(a_config_that_cannot_be_read_is_named_with_the_reason)
{
    struct config_options copts = {0};
    struct config *c = NULL;
    char path[128], big[256];

    rig_start(&rig);
    snprintf(path, sizeof path, "%s/none.lua", rig.folder);
    CHECK_EQ(mr__config_read(&c, &copts, path, &rig.err), -ENOENT);
    CHECK(strstr(rig.err.text, "none.lua: No such file or directory") != NULL);
    CHECK_EQ(mr__config_read(&c, &copts, rig.folder, &rig.err), -EISDIR);
    CHECK(strstr(rig.err.text, "Is a directory") != NULL);
    snprintf(big, sizeof big, "%s/big.lua", rig.folder);
    FILE *f = fopen(big, "w");
    REQUIRE(f != NULL);
    for (int i = 0; i < 1100; i++) {
        fprintf(f, "--%1021s\n", "");
    }
    fclose(f);
    CHECK_EQ(mr__config_read(&c, &copts, big, &rig.err), -EFBIG);
    CHECK(strstr(rig.err.text, "larger than 1 MiB") != NULL);
    CHECK(c == NULL);
    rig_end(&rig);
}

TEST_MAIN(TEST_CASE(settings_are_offered_as_text_in_the_order_of_the_file_with_their_lines),
          TEST_CASE(env_and_file_read_what_the_config_needs),
          TEST_CASE(two_uses_of_one_policy_have_names_and_settings_of_their_own),
          TEST_CASE(open_ports_are_read_by_number_with_what_their_flows_begin_with),
          TEST_CASE(an_open_port_is_no_relay_port_and_not_the_registrars),
          TEST_CASE(a_wrong_config_is_refused_in_one_line_that_says_where),
          TEST_CASE(a_wrong_policy_is_refused_in_one_line_that_says_where),
          TEST_CASE(files_of_the_command_line_come_first_then_the_setting_or_the_config_or_dynamic),
          TEST_CASE(a_config_that_cannot_be_read_is_named_with_the_reason))
