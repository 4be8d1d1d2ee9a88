/* SPDX-License-Identifier: MIT */
/*
 * The world behind world.h. One thread.
 */
#include "world.h"
#include "test.h"

/* Counters of test.h belong to one file, so what fails here ends the program. */
#define NEED(cond)                                                               \
    do {                                                                         \
        if (!(cond)) {                                                           \
            fprintf(stderr, "# %s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
            abort();                                                             \
        }                                                                        \
    } while (0)

enum { POLL_ROUNDS_MAX = 10000, WORLD_PORTS = 4096 };

static uint64_t clock_ns(void *user)
{
    return ((struct world *)user)->now_ns;
}

static double wall_s(void *user)
{
    return 1700000000.0 + (double)((struct world *)user)->now_ns / 1e9;
}

static struct wire *find_wire(struct world *w, conn_id id)
{
    for (size_t i = 0; i < w->n_wires; i++) {
        if (w->wires[i].id == id) {
            return &w->wires[i];
        }
    }
    NEED(!"a connection of that id");
    abort();
}

static void on_send(void *user, conn_id id, const char *data, size_t n)
{
    struct wire *wire = find_wire(user, id);

    NEED(!wire->is_closed);
    if (wire->n + n + 1 > wire->cap) {
        wire->cap = (wire->n + n + 1) * 2;
        wire->text = realloc(wire->text, wire->cap);
    }
    memcpy(wire->text + wire->n, data, n);
    wire->n += n;
    wire->text[wire->n] = '\0';
}

static void on_close(void *user, conn_id id)
{
    struct wire *wire = find_wire(user, id);

    NEED(!wire->is_closed);
    wire->is_closed = true;
}

static void on_pause(void *user, conn_id id, bool is_paused)
{
    struct wire *wire = find_wire(user, id);

    NEED(wire->is_paused != is_paused);
    wire->is_paused = is_paused;
}

static void on_reply(void *user, const struct mr_addr *to, const struct mr_addr *local,
                     const char *data, size_t n)
{
    struct world *w = user;

    (void)local;
    w->reply_to = *to;
    w->replies++;
    snprintf(w->reply, sizeof w->reply, "%.*s", (int)n, data);
}

static int on_random(void *user, void *buf, size_t n)
{
    struct world *w = user;
    unsigned char *p = buf;

    for (size_t i = 0; i < n; i++) {
        w->random = w->random * 6364136223846793005u + 1442695040888963407u;
        p[i] = (unsigned char)(w->random >> 56);
    }
    return 0;
}

static void on_log(void *user, enum log_level level, const char *line, size_t n)
{
    struct world *w = user;

    (void)level;
    w->log_text = realloc(w->log_text, w->log_n + n + 1);
    memcpy(w->log_text + w->log_n, line, n);
    w->log_n += n;
    w->log_text[w->log_n] = '\0';
}

/* ---- lookups ------------------------------------------------------------------------------- */

static host_job on_lookup(void *user, struct str host, int family, enum mr_lookup_op op,
                          unsigned flags, void (*done)(void *arg, const struct mr_lookup_answer *a),
                          void *arg)
{
    struct world *w = user;
    struct world_lookup *l = &w->lookups[w->n_lookups];

    NEED(flags == 0 && w->n_lookups < WORLD_LOOKUPS && host.n <= MR_LOOKUP_HOST_MAX);
    *l = (struct world_lookup){
        .job = ++w->looked_up, .family = family, .op = op, .done = done, .arg = arg};
    memcpy(l->host, host.s, host.n);
    w->n_lookups++;
    return l->job;
}

static struct world_lookup take_lookup(struct world *w, size_t i)
{
    struct world_lookup l = w->lookups[i];

    memmove(&w->lookups[i], &w->lookups[i + 1], (--w->n_lookups - i) * sizeof l);
    return l;
}

static void on_lookup_cancel(void *user, host_job job)
{
    struct world *w = user;

    for (size_t i = 0; i < w->n_lookups; i++) {
        if (w->lookups[i].job == job) {
            take_lookup(w, i);
            return;
        }
    }
    NEED(!"what is cancelled is under way");
}

static void answer_lookup(struct world *w)
{
    struct world_lookup l = take_lookup(w, 0);
    struct mr_lookup_answer a = {.rc = -ENOENT, .code = "not-found", .message = "no such name"};
    const char *ip = w->name_is;

    if (mr_addr_parse_ip(&a.addr, l.host, strlen(l.host), NULL) == MR_ADDR_OK) {
        ip = l.host;
    }
    if (ip && mr_addr_parse_ip(&a.addr, ip, strlen(ip), NULL) == MR_ADDR_OK) {
        a.rc = 0;
        if (l.family != 0 && l.family != a.addr.family) {
            a = (struct mr_lookup_answer){
                .rc = -EAFNOSUPPORT, .code = "family", .message = "of the other family"};
        }
    }
    l.done(l.arg, &a);
}

static bool answer_due_lookups(struct world *w)
{
    bool had = !w->are_lookups_slow && w->n_lookups > 0;

    while (!w->are_lookups_slow && w->n_lookups > 0) {
        answer_lookup(w);
    }
    return had;
}

void world_answer_lookups(struct world *w)
{
    for (size_t n = w->n_lookups; n > 0 && w->n_lookups > 0; n--) {
        answer_lookup(w);
    }
    world_settle(w);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static void print_session(char *buf, size_t cap, const char *what, const struct hook_session *p)
{
    size_t n = strlen(buf);

    if (!p) {
        snprintf(buf + n, cap - n, " %s=-", what);
        return;
    }
    char addr[MR_ADDR_TEXT_MAX] = "-";
    if (p->addr.family) {
        mr_addr_format(&p->addr, addr, sizeof addr);
    }
    snprintf(buf + n, cap - n, " %s=%.*s@%s", what, (int)p->oid.n, p->oid.s ? p->oid.s : "", addr);
}

static void print_map(char *buf, size_t cap, const char *what, const struct hook_map *map)
{
    for (size_t i = 0; i < map->n; i++) {
        size_t n = strlen(buf);
        snprintf(buf + n, cap - n, " %s.%.*s=%.*s", what, (int)map->items[i].key.n,
                 map->items[i].key.s, (int)map->items[i].value.n, map->items[i].value.s);
    }
}

static void print_event(char *buf, size_t cap, const struct hook_event *ev)
{
    char addr[MR_ADDR_TEXT_MAX] = "-";

    if (ev->addr.family) {
        mr_addr_format(&ev->addr, addr, sizeof addr);
    }
    snprintf(buf, cap,
             "reason=%.*s addr=%s oid=%.*s mode=%.*s via=%.*s port=%u size=%u "
             "known=%d target=%s",
             (int)ev->reason.n, ev->reason.s ? ev->reason.s : "", addr, (int)ev->oid.n,
             ev->oid.s ? ev->oid.s : "", (int)ev->mode.n, ev->mode.s ? ev->mode.s : "",
             (int)ev->via.n, ev->via.s ? ev->via.s : "", ev->port, ev->size, ev->known,
             ev->target ? "yes" : "no");
    print_session(buf, cap, "session", ev->session);
    print_session(buf, cap, "peer", ev->peer);
    print_session(buf, cap, "from", ev->from);
    print_session(buf, cap, "to", ev->to);
    print_map(buf, cap, "meta", &ev->meta);
    print_map(buf, cap, "tags", &ev->tags);
}

static bool hooks_want(void *self, enum hook hook)
{
    return ((struct world *)self)->canned[hook].is_wanted;
}

static void spend(struct world *w)
{
    w->spent_ns += w->spends_ns;
    w->ran++;
}

static uint64_t hooks_spent(void *self)
{
    return ((struct world *)self)->spent_ns;
}

static uint64_t hooks_deadline(void *self)
{
    return ((struct world *)self)->decider_due_ns;
}

static void hooks_tick(void *self, uint64_t now_ns)
{
    struct world *w = self;

    if (w->decider_due_ns <= now_ns) {
        spend(w);
    }
}

void world_spend(struct world *w, uint64_t ns)
{
    w->spends_ns = ns;
    w->hooks.spent_ns = hooks_spent;
    mr__service_set_hooks(w->service, &w->hooks);
}

static void hooks_ask(void *self, struct hook_request *req, const struct hook_event *ev)
{
    struct world *w = self;
    struct canned *c = &w->canned[ev->hook];

    c->asked++;
    spend(w);
    print_event(w->seen[ev->hook], sizeof w->seen[0], ev);
    if (w->inside) {
        w->inside(w, ev->hook);
    }
    if (c->is_kept_waiting) {
        NEED(w->n_pending < WORLD_PENDING);
        w->pending[w->n_pending] = req;
        w->pending_hook[w->n_pending++] = ev->hook;
    } else {
        req->done(req, &c->answer);
    }
}

static void hooks_cancel(void *self, struct hook_request *req)
{
    struct world *w = self;

    for (size_t i = 0; i < w->n_pending; i++) {
        if (w->pending[i] == req) {
            memmove(&w->pending[i], &w->pending[i + 1],
                    (w->n_pending - i - 1) * sizeof w->pending[0]);
            memmove(&w->pending_hook[i], &w->pending_hook[i + 1],
                    (w->n_pending - i - 1) * sizeof w->pending_hook[0]);
            w->n_pending--;
            w->cancelled++;
            if (w->on_cancel) {
                w->on_cancel(w);
            }
            return;
        }
    }
    NEED(!"what is cancelled is pending");
}

static void hooks_tell(void *self, const struct hook_event *ev)
{
    struct world *w = self;

    w->canned[ev->hook].told++;
    spend(w);
    print_event(w->seen[ev->hook], sizeof w->seen[0], ev);
    if (ev->relay) {
        size_t n = strlen(w->seen[ev->hook]);
        snprintf(w->seen[ev->hook] + n, sizeof w->seen[0] - n, " relay=%s port=%u in=%llu",
                 ev->relay->text, ev->relay->port, (unsigned long long)ev->relay->packets_in);
    }
    if (w->inside) {
        w->inside(w, ev->hook);
    }
}

struct hook_answer *world_answer(struct world *w, enum hook hook, enum hook_outcome outcome)
{
    struct canned *c = &w->canned[hook];

    c->is_wanted = true;
    c->answer = (struct hook_answer){.outcome = outcome};
    mr__service_set_hooks(w->service, &w->hooks);
    return &c->answer;
}

void world_refuse(struct world *w, enum hook hook, const char *reason)
{
    struct hook_answer *a = world_answer(w, hook, MR_HOOK_REFUSE);

    snprintf(a->reason, sizeof a->reason, "%s", reason);
}

void world_keep_waiting(struct world *w, enum hook hook, bool is_kept_waiting)
{
    w->canned[hook].is_wanted = true;
    w->canned[hook].is_kept_waiting = is_kept_waiting;
    mr__service_set_hooks(w->service, &w->hooks);
}

void world_answer_one(struct world *w, size_t i)
{
    NEED(i < w->n_pending);
    struct hook_request *req = w->pending[i];
    enum hook hook = w->pending_hook[i];

    memmove(&w->pending[i], &w->pending[i + 1], (w->n_pending - i - 1) * sizeof w->pending[0]);
    memmove(&w->pending_hook[i], &w->pending_hook[i + 1],
            (w->n_pending - i - 1) * sizeof w->pending_hook[0]);
    w->n_pending--;
    req->done(req, &w->canned[hook].answer);
    world_settle(w);
}

void world_answer_pending(struct world *w)
{
    while (w->n_pending > 0) {
        world_answer_one(w, 0);
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

static void offer(struct settings *settings, const char *text)
{
    char key[64];
    const char *equals = strchr(text, '=');

    snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
    NEED((mr__settings_offer(settings, MR_SETTING_CONFIG, key, equals + 1, strlen(equals + 1),
                             NULL)) == 0);
}

static void offer_all(struct settings *to, const char *const *settings)
{
    bool has_ports = false;

    for (size_t i = 0; settings && settings[i]; i++) {
        has_ports = has_ports || strncmp(settings[i], "udp_relay_ports=", 16) == 0;
    }
    if (!has_ports) {
        offer(to, "udp_relay_ports=49152+15");
    }
    for (size_t i = 0; settings && settings[i]; i++) {
        offer(to, settings[i]);
    }
    NEED((mr__settings_resolve(to)) == 0);
}

static void open_engine(struct world *w, enum mr_io io)
{
    const struct settings_values *v = mr__settings_values(w->settings);
    struct mr_options o;

    mr_options_init(&o, sizeof o);
    o.workers = 0;
    o.io = io;
    o.pairing = v->pairing_open ? MR_PAIRING_OPEN : MR_PAIRING_PAIRED;
    o.limits.relay_bytes_per_s = v->max_individual_traffic;
    o.limits.global_bytes_per_s = v->max_global_traffic;
    o.limits.life_ns = v->max_lifetime_duration_ns;
    o.limits.life_bytes = v->max_lifetime_traffic;
    o.limits.idle_ns = v->udp_relay_timeout_ns;
    o.hold.time_ns = v->hold_time_ns;
    o.hold.datagrams = v->hold_datagrams;
    o.hold.bytes = v->hold_bytes;
    o.clock_ns = clock_ns;
    o.clock_user = w;
    NEED((mr_create(&w->mr, &o)) == 0);
}

/* Each world of a run has its own: n of the run's and how many there were before. */
static uint64_t seed(void)
{
    static uint64_t opened;

    if (opened == 0) {
        fprintf(stderr, "# TEST_SEED=%" PRIu64 "\n", test_seed());
    }
    return test_seed() + opened++;
}

struct world *world_open(const char *const *settings)
{
    return world_open_io(settings, MR_IO_NONE);
}

static void note_kept(void *user, const char *key)
{
    size_t n = strlen(user);

    snprintf((char *)user + n, 256 - n, "%s ", key);
}

int world_reload(struct world *w, const char *const *settings, char kept[256])
{
    struct settings *fresh = mr__settings_create();

    NEED(fresh);
    kept[0] = '\0';
    offer_all(fresh, settings);
    NEED(mr__settings_adopt(fresh, w->settings, note_kept, kept) == 0);
    int rc = mr__service_apply_settings(w->service, fresh, &w->report, w->now_ns);
    if (rc < 0) {
        mr__settings_destroy(fresh);
        return rc;
    }
    mr__settings_destroy(w->settings);
    w->settings = fresh;
    world_settle(w);
    return 0;
}

struct world *world_open_io(const char *const *settings, enum mr_io io)
{
    long blocks = mr__alloc_live();
    struct world *w = calloc(1, sizeof *w);

    w->blocks_before = blocks;
    w->now_ns = 1000000000;
    w->random = seed();
    w->settings = mr__settings_create();
    NEED(w->settings);
    offer_all(w->settings, settings);
    open_engine(w, io);
    w->log = (struct log){.level = MR_LOG_TRACE, .sink = on_log, .user = w};
    w->hooks = (struct hooks){.self = w,
                              .wants = hooks_want,
                              .ask = hooks_ask,
                              .cancel = hooks_cancel,
                              .tell = hooks_tell,
                              .deadline = hooks_deadline,
                              .tick = hooks_tick};
    w->decider_due_ns = UINT64_MAX;
    struct service_options o = {
        .settings = w->settings,
        .mr = w->mr,
        .log = &w->log,
        .out = {w, on_send, on_close, on_pause, on_reply, on_random, on_lookup, on_lookup_cancel},
        .wall_s = wall_s,
    };
    NEED((mr__service_create(&w->service, &o, w->now_ns)) == 0);
    NEED((mr__service_open_ports(w->service, &w->report)) == 0);
    world_settle(w);
    return w;
}

void world_close(struct world *w)
{
    mr__service_destroy(w->service);
    mr_destroy(w->mr);
    mr__settings_destroy(w->settings);
    for (size_t i = 0; i < w->n_wires; i++) {
        free(w->wires[i].text);
    }
    NEED(w->n_pending == 0 && w->n_lookups == 0);
    NEED(mr__alloc_live() == w->blocks_before);
    free(w->log_text);
    free(w);
}

void world_open_fronts(struct world *w, const struct open_port *list, size_t n)
{
    mr__service_open_fronts(w->service, list, n, &w->fronts, w->now_ns);
    world_settle(w);
}

/* ---- time ---------------------------------------------------------------------------------- */

static unsigned poll_engine(struct world *w)
{
    struct mr_event events[64];
    int n = mr_poll(w->mr, events, 64);

    NEED(n >= 0);
    for (int i = 0; i < n; i++) {
        mr__service_engine_event(w->service, &events[i], w->now_ns);
    }
    return (unsigned)n;
}

void world_settle(struct world *w)
{
    unsigned rounds = 0, quiet = 0;

    while (quiet < 3) {
        unsigned n = poll_engine(w);
        mr__service_tick(w->service, w->now_ns);
        bool is_busy =
            answer_due_lookups(w) || n > 0 || mr__service_deadline(w->service) <= w->now_ns;
        quiet = is_busy ? 0 : quiet + 1;
        NEED(++rounds < POLL_ROUNDS_MAX);
    }
}

void world_advance(struct world *w, uint64_t ms)
{
    while (ms > 0) {
        uint64_t step = ms < 50 ? ms : 50;
        w->now_ns += step * 1000000;
        ms -= step;
        world_settle(w);
    }
}

/* ---- players ------------------------------------------------------------------------------- */

struct mr_addr world_addr(const char *text)
{
    struct mr_addr a = {.family = 0};

    NEED(mr_addr_parse(&a, text, strlen(text), NULL) == MR_ADDR_OK);
    return a;
}

size_t world_connect(struct world *w, const char *peer)
{
    struct mr_addr a = world_addr(peer);
    struct mr_addr local = world_addr(a.family == 4 ? "192.0.2.1:8890" : "[2001:db8::1]:8890");

    NEED(w->n_wires < WORLD_CONNS);
    conn_id id = mr__service_accept(w->service, &a, &local, w->now_ns);
    w->wires[w->n_wires] = (struct wire){.id = id};
    w->n_wires++;
    world_settle(w);
    return w->n_wires - 1;
}

void world_send(struct world *w, size_t conn, const void *data, size_t n)
{
    mr__service_input(w->service, w->wires[conn].id, data, n, w->now_ns);
    world_settle(w);
}

void world_say(struct world *w, size_t conn, const char *text)
{
    world_send(w, conn, text, strlen(text));
}

const char *world_line(struct world *w, size_t conn)
{
    static char line[20000];
    struct wire *wire = &w->wires[conn];
    const char *lf =
        wire->n > wire->read ? memchr(wire->text + wire->read, '\n', wire->n - wire->read) : NULL;

    if (!lf) {
        return "";
    }
    size_t n = (size_t)(lf - (wire->text + wire->read));
    snprintf(line, sizeof line, "%.*s", (int)n, wire->text + wire->read);
    wire->read += n + 1;
    return line;
}

size_t world_lines_left(const struct world *w, size_t conn)
{
    const struct wire *wire = &w->wires[conn];
    size_t n = 0;

    for (size_t i = wire->read; i < wire->n; i++) {
        n += wire->text[i] == '\n';
    }
    return n;
}

/* Where a peer of that kind reaches the registrar: inside at an inside address, else at a public
 * one. */
static struct mr_addr world_local(const struct mr_addr *peer)
{
    unsigned kind = mr_addr_classify(peer);
    bool is_inside = kind & (MR_ADDR_PRIVATE | MR_ADDR_LINK_LOCAL);

    if (kind & MR_ADDR_LOOPBACK) {
        return world_addr(peer->family == 4 ? "127.0.0.1:8809" : "[::1]:8809");
    }
    if (peer->family == 4) {
        return world_addr(is_inside ? "10.255.255.254:8809" : "192.0.2.1:8809");
    }
    return world_addr(is_inside ? "[fdff::fffe]:8809" : "[2001:db8::1]:8809");
}

const char *world_registrar(struct world *w, const char *from, const void *data, size_t n)
{
    struct mr_addr a = world_addr(from);
    struct mr_addr local = world_local(&a);

    w->reply[0] = '\0';
    mr__service_registrar(w->service, &a, &local, data, n, w->now_ns);
    world_settle(w);
    return w->reply;
}

const char *world_see(struct world *w, const struct player *p, const char *udp)
{
    return world_registrar(w, udp, p->pid, strlen(p->pid));
}

struct player world_register(struct world *w, size_t conn, const char *words)
{
    struct player p = {.conn = conn};
    char line[300];

    snprintf(line, sizeof line, "register-host%s%s\n", words ? " " : "", words ? words : "");
    world_say(w, conn, line);
    snprintf(line, sizeof line, "%s", world_line(w, conn));
    NEED(strncmp(line, "set-oid ", 8) == 0);
    snprintf(p.oid, sizeof p.oid, "%s", line + 8);
    snprintf(line, sizeof line, "%s", world_line(w, conn));
    NEED(strncmp(line, "set-pid ", 8) == 0);
    snprintf(p.pid, sizeof p.pid, "%s", line + 8);
    return p;
}

struct player world_join(struct world *w, const char *tcp, const char *udp)
{
    struct player p = world_register(w, world_connect(w, tcp), NULL);

    if (udp) {
        NEED(strcmp(world_see(w, &p, udp), "OK") == 0);
        snprintf(p.addr, sizeof p.addr, "%s", udp);
    }
    return p;
}

bool world_relay(struct world *w, const struct player *a, const struct player *b, unsigned *a_got,
                 unsigned *b_got)
{
    char line[400];

    snprintf(line, sizeof line, "connect-relay %s\n", b->oid);
    world_say(w, a->conn, line);
    if (sscanf(world_line(w, a->conn), "connect-relay %u", a_got) != 1) {
        return false;
    }
    return sscanf(world_line(w, b->conn), "connect-relay %u", b_got) == 1;
}

/* ---- engine -------------------------------------------------------------------------------- */

uint32_t world_port(const struct world *w, unsigned number)
{
    struct mr_port_info info;

    for (uint32_t i = 0; i < WORLD_PORTS; i++) {
        if (mr_port_info(w->mr, i, &info) == 0 && info.local.port == number) {
            return i;
        }
    }
    return UINT32_MAX;
}

enum mr_verdict world_decide(struct world *w, const char *from, unsigned number, char *to,
                             unsigned *from_port)
{
    struct mr_addr a = world_addr(from);
    struct mr_decision d;
    struct mr_port_info info;
    int v = mr_decide(w->mr, &a, world_port(w, number), 100, w->now_ns, &d);

    NEED(v >= 0);
    if (to) {
        mr_addr_format(&d.to, to, MR_ADDR_TEXT_MAX);
    }
    if (from_port) {
        *from_port = v == MR_VERDICT_FORWARD && mr_port_info(w->mr, d.egress, &info) == 0
                         ? info.local.port
                         : 0;
    }
    return (enum mr_verdict)v;
}

void world_inject(struct world *w, const char *from, unsigned number, size_t size)
{
    static const char data[2048];
    struct mr_addr a = world_addr(from);

    int rc = mr_inject(w->mr, world_port(w, number), &a, data, size);
    NEED(rc == 0 || rc == -ENOMEM);
    world_settle(w);
}

uint64_t world_verdicts(struct world *w, enum mr_verdict v)
{
    struct mr_stats st;

    NEED((mr_get_stats(w->mr, &st, sizeof st)) == 0);
    return st.verdicts[v];
}

unsigned world_relays(struct world *w)
{
    struct mr_stats st;

    NEED((mr_get_stats(w->mr, &st, sizeof st)) == 0);
    return st.relays;
}

double world_metric(struct world *w, const char *name)
{
    size_t n, k = strlen(name);
    char *page = mr__service_metrics(w->service, &n, w->now_ns);
    double v = -1;

    NEED(page);
    for (char *line = page; line && *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, name, k) == 0 && line[k] == ' ') {
            v = strtod(line + k + 1, NULL);
            break;
        }
    }
    mr__free(page);
    return v;
}
