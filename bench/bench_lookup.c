/* SPDX-License-Identifier: MIT */
/*
 * What a literal destination costs: chained sends from an unconnected endpoint of ours,
 * each started in the callback of the one before, beside a bare loop of sendto(2). Every
 * program sends 64 bytes from a socket bound to 0.0.0.0 to the same socket on 127.0.0.1, which
 * nobody reads: its buffer is full after the first round, and stays so. Run it as `scripts/bench
 * lookup`, or by itself as
 *
 *     bench_lookup [SENDS [ROUNDS]]        all ways interleaved, one line a round, then medians
 *     bench_lookup WAY SENDS ROUNDS PORT   one way; prints milliseconds, one line a round
 *
 * so that another driver can put other programs beside it. WAY: bare, c, reader, turn, resolver.
 * Start reading at ways[].
 */
#include "bench_child.h"
#include "control/udp.h"

#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PAYLOAD = 64, ROUNDS_MAX = 64, WARM_UP = 1 /* rounds that are not counted */ };

static const char payload[PAYLOAD];

struct run {
    uv_loop_t loop;
    struct mr_lookup *lookup;
    struct mr_udp *udp, *sender, *reader; /* udp: one of the two */
    int bare;
    uint16_t port;
    const char *host;
    unsigned left;
    struct mr_lookup_request request;
    struct mr_resolver resolver;
    unsigned resolved;
};

static double now_ms(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void require(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "bench_lookup: %s\n", what);
        exit(1);
    }
}

/* ---- the ways ----------------------------------------------------------------------------- */

static void go_bare(struct run *r, unsigned n)
{
    struct sockaddr_in to = bench_loopback(r->port);

    for (unsigned i = 0; i < n; i++) {
        require(sendto(r->bare, payload, PAYLOAD, 0, (struct sockaddr *)&to, sizeof to) == PAYLOAD,
                "sendto failed");
    }
}

static void send_next(void *arg, const struct mr_udp_result *result)
{
    struct run *r = arg;

    require(!result || result->rc == 0, "a send failed");
    if (r->left == 0) {
        uv_stop(&r->loop);
        return;
    }
    r->left--;
    require(
        mr_udp_send(r->udp, payload, PAYLOAD, r->host, strlen(r->host), r->port, send_next, r) == 0,
        "a send was refused");
}

static void go_chained(struct run *r, unsigned n)
{
    r->left = n;
    send_next(r, NULL);
    uv_run(&r->loop, UV_RUN_DEFAULT);
}

static void go_reader(struct run *r, unsigned n)
{
    r->udp = r->reader;
    go_chained(r, n);
    r->udp = r->sender;
}

static void look_next(struct mr_lookup_request *req, const struct mr_lookup_answer *answer)
{
    struct run *r = req->user;

    require(!answer || answer->rc == 0, "a lookup failed");
    if (r->left == 0) {
        uv_stop(&r->loop);
        return;
    }
    r->left--;
    mr_lookup_start(r->lookup, req, r->host, strlen(r->host), 4, MR_LOOKUP_SEND, 0);
}

static void go_turns(struct run *r, unsigned n)
{
    r->left = n;
    r->request.done = look_next;
    r->request.user = r;
    look_next(&r->request, NULL);
    uv_run(&r->loop, UV_RUN_DEFAULT);
}

/* A name, so that each send is a job of the resolver's threads: what node did with a literal. */
static int resolve(void *user, const char *host, const struct addrinfo *hints,
                   struct addrinfo **out)
{
    struct addrinfo literal = *hints;

    (void)host;
    ((struct run *)user)->resolved++; /* one at a time, in a thread that is waited for */
    literal.ai_flags |= AI_NUMERICHOST;
    return getaddrinfo("127.0.0.1", NULL, &literal, out);
}

static void free_resolved(void *user, struct addrinfo *list)
{
    (void)user;
    freeaddrinfo(list);
}

static void go_resolver(struct run *r, unsigned n)
{
    const char *literal = r->host;
    unsigned before = r->resolved;

    r->host = "loopback.test";
    go_chained(r, n);
    r->host = literal;
    require(r->resolved - before == n, "the resolver was not asked for each send");
}

static const struct way {
    const char *name, *what;
    void (*go)(struct run *r, unsigned n);
} ways[] = {
    {"bare", "a loop of sendto(2)", go_bare},
    {"c", "chained sends of an endpoint to a literal", go_chained},
    {"reader", "the same, from an endpoint that is also read from", go_reader},
    {"turn", "the lookup of a literal and its turn, without the send", go_turns},
    {"resolver", "chained sends, the resolver asked for each", go_resolver},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* ---- running ------------------------------------------------------------------------------ */

static void on_message(void *user, const struct mr_addr *from, const struct mr_addr *local,
                       const void *data, size_t n)
{
    (void)user, (void)from, (void)local, (void)data, (void)n;
}

static void open_endpoint(struct mr_udp **u, struct mr_lookup *lookup,
                          const struct mr_udp_options *opts)
{
    struct mr_addr any = {.family = 4};

    require(mr_udp_create(u, lookup, opts) == 0 && mr_udp_bind_address(*u, &any) == 0,
            "no endpoint");
}

static void set_up(struct run *r, uint16_t port)
{
    struct mr_lookup_options lookup = {.size = sizeof(struct mr_lookup_options), .loop = &r->loop};
    struct mr_udp_options udp;
    struct sockaddr_in sa = {.sin_family = AF_INET};

    memset(r, 0, sizeof *r);
    r->port = port;
    r->host = "127.0.0.1";
    r->bare = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    require(r->bare >= 0 && bind(r->bare, (struct sockaddr *)&sa, sizeof sa) == 0, "no socket");
    require(uv_loop_init(&r->loop) == 0 && mr_lookup_create(&r->lookup, &lookup) == 0, "no loop");
    r->resolver =
        (struct mr_resolver){.user = r, .getaddrinfo = resolve, .freeaddrinfo = free_resolved};
    mr_lookup_set_resolver(r->lookup, &r->resolver);
    mr_udp_options_init(&udp, sizeof udp);
    udp.loop = &r->loop;
    open_endpoint(&r->sender, r->lookup, &udp);
    udp.on_message = on_message;
    open_endpoint(&r->reader, r->lookup, &udp);
    r->udp = r->sender;
}

static void tear_down(struct run *r)
{
    struct mr_lookup_counts counts;

    mr_lookup_count(r->lookup, &counts);
    require(counts.resolver_calls == r->resolved, "a literal went to the resolver");
    mr_udp_close(r->sender, NULL, NULL);
    mr_udp_close(r->reader, NULL, NULL);
    mr_lookup_destroy(r->lookup);
    while (uv_run(&r->loop, UV_RUN_DEFAULT) != 0) {
    }
    require(uv_loop_close(&r->loop) == 0, "the loop has something left");
    close(r->bare);
}

struct took {
    double ms, cpu_ms; /* of all threads; on a machine that does other things it is the steadier */
};

static struct took measure(struct run *r, const struct way *way, unsigned sends)
{
    double from = now_ms(CLOCK_MONOTONIC), cpu_from = now_ms(CLOCK_PROCESS_CPUTIME_ID);

    way->go(r, sends);
    return (struct took){.ms = now_ms(CLOCK_MONOTONIC) - from,
                         .cpu_ms = now_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_from};
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

struct figures {
    double median, least;
};

/* Of the rounds after the first. */
static struct figures figures(const double *ms, unsigned rounds)
{
    double sorted[ROUNDS_MAX];
    unsigned n = rounds - WARM_UP;

    memcpy(sorted, ms + WARM_UP, n * sizeof *ms);
    qsort(sorted, n, sizeof *sorted, compare);
    return (struct figures){.median =
                                n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2,
                            .least = sorted[0]};
}

static void print_figures(const double ms[WAYS][ROUNDS_MAX], unsigned rounds, unsigned sends)
{
    struct figures bare = figures(ms[0], rounds);

    for (unsigned w = 0; w < WAYS; w++) {
        struct figures f = figures(ms[w], rounds);
        printf("%-10s %8.2f ms %7.0f ns each, %5.2f of bare; least %8.2f ms, %5.2f of bare: %s\n",
               ways[w].name, f.median, f.median * 1e6 / sends, f.median / bare.median, f.least,
               f.least / bare.least, ways[w].what);
    }
}

static void run_all(unsigned sends, unsigned rounds)
{
    static double ms[WAYS][ROUNDS_MAX], cpu_ms[WAYS][ROUNDS_MAX];
    struct run r;
    uint16_t port;
    int sink = bench_socket(&port);

    set_up(&r, port);
    printf("%u sends of %u bytes, ms a round\n%-10s", sends, (unsigned)PAYLOAD, "round");
    for (unsigned w = 0; w < WAYS; w++) {
        printf(" %10s", ways[w].name);
    }
    for (unsigned i = 0; i < rounds; i++) {
        printf("\n%-10u", i + 1);
        for (unsigned w = 0; w < WAYS; w++) {
            struct took took = measure(&r, &ways[w], sends);
            ms[w][i] = took.ms;
            cpu_ms[w][i] = took.cpu_ms;
            printf(" %10.2f", ms[w][i]);
            fflush(stdout);
        }
    }
    printf("\n\nrounds 2 to %u, on the wall: medians and least\n", rounds);
    print_figures(ms, rounds, sends);
    printf("\nof CPU time\n");
    print_figures(cpu_ms, rounds, sends);
    tear_down(&r);
    close(sink);
}

static void run_one(const char *name, unsigned sends, unsigned rounds, uint16_t port)
{
    struct run r;

    for (unsigned w = 0; w < WAYS; w++) {
        if (strcmp(ways[w].name, name) == 0) {
            set_up(&r, port);
            for (unsigned i = 0; i < rounds; i++) {
                printf("%.3f\n", measure(&r, &ways[w], sends).ms);
                fflush(stdout);
            }
            tear_down(&r);
            return;
        }
    }
    require(0, "no such way (bare, c, reader, turn, resolver)");
}

static unsigned number(const char *text, unsigned most)
{
    unsigned long n = strtoul(text, NULL, 10);

    require(n > 0 && n <= most, "usage: bench_lookup [SENDS [ROUNDS]] or WAY SENDS ROUNDS PORT");
    return (unsigned)n;
}

int main(int argc, char **argv)
{
    if (argc == 5) {
        run_one(argv[1], number(argv[2], 100000000), number(argv[3], ROUNDS_MAX),
                (uint16_t)number(argv[4], UINT16_MAX));
        return 0;
    }
    run_all(argc > 1 ? number(argv[1], 100000000) : 10000,
            argc > 2 ? number(argv[2], ROUNDS_MAX - 1) + WARM_UP : 5);
    return 0;
}
