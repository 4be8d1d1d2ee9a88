/* SPDX-License-Identifier: MIT */
/*
 * See act.h. One thread.
 */
#include "act.h"

#include <stdio.h>
#include <string.h>

static uint64_t mono_ns(void *user)
{
    return ((struct act *)user)->world->now_ns;
}

static double wall_s(void *user)
{
    return 1700000000.0 + (double)mono_ns(user) / 1e9;
}

void act_begin(struct act *a, const char *const *settings)
{
    rig_start(&a->rig);
    a->world = world_open(settings);
    a->rig.opts.service = a->world->service;
    a->rig.opts.mono_ns = mono_ns;
    a->rig.opts.wall_s = wall_s;
    a->rig.opts.user = a;
}

void act_end(struct act *a)
{
    rig_end(&a->rig);
    world_close(a->world);
}

int act_load(struct act *a, const char *top, const char *body)
{
    static char text[65536];
    int rc;

    snprintf(text, sizeof text,
             "local relay = require 'relay' local kept = {}\n"
             "local function same(a, b) if a ~= b then error(tostring(a) .. ' ~= ' .. tostring(b), "
             "2) end end\n"
             "local function fails(part, f, ...) local ok, e = pcall(f, ...)\n"
             "  if ok or not e:find(part, 1, true) then error(tostring(e) .. ', not ' .. part, 2) "
             "end end\n"
             "%s\nreturn { create = function(ev)\n%s\nreturn {} end }",
             top, body);
    rc = rig_load_policy(&a->rig, text);
    if (rc != 0) {
        fprintf(stderr, "# %s\n", a->rig.err.text);
    }
    return rc;
}

const char *act_ask(struct act *a)
{
    struct hook_event ev = rig_event(MR_HOOK_CREATE);
    const char *answer;

    a->rig.log_n = 0;
    a->rig.log_text[0] = '\0';
    answer = rig_ask(&a->rig, &ev);
    if (strcmp(answer, "admit") != 0) {
        fprintf(stderr, "# %s\n", a->rig.log_text);
    }
    return answer;
}

const char *act(struct act *a, const char *body)
{
    return act_load(a, "", body) == 0 ? act_ask(a) : a->rig.err.text;
}
