/* SPDX-License-Identifier: MIT */
/*
 * A resolver for tests: it counts, answers what it was told to, and hangs until it is let
 * go. Its functions run in the lookup's threads, so everything is under a lock.
 */
#ifndef MR_TESTS_CONTROL_NAMES_H
#define MR_TESTS_CONTROL_NAMES_H

#include "control/lookup.h"
#include "test.h"

#include <arpa/inet.h>

struct names {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned calls, inside, frees; /* inside: of getaddrinfo, hung or not */
    bool hangs;
    int rc;                   /* EAI_*; 0: the addresses */
    const char *addresses[4]; /* whatever family was asked for */
    char host[300];           /* the last one, and its hints */
    int family, flags;
    int threads_before;
    struct mr_resolver resolver;
};

static inline struct addrinfo *names_entry(const char *text, struct addrinfo *next)
{
    struct {
        struct addrinfo info;
        union {
            struct sockaddr any;
            struct sockaddr_in v4;
            struct sockaddr_in6 v6;
        } sa;
    } *e = calloc(1, sizeof *e);
    char ip[64];
    const char *zone = strchr(text, '%');

    snprintf(ip, sizeof ip, "%.*s", (int)(zone ? zone - text : (long)strlen(text)), text);
    e->info.ai_addr = &e->sa.any;
    e->info.ai_next = next;
    if (inet_pton(AF_INET, ip, &e->sa.v4.sin_addr) == 1) {
        e->info.ai_family = e->sa.any.sa_family = AF_INET;
        e->info.ai_addrlen = sizeof e->sa.v4;
        e->sa.v4.sin_port = htons(99); /* nobody's business */
    } else if (inet_pton(AF_INET6, ip, &e->sa.v6.sin6_addr) == 1) {
        e->info.ai_family = e->sa.any.sa_family = AF_INET6;
        e->info.ai_addrlen = sizeof e->sa.v6;
        e->sa.v6.sin6_scope_id = zone ? (uint32_t)atoi(zone + 1) : 0;
    } else { /* of no family that anybody knows */
        e->info.ai_family = e->sa.any.sa_family = AF_UNIX;
        e->info.ai_addrlen = sizeof(struct sockaddr);
    }
    return &e->info;
}

static inline int names_get(void *user, const char *host, const struct addrinfo *hints,
                            struct addrinfo **out)
{
    struct names *n = user;
    int rc;

    pthread_mutex_lock(&n->lock);
    n->calls++;
    n->inside++;
    snprintf(n->host, sizeof n->host, "%s", host);
    n->family = hints->ai_family;
    n->flags = hints->ai_flags;
    pthread_cond_broadcast(&n->changed);
    while (n->hangs) {
        pthread_cond_wait(&n->changed, &n->lock);
    }
    n->inside--;
    rc = n->rc;
    *out = NULL;
    for (unsigned i = 4; rc == 0 && i-- > 0;) {
        *out = n->addresses[i] ? names_entry(n->addresses[i], *out) : *out;
    }
    pthread_mutex_unlock(&n->lock);
    return rc;
}

static inline void names_free(void *user, struct addrinfo *list)
{
    struct names *n = user;

    pthread_mutex_lock(&n->lock);
    n->frees++;
    pthread_mutex_unlock(&n->lock);
    while (list) {
        struct addrinfo *next = list->ai_next;
        free(list);
        list = next;
    }
}

static inline void names_init(struct names *n)
{
    memset(n, 0, sizeof *n);
    n->threads_before = test_count_entries("/proc/self/task");
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, NULL);
    n->resolver =
        (struct mr_resolver){.user = n, .getaddrinfo = names_get, .freeaddrinfo = names_free};
}

static inline void names_answer(struct names *n, const char *a, const char *b)
{
    pthread_mutex_lock(&n->lock);
    n->rc = 0;
    n->addresses[0] = a;
    n->addresses[1] = b;
    pthread_mutex_unlock(&n->lock);
}

static inline void names_fail(struct names *n, int rc)
{
    pthread_mutex_lock(&n->lock);
    n->rc = rc;
    pthread_mutex_unlock(&n->lock);
}

static inline void names_hang(struct names *n)
{
    pthread_mutex_lock(&n->lock);
    n->hangs = true;
    pthread_mutex_unlock(&n->lock);
}

static inline void names_let_go(struct names *n)
{
    pthread_mutex_lock(&n->lock);
    n->hangs = false;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static inline unsigned names_calls(struct names *n)
{
    unsigned calls;

    pthread_mutex_lock(&n->lock);
    calls = n->calls;
    pthread_mutex_unlock(&n->lock);
    return calls;
}

static inline unsigned names_inside(struct names *n)
{
    unsigned inside;

    pthread_mutex_lock(&n->lock);
    inside = n->inside;
    pthread_mutex_unlock(&n->lock);
    return inside;
}

/* Lets go whoever hangs and waits for their threads to be through with it. */
static inline void names_deinit(struct names *n)
{
    names_let_go(n);
    CHECK_EVENTUALLY(names_inside(n) == 0);
    CHECK_EVENTUALLY(test_count_entries("/proc/self/task") <= n->threads_before);
    (void)names_inside(n); /* whatever they did came before, also for ThreadSanitizer */
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
}

#endif
