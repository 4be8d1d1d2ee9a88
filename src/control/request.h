/* SPDX-License-Identifier: MIT */
/*
 * The JSON bodies of the control socket's requests: one flat object with known keys of
 * known types, within limits. Pure. Control thread.
 *
 * To add a request, add a line to MR_REQUESTS and its fields to request.c, its path to
 * api.c, and the row in scripts/README.md.
 */
#ifndef MR_CONTROL_REQUEST_H
#define MR_CONTROL_REQUEST_H

#include "service/hooks.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* X(constant) */
#define MR_REQUESTS(X) \
    X(KICK)            \
    X(CLOSE)           \
    X(BLOCK)           \
    X(UNBLOCK)         \
    X(RELOAD)          \
    X(ROLLBACK)        \
    X(DRAIN)           \
    X(CALL)

enum request_kind {
#define X(constant) MR_REQUEST_##constant,
    MR_REQUESTS(X)
#undef X
        MR_REQUEST_COUNT
};

enum {
    MR_REQUEST_BYTES_MAX = 64 * 1024,
    MR_REQUEST_DEPTH_MAX = 4,
    MR_REQUEST_ARGS_MAX = 32,
    MR_REQUEST_WHY_MAX = 256,
};

/* What is not there is empty, 0 or false. Borrowed from root. */
struct request {
    json_t *root;
    struct str id, what, reason, policy, verb;
    double seconds;
    bool check, cancel;
    struct str args[MR_REQUEST_ARGS_MAX];
    size_t n_args;
};

/* Reads n bytes; nothing is an empty object. -EINVAL with *why filled, -ENOMEM. */
int mr__request_parse(struct request *out, enum request_kind kind, const char *text, size_t n,
                      char why[MR_REQUEST_WHY_MAX]);
void mr__request_deinit(struct request *r);

#endif
