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
    /* done will not be called. */
    void (*cancel)(void *user, host_job job);
};

#endif
