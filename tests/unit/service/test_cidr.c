/* SPDX-License-Identifier: MIT */
/*
 * Lists of networks and the longest match. The random test compares with a reference that
 * looks at every net and shares nothing with the code but the parser of addresses. One
 * thread.
 */
#include "base/alloc.h"
#include "service/cidr.h"
#include "test.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

static struct cidr *parsed(const char *text)
{
    char why[MR_CIDR_WHY_MAX] = "";
    struct cidr *c = NULL;

    if (mr__cidr_parse(&c, text, strlen(text), why) < 0) {
        FAIL("%s", why);
    }
    return c;
}

static struct mr_addr address(const char *ip)
{
    struct mr_addr a = {.family = 0};

    REQUIRE_EQ((int)mr_addr_parse_ip(&a, ip, strlen(ip), NULL), 0);
    return a;
}

/* The number of the net that has the address, -1: none. */
static long found(const struct cidr *c, const char *ip)
{
    struct mr_addr a = address(ip);
    uint32_t number = mr__cidr_find(c, &a);

    return number == (uint32_t)MR_NETS_NONE ? -1 : (long)number;
}

static long found_in(const char *text, const char *ip)
{
    struct cidr *c = parsed(text);
    long number = found(c, ip);

    mr__cidr_unref(c);
    return number;
}

static void check_wrong(const char *text, int rc, const char *message)
{
    char why[MR_CIDR_WHY_MAX] = "";
    struct cidr *c = NULL;

    CHECK_EQ(mr__cidr_parse(&c, text, strlen(text), why), rc);
    CHECK_STR(why, message);
    CHECK(c == NULL);
}

TEST(the_longest_match_counts_wherever_it_stands)
{
    static const char text[] = "10.0.0.0/8\n10.2.0.0/16\n10.2.3.0/24\n10.2.3.4\n0.0.0.0/0\n";

    CHECK_EQ(found_in(text, "10.2.3.4"), 3);
    CHECK_EQ(found_in(text, "10.2.3.3"), 2);
    CHECK_EQ(found_in(text, "10.2.3.5"), 2);
    CHECK_EQ(found_in(text, "10.2.4.0"), 1);
    CHECK_EQ(found_in(text, "10.1.255.255"), 0);
    CHECK_EQ(found_in(text, "10.255.255.255"), 0);
    CHECK_EQ(found_in(text, "11.0.0.0"), 4);
    CHECK_EQ(found_in(text, "255.255.255.255"), 4);
    CHECK_EQ(found_in(text, "0.0.0.0"), 4);
    CHECK_EQ(found_in(text, "::1"), -1);
}

TEST(nets_may_touch_the_first_and_the_last_address)
{
    CHECK_EQ(found_in("255.255.255.255\n0.0.0.0\n", "255.255.255.255"), 0);
    CHECK_EQ(found_in("255.255.255.255\n0.0.0.0\n", "0.0.0.0"), 1);
    CHECK_EQ(found_in("255.255.255.255\n0.0.0.0\n", "1.1.1.1"), -1);
    CHECK_EQ(found_in("::/0\nffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\n", "ffff::"), 0);
    CHECK_EQ(found_in("::/0\nffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\n",
                      "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
             1);
    struct cidr *c = parsed("::/0\nffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\n");
    CHECK_EQ(mr__cidr_ranges(c)->n6, 2u); /* nothing begins behind the last one */
    mr__cidr_unref(c);
    CHECK_EQ(found_in("128.0.0.0/1\n255.0.0.0/8\n255.255.255.255", "255.255.255.254"), 1);
    CHECK_EQ(found_in("192.0.2.0/25\n192.0.2.128/25", "192.0.2.127"), 0);
    CHECK_EQ(found_in("192.0.2.0/25\n192.0.2.128/25", "192.0.2.128"), 1);
}

TEST(a_v4_mapped_net_or_address_is_that_of_ipv4)
{
    struct mr_addr mapped = {.family = 6, .ip = {[10] = 0xff, [11] = 0xff, 10, 1, 2, 3}};

    CHECK_EQ(found_in("::ffff:10.0.0.0/104", "10.1.2.3"), 0);
    CHECK_EQ(found_in("::ffff:10.1.2.3", "10.1.2.3"), 0);
    CHECK_EQ(found_in("::ffff:0:0/96", "10.1.2.3"), 0);
    CHECK_EQ(found_in("::/0", "10.1.2.3"), -1);
    struct cidr *c = parsed("10.0.0.0/8");
    CHECK_EQ(mr__cidr_find(c, &mapped), 0u);
    mr__cidr_unref(c);
}

TEST(a_value_is_what_follows_the_net)
{
    struct cidr *c = parsed("# nets of our schools\n"
                            "\r\n"
                            " 10.0.0.0/8\t school  one \r\n"
                            "10.1.0.0/16 # nothing\n"
                            "2001:db8::/32 400");
    struct str v = mr__cidr_value(c, 0);

    CHECK_EQ(mr__cidr_count(c), 3u);
    CHECK_MEM(v.s, v.n, "school  one", 11);
    CHECK_EQ(mr__cidr_value(c, 1).n, 0u);
    v = mr__cidr_value(c, 2);
    CHECK_MEM(v.s, v.n, "400", 3);
    CHECK_EQ(mr__cidr_value(c, 3).n, 0u);
    CHECK_EQ(mr__cidr_value(c, MR_NETS_NONE).n, 0u);
    mr__cidr_unref(c);
}

TEST(of_a_net_named_twice_the_later_value_counts)
{
    struct cidr *c = parsed("10.0.0.0/8 a\n10.0.0.0/9 b\n10.0.0.0/8 c\n::ffff:10.0.0.0/104 d\n");
    struct mr_addr a = address("10.200.0.1");
    struct str v = mr__cidr_value(c, mr__cidr_find(c, &a));

    CHECK_MEM(v.s, v.n, "d", 1);
    CHECK_EQ(mr__cidr_count(c), 2u);
    mr__cidr_unref(c);
}

TEST(a_wrong_line_is_named_with_what_is_wrong)
{
    check_wrong("10.0.0.0/8\n\n10.0.0.0/33\n", -EINVAL, "line 3: not a network: 10.0.0.0/33");
    check_wrong("10.0.0.1/8\n", -EINVAL,
                "line 1: 10.0.0.1/8 has bits behind its prefix (10.0.0.0/8?)");
    check_wrong("1.2.3.4\n2001:db8::1/64 x", -EINVAL,
                "line 2: 2001:db8::1/64 has bits behind its prefix (2001:db8::/64?)");
    check_wrong("10.0.0.0/", -EINVAL, "line 1: not a network: 10.0.0.0/");
    check_wrong("10.0.0.0/08", -EINVAL, "line 1: not a network: 10.0.0.0/08");
    check_wrong("10.0.0.0/-1", -EINVAL, "line 1: not a network: 10.0.0.0/-1");
    check_wrong("10.0.0/8", -EINVAL, "line 1: not a network: 10.0.0/8");
    check_wrong("/8", -EINVAL, "line 1: not a network: /8");
    check_wrong("fe80::1%2", -EINVAL, "line 1: not a network: fe80::1%2");
    check_wrong("::1/129", -EINVAL, "line 1: not a network: ::1/129");
    check_wrong("::ffff:10.0.0.0/95", -EINVAL, "line 1: not a network: ::ffff:10.0.0.0/95");
    check_wrong("\x1b[31m\n", -EINVAL, "line 1: not a network: ?[31m");
    check_wrong("0000000000111111111122222222223333333333444444444455555555556666666666", -EINVAL,
                "line 1: not a network: "
                "0000000000111111111122222222223333333333444444444455555555556666");
}

TEST(nets_are_added_singly_as_well)
{
    struct cidr_builder *b = mr__cidr_begin();
    char why[MR_CIDR_WHY_MAX] = "";
    struct cidr *c = NULL;

    REQUIRE(b != NULL);
    CHECK_EQ(mr__cidr_add(b, (struct str){"10.0.0.0/8", 10}, why), 0);
    CHECK_EQ(mr__cidr_add(b, (struct str){"10.0.0.1/8", 10}, why), -EINVAL);
    CHECK_STR(why, "10.0.0.1/8 has bits behind its prefix (10.0.0.0/8?)");
    CHECK_EQ(mr__cidr_add(b, (struct str){"", 0}, why), -EINVAL);
    CHECK_EQ(mr__cidr_add(b, (struct str){"::1", 3}, why), 0);
    REQUIRE_EQ(mr__cidr_finish(b, &c), 0);
    CHECK_EQ(found(c, "10.9.9.9"), 0);
    CHECK_EQ(found(c, "::1"), 1);
    CHECK_EQ(mr__cidr_value(c, 0).n, 0u);
    CHECK(mr__cidr_ref(c) == c);
    mr__cidr_unref(c);
    CHECK_EQ(found(c, "::1"), 1);
    mr__cidr_unref(c);
    mr__cidr_cancel(NULL);
    mr__cidr_cancel(mr__cidr_begin());
    mr__cidr_unref(NULL);
    CHECK_EQ(mr__alloc_live(), 0);
}

TEST(an_empty_text_is_an_empty_list)
{
    struct cidr *c = parsed("\n# nothing\n");

    CHECK_EQ(mr__cidr_count(c), 0u);
    CHECK_EQ(found(c, "10.0.0.1"), -1);
    CHECK_EQ(found(c, "::"), -1);
    mr__cidr_unref(c);
}

TEST(more_nets_than_a_list_may_have_are_refused)
{
    struct cidr_builder *b = mr__cidr_begin();
    char why[MR_CIDR_WHY_MAX] = "";
    struct str net = {"10.0.0.0/8", 10};

    REQUIRE(b != NULL);
    for (int i = 0; i < MR_CIDR_NETS_MAX; i++) {
        if (mr__cidr_add(b, net, why) != 0) {
            FAIL("%d: %s", i, why);
        }
    }
    CHECK_EQ(mr__cidr_add(b, net, why), -E2BIG);
    CHECK_STR(why, "more than 1000000 networks");
    mr__cidr_cancel(b);
}

TEST(a_hundred_thousand_nets_are_read_and_found)
{
    enum { NETS = 100000, LINE = 24 };
    char *text = malloc((size_t)NETS * LINE), *end = text;

    REQUIRE(text != NULL);
    for (uint32_t i = 0; i < NETS; i++) { /* scattered, so that sorting has work */
        uint32_t n = (uint32_t)((uint64_t)i * 7919 % NETS);
        end += snprintf(end, LINE, "%u.%u.%u.0/24 v\n", 1 + n / 65536, n / 256 % 256, n % 256);
    }
    char why[MR_CIDR_WHY_MAX];
    struct cidr *c = NULL;
    REQUIRE_EQ(mr__cidr_parse(&c, text, (size_t)(end - text), why), 0);
    free(text);
    CHECK_EQ(mr__cidr_count(c), (size_t)NETS);
    CHECK_EQ(found(c, "1.0.0.77"), 0);
    CHECK_EQ(found(c, "1.30.239.255"), 1);
    CHECK_GT(mr__cidr_bytes(c), (size_t)NETS * sizeof(struct mr_range4));
    mr__cidr_unref(c);
}

TEST(each_failed_allocation_is_an_error_and_leaks_nothing)
{
    static const char text[] = "10.0.0.0/8 a\n10.1.0.0/16\n::/0 b\n";
    int rc = -ENOMEM;

    for (long n = 0; rc == -ENOMEM && n < 100; n++) {
        char why[MR_CIDR_WHY_MAX] = "";
        struct cidr *c = NULL;

        mr__alloc_fail_after(n);
        rc = mr__cidr_parse(&c, text, sizeof text - 1, why);
        mr__alloc_fail_after(-1);
        if (rc == -ENOMEM) {
            CHECK(c == NULL && strstr(why, "out of memory") != NULL);
        }
        mr__cidr_unref(c);
        CHECK_EQ(mr__alloc_live(), 0);
    }
    CHECK_EQ(rc, 0);
}

/* ---- against a reference --------------------------------------------------------------------- */

struct reference {
    struct ref_net {
        wide base, mask;
        unsigned bits;
        int family;
    } nets[64];
    unsigned n;
};

static wide random_wide(void)
{
    return (wide)test_random() << 64 | test_random();
}

/* An address that is near one of the nets more often than chance would have it. */
static wide random_place(const struct reference *ref, int family)
{
    wide v = test_random_below(4) == 0 ? 0 : random_wide();

    if (ref->n > 0 && test_random_below(4) > 0) {
        const struct ref_net *net = &ref->nets[test_random_below(ref->n)];
        switch (test_random_below(4)) {
        case 0:
            v = net->base - 1;
            break;
        case 1:
            v = (net->base | ~net->mask) + 1;
            break;
        case 2:
            v = net->base | ~net->mask;
            break;
        default:
            v = net->base | (random_wide() & ~net->mask);
        }
    }
    return family == 4 ? v & UINT32_MAX : v;
}

static void write_ip(char *out, size_t cap, wide v, int family, int is_mapped)
{
    unsigned char ip[16];

    for (int i = 15; i >= 0; i--, v >>= 8) {
        ip[i] = (unsigned char)v;
    }
    if (family == 6) {
        inet_ntop(AF_INET6, ip, out, (socklen_t)cap);
    } else {
        snprintf(out, cap, "%s%u.%u.%u.%u", is_mapped ? "::ffff:" : "", ip[12], ip[13], ip[14],
                 ip[15]);
    }
}

/* An IPv6 address in ::ffff:0:0/96 is none: it is IPv4. */
static int is_mapped_place(wide v)
{
    return (v >> 32) == 0xffff;
}

static size_t add_random(struct reference *ref, char *text, size_t cap)
{
    int family = test_random_below(2) ? 4 : 6;
    unsigned width = family == 4 ? 32 : 128;
    unsigned bits = (unsigned)test_random_below(width + 1);
    wide all = family == 4 ? (wide)UINT32_MAX : ~(wide)0;
    wide mask = bits == 0 ? 0 : all << (width - bits) & all;
    wide base = random_place(ref, family) & mask;
    int is_mapped = family == 4 && test_random_below(4) == 0;
    char ip[INET6_ADDRSTRLEN + 8];

    if (family == 6 && is_mapped_place(base)) {
        return 0;
    }
    write_ip(ip, sizeof ip, base, family, is_mapped);
    ref->nets[ref->n++] = (struct ref_net){base, family == 4 ? mask | ~all : mask, bits, family};
    return (size_t)snprintf(text, cap, "%s/%u %u\n", ip, is_mapped ? bits + 96 : bits, ref->n - 1);
}

static long reference_find(const struct reference *ref, wide v, int family)
{
    long best = -1;

    for (unsigned i = 0; i < ref->n; i++) {
        const struct ref_net *net = &ref->nets[i];
        if (net->family == family && (v & net->mask) == net->base &&
            (best < 0 || net->bits >= ref->nets[best].bits)) {
            best = (long)i;
        }
    }
    return best;
}

static int differs(const struct reference *ref, const struct cidr *c)
{
    int family = test_random_below(2) ? 4 : 6;
    wide v = random_place(ref, family);
    struct mr_addr a = {.family = (uint8_t)family, .port = 7, .scope_id = 0};

    if (family == 6 && is_mapped_place(v)) {
        return 0;
    }
    for (int i = family == 4 ? 3 : 15; i >= 0; i--) {
        a.ip[i] = (uint8_t)(v >> (8 * ((family == 4 ? 3 : 15) - i)));
    }
    long want = reference_find(ref, v, family);
    uint32_t got = mr__cidr_find(c, &a);
    if ((want < 0 ? (uint32_t)MR_NETS_NONE : (uint32_t)want) == got) {
        return 0;
    }
    char ip[INET6_ADDRSTRLEN + 8];
    write_ip(ip, sizeof ip, v, family, 0);
    fprintf(stderr, "# %s: net %u instead of %ld\n", ip, got, want);
    return 1;
}

TEST(a_million_random_lookups_agree_with_128_bit_arithmetic)
{
    enum { LISTS = 2500, LOOKUPS = 400 };
    static struct reference ref;
    static char text[64 * 80];

    for (int list = 0; list < LISTS; list++) {
        unsigned nets = (unsigned)test_random_below(64);
        size_t n = 0;
        char why[MR_CIDR_WHY_MAX] = "";
        struct cidr *c = NULL;

        ref.n = 0;
        for (unsigned i = 0; i < nets; i++) {
            n += add_random(&ref, text + n, sizeof text - n);
        }
        if (mr__cidr_parse(&c, text, n, why) < 0) {
            FAIL("%s in:\n%s", why, text);
        }
        for (int i = 0; i < LOOKUPS; i++) {
            if (differs(&ref, c)) {
                mr__cidr_unref(c);
                FAIL("list %d:\n%.*s", list, (int)n, text);
            }
        }
        mr__cidr_unref(c);
    }
}

TEST_MAIN(TEST_CASE(the_longest_match_counts_wherever_it_stands),
          TEST_CASE(nets_may_touch_the_first_and_the_last_address),
          TEST_CASE(a_v4_mapped_net_or_address_is_that_of_ipv4),
          TEST_CASE(a_value_is_what_follows_the_net),
          TEST_CASE(of_a_net_named_twice_the_later_value_counts),
          TEST_CASE(a_wrong_line_is_named_with_what_is_wrong),
          TEST_CASE(nets_are_added_singly_as_well), TEST_CASE(an_empty_text_is_an_empty_list),
          TEST_CASE(more_nets_than_a_list_may_have_are_refused),
          TEST_CASE(a_hundred_thousand_nets_are_read_and_found),
          TEST_CASE(each_failed_allocation_is_an_error_and_leaks_nothing),
          TEST_CASE(a_million_random_lookups_agree_with_128_bit_arithmetic))
