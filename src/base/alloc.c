/* SPDX-License-Identifier: MIT */
/*
 * The allocator seam: libc's heap and the kernel's pages, a count of what is out
 * and a way to make it fail. Any thread.
 */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Above this a table's random walk misses the TLB on every line; 4 KiB pages of a
 * million links cost more than the lines themselves. Below it, a huge page would
 * make memory resident that nobody touches. */
enum { HUGE_MIN_BYTES = 32 * 1024 * 1024, HUGE_PAGE_BYTES = 2 * 1024 * 1024 };

/* Relaxed where every allocation looks: they order nothing, they are only counted. */
static _Atomic long successes_left = -1;
static _Atomic bool fails_once;
static _Atomic long failures;
static _Atomic long live_blocks;

static bool may_allocate(void)
{
    long left = atomic_load_explicit(&successes_left, memory_order_relaxed);

    while (left >= 0) {
        if (left == 0 && !fails_once) {
            failures++;
            return false;
        }
        if (left == 0) {
            if (!atomic_compare_exchange_weak(&successes_left, &left, -1))
                continue;
            failures++;
            return false;
        }
        if (atomic_compare_exchange_weak_explicit(&successes_left, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    }
    return true;
}

static void *counted(void *p)
{
    if (p)
        atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return p;
}

void *mr__alloc(size_t n, size_t size)
{
    size_t bytes;

    /* calloc() would see the overflow, too, but a sanitizer's ends the program. */
    if (!may_allocate() || __builtin_mul_overflow(n, size, &bytes))
        return NULL;
    /* A block of no bytes would be NULL on some systems and look like a failure. */
    if (n == 0 || size == 0)
        n = size = 1;
    return counted(calloc(n, size));
}

void *mr__realloc(void *p, size_t n, size_t size)
{
    size_t bytes;
    void *q;

    if (!may_allocate() || __builtin_mul_overflow(n, size, &bytes))
        return NULL;
    q = realloc(p, bytes ? bytes : 1);
    return p ? q : counted(q);
}

void mr__free(void *p)
{
    if (!p)
        return;
    atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    free(p);
}

char *mr__strndup(const char *s, size_t n)
{
    char *copy = n < PTRDIFF_MAX ? mr__alloc(n + 1, 1) : NULL;

    if (copy && n)
        memcpy(copy, s, n);
    return copy;
}

/*
 * Big tables start on a huge page's boundary, or the kernel could use huge pages
 * for their middle only. We ask for more, then give the ends back.
 */
static void *map_huge(size_t bytes)
{
    size_t whole;
    char *p, *start;

    if (__builtin_add_overflow(bytes, (size_t)HUGE_PAGE_BYTES, &whole))
        return NULL;
    p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
             0);
    if (p == MAP_FAILED)
        return NULL;
    start = p + (-(uintptr_t)p & (HUGE_PAGE_BYTES - 1));
    if (start > p)
        munmap(p, (size_t)(start - p));
    if (p + whole > start + bytes)
        munmap(start + bytes, (size_t)(p + whole - (start + bytes)));
    /* A refusal (no huge pages here) only costs speed. */
    (void)madvise(start, bytes, MADV_HUGEPAGE);
    return start;
}

static size_t whole_pages(size_t bytes)
{
    return bytes > SIZE_MAX - 4095 ? 0 : (bytes + 4095) & ~(size_t)4095;
}

void *mr__map(size_t bytes)
{
    void *p;

    bytes = whole_pages(bytes);
    if (bytes == 0 || !may_allocate())
        return NULL;
    if (bytes >= HUGE_MIN_BYTES)
        return counted(map_huge(bytes));
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
             0);
    return counted(p == MAP_FAILED ? NULL : p);
}

void mr__unmap(void *p, size_t bytes)
{
    if (!p)
        return;
    atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    munmap(p, whole_pages(bytes));
}

void mr__alloc_fail_after(long n)
{
    fails_once = false;
    failures = 0;
    atomic_store_explicit(&successes_left, n < 0 ? -1 : n, memory_order_relaxed);
}

void mr__alloc_fail_once(long n)
{
    mr__alloc_fail_after(-1);
    fails_once = true;
    successes_left = n;
}

long mr__alloc_failures(void)
{
    return failures;
}

long mr__alloc_live(void)
{
    return atomic_load_explicit(&live_blocks, memory_order_relaxed);
}
