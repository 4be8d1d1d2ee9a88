/* SPDX-License-Identifier: MIT */
/*
 * Receiving and sending over real sockets, with system calls that fail on order
 * (faults.h). One thread. Start reading at struct setup.
 */
#include "base/alloc.h"
#include "faults.h"
#include "io/kernel.h"
#include "io/transport.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

static const int errors[] = {EPERM,        EMSGSIZE, ENETUNREACH,   EHOSTUNREACH,
                             ECONNREFUSED, EINVAL,   ENOMEM,        EACCES,
                             EPIPE,        ENETDOWN, EADDRNOTAVAIL, EPROTONOSUPPORT};
enum { ERRORS = sizeof errors / sizeof errors[0] };

/* A relay's socket between a sender and a receiver, and what a worker has. */
struct setup {
    struct rx rx;
    struct tx tx;
    struct batch batch;
    struct rx_source source;
    struct tx_socket socket;
    struct socket_info info, peer_info;
    int peer;
};

static int open_loopback(struct socket_info *info)
{
    struct mr_addr local = {.ip = {127, 0, 0, 1}, .family = 4};
    int fd = mr__socket_open(&local, 0, 4 << 20, info);

    CHECK_GE(fd, 0);
    return fd;
}

static struct setup *setup_open(void)
{
    struct setup *s = calloc(1, sizeof *s);

    fault_reset();
    CHECK_EQ(mr__rx_init(&s->rx), 0);
    CHECK_EQ(mr__tx_init(&s->tx), 0);
    s->tx.run_max = 1;
    s->source.fd = open_loopback(&s->info);
    s->source.port = 7;
    s->socket = (struct tx_socket){.fd = s->source.fd, .family = 4};
    s->peer = open_loopback(&s->peer_info);
    return s;
}

static void setup_close(struct setup *s)
{
    fault_reset();
    mr__socket_close(s->source.fd);
    mr__socket_close(s->peer);
    mr__rx_deinit(&s->rx);
    mr__tx_deinit(&s->tx);
    free(s);
}

/* Lets the peer send n datagrams of one number each, counting from `first`. */
static void peer_sends(struct setup *s, uint32_t first, unsigned n)
{
    union socket_addr sa;
    socklen_t len = mr__socket_addr_write(&sa, &s->info.local, 4);

    for (uint32_t i = first; i < first + n; i++)
        REQUIRE_EQ(sendto(s->peer, &i, sizeof i, 0, &sa.any, len), 4);
}

static int receive(struct setup *s)
{
    s->rx.turn++;
    return mr__transport_kernel.receive(&s->rx, &s->source, &s->batch);
}

static void restart(struct setup *s)
{
    s->batch.n = 0;
    mr__rx_reset(&s->rx);
}

static uint32_t number(const struct batch *b, unsigned i)
{
    uint32_t value;

    memcpy(&value, b->data[i], sizeof value);
    return value;
}

/* ------------------------------------------------------------------ receiving */

TEST(a_datagram_comes_with_its_sender_its_size_and_its_port)
{
    struct setup *s = setup_open();

    peer_sends(s, 99, 1);
    CHECK_EQ(receive(s), 1);
    REQUIRE_EQ(s->batch.n, 1);
    CHECK_EQ(s->batch.rx[0].size, 4);
    CHECK_EQ(s->batch.rx[0].port, 7);
    CHECK_EQ(s->batch.rx[0].flags, 0);
    CHECK(mr_addr_equal(&s->batch.rx[0].from, &s->peer_info.local));
    CHECK_EQ(number(&s->batch, 0), 99);
    CHECK_EQ(receive(s), 0);
    setup_close(s);
}

TEST(sparse_traffic_is_read_by_single_calls)
{
    struct setup *s = setup_open();

    for (uint32_t i = 0; i < 20; i++) {
        peer_sends(s, i, 1);
        CHECK_EQ(receive(s), 1);
        s->rx.turn++; /* a turn at which the socket is not readable */
        restart(s);
    }
    CHECK_EQ(fault_count(FAULT_RECVFROM), 20);
    CHECK_EQ(fault_count(FAULT_RECVMMSG), 0);
    setup_close(s);
}

TEST(a_queue_is_read_in_growing_batches_in_order_and_then_singly_again)
{
    enum { N = 500 };
    struct setup *s = setup_open();
    uint32_t expected = 0;
    unsigned calls;

    peer_sends(s, 0, N);
    while (expected < N) {
        REQUIRE_GE(receive(s), 1);
        for (unsigned i = 0; i < s->batch.n; i++)
            REQUIRE_EQ(number(&s->batch, i), expected++);
        restart(s);
    }
    calls = fault_count(FAULT_RECVFROM) + fault_count(FAULT_RECVMMSG);
    CHECK_LT(calls, N / 10);
    CHECK_EQ(s->source.batch, RX_BATCH_MAX);

    peer_sends(s, 0, 1);
    CHECK_EQ(receive(s), 1);
    restart(s);
    calls = fault_count(FAULT_RECVMMSG);
    peer_sends(s, 0, 1);
    CHECK_EQ(receive(s), 1);
    CHECK_EQ(fault_count(FAULT_RECVMMSG), calls);
    setup_close(s);
}

TEST(trying_batches_in_vain_becomes_rare)
{
    enum { N = 1000 };
    struct setup *s = setup_open();

    /* Readable at every turn, with one datagram each time: a steady flow, no queue. */
    for (uint32_t i = 0; i < N; i++) {
        peer_sends(s, i, 1);
        REQUIRE_EQ(receive(s), 1);
        restart(s);
    }
    CHECK_LT(fault_count(FAULT_RECVMMSG), N / 20);
    setup_close(s);
}

TEST(a_batch_never_outgrows_the_room)
{
    struct setup *s = setup_open();
    unsigned total = 0;

    peer_sends(s, 0, 200);
    for (unsigned i = 0; i < 20 && s->batch.n < BATCH_MAX; i++)
        REQUIRE_GE(receive(s), 1);
    total = s->batch.n;
    CHECK_EQ(total, BATCH_MAX);
    CHECK_EQ(receive(s), 0);
    for (unsigned i = 0; i < BATCH_MAX; i++)
        CHECK_EQ(number(&s->batch, i), i);
    setup_close(s);
}

TEST(every_error_of_a_read_is_over_after_that_read)
{
    struct setup *s = setup_open();

    for (unsigned k = 0; k < ERRORS; k++) {
        peer_sends(s, k, 2);
        fault_next(FAULT_RECVFROM, errors[k]);
        s->source = (struct rx_source){.fd = s->source.fd, .port = 7};
        CHECK_EQ(receive(s), -errors[k]);
        CHECK_EQ(s->batch.n, 0);
        s->rx.turn++;
        CHECK_EQ(receive(s), 1);

        s->source.batch = RX_BATCH_FIRST;
        fault_next(FAULT_RECVMMSG, errors[k]);
        CHECK_EQ(receive(s), -errors[k]);
        s->source.batch = RX_BATCH_FIRST;
        CHECK_EQ(receive(s), 1);
        CHECK_EQ(s->batch.n, 2);
        CHECK_EQ(number(&s->batch, 1), k + 1);
        restart(s);
    }
    setup_close(s);
}

TEST(nothing_there_is_no_error_and_interruptions_are_repeated)
{
    struct setup *s = setup_open();

    CHECK_EQ(receive(s), 0);
    s->rx.turn++; /* a turn at which the socket is not readable */
    peer_sends(s, 5, 2);
    fault_next(FAULT_RECVFROM, EINTR);
    fault_next(FAULT_RECVFROM, EINTR);
    CHECK_EQ(receive(s), 1);
    s->source.batch = RX_BATCH_FIRST;
    fault_next(FAULT_RECVMMSG, EINTR);
    CHECK_EQ(receive(s), 1);
    CHECK_EQ(s->batch.n, 2);

    /* Even without end they do not hold the thread. */
    fault_always(FAULT_RECVFROM, EINTR);
    fault_always(FAULT_RECVMMSG, EINTR);
    s->source.batch = 1;
    CHECK_EQ(receive(s), 0);
    s->source.batch = RX_BATCH_FIRST;
    CHECK_EQ(receive(s), 0);
    setup_close(s);
}

TEST(a_cut_datagram_is_marked)
{
    struct setup *s = setup_open();

    peer_sends(s, 1, 4);
    fault_truncate(FAULT_RECVFROM);
    CHECK_EQ(receive(s), 1);
    CHECK_EQ(s->batch.rx[0].flags, MR__RX_TRUNCATED);
    CHECK_EQ(s->batch.rx[0].size, RX_SLOT);
    s->source.batch = RX_BATCH_FIRST;
    fault_truncate(FAULT_RECVMMSG);
    CHECK_EQ(receive(s), 3);
    CHECK_EQ(s->batch.rx[1].flags, MR__RX_TRUNCATED);
    CHECK_EQ(s->batch.rx[2].flags, 0);
    CHECK_EQ(number(&s->batch, 2), 3);
    setup_close(s);
}

TEST(an_icmp_error_of_one_peer_disturbs_nobody)
{
    struct setup *s = setup_open();
    struct socket_info gone;
    int fd = open_loopback(&gone);
    const uint16_t first = 0;

    mr__socket_close(fd);
    s->batch.n = 1;
    s->batch.rx[0] = (struct plane_rx){.size = 0};
    s->batch.data[0] = s->rx.arena;
    for (unsigned i = 0; i < 100; i++) {
        /* Loopback answers with "port unreachable" at once. */
        s->batch.out[0] = (struct plane_out){.verdict = MR_VERDICT_FORWARD, .to = gone.local};
        mr__transport_kernel.send(&s->tx, &s->socket, &s->batch, &first, 1);
        CHECK_EQ(s->batch.out[0].verdict, MR_VERDICT_FORWARD);
    }
    restart(s);
    peer_sends(s, 3, 1);
    CHECK_EQ(receive(s), 1);
    setup_close(s);
}

/* ------------------------------------------------------------------ sending */

/* n datagrams for the peer, each with its number. */
static void fill(struct setup *s, unsigned n)
{
    restart(s);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *data = mr__rx_borrow(&s->rx, sizeof i);

        memcpy(data, &i, sizeof i);
        s->batch.rx[i] = (struct plane_rx){.size = sizeof i};
        s->batch.out[i] = (struct plane_out){
            .verdict = MR_VERDICT_FORWARD, .to = s->peer_info.local, .egress = 0};
        s->batch.data[i] = data;
    }
    s->batch.n = n;
}

/* One message a datagram, unless the test is about runs. */
static void flush(struct setup *s)
{
    mr__tx_flush(&s->tx, &mr__transport_kernel, &s->socket, &s->batch);
}

/* What the peer got must be what counts as sent, in order. */
static void check_arrived(struct setup *s)
{
    uint32_t got = 0;

    for (unsigned i = 0; i < s->batch.n; i++) {
        if (s->batch.out[i].verdict != MR_VERDICT_FORWARD)
            continue;
        REQUIRE_EQ(recv(s->peer, &got, sizeof got, 0), 4);
        CHECK_EQ(got, i);
    }
    CHECK_EQ(recv(s->peer, &got, sizeof got, 0), -1);
}

static unsigned count_verdict(const struct setup *s, unsigned verdict)
{
    unsigned n = 0;

    for (unsigned i = 0; i < s->batch.n; i++)
        n += s->batch.out[i].verdict == verdict;
    return n;
}

TEST(one_refused_datagram_costs_only_itself)
{
    enum { N = 64 };
    struct setup *s = setup_open();

    for (unsigned k = 0; k < ERRORS; k++) {
        for (unsigned at = 0; at < N; at += 21) {
            fault_reset();
            fill(s, N);
            if (at > 0)
                fault_short(FAULT_SENDMMSG, at);
            fault_next(FAULT_SENDMMSG, errors[k]);
            flush(s);
            CHECK_EQ(count_verdict(s, MR_VERDICT_FORWARD), N - 1);
            CHECK_EQ(s->batch.out[at].verdict, MR_VERDICT_SEND_FAILED);
            CHECK_LE(fault_count(FAULT_SENDMMSG), 3);
            check_arrived(s);
        }
    }
    setup_close(s);
}

TEST(a_single_refused_datagram_is_counted)
{
    struct setup *s = setup_open();

    for (unsigned k = 0; k < ERRORS; k++) {
        fill(s, 1);
        fault_next(FAULT_SENDTO, errors[k]);
        flush(s);
        CHECK_EQ(s->batch.out[0].verdict, MR_VERDICT_SEND_FAILED);
        check_arrived(s);
    }
    fill(s, 1);
    fault_next(FAULT_SENDTO, ENOBUFS);
    flush(s);
    CHECK_EQ(s->batch.out[0].verdict, MR_VERDICT_SEND_FULL);
    fill(s, 1);
    fault_next(FAULT_SENDTO, EAGAIN);
    flush(s);
    CHECK_EQ(s->batch.out[0].verdict, MR_VERDICT_SEND_FULL);
    fill(s, 1);
    fault_next(FAULT_SENDTO, EINTR);
    flush(s);
    CHECK_EQ(s->batch.out[0].verdict, MR_VERDICT_FORWARD);
    check_arrived(s);
    setup_close(s);
}

TEST(a_call_that_stops_short_is_continued)
{
    struct setup *s = setup_open();

    fill(s, 64);
    for (unsigned i = 0; i < 10; i++)
        fault_short(FAULT_SENDMMSG, 1 + i % 3);
    flush(s);
    CHECK_EQ(count_verdict(s, MR_VERDICT_FORWARD), 64);
    check_arrived(s);
    setup_close(s);
}

static void check_full(int err)
{
    struct setup *s = setup_open();

    /* A few that had no room cost themselves ... */
    fill(s, 64);
    for (unsigned i = 0; i < TX_FULL_MAX - 1; i++)
        fault_next(FAULT_SENDMMSG, err);
    flush(s);
    CHECK_EQ(count_verdict(s, MR_VERDICT_SEND_FULL), TX_FULL_MAX - 1);
    CHECK_EQ(count_verdict(s, MR_VERDICT_FORWARD), 64 - (TX_FULL_MAX - 1));
    check_arrived(s);

    /* ... and a streak says that the rest need not be tried. */
    fault_reset();
    fill(s, 64);
    fault_short(FAULT_SENDMMSG, 10);
    for (unsigned i = 0; i < TX_FULL_MAX; i++)
        fault_next(FAULT_SENDMMSG, err);
    flush(s);
    CHECK_EQ(count_verdict(s, MR_VERDICT_FORWARD), 10);
    CHECK_EQ(count_verdict(s, MR_VERDICT_SEND_FULL), 54);
    CHECK_EQ(fault_count(FAULT_SENDMMSG), 1 + TX_FULL_MAX);
    check_arrived(s);
    setup_close(s);
}

TEST(a_full_buffer_ends_the_batch_and_a_hiccup_does_not)
{
    check_full(EAGAIN);
    check_full(ENOBUFS);
}

TEST(endless_interruptions_do_not_hold_the_thread)
{
    struct setup *s = setup_open();

    fill(s, 64);
    fault_always(FAULT_SENDMMSG, EINTR);
    flush(s);
    CHECK_EQ(count_verdict(s, MR_VERDICT_SEND_FAILED), 64);
    CHECK_LE(fault_count(FAULT_SENDMMSG), 64 * EINTR_MAX);
    fill(s, 1);
    fault_always(FAULT_SENDTO, EINTR);
    flush(s);
    CHECK_EQ(count_verdict(s, MR_VERDICT_SEND_FAILED), 1);
    CHECK_LE(fault_count(FAULT_SENDTO), EINTR_MAX);
    setup_close(s);
}

TEST(errors_and_successes_in_any_mix_lose_exactly_the_refused)
{
    struct setup *s = setup_open();

    for (unsigned round = 0; round < 200; round++) {
        unsigned n = 2 + (unsigned)test_random_below(63), refused = 0;

        fault_reset();
        fill(s, n);
        for (unsigned k = 0; k < 20; k++) {
            unsigned what = (unsigned)test_random_below(3);

            if (what == 0)
                fault_next(FAULT_SENDMMSG, errors[test_random_below(ERRORS)]);
            else if (what == 1)
                fault_short(FAULT_SENDMMSG, 1 + (unsigned)test_random_below(8));
            else
                fault_next(FAULT_SENDMMSG, EINTR);
        }
        flush(s);
        refused = count_verdict(s, MR_VERDICT_SEND_FAILED);
        CHECK_EQ(count_verdict(s, MR_VERDICT_FORWARD), n - refused);
        check_arrived(s);
    }
    setup_close(s);
}

TEST(what_leaves_by_one_socket_is_sent_by_one_call_in_order)
{
    struct setup *s = setup_open();
    struct tx_socket sockets[3];
    struct socket_info infos[3];
    uint32_t got;

    for (unsigned k = 0; k < 3; k++)
        sockets[k] = (struct tx_socket){.fd = open_loopback(&infos[k]), .family = 4};
    fill(s, 60);
    for (unsigned i = 0; i < 60; i++)
        s->batch.out[i].egress = i % 3;
    s->batch.out[10].verdict = MR_VERDICT_BANDWIDTH; /* not to be sent */
    mr__tx_flush(&s->tx, &mr__transport_kernel, sockets, &s->batch);
    CHECK_EQ(fault_count(FAULT_SENDMMSG), 3);
    CHECK_EQ(fault_count(FAULT_SENDTO), 0);
    for (unsigned k = 0; k < 3; k++) {
        for (unsigned i = k; i < 60; i += 3) {
            if (i == 10)
                continue;
            REQUIRE_EQ(recv(s->peer, &got, sizeof got, 0), 4);
            CHECK_EQ(got, i);
        }
        mr__socket_close(sockets[k].fd);
    }
    setup_close(s);
}

TEST(an_ipv6_peer_cannot_be_reached_by_an_ipv4_socket)
{
    struct setup *s = setup_open();

    fill(s, 2);
    s->batch.out[0].to.family = 6;
    flush(s);
    CHECK_EQ(s->batch.out[0].verdict, MR_VERDICT_SEND_FAILED);
    CHECK_EQ(s->batch.out[1].verdict, MR_VERDICT_FORWARD);
    check_arrived(s);
    setup_close(s);
}

/* ------------------------------------------------------------------ runs */

/* Sizes of a batch for the peer, payloads that can be told apart. */
static void fill_sizes(struct setup *s, const uint32_t *sizes, unsigned n)
{
    restart(s);
    for (unsigned i = 0; i < n; i++) {
        uint8_t *data = mr__rx_borrow(&s->rx, sizes[i]);

        for (uint32_t k = 0; k < sizes[i]; k++)
            data[k] = (uint8_t)(i * 31 + k);
        s->batch.rx[i] = (struct plane_rx){.size = sizes[i]};
        s->batch.out[i] =
            (struct plane_out){.verdict = MR_VERDICT_FORWARD, .to = s->peer_info.local};
        s->batch.data[i] = data;
    }
    s->batch.n = n;
    s->tx.run_max = TX_RUN_MAX;
}

static void check_payloads(struct setup *s)
{
    static uint8_t got[65536];

    for (unsigned i = 0; i < s->batch.n; i++) {
        ssize_t n;

        if (s->batch.out[i].verdict != MR_VERDICT_FORWARD)
            continue;
        n = recv(s->peer, got, sizeof got, 0);
        REQUIRE_EQ(n, (ssize_t)s->batch.rx[i].size);
        CHECK_MEM(got, (size_t)n, s->batch.data[i], s->batch.rx[i].size);
    }
    CHECK_EQ(recv(s->peer, got, sizeof got, 0), -1);
}

TEST(runs_of_one_flow_arrive_as_the_datagrams_they_were)
{
    static const uint32_t sizes[] = {90, 90, 90, 60, 60, 0,    0,    1,   1,    2,    90,  60,
                                     90, 90, 5,  5,  5,  1400, 1400, 700, 1401, 1401, 9000};
    struct setup *s = setup_open();
    uint32_t random[BATCH_MAX];

    fill_sizes(s, sizes, sizeof sizes / sizeof sizes[0]);
    flush(s);
    check_payloads(s);
    for (unsigned round = 0; round < 200; round++) {
        unsigned n = 2 + (unsigned)test_random_below(BATCH_MAX - 1);

        for (unsigned i = 0; i < n; i++)
            random[i] = 100 * (uint32_t)test_random_below(4) + (uint32_t)test_random_below(2);
        fill_sizes(s, random, n);
        flush(s);
        CHECK_EQ(count_verdict(s, MR_VERDICT_FORWARD), n);
        check_payloads(s);
    }
    CHECK_EQ(s->tx.run_refusals, 0);
    setup_close(s);
}

TEST(a_run_is_one_message_and_long_ones_are_cut)
{
    struct setup *s = setup_open();
    uint32_t sizes[BATCH_MAX];

    for (unsigned i = 0; i < BATCH_MAX; i++)
        sizes[i] = 1400;
    fill_sizes(s, sizes, BATCH_MAX); /* 89,600 bytes: more than one message can be */
    flush(s);
    CHECK_EQ(fault_count(FAULT_SENDMMSG), 1);
    CHECK_EQ(count_verdict(s, MR_VERDICT_FORWARD), BATCH_MAX);
    check_payloads(s);
    setup_close(s);
}

TEST(flows_between_one_another_are_not_mixed_up)
{
    struct setup *s = setup_open();
    struct socket_info other_info;
    int other = open_loopback(&other_info);
    uint32_t sizes[BATCH_MAX];
    uint8_t got[100];

    for (unsigned i = 0; i < BATCH_MAX; i++)
        sizes[i] = 50;
    fill_sizes(s, sizes, BATCH_MAX);
    for (unsigned i = 0; i < BATCH_MAX; i++) {
        if (i / 5 % 2)
            s->batch.out[i].to = other_info.local;
    }
    flush(s);
    for (unsigned i = 0; i < BATCH_MAX; i++) {
        REQUIRE_EQ(recv(i / 5 % 2 ? other : s->peer, got, sizeof got, 0), 50);
        CHECK_MEM(got, 50, s->batch.data[i], 50);
    }
    mr__socket_close(other);
    setup_close(s);
}

TEST(a_refused_run_is_sent_one_by_one_and_loses_only_what_is_refused_again)
{
    struct setup *s = setup_open();
    uint32_t sizes[20];

    for (unsigned i = 0; i < 20; i++)
        sizes[i] = 50;
    for (unsigned k = 0; k < ERRORS; k++) {
        fault_reset();
        s->tx.run_refusals = 0;
        fill_sizes(s, sizes, 20);
        fault_next(FAULT_SENDMMSG, errors[k]);
        flush(s);
        CHECK_EQ(count_verdict(s, MR_VERDICT_FORWARD), 20);
        CHECK_EQ(s->tx.run_refusals, 1);
        check_payloads(s);

        fill_sizes(s, sizes, 20);
        fault_next(FAULT_SENDMMSG, errors[k]);
        fault_next(FAULT_SENDTO, 0);
        fault_next(FAULT_SENDTO, errors[k]);
        flush(s);
        CHECK_EQ(s->batch.out[1].verdict, MR_VERDICT_SEND_FAILED);
        CHECK_EQ(count_verdict(s, MR_VERDICT_FORWARD), 19);
        CHECK_EQ(s->tx.run_refusals, 1);
        check_payloads(s);
    }
    setup_close(s);
}

TEST(a_run_for_which_there_is_no_room_ends_the_batch)
{
    struct setup *s = setup_open();
    uint32_t sizes[30];

    /* Runs of ten: the second is refused, and so are four of it one by one. */
    for (unsigned i = 0; i < 30; i++)
        sizes[i] = 50 + i / 10;
    fill_sizes(s, sizes, 30);
    fault_short(FAULT_SENDMMSG, 1);
    fault_next(FAULT_SENDMMSG, ENOBUFS);
    for (unsigned i = 0; i < TX_FULL_MAX; i++)
        fault_next(FAULT_SENDTO, ENOBUFS);
    flush(s);
    CHECK_EQ(count_verdict(s, MR_VERDICT_FORWARD), 10);
    CHECK_EQ(count_verdict(s, MR_VERDICT_SEND_FULL), 20);
    CHECK_EQ(fault_count(FAULT_SENDTO), TX_FULL_MAX);
    check_payloads(s);
    setup_close(s);
}

TEST(a_way_out_that_cannot_cut_runs_is_no_longer_asked_to)
{
    struct setup *s = setup_open();
    uint32_t sizes[10];

    for (unsigned i = 0; i < 10; i++)
        sizes[i] = 50;
    fill_sizes(s, sizes, 10);
    for (unsigned round = 0; round < 100 && s->tx.run_max > 1; round++) {
        fault_next(FAULT_SENDMMSG, EIO);
        flush(s);
        check_payloads(s);
    }
    CHECK_EQ(s->tx.run_max, 1);
    fault_reset();
    flush(s);
    check_payloads(s);
    CHECK_EQ(fault_count(FAULT_SENDTO), 0);
    setup_close(s);
}

TEST(memory_that_is_refused_leaves_nothing_behind)
{
    long before = mr__alloc_live();

    for (long n = 0; n < 4; n++) {
        struct rx rx;
        struct tx tx;
        int r;

        mr__alloc_fail_after(n);
        r = mr__rx_init(&rx);
        if (r == 0) {
            r = mr__tx_init(&tx);
            if (r == 0)
                mr__tx_deinit(&tx);
            mr__rx_deinit(&rx);
        }
        mr__alloc_fail_after(-1);
        CHECK_EQ(r, n < 3 ? -ENOMEM : 0);
        CHECK_EQ(mr__alloc_live(), before);
    }
}

TEST_MAIN(TEST_CASE(a_datagram_comes_with_its_sender_its_size_and_its_port),
          TEST_CASE(sparse_traffic_is_read_by_single_calls),
          TEST_CASE(a_queue_is_read_in_growing_batches_in_order_and_then_singly_again),
          TEST_CASE(trying_batches_in_vain_becomes_rare),
          TEST_CASE(a_batch_never_outgrows_the_room),
          TEST_CASE(every_error_of_a_read_is_over_after_that_read),
          TEST_CASE(nothing_there_is_no_error_and_interruptions_are_repeated),
          TEST_CASE(a_cut_datagram_is_marked), TEST_CASE(an_icmp_error_of_one_peer_disturbs_nobody),
          TEST_CASE(one_refused_datagram_costs_only_itself),
          TEST_CASE(a_single_refused_datagram_is_counted),
          TEST_CASE(a_call_that_stops_short_is_continued),
          TEST_CASE(a_full_buffer_ends_the_batch_and_a_hiccup_does_not),
          TEST_CASE(endless_interruptions_do_not_hold_the_thread),
          TEST_CASE(errors_and_successes_in_any_mix_lose_exactly_the_refused),
          TEST_CASE(what_leaves_by_one_socket_is_sent_by_one_call_in_order),
          TEST_CASE(an_ipv6_peer_cannot_be_reached_by_an_ipv4_socket),
          TEST_CASE(runs_of_one_flow_arrive_as_the_datagrams_they_were),
          TEST_CASE(a_run_is_one_message_and_long_ones_are_cut),
          TEST_CASE(flows_between_one_another_are_not_mixed_up),
          TEST_CASE(a_refused_run_is_sent_one_by_one_and_loses_only_what_is_refused_again),
          TEST_CASE(a_run_for_which_there_is_no_room_ends_the_batch),
          TEST_CASE(a_way_out_that_cannot_cut_runs_is_no_longer_asked_to),
          TEST_CASE(memory_that_is_refused_leaves_nothing_behind))
