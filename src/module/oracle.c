/* SPDX-License-Identifier: MIT */
/*
 * Questions to a function of Lua, and its answers (oracle.h). The host's thread. Start
 * reading at ask().
 *
 *     ask ──> f(host, family, op, done) ── returned something ──> answer
 *                       └──────────────── later: done(...) ─────────┘
 *
 * Whether an answer is the first one, and of the right family, is for control/lookup.h to
 * say; a `done` names its question by the ticket, so that it may be called at any time.
 */
#include "module/oracle.h"

#include "module/view.h"
#include "service/lookup_answer.h"

#include <errno.h>
#include <lauxlib.h>
#include <string.h>

enum whose { OF_LOOKUP, OF_RESOLVER };

struct question {
    struct program *program;
    struct endpoint *endpoint; /* NULL: the program's own function */
    enum whose whose;
    mr_lookup_ticket ticket;
    const char *host;
    size_t n;
    int family;
    enum mr_lookup_op op;
};

static const char *op_name(enum mr_lookup_op op)
{
    static const char *const names[] = {
#define X(constant, name) name,
        MR_LOOKUP_OPS(X)
#undef X
    };

    return names[op];
}

/* ---- answers --------------------------------------------------------------------------------- */

/* A message that names the host, which whoever answers need not do. */
static void fail(struct lookup_answer *a, const char *code, const char *host, const char *why)
{
    bool is_named = host[0] != '\0' && strstr(why, host) != NULL;

    mr__lookup_answer_fail(a, -EIO, code, "%s%s%s", is_named ? "" : host, is_named ? "" : ": ",
                           why);
}

static bool is_word(const char *code, size_t n)
{
    return n > 0 && n <= MR_LOOKUP_CODE_MAX &&
           strspn(code, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static void read_error(lua_State *L, int index, const char *host, struct lookup_answer *a)
{
    const char *code = "failed";
    size_t n = 0;

    if (lua_type(L, index + 1) == LUA_TSTRING) {
        const char *word = lua_tolstring(L, index + 1, &n);

        code = is_word(word, n) ? word : code;
    }
    fail(a, code, host,
         lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : luaL_typename(L, index));
}

/* The address at the index: a text, or a table that has one as `ip`. */
static void read_address(lua_State *L, int index, const char *host, struct lookup_answer *a)
{
    struct mr_addr addr = {.family = 0};
    const char *text = NULL;
    char why[MR_ADDR_TEXT_MAX + 64];
    bool is_table = false;
    size_t n = 0;

    if (lua_istable(L, index)) {
        is_table = true;
        lua_getfield(L, index, "ip");
        lua_replace(L, index);
    }
    if (lua_type(L, index) == LUA_TSTRING) {
        text = lua_tolstring(L, index, &n);
    }
    if (text && mr_addr_parse_ip(&addr, text, n, NULL) == MR_ADDR_OK) {
        mr__lookup_answer_set(a, &addr);
        return;
    }
    if (text) {
        snprintf(why, sizeof why, "the lookup answered \"%.*s\", which is no address",
                 MR_ADDR_TEXT_MAX, text);
    } else {
        snprintf(why, sizeof why, "the lookup answered a %s, an address is expected",
                 is_table ? "table without ip" : luaL_typename(L, index));
    }
    fail(a, "failed", host, why);
}

/* What stands at the index and behind it: address; or nil, message, code. */
static void read_answer(lua_State *L, int index, const char *host, struct lookup_answer *a)
{
    if (lua_isnoneornil(L, index) && !lua_isnoneornil(L, index + 1)) {
        read_error(L, index + 1, host, a);
    } else {
        read_address(L, index, host, a);
    }
}

/* done(address), done(nil, message[, code]); upvalues: program, ticket, host. */
static int on_done(lua_State *L)
{
    struct program *p = mr__program_to(L, lua_upvalueindex(1));
    mr_lookup_ticket ticket = (mr_lookup_ticket)lua_tonumber(L, lua_upvalueindex(2));
    struct lookup_answer a;

    lua_settop(L, 3);
    read_answer(L, 1, lua_tostring(L, lua_upvalueindex(3)), &a);
    if (p) {
        mr_lookup_answer(p->lookup, ticket, &a.answer);
    }
    return 0;
}

/* ---- questions ------------------------------------------------------------------------------- */

static void push_function(lua_State *L, const struct question *q)
{
    if (q->endpoint) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, q->endpoint->anchor);
        lua_getfenv(L, -1);
        lua_rawgeti(L, -1, ENDPOINT_LOOKUP);
    } else {
        lua_rawgeti(L, LUA_REGISTRYINDEX,
                    q->whose == OF_RESOLVER ? q->program->resolver_ref : q->program->lookup_ref);
    }
}

static void push_done(lua_State *L, const struct question *q)
{
    mr__program_push(L);
    lua_pushnumber(L, (lua_Number)q->ticket);
    lua_pushlstring(L, q->host, q->n);
    lua_pushcclosure(L, on_done, 3);
}

static void push_family(lua_State *L, int family)
{
    if (family == 0) {
        lua_pushnil(L);
    } else {
        lua_pushinteger(L, family);
    }
}

static void answer(const struct question *q, const struct lookup_answer *a)
{
    mr_lookup_answer(q->program->lookup, q->ticket, &a->answer);
}

/* It was taken away since the question came. */
static void answer_gone(const struct question *q)
{
    struct lookup_answer a;

    if (q->whose == OF_LOOKUP) {
        mr_lookup_answer(q->program->lookup, q->ticket, NULL); /* the built-in one */
    } else {
        fail(&a, "failed", q->host, "the resolver was taken away");
        answer(q, &a);
    }
}

static int ask(lua_State *L)
{
    const struct question *q = lua_touserdata(L, 1);
    struct lookup_answer a;
    int first, n = 3;

    push_function(L, q);
    if (lua_isnil(L, -1)) {
        answer_gone(q);
        return 0;
    }
    first = lua_gettop(L);
    lua_pushlstring(L, q->host, q->n);
    push_family(L, q->family);
    if (q->whose == OF_LOOKUP) {
        lua_pushstring(L, op_name(q->op));
        n++;
    }
    push_done(L, q);
    /* stack: ... function host family [op] done */
    if (lua_pcall(L, n, 3, 0) != 0) {
        lua_pushnil(L); /* no code */
        read_error(L, first, q->host, &a);
        answer(q, &a);
    } else if (!lua_isnil(L, first) || !lua_isnil(L, first + 1)) {
        read_answer(L, first, q->host, &a);
        answer(q, &a);
    }
    return 0;
}

/* Whatever happens, memory that ends included, the question has an answer or waits for one. */
static void on_question(struct question *q)
{
    mr__program_call(q->program, ask, q);
}

static void on_ask_endpoint(void *user, mr_lookup_ticket ticket, const char *host, size_t n,
                            int family, enum mr_lookup_op op)
{
    struct endpoint *e = user;

    on_question(&(struct question){.program = e->program,
                                   .endpoint = e,
                                   .ticket = ticket,
                                   .host = host,
                                   .n = n,
                                   .family = family,
                                   .op = op});
}

static void on_ask_program(void *user, mr_lookup_ticket ticket, const char *host, size_t n,
                           int family, enum mr_lookup_op op)
{
    on_question(&(struct question){
        .program = user, .ticket = ticket, .host = host, .n = n, .family = family, .op = op});
}

static void on_ask_resolver(void *user, mr_lookup_ticket ticket, const char *host, size_t n,
                            int family, enum mr_lookup_op op)
{
    (void)op;
    on_question(&(struct question){.program = user,
                                   .whose = OF_RESOLVER,
                                   .ticket = ticket,
                                   .host = host,
                                   .n = n,
                                   .family = family});
}

struct mr_lookup_custom mr__oracle_of_endpoint(struct endpoint *e)
{
    return (struct mr_lookup_custom){.user = e, .ask = on_ask_endpoint};
}

/* ---- setting them ---------------------------------------------------------------------------- */

/* Puts the function at index 1, or none, in the place of the one that *ref names. */
static bool set(lua_State *L, int *ref, const char *what)
{
    int before = *ref;

    lua_settop(L, 1);
    if (!lua_isnil(L, 1) && !lua_isfunction(L, 1)) {
        luaL_error(L, "%s is a %s, a function or nil is expected", what, luaL_typename(L, 1));
    }
    *ref = LUA_NOREF;
    if (!lua_isnil(L, 1)) {
        *ref = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    luaL_unref(L, LUA_REGISTRYINDEX, before);
    return *ref != LUA_NOREF;
}

int mr__oracle_set_lookup(lua_State *L)
{
    struct program *p = mr__program_get(L);
    const struct mr_lookup_custom custom = {.user = p, .ask = on_ask_program};
    bool is_set = set(L, &p->lookup_ref, "lookup");

    mr_lookup_set_custom(p->lookup, is_set ? &custom : NULL);
    return 0;
}

int mr__oracle_set_resolver(lua_State *L)
{
    struct program *p = mr__program_get(L);
    bool is_set = set(L, &p->resolver_ref, "resolver");

    p->resolver = (struct mr_resolver){.on_loop = {.user = p, .ask = on_ask_resolver}};
    mr_lookup_set_resolver(p->lookup, is_set ? &p->resolver : NULL);
    return 0;
}
