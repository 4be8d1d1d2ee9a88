/* SPDX-License-Identifier: MIT */
/*
 * The policies as the rest of the program sees them: what is asked for is done by
 * chain.c, notice.c, command.c and reload.c. Control thread only. Start reading at
 * mr__policies_create() and tick().
 */
#include "script/policies.h"

#include "base/alloc.h"
#include "script/chain.h"
#include "script/digest.h"
#include "script/event.h"
#include "script/sandbox.h"
#include "script/tally.h"

#include <errno.h>
#include <time.h>

/* ---- hooks ----------------------------------------------------------------------------------- */

static bool wants(void *self, enum hook hook)
{
    const struct policies *p = self;

    for (size_t i = 0; i < mr__policies_count(p); i++) {
        if (mr__policy_has(&p->generation->policies[i], hook)) {
            return true;
        }
    }
    return false;
}

static uint64_t deadline(void *self)
{
    const struct policies *p = self;

    return p->told_first ? 0 : mr__alarms_next(&p->runs.alarms);
}

/* At least one thing is done, so that a slow script does not keep the others from ever running. */
static void tick(void *self, uint64_t now_ns)
{
    struct policies *p = self;
    uint64_t before = p->runs.spent_ns;

    for (int i = 0; i < TICK_RUNS_MAX; i++) {
        bool has_rung = mr__alarms_ring(&p->runs.alarms, now_ns);
        bool has_told = mr__notice_tell_next(p);

        if ((!has_rung && !has_told) || p->runs.spent_ns - before >= TICK_SCRIPT_NS) {
            return;
        }
    }
}

static uint64_t spent_ns(void *self)
{
    return ((const struct policies *)self)->runs.spent_ns;
}

/* ---- life ------------------------------------------------------------------------------------ */

static uint64_t system_mono_ns(void *user)
{
    struct timespec t;

    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int mr__policies_create(struct policies **out, const struct policies_options *opts)
{
    struct policies *p = mr__alloc(1, sizeof *p);

    if (!p) {
        return -ENOMEM;
    }
    p->tallies = mr__tallies_create();
    if (!p->tallies) {
        mr__free(p);
        return -ENOMEM;
    }
    p->opts = *opts;
    p->opts.wall_s = opts->wall_s ? opts->wall_s : mr__sandbox_wall_s;
    p->opts.mono_ns = opts->mono_ns ? opts->mono_ns : system_mono_ns;
    p->runs.mono_ns = p->opts.mono_ns;
    p->runs.user = p->opts.user;
    p->hooks = (struct hooks){
        .self = p,
        .wants = wants,
        .ask = mr__chain_ask,
        .cancel = mr__chain_cancel,
        .tell = mr__notice_tell,
        .deadline = deadline,
        .tick = tick,
        .spent_ns = spent_ns,
    };
    *out = p;
    return 0;
}

void mr__policies_destroy(struct policies *p)
{
    if (!p) {
        return;
    }
    mr__reload_deinit(p);
    mr__chains_deinit(p);
    mr__notices_deinit(p);
    mr__figures_deinit(&p->figures);
    mr__alarms_deinit(&p->runs.alarms);
    mr__tallies_destroy(p->tallies); /* policies' objects point into them */
    mr__free(p);
}

const struct hooks *mr__policies_hooks(struct policies *p)
{
    return &p->hooks;
}

/* ---- what is there --------------------------------------------------------------------------- */

struct config *mr__policies_config(const struct policies *p)
{
    return p->generation ? p->generation->sources->config : NULL;
}

void mr__policies_files(const struct policies *p, void (*visit)(void *user, const char *path),
                        void *user)
{
    for (size_t i = 0; i < mr__policies_count(p); i++) {
        const struct policy_source *s = p->generation->policies[i].source;

        for (size_t k = 0; !s->is_shipped && k < s->n_required; k++) {
            visit(user, s->required[k].chunk + 1);
        }
        if (!s->is_shipped) {
            visit(user, s->origin);
        }
    }
}

static size_t count_waiting(const struct policies *p)
{
    size_t n = 0;

    for (size_t kind = 0; kind < RUN_KIND_COUNT; kind++) {
        n += p->runs.n_waiting[kind];
    }
    return n;
}

static size_t count_generations(const struct policies *p)
{
    size_t n = p->generation ? 1 : 0;

    for (const struct generation *g = p->retired; g; g = g->next) {
        n++;
    }
    return n;
}

void mr__policies_generation(const struct policies *p, struct generation_info *out)
{
    *out = (struct generation_info){
        .number = p->number,
        .loaded_at = p->loaded_at,
        .load_seconds = p->load_seconds,
        .memory_bytes = p->generation ? p->generation->state.used_bytes : 0,
        .suspended = count_waiting(p),
        .generations = count_generations(p),
    };
}

size_t mr__policies_count(const struct policies *p)
{
    return p->generation ? p->generation->n : 0;
}

void mr__policies_info(const struct policies *p, size_t i, struct policy_info *out)
{
    const struct policy *policy = &p->generation->policies[i];

    *out = (struct policy_info){.name = policy->name,
                                .origin = policy->origin,
                                .is_shadow = policy->is_shadow,
                                .is_skipped_on_error = policy->is_skipped_on_error,
                                .n_commands = policy->n_commands};
    mr__digest_hex(policy->source->text, policy->source->n, out->sha256);
    for (size_t hook = 0; hook < MR_HOOK_COUNT; hook++) {
        struct policy_hook_info *h = &out->hooks[hook];

        h->is_defined = mr__policy_has(policy, hook);
        mr__figures_sum(policy->figures, hook, &h->calls, &h->refusals, &h->errors, &h->seconds);
    }
}

const char *mr__policies_hook_name(enum hook hook)
{
    return mr__event_hook_name(hook);
}

static void write_gauge(struct metrics *m, const char *name, const char *help, uint64_t value)
{
    mr__metrics_family(m, name, MR_METRIC_GAUGE, help);
    mr__metrics_uint(m, NULL, 0, value);
}

void mr__policies_metrics(void *user, struct metrics *m)
{
    const struct policies *p = user;
    struct generation_info g;

    mr__policies_generation(p, &g);
    write_gauge(m, "moonrelay_script_generation", "Number of the policies' generation in use.",
                g.number);
    write_gauge(m, "moonrelay_script_generations",
                "Generations that are alive: older ones end with their last call.", g.generations);
    write_gauge(m, "moonrelay_script_memory_bytes",
                "Memory of the scripts of the generation in use.", g.memory_bytes);
    write_gauge(m, "moonrelay_script_waiting", "Calls of policies that wait for something.",
                g.suspended);
    mr__metrics_family(m, "moonrelay_script_notices_lost_total", MR_METRIC_COUNTER,
                       "Notices that no policy was told since too many were waiting.");
    mr__metrics_uint(m, NULL, 0, p->lost_notices);
    mr__figures_write(&p->figures, m);
    mr__tallies_write(p->tallies, m);
}
