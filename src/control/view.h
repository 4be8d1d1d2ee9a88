/* SPDX-License-Identifier: MIT */
/*
 * Sessions, relays and blocks as JSON for the control socket, a page at a time, so that
 * ten thousand of them keep nobody waiting. Control thread.
 *
 * A page is {"<name>": [...], "next": <cursor or null>}; the cursor of one page is the
 * `after` of the next. What comes and goes between two pages may be missing.
 *
 * What players said of themselves (meta) is left out: it holds their tickets.
 */
#ifndef MR_CONTROL_VIEW_H
#define MR_CONTROL_VIEW_H

#include "service/service.h"

#include <jansson.h>
#include <stddef.h>

enum { MR_VIEW_PAGE = 500 }; /* at most, and when nothing is said */

/* limit: 1 to MR_VIEW_PAGE. after: "" for the first page. NULL: out of memory. */
json_t *mr__view_sessions(const struct service *s, size_t limit, struct str after);
json_t *mr__view_relays(const struct service *s, size_t limit, struct str after);
json_t *mr__view_blocks(const struct service *s, size_t limit, struct str after);

/* Any bytes as text: what is not UTF-8 becomes '?'. NULL: out of memory. */
json_t *mr__view_text(struct str s);

#endif
