/* SPDX-License-Identifier: MIT */
/*
 * System calls that fail on order. The program's own syscall() stands before the C
 * library's; each recvfrom, recvmmsg, sendto and sendmmsg made through it (io/syscall.h)
 * takes the next order of its kind, or goes to the kernel when there is none. One thread. Start
 * reading at fault_next().
 */
#ifndef MR_TESTS_IO_FAULTS_H
#define MR_TESTS_IO_FAULTS_H

enum fault_call { FAULT_RECVFROM, FAULT_RECVMMSG, FAULT_SENDTO, FAULT_SENDMMSG, FAULT_CALLS };

/* The next call fails with err; err 0: it goes to the kernel. */
void fault_next(enum fault_call call, int err);
/* The next sendmmsg or recvmmsg deals with at most n messages. */
void fault_short(enum fault_call call, unsigned n);
/* The next call says that its (first) datagram was cut. */
void fault_truncate(enum fault_call call);
/* Every call from now on fails with err. */
void fault_always(enum fault_call call, int err);
/* Forgets all orders and counts. */
void fault_reset(void);
/* How often it was called since. */
unsigned fault_count(enum fault_call call);

#endif
