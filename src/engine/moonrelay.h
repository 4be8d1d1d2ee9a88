/* SPDX-License-Identifier: MIT */
/*
 * moonrelay: the relay engine as a library.
 *
 * An engine owns UDP ports and relays datagrams between them. A RELAY ties a peer's
 * address to one of our ports; two relays that are a PAIR exchange datagrams: what
 * A's peer sends to B's port leaves from A's port to B's peer. Everything that is
 * forwarded is forwarded by a LINK, (port, remote address) -> (way out, destination);
 * a pair is two links.
 *
 * One thread, the control thread, makes all calls on a handle. Worker threads forward;
 * they never wait for the control thread, and it never waits for them: changes travel
 * as numbered commands and are IN FORCE once every worker has applied them (about
 * 20 us). With workers = 0 the same code runs inside mr_poll().
 *
 * An embedder puts mr_fd() into his own loop, sleeps no longer than mr_timeout_ms(),
 * and calls mr_poll(). Start reading at mr_create(), mr_port_open(),
 * mr_relay_create(), mr_pair(), mr_poll().
 *
 * Results: 0 or a count, else a negative errno. -ENOENT: the id names nothing (any
 * more). -EINVAL: an argument is out of range; nothing has changed. Times are
 * nanoseconds of CLOCK_MONOTONIC unless the name says otherwise, sizes are bytes of
 * UDP payload.
 */
#ifndef MOONRELAY_H
#define MOONRELAY_H

#include "core/address.h"
#include "core/nets.h"
#include "core/verdict.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MR_API        __attribute__((visibility("default")))
#define MR_MUST_CHECK __attribute__((warn_unused_result))
#else
#define MR_API
#define MR_MUST_CHECK
#endif

struct mr;

/* Names a relay for as long as it exists. Ids are never reused within a handle,
 * so a stale id gives -ENOENT and never somebody else's relay. 0 is no relay. */
typedef uint64_t mr_relay_id;

/* Names a flow whose datagrams are held while somebody decides. Never reused within
 * a handle. 0 is no flow. */
typedef uint64_t mr_flow_id;

/* ---------------------------------------------------------------- options */

enum mr_pairing {
    MR_PAIRING_PAIRED, /* datagrams pass within pairs only */
    MR_PAIRING_OPEN,   /* whoever has a relay reaches every relay (noray's rule) */
};

enum mr_io {
    MR_IO_KERNEL, /* real sockets */
    MR_IO_NONE,   /* no sockets: ports are only numbers, datagrams come by mr_inject() and
                   * what leaves is counted; for tests and benchmarks */
};

enum { MR_WORKERS_AUTO = -1 }; /* as many as cores are allowed to us, at least 1 */

/* Limits of the whole engine and the defaults of every relay. 0 = none. All of it may
 * change while traffic flows (mr_set_limits). */
struct mr_limits {
    size_t size;                 /* sizeof(struct mr_limits), set by init */
    uint64_t relay_bytes_per_s;  /* individual bandwidth */
    uint64_t global_bytes_per_s; /* all relays together */
    uint64_t burst_ns;           /* how much of a rate may come at once; at least 1 s */
    uint64_t life_ns;    /* from creation or mr_relay_restart(): datagrams are dropped after */
    uint64_t life_bytes; /* likewise: dropped once so much was sent */
    uint64_t idle_ns;    /* a relay ends when it neither sent nor received for so long */
};

/* Bounds of what is kept while somebody decides about an unexpected flow. Per worker. */
struct mr_hold_options {
    uint32_t datagrams;    /* per flow */
    uint32_t bytes;        /* per flow */
    uint64_t time_ns;      /* then the flow is dropped as hold_expired */
    uint32_t flows;        /* at once */
    uint32_t memory_bytes; /* for all held payloads */
    uint32_t events_per_s; /* new flows asked about; above: event_full */
};

struct mr_options {
    size_t size; /* sizeof(struct mr_options), set by init */
    int workers; /* MR_WORKERS_AUTO, 0 (caller's thread) or a count up to 64 */
    enum mr_io io;
    enum mr_pairing pairing;
    uint32_t max_ports;           /* tables are sized for it; untouched parts cost nothing */
    uint32_t max_pairs;           /* 0: four per port, see mr_pair() */
    uint32_t socket_buffer_bytes; /* receive and send buffer of every port */
    struct mr_limits limits;
    struct mr_hold_options hold;
    /* A replacement for CLOCK_MONOTONIC (a test's virtual clock), called from every
     * thread; NULL: the system's. */
    uint64_t (*clock_ns)(void *user);
    void *clock_user;
};

/* Fills *opts with the defaults: auto workers, kernel sockets, paired, 4,096 ports,
 * 1 MiB buffers, no limits, 30 s idle, hold 8 datagrams, 16 KiB, 2 s, 4,096 flows,
 * 4 MiB, 10,000 events/s. size is sizeof(struct mr_options) of the caller. */
MR_API void mr_options_init(struct mr_options *opts, size_t size);
MR_API void mr_limits_init(struct mr_limits *limits, size_t size);

/* ---------------------------------------------------------------- life */

/* Creates a relay engine and starts its workers. No socket is open yet.
 *
 * On success stores a handle in *out; the caller owns it and must pass it to
 * mr_destroy(). On failure *out is untouched and nothing is left running.
 *
 * -EINVAL  an option is out of range        -ENOMEM  out of memory
 * -EAGAIN  a worker thread could not start  -EMFILE  no descriptor left         */
MR_API MR_MUST_CHECK int mr_create(struct mr **out, const struct mr_options *opts);

/* Stops the workers after their current batch, closes every socket and frees
 * everything. Accepts NULL. No event follows. */
MR_API void mr_destroy(struct mr *mr);

/* Becomes readable when mr_poll() has something to do. Valid until mr_destroy(). */
MR_API int mr_fd(const struct mr *mr);

/* How long the caller may sleep: -1 for ever, 0 not at all. */
MR_API int mr_timeout_ms(struct mr *mr);

/* ---------------------------------------------------------------- events */

enum mr_event_type {
    MR_EVENT_MISS,     /* a new flow is held: answer with mr_flow_release() or _discard() */
    MR_EVENT_ENDED,    /* a relay is gone and its removal is in force: its port may be used again */
    MR_EVENT_LIMIT,    /* a limit holds a relay back (at most once a second, kind and relay) */
    MR_EVENT_IN_FORCE, /* every command up to seq is in force; merged, so only the newest comes */
    MR_EVENT_DATAGRAM, /* a manual relay's datagram */
};

enum mr_end_reason {
    MR_END_CLOSED,   /* mr_relay_close() */
    MR_END_IDLE,     /* neither sent nor received for its idle time */
    MR_END_LIFETIME, /* its own ttl_ns is over */
    MR_END_TRAFFIC,  /* its own max_bytes are used up */
    MR_END_PORT,     /* its port was closed */
};

enum mr_limit_kind {
    MR_LIMIT_BANDWIDTH,
    MR_LIMIT_GLOBAL,
    MR_LIMIT_DURATION,
    MR_LIMIT_DURATION_SOON, /* five minutes before life_ns ends; once per restart */
    MR_LIMIT_TRAFFIC,
    MR_LIMIT_KINDS,
};

enum { MR_PEEK_MAX = 64 };

/* Totals of one relay, summed over all data paths. in: what its peer sent and was
 * forwarded; out: what was forwarded to its peer; drops: what its peer sent and was not. */
struct mr_relay_counts {
    uint64_t packets_in, bytes_in, packets_out, bytes_out, drops;
};

struct mr_event {
    enum mr_event_type type;
    mr_relay_id relay; /* ENDED, LIMIT, DATAGRAM */
    union {
        struct {
            mr_flow_id flow;
            struct mr_addr from;
            uint32_t port;             /* index of the port it arrived at */
            enum mr_verdict reason;    /* UNKNOWN_SENDER, UNKNOWN_TARGET, NOT_PAIRED or NEW_FLOW */
            uint32_t size;             /* of the first datagram */
            uint8_t peek[MR_PEEK_MAX]; /* its first bytes: min(size, MR_PEEK_MAX) are set */
        } miss;
        struct {
            enum mr_end_reason reason;
            uint32_t port;
            uint64_t user; /* as given at creation */
            uint64_t age_ns;
            struct mr_addr peer;
            struct mr_relay_counts counts; /* final */
        } ended;
        struct {
            enum mr_limit_kind kind;
            uint64_t user;
        } limit;
        struct {
            uint64_t seq;
        } in_force;
        struct {
            uint32_t port;
            struct mr_addr from;
            uint32_t size;
            const uint8_t *data; /* valid until the next mr_poll() */
        } datagram;
    } u;
};

/* Does what is due (timers, waiting commands; with workers = 0 all receiving and
 * sending) and stores up to max events. Returns their number; when it is max, call
 * again. Bounded work per call: at most 1,000 relays end in one.
 * -EINVAL for max = 0. */
MR_API int mr_poll(struct mr *mr, struct mr_event *events, unsigned max);

/* The number of the last command issued: an action that must not be visible before a
 * change is in force waits until mr_in_force() has reached the value taken after it. */
MR_API uint64_t mr_seq(const struct mr *mr);
MR_API uint64_t mr_in_force(const struct mr *mr);

/* Issues a command that changes nothing and returns its number: when it is in force,
 * every worker is alive and up to date. */
MR_API uint64_t mr_ping(struct mr *mr);

/* ---------------------------------------------------------------- ports */

enum mr_port_flags {
    MR_PORT_DUAL_STACK = 1 << 0, /* an IPv6 socket that also serves IPv4 */
    MR_PORT_OPEN = 1 << 1,       /* a datagram without a link is a NEW_FLOW miss, free or not */
};

struct mr_port_info {
    struct mr_addr local;  /* as bound, with the port the kernel chose */
    mr_relay_id relay;     /* 0: free */
    int rcvbuf, sndbuf;    /* what the kernel granted, bytes as SO_RCVBUF reports them halved */
    uint64_t kernel_drops; /* receive overflows as of the last mr_refresh_kernel_drops() */
    uint32_t worker;
    unsigned flags; /* enum mr_port_flags, as it was opened with */
};

/* Opens a UDP port and stores its dense index (0, 1, ...) in *port. Nobody else may
 * share the address (no SO_REUSEADDR). local->port 0 lets the kernel choose. The address of a port
 * that was closed may be opened again at once.
 * -EADDRINUSE, -EACCES, -EADDRNOTAVAIL as bind(2); -ENOSPC: max_ports are open; -EMFILE. */
MR_API MR_MUST_CHECK int mr_port_open(struct mr *mr, const struct mr_addr *local, unsigned flags,
                                      uint32_t *port);

/* Ends its relay (MR_END_PORT) and closes the socket once nothing can use it. The index may be
 * given out again. */
MR_API int mr_port_close(struct mr *mr, uint32_t port);
MR_API int mr_port_info(const struct mr *mr, uint32_t port, struct mr_port_info *out);

/* Declares an address as ours (a registrar, a command listener), so that no relay ever
 * gets it and a miss from it is dropped as own_address. Relay ports declare themselves.
 * A wildcard address stands for every local interface's. -ENOSPC above 64. */
MR_API int mr_own_address(struct mr *mr, const struct mr_addr *a);

/* The IP under which the outside reaches us (a NAT's), instead of the one before; family 0 or NULL:
 * none. Our port numbers on it are our own addresses. -ENOSPC. */
MR_API int mr_set_public_ip(struct mr *mr, const struct mr_addr *ip);

/* The address at which `port` receives what peer sends: the one it is bound to, else that from
 * which the machine's routes would answer (a few system calls). *local has port's number. -ENOENT:
 * no such port, -ENODATA: it cannot be known, else what the routes say (-ENETUNREACH). */
MR_API int mr_port_local(const struct mr *mr, uint32_t port, const struct mr_addr *peer,
                         struct mr_addr *local);

/* 1 if a datagram to or from the address would be to or from ourselves. */
MR_API int mr_is_own_address(const struct mr *mr, const struct mr_addr *a);

/* ---------------------------------------------------------------- relays */

enum mr_relay_flags {
    MR_RELAY_MANUAL = 1 << 0, /* its peer's datagrams go to mr_poll() instead of being forwarded */
    MR_RELAY_LINKED = 1 << 1, /* reached by its links only (mr_target_add()): it has no pairs, does
                               * not move, and mr_relay_of() does not find it; whoever else sends
                               * to its port is a MISS with reason UNKNOWN_SENDER, whatever the
                               * pairing. Not together with others. */
    MR_RELAY_UNPROVEN = 1 << 2, /* nobody vouches for the peer's address, see mr_relay_set_proof();
                                 * not together with others */
};

/* What a policy may set on top of mr_limits. 0 = nothing of its own. The stricter of both
 * holds; restarts concern only the limits of mr_limits. */
struct mr_relay_limits {
    uint64_t bytes_per_s;
    uint64_t packets_per_s;
    uint64_t max_bytes; /* the relay ends (MR_END_TRAFFIC) */
    uint64_t ttl_ns;    /* the relay ends (MR_END_LIFETIME) */
    uint64_t idle_ns;   /* instead of mr_limits.idle_ns when shorter or longer */
};

struct mr_relay_spec {
    size_t size; /* sizeof(struct mr_relay_spec), set by init */
    uint32_t port;
    struct mr_addr peer;
    struct mr_addr local; /* where the peer was seen; family 0: unknown */
    unsigned flags;
    uint64_t user; /* the caller's own; comes back in events and info */
    struct mr_relay_limits limits;
};
MR_API void mr_relay_spec_init(struct mr_relay_spec *spec, size_t size);

struct mr_relay_info {
    mr_relay_id id;
    uint32_t port;
    struct mr_addr peer, local;
    unsigned flags;
    uint64_t user;
    uint64_t created_ns, last_activity_ns;
    struct mr_relay_limits limits;
    struct mr_relay_counts counts;
};

/* -EBUSY: the port has a relay, or the removal of its last one is not in force yet.
 * -EADDRNOTAVAIL: the peer is one of our own addresses. -EDESTADDRREQ: unspecified,
 * multicast or broadcast, or port 0. -EAFNOSUPPORT: the port's socket cannot reach that family. */
MR_API MR_MUST_CHECK int mr_relay_create(struct mr *mr, const struct mr_relay_spec *spec,
                                         mr_relay_id *id);

/* The peer has another address now (a rebound NAT, a new registration); port, pairs, id and
 * limits stay. The mover becomes the newest at its address. Errors as mr_relay_create(). */
MR_API MR_MUST_CHECK int mr_relay_move(struct mr *mr, mr_relay_id id, const struct mr_addr *peer,
                                       const struct mr_addr *local);

/* The relay no longer forwards once this is in force; then MR_EVENT_ENDED follows. The id is
 * stale from now on. */
MR_API int mr_relay_close(struct mr *mr, mr_relay_id id);

/* Counts as activity now. */
MR_API int mr_relay_refresh(struct mr *mr, mr_relay_id id);

/* Restarts the lifetimes of mr_limits (not the relay's own), and counts as activity. */
MR_API int mr_relay_restart(struct mr *mr, mr_relay_id id);
MR_API int mr_relay_set_limits(struct mr *mr, mr_relay_id id, const struct mr_relay_limits *limits);
MR_API int mr_relay_set_user(struct mr *mr, mr_relay_id id, uint64_t user);
/* Whether somebody vouches for the peer's address, or it may be a victim's. While it is NEEDED the
 * relay is forwarded 16 datagrams or 16 KiB until its peer has itself sent to a port of ours, then
 * 32 KiB a second or ten times what the peer sent in the last 10 seconds, whichever is more; the
 * rest is dropped as UNPROVEN. NEEDED again (the relay has moved to where nobody vouches for it
 * either): its peer has not sent yet, and what it was let through is not given anew. In force at
 * once. -ENOENT, -EINVAL (MANUAL, LINKED) */
enum mr_proof { MR_PROOF_GIVEN, MR_PROOF_NEEDED };
MR_API int mr_relay_set_proof(struct mr *mr, mr_relay_id id, enum mr_proof proof);
MR_API int mr_relay_info(const struct mr *mr, mr_relay_id id, struct mr_relay_info *out);

/* The relay at a port, the newest one of an address, the next one after id in port order
 * (0 starts); 0 when there is none. Constant time; _next() skips free ports. */
MR_API mr_relay_id mr_relay_at(const struct mr *mr, uint32_t port);
MR_API mr_relay_id mr_relay_of(const struct mr *mr, const struct mr_addr *peer);
MR_API mr_relay_id mr_relay_next(const struct mr *mr, mr_relay_id id);

/* "51200.17": the UDP port and the generation. Where several ports have that number (on
 * several local addresses), all but the first to open add their index: "51200@7.17".
 * Returns the length. _parse() gives 0 for what names no live relay. */
MR_API size_t mr_relay_format(const struct mr *mr, mr_relay_id id, char *buf, size_t cap);
MR_API mr_relay_id mr_relay_parse(const struct mr *mr, const char *text, size_t n);

/* ---------------------------------------------------------------- pairs and links */

/* Lets two relays exchange datagrams; a == b is an echo. Idempotent. -ENOSPC: max_pairs; where that
 * is 0 the last quarter is for relays that have no pair but their echo.
 * -EAFNOSUPPORT: the port of one cannot reach the other's peer. */
MR_API MR_MUST_CHECK int mr_pair(struct mr *mr, mr_relay_id a, mr_relay_id b);
MR_API int mr_unpair(struct mr *mr, mr_relay_id a, mr_relay_id b);
MR_API int mr_is_paired(const struct mr *mr, mr_relay_id a, mr_relay_id b); /* 1, 0 or -ENOENT */

/* A peer behind a symmetric NAT speaks to each of our ports from another port of its own, one that
 * nobody has registered. The caller who recognizes it LATCHES one leg of a pair: within the pair
 * `relay`'s peer is then at `seen` instead, as who it speaks and where it is sent to. Only legs are
 * latched whose own peer has not sent to the other's port since the leg is watched, and when it
 * does, that undoes the latch; so do mr_relay_move() of `relay` to another address and the end of
 * the pair. First of all the way to `seen` is changed; once that is in force, what `seen` sends is
 * his, and what is held of it goes on by itself. */

/* Notices from now on when relay's own peer sends to the port of `other`. That stays noticed when
 * the leg is watched again. Manual relays' peers are not watched. -ENOENT: no pair of two. */
MR_API int mr_pair_watch(struct mr *mr, mr_relay_id relay, mr_relay_id other);
/* 1: watched, and its own peer has not spoken; 0 */
MR_API int mr_pair_is_fresh(const struct mr *mr, mr_relay_id relay, mr_relay_id other);
/* -ENOENT: they are no pair of two. -EBUSY: the leg is latched, is not watched, or its own peer has
 * spoken. -EADDRINUSE: `seen` is a relay's address. -EEXIST: it has a link to that port. -ENOSPC:
 * as many latches as max_ports, or no link is left. -EADDRNOTAVAIL, -EDESTADDRREQ, -EAFNOSUPPORT,
 * -EINVAL as mr_relay_create(). */
MR_API MR_MUST_CHECK int mr_pair_latch(struct mr *mr, mr_relay_id relay, mr_relay_id other,
                                       const struct mr_addr *seen);
MR_API int mr_pair_unlatch(struct mr *mr, mr_relay_id relay, mr_relay_id other);
/* 1 and *seen, 0: not latched; -ENOENT: no such relays. */
MR_API int mr_pair_latched(const struct mr *mr, mr_relay_id relay, mr_relay_id other,
                           struct mr_addr *seen);
/* Undoes all latches to an address, whose it is; returns how many those were. */
MR_API int mr_address_unlatch(struct mr *mr, const struct mr_addr *seen);

/* A single link by hand: what arrives at port from remote leaves through egress (a port)
 * to dest and is charged to the relay, with which the link ends. -EEXIST. -EINVAL: a port is not
 * open. -EADDRNOTAVAIL: an end is one of our own addresses. -EAFNOSUPPORT. -ENOSPC. */
MR_API MR_MUST_CHECK int mr_link_add(struct mr *mr, uint32_t port, const struct mr_addr *remote,
                                     uint32_t egress, const struct mr_addr *dest,
                                     mr_relay_id charged);
MR_API int mr_link_remove(struct mr *mr, uint32_t port, const struct mr_addr *remote);

/* Sends a relay's flow on to a server: what the relay's peer sends to `port` (another one of ours)
 * leaves from the relay's own port to dest, and what dest sends there leaves from `port` to the
 * peer. So dest sees one of our ports for each such relay, and its answers find their way. Both
 * directions count as activity and against the relay's limits; counted `in` is what the peer
 * sent, `out` what dest did. Both links end with the relay, and with `port`. The relay must be
 * MR_RELAY_LINKED (-EINVAL). -EEXIST: the peer has a link at `port` already. -EDESTADDRREQ,
 * -EADDRNOTAVAIL, -EAFNOSUPPORT as mr_relay_create() says of a peer. -ENOENT. -ENOSPC. */
MR_API MR_MUST_CHECK int mr_target_add(struct mr *mr, mr_relay_id id, uint32_t port,
                                       const struct mr_addr *dest);

/* 1 if something that comes from remote to the port is forwarded by a link; 0. */
MR_API int mr_is_linked(const struct mr *mr, uint32_t port, const struct mr_addr *remote);

/* ---------------------------------------------------------------- flows */

/* Whether misses are held and asked about (1), or dropped at once with their reason (0, the
 * default): nobody is there to decide. Ports with MR_PORT_OPEN always ask. */
MR_API void mr_set_miss_events(struct mr *mr, int are_wanted);

/* Sends what is held through the data plane again, in order and before anything that
 * arrives later; what still matches nothing is dropped with the reason it was found with. */
MR_API int mr_flow_release(struct mr *mr, mr_flow_id flow);

/* Drops what is held and counts it as `as`; the flow makes no event for quiet_ns (at least 1 s
 * is used), what it sends meanwhile is counted as `later`. -EINVAL if as or later is FORWARD. */
MR_API int mr_flow_discard(struct mr *mr, mr_flow_id flow, enum mr_verdict as, uint64_t quiet_ns,
                           enum mr_verdict later);

#define MR_HOLD_AS_IS UINT32_MAX /* of mr_flow_hold(): that bound does not change */

/* Other bounds for one held flow than those of the options, while somebody decides about it.
 * time_ns runs from the flow's first datagram (a year at most; 0: as it is); what is held already
 * stays, what is over the bounds later is dropped as hold_full. The options' flows and
 * memory_bytes bound all flows together as before. -ENOENT: it does not wait for an answer (any
 * more). -EINVAL: time_ns. */
MR_API int mr_flow_hold(struct mr *mr, mr_flow_id flow, uint32_t datagrams, uint32_t bytes,
                        uint64_t time_ns);

/* ---------------------------------------------------------------- who is refused */

/* What comes from these nets and matches nothing is dropped as blocked, unheld and without an
 * event; so a flood of it costs nobody else anything. What has a link, or in open pairing a relay,
 * passes: close the relays of the peers as well. The nets are copied and replace those before;
 * NULL or empty ones: nobody is refused. -EINVAL: ranges are not sorted and disjoint. -ENOMEM:
 * nothing has changed. */
MR_API MR_MUST_CHECK int mr_set_blocked(struct mr *mr, const struct mr_nets *nets);

/* ---------------------------------------------------------------- datagrams */

struct mr_decision {
    enum mr_verdict verdict;
    uint32_t egress;    /* the port it leaves from */
    struct mr_addr to;  /* where it goes */
    mr_relay_id sender; /* who is charged; 0: nobody */
    mr_relay_id target; /* who receives; 0: none */
};

/* The decision alone, without sockets: a datagram of size bytes came from `from` to `port`
 * at now_ns. Charged and counted like one that a worker received. Returns the verdict. */
MR_API int mr_decide(struct mr *mr, const struct mr_addr *from, uint32_t port, uint32_t size,
                     uint64_t now_ns, struct mr_decision *out);

/* Puts a datagram into the data plane as if it had arrived at the port, except that a manual
 * relay's is forwarded: so an embedder sends on what MR_EVENT_DATAGRAM gave him. data is copied.
 * -EMSGSIZE above 65,507 bytes. */
MR_API MR_MUST_CHECK int mr_inject(struct mr *mr, uint32_t port, const struct mr_addr *from,
                                   const void *data, size_t size);

/* ---------------------------------------------------------------- settings and figures */

MR_API int mr_set_limits(struct mr *mr, const struct mr_limits *limits);

/* Bounds for flows that are not held yet: datagrams, bytes, time_ns (above 0, a year at most) and
 * events_per_s (above 0). flows and memory_bytes are those of the creation and not looked at. */
MR_API int mr_set_hold(struct mr *mr, const struct mr_hold_options *hold);

enum { MR_HIST_BUCKETS = 32 };

/* counts[k]: observations v with 2^(k-1) < v <= 2^k (k = 0: v <= 1); the last one takes the rest.
 */
struct mr_histogram {
    uint64_t counts[MR_HIST_BUCKETS];
    uint64_t sum;
};

/* received = the sum of verdicts + held, at rest exactly and while traffic flows but for what is
 * between two counters. Sums over all workers and mr_decide(). */
struct mr_stats {
    size_t size;
    uint64_t received, received_bytes;
    uint64_t sent, sent_bytes;
    uint64_t verdicts[MR_VERDICT_COUNT];
    uint64_t held; /* now */
    uint64_t events_lost, kernel_drops;
    uint64_t limit_hits[MR_LIMIT_KINDS];
    uint32_t ports, relays, pairs, workers;
    struct mr_histogram size_bytes;  /* of every received datagram */
    struct mr_histogram duration_ns; /* a batch's time over its datagrams, one entry a datagram */
    uint32_t latches;                /* legs of pairs, now */
};
MR_API int mr_get_stats(struct mr *mr, struct mr_stats *out, size_t size);

/* Asks the kernel what each port's receive buffer lost (SO_MEMINFO); a microsecond or so a port,
 * and of more than 4,096 ports the next 4,096 a call. */
MR_API void mr_refresh_kernel_drops(struct mr *mr);

/* Never NULL; static text. Takes an errno of either sign. */
MR_API const char *mr_strerror(int err);
/* "0.1.0" */
MR_API const char *mr_version(void);

#ifdef __cplusplus
}
#endif
#endif
