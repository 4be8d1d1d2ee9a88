/* SPDX-License-Identifier: MIT */
/*
 * A daemon under everything at once: pairs that play at a steady rate and must lose nothing,
 * guests that join and leave, junk from random sources, reloads, players that vanish. At the end:
 * nothing was lost, nothing reached whom it was not for, memory and descriptors stayed flat, the
 * counters conserve, the log has no error. One thread; players speak the real protocol from
 * addresses of 127.0.0.0/16, junk comes from 127.64.0.0 and above, which are nobody's address.
 *
 *   soak --program PATH --folder DIR [--seconds N] [--pairs N] ...    (scripts/soak)
 *
 * Start reading at soak(); a player's way is in step().
 */
#include "soak_daemon.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>

enum {
    PAYLOAD = 64,
    LINE = 512,
    GUESTS_FOR_S = 4, /* as many places as guests of so many seconds */
    JUNK_SOCKETS = 16,
    JUNK_BATCH = 64,
    JUNK_MAX = 1400,
    RETRY_MS = 200,
    GUEST_PERIOD_MS = 50, /* between what a guest sends */
    GUEST_STAY_MS = 1500, /* at most, once it plays */
    SILENCE_MS = 5000,    /* a pair that hears nothing for so long is broken */
    SETTLE_MS = 15000,    /* for what is under way when a pair stops: late is not lost */
    GREET_MS = 3000,      /* a port of a relay that ended is nobody's for 4 s */
    REMEMBER_S = 600,     /* the daemon remembers players' addresses so long */
    ADDRESSES = 65500,    /* of players, at most */
    CATCH_UP = 8,         /* datagrams at most at once, after a stall of ours */
    WINDOW = 64,
    LATENCIES = 40,    /* powers of sqrt(2) of 10 us */
    SAMPLES = 1 << 16, /* one a second */
    CLOSING_S = 60,
    STILL_MS = 1000, /* without a turn: the machine has no time for us, nor maybe for the daemon */
    ADDRESS_BYTES = 112, /* of the daemon's heap, for one that is remembered */
    ADDRESS_BYTES_SANITIZED = 176,
    NOISE_KB = 192, /* more than flat memory differs by, less than a leak of 1 kB/s in 267 s */
    NOISE_KB_SANITIZED = 512,
    NOISE_FDS = 32,
};

static const uint64_t MAGIC = 0x6d6f6f6e736f616b;

enum kind { HELLO = 1, ANSWER, DATA, AFTER };

/* What a player sends. AFTER is not counted: it goes to somebody who has left. */
struct payload {
    uint64_t magic;
    uint32_t kind, pair, slot, life;
    uint64_t number, sent_ns, fill[3];
};
_Static_assert(sizeof(struct payload) == PAYLOAD, "the payload has its size");

enum role { HOST, CLIENT, GUEST };
static const char *const role_names[] = {"host", "client", "guest"};

enum state { ABSENT, NAMING, REGISTERING, ASKING, GREETING, PLAYING, SETTLING };

struct player {
    enum role role;
    enum state state;
    bool has_asked; /* what this state asks once */
    int tcp, udp;
    uint32_t pair, slot, life; /* a slot's next player has another life */
    uint32_t address;
    uint64_t since_ms, retry_ms, leave_ms, heard_ms, due_ns;
    uint16_t to;       /* the relay port that stands for the other one */
    uint16_t after_to; /* of a client that vanished, for a while */
    unsigned after_n;
    uint64_t sent, number; /* DATA of this life of the pair; SENT to TO */
    uint64_t got, last, window;
    char oid[64], pid[160], line[LINE];
    size_t line_n;
};

struct options {
    const char *program, *folder;
    double seconds, warm_up, rate, joins, junk, resets, loss, ramp, patience;
    unsigned pairs, addresses, ports, reload_ms, seed;
    int is_sanitized, is_alone; /* alone: in a network of its own */
};

static struct options opt = {.seconds = 60,
                             .warm_up = -1,
                             .rate = 30,
                             .joins = 100,
                             .junk = 20000,
                             .resets = 5,
                             .pairs = 500,
                             .addresses = ADDRESSES,
                             .ports = 4096,
                             .reload_ms = 1000,
                             .ramp = 1000,
                             .patience = 20};

static struct {
    uint64_t sent, skipped, received, lost, duplicates, disordered, foreign, broken;
    uint64_t guests, guests_served, guests_left_out, resets, junk, refused, stuck, not_taken;
    uint64_t asked_again;
    uint64_t to_relays;   /* every datagram that the kernel took for a relay port */
    uint64_t on_loopback; /* dropped by the kernel on the way from a socket to another */
    uint64_t own_drops, reloads, reloads_failed, longest_turn_ms;
    uint64_t latency[LATENCIES];
} sum;

static struct sample {
    long resident_kb, data_kb, fds, connections, addresses;
} samples[SAMPLES];
static unsigned samples_n;
static uint32_t used_s[ADDRESSES]; /* when a player of that address was last there; 0: never */

static struct daemon server;
static struct player *players;
static unsigned players_n, guests_n;
static int poller, junk_sockets[JUNK_SOCKETS];
static long connections;
static uint64_t now_ms, random_state;
static bool is_ending; /* nobody begins anything any more */
static unsigned failures;

/* ------------------------------------------------------------------ chance */

static uint32_t chance(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 16) % below);
}

static void check(bool is_true, const char *what)
{
    if (is_true)
        return;
    failures++;
    printf("NOT TRUE: %s\n", what);
}

/* ------------------------------------------------------------------ sockets */

static struct sockaddr_in relay_port(uint16_t port)
{
    return bench_loopback(port);
}

static void watch(int fd, uint32_t slot, int is_udp, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.u64 = (uint64_t)slot << 1 | (unsigned)is_udp};

    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e) < 0) {
        perror("epoll_ctl");
        exit(2);
    }
}

static void close_udp(struct player *p)
{
    uint32_t info[9] = {0};
    socklen_t n = sizeof info;

    if (p->udp < 0)
        return;
    if (getsockopt(p->udp, SOL_SOCKET, SO_MEMINFO, info, &n) == 0)
        sum.own_drops += info[8]; /* SK_MEMINFO_DROPS */
    close(p->udp);
    p->udp = -1;
}

static void close_tcp(struct player *p, bool is_reset)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    if (p->tcp < 0)
        return;
    if (is_reset)
        setsockopt(p->tcp, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(p->tcp);
    p->tcp = -1;
    connections--;
}

/* Times are moments only; that something was asked has a word of its own, since any number may be a
 * moment. */
static void enter(struct player *p, enum state state)
{
    p->state = state;
    p->since_ms = now_ms;
    p->retry_ms = 0;
    p->has_asked = false;
}

static void leave(struct player *p, bool is_reset)
{
    close_tcp(p, is_reset);
    close_udp(p);
    p->state = ABSENT;
    p->life++;
    used_s[p->address] = (uint32_t)(now_ms / 1000);
}

/* Both sockets at an address of its own in 127.0.0.0/16; the TCP connection begins. */
static void arrive(struct player *p)
{
    p->address = chance(opt.addresses);

    struct sockaddr_in own = {.sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(0x7f000002u + p->address)};
    struct sockaddr_in to = bench_loopback(server.command);
    int bytes = BENCH_BUFFER_BYTES;

    p->udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    p->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->udp < 0 || p->tcp < 0 || bind(p->udp, (struct sockaddr *)&own, sizeof own) < 0 ||
        bind(p->tcp, (struct sockaddr *)&own, sizeof own) < 0) {
        perror("a player's sockets");
        exit(2);
    }
    if (setsockopt(p->udp, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0)
        (void)setsockopt(p->udp, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    connections++;
    enter(p, NAMING);
    p->line_n = 0;
    p->sent = p->number = p->got = p->last = p->window = 0;
    p->oid[0] = p->pid[0] = '\0';
    p->to = 0;
    watch(p->udp, p->slot, 1, EPOLLIN);
    if (connect(p->tcp, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS) {
        sum.refused++;
        leave(p, true);
        return;
    }
    watch(p->tcp, p->slot, 0, EPOLLIN | EPOLLOUT | EPOLLET);
}

static void say(struct player *p, const char *line)
{
    size_t n = strlen(line);

    if (write(p->tcp, line, n) != (ssize_t)n)
        sum.refused++;
}

static bool send_payload(struct player *p, uint16_t port, enum kind kind, uint32_t slot,
                         uint32_t life, uint64_t number)
{
    struct sockaddr_in to = relay_port(port);
    struct payload data = {.magic = MAGIC,
                           .kind = kind,
                           .pair = p->pair,
                           .slot = slot,
                           .life = life,
                           .number = number,
                           .sent_ns = now_ns(CLOCK_MONOTONIC)};

    if (sendto(p->udp, &data, sizeof data, 0, (struct sockaddr *)&to, sizeof to) != sizeof data) {
        sum.not_taken++;
        return false;
    }
    sum.to_relays++;
    return true;
}

/* ------------------------------------------------------------------ a pair's accounts */

static struct player *partner(const struct player *p)
{
    return &players[p->role == HOST ? opt.pairs + p->pair : p->pair];
}

static void count_latency(uint64_t sent_ns)
{
    double us = (double)(now_ns(CLOCK_MONOTONIC) - sent_ns) / 1000;
    int at = us <= 10 ? 0 : (int)(2 * log2(us / 10));

    sum.latency[at < LATENCIES ? at : LATENCIES - 1]++;
}

/* In a window of the latest numbers, so that a datagram that came twice hides none that is lost. */
static void count_data(struct player *p, const struct payload *data)
{
    uint64_t ago;

    p->heard_ms = now_ms;
    count_latency(data->sent_ns);
    if (data->number > p->last) {
        uint64_t on = data->number - p->last;

        p->window = on < WINDOW ? p->window << on | 1 : 1;
        p->last = data->number;
        p->got++;
        return;
    }
    sum.disordered++;
    ago = p->last - data->number;
    if (ago < WINDOW && (p->window >> ago & 1)) {
        sum.duplicates++;
        return;
    }
    if (ago < WINDOW)
        p->window |= (uint64_t)1 << ago;
    p->got++;
}

static void close_accounts(struct player *client)
{
    struct player *host = &players[client->pair];

    sum.sent += client->sent + host->sent;
    sum.received += host->got + client->got;
    sum.lost += client->sent - host->got + (host->sent - client->got);
    client->sent = client->got = client->last = client->window = client->number = 0;
    host->sent = host->got = host->last = host->window = host->number = 0;
}

/* ------------------------------------------------------------------ what comes in */

/* It is not for P: what it was, so that one can see whether it was old. */
static void got_foreign(const struct player *p, const struct payload *data)
{
    if (sum.foreign++ < 10)
        printf("foreign: pair %u's %s has something of pair %u, kind %u, sent %.0f ms ago\n",
               p->pair, role_names[p->role], data->pair, data->kind,
               (double)(now_ns(CLOCK_MONOTONIC) - data->sent_ns) / 1e6);
}

static void got_data(struct player *p, const struct payload *data)
{
    const struct player *client = &players[opt.pairs + p->pair];

    /* What a client that vanished had sent belongs to accounts that are closed. */
    if (data->life != client->life)
        return;
    if (data->slot != client->slot) {
        got_foreign(p, data);
        return;
    }
    if (client->state == PLAYING || client->state == SETTLING)
        count_data(p, data);
}

/* A host answers whoever greets it; its own client's port is where it plays from then on. */
static void got_hello(struct player *host, const struct payload *data, uint16_t from)
{
    if (host->role != HOST || data->slot < opt.pairs || data->slot >= players_n) {
        got_foreign(host, data);
        return;
    }
    if (data->slot == opt.pairs + host->pair && data->life == players[data->slot].life)
        host->to = from;
    (void)send_payload(host, from, ANSWER, data->slot, data->life, data->number);
}

static void got_answer(struct player *p, const struct payload *data)
{
    if (p->role == HOST || data->slot != p->slot) {
        got_foreign(p, data);
        return;
    }
    if (p->state != GREETING || data->life != p->life)
        return;
    p->state = PLAYING;
    p->since_ms = p->heard_ms = p->retry_ms = now_ms;
    p->leave_ms = now_ms + chance(GUEST_STAY_MS);
    if (p->role == GUEST) {
        sum.guests_served++;
        return;
    }
    p->due_ns = now_ns(CLOCK_MONOTONIC) + chance(1000) * 30000u;
    players[p->pair].due_ns = now_ns(CLOCK_MONOTONIC) + chance(1000) * 30000u;
    players[p->pair].heard_ms = now_ms;
}

static void got_datagram(struct player *p, const struct payload *data, size_t n, uint16_t from)
{
    if (from == server.registrar) {
        if (n == 2 && p->state == REGISTERING)
            enter(p, p->role == HOST ? PLAYING : ASKING);
        return;
    }
    if (n != sizeof *data || data->magic != MAGIC) {
        if (sum.foreign++ < 10)
            printf("foreign: pair %u's %s has %zu bytes of junk\n", p->pair, role_names[p->role],
                   n);
        return;
    }
    if (data->pair != p->pair) {
        got_foreign(p, data);
        return;
    }
    if (data->kind == HELLO)
        got_hello(p, data, from);
    else if (data->kind == ANSWER)
        got_answer(p, data);
    else if (data->kind == DATA && p->role != GUEST)
        got_data(p, data);
    else if (data->kind != AFTER)
        got_foreign(p, data);
}

static void read_udp(struct player *p)
{
    struct payload data[16];
    struct sockaddr_in from[16];
    struct iovec parts[16];
    struct mmsghdr messages[16];
    int n = 0;

    do {
        for (unsigned i = 0; i < 16; i++) {
            parts[i] = (struct iovec){.iov_base = &data[i], .iov_len = sizeof data[i]};
            messages[i].msg_hdr = (struct msghdr){.msg_name = &from[i],
                                                  .msg_namelen = sizeof from[i],
                                                  .msg_iov = &parts[i],
                                                  .msg_iovlen = 1};
        }
        n = recvmmsg(p->udp, messages, 16, MSG_DONTWAIT, NULL);
        for (int i = 0; i < n; i++)
            got_datagram(p, &data[i], messages[i].msg_len, ntohs(from[i].sin_port));
    } while (n == 16);
}

static void take_line(struct player *p, char *line)
{
    if (sscanf(line, "set-oid %63s", p->oid) == 1)
        return;
    if (sscanf(line, "set-pid %159s", p->pid) == 1 && p->state == NAMING) {
        enter(p, REGISTERING);
    } else if (strncmp(line, "connect-relay ", 14) == 0 && p->state == ASKING) {
        p->to = (uint16_t)strtoul(line + 14, NULL, 10);
        enter(p, GREETING);
    } else if (strncmp(line, "error ", 6) == 0) {
        if (sum.refused++ < 10)
            printf("refused: %s\n", line);
    }
}

static void read_tcp(struct player *p)
{
    ssize_t n = 0;

    while (p->tcp >= 0 && (n = read(p->tcp, p->line + p->line_n, LINE - 1 - p->line_n)) > 0) {
        char *end, *line = p->line;

        p->line_n += (size_t)n;
        p->line[p->line_n] = '\0';
        while ((end = strchr(line, '\n'))) {
            *end = '\0';
            take_line(p, line);
            line = end + 1;
        }
        p->line_n -= (size_t)(line - p->line);
        memmove(p->line, line, p->line_n);
    }
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        if (!is_ending && sum.refused++ < 10)
            printf("closed by the server: %s\n", n < 0 ? strerror(errno) : "end");
        p->since_ms = 0; /* stuck: step() begins anew */
        close_tcp(p, false);
    }
}

/* ------------------------------------------------------------------ what goes out */

static void pace(struct player *p, uint64_t now)
{
    const struct player *client = &players[opt.pairs + p->pair];
    uint64_t period = (uint64_t)(1e9 / opt.rate);

    if (now > p->due_ns + CATCH_UP * period) {
        sum.skipped += (now - p->due_ns) / period;
        p->due_ns = now;
    }
    for (; p->due_ns <= now; p->due_ns += period) {
        if (send_payload(p, p->to, DATA, client->slot, client->life, p->number + 1)) {
            p->number++;
            p->sent++;
        }
    }
}

/* Without a word: RST, and what still comes for it finds no socket. */
static void vanish(struct player *client)
{
    struct player *host = &players[client->pair];

    close_accounts(client);
    host->after_to = host->to;
    host->after_n = host->to ? 20 : 0;
    host->to = 0;
    leave(client, true);
    client->retry_ms = now_ms;
}

static void play_pair(struct player *client)
{
    struct player *host = &players[client->pair];
    uint64_t now = now_ns(CLOCK_MONOTONIC);

    if (client->state == SETTLING) {
        if ((client->sent == host->got && host->sent == client->got) ||
            now_ms - client->since_ms > SETTLE_MS)
            vanish(client);
        return;
    }
    pace(client, now);
    if (host->to != 0)
        pace(host, now);
    if (now_ms > client->heard_ms + SILENCE_MS || now_ms > host->heard_ms + SILENCE_MS) {
        sum.broken++;
        vanish(client);
    }
}

static void play_guest(struct player *p)
{
    if (now_ms >= p->leave_ms) {
        leave(p, chance(2) == 0);
        return;
    }
    if (now_ms >= p->retry_ms) {
        p->retry_ms = now_ms + GUEST_PERIOD_MS;
        (void)send_payload(p, p->to, HELLO, p->slot, p->life, 0);
    }
}

static void play_host(struct player *p)
{
    if (p->after_n > 0 && now_ms >= p->retry_ms) {
        p->retry_ms = now_ms + GUEST_PERIOD_MS;
        p->after_n--;
        (void)send_payload(p, p->after_to, AFTER, 0, 0, 0);
    }
}

static void ask_for_relay(struct player *p)
{
    const struct player *host = &players[p->pair];
    char line[128];

    if (host->state != PLAYING) {
        p->since_ms = now_ms;
        return;
    }
    if (!p->has_asked) {
        p->has_asked = true;
        snprintf(line, sizeof line, "connect-relay %s\n", host->oid);
        say(p, line);
    }
}

static void register_address(struct player *p)
{
    struct sockaddr_in to = bench_loopback(server.registrar);

    if (now_ms < p->retry_ms)
        return;
    p->retry_ms = now_ms + RETRY_MS;
    (void)sendto(p->udp, p->pid, strlen(p->pid), 0, (struct sockaddr *)&to, sizeof to);
}

/* Where there is no processor for two seconds a relay ends before its player has spoken. Who greets
 * in vain asks anew, as a game would: soon, since in a while the port is somebody else's. */
static void greet(struct player *p)
{
    if (now_ms > p->since_ms + GREET_MS) {
        sum.asked_again++;
        enter(p, ASKING);
        return;
    }
    if (now_ms < p->retry_ms)
        return;
    p->retry_ms = now_ms + RETRY_MS;
    (void)send_payload(p, p->to, HELLO, p->slot, p->life, 0);
}

static void begin_anew(struct player *p)
{
    static const char *const states[] = {"absent",   "naming",  "registering", "asking",
                                         "greeting", "playing", "settling"};
    struct tcp_info info = {0};
    socklen_t n = sizeof info;

    if (sum.stuck++ < 10) {
        if (p->tcp >= 0)
            getsockopt(p->tcp, IPPROTO_TCP, TCP_INFO, &info, &n);
        printf(
            "stuck: a %s, %s%s, relay port %u; its connection: state %u, %u not acknowledged, %u "
            "retransmissions, last answer %u ms ago\n",
            role_names[p->role], states[p->state], p->has_asked ? ", asked" : "", p->to,
            info.tcpi_state, info.tcpi_unacked, info.tcpi_total_retrans, info.tcpi_last_data_recv);
    }
    if (p->role == CLIENT && p->state >= PLAYING)
        vanish(p);
    else
        leave(p, true);
    p->retry_ms = now_ms;
    if (p->role == HOST && partner(p)->state != ABSENT)
        vanish(partner(p));
}

static void step(struct player *p)
{
    bool is_on_its_way = p->state >= NAMING && p->state <= GREETING;

    if ((is_on_its_way && now_ms > p->since_ms + (uint64_t)(1000 * opt.patience)) ||
        (p->state != ABSENT && p->tcp < 0)) {
        begin_anew(p);
        return;
    }
    if (is_on_its_way && p->role == GUEST && now_ms >= p->leave_ms) {
        leave(p, true); /* had no patience */
        return;
    }
    if (p->state == ABSENT && p->role != GUEST && !is_ending && now_ms >= p->retry_ms)
        arrive(p);
    else if (p->state == REGISTERING)
        register_address(p);
    else if (p->state == ASKING)
        ask_for_relay(p);
    else if (p->state == GREETING)
        greet(p);
    else if (p->state >= PLAYING && p->role == CLIENT)
        play_pair(p);
    else if (p->state == PLAYING && p->role == GUEST)
        play_guest(p);
    else if (p->state == PLAYING && p->role == HOST)
        play_host(p);
}

/* ------------------------------------------------------------------ the disturbances */

/* How many of something are due by now, at a rate; a second's worth at most. */
static unsigned due(double rate, double *owed, double elapsed_s)
{
    unsigned n;

    *owed = fmin(*owed + rate * elapsed_s, fmax(rate, 1));
    n = (unsigned)*owed;
    *owed -= n;
    return n;
}

static void guest_arrives(void)
{
    static unsigned next;

    for (unsigned tries = 0; tries < guests_n; tries++) {
        struct player *p = &players[2 * opt.pairs + next++ % guests_n];

        if (p->state != ABSENT)
            continue;
        p->pair = chance(opt.pairs);
        p->retry_ms = 0;
        p->leave_ms = now_ms + (chance(8) == 0 ? chance(300) : (uint64_t)(2000 * opt.patience));
        arrive(p);
        sum.guests++;
        return;
    }
    sum.guests_left_out++;
}

static void reset_a_client(void)
{
    struct player *p = &players[opt.pairs + chance(opt.pairs)];

    if (p->state != PLAYING)
        return;
    p->state = SETTLING;
    p->since_ms = now_ms;
    sum.resets++;
}

static void send_junk(unsigned n)
{
    static unsigned char bytes[JUNK_MAX * 2];
    static unsigned turn;
    struct mmsghdr messages[JUNK_BATCH] = {0};
    struct sockaddr_in to[JUNK_BATCH];
    struct iovec parts[JUNK_BATCH];
    union {
        char room[CMSG_SPACE(sizeof(struct in_pktinfo))];
        struct cmsghdr align;
    } control[JUNK_BATCH];
    int sent;

    if (bytes[0] == 0) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (unsigned char)(chance(255) + 1);
    }
    for (unsigned i = 0; i < n; i++) {
        bool is_long = chance(20) == 0, is_for_registrar = chance(100) == 0;
        struct in_pktinfo from = {.ipi_spec_dst.s_addr = htonl(0x7f400000u + chance(0xbf0000u))};
        struct msghdr *h = &messages[i].msg_hdr;

        to[i] = relay_port(server.ports[chance(server.ports_n)]);
        if (is_for_registrar)
            to[i] = bench_loopback(server.registrar);
        else
            sum.to_relays++;
        parts[i] = (struct iovec){.iov_base = bytes + chance(JUNK_MAX),
                                  .iov_len = chance(is_long ? JUNK_MAX : 200)};
        memset(&control[i], 0, sizeof control[i]);
        *h = (struct msghdr){.msg_name = &to[i],
                             .msg_namelen = sizeof to[i],
                             .msg_iov = &parts[i],
                             .msg_iovlen = 1,
                             .msg_control = &control[i],
                             .msg_controllen = sizeof control[i].room};
        *CMSG_FIRSTHDR(h) = (struct cmsghdr){
            .cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO, .cmsg_len = CMSG_LEN(sizeof from)};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(h)), &from, sizeof from);
    }
    sent = sendmmsg(junk_sockets[turn++ % JUNK_SOCKETS], messages, n, 0);
    for (unsigned i = sent < 0 ? 0 : (unsigned)sent; i < n; i++)
        sum.to_relays -= ntohs(to[i].sin_port) != server.registrar;
    sum.junk += sent < 0 ? 0 : (unsigned)sent;
}

/* ------------------------------------------------------------------ reloads */

static struct {
    int fd;
    uint64_t next_ms;
    unsigned number;
    char answer[512];
    size_t n;
} reload = {.fd = -1};

enum { RELOAD_EVENT = 0xffffffff };

static void write_policy(unsigned number)
{
    char path[PATH_MAX];
    FILE *f;

    snprintf(path, sizeof path, "%s/next", server.folder);
    f = fopen(path, "w");
    if (!f ||
        fprintf(f,
                "local soak = { api = 1 }\n\nfunction soak.create() return nil end\n\n"
                "soak.commands = { number = function() return %u end }\n\nreturn soak\n",
                number) < 0 ||
        fclose(f) != 0 || rename(path, in_folder(&server, "soak.lua")) != 0) {
        perror("the policy");
        exit(2);
    }
}

static void begin_reload(void)
{
    static const char request[] = "POST /v1/reload HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                  "Content-Length: 2\r\n\r\n{}";
    struct sockaddr_un sa = {.sun_family = AF_UNIX};

    write_policy(++reload.number);
    memccpy(sa.sun_path, in_folder(&server, "control.sock"), 0, sizeof sa.sun_path - 1);
    reload.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    reload.n = 0;
    if (connect(reload.fd, (struct sockaddr *)&sa, sizeof sa) < 0 ||
        write(reload.fd, request, sizeof request - 1) != sizeof request - 1) {
        sum.reloads_failed++;
        close(reload.fd);
        reload.fd = -1;
        return;
    }
    watch(reload.fd, RELOAD_EVENT, 0, EPOLLIN);
}

static void read_reload(void)
{
    ssize_t got = read(reload.fd, reload.answer + reload.n, sizeof reload.answer - 1 - reload.n);

    if (got > 0) {
        reload.n += (size_t)got;
        return;
    }
    if (got < 0 && errno == EAGAIN)
        return;
    reload.answer[reload.n] = '\0';
    sum.reloads++;
    if (strncmp(reload.answer, "HTTP/1.1 200", 12) != 0 && sum.reloads_failed++ < 5)
        printf("reload: %s\n", reload.answer);
    close(reload.fd);
    reload.fd = -1;
}

/* ------------------------------------------------------------------ a turn */

static void read_events(int wait_ms)
{
    struct epoll_event events[512];
    int n = epoll_wait(poller, events, 512, wait_ms);

    now_ms = now_ns(CLOCK_MONOTONIC) / 1000000;
    for (int i = 0; i < n; i++) {
        uint32_t slot = (uint32_t)(events[i].data.u64 >> 1);
        struct player *p;

        if (slot == RELOAD_EVENT) {
            if (reload.fd >= 0)
                read_reload();
            continue;
        }
        p = &players[slot];
        if (events[i].data.u64 & 1) {
            if (p->udp >= 0)
                read_udp(p);
            continue;
        }
        if (p->tcp >= 0 && p->state == NAMING && !p->has_asked && (events[i].events & EPOLLOUT)) {
            p->has_asked = true;
            say(p, "register-host\n");
        }
        if (p->tcp >= 0 && (events[i].events & ~(uint32_t)EPOLLOUT))
            read_tcp(p);
    }
}

static void disturb(double elapsed_s)
{
    static double joins, junk, resets;
    unsigned n;

    for (n = due(opt.joins, &joins, elapsed_s); n > 0; n--)
        guest_arrives();
    for (n = due(opt.resets, &resets, elapsed_s); n > 0; n--)
        reset_a_client();
    for (n = due(opt.junk, &junk, fmin(elapsed_s, 0.1)); n > 0;) {
        unsigned batch = n < JUNK_BATCH ? n : JUNK_BATCH;

        send_junk(batch);
        n -= batch;
    }
    if (opt.reload_ms > 0 && reload.fd < 0 && now_ms >= reload.next_ms) {
        reload.next_ms = now_ms + opt.reload_ms;
        begin_reload();
    }
}

/* How many addresses the daemon remembers. */
static long count_addresses(void)
{
    uint32_t now_s = (uint32_t)(now_ms / 1000);
    long n = 0;

    for (unsigned i = 0; i < players_n; i++) {
        if (players[i].state != ABSENT)
            used_s[players[i].address] = now_s;
    }
    for (unsigned i = 0; i < opt.addresses; i++)
        n += used_s[i] != 0 && used_s[i] + REMEMBER_S >= now_s;
    return n;
}

static void take_sample(void)
{
    if (samples_n == SAMPLES)
        return;
    samples[samples_n++] = (struct sample){.resident_kb = daemon_memory_kb(&server, "VmRSS:"),
                                           .data_kb = daemon_memory_kb(&server, "VmData:"),
                                           .fds = daemon_fds(&server),
                                           .connections = connections,
                                           .addresses = count_addresses()};
}

static void turn(void)
{
    static uint64_t last_ns, sampled_ms;
    uint64_t before = last_ns ? last_ns : now_ns(CLOCK_MONOTONIC);

    read_events(1);
    last_ns = now_ns(CLOCK_MONOTONIC);
    if ((last_ns - before) / 1000000 > sum.longest_turn_ms)
        sum.longest_turn_ms = (last_ns - before) / 1000000;
    for (unsigned i = 0; i < players_n; i++)
        step(&players[i]);
    if (is_ending)
        return;
    disturb((double)(last_ns - before) / 1e9);
    if (now_ms >= sampled_ms + 1000) {
        sampled_ms = now_ms;
        take_sample();
    }
}

/* ------------------------------------------------------------------ what must be true */

static long value_of(unsigned i, size_t offset)
{
    return *(const long *)((const char *)&samples[i] + offset);
}

/* The least of a while: beside it memory comes and goes with a reload, whose two generations are
 * both there for a moment, and connections are ours no more and the daemon's still. */
static long least(unsigned from, unsigned to, size_t offset)
{
    long n = from < to ? value_of(from, offset) : 0;

    for (unsigned i = from; i < to; i++)
        n = value_of(i, offset) < n ? value_of(i, offset) : n;
    return n;
}

static void print_tenths(const char *what, size_t offset)
{
    printf("%s by tenths of the time:", what);
    for (unsigned i = 0; i < 10; i++)
        printf(" %ld", least(samples_n * i / 10, samples_n * (i + 1) / 10, offset));
    printf("\n");
}

/* By how much something was more in the last third of the time after the warm-up than in the first.
 */
static long growth(size_t offset)
{
    unsigned warm = (unsigned)opt.warm_up, third = (samples_n - warm) / 3;

    return least(samples_n - third, samples_n, offset) - least(warm, warm + third, offset);
}

/*
 * A leak grows in memory and in what was asked for. Each of them alone grows without one: pages of
 * tables that were made at the start are used for the first time, some only in a burst; and the
 * heap grows in steps. Addresses that came are remembered for ten minutes: what they take is due.
 */
static void judge_growth(void)
{
    long due_kb = growth(offsetof(struct sample, addresses)) *
                  (opt.is_sanitized ? ADDRESS_BYTES_SANITIZED : ADDRESS_BYTES) / 1024;
    long resident_kb, data_kb, fds, noise_kb = opt.is_sanitized ? NOISE_KB_SANITIZED : NOISE_KB;

    if (samples_n < (unsigned)opt.warm_up + 6) {
        printf("too short to say whether memory is flat\n");
        return;
    }
    for (unsigned i = 0; i < samples_n; i++)
        samples[i].fds -= samples[i].connections; /* those come and go */
    print_tenths("memory, kB, at least,", offsetof(struct sample, resident_kb));
    print_tenths("addresses remembered", offsetof(struct sample, addresses));
    resident_kb = growth(offsetof(struct sample, resident_kb));
    data_kb = growth(offsetof(struct sample, data_kb));
    fds = growth(offsetof(struct sample, fds));
    printf("memory, from the first third after %.0f s to the last, %.0f s later: resident %+ld kB, "
           "asked for %+ld "
           "kB, of which %+ld kB for addresses; descriptors beside players' connections: %+ld\n",
           opt.warm_up, (samples_n - opt.warm_up) * 2 / 3, resident_kb, data_kb, due_kb, fds);
    /* Before all that is remembered was forgotten once, the heap finds its size. */
    if (opt.warm_up < REMEMBER_S)
        noise_kb *= 8;
    check((resident_kb < data_kb ? resident_kb : data_kb) - due_kb <= noise_kb,
          "memory is flat after the warm-up");
    check(resident_kb - due_kb <= 8 * noise_kb, "resident memory is flat after the warm-up");
    /* A daemon that waits for a core closes what we have closed a second later. */
    check((double)fds <= NOISE_FDS + opt.joins, "descriptors are flat after the warm-up");
}

static bool is_empty(const char *page)
{
    return metric(page, "noray_relay_count") + metric(page, "moonrelay_sessions") +
                   metric(page, "moonrelay_held") ==
               0 &&
           metric(page, "noray_tcp_connections") == 0;
}

static void print_drops(const char *page)
{
    for (const char *line = strstr(page, "moonrelay_drops_total{"); line;
         line = strstr(line + 1, "moonrelay_drops_total{")) {
        char reason[64];
        double n;

        if (sscanf(line, "moonrelay_drops_total{reason=\"%63[^\"]\"} %lf", reason, &n) == 2 &&
            n > 0)
            printf("  %s %.0f", reason, n);
    }
    printf("\n");
}

static void judge_counters(long fds_before)
{
    const char *page = "";
    double in, out, drops, kernel, missing;

    for (int i = 0; i < CLOSING_S && !is_empty(page = daemon_metrics(&server)); i++)
        pause_ms(1000);
    check(*page != '\0' && is_empty(page), "nobody is left when everybody has left");
    in = metric(page, "moonrelay_packets_total{direction=\"in\"}");
    out = metric(page, "moonrelay_packets_total{direction=\"out\"}");
    drops = metric(page, "moonrelay_drops_total");
    kernel = metric(page, "moonrelay_kernel_drops_total");
    printf("relay ports: in %.0f, out %.0f, dropped %.0f; lost in the kernel %.0f; sent to them "
           "%" PRIu64 "\n",
           in, out, drops, kernel, sum.to_relays);
    print_drops(page);
    check(in > 0 && in == out + drops, "in = out + drops");
    missing = (double)sum.to_relays - in - kernel;
    check((missing >= 0 || !opt.is_alone) && missing <= (double)sum.on_loopback,
          "what was sent to relay ports = in + kernel's drops");
    check(metric(page, "moonrelay_ports") == opt.ports,
          "every port is free, in quarantine or used");
    check(metric(page, "moonrelay_reloads_total{result=\"failed\"}") == 0, "no reload was refused");
    check(metric(page, "moonrelay_reloads_total{result=\"ok\"}") >= (double)sum.reloads,
          "every reload is counted");
    check(metric(page, "moonrelay_log_dropped_total") == 0, "no line of the log was left out");
    check(sum.asked_again == 0 || sum.longest_turn_ms >= STILL_MS ||
              metric(page, "moonrelay_control_stalls_total") > 0,
          "nobody asked in vain while there was a processor");
    printf("control loop: in turns %.1f s, turns of a second or more %.0f; new flows "
           "without room %.0f\n",
           metric(page, "moonrelay_control_stall_seconds_sum"),
           metric(page, "moonrelay_control_stalls_total"),
           metric(page, "moonrelay_events_lost_total"));
    for (int i = 0; i < CLOSING_S && daemon_fds(&server) > fds_before; i++)
        pause_ms(1000);
    printf("descriptors before %ld, after %ld\n", fds_before, daemon_fds(&server));
    check(daemon_fds(&server) <= fds_before, "no descriptor is left open");
}

static void judge_end(void)
{
    unsigned warnings = 0, errors;
    int status = daemon_stop(&server);

    check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the daemon ends with status 0");
    errors = daemon_log_errors(&server, &warnings);
    printf("log: %u errors, %u warnings\n", errors, warnings);
    check(errors == 0, "no error in the log");
}

static double latency_us(double share)
{
    uint64_t all = 0, n = 0;
    int i;

    for (i = 0; i < LATENCIES; i++)
        all += sum.latency[i];
    for (i = 0; i < LATENCIES - 1; i++) {
        n += sum.latency[i];
        if ((double)n >= (double)all * share)
            break;
    }
    return 10 * pow(2, (i + 1) / 2.0);
}

static void judge_traffic(void)
{
    printf("this program had no time for %" PRIu64
           " more of the pairs' datagrams and %.0f of junk\n",
           sum.skipped, fmax(0, opt.junk * opt.seconds - (double)sum.junk));
    printf("paced: sent %" PRIu64 ", arrived %" PRIu64 ", lost %" PRIu64
           " (%.5f %%), twice %" PRIu64 ", out of order %" PRIu64
           "; on the way: half within %.2f ms, 99 %% %.1f ms, 99.9 %% %.1f ms\n",
           sum.sent, sum.received, sum.lost,
           sum.sent ? 100.0 * (double)sum.lost / (double)sum.sent : 0, sum.duplicates,
           sum.disordered, latency_us(0.5) / 1000, latency_us(0.99) / 1000,
           latency_us(0.999) / 1000);
    printf("guests %" PRIu64 " (played %" PRIu64 ", no room for %" PRIu64
           "), clients that vanished %" PRIu64 ", pairs that fell silent %" PRIu64
           ", asked again %" PRIu64 ", stuck %" PRIu64 ", refused %" PRIu64 "\n",
           sum.guests, sum.guests_served, sum.guests_left_out, sum.resets, sum.broken,
           sum.asked_again, sum.stuck, sum.refused);
    printf("junk %" PRIu64 ", reloads %" PRIu64 " (failed %" PRIu64
           "); not taken by the kernel %" PRIu64 ", dropped by it on loopback %" PRIu64
           ", in players' sockets %" PRIu64 "\n",
           sum.junk, sum.reloads, sum.reloads_failed, sum.not_taken, sum.on_loopback,
           sum.own_drops);
    check(sum.sent > 0 && sum.guests_served > 0, "pairs and guests played");
    check((double)sum.lost <= (double)sum.sent * opt.loss / 100 + (double)sum.on_loopback,
          "nothing of the paced pairs was lost");
    printf("reached whom it was not for: %" PRIu64 "\n", sum.foreign);
    check(sum.foreign == 0, "nothing reached whom it was not for");
    check(sum.duplicates == 0, "nothing came twice");
    check(sum.broken == 0 && sum.stuck == 0, "no player was left without an answer");
    check(sum.refused == 0, "no player was refused");
    check(sum.reloads_failed == 0, "every reload was put in use");
}

/* ------------------------------------------------------------------ the machine */

struct machine {
    double busy, all, daemon_s, waited_s, own_s, wall_s;
};

static struct machine look_at_machine(void)
{
    struct machine m = {0};
    double v[8] = {0};
    struct rusage own;

    (void)sscanf(read_text("/proc/stat"), "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &v[0], &v[1],
                 &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]);
    for (int i = 0; i < 8; i++)
        m.all += v[i];
    m.busy = m.all - v[3] - v[4];
    m.daemon_s = (double)now_ns(server.cpu) / 1e9;
    m.waited_s = daemon_waited_s(&server);
    getrusage(RUSAGE_SELF, &own);
    m.own_s = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
              (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6;
    m.wall_s = (double)now_ns(CLOCK_MONOTONIC) / 1e9;
    return m;
}

static void print_machine(const struct machine *a, const struct machine *b)
{
    double wall = b->wall_s - a->wall_s, load[3] = {0};

    (void)sscanf(read_text("/proc/loadavg"), "%lf %lf %lf", &load[0], &load[1], &load[2]);
    printf(
        "processor: %ld cores, busy %.0f %%, load average %.1f %.1f; the daemon had %.0f %% of a "
        "core "
        "and waited for one %.0f %% of the time (threads added up), this program had %.0f %%, its "
        "longest turn took %" PRIu64 " ms\n",
        sysconf(_SC_NPROCESSORS_ONLN), 100 * (b->busy - a->busy) / (b->all - a->all), load[0],
        load[1], 100 * (b->daemon_s - a->daemon_s) / wall, 100 * (b->waited_s - a->waited_s) / wall,
        100 * (b->own_s - a->own_s) / wall, sum.longest_turn_ms);
}

/* ------------------------------------------------------------------ the soak */

static void make_players(void)
{
    int bytes = 4096, yes = 1;

    guests_n = (unsigned)(opt.joins * GUESTS_FOR_S) + 1;
    players_n = 2 * opt.pairs + guests_n;
    players = calloc(players_n, sizeof *players);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (!players || poller < 0)
        exit(2);
    for (unsigned i = 0; i < players_n; i++) {
        players[i] = (struct player){.role = i < opt.pairs       ? HOST
                                             : i < 2 * opt.pairs ? CLIENT
                                                                 : GUEST,
                                     .pair = i % opt.pairs,
                                     .slot = i,
                                     .tcp = -1,
                                     .udp = -1,
                                     .retry_ms = now_ms + (uint64_t)(1000 * i / opt.ramp)};
    }
    for (unsigned i = 0; i < JUNK_SOCKETS; i++) { /* nobody reads what comes back */
        junk_sockets[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        setsockopt(junk_sockets[i], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
        setsockopt(junk_sockets[i], IPPROTO_IP, IP_PKTINFO, &yes, sizeof yes);
    }
}

static bool is_anybody_settling(void)
{
    for (unsigned i = opt.pairs; i < 2 * opt.pairs; i++) {
        if (players[i].state == SETTLING)
            return true;
    }
    return false;
}

static void end_everything(void)
{
    uint64_t until;

    is_ending = true;
    for (unsigned i = 0; i < players_n; i++) {
        struct player *p = &players[i];

        if (p->role == CLIENT && p->state == PLAYING) {
            p->state = SETTLING;
            p->since_ms = now_ms;
        } else if (p->role != HOST && p->state != SETTLING && p->state != ABSENT) {
            leave(p, false);
        }
    }
    until = now_ms + SETTLE_MS + 2000;
    while (now_ms < until && is_anybody_settling() && !daemon_has_ended(&server))
        turn();
    for (unsigned i = 0; i < players_n; i++) {
        if (players[i].state != ABSENT)
            leave(&players[i], false);
    }
}

static int soak(void)
{
    struct machine before, after;
    long fds;
    uint64_t end_ms;

    (void)daemon_metrics(&server); /* what is opened at the first request and kept */
    pause_ms(500);
    fds = daemon_fds(&server);
    before = look_at_machine();
    sum.on_loopback = loopback_drops();
    now_ms = now_ns(CLOCK_MONOTONIC) / 1000000;
    make_players();
    end_ms = now_ms + (uint64_t)(opt.seconds * 1000);
    reload.next_ms = now_ms + 1000;
    while (now_ms < end_ms && !daemon_has_ended(&server))
        turn();
    after = look_at_machine();
    if (!daemon_has_ended(&server)) {
        end_everything();
        sum.on_loopback = loopback_drops() - sum.on_loopback;
        print_machine(&before, &after);
        judge_traffic();
        judge_growth();
        judge_counters(fds);
    }
    judge_end();
    printf("%s\n", failures ? "soak: NOT all true" : "soak: all true");
    return failures ? 1 : 0;
}

static void read_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"program", 1, NULL, 'p'},
        {"folder", 1, NULL, 'f'},
        {"seconds", 1, NULL, 's'},
        {"pairs", 1, NULL, 'n'},
        {"rate", 1, NULL, 'r'},
        {"joins", 1, NULL, 'j'},
        {"junk", 1, NULL, 'k'},
        {"resets", 1, NULL, 'x'},
        {"ports", 1, NULL, 'P'},
        {"reload", 1, NULL, 'l'},
        {"warm-up", 1, NULL, 'w'},
        {"loss", 1, NULL, 'L'},
        {"seed", 1, NULL, 'S'},
        {"addresses", 1, NULL, 'a'},
        {"ramp", 1, NULL, 'm'},
        {"patience", 1, NULL, 't'},
        {"sanitized", 0, &opt.is_sanitized, 1},
        {"alone", 0, &opt.is_alone, 1},
        {0},
    };
    double *numbers[128] = {['s'] = &opt.seconds, ['r'] = &opt.rate,   ['j'] = &opt.joins,
                            ['k'] = &opt.junk,    ['x'] = &opt.resets, ['w'] = &opt.warm_up,
                            ['L'] = &opt.loss,    ['m'] = &opt.ramp,   ['t'] = &opt.patience};
    unsigned *counts[128] = {['n'] = &opt.pairs,
                             ['P'] = &opt.ports,
                             ['l'] = &opt.reload_ms,
                             ['S'] = &opt.seed,
                             ['a'] = &opt.addresses};
    int c;

    while ((c = getopt_long(argc, argv, "", names, NULL)) >= 0) {
        if (c == '?')
            exit(2);
        if (c == 'p')
            opt.program = optarg;
        else if (c == 'f')
            opt.folder = optarg;
        else if (c > 0 && numbers[c])
            *numbers[c] = strtod(optarg, NULL);
        else if (c > 0 && counts[c])
            *counts[c] = (unsigned)strtoul(optarg, NULL, 10);
    }
    if (!opt.program || !opt.folder || opt.pairs == 0 || opt.rate <= 0 || opt.ramp <= 0 ||
        opt.ports == 0 || opt.addresses == 0 || opt.addresses > ADDRESSES ||
        opt.ports > DAEMON_PORTS_MAX || optind < argc) {
        fprintf(stderr, "usage: soak --program PATH --folder DIR [...] (see scripts/soak)\n");
        exit(2);
    }
    if (opt.warm_up < 0)
        opt.warm_up = opt.seconds * 2 / 3; /* addresses are remembered for 10 minutes */
}

int main(int argc, char **argv)
{
    FILE *config;

    read_options(argc, argv);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* and the daemon ends with us */
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (opt.seed == 0)
        opt.seed = (unsigned)now_ns(CLOCK_REALTIME) | 1;
    random_state = opt.seed * 0x9e3779b97f4a7c15u;
    printf("soak: %.0f s, %u pairs at %.0f/s each way, %.0f joins/s, %.0f junk/s, %.1f clients "
           "that vanish/s, a "
           "reload every %u ms, seed %u\n",
           opt.seconds, opt.pairs, opt.rate, opt.joins, opt.junk, opt.resets, opt.reload_ms,
           opt.seed);
    server.folder = opt.folder;
    write_policy(0);
    config = fopen(in_folder(&server, "moonrelay.lua"), "w");
    if (!config || fputs("return { policies = { \"./soak.lua\", \"dynamic\" } }\n", config) < 0 ||
        fclose(config) != 0) {
        perror("the config");
        return 2;
    }
    if (daemon_start(&server, opt.program, opt.ports) < 0)
        return 1;
    if (server.ports_n != opt.ports)
        printf("%u relay ports\n", server.ports_n);
    return soak();
}
