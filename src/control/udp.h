/* SPDX-License-Identifier: MIT */
/*
 * A UDP endpoint on a libuv loop: bind, connect and send take names or literals, which
 * go through the lookup (lookup.h). Control thread. Start reading at mr_udp_send().
 * Public: installed with moonrelay_uv.h.
 *
 * Not uv_udp_t: that keeps what it sends in one queue, where a refused destination fails
 * everything behind it. Here each datagram has its own end.
 *
 *     made ── bind, or the first send ──> binding ──> bound ── connect ──> connecting ──> connected
 *                                            └─ fails: every queued send gets its error; made again
 *
 * Callbacks come on a later turn of the loop than the call, each exactly once, unless the
 * endpoint is closed meanwhile: then only the close callback comes.
 */
#ifndef MR_CONTROL_UDP_H
#define MR_CONTROL_UDP_H

#include "control/lookup.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* part of the shared library's interface */
#endif

struct mr_udp;

/* rc 0, or a negative errno; then message is one line that names what was asked, and code the
 * word of it: a lookup's ("not-found", "family", "timeout" ...) or mr_udp_code()'s. Borrowed. */
struct mr_udp_result {
    int rc;
    const char *code, *message;
};
typedef void (*mr_udp_done)(void *arg, const struct mr_udp_result *result);

/* local: the address it was sent to. data is valid until it returns. */
typedef void (*mr_udp_message)(void *user, const struct mr_addr *from, const struct mr_addr *local,
                               const void *data, size_t n);

struct mr_udp_options {
    size_t size; /* sizeof(struct mr_udp_options), set by init */
    uv_loop_t *loop;
    int family; /* 4 or 6; an endpoint of family 6 takes no IPv4 */
    void *user;
    mr_udp_message on_message;      /* NULL: nothing is read, as if paused for ever */
    struct mr_lookup_custom lookup; /* ask NULL: whoever answers for mr_lookup (lookup.h) */
    unsigned lookup_flags;          /* then: MR_LOOKUP_BUILT_IN */
    uint32_t buffer_bytes;          /* the kernel's, each direction; 0: its default */
    uint32_t queue_max;             /* sends that wait for a bind or a lookup; 0: 16384 */
    uint32_t queue_bytes_max;       /* their payload; 0: 16 MiB */
};
void mr_udp_options_init(struct mr_udp_options *opts, size_t size);

/* No socket is opened yet. lookup may be NULL for one that is bound by mr_udp_bind_address() and
 * only replies; otherwise it is there until mr_udp_close(). -EINVAL (a family that is
 * none, no loop), -ENOMEM. */
int mr_udp_create(struct mr_udp **out, struct mr_lookup *lookup, const struct mr_udp_options *opts);

/* Flags of the lookups that the next calls start, kept with them while they wait. With
 * MR_LOOKUP_BUILT_IN they go past the endpoint's own lookup, too. */
void mr_udp_set_lookup_flags(struct mr_udp *u, unsigned flags);

/* host NULL (n = 0): the wildcard of the family. port 0: the kernel's choice. -EISCONN when it is
 * bound or binding already, -EBADF when it is closing: then done is not called. */
int mr_udp_bind(struct mr_udp *u, const char *host, size_t n, uint16_t port, mr_udp_done done,
                void *arg);
/* Binds at once to an address that is known (a listener's): no lookup; `::` serves both families.
 * -EISCONN, -EAFNOSUPPORT (not its family), negative errno of socket(2) and bind(2). */
int mr_udp_bind_address(struct mr_udp *u, const struct mr_addr *local);

/* host NULL: 127.0.0.1 or ::1. Binds first when it is not bound. From then on only that peer's
 * datagrams come, and sends name no destination and ask no lookup. */
int mr_udp_connect(struct mr_udp *u, const char *host, size_t n, uint16_t port, mr_udp_done done,
                   void *arg);
/* Forgets the peer; what is queued still goes to it. -ENOTCONN. */
int mr_udp_disconnect(struct mr_udp *u);

/* Copies the data. host NULL: 127.0.0.1 or ::1, on a connected one its peer; a host on a connected
 * one is -EISCONN. An unbound one binds to the wildcard first (the lookup sees that, then the
 * destination). Order is kept per destination (host and port as given). done may be NULL.
 * -EDESTADDRREQ: port 0. -EMSGSIZE: above 65,507 bytes. -ENOBUFS: the queue is full. -EBADF.
 * -ENOMEM. Then done is not called. What the kernel refuses costs that datagram and is told to its
 * done alone; for room in its buffer a datagram waits. */
int mr_udp_send(struct mr_udp *u, const void *data, size_t size, const char *host, size_t n,
                uint16_t port, mr_udp_done done, void *arg);
/* Sends at once to an address that is known, from a local one (NULL, family 0: the kernel's
 * choice): for a reply from on_message. Negative errno of sendmsg(2). */
int mr_udp_reply(struct mr_udp *u, const struct mr_addr *to, const struct mr_addr *local,
                 const void *data, size_t size);

/* Where it is bound. -ENOTCONN when it is not (yet). */
int mr_udp_address(const struct mr_udp *u, struct mr_addr *local);

struct mr_udp_counts {
    uint64_t received, sent, receive_errors, send_errors, kernel_drops;
};
void mr_udp_count(const struct mr_udp *u, struct mr_udp_counts *out);

/* Reads no more until mr_udp_resume(); what was read before still comes. May still send. A bound
 * endpoint keeps the loop alive while it reads, and while something is to be told. */
void mr_udp_pause(struct mr_udp *u);
void mr_udp_resume(struct mr_udp *u);

/* Forgets every send and lookup; of all callbacks only done (may be NULL) comes, from the loop,
 * then the memory is gone. Accepts NULL. A second call does nothing. */
void mr_udp_close(struct mr_udp *u, void (*done)(void *arg), void *arg);

/* For a negative errno of this header: its word ("address-in-use" "denied" "not-available"
 * "refused" "unreachable" "too-large" "busy" "closed" "family" "bound" "unbound" "no-port" "memory"
 * "failed"), and what was wrong in a few words. Static. */
const char *mr_udp_code(int rc);
const char *mr_udp_reason(int rc);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
