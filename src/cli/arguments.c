/* SPDX-License-Identifier: MIT */
/*
 * See arguments.h. Flags and the command may come in any order; `--` ends the flags.
 */
#include "cli/arguments.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = 32 }; /* longer than every word of ours, with room for mistakes */

/* Which commands a flag belongs to. */
enum { START = 1, WATCH = 2, ASK = 4, RELOAD = 8, TICKET = 16, DRAIN = 32, ANY = ~0 };

struct word {
    const char *text;
    unsigned value; /* command: operands; flag: whether it takes a value */
    unsigned flags;
};

static const struct word commands[] = {
#define X(constant, word, operands, flags) {word, operands, flags},
    MR_COMMANDS(X)
#undef X
};

static const struct word flags[] = {
    {"--config", 1, START}, {"--policy", 1, START}, {"--set", 1, START},
    {"--watch", 0, WATCH},  {"--control", 1, ASK},  {"--json", 0, ASK},
    {"--check", 0, RELOAD}, {"--cancel", 0, DRAIN}, {"--sub", 1, TICKET},
    {"--game", 1, TICKET},  {"--key", 1, TICKET},   {"--key-env", 1, TICKET},
    {"--ttl", 1, TICKET},   {"--help", 0, ANY},     {"-h", 0, ANY},
    {"--version", 0, ANY},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct reader {
    struct arguments *out;
    char *error;
    size_t cap;
    bool has_command, is_final; /* final: nothing behind it is read */
    bool is_seen[sizeof flags / sizeof flags[0]];
};

__attribute__((format(printf, 2, 3))) static int refuse(struct reader *r, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(r->error, r->cap, format, args);
    va_end(args);
    return -EINVAL;
}

/* Changes of one letter, and swaps of neighbours (`relaod`), that turn a into b, for "did you
 * mean": optimal string alignment. */
static unsigned distance(const char *a, const char *b)
{
    unsigned rows[3][WORD_MAX + 1] = {{0}};
    size_t n_a = strnlen(a, WORD_MAX), n_b = strnlen(b, WORD_MAX);

    for (size_t j = 0; j <= n_b; j++) {
        rows[0][j] = (unsigned)j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n_b; j++) {
            unsigned best = above[j - 1] + (a[i - 1] != b[j - 1]);

            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                best = above2[j - 2] + 1 < best ? above2[j - 2] + 1 : best;
            }
            row[j] = best;
        }
    }
    return rows[n_a % 3][n_b];
}

/* The word that is so near that it was probably meant, or NULL. */
static const char *nearest(const struct word *words, size_t n, const char *text)
{
    const char *found = NULL;
    unsigned least = (unsigned)strlen(text) / 3 + 1;

    for (size_t i = 0; i < n; i++) {
        unsigned d = distance(text, words[i].text);
        if (d <= least && strlen(words[i].text) > 2) {
            found = words[i].text;
            least = d - (d > 0);
        }
    }
    return found;
}

static int refuse_unknown(struct reader *r, const char *kind, const struct word *words, size_t n,
                          const char *text)
{
    const char *near = nearest(words, n, text);

    if (near) {
        return refuse(r, "unknown %s \"%.100s\"; did you mean %s?", kind, text, near);
    }
    return refuse(r, "unknown %s \"%.100s\"; see moonrelay --help", kind, text);
}

static const struct word *find(const struct word *words, size_t n, const char *text, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(words[i].text) == len && memcmp(words[i].text, text, len) == 0) {
            return &words[i];
        }
    }
    return NULL;
}

static int read_operand(struct reader *r, const char *text)
{
    struct arguments *a = r->out;

    if (!r->has_command) {
        const struct word *w = find(commands, COUNT(commands), text, strlen(text));
        if (!w) {
            return refuse_unknown(r, "command", commands, COUNT(commands), text);
        }
        a->command = (enum command)(w - commands);
        r->has_command = true;
        return 0;
    }
    if (a->n_operands == commands[a->command].value) {
        return refuse(r, "unexpected argument \"%.100s\" after %s", text,
                      commands[a->command].text);
    }
    a->operands[a->n_operands++] = text;
    return 0;
}

/* Where the value of a flag goes, if there is one place for it. */
static const char **place_of(struct arguments *a, const char *flag)
{
    const struct {
        const char *flag;
        const char **to;
    } places[] = {
        {"--config", &a->config}, {"--control", &a->control}, {"--sub", &a->sub},
        {"--game", &a->game},     {"--key", &a->key},         {"--key-env", &a->key_variable},
        {"--ttl", &a->ttl},
    };

    for (size_t i = 0; i < COUNT(places); i++) {
        if (strcmp(places[i].flag, flag) == 0) {
            return places[i].to;
        }
    }
    return NULL;
}

static int take_flag(struct reader *r, const struct word *w, const char *value)
{
    struct arguments *a = r->out;
    const char **place = place_of(a, w->text);

    if (place && *place) {
        return refuse(r, "%s is given twice", w->text);
    }
    r->is_seen[w - flags] = true;
    if (place) {
        *place = value;
    } else if (strcmp(w->text, "--policy") == 0) {
        a->policies[a->n_policies++] = value;
    } else if (strcmp(w->text, "--set") == 0) {
        a->sets[a->n_sets++] = value;
    } else if (strcmp(w->text, "--watch") == 0) {
        a->sets[a->n_sets++] = "watch=on";
    } else if (strcmp(w->text, "--json") == 0) {
        a->is_json = 1;
    } else if (strcmp(w->text, "--check") == 0) {
        a->is_check = 1;
    } else if (strcmp(w->text, "--cancel") == 0) {
        a->is_cancel = 1;
    } else if (strcmp(w->text, "--version") == 0) {
        a->command = CLI_VERSION;
        r->is_final = true;
    } else {
        a->operands[0] = r->has_command ? commands[a->command].text : NULL;
        a->n_operands = r->has_command;
        a->command = CLI_HELP;
        r->is_final = true;
    }
    return 0;
}

/* Returns how many of argv it took, or negative. */
static int read_flag(struct reader *r, const char *text, const char *next)
{
    const char *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : strlen(text);
    const struct word *w = find(flags, COUNT(flags), text, len);
    const char *value = equals ? equals + 1 : next;
    char name[WORD_MAX + 1];
    int rc;

    if (!w) {
        snprintf(name, sizeof name, "%.*s", (int)(len < WORD_MAX ? len : WORD_MAX), text);
        return refuse_unknown(r, "flag", flags, COUNT(flags), name);
    }
    if (w->value && (!value || !*value)) {
        return refuse(r, "%s needs a value", w->text);
    }
    if (!w->value && equals) {
        return refuse(r, "%s takes no value", w->text);
    }
    rc = take_flag(r, w, value);
    return rc < 0 ? rc : w->value && !equals ? 2 : 1;
}

/* A flag of another command is a mistake, not something to pass over. */
static int check_flags(struct reader *r)
{
    const struct word *command = &commands[r->out->command];

    for (size_t i = 0; i < COUNT(flags); i++) {
        if (r->is_seen[i] && !(flags[i].flags & command->flags)) {
            return refuse(r, "%s is no flag of %s", flags[i].text, command->text);
        }
    }
    if (r->out->command == CLI_CHECK && r->out->n_operands > 0 && r->out->config) {
        return refuse(r, "check: the config file is given twice");
    }
    if (r->out->is_cancel && r->out->n_operands > 0) {
        return refuse(r, "drain: a time or --cancel, not both");
    }
    return 0;
}

const char *mr__arguments_word(enum command c)
{
    return commands[c].text;
}

int mr__arguments_read(struct arguments *out, int argc, char *const *argv, char *error, size_t cap)
{
    struct reader r = {.out = out, .error = error, .cap = cap};
    bool may_be_flag = true;

    *out = (struct arguments){.command = CLI_SERVE};
    out->lists = calloc(2 * (size_t)argc + 2, sizeof *out->lists);
    if (!out->lists) {
        refuse(&r, "out of memory");
        return -ENOMEM;
    }
    out->policies = out->lists;
    out->sets = out->lists + argc + 1;
    for (int i = 1; i < argc;) {
        int rc = 1;
        if (may_be_flag && strcmp(argv[i], "--") == 0) {
            may_be_flag = false;
        } else if (may_be_flag && argv[i][0] == '-' && argv[i][1]) {
            rc = read_flag(&r, argv[i], argv[i + 1]);
            if (rc > 0 && r.is_final) {
                return 0; /* somebody who asks for help is not told what else is wrong */
            }
        } else {
            int read = read_operand(&r, argv[i]);
            rc = read < 0 ? read : 1;
        }
        if (rc < 0) {
            mr__arguments_deinit(out);
            return rc;
        }
        i += rc;
    }
    if (check_flags(&r) < 0) {
        mr__arguments_deinit(out);
        return -EINVAL;
    }
    return 0;
}

void mr__arguments_deinit(struct arguments *a)
{
    free(a->lists);
    *a = (struct arguments){.command = CLI_SERVE};
}
