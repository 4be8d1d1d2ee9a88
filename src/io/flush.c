/* SPDX-License-Identifier: MIT */
/*
 * What leaves in one pass, grouped by the socket it leaves through. Worker threads.
 * Start reading at mr__tx_flush().
 */
#include "io/transport.h"

#include <string.h>

enum {
    GROUP_SLOTS = 4 * BATCH_MAX, /* hash of the egresses of one batch: a power of two, in L1 */
    END = UINT16_MAX,
};

/* The datagrams of each egress as a chain through `next`, egresses in order of their
 * first datagram. */
struct groups {
    unsigned n;
    uint32_t egress[BATCH_MAX];
    uint16_t first[BATCH_MAX], last[BATCH_MAX];
    uint16_t next[BATCH_MAX];
    uint8_t slots[GROUP_SLOTS]; /* group + 1 */
};

static unsigned find_slot(const struct groups *g, uint32_t egress)
{
    unsigned slot = (egress * 0x9e3779b1u) >> 24;

    _Static_assert(GROUP_SLOTS == 256, "the shift keeps the top bits of the product");
    while (g->slots[slot] && g->egress[g->slots[slot] - 1] != egress)
        slot = (slot + 1) & (GROUP_SLOTS - 1);
    return slot;
}

static inline void append(struct groups *g, unsigned group, unsigned i)
{
    g->next[g->last[group]] = (uint16_t)i;
    g->last[group] = (uint16_t)i;
}

static void add_to_group(struct groups *g, uint32_t egress, unsigned i)
{
    unsigned slot;

    g->next[i] = END;
    /* What one socket had queued mostly leaves by one socket, too. */
    if (g->n > 0 && g->egress[g->n - 1] == egress) {
        append(g, g->n - 1, i);
        return;
    }
    slot = find_slot(g, egress);
    if (g->slots[slot]) {
        append(g, g->slots[slot] - 1u, i);
        return;
    }
    g->egress[g->n] = egress;
    g->first[g->n] = g->last[g->n] = (uint16_t)i;
    g->slots[slot] = (uint8_t)++g->n;
}

/*
 * Datagrams that leave through one socket are sent by one call, also when they came in
 * by different ones: a host that talks to thirty clients writes to thirty of our ports,
 * and all of it leaves from the host's port. Order matters within an egress only; peers
 * see nothing else.
 */
void mr__tx_flush(struct tx *tx, const struct transport *transport, const struct tx_socket *sockets,
                  struct batch *batch)
{
    struct groups g;
    uint16_t index[BATCH_MAX];

    g.n = 0;
    memset(g.slots, 0, sizeof g.slots);
    for (unsigned i = 0; i < batch->n; i++) {
        struct plane_out *out = &batch->out[i];

        if (out->verdict != MR_VERDICT_FORWARD)
            continue;
        if (sockets[out->egress].family == 4 && out->to.family == 6)
            out->verdict = MR_VERDICT_SEND_FAILED; /* it has no form for that socket */
        else
            add_to_group(&g, out->egress, i);
    }
    for (unsigned k = 0; k < g.n; k++) {
        unsigned n = 0, i = g.first[k];

        do {
            index[n++] = (uint16_t)i;
            i = g.next[i];
        } while (i != END);
        transport->send(tx, &sockets[g.egress[k]], batch, index, n);
    }
}
