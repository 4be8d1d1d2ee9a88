/* SPDX-License-Identifier: MIT */
/*
 * The setting `user`: a server that was started by root serves as somebody else. The two
 * steps, and what comes with them, in words for whoever starts it. Start reading at
 * mr__user_step_down(); why there are two is in control/privileges.h.
 */
#ifndef MR_SERVER_USER_H
#define MR_SERVER_USER_H

#include "control/privileges.h"
#include "server/banner.h"
#include "server/startup.h"

#include <stdbool.h>

struct user {
    bool is_other; /* we are root and shall become him */
    struct identity who;
};

/* Whom the settings name. Errors are worded. */
int mr__user_find(struct user *out, const struct settings_values *v, struct mr_server_error *err);

/* Before any thread is started. */
int mr__user_begin(const struct user *u, struct mr_server_error *err);

/* Before anything is opened and any policy is loaded; the folder of the control socket is made
 * first, since he may not be allowed to. */
int mr__user_step_down(const struct user *u, const struct banner *b,
                       const struct startup_sources *from, struct mr_server_error *err);

/* When everything is bound, before anybody is let in. */
int mr__user_give_up(const struct user *u, const struct banner *b, struct mr_server_error *err);

#endif
