/* SPDX-License-Identifier: MIT */
/*
 * relay.metric: counters and gauges of a policy (tally.h). Control thread only. As with
 * stores, an object knows what it is and is opened at its first use, so that a file that
 * is only checked, or refused, leaves no metric behind.
 */
#include "script/argument.h"
#include "script/generation.h"
#include "script/module_part.h"
#include "script/tally.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const char type_name[] = "relay.metric";

struct metric {
    struct policy *policy;
    struct tally *tally; /* NULL: not opened yet */
    enum metric_type kind;
    char name[TALLY_NAME_MAX + 1], help[TALLY_HELP_MAX + 1];
};

static struct tally_declaration declaration(const struct metric *m)
{
    return (struct tally_declaration){
        .policy = m->policy->name, .name = m->name, .help = m->help, .kind = m->kind};
}

static void check_name(lua_State *L, struct metric *m)
{
    struct str name = mr__argument_text(L, 1, "relay.metric", "name");

    if (name.n < 1 || name.n > TALLY_NAME_MAX || name.s[0] < 'a' || name.s[0] > 'z' ||
        strspn(name.s, "abcdefghijklmnopqrstuvwxyz0123456789_") != name.n) {
        mr__argument_error(L, "relay.metric", "name", 1,
                           "1 to 48 of a-z 0-9 _, a letter first, are expected");
    }
    memcpy(m->name, name.s, name.n);
}

static void check_kind(lua_State *L, struct metric *m)
{
    struct str kind = mr__argument_text(L, 2, "relay.metric", "kind");

    if (kind.n == 7 && memcmp(kind.s, "counter", 7) == 0) {
        m->kind = MR_METRIC_COUNTER;
    } else if (kind.n == 5 && memcmp(kind.s, "gauge", 5) == 0) {
        m->kind = MR_METRIC_GAUGE;
    } else {
        mr__argument_error(L, "relay.metric", "kind", 2, "counter or gauge is expected");
    }
}

static void check_help(lua_State *L, struct metric *m)
{
    struct str help = mr__argument_bounded(L, 3, "relay.metric", "help", TALLY_HELP_MAX);

    /* The page is UTF-8, and this is written for people: plain text will do. */
    for (size_t i = 0; i < help.n; i++) {
        m->help[i] = help.s[i] < 0x20 || help.s[i] > 0x7e ? '?' : help.s[i];
    }
}

static int on_metric(lua_State *L)
{
    struct policy *p = mr__module_policy(L);
    struct metric m = {.policy = p}, *object;
    struct tally_declaration d;
    char why[TALLY_WHY_MAX];

    check_name(L, &m);
    check_kind(L, &m);
    check_help(L, &m);
    if (!p->generation->opts.tallies) {
        return luaL_error(L, "relay.metric: there is no relay here to count for");
    }
    d = declaration(&m);
    if (!mr__tally_check(p->generation->opts.tallies, &d, why)) {
        return luaL_error(L, "relay.metric: %s", why);
    }
    object = mr__module_new(L, type_name, sizeof *object);
    *object = m;
    return 1;
}

static struct metric *self(lua_State *L, const char *usage)
{
    struct metric *m = mr__argument_self(L, type_name, usage);
    struct tally_declaration d = declaration(m);
    char why[TALLY_WHY_MAX] = "not enough memory";

    if (!m->tally && mr__tally_open(m->policy->generation->opts.tallies, &d, &m->tally, why) != 0) {
        luaL_error(L, "relay.metric: %s", why);
    }
    return m;
}

static struct str check_label(lua_State *L, const char *function)
{
    struct str label = {NULL, 0};

    if (lua_isnoneornil(L, 3)) {
        return label;
    }
    if (lua_type(L, 3) != LUA_TSTRING && lua_type(L, 3) != LUA_TNUMBER) {
        mr__argument_error(L, function, "label", 3, "a text or number is expected");
    }
    label.s = lua_tolstring(L, 3, &label.n);
    return label;
}

static int on_add(lua_State *L)
{
    struct metric *m = self(L, "metric:add(n, label)");
    struct str label = check_label(L, "metric:add");
    double n = 1;

    if (!lua_isnoneornil(L, 2)) {
        n = m->kind == MR_METRIC_COUNTER
                ? mr__argument_number(L, 2, "metric:add", "n", 0, 1e300,
                                      "0 or more is expected, since it is a counter")
                : mr__argument_number(L, 2, "metric:add", "n", -1e300, 1e300,
                                      "a finite number is expected");
    }
    mr__tally_add(m->tally, label, n);
    return 0;
}

static int on_set(lua_State *L)
{
    struct metric *m = self(L, "metric:set(value, label)");
    struct str label = check_label(L, "metric:set");
    double value = mr__argument_number(L, 2, "metric:set", "value", -1e300, 1e300,
                                       "a finite number is expected");

    if (m->kind == MR_METRIC_COUNTER) {
        return luaL_error(L, "metric:set: %s is a counter (only add is expected)", m->name);
    }
    mr__tally_set(m->tally, label, value);
    return 0;
}

void mr__module_open_metric(lua_State *L, struct policy *p)
{
    static const luaL_Reg functions[] = {{"metric", on_metric}, {NULL, NULL}};
    static const luaL_Reg metric_methods[] = {{"add", on_add}, {"set", on_set}, {NULL, NULL}};

    mr__module_define(L, type_name, metric_methods, NULL);
    mr__module_add(L, functions, p);
}
