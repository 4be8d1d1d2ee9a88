/* SPDX-License-Identifier: MIT */
/*
 * The service's tests' world (service/world.h), for those of the module `relay`, which acts
 * on a real service. One thread.
 */
#include "service/world.c"
