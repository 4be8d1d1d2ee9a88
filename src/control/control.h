/* SPDX-License-Identifier: MIT */
/*
 * The adapters' common ground: one libuv loop that carries the command channel, the
 * registrar, HTTP and the engine's events to the relay service, and gives the service
 * time, randomness and a way out.
 *
 *      tcp.c registrar.c http.c api.c  engine (mr_fd)        threads, signals
 *          \      |         |      /                          |
 *           +---- control.c (loop, clock) <--- mr__control_signal()
 *                     |  ^   +-- host.c: what policies ask of the world: lookup.c fetch.c file.c
 *      mr__service_*()|  | struct service_out
 *                  service
 *
 * Control thread, except mr__control_signal(). Start reading at mr__control_step().
 */
#ifndef MR_CONTROL_CONTROL_H
#define MR_CONTROL_CONTROL_H

#include "base/log.h"
#include "control/api.h"
#include "control/lookup.h"
#include "core/address.h"
#include "engine/moonrelay.h"
#include "service/host.h"
#include "service/service.h"
#include "service/settings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct control;

struct control_options {
    const struct settings_values *settings; /* read by create only */
    struct log *log;                        /* outlives it */
    struct mr *mr;                          /* outlives it */
    /* NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID of the environment (supervisor.h), or NULL;
     * outlive it */
    const char *notify_socket, *watchdog_us, *watchdog_pid;
    const char *roots; /* PEM file of whom TLS trusts; NULL: the system's; copied */
    void *user;
    void (*on_hangup)(void *user);
    void (*on_change)(void *user); /* of a file that mr__control_watch() named */
};

/* The loop, the engine's adapter and the way out for policies; nothing is open yet. */
int mr__control_create(struct control **out, const struct control_options *opts);

/* From now on the loop carries the engine's events and the time to the service. */
int mr__control_attach(struct control *c, struct service *service);

/* What policies ask of the world, on this loop. Ends with the control. */
struct script_host mr__control_host(struct control *c);

/* The loop's lookup: what listeners, targets and policies use. Ends with the control. */
struct mr_lookup *mr__control_lookup(const struct control *c);

/* Replaces the files whose changes on_change is told; see watch.h for its errors. */
int mr__control_watch(struct control *c, const char *const *paths, size_t n);

/* Closes the listeners: from now on the service is called no more, and may be destroyed; then the
 * policies, whose requests need the loop until then. Accepts NULL. */
void mr__control_close(struct control *c);
/* Closes what is open, whatever state it is in, and frees it. Accepts NULL. */
void mr__control_destroy(struct control *c);

/* What a service made for this control is given. */
struct service_out mr__control_out(struct control *c);
double mr__control_wall_s(void *user);
uint64_t mr__control_now_ns(const struct control *c);

/* Where to listen; port 0 is the kernel's choice. */
struct control_endpoints {
    struct mr_addr command, registrar, http;
};

/* Binds all three and stores what they are bound to. On failure *failed names the setting of the
 * port
 * ("socket_port", ...) and nothing is open. */
int mr__control_bind(struct control *c, struct control_endpoints *endpoints, const char **failed);

/* Makes the control socket at path (api.h), once a service is attached. Negative errno of
 * mr__api_open(). */
int mr__control_open_api(struct control *c, const char *path, const struct api_deeds *deeds);

/* Lets them in, once a service is attached. */
int mr__control_start(struct control *c);

/* What whoever supervises the process is told (supervisor.h): it serves, or serves again; a reload
 * begins. Its stop is told by itself. */
enum control_news { CONTROL_READY, CONTROL_RELOADING };
void mr__control_tell(struct control *c, enum control_news news);

/* ---- the loop */

enum control_wait { CONTROL_NO_WAIT, CONTROL_WAIT };

/* One turn: does what is due, with CONTROL_WAIT after sleeping until something is. */
void mr__control_step(struct control *c, enum control_wait wait);
int mr__control_fd(const struct control *c);
int mr__control_timeout_ms(struct control *c);

/* Any thread, and signal handlers. A stop ends in some seconds at most, after the games of
 * drain_timeout; a second one at once. A drain is one of the preset time (service/drain.h). */
enum control_signal { CONTROL_STOP, CONTROL_HANGUP, CONTROL_DRAIN, CONTROL_SIGNALS };
void mr__control_signal(struct control *c, enum control_signal signal);
bool mr__control_is_stopped(const struct control *c);

/* A metrics_source (service/service.h); user is the control. */
void mr__control_metrics(void *user, struct metrics *m);

#endif
