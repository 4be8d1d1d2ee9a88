/* SPDX-License-Identifier: MIT */
/*
 * The control side of an engine: what the calls of moonrelay.h share. Everything here
 * belongs to the control thread; workers see the shared arrays that worker.h names.
 *
 *   engine.c  life, options      port.c    ports and own addresses
 *   control.c commands out       relay.c   relays, limits
 *   poll.c    mr_poll()          link.c    pairs, links, flows, datagrams
 *   expiry.c  ends               stats.c   figures
 *   blocked.c nets that are refused
 *
 * Start reading at struct mr.
 */
#ifndef MR_ENGINE_ENGINE_H
#define MR_ENGINE_ENGINE_H

#include "core/pair.h"
#include "engine/moonrelay.h"
#include "engine/worker.h"

#include <stdint.h>

enum {
    OWN_DECLARED_MAX = 64, /* mr_own_address() */
    OWN_LOCAL_MAX = 256,   /* addresses of local interfaces */
    DROPS_PER_CALL = 4096, /* getsockopt() of so many sockets: some milliseconds */
    ENDS_PER_POLL = 1000,  /* so that a mass expiry never holds the caller's loop */
};

#define NO_PORT UINT32_MAX

/* MR_LIMIT_DURATION_SOON comes so long before life_ns ends. */
#define SOON_NS UINT64_C(300000000000)

enum relay_state {
    RELAY_NONE,
    RELAY_LIVE,
    RELAY_REMOVING, /* gone for every caller; its REMOVE is not in force or not told yet */
};

/* What control knows of the relay at a port beyond core's tables. */
struct record {
    mr_relay_id id; /* also while REMOVING */
    uint64_t user;
    uint64_t created_ns, ended_ns;
    uint64_t life_start_ns; /* creation or restart */
    uint64_t when_ns;       /* heap key */
    uint64_t add_seq;       /* from here on a worker's counts are this relay's */
    uint64_t remove_seq;    /* REMOVING */
    struct mr_relay_limits limits;
    struct mr_addr local;
    struct mr_addr peer; /* REMOVING: its last */
    uint32_t heap_at;    /* position + 1; 0: not in the heap */
    uint32_t next;       /* of the queue of those REMOVING */
    uint8_t state;       /* enum relay_state */
    uint8_t end_reason;  /* enum mr_end_reason */
    uint8_t flags;       /* enum mr_relay_flags */
    uint8_t is_soon_told;
    uint8_t has_proof; /* its struct proof is its own, whether it counts now or not */
};

enum port_state { PORT_FREE, PORT_OPEN, PORT_CLOSING };

struct port {
    struct socket_info info;
    uint64_t close_seq; /* CLOSING: the socket closes when it is in force */
    uint64_t kernel_drops;
    uint32_t next; /* of the free list or the CLOSING queue */
    uint8_t state; /* enum port_state */
    uint8_t flags; /* enum mr_port_flags */
};

/* A queue through struct record.next or struct port.next. */
struct queue {
    uint32_t first, last;
};

/* Commands that a ring could not take yet. The log keeps what the slowest worker lacks. */
struct command_log {
    struct command *at; /* [capacity], by seq & (capacity - 1) */
    uint64_t capacity;  /* power of two */
    uint64_t first;     /* oldest seq kept; last + 1 when empty */
    uint64_t last;      /* newest seq issued */
    uint64_t sent[WORKERS_MAX];
};

/* A datagram on its way to mr__pass_inject(). */
struct injected {
    struct injected *next;
    uint64_t seq;
    uint8_t data[];
};

/* A copy of mr_set_blocked()'s nets: the one in use, or one that workers may still look at. */
struct blocked {
    struct blocked *next;
    uint64_t seq; /* replaced: it can be freed once this is in force */
    struct mr_nets nets;
    struct mr_range4 *v4;
    struct mr_range6 *v6;
};

/* A flow that was told and not answered; by worker and index. */
struct told_flow {
    uint64_t since_ns, expires_ns;
    uint32_t generation; /* 0: none */
};

struct mr {
    struct mr_options options;
    const struct transport *transport;
    struct tables tables;
    struct limit_global global;
    uint32_t worker_count; /* struct workers; options.workers may be 0 */
    uint32_t reserved_pairs;
    int is_inline; /* workers = 0 */
    struct worker *workers;

    /* One mapping, laid out by init_memory(). Workers read sockets and use shared. */
    void *memory;
    size_t memory_bytes;
    struct relay_shared *shared;
    struct relay_limits *relay_limits;
    struct tx_socket *sockets;
    struct port *ports;
    struct record *records;
    uint32_t *heap;          /* ports by records[].when_ns */
    uint32_t *port_by_udp;   /* [65536]: index + 1 of the port whose relays bear the bare number */
    struct told_flow *flows; /* [workers * flows_per_worker] */
    uint32_t flows_per_worker;

    struct command_log log;
    struct wakeup asleep; /* workers post */
    struct poller poller; /* they wake it; mr_fd() of a threaded engine */
    uint64_t now_ns;      /* of the running mr_poll() */
    uint64_t told_in_force;
    uint64_t barrier;      /* number of the last one asked for ... */
    uint64_t barrier_ns;   /* ... and when */
    uint64_t observed_ns;  /* every worker has looked at all sockets since */
    uint64_t closed_drops; /* kernel drops of ports that are closed */
    uint64_t soon_hits;
    uint64_t addresses_read_ns;
    struct injected *first_injected, **last_injected;
    struct blocked *blocked; /* in use; NULL: nobody is blocked */
    struct blocked *first_replaced, **last_replaced;
    uint32_t tray_bytes[WORKERS_MAX]; /* handed to the caller by the last mr_poll() */
    uint32_t heap_count;
    uint32_t open_ports, free_port, unused_port;
    uint32_t next_drops; /* the port whose kernel drops were asked for last */
    uint32_t ended_now;  /* in this mr_poll() */
    int is_gathering;    /* what is issued goes into the rings together, later */
    struct queue removing, closing;
    uint32_t next_worker; /* whose events come first */
    int must_poll;        /* mr_timeout_ms() is 0 */
    int wants_misses;
    uint32_t n_declared, n_local, n_wildcards;
    struct mr_addr declared[OWN_DECLARED_MAX];
    struct mr_addr public_ip; /* family 0: none */
    struct mr_addr local[OWN_LOCAL_MAX];
};

static inline uint64_t mr__engine_now(const struct mr *mr)
{
    return mr->options.clock_ns(mr->options.clock_user);
}

/* ---- control.c: commands out */

/* The log has room for one command from then on, so that without memory for a longer one the
 * workers can still make room. -ENOMEM. */
int mr__control_init(struct mr *mr);
/* A command to fill; it is issued by mr__control_send(). */
struct command *mr__control_command(struct mr *mr, enum command_type type, uint32_t port);
void mr__control_send(struct mr *mr);
/* From the first on mr__control_send() wakes no worker, until the second. */
void mr__control_gather(struct mr *mr);
void mr__control_gathered(struct mr *mr);
/* Puts what waits into the rings. */
void mr__control_flush(struct mr *mr);
uint64_t mr__control_in_force(const struct mr *mr);
/* Asks every worker for a look at all sockets, unless one is under way. */
void mr__control_ask_barrier(struct mr *mr, uint64_t now_ns);
/* 1 while one is under way. When it is over, mr->observed_ns is when it was asked for. */
int mr__control_await_barrier(struct mr *mr);
/* For struct tables: turns changes of links into commands. */
void mr__control_on_link(void *user, enum mr__link_op op, const struct link *link);

/* ---- queues of indexes */
#define QUEUE_PUSH(q, array, i)            \
    do {                                   \
        (array)[i].next = NO_PORT;         \
        if ((q)->first == NO_PORT)         \
            (q)->first = (i);              \
        else                               \
            (array)[(q)->last].next = (i); \
        (q)->last = (i);                   \
    } while (0)
#define QUEUE_POP(q, array)                    \
    do {                                       \
        (q)->first = (array)[(q)->first].next; \
    } while (0)

/* ---- relay.c */

/* The port of a live relay, or NO_PORT. */
uint32_t mr__relay_port(const struct mr *mr, mr_relay_id id);
/* Ends a live relay: it is REMOVING from now on. */
void mr__relay_end(struct mr *mr, uint32_t port, enum mr_end_reason reason);
void mr__relay_counts(const struct mr *mr, uint32_t port, struct mr_relay_counts *out);
/* Its idle time by its own limits or the engine's; 0: never idle. */
uint64_t mr__relay_idle_ns(const struct mr *mr, const struct record *record);

/* ---- expiry.c */

/* (Re)computes when the relay has to be looked at. */
void mr__expiry_arm(struct mr *mr, uint32_t port);
void mr__expiry_disarm(struct mr *mr, uint32_t port);
/* Ends what is due and stores DURATION_SOON events; returns how many those were. */
unsigned mr__expiry_run(struct mr *mr, struct mr_event *events, unsigned max);
/* The moment at which it has to run again; UINT64_MAX: not by itself. */
uint64_t mr__expiry_next_ns(struct mr *mr);

/* ---- blocked.c */

/* Frees what workers can no longer look at. */
void mr__blocked_run(struct mr *mr, uint64_t in_force);
void mr__blocked_destroy(struct mr *mr);

/* ---- port.c */

/* Closes sockets that nobody can use any more. */
void mr__port_run(struct mr *mr, uint64_t in_force);
/* Reads the interfaces' addresses again when that is due. */
void mr__port_refresh_addresses(struct mr *mr);

#endif
