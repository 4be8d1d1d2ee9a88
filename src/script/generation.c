/* SPDX-License-Identifier: MIT */
/*
 * Loads policies into a state and calls their hooks. Control thread only. Start reading
 * at mr__generation_create(); load_policy() is what happens to one file.
 *
 * To let policies define another hook, add it to MR_HOOKS (service/hooks.h) and take it
 * out of `later` below.
 */
#include "script/generation.h"

#include "base/alloc.h"
#include "base/suggest.h"
#include "script/config_entry.h"
#include "script/embedded.h"
#include "script/event.h"
#include "script/module.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    API_VERSION = 1,
    RESULTS_MAX = 3, /* false, reason, { mute = s } */
};

static const bool is_decision[MR_HOOK_COUNT] = {
#define X(constant, name, is_decision_) [MR_HOOK_##constant] = is_decision_,
    MR_HOOKS(X)
#undef X
};

/* Keys of a policy that a later version calls. To ignore them would be a wrong answer: the policy
 * would load, and never be asked. */
static const char *const later[] = {"lookup", "commands", NULL};

/* ---- loading --------------------------------------------------------------------------------- */

struct loading {
    struct generation *generation;
    const struct policy_sources *sources;
    size_t i;         /* which of them */
    const char *step; /* "" or "load: ": what the message is about */
};

/* The one shipped module beside `relay` itself: Lua text, run in the policy's own environment. */
static int require_options(lua_State *L)
{
    const struct embedded_file *f = mr__embedded_find("relay/options.lua");

    if (!f || mr__sandbox_load(L, lua_upvalueindex(2), (const char *)f->data, f->size,
                               "@relay/options.lua") != 0) {
        return luaL_error(L, "relay.options: %s", f ? lua_tostring(L, -1) : "not in this program");
    }
    lua_call(L, 0, 1);
    return 1;
}

/* upvalues: the module `relay`, the policy's environment */
static int on_require(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);

    if (strcmp(name, "relay.options") == 0) {
        return require_options(L);
    }
    if (strcmp(name, "relay") != 0) {
        return luaL_error(L,
                          "module '%s' is not available: policies of this version may require "
                          "\"relay\" and \"relay.options\" only",
                          name);
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    return 1;
}

static void push_policy_env(lua_State *L, struct policy *p)
{
    mr__sandbox_push_env(L);
    lua_pushliteral(L, "require");
    mr__module_push(L, p);
    lua_pushvalue(L, -3); /* stack: env "require" module env */
    lua_pushcclosure(L, on_require, 2);
    lua_rawset(L, -3);
}

/* Calls the function below its nargs arguments with the budget of loading; raises what it raises.
 */
static int call_loading(lua_State *L, const struct generation *g, int nargs)
{
    struct script_failure failure;
    int n;

    if (mr__state_resume(L, nargs, 1, g->opts.load_cpu_ns, &n, &failure) != 0) {
        lua_pushstring(L, failure.text);
        lua_error(L);
    }
    return n;
}

static void refuse_key(lua_State *L, const struct policy_source *s, const char *key, size_t n)
{
    const char *names[MR_HOOK_COUNT + 8], *near;
    size_t count = 0;

    for (size_t i = 0; later[i]; i++) {
        if (strcmp(later[i], key) == 0) {
            luaL_error(L, "%s: this version does not call '%s' yet; it comes with a later one",
                       s->chunk + 1, key);
        }
    }
    for (size_t i = 0; i < MR_HOOK_COUNT; i++) {
        names[count++] = mr__event_hook_name(i);
    }
    names[count++] = "load";
    names[count++] = "api";
    for (size_t i = 0; later[i] && count + 1 < sizeof names / sizeof names[0]; i++) {
        names[count++] = later[i];
    }
    names[count] = NULL;
    near = mr__suggest_name(key, n, names);
    luaL_error(L, "%s: unknown hook '%s'%s%s%s", s->chunk + 1, key, near ? "; did you mean " : "",
               near ? near : " (register, connect, create, drop, destroyed and load are known)",
               near ? "?" : "");
}

/* One key of what the file returned; key at -2, value at -1. */
static void take_key(lua_State *L, const struct policy_source *s, struct policy *p)
{
    const char *key;

    if (lua_type(L, -2) != LUA_TSTRING) {
        luaL_error(L, "%s: the policy has a key that is a %s (names of hooks are expected)",
                   s->chunk + 1, luaL_typename(L, -2));
    }
    key = lua_tostring(L, -2);
    if (strcmp(key, "api") == 0) {
        if (lua_type(L, -1) != LUA_TNUMBER || lua_tonumber(L, -1) != API_VERSION) {
            luaL_error(L, "%s: api %s is not known (this version knows %d)", s->chunk + 1,
                       lua_isnumber(L, -1) ? lua_tostring(L, -1) : luaL_typename(L, -1),
                       API_VERSION);
        }
        return;
    }
    bool is_load = strcmp(key, "load") == 0;
    size_t hook = 0;
    while (hook < MR_HOOK_COUNT && strcmp(mr__event_hook_name(hook), key) != 0) {
        hook++;
    }
    if (hook == MR_HOOK_COUNT && !is_load) {
        refuse_key(L, s, key, lua_objlen(L, -2));
    }
    if (!lua_isfunction(L, -1)) {
        luaL_error(L, "%s: %s is a %s (a function is expected)", s->chunk + 1, key,
                   luaL_typename(L, -1));
    }
    if (!is_load) {
        lua_pushvalue(L, -1);
        p->hook_refs[hook] = luaL_ref(L, LUA_REGISTRYINDEX);
    }
}

static void take_policy(lua_State *L, const struct policy_source *s, struct policy *p)
{
    if (!lua_istable(L, -1) || lua_getmetatable(L, -1)) {
        luaL_error(L, "%s: the file returns %s (a table of hooks is expected)", s->chunk + 1,
                   lua_isnil(L, -1) ? "nothing" : "no plain table");
    }
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
        take_key(L, s, p);
    }
}

static void run_load(lua_State *L, struct loading *l, const struct policy_source *s)
{
    lua_pushliteral(L, "load");
    lua_rawget(L, -2);
    if (lua_isnil(L, -1)) {
        if (s->entry) {
            /* Settings that nobody reads are a slip, most likely in the name. */
            mr__config_push_settings(s->entry, L);
            lua_pushnil(L);
            if (lua_next(L, -2) != 0) {
                lua_pop(L, 1);
                luaL_error(L, "%s: has no load function, so its setting %s is read by nobody",
                           s->entry->place,
                           lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "(a number)");
            }
        }
        return;
    }
    if (s->entry) {
        mr__config_push_settings(s->entry, L);
    } else {
        lua_newtable(L);
    }
    l->step = "load: ";
    call_loading(L, l->generation, 1);
}

static int load_policy(lua_State *L)
{
    struct loading *l = lua_touserdata(L, 1);
    struct generation *g = l->generation;
    const struct policy_source *s = &l->sources->items[l->i];
    struct policy *p = &g->policies[l->i];

    push_policy_env(L, p);
    if (mr__sandbox_load(L, lua_gettop(L), s->text, s->n, s->chunk) != 0) {
        return lua_error(L);
    }
    if (call_loading(L, g, 0) == 0) {
        lua_pushnil(L);
    }
    take_policy(L, s, p);
    run_load(L, l, s);
    return 0;
}

static int open_sandbox(lua_State *L)
{
    struct generation *g = lua_touserdata(L, 1);

    mr__sandbox_open(L, &g->sandbox);
    mr__event_open(L);
    return 0;
}

static int add_policy(struct generation *g, const struct policy_source *s)
{
    struct policy *p = &g->policies[g->n++];

    p->generation = g;
    p->is_shadow = s->is_shadow;
    p->is_skipped_on_error = s->is_skipped_on_error;
    for (size_t i = 0; i < MR_HOOK_COUNT; i++) {
        p->hook_refs[i] = LUA_NOREF;
    }
    p->name = mr__strndup(s->name, strlen(s->name));
    p->origin = mr__strndup(s->origin, strlen(s->origin));
    return p->name && p->origin ? 0 : -ENOMEM;
}

/* What failed, with a place: what has no line of its own (memory that ended, an error raised
 * without one) is at the policy's file, or for a shipped policy where the config file names it. */
static void say_at_source(struct script_error *err, const struct loading *l, const char *why)
{
    const struct policy_source *s = &l->sources->items[l->i];
    const char *file = s->chunk + 1, *slash = strrchr(file, '/');
    bool is_shipped = strcmp(s->origin, "shipped") == 0;
    const char *place = !is_shipped ? file : s->entry ? s->entry->place : NULL;

    /* Lua shortens long paths in front, so their ends are compared. */
    if (!place || strstr(why, place) || (!is_shipped && strstr(why, slash ? slash + 1 : file))) {
        snprintf(err->text, sizeof err->text, "policy %s: %s%s", s->name, l->step, why);
    } else {
        snprintf(err->text, sizeof err->text, "policy %s: %s%s: %s", s->name, l->step, place, why);
    }
}

static int load_all(struct generation *g, const struct policy_sources *sources,
                    struct script_error *err)
{
    struct script_failure failure;
    int rc = mr__state_enter(&g->state, open_sandbox, g, &failure);

    if (rc != 0) {
        snprintf(err->text, sizeof err->text, "policies: %s", failure.text);
        return rc;
    }
    for (size_t i = 0; i < sources->n; i++) {
        const struct policy_source *s = &sources->items[i];
        struct loading l = {.generation = g, .sources = sources, .i = i, .step = ""};

        rc = add_policy(g, s);
        if (rc != 0) {
            snprintf(err->text, sizeof err->text, "policies: out of memory");
            return rc;
        }
        rc = mr__state_enter(&g->state, load_policy, &l, &failure);
        if (rc != 0) {
            say_at_source(err, &l, failure.text);
            return rc;
        }
    }
    return 0;
}

int mr__generation_create(struct generation **out, const struct generation_options *opts,
                          const struct policy_sources *sources, struct script_error *err)
{
    struct generation *g = mr__alloc(1, sizeof *g);
    int rc = -ENOMEM;

    snprintf(err->text, sizeof err->text, "policies: out of memory");
    if (!g) {
        return rc;
    }
    g->opts = *opts;
    g->sandbox = (struct sandbox_options){opts->wall_s, opts->user, opts->seed};
    g->policies = mr__alloc(sources->n + 1, sizeof *g->policies);
    if (g->policies) {
        rc = mr__state_init(&g->state, opts->memory_bytes);
    }
    if (rc == 0) {
        rc = load_all(g, sources, err);
    }
    if (rc != 0) {
        mr__generation_destroy(g);
        return rc;
    }
    *out = g;
    return 0;
}

void mr__generation_destroy(struct generation *g)
{
    if (!g) {
        return;
    }
    mr__state_deinit(&g->state);
    for (size_t i = 0; i < g->n; i++) {
        mr__free(g->policies[i].name);
        mr__free(g->policies[i].origin);
    }
    mr__free(g->policies);
    mr__free(g);
}

/* ---- calling --------------------------------------------------------------------------------- */

struct hook_call {
    struct policy *policy;
    const struct hook_event *ev;
    struct answer *one;
    struct merged_answer *all;
    struct script_failure *failure;
    int rc;
};

/* Names the place where the hook is written, for what has no line of its own: a wrong answer, an
 * error behind a tail call or raised without a place. */
static void say_at_hook(lua_State *L, const struct hook_call *c, const char *why)
{
    lua_Debug ar;
    char text[SCRIPT_ERROR_MAX + LUA_IDSIZE + 16];

    lua_rawgeti(L, LUA_REGISTRYINDEX, c->policy->hook_refs[c->ev->hook]);
    if (lua_getinfo(L, ">S", &ar) && ar.linedefined > 0) {
        if (strstr(why, ar.short_src)) {
            return;
        }
        snprintf(text, sizeof text, "%s:%d: %s", ar.short_src, ar.linedefined, why);
    } else {
        snprintf(text, sizeof text, "%s", why);
    }
    mr__state_line(c->failure->text, sizeof c->failure->text, text, strlen(text));
}

static int run_hook(lua_State *L)
{
    struct hook_call *c = lua_touserdata(L, 1);
    enum hook hook = c->ev->hook;
    char why[ANSWER_WHY_MAX];
    int n;

    lua_rawgeti(L, LUA_REGISTRYINDEX, c->policy->hook_refs[hook]);
    mr__event_push(L, c->ev, c->all->answer.tags);
    c->rc = mr__state_resume(L, 1, RESULTS_MAX, c->policy->generation->opts.cpu_ns, &n, c->failure);
    if (c->rc != 0) {
        char said[SCRIPT_ERROR_MAX];

        memcpy(said, c->failure->text, sizeof said);
        say_at_hook(L, c, said);
        return 0;
    }
    if (!is_decision[hook]) {
        return 0;
    }
    luaL_checkstack(L, LUA_MINSTACK, "answer");
    c->rc = mr__answer_read(L, 2, n, hook, c->policy->name, c->one, why);
    if (c->rc == 0 && c->one->outcome == MR_HOOK_ADMIT && !c->policy->is_shadow) {
        c->rc = mr__answer_merge(c->all, c->one, why);
    }
    if (c->rc != 0) {
        say_at_hook(L, c, why);
    }
    return 0;
}

int mr__generation_call(struct policy *p, const struct hook_event *ev, struct answer *one,
                        struct merged_answer *all, struct script_failure *failure)
{
    struct hook_call c = {
        .policy = p, .ev = ev, .one = one, .all = all, .failure = failure, .rc = 0};
    int rc;

    one->outcome = MR_HOOK_NO_OPINION;
    rc = mr__state_enter(&p->generation->state, run_hook, &c, failure);
    return rc != 0 ? rc : c.rc;
}
