/* SPDX-License-Identifier: MIT */
/*
 * hook_event -> `ev`: plain tables of strings, numbers and booleans, made anew for every
 * policy of the chain, so that none can change what the next one sees. Control thread.
 * Start reading at mr__event_push(). To add a field: here, in service/hooks.h and in the
 * table of lua/README.md.
 */
#include "script/event.h"

#include <inttypes.h>
#include <lauxlib.h>
#include <stdio.h>

enum { PEEK_MAX = 64 };

static void set_str(lua_State *L, const char *key, struct str s)
{
    lua_pushlstring(L, s.n > 0 ? s.s : "", s.n);
    lua_setfield(L, -2, key);
}

static void set_number(lua_State *L, const char *key, double v)
{
    lua_pushnumber(L, v);
    lua_setfield(L, -2, key);
}

/* Ids are text: a number of Lua holds 53 bits. */
static void set_id(lua_State *L, const char *key, uint64_t id)
{
    char text[24];
    size_t at = sizeof text;

    do {
        text[--at] = (char)('0' + id % 10);
        id /= 10;
    } while (id > 0);
    lua_pushlstring(L, text + at, sizeof text - at);
    lua_setfield(L, -2, key);
}

static void add_pairs(lua_State *L, struct hook_map map)
{
    for (size_t i = 0; i < map.n; i++) {
        lua_pushlstring(L, map.items[i].key.s, map.items[i].key.n);
        lua_pushlstring(L, map.items[i].value.n > 0 ? map.items[i].value.s : "",
                        map.items[i].value.n);
        lua_rawset(L, -3);
    }
}

static void set_map(lua_State *L, const char *key, struct hook_map map)
{
    lua_createtable(L, 0, (int)map.n);
    add_pairs(L, map);
    lua_setfield(L, -2, key);
}

static void set_ip_and_net(lua_State *L, const struct mr_addr *a)
{
    char text[MR_ADDR_TEXT_MAX];

    lua_pushlstring(L, text, mr_addr_format_ip(a, text, sizeof text));
    if (a->family == 4) {
        lua_pushvalue(L, -1);
    } else {
        lua_pushlstring(L, text, mr_addr_format_net(a, text, sizeof text));
    }
    lua_setfield(L, -3, "net");
    lua_setfield(L, -2, "ip");
}

static void push_address(lua_State *L, const struct mr_addr *a)
{
    char text[MR_ADDR_TEXT_MAX];

    lua_createtable(L, 0, 5);
    set_ip_and_net(L, a);
    set_number(L, "port", a->port);
    set_number(L, "family", a->family);
    lua_pushlstring(L, text, mr_addr_format(a, text, sizeof text));
    lua_setfield(L, -2, "text");
}

static void set_address(lua_State *L, const char *key, const struct mr_addr *a)
{
    if (a->family != 0) {
        push_address(L, a);
        lua_setfield(L, -2, key);
    }
}

static void set_session(lua_State *L, const char *key, const struct hook_session *s)
{
    if (!s) {
        return;
    }
    lua_createtable(L, 0, 9);
    set_id(L, "id", s->id);
    set_str(L, "oid", s->oid);
    if (s->tcp.family != 0) {
        set_ip_and_net(L, &s->tcp);
    }
    set_address(L, "addr", &s->addr);
    set_map(L, "tags", s->tags);
    set_map(L, "meta", s->meta);
    set_number(L, "since", s->since);
    set_number(L, "joins", s->joins);
    lua_setfield(L, -2, key);
}

static void set_relay(lua_State *L, const char *key, const struct hook_relay *r)
{
    if (!r) {
        return;
    }
    lua_createtable(L, 0, 13);
    lua_pushstring(L, r->text);
    lua_setfield(L, -2, "id");
    set_number(L, "port", r->port);
    set_address(L, "addr", &r->addr);
    if (r->session != 0) {
        set_id(L, "session", r->session);
    }
    set_map(L, "tags", r->tags);
    set_number(L, "since", r->since);
    set_number(L, "age", r->age);
    set_number(L, "packets_in", (double)r->packets_in);
    set_number(L, "packets_out", (double)r->packets_out);
    set_number(L, "bytes_in", (double)r->bytes_in);
    set_number(L, "bytes_out", (double)r->bytes_out);
    set_number(L, "drops", (double)r->drops);
    lua_setfield(L, -2, key);
}

/* ev:peek(n): the datagram's first n bytes; its bytes are the upvalue, so it may be called also
 * when the event is long over. */
static int on_peek(lua_State *L)
{
    size_t have;
    const char *bytes = lua_tolstring(L, lua_upvalueindex(1), &have);
    double n = luaL_optnumber(L, 2, PEEK_MAX);

    luaL_argcheck(L, lua_istable(L, 1), 1, "call it as ev:peek(n)");
    luaL_argcheck(L, n >= 0 && n <= PEEK_MAX, 2, "0 to 64 bytes can be peeked at");
    lua_pushlstring(L, bytes, (size_t)n < have ? (size_t)n : have);
    return 1;
}

static void set_drop_fields(lua_State *L, const struct hook_event *ev)
{
    size_t n = ev->peek_n < PEEK_MAX ? ev->peek_n : PEEK_MAX;

    set_number(L, "port", ev->port);
    set_number(L, "size", ev->size);
    lua_pushboolean(L, ev->known);
    lua_setfield(L, -2, "known");
    lua_pushlstring(L, n > 0 ? (const char *)ev->peek : "", n);
    lua_pushcclosure(L, on_peek, 1);
    lua_setfield(L, -2, "peek");
}

static void set_addresses(lua_State *L, const struct hook_event *ev)
{
    if (ev->addr.family == 0) {
        return;
    }
    push_address(L, &ev->addr);
    if (ev->hook == MR_HOOK_DROP) { /* one table by two names: the sender is whom it is about */
        lua_pushvalue(L, -1);
        lua_setfield(L, -3, "sender");
    }
    lua_setfield(L, -2, "addr");
}

void mr__event_push(lua_State *L, const struct hook_event *ev, struct hook_map set_tags)
{
    luaL_checkstack(L, 12, "event");
    lua_createtable(L, 0, 12);
    set_number(L, "now", ev->now);
    set_id(L, "id", ev->id);
    if (ev->reason.n > 0) {
        set_str(L, "reason", ev->reason);
    }
    lua_createtable(L, 0, (int)(ev->tags.n + set_tags.n));
    add_pairs(L, ev->tags);
    add_pairs(L, set_tags);
    lua_setfield(L, -2, "tags");
    set_map(L, "meta", ev->meta);
    set_addresses(L, ev);
    set_session(L, "session", ev->session);
    set_session(L, "peer", ev->peer);
    set_session(L, "from", ev->from);
    set_session(L, "to", ev->to);
    if (ev->hook == MR_HOOK_CONNECT) {
        set_str(L, "oid", ev->oid);
        set_str(L, "mode", ev->mode);
    }
    set_relay(L, "relay", ev->relay);
    if (ev->hook == MR_HOOK_DROP) {
        set_drop_fields(L, ev);
    }
}
