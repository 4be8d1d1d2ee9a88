/* SPDX-License-Identifier: MIT */
/*
 * Reading files: what is read, what is no file or not in the folder, both ways of staying
 * inside, and jobs that nobody waits for any more.
 */
#include "control/file.h"

#include "base/alloc.h"
#include "loop.h"
#include "test.h"

#include <semaphore.h>
#include <sys/stat.h>

enum { POOL = 4, RESULTS = 64 };

static void nothing(uv_work_t *w)
{
    (void)w;
}

static void forget(uv_work_t *w, int status)
{
    (void)w, (void)status;
}

/* libuv's threads stay once they were needed; they are not what a test left behind. */
__attribute__((constructor)) static void warm_up_threads(void)
{
    uv_loop_t loop;
    uv_work_t w;

    if (uv_loop_init(&loop) < 0 || uv_queue_work(&loop, &w, nothing, forget) < 0 ||
        uv_run(&loop, UV_RUN_DEFAULT) != 0 || uv_loop_close(&loop) < 0) {
        abort();
    }
}

struct result {
    unsigned calls;
    int rc;
    size_t n;
    char text[256], message[512];
};

struct fixture {
    uv_loop_t loop;
    struct files *files;
    char dir[64], folder[80];
    struct result results[RESULTS];
    uv_work_t busy[POOL];
    sem_t go;
};

static void path_in(char *out, size_t cap, const struct fixture *f, const char *name)
{
    snprintf(out, cap, "%s/%s", f->dir, name);
}

static void write_file(const struct fixture *f, const char *name, const char *text, size_t n)
{
    char path[256];
    int fd;

    path_in(path, sizeof path, f, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    REQUIRE_EQ(write(fd, text, n), (ssize_t)n);
    close(fd);
}

static void link_to(const struct fixture *f, const char *name, const char *target)
{
    char path[256];

    path_in(path, sizeof path, f, name);
    REQUIRE_EQ(symlink(target, path), 0);
}

/* A folder `in` with what policies may see, and a secret beside it. */
static void set_up(struct fixture *f, enum beneath_way way)
{
    char path[256];

    memset(f, 0, sizeof *f);
    strcpy(f->dir, "/tmp/moonrelay-file-XXXXXX");
    REQUIRE(mkdtemp(f->dir) != NULL);
    snprintf(f->folder, sizeof f->folder, "%s/in/", f->dir);
    path_in(path, sizeof path, f, "in");
    REQUIRE_EQ(mkdir(path, 0700), 0);
    path_in(path, sizeof path, f, "in/sub");
    REQUIRE_EQ(mkdir(path, 0700), 0);
    write_file(f, "secret", "secret", 6);
    write_file(f, "in/plain", "a\0b\n", 4);
    write_file(f, "in/empty", "", 0);
    write_file(f, "in/sub/deep", "deep", 4);
    REQUIRE_EQ(uv_loop_init(&f->loop), 0);
    REQUIRE_EQ(mr__file_create(&f->files, &f->loop, way), 0);
}

static void remove_dir(const struct fixture *f)
{
    static const char *const names[] = {"in/plain", "in/empty",   "in/sub/deep",
                                        "in/out",   "in/dir-out", "in/inside",
                                        "in/fifo",  "in/self",    "secret"};
    static const char *const dirs[] = {"in/sub", "in", ""};
    char path[256];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        path_in(path, sizeof path, f, names[i]);
        unlink(path);
    }
    for (size_t i = 0; i < 3; i++) {
        path_in(path, sizeof path, f, dirs[i]);
        CHECK_EQ(rmdir(path), 0);
    }
}

static void tear_down(struct fixture *f)
{
    mr__file_destroy(f->files);
    loop_end(&f->loop);
    remove_dir(f);
}

static void on_done(void *arg, const struct host_file *file)
{
    struct result *r = arg;

    r->calls++;
    r->rc = file->rc;
    r->n = file->text.n;
    memcpy(r->text, file->text.s, r->n < sizeof r->text ? r->n : sizeof r->text - 1);
    if (file->rc < 0) {
        snprintf(r->message, sizeof r->message, "%s", file->message);
        CHECK(strchr(file->message, '\n') == NULL);
        CHECK_EQ(r->n, 0);
    }
}

static uint64_t start(struct fixture *f, struct result *r, struct str path, size_t max)
{
    uint64_t id;

    *r = (struct result){.calls = 0};
    id =
        mr__file_start(f->files, (struct str){f->folder, strlen(f->folder)}, path, max, on_done, r);
    REQUIRE_NE(id, 0);
    CHECK_EQ(r->calls, 0); /* never from inside */
    return id;
}

static struct result *read_bytes(struct fixture *f, struct str path, size_t max)
{
    struct result *r = &f->results[0];

    start(f, r, path, max);
    REQUIRE_IN_TURNS(&f->loop, r->calls > 0);
    CHECK_EQ(r->calls, 1);
    return r;
}

static struct result *read_path(struct fixture *f, const char *path)
{
    return read_bytes(f, (struct str){path, strlen(path)}, 100);
}

static void check_refused(struct fixture *f, const char *path, int rc)
{
    struct result *r = read_path(f, path);

    if (r->rc != rc) {
        FAIL("%s: %d, expected %d", path, r->rc, rc);
    }
    CHECK(r->message[0] != 0);
}

static const enum beneath_way ways[] = {MR_BENEATH_BEST, MR_BENEATH_WALK};

TEST(a_file_below_the_folder_is_read_with_all_of_its_bytes)
{
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        set_up(&f, ways[i]);
        CHECK_EQ(read_path(&f, "plain")->rc, 0);
        CHECK_MEM(f.results[0].text, f.results[0].n, "a\0b\n", 4);
        CHECK_EQ(read_path(&f, "empty")->n, 0);
        CHECK_EQ(f.results[0].rc, 0);
        CHECK_EQ(read_path(&f, "sub/deep")->n, 4);
        CHECK_EQ(read_path(&f, "./sub//deep")->n, 4);
        tear_down(&f);
    }
}

TEST(nothing_leads_out_of_the_folder)
{
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        set_up(&f, ways[i]);
        link_to(&f, "in/out", "../secret");
        link_to(&f, "in/dir-out", "..");
        link_to(&f, "in/self", "/proc/self/fd");
        check_refused(&f, "../secret", -EXDEV);
        check_refused(&f, "sub/../../secret", -EXDEV);
        check_refused(&f, "/etc/passwd", -EXDEV);
        check_refused(&f, "out", -EXDEV);
        check_refused(&f, "dir-out/secret", -EXDEV);
        check_refused(&f, "self/0", -EXDEV);
        tear_down(&f);
    }
}

TEST(a_link_that_stays_inside_is_followed_by_the_better_way_only)
{
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        set_up(&f, ways[i]);
        link_to(&f, "in/inside", "sub/deep");
        int rc = read_path(&f, "inside")->rc;
        /* Where the kernel has no openat2 both are the walk. */
        CHECK(rc == -EXDEV || (ways[i] == MR_BENEATH_BEST && rc == 0));
        tear_down(&f);
    }
}

TEST(what_is_missing_or_no_regular_file_is_named_so)
{
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        char path[256];
        set_up(&f, ways[i]);
        path_in(path, sizeof path, &f, "in/fifo");
        REQUIRE_EQ(mkfifo(path, 0600), 0);
        check_refused(&f, "missing", -ENOENT);
        CHECK(strstr(f.results[0].message, "missing: ") == f.results[0].message);
        check_refused(&f, "missing/deep", -ENOENT);
        check_refused(&f, "plain/deep", -ENOTDIR);
        check_refused(&f, "sub", -EISDIR);
        check_refused(&f, "sub/", -EISDIR);
        check_refused(&f, "fifo", -ENOTSUP); /* and does not wait for a writer */
        check_refused(&f, "", -EINVAL);
        CHECK_EQ(read_bytes(&f, (struct str){"plain\0.txt", 10}, 100)->rc, -EINVAL);
        CHECK_EQ(read_bytes(&f, (struct str){"a\nb", 3}, 100)->rc, -ENOENT);
        tear_down(&f);
    }
}

TEST(a_path_without_end_is_refused)
{
    struct fixture f;
    static char path[5000];

    memset(path, 'a', sizeof path);
    for (int i = 0; i < 2; i++) {
        set_up(&f, ways[i]);
        CHECK_EQ(read_bytes(&f, (struct str){path, 300}, 100)->rc, -ENAMETOOLONG);
        CHECK_EQ(read_bytes(&f, (struct str){path, sizeof path}, 100)->rc, -ENAMETOOLONG);
        tear_down(&f);
    }
}

TEST(a_file_may_have_max_bytes_and_not_one_more)
{
    struct fixture f;
    struct str plain = {"plain", 5};

    set_up(&f, MR_BENEATH_BEST);
    CHECK_EQ(read_bytes(&f, plain, 4)->rc, 0);
    CHECK_EQ(read_bytes(&f, plain, 3)->rc, -EFBIG);
    CHECK_EQ(read_bytes(&f, plain, 0)->rc, -EFBIG);
    tear_down(&f);
}

TEST(a_file_whose_size_is_not_told_is_read_to_its_end_or_the_limit)
{
    struct fixture f;
    struct str stat = {"stat", 4};

    set_up(&f, MR_BENEATH_BEST);
    strcpy(f.folder, "/proc/self/"); /* it says 0 bytes */
    CHECK_EQ(read_bytes(&f, stat, 100000)->rc, 0);
    CHECK_GT(f.results[0].n, 10);
    CHECK_EQ(read_bytes(&f, stat, 10)->rc, -EFBIG);
    tear_down(&f);
}

static void wait_for_go(uv_work_t *w)
{
    sem_wait(w->data);
}

/* Lets no thread begin a job until release(). */
static void occupy(struct fixture *f)
{
    REQUIRE_EQ(sem_init(&f->go, 0, 0), 0);
    for (int i = 0; i < POOL; i++) {
        f->busy[i].data = &f->go;
        REQUIRE_EQ(uv_queue_work(&f->loop, &f->busy[i], wait_for_go, forget), 0);
    }
}

static void release(struct fixture *f)
{
    for (int i = 0; i < POOL; i++) {
        sem_post(&f->go);
    }
}

TEST(thirty_two_are_read_at_once_and_the_next_is_told_busy)
{
    struct fixture f;
    struct str plain = {"plain", 5};

    set_up(&f, MR_BENEATH_BEST);
    occupy(&f);
    for (int i = 0; i <= MR_FILE_MOST; i++) {
        start(&f, &f.results[i], plain, 100);
    }
    REQUIRE_IN_TURNS(&f.loop, f.results[MR_FILE_MOST].calls == 1);
    CHECK_EQ(f.results[MR_FILE_MOST].rc, -EBUSY);
    CHECK_EQ(f.results[0].calls, 0);
    release(&f);
    for (int i = 0; i < MR_FILE_MOST; i++) {
        REQUIRE_IN_TURNS(&f.loop, f.results[i].calls == 1);
        CHECK_EQ(f.results[i].rc, 0);
    }
    CHECK_EQ(read_bytes(&f, plain, 100)->rc, 0);
    tear_down(&f);
}

TEST(a_cancelled_read_says_nothing_whenever_it_is_cancelled)
{
    struct fixture f;
    struct str plain = {"plain", 5}, none = {"", 0};

    set_up(&f, MR_BENEATH_BEST);
    for (int turns = 0; turns < 20; turns++) {
        uint64_t id = start(&f, &f.results[0], plain, 100);
        for (int i = 0; i < turns / 4 && f.results[0].calls == 0; i++) {
            uv_run(&f.loop, UV_RUN_NOWAIT);
        }
        unsigned before = f.results[0].calls;
        mr__file_cancel(f.files, id);
        mr__file_cancel(f.files, id);
        read_bytes(&f, none, 0);
        f.results[0].calls = before;
    }
    mr__file_cancel(f.files, start(&f, &f.results[1], none, 100)); /* one that is refused */
    occupy(&f);
    mr__file_cancel(f.files, start(&f, &f.results[2], plain, 100)); /* no thread has it */
    release(&f);
    read_bytes(&f, plain, 100);
    CHECK_EQ(f.results[1].calls, 0);
    CHECK_EQ(f.results[2].calls, 0);
    tear_down(&f);
}

TEST(it_ends_with_reads_in_every_state)
{
    struct str plain = {"plain", 5}, none = {"", 0};

    for (int n = 0; n < 20; n++) {
        struct fixture f;
        set_up(&f, MR_BENEATH_BEST);
        for (int i = 0; i < 8; i++) {
            start(&f, &f.results[i], i == 3 ? none : plain, 100);
        }
        for (int i = 0; i < n / 8; i++) {
            uv_run(&f.loop, UV_RUN_NOWAIT);
        }
        unsigned calls = f.results[7].calls;
        tear_down(&f);
        CHECK_EQ(f.results[7].calls, calls);
    }
}

TEST(memory_that_runs_out_leaves_nothing)
{
    long before = mr__alloc_live();
    bool is_through = false;
    struct fixture f;

    for (long n = 0; !is_through; n++) {
        set_up(&f, MR_BENEATH_BEST);
        mr__file_destroy(f.files);
        f.files = NULL;
        mr__alloc_fail_after(n);
        if (mr__file_create(&f.files, &f.loop, MR_BENEATH_BEST) == 0 &&
            mr__file_start(f.files, (struct str){f.folder, strlen(f.folder)},
                           (struct str){"plain", 5}, 100, on_done, &f.results[0]) != 0) {
            REQUIRE_IN_TURNS(&f.loop, f.results[0].calls == 1);
            is_through = f.results[0].rc == 0;
        }
        mr__alloc_fail_after(-1);
        tear_down(&f);
        CHECK_EQ(mr__alloc_live(), before);
        REQUIRE(n < 100);
    }
}

TEST_MAIN(TEST_CASE(a_file_below_the_folder_is_read_with_all_of_its_bytes),
          TEST_CASE(nothing_leads_out_of_the_folder),
          TEST_CASE(a_link_that_stays_inside_is_followed_by_the_better_way_only),
          TEST_CASE(what_is_missing_or_no_regular_file_is_named_so),
          TEST_CASE(a_path_without_end_is_refused),
          TEST_CASE(a_file_may_have_max_bytes_and_not_one_more),
          TEST_CASE(a_file_whose_size_is_not_told_is_read_to_its_end_or_the_limit),
          TEST_CASE(thirty_two_are_read_at_once_and_the_next_is_told_busy),
          TEST_CASE(a_cancelled_read_says_nothing_whenever_it_is_cancelled),
          TEST_CASE(it_ends_with_reads_in_every_state),
          TEST_CASE(memory_that_runs_out_leaves_nothing))
