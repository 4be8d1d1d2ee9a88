/* SPDX-License-Identifier: MIT */
/*
 * Datagrams over real sockets, with the engine in the caller's thread and with workers.
 * Start reading at for_each_worker_count().
 */
#include "rig.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

static const int worker_counts[] = {0, 1, 2};

static void for_each_worker_count(void (*run)(int workers))
{
    for (unsigned i = 0; i < 3; i++)
        run(worker_counts[i]);
}

/* Two peers with a relay each, paired: a at port 0, b at port 1. */
struct duo {
    struct rig rig;
    struct peer a, b;
    mr_relay_id relay_a, relay_b;
};

static struct duo *duo_open(int workers)
{
    struct duo *d = calloc(1, sizeof *d);
    struct mr_options o = rig_options(workers);

    rig_open(&d->rig, &o, 2);
    d->a = rig_peer();
    d->b = rig_peer();
    d->relay_a = rig_relay(&d->rig, 0, &d->a.addr);
    d->relay_b = rig_relay(&d->rig, 1, &d->b.addr);
    CHECK_EQ(mr_pair(d->rig.mr, d->relay_a, d->relay_b), 0);
    rig_settle(&d->rig);
    return d;
}

static void duo_close(struct duo *d)
{
    rig_check_conservation(&d->rig);
    rig_close(&d->rig);
    rig_peer_close(&d->a);
    rig_peer_close(&d->b);
    free(d);
}

static void pass_both_ways(int workers)
{
    struct duo *d = duo_open(workers);
    char buf[64];
    uint16_t from = 0;

    rig_send(&d->rig, &d->a, 1, "hello", 5);
    CHECK_EQ(rig_receive(&d->rig, &d->b, buf, sizeof buf, &from), 5);
    CHECK_MEM(buf, 5, "hello", 5);
    CHECK_EQ(from, rig_udp_port(&d->rig, 0));
    rig_send(&d->rig, &d->b, 0, "yes", 3);
    CHECK_EQ(rig_receive(&d->rig, &d->a, buf, sizeof buf, &from), 3);
    CHECK_MEM(buf, 3, "yes", 3);
    CHECK_EQ(from, rig_udp_port(&d->rig, 1));
    duo_close(d);
}

TEST(a_pair_exchanges_datagrams_each_seen_at_the_senders_port)
{
    for_each_worker_count(pass_both_ways);
}

static void pass_sizes(int workers)
{
    static const size_t sizes[] = {0, 1, 64, 1472, 1473, 2048, 2049, 9000, 65506, 65507};
    struct duo *d = duo_open(workers);
    uint8_t *out = malloc(65536), *in = malloc(65536);

    for (size_t i = 0; i < 65536; i++)
        out[i] = (uint8_t)test_random();
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        int n;

        rig_send(&d->rig, &d->a, 1, out, sizes[k]);
        n = rig_receive(&d->rig, &d->b, in, 65536, NULL);
        REQUIRE_EQ(n, (int)sizes[k]);
        CHECK_MEM(in, (size_t)n, out, sizes[k]);
    }
    free(out);
    free(in);
    duo_close(d);
}

TEST(payloads_of_every_size_arrive_byte_exact)
{
    for_each_worker_count(pass_sizes);
}

static void pass_in_order(int workers)
{
    enum { N = 500 };
    struct duo *d = duo_open(workers);

    for (uint32_t i = 0; i < N; i++)
        rig_send(&d->rig, &d->a, 1, &i, sizeof i);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t got = 0;

        REQUIRE_EQ(rig_receive(&d->rig, &d->b, &got, sizeof got, NULL), 4);
        REQUIRE_EQ(got, i);
    }
    duo_close(d);
}

TEST(a_burst_of_one_flow_keeps_its_order)
{
    for_each_worker_count(pass_in_order);
}

TEST_MAIN(TEST_CASE(a_pair_exchanges_datagrams_each_seen_at_the_senders_port),
          TEST_CASE(payloads_of_every_size_arrive_byte_exact),
          TEST_CASE(a_burst_of_one_flow_keeps_its_order))
