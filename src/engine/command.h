/* SPDX-License-Identifier: MIT */
/*
 * What control tells the workers. Commands are numbered from 1 without a gap and reach
 * every worker in the same order; a worker that they do not concern counts them only.
 * Made by the control thread, read by workers.
 *
 * To add one, add a type here and its case to apply() in worker.c.
 */
#ifndef MR_ENGINE_COMMAND_H
#define MR_ENGINE_COMMAND_H

#include "core/address.h"
#include "core/link.h"
#include "core/nets.h"

#include <stdint.h>

enum command_type {
    COMMAND_PING,        /* nothing; its number being in force tells something */
    COMMAND_ADD,         /* u.add: a relay at port */
    COMMAND_MOVE,        /* u.addr: port's relay has another address */
    COMMAND_REMOVE,      /* port's relay is gone */
    COMMAND_LINK,        /* u.link */
    COMMAND_UNLINK,      /* port, u.addr */
    COMMAND_PORT_OPEN,   /* port, u.flags: its entry of the socket table is valid from now on */
    COMMAND_PORT_CLOSE,  /* port: ... and is not from now on */
    COMMAND_OWN_ADD,     /* u.addr */
    COMMAND_OWN_REMOVE,  /* u.addr */
    COMMAND_RELEASE,     /* u.answer.flow */
    COMMAND_DISCARD,     /* u.answer */
    COMMAND_MISS_EVENTS, /* u.flags: 1 wanted, 0 not */
    COMMAND_INJECT,      /* port, u.inject */
    COMMAND_BLOCKED,     /* u.nets */
    COMMAND_HOLD,        /* u.hold */
    COMMAND_FLOW_HOLD,   /* u.hold.flow: bounds of one flow */
};

struct command {
    uint64_t seq;
    uint32_t type; /* enum command_type */
    uint32_t port;
    union {
        struct {
            struct mr_addr addr;
            uint32_t generation, flags, egress;
        } add;
        struct mr_addr addr;
        struct link link;
        struct {
            uint64_t flow, quiet_ns;
            uint32_t as, later; /* enum mr_verdict */
        } answer;
        struct {
            struct mr_addr from;
            const uint8_t *data; /* control's; valid until this command is in force */
            uint32_t size;
        } inject;
        const struct mr_nets *nets; /* control's; valid until another one is in force */
        struct {
            uint64_t flow, time_ns;
            uint32_t datagrams, bytes, events_per_s;
        } hold;
        uint32_t flags;
    } u;
};

#endif
