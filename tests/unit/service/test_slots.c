/* SPDX-License-Identifier: MIT */
/*
 * Slots under whatever happens: random chains that admit with slots, refuse, fail or
 * answer late and in any order, while players join, move, leave, take ids over, are kicked
 * and blocked, relays end, ports change and memory runs out. Who holds what is told by tags
 * that come with the slots, so the expected counts are made from what everybody can see
 * and not from the service's own books. One thread. Start reading at step().
 */
#include "service/players.h"
#include "service/state.h"

#include "test.h"
#include "world.h"

#include <string.h>

enum { KEYS = 4, SETS = 4096, CONNS = 24, STEPS = 15000 };

static const struct {
    const char *key;
    uint32_t max;
} keys[KEYS] = {{"user/alice", 1}, {"ip/10.0.0.1", 2}, {"game", 3}, {"all", 6}};

static struct world *w;
static char pids[CONNS][300], oids[CONNS][300];
static size_t conns[CONNS];
static bool is_open[CONNS], is_known[CONNS]; /* has registered */

/* What each admission gave: bits by key. Its number is the value of the tag. */
static unsigned char sets[SETS];
static unsigned n_sets;

static struct str str(const char *s)
{
    return (struct str){s, strlen(s)};
}

/* ---- the books ----------------------------------------------------------------------------- */

struct holders {
    unsigned n[KEYS];
};

static unsigned bits_of(struct hook_map tags)
{
    unsigned bits = 0;

    for (size_t i = 0; i < tags.n; i++) {
        char number[16];
        snprintf(number, sizeof number, "%.*s", (int)tags.items[i].value.n, tags.items[i].value.s);
        bits |= sets[atoi(number) % SETS];
    }
    return bits;
}

static void count(struct holders *h, unsigned bits)
{
    for (unsigned k = 0; k < KEYS; k++) {
        h->n[k] += bits >> k & 1;
    }
}

static bool count_session(void *user, const struct hook_session *v)
{
    count(user, bits_of(v->tags));
    return true;
}

static bool count_relay(void *user, const struct hook_relay *v)
{
    count(user, bits_of(v->tags));
    return true;
}

static unsigned slot_count(const char *key)
{
    uint64_t hash = mr__service_hash(w->service, key, strlen(key));

    for (struct table_node *n = mr__table_first(&w->service->slots, hash); n;
         n = mr__table_next(n)) {
        const struct slot *slot = MR_CONTAINER(n, struct slot, node);
        if (slot->n == strlen(key) && memcmp(slot->key, key, slot->n) == 0) {
            return slot->count;
        }
    }
    return 0;
}

static bool are_books_right(void)
{
    const struct hook_map all = {NULL, 0};
    struct holders h = {{0}};
    unsigned n = 0;

    mr__players_sessions(w->service, all, count_session, &h);
    mr__players_relays(w->service, all, count_relay, &h);
    for (unsigned k = 0; k < KEYS; k++) {
        CHECK_EQ(slot_count(keys[k].key), h.n[k]);
        CHECK_LE(slot_count(keys[k].key), keys[k].max);
        if (slot_count(keys[k].key) != h.n[k] || h.n[k] > keys[k].max) {
            return false;
        }
        n += h.n[k] > 0;
    }
    CHECK_EQ(w->service->slots.n, n);
    CHECK_EQ(w->service->n_pending, w->n_pending);
    return w->service->slots.n == n && w->service->n_pending == w->n_pending;
}

/* ---- the policies -------------------------------------------------------------------------- */

/* Another answer each time; slots and tag belong together. */
static void draw_answer(enum hook hook)
{
    static struct hook_slot slots[KEYS];
    static struct hook_pair tag;
    static char value[16];
    static const char *const names[] = {[MR_HOOK_REGISTER] = "r",
                                        [MR_HOOK_CONNECT] = "k",
                                        [MR_HOOK_CREATE] = "c",
                                        [MR_HOOK_DROP] = "d"};
    unsigned dice = test_random_below(10);
    struct hook_answer *a = &w->canned[hook].answer;

    *a = (struct hook_answer){.outcome = dice < 6   ? MR_HOOK_ADMIT
                                         : dice < 8 ? MR_HOOK_NO_OPINION
                                         : dice < 9 ? MR_HOOK_REFUSE
                                                    : MR_HOOK_FAILED};
    if (a->outcome != MR_HOOK_ADMIT) {
        return;
    }
    unsigned number = n_sets++ % SETS;
    sets[number] = hook == MR_HOOK_CONNECT ? 0 : (unsigned char)test_random_below(1 << KEYS);
    for (unsigned k = 0; k < KEYS; k++) {
        if (sets[number] >> k & 1) {
            slots[a->n_slots++] = (struct hook_slot){str(keys[k].key), keys[k].max};
        }
    }
    a->slots = slots;
    snprintf(value, sizeof value, "%u", number);
    tag = (struct hook_pair){str(names[hook]), str(value)};
    a->tags = (struct hook_map){&tag, 1};
    if (hook == MR_HOOK_REGISTER && test_random_below(4) == 0) {
        a->oid = str("alice");
        a->takeover = test_random_below(2);
    }
    if (hook == MR_HOOK_CREATE && test_random_below(3) == 0) {
        a->spec.has_ttl = true;
        a->spec.ttl_ns = 500000000;
    }
}

static void kick_somebody(void)
{
    mr__players_kick(w->service, test_random_below(w->service->last_session + 1) + 1, str("x"));
}

/* For a moment: an address, a socket, or whoever got something by one admission. */
static void block_somebody(void)
{
    char text[64];
    struct hook_pair pairs[MR_TAGS_MAX];
    char why[MR_CIDR_WHY_MAX];
    struct block_what what;

    switch (test_random_below(3)) {
    case 0:
        snprintf(text, sizeof text, "10.0.0.%u", 1 + (unsigned)test_random_below(4));
        break;
    case 1:
        snprintf(text, sizeof text, "10.0.0.%u:%u", 1 + (unsigned)test_random_below(4),
                 6000 + (unsigned)test_random_below(3));
        break;
    default:
        snprintf(text, sizeof text, "%s=%u", test_random_below(2) ? "r" : "c",
                 (unsigned)(n_sets > 20 ? n_sets - test_random_below(20) : 0) % SETS);
        break;
    }
    if (!mr__block_parse(&what, text, strlen(text), pairs, why)) {
        CHECK(false);
        return;
    }
    (void)mr__blocks_add(w->service, &what, 0.2, str("x"), str("test"), NULL);
}

/* In a hook: some kick or block somebody, maybe who asks. */
static void inside(struct world *world, enum hook hook)
{
    (void)world;
    if (hook > MR_HOOK_DROP) {
        return;
    }
    draw_answer(hook);
    w->canned[hook].is_kept_waiting = test_random_below(3) == 0;
    if (test_random_below(40) == 0) {
        kick_somebody();
    }
    if (test_random_below(150) == 0) {
        block_somebody();
    }
}

/* ---- what happens -------------------------------------------------------------------------- */

static void read_ids(unsigned i)
{
    const char *line;

    while (*(line = world_line(w, conns[i]))) {
        sscanf(line, "set-oid %299s", oids[i]);
        is_known[i] = sscanf(line, "set-pid %299s", pids[i]) == 1 || is_known[i];
    }
    is_open[i] = !w->wires[conns[i]].is_closed;
}

static void connect_one(unsigned i)
{
    char peer[40];

    if (is_open[i] || w->n_wires >= WORLD_CONNS) {
        return;
    }
    snprintf(peer, sizeof peer, "10.0.0.%u:%u", 1 + i % 4, 5000 + i);
    conns[i] = world_connect(w, peer);
    is_open[i] = w->wires[conns[i]].id != 0;
    is_known[i] = false;
}

static void say_one(unsigned i)
{
    static const char *const commands[] = {"register-host\n", "connect-relay %s\n",
                                           "connect-relay %s\n", "connect %s\n"};
    const char *command =
        commands[pids[i][0] && is_known[i] ? 1 + test_random_below(3) : test_random_below(4)];
    char line[800];

    if (!is_open[i] || w->wires[conns[i]].is_paused) {
        return;
    }
    snprintf(line, sizeof line, "%s", commands[0]);
    const char *hole = strchr(command, '%');
    if (hole) {
        snprintf(line, sizeof line, "%.*s%s\n", (int)(hole - command), command,
                 oids[test_random_below(CONNS)]);
    }
    world_say(w, conns[i], line);
}

static void see_one(unsigned i)
{
    char from[40];

    snprintf(from, sizeof from, "10.0.0.%u:%u", 1 + (unsigned)test_random_below(4),
             6000 + (unsigned)test_random_below(3));
    if (pids[i][0]) {
        world_registrar(w, from, pids[i], strlen(pids[i]));
    }
}

static void leave_one(unsigned i)
{
    if (is_open[i]) {
        is_open[i] = false;
        w->wires[conns[i]].is_closed = true;
        mr__service_closed(w->service, w->wires[conns[i]].id, MR_CONN_RESET, w->now_ns);
        world_settle(w);
    }
}

static bool take_nth(void *user, const struct hook_relay *v)
{
    struct hook_relay *out = user;

    *out = *v;
    return test_random_below(3) != 0;
}

static void close_one(void)
{
    struct hook_relay view = {.id = 0};

    mr__players_relays(w->service, (struct hook_map){NULL, 0}, take_nth, &view);
    if (view.id) {
        CHECK_EQ(mr__players_close(w->service, str(view.text), str("x")), 0);
    }
    world_settle(w);
}

static void knock_one(void)
{
    char from[40];
    const struct pool *pool = &w->service->pool;

    snprintf(from, sizeof from, "10.0.0.%u:%u", 1 + (unsigned)test_random_below(6),
             6000 + (unsigned)test_random_below(5));
    const struct seat *seat = pool->seats[test_random_below(pool->n)];
    if (!mr__list_is_empty(&pool->used) && test_random_below(4) > 0) {
        seat = MR_CONTAINER(pool->used.next, struct seat, used);
    }
    world_inject(w, from, seat->number, 10);
}

static void answer_one(void)
{
    if (w->n_pending > 0) {
        size_t i = test_random_below(w->n_pending);
        draw_answer(w->pending_hook[i]);
        world_answer_one(w, i);
    }
}

static void change_ports(void)
{
    char range[64], kept[256];

    snprintf(range, sizeof range, "udp_relay_ports=%u+%u", 49152 + (unsigned)test_random_below(4),
             2 + (unsigned)test_random_below(5));
    CHECK_EQ(world_reload(w, (const char *[]){range, "udp_relay_timeout=2s", NULL}, kept), 0);
}

static void step(void)
{
    unsigned i = (unsigned)test_random_below(CONNS);
    bool is_short = test_random_below(6) == 0;

    connect_one(i);
    if (is_short) {
        mr__alloc_fail_after((long)test_random_below(12));
    }
    switch (test_random_below(12)) {
    case 0:
        if (test_random_below(3) == 0) {
            leave_one(i);
        }
        break;
    case 1:
        if (test_random_below(4) == 0) {
            kick_somebody();
            world_settle(w);
        }
        if (test_random_below(25) == 0) {
            block_somebody();
            world_settle(w);
        }
        break;
    case 2:
        if (test_random_below(3) == 0) {
            close_one();
        }
        break;
    case 3:
        knock_one();
        break;
    case 4:
    case 5:
        answer_one();
        break;
    case 6:
        world_advance(w, test_random_below(300));
        break;
    case 7:
    case 8:
        see_one(i);
        break;
    case 9:
        mr__alloc_fail_after(-1);
        if (test_random_below(4) == 0) {
            change_ports();
        }
        break;
    default:
        say_one(i);
        break;
    }
    mr__alloc_fail_after(-1);
    world_settle(w);
    for (i = 0; i < CONNS; i++) {
        if (is_open[i] && world_lines_left(w, conns[i]) > 0) {
            read_ids(i);
            if (test_random_below(2)) {
                see_one(i);
            }
        }
    }
}

TEST(the_count_of_every_slot_is_the_number_of_its_live_holders_whatever_happens)
{
    w = world_open((const char *[]){"udp_relay_ports=49152+3", "udp_relay_timeout=2s", NULL});
    for (enum hook hook = MR_HOOK_REGISTER; hook <= MR_HOOK_DROP; hook++) {
        world_answer(w, hook, MR_HOOK_NO_OPINION);
    }
    w->inside = inside;
    memset(is_open, 0, sizeof is_open);
    memset(pids, 0, sizeof pids);
    memset(oids, 0, sizeof oids);
    for (unsigned n = 0; n < STEPS; n++) {
        step();
        REQUIRE(are_books_right());
    }
    /* All leave; what waits comes to its end. */
    for (unsigned i = 0; i < CONNS; i++) {
        leave_one(i);
        REQUIRE(are_books_right());
    }
    while (w->n_pending > 0) {
        answer_one();
        REQUIRE(are_books_right());
    }
    w->inside = NULL;
    world_advance(w, 3000);
    CHECK_EQ(w->service->slots.n, 0);
    CHECK_EQ(w->service->makings.n, 0);
    CHECK_EQ(w->service->n_knocks, 0);
    CHECK_EQ(w->service->sources.n, 0);
    CHECK_EQ(world_relays(w), 0);
    CHECK_EQ(w->service->pool.n_kind[MR_SEAT_PLAYER] + w->service->pool.n_kind[MR_SEAT_DYNAMIC], 0);
    for (enum hook hook = MR_HOOK_REGISTER; hook <= MR_HOOK_DROP; hook++) {
        CHECK_GT(w->canned[hook].asked, 10);
    }
    CHECK_GT(w->cancelled, 0);
    world_close(w);
}

TEST_MAIN(TEST_CASE(the_count_of_every_slot_is_the_number_of_its_live_holders_whatever_happens))
