/* SPDX-License-Identifier: MIT */
/*
 * The service when memory runs out: at every single allocation of a whole story, one after
 * the other. One thread.
 */
#include "service/players.h"
#include "test.h"
#include "world.h"

#include <string.h>

static const struct hook_slot slots[] = {{{"k", 1}, 10}};
static const struct hook_pair tags[] = {{{"game", 4}, {"chess", 5}}};

static void say(struct world *w, size_t conn, const char *command, const char *oid)
{
    char line[400];

    snprintf(line, sizeof line, "%s %s a=b\n", command, oid);
    world_say(w, conn, line);
}

static void admit(struct world *w, enum hook hook)
{
    struct hook_answer *a = world_answer(w, hook, MR_HOOK_ADMIT);

    a->slots = slots;
    a->n_slots = 1;
    a->tags = (struct hook_map){tags, 1};
}

/* Registers, is seen, relays, moves, is knocked at, leaves; whatever fails. Returns whether it all
 * came out well. */
static bool play(struct world *w, size_t a, size_t b)
{
    char oid[300] = "x", pid[2][300] = {"", ""};
    bool is_well = true;
    const size_t conns[2] = {a, b};
    unsigned port = 49152;

    for (int i = 0; i < 2; i++) {
        world_say(w, conns[i], "register-host x=y\n");
        char line[300];
        snprintf(line, sizeof line, "%s", world_line(w, conns[i]));
        is_well = is_well && sscanf(line, "set-oid %299s", oid) == 1;
        snprintf(line, sizeof line, "%s", world_line(w, conns[i]));
        is_well = is_well && sscanf(line, "set-pid %299s", pid[i]) == 1;
        const char *from = i ? "10.0.0.2:6000" : "10.0.0.1:6000";
        is_well = strcmp(world_registrar(w, from, pid[i], strlen(pid[i])), "OK") == 0 && is_well;
    }
    say(w, a, "connect-relay", oid);
    is_well = sscanf(world_line(w, a), "connect-relay %u", &port) == 1 && is_well;
    world_line(w, b);
    world_inject(w, "10.0.0.9:7000", port, 10);
    is_well = world_relays(w) == 3 && is_well;
    is_well =
        strcmp(world_registrar(w, "10.0.0.1:6001", pid[0], strlen(pid[0])), "OK") == 0 && is_well;
    say(w, a, "connect", oid);
    is_well = strcmp(world_line(w, a), "connect 10.0.0.2:6000") == 0 && is_well;
    return is_well;
}

TEST(every_failed_allocation_costs_its_request_alone)
{
    bool is_done = false;
    unsigned failed = 0;

    for (long n = 0; n < 500 && !is_done; n++) {
        struct world *w = world_open(NULL);
        size_t a = world_connect(w, "10.0.0.1:5000"), b = world_connect(w, "10.0.0.2:5000");

        admit(w, MR_HOOK_REGISTER);
        admit(w, MR_HOOK_CREATE);
        admit(w, MR_HOOK_DROP);
        mr__alloc_fail_after(n);
        is_done = play(w, a, b);
        mr__alloc_fail_after(-1);
        failed += !is_done;
        /* Who comes when there is memory again is served. */
        struct player p = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
        struct player q = world_join(w, "10.0.0.4:5000", "10.0.0.4:6000");
        unsigned c, d;
        CHECK(world_relay(w, &p, &q, &c, &d));
        /* And everything is given back. */
        for (size_t i = 0; i < w->n_wires; i++) {
            mr__service_closed(w->service, w->wires[i].id, MR_CONN_RESET, w->now_ns);
        }
        w->now_ns += 700ull * 1000000000;
        world_settle(w);
        CHECK_EQ(world_relays(w), 0);
        CHECK_EQ(world_metric(w, "noray_relay_count"), 0.0);
        w->now_ns += 100ull * 1000000000;
        world_settle(w);
        CHECK_EQ(world_metric(w, "moonrelay_ports{state=\"free\"}"), 16.0);
        world_close(w);
    }
    CHECK(is_done);
    CHECK_GT(failed, 15);
}

static void on_opened(void *arg, const struct open_answer *a)
{
    *(unsigned *)arg += a && a->code == NULL;
}

/* A port is opened to everybody, is knocked at, closes; a script wants a flow and a relay. */
static bool play_targets(struct world *w)
{
    struct open_port port = {.number = 7777, .place = "", .slots = slots, .n_slots = 1};
    struct open_spec flow = {.peer = world_addr("203.0.113.7:4000"), .port = 7777};
    struct open_spec relay = {.peer = world_addr("203.0.113.8:4000")};
    unsigned opened = 0;
    bool is_well;

    port.tags = flow.tags = (struct hook_map){tags, 1};
    strcpy(flow.spec.target, "a.fleet:7000");
    world_open_fronts(w, &port, 1);
    is_well = w->fronts.opened == 1;
    if (is_well) {
        world_inject(w, "203.0.113.5:4000", 7777, 10);
    }
    mr__players_open(w->service, &flow, on_opened, &opened);
    mr__players_open(w->service, &relay, on_opened, &opened);
    world_settle(w);
    is_well = world_relays(w) == 3 && opened == 2 && is_well;
    port.number = 7778;
    world_open_fronts(w, &port, 1);
    return w->fronts.opened == 1 && w->fronts.draining == 1 && is_well;
}

TEST(every_failed_allocation_costs_its_flow_or_port_alone)
{
    bool is_done = false;
    unsigned failed = 0;

    for (long n = 0; n < 500 && !is_done; n++) {
        const struct open_port port = {.number = 7777, .place = ""};
        struct world *w = world_open(NULL);
        struct hook_answer *a;

        w->name_is = "10.4.4.4";
        admit(w, MR_HOOK_CREATE);
        admit(w, MR_HOOK_DROP);
        a = &w->canned[MR_HOOK_DROP].answer;
        strcpy(a->spec.target, "a.fleet:7000");
        mr__alloc_fail_after(n);
        is_done = play_targets(w);
        mr__alloc_fail_after(-1);
        failed += !is_done;
        /* Who comes when there is memory again is served. */
        world_open_fronts(w, &port, 1);
        world_inject(w, "203.0.113.9:4000", 7777, 10);
        CHECK_EQ(world_decide(w, "203.0.113.9:4000", 7777, NULL, NULL), MR_VERDICT_FORWARD);
        /* And everything is given back. */
        w->now_ns += 700ull * 1000000000;
        world_settle(w);
        CHECK_EQ(world_relays(w), 0);
        CHECK_EQ(world_metric(w, "noray_relay_count"), 0.0);
        CHECK_EQ(world_metric(w, "moonrelay_ports{state=\"open\"}"), 1.0);
        w->now_ns += 100ull * 1000000000;
        world_settle(w);
        CHECK_EQ(world_metric(w, "moonrelay_ports{state=\"free\"}"), 16.0);
        world_close(w);
    }
    CHECK(is_done);
    CHECK_GT(failed, 10);
}

static int draw_nothing(void *user, void *buf, size_t n)
{
    (void)user;
    memset(buf, 0, n);
    return 0;
}

TEST(a_service_that_cannot_be_made_leaves_nothing)
{
    struct settings *settings = mr__settings_create();
    struct mr_options o;
    struct mr *mr;
    struct service *service = NULL;

    REQUIRE(settings);
    mr_options_init(&o, sizeof o);
    o.workers = 0;
    o.io = MR_IO_NONE;
    REQUIRE_EQ(mr_create(&mr, &o), 0);
    long blocks = mr__alloc_live();
    for (long n = 0; n < 10; n++) {
        struct service_options so = {
            .settings = settings, .mr = mr, .out = {.random = draw_nothing}};
        mr__alloc_fail_after(n);
        CHECK_EQ(mr__service_create(&service, &so, 0), -ENOMEM);
        mr__alloc_fail_after(-1);
        CHECK_EQ(mr__alloc_live(), blocks);
    }
    mr_destroy(mr);
    mr__settings_destroy(settings);
}

TEST_MAIN(TEST_CASE(every_failed_allocation_costs_its_request_alone),
          TEST_CASE(every_failed_allocation_costs_its_flow_or_port_alone),
          TEST_CASE(a_service_that_cannot_be_made_leaves_nothing))
