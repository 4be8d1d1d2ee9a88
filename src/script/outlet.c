/* SPDX-License-Identifier: MIT */
/*
 * See outlet.h. Control thread only. Start reading at on_ring().
 *
 * Nothing of a script runs inside of what the host calls: datagrams and lookups are put
 * aside there, and the alarm does the rest.
 */
#include "script/outlet.h"

#include "base/alloc.h"
#include "script/answer.h"
#include "script/event.h"
#include "script/figures.h"
#include "script/generation.h"
#include "script/holder.h"
#include "script/module_part.h"
#include "script/run.h"
#include "script/wait.h"
#include "service/list.h"
#include "service/lookup_answer.h"

#include <assert.h>
#include <errno.h>
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

/* A function of the script that runs of it share: it may be replaced while they wait. */
struct callback {
    struct generation *generation;
    unsigned refs;
    int anchor;
};

struct outlet {
    struct policy *policy;
    struct host_udp *udp;       /* NULL: it is closed */
    struct outlet *prev, *next; /* in generation->outlets */
    unsigned refs;
    bool has_object; /* a script can reach it */
    unsigned flags;
    struct callback *handler, *lookup; /* NULL: none */
    struct alarm alarm;
    struct list calls;
    struct list messages, runs;   /* that wait for a run; whose run waits */
    struct list questions, asked; /* likewise */
    size_t n_messages, bytes, n_runs, n_questions;
    uint64_t received, dropped;
};

/* One datagram on its way to the handler. */
struct message {
    struct list link; /* in outlet->messages, then (when it waits) in outlet->runs */
    struct outlet *outlet;
    struct callback *handler; /* while it runs */
    struct run run;
    struct mr_addr from;
    size_t n;
    void *data; /* until it runs */
};

/* A lookup that the endpoint's own function answers. */
struct question {
    struct list link;
    struct outlet *outlet;
    struct callback *lookup;
    struct run run;
    uint64_t ticket;
    int family;
    enum mr_lookup_op op;
    enum hook_outcome outcome;
    char code[MR_REASON_MAX + 1];
    struct lookup_answer told;
    bool is_forgotten;
    size_t host_n;
    char host[];
};

/* A bind, connect or send that a hook waits for. */
struct outlet_call {
    struct list link;
    struct outlet *outlet;
    struct wait *wait;
    host_job job; /* 0: the endpoint was closed */
};

static struct generation *generation_of(const struct outlet *e)
{
    return e->policy->generation;
}

static const struct script_host *host_of(const struct outlet *e)
{
    return &generation_of(e)->opts.host;
}

static uint64_t now_ns(const struct outlet *e)
{
    const struct runs *rs = generation_of(e)->runs;

    return rs->mono_ns(rs->user);
}

/* ---- functions of the script ----------------------------------------------------------------- */

/* The function at index, which is one. Raises. */
static struct callback *create_callback(lua_State *L, struct generation *g, int index)
{
    struct holder *holder = mr__holder_push(L, mr__free);
    struct callback *c = holder->p = mr__alloc(1, sizeof *c);

    if (!c) {
        luaL_error(L, "not enough memory");
        return NULL;
    }
    lua_pushvalue(L, index);
    c->anchor = mr__anchor_add(L, &g->anchors);
    c->generation = g;
    c->refs = 1;
    holder->p = NULL;
    lua_pop(L, 1);
    return c;
}

static struct callback *ref_callback(struct callback *c)
{
    c->refs++;
    return c;
}

static void unref_callback(struct callback *c)
{
    if (c && --c->refs == 0) {
        mr__anchor_remove(c->generation->state.L, &c->generation->anchors, c->anchor);
        mr__free(c);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static void unref(struct outlet *e)
{
    if (--e->refs > 0) {
        return;
    }
    assert(!e->udp);
    if (e->prev) {
        e->prev->next = e->next;
    } else {
        generation_of(e)->outlets = e->next;
    }
    if (e->next) {
        e->next->prev = e->prev;
    }
    mr__free(e);
}

static bool has_work(const struct outlet *e)
{
    return !mr__list_is_empty(&e->questions) ||
           (!mr__list_is_empty(&e->messages) && e->n_runs < OUTLET_HANDLERS_MAX);
}

/* Nobody can use it any more, and nothing that comes can reach a script. */
static bool is_lost(const struct outlet *e)
{
    return !e->has_object && !e->handler && mr__list_is_empty(&e->calls);
}

/* Lets it ring when there is something to do. */
static void look(struct outlet *e)
{
    if (e->udp && e->alarm.place == 0 && (has_work(e) || is_lost(e))) {
        mr__alarm_set(&generation_of(e)->runs->alarms, &e->alarm, now_ns(e));
    }
}

static void free_message(struct message *m)
{
    struct outlet *e = m->outlet;

    mr__list_remove(&m->link);
    unref_callback(m->handler);
    mr__free(m->data);
    mr__free(m);
    unref(e);
}

static void drop_messages(struct outlet *e)
{
    while (!mr__list_is_empty(&e->messages)) {
        free_message(MR_CONTAINER(e->messages.next, struct message, link));
        e->dropped++;
    }
    e->n_messages = e->bytes = 0;
}

static void free_question(struct question *q)
{
    struct outlet *e = q->outlet;

    mr__list_remove(&q->link);
    unref_callback(q->lookup);
    mr__free(q);
    e->n_questions--;
    unref(e);
}

/* One that runs at this moment ends when it comes back. */
static void forget_question(struct question *q)
{
    mr__run_abandon(&q->run);
    q->is_forgotten = true;
    if (!q->run.is_running) {
        free_question(q);
    }
}

static void forget_questions(struct list *questions)
{
    struct list *next;

    for (struct list *l = questions->next; l != questions; l = next) {
        next = l->next;
        forget_question(MR_CONTAINER(l, struct question, link));
    }
}

static void on_closed(struct alarm *alarm, uint64_t at_ns);

/* Whoever closes it may be any script: who waits is woken when that is over. */
static void close_calls(struct outlet *e)
{
    const struct script_host *host = host_of(e);

    for (struct list *l = e->calls.next; l != &e->calls; l = l->next) {
        struct outlet_call *c = MR_CONTAINER(l, struct outlet_call, link);
        struct alarm *alarm = mr__wait_alarm(c->wait);

        host->cancel(host->user, c->job);
        c->job = 0;
        alarm->ring = on_closed;
        mr__alarm_set(&generation_of(e)->runs->alarms, alarm, 0);
    }
}

void mr__outlet_close(struct outlet *e)
{
    const struct script_host *host = host_of(e);
    struct generation *g = generation_of(e);
    struct host_udp *udp = e->udp;

    if (!udp) {
        return;
    }
    e->udp = NULL;
    close_calls(e);
    host->udp_close(host->user, udp);
    drop_messages(e);
    forget_questions(&e->questions);
    forget_questions(&e->asked);
    unref_callback(e->handler);
    unref_callback(e->lookup);
    e->handler = e->lookup = NULL;
    mr__alarm_clear(&g->runs->alarms, &e->alarm);
    mr__alarms_release(&g->runs->alarms, 1);
    e->policy->n_outlets--;
    unref(e); /* that of being open */
}

static void end_runs(struct outlet *e)
{
    struct list *next;

    for (struct list *l = e->runs.next; l != &e->runs; l = next) {
        struct message *m = MR_CONTAINER(l, struct message, link);

        next = l->next;
        mr__run_abandon(&m->run);
        if (!m->run.is_running) {
            e->n_runs--;
            free_message(m);
        }
    }
}

void mr__outlets_end(struct generation *g)
{
    struct outlet *next;

    for (struct outlet *e = g->outlets; e; e = next) {
        e->refs++;
        mr__outlet_close(e);
        end_runs(e);
        next = e->next;
        unref(e);
    }
}

/* ---- datagrams ------------------------------------------------------------------------------- */

static void push_handler(lua_State *L, struct run *r)
{
    const struct message *m = MR_CONTAINER(r, struct message, run);

    mr__anchor_push(L, &m->handler->generation->anchors, m->handler->anchor);
}

static int push_message(lua_State *L, struct run *r)
{
    const struct message *m = MR_CONTAINER(r, struct message, run);

    lua_pushlstring(L, m->n > 0 ? m->data : "", m->n);
    mr__event_push_address(L, &m->from);
    return 2;
}

static void end_message(struct message *m, int rc, const struct script_failure *failure)
{
    struct outlet *e = m->outlet;

    if (rc != -ECANCELED) {
        mr__figures_took(&m->run, FIGURE_MESSAGE, rc == 0 ? MR_CALL_NONE : MR_CALL_ERROR);
    }
    if (rc != 0 && rc != -ECANCELED) {
        mr__figures_log(&m->run, "on_message", failure);
    }
    e->n_runs--;
    look(e);
    free_message(m);
}

static void on_handled(struct run *r, int rc, const struct script_failure *failure)
{
    end_message(MR_CONTAINER(r, struct message, run), rc, failure);
}

static const struct run_class message_class = {
    .kind = RUN_TIMER,
    .push_function = push_handler,
    .push_arguments = push_message,
    .ended = on_handled,
};

static void start_message(struct outlet *e)
{
    struct message *m = MR_CONTAINER(e->messages.next, struct message, link);
    struct script_failure failure;
    int rc;

    mr__list_remove(&m->link);
    e->n_messages--;
    e->bytes -= m->n;
    e->n_runs++;
    m->handler = ref_callback(e->handler);
    rc = mr__run_start(&m->run, &message_class, e->policy, &failure);
    if (rc == RUN_WAITS) {
        mr__list_push_back(&e->runs, &m->link);
        mr__free(m->data);
        m->data = NULL;
    } else {
        end_message(m, rc, &failure);
    }
}

/* The host's callback: nothing of the script runs in it. */
static void on_message(void *arg, const struct mr_addr *from, const void *data, size_t n)
{
    struct outlet *e = arg;
    bool has_room =
        e->handler && e->n_messages < OUTLET_QUEUE_MAX && e->bytes + n <= OUTLET_QUEUE_BYTES_MAX;
    struct message *m = has_room ? mr__alloc(1, sizeof *m) : NULL;

    e->received++;
    if (m) {
        m->data = mr__alloc(n > 0 ? n : 1, 1);
    }
    if (!m || !m->data) {
        mr__free(m);
        e->dropped++;
        return;
    }
    if (n > 0) {
        memcpy(m->data, data, n);
    }
    m->n = n;
    m->from = *from;
    m->outlet = e;
    e->refs++;
    mr__list_push_back(&e->messages, &m->link);
    e->n_messages++;
    e->bytes += n;
    look(e);
}

/* ---- lookups --------------------------------------------------------------------------------- */

static void push_lookup(lua_State *L, struct run *r)
{
    const struct question *q = MR_CONTAINER(r, struct question, run);

    mr__anchor_push(L, &q->lookup->generation->anchors, q->lookup->anchor);
}

static int push_question(lua_State *L, struct run *r)
{
    const struct question *q = MR_CONTAINER(r, struct question, run);

    lua_pushlstring(L, q->host, q->host_n);
    lua_pushinteger(L, q->family);
    lua_pushstring(L, mr__event_op_name(q->op));
    return 3;
}

static int take_answer(lua_State *L, struct run *r, int index, int n,
                       struct script_failure *failure)
{
    struct question *q = MR_CONTAINER(r, struct question, run);
    char why[ANSWER_WHY_MAX];
    struct answer a;
    int rc;

    luaL_checkstack(L, LUA_MINSTACK, "answer");
    rc = mr__answer_read_address(L, index, n, q->family, r->policy->name, &a, why);
    if (rc != 0) {
        snprintf(failure->text, sizeof failure->text, "%s", why);
        return rc;
    }
    q->outcome = a.outcome;
    if (a.outcome == MR_HOOK_ADMIT) {
        mr__lookup_answer_set(&q->told, &a.address);
    } else if (a.outcome == MR_HOOK_REFUSE) {
        snprintf(q->code, sizeof q->code, "%s", a.reason);
        mr__lookup_answer_refuse(&q->told, a.reason, a.message, strlen(a.message), q->host,
                                 q->host_n);
    }
    return 0;
}

static void fail_question(struct question *q, int rc, const char *code, const char *why)
{
    char host[MR_LOOKUP_SHOWN_MAX];

    mr__lookup_show_host(host, q->host, q->host_n);
    mr__lookup_answer_fail(&q->told, rc, code, "%s: %s", host, why);
}

static enum call_result count_question(struct question *q, int rc,
                                       const struct script_failure *failure)
{
    struct policy_figures *figures = q->run.policy->figures;

    if (rc != 0) {
        mr__figures_log(&q->run, "lookup", failure);
        return MR_CALL_ERROR;
    }
    if (q->outcome == MR_HOOK_REFUSE && figures) {
        mr__figures_refusal(figures, MR_HOOK_LOOKUP, q->code);
    }
    return q->outcome == MR_HOOK_REFUSE  ? MR_CALL_REFUSE
           : q->outcome == MR_HOOK_ADMIT ? MR_CALL_ADMIT
                                         : MR_CALL_NONE;
}

/* It counts as the policy's hook of that name. */
static void end_question(struct question *q, int rc, const struct script_failure *failure)
{
    struct outlet *e = q->outlet;
    const struct script_host *host = host_of(e);
    bool has_opinion = rc != 0 || q->outcome != MR_HOOK_NO_OPINION;

    if (rc != -ECANCELED) {
        mr__figures_took(&q->run, MR_HOOK_LOOKUP, count_question(q, rc, failure));
    }
    if (rc == -ECANCELED || q->is_forgotten || !e->udp) {
        free_question(q);
        return;
    }
    if (rc != 0 && q->run.is_refused_to_wait) {
        fail_question(q, -EBUSY, "busy", "too many lookups wait for policies");
    } else if (rc != 0) {
        fail_question(q, -EIO, "policy-error", "the lookup of the endpoint failed");
    }
    host->udp_answer(host->user, e->udp, q->ticket, has_opinion ? &q->told.answer : NULL);
    free_question(q);
}

static void on_answered(struct run *r, int rc, const struct script_failure *failure)
{
    end_question(MR_CONTAINER(r, struct question, run), rc, failure);
}

static const struct run_class question_class = {
    .kind = RUN_DECISION,
    .is_lookup = true,
    .push_function = push_lookup,
    .push_arguments = push_question,
    .take = take_answer,
    .ended = on_answered,
};

static void start_question(struct outlet *e)
{
    struct question *q = MR_CONTAINER(e->questions.next, struct question, link);
    struct script_failure failure;
    int rc;

    mr__list_remove(&q->link);
    mr__list_push_back(&e->asked, &q->link);
    rc = mr__run_start(&q->run, &question_class, e->policy, &failure);
    if (rc != RUN_WAITS) {
        end_question(q, rc, &failure);
    }
}

static void refuse_question(struct outlet *e, uint64_t ticket, struct str name, int rc)
{
    const struct script_host *host = host_of(e);
    struct lookup_answer told;
    char shown[MR_LOOKUP_SHOWN_MAX];

    mr__lookup_show_host(shown, name.s, name.n);
    mr__lookup_answer_fail(&told, rc, rc == -EBUSY ? "busy" : "failed", "%s: %s", shown,
                           rc == -EBUSY ? "too many lookups wait for the endpoint"
                                        : "not enough memory");
    host->udp_answer(host->user, e->udp, ticket, &told.answer);
}

/* The host's callback. */
static void on_lookup(void *arg, uint64_t ticket, struct str name, int family, enum mr_lookup_op op)
{
    struct outlet *e = arg;
    bool has_room = e->n_questions < OUTLET_LOOKUPS_MAX;
    struct question *q = has_room ? mr__alloc(1, sizeof *q + name.n) : NULL;

    if (!q) {
        refuse_question(e, ticket, name, has_room ? -ENOMEM : -EBUSY);
        return;
    }
    q->outlet = e;
    q->lookup = ref_callback(e->lookup);
    q->ticket = ticket;
    q->family = family;
    q->op = op;
    q->host_n = name.n;
    if (name.n > 0) {
        memcpy(q->host, name.s, name.n);
    }
    e->refs++;
    e->n_questions++;
    mr__list_push_back(&e->questions, &q->link);
    look(e);
}

static struct question *find_question(struct list *questions, uint64_t ticket)
{
    for (struct list *l = questions->next; l != questions; l = l->next) {
        struct question *q = MR_CONTAINER(l, struct question, link);

        if (q->ticket == ticket) {
            return q;
        }
    }
    return NULL;
}

/* The host's callback. */
static void on_forget(void *arg, uint64_t ticket)
{
    struct outlet *e = arg;
    struct question *q = find_question(&e->questions, ticket);

    q = q ? q : find_question(&e->asked, ticket);
    if (q) {
        forget_question(q);
    }
}

/* ---- its turn -------------------------------------------------------------------------------- */

static void on_ring(struct alarm *alarm, uint64_t at_ns)
{
    struct outlet *e = MR_CONTAINER(alarm, struct outlet, alarm);

    (void)at_ns;
    e->refs++;
    if (is_lost(e)) {
        mr__outlet_close(e);
    } else if (!mr__list_is_empty(&e->questions)) {
        start_question(e);
    } else if (has_work(e)) {
        start_message(e);
    }
    look(e);
    unref(e);
}

/* ---- from the module ------------------------------------------------------------------------- */

static struct outlet *create(struct policy *p)
{
    struct generation *g = p->generation;
    struct outlet *e = mr__alloc(1, sizeof *e);

    if (!e || mr__alarms_reserve(&g->runs->alarms, 1) != 0) {
        mr__free(e);
        return NULL;
    }
    e->policy = p;
    e->refs = 1;
    e->has_object = true;
    e->alarm.ring = on_ring;
    mr__list_init(&e->calls);
    mr__list_init(&e->messages);
    mr__list_init(&e->runs);
    mr__list_init(&e->questions);
    mr__list_init(&e->asked);
    return e;
}

/* Takes lookup, whatever comes of it. */
static int open_outlet(struct outlet **out, struct policy *p, int family, struct callback *lookup,
                       unsigned flags)
{
    struct generation *g = p->generation;
    const struct script_host *host = &g->opts.host;
    struct outlet *e = create(p);
    struct host_udp_options opts = {
        .family = family,
        .has_lookup = lookup != NULL,
        .flags = flags,
        .arg = e,
        .message = on_message,
        .lookup = on_lookup,
        .lookup_forget = on_forget,
    };
    int rc = e ? host->udp_open(host->user, &opts, &e->udp) : -ENOMEM;

    if (rc != 0) {
        unref_callback(lookup);
        if (e) {
            mr__alarms_release(&g->runs->alarms, 1);
            mr__free(e);
        }
        return rc;
    }
    e->refs++; /* for as long as it is open */
    e->lookup = lookup;
    e->flags = flags;
    e->next = g->outlets;
    if (g->outlets) {
        g->outlets->prev = e;
    }
    g->outlets = e;
    p->n_outlets++;
    *out = e;
    return 0;
}

int mr__outlet_open(struct outlet **out, lua_State *L, struct policy *p, int family, int lookup,
                    unsigned flags)
{
    struct callback *c;

    if (p->generation->stage == GENERATION_RETIRED) {
        return -ESHUTDOWN; /* it would end before it begins */
    }
    if (p->n_outlets >= OUTLETS_MAX) {
        return -EDQUOT;
    }
    c = lookup != 0 ? create_callback(L, p->generation, lookup) : NULL;
    return open_outlet(out, p, family, c, flags);
}

void mr__outlet_abandon(struct outlet *e)
{
    e->has_object = false;
    look(e); /* it is closed at its turn: a collection is no place for that */
    unref(e);
}

struct host_udp *mr__outlet_udp(const struct outlet *e)
{
    return e->udp;
}

struct policy *mr__outlet_policy(const struct outlet *e)
{
    return e->policy;
}

void mr__outlet_handle(struct outlet *e, lua_State *L, int index)
{
    struct callback *c = NULL, *before = e->handler;

    if (!lua_isnil(L, index)) {
        c = create_callback(L, generation_of(e), index);
    }
    e->handler = c;
    unref_callback(before);
    if (!c) {
        drop_messages(e);
    }
}

void mr__outlet_stats(const struct outlet *e, struct outlet_stats *out)
{
    *out = (struct outlet_stats){
        .received = e->received, .dropped = e->dropped, .waiting = e->n_messages};
}

/* ---- calls that wait ------------------------------------------------------------------------- */

static struct wait *end_call(struct outlet_call *c)
{
    struct outlet *e = c->outlet;
    struct wait *w = c->wait;

    mr__list_remove(&c->link);
    mr__free(c);
    look(e);
    unref(e);
    return w;
}

static void forget_call(void *user)
{
    struct outlet_call *c = user;
    const struct script_host *host = host_of(c->outlet);

    if (c->job != 0) {
        host->cancel(host->user, c->job);
    }
    end_call(c);
}

static int push_result(lua_State *L, void *user)
{
    const struct host_udp_result *r = user;

    if (r->rc != 0) {
        return mr__module_fail(L, r->message, r->code);
    }
    lua_pushboolean(L, 1);
    return 1;
}

void mr__outlet_done(void *arg, const struct host_udp_result *r)
{
    mr__wait_end(end_call(arg), push_result, (void *)(uintptr_t)r);
}

static void on_closed(struct alarm *alarm, uint64_t at_ns)
{
    static const struct host_udp_result closed = {
        .rc = -ECANCELED, .code = "closed", .message = "closed"};
    struct wait *w = mr__wait_of_alarm(alarm);

    (void)at_ns;
    mr__outlet_done(w->user, &closed);
}

struct outlet_call *mr__outlet_begin(struct outlet *e, lua_State *L, const char *function)
{
    struct holder *holder = mr__holder_push(L, mr__free);
    const struct script_host *host = host_of(e);
    unsigned flags = mr__run_is_lookup(L) ? MR_LOOKUP_BUILT_IN : e->flags;
    struct outlet_call *c = holder->p = mr__alloc(1, sizeof *c);

    if (!c) {
        luaL_error(L, "%s: not enough memory", function);
        return NULL;
    }
    c->wait = mr__wait_begin(L, function, forget_call, c);
    holder->p = NULL;
    c->outlet = e;
    e->refs++;
    mr__list_push_back(&e->calls, &c->link);
    if (host->udp_flags) {
        host->udp_flags(host->user, e->udp, flags);
    }
    return c;
}

int mr__outlet_go(lua_State *L, struct outlet_call *c, host_job job)
{
    if (job == 0) {
        mr__wait_drop(end_call(c));
        return mr__module_fail(L, "not enough memory", "failed");
    }
    c->job = job;
    return mr__wait_yield(L, c->wait);
}
