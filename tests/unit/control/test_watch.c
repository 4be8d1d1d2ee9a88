/* SPDX-License-Identifier: MIT */
/*
 * Watching files by their folders: each way in which a file changes is told, once it is
 * quiet, and what is none of ours is not.
 */
#include "control/watch.h"

#include "base/alloc.h"
#include "loop.h"
#include "test.h"

#include <sys/stat.h>

struct fixture {
    uv_loop_t loop;
    struct watch *watch;
    char dir[64], file[96], other[96], sub[96], deep[128];
    unsigned told;
};

static void on_change(void *user)
{
    ((struct fixture *)user)->told++;
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    REQUIRE(fd >= 0);
    REQUIRE_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void set_up(struct fixture *f)
{
    const char *paths[2] = {f->file, f->deep};

    memset(f, 0, sizeof *f);
    strcpy(f->dir, "/tmp/moonrelay-watch-XXXXXX");
    REQUIRE(mkdtemp(f->dir) != NULL);
    snprintf(f->file, sizeof f->file, "%s/names.txt", f->dir);
    snprintf(f->other, sizeof f->other, "%s/other.txt", f->dir);
    snprintf(f->sub, sizeof f->sub, "%s/sub", f->dir);
    snprintf(f->deep, sizeof f->deep, "%s/sub/deep.lua", f->dir);
    REQUIRE_EQ(mkdir(f->sub, 0700), 0);
    write_file(f->file, "a");
    write_file(f->deep, "a");
    REQUIRE_EQ(uv_loop_init(&f->loop), 0);
    REQUIRE_EQ(mr__watch_create(&f->watch, &f->loop, on_change, f), 0);
    REQUIRE_EQ(mr__watch_set(f->watch, paths, 2), 0);
}

static void tear_down(struct fixture *f)
{
    mr__watch_destroy(f->watch);
    loop_end(&f->loop);
    unlink(f->file);
    unlink(f->other);
    unlink(f->deep);
    CHECK_EQ(rmdir(f->sub), 0);
    CHECK_EQ(rmdir(f->dir), 0);
}

#define REQUIRE_TOLD(f)                              \
    do {                                             \
        REQUIRE_IN_TURNS(&(f)->loop, (f)->told > 0); \
        (f)->told = 0;                               \
    } while (0)

TEST(a_file_that_is_written_replaced_or_removed_is_told)
{
    struct fixture f;

    set_up(&f);
    write_file(f.file, "b");
    REQUIRE_TOLD(&f);
    write_file(f.other, "c");
    REQUIRE_EQ(rename(f.other, f.file), 0);
    REQUIRE_TOLD(&f);
    write_file(f.deep, "b");
    REQUIRE_TOLD(&f);
    unlink(f.deep);
    REQUIRE_TOLD(&f);
    write_file(f.deep, "c"); /* and when it is there again */
    REQUIRE_TOLD(&f);
    tear_down(&f);
}

TEST(many_changes_at_once_are_told_once)
{
    struct fixture f;

    set_up(&f);
    for (int i = 0; i < 50; i++) {
        write_file(f.file, "b");
        write_file(f.deep, "b");
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    REQUIRE_IN_TURNS(&f.loop, f.told > 0);
    CHECK_LT(f.told, 10); /* one, on a machine that does not stand still */
    tear_down(&f);
}

TEST(a_file_of_somebody_else_in_the_folder_is_not_told_but_any_lua_is)
{
    struct fixture f;
    char lua[128];

    set_up(&f);
    write_file(f.other, "b");
    snprintf(lua, sizeof lua, "%s/new.lua", f.dir);
    for (uint64_t until = test_now_ms() + 3 * MR_WATCH_QUIET_MS; test_now_ms() < until;) {
        uv_run(&f.loop, UV_RUN_NOWAIT);
        test_pause();
    }
    CHECK_EQ(f.told, 0);
    write_file(lua, "return {}");
    REQUIRE_TOLD(&f);
    unlink(lua);
    tear_down(&f);
}

TEST(a_new_set_takes_the_place_of_the_old_one)
{
    struct fixture f;
    const char *paths[1];

    set_up(&f);
    paths[0] = f.file;
    REQUIRE_EQ(mr__watch_set(f.watch, paths, 1), 0);
    unlink(f.deep);
    write_file(f.file, "b");
    REQUIRE_TOLD(&f);
    write_file(f.file, "c"); /* and what is on its way is forgotten with the set */
    uv_run(&f.loop, UV_RUN_NOWAIT);
    REQUIRE_EQ(mr__watch_set(f.watch, NULL, 0), 0);
    CHECK(TURN_UNTIL(&f.loop, !uv_loop_alive(&f.loop)));
    CHECK_EQ(f.told, 0);
    tear_down(&f);
}

TEST(a_folder_that_is_missing_is_an_error_and_the_others_are_watched)
{
    struct fixture f;
    const char *paths[2] = {"/nonexistent/file.lua"};

    set_up(&f);
    paths[1] = f.file;
    CHECK_EQ(mr__watch_set(f.watch, paths, 2), -ENOENT);
    write_file(f.file, "b");
    REQUIRE_TOLD(&f);
    tear_down(&f);
}

TEST(memory_that_runs_out_leaves_nothing)
{
    long before = mr__alloc_live();
    bool is_through = false;

    for (long n = 0; !is_through; n++) {
        const char *paths[2] = {"/tmp/a.lua", "/proc/b.lua"};
        struct fixture f = {.told = 0};

        REQUIRE_EQ(uv_loop_init(&f.loop), 0);
        mr__alloc_fail_after(n);
        if (mr__watch_create(&f.watch, &f.loop, on_change, &f) == 0) {
            is_through = mr__watch_set(f.watch, paths, 2) == 0;
        }
        mr__alloc_fail_after(-1);
        mr__watch_destroy(f.watch);
        loop_end(&f.loop);
        CHECK_EQ(mr__alloc_live(), before);
        REQUIRE(n < 100);
    }
}

TEST_MAIN(TEST_CASE(a_file_that_is_written_replaced_or_removed_is_told),
          TEST_CASE(many_changes_at_once_are_told_once),
          TEST_CASE(a_file_of_somebody_else_in_the_folder_is_not_told_but_any_lua_is),
          TEST_CASE(a_new_set_takes_the_place_of_the_old_one),
          TEST_CASE(a_folder_that_is_missing_is_an_error_and_the_others_are_watched),
          TEST_CASE(memory_that_runs_out_leaves_nothing))
