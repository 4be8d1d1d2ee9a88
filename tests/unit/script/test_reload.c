/* SPDX-License-Identifier: MIT */
/*
 * Generations: what a reload changes and what it leaves alone, rollback, timers and
 * commands. Time is the rig's. Start reading at the first test.
 */
#include "act.h"
#include "base/alloc.h"
#include "rig.h"
#include "script/chain.h"
#include "service/blocks.h"
#include "service/metrics.h"
#include "test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static struct rig rig;

static const char one_policy[] = "return { policies = { './p.lua' } }";

static const char *ask(struct rig_request *req)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    return rig_start_asking(&rig, req, &ev);
}

static const char *ask_now(void)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    return rig_ask(&rig, &ev);
}

static struct generation_info info(void)
{
    struct generation_info g;

    mr__policies_generation(rig.policies, &g);
    return g;
}

static int reload(const char *text)
{
    rig_file(&rig, "p.lua", text);
    return rig_reload(&rig, one_policy);
}

/* ---- the swap -------------------------------------------------------------------------------- */

TEST(policies_that_loaded_nothing_want_nothing_and_admit_by_nobody)
{
    struct policies *p;
    const struct hooks *hooks;
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    rig_start(&rig);
    REQUIRE_EQ(mr__policies_create(&p, &rig.opts), 0);
    hooks = mr__policies_hooks(p);
    CHECK(!hooks->wants(hooks->self, MR_HOOK_CREATE));
    CHECK_EQ(hooks->deadline(hooks->self), UINT64_MAX);
    hooks->tell(hooks->self, &ev);
    CHECK_EQ(mr__policies_count(p), 0);
    CHECK(mr__policies_config(p) == NULL);
    rig.policies = p;
    CHECK_STR(ask_now(), "none");
    CHECK_EQ(info().number, 0);
    rig_end(&rig);
}

static const char *const broken[][2] = {
    {"return {", "p.lua:1: unexpected symbol near"},
    {"return { load = function() error('no list') end }", "load: "},
    {"local relay = require 'relay' return { load = function() relay.sleep(1) error('late') end }",
     "p.lua:1: late"},
    {"local relay = require 'relay' return { load = function() relay.sleep(11) end }",
     "p.lua:1: waited longer than 10 s (relay.sleep)"},
    {"return { creat = function() end }", "did you mean create?"},
    {"return 5", "a table of hooks is expected"},
    {"return { load = function() while true do end end }", "took more than 50 ms"},
    {"return { load = function() coroutine.yield() end }", "called coroutine.yield()"},
};

TEST(a_reload_that_fails_leaves_the_generation_before_alone_and_says_where)
{
    rig_start(&rig);
    rig.load.load_cpu_ns = 50000000;
    REQUIRE_EQ(rig_load_policy(&rig, "local n = 0 return { create = function() n = n + 1 return {"
                                     " ttl = n } end }"),
               0);
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        int rc = reload(broken[i][0]);
        char expected[32];

        if (rc == -EINPROGRESS) {
            rig_advance(&rig, 12);
            rc = rig.rc;
        }
        CHECK_LT(rc, 0);
        CHECK(strstr(rig.err.text, broken[i][1]) != NULL);
        if (!strstr(rig.err.text, broken[i][1])) {
            fprintf(stderr, "# %s\n# %s\n", broken[i][1], rig.err.text);
        }
        CHECK(strstr(rig.log_text, "failed") == NULL); /* whoever asked says it, once */
        CHECK_EQ(info().number, 1);
        CHECK_EQ(info().generations, 1);
        snprintf(expected, sizeof expected, "admit ttl=%zu", i + 1);
        CHECK_STR(ask_now(), expected);
    }
    CHECK_EQ(reload("local function f() error('deep') end return { load = function() f() end }"),
             -EINVAL);
    CHECK(strstr(rig.err.traceback, "in function 'f'") != NULL);
    rig_end(&rig);
}

TEST(a_load_that_waits_lets_the_generation_before_serve_and_another_load_is_busy)
{
    static const char text[] =
        "local relay = require 'relay' local list return { load = function() relay.sleep(2) list ="
        " 7 end, create = function() return { ttl = list } end }";

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "return { create = function() return { ttl = 1 } end }"), 0);
    CHECK_EQ(reload(text), -EINPROGRESS);
    CHECK_EQ(mr__policies_load(rig.policies, &rig.load), -EBUSY);
    CHECK_EQ(mr__policies_rollback(rig.policies, rig.load.done, rig.load.user), -EBUSY);
    rig_advance(&rig, 1.9);
    CHECK_STR(ask_now(), "admit ttl=1");
    rig_advance(&rig, 0.2);
    CHECK_EQ(rig.rc, 0);
    CHECK_STR(ask_now(), "admit ttl=7");
    CHECK_EQ(info().number, 2);
    CHECK_EQ(info().generations, 1);
    CHECK(info().load_seconds > 1.9 && info().load_seconds < 2.2);
    rig_end(&rig);
}

TEST(a_check_loads_everything_and_changes_nothing)
{
    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "return { create = function() return { ttl = 1 } end }"), 0);
    rig.load.mode = MR_LOAD_CHECK;
    CHECK_EQ(reload("local relay = require 'relay' relay.every(1, function() relay.log.info('tick')"
                    " end) return { create = function() return { ttl = 2 } end }"),
             0);
    CHECK_STR(ask_now(), "admit ttl=1");
    CHECK_EQ(info().number, 1);
    rig_advance(&rig, 5);
    CHECK(strstr(rig.log_text, "tick") == NULL);
    CHECK_EQ(reload("return { create = 1 }"), -EINVAL);
    rig_end(&rig);
}

TEST(what_waits_ends_in_the_generation_it_began_in)
{
    struct rig_request first, second, third;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay' return { create = function()"
                                     " relay.sleep(1) return { ttl = 1 } end }"),
               0);
    CHECK_STR(ask(&first), "");
    CHECK_STR(ask(&third), "");
    REQUIRE_EQ(reload("local relay = require 'relay' return { create = function()"
                      " relay.sleep(0.5) return { ttl = 2 } end }"),
               0);
    CHECK_EQ(info().generations, 2);
    CHECK_EQ(info().suspended, 2);
    CHECK_STR(ask(&second), "");
    rig_advance(&rig, 0.6);
    CHECK_STR(second.text, "admit ttl=2");
    CHECK_STR(first.text, "");
    mr__policies_hooks(rig.policies)
        ->cancel(mr__policies_hooks(rig.policies)->self, &third.request);
    CHECK_EQ(info().generations, 2);
    rig_advance(&rig, 0.5);
    CHECK_STR(first.text, "admit ttl=1");
    CHECK_STR(third.text, "");
    CHECK_EQ(info().generations, 1);
    CHECK_EQ(info().suspended, 0);
    rig_end(&rig);
}

TEST(a_shadow_behind_a_wait_holds_the_generation_of_its_chain_and_no_other)
{
    static const char config[] =
        "return { policies = { './a.lua', { './b.lua', shadow = true }, './c.lua' } }";
    struct rig_request req;

    rig_start(&rig);
    rig_file(&rig, "a.lua",
             "local relay = require 'relay' return { create = function() relay.sleep(1) return"
             " { ttl = 3 } end }");
    rig_file(&rig, "b.lua", "return { create = function() return false, 'shadowed' end }");
    rig_file(&rig, "c.lua", "return { create = function() return { idle = 2 } end }");
    REQUIRE_EQ(rig_load(&rig, config), 0);
    CHECK_STR(ask(&req), "");
    REQUIRE_EQ(rig_reload(&rig, config), 0);
    CHECK_EQ(info().generations, 2);
    rig_advance(&rig, 1.1);
    CHECK_STR(req.text, "admit ttl=3 idle=2");
    CHECK_EQ(info().generations, 1);
    REQUIRE_EQ(rig_reload(&rig, "return { policies = {} }"), 0);
    CHECK_EQ(info().generations, 1);
    rig_end(&rig);
}

TEST(a_generation_before_ends_at_the_latest_with_the_deadline_of_what_waits)
{
    struct rig_request req;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay' return { create = function()"
                                     " relay.await(function() end) end }"),
               0);
    ask(&req);
    REQUIRE_EQ(reload("return {}"), 0);
    CHECK_EQ(info().generations, 2);
    rig_advance(&rig, 2.1);
    CHECK_STR(req.text, "failed policy-error by p");
    CHECK_EQ(info().generations, 1);
    rig_end(&rig);
}

TEST(policies_that_end_answer_nothing_that_waits)
{
    struct rig_request req;
    struct rig_answer answer;
    struct hook_event ev = rig_event(MR_HOOK_DESTROYED);
    const struct hooks *hooks;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay' local function wait()"
                                     " relay.sleep(1) end relay.after(0, wait) return { create ="
                                     " wait, destroyed = wait, commands = { go = wait } }"),
               0);
    hooks = mr__policies_hooks(rig.policies);
    ask(&req);
    hooks->tell(hooks->self, &ev);
    CHECK_STR(rig_call(&rig, &answer, "p", "go", NULL), "");
    rig_advance(&rig, 0.1);
    CHECK_EQ(info().suspended, 4);
    REQUIRE_EQ(reload("local relay = require 'relay' return { load = function() relay.sleep(1) end"
                      " }"),
               -EINPROGRESS);
    CHECK_EQ(info().suspended, 5);
    rig_end(&rig);
    CHECK_EQ(req.calls, 0);
    CHECK_EQ(answer.calls, 0);
    CHECK_EQ(mr__alloc_live(), 0);
}

/* A load that fails, or is only tried, must have changed nothing. */
TEST(load_cannot_act_on_players_and_blocks)
{
    static const char *const calls[] = {
        "relay.kick('1')",           "relay.close('51200.1')",
        "relay.notify('1', 'x')",    "relay.block('10.0.0.1', 1)",
        "relay.unblock('10.0.0.1')", "relay.drain(5)",
        "relay.drain(false)",
    };

    rig_start(&rig);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        char text[256];

        snprintf(text, sizeof text,
                 "local relay = require 'relay'\nreturn { load = function() %s end }", calls[i]);
        CHECK_EQ(rig_load_policy(&rig, text), -EINVAL);
        if (!strstr(rig.err.text, "the policy is not in use yet")) {
            fprintf(stderr, "# %s: %s\n", calls[i], rig.err.text);
        }
        CHECK(strstr(rig.err.text, "the policy is not in use yet") != NULL);
    }
    rig_end(&rig);
}

/* ---- rollback -------------------------------------------------------------------------------- */

TEST(rollback_goes_back_to_the_sources_before_and_a_second_one_forward_again)
{
    static const char text[] = "local rules = require 'lib.rules' return { load = function(cfg)"
                               " rules.cfg = cfg.v end, create = function() return { tags = { v ="
                               " rules.version .. rules.cfg } } end }";
    static char first[] = "V=old", second[] = "V=new";
    char folder[128];

    rig_start(&rig);
    snprintf(folder, sizeof folder, "%s/lib", rig.folder);
    REQUIRE_EQ(mkdir(folder, 0700), 0);
    rig_file(&rig, "lib/rules.lua", "return { version = 'one-' }");
    rig_file(&rig, "p.lua", text);
    rig.environment[0] = first;
    REQUIRE_EQ(rig_load(&rig, "return { policies = { { './p.lua', v = env 'V' } } }"), 0);
    CHECK_EQ(mr__policies_rollback(rig.policies, rig.load.done, rig.load.user), -ENOENT);
    CHECK_STR(ask_now(), "admit tags{v=one-old}");
    rig_file(&rig, "lib/rules.lua", "return { version = 'two-' }");
    rig.environment[0] = second;
    REQUIRE_EQ(rig_reload(&rig, "return { policies = { { './p.lua', v = env 'V' } } }"), 0);
    CHECK_STR(ask_now(), "admit tags{v=two-new}");
    rig_file(&rig, "lib/rules.lua", "broken");
    rig_file(&rig, "p.lua", "broken");
    REQUIRE_EQ(mr__policies_rollback(rig.policies, rig.load.done, rig.load.user), 0);
    CHECK_EQ(rig.rc, 0);
    CHECK_STR(ask_now(), "admit tags{v=one-old}");
    REQUIRE_EQ(mr__policies_rollback(rig.policies, rig.load.done, rig.load.user), 0);
    CHECK_STR(ask_now(), "admit tags{v=two-new}");
    CHECK_EQ(info().number, 4);
    CHECK(mr__policies_config(rig.policies) != NULL);
    rig_end(&rig);
}

/* What tells two generations apart: a file of the config, what a policy required, the policy, the
 * config's own text. */
TEST(rollback_goes_past_what_was_loaded_more_than_once)
{
    static const char config[] = "return { policies = { { './p.lua', v = file 'v' } } }";
    static const char policy[] = "local w, v = require 'rules'.w return { load = function(cfg) v ="
                                 " cfg.v .. w end, create = function() return { tags = { v = v } }"
                                 " end }";
    static const struct {
        const char *file, *text, *config, *seen;
    } changes[] = {
        {"v", "new", config, "admit tags{v=new1}"},
        {"rules.lua", "return { w = 2 }", config, "admit tags{v=old2}"},
        {"p.lua", "return { load = function() end }", config, "none"},
        {"v", "old", "return { policies = { { './p.lua', v = 'b' } } }", "admit tags{v=b1}"},
    };

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        rig_start(&rig);
        rig_file(&rig, "v", "old");
        rig_file(&rig, "rules.lua", "return { w = 1 }");
        rig_file(&rig, "p.lua", policy);
        REQUIRE_EQ(rig_load(&rig, config), 0);
        rig_file(&rig, changes[i].file, changes[i].text);
        for (int n = 0; n < 3; n++) {
            REQUIRE_EQ(rig_reload(&rig, changes[i].config), 0);
            CHECK_STR(ask_now(), changes[i].seen);
        }
        REQUIRE_EQ(mr__policies_rollback(rig.policies, rig.load.done, rig.load.user), 0);
        CHECK_STR(ask_now(), "admit tags{v=old1}");
        REQUIRE_EQ(mr__policies_rollback(rig.policies, rig.load.done, rig.load.user), 0);
        CHECK_STR(ask_now(), changes[i].seen);
        rig_end(&rig);
    }
}

/* ---- require --------------------------------------------------------------------------------- */

static const struct {
    const char *text, *message;
} requires[] = {
    {"require '../secret'", "module '../secret' is not available: names of"},
    {"require '/etc/passwd'", "module '/etc/passwd' is not available: names of"},
    {"require '..secret'", "names of A-Z"},
    {"require 'lib..rules'", "names of A-Z"},
    {"require ''", "names of A-Z"},
    {"require 'lib.\\0x'", "names of A-Z"},
    {"require(5)", "string expected"},
    {"require 'missing'", "missing.lua: No such file or directory"},
    {"require 'out'", "out.lua: it leads out of the policy's folder"},
    {"require 'far.secret'", "far/secret.lua: it leads out of the policy's folder"},
    {"require 'pipe'", "pipe.lua: not a regular file"},
    {"require 'folder'", "Is a directory"},
    {"require 'me'", "module 'me' is not available: it requires itself"},
    {"require 'ping'", "module 'ping' is not available: it requires itself"},
    {"require 'slow'", "took more than"},
    {"require 'waits'", "relay.sleep: waiting is possible in hooks"},
    {"local ok = pcall(require, 'fails') assert(not ok) require 'fails'", "fails.lua:1: broken"},
};

TEST(require_sees_files_below_the_policys_folder_and_nothing_else)
{
    char text[512], path[128];

    rig_start(&rig);
    rig.load.load_cpu_ns = 100000000;
    rig_file(&rig, "secret.lua", "return 'secret'");
    snprintf(path, sizeof path, "%s/sub", rig.folder);
    REQUIRE_EQ(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/sub/folder.lua", rig.folder);
    REQUIRE_EQ(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/sub/out.lua", rig.folder);
    REQUIRE_EQ(symlink("../secret.lua", path), 0);
    snprintf(path, sizeof path, "%s/sub/far", rig.folder);
    REQUIRE_EQ(symlink("..", path), 0);
    snprintf(path, sizeof path, "%s/sub/pipe.lua", rig.folder);
    REQUIRE_EQ(mkfifo(path, 0600), 0);
    rig_file(&rig, "sub/me.lua", "return require 'me'");
    rig_file(&rig, "sub/ping.lua", "return require 'pong'");
    rig_file(&rig, "sub/pong.lua", "return require 'ping'");
    rig_file(&rig, "sub/slow.lua", "while true do end");
    rig_file(&rig, "sub/waits.lua", "require('relay').sleep(1)");
    rig_file(&rig, "sub/fails.lua", "error('broken')");
    for (size_t i = 0; i < sizeof requires / sizeof requires[0]; i++) {
        snprintf(text, sizeof text, "%s return {}", requires[i].text);
        rig_file(&rig, "sub/p.lua", text);
        CHECK_EQ(rig_load(&rig, "return { policies = { './sub/p.lua' } }"), -EINVAL);
        CHECK(strstr(rig.err.text, requires[i].message) != NULL);
        if (!strstr(rig.err.text, requires[i].message)) {
            fprintf(stderr, "# %s\n# %s\n", requires[i].message, rig.err.text);
        }
    }
    rig_end(&rig);
}

static size_t n_files;
static char last_file[256];

static void on_file(void *user, const char *path)
{
    (void)user;
    n_files++;
    snprintf(last_file, sizeof last_file, "%s", path);
}

TEST(a_required_file_runs_once_in_the_environment_of_its_policy)
{
    rig_start(&rig);
    rig_file(&rig, "count.lua", "string.mark = (string.mark or 0) + 1 return { n = string.mark }");
    rig_file(&rig, "nothing.lua", "");
    rig_file(&rig, "a.lua",
             "local c = require 'count' assert(require 'count' == c)"
             " assert(require 'nothing' == true) return { create = function() return"
             " { tags = { a = c.n .. string.mark .. require('count').n } } end }");
    rig_file(&rig, "b.lua",
             "assert(string.mark == nil) local c = require 'count' return { create ="
             " function() return { tags = { b = c.n } } end }");
    REQUIRE_EQ(rig_load(&rig, "return { policies = { './a.lua', './b.lua', 'dynamic' } }"), 0);
    CHECK_STR(ask_now(), "admit tags{a=111,b=1}");
    n_files = 0;
    mr__policies_files(rig.policies, on_file, NULL);
    CHECK_EQ(n_files, 5);
    CHECK(strstr(last_file, "/b.lua") != NULL);
    REQUIRE_EQ(rig_load_policy(&rig, "return { create = function() require 'count' end }"), 0);
    CHECK_STR(ask_now(), "failed policy-error by p");
    CHECK(strstr(rig.log_text, "files are read while the policy loads") != NULL);
    rig_end(&rig);
}

/* ---- timers ---------------------------------------------------------------------------------- */

static size_t count_lines(const char *text)
{
    size_t n = 0;

    for (const char *at = rig.log_text; (at = strstr(at, text)) != NULL; at++) {
        n++;
    }
    return n;
}

TEST(timers_run_when_they_are_due_and_until_they_are_cancelled)
{
    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig,
                               "local relay = require 'relay' local log = relay.log.info\n"
                               "return { load = function() relay.sleep(1)\n"
                               "relay.after(2, function() log('once') end)\n"
                               "local n, stop = 0 stop = relay.every(0.5, function() n = n + 1"
                               " log('often') if n == 4 then stop() end end)\n"
                               "relay.after(1, function() log('never') end)()\n"
                               "relay.every(1, function() error('bad timer') end)\n"
                               "relay.every(1, function() log('slow') relay.sleep(1.5) end)\n"
                               "end }"),
               0);
    CHECK_EQ(count_lines("often"), 0);
    rig_advance(&rig, 1.9);
    CHECK_EQ(count_lines("msg=once") + count_lines(" once "), 0);
    rig_advance(&rig, 4.2);
    CHECK_EQ(count_lines("once"), 1);
    CHECK_EQ(count_lines("often"), 4);
    CHECK_EQ(count_lines("never"), 0);
    CHECK_EQ(count_lines("slow"),
             3); /* at 1, 3 and 5: a run is left out while the last one is on */
    CHECK_GE(count_lines("p.lua:6: bad timer"), 5);
    CHECK(strstr(rig.log_text, "hook=timer") != NULL);
    CHECK(strstr(rig.log_text, "policy=p") != NULL);
    rig_end(&rig);
}

TEST(timers_end_with_their_generation)
{
    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay' local log = relay.log.info\n"
                                     "relay.every(1, function() log('old') end)\n"
                                     "relay.every(1, function() relay.sleep(0.5) log('rest') end)\n"
                                     "return { create = function() relay.sleep(1.5)"
                                     " relay.after(0, function() log('late') end) end }"),
               0);
    rig_advance(&rig, 1.1);
    CHECK_EQ(count_lines("old"), 1);
    struct rig_request req;
    ask(&req);
    CHECK_EQ(reload("return { load = function() error('x') end }"), -EINVAL);
    rig_advance(&rig, 0.1);
    REQUIRE_EQ(reload("return {}"), 0);
    rig_advance(&rig, 10);
    CHECK_EQ(count_lines("old"), 1);
    CHECK_EQ(count_lines("rest"), 0);
    CHECK_EQ(count_lines("late"), 0);
    CHECK_STR(req.text, "none");
    CHECK_EQ(info().generations, 1);
    rig_end(&rig);
}

TEST(a_policy_has_a_bounded_number_of_timers_and_its_timers_a_bounded_time)
{
    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay' local stop\n"
                                     "for i = 1, 1000 do stop = relay.after(100, print or tostring)"
                                     " end\n return {}"),
               -EINVAL);
    REQUIRE_EQ(rig_load_policy(&rig,
                               "local relay = require 'relay' local stop\n"
                               "for i = 1, 999 do stop = relay.after(100, tostring) end\n"
                               "return { create = function()\n"
                               " relay.after(1, function() relay.await(function() end) end)\n"
                               " relay.after(1, tostring) end,\n"
                               " drop = function() stop() stop() relay.after(5, tostring) end }"),
               0);
    CHECK_STR(ask_now(), "failed policy-error by p");
    CHECK(strstr(rig.log_text, "p.lua:5: more than 1000 timers of one policy") != NULL);
    struct hook_event ev = rig_event(MR_HOOK_DROP);
    CHECK_STR(rig_ask(&rig, &ev), "none");
    rig_advance(&rig, 62);
    CHECK(strstr(rig.log_text, "p.lua:4: waited longer than 60 s (relay.await)") != NULL);
    CHECK_EQ(info().suspended, 0);
    REQUIRE_EQ(rig_load_policy(&rig, "local relay = require 'relay' return { create = function()"
                                     " relay.every(0.001, tostring) end }"),
               0);
    CHECK_STR(ask_now(), "failed policy-error by p");
    rig_end(&rig);
}

/* ---- commands -------------------------------------------------------------------------------- */

TEST(commands_return_text_or_json_or_say_what_failed)
{
    static const struct {
        const char *verb, *arg, *expected;
    } calls[] = {
        {"text", "x", "got x"},          {"number", NULL, "5"},
        {"yes", NULL, "true"},           {"nothing", NULL, ""},
        {"list", "a", "json [1,\"a\"]"}, {"missing", NULL, "-2: policy p has no command missing"},
        {"raises", NULL, "-22: "},       {"wrong", NULL, "-22: "},
        {"long", NULL, "-22: "},         {"loops", NULL, "-22: "},
        {"walks", NULL, "walked"},       {"text", "y", "got y"},
    };
    struct rig_answer answer;

    rig_start(&rig);
    rig.load.cpu_ns = 20000000;
    REQUIRE_EQ(rig_load_policy(
                   &rig,
                   "local relay = require 'relay' return { commands = {\n"
                   "text = function(a) return 'got ' .. a end, number = function() return 5 end,\n"
                   "yes = function() return true end, nothing = function() end,\n"
                   "list = function(a) return { 1, a } end, raises = function() error('bad') end,\n"
                   "wrong = function() return tostring end,\n"
                   "['long'] = function() local s = ('x'):rep(1e6) return s .. s end,\n"
                   "loops = function() while true do end end, walks = function()\n"
                   "local t = os.clock() while os.clock() - t < 0.05 do end return 'walked' end,\n"
                   "waits = function(a) relay.sleep(5) return a end,\n"
                   "hangs = function() relay.sleep(50) end } }"),
               0);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const char *text = rig_call(&rig, &answer, "p", calls[i].verb, calls[i].arg);

        CHECK_EQ(answer.calls, 1);
        CHECK_EQ(strncmp(text, calls[i].expected, strlen(calls[i].expected)), 0);
        if (strncmp(text, calls[i].expected, strlen(calls[i].expected)) != 0) {
            fprintf(stderr, "# %s: %s\n", calls[i].verb, text);
        }
    }
    CHECK_STR(rig_call(&rig, &answer, "q", "text", NULL), "-2: no policy q");
    CHECK(strstr(rig_call(&rig, &answer, "p", "raises", NULL), "p.lua:4: bad") != NULL);
    CHECK_STR(rig_call(&rig, &answer, "p", "waits", "later"), "");
    rig_advance(&rig, 5.1);
    CHECK_STR(answer.text, "later");
    CHECK_STR(rig_call(&rig, &answer, "p", "hangs", NULL), "");
    rig_advance(&rig, 31);
    CHECK(strstr(answer.text, "p.lua:10: waited longer than 30 s") != NULL);
    CHECK(strstr(rig.log_text, "hook=command") != NULL);
    rig_end(&rig);
}

/* ---- block lists ----------------------------------------------------------------------------- */

static bool count_list(void *user, const struct block_view *b)
{
    *(size_t *)user += b->nets;
    return true;
}

/* How many nets are in lists. */
static size_t listed(struct act *a)
{
    size_t n = 0;

    mr__blocks_each(a->world->service, count_list, &n);
    return n;
}

static int load_list(struct act *a, const char *more)
{
    char text[512];

    snprintf(text, sizeof text,
             "local relay = require 'relay' return { load = function() assert(relay.blocklist("
             "relay.cidr { '192.0.2.0/24', '198.51.100.0/24' }) == 0) %s end,"
             " create = function() relay.sleep(1) relay.blocklist(relay.cidr {}) return {} end }",
             more);
    rig_file(&a->rig, "p.lua", text);
    return a->rig.policies ? rig_reload(&a->rig, one_policy) : rig_load(&a->rig, one_policy);
}

TEST(a_list_that_load_makes_is_in_force_from_the_swap_on_and_only_then)
{
    static struct act a;
    struct hook_event ev = rig_event(MR_HOOK_CREATE);
    const struct hooks *hooks;
    struct rig_request req;

    act_begin(&a, NULL);
    CHECK_EQ(load_list(&a, "error('no')"), -EINVAL);
    CHECK_EQ(listed(&a), 0);
    a.rig.load.mode = MR_LOAD_CHECK;
    CHECK_EQ(load_list(&a, ""), 0);
    CHECK_EQ(listed(&a), 0);
    a.rig.load.mode = MR_LOAD_SWAP;
    REQUIRE_EQ(load_list(&a, ""), 0);
    CHECK_EQ(listed(&a), 2);
    CHECK_EQ(load_list(&a, "relay.blocklist(relay.cidr {}) error('no')"), -EINVAL);
    CHECK_EQ(listed(&a), 2);

    /* What waits in the generation before changes nothing any more. */
    rig_start_asking(&a.rig, &req, &ev);
    REQUIRE_EQ(load_list(&a, ""), 0);
    hooks = mr__policies_hooks(a.rig.policies);
    hooks->tick(hooks->self, UINT64_MAX / 2);
    CHECK_STR(req.text, "admit");
    CHECK_EQ(listed(&a), 2);

    /* A chain without the policy forgets its list. */
    REQUIRE_EQ(rig_reload(&a.rig, "return {}"), 0);
    CHECK_EQ(listed(&a), 0);
    act_end(&a);
}

/* ---- what is known of policies --------------------------------------------------------------- */

TEST(figures_belong_to_names_and_are_kept_over_reloads)
{
    struct policy_info p;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "return { create = function() return false end }"), 0);
    ask_now();
    ask_now();
    REQUIRE_EQ(reload("return { create = function() error 'x' end, commands = { a = tostring } }"),
               0);
    ask_now();
    mr__policies_info(rig.policies, 0, &p);
    CHECK_EQ(p.hooks[MR_HOOK_CREATE].calls, 3);
    CHECK_EQ(p.hooks[MR_HOOK_CREATE].refusals, 2);
    CHECK_EQ(p.hooks[MR_HOOK_CREATE].errors, 1);
    CHECK(p.hooks[MR_HOOK_CREATE].is_defined);
    CHECK(!p.hooks[MR_HOOK_DROP].is_defined);
    CHECK_EQ(p.n_commands, 1);
    REQUIRE_EQ(reload("abc"), -EINVAL);
    REQUIRE_EQ(reload("return {} --\n"), 0);
    mr__policies_info(rig.policies, 0, &p);
    CHECK_STR(p.sha256, "df8c250b61d25931b48cf0627ab5c80e5bb22035647d0baaaf33e68627e117a8");
    rig_end(&rig);
}

TEST(figures_of_names_that_are_gone_are_bounded)
{
    char config[128], file[64];

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, "return {}"), 0);
    for (int i = 0; i < 300; i++) {
        snprintf(file, sizeof file, "p%d.lua", i);
        rig_file(&rig, file, "return {}");
        snprintf(config, sizeof config, "return { policies = { './%s' } }", file);
        REQUIRE_EQ(rig_reload(&rig, config), 0);
    }
    CHECK_LE(rig.policies->figures.n, FIGURE_POLICIES_MAX);
    CHECK_GE(rig.policies->figures.n, FIGURE_POLICIES_MAX - 1);
    rig_end(&rig);
}

TEST(three_thousand_reloads_under_chains_and_timers_leave_nothing_behind)
{
    static struct rig_request reqs[16];
    static const char text[] =
        "local relay = require 'relay'\n"
        "relay.every(0.5, function() relay.sleep(0.2) end)\n"
        "relay.after(0.1, function() relay.await(function() end) end)\n"
        "return { load = function() relay.sleep(0.01) end, create = function() relay.sleep(0.3)"
        " return { ttl = 1 } end, destroyed = function() relay.sleep(0.4) end }";
    struct hook_event ev = rig_event(MR_HOOK_DESTROYED);
    long live = 0;

    rig_start(&rig);
    REQUIRE_EQ(rig_load_policy(&rig, text), 0);
    for (int i = 0; i < 3000; i++) {
        const struct hooks *hooks = mr__policies_hooks(rig.policies);

        if (reqs[i % 16].request.decider) {
            hooks->cancel(hooks->self, &reqs[i % 16].request);
        }
        ask(&reqs[i % 16]);
        hooks->tell(hooks->self, &ev);
        if (rig_reload(&rig, one_policy) != -EINPROGRESS) {
            CHECK_EQ(rig.rc, 0);
        }
        rig_advance(&rig, 0.05);
        CHECK_EQ(rig.rc, 0);
        CHECK_LE(info().generations, 12);
        if (i == 100) {
            live = mr__alloc_live();
        }
    }
    CHECK_LE(mr__alloc_live(), live + 64);
    CHECK_EQ(info().number, 3001);
    rig_advance(&rig, 3);
    CHECK_EQ(info().generations, 1);
    rig_end(&rig);
    memset(reqs, 0, sizeof reqs);
    CHECK_EQ(mr__alloc_live(), 0);
}

TEST_MAIN(TEST_CASE(policies_that_loaded_nothing_want_nothing_and_admit_by_nobody),
          TEST_CASE(a_reload_that_fails_leaves_the_generation_before_alone_and_says_where),
          TEST_CASE(a_load_that_waits_lets_the_generation_before_serve_and_another_load_is_busy),
          TEST_CASE(a_check_loads_everything_and_changes_nothing),
          TEST_CASE(what_waits_ends_in_the_generation_it_began_in),
          TEST_CASE(a_shadow_behind_a_wait_holds_the_generation_of_its_chain_and_no_other),
          TEST_CASE(a_generation_before_ends_at_the_latest_with_the_deadline_of_what_waits),
          TEST_CASE(policies_that_end_answer_nothing_that_waits),
          TEST_CASE(load_cannot_act_on_players_and_blocks),
          TEST_CASE(rollback_goes_back_to_the_sources_before_and_a_second_one_forward_again),
          TEST_CASE(rollback_goes_past_what_was_loaded_more_than_once),
          TEST_CASE(require_sees_files_below_the_policys_folder_and_nothing_else),
          TEST_CASE(a_required_file_runs_once_in_the_environment_of_its_policy),
          TEST_CASE(timers_run_when_they_are_due_and_until_they_are_cancelled),
          TEST_CASE(timers_end_with_their_generation),
          TEST_CASE(a_policy_has_a_bounded_number_of_timers_and_its_timers_a_bounded_time),
          TEST_CASE(commands_return_text_or_json_or_say_what_failed),
          TEST_CASE(a_list_that_load_makes_is_in_force_from_the_swap_on_and_only_then),
          TEST_CASE(figures_belong_to_names_and_are_kept_over_reloads),
          TEST_CASE(figures_of_names_that_are_gone_are_bounded),
          TEST_CASE(three_thousand_reloads_under_chains_and_timers_leave_nothing_behind))
