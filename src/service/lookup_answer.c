/* SPDX-License-Identifier: MIT */
/* See lookup_answer.h. Start reading at mr__lookup_answer_take(). */
#include "service/lookup_answer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool mr__lookup_literal(const char *host, size_t n, int family, struct mr_addr *out)
{
    struct mr_addr a = {.family = 0};

    if (mr_addr_parse_ip(&a, host, n, NULL) != MR_ADDR_OK) {
        return false;
    }
    if (family != 0 && a.family != family) {
        return false;
    }
    *out = a;
    return true;
}

void mr__lookup_answer_set(struct lookup_answer *a, const struct mr_addr *addr)
{
    struct mr_addr out = {.family = addr->family, .scope_id = addr->scope_id};

    memcpy(out.ip, addr->ip, addr->family == 4 ? 4 : sizeof out.ip);
    mr_addr_canonicalize(&out);
    if (!(mr_addr_classify(&out) & (MR_ADDR_LINK_LOCAL | MR_ADDR_MULTICAST)) || out.family == 4) {
        out.scope_id = 0;
    }
    a->answer = (struct mr_lookup_answer){.addr = out};
}

void mr__lookup_answer_fail(struct lookup_answer *a, int rc, const char *code, const char *format,
                            ...)
{
    va_list args;

    snprintf(a->code, sizeof a->code, "%s", code);
    va_start(args, format);
    vsnprintf(a->message, sizeof a->message, format, args);
    va_end(args);
    /* One line, whatever the host is that it names. */
    for (char *c = a->message; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c;
    }
    a->answer = (struct mr_lookup_answer){.rc = rc, .code = a->code, .message = a->message};
}

void mr__lookup_show_host(char out[MR_LOOKUP_SHOWN_MAX], const char *host, size_t n)
{
    size_t len = n < MR_LOOKUP_SHOWN_MAX - 1 ? n : MR_LOOKUP_SHOWN_MAX - 1;

    for (size_t i = 0; i < len; i++) {
        out[i] = (char)(host[i] < 0x20 || host[i] > 0x7e ? '?' : host[i]);
    }
    out[len] = '\0';
}

void mr__lookup_answer_refuse(struct lookup_answer *a, const char *code, const char *text,
                              size_t text_n, const char *host, size_t n)
{
    char said[MR_LOOKUP_TEXT_MAX + 1], shown[MR_LOOKUP_SHOWN_MAX];
    size_t len = text_n < MR_LOOKUP_TEXT_MAX ? text_n : MR_LOOKUP_TEXT_MAX;
    bool is_named;

    mr__lookup_show_host(shown, host, n);
    snprintf(said, sizeof said, "%.*s", (int)len, len > 0 ? text : "");
    is_named = strstr(said, shown) != NULL;
    mr__lookup_answer_fail(a, -ENOENT, code[0] != '\0' ? code : "refused", "%s%s%s",
                           is_named ? "" : shown, is_named ? "" : ": ", said);
}

static void fail_by_family(struct lookup_answer *a, const char *host, size_t n,
                           const struct mr_addr *found, int family)
{
    char text[MR_ADDR_TEXT_MAX];
    size_t m = mr_addr_format_ip(found, text, sizeof text);
    bool is_itself = m == n && memcmp(host, text, n) == 0;

    mr__lookup_answer_fail(a, -EAFNOSUPPORT, "family",
                           "%.*s%s%s is an IPv%d address and IPv%d is asked for", (int)n, host,
                           is_itself ? "" : ": ", is_itself ? "" : text, found->family, family);
}

void mr__lookup_answer_take(struct lookup_answer *a, const struct mr_lookup_answer *from,
                            const char *host, size_t n, int family)
{
    if (from->rc != 0) {
        mr__lookup_answer_fail(a, from->rc < 0 ? from->rc : -EIO,
                               from->code ? from->code : "failed", "%s",
                               from->message ? from->message : "failed");
        return;
    }
    if (from->addr.family != 4 && from->addr.family != 6) {
        mr__lookup_answer_fail(a, -EAFNOSUPPORT, "family",
                               "%.*s: the answer is no address, IPv%s is asked for", (int)n, host,
                               family == 4   ? "4"
                               : family == 6 ? "6"
                                             : "4 or IPv6");
        return;
    }
    mr__lookup_answer_set(a, &from->addr);
    if (family != 0 && a->answer.addr.family != family) {
        struct mr_addr found = a->answer.addr;

        fail_by_family(a, host, n, &found, family);
    }
}
