/* SPDX-License-Identifier: MIT */
/*
 * See deeds.h. Start reading at mr__deeds_of().
 */
#include "server/deeds.h"

#include "base/alloc.h"
#include "control/view.h"
#include "server/banner.h"
#include "service/drain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { OK = 200, NOT_FOUND = 404, REFUSED = 422, BUSY = 503 };

/* ---- status ------------------------------------------------------------------------------ */

/* "command=... registrar=..." as an object. */
static json_t *endpoints_of(const char *line)
{
    json_t *v = json_object();

    while (v && *line) {
        const char *equals = strchr(line, '=');
        size_t n = strcspn(line, " ");
        char key[32];

        if (equals && equals < line + n) {
            snprintf(key, sizeof key, "%.*s", (int)(equals - line), line);
            json_object_set_new(v, key, json_stringn(equals + 1, n - (size_t)(equals + 1 - line)));
        }
        line += n;
        line += *line == ' ';
    }
    return v;
}

static json_t *names_of(const struct policies *p)
{
    json_t *v = json_array();

    for (size_t i = 0; v && i < mr__policies_count(p); i++) {
        struct policy_info info;
        mr__policies_info(p, i, &info);
        json_array_append_new(v, json_string(info.name));
    }
    return v;
}

static json_t *status(void *user)
{
    struct deeds *d = user;
    struct generation_info g;
    struct mr_stats st;
    struct service_counts counts;
    struct drain_view drain;
    const char *not_ready = mr__service_not_ready(d->service, mr__control_now_ns(d->control));
    json_t *endpoints = endpoints_of(d->endpoints);
    char *ranges = mr__banner_relay_ranges(d->mr); /* a reload may have changed them */

    if (ranges) {
        json_object_set_new(endpoints, "relay", json_string(ranges));
    }
    mr__free(ranges);
    char *open = mr__banner_open_ports(d->service);
    if (open && *open) {
        json_object_set_new(endpoints, "open", json_string(open));
    } else {
        json_object_del(endpoints, "open");
    }
    mr__free(open);
    mr_get_stats(d->mr, &st, sizeof st);
    mr__service_counts(d->service, &counts);
    mr__policies_generation(d->policies, &g);
    mr__drain_look(d->service, mr__control_now_ns(d->control), &drain);
    return json_pack("{s:s, s:b, s:s?, s:o, s:f, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
                     "version", mr_version(), "ready", !not_ready, "not_ready", not_ready,
                     "draining", drain.is_on ? json_real(drain.seconds_left) : json_null(),
                     "uptime", mr__control_wall_s(d->control) - d->started_at, "endpoints",
                     endpoints, "connections", (json_int_t)counts.connections, "sessions",
                     (json_int_t)counts.sessions, "relays", (json_int_t)counts.relays, "ports",
                     (json_int_t)st.ports, "workers", (json_int_t)st.workers, "held",
                     (json_int_t)st.held, "generation", (json_int_t)g.number, "policies",
                     names_of(d->policies));
}

/* ---- policies ---------------------------------------------------------------------------- */

static json_t *hooks_of(const struct policy_info *p)
{
    json_t *v = json_object();

    for (int h = 0; v && h < MR_HOOK_COUNT; h++) {
        const struct policy_hook_info *i = &p->hooks[h];
        if (i->is_defined) {
            json_object_set_new(v, mr__policies_hook_name((enum hook)h),
                                json_pack("{s:I, s:I, s:I, s:f}", "calls", (json_int_t)i->calls,
                                          "refusals", (json_int_t)i->refusals, "errors",
                                          (json_int_t)i->errors, "seconds", i->seconds));
        }
    }
    return v;
}

static json_t *policies(void *user)
{
    struct deeds *d = user;
    struct generation_info g;
    json_t *list = json_array();

    mr__policies_generation(d->policies, &g);
    for (size_t i = 0; list && i < mr__policies_count(d->policies); i++) {
        struct policy_info p;
        mr__policies_info(d->policies, i, &p);
        json_array_append_new(
            list, json_pack("{s:s, s:o, s:s, s:b, s:s, s:I, s:o}", "name", p.name, "path",
                            mr__view_text((struct str){p.origin, strlen(p.origin)}), "sha256",
                            p.sha256, "shadow", (int)p.is_shadow, "on_error",
                            p.is_skipped_on_error ? "skip" : "refuse", "commands",
                            (json_int_t)p.n_commands, "hooks", hooks_of(&p)));
    }
    return json_pack("{s:I, s:f, s:f, s:I, s:I, s:I, s:o}", "generation", (json_int_t)g.number,
                     "loaded_at", g.loaded_at, "load_seconds", g.load_seconds, "memory_bytes",
                     (json_int_t)g.memory_bytes, "suspended", (json_int_t)g.suspended,
                     "generations", (json_int_t)g.generations, "policies", list);
}

/* ---- reload ------------------------------------------------------------------------------ */

static void on_reloaded(void *user, const struct reload_result *r)
{
    json_t *live, *restart, *warnings;

    if (r->rc < 0) {
        mr__api_refuse(user, r->rc == -ENOENT ? NOT_FOUND : REFUSED,
                       r->rc == -ENOENT ? "not-found" : "refused", r->text);
        return;
    }
    live = json_array();
    restart = json_array();
    for (size_t i = 0; i < r->n_changes; i++) {
        json_array_append_new(r->changes[i].is_live ? live : restart,
                              json_string(r->changes[i].key));
    }
    warnings = json_array();
    for (size_t i = 0; i < r->n_warnings; i++) {
        const char *text = r->warnings[i].text; /* with a path, which need not be UTF-8 */
        json_array_append_new(warnings, mr__view_text((struct str){text, strlen(text)}));
    }
    mr__api_answer(user, OK,
                   json_pack("{s:I, s:o, s:o, s:o}", "generation", (json_int_t)r->generation,
                             "changed", live, "restart", restart, "warnings", warnings));
}

static void reload(void *user, enum api_reload kind, struct api_later *later)
{
    static const enum reload_kind kinds[] = {[MR_API_RELOAD] = MR_RELOAD,
                                             [MR_API_CHECK] = MR_RELOAD_CHECK,
                                             [MR_API_ROLLBACK] = MR_ROLLBACK};
    struct deeds *d = user;

    if (mr__reload_ask(d->reload, kinds[kind], "control", on_reloaded, later) < 0) {
        mr__api_refuse(later, BUSY, "busy", "too many reloads are waiting");
    }
}

/* ---- commands of policies ---------------------------------------------------------------- */

static void on_called(void *user, int rc, struct str text, bool is_json)
{
    char line[1024];
    json_t *result;

    if (rc < 0) {
        snprintf(line, sizeof line, "%.*s", (int)text.n, text.s);
        mr__api_refuse(user,
                       rc == -ENOENT  ? NOT_FOUND
                       : rc == -EBUSY ? BUSY
                                      : REFUSED,
                       rc == -ENOENT  ? "not-found"
                       : rc == -EBUSY ? "busy"
                                      : "failed",
                       text.n > 0 ? line : mr_strerror(rc));
        return;
    }
    result = is_json ? json_loadb(text.s, text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    result = result ? result : mr__view_text(text);
    mr__api_answer(user, OK, json_pack("{s:o}", "result", result));
}

static void call(void *user, struct str policy, struct str verb, const struct str *args,
                 size_t n_args, struct api_later *later)
{
    struct deeds *d = user;

    mr__policies_call(d->policies, policy, verb, args, n_args, on_called, later);
}

struct api_deeds mr__deeds_of(struct deeds *d)
{
    return (struct api_deeds){
        .user = d, .status = status, .policies = policies, .reload = reload, .call = call};
}
