/* SPDX-License-Identifier: MIT */
/*
 * The allocator seam: what it promises about contents, failure and counting.
 */
#include "test.h"

#include "base/alloc.h"

TEST(new_memory_is_zeroed_and_counted_until_it_is_freed)
{
    long before = mr__alloc_live();
    unsigned char *p = mr__alloc(100, 3);
    unsigned sum = 0;

    REQUIRE(p);
    for (int i = 0; i < 300; i++)
        sum += p[i];
    CHECK_EQ(sum, 0u);
    CHECK_EQ(mr__alloc_live(), before + 1);
    p = mr__realloc(p, 1000, 1);
    REQUIRE(p);
    CHECK_EQ(mr__alloc_live(), before + 1);
    mr__free(p);
    mr__free(NULL);
    CHECK_EQ(mr__alloc_live(), before);
}

TEST(a_size_that_overflows_is_refused_and_an_empty_one_is_not)
{
    void *p;

    /* Through a volatile, or the compiler sees the impossible size and complains. */
    volatile size_t huge = SIZE_MAX / 2;
    CHECK(mr__alloc(huge, 3) == NULL);
    CHECK(mr__realloc(NULL, huge, 3) == NULL);
    CHECK(mr__strndup("", SIZE_MAX) == NULL);
    CHECK(mr__map(SIZE_MAX) == NULL);
    CHECK(mr__map(0) == NULL);
    p = mr__alloc(0, 8);
    CHECK(p != NULL);
    mr__free(p);
    p = mr__realloc(NULL, 0, 0);
    CHECK(p != NULL);
    mr__free(p);
}

TEST(a_copy_of_n_bytes_ends_in_a_nul)
{
    char *s = mr__strndup("hello", 4), *empty = mr__strndup(NULL, 0);

    CHECK_STR(s, "hell");
    CHECK_STR(empty, "");
    mr__free(s);
    mr__free(empty);
}

TEST(after_n_successes_every_allocation_fails_until_told_otherwise)
{
    long before = mr__alloc_live();
    char *a, *b;

    mr__alloc_fail_after(1);
    a = mr__alloc(1, 1);
    CHECK(a != NULL);
    CHECK(mr__alloc(1, 1) == NULL);
    CHECK(mr__realloc(a, 2, 1) == NULL);
    CHECK(mr__realloc(NULL, 2, 1) == NULL);
    CHECK(mr__strndup("x", 1) == NULL);
    CHECK(mr__map(4096) == NULL);
    mr__alloc_fail_after(-1);
    b = mr__realloc(a, 2, 1); /* the block that could not grow is still there */
    CHECK(b != NULL);
    mr__free(b);
    CHECK_EQ(mr__alloc_live(), before);
}

TEST(mapped_pages_are_zero_aligned_and_counted)
{
    static const size_t sizes[] = {1, 4096, 4097, (size_t)33 << 20};
    long before = mr__alloc_live();

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *p = mr__map(sizes[i]);

        REQUIRE(p);
        CHECK_EQ((uintptr_t)p % 64, 0u);
        CHECK_EQ(p[0] + p[sizes[i] - 1], 0);
        p[0] = p[sizes[i] - 1] = 1;
        CHECK_EQ(mr__alloc_live(), before + 1);
        mr__unmap(p, sizes[i]);
    }
    mr__unmap(NULL, 5);
    CHECK_EQ(mr__alloc_live(), before);
}

TEST_MAIN(TEST_CASE(new_memory_is_zeroed_and_counted_until_it_is_freed),
          TEST_CASE(a_size_that_overflows_is_refused_and_an_empty_one_is_not),
          TEST_CASE(a_copy_of_n_bytes_ends_in_a_nul),
          TEST_CASE(after_n_successes_every_allocation_fails_until_told_otherwise),
          TEST_CASE(mapped_pages_are_zero_aligned_and_counted))
