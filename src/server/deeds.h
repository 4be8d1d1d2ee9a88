/* SPDX-License-Identifier: MIT */
/*
 * What the control socket asks of the layers above control: the status of the whole
 * server, its policies, reloads and policies' commands. Control thread.
 */
#ifndef MR_SERVER_DEEDS_H
#define MR_SERVER_DEEDS_H

#include "control/api.h"
#include "control/control.h"
#include "script/policies.h"
#include "server/reload.h"
#include "service/service.h"

#include <stdint.h>

/* What they work on; outlives them. */
struct deeds {
    struct mr *mr;
    struct control *control;
    struct service *service;
    struct policies *policies;
    struct reload *reload;
    const char *endpoints; /* the line `ready` without its first word */
    double started_at;     /* wall clock, s */
};

struct api_deeds mr__deeds_of(struct deeds *d);

#endif
