/* SPDX-License-Identifier: MIT */
/*
 * What the engine's tests share: an engine with ports on loopback, peers with real
 * sockets, and a collector of events. One thread. Start reading at rig_open().
 */
#ifndef MR_TESTS_ENGINE_RIG_H
#define MR_TESTS_ENGINE_RIG_H

#include "engine/moonrelay.h"

#include <stdint.h>

enum { RIG_EVENTS = 4096 };

struct rig {
    struct mr *mr;
    unsigned n;
    struct mr_event events[RIG_EVENTS]; /* all so far; datagram events are not kept */
};

struct peer {
    int fd;
    struct mr_addr addr;
};

/* The virtual clock of all rigs that use it. */
extern _Atomic uint64_t rig_now_ns;
uint64_t rig_clock(void *user);

/* An engine with `ports` ports on 127.0.0.1. */
void rig_open(struct rig *rig, const struct mr_options *opts, unsigned ports);
void rig_close(struct rig *rig);
/* Defaults with so many workers; over no-op sockets and the virtual clock. */
struct mr_options rig_options(int workers);
struct mr_options rig_virtual_options(void);

struct mr_addr rig_addr(const char *text);

/* One mr_poll(); keeps the events. */
void rig_poll(struct rig *rig);
/* Polls until everything issued is in force. */
void rig_settle(struct rig *rig);
/* Polls, giving time away, until so many events of a type have come. */
int rig_await(struct rig *rig, enum mr_event_type type, unsigned count);
unsigned rig_count(const struct rig *rig, enum mr_event_type type);
/* The nth (from 0) event of a type. */
const struct mr_event *rig_event(const struct rig *rig, enum mr_event_type type, unsigned nth);
void rig_forget(struct rig *rig);

mr_relay_id rig_relay(struct rig *rig, uint32_t port, const struct mr_addr *peer);
struct mr_stats rig_stats(struct rig *rig);
/* received == verdicts + held. */
void rig_check_conservation(struct rig *rig);

struct peer rig_peer(void);
void rig_peer_close(struct peer *p);
/* Sends to a port of the engine. */
void rig_send(struct rig *rig, const struct peer *p, uint32_t port, const void *data, size_t n);
/* Waits for a datagram (while polling the engine) and returns its size, or -1 when none
 * came in time. from_port: the UDP port it came from. */
int rig_receive(struct rig *rig, const struct peer *p, void *buf, size_t cap, uint16_t *from_port);
/* -1: nothing is there. */
int rig_try_receive(const struct peer *p, void *buf, size_t cap);
uint16_t rig_udp_port(const struct rig *rig, uint32_t port);

#endif
