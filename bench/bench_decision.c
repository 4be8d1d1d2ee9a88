/* SPDX-License-Identifier: MIT */
/*
 * The decision alone: how many datagrams a second one core can decide about, with
 * no socket anywhere. A ceiling for the engine, not what it relays end to end.
 *
 *     bench_decision [sizes...]                  the table, for these numbers of relays
 *     bench_decision --steady N SIZE KIND        only N decisions, for callgrind; KIND is
 *                                                link, one, lifetimes, policy or open
 *
 * One thread. Relays are paired at random; each datagram is from a random relay to
 * its partner's port. Individual and global bandwidth, activity and all counters
 * are on, no datagram may be refused. Start reading at main().
 */
#include "base/alloc.h"
#include "core/pair.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    STREAM_MIN = 4096, /* datagrams prepared; walked in a circle */
    STREAM_MAX = 1 << 20,
    ROUNDS = 9,
    EVICT_BYTES = 64 << 20, /* twice the last-level cache here */
    COLD_BATCHES = 100,
    PAYLOAD_BYTES = 64,
    STEP_NS = 1000, /* the clock moves by this much a batch */
};

enum kind {
    LINKED,    /* individual and global bandwidth: the daemon's defaults */
    LIFETIMES, /* and both lifetimes */
    POLICY,    /* and a policy's rate and bytes */
    OPEN,      /* no links: pairing = open, the two indexes; limits as LINKED */
};

static uint64_t random_state = 42;

/* splitmix64; the same stream in every run, so that two runs compare. */
static uint64_t next_random(void)
{
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t clock_of(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *map_or_die(size_t bytes)
{
    void *p = mr__map(bytes);

    if (!p) {
        fprintf(stderr, "bench_decision: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

/* ---- the world: n relays in random pairs, and a stream of datagrams ----------------- */

struct world {
    uint32_t n;
    struct tables tables;
    struct limit_global *global;
    struct relay_shared *shared;
    struct relay_limits *limits;
    struct plane_rx *stream;
    uint32_t stream_length; /* a multiple of the batch */
    uint64_t now_ns;
    void *memory;
    size_t memory_bytes;
};

static struct mr_addr peer_of(uint32_t i)
{
    return (struct mr_addr){.ip = {10, (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i},
                            .port = (uint16_t)(1024 + i % 60000),
                            .family = 4};
}

static void make_relay(struct world *w, uint32_t port, enum kind kind)
{
    struct relay_setup setup = {.now_ns = w->now_ns,
                                .timeout_ns = 30000000000u,
                                .bandwidth = mr__limit_rate((uint64_t)1 << 40, 0)};
    struct mr_addr peer = peer_of(port);
    mr_relay_id id;

    if (kind == LIFETIMES || kind == POLICY)
        setup.duration_ns = (uint64_t)1 << 60;
    if (kind == POLICY) {
        setup.pps = mr__limit_rate((uint64_t)1 << 40, 0);
        setup.max_bytes = (uint64_t)1 << 60;
    }
    mr__relay_shared_init(&w->shared[port], &w->limits[port], &setup);
    if (mr__tables_create(&w->tables, port, &peer, 0, port, &id) < 0)
        abort();
}

/* A random permutation; neighbours in it are partners. */
static uint32_t *partners(uint32_t n)
{
    uint32_t *order = malloc(n * sizeof *order), *partner = malloc(n * sizeof *partner);

    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t j = (uint32_t)(next_random() % (i + 1)), swap = order[i];

        order[i] = order[j];
        order[j] = swap;
    }
    for (uint32_t i = 0; i < n; i++)
        partner[order[i]] = order[i ^ 1];
    free(order);
    return partner;
}

static void make_stream(struct world *w, const uint32_t *partner)
{
    uint32_t length = STREAM_MIN;

    while (length < STREAM_MAX && length < 4 * w->n)
        length *= 2;
    w->stream_length = length;
    w->stream = map_or_die(length * sizeof *w->stream);
    for (uint32_t i = 0; i < length; i++) {
        uint32_t sender = (uint32_t)(next_random() % w->n);

        w->stream[i] = (struct plane_rx){
            .from = peer_of(sender), .port = partner[sender], .size = PAYLOAD_BYTES};
    }
}

static void open_world(struct world *w, uint32_t n, enum kind kind)
{
    struct tables_config config = {.max_pairs = n / 2, .max_raws = 0};
    uint32_t *partner = partners(n);
    const struct relay *at;

    *w = (struct world){.n = n, .now_ns = 1000000000u};
    w->global = map_or_die(sizeof *w->global);
    w->shared = map_or_die((n + MR__SHARED_EXTRA) * sizeof *w->shared);
    w->limits = map_or_die((n + 1) * sizeof *w->limits);
    mr__limit_global_set(w->global, (uint64_t)1 << 42, 0,
                         kind == LIFETIMES || kind == POLICY ? (uint64_t)1 << 60 : 0);
    config.plane = (struct plane_config){
        .ports = n,
        .max_own = 64,
        .pairing = kind == OPEN ? MR__PAIRING_OPEN : MR__PAIRING_PAIRED,
        .shared = w->shared,
        .limits = w->limits,
        .global = w->global,
    };
    for (int i = 0; i < 4; i++)
        config.plane.key.k[i] = next_random();
    w->memory_bytes = mr__tables_bytes(&config);
    w->memory = map_or_die(w->memory_bytes);
    mr__tables_init(&w->tables, &config, w->memory);
    for (uint32_t i = 0; i < n; i++)
        make_relay(w, i, kind);
    at = w->tables.plane.relays.at;
    for (uint32_t i = 0; i < n && kind != OPEN; i++)
        mr__tables_pair(&w->tables, mr__relay_id(i, at[i].generation),
                        mr__relay_id(partner[i], at[partner[i]].generation));
    make_stream(w, partner);
    free(partner);
}

static void close_world(struct world *w)
{
    mr__unmap(w->stream, w->stream_length * sizeof *w->stream);
    mr__unmap(w->memory, w->memory_bytes);
    mr__unmap(w->limits, (w->n + 1) * sizeof *w->limits);
    mr__unmap(w->shared, (w->n + MR__SHARED_EXTRA) * sizeof *w->shared);
    mr__unmap(w->global, sizeof *w->global);
}

/* Every datagram was forwarded, or the figure means nothing. */
static void check_world(const struct world *w)
{
    const struct plane_totals *t = &w->tables.plane.totals;

    if (t->received_packets == 0 || t->verdicts[MR_VERDICT_FORWARD] != t->received_packets) {
        fprintf(stderr, "bench_decision: %" PRIu64 " of %" PRIu64 " datagrams were forwarded\n",
                t->verdicts[MR_VERDICT_FORWARD], t->received_packets);
        exit(1);
    }
}

/* ---- measuring ------------------------------------------------------------------------- */

static void run_batches(struct world *w, uint64_t decisions)
{
    struct plane_out out[MR__PLANE_BATCH_MAX];
    uint32_t at = 0;

    for (uint64_t done = 0; done < decisions; done += MR__PLANE_BATCH_MAX) {
        const struct plane_rx *rx = w->stream + at;

        w->now_ns += STEP_NS;
        mr__plane_batch(&w->tables.plane, w->now_ns, rx, MR__PLANE_BATCH_MAX, out);
        mr__plane_finish(&w->tables.plane, rx, MR__PLANE_BATCH_MAX, out);
        at = (at + MR__PLANE_BATCH_MAX) & (w->stream_length - 1);
    }
}

static void run_singles(struct world *w, uint64_t decisions)
{
    uint32_t at = 0;

    for (uint64_t done = 0; done < decisions; done++) {
        const struct plane_rx *rx = w->stream + at;
        struct plane_out out;

        w->now_ns += STEP_NS / MR__PLANE_BATCH_MAX;
        mr__tables_decide(&w->tables, w->now_ns, &rx->from, rx->port, rx->size, &out);
        at = (at + 1) & (w->stream_length - 1);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Millions of decisions a second of CPU time: the best of some rounds, since whatever
 * else runs on the machine can only take caches away. */
static double rate_of(struct world *w, void (*run)(struct world *, uint64_t))
{
    uint64_t decisions = 2 * (uint64_t)w->stream_length;
    double best = 0;

    if (decisions < 2000000)
        decisions = 2000000 - 2000000 % MR__PLANE_BATCH_MAX;
    run(w, w->stream_length); /* warm up: page faults, caches, branch predictors */
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = clock_of(CLOCK_THREAD_CPUTIME_ID);

        run(w, decisions);
        double rate = (double)decisions * 1e3 / (double)(clock_of(CLOCK_THREAD_CPUTIME_ID) - start);
        best = rate > best ? rate : best;
    }
    return best;
}

/* As a worker that slept: another program had the caches before each batch. */
static double cold_rate_of(struct world *w)
{
    static volatile uint64_t sink;
    uint64_t *evict = map_or_die(EVICT_BYTES);
    struct plane_out out[MR__PLANE_BATCH_MAX];
    double ns[COLD_BATCHES];

    for (int i = 0; i < COLD_BATCHES; i++) {
        uint32_t at = (uint32_t)(next_random() % w->stream_length) & ~(MR__PLANE_BATCH_MAX - 1u);
        const struct plane_rx *rx = w->stream + at;
        uint64_t start, sum = 0;

        for (size_t j = 0; j < EVICT_BYTES / sizeof *evict; j += 8)
            sum += evict[j]++;
        sink = sum;
        for (uint32_t j = 0; j < MR__PLANE_BATCH_MAX; j++) /* just received, so in the cache */
            sink += rx[j].port;
        w->now_ns += STEP_NS;
        start = clock_of(CLOCK_MONOTONIC);
        mr__plane_batch(&w->tables.plane, w->now_ns, rx, MR__PLANE_BATCH_MAX, out);
        mr__plane_finish(&w->tables.plane, rx, MR__PLANE_BATCH_MAX, out);
        ns[i] = (double)(clock_of(CLOCK_MONOTONIC) - start) / MR__PLANE_BATCH_MAX;
    }
    mr__unmap(evict, EVICT_BYTES);
    qsort(ns, COLD_BATCHES, sizeof ns[0], compare);
    return 1e3 / ns[COLD_BATCHES / 2];
}

enum { COLUMNS = 7 };

static void measure(uint32_t n, enum kind kind, double *batched, double *single, double *cold)
{
    struct world w;

    open_world(&w, n, kind);
    *batched = rate_of(&w, run_batches);
    if (single)
        *single = rate_of(&w, run_singles);
    if (cold)
        *cold = cold_rate_of(&w);
    check_world(&w);
    close_world(&w);
}

static void print_row(uint32_t n)
{
    double v[COLUMNS];

    measure(n, LINKED, &v[0], &v[3], &v[4]);
    measure(n, LIFETIMES, &v[1], NULL, NULL);
    measure(n, POLICY, &v[2], NULL, NULL);
    measure(n, OPEN, &v[5], &v[6], NULL);
    printf("| %9" PRIu32 " |", n);
    for (int i = 0; i < COLUMNS; i++)
        printf(" %9.1f |", v[i]);
    puts("");
    fflush(stdout);
}

static void print_head(void)
{
    static const char *const names[COLUMNS] = {"link",       "lifetimes", "policy",   "link, one",
                                               "link, cold", "open",      "open, one"};

    puts(
        "Million decisions a second on one core: a ceiling of the decision, no end-to-end rate.\n");
    printf("| %9s |", "relays");
    for (int i = 0; i < COLUMNS; i++)
        printf(" %9s |", names[i]);
    printf("\n|----------:|");
    for (int i = 0; i < COLUMNS; i++)
        printf("----------:|");
    puts("");
}

/* ---- arguments ------------------------------------------------------------------------------ */

static uint32_t size_of(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);

    if (*end || n < 2 || n > 1000000 || n % 2) {
        fprintf(stderr, "bench_decision: '%s' is no even number of relays from 2 to 1000000\n",
                text);
        exit(2);
    }
    return (uint32_t)n;
}

/* callgrind collects only inside mr__plane_*, so setting up costs nothing there. */
static int run_steady(const char *decisions, const char *size, const char *kind)
{
    uint64_t n = strtoull(decisions, NULL, 10);
    struct world w;

    open_world(&w, size_of(size),
               strcmp(kind, "open") == 0        ? OPEN
               : strcmp(kind, "lifetimes") == 0 ? LIFETIMES
               : strcmp(kind, "policy") == 0    ? POLICY
                                                : LINKED);
    if (strcmp(kind, "one") == 0)
        run_singles(&w, n);
    else
        run_batches(&w, n);
    check_world(&w);
    close_world(&w);
    return 0;
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {10, 1000, 5000, 10000, 100000, 1000000};

    if (argc == 5 && strcmp(argv[1], "--steady") == 0)
        return run_steady(argv[2], argv[3], argv[4]);
    print_head();
    if (argc > 1) {
        for (int i = 1; i < argc; i++)
            print_row(size_of(argv[i]));
        return 0;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        print_row(sizes[i]);
    return 0;
}
