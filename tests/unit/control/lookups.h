/* SPDX-License-Identifier: MIT */
/*
 * A lookup for tests whose resolver counts what it is asked, knows a few names and can be
 * made to hang; a custom lookup that writes down its questions and answers as it is told;
 * and plain sockets to send to. One thread, but for the resolver's function.
 */
#ifndef MR_TESTS_CONTROL_LOOKUPS_H
#define MR_TESTS_CONTROL_LOOKUPS_H

#include "base/alloc.h"
#include "control/lookup.h"
#include "loop.h"
#include "test.h"

#include <netdb.h>

/* ---- the resolver ---- */

struct counting {
    atomic_uint calls;
    struct mr_resolver resolver;
};

/* "*.test" is loopback of any family, another name is unknown; a literal is for the C library. */
static inline int counting_getaddrinfo(void *user, const char *host, const struct addrinfo *hints,
                                       struct addrinfo **out)
{
    struct counting *c = user;
    struct addrinfo own = *hints;
    size_t n = strlen(host);

    atomic_fetch_add(&c->calls, 1);
    own.ai_flags = AI_NUMERICHOST;
    if (n > 5 && strcmp(host + n - 5, ".test") == 0) {
        host = hints->ai_family == AF_INET6 ? "::1" : "127.0.0.1";
    } else if (strchr(host, ':') == NULL && host[strspn(host, "0123456789.")] != 0) {
        return EAI_NONAME;
    }
    return getaddrinfo(host, NULL, &own, out);
}

static inline void counting_freeaddrinfo(void *user, struct addrinfo *list)
{
    (void)user;
    freeaddrinfo(list);
}

/* ---- the custom lookup ---- */

enum script {
    SCRIPT_LOOPBACK, /* 127.0.0.1 or ::1, whatever is asked */
    SCRIPT_WILDCARD, /* for bind; loopback for all else */
    SCRIPT_HOLD,     /* answered by the test, or never */
    SCRIPT_NULL,     /* no opinion */
    SCRIPT_FAILS,
    SCRIPT_TWICE,
    SCRIPT_OTHER_FAMILY,
    SCRIPT_NO_FAMILY,
};

struct question {
    mr_lookup_ticket ticket;
    char host[MR_LOOKUP_HOST_MAX + 1];
    int family;
    enum mr_lookup_op op;
};

struct asked {
    struct mr_lookup *lookup;
    enum script script;
    unsigned n, forgotten;
    bool is_inside; /* of a call of the test: nobody may be asked then */
    struct question q[256];
};

static inline struct mr_addr any_loopback(int family)
{
    if (family == 6) {
        return (struct mr_addr){.ip = {[15] = 1}, .family = 6};
    }
    return loopback(0);
}

static inline int answer_with(struct asked *a, mr_lookup_ticket ticket, struct mr_addr addr)
{
    return mr_lookup_answer(a->lookup, ticket, &(struct mr_lookup_answer){.addr = addr});
}

static inline int answer_error(struct asked *a, mr_lookup_ticket ticket, const char *code)
{
    return mr_lookup_answer(
        a->lookup, ticket,
        &(struct mr_lookup_answer){.rc = -EIO, .code = code, .message = "the test says no"});
}

static inline void on_ask(void *user, mr_lookup_ticket ticket, const char *host, size_t n,
                          int family, enum mr_lookup_op op)
{
    struct asked *a = user;
    struct mr_addr addr = any_loopback(family);

    CHECK(!a->is_inside);
    if (a->n < sizeof a->q / sizeof a->q[0]) {
        struct question *q = &a->q[a->n];
        *q = (struct question){.ticket = ticket, .family = family, .op = op};
        memcpy(q->host, host, n);
    }
    a->n++;
    switch (a->script) {
    case SCRIPT_WILDCARD:
        if (op == MR_LOOKUP_BIND) {
            memset(addr.ip, 0, sizeof addr.ip);
        }
        /* fall through */
    case SCRIPT_LOOPBACK:
        CHECK_EQ(answer_with(a, ticket, addr), 0);
        break;
    case SCRIPT_HOLD:
        break;
    case SCRIPT_NULL:
        CHECK_EQ(mr_lookup_answer(a->lookup, ticket, NULL), 0);
        break;
    case SCRIPT_FAILS:
        CHECK_EQ(answer_error(a, ticket, "no-luck"), 0);
        break;
    case SCRIPT_TWICE:
        CHECK_EQ(answer_with(a, ticket, addr), 0);
        CHECK_EQ(answer_with(a, ticket, addr), -EALREADY);
        break;
    case SCRIPT_OTHER_FAMILY:
        (void)answer_with(a, ticket, any_loopback(family == 4 ? 6 : 4));
        break;
    case SCRIPT_NO_FAMILY:
        addr.family = 9;
        (void)answer_with(a, ticket, addr);
        break;
    }
}

static inline void on_forget(void *user, mr_lookup_ticket ticket)
{
    (void)ticket;
    ((struct asked *)user)->forgotten++;
}

static inline struct mr_lookup_custom custom_of(struct asked *a)
{
    return (struct mr_lookup_custom){.user = a, .ask = on_ask, .forget = on_forget};
}

/* ---- all of it ---- */

struct world {
    uv_loop_t loop;
    struct mr_lookup *lookup;
    struct counting counting;
    struct asked asked;
    long blocks;
};

static inline void world_open(struct world *w, uint32_t timeout_ms)
{
    struct mr_lookup_options opts = {
        .size = sizeof(struct mr_lookup_options), .loop = &w->loop, .timeout_ms = timeout_ms};

    memset(w, 0, sizeof *w);
    w->blocks = mr__alloc_live();
    REQUIRE_EQ(uv_loop_init(&w->loop), 0);
    REQUIRE_EQ(mr_lookup_create(&w->lookup, &opts), 0);
    w->counting.resolver = (struct mr_resolver){.user = &w->counting,
                                                .getaddrinfo = counting_getaddrinfo,
                                                .freeaddrinfo = counting_freeaddrinfo};
    mr_lookup_set_resolver(w->lookup, &w->counting.resolver);
    w->asked.lookup = w->lookup;
}

static inline void world_close(struct world *w)
{
    mr_lookup_destroy(w->lookup);
    loop_end(&w->loop);
    CHECK_EVENTUALLY(mr__alloc_live() == w->blocks);
}

static inline unsigned resolver_calls(struct world *w)
{
    return atomic_load(&w->counting.calls);
}

/* ---- plain sockets ---- */

static inline bool has_ipv6(void)
{
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool is = fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof sa) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return is;
}

union plain_addr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static inline socklen_t plain_loopback(union plain_addr *sa, int family, uint16_t port)
{
    memset(sa, 0, sizeof *sa);
    if (family == 6) {
        sa->v6.sin6_family = AF_INET6;
        sa->v6.sin6_addr = in6addr_loopback;
        sa->v6.sin6_port = htons(port);
        return sizeof sa->v6;
    }
    sa->v4.sin_family = AF_INET;
    sa->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sa->v4.sin_port = htons(port);
    return sizeof sa->v4;
}

/* Bound to loopback. */
static inline int plain_open_at(int family, uint16_t port)
{
    union plain_addr sa;
    socklen_t len = plain_loopback(&sa, family, port);
    int fd = socket(family == 6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    REQUIRE(fd >= 0);
    REQUIRE_EQ(bind(fd, &sa.any, len), 0);
    return fd;
}

/* Its port is the kernel's choice, and stored. */
static inline int plain_open(int family, uint16_t *port)
{
    union plain_addr sa;
    socklen_t len = sizeof sa;
    int fd = plain_open_at(family, 0);

    REQUIRE_EQ(getsockname(fd, &sa.any, &len), 0);
    *port = ntohs(family == 6 ? sa.v6.sin6_port : sa.v4.sin_port);
    return fd;
}

static inline void plain_send(int fd, int family, uint16_t port, const char *text)
{
    union plain_addr sa;
    socklen_t len = plain_loopback(&sa, family, port);

    REQUIRE_EQ(sendto(fd, text, strlen(text), 0, &sa.any, len), (ssize_t)strlen(text));
}

/* Appends what waits to text, each datagram with a space behind it. */
static inline bool plain_read(int fd, char *text, size_t cap)
{
    char data[2048];
    ssize_t n;

    while ((n = recv(fd, data, sizeof data - 1, 0)) >= 0) {
        size_t at = strlen(text);
        data[n] = 0;
        snprintf(text + at, cap - at, "%s ", data);
    }
    return true;
}

#endif
