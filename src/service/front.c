/* SPDX-License-Identifier: MIT */
/*
 * Ports that are open to everybody (the config's `ports`): each new flow is asked about,
 * and what admits it names the server that it goes on to. Control thread. They have no
 * relay of their own; the flows' relays sit at ports of the pool (target.c). Start reading
 * at mr__service_open_fronts().
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

void mr__fronts_init(struct service *s)
{
    mr__list_init(&s->fronts);
}

static uint64_t hash_of(const struct service *s, uint32_t port)
{
    return mr__table_hash(&s->key, &port, sizeof port);
}

struct front *mr__front_at(const struct service *s, uint32_t port)
{
    struct table_node *n =
        s->front_index.n > 0 ? mr__table_first(&s->front_index, hash_of(s, port)) : NULL;

    for (; n; n = mr__table_next(n)) {
        struct front *front = MR_CONTAINER(n, struct front, node);
        if (front->port == port) {
            return front;
        }
    }
    return NULL;
}

static void free_front(struct service *s, struct front *front)
{
    mr__table_remove(&s->front_index, &front->node);
    mr__list_remove(&front->link);
    mr__grant_deinit(&front->preset);
    mr__free(front);
}

void mr__fronts_destroy(struct service *s)
{
    while (!mr__list_is_empty(&s->fronts)) {
        free_front(s, MR_CONTAINER(s->fronts.next, struct front, link));
    }
}

void mr__misses_watch(struct service *s)
{
    /* Where flows go to targets an answer may come before a worker knows its link, and is held. */
    bool are_flows = !mr__list_is_empty(&s->fronts);

    /* Nor is a stranger one for sure while he may be a player whom we connected just now. */
    mr_set_miss_events(s->mr, mr__ask_is_wanted(s, MR_HOOK_DROP) || are_flows || s->n_latches > 0);
}

/* ---- flows --------------------------------------------------------------------------------- */

static void close_front(struct service *s, struct front *front)
{
    uint32_t port = front->port;

    free_front(s, front);
    mr_port_close(s->mr, port);
    mr__knock_target_ended(s, port);
}

static uint32_t *flows_at(const struct service *s, uint32_t port)
{
    struct front *front = mr__front_at(s, port);
    struct seat *seat = mr__pool_seat(s, port);

    return front ? &front->flows_in : seat ? &seat->flows_in : NULL;
}

void mr__entry_count(struct service *s, uint32_t port)
{
    uint32_t *n = flows_at(s, port);

    if (n) {
        ++*n;
    }
}

void mr__entry_uncount(struct service *s, uint32_t port)
{
    uint32_t *n = flows_at(s, port);
    struct front *front = mr__front_at(s, port);

    if (n && *n > 0) {
        --*n;
    }
    if (front && front->is_leaving && front->flows_in == 0) {
        close_front(s, front);
    }
}

/* ---- opening ------------------------------------------------------------------------------- */

static int set_preset(struct front *front, const struct open_port *from)
{
    const struct hook_answer answer = {
        .spec = from->spec, .tags = from->tags, .slots = from->slots, .n_slots = from->n_slots};
    struct grant preset = {.n_slots = 0};
    int rc = mr__grant_merge(&preset, &answer);

    if (rc < 0) {
        mr__grant_deinit(&preset);
        return rc;
    }
    mr__grant_deinit(&front->preset);
    front->preset = preset;
    return 0;
}

static int open_front(struct service *s, const struct open_port *from)
{
    struct mr_addr local = s->udp_host;
    unsigned flags = MR_PORT_OPEN;
    struct front *front = mr__alloc(1, sizeof *front);
    struct mr_port_info info = {.rcvbuf = 0};
    int rc = front ? set_preset(front, from) : -ENOMEM;

    if (rc < 0) {
        mr__free(front);
        return rc;
    }
    local.port = from->number;
    flags |= local.family == 6 && mr_addr_classify(&local) & MR_ADDR_UNSPECIFIED
                 ? MR_PORT_DUAL_STACK
                 : 0;
    rc = mr_port_open(s->mr, &local, flags, &front->port);
    if (rc == 0) {
        rc = mr_port_info(s->mr, front->port, &info);
    }
    if (rc < 0) {
        mr__grant_deinit(&front->preset);
        mr__free(front);
        return rc;
    }
    front->number = info.local.port;
    front->is_any = from->number == 0;
    mr__list_push_back(&s->fronts, &front->link);
    mr__table_add(&s->front_index, &front->node, hash_of(s, front->port));
    return 0;
}

static struct front *find_front(const struct service *s, uint16_t number)
{
    for (struct list *l = s->fronts.next; l != &s->fronts; l = l->next) {
        struct front *front = MR_CONTAINER(l, struct front, link);
        if (number == 0 ? front->is_any : front->number == number) {
            return front;
        }
    }
    return NULL;
}

/* One that is there has the table's new presets for what comes; 1: it was opened. */
static int have_front(struct service *s, const struct open_port *from)
{
    struct front *front = find_front(s, from->number);
    int rc;

    if (!front) {
        rc = open_front(s, from);
        return rc < 0 ? rc : 1;
    }
    rc = set_preset(front, from);
    front->is_leaving = front->is_leaving && rc < 0;
    return rc;
}

static bool is_listed(const struct front *front, const struct open_port *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i].number == (front->is_any ? 0 : front->number)) {
            return true;
        }
    }
    return false;
}

static void let_go(struct service *s, const struct open_port *list, size_t n,
                   struct open_report *report)
{
    struct list *next;

    for (struct list *l = s->fronts.next; l != &s->fronts; l = next) {
        struct front *front = MR_CONTAINER(l, struct front, link);

        next = l->next;
        if (is_listed(front, list, n)) {
            continue;
        }
        front->is_leaving = true;
        if (front->flows_in > 0) {
            report->draining++;
        } else {
            close_front(s, front);
            report->closed++;
        }
    }
}

void mr__service_open_fronts(struct service *s, const struct open_port *list, size_t n,
                             struct open_report *report, uint64_t now_ns)
{
    *report = (struct open_report){.opened = 0};
    mr__turn_begin(s, now_ns);
    /* Old ones first: the kernel's choice for a new one is not one that goes. */
    let_go(s, list, n, report);
    for (size_t i = 0; i < n; i++) {
        int rc = have_front(s, &list[i]);

        report->opened += rc > 0;
        if (rc < 0 && report->failed++ == 0) {
            report->first_error = rc;
            report->first_failed = s->udp_host;
            report->first_failed.port = list[i].number;
            report->first_place = list[i].place;
        }
    }
    mr__misses_watch(s);
    mr__turn_end(s);
}

bool mr__service_front(const struct service *s, size_t i, struct open_port_info *out)
{
    for (struct list *l = s->fronts.next; l != &s->fronts; l = l->next, i--) {
        const struct front *front = MR_CONTAINER(l, struct front, link);
        struct mr_port_info info;

        if (i == 0) {
            *out =
                (struct open_port_info){.flows = front->flows_in, .is_leaving = front->is_leaving};
            if (mr_port_info(s->mr, front->port, &info) == 0) {
                out->local = info.local;
            }
            return true;
        }
    }
    return false;
}
