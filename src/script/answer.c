/* SPDX-License-Identifier: MIT */
/*
 * Reads what a hook returned; merge.c makes one answer of a chain. Control thread only.
 * Start reading at mr__answer_read(). To add a key to a spec: a reader function, a row
 * in the tables of keys, the merge in merge_spec() of merge.c, the row in lua/README.md.
 *
 * Everything a script returns is hostile: keys are a closed set, numbers must be finite
 * and in range, and a table with a metatable is no answer, because we read it raw and
 * would miss what its __index has. Only functions of the Lua API that never raise are
 * used, so nothing can be left half read.
 */
#include "script/answer.h"

#include "base/suggest.h"
#include "service/target.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Thirty years: above it a number is a slip (milliseconds, a date) and not a wish. */
static const double SECONDS_MAX = 1e9;
static const double MUTE_SECONDS_MAX = 86400;
static const double HOLD_MS_MAX = 60000;
static const double EXACT_MAX = 9007199254740992.0; /* 2^53, the last exact integer of a number */

struct reader {
    lua_State *L;
    struct answer *out;
    char *why;
};

/* Reads the value at the top of the stack, which path names. */
typedef int (*read_value)(struct reader *r, const char *path);

struct key {
    const char *name;
    read_value read;
};

/* ---- messages -------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static int complain(struct reader *r, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(r->why, ANSWER_WHY_MAX, format, args);
    va_end(args);
    return -EINVAL;
}

/* "returned ttl, -3 (seconds above 0 are expected)" */
static int complain_value(struct reader *r, const char *path, const char *expected)
{
    char shown[64];

    switch (lua_type(r->L, -1)) {
    case LUA_TNUMBER:
        snprintf(shown, sizeof shown, "%.14g", lua_tonumber(r->L, -1));
        break;
    case LUA_TBOOLEAN:
        snprintf(shown, sizeof shown, "%s", lua_toboolean(r->L, -1) ? "true" : "false");
        break;
    default:
        snprintf(shown, sizeof shown, "a %s", lua_typename(r->L, lua_type(r->L, -1)));
        break;
    }
    return complain(r, "returned %s, %s (%s)", path, shown, expected);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int read_seconds(struct reader *r, const char *path, double max, uint64_t *ns)
{
    double v = lua_type(r->L, -1) == LUA_TNUMBER ? lua_tonumber(r->L, -1) : NAN;

    if (!(v > 0 && v <= max)) {
        char expected[64];

        snprintf(expected, sizeof expected, "seconds above 0 and up to %.0f are expected", max);
        return complain_value(r, path, expected);
    }
    *ns = (uint64_t)(v * 1e9);
    *ns += *ns == 0;
    return 0;
}

/* A fraction is cut off: a policy that divides a rate by three means no harm. */
static int read_number(struct reader *r, const char *path, double min, double max, uint64_t *out)
{
    double v = lua_type(r->L, -1) == LUA_TNUMBER ? lua_tonumber(r->L, -1) : NAN;

    if (!(v >= min && v <= max)) {
        char expected[64];

        snprintf(expected, sizeof expected, "a number from %.0f to %.0f is expected", min, max);
        return complain_value(r, path, expected);
    }
    *out = (uint64_t)v;
    return 0;
}

/* Whether all bytes are visible ASCII. */
static bool is_word(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] < 0x21 || s[i] > 0x7e) {
            return false;
        }
    }
    return true;
}

/* Compares with the length, because a Lua string may hold a NUL. */
static bool is_text(lua_State *L, int index, const char *text)
{
    size_t n;
    const char *s = lua_type(L, index) == LUA_TSTRING ? lua_tolstring(L, index, &n) : NULL;

    return s && n == strlen(text) && memcmp(s, text, n) == 0;
}

/* A plain table is at the top. */
static int check_table(struct reader *r, const char *path)
{
    if (lua_type(r->L, -1) != LUA_TTABLE) {
        return complain_value(r, path, "a table is expected");
    }
    if (lua_getmetatable(r->L, -1)) {
        lua_pop(r->L, 1);
        return complain(r, "returned %s, a table with a metatable (a plain one is expected)", path);
    }
    return 0;
}

static int complain_key(struct reader *r, const char *path, const struct key *keys)
{
    const char *names[16], *near;
    const char *dot = path[0] ? "." : "";
    size_t n = 0;

    if (lua_type(r->L, -2) != LUA_TSTRING) {
        return complain(r, "returned %s%sa key that is a %s", path, path[0] ? ", " : "",
                        lua_typename(r->L, lua_type(r->L, -2)));
    }
    for (; keys[n].name; n++) {
        names[n] = keys[n].name;
    }
    names[n] = NULL;
    size_t len;
    const char *key = lua_tolstring(r->L, -2, &len);
    near = mr__suggest_name(key, len, names);
    return complain(r, "returned the unknown key %s%s%.40s%s%s%s", path, dot, key,
                    near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* The table at the top has keys of this set only. */
static int read_keys(struct reader *r, const char *path, const struct key *keys)
{
    char inner[64];
    int rc = path[0] ? check_table(r, path) : 0;

    if (rc != 0) {
        return rc;
    }
    for (lua_pushnil(r->L); lua_next(r->L, -2) != 0; lua_pop(r->L, 1)) {
        const struct key *k = keys;

        while (k->name && !is_text(r->L, -2, k->name)) {
            k++;
        }
        if (!k->name) {
            return complain_key(r, path, keys);
        }
        snprintf(inner, sizeof inner, "%s%s%s", path, path[0] ? "." : "", k->name);
        if ((rc = k->read(r, inner)) != 0) {
            return rc;
        }
    }
    return 0;
}

static int read_oid(struct reader *r, const char *path)
{
    size_t n;

    if (lua_type(r->L, -1) != LUA_TSTRING) {
        return complain_value(r, path, "a string is expected");
    }
    r->out->oid.s = lua_tolstring(r->L, -1, &n);
    r->out->oid.n = n;
    if (n < 1 || n > MR_OID_MAX || !is_word(r->out->oid.s, n)) {
        return complain(r,
                        "returned an %s of %zu bytes (1 to 256 of visible ASCII, no spaces, are "
                        "expected)",
                        path, n);
    }
    return 0;
}

static int read_takeover(struct reader *r, const char *path)
{
    if (lua_type(r->L, -1) != LUA_TBOOLEAN) {
        return complain_value(r, path, "true or false is expected");
    }
    r->out->has_takeover = true;
    r->out->takeover = lua_toboolean(r->L, -1);
    return 0;
}

static int read_via(struct reader *r, const char *path)
{
    if (is_text(r->L, -1, "direct")) {
        r->out->via = MR_VIA_DIRECT;
    } else if (is_text(r->L, -1, "relay")) {
        r->out->via = MR_VIA_RELAY;
    } else {
        return complain_value(r, path, "direct or relay is expected");
    }
    return 0;
}

/* The key at -2 as a word of at most max bytes. */
static int read_map_key(struct reader *r, const char *path, size_t max, struct str *key)
{
    if (lua_type(r->L, -2) != LUA_TSTRING) {
        return complain(r, "returned %s with a key that is a %s (a string is expected)", path,
                        lua_typename(r->L, lua_type(r->L, -2)));
    }
    key->s = lua_tolstring(r->L, -2, &key->n);
    if (key->n < 1 || key->n > max || !is_word(key->s, key->n)) {
        return complain(r,
                        "returned %s with the key '%.40s' (1 to %zu bytes of visible ASCII are "
                        "expected)",
                        path, key->s, max);
    }
    return 0;
}

static int read_tag(struct reader *r, const char *path)
{
    struct answer *out = r->out;
    struct hook_pair *tag = &out->tags[out->n_tags];
    char inner[64];
    int rc = out->n_tags < MR_TAGS_MAX ? read_map_key(r, path, MR_KEY_MAX, &tag->key)
                                       : complain(r, "returned more than %d tags", MR_TAGS_MAX);

    if (rc != 0) {
        return rc;
    }
    snprintf(inner, sizeof inner, "%s.%.40s", path, tag->key.s);
    if (lua_type(r->L, -1) == LUA_TSTRING) {
        tag->value.s = lua_tolstring(r->L, -1, &tag->value.n);
    } else if (lua_type(r->L, -1) == LUA_TNUMBER && isfinite(lua_tonumber(r->L, -1))) {
        char *text = out->numbers[out->n_tags];

        tag->value.n =
            (size_t)snprintf(text, sizeof out->numbers[0], "%.14g", lua_tonumber(r->L, -1));
        tag->value.s = text;
    } else {
        return complain_value(r, inner, "a string or number is expected");
    }
    if (tag->value.n > MR_VALUE_MAX) {
        return complain(r, "returned %s, %zu bytes (at most %d are expected)", inner, tag->value.n,
                        MR_VALUE_MAX);
    }
    out->n_tags++;
    return 0;
}

static int read_slot(struct reader *r, const char *path)
{
    struct answer *out = r->out;
    struct hook_slot *slot = &out->slots[out->n_slots];
    double v = lua_type(r->L, -1) == LUA_TNUMBER ? lua_tonumber(r->L, -1) : NAN;
    char inner[64];
    int rc = out->n_slots < MR_SLOTS_MAX ? read_map_key(r, path, MR_SLOT_KEY_MAX, &slot->key)
                                         : complain(r, "returned more than %d slots", MR_SLOTS_MAX);

    if (rc != 0) {
        return rc;
    }
    if (!(v >= 0 && v <= UINT32_MAX && v == floor(v))) {
        snprintf(inner, sizeof inner, "%s.%.40s", path, slot->key.s);
        return complain_value(r, inner, "a whole number from 0 to 4294967295 is expected");
    }
    slot->max = (uint32_t)v;
    out->n_slots++;
    return 0;
}

static int read_map(struct reader *r, const char *path, read_value read)
{
    int rc = check_table(r, path);

    if (rc != 0) {
        return rc;
    }
    for (lua_pushnil(r->L); lua_next(r->L, -2) != 0; lua_pop(r->L, 1)) {
        if ((rc = read(r, path)) != 0) {
            return rc;
        }
    }
    return 0;
}

static int read_tags(struct reader *r, const char *path)
{
    return read_map(r, path, read_tag);
}

static int read_slots(struct reader *r, const char *path)
{
    return read_map(r, path, read_slot);
}

static int read_ttl(struct reader *r, const char *path)
{
    r->out->spec.has_ttl = true;
    return read_seconds(r, path, SECONDS_MAX, &r->out->spec.ttl_ns);
}

static int read_idle(struct reader *r, const char *path)
{
    r->out->spec.has_idle = true;
    return read_seconds(r, path, SECONDS_MAX, &r->out->spec.idle_ns);
}

static int read_mute(struct reader *r, const char *path)
{
    return read_seconds(r, path, MUTE_SECONDS_MAX, &r->out->mute_ns);
}

static int read_pps(struct reader *r, const char *path)
{
    r->out->spec.has_pps = true;
    return read_number(r, path, 1, EXACT_MAX, &r->out->spec.pps);
}

static int read_bps(struct reader *r, const char *path)
{
    r->out->spec.has_bps = true;
    return read_number(r, path, 1, EXACT_MAX, &r->out->spec.bps);
}

static int read_max_bytes(struct reader *r, const char *path)
{
    r->out->spec.has_max_bytes = true;
    return read_number(r, path, 1, EXACT_MAX, &r->out->spec.max_bytes);
}

static int read_rate(struct reader *r, const char *path)
{
    static const struct key keys[] = {{"pps", read_pps}, {"bps", read_bps}, {NULL, NULL}};

    return read_keys(r, path, keys);
}

/* Of what is held while `create` is asked; the service keeps to the HOLD settings as well. */
static int read_hold_packets(struct reader *r, const char *path)
{
    uint64_t packets = 0;
    int rc = read_number(r, path, 0, UINT32_MAX, &packets);

    r->out->spec.has_hold_packets = true;
    r->out->spec.hold_packets = (uint32_t)packets;
    return rc;
}

static int read_hold_bytes(struct reader *r, const char *path)
{
    r->out->spec.has_hold_bytes = true;
    return read_number(r, path, 0, EXACT_MAX, &r->out->spec.hold_bytes);
}

static int read_hold_ms(struct reader *r, const char *path)
{
    uint64_t ms = 0;
    int rc = read_number(r, path, 0, HOLD_MS_MAX, &ms);

    r->out->spec.has_hold_ns = true;
    r->out->spec.hold_ns = ms * 1000000;
    return rc;
}

static int read_hold(struct reader *r, const char *path)
{
    static const struct key keys[] = {{"packets", read_hold_packets},
                                      {"bytes", read_hold_bytes},
                                      {"ms", read_hold_ms},
                                      {NULL, NULL}};

    return read_keys(r, path, keys);
}

static int read_target(struct reader *r, const char *path)
{
    struct str text = {"", 0}, host;
    uint16_t port;

    if (lua_type(r->L, -1) != LUA_TSTRING) {
        return complain_value(r, path, "a text, host:port, is expected");
    }
    text.s = lua_tolstring(r->L, -1, &text.n);
    if (!mr__target_parse(text, &host, &port)) {
        return complain(r, "returned %s, '%.40s' (host:port or [IPv6]:port is expected)", path,
                        text.s);
    }
    memcpy(r->out->spec.target, text.s, text.n);
    r->out->spec.target[text.n] = '\0';
    return 0;
}

/* A relay is made for it by then: where it goes is for `drop` to say. */
static int refuse_target(struct reader *r, const char *path)
{
    return complain(r, "returned %s, which only drop may name", path);
}

/* ---- results --------------------------------------------------------------------------------- */

static const struct key register_keys[] = {{"oid", read_oid},
                                           {"takeover", read_takeover},
                                           {"tags", read_tags},
                                           {"slots", read_slots},
                                           {NULL, NULL}};
static const struct key connect_keys[] = {{"oid", read_oid}, {"via", read_via}, {NULL, NULL}};
static const struct key spec_keys[] = {
    {"ttl", read_ttl},   {"idle", read_idle},   {"rate", read_rate}, {"max_bytes", read_max_bytes},
    {"tags", read_tags}, {"slots", read_slots}, {"hold", read_hold}, {"target", read_target},
    {NULL, NULL}};
static const struct key create_keys[] = {
    {"ttl", read_ttl},   {"idle", read_idle},   {"rate", read_rate}, {"max_bytes", read_max_bytes},
    {"tags", read_tags}, {"slots", read_slots}, {"hold", read_hold}, {"target", refuse_target},
    {NULL, NULL}};
static const struct key refusal_keys[] = {{"mute", read_mute}, {NULL, NULL}};

static const struct key *keys_of(enum hook hook)
{
    switch (hook) {
    case MR_HOOK_REGISTER:
        return register_keys;
    case MR_HOOK_CONNECT:
        return connect_keys;
    case MR_HOOK_CREATE:
        return create_keys;
    default:
        return spec_keys;
    }
}

void mr__answer_clean_reason(char out[MR_REASON_MAX + 1], const char *text, size_t n)
{
    size_t len = n < MR_REASON_MAX ? n : MR_REASON_MAX;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        bool is_clean = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_';

        out[i] = is_clean ? c : '-';
    }
    if (len == 0) {
        out[len++] = '-';
    }
    out[len] = '\0';
}

static int read_reason(struct reader *r, const char *policy)
{
    const char *text = policy;
    size_t n = strlen(policy);
    char number[32];

    switch (lua_type(r->L, -1)) {
    case LUA_TNIL:
        break;
    case LUA_TNUMBER:
        n = (size_t)snprintf(number, sizeof number, "%.14g", lua_tonumber(r->L, -1));
        text = number;
        break;
    case LUA_TSTRING:
        if (lua_objlen(r->L, -1) > 0) {
            text = lua_tolstring(r->L, -1, &n);
        }
        break;
    default:
        return complain_value(r, "false and a reason", "a string is expected");
    }
    mr__answer_clean_reason(r->out->reason, text, n);
    return 0;
}

/* false, then the reason and what else at index + 1 and + 2 */
static int read_refusal(struct reader *r, int index, int n, enum hook hook, const char *policy)
{
    int rc;

    r->out->outcome = MR_HOOK_REFUSE;
    if (n > 1) {
        lua_pushvalue(r->L, index + 1);
    } else {
        lua_pushnil(r->L);
    }
    rc = read_reason(r, policy);
    lua_pop(r->L, 1);
    if (rc != 0 || n < 3 || lua_isnil(r->L, index + 2)) {
        return rc;
    }
    if (hook != MR_HOOK_DROP) {
        return complain(r, "returned a third value (only drop has one: { mute = seconds })");
    }
    lua_pushvalue(r->L, index + 2);
    rc = check_table(r, "a third value");
    return rc != 0 ? rc : read_keys(r, "", refusal_keys);
}

static int read_result(struct reader *r, int index, int n, enum hook hook, const char *policy)
{
    switch (n > 0 ? lua_type(r->L, index) : LUA_TNIL) {
    case LUA_TNIL:
        return 0;
    case LUA_TBOOLEAN:
        if (!lua_toboolean(r->L, index)) {
            return read_refusal(r, index, n, hook, policy);
        }
        if (hook == MR_HOOK_DROP) {
            return complain(r,
                            "returned true: a datagram is admitted by a spec, {} for the defaults");
        }
        return hook == MR_HOOK_CREATE
                   ? 0
                   : complain(r, "returned true (nil is no opinion, or a table is expected)");
    case LUA_TTABLE:
        lua_pushvalue(r->L, index);
        r->out->outcome = MR_HOOK_ADMIT;
        if (check_table(r, "its answer") != 0) {
            return -EINVAL;
        }
        return read_keys(r, "", keys_of(hook));
    default:
        return complain(r, "returned a %s (nil, false and a reason, or a table are expected)",
                        lua_typename(r->L, lua_type(r->L, index)));
    }
}

void mr__answer_clear(struct answer *out)
{
    out->outcome = MR_HOOK_NO_OPINION;
    out->mute_ns = 0;
    out->oid = (struct str){0};
    out->has_takeover = out->takeover = false;
    out->via = MR_VIA_NONE;
    out->n_tags = out->n_slots = 0;
    out->spec = (struct hook_spec){0};
    out->address = (struct mr_addr){.family = 0};
    out->message[0] = '\0';
}

int mr__answer_read(lua_State *L, int index, int n, enum hook hook, const char *policy,
                    struct answer *out, char why[ANSWER_WHY_MAX])
{
    struct reader r = {.L = L, .out = out, .why = why};
    int top = lua_gettop(L), rc;

    mr__answer_clear(out);
    rc = read_result(&r, index, n, hook, policy);
    lua_settop(L, top);
    return rc;
}

int mr__answer_read_spec(lua_State *L, int index, struct answer *out, char why[ANSWER_WHY_MAX])
{
    static const char verb[] = "returned ";
    struct reader r = {.L = L, .out = out, .why = why};
    int top = lua_gettop(L), rc;

    mr__answer_clear(out);
    lua_pushvalue(L, index);
    rc = check_table(&r, "a spec");
    rc = rc != 0 ? rc : read_keys(&r, "", spec_keys);
    lua_settop(L, top);
    if (rc != 0 && strncmp(why, verb, strlen(verb)) == 0) {
        memmove(why, why + strlen(verb), strlen(why + strlen(verb)) + 1);
    }
    return rc;
}
