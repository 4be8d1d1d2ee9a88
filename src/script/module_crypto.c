/* SPDX-License-Identifier: MIT */
/*
 * relay.crypto, by libsodium. Control thread only. Start reading at on_jwt().
 *
 * Every text is bounded (1 MiB takes libsodium 2 to 5 ms), so that no call can run far
 * past the budget. Keys and results are bytes; nothing of them is in a message.
 */
#include "script/argument.h"
#include "script/generation.h"
#include "script/json.h"
#include "script/module_part.h"
#include "script/state.h"

#include <math.h>
#include <sodium.h>
#include <string.h>

enum {
    DATA_BYTES_MAX = 1 << 20,
    LARGE_BYTES = 4096, /* from here on the clock is looked at afterwards */
    RANDOM_BYTES_MAX = 1024,
    TOKEN_BYTES_MAX = 8192,
    HS256_KEY_BYTES_MAX = 4096,
    ED25519_KEY_BYTES = 32, /* crypto_sign_PUBLICKEYBYTES */
};

static struct str check_data(lua_State *L, int index, const char *function, const char *name)
{
    return mr__argument_bounded(L, index, function, name, DATA_BYTES_MAX);
}

static void charge_for(lua_State *L, size_t bytes)
{
    if (bytes >= LARGE_BYTES) {
        mr__state_charge(L);
    }
}

static void hmac_sha256(unsigned char out[crypto_auth_hmacsha256_BYTES], struct str key,
                        struct str data)
{
    crypto_auth_hmacsha256_state st;

    crypto_auth_hmacsha256_init(&st, (const unsigned char *)key.s, key.n);
    crypto_auth_hmacsha256_update(&st, (const unsigned char *)data.s, data.n);
    crypto_auth_hmacsha256_final(&st, out);
    sodium_memzero(&st, sizeof st);
}

static int on_hmac_sha256(lua_State *L)
{
    struct str key = check_data(L, 1, "relay.crypto.hmac_sha256", "key");
    struct str data = check_data(L, 2, "relay.crypto.hmac_sha256", "data");
    unsigned char mac[crypto_auth_hmacsha256_BYTES];

    hmac_sha256(mac, key, data);
    lua_pushlstring(L, (const char *)mac, sizeof mac);
    charge_for(L, key.n + data.n);
    return 1;
}

static int on_sha256(lua_State *L)
{
    struct str data = check_data(L, 1, "relay.crypto.sha256", "data");
    unsigned char hash[crypto_hash_sha256_BYTES];

    crypto_hash_sha256(hash, (const unsigned char *)data.s, data.n);
    lua_pushlstring(L, (const char *)hash, sizeof hash);
    charge_for(L, data.n);
    return 1;
}

static int on_hex(lua_State *L)
{
    struct str data = check_data(L, 1, "relay.crypto.hex", "data");
    char *text = lua_newuserdata(L, data.n * 2 + 1);

    sodium_bin2hex(text, data.n * 2 + 1, (const unsigned char *)data.s, data.n);
    lua_pushlstring(L, text, data.n * 2);
    charge_for(L, data.n);
    return 1;
}

static int on_base64url(lua_State *L)
{
    struct str data = check_data(L, 1, "relay.crypto.base64url", "data");
    size_t cap = sodium_base64_ENCODED_LEN(data.n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    char *text = lua_newuserdata(L, cap);

    sodium_bin2base64(text, cap, (const unsigned char *)data.s, data.n,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    lua_pushlstring(L, text, cap - 1);
    charge_for(L, data.n);
    return 1;
}

/* In a time that depends on the lengths only. */
static int on_equal(lua_State *L)
{
    struct str a = check_data(L, 1, "relay.crypto.equal", "a");
    struct str b = check_data(L, 2, "relay.crypto.equal", "b");

    lua_pushboolean(L, a.n == b.n && sodium_memcmp(a.s, b.s, a.n) == 0);
    charge_for(L, a.n + b.n);
    return 1;
}

static int on_random(lua_State *L)
{
    double n = mr__argument_number(L, 1, "relay.crypto.random", "n", 1, RANDOM_BYTES_MAX,
                                   "1 to 1024 bytes are expected");
    unsigned char bytes[RANDOM_BYTES_MAX];

    randombytes_buf(bytes, (size_t)n);
    lua_pushlstring(L, (const char *)bytes, (size_t)n);
    sodium_memzero(bytes, sizeof bytes);
    return 1;
}

/* 1 to n. Drawn again while above n among as many bits as n has, so that none comes more often. */
static int on_random_int(lua_State *L)
{
    double n = mr__argument_number(L, 1, "relay.crypto.random_int", "n", 1, 9007199254740992.0,
                                   "a whole number from 1 to 2^53 is expected");
    uint64_t count = (uint64_t)n, mask = count - 1, drawn;

    if (n != floor(n)) {
        return mr__argument_error(L, "relay.crypto.random_int", "n", 1,
                                  "a whole number from 1 to 2^53 is expected");
    }
    for (unsigned shift = 1; shift < 64; shift *= 2) {
        mask |= mask >> shift;
    }
    do {
        randombytes_buf(&drawn, sizeof drawn);
        drawn &= mask;
    } while (drawn >= count);
    lua_pushnumber(L, (double)(drawn + 1));
    return 1;
}

/* ---- jwt -------------------------------------------------------------------------------------
 * The key's type fixes the algorithm; the header must agree, and decides nothing. */

struct key {
    const char *alg; /* "HS256" or "EdDSA" */
    struct str hs256;
    unsigned char eddsa[ED25519_KEY_BYTES];
};

/* A public key: its 32 bytes, 64 hex digits or base64url, told apart by their lengths. */
static bool read_public_key(struct str text, unsigned char out[ED25519_KEY_BYTES])
{
    size_t n = 0;
    const char *end = NULL;

    if (text.n == ED25519_KEY_BYTES) {
        memcpy(out, text.s, text.n);
        return true;
    }
    if (text.n == ED25519_KEY_BYTES * 2) {
        return sodium_hex2bin(out, ED25519_KEY_BYTES, text.s, text.n, NULL, &n, &end) == 0 &&
               n == ED25519_KEY_BYTES && end == text.s + text.n;
    }
    return text.n == 43 &&
           sodium_base642bin(out, ED25519_KEY_BYTES, text.s, text.n, NULL, &n, &end,
                             sodium_base64_VARIANT_URLSAFE_NO_PADDING) == 0 &&
           n == ED25519_KEY_BYTES && end == text.s + text.n;
}

static void check_key(lua_State *L, struct key *key)
{
    static const char *const names[] = {"hs256", "eddsa", NULL};
    bool has_hs256, has_eddsa;

    mr__argument_options(L, 2, "relay.crypto.jwt", names);
    mr__argument_field(L, 2, "hs256");
    mr__argument_field(L, 2, "eddsa");
    has_hs256 = !lua_isnil(L, -2);
    has_eddsa = !lua_isnil(L, -1);
    if (has_hs256 == has_eddsa) {
        luaL_error(L, "relay.crypto.jwt: exactly one key is expected, { hs256 = key } or "
                      "{ eddsa = public key }");
    }
    if (has_hs256) {
        key->alg = "HS256";
        key->hs256 = mr__argument_text(L, -2, "relay.crypto.jwt", "hs256");
        if (key->hs256.n < 1 || key->hs256.n > HS256_KEY_BYTES_MAX) {
            luaL_error(L, "relay.crypto.jwt: hs256 is %d bytes (1 to 4096 are expected)",
                       (int)key->hs256.n);
        }
    } else {
        key->alg = "EdDSA";
        if (!read_public_key(mr__argument_text(L, -1, "relay.crypto.jwt", "eddsa"), key->eddsa)) {
            luaL_error(L, "relay.crypto.jwt: eddsa is no public key (32 bytes, or they as hex or "
                          "base64url, are expected)");
        }
    }
}

/* header.payload.signature; each part decoded. */
struct token {
    struct str text;
    size_t n_signed, n_header, n_payload, n_signature; /* bytes */
    unsigned char header[TOKEN_BYTES_MAX], payload[TOKEN_BYTES_MAX], signature[TOKEN_BYTES_MAX];
};

static bool decode_part(struct str part, unsigned char out[TOKEN_BYTES_MAX], size_t *n)
{
    const char *end = NULL;

    return part.n > 0 &&
           sodium_base642bin(out, TOKEN_BYTES_MAX, part.s, part.n, NULL, n, &end,
                             sodium_base64_VARIANT_URLSAFE_NO_PADDING) == 0 &&
           end == part.s + part.n;
}

static bool split_token(struct token *t)
{
    const char *first = memchr(t->text.s, '.', t->text.n), *end = t->text.s + t->text.n;
    const char *second = first ? memchr(first + 1, '.', (size_t)(end - first - 1)) : NULL;

    if (!second) {
        return false;
    }
    t->n_signed = (size_t)(second - t->text.s);
    return decode_part((struct str){t->text.s, (size_t)(first - t->text.s)}, t->header,
                       &t->n_header) &&
           decode_part((struct str){first + 1, (size_t)(second - first - 1)}, t->payload,
                       &t->n_payload) &&
           decode_part((struct str){second + 1, (size_t)(end - second - 1)}, t->signature,
                       &t->n_signature);
}

static bool is_signed(const struct token *t, const struct key *key)
{
    unsigned char mac[crypto_auth_hmacsha256_BYTES];

    if (key->hs256.s) {
        hmac_sha256(mac, key->hs256, (struct str){t->text.s, t->n_signed});
        return t->n_signature == sizeof mac && sodium_memcmp(mac, t->signature, sizeof mac) == 0;
    }
    return t->n_signature == crypto_sign_BYTES &&
           crypto_sign_verify_detached(t->signature, (const unsigned char *)t->text.s, t->n_signed,
                                       key->eddsa) == 0;
}

/* Pushes the object that a part of the token is, or nothing. */
static bool push_object(lua_State *L, const unsigned char *text, size_t n)
{
    char why[MR_JSON_WHY_MAX];

    if (mr__json_decode(L, (const char *)text, n, why) != 0) {
        return false;
    }
    /* A list is a table as well. */
    while (n > 0 && strchr(" \t\r\n", *text)) {
        text++;
        n--;
    }
    if (n > 0 && *text == '{') {
        return true;
    }
    lua_pop(L, 1);
    return false;
}

/* The header is at the top; pops it. NULL, or what is wrong with it. */
static const char *check_header(lua_State *L, const struct key *key)
{
    const char *why = NULL;

    mr__argument_field(L, lua_gettop(L), "alg");
    if (lua_type(L, -1) != LUA_TSTRING) {
        why = "the token names no algorithm";
    } else if (lua_objlen(L, -1) != 5 || strcmp(lua_tostring(L, -1), key->alg) != 0) {
        why = "the token is signed by another algorithm than the key's";
    }
    lua_pop(L, 1);
    /* Extensions that must be understood; we know none (RFC 7515, 4.1.11). */
    mr__argument_field(L, lua_gettop(L), "crit");
    if (!why && !lua_isnil(L, -1)) {
        why = "the token wants extensions";
    }
    lua_pop(L, 2);
    return why;
}

/* The claims are at the top. False with what is wrong; a time that is no number is malformed. */
static bool check_times(lua_State *L, double now, const char **message, const char **code)
{
    static const char *const names[] = {"exp", "nbf"};
    int claims = lua_gettop(L);

    for (size_t i = 0; i < 2; i++) {
        mr__argument_field(L, claims, names[i]);
        if (lua_isnil(L, -1)) {
            lua_pop(L, 1);
            continue;
        }
        double at = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : (double)NAN;
        lua_pop(L, 1);
        *code = isnan(at) ? "malformed" : "expired";
        *message = isnan(at) ? "the token's times are no numbers"
                   : i == 0  ? "the token has expired"
                             : "the token is not valid yet";
        if (isnan(at) || (i == 0 ? now >= at : now < at)) {
            return false;
        }
    }
    return true;
}

/*
 * Never raises for what a player sent. The signature is checked before the claims are looked
 * at, and the header before that, since what names another algorithm is not ours to verify.
 */
static int on_jwt(lua_State *L)
{
    const struct generation_options *o = &mr__module_policy(L)->generation->opts;
    const char *message, *code;
    struct key key = {0};
    struct token t;

    lua_settop(L, 2);
    check_key(L, &key);
    if (lua_type(L, 1) != LUA_TSTRING || lua_objlen(L, 1) == 0) {
        return mr__module_fail(L, "there is no token", "missing");
    }
    t.text.s = lua_tolstring(L, 1, &t.text.n);
    if (t.text.n > TOKEN_BYTES_MAX) {
        return mr__module_fail(L, "the token is longer than 8 KiB", "malformed");
    }
    if (!split_token(&t) || !push_object(L, t.header, t.n_header)) {
        return mr__module_fail(L, "the token is no header.payload.signature of JSON", "malformed");
    }
    message = check_header(L, &key);
    if (message || !is_signed(&t, &key)) {
        return mr__module_fail(L, message ? message : "the token's signature is wrong",
                               "signature");
    }
    if (!push_object(L, t.payload, t.n_payload)) {
        return mr__module_fail(L, "the token's claims are no JSON object", "malformed");
    }
    if (!check_times(L, o->wall_s(o->user), &message, &code)) {
        return mr__module_fail(L, message, code);
    }
    return 1;
}

void mr__module_open_crypto(lua_State *L, struct policy *p)
{
    static const luaL_Reg crypto_functions[] = {
        {"hmac_sha256", on_hmac_sha256}, {"sha256", on_sha256}, {"hex", on_hex},
        {"base64url", on_base64url},     {"equal", on_equal},   {"random", on_random},
        {"random_int", on_random_int},   {"jwt", on_jwt},       {NULL, NULL}};

    if (sodium_init() < 0) {
        luaL_error(L, "relay.crypto: the system has no source of randomness");
    }
    lua_newtable(L);
    mr__module_add(L, crypto_functions, p);
    mr__module_seal(L, "relay.crypto");
    lua_setfield(L, -2, "crypto");
}
