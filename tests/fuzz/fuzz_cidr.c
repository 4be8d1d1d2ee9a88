/* SPDX-License-Identifier: MIT */
/*
 * A text of networks, any bytes: it is read or refused with one line that names the line;
 * ranges are sorted and disjoint, each one is found at both of its ends; nothing leaks.
 */
#include "base/alloc.h"
#include "service/cidr.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

static void check_v4(const struct cidr *c)
{
    const struct mr_nets *nets = mr__cidr_ranges(c);

    for (uint32_t i = 0; i < nets->n4; i++) {
        const struct mr_range4 *r = &nets->v4[i];
        struct mr_addr a = {.family = 4,
                            .ip = {(uint8_t)(r->last >> 24), (uint8_t)(r->last >> 16),
                                   (uint8_t)(r->last >> 8), (uint8_t)r->last}};

        require(r->first <= r->last);
        require(i == 0 || nets->v4[i - 1].last < r->first);
        require(mr__cidr_find(c, &a) == r->value);
        struct str v = mr__cidr_value(c, r->value);
        require(v.n == 0 || (v.s[0] != ' ' && v.s[v.n - 1] != '\r'));
    }
}

static void check_v6(const struct cidr *c)
{
    const struct mr_nets *nets = mr__cidr_ranges(c);

    for (uint32_t i = 0; i < nets->n6; i++) {
        const struct mr_range6 *r = &nets->v6[i];
        struct mr_addr a = {.family = 6};

        memcpy(a.ip, r->first, 16);
        require(memcmp(r->first, r->last, 16) <= 0);
        require(i == 0 || memcmp(nets->v6[i - 1].last, r->first, 16) < 0);
        require(mr_nets_find(nets, &a) == r->value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[MR_CIDR_WHY_MAX] = "";
    struct cidr *c = NULL;
    int rc = mr__cidr_parse(&c, (const char *)data, size, why);

    if (rc < 0) {
        require(c == NULL && strncmp(why, "line ", 5) == 0 && !strchr(why, '\n'));
    } else {
        check_v4(c);
        check_v6(c);
        mr__cidr_unref(c);
    }
    require(mr__alloc_live() == 0);
    return 0;
}
