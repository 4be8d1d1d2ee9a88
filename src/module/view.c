/* SPDX-License-Identifier: MIT */
/*
 * Tables for tests (view.h), with the fields that policies see (script/event.c, which
 * makes them for another state and in another way). The host's thread.
 */
#include "module/view.h"

#include <jansson.h>
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

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
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)id);

    set_str(L, key, (struct str){text, (size_t)n});
}

static void set_map(lua_State *L, const char *key, struct hook_map map)
{
    lua_createtable(L, 0, (int)map.n);
    for (size_t i = 0; i < map.n; i++) {
        const struct hook_pair *p = &map.items[i];

        lua_pushlstring(L, p->key.s, p->key.n);
        lua_pushlstring(L, p->value.n > 0 ? p->value.s : "", p->value.n);
        lua_rawset(L, -3);
    }
    lua_setfield(L, -2, key);
}

static void set_ip(lua_State *L, const struct mr_addr *a)
{
    char text[MR_ADDR_TEXT_MAX];

    set_str(L, "ip", (struct str){text, mr_addr_format_ip(a, text, sizeof text)});
    set_str(L, "net", (struct str){text, mr_addr_format_net(a, text, sizeof text)});
}

void mr__view_address(lua_State *L, const struct mr_addr *a)
{
    char text[MR_ADDR_TEXT_MAX];

    if (a->family == 0) {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 0, 5);
    set_ip(L, a);
    set_number(L, "port", a->port);
    set_number(L, "family", a->family);
    set_str(L, "text", (struct str){text, mr_addr_format(a, text, sizeof text)});
}

void mr__view_session(lua_State *L, const struct hook_session *s)
{
    lua_createtable(L, 0, 9);
    set_id(L, "id", s->id);
    set_str(L, "oid", s->oid);
    set_ip(L, &s->tcp);
    mr__view_address(L, &s->addr);
    lua_setfield(L, -2, "addr");
    set_map(L, "tags", s->tags);
    set_map(L, "meta", s->meta);
    set_number(L, "since", s->since);
    set_number(L, "joins", s->joins);
}

void mr__view_relay(lua_State *L, const struct hook_relay *r)
{
    lua_createtable(L, 0, 15);
    set_str(L, "id", (struct str){r->text, strnlen(r->text, sizeof r->text)});
    set_str(L, "kind", (struct str){r->kind, strlen(r->kind)});
    set_number(L, "port", r->port);
    if (r->dest.family != 0) {
        mr__view_address(L, &r->dest);
        lua_setfield(L, -2, "target");
    }
    mr__view_address(L, &r->addr);
    lua_setfield(L, -2, "addr");
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
}

/* ---- happenings ------------------------------------------------------------------------------ */

static void push_field(lua_State *L, const struct log_field *f)
{
    switch (f->type) {
    case MR_FIELD_STR:
        lua_pushlstring(L, f->v.str.s, f->v.str.n);
        return;
    case MR_FIELD_INT:
        lua_pushnumber(L, (double)f->v.i);
        return;
    case MR_FIELD_UINT:
        lua_pushnumber(L, (double)f->v.u);
        return;
    case MR_FIELD_DOUBLE:
        lua_pushnumber(L, f->v.d);
        return;
    case MR_FIELD_BOOL:
        lua_pushboolean(L, f->v.b);
        return;
    }
    lua_pushnil(L);
}

static void set_fields(lua_State *L, const char *key, const struct happening_fields *fields)
{
    lua_createtable(L, 0, (int)fields->n);
    for (size_t i = 0; i < fields->n; i++) {
        push_field(L, &fields->items[i]);
        lua_setfield(L, -2, fields->items[i].key);
    }
    lua_setfield(L, -2, key);
}

static void set_text(lua_State *L, const char *key, const struct happening *h, unsigned i)
{
    if (h->text[i].s) {
        set_str(L, key, h->text[i]);
    }
}

static void set_spec(lua_State *L, const struct happening *h)
{
    const struct hook_spec *s = &h->spec;
    const struct {
        bool has;
        const char *key;
        double value;
    } numbers[] = {
        {s->has_ttl, "ttl", (double)s->ttl_ns / 1e9},
        {s->has_idle, "idle", (double)s->idle_ns / 1e9},
        {s->has_max_bytes, "max_bytes", (double)s->max_bytes},
    };

    lua_newtable(L);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].has) {
            set_number(L, numbers[i].key, numbers[i].value);
        }
    }
    if (s->has_pps || s->has_bps) {
        lua_newtable(L);
        if (s->has_pps) {
            set_number(L, "pps", (double)s->pps);
        }
        if (s->has_bps) {
            set_number(L, "bps", (double)s->bps);
        }
        lua_setfield(L, -2, "rate");
    }
    if (s->has_hold_packets || s->has_hold_bytes || s->has_hold_ns) {
        lua_newtable(L);
        if (s->has_hold_packets) {
            set_number(L, "packets", s->hold_packets);
        }
        if (s->has_hold_bytes) {
            set_number(L, "bytes", (double)s->hold_bytes);
        }
        if (s->has_hold_ns) {
            set_number(L, "ms", (double)s->hold_ns / 1e6);
        }
        lua_setfield(L, -2, "hold");
    }
    if (s->target[0]) {
        set_str(L, "target", (struct str){s->target, strlen(s->target)});
    }
    set_fields(L, "tags", &h->fields);
    set_fields(L, "slots", &h->slots);
    lua_setfield(L, -2, "spec");
}

static void set_request(lua_State *L, const struct happening *h)
{
    set_text(L, "method", h, 0);
    set_text(L, "url", h, 1);
    set_text(L, "body", h, 2);
    set_fields(L, "headers", &h->fields);
    set_number(L, "timeout", h->seconds);
    set_number(L, "max_bytes", (double)h->number);
}

static void set_outcome(lua_State *L, const struct happening *h)
{
    set_text(L, "code", h, 0);
    set_text(L, "reason", h, 1);
    if (h->kind == HAPPENED_COMMAND) {
        set_id(L, "session", h->number);
        lua_pushboolean(L, h->is_relayed);
        lua_setfield(L, -2, "is_relayed");
        set_text(L, "host_relay", h, 2);
        set_text(L, "relay", h, 3);
        return;
    }
    set_text(L, "relay", h, 2);
    set_number(L, "packets", (double)h->number);
    if (h->has_spec) {
        set_spec(L, h);
    }
}

static void set_record(lua_State *L, const struct happening *h)
{
    lua_pushstring(L, mr__log_level_name((enum log_level)h->number));
    lua_setfield(L, -2, "level");
    set_text(L, "area", h, 0);
    set_text(L, "msg", h, 1);
    set_fields(L, "fields", &h->fields);
}

void mr__view_happening(lua_State *L, const struct happening *h)
{
    static const char *const kinds[] = {"line", "closed", "log",    "command",   "knock", "http",
                                        "read", "loaded", "lookup", "looked_up", "called"};

    lua_createtable(L, 0, 8);
    lua_pushstring(L, kinds[h->kind]);
    lua_setfield(L, -2, "kind");
    set_id(L, "id", h->id);
    switch (h->kind) {
    case HAPPENED_LINE:
    case HAPPENED_CLOSED:
        set_text(L, "text", h, 0);
        break;
    case HAPPENED_LOG:
        set_record(L, h);
        break;
    case HAPPENED_COMMAND:
    case HAPPENED_KNOCK:
        set_outcome(L, h);
        break;
    case HAPPENED_HTTP:
        set_request(L, h);
        break;
    case HAPPENED_READ:
        set_text(L, "path", h, 0);
        set_number(L, "max_bytes", (double)h->number);
        break;
    case HAPPENED_LOADED:
        set_text(L, "error", h, 0);
        break;
    case HAPPENED_LOOKUP:
        set_text(L, "host", h, 0);
        set_number(L, "family", (double)h->number);
        break;
    case HAPPENED_LOOKED_UP:
        set_text(L, "address", h, 0);
        set_text(L, "code", h, 1);
        set_text(L, "error", h, 2);
        break;
    case HAPPENED_CALLED:
        set_text(L, "text", h, 0);
        lua_pushboolean(L, h->number != 0);
        lua_setfield(L, -2, "failed");
        lua_pushboolean(L, h->is_json);
        lua_setfield(L, -2, "is_json");
        break;
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

enum { JSON_DEPTH_MAX = 64 };

static void push_json(lua_State *L, const json_t *v, int depth)
{
    const char *key;
    json_t *item;
    size_t i;

    luaL_checkstack(L, 4, "json");
    switch (depth < JSON_DEPTH_MAX ? json_typeof(v) : JSON_NULL) {
    case JSON_OBJECT:
        lua_newtable(L);
        json_object_foreach((json_t *)(uintptr_t)v, key, item)
        {
            push_json(L, item, depth + 1);
            lua_setfield(L, -2, key);
        }
        return;
    case JSON_ARRAY:
        lua_newtable(L);
        json_array_foreach(v, i, item)
        {
            push_json(L, item, depth + 1);
            lua_rawseti(L, -2, (int)i + 1);
        }
        return;
    case JSON_STRING:
        lua_pushlstring(L, json_string_value(v), json_string_length(v));
        return;
    case JSON_INTEGER:
    case JSON_REAL:
        lua_pushnumber(L, json_number_value(v));
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        lua_pushboolean(L, json_is_true(v));
        return;
    case JSON_NULL:
        break;
    }
    lua_pushnil(L);
}

/* The value is kept by a userdata, since an error while it is pushed would leave it behind. */
static int free_json(lua_State *L)
{
    json_t **v = lua_touserdata(L, 1);

    json_decref(*v);
    *v = NULL;
    return 0;
}

void mr__view_json(lua_State *L, struct str text)
{
    json_t **v = lua_newuserdata(L, sizeof(json_t *));

    *v = NULL;
    lua_newtable(L);
    lua_pushcfunction(L, free_json);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    *v = json_loadb(text.s, text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (*v) {
        push_json(L, *v, 0);
    } else {
        lua_pushnil(L);
    }
    lua_remove(L, -2);
}
