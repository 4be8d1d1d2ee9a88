/* SPDX-License-Identifier: MIT */
/*
 * What a lookup is: a name or a literal becomes a socket address. The words that whoever
 * asks (UDP endpoints, targets, listeners, HTTP, policies), whoever answers (the hooks
 * `lookup`, a program's own function) and whoever carries it (control/lookup.h; in
 * relay.testing src/module) have in common. Types only. Control thread.
 * Public: installed with moonrelay_uv.h.
 */
#ifndef MR_SERVICE_LOOKUP_H
#define MR_SERVICE_LOOKUP_H

#include "core/address.h"

#include <stddef.h>

/* X(constant, what policies see as ev.op) */
#define MR_LOOKUP_OPS(X)  \
    X(BIND, "bind")       \
    X(CONNECT, "connect") \
    X(SEND, "send")       \
    X(TARGET, "target")   \
    X(LISTEN, "listen")   \
    X(HTTP, "http")       \
    X(RESOLVE, "resolve")

enum mr_lookup_op {
#define X(constant, name) MR_LOOKUP_##constant,
    MR_LOOKUP_OPS(X)
#undef X
        MR_LOOKUP_OP_COUNT
};

enum {
    MR_LOOKUP_HOST_MAX = 255, /* bytes of a host; a DNS name has 253 */
    MR_LOOKUP_CODE_MAX = 32,  /* a lower-case word, as in a reason */
    MR_LOOKUP_TEXT_MAX = 400, /* bytes of a message */
    MR_LOOKUP_BUILT_IN = 1,   /* flag: not through the custom lookup; it is that which asks */
};

/* Borrowed: valid until whoever is told returns. */
struct mr_lookup_answer {
    int rc;              /* 0, or a negative errno; then code and message are set */
    struct mr_addr addr; /* of the family that was asked for; told with port 0 */
    const char *code;    /* "not-found" "family" "timeout" "busy" "failed" "policy-error", or a
                            policy's own */
    const char *message; /* one line that names the host */
};

#endif
