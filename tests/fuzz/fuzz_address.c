/* SPDX-License-Identifier: MIT */
/*
 * Both address parsers on any bytes: a failure names a position inside the text, a
 * success is canonical and reads back from what is written of it.
 */
#include "core/address.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

typedef enum mr_addr_error (*parser)(struct mr_addr *, const char *, size_t, size_t *);
typedef size_t (*formatter)(const struct mr_addr *, char *, size_t);

static void check(parser parse, formatter format, const char *text, size_t n)
{
    char again[MR_ADDR_TEXT_MAX];
    struct mr_addr a = {0}, b = {0};
    size_t at = 0;

    if (parse(&a, text, n, &at)) {
        require(at <= n);
        return;
    }
    b = a;
    mr_addr_canonicalize(&b);
    require(mr_addr_equal(&a, &b));
    n = format(&a, again, sizeof again);
    require(n < sizeof again - 1);
    require(parse(&b, again, n, NULL) == MR_ADDR_OK);
    require(mr_addr_equal(&a, &b));
    mr_addr_classify(&a);
    require(mr_addr_format_net(&a, again, MR_NET_TEXT_MAX) < MR_NET_TEXT_MAX - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(mr_addr_parse, mr_addr_format, (const char *)data, size);
    check(mr_addr_parse_ip, mr_addr_format_ip, (const char *)data, size);
    return 0;
}
