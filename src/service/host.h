/* SPDX-License-Identifier: MIT */
/*
 * What policies need of the world outside, which src/script has no sockets and files
 * for: src/control gives the real one (fetch.h, file.h), relay.testing a fake one. It
 * stands here because both of them see it. Control thread.
 *
 * Each call starts something and returns at once; done is called exactly once, later and
 * never from inside, unless it was cancelled. Everything in a result is borrowed: valid
 * until done returns.
 */
#ifndef MR_SERVICE_HOST_H
#define MR_SERVICE_HOST_H

#include "service/hooks.h"
#include "service/lookup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct host_header {
    struct str name, value;
};

struct host_http_request {
    struct str method, url; /* checked: a token; http:// or https:// */
    const struct host_header *headers;
    size_t n_headers;
    struct str body;
    uint64_t timeout_ns; /* for all of it */
    unsigned lookup;     /* flags of the lookup of its host: MR_LOOKUP_BUILT_IN */
    size_t max_bytes;    /* of the response's body */
};

struct host_http_response {
    int rc;              /* 0, or a negative errno; then: */
    const char *code;    /* "timeout", "refused", "resolve", "tls", "too-large", "busy", "failed" */
    const char *message; /* one line */
    int status;
    const struct host_header *headers; /* names in lower case */
    size_t n_headers;
    struct str body;
};

struct host_file {
    int rc; /* 0, or a negative errno: -ENOENT, -EXDEV (it leads out of the folder), -EFBIG ... */
    const char *message;
    struct str text;
};

/* Names something that was started; 0 is none. */
typedef uint64_t host_job;

/* A UDP endpoint (control/udp.h); its owner's until udp_close. */
struct host_udp;

struct host_udp_result {
    int rc; /* 0, or a negative errno */
    const char *code, *message;
};

struct host_udp_options {
    int family;      /* 4 or 6 */
    bool has_lookup; /* its lookups go to `lookup` below and not to the chain */
    unsigned flags;  /* of its lookups otherwise: MR_LOOKUP_BUILT_IN */
    void *arg;
    void (*message)(void *arg, const struct mr_addr *from, const void *data, size_t n);
    /* To be answered by udp_answer, from inside or later; NULL there is "the default". */
    void (*lookup)(void *arg, uint64_t ticket, struct str host, int family, enum mr_lookup_op op);
    void (*lookup_forget)(void *arg, uint64_t ticket);
};

typedef void (*host_udp_done)(void *arg, const struct host_udp_result *r);

struct script_host {
    void *user;
    /* At most 32 at once: above that done says "busy". No redirects are followed. 0: out of memory,
     * and done will not be called. */
    host_job (*http)(void *user, const struct host_http_request *req,
                     void (*done)(void *arg, const struct host_http_response *r), void *arg);
    /* Reads a regular file of at most max_bytes below folder ("": the working directory; else with
     * its last slash) without leaving it by `..`, an absolute path or a symlink. */
    host_job (*read)(void *user, struct str folder, struct str path, size_t max_bytes,
                     void (*done)(void *arg, const struct host_file *f), void *arg);
    /* One address of a host for family 4, 6 or 0 (either). 0: out of memory. */
    host_job (*lookup)(void *user, struct str host, int family, enum mr_lookup_op op,
                       unsigned flags, void (*done)(void *arg, const struct mr_lookup_answer *a),
                       void *arg);
    /* done will not be called. */
    void (*cancel)(void *user, host_job job);

    /* As mr_udp_*() (control/udp.h); what they refuse at once is told to done all the same. A host
     * of no bytes is an omitted one. NULL: there are no endpoints here. */
    int (*udp_open)(void *user, const struct host_udp_options *opts, struct host_udp **out);
    host_job (*udp_bind)(void *user, struct host_udp *u, struct str host, uint16_t port,
                         host_udp_done done, void *arg);
    host_job (*udp_connect)(void *user, struct host_udp *u, struct str host, uint16_t port,
                            host_udp_done done, void *arg);
    host_job (*udp_send)(void *user, struct host_udp *u, struct str data, struct str host,
                         uint16_t port, host_udp_done done, void *arg);
    /* Flags of the lookups that u's next calls start, kept with them while they wait; with
     * MR_LOOKUP_BUILT_IN they go past u's own lookup as well. NULL: those of udp_open stay. */
    void (*udp_flags)(void *user, struct host_udp *u, unsigned flags);
    int (*udp_address)(void *user, struct host_udp *u, struct mr_addr *out);
    int (*udp_answer)(void *user, struct host_udp *u, uint64_t ticket,
                      const struct mr_lookup_answer *a);
    void (*udp_close)(void *user, struct host_udp *u);
};

#endif
