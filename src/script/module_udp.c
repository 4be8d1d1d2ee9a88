/* SPDX-License-Identifier: MIT */
/*
 * relay.udp: UDP endpoints of a policy's own. Control thread. What they are made of is in
 * outlet.h; here are the arguments and results. Start reading at on_udp().
 *
 * bind, connect and send wait: each looks up a host, also when that is a literal, since a
 * lookup of the policies' may know better.
 */
#include "script/argument.h"
#include "script/event.h"
#include "script/generation.h"
#include "script/module_part.h"
#include "script/outlet.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const char type_name[] = "relay.udp";

/* ---- arguments ------------------------------------------------------------------------------- */

/* The userdata. */
struct object {
    struct outlet *outlet; /* NULL: it was never opened */
};

/* The object; NULL: it is closed, which is pushed as 3 results. */
static struct outlet *self(lua_State *L, const char *usage)
{
    const struct object *object = mr__argument_self(L, type_name, usage);

    if (!object->outlet || !mr__outlet_udp(object->outlet)) {
        mr__module_fail(L, "closed", "closed");
        return NULL;
    }
    return object->outlet;
}

/* Nothing or nil is an omitted host, which the endpoint has a word for; "" is none. false: it can
 * be no host, which is pushed as 3 results. */
static bool check_host(lua_State *L, int index, const char *function, struct str *host)
{
    *host = (struct str){0};
    if (lua_isnoneornil(L, index)) {
        return true;
    }
    *host = mr__argument_text(L, index, function, "host");
    return mr__module_check_host(L, *host);
}

static uint16_t check_port(lua_State *L, int index, const char *function, int min)
{
    const char *expected = min > 0 ? "a whole number from 1 to 65535 is expected"
                                   : "a whole number from 0 to 65535 is expected";
    double port = mr__argument_number(L, index, function, "port", min, 65535, expected);

    if (port != floor(port)) {
        mr__argument_error(L, function, "port", index, expected);
    }
    return (uint16_t)port;
}

static const struct script_host *host_of(const struct outlet *e)
{
    return &mr__outlet_policy(e)->generation->opts.host;
}

/* ---- methods --------------------------------------------------------------------------------- */

/* u:bind([host[, port]]) */
static int on_bind(lua_State *L)
{
    struct outlet *e = self(L, "u:bind(host, port)");
    struct outlet_call *c;
    struct str host;
    uint16_t port;

    if (!e) {
        return 3;
    }
    lua_settop(L, 3);
    port = lua_isnil(L, 3) ? 0 : check_port(L, 3, "u:bind", 0);
    if (!check_host(L, 2, "u:bind", &host)) {
        return 3;
    }
    c = mr__outlet_begin(e, L, "u:bind");
    return mr__outlet_go(
        L, c,
        host_of(e)->udp_bind(host_of(e)->user, mr__outlet_udp(e), host, port, mr__outlet_done, c));
}

/* u:connect([host,] port) */
static int on_connect(lua_State *L)
{
    struct outlet *e = self(L, "u:connect(host, port)");
    struct outlet_call *c;
    struct str host;
    uint16_t port;

    if (!e) {
        return 3;
    }
    if (lua_gettop(L) == 2 && lua_type(L, 2) == LUA_TNUMBER) {
        lua_pushnil(L);
        lua_insert(L, 2);
    }
    lua_settop(L, 3);
    port = check_port(L, 3, "u:connect", 1);
    if (!check_host(L, 2, "u:connect", &host)) {
        return 3;
    }
    c = mr__outlet_begin(e, L, "u:connect");
    return mr__outlet_go(L, c,
                         host_of(e)->udp_connect(host_of(e)->user, mr__outlet_udp(e), host, port,
                                                 mr__outlet_done, c));
}

/* u:send(data[, host[, port]]); without a port it goes to whom the endpoint is connected to. */
static int on_send(lua_State *L)
{
    struct outlet *e = self(L, "u:send(data, host, port)");
    struct outlet_call *c;
    struct str data, host;
    uint16_t port;

    if (!e) {
        return 3;
    }
    lua_settop(L, 4);
    data = mr__argument_text(L, 2, "u:send", "data");
    port = lua_isnil(L, 3) && lua_isnil(L, 4) ? 0 : check_port(L, 4, "u:send", 1);
    if (!check_host(L, 3, "u:send", &host)) {
        return 3;
    }
    c = mr__outlet_begin(e, L, "u:send");
    return mr__outlet_go(L, c,
                         host_of(e)->udp_send(host_of(e)->user, mr__outlet_udp(e), data, host, port,
                                              mr__outlet_done, c));
}

/* u:on_message(fn) */
static int on_on_message(lua_State *L)
{
    struct outlet *e = self(L, "u:on_message(fn)");

    if (!e) {
        return 3;
    }
    lua_settop(L, 2);
    if (!lua_isnil(L, 2) && !lua_isfunction(L, 2)) {
        mr__argument_error(L, "u:on_message", "fn", 2, "a function or nil is expected");
    }
    mr__outlet_handle(e, L, 2);
    lua_pushboolean(L, 1);
    return 1;
}

static int on_address(lua_State *L)
{
    struct outlet *e = self(L, "u:address()");
    struct mr_addr a;

    if (!e) {
        return 3;
    }
    if (host_of(e)->udp_address(host_of(e)->user, mr__outlet_udp(e), &a) != 0) {
        return mr__module_fail(L, "not bound", "unbound");
    }
    mr__event_push_address(L, &a);
    return 1;
}

static void set_count(lua_State *L, const char *name, uint64_t n)
{
    lua_pushnumber(L, (double)n);
    lua_setfield(L, -2, name);
}

static int on_stats(lua_State *L)
{
    struct outlet *e = self(L, "u:stats()");
    struct outlet_stats stats;

    if (!e) {
        return 3;
    }
    mr__outlet_stats(e, &stats);
    lua_createtable(L, 0, 3);
    set_count(L, "received", stats.received);
    set_count(L, "dropped", stats.dropped);
    set_count(L, "waiting", stats.waiting);
    return 1;
}

static int on_close(lua_State *L)
{
    struct outlet *e = self(L, "u:close()");

    if (!e) {
        return 3;
    }
    mr__outlet_close(e);
    lua_pushboolean(L, 1);
    return 1;
}

static int on_gc(lua_State *L)
{
    struct object *object = lua_touserdata(L, 1);

    if (object->outlet) {
        mr__outlet_abandon(object->outlet);
        object->outlet = NULL;
    }
    return 0;
}

/* ---- the module ------------------------------------------------------------------------------ */

static int fail_open(lua_State *L, int rc)
{
    switch (rc) {
    case -EMFILE:
        return mr__module_fail(L, "too many endpoints are open", "full");
    case -EDQUOT:
        lua_pushfstring(L, "more than %d endpoints of one policy", OUTLETS_MAX);
        return mr__module_fail(L, lua_tostring(L, -1), "full");
    case -ESHUTDOWN:
        return mr__module_fail(L, "another generation took over", "closed");
    default:
        return mr__module_fail(L, "not enough memory", "failed");
    }
}

/* relay.udp { family = 4, lookup = fn } */
static int on_udp(lua_State *L)
{
    static const char *const names[] = {"family", "lookup", NULL};
    struct policy *p = mr__module_policy(L);
    unsigned flags = mr__run_is_lookup(L) ? MR_LOOKUP_BUILT_IN : 0;
    struct object *object;
    int family, rc;

    lua_settop(L, 1);
    if (lua_isnil(L, 1)) {
        lua_newtable(L);
        lua_replace(L, 1);
    }
    mr__argument_options(L, 1, type_name, names);
    mr__argument_field(L, 1, "family");
    family = mr__module_family(L, 2, type_name, 4);
    mr__argument_field(L, 1, "lookup");
    if (!lua_isnil(L, 3) && !lua_isfunction(L, 3)) {
        mr__argument_error(L, type_name, "lookup", 3, "a function is expected");
    }
    if (!p->generation->opts.host.udp_open) {
        return mr__module_fail(L, "not available here", "unavailable");
    }
    object = mr__module_new(L, type_name, sizeof *object);
    rc = mr__outlet_open(&object->outlet, L, p, family, lua_isnil(L, 3) ? 0 : 3, flags);
    return rc == 0 ? 1 : fail_open(L, rc);
}

void mr__module_open_udp(lua_State *L, struct policy *p)
{
    static const luaL_Reg functions[] = {{"udp", on_udp}, {NULL, NULL}};
    static const luaL_Reg udp_methods[] = {{"bind", on_bind},   {"connect", on_connect},
                                           {"send", on_send},   {"address", on_address},
                                           {"stats", on_stats}, {"on_message", on_on_message},
                                           {"close", on_close}, {NULL, NULL}};

    mr__module_define(L, type_name, udp_methods, on_gc);
    mr__module_add(L, functions, p);
}
