/* SPDX-License-Identifier: MIT */
/*
 * See unix.h. Two starts at once must not each take the other's socket for a dead one, so
 * looking, removing and binding happen under a lock of the folder.
 */
#include "io/unix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int address_of(struct sockaddr_un *sa, const char *path)
{
    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof sa->sun_path) {
        return -ENAMETOOLONG;
    }
    strcpy(sa->sun_path, path);
    return 0;
}

static int open_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd < 0 ? -errno : fd;
}

static void folder_of(const struct sockaddr_un *sa, char folder[sizeof sa->sun_path])
{
    char *slash;

    strcpy(folder, sa->sun_path);
    slash = strrchr(folder, '/');
    if (slash) {
        slash[slash == folder] = 0; /* the root keeps its slash */
    } else {
        strcpy(folder, ".");
    }
}

int mr__unix_make_folder(const char *path, uint32_t uid, uint32_t gid, enum unix_folder whose)
{
    struct sockaddr_un sa;
    char folder[sizeof sa.sun_path];
    struct stat st;
    int rc = address_of(&sa, path), fd;
    bool is_made;

    if (rc < 0) {
        return rc;
    }
    folder_of(&sa, folder);
    is_made = mkdir(folder, 0700) == 0;
    if (!is_made && errno != EEXIST) {
        return -errno;
    }
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    rc = fstat(fd, &st) < 0 ? -errno : 0;
    if (rc == 0 && (is_made || whose == MR_UNIX_FOLDER_OURS) && st.st_uid == 0) {
        rc = fchown(fd, uid, gid) < 0 ? -errno : 0;
    }
    close(fd);
    return rc;
}

/* The folder of a path that fits into a sockaddr; made if it is missing; locked. */
static int lock_folder(const struct sockaddr_un *sa)
{
    char folder[sizeof sa->sun_path];
    int fd;

    folder_of(sa, folder);
    if (mkdir(folder, 0700) < 0 && errno != EEXIST) {
        return -errno;
    }
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    (void)flock(fd, LOCK_EX); /* a file system without locks has one start at a time */
    return fd;
}

/* Whether somebody listens there. A queue that is full has an owner. */
static int try_connect(const struct sockaddr_un *sa)
{
    int fd = open_socket();
    int rc;

    if (fd < 0) {
        return fd;
    }
    rc = connect(fd, (const struct sockaddr *)sa, sizeof *sa) < 0 ? -errno : 0;
    close(fd);
    return rc == -EAGAIN || rc == -EINPROGRESS ? 0 : rc;
}

/* Removes what a dead process left. */
static int make_room(const struct sockaddr_un *sa)
{
    struct stat st;
    int rc;

    if (lstat(sa->sun_path, &st) < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    if (!S_ISSOCK(st.st_mode)) {
        return -EEXIST;
    }
    rc = try_connect(sa);
    if (rc != -ECONNREFUSED) {
        return rc == 0 ? -EADDRINUSE : rc;
    }
    return unlink(sa->sun_path) < 0 && errno != ENOENT ? -errno : 0;
}

static struct unix_file file_of(const struct stat *st)
{
    return (struct unix_file){.device = (uint64_t)st->st_dev,
                              .inode = (uint64_t)st->st_ino,
                              .made_s = (uint64_t)st->st_mtim.tv_sec,
                              .made_ns = (uint64_t)st->st_mtim.tv_nsec};
}

static int bind_and_listen(int fd, const struct sockaddr_un *sa, int backlog,
                           struct unix_file *file)
{
    mode_t before = umask(0177);
    int rc = bind(fd, (const struct sockaddr *)sa, sizeof *sa) < 0 ? -errno : 0;
    struct stat st;

    umask(before);
    if (rc < 0) {
        return rc;
    }
    if (lstat(sa->sun_path, &st) < 0) {
        return -errno;
    }
    *file = file_of(&st);
    if (listen(fd, backlog) < 0) {
        rc = -errno;
        unlink(sa->sun_path);
    }
    return rc;
}

int mr__unix_open(const char *path, int backlog, struct unix_file *file)
{
    struct sockaddr_un sa;
    int rc = address_of(&sa, path), folder, fd;

    if (rc < 0) {
        return rc;
    }
    folder = lock_folder(&sa);
    if (folder < 0) {
        return folder;
    }
    fd = open_socket();
    rc = fd < 0 ? fd : make_room(&sa);
    if (rc == 0) {
        rc = bind_and_listen(fd, &sa, backlog, file);
    }
    close(folder);
    if (rc < 0 && fd >= 0) {
        close(fd);
    }
    return rc < 0 ? rc : fd;
}

int mr__unix_accept(int listener)
{
    int fd;

    do {
        fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

int mr__unix_datagram(void)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd < 0 ? -errno : fd;
}

int mr__unix_send(int fd, const char *path, const void *data, size_t n)
{
    struct sockaddr_un sa;
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    ssize_t sent;
    int rc = address_of(&sa, path);

    if (rc < 0) {
        return rc;
    }
    if (sa.sun_path[0] == '@') {
        sa.sun_path[0] = 0; /* the name ends where the address does */
    } else {
        len++;
    }
    do {
        sent = sendto(fd, data, n, MSG_NOSIGNAL, (const struct sockaddr *)&sa, len);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

void mr__unix_close(int fd)
{
    close(fd);
}

void mr__unix_remove(const char *path, const struct unix_file *file)
{
    struct stat st;

    if (lstat(path, &st) == 0) {
        struct unix_file now = file_of(&st);
        if (memcmp(&now, file, sizeof now) == 0) {
            unlink(path);
        }
    }
}
