/* SPDX-License-Identifier: MIT */
/*
 * Lists of networks, looked through one by one: they come from a setting and are short.
 * Control thread.
 */
#include "service/nets.h"

#include "base/alloc.h"
#include "service/cidr.h"

#include <errno.h>
#include <string.h>

bool mr__net_parse(struct net *out, const char *text, size_t n)
{
    return mr__cidr_net((struct str){text, n}, &out->base, &out->bits);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static int add(struct nets *nets, const char *text, size_t n)
{
    struct net net;

    while (n > 0 && is_space(text[0])) {
        text++;
        n--;
    }
    while (n > 0 && is_space(text[n - 1])) {
        n--;
    }
    if (!mr__net_parse(&net, text, n)) {
        return -EINVAL;
    }
    struct net *items = mr__realloc(nets->items, nets->n + 1, sizeof *items);
    if (!items) {
        return -ENOMEM;
    }
    nets->items = items;
    items[nets->n++] = net;
    return 0;
}

int mr__nets_parse(struct nets *out, const char *text, size_t n)
{
    struct nets nets = {.n = 0};
    size_t start = 0;

    while (n > 0 && start <= n) {
        const char *comma = start < n ? memchr(text + start, ',', n - start) : NULL;
        size_t end = comma ? (size_t)(comma - text) : n;
        int rc = add(&nets, text + start, end - start);
        if (rc < 0) {
            mr__nets_deinit(&nets);
            return rc;
        }
        start = end + 1;
    }
    *out = nets;
    return 0;
}

void mr__nets_deinit(struct nets *nets)
{
    mr__free(nets->items);
    *nets = (struct nets){.n = 0};
}

static bool is_in(const struct net *net, const struct mr_addr *a)
{
    unsigned whole = net->bits / 8, rest = net->bits % 8;

    if (net->base.family != a->family || memcmp(net->base.ip, a->ip, whole) != 0) {
        return false;
    }
    return rest == 0 || (net->base.ip[whole] ^ a->ip[whole]) >> (8 - rest) == 0;
}

bool mr__nets_contain(const struct nets *nets, const struct mr_addr *a)
{
    for (size_t i = 0; i < nets->n; i++) {
        if (is_in(&nets->items[i], a)) {
            return true;
        }
    }
    return false;
}
