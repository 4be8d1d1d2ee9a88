/* SPDX-License-Identifier: MIT */
/*
 * What happens in a bench, in order, until Lua fetches it: lines that players are sent,
 * log records, answers, requests to the world outside. Everything is copied, because it
 * is told from inside a turn of the service, where nothing may raise and nobody may call
 * back. The host's thread.
 */
#ifndef MR_MODULE_HAPPENING_H
#define MR_MODULE_HAPPENING_H

#include "base/log.h"
#include "service/hooks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum happening_kind {
    HAPPENED_LINE,    /* id: connection; text[0] */
    HAPPENED_CLOSED,  /* id: connection */
    HAPPENED_LOG,     /* number: level; text: area, message; fields */
    HAPPENED_COMMAND, /* id: connection, number: session; text: code, reason, host's relay, client's
                         relay; is_relayed */
    HAPPENED_KNOCK,  /* id: flow, number: what its relay had sent before; text: code, reason, relay;
                        spec, fields: tags, slots */
    HAPPENED_HTTP,   /* id: job, number: most bytes of a body; text: method, url, body; fields:
                        headers; seconds: timeout */
    HAPPENED_READ,   /* id: job, number: most bytes; text[0]: path */
    HAPPENED_LOADED, /* number: whether it failed; text[0]: why */
    HAPPENED_LOOKUP, /* id: job, number: family; text[0]: host */
    HAPPENED_LOOKED_UP, /* id; text: address, or code and message behind it */
    HAPPENED_CALLED,    /* id: as given; number: errno, positive; is_json; text[0] */
};

enum { HAPPENING_TEXTS = 4 };

struct happening_fields {
    struct log_field *items;
    size_t n;
};

struct happening {
    struct happening *next;
    enum happening_kind kind;
    uint64_t id, number;
    double seconds;
    bool is_json, is_relayed, has_spec;
    struct str text[HAPPENING_TEXTS]; /* copies; s = NULL: none */
    struct happening_fields fields, slots;
    struct hook_spec spec;
};

struct happenings {
    struct happening *first, *last;
    bool is_short; /* memory ended: something is missing */
};

/* NULL: out of memory, which is noted. It is the last one of the queue from now on. */
struct happening *mr__happening_add(struct happenings *q, enum happening_kind kind);
/* These accept NULL for h. */
void mr__happening_text(struct happenings *q, struct happening *h, unsigned i, struct str text);
void mr__happening_field(struct happenings *q, struct happening *h, struct happening_fields *to,
                         const struct log_field *field);
/* A key that is no C string. */
void mr__happening_pair(struct happenings *q, struct happening *h, struct happening_fields *to,
                        struct str key, struct str value);

/* Forgets the first one. */
void mr__happening_drop(struct happenings *q);
void mr__happenings_deinit(struct happenings *q);

#endif
