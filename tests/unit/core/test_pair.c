/* SPDX-License-Identifier: MIT */
/*
 * Control's tables against a model that keeps lists and scans them: random create,
 * free, clear, move, pair, unpair, latches, raw links, egresses, and after each the decision
 * for every address at every port, by the tables and by a replica that knows only
 * the commands. Start reading at the model.
 */
#include "tables.h"

/* Small, so that addresses are shared and pools run full all the time. */
enum {
    PORTS = 10,
    ADDRS = 7,
    SEEN = 10,
    MAX_PAIRS = 12,
    MAX_RAWS = 4,
    MAX_LATCHES = 5,
    ROUNDS = 4000
};

/* ---- the model ------------------------------------------------------------------- */

struct model_relay {
    mr_relay_id id; /* 0: free */
    unsigned addr;
    uint64_t since; /* order of registration at its address */
    uint32_t egress;
    bool is_manual;
};

struct model_raw {
    bool is_used;
    unsigned addr;
    struct link link;
};

struct model_leg {
    enum leg_state state;
    bool is_latched;
    unsigned seen;
};

struct model {
    struct model_relay relays[PORTS];
    mr_relay_id pairs[MAX_PAIRS][2];
    struct model_leg legs[MAX_PAIRS][2];
    struct model_raw raws[MAX_RAWS];
    bool is_open_port[PORTS];
    uint64_t clock;
};

static uint32_t port_of(mr_relay_id id)
{
    return mr__relay_id_port(id);
}

static int model_pair_find(const struct model *m, mr_relay_id a, mr_relay_id b)
{
    for (int i = 0; i < MAX_PAIRS; i++) {
        if ((m->pairs[i][0] == a && m->pairs[i][1] == b) ||
            (m->pairs[i][0] == b && m->pairs[i][1] == a))
            return i;
    }
    return -1;
}

static int model_raw_find(const struct model *m, uint32_t port, unsigned addr)
{
    for (int i = 0; i < MAX_RAWS; i++) {
        if (m->raws[i].is_used && m->raws[i].link.port == port && m->raws[i].addr == addr)
            return i;
    }
    return -1;
}

/* The relay of an address that registered last, of those paired with `with` if given. */
static int model_newest(const struct model *m, unsigned addr, mr_relay_id with)
{
    int best = -1;

    for (int i = 0; i < PORTS; i++) {
        const struct model_relay *r = &m->relays[i];

        if (r->id && r->addr == addr && (!with || model_pair_find(m, r->id, with) >= 0) &&
            (best < 0 || r->since > m->relays[best].since))
            best = i;
    }
    return best;
}

static int side_of(const struct model *m, int pair, mr_relay_id id)
{
    return m->pairs[pair][0] != id;
}

/* Who latched this address at that port; -1: nobody. */
static int model_latched(const struct model *m, unsigned addr, uint32_t port, int *side)
{
    for (int i = 0; i < MAX_PAIRS; i++) {
        for (*side = 0; *side < 2; (*side)++) {
            const struct model_leg *leg = &m->legs[i][*side];

            if (m->pairs[i][0] && leg->is_latched && leg->seen == addr &&
                port_of(m->pairs[i][!*side]) == port)
                return i;
        }
    }
    return -1;
}

static unsigned model_count(const struct model *m, unsigned *latches)
{
    unsigned pairs = 0;

    *latches = 0;
    for (int i = 0; i < MAX_PAIRS; i++) {
        pairs += m->pairs[i][0] != 0;
        *latches += m->pairs[i][0] && m->legs[i][0].is_latched;
        *latches += m->pairs[i][0] && m->legs[i][1].is_latched;
    }
    return pairs;
}

/* The leg whose fresh link a datagram would use; NULL: none. */
static struct model_leg *model_fresh(struct model *m, unsigned addr, uint32_t port)
{
    int sender, pair;
    struct model_leg *leg;

    if (!m->relays[port].id || model_raw_find(m, port, addr) >= 0)
        return NULL;
    sender = model_newest(m, addr, m->relays[port].id);
    if (sender < 0)
        return NULL;
    pair = model_pair_find(m, m->relays[sender].id, m->relays[port].id);
    leg = &m->legs[pair][side_of(m, pair, m->relays[sender].id)];
    return leg->state == LEG_FRESH ? leg : NULL;
}

static void model_free(struct model *m, uint32_t port)
{
    mr_relay_id id = m->relays[port].id;

    for (int i = 0; i < MAX_PAIRS; i++) {
        if (m->pairs[i][0] == id || m->pairs[i][1] == id)
            m->pairs[i][0] = m->pairs[i][1] = 0;
    }
    for (int i = 0; i < MAX_RAWS; i++) {
        if (m->raws[i].link.charged == port || m->raws[i].link.target == port)
            m->raws[i].is_used = false;
    }
    m->relays[port].id = 0;
}

static struct plane_out model_decide(const struct model *m, unsigned addr, uint32_t port,
                                     enum mr__pairing pairing)
{
    struct plane_out out = {.charged = MR__NONE, .target = MR__NONE, .egress = MR__NONE};
    int raw = model_raw_find(m, port, addr), sender = -1, pair = -1, side = 0;
    bool is_link = raw >= 0;

    if (m->relays[port].id)
        sender = model_newest(m, addr, m->relays[port].id);
    if (raw >= 0) {
        const struct link *l = &m->raws[raw].link;

        out.to = l->to;
        out.egress = l->egress;
        out.charged = l->charged;
        out.target = l->target;
    } else {
        if (sender >= 0) {
            pair = model_pair_find(m, m->relays[sender].id, m->relays[port].id);
            side = side_of(m, pair, m->relays[sender].id);
        } else if ((pair = model_latched(m, addr, port, &side)) >= 0) {
            sender = (int)port_of(m->pairs[pair][side]);
        }
        is_link = sender >= 0;
        if (sender < 0)
            sender = model_newest(m, addr, 0);
        out.charged = sender >= 0 ? (uint32_t)sender : MR__NONE;
        out.target = m->relays[port].id ? port : MR__NONE;
        if (is_link ||
            (sender >= 0 && m->relays[port].id && !m->is_open_port[port] &&
             (pairing == MR__PAIRING_OPEN || (sender == (int)port && m->relays[port].is_manual)))) {
            is_link = true;
            out.to = peer(pair >= 0 && m->legs[pair][!side].is_latched ? m->legs[pair][!side].seen
                                                                       : m->relays[port].addr);
            out.egress = m->relays[sender].egress;
        }
    }
    if (is_link) {
        out.verdict = out.charged != MR__NONE && m->relays[out.charged].is_manual
                          ? MR_VERDICT_MANUAL
                          : MR_VERDICT_FORWARD;
        return out;
    }
    out.is_miss = 1;
    out.verdict = m->is_open_port[port] ? MR_VERDICT_NEW_FLOW
                  : !m->relays[port].id ? MR_VERDICT_UNKNOWN_TARGET
                  : sender < 0          ? MR_VERDICT_UNKNOWN_SENDER
                                        : MR_VERDICT_NOT_PAIRED;
    return out;
}

/* ---- tables, a replica, and the model side by side ----------------------------------- */

struct trial {
    struct bed bed, worker_bed;
    struct tables t;
    struct plane worker;
    struct model m;
    enum mr__pairing pairing;
    mr_relay_id stale[32];
    unsigned n_stale;
    bool
        is_all_used; /* else few datagrams come over fresh links, or none would be fresh for long */
    uint64_t changes, latches, double_latches, uses;
};

static void replicate(void *user, enum mr__link_op op, const struct link *link)
{
    struct trial *s = user;

    s->changes++;
    if (op == MR__LINK_SET)
        CHECK_EQ(mr__plane_link(&s->worker, link), 0);
    else
        CHECK_EQ(mr__plane_unlink(&s->worker, link->port, &link->from), 0);
}

static void open_trial(struct trial *s, enum mr__pairing pairing)
{
    struct tables_config config = {.max_pairs = MAX_PAIRS,
                                   .max_raws = MAX_RAWS,
                                   .max_latches = MAX_LATCHES,
                                   .on_link = replicate,
                                   .user = s};

    memset(s, 0, sizeof *s);
    s->pairing = pairing;
    bed_open(&s->bed, PORTS, pairing);
    bed_open(&s->worker_bed, PORTS, pairing);
    bed_tables(&s->bed, &s->t, &config);
    s->worker_bed.config.max_links = mr__tables_max_links(&config);
    s->worker_bed.config.shared = s->bed.shared;
    bed_plane(&s->worker_bed, &s->worker);
}

static void close_trial(struct trial *s)
{
    bed_close(&s->bed);
    bed_close(&s->worker_bed);
}

static mr_relay_id any_id(struct trial *s)
{
    uint64_t n = test_random_below(PORTS + 2);

    if (n < PORTS)
        return s->m.relays[n].id; /* may be 0, which is nobody, too */
    return s->n_stale ? s->stale[test_random_below(s->n_stale)] : 12345;
}

static bool is_live(const struct trial *s, mr_relay_id id)
{
    return id && port_of(id) < PORTS && s->m.relays[port_of(id)].id == id;
}

static void remember_stale(struct trial *s, mr_relay_id id)
{
    s->stale[s->n_stale < 32 ? s->n_stale++ : test_random_below(32)] = id;
}

static void create_relay(struct trial *s, uint32_t port, unsigned addr, bool is_manual)
{
    struct relay_setup setup = {.timeout_ns = 30 * second, .is_manual = is_manual};
    struct mr_addr a = peer(addr);
    mr_relay_id id = 0;
    int rc;

    if (!s->m.relays[port].id)
        mr__relay_shared_init(&s->bed.shared[port], &s->bed.limits[port], &setup);
    rc = mr__tables_create(&s->t, port, &a, is_manual ? MR__RELAY_MANUAL : 0, port, &id);
    if (s->m.relays[port].id) {
        CHECK_EQ(rc, -EBUSY);
        return;
    }
    REQUIRE_EQ(rc, 0);
    CHECK_EQ(mr__plane_add(&s->worker, port, mr__relay_id_generation(id), &a,
                           is_manual ? MR__RELAY_MANUAL : 0, port),
             0);
    for (unsigned i = 0; i < s->n_stale; i++)
        CHECK_NE(s->stale[i], id);
    s->m.relays[port] = (struct model_relay){
        .id = id, .addr = addr, .since = ++s->m.clock, .egress = port, .is_manual = is_manual};
}

static void do_create(struct trial *s)
{
    uint32_t port = (uint32_t)test_random_below(PORTS);
    unsigned addr = (unsigned)test_random_below(ADDRS);

    create_relay(s, port, addr, test_random_below(6) == 0);
}

static void do_free(struct trial *s)
{
    mr_relay_id id = any_id(s);
    int rc = mr__tables_free(&s->t, id);

    CHECK_EQ(rc, is_live(s, id) ? 0 : -ENOENT);
    if (rc == 0) {
        CHECK_EQ(mr__plane_remove(&s->worker, port_of(id)), 0);
        model_free(&s->m, port_of(id));
        remember_stale(s, id);
    }
}

static void do_clear(struct trial *s)
{
    mr__tables_clear(&s->t);
    for (uint32_t port = 0; port < PORTS; port++) {
        if (s->m.relays[port].id) {
            CHECK_EQ(mr__plane_remove(&s->worker, port), 0);
            remember_stale(s, s->m.relays[port].id);
            model_free(&s->m, port);
        }
    }
    CHECK_EQ(s->t.plane.relays.live, 0u);
    CHECK_EQ(s->t.plane.links.used, 0u);
    CHECK_EQ(s->worker.links.used, 0u);
    CHECK_EQ(s->t.pair_pool.used, 0u);
    CHECK_EQ(s->t.raw_pool.used, 0u);
    CHECK_EQ(s->t.n_latches, 0u);
    CHECK_EQ(s->t.latch_index.used, 0u);
}

static void do_move(struct trial *s)
{
    mr_relay_id id = any_id(s);
    unsigned addr = (unsigned)test_random_below(ADDRS);
    struct mr_addr a = peer(addr);
    int rc = mr__tables_move(&s->t, id, &a);

    CHECK_EQ(rc, is_live(s, id) ? 0 : -ENOENT);
    if (rc == 0) {
        CHECK_EQ(mr__plane_move(&s->worker, port_of(id), &a), 0);
        for (int i = 0; i < MAX_PAIRS && s->m.relays[port_of(id)].addr != addr; i++) {
            if (s->m.pairs[i][0] == id || s->m.pairs[i][1] == id)
                s->m.legs[i][side_of(&s->m, i, id)].is_latched = false;
        }
        s->m.relays[port_of(id)].addr = addr;
        s->m.relays[port_of(id)].since = ++s->m.clock;
    }
}

static void pair_relays(struct trial *s, mr_relay_id a, mr_relay_id b)
{
    int rc = mr__tables_pair(&s->t, a, b), room = model_pair_find(&s->m, 0, 0);
    unsigned latches, pairs = model_count(&s->m, &latches);

    if (!is_live(s, a) || !is_live(s, b)) {
        CHECK_EQ(rc, -ENOENT);
    } else if (model_pair_find(&s->m, a, b) >= 0) {
        CHECK_EQ(rc, 0);
    } else if (room < 0 || 2 * pairs + latches + 2 > 2 * MAX_PAIRS) {
        CHECK_EQ(rc, -ENOSPC);
    } else {
        CHECK_EQ(rc, 1);
        memset(s->m.legs[room], 0, sizeof s->m.legs[room]);
        s->m.pairs[room][0] = a;
        s->m.pairs[room][1] = b;
    }
}

static void do_pair(struct trial *s)
{
    mr_relay_id a = any_id(s), b = test_random_below(8) ? any_id(s) : a;

    pair_relays(s, a, b);
}

static void do_unpair(struct trial *s)
{
    mr_relay_id a = any_id(s), b = any_id(s);
    int i = is_live(s, a) && is_live(s, b) ? model_pair_find(&s->m, a, b) : -1;

    CHECK_EQ(mr__tables_is_paired(&s->t, a, b), i >= 0);
    CHECK_EQ(mr__tables_unpair(&s->t, a, b), i >= 0 ? 0 : -ENOENT);
    if (i >= 0)
        s->m.pairs[i][0] = s->m.pairs[i][1] = 0;
}

/* Any two that are a pair, so that not nearly all of it is refused. */
static void any_pair(struct trial *s, mr_relay_id *id, mr_relay_id *other)
{
    int pair, side = (int)test_random_below(2), tries = 0;

    do
        pair = (int)test_random_below(MAX_PAIRS);
    while (s->m.pairs[pair][0] == s->m.pairs[pair][1] && ++tries < 50); /* free, or an echo */
    *id = s->m.pairs[pair][side];
    *other = s->m.pairs[pair][!side];
    if (test_random_below(10) == 0)
        *other = any_id(s);
}

/* The pair whose legs are two; -1: none. */
static int pair_with_legs(const struct trial *s, mr_relay_id a, mr_relay_id b)
{
    return is_live(s, a) && is_live(s, b) && a != b ? model_pair_find(&s->m, a, b) : -1;
}

static void watch_leg(struct trial *s, mr_relay_id a, mr_relay_id b)
{
    int pair = pair_with_legs(s, a, b);

    CHECK_EQ(mr__tables_watch(&s->t, a, b), pair >= 0 ? 0 : -ENOENT);
    if (pair >= 0) {
        struct model_leg *leg = &s->m.legs[pair][side_of(&s->m, pair, a)];

        if (leg->state == LEG_UNWATCHED && !s->m.relays[port_of(a)].is_manual)
            leg->state = LEG_FRESH;
        CHECK_EQ(mr__tables_is_fresh(&s->t, a, b), leg->state == LEG_FRESH);
    }
}

static void do_watch(struct trial *s)
{
    mr_relay_id a, b;

    any_pair(s, &a, &b);
    watch_leg(s, a, b);
}

static int expected_of_latch(struct trial *s, const struct model_leg *leg, unsigned addr,
                             uint32_t port)
{
    unsigned latches, pairs = model_count(&s->m, &latches);
    int side;

    if (leg->state != LEG_FRESH || leg->is_latched)
        return -EBUSY;
    if (model_newest(&s->m, addr, 0) >= 0)
        return -EADDRINUSE;
    if (model_raw_find(&s->m, port, addr) >= 0 || model_latched(&s->m, addr, port, &side) >= 0)
        return -EEXIST;
    return latches == MAX_LATCHES || 2 * pairs + latches + 1 > 2 * MAX_PAIRS ? -ENOSPC : 0;
}

static void latch_leg(struct trial *s, mr_relay_id id, mr_relay_id other, unsigned addr)
{
    struct mr_addr a = peer(addr);
    struct latch *latch;
    int pair = pair_with_legs(s, id, other);
    int rc = mr__tables_latch(&s->t, id, other, &a, &latch);
    struct model_leg *leg;

    if (pair < 0) {
        CHECK_EQ(rc, -ENOENT);
        return;
    }
    leg = &s->m.legs[pair][side_of(&s->m, pair, id)];
    CHECK_EQ(rc, expected_of_latch(s, leg, addr, port_of(other)));
    if (rc == 0) {
        latch->seq = 7;
        mr__tables_open_latches(&s->t, 6);
        CHECK_EQ(mr__links_find(&s->worker.links, port_of(other), &a) == NULL, true);
        mr__tables_open_latches(&s->t, 7);
        leg->is_latched = true;
        leg->seen = addr;
        s->latches++;
        s->double_latches += s->m.legs[pair][!side_of(&s->m, pair, id)].is_latched;
    }
}

static void do_latch(struct trial *s)
{
    mr_relay_id id, other;

    any_pair(s, &id, &other);
    latch_leg(s, id, other, (unsigned)test_random_below(SEEN));
}

/* What luck may never bring about: a pair that is latched on both sides. */
static void latch_both_legs(struct trial *s)
{
    uint32_t first = (uint32_t)test_random_below(PORTS);
    uint32_t second_port = (first + 1 + (uint32_t)test_random_below(PORTS - 1)) % PORTS;
    mr_relay_id a, b;

    do_clear(s);
    create_relay(s, first, 0, false);
    create_relay(s, second_port, 1, false);
    a = s->m.relays[first].id;
    b = s->m.relays[second_port].id;
    pair_relays(s, a, b);
    watch_leg(s, a, b);
    watch_leg(s, b, a);
    latch_leg(s, a, b, SEEN - 1);
    latch_leg(s, b, a, SEEN - 2);
}

static void do_unlatch(struct trial *s)
{
    mr_relay_id id, other;
    struct model_leg *leg = NULL;
    bool is_latched;
    int pair;

    any_pair(s, &id, &other);
    pair = pair_with_legs(s, id, other);
    if (pair >= 0)
        leg = &s->m.legs[pair][side_of(&s->m, pair, id)];
    is_latched = leg && leg->is_latched;
    CHECK_EQ(mr__tables_latched(&s->t, id, other) != NULL, is_latched);
    CHECK_EQ(mr__tables_unlatch(&s->t, id, other), is_latched ? 0 : -ENOENT);
    if (is_latched)
        leg->is_latched = false;
}

static void do_unlatch_address(struct trial *s)
{
    unsigned addr = (unsigned)test_random_below(SEEN), n = 0;
    struct mr_addr a = peer(addr);

    for (int i = 0; i < MAX_PAIRS; i++) {
        for (int side = 0; side < 2; side++) {
            struct model_leg *leg = &s->m.legs[i][side];

            if (s->m.pairs[i][0] && leg->is_latched && leg->seen == addr) {
                leg->is_latched = false;
                n++;
            }
        }
    }
    CHECK_EQ(mr__tables_unlatch_address(&s->t, &a), n);
}

static void do_egress(struct trial *s)
{
    mr_relay_id id = any_id(s);
    uint32_t egress = (uint32_t)test_random_below(100);
    int rc = mr__tables_set_egress(&s->t, id, egress);

    CHECK_EQ(rc, is_live(s, id) ? 0 : -ENOENT);
    if (rc == 0) {
        s->m.relays[port_of(id)].egress = egress;
        s->worker.relays.at[port_of(id)].egress = egress;
    }
}

static void do_link(struct trial *s)
{
    unsigned addr = (unsigned)test_random_below(ADDRS);
    struct link l = {.from = peer(addr),
                     .port = (uint32_t)test_random_below(PORTS),
                     .egress = (uint32_t)test_random_below(100),
                     .to = peer((unsigned)test_random_below(1000)),
                     .charged = MR__NONE,
                     .target = MR__NONE};
    int room = -1, rc;
    bool is_alive;

    if (test_random_below(3))
        l.charged = (uint32_t)test_random_below(PORTS);
    if (test_random_below(3))
        l.target = (uint32_t)test_random_below(PORTS);
    is_alive = (l.charged != MR__NONE || l.target != MR__NONE) &&
               (l.charged == MR__NONE || s->m.relays[l.charged].id) &&
               (l.target == MR__NONE || s->m.relays[l.target].id);
    for (int i = 0; i < MAX_RAWS; i++)
        room = s->m.raws[i].is_used ? room : i;
    rc = mr__tables_link(&s->t, &l);
    if (!is_alive) {
        CHECK_EQ(rc, -ENOENT);
    } else if (model_raw_find(&s->m, l.port, addr) >= 0) {
        CHECK_EQ(rc, -EEXIST);
    } else if (room < 0) {
        CHECK_EQ(rc, -ENOSPC);
    } else {
        CHECK_EQ(rc, 0);
        s->m.raws[room] = (struct model_raw){.is_used = true, .addr = addr, .link = l};
    }
}

static void do_unlink(struct trial *s)
{
    unsigned addr = (unsigned)test_random_below(ADDRS);
    uint32_t port = (uint32_t)test_random_below(PORTS);
    struct mr_addr a = peer(addr);
    int i = model_raw_find(&s->m, port, addr);

    CHECK_EQ(mr__tables_unlink(&s->t, port, &a), i >= 0 ? 0 : -ENOENT);
    if (i >= 0)
        s->m.raws[i].is_used = false;
}

static void do_port_flag(struct trial *s)
{
    uint32_t port = (uint32_t)test_random_below(PORTS);

    s->m.is_open_port[port] = test_random_below(6) == 0;
    s->t.plane.relays.at[port].port_flags = s->m.is_open_port[port] ? MR__PORT_OPEN : 0;
    s->worker.relays.at[port].port_flags = s->m.is_open_port[port] ? MR__PORT_OPEN : 0;
}

static bool same_decision(const struct plane_out *a, const struct plane_out *b)
{
    bool has_way = a->verdict == MR_VERDICT_FORWARD || a->verdict == MR_VERDICT_MANUAL;

    return a->verdict == b->verdict && a->is_miss == b->is_miss && a->charged == b->charged &&
           a->target == b->target &&
           (!has_way || (a->egress == b->egress && mr_addr_equal(&a->to, &b->to)));
}

/* What a worker does with a fresh link: decides, tells control, and has a link like others. */
static void use_fresh(struct trial *s, const struct plane_rx *rx, struct plane_out *got)
{
    struct model_leg *leg = model_fresh(&s->m, rx->from.ip[3], rx->port);

    REQUIRE(leg != NULL);
    REQUIRE(mr__plane_met_fresh(&s->worker, got));
    mr__plane_decide_fresh(&s->worker, second, rx, got);
    mr__plane_wear(&s->worker, rx->port, &rx->from);
    mr__tables_spoke(&s->t, s->m.relays[got->charged].id, s->m.relays[rx->port].id);
    leg->state = LEG_SPOKEN;
    leg->is_latched = false;
    s->uses++;
}

/* By a worker that knows only the commands. */
static void decide_remotely(struct trial *s, const struct plane_rx *rx, struct plane_out *got)
{
    mr__plane_batch(&s->worker, second, rx, 1, got);
    if (model_fresh(&s->m, rx->from.ip[3], rx->port))
        use_fresh(s, rx, got);
    mr__plane_finish(&s->worker, rx, 1, got);
}

static void decide_locally(struct trial *s, const struct plane_rx *rx, struct plane_out *got)
{
    struct model_leg *leg = model_fresh(&s->m, rx->from.ip[3], rx->port);

    CHECK_EQ(mr__tables_decide(&s->t, second, &rx->from, rx->port, 10, got), 0);
    if (leg) {
        leg->state = LEG_SPOKEN;
        leg->is_latched = false;
    }
}

static void check_decision(struct trial *s, int round, const struct plane_rx *rx)
{
    const struct link *link = mr__links_find(&s->worker.links, rx->port, &rx->from);
    bool is_fresh = model_fresh(&s->m, rx->from.ip[3], rx->port) != NULL;
    struct plane_out want = model_decide(&s->m, rx->from.ip[3], rx->port, s->pairing), got[2];

    CHECK_EQ(is_fresh, link && link->charged == PORTS + 1);
    if (is_fresh && !s->is_all_used && test_random_below(60) > 0)
        return;
    memset(got, 0, sizeof got);
    if (s->is_all_used || test_random_below(2)) {
        decide_remotely(s, rx, &got[0]);
        decide_locally(s, rx, &got[1]);
    } else {
        decide_locally(s, rx, &got[1]);
        decide_remotely(s, rx, &got[0]);
    }
    for (int i = 0; i < 2; i++) {
        if (!same_decision(&got[i], &want)) {
            FAIL("round %d, address %u at port %u: %s instead of %s (charged %u/%u, egress "
                 "%u/%u)",
                 round, rx->from.ip[3], rx->port, mr_verdict_name(got[i].verdict),
                 mr_verdict_name(want.verdict), got[i].charged, want.charged, got[i].egress,
                 want.egress);
            REQUIRE(!"the tables, a replica and the model agree");
        }
    }
}

static void check_all(struct trial *s, int round)
{
    for (uint32_t port = 0; port < PORTS; port++) {
        for (unsigned addr = 0; addr < SEEN; addr++) {
            struct plane_rx rx = {.from = peer(addr), .port = port, .size = 10};

            check_decision(s, round, &rx);
        }
    }
    CHECK_EQ(s->t.plane.totals.received_packets, sum_of_verdicts(&s->t.plane));
    CHECK_EQ(s->worker.totals.received_packets, sum_of_verdicts(&s->worker));
    CHECK_EQ(s->t.plane.links.used, s->worker.links.used);
}

static void run_trial(enum mr__pairing pairing)
{
    static const struct {
        void (*run)(struct trial *);
        unsigned weight;
    } ops[] = {{do_create, 30},   {do_free, 10},          {do_clear, 1},  {do_move, 20},
               {do_pair, 60},     {do_unpair, 8},         {do_egress, 5}, {do_link, 8},
               {do_unlink, 8},    {do_watch, 30},         {do_latch, 60}, {do_unlatch, 4},
               {do_port_flag, 3}, {do_unlatch_address, 4}};
    static struct trial s;
    unsigned total = 0;

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        total += ops[i].weight;
    open_trial(&s, pairing);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t pick = test_random_below(total);
        size_t i = 0;

        for (; pick >= ops[i].weight; i++)
            pick -= ops[i].weight;
        s.is_all_used = round % (ROUNDS / 8) == 0;
        if (round % (ROUNDS / 16) == 0)
            latch_both_legs(&s);
        else
            ops[i].run(&s);
        check_all(&s, round);
    }
    do_clear(&s);
    check_all(&s, ROUNDS);
    CHECK_GT(s.changes, (uint64_t)ROUNDS / 10);
    CHECK_GT(s.latches, 10u);
    CHECK_GE(s.double_latches, 16u);
    CHECK_GT(s.uses, 10u);
    close_trial(&s);
}

TEST(random_changes_leave_the_tables_and_a_replica_as_the_model_says_when_pairs_are_needed)
{
    run_trial(MR__PAIRING_PAIRED);
}

TEST(random_changes_leave_the_tables_and_a_replica_as_the_model_says_when_pairing_is_open)
{
    run_trial(MR__PAIRING_OPEN);
}

/* ---- named cases ------------------------------------------------------------------------ */

struct small {
    struct bed bed;
    struct tables t;
    struct tables_config config;
};

static void open_small(struct small *s, enum mr__pairing pairing)
{
    *s = (struct small){.config = {.max_pairs = 16, .max_raws = 4}};
    bed_open(&s->bed, 8, pairing);
    bed_tables(&s->bed, &s->t, &s->config);
}

static mr_relay_id create(struct small *s, uint32_t port, struct mr_addr a)
{
    mr_relay_id id = 0;

    CHECK_EQ(mr__tables_create(&s->t, port, &a, 0, port, &id), 0);
    return id;
}

static struct plane_out decide(struct small *s, struct mr_addr from, uint32_t port)
{
    struct plane_out out = {0};

    CHECK_EQ(mr__tables_decide(&s->t, second, &from, port, 100, &out), 0);
    return out;
}

TEST(a_pair_sends_from_the_senders_port_to_the_targets_address_both_ways)
{
    struct small s;
    struct plane_out out;

    open_small(&s, MR__PAIRING_PAIRED);
    CHECK_EQ(mr__tables_pair(&s.t, create(&s, 2, peer(1)), create(&s, 5, peer(2))), 1);
    out = decide(&s, peer(1), 5);
    CHECK_EQ(out.verdict, MR_VERDICT_FORWARD);
    CHECK_EQ(out.egress, 2u);
    CHECK_EQ(out.charged, 2u);
    CHECK_EQ(out.target, 5u);
    CHECK(
        mr_addr_equal(&out.to, &(struct mr_addr){.ip = {10, 0, 0, 2}, .port = 4000, .family = 4}));
    out = decide(&s, peer(2), 2);
    CHECK_EQ(out.verdict, MR_VERDICT_FORWARD);
    CHECK_EQ(out.egress, 5u);
    CHECK_EQ(decide(&s, peer(1), 2).verdict, MR_VERDICT_NOT_PAIRED);
    CHECK_EQ(decide(&s, peer(3), 2).verdict, MR_VERDICT_UNKNOWN_SENDER);
    CHECK_EQ(decide(&s, peer(1), 3).verdict, MR_VERDICT_UNKNOWN_TARGET);
    bed_close(&s.bed);
}

TEST(of_two_relays_with_one_ip_the_other_stays_routable_when_one_is_freed)
{
    struct mr_addr a = peer(1), b = peer(1);
    struct small s;
    mr_relay_id host, first, other;

    b.port = 4001;
    open_small(&s, MR__PAIRING_OPEN);
    host = create(&s, 0, peer(9));
    first = create(&s, 1, a);
    other = create(&s, 2, b);
    CHECK_EQ(decide(&s, a, 0).egress, 1u);
    CHECK_EQ(decide(&s, b, 0).egress, 2u);
    CHECK_EQ(mr__tables_free(&s.t, first), 0);
    CHECK_EQ(decide(&s, a, 0).verdict, MR_VERDICT_UNKNOWN_SENDER);
    CHECK_EQ(decide(&s, b, 0).egress, 2u);
    CHECK_EQ(decide(&s, peer(9), 2).verdict, MR_VERDICT_FORWARD);
    CHECK_EQ(mr__tables_free(&s.t, host), 0);
    CHECK_EQ(decide(&s, b, 0).verdict, MR_VERDICT_UNKNOWN_TARGET);
    CHECK_EQ(mr__tables_free(&s.t, other), 0);
    CHECK_EQ(mr__tables_free(&s.t, other), -ENOENT);
    bed_close(&s.bed);
}

TEST(two_relays_of_one_address_both_receive_and_the_newest_speaks_until_it_is_freed)
{
    struct small s;
    mr_relay_id host, older, newer;

    open_small(&s, MR__PAIRING_PAIRED);
    host = create(&s, 0, peer(9));
    older = create(&s, 1, peer(1));
    newer = create(&s, 2, peer(2));
    mr__tables_pair(&s.t, host, older);
    mr__tables_pair(&s.t, host, newer);
    CHECK_EQ(mr__tables_move(&s.t, newer,
                             &(struct mr_addr){.ip = {10, 0, 0, 1}, .port = 4000, .family = 4}),
             0);
    CHECK_EQ(decide(&s, peer(1), 0).egress, 2u);
    CHECK_EQ(decide(&s, peer(9), 1).verdict, MR_VERDICT_FORWARD);
    CHECK_EQ(decide(&s, peer(9), 2).verdict, MR_VERDICT_FORWARD);
    CHECK_EQ(decide(&s, peer(2), 0).verdict, MR_VERDICT_UNKNOWN_SENDER);
    mr__tables_free(&s.t, newer);
    CHECK_EQ(decide(&s, peer(1), 0).egress, 1u);
    CHECK_EQ(decide(&s, peer(9), 2).verdict, MR_VERDICT_UNKNOWN_TARGET);
    bed_close(&s.bed);
}

TEST(a_relay_paired_with_itself_is_an_echo)
{
    struct small s;
    struct plane_out out;
    mr_relay_id id;

    open_small(&s, MR__PAIRING_PAIRED);
    id = create(&s, 3, peer(1));
    CHECK_EQ(decide(&s, peer(1), 3).verdict, MR_VERDICT_NOT_PAIRED);
    CHECK_EQ(mr__tables_pair(&s.t, id, id), 1);
    CHECK_EQ(mr__tables_pair(&s.t, id, id), 0);
    out = decide(&s, peer(1), 3);
    CHECK_EQ(out.verdict, MR_VERDICT_FORWARD);
    CHECK_EQ(out.egress, 3u);
    CHECK_EQ(out.charged, 3u);
    CHECK_EQ(mr__tables_unpair(&s.t, id, id), 0);
    CHECK_EQ(decide(&s, peer(1), 3).verdict, MR_VERDICT_NOT_PAIRED);
    bed_close(&s.bed);
}

TEST(addresses_that_nobody_should_be_sent_to_are_refused_where_they_enter)
{
    static const struct {
        const char *text;
        int rc;
    } rows[] = {{"0.0.0.0:5", -EDESTADDRREQ},
                {"0.1.2.3:5", -EDESTADDRREQ},
                {"224.0.0.1:5", -EDESTADDRREQ},
                {"255.255.255.255:5", -EDESTADDRREQ},
                {"[::]:5", -EDESTADDRREQ},
                {"[ff02::1%2]:5", -EDESTADDRREQ},
                {"1.2.3.4:0", -EDESTADDRREQ},
                {"192.0.2.1:31000", -EADDRNOTAVAIL},
                {"127.0.0.1:8809", -EADDRNOTAVAIL},
                {"127.9.9.9:8809", -EADDRNOTAVAIL},
                {"192.0.2.1:8809", 0}};
    struct mr_addr own = peer(0), any = {.port = 8809, .family = 4}, a, none = {0};
    struct small s;
    mr_relay_id id = 77, other;

    open_small(&s, MR__PAIRING_PAIRED);
    mr_addr_parse(&own, "192.0.2.1:31000", 15, NULL);
    CHECK_EQ(mr__own_add(&s.t.plane.own, &own), 0);
    CHECK_EQ(mr__own_add(&s.t.plane.own, &any), 0);
    other = create(&s, 7, peer(1));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        REQUIRE_EQ(mr_addr_parse(&a, rows[i].text, strlen(rows[i].text), NULL), 0);
        CHECK_EQ(mr__tables_create(&s.t, 0, &a, 0, 0, &id), rows[i].rc);
        CHECK_EQ(mr__tables_move(&s.t, other, &a), rows[i].rc);
    }
    CHECK_EQ(mr__tables_create(&s.t, 1, &none, 0, 0, &id), -EINVAL);
    CHECK_EQ(mr__tables_create(&s.t, 8, &a, 0, 0, &id), -EINVAL);
    bed_close(&s.bed);
}

TEST(a_mapped_address_is_its_v4_peer_in_every_call)
{
    struct mr_addr mapped = {
        .ip = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}, .port = 4000, .family = 6};
    struct small s;
    mr_relay_id id;

    open_small(&s, MR__PAIRING_PAIRED);
    id = create(&s, 0, mapped);
    mr__tables_pair(&s.t, id, id);
    CHECK_EQ(decide(&s, peer(1), 0).verdict, MR_VERDICT_FORWARD);
    CHECK_EQ(decide(&s, mapped, 0).verdict, MR_VERDICT_FORWARD);
    CHECK_EQ(mr__tables_move(&s.t, id, &mapped), 0);
    CHECK(mr_addr_equal(&s.t.plane.relays.at[0].addr,
                        &(struct mr_addr){.ip = {10, 0, 0, 1}, .port = 4000, .family = 4}));
    bed_close(&s.bed);
}

TEST(a_raw_link_beats_a_pair_and_gives_the_key_back_when_it_ends)
{
    struct small s;
    struct link raw;
    mr_relay_id a, b;

    open_small(&s, MR__PAIRING_PAIRED);
    a = create(&s, 0, peer(1));
    b = create(&s, 1, peer(2));
    mr__tables_pair(&s.t, a, b);
    raw = (struct link){
        .from = peer(1), .port = 1, .egress = 6, .to = peer(7), .charged = 0, .target = MR__NONE};
    CHECK_EQ(mr__tables_link(&s.t, &raw), 0);
    CHECK_EQ(mr__tables_link(&s.t, &raw), -EEXIST);
    CHECK_EQ(decide(&s, peer(1), 1).egress, 6u);
    CHECK_EQ(decide(&s, peer(1), 1).target, MR__NONE);
    CHECK_EQ(mr__tables_unlink(&s.t, 1, &raw.from), 0);
    CHECK_EQ(mr__tables_unlink(&s.t, 1, &raw.from), -ENOENT);
    CHECK_EQ(decide(&s, peer(1), 1).egress, 0u);
    raw.charged = 5;
    CHECK_EQ(mr__tables_link(&s.t, &raw), -ENOENT);
    raw.port = 8;
    CHECK_EQ(mr__tables_link(&s.t, &raw), -EINVAL);
    bed_close(&s.bed);
}

TEST(a_port_whose_generations_are_used_up_makes_no_more_relays)
{
    struct mr_addr a = peer(1);
    struct small s;
    mr_relay_id id = 0;

    open_small(&s, MR__PAIRING_PAIRED);
    s.t.plane.relays.at[3].last_generation = UINT32_MAX - 1;
    CHECK_EQ(mr__tables_create(&s.t, 3, &a, 0, 3, &id), 0);
    CHECK_EQ(mr__relay_id_generation(id), UINT32_MAX);
    CHECK_EQ(mr__tables_free(&s.t, id), 0);
    CHECK_EQ(mr__tables_create(&s.t, 3, &a, 0, 3, &id), -EOVERFLOW);
    bed_close(&s.bed);
}

static void count_partner(void *user, mr_relay_id partner)
{
    uint64_t *sum = user;

    *sum += 1000 + mr__relay_id_port(partner);
}

TEST(partners_are_listed_once_each)
{
    struct small s;
    mr_relay_id a;
    uint64_t sum = 0;

    open_small(&s, MR__PAIRING_PAIRED);
    a = create(&s, 3, peer(3));
    mr__tables_pair(&s.t, a, a);
    mr__tables_pair(&s.t, a, create(&s, 1, peer(1)));
    mr__tables_pair(&s.t, create(&s, 5, peer(5)), a);
    CHECK_EQ(mr__tables_each_partner(&s.t, a, count_partner, &sum), 0);
    CHECK_EQ(sum, 3u * 1000 + 3 + 1 + 5);
    CHECK_EQ(mr__tables_each_partner(&s.t, 4711, count_partner, &sum), -ENOENT);
    bed_close(&s.bed);
}

TEST(relays_that_all_join_each_other_leave_pairs_for_those_that_have_none)
{
    mr_relay_id id[8];
    struct small s = {.config = {.max_pairs = 16, .reserved_pairs = 6, .max_raws = 4}};
    unsigned made = 0;

    bed_open(&s.bed, 8, MR__PAIRING_PAIRED);
    bed_tables(&s.bed, &s.t, &s.config);
    for (uint32_t i = 0; i < 5; i++) {
        id[i] = create(&s, i, peer(i + 1));
        mr__tables_pair(&s.t, id[i], id[i]);
    }
    for (uint32_t i = 0; i < 5; i++) {
        for (uint32_t k = 0; k < i; k++)
            made += mr__tables_pair(&s.t, id[i], id[k]) == 1;
    }
    CHECK_EQ(made, 6u); /* five echoes, five free ones, and the first of the last one of them */
    CHECK_EQ(mr__tables_pair(&s.t, id[4], id[3]), -ENOSPC);
    for (uint32_t i = 5; i < 7; i++) {
        id[i] = create(&s, i, peer(i + 1));
        CHECK_EQ(mr__tables_pair(&s.t, id[i], id[i]), 1);
        CHECK_EQ(mr__tables_pair(&s.t, id[i], id[0]), 1); /* a host who has many, too */
    }
    CHECK_EQ(mr__tables_pair(&s.t, id[6], id[5]), -ENOSPC);
    bed_close(&s.bed);
}

TEST(impossible_sizes_have_no_memory_and_bad_questions_no_answer)
{
    struct tables_config config = {.plane = {.ports = 0}, .max_pairs = 1};
    struct plane_out out = {.egress = 77};
    struct mr_addr none = {0}, a = peer(1);
    struct small s;

    CHECK_EQ(mr__tables_bytes(&config), 0u);
    config.plane.ports = UINT32_MAX;
    CHECK_EQ(mr__tables_bytes(&config), 0u);
    config.plane.ports = 10;
    CHECK_GT(mr__tables_bytes(&config), 0u);
    config.max_pairs = UINT32_MAX;
    CHECK_EQ(mr__tables_bytes(&config), 0u);
    open_small(&s, MR__PAIRING_PAIRED);
    CHECK_EQ(mr__tables_decide(&s.t, 0, &a, 8, 1, &out), -EINVAL);
    CHECK_EQ(mr__tables_decide(&s.t, 0, &none, 0, 1, &out), -EINVAL);
    CHECK_EQ(out.egress, 77u);
    bed_close(&s.bed);
}

TEST_MAIN(
    TEST_CASE(relays_that_all_join_each_other_leave_pairs_for_those_that_have_none),
    TEST_CASE(
        random_changes_leave_the_tables_and_a_replica_as_the_model_says_when_pairs_are_needed),
    TEST_CASE(random_changes_leave_the_tables_and_a_replica_as_the_model_says_when_pairing_is_open),
    TEST_CASE(a_pair_sends_from_the_senders_port_to_the_targets_address_both_ways),
    TEST_CASE(of_two_relays_with_one_ip_the_other_stays_routable_when_one_is_freed),
    TEST_CASE(two_relays_of_one_address_both_receive_and_the_newest_speaks_until_it_is_freed),
    TEST_CASE(a_relay_paired_with_itself_is_an_echo),
    TEST_CASE(addresses_that_nobody_should_be_sent_to_are_refused_where_they_enter),
    TEST_CASE(a_mapped_address_is_its_v4_peer_in_every_call),
    TEST_CASE(a_raw_link_beats_a_pair_and_gives_the_key_back_when_it_ends),
    TEST_CASE(a_port_whose_generations_are_used_up_makes_no_more_relays),
    TEST_CASE(partners_are_listed_once_each),
    TEST_CASE(impossible_sizes_have_no_memory_and_bad_questions_no_answer))
