/* SPDX-License-Identifier: MIT */
/*
 * What must hold of a service and its engine between two turns, whatever has happened. One
 * thread. A book that does not agree ends the program.
 */
#ifndef MR_FUZZ_SERVICE_BOOKS_H
#define MR_FUZZ_SERVICE_BOOKS_H

#include "service/state.h"

#include <stdio.h>
#include <stdlib.h>

#define require(holds)                                                          \
    do {                                                                        \
        if (!(holds)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds); \
            abort();                                                            \
        }                                                                       \
    } while (0)

/* Indexes agree with what they index, counts with what they count, each relay of the engine has
 * its seat and each owner is there, datagrams are counted once. The engine has been polled. */
void books_check(const struct service *s);

#endif
