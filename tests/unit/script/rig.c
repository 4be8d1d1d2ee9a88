/* SPDX-License-Identifier: MIT */
/*
 * The script tests' rig (see rig.h). One thread.
 */
#include "rig.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct rig_request *rendered; /* what say() writes to */

static void on_line(void *user, enum log_level level, const char *line, size_t n)
{
    struct rig *r = user;

    (void)level;
    if (r->log_n + n < sizeof r->log_text) {
        memcpy(r->log_text + r->log_n, line, n);
        r->log_n += n;
        r->log_text[r->log_n] = '\0';
    }
}

static uint64_t mono_ns(void *user)
{
    return ((struct rig *)user)->now_ns;
}

static double wall_s(void *user)
{
    return 1700000000 + (double)((struct rig *)user)->now_ns / 1e9;
}

void rig_start(struct rig *r)
{
    *r = (struct rig){.folder = "/tmp/moonrelay-script-XXXXXX"};
    if (!mkdtemp(r->folder)) {
        abort();
    }
    r->log = (struct log){.level = MR_LOG_DEBUG, .format = MR_LOG_TEXT, .sink = on_line, .user = r};
    /* Far more than the default, so that a machine that stands still for a moment fails no test;
     * those about budgets set their own. */
    r->opts = (struct policies_options){
        .log = &r->log, .seed = 1, .mono_ns = mono_ns, .wall_s = wall_s, .user = r};
    r->now_ns = 1000000000000;
    r->load = (struct policies_load){.cpu_ns = 5000000000};
}

static void unload(struct rig *r)
{
    mr__policies_destroy(r->policies);
    mr__config_unref(r->config);
    r->policies = NULL;
    r->config = NULL;
}

void rig_end(struct rig *r)
{
    char command[128];

    unload(r);
    snprintf(command, sizeof command, "rm -r %s", r->folder);
    if (system(command) != 0) {
        abort();
    }
}

void rig_file(struct rig *r, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0) {
        abort();
    }
}

static void on_loaded(void *user, int rc, const struct script_error *err)
{
    struct rig *r = user;

    r->rc = rc;
    r->err = *err;
}

int rig_load_policies(struct rig *r)
{
    int rc = mr__policies_create(&r->policies, &r->opts);

    if (rc != 0) {
        snprintf(r->err.text, sizeof r->err.text, "out of memory");
        return rc;
    }
    r->load.done = on_loaded;
    r->load.user = r;
    r->load.config = r->config;
    r->rc = -EINPROGRESS;
    rc = mr__policies_load(r->policies, &r->load);
    for (int i = 0; rc == 0 && r->rc == -EINPROGRESS && i < 110; i++) {
        rig_advance(r, 0.1); /* its load() waits */
    }
    rc = rc != 0 ? rc : r->rc;
    if (rc != 0) {
        mr__policies_destroy(r->policies);
        r->policies = NULL;
    }
    return rc;
}

static int parse(struct rig *r, const char *config)
{
    struct config_options copts = {.environment = r->environment};
    char path[256];

    snprintf(path, sizeof path, "%s/moonrelay.lua", r->folder);
    r->err.text[0] = '\0';
    mr__config_unref(r->config);
    r->config = NULL;
    return mr__config_parse(&r->config, &copts, config, strlen(config), path, &r->err);
}

int rig_load(struct rig *r, const char *config)
{
    int rc;

    unload(r);
    rc = parse(r, config);
    return rc != 0 ? rc : rig_load_policies(r);
}

int rig_reload(struct rig *r, const char *config)
{
    int rc = parse(r, config);

    r->rc = -EINPROGRESS;
    r->load.config = r->config;
    rc = rc != 0 ? rc : mr__policies_load(r->policies, &r->load);
    return rc != 0 ? rc : r->rc;
}

int rig_load_policy(struct rig *r, const char *text)
{
    rig_file(r, "p.lua", text);
    return rig_load(r, "return { policies = { './p.lua' } }");
}

/* ---- events and answers ---------------------------------------------------------------------- */

struct str rig_str(const char *s)
{
    return (struct str){s, strlen(s)};
}

static struct hook_session the_session, the_peer;
static struct hook_relay the_relay;
static struct hook_pair the_tags[1], the_meta[1];

void rig_spoil_event(void)
{
    memset(&the_session, 0xff, sizeof the_session);
    memset(&the_peer, 0xff, sizeof the_peer);
    memset(&the_relay, 0xff, sizeof the_relay);
    memset(the_tags, 0xff, sizeof the_tags);
    memset(the_meta, 0xff, sizeof the_meta);
}

struct hook_event rig_event(enum hook hook)
{
    struct hook_event ev = {.hook = hook, .now = 1700000000.5, .id = 7};

    the_tags[0] = (struct hook_pair){rig_str("user"), rig_str("alice")};
    the_meta[0] = (struct hook_pair){rig_str("ticket"), rig_str("t")};
    the_session = (struct hook_session){.id = 12, .oid = rig_str("HOST"), .since = 1699999999};
    the_session.tags = (struct hook_map){the_tags, 1};
    the_session.meta = (struct hook_map){the_meta, 1};
    mr_addr_parse(&the_session.tcp, "10.0.0.1:5000", 13, NULL);
    mr_addr_parse(&the_session.addr, "10.0.0.1:4000", 13, NULL);
    the_peer = the_session;
    the_peer.id = 13;
    the_peer.oid = rig_str("CLIENT");
    the_relay = (struct hook_relay){.id = 1, .text = "51200.17", .port = 51200, .age = 2.5};
    the_relay.session = 12;
    the_relay.addr = the_session.addr;
    the_relay.bytes_in = 100;
    ev.meta = the_session.meta;
    switch (hook) {
    case MR_HOOK_REGISTER:
        ev.session = &the_session;
        break;
    case MR_HOOK_CONNECT:
        ev.from = &the_peer;
        ev.to = &the_session;
        ev.oid = rig_str("HOST");
        ev.mode = rig_str("relay");
        break;
    case MR_HOOK_CREATE:
        ev.session = &the_session;
        ev.peer = &the_peer;
        ev.reason = rig_str("connect");
        ev.addr = the_session.addr;
        break;
    case MR_HOOK_DROP:
        ev.reason = rig_str("unknown_sender");
        mr_addr_parse(&ev.addr, "[2001:db8:1:2::5]:4000", 22, NULL);
        ev.port = 51200;
        ev.size = 100;
        ev.peek = (const uint8_t *)"hello";
        ev.peek_n = 5;
        break;
    case MR_HOOK_LOOKUP:
        ev.meta = (struct hook_map){NULL, 0};
        ev.host = rig_str("db.fleet");
        ev.family = 4;
        ev.op = MR_LOOKUP_SEND;
        break;
    default:
        ev.reason = rig_str("idle");
        ev.relay = &the_relay;
        break;
    }
    return ev;
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    rendered->n += (size_t)vsnprintf(rendered->text + rendered->n,
                                     sizeof rendered->text - rendered->n, format, args);
    va_end(args);
}

static int compare_pairs(const void *a, const void *b)
{
    const struct hook_pair *x = a, *y = b;
    int rc = memcmp(x->key.s, y->key.s, x->key.n < y->key.n ? x->key.n : y->key.n);

    return rc ? rc : (int)x->key.n - (int)y->key.n;
}

static int compare_slots(const void *a, const void *b)
{
    const struct hook_slot *x = a, *y = b;
    int rc = memcmp(x->key.s, y->key.s, x->key.n < y->key.n ? x->key.n : y->key.n);

    return rc ? rc : (int)x->key.n - (int)y->key.n;
}

static void say_tags_and_slots(const struct hook_answer *a)
{
    struct hook_pair tags[MR_TAGS_MAX];
    struct hook_slot slots[MR_SLOTS_MAX];

    /* Sorted, since the order of a Lua table is none. */
    for (size_t i = 0; i < a->tags.n; i++) {
        tags[i] = a->tags.items[i];
    }
    for (size_t i = 0; i < a->n_slots; i++) {
        slots[i] = a->slots[i];
    }
    if (a->tags.n > 0) {
        qsort(tags, a->tags.n, sizeof tags[0], compare_pairs);
        say(" tags{");
        for (size_t i = 0; i < a->tags.n; i++) {
            say("%s%.*s=%.*s", i ? "," : "", (int)tags[i].key.n, tags[i].key.s,
                (int)tags[i].value.n, tags[i].value.s);
        }
        say("}");
    }
    if (a->n_slots > 0) {
        qsort(slots, a->n_slots, sizeof slots[0], compare_slots);
        say(" slots{");
        for (size_t i = 0; i < a->n_slots; i++) {
            say("%s%.*s=%u", i ? "," : "", (int)slots[i].key.n, slots[i].key.s, slots[i].max);
        }
        say("}");
    }
}

static void say_spec(const struct hook_spec *s)
{
    const struct {
        bool has;
        const char *name;
        double value;
    } rows[] = {
        {s->has_ttl, "ttl", (double)s->ttl_ns / 1e9},
        {s->has_idle, "idle", (double)s->idle_ns / 1e9},
        {s->has_pps, "pps", (double)s->pps},
        {s->has_bps, "bps", (double)s->bps},
        {s->has_max_bytes, "max_bytes", (double)s->max_bytes},
        {s->has_hold_packets, "hold_packets", s->hold_packets},
        {s->has_hold_bytes, "hold_bytes", (double)s->hold_bytes},
        {s->has_hold_ns, "hold_ms", (double)s->hold_ns / 1e6},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].has) {
            say(" %s=%.10g", rows[i].name, rows[i].value);
        }
    }
    if (s->target[0]) {
        say(" target=%s", s->target);
    }
}

static void on_done(struct hook_request *req, const struct hook_answer *a)
{
    static const char *const names[] = {"none", "admit", "refuse", "failed", "busy"};

    rendered = (struct rig_request *)(void *)req;
    rendered->calls++;
    say("%s", names[a->outcome]);
    if (a->outcome == MR_HOOK_REFUSE || a->outcome == MR_HOOK_FAILED) {
        say(" %s by %.*s", a->reason, (int)a->policy.n, a->policy.s);
        if (a->mute_ns > 0) {
            say(" mute=%.10g", (double)a->mute_ns / 1e9);
        }
        if (a->message.n > 0) {
            say(": %.*s", (int)a->message.n, a->message.s);
        }
        return;
    }
    if (a->oid.n > 0) {
        say(" oid=%.*s", (int)a->oid.n, a->oid.s);
    }
    if (a->takeover) {
        say(" takeover");
    }
    if (a->via != MR_VIA_NONE) {
        say(" via=%s", a->via == MR_VIA_DIRECT ? "direct" : "relay");
    }
    if (a->address.family != 0) {
        char text[MR_ADDR_TEXT_MAX];

        mr_addr_format(&a->address, text, sizeof text);
        say(" %s", text);
    }
    say_tags_and_slots(a);
    say_spec(&a->spec);
}

const char *rig_start_asking(struct rig *r, struct rig_request *req, const struct hook_event *ev)
{
    const struct hooks *hooks = mr__policies_hooks(r->policies);

    *req = (struct rig_request){.request = {.done = on_done}};
    hooks->ask(hooks->self, &req->request, ev);
    return req->text;
}

const char *rig_ask(struct rig *r, const struct hook_event *ev)
{
    static struct rig_request answers[4]; /* done() may ask again */
    static unsigned which;
    struct rig_request *req = &answers[which++ % 4];

    rig_start_asking(r, req, ev);
    if (req->calls != 1) {
        rendered = req;
        say(" (done was called %u times)", req->calls);
    }
    return req->text;
}

void rig_advance(struct rig *r, double seconds)
{
    const struct hooks *hooks = mr__policies_hooks(r->policies);
    uint64_t until = r->now_ns + (uint64_t)(seconds * 1e9);

    for (unsigned i = 0; hooks->deadline(hooks->self) <= until; i++) {
        uint64_t due = hooks->deadline(hooks->self);

        if (i == 1000000) {
            abort(); /* something is always due */
        }
        r->now_ns = due > r->now_ns ? due : r->now_ns;
        hooks->tick(hooks->self, r->now_ns);
    }
    r->now_ns = until;
}

static void on_called(void *user, int rc, struct str text, bool is_json)
{
    struct rig_answer *answer = user;

    answer->calls++;
    if (rc == 0) {
        snprintf(answer->text, sizeof answer->text, "%s%.*s", is_json ? "json " : "", (int)text.n,
                 text.s ? text.s : "");
    } else {
        snprintf(answer->text, sizeof answer->text, "%d: %.*s", rc, (int)text.n, text.s);
    }
}

const char *rig_call(struct rig *r, struct rig_answer *answer, const char *policy, const char *verb,
                     const char *arg)
{
    struct str args[1];

    if (arg) {
        args[0] = rig_str(arg);
    }
    *answer = (struct rig_answer){.calls = 0};
    mr__policies_call(r->policies, rig_str(policy), rig_str(verb), args, arg ? 1 : 0, on_called,
                      answer);
    return answer->text;
}
