/* SPDX-License-Identifier: MIT */
/* See config_port.h. Control thread. */
#include "script/config_port.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

static struct str copy(char **at, struct str from)
{
    struct str to = {*at, from.n};

    if (from.n > 0) {
        memcpy(*at, from.s, from.n);
        *at += from.n;
    }
    return to;
}

/* Pairs, slots and then all texts, in one block. */
static int copy_answer(const struct answer *from, struct config_port *out)
{
    size_t bytes =
        from->n_tags * sizeof(struct hook_pair) + from->n_slots * sizeof(struct hook_slot) + 1;
    struct hook_pair *tags;
    struct hook_slot *slots;
    char *text;

    for (size_t i = 0; i < from->n_tags; i++) {
        bytes += from->tags[i].key.n + from->tags[i].value.n;
    }
    for (size_t i = 0; i < from->n_slots; i++) {
        bytes += from->slots[i].key.n;
    }
    tags = mr__alloc(1, bytes);
    if (!tags) {
        return -ENOMEM;
    }
    slots = (struct hook_slot *)(void *)(tags + from->n_tags);
    text = (char *)(slots + from->n_slots);
    for (size_t i = 0; i < from->n_tags; i++) {
        tags[i].key = copy(&text, from->tags[i].key);
        tags[i].value = copy(&text, from->tags[i].value);
    }
    for (size_t i = 0; i < from->n_slots; i++) {
        slots[i] = (struct hook_slot){copy(&text, from->slots[i].key), from->slots[i].max};
    }
    *out = (struct config_port){.port = {.spec = from->spec,
                                         .tags = {tags, from->n_tags},
                                         .slots = slots,
                                         .n_slots = from->n_slots},
                                .memory = tags};
    return 0;
}

int mr__config_port_read(lua_State *L, struct config_port *out, char why[ANSWER_WHY_MAX])
{
    struct answer answer;
    int rc = mr__answer_read_spec(L, lua_gettop(L), &answer, why);

    return rc < 0 ? rc : copy_answer(&answer, out);
}

void mr__config_port_deinit(struct config_port *p)
{
    mr__free(p->memory);
    mr__free(p->place);
}
