/* SPDX-License-Identifier: MIT */
/*
 * How long the daemon takes from exec to its line `ready`, what memory it has then, and
 * how long it takes to end by TERM; with the default 2,049 relay ports.
 *
 *     scripts/bench startup [ROUNDS]
 *
 * The program is $MOONRELAY_BIN. Start reading at measure().
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS_DEFAULT = 15, ROUNDS_MAX = 1000 };

struct round {
    double ready_ms, cpu_ms, end_ms, rss_mb, peak_mb;
};

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void die(const char *what)
{
    fprintf(stderr, "bench_startup: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* "VmRSS:  123 kB" of a process, in MB of 2^20. */
static double memory_mb(pid_t pid, const char *name)
{
    char path[64], line[256];
    double kb = 0;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, name, strlen(name)) == 0) {
            kb = strtod(line + strlen(name) + 1, NULL);
        }
    }
    if (f) {
        fclose(f);
    }
    return kb / 1024;
}

/* Processor time of all threads so far; in steps of a clock tick, 10 ms. */
static double cpu_ms(pid_t pid)
{
    char path[64], text[1024];
    unsigned long user = 0, system = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) {
        fclose(f);
    }
    text[n] = 0;
    const char *at = strrchr(text, ')');
    if (!at || sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                      &system) != 2) {
        die("stat");
    }
    return (double)(user + system) * 1000 / (double)sysconf(_SC_CLK_TCK);
}

/* Relay ports are the default ones: a port that is taken is left out and warned about, so the
 * count of the line `ready` is looked at. */
static pid_t spawn(const char *program, int out)
{
    pid_t pid = fork();

    if (pid < 0) {
        die("fork");
    }
    if (pid == 0) {
        dup2(out, 1);
        unsetenv("MOONRELAY_BIN"); /* it would be read as a setting, and is none */
        execl(program, program, "--set", "socket_port=0", "--set", "http_port=0", "--set",
              "udp_registrar_port=0", "--set", "socket_host=127.0.0.1", "--set",
              "http_host=127.0.0.1", "--set", "udp_host=127.0.0.1", "--set", "control=", NULL);
        die(program);
    }
    return pid;
}

static struct round measure(const char *program)
{
    struct round r = {0};
    char line[65536];
    int p[2], status;

    if (pipe2(p, O_CLOEXEC) < 0) {
        die("pipe");
    }
    double from = now_ms();
    pid_t pid = spawn(program, p[1]);
    close(p[1]);
    FILE *f = fdopen(p[0], "r");
    line[0] = 0;
    while (f && fgets(line, sizeof line, f) && strncmp(line, "ready ", 6) != 0) {
    }
    r.ready_ms = now_ms() - from;
    if (!f || strncmp(line, "ready ", 6) != 0) {
        fprintf(stderr, "bench_startup: the daemon did not start\n");
        exit(1);
    }
    if (!strstr(line, "relay=49152-51200\n")) {
        fprintf(stderr, "bench_startup: not all ports are free here: %s", line);
    }
    r.cpu_ms = cpu_ms(pid);
    r.rss_mb = memory_mb(pid, "VmRSS:");
    r.peak_mb = memory_mb(pid, "VmHWM:");
    from = now_ms();
    kill(pid, SIGTERM);
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "bench_startup: the daemon did not end with status 0\n");
        exit(1);
    }
    r.end_ms = now_ms() - from;
    fclose(f);
    return r;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_row(const char *name, const char *unit, double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    printf("| %s | %.1f %s | %.1f %s | %.1f %s |\n", name, values[0], unit, values[n / 2], unit,
           values[n - 1], unit);
}

int main(int argc, char **argv)
{
    static double ready[ROUNDS_MAX], cpu[ROUNDS_MAX], end[ROUNDS_MAX], rss[ROUNDS_MAX],
        peak[ROUNDS_MAX];
    const char *program = getenv("MOONRELAY_BIN");
    int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS_DEFAULT;

    if (!program || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: MOONRELAY_BIN=build/release/moonrelay bench_startup [rounds]\n");
        return 2;
    }
    for (int i = 0; i < rounds; i++) {
        struct round r = measure(program);
        ready[i] = r.ready_ms;
        cpu[i] = r.cpu_ms;
        end[i] = r.end_ms;
        rss[i] = r.rss_mb;
        peak[i] = r.peak_mb;
    }
    printf("| %d starts, 2,049 relay ports | least | median | most |\n|---|---|---|---|\n", rounds);
    print_row("exec to `ready`", "ms", ready, rounds);
    print_row("processor time of all threads till then", "ms", cpu, rounds);
    print_row("resident memory at `ready`", "MB", rss, rounds);
    print_row("its peak", "MB", peak, rounds);
    print_row("TERM to the end", "ms", end, rounds);
    return 0;
}
