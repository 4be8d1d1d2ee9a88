/* SPDX-License-Identifier: MIT */
/*
 * The page of figures: noray's names, which dashboards use, and our own. Control thread.
 * Labels have closed sets of values and never name a player. Start reading at
 * mr__service_metrics().
 */
#include "service/state.h"

#include "base/alloc.h"
#include "service/metrics.h"

#include <errno.h>
#include <string.h>

enum {
    SIZE_BUCKETS = 17,     /* 1 byte to 64 KiB */
    DURATION_FIRST = 6,    /* 64 ns; what is shorter is in it */
    DURATION_BUCKETS = 25, /* to 1 s */
};

static struct metric_label label(const char *key, const char *value)
{
    return (struct metric_label){key, {value, strlen(value)}};
}

static void one(struct metrics *m, const char *name, enum metric_type type, const char *help,
                uint64_t v)
{
    mr__metrics_family(m, name, type, help);
    mr__metrics_uint(m, NULL, 0, v);
}

/* ---- commands and players ------------------------------------------------------------------ */

static void write_commands(const struct service *s, struct metrics *m)
{
    mr__metrics_family(m, "noray_command_duration", MR_METRIC_HISTOGRAM,
                       "Seconds from reading a command to its last answer, waits included.");
    for (enum command c = 0; c <= MR_COMMAND_OTHER; c++) {
        struct metric_label l = label("command", mr__command_name(c));
        mr__metrics_histogram(m, &l, 1, mr__command_bounds, s->figures.durations[c].counts,
                              MR_COMMAND_BUCKETS, s->figures.durations[c].sum);
    }
    mr__metrics_family(m, "noray_command_exception", MR_METRIC_COUNTER, "Commands that failed.");
    for (enum command c = 0; c <= MR_COMMAND_OTHER; c++) {
        struct metric_label l = label("command", mr__command_name(c));
        uint64_t n = 0;
        for (enum code code = 0; code < MR_CODE_COUNT; code++) {
            n += s->figures.errors[c][code];
        }
        mr__metrics_uint(m, &l, 1, n);
    }
    mr__metrics_family(m, "moonrelay_errors_total", MR_METRIC_COUNTER,
                       "Errors told to players, by what they are about and their code.");
    for (enum command c = 0; c < MR_COMMAND_COUNT; c++) {
        for (enum code code = 0; code < MR_CODE_COUNT; code++) {
            const struct metric_label l[] = {label("command", mr__command_name(c)),
                                             label("code", mr__code_name(code))};
            if (s->figures.errors[c][code] > 0) {
                mr__metrics_uint(m, l, 2, s->figures.errors[c][code]);
            }
        }
    }
}

static size_t count_relays(const struct pool *pool)
{
    size_t n = 0;

    for (unsigned i = 0; i < MR_SEAT_KIND_COUNT; i++) {
        n += pool->n_kind[i];
    }
    return n;
}

void mr__service_counts(const struct service *s, struct service_counts *out)
{
    *out = (struct service_counts){.connections = s->n_connections,
                                   .sessions = s->sessions.n,
                                   .relays = count_relays(&s->pool)};
}

static void write_players(const struct service *s, struct metrics *m)
{
    const struct metric_label with = label("state", "addressed");
    const struct metric_label without = label("state", "unaddressed");

    one(m, "noray_tcp_connections", MR_METRIC_GAUGE, "Open connections of the command channel.",
        s->n_connections);
    one(m, "noray_active_hosts", MR_METRIC_GAUGE, "Registered players.", s->sessions.n);
    mr__metrics_family(m, "moonrelay_sessions", MR_METRIC_GAUGE,
                       "Registered players, by whether the registrar has seen their address.");
    mr__metrics_uint(m, &with, 1, s->n_addressed);
    mr__metrics_uint(m, &without, 1, s->sessions.n - s->n_addressed);
}

static void write_registrar(const struct service *s, struct metrics *m)
{
    static const char *const names[MR_REGISTRAR_COUNT] = {
#define X(constant, name) [MR_REGISTRAR_##constant] = name,
        MR_REGISTRAR_RESULTS(X)
#undef X
    };
    const uint64_t *r = s->figures.registrar;

    one(m, "noray_remote_registrar_success", MR_METRIC_COUNTER,
        "Players whose address was seen for the first time, or has moved.",
        r[MR_REGISTRAR_OK] + r[MR_REGISTRAR_MOVED]);
    one(m, "noray_remote_registrar_fail", MR_METRIC_COUNTER,
        "Registrar datagrams that named nobody.",
        r[MR_REGISTRAR_UNKNOWN] + r[MR_REGISTRAR_LIMITED]);
    one(m, "noray_remote_registrar_repeat", MR_METRIC_COUNTER,
        "Registrar datagrams that told nothing new.", r[MR_REGISTRAR_REPEAT]);
    mr__metrics_family(m, "moonrelay_registrar_total", MR_METRIC_COUNTER,
                       "Registrar datagrams by what came of them.");
    for (unsigned i = 0; i < MR_REGISTRAR_COUNT; i++) {
        struct metric_label l = label("result", names[i]);
        mr__metrics_uint(m, &l, 1, r[i]);
    }
}

/* ---- traffic ------------------------------------------------------------------------------- */

static void write_histograms(const struct mr_stats *st, struct metrics *m)
{
    double bounds[MR_HIST_BUCKETS];
    uint64_t counts[MR_HIST_BUCKETS + 1] = {0};

    for (unsigned k = 0; k < MR_HIST_BUCKETS; k++) {
        bounds[k] = (double)(1ull << k);
        counts[k < SIZE_BUCKETS ? k : SIZE_BUCKETS] += st->size_bytes.counts[k];
    }
    mr__metrics_family(m, "noray_relay_size", MR_METRIC_HISTOGRAM,
                       "Bytes of payload of the datagrams received.");
    mr__metrics_histogram(m, NULL, 0, bounds, counts, SIZE_BUCKETS, (double)st->size_bytes.sum);

    memset(counts, 0, sizeof counts);
    for (unsigned k = 0; k < MR_HIST_BUCKETS; k++) {
        unsigned to = k < DURATION_FIRST ? 0 : k - DURATION_FIRST;
        counts[to < DURATION_BUCKETS ? to : DURATION_BUCKETS] += st->duration_ns.counts[k];
    }
    for (unsigned k = 0; k < DURATION_BUCKETS; k++) {
        bounds[k] = (double)(1ull << (k + DURATION_FIRST)) / 1e9;
    }
    mr__metrics_family(m, "noray_relay_duration", MR_METRIC_HISTOGRAM,
                       "Seconds of work a datagram: a batch's time divided by its datagrams.");
    mr__metrics_histogram(m, NULL, 0, bounds, counts, DURATION_BUCKETS,
                          (double)st->duration_ns.sum / 1e9);
}

/* Received is written as the sum of what became of it, so that the page is in balance at every
 * moment and not only at rest. */
static void write_verdicts(const struct mr_stats *st, struct metrics *m)
{
    uint64_t out = st->verdicts[MR_VERDICT_FORWARD] + st->verdicts[MR_VERDICT_MANUAL];
    uint64_t drops = 0;

    mr__metrics_family(m, "moonrelay_drops_total", MR_METRIC_COUNTER,
                       "Datagrams dropped at relay ports, by reason.");
    for (unsigned v = 0; v < MR_VERDICT_COUNT; v++) {
        struct metric_label l = label("reason", mr_verdict_name((enum mr_verdict)v));
        if (v != MR_VERDICT_FORWARD && v != MR_VERDICT_MANUAL) {
            mr__metrics_uint(m, &l, 1, st->verdicts[v]);
            drops += st->verdicts[v];
        }
    }
    one(m, "noray_relay_drop_count", MR_METRIC_COUNTER, "Datagrams dropped at relay ports.", drops);
    one(m, "moonrelay_held", MR_METRIC_GAUGE, "Datagrams kept while a policy decides.", st->held);
    one(m, "moonrelay_latches", MR_METRIC_GAUGE,
        "Players who are seen from another port than the one that they registered.", st->latches);

    const struct metric_label in_label = label("direction", "in");
    const struct metric_label out_label = label("direction", "out");
    mr__metrics_family(m, "moonrelay_packets_total", MR_METRIC_COUNTER,
                       "Datagrams at relay ports: in = out + drops + held.");
    mr__metrics_uint(m, &in_label, 1, out + drops + st->held);
    mr__metrics_uint(m, &out_label, 1, out);
    mr__metrics_family(m, "moonrelay_bytes_total", MR_METRIC_COUNTER,
                       "Bytes of payload at relay ports.");
    mr__metrics_uint(m, &in_label, 1, st->received_bytes);
    mr__metrics_uint(m, &out_label, 1, st->sent_bytes);
}

static void write_limits(const struct service *s, const struct mr_stats *st, struct metrics *m)
{
    static const char *const names[MR_LIMIT_KINDS] = {
        [MR_LIMIT_BANDWIDTH] = "bandwidth", [MR_LIMIT_GLOBAL] = "global",
        [MR_LIMIT_DURATION] = "duration",   [MR_LIMIT_DURATION_SOON] = "duration-soon",
        [MR_LIMIT_TRAFFIC] = "traffic",
    };
    static const char *const caps[MR_CAP_COUNT] = {
#define X(constant, name) [MR_CAP_##constant] = name,
        MR_CAPS(X)
#undef X
    };

    mr__metrics_family(m, "moonrelay_limit_hits_total", MR_METRIC_COUNTER,
                       "Times a limit held something back, by kind.");
    for (unsigned k = 0; k < MR_LIMIT_KINDS; k++) {
        struct metric_label l = label("kind", names[k]);
        mr__metrics_uint(m, &l, 1, st->limit_hits[k]);
    }
    for (unsigned k = 0; k < MR_CAP_COUNT; k++) {
        struct metric_label l = label("kind", caps[k]);
        mr__metrics_uint(m, &l, 1, s->figures.caps[k]);
    }
    one(m, "moonrelay_events_lost_total", MR_METRIC_COUNTER,
        "Events of the data plane that found no room.", st->events_lost);
    one(m, "moonrelay_kernel_drops_total", MR_METRIC_COUNTER,
        "Datagrams that the kernel dropped because a relay port's buffer was full.",
        st->kernel_drops);
}

/* ---- relays and ports ---------------------------------------------------------------------- */

static void write_relays(const struct service *s, struct metrics *m)
{
    const struct pool *pool = &s->pool;
    const struct metric_label states[] = {label("state", "free"), label("state", "quarantined"),
                                          label("state", "used"), label("state", "open")};

    one(m, "noray_relay_count", MR_METRIC_GAUGE, "Relays.", count_relays(pool));
    one(m, "moonrelay_notices_lost_total", MR_METRIC_COUNTER,
        "Notices to policies that found no room to wait.", s->figures.notices_lost);
    one(m, "noray_relay_expired", MR_METRIC_COUNTER, "Relays that ended because they were idle.",
        s->figures.expired);
    one(m, "moonrelay_blocks", MR_METRIC_GAUGE, "Blocks by hand, and nets of policies' lists.",
        mr__blocks_count(s));
    one(m, "moonrelay_draining", MR_METRIC_GAUGE, "Whether a drain runs.", s->drain.is_on);
    mr__metrics_family(m, "moonrelay_relays", MR_METRIC_GAUGE, "Relays by what made them.");
    for (unsigned i = 0; i < MR_SEAT_KIND_COUNT; i++) {
        struct metric_label l = label("kind", mr__seat_kind_name((enum seat_kind)i));
        mr__metrics_uint(m, &l, 1, pool->n_kind[i]);
    }
    mr__metrics_family(m, "moonrelay_ports", MR_METRIC_GAUGE,
                       "Relay ports by state, and those open to everybody.");
    mr__metrics_uint(m, &states[0], 1, pool->n_ready);
    mr__metrics_uint(m, &states[1], 1, pool->n_quarantined);
    mr__metrics_uint(m, &states[2], 1, pool->n - pool->n_ready - pool->n_quarantined);
    mr__metrics_uint(m, &states[3], 1, s->front_index.n);
}

int mr__service_add_metrics(struct service *s, metrics_source source, void *user)
{
    struct metrics_source_entry *entries = mr__realloc(
        s->sources_of_metrics, s->n_sources_of_metrics + 1, sizeof *s->sources_of_metrics);

    if (!entries) {
        return -ENOMEM;
    }
    s->sources_of_metrics = entries;
    entries[s->n_sources_of_metrics++] = (struct metrics_source_entry){source, user};
    return 0;
}

char *mr__service_metrics(struct service *s, size_t *n, uint64_t now_ns)
{
    struct metrics *m = mr__metrics_create();
    struct mr_stats st;

    if (!m) {
        return NULL;
    }
    mr__turn_begin(s, now_ns);
    mr__pool_release_due(s);
    mr_refresh_kernel_drops(s->mr);
    const struct metric_label version = label("version", mr_version());
    mr__metrics_family(m, "moonrelay_build_info", MR_METRIC_GAUGE, "What runs; always 1.");
    mr__metrics_uint(m, &version, 1, 1);
    write_commands(s, m);
    write_players(s, m);
    write_registrar(s, m);
    write_relays(s, m);
    if (mr_get_stats(s->mr, &st, sizeof st) == 0) {
        write_histograms(&st, m);
        write_verdicts(&st, m);
        write_limits(s, &st, m);
    }
    for (size_t i = 0; i < s->n_sources_of_metrics; i++) {
        s->sources_of_metrics[i].source(s->sources_of_metrics[i].user, m);
    }
    mr__turn_end(s);
    return mr__metrics_finish(m, n);
}
