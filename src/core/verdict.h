/* SPDX-License-Identifier: MIT */
/*
 * What can become of a datagram: one list makes the enum, the counters and the
 * names in Lua and in metrics. Public: installed with moonrelay.h.
 *
 * To add a reason, add a line here and a row to the table of src/PROTOCOL.md; the
 * counters, the metric and the tests of completeness follow by themselves.
 */
#ifndef MR_CORE_VERDICT_H
#define MR_CORE_VERDICT_H

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* part of the shared library's interface */
#endif

/* X(constant, name in metrics and Lua, what happened) */
#define MR_VERDICTS(X)                                                               \
    X(FORWARD, "forward", "sent on")                                                 \
    X(MANUAL, "manual", "handed to the embedder")                                    \
    X(UNKNOWN_SENDER, "unknown_sender", "no relay has the sender's address")         \
    X(UNKNOWN_TARGET, "unknown_target", "the port is free")                          \
    X(NOT_PAIRED, "not_paired", "both are known but were never connected")           \
    X(NEW_FLOW, "new_flow", "an open port met a flow that nobody admitted")          \
    X(MUTED, "muted", "a policy silenced the flow")                                  \
    X(REFUSED, "refused", "a policy refused the flow")                               \
    X(BLOCKED, "blocked", "the sender is blocked")                                   \
    X(BANDWIDTH, "bandwidth", "the sender's rate is used up")                        \
    X(GLOBAL, "global", "the server's rate is used up")                              \
    X(DURATION, "duration", "the sender's relay is past its lifetime")               \
    X(TRAFFIC, "traffic", "the sender's relay has used its lifetime traffic")        \
    X(OWN_ADDRESS, "own_address", "source or destination is one of our own sockets") \
    X(ADDRESS_CLASS, "address_class", "an address of that kind is not served here")  \
    X(UNPROVEN, "unproven", "the destination has not shown that it wants this")      \
    X(TRUNCATED, "truncated", "it was larger than a receive buffer")                 \
    X(HOLD_FULL, "hold_full", "no room to keep it while a policy decides")           \
    X(HOLD_EXPIRED, "hold_expired", "no policy decided in time")                     \
    X(EVENT_FULL, "event_full", "too many new flows at once to ask about this one")  \
    X(SEND_FULL, "send_full", "the socket's send buffer was full")                   \
    X(SEND_FAILED, "send_failed", "the kernel refused to send it")

enum mr_verdict {
#define X(constant, name, text) MR_VERDICT_##constant,
    MR_VERDICTS (X)
#undef X
        MR_VERDICT_COUNT
};

/* "unknown_sender"; "?" for what is no verdict. Static text. */
const char *mr_verdict_name(enum mr_verdict v);
/* "no relay has the sender's address". Static text. */
const char *mr_verdict_text(enum mr_verdict v);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
