/* SPDX-License-Identifier: MIT */
/*
 * A path that somebody else names stays in its folder. One thread.
 */
#include "test.h"

#include "base/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64], folder[80];

static void path_of(char out[128], const char *name)
{
    snprintf(out, 128, "%s/%s", root, name);
}

static void make_file(const char *name)
{
    char path[128];

    path_of(path, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    close(fd);
}

static void make_link(const char *to, const char *name)
{
    char path[128];

    path_of(path, name);
    REQUIRE_EQ(symlink(to, path), 0);
}

static void make_tree(void)
{
    char path[128];

    snprintf(root, sizeof root, "/tmp/moonrelay-beneath-XXXXXX");
    REQUIRE(mkdtemp(root) != NULL);
    snprintf(folder, sizeof folder, "%s/in/", root);
    path_of(path, "in");
    REQUIRE_EQ(mkdir(path, 0700), 0);
    path_of(path, "in/deep");
    REQUIRE_EQ(mkdir(path, 0700), 0);
    make_file("secret");
    make_file("in/file");
    make_file("in/deep/file");
    make_link("../secret", "in/out");
    make_link("..", "in/far");
}

static void remove_tree(void)
{
    static const char *const names[] = {"in/far",  "in/out", "in/deep/file", "in/file",
                                        "in/deep", "secret", "in",           ""};
    char path[128];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        path_of(path, names[i]);
        CHECK_EQ(remove(path), 0);
    }
}

static int try_open(const char *path, enum beneath_way way)
{
    int fd = mr__beneath_open(folder, path, way);

    if (fd >= 0) {
        close(fd);
    }
    return fd < 0 ? fd : 0;
}

TEST(a_path_stays_in_its_folder_with_and_without_the_kernels_help)
{
    static const enum beneath_way ways[] = {MR_BENEATH_BEST, MR_BENEATH_WALK};

    make_tree();
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        CHECK_EQ(try_open("file", ways[i]), 0);
        CHECK_EQ(try_open("deep/file", ways[i]), 0);
        CHECK_EQ(try_open("missing", ways[i]), -ENOENT);
        CHECK_EQ(try_open("file/file", ways[i]), -ENOTDIR);
        CHECK_EQ(try_open("../secret", ways[i]), -EXDEV);
        CHECK_EQ(try_open("/etc/passwd", ways[i]), -EXDEV);
        CHECK_EQ(try_open("out", ways[i]), -EXDEV);
        CHECK_EQ(try_open("far/secret", ways[i]), -EXDEV);
    }
    remove_tree();
}

TEST_MAIN(TEST_CASE(a_path_stays_in_its_folder_with_and_without_the_kernels_help))
