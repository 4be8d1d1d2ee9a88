/* SPDX-License-Identifier: MIT */
/*
 * Ports as real sockets: both families, wildcards, peers that go away, junk. One thread
 * beside the workers. Start reading at the tests.
 */
#include "rig.h"
#include "test.h"

#include "engine/engine.h"

#include "io/machine.h"
#include "io/socket.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static struct peer open_peer(const char *text)
{
    struct mr_addr local = rig_addr(text);
    struct socket_info info;
    struct peer p = {.fd = mr__socket_open(&local, 0, 1 << 20, &info)};

    if (p.fd >= 0)
        p.addr = info.local;
    return p;
}

static void send_from(const struct peer *p, const struct mr_addr *to, const void *data, size_t n)
{
    union socket_addr sa;
    socklen_t len = mr__socket_addr_write(&sa, to, p->addr.family);

    CHECK_EQ(sendto(p->fd, data, n, 0, &sa.any, len), (ssize_t)n);
}

static void relay_between_families(int workers)
{
    struct mr_options o = rig_options(workers);
    struct rig *rig = calloc(1, sizeof *rig);
    struct peer v4 = open_peer("127.0.0.1:0"), v6 = open_peer("[::1]:0");
    struct mr_addr local = rig_addr("[::]:0"), to;
    uint32_t port[2];
    mr_relay_id a, b;
    char buf[16];
    uint16_t from = 0;

    rig_open(rig, &o, 0);
    for (unsigned i = 0; i < 2; i++)
        REQUIRE_EQ(mr_port_open(rig->mr, &local, MR_PORT_DUAL_STACK, &port[i]), 0);
    a = rig_relay(rig, port[0], &v4.addr);
    b = rig_relay(rig, port[1], &v6.addr);
    CHECK_EQ(mr_pair(rig->mr, a, b), 0);
    rig_settle(rig);

    to = rig_addr("127.0.0.1:1");
    to.port = rig_udp_port(rig, port[1]);
    send_from(&v4, &to, "four", 4);
    CHECK_EQ(rig_receive(rig, &v6, buf, sizeof buf, &from), 4);
    CHECK_EQ(from, rig_udp_port(rig, port[0]));
    to = rig_addr("[::1]:1");
    to.port = rig_udp_port(rig, port[0]);
    send_from(&v6, &to, "six", 3);
    CHECK_EQ(rig_receive(rig, &v4, buf, sizeof buf, &from), 3);
    CHECK_EQ(from, rig_udp_port(rig, port[1]));
    rig_check_conservation(rig);
    rig_close(rig);
    free(rig);
    rig_peer_close(&v4);
    rig_peer_close(&v6);
}

TEST(dual_stack_ports_relay_between_the_families)
{
    struct peer probe = open_peer("[::1]:0");

    if (probe.fd < 0)
        TEST_SKIP("no IPv6 here");
    rig_peer_close(&probe);
    relay_between_families(0);
    relay_between_families(2);
}

TEST(a_port_of_one_family_makes_no_pair_with_the_other)
{
    struct mr_options o = rig_options(0);
    struct rig *rig = calloc(1, sizeof *rig);
    struct mr_addr v4 = rig_addr("127.0.0.1:0"), v6 = rig_addr("[::1]:0");
    struct mr_addr a = rig_addr("10.0.0.1:1"), b = rig_addr("[2001:db8::1]:1");
    uint32_t port[2];

    rig_open(rig, &o, 0);
    CHECK_EQ(mr_port_open(rig->mr, &v4, 0, &port[0]), 0);
    if (mr_port_open(rig->mr, &v6, 0, &port[1]) == 0)
        CHECK_EQ(mr_pair(rig->mr, rig_relay(rig, port[0], &a), rig_relay(rig, port[1], &b)),
                 -EAFNOSUPPORT);
    rig_close(rig);
    free(rig);
}

TEST(where_a_peers_datagrams_reach_a_port_is_told)
{
    struct mr_options o = rig_options(0);
    struct rig *rig = calloc(1, sizeof *rig);
    struct mr_addr wildcard = rig_addr("0.0.0.0:0"), one = rig_addr("127.0.0.2:0"), at;
    struct mr_addr peer = rig_addr("127.0.0.5:4000"),
                   mapped = {.ip = {[10] = 0xff, 0xff, 127, 0, 0, 5}, .port = 4000, .family = 6};
    struct mr_addr expected = rig_addr("127.0.0.1:1");
    uint32_t port[2];

    rig_open(rig, &o, 0);
    REQUIRE_EQ(mr_port_open(rig->mr, &wildcard, 0, &port[0]), 0);
    REQUIRE_EQ(mr_port_open(rig->mr, &one, 0, &port[1]), 0);
    expected.port = rig_udp_port(rig, port[0]);
    CHECK_EQ(mr_port_local(rig->mr, port[0], &peer, &at), 0);
    CHECK(mr_addr_equal(&at, &expected));
    CHECK_EQ(mr_port_local(rig->mr, port[0], &mapped, &at), 0);
    CHECK(mr_addr_equal(&at, &expected));
    one.port = rig_udp_port(rig, port[1]);
    CHECK_EQ(mr_port_local(rig->mr, port[1], &peer, &at), 0);
    CHECK(mr_addr_equal(&at, &one));
    CHECK_EQ(mr_port_close(rig->mr, port[1]), 0);
    CHECK_EQ(mr_port_local(rig->mr, port[1], &peer, &at), -ENOENT);
    rig_close(rig);
    free(rig);
}

TEST(a_wildcard_port_is_ours_at_every_local_address)
{
    struct mr_options o = rig_options(0);
    struct rig *rig = calloc(1, sizeof *rig);
    struct mr_addr local = rig_addr("0.0.0.0:0"), found[64];
    int n = mr__machine_addresses(found, 64);
    struct mr_relay_spec spec;
    uint32_t port;
    mr_relay_id id;

    rig_open(rig, &o, 0);
    CHECK_EQ(mr_port_open(rig->mr, &local, 0, &port), 0);
    mr_relay_spec_init(&spec, sizeof spec);
    spec.port = port;
    for (int i = 0; i < n; i++) {
        if (found[i].family != 4)
            continue;
        found[i].port = rig_udp_port(rig, port);
        CHECK_EQ(mr_is_own_address(rig->mr, &found[i]), 1);
        spec.peer = found[i];
        CHECK_EQ(mr_relay_create(rig->mr, &spec, &id), -EADDRNOTAVAIL);
        found[i].port = (uint16_t)(found[i].port - 1);
        CHECK_EQ(mr_is_own_address(rig->mr, &found[i]), 0);
    }
    CHECK_EQ(mr_port_close(rig->mr, port), 0);
    found[0] = rig_addr("127.0.0.1:1");
    CHECK_EQ(mr_is_own_address(rig->mr, &found[0]), 0);
    rig_close(rig);
    free(rig);
}

static void one_host_many_clients(int workers)
{
    enum { CLIENTS = 30, ROUNDS = 20 };
    struct mr_options o = rig_options(workers);
    struct rig *rig = calloc(1, sizeof *rig);
    struct peer host = rig_peer(), clients[CLIENTS];
    mr_relay_id host_relay;

    rig_open(rig, &o, CLIENTS + 1);
    host_relay = rig_relay(rig, 0, &host.addr);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = rig_peer();
        CHECK_EQ(mr_pair(rig->mr, host_relay, rig_relay(rig, i + 1, &clients[i].addr)), 0);
    }
    rig_settle(rig);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < CLIENTS; i++)
            rig_send(rig, &host, i + 1, &round, sizeof round);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint32_t got = 0;
            uint16_t from = 0;

            REQUIRE_EQ(rig_receive(rig, &clients[i], &got, sizeof got, &from), 4);
            REQUIRE_EQ(got, round);
            CHECK_EQ(from, rig_udp_port(rig, 0));
        }
        rig_peer_close(&clients[i]);
    }
    rig_check_conservation(rig);
    rig_close(rig);
    free(rig);
    rig_peer_close(&host);
}

TEST(thirty_clients_hear_their_host_from_his_port_in_order)
{
    one_host_many_clients(0);
    one_host_many_clients(1);
    one_host_many_clients(2);
}

/* Counted once it was sent, or was not: received is counted before. */
static uint64_t count_done(struct rig *rig)
{
    struct mr_stats stats = rig_stats(rig);

    return stats.verdicts[MR_VERDICT_FORWARD] + stats.verdicts[MR_VERDICT_SEND_FAILED];
}

TEST(a_peer_that_closed_its_socket_disturbs_nobody_and_may_come_back)
{
    struct mr_options o = rig_options(1);
    struct rig *rig = calloc(1, sizeof *rig);
    struct peer a = rig_peer(), b = rig_peer();
    struct mr_addr where = b.addr;
    struct socket_info info;
    char byte;

    rig_open(rig, &o, 2);
    CHECK_EQ(mr_pair(rig->mr, rig_relay(rig, 0, &a.addr), rig_relay(rig, 1, &b.addr)), 0);
    rig_settle(rig);
    rig_peer_close(&b);
    for (unsigned i = 0; i < 100; i++)
        rig_send(rig, &a, 1, "x", 1);
    CHECK_EVENTUALLY(count_done(rig) == 100);
    b.fd = mr__socket_open(&where, 0, 1 << 20, &info);
    REQUIRE(b.fd >= 0);
    rig_send(rig, &a, 1, "y", 1);
    CHECK_EQ(rig_receive(rig, &b, &byte, 1, NULL), 1);
    CHECK_EQ(byte, 'y');
    rig_send(rig, &b, 0, "z", 1);
    CHECK_EQ(rig_receive(rig, &a, &byte, 1, NULL), 1);
    rig_check_conservation(rig);
    rig_close(rig);
    free(rig);
    rig_peer_close(&a);
    rig_peer_close(&b);
}

static void junk(int workers)
{
    enum { PORTS = 6, SENDERS = 20, N = 2000 };
    struct mr_options o = rig_options(workers);
    struct rig *rig = calloc(1, sizeof *rig);
    struct peer senders[SENDERS];
    static uint8_t data[3000];
    struct mr_stats s;
    uint64_t sent = 0;

    o.hold.time_ns = 20000000;
    o.limits.relay_bytes_per_s = 20000;
    rig_open(rig, &o, PORTS);
    mr_set_miss_events(rig->mr, 1);
    for (unsigned i = 0; i < SENDERS; i++)
        senders[i] = rig_peer();
    for (uint32_t i = 0; i < PORTS - 2; i++)
        (void)rig_relay(rig, i, &senders[i].addr);
    CHECK_EQ(mr_pair(rig->mr, mr_relay_at(rig->mr, 0), mr_relay_at(rig->mr, 1)), 0);
    rig_settle(rig);
    for (unsigned i = 0; i < N; i++) {
        rig_send(rig, &senders[test_random_below(SENDERS)], (uint32_t)test_random_below(PORTS),
                 data, test_random_below(sizeof data));
        sent++;
        if (i % 50 == 0) {
            rig_poll(rig);
            rig_forget(rig);
        }
    }
    for (uint64_t end = test_now_ms() + TEST_EVENTUALLY_MS;
         rig_stats(rig).held + (rig_stats(rig).received < sent) > 0 && test_now_ms() < end;) {
        rig_poll(rig);
        rig_forget(rig);
        test_pause();
    }
    s = rig_stats(rig);
    mr_refresh_kernel_drops(rig->mr);
    CHECK_EQ(s.received + rig_stats(rig).kernel_drops, sent);
    CHECK_EQ(s.held, 0);
    CHECK_GT(s.verdicts[MR_VERDICT_FORWARD], 0);
    CHECK_GT(s.verdicts[MR_VERDICT_HOLD_EXPIRED], 0);
    rig_check_conservation(rig);
    rig_close(rig);
    free(rig);
    for (unsigned i = 0; i < SENDERS; i++)
        rig_peer_close(&senders[i]);
}

TEST(every_datagram_of_a_storm_of_junk_is_counted_once)
{
    junk(0);
    junk(2);
}

TEST(asking_for_what_buffers_lost_looks_at_so_many_ports_a_call_and_at_all_in_turn)
{
    enum { PORTS = DROPS_PER_CALL + 1000 };
    struct mr_options o = rig_virtual_options();
    struct rig *rig = calloc(1, sizeof *rig);

    o.max_ports = PORTS;
    rig_open(rig, &o, PORTS);
    mr_refresh_kernel_drops(rig->mr);
    CHECK_EQ(rig->mr->next_drops, DROPS_PER_CALL);
    mr_refresh_kernel_drops(rig->mr);
    CHECK_EQ(rig->mr->next_drops, DROPS_PER_CALL - 1000);
    rig_close(rig);
    free(rig);
}

TEST(what_a_ports_buffer_lost_is_told_also_after_it_closed)
{
    struct mr_options o = rig_options(0);
    struct rig *rig = calloc(1, sizeof *rig);
    struct peer p = rig_peer();
    struct mr_port_info info = {.relay = 0};
    static uint8_t data[2000];

    o.socket_buffer_bytes = 4096;
    rig_open(rig, &o, 1);
    for (unsigned i = 0; i < 200; i++)
        rig_send(rig, &p, 0, data, sizeof data);
    CHECK_EQ(rig_stats(rig).kernel_drops, 0);
    mr_refresh_kernel_drops(rig->mr);
    CHECK_GT(rig_stats(rig).kernel_drops, 100);
    CHECK_EQ(mr_port_info(rig->mr, 0, &info), 0);
    CHECK_EQ(info.kernel_drops, rig_stats(rig).kernel_drops);
    CHECK_EQ(mr_port_close(rig->mr, 0), 0);
    rig_settle(rig);
    CHECK_EQ(rig_stats(rig).kernel_drops, info.kernel_drops);
    rig_close(rig);
    free(rig);
    rig_peer_close(&p);
}

/* ---- a socket's end ------------------------------------------------------------------------ */

/* A clock at which another thread than the test's stops while `is_shut`. */
struct gate {
    pthread_t control;
    atomic_bool is_shut, is_met;
};

static uint64_t gate_clock(void *user)
{
    struct gate *g = user;

    while (g->is_shut && !pthread_equal(pthread_self(), g->control)) {
        g->is_met = true;
        test_pause();
    }
    return test_now_ms() * 1000000;
}

/* The worker has read what is readable from the kernel and looks at its commands next. Were the
 * number of the descriptor another socket's by then, it would read that for this port. */
TEST(a_ports_socket_is_there_until_no_worker_can_use_it)
{
    struct gate gate = {.control = pthread_self()};
    struct mr_options o = rig_options(1);
    struct rig *rig = calloc(1, sizeof *rig);
    struct peer p = rig_peer();

    o.clock_ns = gate_clock;
    o.clock_user = &gate;
    rig_open(rig, &o, 1);
    rig_settle(rig);
    int before = test_count_entries("/proc/self/fd");
    gate.is_shut = true;
    rig_send(rig, &p, 0, "in the middle", 13);
    CHECK_EVENTUALLY(gate.is_met);
    CHECK_EQ(mr_port_close(rig->mr, 0), 0);
    for (unsigned i = 0; i < 20; i++)
        rig_poll(rig);
    CHECK_EQ(test_count_entries("/proc/self/fd"), before);
    gate.is_shut = false;
    CHECK_EVENTUALLY((rig_poll(rig), test_count_entries("/proc/self/fd") < before));
    rig_check_conservation(rig);
    rig_close(rig);
    free(rig);
    rig_peer_close(&p);
}

/* A reload that takes a port away, and one right after it that brings it back. */
TEST(a_port_that_is_closed_opens_again_while_a_worker_still_has_its_socket)
{
    struct gate gate = {.control = pthread_self()};
    struct mr_options o = rig_options(1);
    struct rig *rig = calloc(1, sizeof *rig);
    struct peer a = rig_peer(), b = rig_peer();
    struct mr_addr local = rig_addr("127.0.0.1:0");
    uint32_t port;
    char buf[16];

    o.clock_ns = gate_clock;
    o.clock_user = &gate;
    rig_open(rig, &o, 2);
    rig_settle(rig);
    local.port = rig_udp_port(rig, 0);
    gate.is_shut = true;
    rig_send(rig, &a, 0, "in the middle", 13);
    CHECK_EVENTUALLY(gate.is_met);
    for (unsigned i = 0; i < 3; i++) {
        CHECK_EQ(mr_port_close(rig->mr, i == 0 ? 0 : port), 0);
        REQUIRE_EQ(mr_port_open(rig->mr, &local, 0, &port), 0);
        CHECK_EQ(rig_udp_port(rig, port), local.port);
    }
    gate.is_shut = false;
    CHECK_EQ(mr_pair(rig->mr, rig_relay(rig, port, &a.addr), rig_relay(rig, 1, &b.addr)), 0);
    rig_settle(rig);
    rig_send(rig, &b, port, "again", 5);
    CHECK_EQ(rig_receive(rig, &a, buf, sizeof buf, NULL), 5);
    rig_check_conservation(rig);
    rig_close(rig);
    free(rig);
    rig_peer_close(&a);
    rig_peer_close(&b);
}

TEST_MAIN(TEST_CASE(dual_stack_ports_relay_between_the_families),
          TEST_CASE(a_port_of_one_family_makes_no_pair_with_the_other),
          TEST_CASE(where_a_peers_datagrams_reach_a_port_is_told),
          TEST_CASE(a_wildcard_port_is_ours_at_every_local_address),
          TEST_CASE(thirty_clients_hear_their_host_from_his_port_in_order),
          TEST_CASE(a_peer_that_closed_its_socket_disturbs_nobody_and_may_come_back),
          TEST_CASE(every_datagram_of_a_storm_of_junk_is_counted_once),
          TEST_CASE(what_a_ports_buffer_lost_is_told_also_after_it_closed),
          TEST_CASE(a_ports_socket_is_there_until_no_worker_can_use_it),
          TEST_CASE(a_port_that_is_closed_opens_again_while_a_worker_still_has_its_socket),
          TEST_CASE(asking_for_what_buffers_lost_looks_at_so_many_ports_a_call_and_at_all_in_turn))
