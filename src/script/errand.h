/* SPDX-License-Identifier: MIT */
/*
 * What was started outside (struct script_host) for one waiting hook. It ends when the
 * host is done or the hook is forgotten, whichever comes first. Control thread.
 *
 *     struct errand *e = mr__errand_begin(L, host, "relay.read");    // all checks were before
 *     return mr__errand_go(L, e, host->read(..., on_file, e));
 *
 *     static void on_file(void *arg, const struct host_file *f)
 *     {
 *         mr__wait_end(mr__errand_end(arg), push_file, f);
 *     }
 */
#ifndef MR_SCRIPT_ERRAND_H
#define MR_SCRIPT_ERRAND_H

#include "script/wait.h"
#include "service/host.h"

#include <lua.h>

struct errand;

/* Begins to wait; nothing may raise from here to mr__errand_go(). Raises. */
struct errand *mr__errand_begin(lua_State *L, const struct script_host *host, const char *function);
/* To be returned by the C function. job 0: it could not be started. */
int mr__errand_go(lua_State *L, struct errand *e, host_job job);
/* The host is done with it: what is to be woken. e is gone. */
struct wait *mr__errand_end(struct errand *e);

#endif
