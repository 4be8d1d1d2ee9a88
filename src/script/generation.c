/* SPDX-License-Identifier: MIT */
/*
 * Loads policies into a state. Control thread only. Start reading at
 * mr__generation_load(); load_policy() is what happens to one file, start_load() to its
 * load(cfg), which may wait.
 *
 * To let policies define another hook, add it to MR_HOOKS (service/hooks.h).
 */
#include "script/generation.h"

#include "base/alloc.h"
#include "base/suggest.h"
#include "script/config_entry.h"
#include "script/event.h"
#include "script/module.h"
#include "script/outlet.h"
#include "script/require.h"
#include "script/timer.h"
#include "service/blocks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    API_VERSION = 1,
    COMMANDS_MAX = 64, /* of a policy */
    VERB_MAX = 64,
};

/* ---- files ----------------------------------------------------------------------------------- */

struct loading {
    struct policy *policy;
    struct script_failure *failure; /* of the script's own code; "" when it is somebody else's */
};

/* Calls the function below its nargs arguments with the budget of loading; raises what it raises.
 */
static int call_loading(lua_State *L, struct loading *l)
{
    int n;

    if (mr__state_resume(L, 0, 1, l->policy->generation->opts.load_cpu_ns, &n, l->failure) != 0) {
        lua_pushstring(L, l->failure->text);
        lua_error(L);
    }
    return n;
}

/* Where the value at the top was written, as far as it tells: only functions know their line. */
static const char *place_of(lua_State *L, const struct policy_source *s)
{
    lua_Debug ar;

    if (lua_isfunction(L, -1)) {
        lua_pushvalue(L, -1);
        lua_getinfo(L, ">S", &ar);
        if (ar.linedefined > 0 && strcmp(ar.source, s->chunk) == 0) {
            return lua_pushfstring(L, "%s:%d", s->chunk + 1, ar.linedefined);
        }
    }
    return s->chunk + 1;
}

static void refuse_key(lua_State *L, const struct policy_source *s, const char *key, size_t n)
{
    const char *names[MR_HOOK_COUNT + 8], *near;
    size_t count = 0;

    for (size_t i = 0; i < MR_HOOK_COUNT; i++) {
        names[count++] = mr__event_hook_name(i);
    }
    names[count++] = "load";
    names[count++] = "commands";
    names[count++] = "api";
    names[count] = NULL;
    near = mr__suggest_name(key, n, names);
    luaL_error(L, "%s: unknown hook '%s'%s%s%s", place_of(L, s), key, near ? "; did you mean " : "",
               near ? near
                    : " (register, connect, create, drop, lookup, connected, created, destroyed, "
                      "left, load and commands are known)",
               near ? "?" : "");
}

/* One item of `commands`; verb at -2, function at -1. */
static void take_command(lua_State *L, const struct policy_source *s, struct policy *p)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    struct policy_command *c = &p->commands[p->n_commands];
    const char *verb;
    size_t n;

    if (lua_type(L, -2) != LUA_TSTRING) {
        luaL_error(L, "%s: commands has a key that is a %s (names are expected)", s->chunk + 1,
                   luaL_typename(L, -2));
    }
    verb = lua_tolstring(L, -2, &n);
    if (n < 1 || n > VERB_MAX || verb[0] < 'a' || verb[0] > 'z' || strspn(verb, letters) != n) {
        luaL_error(L, "%s: '%s' cannot name a command (a letter a-z, then a-z 0-9 _ -)",
                   s->chunk + 1, verb);
    }
    if (!lua_isfunction(L, -1)) {
        luaL_error(L, "%s: commands.%s is a %s (a function is expected)", s->chunk + 1, verb,
                   luaL_typename(L, -1));
    }
    if (p->n_commands == COMMANDS_MAX) {
        luaL_error(L, "%s: more than %d commands", s->chunk + 1, COMMANDS_MAX);
    }
    c->verb = mr__strndup(verb, n);
    if (!c->verb) {
        luaL_error(L, "not enough memory");
    }
    p->n_commands++;
    lua_pushvalue(L, -1);
    c->ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

static void take_commands(lua_State *L, const struct policy_source *s, struct policy *p)
{
    if (!lua_istable(L, -1) || lua_getmetatable(L, -1)) {
        luaL_error(L, "%s: commands is %s (a table of functions is expected)", s->chunk + 1,
                   lua_istable(L, -1) ? "a table with a metatable" : luaL_typename(L, -1));
    }
    p->commands = mr__alloc(COMMANDS_MAX, sizeof *p->commands);
    if (!p->commands) {
        luaL_error(L, "not enough memory");
    }
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
        take_command(L, s, p);
    }
}

static int find_hook(const char *key)
{
    for (int hook = 0; hook < MR_HOOK_COUNT; hook++) {
        if (strcmp(mr__event_hook_name((enum hook)hook), key) == 0) {
            return hook;
        }
    }
    return -1;
}

static void check_api(lua_State *L, const struct policy_source *s)
{
    if (lua_type(L, -1) != LUA_TNUMBER) {
        luaL_error(L, "%s: api is a %s (the number %d is expected)", s->chunk + 1,
                   luaL_typename(L, -1), API_VERSION);
    }
    if (lua_tonumber(L, -1) != API_VERSION) {
        luaL_error(L, "%s: api %s is not known (this version knows %d)", s->chunk + 1,
                   lua_tostring(L, -1), API_VERSION);
    }
}

/* One key of what the file returned; key at -2, value at -1. */
static void take_key(lua_State *L, const struct policy_source *s, struct policy *p)
{
    const char *key;
    int hook, *ref;

    if (lua_type(L, -2) != LUA_TSTRING) {
        luaL_error(L, "%s: the policy has a key that is a %s (names of hooks are expected)",
                   s->chunk + 1, luaL_typename(L, -2));
    }
    key = lua_tostring(L, -2);
    if (strcmp(key, "api") == 0) {
        check_api(L, s);
        return;
    }
    if (strcmp(key, "commands") == 0) {
        take_commands(L, s, p);
        return;
    }
    hook = find_hook(key);
    if (hook < 0 && strcmp(key, "load") != 0) {
        refuse_key(L, s, key, lua_objlen(L, -2));
    }
    if (!lua_isfunction(L, -1)) {
        luaL_error(L, "%s: %s is a %s (a function is expected)", s->chunk + 1, key,
                   luaL_typename(L, -1));
    }
    ref = hook < 0 ? &p->load_ref : &p->hook_refs[hook];
    lua_pushvalue(L, -1);
    *ref = luaL_ref(L, LUA_REGISTRYINDEX);
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

/* Settings that nobody reads are a slip, most likely in the name. */
static void refuse_unread_settings(lua_State *L, const struct policy_source *s)
{
    mr__config_push_settings(s->entry, L);
    lua_pushnil(L);
    if (lua_next(L, -2) != 0) {
        lua_pop(L, 1);
        luaL_error(L, "%s: has no load function, so its setting %s is read by nobody",
                   s->entry->place,
                   lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "(a number)");
    }
}

static int load_policy(lua_State *L)
{
    struct loading *l = lua_touserdata(L, 1);
    struct policy *p = l->policy;
    const struct policy_source *s = p->source;

    mr__require_push_env(L, p);
    if (mr__sandbox_load(L, lua_gettop(L), s->text, s->n, s->chunk) != 0) {
        return lua_error(L);
    }
    if (call_loading(L, l) == 0) {
        lua_pushnil(L);
    }
    take_policy(L, s, p);
    if (p->load_ref == LUA_NOREF && s->entry) {
        refuse_unread_settings(L, s);
    }
    return 0;
}

/* What failed, with a place: what has no line of its own (memory that ended, an error raised
 * without one) is at the policy's file, or for a shipped policy where the config file names it. */
static void say_at_source(struct script_error *err, const struct policy *p, const char *step,
                          const struct script_failure *why)
{
    const struct policy_source *s = p->source;
    const char *file = s->chunk + 1, *slash = strrchr(file, '/');
    const char *place = !s->is_shipped ? file : s->entry ? s->entry->place : NULL;

    /* Lua shortens long paths in front, so their ends are compared. */
    if (!place || strstr(why->text, place) ||
        (!s->is_shipped && strstr(why->text, slash ? slash + 1 : file))) {
        snprintf(err->text, sizeof err->text, "policy %s: %s%s", s->name, step, why->text);
    } else {
        snprintf(err->text, sizeof err->text, "policy %s: %s%s: %s", s->name, step, place,
                 why->text);
    }
    snprintf(err->traceback, sizeof err->traceback, "%s", why->traceback);
}

static int load_files(struct generation *g, struct script_error *err)
{
    for (size_t i = 0; i < g->n; i++) {
        struct script_failure failure = {.text = ""}, why;
        struct loading l = {.policy = &g->policies[i], .failure = &failure};
        int rc = mr__state_enter(&g->state, load_policy, &l, &why);

        if (rc != 0) {
            memcpy(why.traceback, failure.traceback, sizeof why.traceback);
            say_at_source(err, l.policy, "", &why);
            return rc;
        }
    }
    return 0;
}

/* ---- load(cfg) ------------------------------------------------------------------------------- */

static void push_load(lua_State *L, struct run *r)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->policy->load_ref);
}

static int push_cfg(lua_State *L, struct run *r)
{
    if (r->policy->source->entry) {
        mr__config_push_settings(r->policy->source->entry, L);
    } else {
        lua_newtable(L);
    }
    return 1;
}

static void run_loads(struct generation *g);

static void tell_loaded(struct generation *g, int rc, const struct script_error *err)
{
    g->loaded(g->user, rc, err);
}

static void fail_load(struct generation *g, int rc, const struct script_failure *failure)
{
    struct script_error err;

    say_at_source(&err, &g->policies[g->loading], "load: ", failure);
    tell_loaded(g, rc, &err);
}

static void on_load_ended(struct run *r, int rc, const struct script_failure *failure)
{
    struct generation *g = r->policy->generation;

    if (rc == -ECANCELED) {
        return;
    }
    if (rc != 0) {
        fail_load(g, rc, failure);
        return;
    }
    g->loading++;
    run_loads(g);
}

static const struct run_class load_class = {
    .kind = RUN_LOAD,
    .push_function = push_load,
    .push_arguments = push_cfg,
    .ended = on_load_ended,
};

static void run_loads(struct generation *g)
{
    static const struct script_error none = {.text = ""};

    for (; g->loading < g->n; g->loading++) {
        struct policy *p = &g->policies[g->loading];
        struct script_failure failure;
        int rc;

        if (p->load_ref == LUA_NOREF) {
            continue;
        }
        rc = mr__run_start(&g->load, &load_class, p, &failure);
        if (rc == RUN_WAITS) {
            return;
        }
        if (rc != 0) {
            fail_load(g, rc, &failure);
            return;
        }
    }
    tell_loaded(g, 0, &none);
}

void mr__generation_load(struct generation *g,
                         void (*done)(void *user, int rc, const struct script_error *err),
                         void *user)
{
    struct script_error err = {.text = ""};
    int rc;

    g->loaded = done;
    g->user = user;
    rc = load_files(g, &err);
    if (rc != 0) {
        tell_loaded(g, rc, &err);
        return;
    }
    run_loads(g);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int open_sandbox(lua_State *L)
{
    struct generation *g = lua_touserdata(L, 1);

    mr__anchors_open(L, &g->anchors);
    mr__sandbox_open(L, &g->sandbox);
    mr__event_open(L);
    return 0;
}

static void add_policy(struct generation *g, struct policy_source *s)
{
    struct policy *p = &g->policies[g->n++];

    *p = (struct policy){
        .generation = g,
        .source = s,
        .name = s->name,
        .origin = s->origin,
        .is_shadow = s->is_shadow,
        .is_skipped_on_error = s->is_skipped_on_error,
        .load_ref = LUA_NOREF,
        .env_ref = LUA_NOREF,
        .modules_ref = LUA_NOREF,
    };
    for (size_t i = 0; i < MR_HOOK_COUNT; i++) {
        p->hook_refs[i] = LUA_NOREF;
    }
}

int mr__generation_create(struct generation **out, const struct generation_options *opts,
                          struct policy_sources *sources, struct script_error *err)
{
    struct generation *g = mr__alloc(1, sizeof *g);
    struct script_failure failure = {.text = "out of memory"};
    int rc = -ENOMEM;

    if (g) {
        g->opts = *opts;
        g->sandbox = (struct sandbox_options){opts->wall_s, opts->user, opts->seed};
        g->runs = opts->runs;
        g->sources = mr__sources_ref(sources);
        g->policies = mr__alloc(sources->n + 1, sizeof *g->policies);
    }
    if (g && g->policies) {
        rc = mr__state_init(&g->state, opts->memory_bytes);
    }
    if (rc == 0) {
        rc = mr__state_enter(&g->state, open_sandbox, g, &failure);
    }
    if (rc != 0) {
        *err = (struct script_error){.text = ""};
        snprintf(err->text, sizeof err->text, "policies: %s", failure.text);
        mr__generation_destroy(g);
        return rc;
    }
    for (size_t i = 0; i < sources->n; i++) {
        add_policy(g, &sources->items[i]);
    }
    *out = g;
    return 0;
}

void mr__generation_use(struct generation *g)
{
    g->stage = GENERATION_IN_USE;
    for (size_t i = 0; i < g->n; i++) {
        struct policy *p = &g->policies[i];

        if (p->staged.is_set) {
            struct str reason = {p->staged.reason, strlen(p->staged.reason)};

            mr__policy_set_blocklist(p, p->staged.nets, reason, NULL);
            mr__cidr_unref(p->staged.nets);
            p->staged.nets = NULL;
            p->staged.is_set = false;
        }
    }
    mr__timers_start(g);
}

void mr__generation_retire(struct generation *g)
{
    g->stage = GENERATION_RETIRED;
    mr__timers_end(g);
    mr__outlets_end(g);
}

static void abandon_all(struct generation *g)
{
    static const struct script_failure none = {.text = ""};

    g->users++; /* the last of them must not end it */
    mr__timers_end(g);
    mr__outlets_end(g);
    while (g->waiting) {
        struct run *r = g->waiting;

        mr__run_abandon(r);
        r->class->ended(r, -ECANCELED, &none);
    }
    g->users--;
}

void mr__generation_destroy(struct generation *g)
{
    if (!g) {
        return;
    }
    if (g->state.L) {
        abandon_all(g);
        mr__state_deinit(&g->state);
    }
    mr__anchors_deinit(&g->anchors);
    for (size_t i = 0; i < g->n; i++) {
        struct policy *p = &g->policies[i];

        for (size_t k = 0; k < p->n_commands; k++) {
            mr__free(p->commands[k].verb);
        }
        mr__free(p->commands);
        mr__cidr_unref(p->staged.nets);
    }
    mr__sources_unref(g->sources);
    mr__free(g->policies);
    mr__free(g);
}

/* ---- block lists ----------------------------------------------------------------------------- */

static int stage(struct policy *p, struct cidr *nets, struct str reason)
{
    size_t n = reason.n < MR_REASON_MAX ? reason.n : MR_REASON_MAX;

    mr__cidr_unref(p->staged.nets);
    p->staged.nets = nets ? mr__cidr_ref(nets) : NULL;
    memcpy(p->staged.reason, reason.s, n);
    p->staged.reason[n] = '\0';
    p->staged.is_set = true;
    return 0;
}

int mr__policy_set_blocklist(struct policy *p, struct cidr *nets, struct str reason,
                             unsigned *ended)
{
    struct str owner = {p->name, strlen(p->name)};

    if (ended) {
        *ended = 0;
    }
    if (p->generation->stage == GENERATION_LOADING) {
        return stage(p, nets, reason);
    }
    if (p->generation->stage == GENERATION_RETIRED || !p->generation->opts.service) {
        return 0;
    }
    return mr__blocks_set_list(p->generation->opts.service, owner, nets, reason, ended);
}
