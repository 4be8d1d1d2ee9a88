/* SPDX-License-Identifier: MIT */
/*
 * The service as a whole: life, turns, time, readiness. Control thread. Everything that
 * happens is a turn (state.h); start reading at mr__turn_end().
 */
#include "service/state.h"
#include "service/store.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    PORTS_ROOM_MIN = 8192, /* a few reloads' worth; what is not used costs no memory */
    PORTS_ROOM_MAX = 65536,
};

/* ---- turns --------------------------------------------------------------------------------- */

void mr__turn_begin(struct service *s, uint64_t now_ns)
{
    if (now_ns > s->now_ns) {
        s->now_ns = now_ns;
    }
    s->depth++;
}

static uint64_t spent_ns(const struct service *s)
{
    return s->hooks && s->hooks->spent_ns ? s->hooks->spent_ns(s->hooks->self) : 0;
}

bool mr__turn_is_spent(const struct service *s)
{
    if (s->hooks && s->hooks->spent_ns) {
        return spent_ns(s) - s->spent_before >= (uint64_t)MR_SCRIPT_MS_PER_TICK * 1000000;
    }
    return s->asked >= MR_ASKS_PER_TICK;
}

/*
 * What a turn made possible is done at its end and not from inside of it, so that no
 * command runs in the middle of another one. It is bounded: what is left stays for the
 * next turn, for which mr__service_deadline() asks at once. Tasks that had to wait for policies'
 * sake keep their place before those of a later tick, so that each has its turn. What shall end
 * ends in any case, before anything else is carried out.
 */
static void run_tasks(struct service *s)
{
    unsigned left = MR_TASKS_PER_TURN;

    for (;;) {
        mr__sessions_end_due(s);
        if (left > 0 && !mr__list_is_empty(&s->ready) && !mr__turn_is_spent(s)) {
            struct task *task = MR_CONTAINER(s->ready.next, struct task, link);
            mr__list_remove(&task->link);
            task->run(s, task);
            left--;
            continue;
        }
        uint64_t seq = mr_in_force(s->mr);
        mr__registrar_in_force(s, seq);
        mr__join_in_force(s, seq);
        if (left == 0 || mr__list_is_empty(&s->ready) || mr__turn_is_spent(s)) {
            return;
        }
    }
}

void mr__turn_end(struct service *s)
{
    if (s->depth == 1) {
        run_tasks(s);
        mr__blocks_run(s);
        mr__connections_bury(s);
    }
    s->depth--;
}

void mr__task_ready(struct service *s, struct task *task)
{
    mr__list_remove(&task->link);
    mr__list_push_back(&s->ready, &task->link);
}

void mr__task_later(struct service *s, struct task *task)
{
    mr__list_remove(&task->link);
    mr__list_push_back(&s->later, &task->link);
}

static void take_later(struct service *s)
{
    while (!mr__list_is_empty(&s->later)) {
        mr__task_ready(s, MR_CONTAINER(s->later.next, struct task, link));
    }
}

uint64_t mr__service_hash(const struct service *s, const void *data, size_t n)
{
    return mr__table_hash(&s->key, data, n);
}

double mr__wall(const struct service *s)
{
    return s->wall_s ? s->wall_s(s->out.user) : 0;
}

/* ---- life ---------------------------------------------------------------------------------- */

/* A reload opens the ports of another list before it lets go of the old ones. */
static uint32_t room_for_ports(const struct port_list *list)
{
    size_t n = 2 * (list->n + list->any);

    n = n > PORTS_ROOM_MIN ? n : PORTS_ROOM_MIN;
    return (uint32_t)(n < PORTS_ROOM_MAX ? n : PORTS_ROOM_MAX);
}

void mr__service_engine_options(const struct settings_values *v, struct mr_options *o)
{
    o->workers = v->workers;
    o->pairing = v->pairing_open ? MR_PAIRING_OPEN : MR_PAIRING_PAIRED;
    o->max_ports = room_for_ports(&v->udp_relay_ports);
    o->socket_buffer_bytes = v->udp_buffer;
    o->limits.relay_bytes_per_s = v->max_individual_traffic;
    o->limits.global_bytes_per_s = v->max_global_traffic;
    o->limits.burst_ns = v->traffic_interval_ns;
    o->limits.life_ns = v->max_lifetime_duration_ns;
    o->limits.life_bytes = v->max_lifetime_traffic;
    o->limits.idle_ns = v->udp_relay_timeout_ns;
    o->hold.datagrams = v->hold_datagrams;
    o->hold.bytes = v->hold_bytes;
    o->hold.time_ns = v->hold_time_ns;
    o->hold.flows = v->hold_flows;
    o->hold.memory_bytes = v->hold_memory;
}

/* What of them can change while traffic flows. */
static void change_engine(struct service *s, const struct settings_values *v)
{
    struct mr_options o;

    mr_options_init(&o, sizeof o);
    mr__service_engine_options(v, &o);
    mr_set_limits(s->mr, &o.limits);
    mr_set_hold(s->mr, &o.hold);
}

static void init_lists(struct service *s)
{
    mr__list_init(&s->all_connections);
    mr__list_init(&s->dead_connections);
    mr__list_init(&s->all_sessions);
    mr__list_init(&s->ending);
    mr__list_init(&s->unwelcomes);
    mr__list_init(&s->ready);
    mr__list_init(&s->later);
    mr__list_init(&s->waiting);
    mr__list_init(&s->moving);
    mr__list_init(&s->slowed);
    mr__list_init(&s->late);
    mr__knocks_init(s);
    mr__lookups_init(s);
    mr__notices_init(s);
    mr__list_init(&s->gone);
    mr__list_init(&s->latches);
    mr__fronts_init(s);
    mr__list_init(&s->openings);
    mr__blocks_init(s);
}

static struct table *table_at(struct service *s, unsigned i)
{
    struct table *const tables[] = {
        &s->blocks.table, &s->connections, &s->sessions,   &s->oids,    &s->pids,
        &s->places,       &s->slots,       &s->makings,    &s->sources, &s->knowns,
        &s->unwelcome,    &s->front_index, &s->latch_sides};

    return i < sizeof tables / sizeof tables[0] ? tables[i] : NULL;
}

static int init_tables(struct service *s)
{
    struct table *t;

    for (unsigned i = 0; (t = table_at(s, i)) != NULL; i++) {
        int rc = mr__table_init(t);
        if (rc < 0) {
            return rc;
        }
    }
    int rc = mr__budget_init(&s->budgets);
    return rc < 0 ? rc : mr__budget_init(&s->wrong_oids);
}

/* Texts of settings that are kept parsed; they were checked when they were read. */
struct parsed {
    struct mr_addr public_address;
    struct nets exempt, allow, deny;
};

static void free_nets(struct parsed *p)
{
    mr__nets_deinit(&p->exempt);
    mr__nets_deinit(&p->allow);
    mr__nets_deinit(&p->deny);
}

static int parse_nets(struct parsed *p, const struct settings_values *v)
{
    int rc = mr__nets_parse(&p->exempt, v->caps_exempt, strlen(v->caps_exempt));

    if (rc == 0) {
        rc = mr__nets_parse(&p->allow, v->allow_peers, strlen(v->allow_peers));
    }
    if (rc == 0) {
        rc = mr__nets_parse(&p->deny, v->deny_peers, strlen(v->deny_peers));
    }
    if (rc < 0) {
        free_nets(p);
    }
    return rc;
}

static int parse_settings(struct parsed *p, const struct settings_values *v)
{
    const char *public = v->public_address;

    *p = (struct parsed){.public_address = {.family = 0}};
    if (public[0] &&
        mr_addr_parse_ip(&p->public_address, public, strlen(public), NULL) != MR_ADDR_OK) {
        return -EINVAL;
    }
    return parse_nets(p, v);
}

static void free_lists(struct service *s)
{
    mr__nets_deinit(&s->caps_exempt);
    mr__nets_deinit(&s->allow_peers);
    mr__nets_deinit(&s->deny_peers);
}

static void use_parsed(struct service *s, const struct parsed *p)
{
    free_lists(s);
    s->caps_exempt = p->exempt;
    s->allow_peers = p->allow;
    s->deny_peers = p->deny;
    s->public_address = p->public_address;
    int rc = mr_set_public_ip(s->mr, &s->public_address);
    if (rc < 0) { /* room for it is always there */
        MR_LOG(s->log, MR_LOG_WARN, "server", "public_address is not known as our own",
               LOG_STR("error", mr_strerror(rc)));
    }
}

/* A name is the wildcard until whoever opens sockets has looked it up; in relay.testing it stays
 * so.
 */
static void read_udp_host(struct service *s, const char *host)
{
    if (mr_addr_parse_ip(&s->udp_host, host, strlen(host), NULL) != MR_ADDR_OK) {
        s->udp_host = (struct mr_addr){.family = 4};
    }
}

static int read_settings(struct service *s)
{
    const struct settings_values *v = mr__settings_values(s->settings);
    struct parsed parsed;
    int rc = parse_settings(&parsed, v);

    if (rc == 0) {
        use_parsed(s, &parsed);
        read_udp_host(s, v->udp_host);
    }
    return rc;
}

void mr__service_set_udp_host(struct service *s, const struct mr_addr *host)
{
    s->udp_host = *host;
    s->udp_host.port = 0;
}

int mr__service_create(struct service **out, const struct service_options *opts, uint64_t now_ns)
{
    struct service *s = mr__alloc(1, sizeof *s);

    if (!s) {
        return -ENOMEM;
    }
    s->settings = opts->settings;
    s->mr = opts->mr;
    s->log = opts->log;
    s->out = opts->out;
    s->wall_s = opts->wall_s;
    s->now_ns = now_ns;
    s->next_ping_ns = now_ns;
    init_lists(s);
    mr__pool_init(&s->pool);
    int rc = s->out.random(s->out.user, &s->key, sizeof s->key);
    s->stores = rc < 0 ? NULL : mr__stores_create(&s->key);
    if (rc == 0) {
        rc = s->stores ? init_tables(s) : -ENOMEM;
    }
    if (rc == 0) {
        rc = read_settings(s);
    }
    if (rc < 0) {
        mr__service_destroy(s);
        return rc;
    }
    mr_set_miss_events(s->mr, 0);
    *out = s;
    return 0;
}

void mr__service_destroy(struct service *s)
{
    struct table *t;

    if (!s) {
        return;
    }
    s->is_over = true;
    mr__notices_destroy(s);
    mr__openings_destroy(s);
    mr__knocks_destroy(s);
    mr__lookups_destroy(s);
    mr__connections_destroy(s);
    mr__pool_deinit(s);
    mr__fronts_destroy(s);
    mr__known_destroy(s);
    mr__latches_destroy(s);
    mr__unwelcome_destroy(s);
    mr__blocks_destroy(s);
    for (unsigned i = 0; (t = table_at(s, i)) != NULL; i++) {
        mr__table_deinit(t);
    }
    mr__stores_destroy(s->stores);
    free_lists(s);
    mr__free(s->budgets);
    mr__free(s->wrong_oids);
    mr__free(s->sources_of_metrics);
    explicit_bzero(s->entropy, sizeof s->entropy);
    mr__free(s);
}

void mr__service_set_hooks(struct service *s, const struct hooks *hooks)
{
    s->hooks = hooks;
    s->spent_before = spent_ns(s);
    mr__misses_watch(s);
}

void mr__service_observe(struct service *s,
                         void (*ended)(void *user, const struct service_outcome *o), void *user)
{
    s->ended = ended;
    s->ended_user = user;
}

/* ---- settings ------------------------------------------------------------------------------ */

/* What cannot fail comes after what can. */
static int apply_settings(struct service *s, const struct settings *fresh,
                          struct port_report *report)
{
    const struct settings_values *v = mr__settings_values(fresh);
    struct parsed parsed;
    int rc = parse_settings(&parsed, v);

    if (rc < 0) {
        return rc;
    }
    rc = mr__pool_adjust(s, &v->udp_relay_ports, report);
    if (rc < 0) {
        free_nets(&parsed);
        return rc;
    }
    use_parsed(s, &parsed);
    s->settings = fresh;
    change_engine(s, v);
    s->oids_used_up = s->pids_used_up = false;
    if (s->log) {
        s->log->level = v->log_level;
        s->log->format = v->log_format;
    }
    return 0;
}

int mr__service_apply_settings(struct service *s, const struct settings *fresh,
                               struct port_report *report, uint64_t now_ns)
{
    mr__turn_begin(s, now_ns);
    int rc = apply_settings(s, fresh, report);
    mr__turn_end(s);
    return rc;
}

void mr__service_end_sessions(struct service *s, uint64_t now_ns)
{
    mr__turn_begin(s, now_ns);
    mr__sessions_end_all(s);
    mr__turn_end(s);
}

void mr__service_stop(struct service *s, uint64_t now_ns)
{
    mr__turn_begin(s, now_ns);
    if (!s->is_stopping) {
        s->is_stopping = true;
        mr__seats_tell_shutdown(s);
    }
    mr__turn_end(s);
}

/* ---- engine -------------------------------------------------------------------------------- */

void mr__service_engine_event(struct service *s, const struct mr_event *ev, uint64_t now_ns)
{
    mr__turn_begin(s, now_ns);
    switch (ev->type) {
    case MR_EVENT_MISS:
        mr__knock_missed(s, ev);
        break;
    case MR_EVENT_ENDED:
        mr__seat_ended(s, ev);
        break;
    case MR_EVENT_LIMIT:
        mr__seat_limited(s, ev);
        break;
    case MR_EVENT_IN_FORCE: /* every turn looks for itself when it ends */
    case MR_EVENT_DATAGRAM: /* none of our relays is manual */
        break;
    }
    mr__turn_end(s);
}

/* ---- time and readiness -------------------------------------------------------------------- */

/* One command through all workers, twice a second; the next one when it has come back. */
static void ping_workers(struct service *s)
{
    if (s->has_pinged && mr_in_force(s->mr) >= s->ping_seq) {
        s->alive_ns = s->ping_at_ns;
        s->is_alive = true;
        s->has_pinged = false;
    }
    if (s->now_ns >= s->next_ping_ns) {
        s->next_ping_ns = s->now_ns + (uint64_t)MR_READY_PERIOD_MS * 1000000;
        if (!s->has_pinged) {
            s->ping_seq = mr_ping(s->mr);
            s->ping_at_ns = s->now_ns;
            s->has_pinged = true;
        }
    }
}

/*
 * The decider's timers and deadlines run here, in turns with our own tasks: whoever comes
 * second finds the tick's budget of scripts' time used up when the other was slow, and is
 * the first in the next one.
 */
static void run_decider(struct service *s)
{
    if (s->hooks && s->hooks->tick && !mr__turn_is_spent(s) &&
        s->hooks->deadline(s->hooks->self) <= s->now_ns) {
        s->hooks->tick(s->hooks->self, s->now_ns);
    }
}

void mr__service_tick(struct service *s, uint64_t now_ns)
{
    mr__turn_begin(s, now_ns);
    s->asked = 0;
    s->spent_before = spent_ns(s);
    take_later(s);
    ping_workers(s);
    mr__pool_release_due(s);
    mr__known_expire(s);
    mr__latches_expire(s);
    mr__stores_tick(s->stores, s->now_ns);
    mr__connections_go_on(s);
    mr__commands_answer_late(s);
    s->is_decider_first = !s->is_decider_first;
    if (!s->is_decider_first) {
        run_tasks(s);
    }
    run_decider(s);
    mr__drain_run(s);
    mr__turn_end(s);
}

/* Both lists are in order: everybody waits for equally long. */
static uint64_t resting_until_ns(const struct service *s)
{
    uint64_t due = UINT64_MAX;

    if (!mr__list_is_empty(&s->slowed)) {
        due = MR_CONTAINER(s->slowed.next, struct connection, slowed)->slowed_until_ns;
    }
    if (!mr__list_is_empty(&s->late)) {
        uint64_t late = MR_CONTAINER(s->late.next, struct request, late)->late_until_ns;
        due = late < due ? late : due;
    }
    return due;
}

uint64_t mr__service_deadline(const struct service *s)
{
    uint64_t due = s->next_ping_ns;

    if (!mr__list_is_empty(&s->ready) || !mr__list_is_empty(&s->later) ||
        !mr__list_is_empty(&s->ending)) {
        return s->now_ns;
    }
    if (s->hooks && s->hooks->deadline) {
        uint64_t decider = s->hooks->deadline(s->hooks->self);
        due = decider < due ? decider : due;
    }
    uint64_t stores = mr__stores_deadline(s->stores), blocks = mr__blocks_deadline(s);
    uint64_t drain = mr__drain_deadline(s);
    due = drain < due ? drain : due;
    due = stores < due ? stores : due;
    due = blocks < due ? blocks : due;
    uint64_t resting = resting_until_ns(s);
    return resting < due ? resting : due;
}

static uint64_t late_ns(const struct service *s)
{
    return s->has_pinged ? s->now_ns - s->ping_at_ns : 0;
}

bool mr__service_is_alive(struct service *s, uint64_t now_ns)
{
    mr__turn_begin(s, now_ns);
    ping_workers(s);
    mr__turn_end(s);
    return s->is_alive && late_ns(s) <= (uint64_t)MR_READY_LATE_MS * 1000000;
}

const char *mr__service_not_ready(struct service *s, uint64_t now_ns)
{
    /* Not a tick: whoever asks often gets no more of the scripts' time for it. */
    mr__turn_begin(s, now_ns);
    ping_workers(s);
    mr__turn_end(s);
    if (s->is_stopping) {
        return "stopping";
    }
    if (s->drain.is_on) {
        struct drain_view drain;
        mr__drain_look(s, s->now_ns, &drain);
        snprintf(s->not_ready, sizeof s->not_ready, "draining: %.0f s left", drain.seconds_left);
        return s->not_ready;
    }
    if (s->pool.n == 0) {
        return "relay ports: none is open";
    }
    if (!s->is_alive) {
        return "workers: none has answered yet";
    }
    if (late_ns(s) > (uint64_t)MR_READY_LATE_MS * 1000000) {
        snprintf(s->not_ready, sizeof s->not_ready, "workers: no answer for %.1f s",
                 (double)late_ns(s) / 1e9);
        return s->not_ready;
    }
    return NULL;
}
