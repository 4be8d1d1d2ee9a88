/* SPDX-License-Identifier: MIT */
/*
 * A hook_event that lives on: what is borrowed of the caller is copied, once a chain
 * waits or a notice must be told later. Control thread only.
 */
#ifndef MR_SCRIPT_EVENT_COPY_H
#define MR_SCRIPT_EVENT_COPY_H

#include "service/hooks.h"

struct event_copy {
    unsigned refs;
    struct hook_event ev;
};

/* Made with one reference. NULL: out of memory. */
struct event_copy *mr__event_copy(const struct hook_event *ev);
struct event_copy *mr__event_copy_ref(struct event_copy *c);
void mr__event_copy_unref(struct event_copy *c); /* accepts NULL */

#endif
