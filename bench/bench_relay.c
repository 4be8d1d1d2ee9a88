/* SPDX-License-Identifier: MIT */
/*
 * End to end: CPU per relayed datagram of the engine beside a plain C epoll loop, by
 * stalled drain. A relay process is stopped, datagrams are queued in its sockets, it
 * goes on until its CPU time stands still; what arrived at the peers is counted, and a
 * round outside 95 to 105 % does not count. All contenders take turns, three rounds,
 * best and median are printed.
 *
 *   bench_relay [quick]             the table
 *   bench_relay instructions [CONTENDER [DEPTH]]     user code, counted by callgrind
 *   bench_relay one CONTENDER RELAYS DEPTH STALLS [mixed]   one figure, e.g. under perf
 *
 * Start reading at measure().
 */
#include "bench_child.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum {
    ROUNDS = 3,
    PAYLOAD = 64,
    PAYLOAD_MAX = 128,
    PATH = 4096,
    STILL_MS = 12, /* a busy machine may leave a relay waiting for some */
};

struct contender {
    const char *name, *program, *argument;
};

static const struct contender contenders[] = {
    {"plain, one read", "relay_plain", "one"}, {"plain, drain", "relay_plain", "drain"},
    {"engine, 1 worker", "relay_engine", "1"}, {"engine, 2 workers", "relay_engine", "2"},
    {"engine, inline", "relay_engine", "0"},
};
enum { CONTENDERS = sizeof contenders / sizeof contenders[0] };

struct relay {
    pid_t pid;
    int to, from, log;
    clockid_t cpu;
};

struct result {
    double cpu_ns;  /* per datagram */
    double wall_ns; /* per datagram, from SIGCONT until the last was sent on */
    double delivered;
};

static int peers[BENCH_RELAYS_MAX];
static uint16_t peer_ports[BENCH_RELAYS_MAX], relay_ports[BENCH_RELAYS_MAX];
static unsigned open_peers;
static char folder[PATH];

static uint64_t now_ns(clockid_t clock)
{
    struct timespec t = {0};

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pause_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};

    nanosleep(&t, NULL);
}

/* ------------------------------------------------------------------ the relay process */

static void exec_relay(const struct contender *c, unsigned relays, int is_counted)
{
    const char *profile = getenv("BENCH_CALLGRIND_OUT"); /* for callgrind_annotate */
    char path[PATH + 64], count[16], out[PATH + 64];

    snprintf(path, sizeof path, "%s/%s", folder, c->program);
    snprintf(count, sizeof count, "%u", relays);
    snprintf(out, sizeof out, "--callgrind-out-file=%s", profile ? profile : "/dev/null");
    if (is_counted)
        execlp("valgrind", "valgrind", "--tool=callgrind", out, path, count, c->argument,
               (char *)NULL);
    else
        execl(path, path, count, c->argument, (char *)NULL);
    _exit(127);
}

static struct relay start(const struct contender *c, unsigned relays, int is_counted)
{
    int in[2], out[2], log[2];
    struct relay r = {0};
    char ready;

    if (pipe(in) < 0 || pipe(out) < 0 || pipe(log) < 0)
        exit(1);
    r.pid = fork();
    if (r.pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        if (is_counted)
            dup2(log[1], STDERR_FILENO);
        close_range(3, UINT32_MAX, 0);
        exec_relay(c, relays, is_counted);
    }
    close(in[0]);
    close(out[1]);
    close(log[1]);
    r.to = in[1];
    r.from = out[0];
    r.log = log[0];
    bench_read(r.from, relay_ports, relays * sizeof relay_ports[0]);
    bench_write(r.to, peer_ports, relays * sizeof peer_ports[0]);
    bench_read(r.from, &ready, 1);
    if (clock_getcpuclockid(r.pid, &r.cpu) != 0)
        exit(1);
    return r;
}

/* Returns the instructions that callgrind counted, 0 when it did not. */
static uint64_t stop(struct relay *r)
{
    static char log[1 << 16];
    size_t n = 0;
    ssize_t got;
    char *line;

    close(r->to);
    while (n < sizeof log - 1 && (got = read(r->log, log + n, sizeof log - 1 - n)) > 0)
        n += (size_t)got;
    log[n] = '\0';
    waitpid(r->pid, NULL, 0);
    close(r->from);
    close(r->log);
    line = strstr(log, "Collected :");
    return line ? strtoull(line + 11, NULL, 10) : 0;
}

/* ------------------------------------------------------------------ one stall */

static void open_all_peers(unsigned relays)
{
    for (; open_peers < relays; open_peers++)
        peers[open_peers] = bench_socket(&peer_ports[open_peers]);
}

/* Every peer sends to its partner's port, `depth` datagrams in all rounds of one. Mixed:
 * no two sizes in a row are such that the kernel could be handed both as one message. */
static void queue(unsigned relays, unsigned depth, int is_mixed)
{
    char payload[PAYLOAD_MAX] = {0};

    for (unsigned d = 0; d < depth; d++) {
        size_t size = is_mixed ? PAYLOAD + d % (PAYLOAD_MAX - PAYLOAD) : PAYLOAD;

        for (unsigned i = 0; i < relays; i++) {
            struct sockaddr_in to = bench_loopback(relay_ports[i ^ 1]);

            (void)sendto(peers[i], payload, size, 0, (struct sockaddr *)&to, sizeof to);
        }
    }
}

static uint64_t take_delivered(unsigned relays)
{
    char payload[PAYLOAD_MAX];
    uint64_t n = 0;

    for (unsigned i = 0; i < relays; i++) {
        while (recv(peers[i], payload, sizeof payload, MSG_DONTWAIT) >= PAYLOAD)
            n++;
    }
    return n;
}

/* Waits until the relay's CPU time has stood still for a while; returns when it last
 * moved, as far as one millisecond tells. */
static uint64_t wait_until_still(const struct relay *r, long still_ms)
{
    uint64_t cpu = now_ns(r->cpu), moved = now_ns(CLOCK_MONOTONIC);

    for (long still = 0; still < still_ms; still++) {
        uint64_t next;

        pause_ms(1);
        next = now_ns(r->cpu);
        if (next != cpu) {
            moved = now_ns(CLOCK_MONOTONIC);
            still = 0;
        }
        cpu = next;
    }
    return moved;
}

/* On a busy machine a relay that stands still may only be waiting for a core: as long as
 * something is missing, a second more is given. Returns what was delivered. */
static uint64_t wait_until_done(const struct relay *r, unsigned relays, uint64_t expected,
                                long still_ms, uint64_t *moved)
{
    uint64_t delivered = 0;

    for (unsigned tries = 0; tries < 20; tries++) {
        uint64_t last = wait_until_still(r, tries ? 50 : still_ms);
        uint64_t more = take_delivered(relays);

        if (tries == 0 || more > 0)
            *moved = last;
        delivered += more;
        if (delivered >= expected)
            break;
    }
    return delivered;
}

static void stop_and_wait(pid_t pid)
{
    int status;

    kill(pid, SIGSTOP);
    waitpid(pid, &status, WUNTRACED);
}

static struct result measure(const struct relay *r, unsigned relays, unsigned depth,
                             unsigned stalls, int is_mixed, long still_ms)
{
    uint64_t cpu = 0, wall = 0, delivered = 0, total = (uint64_t)relays * depth * stalls;

    (void)take_delivered(relays);
    for (unsigned s = 0; s < stalls; s++) {
        uint64_t before, begin, moved = 0;

        stop_and_wait(r->pid);
        queue(relays, depth, is_mixed);
        before = now_ns(r->cpu);
        begin = now_ns(CLOCK_MONOTONIC);
        kill(r->pid, SIGCONT);
        delivered += wait_until_done(r, relays, (uint64_t)relays * depth, still_ms, &moved);
        wall += moved - begin;
        cpu += now_ns(r->cpu) - before;
    }
    return (struct result){.cpu_ns = (double)cpu / (double)total,
                           .wall_ns = (double)wall / (double)total,
                           .delivered = (double)delivered / (double)total};
}

/* ------------------------------------------------------------------ the table */

static int by_cpu(const void *a, const void *b)
{
    double x = ((const struct result *)a)->cpu_ns, y = ((const struct result *)b)->cpu_ns;

    return x < y ? -1 : x > y;
}

static struct result run_once(const struct contender *c, unsigned relays, unsigned depth,
                              unsigned stalls, int is_mixed)
{
    struct relay r = start(c, relays, 0);
    struct result result;

    (void)measure(&r, relays, depth, 1, is_mixed, STILL_MS); /* warm */
    result = measure(&r, relays, depth, stalls, is_mixed, STILL_MS);
    (void)stop(&r);
    return result;
}

static void compare(unsigned relays, unsigned depth, unsigned stalls, int is_mixed)
{
    struct result results[CONTENDERS][ROUNDS];
    double yardstick = 0;

    open_all_peers(relays);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned c = 0; c < CONTENDERS; c++)
            results[c][round] = run_once(&contenders[c], relays, depth, stalls, is_mixed);
    }
    printf("%u relays, %u a socket%s, %u stalls\n", relays, depth,
           depth == 1 ? ""
           : is_mixed ? " of mixed sizes"
                      : " of one size",
           stalls);
    for (unsigned c = 0; c < CONTENDERS; c++) {
        struct result *r = results[c];
        int is_lost = 0;

        for (unsigned round = 0; round < ROUNDS; round++)
            is_lost |= r[round].delivered < 0.95 || r[round].delivered > 1.05;
        qsort(r, ROUNDS, sizeof r[0], by_cpu);
        if (c < 2 && (yardstick == 0 || r[ROUNDS / 2].cpu_ns < yardstick))
            yardstick = r[ROUNDS / 2].cpu_ns; /* the better of the plain ones */
        printf("  %-18s cpu median %6.0f ns, least %6.0f ns, wall %6.0f ns", contenders[c].name,
               r[ROUNDS / 2].cpu_ns, r[0].cpu_ns, r[ROUNDS / 2].wall_ns);
        printf(c < 2 ? "\n" : "   %.2f of plain\n", r[ROUNDS / 2].cpu_ns / yardstick);
        if (is_lost)
            printf("  %-18s delivered %.3f: does not count\n", "", r[0].delivered);
    }
    fflush(stdout);
}

/* ------------------------------------------------------------------ instructions */

/* Two runs that differ only in how many datagrams passed. */
static void count_instructions(const struct contender *c, unsigned relays, unsigned depth)
{
    const unsigned few = 2, many = 102;
    uint64_t counted[2];

    open_all_peers(relays);
    for (unsigned k = 0; k < 2; k++) {
        struct relay r = start(c, relays, 1);

        (void)measure(&r, relays, depth, k ? many : few, 1, 50);
        counted[k] = stop(&r);
    }
    printf("%-18s %5u relays, %2u a socket: %4.0f instructions a datagram\n", c->name, relays,
           depth,
           ((double)counted[1] - (double)counted[0]) / ((double)(many - few) * relays * depth));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int is_quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);

    if (n < 0)
        return 1;
    folder[n] = '\0';
    *strrchr(folder, '/') = '\0';
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && strcmp(argv[1], "instructions") == 0) {
        for (unsigned c = 0; c < CONTENDERS; c++) {
            if (argc > 2 && (unsigned)atoi(argv[2]) != c)
                continue;
            if (argc > 3) {
                count_instructions(&contenders[c], 100, (unsigned)atoi(argv[3]));
                continue;
            }
            count_instructions(&contenders[c], 100, 1);
            count_instructions(&contenders[c], 100, 32);
        }
        return 0;
    }
    if (argc >= 6 && strcmp(argv[1], "one") == 0) {
        const struct contender *c = &contenders[atoi(argv[2])];
        unsigned relays = (unsigned)atoi(argv[3]);
        struct result r;

        open_all_peers(relays);
        r = run_once(c, relays, (unsigned)atoi(argv[4]), (unsigned)atoi(argv[5]), argc > 6);
        printf("%s: cpu %.0f ns, wall %.0f ns, delivered %.3f\n", c->name, r.cpu_ns, r.wall_ns,
               r.delivered);
        return 0;
    }
    compare(100, 1, is_quick ? 20 : 200, 0);
    compare(1000, 1, is_quick ? 5 : 30, 0);
    compare(100, 32, is_quick ? 2 : 20, 1);
    compare(100, 32, is_quick ? 2 : 20, 0);
    if (is_quick)
        return 0;
    compare(1000, 32, 3, 1);
    compare(1000, 32, 3, 0);
    compare(9900, 1, 5, 0);
    return 0;
}
