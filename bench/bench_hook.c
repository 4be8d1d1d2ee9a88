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

static unsigned admitted;

static void on_done(struct hook_request *req, const struct hook_answer *answer)
{
    (void)req;
    admitted += answer->outcome == MR_HOOK_ADMIT;
}

static struct str text(const char *s)
{
    return (struct str){s, strlen(s)};
}

static struct hook_event make_event(enum hook hook)
{
    static struct hook_session session;
    static struct hook_pair tags[1];
    struct hook_event ev = {.hook = hook, .now = 1700000000.5, .id = 123456};

    tags[0] = (struct hook_pair){text("user"), text("alice")};
    session = (struct hook_session){.id = 12, .oid = text("useandom26T198340PX75")};
    session.tags = (struct hook_map){tags, 1};
    if (mr_addr_parse(&session.tcp, "203.0.113.5:5000", 16, NULL) != MR_ADDR_OK ||
        mr_addr_parse(&session.addr, "203.0.113.5:4000", 16, NULL) != MR_ADDR_OK) {
        abort();
    }
    ev.addr = session.addr;
    if (hook == MR_HOOK_DROP) {
        ev.reason = text("unknown_sender");
        ev.port = 51200;
        ev.size = 64;
        ev.known = true;
        ev.peek =
            (const uint8_t *)"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        ev.peek_n = 64;
    } else {
        ev.reason = text("connect");
        ev.session = &session;
        ev.peer = &session;
    }
    return ev;
}

/* CPU time of this thread, so that other programs do not count. */
static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(const char *name, struct policies *p, enum hook hook, unsigned calls)
{
    const struct hooks *hooks = mr__policies_hooks(p);
    struct hook_event ev = make_event(hook);
    struct hook_request req = {.done = on_done};
    double rounds[ROUNDS];

    for (int round = 0; round < ROUNDS; round++) {
        double start = now_ns();

        for (unsigned i = 0; i < calls; i++) {
            ev.id++;
            ev.addr.port = (uint16_t)i; /* a new address, as a stranger's is */
            hooks->ask(hooks->self, &req, &ev);
        }
        rounds[round] = (now_ns() - start) / calls;
    }
    qsort(rounds, ROUNDS, sizeof rounds[0], compare);
    printf("%-28s %8.0f %8.0f\n", name, rounds[ROUNDS / 2], rounds[0]);
}

static void on_loaded(void *user, int rc, const struct script_error *err)
{
    (void)user;
    if (rc != 0) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
}

static struct policies *load(const char *source)
{
    char path[] = "/tmp/bench-hook-XXXXXX.lua";
    const char *first[] = {path};
    struct policies_options opts = {.seed = 1};
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

int main(int argc, char **argv)
{
    static const struct {
        const char *name, *source;
        enum hook hook;
    } rows[] = {
        {"create, trivial", "return { create = function(ev) end }", MR_HOOK_CREATE},
        {"create, a spec and a slot",
         "return { create = function(ev) return { idle = 60, slots = { ['ip/' .. ev.addr.net] = 4 "
         "} "
         "} end }",
         MR_HOOK_CREATE},
        {"drop, trivial and dynamic", "return { drop = function(ev) end }", MR_HOOK_DROP},
        {"drop, dynamic", "return {}", MR_HOOK_DROP},
    };
    unsigned calls = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : CALLS_DEFAULT;

    if (calls == 0) {
        fprintf(stderr, "usage: bench_hook [calls]\n");
        return 2;
    }
    printf("%-28s %8s %8s  (ns a call, %d rounds of %u)\n", "hook", "median", "minimum", ROUNDS,
           calls);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct policies *p = load(rows[i].source);

        measure(rows[i].name, p, rows[i].hook, calls);
        mr__policies_destroy(p);
    }
    return admitted > 0 ? 0 : 1;
}
