/* SPDX-License-Identifier: MIT */
/*
 * See request.h. An unknown key is refused: a misspelt `seconds` must not become a block
 * for ever.
 */
#include "control/request.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum field_type { TEXT, SECONDS, FLAG, ARGS };

struct field {
    const char *key;
    enum field_type type;
    bool is_needed;
    size_t offset; /* in struct request */
};

#define AT(member) offsetof(struct request, member)

static const struct field kick[] = {{"id", TEXT, true, AT(id)},
                                    {"reason", TEXT, false, AT(reason)}};
static const struct field block[] = {{"what", TEXT, true, AT(what)},
                                     {"seconds", SECONDS, true, AT(seconds)},
                                     {"reason", TEXT, false, AT(reason)}};
static const struct field unblock[] = {{"what", TEXT, true, AT(what)}};
static const struct field reload[] = {{"check", FLAG, false, AT(check)}};
static const struct field drain[] = {{"seconds", SECONDS, false, AT(seconds)},
                                     {"cancel", FLAG, false, AT(cancel)}};
static const struct field call[] = {{"policy", TEXT, true, AT(policy)},
                                    {"verb", TEXT, true, AT(verb)},
                                    {"args", ARGS, false, AT(args)}};

#define LIST(fields)                               \
    {                                              \
        fields, sizeof(fields) / sizeof(fields)[0] \
    }

static const struct {
    const struct field *fields;
    size_t n;
} kinds[MR_REQUEST_COUNT] = {
    [MR_REQUEST_KICK] = LIST(kick),     [MR_REQUEST_CLOSE] = LIST(kick),
    [MR_REQUEST_BLOCK] = LIST(block),   [MR_REQUEST_UNBLOCK] = LIST(unblock),
    [MR_REQUEST_RELOAD] = LIST(reload), [MR_REQUEST_ROLLBACK] = {NULL, 0},
    [MR_REQUEST_DRAIN] = LIST(drain),   [MR_REQUEST_CALL] = LIST(call),
};

__attribute__((format(printf, 2, 3))) static int refuse(char *why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, MR_REQUEST_WHY_MAX, format, args);
    va_end(args);
    return -EINVAL;
}

/* The library's own limit is 2,048. */
static bool is_shallow(const char *text, size_t n)
{
    unsigned depth = 0;
    bool is_quoted = false;

    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (is_quoted) {
            i += c == '\\';
            is_quoted = c != '"';
        } else if (c == '"') {
            is_quoted = true;
        } else if (c == '[' || c == '{') {
            if (++depth > MR_REQUEST_DEPTH_MAX) {
                return false;
            }
        } else if (c == ']' || c == '}') {
            depth -= depth > 0;
        }
    }
    return true;
}

static struct str text_of(const json_t *v)
{
    return (struct str){json_string_value(v), json_string_length(v)};
}

static int read_args(struct request *out, const json_t *v, char *why)
{
    size_t n = json_array_size(v);

    if (!json_is_array(v) || n > MR_REQUEST_ARGS_MAX) {
        return refuse(why, "args: expected at most %d texts", MR_REQUEST_ARGS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *arg = json_array_get(v, i);
        if (!json_is_string(arg)) {
            return refuse(why, "args: expected texts, item %zu is none", i + 1);
        }
        out->args[i] = text_of(arg);
    }
    out->n_args = n;
    return 0;
}

static int read_field(struct request *out, const struct field *f, const json_t *v, char *why)
{
    void *to = (char *)out + f->offset;

    switch (f->type) {
    case TEXT:
        if (!json_is_string(v) || json_string_length(v) == 0) {
            return refuse(why, "%s: expected a text that is not empty", f->key);
        }
        *(struct str *)to = text_of(v);
        return 0;
    case SECONDS:
        if (!json_is_number(v) || !(json_number_value(v) > 0)) {
            return refuse(why, "%s: expected a number above 0", f->key);
        }
        *(double *)to = json_number_value(v);
        return 0;
    case FLAG:
        if (!json_is_boolean(v)) {
            return refuse(why, "%s: expected true or false", f->key);
        }
        *(bool *)to = json_is_true(v);
        return 0;
    case ARGS:
        return read_args(out, v, why);
    }
    return -EINVAL;
}

static const struct field *find_field(enum request_kind kind, const char *key)
{
    for (size_t i = 0; i < kinds[kind].n; i++) {
        if (strcmp(kinds[kind].fields[i].key, key) == 0) {
            return &kinds[kind].fields[i];
        }
    }
    return NULL;
}

static int read_fields(struct request *out, enum request_kind kind, char *why)
{
    const char *key;
    json_t *value;

    json_object_foreach(out->root, key, value)
    {
        const struct field *f = find_field(kind, key);
        int rc = f ? read_field(out, f, value, why) : refuse(why, "unknown key \"%.100s\"", key);
        if (rc < 0) {
            return rc;
        }
    }
    for (size_t i = 0; i < kinds[kind].n; i++) {
        const struct field *f = &kinds[kind].fields[i];
        if (f->is_needed && !json_object_get(out->root, f->key)) {
            return refuse(why, "%s is missing", f->key);
        }
    }
    return 0;
}

static int parse(struct request *out, const char *text, size_t n, char *why)
{
    json_error_t e;

    if (n == 0) {
        out->root = json_object();
        return out->root ? 0 : -ENOMEM;
    }
    if (n > MR_REQUEST_BYTES_MAX) {
        return refuse(why, "the body is larger than %d bytes", MR_REQUEST_BYTES_MAX);
    }
    if (!is_shallow(text, n)) {
        return refuse(why, "the body is nested too deeply");
    }
    out->root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!out->root) {
        return json_error_code(&e) == json_error_out_of_memory
                   ? -ENOMEM
                   : refuse(why, "no JSON: %.150s (line %d)", e.text, e.line);
    }
    return json_is_object(out->root) ? 0 : refuse(why, "expected an object");
}

int mr__request_parse(struct request *out, enum request_kind kind, const char *text, size_t n,
                      char why[MR_REQUEST_WHY_MAX])
{
    int rc;

    assert(kind < MR_REQUEST_COUNT);
    *out = (struct request){.root = NULL};
    why[0] = 0;
    rc = parse(out, text, n, why);
    if (rc == 0) {
        rc = read_fields(out, kind, why);
    }
    if (rc < 0) {
        mr__request_deinit(out);
    }
    for (char *at = why; *at; at++) {
        *at = (unsigned char)*at < 0x20 || *at == 0x7f ? ' ' : *at;
    }
    return rc;
}

void mr__request_deinit(struct request *r)
{
    json_decref(r->root);
    *r = (struct request){.root = NULL};
}
