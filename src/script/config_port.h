/* SPDX-License-Identifier: MIT */
/*
 * One entry of the config's `ports`: what a port that is open to everybody gives its flows.
 * Control thread.
 */
#ifndef MR_SCRIPT_CONFIG_PORT_H
#define MR_SCRIPT_CONFIG_PORT_H

#include "script/answer.h"
#include "service/service.h"

#include <lua.h>

struct config_port {
    struct open_port port; /* all it names is in memory and place */
    void *memory;
    char *place;
};

/* Reads the table at the top of the stack, a spec. -EINVAL with why, -ENOMEM; *out holds nothing
 * then. Never raises. */
int mr__config_port_read(lua_State *L, struct config_port *out, char why[ANSWER_WHY_MAX]);
void mr__config_port_deinit(struct config_port *p);

#endif
