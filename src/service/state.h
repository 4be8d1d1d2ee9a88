/* SPDX-License-Identifier: MIT */
/*
 * What the service is made of, for the files of src/service only. Control thread.
 *
 *     connection --- sessions --- place (all sessions seen at one UDP address)
 *         |             |
 *       request        seat (a relay port of ours, and the relay that has it)
 *      (its command)
 *
 * Who calls whom: connection.c takes bytes apart, command.c lines; registration.c,
 * join.c carry out one command each, over as many turns as a policy needs. registrar.c
 * answers datagrams. knock.c decides about datagrams that nobody expected, target.c sends flows
 * on to servers, front.c has the ports that are open to everybody. What the
 * engine knows is asked of the engine: nothing here is a copy of its tables.
 *
 * Every entry point of service.h is a turn: mr__turn_begin(), the work, mr__turn_end(),
 * which does what became possible meanwhile (tasks, lines that waited for the engine).
 * So nothing calls a command's continuation from deep inside another one.
 */
#ifndef MR_SERVICE_STATE_H
#define MR_SERVICE_STATE_H

#include "service/blocks.h"
#include "service/drain.h"
#include "service/due.h"
#include "service/hash.h"
#include "service/list.h"
#include "service/nets.h"
#include "service/pace.h"
#include "service/service.h"
#include "service/table.h"

enum {
    MR_LINE_MAX = 16384,          /* bytes of a command line, its end not counted */
    MR_REQUEST_ID_MAX = 64,       /* bytes of `command?id` */
    MR_PENDING_MAX = 1024,        /* chains that a policy may keep waiting */
    MR_LOOKUPS_MAX = 1024,        /* that were asked, or wait until they may be */
    MR_COMMANDS_PER_TURN = 200,   /* of one connection, before others have a go */
    MR_TASKS_PER_TURN = 4096,     /* then the loop gets to its sockets again */
    MR_SCRIPT_MS_PER_TICK = 10,   /* likewise: of scripts' CPU time, the default of one hook */
    MR_ASKS_PER_TICK = 8,         /* the same for a decider that does not tell what it spends */
    MR_KNOCKS_MAX = 512,          /* at once: half of the chains are left to players */
    MR_NOTICES_MAX = 16384,       /* that wait to be told: some 10 MB */
    MR_JOIN_TRIES_MAX = 8,        /* looks at a world that changes while a policy thinks */
    MR_READY_PERIOD_MS = 500,     /* between two pings of the workers */
    MR_READY_LATE_MS = 1000,      /* a worker that takes longer is not ready */
    MR_KNOWN_SECONDS = 600,       /* an address is remembered after its last session */
    MR_KNOWN_GONE_MAX = 65536,    /* remembered at once: 6 MB, two minutes at 500 a second */
    MR_LIMIT_NOTICE_SECONDS = 10, /* between two `limit` lines of one kind */
    MR_LOWEST_PLAYER_PORT = 1024, /* below are services, victims of a forged source */
    MR_UNWELCOME_SECONDS = 600,   /* an address whose player was kicked */
    MR_LATCHES_MAX =
        16384, /* pairs remembered at once: 3 MB, ten seconds of 1,600 joins a second */
    MR_BLOCKED_QUIET_SECONDS = 10,   /* at most, for the flow of a blocked socket */
    MR_UNWELCOME_MAX = 8192,         /* at once: 1 MB */
    MR_SLOWED_MS = 100,              /* a client that commands too fast is left alone so long */
    MR_LATE_ANSWER_MS = 2000,        /* of one who has guessed too many ids */
    MR_PID_LENGTH_ANSWERED_MIN = 17, /* as long as the answer: so it amplifies nothing */
};

/* ---- commands and codes -------------------------------------------------------------------- */

enum command {
    MR_COMMAND_REGISTER_HOST,
    MR_COMMAND_CONNECT,
    MR_COMMAND_CONNECT_RELAY,
    MR_COMMAND_ECHO,
    MR_COMMAND_OTHER,
    /* not commands, but what an error may be about */
    MR_COMMAND_LINE,
    MR_COMMAND_SESSION,
    MR_COMMAND_CONNECTION,
    MR_COMMAND_COUNT,
};

/* X(constant, name on the wire), in the order in which they are checked */
#define MR_CODES(X)                           \
    X(TOO_MANY, "too-many")                   \
    X(BLOCKED, "blocked")                     \
    X(BUSY, "busy")                           \
    X(NOT_REGISTERED, "not-registered")       \
    X(REJECTED, "rejected")                   \
    X(UNKNOWN_OID, "unknown-oid")             \
    X(DRAINING, "draining")                   \
    X(CLIENT_NO_ADDRESS, "client-no-address") \
    X(HOST_NO_ADDRESS, "host-no-address")     \
    X(FULL, "full")                           \
    X(NO_PORTS, "no-ports")                   \
    X(NO_IDS, "no-ids")                       \
    X(TOO_LONG, "too-long")                   \
    X(REPLACED, "replaced")                   \
    X(KICKED, "kicked")                       \
    X(DRAINED, "drained")

enum code {
#define X(constant, name) MR_CODE_##constant,
    MR_CODES(X)
#undef X
        MR_CODE_COUNT
};

/* Why something was not done: a code and the word behind it ("" = none). */
struct refusal {
    enum code code;
    char reason[MR_SLOT_KEY_MAX + 1];
};

const char *mr__command_name(enum command c);
const char *mr__code_name(enum code c);

/* ---- small parts --------------------------------------------------------------------------- */

/* Something to do at the end of this turn or of a later one. */
struct task {
    struct list link;
    void (*run)(struct service *s, struct task *task);
};

/* A question to the decider, part of whatever asks it. */
struct pending {
    struct hook_request request; /* first: done() casts back */
    struct service *service;
    bool is_pending;
    void (*answered)(struct service *s, struct pending *p, const struct hook_answer *answer);
};

/* Tags that something carries; one block of memory. */
struct tags {
    struct hook_pair *items;
    size_t n;
};

struct slot {
    struct table_node node;
    uint32_t count;
    size_t n;
    char key[MR_SLOT_KEY_MAX];
};

/* Slots that a session or a relay holds. */
struct held_slots {
    struct slot **items;
    size_t n;
};

/* What policies agreed to give a relay. */
struct grant {
    struct hook_spec spec;
    struct tags tags;
    struct hook_slot *slots; /* keys are copies */
    size_t n_slots;
};

/* "One creation per address at a time": who makes a relay for an address has its making; others
 * wait for what comes of it. Flows to targets have one for each port that they come in at. */
struct making {
    struct table_node node;
    struct mr_addr addr;
    uint32_t entry;      /* of a flow to a target: the engine's index of its port, + 1; 0 */
    struct list waiters; /* of struct waiter */
    bool is_held;
};

struct waiter {
    struct list link; /* in making.waiters */
    struct task *task;
    bool has_refusal; /* the result it waited for, when it was a refusal */
    struct refusal refusal;
};

/* ---- players ------------------------------------------------------------------------------- */

/* All sessions whose datagrams come from one address, the latest first. */
struct place {
    struct table_node node;
    struct mr_addr addr;
    struct list sessions;
    size_t n_near; /* of those, whose TCP connections come from the same IP: they vouch for it */
};

/* Why a session ended: X(constant, word of the notice `left`) */
#define MR_SESSION_ENDS(X)  \
    X(CLOSED, "closed")     \
    X(RESET, "reset")       \
    X(TIMEOUT, "timeout")   \
    X(REPLACED, "replaced") \
    X(KICKED, "kicked")     \
    X(BLOCKED, "blocked")   \
    X(OUTPUT, "output")     \
    X(DRAINED, "drained")

enum session_end {
#define X(constant, name) MR_SESSION_##constant,
    MR_SESSION_ENDS(X)
#undef X
        MR_SESSION_END_COUNT
};

struct session {
    struct table_node by_id, by_oid, by_pid;
    struct list at_all; /* in service.all_sessions, the longest there first */
    struct list at_connection;
    /* Somebody wants it to end: it is found by nobody any more, and goes when the turn is over. */
    bool is_ending;
    bool is_registered; /* its player knows of it, so that its end is told */
    struct list ending; /* in service.ending */
    enum session_end end_why;
    char end_reason[MR_REASON_MAX + 1];
    struct list at_place;
    struct list joins; /* requests that want to join it: they end with it */
    uint64_t id;
    struct connection *connection;
    char *oid, *pid;
    size_t oid_n, pid_n;
    struct mr_addr addr;  /* as the registrar saw it; family 0: not yet */
    struct mr_addr local; /* where it reached the registrar */
    struct place *place;
    uint64_t addressed; /* order of getting an address: of two at one address the later owns */
    mr_relay_id relay;  /* its own or the one it shares; may be stale */
    struct list owned;  /* seats */
    struct tags tags, meta;
    struct held_slots slots;
    double since;
    uint32_t joins_n;
    uint64_t drain; /* number of the drain during which it registered; 0: during none */
    /* The answer to a move: due once the engine has it in force. */
    struct list moving;
    uint64_t moving_seq;
    struct mr_addr moving_to, moving_local;
};

struct join_side {
    uint64_t session;
    struct mr_addr addr;
    bool is_needed; /* it has no relay yet */
    bool is_granted;
    struct making making;
    struct grant grant;
    uint16_t port; /* the relay's, once it is there */
};

/* One command that is being carried out. */
struct request {
    bool is_active;
    enum command command;
    char id[MR_REQUEST_ID_MAX];
    size_t id_n;
    uint64_t started_ns;
    char *line; /* a copy: data, meta point into it */
    struct str oid;
    struct hook_pair meta[MR_META_WORDS_MAX];
    size_t meta_n;
    struct pending pending;
    uint64_t session; /* register-host: the one to come; joins: the caller */
    /* joins */
    uint64_t host;
    struct list at_host;
    struct join_side sides[2]; /* the host's, the client's (the same one: only the first) */
    size_t n_sides;
    size_t asked; /* the side that a policy thinks about */
    unsigned tries;
    struct task task;
    bool is_resting; /* its next question waits for the next tick */
    struct waiter waiter;
    struct list in_force; /* in service.waiting */
    uint64_t seq;
    struct list late; /* in service.late: its answer waits, since too many ids were wrong */
    uint64_t late_until_ns;
    bool is_late;
};

struct connection {
    struct table_node node;
    struct list link;
    conn_id id;
    struct mr_addr peer, local;
    struct list sessions; /* the latest first: it is the caller's identity */
    size_t n_sessions;
    bool is_paused;   /* the adapter reads nothing */
    bool is_eof;      /* nothing more comes */
    bool is_closing;  /* freed at the end of this turn */
    bool is_skipping; /* the rest of a line that is too long */
    bool is_refused;  /* gets one line and is closed */
    enum code refused_as;
    bool is_waiting; /* lines rest until the request is answered */
    struct source *source;
    uint64_t commands_full_ns; /* its pace */
    struct list slowed;        /* in service.slowed: lines rest until then */
    uint64_t slowed_until_ns;
    char *in; /* bytes not handled yet */
    size_t in_n, in_cap, in_at;
    size_t scanned;                         /* of those, how many have no end of line among them */
    uint64_t limit_told_ns[MR_LIMIT_KINDS]; /* 0: never */
    struct request request;
    struct task task; /* more lines to handle, or the last words of one that is refused */
};

/* ---- ports --------------------------------------------------------------------------------- */

enum seat_state { MR_SEAT_READY, MR_SEAT_QUARANTINED, MR_SEAT_USED };
/* X(constant, what policies and the log see) */
#define MR_SEAT_KINDS(X)  \
    X(PLAYER, "player")   \
    X(DYNAMIC, "dynamic") \
    X(TARGET, "target")

enum seat_kind {
#define X(constant, name) MR_SEAT_##constant,
    MR_SEAT_KINDS(X)
#undef X
        MR_SEAT_KIND_COUNT
};

/* Why we close a relay, as `destroyed` tells it. */
enum seat_end { MR_SEAT_END_API, MR_SEAT_END_BLOCKED };

/* A relay port and who has it. Its address is the same as long as the port is ours. */
struct seat {
    uint32_t at;     /* its place in pool.seats */
    uint32_t port;   /* the engine's index */
    uint16_t number; /* UDP */
    bool is_any;     /* of the kernel's choice */
    bool is_leaving; /* gets no new relay; closes when it is free */
    enum seat_state state;
    uint32_t ready_at; /* its place in pool.ready */
    struct list quarantine;
    uint64_t freed_ns;
    /* while USED: */
    struct list used; /* in pool.used */
    mr_relay_id relay;
    enum seat_kind kind;
    bool is_closing;   /* its end is on its way: found by nobody any more */
    bool is_announced; /* `created` was told, and `destroyed` not yet */
    enum seat_end end;
    char text[32];
    uint64_t owner;    /* session id; 0: nobody */
    struct list owned; /* in session.owned */
    struct tags tags;
    struct held_slots slots;
    double since;
    struct source *source;   /* dynamic: whom it counts for */
    mr_relay_id target;      /* dynamic: the relay it was made for */
    uint32_t target_port;    /* dynamic: where that relay is */
    uint32_t dynamics_to_me; /* dynamic relays made for the relay here */
    uint32_t entry;          /* target: the port its flow comes in at */
    struct mr_addr peer;     /* target: its client ... */
    struct mr_addr dest;     /* ... and its server */
    /* whether USED or not: */
    uint32_t flows_in; /* flows to targets that come in here */
};

#define MR_NO_PORT UINT32_MAX

struct pool {
    struct seat **seats;
    size_t n, cap;
    struct seat **by_port; /* by the engine's index; NULL: none of ours */
    size_t n_by_port;
    struct list used;    /* those with a relay, the longest there first */
    struct seat **ready; /* room for all */
    size_t n_ready, n_quarantined;
    struct list quarantine; /* the one freed longest ago first */
    size_t n_kind[MR_SEAT_KIND_COUNT];
};

/* A port that is open to everybody (config `ports`). */
struct front {
    struct list link; /* in service.fronts */
    struct table_node node;
    uint32_t port; /* the engine's index */
    uint16_t number;
    bool is_any;     /* of the kernel's choice */
    bool is_leaving; /* takes no new flow; closes with its last one */
    struct grant preset;
    uint32_t flows_in;
};

/* What one customer has here: an address in IPv4, a /64 in IPv6. */
struct source {
    struct table_node node;
    struct mr_addr net;
    uint32_t connections, dynamics;
    uint64_t answers_full_ns; /* the pace of answers to connections over the cap */
};

struct opening;

/* A flow that nobody expected, while policies think about it. */
struct knock {
    struct service *service;
    struct list link;    /* in service.knocks */
    struct list unasked; /* in service.unasked, until policies are asked */
    mr_flow_id flow;
    struct mr_addr from;
    uint32_t port;
    enum mr_verdict reason;
    uint32_t size;
    uint8_t peek[MR_PEEK_MAX];
    uint64_t since_ns;
    struct pending pending;
    struct making making;
    struct grant grant;
    struct task task;
    struct waiter waiter;
    /* on its way to a target: */
    uint64_t held_ns; /* what is held waits so long */
    host_job lookup;  /* 0: none is under way */
    /* It is no datagram's: somebody wants the flow to be there (open.c). */
    struct opening *opening;
};

/* ---- memory of addresses ------------------------------------------------------------------- */

/* An IP that has sessions, or had some. */
struct known {
    struct table_node node;
    struct list gone; /* in service.gone, the one gone longest first */
    struct mr_addr ip;
    uint32_t live, near; /* near: by their TCP connections, which nobody can forge */
    uint64_t until_ns, near_until_ns;
};

/* An address whose player was kicked and has not registered anew. */
struct unwelcome {
    struct table_node node;
    struct list link; /* in service.unwelcomes, the one marked longest ago first */
    struct mr_addr addr;
    uint64_t until_ns;
};

enum { MR_BUDGET_WAYS = 4, MR_BUDGET_SETS = 2048 };

/* What is left to a source of answers to unknown ids, or of wrong oids: a table of fixed size, so
 * that a million sources cost nothing; one that is pushed out begins with a full budget again. */
struct budget_entry {
    struct mr_addr net;
    uint64_t full_at_ns; /* the moment it is full again (GCRA); 0: the entry is free */
};

/* ---- blocks -------------------------------------------------------------------------------- */

struct block {
    struct table_node node;
    struct due_node due; /* its end */
    struct list link;    /* in blocks.all */
    struct block_what what;
    struct tags tags; /* sorted by key */
    /* Sockets that are refused for the sake of tags end with those. */
    struct block *parent;
    struct list children, sibling;
    char reason[MR_REASON_MAX + 1];
    char *by;
    size_t by_n;
};

/* The nets of one policy. */
struct block_list {
    struct list link; /* in blocks.lists */
    char *owner;
    size_t owner_n;
    char reason[MR_REASON_MAX + 1];
    struct cidr *nets;
};

struct blocks {
    struct table table;
    struct due due;  /* all of them */
    struct list all; /* the oldest first */
    struct list lists;
    uint32_t lengths4[33]; /* nets by the length of their prefix */
    uint32_t lengths6[129];
    size_t n_sockets, n_tags, n_by_hand, n_listed;
    bool is_mirror_old; /* the data plane's copy of the nets */
    bool is_mirror_failing;
    size_t mirrored; /* ranges */
    uint64_t mirrored_ns;
};

/* ---- logs and figures ---------------------------------------------------------------------- */

/* Kinds of records that a stranger can cause: each has its own limit. */
enum journal_kind {
    MR_JOURNAL_CONNECTION,
    MR_JOURNAL_SESSION,
    MR_JOURNAL_REGISTRAR,
    MR_JOURNAL_RELAY,
    MR_JOURNAL_JOIN,
    MR_JOURNAL_KNOCK,
    MR_JOURNAL_NOTICE,
    MR_JOURNAL_BLOCK,
    MR_JOURNAL_TARGET,
    MR_JOURNAL_KINDS,
};

#define MR_REGISTRAR_RESULTS(X) \
    X(OK, "ok")                 \
    X(REPEAT, "repeat")         \
    X(MOVED, "moved")           \
    X(UNKNOWN, "unknown")       \
    X(LIMITED, "limited")       \
    X(SILENT, "silent")

enum registrar_result {
#define X(constant, name) MR_REGISTRAR_##constant,
    MR_REGISTRAR_RESULTS(X)
#undef X
        MR_REGISTRAR_COUNT
};

/* Caps that held something back, as limits of relays do: X(constant, name) */
#define MR_CAPS(X)                \
    X(CONNECTIONS, "connections") \
    X(COMMANDS, "commands")       \
    X(OUTPUT, "output")           \
    X(FAILED_OIDS, "failed-oids") \
    X(DYNAMIC, "dynamic")

enum cap {
#define X(constant, name) MR_CAP_##constant,
    MR_CAPS(X)
#undef X
        MR_CAP_COUNT
};

enum { MR_COMMAND_BUCKETS = 12 };
extern const double mr__command_bounds[MR_COMMAND_BUCKETS];

struct figures {
    struct {
        uint64_t counts[MR_COMMAND_BUCKETS + 1];
        double sum;
    } durations[MR_COMMAND_OTHER + 1];
    uint64_t errors[MR_COMMAND_COUNT][MR_CODE_COUNT];
    uint64_t registrar[MR_REGISTRAR_COUNT];
    uint64_t caps[MR_CAP_COUNT];
    uint64_t expired;
    uint64_t notices_lost;
};

struct metrics_source_entry {
    metrics_source source;
    void *user;
};

struct drain {
    bool is_on;
    bool is_final; /* it ends in a stop, whatever anybody says */
    bool is_over;
    uint64_t number; /* how many there were: of the last one */
    uint64_t until_ns;
};

struct service {
    const struct settings *settings;
    struct mr *mr;
    struct log *log;
    struct service_out out;
    double (*wall_s)(void *user);
    const struct hooks *hooks;
    void (*ended)(void *user, const struct service_outcome *o); /* or NULL */
    void *ended_user;
    uint64_t now_ns;
    unsigned depth;
    bool is_stopping;
    struct drain drain;
    struct table_key key;

    struct mr_addr public_address; /* family 0: none */
    struct mr_addr udp_host;
    struct nets caps_exempt, allow_peers, deny_peers;
    bool has_warned_private; /* that players reach us at a private address */

    struct table connections, sessions, oids, pids, places, slots, makings, sources, knowns;
    struct table unwelcome;
    struct blocks blocks;
    struct list all_connections, dead_connections;
    struct list all_sessions, ending; /* sessions */
    size_t n_connections, n_addressed;
    uint64_t last_connection, last_session, last_event, last_addressed;
    bool oids_used_up, pids_used_up; /* until a session ends */

    struct list ready, later;    /* tasks of this turn, of the next one */
    struct list waiting;         /* requests in the order of their numbers */
    struct list moving;          /* sessions, likewise */
    struct list slowed, late;    /* connections and requests that rest, by when that is over */
    struct list knocks, unasked; /* knocks */
    size_t n_knocks;
    struct task knock_task; /* asks about one of `unasked`, then lets others have a go */
    struct list lookups;    /* that are not answered */
    size_t n_lookups;
    uint64_t last_lookup;
    size_t n_pending;
    unsigned asked;        /* policies were, since the last tick */
    uint64_t spent_before; /* what scripts had used of the CPU at the last tick, ns */
    bool is_decider_first; /* this tick: before our own tasks */

    struct list notices; /* that wait to be told */
    size_t n_notices;
    struct task notice_task; /* tells one, then lets others have a go */
    bool is_over;            /* nobody is told anything any more */

    struct list gone;
    size_t n_gone;
    struct table latch_sides; /* that are open */
    struct list latches;
    size_t n_latches;
    uint64_t latch_order;
    struct list unwelcomes;
    struct budget_entry *budgets, *wrong_oids;
    struct stores *stores;

    struct pool pool;
    struct list fronts;
    struct list openings;
    uint64_t last_opening;
    struct table front_index;
    struct figures figures;
    struct log_limiter journal[MR_JOURNAL_KINDS];
    struct metrics_source_entry *sources_of_metrics;
    size_t n_sources_of_metrics;

    uint64_t ping_at_ns, ping_seq, next_ping_ns, alive_ns; /* alive: when the last ping that is in
                                                              force was sent */
    bool has_pinged, is_alive;
    char not_ready[96];

    unsigned char entropy[256];
    size_t entropy_n;
};

/* ---- turns (service.c) --------------------------------------------------------------------- */

void mr__turn_begin(struct service *s, uint64_t now_ns);
void mr__turn_end(struct service *s);
/* Runs it before this turn ends (ready) or in a later turn. Idempotent. */
void mr__task_ready(struct service *s, struct task *task);
void mr__task_later(struct service *s, struct task *task);
/* Scripts have had what they may have of this tick: what would ask them waits for the next one. */
bool mr__turn_is_spent(const struct service *s);
uint64_t mr__service_hash(const struct service *s, const void *data, size_t n);
double mr__wall(const struct service *s);

/* ---- asking (ask.c) ------------------------------------------------------------------------ */

bool mr__ask_is_wanted(const struct service *s, enum hook hook);
bool mr__ask_is_busy(const struct service *s, enum hook hook);
/* answered() is called at once or later; p may be gone when this returns. */
void mr__ask(struct service *s, struct pending *p, struct hook_event *ev,
             void (*answered)(struct service *s, struct pending *p,
                              const struct hook_answer *answer));
void mr__ask_cancel(struct service *s, struct pending *p);
/* true: it is a refusal, and why. */
bool mr__answer_refuses(const struct hook_answer *answer, struct refusal *why);

/* ---- notices (notice.c) -------------------------------------------------------------------- */

/* Tells it, when somebody wants to know, once the work at hand is done: what it points to is
 * copied. */
void mr__notice_add(struct service *s, struct hook_event *ev);
void mr__notice_fill(struct service *s, struct hook_event *ev);
void mr__notices_init(struct service *s);
void mr__notices_destroy(struct service *s);

/* ---- connections (connection.c) ------------------------------------------------------------ */

struct connection *mr__connection_find(const struct service *s, conn_id id);
void mr__connection_send(struct service *s, struct connection *c, const char *text, size_t n);
/* printf of one line, its LF added. */
__attribute__((format(printf, 3, 4))) void
mr__connection_say(struct service *s, struct connection *c, const char *format, ...);
/* The command is answered: the next one's turn. */
void mr__connection_resume(struct service *s, struct connection *c);
void mr__connection_close(struct service *s, struct connection *c);
/* Those that were slowed down for long enough go on. */
void mr__connections_go_on(struct service *s);
/* Frees those that were closed in this turn. */
void mr__connections_bury(struct service *s);
void mr__connections_destroy(struct service *s);

/* ---- commands (command.c) ------------------------------------------------------------------ */

void mr__command_run(struct service *s, struct connection *c, const char *line, size_t n);
void mr__command_succeed(struct service *s, struct connection *c);
void mr__command_fail(struct service *s, struct connection *c, enum code code, const char *reason);
/* An error about no command of his: `error line:too-long`. Silent with errors = off. */
void mr__command_complain(struct service *s, struct connection *c, enum command about,
                          enum code code);
/* Counted as the code, told as the word. */
void mr__command_complain_as(struct service *s, struct connection *c, enum command about,
                             enum code code, const char *word);
/* Gives the answers that were late for long enough. */
void mr__commands_answer_late(struct service *s);
/* Its player is gone: forgets it without an answer. */
void mr__command_abandon(struct service *s, struct connection *c);
struct hook_map mr__request_meta(const struct request *r);

void mr__registration_begin(struct service *s, struct connection *c);
void mr__join_begin(struct service *s, struct connection *c);
/* Its host left while the request was under way. */
void mr__join_host_left(struct service *s, struct request *r);
void mr__join_abandon(struct service *s, struct connection *c);
/* Answers the joins whose changes are in force. */
void mr__join_in_force(struct service *s, uint64_t seq);
struct connection *mr__request_connection(struct request *r);

/* ---- sessions (session.c) ------------------------------------------------------------------ */

struct session *mr__session_find(const struct service *s, uint64_t id);
struct session *mr__session_by_oid(const struct service *s, const char *oid, size_t n);
struct session *mr__session_by_pid(const struct service *s, const void *pid, size_t n);
/* Somebody whose TCP connection comes from the same IP was seen at the address. */
bool mr__session_vouches(const struct service *s, const struct mr_addr *addr);
/* Its address is at the IP of its own connection. */
bool mr__session_is_near(const struct session *p);
/* The latest one seen at the address, or NULL. */
struct session *mr__session_at(const struct service *s, const struct mr_addr *addr);
/* Whose a relay there is that p makes or leaves: the latest of those near, else the latest whose
 * connection comes from where p's does; NULL. */
struct session *mr__session_owner_at(const struct service *s, const struct mr_addr *addr,
                                     const struct session *p);
struct session *mr__session_of(const struct connection *c);
/* Takes oid and pid (heap). NULL: out of memory, they are freed. */
struct session *mr__session_create(struct service *s, struct connection *c, uint64_t id, char *oid,
                                   size_t oid_n, char *pid, size_t pid_n);
void mr__session_end(struct service *s, struct session *p, enum session_end why);
/* Ends it as seen by its player: `error session:<reason>`, and his connection is closed when it has
 * no other session. */
void mr__session_expel(struct service *s, struct session *p, enum session_end why,
                       const char *reason);
/* The same when the turn is over, with its relay unless another session shares it (why: KICKED or
 * BLOCKED). Safe inside a hook: from now on it holds no slots and is found by nobody, but stays in
 * memory. false: it is ending already. reason: clean. */
bool mr__session_end_soon(struct service *s, struct session *p, enum session_end why,
                          const char *reason);
void mr__sessions_end_due(struct service *s);
/* We stop. */
void mr__sessions_end_all(struct service *s);
const char *mr__session_end_name(enum session_end why);
/* -ENOMEM: nothing changed. */
int mr__session_set_address(struct service *s, struct session *p, const struct mr_addr *addr,
                            const struct mr_addr *local);
void mr__session_view(const struct session *p, struct hook_session *out);

/* ---- ids (draw.c) -------------------------------------------------------------------------- */

/* Below n, n > 0. A negative errno of the random source. */
int mr__draw_below(struct service *s, uint64_t n, uint64_t *out);
/* A new id that nobody has, in *id (heap). -ENOSPC: none is left, -ENOMEM; of the random source. */
int mr__draw_oid(struct service *s, char **id, size_t *n);
int mr__draw_pid(struct service *s, char **id, size_t *n);

enum { MR_WORD_COUNT = 512, MR_WORD_BYTES_MAX = 8 };
extern const char mr__words[MR_WORD_COUNT][MR_WORD_BYTES_MAX + 1];

/* ---- tags, slots, grants ------------------------------------------------------------------- */

/* Adds copies; of two values of one key the later wins. -ENOMEM: unchanged. */
int mr__tags_merge(struct tags *t, const struct hook_map *add);
void mr__tags_deinit(struct tags *t);
struct hook_map mr__tags_map(const struct tags *t);
/* All of them, with these values. */
bool mr__tags_have(const struct tags *t, struct hook_map wanted);
/* 1 to 64 of [a-z0-9._-]: what else is there becomes `-`, nothing becomes preset. */
void mr__reason_clean(char out[MR_REASON_MAX + 1], struct str reason, const char *preset);

/* Takes all or none. leaving: slots that will be given back if this succeeds (may be NULL).
 * -ENOSPC: *full is the key that is full; -ENOMEM. */
int mr__slots_take(struct service *s, const struct hook_slot *slots, size_t n,
                   const struct held_slots *leaving, struct held_slots *held, struct str *full);
void mr__slots_release(struct service *s, struct held_slots *held);

/* Merges an answer: the smaller numbers, tags and slots united. -ENOMEM. */
int mr__grant_merge(struct grant *g, const struct hook_answer *answer);
/* Begins an empty one with a copy of another. -ENOMEM. */
int mr__grant_preset(struct grant *g, const struct grant *from);
void mr__grant_deinit(struct grant *g);
/* "full" and its key as a word of the wire. */
void mr__refusal_full(struct refusal *why, struct str key);

/* ---- one creation per address (making.c) --------------------------------------------------- */

enum { MR_NO_ENTRY = 0 }; /* of a making */
/* true: it is ours until mr__making_end(). false: somebody else's, w waits for it. entry: as in
 * struct making. */
bool mr__making_is_free(const struct service *s, const struct mr_addr *addr, uint32_t entry);
void mr__making_begin(struct service *s, struct making *m, const struct mr_addr *addr,
                      uint32_t entry);
void mr__making_wait(struct service *s, const struct mr_addr *addr, uint32_t entry,
                     struct waiter *w);
/* refusal: what it came to, when the waiters shall have the same; else NULL. */
void mr__making_end(struct service *s, struct making *m, const struct refusal *refusal);

/* ---- ports and relays (pool.c, seat.c) ----------------------------------------------------- */

int mr__pool_init(struct pool *pool);
void mr__pool_deinit(struct service *s);
/* Opens what is new in the list and lets go of what is not in it. As mr__service_open_ports(). */
int mr__pool_adjust(struct service *s, const struct port_list *list, struct port_report *report);
struct seat *mr__pool_seat(const struct service *s, uint32_t port);
size_t mr__pool_free(const struct service *s);
/* NULL: none is left. The seat is USED, without a relay. */
struct seat *mr__pool_take(struct service *s);
/* The seat may be gone afterwards. */
void mr__pool_give_back(struct service *s, struct seat *seat, bool was_in_use);
/* Ends the quarantine of those that are due. */
void mr__pool_release_due(struct service *s);

struct seat_request {
    enum seat_kind kind;
    const struct mr_addr *peer, *local;
    struct grant *grant; /* its tags go over */
    uint64_t owner;
    struct seat *target;        /* dynamic; NULL: for nobody's sake */
    uint32_t entry;             /* target: the port its flow comes in at ... */
    const struct mr_addr *dest; /* ... and where it goes */
};
/* Takes slots and a port and creates the relay. 0; -ENOSPC with why filled; -ENOMEM. */
int mr__seat_open(struct service *s, const struct seat_request *req, struct seat **out,
                  struct refusal *why);
/* It is there to stay: logs it and tells `created`. reason: connect, dynamic. */
void mr__seat_announce(struct service *s, struct seat *seat, const char *reason);
/* Closes what was just opened and never told to anybody. */
void mr__seat_undo(struct service *s, struct seat *seat);
const char *mr__seat_kind_name(enum seat_kind kind);
/* Safe inside a hook: its end comes as an event of the engine. */
void mr__seat_close(struct service *s, struct seat *seat, enum seat_end why);
/* The seat of a live relay of that session, or of another one at its address; NULL. */
struct seat *mr__seat_of_session(const struct service *s, const struct session *p);
struct seat *mr__seat_of_relay(const struct service *s, mr_relay_id id);
/* The player's from now on, if nobody registered later has it. */
void mr__seat_adopt(struct service *s, struct seat *seat, struct session *p);
/* Whoever shows a PID from a player's address shares his relay; but who owns it takes it along
 * when he moves, and the source of a PID may be forged, as that of a connection may not.
 * owner: NULL for nobody. */
bool mr__seat_may_own(const struct session *p, const struct mr_addr *at,
                      const struct session *owner);
/* p: NULL for nobody. */
void mr__seat_own(struct service *s, struct seat *seat, struct session *p);
void mr__seat_owner_left(struct service *s, struct session *p);
void mr__seat_view(const struct service *s, const struct seat *seat, struct hook_relay *out);
void mr__seat_ended(struct service *s, const struct mr_event *ev);
/* We stop: tells the end of all relays, which forward on for the moment. */
void mr__seats_tell_shutdown(struct service *s);
void mr__seat_limited(struct service *s, const struct mr_event *ev);

/* ---- ports that are open to everybody (front.c) -------------------------------------------- */

void mr__fronts_init(struct service *s);
void mr__fronts_destroy(struct service *s);
/* By the engine's index; NULL: it is none. Also one that is leaving. */
struct front *mr__front_at(const struct service *s, uint32_t port);
/* A flow to a target that comes in at that port is there, or has ended (the front may be gone
 * afterwards). */
void mr__entry_count(struct service *s, uint32_t port);
void mr__entry_uncount(struct service *s, uint32_t port);
/* Whether the data plane has to ask about what it does not expect. */
void mr__misses_watch(struct service *s);

/* ---- flows to targets (target.c) ----------------------------------------------------------- */

/* k is admitted, and its grant names a target: makes the flow, or ends k. */
void mr__target_make(struct service *s, struct knock *k);
void mr__target_cancel(struct service *s, struct knock *k);
/* Ends the flows that come in at that port (of ours). */
void mr__targets_end_at(struct service *s, uint32_t port);
/* Ends those of a client. */
void mr__targets_end_of(struct service *s, const struct mr_addr *client, enum seat_end why);

/* ---- relays that a script wants (open.c) ---------------------------------------------------- */

/* Without a target; as mr__target_make(). */
void mr__opening_make(struct service *s, struct knock *k);
/* What came of it; the opening is gone then, its knock not yet. seat NULL: it was there. */
void mr__opening_succeed(struct service *s, struct opening *o, const struct seat *seat);
void mr__opening_drop(struct service *s, struct opening *o, enum mr_verdict as);
void mr__opening_refuse(struct opening *o, const char *code, const char *reason);
void mr__openings_destroy(struct service *s);

/* ---- symmetric NATs (latch.c) -------------------------------------------------------------- */

/* They were connected: for a while either may turn out to speak from another port of his IP. */
void mr__latch_remember(struct service *s, const struct seat *a, const struct seat *b);
/* The relay of the player who this stranger is, latched by now; 0: nobody that we know of. */
mr_relay_id mr__latch_try(struct service *s, const struct mr_addr *from, uint32_t port);
void mr__latches_expire(struct service *s);
void mr__latches_destroy(struct service *s);

/* ---- strangers (knock.c, dynamic.c) -------------------------------------------------------- */

/* Ends of a knock that is not refused by policies, and of one that is. */
void mr__knock_drop(struct service *s, struct knock *k, enum mr_verdict as);
void mr__knock_refuse(struct service *s, struct knock *k, enum mr_verdict as,
                      const struct refusal *why);
void mr__knock_discard_blocked(struct service *s, struct knock *k, uint64_t until_ns);
/* sender: NULL when it is known already by a link. */
void mr__knock_release(struct service *s, struct knock *k, const struct seat *sender);
/* As an answer to `create` that says no ends it. */
void mr__knock_refuse_created(struct service *s, struct knock *k, const struct hook_answer *answer,
                              const struct refusal *why);
/* Asks `create` for the flow's sender at an entry (MR_NO_ENTRY: any), now or when its turn comes:
 * then the flow is made anew. */
void mr__knock_create(struct service *s, struct knock *k, uint32_t entry,
                      void (*answered)(struct service *s, struct pending *p,
                                       const struct hook_answer *answer));
/* Opens a seat for the flow; NULL: it was refused, and the knock is done with. */
struct seat *mr__knock_seat(struct service *s, struct knock *k, const struct seat_request *req);
/* As only a script's is refused (open.c). */
void mr__knock_refuse_as(struct service *s, struct knock *k, const char *code, const char *reason);
/* A copy of it, in service.knocks. NULL: no memory, or too many are there. */
struct knock *mr__knock_add(struct service *s, const struct knock *found);
/* One that is admitted: makes what its grant says. */
void mr__knock_make(struct service *s, struct knock *k);
/* Without a word to anybody. */
void mr__knock_forget(struct service *s, struct knock *k);
void mr__knock_log_admitted(struct service *s, const struct knock *k, const struct seat *seat);

void mr__knock_missed(struct service *s, const struct mr_event *ev);
void mr__knock_target_ended(struct service *s, uint32_t port);
void mr__knocks_init(struct service *s);
void mr__knocks_destroy(struct service *s);

/* true: a dynamic relay for that sender at that seat would break a cap. target NULL: a flow to a
 * target. */
bool mr__dynamic_is_over(struct service *s, const struct mr_addr *from, const struct seat *target);
/* -ENOMEM */
int mr__dynamic_count(struct service *s, struct seat *seat, const struct mr_addr *from,
                      struct seat *target);
void mr__dynamic_uncount(struct service *s, struct seat *seat);

/* ---- lookups (lookup.c) -------------------------------------------------------------------- */

void mr__lookups_init(struct service *s);
/* Nobody is told any more. */
void mr__lookups_destroy(struct service *s);

/* ---- known addresses (known.c), registrar budget (budget.c) -------------------------------- */

/* -ENOMEM */
int mr__known_enter(struct service *s, const struct mr_addr *addr);
void mr__known_leave(struct service *s, const struct mr_addr *addr);
/* The same of where a session's connection comes from. */
int mr__known_enter_near(struct service *s, const struct mr_addr *addr);
void mr__known_leave_near(struct service *s, const struct mr_addr *addr);
bool mr__known_has(const struct service *s, const struct mr_addr *addr);
/* Known by more than what the registrar was sent, whose source may be a victim's. */
bool mr__known_vouches(const struct service *s, const struct mr_addr *addr);
void mr__known_expire(struct service *s);
void mr__known_destroy(struct service *s);

/* ---- addresses that are not welcome (unwelcome.c) ------------------------------------------ */

void mr__unwelcome_add(struct service *s, const struct mr_addr *addr);
/* Its player has registered anew. */
void mr__unwelcome_remove(struct service *s, const struct mr_addr *addr);
bool mr__unwelcome_has(const struct service *s, const struct mr_addr *addr);
void mr__unwelcome_destroy(struct service *s);

/* ---- blocks (blocks.c, mirror.c) ----------------------------------------------------------- */

/* As TCP peers and datagrams' senders are looked at: by nets, by nets and sockets. */
bool mr__blocks_have_net(const struct service *s, const struct mr_addr *a);
/* When its last block ends (UINT64_MAX: a list's, for ever); 0: it is not blocked. */
uint64_t mr__blocks_until(const struct service *s, const struct mr_addr *a);
/* All tags of a block are among them. */
bool mr__blocks_have_tags(const struct service *s, struct hook_map tags);
size_t mr__blocks_count(const struct service *s); /* by hand, and nets of lists */
void mr__blocks_init(struct service *s);
void mr__blocks_destroy(struct service *s);
/* Ends what is due and gives the data plane what changed: when a turn is over. */
void mr__blocks_run(struct service *s);
uint64_t mr__blocks_deadline(const struct service *s);
void mr__mirror_run(struct service *s);
uint64_t mr__mirror_deadline(const struct service *s);

int mr__budget_init(struct budget_entry **table);
/* One of what the pace leaves to the source; false: there is nothing left. */
bool mr__budget_take(struct service *s, struct budget_entry *table, const struct mr_addr *from,
                     struct pace pace);

/* ---- caps per address (source.c) ----------------------------------------------------------- */

/* No such cap applies to it. */
bool mr__source_is_exempt(const struct service *s, const struct mr_addr *from);
struct source *mr__source_find(const struct service *s, const struct mr_addr *from);
/* The caller counts what it has; mr__source_put() when that may be nothing. NULL: out of memory. */
struct source *mr__source_get(struct service *s, const struct mr_addr *from);
void mr__source_put(struct service *s, struct source *source);
/* It has as many connections as it may have, and `from`, one of its addresses, is not exempt. */
bool mr__source_is_full(const struct service *s, const struct source *source,
                        const struct mr_addr *from);
/* One more of its connections may be told why it is refused. */
bool mr__source_may_answer(struct service *s, struct source *source);

/* Answers the moves that are in force. */
void mr__registrar_in_force(struct service *s, uint64_t seq);

/* ---- which addresses are served (peer.c) --------------------------------------------------- */

/* FORWARD: it may be a peer; OWN_ADDRESS, ADDRESS_CLASS: why not. local: where it reached us;
 * family 0 when that cannot be known. */
enum mr_verdict mr__peer_judge(const struct service *s, const struct mr_addr *from,
                               const struct mr_addr *local);
/* Where a datagram from there reached a port of the engine's; family 0: that cannot be known, or
 * does not matter; unspecified: at none of our addresses, as far as the routes tell. */
struct mr_addr mr__peer_local(const struct service *s, const struct mr_addr *from, uint32_t port);

/* ---- drain (drain.c) ----------------------------------------------------------------------- */

/* Tells a player of the drain that runs, if any. */
void mr__drain_tell(struct service *s, struct connection *c);
/* It registers now. */
void mr__drain_mark(const struct service *s, struct session *p);
/* Nobody may join that host. */
bool mr__drain_keeps_from(const struct service *s, const struct session *host);
/* Looks whether it is over. */
void mr__drain_run(struct service *s);
uint64_t mr__drain_deadline(const struct service *s);

/* ---- logs (journal.c) ---------------------------------------------------------------------- */

/* The address as log_addresses wants it. Valid as long as buf. */
const char *mr__journal_address(const struct service *s, char buf[MR_ADDR_TEXT_MAX],
                                const struct mr_addr *a);
/* Whether a record of that kind may be written now; counts it. */
bool mr__journal_may(struct service *s, enum journal_kind kind, enum log_level level);

#define MR_JOURNAL(s, kind, level, area, msg, ...)                 \
    do {                                                           \
        if (mr__journal_may((s), (kind), (level)))                 \
            MR_LOG((s)->log, (level), (area), (msg), __VA_ARGS__); \
    } while (0)

#endif
