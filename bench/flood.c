/* SPDX-License-Identifier: MIT */
/*
 * What attacks the daemon in bench/floods.lua, each kind by a word. It goes on until its stdin ends
 * or, where COUNT is not 0, so much was sent; then it writes what it did to stdout, as key=value.
 * RATE is a second's, 0: as fast as it goes. One thread, loopback only.
 *
 *     flood forged RATE COUNT FIRST BYTES PORT...   datagrams, each from another source (root):
 * addresses and ports from number FIRST on flood junk RATE COUNT SOURCES PORT      empty, 1, 128
 * and 1,400 bytes from so many sockets; counts what comes back flood plain RATE COUNT BYTES PORT
 * datagrams from the socket that is descriptor 3 flood slow CONNECTIONS ADDRESSES EVERY_MS PORT TCP
 * connections that send a byte now and then, and come again when they are closed
 *
 * Start reading at the table `kinds`.
 */
#include "bench_child.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

enum {
    BATCH = 64,
    HEADERS = 28, /* IPv4 and UDP */
    BYTES_MAX = 1400,
    SOCKETS_MAX = 16384,
    PORTS_MAX = 1024,
    CATCH_UP_MS = 20,
    READY_MAX = 256,
    AGAIN_MS = 200, /* a connection that was closed comes again after */
};

struct packet {
    uint8_t bytes[HEADERS + BYTES_MAX];
};

static uint64_t began_ns, sent, not_taken;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t n = strtoull(text, &end, 10);

    if (end == text || *end) {
        fprintf(stderr, "flood: '%s' is no number\n", text);
        exit(2);
    }
    return n;
}

/* ------------------------------------------------------------------ pace */

static bool has_ended(int wait_ms)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};

    return poll(&p, 1, wait_ms) != 0;
}

/* How many are due, BATCH at most; 0: all is done. What a stall of ours has missed is not made up
 * for beyond some milliseconds, or it would come as another flood than the one that was asked for.
 */
static unsigned due(uint64_t rate, uint64_t count)
{
    static uint64_t skipped;
    uint64_t left = count ? count - sent : UINT64_MAX;

    if (has_ended(0))
        return 0;
    while (rate > 0 && left > 0) {
        uint64_t wanted = (uint64_t)((double)(now_ns() - began_ns) / 1e9 * (double)rate) - skipped;
        uint64_t most = BATCH + rate * CATCH_UP_MS / 1000;

        if (wanted > sent + most) {
            skipped += wanted - sent - most;
            wanted = sent + most;
        }
        if (wanted > sent) {
            left = wanted - sent < left ? wanted - sent : left;
            break;
        }
        if (has_ended(1))
            return 0;
    }
    return left < BATCH ? (unsigned)left : BATCH;
}

static void report(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void report(const char *format, ...)
{
    va_list args;

    printf("sent=%" PRIu64 " not_taken=%" PRIu64 " seconds=%.3f", sent, not_taken,
           (double)(now_ns() - began_ns) / 1e9);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

/* All of them, or as many as the kernel refuses one by one. */
static void send_all(int fd, struct mmsghdr *messages, unsigned n)
{
    for (unsigned done = 0; done < n;) {
        int took = sendmmsg(fd, messages + done, n - done, 0);

        if (took > 0) {
            done += (unsigned)took;
        } else if (errno != EINTR) {
            not_taken++;
            done++;
        }
    }
    sent += n;
}

/* ------------------------------------------------------------------ forged sources */

static void put_u16(uint8_t *at, unsigned n)
{
    at[0] = (uint8_t)(n >> 8);
    at[1] = (uint8_t)n;
}

/* The kernel fills in the length and checksum of the IP header; a UDP checksum of 0 is none. */
static void fill_packet(struct packet *p, unsigned payload, unsigned port)
{
    static const uint8_t ip[] = {0x45, 0, 0,   0, 0, 0, 0,   0, 64, 17,
                                 0,    0, 127, 0, 0, 1, 127, 0, 0,  1};

    memset(p, 0, sizeof *p);
    memcpy(p->bytes, ip, sizeof ip);
    put_u16(p->bytes + 22, port);
    put_u16(p->bytes + 24, 8 + payload);
}

/* Number k's source in 127.0.0.0/8: no two numbers below 2^28 have the same. 127.128 and above are
 * nobody else's here, and no port is below 1024. */
static void forge(struct packet *p, uint64_t k)
{
    p->bytes[13] = (uint8_t)(128 + (k >> 16) % 128);
    p->bytes[14] = (uint8_t)(k >> 8);
    p->bytes[15] = (uint8_t)k;
    put_u16(p->bytes + 20, 1024 + (unsigned)((k >> 23) * 7 % 64000));
}

static int flood_forged(char **argv, int argc)
{
    static struct packet packets[BATCH];
    struct iovec parts[BATCH];
    struct mmsghdr messages[BATCH];
    struct sockaddr_in to[BATCH];
    uint64_t rate = number(argv[0]), count = number(argv[1]), k = number(argv[2]);
    unsigned bytes = (unsigned)number(argv[3]), n, ports_n = (unsigned)argc - 4;
    int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);

    if (fd < 0)
        fail("a raw socket");
    if (bytes > BYTES_MAX || ports_n > PORTS_MAX)
        return 2;
    for (unsigned i = 0; i < BATCH; i++) {
        fill_packet(&packets[i], bytes, 0);
        parts[i] = (struct iovec){.iov_base = packets[i].bytes, .iov_len = HEADERS + bytes};
        to[i] = bench_loopback(0);
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_name = &to[i],
                                                   .msg_namelen = sizeof to[i],
                                                   .msg_iov = &parts[i],
                                                   .msg_iovlen = 1}};
    }
    while ((n = due(rate, count)) > 0) {
        for (unsigned i = 0; i < n; i++, k++) {
            forge(&packets[i], k);
            put_u16(packets[i].bytes + 22, (unsigned)strtoul(argv[4 + k % ports_n], NULL, 10));
        }
        send_all(fd, messages, n);
    }
    report(" sources=%" PRIu64, sent);
    return 0;
}

/* ------------------------------------------------------------------ from real sockets */

static struct sockaddr_in source(unsigned i)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f600001u + i)};
}

static int udp_socket(unsigned i)
{
    struct sockaddr_in own = source(i);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof own) < 0)
        fail("a source's socket");
    return fd;
}

static uint64_t read_answers(int fd)
{
    uint8_t data[BYTES_MAX];
    uint64_t bytes = 0;
    ssize_t n;

    while ((n = recv(fd, data, sizeof data, MSG_DONTWAIT)) >= 0)
        bytes += (uint64_t)n;
    return bytes;
}

static int flood_junk(char **argv, int argc)
{
    static const unsigned sizes[] = {0, 1, 128, 1400};
    static uint8_t data[BYTES_MAX];
    static int fds[SOCKETS_MAX];
    uint64_t rate = number(argv[0]), count = number(argv[1]), bytes_out = 0, bytes_in = 0;
    unsigned sources = (unsigned)number(argv[2]), at = 0, n;
    struct sockaddr_in to = bench_loopback((uint16_t)number(argv[3]));
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];

    (void)argc;
    if (sources == 0 || sources > SOCKETS_MAX)
        return 2;
    memset(data, 'x', sizeof data);
    for (unsigned i = 0; i < sources; i++)
        fds[i] = udp_socket(i);
    for (unsigned i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){.iov_base = data, .iov_len = sizes[i % 4]};
        messages[i] = (struct mmsghdr){
            .msg_hdr = {
                .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &parts[i], .msg_iovlen = 1}};
    }
    began_ns = now_ns();
    /* Some at once from each source: the kernel's way through one call is the same for all. */
    while ((n = due(rate, count)) > 0) {
        n = n < 16 ? n : 16;
        send_all(fds[at], messages, n);
        for (unsigned i = 0; i < n; i++)
            bytes_out += sizes[i % 4];
        bytes_in += read_answers(fds[at]);
        at = (at + 1) % sources;
    }
    (void)has_ended(200); /* answers that are under way */
    for (unsigned i = 0; i < sources; i++)
        bytes_in += read_answers(fds[i]);
    report(" sources=%u bytes=%" PRIu64 " answered_bytes=%" PRIu64, sources, bytes_out, bytes_in);
    return 0;
}

static int flood_plain(char **argv, int argc)
{
    static uint8_t data[BYTES_MAX];
    uint64_t rate = number(argv[0]), count = number(argv[1]);
    struct iovec part = {.iov_base = data, .iov_len = number(argv[2])};
    struct sockaddr_in to = bench_loopback((uint16_t)number(argv[3]));
    struct mmsghdr messages[BATCH];
    unsigned n;

    (void)argc;
    if (part.iov_len > BYTES_MAX)
        return 2;
    for (unsigned i = 0; i < BATCH; i++)
        messages[i] = (struct mmsghdr){
            .msg_hdr = {
                .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1}};
    while ((n = due(rate, count)) > 0)
        send_all(3, messages, n);
    report(" bytes=%" PRIu64, sent * part.iov_len);
    return 0;
}

/* ------------------------------------------------------------------ slow connections */

static struct slow {
    int fd; /* -1: it waits to come again */
    uint64_t due_ns;
} slows[SOCKETS_MAX];

static struct {
    uint64_t opened, ended, refused, answered_bytes, bytes;
    unsigned here, most;
} tcp;

static int poller;

static void slow_connect(unsigned i, unsigned addresses, const struct sockaddr_in *to, uint64_t now)
{
    struct sockaddr_in own = source(i % addresses);
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.u32 = i};
    struct slow *s = &slows[i];
    int on = 1;

    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd < 0)
        fail("a connection's socket");
    (void)setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(s->fd, (struct sockaddr *)&own, sizeof own) < 0)
        fail("a connection's address");
    if (connect(s->fd, (const struct sockaddr *)to, sizeof *to) < 0 && errno != EINPROGRESS) {
        tcp.refused++;
        close(s->fd);
        s->fd = -1;
        s->due_ns = now + AGAIN_MS * 1000000u;
        return;
    }
    if (epoll_ctl(poller, EPOLL_CTL_ADD, s->fd, &e) < 0)
        fail("epoll_ctl");
    tcp.opened++;
    if (++tcp.here > tcp.most)
        tcp.most = tcp.here;
    s->due_ns = now + (uint64_t)(i % 100) * 10000000; /* its first byte within a second */
}

static void slow_close(struct slow *s, uint64_t now)
{
    struct linger at_once = {.l_onoff = 1};

    /* Without TIME_WAIT on either side, or an address would be used up. */
    (void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(s->fd);
    s->fd = -1;
    s->due_ns = now + AGAIN_MS * 1000000u;
    tcp.here--;
    tcp.ended++;
}

static void slow_read(struct slow *s, uint64_t now)
{
    char data[512];
    ssize_t n;

    while (s->fd >= 0) {
        n = recv(s->fd, data, sizeof data, MSG_DONTWAIT);
        if (n > 0) {
            tcp.answered_bytes += (uint64_t)n;
        } else {
            if (n == 0 || errno != EAGAIN)
                slow_close(s, now);
            return;
        }
    }
}

/* Connections begin at some thousand a second, so that no listener's backlog decides what is seen.
 */
static void slow_turn(unsigned n, unsigned addresses, uint64_t every_ns,
                      const struct sockaddr_in *to)
{
    uint64_t now = now_ns();
    unsigned begun = 0;

    for (unsigned i = 0; i < n; i++) {
        struct slow *s = &slows[i];

        if (s->due_ns > now)
            continue;
        if (s->fd < 0) {
            if (begun++ < 20)
                slow_connect(i, addresses, to, now);
            continue;
        }
        s->due_ns = now + every_ns;
        if (send(s->fd, "e", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
            tcp.bytes++;
    }
}

static int flood_slow(char **argv, int argc)
{
    unsigned n = (unsigned)number(argv[0]), addresses = (unsigned)number(argv[1]);
    uint64_t every_ns = number(argv[2]) * 1000000;
    struct sockaddr_in to = bench_loopback((uint16_t)number(argv[3]));
    struct epoll_event events[READY_MAX];

    (void)argc;
    if (n == 0 || n > SOCKETS_MAX || addresses == 0)
        return 2;
    poller = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < n; i++)
        slows[i].fd = -1;
    while (!has_ended(0)) {
        int ready = epoll_wait(poller, events, READY_MAX, 5);

        for (int i = 0; i < ready; i++)
            slow_read(&slows[events[i].data.u32], now_ns());
        slow_turn(n, addresses, every_ns, &to);
    }
    sent = tcp.opened;
    report(" ended=%" PRIu64 " refused=%" PRIu64 " most=%u here=%u bytes=%" PRIu64
           " answered_bytes=%" PRIu64,
           tcp.ended, tcp.refused, tcp.most, tcp.here, tcp.bytes, tcp.answered_bytes);
    return 0;
}

/* ------------------------------------------------------------------ which */

static const struct kind {
    const char *name;
    int arguments; /* at least */
    int (*run)(char **argv, int argc);
} kinds[] = {
    {"forged", 5, flood_forged},
    {"junk", 4, flood_junk},
    {"plain", 4, flood_plain},
    {"slow", 4, flood_slow},
};

int main(int argc, char **argv)
{
    began_ns = now_ns();
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (argc >= 2 + kinds[i].arguments && strcmp(argv[1], kinds[i].name) == 0)
            return kinds[i].run(argv + 2, argc - 2);
    }
    fprintf(stderr, "usage: flood forged|junk|plain|slow ... (see bench/flood.c)\n");
    return 2;
}
