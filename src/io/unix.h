/* SPDX-License-Identifier: MIT */
/*
 * Listening sockets that have a path, for whoever may open the path and nobody else; and datagrams
 * to one that somebody else has. Any thread, but not two at once: the process's umask is changed
 * for a moment. Start reading at mr__unix_open().
 */
#ifndef MR_IO_UNIX_H
#define MR_IO_UNIX_H

#include <stddef.h>
#include <stdint.h>

/* Which file a path was when we made it; somebody may have put another one there since, which may
 * have got the number of ours. */
struct unix_file {
    uint64_t device, inode, made_s, made_ns;
};

/* A nonblocking, listening socket at path with mode 0600; the path's folder is made (0700) if it is
 * missing. What a dead process left there is replaced. -EADDRINUSE: a live one listens there;
 * -EEXIST: there is something that is no socket; -ENAMETOOLONG; or the kernel's. */
int mr__unix_open(const char *path, int backlog, struct unix_file *file);

/* Makes the folder of that path, of that user and mode 0700, for a process that may not make it
 * later. What is there already is left alone, or given to the user as well when it is ours and
 * root's. */
enum unix_folder { MR_UNIX_FOLDER_NEW, MR_UNIX_FOLDER_OURS };
int mr__unix_make_folder(const char *path, uint32_t uid, uint32_t gid, enum unix_folder whose);

/* Takes one waiting connection, nonblocking. -EAGAIN: none waits. */
int mr__unix_accept(int listener);

/* A nonblocking socket for mr__unix_send(). */
int mr__unix_datagram(void);
/* One datagram to a path; one that begins with `@` is a name without a file. -ENAMETOOLONG, or the
 * kernel's: -ENOENT and -ECONNREFUSED say that nobody is there. */
int mr__unix_send(int fd, const char *path, const void *data, size_t n);
void mr__unix_close(int fd);

/* Removes the path if it still is that file. */
void mr__unix_remove(const char *path, const struct unix_file *file);

#endif
