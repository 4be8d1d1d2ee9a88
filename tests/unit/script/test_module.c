/* SPDX-License-Identifier: MIT */
/*
 * The module `relay` as a whole: what is in it, and all of it at any amount of memory. One
 * thread.
 */
#include "test.h"

#include "act.h"

static struct act a;

/* Calls every function that does not wait; what one of them raises is not caught. */
static const char everything[] =
    "local j = relay.json\n"
    "local text = j.encode { a = { 1, 2, { b = 'x' } }, c = j.array(), d = j.null, ev = ev.session "
    "}\n"
    "assert(j.decode(text).a[3].b == 'x' and not j.decode '{')\n"
    "assert(relay.urlencode('a b') == 'a%20b' and relay.isip '::1' == 6)\n"
    "assert(relay.now() > 0 and relay.monotonic() > 0 and relay.settings)\n"
    "local c = relay.crypto\n"
    "assert(#c.hex(c.hmac_sha256('k', text)) == 64 and #c.base64url(c.sha256(text)) == 43)\n"
    "assert(c.equal('a', 'a') and #c.random(16) == 16 and c.random_int(6) <= 6)\n"
    "assert(not c.jwt('a.b.c', { hs256 = 'k' }))\n"
    "local l, m = relay.cidr { '10.0.0.0/8', '::1' }, relay.cidr { ['10.0.0.0/8'] = { 1 } }\n"
    "local t = relay.cidr '10.0.0.0/8 x\\n10.1.0.0/16'\n"
    "assert(l:contains '10.0.0.1' and m:get '10.1.1.1'[1] == 1 and t:get '10.2.2.2' == 'x')\n"
    "local s = relay.store('s', { ttl = 5 }) s:set('k', text) s:incr 'n' s:add('m', true)\n"
    "assert(s:get 'k' == text and s:count() == 3 and s:del 'n')\n"
    "relay.limiter('l', { rate = 1 }):take 'k'\n"
    "relay.metric('m', 'counter', 'M.'):add(1, 'x') relay.metric('g', 'gauge', 'G.'):set(2)\n"
    "assert(#relay.sessions() == 2 and #relay.relays() == 2)\n"
    "local one = relay.sessions()[1] relay.notify(one, 'hello')\n"
    "assert(relay.session(one.id).id == one.id and relay.get(relay.relays()[1]))\n"
    "assert(relay.block('192.0.2.1', 60) == 0 and relay.block({ user = 'x' }, 60) == 0)\n"
    "assert(#relay.blocks() >= 2 and relay.unblock('192.0.2.1') == 1)\n"
    "assert(relay.blocklist(relay.cidr { '192.0.2.0/24' }) == 0)\n"
    "assert(not relay.kick '999' and not relay.close '1.1')\n"
    "relay.log.info('all', { text = text })\n";

static bool is_expected(const char *answer)
{
    return strcmp(answer, "admit") == 0 || strcmp(answer, "failed policy-error by p") == 0 ||
           strcmp(answer, "failed policy-error by ") == 0;
}

TEST(at_any_memory_cap_every_function_works_or_fails_its_hook_and_leaves_nothing)
{
    unsigned x, y, loaded = 0, admitted = 0, failed = 0;
    static char body[8192];

    act_begin(&a, NULL);
    struct player host = world_join(a.world, "10.0.0.1:5000", "10.0.0.1:4000");
    struct player client = world_join(a.world, "10.0.0.2:5000", "10.0.0.2:4000");
    REQUIRE(world_relay(a.world, &client, &host, &x, &y));
    /* What the hook keeps uses the memory up, a little more each time: it ends everywhere. */
    snprintf(body, sizeof body, "kept[#kept + 1] = ('x'):rep(701) .. #kept\n%s", everything);
    for (uint64_t cap = 100000; cap < 600000; cap += 25031) {
        a.rig.load.memory_bytes = cap;
        a.rig.log_n = 0;
        if (act_load(&a, "", body) != 0) {
            CHECK(strstr(a.rig.err.text, "not enough memory") != NULL);
            continue;
        }
        loaded++;
        for (int i = 0; i < 100; i++) {
            struct hook_event ev = rig_event(MR_HOOK_CREATE);
            const char *answer = rig_ask(&a.rig, &ev);

            CHECK(is_expected(answer));
            admitted += strcmp(answer, "admit") == 0;
            failed += strcmp(answer, "admit") != 0;
        }
        if (strstr(a.rig.log_text, "hook failed") && !strstr(a.rig.log_text, "not enough memory")) {
            CHECK_STR(a.rig.log_text, "not enough memory");
        }
    }
    CHECK_GT(loaded, 3);
    CHECK_GT(admitted, 10);
    CHECK_GT(failed, 10);
    act_end(&a); /* which looks for what is left */
}

TEST(whichever_allocation_fails_every_function_works_or_fails_its_hook_and_leaves_nothing)
{
    unsigned x, y, failed = 0;
    bool is_done = false;

    act_begin(&a, NULL);
    struct player host = world_join(a.world, "10.0.0.1:5000", "10.0.0.1:4000");
    struct player client = world_join(a.world, "10.0.0.2:5000", "10.0.0.2:4000");
    REQUIRE(world_relay(a.world, &client, &host, &x, &y));
    REQUIRE_EQ(act_load(&a, "", everything), 0);
    for (long n = 0; n < 2000 && !is_done; n++) {
        struct hook_event ev = rig_event(MR_HOOK_CREATE);
        const char *answer;

        mr__alloc_fail_after(n);
        answer = rig_ask(&a.rig, &ev);
        mr__alloc_fail_after(-1);
        CHECK(is_expected(answer));
        is_done = strcmp(answer, "admit") == 0;
        failed += !is_done;
    }
    CHECK(is_done);
    CHECK_GT(failed, 10);
    act_end(&a);
}

TEST_MAIN(
    TEST_CASE(at_any_memory_cap_every_function_works_or_fails_its_hook_and_leaves_nothing),
    TEST_CASE(whichever_allocation_fails_every_function_works_or_fails_its_hook_and_leaves_nothing))
