/* SPDX-License-Identifier: MIT */
/*
 * See require.h. Control thread only. Start reading at on_require().
 *
 * Files are read while the generation loads, and never later: a hook does no file I/O,
 * a rollback has every text it needs, and a watch knows every file.
 */
#include "script/require.h"

#include "base/alloc.h"
#include "script/embedded.h"
#include "script/generation.h"
#include "script/module.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

enum {
    NAME_BYTES_MAX = 200,
    FILES_MAX = 256, /* of a policy */
};

/* "lib.rules" -> "lib/rules.lua". Raises for what is no such name. */
static void path_of(lua_State *L, const char *name, size_t n, char path[NAME_BYTES_MAX + 8])
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

    if (n < 1 || n > NAME_BYTES_MAX || strspn(name, letters) != n || name[0] == '.' ||
        name[n - 1] == '.' || strstr(name, "..")) {
        luaL_error(L,
                   "module '%s' is not available: names of A-Z a-z 0-9 _ - with dots between "
                   "folders are expected (\"lib.rules\" is lib/rules.lua beside the policy)",
                   name);
    }
    memcpy(path, name, n + 1);
    for (char *at = path; *at; at++) {
        *at = *at == '.' ? '/' : *at;
    }
    memcpy(path + n, ".lua", 5);
}

static const struct required_file *find_kept(const struct policy_source *s, const char *name)
{
    for (size_t i = 0; i < s->n_required; i++) {
        if (strcmp(s->required[i].name, name) == 0) {
            return &s->required[i];
        }
    }
    return NULL;
}

static const struct required_file *read_file(lua_State *L, struct policy_source *s,
                                             const char *name, size_t n)
{
    char path[NAME_BYTES_MAX + 8], folder[4096], full[4096 + NAME_BYTES_MAX + 8];
    const char *slash = strrchr(s->origin, '/'), *why;
    size_t folder_n = slash ? (size_t)(slash - s->origin) + 1 : 0;
    const struct required_file *f;
    char *text;

    path_of(L, name, n, path);
    if (folder_n >= sizeof folder) {
        luaL_error(L, "module '%s' is not available: the path of the policy is too long", name);
    }
    memcpy(folder, s->origin, folder_n);
    folder[folder_n] = '\0';
    if (s->n_required == FILES_MAX) {
        luaL_error(L, "module '%s' is not available: more than %d files", name, FILES_MAX);
    }
    snprintf(full, sizeof full, "%s%s", folder, path);
    if (mr__source_read_below(folder, path, &text, &n, &why) != 0) {
        luaL_error(L, "module '%s' is not available: %s: %s", name, full, why);
    }
    f = mr__source_add_required(s, name, full, text, n);
    if (!f) {
        luaL_error(L, "not enough memory");
    }
    return f;
}

/* stack: 1 name, 2 modules. Runs the file and leaves what it returned. */
static void run_file(lua_State *L, struct policy *p, const struct required_file *f)
{
    int rc;

    lua_rawgeti(L, LUA_REGISTRYINDEX, p->env_ref);
    if (mr__sandbox_load(L, lua_gettop(L), f->text, f->n, f->chunk) != 0) {
        lua_error(L);
    }
    lua_remove(L, -2);
    lua_pushvalue(L, 1); /* marked, so that one that requires itself is seen */
    lua_pushboolean(L, 0);
    lua_rawset(L, 2);
    rc = lua_pcall(L, 0, 1, 0);
    if (rc != 0) {
        /* What failed is not there: the next one who requires it fails as well. */
        lua_pushvalue(L, 1);
        lua_pushnil(L);
        lua_rawset(L, 2);
        lua_error(L);
    }
    if (lua_isnil(L, -1) || (lua_isboolean(L, -1) && !lua_toboolean(L, -1))) {
        lua_pop(L, 1);
        lua_pushboolean(L, 1);
    }
    lua_pushvalue(L, 1);
    lua_pushvalue(L, -2);
    lua_rawset(L, 2);
}

/* The one shipped module beside `relay` itself: Lua text, run in the policy's own environment. */
static void push_options(lua_State *L, const struct policy *p)
{
    const struct embedded_file *f = mr__embedded_find("relay/options.lua");

    lua_rawgeti(L, LUA_REGISTRYINDEX, p->env_ref);
    if (!f || mr__sandbox_load(L, lua_gettop(L), (const char *)f->data, f->size,
                               "@relay/options.lua") != 0) {
        luaL_error(L, "relay.options: %s", f ? lua_tostring(L, -1) : "not in this program");
    }
    lua_call(L, 0, 1);
}

/* upvalues: the policy, its module `relay` */
static int on_require(lua_State *L)
{
    struct policy *p = lua_touserdata(L, lua_upvalueindex(1));
    const struct required_file *f;
    const char *name;
    size_t n;

    luaL_checktype(L, 1, LUA_TSTRING);
    name = lua_tolstring(L, 1, &n);
    lua_settop(L, 1);
    if (strcmp(name, "relay") == 0) {
        lua_pushvalue(L, lua_upvalueindex(2));
        return 1;
    }
    if (strcmp(name, "relay.options") == 0) {
        push_options(L, p);
        return 1;
    }
    if (p->source->is_shipped) {
        return luaL_error(L,
                          "module '%s' is not available: shipped policies may require \"relay\" "
                          "and \"relay.options\" only",
                          name);
    }
    lua_rawgeti(L, LUA_REGISTRYINDEX, p->modules_ref);
    lua_pushvalue(L, 1);
    lua_rawget(L, 2);
    if (lua_isboolean(L, -1) && !lua_toboolean(L, -1)) {
        return luaL_error(
            L, "module '%s' is not available: it requires itself, perhaps through others", name);
    }
    if (!lua_isnil(L, -1)) {
        return 1;
    }
    lua_pop(L, 1);
    if (p->generation->stage != GENERATION_LOADING) {
        return luaL_error(L,
                          "module '%s' is not available: files are read while the policy loads "
                          "(require it at the top of the file)",
                          name);
    }
    f = find_kept(p->source, name);
    mr__state_check_stack(L);
    luaL_checkstack(L, LUA_MINSTACK, "require");
    run_file(L, p, f ? f : read_file(L, p->source, name, n));
    return 1;
}

void mr__require_push_env(lua_State *L, struct policy *p)
{
    lua_newtable(L);
    p->modules_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    mr__sandbox_push_env(L);
    lua_pushvalue(L, -1);
    p->env_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pushliteral(L, "require");
    lua_pushlightuserdata(L, p);
    mr__module_push(L, p);
    lua_pushcclosure(L, on_require, 2);
    lua_rawset(L, -3);
}
