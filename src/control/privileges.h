/* SPDX-License-Identifier: MIT */
/*
 * From root to a user, in two steps. Between them files are opened as that user, so that what a
 * policy reads and who owns the control socket is right, and low ports can still be bound; after
 * the second nothing of root is left in any thread, and it cannot be had back.
 *
 * The thread that starts the server; the C library carries ids over to all threads. Start reading
 * at mr__privileges_step_down().
 */
#ifndef MR_CONTROL_PRIVILEGES_H
#define MR_CONTROL_PRIVILEGES_H

#include "io/unix.h"

#include <stdbool.h>
#include <stdint.h>

enum { MR_IDENTITY_NAME_MAX = 64 };

struct identity {
    uint32_t uid, gid;
    char name[MR_IDENTITY_NAME_MAX];
};

/* The user of that name. -ENOENT: there is none. */
int mr__privileges_find(struct identity *out, const char *name);

bool mr__privileges_are_roots(void);
/* We are that user already. */
bool mr__privileges_are_of(const struct identity *who);

/* No program that this thread, or one that it starts from now on, executes gives it more rights. */
int mr__privileges_gain_none(void);

/* As root: the folder of a path that shall be the user's; as mr__unix_make_folder(). */
int mr__privileges_make_folder(const struct identity *who, const char *path,
                               enum unix_folder whose);

/* As root: becomes the user, his groups included, for everything but the ports below 1024 and the
 * size of buffers; those remain for this thread and what it starts. */
int mr__privileges_step_down(const struct identity *who);

/* For ever, in all threads. -EPERM: something is left, or could be had back; then nothing must be
 * served. */
int mr__privileges_give_up(const struct identity *who);

/* Whether the file can be opened for reading now; negative errno. */
int mr__privileges_can_read(const char *path);

#endif
