/* SPDX-License-Identifier: MIT */
/*
 * The names of a bench: what asks for an address goes the daemon's way (control/lookup.h),
 * through the hooks `lookup`, then a literal is itself, then the world is asked, which
 * here is the test (bench.h). One thread. Start reading at mr__bench_lookups().
 *
 * Nothing is asked or told from inside a call or a turn of the service: questions wait in
 * a list, and each call of mr__bench_lookups() takes each of them one step further.
 */
#include "module/bench.h"

#include "base/alloc.h"
#include "service/lookup_answer.h"
#include "service/lookup_tally.h"

#include <errno.h>
#include <string.h>

static const uint64_t QUESTION_NS = UINT64_C(5000000000); /* the daemon's patience, too */

struct question {
    struct question *next;
    struct bench *bench;
    host_job job;
    enum {
        QUESTION_NEW,
        QUESTION_CHAIN,   /* the policies think */
        QUESTION_DEFAULT, /* they had no opinion, or were not to be asked */
        QUESTION_WORLD,   /* the test was asked */
        QUESTION_ANSWERED,
    } state;
    uint64_t chain; /* the service's name for it */
    uint64_t deadline_ns;
    char *host;
    size_t host_n;
    int family;
    enum mr_lookup_op op;
    unsigned flags;
    bool is_told;
    void (*done)(void *arg, const struct mr_lookup_answer *a);
    void *arg;
    struct lookup_answer answer;
};

static struct question **find_question(struct bench *b, host_job job)
{
    struct question **at = &b->questions;

    while (*at && (*at)->job != job) {
        at = &(*at)->next;
    }
    return at;
}

/* Out of the list first: what is cancelled may cancel others. */
static void drop(struct bench *b, struct question **at)
{
    struct question *q = *at;

    *at = q->next;
    if (q->state == QUESTION_CHAIN || q->state == QUESTION_WORLD) {
        b->lookups.counts[q->state == QUESTION_CHAIN ? MR_LOOKUP_BY_SCRIPT : MR_LOOKUP_BY_RESOLVER]
                         [MR_LOOKUP_WAS_CANCELLED]++;
    }
    if (q->state == QUESTION_CHAIN && q->chain != 0) {
        mr__service_lookup_cancel(b->service, q->chain);
    }
    mr__free(q->host);
    mr__free(q);
}

/* ---- how they are asked and forgotten -------------------------------------------------------- */

host_job mr__bench_lookup(void *user, struct str host, int family, enum mr_lookup_op op,
                          unsigned flags, void (*done)(void *arg, const struct mr_lookup_answer *a),
                          void *arg)
{
    struct bench *b = user;
    struct question *q = mr__alloc(1, sizeof *q), **last = &b->questions;
    char *copy = q ? mr__strndup(host.n > 0 ? host.s : "", host.n) : NULL;

    if (!copy) {
        mr__free(q);
        return 0;
    }
    *q = (struct question){.bench = b,
                           .job = ++b->last_job,
                           .deadline_ns = b->now_ns + QUESTION_NS,
                           .host = copy,
                           .host_n = host.n,
                           .family = family,
                           .op = op,
                           .flags = flags,
                           .done = done,
                           .arg = arg};
    while (*last) {
        last = &(*last)->next;
    }
    *last = q;
    return q->job;
}

void mr__bench_lookup_cancel(void *user, host_job job)
{
    struct bench *b = user;
    struct question **at = find_question(b, job), *q = *at;

    if (q && (q->is_told || (q->state == QUESTION_CHAIN && q->chain == 0))) {
        q->done = NULL; /* from inside what it asks or tells; it goes when that returns */
    } else if (q) {
        drop(b, at);
    }
}

void mr__bench_lookups_deinit(struct bench *b)
{
    while (b->questions) {
        drop(b, &b->questions);
    }
}

/* ---- a step of one --------------------------------------------------------------------------- */

static void count(struct bench *b, enum lookup_kind kind, enum lookup_result result)
{
    b->lookups.counts[kind][result]++;
}

static void answer(struct question *q, const struct mr_lookup_answer *a, enum lookup_kind by)
{
    mr__lookup_answer_take(&q->answer, a, q->host, q->host_n, q->family);
    count(q->bench, by, mr__lookup_tally_result(&q->answer.answer, by));
    q->state = QUESTION_ANSWERED;
}

/* From inside a turn of the service, or of mr__service_lookup(). */
static void on_chain(void *arg, const struct mr_lookup_answer *a)
{
    struct question *q = arg;

    q->chain = 0;
    if (a) {
        answer(q, a, MR_LOOKUP_BY_SCRIPT);
    } else {
        count(q->bench, MR_LOOKUP_BY_SCRIPT, MR_LOOKUP_WAS_NEXT);
        q->state = QUESTION_DEFAULT;
    }
}

static void ask_chain(struct bench *b, struct question *q)
{
    uint64_t chain;

    q->state = QUESTION_CHAIN;
    chain = mr__service_lookup(b->service, (struct str){q->host, q->host_n}, q->family, q->op,
                               on_chain, q, b->now_ns);
    if (q->state == QUESTION_CHAIN) {
        q->chain = chain;
    }
}

static void ask_world(struct bench *b, struct question *q)
{
    struct happening *h = mr__happening_add(&b->happenings, HAPPENED_LOOKUP);

    q->state = QUESTION_WORLD;
    b->news++;
    mr__happening_text(&b->happenings, h, 0, (struct str){q->host, q->host_n});
    if (h) {
        h->id = q->job;
        h->number = (uint64_t)q->family;
    }
}

static void ask_default(struct bench *b, struct question *q)
{
    struct mr_lookup_answer a = {.rc = 0};

    if (mr__lookup_literal(q->host, q->host_n, q->family, &a.addr)) {
        answer(q, &a, MR_LOOKUP_BY_LITERAL);
    } else {
        ask_world(b, q);
    }
}

/* done() may start the next one, or end any. */
static void tell(struct bench *b, struct question *q)
{
    host_job job = q->job;

    q->is_told = true;
    if (q->done) {
        q->done(q->arg, &q->answer.answer);
    }
    drop(b, find_question(b, job));
}

static void give_up(struct bench *b, struct question *q)
{
    uint64_t chain = q->chain;

    count(b, q->state == QUESTION_CHAIN ? MR_LOOKUP_BY_SCRIPT : MR_LOOKUP_BY_RESOLVER,
          MR_LOOKUP_WAS_TIMEOUT);
    mr__lookup_answer_fail(&q->answer, -ETIMEDOUT, "timeout", "%.*s: no answer within 5 s",
                           (int)q->host_n, q->host);
    q->chain = 0;
    q->state = QUESTION_ANSWERED;
    if (chain != 0) {
        mr__service_lookup_cancel(b->service, chain);
    }
}

static bool is_due(const struct bench *b, const struct question *q)
{
    return q->state == QUESTION_NEW || q->state == QUESTION_DEFAULT ||
           q->state == QUESTION_ANSWERED || b->now_ns >= q->deadline_ns;
}

static void advance(struct bench *b, struct question *q)
{
    if (q->state == QUESTION_ANSWERED) {
        tell(b, q);
    } else if (b->now_ns >= q->deadline_ns) {
        give_up(b, q);
    } else if (q->state == QUESTION_NEW && (q->flags & MR_LOOKUP_BUILT_IN) == 0 &&
               mr__service_wants_lookup(b->service)) {
        ask_chain(b, q);
    } else {
        ask_default(b, q);
    }
}

/* Each question that is there now, once. A step may end any other one: they go by their names,
 * which grow along the list. */
void mr__bench_lookups(struct bench *b)
{
    host_job last = b->last_job, done = 0;

    for (;;) {
        struct question *q = b->questions;

        while (q && (q->job <= done || !is_due(b, q))) {
            q = q->next;
        }
        if (!q || q->job > last) {
            return;
        }
        done = q->job;
        advance(b, q);
    }
}

uint64_t mr__bench_lookups_due(const struct bench *b)
{
    uint64_t due_ns = UINT64_MAX;

    for (const struct question *q = b->questions; q; q = q->next) {
        uint64_t at_ns = is_due(b, q) ? b->now_ns : q->deadline_ns;

        due_ns = at_ns < due_ns ? at_ns : due_ns;
    }
    return due_ns;
}

/* ---- what the test asks and says ------------------------------------------------------------- */

int mr__bench_answer_lookup(struct bench *b, host_job job, const struct mr_lookup_answer *a)
{
    struct question *q = *find_question(b, job);

    if (!q || q->state != QUESTION_WORLD) {
        return -ENOENT;
    }
    answer(q, a, MR_LOOKUP_BY_RESOLVER);
    return mr__bench_settle(b);
}

/* Its arg is the question. */
static void on_asked(void *arg, const struct mr_lookup_answer *a)
{
    const struct question *q = arg;
    struct happenings *to = &q->bench->happenings;
    struct happening *h = mr__happening_add(to, HAPPENED_LOOKED_UP);
    char text[MR_ADDR_TEXT_MAX];

    if (h) {
        h->id = q->job;
    }
    if (a->rc < 0) {
        mr__happening_text(to, h, 1, (struct str){a->code, strlen(a->code)});
        mr__happening_text(to, h, 2, (struct str){a->message, strlen(a->message)});
    } else {
        mr__happening_text(to, h, 0,
                           (struct str){text, mr_addr_format_ip(&a->addr, text, sizeof text)});
    }
}

host_job mr__bench_ask(struct bench *b, struct str host, int family, enum mr_lookup_op op)
{
    host_job job = mr__bench_lookup(b, host, family, op, 0, on_asked, NULL);
    struct question *q = *find_question(b, job);

    if (q) {
        q->arg = q;
    }
    return job;
}
