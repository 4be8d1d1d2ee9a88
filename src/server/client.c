/* SPDX-License-Identifier: MIT */
/*
 * The commands that ask a running daemon over its control socket: one request (lists:
 * page by page), its answer as tables for a person or as JSON. One thread.
 *
 * To add one, add it to `commands`, the way its answer is shown, and the endpoint in
 * control/api.c. Start reading at mr_server_ask().
 */
#include "control/view.h"
#include "server/columns.h"
#include "server/moonrelay/server.h"
#include "server/startup.h"
#include "service/settings.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ASK_TIMEOUT_S = 120, /* a reload may wait for others, each of which may take 10 s */
    ANSWER_MAX = 64 << 20,
    ARGS_MAX = 34,
};

struct client {
    const struct mr_server_question *q;
    struct mr_server_error *err;
    FILE *out;
    CURL *easy;
    char path[MR_CONTROL_PATH_BYTES];
    char *text; /* of the answer */
    size_t n;
    char code[32]; /* the daemon's, of its error */
};

struct command {
    const char *word, *endpoint;
    size_t least, most;                     /* operands */
    const char *usage;                      /* of the operands */
    json_t *(*body)(const struct client *); /* NULL: GET */
    const char *list;                       /* the key of a list that comes in pages, or NULL */
    int (*show)(struct client *c, const json_t *answer);
};

void mr_server_question_init(struct mr_server_question *q, size_t size)
{
    memset(q, 0, size);
    q->size = size;
}

/* ---- showing ----------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));

    return s ? s : "-";
}

static long long int_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* 75 -> "1m15s": two units are as much as one reads. */
static const char *duration(char buf[32], double seconds)
{
    unsigned long s = seconds > 0 ? (unsigned long)seconds : 0;

    if (s < 60) {
        snprintf(buf, 32, "%lus", s);
    } else if (s < 3600) {
        snprintf(buf, 32, "%lum%02lus", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(buf, 32, "%luh%02lum", s / 3600, s / 60 % 60);
    } else {
        snprintf(buf, 32, "%lud%02luh", s / 86400, s / 3600 % 24);
    }
    return buf;
}

static const char *since(char buf[32], const json_t *object, const char *key)
{
    return duration(buf, (double)time(NULL) - number_of(object, key));
}

/* "user=alice team=red" */
static void add_tags(struct columns *t, const json_t *object)
{
    char text[480] = "";
    size_t n = 0;
    const char *key;
    json_t *value;

    json_object_foreach(json_object_get(object, "tags"), key, value)
    {
        int k = snprintf(text + n, sizeof text - n, "%s%s=%s", n ? " " : "", key,
                         json_string_value(value));
        n = k > 0 && n + (size_t)k < sizeof text ? n + (size_t)k : sizeof text - 1;
    }
    mr__columns_add(t, "%s", *text ? text : "-");
}

static int print(struct client *c, struct columns *t)
{
    int rc = mr__columns_print(t, c->out);

    mr__columns_deinit(t);
    return rc < 0 ? mr__startup_fail(c->err, MR_SERVER_EXIT_FAILED, rc, "out of memory") : 0;
}

static int show_status(struct client *c, const json_t *a)
{
    const json_t *endpoints = json_object_get(a, "endpoints");
    const json_t *policies = json_object_get(a, "policies");
    char buf[32];
    const char *key;
    json_t *value;

    fprintf(c->out, "moonrelay %s, up for %s, %s%s\n", text_of(a, "version"),
            duration(buf, number_of(a, "uptime")),
            json_is_true(json_object_get(a, "ready")) ? "ready" : "not ready: ",
            json_is_true(json_object_get(a, "ready")) ? "" : text_of(a, "not_ready"));
    if (!json_is_null(json_object_get(a, "draining"))) {
        fprintf(c->out, "%-12s %s at most\n", "draining", duration(buf, number_of(a, "draining")));
    }
    json_object_foreach((json_t *)(void *)(uintptr_t)endpoints, key, value)
    {
        fprintf(c->out, "%-12s %s\n", key, json_string_value(value));
    }
    fprintf(c->out, "%-12s %lld\n%-12s %lld\n%-12s %lld of %lld ports\n%-12s %lld\n", "connections",
            int_of(a, "connections"), "sessions", int_of(a, "sessions"), "relays",
            int_of(a, "relays"), int_of(a, "ports"), "workers", int_of(a, "workers"));
    fprintf(c->out, "%-12s ", "policies");
    for (size_t i = 0; i < json_array_size(policies); i++) {
        fprintf(c->out, "%s%s", i ? "," : "", json_string_value(json_array_get(policies, i)));
    }
    fprintf(c->out, " (generation %lld)\n", int_of(a, "generation"));
    return 0;
}

static int show_sessions(struct client *c, const json_t *a)
{
    static const char *const heads[] = {"ID", "OID", "FROM", "UDP", "SINCE", "JOINS", "TAGS", NULL};
    const json_t *list = json_object_get(a, "sessions");
    struct columns t;
    char buf[32];

    mr__columns_init(&t, heads);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);
        mr__columns_add(&t, "%s", text_of(s, "id"));
        mr__columns_add(&t, "%s", text_of(s, "oid"));
        mr__columns_add(&t, "%s", text_of(s, "ip"));
        mr__columns_add(&t, "%s", text_of(s, "addr"));
        mr__columns_add(&t, "%s", since(buf, s, "since"));
        mr__columns_add(&t, "%lld", int_of(s, "joins"));
        add_tags(&t, s);
    }
    return print(c, &t);
}

static int show_relays(struct client *c, const json_t *a)
{
    static const char *const heads[] = {"ID",    "KIND",    "PEER",     "TARGET",   "SESSION",
                                        "AGE",   "PKTS-IN", "PKTS-OUT", "BYTES-IN", "BYTES-OUT",
                                        "DROPS", "TAGS",    NULL};
    const json_t *list = json_object_get(a, "relays");
    struct columns t;
    char buf[32];

    mr__columns_init(&t, heads);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *r = json_array_get(list, i);
        mr__columns_add(&t, "%s", text_of(r, "id"));
        mr__columns_add(&t, "%s", text_of(r, "kind"));
        mr__columns_add(&t, "%s", text_of(r, "addr"));
        mr__columns_add(&t, "%s", text_of(r, "target"));
        mr__columns_add(&t, "%s", text_of(r, "session"));
        mr__columns_add(&t, "%s", duration(buf, number_of(r, "age")));
        mr__columns_add(&t, "%lld", int_of(r, "packets_in"));
        mr__columns_add(&t, "%lld", int_of(r, "packets_out"));
        mr__columns_add(&t, "%lld", int_of(r, "bytes_in"));
        mr__columns_add(&t, "%lld", int_of(r, "bytes_out"));
        mr__columns_add(&t, "%lld", int_of(r, "drops"));
        add_tags(&t, r);
    }
    return print(c, &t);
}

static int show_blocks(struct client *c, const json_t *a)
{
    static const char *const heads[] = {"WHAT", "LEFT", "BY", "REASON", NULL};
    const json_t *list = json_object_get(a, "blocks");
    struct columns t;
    char buf[32];

    mr__columns_init(&t, heads);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *b = json_array_get(list, i);
        if (json_object_get(b, "nets")) {
            mr__columns_add(&t, "a list of %lld nets", int_of(b, "nets"));
            mr__columns_add(&t, "-");
        } else {
            mr__columns_add(&t, "%s", text_of(b, "what"));
            mr__columns_add(&t, "%s",
                            json_is_null(json_object_get(b, "seconds_left"))
                                ? "for ever"
                                : duration(buf, number_of(b, "seconds_left")));
        }
        mr__columns_add(&t, "%s", text_of(b, "by"));
        mr__columns_add(&t, "%s", text_of(b, "reason"));
    }
    return print(c, &t);
}

static void add_policy(struct columns *t, const json_t *p)
{
    const char *hook;
    json_t *h;

    json_object_foreach(json_object_get(p, "hooks"), hook, h)
    {
        mr__columns_add(t, "%s", text_of(p, "name"));
        mr__columns_add(t, "%s", hook);
        mr__columns_add(t, "%lld", int_of(h, "calls"));
        mr__columns_add(t, "%lld", int_of(h, "refusals"));
        mr__columns_add(t, "%lld", int_of(h, "errors"));
        mr__columns_add(t, "%.6f", number_of(h, "seconds"));
    }
}

static int show_policies(struct client *c, const json_t *a)
{
    static const char *const files[] = {"POLICY", "PATH", "SHA256", "ON-ERROR", "COMMANDS", NULL};
    static const char *const hooks[] = {"POLICY", "HOOK",    "CALLS", "REFUSALS",
                                        "ERRORS", "SECONDS", NULL};
    const json_t *list = json_object_get(a, "policies");
    struct columns t;
    char buf[32];
    int rc;

    fprintf(c->out, "generation %lld, loaded %s ago in %.3f s, %lld bytes of memory\n\n",
            int_of(a, "generation"), since(buf, a, "loaded_at"), number_of(a, "load_seconds"),
            int_of(a, "memory_bytes"));
    mr__columns_init(&t, files);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *p = json_array_get(list, i);
        bool is_shadow = json_is_true(json_object_get(p, "shadow"));
        mr__columns_add(&t, "%s", text_of(p, "name"));
        mr__columns_add(&t, "%s", text_of(p, "path"));
        mr__columns_add(&t, "%s", text_of(p, "sha256"));
        mr__columns_add(&t, "%s%s", text_of(p, "on_error"), is_shadow ? ", shadow" : "");
        mr__columns_add(&t, "%lld", int_of(p, "commands"));
    }
    rc = print(c, &t);
    fputc('\n', c->out);
    mr__columns_init(&t, hooks);
    for (size_t i = 0; i < json_array_size(list); i++) {
        add_policy(&t, json_array_get(list, i));
    }
    return rc < 0 ? rc : print(c, &t);
}

static void print_keys(FILE *out, const char *head, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        fprintf(out, "%s%s", i ? ", " : head, json_string_value(json_array_get(list, i)));
    }
    if (json_array_size(list) > 0) {
        fputc('\n', out);
    }
}

static int show_reload(struct client *c, const json_t *a)
{
    const json_t *warnings = json_object_get(a, "warnings");
    bool is_check = c->q->is_check != 0;

    fprintf(c->out, is_check ? "ok, generation %lld would be replaced\n" : "ok, generation %lld\n",
            int_of(a, "generation"));
    print_keys(c->out, is_check ? "would change: " : "changed: ", json_object_get(a, "changed"));
    print_keys(c->out, "needs a restart: ", json_object_get(a, "restart"));
    for (size_t i = 0; i < json_array_size(warnings); i++) {
        fprintf(c->out, "warning: %s\n", json_string_value(json_array_get(warnings, i)));
    }
    return 0;
}

static int show_block(struct client *c, const json_t *a)
{
    fprintf(c->out, "ok, %lld ended\n", int_of(a, "ended"));
    return 0;
}

static int show_ok(struct client *c, const json_t *a)
{
    (void)a;
    fputs("ok\n", c->out);
    return 0;
}

static int show_drain(struct client *c, const json_t *a)
{
    char buf[32];

    if (json_is_null(json_object_get(a, "seconds_left"))) {
        fputs("ok, no drain\n", c->out);
    } else {
        fprintf(c->out, "ok, draining for %s at most\n",
                duration(buf, number_of(a, "seconds_left") + 0.5));
    }
    return 0;
}

static int show_result(struct client *c, const json_t *a)
{
    const json_t *result = json_object_get(a, "result");

    if (json_is_string(result)) {
        fwrite(json_string_value(result), 1, json_string_length(result), c->out);
        fputc('\n', c->out);
    } else {
        json_dumpf(result, c->out, JSON_INDENT(2) | JSON_ENCODE_ANY);
        fputc('\n', c->out);
    }
    return 0;
}

/* ---- asking ------------------------------------------------------------------------------ */

static json_t *body_of_id(const struct client *c)
{
    return json_pack("{s:s, s:s*}", "id", c->q->args[0], "reason",
                     c->q->n_args > 1 ? c->q->args[1] : NULL);
}

/* The time was looked at by check_time(). */
static json_t *body_of_block(const struct client *c)
{
    const char *why;
    uint64_t ns = 0;

    (void)mr__parse_duration(c->q->args[1], strlen(c->q->args[1]), &ns, &why);
    return json_pack("{s:s, s:f, s:s*}", "what", c->q->args[0], "seconds", (double)ns / 1e9,
                     "reason", c->q->n_args > 2 ? c->q->args[2] : NULL);
}

static json_t *body_of_unblock(const struct client *c)
{
    return json_pack("{s:s}", "what", c->q->args[0]);
}

static json_t *body_of_reload(const struct client *c)
{
    return json_pack("{s:b}", "check", c->q->is_check);
}

static json_t *body_of_rollback(const struct client *c)
{
    (void)c;
    return json_object();
}

/* The time was looked at by check_time(). */
static json_t *body_of_drain(const struct client *c)
{
    const char *why;
    uint64_t ns = 0;

    if (c->q->is_cancel) {
        return json_pack("{s:b}", "cancel", 1);
    }
    if (c->q->n_args == 0) {
        return json_object();
    }
    (void)mr__parse_duration(c->q->args[0], strlen(c->q->args[0]), &ns, &why);
    return json_pack("{s:f}", "seconds", (double)ns / 1e9);
}

static json_t *body_of_call(const struct client *c)
{
    json_t *args = json_array();

    for (size_t i = 2; args && i < c->q->n_args; i++) {
        json_array_append_new(args, json_string(c->q->args[i]));
    }
    return json_pack("{s:s, s:s, s:o}", "policy", c->q->args[0], "verb", c->q->args[1], "args",
                     args);
}

static const struct command commands[] = {
    {"status", "/v1/status", 0, 0, "", NULL, NULL, show_status},
    {"sessions", "/v1/sessions", 0, 0, "", NULL, "sessions", show_sessions},
    {"relays", "/v1/relays", 0, 0, "", NULL, "relays", show_relays},
    {"policies", "/v1/policies", 0, 0, "", NULL, NULL, show_policies},
    {"kick", "/v1/kick", 1, 2, "ID [REASON]", body_of_id, NULL, show_ok},
    {"close", "/v1/close", 1, 2, "ID [REASON]", body_of_id, NULL, show_ok},
    {"blocks", "/v1/blocks", 0, 0, "", NULL, "blocks", show_blocks},
    {"block", "/v1/block", 2, 3, "WHAT TIME [REASON]", body_of_block, NULL, show_block},
    {"unblock", "/v1/unblock", 1, 1, "WHAT", body_of_unblock, NULL, show_ok},
    {"reload", "/v1/reload", 0, 0, "[--check]", body_of_reload, NULL, show_reload},
    {"rollback", "/v1/rollback", 0, 0, "", body_of_rollback, NULL, show_reload},
    {"drain", "/v1/drain", 0, 1, "[TIME | --cancel]", body_of_drain, NULL, show_drain},
    {"call", "/v1/call", 2, ARGS_MAX, "POLICY VERB [ARGS]", body_of_call, NULL, show_result},
};

static const struct command *find_command(const char *word)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].word, word) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

/* "30m": the one operand that is more than a text. */
static int check_time(struct client *c, const struct command *command)
{
    bool has_time =
        command->body == body_of_block || (command->body == body_of_drain && c->q->n_args > 0);
    const char *time = has_time ? c->q->args[command->body == body_of_block] : "";
    const char *why = "";
    uint64_t ns = 0;
    int rc = has_time ? mr__parse_duration(time, strlen(time), &ns, &why) : 0;

    if (has_time && (rc < 0 || ns == 0)) {
        return mr__startup_fail(c->err, MR_SERVER_EXIT_USAGE, -EINVAL, "TIME \"%.100s\": %s", time,
                                rc < 0 ? why : "expected a time above 0, like 30m");
    }
    return 0;
}

static size_t on_text(char *data, size_t size, size_t count, void *user)
{
    struct client *c = user;
    size_t n = size * count;
    char *text = n <= ANSWER_MAX - c->n ? realloc(c->text, c->n + n + 1) : NULL;

    if (!text) {
        return 0;
    }
    memcpy(text + c->n, data, n);
    c->text = text;
    c->n += n;
    return n;
}

static int fail_to_reach(struct client *c, CURLcode rc)
{
    long number = 0;
    const char *why = curl_easy_strerror(rc);

    curl_easy_getinfo(c->easy, CURLINFO_OS_ERRNO, &number);
    why = number > 0 ? strerror((int)number) : why;
    return mr__startup_fail(c->err, MR_SERVER_EXIT_FAILED, -ECONNREFUSED,
                            "cannot reach %s: %s; is it running? (--control names another socket)",
                            c->path, why);
}

/* What the daemon refused, in its own words. */
static int fail_refused(struct client *c, const json_t *answer)
{
    const char *code = text_of(answer, "code");
    bool is_usage = strcmp(code, "refused") == 0 || strcmp(code, "bad-request") == 0;

    snprintf(c->code, sizeof c->code, "%s", code);
    return mr__startup_fail(c->err, is_usage ? MR_SERVER_EXIT_USAGE : MR_SERVER_EXIT_FAILED,
                            -EINVAL, "%s", text_of(answer, "error"));
}

static int fail_as_stranger(struct client *c)
{
    return mr__startup_fail(c->err, MR_SERVER_EXIT_FAILED, -EPROTO,
                            "what answers at %s is no moonrelay", c->path);
}

/* One request; *answer is for json_decref(). */
static int exchange(struct client *c, const char *endpoint, const char *body, json_t **answer)
{
    char url[512];
    long status = 0;
    CURLcode rc;

    snprintf(url, sizeof url, "http://moonrelay%s", endpoint);
    c->n = 0;
    curl_easy_setopt(c->easy, CURLOPT_UNIX_SOCKET_PATH, c->path);
    curl_easy_setopt(c->easy, CURLOPT_URL, url);
    curl_easy_setopt(c->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->easy, CURLOPT_TIMEOUT, (long)ASK_TIMEOUT_S);
    curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_text);
    curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    if (body) {
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, body);
    }
    rc = curl_easy_perform(c->easy);
    if (rc != CURLE_OK) {
        return fail_to_reach(c, rc);
    }
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    *answer = json_loadb(c->text ? c->text : "", c->n, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(*answer)) {
        json_decref(*answer);
        return fail_as_stranger(c);
    }
    if (status != 200) {
        int failed = fail_refused(c, *answer);
        json_decref(*answer);
        return failed;
    }
    return 0;
}

/* Would the list end? One that brings nothing and names a next one never does, nor one that does
 * not say whether it is the last. */
static bool leads_to_an_end(const json_t *page, const char *list)
{
    const json_t *next = json_object_get(page, "next");

    return json_is_null(next) ||
           (json_is_string(next) && json_array_size(json_object_get(page, list)) > 0);
}

/* The page behind `after`. */
static int exchange_page(struct client *c, const struct command *command, const char *after,
                         json_t **page)
{
    char endpoint[256];
    char *cursor = curl_easy_escape(c->easy, after, 0);
    size_t n = (size_t)snprintf(endpoint, sizeof endpoint, "%s?after=%s", command->endpoint,
                                cursor ? cursor : "");
    int rc;

    curl_free(cursor);
    if (n >= sizeof endpoint) {
        return fail_as_stranger(c);
    }
    rc = exchange(c, endpoint, NULL, page);
    if (rc == 0 && !leads_to_an_end(*page, command->list)) {
        json_decref(*page);
        return fail_as_stranger(c);
    }
    return rc;
}

/* All pages as one answer. */
static int collect(struct client *c, const struct command *command, json_t **answer)
{
    int rc = exchange(c, command->endpoint, NULL, answer);

    while (rc == 0 && json_is_string(json_object_get(*answer, "next"))) {
        json_t *page = NULL;

        rc = exchange_page(c, command, text_of(*answer, "next"), &page);
        if (rc == 0) {
            json_array_extend(json_object_get(*answer, command->list),
                              json_object_get(page, command->list));
            json_object_set(*answer, "next", json_object_get(page, "next"));
            json_decref(page);
        } else {
            json_decref(*answer);
        }
    }
    return rc;
}

static int run(struct client *c, const struct command *command)
{
    json_t *body = command->body ? command->body(c) : NULL;
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_t *answer = NULL;
    int rc;

    json_decref(body);
    if (command->body && !text) {
        return mr__startup_fail(c->err, MR_SERVER_EXIT_USAGE, -EINVAL, "%s: expected UTF-8",
                                command->word);
    }
    rc = command->list ? collect(c, command, &answer)
                       : exchange(c, command->endpoint, text, &answer);
    free(text);
    if (rc < 0) {
        return rc;
    }
    if (c->q->is_json) {
        if (command->list) {
            json_object_del(answer, "next");
        }
        json_dumpf(answer, c->out, JSON_INDENT(2));
        fputc('\n', c->out);
    } else {
        rc = command->show(c, answer);
    }
    json_decref(answer);
    return rc;
}

/* Where the settings say that the daemon's socket is. */
static int find_socket(struct client *c, const struct mr_server_options *opts)
{
    struct startup_sources sources;
    struct startup start;
    int rc;

    if (c->q->control) {
        snprintf(c->path, sizeof c->path, "%s", c->q->control);
        return 0;
    }
    rc = mr__startup_sources_init(&sources, opts, c->err);
    if (rc < 0) {
        return rc;
    }
    rc = mr__startup_read(&start, &sources, c->err);
    if (rc == 0) {
        rc = mr__startup_control_path(c->path, mr__settings_values(start.settings), &sources);
        mr__startup_deinit(&start);
        rc = rc >= 0 ? 0
                     : mr__startup_fail(c->err, MR_SERVER_EXIT_USAGE, rc,
                                        "no control socket is known: name it with --control");
    }
    mr__startup_sources_deinit(&sources);
    return rc;
}

static int ask(struct client *c, const struct mr_server_options *opts)
{
    const struct mr_server_question *q = c->q;
    const struct command *command = find_command(q->command);
    int rc;

    if (!command) {
        return mr__startup_fail(c->err, MR_SERVER_EXIT_USAGE, -EINVAL, "no such question: %.100s",
                                q->command);
    }
    if (q->n_args < command->least || q->n_args > command->most) {
        return mr__startup_fail(c->err, MR_SERVER_EXIT_USAGE, -EINVAL,
                                "expected: moonrelay %s%s%s; see moonrelay %s --help",
                                command->word, *command->usage ? " " : "", command->usage,
                                command->word);
    }
    rc = check_time(c, command);
    if (rc == 0) {
        rc = find_socket(c, opts);
    }
    if (rc < 0) {
        return rc;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    c->easy = curl_easy_init();
    rc = c->easy ? run(c, command)
                 : mr__startup_fail(c->err, MR_SERVER_EXIT_FAILED, -ENOMEM, "out of memory");
    curl_easy_cleanup(c->easy);
    free(c->text);
    return rc;
}

/* Whoever reads JSON reads one object in any case. */
static void print_error(const struct client *c)
{
    struct str text = {c->err->text, strlen(c->err->text)};
    json_t *v =
        json_pack("{s:o, s:s*}", "error", mr__view_text(text), "code", *c->code ? c->code : NULL);

    if (v) {
        json_dumpf(v, c->out, JSON_INDENT(2));
        fputc('\n', c->out);
    }
    json_decref(v);
}

int mr_server_ask(const struct mr_server_options *opts, const struct mr_server_question *given,
                  FILE *out, struct mr_server_error *err)
{
    struct mr_server_question q;
    struct client c = {.q = &q, .err = err, .out = out};
    int rc;

    mr_server_question_init(&q, sizeof q);
    memcpy(&q, given, given->size < sizeof q ? given->size : sizeof q);
    rc = ask(&c, opts);
    if (rc < 0 && q.is_json) {
        print_error(&c);
    }
    return rc;
}
