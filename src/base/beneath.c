/* SPDX-License-Identifier: MIT */
/*
 * See beneath.h. Start reading at mr__beneath_open().
 */
#include "base/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* openat2 says EAGAIN when something was renamed meanwhile. */
enum { AGAIN_MOST = 32 };

static const int read_flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

static int open_folder(const char *folder)
{
    int fd = open(*folder ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

/*
 * ThreadSanitizer does not see what a bare system call opens, and takes it for the
 * socket that had this number before, which libuv closes by a bare call as well: it would
 * tell of a race. So it is opened again in its sight.
 */
static int show_to_sanitizer(int fd)
{
#ifdef __SANITIZE_THREAD__
    char path[32];
    int seen;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    seen = open(path, read_flags);
    seen = seen < 0 ? -errno : seen;
    syscall(SYS_close, fd);
    return seen;
#else
    return fd;
#endif
}

/* -ENOSYS where there is no such call, also where a sandbox forbids what it does not know. */
static int open_beneath(int folder, const char *path)
{
    struct open_how how = {.flags = (uint64_t)read_flags,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = -1;

    for (int i = 0; i < AGAIN_MOST; i++) {
        fd = syscall(SYS_openat2, folder, path, &how, sizeof how);
        if (fd >= 0) {
            return show_to_sanitizer((int)fd);
        }
        if (errno != EAGAIN && errno != EINTR) {
            return errno == EPERM ? -ENOSYS : -errno;
        }
    }
    return -EAGAIN;
}

/* One name of the walk; what is a link is told apart from what is missing. */
static int open_name(int folder, const char *name, bool is_last)
{
    int flags = is_last ? read_flags | O_NOFOLLOW : O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC;
    int fd = openat(folder, name, flags);
    int rc = fd < 0 ? -errno : fd;
    struct stat st;

    if ((rc == -ELOOP || rc == -ENOTDIR) && fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(st.st_mode)) {
        return -EXDEV;
    }
    return rc;
}

static int open_walking(int folder, const char *path)
{
    char name[256];
    int at = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    int rc = at < 0 ? -errno : at;

    if (*path == '/') {
        rc = -EXDEV;
    }
    while (rc >= 0 && *path) {
        size_t n = strcspn(path, "/");
        size_t skip = n + strspn(path + n, "/");
        bool is_last = path[skip] == 0;

        if (n >= sizeof name) {
            rc = -ENAMETOOLONG;
        } else if (n == 2 && memcmp(path, "..", 2) == 0) {
            rc = -EXDEV;
        } else {
            memcpy(name, path, n);
            name[n] = 0;
            rc = open_name(at, name, is_last && path[n] == 0);
        }
        path += skip;
        if (rc >= 0) {
            close(at);
            at = rc;
        }
    }
    if (rc < 0 && at >= 0) {
        close(at);
    }
    return rc;
}

int mr__beneath_open(const char *folder, const char *path, enum beneath_way way)
{
    int dir = open_folder(folder);
    int fd = dir;

    if (dir >= 0) {
        fd = way == MR_BENEATH_BEST ? open_beneath(dir, path) : -ENOSYS;
        if (fd == -ENOSYS) {
            fd = open_walking(dir, path);
        }
        close(dir);
    }
    return fd;
}
