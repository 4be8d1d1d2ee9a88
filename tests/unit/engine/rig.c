/* SPDX-License-Identifier: MIT */
/*
 * The engine's rig. One thread. Start reading at rig_open().
 */
#include "rig.h"

#include "io/socket.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

_Atomic uint64_t rig_now_ns;

uint64_t rig_clock(void *user)
{
    (void)user;
    return rig_now_ns;
}

struct mr_options rig_options(int workers)
{
    struct mr_options o;

    mr_options_init(&o, sizeof o);
    o.workers = workers;
    o.max_ports = 256;
    return o;
}

struct mr_options rig_virtual_options(void)
{
    struct mr_options o = rig_options(0);

    o.io = MR_IO_NONE;
    o.clock_ns = rig_clock;
    rig_now_ns = UINT64_C(1000000000000);
    return o;
}

struct mr_addr rig_addr(const char *text)
{
    struct mr_addr a;

    memset(&a, 0, sizeof a);
    CHECK_EQ((int)mr_addr_parse(&a, text, strlen(text), NULL), (int)MR_ADDR_OK);
    return a;
}

void rig_open(struct rig *rig, const struct mr_options *opts, unsigned ports)
{
    struct mr_addr local = rig_addr("127.0.0.1:0");

    memset(rig, 0, sizeof *rig);
    CHECK_EQ(mr_create(&rig->mr, opts), 0);
    if (!rig->mr)
        abort();
    for (unsigned i = 0; i < ports; i++) {
        uint32_t port;

        CHECK_EQ(mr_port_open(rig->mr, &local, 0, &port), 0);
        CHECK_EQ(port, i);
    }
    rig_settle(rig);
}

void rig_close(struct rig *rig)
{
    mr_destroy(rig->mr);
    rig->mr = NULL;
}

void rig_poll(struct rig *rig)
{
    unsigned room = RIG_EVENTS - rig->n;
    int n;

    if (room == 0)
        abort();
    n = mr_poll(rig->mr, rig->events + rig->n, room);
    if (n < 0)
        abort();
    rig->n += (unsigned)n;
}

void rig_settle(struct rig *rig)
{
    uint64_t seq = mr_seq(rig->mr);
    uint64_t deadline = test_now_ms() + TEST_EVENTUALLY_MS;

    do {
        rig_poll(rig);
        if (mr_in_force(rig->mr) < seq)
            test_pause();
    } while (mr_in_force(rig->mr) < seq && test_now_ms() < deadline);
    CHECK_GE(mr_in_force(rig->mr), seq);
    rig_poll(rig);
}

unsigned rig_count(const struct rig *rig, enum mr_event_type type)
{
    unsigned count = 0;

    for (unsigned i = 0; i < rig->n; i++)
        count += rig->events[i].type == type;
    return count;
}

int rig_await(struct rig *rig, enum mr_event_type type, unsigned count)
{
    uint64_t deadline = test_now_ms() + TEST_EVENTUALLY_MS;

    rig_poll(rig);
    while (rig_count(rig, type) < count && test_now_ms() < deadline) {
        test_pause();
        rig_poll(rig);
    }
    return rig_count(rig, type) >= count;
}

const struct mr_event *rig_event(const struct rig *rig, enum mr_event_type type, unsigned nth)
{
    static const struct mr_event none;

    for (unsigned i = 0; i < rig->n; i++) {
        if (rig->events[i].type == type && nth-- == 0)
            return &rig->events[i];
    }
    FAIL("no such event");
    return &none;
}

void rig_forget(struct rig *rig)
{
    rig->n = 0;
}

mr_relay_id rig_relay(struct rig *rig, uint32_t port, const struct mr_addr *peer)
{
    struct mr_relay_spec spec;
    mr_relay_id id = 0;

    mr_relay_spec_init(&spec, sizeof spec);
    spec.port = port;
    spec.peer = *peer;
    CHECK_EQ(mr_relay_create(rig->mr, &spec, &id), 0);
    return id;
}

struct mr_stats rig_stats(struct rig *rig)
{
    struct mr_stats s;

    CHECK_EQ(mr_get_stats(rig->mr, &s, sizeof s), 0);
    return s;
}

static uint64_t missing(struct rig *rig)
{
    struct mr_stats s = rig_stats(rig);
    uint64_t sum = s.held;

    for (unsigned v = 0; v < MR_VERDICT_COUNT; v++)
        sum += s.verdicts[v];
    return s.received - sum;
}

void rig_check_conservation(struct rig *rig)
{
    uint64_t deadline = test_now_ms() + TEST_EVENTUALLY_MS;

    /* A worker may be between two counters. */
    while (missing(rig) != 0 && test_now_ms() < deadline) {
        rig_poll(rig);
        test_pause();
    }
    CHECK_EQ(missing(rig), 0);
}

struct peer rig_peer(void)
{
    struct mr_addr local = rig_addr("127.0.0.1:0");
    struct socket_info info;
    struct peer p = {.fd = mr__socket_open(&local, 0, 1 << 20, &info)};

    CHECK_GE(p.fd, 0);
    p.addr = info.local;
    return p;
}

void rig_peer_close(struct peer *p)
{
    mr__socket_close(p->fd);
    p->fd = -1;
}

uint16_t rig_udp_port(const struct rig *rig, uint32_t port)
{
    struct mr_port_info info = {.relay = 0};

    CHECK_EQ(mr_port_info(rig->mr, port, &info), 0);
    return info.local.port;
}

void rig_send(struct rig *rig, const struct peer *p, uint32_t port, const void *data, size_t n)
{
    struct mr_port_info info = {.relay = 0};
    union socket_addr sa;
    socklen_t len;

    CHECK_EQ(mr_port_info(rig->mr, port, &info), 0);
    len = mr__socket_addr_write(&sa, &info.local, 4);
    CHECK_EQ(sendto(p->fd, data, n, 0, &sa.any, len), (ssize_t)n);
}

static int receive(const struct peer *p, void *buf, size_t cap, uint16_t *from_port)
{
    union socket_addr sa;
    socklen_t len = sizeof sa;
    ssize_t n = recvfrom(p->fd, buf, cap, MSG_DONTWAIT, &sa.any, &len);
    struct mr_addr from;

    if (n < 0)
        return -1;
    mr__socket_addr_read(&from, &sa);
    if (from_port)
        *from_port = from.port;
    return (int)n;
}

int rig_receive(struct rig *rig, const struct peer *p, void *buf, size_t cap, uint16_t *from_port)
{
    uint64_t deadline = test_now_ms() + TEST_EVENTUALLY_MS;

    for (;;) {
        int n;

        rig_poll(rig);
        n = receive(p, buf, cap, from_port);
        if (n >= 0 || test_now_ms() >= deadline)
            return n;
        test_pause();
    }
}

int rig_try_receive(const struct peer *p, void *buf, size_t cap)
{
    return receive(p, buf, cap, NULL);
}
