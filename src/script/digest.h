/* SPDX-License-Identifier: MIT */
/*
 * SHA-256 of a policy's text, so that an operator can compare what runs with what he
 * wrote. Any thread.
 */
#ifndef MR_SCRIPT_DIGEST_H
#define MR_SCRIPT_DIGEST_H

#include <stddef.h>

/* As 64 hex digits. */
void mr__digest_hex(const char *text, size_t n, char out[65]);

#endif
