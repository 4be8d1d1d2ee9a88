/* SPDX-License-Identifier: MIT */
/*
 * Socket addresses in one canonical form: an IPv4 peer is family 4 whatever
 * socket it came through, so one peer is one key, one log word and one ACL match.
 * Pure; any thread. Public: installed with moonrelay.h.
 */
#ifndef MR_CORE_ADDRESS_H
#define MR_CORE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* part of the shared library's interface */
#endif

/* 24 bytes without padding, so it can be compared and hashed as it lies in memory.
 * All bytes that a family does not use are zero. */
struct mr_addr {
    uint8_t ip[16];    /* network order; IPv4 in the first four */
    uint32_t scope_id; /* interface index of a link-local IPv6 address, else 0 */
    uint16_t port;     /* host order */
    uint8_t family;    /* 0 = none, 4, 6 */
    uint8_t zero;
};

/* "[" + 45 + "%" + 10 + "]:" + 5 and the NUL, rounded up. */
enum { MR_ADDR_TEXT_MAX = 72, MR_NET_TEXT_MAX = 56 };

enum mr_addr_error {
    MR_ADDR_OK,
    MR_ADDR_EMPTY,
    MR_ADDR_NOT_AN_IP, /* neither dotted quad nor IPv6 */
    MR_ADDR_OCTET,     /* an octet above 255 or with a leading zero */
    MR_ADDR_BRACKET,   /* IPv6 with a port needs [..], a bracket is unbalanced */
    MR_ADDR_ZONE,      /* %zone is empty, unknown in form, or on a non-IPv6 address */
    MR_ADDR_PORT,      /* no port where one is required, or not 0..65535 */
    MR_ADDR_TRAILING,  /* something follows the address */
};

/* Bits of mr_addr_classify(). An address may have several. */
enum mr_addr_class {
    MR_ADDR_UNSPECIFIED = 1 << 0, /* 0.0.0.0/8, :: */
    MR_ADDR_LOOPBACK = 1 << 1,    /* 127/8, ::1 */
    MR_ADDR_PRIVATE = 1 << 2,     /* RFC 1918, RFC 6598 (100.64/10), fc00::/7 */
    MR_ADDR_LINK_LOCAL = 1 << 3,  /* 169.254/16, fe80::/10 */
    MR_ADDR_MULTICAST = 1 << 4,   /* 224/4, ff00::/8 */
    MR_ADDR_BROADCAST = 1 << 5,   /* 255.255.255.255 (and 240/4, reserved) */
};

/* Parses exactly n bytes: a strict dotted quad (four decimal octets without
 * leading zeros) or IPv6 (RFC 4291 text, embedded IPv4, %zone as a number).
 * No port, no brackets, no spaces. *out is canonical (::ffff:1.2.3.4 becomes
 * IPv4), its port 0. On failure *at (may be NULL) is the offset of the first
 * byte that is wrong and *out is untouched. */
enum mr_addr_error mr_addr_parse_ip(struct mr_addr *out, const char *text, size_t n, size_t *at);

/* Parses "1.2.3.4:5", "[2001:db8::1]:5". */
enum mr_addr_error mr_addr_parse(struct mr_addr *out, const char *text, size_t n, size_t *at);

/* "an octet is over 255 or has a leading zero", ... Static text. */
const char *mr_addr_error_text(enum mr_addr_error e);

/* Write the text and its NUL; return its length. cap >= MR_ADDR_TEXT_MAX always
 * suffices; a smaller buffer gets a cut text that still ends in NUL.
 * IPv6 is written as RFC 5952 says. */
size_t mr_addr_format(const struct mr_addr *a, char *buf, size_t cap);    /* ip:port, [ip]:port */
size_t mr_addr_format_ip(const struct mr_addr *a, char *buf, size_t cap); /* ip alone */
/* The net as text: "192.0.2.1", "2001:db8:1:2::/64". */
size_t mr_addr_format_net(const struct mr_addr *a, char *buf, size_t cap);

/* Turns ::ffff:0:0/96 into family 4. Idempotent. */
void mr_addr_canonicalize(struct mr_addr *a);

/* What one customer usually holds, port 0: the address for IPv4, the first of its /64 for IPv6. */
struct mr_addr mr_addr_net(const struct mr_addr *a);

bool mr_addr_equal(const struct mr_addr *a, const struct mr_addr *b);
bool mr_addr_same_ip(const struct mr_addr *a, const struct mr_addr *b);

/* Bits of enum mr_addr_class. */
unsigned mr_addr_classify(const struct mr_addr *a);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
