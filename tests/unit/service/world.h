/* SPDX-License-Identifier: MIT */
/*
 * A whole relay service in a test: the real engine without sockets, in the test's thread,
 * on a clock that stands still until it is moved; what goes out is kept as text. One
 * thread. Start reading at world_open(), world_join(), world_say().
 */
#ifndef MR_TESTS_WORLD_H
#define MR_TESTS_WORLD_H

#include "base/alloc.h"
#include "engine/moonrelay.h"
#include "service/hooks.h"
#include "service/service.h"
#include "service/settings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WORLD_CONNS = 5100, WORLD_PENDING = 2048, WORLD_LOOKUPS = 256 };

/* What a connection was sent and what became of it. */
struct wire {
    conn_id id;
    char *text;
    size_t n, cap, read;
    bool is_closed, is_paused;
};

/* An answer as a table of values; see world_answer_with(). */
struct canned {
    struct hook_answer answer;
    bool is_kept_waiting; /* answered by world_answer_pending() */
    bool is_wanted;
    unsigned asked, told;
};

struct world_lookup {
    host_job job;
    char host[MR_LOOKUP_HOST_MAX + 1];
    int family;
    enum mr_lookup_op op;
    void (*done)(void *arg, const struct mr_lookup_answer *a);
    void *arg;
};

struct world {
    struct settings *settings;
    struct mr *mr;
    struct service *service;
    struct log log;
    struct hooks hooks;
    uint64_t now_ns;
    struct wire wires[WORLD_CONNS];
    size_t n_wires;
    char reply[64]; /* the registrar's last one */
    struct mr_addr reply_to;
    unsigned replies;
    uint64_t random;
    struct canned canned[MR_HOOK_COUNT];
    struct hook_request *pending[WORLD_PENDING];
    enum hook pending_hook[WORLD_PENDING];
    size_t n_pending;
    unsigned cancelled;
    /* Called for each question and notice, before it is answered: what a policy does in its hook */
    void (*inside)(struct world *w, enum hook hook);
    void (*on_cancel)(struct world *w); /* after each that is cancelled: whom it was waiting for */
    uint64_t spends_ns; /* CPU time that each question and notice takes; see world_spend() */
    uint64_t spent_ns;
    unsigned ran; /* questions, notices and ticks of the decider with something due */
    uint64_t decider_due_ns;
    /* the last event of each hook, as text: what a test wants to see of it */
    char seen[MR_HOOK_COUNT][512];
    struct world_lookup lookups[WORLD_LOOKUPS]; /* under way */
    size_t n_lookups;
    unsigned looked_up;    /* so many times */
    const char *name_is;   /* what every name stands for; NULL: none is found */
    bool are_lookups_slow; /* they wait for world_answer_lookups() */
    char *log_text;
    size_t log_n;
    struct port_report report;
    struct open_report fronts;
    long blocks_before;
};

/* settings: "key=value" strings, ended by NULL; may be NULL. Ports default to 0+15. */
struct world *world_open(const char *const *settings);
/* The same with real sockets, where io is MR_IO_KERNEL. */
struct world *world_open_io(const char *const *settings, enum mr_io io);
/* Reads the settings anew, as a reload does: instead of those of world_open() these. Returns what
 * mr__service_apply_settings() did; kept: the keys that need a restart, each with a space. */
int world_reload(struct world *w, const char *const *settings, char kept[256]);
/* Checks that nothing is left behind. */
void world_close(struct world *w);

/* Polls the engine and ticks the service until nothing is due. */
void world_settle(struct world *w);
void world_advance(struct world *w, uint64_t ms);

struct mr_addr world_addr(const char *text);

/* A connection from "10.0.0.1:5000". Returns its index. */
size_t world_connect(struct world *w, const char *peer);
/* Sends text (with its LF) and settles. */
void world_say(struct world *w, size_t conn, const char *text);
void world_send(struct world *w, size_t conn, const void *data, size_t n);
/* The next line that the connection was sent, or "" when there is none. Valid until the next. */
const char *world_line(struct world *w, size_t conn);
size_t world_lines_left(const struct world *w, size_t conn);

/* A registrar datagram; returns the reply or "". */
const char *world_registrar(struct world *w, const char *from, const void *data, size_t n);

struct player {
    size_t conn;
    char oid[300], pid[300];
    char addr[64];
};
/* Connects, registers, and is seen at the registrar when udp is not NULL. */
struct player world_join(struct world *w, const char *tcp, const char *udp);
struct player world_register(struct world *w, size_t conn, const char *words);
const char *world_see(struct world *w, const struct player *p, const char *udp);

/* connect-relay of a to b; the ports that both were told. false: a was not told one. */
bool world_relay(struct world *w, const struct player *a, const struct player *b, unsigned *a_got,
                 unsigned *b_got);

/* The engine's index of a UDP port number; UINT32_MAX: none. */
uint32_t world_port(const struct world *w, unsigned number);
/* What a datagram from there to that UDP port comes to; *to: where it goes, *from_port: which UDP
 * port it leaves from. */
enum mr_verdict world_decide(struct world *w, const char *from, unsigned number, char *to,
                             unsigned *from_port);
/* Injects a datagram and settles. */
void world_inject(struct world *w, const char *from, unsigned number, size_t size);
uint64_t world_verdicts(struct world *w, enum mr_verdict v);
unsigned world_relays(struct world *w);

/* ---- hooks: every hook answers `no opinion` at once until told otherwise */
struct hook_answer *world_answer(struct world *w, enum hook hook, enum hook_outcome outcome);
void world_refuse(struct world *w, enum hook hook, const char *reason);
void world_keep_waiting(struct world *w, enum hook hook, bool is_kept_waiting);
/* Answers everything that waits with the hook's canned answer, in order; then settles. */
void world_answer_pending(struct world *w);
/* Only the i-th. */
void world_answer_one(struct world *w, size_t i);

/* From now on the decider tells what it spends, and spends so much for each question and notice. */
void world_spend(struct world *w, uint64_t ns);

/* Answers the lookups that are under way, and settles. A literal is itself. */
void world_answer_lookups(struct world *w);

/* Opens these ports to everybody, and no others, as a config's `ports` does. */
void world_open_fronts(struct world *w, const struct open_port *list, size_t n);

/* A sample of the metrics page, e.g. "moonrelay_ports{state=\"free\"}"; -1: not there. */
double world_metric(struct world *w, const char *name);

#endif
