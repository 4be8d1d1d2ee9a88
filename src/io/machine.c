/* SPDX-License-Identifier: MIT */
/*
 * Clock, randomness, cores, interfaces. Any thread. Start reading at
 * mr__machine_cores().
 */
#include "io/machine.h"

#include "io/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

uint64_t mr__machine_clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void mr__machine_pause(void)
{
    (void)poll(NULL, 0, 1);
}

int mr__machine_random(void *buf, size_t n)
{
    uint8_t *p = buf;

    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);

        if (got < 0 && errno != EINTR)
            return -errno;
        if (got > 0) {
            p += got;
            n -= (size_t)got;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ cores */

/* Reads a small file; "" when it cannot. */
static void read_text(const char *path, char *buf, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, buf, cap - 1);

    buf[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

uint64_t mr__machine_quota_millicores(const char *text)
{
    uint64_t quota, period;

    if (sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) != 2 || period == 0 || quota == 0)
        return 0;
    if (quota > UINT64_MAX / 1000 - period)
        return 0;
    return (quota * 1000 + period - 1) / period;
}

static uint64_t smaller_quota(uint64_t a, uint64_t b)
{
    return a == 0 ? b : b == 0 || a < b ? a : b;
}

/* cgroup v2: the quota of our own group and of each above it binds. */
static uint64_t quota_v2(void)
{
    char text[4096], path[4096 + 64], value[64];
    uint64_t least = 0;
    char *own, *end;

    read_text("/proc/self/cgroup", text, sizeof text);
    own = strstr(text, "0::/");
    if (!own)
        return 0;
    own += 3;
    own[strcspn(own, "\n")] = '\0';
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", own);
        read_text(path, value, sizeof value);
        least = smaller_quota(least, mr__machine_quota_millicores(value));
        end = strrchr(own, '/');
        if (!end)
            return least;
        *end = '\0';
    }
}

static uint64_t quota_v1(void)
{
    char quota[32], period[32], both[80];

    read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota);
    read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period);
    if (quota[0] == '-') /* -1: none */
        return 0;
    snprintf(both, sizeof both, "%s %s", quota, period);
    return mr__machine_quota_millicores(both);
}

unsigned mr__machine_cores(void)
{
    uint64_t quota = smaller_quota(quota_v2(), quota_v1());
    unsigned cores = 1;
    cpu_set_t set;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        cores = (unsigned)CPU_COUNT(&set);
    if (quota > 0 && (quota + 999) / 1000 < cores)
        cores = (unsigned)((quota + 999) / 1000);
    return cores;
}

/* ------------------------------------------------------------------ addresses */

int mr__machine_addresses(struct mr_addr *out, unsigned max)
{
    struct ifaddrs *list;
    unsigned n = 0;

    if (getifaddrs(&list) < 0)
        return -errno;
    for (const struct ifaddrs *i = list; i && n < max; i = i->ifa_next) {
        union socket_addr sa = {.v6 = {.sin6_family = AF_UNSPEC}};
        struct mr_addr a;

        if (!i->ifa_addr)
            continue;
        if (i->ifa_addr->sa_family == AF_INET)
            memcpy(&sa.v4, i->ifa_addr, sizeof sa.v4);
        else if (i->ifa_addr->sa_family == AF_INET6)
            memcpy(&sa.v6, i->ifa_addr, sizeof sa.v6);
        else
            continue;
        mr__socket_addr_read(&a, &sa);
        a.port = 0;
        if (a.family)
            out[n++] = a;
    }
    freeifaddrs(list);
    return (int)n;
}
