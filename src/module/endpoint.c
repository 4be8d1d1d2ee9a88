/* SPDX-License-Identifier: MIT */
/*
 * The methods of an endpoint (endpoint.h). The host's thread. All arguments are checked
 * before anything is taken, since an error of Lua frees nothing. Start reading at methods,
 * at the end.
 */
#include "module/endpoint.h"

#include "base/suggest.h"
#include "engine/moonrelay.h"
#include "module/debt.h"
#include "module/oracle.h"
#include "module/userdata.h"
#include "module/view.h"

#include <errno.h>
#include <lauxlib.h>
#include <string.h>

static const char type_name[] = "moonrelay.udp";

/* ---- life ------------------------------------------------------------------------------------ */

static struct endpoint *check_endpoint(lua_State *L)
{
    struct endpoint *e = luaL_checkudata(L, 1, type_name);

    if (!e->program || !mr__program_is_alive(e->program)) {
        luaL_error(L, "the program has ended");
    }
    return e;
}

static bool is_reading(const struct endpoint *e)
{
    struct mr_addr local;

    return e->udp && e->has_handler && mr_udp_address(e->udp, &local) == 0;
}

void mr__program_endpoint_look(lua_State *L, struct endpoint *e, int index)
{
    bool reads = is_reading(e), is_due = reads || e->n_debts > 0;

    if (reads != e->is_reading) {
        e->is_reading = reads;
        e->program->n_reading += reads ? 1 : (size_t)-1;
    }
    if (is_due && e->anchor == LUA_NOREF && index != 0) {
        lua_pushvalue(L, index);
        e->anchor = luaL_ref(L, LUA_REGISTRYINDEX);
    } else if (!is_due && e->anchor != LUA_NOREF) {
        luaL_unref(L, LUA_REGISTRYINDEX, e->anchor);
        e->anchor = LUA_NOREF;
    }
}

static void leave(struct endpoint *e)
{
    e->udp = NULL;
    if (e->is_reading) {
        e->is_reading = false;
        e->program->n_reading--;
    }
    *e->link = e->next;
    if (e->next) {
        e->next->link = e->link;
    }
}

void mr__program_endpoint_end(struct endpoint *e)
{
    struct program *p = e->program;

    mr__debts_forget(NULL, p, e);
    mr_udp_close(e->udp, NULL, NULL);
    leave(e);
    e->program = NULL;
}

/* Nobody refers to it any more and nothing is due; or the state ends. */
static int on_gc(lua_State *L)
{
    struct endpoint *e = luaL_checkudata(L, 1, type_name);

    if (e->program && e->udp) {
        mr__program_endpoint_end(e);
    }
    return 0;
}

/* ---- what comes ------------------------------------------------------------------------------ */

struct message {
    struct endpoint *endpoint;
    const struct mr_addr *from;
    const void *data;
    size_t n;
};

static int call_handler(lua_State *L)
{
    const struct message *m = lua_touserdata(L, 1);

    lua_rawgeti(L, LUA_REGISTRYINDEX, m->endpoint->anchor);
    lua_getfenv(L, -1);
    lua_rawgeti(L, -1, ENDPOINT_HANDLER);
    lua_pushlstring(L, m->data, m->n);
    mr__view_address(L, m->from);
    /* stack: message endpoint environment handler data address */
    mr__program_protect(L, m->endpoint->program, 2);
    return 0;
}

static void on_message(void *user, const struct mr_addr *from, const struct mr_addr *local,
                       const void *data, size_t n)
{
    struct endpoint *e = user;
    struct message m = {.endpoint = e, .from = from, .data = n > 0 ? data : "", .n = n};

    (void)local;
    if (e->has_handler && e->anchor != LUA_NOREF) {
        mr__program_call(e->program, call_handler, &m);
    }
}

/* ---- making one ------------------------------------------------------------------------------ */

static const char *const option_names[] = {"family", "lookup", NULL};

/* The options at index 1 have known names. */
static void check_names(lua_State *L)
{
    for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        const char *near;

        if (name && (strcmp(name, "family") == 0 || strcmp(name, "lookup") == 0)) {
            continue;
        }
        if (!name) {
            luaL_error(L, "udp: a key is a %s (there is family, lookup)", luaL_typename(L, -2));
        }
        near = mr__suggest_name(name, strlen(name), option_names);
        luaL_error(L, "udp has no option %s (%s%s%s)", name, near ? "did you mean " : "there is ",
                   near ? near : "family, lookup", near ? "?" : "");
    }
}

static int check_family(lua_State *L)
{
    int family = 4;

    lua_getfield(L, 1, "family");
    if (!lua_isnil(L, -1)) {
        family = lua_type(L, -1) != LUA_TNUMBER ? 0
                 : lua_tonumber(L, -1) == 4     ? 4
                 : lua_tonumber(L, -1) == 6     ? 6
                                                : 0;
    }
    if (family == 0) {
        luaL_error(L, "udp: family is %s, 4 or 6 is expected",
                   lua_isnumber(L, -1) ? lua_tostring(L, -1) : luaL_typename(L, -1));
    }
    lua_pop(L, 1);
    return family;
}

int mr__program_endpoint_create(lua_State *L)
{
    struct program *p = mr__program_get(L);
    struct mr_udp_options o;
    struct endpoint *e;
    int rc;

    lua_settop(L, 1);
    if (lua_isnil(L, 1)) {
        lua_newtable(L);
        lua_replace(L, 1);
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    check_names(L);
    mr_udp_options_init(&o, sizeof o);
    o.loop = mr__own_loop_uv(p->loop);
    o.family = check_family(L);
    o.on_message = on_message;
    lua_getfield(L, 1, "lookup");
    if (!lua_isnil(L, 2) && !lua_isfunction(L, 2)) {
        return luaL_error(L, "udp: lookup is a %s, a function is expected", luaL_typename(L, 2));
    }
    e = lua_newuserdata(L, sizeof *e);
    *e = (struct endpoint){.anchor = LUA_NOREF};
    lua_createtable(L, 2, 0);
    lua_pushvalue(L, 2);
    lua_rawseti(L, -2, ENDPOINT_LOOKUP);
    lua_setfenv(L, 3);
    luaL_getmetatable(L, type_name);
    lua_setmetatable(L, 3);
    /* stack: options lookup endpoint */
    o.user = e;
    if (lua_isfunction(L, 2)) {
        o.lookup = mr__oracle_of_endpoint(e);
    }
    rc = mr_udp_create(&e->udp, p->lookup, &o);
    if (rc < 0) {
        return luaL_error(L, "udp: %s", mr_strerror(rc));
    }
    /* While nobody listens it is not in the epoll set, which the kernel wakes for every datagram
     * that has left as well. */
    mr_udp_pause(e->udp);
    e->program = p;
    e->link = &p->endpoints;
    e->next = p->endpoints;
    if (e->next) {
        e->next->link = &e->next;
    }
    p->endpoints = e;
    return 1;
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* host and port, behind the index where they begin; both may be left out. */
struct destination {
    const char *host; /* NULL: omitted */
    size_t n;
    uint16_t port;
};

/* The callback at the end of the arguments: its index, or 0. Nils behind it are taken away. */
static int check_callback(lua_State *L, bool is_needed)
{
    int last = lua_gettop(L);

    while (last > 1 && lua_isnil(L, last)) {
        last--;
    }
    lua_settop(L, last);
    if (last > 1 && lua_isfunction(L, last)) {
        return last;
    }
    if (is_needed) {
        luaL_error(L, "a function is expected as the last argument (a %s was given)",
                   last > 1 ? luaL_typename(L, last) : "nothing");
    }
    return 0;
}

static struct str check_text(lua_State *L, int index, const char *what)
{
    struct str s;

    if (lua_type(L, index) != LUA_TSTRING) {
        luaL_error(L, "the %s is a %s, a string is expected", what, luaL_typename(L, index));
    }
    s.s = lua_tolstring(L, index, &s.n);
    return s;
}

/* least: 0 where the kernel may choose. */
static uint16_t check_port(lua_State *L, int index, int least)
{
    lua_Number port = lua_tonumber(L, index);

    if (lua_type(L, index) != LUA_TNUMBER) {
        luaL_error(L, "the port is a %s, a number is expected", luaL_typename(L, index));
    }
    if (!(port >= least && port <= UINT16_MAX) || port != (lua_Number)(uint16_t)port) {
        luaL_error(L, "the port is %s, %d to 65535 is expected", lua_tostring(L, index), least);
    }
    return (uint16_t)port;
}

static struct destination check_destination(lua_State *L, int index, int callback, int least)
{
    int end = callback != 0 ? callback : lua_gettop(L) + 1;
    struct destination to = {.host = NULL};

    if (index < end && !lua_isnil(L, index)) {
        struct str host = check_text(L, index, "host");

        to.host = host.s;
        to.n = host.n;
    }
    if (index + 1 < end && !lua_isnil(L, index + 1)) {
        to.port = check_port(L, index + 1, least);
    }
    if (index + 2 < end) {
        luaL_error(L, "there are too many arguments");
    }
    return to;
}

/* ---- methods --------------------------------------------------------------------------------- */

static void on_done(void *arg, const struct mr_udp_result *r)
{
    mr__debt_tell(arg, r->rc, r->code, r->message);
}

/* What came of starting it; the endpoint is at index 1. */
static int finish(lua_State *L, struct debt *d, int rc)
{
    struct endpoint *e = d->endpoint;

    if (rc < 0) {
        mr__debt_refuse(d, rc);
    }
    mr__program_endpoint_look(L, e, 1);
    return 0;
}

/* bind([host[, port]], callback) */
static int on_bind(lua_State *L)
{
    struct endpoint *e = check_endpoint(L);
    int callback = check_callback(L, true), rc = -EBADF;
    struct destination to = check_destination(L, 2, callback, 0);
    struct debt *d = mr__debt_open(L, e->program, e, callback, "bind");

    if (e->udp) {
        rc = mr_udp_bind(e->udp, to.host, to.n, to.port, on_done, d);
    }
    return finish(L, d, rc);
}

/* connect([host,] port, callback) */
static int on_connect(lua_State *L)
{
    struct endpoint *e = check_endpoint(L);
    int callback = check_callback(L, true), rc = -EBADF;
    struct destination to = {.host = NULL};
    struct debt *d;

    if (callback == 3) {
        to.port = check_port(L, 2, 1);
    } else {
        to = check_destination(L, 2, callback, 1);
    }
    if (to.port == 0) {
        return luaL_error(L, "the port is missing");
    }
    d = mr__debt_open(L, e->program, e, callback, "connect");
    if (e->udp) {
        rc = mr_udp_connect(e->udp, to.host, to.n, to.port, on_done, d);
    }
    return finish(L, d, rc);
}

/* send(data[, host[, port]][, callback]) */
static int on_send(lua_State *L)
{
    struct endpoint *e = check_endpoint(L);
    struct str data = check_text(L, 2, "data");
    int callback = check_callback(L, false), rc = -EBADF;
    struct destination to = check_destination(L, 3, callback, 1);
    struct debt *d = mr__debt_open(L, e->program, e, callback, "send");

    if (e->udp) {
        rc = mr_udp_send(e->udp, data.s, data.n, to.host, to.n, to.port, on_done, d);
    }
    return finish(L, d, rc);
}

/* on_message(function or nil) */
static int on_on_message(lua_State *L)
{
    struct endpoint *e = check_endpoint(L);

    lua_settop(L, 2);
    if (!lua_isnil(L, 2)) {
        luaL_checktype(L, 2, LUA_TFUNCTION);
    }
    e->has_handler = !lua_isnil(L, 2);
    if (e->udp && e->has_handler) {
        mr_udp_resume(e->udp);
    } else if (e->udp) {
        mr_udp_pause(e->udp);
    }
    lua_getfenv(L, 1);
    lua_pushvalue(L, 2);
    lua_rawseti(L, -2, ENDPOINT_HANDLER);
    mr__program_endpoint_look(L, e, 1);
    return 0;
}

/* address(): where it is bound; nil, message, code. */
static int on_address(lua_State *L)
{
    struct endpoint *e = check_endpoint(L);
    struct mr_addr local;
    int rc = e->udp ? mr_udp_address(e->udp, &local) : -EBADF;

    if (rc == 0) {
        mr__view_address(L, &local);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, e->udp ? "the endpoint is not bound" : "the endpoint is closed");
    lua_pushstring(L, e->udp ? "unbound" : mr_udp_code(rc));
    return 3;
}

static void on_closed(void *arg)
{
    if (arg) {
        mr__debt_tell(arg, 0, NULL, NULL);
    }
}

/* close([callback]): only that is called from now on. */
static int on_close(lua_State *L)
{
    struct endpoint *e = check_endpoint(L);
    int callback = check_callback(L, false);
    struct debt *d = NULL;

    if (!e->udp) {
        return callback ? finish(L, mr__debt_open(L, e->program, e, callback, "close"), -EBADF) : 0;
    }
    if (callback != 0) {
        d = mr__debt_open(L, e->program, e, callback, "close");
        d->is_closing = true;
    }
    mr__debts_forget(L, e->program, e);
    mr_udp_close(e->udp, on_closed, d);
    leave(e);
    mr__program_endpoint_look(L, e, 1);
    return 0;
}

static int on_tostring(lua_State *L)
{
    const struct endpoint *e = luaL_checkudata(L, 1, type_name);
    char text[MR_ADDR_TEXT_MAX];
    struct mr_addr local;

    if (!e->udp) {
        lua_pushliteral(L, "udp (closed)");
    } else if (mr_udp_address(e->udp, &local) < 0) {
        lua_pushliteral(L, "udp (not bound)");
    } else {
        mr_addr_format(&local, text, sizeof text);
        lua_pushfstring(L, "udp %s", text);
    }
    return 1;
}

void mr__program_endpoint_open(lua_State *L)
{
    static const luaL_Reg methods[] = {{"bind", on_bind},
                                       {"connect", on_connect},
                                       {"send", on_send},
                                       {"on_message", on_on_message},
                                       {"address", on_address},
                                       {"close", on_close},
                                       {NULL, NULL}};

    mr__userdata_define(L, type_name, methods, on_gc);
    luaL_getmetatable(L, type_name);
    lua_pushcfunction(L, on_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pop(L, 1);
}
