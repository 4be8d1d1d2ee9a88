/* SPDX-License-Identifier: MIT */
/*
 * Relays that a script wants to be there. One thread. Start reading at the tests.
 */
#include "service/blocks.h"
#include "service/cidr.h"
#include "service/players.h"
#include "test.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

enum { FRONT = 7777 };

static struct world *w;
static const char peer[] = "203.0.113.5:4000";

static struct {
    unsigned told, ended;
    char code[64], reason[80], relay[32], kind[16], dest[MR_ADDR_TEXT_MAX];
} last;

static void on_done(void *arg, const struct open_answer *a)
{
    CHECK(arg == &last);
    if (!a) {
        last.ended++;
        return;
    }
    last.told++;
    snprintf(last.code, sizeof last.code, "%s", a->code ? a->code : "");
    snprintf(last.reason, sizeof last.reason, "%s", a->reason);
    last.relay[0] = last.kind[0] = last.dest[0] = '\0';
    if (a->relay) {
        snprintf(last.relay, sizeof last.relay, "%s", a->relay->text);
        snprintf(last.kind, sizeof last.kind, "%s", a->relay->kind);
        if (a->relay->dest.family) {
            mr_addr_format(&a->relay->dest, last.dest, sizeof last.dest);
        }
    }
}

static void open_world(const char *const *settings)
{
    const struct open_port port = {.number = FRONT, .place = ""};

    w = world_open(settings);
    world_open_fronts(w, &port, 1);
    last.told = last.ended = 0;
}

static struct str str(const char *s)
{
    return (struct str){s, strlen(s)};
}

/* Asks; what came of it is in last. */
static uint64_t open_to(const char *from, const char *target)
{
    struct open_spec spec = {.peer = world_addr(from), .port = FRONT};
    unsigned told = last.told;
    uint64_t id;

    snprintf(spec.spec.target, sizeof spec.spec.target, "%s", target);
    id = mr__players_open(w->service, &spec, on_done, &last);
    CHECK_EQ(last.told, told); /* never from inside */
    world_settle(w);
    return id;
}

static uint64_t open_with(const char *from, const char *partner)
{
    struct open_spec spec = {.peer = world_addr(from), .pair = str(partner)};
    uint64_t id = mr__players_open(w->service, &spec, on_done, &last);

    world_settle(w);
    return id;
}

TEST(a_script_makes_a_flow_before_its_first_datagram)
{
    char to[MR_ADDR_TEXT_MAX];

    open_world(NULL);
    w->name_is = "10.4.4.4";
    world_answer(w, MR_HOOK_DROP, MR_HOOK_NO_OPINION);
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    world_answer(w, MR_HOOK_CREATED, MR_HOOK_NO_OPINION);
    CHECK_NE(open_to(peer, "a.fleet:7000"), 0);
    CHECK_EQ(last.told, 1);
    CHECK_STR(last.code, "");
    CHECK_STR(last.kind, "target");
    CHECK_STR(last.dest, "10.4.4.4:7000");
    CHECK_EQ(w->canned[MR_HOOK_DROP].asked, 0);
    CHECK(strstr(w->seen[MR_HOOK_CREATE], "reason=script addr=203.0.113.5:4000"));
    CHECK(strstr(w->seen[MR_HOOK_CREATED], "reason=script"));
    CHECK_EQ(world_decide(w, peer, FRONT, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "10.4.4.4:7000");
    /* Once more is the same one. */
    char first[32];
    snprintf(first, sizeof first, "%s", last.relay);
    open_to(peer, "a.fleet:7000");
    CHECK_STR(last.relay, first);
    CHECK_EQ(world_relays(w), 1);
    CHECK_EQ(w->looked_up, 1);
    world_close(w);
}

TEST(what_cannot_be_had_is_told_by_a_code)
{
    static const struct {
        const char *from, *target, *code, *reason;
    } cases[] = {{"203.0.113.5:4000", "0.0.0.0:7000", "host-no-address", "address-class"},
                 {"203.0.113.5:4000", "127.0.0.1:7777", "host-no-address", "own-address"},
                 {"203.0.113.5:4000", "nobody:7000", "host-no-address", "not-found"},
                 {"203.0.113.5:22", "10.4.4.4:7000", "address-class", ""},
                 {"224.0.0.1:4000", "10.4.4.4:7000", "address-class", ""},
                 {"127.0.0.1:7777", "10.4.4.4:7000", "own-address", ""}};

    open_world(NULL);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_to(cases[i].from, cases[i].target);
        CHECK_EQ(last.told, i + 1);
        CHECK_STR(last.code, cases[i].code);
        CHECK_STR(last.reason, cases[i].reason);
    }
    world_refuse(w, MR_HOOK_CREATE, "no");
    open_to(peer, "10.4.4.4:7000");
    CHECK_STR(last.code, "rejected");
    CHECK_STR(last.reason, "no");
    open_with(peer, "");
    CHECK_STR(last.code, "rejected");
    world_answer(w, MR_HOOK_CREATE, MR_HOOK_NO_OPINION);
    open_with(peer, "49152.77");
    CHECK_STR(last.code, "not-found");
    world_open_fronts(w, NULL, 0);
    open_to(peer, "10.4.4.4:7000");
    CHECK_STR(last.code, "not-found");
    CHECK_EQ(world_relays(w), 0);
    world_close(w);
}

TEST(a_relay_for_an_address_is_its_own_echo_and_a_pair_with_whom_it_shall)
{
    char to[MR_ADDR_TEXT_MAX], first[32];
    unsigned a = 0, b = 0;

    open_world(NULL);
    open_with("203.0.113.5:4000", "");
    CHECK_STR(last.code, "");
    CHECK_STR(last.kind, "dynamic");
    snprintf(first, sizeof first, "%s", last.relay);
    open_with("203.0.113.6:4000", first);
    CHECK_STR(last.code, "");
    REQUIRE_EQ(sscanf(first, "%u", &a), 1);
    REQUIRE_EQ(sscanf(last.relay, "%u", &b), 1);
    CHECK_EQ(world_decide(w, "203.0.113.5:4000", a, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "203.0.113.5:4000");
    CHECK_EQ(world_decide(w, "203.0.113.5:4000", b, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "203.0.113.6:4000");
    CHECK_EQ(world_decide(w, "203.0.113.6:4000", a, to, NULL), MR_VERDICT_FORWARD);
    CHECK_STR(to, "203.0.113.5:4000");
    /* The address has one: it is that. */
    open_with("203.0.113.5:4000", "");
    CHECK_STR(last.relay, first);
    CHECK_EQ(world_relays(w), 2);
    world_close(w);
}

TEST(caps_on_strangers_do_not_bind_scripts_but_ports_run_out)
{
    char from[40];

    w = world_open((const char *[]){"udp_relay_ports=49152+4", "dynamic_per_address=1", NULL});
    last.told = 0;
    for (unsigned i = 0; i < 6; i++) {
        snprintf(from, sizeof from, "203.0.113.5:%u", 4000 + i);
        open_with(from, "");
        CHECK_STR(last.code, i < 5 ? "" : "no-ports");
    }
    CHECK_EQ(last.told, 6);
    world_close(w);
}

TEST(two_who_want_the_same_get_the_same)
{
    char first[32];

    open_world(NULL);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    open_to(peer, "10.4.4.4:7000");
    open_to(peer, "10.4.4.4:7000");
    open_with(peer, "");
    open_with(peer, "");
    CHECK_EQ(w->n_pending, 2);
    CHECK_EQ(last.told, 0);
    world_answer_pending(w);
    CHECK_EQ(last.told, 4);
    CHECK_EQ(world_relays(w), 2);
    snprintf(first, sizeof first, "%s", last.relay);
    CHECK_EQ(w->looked_up, 1);
    world_close(w);
}

TEST(whoever_gives_up_is_not_told_and_nothing_is_made)
{
    uint64_t id;

    for (unsigned step = 0; step < 3; step++) {
        open_world(NULL);
        world_keep_waiting(w, MR_HOOK_CREATE, step == 0);
        w->are_lookups_slow = true;
        id = open_to(peer, "10.4.4.4:7000");
        CHECK_EQ(w->n_pending, step == 0 ? 1 : 0);
        CHECK_EQ(w->n_lookups, step == 0 ? 0 : 1);
        if (step < 2) {
            mr__players_open_cancel(w->service, id);
            mr__players_open_cancel(w->service, id); /* it is over */
            CHECK_EQ(w->n_pending + w->n_lookups, 0);
            world_settle(w);
        }
        CHECK_EQ(last.told, 0);
        CHECK_EQ(world_relays(w), 0);
        world_close(w); /* step 2: while it is under way */
        CHECK_EQ(last.told, 0);
        CHECK_EQ(last.ended, step == 2);
    }
}

TEST(a_block_is_stronger_than_a_script)
{
    const char text[] = "203.0.113.0/24";
    struct hook_pair pairs[MR_TAGS_MAX];
    struct block_what what;
    char why[MR_CIDR_WHY_MAX] = "";
    unsigned ended;

    open_world(NULL);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    open_to(peer, "10.4.4.4:7000");
    open_with(peer, "");
    REQUIRE(mr__block_parse(&what, text, strlen(text), pairs, why));
    CHECK_EQ(mr__blocks_add(w->service, &what, 60, str("bad"), str("us"), &ended), 0);
    world_answer_pending(w);
    CHECK_EQ(last.told, 2);
    CHECK_STR(last.code, "blocked");
    open_with(peer, "");
    CHECK_STR(last.code, "blocked");
    CHECK_EQ(world_relays(w), 0);
    world_close(w);
}

TEST(a_port_that_goes_meanwhile_is_told)
{
    open_world(NULL);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    open_to(peer, "10.4.4.4:7000");
    world_open_fronts(w, NULL, 0); /* the port goes meanwhile */
    CHECK_EQ(last.told, 1);
    CHECK_STR(last.code, "not-found");
    CHECK_EQ(w->n_pending, 0);
    world_close(w);
}

static uint64_t waited_for;

static void cancel_waited_for(struct world *of)
{
    uint64_t id = waited_for;

    waited_for = 0;
    mr__players_open_cancel(of->service, id);
}

/* A policy's `drop` waits for relay.open at the same port. */
TEST(a_port_that_goes_ends_a_hook_and_what_the_hook_waits_for)
{
    open_world(NULL);
    world_keep_waiting(w, MR_HOOK_DROP, true);
    world_keep_waiting(w, MR_HOOK_CREATE, true);
    world_inject(w, "203.0.113.6:4000", FRONT, 10);
    CHECK_EQ(w->n_pending, 1);
    waited_for = open_to(peer, "10.4.4.4:7000");
    CHECK_EQ(w->n_pending, 2);
    w->on_cancel = cancel_waited_for;
    world_open_fronts(w, NULL, 0);
    CHECK_EQ(w->n_pending, 0);
    CHECK_EQ(w->cancelled, 2);
    CHECK_EQ(last.told, 0);
    CHECK_EQ(world_relays(w), 0);
    world_close(w);
}

TEST_MAIN(TEST_CASE(a_script_makes_a_flow_before_its_first_datagram),
          TEST_CASE(what_cannot_be_had_is_told_by_a_code),
          TEST_CASE(a_relay_for_an_address_is_its_own_echo_and_a_pair_with_whom_it_shall),
          TEST_CASE(caps_on_strangers_do_not_bind_scripts_but_ports_run_out),
          TEST_CASE(two_who_want_the_same_get_the_same),
          TEST_CASE(whoever_gives_up_is_not_told_and_nothing_is_made),
          TEST_CASE(a_block_is_stronger_than_a_script),
          TEST_CASE(a_port_that_goes_meanwhile_is_told),
          TEST_CASE(a_port_that_goes_ends_a_hook_and_what_the_hook_waits_for))
