/* SPDX-License-Identifier: MIT */
/*
 * See privileges.h. The first step leaves root in the real and the saved user id: with only
 * the effective one gone, the kernel takes the effective capabilities away and keeps the
 * permitted ones, of which we take two back, in this thread. With the last of the three ids
 * the kernel takes all of them away, from each thread (capabilities(7)). Capabilities
 * themselves are a thread's own, so that the workers' could not be taken from here.
 */
#include "control/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENTRY_BYTES = 16384 /* of a user; the C library's own guess is 1,024 */ };

int mr__privileges_find(struct identity *out, const char *name)
{
    char buf[ENTRY_BYTES];
    struct passwd entry, *found = NULL;
    int rc = getpwnam_r(name, &entry, buf, sizeof buf, &found);

    if (!found) {
        return rc > 0 && rc != ESRCH && rc != EBADF ? -rc : -ENOENT;
    }
    *out = (struct identity){.uid = entry.pw_uid, .gid = entry.pw_gid};
    snprintf(out->name, sizeof out->name, "%s", name);
    return 0;
}

bool mr__privileges_are_roots(void)
{
    return geteuid() == 0;
}

bool mr__privileges_are_of(const struct identity *who)
{
    return getuid() == who->uid && geteuid() == who->uid;
}

static void head_of(struct __user_cap_header_struct *head)
{
    *head = (struct __user_cap_header_struct){.version = _LINUX_CAPABILITY_VERSION_3};
}

static int read_capabilities(struct __user_cap_data_struct data[2])
{
    struct __user_cap_header_struct head;

    head_of(&head);
    memset(data, 0, 2 * sizeof *data);
    return syscall(SYS_capget, &head, data) < 0 ? -errno : 0;
}

/* Both are below 32; a container may have been given neither. */
static int take_back_ports_and_buffers(void)
{
    struct __user_cap_header_struct head;
    struct __user_cap_data_struct data[2];
    int rc = read_capabilities(data);

    if (rc < 0) {
        return rc;
    }
    head_of(&head);
    data[0].effective = data[0].permitted & (1u << CAP_NET_BIND_SERVICE | 1u << CAP_NET_ADMIN);
    data[1].effective = 0;
    return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

int mr__privileges_gain_none(void)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

int mr__privileges_make_folder(const struct identity *who, const char *path, enum unix_folder whose)
{
    return mr__unix_make_folder(path, who->uid, who->gid, whose);
}

int mr__privileges_step_down(const struct identity *who)
{
    if (initgroups(who->name, who->gid) < 0 || setresgid(who->gid, who->gid, who->gid) < 0 ||
        seteuid(who->uid) < 0) {
        return -errno;
    }
    return take_back_ports_and_buffers();
}

/* Asked of the kernel and not of the C library, which would ask it of all threads. */
static bool can_come_back(void)
{
    return syscall(SYS_setresuid, -1, 0, -1) == 0 || syscall(SYS_setresuid, 0, -1, -1) == 0;
}

int mr__privileges_give_up(const struct identity *who)
{
    struct __user_cap_data_struct data[2];
    uid_t real, effective, saved;
    int rc;

    if (setresuid(who->uid, who->uid, who->uid) < 0) {
        return -errno;
    }
    if (getresuid(&real, &effective, &saved) < 0) {
        return -errno;
    }
    rc = read_capabilities(data);
    if (rc < 0) {
        return rc;
    }
    if (real != who->uid || effective != who->uid || saved != who->uid || data[0].permitted != 0 ||
        data[1].permitted != 0 || can_come_back()) {
        return -EPERM;
    }
    return 0;
}

int mr__privileges_can_read(const char *path)
{
    /* O_NONBLOCK: a pipe must not wait for somebody who writes to it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return -errno;
    }
    close(fd);
    return 0;
}
