/* SPDX-License-Identifier: MIT */
/*
 * The daemon under a soak: started in a folder of its own, asked for figures over HTTP,
 * looked at from outside (memory, descriptors, processor time), ended, its log read. For
 * bench/soak.c alone, which has one thread. Start reading at daemon_start().
 */
#ifndef MR_BENCH_SOAK_DAEMON_H
#define MR_BENCH_SOAK_DAEMON_H

#include "bench_child.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum { DAEMON_PORTS_MAX = 16384, DAEMON_TEXT = 1 << 20, DAEMON_START_S = 120, DAEMON_STOP_S = 120 };

struct daemon {
    pid_t pid;
    clockid_t cpu;
    const char *folder;
    uint16_t command, registrar, http;
    uint16_t ports[DAEMON_PORTS_MAX];
    unsigned ports_n;
};

static inline uint64_t now_ns(clockid_t clock)
{
    struct timespec t = {0};

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void pause_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

static inline const char *in_folder(const struct daemon *d, const char *name)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", d->folder, name);
    return path;
}

/* The file's text in a buffer that the next call uses again; "" when there is none. */
static inline char *read_text(const char *path)
{
    static char text[DAEMON_TEXT];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    ssize_t got;

    while (fd >= 0 && n < sizeof text - 1 && (got = read(fd, text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    if (fd >= 0)
        close(fd);
    text[n] = '\0';
    return text;
}

/* ------------------------------------------------------------------ start and end */

static inline void daemon_exec(const struct daemon *d, const char *program, unsigned ports)
{
    char config[PATH_MAX], control[PATH_MAX], relay_ports[64];
    int log;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    log = open(in_folder(d, "log"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (log < 0)
        _exit(126);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    snprintf(config, sizeof config, "%s/moonrelay.lua", d->folder);
    snprintf(control, sizeof control, "control=%s/control.sock", d->folder);
    snprintf(relay_ports, sizeof relay_ports, "udp_relay_ports=0+%u", ports - 1);
    close_range(3, UINT32_MAX, 0);
    /* Freed memory is used again soon, so that growth of the process is growth of what is in use.
     */
    setenv("ASAN_OPTIONS", "quarantine_size_mb=1:detect_leaks=1:exitcode=99", 0);
    setenv("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1:exitcode=99", 0);
    setenv("TSAN_OPTIONS", "exitcode=99", 0);
    execl(program, program, "serve", "--config", config, "--set", control, "--set", relay_ports,
          "--set", "socket_port=0", "--set", "http_port=0", "--set", "udp_registrar_port=0",
          "--set", "udp_relay_timeout=2s", (char *)NULL);
    _exit(127);
}

static inline uint16_t port_after(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    const char *colon = at ? strchr(at, ':') : NULL;

    return colon ? (uint16_t)strtoul(colon + 1, NULL, 10) : 0;
}

/* "40000-40007,40010", behind what stands for a comma */
static inline void read_ports(struct daemon *d, const char *at)
{
    for (const char *p = at; p == at || *p == ',';) {
        char *end;
        unsigned long first = strtoul(p + 1, &end, 10), last = first;

        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        while (first <= last && d->ports_n < DAEMON_PORTS_MAX)
            d->ports[d->ports_n++] = (uint16_t)first++;
        p = end;
    }
}

static inline bool daemon_is_ready(struct daemon *d)
{
    char *text = read_text(in_folder(d, "log"));
    char *line = strstr(text, "ready command=");
    char *relay = line ? strstr(line, " relay=") : NULL;

    if (!relay || !strchr(relay, '\n'))
        return false;
    d->command = port_after(line, "command=");
    d->registrar = port_after(line, "registrar=");
    d->http = port_after(line, "http=");
    read_ports(d, relay + strlen(" relay"));
    return true;
}

/* 0, or -1 with the log on stderr. */
static inline int daemon_start(struct daemon *d, const char *program, unsigned ports)
{
    d->pid = fork();
    if (d->pid == 0)
        daemon_exec(d, program, ports);
    for (int i = 0; d->pid > 0 && i < DAEMON_START_S * 20; i++) {
        if (daemon_is_ready(d))
            return clock_getcpuclockid(d->pid, &d->cpu) == 0 ? 0 : -1;
        if (waitpid(d->pid, NULL, WNOHANG) == d->pid)
            break;
        pause_ms(50);
    }
    fprintf(stderr, "soak: the daemon did not start\n%s", read_text(in_folder(d, "log")));
    return -1;
}

/* The wait status; kills what does not end. */
static inline int daemon_stop(const struct daemon *d)
{
    int status = 0;

    kill(d->pid, SIGTERM);
    for (int i = 0; i < DAEMON_STOP_S * 20; i++) {
        if (waitpid(d->pid, &status, WNOHANG) == d->pid)
            return status;
        pause_ms(50);
    }
    kill(d->pid, SIGKILL);
    waitpid(d->pid, &status, 0);
    return status;
}

static inline bool daemon_has_ended(const struct daemon *d)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)d->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

/* ------------------------------------------------------------------ from outside */

/* Of /proc/PID/status: VmRSS, what is in memory; VmData, what was asked for, used or not. */
static inline long daemon_memory_kb(const struct daemon *d, const char *key)
{
    char path[64];
    const char *at;

    snprintf(path, sizeof path, "/proc/%d/status", (int)d->pid);
    at = strstr(read_text(path), key);
    return at ? strtol(at + strlen(key), NULL, 10) : 0;
}

static inline long daemon_fds(const struct daemon *d)
{
    char path[64];
    long n = -2; /* . and .. */
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)d->pid);
    dir = opendir(path);
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

/* What the kernel dropped on loopback between two sockets, for want of time
 * (net.core.netdev_max_backlog): sendto(2) has succeeded by then, and no socket counts it. */
static inline uint64_t loopback_drops(void)
{
    const char *at = strstr(read_text("/proc/self/net/dev"), "lo:");
    unsigned long long drops = 0;

    if (at)
        (void)sscanf(at, "lo: %*u %*u %*u %llu", &drops);
    return drops;
}

/* How long its threads were ready to run and had no core. */
static inline double daemon_waited_s(const struct daemon *d)
{
    char path[300];
    double ns = 0;
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%d/task", (int)d->pid);
    dir = opendir(path);
    while (dir && (entry = readdir(dir))) {
        char *end;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)d->pid, entry->d_name);
        (void)strtod(read_text(path), &end);
        ns += strtod(end, NULL);
    }
    if (dir)
        closedir(dir);
    return ns / 1e9;
}

/* ------------------------------------------------------------------ figures */

/* The body of /metrics in a buffer that the next call uses again; "" when there is no answer. */
static inline char *daemon_metrics(const struct daemon *d)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    static char page[DAEMON_TEXT];
    struct sockaddr_in sa = bench_loopback(d->http);
    struct timeval patience = {.tv_sec = 30};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t n = 0;
    ssize_t got;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0 &&
        write(fd, request, sizeof request - 1) > 0) {
        while (n < sizeof page - 1 && (got = read(fd, page + n, sizeof page - 1 - n)) > 0)
            n += (size_t)got;
    }
    close(fd);
    page[n] = '\0';
    return page;
}

/* The sum of all lines that begin so: a name, with or without a label. */
static inline double metric(const char *page, const char *prefix)
{
    size_t n = strlen(prefix);
    double sum = 0;

    for (const char *line = page; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, prefix, n) == 0 && (line[n] == ' ' || line[n] == '{' || line[n] == ',')) {
            const char *space = strchr(line + n, ' ');

            sum += space ? strtod(space, NULL) : 0;
        }
    }
    return sum;
}

/* Prints every line of the log that is an error, or a sanitizer's; returns how many. */
static inline unsigned daemon_log_errors(const struct daemon *d, unsigned *warnings)
{
    FILE *f = fopen(in_folder(d, "log"), "r");
    unsigned errors = 0;
    char line[4096];

    while (f && fgets(line, sizeof line, f)) {
        char level[16] = "";

        (void)sscanf(line, "%*s %15s", level); /* behind the time */
        *warnings += strcmp(level, "warn") == 0;
        if (strcmp(level, "error") != 0 && strcmp(level, "fatal") != 0 &&
            !strstr(line, "Sanitizer") && !strstr(line, "runtime error:") &&
            !strstr(line, "ssertion"))
            continue;
        if (errors++ < 20)
            printf("  log: %s", line);
    }
    if (f)
        fclose(f);
    return errors;
}

#endif
