/* SPDX-License-Identifier: MIT */
/*
 * What the process is allowed and what it uses: open files, processor time, memory.
 * Control thread. Start reading at mr__process_plan_files().
 */
#ifndef MR_CONTROL_PROCESS_H
#define MR_CONTROL_PROCESS_H

#include <stddef.h>
#include <stdint.h>

struct metrics;

enum {
    MR_FILES_SPARE = 64,       /* loops, log, HTTP, files of policies */
    MR_CONNECTIONS_LEAST = 64, /* with fewer nobody would call it a server */
};

/* Raises the soft limit of open files to the hard one; the limit in force now. */
uint64_t mr__process_raise_files(void);

/* How many connections fit into `limit` open files beside `ports` sockets: `connections`, or
 * what is left, or -EMFILE when that is fewer than MR_CONNECTIONS_LEAST. */
int mr__process_plan_files(uint64_t limit, uint64_t ports, uint32_t connections, uint32_t *granted);

/* The kernel's range of ephemeral ports; -ENOENT when it cannot be read. */
int mr__process_ephemeral_ports(uint16_t *first, uint16_t *last);

/* A metrics_source (service/service.h); user is unused. process_*, as Prometheus' clients name
 * them. */
void mr__process_metrics(void *user, struct metrics *m);

#endif
