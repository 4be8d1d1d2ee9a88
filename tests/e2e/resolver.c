/* SPDX-License-Identifier: MIT */
/*
 * Takes the place of getaddrinfo(3) in a daemon under test (LD_PRELOAD, behind a
 * sanitizer's own library): no name leaves the machine, each call is written down, and a
 * name hangs when it is told to. resolver.lua writes the file and reads the other.
 *
 *     $MR_TEST_NAMES        name family(4, 6, any) answer     a line each, read at every call
 *     $MR_TEST_NAMES_LOG    name family                       a line a call
 *
 * An answer is an address, `none` (there is no such name), `again` (the server does not
 * answer) or `hang` (until the file says something else). Several lines of a name are
 * several addresses. What is not in the file does not exist. Without a descriptor left it
 * fails as getaddrinfo(3) does, EAI_SYSTEM, and is not written down.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct entry {
    struct addrinfo info;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } sa;
};

static const char *family_name(int family)
{
    return family == AF_INET ? "4" : family == AF_INET6 ? "6" : "any";
}

/* false: there is no descriptor left to write it with, and the call fails as the real one would. */
static bool note(const char *host, int family)
{
    const char *path = getenv("MR_TEST_NAMES_LOG");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
    char line[512];
    int n = snprintf(line, sizeof line, "%.400s %s\n", host, family_name(family));

    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        return false;
    }
    if (fd < 0 || write(fd, line, (size_t)n) != n) {
        abort(); /* a test that counts must not miss one */
    }
    close(fd);
    return true;
}

/* Appends an address and returns where the next one goes. */
static struct addrinfo **append(struct addrinfo **at, const char *text)
{
    struct entry *e = calloc(1, sizeof *e);

    if (!e) {
        abort();
    }
    if (inet_pton(AF_INET, text, &e->sa.v4.sin_addr) == 1) {
        e->info.ai_family = e->sa.any.sa_family = AF_INET;
        e->info.ai_addrlen = sizeof e->sa.v4;
    } else if (inet_pton(AF_INET6, text, &e->sa.v6.sin6_addr) == 1) {
        e->info.ai_family = e->sa.any.sa_family = AF_INET6;
        e->info.ai_addrlen = sizeof e->sa.v6;
    } else {
        abort();
    }
    e->info.ai_socktype = SOCK_DGRAM;
    e->info.ai_addr = &e->sa.any;
    *at = &e->info;
    return &e->info.ai_next;
}

void freeaddrinfo(struct addrinfo *list)
{
    while (list) {
        struct addrinfo *next = list->ai_next;
        free(list);
        list = next;
    }
}

/* 1: it hangs; else as getaddrinfo. */
static int look(const char *host, int family, struct addrinfo **out)
{
    const char *path = getenv("MR_TEST_NAMES");
    FILE *file = path ? fopen(path, "re") : NULL;
    char name[300], of[8], answer[80];
    struct addrinfo **at = out;
    int rc = EAI_NONAME;

    *out = NULL;
    if (!file && (errno == EMFILE || errno == ENFILE)) {
        return EAI_SYSTEM;
    }
    if (!file) {
        abort();
    }
    while (fscanf(file, "%299s %7s %79s", name, of, answer) == 3) {
        if (strcmp(name, host) != 0 || (strcmp(of, "any") != 0 && family != AF_UNSPEC &&
                                        strcmp(of, family_name(family)) != 0)) {
            continue;
        }
        if (strcmp(answer, "none") == 0) {
            rc = EAI_NONAME;
        } else if (strcmp(answer, "again") == 0) {
            rc = EAI_AGAIN;
        } else if (strcmp(answer, "hang") == 0) {
            rc = 1;
        } else {
            at = append(at, answer);
            rc = 0;
        }
    }
    fclose(file);
    return rc;
}

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    const struct timespec while_it_hangs = {.tv_nsec = 20 * 1000 * 1000};
    int family = hints ? hints->ai_family : AF_UNSPEC, rc;

    (void)service;
    if (!host) {
        return EAI_NONAME;
    }
    if (!note(host, family)) {
        return EAI_SYSTEM;
    }
    while ((rc = look(host, family, out)) == 1) {
        nanosleep(&while_it_hangs, NULL);
    }
    return rc;
}
