/* SPDX-License-Identifier: MIT */
/*
 * What a lookup returned: an address, an error for whoever asked, or no opinion. Control
 * thread only. Start reading at mr__answer_read_address().
 *
 *     "10.4.4.4", { ip = "10.4.4.4" }     the address
 *     nil, err[, code]                    an error; code "refused" when there is none
 *     false[, reason]                     likewise, the reason is its code
 *     nil                                 next
 */
#include "script/answer.h"

#include "script/state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    SHOWN_MAX = 64, /* of a text that is no address: the longest one that is has 56 bytes */
    TEXT_NUMBER_MAX = 32,
};

struct reader {
    lua_State *L;
    struct answer *out;
    char *why;
};

__attribute__((format(printf, 2, 3))) static int complain(struct reader *r, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(r->why, ANSWER_WHY_MAX, format, args);
    va_end(args);
    return -EINVAL;
}

/* ---- an address ------------------------------------------------------------------------------ */

static const char *family_name(int family)
{
    return family == 4 ? "IPv4" : "IPv6";
}

/* The text is the value at the top; ::ffff:1.2.3.4 is an IPv4 address here as everywhere. */
static int read_address(struct reader *r, int family)
{
    char shown[SHOWN_MAX];
    struct mr_addr a;
    size_t n;
    const char *s = lua_tolstring(r->L, -1, &n);

    mr__state_line(shown, sizeof shown, s, n);
    if (mr_addr_parse_ip(&a, s, n, NULL) != MR_ADDR_OK) {
        return complain(r, "returned '%s' (an address without a port is expected)", shown);
    }
    if (family != 0 && a.family != family) {
        return complain(r, "returned '%s' (an %s address was asked for)", shown,
                        family_name(family));
    }
    r->out->outcome = MR_HOOK_ADMIT;
    r->out->address = a;
    return 0;
}

/* The table at the top is one of those that events and objects have for an address. */
static int read_address_table(struct reader *r, int family)
{
    if (lua_getmetatable(r->L, -1)) {
        lua_pop(r->L, 1);
        return complain(r, "returned a table with a metatable (a plain one with ip is expected)");
    }
    lua_pushliteral(r->L, "ip");
    lua_rawget(r->L, -2);
    if (lua_type(r->L, -1) == LUA_TSTRING) {
        return read_address(r, family);
    }
    return complain(r, "returned a table without ip (an address is expected)");
}

/* ---- an error -------------------------------------------------------------------------------- */

/* The value at index as text, or NULL when it is none: a number stays one there. */
static const char *text_at(struct reader *r, int index, char number[TEXT_NUMBER_MAX], size_t *n)
{
    switch (lua_type(r->L, index)) {
    case LUA_TSTRING:
        return lua_tolstring(r->L, index, n);
    case LUA_TNUMBER:
        *n = (size_t)snprintf(number, TEXT_NUMBER_MAX, "%.14g", lua_tonumber(r->L, index));
        return number;
    default:
        return NULL;
    }
}

static int type_at(struct reader *r, int base, int n, int i)
{
    return i < n ? lua_type(r->L, base + i) : LUA_TNIL;
}

static void set_code(struct reader *r, const char *code, size_t n)
{
    mr__answer_clean_reason(r->out->reason, code, n < MR_LOOKUP_CODE_MAX ? n : MR_LOOKUP_CODE_MAX);
}

/* nil, err[, code] */
static int read_error(struct reader *r, int index, int n, const char *policy)
{
    static const char refused[] = "refused";
    char number[TEXT_NUMBER_MAX];
    size_t len;
    const char *text = text_at(r, index + 1, number, &len);

    if (!text) {
        return complain(r, "returned nil and a %s (an error as text is expected)",
                        lua_typename(r->L, lua_type(r->L, index + 1)));
    }
    r->out->outcome = MR_HOOK_REFUSE;
    if (len > 0) {
        mr__state_line(r->out->message, sizeof r->out->message, text, len);
    } else {
        snprintf(r->out->message, sizeof r->out->message, "refused by policy %s", policy);
    }
    if (type_at(r, index, n, 2) == LUA_TNIL) {
        set_code(r, refused, sizeof refused - 1);
        return 0;
    }
    text = text_at(r, index + 2, number, &len);
    if (!text) {
        return complain(r, "returned nil, an error and a %s (a word is expected)",
                        lua_typename(r->L, lua_type(r->L, index + 2)));
    }
    set_code(r, text, len);
    return 0;
}

/* false[, reason], as other hooks refuse */
static int read_refusal(struct reader *r, int index, int n, const char *policy)
{
    char number[TEXT_NUMBER_MAX];
    size_t len = strlen(policy);
    const char *reason = policy;

    if (type_at(r, index, n, 1) != LUA_TNIL) {
        reason = text_at(r, index + 1, number, &len);
    }
    if (!reason) {
        return complain(r, "returned false and a %s (a reason as text is expected)",
                        lua_typename(r->L, lua_type(r->L, index + 1)));
    }
    r->out->outcome = MR_HOOK_REFUSE;
    set_code(r, reason, len);
    snprintf(r->out->message, sizeof r->out->message, "refused by policy %s: %s", policy,
             r->out->reason);
    return 0;
}

static int read_result(struct reader *r, int index, int n, int family, const char *policy)
{
    int type = type_at(r, index, n, 0);

    switch (type) {
    case LUA_TNIL:
        return type_at(r, index, n, 1) == LUA_TNIL ? 0 : read_error(r, index, n, policy);
    case LUA_TBOOLEAN:
        if (!lua_toboolean(r->L, index)) {
            return read_refusal(r, index, n, policy);
        }
        return complain(r, "returned true (nil is no opinion, or an address is expected)");
    case LUA_TSTRING:
        lua_pushvalue(r->L, index);
        return read_address(r, family);
    case LUA_TTABLE:
        lua_pushvalue(r->L, index);
        return read_address_table(r, family);
    default:
        return complain(r,
                        "returned a %s (an address as text, nil, or nil and an error are "
                        "expected)",
                        lua_typename(r->L, type));
    }
}

int mr__answer_read_address(lua_State *L, int index, int n, int family, const char *policy,
                            struct answer *out, char why[ANSWER_WHY_MAX])
{
    struct reader r = {.L = L, .out = out, .why = why};
    int top = lua_gettop(L), rc;

    mr__answer_clear(out);
    rc = read_result(&r, index, n, family, policy);
    lua_settop(L, top);
    return rc;
}
