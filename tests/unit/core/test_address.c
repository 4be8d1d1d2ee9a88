/* SPDX-License-Identifier: MIT */
/*
 * The address parser and formatter: tables with position and reason, and libc's
 * inet_pton and inet_ntop as the second opinion on random text and addresses.
 */
#include "test.h"

#include "core/address.h"

#include <arpa/inet.h>

struct row {
    const char *text;
    const char *canonical; /* NULL: an error */
    enum mr_addr_error error;
    size_t at;
};

#define GOOD(text, canonical)              \
    {                                      \
        (text), (canonical), MR_ADDR_OK, 0 \
    }
#define SAME(text)                    \
    {                                 \
        (text), (text), MR_ADDR_OK, 0 \
    }
#define BAD(text, error, where)                \
    {                                          \
        (text), NULL, MR_ADDR_##error, (where) \
    }

static void check_row(const struct row *r, enum mr_addr_error e, const struct mr_addr *a, size_t at,
                      size_t (*format)(const struct mr_addr *, char *, size_t))
{
    static const struct mr_addr untouched = {.ip = {1, 2, 3}, .port = 77, .family = 4};
    char text[MR_ADDR_TEXT_MAX];

    if (e != r->error)
        FAIL("\"%s\": reason %d instead of %d", r->text, e, r->error);
    if (r->canonical) {
        format(a, text, sizeof text);
        CHECK_STR(text, r->canonical);
    } else {
        if (at != r->at)
            FAIL("\"%s\": position %zu instead of %zu", r->text, at, r->at);
        CHECK(mr_addr_equal(a, &untouched));
    }
}

/* In a block of exactly its size, so that ASan sees a byte too many. */
static char *exact(const char *text)
{
    size_t n = strlen(text);
    char *p = malloc(n ? n : 1);

    memcpy(p, text, n);
    return p;
}

TEST(an_ip_is_read_strictly_and_errors_have_position_and_reason)
{
    static const struct row rows[] = {
        SAME("0.0.0.0"),
        SAME("1.2.3.4"),
        SAME("255.255.255.255"),
        SAME("127.0.0.1"),
        BAD("", EMPTY, 0),
        BAD(" 1.2.3.4", NOT_AN_IP, 0),
        BAD("1.2.3.4 ", TRAILING, 7),
        BAD("1.2.3", NOT_AN_IP, 5),
        BAD("1.2.3.", NOT_AN_IP, 6),
        BAD("1..3.4", NOT_AN_IP, 2),
        BAD(".1.2.3", NOT_AN_IP, 0),
        BAD("1.2.3.4.5", TRAILING, 7),
        BAD("1", NOT_AN_IP, 1),
        BAD("16909060", OCTET, 3),
        BAD("0x1.2.3.4", NOT_AN_IP, 1),
        BAD("1.2.3.a", NOT_AN_IP, 6),
        BAD("256.0.0.0", OCTET, 2),
        BAD("1.2.3.256", OCTET, 8),
        BAD("1.2.3.1000", OCTET, 9),
        BAD("01.2.3.4", OCTET, 1),
        BAD("1.00.3.4", OCTET, 3),
        BAD("1.2.3.04", OCTET, 7),
        BAD("-1.2.3.4", NOT_AN_IP, 0),
        BAD("+1.2.3.4", NOT_AN_IP, 0),
        BAD("1.2.3.-4", NOT_AN_IP, 6),
        BAD("1.2.3.4:5", TRAILING, 7),
        BAD("1.2.3.4/24", TRAILING, 7),
        BAD("1.2.3.4%1", ZONE, 7),
        BAD("localhost", NOT_AN_IP, 0),
        BAD("1,2,3,4", NOT_AN_IP, 1),

        SAME("::"),
        SAME("::1"),
        SAME("1::"),
        SAME("2001:db8::1"),
        SAME("1:2:3:4:5:6:7:8"),
        GOOD("0:0:0:0:0:0:0:0", "::"),
        GOOD("0:0:0:0:0:0:0:1", "::1"),
        GOOD("2001:DB8::00Ab", "2001:db8::ab"),
        GOOD("0001:0020:0300:4000:0:0:0:0", "1:20:300:4000::"),
        GOOD("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"),
        GOOD("::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"),
        GOOD("1:0:0:4:0:0:0:8", "1:0:0:4::8"),
        GOOD("1:0:0:4:5:0:0:8", "1::4:5:0:0:8"),
        GOOD("1:0:3:0:5:0:7:0", "1:0:3:0:5:0:7:0"),
        GOOD("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
        GOOD("::ffff:1.2.3.4", "1.2.3.4"),
        GOOD("::ffff:102:304", "1.2.3.4"),
        GOOD("0:0:0:0:0:FFFF:1.2.3.4", "1.2.3.4"),
        GOOD("::1.2.3.4", "::102:304"),
        GOOD("64:ff9b::1.2.3.4", "64:ff9b::102:304"),
        GOOD("1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"),
        GOOD("1:2:3:4:5::1.2.3.4", "1:2:3:4:5:0:102:304"),
        SAME("fe80::1%3"),
        SAME("fe80::1"),
        SAME("fe80::1%4294967295"),
        SAME("ff02::1%2"),
        SAME("febf::%1"),
        BAD(":", NOT_AN_IP, 1),
        BAD(":::", NOT_AN_IP, 2),
        BAD(":1::", NOT_AN_IP, 1),
        BAD("1:", NOT_AN_IP, 2),
        BAD("1:2", NOT_AN_IP, 3),
        BAD("::1:", NOT_AN_IP, 4),
        BAD("1::2::3", NOT_AN_IP, 5),
        BAD("1:::2", NOT_AN_IP, 3),
        BAD("::12345", NOT_AN_IP, 6),
        BAD("::g", TRAILING, 2),
        BAD("1:2:3:4:5:6:7", NOT_AN_IP, 13),
        BAD("1:g::", NOT_AN_IP, 2),
        BAD("1:2:3:4:5:6:7:8:9", TRAILING, 15),
        BAD("1:2:3:4:5:6:7:8::", TRAILING, 15),
        BAD("1:2:3:4::5:6:7:8", TRAILING, 14),
        BAD("::1 ", TRAILING, 3),
        BAD("::1/64", TRAILING, 3),
        BAD("::1.2.3", NOT_AN_IP, 7),
        BAD("::1.2.3.256", OCTET, 10),
        BAD("::01.2.3.4", OCTET, 3),
        BAD("::1.2.3.4:5", TRAILING, 9),
        BAD("1:2:3:4:5:1.2.3.4", NOT_AN_IP, 10),
        BAD("1:2:3:4:5:6:7:1.2.3.4", NOT_AN_IP, 14),
        BAD("1:2:3:4:5:6::1.2.3.4", NOT_AN_IP, 13),
        BAD("::ab.2.3.4", NOT_AN_IP, 2),
        BAD("[::1]", BRACKET, 0),
        BAD("[", BRACKET, 0),
        BAD("::1%1", ZONE, 3),
        BAD("2001:db8::1%1", ZONE, 11),
        BAD("fe80::1%", ZONE, 8),
        BAD("fe80::1%0", ZONE, 8),
        BAD("fe80::1%eth0", ZONE, 8),
        BAD("fe80::1%01", ZONE, 8),
        BAD("fe80::1%4294967296", ZONE, 17),
        BAD("fe80::1%3x", TRAILING, 9),
        BAD("ff05::1%2", ZONE, 7),
        BAD("::ffff:1.2.3.4%1", ZONE, 14),
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mr_addr a = {.ip = {1, 2, 3}, .port = 77, .family = 4};
        char *text = exact(rows[i].text);
        size_t at = 99;
        enum mr_addr_error e = mr_addr_parse_ip(&a, text, strlen(rows[i].text), &at);

        check_row(&rows[i], e, &a, at, mr_addr_format_ip);
        free(text);
    }
}

TEST(an_ip_with_a_port_is_read_strictly_and_errors_have_position_and_reason)
{
    static const struct row rows[] = {
        SAME("1.2.3.4:5"),
        SAME("1.2.3.4:0"),
        SAME("1.2.3.4:65535"),
        SAME("[::1]:5"),
        SAME("[2001:db8::1]:65535"),
        SAME("[fe80::1%7]:1"),
        GOOD("[::ffff:1.2.3.4]:5", "1.2.3.4:5"),
        BAD("", EMPTY, 0),
        BAD("1.2.3.4", PORT, 7),
        BAD("1.2.3.4:", PORT, 8),
        BAD("1.2.3.4:x", PORT, 8),
        BAD("1.2.3.4:65536", PORT, 12),
        BAD("1.2.3.4:123456", PORT, 13),
        BAD("1.2.3.4:05", PORT, 9),
        BAD("1.2.3.4:-1", PORT, 8),
        BAD("1.2.3.4:5 ", TRAILING, 9),
        BAD("1.2.3.4:5:6", TRAILING, 9),
        BAD("1.2.3.4 :5", TRAILING, 7),
        BAD("1.2.3:5", NOT_AN_IP, 5),
        BAD("1.2.3.4]:5", BRACKET, 7),
        BAD("::1", BRACKET, 0),
        BAD("::1:5", BRACKET, 0),
        BAD("2001:db8::1:5", BRACKET, 0),
        BAD("[::1", BRACKET, 4),
        BAD("[", BRACKET, 1),
        BAD("[]:5", NOT_AN_IP, 1),
        BAD("[::1]", PORT, 5),
        BAD("[::1]5", TRAILING, 5),
        BAD("[::1]:", PORT, 6),
        BAD("[::1]:x", PORT, 6),
        BAD("[::1]:5x", TRAILING, 7),
        BAD("[1.2.3.4]:5", NOT_AN_IP, 1),
        BAD("[::1 ]:5", TRAILING, 4),
        BAD("[::1%1]:5", ZONE, 4),
        BAD("[[::1]]:5", NOT_AN_IP, 1),
        BAD("[::1]]:5", TRAILING, 5),
        BAD("localhost:5", NOT_AN_IP, 0),
        BAD("5", NOT_AN_IP, 1),
        BAD(":5", NOT_AN_IP, 0),
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mr_addr a = {.ip = {1, 2, 3}, .port = 77, .family = 4};
        char *text = exact(rows[i].text);
        size_t at = 99;
        enum mr_addr_error e = mr_addr_parse(&a, text, strlen(rows[i].text), &at);

        check_row(&rows[i], e, &a, at, mr_addr_format);
        free(text);
    }
}

TEST(a_nul_or_any_odd_byte_inside_is_an_error_and_no_position_is_needed)
{
    char text[] = "1.2.3.4:5";

    for (size_t i = 0; i < sizeof text - 1; i++) {
        for (int c = 0; c < 256; c++) {
            char old = text[i];
            struct mr_addr a;

            text[i] = (char)c;
            if (!strchr("0123456789", c) || c == 0) {
                bool ok = mr_addr_parse(&a, text, sizeof text - 1, NULL) == MR_ADDR_OK;
                CHECK(!ok || c == old);
            }
            text[i] = old;
        }
    }
}

static struct mr_addr random_addr(void)
{
    struct mr_addr a = {.family = test_random_below(3) ? 6 : 4};

    for (int i = 0; i < (a.family == 4 ? 4 : 16); i++)
        a.ip[i] = (uint8_t)(test_random_below(2) ? test_random() : 0);
    if (test_random_below(8) == 0)
        memcpy(a.ip, "\xfe\x80", 2);
    a.port = (uint16_t)test_random();
    if (test_random_below(2))
        a.scope_id = (uint32_t)test_random();
    mr_addr_canonicalize(&a);
    return a;
}

TEST(what_is_written_is_read_back_as_the_same_address_and_libc_agrees)
{
    for (int round = 0; round < 100000; round++) {
        struct mr_addr a = random_addr(), b;
        char text[MR_ADDR_TEXT_MAX], libc[MR_ADDR_TEXT_MAX];
        size_t n = mr_addr_format(&a, text, sizeof text);

        if (mr_addr_parse(&b, text, n, NULL) || !mr_addr_equal(&a, &b))
            FAIL("%s is not read back", text);
        n = mr_addr_format_ip(&a, text, sizeof text);
        if (mr_addr_parse_ip(&b, text, n, NULL) || !mr_addr_same_ip(&a, &b))
            FAIL("%s is not read back", text);
        inet_ntop(a.family == 4 ? AF_INET : AF_INET6, a.ip, libc, sizeof libc);
        /* libc writes ::1.2.3.4 in the form that RFC 4291 withdrew. */
        if (!a.scope_id && !(a.family == 6 && strchr(libc, '.')))
            CHECK_STR(text, libc);
    }
}

TEST(random_text_is_accepted_exactly_when_libc_accepts_it)
{
    static const char alphabet[] = "0123456789abcfF::::...%[]x";
    int accepted = 0;

    for (int round = 0; round < 300000; round++) {
        char text[48];
        unsigned char libc[16];
        struct mr_addr a = random_addr();
        size_t n = mr_addr_format_ip(&a, text, sizeof text), at;
        bool is_ours, is_libc;

        for (size_t changes = test_random_below(3); changes > 0 && n > 0; changes--)
            text[test_random_below(n)] = alphabet[test_random_below(sizeof alphabet - 1)];
        if (memchr(text, '%', n)) /* libc reads no zones */
            continue;
        is_ours = mr_addr_parse_ip(&a, text, n, &at) == MR_ADDR_OK;
        is_libc = inet_pton(AF_INET, text, libc) == 1 || inet_pton(AF_INET6, text, libc) == 1;
        accepted += is_ours;
        if (is_ours != is_libc)
            FAIL("\"%s\": ours %d, libc %d", text, is_ours, is_libc);
        if (!is_ours)
            CHECK_LE(at, n);
    }
    CHECK_GT(accepted, 1000);
}

TEST(a_small_buffer_gets_a_cut_text_that_ends)
{
    struct mr_addr a = {.family = 6, .port = 65535};
    char whole[MR_ADDR_TEXT_MAX];
    size_t n;

    memset(a.ip, 0xfe, 16);
    a.ip[1] = 0x80;
    a.scope_id = UINT32_MAX;
    n = mr_addr_format(&a, whole, sizeof whole);
    CHECK_LT(n, sizeof whole);
    CHECK_EQ(strlen(whole), n);
    for (size_t cap = 1; cap <= n; cap++) {
        char *cut = malloc(cap);

        CHECK_EQ(mr_addr_format(&a, cut, cap), cap - 1);
        CHECK_MEM(cut, cap - 1, whole, cap - 1);
        CHECK_EQ(cut[cap - 1], '\0');
        free(cut);
    }
    CHECK_EQ(mr_addr_format(&a, NULL, 0), 0u);
}

static struct mr_addr ip(const char *text)
{
    struct mr_addr a = {0};

    CHECK_EQ(mr_addr_parse_ip(&a, text, strlen(text), NULL), MR_ADDR_OK);
    return a;
}

TEST(a_net_is_the_address_for_v4_and_the_64_for_v6)
{
    static const char *const rows[][3] = {
        {"1.2.3.4", "1.2.3.4", "1.2.3.4"},
        {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", "2001:db8:1:2::"},
        {"fe80::1%3", "fe80::/64", "fe80::"},
        {"::1", "::/64", "::"}};
    char text[MR_NET_TEXT_MAX];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mr_addr a = ip(rows[i][0]), first = ip(rows[i][2]), net;

        a.port = 7;
        net = mr_addr_net(&a);
        CHECK(mr_addr_equal(&net, &first));
        CHECK_EQ(mr_addr_format_net(&a, text, sizeof text), strlen(rows[i][1]));
        CHECK_STR(text, rows[i][1]);
    }
}

TEST(a_mapped_address_becomes_v4_and_unused_bytes_become_zero)
{
    struct mr_addr a = {.ip = {[10] = 0xff, [11] = 0xff, [12] = 1, 2, 3, 4},
                        .scope_id = 5,
                        .port = 9,
                        .family = 6,
                        .zero = 1};
    struct mr_addr want = {.ip = {1, 2, 3, 4}, .port = 9, .family = 4}, again;
    struct mr_addr odd = {.ip = {1}, .port = 9, .family = 7};
    struct mr_addr none = {0};

    mr_addr_canonicalize(&a);
    CHECK(mr_addr_equal(&a, &want));
    again = a;
    mr_addr_canonicalize(&again);
    CHECK(mr_addr_equal(&again, &want));
    a = (struct mr_addr){.ip = {1, 2, 3, 4, 5}, .scope_id = 7, .port = 9, .family = 4};
    mr_addr_canonicalize(&a);
    CHECK(mr_addr_equal(&a, &want));
    a = ip("2001:db8::1");
    a.scope_id = 3; /* only link-local addresses have one */
    mr_addr_canonicalize(&a);
    CHECK_EQ(a.scope_id, 0u);
    mr_addr_canonicalize(&odd);
    CHECK(mr_addr_equal(&odd, &none));
}

TEST(the_same_ip_is_told_apart_from_the_same_address)
{
    struct mr_addr a = ip("1.2.3.4"), b = a, c = ip("::1.2.3.4"), d = ip("fe80::1%1"),
                   e = ip("fe80::1%2");

    b.port = 5;
    CHECK(mr_addr_same_ip(&a, &b));
    CHECK(!mr_addr_equal(&a, &b));
    CHECK(!mr_addr_same_ip(&a, &c));
    CHECK(!mr_addr_same_ip(&d, &e));
}

TEST(addresses_have_the_classes_of_the_registries_at_their_edges)
{
    static const struct {
        const char *text;
        unsigned class;
    } rows[] = {
        {"0.0.0.0", MR_ADDR_UNSPECIFIED},
        {"0.255.255.255", MR_ADDR_UNSPECIFIED},
        {"1.0.0.0", 0},
        {"9.255.255.255", 0},
        {"10.0.0.0", MR_ADDR_PRIVATE},
        {"10.255.255.255", MR_ADDR_PRIVATE},
        {"11.0.0.0", 0},
        {"100.63.255.255", 0},
        {"100.64.0.0", MR_ADDR_PRIVATE},
        {"100.127.255.255", MR_ADDR_PRIVATE},
        {"100.128.0.0", 0},
        {"126.255.255.255", 0},
        {"127.0.0.1", MR_ADDR_LOOPBACK},
        {"127.255.255.255", MR_ADDR_LOOPBACK},
        {"128.0.0.0", 0},
        {"169.253.255.255", 0},
        {"169.254.0.0", MR_ADDR_LINK_LOCAL},
        {"169.255.0.0", 0},
        {"172.15.255.255", 0},
        {"172.16.0.0", MR_ADDR_PRIVATE},
        {"172.31.255.255", MR_ADDR_PRIVATE},
        {"172.32.0.0", 0},
        {"192.167.255.255", 0},
        {"192.168.0.0", MR_ADDR_PRIVATE},
        {"192.169.0.0", 0},
        {"223.255.255.255", 0},
        {"224.0.0.0", MR_ADDR_MULTICAST},
        {"239.255.255.255", MR_ADDR_MULTICAST},
        {"240.0.0.0", MR_ADDR_BROADCAST},
        {"255.255.255.255", MR_ADDR_BROADCAST},
        {"::", MR_ADDR_UNSPECIFIED},
        {"::1", MR_ADDR_LOOPBACK},
        {"::2", 0},
        {"1::1", 0},
        {"fbff::1", 0},
        {"fc00::", MR_ADDR_PRIVATE},
        {"fdff::1", MR_ADDR_PRIVATE},
        {"fe00::1", 0},
        {"fe7f::1", 0},
        {"fe80::1", MR_ADDR_LINK_LOCAL},
        {"febf::1", MR_ADDR_LINK_LOCAL},
        {"fec0::1", 0},
        {"ff00::", MR_ADDR_MULTICAST},
        {"ffff::", MR_ADDR_MULTICAST},
        {"2001:db8::1", 0},
        {"::ffff:127.0.0.1", MR_ADDR_LOOPBACK},
    };
    struct mr_addr mapped = {.ip = {[10] = 0xff, [11] = 0xff, [12] = 10}, .family = 6}, none = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mr_addr a = ip(rows[i].text);

        if (mr_addr_classify(&a) != rows[i].class)
            FAIL("%s: %x", rows[i].text, mr_addr_classify(&a));
    }
    CHECK_EQ(mr_addr_classify(&mapped), MR_ADDR_PRIVATE); /* before it is canonical, too */
    CHECK_EQ(mr_addr_classify(&none), 0u);
}

TEST(every_error_has_a_text_and_no_address_prints_as_none)
{
    struct mr_addr none = {0}, mapped = {.ip = {[10] = 0xff, [11] = 0xff, 1, 2, 3, 4}, .family = 6};
    char text[MR_ADDR_TEXT_MAX];

    for (int e = MR_ADDR_OK; e <= MR_ADDR_TRAILING; e++)
        CHECK_GT(strlen(mr_addr_error_text((enum mr_addr_error)e)), 3u);
    CHECK_STR(mr_addr_error_text((enum mr_addr_error)99), "?");
    mr_addr_format(&none, text, sizeof text);
    CHECK_STR(text, "none");
    mr_addr_format(&mapped, text, sizeof text);
    CHECK_STR(text, "[::ffff:1.2.3.4]:0");
}

TEST_MAIN(TEST_CASE(an_ip_is_read_strictly_and_errors_have_position_and_reason),
          TEST_CASE(an_ip_with_a_port_is_read_strictly_and_errors_have_position_and_reason),
          TEST_CASE(a_nul_or_any_odd_byte_inside_is_an_error_and_no_position_is_needed),
          TEST_CASE(what_is_written_is_read_back_as_the_same_address_and_libc_agrees),
          TEST_CASE(random_text_is_accepted_exactly_when_libc_accepts_it),
          TEST_CASE(a_small_buffer_gets_a_cut_text_that_ends),
          TEST_CASE(a_net_is_the_address_for_v4_and_the_64_for_v6),
          TEST_CASE(a_mapped_address_becomes_v4_and_unused_bytes_become_zero),
          TEST_CASE(the_same_ip_is_told_apart_from_the_same_address),
          TEST_CASE(addresses_have_the_classes_of_the_registries_at_their_edges),
          TEST_CASE(every_error_has_a_text_and_no_address_prints_as_none))
