/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a ticket. "s" and two lines are a header and claims, which are signed here so
 * that what lies behind the signature is reached; anything else is a token as it is. Nothing
 * may raise, and what is no ticket has one of the four codes.
 */
#include "script/generation.h"
#include "script/json.h"
#include "script/module_part.h"

#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { TOKEN_MAX = 32768 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const char *token;
    size_t n;
    struct policy *policy;
};

static double wall_s(void *user)
{
    (void)user;
    return 1700000000;
}

static size_t encode(char *out, const void *data, size_t n)
{
    size_t cap = sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);

    sodium_bin2base64(out, cap, data, n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    return cap - 1;
}

static size_t make_token(char out[TOKEN_MAX], const char *text, size_t size)
{
    const char *lf = memchr(text, '\n', size);
    unsigned char mac[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256_state st;
    size_t n;

    if (!lf || size > TOKEN_MAX / 2) {
        return 0;
    }
    n = encode(out, text, (size_t)(lf - text));
    out[n++] = '.';
    n += encode(out + n, lf + 1, size - (size_t)(lf + 1 - text));
    crypto_auth_hmacsha256_init(&st, (const unsigned char *)"key", 3);
    crypto_auth_hmacsha256_update(&st, (const unsigned char *)out, n);
    crypto_auth_hmacsha256_final(&st, mac);
    out[n++] = '.';
    return n + encode(out + n, mac, sizeof mac);
}

static int check(lua_State *L)
{
    static const char *const codes[] = {"missing", "malformed", "signature", "expired"};
    const struct input *in = lua_touserdata(L, 1);
    bool is_known = false;

    mr__json_open(L);
    lua_newtable(L);
    mr__module_open_crypto(L, in->policy);
    lua_getfield(L, -1, "crypto");
    lua_getfield(L, -1, "jwt");
    lua_pushlstring(L, in->token, in->n);
    lua_newtable(L);
    lua_pushliteral(L, "key");
    lua_setfield(L, -2, "hs256");
    lua_call(L, 2, 3);
    if (lua_istable(L, -3)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        is_known = is_known || (lua_isstring(L, -1) && strcmp(lua_tostring(L, -1), codes[i]) == 0);
    }
    if (!lua_isnil(L, -3) || !lua_isstring(L, -2) || !is_known) {
        abort();
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char token[TOKEN_MAX];
    struct generation generation = {.opts = {.wall_s = wall_s}};
    struct policy policy = {.generation = &generation};
    struct input in = {(const char *)data, size, &policy};
    struct script_failure failure;
    struct script_state st;

    if (sodium_init() < 0 || mr__state_init(&st, 64u << 20) != 0) {
        return 0;
    }
    if (size > 0 && data[0] == 's') {
        in.token = token;
        in.n = make_token(token, (const char *)data + 1, size - 1);
    }
    if (size > 0 && mr__state_enter(&st, check, &in, &failure) != 0) {
        abort();
    }
    mr__state_deinit(&st);
    return 0;
}
