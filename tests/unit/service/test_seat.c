/* SPDX-License-Identifier: MIT */
/*
 * Relays that cannot be made, and what they had taken already. One thread.
 */
#include "service/state.h"

#include "test.h"
#include "world.h"

#include <string.h>

static struct world *w;

static unsigned slot_count(const char *key)
{
    uint64_t hash = mr__service_hash(w->service, key, strlen(key));

    for (struct table_node *n = mr__table_first(&w->service->slots, hash); n;
         n = mr__table_next(n)) {
        const struct slot *slot = MR_CONTAINER(n, struct slot, node);
        if (slot->n == strlen(key) && memcmp(slot->key, key, slot->n) == 0) {
            return slot->count;
        }
    }
    return 0;
}

TEST(a_relay_that_finds_no_port_gives_its_slots_back)
{
    const struct hook_slot slots[] = {{{"game", 4}, 100}};
    struct player players[4];
    char line[800];
    unsigned a, b;

    w = world_open((const char *[]){"udp_relay_ports=49152+2", NULL});
    for (unsigned i = 0; i < 4; i++) {
        char tcp[32], udp[32];
        snprintf(tcp, sizeof tcp, "10.0.0.%u:5000", i + 1);
        snprintf(udp, sizeof udp, "10.0.0.%u:6000", i + 1);
        players[i] = world_join(w, tcp, udp);
    }
    struct hook_answer *answer = world_answer(w, MR_HOOK_CREATE, MR_HOOK_ADMIT);
    answer->slots = slots;
    answer->n_slots = 1;
    REQUIRE(world_relay(w, &players[0], &players[1], &a, &b));
    CHECK_EQ(slot_count("game"), 2);
    snprintf(line, sizeof line, "connect-relay %s\n", players[3].oid);
    for (unsigned i = 0; i < 3; i++) {
        world_say(w, players[2].conn, line);
        CHECK_STR(world_line(w, players[2].conn), "error connect-relay:no-ports");
        world_settle(w);
        CHECK_EQ(slot_count("game"), 2);
    }
    world_close(w);
}

TEST_MAIN(TEST_CASE(a_relay_that_finds_no_port_gives_its_slots_back))
