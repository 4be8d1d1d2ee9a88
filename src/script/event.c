/* SPDX-License-Identifier: MIT */
/*
 * hook_event -> `ev`: plain tables of strings, numbers and booleans, made anew for every
 * policy of the chain, so that none can change what the next one sees. Control thread.
 * Start reading at mr__event_push(). To add a field: here, in service/hooks.h and in the
 * table of lua/README.md.
 */
#include "script/event.h"

#include <lauxlib.h>
#include <string.h>

enum { PEEK_MAX = 64 };

const char *mr__event_hook_name(enum hook hook)
{
    static const char *const names[MR_HOOK_COUNT] = {
#define X(constant, name, is_decision) [MR_HOOK_##constant] = name,
        MR_HOOKS(X)
#undef X
    };

    return names[hook];
}

const char *mr__event_op_name(enum mr_lookup_op op)
{
    static const char *const names[MR_LOOKUP_OP_COUNT] = {
#define X(constant, name) [MR_LOOKUP_##constant] = name,
        MR_LOOKUP_OPS(X)
#undef X
    };

    return names[op];
}

/* Keys are the upvalues of the closure that makes events, in this order: pushing one of them costs
 * a tenth of looking its text up among all strings. */
/* clang-format off */
#define EVENT_KEYS(X) \
    X(now) X(id) X(reason) X(tags) X(meta) X(addr) X(sender) X(session) X(peer) X(from) X(to) \
    X(oid) X(mode) X(via) X(relay) X(port) X(size) X(known) X(peek) X(ip) X(net) X(family) \
    X(text) X(since) X(joins) X(age) X(packets_in) X(packets_out) X(bytes_in) \
    X(bytes_out) X(drops) X(host) X(op) X(kind) X(target)
/* clang-format on */

enum event_key {
    KEY_NONE,
#define X(name) KEY_##name,
    EVENT_KEYS(X)
#undef X
};

static const char *const key_names[] = {
#define X(name) #name,
    EVENT_KEYS(X)
#undef X
};

static const char maker_key; /* its address is the key of the registry under which the closure is */

static void key(lua_State *L, enum event_key k)
{
    lua_pushvalue(L, lua_upvalueindex((int)k));
}

static void set_str(lua_State *L, enum event_key k, struct str s)
{
    key(L, k);
    lua_pushlstring(L, s.n > 0 ? s.s : "", s.n);
    lua_rawset(L, -3);
}

static void set_number(lua_State *L, enum event_key k, double v)
{
    key(L, k);
    lua_pushnumber(L, v);
    lua_rawset(L, -3);
}

/* Ids are text: a number of Lua holds 53 bits. */
static void set_id(lua_State *L, enum event_key k, uint64_t id)
{
    char text[24];
    size_t at = sizeof text;

    key(L, k);
    do {
        text[--at] = (char)('0' + id % 10);
        id /= 10;
    } while (id > 0);
    lua_pushlstring(L, text + at, sizeof text - at);
    lua_rawset(L, -3);
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

static void set_map(lua_State *L, enum event_key k, struct hook_map map)
{
    key(L, k);
    lua_createtable(L, 0, (int)map.n);
    add_pairs(L, map);
    lua_rawset(L, -3);
}

/* The address without its port, cut out of "1.2.3.4:5" or "[::1]:5": formatting is what costs. */
static struct str ip_of(struct str text)
{
    size_t end = text.n;

    while (end > 0 && text.s[end - 1] != ':') {
        end--;
    }
    return text.s[0] == '[' ? (struct str){text.s + 1, end - 3} : (struct str){text.s, end - 1};
}

static void set_ip_and_net(lua_State *L, const struct mr_addr *a, struct str ip)
{
    char net[MR_ADDR_TEXT_MAX];

    key(L, KEY_ip);
    lua_pushlstring(L, ip.s, ip.n);
    key(L, KEY_net);
    if (a->family == 4) {
        lua_pushvalue(L, -2);
    } else {
        lua_pushlstring(L, net, mr_addr_format_net(a, net, sizeof net));
    }
    lua_rawset(L, -5);
    lua_rawset(L, -3);
}

static struct str format(const struct mr_addr *a, char text[MR_ADDR_TEXT_MAX])
{
    return (struct str){text, mr_addr_format(a, text, MR_ADDR_TEXT_MAX)};
}

static void push_address(lua_State *L, const struct mr_addr *a)
{
    char buffer[MR_ADDR_TEXT_MAX];
    struct str text = format(a, buffer);

    lua_createtable(L, 0, 5);
    set_ip_and_net(L, a, ip_of(text));
    set_number(L, KEY_port, a->port);
    set_number(L, KEY_family, a->family);
    set_str(L, KEY_text, text);
}

static void set_address(lua_State *L, enum event_key k, const struct mr_addr *a)
{
    if (a->family != 0) {
        key(L, k);
        push_address(L, a);
        lua_rawset(L, -3);
    }
}

static void push_session(lua_State *L, const struct hook_session *s)
{
    lua_createtable(L, 0, 9);
    set_id(L, KEY_id, s->id);
    if (s->oid.n > 0) { /* in register it has none yet */
        set_str(L, KEY_oid, s->oid);
    }
    if (s->tcp.family != 0) {
        char buffer[MR_ADDR_TEXT_MAX];

        set_ip_and_net(L, &s->tcp, ip_of(format(&s->tcp, buffer)));
    }
    set_address(L, KEY_addr, &s->addr);
    set_map(L, KEY_tags, s->tags);
    set_map(L, KEY_meta, s->meta);
    set_number(L, KEY_since, s->since);
    set_number(L, KEY_joins, s->joins);
}

static void set_session(lua_State *L, enum event_key k, const struct hook_session *s)
{
    if (s) {
        key(L, k);
        push_session(L, s);
        lua_rawset(L, -3);
    }
}

static void push_relay(lua_State *L, const struct hook_relay *r)
{
    lua_createtable(L, 0, 15);
    set_str(L, KEY_id, (struct str){r->text, strnlen(r->text, sizeof r->text)});
    set_str(L, KEY_kind, (struct str){r->kind, r->kind ? strlen(r->kind) : 0});
    set_number(L, KEY_port, r->port);
    set_address(L, KEY_addr, &r->addr);
    if (r->dest.family != 0) {
        set_address(L, KEY_target, &r->dest);
    }
    if (r->session != 0) {
        set_id(L, KEY_session, r->session);
    }
    set_map(L, KEY_tags, r->tags);
    set_number(L, KEY_since, r->since);
    set_number(L, KEY_age, r->age);
    set_number(L, KEY_packets_in, (double)r->packets_in);
    set_number(L, KEY_packets_out, (double)r->packets_out);
    set_number(L, KEY_bytes_in, (double)r->bytes_in);
    set_number(L, KEY_bytes_out, (double)r->bytes_out);
    set_number(L, KEY_drops, (double)r->drops);
}

static void set_relay(lua_State *L, enum event_key k, const struct hook_relay *r)
{
    if (r) {
        key(L, k);
        push_relay(L, r);
        lua_rawset(L, -3);
    }
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

    set_number(L, KEY_port, ev->port);
    set_number(L, KEY_size, ev->size);
    key(L, KEY_known);
    lua_pushboolean(L, ev->known);
    lua_rawset(L, -3);
    key(L, KEY_peek);
    lua_pushlstring(L, n > 0 ? (const char *)ev->peek : "", n);
    lua_pushcclosure(L, on_peek, 1);
    lua_rawset(L, -3);
}

static void set_lookup_fields(lua_State *L, const struct hook_event *ev)
{
    const char *op = mr__event_op_name(ev->op);

    set_str(L, KEY_host, ev->host);
    set_str(L, KEY_op, (struct str){op, strlen(op)});
    if (ev->family != 0) {
        set_number(L, KEY_family, ev->family);
    }
}

/* In drop the sender is whom it is about: one table by two names. */
static void set_addresses(lua_State *L, const struct hook_event *ev)
{
    set_address(L, KEY_addr, &ev->addr);
    if (ev->hook == MR_HOOK_DROP && ev->addr.family != 0) {
        key(L, KEY_sender);
        key(L, KEY_addr);
        lua_rawget(L, -3);
        lua_rawset(L, -3);
    }
}

/* An event, or one of its tables alone. */
struct event_to_push {
    const struct hook_event *ev;
    struct hook_map set_tags;
    const struct hook_session *session;
    const struct hook_relay *relay;
    const struct mr_addr *address;
};

static int make_event(lua_State *L)
{
    const struct event_to_push *what = lua_touserdata(L, 1);
    const struct hook_event *ev = what->ev;

    if (!ev) {
        if (what->session) {
            push_session(L, what->session);
        } else if (what->address) {
            push_address(L, what->address);
        } else {
            push_relay(L, what->relay);
        }
        return 1;
    }
    lua_createtable(L, 0, 12);
    set_number(L, KEY_now, ev->now);
    set_id(L, KEY_id, ev->id);
    if (ev->reason.n > 0) {
        set_str(L, KEY_reason, ev->reason);
    }
    key(L, KEY_tags);
    lua_createtable(L, 0, (int)(ev->tags.n + what->set_tags.n));
    add_pairs(L, ev->tags);
    add_pairs(L, what->set_tags);
    lua_rawset(L, -3);
    set_map(L, KEY_meta, ev->meta);
    set_addresses(L, ev);
    set_session(L, KEY_session, ev->session);
    set_session(L, KEY_peer, ev->peer);
    set_session(L, KEY_from, ev->from);
    set_session(L, KEY_to, ev->to);
    if (ev->hook == MR_HOOK_CONNECT || ev->hook == MR_HOOK_CONNECTED) {
        set_str(L, KEY_oid, ev->oid);
        set_str(L, KEY_mode, ev->mode);
        if (ev->via.n > 0) {
            set_str(L, KEY_via, ev->via);
        }
    }
    set_relay(L, KEY_relay, ev->relay);
    if (ev->hook == MR_HOOK_DROP) {
        set_drop_fields(L, ev);
    } else if (ev->hook == MR_HOOK_LOOKUP) {
        set_lookup_fields(L, ev);
    }
    return 1;
}

void mr__event_open(lua_State *L)
{
    int n = (int)(sizeof key_names / sizeof key_names[0]);

    luaL_checkstack(L, n + 2, "event");
    lua_pushlightuserdata(L, (void *)(uintptr_t)&maker_key);
    for (int i = 0; i < n; i++) {
        lua_pushstring(L, key_names[i]);
    }
    lua_pushcclosure(L, make_event, n);
    lua_rawset(L, LUA_REGISTRYINDEX);
}

static void push_made(lua_State *L, struct event_to_push *what)
{
    lua_pushlightuserdata(L, (void *)(uintptr_t)&maker_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    lua_pushlightuserdata(L, what);
    lua_call(L, 1, 1);
}

void mr__event_push(lua_State *L, const struct hook_event *ev, struct hook_map set_tags)
{
    push_made(L, &(struct event_to_push){.ev = ev, .set_tags = set_tags});
}

int mr__event_push_arguments(lua_State *L, const struct hook_event *ev, struct hook_map set_tags)
{
    if (ev->hook != MR_HOOK_LOOKUP) {
        mr__event_push(L, ev, set_tags);
        return 1;
    }
    lua_pushlstring(L, ev->host.n > 0 ? ev->host.s : "", ev->host.n);
    if (ev->family != 0) {
        lua_pushinteger(L, ev->family);
    } else {
        lua_pushnil(L);
    }
    mr__event_push(L, ev, set_tags);
    return 3;
}

void mr__event_push_session(lua_State *L, const struct hook_session *session)
{
    push_made(L, &(struct event_to_push){.session = session});
}

void mr__event_push_relay(lua_State *L, const struct hook_relay *relay)
{
    push_made(L, &(struct event_to_push){.relay = relay});
}

void mr__event_push_address(lua_State *L, const struct mr_addr *address)
{
    push_made(L, &(struct event_to_push){.address = address});
}
