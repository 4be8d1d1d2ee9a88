/* SPDX-License-Identifier: MIT */
/*
 * The text of a .env file: KEY=VALUE lines, `#` comments, optional export, optional
 * quotes. Control thread. Other programs read the same file, so only our keys matter and
 * a line that is nobody's is no error. Start reading at mr__settings_offer_dotenv().
 */
#include "service/settings.h"

#include "service/settings_table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { KEY_MAX = 128 };

struct line {
    const char *p, *end;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static void skip_spaces(struct line *l)
{
    while (l->p < l->end && is_space(*l->p)) {
        l->p++;
    }
}

static bool is_key_char(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/* Takes `[export] KEY =`; false: the line is of no such form. */
static bool take_key(struct line *l, char key[KEY_MAX])
{
    size_t n = 0;

    skip_spaces(l);
    if (l->end - l->p > 7 && memcmp(l->p, "export", 6) == 0 && is_space(l->p[6])) {
        l->p += 7;
        skip_spaces(l);
    }
    while (l->p < l->end && is_key_char(*l->p)) {
        if (n + 1 >= KEY_MAX) {
            return false;
        }
        key[n++] = *l->p++;
    }
    key[n] = '\0';
    skip_spaces(l);
    if (n == 0 || l->p >= l->end || *l->p != '=') {
        return false;
    }
    l->p++;
    return true;
}

/* Takes the value; false: a quote is not closed or something follows it. A `#` begins a comment
 * only after a space, as in a shell: charsets may hold one. */
static bool take_value(struct line *l, const char **value, size_t *n)
{
    skip_spaces(l);
    if (l->p < l->end && (*l->p == '"' || *l->p == '\'')) {
        const char *start = l->p + 1;
        const char *close = memchr(start, *l->p, (size_t)(l->end - start));

        if (!close) {
            return false;
        }
        *value = start;
        *n = (size_t)(close - start);
        l->p = close + 1;
        skip_spaces(l);
        return l->p == l->end || *l->p == '#';
    }
    const char *start = l->p, *stop = l->p;
    for (; l->p < l->end; l->p++) {
        if (*l->p == '#' && (l->p == start || is_space(l->p[-1]))) {
            break;
        }
        if (!is_space(*l->p)) {
            stop = l->p + 1;
        }
    }
    *value = start;
    *n = (size_t)(stop - start);
    return true;
}

static bool is_ours(const char *key)
{
    return strncmp(key, "MOONRELAY_", 10) == 0 || strncmp(key, "NORAY_", 6) == 0;
}

static bool is_blank(const struct line *l)
{
    struct line rest = *l;

    skip_spaces(&rest);
    return rest.p == rest.end || *rest.p == '#';
}

static int offer_line(struct settings *s, struct line l, const char *place)
{
    char key[KEY_MAX];
    const char *value;
    size_t n;

    if (is_blank(&l)) {
        return 0;
    }
    if (!take_key(&l, key)) {
        return mr__settings_complain(s, MR_SETTING_DOTENV, false,
                                     "%s: expected KEY=VALUE; the line is ignored", place);
    }
    if (!is_ours(key)) {
        return 0;
    }
    if (!take_value(&l, &value, &n)) {
        return mr__settings_complain(s, MR_SETTING_DOTENV, true,
                                     "%s (%s): expected a closing quote and nothing after it", key,
                                     place);
    }
    return mr__settings_offer(s, MR_SETTING_DOTENV, key, value, n, place);
}

int mr__settings_offer_dotenv(struct settings *s, const char *text, size_t n, const char *path)
{
    const char *p = text, *end = text + n;
    unsigned number = 0;

    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        p += 3; /* an editor's byte order mark would become part of the first key */
    }
    while (p < end) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        struct line l = {p, lf ? lf : end};
        char place[256];

        p = lf ? lf + 1 : end;
        if (l.end > l.p && l.end[-1] == '\r') {
            l.end--;
        }
        snprintf(place, sizeof place, "line %u of %.200s", ++number, path ? path : ".env");
        int rc = offer_line(s, l, place);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}
