/* SPDX-License-Identifier: MIT */
/*
 * The nets whose unexpected datagrams are dropped. Workers look at an immutable copy; a new
 * one is published by a command, and the old one is freed when that is in force: nobody
 * looks at it then. Control thread. Start reading at mr_set_blocked().
 */
#include "engine/engine.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

static int are_sorted(const struct mr_nets *nets)
{
    for (uint32_t i = 0; i < nets->n4; i++) {
        const struct mr_range4 *r = &nets->v4[i];

        if (r->first > r->last || (i > 0 && nets->v4[i - 1].last >= r->first))
            return 0;
    }
    for (uint32_t i = 0; i < nets->n6; i++) {
        const struct mr_range6 *r = &nets->v6[i];

        if (memcmp(r->first, r->last, 16) > 0 ||
            (i > 0 && memcmp(nets->v6[i - 1].last, r->first, 16) >= 0))
            return 0;
    }
    return 1;
}

static void free_copy(struct blocked *b)
{
    if (!b)
        return;
    mr__free(b->v4);
    mr__free(b->v6);
    mr__free(b);
}

static struct blocked *copy(const struct mr_nets *nets)
{
    struct blocked *b = mr__alloc(1, sizeof *b);

    if (!b)
        return NULL;
    b->v4 = mr__alloc(nets->n4, sizeof *b->v4);
    b->v6 = mr__alloc(nets->n6, sizeof *b->v6);
    if (!b->v4 || !b->v6) {
        free_copy(b);
        return NULL;
    }
    if (nets->n4)
        memcpy(b->v4, nets->v4, nets->n4 * sizeof *b->v4);
    if (nets->n6)
        memcpy(b->v6, nets->v6, nets->n6 * sizeof *b->v6);
    b->nets = (struct mr_nets){.v4 = b->v4, .v6 = b->v6, .n4 = nets->n4, .n6 = nets->n6};
    return b;
}

int mr_set_blocked(struct mr *mr, const struct mr_nets *nets)
{
    struct blocked *next = NULL;
    struct command *c;

    if (nets && nets->n4 + (uint64_t)nets->n6 > 0) {
        if (!are_sorted(nets))
            return -EINVAL;
        next = copy(nets);
        if (!next)
            return -ENOMEM;
    }
    if (!next && !mr->blocked)
        return 0;
    c = mr__control_command(mr, COMMAND_BLOCKED, 0);
    c->u.nets = next ? &next->nets : NULL;
    mr__control_send(mr);
    mr->tables.plane.blocked = next ? &next->nets : NULL; /* mr_decide() */
    if (mr->blocked) {
        mr->blocked->seq = mr->log.last;
        *mr->last_replaced = mr->blocked;
        mr->last_replaced = &mr->blocked->next;
    }
    mr->blocked = next;
    return 0;
}

void mr__blocked_run(struct mr *mr, uint64_t in_force)
{
    while (mr->first_replaced && mr->first_replaced->seq <= in_force) {
        struct blocked *next = mr->first_replaced->next;

        free_copy(mr->first_replaced);
        mr->first_replaced = next;
    }
    if (!mr->first_replaced)
        mr->last_replaced = &mr->first_replaced;
}

void mr__blocked_destroy(struct mr *mr)
{
    mr__blocked_run(mr, UINT64_MAX);
    free_copy(mr->blocked);
}
