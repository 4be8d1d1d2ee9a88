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

struct word {
    const char *text;
    unsigned value; /* command: operands; flag: whether it takes a value */
};

static const struct word commands[] = {
#define X(constant, word, operands) {word, operands},
    MR_COMMANDS(X)
#undef X
};

static const struct word flags[] = {
    {"--config", 1}, {"--policy", 1}, {"--set", 1}, {"--help", 0}, {"-h", 0}, {"--version", 0},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct reader {
    struct arguments *out;
    char *error;
    size_t cap;
    bool has_command;
};

__attribute__((format(printf, 2, 3))) static int refuse(struct reader *r, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(r->error, r->cap, format, args);
    va_end(args);
    return -EINVAL;
}

/* Changes of one letter that turn a into b (Levenshtein), for "did you mean". */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[WORD_MAX + 1];
    size_t n = strnlen(b, WORD_MAX);

    for (size_t j = 0; j <= n; j++) {
        row[j] = (unsigned)j;
    }
    for (size_t i = 0; a[i] && i < WORD_MAX; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i + 1;
        for (size_t j = 1; j <= n; j++) {
            unsigned best = diagonal + (a[i] != b[j - 1]);
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n];
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
    if (a->operand || commands[a->command].value == 0) {
        return refuse(r, "unexpected argument \"%.100s\" after %s", text,
                      commands[a->command].text);
    }
    a->operand = text;
    return 0;
}

/* Returns how many of argv it took, or negative. */
static int read_flag(struct reader *r, const char *text, const char *next)
{
    struct arguments *a = r->out;
    const char *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : strlen(text);
    const struct word *w = find(flags, COUNT(flags), text, len);
    const char *value = equals ? equals + 1 : next;
    char name[WORD_MAX + 1];

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
    if (strcmp(w->text, "--config") == 0) {
        if (a->config) {
            return refuse(r, "--config is given twice");
        }
        a->config = value;
    } else if (strcmp(w->text, "--policy") == 0) {
        a->policies[a->n_policies++] = value;
    } else if (strcmp(w->text, "--set") == 0) {
        a->sets[a->n_sets++] = value;
    } else {
        a->command = strcmp(w->text, "--version") == 0 ? CLI_VERSION : CLI_HELP;
    }
    return w->value && !equals ? 2 : 1;
}

static bool is_final(enum command c)
{
    return c == CLI_VERSION || c == CLI_HELP;
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
            if (rc > 0 && is_final(out->command)) {
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
    if (out->command == CLI_CHECK && out->operand && out->config) {
        mr__arguments_deinit(out);
        return refuse(&r, "check: the config file is given twice");
    }
    return 0;
}

void mr__arguments_deinit(struct arguments *a)
{
    free(a->lists);
    *a = (struct arguments){.command = CLI_SERVE};
}
