/* SPDX-License-Identifier: MIT */
/* Life, time and log of a bench (bench.h). One thread. */
#include "module/bench.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

enum {
    CLOCK_START_NS = 1000000000,
    ROUNDS_MAX = 100000, /* of one moment; a policy that keeps itself busy ends there */
    EVENTS_MAX = 64,
};

/* ---- time ------------------------------------------------------------------------------------ */

double mr__bench_wall_s(void *user)
{
    const struct bench *b = user;

    return b->wall_start_s + (double)(b->now_ns - CLOCK_START_NS) / 1e9;
}

static unsigned poll_engine(struct bench *b)
{
    struct mr_event events[EVENTS_MAX];
    int n = mr_poll(b->mr, events, EVENTS_MAX);

    for (int i = 0; i < n; i++) {
        mr__bench_look(b, &events[i]);
        mr__service_engine_event(b->service, &events[i], b->now_ns);
    }
    return n > 0 ? (unsigned)n : 0;
}

/* By the service or a lookup. */
static uint64_t due(const struct bench *b)
{
    uint64_t service_ns = mr__service_deadline(b->service), lookup_ns = mr__bench_lookups_due(b);

    return service_ns < lookup_ns ? service_ns : lookup_ns;
}

/* What the daemon's loop does when a drain is over. */
static bool stop_when_drained(struct bench *b)
{
    if (b->is_drained || !mr__service_is_drained(b->service)) {
        return false;
    }
    b->is_drained = true;
    mr__service_stop(b->service, b->now_ns);
    mr__service_end_sessions(b->service, b->now_ns);
    return true;
}

int mr__bench_settle(struct bench *b)
{
    if (!mr__bench_is_running(b)) {
        return 0;
    }
    for (unsigned round = 0; round < ROUNDS_MAX; round++) {
        unsigned n = poll_engine(b);

        mr__service_tick(b->service, b->now_ns);
        mr__bench_feed(b);
        mr__bench_after(b);
        mr__bench_lookups(b);
        if (n == 0 && due(b) > b->now_ns && mr_timeout_ms(b->mr) != 0 && !stop_when_drained(b)) {
            return 0;
        }
    }
    return -ELOOP;
}

static uint64_t next_due(struct bench *b)
{
    uint64_t due_ns = due(b);
    int engine_ms = mr_timeout_ms(b->mr);

    if (engine_ms >= 0 && b->now_ns + (uint64_t)engine_ms * 1000000 < due_ns) {
        due_ns = b->now_ns + (uint64_t)engine_ms * 1000000;
    }
    return due_ns > b->now_ns ? due_ns : b->now_ns + 1;
}

int mr__bench_step(struct bench *b, uint64_t until_ns)
{
    b->news = 0;
    while (b->now_ns < until_ns && b->news == 0) {
        uint64_t due_ns = mr__bench_is_running(b) ? next_due(b) : until_ns;
        int rc;

        b->now_ns = due_ns < until_ns ? due_ns : until_ns;
        rc = mr__bench_settle(b);
        if (rc < 0) {
            return rc;
        }
    }
    return b->now_ns >= until_ns;
}

/* ---- log ------------------------------------------------------------------------------------- */

static void on_record(void *user, enum log_level level, const char *area, const char *msg,
                      const struct log_field *fields, size_t n)
{
    bool is_of_policies = strcmp(area, "policy") == 0 || strcmp(area, "reload") == 0;
    struct bench *b = user;
    struct happening *h;

    /* What the relay itself tells of its players is no news to a test. */
    if (!is_of_policies && level < MR_LOG_ERROR) {
        return;
    }
    h = mr__happening_add(&b->happenings, HAPPENED_LOG);
    mr__happening_text(&b->happenings, h, 0, (struct str){area, strlen(area)});
    mr__happening_text(&b->happenings, h, 1, (struct str){msg, strlen(msg)});
    if (h) {
        h->number = level;
    }
    for (size_t i = 0; i < n; i++) {
        mr__happening_field(&b->happenings, h, h ? &h->fields : NULL, &fields[i]);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

int mr__bench_create(struct bench **out, const struct bench_options *opts)
{
    struct bench *b = mr__alloc(1, sizeof *b);

    if (!b) {
        return -ENOMEM;
    }
    b->settings = mr__settings_create(); /* the defaults */
    if (!b->settings || mr__settings_resolve(b->settings) < 0) {
        mr__settings_destroy(b->settings);
        mr__free(b);
        return -ENOMEM;
    }
    b->wall_start_s = opts->now_s;
    b->now_ns = CLOCK_START_NS;
    b->random = opts->seed;
    b->log = (struct log){.level = MR_LOG_TRACE, .record = on_record, .user = b};
    *out = b;
    return 0;
}

bool mr__bench_is_running(const struct bench *b)
{
    return b->service != NULL;
}

/* The service first: it makes the policies forget what is pending. */
void mr__bench_stop(struct bench *b)
{
    mr__bench_lookups_deinit(b);
    mr__service_destroy(b->service);
    mr__policies_destroy(b->policies);
    mr_destroy(b->mr);
    mr__bench_calls_deinit(b);
    b->is_drained = false;
    b->service = NULL;
    b->policies = NULL;
    b->mr = NULL;
}

void mr__bench_destroy(struct bench *b)
{
    if (!b) {
        return;
    }
    mr__bench_stop(b);
    mr__config_unref(b->config);
    mr__config_unref(b->next_config);
    mr__settings_destroy(b->settings);
    mr__settings_destroy(b->next_settings);
    mr__bench_overrides_deinit(b);
    mr__bench_players_deinit(b);
    mr__bench_strangers_deinit(b);
    mr__bench_outside_deinit(b);
    mr__happenings_deinit(&b->happenings);
    mr__free(b);
}
