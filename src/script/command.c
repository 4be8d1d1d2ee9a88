/* SPDX-License-Identifier: MIT */
/*
 * Commands: `moonrelay call POLICY VERB ARGS` runs a function of a policy's `commands`.
 * Control thread only. Start reading at mr__policies_call().
 */
#include "script/chain.h"

#include "base/alloc.h"
#include "script/json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { RESULT_BYTES_MAX = 1 << 20 };

struct call {
    struct run run;
    struct policies *p;
    const struct policy_command *command;
    const struct str *args; /* the caller's, when it starts only */
    size_t n_args;
    char *text; /* what it returned */
    size_t n;
    bool is_json;
    policies_called done;
    void *user;
};

static struct call *call_of(struct run *r)
{
    return (struct call *)(void *)((char *)r - offsetof(struct call, run));
}

static void push_function(lua_State *L, struct run *r)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, call_of(r)->command->ref);
}

static int push_arguments(lua_State *L, struct run *r)
{
    const struct call *c = call_of(r);

    luaL_checkstack(L, (int)c->n_args, "too many arguments");
    for (size_t i = 0; i < c->n_args; i++) {
        lua_pushlstring(L, c->args[i].n > 0 ? c->args[i].s : "", c->args[i].n);
    }
    return (int)c->n_args;
}

static int refuse(struct script_failure *failure, const char *what)
{
    snprintf(failure->text, sizeof failure->text, "returned %s (text or a table is expected)",
             what);
    return -EINVAL;
}

/* Makes text of the value at index, which it replaces. */
static int take(lua_State *L, struct run *r, int index, int n, struct script_failure *failure)
{
    struct call *c = call_of(r);
    const char *s = "";

    switch (n > 0 ? lua_type(L, index) : LUA_TNIL) {
    case LUA_TNIL:
        break;
    case LUA_TBOOLEAN:
        s = lua_toboolean(L, index) ? "true" : "false";
        c->n = strlen(s);
        break;
    case LUA_TNUMBER:
    case LUA_TSTRING:
        s = lua_tolstring(L, index, &c->n);
        break;
    case LUA_TTABLE:
        mr__json_push(L, index);
        s = lua_tolstring(L, -1, &c->n);
        c->is_json = true;
        break;
    default:
        return refuse(failure, luaL_typename(L, index));
    }
    if (c->n > RESULT_BYTES_MAX) {
        return refuse(failure, "more than 1 MiB");
    }
    c->text = mr__strndup(s, c->n);
    if (!c->text) {
        snprintf(failure->text, sizeof failure->text, "out of memory");
        return -ENOMEM;
    }
    return 0;
}

static void end(struct call *c, int rc, const struct script_failure *failure)
{
    struct generation *g = c->run.policy->generation;

    if (rc != -ECANCELED) {
        struct str text = {c->text, c->n};

        mr__figures_took(&c->run, FIGURE_COMMAND, rc == 0 ? MR_CALL_NONE : MR_CALL_ERROR);
        if (rc != 0) {
            mr__figures_log(&c->run, "command", failure);
            text = (struct str){failure->text, strlen(failure->text)};
            rc = c->run.is_refused_to_wait ? -EBUSY : rc == -ENOMEM ? -ENOMEM : -EINVAL;
        }
        c->done(c->user, rc, text, c->is_json);
    }
    mr__generation_let_go(c->p, g);
    mr__free(c->text);
    mr__free(c);
}

static void on_ended(struct run *r, int rc, const struct script_failure *failure)
{
    end(call_of(r), rc, failure);
}

static const struct run_class command_class = {
    .kind = RUN_COMMAND,
    .push_function = push_function,
    .push_arguments = push_arguments,
    .take = take,
    .ended = on_ended,
};

static bool is_str(const char *a, struct str b)
{
    return strlen(a) == b.n && memcmp(a, b.s, b.n) == 0;
}

static struct policy *find_policy(struct policies *p, struct str name)
{
    for (size_t i = 0; i < mr__policies_count(p); i++) {
        if (is_str(p->generation->policies[i].name, name)) {
            return &p->generation->policies[i];
        }
    }
    return NULL;
}

static const struct policy_command *find_command(const struct policy *policy, struct str verb)
{
    for (size_t i = 0; i < policy->n_commands; i++) {
        if (is_str(policy->commands[i].verb, verb)) {
            return &policy->commands[i];
        }
    }
    return NULL;
}

__attribute__((format(printf, 4, 5))) static void fail(policies_called done, void *user, int rc,
                                                       const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    done(user, rc, (struct str){text, strlen(text)}, false);
}

void mr__policies_call(struct policies *p, struct str policy, struct str verb,
                       const struct str *args, size_t n_args, policies_called done, void *user)
{
    struct policy *found = find_policy(p, policy);
    const struct policy_command *command = found ? find_command(found, verb) : NULL;
    struct script_failure failure;
    struct call *c;
    int rc;

    if (!command) {
        if (!found) {
            fail(done, user, -ENOENT, "no policy %.*s", (int)(policy.n < 64 ? policy.n : 64),
                 policy.s);
        } else {
            fail(done, user, -ENOENT, "policy %s has no command %.*s", found->name,
                 (int)(verb.n < 64 ? verb.n : 64), verb.s);
        }
        return;
    }
    if (p->runs.depth > 0) {
        fail(done, user, -EBUSY, "a script is running");
        return;
    }
    c = mr__alloc(1, sizeof *c);
    if (!c) {
        fail(done, user, -ENOMEM, "out of memory");
        return;
    }
    c->p = p;
    c->command = command;
    c->args = args;
    c->n_args = n_args;
    c->done = done;
    c->user = user;
    mr__generation_hold(found->generation);
    rc = mr__run_start(&c->run, &command_class, found, &failure);
    if (rc != RUN_WAITS) {
        end(c, rc, &failure);
    }
}
