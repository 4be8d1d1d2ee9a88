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

/* A datagram socket of somebody else; path may begin with @. */
static int hear(const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    strcpy(sa.sun_path, path);
    if (path[0] == '@') {
        sa.sun_path[0] = 0;
    }
    REQUIRE_EQ(bind(fd, (struct sockaddr *)&sa, n), 0);
    return fd;
}

TEST(a_datagram_reaches_a_path_and_a_name_without_a_file)
{
    char dir[] = "/tmp/moonrelay-unix-XXXXXX", paths[2][96], got[16];
    int fd = mr__unix_datagram();

    REQUIRE(fd >= 0);
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(paths[0], sizeof paths[0], "%s/socket", dir);
    snprintf(paths[1], sizeof paths[1], "@moonrelay-test-%ld", (long)getpid());
    for (int i = 0; i < 2; i++) {
        CHECK(mr__unix_send(fd, paths[i], "x", 1) < 0); /* nobody is there */
        int to = hear(paths[i]);
        CHECK_EQ(mr__unix_send(fd, paths[i], "READY=1", 7), 0);
        CHECK_EQ(recv(to, got, sizeof got, 0), 7);
        CHECK_EQ(memcmp(got, "READY=1", 7), 0);
        close(to);
    }
    unlink(paths[0]);
    char too_long[200] = "";
    memset(too_long, 'a', sizeof too_long - 1);
    CHECK_EQ(mr__unix_send(fd, too_long, "x", 1), -ENAMETOOLONG);
    mr__unix_close(fd);
    CHECK_EQ(rmdir(dir), 0);
}

TEST(a_folder_is_made_for_a_user_and_others_folders_are_left_alone)
{
    char dir[] = "/tmp/moonrelay-unix-XXXXXX", path[128], sub[64];
    struct stat st;

    if (getuid() != 0) {
        TEST_SKIP("only root may give a folder away");
    }
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(sub, sizeof sub, "%s/sub", dir);
    snprintf(path, sizeof path, "%s/socket", sub);
    CHECK_EQ(mr__unix_make_folder(path, 1234, 1235, MR_UNIX_FOLDER_NEW), 0);
    REQUIRE_EQ(stat(sub, &st), 0);
    CHECK_EQ(st.st_uid, 1234);
    CHECK_EQ(st.st_gid, 1235);
    CHECK_EQ(st.st_mode & 0777, 0700);
    /* Another user's is left alone in any case, root's unless it is ours. */
    CHECK_EQ(mr__unix_make_folder(path, 99, 99, MR_UNIX_FOLDER_OURS), 0);
    REQUIRE_EQ(stat(sub, &st), 0);
    CHECK_EQ(st.st_uid, 1234);
    REQUIRE_EQ(chown(sub, 0, 0), 0);
    CHECK_EQ(mr__unix_make_folder(path, 99, 99, MR_UNIX_FOLDER_NEW), 0);
    REQUIRE_EQ(stat(sub, &st), 0);
    CHECK_EQ(st.st_uid, 0);
    CHECK_EQ(mr__unix_make_folder(path, 99, 98, MR_UNIX_FOLDER_OURS), 0);
    REQUIRE_EQ(stat(sub, &st), 0);
    CHECK_EQ(st.st_uid, 99);
    CHECK_EQ(rmdir(sub), 0);
    /* A link leads elsewhere. */
    REQUIRE_EQ(symlink("/tmp", sub), 0);
    CHECK(mr__unix_make_folder(path, 99, 98, MR_UNIX_FOLDER_OURS) < 0);
    CHECK_EQ(unlink(sub), 0);
    CHECK_EQ(rmdir(dir), 0);
}

TEST_MAIN(TEST_CASE(a_datagram_reaches_a_path_and_a_name_without_a_file),
          TEST_CASE(a_folder_is_made_for_a_user_and_others_folders_are_left_alone),
          TEST_CASE(only_the_owner_may_open_it_whatever_the_umask),
          TEST_CASE(connections_are_taken),
          TEST_CASE(what_a_dead_process_left_is_replaced_and_a_live_one_is_not),
          TEST_CASE(a_file_that_is_no_socket_is_left_alone),
          TEST_CASE(a_place_that_cannot_be_is_an_error))
