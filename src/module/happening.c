/* SPDX-License-Identifier: MIT */
/* See happening.h. */
#include "module/happening.h"

#include "base/alloc.h"

#include <string.h>

struct happening *mr__happening_add(struct happenings *q, enum happening_kind kind)
{
    struct happening *h = mr__alloc(1, sizeof *h);

    if (!h) {
        q->is_short = true;
        return NULL;
    }
    h->kind = kind;
    if (q->last) {
        q->last->next = h;
    } else {
        q->first = h;
    }
    q->last = h;
    return h;
}

void mr__happening_text(struct happenings *q, struct happening *h, unsigned i, struct str text)
{
    char *copy = h && text.s ? mr__strndup(text.s, text.n) : NULL;

    if (copy) {
        h->text[i] = (struct str){copy, text.n};
    } else if (text.s) {
        q->is_short = true;
    }
}

static void add_field(struct happenings *q, struct happening_fields *to, char *key,
                      const struct log_field *field)
{
    struct log_field f = *field, *grown;
    char *value = NULL;

    if (f.type == MR_FIELD_STR) {
        value = mr__strndup(f.v.str.n > 0 ? f.v.str.s : "", f.v.str.n);
        f.v.str.s = value;
    }
    grown = key && (value || f.type != MR_FIELD_STR)
                ? mr__realloc(to->items, to->n + 1, sizeof *grown)
                : NULL;
    if (!grown) {
        q->is_short = true;
        mr__free(key);
        mr__free(value);
        return;
    }
    f.key = key;
    grown[to->n++] = f;
    to->items = grown;
}

void mr__happening_field(struct happenings *q, struct happening *h, struct happening_fields *to,
                         const struct log_field *field)
{
    if (h) {
        add_field(q, to, mr__strndup(field->key, strlen(field->key)), field);
    }
}

void mr__happening_pair(struct happenings *q, struct happening *h, struct happening_fields *to,
                        struct str key, struct str value)
{
    if (h) {
        add_field(q, to, mr__strndup(key.s, key.n), &LOG_STRN("", value.s, value.n));
    }
}

static void free_fields(struct happening_fields *f)
{
    for (size_t i = 0; i < f->n; i++) {
        mr__free((char *)(uintptr_t)f->items[i].key);
        if (f->items[i].type == MR_FIELD_STR) {
            mr__free((char *)(uintptr_t)f->items[i].v.str.s);
        }
    }
    mr__free(f->items);
}

void mr__happening_drop(struct happenings *q)
{
    struct happening *h = q->first;

    q->first = h->next;
    if (!q->first) {
        q->last = NULL;
    }
    for (unsigned i = 0; i < HAPPENING_TEXTS; i++) {
        mr__free((char *)(uintptr_t)h->text[i].s);
    }
    free_fields(&h->fields);
    free_fields(&h->slots);
    mr__free(h);
}

void mr__happenings_deinit(struct happenings *q)
{
    while (q->first) {
        mr__happening_drop(q);
    }
}
