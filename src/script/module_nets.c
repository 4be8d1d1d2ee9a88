/* SPDX-License-Identifier: MIT */
/*
 * relay.cidr: lists of networks, parsed and looked up in C (service/cidr.h). Control
 * thread only. Start reading at on_cidr().
 *
 * The object is a userdata that holds one reference; the values of a map are a table that
 * is its environment, values of a text are in the list itself. Its memory is not Lua's, so
 * it is counted apart; its __gc frees and does nothing else.
 */
#include "script/argument.h"
#include "script/generation.h"
#include "script/holder.h"
#include "script/module_part.h"
#include "script/state.h"
#include "service/cidr.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum {
    TEXT_BYTES_MAX = 16 << 20, /* as relay.read() gives at most */
    NETS_PER_LOOK = 500,       /* at the clock: about 100 us */
};

static const char type_name[] = "relay.cidr";

struct nets {
    struct script_state *state;
    struct cidr *cidr;
    size_t bytes; /* counted */
    bool has_table;
};

static int on_collect(lua_State *L)
{
    struct nets *nets = lua_touserdata(L, 1);

    mr__cidr_unref(nets->cidr);
    nets->cidr = NULL;
    if (nets->state) {
        mr__state_give_outside(nets->state, nets->bytes);
    }
    nets->bytes = 0;
    return 0;
}

struct cidr *mr__module_nets(lua_State *L, int index)
{
    struct nets *nets = mr__argument_object(L, index, type_name);

    return nets ? nets->cidr : NULL;
}

/* ---- making ---------------------------------------------------------------------------------- */

static void release_builder(void *builder)
{
    mr__cidr_cancel(builder);
}

static int raise_memory(lua_State *L)
{
    return luaL_error(L, "relay.cidr: not enough memory");
}

/* Adds the pair at the top, key below value: a network of a list, or one of a map and its value.
 * Leaves the value to be kept at the top. */
static void add_pair(lua_State *L, struct cidr_builder *b)
{
    char why[MR_CIDR_WHY_MAX];
    struct str net;
    int rc;

    if (lua_type(L, -2) == LUA_TSTRING) {
        net.s = lua_tolstring(L, -2, &net.n);
        lua_pushvalue(L, -1);
    } else if (lua_type(L, -2) == LUA_TNUMBER && lua_type(L, -1) == LUA_TSTRING) {
        net.s = lua_tolstring(L, -1, &net.n);
        lua_pushboolean(L, 1);
    } else {
        luaL_error(L,
                   "relay.cidr: the table has a %s under a %s (a list of networks, or a map from "
                   "network to value, is expected)",
                   luaL_typename(L, -1), luaL_typename(L, -2));
        return;
    }
    rc = mr__cidr_add(b, net, why);
    if (rc == -ENOMEM) {
        raise_memory(L);
    }
    if (rc != 0) {
        luaL_error(L, "relay.cidr: %s", why);
    }
}

static void read_table(lua_State *L, struct nets *nets)
{
    struct holder *holder = mr__holder_push(L, release_builder);
    struct cidr_builder *b = holder->p = mr__cidr_begin();
    uint64_t begin;
    int n = 0, rc;

    if (!b) {
        raise_memory(L);
    }
    lua_newtable(L); /* stack: 1 table 2 nets 3 holder 4 values */
    for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
        add_pair(L, b);
        lua_rawseti(L, 4, ++n);
        if (n % NETS_PER_LOOK == 0) {
            mr__state_charge(L);
        }
    }
    begin = mr__state_credit_begin(L);
    holder->p = NULL; /* it frees the builder in any case */
    rc = mr__cidr_finish(b, &nets->cidr);
    mr__state_credit_end(L, begin);
    if (rc != 0) {
        raise_memory(L);
    }
    lua_setfenv(L, 2);
    nets->has_table = true;
}

/* 0, or the number of results that say what is wrong. */
static int read_text(lua_State *L, struct nets *nets)
{
    char why[MR_CIDR_WHY_MAX];
    uint64_t begin;
    size_t n;
    const char *text = lua_tolstring(L, 1, &n);
    int rc;

    if (n > TEXT_BYTES_MAX) {
        return mr__module_fail(L, "the text is longer than 16 MiB", "too-large");
    }
    begin = mr__state_credit_begin(L);
    rc = mr__cidr_parse(&nets->cidr, text, n, why);
    mr__state_credit_end(L, begin);
    if (rc == -ENOMEM) {
        return raise_memory(L);
    }
    return rc == 0 ? 0 : mr__module_fail(L, why, rc == -E2BIG ? "too-large" : "malformed");
}

static int on_cidr(lua_State *L)
{
    struct policy *p = mr__module_policy(L);
    struct nets *nets;
    size_t bytes;
    int n;

    lua_settop(L, 1);
    if (lua_type(L, 1) != LUA_TSTRING && (!lua_istable(L, 1) || lua_getmetatable(L, 1))) {
        return mr__argument_error(L, "relay.cidr", "nets", 1,
                                  "a text, a list or a map of networks is expected");
    }
    nets = mr__module_new(L, type_name, sizeof *nets);
    if (lua_type(L, 1) == LUA_TSTRING) {
        n = read_text(L, nets);
        if (n > 0) {
            return n;
        }
    } else {
        read_table(L, nets);
    }
    bytes = mr__cidr_bytes(nets->cidr);
    mr__state_take_outside(L, bytes);
    nets->state = &p->generation->state;
    nets->bytes = bytes;
    lua_settop(L, 2);
    return 1;
}

/* ---- methods --------------------------------------------------------------------------------- */

static uint32_t find(lua_State *L, const struct nets *nets, const char *function)
{
    struct str ip = mr__argument_text(L, 2, function, "ip");
    struct mr_addr a;

    if (mr_addr_parse_ip(&a, ip.s, ip.n, NULL) != MR_ADDR_OK) {
        return MR_NETS_NONE;
    }
    return mr__cidr_find(nets->cidr, &a);
}

static int on_contains(lua_State *L)
{
    const struct nets *nets = mr__argument_self(L, type_name, "nets:contains(ip)");

    lua_pushboolean(L, find(L, nets, "nets:contains") != MR_NETS_NONE);
    return 1;
}

static int on_get(lua_State *L)
{
    const struct nets *nets = mr__argument_self(L, type_name, "nets:get(ip)");
    uint32_t number = find(L, nets, "nets:get");

    if (number == MR_NETS_NONE) {
        lua_pushnil(L);
    } else if (nets->has_table) {
        lua_getfenv(L, 1);
        lua_rawgeti(L, -1, (int)number + 1);
    } else {
        struct str value = mr__cidr_value(nets->cidr, number);

        if (value.n > 0) {
            lua_pushlstring(L, value.s, value.n);
        } else {
            lua_pushboolean(L, 1);
        }
    }
    return 1;
}

static int on_len(lua_State *L)
{
    const struct nets *nets = mr__argument_self(L, type_name, "nets:len()");

    lua_pushnumber(L, (double)mr__cidr_count(nets->cidr));
    return 1;
}

void mr__module_open_nets(lua_State *L, struct policy *p)
{
    static const luaL_Reg functions[] = {{"cidr", on_cidr}, {NULL, NULL}};
    static const luaL_Reg nets_methods[] = {
        {"contains", on_contains}, {"get", on_get}, {"len", on_len}, {NULL, NULL}};

    mr__module_define(L, type_name, nets_methods, on_collect);
    mr__module_add(L, functions, p);
}
