/* SPDX-License-Identifier: MIT */
/*
 * relay.store and relay.limiter: what policies keep over reloads (service/store.h). Control
 * thread only.
 *
 * An object knows how it shall be opened, and is at its first use: so what is declared at
 * a file's top level changes nothing when the file is only checked, or refused. The store
 * behind it lives as long as the service, longer than any state of Lua.
 */
#include "script/argument.h"
#include "script/generation.h"
#include "script/module_part.h"
#include "service/players.h"
#include "service/store.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { NAME_BYTES_MAX = 64, MAX_PRESET = 10000 };

static const char store_type[] = "relay.store", limiter_type[] = "relay.limiter";
static const double SECONDS_MAX = 1e9;

struct keep {
    struct policy *policy;
    struct store *store; /* NULL: not opened yet */
    struct limiter *limiter;
    uint64_t max, ttl_ns;
    double rate, burst;
    char name[NAME_BYTES_MAX + 1];
    size_t n_name;
};

static uint64_t now_ns(const struct keep *k)
{
    const struct generation_options *o = &k->policy->generation->opts;

    return o->mono_ns(o->user);
}

static int raise_memory(lua_State *L, const char *function)
{
    return luaL_error(L, "%s: not enough memory", function);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* A field of the options at 2, or the preset where there is none. */
static double option(lua_State *L, const char *function, const char *name, double preset,
                     double min, double max, const char *expected)
{
    double v = preset;

    mr__argument_field(L, 2, name);
    if (!lua_isnil(L, -1)) {
        v = mr__argument_number(L, -1, function, name, min, max, expected);
    }
    lua_pop(L, 1);
    return v;
}

static uint64_t option_max(lua_State *L, const char *function)
{
    return (uint64_t)option(L, function, "max", MAX_PRESET, 1, MR_STORE_ENTRIES_MAX,
                            "1 to 10 million entries are expected");
}

static struct keep *push_keep(lua_State *L, const char *type, struct str name)
{
    struct keep *k = mr__module_new(L, type, sizeof *k);

    k->policy = mr__module_policy(L);
    memcpy(k->name, name.s, name.n);
    k->n_name = name.n;
    return k;
}

/* Options may be left out: both objects have a use without any but the limiter's rate. */
static void check_options(lua_State *L, const char *function, const char *const *names)
{
    lua_settop(L, 2);
    if (lua_isnil(L, 2)) {
        lua_newtable(L);
        lua_replace(L, 2);
    }
    mr__argument_options(L, 2, function, names);
}

static int on_store(lua_State *L)
{
    static const char *const names[] = {"max", "ttl", NULL};
    struct str name = mr__argument_name(L, 1, "relay.store", "name");
    struct keep *k;
    uint64_t max;
    double ttl;

    mr__module_service(L, mr__module_policy(L), "relay.store");
    check_options(L, "relay.store", names);
    max = option_max(L, "relay.store");
    ttl = option(L, "relay.store", "ttl", 0, 1e-9, SECONDS_MAX,
                 "seconds above 0 and up to 1e9 are expected");
    k = push_keep(L, store_type, name);
    k->max = max;
    k->ttl_ns = (uint64_t)(ttl * 1e9);
    return 1;
}

static int on_limiter(lua_State *L)
{
    static const char *const names[] = {"rate", "burst", "max", NULL};
    struct str name = mr__argument_name(L, 1, "relay.limiter", "name");
    struct keep *k;
    double rate, burst;
    uint64_t max;

    mr__module_service(L, mr__module_policy(L), "relay.limiter");
    check_options(L, "relay.limiter", names);
    mr__argument_field(L, 2, "rate");
    rate = mr__argument_number(L, -1, "relay.limiter", "rate", 1e-9, 1e9,
                               "a number above 0 a second is expected");
    lua_pop(L, 1);
    burst = option(L, "relay.limiter", "burst", fmax(1, ceil(rate)), 1, 1e9,
                   "a number from 1 to 1e9 is expected");
    max = option_max(L, "relay.limiter");
    k = push_keep(L, limiter_type, name);
    k->rate = rate;
    k->burst = burst;
    k->max = max;
    return 1;
}

static struct stores *stores_of(lua_State *L, const struct keep *k, const char *function,
                                struct str *owner)
{
    *owner = (struct str){k->policy->name, strlen(k->policy->name)};
    return mr__service_stores(mr__module_acting(L, k->policy, function));
}

static void check_opened(lua_State *L, int rc, const char *function)
{
    if (rc == -ENOSPC) {
        luaL_error(L, "%s: there are %d stores and limiters already", function, MR_STORES_MAX);
    }
    if (rc != 0) {
        raise_memory(L, function);
    }
}

static struct keep *self_store(lua_State *L, const char *usage)
{
    struct keep *k = mr__argument_self(L, store_type, usage);
    struct str owner;

    if (!k->store) {
        struct stores *stores = stores_of(L, k, "relay.store", &owner);

        check_opened(L,
                     mr__stores_open(stores, owner, (struct str){k->name, k->n_name}, k->max,
                                     k->ttl_ns, &k->store),
                     "relay.store");
    }
    return k;
}

/*
 * For reading. A policy that loads may look at what the generation before kept, so that
 * its first decision is right, but a load that is only tried must neither make a store nor
 * give one other bounds. NULL: there is none yet.
 */
static struct store *self_readable(lua_State *L, const char *usage)
{
    struct keep *k = mr__argument_self(L, store_type, usage);
    struct policy *p = k->policy;

    if (p->generation->stage != GENERATION_LOADING) {
        return self_store(L, usage)->store;
    }
    return mr__stores_find(mr__service_stores(mr__module_service(L, p, "relay.store")),
                           (struct str){p->name, strlen(p->name)},
                           (struct str){k->name, k->n_name});
}

static struct keep *self_limiter(lua_State *L, const char *usage)
{
    struct keep *k = mr__argument_self(L, limiter_type, usage);
    struct str owner;

    if (!k->limiter) {
        struct stores *stores = stores_of(L, k, "relay.limiter", &owner);

        check_opened(L,
                     mr__limiters_open(stores, owner, (struct str){k->name, k->n_name}, k->rate,
                                       k->burst, k->max, &k->limiter),
                     "relay.limiter");
    }
    return k;
}

/* ---- a store's methods ----------------------------------------------------------------------- */

static struct str check_key(lua_State *L, const char *function)
{
    return mr__argument_key(L, 2, function, "key", MR_STORE_KEY_MAX);
}

static struct store_value check_value(lua_State *L, const char *function)
{
    struct store_value v = {.type = MR_STORE_NIL};

    switch (lua_type(L, 3)) {
    case LUA_TNONE:
    case LUA_TNIL:
        break;
    case LUA_TNUMBER:
        v.type = MR_STORE_NUMBER;
        v.number = lua_tonumber(L, 3);
        break;
    case LUA_TBOOLEAN:
        v.type = MR_STORE_BOOLEAN;
        v.boolean = lua_toboolean(L, 3);
        break;
    case LUA_TSTRING:
        v.type = MR_STORE_TEXT;
        v.text = mr__argument_bounded(L, 3, function, "value", MR_STORE_VALUE_MAX);
        break;
    default:
        mr__argument_error(L, function, "value", 3, "a text, number or boolean is expected");
    }
    return v;
}

static int full(lua_State *L)
{
    return mr__module_fail(L, "store full", "full");
}

/* What set and add give for rc. */
static int written(lua_State *L, int rc, const char *function)
{
    if (rc == -ENOSPC) {
        return full(L);
    }
    if (rc == -ENOMEM) {
        return raise_memory(L, function);
    }
    lua_pushboolean(L, rc == 0);
    return 1;
}

static int on_get(lua_State *L)
{
    struct store *store = self_readable(L, "store:get(key)");
    struct str key = check_key(L, "store:get");
    struct store_value v = {.type = MR_STORE_NIL};

    if (store) {
        mr__store_get(store, key, now_ns(lua_touserdata(L, 1)), &v);
    }
    switch (v.type) {
    case MR_STORE_NUMBER:
        lua_pushnumber(L, v.number);
        break;
    case MR_STORE_BOOLEAN:
        lua_pushboolean(L, v.boolean);
        break;
    case MR_STORE_TEXT:
        lua_pushlstring(L, v.text.n > 0 ? v.text.s : "", v.text.n);
        break;
    default:
        lua_pushnil(L);
        break;
    }
    return 1;
}

static int on_set(lua_State *L)
{
    struct keep *k = self_store(L, "store:set(key, value)");
    struct str key = check_key(L, "store:set");
    struct store_value v = check_value(L, "store:set");

    return written(L, mr__store_set(k->store, key, &v, now_ns(k)), "store:set");
}

static int on_add(lua_State *L)
{
    struct keep *k = self_store(L, "store:add(key, value)");
    struct str key = check_key(L, "store:add");
    struct store_value v = check_value(L, "store:add");

    if (v.type == MR_STORE_NIL) {
        return mr__argument_error(L, "store:add", "value", 3,
                                  "a text, number or boolean is expected");
    }
    return written(L, mr__store_add(k->store, key, &v, now_ns(k)), "store:add");
}

static int on_incr(lua_State *L)
{
    struct keep *k = self_store(L, "store:incr(key, by)");
    struct str key = check_key(L, "store:incr");
    double by = 1, sum;
    int rc;

    if (!lua_isnoneornil(L, 3)) {
        by = mr__argument_number(L, 3, "store:incr", "by", -HUGE_VAL, HUGE_VAL,
                                 "a number is expected");
    }
    rc = mr__store_incr(k->store, key, by, now_ns(k), &sum);
    if (rc == -EINVAL) {
        return luaL_error(L, "store:incr: what is kept is no number, or the sum is not finite");
    }
    if (rc != 0) {
        return written(L, rc, "store:incr");
    }
    lua_pushnumber(L, sum);
    return 1;
}

static int on_del(lua_State *L)
{
    struct keep *k = self_store(L, "store:del(key)");
    struct str key = check_key(L, "store:del");

    lua_pushboolean(L, mr__store_delete(k->store, key, now_ns(k)));
    return 1;
}

static int on_count(lua_State *L)
{
    struct store *store = self_readable(L, "store:count()");

    lua_pushnumber(L, store ? (double)mr__store_count(store, now_ns(lua_touserdata(L, 1))) : 0);
    return 1;
}

/* ---- a limiter's method ---------------------------------------------------------------------- */

static int on_take(lua_State *L)
{
    struct keep *k = self_limiter(L, "limiter:take(key, n)");
    struct str key = check_key(L, "limiter:take");
    double n = 1;
    uint64_t wait_ns;
    int rc;

    if (!lua_isnoneornil(L, 3)) {
        n = mr__argument_number(L, 3, "limiter:take", "n", 1e-9, 1e9,
                                "a number above 0 is expected");
    }
    rc = mr__limiter_take(k->limiter, key, n, now_ns(k), &wait_ns);
    if (rc == -ENOSPC) {
        return mr__module_fail(L, "limiter full", "full");
    }
    if (rc == -ENOMEM) {
        return raise_memory(L, "limiter:take");
    }
    lua_pushboolean(L, rc == 0);
    if (rc == 0) {
        return 1;
    }
    lua_pushnumber(L, wait_ns == UINT64_MAX ? HUGE_VAL : (double)wait_ns / 1e9);
    return 2;
}

void mr__module_open_keep(lua_State *L, struct policy *p)
{
    static const luaL_Reg functions[] = {
        {"store", on_store}, {"limiter", on_limiter}, {NULL, NULL}};
    static const luaL_Reg store_methods[] = {
        {"get", on_get}, {"set", on_set},     {"add", on_add}, {"incr", on_incr},
        {"del", on_del}, {"count", on_count}, {NULL, NULL}};
    static const luaL_Reg limiter_methods[] = {{"take", on_take}, {NULL, NULL}};

    mr__module_define(L, store_type, store_methods, NULL);
    mr__module_define(L, limiter_type, limiter_methods, NULL);
    mr__module_add(L, functions, p);
}
