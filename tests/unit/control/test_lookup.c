/* SPDX-License-Identifier: MIT */
/*
 * Names and literals, with a resolver that counts: what a literal costs, on which turn of
 * the loop an answer comes, and what becomes of answers that are none.
 */
#include "control/lookup.h"

#include "base/alloc.h"
#include "base/log.h"
#include "control/lookup_metrics.h"
#include "loop.h"
#include "names.h"
#include "service/metrics.h"
#include "test.h"

#include <net/if.h>

enum { ASKERS = 600 };

/* A question and what came of it. */
struct asker {
    struct mr_lookup_request req;
    unsigned told, turn; /* how often; on which turn the last time */
    int rc;
    struct mr_addr addr;
    char code[64], message[512], ip[MR_ADDR_TEXT_MAX];
    void (*then)(struct asker *a);
    struct fixture *f;
};

/* A custom lookup. */
struct custom {
    unsigned asked, forgotten;
    mr_lookup_ticket tickets[8];
    char host[300];
    int family;
    enum mr_lookup_op op;
    void (*act)(struct fixture *f, mr_lookup_ticket ticket);
    int is_off;
};

struct fixture {
    uv_loop_t loop;
    uv_check_t counter; /* unreferenced */
    unsigned turn, order;
    struct mr_lookup *lookup;
    struct names names;
    struct custom custom;
    struct asker askers[ASKERS];
    long live_before;
    char told_order[64];
    struct log log;
    char line[512];
    unsigned lines;
};

static struct fixture f;

static void on_check(uv_check_t *check)
{
    (void)check;
    f.turn++;
}

static void on_line(void *user, enum log_level level, const char *line, size_t n)
{
    (void)user;
    (void)level;
    snprintf(f.line, sizeof f.line, "%.*s", (int)n, line);
    f.lines++;
}

static void set_up_with(struct mr_lookup_options opts)
{
    memset(&f, 0, sizeof f);
    f.live_before = mr__alloc_live();
    names_init(&f.names);
    REQUIRE_EQ(uv_loop_init(&f.loop), 0);
    uv_check_init(&f.loop, &f.counter);
    uv_check_start(&f.counter, on_check);
    uv_unref((uv_handle_t *)&f.counter);
    f.log = (struct log){.level = MR_LOG_DEBUG, .format = MR_LOG_TEXT, .sink = on_line};
    opts.loop = &f.loop;
    opts.log = &f.log;
    REQUIRE_EQ(mr_lookup_create(&f.lookup, &opts), 0);
    mr_lookup_set_resolver(f.lookup, &f.names.resolver);
}

static void set_up(void)
{
    set_up_with((struct mr_lookup_options){.size = sizeof(struct mr_lookup_options), .threads = 0});
}

/* The loop ends although somebody may hang, and nothing is lost when he does not any more. */
static void tear_down(void)
{
    mr_lookup_destroy(f.lookup);
    uv_close((uv_handle_t *)&f.counter, NULL);
    loop_end(&f.loop);
    names_deinit(&f.names);
    CHECK_EVENTUALLY(mr__alloc_live() == f.live_before);
}

static void on_done(struct mr_lookup_request *req, const struct mr_lookup_answer *a)
{
    struct asker *me = req->user;

    me->told++;
    me->turn = f.turn;
    me->rc = a->rc;
    me->addr = a->addr;
    snprintf(me->code, sizeof me->code, "%s", a->code ? a->code : "");
    snprintf(me->message, sizeof me->message, "%s", a->message ? a->message : "");
    mr_addr_format_ip(&a->addr, me->ip, sizeof me->ip);
    if (f.order < sizeof f.told_order - 1) {
        f.told_order[f.order++] = (char)('a' + (me - f.askers));
    }
    if (me->then) {
        me->then(me);
    }
}

static struct asker *prepare(unsigned i)
{
    struct asker *a = &f.askers[i];

    a->req.done = on_done;
    a->req.user = a;
    a->told = 0;
    return a;
}

static struct asker *ask_for(unsigned i, const char *host, int family, enum mr_lookup_op op)
{
    struct asker *a = prepare(i);

    mr_lookup_start(f.lookup, &a->req, host, strlen(host), family, op, 0);
    return a;
}

static struct asker *ask(unsigned i, const char *host, int family)
{
    return ask_for(i, host, family, MR_LOOKUP_SEND);
}

/* ---- literals ---------------------------------------------------------------------------- */

TEST(a_literal_is_itself_without_a_resolver_a_thread_or_an_allocation)
{
    static const struct {
        const char *host;
        int family;
        const char *ip;
    } rows[] = {{"127.0.0.1", 4, "127.0.0.1"},
                {"127.0.0.1", 0, "127.0.0.1"},
                {"0.0.0.0", 4, "0.0.0.0"},
                {"::1", 6, "::1"},
                {"::1", 0, "::1"},
                {"::", 6, "::"},
                {"2001:db8::1.2.3.4", 6, "2001:db8::102:304"},
                {"fe80::1%3", 6, "fe80::1%3"},
                {"::ffff:10.1.2.3", 4, "10.1.2.3"}};

    set_up();
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int threads = test_count_entries("/proc/self/task");
        struct asker *a;

        mr__alloc_fail_after(0);
        a = ask(i, rows[i].host, rows[i].family);
        CHECK_EQ(a->told, 0);
        uv_run(&f.loop, UV_RUN_DEFAULT);
        mr__alloc_fail_after(-1);
        CHECK_EQ(a->told, 1);
        CHECK_EQ(a->rc, 0);
        CHECK_STR(a->ip, rows[i].ip);
        CHECK_EQ(a->addr.port, 0);
        CHECK_EQ(test_count_entries("/proc/self/task"), threads);
    }
    CHECK_EQ(names_calls(&f.names), 0);
    CHECK_EQ(f.lines, 0);
    tear_down();
}

TEST(what_only_looks_like_a_literal_goes_to_the_resolver)
{
    static const char *const hosts[] = {"127.1",      "127.0.0.01", "0x7f.0.0.1", " 127.0.0.1",
                                        "127.0.0.1 ", "[::1]",      "1.2.3.256",  "::1%1",
                                        "2130706433", "localhost",  "fe80::1%"};
    unsigned n = sizeof hosts / sizeof hosts[0];

    set_up();
    names_answer(&f.names, "10.0.0.9", NULL);
    for (unsigned i = 0; i < n; i++) {
        struct asker *a = ask(i, hosts[i], 4);

        uv_run(&f.loop, UV_RUN_DEFAULT);
        CHECK_EQ(a->rc, 0);
        CHECK_STR(a->ip, "10.0.0.9");
        CHECK_STR(f.names.host, hosts[i]);
    }
    CHECK_EQ(names_calls(&f.names), n);
    tear_down();
}

TEST(an_interface_by_name_is_a_zone_of_a_literal)
{
    char name[IF_NAMESIZE], host[64], ip[64];

    if (!if_indextoname(1, name)) {
        TEST_SKIP("there is no interface 1");
    }
    set_up();
    snprintf(host, sizeof host, "fe80::2%%%s", name);
    snprintf(ip, sizeof ip, "fe80::2%%1");
    ask(0, host, 6);
    ask(1, "fe80::2%there-is-no-such", 6);
    names_fail(&f.names, EAI_NONAME);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_STR(f.askers[0].ip, ip);
    CHECK_STR(f.askers[1].code, "not-found");
    CHECK_EQ(names_calls(&f.names), 1);
    tear_down();
}

/* A fresh loop on which nothing else is: it must neither end nor sleep before. */
TEST(the_first_act_on_a_loop_is_answered_in_each_mode_of_running)
{
    static const uv_run_mode modes[] = {UV_RUN_DEFAULT, UV_RUN_ONCE, UV_RUN_NOWAIT};

    for (unsigned i = 0; i < 3; i++) {
        for (int family = 4; family <= 6; family += 2) {
            struct asker *a;

            set_up();
            CHECK(!uv_loop_alive(&f.loop));
            a = ask_for(0, family == 4 ? "127.0.0.1" : "::1", family, MR_LOOKUP_BIND);
            CHECK(uv_loop_alive(&f.loop));
            CHECK_EQ(uv_backend_timeout(&f.loop), 0);
            CHECK_EQ(a->told, 0);
            CHECK_EQ(uv_run(&f.loop, modes[i]), 0);
            CHECK_EQ(a->told, 1);
            CHECK_EQ(a->rc, 0);
            CHECK(!uv_loop_alive(&f.loop));
            tear_down();
        }
    }
}

static void on_nothing(uv_timer_t *timer)
{
    (void)timer;
}

TEST(the_loop_sleeps_again_when_nothing_is_due)
{
    uv_timer_t other;

    set_up();
    uv_timer_init(&f.loop, &other);
    uv_timer_start(&other, on_nothing, 60000, 0);
    ask(0, "127.0.0.1", 4);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    CHECK_EQ(f.askers[0].told, 1);
    CHECK(uv_backend_timeout(&f.loop) > 1000);
    uv_close((uv_handle_t *)&other, NULL);
    tear_down();
}

static void ask_next(struct asker *a)
{
    if (a < &f.askers[9]) {
        ask((unsigned)(a - f.askers) + 1, "127.0.0.1", 4)->then = ask_next;
        CHECK_EQ((a + 1)->told, 0);
    }
}

TEST(what_is_asked_in_an_answer_is_answered_one_turn_later)
{
    set_up();
    ask(0, "127.0.0.1", 4)->then = ask_next;
    uv_run(&f.loop, UV_RUN_DEFAULT);
    for (unsigned i = 0; i < 10; i++) {
        CHECK_EQ(f.askers[i].told, 1);
        CHECK_EQ(f.askers[i].turn, i);
    }
    tear_down();
}

TEST(answers_come_in_the_order_of_the_questions)
{
    set_up();
    for (unsigned i = 0; i < 20; i++) {
        ask(i, "::1", 6);
    }
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_STR(f.told_order, "abcdefghijklmnopqrst");
    CHECK_EQ(f.askers[19].turn, f.askers[0].turn);
    tear_down();
}

static void cancel_neighbours(struct asker *a)
{
    mr_lookup_cancel(&(a + 1)->req);
    mr_lookup_cancel(&f.askers[5].req);
    mr_lookup_cancel(&a->req); /* over by now */
}

TEST(a_cancelled_question_is_not_answered_wherever_it_waits)
{
    set_up();
    for (unsigned i = 0; i < 6; i++) {
        ask(i, "127.0.0.1", 4);
    }
    f.askers[1].then = cancel_neighbours;
    mr_lookup_cancel(&f.askers[0].req);
    mr_lookup_cancel(&f.askers[0].req);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_STR(f.told_order, "bde");
    ask(0, "127.0.0.1", 4);
    mr_lookup_cancel(&f.askers[0].req);
    CHECK(!uv_loop_alive(&f.loop)); /* nothing is due any more */
    ask(1, "127.0.0.1", 4);
    f.askers[1].then = NULL;
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_STR(f.told_order, "bdeb");
    tear_down();
}

static void destroy_it(struct asker *a)
{
    (void)a;
    mr_lookup_destroy(f.lookup);
    f.lookup = NULL;
}

TEST(a_lookup_that_is_destroyed_in_an_answer_tells_nobody_else)
{
    set_up();
    for (unsigned i = 0; i < 4; i++) {
        ask(i, "127.0.0.1", 4);
    }
    names_hang(&f.names);
    ask(4, "a.fleet", 4);
    f.askers[1].then = destroy_it;
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_STR(f.told_order, "ab");
    mr_lookup_cancel(&f.askers[3].req); /* of a lookup that is gone */
    mr_lookup_cancel(&f.askers[4].req);
    tear_down();
}

TEST(a_host_that_is_none_is_an_error)
{
    static char longest[MR_LOOKUP_HOST_MAX + 2];

    set_up();
    memset(longest, 'a', sizeof longest - 1);
    ask(0, "", 4);
    ask(1, longest, 4);
    ask(2, longest + 1, 4);
    mr_lookup_start(f.lookup, &prepare(3)->req, "a\0b", 3, 4, MR_LOOKUP_SEND, 0);
    mr_lookup_default(f.lookup, &prepare(4)->req, "", 0, 4);
    ask(5, "127.0.0.1", 5);
    names_fail(&f.names, EAI_NONAME);
    for (unsigned i = 0; i < 6; i++) {
        CHECK_EQ(f.askers[i].told, 0);
    }
    uv_run(&f.loop, UV_RUN_DEFAULT);
    for (unsigned i = 0; i < 6; i++) {
        CHECK_EQ(f.askers[i].told, 1);
        CHECK_STR(f.askers[i].code, i == 2 ? "not-found" : "failed");
        CHECK_EQ(f.askers[i].rc, i == 2 ? -ENOENT : -EINVAL);
    }
    CHECK_EQ(names_calls(&f.names), 1);
    tear_down();
}

/* ---- the other family -------------------------------------------------------------------- */

static void check_other_family(const char *host, int family, const char *message)
{
    struct asker *a = ask(0, host, family);

    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_EQ(a->told, 1);
    CHECK_EQ(a->rc, -EAFNOSUPPORT);
    CHECK_STR(a->code, "family");
    CHECK_STR(a->message, message);
}

TEST(a_literal_of_the_other_family_ends_at_the_resolver_whatever_that_says)
{
    static const struct {
        int rc;
        const char *answer;
    } rows[] = {{EAI_ADDRFAMILY, NULL}, {EAI_NONAME, NULL},      {EAI_AGAIN, NULL},
                {0, "127.0.0.1"},       {0, "::ffff:127.0.0.1"}, {0, "::1"},
                {0, "10.9.9.9"},        {0, "2001:db8::9"},      {0, NULL}};
    unsigned n = sizeof rows / sizeof rows[0];

    set_up();
    for (unsigned i = 0; i < n; i++) {
        names_answer(&f.names, rows[i].answer, NULL);
        names_fail(&f.names, rows[i].rc);
        check_other_family("::1", 4, "::1 is an IPv6 address and IPv4 is asked for");
        check_other_family("127.0.0.1", 6, "127.0.0.1 is an IPv4 address and IPv6 is asked for");
    }
    CHECK_EQ(names_calls(&f.names), 2 * n);
    check_other_family("::ffff:10.0.0.1", 6,
                       "::ffff:10.0.0.1: 10.0.0.1 is an IPv4 address and IPv6 is asked for");
    tear_down();
}

/* The system's own, which every program has; no name leaves the machine. */
TEST(the_systems_resolver_does_not_turn_one_family_into_the_other)
{
    set_up();
    mr_lookup_set_resolver(f.lookup, NULL);
    check_other_family("::1", 4, "::1 is an IPv6 address and IPv4 is asked for");
    check_other_family("127.0.0.1", 6, "127.0.0.1 is an IPv4 address and IPv6 is asked for");
    check_other_family("::ffff:127.0.0.1", 6,
                       "::ffff:127.0.0.1: 127.0.0.1 is an IPv4 address and IPv6 is asked for");
    ask(0, "127.1", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_STR(f.askers[0].ip, "127.0.0.1");
    tear_down();
}

/* ---- names ------------------------------------------------------------------------------- */

TEST(a_name_is_the_first_address_of_the_family)
{
    set_up();
    names_answer(&f.names, "2001:db8::7", "10.4.4.4");
    f.names.addresses[2] = "10.4.4.5";
    ask(0, "a.fleet", 4);
    ask(1, "a.fleet", 6);
    ask(2, "a.fleet", 0);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_STR(f.askers[0].ip, "10.4.4.4");
    CHECK_STR(f.askers[1].ip, "2001:db8::7");
    CHECK_STR(f.askers[2].ip, "2001:db8::7");
    CHECK_EQ(f.askers[0].addr.port, 0);
    CHECK_EQ(names_calls(&f.names), 3);
    CHECK_EQ(f.names.frees, 3);
    tear_down();
}

TEST(the_resolver_is_asked_for_the_family_and_not_what_the_machine_has)
{
    static const int af[] = {AF_UNSPEC, AF_INET, AF_INET6};

    set_up();
    for (int i = 0; i < 3; i++) {
        names_fail(&f.names, EAI_NONAME);
        ask(0, "a.fleet", i == 0 ? 0 : i == 1 ? 4 : 6);
        uv_run(&f.loop, UV_RUN_DEFAULT);
        CHECK_EQ(f.names.family, af[i]);
        CHECK_EQ(f.names.flags, 0); /* no AI_ADDRCONFIG, no AI_V4MAPPED */
    }
    tear_down();
}

TEST(what_the_resolver_cannot_say_is_an_error_that_names_the_host)
{
    static const struct {
        int eai;
        const char *address, *code;
        int rc;
    } rows[] = {{EAI_NONAME, NULL, "not-found", -ENOENT},
                {EAI_NODATA, NULL, "not-found", -ENOENT},
                {EAI_ADDRFAMILY, NULL, "family", -EAFNOSUPPORT},
                {EAI_AGAIN, NULL, "failed", -EIO},
                {EAI_FAIL, NULL, "failed", -EIO},
                {EAI_SYSTEM, NULL, "failed", -EIO},
                {EAI_MEMORY, NULL, "failed", -ENOMEM},
                {0, NULL, "not-found", -ENOENT},
                {0, "unix", "not-found", -ENOENT},
                {0, "2001:db8::1", "family", -EAFNOSUPPORT},
                {0, "::ffff:10.0.0.1", NULL, 0}};

    set_up();
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct asker *a;

        names_answer(&f.names, rows[i].address, NULL);
        names_fail(&f.names, rows[i].eai);
        a = ask(0, "a.fleet", 4);
        uv_run(&f.loop, UV_RUN_DEFAULT);
        CHECK_EQ(a->told, 1);
        CHECK_EQ(a->rc, rows[i].rc);
        CHECK_STR(a->code, rows[i].code ? rows[i].code : "");
        CHECK(a->rc == 0 || strncmp(a->message, "a.fleet: ", 9) == 0);
    }
    CHECK_STR(f.askers[0].ip, "10.0.0.1"); /* canonical: a mapped one is IPv4 */
    tear_down();
}

TEST(another_resolver_is_asked_from_the_next_question_on)
{
    struct names other;

    set_up();
    names_init(&other);
    names_answer(&f.names, "10.0.0.1", NULL);
    names_answer(&other, "10.0.0.2", NULL);
    names_hang(&f.names);
    ask(0, "a.fleet", 4);
    mr_lookup_set_resolver(f.lookup, &other.resolver);
    ask(1, "a.fleet", 4);
    CHECK(TURN_UNTIL(&f.loop, f.askers[1].told == 1));
    names_let_go(&f.names);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_STR(f.askers[0].ip, "10.0.0.1");
    CHECK_STR(f.askers[1].ip, "10.0.0.2");
    CHECK_EQ(names_calls(&f.names), 1);
    CHECK_EQ(names_calls(&other), 1);
    other.threads_before = INT32_MAX; /* they are the lookup's */
    names_deinit(&other);
    tear_down();
}

TEST(names_and_literals_keep_the_loop_alive_exactly_until_they_are_answered)
{
    set_up();
    names_answer(&f.names, "10.0.0.1", NULL);
    for (unsigned i = 0; i < 260; i++) {
        ask(i, i % 2 ? "a.fleet" : "10.0.0.2", 4);
    }
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    for (unsigned i = 0; i < 260; i++) {
        CHECK_EQ(f.askers[i].told, 1);
        CHECK_STR(f.askers[i].ip, i % 2 ? "10.0.0.1" : "10.0.0.2");
    }
    tear_down();
}

/* ---- a resolver that hangs --------------------------------------------------------------- */

TEST(while_the_resolver_hangs_literals_go_on_and_names_end_at_their_limit)
{
    set_up_with(
        (struct mr_lookup_options){.size = sizeof(struct mr_lookup_options), .timeout_ms = 60});
    names_hang(&f.names);
    for (unsigned i = 0; i < 20; i++) {
        ask(i, "a.fleet", 4);
    }
    CHECK_EVENTUALLY(names_inside(&f.names) == 4);
    ask(20, "127.0.0.1", 4);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    CHECK_EQ(f.askers[20].told, 1);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    for (unsigned i = 0; i < 20; i++) {
        CHECK_EQ(f.askers[i].told, 1);
        CHECK_EQ(f.askers[i].rc, -ETIMEDOUT);
        CHECK_STR(f.askers[i].code, "timeout");
        CHECK_STR(f.askers[i].message, "a.fleet: no answer in time");
    }
    CHECK_EQ(names_calls(&f.names), 4);
    ask(0, "b.fleet", 4); /* no fifth thread comes for it */
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_STR(f.askers[0].code, "timeout");
    CHECK_EQ(names_calls(&f.names), 4);
    names_let_go(&f.names);
    names_answer(&f.names, "10.0.0.1", NULL);
    ask(1, "c.fleet", 4);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_STR(f.askers[1].ip, "10.0.0.1");
    tear_down();
}

TEST(more_names_than_can_wait_are_told_that_it_is_busy)
{
    set_up();
    names_hang(&f.names);
    names_answer(&f.names, "10.0.0.1", NULL);
    for (unsigned i = 0; i < 262; i++) {
        ask(i, "a.fleet", 4);
    }
    CHECK(TURN_UNTIL(&f.loop, f.askers[260].told == 1 && f.askers[261].told == 1));
    CHECK_STR(f.askers[261].code, "busy");
    CHECK_EQ(f.askers[261].rc, -EBUSY);
    CHECK_STR(f.askers[261].message, "a.fleet: too many names wait for the resolver");
    names_let_go(&f.names);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    for (unsigned i = 0; i < 260; i++) {
        CHECK_EQ(f.askers[i].rc, 0);
    }
    CHECK_EQ(names_calls(&f.names), 260);
    tear_down();
}

TEST(a_loop_ends_although_a_name_hangs)
{
    set_up();
    names_hang(&f.names);
    ask(0, "a.fleet", 4);
    ask(1, "b.fleet", 4);
    CHECK_EVENTUALLY(names_inside(&f.names) == 2);
    mr_lookup_cancel(&f.askers[1].req);
    tear_down(); /* closes the loop first, then lets them go */
    CHECK_EQ(f.askers[0].told, 0);
}

/* ---- custom lookups ---------------------------------------------------------------------- */

static void on_ask(void *user, mr_lookup_ticket ticket, const char *host, size_t n, int family,
                   enum mr_lookup_op op)
{
    struct custom *c = user;

    c->tickets[c->asked++ % 8] = ticket;
    snprintf(c->host, sizeof c->host, "%.*s", (int)n, host);
    c->family = family;
    c->op = op;
    if (c->act) {
        c->act(&f, ticket);
    }
    CHECK_EQ(strncmp(c->host, host, n), 0); /* it is there until we return */
}

static void on_forget(void *user, mr_lookup_ticket ticket)
{
    (void)ticket;
    ((struct custom *)user)->forgotten++;
}

static int on_wants(void *user)
{
    return !((struct custom *)user)->is_off;
}

static struct mr_lookup_custom custom(void)
{
    return (struct mr_lookup_custom){
        .user = &f.custom, .ask = on_ask, .forget = on_forget, .wants = on_wants};
}

static void set_up_custom(void (*act)(struct fixture *fixture, mr_lookup_ticket ticket))
{
    struct mr_lookup_custom c = custom();

    set_up_with(
        (struct mr_lookup_options){.size = sizeof(struct mr_lookup_options), .timeout_ms = 60});
    f.custom.act = act;
    mr_lookup_set_custom(f.lookup, &c);
}

static int answer_ip(mr_lookup_ticket ticket, const char *ip)
{
    struct mr_lookup_answer a = {.rc = 0};

    REQUIRE_EQ(mr_addr_parse_ip(&a.addr, ip, strlen(ip), NULL), MR_ADDR_OK);
    return mr_lookup_answer(f.lookup, ticket, &a);
}

static void answer_inside(struct fixture *fixture, mr_lookup_ticket ticket)
{
    (void)fixture;
    CHECK_EQ(answer_ip(ticket, "10.7.7.7"), 0);
}

static void answer_twice(struct fixture *fixture, mr_lookup_ticket ticket)
{
    (void)fixture;
    CHECK_EQ(answer_ip(ticket, "10.7.7.7"), 0);
    CHECK_EQ(answer_ip(ticket, "10.8.8.8"), -EALREADY);
}

static void answer_next(struct fixture *fixture, mr_lookup_ticket ticket)
{
    (void)fixture;
    CHECK_EQ(mr_lookup_answer(f.lookup, ticket, NULL), 0);
}

TEST(a_custom_lookup_sees_every_host_and_what_for)
{
    static const struct {
        const char *host;
        int family;
        enum mr_lookup_op op;
    } rows[] = {{"127.0.0.1", 4, MR_LOOKUP_SEND}, {"::1", 6, MR_LOOKUP_CONNECT},
                {"0.0.0.0", 4, MR_LOOKUP_BIND},   {"::", 6, MR_LOOKUP_BIND},
                {"::1", 4, MR_LOOKUP_LISTEN},     {"a.fleet", 0, MR_LOOKUP_TARGET},
                {"127.1", 4, MR_LOOKUP_RESOLVE},  {"b.fleet", 0, MR_LOOKUP_HTTP}};

    set_up_custom(answer_inside);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct asker *a = ask_for(i, rows[i].host, rows[i].family, rows[i].op);

        CHECK_EQ(f.custom.asked, i); /* never from inside of a question */
        uv_run(&f.loop, UV_RUN_DEFAULT);
        CHECK_EQ(f.custom.asked, i + 1);
        CHECK_STR(f.custom.host, rows[i].host);
        CHECK_EQ(f.custom.family, rows[i].family);
        CHECK_EQ(f.custom.op, rows[i].op);
        CHECK_EQ(a->told, 1);
        CHECK_EQ(a->rc, rows[i].family == 6 ? -EAFNOSUPPORT : 0);
    }
    CHECK_EQ(names_calls(&f.names), 0);
    CHECK_EQ(f.custom.forgotten, 0);
    tear_down();
}

TEST(an_answer_from_inside_is_told_one_turn_later)
{
    set_up_custom(answer_inside);
    ask(0, "a.fleet", 4);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    CHECK_EQ(f.custom.asked, 1);
    CHECK_EQ(f.askers[0].told, 0);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    CHECK_EQ(f.askers[0].told, 1);
    CHECK_STR(f.askers[0].ip, "10.7.7.7");
    tear_down();
}

TEST(the_port_of_an_answer_is_left_out)
{
    struct mr_lookup_answer a = {.rc = 0};

    REQUIRE_EQ(mr_addr_parse(&a.addr, "10.7.7.7:7777", 13, NULL), MR_ADDR_OK);
    set_up_custom(NULL);
    ask(0, "a.fleet", 4);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    CHECK_EQ(mr_lookup_answer(f.lookup, f.custom.tickets[0], &a), 0);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_STR(f.askers[0].ip, "10.7.7.7");
    CHECK_EQ(f.askers[0].addr.port, 0);
    tear_down();
}

TEST(an_answer_may_come_later)
{
    set_up_custom(NULL);
    ask(0, "a.fleet", 4);
    ask(1, "b.fleet", 4);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    CHECK_EQ(answer_ip(f.custom.tickets[1], "10.0.0.2"), 0);
    CHECK_EQ(answer_ip(f.custom.tickets[0], "10.0.0.1"), 0);
    CHECK_EQ(f.askers[0].told, 0);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_STR(f.askers[0].ip, "10.0.0.1");
    CHECK_STR(f.askers[1].ip, "10.0.0.2");
    tear_down();
}

TEST(a_second_or_late_answer_is_ignored_and_counted)
{
    struct mr_lookup_counts counts;

    set_up_custom(answer_twice);
    ask(0, "a.fleet", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_EQ(f.askers[0].told, 1);
    CHECK_STR(f.askers[0].ip, "10.7.7.7");
    CHECK_EQ(answer_ip(f.custom.tickets[0], "10.8.8.8"), -EALREADY);
    CHECK_EQ(answer_ip(12345, "10.8.8.8"), -EALREADY);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_EQ(f.askers[0].told, 1);
    mr_lookup_count(f.lookup, &counts);
    CHECK_EQ(counts.ignored, 3);
    CHECK_EQ(counts.script_calls, 1);
    tear_down();
}

TEST(nobodys_opinion_leaves_it_to_the_default)
{
    set_up_custom(answer_next);
    names_answer(&f.names, "10.0.0.3", NULL);
    ask(0, "127.0.0.1", 4);
    ask(1, "a.fleet", 4);
    ask(2, "::1", 4);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_STR(f.askers[0].ip, "127.0.0.1");
    CHECK_STR(f.askers[1].ip, "10.0.0.3");
    CHECK_STR(f.askers[2].code, "family");
    CHECK_EQ(names_calls(&f.names), 2);
    tear_down();
}

static struct mr_lookup_answer odd;

static void answer_oddly(struct fixture *fixture, mr_lookup_ticket ticket)
{
    (void)fixture;
    CHECK_EQ(mr_lookup_answer(f.lookup, ticket, &odd), 0);
}

TEST(an_answer_that_is_none_is_an_error_of_that_request_alone)
{
    static const struct {
        int rc, family;
        const char *code, *message, *told_code, *told;
    } rows[] = {
        {0, 0, NULL, NULL, "family", "a.fleet: the answer is no address, IPv4 is asked for"},
        {0, 5, NULL, NULL, "family", "a.fleet: the answer is no address, IPv4 is asked for"},
        {0, 6, NULL, NULL, "family", "a.fleet: :: is an IPv6 address and IPv4 is asked for"},
        {-EIO, 0, NULL, NULL, "failed", "failed"},
        {-ENOENT, 0, "no-such-room", "a.fleet: no such room", "no-such-room",
         "a.fleet: no such room"},
        {17, 4, "failed", "odd", "failed", "odd"},
        {-ENOENT, 0, "not-found", "two\nlines", "not-found", "two?lines"}};

    set_up_custom(answer_oddly);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        odd = (struct mr_lookup_answer){.rc = rows[i].rc,
                                        .addr = {.family = (uint8_t)rows[i].family},
                                        .code = rows[i].code,
                                        .message = rows[i].message};
        ask(0, "a.fleet", 4);
        CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
        CHECK_EQ(f.askers[0].told, 1);
        CHECK(f.askers[0].rc < 0);
        CHECK_STR(f.askers[0].code, rows[i].told_code);
        CHECK_STR(f.askers[0].message, rows[i].told);
    }
    f.custom.act = answer_inside;
    ask(0, "a.fleet", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_EQ(f.askers[0].rc, 0);
    tear_down();
}

TEST(a_custom_lookup_that_never_answers_is_a_timeout)
{
    set_up_custom(NULL);
    ask(0, "127.0.0.1", 4);
    ask(1, "a.fleet", 4);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQ(f.askers[i].told, 1);
        CHECK_EQ(f.askers[i].rc, -ETIMEDOUT);
        CHECK_STR(f.askers[i].code, "timeout");
    }
    CHECK_STR(f.askers[1].message, "a.fleet: the lookup gave no answer in time");
    CHECK_EQ(f.custom.forgotten, 2);
    CHECK_EQ(answer_ip(f.custom.tickets[0], "10.0.0.1"), -EALREADY);
    CHECK(!uv_loop_alive(&f.loop));
    tear_down();
}

static void cancel_it(struct fixture *fixture, mr_lookup_ticket ticket)
{
    (void)fixture;
    mr_lookup_cancel(&f.askers[0].req);
    CHECK_EQ(answer_ip(ticket, "10.0.0.1"), -EALREADY);
}

TEST(a_question_may_be_cancelled_while_it_is_asked)
{
    set_up_custom(cancel_it);
    ask(0, "a.fleet", 4);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(f.askers[0].told, 0);
    CHECK_EQ(f.custom.forgotten, 1);
    tear_down();
}

static void destroy_in_ask(struct fixture *fixture, mr_lookup_ticket ticket)
{
    (void)fixture;
    (void)ticket;
    destroy_it(NULL);
}

TEST(a_lookup_may_be_destroyed_while_it_asks)
{
    set_up_custom(destroy_in_ask);
    ask(0, "a.fleet", 4);
    ask(1, "b.fleet", 4);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(f.custom.asked, 1);
    CHECK_EQ(f.custom.forgotten, 1);
    CHECK_EQ(f.askers[0].told + f.askers[1].told, 0);
    tear_down();
}

TEST(cancelled_questions_are_forgotten_where_they_were_asked)
{
    set_up_custom(NULL);
    ask(0, "a.fleet", 4);
    mr_lookup_cancel(&f.askers[0].req); /* before */
    ask(1, "b.fleet", 4);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    CHECK_EQ(f.custom.asked, 1);
    mr_lookup_cancel(&f.askers[1].req); /* and after it was asked */
    CHECK_EQ(f.custom.forgotten, 1);
    CHECK(!uv_loop_alive(&f.loop));
    tear_down();
}

TEST(what_a_custom_lookup_asks_itself_goes_to_the_default)
{
    set_up_custom(answer_inside);
    names_answer(&f.names, "10.0.0.3", NULL);
    mr_lookup_start(f.lookup, &prepare(0)->req, "a.fleet", 7, 4, MR_LOOKUP_RESOLVE,
                    MR_LOOKUP_BUILT_IN);
    mr_lookup_default(f.lookup, &prepare(1)->req, "127.0.0.1", 9, 4);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(f.custom.asked, 0);
    CHECK_STR(f.askers[0].ip, "10.0.0.3");
    CHECK_STR(f.askers[1].ip, "127.0.0.1");
    tear_down();
}

TEST(an_askers_own_custom_lookup_comes_before_the_loops)
{
    struct custom own = {.act = answer_next};
    struct mr_lookup_custom c = {.user = &own, .ask = on_ask};

    set_up_custom(answer_inside);
    mr_lookup_start_with(f.lookup, &prepare(0)->req, &c, "127.0.0.1", 9, 4, MR_LOOKUP_SEND, 0);
    mr_lookup_start_with(f.lookup, &prepare(1)->req, &(struct mr_lookup_custom){.ask = NULL},
                         "127.0.0.1", 9, 4, MR_LOOKUP_SEND, 0);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(own.asked, 1);
    CHECK_EQ(f.custom.asked, 1);
    CHECK_STR(f.askers[0].ip,
              "127.0.0.1"); /* its own has no opinion: not the loop's, the default */
    CHECK_STR(f.askers[1].ip, "10.7.7.7");
    mr_lookup_start_with(f.lookup, &prepare(2)->req, &c, "127.0.0.1", 9, 4, MR_LOOKUP_SEND,
                         MR_LOOKUP_BUILT_IN); /* it is that which asks */
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(own.asked, 1);
    CHECK_STR(f.askers[2].ip, "127.0.0.1");
    tear_down();
}

/* A resolver that is asked on the loop. */
static void set_up_on_loop(struct mr_resolver *r, void (*act)(struct fixture *, mr_lookup_ticket))
{
    set_up_with(
        (struct mr_lookup_options){.size = sizeof(struct mr_lookup_options), .timeout_ms = 60});
    *r = (struct mr_resolver){.on_loop = {.user = &f.custom, .ask = on_ask}};
    f.custom.act = act;
    mr_lookup_set_resolver(f.lookup, r);
}

TEST(a_resolver_on_the_loop_is_asked_about_what_is_no_literal_of_the_family)
{
    struct mr_lookup_counts counts;
    struct mr_resolver r;

    set_up_on_loop(&r, answer_inside);
    ask(0, "127.0.0.1", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_EQ(f.custom.asked, 0);
    ask(1, "a.fleet", 4);
    CHECK_EQ(f.custom.asked, 0);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    CHECK_EQ(f.custom.asked, 1);
    CHECK_EQ(f.askers[1].told, 0);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_STR(f.askers[1].ip, "10.7.7.7");
    ask(2, "::1", 4); /* is not resolved to something else */
    ask(3, "b.fleet", 6);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(f.custom.asked, 3);
    CHECK_STR(f.askers[2].code, "family");
    CHECK_STR(f.askers[3].code, "family");
    mr_lookup_count(f.lookup, &counts);
    CHECK_EQ(counts.literals, 1);
    CHECK_EQ(counts.resolver_calls, 3);
    CHECK_EQ(counts.script_calls, 0);
    CHECK_EQ(names_calls(&f.names), 0);
    CHECK_EQ(f.lines, 3);
    tear_down();
}

TEST(a_resolver_on_the_loop_may_know_nothing_or_never_answer)
{
    struct mr_resolver r;

    set_up_on_loop(&r, answer_next);
    ask(0, "a.fleet", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_STR(f.askers[0].code, "not-found");
    CHECK_STR(f.askers[0].message, "a.fleet: there is no such name");
    f.custom.act = NULL;
    ask(1, "b.fleet", 4);
    ask(2, "c.fleet", 4);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    mr_lookup_cancel(&f.askers[2].req);
    CHECK_EQ(uv_run(&f.loop, UV_RUN_DEFAULT), 0);
    CHECK_STR(f.askers[1].code, "timeout");
    CHECK_EQ(f.askers[2].told, 0);
    CHECK_EQ(f.lines, 3);
    tear_down();
}

TEST(whether_a_custom_lookup_is_wanted_is_asked_each_time)
{
    set_up_custom(answer_inside);
    f.custom.is_off = 1;
    ask(0, "127.0.0.1", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    f.custom.is_off = 0;
    ask(1, "127.0.0.1", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    mr_lookup_set_custom(f.lookup, NULL);
    ask(2, "127.0.0.1", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_STR(f.askers[0].ip, "127.0.0.1");
    CHECK_STR(f.askers[1].ip, "10.7.7.7");
    CHECK_STR(f.askers[2].ip, "127.0.0.1");
    tear_down();
}

TEST(tickets_are_never_given_twice)
{
    mr_lookup_ticket last = 0;

    set_up_custom(answer_inside);
    for (unsigned i = 0; i < 1000; i++) {
        ask(i % ASKERS, "a.fleet", 4);
        uv_run(&f.loop, UV_RUN_DEFAULT);
        CHECK_GT(f.custom.tickets[i % 8], last);
        last = f.custom.tickets[i % 8];
    }
    tear_down();
}

/* ---- memory, figures, log ---------------------------------------------------------------- */

TEST(without_memory_a_lookup_fails_alone)
{
    unsigned failed = 0;

    set_up_custom(answer_next);
    names_fail(&f.names, EAI_NONAME);
    for (long n = 0; n < 8; n++) {
        mr__alloc_fail_after(n);
        ask(0, "a.fleet", 4);
        ask(1, "::1", 4);
        uv_run(&f.loop, UV_RUN_DEFAULT);
        mr__alloc_fail_after(-1);
        for (unsigned i = 0; i < 2; i++) {
            CHECK_EQ(f.askers[i].told, 1);
            CHECK(f.askers[i].rc < 0);
            failed += f.askers[i].rc == -ENOMEM;
            CHECK(f.askers[i].rc != -ENOMEM || strcmp(f.askers[i].code, "failed") == 0);
        }
    }
    CHECK_GT(failed, 4);
    ask(0, "127.0.0.1", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_EQ(f.askers[0].rc, 0);
    tear_down();
}

TEST(without_memory_none_is_made)
{
    struct mr_lookup *l = NULL;
    struct mr_lookup_options opts = {.size = sizeof(struct mr_lookup_options), .loop = &f.loop};

    REQUIRE_EQ(uv_loop_init(&f.loop), 0);
    for (long n = 0; n < 3; n++) {
        mr__alloc_fail_after(n);
        CHECK_EQ(mr_lookup_create(&l, &opts), -ENOMEM);
        mr__alloc_fail_after(-1);
        CHECK(l == NULL);
    }
    mr_lookup_destroy(NULL);
    loop_end(&f.loop);
}

TEST(options_that_init_did_not_fill_are_refused)
{
    struct mr_lookup_options opts = {.loop = &f.loop};
    struct mr_lookup *l = NULL;

    REQUIRE_EQ(uv_loop_init(&f.loop), 0);
    CHECK_EQ(mr_lookup_create(&l, &opts), -EINVAL);
    mr_lookup_options_init(&opts, sizeof opts);
    CHECK_EQ(mr_lookup_create(&l, &opts), -EINVAL); /* on no loop */
    opts.size--;
    opts.loop = &f.loop;
    CHECK_EQ(mr_lookup_create(&l, &opts), -EINVAL);
    CHECK(l == NULL);
    loop_end(&f.loop);
}

/* Who was built with a header that has fewer of them. */
TEST(nothing_is_read_of_options_of_another_size)
{
    size_t *size = calloc(1, sizeof *size);
    struct mr_lookup *l = NULL;

    *size = sizeof *size;
    CHECK_EQ(mr_lookup_create(&l, (const struct mr_lookup_options *)(const void *)size), -EINVAL);
    CHECK(l == NULL);
    free(size);
}

static bool has_line(const char *page, const char *line)
{
    return strstr(page, line) != NULL;
}

TEST(each_question_is_in_one_figure)
{
    struct metrics *m;
    struct mr_lookup_counts counts;
    char *page;
    size_t n;

    set_up_custom(answer_next);
    m = mr__metrics_create();
    names_answer(&f.names, "10.0.0.3", NULL);
    ask(0, "127.0.0.1", 4);
    ask(1, "a.fleet", 4);
    ask(2, "::1", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    f.custom.act = answer_oddly;
    odd = (struct mr_lookup_answer){.rc = -EIO, .code = "my-own-word", .message = "no"};
    ask(3, "127.0.0.1", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    mr_lookup_count(f.lookup, &counts);
    CHECK_EQ(counts.literals, 1);
    CHECK_EQ(counts.resolver_calls, 2);
    CHECK_EQ(counts.script_calls, 4);
    mr__lookup_metrics(f.lookup, m);
    page = mr__metrics_finish(m, &n);
    REQUIRE(page != NULL);
    CHECK(has_line(page, "moonrelay_lookup_total{kind=\"literal\",result=\"ok\"} 1\n"));
    CHECK(has_line(page, "moonrelay_lookup_total{kind=\"script\",result=\"next\"} 3\n"));
    CHECK(has_line(page, "moonrelay_lookup_total{kind=\"script\",result=\"refused\"} 1\n"));
    CHECK(has_line(page, "moonrelay_lookup_total{kind=\"script\",result=\"ignored\"} 0\n"));
    CHECK(has_line(page, "moonrelay_lookup_total{kind=\"resolver\",result=\"ok\"} 1\n"));
    CHECK(has_line(page, "moonrelay_lookup_total{kind=\"resolver\",result=\"family\"} 1\n"));
    CHECK(has_line(page, "moonrelay_lookup_duration_seconds_count 2\n"));
    CHECK(!has_line(page, "my-own-word"));
    mr__free(page);
    tear_down();
}

TEST(each_resolver_call_is_one_line_at_debug_and_a_literal_is_none)
{
    set_up();
    names_answer(&f.names, "10.0.0.3", NULL);
    ask(0, "127.0.0.1", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_EQ(f.lines, 0);
    ask_for(0, "a.fleet\x1b[31m\n", 0, MR_LOOKUP_TARGET);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_EQ(f.lines, 1);
    CHECK(strstr(f.line, "host=\"a.fleet\\u001b[31m\\n\" family=either op=target result=ok ms="));
    names_hang(&f.names);
    ask_for(0, "b.fleet", 4, MR_LOOKUP_HTTP);
    mr_lookup_cancel(&f.askers[0].req);
    CHECK_EQ(f.lines, 2);
    CHECK(strstr(f.line, "host=b.fleet family=4 op=http result=cancelled ms="));
    f.log.level = MR_LOG_INFO;
    names_let_go(&f.names);
    ask(0, "a.fleet", 4);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    CHECK_EQ(f.lines, 2);
    tear_down();
}

TEST_MAIN(TEST_CASE(a_literal_is_itself_without_a_resolver_a_thread_or_an_allocation),
          TEST_CASE(what_only_looks_like_a_literal_goes_to_the_resolver),
          TEST_CASE(an_interface_by_name_is_a_zone_of_a_literal),
          TEST_CASE(the_first_act_on_a_loop_is_answered_in_each_mode_of_running),
          TEST_CASE(the_loop_sleeps_again_when_nothing_is_due),
          TEST_CASE(what_is_asked_in_an_answer_is_answered_one_turn_later),
          TEST_CASE(answers_come_in_the_order_of_the_questions),
          TEST_CASE(a_cancelled_question_is_not_answered_wherever_it_waits),
          TEST_CASE(a_lookup_that_is_destroyed_in_an_answer_tells_nobody_else),
          TEST_CASE(a_host_that_is_none_is_an_error),
          TEST_CASE(a_literal_of_the_other_family_ends_at_the_resolver_whatever_that_says),
          TEST_CASE(the_systems_resolver_does_not_turn_one_family_into_the_other),
          TEST_CASE(a_name_is_the_first_address_of_the_family),
          TEST_CASE(the_resolver_is_asked_for_the_family_and_not_what_the_machine_has),
          TEST_CASE(what_the_resolver_cannot_say_is_an_error_that_names_the_host),
          TEST_CASE(another_resolver_is_asked_from_the_next_question_on),
          TEST_CASE(names_and_literals_keep_the_loop_alive_exactly_until_they_are_answered),
          TEST_CASE(while_the_resolver_hangs_literals_go_on_and_names_end_at_their_limit),
          TEST_CASE(more_names_than_can_wait_are_told_that_it_is_busy),
          TEST_CASE(a_loop_ends_although_a_name_hangs),
          TEST_CASE(a_custom_lookup_sees_every_host_and_what_for),
          TEST_CASE(an_answer_from_inside_is_told_one_turn_later),
          TEST_CASE(the_port_of_an_answer_is_left_out),
          TEST_CASE(options_that_init_did_not_fill_are_refused),
          TEST_CASE(nothing_is_read_of_options_of_another_size),
          TEST_CASE(an_answer_may_come_later),
          TEST_CASE(a_second_or_late_answer_is_ignored_and_counted),
          TEST_CASE(nobodys_opinion_leaves_it_to_the_default),
          TEST_CASE(an_answer_that_is_none_is_an_error_of_that_request_alone),
          TEST_CASE(a_custom_lookup_that_never_answers_is_a_timeout),
          TEST_CASE(a_question_may_be_cancelled_while_it_is_asked),
          TEST_CASE(a_lookup_may_be_destroyed_while_it_asks),
          TEST_CASE(cancelled_questions_are_forgotten_where_they_were_asked),
          TEST_CASE(what_a_custom_lookup_asks_itself_goes_to_the_default),
          TEST_CASE(an_askers_own_custom_lookup_comes_before_the_loops),
          TEST_CASE(a_resolver_on_the_loop_is_asked_about_what_is_no_literal_of_the_family),
          TEST_CASE(a_resolver_on_the_loop_may_know_nothing_or_never_answer),
          TEST_CASE(whether_a_custom_lookup_is_wanted_is_asked_each_time),
          TEST_CASE(tickets_are_never_given_twice), TEST_CASE(without_memory_a_lookup_fails_alone),
          TEST_CASE(without_memory_none_is_made), TEST_CASE(each_question_is_in_one_figure),
          TEST_CASE(each_resolver_call_is_one_line_at_debug_and_a_literal_is_none))
