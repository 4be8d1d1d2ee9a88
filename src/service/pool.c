/* SPDX-License-Identifier: MIT */
/*
 * The relay ports: opening them, and which one is next. Control thread. A port that was
 * in use rests for two timeouts, so that what a stale peer still sends meets nobody; the
 * next one is drawn at random, so that nobody can guess it. Start reading at
 * mr__pool_take().
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mr__pool_init(struct pool *pool)
{
    *pool = (struct pool){.n = 0};
    mr__list_init(&pool->quarantine);
    mr__list_init(&pool->used);
    return 0;
}

void mr__pool_deinit(struct service *s)
{
    struct pool *pool = &s->pool;

    for (size_t i = 0; i < pool->n; i++) {
        mr__tags_deinit(&pool->seats[i]->tags);
        mr__slots_release(s, &pool->seats[i]->slots);
        mr__dynamic_uncount(s, pool->seats[i]);
    }
    for (size_t i = 0; i < pool->n; i++) {
        mr__free(pool->seats[i]);
    }
    mr__free(pool->seats);
    mr__free(pool->by_port);
    mr__free(pool->ready);
    mr__pool_init(pool);
}

struct seat *mr__pool_seat(const struct service *s, uint32_t port)
{
    const struct pool *pool = &s->pool;

    return port < pool->n_by_port ? pool->by_port[port] : NULL;
}

size_t mr__pool_free(const struct service *s)
{
    return s->pool.n_ready + s->pool.n_quarantined;
}

/* ---- ready and resting --------------------------------------------------------------------- */

static void push_ready(struct pool *pool, struct seat *seat)
{
    seat->state = MR_SEAT_READY;
    seat->ready_at = (uint32_t)pool->n_ready;
    pool->ready[pool->n_ready++] = seat;
}

static struct seat *pop_ready(struct pool *pool, size_t at)
{
    struct seat *seat = pool->ready[at];
    struct seat *last = pool->ready[--pool->n_ready];

    pool->ready[at] = last;
    last->ready_at = (uint32_t)at;
    return seat;
}

static struct seat *pop_quarantined(struct pool *pool)
{
    struct seat *seat = MR_CONTAINER(pool->quarantine.next, struct seat, quarantine);

    mr__list_remove(&seat->quarantine);
    pool->n_quarantined--;
    return seat;
}

void mr__pool_release_due(struct service *s)
{
    struct pool *pool = &s->pool;
    uint64_t rest_ns = 2 * mr__settings_values(s->settings)->udp_relay_timeout_ns;

    while (pool->n_quarantined > 0) {
        const struct seat *seat = MR_CONTAINER(pool->quarantine.next, struct seat, quarantine);
        if (s->now_ns - seat->freed_ns < rest_ns) {
            return;
        }
        push_ready(pool, pop_quarantined(pool));
    }
}

struct seat *mr__pool_take(struct service *s)
{
    struct pool *pool = &s->pool;
    struct seat *seat;
    uint64_t place;

    mr__pool_release_due(s);
    if (pool->n_ready > 0) {
        if (mr__draw_below(s, pool->n_ready, &place) < 0) {
            return NULL; /* one that can be guessed is worse than none */
        }
        seat = pop_ready(pool, place);
    } else if (pool->n_quarantined > 0) {
        seat = pop_quarantined(pool);
    } else {
        return NULL;
    }
    seat->state = MR_SEAT_USED;
    return seat;
}

/* A free one. */
static void remove_seat(struct service *s, struct seat *seat)
{
    struct pool *pool = &s->pool;
    struct seat *last = pool->seats[--pool->n];

    if (seat->state == MR_SEAT_READY) {
        pop_ready(pool, seat->ready_at);
    } else if (seat->state == MR_SEAT_QUARANTINED) {
        mr__list_remove(&seat->quarantine);
        pool->n_quarantined--;
    }
    pool->seats[seat->at] = last;
    last->at = seat->at;
    mr__targets_end_at(s, seat->port);
    pool->by_port[seat->port] = NULL;
    mr_port_close(s->mr, seat->port);
    mr__knock_target_ended(s, seat->port);
    mr__free(seat);
}

void mr__pool_give_back(struct service *s, struct seat *seat, bool was_in_use)
{
    struct pool *pool = &s->pool;

    if (seat->is_leaving) {
        remove_seat(s, seat);
        return;
    }
    if (!was_in_use) {
        push_ready(pool, seat);
        return;
    }
    seat->state = MR_SEAT_QUARANTINED;
    seat->freed_ns = s->now_ns;
    mr__list_push_back(&pool->quarantine, &seat->quarantine);
    pool->n_quarantined++;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Room for one more seat at the engine's index. */
static int reserve_index(struct pool *pool, uint32_t port)
{
    if (port < pool->n_by_port) {
        return 0;
    }
    size_t n = pool->n_by_port ? pool->n_by_port : 64;
    while (n <= port) {
        n *= 2;
    }
    struct seat **by_port = mr__realloc(pool->by_port, n, sizeof(struct seat *));
    if (!by_port) {
        return -ENOMEM;
    }
    memset(by_port + pool->n_by_port, 0, (n - pool->n_by_port) * sizeof(struct seat *));
    pool->by_port = by_port;
    pool->n_by_port = n;
    return 0;
}

/* Room for more seats. */
static int reserve_seats(struct pool *pool, size_t more)
{
    size_t cap = pool->n + more;

    if (cap <= pool->cap) {
        return 0;
    }
    struct seat **seats = mr__realloc(pool->seats, cap, sizeof(struct seat *));
    if (!seats) {
        return -ENOMEM;
    }
    pool->seats = seats;
    struct seat **ready = mr__realloc(pool->ready, cap, sizeof(struct seat *));
    if (!ready) {
        return -ENOMEM;
    }
    pool->ready = ready;
    pool->cap = cap;
    return 0;
}

static void add_seat(struct pool *pool, struct seat *seat, uint32_t port,
                     const struct mr_port_info *info, bool is_any)
{
    *seat = (struct seat){
        .at = (uint32_t)pool->n, .port = port, .number = info->local.port, .is_any = is_any};
    mr__list_init(&seat->quarantine);
    mr__list_init(&seat->used);
    mr__list_init(&seat->owned);
    pool->by_port[port] = seat;
    pool->seats[pool->n++] = seat;
    push_ready(pool, seat);
}

static void note_failure(struct service *s, const struct mr_addr *local, int rc,
                         struct port_report *report)
{
    if (report->first_error == 0) {
        report->first_error = rc;
        report->first_failed = *local;
    }
    MR_LOG(s->log, MR_LOG_DEBUG, "relay", "port left out", LOG_UINT("port", local->port),
           LOG_STR("error", mr_strerror(rc)));
}

/* What the kernel refuses, for want of memory too, is one port; -ENOMEM is ours, and of the list.
 */
static int open_port(struct service *s, const struct mr_addr *local, struct port_report *report)
{
    struct pool *pool = &s->pool;
    unsigned dual = local->family == 6 && mr_addr_classify(local) & MR_ADDR_UNSPECIFIED
                        ? MR_PORT_DUAL_STACK
                        : 0;
    uint32_t asked = mr__settings_values(s->settings)->udp_buffer;
    struct mr_port_info info = {.rcvbuf = 0};
    struct seat *seat = mr__alloc(1, sizeof *seat);
    uint32_t port;

    if (!seat) {
        return -ENOMEM;
    }
    int rc = mr_port_open(s->mr, local, dual, &port);
    if (rc < 0) {
        note_failure(s, local, rc, report);
        rc = 0;
        goto free_seat;
    }
    rc = reserve_index(pool, port);
    if (rc == 0) {
        rc = mr_port_info(s->mr, port, &info);
    }
    if (rc < 0) {
        goto close_port;
    }
    add_seat(pool, seat, port, &info, local->port == 0);
    if (info.rcvbuf > 0 && (uint32_t)info.rcvbuf < asked &&
        (report->clamped_rcvbuf == 0 || (uint32_t)info.rcvbuf < report->clamped_rcvbuf)) {
        report->clamped_rcvbuf = (uint32_t)info.rcvbuf;
    }
    report->opened++;
    return 0;

close_port:
    mr_port_close(s->mr, port);
free_seat:
    mr__free(seat);
    return rc;
}

static int compare_numbers(const void *a, const void *b)
{
    return (int)*(const uint16_t *)a - (int)*(const uint16_t *)b;
}

/* "31000-31007,31010/udp" */
static void format_ranges(const struct pool *pool, char *buf, size_t cap)
{
    uint16_t *numbers = mr__alloc(pool->n, sizeof *numbers);
    size_t n = 0;

    buf[0] = '\0';
    if (!numbers) {
        return;
    }
    for (size_t i = 0; i < pool->n; i++) {
        numbers[i] = pool->seats[i]->number;
    }
    qsort(numbers, pool->n, sizeof *numbers, compare_numbers);
    for (size_t i = 0, end; i < pool->n; i = end) {
        for (end = i + 1; end < pool->n && numbers[end] <= numbers[end - 1] + 1; end++) {
        }
        if (n + 24 > cap) { /* "65535-65535,.../udp" must still fit */
            n += (size_t)snprintf(buf + n, cap - n, ",...");
            break;
        }
        n += (size_t)snprintf(buf + n, cap - n, "%s%u", n ? "," : "", numbers[i]);
        if (numbers[end - 1] != numbers[i]) {
            n += (size_t)snprintf(buf + n, cap - n, "-%u", numbers[end - 1]);
        }
    }
    snprintf(buf + n, cap - n, "/udp");
    mr__free(numbers);
}

/* ---- the list ------------------------------------------------------------------------------ */

static bool is_listed(const struct port_list *list, uint16_t number)
{
    return list->n > 0 && bsearch(&number, list->ports, list->n, sizeof number, compare_numbers);
}

/* By number: what the list names, how many of the kernel's choice it has room for. */
struct wanted {
    const struct port_list *list;
    bool *is_open; /* [65536] */
    size_t any;    /* of the kernel's choice that are open and stay */
};

static bool is_staying(struct wanted *w, const struct seat *seat)
{
    if (is_listed(w->list, seat->number)) {
        return true;
    }
    return seat->is_any && w->any < w->list->any && ++w->any;
}

/* What is open already, those with a relay first: of those of the kernel's choice they stay. */
static void look_at_open(const struct pool *pool, struct wanted *w, bool *stays)
{
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < pool->n; i++) {
            const struct seat *seat = pool->seats[i];
            if ((seat->state == MR_SEAT_USED) == (round == 0)) {
                stays[i] = is_staying(w, seat);
                w->is_open[seat->number] = true;
            }
        }
    }
}

static int open_one(struct service *s, uint16_t number, struct port_report *report)
{
    struct mr_addr local = s->udp_host;

    local.port = number;
    report->asked++;
    return open_port(s, &local, report);
}

static int open_missing(struct service *s, const struct wanted *w, struct port_report *report)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < w->list->n; i++) {
        if (!w->is_open[w->list->ports[i]]) {
            rc = open_one(s, w->list->ports[i], report);
        }
    }
    for (size_t i = w->any; rc == 0 && i < w->list->any; i++) {
        rc = open_one(s, 0, report);
    }
    return rc;
}

/* Backwards, since the last one takes the place of one that goes. */
static void let_go(struct service *s, const bool *stays, size_t n, struct port_report *report)
{
    for (size_t i = n; i-- > 0;) {
        struct seat *seat = s->pool.seats[i];

        seat->is_leaving = !stays[i];
        if (stays[i]) {
            continue;
        }
        if (seat->state == MR_SEAT_USED) {
            report->draining++;
        } else {
            remove_seat(s, seat);
            report->closed++;
        }
    }
}

static void close_from(struct service *s, size_t first)
{
    while (s->pool.n > first) {
        remove_seat(s, s->pool.seats[s->pool.n - 1]);
    }
}

/*
 * New ports are opened before old ones are let go, so that a list that cannot be had
 * leaves everything as it was. A port that was leaving and is listed again stays.
 */
int mr__pool_adjust(struct service *s, const struct port_list *list, struct port_report *report)
{
    struct pool *pool = &s->pool;
    size_t before = pool->n, staying = 0;
    struct wanted w = {.list = list, .is_open = mr__alloc(65536, sizeof *w.is_open)};
    bool *stays = mr__alloc(before + 1, sizeof *stays);
    int rc = w.is_open && stays ? reserve_seats(pool, list->n + list->any) : -ENOMEM;

    *report = (struct port_report){.asked = 0};
    if (rc == 0) {
        look_at_open(pool, &w, stays);
        for (size_t i = 0; i < before; i++) {
            staying += stays[i];
        }
        rc = open_missing(s, &w, report);
    }
    if (rc == 0 && report->opened + staying == 0) {
        rc = report->first_error ? report->first_error : -EINVAL;
    }
    if (rc < 0) {
        close_from(s, before);
    } else {
        let_go(s, stays, before, report);
        format_ranges(pool, report->ranges, sizeof report->ranges);
    }
    mr__free(w.is_open);
    mr__free(stays);
    return rc;
}

int mr__service_open_ports(struct service *s, struct port_report *report)
{
    return mr__pool_adjust(s, &mr__settings_values(s->settings)->udp_relay_ports, report);
}
