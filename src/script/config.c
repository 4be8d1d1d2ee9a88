/* SPDX-License-Identifier: MIT */
/*
 * Evaluates the config file and takes its table apart. Control thread (or before there
 * is one). Start reading at mr__config_parse(); take_config() is what the table may hold.
 *
 * The state stays until the config is destroyed, because policies' tables of settings
 * are copied from it into their generation.
 */
#include "script/config.h"

#include "base/alloc.h"
#include "base/suggest.h"
#include "script/config_entry.h"
#include "script/config_port.h"
#include "script/digest.h"
#include "script/locate.h"
#include "script/sandbox.h"
#include "script/source.h"
#include "script/state.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CFG_DEPTH_MAX = 16, /* of a policy's table of settings: it is copied by recursion */
    LIST_MAX = 1024,    /* policies, settings: above it something is wrong */
};

struct config {
    unsigned refs;
    struct script_state state;
    struct sandbox_options sandbox;
    const struct config_options *opts; /* during parsing only */
    char *path, *folder, *text;
    size_t n_text;
    char *file;     /* what `file` read last */
    char given[65]; /* a hash of all that `env` and `file` gave, in order */
    struct config_setting *settings;
    size_t n_settings;
    struct config_entry *entries;
    size_t n_entries;
    bool has_policies;
    struct config_port *ports;
    struct open_port *open; /* of them */
    size_t n_ports;
};

/* ---- messages and memory: all of these raise inside the state's protected call --------------- */

/* "moonrelay.lua:7", or without a line where none can be told. */
static void place_of(const struct config *c, const struct locate_step *path, size_t n_path,
                     char *out, size_t cap)
{
    unsigned line = mr__locate_line(c->text, c->n_text, path, n_path);

    if (line > 0) {
        snprintf(out, cap, "%s:%u", c->path, line);
    } else {
        snprintf(out, cap, "%s", c->path);
    }
}

/* Raises "file:line: message". */
__attribute__((format(printf, 5, 6))) static void refuse(lua_State *L, const struct config *c,
                                                         const struct locate_step *path,
                                                         size_t n_path, const char *format, ...)
{
    char place[512], message[512];
    va_list args;

    place_of(c, path, n_path, place, sizeof place);
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    lua_pushfstring(L, "%s: %s", place, message);
    lua_error(L);
}

static void *must(lua_State *L, void *p)
{
    if (!p) {
        luaL_error(L, "out of memory");
    }
    return p;
}

static char *copy_text(lua_State *L, const char *s, size_t n)
{
    return must(L, mr__strndup(s, n));
}

/* ---- env and file ---------------------------------------------------------------------------- */

static void note_given(struct config *c, const char *text, size_t n)
{
    enum { HEX = 64 };
    char both[2 * HEX + 1];

    memcpy(both, c->given, HEX);
    mr__digest_hex(text, n, both + HEX);
    mr__digest_hex(both, 2 * HEX, c->given);
}

static int on_env(lua_State *L)
{
    struct config *c = lua_touserdata(L, lua_upvalueindex(1));
    const char *name = luaL_checkstring(L, 1);
    size_t n = strlen(name);

    for (char *const *e = c->opts->environment; e && *e; e++) {
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=') {
            lua_pushstring(L, *e + n + 1);
            note_given(c, *e + n + 1, strlen(*e + n + 1));
            return 1;
        }
    }
    lua_settop(L, 2); /* the second argument is the default, nil without one */
    return 1;
}

static int on_file(lua_State *L)
{
    struct config *c = lua_touserdata(L, lua_upvalueindex(1));
    const char *name = luaL_checkstring(L, 1), *why;
    char *path;
    size_t n;
    int rc;

    mr__free(c->file);
    c->file = NULL;
    if (c->opts->read) {
        rc = c->opts->read(c->opts->user, name, &c->file, &n, &why);
    } else {
        path = must(L, mr__source_path(c->folder, name));
        rc = mr__source_read(path, &c->file, &n, &why);
        mr__free(path);
    }
    if (rc != 0) {
        return luaL_error(L, "file \"%s\": %s", name, why);
    }
    note_given(c, c->file, n);
    lua_pushlstring(L, c->file, n); /* may raise; the config owns the text */
    return 1;
}

/* ---- settings -------------------------------------------------------------------------------- */

/* The setting's value at the top, as text that settings read. */
static char *setting_text(lua_State *L, const struct config *c, const char *key, size_t *n)
{
    char number[64];
    const char *s;
    double v;

    switch (lua_type(L, -1)) {
    case LUA_TSTRING:
        s = lua_tolstring(L, -1, n);
        return copy_text(L, s, *n);
    case LUA_TBOOLEAN:
        s = lua_toboolean(L, -1) ? "true" : "false";
        *n = strlen(s);
        return copy_text(L, s, *n);
    case LUA_TNUMBER:
        v = lua_tonumber(L, -1);
        *n = (size_t)snprintf(number, sizeof number,
                              v == floor(v) && fabs(v) < 1e15 ? "%.0f" : "%.14g", v);
        return copy_text(L, number, *n);
    default:
        refuse(L, c, (struct locate_step[]){{.key = "settings"}, {.key = key}}, 2,
               "settings.%.64s is a %s (a string, number or boolean is expected)", key,
               luaL_typename(L, -1));
        return NULL;
    }
}

static void add_setting(lua_State *L, struct config *c)
{
    struct config_setting *grown, *s;
    char place[512];

    if (lua_type(L, -2) != LUA_TSTRING) {
        refuse(L, c, (struct locate_step[]){{.key = "settings"}}, 1,
               "settings has a key that is a %s (names are expected, key = value)",
               luaL_typename(L, -2));
    }
    if (c->n_settings == LIST_MAX) {
        refuse(L, c, (struct locate_step[]){{.key = "settings"}}, 1, "more than %d settings",
               LIST_MAX);
    }
    grown = must(L, mr__realloc(c->settings, c->n_settings + 1, sizeof *grown));
    c->settings = grown;
    s = &grown[c->n_settings++];
    *s = (struct config_setting){0};
    s->key = copy_text(L, lua_tostring(L, -2), lua_objlen(L, -2));
    s->value = setting_text(L, c, s->key, &s->n);
    place_of(c, (struct locate_step[]){{.key = "settings"}, {.key = s->key}}, 2, place,
             sizeof place);
    s->place = copy_text(L, place, strlen(place));
}

/* The order of lua_next() is no order; by line it is the file's. */
static void sort_settings(struct config *c)
{
    for (size_t i = 1; i < c->n_settings; i++) {
        struct config_setting s = c->settings[i];
        unsigned line = mr__locate_line(
            c->text, c->n_text, (struct locate_step[]){{.key = "settings"}, {.key = s.key}}, 2);
        size_t j = i;

        for (; j > 0; j--) {
            const char *key = c->settings[j - 1].key;
            unsigned before = mr__locate_line(
                c->text, c->n_text, (struct locate_step[]){{.key = "settings"}, {.key = key}}, 2);

            if (before < line || (before == line && strcmp(key, s.key) <= 0)) {
                break;
            }
            c->settings[j] = c->settings[j - 1];
        }
        c->settings[j] = s;
    }
}

static void require_plain_table(lua_State *L, const struct config *c, const char *key)
{
    const struct locate_step path = {.key = key};

    if (!lua_istable(L, -1)) {
        refuse(L, c, &path, 1, "%s is a %s (a table is expected)", key, luaL_typename(L, -1));
    }
    if (lua_getmetatable(L, -1)) {
        refuse(L, c, &path, 1, "%s has a metatable (a plain table is expected)", key);
    }
}

static void take_settings(lua_State *L, struct config *c)
{
    require_plain_table(L, c, "settings");
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
        add_setting(L, c);
    }
    sort_settings(c);
}

/* ---- policies -------------------------------------------------------------------------------- */

/* Checks that the value at the top can be copied to another state; what names it. */
static void check_data(lua_State *L, const struct config *c, unsigned index, const char *what,
                       int depth)
{
    const struct locate_step path[] = {{.key = "policies"}, {.index = index}, {.key = what}};

    switch (lua_type(L, -1)) {
    case LUA_TBOOLEAN:
    case LUA_TNUMBER:
    case LUA_TSTRING:
        return;
    case LUA_TTABLE:
        break;
    default:
        refuse(L, c, path, 3,
               "policies[%u].%.64s holds a %s (strings, numbers, booleans and tables of them are "
               "expected)",
               index, what, luaL_typename(L, -1));
    }
    if (depth == CFG_DEPTH_MAX) {
        refuse(L, c, path, 3, "policies[%u].%.64s is nested more than %d tables deep", index, what,
               CFG_DEPTH_MAX);
    }
    if (lua_getmetatable(L, -1)) {
        refuse(L, c, path, 3, "policies[%u].%.64s has a metatable (plain tables are expected)",
               index, what);
    }
    luaL_checkstack(L, 6, "config");
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
        lua_pushvalue(L, -2);
        check_data(L, c, index, what, depth + 1);
        lua_pop(L, 1);
        check_data(L, c, index, what, depth + 1);
    }
}

static bool take_flag(lua_State *L, const struct config *c, unsigned index, const char *key,
                      const char *yes, const char *no)
{
    const struct locate_step path[] = {{.key = "policies"}, {.index = index}, {.key = key}};

    if (!yes) {
        if (!lua_isboolean(L, -1)) {
            refuse(L, c, path, 3, "policies[%u].%s is a %s (true or false is expected)", index, key,
                   luaL_typename(L, -1));
        }
        return lua_toboolean(L, -1);
    }
    const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
    if (strcmp(text, yes) != 0 && strcmp(text, no) != 0) {
        refuse(L, c, path, 3, "policies[%u].%s is not understood (\"%s\" or \"%s\" is expected)",
               index, key, no, yes);
    }
    return strcmp(text, yes) == 0;
}

/* A slip in an option would become one of the policy's settings, and be ignored there. */
static void refuse_slip(lua_State *L, const struct config *c, unsigned index, const char *key)
{
    static const char *const options[] = {"on_error", "shadow"};
    const struct locate_step path[] = {{.key = "policies"}, {.index = index}, {.key = key}};

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        unsigned allowed = i == 0 ? 2 : 1;

        if (mr__suggest_distance(key, strlen(key), options[i], strlen(options[i])) <= allowed) {
            refuse(L, c, path, 3, "policies[%u].%.64s is no option; did you mean %s?", index, key,
                   options[i]);
        }
    }
}

static void take_chunk(lua_State *L, const struct config *c, struct config_entry *e, unsigned index)
{
    const struct locate_step place[] = {{.key = "policies"}, {.index = index}};

    if (lua_type(L, -1) != LUA_TSTRING) {
        refuse(L, c, place, 2, "policies[%u].chunk is a %s (a string is expected)", index,
               luaL_typename(L, -1));
    }
    e->n_text = lua_objlen(L, -1);
    e->text = copy_text(L, lua_tostring(L, -1), e->n_text);
}

/* One key of an entry's table; key at -2, value at -1, the copy of settings at -4. */
static void take_entry_key(lua_State *L, struct config *c, struct config_entry *e, unsigned index)
{
    const struct locate_step place[] = {{.key = "policies"}, {.index = index}};
    const char *key;

    if (lua_type(L, -2) == LUA_TNUMBER && lua_tonumber(L, -2) == 1) {
        return;
    }
    if (lua_type(L, -2) != LUA_TSTRING) {
        refuse(L, c, place, 2,
               "policies[%u] has more than a name and settings (write { \"name\", key = value })",
               index);
    }
    key = lua_tostring(L, -2);
    if (strcmp(key, "shadow") == 0) {
        e->is_shadow = take_flag(L, c, index, key, NULL, NULL);
    } else if (strcmp(key, "on_error") == 0) {
        e->is_skipped_on_error = take_flag(L, c, index, key, "skip", "refuse");
    } else if (strcmp(key, "name") == 0) {
        if (lua_type(L, -1) != LUA_TSTRING) {
            refuse(L, c, place, 2, "policies[%u].name is a %s (a string is expected)", index,
                   luaL_typename(L, -1));
        }
        e->name = copy_text(L, lua_tostring(L, -1), lua_objlen(L, -1));
    } else if (c->opts->takes_chunks && strcmp(key, "chunk") == 0) {
        take_chunk(L, c, e, index);
    } else {
        refuse_slip(L, c, index, key);
        check_data(L, c, index, key, 1);
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, -6);
    }
}

/* The entry's table is at the top; leaves the table of its settings over it. */
static void take_entry_table(lua_State *L, struct config *c, struct config_entry *e, unsigned index)
{
    const struct locate_step place[] = {{.key = "policies"}, {.index = index}};

    if (lua_getmetatable(L, -1)) {
        refuse(L, c, place, 2, "policies[%u] has a metatable (a plain table is expected)", index);
    }
    lua_rawgeti(L, -1, 1);
    lua_pushliteral(L, "chunk");
    lua_rawget(L, -3);
    bool is_chunk = c->opts->takes_chunks && !lua_isnil(L, -1) && lua_isnil(L, -2);
    lua_pop(L, 1);
    if (is_chunk) {
        lua_pop(L, 1);
        lua_pushfstring(L, "./chunk%d.lua", (int)index);
    }
    if (lua_type(L, -1) != LUA_TSTRING) {
        refuse(L, c, place, 2,
               "policies[%u] does not begin with a name or path (write { \"name\", key = value })",
               index);
    }
    e->what = copy_text(L, lua_tostring(L, -1), lua_objlen(L, -1));
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -2);
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
        take_entry_key(L, c, e, index);
    }
    lua_pop(L, 1);
}

/* The item of `policies` at the top. */
static void add_entry(lua_State *L, struct config *c, unsigned index)
{
    const struct locate_step path[] = {{.key = "policies"}, {.index = index}};
    struct config_entry *e;
    char place[512];

    c->entries = must(L, mr__realloc(c->entries, c->n_entries + 1, sizeof *c->entries));
    e = &c->entries[c->n_entries++];
    *e = (struct config_entry){.config = c, .cfg_ref = LUA_NOREF};
    place_of(c, path, 2, place, sizeof place);
    e->place = copy_text(L, place, strlen(place));
    if (lua_type(L, -1) == LUA_TSTRING) {
        e->what = copy_text(L, lua_tostring(L, -1), lua_objlen(L, -1));
        lua_newtable(L);
    } else if (lua_istable(L, -1)) {
        take_entry_table(L, c, e, index);
    } else {
        refuse(L, c, path, 2, "policies[%u] is a %s (a name, or { \"name\", key = value })", index,
               luaL_typename(L, -1));
    }
    e->cfg_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

static void take_policies(lua_State *L, struct config *c)
{
    const struct locate_step path = {.key = "policies"};
    size_t n = lua_objlen(L, -1), keys = 0;

    require_plain_table(L, c, "policies");
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
        double key = lua_type(L, -2) == LUA_TNUMBER ? lua_tonumber(L, -2) : 0;

        keys++;
        if (!(key >= 1 && key <= (double)n && key == floor(key))) {
            refuse(L, c, &path, 1, "policies is a list without names (and without nil inside)");
        }
    }
    if (keys != n || n > LIST_MAX) {
        refuse(L, c, &path, 1, "policies has a nil inside, or more than %d items", LIST_MAX);
    }
    for (unsigned i = 1; i <= n; i++) {
        lua_rawgeti(L, -1, (int)i);
        add_entry(L, c, i);
        lua_pop(L, 1);
    }
    c->has_policies = true;
}

/* ---- ports ----------------------------------------------------------------------------------- */

enum { PORTS_MAX = 1024 };

/* Key at -2. */
static uint16_t check_number(lua_State *L, const struct config *c)
{
    double v = lua_type(L, -2) == LUA_TNUMBER ? lua_tonumber(L, -2) : -1;

    if (lua_type(L, -2) != LUA_TNUMBER) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        refuse(L, c, (struct locate_step[]){{.key = "ports"}, {.key = key}}, 2,
               "ports has a key that is a %s (UDP port numbers are expected: [7777] = { ... })",
               luaL_typename(L, -2));
    }
    if (!(v >= 0 && v <= UINT16_MAX && v == floor(v))) {
        refuse(L, c, (struct locate_step[]){{.key = "ports"}}, 1,
               "ports[%.14g] is no UDP port (0 to 65535 are expected; 0 is of the kernel's choice)",
               v);
    }
    return (uint16_t)v;
}

/* Key at -2, value at -1. */
static void add_port(lua_State *L, struct config *c)
{
    uint16_t number = check_number(L, c);
    char text[8], place[512], why[ANSWER_WHY_MAX];
    const struct locate_step path[] = {{.key = "ports"}, {.key = text}};
    struct config_port *p;

    snprintf(text, sizeof text, "%u", number);
    if (c->n_ports == PORTS_MAX) {
        refuse(L, c, path, 1, "more than %d ports", PORTS_MAX);
    }
    c->ports = must(L, mr__realloc(c->ports, c->n_ports + 1, sizeof *c->ports));
    p = &c->ports[c->n_ports];
    switch (mr__config_port_read(L, p, why)) {
    case 0:
        break;
    case -ENOMEM:
        must(L, NULL);
        break;
    default:
        refuse(L, c, path, 2, "ports[%u]: %s", number, why);
    }
    c->n_ports++;
    p->port.number = number;
    place_of(c, path, 2, place, sizeof place);
    p->place = copy_text(L, place, strlen(place));
    p->port.place = p->place;
}

static int compare_ports(const void *a, const void *b)
{
    return (int)((const struct config_port *)a)->port.number -
           (int)((const struct config_port *)b)->port.number;
}

static void take_ports(lua_State *L, struct config *c)
{
    require_plain_table(L, c, "ports");
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
        add_port(L, c);
    }
    if (c->n_ports == 0) {
        return;
    }
    qsort(c->ports, c->n_ports, sizeof *c->ports, compare_ports);
    c->open = must(L, mr__alloc(c->n_ports, sizeof *c->open));
    for (size_t i = 0; i < c->n_ports; i++) {
        c->open[i] = c->ports[i].port;
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

static void refuse_key(lua_State *L, const struct config *c)
{
    static const char *const keys[] = {"settings", "policies", "ports", NULL};
    const char *key, *near;
    size_t n;

    if (lua_type(L, -2) != LUA_TSTRING) {
        refuse(L, c, (struct locate_step[]){{.index = 1}}, 1,
               "the config has a value without a key (settings, policies and ports are expected)");
    }
    key = lua_tolstring(L, -2, &n);
    near = mr__suggest_name(key, n, keys);
    refuse(L, c, (struct locate_step[]){{.key = key}}, 1, "unknown key %.64s%s%s%s", key,
           near ? "; did you mean " : " (settings, policies and ports are expected)",
           near ? near : "", near ? "?" : "");
}

/* What the file returned is at the top. */
static void take_config(lua_State *L, struct config *c)
{
    if (!lua_istable(L, -1) || lua_getmetatable(L, -1)) {
        refuse(L, c, NULL, 0,
               "the file returns %s (a table is expected: return { settings = { ... "
               "}, policies = { ... } })",
               lua_isnil(L, -1) ? "nothing" : "no plain table");
    }
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";

        if (strcmp(key, "settings") == 0) {
            take_settings(L, c);
        } else if (strcmp(key, "policies") == 0) {
            take_policies(L, c);
        } else if (strcmp(key, "ports") == 0) {
            take_ports(L, c);
        } else {
            refuse_key(L, c);
        }
    }
}

static void push_config_env(lua_State *L, struct config *c)
{
    mr__sandbox_push_env(L);
    lua_pushlightuserdata(L, c);
    lua_pushcclosure(L, on_env, 1);
    lua_pushliteral(L, "env");
    lua_insert(L, -2);
    lua_rawset(L, -3);
    lua_pushlightuserdata(L, c);
    lua_pushcclosure(L, on_file, 1);
    lua_pushliteral(L, "file");
    lua_insert(L, -2);
    lua_rawset(L, -3);
}

static int evaluate(lua_State *L)
{
    struct config *c = lua_touserdata(L, 1);
    struct script_failure failure;
    uint64_t cpu_ns = c->opts->cpu_ns ? c->opts->cpu_ns : 1000000000;
    int n;

    mr__sandbox_open(L, &c->sandbox);
    push_config_env(L, c);
    lua_pushfstring(L, "@%s", c->path);
    if (mr__sandbox_load(L, lua_gettop(L) - 1, c->text, c->n_text, lua_tostring(L, -1)) != 0) {
        return lua_error(L);
    }
    if (mr__state_resume(L, 0, 1, cpu_ns, &n, &failure) != 0) {
        lua_pushstring(L, failure.text);
        return lua_error(L);
    }
    if (n == 0) {
        lua_pushnil(L);
    }
    take_config(L, c);
    return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int create(struct config **out, const struct config_options *opts, const char *text,
                  size_t n, const char *path)
{
    struct config *c = mr__alloc(1, sizeof *c);
    const char *slash = strrchr(path, '/');

    if (!c) {
        return -ENOMEM;
    }
    c->refs = 1;
    c->sandbox.wall_s = mr__sandbox_wall_s;
    c->opts = opts;
    c->path = mr__strndup(path, strlen(path));
    c->folder = mr__strndup(path, slash ? (size_t)(slash - path) + 1 : 0);
    c->text = mr__strndup(text, n);
    c->n_text = n;
    if (!c->path || !c->folder || !c->text ||
        mr__state_init(&c->state, opts->memory_bytes ? opts->memory_bytes : 32u << 20) != 0) {
        mr__config_unref(c);
        return -ENOMEM;
    }
    *out = c;
    return 0;
}

int mr__config_parse(struct config **out, const struct config_options *opts, const char *text,
                     size_t n, const char *path, struct script_error *err)
{
    struct script_failure failure;
    struct config *c;
    int rc = create(&c, opts, text, n, path);

    if (rc != 0) {
        snprintf(err->text, sizeof err->text, "%s: out of memory", path);
        return rc;
    }
    rc = mr__state_enter(&c->state, evaluate, c, &failure);
    c->opts = NULL;
    if (rc != 0) {
        /* Lua's own messages and ours begin with the file already, memory errors do not. */
        bool is_placed = strncmp(failure.text, path, strlen(path)) == 0;

        snprintf(err->text, sizeof err->text, "%s%s%s", is_placed ? "" : path,
                 is_placed ? "" : ": ", failure.text);
        mr__config_unref(c);
        return rc;
    }
    *out = c;
    return 0;
}

int mr__config_read(struct config **out, const struct config_options *opts, const char *path,
                    struct script_error *err)
{
    const char *why;
    char *text;
    size_t n;
    int rc = mr__source_read(path, &text, &n, &why);

    if (rc != 0) {
        snprintf(err->text, sizeof err->text, "config file %s: %s", path, why);
        return rc;
    }
    rc = mr__config_parse(out, opts, text, n, path, err);
    mr__free(text);
    return rc;
}

struct config *mr__config_ref(struct config *c)
{
    if (c) {
        c->refs++;
    }
    return c;
}

void mr__config_unref(struct config *c)
{
    if (!c || --c->refs > 0) {
        return;
    }
    mr__state_deinit(&c->state);
    for (size_t i = 0; i < c->n_settings; i++) {
        mr__free((char *)(uintptr_t)c->settings[i].key);
        mr__free((char *)(uintptr_t)c->settings[i].value);
        mr__free((char *)(uintptr_t)c->settings[i].place);
    }
    for (size_t i = 0; i < c->n_entries; i++) {
        mr__free(c->entries[i].what);
        mr__free(c->entries[i].name);
        mr__free(c->entries[i].text);
        mr__free(c->entries[i].place);
    }
    for (size_t i = 0; i < c->n_ports; i++) {
        mr__config_port_deinit(&c->ports[i]);
    }
    mr__free(c->settings);
    mr__free(c->entries);
    mr__free(c->ports);
    mr__free(c->open);
    mr__free(c->path);
    mr__free(c->folder);
    mr__free(c->text);
    mr__free(c->file);
    mr__free(c);
}

/* ---- reading it ------------------------------------------------------------------------------ */

bool mr__config_is_same(const struct config *a, const struct config *b)
{
    return a == b || (a && b && strcmp(a->path, b->path) == 0 && a->n_text == b->n_text &&
                      memcmp(a->text, b->text, a->n_text) == 0 &&
                      memcmp(a->given, b->given, sizeof a->given) == 0);
}

size_t mr__config_setting_count(const struct config *c)
{
    return c->n_settings;
}

void mr__config_setting(const struct config *c, size_t i, struct config_setting *out)
{
    *out = c->settings[i];
}

size_t mr__config_port_count(const struct config *c)
{
    return c ? c->n_ports : 0;
}

const struct open_port *mr__config_ports(const struct config *c)
{
    return c ? c->open : NULL;
}

static bool is_relay_port(const struct settings_values *v, uint16_t number)
{
    for (size_t i = 0; i < v->udp_relay_ports.n; i++) {
        if (v->udp_relay_ports.ports[i] == number) {
            return true;
        }
    }
    return false;
}

int mr__config_check_ports(const struct config *c, const struct settings_values *v,
                           struct script_error *err)
{
    for (size_t i = 0; i < mr__config_port_count(c); i++) {
        const struct open_port *p = &c->open[i];
        const char *whose = p->number == 0                       ? NULL
                            : p->number == v->udp_registrar_port ? "is udp_registrar_port"
                            : is_relay_port(v, p->number)        ? "is among udp_relay_ports"
                                                                 : NULL;
        if (whose) {
            snprintf(err->text, sizeof err->text,
                     "%s: ports[%u] %s (an open port is one of its own)", p->place, p->number,
                     whose);
            return -EINVAL;
        }
    }
    return 0;
}

bool mr__config_has_policies(const struct config *c)
{
    return c->has_policies;
}

size_t mr__config_entry_count(const struct config *c)
{
    return c->n_entries;
}

const struct config_entry *mr__config_entry(const struct config *c, size_t i)
{
    return &c->entries[i];
}

const char *mr__config_folder(const struct config *c)
{
    return c->folder;
}

/* Copies the value at the top of `from` to `to`. Only functions that cannot raise are used on
 * `from`: an error of `to` must not unwind through it. */
static void copy_value(lua_State *from, lua_State *to)
{
    size_t n;
    const char *s;

    switch (lua_type(from, -1)) {
    case LUA_TBOOLEAN:
        lua_pushboolean(to, lua_toboolean(from, -1));
        return;
    case LUA_TNUMBER:
        lua_pushnumber(to, lua_tonumber(from, -1));
        return;
    case LUA_TSTRING:
        s = lua_tolstring(from, -1, &n);
        lua_pushlstring(to, s, n);
        return;
    default:
        break;
    }
    luaL_checkstack(to, 4, "settings of a policy");
    lua_newtable(to);
    for (lua_pushnil(from); lua_next(from, -2) != 0; lua_pop(from, 1)) {
        lua_pushvalue(from, -2);
        copy_value(from, to);
        lua_pop(from, 1);
        copy_value(from, to);
        lua_rawset(to, -3);
    }
}

void mr__config_push_settings(const struct config_entry *e, lua_State *L)
{
    lua_State *from = e->config->state.L;

    lua_settop(from, 0); /* what an earlier copy left that ran out of memory */
    if (!lua_checkstack(from, 4 * CFG_DEPTH_MAX + 8)) {
        luaL_error(L, "out of memory");
    }
    lua_rawgeti(from, LUA_REGISTRYINDEX, e->cfg_ref);
    copy_value(from, L);
    lua_settop(from, 0);
}
