/* SPDX-License-Identifier: MIT */
/*
 * The relay service without I/O: connections, commands, sessions, the registrar's
 * answers, the port pool, admission, notices, figures. It is fed bytes, datagrams,
 * engine events and the time; it calls out through struct service_out. Control thread.
 *
 * An adapter (src/control) owns the sockets and a loop; a test owns a virtual clock.
 * Nothing here is called again from inside an `out` callback, except that `hooks` may
 * answer at once.
 *
 * Start reading: mr__service_input() is a player's bytes, mr__service_registrar() his
 * datagram, mr__service_engine_event() what the data plane has to tell.
 */
#ifndef MR_SERVICE_SERVICE_H
#define MR_SERVICE_SERVICE_H

#include "base/log.h"
#include "core/address.h"
#include "engine/moonrelay.h"
#include "service/hooks.h"
#include "service/host.h"
#include "service/settings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct service;

/* Names a connection; never reused. 0 is none. */
typedef uint64_t conn_id;

enum conn_end {
    MR_CONN_CLOSED,  /* FIN, everything answered */
    MR_CONN_RESET,   /* the peer's RST or a read error */
    MR_CONN_TIMEOUT, /* keepalive or TCP_USER_TIMEOUT gave up */
    MR_CONN_OUTPUT,  /* it did not read what it was sent */
    MR_CONN_SHUTDOWN,
};

/* What the service asks of its adapter. */
struct service_out {
    void *user;
    /* Queues bytes on a connection, in order. */
    void (*send)(void *user, conn_id conn, const char *data, size_t n);
    /* Closes it once what was queued is flushed; mr__service_closed() must not follow. */
    void (*close)(void *user, conn_id conn);
    /* Stops or resumes reading from it (the next command waits for the last one's answer, or the
     * client commands too fast). */
    void (*pause)(void *user, conn_id conn, bool is_paused);
    /* Sends a registrar reply from the address the datagram came to. */
    void (*reply)(void *user, const struct mr_addr *to, const struct mr_addr *local,
                  const char *data, size_t n);
    /* Fills n bytes from the kernel's random source. Without it nobody gets an id or a port. */
    int (*random)(void *user, void *buf, size_t n);
    /* As in struct script_host: the address of a target. */
    host_job (*lookup)(void *user, struct str host, int family, enum mr_lookup_op op,
                       unsigned flags, void (*done)(void *arg, const struct mr_lookup_answer *a),
                       void *arg);
    void (*lookup_cancel)(void *user, host_job job);
};

struct service_options {
    const struct settings *settings; /* outlives the service */
    struct mr *mr;                   /* ports are opened by mr__service_open_ports() */
    struct log *log;
    struct service_out out;
    double (*wall_s)(void *user); /* for policies and logs; with out.user */
};

/* Fills in what the settings say of the engine. */
void mr__service_engine_options(const struct settings_values *v, struct mr_options *o);

/* All now_ns below are CLOCK_MONOTONIC or the test's clock, the same as the engine's. */
int mr__service_create(struct service **out, const struct service_options *opts, uint64_t now_ns);
void mr__service_destroy(struct service *s);

/* What became of a request: for whoever makes it in a player's place and cannot tell from the wire
 * alone (relay.testing). Borrowed: valid during the call. */
struct service_outcome {
    const char *code;   /* PROTOCOL.md's; of a knock also the reason of a drop; NULL: success */
    const char *reason; /* behind the code, or "" */
    /* a command */
    conn_id conn; /* 0: it was a knock */
    uint64_t session;
    uint16_t host_port, client_port; /* of the relays; 0: the players meet directly */
    /* a knock */
    mr_flow_id flow;
    mr_relay_id relay; /* the sender's, when it was admitted */
    const struct hook_spec *spec;
    struct hook_map tags;
    const struct hook_slot *slots;
    size_t n_slots;
};
/* ended is called inside a turn and must not call the service. */
void mr__service_observe(struct service *s,
                         void (*ended)(void *user, const struct service_outcome *o), void *user);

/* Puts a decider in, or takes it away (NULL): pending requests must be none. The same one again,
 * at any time: what it wants has changed (other policies were loaded). */
void mr__service_set_hooks(struct service *s, const struct hooks *hooks);

/* What the setting udp_host is, when it is a name or policies say what it becomes: before ports are
 * opened. A reload does not change it. */
void mr__service_set_udp_host(struct service *s, const struct mr_addr *host);

/* Opens the relay ports of the settings. Ports that cannot be bound are left out with a warning;
 * -EADDRINUSE etc. when none could. clamped: the smallest receive buffer granted when it is less
 * than asked, else 0. */
struct port_report {
    size_t asked, opened;    /* of those that were not open already */
    size_t closed, draining; /* by a reload: closed now; once their relay has ended */
    struct mr_addr first_failed;
    int first_error;
    uint32_t clamped_rcvbuf;
    char ranges[256]; /* "49152-51200/udp", as a firewall rule would name it; cut with "..." */
};
int mr__service_open_ports(struct service *s, struct port_report *report);

/* A port that is open to everybody (the config's `ports`): each new flow asks `drop`. Borrowed. */
struct open_port {
    uint16_t number; /* 0: of the kernel's choice; one of those at most */
    /* Where every flow's spec begins; a target in it admits flows on which no policy has an
     * opinion. */
    struct hook_spec spec;
    struct hook_map tags;
    const struct hook_slot *slots;
    size_t n_slots;
    const char *place; /* "file:line" of it */
};
struct open_report {
    size_t opened, closed, draining, failed; /* draining: once their last flow has ended */
    struct mr_addr first_failed;
    int first_error;
    const char *first_place;
};
/* Those and no others from now on: at a start, and with the settings of a reload. One that cannot
 * be opened is left out and said; flows that are there stay as they are. */
void mr__service_open_fronts(struct service *s, const struct open_port *list, size_t n,
                             struct open_report *report, uint64_t now_ns);
struct open_port_info {
    struct mr_addr local;
    uint32_t flows;
    bool is_leaving;
};
/* The i-th, from 0. false: there are not so many. */
bool mr__service_front(const struct service *s, size_t i, struct open_port_info *out);

/* Switches to the settings of a reload (mr__settings_adopt() was called), which outlive the service
 * or the next call; the old ones are not used any more. Limits and times hold for what is there
 * already, too. Ports that are new in udp_relay_ports are opened; those that are not listed any
 * more get no new relay, and close at once or when their relay has ended. -ENOMEM, or why none of
 * the ports could be opened while none of the old ones stays: nothing has changed. */
int mr__service_apply_settings(struct service *s, const struct settings *fresh,
                               struct port_report *report, uint64_t now_ns);

/* ---- command channel. local: what the client connected to (a relayed `connect` names it). */
conn_id mr__service_accept(struct service *s, const struct mr_addr *peer,
                           const struct mr_addr *local, uint64_t now_ns);
void mr__service_input(struct service *s, conn_id id, const void *data, size_t n, uint64_t now_ns);
/* FIN: what came is answered, then `close` is called (possibly later). */
void mr__service_eof(struct service *s, conn_id id, uint64_t now_ns);
/* It is gone already; no call about it follows. */
void mr__service_closed(struct service *s, conn_id id, enum conn_end why, uint64_t now_ns);

/* ---- registrar: one datagram. local: the address it came to. */
void mr__service_registrar(struct service *s, const struct mr_addr *from,
                           const struct mr_addr *local, const void *data, size_t n,
                           uint64_t now_ns);

/* ---- engine: every event of mr_poll(), in order. */
void mr__service_engine_event(struct service *s, const struct mr_event *ev, uint64_t now_ns);

/* ---- time: does what is due; the next moment something will be (UINT64_MAX: nothing). */
void mr__service_tick(struct service *s, uint64_t now_ns);
uint64_t mr__service_deadline(const struct service *s);

/* Stops accepting: answers for new connections are refused from now on; what is queued goes out.
 * Policies are told the end of every relay now (destroyed: shutdown), though it forwards on until
 * mr__service_destroy(), and of each session when its connection ends (left: drained). Whatever
 * still waits to be told when the service is destroyed is not. */
void mr__service_stop(struct service *s, uint64_t now_ns);

/* ---- drain (drain.h says what it is). now_ns apart, as mr__drain_begin() and mr__drain_cancel().
 */
int mr__service_drain(struct service *s, uint64_t for_ns, const char *by, uint64_t now_ns);
int mr__service_drain_cancel(struct service *s, const char *by, uint64_t now_ns);
/* A stop is asked for: true: drain_timeout is above 0 and somebody has to be waited for, so the
 * stop comes when mr__service_is_drained(). */
bool mr__service_drain_to_stop(struct service *s, uint64_t now_ns);
/* Whoever owns the loop shall stop. Changes in mr__service_tick() only. */
bool mr__service_is_drained(const struct service *s);

/* Ends all sessions (left: drained): their players are told `error session:drained`, and their
 * connections are closed. After mr__service_stop(), when what waited is answered. */
void mr__service_end_sessions(struct service *s, uint64_t now_ns);

/* ---- lookup: asks the hooks `lookup`. */
/* Does any policy define it? When not, nobody has to be asked. */
bool mr__service_wants_lookup(const struct service *s);
/* done is told the chain's answer once, from inside or later: NULL when nobody had an opinion.
 * Returns a name for it, 0 when it was told already. */
uint64_t mr__service_lookup(struct service *s, struct str host, int family, enum mr_lookup_op op,
                            void (*done)(void *arg, const struct mr_lookup_answer *a), void *arg,
                            uint64_t now_ns);
/* done will not be called. */
void mr__service_lookup_cancel(struct service *s, uint64_t id);

/* ---- figures. */
/* The whole page in the text format 0.0.4, NUL-terminated; mr__free() it. extra: a source of
 * figures of other layers (process, log, scripts), written by the same writer (metrics.h). -ENOMEM.
 */
struct metrics;
typedef void (*metrics_source)(void *user, struct metrics *m);
int mr__service_add_metrics(struct service *s, metrics_source source, void *user);
char *mr__service_metrics(struct service *s, size_t *n, uint64_t now_ns);

struct service_counts {
    size_t connections, sessions, relays;
};
void mr__service_counts(const struct service *s, struct service_counts *out);

/* NULL when ready, else one line (no LF) saying which part is not. Valid until the next call. */
const char *mr__service_not_ready(struct service *s, uint64_t now_ns);

/* All workers have answered within the last second. */
bool mr__service_is_alive(struct service *s, uint64_t now_ns);

#endif
