/* SPDX-License-Identifier: MIT */
/*
 * The counters and gauges of policies (tally.h). Control thread only. A list is enough:
 * there are few, policies keep pointers, and a page is written once in seconds.
 */
#include "script/tally.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct sample {
    char label[TALLY_LABEL_MAX + 1];
    double value;
};

struct tally {
    struct tally *next;
    char *policy;
    char name[TALLY_NAME_MAX + 1], help[TALLY_HELP_MAX + 1];
    enum metric_type kind;
    bool is_bare_used, is_other_used;
    double bare, other; /* without a label; of labels beyond the bound */
    struct sample *samples;
    size_t n, cap;
};

struct tallies {
    struct tally *first, **last; /* in the order in which they were made */
    size_t n;
};

/* Families of ours that begin with moonrelay_policy_ (figures.c). */
static const char *const taken[] = {"refusals_total", NULL};

struct tallies *mr__tallies_create(void)
{
    struct tallies *t = mr__alloc(1, sizeof *t);

    if (t) {
        t->last = &t->first;
    }
    return t;
}

static void free_tally(struct tally *t)
{
    if (t) {
        mr__free(t->policy);
        mr__free(t->samples);
        mr__free(t);
    }
}

void mr__tallies_destroy(struct tallies *t)
{
    if (!t) {
        return;
    }
    for (struct tally *i = t->first, *next; i; i = next) {
        next = i->next;
        free_tally(i);
    }
    mr__free(t);
}

static struct tally *find(const struct tallies *t, const struct tally_declaration *d)
{
    struct tally *i = t->first;

    while (i && (strcmp(i->name, d->name) != 0 || strcmp(i->policy, d->policy) != 0)) {
        i = i->next;
    }
    return i;
}

bool mr__tally_check(const struct tallies *t, const struct tally_declaration *d,
                     char why[TALLY_WHY_MAX])
{
    size_t of_policy = 0;

    for (size_t i = 0; taken[i]; i++) {
        if (strcmp(taken[i], d->name) == 0) {
            snprintf(why, TALLY_WHY_MAX, "%s is a metric of the relay itself", d->name);
            return false;
        }
    }
    for (const struct tally *i = t->first; i; i = i->next) {
        bool is_same = strcmp(i->name, d->name) == 0, is_own = strcmp(i->policy, d->policy) == 0;

        of_policy += is_own && !is_same;
        if (is_same && i->kind != d->kind) {
            snprintf(why, TALLY_WHY_MAX, "%s is a %s of policy %.32s already", d->name,
                     i->kind == MR_METRIC_COUNTER ? "counter" : "gauge", i->policy);
            return false;
        }
    }
    if (find(t, d)) {
        return true;
    }
    if (of_policy >= TALLIES_PER_POLICY || t->n >= TALLIES_MAX) {
        snprintf(why, TALLY_WHY_MAX, "there are %d metrics already",
                 of_policy >= TALLIES_PER_POLICY ? TALLIES_PER_POLICY : TALLIES_MAX);
        return false;
    }
    return true;
}

int mr__tally_open(struct tallies *t, const struct tally_declaration *d, struct tally **out,
                   char why[TALLY_WHY_MAX])
{
    struct tally *i;

    if (!mr__tally_check(t, d, why)) {
        return -EINVAL;
    }
    i = find(t, d);
    if (!i) {
        i = mr__alloc(1, sizeof *i);
        if (i) {
            i->policy = mr__strndup(d->policy, strlen(d->policy));
        }
        if (!i || !i->policy) {
            free_tally(i);
            return -ENOMEM;
        }
        i->kind = d->kind;
        snprintf(i->name, sizeof i->name, "%s", d->name);
        *t->last = i;
        t->last = &i->next;
        t->n++;
    }
    snprintf(i->help, sizeof i->help, "%s", d->help); /* a new generation may say it better */
    *out = i;
    return 0;
}

/* A page is UTF-8, and a label may come from a player: what is not visible ASCII becomes '?'. */
static void clean_label(char out[TALLY_LABEL_MAX + 1], struct str label)
{
    size_t n = label.n < TALLY_LABEL_MAX ? label.n : TALLY_LABEL_MAX;

    for (size_t i = 0; i < n; i++) {
        out[i] = label.s[i] < 0x20 || label.s[i] > 0x7e ? '?' : label.s[i];
    }
    out[n] = '\0';
}

/* Room for another sample; false: none, also when out of memory. */
static bool has_room(struct tally *t)
{
    struct sample *samples;
    size_t cap = t->cap ? t->cap * 2 : 4;

    if (t->n < t->cap) {
        return true;
    }
    samples = t->cap < TALLY_LABELS_MAX ? mr__realloc(t->samples, cap, sizeof *samples) : NULL;
    if (!samples) {
        return false;
    }
    t->samples = samples;
    t->cap = cap;
    return true;
}

static double *value_of(struct tally *t, struct str label)
{
    char clean[TALLY_LABEL_MAX + 1];

    if (label.n == 0) {
        t->is_bare_used = true;
        return &t->bare;
    }
    clean_label(clean, label);
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->samples[i].label, clean) == 0) {
            return &t->samples[i].value;
        }
    }
    if (strcmp(clean, "other") == 0 || !has_room(t)) {
        t->is_other_used = true;
        return &t->other;
    }
    t->samples[t->n].value = 0;
    memcpy(t->samples[t->n].label, clean, sizeof clean);
    return &t->samples[t->n++].value;
}

void mr__tally_add(struct tally *t, struct str label, double n)
{
    *value_of(t, label) += n;
}

void mr__tally_set(struct tally *t, struct str label, double value)
{
    *value_of(t, label) = value;
}

/* ---- the page -------------------------------------------------------------------------------- */

static void write_sample(const struct tally *t, const char *label, double value, struct metrics *m)
{
    struct metric_label labels[2] = {{"policy", {t->policy, strlen(t->policy)}}};
    size_t n = 1;

    if (label) {
        labels[n++] = (struct metric_label){"label", {label, strlen(label)}};
    }
    mr__metrics_double(m, labels, n, value);
}

static void write_samples(const struct tally *t, struct metrics *m)
{
    /* One that nothing was counted by yet is 0, so that a rate can be seen from the first on. */
    if (t->is_bare_used || (t->n == 0 && !t->is_other_used)) {
        write_sample(t, NULL, t->bare, m);
    }
    for (size_t i = 0; i < t->n; i++) {
        write_sample(t, t->samples[i].label, t->samples[i].value, m);
    }
    if (t->is_other_used) {
        write_sample(t, "other", t->other, m);
    }
}

static bool is_first_of_name(const struct tallies *t, const struct tally *tally)
{
    const struct tally *i = t->first;

    while (strcmp(i->name, tally->name) != 0) {
        i = i->next;
    }
    return i == tally;
}

void mr__tallies_write(const struct tallies *t, struct metrics *m)
{
    for (const struct tally *i = t->first; i; i = i->next) {
        char family[TALLY_NAME_MAX + 24];

        if (!is_first_of_name(t, i)) {
            continue;
        }
        snprintf(family, sizeof family, "moonrelay_policy_%s", i->name);
        mr__metrics_family(m, family, i->kind, i->help);
        for (const struct tally *j = i; j; j = j->next) {
            if (strcmp(j->name, i->name) == 0) {
                write_samples(j, m);
            }
        }
    }
}
