/* SPDX-License-Identifier: MIT */
/*
 * relay.crypto as policies call it, against published vectors and tokens made here. One
 * thread.
 */
#include "test.h"

#include "rig.h"

#include <sodium.h>

static struct rig rig;
static char text[65536];
static unsigned char public_key[crypto_sign_PUBLICKEYBYTES], secret_key[crypto_sign_SECRETKEYBYTES];

static double wall_s(void *user)
{
    (void)user;
    return 1700000000.5;
}

/* Runs Lua in a hook with the values of `defs` before it; its asserts are the checks. */
static void run(const char *defs, const char *body)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);

    snprintf(text, sizeof text,
             "local relay = require 'relay' local c = relay.crypto\n"
             "local function same(a, b) if a ~= b then error(tostring(a) .. ' ~= ' .. tostring(b), "
             "2) end end\n"
             "local function fails(part, f, ...) local ok, e = pcall(f, ...)\n"
             "  if ok or not e:find(part, 1, true) then error(tostring(e) .. ', not ' .. part, 2) "
             "end end\n"
             "%s\nreturn { create = function(ev)\n%s\nreturn {} end }",
             defs, body);
    rig.log_n = 0;
    rig.log_text[0] = '\0';
    REQUIRE_EQ(rig_load_policy(&rig, text), 0);
    CHECK_STR(rig_ask(&rig, &ev), "admit");
    if (rig.log_n > 0) {
        fprintf(stderr, "# %s\n", rig.log_text);
    }
}

static void begin(void)
{
    unsigned char seed[crypto_sign_SEEDBYTES] = {7};

    REQUIRE(sodium_init() >= 0);
    crypto_sign_seed_keypair(public_key, secret_key, seed);
    rig_start(&rig);
    rig.opts.wall_s = wall_s;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static size_t encode(char *out, const void *data, size_t n)
{
    size_t cap = sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);

    sodium_bin2base64(out, cap, data, n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    return cap - 1;
}

/* A token of this header and these claims, signed with the key "key" or our Ed25519 key. */
static const char *token(const char *header, const char *claims, bool is_eddsa)
{
    static char out[16][16384];
    static unsigned next;
    char *t = out[next++ % 16];
    unsigned char signature[crypto_sign_BYTES];
    size_t n = encode(t, header, strlen(header));

    t[n++] = '.';
    n += encode(t + n, claims, strlen(claims));
    if (is_eddsa) {
        crypto_sign_detached(signature, NULL, (unsigned char *)t, n, secret_key);
    } else {
        crypto_auth_hmacsha256_state st;

        crypto_auth_hmacsha256_init(&st, (const unsigned char *)"key", 3);
        crypto_auth_hmacsha256_update(&st, (unsigned char *)t, n);
        crypto_auth_hmacsha256_final(&st, signature);
    }
    t[n++] = '.';
    encode(t + n, signature, is_eddsa ? crypto_sign_BYTES : crypto_auth_hmacsha256_BYTES);
    return t;
}

#define HS256 "{\"alg\":\"HS256\",\"typ\":\"JWT\"}"

/* What jwt() says about a token: a code, or "ok". */
static void expect(const char *token_text, const char *key, const char *code)
{
    static char defs[20000];

    snprintf(defs, sizeof defs, "local token, key, code = '%s', %s, '%s'", token_text, key, code);
    run(defs, "local claims, message, got = c.jwt(token, key)\n"
              "if code == 'ok' then same(message, nil) same(type(claims), 'table') return {} end\n"
              "same(claims, nil) same(type(message), 'string') same(got, code)");
}

/* ---- digests and texts ----------------------------------------------------------------------- */

TEST(digests_and_texts_are_those_of_the_standards)
{
    begin();
    run("", "same(c.hex(c.sha256 'abc'), "
            "'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad')\n"
            "same(c.hex(c.sha256 ''), "
            "'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')\n"
            "same(c.hex(c.hmac_sha256('Jefe', 'what do ya want for nothing?')), "
            "'5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843')\n"
            "same(c.hex(c.hmac_sha256(('\\170'):rep(131), 'Test Using Larger Than Block-Size Key - "
            "Hash Key First')), "
            "'60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54')\n"
            "same(#c.sha256 'x', 32) same(c.hex '\\0\\255', '00ff') same(c.hex '', '')\n"
            "same(c.base64url '\\251\\255\\191', '-_-_') same(c.base64url 'a', 'YQ')\n"
            "same(c.base64url '', '') same(c.base64url 'foobar', 'Zm9vYmFy')\n"
            "same(c.equal('abc', 'abc'), true) same(c.equal('abc', 'abd'), false)\n"
            "same(c.equal('abc', 'ab'), false) same(c.equal('', ''), true)");
    rig_end(&rig);
}

TEST(random_numbers_are_within_their_range_and_reach_all_of_it)
{
    begin();
    run("",
        "local seen, n = {}, 0\n"
        "for _ = 1, 2000 do local i = c.random_int(5) assert(i >= 1 and i <= 5 and i % 1 == 0)\n"
        "  if not seen[i] then seen[i] = true n = n + 1 end end\n"
        "same(n, 5) same(c.random_int(1), 1)\n"
        "for _ = 1, 100 do local i = c.random_int(2 ^ 53) assert(i >= 1 and i <= 2 ^ 53) end\n"
        "local big = 0 for _ = 1, 200 do big = math.max(big, c.random_int(2 ^ 53)) end\n"
        "assert(big > 2 ^ 45)\n"
        "same(#c.random(1), 1) same(#c.random(1024), 1024) assert(c.random(16) ~= c.random(16))");
    rig_end(&rig);
}

TEST(misuse_raises_and_names_the_argument)
{
    begin();
    run("",
        "fails('relay.crypto.hmac_sha256: key is nil', c.hmac_sha256)\n"
        "fails('relay.crypto.hmac_sha256: data is 5 (a text is expected)', c.hmac_sha256, 'k', 5)\n"
        "fails('relay.crypto.sha256: data is a table', c.sha256, {})\n"
        "fails('at most 1048576 bytes', c.hex, ('x'):rep(2 ^ 20) .. 'x')\n"
        "fails('relay.crypto.equal: b is nil', c.equal, 'a')\n"
        "fails('1 to 1024 bytes', c.random, 0) fails('1 to 1024 bytes', c.random, 1025)\n"
        "fails('1 to 1024 bytes', c.random, 0 / 0)\n"
        "fails('a whole number from 1 to 2^53', c.random_int, 0)\n"
        "fails('a whole number', c.random_int, 1.5) fails('a whole number', c.random_int, 2 ^ "
        "54)\n"
        "fails('a whole number', c.random_int, '5')\n"
        "fails('exactly one key', c.jwt, 'x', {})\n"
        "fails('exactly one key', c.jwt, nil, { hs256 = 'k', eddsa = ('k'):rep(32) })\n"
        "fails('unknown key', c.jwt, 'x', { hs512 = 'k' })\n"
        "fails('did you mean hs256', c.jwt, 'x', { hs265 = 'k' })\n"
        "fails('a table is expected', c.jwt, 'x', 'key')\n"
        "fails('hs256 is 0 bytes', c.jwt, 'x', { hs256 = '' })\n"
        "fails('hs256 is 5', c.jwt, 'x', { hs256 = 5 })\n"
        "fails('eddsa is no public key', c.jwt, 'x', { eddsa = 'short' })\n"
        "fails('eddsa is no public key', c.jwt, 'x', { eddsa = ('g'):rep(64) })\n"
        "fails('did you mean sha256', function() return c.sha265 end)");
    rig_end(&rig);
}

/* ---- jwt ------------------------------------------------------------------------------------- */

TEST(a_ticket_gives_its_claims)
{
    char defs[2048];

    begin();
    snprintf(defs, sizeof defs, "local token = '%s'",
             token(HS256,
                   "{\"sub\":\"alice\",\"exp\":1700000001,\"nbf\":1700000000,\"n\":[1],"
                   "\"none\":null}",
                   false));
    run(defs, "local claims = c.jwt(token, { hs256 = 'key' })\n"
              "same(claims.sub, 'alice') same(claims.n[1], 1) same(claims.none, nil)");
    /* RFC 7515, A.1: a token of somebody else's making. */
    expect("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQ"
           "ogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWF"
           "OEjXk",
           "{ hs256 = "
           "'\\003\\035\\053\\075\\043\\015\\165\\188\\131\\126\\006\\101\\119\\123\\166\\143\\090"
           "\\179\\040\\230"
           "\\240\\084\\201\\040\\169\\015\\132\\178\\210\\080\\046\\191\\211\\251\\090\\146\\210\\"
           "006\\071\\239"
           "\\150\\138\\180\\195\\119\\098\\061\\034\\061\\046\\033\\114\\005\\046\\079\\008\\192\\"
           "205\\154\\245\\103\\208\\128\\163' }",
           "expired");
    rig_end(&rig);
}

TEST(an_ed25519_ticket_is_verified_with_the_key_in_any_of_its_forms)
{
    char hex[65], base64[64], defs[512];
    const char *good;

    begin();
    good = token("{\"alg\":\"EdDSA\"}", "{\"sub\":\"a\"}", true);
    sodium_bin2hex(hex, sizeof hex, public_key, sizeof public_key);
    encode(base64, public_key, sizeof public_key);
    snprintf(defs, sizeof defs, "{ eddsa = '%s' }", hex);
    expect(good, defs, "ok");
    snprintf(defs, sizeof defs, "{ eddsa = '%s' }", base64);
    expect(good, defs, "ok");
    snprintf(defs, sizeof defs,
             "{ eddsa = (('%s'):gsub('..', function(h) return string.char(tonumber(h, 16)) end)) }",
             hex);
    expect(good, defs, "ok");
    expect(good, "{ eddsa = ('00'):rep(32) }", "signature");
    /* RFC 8037, A.4: signed as it says, but its payload is no JSON. */
    expect(
        "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09P"
        "GcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
        "{ eddsa = '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo' }", "malformed");
    rig_end(&rig);
}

TEST(the_keys_type_fixes_the_algorithm)
{
    char as_secret[256], hex[65];

    begin();
    sodium_bin2hex(hex, sizeof hex, public_key, sizeof public_key);
    expect(token("{\"alg\":\"none\"}", "{\"sub\":\"a\"}", false), "{ hs256 = 'key' }", "signature");
    expect(token("{\"alg\":\"HS512\"}", "{\"sub\":\"a\"}", false), "{ hs256 = 'key' }",
           "signature");
    expect(token("{\"alg\":\"hs256\"}", "{\"sub\":\"a\"}", false), "{ hs256 = 'key' }",
           "signature");
    expect(token("{\"alg\":1}", "{\"sub\":\"a\"}", false), "{ hs256 = 'key' }", "signature");
    expect(token("{}", "{\"sub\":\"a\"}", false), "{ hs256 = 'key' }", "signature");
    expect(token("{\"alg\":\"HS256\",\"crit\":[\"b64\"]}", "{\"sub\":\"a\"}", false),
           "{ hs256 = 'key' }", "signature");
    /* A public key is no secret: what was signed with it as one is refused. */
    snprintf(as_secret, sizeof as_secret, "{ eddsa = '%s' }", hex);
    expect(token(HS256, "{\"sub\":\"a\"}", false), as_secret, "signature");
    expect(token("{\"alg\":\"EdDSA\"}", "{\"sub\":\"a\"}", true), "{ hs256 = 'key' }", "signature");
    expect(token("{\"alg\":\"EdDSA\"}", "{\"sub\":\"a\"}", false), "{ hs256 = 'key' }",
           "signature");
    rig_end(&rig);
}

TEST(a_ticket_counts_within_its_times_only)
{
    const char *key = "{ hs256 = 'key' }";

    begin();
    expect(token(HS256, "{\"exp\":1700000000.6}", false), key, "ok");
    expect(token(HS256, "{\"exp\":1700000000.5}", false), key, "expired");
    expect(token(HS256, "{\"exp\":1700000000}", false), key, "expired");
    expect(token(HS256, "{\"nbf\":1700000000.5}", false), key, "ok");
    expect(token(HS256, "{\"nbf\":1700000000.6}", false), key, "expired");
    expect(token(HS256, "{\"exp\":\"1900000000\"}", false), key, "malformed");
    expect(token(HS256, "{\"exp\":1e999}", false), key, "malformed");
    expect(token(HS256, "{\"nbf\":true}", false), key, "malformed");
    expect(token(HS256, "{}", false), key, "ok");
    rig_end(&rig);
}

TEST(what_a_player_sent_instead_of_a_ticket_raises_nothing)
{
    static const char *const malformed[] = {
        "x",           "..",          "a.b",       "a.b.c",           "e30.e30",
        "e30.e30.",    ".e30.e30",    "e30..e30",  "e30.e30.e30.e30", "e31.e30.AA",
        "e30=.e30.AA", "e3 0.e30.AA", "e30.e30.A", "W10.e30.AA",      "MQ.e30.AA",
    };
    static char long_one[9000], claims[8000];
    char flipped[2048], defs[4096];
    const char *good;

    begin();
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        expect(malformed[i], "{ hs256 = 'key' }", "malformed");
    }
    memset(long_one, 'a', sizeof long_one - 1);
    expect(long_one, "{ hs256 = 'key' }", "malformed");
    snprintf(claims, sizeof claims, "{\"x\":\"%.6080s\"}", long_one);
    expect(token(HS256, claims, false), "{ hs256 = 'key' }", "malformed");
    snprintf(claims, sizeof claims, "{\"x\":\"%.6000s\"}", long_one);
    expect(token(HS256, claims, false), "{ hs256 = 'key' }", "ok");
    expect(token(HS256, "[1]", false), "{ hs256 = 'key' }", "malformed");
    expect(token(HS256, " [1]", false), "{ hs256 = 'key' }", "malformed");
    expect(token(HS256, "{\"sub\":\"a\",\"sub\":\"b\"}", false), "{ hs256 = 'key' }", "malformed");
    expect(token(HS256, " {\"sub\":\"a\"}", false), "{ hs256 = 'key' }", "ok");
    run("", "for _, v in ipairs { 5, true, {}, '' } do\n"
            "  local claims, message, code = c.jwt(v, { hs256 = 'key' })\n"
            "  same(claims, nil) same(code, 'missing') end\n"
            "same(select(3, c.jwt(nil, { hs256 = 'key' })), 'missing')");
    good = token(HS256, "{\"sub\":\"a\"}", false);
    expect(good, "{ hs256 = 'key' }", "ok");
    expect(good, "{ hs256 = 'kez' }", "signature");
    for (size_t i = 0; i < strlen(good); i += 3) {
        snprintf(flipped, sizeof flipped, "%s", good);
        if (flipped[i] == '.') {
            continue;
        }
        flipped[i] = flipped[i] == 'B' ? 'C' : 'B';
        snprintf(defs, sizeof defs, "local token = '%s'", flipped);
        run(defs, "same(c.jwt(token, { hs256 = 'key' }), nil)");
    }
    rig_end(&rig);
}

TEST_MAIN(TEST_CASE(digests_and_texts_are_those_of_the_standards),
          TEST_CASE(random_numbers_are_within_their_range_and_reach_all_of_it),
          TEST_CASE(misuse_raises_and_names_the_argument), TEST_CASE(a_ticket_gives_its_claims),
          TEST_CASE(an_ed25519_ticket_is_verified_with_the_key_in_any_of_its_forms),
          TEST_CASE(the_keys_type_fixes_the_algorithm),
          TEST_CASE(a_ticket_counts_within_its_times_only),
          TEST_CASE(what_a_player_sent_instead_of_a_ticket_raises_nothing))
