/* SPDX-License-Identifier: MIT */
/*
 * Doubly linked rings whose links lie in the members. Control thread. A member that is
 * in no ring links to itself, so leaving twice does no harm.
 */
#ifndef MR_SERVICE_LIST_H
#define MR_SERVICE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

/* The struct that a link is a member of. */
#define MR_CONTAINER(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void mr__list_init(struct list *l)
{
    l->prev = l->next = l;
}

static inline bool mr__list_is_empty(const struct list *l)
{
    return l->next == l;
}

static inline void mr__list_remove(struct list *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    mr__list_init(l);
}

static inline void mr__list_push_front(struct list *head, struct list *l)
{
    l->prev = head;
    l->next = head->next;
    head->next->prev = l;
    head->next = l;
}

static inline void mr__list_push_back(struct list *head, struct list *l)
{
    mr__list_push_front(head->prev, l);
}

/* Moves everything from one ring into another, empty one. */
static inline void mr__list_take_all(struct list *to, struct list *from)
{
    if (mr__list_is_empty(from)) {
        mr__list_init(to);
        return;
    }
    *to = *from;
    to->prev->next = to;
    to->next->prev = to;
    mr__list_init(from);
}

#endif
