/* SPDX-License-Identifier: MIT */
/*
 * Settings that change while games run: values at once, ports opened and drained. One
 * thread.
 */
#include "service/players.h"

#include "test.h"
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct world *w;
static struct player host, client;
static char kept[256];

#define LINE(p)     world_line(w, (p).conn)
#define RELOAD(...) world_reload(w, (const char *[]){__VA_ARGS__, NULL}, kept)

static void open_pair(const char *const *settings)
{
    w = world_open(settings);
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    client = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
}

static void say(const struct player *p, const char *command, const char *oid)
{
    char line[800];

    snprintf(line, sizeof line, "%s %s\n", command, oid);
    world_say(w, p->conn, line);
}

static double ports(const char *state)
{
    char name[64];

    snprintf(name, sizeof name, "moonrelay_ports{state=\"%s\"}", state);
    return world_metric(w, name);
}

/* ---- values -------------------------------------------------------------------------------- */

TEST(what_needs_a_restart_keeps_its_value_and_is_named)
{
    struct settings_row row;

    open_pair((const char *[]){"socket_port=8890", "udp_buffer=1mb", NULL});
    CHECK_EQ(RELOAD("socket_port=9999", "workers=3", "errors=off", "udp_buffer=1024kb"), 0);
    CHECK_STR(kept, "socket_port workers "); /* 1024kb is 1mb */
    CHECK_EQ(mr__settings_values(w->settings)->socket_port, 8890);
    CHECK_EQ(mr__settings_values(w->settings)->workers, -1);
    CHECK(!mr__settings_values(w->settings)->errors);
    mr__settings_row(w->settings, (size_t)mr__settings_find("socket_port"), &row);
    CHECK_STR(row.value, "8890");
    CHECK(!row.is_live);
    mr__settings_row(w->settings, (size_t)mr__settings_find("workers"), &row);
    CHECK_EQ(row.source, MR_SETTING_DEFAULT);
    CHECK_EQ(RELOAD("socket_port=8890"), 0);
    CHECK_STR(kept, "");
    world_close(w);
}

TEST(a_connection_cap_that_the_process_lowered_is_no_change)
{
    w = world_open(NULL);
    mr__settings_cap_connections(w->settings, 100);
    CHECK_EQ(RELOAD("errors=on"), 0);
    CHECK_STR(kept, "");
    CHECK_EQ(mr__settings_values(w->settings)->max_connections, 100);
    CHECK_EQ(RELOAD("max_connections=5000"), 0);
    CHECK_STR(kept, "max_connections ");
    CHECK_EQ(mr__settings_values(w->settings)->max_connections, 100);
    world_close(w);
}

TEST(words_and_ways_change_for_the_next_command)
{
    open_pair(NULL);
    say(&client, "connect", "nobody");
    CHECK_STR(LINE(client), "error connect:unknown-oid");
    CHECK_EQ(RELOAD("errors=off", "connect=relay", "public_address=203.0.113.7", "oid_length=5"),
             0);
    say(&client, "connect", "nobody");
    CHECK_STR(LINE(client), "");
    say(&client, "connect", host.oid);
    CHECK(strncmp(LINE(client), "connect 203.0.113.7:", 20) == 0);
    struct player third = world_join(w, "10.0.0.3:5000", NULL);
    CHECK_EQ(strlen(third.oid), 5);
    world_close(w);
}

TEST(a_secret_id_from_before_is_known_after_its_length_changed)
{
    open_pair(NULL);
    CHECK_EQ(RELOAD("pid_length=20"), 0);
    CHECK_STR(world_see(w, &client, "10.0.0.2:6001"), "OK");
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    CHECK_EQ(strlen(third.pid), 20);
    CHECK_STR(world_registrar(w, "10.0.0.9:6000", "12345678901234567890", 20), "Unknown host pid!");
    world_close(w);
}

TEST(the_idle_timeout_changes_for_relays_that_are_there)
{
    unsigned a, b;

    open_pair((const char *[]){"udp_relay_timeout=30s", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    CHECK_EQ(RELOAD("udp_relay_timeout=2s"), 0);
    world_advance(w, 2200);
    CHECK_EQ(world_relays(w), 0);
    CHECK_EQ(RELOAD("udp_relay_timeout=60s"), 0);
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    world_advance(w, 40000);
    CHECK_EQ(world_relays(w), 2);
    world_close(w);
}

TEST(bandwidth_changes_for_relays_that_are_there)
{
    unsigned a, b;

    open_pair(NULL);
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    CHECK_EQ(RELOAD("udp_relay_max_individual_traffic=150"), 0);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD); /* 100 bytes */
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_BANDWIDTH);
    CHECK_EQ(RELOAD("udp_relay_max_individual_traffic=0"), 0);
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    world_close(w);
}

TEST(caps_and_who_is_exempt_change_at_once)
{
    unsigned a, b;

    open_pair((const char *[]){"udp_relay_ports=49152+99", "dynamic_per_address=1", NULL});
    REQUIRE(world_relay(w, &host, &host, &a, &b));
    world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);
    world_inject(w, "10.0.0.9:7000", a, 10);
    world_inject(w, "10.0.0.9:7001", a, 10);
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(RELOAD("udp_relay_ports=49152+99", "dynamic_per_address=1", "caps_exempt=10.0.0.9"),
             0);
    world_inject(w, "10.0.0.9:7002", a, 10);
    CHECK_EQ(world_relays(w), 3);
    CHECK_EQ(RELOAD("udp_relay_ports=49152+99", "dynamic_per_address=8"), 0);
    world_inject(w, "10.0.0.9:7003", a, 10);
    CHECK_EQ(world_relays(w), 4);
    world_close(w);
}

TEST(what_is_held_of_a_flow_changes_for_the_next_one)
{
    unsigned a, b;

    open_pair((const char *[]){"hold_datagrams=8", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    world_answer(w, MR_HOOK_DROP, MR_HOOK_NO_OPINION);
    world_keep_waiting(w, MR_HOOK_DROP, true);
    CHECK_EQ(RELOAD("hold_datagrams=2", "hold_time=300ms"), 0);
    CHECK_STR(kept, "");
    for (int i = 0; i < 5; i++) {
        world_inject(w, "10.0.0.9:7000", a, 10);
    }
    CHECK_EQ(world_verdicts(w, MR_VERDICT_HOLD_FULL), 3);
    world_advance(w, 500);
    CHECK_EQ(world_verdicts(w, MR_VERDICT_HOLD_EXPIRED), 2);
    world_answer_pending(w);
    world_close(w);
}

/* ---- ports --------------------------------------------------------------------------------- */

TEST(ports_that_are_new_are_opened_and_serve)
{
    unsigned a, b;

    open_pair((const char *[]){"udp_relay_ports=49152", NULL});
    say(&client, "connect-relay", host.oid);
    CHECK_STR(LINE(client), "error connect-relay:no-ports");
    CHECK_EQ(RELOAD("udp_relay_ports=49152-49155"), 0);
    CHECK_EQ(w->report.opened, 3);
    CHECK_EQ(w->report.closed, 0);
    CHECK_STR(w->report.ranges, "49152-49155/udp");
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    CHECK_EQ(ports("free") + ports("quarantined") + ports("used"), 4.0);
    world_close(w);
}

TEST(a_port_that_is_not_listed_any_more_closes_when_its_relay_has_ended)
{
    unsigned a, b, c, d;

    open_pair((const char *[]){"udp_relay_ports=49152-49159", "udp_relay_timeout=5s", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    CHECK_EQ(RELOAD("udp_relay_ports=50000-50003", "udp_relay_timeout=5s"), 0);
    CHECK_EQ(w->report.opened, 4);
    CHECK_EQ(w->report.closed, 6);
    CHECK_EQ(w->report.draining, 2);
    CHECK_EQ(ports("used"), 2.0);
    CHECK_EQ(ports("free"), 4.0);
    /* The game goes on, also by a new connect-relay. */
    CHECK_EQ(world_decide(w, "10.0.0.2:6000", a, NULL, NULL), MR_VERDICT_FORWARD);
    world_advance(w, 3000);
    REQUIRE(world_relay(w, &client, &host, &c, &d));
    CHECK(a == c && b == d);
    /* Whoever comes now gets a new one. */
    struct player third = world_join(w, "10.0.0.3:5000", "10.0.0.3:6000");
    REQUIRE(world_relay(w, &third, &third, &c, &d));
    CHECK_GE(c, 50000);
    world_advance(w, 6000);
    CHECK_EQ(world_relays(w), 0);
    CHECK_EQ(world_port(w, a), UINT32_MAX);
    CHECK_EQ(world_port(w, b), UINT32_MAX);
    CHECK_EQ(ports("free") + ports("quarantined") + ports("used"), 4.0);
    REQUIRE(world_relay(w, &client, &host, &c, &d));
    CHECK_GE(c, 50000);
    CHECK_GE(d, 50000);
    world_close(w);
}

TEST(a_port_that_is_listed_again_before_it_closed_stays)
{
    unsigned a, b;

    open_pair((const char *[]){"udp_relay_ports=49152-49153", "udp_relay_timeout=5s", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    CHECK_EQ(RELOAD("udp_relay_ports=50000", "udp_relay_timeout=5s"), 0);
    CHECK_EQ(w->report.draining, 2);
    CHECK_EQ(RELOAD("udp_relay_ports=49152-49153", "udp_relay_timeout=5s"), 0);
    CHECK_EQ(w->report.opened, 0);
    CHECK_EQ(w->report.draining, 0);
    CHECK_EQ(w->report.closed, 1);
    world_advance(w, 20000);
    CHECK_EQ(ports("free"), 2.0);
    world_close(w);
}

TEST(a_dynamic_relay_outlives_the_port_that_it_was_made_for)
{
    unsigned a, b;

    open_pair((const char *[]){"udp_relay_ports=49152-49159", NULL});
    REQUIRE(world_relay(w, &host, &host, &a, &b));
    world_answer(w, MR_HOOK_DROP, MR_HOOK_ADMIT);
    world_inject(w, "10.0.0.9:7000", a, 10);
    CHECK_EQ(world_relays(w), 2);
    CHECK_EQ(RELOAD("udp_relay_ports=50000-50007"), 0);
    for (int i = 0; i < 40; i++) { /* the stranger goes on to speak, to nobody in the end */
        world_decide(w, "10.0.0.9:7000", 50000, NULL, NULL);
        world_advance(w, 1000);
    }
    CHECK_EQ(world_relays(w), 0);
    CHECK_EQ(ports("free") + ports("quarantined") + ports("used"), 8.0);
    world_close(w);
}

TEST(a_reload_that_runs_out_of_memory_changes_nothing)
{
    unsigned a, b;

    open_pair((const char *[]){"udp_relay_ports=49152-49159", NULL});
    REQUIRE(world_relay(w, &client, &host, &a, &b));
    struct settings *fresh = mr__settings_create();
    REQUIRE(fresh);
    REQUIRE_EQ(
        mr__settings_offer(fresh, MR_SETTING_CONFIG, "udp_relay_ports", "50000-50007", 11, NULL),
        0);
    REQUIRE_EQ(mr__settings_offer(fresh, MR_SETTING_CONFIG, "caps_exempt", "10.0.0.0/8", 10, NULL),
               0);
    REQUIRE_EQ(mr__settings_resolve(fresh), 0);
    int rc = -ENOMEM;
    for (long n = 0; rc == -ENOMEM; n++) {
        mr__alloc_fail_after(n);
        rc = mr__service_apply_settings(w->service, fresh, &w->report, w->now_ns);
        mr__alloc_fail_after(-1);
        REQUIRE(n < 100);
        world_settle(w);
        if (rc == -ENOMEM) {
            CHECK_EQ(ports("free"), 6.0);
            CHECK_EQ(ports("used"), 2.0);
        }
    }
    CHECK_EQ(rc, 0);
    mr__settings_destroy(w->settings);
    w->settings = fresh;
    CHECK_EQ(ports("free"), 8.0);
    world_close(w);
}

TEST(many_reloads_leave_the_books_right)
{
    unsigned a, b;

    w = world_open((const char *[]){"udp_relay_ports=49152+15", "udp_relay_timeout=1s", NULL});
    host = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    for (unsigned i = 0; i < 60; i++) {
        char range[64];
        unsigned n = 2 + (i * 7) % 14;
        if (i % 3 != 2) {
            (void)world_relay(w, &host, &host, &a, &b);
        }
        snprintf(range, sizeof range, "udp_relay_ports=%u+%u", 49152 + (i * 5) % 16, n - 1);
        CHECK_EQ(RELOAD(range, "udp_relay_timeout=1s"), 0);
        CHECK_EQ(ports("free") + ports("quarantined") + ports("used"),
                 (double)(n + w->report.draining));
        world_advance(w, i % 2 ? 1200 : 200);
    }
    world_close(w);
}

/* ---- real sockets -------------------------------------------------------------------------- */

/* A socket of another program on loopback. */
static int take_port(unsigned *number)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0) {
        return -1;
    }
    *number = ntohs(a.sin_port);
    return fd;
}

TEST(ports_of_the_kernels_choice_come_and_go_by_their_number)
{
    w = world_open_io((const char *[]){"udp_relay_ports=0+3", "udp_host=127.0.0.1", NULL},
                      MR_IO_KERNEL);
    unsigned first = 0;
    for (unsigned number = 1; number < 65536 && first == 0; number++) {
        first = world_port(w, number) == 0 ? number : 0;
    }
    CHECK_EQ(ports("free"), 4.0);
    CHECK_EQ(RELOAD("udp_relay_ports=0+7", "udp_host=127.0.0.1"), 0);
    CHECK_EQ(w->report.opened, 4);
    CHECK_EQ(ports("free"), 8.0);
    CHECK_NE(world_port(w, first), UINT32_MAX);
    CHECK_EQ(RELOAD("udp_relay_ports=0+1", "udp_host=127.0.0.1"), 0);
    CHECK_EQ(w->report.opened, 0);
    CHECK_EQ(w->report.closed, 6);
    CHECK_EQ(ports("free"), 2.0);
    world_close(w);
}

TEST(a_port_that_was_let_go_can_be_bound_by_another_program)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char list[64];
    unsigned number, other;
    int fd = take_port(&number), second = take_port(&other);

    REQUIRE(fd >= 0 && second >= 0);
    close(fd);
    close(second);
    snprintf(list, sizeof list, "udp_relay_ports=%u,%u", number, other);
    w = world_open_io((const char *[]){list, "udp_host=127.0.0.1", NULL}, MR_IO_KERNEL);
    REQUIRE_EQ(w->report.opened, 2); /* else somebody was quicker */
    snprintf(list, sizeof list, "udp_relay_ports=%u", other);
    CHECK_EQ(RELOAD(list, "udp_host=127.0.0.1"), 0);
    CHECK_EQ(w->report.closed, 1);
    a.sin_port = htons((uint16_t)number);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    world_close(w);
}

TEST(a_list_that_cannot_be_had_at_all_is_refused_and_leaves_everything)
{
    char list[64];
    unsigned taken;
    int fd = take_port(&taken);

    REQUIRE(fd >= 0);
    w = world_open_io((const char *[]){"udp_relay_ports=0+3", "udp_host=127.0.0.1", NULL},
                      MR_IO_KERNEL);
    snprintf(list, sizeof list, "udp_relay_ports=%u", taken);
    CHECK_EQ(RELOAD(list, "udp_host=127.0.0.1", "errors=off"), -EADDRINUSE);
    CHECK_EQ(w->report.first_failed.port, taken);
    CHECK_EQ(ports("free"), 4.0);
    CHECK(mr__settings_values(w->settings)->errors);
    /* One of two is enough. */
    snprintf(list, sizeof list, "udp_relay_ports=%u,0+0", taken);
    CHECK_EQ(RELOAD(list, "udp_host=127.0.0.1"), 0);
    CHECK_EQ(w->report.first_error, -EADDRINUSE);
    CHECK_EQ(ports("free"), 1.0);
    close(fd);
    world_close(w);
}

TEST_MAIN(TEST_CASE(what_needs_a_restart_keeps_its_value_and_is_named),
          TEST_CASE(a_connection_cap_that_the_process_lowered_is_no_change),
          TEST_CASE(words_and_ways_change_for_the_next_command),
          TEST_CASE(a_secret_id_from_before_is_known_after_its_length_changed),
          TEST_CASE(the_idle_timeout_changes_for_relays_that_are_there),
          TEST_CASE(bandwidth_changes_for_relays_that_are_there),
          TEST_CASE(caps_and_who_is_exempt_change_at_once),
          TEST_CASE(what_is_held_of_a_flow_changes_for_the_next_one),
          TEST_CASE(ports_that_are_new_are_opened_and_serve),
          TEST_CASE(a_port_that_is_not_listed_any_more_closes_when_its_relay_has_ended),
          TEST_CASE(a_port_that_is_listed_again_before_it_closed_stays),
          TEST_CASE(a_dynamic_relay_outlives_the_port_that_it_was_made_for),
          TEST_CASE(a_reload_that_runs_out_of_memory_changes_nothing),
          TEST_CASE(many_reloads_leave_the_books_right),
          TEST_CASE(ports_of_the_kernels_choice_come_and_go_by_their_number),
          TEST_CASE(a_port_that_was_let_go_can_be_bound_by_another_program),
          TEST_CASE(a_list_that_cannot_be_had_at_all_is_refused_and_leaves_everything))
