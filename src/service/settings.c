/* SPDX-License-Identifier: MIT */
/*
 * Which value of a setting wins, and what there is to say about the others. Control
 * thread. Offers are kept as text and only mr__settings_resolve() reads them, so that a
 * message can name every place and a failed reload changes nothing. Start reading there.
 */
#include "service/settings.h"

#include "base/alloc.h"
#include "base/suggest.h"
#include "service/settings_table.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    MESSAGES_MAX = 200, /* a .env of a million junk lines is not worth more */
    QUOTED_MAX = 80,    /* of a value, in a message */
    KEY_MAX = 64,
};

/* What one place said about one key. */
struct offer {
    size_t row;
    enum settings_source source;
    bool is_noray; /* by NORAY_, which comes second to MOONRELAY_ in the same file */
    char *key;     /* as it was written there */
    char *value;
    size_t n;
    char *place; /* or NULL */
};

struct message {
    struct settings_message public;
    enum settings_source source;
    bool is_from_resolve;
};

struct settings {
    struct settings_values values;
    struct offer *offers;
    size_t n_offers, cap_offers;
    struct message *messages;
    size_t n_messages, cap_messages;
    enum settings_source *sources; /* of the values, by row */
    char **texts;                  /* of the values, by row; NULL: the preset */
    char **places;                 /* by row; NULL: none */
};

/* ---- values -------------------------------------------------------------------------------- */

static void *field_of(struct settings_values *v, const struct setting_row *row)
{
    return (char *)v + row->offset;
}

static void deinit_values(struct settings_values *v)
{
    for (size_t i = 0; i < mr__setting_row_count; i++) {
        const struct setting_row *row = &mr__setting_rows[i];
        if (row->flags & MR_SETTING_STRING) {
            mr__free(*(char **)field_of(v, row));
        }
    }
    mr__port_list_deinit(&v->udp_relay_ports);
    *v = (struct settings_values){.workers = 0};
}

/* ---- messages ------------------------------------------------------------------------------ */

static int reserve(void **items, size_t *cap, size_t n, size_t size)
{
    if (n < *cap) {
        return 0;
    }
    size_t cap_new = *cap ? *cap * 2 : 16;
    void *p = mr__realloc(*items, cap_new, size);
    if (!p) {
        return -ENOMEM;
    }
    *items = p;
    *cap = cap_new;
    return 0;
}

static int add_message(struct settings *s, enum settings_source source, bool is_error,
                       bool is_from_resolve, const char *format, va_list args)
{
    /* The first error always has room, since it decides; later ones say nothing new. */
    if (s->n_messages >= MESSAGES_MAX && !is_error) {
        return 0;
    }
    if (s->n_messages >= (size_t)2 * MESSAGES_MAX) {
        return 0;
    }
    int rc = reserve((void **)&s->messages, &s->cap_messages, s->n_messages, sizeof *s->messages);
    if (rc < 0) {
        return rc;
    }
    struct message *m = &s->messages[s->n_messages++];
    *m = (struct message){.source = source, .is_from_resolve = is_from_resolve};
    m->public.is_error = is_error;
    vsnprintf(m->public.text, sizeof m->public.text, format, args);
    return 0;
}

int mr__settings_complain(struct settings *s, enum settings_source source, bool is_error,
                          const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int rc = add_message(s, source, is_error, false, format, args);
    va_end(args);
    return rc;
}

__attribute__((format(printf, 3, 4))) static int say(struct settings *s, bool is_error,
                                                     const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int rc = add_message(s, MR_SETTING_DEFAULT, is_error, true, format, args);
    va_end(args);
    return rc;
}

static void forget_messages(struct settings *s, bool from_resolve, enum settings_source source)
{
    size_t k = 0;

    for (size_t i = 0; i < s->n_messages; i++) {
        const struct message *m = &s->messages[i];
        bool goes = from_resolve ? m->is_from_resolve : !m->is_from_resolve && m->source == source;
        if (!goes) {
            s->messages[k++] = *m;
        }
    }
    s->n_messages = k;
}

/* A value as a person can read it on one line. */
static const char *quote(char buf[QUOTED_MAX * 4 + 8], const char *text, size_t n)
{
    size_t k = 0;

    buf[k++] = '"';
    for (size_t i = 0; i < n && i < QUOTED_MAX; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f || c == '"' || c == '\\') {
            k += (size_t)snprintf(buf + k, 5, "\\x%02x", c);
        } else {
            buf[k++] = (char)c;
        }
    }
    memcpy(buf + k, n > QUOTED_MAX ? "...\"" : "\"", n > QUOTED_MAX ? 5 : 2);
    return buf;
}

static const char *describe_place(char *buf, size_t cap, const struct offer *o)
{
    snprintf(buf, cap, "%s%s%.160s", mr__settings_source_name(o->source), o->place ? ", " : "",
             o->place ? o->place : "");
    return buf;
}

/* ---- keys ---------------------------------------------------------------------------------- */

/* Drops a prefix. *is_noray: it was NORAY_. */
static const char *bare_key(const char *key, bool *is_noray)
{
    *is_noray = strncmp(key, "NORAY_", 6) == 0;
    if (*is_noray) {
        return key + 6;
    }
    return strncmp(key, "MOONRELAY_", 10) == 0 ? key + 10 : key;
}

int mr__settings_find(const char *key)
{
    bool is_noray;
    const char *bare = bare_key(key, &is_noray);

    for (size_t i = 0; i < mr__setting_row_count; i++) {
        const struct setting_row *row = &mr__setting_rows[i];
        if (strcasecmp(row->key, bare) == 0 && (!is_noray || row->flags & MR_SETTING_NORAY)) {
            return (int)i;
        }
    }
    return -ENOENT;
}

const char *mr__settings_suggest(const char *key)
{
    bool is_noray;
    const char *bare = bare_key(key, &is_noray);
    unsigned best = (unsigned)strnlen(bare, KEY_MAX) / 3 + 1;
    const char *found = NULL;

    for (size_t i = 0; i < mr__setting_row_count; i++) {
        const char *name = mr__setting_rows[i].key;
        unsigned d = mr__suggest_distance(bare, strlen(bare), name, strlen(name));
        if (d <= best && (d < best || !found)) {
            best = d;
            found = name;
        }
    }
    return found;
}

static int complain_unknown(struct settings *s, enum settings_source source, const char *key,
                            const char *place)
{
    bool is_noray;
    const char *found = mr__settings_suggest(key);
    char upper[KEY_MAX + 16] = "";
    bool is_prefixed = bare_key(key, &is_noray) != key;

    if (found && is_prefixed) {
        bool has_noray = mr__setting_rows[mr__settings_find(found)].flags & MR_SETTING_NORAY;
        int k = snprintf(upper, sizeof upper, "%s%s",
                         is_noray && has_noray ? "NORAY_" : "MOONRELAY_", found);
        for (int i = 0; i < k; i++) {
            upper[i] = upper[i] >= 'a' && upper[i] <= 'z' ? (char)(upper[i] - 32) : upper[i];
        }
        found = upper;
    }
    char quoted[QUOTED_MAX * 4 + 8];
    return mr__settings_complain(s, source, !is_noray, "%s (%s%s%.160s): no such setting%s%s%s%s",
                                 quote(quoted, key, strlen(key)), mr__settings_source_name(source),
                                 place ? ", " : "", place ? place : "", is_noray ? ", ignored" : "",
                                 found ? "; did you mean " : "", found ? found : "",
                                 found ? "?" : "");
}

/* ---- offers -------------------------------------------------------------------------------- */

static void deinit_offer(struct offer *o)
{
    mr__free(o->key);
    mr__free(o->value);
    mr__free(o->place);
}

int mr__settings_offer(struct settings *s, enum settings_source source, const char *key,
                       const char *value, size_t n, const char *place)
{
    int row = mr__settings_find(key);

    if (row < 0) {
        return complain_unknown(s, source, key, place);
    }
    int rc = reserve((void **)&s->offers, &s->cap_offers, s->n_offers, sizeof *s->offers);
    if (rc < 0) {
        return rc;
    }
    struct offer o = {
        .row = (size_t)row,
        .source = source,
        .key = mr__strndup(key, strlen(key)),
        .value = mr__strndup(value, n),
        .n = n,
        .place = place ? mr__strndup(place, strlen(place)) : NULL,
    };
    bare_key(key, &o.is_noray);
    if (!o.key || !o.value || (place && !o.place)) {
        deinit_offer(&o);
        return -ENOMEM;
    }
    s->offers[s->n_offers++] = o;
    return 0;
}

int mr__settings_offer_environment(struct settings *s, char *const *environment)
{
    for (size_t i = 0; environment && environment[i]; i++) {
        const char *text = environment[i];
        const char *equals = strchr(text, '=');
        bool is_noray = strncmp(text, "NORAY_", 6) == 0;
        char key[128];

        if (!equals || (!is_noray && strncmp(text, "MOONRELAY_", 10) != 0)) {
            continue;
        }
        snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
        int rc = mr__settings_offer(s, is_noray ? MR_SETTING_NORAY_ENV : MR_SETTING_MOONRELAY_ENV,
                                    key, equals + 1, strlen(equals + 1), NULL);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

void mr__settings_forget(struct settings *s, enum settings_source source)
{
    size_t k = 0;

    for (size_t i = 0; i < s->n_offers; i++) {
        if (s->offers[i].source == source) {
            deinit_offer(&s->offers[i]);
        } else {
            s->offers[k++] = s->offers[i];
        }
    }
    s->n_offers = k;
    forget_messages(s, false, source);
}

/* ---- resolving ----------------------------------------------------------------------------- */

/* Of two offers by places of the same rank the later wins, as in a shell. */
static bool beats(const struct offer *a, const struct offer *b)
{
    if (a->source != b->source) {
        return a->source > b->source;
    }
    return !a->is_noray || b->is_noray;
}

static const struct offer *winner(const struct settings *s, size_t row)
{
    const struct offer *best = NULL;

    for (size_t i = 0; i < s->n_offers; i++) {
        if (s->offers[i].row == row && (!best || beats(&s->offers[i], best))) {
            best = &s->offers[i];
        }
    }
    return best;
}

/* Names every place that says something else than the winner. */
static int name_losers(struct settings *s, const struct offer *best)
{
    char text[2][QUOTED_MAX * 4 + 8], place[2][200];

    for (size_t i = 0; i < s->n_offers; i++) {
        const struct offer *o = &s->offers[i];
        if (o->row != best->row || o == best ||
            (o->n == best->n && memcmp(o->value, best->value, o->n) == 0)) {
            continue;
        }
        int rc = say(s, false, "%s is set twice: %s (%s, %.40s) is used, %s (%s, %.40s) is not",
                     mr__setting_rows[o->row].key, quote(text[0], best->value, best->n),
                     describe_place(place[0], sizeof place[0], best), best->key,
                     quote(text[1], o->value, o->n), describe_place(place[1], sizeof place[1], o),
                     o->key);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* Parses one setting into v. 1: a message says why not. */
static int resolve_row(struct settings *s, size_t i, const struct offer *best,
                       struct settings_values *v)
{
    const struct setting_row *row = &mr__setting_rows[i];
    const char *text = best ? best->value : row->preset;
    size_t n = best ? best->n : strlen(row->preset);
    char why[MR_SETTING_WHY_MAX] = "", quoted[QUOTED_MAX * 4 + 8], place[200];

    int rc = row->read(row, text, n, field_of(v, row), why);
    if (rc == 0 || rc == -ENOMEM || !best) {
        assert(best || rc == 0 || rc == -ENOMEM); /* a preset is always right */
    } else {
        rc = say(s, true, "%s = %s (%s): %s", best->key, quote(quoted, text, n),
                 describe_place(place, sizeof place, best), why);
        return rc < 0 ? rc : 1;
    }
    return rc;
}

/* Keeps, for people, what each value was made from. */
static int keep_origin(struct settings *s, size_t i, const struct offer *best)
{
    char *text = best ? mr__strndup(best->value, best->n) : NULL;
    char *place = best && best->place ? mr__strndup(best->place, strlen(best->place)) : NULL;

    if (best && (!text || (best->place && !place))) {
        mr__free(text);
        mr__free(place);
        return -ENOMEM;
    }
    mr__free(s->texts[i]);
    mr__free(s->places[i]);
    s->texts[i] = text;
    s->places[i] = place;
    s->sources[i] = best ? best->source : MR_SETTING_DEFAULT;
    return 0;
}

/* "policies" has a default that belongs to whoever reads the config file: only a chain that was
 * asked for by this key comes instead of the file's. */
static int finish_values(const struct settings *s, struct settings_values *v)
{
    size_t policies = (size_t)mr__settings_find("policies");

    if (!winner(s, policies)) {
        char *empty = mr__strndup("", 0);
        if (!empty) {
            return -ENOMEM;
        }
        mr__free((char *)v->policies);
        v->policies = empty;
    }
    return 0;
}

static bool has_error(const struct settings *s)
{
    for (size_t i = 0; i < s->n_messages; i++) {
        if (s->messages[i].public.is_error) {
            return true;
        }
    }
    return false;
}

int mr__settings_resolve(struct settings *s)
{
    struct settings_values v = {.workers = 0};
    int rc = 0;

    forget_messages(s, true, MR_SETTING_DEFAULT);
    for (size_t i = 0; i < mr__setting_row_count && rc >= 0; i++) {
        const struct offer *best = winner(s, i);
        rc = resolve_row(s, i, best, &v);
        if (rc >= 0 && best) {
            int named = name_losers(s, best);
            rc = named < 0 ? named : rc;
        }
    }
    if (rc >= 0) {
        rc = has_error(s) ? -EINVAL : finish_values(s, &v);
    }
    for (size_t i = 0; i < mr__setting_row_count && rc >= 0; i++) {
        rc = keep_origin(s, i, winner(s, i));
    }
    if (rc < 0) {
        deinit_values(&v);
        return rc;
    }
    deinit_values(&s->values);
    s->values = v;
    return 0;
}

/* ---- reading again ------------------------------------------------------------------------- */

static bool is_same_text(const struct settings *a, const struct settings *b, size_t i)
{
    const char *preset = mr__setting_rows[i].preset;

    return strcmp(a->texts[i] ? a->texts[i] : preset, b->texts[i] ? b->texts[i] : preset) == 0;
}

static bool is_same_value(const struct settings_values *a, const struct settings_values *b,
                          const struct setting_row *row)
{
    const void *x = (const char *)a + row->offset, *y = (const char *)b + row->offset;

    if (row->flags & MR_SETTING_STRING) {
        return strcmp(*(char *const *)x, *(char *const *)y) == 0;
    }
    return memcmp(x, y, row->size) == 0;
}

static int copy_text(char **to, const char *from)
{
    char *copy = from ? mr__strndup(from, strlen(from)) : NULL;

    if (from && !copy) {
        return -ENOMEM;
    }
    mr__free(*to);
    *to = copy;
    return 0;
}

/* The value itself and where it came from. */
static int keep_running(struct settings *fresh, const struct settings *running, size_t i)
{
    const struct setting_row *row = &mr__setting_rows[i];
    struct settings_values from = running->values;
    int rc = copy_text(&fresh->texts[i], running->texts[i]);

    if (rc == 0) {
        rc = copy_text(&fresh->places[i], running->places[i]);
    }
    if (rc < 0) {
        return rc;
    }
    fresh->sources[i] = running->sources[i];
    if (row->flags & MR_SETTING_STRING) {
        return copy_text(field_of(&fresh->values, row), *(char **)field_of(&from, row));
    }
    memcpy(field_of(&fresh->values, row), field_of(&from, row), row->size);
    return 0;
}

int mr__settings_adopt(struct settings *fresh, const struct settings *running,
                       void (*kept)(void *user, const char *key), void *user)
{
    for (size_t i = 0; i < mr__setting_row_count; i++) {
        const struct setting_row *row = &mr__setting_rows[i];

        if (row->flags & MR_SETTING_LIVE) {
            continue;
        }
        /* Of the same text, a value may differ by what the process had room for. */
        if (kept && !is_same_text(fresh, running, i) &&
            !is_same_value(&fresh->values, &running->values, row)) {
            kept(user, row->key);
        }
        int rc = keep_running(fresh, running, i);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* ---- reading ------------------------------------------------------------------------------- */

struct settings *mr__settings_create(void)
{
    struct settings *s = mr__alloc(1, sizeof *s);

    if (!s) {
        return NULL;
    }
    s->sources = mr__alloc(mr__setting_row_count, sizeof *s->sources);
    s->texts = mr__alloc(mr__setting_row_count, sizeof *s->texts);
    s->places = mr__alloc(mr__setting_row_count, sizeof *s->places);
    if (!s->sources || !s->texts || !s->places || mr__settings_resolve(s) < 0) {
        mr__settings_destroy(s);
        return NULL;
    }
    return s;
}

void mr__settings_destroy(struct settings *s)
{
    if (!s) {
        return;
    }
    deinit_values(&s->values);
    for (size_t i = 0; i < s->n_offers; i++) {
        deinit_offer(&s->offers[i]);
    }
    for (size_t i = 0; i < mr__setting_row_count; i++) {
        mr__free(s->texts ? s->texts[i] : NULL);
        mr__free(s->places ? s->places[i] : NULL);
    }
    mr__free(s->offers);
    mr__free(s->messages);
    mr__free(s->sources);
    mr__free(s->texts);
    mr__free(s->places);
    mr__free(s);
}

void mr__settings_cap_connections(struct settings *s, uint32_t most)
{
    if (s->values.max_connections > most) {
        s->values.max_connections = most;
    }
}

const struct settings_values *mr__settings_values(const struct settings *s)
{
    return &s->values;
}

size_t mr__settings_message_count(const struct settings *s)
{
    return s->n_messages;
}

const struct settings_message *mr__settings_message(const struct settings *s, size_t i)
{
    return i < s->n_messages ? &s->messages[i].public : NULL;
}

size_t mr__settings_row_count(void)
{
    return mr__setting_row_count;
}

static const char *noray_name(size_t i)
{
    static char names[128][KEY_MAX]; /* filled once; the control thread's alone */

    assert(i < sizeof names / sizeof names[0]);
    if (names[i][0] == '\0') {
        int n = snprintf(names[i], KEY_MAX, "NORAY_%s", mr__setting_rows[i].key);
        for (int k = 0; k < n; k++) {
            char c = names[i][k];
            names[i][k] = c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
        }
    }
    return names[i];
}

void mr__settings_row(const struct settings *s, size_t i, struct settings_row *out)
{
    const struct setting_row *row = &mr__setting_rows[i];

    *out = (struct settings_row){
        .key = row->key,
        .noray = row->flags & MR_SETTING_NORAY ? noray_name(i) : NULL,
        .value = s->texts[i] ? s->texts[i] : row->preset,
        .preset = row->preset,
        .source = s->sources[i],
        .place = s->places[i],
        .is_live = row->flags & MR_SETTING_LIVE,
        .help = row->help,
    };
}

const char *mr__settings_source_name(enum settings_source source)
{
    switch (source) {
    case MR_SETTING_DEFAULT:
        return "default";
    case MR_SETTING_CONFIG:
        return "config file";
    case MR_SETTING_DOTENV:
        return ".env";
    case MR_SETTING_NORAY_ENV:
    case MR_SETTING_MOONRELAY_ENV:
        return "environment";
    case MR_SETTING_COMMAND_LINE:
        return "command line";
    }
    return "?";
}
