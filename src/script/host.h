/* SPDX-License-Identifier: MIT */
/* What policies need of the world outside: see service/host.h. */
#ifndef MR_SCRIPT_HOST_H
#define MR_SCRIPT_HOST_H

#include "service/host.h"

#endif
