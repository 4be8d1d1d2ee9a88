/* SPDX-License-Identifier: MIT */
/*
 * What a start tells a person: what it listens on as a firewall rule would name it, the
 * policies, and each warning worth having, with what to do about it. One thread.
 */
#ifndef MR_SERVER_BANNER_H
#define MR_SERVER_BANNER_H

#include "base/log.h"
#include "control/control.h"
#include "script/policies.h"
#include "service/service.h"
#include "service/settings.h"

#include <stdint.h>

struct banner {
    struct log *log;
    int warning_fd; /* warnings go there as well; -1: nowhere */
    const struct settings_values *settings;
};

void mr__banner_warn(const struct banner *b, const char *text);

/* Warnings about the machine: the kernel's range of ephemeral ports, addresses, buffers. */
void mr__banner_warn_ephemeral(const struct banner *b);
void mr__banner_warn_addresses(const struct banner *b, const struct mr_addr *udp_host);
void mr__banner_warn_ports(const struct banner *b, const struct port_report *report);

/* "49152-51200,51300" of every open relay port, for mr__free(); NULL: out of memory. */
char *mr__banner_relay_ranges(struct mr *mr);

/* "0.0.0.0:7777,..." of the ports that are open to everybody, or ""; likewise. */
char *mr__banner_open_ports(const struct service *service);

/* "command=0.0.0.0:8890 registrar=... http=... relay=... open=...", for mr__free(); the last one
 * only when there are any. */
char *mr__banner_endpoints(const struct control_endpoints *at, const char *ranges,
                           const char *open);

/* One line a listener, then the policies. */
void mr__banner_listening(const struct banner *b, const struct control_endpoints *at,
                          const char *ranges);
void mr__banner_open(const struct banner *b, const struct service *service);
void mr__banner_policies(const struct banner *b, const struct policies *policies);

/* The line `ready ...`: at every level but silent, since who waits for it must not depend on one.
 */
void mr__banner_ready(const struct banner *b, const struct control_endpoints *at,
                      const char *ranges, const char *open, const char *endpoints);

#endif
