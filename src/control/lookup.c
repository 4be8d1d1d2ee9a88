/* SPDX-License-Identifier: MIT */
/*
 * See lookup.h. A request is in one list of two: `due` is told (or put to a custom lookup)
 * on the next turn, `elsewhere` waits for a custom lookup or the resolver. What is due is
 * handed out by an idle handle, which is active exactly as long as there is something: so
 * the loop does not sleep and does not end before, in whichever mode it runs, and a
 * literal costs one turn and no system call of ours.
 */
#include "control/lookup.h"

#include "base/alloc.h"
#include "base/log.h"
#include "control/lookup_metrics.h"
#include "control/resolver.h"
#include "service/list.h"
#include "service/lookup_answer.h"
#include "service/lookup_tally.h"
#include "service/metrics.h"

#include <errno.h>
#include <net/if.h>
#include <stdbool.h>
#include <string.h>

enum {
    TIMEOUT_MS = 5000,
    BUCKETS = 256, /* of tickets, which are mostly answered in order */
};
static const uint64_t ms_ns = 1000000;

enum state {
    OVER, /* not ours; so is a request of zeros */
    DUE,
    TO_ASK, /* the custom lookup, on the next turn */
    ASKED,
    RESOLVING,
};

/* From a name server on the same machine to one that was asked three times. */
static const double bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5};
enum { BOUNDS = sizeof bounds / sizeof bounds[0] };

/* A question to a custom lookup, or to a resolver on the loop. */
struct ticket {
    enum lookup_kind kind;
    struct list waiting; /* once it is asked, by until_ns */
    struct ticket *next; /* in its bucket, once it is asked */
    mr_lookup_ticket id;
    uint64_t asked_ns, until_ns;
    struct mr_lookup_request *req; /* NULL: it is over, and freed when ask() returns */
    struct mr_lookup_custom custom;
    bool is_in_ask;
    size_t n;
    char host[];
};

struct queue {
    struct mr_lookup_request *head, **tail;
};

struct mr_lookup {
    uv_loop_t *loop;
    struct log *log;
    uv_idle_t turn;   /* active exactly while something is due */
    uv_timer_t timer; /* active exactly while a ticket waits */
    struct queue due; /* on the next turn */
    struct queue now; /* on this one */
    struct mr_lookup_request *elsewhere;
    struct list waiting; /* tickets that were asked */
    struct ticket *buckets[BUCKETS];
    mr_lookup_ticket last;
    uint64_t timeout_ns;
    struct mr_lookup_custom custom; /* ask NULL: none */
    const struct mr_resolver *whom;
    struct resolver *resolver;
    bool is_closed;
    unsigned handles;
    uint64_t resolver_calls, script_calls;
    struct lookup_tally tally;
    uint64_t durations[BOUNDS + 1];
    double duration_sum;
};

/* ---- lists ------------------------------------------------------------------------------- */

static void queue_init(struct queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void on_turn(uv_idle_t *turn);

static void push_due(struct mr_lookup *l, struct mr_lookup_request *req, enum state state)
{
    req->state = (uint8_t)state;
    req->next = NULL;
    req->link = l->due.tail;
    *l->due.tail = req;
    l->due.tail = &req->next;
    uv_idle_start(&l->turn, on_turn);
}

static void push_elsewhere(struct mr_lookup *l, struct mr_lookup_request *req, enum state state)
{
    req->state = (uint8_t)state;
    req->next = l->elsewhere;
    req->link = &l->elsewhere;
    if (req->next) {
        req->next->link = &req->next;
    }
    l->elsewhere = req;
}

/* Takes it out of the list that it is in. */
static void unlink_request(struct mr_lookup *l, struct mr_lookup_request *req)
{
    *req->link = req->next;
    if (req->next) {
        req->next->link = req->link;
    } else if (l->due.tail == &req->next) {
        l->due.tail = req->link;
    } else if (l->now.tail == &req->next) {
        l->now.tail = req->link;
    }
}

/* ---- figures ----------------------------------------------------------------------------- */

static void count(struct mr_lookup *l, enum lookup_kind kind, enum lookup_result result)
{
    l->tally.counts[kind][result]++;
}

static void log_resolved(struct mr_lookup *l, const struct mr_lookup_request *req, const char *host,
                         enum lookup_result result, uint64_t took_ns)
{
    static const char *const ops[] = {
#define X(constant, name) name,
        MR_LOOKUP_OPS(X)
#undef X
    };

    MR_LOG(l->log, MR_LOG_DEBUG, "lookup", "resolver call", LOG_STR("host", host),
           LOG_STR("family", req->family == 4   ? "4"
                             : req->family == 6 ? "6"
                                                : "either"),
           LOG_STR("op", ops[req->op]), LOG_STR("result", mr__lookup_tally_name(result)),
           LOG_DOUBLE("ms", (double)took_ns / 1e6));
}

static void note_resolved(struct mr_lookup *l, const struct mr_lookup_request *req,
                          const char *host, enum lookup_result result, uint64_t took_ns)
{
    double s = (double)took_ns / 1e9;
    unsigned i = 0;

    while (i < BOUNDS && s > bounds[i]) {
        i++;
    }
    l->durations[i]++;
    l->duration_sum += s;
    count(l, MR_LOOKUP_BY_RESOLVER, result);
    log_resolved(l, req, host, result, took_ns);
}

void mr_lookup_count(const struct mr_lookup *l, struct mr_lookup_counts *out)
{
    *out = (struct mr_lookup_counts){
        .literals = l->tally.counts[MR_LOOKUP_BY_LITERAL][MR_LOOKUP_WAS_OK],
        .resolver_calls = l->resolver_calls,
        .script_calls = l->script_calls,
        .ignored = l->tally.counts[MR_LOOKUP_BY_SCRIPT][MR_LOOKUP_WAS_IGNORED]};
}

void mr__lookup_metrics(void *user, struct metrics *m)
{
    struct mr_lookup *l = user;

    mr__lookup_tally_metrics(&l->tally, m);
    mr__metrics_family(m, "moonrelay_lookup_duration_seconds", MR_METRIC_HISTOGRAM,
                       "How long the resolver took for a name, waiting for a thread included.");
    mr__metrics_histogram(m, NULL, 0, bounds, l->durations, BOUNDS, l->duration_sum);
}

/* ---- answers ----------------------------------------------------------------------------- */

static void succeed(struct mr_lookup *l, struct mr_lookup_request *req, const struct mr_addr *a)
{
    req->addr = *a;
    req->rc = 0;
    req->job = NULL;
    push_due(l, req, DUE);
}

/* The words are kept on the heap: errors are rare, and a request has no room for them. */
static void fail(struct mr_lookup *l, struct mr_lookup_request *req,
                 const struct mr_lookup_answer *why)
{
    struct lookup_answer *told = mr__alloc(1, sizeof *told);

    if (told) {
        mr__lookup_answer_fail(told, why->rc, why->code, "%s", why->message);
    }
    req->rc = told ? why->rc : -ENOMEM;
    req->job = told;
    push_due(l, req, DUE);
}

static void fail_with(struct mr_lookup *l, struct mr_lookup_request *req, int rc, const char *code,
                      const char *host, const char *why)
{
    struct lookup_answer a;

    mr__lookup_answer_fail(&a, rc, code, "%s: %s", host, why);
    fail(l, req, &a.answer);
}

static void tell(struct mr_lookup_request *req)
{
    struct lookup_answer *told = req->job;
    struct mr_lookup_answer answer = {.addr = req->addr};

    if (told) {
        answer = told->answer;
    } else if (req->rc < 0) {
        answer = (struct mr_lookup_answer){
            .rc = req->rc, .code = "failed", .message = "a lookup failed: not enough memory"};
    }
    req->state = OVER;
    req->done(req, &answer);
    mr__free(told);
}

/* ---- the default ------------------------------------------------------------------------- */

/* fe80::1%eth0: only the system can tell which zone that is (core's parser takes numbers). */
static bool read_zoned(struct mr_addr *out, const char *host, size_t n)
{
    const char *zone = memchr(host, '%', n);
    size_t ip_n = zone ? (size_t)(zone - host) : n, zone_n = n - ip_n;
    char name[IF_NAMESIZE];

    if (zone_n < 2 || zone_n > sizeof name || !mr__lookup_literal(host, ip_n, 6, out) ||
        !(mr_addr_classify(out) & MR_ADDR_LINK_LOCAL)) {
        return false;
    }
    memcpy(name, zone + 1, zone_n - 1);
    name[zone_n - 1] = 0;
    out->scope_id = if_nametoindex(name);
    return out->scope_id != 0;
}

static bool read_literal(struct mr_addr *out, const char *host, size_t n)
{
    return mr__lookup_literal(host, n, 0, out) || read_zoned(out, host, n);
}

static void explain(struct lookup_answer *a, const struct resolver_result *r, int family)
{
    const char *host = r->host;
    size_t n = strlen(host);
    struct mr_lookup_answer found = {.addr = r->addr};
    struct mr_addr literal;

    if (r->rc != -ETIMEDOUT && read_literal(&literal, host, n) && family != 0 &&
        literal.family != family) {
        found.addr = literal; /* whatever a resolver makes of it */
    } else if (r->rc == -EAFNOSUPPORT && r->addr.family == 0) {
        mr__lookup_answer_fail(a, r->rc, "family", "%s: it has no IPv%s address", host,
                               family == 6 ? "6" : "4");
        return;
    } else if (r->rc < 0 && r->rc != -EAFNOSUPPORT) {
        mr__lookup_answer_fail(a, r->rc,
                               r->rc == -ENOENT      ? "not-found"
                               : r->rc == -ETIMEDOUT ? "timeout"
                                                     : "failed",
                               "%s: %s", host, r->why);
        return;
    }
    mr__lookup_answer_take(a, &found, host, n, family);
}

static void on_resolved(void *arg, const struct resolver_result *r)
{
    struct mr_lookup_request *req = arg;
    struct mr_lookup *l = req->lookup;
    struct lookup_answer a;

    explain(&a, r, req->family);
    unlink_request(l, req);
    note_resolved(l, req, r->host, mr__lookup_tally_result(&a.answer, MR_LOOKUP_BY_RESOLVER),
                  r->took_ns);
    if (a.answer.rc < 0) {
        fail(l, req, &a.answer);
    } else {
        succeed(l, req, &a.answer.addr);
    }
}

static void ask_resolver(struct mr_lookup *l, struct mr_lookup_request *req, const char *host,
                         size_t n)
{
    char text[MR_LOOKUP_HOST_MAX + 1];
    struct resolver_job *job;
    int rc = mr__resolver_start(l->resolver, &job, l->whom, host, n, req->family, on_resolved, req);

    if (rc == 0) {
        l->resolver_calls++;
        req->job = job;
        push_elsewhere(l, req, RESOLVING);
        return;
    }
    count(l, MR_LOOKUP_BY_RESOLVER, rc == -EBUSY ? MR_LOOKUP_WAS_BUSY : MR_LOOKUP_WAS_FAILED);
    memcpy(text, host, n);
    text[n] = 0;
    fail_with(l, req, rc, rc == -EBUSY ? "busy" : "failed", text,
              rc == -EBUSY    ? "too many names wait for the resolver"
              : rc == -ENOMEM ? "not enough memory"
                              : "no thread for the resolver can be started");
}

static void start_custom(struct mr_lookup *l, struct mr_lookup_request *req, enum lookup_kind kind,
                         const struct mr_lookup_custom *custom, const char *host, size_t n);

static void ask_default(struct mr_lookup *l, struct mr_lookup_request *req, const char *host,
                        size_t n)
{
    struct mr_addr a;

    if (read_literal(&a, host, n) && (req->family == 0 || req->family == a.family)) {
        count(l, MR_LOOKUP_BY_LITERAL, MR_LOOKUP_WAS_OK);
        succeed(l, req, &a);
    } else if (l->whom->on_loop.ask) {
        start_custom(l, req, MR_LOOKUP_BY_RESOLVER, &l->whom->on_loop, host, n);
    } else {
        ask_resolver(l, req, host, n);
    }
}

/* ---- custom lookups ---------------------------------------------------------------------- */

/* Of one whose request is still known. */
static void note_answer(struct mr_lookup *l, const struct ticket *t, enum lookup_result result)
{
    uint64_t took_ns = uv_hrtime() - t->asked_ns;

    if (t->kind == MR_LOOKUP_BY_SCRIPT || result == MR_LOOKUP_WAS_CANCELLED) {
        count(l, t->kind, result);
    }
    if (t->kind == MR_LOOKUP_BY_RESOLVER && result == MR_LOOKUP_WAS_CANCELLED) {
        log_resolved(l, t->req, t->host, result, took_ns);
    } else if (t->kind == MR_LOOKUP_BY_RESOLVER) {
        note_resolved(l, t->req, t->host, result, took_ns);
    }
}

static struct ticket **bucket_of(struct mr_lookup *l, mr_lookup_ticket id)
{
    return &l->buckets[id % BUCKETS];
}

static void free_ticket(struct ticket *t)
{
    if (t->is_in_ask) {
        t->req = NULL; /* ask() may still read the host */
    } else {
        mr__free(t);
    }
}

/* Ends a question that was asked, and takes its request out of `elsewhere`. */
static void end_ticket(struct mr_lookup *l, struct ticket *t)
{
    struct ticket **at = bucket_of(l, t->id);

    while (*at != t) {
        at = &(*at)->next;
    }
    *at = t->next;
    mr__list_remove(&t->waiting);
    if (mr__list_is_empty(&l->waiting)) {
        uv_timer_stop(&l->timer);
    }
    unlink_request(l, t->req);
}

/* Of one that has ended. */
static void forget_ticket(struct ticket *t)
{
    struct mr_lookup_custom custom = t->custom;
    mr_lookup_ticket id = t->id;

    free_ticket(t);
    if (custom.forget) {
        custom.forget(custom.user, id);
    }
}

static void on_timer(uv_timer_t *timer);

/* The timer counts from the loop's idea of now, which may lie behind a long callback. */
static void arm(struct mr_lookup *l)
{
    uint64_t until = MR_CONTAINER(l->waiting.next, struct ticket, waiting)->until_ns;
    uint64_t now = uv_hrtime();

    uv_update_time(l->loop);
    uv_timer_start(&l->timer, on_timer, until <= now ? 0 : (until - now + ms_ns - 1) / ms_ns, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct mr_lookup *l = timer->data;
    uint64_t now = uv_hrtime();

    while (!l->is_closed && !mr__list_is_empty(&l->waiting)) {
        struct ticket *t = MR_CONTAINER(l->waiting.next, struct ticket, waiting);
        struct mr_lookup_request *req = t->req;
        char host[MR_LOOKUP_HOST_MAX + 1] = "";

        if (t->until_ns > now) {
            arm(l);
            return;
        }
        memcpy(host, t->host, t->n);
        req->job = NULL;
        note_answer(l, t, MR_LOOKUP_WAS_TIMEOUT);
        end_ticket(l, t);
        fail_with(l, req, -ETIMEDOUT, "timeout", host, "the lookup gave no answer in time");
        forget_ticket(t);
    }
}

static void ask_custom(struct mr_lookup *l, struct mr_lookup_request *req)
{
    struct ticket *t = req->job;
    struct ticket **bucket;

    t->id = ++l->last;
    bucket = bucket_of(l, t->id);
    t->next = *bucket;
    *bucket = t;
    mr__list_push_back(&l->waiting, &t->waiting);
    if (!uv_is_active((uv_handle_t *)&l->timer)) {
        arm(l);
    }
    push_elsewhere(l, req, ASKED);
    *(t->kind == MR_LOOKUP_BY_RESOLVER ? &l->resolver_calls : &l->script_calls) += 1;
    t->is_in_ask = true;
    t->custom.ask(t->custom.user, t->id, t->host, t->n, req->family, (enum mr_lookup_op)req->op);
    t->is_in_ask = false;
    if (!t->req) {
        mr__free(t);
    }
}

/* The host is copied, since it is put to the custom lookup on the next turn. */
static void start_custom(struct mr_lookup *l, struct mr_lookup_request *req, enum lookup_kind kind,
                         const struct mr_lookup_custom *custom, const char *host, size_t n)
{
    struct ticket *t = mr__alloc(1, sizeof *t + n + 1);

    if (!t) {
        count(l, kind, MR_LOOKUP_WAS_FAILED);
        *(kind == MR_LOOKUP_BY_RESOLVER ? &l->resolver_calls : &l->script_calls) += 1;
        req->rc = -ENOMEM;
        req->job = NULL;
        push_due(l, req, DUE);
        return;
    }
    mr__list_init(&t->waiting);
    t->kind = kind;
    t->asked_ns = uv_hrtime();
    t->until_ns = t->asked_ns + l->timeout_ns;
    t->req = req;
    t->custom = *custom;
    t->n = n;
    memcpy(t->host, host, n);
    req->job = t;
    push_due(l, req, TO_ASK);
}

static void read_answer(struct lookup_answer *a, const struct ticket *t,
                        const struct mr_lookup_answer *from)
{
    static const struct mr_lookup_answer none = {
        .rc = -ENOENT, .code = "not-found", .message = "there is no such name"};
    struct mr_lookup_answer literal = {.rc = 0};
    int family = t->req->family;

    if (!from) {
        mr__lookup_answer_fail(a, none.rc, none.code, "%s: %s", t->host, none.message);
        return;
    }
    if (t->kind == MR_LOOKUP_BY_RESOLVER && read_literal(&literal.addr, t->host, t->n) &&
        literal.addr.family != family) {
        from = &literal; /* whatever a resolver makes of it */
    }
    mr__lookup_answer_take(a, from, t->host, t->n, family);
}

int mr_lookup_answer(struct mr_lookup *l, mr_lookup_ticket ticket,
                     const struct mr_lookup_answer *answer)
{
    struct ticket *t = *bucket_of(l, ticket);
    struct mr_lookup_request *req;
    struct lookup_answer a;

    while (t && t->id != ticket) {
        t = t->next;
    }
    if (!t) {
        count(l, MR_LOOKUP_BY_SCRIPT, MR_LOOKUP_WAS_IGNORED);
        return -EALREADY;
    }
    req = t->req;
    end_ticket(l, t);
    if (!answer && t->kind == MR_LOOKUP_BY_SCRIPT) {
        count(l, MR_LOOKUP_BY_SCRIPT, MR_LOOKUP_WAS_NEXT);
        ask_default(l, req, t->host, t->n);
        free_ticket(t);
        return 0;
    }
    read_answer(&a, t, answer);
    note_answer(l, t, mr__lookup_tally_result(&a.answer, t->kind));
    if (a.answer.rc < 0) {
        fail(l, req, &a.answer);
    } else {
        succeed(l, req, &a.answer.addr);
    }
    free_ticket(t);
    return 0;
}

/* ---- the next turn ----------------------------------------------------------------------- */

static void on_turn(uv_idle_t *turn)
{
    struct mr_lookup *l = turn->data;
    struct mr_lookup_request *req;

    if (l->due.head) {
        l->now = l->due;
        l->now.head->link = &l->now.head;
        queue_init(&l->due);
    }
    while ((req = l->now.head) != NULL) {
        unlink_request(l, req);
        if (req->state == TO_ASK) {
            ask_custom(l, req);
        } else {
            tell(req);
        }
    }
    if (!l->due.head && !l->is_closed) {
        uv_idle_stop(&l->turn);
    }
}

/* ---- questions --------------------------------------------------------------------------- */

static void begin(struct mr_lookup *l, struct mr_lookup_request *req, int family,
                  enum mr_lookup_op op, unsigned flags)
{
    req->lookup = l;
    req->job = NULL;
    req->rc = 0;
    req->family = (uint8_t)family;
    req->op = (uint8_t)op;
    req->flags = (uint8_t)flags;
}

/* False: it is told so. */
static bool check(struct mr_lookup *l, struct mr_lookup_request *req, const char *host, size_t n,
                  int family)
{
    bool is_family = family == 0 || family == 4 || family == 6;

    if (n > 0 && n <= MR_LOOKUP_HOST_MAX && is_family && !memchr(host, 0, n)) {
        return true;
    }
    count(l, MR_LOOKUP_BY_LITERAL, MR_LOOKUP_WAS_FAILED);
    fail_with(l, req, -EINVAL, "failed",
              n == 0                    ? "\"\""
              : n <= MR_LOOKUP_HOST_MAX ? "this host"
                                        : "a host that long",
              is_family ? "a host has 1 to 255 bytes and no NUL"
                        : "a family is 4, 6 or 0 (either)");
    return false;
}

void mr_lookup_default(struct mr_lookup *l, struct mr_lookup_request *req, const char *host,
                       size_t n, int family)
{
    begin(l, req, family, MR_LOOKUP_RESOLVE, MR_LOOKUP_BUILT_IN);
    if (check(l, req, host, n, family)) {
        ask_default(l, req, host, n);
    }
}

void mr_lookup_start_with(struct mr_lookup *l, struct mr_lookup_request *req,
                          const struct mr_lookup_custom *own, const char *host, size_t n,
                          int family, enum mr_lookup_op op, unsigned flags)
{
    static const struct mr_lookup_custom nobody = {.ask = NULL};
    const struct mr_lookup_custom *custom = flags & MR_LOOKUP_BUILT_IN ? &nobody
                                            : own && own->ask          ? own
                                                                       : &l->custom;

    begin(l, req, family, op, flags);
    if (!check(l, req, host, n, family)) {
        return;
    }
    if (custom->ask && (!custom->wants || custom->wants(custom->user))) {
        start_custom(l, req, MR_LOOKUP_BY_SCRIPT, custom, host, n);
    } else {
        ask_default(l, req, host, n);
    }
}

void mr_lookup_start(struct mr_lookup *l, struct mr_lookup_request *req, const char *host, size_t n,
                     int family, enum mr_lookup_op op, unsigned flags)
{
    mr_lookup_start_with(l, req, NULL, host, n, family, op, flags);
}

void mr_lookup_cancel(struct mr_lookup_request *req)
{
    struct mr_lookup *l = req->lookup;
    enum state state = (enum state)req->state;

    req->state = OVER;
    switch (state) {
    case OVER:
        return;
    case DUE:
    case TO_ASK:
        unlink_request(l, req);
        mr__free(req->job); /* words or a ticket that nobody was asked about */
        break;
    case ASKED:
        note_answer(l, req->job, MR_LOOKUP_WAS_CANCELLED);
        end_ticket(l, req->job);
        forget_ticket(req->job);
        break;
    case RESOLVING:
        count(l, MR_LOOKUP_BY_RESOLVER, MR_LOOKUP_WAS_CANCELLED);
        log_resolved(l, req, mr__resolver_host(req->job), MR_LOOKUP_WAS_CANCELLED,
                     mr__resolver_age_ns(req->job));
        unlink_request(l, req);
        mr__resolver_cancel(req->job);
        break;
    }
    if (!l->due.head && !l->now.head) {
        uv_idle_stop(&l->turn);
    }
}

/* ---- life -------------------------------------------------------------------------------- */

static int call_getaddrinfo(void *user, const char *host, const struct addrinfo *hints,
                            struct addrinfo **out)
{
    (void)user;
    return getaddrinfo(host, NULL, hints, out);
}

static void call_freeaddrinfo(void *user, struct addrinfo *list)
{
    (void)user;
    freeaddrinfo(list);
}

void mr_lookup_set_resolver(struct mr_lookup *l, const struct mr_resolver *resolver)
{
    static const struct mr_resolver system = {.getaddrinfo = call_getaddrinfo,
                                              .freeaddrinfo = call_freeaddrinfo};

    l->whom = resolver ? resolver : &system;
}

void mr_lookup_set_custom(struct mr_lookup *l, const struct mr_lookup_custom *custom)
{
    l->custom = custom ? *custom : (struct mr_lookup_custom){.ask = NULL};
}

void mr_lookup_options_init(struct mr_lookup_options *opts, size_t size)
{
    memset(opts, 0, size);
    opts->size = size;
}

int mr_lookup_create(struct mr_lookup **out, const struct mr_lookup_options *opts)
{
    struct resolver_options resolver;
    struct mr_lookup *l;
    int rc;

    if (opts->size != sizeof *opts || !opts->loop) {
        return -EINVAL;
    }
    l = mr__alloc(1, sizeof *l);
    if (!l) {
        return -ENOMEM;
    }
    resolver = (struct resolver_options){.loop = opts->loop,
                                         .threads = opts->threads,
                                         .queue = opts->queue,
                                         .timeout_ms = opts->timeout_ms,
                                         .idle_ms = opts->idle_ms};
    rc = mr__resolver_create(&l->resolver, &resolver);
    if (rc < 0) {
        mr__free(l);
        return rc;
    }
    l->loop = opts->loop;
    l->log = opts->log;
    l->timeout_ns = (opts->timeout_ms ? opts->timeout_ms : TIMEOUT_MS) * ms_ns;
    queue_init(&l->due);
    queue_init(&l->now);
    mr__list_init(&l->waiting);
    mr_lookup_set_resolver(l, NULL);
    uv_idle_init(l->loop, &l->turn);
    uv_timer_init(l->loop, &l->timer);
    l->turn.data = l->timer.data = l;
    l->handles = 2;
    *out = l;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct mr_lookup *l = handle->data;

    if (--l->handles == 0) {
        mr__free(l);
    }
}

void mr_lookup_destroy(struct mr_lookup *l)
{
    if (!l) {
        return;
    }
    while (l->due.head) {
        mr_lookup_cancel(l->due.head);
    }
    while (l->now.head) {
        mr_lookup_cancel(l->now.head);
    }
    while (l->elsewhere) {
        mr_lookup_cancel(l->elsewhere);
    }
    l->is_closed = true;
    mr__resolver_destroy(l->resolver);
    uv_close((uv_handle_t *)&l->turn, on_closed);
    uv_close((uv_handle_t *)&l->timer, on_closed);
}
