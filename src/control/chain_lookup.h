/* SPDX-License-Identifier: MIT */
/*
 * The policies' hook `lookup` as a custom lookup (lookup.h): carries questions to the
 * service and its answers back. Control thread.
 */
#ifndef MR_CONTROL_CHAIN_LOOKUP_H
#define MR_CONTROL_CHAIN_LOOKUP_H

#include "control/lookup.h"
#include "service/service.h"

struct chain_lookup;

/* From now on the lookup asks the service, as often as one of its policies wants to be asked when a
 * question starts. -ENOMEM. */
int mr__chain_lookup_create(struct chain_lookup **out, struct mr_lookup *lookup,
                            struct service *service);

/* Before the service ends: what was asked there goes to the default. Accepts NULL. */
void mr__chain_lookup_close(struct chain_lookup *c);

/* After the lookup was destroyed, which may still have questions for it. Accepts NULL. */
void mr__chain_lookup_destroy(struct chain_lookup *c);

#endif
