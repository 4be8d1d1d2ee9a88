/* SPDX-License-Identifier: MIT */
/*
 * The methods of a bench (userdata.h). The host's thread. All arguments are checked
 * before anything is taken, since an error of Lua frees nothing; nothing of Lua is called
 * from inside the service. Start reading at methods, at the end.
 */
#include "module/userdata.h"

#include "base/alloc.h"
#include "module/bench.h"
#include "module/view.h"
#include "service/drain.h"
#include "service/players.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char type_name[] = "moonrelay.bench";

enum {
    ARGS_MAX = 256,       /* of a command, datagrams of a flow at once */
    HEADERS_MAX = 128,    /* of a response */
    DATAGRAM_MAX = 65507, /* bytes, what fits into UDP over IPv4 */
};

static struct bench *check_bench(lua_State *L)
{
    struct bench **b = luaL_checkudata(L, 1, type_name);

    if (!*b) {
        luaL_error(L, "the bench is closed");
    }
    return *b;
}

static struct bench *check_running(lua_State *L)
{
    struct bench *b = check_bench(L);

    if (!mr__bench_is_running(b)) {
        luaL_error(L, "nothing is loaded");
    }
    return b;
}

static struct str check_str(lua_State *L, int index)
{
    struct str s;

    s.s = luaL_checklstring(L, index, &s.n);
    return s;
}

static struct mr_addr check_address(lua_State *L, int index)
{
    struct str text = check_str(L, index);
    struct mr_addr a = {.family = 0};

    if (mr_addr_parse(&a, text.s, text.n, NULL) != MR_ADDR_OK) {
        luaL_argerror(L, index, "an address with a port is expected");
    }
    return a;
}

/* What a number of Lua may stand for: an id, a moment in ns. */
static uint64_t check_u64(lua_State *L, int index)
{
    double v = luaL_checknumber(L, index);

    luaL_argcheck(L, v >= 0 && v < 9e15, index, "a number from 0 to 9e15 is expected");
    return (uint64_t)v;
}

/* Ids that are text. */
static uint64_t check_id(lua_State *L, int index)
{
    return strtoull(luaL_checkstring(L, index), NULL, 10);
}

static void push_id(lua_State *L, uint64_t id)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)id);
    lua_pushstring(L, text);
}

/* Returns the values of a call: true, or raises what only a bug or memory explains. */
static int finish(lua_State *L, const struct bench *b, int rc)
{
    if (b->happenings.is_short || rc == -ENOMEM) {
        return luaL_error(L, "out of memory");
    }
    if (rc == -ELOOP) {
        return luaL_error(L, "the policies keep themselves busy: this moment does not end");
    }
    lua_pushboolean(L, rc == 0);
    return 1;
}

/* ---- life, time ------------------------------------------------------------------------------ */

int mr__userdata_create(lua_State *L)
{
    struct bench_options o = {.now_s = 0};
    struct bench **b;

    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "now");
    o.now_s = luaL_checknumber(L, -1);
    lua_getfield(L, 1, "seed");
    double seed = luaL_checknumber(L, -1);
    luaL_argcheck(L, seed >= 0 && seed < 9e15, 1, "seed is a number from 0 to 9e15");
    o.seed = (uint64_t)seed;
    b = lua_newuserdata(L, sizeof(struct bench *));
    *b = NULL;
    luaL_getmetatable(L, type_name);
    lua_setmetatable(L, -2);
    if (mr__bench_create(b, &o) < 0) {
        return luaL_error(L, "out of memory");
    }
    return 1;
}

static int on_close(lua_State *L)
{
    struct bench **b = luaL_checkudata(L, 1, type_name);

    mr__bench_destroy(*b);
    *b = NULL;
    return 0;
}

static int on_clock(lua_State *L)
{
    lua_pushnumber(L, (double)check_bench(L)->now_ns);
    return 1;
}

static int on_settle(lua_State *L)
{
    struct bench *b = check_bench(L);

    return finish(L, b, mr__bench_settle(b));
}

/* step(until): true when it is then, false when somebody has to be answered first. */
static int on_step(lua_State *L)
{
    struct bench *b = check_bench(L);
    int rc = mr__bench_step(b, check_u64(L, 2));

    return finish(L, b, rc < 0 ? rc : rc == 1 ? 0 : -EAGAIN);
}

static int on_is_running(lua_State *L)
{
    lua_pushboolean(L, mr__bench_is_running(check_bench(L)));
    return 1;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* set(key, value): true, or nil and why. */
static int on_set(lua_State *L)
{
    struct bench *b = check_bench(L);
    const char *key = luaL_checkstring(L, 2);
    struct str value = check_str(L, 3);
    struct script_error why = {.text = "out of memory"};

    if (mr__bench_is_running(b)) {
        return luaL_error(L, "settings are made before anything is loaded");
    }
    if (mr__bench_set(b, key, value.s, value.n, &why) < 0) {
        lua_pushnil(L);
        lua_pushstring(L, why.text);
        return 2;
    }
    lua_pushboolean(L, 1);
    return 1;
}

struct found {
    lua_State *L;
    struct str path, text;
};

/* The files are a plain table at index 4; its strings live as long as it is not changed. */
static int look_up(lua_State *L)
{
    struct found *f = lua_touserdata(L, 1);

    lua_pushlstring(L, f->path.s, f->path.n);
    lua_rawget(L, lua_upvalueindex(1));
    if (lua_type(L, -1) == LUA_TSTRING) {
        f->text.s = lua_tolstring(L, -1, &f->text.n);
    }
    return 0;
}

/* Called from inside another state's protected call, which no error may leave. */
static struct str find_file(void *user, struct str path)
{
    struct found *f = user;

    f->path = path;
    f->text = (struct str){NULL, 0};
    lua_pushvalue(f->L, -1);
    lua_pushlightuserdata(f->L, f);
    if (lua_pcall(f->L, 1, 0, 0) != 0) {
        lua_pop(f->L, 1);
    }
    return f->text;
}

/* load(path, text or nil, files): true, or nil and why. `loaded` follows when it is true. */
static int on_load(lua_State *L)
{
    struct bench *b = check_bench(L);
    const char *path = luaL_checkstring(L, 2);
    struct str text = {NULL, 0};
    struct script_error why;
    struct found found = {.L = L};
    struct bench_files files = {.user = &found, .find = find_file};
    int rc;

    if (!lua_isnil(L, 3)) {
        text = check_str(L, 3);
    }
    luaL_checktype(L, 4, LUA_TTABLE);
    lua_settop(L, 4);
    luaL_checkstack(L, LUA_MINSTACK, "load");
    lua_pushvalue(L, 4);
    lua_pushcclosure(L, look_up, 1);
    rc = mr__bench_load(b, path, text.s, text.n, &files, &why);
    if (rc < 0 && rc != -ELOOP && !b->happenings.is_short) {
        lua_pushnil(L);
        lua_pushstring(L, why.text);
        return 2;
    }
    return finish(L, b, rc);
}

static int on_generation(lua_State *L)
{
    struct bench *b = check_bench(L);
    struct generation_info info = {.number = 0};

    if (b->policies) {
        mr__policies_generation(b->policies, &info);
    }
    lua_pushnumber(L, (double)info.number);
    return 1;
}

/* The strings of the list at the index; how many. They live as long as the list does. */
static size_t check_list(lua_State *L, int index, struct str *out)
{
    size_t n;

    luaL_checktype(L, index, LUA_TTABLE);
    n = lua_objlen(L, index);
    luaL_argcheck(L, n <= ARGS_MAX, index, "too many");
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, index, (int)i + 1);
        luaL_argcheck(L, lua_type(L, -1) == LUA_TSTRING, index, "strings are expected");
        out[i].s = lua_tolstring(L, -1, &out[i].n);
        lua_pop(L, 1);
    }
    return n;
}

/* call(id, policy, verb, args): `called` follows. */
static int on_call(lua_State *L)
{
    struct bench *b = check_running(L);
    uint64_t id = check_u64(L, 2);
    struct str policy = check_str(L, 3), verb = check_str(L, 4), args[ARGS_MAX];
    size_t n = check_list(L, 5, args);

    return finish(L, b, mr__bench_call(b, id, policy, verb, args, n));
}

/* ---- players --------------------------------------------------------------------------------- */

/* accept(peer): the connection's id, or nil: not even an answer. */
static int on_accept(lua_State *L)
{
    struct bench *b = check_running(L);
    struct mr_addr peer = check_address(L, 2);
    conn_id id = mr__bench_accept(b, &peer);

    finish(L, b, mr__bench_settle(b));
    if (id == 0) {
        lua_pushnil(L);
    } else {
        push_id(L, id);
    }
    return 1;
}

/* input(connection, bytes): whether there is still such a connection. */
static int on_input(lua_State *L)
{
    struct bench *b = check_running(L);
    conn_id id = check_id(L, 2);
    struct str data = check_str(L, 3);
    int rc = mr__bench_input(b, id, data.s, data.n);

    return finish(L, b, rc < 0 ? rc : mr__bench_settle(b));
}

/* leave(connection, why): whether there was one. */
static int on_leave(lua_State *L)
{
    static const char *const names[] = {"closed", "reset", "timeout", "output", NULL};
    static const enum conn_end ends[] = {MR_CONN_CLOSED, MR_CONN_RESET, MR_CONN_TIMEOUT,
                                         MR_CONN_OUTPUT};
    struct bench *b = check_running(L);
    conn_id id = check_id(L, 2);
    int rc = mr__bench_leave(b, id, ends[luaL_checkoption(L, 3, NULL, names)]);

    return finish(L, b, rc < 0 ? rc : mr__bench_settle(b));
}

/* registrar(from, bytes) */
static int on_registrar(lua_State *L)
{
    struct bench *b = check_running(L);
    struct mr_addr from = check_address(L, 2);
    struct str data = check_str(L, 3);

    mr__bench_registrar(b, &from, data.s, data.n);
    return finish(L, b, mr__bench_settle(b));
}

/* session(id or oid), relay(id): what policies would see of it, or nil. */
static int on_session(lua_State *L)
{
    struct bench *b = check_running(L);
    struct hook_session view;

    if (mr__players_session(b->service, check_str(L, 2), &view)) {
        mr__view_session(L, &view);
    } else {
        lua_pushnil(L);
    }
    return 1;
}

static int on_relay(lua_State *L)
{
    struct bench *b = check_running(L);
    struct hook_relay view;

    if (mr__players_relay(b->service, check_str(L, 2), &view)) {
        mr__view_relay(L, &view);
    } else {
        lua_pushnil(L);
    }
    return 1;
}

/* close_relay(id): whether there was one. */
static int on_close_relay(lua_State *L)
{
    struct bench *b = check_running(L);
    int rc = mr__players_close(b->service, check_str(L, 2), (struct str){"api", 3});

    return finish(L, b, rc < 0 ? rc : mr__bench_settle(b));
}

/* drain(seconds or false): true; nil and why. */
static int on_drain(lua_State *L)
{
    struct bench *b = check_running(L);
    bool is_cancel = lua_isboolean(L, 2) && !lua_toboolean(L, 2);
    double seconds = is_cancel ? 0 : luaL_checknumber(L, 2);
    int rc;

    luaL_argcheck(L, seconds >= 0 && seconds <= MR_DRAIN_MAX_S, 2, "seconds of a year at most");
    rc = is_cancel ? mr__service_drain_cancel(b->service, "test", b->now_ns)
                   : mr__service_drain(b->service, (uint64_t)(seconds * 1e9), "test", b->now_ns);
    if (rc < 0) {
        lua_pushnil(L);
        lua_pushstring(L, rc == -ENOENT ? "there is no drain" : "it is stopping already");
        return 2;
    }
    return finish(L, b, mr__bench_settle(b));
}

/* is_drained(): a drain is over, and nobody is there any more. */
static int on_is_drained(lua_State *L)
{
    lua_pushboolean(L, check_bench(L)->is_drained);
    return 1;
}

/* ---- strangers ------------------------------------------------------------------------------- */

/* knock(from, port, datagrams): the flow that `knock` will name or nil, what became of them when
 * nobody is asked, how many found no room. nil, nil: there is no such port. */
static int on_knock(lua_State *L)
{
    struct bench *b = check_running(L);
    struct mr_addr from = check_address(L, 2);
    uint64_t port = check_u64(L, 3);
    struct str data[ARGS_MAX];
    size_t n = check_list(L, 4, data);
    struct bench_knock out;
    int rc;

    luaL_argcheck(L, n > 0, 4, "a datagram is expected");
    for (size_t i = 0; i < n; i++) {
        luaL_argcheck(L, data[i].n <= DATAGRAM_MAX, 4, "a datagram is larger than 65507 bytes");
    }
    luaL_argcheck(L, port <= UINT16_MAX, 3, "a port is expected");
    rc = mr__bench_knock(b, &from, (uint16_t)port, data, n, &out);
    if (rc == -ENOENT) {
        return 0;
    }
    finish(L, b, rc);
    if (rc < 0) {
        return luaL_error(L, "%s", mr_strerror(rc));
    }
    if (out.flow != 0) {
        push_id(L, out.flow);
    } else {
        lua_pushnil(L);
    }
    lua_pushstring(L, mr_verdict_name(out.verdict));
    lua_pushnumber(L, out.overflow);
    return 3;
}

/* ---- the world outside ----------------------------------------------------------------------- */

/* The headers of the table at the top. Pops nothing: values stay for as long as they are used. */
static size_t check_headers(lua_State *L, int index, struct host_header *out)
{
    size_t n = 0;

    luaL_checktype(L, index, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
        luaL_argcheck(L, lua_type(L, -2) == LUA_TSTRING && lua_type(L, -1) == LUA_TSTRING, index,
                      "headers are strings");
        luaL_argcheck(L, n < HEADERS_MAX, index, "too many headers");
        out[n].name.s = lua_tolstring(L, -2, &out[n].name.n);
        out[n].value.s = lua_tolstring(L, -1, &out[n].value.n);
        n++;
    }
    return n;
}

/* answer_http(job, status, headers, body), or (job, nil, code, message): whether it is waited for.
 */
static int on_answer_http(lua_State *L)
{
    struct bench *b = check_running(L);
    host_job job = check_id(L, 2);
    struct host_http_response r = {.rc = 0};
    struct host_header headers[HEADERS_MAX];

    if (lua_isnoneornil(L, 3)) {
        r.rc = -EIO;
        r.code = luaL_checkstring(L, 4);
        r.message = luaL_checkstring(L, 5);
    } else {
        r.status = luaL_checkint(L, 3);
        r.n_headers = check_headers(L, 4, headers);
        r.headers = headers;
        r.body = check_str(L, 5);
    }
    return finish(L, b, mr__bench_answer_http(b, job, &r));
}

/* answer_file(job, text), or (job, nil, errno's name, message) */
static int on_answer_file(lua_State *L)
{
    static const char *const names[] = {"missing", "too-large", "outside", NULL};
    static const int errors[] = {-ENOENT, -EFBIG, -EXDEV};
    struct bench *b = check_running(L);
    host_job job = check_id(L, 2);
    struct host_file f = {.rc = 0};

    if (lua_isnoneornil(L, 3)) {
        f.rc = errors[luaL_checkoption(L, 4, NULL, names)];
        f.message = luaL_checkstring(L, 5);
    } else {
        f.text = check_str(L, 3);
    }
    return finish(L, b, mr__bench_answer_file(b, job, &f));
}

static int check_family(lua_State *L, int index)
{
    int family = luaL_checkint(L, index);

    luaL_argcheck(L, family == 0 || family == 4 || family == 6, index, "4, 6 or 0 is expected");
    return family;
}

static enum mr_lookup_op check_op(lua_State *L, int index)
{
    static const char *const names[] = {
#define X(constant, name) name,
        MR_LOOKUP_OPS(X)
#undef X
            NULL};

    return (enum mr_lookup_op)luaL_checkoption(L, index, NULL, names);
}

/* ask(host, family, op): an id; `looked_up` follows. */
static int on_ask(lua_State *L)
{
    struct bench *b = check_running(L);
    struct str host = check_str(L, 2);
    int family = check_family(L, 3);
    host_job job = mr__bench_ask(b, host, family, check_op(L, 4));

    finish(L, b, job == 0 ? -ENOMEM : mr__bench_settle(b));
    push_id(L, job);
    return 1;
}

/* answer_lookup(job, address), or (job, nil, code, message) */
static int on_answer_lookup(lua_State *L)
{
    struct bench *b = check_running(L);
    host_job job = check_id(L, 2);
    struct mr_lookup_answer a = {.rc = 0};

    if (lua_isnoneornil(L, 3)) {
        a.rc = -EIO;
        a.code = luaL_checkstring(L, 4);
        a.message = luaL_checkstring(L, 5);
    } else {
        struct str text = check_str(L, 3);

        luaL_argcheck(L, mr_addr_parse_ip(&a.addr, text.s, text.n, NULL) == MR_ADDR_OK, 3,
                      "an address is expected");
    }
    return finish(L, b, mr__bench_answer_lookup(b, job, &a));
}

/* ---- what is seen ---------------------------------------------------------------------------- */

/* take(): a list of what happened since the last one. */
static int on_take(lua_State *L)
{
    struct bench *b = check_bench(L);

    lua_newtable(L);
    for (int i = 1; b->happenings.first; i++) {
        mr__view_happening(L, b->happenings.first);
        lua_rawseti(L, -2, i);
        mr__happening_drop(&b->happenings);
    }
    return 1;
}

struct page {
    char *text;
    size_t n;
};

static int push_page(lua_State *L)
{
    const struct page *page = lua_touserdata(L, 1);

    lua_pushlstring(L, page->text, page->n);
    return 1;
}

/* metrics(): the page of /metrics. */
static int on_metrics(lua_State *L)
{
    struct bench *b = check_running(L);
    struct page page;
    int rc;

    lua_pushcfunction(L, push_page);
    lua_pushlightuserdata(L, &page);
    page.text = mr__service_metrics(b->service, &page.n, b->now_ns);
    if (!page.text) {
        return luaL_error(L, "out of memory");
    }
    rc = lua_pcall(L, 1, 1, 0);
    mr__free(page.text);
    return rc == 0 ? 1 : lua_error(L);
}

void mr__userdata_define(lua_State *L, const char *type, const luaL_Reg *methods, lua_CFunction gc)
{
    luaL_newmetatable(L, type);
    lua_newtable(L);
    for (const luaL_Reg *m = methods; m->name; m++) {
        lua_pushcfunction(L, m->func);
        lua_setfield(L, -2, m->name);
    }
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}

void mr__userdata_open(lua_State *L)
{
    static const luaL_Reg methods[] = {{"close", on_close},
                                       {"clock", on_clock},
                                       {"settle", on_settle},
                                       {"step", on_step},
                                       {"is_running", on_is_running},
                                       {"set", on_set},
                                       {"load", on_load},
                                       {"generation", on_generation},
                                       {"call", on_call},
                                       {"accept", on_accept},
                                       {"input", on_input},
                                       {"leave", on_leave},
                                       {"registrar", on_registrar},
                                       {"session", on_session},
                                       {"relay", on_relay},
                                       {"close_relay", on_close_relay},
                                       {"drain", on_drain},
                                       {"is_drained", on_is_drained},
                                       {"knock", on_knock},
                                       {"answer_http", on_answer_http},
                                       {"answer_file", on_answer_file},
                                       {"ask", on_ask},
                                       {"answer_lookup", on_answer_lookup},
                                       {"take", on_take},
                                       {"metrics", on_metrics},
                                       {NULL, NULL}};

    mr__userdata_define(L, type_name, methods, on_close);
}
