/* SPDX-License-Identifier: MIT */
/*
 * Asks the hooks `lookup` for whoever needs an address (control/lookup.h). Control thread.
 * Start reading at mr__service_lookup().
 *
 * A question is a task: when scripts have had what they may have of this tick it waits for
 * the next one, in line with everybody else who wants to ask them. So a policy that looks
 * up slowly delays lookups and nothing beside them.
 */
#include "service/state.h"

#include "base/alloc.h"
#include "service/lookup_answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char too_many[] = "too many lookups wait for policies";

/* One that was asked; in service.lookups until it is told or taken back. */
struct lookup {
    struct pending pending;
    struct list link;
    struct task task; /* ready as long as it waits for its turn */
    uint64_t id;
    int family;
    enum mr_lookup_op op;
    void (*done)(void *arg, const struct mr_lookup_answer *a);
    void *arg;
    size_t host_n;
    char host[];
};

static void free_lookup(struct service *s, struct lookup *l)
{
    mr__ask_cancel(s, &l->pending);
    mr__list_remove(&l->task.link);
    mr__list_remove(&l->link);
    s->n_lookups--;
    mr__free(l);
}

/* ---- answers ------------------------------------------------------------------------------- */

/* false: nobody had an opinion. */
static bool read_answer(struct lookup_answer *out, const struct hook_answer *a,
                        const struct lookup *l)
{
    size_t n = a->policy.n < MR_REASON_MAX ? a->policy.n : MR_REASON_MAX;
    char host[MR_LOOKUP_SHOWN_MAX];

    mr__lookup_show_host(host, l->host, l->host_n);
    switch (a->outcome) {
    case MR_HOOK_NO_OPINION:
        return false;
    case MR_HOOK_ADMIT:
        mr__lookup_answer_set(out, &a->address);
        break;
    case MR_HOOK_REFUSE:
        mr__lookup_answer_refuse(out, a->reason, a->message.s, a->message.n, l->host, l->host_n);
        break;
    case MR_HOOK_FAILED:
        mr__lookup_answer_fail(out, -EIO, "policy-error", "%s: lookup failed in the policy %.*s",
                               host, (int)n, n > 0 ? a->policy.s : "");
        break;
    case MR_HOOK_BUSY:
        mr__lookup_answer_fail(out, -EBUSY, "busy", "%s: %s", host, too_many);
        break;
    }
    return true;
}

static void answered(struct service *s, struct pending *pending, const struct hook_answer *a)
{
    struct lookup *l = MR_CONTAINER(pending, struct lookup, pending);
    void (*done)(void *arg, const struct mr_lookup_answer *a) = l->done;
    void *arg = l->arg;
    struct lookup_answer told;
    bool has_opinion = read_answer(&told, a, l);

    free_lookup(s, l);
    done(arg, has_opinion ? &told.answer : NULL);
}

/* ---- questions ----------------------------------------------------------------------------- */

static void ask(struct service *s, struct task *task)
{
    struct lookup *l = MR_CONTAINER(task, struct lookup, task);
    struct hook_event ev = {
        .hook = MR_HOOK_LOOKUP,
        .host = {l->host, l->host_n},
        .family = l->family,
        .op = l->op,
    };

    mr__ask(s, &l->pending, &ev, answered);
}

static struct lookup *find(const struct service *s, uint64_t id)
{
    for (struct list *i = s->lookups.next; i != &s->lookups; i = i->next) {
        struct lookup *l = MR_CONTAINER(i, struct lookup, link);

        if (l->id == id) {
            return l;
        }
    }
    return NULL;
}

static void tell_failed(const struct lookup *l, struct str host, int rc)
{
    struct lookup_answer told;
    char shown[MR_LOOKUP_SHOWN_MAX];

    mr__lookup_show_host(shown, host.s, host.n);
    mr__lookup_answer_fail(&told, rc, rc == -EBUSY ? "busy" : "failed", "%s: %s", shown,
                           rc == -EBUSY ? too_many : "not enough memory");
    l->done(l->arg, &told.answer);
}

bool mr__service_wants_lookup(const struct service *s)
{
    return mr__ask_is_wanted(s, MR_HOOK_LOOKUP);
}

uint64_t mr__service_lookup(struct service *s, struct str host, int family, enum mr_lookup_op op,
                            void (*done)(void *arg, const struct mr_lookup_answer *a), void *arg,
                            uint64_t now_ns)
{
    const struct lookup asked = {
        .task = {.run = ask},
        .id = s->last_lookup + 1,
        .family = family,
        .op = op,
        .done = done,
        .arg = arg,
        .host_n = host.n,
    };
    bool has_room = s->n_lookups < MR_LOOKUPS_MAX;
    struct lookup *l = has_room ? mr__alloc(1, sizeof *l + host.n) : NULL;

    if (!l) {
        tell_failed(&asked, host, has_room ? -ENOMEM : -EBUSY);
        return 0;
    }
    memcpy(l, &asked, sizeof asked);
    s->last_lookup = asked.id;
    if (host.n > 0) {
        memcpy(l->host, host.s, host.n);
    }
    mr__list_init(&l->task.link);
    mr__list_push_front(&s->lookups, &l->link); /* it is looked for below, and seldom elsewhere */
    s->n_lookups++;
    mr__turn_begin(s, now_ns);
    mr__task_ready(s, &l->task);
    mr__turn_end(s);
    return find(s, asked.id) ? asked.id : 0;
}

void mr__service_lookup_cancel(struct service *s, uint64_t id)
{
    struct lookup *l = find(s, id);

    if (l) {
        free_lookup(s, l);
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

void mr__lookups_init(struct service *s)
{
    mr__list_init(&s->lookups);
}

void mr__lookups_destroy(struct service *s)
{
    while (!mr__list_is_empty(&s->lookups)) {
        free_lookup(s, MR_CONTAINER(s->lookups.next, struct lookup, link));
    }
}
