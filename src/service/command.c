/* SPDX-License-Identifier: MIT */
/*
 * A line becomes a command, and a command ends in exactly one answer. Control thread.
 * `command[?id][SP data]`, split at the first space; errors are one word behind `error`,
 * because netfox hands a game only that one. To add a command: a name below, a case in
 * mr__command_run(), a row in src/PROTOCOL.md.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

const double mr__command_bounds[MR_COMMAND_BUCKETS] = {0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05,
                                                       0.1,    0.25,   0.5,   1,     2.5,  10};

const char *mr__command_name(enum command c)
{
    static const char *const names[MR_COMMAND_COUNT] = {
        "register-host", "connect", "connect-relay", "echo",
        "other",         "line",    "session",       "connection",
    };

    return names[c];
}

const char *mr__code_name(enum code c)
{
    static const char *const names[MR_CODE_COUNT] = {
#define X(constant, name) [MR_CODE_##constant] = name,
        MR_CODES(X)
#undef X
    };

    return names[c];
}

struct connection *mr__request_connection(struct request *r)
{
    return MR_CONTAINER(r, struct connection, request);
}

/* ---- words --------------------------------------------------------------------------------- */

static bool is_meta_key(const char *key, size_t n)
{
    if (n == 0 || n > MR_KEY_MAX || key[0] < 'a' || key[0] > 'z') {
        return false;
    }
    for (size_t i = 1; i < n; i++) {
        char c = key[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) {
            return false;
        }
    }
    return true;
}

/* Of two words of one key the later counts. What is over the bounds is no meta. */
static void add_meta(struct request *r, const char *word, size_t n, size_t *bytes)
{
    const char *equals = memchr(word, '=', n);
    size_t key_n = equals ? (size_t)(equals - word) : 0;
    size_t i = 0;

    if (!equals || !is_meta_key(word, key_n) || *bytes + n > MR_META_BYTES_MAX) {
        return;
    }
    while (i < r->meta_n &&
           !(r->meta[i].key.n == key_n && memcmp(r->meta[i].key.s, word, key_n) == 0)) {
        i++;
    }
    if (i == MR_META_WORDS_MAX) {
        return;
    }
    *bytes += n;
    r->meta[i] = (struct hook_pair){{word, key_n}, {equals + 1, n - key_n - 1}};
    if (i == r->meta_n) {
        r->meta_n++;
    }
}

static void parse_words(struct request *r, const char *text, size_t n)
{
    const char *end = text + n;
    size_t bytes = 0;

    while (text < end) {
        const char *space = memchr(text, ' ', (size_t)(end - text));
        const char *stop = space ? space : end;
        add_meta(r, text, (size_t)(stop - text), &bytes);
        text = stop + (space != NULL);
    }
}

struct hook_map mr__request_meta(const struct request *r)
{
    return (struct hook_map){r->meta, r->meta_n};
}

/* ---- answers ------------------------------------------------------------------------------- */

static void observe(struct service *s, const struct request *r)
{
    double seconds = (double)(s->now_ns - r->started_ns) / 1e9;
    unsigned i = 0;

    while (i < MR_COMMAND_BUCKETS && seconds > mr__command_bounds[i]) {
        i++;
    }
    s->figures.durations[r->command].counts[i]++;
    s->figures.durations[r->command].sum += seconds;
}

static void forget_request(struct service *s, struct connection *c)
{
    struct request *r = &c->request;

    mr__ask_cancel(s, &r->pending);
    mr__join_abandon(s, c);
    mr__free(r->line);
    r->line = NULL;
    r->is_active = false;
}

static void finish(struct service *s, struct connection *c)
{
    observe(s, &c->request);
    forget_request(s, c);
    mr__connection_resume(s, c);
}

void mr__command_abandon(struct service *s, struct connection *c)
{
    if (c->request.is_active) {
        forget_request(s, c);
    }
}

/* code: NULL, or why it failed. */
static void tell_outcome(struct service *s, const struct connection *c, const char *code,
                         const char *reason)
{
    const struct request *r = &c->request;
    struct service_outcome o = {
        .code = code, .reason = reason, .conn = c->id, .session = r->session};

    if (!s->ended) {
        return;
    }
    if (!code && r->n_sides > 0) {
        o.host_port = r->sides[0].port;
        o.client_port = r->sides[r->n_sides - 1].port;
    }
    s->ended(s->ended_user, &o);
}

void mr__command_succeed(struct service *s, struct connection *c)
{
    const struct request *r = &c->request;

    if (r->id_n > 0) {
        mr__connection_say(s, c, ".%.*s", (int)r->id_n, r->id);
    }
    tell_outcome(s, c, NULL, "");
    finish(s, c);
}

/* Too many wrong ids came from its address: somebody guesses, or many people mistype. */
static bool is_to_be_late(struct service *s, const struct connection *c)
{
    uint32_t per_minute = mr__settings_values(s->settings)->failed_oids_per_minute;
    const struct pace pace = {60000000000 / per_minute, per_minute};

    return !c->request.is_late && !mr__source_is_exempt(s, &c->peer) &&
           !mr__budget_take(s, s->wrong_oids, &c->peer, pace);
}

/* The answer is the same, and nothing but the answer is left of the command. One of a connection,
 * whose next command waits for it. */
static void answer_later(struct service *s, struct connection *c)
{
    struct request *r = &c->request;

    s->figures.caps[MR_CAP_FAILED_OIDS]++;
    mr__ask_cancel(s, &r->pending);
    mr__join_abandon(s, c);
    r->is_late = true;
    r->late_until_ns = s->now_ns + (uint64_t)MR_LATE_ANSWER_MS * 1000000;
    mr__list_push_back(&s->late, &r->late);
}

void mr__commands_answer_late(struct service *s)
{
    while (!mr__list_is_empty(&s->late)) {
        struct request *r = MR_CONTAINER(s->late.next, struct request, late);
        if (s->now_ns < r->late_until_ns) {
            return;
        }
        mr__list_remove(&r->late);
        mr__command_fail(s, mr__request_connection(r), MR_CODE_UNKNOWN_OID, "");
    }
}

void mr__command_fail(struct service *s, struct connection *c, enum code code, const char *reason)
{
    const struct request *r = &c->request;
    const char *name = mr__code_name(code), *colon = reason[0] ? ":" : "";

    if (code == MR_CODE_UNKNOWN_OID && is_to_be_late(s, c)) {
        answer_later(s, c);
        return;
    }

    s->figures.errors[r->command][code]++;
    if (mr__settings_values(s->settings)->errors) {
        if (r->id_n > 0) {
            mr__connection_say(s, c, "!%.*s %s%s%s", (int)r->id_n, r->id, name, colon, reason);
        } else {
            mr__connection_say(s, c, "error %s:%s%s%s", mr__command_name(r->command), name, colon,
                               reason);
        }
    }
    MR_JOURNAL(s, MR_JOURNAL_JOIN, MR_LOG_DEBUG, "tcp", "command failed", LOG_UINT("conn", c->id),
               LOG_STR("command", mr__command_name(r->command)), LOG_STR("code", name),
               LOG_STR("reason", reason));
    tell_outcome(s, c, name, reason);
    finish(s, c);
}

void mr__command_complain(struct service *s, struct connection *c, enum command about,
                          enum code code)
{
    mr__command_complain_as(s, c, about, code, mr__code_name(code));
}

void mr__command_complain_as(struct service *s, struct connection *c, enum command about,
                             enum code code, const char *word)
{
    s->figures.errors[about][code]++;
    if (mr__settings_values(s->settings)->errors) {
        mr__connection_say(s, c, "error %s:%s", mr__command_name(about), word);
    }
}

/* ---- commands ------------------------------------------------------------------------------ */

static void echo(struct service *s, struct connection *c, const char *data, size_t n)
{
    char line[MR_LINE_MAX + 8];

    memcpy(line, "echo ", 5);
    if (n > 0) {
        memcpy(line + 5, data, n);
    }
    line[5 + n] = '\n';
    mr__connection_send(s, c, line, n + 6);
    mr__command_succeed(s, c);
}

static enum command find_command(const char *word, size_t n)
{
    for (enum command c = 0; c < MR_COMMAND_OTHER; c++) {
        const char *name = mr__command_name(c);
        if (strlen(name) == n && memcmp(name, word, n) == 0) {
            return c;
        }
    }
    return MR_COMMAND_OTHER;
}

/* Fills the request from the line's first word; false: it is none of ours. */
static bool parse_command(struct request *r, const char *word, size_t n)
{
    const char *mark = memchr(word, '?', n);

    if (mark) {
        r->id_n = (size_t)(word + n - mark - 1);
        if (r->id_n == 0 || r->id_n > MR_REQUEST_ID_MAX) {
            return false;
        }
        memcpy(r->id, mark + 1, r->id_n);
        n = (size_t)(mark - word);
    }
    r->command = find_command(word, n);
    return r->command != MR_COMMAND_OTHER;
}

/* Keeps the data for as long as the command takes. */
static bool keep_data(struct service *s, struct connection *c, const char *data, size_t n)
{
    struct request *r = &c->request;

    r->line = mr__strndup(data, n);
    if (!r->line) {
        mr__command_fail(s, c, MR_CODE_BUSY, "");
        return false;
    }
    if (r->command != MR_COMMAND_REGISTER_HOST) {
        const char *space = memchr(r->line, ' ', n);
        r->oid = (struct str){r->line, space ? (size_t)(space - r->line) : n};
        parse_words(r, r->line + r->oid.n, n - r->oid.n);
    } else {
        parse_words(r, r->line, n);
    }
    return true;
}

void mr__command_run(struct service *s, struct connection *c, const char *line, size_t n)
{
    struct request *r = &c->request;
    const char *space = n > 0 ? memchr(line, ' ', n) : NULL;
    size_t word_n = space ? (size_t)(space - line) : n;
    const char *data = space ? space + 1 : line + n;
    size_t data_n = (size_t)(line + n - data);

    if (n == 0) {
        return;
    }
    *r = (struct request){.is_active = true, .started_ns = s->now_ns, .command = MR_COMMAND_OTHER};
    mr__list_init(&r->at_host);
    mr__list_init(&r->in_force);
    mr__list_init(&r->task.link);
    mr__list_init(&r->waiter.link);
    mr__list_init(&r->late);
    if (!parse_command(r, line, word_n)) {
        r->command = MR_COMMAND_OTHER;
        finish(s, c);
    } else if (r->command == MR_COMMAND_ECHO) {
        echo(s, c, data, data_n);
    } else if (!keep_data(s, c, data, data_n)) {
        return;
    } else if (r->command == MR_COMMAND_REGISTER_HOST) {
        mr__registration_begin(s, c);
    } else {
        mr__join_begin(s, c);
    }
}
