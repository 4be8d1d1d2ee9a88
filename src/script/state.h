/* SPDX-License-Identifier: MIT */
/*
 * One Lua state that a script may do its worst in: its memory has a cap, its CPU time a
 * budget, and every entry is protected. Knows nothing of policies. Control thread only.
 *
 * Start reading at mr__state_enter() (every way in) and mr__state_go() (every call of a
 * script's function).
 */
#ifndef MR_SCRIPT_STATE_H
#define MR_SCRIPT_STATE_H

#include <lauxlib.h>
#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run;

struct script_state {
    lua_State *L;

    lua_Alloc base_alloc; /* LuaJIT's own allocator, which ours counts for */
    void *base_alloc_user;
    size_t used_bytes, cap_bytes;
    size_t collected_bytes; /* what was in use after the last full collection */
    bool was_refused;       /* an allocation, since then */
    size_t outside_bytes;   /* memory of C that userdata own */

    /* The call that is running; saved and restored around an inner one. */
    struct script_budget {
        uint64_t cpu_ns;      /* what it may take in all */
        uint64_t left_ns;     /* what of that it had when it was let go (on) */
        uint64_t start_ns;    /* monotonic, at the first look; 0: none yet */
        uint64_t deadline_ns; /* thread CPU time; 0: not needed yet */
        uint64_t look_at_ns;  /* monotonic; the deadline cannot be reached before it */
        uint64_t credited_ns; /* what did not count so far; bounded */
        bool is_running, is_over;
    } budget;

    const char *stack_base; /* of C, where the state was entered; NULL: it is not */
    bool is_hurried;        /* the next instruction looks at the clock */
    bool is_in_script;      /* what is allocated is the script's doing */
    bool was_too_large;     /* a single thing that it wanted, in this call */

    struct run *running; /* what runs in it now (run.h); NULL: nothing that may wait */
};

/* What of a budget is gone, over all times that a coroutine went on. */
struct script_used {
    uint64_t cpu_ns, credited_ns;
};

enum { SCRIPT_ERROR_MAX = 512, SCRIPT_TRACEBACK_MAX = 2048 };

/* What went wrong in a call: "ban.lua:3: attempt to index ...", one line each. */
struct script_failure {
    char text[SCRIPT_ERROR_MAX];
    char traceback[SCRIPT_TRACEBACK_MAX]; /* "" when there is none */
};

/* For tests: of all states together the n-th allocation from now fails, once; 0: none. */
void mr__state_fail_alloc(long n);
/* Whether it is still to come. */
bool mr__state_will_fail(void);

/* An empty state without any library. The struct must not move afterwards. -ENOMEM. */
int mr__state_init(struct script_state *st, size_t cap_bytes);
void mr__state_deinit(struct script_state *st);

/* The state that L or one of its coroutines belongs to. */
struct script_state *mr__state_of(lua_State *L);

/* Runs fn(L) with user as light userdata at index 1; whatever it raises ends here, running out of
 * memory included. 0, -EINVAL (a script's error) or -ENOMEM; *failure says what. */
int mr__state_enter(struct script_state *st, lua_CFunction fn, void *user,
                    struct script_failure *failure);

/* What follows in this entry is counted against a budget of cpu_ns of CPU time in all, of which
 * some is gone. Ends with mr__state_go(), or with mr__state_enter(). */
void mr__state_begin_budget(struct script_state *st, uint64_t cpu_ns, struct script_used used);

/* Lets the coroutine co go (on) with the nargs values on top of it, in the budget begun before;
 * *used is then how much of it is gone. To be called inside mr__state_enter().
 * 0: it ended, its results are what is on co; LUA_YIELD: it waits, or called coroutine.yield();
 * -EINVAL: it failed, co is of no use any more, and *failure says why. */
int mr__state_go(lua_State *L, lua_State *co, int nargs, struct script_used *used,
                 struct script_failure *failure);

/* Calls the function below its nargs arguments on top of L in a coroutine that cannot wait, with
 * budget_ns of CPU time. To be called inside mr__state_enter(). Pops them; 0: *n_results (at most
 * max_results, the rest is dropped) are on L. -EINVAL: nothing is, and *failure says why. */
int mr__state_resume(lua_State *L, int nargs, int max_results, uint64_t budget_ns, int *n_results,
                     struct script_failure *failure);

/* Writes where the coroutine is into failure->traceback. Raises when out of memory. */
void mr__state_say_frames(lua_State *L, lua_State *co, struct script_failure *failure);

/* For C functions that scripts call and that can take long: raises when the budget is spent. Reads
 * a clock (a system call), so once in a thousand steps is right. */
void mr__state_charge(lua_State *L);

/* What C does for a script between these two is not the script's time: at most 1 s a call, which
 * bounds a loop of such work. */
uint64_t mr__state_credit_begin(lua_State *L);
void mr__state_credit_end(lua_State *L, uint64_t begin);

/* Counts memory of C that a userdata will own from now on, before it is taken: at most 64 MiB a
 * state, else it collects what is dead, and raises when that does not help. */
enum { SCRIPT_OUTSIDE_MAX = 64 << 20 };
void mr__state_take_outside(lua_State *L, size_t bytes);
void mr__state_give_outside(struct script_state *st, size_t bytes);

/* For C functions that call back into scripts: raises when the C stack has become too deep. LuaJIT
 * bounds its own stack only, and one level of ours may take kilobytes. */
void mr__state_check_stack(lua_State *L);

/* Copies text as one line: an LF becomes " | ", a tab nothing, other control characters "?"; what
 * is too long loses its middle. */
void mr__state_line(char *out, size_t cap, const char *text, size_t n);

#endif
