/* SPDX-License-Identifier: MIT */
/*
 * Which addresses are served at all: asked where one enters (registrar, stranger), never for
 * what flows already; what a policy names as a target is judged in target.c. Control thread. A
 * source is easily forged, so nobody is relayed to where he could not have come from: loopback and
 * private addresses are peers only where the datagram itself reached such an address of ours.
 */
#include "service/state.h"

#include <errno.h>

enum {
    NOBODY = MR_ADDR_UNSPECIFIED | MR_ADDR_MULTICAST | MR_ADDR_BROADCAST,
    INSIDE = MR_ADDR_PRIVATE | MR_ADDR_LINK_LOCAL,
};

/* Our loopback address is reached by this machine only, so it is inside of everything. A local
 * address that cannot be known (an engine without sockets) is no reason to refuse. */
static bool is_of_our_class(const struct mr_addr *from, const struct mr_addr *local)
{
    unsigned theirs = mr_addr_classify(from), ours = mr_addr_classify(local);

    if (!(theirs & (INSIDE | MR_ADDR_LOOPBACK)) || local->family == 0) {
        return true;
    }
    return (ours & MR_ADDR_LOOPBACK) || ((theirs & INSIDE) && (ours & INSIDE));
}

enum mr_verdict mr__peer_judge(const struct service *s, const struct mr_addr *from,
                               const struct mr_addr *local)
{
    bool allow_low = mr__settings_values(s->settings)->allow_low_ports;

    if ((mr_addr_classify(from) & NOBODY) || from->port < (allow_low ? 1 : MR_LOWEST_PLAYER_PORT)) {
        return MR_VERDICT_ADDRESS_CLASS;
    }
    if (mr_is_own_address(s->mr, from)) {
        return MR_VERDICT_OWN_ADDRESS;
    }
    if (mr__nets_contain(&s->deny_peers, from)) {
        return MR_VERDICT_ADDRESS_CLASS;
    }
    return is_of_our_class(from, local) || mr__nets_contain(&s->allow_peers, from)
               ? MR_VERDICT_FORWARD
               : MR_VERDICT_ADDRESS_CLASS;
}

/* The routes are asked only for the few peers whose class matters: their answer costs some system
 * calls, and misses are bounded in number. Routes that lead nowhere, or cannot be asked (no
 * descriptor, no netlink), are no word for an address of ours: that would open what they guard. */
struct mr_addr mr__peer_local(const struct service *s, const struct mr_addr *from, uint32_t port)
{
    struct mr_addr local = {.family = 0};
    int rc;

    if (!(mr_addr_classify(from) & (INSIDE | MR_ADDR_LOOPBACK))) {
        return local;
    }
    if (port == MR_NO_PORT && s->pool.n > 0) {
        port = s->pool.seats[0]->port; /* all are at one address */
    }
    rc = mr_port_local(s->mr, port, from, &local);
    if (rc < 0) {
        bool is_unknowable = rc == -ENODATA || rc == -ENOENT;
        return (struct mr_addr){.family = is_unknowable ? 0 : from->family};
    }
    mr_addr_canonicalize(&local);
    return local;
}
