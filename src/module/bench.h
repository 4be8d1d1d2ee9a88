/* SPDX-License-Identifier: MIT */
/*
 * A whole relay for a policy's tests: the daemon's engine without sockets, its service
 * and its policies, on a clock that stands still until it is moved. Players and strangers
 * are played by the caller. No Lua of the host's here; one thread.
 *
 *   bench.c      life, time, log           player.c    connections and the registrar
 *   stranger.c   datagrams at relay ports  loading.c   settings, config and policies
 *   outside.c    HTTP and files, faked     lookup.c    names, faked
 *   happening.c  what it all came to, for Lua
 *
 * Start reading at mr__bench_create(), mr__bench_settle(). Everything that is told in a
 * turn of the service is queued (happening.h) and looked at when the turn is over.
 */
#ifndef MR_MODULE_BENCH_H
#define MR_MODULE_BENCH_H

#include "engine/moonrelay.h"
#include "module/happening.h"
#include "script/policies.h"
#include "service/lookup_tally.h"
#include "service/service.h"
#include "service/settings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A player's TCP connection. */
struct wire {
    conn_id id;
    char *in, *out; /* not read yet by the service; sent but no whole line yet */
    size_t in_n, out_n;
    bool is_paused, is_closed, is_eof;
};

/* A flow that was asked about. It is remembered, so that it can be asked about again at once. */
struct stranger {
    struct stranger *next;
    struct mr_addr from;
    uint32_t port; /* the engine's index */
    enum mr_verdict reason;
    mr_flow_id flow; /* the last one of them, also when it is over */
    enum { STRANGER_REST, STRANGER_ASKED, STRANGER_ADMITTED, STRANGER_REFUSED } state;
    mr_relay_id pair[2];         /* they were a pair until he was asked about; 0: they were none */
    bool is_partner_fresh;       /* in that pair: he had not spoken yet, ... */
    struct mr_addr partner_seen; /* ... and was latched to this; family 0: he was not */
    char *data; /* of a muted flow: put in once it is admitted; sizes before the bytes */
    size_t data_n;
};

/* Something that policies asked of the world outside. */
struct errand {
    struct errand *next;
    host_job job;
    size_t max_bytes;
    void (*http_done)(void *arg, const struct host_http_response *r);
    void (*file_done)(void *arg, const struct host_file *f);
    void *arg;
};

/* A command of a policy that has not ended. */
struct call {
    struct call *next;
    struct bench *bench;
    uint64_t id;
};

struct bench_files {
    void *user;
    /* The text of a file that a config names, or s = NULL. Valid until the next call. */
    struct str (*find)(void *user, struct str path);
};

struct bench {
    struct settings *settings;
    struct mr *mr;
    uint32_t max_ports;
    struct service *service;
    struct policies *policies;
    struct config *config;
    struct log log;
    struct happenings happenings;
    bool is_drained; /* a drain is over: everybody was sent away */
    double wall_start_s;
    uint64_t now_ns, random;
    unsigned news; /* what somebody has to look at, since mr__bench_step() began */

    struct wire *wires; /* by id */
    size_t n_wires;
    bool is_input_waiting; /* of a connection that the service reads nothing from now */

    struct stranger *strangers;
    struct stranger *knocking; /* whose datagram is being put in */

    struct errand *errands;
    struct question *questions; /* about addresses of names, the oldest first */
    struct lookup_tally lookups;
    host_job last_job;

    bool is_loading;
    struct config *next_config; /* of the load that is under way, as are: */
    struct settings *next_settings;
    struct policies_load load;
    struct call *calls;
    struct hook_pair *overrides; /* new{settings}; copies */
    size_t n_overrides;
};

struct bench_options {
    double now_s;
    uint64_t seed;
};

/* No relay runs yet: it starts with the first mr__bench_load(). -ENOMEM. */
int mr__bench_create(struct bench **out, const struct bench_options *opts);
void mr__bench_destroy(struct bench *b); /* accepts NULL */

/* A setting that counts more than the config file's. *why on -EINVAL. Before the first load. */
int mr__bench_set(struct bench *b, const char *key, const char *value, size_t n,
                  struct script_error *why);

bool mr__bench_is_running(const struct bench *b);
/* Ends the relay and all that are on it; the next load starts another one. */
void mr__bench_stop(struct bench *b);

/* Lets everything happen that is due now. -ELOOP: it does not come to an end. */
int mr__bench_settle(struct bench *b);
/* Moves the clock towards until_ns, from one due moment to the next, and stops early when a policy
 * asked something of the world outside or a load has ended. 1: it is then. 0: not yet. */
int mr__bench_step(struct bench *b, uint64_t until_ns);
double mr__bench_wall_s(void *user); /* of the struct bench */

/* ---- loading.c */
/* HAPPENED_LOADED follows, at once or later. text: of a config, path names it; NULL: the file. */
int mr__bench_load(struct bench *b, const char *path, const char *text, size_t n,
                   const struct bench_files *files, struct script_error *why);
/* HAPPENED_CALLED with that id follows. */
int mr__bench_call(struct bench *b, uint64_t id, struct str policy, struct str verb,
                   const struct str *args, size_t n);
void mr__bench_calls_deinit(struct bench *b);
void mr__bench_overrides_deinit(struct bench *b);

/* ---- player.c */
/* 0: out of memory. It may be closed at once. */
conn_id mr__bench_accept(struct bench *b, const struct mr_addr *peer);
/* -ENOENT: there is no such connection any more. */
int mr__bench_input(struct bench *b, conn_id id, const char *data, size_t n);
int mr__bench_leave(struct bench *b, conn_id id, enum conn_end why);
void mr__bench_registrar(struct bench *b, const struct mr_addr *from, const char *data, size_t n);
void mr__bench_feed(struct bench *b); /* what paused connections kept back */
struct service_out mr__bench_out(struct bench *b);
void mr__bench_players_deinit(struct bench *b);

/* ---- stranger.c */
struct bench_knock {
    mr_flow_id flow;         /* what HAPPENED_KNOCK will name; 0: nobody is asked */
    enum mr_verdict verdict; /* of the first datagram when nobody is asked */
    uint32_t overflow;       /* datagrams that found no room */
};
/* A flow's datagrams, in order. -ENOENT: there is no such port; -EMSGSIZE, -ENOMEM. */
int mr__bench_knock(struct bench *b, const struct mr_addr *from, uint16_t port,
                    const struct str *data, size_t n, struct bench_knock *out);
/* An event of the engine on its way to the service. */
void mr__bench_look(struct bench *b, struct mr_event *ev);
void mr__bench_ended(void *user, const struct service_outcome *o);
/* What waits for the end of a turn. */
void mr__bench_after(struct bench *b);
void mr__bench_strangers_deinit(struct bench *b);

/* ---- outside.c */
struct script_host mr__bench_host(struct bench *b);
/* -ENOENT: nobody waits for it any more. */
int mr__bench_answer_http(struct bench *b, host_job job, const struct host_http_response *r);
int mr__bench_answer_file(struct bench *b, host_job job, const struct host_file *f);
void mr__bench_outside_deinit(struct bench *b);

/* ---- lookup.c */
/* As in struct script_host and struct service_out; user: the struct bench. */
host_job mr__bench_lookup(void *user, struct str host, int family, enum mr_lookup_op op,
                          unsigned flags, void (*done)(void *arg, const struct mr_lookup_answer *a),
                          void *arg);
void mr__bench_lookup_cancel(void *user, host_job job);
/* The test's own: HAPPENED_LOOKED_UP with that id follows. 0: out of memory. */
host_job mr__bench_ask(struct bench *b, struct str host, int family, enum mr_lookup_op op);
/* Takes what is due one step further; when something will be (UINT64_MAX: nothing). */
void mr__bench_lookups(struct bench *b);
uint64_t mr__bench_lookups_due(const struct bench *b);
/* -ENOENT: nobody waits for it any more. */
int mr__bench_answer_lookup(struct bench *b, host_job job, const struct mr_lookup_answer *a);
void mr__bench_lookups_deinit(struct bench *b);

#endif
