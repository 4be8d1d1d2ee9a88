/* SPDX-License-Identifier: MIT */
/*
 * What is blocked, as people write it: an address, a net, a socket or tags. Pure; control
 * thread.
 */
#include "service/blocks.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_MAX = 64 };

static void say_wrong(char why[MR_CIDR_WHY_MAX], const char *what, const char *text, size_t n)
{
    char shown[SHOWN_MAX + 1];
    size_t kept = n < SHOWN_MAX ? n : SHOWN_MAX;

    for (size_t i = 0; i < kept; i++) {
        shown[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    }
    shown[kept] = '\0';
    snprintf(why, MR_CIDR_WHY_MAX, "%s: %s", what, shown);
}

/* One "key=value"; the key begins the text. */
static bool parse_tag(struct hook_pair *out, const char *text, size_t n)
{
    const char *equals = n > 0 ? memchr(text, '=', n) : NULL;

    if (!equals || equals == text) {
        return false;
    }
    out->key = (struct str){text, (size_t)(equals - text)};
    out->value = (struct str){equals + 1, n - out->key.n - 1};
    return out->key.n <= MR_KEY_MAX && out->value.n <= MR_VALUE_MAX;
}

static bool has_key(const struct hook_pair *pairs, size_t n, struct str key)
{
    for (size_t i = 0; i < n; i++) {
        if (pairs[i].key.n == key.n && memcmp(pairs[i].key.s, key.s, key.n) == 0) {
            return true;
        }
    }
    return false;
}

static bool parse_tags(struct block_what *out, const char *text, size_t n,
                       struct hook_pair pairs[MR_TAGS_MAX], char why[MR_CIDR_WHY_MAX])
{
    size_t start = 0, count = 0;

    while (start <= n) {
        const char *comma = start < n ? memchr(text + start, ',', n - start) : NULL;
        size_t end = comma ? (size_t)(comma - text) : n;
        struct hook_pair tag;

        if (!parse_tag(&tag, text + start, end - start)) {
            say_wrong(why, "not a tag (key=value)", text + start, end - start);
            return false;
        }
        if (has_key(pairs, count, tag.key)) {
            say_wrong(why, "a tag is named twice", text + start, end - start);
            return false;
        }
        if (count == MR_TAGS_MAX) {
            snprintf(why, MR_CIDR_WHY_MAX, "more than %d tags", MR_TAGS_MAX);
            return false;
        }
        pairs[count++] = tag;
        start = end + 1;
    }
    *out = (struct block_what){.kind = MR_BLOCK_TAGS, .tags = {pairs, count}};
    return true;
}

bool mr__block_parse(struct block_what *out, const char *text, size_t n,
                     struct hook_pair pairs[MR_TAGS_MAX], char why[MR_CIDR_WHY_MAX])
{
    struct block_what what = {.kind = MR_BLOCK_NET};

    if (n > 0 && memchr(text, '=', n)) {
        return parse_tags(out, text, n, pairs, why);
    }
    if (mr__cidr_net((struct str){text, n}, &what.addr, &what.bits)) {
        if (mr__cidr_trim(&what.addr, what.bits)) {
            say_wrong(why, "not a network (bits are set behind its prefix)", text, n);
            return false;
        }
        *out = what;
        return true;
    }
    if (mr_addr_parse(&what.addr, text, n, NULL) == MR_ADDR_OK && what.addr.port != 0) {
        what.kind = MR_BLOCK_SOCKET;
        *out = what;
        return true;
    }
    say_wrong(why, "not an address, network, address:port or key=value", text, n);
    return false;
}

/* ---- back ------------------------------------------------------------------------------------ */

static size_t add(char *buf, size_t cap, size_t at, const char *text, size_t n)
{
    size_t room = at + 1 < cap ? cap - 1 - at : 0, kept = n < room ? n : room;

    if (kept > 0) {
        memcpy(buf + at, text, kept);
    }
    return at + kept;
}

static size_t format_tags(struct hook_map tags, char *buf, size_t cap)
{
    size_t at = 0;

    for (size_t i = 0; i < tags.n; i++) {
        at = add(buf, cap, at, ",", i > 0);
        at = add(buf, cap, at, tags.items[i].key.s, tags.items[i].key.n);
        at = add(buf, cap, at, "=", 1);
        at = add(buf, cap, at, tags.items[i].value.s, tags.items[i].value.n);
    }
    return at;
}

size_t mr__block_format(const struct block_what *what, char *buf, size_t cap)
{
    char text[MR_ADDR_TEXT_MAX + 8];
    size_t n;

    if (cap == 0) {
        return 0;
    }
    if (what->kind == MR_BLOCK_TAGS) {
        n = format_tags(what->tags, buf, cap);
    } else {
        size_t length = what->kind == MR_BLOCK_SOCKET
                            ? mr_addr_format(&what->addr, text, sizeof text)
                            : mr_addr_format_ip(&what->addr, text, sizeof text);
        if (what->kind == MR_BLOCK_NET && what->bits < (what->addr.family == 4 ? 32u : 128u)) {
            length += (size_t)snprintf(text + length, sizeof text - length, "/%u", what->bits);
        }
        n = add(buf, cap, 0, text, length);
    }
    buf[n] = '\0';
    return n;
}
