/* SPDX-License-Identifier: MIT */
/*
 * Listening at a path: who may open it, what is put in whose place, and whose file goes.
 */
#include "io/unix.h"

#include "test.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

struct place {
    char dir[64], path[96];
};

static void set_up(struct place *p)
{
    strcpy(p->dir, "/tmp/moonrelay-unix-XXXXXX");
    REQUIRE(mkdtemp(p->dir) != NULL);
    snprintf(p->path, sizeof p->path, "%s/sub/socket", p->dir);
}

static void tear_down(struct place *p)
{
    char sub[96];

    snprintf(sub, sizeof sub, "%s/sub", p->dir);
    CHECK_EQ(rmdir(sub), 0); /* nothing is left in it */
    CHECK_EQ(rmdir(p->dir), 0);
}

static int connect_to(const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    strcpy(sa.sun_path, path);
    if (connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

TEST(only_the_owner_may_open_it_whatever_the_umask)
{
    mode_t before = umask(0);
    struct unix_file file;
    struct place p;
    struct stat st;
    char sub[96];

    set_up(&p);
    int fd = mr__unix_open(p.path, 4, &file);
    REQUIRE(fd >= 0);
    REQUIRE_EQ(lstat(p.path, &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0600);
    snprintf(sub, sizeof sub, "%s/sub", p.dir);
    REQUIRE_EQ(lstat(sub, &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0700);
    CHECK_EQ(umask(before), 0);
    close(fd);
    mr__unix_remove(p.path, &file);
    tear_down(&p);
}

TEST(connections_are_taken)
{
    struct unix_file file;
    struct place p;
    char c;

    set_up(&p);
    int fd = mr__unix_open(p.path, 4, &file);
    CHECK_EQ(mr__unix_accept(fd), -EAGAIN);
    int client = connect_to(p.path);
    REQUIRE(client >= 0);
    int served = mr__unix_accept(fd);
    REQUIRE(served >= 0);
    CHECK_EQ(recv(served, &c, 1, 0), -1);
    CHECK_EQ(errno, EAGAIN); /* it does not block */
    close(client);
    CHECK_EQ(recv(served, &c, 1, 0), 0);
    close(served);
    close(fd);
    mr__unix_remove(p.path, &file);
    tear_down(&p);
}

TEST(what_a_dead_process_left_is_replaced_and_a_live_one_is_not)
{
    struct unix_file file, other;
    struct place p;

    set_up(&p);
    int fd = mr__unix_open(p.path, 1, &file);
    REQUIRE(fd >= 0);
    CHECK_EQ(mr__unix_open(p.path, 1, &other), -EADDRINUSE);
    int first = connect_to(p.path); /* its queue is full now */
    CHECK_EQ(connect_to(p.path), -EAGAIN);
    CHECK_EQ(mr__unix_open(p.path, 1, &other), -EADDRINUSE);
    close(first);
    close(fd); /* as by a kill: the file stays */
    fd = mr__unix_open(p.path, 1, &other);
    REQUIRE(fd >= 0);
    mr__unix_remove(p.path, &file); /* of the one before; not ours to remove any more */
    int client = connect_to(p.path);
    CHECK(client >= 0);
    close(client);
    close(fd);
    mr__unix_remove(p.path, &other);
    tear_down(&p);
}

TEST(a_file_that_is_no_socket_is_left_alone)
{
    struct unix_file file;
    struct place p;
    char text[8] = "";

    set_up(&p);
    int fd = mr__unix_open(p.path, 1, &file);
    close(fd);
    mr__unix_remove(p.path, &file);
    fd = open(p.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK_EQ(write(fd, "mine", 4), 4);
    close(fd);
    CHECK_EQ(mr__unix_open(p.path, 1, &file), -EEXIST);
    fd = open(p.path, O_RDONLY | O_CLOEXEC);
    CHECK_EQ(read(fd, text, 4), 4);
    CHECK_STR(text, "mine");
    close(fd);
    unlink(p.path);
    tear_down(&p);
}

TEST(a_place_that_cannot_be_is_an_error)
{
    char path[200];
    struct unix_file file;

    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = 0;
    CHECK_EQ(mr__unix_open(path, 1, &file), -ENAMETOOLONG);
    CHECK_EQ(mr__unix_open("/nonexistent/deeper/socket", 1, &file), -ENOENT);
}

TEST_MAIN(TEST_CASE(only_the_owner_may_open_it_whatever_the_umask),
          TEST_CASE(connections_are_taken),
          TEST_CASE(what_a_dead_process_left_is_replaced_and_a_live_one_is_not),
          TEST_CASE(a_file_that_is_no_socket_is_left_alone),
          TEST_CASE(a_place_that_cannot_be_is_an_error))
