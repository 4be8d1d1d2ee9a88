/* SPDX-License-Identifier: MIT */
/*
 * The wall clock of a daemon under test (LD_PRELOAD, behind a sanitizer's own library) is as many
 * seconds off as the file $MR_TEST_CLOCK says, which is read at every look. Clocks that count from
 * the start of the machine are left alone: nobody can step those.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Not by open(2) of a library that may look at the clock itself. */
static long offset(void)
{
    const char *path = getenv("MR_TEST_CLOCK");
    char text[32] = "";
    long fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0) {
        return 0;
    }
    long n = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    return n > 0 ? strtol(text, NULL, 10) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
    long rc = syscall(SYS_clock_gettime, clock, ts);

    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        ts->tv_sec += offset();
    }
    return (int)rc;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec ts;

    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    *tv = (struct timeval){.tv_sec = ts.tv_sec, .tv_usec = ts.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    if (out) {
        *out = ts.tv_sec;
    }
    return ts.tv_sec;
}
