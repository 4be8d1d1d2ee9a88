/* SPDX-License-Identifier: MIT */
/*
 * Blocks as policies make them, on a real service. Where they act is tested with the
 * service. One thread.
 */
#include "test.h"

#include "act.h"

static struct act a;

static void begin_with_player(struct player *host)
{
    static const struct hook_pair tags[] = {{{"user", 4}, {"alice", 5}}};

    act_begin(&a, NULL);
    struct hook_answer *answer = world_answer(a.world, MR_HOOK_REGISTER, MR_HOOK_ADMIT);
    answer->tags = (struct hook_map){tags, 1};
    *host = world_join(a.world, "10.0.0.1:5000", "10.0.0.1:4000");
    answer->tags.n = 0;
    while (world_lines_left(a.world, host->conn) > 0) {
        world_line(a.world, host->conn);
    }
}

TEST(a_block_ends_who_matches_and_is_listed_until_it_is_taken_back)
{
    struct player host;

    begin_with_player(&host);
    CHECK_STR(act(&a,
                  "same(relay.block({ user = 'bob' }, 60, 'kicked'), 0)\n"
                  "same(relay.block('192.0.2.0/24', 60), 0)\n"
                  "same(relay.block('192.0.2.9:4000', math.huge, 'Bad Words'), 0)\n"
                  "local b = relay.blocks() same(#b, 3) local by_what = {}\n"
                  "for _, x in ipairs(b) do by_what[x.what] = x same(x.by, 'p') end\n"
                  "same(by_what['user=bob'].reason, 'kicked')\n"
                  "assert(by_what['user=bob'].seconds <= 60 and by_what['user=bob'].seconds > 59)\n"
                  "same(by_what['192.0.2.0/24'].reason, 'p')\n"
                  "same(by_what['192.0.2.9:4000'].reason, '-ad--ords')\n"
                  "same(by_what['192.0.2.9:4000'].seconds, nil)\n"
                  "assert(relay.json.encode(b):find('192.0.2.9:4000', 1, true))\n"
                  "same(relay.unblock('192.0.2.0/24'), 1) same(relay.unblock('192.0.2.0/24'), 0)\n"
                  "same(relay.unblock { user = 'bob' }, 1) same(#relay.blocks(), 1)\n"
                  "same(relay.block({ user = 'alice' }, 600), 1)"),
              "admit");
    world_advance(a.world, 100);
    CHECK_STR(world_line(a.world, host.conn), "error session:blocked");
    act_end(&a);
}

TEST(a_list_replaces_the_one_before_and_ends_who_is_in_it)
{
    struct player host;

    begin_with_player(&host);
    CHECK_STR(act(&a,
                  "same(relay.blocklist(relay.cidr { '192.0.2.0/24', '::1' }, 'banned'), 0)\n"
                  "local b = relay.blocks() same(#b, 1) same(b[1].nets, 2) same(b[1].what, nil)\n"
                  "same(b[1].reason, 'banned') same(b[1].by, 'p')\n"
                  "same(relay.blocklist(relay.cidr '10.0.0.0/8'), 1) same(#relay.blocks(), 1)\n"
                  "same(relay.blocklist(relay.cidr {}), 0) same(#relay.blocks(), 0)\n"
                  "same(relay.json.encode(relay.blocks()), '[]')"),
              "admit");
    world_advance(a.world, 100);
    CHECK_STR(world_line(a.world, host.conn), "error session:blocked");
    act_end(&a);
}

TEST(misuse_of_blocks_raises_and_names_the_argument)
{
    struct player host;

    begin_with_player(&host);
    CHECK_STR(act(&a, "fails('relay.block: what is nil (an address, a net', relay.block)\n"
                      "fails('what is wrong', relay.block, '10.0.0.1/8', 5)\n"
                      "fails('what is wrong', relay.block, 'nonsense', 5)\n"
                      "fails('a table without tags (it would be everybody)', relay.block, {}, 5)\n"
                      "fails('what is an address or session', relay.block, ev.addr, 5)\n"
                      "fails('what is an address or session', relay.block, ev.session, 5)\n"
                      "fails('what.user is a table', relay.block, { user = {} }, 5)\n"
                      "fails('seconds is nil (a number above 0', relay.block, '10.0.0.1')\n"
                      "fails('seconds is 0', relay.block, '10.0.0.1', 0)\n"
                      "fails('seconds is nan', relay.block, '10.0.0.1', 0 / 0)\n"
                      "fails('seconds is a text', relay.block, '10.0.0.1', '5')\n"
                      "fails('reason is 5', relay.block, '10.0.0.1', 5, 5)\n"
                      "fails('relay.unblock: what is 5', relay.unblock, 5)\n"
                      "fails('relay.blocklist: nets is nil (what relay.cidr() gives', "
                      "relay.blocklist)\n"
                      "fails('nets is a table', relay.blocklist, { '10.0.0.0/8' })\n"
                      "fails('nets is a userdata', relay.blocklist, relay.store 'x')\n"
                      "same(#relay.blocks(), 0)"),
              "admit");
    act_end(&a);
}

TEST(running_out_of_memory_for_a_block_is_an_error_of_the_hook)
{
    struct player host;
    unsigned failed = 0;
    bool is_done = false;

    begin_with_player(&host);
    REQUIRE_EQ(act_load(&a, "local list = relay.cidr { '192.0.2.0/24', '2001:db8::/32' }",
                        "relay.block({ user = 'bob' }, 60) relay.block('192.0.2.1', 60)\n"
                        "relay.blocklist(list) relay.blocks()"),
               0);
    for (long n = 0; n < 1000 && !is_done; n++) {
        struct hook_event ev = rig_event(MR_HOOK_CREATE);
        mr__alloc_fail_after(n);
        is_done = strcmp(rig_ask(&a.rig, &ev), "admit") == 0;
        mr__alloc_fail_after(-1);
        failed += !is_done;
    }
    CHECK(is_done);
    CHECK_GT(failed, 2);
    act_end(&a);
}

TEST_MAIN(TEST_CASE(a_block_ends_who_matches_and_is_listed_until_it_is_taken_back),
          TEST_CASE(a_list_replaces_the_one_before_and_ends_who_is_in_it),
          TEST_CASE(misuse_of_blocks_raises_and_names_the_argument),
          TEST_CASE(running_out_of_memory_for_a_block_is_an_error_of_the_hook))
