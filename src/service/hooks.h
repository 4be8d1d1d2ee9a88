/* SPDX-License-Identifier: MIT */
/*
 * The interface between the relay service, which acts, and whoever decides (the Lua
 * policy chain in src/script, a fake in tests). Control thread only.
 *
 * The service builds a hook_event on its stack, asks, and gets exactly one answer for
 * every request, at once (from inside ask) or later, unless it cancelled it. The
 * service knows nothing about chains, generations or Lua; the decider knows nothing
 * about ports, tables or connections.
 *
 * To add a hook: a line in MR_HOOKS, what it carries in hook_event, what it may return
 * in hook_answer, the place in the service that asks, and the row in lua/README.md.
 */
#ifndef MR_SERVICE_HOOKS_H
#define MR_SERVICE_HOOKS_H

#include "core/address.h"
#include "service/lookup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(constant, name, is a decision) */
#define MR_HOOKS(X)              \
    X(REGISTER, "register", 1)   \
    X(CONNECT, "connect", 1)     \
    X(CREATE, "create", 1)       \
    X(DROP, "drop", 1)           \
    X(LOOKUP, "lookup", 1)       \
    X(CONNECTED, "connected", 0) \
    X(CREATED, "created", 0)     \
    X(DESTROYED, "destroyed", 0) \
    X(LEFT, "left", 0)

enum hook {
#define X(constant, name, is_decision) MR_HOOK_##constant,
    MR_HOOKS(X)
#undef X
        MR_HOOK_COUNT
};

enum {
    MR_REASON_MAX = 64,     /* of [a-z0-9._-] */
    MR_OID_MAX = 256,       /* bytes of an oid */
    MR_META_WORDS_MAX = 16, /* key=value words of a command */
    MR_META_BYTES_MAX = 4096,
    MR_TAGS_MAX = 32,   /* of a session or relay */
    MR_SLOTS_MAX = 32,  /* of one answer */
    MR_KEY_MAX = 32,    /* bytes of a tag's or meta's key */
    MR_VALUE_MAX = 256, /* bytes of a tag's value */
    MR_SLOT_KEY_MAX = 128,
    MR_TARGET_MAX = MR_LOOKUP_HOST_MAX + 8, /* bytes of host:port, [host]:port */
};

/* A borrowed string; not NUL-terminated; may hold any byte. */
struct str {
    const char *s;
    size_t n;
};

struct hook_pair {
    struct str key, value;
};

struct hook_slot {
    struct str key;
    uint32_t max;
};

struct hook_map {
    const struct hook_pair *items;
    size_t n;
};

/* What a policy sees of a session. Borrowed: valid during the call only. */
struct hook_session {
    uint64_t id;
    struct str oid;
    struct mr_addr tcp;  /* of its connection */
    struct mr_addr addr; /* as the registrar saw it; family 0: not yet */
    struct hook_map tags, meta;
    double since; /* wall clock, seconds */
    uint32_t joins;
};

struct hook_relay {
    uint64_t id;   /* mr_relay_id */
    char text[32]; /* 51200.17 */
    uint16_t port; /* UDP number */
    struct mr_addr addr;
    uint64_t session; /* 0: none */
    struct hook_map tags;
    double since, age;
    uint64_t packets_in, bytes_in, packets_out, bytes_out, drops;
    const char *kind;    /* "player", "dynamic", "target"; static */
    struct mr_addr dest; /* target: where its flow goes; else family 0 */
};

enum hook_via { MR_VIA_NONE, MR_VIA_DIRECT, MR_VIA_RELAY };

/* Which fields are set depends on the hook (DESIGN: `ev`). All borrowed. */
struct hook_event {
    enum hook hook;
    double now;           /* wall clock, seconds */
    uint64_t id;          /* of this event, never reused */
    struct str reason;    /* create: connect dynamic script api; drop: a verdict's name; destroyed:
                             idle ...; left: closed reset timeout replaced kicked blocked output
                             drained */
    struct hook_map tags; /* what this request carries so far */
    struct hook_map meta; /* of the command */
    struct mr_addr addr;  /* create: the relay's peer; register: none; drop: the sender */
    const struct hook_session *session;   /* register, create, created, left */
    const struct hook_session *peer;      /* create: the other side */
    const struct hook_session *from, *to; /* connect, connected; in connect to is NULL when the oid
                                             names nobody (yet) */
    struct str oid;                       /* connect, connected */
    struct str mode;                      /* connect, connected: "connect" or "relay" */
    struct str via;                       /* connected: "direct" or "relay"; connect: what it would
                                             be without the policies */
    const struct hook_relay *relay;       /* created, destroyed */
    uint16_t port;                        /* drop: UDP number */
    const struct hook_relay *target;      /* drop: the relay at that port, or NULL */
    uint32_t size;                        /* drop */
    bool known;          /* drop: the sender has, or had in 10 minutes, a session here */
    const uint8_t *peek; /* drop: the first bytes */
    size_t peek_n;
    struct str host;      /* lookup: as it was given */
    int family;           /* lookup: 4, 6, or 0: either */
    enum mr_lookup_op op; /* lookup: what for */
};

/* A relay's spec. has_*: the policy named it. */
struct hook_spec {
    bool has_ttl, has_idle, has_pps, has_bps, has_max_bytes;
    uint64_t ttl_ns, idle_ns, pps, bps, max_bytes;
    /* drop: of this flow, while `create` is asked; within the HOLD settings */
    bool has_hold_packets, has_hold_bytes, has_hold_ns;
    uint64_t hold_packets, hold_bytes, hold_ns;
    /* drop (and relay.open): host:port that the flow goes to; "": none */
    char target[MR_TARGET_MAX + 1];
};

enum hook_outcome {
    MR_HOOK_NO_OPINION, /* every policy agreed (nil, true); for drop: nobody admitted it */
    MR_HOOK_ADMIT,      /* something was returned; for drop: a spec, it is admitted */
    MR_HOOK_REFUSE,     /* reason says why */
    MR_HOOK_FAILED,     /* a hook raised, timed out or returned nonsense: reason is policy-error */
    MR_HOOK_BUSY,       /* too many suspended chains */
};

/* The chain's merged answer (smaller numbers, united tags and slots, later oid and via).
 * Borrowed: valid until done() returns. Checked by the decider: bounds of the enum above hold,
 * reasons are clean, an oid is 1..256 bytes of 0x21-0x7e. */
struct hook_answer {
    enum hook_outcome outcome;
    char reason[MR_REASON_MAX + 1];
    struct str policy; /* the name of the policy that refused or failed */
    struct str oid;    /* register, connect; n = 0: not set */
    bool takeover;     /* register */
    enum hook_via via; /* connect */
    struct hook_map tags;
    const struct hook_slot *slots;
    size_t n_slots;
    struct hook_spec spec; /* create, drop */
    uint64_t mute_ns;      /* drop, refused */
    /* lookup: admitted, the address (its port is 0); refused, `nil, err`: what it said */
    struct mr_addr address;
    struct str message;
};

/* Owned by the service; lives from ask() until done() was called or cancel() returned. */
struct hook_request {
    void (*done)(struct hook_request *req, const struct hook_answer *answer);
    void *decider; /* the decider's own while it is pending */
};

struct hooks {
    void *self;
    /* Does any policy define the hook? When not, the service does not ask. */
    bool (*wants)(void *self, enum hook hook);
    /* Starts the chain; calls req->done exactly once, from inside or later. */
    void (*ask)(void *self, struct hook_request *req, const struct hook_event *ev);
    /* Forgets a pending request: done will not be called. */
    void (*cancel)(void *self, struct hook_request *req);
    /* A notice: results are ignored. */
    void (*tell)(void *self, const struct hook_event *ev);
    /* Time for what waits (deadlines, timers): the next moment something is due (UINT64_MAX:
     * nothing), and doing what is. The service calls them from its own, inside a turn: tick runs
     * scripts one after the other and returns once they have used 10 ms in it; what is left is due
     * at once. deadline and tick are both there or both NULL. */
    uint64_t (*deadline)(void *self);
    void (*tick)(void *self, uint64_t now_ns);
    /* CPU time that scripts have used so far, ns, never less than before: the service lets others
     * have a go when a turn has spent too much of it. NULL: it counts questions instead. */
    uint64_t (*spent_ns)(void *self);
};

#endif
