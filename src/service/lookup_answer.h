/* SPDX-License-Identifier: MIT */
/*
 * What a lookup came to, kept until it is told: the same checks and the same words
 * wherever an answer is carried (control/lookup.h, relay.testing). Pure. Control thread.
 */
#ifndef MR_SERVICE_LOOKUP_ANSWER_H
#define MR_SERVICE_LOOKUP_ANSWER_H

#include "service/lookup.h"

#include <stdbool.h>
#include <stddef.h>

enum { MR_LOOKUP_SHOWN_MAX = 80 };

/* The texts of `answer` lie in it: it must not be moved once it is filled in. */
struct lookup_answer {
    struct mr_lookup_answer answer;
    char code[MR_LOOKUP_CODE_MAX + 1];
    char message[MR_LOOKUP_TEXT_MAX + 1];
};

/* Whether the host is a literal of the family (0: of either); then *out is it. */
bool mr__lookup_literal(const char *host, size_t n, int family, struct mr_addr *out);

void mr__lookup_answer_set(struct lookup_answer *a, const struct mr_addr *addr);

/* rc: a negative errno. The message is cut where it is too long. */
__attribute__((format(printf, 4, 5))) void
mr__lookup_answer_fail(struct lookup_answer *a, int rc, const char *code, const char *format, ...);

/* A host as it may be shown: what is no visible ASCII is a '?', what is too long is cut. */
void mr__lookup_show_host(char out[MR_LOOKUP_SHOWN_MAX], const char *host, size_t n);

/* An error in the words of a policy, which need not name the host: then it comes before them. */
void mr__lookup_answer_refuse(struct lookup_answer *a, const char *code, const char *text,
                              size_t text_n, const char *host, size_t n);

/* Takes over what somebody answered about the host: an address of another family than that which
 * was asked for (0: either), or none, is an error of code "family" that names both. */
void mr__lookup_answer_take(struct lookup_answer *a, const struct mr_lookup_answer *from,
                            const char *host, size_t n, int family);

#endif
