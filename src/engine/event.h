/* SPDX-License-Identifier: MIT */
/*
 * What a worker tells control. Records of a ring that may be full: whoever makes one
 * says what is lost then. Made by workers, read by the control thread.
 */
#ifndef MR_ENGINE_EVENT_H
#define MR_ENGINE_EVENT_H

#include "core/address.h"
#include "engine/moonrelay.h"

#include <stdint.h>

enum worker_event_type {
    WORKER_MISS,      /* u.miss */
    WORKER_LIMIT,     /* relay, u.limit */
    WORKER_EXHAUSTED, /* relay has used its own max_bytes: control ends it */
    WORKER_DATAGRAM,  /* relay (manual), u.datagram */
    WORKER_SPOKE,     /* relay's own peer used a fresh link, u.spoke; told until there is room */
};

struct worker_event {
    uint32_t type; /* enum worker_event_type */
    uint32_t port;
    mr_relay_id relay;
    union {
        struct {
            mr_flow_id flow;
            struct mr_addr from;
            uint64_t since_ns, expires_ns;
            uint32_t reason; /* enum mr_verdict */
            uint32_t size;
            uint8_t peek[MR_PEEK_MAX];
        } miss;
        struct {
            uint32_t kind; /* enum mr_limit_kind */
        } limit;
        struct {
            mr_relay_id at; /* to whose port */
        } spoke;
        struct {
            struct mr_addr from;
            const uint8_t *data; /* in the worker's tray */
            uint32_t size;
            uint32_t tray_bytes; /* given back by mr__tray_release() */
        } datagram;
    } u;
};

#endif
