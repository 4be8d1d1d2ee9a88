/* SPDX-License-Identifier: MIT */
/*
 * What the caps per address count: the connections and dynamic relays of one customer, who
 * has an address in IPv4 and a /64 in IPv6. Control thread. Every such cap asks
 * mr__source_is_exempt(), so that caps_exempt means the same everywhere.
 */
#include "service/state.h"

#include "base/alloc.h"

enum {
    /* Refusals of connections that are answered. Above it they are closed without a word, or
     * whoever opens thousands a second would hold all places with ones that end politely. */
    ANSWERS_BURST = 1024,
    ANSWERS_PER_SECOND = 64,
};

bool mr__source_is_exempt(const struct service *s, const struct mr_addr *from)
{
    return mr__nets_contain(&s->caps_exempt, from);
}

struct source *mr__source_find(const struct service *s, const struct mr_addr *from)
{
    struct mr_addr net = mr_addr_net(from);
    uint64_t hash = mr__table_hash(&s->key, &net, sizeof(struct mr_addr));

    for (struct table_node *n = mr__table_first(&s->sources, hash); n; n = mr__table_next(n)) {
        struct source *source = MR_CONTAINER(n, struct source, node);
        if (mr_addr_equal(&source->net, &net)) {
            return source;
        }
    }
    return NULL;
}

struct source *mr__source_get(struct service *s, const struct mr_addr *from)
{
    struct source *source = mr__source_find(s, from);

    if (source) {
        return source;
    }
    source = mr__alloc(1, sizeof *source);
    if (source) {
        source->net = mr_addr_net(from);
        mr__table_add(&s->sources, &source->node,
                      mr__table_hash(&s->key, &source->net, sizeof(struct mr_addr)));
    }
    return source;
}

void mr__source_put(struct service *s, struct source *source)
{
    if (source->connections == 0 && source->dynamics == 0) {
        mr__table_remove(&s->sources, &source->node);
        mr__free(source);
    }
}

bool mr__source_is_full(const struct service *s, const struct source *source,
                        const struct mr_addr *from)
{
    return source->connections >= mr__settings_values(s->settings)->max_connections_per_address &&
           !mr__source_is_exempt(s, from);
}

bool mr__source_may_answer(struct service *s, struct source *source)
{
    const struct pace pace = {1000000000 / ANSWERS_PER_SECOND, ANSWERS_BURST};

    return mr__pace_take(&source->answers_full_ns, pace, s->now_ns);
}
