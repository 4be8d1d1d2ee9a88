/* SPDX-License-Identifier: MIT */
/*
 * relay.block and its kin (service/blocks.h). Control thread only. What matches ends when
 * the service's turn is over, so that a policy may block the player it is asked about. A
 * list that is set in `load` waits for the swap (generation.c).
 */
#include "script/argument.h"
#include "script/generation.h"
#include "script/json.h"
#include "script/module_part.h"
#include "script/state.h"
#include "service/blocks.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { ENTRIES_PER_LOOK = 32 /* at the clock: about 100 us */ };

struct what {
    struct block_what block;
    struct hook_pair pairs[MR_TAGS_MAX];
    struct argument_tags tags;
};

/* An address of an event has its own texts; read as tags it would block nobody. */
static void refuse_address(lua_State *L, const char *function)
{
    mr__argument_field(L, 1, "ip");
    mr__argument_field(L, 1, "net");
    if (!lua_isnil(L, -1) && !lua_isnil(L, -2)) {
        luaL_error(L,
                   "%s: what is an address or session (write its .ip or .net, or its .addr.text)",
                   function);
    }
    lua_pop(L, 2);
}

/* At 1: an address, a net, "ip:port" or tags. */
static void check_what(lua_State *L, const char *function, struct what *what)
{
    char why[MR_CIDR_WHY_MAX];
    struct str text;

    what->block = (struct block_what){.kind = MR_BLOCK_TAGS};
    if (lua_istable(L, 1)) {
        refuse_address(L, function);
        what->block.tags = mr__argument_tags(L, 1, function, "what", &what->tags);
        if (what->block.tags.n == 0) {
            luaL_error(L, "%s: what is a table without tags (it would be everybody)", function);
        }
        return;
    }
    if (lua_type(L, 1) != LUA_TSTRING) {
        mr__argument_error(L, function, "what", 1,
                           "an address, a net, ip:port or a table of tags is expected");
    }
    text.s = lua_tolstring(L, 1, &text.n);
    if (!mr__block_parse(&what->block, text.s, text.n, what->pairs, why)) {
        luaL_error(L, "%s: what is wrong: %s", function, why);
    }
}

static struct str policy_name(const struct policy *p)
{
    return (struct str){p->name, strlen(p->name)};
}

/* The number of what ended, or why nothing did. */
static int ended(lua_State *L, int rc, unsigned n, const char *function)
{
    if (rc == -ENOSPC) {
        return mr__module_fail(L, "there are 100000 blocks already", "full");
    }
    if (rc != 0) {
        return luaL_error(L, "%s: not enough memory", function);
    }
    lua_pushnumber(L, n);
    return 1;
}

static int on_block(lua_State *L)
{
    struct policy *p = mr__module_policy(L);
    struct service *service = mr__module_acting(L, p, "relay.block");
    struct what what;
    struct str reason;
    double seconds;
    unsigned n = 0;
    int rc;

    check_what(L, "relay.block", &what);
    seconds = mr__argument_number(L, 2, "relay.block", "seconds", 1e-9, HUGE_VAL,
                                  "a number above 0 is expected");
    reason = mr__module_reason(L, 3, p, "relay.block");
    rc = mr__blocks_add(service, &what.block, seconds, reason, policy_name(p), &n);
    return ended(L, rc, n, "relay.block");
}

static int on_unblock(lua_State *L)
{
    struct service *service = mr__module_acting(L, mr__module_policy(L), "relay.unblock");
    struct what what;

    check_what(L, "relay.unblock", &what);
    lua_pushnumber(L, mr__blocks_remove(service, &what.block));
    return 1;
}

static int on_blocklist(lua_State *L)
{
    struct policy *p = mr__module_policy(L);
    struct cidr *nets = mr__module_nets(L, 1);
    struct str reason = mr__module_reason(L, 2, p, "relay.blocklist");
    unsigned n = 0;
    int rc;

    mr__module_service(L, p, "relay.blocklist");
    if (!nets) { /* nil, too: it is what a list that could not be read would be */
        return mr__argument_error(L, "relay.blocklist", "nets", 1,
                                  "what relay.cidr() gives is expected");
    }
    rc = mr__policy_set_blocklist(p, nets, reason, &n);
    return ended(L, rc, n, "relay.blocklist");
}

/* ---- listing --------------------------------------------------------------------------------- */

struct listing {
    lua_State *L;
    int n;
};

static void set_text(lua_State *L, const char *key, struct str s)
{
    lua_pushlstring(L, s.n > 0 ? s.s : "", s.n);
    lua_setfield(L, -2, key);
}

/* {what, seconds, reason, by}, without seconds for ever; a list has {nets, reason, by}. */
static bool on_each(void *user, const struct block_view *b)
{
    struct listing *l = user;
    lua_State *L = l->L;

    lua_createtable(L, 0, 4);
    if (b->is_list) {
        lua_pushnumber(L, (double)b->nets);
        lua_setfield(L, -2, "nets");
    } else {
        char text[MR_BLOCK_TEXT_MAX];

        set_text(L, "what", (struct str){text, mr__block_format(&b->what, text, sizeof text)});
        if (isfinite(b->seconds_left)) { /* JSON has no infinity, and lists are printed */
            lua_pushnumber(L, b->seconds_left);
            lua_setfield(L, -2, "seconds");
        }
    }
    set_text(L, "reason", b->reason);
    set_text(L, "by", b->by);
    lua_rawseti(L, -2, ++l->n);
    if (l->n % ENTRIES_PER_LOOK == 0) {
        mr__state_charge(L);
    }
    return true;
}

static int on_blocks(lua_State *L)
{
    struct service *service = mr__module_service(L, mr__module_policy(L), "relay.blocks");
    struct listing l = {L, 0};

    lua_newtable(L);
    mr__blocks_each(service, on_each, &l);
    if (l.n == 0) {
        mr__json_mark_array(L, -1); /* [] and not {} as JSON */
    }
    return 1;
}

void mr__module_open_blocks(lua_State *L, struct policy *p)
{
    static const luaL_Reg functions[] = {{"block", on_block},
                                         {"unblock", on_unblock},
                                         {"blocks", on_blocks},
                                         {"blocklist", on_blocklist},
                                         {NULL, NULL}};

    mr__module_add(L, functions, p);
}
