/* SPDX-License-Identifier: MIT */
/*
 * What may be forwarded to a relay whose address nobody has vouched for: somebody registered it
 * from elsewhere, so it may be a victim's. Until it has itself sent something, a few datagrams,
 * with which two games find each other; then a modest rate, or a multiple of what it sends. Pure;
 * relaxed atomics, any thread: at the edge two workers may each let one datagram through.
 */
#ifndef MR_CORE_PROOF_H
#define MR_CORE_PROOF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    MR__PROOF_DATAGRAMS = 16,          /* before it has sent anything, and so many */
    MR__PROOF_BYTES = 16 * 1024,       /* bytes, whichever is used up first */
    MR__PROOF_BYTES_PER_S = 32 * 1024, /* afterwards, or */
    MR__PROOF_FACTOR = 10,             /* times what it sent in the last so many */
    MR__PROOF_SECONDS = 10,            /* seconds, whichever is more */
};

struct proof {
    _Alignas(64) _Atomic uint64_t has_sent;
    _Atomic uint64_t left;   /* datagrams << 32 | bytes */
    _Atomic uint64_t tat_ns; /* of the rate (GCRA) */
    _Atomic uint64_t half;   /* which half of the seconds `earned` is of */
    _Atomic uint64_t earned, earned_before;
};

/* By control. A new relay's; its address is another one, and nothing is given anew. */
void mr__proof_begin(struct proof *p);
void mr__proof_doubt(struct proof *p);

/* Its peer sent so many bytes. */
void mr__proof_sent(struct proof *p, uint64_t now_ns, uint32_t bytes);
/* Would a datagram to it pass? Charges nothing. */
bool mr__proof_fits(const struct proof *p, uint64_t now_ns, uint32_t bytes);
void mr__proof_charge(struct proof *p, uint64_t now_ns, uint32_t bytes);

#endif
