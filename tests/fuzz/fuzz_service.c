/* SPDX-License-Identifier: MIT */
/*
 * The whole service over the real engine without sockets, on a virtual clock, driven by a
 * program of bytes: connections, any input, registrar datagrams, strangers, policies that
 * answer at once, later or never, take their time, kick, close and block, open ports, flows to
 * targets, relays that scripts want, lookups, players seen from other ports, reloads, drains,
 * no memory, time. It must keep its books whatever happens (service_books.h). Start reading at
 * step(); to add an action, add a case there that leaves the others' bytes as they are, or the
 * corpus means something else.
 */
#include "service_books.h"

#include "base/alloc.h"
#include "service/players.h"
#include "service/service.h"
#include "service/state.h"

#include <errno.h>
#include <stddef.h>
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
    ASKED_MAX = 8,       /* lookups that policies are asked for */
    VARIANTS = 32,       /* of the settings: lists of ports, errors, caps */
    QUIET_TICKS = 50000, /* after which nothing may be due any more */
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
    struct mr *mr;
    struct service *service;
    uint64_t now_ns, random;
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
    uint64_t openings[OPENINGS_MAX];              /* under way; 0: none */
    uint64_t asked[ASKED_MAX];                    /* likewise: lookups */
    bool is_short;                                /* of memory, in this step */
    uint64_t injected, injected_bytes, forwarded; /* datagrams; forwarded: by relays that ended */
    uint64_t told_registrar;                      /* datagrams */
    struct hook_answer answer;
    struct hooks hooks;
    uint64_t spent_ns, spends_ns;    /* the scripts' time: so far, for each call */
    uint64_t kick;                   /* the session that the next hook kicks; 0: none */
    uint64_t due_ns;                 /* of a script's timer */
    mr_relay_id created[RELAYS_MAX]; /* and not destroyed */
    uint64_t last_seen;              /* session */
    /* what is below is large, and cleared as far as it was used */
    struct wire wires[CONNS_MAX];
    unsigned char has_left[SESSIONS_MAX];  /* by id: it was told */
    unsigned char was_there[SESSIONS_MAX]; /* by id: its player knew of it */
};

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
    require(m->service->figures.notices_lost > 0); /* no memory: it was never told */
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
            m->last_seen = ev->session->id > m->last_seen ? ev->session->id : m->last_seen;
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

    m->told_registrar++;
    mr__service_registrar(m->service, &from, &local, pid, strlen(pid), m->now_ns);
}

static void inject(struct machine *m, uint32_t port, const struct mr_addr *from, size_t n)
{
    int rc = mr_inject(m->mr, port, from, "0123456789abcdef", n);

    /* a reload may have closed it */
    require(rc == 0 || rc == -ENOENT || rc == -EINVAL || (rc == -ENOMEM && m->is_short));
    m->injected += rc == 0;
    m->injected_bytes += rc == 0 ? n : 0;
}

static void inject_one(struct machine *m)
{
    struct mr_addr from = take_addr(m);
    unsigned b = take(m);

    inject(m, b % PORTS, &from, b >> 4);
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

    m->wanted = (take(m) & 0x1fu) | notices;
    m->spends_ns = b & 0x10 ? 4000000 : 0;
    m->due_ns = b & 0x20 ? m->now_ns : UINT64_MAX;
    m->waiting = take(m) & 0x1fu;
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

/* What its peer sent; by a link of its own there is also what a target answered. */
static uint64_t forwarded_by(const struct service *s, mr_relay_id id,
                             const struct mr_relay_counts *c, uint32_t port)
{
    const struct seat *seat = mr__pool_seat(s, port);
    bool is_target = seat && seat->relay == id && seat->kind == MR_SEAT_TARGET;

    return c->packets_in + (is_target ? c->packets_out : 0);
}

static void poll_engine(struct machine *m)
{
    struct mr_event events[16];
    int n;

    do {
        n = mr_poll(m->mr, events, 16);
        require(n >= 0);
        for (int i = 0; i < n; i++) {
            if (events[i].type == MR_EVENT_ENDED) {
                m->forwarded += forwarded_by(m->service, events[i].relay, &events[i].u.ended.counts,
                                             events[i].u.ended.port);
            }
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
        int rc = mr__blocks_add(m->service, &block, 1 + (b >> 4), (struct str){"x", 1},
                                (struct str){"fuzz", 4}, &ended);
        require(rc == 0 || m->is_short);
    }
}

/* ---- settings ------------------------------------------------------------------------------ */

static void offer(struct settings *to, const char *key, const char *text)
{
    require(mr__settings_offer(to, MR_SETTING_CONFIG, key, text, strlen(text), NULL) == 0);
}

/* Bits 0-1: the ports, 2-3: the caps, 4: are errors told? */
static struct settings *make_settings(unsigned variant)
{
    static const char *const ports[] = {"50000+11", "50004+3", "50000+11,60000+3", "50008+7"};
    static const char *const all[][2] = {{"udp_relay_timeout", "2s"},
                                         {"oid_length", "2"},
                                         {"oid_charset", "abcd"},
                                         {"pid_length", "20"},
                                         {"max_connections", "20"},
                                         {"udp_relay_max_individual_traffic", "100"},
                                         {"max_sessions_per_connection", "4"}};
    static const char *const caps[][4][2] = {{{"dynamic_share", "50"}},
                                             {{"dynamic_per_address", "1"},
                                              {"max_connections_per_address", "2"},
                                              {"commands_burst", "2"},
                                              {"failed_oids_per_minute", "1"}},
                                             {{"deny_peers", "10.0.0.2/32"},
                                              {"caps_exempt", "10.0.0.1/32"},
                                              {"drain_timeout", "3s"},
                                              {"dynamic_per_target", "1"}},
                                             {{"connect", "relay"},
                                              {"hold_datagrams", "1"},
                                              {"udp_relay_max_lifetime_traffic", "20"},
                                              {"registrar_errors_per_second", "0"}}};
    struct settings *made = mr__settings_create();
    bool is_loud = !(variant >> 4 & 1);

    require(made != NULL);
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        offer(made, all[i][0], all[i][1]);
    }
    offer(made, "udp_relay_ports", ports[variant & 3]);
    offer(made, "errors", is_loud ? "on" : "off");
    offer(made, "latch_window", is_loud ? "10s" : "0");
    for (unsigned i = 0; i < 4 && caps[variant >> 2 & 3][i][0]; i++) {
        offer(made, caps[variant >> 2 & 3][i][0], caps[variant >> 2 & 3][i][1]);
    }
    require(mr__settings_resolve(made) == 0);
    return made;
}

/* Reading them takes longer than all the rest of a run: once is enough. */
static const struct settings *get_settings(unsigned variant)
{
    static struct settings *made[VARIANTS];

    for (unsigned i = 0; !made[VARIANTS - 1] && i < VARIANTS; i++) {
        made[i] = make_settings(i);
    }
    return made[variant % VARIANTS];
}

static void reload(struct machine *m)
{
    struct port_report report;
    unsigned b = take(m);

    int rc = mr__service_apply_settings(m->service, get_settings(b & 0x1f), &report, m->now_ns);
    /* -ENOSPC: many reloads before the engine has had its turn to close anything */
    require(rc == 0 || rc == -ENOSPC || (rc == -ENOMEM && m->is_short));
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

    inject(m, b % 16, b & 0x80 ? &server : &from, b >> 4 & 7);
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

/* ---- what owns the service ----------------------------------------------------------------- */

static void on_asked(void *arg, const struct mr_lookup_answer *a)
{
    uint64_t *asked = arg;

    (void)a;
    require(*asked != 0);
    *asked = 0;
}

static void ask_one(struct machine *m, unsigned which)
{
    uint64_t *asked = &m->asked[which % ASKED_MAX];
    const struct str host = {"a.fleet", 7};

    if (*asked == 0) {
        *asked = 1; /* it may be told before its name is known */
        uint64_t id =
            mr__service_lookup(m->service, host, 4, MR_LOOKUP_TARGET, on_asked, asked, m->now_ns);
        require((id == 0) == (*asked == 0));
        *asked = id;
    } else {
        mr__service_lookup_cancel(m->service, *asked);
        *asked = 0;
    }
}

static void set_list(struct machine *m, unsigned b)
{
    static const char *const texts[] = {"10.0.0.1", "10.0.0.0/30 x\n10.0.0.2", ""};
    struct cidr *nets;
    char why[MR_CIDR_WHY_MAX];
    const char *text = texts[b % 3];
    unsigned ended;

    int rc = mr__cidr_parse(&nets, text, strlen(text), why);
    if (rc == 0) {
        rc = mr__blocks_set_list(m->service, (struct str){b & 4 ? "a" : "b", 1}, nets,
                                 (struct str){"x", 1}, &ended);
        mr__cidr_unref(nets);
    }
    require(rc == 0 || m->is_short);
}

/* A connection that ends by itself. */
static void lose(struct machine *m, unsigned b)
{
    static const enum conn_end ends[] = {MR_CONN_CLOSED, MR_CONN_TIMEOUT, MR_CONN_OUTPUT,
                                         MR_CONN_SHUTDOWN};
    struct wire *w = &m->wires[b % CONNS_MAX];
    conn_id id = w->id;

    if (id) {
        w->id = 0;
        mr__service_closed(m->service, id, ends[b % 4], m->now_ns);
    }
}

static void step(struct machine *m);

/* Its `after`-th allocation from here and all later ones of the next step fail. */
static void starve(struct machine *m, unsigned after)
{
    if (m->is_short) {
        return;
    }
    m->is_short = true;
    mr__alloc_fail_after(after);
    step(m);
    mr__alloc_fail_after(-1);
    m->is_short = false;
}

static void pass_time(struct machine *m, uint64_t ns)
{
    m->now_ns += ns;
    poll_engine(m);
    mr__service_tick(m->service, m->now_ns);
}

static void manage(struct machine *m)
{
    unsigned b = take(m);
    uint64_t due_ns;
    int rc;

    switch (b % 8) {
    case 0:
        rc = mr__service_drain(m->service, (b >> 3) * 300000000ull, "fuzz", m->now_ns);
        require(rc == 0 || rc == -EBUSY);
        break;
    case 1:
        rc = mr__service_drain_cancel(m->service, "fuzz", m->now_ns);
        require(rc == 0 || rc == -EBUSY || rc == -ENOENT);
        break;
    case 2:
        if (b >> 5 == 7) {
            mr__service_stop(m->service, m->now_ns);
        } else if (b >> 5 == 6) {
            (void)mr__service_drain_to_stop(m->service, m->now_ns);
        }
        break;
    case 3:
        ask_one(m, b >> 3);
        break;
    case 4:
        set_list(m, b >> 3);
        break;
    case 5:
        starve(m, b >> 3);
        break;
    case 6:
        due_ns = mr__service_deadline(m->service);
        pass_time(m, due_ns > m->now_ns && due_ns < UINT64_MAX / 2 ? due_ns - m->now_ns : 0);
        break;
    case 7:
        lose(m, b >> 3);
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
        pass_time(m, (uint64_t)take(m) * 20000000);
        break;
    case 6:
        answer_one(m);
        break;
    case 7:
        if (b >> 6 == 3) {
            act(m);
        } else if (b >> 5 == 5) {
            route(m);
        } else if (b >> 5 == 4) {
            manage(m);
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

/* The page says the same. */
static void check_page(struct machine *m, const struct mr_stats *st)
{
    char *page = mr__service_metrics(m->service, NULL, m->now_ns);

    require(page != NULL);
    require(metric(page, "moonrelay_ports{state=\"free\"} ") +
                metric(page, "moonrelay_ports{state=\"quarantined\"} ") +
                metric(page, "moonrelay_ports{state=\"used\"} ") +
                metric(page, "moonrelay_ports{state=\"open\"} ") ==
            st->ports);
    require(metric(page, "\nnoray_relay_count ") ==
            metric(page, "moonrelay_ports{state=\"used\"} "));
    require(metric(page, "\nnoray_active_hosts ") == (double)m->service->sessions.n);
    mr__free(page);
}

static size_t count_seats(const struct service *s)
{
    size_t n = 0;

    for (size_t kind = 0; kind < MR_SEAT_KIND_COUNT; kind++) {
        n += s->pool.n_kind[kind];
    }
    return n;
}

/* What came in is what the engine has counted, what it forwarded is what relays have sent. One that
 * was closed and whose end has still to be told is no relay any more, but has its seat. */
static void check_datagrams(struct machine *m, const struct mr_stats *st)
{
    uint64_t forwarded = m->forwarded;
    struct mr_relay_info info;
    size_t n = 0;

    for (mr_relay_id id = mr_relay_next(m->mr, 0); id; id = mr_relay_next(m->mr, id)) {
        require(mr_relay_info(m->mr, id, &info) == 0);
        forwarded += forwarded_by(m->service, id, &info.counts, info.port);
        n++;
    }
    require(st->received == m->injected && st->received_bytes == m->injected_bytes);
    require(st->verdicts[MR_VERDICT_FORWARD] == st->sent);
    require(n == count_seats(m->service) ? st->sent == forwarded : st->sent >= forwarded);
}

static void check_books(struct machine *m)
{
    const struct figures *f = &m->service->figures;
    uint64_t registrar = 0;
    size_t conns = 0;
    struct mr_stats st;

    books_check(m->service);
    require(mr_get_stats(m->mr, &st, sizeof st) == 0);
    check_datagrams(m, &st);
    for (unsigned i = 0; i < MR_REGISTRAR_COUNT; i++) {
        registrar += f->registrar[i];
    }
    require(registrar == m->told_registrar);
    for (unsigned i = 0; i < CONNS_MAX; i++) {
        conns += m->wires[i].id != 0;
    }
    require(conns == m->service->n_connections && m->n_pending == m->service->n_pending);
    for (struct list *l = m->service->all_sessions.next; l != &m->service->all_sessions;
         l = l->next) {
        const struct session *p = MR_CONTAINER(l, struct session, at_all);
        if (p->id < SESSIONS_MAX && p->is_registered) {
            m->was_there[p->id] = 1;
            m->last_seen = p->id > m->last_seen ? p->id : m->last_seen;
        }
    }
}

/* What is due comes to an end when nobody does anything: else a loop would turn for ever. */
static void settle(struct machine *m)
{
    unsigned left = QUIET_TICKS;

    do {
        require(left-- > 0);
        pass_time(m, 0);
    } while (mr__service_deadline(m->service) <= m->now_ns || mr_in_force(m->mr) < mr_seq(m->mr));
}

/* Each relay that was told to be there is told to be gone, each session to have left. */
static void check_told(struct machine *m)
{
    if (m->service->figures.notices_lost > 0) {
        return;
    }
    for (unsigned i = 0; i < RELAYS_MAX; i++) {
        require(m->created[i] == 0);
    }
    for (uint64_t id = 0; id <= m->last_seen; id++) {
        require(m->has_left[id] || !m->was_there[id]);
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

static void open_machine(struct machine *m)
{
    struct mr_options o;
    struct port_report report;

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
        .settings = get_settings(0),
        .mr = m->mr,
        .out = {m, on_send, on_close, on_pause, on_reply, on_random, on_lookup, on_lookup_cancel},
    };
    require(mr__service_create(&m->service, &so, m->now_ns) == 0);
    require(mr__service_open_ports(m->service, &report) == 0);
    m->wanted = notices; /* watched from the start */
    mr__service_set_hooks(m->service, &m->hooks);
}

static struct machine *clear_machine(void)
{
    static struct machine machine;
    struct machine *m = &machine;
    uint64_t seen = m->last_seen + 1;

    memset(m->has_left, 0, seen);
    memset(m->was_there, 0, seen);
    for (unsigned i = 0; i < CONNS_MAX; i++) {
        m->wires[i].id = 0;
    }
    memset(m, 0, offsetof(struct machine, wires));
    return m;
}

static void finish(struct machine *m, size_t size)
{
    struct mr_stats st;

    settle(m);
    check_books(m);
    if (size % 16 == 0) {
        require(mr_get_stats(m->mr, &st, sizeof st) == 0);
        check_page(m, &st);
    }
    mr__service_stop(m->service, m->now_ns);
    mr__service_end_sessions(m->service, m->now_ns);
    settle(m);
    check_books(m);
    check_told(m);
    mr__service_destroy(m->service);
    require(m->n_pending == 0 && m->n_lookups == 0);
    mr_destroy(m->mr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct machine *m = clear_machine();
    unsigned steps = 0;

    (void)get_settings(0);
    long live = mr__alloc_live();
    m->p = data;
    m->end = data + size;
    m->now_ns = 1000000000;
    m->random = 1;
    open_machine(m);
    while (m->p < m->end) {
        step(m);
        if (++steps % 32 == 0) {
            poll_engine(m);
            check_books(m);
        }
    }
    finish(m, size);
    require(mr__alloc_live() == live);
    return 0;
}
