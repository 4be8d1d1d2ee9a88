/* SPDX-License-Identifier: MIT */
/*
 * `moonrelay ticket`: what a game's backend would sign, for trying the shipped policy. The
 * key is printed nowhere. One thread.
 */
#include "server/moonrelay/server.h"
#include "server/startup.h"
#include "service/settings.h"

#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKEN_MAX = 8192, SUBJECT_MAX = 100 };

void mr_server_ticket_init(struct mr_server_ticket *t, size_t size)
{
    struct mr_server_ticket defaults = {.size = size, .key_variable = "TICKET_KEY", .ttl = "1h"};

    memset(t, 0, size);
    memcpy(t, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

static const char *find_variable(char *const *environment, const char *name)
{
    size_t n = strlen(name);

    for (char *const *at = environment; at && *at; at++) {
        if (strncmp(*at, name, n) == 0 && (*at)[n] == '=') {
            return *at + n + 1;
        }
    }
    return NULL;
}

static size_t append_base64(char *to, size_t cap, const void *data, size_t n)
{
    if (sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_URLSAFE_NO_PADDING) > cap) {
        return 0;
    }
    sodium_bin2base64(to, cap, data, n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    return strlen(to);
}

/* -EMSGSIZE: it does not fit. */
static int sign(char token[TOKEN_MAX], const char *claims, const char *key)
{
    static const char head[] = "{\"alg\":\"HS256\",\"typ\":\"JWT\"}";
    crypto_auth_hmacsha256_state state;
    unsigned char mac[crypto_auth_hmacsha256_BYTES];
    size_t n = append_base64(token, TOKEN_MAX, head, sizeof head - 1);
    size_t added;

    token[n++] = '.';
    added = append_base64(token + n, TOKEN_MAX - n, claims, strlen(claims));
    n += added;
    if (added == 0 || n + sizeof mac * 2 > TOKEN_MAX) {
        return -EMSGSIZE;
    }
    crypto_auth_hmacsha256_init(&state, (const unsigned char *)key, strlen(key));
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)token, n);
    crypto_auth_hmacsha256_final(&state, mac);
    token[n++] = '.';
    append_base64(token + n, TOKEN_MAX - n, mac, sizeof mac);
    return 0;
}

static char *claims_of(const struct mr_server_ticket *t, uint64_t ttl_ns)
{
    json_int_t now = (json_int_t)time(NULL);
    json_t *v = json_pack("{s:s, s:s*, s:I, s:I}", "sub", t->subject, "game", t->game, "iat", now,
                          "exp", now + (json_int_t)(ttl_ns / 1000000000u));
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;

    json_decref(v);
    return text;
}

int mr_server_print_ticket(const struct mr_server_ticket *given, char *const *environment,
                           FILE *out, struct mr_server_error *err)
{
    struct mr_server_ticket t;
    const char *why = "", *key;
    char token[TOKEN_MAX];
    uint64_t ttl_ns;
    char *claims;
    int rc;

    mr_server_ticket_init(&t, sizeof t);
    memcpy(&t, given, given->size < sizeof t ? given->size : sizeof t);
    key = t.key ? t.key : find_variable(environment, t.key_variable);
    if (!t.subject || !*t.subject || strlen(t.subject) > SUBJECT_MAX) {
        return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, -EINVAL,
                                "--sub NAME is needed, 1 to %d bytes: whose ticket it is",
                                SUBJECT_MAX);
    }
    if (!key || !*key) {
        return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, -EINVAL,
                                "no key: set %.100s in the environment, or give --key",
                                t.key_variable);
    }
    if (mr__parse_duration(t.ttl, strlen(t.ttl), &ttl_ns, &why) < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, -EINVAL, "--ttl \"%.100s\": %s", t.ttl,
                                why);
    }
    if (sodium_init() < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_FAILED, -EIO, "libsodium does not start");
    }
    claims = claims_of(&t, ttl_ns);
    rc = claims ? sign(token, claims, key) : -EINVAL;
    free(claims);
    if (rc < 0) {
        return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, rc,
                                "--sub and --game: expected short texts in UTF-8");
    }
    fprintf(out, "%s\n", token);
    return 0;
}
