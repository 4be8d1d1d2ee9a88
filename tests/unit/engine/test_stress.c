/* SPDX-License-Identifier: MIT */
/*
 * Everything at once: control creates, pairs, moves and ends relays and opens and closes
 * ports while peers and strangers send through two workers. Meant for ThreadSanitizer,
 * under which it runs longer. Start reading at the test.
 */
#include "rig.h"
#include "test.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS = 24, PEERS = 8, STRANGERS = 4 };

#if defined(__SANITIZE_THREAD__)
enum { RUN_MS = 8000 };
#else
enum { RUN_MS = 1500 };
#endif

struct world {
    struct rig rig;
    struct peer peers[PEERS + STRANGERS];
    _Atomic uint32_t udp[PORTS]; /* where the senders aim; 0: closed */
    atomic_bool should_stop;
    mr_relay_id relays[PORTS];
    struct mr_flow_answers {
        unsigned asked;
    } flows;
};

static void send_to(const struct peer *p, uint16_t port, const void *data, size_t n)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};

    (void)sendto(p->fd, data, n, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
}

static void *send_traffic(void *arg)
{
    struct world *w = arg;
    uint64_t state = 12345;
    char data[600] = {0};

    while (!w->should_stop) {
        for (unsigned i = 0; i < 64; i++) {
            uint32_t udp;

            state = state * 6364136223846793005u + 1442695040888963407u;
            udp = w->udp[(state >> 33) % PORTS];
            if (udp)
                send_to(&w->peers[(state >> 40) % (PEERS + STRANGERS)], (uint16_t)udp, data,
                        (state >> 50) % sizeof data);
        }
        for (unsigned i = 0; i < PEERS + STRANGERS; i++) {
            while (rig_try_receive(&w->peers[i], data, sizeof data) >= 0)
                ;
        }
    }
    return NULL;
}

static void open_port(struct world *w, uint32_t expected)
{
    struct mr_addr local = rig_addr("127.0.0.1:0");
    uint32_t port;

    if (mr_port_open(w->rig.mr, &local, 0, &port) == 0) {
        CHECK_LT(port, PORTS);
        w->udp[port] = rig_udp_port(&w->rig, port);
    }
    (void)expected;
}

static void answer(struct world *w)
{
    for (unsigned i = 0; i < w->rig.n; i++) {
        const struct mr_event *e = &w->rig.events[i];

        if (e->type == MR_EVENT_ENDED) {
            CHECK_LT(e->u.ended.port, PORTS);
        } else if (e->type == MR_EVENT_MISS) {
            w->flows.asked++;
            if (test_random_below(4) == 0)
                (void)mr_flow_hold(w->rig.mr, e->u.miss.flow, 3, 0, test_random_below(20000000));
            if (test_random_below(2))
                (void)mr_flow_release(w->rig.mr, e->u.miss.flow);
            else if (test_random_below(8))
                (void)mr_flow_discard(w->rig.mr, e->u.miss.flow, MR_VERDICT_REFUSED, 0,
                                      MR_VERDICT_MUTED);
        }
    }
    rig_forget(&w->rig);
}

static void create(struct world *w, uint32_t port)
{
    struct mr_relay_spec spec;

    mr_relay_spec_init(&spec, sizeof spec);
    spec.port = port;
    spec.peer = w->peers[test_random_below(PEERS)].addr;
    spec.limits.max_bytes = test_random_below(4) ? 0 : 5000;
    spec.limits.ttl_ns = test_random_below(4) ? 0 : 20000000;
    spec.limits.idle_ns = test_random_below(4) ? 0 : 20000000;
    spec.flags = test_random_below(16) ? 0 : MR_RELAY_MANUAL;
    (void)!mr_relay_create(w->rig.mr, &spec, &w->relays[port]);
}

/* All senders are on loopback: now and then they are strangers that nobody wants. */
static void block(struct world *w)
{
    uint32_t first = INADDR_LOOPBACK - (uint32_t)test_random_below(3);
    struct mr_range4 ranges[] = {{0, 5, 1}, {first, first + 1, 2}};
    struct mr_nets nets = {.v4 = ranges, .n4 = 2};

    CHECK_EQ(mr_set_blocked(w->rig.mr, test_random_below(3) ? NULL : &nets), 0);
}

static void change_something(struct world *w)
{
    uint32_t port = (uint32_t)test_random_below(PORTS);
    mr_relay_id a = w->relays[port], b = w->relays[test_random_below(PORTS)];
    struct mr_relay_info info;
    struct mr_hold_options hold;

    switch (test_random_below(14)) {
    case 0:
    case 1:
    case 2:
        create(w, port);
        break;
    case 3:
    case 4:
    case 5:
        (void)!mr_pair(w->rig.mr, a, b);
        break;
    case 6:
        (void)mr_unpair(w->rig.mr, a, b);
        break;
    case 7:
        (void)!mr_relay_move(w->rig.mr, a, &w->peers[test_random_below(PEERS)].addr, NULL);
        break;
    case 8:
        (void)mr_relay_close(w->rig.mr, a);
        break;
    case 9:
        if (test_random_below(8) == 0 && mr_port_close(w->rig.mr, port) == 0)
            w->udp[port] = 0;
        else
            open_port(w, port);
        break;
    case 10:
        (void)mr_relay_info(w->rig.mr, a, &info);
        (void)rig_stats(&w->rig);
        (void)mr_relay_restart(w->rig.mr, a);
        break;
    case 11:
        (void)!mr_inject(w->rig.mr, port, &w->peers[0].addr, "x", 1);
        break;
    case 12:
        block(w);
        break;
    case 13:
        hold = (struct mr_hold_options){.datagrams = (uint32_t)test_random_below(9),
                                        .bytes = 1000,
                                        .time_ns = 1 + test_random_below(50000000),
                                        .events_per_s = 10000};
        CHECK_EQ(mr_set_hold(w->rig.mr, &hold), 0);
        break;
    }
}

/* For its time, and on a machine that is busy elsewhere until there was something to count. */
static bool is_enough(struct world *w, uint64_t since_ms, uint64_t changes)
{
    uint64_t took_ms = test_now_ms() - since_ms;
    bool had_all =
        changes > 1000 && w->flows.asked > 0 && rig_stats(&w->rig).verdicts[MR_VERDICT_FORWARD] > 0;

    return took_ms >= RUN_MS && (had_all || took_ms >= RUN_MS + TEST_EVENTUALLY_MS);
}

TEST(creating_pairing_and_freeing_under_traffic_loses_no_count)
{
    struct world *w = calloc(1, sizeof *w);
    struct mr_options o = rig_options(2);
    uint64_t start = test_now_ms(), changes = 0;
    pthread_t sender;

    o.max_ports = PORTS;
    o.limits.relay_bytes_per_s = 2000000;
    o.limits.global_bytes_per_s = 20000000;
    o.hold.time_ns = 50000000;
    for (unsigned i = 0; i < PEERS + STRANGERS; i++)
        w->peers[i] = rig_peer();
    rig_open(&w->rig, &o, 0);
    for (uint32_t i = 0; i < PORTS; i++)
        open_port(w, i);
    mr_set_miss_events(w->rig.mr, 1);
    REQUIRE_EQ(pthread_create(&sender, NULL, send_traffic, w), 0);
    while (!is_enough(w, start, changes)) {
        for (unsigned i = 0; i < 20; i++)
            change_something(w);
        changes += 20;
        rig_poll(&w->rig);
        answer(w);
    }
    w->should_stop = true;
    pthread_join(sender, NULL);
    rig_settle(&w->rig);
    rig_check_conservation(&w->rig);
    CHECK_GT(rig_stats(&w->rig).verdicts[MR_VERDICT_FORWARD], 0);
    CHECK_GT(changes, 1000);
    CHECK_GT(w->flows.asked, 0);
    rig_close(&w->rig);
    for (unsigned i = 0; i < PEERS + STRANGERS; i++)
        rig_peer_close(&w->peers[i]);
    free(w);
}

TEST_MAIN(TEST_CASE(creating_pairing_and_freeing_under_traffic_loses_no_count))
