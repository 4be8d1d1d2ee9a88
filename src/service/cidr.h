/* SPDX-License-Identifier: MIT */
/*
 * A list of networks with values and the longest match, as policies and blocks use it:
 * parsed and looked up in C, so that 100,000 nets cost a script nothing. Immutable once
 * made, shared by counting references. Control thread.
 *
 * A net is "10.0.0.0/8", "2001:db8::/32" or a single address; bits set behind the prefix
 * are an error, since they show that somebody meant another net. Of a net named twice the
 * later value counts. Start reading at mr__cidr_parse().
 */
#ifndef MR_SERVICE_CIDR_H
#define MR_SERVICE_CIDR_H

#include "core/address.h"
#include "core/nets.h"
#include "service/hooks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cidr;
struct cidr_builder;

enum { MR_CIDR_NETS_MAX = 1000000, MR_CIDR_WHY_MAX = 160 };

/* Reads one net as it stands: its base with whatever bits are set, and the length of its prefix.
 * false: it is none. A v4-mapped one is the IPv4 net that it maps. */
bool mr__cidr_net(struct str text, struct mr_addr *base, unsigned *bits);
/* Clears the bits behind the prefix; were any set? */
bool mr__cidr_trim(struct mr_addr *base, unsigned bits);

/* Reads text, one net a line: "NET [VALUE]", `#` starts a comment, empty lines and CR are fine; the
 * value is what follows the blanks, without those at its end. 0; -EINVAL with why, e.g. "line 7:
 * not a network: 10.0.0.0/33" or "line 9: 10.0.0.1/8 has bits behind its prefix (10.0.0.0/8?)";
 * -E2BIG with why; -ENOMEM. */
int mr__cidr_parse(struct cidr **out, const char *text, size_t n, char why[MR_CIDR_WHY_MAX]);

/* The same from single nets. begin: NULL when out of memory. add: errors as above without the line.
 * Values are numbered in the order in which they were added, whatever they are. */
struct cidr_builder *mr__cidr_begin(void);
int mr__cidr_add(struct cidr_builder *b, struct str net, char why[MR_CIDR_WHY_MAX]);
int mr__cidr_finish(struct cidr_builder *b, struct cidr **out); /* frees b in any case */
void mr__cidr_cancel(struct cidr_builder *b);                   /* accepts NULL */

struct cidr *mr__cidr_ref(struct cidr *c);
void mr__cidr_unref(struct cidr *c); /* accepts NULL */

/* The number of the net with the longest match, from 0; MR_NETS_NONE. */
uint32_t mr__cidr_find(const struct cidr *c, const struct mr_addr *a);
/* Its value in the text; "" when it has none or was added singly. */
struct str mr__cidr_value(const struct cidr *c, uint32_t number);
/* How many nets were named (one named twice counts once). */
size_t mr__cidr_count(const struct cidr *c);
/* Bytes of memory. */
size_t mr__cidr_bytes(const struct cidr *c);
/* For the data plane and for unions. Valid as long as c. */
const struct mr_nets *mr__cidr_ranges(const struct cidr *c);

#endif
