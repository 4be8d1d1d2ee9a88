/* SPDX-License-Identifier: MIT */
/*
 * relay.resolve: a name or literal becomes an address, by the hooks `lookup` and what is
 * behind them. Control thread. It waits (wait.h). Start reading at on_resolve().
 */
#include "script/argument.h"
#include "script/errand.h"
#include "script/generation.h"
#include "script/module_part.h"

#include <string.h>

static int push_answer(lua_State *L, void *user)
{
    const struct mr_lookup_answer *a = user;
    char text[MR_ADDR_TEXT_MAX];

    if (a->rc != 0) {
        return mr__module_fail(L, a->message, a->code);
    }
    lua_pushlstring(L, text, mr_addr_format_ip(&a->addr, text, sizeof text));
    return 1;
}

static void on_answer(void *arg, const struct mr_lookup_answer *a)
{
    mr__wait_end(mr__errand_end(arg), push_answer, (void *)(uintptr_t)a);
}

int mr__module_family(lua_State *L, int index, const char *function, int preset)
{
    double v = lua_type(L, index) == LUA_TNUMBER ? lua_tonumber(L, index) : 0;

    if (lua_isnoneornil(L, index)) {
        return preset;
    }
    if (v != 4 && v != 6) {
        mr__argument_error(L, function, "family", index, "4 or 6 is expected");
    }
    return (int)v;
}

/* Names come from players and files, so that a bad one is no mistake of the script's. */
bool mr__module_check_host(lua_State *L, struct str host)
{
    if (host.n < 1 || host.n > MR_LOOKUP_HOST_MAX || memchr(host.s, '\0', host.n)) {
        mr__module_fail(L, "no host: 1 to 255 bytes without a NUL are expected", "not-found");
        return false;
    }
    return true;
}

static int on_resolve(lua_State *L)
{
    struct policy *p = mr__module_policy(L);
    const struct script_host *host = &p->generation->opts.host;
    struct str name = mr__argument_text(L, 1, "relay.resolve", "host");
    int family = mr__module_family(L, 2, "relay.resolve", 0);
    unsigned flags = mr__run_is_lookup(L) ? MR_LOOKUP_BUILT_IN : 0;
    struct errand *e;

    if (!mr__module_check_host(L, name)) {
        return 3;
    }
    if (!host->lookup) {
        return mr__module_fail(L, "not available", "unavailable");
    }
    e = mr__errand_begin(L, host, "relay.resolve");
    return mr__errand_go(
        L, e, host->lookup(host->user, name, family, MR_LOOKUP_RESOLVE, flags, on_answer, e));
}

void mr__module_open_lookup(lua_State *L, struct policy *p)
{
    static const luaL_Reg functions[] = {{"resolve", on_resolve}, {NULL, NULL}};

    mr__module_add(L, functions, p);
}
