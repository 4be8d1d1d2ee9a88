/* SPDX-License-Identifier: MIT */
/*
 * The part of the module `relay` about time that passes: sleep, await, after, every.
 * Control thread. Start reading at on_sleep(), the simplest of those that wait.
 */
#include "script/argument.h"
#include "script/generation.h"
#include "script/module_part.h"
#include "script/timer.h"
#include "script/wait.h"

#include <stdint.h>
#include <string.h>

static const double SECONDS_MAX = 86400 * 366.0;
static const double PERIOD_MIN = 0.01; /* of every(): less would be a loop */

enum { VALUES_MAX = 32 }; /* of what done() hands over */

static uint64_t now_ns(const struct policy *p)
{
    return p->generation->runs->mono_ns(p->generation->runs->user);
}

static void set_alarm(const struct policy *p, struct wait *w, uint64_t at_ns,
                      void (*ring)(struct alarm *a, uint64_t now_ns))
{
    struct alarm *a = mr__wait_alarm(w);

    a->ring = ring;
    mr__alarm_set(&p->generation->runs->alarms, a, at_ns);
}

/* ---- sleep ----------------------------------------------------------------------------------- */

static int push_nothing(lua_State *L, void *user)
{
    (void)L;
    (void)user;
    return 0;
}

static void on_slept(struct alarm *a, uint64_t at_ns)
{
    (void)at_ns;
    mr__wait_end(mr__wait_of_alarm(a), push_nothing, NULL);
}

static int on_sleep(lua_State *L)
{
    struct policy *p = mr__module_policy(L);
    double seconds = mr__argument_number(L, 1, "relay.sleep", "seconds", 0, SECONDS_MAX,
                                         "a number of seconds, 0 or more, is expected");
    struct wait *w = mr__wait_begin(L, "relay.sleep", NULL, NULL);

    set_alarm(p, w, now_ns(p) + (uint64_t)(seconds * 1e9), on_slept);
    return mr__wait_yield(L, w);
}

/* ---- await ----------------------------------------------------------------------------------- */

/*
 * A userdata that both the waiting function and done() have. done() may be called by any
 * script at any time, so it wakes nobody itself: it keeps what it was given and lets the
 * wait's alarm ring in the next tick.
 */
struct awaited {
    struct policy *policy;
    struct wait *wait; /* NULL: nobody waits (yet, or any more) */
    int values;        /* an anchor, while somebody waits; before that they are the environment */
    bool is_done;
};

static void push_values_table(lua_State *L, int n)
{
    lua_createtable(L, n, 1);
    for (int i = 1; i <= n; i++) {
        lua_pushvalue(L, i);
        lua_rawseti(L, -2, i);
    }
    lua_pushinteger(L, n);
    lua_setfield(L, -2, "n");
}

static int on_done(lua_State *L)
{
    struct awaited *a = lua_touserdata(L, lua_upvalueindex(1));
    struct generation *g = a->policy->generation;
    int n = lua_gettop(L);

    if (a->is_done) {
        return 0;
    }
    luaL_argcheck(L, n <= VALUES_MAX, VALUES_MAX + 1, "relay.await: done() has at most 32 values");
    push_values_table(L, n);
    if (a->wait) {
        a->values = mr__anchor_add(L, &g->anchors);
        mr__alarm_set(&g->runs->alarms, mr__wait_alarm(a->wait), 0);
    } else {
        lua_setfenv(L, lua_upvalueindex(1));
    }
    a->is_done = true;
    return 0;
}

/* Pushes what is in the table of values at the top. */
static int push_values(lua_State *L)
{
    int table = lua_gettop(L), n;

    lua_getfield(L, table, "n");
    n = (int)lua_tointeger(L, -1);
    lua_pop(L, 1);
    luaL_checkstack(L, n, "relay.await");
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, table, i);
    }
    return n;
}

/* At the line of the script: the Lua below is between. */
static void refuse_await(lua_State *L, const char *why)
{
    luaL_where(L, 2);
    lua_pushstring(L, why);
    lua_concat(L, 2);
    lua_error(L);
}

/* (start, timeout) -> the userdata and its done(), for the Lua below, which calls start(done): what
 * C calls cannot wait. */
static int on_await_begin(lua_State *L)
{
    struct awaited *a;

    if (!lua_isfunction(L, 1)) {
        refuse_await(L, "relay.await: a function start(done) is expected");
    }
    if (!lua_isnoneornil(L, 2) && !(lua_type(L, 2) == LUA_TNUMBER && lua_tonumber(L, 2) >= 0 &&
                                    lua_tonumber(L, 2) <= SECONDS_MAX)) {
        refuse_await(L, "relay.await: timeout is no number of seconds, 0 or more");
    }
    a = lua_newuserdata(L, sizeof *a);
    *a = (struct awaited){.policy = mr__module_policy(L)};
    lua_pushvalue(L, -1);
    lua_pushcclosure(L, on_done, 1);
    return 2;
}

static void forget_awaited(void *user)
{
    struct awaited *a = user;
    struct generation *g = a->policy->generation;

    a->wait = NULL;
    mr__anchor_remove(g->state.L, &g->anchors, a->values);
    a->values = 0;
}

static int push_awaited(lua_State *L, void *user)
{
    struct awaited *a = user;
    struct generation *g = a->policy->generation;

    if (!a->is_done) {
        return mr__module_fail(L, "timeout", "timeout");
    }
    mr__anchor_push(L, &g->anchors, a->values);
    mr__anchor_remove(L, &g->anchors, a->values);
    a->values = 0;
    return push_values(L);
}

static void on_awaited(struct alarm *alarm, uint64_t at_ns)
{
    struct wait *w = mr__wait_of_alarm(alarm);
    struct awaited *a = w->user;

    (void)at_ns;
    a->wait = NULL;
    mr__wait_end(w, push_awaited, a);
}

/* The userdata is alive as long as this waits: the Lua function below has it in a local. */
static int on_await_end(lua_State *L)
{
    struct policy *p = mr__module_policy(L);
    struct awaited *a = lua_touserdata(L, 1);
    uint64_t at_ns = UINT64_MAX;

    if (a->is_done) {
        lua_getfenv(L, 1);
        return push_values(L);
    }
    if (!lua_isnoneornil(L, 2)) {
        at_ns = now_ns(p) + (uint64_t)(lua_tonumber(L, 2) * 1e9);
    }
    a->wait = mr__wait_begin(L, "relay.await", forget_awaited, a);
    set_alarm(p, a->wait, at_ns, on_awaited);
    return mr__wait_yield(L, a->wait);
}

static const char await_text[] =
    "local begin, finish = ...\n"
    "local function pass(...) return ... end\n"
    "return function(start, timeout)\n"
    "  local awaited, done = begin(start, timeout)\n"
    "  start(done)\n"
    "  return pass(finish(awaited, timeout))\n" /* no tail call: it would let go of awaited */
    "end\n";

/* Adds it to the table at the top. */
static void add_await(lua_State *L, struct policy *p)
{
    if (luaL_loadbufferx(L, await_text, sizeof await_text - 1, "=relay.await", "t") != 0) {
        lua_error(L);
    }
    lua_pushlightuserdata(L, p);
    lua_pushcclosure(L, on_await_begin, 1);
    lua_pushlightuserdata(L, p);
    lua_pushcclosure(L, on_await_end, 1);
    lua_call(L, 2, 1);
    lua_setfield(L, -2, "await");
}

/* ---- timers ---------------------------------------------------------------------------------- */

/* upvalues: the policy, the timer's number (53 bits are enough for all there will ever be) */
static int on_cancel(lua_State *L)
{
    mr__timer_cancel(mr__module_policy(L)->generation,
                     (uint64_t)lua_tonumber(L, lua_upvalueindex(2)));
    return 0;
}

static int add_timer(lua_State *L, const char *name, double min, int is_repeated)
{
    struct policy *p = mr__module_policy(L);
    double seconds =
        mr__argument_number(L, 1, name, "seconds", min, SECONDS_MAX,
                            is_repeated ? "a number of seconds, 0.01 or more, is expected"
                                        : "a number of seconds, 0 or more, is expected");
    uint64_t ns = (uint64_t)(seconds * 1e9), number;

    luaL_argcheck(L, lua_isfunction(L, 2), 2, "a function is expected");
    /* The function that cancels it comes first: when there is no memory for it, no timer is left
     * behind that nobody could cancel. */
    lua_settop(L, 2);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushnumber(L, 0);
    lua_pushcclosure(L, on_cancel, 2);
    lua_insert(L, 2);
    number = mr__timer_add(L, p, ns, is_repeated ? ns : 0);
    lua_pushnumber(L, (double)number);
    lua_setupvalue(L, 2, 2);
    return 1;
}

static int on_after(lua_State *L)
{
    return add_timer(L, "relay.after", 0, 0);
}

static int on_every(lua_State *L)
{
    return add_timer(L, "relay.every", PERIOD_MIN, 1);
}

void mr__module_open_time(lua_State *L, struct policy *p)
{
    static const luaL_Reg functions[] = {
        {"sleep", on_sleep}, {"after", on_after}, {"every", on_every}, {NULL, NULL}};

    mr__module_add(L, functions, p);
    add_await(L, p);
}
