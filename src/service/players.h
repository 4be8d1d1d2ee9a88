/* SPDX-License-Identifier: MIT */
/*
 * Sessions and relays as policies and the control socket see them, and what they may do
 * to them. Control thread.
 *
 * Everything here may be called from inside a hook: what ends a session or relay is done
 * when the current turn of the service is over, so that nothing vanishes under a command
 * that is being carried out. Views are borrowed and valid during the visit only. A visit
 * must not call the service; it may leave by an error of Lua, since nothing is held.
 */
#ifndef MR_SERVICE_PLAYERS_H
#define MR_SERVICE_PLAYERS_H

#include "service/hooks.h"

#include <stdbool.h>
#include <stdint.h>

struct service;
struct stores;

/* Those that have all of the tags (none: everybody), the longest there first. visit returns false
 * to stop. */
void mr__players_sessions(const struct service *s, struct hook_map tags,
                          bool (*visit)(void *user, const struct hook_session *v), void *user);
/* By id ("17") or, when that is none, by oid. */
bool mr__players_session(const struct service *s, struct str id_or_oid, struct hook_session *out);

void mr__players_relays(const struct service *s, struct hook_map tags,
                        bool (*visit)(void *user, const struct hook_relay *v), void *user);
/* By its text, "51200.17". */
bool mr__players_relay(const struct service *s, struct str text, struct hook_relay *out);

/* Ends a session: `error session:<reason>`, the connection is closed when it has no other one, its
 * relay ends (`api`) unless another session shares it, and what its socket keeps sending gets no
 * new relay before it registers anew. left(kicked) follows. -ENOENT. reason is cleaned. */
int mr__players_kick(struct service *s, uint64_t session, struct str reason);
/* Ends a relay (destroyed: `api`). -ENOENT: there is none of that id now. */
int mr__players_close(struct service *s, struct str relay, struct str reason);
/* Sends `notice <word>`: 1 to 128 bytes of 0x21-0x7e. -EINVAL, -ENOENT. Silent with errors = off.
 */
int mr__players_notify(struct service *s, uint64_t session, struct str word);

/* A relay that a script wants to be there. With a target: a flow of the peer that comes in at the
 * open port of that number; what `ports` says of it is merged in. Without: a relay at a port of the
 * pool for that address, and a pair with another where one is named (its text); one that the
 * address has already is taken as it is. */
struct open_spec {
    struct mr_addr peer;
    uint16_t port;
    struct hook_spec spec;
    struct hook_map tags;
    const struct hook_slot *slots;
    size_t n_slots;
    struct str pair;
};
struct open_answer {
    const char *code;   /* NULL: it is there. Else PROTOCOL.md's, "not-found", or what is wrong with
                           an   address: "own-address", "address-class" */
    const char *reason; /* behind the code, or "" */
    const struct hook_relay *relay;
};
/* Asks `create` (reason `script`). done is told once, later; borrowed. NULL: the service ends, and
 * may not be called any more. 0: there is no memory, or too many wait, and done will not be called.
 */
uint64_t mr__players_open(struct service *s, const struct open_spec *spec,
                          void (*done)(void *arg, const struct open_answer *a), void *arg);
/* done will not be called, and nothing more be made. */
void mr__players_open_cancel(struct service *s, uint64_t id);

/* What policies keep (service/store.h). */
struct stores *mr__service_stores(struct service *s);

#endif
