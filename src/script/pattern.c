/* SPDX-License-Identifier: MIT */
/*
 * A backtracking matcher for Lua's patterns. Control thread only. Start reading at
 * match() and the four functions at the end.
 *
 * LuaJIT's own is C that no count hook interrupts, and `^(.-)%.(.-)%.(.+)=$` takes 1.5 s
 * there on 1,024 bytes that a player sent. Ours looks at the clock every STEPS steps. It
 * follows the semantics of Lua 5.1's lstrlib.c (MIT, PUC-Rio), which the manual describes
 * ("5.4.1 - Patterns"); a test and a fuzz target compare it with LuaJIT's.
 */
#include "script/pattern.h"

#include "script/state.h"

#include <ctype.h>
#include <lauxlib.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum {
    STEPS = 1024,       /* between two looks at the clock: about 5 us */
    CAPTURES_MAX = 32,  /* Lua's */
    DEPTH_MAX = 200,    /* of recursion, LuaJIT's; 100 bytes of C stack each */
    COMPARE_BYTES = 32, /* that memcmp does in the time of a step */
    CAPTURE_UNFINISHED = -1,
    CAPTURE_POSITION = -2,
    ESCAPE = '%',
};

struct matcher {
    lua_State *L;
    const char *s, *s_end; /* the subject */
    const char *p_end;     /* of the pattern */
    unsigned steps;
    int depth, level;
    struct {
        const char *at;
        ptrdiff_t n; /* or CAPTURE_* */
    } captures[CAPTURES_MAX];
};

static const char *match(struct matcher *m, const char *s, const char *p);

static void count_steps(struct matcher *m, size_t n)
{
    if (n >= STEPS - m->steps) {
        m->steps = 0;
        mr__state_charge(m->L);
    } else {
        m->steps += (unsigned)n;
    }
}

/* ---- single characters ----------------------------------------------------------------------- */

static bool is_in_class(unsigned char c, unsigned char class)
{
    bool is_in;

    switch (tolower(class)) {
    case 'a':
        is_in = isalpha(c);
        break;
    case 'c':
        is_in = iscntrl(c);
        break;
    case 'd':
        is_in = isdigit(c);
        break;
    case 'g':
        is_in = isgraph(c);
        break;
    case 'l':
        is_in = islower(c);
        break;
    case 'p':
        is_in = ispunct(c);
        break;
    case 's':
        is_in = isspace(c);
        break;
    case 'u':
        is_in = isupper(c);
        break;
    case 'w':
        is_in = isalnum(c);
        break;
    case 'x':
        is_in = isxdigit(c);
        break;
    case 'z':
        is_in = c == 0;
        break;
    default:
        return class == c;
    }
    return isupper(class) ? !is_in : is_in;
}

/* Behind the single-character item that begins at p: "a", "%a", "[...]". */
static const char *item_end(struct matcher *m, const char *p)
{
    if (p == m->p_end) {
        luaL_error(m->L, "malformed pattern (ends with '%%')");
    }
    char c = *p++;
    if (c == ESCAPE) {
        if (p == m->p_end) {
            luaL_error(m->L, "malformed pattern (ends with '%%')");
        }
        return p + 1;
    }
    if (c != '[') {
        return p;
    }
    if (p < m->p_end && *p == '^') {
        p++;
    }
    do { /* a "]" in the first place is a character of the set */
        if (p == m->p_end) {
            luaL_error(m->L, "malformed pattern (missing ']')");
        }
        c = *p++;
        if (c == ESCAPE && p < m->p_end) {
            p++;
        }
    } while (p == m->p_end || *p != ']');
    return p + 1;
}

/* p is at "[", end at its "]". */
static bool is_in_set(unsigned char c, const char *p, const char *end)
{
    bool is_positive = true;

    if (p[1] == '^') {
        is_positive = false;
        p++;
    }
    while (++p < end) {
        if (*p == ESCAPE) {
            p++;
            if (is_in_class(c, (unsigned char)*p)) {
                return is_positive;
            }
        } else if (p[1] == '-' && p + 2 < end) {
            if ((unsigned char)p[0] <= c && c <= (unsigned char)p[2]) {
                return is_positive;
            }
            p += 2;
        } else if ((unsigned char)*p == c) {
            return is_positive;
        }
    }
    return !is_positive;
}

/* Does the character at s fit the item p..end? */
static bool fits(struct matcher *m, const char *s, const char *p, const char *end)
{
    count_steps(m, 1);
    if (s >= m->s_end) {
        return false;
    }
    switch (*p) {
    case '.':
        return true;
    case ESCAPE:
        return is_in_class((unsigned char)*s, (unsigned char)p[1]);
    case '[':
        count_steps(m, (size_t)(end - p) / 8);
        return is_in_set((unsigned char)*s, p, end - 1);
    default:
        return *p == *s;
    }
}

/* ---- repetitions and captures ---------------------------------------------------------------- */

/* "%bxy" at p - 2 */
static const char *match_balance(struct matcher *m, const char *s, const char *p)
{
    int depth = 1;

    if (m->p_end - p < 2) {
        luaL_error(m->L, "unbalanced pattern");
    }
    if (s >= m->s_end || *s != p[0]) {
        return NULL;
    }
    while (++s < m->s_end) {
        count_steps(m, 1);
        if (*s == p[1]) {
            if (--depth == 0) {
                return s + 1;
            }
        } else if (*s == p[0]) {
            depth++;
        }
    }
    return NULL;
}

static const char *expand_most(struct matcher *m, const char *s, const char *p, const char *end)
{
    ptrdiff_t n = 0;

    while (fits(m, s + n, p, end)) {
        n++;
    }
    for (; n >= 0; n--) {
        const char *found = match(m, s + n, end + 1);

        if (found) {
            return found;
        }
    }
    return NULL;
}

static const char *expand_least(struct matcher *m, const char *s, const char *p, const char *end)
{
    for (;;) {
        const char *found = match(m, s, end + 1);

        if (found) {
            return found;
        }
        if (!fits(m, s, p, end)) {
            return NULL;
        }
        s++;
    }
}

static const char *start_capture(struct matcher *m, const char *s, const char *p, ptrdiff_t what)
{
    const char *found;

    if (m->level == CAPTURES_MAX) {
        luaL_error(m->L, "too many captures");
    }
    m->captures[m->level].at = s;
    m->captures[m->level].n = what;
    m->level++;
    found = match(m, s, p);
    if (!found) {
        m->level--;
    }
    return found;
}

static const char *end_capture(struct matcher *m, const char *s, const char *p)
{
    int level = m->level - 1;
    const char *found;

    while (level >= 0 && m->captures[level].n != CAPTURE_UNFINISHED) {
        level--;
    }
    if (level < 0) {
        luaL_error(m->L, "invalid pattern capture");
    }
    m->captures[level].n = s - m->captures[level].at;
    found = match(m, s, p);
    if (!found) {
        m->captures[level].n = CAPTURE_UNFINISHED;
    }
    return found;
}

/* "%1" */
static const char *match_capture(struct matcher *m, const char *s, char digit)
{
    int level = digit - '1';

    if (level < 0 || level >= m->level || m->captures[level].n == CAPTURE_UNFINISHED) {
        luaL_error(m->L, "invalid capture index");
    }
    /* A position capture has no text: LuaJIT compares the length -2 as huge, so it never fits. */
    size_t n = (size_t)m->captures[level].n;
    if (m->captures[level].n < 0 || (size_t)(m->s_end - s) < n) {
        return NULL;
    }
    count_steps(m, n / COMPARE_BYTES);
    return memcmp(m->captures[level].at, s, n) == 0 ? s + n : NULL;
}

/* "%f[set]" with p at "[" */
static bool is_frontier(struct matcher *m, const char *s, const char *p, const char *end)
{
    unsigned char before = s == m->s ? '\0' : (unsigned char)s[-1];
    unsigned char here = s == m->s_end ? '\0' : (unsigned char)*s;

    count_steps(m, (size_t)(end - p) / 8 + 1);
    return !is_in_set(before, p, end - 1) && is_in_set(here, p, end - 1);
}

/* ---- the match ------------------------------------------------------------------------------- */

/* A single-character item and what repeats it. *s and *p move on; false: *s is the result. */
static bool match_item(struct matcher *m, const char **s, const char **p)
{
    const char *end = item_end(m, *p);

    switch (end < m->p_end ? *end : '\0') {
    case '?': {
        const char *found = fits(m, *s, *p, end) ? match(m, *s + 1, end + 1) : NULL;

        if (found) {
            *s = found;
            return false;
        }
        *p = end + 1;
        return true;
    }
    case '*':
        *s = expand_most(m, *s, *p, end);
        return false;
    case '+':
        *s = fits(m, *s, *p, end) ? expand_most(m, *s + 1, *p, end) : NULL;
        return false;
    case '-':
        *s = expand_least(m, *s, *p, end);
        return false;
    default:
        if (!fits(m, *s, *p, end)) {
            *s = NULL;
            return false;
        }
        ++*s;
        *p = end;
        return true;
    }
}

/* "%b", "%f" and "%1", the escapes that are no single characters. 1: moved on, 0: *s is the
 * result, -1: it is none of them. */
static int match_escape(struct matcher *m, const char **s, const char **p)
{
    const char *at = *p + 1;

    if (at < m->p_end && *at == 'b') {
        *s = match_balance(m, *s, at + 1);
        *p = at + 3;
        return *s != NULL;
    }
    if (at < m->p_end && *at == 'f') {
        const char *set = at + 1, *end;

        if (set == m->p_end || *set != '[') {
            luaL_error(m->L, "missing '[' after '%%f' in pattern");
        }
        end = item_end(m, set);
        *p = end;
        if (!is_frontier(m, *s, set, end)) {
            *s = NULL;
        }
        return *s != NULL;
    }
    if (at < m->p_end && isdigit((unsigned char)*at)) {
        *s = match_capture(m, *s, *at);
        *p = at + 1;
        return *s != NULL;
    }
    return -1;
}

/* The end of the match of p..p_end at s, or NULL. Recursion only where there may be a way back. */
static const char *match(struct matcher *m, const char *s, const char *p)
{
    if (++m->depth > DEPTH_MAX) {
        luaL_error(m->L, "pattern too complex");
    }
    for (bool goes_on = true; goes_on && p < m->p_end;) {
        int escaped = *p == ESCAPE ? match_escape(m, &s, &p) : -1;

        count_steps(m, 1);
        if (escaped >= 0) {
            goes_on = escaped;
        } else if (*p == '(') {
            bool is_position = p + 1 < m->p_end && p[1] == ')';

            s = is_position ? start_capture(m, s, p + 2, CAPTURE_POSITION)
                            : start_capture(m, s, p + 1, CAPTURE_UNFINISHED);
            goes_on = false;
        } else if (*p == ')') {
            s = end_capture(m, s, p + 1);
            goes_on = false;
        } else if (*p == '$' && p + 1 == m->p_end) {
            s = s == m->s_end ? s : NULL;
            goes_on = false;
        } else {
            goes_on = match_item(m, &s, &p);
        }
    }
    m->depth--;
    return s;
}

static void begin(struct matcher *m, lua_State *L, const char *s, size_t n, const char *p_end)
{
    m->L = L;
    m->s = s;
    m->s_end = s + n;
    m->p_end = p_end;
    m->steps = 0;
    m->depth = m->level = 0;
}

static const char *try_at(struct matcher *m, const char *s, const char *p)
{
    m->level = 0;
    m->depth = 0;
    return match(m, s, p);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Pushes capture i; capture 0 of a pattern without any is the whole match s..e. */
static void push_capture(struct matcher *m, int i, const char *s, const char *e)
{
    if (i >= m->level) {
        if (i != 0) {
            luaL_error(m->L, "invalid capture index");
        }
        lua_pushlstring(m->L, s, (size_t)(e - s));
    } else if (m->captures[i].n == CAPTURE_UNFINISHED) {
        luaL_error(m->L, "unfinished capture");
    } else if (m->captures[i].n == CAPTURE_POSITION) {
        lua_pushinteger(m->L, m->captures[i].at - m->s + 1);
    } else {
        lua_pushlstring(m->L, m->captures[i].at, (size_t)m->captures[i].n);
    }
}

/* s NULL: without the whole match. */
static int push_captures(struct matcher *m, const char *s, const char *e)
{
    int n = m->level == 0 && s ? 1 : m->level;

    luaL_checkstack(m->L, n, "too many captures");
    for (int i = 0; i < n; i++) {
        push_capture(m, i, s, e);
    }
    return n;
}

/* ---- find and match -------------------------------------------------------------------------- */

static const char *find_plain(struct matcher *m, const char *s, const char *p, size_t n)
{
    if (n == 0) {
        return s;
    }
    while ((size_t)(m->s_end - s) >= n) {
        const char *first = memchr(s, *p, (size_t)(m->s_end - s) - n + 1);

        if (!first) {
            return NULL;
        }
        count_steps(m, (size_t)(first - s) / COMPARE_BYTES + n / COMPARE_BYTES + 1);
        if (memcmp(first, p, n) == 0) {
            return first;
        }
        s = first + 1;
    }
    return NULL;
}

static bool has_specials(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != '\0' && strchr("^$*+?.([%-", p[i])) {
            return true;
        }
    }
    return false;
}

/* Argument 3: where to start, as an offset 0..n. A double, so that math.huge is large. */
static size_t start_offset(lua_State *L, size_t n)
{
    double init = luaL_optnumber(L, 3, 1);

    if (init < 0) {
        init += (double)n + 1;
    }
    if (!(init >= 1)) {
        return 0;
    }
    return init <= (double)n ? (size_t)init - 1 : n;
}

static int find_or_match(lua_State *L, bool is_find)
{
    size_t n, np;
    const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checklstring(L, 2, &np);
    const char *at = s + start_offset(L, n), *p_end = p + np;
    bool is_anchored = np > 0 && *p == '^';
    struct matcher m;

    begin(&m, L, s, n, p_end);
    if (is_find && (lua_toboolean(L, 4) || !has_specials(p, np))) {
        const char *found = find_plain(&m, at, p, np);

        if (!found) {
            lua_pushnil(L);
            return 1;
        }
        lua_pushinteger(L, found - s + 1);
        lua_pushinteger(L, found - s + (ptrdiff_t)np);
        return 2;
    }
    for (p += is_anchored;; at++) {
        const char *e = try_at(&m, at, p);

        if (e && is_find) {
            lua_pushinteger(L, at - s + 1);
            lua_pushinteger(L, e - s);
            return push_captures(&m, NULL, NULL) + 2;
        }
        if (e) {
            return push_captures(&m, at, e);
        }
        if (is_anchored || at >= m.s_end) {
            lua_pushnil(L);
            return 1;
        }
    }
}

static int on_find(lua_State *L)
{
    return find_or_match(L, true);
}

static int on_match(lua_State *L)
{
    return find_or_match(L, false);
}

/* ---- gmatch ---------------------------------------------------------------------------------- */

/* upvalues: subject, pattern, offset of the next try */
static int on_gmatch_next(lua_State *L)
{
    size_t n, np;
    const char *s = lua_tolstring(L, lua_upvalueindex(1), &n);
    const char *p = lua_tolstring(L, lua_upvalueindex(2), &np);
    const char *at = s + (size_t)lua_tonumber(L, lua_upvalueindex(3));
    struct matcher m;

    begin(&m, L, s, n, p + np);
    for (; at <= m.s_end; at++) {
        const char *e = try_at(&m, at, p);

        if (e) {
            lua_pushnumber(L, (double)(e - s + (e == at))); /* an empty match moves on by one */
            lua_replace(L, lua_upvalueindex(3));
            return push_captures(&m, at, e);
        }
    }
    lua_pushnumber(L, (double)n + 1);
    lua_replace(L, lua_upvalueindex(3));
    return 0;
}

static int on_gmatch(lua_State *L)
{
    luaL_checkstring(L, 1);
    luaL_checkstring(L, 2);
    lua_settop(L, 2);
    lua_pushnumber(L, 0);
    lua_pushcclosure(L, on_gmatch_next, 3);
    return 1;
}

/* ---- gsub ------------------------------------------------------------------------------------ */

/* The replacement is a string: %0 to %9 are captures, % before another character is that. */
static void add_string(struct matcher *m, luaL_Buffer *b, const char *s, const char *e)
{
    size_t n;
    const char *text = lua_tolstring(m->L, 3, &n);

    count_steps(m, n / 4);
    for (size_t i = 0; i < n; i++) {
        if (text[i] != ESCAPE) {
            luaL_addchar(b, text[i]);
            continue;
        }
        i++;
        if (i >= n || !isdigit((unsigned char)text[i])) {
            luaL_addchar(b, i < n ? text[i] : '\0');
        } else if (text[i] == '0') {
            luaL_addlstring(b, s, (size_t)(e - s));
        } else {
            push_capture(m, text[i] - '1', s, e);
            luaL_addvalue(b);
        }
    }
}

static void add_value(struct matcher *m, luaL_Buffer *b, const char *s, const char *e)
{
    lua_State *L = m->L;

    switch (lua_type(L, 3)) {
    case LUA_TNUMBER:
    case LUA_TSTRING:
        add_string(m, b, s, e);
        return;
    case LUA_TFUNCTION: {
        int n;

        lua_pushvalue(L, 3);
        n = push_captures(m, s, e);
        lua_call(L, n, 1);
        break;
    }
    default:
        push_capture(m, 0, s, e);
        lua_gettable(L, 3);
        break;
    }
    if (!lua_toboolean(L, -1)) {
        lua_pop(L, 1);
        lua_pushlstring(L, s, (size_t)(e - s));
    } else if (!lua_isstring(L, -1)) {
        luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
    }
    luaL_addvalue(b);
}

static int on_gsub(lua_State *L)
{
    size_t n, np;
    const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checklstring(L, 2, &np), *at = s;
    int type = lua_type(L, 3);
    bool is_anchored = np > 0 && *p == '^';
    double max, count = 0;
    struct matcher m;
    luaL_Buffer b;

    luaL_argcheck(L,
                  type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TFUNCTION ||
                      type == LUA_TTABLE,
                  3, "string/function/table expected");
    mr__state_check_stack(L);
    max = luaL_optnumber(L, 4, (double)n + 1);
    lua_settop(L, 4);
    begin(&m, L, s, n, p + np);
    luaL_buffinit(L, &b);
    p += is_anchored;
    while (count < max) {
        const char *e = try_at(&m, at, p);

        if (e) {
            count++;
            add_value(&m, &b, at, e);
        }
        if (e && e > at) {
            at = e;
        } else if (at < m.s_end) {
            luaL_addchar(&b, *at++);
        } else {
            break;
        }
        if (is_anchored) {
            break;
        }
    }
    luaL_addlstring(&b, at, (size_t)(m.s_end - at));
    luaL_pushresult(&b);
    lua_pushnumber(L, count);
    return 2;
}

void mr__pattern_open(lua_State *L)
{
    static const luaL_Reg functions[] = {{"find", on_find},
                                         {"match", on_match},
                                         {"gmatch", on_gmatch},
                                         {"gsub", on_gsub},
                                         {NULL, NULL}};

    for (const luaL_Reg *f = functions; f->name; f++) {
        lua_pushcfunction(L, f->func);
        lua_setfield(L, -2, f->name);
    }
}
