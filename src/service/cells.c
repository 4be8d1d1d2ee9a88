/* SPDX-License-Identifier: MIT */
/*
 * See cells.h. Only the addresses of the parts are ever copied, one for 512 cells: of ten
 * million cells that is less than 200 KB. Control thread.
 */
#include "service/cells.h"

#include "base/alloc.h"

#include <errno.h>

enum { FIRST_PARTS = 4 };

static int add_part(struct cells *c)
{
    if (c->n == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : FIRST_PARTS;
        void ***parts = mr__realloc(c->parts, cap, sizeof *parts);
        if (!parts) {
            return -ENOMEM;
        }
        c->parts = parts;
        c->cap = cap;
    }
    c->parts[c->n] = mr__alloc(MR_CELLS_PART, sizeof(void *));
    if (!c->parts[c->n]) {
        return -ENOMEM;
    }
    c->n++;
    return 0;
}

int mr__cells_reserve(struct cells *c, size_t n)
{
    while (c->n * MR_CELLS_PART < n) {
        int rc = add_part(c);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

void mr__cells_shrink(struct cells *c, size_t n)
{
    size_t keep = (n + MR_CELLS_PART - 1) / MR_CELLS_PART + 1;

    while (c->n > keep) {
        mr__free(c->parts[--c->n]);
    }
}

void mr__cells_deinit(struct cells *c)
{
    while (c->n > 0) {
        mr__free(c->parts[--c->n]);
    }
    mr__free(c->parts);
    *c = (struct cells){.n = 0};
}
