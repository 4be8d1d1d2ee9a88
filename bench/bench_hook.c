/* SPDX-License-Identifier: MIT */
/*
 * What one question to the policy chain costs the control thread: event to Lua, the
 * hook, its answer back, counters. No sockets, one thread. Results and how to read them
 * are in bench/README.md. Run: build/release/bench/bench_hook [calls]
 */
#include "script/policies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5, CALLS_DEFAULT = 200000 };

static unsigned answered, failed;

static void on_done(struct hook_request *req, const struct hook_answer *answer)
{
    (void)req;
    answered++;
    failed += answer->outcome == MR_HOOK_FAILED || answer->outcome == MR_HOOK_BUSY;
}

static struct str text(const char *s)
{
    return (struct str){s, strlen(s)};
}

static struct mr_addr address(const char *s)
{
    struct mr_addr a;

    if (mr_addr_parse(&a, s, strlen(s), NULL) != MR_ADDR_OK) {
        abort();
    }
    return a;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* A player with a tag, as most have. */
static const struct hook_session *make_session(void)
{
    static struct hook_pair tags[1];
    static struct hook_session session;

    tags[0] = (struct hook_pair){text("user"), text("alice")};
    session = (struct hook_session){.id = 12,
                                    .oid = text("useandom26T198340PX75"),
                                    .tcp = address("203.0.113.5:5000"),
                                    .addr = address("203.0.113.5:4000"),
                                    .tags = {tags, 1},
                                    .since = 1700000000};
    return &session;
}

static const struct hook_relay *make_relay(void)
{
    static struct hook_relay relay;

    relay = (struct hook_relay){.id = 17,
                                .text = "51200.17",
                                .port = 51200,
                                .addr = address("203.0.113.5:4000"),
                                .session = 12,
                                .since = 1700000000,
                                .age = 60,
                                .packets_in = 3600,
                                .bytes_in = 230400};
    return &relay;
}

/* What the service fills in for each hook (hooks.h). */
static struct hook_event make_event(enum hook hook)
{
    static const char peek[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const struct hook_session *session = make_session();
    struct hook_event ev = {.hook = hook, .now = 1700000000.5, .id = 123456};

    ev.addr = session->addr;
    switch (hook) {
    case MR_HOOK_DROP:
        ev.reason = text("unknown_sender");
        ev.port = 51200;
        ev.size = 64;
        ev.known = true;
        ev.peek = (const uint8_t *)peek;
        ev.peek_n = 64;
        break;
    case MR_HOOK_CONNECT:
    case MR_HOOK_CONNECTED:
        ev.from = ev.to = session;
        ev.oid = session->oid;
        ev.mode = text("relay");
        ev.via = text("relay");
        break;
    case MR_HOOK_CREATED:
    case MR_HOOK_DESTROYED:
        ev.reason = text(hook == MR_HOOK_CREATED ? "connect" : "idle");
        ev.relay = make_relay();
        ev.session = hook == MR_HOOK_CREATED ? session : NULL;
        break;
    case MR_HOOK_LEFT:
        ev.reason = text("closed");
        ev.session = session;
        break;
    default: /* register, create */
        ev.reason = text("connect");
        ev.session = session;
        ev.peer = hook == MR_HOOK_CREATE ? session : NULL;
        break;
    }
    return ev;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static double clock_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Lets what waits go on until all that was asked is answered. */
static void settle(const struct hooks *hooks, unsigned asked)
{
    while (answered < asked && hooks->tick) {
        hooks->tick(hooks->self, (uint64_t)clock_ns(CLOCK_MONOTONIC));
    }
}

static void call(const struct hooks *hooks, struct hook_request *req, const struct hook_event *ev,
                 bool is_decision)
{
    unsigned asked;

    if (!is_decision) {
        hooks->tell(hooks->self, ev);
        return;
    }
    asked = answered + 1;
    hooks->ask(hooks->self, req, ev);
    settle(hooks, asked);
}

/* CPU time of this thread, so that other programs do not count. */
static void measure(const char *name, struct policies *p, enum hook hook, unsigned calls)
{
    static const bool decides[] = {
#define X(constant, hook_name, is_decision) [MR_HOOK_##constant] = is_decision,
        MR_HOOKS(X)
#undef X
    };
    const struct hooks *hooks = mr__policies_hooks(p);
    struct hook_event ev = make_event(hook);
    struct hook_request req = {.done = on_done};
    double rounds[ROUNDS];

    for (int round = 0; round < ROUNDS; round++) {
        double start = clock_ns(CLOCK_THREAD_CPUTIME_ID);

        answered = 0;
        for (unsigned i = 0; i < calls; i++) {
            ev.id++;
            ev.addr.port = (uint16_t)i; /* a new address, as a stranger's is */
            call(hooks, &req, &ev, decides[hook]);
        }
        rounds[round] = (clock_ns(CLOCK_THREAD_CPUTIME_ID) - start) / calls;
        if (decides[hook] && answered != calls) {
            fprintf(stderr, "%s: %u of %u calls were answered\n", name, answered, calls);
            exit(1);
        }
    }
    qsort(rounds, ROUNDS, sizeof rounds[0], compare);
    printf("%-32s %8.0f %8.0f\n", name, rounds[ROUNDS / 2], rounds[0]);
}

/* ---- policies -------------------------------------------------------------------------------- */

static void on_loaded(void *user, int rc, const struct script_error *err)
{
    (void)user;
    if (rc != 0) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
}

/* A hook that failed would be measured as well, and its time is another. */
static void on_log(void *user, enum log_level level, const char *line, size_t n)
{
    (void)user;
    if (level >= MR_LOG_ERROR) {
        fwrite(line, 1, n, stderr);
        failed++;
    }
}

static struct policies *load(const char *source)
{
    static struct log log = {.level = MR_LOG_WARN, .format = MR_LOG_TEXT, .sink = on_log};
    char path[] = "/tmp/bench-hook-XXXXXX.lua";
    const char *first[] = {path};
    struct policies_options opts = {.log = &log, .seed = 1};
    struct policies_load load = {.first = first, .n_first = 1, .done = on_loaded};
    struct policies *p;
    int fd = mkstemps(path, 4);

    if (fd < 0 || write(fd, source, strlen(source)) != (ssize_t)strlen(source)) {
        perror(path);
        exit(1);
    }
    close(fd);
    if (mr__policies_create(&p, &opts) != 0 || mr__policies_load(p, &load) != 0) {
        exit(1);
    }
    unlink(path);
    return p;
}

#define TRIVIAL(hook) "return { " hook " = function(ev) end }"

int main(int argc, char **argv)
{
    static const struct {
        const char *name, *source;
        enum hook hook;
    } rows[] = {
        {"register, trivial", TRIVIAL("register"), MR_HOOK_REGISTER},
        {"connect, trivial", TRIVIAL("connect"), MR_HOOK_CONNECT},
        {"create, trivial", TRIVIAL("create"), MR_HOOK_CREATE},
        {"create, a spec and a slot",
         "return { create = function(ev) return { idle = 60, slots = { ['ip/' .. ev.addr.net] = 4 "
         "} } end }",
         MR_HOOK_CREATE},
        {"drop, trivial and dynamic", TRIVIAL("drop"), MR_HOOK_DROP},
        {"drop, dynamic", "return {}", MR_HOOK_DROP},
        {"create, waits once",
         "local relay = require 'relay' return { create = function(ev) relay.sleep(0) end }",
         MR_HOOK_CREATE},
        {"connected, trivial", TRIVIAL("connected"), MR_HOOK_CONNECTED},
        {"created, trivial", TRIVIAL("created"), MR_HOOK_CREATED},
        {"destroyed, trivial", TRIVIAL("destroyed"), MR_HOOK_DESTROYED},
        {"left, trivial", TRIVIAL("left"), MR_HOOK_LEFT},
    };
    unsigned calls = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : CALLS_DEFAULT;

    if (calls == 0) {
        fprintf(stderr, "usage: bench_hook [calls]\n");
        return 2;
    }
    printf("%-32s %8s %8s  (ns a call, %d rounds of %u)\n", "hook", "median", "minimum", ROUNDS,
           calls);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct policies *p = load(rows[i].source);

        measure(rows[i].name, p, rows[i].hook, calls);
        mr__policies_destroy(p);
    }
    return failed == 0 ? 0 : 1;
}
