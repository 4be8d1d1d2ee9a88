/* SPDX-License-Identifier: MIT */
/*
 * A bench without Lua's side: what tests of policies cannot bring about, memory that ends
 * at every single allocation of a story above all. One thread.
 */
#include "test.h"

#include "base/alloc.h"
#include "module/bench.h"

static const char policy[] =
    "return { policies = { { name = 'p', key = file 'key', chunk = [[\n"
    "  local relay = require 'relay'\n"
    "  return {\n"
    "    load = function(cfg) assert(cfg.key == 'secret') end,\n"
    "    register = function(ev) relay.log.info('in', { n = 1, s = 'x' })\n"
    "      return { tags = { a = 'b' }, slots = { k = 9 } } end,\n"
    "    drop = function(ev) if ev:peek(2) == 'no' then return false, 'no', { mute = 60 } end\n"
    "      return { ttl = 60, tags = { a = 'b' }, slots = { d = 9 } } end,\n"
    "  }]] } } }";

static struct str find(void *user, struct str path)
{
    (void)user;
    return path.n == 3 ? (struct str){"secret", 6} : (struct str){NULL, 0};
}

static struct mr_addr addr(const char *text)
{
    struct mr_addr a = {.family = 0};

    mr_addr_parse(&a, text, strlen(text), NULL);
    return a;
}

/* The newest line of a connection that begins so, without that. */
static bool last_line(const struct bench *b, conn_id id, const char *begin, char *out, size_t cap)
{
    bool is_found = false;

    for (const struct happening *h = b->happenings.first; h; h = h->next) {
        size_t n = strlen(begin);

        if (h->kind == HAPPENED_LINE && h->id == id && h->text[0].n > n &&
            strncmp(h->text[0].s, begin, n) == 0) {
            snprintf(out, cap, "%s", h->text[0].s + n);
            is_found = true;
        }
    }
    return is_found;
}

static conn_id join(struct bench *b, const char *tcp, const char *udp, char oid[300])
{
    struct mr_addr peer = addr(tcp), seen = addr(udp);
    conn_id id = mr__bench_accept(b, &peer);
    char pid[300] = "";

    oid[0] = '\0';
    if (id == 0 || mr__bench_input(b, id, "register-host x=y\n", 18) != 0) {
        return 0;
    }
    mr__bench_settle(b);
    if (last_line(b, id, "set-oid ", oid, 300) && last_line(b, id, "set-pid ", pid, sizeof pid)) {
        mr__bench_registrar(b, &seen, pid, strlen(pid));
        mr__bench_settle(b);
    }
    return id;
}

static unsigned count(const struct bench *b, enum happening_kind kind, bool is_success)
{
    unsigned n = 0;

    for (const struct happening *h = b->happenings.first; h; h = h->next) {
        n += h->kind == kind && (!is_success || h->text[0].s == NULL);
    }
    return n;
}

/* Loads, joins, connects, knocks thrice, leaves. Returns whether all of it came out well. */
static bool play(struct bench *b)
{
    const struct bench_files files = {.find = find};
    const struct str data[] = {{"hi", 2}, {"ho", 2}}, no = {"no", 2};
    struct mr_addr stranger = addr("203.0.113.5:7000");
    struct script_error why;
    struct bench_knock knock;
    char oid[300], line[400], port[16] = "1";
    bool is_well = mr__bench_load(b, "c", policy, strlen(policy), &files, &why) == 0;

    is_well = is_well && count(b, HAPPENED_LOADED, true) == 1;
    if (!is_well || !mr__bench_is_running(b)) {
        return false;
    }
    join(b, "10.0.0.1:5000", "10.0.0.1:6000", oid);
    snprintf(line, sizeof line, "connect-relay %s\n", oid);
    conn_id client = join(b, "10.0.0.2:5000", "10.0.0.2:6000", oid);
    if (client != 0) {
        (void)mr__bench_input(b, client, line, strlen(line));
    }
    mr__bench_settle(b);
    is_well = last_line(b, client, "connect-relay ", port, sizeof port);
    unsigned long number = strtoul(port, NULL, 10);
    for (int i = 0; i < 3; i++) {
        int rc = mr__bench_knock(b, &stranger, (uint16_t)number, i == 1 ? &no : data,
                                 i == 1 ? 1 : 2, &knock);
        is_well = is_well && rc == 0 && knock.flow != 0;
    }
    is_well = is_well && count(b, HAPPENED_KNOCK, true) == 2;
    is_well = mr__bench_step(b, b->now_ns + 3000000000u) >= 0 && is_well;
    (void)mr__bench_leave(b, client, MR_CONN_RESET);
    mr__bench_settle(b);
    return is_well && count(b, HAPPENED_COMMAND, true) == 3 && !b->happenings.is_short;
}

static struct bench *create(void)
{
    const struct bench_options o = {.now_s = 1700000000, .seed = 1};
    struct script_error why;
    struct bench *b = NULL;

    if (mr__bench_create(&b, &o) < 0) {
        return NULL;
    }
    if (mr__bench_set(b, "udp_relay_ports", "50000+7", 7, &why) < 0) {
        mr__bench_destroy(b);
        return NULL;
    }
    return b;
}

TEST(a_story_comes_out_well)
{
    struct bench *b = create();

    REQUIRE(b != NULL);
    CHECK(play(b));
    mr__bench_destroy(b);
}

TEST(memory_that_ends_anywhere_is_told_and_leaves_nothing_behind)
{
    long before = mr__alloc_live();
    bool is_well = false;
    long n = 0;

    for (; !is_well && n < 100000; n++) {
        mr__alloc_fail_after(n);
        struct bench *b = create();
        is_well = b && play(b);
        mr__alloc_fail_after(-1);
        mr__bench_destroy(b);
        if (mr__alloc_live() != before) {
            CHECK_EQ(mr__alloc_live(), before);
            fprintf(stderr, "# left behind when allocation %ld failed\n", n);
            return;
        }
    }
    CHECK(is_well);
    CHECK(n > 100);
}

/* One that fails and then works again is another thing than all that fail. */
TEST(one_failure_of_memory_is_told_and_leaves_nothing_behind)
{
    long before = mr__alloc_live();

    for (long n = 0; n < 3000; n += 1 + n / 200) {
        struct bench *b = create();
        REQUIRE(b != NULL);
        mr__alloc_fail_after(n);
        (void)play(b);
        mr__alloc_fail_after(-1);
        mr__bench_settle(b);
        mr__bench_destroy(b);
        CHECK_EQ(mr__alloc_live(), before);
    }
}

TEST(connections_that_are_gone_are_told_from_those_that_never_were)
{
    const struct bench_files files = {.find = find};
    const char text[] = "return { policies = {} }";
    struct mr_addr peer = addr("10.0.0.1:5000");
    struct script_error why;
    struct bench *b = create();

    REQUIRE(b != NULL);
    CHECK_EQ(mr__bench_load(b, "c", text, strlen(text), &files, &why), 0);
    conn_id id = mr__bench_accept(b, &peer);
    CHECK_EQ(mr__bench_input(b, id, "echo x\n", 7), 0);
    CHECK_EQ(mr__bench_leave(b, id, MR_CONN_RESET), 0);
    CHECK_EQ(mr__bench_leave(b, id, MR_CONN_RESET), -ENOENT);
    CHECK_EQ(mr__bench_input(b, id, "echo x\n", 7), -ENOENT);
    CHECK_EQ(mr__bench_input(b, id + 1, "echo x\n", 7), -ENOENT);
    mr__bench_destroy(b);
}

TEST_MAIN(TEST_CASE(a_story_comes_out_well),
          TEST_CASE(memory_that_ends_anywhere_is_told_and_leaves_nothing_behind),
          TEST_CASE(one_failure_of_memory_is_told_and_leaves_nothing_behind),
          TEST_CASE(connections_that_are_gone_are_told_from_those_that_never_were))
