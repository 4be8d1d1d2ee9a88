/* SPDX-License-Identifier: MIT */
/*
 * Lists of networks. One thread.
 */
#include "base/alloc.h"
#include "service/nets.h"
#include "test.h"

#include <string.h>

static bool contains(const char *list, const char *ip)
{
    struct nets nets;
    struct mr_addr a;

    REQUIRE_EQ(mr__nets_parse(&nets, list, strlen(list)), 0);
    REQUIRE_EQ((int)mr_addr_parse_ip(&a, ip, strlen(ip), NULL), 0);
    bool is_in = mr__nets_contain(&nets, &a);
    mr__nets_deinit(&nets);
    return is_in;
}

TEST(a_net_holds_the_addresses_with_its_first_bits)
{
    CHECK(contains("10.0.0.0/8", "10.255.0.1"));
    CHECK(!contains("10.0.0.0/8", "11.0.0.0"));
    CHECK(contains("192.0.2.128/25", "192.0.2.129"));
    CHECK(!contains("192.0.2.128/25", "192.0.2.127"));
    CHECK(contains("192.0.2.1", "192.0.2.1"));
    CHECK(!contains("192.0.2.1", "192.0.2.2"));
    CHECK(contains("0.0.0.0/0", "8.8.8.8"));
    CHECK(!contains("0.0.0.0/0", "::1"));
    CHECK(contains("2001:db8::/32 , 10.0.0.1", "2001:db8:ffff::1"));
    CHECK(contains("2001:db8::/32 , 10.0.0.1", "10.0.0.1"));
    CHECK(!contains("2001:db8::/33", "2001:db8:8000::1"));
    CHECK(!contains("", "10.0.0.1"));
}

TEST(what_is_no_list_of_nets_is_refused)
{
    static const char *const bad[] = {
        "10.0.0.0/33",   "10.0.0/8",         ",",           "10.0.0.1,",   " ",
        "::/129",        "10.0.0.0/",        "10.0.0.0/-1", "10.0.0.0/8x", "a",
        "10.0.0.0/0008", "10.0.0.1 10.0.0.2"};
    struct nets nets;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_EQ(mr__nets_parse(&nets, bad[i], strlen(bad[i])), -EINVAL);
    }
    CHECK_EQ(mr__alloc_live(), 0);
}

TEST_MAIN(TEST_CASE(a_net_holds_the_addresses_with_its_first_bits),
          TEST_CASE(what_is_no_list_of_nets_is_refused))
