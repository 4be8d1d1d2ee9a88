/* SPDX-License-Identifier: MIT */
/*
 * "Did you mean": the name of a list that is nearest to what somebody wrote. Pure.
 */
#ifndef MR_BASE_SUGGEST_H
#define MR_BASE_SUGGEST_H

#include <stddef.h>

/* The name that differs least from word[0..n), by at most a third of its letters or by what one
 * has behind the other; or NULL. names ends with NULL. */
const char *mr__suggest_name(const char *word, size_t n, const char *const *names);

/* How many letters must be added, removed, changed or swapped with their neighbour to make a of b;
 * SUGGEST_FAR or more for long words. Case does not count. */
enum { SUGGEST_FAR = 99 };
unsigned mr__suggest_distance(const char *a, size_t na, const char *b, size_t nb);

#endif
