/* SPDX-License-Identifier: MIT */
/*
 * See process.h. Figures come from /proc/self at every scrape; what cannot be read is
 * left out of the page.
 */
#include "control/process.h"

#include "service/metrics.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t mr__process_raise_files(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0) {
        return 1024; /* the least that any kernel of ours gives */
    }
    if (files.rlim_cur < files.rlim_max) {
        struct rlimit raised = {.rlim_cur = files.rlim_max, .rlim_max = files.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
            files = raised;
        }
    }
    return files.rlim_cur;
}

int mr__process_plan_files(uint64_t limit, uint64_t ports, uint32_t connections, uint32_t *granted)
{
    uint64_t taken = ports + MR_FILES_SPARE;
    uint64_t left = limit > taken ? limit - taken : 0;

    if (left >= connections) {
        *granted = connections;
        return 0;
    }
    if (left < MR_CONNECTIONS_LEAST) {
        return -EMFILE;
    }
    *granted = (uint32_t)left;
    return 0;
}

int mr__process_ephemeral_ports(uint16_t *first, uint16_t *last)
{
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    unsigned a = 0, b = 0;
    int n;

    if (!f) {
        return -ENOENT;
    }
    n = fscanf(f, "%u %u", &a, &b);
    fclose(f);
    if (n != 2 || a > b || b > 65535) {
        return -ENOENT;
    }
    *first = (uint16_t)a;
    *last = (uint16_t)b;
    return 0;
}

/* ---- figures ----------------------------------------------------------------------------- */

/* Fields of /proc/self/stat that follow the command, counted from its state (man proc_pid_stat). */
enum { STAT_START_TIME = 19, STAT_VIRTUAL = 20, STAT_RESIDENT = 21, STAT_FIELDS = 22 };

/* The command is a name of any bytes in brackets, so we begin behind the last one. */
static int read_stat(unsigned long long fields[STAT_FIELDS])
{
    char text[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    size_t n;
    const char *at;

    if (!f) {
        return -ENOENT;
    }
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    at = strrchr(text, ')');
    if (!at || strlen(at) < 4) {
        return -EINVAL;
    }
    at += 4; /* ") S " */
    memset(fields, 0, STAT_FIELDS * sizeof fields[0]);
    for (int i = 1; i < STAT_FIELDS; i++) {
        int used = 0;
        long long v;
        if (sscanf(at, "%lld %n", &v, &used) != 1) {
            return -EINVAL;
        }
        fields[i] = (unsigned long long)v;
        at += used;
    }
    return 0;
}

/* Seconds since the epoch when the machine started, 0 when unknown. */
static double boot_time(void)
{
    FILE *f = fopen("/proc/stat", "re");
    char line[256];
    unsigned long long at = 0;

    if (!f) {
        return 0;
    }
    while (at == 0 && fgets(line, sizeof line, f)) {
        if (sscanf(line, "btime %llu", &at) != 1) {
            at = 0;
        }
    }
    fclose(f);
    return (double)at;
}

/* One by one, the one that reads it left out. */
static uint64_t count_entries(void)
{
    DIR *dir = opendir("/proc/self/fd");
    uint64_t n = 0;

    if (!dir) {
        return 0;
    }
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        n += e->d_name[0] != '.';
    }
    closedir(dir);
    return n > 0 ? n - 1 : 0;
}

/* Since Linux 6.2 the folder's size is their number. Before, ten thousand sockets cost this page
 * ten milliseconds. */
static uint64_t count_files(void)
{
    struct stat st;

    return stat("/proc/self/fd", &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size
                                                             : count_entries();
}

static void write_double(struct metrics *m, const char *name, enum metric_type type,
                         const char *help, double v)
{
    mr__metrics_family(m, name, type, help);
    mr__metrics_double(m, NULL, 0, v);
}

static void write_uint(struct metrics *m, const char *name, const char *help, uint64_t v)
{
    mr__metrics_family(m, name, MR_METRIC_GAUGE, help);
    mr__metrics_uint(m, NULL, 0, v);
}

static void write_cpu(struct metrics *m)
{
    struct rusage use;
    double user, system;

    if (getrusage(RUSAGE_SELF, &use) < 0) {
        return;
    }
    user = (double)use.ru_utime.tv_sec + (double)use.ru_utime.tv_usec / 1e6;
    system = (double)use.ru_stime.tv_sec + (double)use.ru_stime.tv_usec / 1e6;
    write_double(m, "process_cpu_user_seconds_total", MR_METRIC_COUNTER,
                 "Processor time spent in the program, seconds.", user);
    write_double(m, "process_cpu_system_seconds_total", MR_METRIC_COUNTER,
                 "Processor time spent in the kernel, seconds.", system);
    write_double(m, "process_cpu_seconds_total", MR_METRIC_COUNTER,
                 "Processor time spent in all, seconds.", user + system);
}

void mr__process_metrics(void *user, struct metrics *m)
{
    unsigned long long stat[STAT_FIELDS];
    struct rlimit files;

    (void)user;
    write_cpu(m);
    if (read_stat(stat) == 0) {
        double booted = boot_time();
        if (booted > 0) {
            write_double(m, "process_start_time_seconds", MR_METRIC_GAUGE,
                         "When the process started, seconds since the epoch.",
                         booted + (double)stat[STAT_START_TIME] / (double)sysconf(_SC_CLK_TCK));
        }
        write_uint(m, "process_virtual_memory_bytes", "Address space in use, bytes.",
                   stat[STAT_VIRTUAL]);
        write_uint(m, "process_resident_memory_bytes", "Memory in use, bytes.",
                   stat[STAT_RESIDENT] * (uint64_t)sysconf(_SC_PAGESIZE));
    }
    write_uint(m, "process_open_fds", "Open files and sockets.", count_files());
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        write_uint(m, "process_max_fds", "Open files and sockets allowed.", files.rlim_cur);
    }
}
