/* SPDX-License-Identifier: MIT */
/*
 * The script tests' rig (see rig.h). One thread.
 */
#include "rig.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rendered {
    char text[8192];
    size_t n;
    unsigned calls;
};

static struct rendered rendered;

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

void rig_start(struct rig *r)
{
    *r = (struct rig){.folder = "/tmp/moonrelay-script-XXXXXX"};
    if (!mkdtemp(r->folder)) {
        abort();
    }
    r->log = (struct log){.level = MR_LOG_DEBUG, .format = MR_LOG_TEXT, .sink = on_line, .user = r};
    /* Far more than the default, so that a machine that stands still for a moment fails no test;
     * those about budgets set their own. */
    r->opts = (struct policies_options){.log = &r->log, .seed = 1};
    r->load = (struct policies_load){.cpu_ns = 500000000};
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
    rc = mr__policies_load(r->policies, &r->load);
    rc = rc != 0 ? rc : r->rc;
    if (rc != 0) {
        mr__policies_destroy(r->policies);
        r->policies = NULL;
    }
    return rc;
}

int rig_load(struct rig *r, const char *config)
{
    struct config_options copts = {.environment = r->environment};
    char path[256];
    int rc;

    unload(r);
    snprintf(path, sizeof path, "%s/moonrelay.lua", r->folder);
    r->err.text[0] = '\0';
    rc = mr__config_parse(&r->config, &copts, config, strlen(config), path, &r->err);
    if (rc != 0) {
        return rc;
    }
    return rig_load_policies(r);
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

struct hook_event rig_event(enum hook hook)
{
    static struct hook_session session, peer;
    static struct hook_relay relay;
    static struct hook_pair tags[1], meta[1];
    struct hook_event ev = {.hook = hook, .now = 1700000000.5, .id = 7};

    tags[0] = (struct hook_pair){rig_str("user"), rig_str("alice")};
    meta[0] = (struct hook_pair){rig_str("ticket"), rig_str("t")};
    session = (struct hook_session){.id = 12, .oid = rig_str("HOST"), .since = 1699999999};
    session.tags = (struct hook_map){tags, 1};
    session.meta = (struct hook_map){meta, 1};
    mr_addr_parse(&session.tcp, "10.0.0.1:5000", 13, NULL);
    mr_addr_parse(&session.addr, "10.0.0.1:4000", 13, NULL);
    peer = session;
    peer.id = 13;
    peer.oid = rig_str("CLIENT");
    relay = (struct hook_relay){.id = 1, .text = "51200.17", .port = 51200, .age = 2.5};
    relay.session = 12;
    relay.addr = session.addr;
    relay.bytes_in = 100;
    ev.meta = session.meta;
    switch (hook) {
    case MR_HOOK_REGISTER:
        ev.session = &session;
        break;
    case MR_HOOK_CONNECT:
        ev.from = &peer;
        ev.to = &session;
        ev.oid = rig_str("HOST");
        ev.mode = rig_str("relay");
        break;
    case MR_HOOK_CREATE:
        ev.session = &session;
        ev.peer = &peer;
        ev.reason = rig_str("connect");
        ev.addr = session.addr;
        break;
    case MR_HOOK_DROP:
        ev.reason = rig_str("unknown_sender");
        mr_addr_parse(&ev.addr, "[2001:db8:1:2::5]:4000", 22, NULL);
        ev.port = 51200;
        ev.size = 100;
        ev.peek = (const uint8_t *)"hello";
        ev.peek_n = 5;
        break;
    default:
        ev.reason = rig_str("idle");
        ev.relay = &relay;
        break;
    }
    return ev;
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    rendered.n += (size_t)vsnprintf(rendered.text + rendered.n, sizeof rendered.text - rendered.n,
                                    format, args);
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
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].has) {
            say(" %s=%.10g", rows[i].name, rows[i].value);
        }
    }
}

static void on_done(struct hook_request *req, const struct hook_answer *a)
{
    static const char *const names[] = {"none", "admit", "refuse", "failed", "busy"};

    (void)req;
    rendered.calls++;
    say("%s", names[a->outcome]);
    if (a->outcome == MR_HOOK_REFUSE || a->outcome == MR_HOOK_FAILED) {
        say(" %s by %.*s", a->reason, (int)a->policy.n, a->policy.s);
        if (a->mute_ns > 0) {
            say(" mute=%.10g", (double)a->mute_ns / 1e9);
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
    say_tags_and_slots(a);
    say_spec(&a->spec);
}

const char *rig_ask(struct rig *r, const struct hook_event *ev)
{
    const struct hooks *hooks = mr__policies_hooks(r->policies);
    struct hook_request req = {.done = on_done};

    rendered.n = 0;
    rendered.calls = 0;
    rendered.text[0] = '\0';
    hooks->ask(hooks->self, &req, ev);
    if (rendered.calls != 1) {
        say(" (done was called %u times)", rendered.calls);
    }
    return rendered.text;
}
