/* SPDX-License-Identifier: MIT */
/*
 * Sessions and relays as policies see them, and what they may do to them
 * (service/players.h), to all of them as well (service/drain.h). Control thread only.
 *
 * A list leaves the visit by an error of Lua when the budget is spent; nothing is held
 * there. What ends a player takes effect when the service's turn is over, so a policy never
 * sees half of it.
 */
#include "script/argument.h"
#include "script/event.h"
#include "script/generation.h"
#include "script/json.h"
#include "script/module_part.h"
#include "script/state.h"
#include "service/drain.h"
#include "service/players.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    ENTRIES_PER_LOOK = 32, /* at the clock: about 100 us */
    ID_DIGITS_MAX = 19,    /* of a uint64_t, one less than it could have */
};

/* ---- lists ----------------------------------------------------------------------------------- */

struct listing {
    lua_State *L;
    int n, max;
};

/* stack: ... list entry */
static bool add_entry(struct listing *l)
{
    lua_rawseti(l->L, -2, ++l->n);
    if (l->n % ENTRIES_PER_LOOK == 0) {
        mr__state_charge(l->L);
    }
    return l->n < l->max;
}

/* How many are wanted at most, the second argument: whoever looks for one of thousands need not
 * pay for all of them. */
static int check_max(lua_State *L, const char *function)
{
    if (lua_isnoneornil(L, 2)) {
        return INT_MAX;
    }
    return (int)mr__argument_number(L, 2, function, "max", 1, INT_MAX,
                                    "a number from 1 is expected");
}

/* An empty one is marked, so that it is [] and not {} as JSON. */
static int end_list(const struct listing *l)
{
    if (l->n == 0) {
        mr__json_mark_array(l->L, -1);
    }
    return 1;
}

static bool on_each_session(void *user, const struct hook_session *v)
{
    struct listing *l = user;

    mr__event_push_session(l->L, v);
    return add_entry(l);
}

static bool on_each_relay(void *user, const struct hook_relay *v)
{
    struct listing *l = user;

    mr__event_push_relay(l->L, v);
    return add_entry(l);
}

static int on_sessions(lua_State *L)
{
    struct service *service = mr__module_service(L, mr__module_policy(L), "relay.sessions");
    struct listing l = {L, 0, check_max(L, "relay.sessions")};
    struct argument_tags memory;
    struct hook_map tags = mr__argument_tags(L, 1, "relay.sessions", "tags", &memory);

    lua_newtable(L);
    mr__players_sessions(service, tags, on_each_session, &l);
    return end_list(&l);
}

static int on_relays(lua_State *L)
{
    struct service *service = mr__module_service(L, mr__module_policy(L), "relay.relays");
    struct listing l = {L, 0, check_max(L, "relay.relays")};
    struct argument_tags memory;
    struct hook_map tags = mr__argument_tags(L, 1, "relay.relays", "tags", &memory);

    lua_newtable(L);
    mr__players_relays(service, tags, on_each_relay, &l);
    return end_list(&l);
}

/* ---- one ------------------------------------------------------------------------------------- */

/* The id of a session or relay: a text, or the object's field id. */
static struct str check_id(lua_State *L, const char *function, const char *name)
{
    struct str id;

    if (lua_istable(L, 1) && !lua_getmetatable(L, 1)) {
        mr__argument_field(L, 1, "id");
        lua_replace(L, 1);
    }
    if (lua_type(L, 1) != LUA_TSTRING) {
        mr__argument_error(L, function, name, 1, "the object or its id, a text, is expected");
    }
    id.s = lua_tolstring(L, 1, &id.n);
    return id;
}

/* 0: it names no session, now or ever. */
static uint64_t check_session(lua_State *L, const char *function)
{
    struct str id = check_id(L, function, "session");

    if (id.n < 1 || id.n > ID_DIGITS_MAX || strspn(id.s, "0123456789") != id.n) {
        return 0;
    }
    return strtoull(id.s, NULL, 10);
}

static int no_session(lua_State *L)
{
    return mr__module_fail(L, "there is no such session", "not-found");
}

static int no_relay(lua_State *L)
{
    return mr__module_fail(L, "there is no such relay", "not-found");
}

static int on_session(lua_State *L)
{
    struct service *service = mr__module_service(L, mr__module_policy(L), "relay.session");
    struct str id = check_id(L, "relay.session", "id");
    struct hook_session view;

    if (!mr__players_session(service, id, &view)) {
        return no_session(L);
    }
    mr__event_push_session(L, &view);
    return 1;
}

static int on_get(lua_State *L)
{
    struct service *service = mr__module_service(L, mr__module_policy(L), "relay.get");
    struct str id = check_id(L, "relay.get", "relay");
    struct hook_relay view;

    if (!mr__players_relay(service, id, &view)) {
        return no_relay(L);
    }
    mr__event_push_relay(L, &view);
    return 1;
}

/* ---- acting ---------------------------------------------------------------------------------- */

static int on_kick(lua_State *L)
{
    struct policy *p = mr__module_policy(L);
    struct service *service = mr__module_acting(L, p, "relay.kick");
    struct str reason = mr__module_reason(L, 2, p, "relay.kick");
    uint64_t session = check_session(L, "relay.kick");

    if (mr__players_kick(service, session, reason) != 0) {
        return no_session(L);
    }
    lua_pushboolean(L, 1);
    return 1;
}

static int on_close(lua_State *L)
{
    struct policy *p = mr__module_policy(L);
    struct service *service = mr__module_acting(L, p, "relay.close");
    struct str reason = mr__module_reason(L, 2, p, "relay.close");
    struct str relay = check_id(L, "relay.close", "relay");

    if (mr__players_close(service, relay, reason) != 0) {
        return no_relay(L);
    }
    lua_pushboolean(L, 1);
    return 1;
}

static int on_notify(lua_State *L)
{
    struct service *service = mr__module_acting(L, mr__module_policy(L), "relay.notify");
    struct str word = mr__argument_text(L, 2, "relay.notify", "word");
    uint64_t session = check_session(L, "relay.notify");
    int rc = mr__players_notify(service, session, word);

    if (rc == -EINVAL) {
        return mr__argument_error(L, "relay.notify", "word", 2,
                                  "1 to 128 visible ASCII characters without a space are expected");
    }
    if (rc != 0) {
        return no_session(L);
    }
    lua_pushboolean(L, 1);
    return 1;
}

/* Seconds, or false: taken back. */
static int on_drain(lua_State *L)
{
    struct policy *p = mr__module_policy(L);
    struct service *service = mr__module_acting(L, p, "relay.drain");
    bool is_cancel = lua_isboolean(L, 1) && !lua_toboolean(L, 1);
    double seconds =
        is_cancel ? 0
                  : mr__argument_number(L, 1, "relay.drain", "seconds", 0, MR_DRAIN_MAX_S,
                                        "a number from 0 to 31622400, or false, is expected");
    struct str by = {p->name, strlen(p->name)};
    int rc = is_cancel ? mr__drain_cancel(service, by)
                       : mr__drain_begin(service, (uint64_t)(seconds * 1e9), by);

    if (rc == -ENOENT) {
        return mr__module_fail(L, "there is no drain", "not-found");
    }
    if (rc != 0) {
        return mr__module_fail(L, "it is stopping already", "busy");
    }
    lua_pushboolean(L, 1);
    return 1;
}

void mr__module_open_players(lua_State *L, struct policy *p)
{
    static const luaL_Reg functions[] = {
        {"sessions", on_sessions}, {"session", on_session}, {"relays", on_relays},
        {"get", on_get},           {"kick", on_kick},       {"close", on_close},
        {"notify", on_notify},     {"drain", on_drain},     {NULL, NULL}};

    mr__module_add(L, functions, p);
}
