/* SPDX-License-Identifier: MIT */
/*
 * Memory cap, CPU budget, protected entry, coroutines and tracebacks of a Lua state.
 * Control thread only. Start reading at mr__state_enter().
 *
 *   mr__state_enter ── lua_cpcall ── fn(L): pushes arguments, may run out of memory
 *                                     └─ mr__state_go ── coroutine: the script
 *                                                         └─ on_count, every 100
 *                                                            instructions
 *
 * The script runs in a coroutine and not under lua_pcall with a message handler: after an
 * error its stack is still there, so the traceback is made from outside, where nothing a
 * script did can make a handler fail or loop; and what waits yields (run.c).
 */
#include "script/state.h"

#include <errno.h>
#include <luajit.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    /* Instructions between two looks at the clock: 1 to 2 us in the interpreter. Few, because one
     * of them may be a call of C that takes milliseconds (table.insert into a million items). */
    COUNT_STEP = 100,
    /* An allocation from which on the next instruction looks at the clock: what makes strings of
     * megabytes takes milliseconds an instruction. */
    LARGE_BYTES = 64 * 1024,
    /* Of the 8 MiB that a thread usually has; 128 KiB (musl) would want a smaller one. Not more,
     * since LuaJIT unwinds an error in the square of the calls of C: 2,300 sorts inside of one
     * another, which are 512 KiB, took it 90 ms. */
    C_STACK_BYTES = 256 * 1024,
    SMALL_BYTES = 2 << 20,
    /* Of one string or table that a script makes: an instruction on it is done in some milliseconds
     * then. An array of 2^19 values and a table of 2^17 keys fit. What C gives to a script that
     * waited may be larger (relay.read). */
    SINGLE_BYTES_MAX = (4 << 20) + 4096,
    /* What going on costs at least, so that one that waits for nothing over and over comes to an
     * end too. */
    LEG_NS = 5000,
};

static const uint64_t NS_PER_S = 1000000000;

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void on_count(lua_State *L, lua_Debug *ar);

/* ---- memory ----------------------------------------------------------------------------------
 * We count for LuaJIT's own allocator instead of bringing one: on machines with more than 47 bits
 * of addresses (arm64) only that one finds memory LuaJIT can use. Shrinking must never fail. */

static long until_failure; /* of tests, which have one thread with states */

void mr__state_fail_alloc(long n)
{
    until_failure = n;
}

bool mr__state_will_fail(void)
{
    return until_failure > 0;
}

static void *count_alloc(void *user, void *p, size_t old_n, size_t n)
{
    struct script_state *st = user;
    void *q;

    if (until_failure > 0 && n > old_n && --until_failure == 0) {
        return NULL;
    }
    if (n > SINGLE_BYTES_MAX && n > old_n && st->is_in_script) {
        st->was_too_large = true;
        return NULL;
    }
    if (n > old_n && (n - old_n > st->cap_bytes || st->used_bytes > st->cap_bytes - (n - old_n))) {
        st->was_refused = true;
        return NULL;
    }
    if (n >= LARGE_BYTES && st->budget.is_running && !st->budget.is_over) {
        /* Only stores a count, so it is safe in the middle of an instruction. */
        lua_sethook(st->L, on_count, LUA_MASKCOUNT, 1);
        st->is_hurried = true;
    }
    q = st->base_alloc(st->base_alloc_user, p, old_n, n);
    if (q || n == 0) {
        st->used_bytes += n;
        st->used_bytes -= old_n;
    }
    return q;
}

static int collect(lua_State *L)
{
    lua_gc(L, LUA_GCCOLLECT, 0);
    return 0;
}

/* A small state would be marked whole every few calls, which costs more than the calls: it may grow
 * to ten times what is alive before the next cycle, a larger one to twice. */
static void set_pace(struct script_state *st)
{
    lua_gc(st->L, LUA_GCSETPAUSE, st->used_bytes < SMALL_BYTES ? 1000 : 200);
}

/* LuaJIT gives up without collecting what is dead already, so that one call would pay for what
 * another left behind. We collect after a refusal, and before a call when three quarters are in use
 * and a sixteenth has come since the last time, which bounds what it costs. */
static void make_room(struct script_state *st)
{
    size_t cap = st->cap_bytes;

    if (st->was_refused ||
        (st->used_bytes > cap - cap / 4 && st->used_bytes > st->collected_bytes + cap / 16)) {
        st->cap_bytes =
            SIZE_MAX; /* the collector itself moves tables, to free more than it takes */
        if (lua_cpcall(st->L, collect, NULL) != 0) {
            lua_pop(st->L, 1);
        }
        st->cap_bytes = cap;
        st->collected_bytes = st->used_bytes;
        st->was_refused = false;
    }
}

struct script_state *mr__state_of(lua_State *L)
{
    void *user;

    lua_getallocf(L, &user);
    return user;
}

/* ---- budget ---------------------------------------------------------------------------------- */

/*
 * Whether the running call has had its CPU time. The thread's CPU clock is a system call
 * (200 to 800 ns), the monotonic clock is not (30 ns) and never goes slower: the first
 * is read only when the second says that the deadline may have come. What was used
 * before the first reading is taken to be an eighth of what it had left.
 */
static bool is_spent(struct script_budget *b)
{
    uint64_t now_ns, cpu_ns;

    if (!b->is_running || b->is_over) {
        return b->is_running;
    }
    now_ns = clock_ns(CLOCK_MONOTONIC);
    if (b->start_ns == 0) {
        b->start_ns = now_ns;
        b->look_at_ns = now_ns + b->left_ns / 8;
    }
    if (now_ns < b->look_at_ns) {
        return false;
    }
    cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (b->deadline_ns == 0) {
        b->deadline_ns = cpu_ns + b->left_ns - b->left_ns / 8;
    }
    b->is_over = cpu_ns >= b->deadline_ns;
    b->look_at_ns = now_ns + (b->is_over ? 0 : b->deadline_ns - cpu_ns);
    return b->is_over;
}

void mr__state_begin_budget(struct script_state *st, uint64_t cpu_ns, struct script_used used)
{
    uint64_t left_ns = used.cpu_ns < cpu_ns ? cpu_ns - used.cpu_ns : 0;

    st->budget = (struct script_budget){
        .cpu_ns = cpu_ns, .left_ns = left_ns, .credited_ns = used.credited_ns, .is_running = true};
    if (left_ns == 0) {
        st->budget.is_over = true;
        lua_sethook(st->L, on_count, LUA_MASKCOUNT, 1);
    }
}

/* How much is gone of what it had left when it was let go. */
static uint64_t gone_ns(const struct script_budget *b)
{
    uint64_t gone = 0, now_ns, left_ns;

    if (b->is_over) {
        return b->left_ns;
    }
    if (b->deadline_ns > 0) {
        now_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        left_ns = now_ns < b->deadline_ns ? b->deadline_ns - now_ns : 0;
        gone = left_ns < b->left_ns ? b->left_ns - left_ns : 0;
    } else if (b->start_ns > 0) {
        gone = clock_ns(CLOCK_MONOTONIC) - b->start_ns;
        gone = gone < b->left_ns / 8 ? gone : b->left_ns / 8;
    }
    gone = gone > LEG_NS ? gone : LEG_NS;
    return gone < b->left_ns ? gone : b->left_ns;
}

/* From here on every instruction raises, so that a pcall in a loop cannot swallow the error. */
static void raise_spent(lua_State *L, const char *where, int line)
{
    struct script_state *st = mr__state_of(L);
    char limit[32];

    lua_sethook(L, on_count, LUA_MASKCOUNT, 1);
    snprintf(limit, sizeof limit, "%.6g", (double)st->budget.cpu_ns / 1e6);
    if (line > 0) {
        lua_pushfstring(L, "%s:%d: took more than %s ms of CPU time", where, line, limit);
    } else {
        lua_pushfstring(L, "took more than %s ms of CPU time", limit);
    }
    lua_error(L);
}

/* The frame's address and not a local's: with ASan locals may live elsewhere. */
void mr__state_check_stack(lua_State *L)
{
    const char *base = mr__state_of(L)->stack_base, *here = __builtin_frame_address(0);

    if (base && base - here > C_STACK_BYTES) {
        luaL_error(L, "C stack overflow");
    }
}

static void on_count(lua_State *L, lua_Debug *ar)
{
    struct script_state *st = mr__state_of(L);

    mr__state_check_stack(L);

    if (is_spent(&st->budget)) {
        lua_getinfo(L, "Sl", ar);
        raise_spent(L, ar->short_src, ar->currentline);
    }
    if (st->is_hurried) {
        st->is_hurried = false;
        lua_sethook(L, on_count, LUA_MASKCOUNT, COUNT_STEP);
    }
}

void mr__state_charge(lua_State *L)
{
    if (is_spent(&mr__state_of(L)->budget)) {
        lua_Debug ar;

        if (lua_getstack(L, 1, &ar) && lua_getinfo(L, "Sl", &ar)) {
            raise_spent(L, ar.short_src, ar.currentline);
        }
        raise_spent(L, "", 0);
    }
}

static const uint64_t CREDIT_MAX_NS = 1000000000;

uint64_t mr__state_credit_begin(lua_State *L)
{
    return is_spent(&mr__state_of(L)->budget) ? 0 : clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Before the first reading of the thread's clock there is no deadline to move: what is used till
 * then counts as an eighth of the budget, however long it is. */
void mr__state_credit_end(lua_State *L, uint64_t begin)
{
    struct script_budget *b = &mr__state_of(L)->budget;
    uint64_t ns = begin > 0 ? clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin : 0;

    if (ns > CREDIT_MAX_NS - b->credited_ns) {
        ns = CREDIT_MAX_NS - b->credited_ns;
    }
    b->credited_ns += ns;
    b->look_at_ns += b->start_ns > 0 ? ns : 0;
    b->deadline_ns += b->deadline_ns > 0 ? ns : 0;
}

void mr__state_take_outside(lua_State *L, size_t bytes)
{
    struct script_state *st = mr__state_of(L);

    if (bytes > SCRIPT_OUTSIDE_MAX || st->outside_bytes > SCRIPT_OUTSIDE_MAX - bytes) {
        uint64_t begin = mr__state_credit_begin(L);

        lua_gc(L, LUA_GCCOLLECT, 0);
        mr__state_credit_end(L, begin);
    }
    if (bytes > SCRIPT_OUTSIDE_MAX || st->outside_bytes > SCRIPT_OUTSIDE_MAX - bytes) {
        luaL_error(L, "not enough memory: what is kept outside of Lua may take %d MiB",
                   SCRIPT_OUTSIDE_MAX >> 20);
    }
    st->outside_bytes += bytes;
}

/* Not by a lua_State: the last ones are given back while it closes, with LuaJIT's own allocator. */
void mr__state_give_outside(struct script_state *st, size_t bytes)
{
    st->outside_bytes -= bytes;
}

/* ---- life ------------------------------------------------------------------------------------ */

int mr__state_init(struct script_state *st, size_t cap_bytes)
{
    lua_State *L = luaL_newstate();

    if (!L) {
        return -ENOMEM;
    }
    *st = (struct script_state){.L = L, .cap_bytes = cap_bytes};
    st->used_bytes = (size_t)lua_gc(L, LUA_GCCOUNT, 0) * 1024 + (size_t)lua_gc(L, LUA_GCCOUNTB, 0);
    st->base_alloc = lua_getallocf(L, &st->base_alloc_user);
    lua_setallocf(L, count_alloc, st);
    /* Compiled code never reaches a count hook, so a loop in it could not be stopped. */
    luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
    lua_sethook(L, on_count, LUA_MASKCOUNT, COUNT_STEP);
    return 0;
}

void mr__state_deinit(struct script_state *st)
{
    if (st->L) {
        /* LuaJIT frees the whole arena only when it sees its own allocator. */
        lua_setallocf(st->L, st->base_alloc, st->base_alloc_user);
        lua_close(st->L);
        st->L = NULL;
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Appends text[0..n) to out and returns the new length; leaves room for a NUL. */
static size_t add_line(char *out, size_t len, size_t cap, const char *text, size_t n)
{
    for (size_t i = 0; i < n && len + 4 < cap; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == '\n') {
            memcpy(out + len, " | ", 3);
            len += 3;
        } else if (c != '\t') {
            out[len++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
        }
    }
    return len;
}

void mr__state_line(char *out, size_t cap, const char *text, size_t n)
{
    size_t len;

    if (n + 4 < cap) {
        len = add_line(out, 0, cap, text, n);
    } else {
        /* What a message is about is at its end, behind the places it came through. */
        len = add_line(out, 0, cap / 2, text, n);
        len = add_line(out, len, cap, " ... ", 5);
        len = add_line(out, len, cap, text + n - (cap / 2 - 16), cap / 2 - 16);
    }
    out[len] = '\0';
}

static void say(struct script_failure *failure, const char *text)
{
    mr__state_line(failure->text, sizeof failure->text, text, strlen(text));
}

/* Describes the error value on top of L and pops it. An object's __tostring is not called: it is
 * the script's code, and may raise or never end. */
static void say_value(lua_State *L, struct script_failure *failure)
{
    size_t n;
    char text[64];
    const char *s;

    if (lua_type(L, -1) == LUA_TSTRING) {
        s = lua_tolstring(L, -1, &n);
    } else if (lua_type(L, -1) == LUA_TNUMBER) {
        n = (size_t)snprintf(text, sizeof text, "%.14g", lua_tonumber(L, -1));
        s = text;
    } else {
        n = (size_t)snprintf(text, sizeof text, "raised a %s instead of a message",
                             luaL_typename(L, -1));
        s = text;
    }
    mr__state_line(failure->text, sizeof failure->text, s, n);
    lua_pop(L, 1);
}

static void say_memory(const struct script_state *st, struct script_failure *failure)
{
    if (st->was_too_large) {
        snprintf(failure->text, sizeof failure->text,
                 "not enough memory: one string or table may take %d MiB", SINGLE_BYTES_MAX >> 20);
        return;
    }
    snprintf(failure->text, sizeof failure->text,
             "not enough memory: the scripts may use %zu KiB (script_memory)",
             st->cap_bytes / 1024);
}

static void end_budget(struct script_state *st, const struct script_budget *outer)
{
    if (st->budget.is_over || outer->is_over) {
        lua_sethook(st->L, on_count, LUA_MASKCOUNT,
                    outer->is_running && outer->is_over ? 1 : COUNT_STEP);
    }
    st->budget = *outer;
}

int mr__state_enter(struct script_state *st, lua_CFunction fn, void *user,
                    struct script_failure *failure)
{
    lua_State *L = st->L;
    struct script_budget outer = st->budget;
    bool is_outermost = !st->stack_base;
    int rc;

    failure->text[0] = failure->traceback[0] = '\0';
    st->was_too_large = false;
    make_room(st);
    set_pace(st);
    if (is_outermost) {
        st->stack_base = __builtin_frame_address(0);
    }
    rc = lua_cpcall(L, fn, user);
    if (is_outermost) {
        st->stack_base = NULL;
    }
    end_budget(st, &outer);
    if (rc == 0) {
        return 0;
    }
    if (rc == LUA_ERRMEM) {
        say_memory(st, failure);
        lua_pop(L, 1);
    } else {
        say_value(L, failure);
    }
    return rc == LUA_ERRMEM ? -ENOMEM : -EINVAL;
}

/* ---- coroutines ------------------------------------------------------------------------------ */

void mr__state_say_frames(lua_State *L, lua_State *co, struct script_failure *failure)
{
    const char *text, *frames;
    size_t n;

    luaL_traceback(L, co, NULL, 0);
    text = lua_tolstring(L, -1, &n);
    frames = strchr(text, '\n');
    if (frames) { /* behind "stack traceback:" */
        mr__state_line(failure->traceback, sizeof failure->traceback, frames + 1,
                       n - (size_t)(frames + 1 - text));
    }
    lua_pop(L, 1);
}

static void say_failure(lua_State *L, lua_State *co, int rc, struct script_failure *failure)
{
    struct script_state *st = mr__state_of(L);

    if (rc == LUA_ERRMEM) {
        say_memory(st, failure);
    } else if (rc == 0 || rc == LUA_YIELD) { /* spent its time, and stopped right before the end */
        snprintf(failure->text, sizeof failure->text, "took more than %.6g ms of CPU time",
                 (double)st->budget.cpu_ns / 1e6);
    } else {
        lua_xmove(co, L, 1);
        say_value(L, failure);
    }
    if (rc != 0 && rc != LUA_ERRMEM) {
        mr__state_say_frames(L, co, failure);
    }
}

int mr__state_go(lua_State *L, lua_State *co, int nargs, struct script_used *used,
                 struct script_failure *failure)
{
    struct script_state *st = mr__state_of(L);
    bool was_in_script = st->is_in_script;
    int rc;

    st->is_in_script = true;
    st->was_too_large = false;
    rc = lua_resume(co, nargs);
    st->is_in_script = was_in_script;

    used->cpu_ns = st->budget.cpu_ns - st->budget.left_ns + gone_ns(&st->budget);
    used->credited_ns = st->budget.credited_ns;
    st->budget.is_running = false;
    if (st->budget.is_over) {
        lua_sethook(L, on_count, LUA_MASKCOUNT, COUNT_STEP);
    }
    if (st->budget.is_over || (rc != 0 && rc != LUA_YIELD)) {
        say_failure(L, co, rc, failure);
        rc = -EINVAL;
    }
    return rc;
}

int mr__state_resume(lua_State *L, int nargs, int max_results, uint64_t budget_ns, int *n_results,
                     struct script_failure *failure)
{
    int base = lua_gettop(L) - nargs - 1, rc;
    lua_State *co = lua_newthread(L);
    struct script_used used = {0};

    lua_insert(L, base + 1); /* stack: ... co f args */
    lua_xmove(L, co, nargs + 1);
    mr__state_begin_budget(mr__state_of(L), budget_ns, used);
    rc = mr__state_go(L, co, nargs, &used, failure);
    if (rc == LUA_YIELD) {
        say(failure, "called coroutine.yield() outside of a coroutine of its own");
        rc = -EINVAL;
    }
    if (rc == 0) {
        int n = lua_gettop(co);

        *n_results = n < max_results ? n : max_results;
        lua_settop(co, *n_results);
        luaL_checkstack(L, *n_results, "too many results");
        lua_xmove(co, L, *n_results);
    }
    lua_remove(L, base + 1);
    return rc;
}
