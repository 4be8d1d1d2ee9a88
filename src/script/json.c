/* SPDX-License-Identifier: MIT */
/*
 * JSON text to values of Lua and back (json.h). Control thread only. Start reading at
 * mr__json_decode() and mr__json_push().
 *
 * jansson's trees are in a holder before anything can raise, and a container is in its
 * parent before it is filled, so that an error at any point frees the whole tree.
 */
#include "script/json.h"

#include "base/alloc.h"
#include "script/holder.h"
#include "script/state.h"

#include <errno.h>
#include <jansson.h>
#include <lauxlib.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    VALUES_PER_LOOK = 500, /* at the clock: about 100 us */
    PATH_MAX_BYTES = 160,
    STACK_PER_LEVEL = 4,
    TEXT_FIRST_BYTES = 512,
};

static const double EXACT_MAX = 9007199254740992.0; /* 2^53 */

static const char array_key; /* its address is the registry's key of the mark */

static void release_tree(void *tree)
{
    json_decref(tree);
}

void mr__json_open(lua_State *L)
{
    mr__holder_open(L);
    lua_pushlightuserdata(L, (void *)(uintptr_t)&array_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    if (lua_isnil(L, -1)) {
        lua_pushlightuserdata(L, (void *)(uintptr_t)&array_key);
        lua_newtable(L);
        lua_pushboolean(L, 0);
        lua_setfield(L, -2, "__metatable");
        lua_rawset(L, LUA_REGISTRYINDEX);
    }
    lua_pop(L, 1);
}

static void push_mark(lua_State *L)
{
    lua_pushlightuserdata(L, (void *)(uintptr_t)&array_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
}

void mr__json_mark_array(lua_State *L, int index)
{
    lua_pushvalue(L, index);
    push_mark(L);
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}

/* ---- decoding --------------------------------------------------------------------------------
 * jansson nests to 2,048 and takes what it is given, so the text is looked through first: how deep
 * it is, and how many values it has at most. */

/* The index of the quote that ends the text that begins at i. */
static size_t skip_text(const char *text, size_t n, size_t i)
{
    for (i++; i < n && text[i] != '"'; i++) {
        i += text[i] == '\\';
    }
    return i;
}

static int check_bounds(const char *text, size_t n, char why[MR_JSON_WHY_MAX])
{
    size_t depth = 0, deepest = 0, values = 1;

    if (n > MR_JSON_BYTES_MAX) {
        snprintf(why, MR_JSON_WHY_MAX, "longer than 1 MiB");
        return -EINVAL;
    }
    for (size_t i = 0; i < n; i++) {
        switch (text[i]) {
        case '"':
            i = skip_text(text, n, i);
            break;
        case '[':
        case '{':
            depth++;
            values++;
            deepest = depth > deepest ? depth : deepest;
            break;
        case ']':
        case '}':
            depth -= depth > 0;
            break;
        case ',':
            values++;
            break;
        default:
            break;
        }
    }
    if (deepest > MR_JSON_DEPTH_MAX) {
        snprintf(why, MR_JSON_WHY_MAX, "nested deeper than %d levels", MR_JSON_DEPTH_MAX);
        return -EINVAL;
    }
    if (values > MR_JSON_VALUES_MAX) {
        snprintf(why, MR_JSON_WHY_MAX, "more than %d values", MR_JSON_VALUES_MAX);
        return -EINVAL;
    }
    return 0;
}

static void push_tree(lua_State *L, const json_t *v, size_t *count);

static void push_list(lua_State *L, const json_t *v, size_t *count)
{
    size_t n = json_array_size(v);

    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        push_tree(L, json_array_get(v, i), count);
        lua_rawseti(L, -2, (int)i + 1);
    }
}

static void push_object(lua_State *L, const json_t *v, size_t *count)
{
    json_t *object = (json_t *)(uintptr_t)v; /* iterating changes nothing */

    lua_createtable(L, 0, (int)json_object_size(v));
    for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i)) {
        if (!json_is_null(json_object_iter_value(i))) {
            lua_pushstring(L, json_object_iter_key(i));
            push_tree(L, json_object_iter_value(i), count);
            lua_rawset(L, -3);
        }
    }
}

static void push_integer(lua_State *L, json_int_t v)
{
    char text[24];

    if (fabs((double)v) < EXACT_MAX) {
        lua_pushnumber(L, (double)v);
    } else {
        lua_pushlstring(L, text, (size_t)snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, v));
    }
}

static void push_tree(lua_State *L, const json_t *v, size_t *count)
{
    if (++*count % VALUES_PER_LOOK == 0) {
        mr__state_charge(L);
    }
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        push_object(L, v, count);
        break;
    case JSON_ARRAY:
        push_list(L, v, count);
        break;
    case JSON_STRING:
        lua_pushlstring(L, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        push_integer(L, json_integer_value(v));
        break;
    case JSON_REAL:
        lua_pushnumber(L, json_real_value(v));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        lua_pushboolean(L, json_is_true(v));
        break;
    default:
        lua_pushlightuserdata(L, NULL);
        break;
    }
}

int mr__json_decode(lua_State *L, const char *text, size_t n, char why[MR_JSON_WHY_MAX])
{
    struct holder *holder;
    size_t count = 0;
    json_error_t e = {.text = ""}; /* jansson leaves it alone where it cannot allocate */
    int rc = check_bounds(text, n, why);

    if (rc != 0) {
        return rc;
    }
    luaL_checkstack(L, (MR_JSON_DEPTH_MAX + 2) * STACK_PER_LEVEL, "json");
    holder = mr__holder_push(L, release_tree);
    holder->p = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (!holder->p) {
        if (json_error_code(&e) == json_error_out_of_memory || e.text[0] == '\0') {
            /* jansson says nothing where it could not allocate. */
            luaL_error(L, "not enough memory for the JSON");
        }
        snprintf(why, MR_JSON_WHY_MAX, "line %d column %d: %.*s", e.line, e.column,
                 JSON_ERROR_TEXT_LENGTH - 1, e.text);
        lua_pop(L, 1);
        return -EINVAL;
    }
    mr__state_charge(L);
    push_tree(L, holder->p, &count);
    mr__holder_release(holder);
    lua_remove(L, -2);
    return 0;
}

/* ---- encoding -------------------------------------------------------------------------------- */

struct encoder {
    lua_State *L;
    size_t values, bytes, depth;
    char path[PATH_MAX_BYTES]; /* of the value being written: "value.list[3]" */
    size_t path_n;
    int mark; /* index of the metatable that marks lists */
};

static void fail(struct encoder *e, const char *why)
{
    luaL_error(e->L, "cannot be written as JSON: %s %s", e->path, why);
}

__attribute__((format(printf, 2, 3))) static void extend_path(struct encoder *e, const char *format,
                                                              ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(e->path + e->path_n, sizeof e->path - e->path_n, format, args);
    va_end(args);
    e->path_n += n > 0 ? (size_t)n : 0;
    if (e->path_n >= sizeof e->path) {
        e->path_n = sizeof e->path - 1;
    }
}

static void cut_path(struct encoder *e, size_t n)
{
    e->path_n = n;
    e->path[n] = '\0';
}

static json_t *make_number(struct encoder *e)
{
    double v = lua_tonumber(e->L, -1);

    if (!isfinite(v)) {
        fail(e, "is not finite");
    }
    return v == floor(v) && fabs(v) <= EXACT_MAX ? json_integer((json_int_t)v) : json_real(v);
}

/* How many bytes the character at s takes, or 0: RFC 3629, without surrogates and overlong forms.
 */
static size_t utf8_length(const unsigned char *s, size_t left)
{
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                             : 0;

    if (n == 0 || n > left) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90)) {
        return 0;
    }
    return n;
}

/* Checked here, since of jansson's NULL one cannot tell whether memory was short. */
static void check_text(struct encoder *e, const char *s, size_t n, const char *why)
{
    e->bytes += n;
    if (e->bytes > MR_JSON_BYTES_MAX) {
        luaL_error(e->L, "cannot be written as JSON: longer than 1 MiB");
    }
    for (size_t i = 0, step; i < n; i += step) {
        step = utf8_length((const unsigned char *)s + i, n - i);
        if (step == 0) {
            fail(e, why);
        }
    }
}

static json_t *make_text(struct encoder *e)
{
    size_t n;
    const char *s = lua_tolstring(e->L, -1, &n);

    check_text(e, s, n, "is not UTF-8");
    return json_stringn_nocheck(s, n);
}

/* Whether the table at the top is written as a list; what is neither one nor an object raises. */
static bool is_list(struct encoder *e)
{
    size_t n = lua_objlen(e->L, -1), found = 0;
    bool is_marked = false;

    if (lua_getmetatable(e->L, -1)) {
        is_marked = lua_rawequal(e->L, -1, e->mark);
        lua_pop(e->L, 1);
        if (!is_marked) {
            fail(e, "is a table with a metatable (a plain one is expected)");
        }
    }
    if (n == 0 && !is_marked) {
        return false;
    }
    for (lua_pushnil(e->L); lua_next(e->L, -2) != 0; lua_pop(e->L, 1)) {
        double k = lua_type(e->L, -2) == LUA_TNUMBER ? lua_tonumber(e->L, -2) : 0;

        if (!(k >= 1 && k <= (double)n && k == floor(k))) {
            fail(e, "has both a list's numbers and other keys");
        }
        if (++found % VALUES_PER_LOOK == 0) {
            mr__state_charge(e->L);
        }
    }
    if (found != n) {
        fail(e, "is a list with holes");
    }
    return true;
}

/* Nothing may raise once the value is made: it is in no holder yet. */
static json_t *make_value(struct encoder *e, bool *is_container)
{
    json_t *v = NULL;

    *is_container = false;
    if (++e->values > MR_JSON_VALUES_MAX) {
        luaL_error(e->L, "cannot be written as JSON: more than %d values", MR_JSON_VALUES_MAX);
    }
    switch (lua_type(e->L, -1)) {
    case LUA_TNUMBER:
        v = make_number(e);
        break;
    case LUA_TBOOLEAN:
        v = json_boolean(lua_toboolean(e->L, -1));
        break;
    case LUA_TSTRING:
        v = make_text(e);
        break;
    case LUA_TTABLE:
        *is_container = true;
        v = is_list(e) ? json_array() : json_object();
        break;
    case LUA_TLIGHTUSERDATA:
        if (!lua_touserdata(e->L, -1)) {
            v = json_null();
            break;
        }
        __attribute__((fallthrough));
    default:
        luaL_error(e->L, "cannot be written as JSON: %s is a %s", e->path, luaL_typename(e->L, -1));
    }
    if (!v) {
        luaL_error(e->L, "not enough memory for the JSON");
    }
    return v;
}

static void fill(struct encoder *e, json_t *container);

/* The value at the top into its container, then what is in it. */
static void add(struct encoder *e, json_t *container, const char *key)
{
    bool is_container;
    json_t *v = make_value(e, &is_container);
    int rc =
        key ? json_object_set_new_nocheck(container, key, v) : json_array_append_new(container, v);

    if (rc != 0) { /* v is gone */
        luaL_error(e->L, "not enough memory for the JSON");
    }
    if (e->values % VALUES_PER_LOOK == 0) {
        mr__state_charge(e->L);
    }
    if (is_container) {
        fill(e, v);
    }
}

static const char *check_key(struct encoder *e)
{
    size_t n = 0;
    const char *key = lua_type(e->L, -2) == LUA_TSTRING ? lua_tolstring(e->L, -2, &n) : NULL;

    if (!key) {
        luaL_error(e->L,
                   "cannot be written as JSON: %s has a key that is a %s (texts, or a list's "
                   "numbers from 1 on, are expected)",
                   e->path, luaL_typename(e->L, -2));
    }
    if (memchr(key, '\0', n)) {
        fail(e, "has a key that holds a NUL");
    }
    check_text(e, key, n, "has a key that is not UTF-8");
    return key;
}

static void fill(struct encoder *e, json_t *container)
{
    size_t path = e->path_n;

    if (++e->depth > MR_JSON_DEPTH_MAX) {
        fail(e, "is nested deeper than 32 levels, or inside of itself");
    }
    if (json_is_array(container)) {
        size_t n = lua_objlen(e->L, -1);

        for (size_t i = 1; i <= n; i++) {
            extend_path(e, "[%zu]", i);
            lua_rawgeti(e->L, -1, (int)i);
            add(e, container, NULL);
            lua_pop(e->L, 1);
            cut_path(e, path);
        }
    } else {
        for (lua_pushnil(e->L); lua_next(e->L, -2) != 0; lua_pop(e->L, 1)) {
            const char *key = check_key(e);

            extend_path(e, ".%.40s", key);
            add(e, container, key);
            cut_path(e, path);
        }
    }
    e->depth--;
}

/* Text that grows while jansson writes it. */
struct text {
    char *s;
    size_t n, cap;
    bool is_too_long;
};

static void release_text(void *p)
{
    struct text *t = p;

    mr__free(t->s);
    mr__free(t);
}

static int add_chunk(const char *chunk, size_t n, void *user)
{
    struct text *t = user;
    size_t cap = t->cap ? t->cap : TEXT_FIRST_BYTES;
    char *s;

    if (n > MR_JSON_BYTES_MAX - t->n) {
        t->is_too_long = true;
        return -1;
    }
    while (cap < t->n + n) {
        cap *= 2;
    }
    if (cap > t->cap) {
        s = mr__realloc(t->s, cap, 1);
        if (!s) {
            return -1;
        }
        t->s = s;
        t->cap = cap;
    }
    memcpy(t->s + t->n, chunk, n);
    t->n += n;
    return 0;
}

/* Pushes the tree's text. */
static void push_text(lua_State *L, const json_t *tree)
{
    const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(15);
    struct holder *holder = mr__holder_push(L, release_text);
    struct text *t = holder->p = mr__alloc(1, sizeof *t);

    if (!t || json_dump_callback(tree, add_chunk, t, flags) != 0) {
        luaL_error(L, t && t->is_too_long ? "cannot be written as JSON: longer than 1 MiB"
                                          : "not enough memory for the JSON");
    }
    lua_pushlstring(L, t->s, t->n);
    mr__holder_release(holder);
    lua_remove(L, -2);
}

int mr__json_push(lua_State *L, int index)
{
    struct encoder e = {.L = L, .path = "value", .path_n = 5};
    bool is_container;
    struct holder *holder;

    luaL_checkstack(L, (MR_JSON_DEPTH_MAX + 3) * STACK_PER_LEVEL, "json");
    lua_pushvalue(L, index);
    holder = mr__holder_push(L, release_tree);
    push_mark(L);
    e.mark = lua_gettop(L);
    lua_pushvalue(L, -3); /* stack: value holder mark value */
    holder->p = make_value(&e, &is_container);
    if (is_container) {
        fill(&e, holder->p);
    }
    mr__state_charge(L);
    push_text(L, holder->p);
    mr__holder_release(holder);
    lua_replace(L, e.mark - 2);
    lua_settop(L, e.mark - 2);
    return 1;
}
