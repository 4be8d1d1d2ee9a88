/* SPDX-License-Identifier: MIT */
/*
 * Opens a file that somebody else named for reading, without ever leaving a folder: not
 * by `..`, an absolute path or a link. Any thread.
 */
#ifndef MR_BASE_BENEATH_H
#define MR_BASE_BENEATH_H

/* How a path is kept in its folder. */
enum beneath_way {
    MR_BENEATH_BEST, /* openat2(2), which follows links that stay inside; else WALK */
    MR_BENEATH_WALK, /* name by name; no link is followed, and `..` is refused */
};

/* A descriptor, or a negative errno; -EXDEV or -ELOOP: it leads out. folder "" is the working
 * directory. A pipe does not block; whether it is a regular file is the caller's to check. */
int mr__beneath_open(const char *folder, const char *path, enum beneath_way way);

#endif
