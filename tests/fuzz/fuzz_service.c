/* SPDX-License-Identifier: MIT */
/*
 * The whole service over the real engine without sockets, on a virtual clock, driven by a
 * program of bytes: connections, any input, registrar datagrams, strangers, policies that
 * answer at once, later or never, take their time, kick, close and block, open ports, flows to
 * targets, relays that scripts want, players seen from other ports, reloads, time. It
 * must keep its books whatever happens. Start reading at step(); to add an action, add a case
 * there.
 */
#include "base/alloc.h"
#include "service/players.h"
#include "service/service.h"
#include "service/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    CONNS_MAX = 24,
    PIDS_MAX = 32,
    OIDS_MAX = 32,
    PENDING_MAX = 64,
    ID_MAX = 32,
    PORTS = 12,
    SESSIONS_MAX = 65536, /* of one run that are watched */
    RELAYS_MAX = 64,      /* at once */
    LOOKUPS_MAX = 64,
    OPENINGS_MAX = 16,
};

/* All that are no decisions. */
#define X(constant, name, is_decision) | (is_decision ? 0 : 1u << MR_HOOK_##constant)
static const unsigned notices = 0 MR_HOOKS(X);
#undef X

struct wire {
    conn_id id; /* 0: closed */
    bool is_paused;
    char line[20000]; /* what of a line was sent so far */
    size_t n;
};

struct machine {
    const uint8_t *p, *end;
    struct settings *settings;
    struct mr *mr;
    struct service *service;
    uint64_t now_ns, random;
    struct wire wires[CONNS_MAX];
    char pids[PIDS_MAX][ID_MAX], oids[OIDS_MAX][ID_MAX];
    unsigned n_pids, n_oids;
    struct hook_request *pending[PENDING_MAX];
    unsigned n_pending;
    unsigned wanted, waiting; /* bits by hook */
    bool has_target;          /* of what policies admit */
    struct {
        host_job job;
        void (*done)(void *arg, const struct mr_lookup_answer *a);
        void *arg;
    } lookups[LOOKUPS_MAX];
    unsigned n_lookups;
    host_job last_lookup;
    uint64_t openings[OPENINGS_MAX]; /* under way; 0: none */
    struct hook_answer answer;
    struct hooks hooks;
    uint64_t spent_ns, spends_ns;         /* the scripts' time: so far, for each call */
    uint64_t kick;                        /* the session that the next hook kicks; 0: none */
    uint64_t due_ns;                      /* of a script's timer */
    unsigned char has_left[SESSIONS_MAX]; /* by id: it was told */
    mr_relay_id created[RELAYS_MAX];      /* and not destroyed */
};

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

static unsigned take(struct machine *m)
{
    return m->p < m->end ? *m->p++ : 0;
}

/* ---- what the service calls ---------------------------------------------------------------- */

static struct wire *find_wire(struct machine *m, conn_id id)
{
    for (unsigned i = 0; i < CONNS_MAX; i++) {
        if (m->wires[i].id == id) {
            return &m->wires[i];
        }
    }
    abort();
}

static void keep_id(char *id, const char *text, size_t n)
{
    memcpy(id, text, n);
    id[n] = '\0';
}

/* Every line begins with a word that a client knows. */
static void check_line(struct machine *m, const char *line, size_t n)
{
    static const char *const words[] = {"set-oid ", "set-pid ", "connect ", "connect-relay ",
                                        "echo ",    "error ",   "limit ",   "notice ",
                                        ".",        "!"};
    bool is_known = false;

    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
        is_known = is_known || (n >= strlen(words[i]) && !memcmp(line, words[i], strlen(words[i])));
    }
    require(is_known);
    if (n > 8 && n - 8 < ID_MAX && !memcmp(line, "set-oid ", 8)) {
        keep_id(m->oids[m->n_oids++ % OIDS_MAX], line + 8, n - 8);
    }
    if (n > 8 && n - 8 < ID_MAX && !memcmp(line, "set-pid ", 8)) {
        keep_id(m->pids[m->n_pids++ % PIDS_MAX], line + 8, n - 8);
    }
}

static void on_send(void *user, conn_id id, const char *data, size_t n)
{
    struct wire *w = find_wire(user, id);

    for (size_t i = 0; i < n; i++) {
        if (data[i] == '\n') {
            check_line(user, w->line, w->n);
            w->n = 0;
        } else {
            require(w->n < sizeof w->line);
            w->line[w->n++] = data[i];
        }
    }
}

static void on_close(void *user, conn_id id)
{
    find_wire(user, id)->id = 0;
}

static void on_pause(void *user, conn_id id, bool is_paused)
{
    struct wire *w = find_wire(user, id);

    require(w->is_paused != is_paused);
    w->is_paused = is_paused;
}

static void on_reply(void *user, const struct mr_addr *to, const struct mr_addr *local,
                     const char *data, size_t n)
{
    (void)user;
    (void)local;
    require(to->port >= 1024);
    require((n == 2 && !memcmp(data, "OK", 2)) ||
            (n == 17 && !memcmp(data, "Unknown host pid!", 17)));
}

static int on_random(void *user, void *buf, size_t n)
{
    struct machine *m = user;

    for (size_t i = 0; i < n; i++) {
        m->random = m->random * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)buf)[i] = (unsigned char)(m->random >> 56);
    }
    return 0;
}

static bool hooks_want(void *self, enum hook hook)
{
    return ((struct machine *)self)->wanted >> hook & 1;
}

/* What a policy does in its hook, before it answers. */
static void run_script(struct machine *m)
{
    uint64_t whom = m->kick;

    m->spent_ns += m->spends_ns;
    m->kick = 0;
    if (whom) {
        (void)mr__players_kick(m->service, whom, (struct str){"in a hook", 9});
    }
}

static void hooks_ask(void *self, struct hook_request *req, const struct hook_event *ev)
{
    struct machine *m = self;

    run_script(m);
    if (m->waiting >> ev->hook & 1 && m->n_pending < PENDING_MAX) {
        m->pending[m->n_pending++] = req;
    } else {
        req->done(req, &m->answer);
    }
}

static void hooks_cancel(void *self, struct hook_request *req)
{
    struct machine *m = self;

    for (unsigned i = 0; i < m->n_pending; i++) {
        if (m->pending[i] == req) {
            m->pending[i] = m->pending[--m->n_pending];
            return;
        }
    }
    abort();
}

/* Each relay is created once and destroyed once, each session leaves once. */
static void note_relay(struct machine *m, mr_relay_id from, mr_relay_id to)
{
    for (unsigned i = 0; i < RELAYS_MAX; i++) {
        if (m->created[i] == from) {
            m->created[i] = to;
            return;
        }
    }
    abort();
}

static void hooks_tell(void *self, const struct hook_event *ev)
{
    struct machine *m = self;

    run_script(m);
    switch (ev->hook) {
    case MR_HOOK_CONNECTED:
        require(ev->from && ev->to && ev->mode.n > 0 && ev->via.n > 0);
        break;
    case MR_HOOK_CREATED:
        require(ev->relay && ev->relay->text[0] && ev->addr.family);
        note_relay(m, 0, ev->relay->id);
        break;
    case MR_HOOK_DESTROYED:
        require(ev->relay && ev->relay->text[0]);
        note_relay(m, ev->relay->id, 0);
        break;
    case MR_HOOK_LEFT:
        require(ev->session && ev->session->oid.n > 0);
        if (ev->session->id < SESSIONS_MAX) {
            require(!m->has_left[ev->session->id]);
            m->has_left[ev->session->id] = 1;
        }
        break;
    default:
        abort();
    }
}

static uint64_t hooks_deadline(void *self)
{
    return ((struct machine *)self)->due_ns;
}

static void hooks_tick(void *self, uint64_t now_ns)
{
    struct machine *m = self;

    require(m->due_ns <= now_ns);
    m->due_ns = UINT64_MAX;
    run_script(m);
}

static uint64_t hooks_spent(void *self)
{
    return ((struct machine *)self)->spent_ns;
}

static uint64_t clock_ns(void *user)
{
    return ((struct machine *)user)->now_ns;
}

/* ---- actions ------------------------------------------------------------------------------- */

/* Few addresses, so that they meet. */
static struct mr_addr take_addr(struct machine *m)
{
    unsigned b = take(m);
    struct mr_addr a = {.ip = {10, 0, 0, (uint8_t)(1 + b % 4)}, .family = 4};

    a.port = (uint16_t)(b & 0x80 ? 53 : 6000 + (b >> 2) % 4);
    if ((b & 0x70) == 0x70) { /* what nobody may be */
        a.ip[0] = b & 1 ? 224 : 0;
    }
    return a;
}

static void accept_one(struct machine *m)
{
    struct mr_addr peer = take_addr(m), local = {.ip = {192, 0, 2, 1}, .port = 8890, .family = 4};

    for (unsigned i = 0; i < CONNS_MAX; i++) {
        if (m->wires[i].id == 0) {
            conn_id id = mr__service_accept(m->service, &peer, &local, m->now_ns);
            m->wires[i].id = id;
            m->wires[i].is_paused = false;
            m->wires[i].n = 0;
            return;
        }
    }
}

/* A command with ids that exist, or the program's own bytes. */
static void input_one(struct machine *m, conn_id id)
{
    static const char *const commands[] = {"register-host\n",
                                           "connect %s\n",
                                           "connect-relay %s\n",
                                           "connect-relay?7 %s a=b\n",
                                           "connect %s",
                                           "echo x\r\n",
                                           "register-host x=y\nconnect-relay %s\n"};
    unsigned b = take(m);
    char line[512];

    if (b & 0x80) {
        size_t n = take(m) % 64u;
        n = n < (size_t)(m->end - m->p) ? n : (size_t)(m->end - m->p);
        mr__service_input(m->service, id, m->p, n, m->now_ns);
        m->p += n;
    } else if (b == 0x7f) {
        static char flood[40000];
        memset(flood, 'x', sizeof flood);
        mr__service_input(m->service, id, flood, sizeof flood, m->now_ns);
    } else {
        const char *text = commands[b % 7];
        const char *oid = m->oids[(b >> 3) % OIDS_MAX], *hole = strstr(text, "%s");
        int n =
            hole ? snprintf(line, sizeof line, "%.*s%s%s", (int)(hole - text), text, oid, hole + 2)
                 : snprintf(line, sizeof line, "%s", text);
        mr__service_input(m->service, id, line, (size_t)n, m->now_ns);
    }
}

static void registrar_one(struct machine *m)
{
    struct mr_addr from = take_addr(m),
                   local = {.ip = {10, 255, 255, 254}, .port = 8809, .family = 4};
    const char *pid = m->pids[take(m) % PIDS_MAX];

    mr__service_registrar(m->service, &from, &local, pid, strlen(pid), m->now_ns);
}

static void inject_one(struct machine *m)
{
    struct mr_addr from = take_addr(m);
    unsigned b = take(m);

    int rc = mr_inject(m->mr, b % PORTS, &from, "0123456789abcdef", b >> 4);
    require(rc == 0 || rc == -ENOENT || rc == -EINVAL); /* a reload may have closed it */
}

static void answer_one(struct machine *m)
{
    if (m->n_pending > 0) {
        unsigned i = take(m) % m->n_pending;
        struct hook_request *req = m->pending[i];
        m->pending[i] = m->pending[--m->n_pending];
        req->done(req, &m->answer);
    }
}

/* How policies answer from now on. */
static void set_policy(struct machine *m)
{
    static const struct hook_slot slots[] = {{{"a/b", 3}, 2}, {{"c", 1}, 1}};
    static const struct hook_pair tags[] = {{{"k", 1}, {"v", 1}}, {{"e", 1}, {NULL, 0}}};
    unsigned b = take(m);

    m->wanted = (take(m) & 0xfu) | notices;
    m->spends_ns = b & 0x10 ? 4000000 : 0;
    m->due_ns = b & 0x20 ? m->now_ns : UINT64_MAX;
    m->waiting = take(m) & 0xfu;
    m->answer = (struct hook_answer){.outcome = (enum hook_outcome)(b % 5)};
    strcpy(m->answer.reason, m->answer.outcome == MR_HOOK_REFUSE ? "no" : "");
    if (m->answer.outcome == MR_HOOK_ADMIT) {
        m->answer.slots = slots;
        m->answer.n_slots = b >> 3 & 1 ? 2 : 0;
        m->answer.tags = (struct hook_map){tags, b >> 4 & 1 ? 2 : 0};
        m->answer.via = (enum hook_via)(b % 3);
        m->answer.takeover = b >> 5 & 1;
        m->answer.oid =
            b >> 6 & 1 ? (struct str){m->oids[0], strlen(m->oids[0])} : (struct str){NULL, 0};
        strcpy(m->answer.spec.target, m->has_target ? "a.fleet:7000" : "");
        m->answer.spec.has_ttl = b >> 7 & 1;
        m->answer.spec.ttl_ns = 1000000000;
    }
    mr__service_set_hooks(m->service, &m->hooks);
}

static void poll_engine(struct machine *m)
{
    struct mr_event events[16];
    int n;

    do {
        n = mr_poll(m->mr, events, 16);
        require(n >= 0);
        for (int i = 0; i < n; i++) {
            mr__service_engine_event(m->service, &events[i], m->now_ns);
        }
    } while (n == 16);
}

/* ---- what policies and people do ----------------------------------------------------------- */

static bool take_text(void *user, const struct hook_relay *v)
{
    memcpy(user, v->text, sizeof v->text);
    return false;
}

static void close_one(struct machine *m)
{
    char text[32] = "";

    mr__players_relays(m->service, (struct hook_map){NULL, 0}, take_text, text);
    int rc = mr__players_close(m->service, (struct str){text, strlen(text)}, (struct str){"x", 1});
    require(rc == (text[0] ? 0 : -ENOENT));
}

static void block_one(struct machine *m)
{
    static const char *const what[] = {"10.0.0.1", "10.0.0.0/30", "10.0.0.2:6000", "k=v", "k=v,e="};
    struct hook_pair pairs[MR_TAGS_MAX];
    char why[MR_CIDR_WHY_MAX];
    struct block_what block;
    unsigned b = take(m);
    const char *text = what[b % 5];

    require(mr__block_parse(&block, text, strlen(text), pairs, why));
    if (b & 0x80) {
        (void)mr__blocks_remove(m->service, &block);
    } else {
        unsigned ended;
        require(mr__blocks_add(m->service, &block, 1 + (b >> 4), (struct str){"x", 1},
                               (struct str){"fuzz", 4}, &ended) == 0);
    }
}

static void resolve(struct settings *settings, const char *ports, const char *errors);

static void reload(struct machine *m)
{
    static const char *const ports[] = {"50000+11", "50004+3", "50000+11,60000+3", "50008+7"};
    struct settings *fresh = mr__settings_create();
    struct port_report report;
    unsigned b = take(m);

    require(fresh != NULL);
    resolve(fresh, ports[b % 4], b & 0x10 ? "off" : "on");
    require(mr__settings_adopt(fresh, m->settings, NULL, NULL) == 0);
    int rc = mr__service_apply_settings(m->service, fresh, &report, m->now_ns);
    if (rc < 0) { /* many reloads before the engine has had its turn to close anything */
        require(rc == -ENOSPC);
        mr__settings_destroy(fresh);
        return;
    }
    mr__settings_destroy(m->settings);
    m->settings = fresh;
}

/* ---- targets ------------------------------------------------------------------------------- */

static host_job on_lookup(void *user, struct str host, int family, enum mr_lookup_op op,
                          unsigned flags, void (*done)(void *arg, const struct mr_lookup_answer *a),
                          void *arg)
{
    struct machine *m = user;

    require(host.n > 0 && family == 4 && op == MR_LOOKUP_TARGET && flags == 0);
    if (m->n_lookups == LOOKUPS_MAX) {
        return 0;
    }
    m->lookups[m->n_lookups].job = ++m->last_lookup;
    m->lookups[m->n_lookups].done = done;
    m->lookups[m->n_lookups++].arg = arg;
    return m->last_lookup;
}

static void on_lookup_cancel(void *user, host_job job)
{
    struct machine *m = user;

    for (unsigned i = 0; i < m->n_lookups; i++) {
        if (m->lookups[i].job == job) {
            m->lookups[i] = m->lookups[--m->n_lookups];
            return;
        }
    }
    abort();
}

/* A server, one of our own addresses, nothing at all. */
static void answer_lookup(struct machine *m)
{
    unsigned b = take(m), i = m->n_lookups ? b % m->n_lookups : 0;
    struct mr_lookup_answer a = {.addr = {.ip = {10, 4, 4, (uint8_t)(b >> 6)}, .family = 4}};

    if (m->n_lookups == 0) {
        return;
    }
    if ((b & 0x38) == 0x38) {
        a = (struct mr_lookup_answer){.rc = -ENOENT, .code = "not-found", .message = "no such"};
    } else if ((b & 0x38) == 0x30) {
        a.addr = (struct mr_addr){.ip = {b & 0x40 ? 0 : 127, 0, 0, b & 0x40 ? 0 : 1}, .family = 4};
    }
    void (*done)(void *arg, const struct mr_lookup_answer *a) = m->lookups[i].done;
    void *arg = m->lookups[i].arg;
    m->lookups[i] = m->lookups[--m->n_lookups];
    done(arg, &a);
}

static void open_fronts(struct machine *m)
{
    unsigned b = take(m), n = 0;
    struct open_port ports[3];
    struct open_report report;

    for (unsigned i = 0; i < 3; i++) {
        if (b >> i & 1) {
            ports[n] = (struct open_port){.number = (uint16_t)(i == 2 ? 0 : 7000 + i), .place = ""};
            strcpy(ports[n].spec.target, b & 8 ? "10.4.4.9:7000" : "");
            n++;
        }
    }
    mr__service_open_fronts(m->service, ports, n, &report, m->now_ns);
    require(report.opened <= n);
}

static void inject_new(struct machine *m)
{
    struct mr_addr from = take_addr(m), server = {.ip = {10, 4, 4, 1}, .port = 7000, .family = 4};
    unsigned b = take(m);

    int rc = mr_inject(m->mr, b % 16, b & 0x80 ? &server : &from, "0123456789abcdef", b >> 4 & 7);
    require(rc == 0 || rc == -EINVAL); /* no such port */
}

static void on_opened(void *arg, const struct open_answer *a)
{
    uint64_t *opening = arg;

    require(*opening != 0 && (!a || (a->code != NULL) == (a->relay == NULL)));
    *opening = 0;
}

static void want_one(struct machine *m)
{
    unsigned b = take(m);
    uint64_t *opening = &m->openings[b % OPENINGS_MAX];
    struct open_spec spec = {.peer = take_addr(m), .port = (uint16_t)(7000 + (b >> 5 & 1))};
    char pair[32] = "";

    if (*opening != 0) {
        if (b & 0x80) {
            mr__players_open_cancel(m->service, *opening);
            *opening = 0;
        }
        return;
    }
    if (b & 0x40) {
        strcpy(spec.spec.target, "b.fleet:7000");
    } else if (b & 0x10) {
        mr__players_relays(m->service, (struct hook_map){NULL, 0}, take_text, pair);
        spec.pair = (struct str){pair, strlen(pair)};
    }
    *opening = 1; /* it may be told before its name is known, but not from inside */
    *opening = mr__players_open(m->service, &spec, on_opened, opening);
}

static void route(struct machine *m)
{
    unsigned b = take(m);

    switch (b % 5) {
    case 0:
        open_fronts(m);
        break;
    case 1:
        inject_new(m);
        break;
    case 2:
        answer_lookup(m);
        break;
    case 3:
        want_one(m);
        break;
    case 4:
        m->has_target = !m->has_target;
        break;
    }
}

static void act(struct machine *m)
{
    unsigned b = take(m);

    switch (b % 6) {
    case 0:
        (void)mr__players_kick(m->service, b >> 3, (struct str){"x", 1});
        break;
    case 1:
        close_one(m);
        break;
    case 2:
        block_one(m);
        break;
    case 3:
        reload(m);
        break;
    case 4:
        m->kick = b >> 3;
        break;
    case 5:
        (void)mr__players_notify(m->service, b >> 3, (struct str){"word", 4});
        break;
    }
}

static void step(struct machine *m)
{
    unsigned b = take(m);
    struct wire *w = &m->wires[(b >> 3) % CONNS_MAX];

    switch (b & 7) {
    case 0:
        accept_one(m);
        break;
    case 1:
        if (w->id && !w->is_paused) {
            input_one(m, w->id);
        }
        break;
    case 2:
        if (w->id) {
            conn_id id = w->id;
            if (take(m) & 1) {
                mr__service_eof(m->service, id, m->now_ns);
            } else {
                w->id = 0;
                mr__service_closed(m->service, id, MR_CONN_RESET, m->now_ns);
            }
        }
        break;
    case 3:
        registrar_one(m);
        break;
    case 4:
        inject_one(m);
        break;
    case 5:
        m->now_ns += (uint64_t)take(m) * 20000000;
        poll_engine(m);
        mr__service_tick(m->service, m->now_ns);
        break;
    case 6:
        answer_one(m);
        break;
    case 7:
        if (b >> 6 == 3) {
            act(m);
        } else if (b >> 5 == 5) {
            route(m);
        } else {
            set_policy(m);
        }
        break;
    }
}

/* ---- books --------------------------------------------------------------------------------- */

static double metric(const char *page, const char *name)
{
    const char *at = strstr(page, name);

    require(at != NULL);
    return strtod(at + strlen(name), NULL);
}

/* Every slot's count is the number of those who hold it. */
static void check_slots(const struct service *s)
{
    static const char *const keys[] = {"a/b", "c"};

    for (unsigned k = 0; k < 2; k++) {
        uint64_t hash = mr__service_hash(s, keys[k], strlen(keys[k]));
        struct table_node *n = mr__table_first(&s->slots, hash);
        const struct slot *slot = n ? MR_CONTAINER(n, struct slot, node) : NULL;
        uint32_t holders = 0;

        for (struct list *l = s->all_sessions.next; l != &s->all_sessions; l = l->next) {
            const struct session *p = MR_CONTAINER(l, struct session, at_all);
            for (size_t i = 0; i < p->slots.n; i++) {
                holders += p->slots.items[i] == slot;
            }
        }
        for (size_t i = 0; i < s->pool.n; i++) {
            for (size_t j = 0; j < s->pool.seats[i]->slots.n; j++) {
                holders += s->pool.seats[i]->slots.items[j] == slot;
            }
        }
        require((slot ? slot->count : 0) == holders);
    }
    require(s->slots.n <= 2);
}

static unsigned count_dynamics_to(const struct service *s, mr_relay_id relay)
{
    unsigned n = 0;

    for (size_t i = 0; i < s->pool.n; i++) {
        const struct seat *seat = s->pool.seats[i];
        n += seat->state == MR_SEAT_USED && seat->source && seat->target == relay;
    }
    return n;
}

static unsigned count_flows(const struct service *s, uint32_t port)
{
    unsigned n = 0;

    for (size_t i = 0; i < s->pool.n; i++) {
        const struct seat *seat = s->pool.seats[i];
        n += seat->state == MR_SEAT_USED && seat->kind == MR_SEAT_TARGET && seat->entry == port;
    }
    return n;
}

/* What is known of every relay. */
static void check_seats(const struct service *s)
{
    size_t kinds[MR_SEAT_KIND_COUNT] = {0}, used = 0;

    for (size_t i = 0; i < s->pool.n; i++) {
        const struct seat *seat = s->pool.seats[i];
        require(seat->at == i && mr__pool_seat(s, seat->port) == seat);
        require(mr__list_is_empty(&seat->used) == (seat->state != MR_SEAT_USED));
        if (seat->state != MR_SEAT_USED) {
            require(seat->relay == 0 && seat->owner == 0 && seat->slots.n == 0);
            require(!seat->is_leaving && !seat->source);
            continue;
        }
        used++;
        kinds[seat->kind]++;
        require((seat->source != NULL) == (seat->kind != MR_SEAT_PLAYER));
        require(seat->kind != MR_SEAT_TARGET || seat->is_closing ||
                mr_is_linked(s->mr, seat->entry, &seat->peer));
        require(seat->dynamics_to_me == count_dynamics_to(s, seat->relay));
        require(seat->owner == 0 || mr__table_first(&s->sessions, seat->owner));
        require(seat->is_closing || mr__seat_of_relay(s, seat->relay) == seat);
    }
    require(memcmp(kinds, s->pool.n_kind, sizeof kinds) == 0);
    require(used + s->pool.n_ready + s->pool.n_quarantined == s->pool.n);
}

/* Flows to targets, at the ports where they come in. */
static void check_entries(const struct service *s)
{
    for (size_t i = 0; i < s->pool.n; i++) {
        require(s->pool.seats[i]->flows_in == count_flows(s, s->pool.seats[i]->port));
    }
    for (struct list *l = s->fronts.next; l != &s->fronts; l = l->next) {
        const struct front *front = MR_CONTAINER(l, struct front, link);
        require(mr__front_at(s, front->port) == front);
        require(front->flows_in == count_flows(s, front->port));
        require(!front->is_leaving || front->flows_in > 0);
    }
}

/* Who speaks for another is where that one has registered, and is nobody himself. */
static unsigned check_leg(const struct service *s, const struct seat *seat,
                          const struct seat *partner)
{
    struct mr_addr seen;
    struct mr_relay_info info;

    if (mr_pair_latched(s->mr, seat->relay, partner->relay, &seen) != 1) {
        return 0;
    }
    require(mr_relay_info(s->mr, seat->relay, &info) == 0);
    require(mr_in_force(s->mr) < mr_seq(s->mr) || mr_is_linked(s->mr, partner->port, &seen));
    require(mr_pair_is_fresh(s->mr, seat->relay, partner->relay) == 1);
    require(!mr__session_at(s, &seen));
    info.peer.port = seen.port;
    require(mr_addr_equal(&info.peer, &seen));
    return 1;
}

static void check_latches(const struct service *s)
{
    struct mr_stats st;
    unsigned legs = 0;
    size_t n = 0;

    for (struct list *l = s->latches.next; l != &s->latches; l = l->next) {
        n++;
    }
    require(n == s->n_latches && s->latch_sides.n <= 2 * n);
    for (struct list *a = s->pool.used.next; a != &s->pool.used; a = a->next) {
        for (struct list *b = s->pool.used.next; b != &s->pool.used; b = b->next) {
            legs += check_leg(s, MR_CONTAINER(a, struct seat, used),
                              MR_CONTAINER(b, struct seat, used));
        }
    }
    require(mr_get_stats(s->mr, &st, sizeof st) == 0);
    require(st.latches == legs);
}

static void check_books(struct machine *m)
{
    struct mr_stats st;
    uint64_t sum = 0;
    char *page = mr__service_metrics(m->service, NULL, m->now_ns);

    require(page != NULL && mr_get_stats(m->mr, &st, sizeof st) == 0);
    for (unsigned v = 0; v < MR_VERDICT_COUNT; v++) {
        sum += st.verdicts[v];
    }
    require(st.received == sum + st.held);
    require(metric(page, "moonrelay_ports{state=\"free\"} ") +
                metric(page, "moonrelay_ports{state=\"quarantined\"} ") +
                metric(page, "moonrelay_ports{state=\"used\"} ") +
                metric(page, "moonrelay_ports{state=\"open\"} ") ==
            st.ports);
    check_slots(m->service);
    check_entries(m->service);
    check_seats(m->service);
    check_latches(m->service);
    require(metric(page, "\nnoray_relay_count ") ==
            metric(page, "moonrelay_ports{state=\"used\"} "));
    double conns = 0;
    for (unsigned i = 0; i < CONNS_MAX; i++) {
        conns += m->wires[i].id != 0;
    }
    require(metric(page, "\nnoray_tcp_connections ") == conns);
    if (conns == 0) {
        require(metric(page, "\nnoray_active_hosts ") == 0);
    }
    mr__free(page);
}

static void resolve(struct settings *to, const char *ports, const char *errors)
{
    const char *const settings[][2] = {{"udp_relay_ports", ports},
                                       {"errors", errors},
                                       {"latch_window", errors[1] == 'n' ? "10s" : "0"},
                                       {"udp_relay_timeout", "2s"},
                                       {"oid_length", "2"},
                                       {"oid_charset", "abcd"},
                                       {"pid_length", "20"},
                                       {"max_connections", "20"},
                                       {"udp_relay_max_individual_traffic", "100"},
                                       {"max_sessions_per_connection", "4"}};

    for (unsigned i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        require(mr__settings_offer(to, MR_SETTING_CONFIG, settings[i][0], settings[i][1],
                                   strlen(settings[i][1]), NULL) == 0);
    }
    require(mr__settings_resolve(to) == 0);
}

static void open_machine(struct machine *m)
{
    struct mr_options o;
    struct port_report report;

    m->settings = mr__settings_create();
    require(m->settings != NULL);
    resolve(m->settings, "50000+11", "on");
    mr_options_init(&o, sizeof o);
    o.workers = 0;
    o.io = MR_IO_NONE;
    o.max_ports = 64;
    o.hold.flows = 64;
    o.hold.memory_bytes = 65536;
    o.limits.idle_ns = 2000000000;
    o.limits.relay_bytes_per_s = 100;
    o.clock_ns = clock_ns;
    o.clock_user = m;
    require(mr_create(&m->mr, &o) == 0);
    m->hooks = (struct hooks){.self = m,
                              .wants = hooks_want,
                              .ask = hooks_ask,
                              .cancel = hooks_cancel,
                              .tell = hooks_tell,
                              .deadline = hooks_deadline,
                              .tick = hooks_tick,
                              .spent_ns = hooks_spent};
    m->due_ns = UINT64_MAX;
    struct service_options so = {
        .settings = m->settings,
        .mr = m->mr,
        .out = {m, on_send, on_close, on_pause, on_reply, on_random, on_lookup, on_lookup_cancel},
    };
    require(mr__service_create(&m->service, &so, m->now_ns) == 0);
    require(mr__service_open_ports(m->service, &report) == 0);
    m->wanted = notices; /* watched from the start */
    mr__service_set_hooks(m->service, &m->hooks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct machine machine;
    struct machine *m = &machine;

    memset(m, 0, sizeof *m);
    m->p = data;
    m->end = data + size;
    m->now_ns = 1000000000;
    m->random = 1;
    open_machine(m);
    while (m->p < m->end) {
        step(m);
    }
    poll_engine(m);
    mr__service_tick(m->service, m->now_ns); /* what shall end has ended */
    check_books(m);
    mr__service_destroy(m->service);
    require(m->n_pending == 0 && m->n_lookups == 0);
    mr_destroy(m->mr);
    mr__settings_destroy(m->settings);
    require(mr__alloc_live() == 0);
    return 0;
}
