/* SPDX-License-Identifier: MIT */
/*
 * See run.h and wait.h. Control thread only. Start reading at step().
 */
#include "script/run.h"

#include "script/generation.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const size_t mr__run_waiting_max[RUN_KIND_COUNT] = {
    [RUN_DECISION] = 1024, [RUN_SHADOW] = 1024, [RUN_NOTICE] = 1024,
    [RUN_TIMER] = 1024,    [RUN_COMMAND] = 64,  [RUN_LOAD] = 1,
};

static const uint64_t NS_PER_S = 1000000000;

/* Commands go through all players: telling 8,192 of them a word takes 45 ms. An operator asks one
 * at a time, so that they may keep the control thread longer than what players cause. */
enum { COMMAND_CPU_FACTOR = 10 };

static struct generation *generation_of(const struct run *r)
{
    return r->policy->generation;
}

static uint64_t mono_ns(const struct runs *rs)
{
    return rs->mono_ns(rs->user);
}

/* ---- limits of a kind ------------------------------------------------------------------------ */

static uint64_t cpu_ns_of(const struct run *r)
{
    const struct generation_options *o = &generation_of(r)->opts;

    switch (r->class->kind) {
    case RUN_LOAD:
        return o->load_cpu_ns;
    case RUN_COMMAND:
        return o->cpu_ns * COMMAND_CPU_FACTOR;
    default:
        return o->cpu_ns;
    }
}

static uint64_t wait_ns_of(const struct run *r)
{
    switch (r->class->kind) {
    case RUN_LOAD:
        return 10 * NS_PER_S;
    case RUN_TIMER:
        return 60 * NS_PER_S;
    case RUN_DECISION:
    case RUN_SHADOW:
        return generation_of(r)->opts.wait_ns;
    default:
        return 30 * NS_PER_S;
    }
}

/* ---- coroutines ------------------------------------------------------------------------------ */

static void take_thread(lua_State *L, struct run *r)
{
    struct generation *g = generation_of(r);

    if (g->n_idle > 0) {
        g->n_idle--;
        r->co = g->idle[g->n_idle].co;
        r->anchor = g->idle[g->n_idle].anchor;
        return;
    }
    r->co = lua_newthread(L);
    r->anchor = mr__anchor_add(L, &g->anchors);
}

static void give_thread(struct run *r)
{
    struct generation *g = generation_of(r);

    lua_settop(r->co, 0);
    if (g->n_idle < RUN_IDLE_MAX) {
        g->idle[g->n_idle].co = r->co;
        g->idle[g->n_idle].anchor = r->anchor;
        g->n_idle++;
    } else {
        mr__anchor_remove(g->state.L, &g->anchors, r->anchor);
    }
    r->co = NULL;
    r->anchor = 0;
}

/* One that failed, or was abandoned while it waited, is not used again. */
static void drop_thread(struct run *r)
{
    struct generation *g = generation_of(r);

    mr__anchor_remove(g->state.L, &g->anchors, r->anchor);
    r->co = NULL;
    r->anchor = 0;
}

/* ---- a leg: from the start or a wait's end to the next wait or the end -------------------------
 */

struct leg {
    struct run *run;
    int (*push)(lua_State *L, void *user); /* NULL: the first one */
    void *user;
    struct script_failure *failure;
    int rc;
};

/* Names the place where the function is written, for what has no line of its own: a wrong answer,
 * an error behind a tail call or raised without a place. */
static void say_at_function(lua_State *L, struct run *r, struct script_failure *failure)
{
    lua_Debug ar;
    char text[SCRIPT_ERROR_MAX + LUA_IDSIZE + 16];

    if (r->class->kind == RUN_LOAD && r->policy->source->is_shipped) {
        return; /* what is wrong is in the config file then */
    }
    r->class->push_function(L, r);
    if (!lua_getinfo(L, ">S", &ar) || ar.linedefined <= 0 || strstr(failure->text, ar.short_src)) {
        return;
    }
    snprintf(text, sizeof text, "%s:%d: %s", ar.short_src, ar.linedefined, failure->text);
    mr__state_line(failure->text, sizeof failure->text, text, strlen(text));
}

/* Our own Lua (relay.await) is no place that its author could look at. */
static bool is_line_of_script(lua_State *L, lua_Debug *ar)
{
    return lua_getinfo(L, "Sl", ar) && ar->currentline > 0 && ar->source[0] == '@';
}

/* Names the innermost line of the script in a coroutine that yielded (the C function that did it is
 * above), and the calls that led there. */
static void say_where(lua_State *L, lua_State *co, struct script_failure *failure)
{
    char text[SCRIPT_ERROR_MAX + LUA_IDSIZE + 16];
    lua_Debug ar;

    for (int level = 0; lua_getstack(co, level, &ar); level++) {
        if (is_line_of_script(co, &ar)) {
            snprintf(text, sizeof text, "%s:%d: %s", ar.short_src, ar.currentline, failure->text);
            mr__state_line(failure->text, sizeof failure->text, text, strlen(text));
            break;
        }
    }
    mr__state_say_frames(L, co, failure);
}

/* Returns how many arguments or results are now on the coroutine. */
static int push_leg(lua_State *L, struct leg *leg)
{
    struct run *r = leg->run;
    int n;

    if (leg->push) {
        n = leg->push(L, leg->user);
    } else {
        take_thread(L, r);
        r->class->push_function(L, r);
        n = 1 + (r->class->push_arguments ? r->class->push_arguments(L, r) : 0);
    }
    if (!lua_checkstack(r->co, n)) {
        luaL_error(L, "too many values");
    }
    lua_xmove(L, r->co, n);
    return leg->push ? n : n - 1;
}

static int take_results(lua_State *L, struct leg *leg)
{
    struct run *r = leg->run;
    int base = lua_gettop(L), n = lua_gettop(r->co);

    n = n < RUN_RESULTS_MAX ? n : RUN_RESULTS_MAX;
    lua_settop(r->co, n);
    lua_xmove(r->co, L, n);
    give_thread(r);
    return r->class->take ? r->class->take(L, r, base + 1, n, leg->failure) : 0;
}

static int run_leg(lua_State *L)
{
    struct leg *leg = lua_touserdata(L, 1);
    struct run *r = leg->run;
    int nargs;

    luaL_checkstack(L, LUA_MINSTACK, "hook");
    mr__state_begin_budget(&generation_of(r)->state, cpu_ns_of(r), r->used);
    nargs = push_leg(L, leg);
    leg->rc = mr__state_go(L, r->co, nargs, &r->used, leg->failure);
    if (leg->rc == 0) {
        leg->rc = take_results(L, leg);
    } else if (leg->rc == LUA_YIELD && !r->wait.is_begun) {
        snprintf(leg->failure->text, sizeof leg->failure->text,
                 "called coroutine.yield() outside of a coroutine of its own");
        say_where(L, r->co, leg->failure);
        leg->rc = -EINVAL;
    }
    if (leg->rc < 0) {
        say_at_function(L, r, leg->failure);
    }
    return 0;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void on_deadline(struct alarm *a, uint64_t now_ns)
{
    (void)now_ns;
    mr__run_time_out((struct run *)(void *)((char *)a - offsetof(struct run, deadline)));
}

static void begin_waiting(struct run *r)
{
    struct generation *g = generation_of(r);

    if (r->deadline.at_ns == 0) {
        r->deadline.at_ns = mono_ns(g->runs) + wait_ns_of(r);
        r->deadline.ring = on_deadline;
    }
    mr__alarm_set(&g->runs->alarms, &r->deadline, r->deadline.at_ns);
    g->runs->n_waiting[r->class->kind]++;
    r->is_waiting = true;
    r->prev = NULL;
    r->next = g->waiting;
    if (g->waiting) {
        g->waiting->prev = r;
    }
    g->waiting = r;
}

static void end_waiting(struct run *r)
{
    struct generation *g = generation_of(r);

    mr__alarm_clear(&g->runs->alarms, &r->deadline);
    mr__alarm_clear(&g->runs->alarms, &r->alarm);
    g->runs->n_waiting[r->class->kind]--;
    r->is_waiting = false;
    r->wait.is_begun = false;
    if (r->prev) {
        r->prev->next = r->next;
    } else {
        g->waiting = r->next;
    }
    if (r->next) {
        r->next->prev = r->prev;
    }
}

static void forget_wait(struct run *r)
{
    void (*f)(void *user) = r->wait.forget;

    r->wait.is_begun = false;
    if (f) {
        f(r->wait.user);
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void end(struct run *r)
{
    struct runs *rs = generation_of(r)->runs;

    r->end_ns = mono_ns(rs);
    if (r->anchor != 0) {
        drop_thread(r);
    }
    mr__alarm_clear(&rs->alarms, &r->alarm);
    if (r->has_places) {
        mr__alarms_release(&rs->alarms, 2);
        r->has_places = false;
    }
}

/*
 * Runs one leg. Everything that can go wrong in it comes back here: what the script
 * raised, memory that ended in pushing its arguments or taking its results, and that
 * somebody gave it up while it ran (its own script may have kicked the player whose
 * request it is).
 */
static int step(struct run *r, struct leg *leg)
{
    struct generation *g = generation_of(r);
    struct runs *rs = g->runs;
    struct run *outer = g->state.running;
    uint64_t start_ns = mono_ns(rs);
    int rc;

    if (!leg->push) {
        r->start_ns = start_ns;
    }
    leg->run = r;
    g->state.running = r;
    r->is_running = true;
    rs->depth++;
    rc = mr__state_enter(&g->state, run_leg, leg, leg->failure);
    rs->depth--;
    r->is_running = false;
    g->state.running = outer;
    rc = rc != 0 ? rc : leg->rc;
    if (rc == LUA_YIELD && !r->is_given_up) {
        begin_waiting(r);
        rc = RUN_WAITS;
    } else {
        if (r->wait.is_begun) {
            forget_wait(r);
        }
        rc = r->is_given_up ? -ECANCELED : rc;
        end(r);
    }
    if (rs->depth == 0) {
        rs->spent_ns += (rc == RUN_WAITS ? mono_ns(rs) : r->end_ns) - start_ns;
    }
    return rc;
}

int mr__run_start(struct run *r, const struct run_class *class, struct policy *policy,
                  struct script_failure *failure)
{
    struct leg leg = {.failure = failure};

    *r = (struct run){.class = class, .policy = policy};
    return step(r, &leg);
}

void mr__run_abandon(struct run *r)
{
    if (r->is_running) {
        r->is_given_up = true;
    } else if (r->is_waiting) {
        end_waiting(r);
        forget_wait(r);
        end(r);
    }
}

/* ---- deadlines ------------------------------------------------------------------------------- */

struct where {
    struct run *run;
    struct script_failure *failure;
};

static int say_deadline(lua_State *L)
{
    const struct where *w = lua_touserdata(L, 1);

    say_where(L, w->run->co, w->failure);
    return 0;
}

void mr__run_time_out(struct run *r)
{
    struct script_failure failure = {.text = "", .traceback = ""}, ignored;
    struct where w = {r, &failure};

    snprintf(failure.text, sizeof failure.text, "waited longer than %.6g s (%s)",
             (double)wait_ns_of(r) / 1e9, r->wait.what);
    mr__state_enter(&generation_of(r)->state, say_deadline, &w, &ignored);
    mr__run_abandon(r);
    r->class->ended(r, -ETIMEDOUT, &failure);
}

bool mr__run_is_lookup(lua_State *L)
{
    const struct run *r = mr__state_of(L)->running;

    return r && r->class->is_lookup;
}

/* ---- wait.h ---------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void refuse(lua_State *L, const char *format, ...)
{
    char text[256];
    va_list args;
    lua_Debug ar;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (int level = 1; lua_getstack(L, level, &ar); level++) {
        if (is_line_of_script(L, &ar)) {
            lua_pushfstring(L, "%s:%d: %s", ar.short_src, ar.currentline, text);
            lua_error(L);
        }
    }
    lua_pushstring(L, text);
    lua_error(L);
}

struct wait *mr__wait_begin(lua_State *L, const char *what, void (*forget)(void *user), void *user)
{
    struct run *r = mr__state_of(L)->running;
    struct runs *rs;

    if (!r) {
        luaL_error(
            L,
            "%s: waiting is possible in hooks, notices, load, timers and commands, not while "
            "a file is read",
            what);
    }
    if (L != r->co) {
        refuse(L, "%s: a coroutine of your own cannot wait (call it outside of that)", what);
    }
    if (!lua_isyieldable(L)) {
        refuse(L,
               "%s: cannot wait inside of a function that C calls (table.sort, string.gsub, "
               "a metamethod, the top of a required file)",
               what);
    }
    rs = generation_of(r)->runs;
    if (rs->n_waiting[r->class->kind] >= mr__run_waiting_max[r->class->kind]) {
        r->is_refused_to_wait = true;
        refuse(L, "%s: %d of this kind wait already", what,
               (int)mr__run_waiting_max[r->class->kind]);
    }
    if (!r->has_places && mr__alarms_reserve(&rs->alarms, 2) != 0) {
        refuse(L, "%s: not enough memory", what);
    }
    r->has_places = true;
    r->wait =
        (struct wait){.run = r, .what = what, .forget = forget, .user = user, .is_begun = true};
    return &r->wait;
}

int mr__wait_yield(lua_State *L, struct wait *w)
{
    (void)w;
    return lua_yield(L, 0);
}

void mr__wait_drop(struct wait *w)
{
    mr__alarm_clear(&generation_of(w->run)->runs->alarms, &w->run->alarm);
    w->is_begun = false;
}

void mr__wait_end(struct wait *w, int (*push)(lua_State *L, void *user), void *user)
{
    struct run *r = w->run;
    struct script_failure failure = {.text = "", .traceback = ""};
    struct leg leg = {.push = push, .user = user, .failure = &failure};
    int rc;

    end_waiting(r);
    rc = step(r, &leg);
    if (rc != RUN_WAITS) {
        r->class->ended(r, rc, &failure);
    }
}

struct alarm *mr__wait_alarm(struct wait *w)
{
    return &w->run->alarm;
}

struct wait *mr__wait_of_alarm(struct alarm *a)
{
    struct run *r = (struct run *)(void *)((char *)a - offsetof(struct run, alarm));

    return &r->wait;
}
