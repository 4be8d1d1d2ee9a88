/* SPDX-License-Identifier: MIT */
/*
 * Two players behind NATs of every kind, with clients that know nothing of NATs: they register,
 * connect by the relay, and send to the port that they were told, as netfox does. A NAT is a table
 * here: which port of its own it gives a flow (mapping), and from whom it lets something in
 * (filtering). The relay is the real service and engine, without sockets, on a clock that stands.
 *
 *     host -- NAT 10.0.0.1 --- relay 192.0.2.1 --- NAT 10.0.0.2 -- client
 *
 * One thread. Start reading at is_connected().
 */
#include "test.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a NAT tells flows apart, when it maps and when it filters. */
enum by {
    BY_NOTHING, /* endpoint-independent */
    BY_ADDRESS, /* address-dependent */
    BY_PORT,    /* address- and port-dependent */
    BY_COUNT,
};

struct kind {
    const char *name;
    enum by mapping, filtering;
};

/* The four that have names. */
static const struct kind classic[] = {
    {"full cone", BY_NOTHING, BY_NOTHING},
    {"address-restricted", BY_NOTHING, BY_ADDRESS},
    {"port-restricted", BY_NOTHING, BY_PORT},
    {"symmetric", BY_PORT, BY_PORT},
};
enum { CLASSIC = 4, FULL = 0, RESTRICTED, PORT_RESTRICTED, SYMMETRIC };

/* ---- a NAT --------------------------------------------------------------------------------- */

enum { MAPPINGS_MAX = 16, CONTACTS_MAX = 16 };

/* Whom a packet is for: the registrar may be on another address than the relay ports. */
struct remote {
    unsigned ip, port;
};

struct mapping {
    struct remote to; /* what it was made for */
    unsigned port;    /* the public one */
    struct remote contacts[CONTACTS_MAX];
    unsigned n_contacts;
};

struct nat {
    struct kind kind;
    const char *ip;
    unsigned next_port;
    struct mapping mappings[MAPPINGS_MAX];
    unsigned n;
};

static bool is_same(enum by by, struct remote a, struct remote b)
{
    return by == BY_NOTHING || (a.ip == b.ip && (by == BY_ADDRESS || a.port == b.port));
}

static struct mapping *find_mapping(struct nat *n, struct remote to)
{
    for (unsigned i = 0; i < n->n; i++) {
        if (is_same(n->kind.mapping, n->mappings[i].to, to)) {
            return &n->mappings[i];
        }
    }
    REQUIRE(n->n < MAPPINGS_MAX);
    n->mappings[n->n] = (struct mapping){.to = to, .port = n->next_port++};
    return &n->mappings[n->n++];
}

/* The source that the world sees. */
static const char *nat_out(struct nat *n, struct remote to)
{
    static char source[32];
    struct mapping *m = find_mapping(n, to);
    bool is_known = false;

    for (unsigned i = 0; i < m->n_contacts; i++) {
        is_known = is_known || is_same(BY_PORT, m->contacts[i], to);
    }
    if (!is_known) {
        REQUIRE(m->n_contacts < CONTACTS_MAX);
        m->contacts[m->n_contacts++] = to;
    }
    snprintf(source, sizeof source, "%s:%u", n->ip, m->port);
    return source;
}

static bool nat_lets_in(const struct nat *n, unsigned port, struct remote from)
{
    for (unsigned i = 0; i < n->n; i++) {
        const struct mapping *m = &n->mappings[i];

        for (unsigned k = 0; m->port == port && k < m->n_contacts; k++) {
            if (is_same(n->kind.filtering, m->contacts[k], from)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- two players and a relay ------------------------------------------------------------------
 */

enum { RELAY_IP = 1, OTHER_IP = 2 };

struct end {
    struct nat nat;
    unsigned told;    /* the relay port that stands for the other */
    unsigned heard;   /* datagrams of the other, from wherever this end listens to */
    unsigned from;    /* the port that the last one came from; 0: none yet */
    bool is_answered; /* the other has heard this one */
};

struct game {
    struct world *w;
    struct end host, client;
};

/* A client listens to the port that it connected to. A host (an ENet server) takes whoever comes,
 * and talks to where it was spoken to. */
static void receive(struct game *g, struct end *end, unsigned from, bool has_heard_me)
{
    if (end == &g->client && from != end->told) {
        return;
    }
    end->heard++;
    end->from = from;
    end->is_answered = end->is_answered || has_heard_me;
}

/* One datagram to a port of the relay, and to wherever that sends it. */
static void send_to(struct game *g, struct end *end, unsigned port)
{
    struct end *ends[] = {&g->host, &g->client};
    const char *source = nat_out(&end->nat, (struct remote){RELAY_IP, port});
    char to[MR_ADDR_TEXT_MAX], *colon;
    unsigned egress;

    world_inject(g->w, source, port, 10);
    if (world_decide(g->w, source, port, to, &egress) != MR_VERDICT_FORWARD) {
        return;
    }
    colon = strchr(to, ':');
    *colon = 0;
    for (unsigned i = 0; i < 2; i++) {
        if (strcmp(ends[i]->nat.ip, to) == 0 &&
            nat_lets_in(&ends[i]->nat, (unsigned)atoi(colon + 1),
                        (struct remote){RELAY_IP, egress})) {
            receive(g, ends[i], egress, end->heard > 0);
        }
    }
}

static void join(struct game *g, struct end *end, struct player *p, struct kind kind,
                 const char *ip, unsigned registrar_ip)
{
    char tcp[32];

    *end = (struct end){.nat = {.kind = kind, .ip = ip, .next_port = 40000}};
    snprintf(tcp, sizeof tcp, "%s:5000", ip);
    *p = world_join(g->w, tcp, NULL);
    CHECK_STR(world_see(g->w, p, nat_out(&end->nat, (struct remote){registrar_ip, 8809})), "OK");
}

/* Four seconds of a handshake, ten datagrams a second each way; then a game: what both say arrives.
 */
static bool play(struct game *g)
{
    for (unsigned i = 0; i < 40; i++) {
        send_to(g, &g->host, g->host.from ? g->host.from : g->host.told);
        send_to(g, &g->client, g->client.told);
        world_advance(g->w, 100);
    }
    if (!g->host.is_answered || !g->client.is_answered) {
        return false;
    }
    g->host.heard = g->client.heard = 0;
    for (unsigned i = 0; i < 200; i++) {
        send_to(g, &g->host, g->host.from);
        send_to(g, &g->client, g->client.told);
        world_advance(g->w, 100);
    }
    CHECK_EQ(g->host.heard, 200u);
    CHECK_EQ(g->client.heard, 200u);
    return true;
}

static bool is_connected(struct kind host, struct kind client, unsigned registrar_ip,
                         const char *window, bool is_dynamic)
{
    static struct game g;
    struct player h, c;

    memset(&g, 0, sizeof g);
    g.w = world_open((const char *[]){window, NULL});
    if (is_dynamic) {
        world_answer(g.w, MR_HOOK_DROP, MR_HOOK_ADMIT);
    }
    join(&g, &g.host, &h, host, "10.0.0.1", registrar_ip);
    join(&g, &g.client, &c, client, "10.0.0.2", registrar_ip);
    REQUIRE(world_relay(g.w, &c, &h, &g.client.told, &g.host.told));
    bool is_there = play(&g);
    world_close(g.w);
    return is_there;
}

/* ---- what connects ------------------------------------------------------------------------- */

static void check_classic(const char *window, bool is_dynamic, bool (*expected)(int h, int c),
                          unsigned failures)
{
    unsigned failed = 0;

    for (int h = 0; h < CLASSIC; h++) {
        for (int c = 0; c < CLASSIC; c++) {
            bool got = is_connected(classic[h], classic[c], RELAY_IP, window, is_dynamic);

            failed += !got;
            if (got != expected(h, c)) {
                FAIL("%s host, %s client: %s", classic[h].name, classic[c].name,
                     got ? "connected" : "not connected");
            }
        }
    }
    CHECK_EQ(failed, failures);
}

static bool always(int h, int c)
{
    (void)h;
    (void)c;
    return true;
}

TEST(all_sixteen_pairs_of_classic_nats_connect_without_any_policy)
{
    check_classic("latch_window=10s", false, always, 0);
}

TEST(they_connect_when_a_policy_admits_strangers_as_well)
{
    check_classic("latch_window=10s", true, always, 0);
}

/* A symmetric host is heard as a stranger, from a port that the client does not listen to; and a
 * symmetric client as one whom a port-restricted host never sent to. */
static bool by_dynamic_relays(int h, int c)
{
    return h != SYMMETRIC && !(h == PORT_RESTRICTED && c == SYMMETRIC);
}

TEST(five_of_them_do_not_connect_by_dynamic_relays_alone)
{
    check_classic("latch_window=0", true, by_dynamic_relays, 5);
}

static bool by_nothing(int h, int c)
{
    return h != SYMMETRIC && c != SYMMETRIC;
}

TEST(seven_of_them_do_not_connect_when_strangers_are_dropped)
{
    check_classic("latch_window=0", false, by_nothing, 7);
}

/* With the registrar at another address, address-dependent mapping matters as well. */
TEST(every_mapping_and_filtering_of_one_connects_with_every_one_of_the_other)
{
    for (int i = 0; i < BY_COUNT * BY_COUNT * BY_COUNT * BY_COUNT; i++) {
        struct kind h = {"host", (enum by)(i % 3), (enum by)(i / 3 % 3)};
        struct kind c = {"client", (enum by)(i / 9 % 3), (enum by)(i / 27)};

        if (!is_connected(h, c, OTHER_IP, "latch_window=10s", false)) {
            FAIL("host maps by %d, filters by %d; client %d, %d: not connected", h.mapping,
                 h.filtering, c.mapping, c.filtering);
        }
    }
}

TEST_MAIN(TEST_CASE(all_sixteen_pairs_of_classic_nats_connect_without_any_policy),
          TEST_CASE(they_connect_when_a_policy_admits_strangers_as_well),
          TEST_CASE(five_of_them_do_not_connect_by_dynamic_relays_alone),
          TEST_CASE(seven_of_them_do_not_connect_when_strangers_are_dropped),
          TEST_CASE(every_mapping_and_filtering_of_one_connects_with_every_one_of_the_other))
