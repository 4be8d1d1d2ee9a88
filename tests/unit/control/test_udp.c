/* SPDX-License-Identifier: MIT */
/*
 * UDP endpoints over real sockets: who is asked about which host and when, what becomes of
 * sends that wait, that one datagram's trouble is its own, and that after a close nothing
 * comes. The resolver is counted; system calls fail on order (../io/faults.h).
 */
#include "control/udp.h"

#include "../io/faults.c"
#include "base/alloc.h"
#include "lookups.h"

/* What a callback was told. */
struct told {
    unsigned n, order; /* order: of all calls in this program */
    int rc;
    char code[64], message[1400];
};

static unsigned last_order;

static void on_told(void *arg, const struct mr_udp_result *r)
{
    struct told *t = arg;

    t->n++;
    t->order = ++last_order;
    t->rc = r->rc;
    snprintf(t->code, sizeof t->code, "%s", r->code ? r->code : "");
    snprintf(t->message, sizeof t->message, "%s", r->message ? r->message : "");
    CHECK(r->rc == 0 || (r->code && r->message && !strchr(r->message, '\n')));
}

static void on_closed(void *arg)
{
    ++*(unsigned *)arg;
}

struct fixture {
    struct world w;
    int family;
    struct mr_udp *udp;
    unsigned received, closed;
    size_t size;
    char text[4096]; /* all that came, a space behind each */
    struct mr_addr from;
    /* a plain socket to send to */
    int fd;
    uint16_t port;
    char heard[8192];
};

static void on_message(void *user, const struct mr_addr *from, const struct mr_addr *local,
                       const void *data, size_t n)
{
    struct fixture *f = user;
    size_t at = strlen(f->text);

    CHECK_NE(local->family, 0);
    f->received++;
    f->from = *from;
    f->size = n;
    if (at + n + 2 < sizeof f->text) {
        memcpy(f->text + at, data, n);
        f->text[at + n] = ' ';
        f->text[at + n + 1] = 0;
    }
}

static struct mr_udp *make(struct fixture *f, bool has_own)
{
    struct mr_udp_options opts;
    struct mr_udp *u = NULL;

    mr_udp_options_init(&opts, sizeof opts);
    opts.loop = &f->w.loop;
    opts.family = f->family;
    opts.user = f;
    opts.on_message = on_message;
    if (has_own) {
        opts.lookup = custom_of(&f->w.asked);
    }
    REQUIRE_EQ(mr_udp_create(&u, f->w.lookup, &opts), 0);
    return u;
}

enum whose { NOBODYS, OWN, THE_LOOPS };

static void set_up(struct fixture *f, int family, enum whose whose, uint32_t timeout_ms)
{
    memset(f, 0, sizeof *f);
    world_open(&f->w, timeout_ms);
    f->family = family;
    f->udp = make(f, whose == OWN);
    if (whose == THE_LOOPS) {
        struct mr_lookup_custom custom = custom_of(&f->w.asked);
        mr_lookup_set_custom(f->w.lookup, &custom);
    }
    f->fd = plain_open(family, &f->port);
}

static void tear_down(struct fixture *f)
{
    if (f->udp) {
        mr_udp_close(f->udp, on_closed, &f->closed);
        REQUIRE_IN_TURNS(&f->w.loop, f->closed == 1);
    }
    close(f->fd);
    fault_reset();
    world_close(&f->w);
}

/* Every family this machine has. */
static void each_family(void (*check)(int family))
{
    check(4);
    if (!has_ipv6()) {
        TEST_SKIP("no IPv6 here");
    }
    check(6);
}

static const char *loopback_text(int family)
{
    return family == 4 ? "127.0.0.1" : "::1";
}

static int send_text(struct fixture *f, const char *text, const char *host, struct told *t)
{
    int rc;

    f->w.asked.is_inside = true;
    rc =
        mr_udp_send(f->udp, text, strlen(text), host, host ? strlen(host) : 0, f->port, on_told, t);
    f->w.asked.is_inside = false;
    if (t) {
        CHECK_EQ(t->n, 0u);
    }
    return rc;
}

static int bind_to(struct fixture *f, const char *host, struct told *t)
{
    int rc;

    f->w.asked.is_inside = true;
    rc = mr_udp_bind(f->udp, host, host ? strlen(host) : 0, 0, on_told, t);
    f->w.asked.is_inside = false;
    CHECK_EQ(t->n, 0u);
    return rc;
}

static int connect_to(struct fixture *f, const char *host, struct told *t)
{
    int rc;

    f->w.asked.is_inside = true;
    rc = mr_udp_connect(f->udp, host, host ? strlen(host) : 0, f->port, on_told, t);
    f->w.asked.is_inside = false;
    CHECK_EQ(t->n, 0u);
    return rc;
}

#define REQUIRE_HEARD(f, what)                                                          \
    REQUIRE_IN_TURNS(&(f)->w.loop, plain_read((f)->fd, (f)->heard, sizeof(f)->heard) && \
                                       strcmp((f)->heard, (what)) == 0)

static void bind_wildcard(struct fixture *f)
{
    struct told t = {0};

    REQUIRE_EQ(bind_to(f, NULL, &t), 0);
    REQUIRE_IN_TURNS(&f->w.loop, t.n == 1);
    REQUIRE_EQ(t.rc, 0);
    f->w.asked.n = 0;
}

/* ---- literals ----------------------------------------------------------------------------- */

static void check_literals(int family)
{
    struct fixture f;
    struct told bound = {0}, sent = {0}, connected = {0}, to_peer = {0};
    struct mr_addr at;

    set_up(&f, family, NOBODYS, 0);
    CHECK_EQ(mr_udp_address(f.udp, &at), -ENOTCONN);
    REQUIRE_EQ(bind_to(&f, loopback_text(family), &bound), 0);
    REQUIRE_IN_TURNS(&f.w.loop, bound.n == 1);
    CHECK_EQ(bound.rc, 0);
    REQUIRE_EQ(mr_udp_address(f.udp, &at), 0);
    CHECK_EQ(at.family, family);
    CHECK_NE(at.port, 0);
    REQUIRE_EQ(send_text(&f, "one", loopback_text(family), &sent), 0);
    REQUIRE_IN_TURNS(&f.w.loop, sent.n == 1);
    REQUIRE_EQ(connect_to(&f, loopback_text(family), &connected), 0);
    REQUIRE_IN_TURNS(&f.w.loop, connected.n == 1);
    REQUIRE_EQ(mr_udp_send(f.udp, "two", 3, NULL, 0, 0, on_told, &to_peer), 0);
    CHECK_EQ(to_peer.n, 0u);
    REQUIRE_IN_TURNS(&f.w.loop, to_peer.n == 1);
    CHECK_EQ(sent.rc + connected.rc + to_peer.rc, 0);
    REQUIRE_HEARD(&f, "one two ");
    CHECK_EQ(resolver_calls(&f.w), 0u);
    tear_down(&f);
}

TEST(literals_in_bind_send_and_connect_need_no_resolver)
{
    each_family(check_literals);
}

static void check_other_literal(int family)
{
    const char *other = loopback_text(family == 4 ? 6 : 4);
    struct fixture f;
    struct told bound = {0}, sent = {0}, connected = {0}, after = {0};

    set_up(&f, family, NOBODYS, 0);
    REQUIRE_EQ(bind_to(&f, other, &bound), 0);
    REQUIRE_IN_TURNS(&f.w.loop, bound.n == 1);
    CHECK_LT(bound.rc, 0);
    CHECK_STR(bound.code, "family");
    CHECK_EQ(resolver_calls(&f.w), 1u);
    REQUIRE_EQ(send_text(&f, "astray", other, &sent), 0);
    REQUIRE_IN_TURNS(&f.w.loop, sent.n == 1);
    CHECK_STR(sent.code, "family");
    CHECK(strstr(sent.message, other) != NULL);
    CHECK_EQ(resolver_calls(&f.w), 2u);
    REQUIRE_EQ(connect_to(&f, other, &connected), 0);
    REQUIRE_IN_TURNS(&f.w.loop, connected.n == 1);
    CHECK_STR(connected.code, "family");
    CHECK_EQ(resolver_calls(&f.w), 3u);
    REQUIRE_EQ(send_text(&f, "right", NULL, &after), 0);
    REQUIRE_IN_TURNS(&f.w.loop, after.n == 1);
    CHECK_EQ(after.rc, 0);
    REQUIRE_HEARD(&f, "right ");
    tear_down(&f);
}

TEST(a_literal_of_the_other_family_is_an_error_and_is_sent_nowhere)
{
    each_family(check_other_literal);
}

static void check_names(int family)
{
    struct fixture f;
    struct told bound = {0}, sent = {0}, unknown = {0};

    set_up(&f, family, NOBODYS, 0);
    REQUIRE_EQ(bind_to(&f, "here.test", &bound), 0);
    REQUIRE_IN_TURNS(&f.w.loop, bound.n == 1);
    CHECK_EQ(bound.rc, 0);
    REQUIRE_EQ(send_text(&f, "by-name", "there.test", &sent), 0);
    REQUIRE_EQ(send_text(&f, "lost", "nobody.invalid", &unknown), 0);
    REQUIRE_IN_TURNS(&f.w.loop, sent.n == 1 && unknown.n == 1);
    CHECK_EQ(sent.rc, 0);
    CHECK_STR(unknown.code, "not-found");
    CHECK(strstr(unknown.message, "nobody.invalid") != NULL);
    REQUIRE_HEARD(&f, "by-name ");
    CHECK_EQ(resolver_calls(&f.w), 3u);
    tear_down(&f);
}

TEST(a_name_is_looked_up_once_for_each_call)
{
    each_family(check_names);
}

TEST(a_program_may_begin_with_a_bind_or_a_send)
{
    struct fixture f;
    struct told bound = {0};

    set_up(&f, 4, NOBODYS, 0);
    mr_udp_pause(f.udp); /* so that reading does not keep the loop alive */
    REQUIRE_EQ(bind_to(&f, "127.0.0.1", &bound), 0);
    uv_run(&f.w.loop, UV_RUN_DEFAULT);
    CHECK_EQ(bound.n, 1u);
    tear_down(&f);

    struct told sent = {0};
    set_up(&f, 4, NOBODYS, 0);
    mr_udp_pause(f.udp);
    REQUIRE_EQ(send_text(&f, "first", "127.0.0.1", &sent), 0);
    uv_run(&f.w.loop, UV_RUN_DEFAULT);
    CHECK_EQ(sent.n, 1u);
    tear_down(&f);
}

/* ---- custom lookups ----------------------------------------------------------------------- */

static void check_question(const struct asked *a, unsigned i, const char *host, int family,
                           enum mr_lookup_op op)
{
    REQUIRE(i < a->n);
    CHECK_STR(a->q[i].host, host);
    CHECK_EQ(a->q[i].family, family);
    CHECK_EQ(a->q[i].op, op);
}

static void check_custom_sees(int family, enum whose whose)
{
    struct fixture f;
    struct told t[4] = {{0}};
    const char *wildcard = family == 4 ? "0.0.0.0" : "::";
    const char *other = loopback_text(family == 4 ? 6 : 4);

    set_up(&f, family, whose, 0);
    f.w.asked.script = SCRIPT_WILDCARD;
    REQUIRE_EQ(send_text(&f, "a", NULL, &t[0]), 0);
    REQUIRE_IN_TURNS(&f.w.loop, t[0].n == 1);
    check_question(&f.w.asked, 0, wildcard, family, MR_LOOKUP_BIND);
    check_question(&f.w.asked, 1, loopback_text(family), family, MR_LOOKUP_SEND);
    REQUIRE_EQ(send_text(&f, "b", other, &t[1]), 0);
    REQUIRE_IN_TURNS(&f.w.loop, t[1].n == 1);
    check_question(&f.w.asked, 2, other, family, MR_LOOKUP_SEND);
    REQUIRE_EQ(send_text(&f, "c", "a name?", &t[2]), 0);
    REQUIRE_IN_TURNS(&f.w.loop, t[2].n == 1);
    check_question(&f.w.asked, 3, "a name?", family, MR_LOOKUP_SEND);
    REQUIRE_EQ(connect_to(&f, NULL, &t[3]), 0);
    REQUIRE_IN_TURNS(&f.w.loop, t[3].n == 1);
    check_question(&f.w.asked, 4, loopback_text(family), family, MR_LOOKUP_CONNECT);
    REQUIRE_EQ(mr_udp_send(f.udp, "d", 1, NULL, 0, 0, NULL, NULL), 0);
    REQUIRE_HEARD(&f, "a b c d ");
    CHECK_EQ(f.w.asked.n, 5u); /* connected sends ask nobody */
    CHECK_EQ(resolver_calls(&f.w), 0u);
    for (unsigned i = 0; i < 4; i++) {
        CHECK_EQ(t[i].rc, 0);
    }
    tear_down(&f);
}

static void check_custom_sees_both(int family)
{
    check_custom_sees(family, OWN);
    check_custom_sees(family, THE_LOOPS);
}

TEST(a_custom_lookup_sees_every_host_also_wildcards_and_what_was_left_out)
{
    each_family(check_custom_sees_both);
}

static const struct {
    enum script script;
    const char *code; /* NULL: it works all the same */
} oddities[] = {
    {SCRIPT_LOOPBACK, NULL},      {SCRIPT_NULL, NULL},      {SCRIPT_TWICE, NULL},
    {SCRIPT_FAILS, "no-luck"},    {SCRIPT_HOLD, "timeout"}, {SCRIPT_OTHER_FAMILY, "family"},
    {SCRIPT_NO_FAMILY, "family"},
};

/* The fixture's endpoint, whatever its state, sends after each. */
static void check_oddity(int family, unsigned i, enum mr_lookup_op op)
{
    struct fixture f;
    struct told t = {0}, after = {0};

    set_up(&f, family, OWN, 50);
    if (op != MR_LOOKUP_BIND) {
        f.w.asked.script = SCRIPT_WILDCARD;
        bind_wildcard(&f);
    }
    f.w.asked.script = oddities[i].script;
    if (op == MR_LOOKUP_BIND) {
        REQUIRE_EQ(bind_to(&f, NULL, &t), 0);
    } else if (op == MR_LOOKUP_CONNECT) {
        REQUIRE_EQ(connect_to(&f, NULL, &t), 0);
    } else {
        REQUIRE_EQ(send_text(&f, "odd", NULL, &t), 0);
    }
    REQUIRE_IN_TURNS(&f.w.loop, t.n == 1);
    if (oddities[i].code) {
        CHECK_LT(t.rc, 0);
        CHECK_STR(t.code, oddities[i].code);
        CHECK_NE(t.message[0], 0);
    } else {
        CHECK_EQ(t.rc, 0);
    }
    f.w.asked.script = SCRIPT_WILDCARD;
    if (op == MR_LOOKUP_CONNECT && t.rc == 0) {
        REQUIRE_EQ(mr_udp_disconnect(f.udp), 0);
    }
    REQUIRE_EQ(send_text(&f, "after", NULL, &after), 0);
    REQUIRE_IN_TURNS(&f.w.loop, after.n == 1);
    CHECK_EQ(after.rc, 0);
    REQUIRE_HEARD(&f, op == MR_LOOKUP_SEND && !oddities[i].code ? "odd after " : "after ");
    CHECK_EQ(t.n, 1u);
    tear_down(&f);
}

static void check_oddities(int family)
{
    for (unsigned i = 0; i < sizeof oddities / sizeof oddities[0]; i++) {
        check_oddity(family, i, MR_LOOKUP_BIND);
        check_oddity(family, i, MR_LOOKUP_CONNECT);
        check_oddity(family, i, MR_LOOKUP_SEND);
    }
}

TEST(whatever_a_custom_lookup_does_is_the_matter_of_that_call_alone)
{
    each_family(check_oddities);
}

static void check_three_turns(int family)
{
    struct fixture f;
    struct told t[3] = {{0}}, after = {0};

    set_up(&f, family, OWN, 0);
    f.w.asked.script = SCRIPT_HOLD;
    for (unsigned i = 0; i < 3; i++) {
        REQUIRE_EQ(send_text(&f, "lost", NULL, &t[i]), 0);
        REQUIRE_IN_TURNS(&f.w.loop, f.w.asked.n == 1);
        uv_run(&f.w.loop, UV_RUN_NOWAIT);
    }
    check_question(&f.w.asked, 0, family == 4 ? "0.0.0.0" : "::", family, MR_LOOKUP_BIND);
    CHECK_EQ(f.w.asked.n, 1u);
    REQUIRE_EQ(answer_error(&f.w.asked, f.w.asked.q[0].ticket, "no-luck"), 0);
    REQUIRE_IN_TURNS(&f.w.loop, t[0].n == 1 && t[1].n == 1 && t[2].n == 1);
    for (unsigned i = 0; i < 3; i++) {
        CHECK_LT(t[i].rc, 0);
        CHECK_STR(t[i].code, "no-luck");
        CHECK(strstr(t[i].message, "the test says no") != NULL);
        CHECK(i == 0 || t[i].order > t[i - 1].order);
    }
    f.w.asked.script = SCRIPT_WILDCARD;
    REQUIRE_EQ(send_text(&f, "found", NULL, &after), 0);
    REQUIRE_IN_TURNS(&f.w.loop, after.n == 1);
    CHECK_EQ(after.rc, 0);
    REQUIRE_HEARD(&f, "found ");
    tear_down(&f);
}

TEST(when_a_bind_fails_each_send_that_waits_from_its_own_turn_has_its_own_error)
{
    each_family(check_three_turns);
}

TEST(when_a_bind_fails_the_connect_and_sends_behind_it_are_told)
{
    struct fixture f;
    struct told connected = {0}, sent = {0}, again = {0};

    set_up(&f, 4, OWN, 0);
    f.w.asked.script = SCRIPT_FAILS;
    REQUIRE_EQ(connect_to(&f, NULL, &connected), 0);
    REQUIRE_EQ(mr_udp_send(f.udp, "x", 1, NULL, 0, 0, on_told, &sent), 0);
    REQUIRE_IN_TURNS(&f.w.loop, connected.n == 1 && sent.n == 1);
    CHECK_STR(connected.code, "no-luck");
    CHECK_STR(sent.code, "no-luck");
    f.w.asked.script = SCRIPT_WILDCARD;
    REQUIRE_EQ(connect_to(&f, NULL, &again), 0);
    REQUIRE_EQ(mr_udp_send(f.udp, "y", 1, NULL, 0, 0, NULL, NULL), 0);
    REQUIRE_HEARD(&f, "y ");
    CHECK_EQ(again.rc, 0);
    tear_down(&f);
}

TEST(when_a_connect_fails_what_was_for_the_peer_is_told_and_the_endpoint_stays_bound)
{
    struct fixture f;
    struct told connected = {0}, sent = {0}, after = {0};
    struct mr_addr before, at;

    set_up(&f, 4, OWN, 0);
    f.w.asked.script = SCRIPT_WILDCARD;
    bind_wildcard(&f);
    REQUIRE_EQ(mr_udp_address(f.udp, &before), 0);
    f.w.asked.script = SCRIPT_FAILS;
    REQUIRE_EQ(connect_to(&f, "nowhere", &connected), 0);
    REQUIRE_EQ(mr_udp_send(f.udp, "x", 1, NULL, 0, 0, on_told, &sent), 0);
    REQUIRE_IN_TURNS(&f.w.loop, connected.n == 1 && sent.n == 1);
    CHECK_STR(connected.code, "no-luck");
    CHECK_STR(sent.code, "no-luck");
    f.w.asked.script = SCRIPT_LOOPBACK;
    REQUIRE_EQ(send_text(&f, "y", NULL, &after), 0);
    REQUIRE_HEARD(&f, "y ");
    REQUIRE_EQ(mr_udp_address(f.udp, &at), 0);
    CHECK(mr_addr_equal(&at, &before));
    tear_down(&f);
}

TEST(a_lookup_that_is_replaced_answers_the_next_send_of_an_endpoint_that_exists)
{
    struct fixture f;
    struct told t[3] = {{0}};
    struct mr_lookup_custom custom;

    set_up(&f, 4, THE_LOOPS, 0);
    custom = custom_of(&f.w.asked);
    f.w.asked.script = SCRIPT_WILDCARD;
    REQUIRE_EQ(send_text(&f, "a", "x.test", &t[0]), 0);
    REQUIRE_IN_TURNS(&f.w.loop, t[0].n == 1);
    CHECK_EQ(resolver_calls(&f.w), 0u);
    mr_lookup_set_custom(f.w.lookup, NULL);
    REQUIRE_EQ(send_text(&f, "b", "x.test", &t[1]), 0);
    REQUIRE_IN_TURNS(&f.w.loop, t[1].n == 1);
    CHECK_EQ(resolver_calls(&f.w), 1u);
    mr_lookup_set_custom(f.w.lookup, &custom);
    REQUIRE_EQ(send_text(&f, "c", "x.test", &t[2]), 0);
    REQUIRE_HEARD(&f, "a b c ");
    CHECK_EQ(resolver_calls(&f.w), 1u);
    tear_down(&f);
}

/* ---- order -------------------------------------------------------------------------------- */

TEST(a_later_send_to_a_destination_never_overtakes_and_other_destinations_do_not_wait)
{
    struct fixture f;
    struct told t[5] = {{0}};

    set_up(&f, 4, OWN, 0);
    f.w.asked.script = SCRIPT_WILDCARD;
    bind_wildcard(&f);
    f.w.asked.script = SCRIPT_HOLD;
    REQUIRE_EQ(send_text(&f, "1", "slow", &t[0]), 0);
    REQUIRE_EQ(send_text(&f, "2", "slow", &t[1]), 0);
    REQUIRE_EQ(send_text(&f, "lost", "slow", &t[2]), 0);
    REQUIRE_EQ(send_text(&f, "3", "slow", &t[3]), 0);
    REQUIRE_EQ(send_text(&f, "other", "quick", &t[4]), 0);
    REQUIRE_IN_TURNS(&f.w.loop, f.w.asked.n == 5);
    REQUIRE_EQ(answer_with(&f.w.asked, f.w.asked.q[4].ticket, any_loopback(4)), 0);
    REQUIRE_EQ(answer_with(&f.w.asked, f.w.asked.q[3].ticket, any_loopback(4)), 0);
    REQUIRE_EQ(answer_error(&f.w.asked, f.w.asked.q[2].ticket, "no-luck"), 0);
    REQUIRE_EQ(answer_with(&f.w.asked, f.w.asked.q[1].ticket, any_loopback(4)), 0);
    REQUIRE_HEARD(&f, "other ");
    for (int i = 0; i < 10; i++) {
        uv_run(&f.w.loop, UV_RUN_NOWAIT);
    }
    CHECK_EQ(t[1].n + t[2].n + t[3].n, 0u);
    REQUIRE_EQ(answer_with(&f.w.asked, f.w.asked.q[0].ticket, any_loopback(4)), 0);
    REQUIRE_HEARD(&f, "other 1 2 3 ");
    CHECK_STR(t[2].code, "no-luck");
    CHECK(t[0].order < t[1].order && t[1].order < t[2].order && t[2].order < t[3].order);
    tear_down(&f);
}

static unsigned count_told(const struct told *t, unsigned n)
{
    unsigned told = 0;

    for (unsigned i = 0; i < n; i++) {
        told += t[i].n;
    }
    return told;
}

TEST(the_order_of_each_of_many_destinations_is_kept_whatever_the_order_of_answers)
{
    enum { HOSTS = 40, EACH = 6, ALL = HOSTS * EACH };
    static struct told t[ALL];
    static mr_lookup_ticket tickets[ALL];
    struct fixture f;

    memset(t, 0, sizeof t);
    set_up(&f, 4, OWN, 60000);
    f.w.asked.script = SCRIPT_WILDCARD;
    bind_wildcard(&f);
    f.w.asked.script = SCRIPT_HOLD;
    for (unsigned i = 0; i < ALL; i++) {
        char host[16];
        snprintf(host, sizeof host, "h%u", i % HOSTS);
        REQUIRE_EQ(send_text(&f, "x", host, &t[i]), 0);
    }
    REQUIRE_IN_TURNS(&f.w.loop, f.w.asked.n == ALL);
    for (unsigned i = 0; i < ALL; i++) {
        tickets[i] = f.w.asked.q[i].ticket;
    }
    for (unsigned i = ALL; i > 0; i--) {
        unsigned k = (unsigned)test_random_below(i);
        REQUIRE_EQ(answer_with(&f.w.asked, tickets[k], any_loopback(4)), 0);
        tickets[k] = tickets[i - 1];
        if (k % 7 == 0) {
            uv_run(&f.w.loop, UV_RUN_NOWAIT);
        }
    }
    REQUIRE_IN_TURNS(&f.w.loop, count_told(t, ALL) == ALL);
    for (unsigned i = HOSTS; i < ALL; i++) {
        CHECK_LT(t[i - HOSTS].order, t[i].order);
    }
    tear_down(&f);
}

TEST(what_waits_for_room_is_not_overtaken_by_what_is_looked_up_meanwhile)
{
    struct fixture f;
    struct told t[2] = {{0}};

    set_up(&f, 4, NOBODYS, 0);
    bind_wildcard(&f);
    fault_next(FAULT_SENDTO, EAGAIN);
    fault_next(FAULT_SENDTO, EAGAIN);
    REQUIRE_EQ(send_text(&f, "1", NULL, &t[0]), 0);
    REQUIRE_IN_TURNS(&f.w.loop, fault_count(FAULT_SENDTO) == 2);
    REQUIRE_EQ(send_text(&f, "2", NULL, &t[1]), 0);
    REQUIRE_HEARD(&f, "1 2 ");
    CHECK_LT(t[0].order, t[1].order);
    tear_down(&f);
}

/* ---- refusals ----------------------------------------------------------------------------- */

TEST(one_refused_datagram_costs_only_itself)
{
    static char large[65507];
    struct fixture f;
    struct told t[5] = {{0}};
    struct mr_udp_counts counts;

    set_up(&f, 4, NOBODYS, 0);
    bind_wildcard(&f);
    memset(large, 'x', sizeof large);
    REQUIRE_EQ(send_text(&f, "1", "127.0.0.1", &t[0]), 0);
    REQUIRE_EQ(send_text(&f, "b", "255.255.255.255", &t[1]), 0);
    REQUIRE_EQ(send_text(&f, "2", "127.0.0.1", &t[2]), 0);
    REQUIRE_EQ(send_text(&f, "b", "255.255.255.255", &t[3]), 0);
    REQUIRE_EQ(send_text(&f, "3", "127.0.0.1", &t[4]), 0);
    REQUIRE_HEARD(&f, "1 2 3 ");
    CHECK_EQ(t[0].rc + t[2].rc + t[4].rc, 0);
    CHECK_EQ(t[1].rc, -EACCES);
    CHECK_STR(t[1].code, "denied");
    CHECK(strstr(t[1].message, "255.255.255.255 port ") != NULL);
    CHECK_EQ(t[3].rc, -EACCES);
    mr_udp_count(f.udp, &counts);
    CHECK_EQ(counts.sent, 3u);
    CHECK_EQ(counts.send_errors, 2u);
    tear_down(&f);
}

TEST(a_full_send_buffer_is_waited_for_and_nothing_is_lost_or_moved)
{
    struct fixture f;
    struct told t[4] = {{0}};

    set_up(&f, 4, NOBODYS, 0);
    bind_wildcard(&f);
    fault_next(FAULT_SENDMMSG, EAGAIN);
    fault_short(FAULT_SENDMMSG, 1);
    fault_next(FAULT_SENDMMSG, EAGAIN);
    for (unsigned i = 0; i < 3; i++) {
        const char *text[] = {"1", "2", "3"};
        REQUIRE_EQ(send_text(&f, text[i], NULL, &t[i]), 0);
    }
    REQUIRE_HEARD(&f, "1 2 3 ");
    fault_next(FAULT_SENDTO, EAGAIN);
    REQUIRE_EQ(send_text(&f, "4", NULL, &t[3]), 0);
    REQUIRE_HEARD(&f, "1 2 3 4 ");
    CHECK_EQ(t[0].rc + t[1].rc + t[2].rc + t[3].rc, 0);
    tear_down(&f);
}

TEST(a_socket_that_only_says_it_has_room_holds_up_nothing_for_ever)
{
    struct fixture f;
    struct told t[3] = {{0}}, after = {0};

    set_up(&f, 4, NOBODYS, 0);
    bind_wildcard(&f);
    fault_always(FAULT_SENDMMSG, EAGAIN);
    fault_always(FAULT_SENDTO, EAGAIN);
    for (unsigned i = 0; i < 3; i++) {
        REQUIRE_EQ(send_text(&f, "x", NULL, &t[i]), 0);
    }
    REQUIRE_IN_TURNS(&f.w.loop, t[0].n == 1 && t[1].n == 1 && t[2].n == 1);
    for (unsigned i = 0; i < 3; i++) {
        CHECK_EQ(t[i].rc, -EAGAIN);
        CHECK_STR(t[i].code, "busy");
    }
    CHECK_LT(fault_count(FAULT_SENDMMSG) + fault_count(FAULT_SENDTO), 100u);
    fault_reset();
    REQUIRE_EQ(send_text(&f, "after", NULL, &after), 0);
    REQUIRE_HEARD(&f, "after ");
    tear_down(&f);
}

/* Who was built with a header that has fewer of them. */
TEST(nothing_is_read_of_options_of_another_size)
{
    size_t *size = calloc(1, sizeof *size);
    struct fixture f;
    struct mr_udp *u = NULL;

    set_up(&f, 4, NOBODYS, 0);
    *size = sizeof *size;
    CHECK_EQ(mr_udp_create(&u, f.w.lookup, (const struct mr_udp_options *)(const void *)size),
             -EINVAL);
    CHECK(u == NULL);
    free(size);
    tear_down(&f);
}

TEST(what_cannot_be_asked_is_refused_at_once)
{
    static char large[65508], host[256];
    struct fixture f;
    struct told t = {0}, waits = {0};
    struct mr_udp_options opts;
    struct mr_udp *u;

    set_up(&f, 4, NOBODYS, 0);
    mr_udp_options_init(&opts, sizeof opts);
    opts.loop = &f.w.loop;
    opts.family = 5;
    CHECK_EQ(mr_udp_create(&u, f.w.lookup, &opts), -EINVAL);
    memset(host, 'x', sizeof host);
    CHECK_EQ(mr_udp_send(f.udp, "x", 1, NULL, 0, 0, on_told, &t), -EDESTADDRREQ);
    CHECK_EQ(mr_udp_connect(f.udp, NULL, 0, 0, on_told, &t), -EDESTADDRREQ);
    CHECK_EQ(mr_udp_send(f.udp, large, sizeof large, NULL, 0, 9, on_told, &t), -EMSGSIZE);
    CHECK_EQ(mr_udp_send(f.udp, "x", 1, host, sizeof host, 9, on_told, &t), -ENAMETOOLONG);
    CHECK_EQ(mr_udp_disconnect(f.udp), -ENOTCONN);
    REQUIRE_EQ(bind_to(&f, NULL, &waits), 0);
    CHECK_EQ(mr_udp_bind(f.udp, NULL, 0, 0, on_told, &t), -EISCONN);
    REQUIRE_IN_TURNS(&f.w.loop, waits.n == 1);
    CHECK_EQ(mr_udp_bind(f.udp, NULL, 0, 0, on_told, &t), -EISCONN);
    waits.n = 0;
    REQUIRE_EQ(connect_to(&f, NULL, &waits), 0);
    CHECK_EQ(mr_udp_connect(f.udp, NULL, 0, f.port, on_told, &t), -EISCONN);
    CHECK_EQ(mr_udp_send(f.udp, "x", 1, "127.0.0.1", 9, f.port, on_told, &t), -EISCONN);
    REQUIRE_IN_TURNS(&f.w.loop, waits.n == 1);
    CHECK_EQ(mr_udp_send(f.udp, "x", 1, "127.0.0.1", 9, f.port, on_told, &t), -EISCONN);
    mr_udp_close(f.udp, on_closed, &f.closed);
    CHECK_EQ(mr_udp_send(f.udp, "x", 1, NULL, 0, 0, on_told, &t), -EBADF);
    CHECK_EQ(mr_udp_bind(f.udp, NULL, 0, 0, on_told, &t), -EBADF);
    REQUIRE_IN_TURNS(&f.w.loop, f.closed == 1);
    f.udp = NULL;
    CHECK_EQ(t.n, 0u);
    tear_down(&f);
}

TEST(what_waits_is_bounded_in_number_and_in_bytes)
{
    static char data[600];
    struct fixture f;
    struct mr_udp_options opts;
    struct told t[3] = {{0}};

    set_up(&f, 4, NOBODYS, 0);
    mr_udp_close(f.udp, NULL, NULL);
    mr_udp_options_init(&opts, sizeof opts);
    opts.loop = &f.w.loop;
    opts.queue_max = 2;
    opts.queue_bytes_max = 1000;
    REQUIRE_EQ(mr_udp_create(&f.udp, f.w.lookup, &opts), 0);
    memset(data, 'd', sizeof data);
    REQUIRE_EQ(mr_udp_send(f.udp, data, sizeof data, NULL, 0, f.port, on_told, &t[0]), 0);
    CHECK_EQ(mr_udp_send(f.udp, data, sizeof data, NULL, 0, f.port, on_told, &t[1]), -ENOBUFS);
    REQUIRE_EQ(mr_udp_send(f.udp, data, 10, NULL, 0, f.port, on_told, &t[1]), 0);
    CHECK_EQ(mr_udp_send(f.udp, data, 10, NULL, 0, f.port, on_told, &t[2]), -ENOBUFS);
    REQUIRE_IN_TURNS(&f.w.loop, t[0].n == 1 && t[1].n == 1);
    REQUIRE_EQ(mr_udp_send(f.udp, data, sizeof data, NULL, 0, f.port, on_told, &t[2]), 0);
    REQUIRE_IN_TURNS(&f.w.loop, t[2].n == 1);
    CHECK_EQ(t[0].rc + t[1].rc + t[2].rc, 0);
    tear_down(&f);
}

TEST(an_address_that_is_taken_is_told_by_name_and_shared_with_nobody)
{
    struct fixture f;
    struct told t = {0}, again = {0};
    struct mr_addr at;
    struct mr_udp *second;
    char port[32];

    set_up(&f, 4, NOBODYS, 0);
    REQUIRE_EQ(mr_udp_bind(f.udp, "127.0.0.1", 9, f.port, on_told, &t), 0);
    REQUIRE_IN_TURNS(&f.w.loop, t.n == 1);
    CHECK_EQ(t.rc, -EADDRINUSE);
    CHECK_STR(t.code, "address-in-use");
    snprintf(port, sizeof port, "127.0.0.1 port %u", f.port);
    CHECK(strstr(t.message, port) != NULL);
    REQUIRE_EQ(bind_to(&f, "127.0.0.1", &again), 0);
    REQUIRE_IN_TURNS(&f.w.loop, again.n == 1);
    CHECK_EQ(again.rc, 0);
    REQUIRE_EQ(mr_udp_address(f.udp, &at), 0);
    second = make(&f, false);
    CHECK_EQ(mr_udp_bind_address(second, &at), -EADDRINUSE);
    mr_udp_close(second, NULL, NULL);
    tear_down(&f);
}

TEST(a_message_is_one_line_whatever_the_host_was)
{
    struct fixture f;
    struct told t = {0};

    set_up(&f, 4, OWN, 0);
    f.w.asked.script = SCRIPT_WILDCARD;
    bind_wildcard(&f);
    fault_next(FAULT_SENDTO, EPERM);
    REQUIRE_EQ(send_text(&f, "x", "a\nb\x7f", &t), 0);
    REQUIRE_IN_TURNS(&f.w.loop, t.n == 1);
    CHECK_STR(t.code, "denied");
    CHECK(strstr(t.message, "a?b? port ") != NULL);
    tear_down(&f);
}

/* ---- receiving ---------------------------------------------------------------------------- */

TEST(a_flood_of_messages_is_read_in_bounded_turns)
{
    struct fixture f;
    struct mr_addr at;

    set_up(&f, 4, NOBODYS, 0);
    bind_wildcard(&f);
    REQUIRE_EQ(mr_udp_address(f.udp, &at), 0);
    for (int i = 0; i < 200; i++) {
        plain_send(f.fd, 4, at.port, "m");
    }
    for (unsigned before = 0; f.received < 200; before = f.received) {
        uv_run(&f.w.loop, UV_RUN_NOWAIT);
        CHECK_LE(f.received - before, 64u);
        REQUIRE(f.received > before);
    }
    tear_down(&f);
}

TEST(a_flood_of_sends_goes_out_in_bounded_turns_and_in_order)
{
    enum { ALL = 3000 };
    static struct told t[ALL];
    struct fixture f;
    unsigned told = 0, most = 0;

    memset(t, 0, sizeof t);
    set_up(&f, 4, NOBODYS, 0);
    for (unsigned i = 0; i < ALL; i++) {
        REQUIRE_EQ(mr_udp_send(f.udp, "x", 1, NULL, 0, f.port, on_told, &t[i]), 0);
    }
    while (told < ALL) {
        unsigned before = told, order = last_order;
        uv_run(&f.w.loop, UV_RUN_NOWAIT);
        told += last_order - order;
        most = told - before > most ? told - before : most;
        REQUIRE(uv_loop_alive(&f.w.loop));
    }
    CHECK_LE(most, 512u);
    for (unsigned i = 0; i < ALL; i++) {
        CHECK(t[i].n == 1 && t[i].rc == 0 && (i == 0 || t[i].order == t[i - 1].order + 1));
    }
    tear_down(&f);
}

TEST(the_largest_and_the_empty_datagram_arrive_whole)
{
    static char large[65507];
    struct fixture f;
    struct told t[2] = {{0}};
    struct mr_addr at;

    set_up(&f, 4, NOBODYS, 0);
    bind_wildcard(&f);
    REQUIRE_EQ(mr_udp_address(f.udp, &at), 0);
    REQUIRE_EQ(mr_udp_send(f.udp, large, sizeof large, NULL, 0, at.port, on_told, &t[0]), 0);
    REQUIRE_IN_TURNS(&f.w.loop, f.received == 1);
    CHECK_EQ(f.size, sizeof large);
    REQUIRE_EQ(mr_udp_send(f.udp, NULL, 0, NULL, 0, at.port, on_told, &t[1]), 0);
    REQUIRE_IN_TURNS(&f.w.loop, f.received == 2);
    CHECK_EQ(f.size, 0u);
    CHECK(mr_addr_equal(&f.from,
                        &(struct mr_addr){.ip = {127, 0, 0, 1}, .family = 4, .port = at.port}));
    tear_down(&f);
}

TEST(a_paused_endpoint_reads_nothing_until_it_is_resumed)
{
    struct fixture f;
    struct mr_addr at;

    set_up(&f, 4, NOBODYS, 0);
    bind_wildcard(&f);
    REQUIRE_EQ(mr_udp_address(f.udp, &at), 0);
    mr_udp_pause(f.udp);
    plain_send(f.fd, 4, at.port, "later");
    for (int i = 0; i < 10; i++) {
        uv_run(&f.w.loop, UV_RUN_NOWAIT);
    }
    CHECK_EQ(f.received, 0u);
    mr_udp_resume(f.udp);
    REQUIRE_IN_TURNS(&f.w.loop, f.received == 1);
    CHECK_STR(f.text, "later ");
    tear_down(&f);
}

TEST(an_endpoint_that_nobody_hears_keeps_no_loop_alive)
{
    struct fixture f;
    struct mr_udp_options opts;
    struct told bound = {0}, sent = {0};

    set_up(&f, 4, NOBODYS, 0);
    mr_udp_close(f.udp, NULL, NULL);
    mr_udp_options_init(&opts, sizeof opts);
    opts.loop = &f.w.loop;
    REQUIRE_EQ(mr_udp_create(&f.udp, f.w.lookup, &opts), 0);
    REQUIRE_EQ(bind_to(&f, NULL, &bound), 0);
    uv_run(&f.w.loop, UV_RUN_DEFAULT);
    CHECK_EQ(bound.n, 1u);
    fault_next(FAULT_SENDTO, EAGAIN);
    REQUIRE_EQ(send_text(&f, "x", NULL, &sent), 0);
    uv_run(&f.w.loop, UV_RUN_DEFAULT);
    CHECK_EQ(sent.n, 1u);
    REQUIRE_HEARD(&f, "x ");
    tear_down(&f);
}

TEST(an_endpoint_of_family_6_leaves_ipv4_to_others)
{
    struct fixture f;
    struct mr_addr at;
    struct sockaddr_in sa = {.sin_family = AF_INET};
    int fd;

    if (!has_ipv6()) {
        TEST_SKIP("no IPv6 here");
    }
    set_up(&f, 6, NOBODYS, 0);
    bind_wildcard(&f);
    REQUIRE_EQ(mr_udp_address(f.udp, &at), 0);
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0);
    sa.sin_port = htons(at.port);
    CHECK_EQ(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    close(fd);
    tear_down(&f);
}

/* ---- connected ---------------------------------------------------------------------------- */

static void check_only_peer(int family)
{
    struct fixture f;
    struct told t = {0};
    struct mr_addr bound, at;
    uint16_t port;
    int stranger = -1;

    set_up(&f, family, NOBODYS, 0);
    stranger = plain_open(family, &port);
    bind_wildcard(&f);
    REQUIRE_EQ(mr_udp_address(f.udp, &bound), 0);
    mr_udp_pause(f.udp);
    plain_send(stranger, family, bound.port, "early");
    REQUIRE_EQ(connect_to(&f, NULL, &t), 0);
    REQUIRE_IN_TURNS(&f.w.loop, t.n == 1);
    CHECK_EQ(t.rc, 0);
    plain_send(stranger, family, bound.port, "late");
    plain_send(f.fd, family, bound.port, "peer");
    mr_udp_resume(f.udp);
    REQUIRE_IN_TURNS(&f.w.loop, f.received > 0);
    CHECK_STR(f.text, "peer ");
    REQUIRE_EQ(mr_udp_address(f.udp, &at), 0);
    CHECK_EQ(at.port, bound.port);
    REQUIRE_EQ(mr_udp_disconnect(f.udp), 0);
    REQUIRE_EQ(mr_udp_address(f.udp, &at), 0);
    CHECK(mr_addr_equal(&at, &bound));
    plain_send(stranger, family, bound.port, "free");
    REQUIRE_IN_TURNS(&f.w.loop, f.received == 2);
    CHECK_STR(f.text, "peer free ");
    close(stranger);
    tear_down(&f);
}

TEST(a_connected_endpoint_hears_its_peer_only_and_is_where_it_was_when_it_is_free_again)
{
    each_family(check_only_peer);
}

/* The port of a socket that is gone: what is sent there is refused by ICMP. */
static void check_refused(int family)
{
    struct fixture f;
    struct told connected = {0}, t[4] = {{0}};
    struct mr_udp_counts counts;
    struct mr_addr at;

    set_up(&f, family, NOBODYS, 0);
    close(f.fd);
    REQUIRE_EQ(connect_to(&f, NULL, &connected), 0);
    REQUIRE_IN_TURNS(&f.w.loop, connected.n == 1);
    for (unsigned i = 0; i < 4; i++) {
        REQUIRE_EQ(mr_udp_send(f.udp, "x", 1, NULL, 0, 0, on_told, &t[i]), 0);
        REQUIRE_IN_TURNS(&f.w.loop, t[i].n == 1);
        if (i % 2 == 0) { /* what becomes of it is told to the next one */
            CHECK_EQ(t[i].rc, 0);
            REQUIRE_IN_TURNS(&f.w.loop,
                             (mr_udp_count(f.udp, &counts), counts.receive_errors == i / 2 + 1));
        } else {
            CHECK_EQ(t[i].rc, -ECONNREFUSED);
            CHECK_STR(t[i].code, "refused");
        }
    }
    CHECK(loop_sleeps(&f.w.loop));
    mr_udp_count(f.udp, &counts);
    CHECK_EQ(counts.send_errors, 2u);
    f.fd = plain_open_at(family, f.port);
    REQUIRE_EQ(mr_udp_address(f.udp, &at), 0);
    plain_send(f.fd, family, at.port, "back");
    REQUIRE_IN_TURNS(&f.w.loop, f.received == 1);
    tear_down(&f);
}

TEST(a_peer_that_is_gone_is_told_to_the_next_send_and_is_heard_when_it_comes_back)
{
    each_family(check_refused);
}

TEST(a_destination_that_is_gone_disturbs_no_unconnected_endpoint)
{
    struct fixture f;
    struct told t[50] = {{0}}, after = {0};
    struct mr_udp_counts counts;
    uint16_t port;
    int gone, hears;

    set_up(&f, 4, NOBODYS, 0);
    bind_wildcard(&f);
    gone = plain_open(4, &port);
    close(gone);
    for (unsigned i = 0; i < 50; i++) {
        REQUIRE_EQ(mr_udp_send(f.udp, "x", 1, NULL, 0, port, on_told, &t[i]), 0);
        REQUIRE_IN_TURNS(&f.w.loop, t[i].n == 1);
        CHECK_EQ(t[i].rc, 0);
    }
    hears = f.fd;
    REQUIRE_EQ(send_text(&f, "still", NULL, &after), 0);
    REQUIRE_HEARD(&f, "still ");
    CHECK_EQ(hears, f.fd);
    mr_udp_count(f.udp, &counts);
    CHECK_EQ(counts.receive_errors + counts.send_errors, 0u);
    tear_down(&f);
}

/* ---- closing ------------------------------------------------------------------------------ */

static void check_close_during(int family, enum mr_lookup_op op, unsigned turns)
{
    struct fixture f;
    struct told t[3] = {{0}};

    set_up(&f, family, OWN, 0);
    if (op == MR_LOOKUP_SEND) {
        f.w.asked.script = SCRIPT_WILDCARD;
        bind_wildcard(&f);
    }
    f.w.asked.script = SCRIPT_HOLD;
    if (op == MR_LOOKUP_BIND) {
        REQUIRE_EQ(bind_to(&f, NULL, &t[0]), 0);
        REQUIRE_EQ(send_text(&f, "x", NULL, &t[1]), 0);
    } else if (op == MR_LOOKUP_CONNECT) {
        REQUIRE_EQ(connect_to(&f, NULL, &t[0]), 0);
        REQUIRE_EQ(mr_udp_send(f.udp, "x", 1, NULL, 0, 0, on_told, &t[1]), 0);
    } else {
        REQUIRE_EQ(send_text(&f, "x", "a", &t[0]), 0);
        REQUIRE_EQ(send_text(&f, "x", "a", &t[1]), 0);
        REQUIRE_EQ(send_text(&f, "x", "b", &t[2]), 0);
    }
    for (unsigned i = 0; i < turns; i++) {
        uv_run(&f.w.loop, UV_RUN_NOWAIT);
    }
    mr_udp_close(f.udp, on_closed, &f.closed);
    mr_udp_close(f.udp, on_closed, &f.closed);
    CHECK_EQ(f.closed, 0u);
    REQUIRE_IN_TURNS(&f.w.loop, f.closed == 1);
    CHECK_EQ(f.w.asked.forgotten, turns > 0 ? f.w.asked.n : 0u);
    for (unsigned i = 0; i < f.w.asked.n; i++) {
        CHECK_EQ(answer_with(&f.w.asked, f.w.asked.q[i].ticket, any_loopback(family)), -EALREADY);
    }
    for (unsigned i = 0; i < 5; i++) {
        uv_run(&f.w.loop, UV_RUN_NOWAIT);
    }
    CHECK_EQ(t[0].n + t[1].n + t[2].n, 0u);
    CHECK_EQ(f.closed, 1u);
    f.udp = NULL;
    tear_down(&f);
}

static void check_closes(int family)
{
    for (unsigned turns = 0; turns < 3; turns++) {
        check_close_during(family, MR_LOOKUP_BIND, turns);
        check_close_during(family, MR_LOOKUP_CONNECT, turns);
        check_close_during(family, MR_LOOKUP_SEND, turns);
    }
}

TEST(after_a_close_during_a_lookup_only_the_close_callback_comes)
{
    each_family(check_closes);
}

TEST(a_close_while_the_resolver_works_leaves_nothing_behind)
{
    struct fixture f;
    struct told t = {0};

    set_up(&f, 4, NOBODYS, 0);
    bind_wildcard(&f);
    REQUIRE_EQ(send_text(&f, "x", "a.test", &t), 0);
    mr_udp_close(f.udp, on_closed, &f.closed);
    REQUIRE_IN_TURNS(&f.w.loop, f.closed == 1);
    CHECK_EQ(t.n, 0u);
    f.udp = NULL;
    tear_down(&f);
}

struct closer {
    struct fixture *f;
    unsigned n;
};

static void close_when_told(void *arg, const struct mr_udp_result *r)
{
    struct closer *c = arg;

    (void)r;
    c->n++;
    mr_udp_close(c->f->udp, on_closed, &c->f->closed);
}

static void close_when_heard(void *user, const struct mr_addr *from, const struct mr_addr *local,
                             const void *data, size_t n)
{
    struct fixture *f = user;

    (void)from, (void)local;
    f->received++;
    mr_udp_close(f->udp, on_closed, &f->closed);
    CHECK_MEM(data, n, "m", 1);
}

TEST(an_endpoint_may_be_closed_from_any_of_its_callbacks)
{
    struct fixture f;
    struct closer c = {.f = &f};
    struct mr_addr at;

    for (int way = 0; way < 5; way++) {
        set_up(&f, 4, way == 3 ? OWN : NOBODYS, 0);
        c.n = 0;
        if (way == 0) {
            REQUIRE_EQ(mr_udp_bind(f.udp, NULL, 0, 0, close_when_told, &c), 0);
        } else if (way == 1) {
            REQUIRE_EQ(mr_udp_connect(f.udp, NULL, 0, f.port, close_when_told, &c), 0);
        } else if (way == 2 || way == 3) {
            f.w.asked.script = SCRIPT_FAILS;
            for (int i = 0; i < 5; i++) {
                REQUIRE_EQ(mr_udp_send(f.udp, "x", 1, NULL, 0, f.port, close_when_told, &c), 0);
            }
        } else {
            struct mr_udp_options opts;
            mr_udp_close(f.udp, NULL, NULL);
            mr_udp_options_init(&opts, sizeof opts);
            opts.loop = &f.w.loop;
            opts.user = &f;
            opts.on_message = close_when_heard;
            REQUIRE_EQ(mr_udp_create(&f.udp, f.w.lookup, &opts), 0);
            bind_wildcard(&f);
            REQUIRE_EQ(mr_udp_address(f.udp, &at), 0);
            plain_send(f.fd, 4, at.port, "m");
            plain_send(f.fd, 4, at.port, "m");
        }
        REQUIRE_IN_TURNS(&f.w.loop, f.closed == 1);
        CHECK_EQ(c.n + f.received, 1u);
        f.udp = NULL;
        tear_down(&f);
    }
}

/* ---- chance ------------------------------------------------------------------------------ */

enum { CALLS = 60 };

/* Every call that was taken, in order; told never more than once. */
struct history {
    struct told t[CALLS];
    unsigned n;
};

static void call_at_random(struct fixture *f, struct history *c)
{
    static const char *const hosts[] = {"a", "b", "127.0.0.1", NULL};
    const char *host = hosts[test_random_below(4)];
    size_t n = host ? strlen(host) : 0;
    uint16_t port = test_random_below(8) ? f->port : 0;
    struct told *t = &c->t[c->n];
    int rc = -1;

    switch (test_random_below(8)) {
    case 0:
        rc = mr_udp_bind(f->udp, host, n, 0, on_told, t);
        break;
    case 1:
        rc = mr_udp_connect(f->udp, host, n, port, on_told, t);
        break;
    default:
        if (test_random_below(3) == 0) {
            host = NULL;
            n = port = 0;
        }
        rc = mr_udp_send(f->udp, "x", 1, host, n, port, on_told, t);
        break;
    }
    c->n += rc == 0;
}

/* Of questions that may be over already; the oldest are forgotten. */
static void answer_at_random(struct fixture *f)
{
    unsigned n = f->w.asked.n < 256 ? f->w.asked.n : 256;
    struct question *q = n ? &f->w.asked.q[test_random_below(n)] : NULL;
    struct mr_addr addr = any_loopback(4);

    if (!q) {
        return;
    }
    if (q->op == MR_LOOKUP_BIND && test_random_below(2)) {
        memset(addr.ip, 0, sizeof addr.ip);
    }
    switch (test_random_below(6)) {
    case 0:
        (void)answer_error(&f->w.asked, q->ticket, "no-luck");
        break;
    case 1:
        (void)answer_with(&f->w.asked, q->ticket, any_loopback(6));
        break;
    default:
        (void)answer_with(&f->w.asked, q->ticket, addr);
        break;
    }
}

static void disturb_at_random(struct fixture *f)
{
    static const int errors[] = {EAGAIN, EAGAIN, EPERM, ENOBUFS};

    switch (test_random_below(5)) {
    case 0:
        (void)mr_udp_disconnect(f->udp);
        break;
    case 1:
        mr_udp_pause(f->udp);
        break;
    case 2:
        mr_udp_resume(f->udp);
        break;
    default:
        fault_next(test_random_below(2) ? FAULT_SENDTO : FAULT_SENDMMSG,
                   errors[test_random_below(4)]);
        break;
    }
}

/* Held questions are answered by whatever comes, until all is told. */
static bool all_told(struct fixture *f, const struct history *c)
{
    for (unsigned i = 0; i < f->w.asked.n && i < 256; i++) {
        (void)answer_with(&f->w.asked, f->w.asked.q[i].ticket, any_loopback(4));
    }
    return count_told(c->t, c->n) == c->n;
}

static void live_at_random(bool drains)
{
    struct fixture f;
    struct history c;
    unsigned told;

    memset(&c, 0, sizeof c);
    set_up(&f, 4, OWN, 60000);
    f.w.asked.script = SCRIPT_HOLD;
    for (unsigned i = 0; i < 300 && c.n < CALLS; i++) {
        switch (test_random_below(6)) {
        case 0:
        case 1:
            mr__alloc_fail_after(test_random_below(10) ? -1 : (long)test_random_below(3));
            call_at_random(&f, &c);
            mr__alloc_fail_after(-1);
            break;
        case 2:
        case 3:
            answer_at_random(&f);
            break;
        case 4:
            disturb_at_random(&f);
            break;
        default:
            uv_run(&f.w.loop, UV_RUN_NOWAIT);
            break;
        }
    }
    if (drains) {
        REQUIRE_IN_TURNS(&f.w.loop, all_told(&f, &c));
    }
    told = count_told(c.t, c.n);
    mr_udp_close(f.udp, on_closed, &f.closed);
    REQUIRE_IN_TURNS(&f.w.loop, f.closed == 1);
    f.udp = NULL;
    CHECK_EQ(count_told(c.t, c.n), told);
    for (unsigned i = 0; i < c.n; i++) {
        CHECK_LE(c.t[i].n, 1u);
    }
    tear_down(&f);
}

TEST(whatever_happens_each_call_is_told_once_and_none_after_a_close)
{
    for (int i = 0; i < 300; i++) {
        live_at_random(i % 2 == 0);
    }
}

/* ---- memory ------------------------------------------------------------------------------- */

/* All an endpoint does, with the n-th and every later allocation failing. Whether all went well. */
static bool try_with(long n)
{
    struct fixture f;
    struct told t[4] = {{0}};
    struct mr_udp_options opts;
    struct mr_udp *u = NULL;
    int rc[4] = {0};
    unsigned closed = 0, expected;

    memset(&f, 0, sizeof f);
    world_open(&f.w, 0);
    f.fd = plain_open(4, &f.port);
    mr_udp_options_init(&opts, sizeof opts);
    opts.loop = &f.w.loop;
    opts.user = &f;
    opts.on_message = on_message;
    mr__alloc_fail_after(n);
    if (mr_udp_create(&u, f.w.lookup, &opts) == 0) {
        rc[0] = mr_udp_send(u, "a", 1, NULL, 0, f.port, on_told, &t[0]);
        rc[1] = mr_udp_send(u, "b", 1, "x.test", 6, f.port, on_told, &t[1]);
        rc[2] = mr_udp_send(u, "c", 1, "x.invalid", 9, f.port, on_told, &t[2]);
        rc[3] = mr_udp_connect(u, NULL, 0, f.port, on_told, &t[3]);
        expected = (rc[0] == 0) + (rc[1] == 0) + (rc[2] == 0) + (rc[3] == 0);
        REQUIRE_IN_TURNS(&f.w.loop, t[0].n + t[1].n + t[2].n + t[3].n == expected);
    }
    mr__alloc_fail_after(-1);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(rc[i] == 0 || rc[i] == -ENOMEM);
        CHECK_LE(t[i].n, 1u);
    }
    if (u) {
        mr_udp_close(u, on_closed, &closed);
        REQUIRE_IN_TURNS(&f.w.loop, closed == 1);
    }
    close(f.fd);
    world_close(&f.w);
    return u && rc[0] == 0 && rc[1] == 0 && t[0].rc == 0 && t[1].rc == 0 && t[3].rc == 0 &&
           strcmp(t[2].code, "not-found") == 0;
}

TEST(an_allocation_that_fails_is_an_error_of_that_call_and_leaks_nothing)
{
    long n = 0;

    while (!try_with(n)) {
        n++;
        REQUIRE(n < 100);
    }
    CHECK_GT(n, 5);
}

struct chain {
    struct mr_udp *udp;
    uint16_t port;
    unsigned left;
};

static void send_next(void *arg, const struct mr_udp_result *r)
{
    struct chain *c = arg;

    CHECK_EQ(r->rc, 0);
    if (c->left > 0) {
        c->left--;
        CHECK_EQ(mr_udp_send(c->udp, "x", 1, "127.0.0.1", 9, c->port, send_next, c), 0);
    }
}

TEST(a_chain_of_sends_to_a_literal_allocates_nothing)
{
    struct fixture f;
    struct chain c;

    set_up(&f, 4, NOBODYS, 0);
    bind_wildcard(&f);
    c = (struct chain){.udp = f.udp, .port = f.port, .left = 1};
    send_next(&c, &(struct mr_udp_result){0});
    REQUIRE_IN_TURNS(&f.w.loop, c.left == 0);
    mr__alloc_fail_after(0);
    c.left = 1000;
    send_next(&c, &(struct mr_udp_result){0});
    for (unsigned turns = 0; c.left > 0 && turns < 2000; turns++) {
        uv_run(&f.w.loop, UV_RUN_NOWAIT);
    }
    mr__alloc_fail_after(-1);
    CHECK_EQ(c.left, 0u);
    CHECK_EQ(resolver_calls(&f.w), 0u);
    tear_down(&f);
}

TEST_MAIN(
    TEST_CASE(literals_in_bind_send_and_connect_need_no_resolver),
    TEST_CASE(a_literal_of_the_other_family_is_an_error_and_is_sent_nowhere),
    TEST_CASE(a_name_is_looked_up_once_for_each_call),
    TEST_CASE(a_program_may_begin_with_a_bind_or_a_send),
    TEST_CASE(a_custom_lookup_sees_every_host_also_wildcards_and_what_was_left_out),
    TEST_CASE(whatever_a_custom_lookup_does_is_the_matter_of_that_call_alone),
    TEST_CASE(when_a_bind_fails_each_send_that_waits_from_its_own_turn_has_its_own_error),
    TEST_CASE(when_a_bind_fails_the_connect_and_sends_behind_it_are_told),
    TEST_CASE(when_a_connect_fails_what_was_for_the_peer_is_told_and_the_endpoint_stays_bound),
    TEST_CASE(a_lookup_that_is_replaced_answers_the_next_send_of_an_endpoint_that_exists),
    TEST_CASE(a_later_send_to_a_destination_never_overtakes_and_other_destinations_do_not_wait),
    TEST_CASE(the_order_of_each_of_many_destinations_is_kept_whatever_the_order_of_answers),
    TEST_CASE(what_waits_for_room_is_not_overtaken_by_what_is_looked_up_meanwhile),
    TEST_CASE(one_refused_datagram_costs_only_itself),
    TEST_CASE(a_full_send_buffer_is_waited_for_and_nothing_is_lost_or_moved),
    TEST_CASE(a_socket_that_only_says_it_has_room_holds_up_nothing_for_ever),
    TEST_CASE(what_cannot_be_asked_is_refused_at_once),
    TEST_CASE(nothing_is_read_of_options_of_another_size),
    TEST_CASE(what_waits_is_bounded_in_number_and_in_bytes),
    TEST_CASE(an_address_that_is_taken_is_told_by_name_and_shared_with_nobody),
    TEST_CASE(a_message_is_one_line_whatever_the_host_was),
    TEST_CASE(a_flood_of_messages_is_read_in_bounded_turns),
    TEST_CASE(a_flood_of_sends_goes_out_in_bounded_turns_and_in_order),
    TEST_CASE(the_largest_and_the_empty_datagram_arrive_whole),
    TEST_CASE(a_paused_endpoint_reads_nothing_until_it_is_resumed),
    TEST_CASE(an_endpoint_that_nobody_hears_keeps_no_loop_alive),
    TEST_CASE(an_endpoint_of_family_6_leaves_ipv4_to_others),
    TEST_CASE(a_connected_endpoint_hears_its_peer_only_and_is_where_it_was_when_it_is_free_again),
    TEST_CASE(a_peer_that_is_gone_is_told_to_the_next_send_and_is_heard_when_it_comes_back),
    TEST_CASE(a_destination_that_is_gone_disturbs_no_unconnected_endpoint),
    TEST_CASE(after_a_close_during_a_lookup_only_the_close_callback_comes),
    TEST_CASE(a_close_while_the_resolver_works_leaves_nothing_behind),
    TEST_CASE(an_endpoint_may_be_closed_from_any_of_its_callbacks),
    TEST_CASE(whatever_happens_each_call_is_told_once_and_none_after_a_close),
    TEST_CASE(an_allocation_that_fails_is_an_error_of_that_call_and_leaks_nothing),
    TEST_CASE(a_chain_of_sends_to_a_literal_allocates_nothing))
