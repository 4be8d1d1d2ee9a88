/* SPDX-License-Identifier: MIT */
/*
 * Loads, swaps and rollbacks. Control thread only. Start reading at mr__policies_load().
 *
 *   sources ── a generation aside ── files ── load(cfg) of each, which may wait
 *                                       └─ fails: it is thrown away, nothing changed
 *                                    swap: one pointer; the one before is retired, and
 *                                    ends with what is under way in it
 */
#include "script/chain.h"

#include "base/alloc.h"
#include "service/blocks.h"
#include "service/players.h"
#include "service/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- holding --------------------------------------------------------------------------------- */

void mr__generation_hold(struct generation *g)
{
    g->users++;
}

/* ---- what policies kept ---------------------------------------------------------------------- */

static bool has_policy(const struct generation *g, struct str name)
{
    for (size_t i = 0; g && i < g->n; i++) {
        if (strlen(g->policies[i].name) == name.n &&
            memcmp(g->policies[i].name, name.s, name.n) == 0) {
            return true;
        }
    }
    return false;
}

/* Objects of a generation that still runs point to stores, and a rollback shall find what was
 * kept. One that loads opens none. */
static bool is_owner(void *user, struct str name)
{
    const struct policies *p = user;
    const struct policy_sources *before = p->before;

    for (size_t i = 0; before && i < before->n; i++) {
        if (strlen(before->items[i].name) == name.n &&
            memcmp(before->items[i].name, name.s, name.n) == 0) {
            return true;
        }
    }
    for (const struct generation *g = p->retired; g; g = g->next) {
        if (has_policy(g, name)) {
            return true;
        }
    }
    return has_policy(p->generation, name) || has_policy(p->loading, name);
}

/* Stores and limiters outlive reloads, but not for ever the policies they are of. */
static void keep_stores(struct policies *p)
{
    if (p->opts.service) {
        mr__stores_keep(mr__service_stores(p->opts.service), is_owner, p);
    }
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void end_retired(struct policies *p, struct generation *g)
{
    struct generation **at = &p->retired;

    while (*at != g) {
        at = &(*at)->next;
    }
    *at = g->next;
    for (size_t i = 0; i < g->n; i++) {
        mr__figures_give(g->policies[i].figures);
    }
    mr__generation_destroy(g);
}

void mr__generation_let_go(struct policies *p, struct generation *g)
{
    if (--g->users == 0 && g->stage == GENERATION_RETIRED) {
        end_retired(p, g);
        keep_stores(p);
    }
}

/* ---- the swap -------------------------------------------------------------------------------- */

static int take_figures(struct policies *p, struct generation *g)
{
    for (size_t i = 0; i < g->n; i++) {
        g->policies[i].figures = mr__figures_take(&p->figures, g->policies[i].name);
        if (!g->policies[i].figures) {
            return -ENOMEM;
        }
    }
    return 0;
}

/* Block lists of policies that are not there any more go. */
static void keep_lists(struct policies *p, const struct str *owners)
{
    if (p->opts.service) {
        mr__blocks_keep_lists(p->opts.service, owners, p->generation->n);
    }
}

static void retire(struct policies *p, struct generation *g)
{
    if (!g) {
        return;
    }
    g->next = p->retired;
    p->retired = g;
    mr__generation_hold(g);
    mr__generation_retire(g);
    mr__generation_let_go(p, g);
}

/* What a rollback goes back to. To load the same once more, as a watch and an operator do one
 * after the other, must not put it where the sources before it are. */
static void keep_before(struct policies *p, const struct generation *g)
{
    const struct generation *old = p->generation;

    if (old && !(p->before && mr__sources_are_same(old->sources, g->sources))) {
        mr__sources_unref(p->before);
        p->before = mr__sources_ref(old->sources);
    }
}

/* From here on nothing can fail: what needs memory was taken before. */
static void swap(struct policies *p, struct generation *g, const struct str *owners)
{
    struct generation *old = p->generation;

    keep_before(p, g);
    p->generation = g;
    p->number++;
    p->loaded_at = p->opts.wall_s(p->opts.user);
    p->load_seconds = (double)(p->opts.mono_ns(p->opts.user) - p->load_start_ns) / 1e9;
    retire(p, old);
    keep_lists(p, owners);
    keep_stores(p);
    mr__generation_use(g);
}

static int try_swap(struct policies *p, struct generation *g, struct script_error *err)
{
    struct str *owners = mr__alloc(g->n + 1, sizeof *owners);
    int rc = owners ? take_figures(p, g) : -ENOMEM;

    if (rc != 0) {
        *err = (struct script_error){.text = "policies: out of memory"};
    } else {
        for (size_t i = 0; i < g->n; i++) {
            owners[i] = (struct str){g->policies[i].name, strlen(g->policies[i].name)};
        }
        swap(p, g, owners);
    }
    mr__free(owners);
    return rc;
}

/* ---- loading --------------------------------------------------------------------------------- */

static void throw_away(struct generation *g)
{
    for (size_t i = 0; g && i < g->n; i++) {
        mr__figures_give(g->policies[i].figures);
    }
    mr__generation_destroy(g);
}

void mr__policies_log_failure(struct log *log, const struct script_error *err)
{
    struct log_field fields[] = {LOG_STR("error", err->text), LOG_STR("traceback", err->traceback)};

    mr__log(log, MR_LOG_ERROR, "policy", "load failed", fields, err->traceback[0] != '\0' ? 2 : 1);
}

/* Ends the load that is under way. done may start the next one. */
static void end_load(struct policies *p, int rc, const struct script_error *err)
{
    p->is_loading = false;
    p->loading = NULL;
    p->load_done(p->load_user, rc, err);
}

static void on_loaded(void *user, int rc, const struct script_error *err)
{
    struct policies *p = user;
    struct generation *g = p->loading;
    struct script_error said = *err;

    if (rc == 0 && p->load_mode == MR_LOAD_SWAP) {
        rc = try_swap(p, g, &said);
        g = rc == 0 ? NULL : g;
    }
    throw_away(g);
    end_load(p, rc, &said);
}

static void load_sources(struct policies *p, struct policy_sources *sources)
{
    struct generation_options opts = {
        .log = p->opts.log,
        .service = p->opts.service,
        .host = p->opts.host,
        .tallies = p->tallies,
        .runs = &p->runs,
        .cpu_ns = sources->cpu_ns,
        .load_cpu_ns = sources->load_cpu_ns,
        .wait_ns = sources->wait_ns,
        .memory_bytes = sources->memory_bytes,
        .wall_s = p->opts.wall_s,
        .mono_ns = p->opts.mono_ns,
        .user = p->opts.user,
        .seed = p->opts.seed,
    };
    struct script_error err;
    int rc = mr__generation_create(&p->loading, &opts, sources, &err);

    if (rc != 0) {
        end_load(p, rc, &err);
        return;
    }
    mr__generation_load(p->loading, on_loaded, p);
}

static void begin_load(struct policies *p, int mode,
                       void (*done)(void *user, int rc, const struct script_error *err), void *user)
{
    p->is_loading = true;
    p->load_mode = mode;
    p->load_done = done;
    p->load_user = user;
    p->load_start_ns = p->opts.mono_ns(p->opts.user);
}

int mr__policies_load(struct policies *p, const struct policies_load *load)
{
    struct policy_sources *sources;
    struct script_error err = {.text = ""};
    int rc;

    if (p->is_loading || p->runs.depth > 0) {
        return -EBUSY;
    }
    begin_load(p, load->mode, load->done, load->user);
    rc = mr__sources_collect(&sources, load, &err);
    if (rc != 0) {
        end_load(p, rc, &err);
        return 0;
    }
    load_sources(p, sources);
    mr__sources_unref(sources);
    return 0;
}

int mr__policies_rollback(struct policies *p,
                          void (*done)(void *user, int rc, const struct script_error *err),
                          void *user)
{
    struct policy_sources *sources;

    if (p->is_loading || p->runs.depth > 0) {
        return -EBUSY;
    }
    if (!p->before) {
        return -ENOENT;
    }
    sources = mr__sources_ref(p->before); /* the swap puts another in its place */
    begin_load(p, MR_LOAD_SWAP, done, user);
    load_sources(p, sources);
    mr__sources_unref(sources);
    return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

void mr__reload_deinit(struct policies *p)
{
    throw_away(p->loading);
    throw_away(p->generation);
    p->loading = p->generation = NULL;
    while (p->retired) {
        p->retired->users++; /* what it abandons must not end it */
        end_retired(p, p->retired);
    }
    mr__sources_unref(p->before);
}
