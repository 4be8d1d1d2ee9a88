/* SPDX-License-Identifier: MIT */
/*
 * A thousand loads, good and broken, while chains, notices and timers of older
 * generations wait: whatever happens to them, nothing is left. The clock is the test's. The
 * daemon under traffic is in tests/e2e/reload_storm_spec.lua. Start reading at storm().
 */
#include "act.h"
#include "base/alloc.h"
#include "test.h"

enum { LOADS = 1000, LOADS_FEWER = 200, ASKED_MAX = 64 };

static struct act storm_act;
static struct rig *const rig = &storm_act.rig;
static unsigned loads_ok, loads_failed;
static char first_error[1024];

/* A request of the service; NULL request.done: its place is free. */
struct asked {
    struct hook_request request;
    unsigned answers;
    bool is_pending;
};

static struct asked asked[ASKED_MAX];
static unsigned n_asked, n_answered, n_cancelled;

static void on_loaded(void *user, int rc, const struct script_error *err)
{
    (void)user;
    if (rc != 0 && first_error[0] == 0 && loads_ok == 0) {
        snprintf(first_error, sizeof first_error, "%s", err->text);
    }
    if (rc == 0) {
        loads_ok++;
    } else {
        loads_failed++;
    }
}

static void on_done(struct hook_request *req, const struct hook_answer *answer)
{
    struct asked *a = (struct asked *)req;

    (void)answer;
    CHECK(a->is_pending);
    a->is_pending = false;
    a->answers++;
    n_answered++;
}

static void tick(uint64_t passed_ns)
{
    const struct hooks *hooks = mr__policies_hooks(rig->policies);

    storm_act.world->now_ns += passed_ns;
    hooks->tick(hooks->self, storm_act.world->now_ns);
}

static void ask_somewhere(void)
{
    static const enum hook decisions[] = {MR_HOOK_REGISTER, MR_HOOK_CONNECT, MR_HOOK_CREATE,
                                          MR_HOOK_DROP};
    const struct hooks *hooks = mr__policies_hooks(rig->policies);
    struct asked *a = &asked[test_random_below(ASKED_MAX)];
    struct hook_event ev = rig_event(decisions[test_random_below(4)]);

    if (a->is_pending) { /* whoever asked has left */
        hooks->cancel(hooks->self, &a->request);
        a->is_pending = false;
        n_cancelled++;
        return;
    }
    *a = (struct asked){.request = {.done = on_done}, .is_pending = true};
    n_asked++;
    hooks->ask(hooks->self, &a->request, &ev);
}

static void tell_something(void)
{
    static const enum hook notices[] = {MR_HOOK_DESTROYED, MR_HOOK_LEFT};
    const struct hooks *hooks = mr__policies_hooks(rig->policies);
    enum hook hook = notices[test_random_below(2)];
    struct hook_event ev = rig_event(hook);

    hooks->tell(hooks->self, &ev);
}

/* Hooks that wait for longer and shorter than a generation lives, and for ever; timers that are
 * due and that are not; everything that C keeps for a script. */
static const char good[] =
    "local relay = require 'relay'\n"
    "local part = require 'part'\n"
    "local n = 0\n"
    "local function think() n = n + 1 relay.sleep(part.times[n % #part.times + 1]) end\n"
    "return {\n"
    "  load = function()\n"
    "    relay.every(0.01, think)\n"
    "    relay.every(0.05, function() n = n + 1 if n % 7 == 0 then error('a timer') end end)\n"
    "    relay.after(0.02, function() relay.await(function(done) part.done = done end) end)\n"
    "    relay.after(1, think)()\n"
    "    local kept = relay.store('kept', { max = 100 })\n"
    "    relay.after(0, function() kept:set(tostring(relay.now()), 'x') end)\n"
    "    relay.metric('things', 'counter', 'of a test')\n"
    "    if math.random(3) == 1 then relay.sleep(0.005) end\n"
    "  end,\n"
    "  register = think, connect = think, create = think, destroyed = think, left = think,\n"
    "  drop = function() think() error('after a while') end,\n"
    "}\n";

static const char *const broken[] = {
    "return { load = function() error('on purpose') end }",
    "return { load = function() require('relay').sleep(0.005) error('late') end }",
    "return { load = function() require('relay').sleep(3600) end }",
    "local relay = require 'relay' relay.every(1, function() end) return { registr = 1 }",
    "require 'missing'",
    "return {",
    "local t = {} for i = 1, 1e9 do t[i] = { i } end",
};

static void start_load(unsigned i)
{
    struct policies_load load = {.memory_bytes = 4u << 20, .done = on_loaded};
    const char *first[1];
    char path[256];
    int rc;

    rig_file(rig, "p.lua", i % 4 == 3 ? broken[i / 4 % (sizeof broken / sizeof *broken)] : good);
    snprintf(path, sizeof path, "%s/p.lua", rig->folder);
    first[0] = path;
    load.first = first;
    load.n_first = 1;
    rc = i % 16 == 7 ? mr__policies_rollback(rig->policies, on_loaded, NULL)
                     : mr__policies_load(rig->policies, &load);
    if (rc == -EBUSY) {
        tick(500000000); /* as long as a load may take is far longer than a generation lives here */
    } else {
        CHECK(rc == 0 || (rc == -ENOENT && loads_ok < 2));
    }
}

static void storm(unsigned loads)
{
    for (unsigned i = 0; loads_ok + loads_failed < loads; i++) {
        start_load(i);
        for (unsigned n = test_random_below(8); n > 0; n--) {
            ask_somewhere();
            tell_something();
            tick(test_random_below(10) * 1000000);
        }
        rig->log_n = 0;
    }
}

static void start(void)
{
    act_begin(&storm_act, NULL);
    rig_file(rig, "part.lua", "return { times = { 0, 0.001, 0.02, 0.5, 60 } }");
    loads_ok = loads_failed = n_asked = n_answered = n_cancelled = 0;
    memset(asked, 0, sizeof asked);
    REQUIRE_EQ(mr__policies_create(&rig->policies, &rig->opts), 0);
}

TEST(after_a_thousand_loads_good_and_broken_nothing_is_left)
{
    long live = mr__alloc_live();

    start();
    storm(LOADS);
    CHECK_STR(first_error, "");
    CHECK_LE(LOADS / 4, loads_ok);
    CHECK_LE(LOADS / 8, loads_failed);
    /* In the middle of everything: chains, notices, timers and a load are waiting. */
    act_end(&storm_act);
    CHECK_EQ(mr__alloc_live(), live);
}

TEST(every_request_of_a_storm_is_answered_once_or_cancelled)
{
    struct generation_info info;

    start();
    storm(LOADS_FEWER);
    for (int s = 0; s < 100; s++) {
        tick(1000000000);
    }
    for (size_t i = 0; i < ASKED_MAX; i++) {
        CHECK(!asked[i].is_pending);
    }
    CHECK_EQ(n_answered + n_cancelled, n_asked);
    CHECK_LE(LOADS_FEWER, n_answered);
    mr__policies_generation(rig->policies, &info);
    CHECK_EQ(info.generations, 1);
    CHECK_LE(info.suspended, 16); /* its own timers */
    act_end(&storm_act);
}

TEST_MAIN(TEST_CASE(after_a_thousand_loads_good_and_broken_nothing_is_left),
          TEST_CASE(every_request_of_a_storm_is_answered_once_or_cancelled))
