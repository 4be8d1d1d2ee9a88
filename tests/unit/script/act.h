/* SPDX-License-Identifier: MIT */
/*
 * A hook that runs Lua against a real service: what the tests of the module `relay` share.
 * One thread. Start reading at act_begin() and act().
 */
#ifndef MR_TESTS_SCRIPT_ACT_H
#define MR_TESTS_SCRIPT_ACT_H

#include "rig.h"
#include "service/world.h"

struct act {
    struct rig rig;
    struct world *world;
};

/* The service's clock is the policies'. settings: as for world_open(). */
void act_begin(struct act *a, const char *const *settings);
void act_end(struct act *a);

/* Loads p.lua, with these lines at its top level and this body of `create`, in whose reach are
 * relay, same(a, b), fails(part, f, ...) and kept, a table. 0 or a negative errno. */
int act_load(struct act *a, const char *top, const char *body);
/* Asks `create`: "admit" unless something raised; then the log is printed. */
const char *act_ask(struct act *a);
/* Both, without lines at the top level. */
const char *act(struct act *a, const char *body);

#endif
