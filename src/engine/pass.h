/* SPDX-License-Identifier: MIT */
/*
 * What a worker does with a batch: decide, hold what nobody expected, send, count, tell
 * control. And what commands do to held flows. Worker threads.
 * Start reading at mr__pass_run().
 */
#ifndef MR_ENGINE_PASS_H
#define MR_ENGINE_PASS_H

#include "engine/worker.h"

/* Deals with everything in w->batch and empties it. */
void mr__pass_run(struct worker *w);

/* A datagram from the embedder. The batch must be empty. */
void mr__pass_inject(struct worker *w, const struct command *c);

/* The flow may have a way now: looked at by mr__pass_replay(). */
void mr__pass_mark_flow(struct worker *w, uint32_t port, const struct mr_addr *from);
/* The same, and what still has none is dropped. Stale ids do nothing. */
void mr__pass_release_flow(struct worker *w, mr_flow_id id);
void mr__pass_discard_flow(struct worker *w, const struct command *c);
/* Other bounds for what it holds. */
void mr__pass_bound_flow(struct worker *w, const struct command *c);
/* The port is gone: so is what was held for it. */
void mr__pass_forget_port(struct worker *w, uint32_t port);

/* Sends on what is held and has a way by now. After commands, before receiving. */
void mr__pass_replay(struct worker *w);
/* Gives up what was held too long. */
void mr__pass_expire(struct worker *w);

#endif
