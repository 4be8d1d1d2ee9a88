/* SPDX-License-Identifier: MIT */
/*
 * The test harness: one header, one program per test file. Checks may be made by any thread,
 * REQUIRE_* and TEST_SKIP only by the thread that runs the test. Start reading at TEST_MAIN.
 *
 *     #include "test.h"
 *
 *     TEST(one_refused_datagram_costs_only_itself)
 *     {
 *         CHECK_EQ(sent, 63);
 *     }
 *
 *     TEST_MAIN(TEST_CASE(one_refused_datagram_costs_only_itself))
 *
 * A failed CHECK prints both values and the test goes on; a failed REQUIRE ends that test. A test
 * that leaves an fd, a thread or a child behind fails. Arguments of the program: names of the tests
 * to run (all without), or --list. Exit: 0 all passed, 1 something failed, 77 something was skipped
 * and nothing failed.
 */
#ifndef MR_TESTS_TEST_H
#define MR_TESTS_TEST_H

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEST(name) static void name(void)

struct test_case {
    const char *name;
    void (*run)(void);
};

/* clang-format off */
#define TEST_CASE(function) {.name = #function, .run = function}
/* clang-format on */

/* ---- state of the running test ------------------------------------------------------------- */

enum {
    TEST_EVENTUALLY_MS = 30000, /* far above any real wait, so that a slow machine fails nothing */
    TEST_SKIP_CODE = 77,        /* what ctest is told to read as "skipped" */
    TEST_SEED_DEFAULT = 1,      /* any number; the same in seed.lua */
};

static atomic_int
    test_failures; /* of the running test; relaxed: joined or polled before it is read */
static const char *test_skip_reason;
static jmp_buf test_end;
static uint64_t test_random_state;
static bool test_random_begun; /* by the running test */

/* ---- values -------------------------------------------------------------------------------- */

struct test_value {
    enum { TEST_SIGNED, TEST_UNSIGNED, TEST_POINTER, TEST_DOUBLE } kind;
    long long s;
    unsigned long long u;
    const void *p;
    double d;
};

static inline struct test_value test_value_signed(long long v)
{
    return (struct test_value){.kind = TEST_SIGNED, .s = v};
}

static inline struct test_value test_value_unsigned(unsigned long long v)
{
    return (struct test_value){.kind = TEST_UNSIGNED, .u = v};
}

static inline struct test_value test_value_double(double v)
{
    return (struct test_value){.kind = TEST_DOUBLE, .d = v};
}

static inline struct test_value test_value_pointer(const volatile void *v)
{
    return (struct test_value){.kind = TEST_POINTER, .p = (const void *)v};
}

#define TEST_VALUE(x)                                \
    _Generic((x), bool                               \
             : test_value_unsigned, char             \
             : test_value_signed, signed char        \
             : test_value_signed, unsigned char      \
             : test_value_unsigned, short            \
             : test_value_signed, unsigned short     \
             : test_value_unsigned, int              \
             : test_value_signed, unsigned int       \
             : test_value_unsigned, long             \
             : test_value_signed, unsigned long      \
             : test_value_unsigned, long long        \
             : test_value_signed, unsigned long long \
             : test_value_unsigned, float            \
             : test_value_double, double             \
             : test_value_double, default            \
             : test_value_pointer)(x)

static inline void test_value_print(const char *text, const struct test_value *v)
{
    switch (v->kind) {
    case TEST_SIGNED:
        fprintf(stderr, "#   %s = %lld\n", text, v->s);
        break;
    case TEST_UNSIGNED:
        fprintf(stderr, "#   %s = %llu (0x%llx)\n", text, v->u, v->u);
        break;
    case TEST_POINTER:
        fprintf(stderr, "#   %s = %p\n", text, v->p);
        break;
    case TEST_DOUBLE:
        fprintf(stderr, "#   %s = %.17g\n", text, v->d);
        break;
    }
}

/* -1, 0 or 1 as numbers compare, so that -1 is below every unsigned; 2: they have no order. */
static inline int test_value_order(const struct test_value *a, const struct test_value *b)
{
    if (a->kind == TEST_POINTER || b->kind == TEST_POINTER) {
        /* An integer beside a pointer can only be a literal 0. */
        const void *pa = a->kind == TEST_POINTER ? a->p : NULL;
        const void *pb = b->kind == TEST_POINTER ? b->p : NULL;
        return pa == pb ? 0 : 2;
    }
    if (a->kind == TEST_DOUBLE || b->kind == TEST_DOUBLE) {
        double da = a->kind == TEST_DOUBLE   ? a->d
                    : a->kind == TEST_SIGNED ? (double)a->s
                                             : (double)a->u;
        double db = b->kind == TEST_DOUBLE   ? b->d
                    : b->kind == TEST_SIGNED ? (double)b->s
                                             : (double)b->u;
        return da < db ? -1 : da > db ? 1 : da == db ? 0 : 2;
    }
    bool a_negative = a->kind == TEST_SIGNED && a->s < 0;
    bool b_negative = b->kind == TEST_SIGNED && b->s < 0;
    if (a_negative != b_negative) {
        return a_negative ? -1 : 1;
    }
    if (a_negative) {
        return a->s < b->s ? -1 : a->s > b->s;
    }
    unsigned long long ua = a->kind == TEST_SIGNED ? (unsigned long long)a->s : a->u;
    unsigned long long ub = b->kind == TEST_SIGNED ? (unsigned long long)b->s : b->u;
    return ua < ub ? -1 : ua > ub;
}

/* ---- checks -------------------------------------------------------------------------------- */

static inline bool test_report(bool ok, const char *file, int line, const char *what)
{
    if (!ok) {
        atomic_fetch_add_explicit(&test_failures, 1, memory_order_relaxed);
        fprintf(stderr, "# %s:%d: failed: %s\n", file, line, what);
    }
    return ok;
}

enum test_operator { TEST_EQ, TEST_NE, TEST_LT, TEST_LE, TEST_GT, TEST_GE };

static inline bool test_compare(enum test_operator op, struct test_value a, struct test_value b,
                                const char *text_a, const char *text_b, const char *what,
                                const char *file, int line)
{
    int order = test_value_order(&a, &b);
    bool ok = false;

    switch (op) {
    case TEST_EQ:
        ok = order == 0;
        break;
    case TEST_NE:
        ok = order != 0;
        break;
    case TEST_LT:
        ok = order == -1;
        break;
    case TEST_LE:
        ok = order == -1 || order == 0;
        break;
    case TEST_GT:
        ok = order == 1;
        break;
    case TEST_GE:
        ok = order == 1 || order == 0;
        break;
    }
    if (!test_report(ok, file, line, what)) {
        test_value_print(text_a, &a);
        test_value_print(text_b, &b);
    }
    return ok;
}

static inline void test_print_bytes(const char *text, const void *data, size_t size)
{
    const unsigned char *p = data;

    fprintf(stderr, "#   %s =", text);
    for (size_t i = 0; i < size && i < 64; i++) {
        fprintf(stderr, " %02x", p[i]);
    }
    fprintf(stderr, size > 64 ? " ... (%zu bytes)\n" : " (%zu bytes)\n", size);
}

static inline bool test_compare_bytes(const void *a, size_t na, const void *b, size_t nb,
                                      const char *text_a, const char *text_b, const char *file,
                                      int line)
{
    bool ok = na == nb && (na == 0 || memcmp(a, b, na) == 0);

    if (!test_report(ok, file, line, "bytes are equal")) {
        test_print_bytes(text_a, a, na);
        test_print_bytes(text_b, b, nb);
    }
    return ok;
}

static inline bool test_compare_text(const char *a, const char *b, const char *text_a,
                                     const char *text_b, const char *file, int line)
{
    bool ok = a && b ? strcmp(a, b) == 0 : a == b;

    if (!test_report(ok, file, line, "texts are equal")) {
        fprintf(stderr, "#   %s = \"%s\"\n#   %s = \"%s\"\n", text_a, a ? a : "(null)", text_b,
                b ? b : "(null)");
    }
    return ok;
}

#define TEST_COMPARE(op, sign, a, b) \
    test_compare(op, TEST_VALUE(a), TEST_VALUE(b), #a, #b, #a " " sign " " #b, __FILE__, __LINE__)
#define TEST_OR_END(ok)           \
    do {                          \
        if (!(ok)) {              \
            longjmp(test_end, 1); \
        }                         \
    } while (0)

/* Bit fields have no address and an odd type: write `+ 0` behind one. */
#define CHECK(cond)     ((void)test_report((cond), __FILE__, __LINE__, #cond))
#define CHECK_EQ(a, b)  ((void)TEST_COMPARE(TEST_EQ, "==", a, b))
#define CHECK_NE(a, b)  ((void)TEST_COMPARE(TEST_NE, "!=", a, b))
#define CHECK_LT(a, b)  ((void)TEST_COMPARE(TEST_LT, "<", a, b))
#define CHECK_LE(a, b)  ((void)TEST_COMPARE(TEST_LE, "<=", a, b))
#define CHECK_GT(a, b)  ((void)TEST_COMPARE(TEST_GT, ">", a, b))
#define CHECK_GE(a, b)  ((void)TEST_COMPARE(TEST_GE, ">=", a, b))
#define CHECK_STR(a, b) ((void)test_compare_text((a), (b), #a, #b, __FILE__, __LINE__))
#define CHECK_MEM(a, na, b, nb) \
    ((void)test_compare_bytes((a), (na), (b), (nb), #a, #b, __FILE__, __LINE__))

#define REQUIRE(cond)     TEST_OR_END(test_report((cond), __FILE__, __LINE__, #cond))
#define REQUIRE_EQ(a, b)  TEST_OR_END(TEST_COMPARE(TEST_EQ, "==", a, b))
#define REQUIRE_NE(a, b)  TEST_OR_END(TEST_COMPARE(TEST_NE, "!=", a, b))
#define REQUIRE_GE(a, b)  TEST_OR_END(TEST_COMPARE(TEST_GE, ">=", a, b))
#define REQUIRE_STR(a, b) TEST_OR_END(test_compare_text((a), (b), #a, #b, __FILE__, __LINE__))

/* Fails, with a printf-like message. */
#define FAIL(...)                                                            \
    do {                                                                     \
        test_report(false, __FILE__, __LINE__, "this place is not reached"); \
        fprintf(stderr, "#   " __VA_ARGS__);                                 \
        fputc('\n', stderr);                                                 \
    } while (0)

/* Ends the test as skipped. For what this machine cannot do, never for what is not written yet. */
#define TEST_SKIP(reason)            \
    do {                             \
        test_skip_reason = (reason); \
        longjmp(test_end, 1);        \
    } while (0)

/* ---- waiting and chance -------------------------------------------------------------------- */

static inline uint64_t test_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Gives the other threads a millisecond. */
static inline void test_pause(void)
{
    poll(NULL, 0, 1);
}

/* Evaluates cond again and again until it holds or TEST_EVENTUALLY_MS are over. */
#define TEST_UNTIL(cond)                                                   \
    ({                                                                     \
        uint64_t test_deadline_ = test_now_ms() + TEST_EVENTUALLY_MS;      \
        bool test_held_;                                                   \
        while (!(test_held_ = (cond)) && test_now_ms() < test_deadline_) { \
            test_pause();                                                  \
        }                                                                  \
        test_held_;                                                        \
    })
#define CHECK_EVENTUALLY(cond) \
    ((void)test_report(TEST_UNTIL(cond), __FILE__, __LINE__, "in the end " #cond))
#define REQUIRE_EVENTUALLY(cond) \
    TEST_OR_END(test_report(TEST_UNTIL(cond), __FILE__, __LINE__, "in the end " #cond))

/* The seed of this run: one number for everybody, so that a red run concerns the change and not
 * luck; TEST_SEED=<n> in the environment is another, TEST_SEED=random a fresh one. A drawn one is
 * put into the environment, where the other files of the program and its children find it. */
static inline uint64_t test_seed(void)
{
    const char *given = getenv("TEST_SEED");
    char text[24], *end;
    uint64_t seed = TEST_SEED_DEFAULT;

    if (!given || !*given) {
        return seed;
    }
    if (strcmp(given, "random") == 0) {
        if (getrandom(&seed, sizeof seed, 0) != sizeof seed) {
            abort();
        }
        snprintf(text, sizeof text, "%" PRIu64, seed);
        setenv("TEST_SEED", text, 1);
        return seed;
    }
    seed = strtoull(given, &end, 0);
    if (*end) {
        fprintf(stderr, "# TEST_SEED=%s: a number or \"random\" is expected\n", given);
        exit(1);
    }
    return seed;
}

/* The next number of a repeatable sequence (splitmix64), which begins anew with each test, so that
 * one that is run alone does the same. The seed is printed. Not for several threads at once. */
static inline uint64_t test_random(void)
{
    if (!test_random_begun) {
        test_random_begun = true;
        test_random_state = test_seed();
        fprintf(stderr, "# TEST_SEED=%" PRIu64 "\n", test_random_state);
    }
    uint64_t z = (test_random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A number below n (n > 0). */
static inline uint64_t test_random_below(uint64_t n)
{
    return test_random() % n;
}

/* ---- running ------------------------------------------------------------------------------- */

static inline int test_count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;

    if (!dir) {
        return -1;
    }
    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n;
}

/* A joined thread may still be in /proc for a moment, so the count is waited for. */
static inline bool test_came_back(const char *path, int before)
{
    return TEST_UNTIL(test_count_entries(path) <= before);
}

static inline void test_check_leftovers(int fds, int threads)
{
    int status;

    if (!test_came_back("/proc/self/task", threads)) {
        test_report(false, __FILE__, __LINE__, "no thread is left behind");
    }
    if (test_count_entries("/proc/self/fd") > fds) {
        test_report(false, __FILE__, __LINE__, "no fd is left behind");
        fprintf(stderr, "#   %d more than before\n", test_count_entries("/proc/self/fd") - fds);
    }
    if (waitpid(-1, &status, WNOHANG) != -1) {
        test_report(false, __FILE__, __LINE__, "no child is left behind");
    }
}

/* By itself and never inlined, so that longjmp() clobbers no variable. */
__attribute__((noinline)) static void test_call(const struct test_case *t)
{
    if (setjmp(test_end) == 0) {
        t->run();
    }
}

/* Returns 0 passed, 1 failed, TEST_SKIP_CODE skipped. */
static inline int test_run(const struct test_case *t)
{
    int fds = test_count_entries("/proc/self/fd");
    int threads = test_count_entries("/proc/self/task");

    atomic_store_explicit(&test_failures, 0, memory_order_relaxed);
    test_skip_reason = NULL;
    test_random_begun = false;
    test_call(t);
    test_check_leftovers(fds, threads);
    if (atomic_load_explicit(&test_failures, memory_order_relaxed) > 0) {
        printf("not ok %s\n", t->name);
        fflush(stdout);
        return 1;
    }
    printf(test_skip_reason ? "ok %s # SKIP %s\n" : "ok %s\n", t->name, test_skip_reason);
    fflush(stdout);
    return test_skip_reason ? TEST_SKIP_CODE : 0;
}

static inline bool test_is_wanted(const struct test_case *t, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], t->name) == 0) {
            return true;
        }
    }
    return argc < 2;
}

static inline void *test_nothing(void *arg)
{
    return arg;
}

/* ThreadSanitizer starts a thread of its own beside the program's first one, which must not look
 * like one that a test left behind. */
static inline void test_start_sanitizer_threads(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, test_nothing, NULL) == 0) {
        pthread_join(thread, NULL);
    }
}

static inline int test_main(const struct test_case *tests, size_t n, int argc, char **argv)
{
    int failed = 0, skipped = 0, ran = 0;

    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < n; i++) {
            puts(tests[i].name);
        }
        return 0;
    }
    test_start_sanitizer_threads();
    for (size_t i = 0; i < n; i++) {
        if (test_is_wanted(&tests[i], argc, argv)) {
            int rc = test_run(&tests[i]);
            ran++;
            failed += rc == 1;
            skipped += rc == TEST_SKIP_CODE;
        }
    }
    printf("%d tests, %d failed, %d skipped\n", ran, failed, skipped);
    if (failed > 0 || ran == 0) {
        return 1;
    }
    return skipped > 0 ? TEST_SKIP_CODE : 0;
}

#define TEST_MAIN(...)                                                       \
    int main(int argc, char **argv)                                          \
    {                                                                        \
        static const struct test_case tests[] = {__VA_ARGS__};               \
        return test_main(tests, sizeof tests / sizeof tests[0], argc, argv); \
    }

#endif
