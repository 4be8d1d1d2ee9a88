/* SPDX-License-Identifier: MIT */
/*
 * See digest.h. Any thread. Hashing needs no sodium_init(): that is for random numbers
 * and for choosing faster code, and this code is as good.
 */
#include "script/digest.h"

#include <sodium.h>

void mr__digest_hex(const char *text, size_t n, char out[65])
{
    unsigned char hash[crypto_hash_sha256_BYTES];

    crypto_hash_sha256(hash, (const unsigned char *)text, n);
    sodium_bin2hex(out, 65, hash, sizeof hash);
}
