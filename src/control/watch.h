/* SPDX-License-Identifier: MIT */
/*
 * Tells when one of some files was changed, by watching their folders: editors and
 * configuration tools put a new file in the old one's place, and whoever watches the file
 * itself watches the old one for ever. Control thread.
 *
 * A change is told once it has been quiet for a moment. In the folders every Lua file
 * counts, since a file that would not load is in no list.
 */
#ifndef MR_CONTROL_WATCH_H
#define MR_CONTROL_WATCH_H

#include <stddef.h>
#include <uv.h>

enum {
    MR_WATCH_QUIET_MS = 200,
    MR_WATCH_LONGEST_MS = 2000, /* of changes without a pause; then it is told all the same */
    MR_WATCH_FOLDERS_MAX = 64,
};

struct watch;

/* -ENOMEM. */
int mr__watch_create(struct watch **out, uv_loop_t *loop, void (*on_change)(void *user),
                     void *user);

/* Replaces the files. -ENOSPC: more folders than it can watch, or the kernel's error for one that
 * cannot be watched (the others are). n = 0: none. */
int mr__watch_set(struct watch *w, const char *const *paths, size_t n);

/* Frees it when the loop has run its close callbacks. Accepts NULL. */
void mr__watch_destroy(struct watch *w);

#endif
