/* SPDX-License-Identifier: MIT */
/*
 * An engine's beginning and end, what happens when something is refused meanwhile, and
 * what a wake-up does. Start reading at the tests.
 */
#include "base/alloc.h"
#include "rig.h"
#include "test.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

TEST(options_out_of_range_are_refused)
{
    struct mr_options good = rig_options(1), o;
    struct mr *mr = (struct mr *)&good, *before = mr;

#define REFUSED(field, value)                  \
    do {                                       \
        o = good;                              \
        o.field = (value);                     \
        CHECK_EQ(mr_create(&mr, &o), -EINVAL); \
    } while (0)
    REFUSED(size, 8);
    REFUSED(limits.size, 8);
    REFUSED(workers, -2);
    REFUSED(workers, 65);
    REFUSED(io, (enum mr_io)7);
    REFUSED(pairing, (enum mr_pairing)7);
    REFUSED(max_ports, 0);
    REFUSED(max_ports, UINT32_MAX);
    REFUSED(max_pairs, UINT32_MAX);
    REFUSED(hold.flows, 0);
    REFUSED(hold.flows, UINT32_MAX);
    REFUSED(hold.events_per_s, 0);
    REFUSED(hold.time_ns, 0);
#undef REFUSED
    CHECK(mr == before);
    mr_destroy(NULL);
}

TEST(workers_are_as_many_as_the_machine_gives)
{
    struct mr_options o = rig_options(MR_WORKERS_AUTO);
    struct rig *rig = calloc(1, sizeof *rig);

    rig_open(rig, &o, 1);
    CHECK_GE(rig_stats(rig).workers, 1);
    CHECK_LE(rig_stats(rig).workers, 64);
    rig_close(rig);
    free(rig);
}

TEST(memory_that_is_refused_at_creation_leaves_nothing_running)
{
    struct mr_options o = rig_options(2);
    long before = mr__alloc_live();
    int r = -ENOMEM;

    for (long n = 0; r < 0; n++) {
        struct mr *mr = NULL;

        REQUIRE(n < 100);
        mr__alloc_fail_after(n);
        r = mr_create(&mr, &o);
        mr__alloc_fail_after(-1);
        if (r == 0)
            mr_destroy(mr);
        else
            CHECK_EQ(r, -ENOMEM);
        CHECK_EQ(mr__alloc_live(), before);
    }
}

TEST(descriptors_that_are_refused_leave_nothing_open)
{
    struct mr_options o = rig_options(2);
    struct rlimit limit, tight;
    int fds = test_count_entries("/proc/self/fd"), r = -EMFILE;
    long before = mr__alloc_live();

    REQUIRE_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    tight = limit;
    for (unsigned room = 0; room < 20; room++) {
        struct mr *mr = NULL;

        tight.rlim_cur = (rlim_t)fds - 1 + room;
        REQUIRE_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
        r = mr_create(&mr, &o);
        REQUIRE_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
        if (r == 0)
            mr_destroy(mr);
        else
            CHECK_EQ(r, -EMFILE);
        CHECK_EQ(test_count_entries("/proc/self/fd"), fds);
        CHECK_EQ(mr__alloc_live(), before);
    }
    CHECK_EQ(r, 0);
}

TEST(a_port_that_is_taken_is_refused_and_the_index_is_not_used_up)
{
    struct mr_options o = rig_options(1);
    struct peer taken = rig_peer();
    struct mr_addr local = rig_addr("127.0.0.1:0");
    struct rig *rig = calloc(1, sizeof *rig);
    uint32_t port = 77;

    rig_open(rig, &o, 0);
    CHECK_EQ(mr_port_open(rig->mr, &taken.addr, 0, &port), -EADDRINUSE);
    CHECK_EQ(port, 77);
    CHECK_EQ(mr_port_open(rig->mr, &local, 0, &port), 0);
    CHECK_EQ(port, 0);
    rig_close(rig);
    free(rig);
    rig_peer_close(&taken);
}

TEST(memory_that_is_refused_later_loses_no_command)
{
    for (int workers = 0; workers <= 2; workers++) {
        struct mr_options o = rig_options(workers);
        struct peer a = rig_peer(), b = rig_peer();
        struct rig *rig = calloc(1, sizeof *rig);
        mr_relay_id ra, rb;
        char byte;

        rig_open(rig, &o, 2);
        ra = rig_relay(rig, 0, &a.addr);
        rb = rig_relay(rig, 1, &b.addr);
        mr__alloc_fail_after(0);
        CHECK_EQ(mr_inject(rig->mr, 1, &a.addr, "x", 1), -ENOMEM);
        for (unsigned i = 0; i < 3000; i++) {
            CHECK_EQ(mr_pair(rig->mr, ra, rb), 0);
            CHECK_EQ(mr_unpair(rig->mr, ra, rb), 0);
        }
        CHECK_EQ(mr_pair(rig->mr, ra, rb), 0);
        mr__alloc_fail_after(-1);
        rig_settle(rig);
        rig_send(rig, &a, 1, "x", 1);
        CHECK_EQ(rig_receive(rig, &b, &byte, 1, NULL), 1);
        rig_close(rig);
        free(rig);
        rig_peer_close(&a);
        rig_peer_close(&b);
    }
}

/* What an embedder does: sleep on the descriptor, then poll. */
static void sleep_and_poll(int workers)
{
    struct mr_options o = rig_options(workers);
    struct peer host = rig_peer(), guest = rig_peer();
    struct rig *rig = calloc(1, sizeof *rig);
    struct pollfd fd;
    uint64_t deadline = test_now_ms() + TEST_EVENTUALLY_MS;

    rig_open(rig, &o, 1);
    (void)rig_relay(rig, 0, &host.addr);
    mr_set_miss_events(rig->mr, 1);
    rig_settle(rig);
    rig_send(rig, &guest, 0, "knock", 5);
    fd = (struct pollfd){.fd = mr_fd(rig->mr), .events = POLLIN};
    while (rig_count(rig, MR_EVENT_MISS) == 0 && test_now_ms() < deadline) {
        int timeout = mr_timeout_ms(rig->mr);

        CHECK_GE(poll(&fd, 1, timeout < 0 || timeout > 5000 ? 5000 : timeout), 0);
        rig_poll(rig);
    }
    CHECK_EQ(rig_count(rig, MR_EVENT_MISS), 1);
    /* Nothing to do: it sleeps, and does not say otherwise for ever. */
    for (unsigned i = 0; i < 100 && (mr_timeout_ms(rig->mr) == 0 || poll(&fd, 1, 0) > 0); i++)
        rig_poll(rig);
    CHECK_NE(mr_timeout_ms(rig->mr), 0);
    CHECK_EQ(poll(&fd, 1, 0), 0);
    rig_close(rig);
    free(rig);
    rig_peer_close(&host);
    rig_peer_close(&guest);
}

TEST(the_descriptor_wakes_an_embedder_who_sleeps)
{
    sleep_and_poll(0);
    sleep_and_poll(1);
    sleep_and_poll(2);
}

TEST(the_descriptor_wakes_who_has_never_polled)
{
    struct mr_options o = rig_options(2);
    struct mr *mr;

    REQUIRE_EQ(mr_create(&mr, &o), 0);
    uint64_t seq = mr_ping(mr);
    struct pollfd fd = {.fd = mr_fd(mr), .events = POLLIN};
    CHECK_EQ(poll(&fd, 1, TEST_EVENTUALLY_MS), 1);
    CHECK_EVENTUALLY(mr_in_force(mr) >= seq);
    mr_destroy(mr);
}

TEST(errors_have_texts)
{
    CHECK_STR(mr_strerror(-ENOENT), mr_strerror(ENOENT));
    CHECK(strlen(mr_strerror(0)) > 0);
    CHECK_STR(mr_strerror(-99999), "unknown error");
    CHECK_STR(mr_version(), MR_VERSION_STRING);
}

/* A manual relay over real sockets: the embedder gets what its peer sends, also large
 * and empty datagrams, also when he is slow. */
static void hand_over(int workers)
{
    enum { N = 40 };
    struct mr_options o = rig_options(workers);
    struct peer peer = rig_peer();
    struct rig *rig = calloc(1, sizeof *rig);
    struct mr_relay_spec spec;
    struct mr_event e[4];
    mr_relay_id id;
    uint8_t *data = malloc(65507);
    unsigned next = 0;
    uint64_t deadline = test_now_ms() + TEST_EVENTUALLY_MS;

    for (unsigned i = 0; i < 65507; i++)
        data[i] = (uint8_t)(i * 7);
    rig_open(rig, &o, 1);
    mr_relay_spec_init(&spec, sizeof spec);
    spec.port = 0;
    spec.peer = peer.addr;
    spec.flags = MR_RELAY_MANUAL;
    CHECK_EQ(mr_relay_create(rig->mr, &spec, &id), 0);
    rig_settle(rig);
    while (next < N && test_now_ms() < deadline) {
        size_t size = next % 4 == 0 ? 65507 : next % 4 == 1 ? 0 : next;
        int n = 0;

        rig_send(rig, &peer, 0, data, size);
        while (n == 0 && test_now_ms() < deadline) {
            n = mr_poll(rig->mr, e, 4);
            REQUIRE(n >= 0);
            for (int i = 0; i < n; i++) {
                if (e[i].type != MR_EVENT_DATAGRAM)
                    continue;
                CHECK_EQ(e[i].relay, id);
                CHECK_EQ(e[i].u.datagram.port, 0);
                CHECK(mr_addr_equal(&e[i].u.datagram.from, &peer.addr));
                CHECK_MEM(e[i].u.datagram.data, e[i].u.datagram.size, data, size);
                next++;
            }
            test_pause();
        }
    }
    CHECK_EQ(next, N);
    CHECK_EQ(rig_stats(rig).verdicts[MR_VERDICT_MANUAL], N);
    /* Without a reader it fills up, is counted, and goes on afterwards. */
    for (unsigned i = 0; i < 30; i++)
        rig_send(rig, &peer, 0, data, 65507);
    deadline = test_now_ms() + TEST_EVENTUALLY_MS;
    if (workers > 0) {
        while (rig_stats(rig).received < N + 30 && test_now_ms() < deadline)
            test_pause();
        CHECK_GT(rig_stats(rig).verdicts[MR_VERDICT_EVENT_FULL], 0);
    }
    rig_check_conservation(rig);
    rig_close(rig);
    free(rig);
    free(data);
    rig_peer_close(&peer);
}

TEST(an_embedder_gets_what_a_manual_relays_peer_sends)
{
    hand_over(0);
    hand_over(1);
}

TEST_MAIN(TEST_CASE(options_out_of_range_are_refused),
          TEST_CASE(workers_are_as_many_as_the_machine_gives),
          TEST_CASE(memory_that_is_refused_at_creation_leaves_nothing_running),
          TEST_CASE(descriptors_that_are_refused_leave_nothing_open),
          TEST_CASE(a_port_that_is_taken_is_refused_and_the_index_is_not_used_up),
          TEST_CASE(memory_that_is_refused_later_loses_no_command),
          TEST_CASE(the_descriptor_wakes_an_embedder_who_sleeps),
          TEST_CASE(the_descriptor_wakes_who_has_never_polled), TEST_CASE(errors_have_texts),
          TEST_CASE(an_embedder_gets_what_a_manual_relays_peer_sends))
