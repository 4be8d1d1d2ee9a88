/* SPDX-License-Identifier: MIT */
/*
 * Names and literals become socket addresses here and nowhere else: bind, connect and
 * send of UDP endpoints, targets, listeners, HTTP, relay.resolve. Control thread, except
 * for the resolver's own. Public: installed with moonrelay_uv.h.
 *
 *     mr_lookup_start ── custom lookup? ─ no ──> mr_lookup_default ── literal of the family ──>
 * itself │ yes                   ^    │ anything else v                       │    v answer, error,
 * or "next" ─┘   resolver.h: getaddrinfo in threads of ours
 *
 * An answer is always told on a later turn of the loop than the one that asked, exactly
 * once, and checked: the loop stays alive (uv_run() does not return) as long as one is
 * due and not a moment longer. Start reading at mr_lookup_start().
 */
#ifndef MR_CONTROL_LOOKUP_H
#define MR_CONTROL_LOOKUP_H

#include "service/lookup.h"

#include <stdint.h>
#include <uv.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* part of the shared library's interface */
#endif

struct mr_lookup;
struct log;

/* A question. The caller's memory from the start until done was called or mr_lookup_cancel()
 * returned; so a question about a literal allocates nothing. */
struct mr_lookup_request {
    void (*done)(struct mr_lookup_request *req, const struct mr_lookup_answer *answer);
    void *user;
    /* lookup.c's own */
    struct mr_lookup_request *next, **link;
    struct mr_lookup *lookup;
    void *job; /* what it waits for, or the words of its error */
    struct mr_addr addr;
    int rc;
    uint8_t family, op, flags, state;
};

/* Names a question to a custom lookup; never reused, so that a second or late answer is known. */
typedef uint64_t mr_lookup_ticket;

/* Somebody's own lookup: it is asked about every host, literals and wildcards too, with the family
 * (4, 6, or 0: either). Called from the loop, never from inside mr_lookup_start(). It answers by
 * mr_lookup_answer(), from inside or later; within 5 s, or the request fails with "timeout". */
struct mr_lookup_custom {
    void *user;
    void (*ask)(void *user, mr_lookup_ticket ticket, const char *host, size_t n, int family,
                enum mr_lookup_op op);
    /* No answer is wanted any more (may be NULL). */
    void (*forget)(void *user, mr_lookup_ticket ticket);
    /* Asked when a question starts: 0 when this one goes to the default (NULL: never). */
    int (*wants)(void *user);
};

/* What the default asks about everything but literals; read at call time: the struct is copied for
 * each question. It is called by several threads at once. host ends in NUL and is borrowed. */
struct mr_resolver {
    /* ask set: this is asked on the loop, as a custom lookup is and within the same time, and not
     * the functions below. Its mr_lookup_answer() of NULL says that there is no such name. */
    struct mr_lookup_custom on_loop;
    void *user;
    int (*getaddrinfo)(void *user, const char *host, const struct addrinfo *hints,
                       struct addrinfo **out); /* in a thread of ours; may block */
    void (*freeaddrinfo)(void *user, struct addrinfo *list);
};

struct mr_lookup_options {
    size_t size; /* sizeof(struct mr_lookup_options), set by init */
    uv_loop_t *loop;
    struct log *log;     /* debug: each resolver call; NULL: nothing (outside of the daemon) */
    uint32_t threads;    /* of the resolver, started when needed; 0: 4 */
    uint32_t queue;      /* names that wait for one; 0: 256 */
    uint32_t timeout_ms; /* of a question to the resolver or a custom lookup; 0: 5000 */
    uint32_t idle_ms;    /* after which a thread of the resolver ends; 0: 10000 */
};

void mr_lookup_options_init(struct mr_lookup_options *opts, size_t size);

/* -EINVAL (no loop, not that size), -ENOMEM; negative errno of libuv. */
int mr_lookup_create(struct mr_lookup **out, const struct mr_lookup_options *opts);

/* Questions that are not answered are forgotten: done is not called. Jobs that hang are left to
 * their threads, which own the memory from then on. What it closed is freed by the loop. NULL is
 * fine. */
void mr_lookup_destroy(struct mr_lookup *l);

/* NULL: the default alone. Questions that were asked already stay with whom they were asked. */
void mr_lookup_set_custom(struct mr_lookup *l, const struct mr_lookup_custom *custom);
/* NULL: getaddrinfo(3). The struct must stay valid until mr_lookup_destroy() or until it is
 * replaced, its functions and their user as long as one of them runs. */
void mr_lookup_set_resolver(struct mr_lookup *l, const struct mr_resolver *resolver);

/* Through the custom lookup where there is one (flags: MR_LOOKUP_BUILT_IN: not), else the default.
 * The host is copied where it has to wait. It never fails here: what is wrong is told to done. */
void mr_lookup_start(struct mr_lookup *l, struct mr_lookup_request *req, const char *host, size_t n,
                     int family, enum mr_lookup_op op, unsigned flags);
/* The same through a custom lookup of the caller's own (an endpoint's) instead of the loop's; NULL:
 * as above. */
void mr_lookup_start_with(struct mr_lookup *l, struct mr_lookup_request *req,
                          const struct mr_lookup_custom *own, const char *host, size_t n,
                          int family, enum mr_lookup_op op, unsigned flags);

/* The default: a literal of the family is itself, on the next turn; everything else is for the
 * resolver, also a literal of the other family (which ends there in a "family" error). */
void mr_lookup_default(struct mr_lookup *l, struct mr_lookup_request *req, const char *host,
                       size_t n, int family);

/* done will not be called. Fine when it was called already. */
void mr_lookup_cancel(struct mr_lookup_request *req);

/* A custom lookup's answer. NULL: no opinion, the default is asked, which has a time limit of its
 * own. Of its address ip, family and scope count: the port is that of whoever asks, one that is set
 * here is left out. It is checked: the family, one a ticket. 0; -EALREADY: that question is over
 * (counted). */
int mr_lookup_answer(struct mr_lookup *l, mr_lookup_ticket ticket,
                     const struct mr_lookup_answer *answer);

struct mr_lookup_counts {
    uint64_t literals, resolver_calls, script_calls, ignored; /* ignored: second or late answers */
};
void mr_lookup_count(const struct mr_lookup *l, struct mr_lookup_counts *out);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
