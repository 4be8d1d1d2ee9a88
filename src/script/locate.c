/* SPDX-License-Identifier: MIT */
/*
 * A lexer of Lua's tokens and a walk over table constructors, just enough to say on
 * which line a key is. It never fails: what it does not understand is not found. Pure;
 * start reading at mr__locate_line().
 */
#include "script/locate.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum token_kind { TOKEN_END, TOKEN_NAME, TOKEN_STRING, TOKEN_SIGN, TOKEN_OTHER };

struct token {
    enum token_kind kind;
    const char *s; /* of a string: between its quotes, escapes as written */
    size_t n;
    unsigned line;
};

struct lexer {
    const char *p, *end;
    unsigned line;
    struct token now, next;
};

/* At "[": the level of a long bracket "[==[", or -1. */
static int long_level(const char *p, const char *end)
{
    const char *q = p + 1;

    while (q < end && *q == '=') {
        q++;
    }
    return q < end && *q == '[' ? (int)(q - p - 1) : -1;
}

/* At "[==[": skips it with its end; s and n are what is inside. */
static void skip_long(struct lexer *lx, int level, struct token *t)
{
    t->s = lx->p += level + 2;
    for (; lx->p < lx->end; lx->p++) {
        if (*lx->p == '\n') {
            lx->line++;
        } else if (*lx->p == ']' && lx->end - lx->p > level + 1) {
            int i = 0;

            while (i < level && lx->p[1 + i] == '=') {
                i++;
            }
            if (i == level && lx->p[1 + i] == ']') {
                t->n = (size_t)(lx->p - t->s);
                lx->p += level + 2;
                return;
            }
        }
    }
    t->n = (size_t)(lx->p - t->s);
}

static void skip_string(struct lexer *lx, struct token *t)
{
    char quote = *lx->p++;

    for (t->s = lx->p; lx->p < lx->end && *lx->p != quote && *lx->p != '\n'; lx->p++) {
        if (*lx->p == '\\' && lx->p + 1 < lx->end) {
            lx->line += *++lx->p == '\n';
        }
    }
    t->n = (size_t)(lx->p - t->s);
    lx->p += lx->p < lx->end && *lx->p == quote;
}

static void skip_space(struct lexer *lx)
{
    while (lx->p < lx->end) {
        struct token ignored;

        if (*lx->p == '\n') {
            lx->line++;
            lx->p++;
        } else if (isspace((unsigned char)*lx->p)) {
            lx->p++;
        } else if (lx->end - lx->p >= 2 && lx->p[0] == '-' && lx->p[1] == '-') {
            int level;

            lx->p += 2;
            level = lx->p < lx->end && *lx->p == '[' ? long_level(lx->p, lx->end) : -1;
            if (level >= 0) {
                skip_long(lx, level, &ignored);
                continue;
            }
            while (lx->p < lx->end && *lx->p != '\n') {
                lx->p++;
            }
        } else {
            return;
        }
    }
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static void read_token(struct lexer *lx, struct token *t)
{
    int level;

    skip_space(lx);
    *t = (struct token){.s = lx->p, .line = lx->line};
    if (lx->p == lx->end) {
        return;
    }
    if (*lx->p == '"' || *lx->p == '\'') {
        t->kind = TOKEN_STRING;
        skip_string(lx, t);
    } else if (*lx->p == '[' && (level = long_level(lx->p, lx->end)) >= 0) {
        t->kind = TOKEN_STRING;
        skip_long(lx, level, t);
    } else if (is_name(*lx->p)) {
        t->kind = isdigit((unsigned char)*lx->p) ? TOKEN_OTHER : TOKEN_NAME;
        while (lx->p < lx->end && is_name(*lx->p)) {
            lx->p++;
        }
        t->n = (size_t)(lx->p - t->s);
    } else if (lx->end - lx->p >= 2 && lx->p[1] == '=' && memchr("=<>~", lx->p[0], 4)) {
        t->kind = TOKEN_OTHER; /* so that "=" alone is an assignment */
        t->n = 2;
        lx->p += 2;
    } else {
        t->kind = TOKEN_SIGN;
        t->n = 1;
        lx->p++;
    }
}

static void advance(struct lexer *lx)
{
    lx->now = lx->next;
    read_token(lx, &lx->next);
}

static void start(struct lexer *lx, const char *text, size_t n, unsigned line)
{
    *lx = (struct lexer){.p = text, .end = text + n, .line = line};
    advance(lx);
    advance(lx);
}

static bool is(const struct token *t, enum token_kind kind, const char *text)
{
    return t->kind == kind && t->n == strlen(text) && memcmp(t->s, text, t->n) == 0;
}

/* How the nesting changes: brackets, and blocks, in which commas are no ends of items. */
static int nesting(const struct token *t)
{
    static const char *const openers[] = {"function", "do", "if", "repeat"};

    if (t->kind == TOKEN_SIGN) {
        return memchr("([{", t->s[0], 3) ? 1 : memchr(")]}", t->s[0], 3) ? -1 : 0;
    }
    if (t->kind != TOKEN_NAME) {
        return 0;
    }
    for (size_t i = 0; i < sizeof openers / sizeof openers[0]; i++) {
        if (is(t, TOKEN_NAME, openers[i])) {
            return 1;
        }
    }
    return is(t, TOKEN_NAME, "end") || is(t, TOKEN_NAME, "until") ? -1 : 0;
}

static bool is_separator(const struct token *t)
{
    return is(t, TOKEN_SIGN, ",") || is(t, TOKEN_SIGN, ";");
}

/* Skips what is left of an item and the separator behind it. */
static void skip_item(struct lexer *lx)
{
    int depth = 0;

    while (lx->now.kind != TOKEN_END) {
        int change = nesting(&lx->now);

        if (depth == 0 && (change < 0 || is_separator(&lx->now))) {
            break;
        }
        depth += change;
        advance(lx);
    }
    if (is_separator(&lx->now)) {
        advance(lx);
    }
}

/* Steps over "key =" or ["key"] = and stores the key; false: an item without one. */
static bool take_key(struct lexer *lx, struct token *key)
{
    if (lx->now.kind == TOKEN_NAME && is(&lx->next, TOKEN_SIGN, "=")) {
        *key = lx->now;
        advance(lx);
        advance(lx);
        return true;
    }
    if (is(&lx->now, TOKEN_SIGN, "[")) {
        advance(lx);
        *key = lx->now;
        while (lx->now.kind != TOKEN_END && !is(&lx->now, TOKEN_SIGN, "=")) {
            advance(lx);
        }
        advance(lx);
        return true;
    }
    return false;
}

/* Walks the items of a table, behind its "{". */
static unsigned walk(struct lexer *lx, const struct locate_step *path, size_t n_path)
{
    unsigned index = 0;

    while (lx->now.kind != TOKEN_END && !is(&lx->now, TOKEN_SIGN, "}")) {
        struct token key = {0};
        unsigned line = lx->now.line;
        bool has_key = take_key(lx, &key), is_it;

        index += !has_key;
        is_it = has_key ? path->key && key.kind != TOKEN_SIGN && key.n == strlen(path->key) &&
                              memcmp(key.s, path->key, key.n) == 0
                        : !path->key && path->index == index;
        if (is_it && n_path == 1) {
            return line;
        }
        if (is_it && is(&lx->now, TOKEN_SIGN, "{")) {
            advance(lx);
            path++;
            n_path--;
            index = 0;
            continue;
        }
        const char *before = lx->now.s;
        skip_item(lx);
        if (lx->now.s == before) {
            return 0; /* a stray bracket */
        }
    }
    return 0;
}

unsigned mr__locate_line(const char *text, size_t n, const struct locate_step *path, size_t n_path)
{
    struct lexer lx, at = {0};
    bool is_found = false;

    for (start(&lx, text, n, 1); lx.now.kind != TOKEN_END; advance(&lx)) {
        if (is(&lx.now, TOKEN_NAME, "return") && is(&lx.next, TOKEN_SIGN, "{")) {
            at = lx;
            is_found = true;
        }
    }
    if (!is_found || n_path == 0) {
        return 0;
    }
    advance(&at);
    advance(&at);
    return walk(&at, path, n_path);
}
