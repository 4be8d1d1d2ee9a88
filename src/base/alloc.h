/* SPDX-License-Identifier: MIT */
/*
 * The one door to the heap for all of our C (LuaJIT states have their own).
 * Any thread. Tests make the n-th allocation fail through mr__alloc_fail_after();
 * production builds pay one predictable branch for that.
 */
#ifndef MR_BASE_ALLOC_H
#define MR_BASE_ALLOC_H

#include <stddef.h>

/* Zeroed memory of n * size bytes, or NULL (also when the product overflows). */
void *mr__alloc(size_t n, size_t size);

/* Like realloc(3); the new part is not zeroed. On NULL the old block is intact. */
void *mr__realloc(void *p, size_t n, size_t size);

/* Accepts NULL. */
void mr__free(void *p);

/* A heap copy of n bytes plus a closing NUL, or NULL. */
char *mr__strndup(const char *s, size_t n);

/* Zero pages straight from the kernel for tables that are sized for the worst
 * case: a page nobody touches costs nothing. NULL when refused. bytes must be
 * the same in both calls. */
void *mr__map(size_t bytes);
void mr__unmap(void *p, size_t bytes);

/* Lets n more allocations succeed, then fails every one until called with a
 * negative n. For tests. */
void mr__alloc_fail_after(long n);

/* Lets n more allocations succeed, then fails one. For tests. */
void mr__alloc_fail_once(long n);

/* How many have failed so since one of these two was called. */
long mr__alloc_failures(void);

/* Blocks handed out and not yet freed (maps included). For leak tests. */
long mr__alloc_live(void);

#endif
