/* SPDX-License-Identifier: MIT */
/*
 * The UDP endpoints of policies: what script_host.udp_* (service/host.h) is, over udp.h.
 * Each call is a job that can be cancelled; what is refused at once is told as everything
 * else. How many endpoints there are, and what waits in each, is bounded, since scripts
 * open them. Control thread. Start reading at start() in host_udp.c.
 */
#ifndef MR_CONTROL_HOST_UDP_H
#define MR_CONTROL_HOST_UDP_H

#include "control/udp.h"
#include "service/host.h"

struct host_udps;

/* -ENOMEM. lookup outlives it. */
int mr__host_udp_create(struct host_udps **out, uv_loop_t *loop, struct mr_lookup *lookup);
/* Closes what is open; nobody is told. The loop frees it. Accepts NULL. */
void mr__host_udp_destroy(struct host_udps *h);

/* -EMFILE: there are 128 already. */
int mr__host_udp_open(struct host_udps *h, const struct host_udp_options *opts,
                      struct host_udp **out);
/* As those of script_host; ids of jobs begin at 1. */
uint64_t mr__host_udp_bind(struct host_udp *u, struct str host, uint16_t port, host_udp_done done,
                           void *arg);
uint64_t mr__host_udp_connect(struct host_udp *u, struct str host, uint16_t port,
                              host_udp_done done, void *arg);
uint64_t mr__host_udp_send(struct host_udp *u, struct str data, struct str host, uint16_t port,
                           host_udp_done done, void *arg);
void mr__host_udp_flags(struct host_udp *u, unsigned flags);
void mr__host_udp_cancel(struct host_udps *h, uint64_t job);
int mr__host_udp_address(struct host_udp *u, struct mr_addr *out);
int mr__host_udp_answer(struct host_udp *u, uint64_t ticket, const struct mr_lookup_answer *a);
void mr__host_udp_close(struct host_udp *u);

#endif
