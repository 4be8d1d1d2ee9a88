/* SPDX-License-Identifier: MIT */
/*
 * See service_books.h. One thread. Everything is counted anew from what is there, by the
 * slowest way that cannot be wrong. Start reading at books_check().
 */
#include "service_books.h"

#include <string.h>

enum { IPS_MAX = 1024 }; /* of one world */

static size_t length(const struct list *head)
{
    size_t n = 0;

    for (const struct list *l = head->next; l != head; l = l->next) {
        require(l->next->prev == l);
        n++;
    }
    return n;
}

static bool is_in_list(const struct list *head, const struct list *link)
{
    for (const struct list *l = head->next; l != head; l = l->next) {
        if (l == link) {
            return true;
        }
    }
    return false;
}

static bool is_in_table(const struct table *t, const struct table_node *node)
{
    const struct table_node *n = mr__table_first(t, node->hash);

    while (n && n != node) {
        n = mr__table_next(n);
    }
    return n != NULL;
}

static struct mr_addr ip_of(const struct mr_addr *addr)
{
    struct mr_addr ip = *addr;

    ip.port = 0;
    return ip;
}

static bool is_same_ip(const struct mr_addr *a, const struct mr_addr *b)
{
    struct mr_addr x = ip_of(a), y = ip_of(b);

    return mr_addr_equal(&x, &y);
}

/* ---- players ------------------------------------------------------------------------------- */

static void check_ids(const struct service *s, const struct session *p)
{
    require(p->by_id.hash == p->id && is_in_table(&s->sessions, &p->by_id));
    require(p->by_oid.hash == mr__service_hash(s, p->oid, p->oid_n));
    require(p->by_pid.hash == mr__service_hash(s, p->pid, p->pid_n));
    require(is_in_table(&s->oids, &p->by_oid) && is_in_table(&s->pids, &p->by_pid));
    require(p->is_ending == is_in_list(&s->ending, &p->ending));
    if (!p->is_ending) { /* no other one has its ids */
        require(mr__session_find(s, p->id) == p);
        require(mr__session_by_oid(s, p->oid, p->oid_n) == p);
        require(mr__session_by_pid(s, p->pid, p->pid_n) == p);
    }
}

/* Returns whether it is the first of its place. */
static bool check_place(const struct service *s, const struct session *p)
{
    const struct place *place = p->place;
    size_t near = 0;

    require((place != NULL) == (p->addr.family != 0));
    if (!place) {
        require(mr__list_is_empty(&p->at_place) && mr__list_is_empty(&p->moving));
        return false;
    }
    require(mr_addr_equal(&place->addr, &p->addr) && is_in_table(&s->places, &place->node));
    require(is_in_list(&place->sessions, &p->at_place));
    if (place->sessions.next != &p->at_place) {
        return false;
    }
    for (const struct list *l = place->sessions.next; l != &place->sessions; l = l->next) {
        const struct session *other = MR_CONTAINER(l, struct session, at_place);
        near += is_same_ip(&other->addr, &other->connection->peer);
    }
    require(near == place->n_near);
    return true;
}

static void check_what_it_has(const struct service *s, const struct session *p)
{
    require(is_in_list(&s->all_connections, &p->connection->link));
    require(is_in_list(&p->connection->sessions, &p->at_connection));
    for (const struct list *l = p->owned.next; l != &p->owned; l = l->next) {
        const struct seat *seat = MR_CONTAINER(l, struct seat, owned);
        require(seat->state == MR_SEAT_USED && seat->owner == p->id);
    }
    for (const struct list *l = p->joins.next; l != &p->joins; l = l->next) {
        const struct request *r = MR_CONTAINER(l, struct request, at_host);
        require(r->is_active && (r->host == 0 || r->host == p->id)); /* 0: connect is asked */
    }
}

static void check_sessions(const struct service *s)
{
    size_t n = 0, addressed = 0, places = 0;

    for (const struct list *l = s->all_sessions.next; l != &s->all_sessions; l = l->next) {
        const struct session *p = MR_CONTAINER(l, struct session, at_all);
        n++;
        addressed += p->place != NULL;
        check_ids(s, p);
        places += check_place(s, p);
        check_what_it_has(s, p);
    }
    require(n == s->sessions.n && n == s->oids.n && n == s->pids.n);
    require(addressed == s->n_addressed && places == s->places.n);
    require(length(&s->moving) <= addressed);
}

static size_t check_connections(const struct service *s)
{
    size_t n = 0, sessions = 0, slowed = 0, makings = 0;

    for (const struct list *l = s->all_connections.next; l != &s->all_connections; l = l->next) {
        const struct connection *c = MR_CONTAINER(l, struct connection, link);
        n++;
        require(!c->is_closing && mr__connection_find(s, c->id) == c);
        require(c->n_sessions == length(&c->sessions));
        require(!c->request.is_active || c->is_waiting);
        require(c->in_at <= c->in_n && c->in_n <= c->in_cap);
        sessions += c->n_sessions;
        slowed += !mr__list_is_empty(&c->slowed);
        for (size_t i = 0; c->request.is_active && i < c->request.n_sides; i++) {
            makings += c->request.sides[i].making.is_held;
        }
    }
    require(n == s->n_connections && n == s->connections.n && sessions == s->sessions.n);
    require(slowed == length(&s->slowed) && mr__list_is_empty(&s->dead_connections));
    return makings;
}

/* ---- what is counted by address ------------------------------------------------------------ */

static void check_source(const struct service *s, const struct source *source)
{
    uint32_t connections = 0, dynamics = 0;

    for (const struct list *l = s->all_connections.next; l != &s->all_connections; l = l->next) {
        connections += MR_CONTAINER(l, struct connection, link)->source == source;
    }
    for (size_t i = 0; i < s->pool.n; i++) {
        dynamics += s->pool.seats[i]->source == source;
    }
    require(is_in_table(&s->sources, &source->node));
    require(source->connections == connections && source->dynamics == dynamics);
}

/* Adds what is not there yet. */
static void collect(const void **all, size_t *n, const void *one)
{
    for (size_t i = 0; i < *n; i++) {
        if (all[i] == one) {
            return;
        }
    }
    require(*n < IPS_MAX);
    all[(*n)++] = one;
}

static void check_sources(const struct service *s)
{
    const void *sources[IPS_MAX];
    size_t n = 0;

    for (const struct list *l = s->all_connections.next; l != &s->all_connections; l = l->next) {
        collect(sources, &n, MR_CONTAINER(l, struct connection, link)->source);
    }
    for (size_t i = 0; i < s->pool.n; i++) {
        if (s->pool.seats[i]->source) {
            collect(sources, &n, s->pool.seats[i]->source);
        }
    }
    for (size_t i = 0; i < n; i++) {
        check_source(s, sources[i]);
    }
    require(n == s->sources.n);
}

static const struct known *find_known(const struct service *s, const struct mr_addr *addr)
{
    struct mr_addr ip = ip_of(addr);
    uint64_t hash = mr__table_hash(&s->key, &ip, sizeof(struct mr_addr));

    for (struct table_node *n = mr__table_first(&s->knowns, hash); n; n = mr__table_next(n)) {
        const struct known *k = MR_CONTAINER(n, struct known, node);
        if (mr_addr_equal(&k->ip, &ip)) {
            return k;
        }
    }
    abort();
}

static void check_known(const struct service *s, const struct known *k)
{
    uint32_t live = 0, near = 0;

    for (const struct list *l = s->all_sessions.next; l != &s->all_sessions; l = l->next) {
        const struct session *p = MR_CONTAINER(l, struct session, at_all);
        near += is_same_ip(&p->connection->peer, &k->ip);
        live += p->place && is_same_ip(&p->addr, &k->ip);
    }
    require(k->near == near);
    require(k->live == live + near);
}

static void check_knowns(const struct service *s)
{
    const void *live[IPS_MAX];
    size_t n = 0;

    for (const struct list *l = s->all_sessions.next; l != &s->all_sessions; l = l->next) {
        const struct session *p = MR_CONTAINER(l, struct session, at_all);
        collect(live, &n, find_known(s, &p->connection->peer));
        if (p->place) {
            collect(live, &n, find_known(s, &p->addr));
        }
    }
    for (size_t i = 0; i < n; i++) {
        check_known(s, live[i]);
    }
    for (const struct list *l = s->gone.next; l != &s->gone; l = l->next) {
        check_known(s, MR_CONTAINER(l, struct known, gone));
    }
    require(length(&s->gone) == s->n_gone && n + s->n_gone == s->knowns.n);
    require(length(&s->unwelcomes) == s->unwelcome.n);
}

/* ---- slots --------------------------------------------------------------------------------- */

static const struct slot *nth_slot(const struct held_slots *held, size_t i)
{
    return i < held->n ? held->items[i] : NULL;
}

static void collect_slots(const void **all, size_t *n, const struct held_slots *held)
{
    for (size_t i = 0; i < held->n; i++) {
        collect(all, n, held->items[i]);
    }
}

static uint32_t count_holders(const struct held_slots *held, const struct slot *slot)
{
    uint32_t n = 0;

    for (size_t i = 0; i < held->n; i++) {
        n += nth_slot(held, i) == slot;
    }
    return n;
}

/* Every slot's count is the number of those who hold it, and nobody else is counted. */
static void check_slots(const struct service *s)
{
    const void *slots[IPS_MAX];
    size_t n = 0;

    for (const struct list *l = s->all_sessions.next; l != &s->all_sessions; l = l->next) {
        collect_slots(slots, &n, &MR_CONTAINER(l, struct session, at_all)->slots);
    }
    for (size_t i = 0; i < s->pool.n; i++) {
        collect_slots(slots, &n, &s->pool.seats[i]->slots);
    }
    for (size_t i = 0; i < n; i++) {
        const struct slot *slot = slots[i];
        uint32_t holders = 0;
        for (const struct list *l = s->all_sessions.next; l != &s->all_sessions; l = l->next) {
            holders += count_holders(&MR_CONTAINER(l, struct session, at_all)->slots, slot);
        }
        for (size_t k = 0; k < s->pool.n; k++) {
            holders += count_holders(&s->pool.seats[k]->slots, slot);
        }
        require(is_in_table(&s->slots, &slot->node) && slot->count == holders);
    }
    require(n == s->slots.n);
}

/* ---- ports and relays ---------------------------------------------------------------------- */

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

static void check_free(const struct service *s, const struct seat *seat)
{
    require(seat->relay == 0 && seat->owner == 0 && seat->slots.n == 0 && seat->tags.n == 0);
    require(!seat->is_leaving && !seat->source && !seat->is_announced && !seat->is_closing);
    require(mr__list_is_empty(&seat->used) && mr__list_is_empty(&seat->owned));
    require(mr_relay_at(s->mr, seat->port) == 0);
    if (seat->state == MR_SEAT_READY) {
        require(seat->ready_at < s->pool.n_ready && s->pool.ready[seat->ready_at] == seat);
    } else {
        require(is_in_list(&s->pool.quarantine, &seat->quarantine));
    }
}

/* Whose it is: nobody, or a session that is there and has it among its own. */
static void check_owner(const struct service *s, const struct seat *seat)
{
    struct table_node *n = seat->owner ? mr__table_first(&s->sessions, seat->owner) : NULL;
    struct mr_relay_info info;

    require((n != NULL) == (seat->owner != 0));
    require(mr__list_is_empty(&seat->owned) == (seat->owner == 0));
    if (n) {
        require(is_in_list(&MR_CONTAINER(n, struct session, by_id)->owned, &seat->owned));
    }
    if (mr_relay_info(s->mr, seat->relay, &info) == 0) {
        require(info.user == seat->owner && info.port == seat->port);
    }
}

static void check_used(const struct service *s, const struct seat *seat)
{
    require(!mr__list_is_empty(&seat->used) && seat->relay != 0);
    require((seat->source != NULL) == (seat->kind != MR_SEAT_PLAYER));
    require(seat->kind != MR_SEAT_TARGET || seat->is_closing ||
            mr_is_linked(s->mr, seat->entry, &seat->peer));
    require(seat->dynamics_to_me == count_dynamics_to(s, seat->relay));
    require(seat->is_closing || mr__seat_of_relay(s, seat->relay) == seat);
    check_owner(s, seat);
}

static void check_seats(const struct service *s)
{
    size_t kinds[MR_SEAT_KIND_COUNT] = {0}, used = 0, ready = 0, indexed = 0;

    for (size_t i = 0; i < s->pool.n; i++) {
        const struct seat *seat = s->pool.seats[i];
        require(seat->at == i && mr__pool_seat(s, seat->port) == seat);
        require(seat->flows_in == count_flows(s, seat->port));
        ready += seat->state == MR_SEAT_READY;
        if (seat->state == MR_SEAT_USED) {
            used++;
            kinds[seat->kind]++;
            check_used(s, seat);
        } else {
            check_free(s, seat);
        }
    }
    for (size_t i = 0; i < s->pool.n_by_port; i++) {
        indexed += s->pool.by_port[i] != NULL;
    }
    require(memcmp(kinds, s->pool.n_kind, sizeof kinds) == 0);
    require(used == length(&s->pool.used) && ready == s->pool.n_ready);
    require(length(&s->pool.quarantine) == s->pool.n_quarantined);
    require(used + ready + s->pool.n_quarantined == s->pool.n && indexed == s->pool.n);
}

/* No relay of the engine's without a seat that says whose it is. */
static void check_relays(const struct service *s)
{
    for (mr_relay_id id = mr_relay_next(s->mr, 0); id; id = mr_relay_next(s->mr, id)) {
        const struct seat *seat = mr__seat_of_relay(s, id);
        require(seat && seat->relay == id && !seat->is_closing);
    }
}

/* Flows to targets, at the ports where they come in. */
static void check_fronts(const struct service *s)
{
    for (const struct list *l = s->fronts.next; l != &s->fronts; l = l->next) {
        const struct front *front = MR_CONTAINER(l, struct front, link);
        require(mr__front_at(s, front->port) == front && !mr__pool_seat(s, front->port));
        require(front->flows_in == count_flows(s, front->port));
        require(!front->is_leaving || front->flows_in > 0);
    }
    require(length(&s->fronts) == s->front_index.n);
}

/* Somebody has registered there whose connection comes from that IP. */
static int is_somebodys(const struct service *s, const struct mr_addr *addr)
{
    const struct session *latest = mr__session_at(s, addr);
    const struct session *owner = latest ? mr__session_owner_at(s, addr, latest) : NULL;

    return owner && mr__session_is_near(owner);
}

/* Who speaks for another is where that one has registered, and is nobody himself: a PID that was
 * shown from there may be forged. */
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
    require(!is_somebodys(s, &seen));
    require(is_same_ip(&info.peer, &seen));
    return 1;
}

static void check_latches(const struct service *s, const struct mr_stats *st)
{
    unsigned legs = 0;

    for (struct list *a = s->pool.used.next; a != &s->pool.used; a = a->next) {
        for (struct list *b = s->pool.used.next; b != &s->pool.used; b = b->next) {
            legs += check_leg(s, MR_CONTAINER(a, struct seat, used),
                              MR_CONTAINER(b, struct seat, used));
        }
    }
    require(st->latches == legs);
    require(length(&s->latches) == s->n_latches && s->latch_sides.n <= 2 * s->n_latches);
}

/* ---- what waits ---------------------------------------------------------------------------- */

static void check_waiting(const struct service *s, size_t makings)
{
    for (const struct list *l = s->knocks.next; l != &s->knocks; l = l->next) {
        makings += MR_CONTAINER(l, struct knock, link)->making.is_held;
    }
    require(makings == s->makings.n);
    require(length(&s->knocks) == s->n_knocks && length(&s->unasked) <= s->n_knocks);
    require(length(&s->lookups) == s->n_lookups && length(&s->notices) == s->n_notices);
    for (const struct list *l = s->waiting.next; l != &s->waiting; l = l->next) {
        require(MR_CONTAINER(l, struct request, in_force)->is_active);
    }
    for (const struct list *l = s->late.next; l != &s->late; l = l->next) {
        require(MR_CONTAINER(l, struct request, late)->is_active);
    }
}

static void check_blocks(const struct service *s)
{
    const struct blocks *b = &s->blocks;
    size_t sockets = 0, tags = 0, nets = 0, by_hand = 0, counted = 0, n = 0;

    for (const struct list *l = b->all.next; l != &b->all; l = l->next) {
        const struct block *block = MR_CONTAINER(l, struct block, link);
        n++;
        by_hand += block->parent == NULL;
        sockets += block->what.kind == MR_BLOCK_SOCKET;
        tags += block->what.kind == MR_BLOCK_TAGS;
        nets += block->what.kind == MR_BLOCK_NET;
    }
    for (unsigned i = 0; i <= 32; i++) {
        counted += b->lengths4[i];
    }
    for (unsigned i = 0; i <= 128; i++) {
        counted += b->lengths6[i];
    }
    require(sockets == b->n_sockets && tags == b->n_tags && nets == counted);
    require(by_hand == b->n_by_hand && n == b->due.n);
    for (size_t i = 0; i < b->due.n; i++) {
        require(mr__due_at(&b->due, i)->place == i);
        require(mr__due_first(&b->due)->at_ns <= mr__due_at(&b->due, i)->at_ns);
    }
}

/* ---- all of it ----------------------------------------------------------------------------- */

void books_check(const struct service *s)
{
    struct mr_stats st;
    uint64_t sum = 0;

    require(mr_get_stats(s->mr, &st, sizeof st) == 0);
    for (unsigned v = 0; v < MR_VERDICT_COUNT; v++) {
        sum += st.verdicts[v];
    }
    require(st.received == sum + st.held);
    require(st.ports == s->pool.n + s->front_index.n);
    check_sessions(s);
    check_waiting(s, check_connections(s));
    check_sources(s);
    check_knowns(s);
    check_slots(s);
    check_seats(s);
    check_relays(s);
    check_fronts(s);
    check_latches(s, &st);
    check_blocks(s);
}
