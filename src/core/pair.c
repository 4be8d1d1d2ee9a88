/* SPDX-License-Identifier: MIT */
/*
 * Control's tables. Which link a key has is never worked out from the change at
 * hand: refresh() asks who wants that key now, compares with what is there and tells
 * the difference. Create, free, move, pair and unpair only have to name the keys
 * that may have changed; a stale link would need a forgotten name.
 *
 * Belongs to the control thread. Start reading at refresh().
 */
#include "core/pair.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { PAIRS_MAX = 1 << 27 };

/* ---- memory ------------------------------------------------------------------------ */

uint32_t mr__tables_max_links(const struct tables_config *config)
{
    if (config->max_pairs > PAIRS_MAX || config->max_raws > PAIRS_MAX)
        return UINT32_MAX; /* which mr__plane_bytes() refuses */
    return 2 * config->max_pairs + config->max_raws;
}

static struct plane_config plane_config(const struct tables_config *config)
{
    struct plane_config plane = config->plane;

    plane.max_links = mr__tables_max_links(config);
    return plane;
}

static size_t pairs_bytes(const struct tables_config *config)
{
    return mr__hash_align((size_t)config->max_pairs * sizeof(struct pair));
}

static size_t pair_slots_bytes(const struct tables_config *config)
{
    return mr__hash_align((size_t)mr__hash_slots(config->max_pairs) * sizeof(uint32_t));
}

static size_t latches_bytes(const struct tables_config *config)
{
    return mr__hash_align((size_t)config->max_latches * sizeof(struct latch));
}

static size_t raws_bytes(const struct tables_config *config)
{
    return mr__hash_align((size_t)config->max_raws * sizeof(struct raw_link));
}

size_t mr__tables_bytes(const struct tables_config *config)
{
    struct plane_config plane = plane_config(config);
    size_t bytes = mr__plane_bytes(&plane);

    if (bytes == 0 || config->max_latches > PAIRS_MAX)
        return 0;
    return mr__hash_align(bytes) + pairs_bytes(config) + pair_slots_bytes(config) +
           raws_bytes(config) + mr__hash_align(mr__links_bytes(config->max_raws)) +
           latches_bytes(config) + mr__links_bytes(config->max_latches);
}

void mr__tables_init(struct tables *t, const struct tables_config *config, void *mem)
{
    struct plane_config plane = plane_config(config);
    char *m = mem;

    memset(t, 0, sizeof *t);
    mr__plane_init(&t->plane, &plane, m);
    m += mr__hash_align(mr__plane_bytes(&plane));
    t->pairs = (void *)m;
    m += pairs_bytes(config);
    t->pair_slots = (void *)m;
    t->pair_mask = mr__hash_slots(config->max_pairs) - 1;
    m += pair_slots_bytes(config);
    t->raws = (void *)m;
    m += raws_bytes(config);
    mr__links_init(&t->raw_index, config->max_raws, &config->plane.key, m);
    m += mr__hash_align(mr__links_bytes(config->max_raws));
    t->latches = (void *)m;
    t->max_latches = config->max_latches;
    m += latches_bytes(config);
    mr__links_init(&t->latch_index, config->max_latches, &config->plane.key, m);
    t->pair_pool = (struct tie_pool){
        .max = config->max_pairs, .reserved = config->reserved_pairs, .free = MR__NONE};
    t->raw_pool = (struct tie_pool){.max = config->max_raws, .free = MR__NONE};
    t->on_link = config->on_link;
    t->user = config->user;
}

/* ---- ties: pairs and raw links in the lists of their relays ------------------------- */

enum kind { PAIR, RAW };

static struct tie *tie_at(struct tables *t, enum kind kind, uint32_t entry)
{
    return kind == PAIR ? &t->pairs[entry].tie : &t->raws[entry].tie;
}

static uint32_t *head_of(struct tables *t, enum kind kind, uint32_t port)
{
    struct relay *r = &t->plane.relays.at[port];

    return kind == PAIR ? &r->pairs : &r->raws;
}

/* The link of a list that points at an element: its predecessor's, or the head. */
static uint32_t *pointer_to(struct tables *t, enum kind kind, const struct tie *tie, uint32_t side)
{
    uint32_t prev = tie->prev[side];

    if (prev == MR__NONE)
        return head_of(t, kind, tie->relay[side]);
    return &tie_at(t, kind, prev >> 1)->next[prev & 1];
}

static void list_push(struct tables *t, enum kind kind, uint32_t entry, uint32_t side)
{
    struct tie *tie = tie_at(t, kind, entry);
    uint32_t *head = head_of(t, kind, tie->relay[side]);

    tie->prev[side] = MR__NONE;
    tie->next[side] = *head;
    if (*head != MR__NONE)
        tie_at(t, kind, *head >> 1)->prev[*head & 1] = entry << 1 | side;
    *head = entry << 1 | side;
}

static void list_remove(struct tables *t, enum kind kind, uint32_t entry, uint32_t side)
{
    struct tie *tie = tie_at(t, kind, entry);
    uint32_t next = tie->next[side];

    *pointer_to(t, kind, tie, side) = next;
    if (next != MR__NONE)
        tie_at(t, kind, next >> 1)->prev[next & 1] = tie->prev[side];
}

/* Is the tie in this side's list? An echo is in its relay's list once. */
static bool has_side(const struct tie *tie, uint32_t side)
{
    return tie->relay[side] != MR__NONE && (side == 0 || tie->relay[0] != tie->relay[1]);
}

/* An entry between a and b, in their lists; MR__NONE when the pool is empty. */
static uint32_t tie_add(struct tables *t, enum kind kind, uint32_t a, uint32_t b)
{
    struct tie_pool *pool = kind == PAIR ? &t->pair_pool : &t->raw_pool;
    uint32_t entry = pool->free;
    struct tie *tie;

    if (entry != MR__NONE)
        pool->free = tie_at(t, kind, entry)->next[0];
    else if (pool->fresh < pool->max)
        entry = pool->fresh++;
    else
        return MR__NONE;
    pool->used++;
    tie = tie_at(t, kind, entry);
    tie->relay[0] = a;
    tie->relay[1] = b;
    for (uint32_t side = 0; side < 2; side++) {
        if (has_side(tie, side))
            list_push(t, kind, entry, side);
    }
    return entry;
}

static void tie_remove(struct tables *t, enum kind kind, uint32_t entry)
{
    struct tie_pool *pool = kind == PAIR ? &t->pair_pool : &t->raw_pool;
    struct tie *tie = tie_at(t, kind, entry);

    for (uint32_t side = 0; side < 2; side++) {
        if (has_side(tie, side))
            list_remove(t, kind, entry, side);
    }
    tie->relay[0] = tie->relay[1] = MR__NONE;
    tie->next[0] = pool->free;
    pool->free = entry;
    pool->used--;
}

/* ---- the index of pairs --------------------------------------------------------------- */

/* a <= b in every pair, so that {a, b} is one key. */
static void order(uint32_t *a, uint32_t *b)
{
    if (*a > *b) {
        uint32_t swap = *a;

        *a = *b;
        *b = swap;
    }
}

static uint64_t pair_home(const struct tables *t, uint32_t a, uint32_t b)
{
    const struct hash_key *key = &t->plane.relays.key;

    return mr__hash_fold(((uint64_t)a << 32 | b) ^ key->k[0], key->k[1] | 1) & t->pair_mask;
}

/* The pair's slot, or the empty one where it would go. Ordered a, b. */
static uint64_t pair_probe(const struct tables *t, uint32_t a, uint32_t b)
{
    uint64_t i = pair_home(t, a, b);

    while (t->pair_slots[i]) {
        const struct tie *tie = &t->pairs[t->pair_slots[i] - 1].tie;

        if (tie->relay[0] == a && tie->relay[1] == b)
            break;
        i = (i + 1) & t->pair_mask;
    }
    return i;
}

/* Backward shift, see mr__links_remove(). */
static void pair_remove_slot(struct tables *t, uint64_t hole)
{
    uint64_t i = hole;

    for (;;) {
        const struct tie *tie;

        i = (i + 1) & t->pair_mask;
        if (!t->pair_slots[i])
            break;
        tie = &t->pairs[t->pair_slots[i] - 1].tie;
        if (((i - pair_home(t, tie->relay[0], tie->relay[1])) & t->pair_mask) <
            ((i - hole) & t->pair_mask))
            continue;
        t->pair_slots[hole] = t->pair_slots[i];
        hole = i;
    }
    t->pair_slots[hole] = 0;
}

/* The pair's entry, or MR__NONE. In any order. */
static uint32_t find_pair(const struct tables *t, uint32_t a, uint32_t b)
{
    order(&a, &b);
    return t->pair_slots[pair_probe(t, a, b)] - 1;
}

/* ---- which link a key has --------------------------------------------------------------- */

/* An element names a pair and one side of it: whose leg it is. */
static uint32_t relay_of(const struct tables *t, uint32_t element)
{
    return t->pairs[element >> 1].tie.relay[element & 1];
}

static uint32_t partner_of(const struct tables *t, uint32_t element)
{
    return relay_of(t, element ^ 1);
}

static uint32_t element_of(const struct tables *t, uint32_t entry, uint32_t relay)
{
    return entry << 1 | (t->pairs[entry].tie.relay[0] != relay);
}

static uint8_t *state_of(const struct tables *t, uint32_t element)
{
    return &t->pairs[element >> 1].state[element & 1];
}

static struct latch *latch_of(const struct tables *t, uint32_t element)
{
    uint32_t latch = t->pairs[element >> 1].latch[element & 1];

    return latch ? &t->latches[latch - 1] : NULL;
}

/* The link that `from` has as the peer of this leg. */
static struct link leg_link(const struct tables *t, uint32_t element, const struct mr_addr *from)
{
    const struct relay *at = t->plane.relays.at;
    const struct latch *to = latch_of(t, element ^ 1);
    uint32_t relay = relay_of(t, element), partner = partner_of(t, element);

    return (struct link){.from = *from,
                         .port = partner,
                         .egress = at[relay].egress,
                         .to = to ? to->seen : at[partner].addr,
                         .charged = relay,
                         .target = partner};
}

/* The link that (port, from) should have; false when it should have none. */
static bool wanted_link(const struct tables *t, uint32_t port, const struct mr_addr *from,
                        struct link *out)
{
    const struct relays *r = &t->plane.relays;
    const struct link *raw = mr__links_find(&t->raw_index, port, from), *latched;

    if (raw) {
        *out = t->raws[raw->charged].link;
        return true;
    }
    if (!r->at[port].generation)
        return false;
    /* Newest first: who registered last is who that address is. */
    for (uint32_t p = mr__relays_find(r, from); p != MR__NONE; p = r->at[p].next_same) {
        uint32_t entry = find_pair(t, port, p), element;

        if (entry == MR__NONE)
            continue;
        element = element_of(t, entry, p);
        *out = leg_link(t, element, from);
        if (*state_of(t, element) == LEG_FRESH) {
            out->charged = MR__FRESH;
            out->egress = p;
        }
        return true;
    }
    /* Whoever registered at a latched address since then came first. */
    latched = mr__links_find(&t->latch_index, port, from);
    if (latched && !latch_of(t, latched->charged)->is_open)
        latched = NULL;
    if (latched)
        *out = leg_link(t, latched->charged, from);
    return latched != NULL;
}

static void refresh(struct tables *t, uint32_t port, const struct mr_addr *from)
{
    const struct link *old = mr__links_find(&t->plane.links, port, from);
    struct link link, key = {.from = *from, .port = port};

    if (wanted_link(t, port, from, &link)) {
        struct link stored = link;

        /* The plane writes "nobody" as the index behind the last port. */
        if (stored.charged == MR__NONE)
            stored.charged = t->plane.ports;
        if (stored.charged == MR__FRESH)
            stored.charged = t->plane.ports + 1;
        if (stored.target == MR__NONE)
            stored.target = t->plane.ports;
        if (old && memcmp(old, &stored, sizeof stored) == 0)
            return;
        if (mr__plane_link(&t->plane, &link) < 0)
            assert(!"links are sized for all pairs and raw links");
        if (t->on_link)
            t->on_link(t->user, MR__LINK_SET, &link);
    } else if (old) {
        mr__plane_unlink(&t->plane, port, from);
        if (t->on_link)
            t->on_link(t->user, MR__LINK_REMOVE, &key);
    }
}

static uint32_t next_pair(const struct tables *t, uint32_t element)
{
    return t->pairs[element >> 1].tie.next[element & 1];
}

/* Whatever links follow from a leg: of its address, of the one it is latched to. */
static void refresh_leg(struct tables *t, uint32_t element)
{
    const struct latch *latch = latch_of(t, element);
    uint32_t partner = partner_of(t, element);

    if (latch)
        refresh(t, partner, &latch->seen);
    refresh(t, partner, &t->plane.relays.at[relay_of(t, element)].addr);
}

/* ---- latches ------------------------------------------------------------------------------- */

/* The seen address's link goes first, so that there are never more links than there is room for. */
static void unlatch(struct tables *t, uint32_t element)
{
    struct latch *latch = latch_of(t, element), *last = &t->latches[t->n_latches - 1];
    struct mr_addr seen;
    bool is_open;

    if (!latch)
        return;
    seen = latch->seen;
    is_open = latch->is_open;
    mr__links_remove(&t->latch_index, partner_of(t, element), &seen);
    t->pairs[last->element >> 1].latch[last->element & 1] = (uint32_t)(latch - t->latches) + 1;
    *latch = *last;
    t->n_latches--;
    t->n_closed -= !is_open;
    t->pairs[element >> 1].latch[element & 1] = 0;
    refresh(t, partner_of(t, element), &seen);
    refresh_leg(t, element);
    refresh_leg(t, element ^ 1);
}

static void unlatch_both(struct tables *t, uint32_t entry)
{
    unlatch(t, entry << 1);
    unlatch(t, entry << 1 | 1);
}

/* ---- relays -------------------------------------------------------------------------------- */

/* What no peer may be, whatever a caller says: sending there would reach many, nobody,
 * or ourselves. */
static int check_peer(const struct tables *t, const struct mr_addr *addr)
{
    const unsigned never = MR_ADDR_UNSPECIFIED | MR_ADDR_MULTICAST | MR_ADDR_BROADCAST;

    if (!addr->family)
        return -EINVAL;
    if (!addr->port || (mr_addr_classify(addr) & never))
        return -EDESTADDRREQ;
    return mr__own_contains(&t->plane.own, addr) ? -EADDRNOTAVAIL : 0;
}

int mr__tables_create(struct tables *t, uint32_t port, const struct mr_addr *addr, uint32_t flags,
                      uint32_t egress, mr_relay_id *id)
{
    struct mr_addr peer = *addr;
    int rc;

    mr_addr_canonicalize(&peer);
    rc = check_peer(t, &peer);
    if (rc == 0)
        rc = mr__plane_add(&t->plane, port, 0, &peer, flags, egress);
    if (rc == 0)
        *id = mr__relay_id(port, t->plane.relays.at[port].generation);
    return rc;
}

static void remove_pair(struct tables *t, uint32_t entry)
{
    uint32_t a = t->pairs[entry].tie.relay[0], b = t->pairs[entry].tie.relay[1];
    const struct relay *at = t->plane.relays.at;

    unlatch_both(t, entry);
    pair_remove_slot(t, pair_probe(t, a, b));
    tie_remove(t, PAIR, entry);
    refresh(t, a, &at[b].addr);
    refresh(t, b, &at[a].addr);
}

static void remove_raw(struct tables *t, uint32_t entry)
{
    struct link link = t->raws[entry].link;

    mr__links_remove(&t->raw_index, link.port, &link.from);
    tie_remove(t, RAW, entry);
    refresh(t, link.port, &link.from);
}

static void free_relay(struct tables *t, uint32_t port)
{
    struct relay *r = &t->plane.relays.at[port];

    while (r->raws != MR__NONE)
        remove_raw(t, r->raws >> 1);
    while (r->pairs != MR__NONE)
        remove_pair(t, r->pairs >> 1);
    mr__plane_remove(&t->plane, port);
}

int mr__tables_free(struct tables *t, mr_relay_id id)
{
    uint32_t port = mr__relays_get(&t->plane.relays, id);

    if (port == MR__NONE)
        return -ENOENT;
    free_relay(t, port);
    return 0;
}

void mr__tables_clear(struct tables *t)
{
    for (uint32_t port = 0; port < t->plane.ports && t->plane.relays.live; port++) {
        if (mr__relays_is_live(&t->plane.relays, port))
            free_relay(t, port);
    }
}

/*
 * A partner's key moves from the old address to the new one, and what the relay's
 * own port is linked to gets a new destination. The old key goes first, so that
 * there are never more links than pairs account for. Who has moved has told where
 * he is, so his latches are over; a partner's latch stays.
 */
int mr__tables_move(struct tables *t, mr_relay_id id, const struct mr_addr *addr)
{
    uint32_t port = mr__relays_get(&t->plane.relays, id);
    const struct relay *at = t->plane.relays.at;
    struct mr_addr old, new = *addr;
    int rc;

    if (port == MR__NONE)
        return -ENOENT;
    mr_addr_canonicalize(&new);
    rc = at[port].flags & MR__RELAY_LINKED ? -EINVAL : check_peer(t, &new);
    if (rc < 0)
        return rc;
    old = at[port].addr;
    for (uint32_t e = at[port].pairs; e != MR__NONE && !mr_addr_equal(&old, &new);
         e = next_pair(t, e))
        unlatch(t, e);
    mr__plane_move(&t->plane, port, &new);
    for (uint32_t e = at[port].pairs; e != MR__NONE; e = next_pair(t, e)) {
        refresh(t, partner_of(t, e), &old);
        refresh_leg(t, e);
        refresh_leg(t, e ^ 1);
    }
    return 0;
}

int mr__tables_set_egress(struct tables *t, mr_relay_id id, uint32_t egress)
{
    uint32_t port = mr__relays_get(&t->plane.relays, id);
    struct relay *at = t->plane.relays.at;

    if (port == MR__NONE)
        return -ENOENT;
    at[port].egress = egress;
    for (uint32_t e = at[port].pairs; e != MR__NONE; e = next_pair(t, e))
        refresh_leg(t, e);
    return 0;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* The ports of two live ids, ordered. */
static int get_both(const struct tables *t, mr_relay_id id_a, mr_relay_id id_b, uint32_t *a,
                    uint32_t *b)
{
    *a = mr__relays_get(&t->plane.relays, id_a);
    *b = mr__relays_get(&t->plane.relays, id_b);
    if (*a == MR__NONE || *b == MR__NONE)
        return -ENOENT;
    order(a, b);
    return 0;
}

/* For n more links of pairs and latches: a latch takes one that half a pair could have. */
static bool has_room(const struct tables *t, uint32_t n)
{
    return 2 * t->pair_pool.used + t->n_latches + n <= 2 * t->pair_pool.max;
}

/* Its echo, and nobody else. */
static bool has_few(struct tables *t, uint32_t port)
{
    uint32_t first = *head_of(t, PAIR, port);

    return first == MR__NONE || tie_at(t, PAIR, first >> 1)->next[first & 1] == MR__NONE;
}

/* Pairs grow with the square of those who all join each other, so some hundred relays could have
 * all of them. The last ones are for pairs of which one side has none yet: a relay adds two to
 * those, so they do not run out before the ports do where there are two for each. */
static bool may_pair(struct tables *t, uint32_t a, uint32_t b)
{
    const struct tie_pool *pool = &t->pair_pool;

    return has_room(t, 2) &&
           (pool->used + (uint64_t)pool->reserved < pool->max || has_few(t, a) || has_few(t, b));
}

int mr__tables_pair(struct tables *t, mr_relay_id id_a, mr_relay_id id_b)
{
    const struct relay *at = t->plane.relays.at;
    uint32_t a, b, entry;
    uint64_t slot;
    int rc = get_both(t, id_a, id_b, &a, &b);

    if (rc < 0)
        return rc;
    if ((at[a].flags | at[b].flags) & MR__RELAY_LINKED)
        return -EINVAL;
    slot = pair_probe(t, a, b);
    if (t->pair_slots[slot])
        return 0;
    if (!may_pair(t, a, b))
        return -ENOSPC;
    entry = tie_add(t, PAIR, a, b);
    if (entry == MR__NONE)
        return -ENOSPC;
    t->pairs[entry].state[0] = t->pairs[entry].state[1] = LEG_UNWATCHED;
    t->pair_slots[slot] = entry + 1;
    refresh(t, a, &at[b].addr);
    refresh(t, b, &at[a].addr);
    return 1;
}

int mr__tables_unpair(struct tables *t, mr_relay_id id_a, mr_relay_id id_b)
{
    uint32_t a, b, found;
    int rc = get_both(t, id_a, id_b, &a, &b);

    if (rc < 0)
        return rc;
    found = t->pair_slots[pair_probe(t, a, b)];
    if (!found)
        return -ENOENT;
    remove_pair(t, found - 1);
    return 0;
}

bool mr__tables_is_paired(const struct tables *t, mr_relay_id id_a, mr_relay_id id_b)
{
    uint32_t a, b;

    return get_both(t, id_a, id_b, &a, &b) == 0 && find_pair(t, a, b) != MR__NONE;
}

int mr__tables_each_partner(const struct tables *t, mr_relay_id id,
                            void (*fn)(void *user, mr_relay_id partner), void *user)
{
    uint32_t port = mr__relays_get(&t->plane.relays, id);
    const struct relay *at = t->plane.relays.at;

    if (port == MR__NONE)
        return -ENOENT;
    for (uint32_t e = at[port].pairs; e != MR__NONE; e = next_pair(t, e)) {
        uint32_t partner = partner_of(t, e);

        fn(user, mr__relay_id(partner, at[partner].generation));
    }
    return 0;
}

/* ---- legs ---------------------------------------------------------------------------------- */

/* The leg of the first relay; MR__NONE: they are no pair of two. */
static uint32_t find_leg(const struct tables *t, mr_relay_id id, mr_relay_id other)
{
    uint32_t relay = mr__relays_get(&t->plane.relays, id);
    uint32_t partner = mr__relays_get(&t->plane.relays, other), entry;

    if (relay == MR__NONE || partner == MR__NONE || relay == partner)
        return MR__NONE;
    entry = find_pair(t, relay, partner);
    return entry == MR__NONE ? MR__NONE : element_of(t, entry, relay);
}

int mr__tables_watch(struct tables *t, mr_relay_id id, mr_relay_id other)
{
    uint32_t element = find_leg(t, id, other);

    if (element == MR__NONE)
        return -ENOENT;
    if (*state_of(t, element) == LEG_UNWATCHED &&
        !(t->plane.relays.at[relay_of(t, element)].flags & MR__RELAY_MANUAL)) {
        *state_of(t, element) = LEG_FRESH;
        refresh_leg(t, element);
    }
    return 0;
}

bool mr__tables_is_fresh(const struct tables *t, mr_relay_id id, mr_relay_id other)
{
    uint32_t element = find_leg(t, id, other);

    return element != MR__NONE && *state_of(t, element) == LEG_FRESH;
}

static int check_seen(const struct tables *t, uint32_t element, const struct mr_addr *seen)
{
    int rc = check_peer(t, seen);

    if (rc < 0)
        return rc;
    if (mr__relays_find(&t->plane.relays, seen) != MR__NONE)
        return -EADDRINUSE;
    if (mr__links_find(&t->plane.links, partner_of(t, element), seen))
        return -EEXIST;
    return t->n_latches < t->max_latches && has_room(t, 1) ? 0 : -ENOSPC;
}

int mr__tables_latch(struct tables *t, mr_relay_id id, mr_relay_id other,
                     const struct mr_addr *seen, struct latch **out)
{
    uint32_t element = find_leg(t, id, other);
    struct link index = {.from = *seen};
    int rc;

    if (element == MR__NONE)
        return -ENOENT;
    mr_addr_canonicalize(&index.from);
    if (*state_of(t, element) != LEG_FRESH || latch_of(t, element))
        return -EBUSY;
    rc = check_seen(t, element, &index.from);
    if (rc < 0)
        return rc;
    index.port = partner_of(t, element);
    index.charged = element;
    if (mr__links_set(&t->latch_index, &index) < 0)
        assert(!"the index has room for all latches");
    t->latches[t->n_latches++] = (struct latch){.seen = index.from, .element = element};
    t->pairs[element >> 1].latch[element & 1] = t->n_latches;
    t->n_closed++;
    refresh_leg(t, element ^ 1);
    *out = latch_of(t, element);
    return 0;
}

void mr__tables_open_latches(struct tables *t, uint64_t seq)
{
    for (uint32_t i = 0; i < t->n_latches && t->n_closed > 0; i++) {
        struct latch *latch = &t->latches[i];

        if (!latch->is_open && latch->seq <= seq) {
            latch->is_open = true;
            t->n_closed--;
            refresh(t, partner_of(t, latch->element), &latch->seen);
        }
    }
}

int mr__tables_unlatch(struct tables *t, mr_relay_id id, mr_relay_id other)
{
    uint32_t element = find_leg(t, id, other);

    if (element == MR__NONE || !latch_of(t, element))
        return -ENOENT;
    unlatch(t, element);
    return 0;
}

/* By the walk through all: few legs are ever latched, and an address is registered seldom. */
unsigned mr__tables_unlatch_address(struct tables *t, const struct mr_addr *seen)
{
    struct mr_addr addr = *seen;
    unsigned n = 0;

    mr_addr_canonicalize(&addr);
    for (uint32_t i = t->n_latches; i-- > 0;) {
        if (mr_addr_equal(&t->latches[i].seen, &addr)) {
            unlatch(t, t->latches[i].element);
            n++;
        }
    }
    return n;
}

const struct mr_addr *mr__tables_latched(const struct tables *t, mr_relay_id id, mr_relay_id other)
{
    uint32_t element = find_leg(t, id, other);
    const struct latch *latch = element == MR__NONE ? NULL : latch_of(t, element);

    return latch ? &latch->seen : NULL;
}

void mr__tables_spoke(struct tables *t, mr_relay_id id, mr_relay_id at)
{
    uint32_t element = find_leg(t, id, at);

    if (element == MR__NONE || *state_of(t, element) != LEG_FRESH)
        return;
    *state_of(t, element) = LEG_SPOKEN;
    unlatch(t, element);
    refresh_leg(t, element);
}

/* ---- raw links
 * ----------------------------------------------------------------------------------- */

static int check_end(const struct tables *t, uint32_t port)
{
    return port == MR__NONE || mr__relays_is_live(&t->plane.relays, port) ? 0 : -ENOENT;
}

int mr__tables_link(struct tables *t, const struct link *link)
{
    struct link raw = *link, index;
    uint32_t entry;

    mr_addr_canonicalize(&raw.from);
    mr_addr_canonicalize(&raw.to);
    if (raw.port >= t->plane.ports || !raw.from.family || !raw.to.family)
        return -EINVAL;
    if (check_end(t, raw.charged) || check_end(t, raw.target) ||
        (raw.charged == MR__NONE && raw.target == MR__NONE))
        return -ENOENT;
    if (mr__links_find(&t->raw_index, raw.port, &raw.from))
        return -EEXIST;
    entry = tie_add(t, RAW, raw.charged, raw.target);
    if (entry == MR__NONE)
        return -ENOSPC;
    t->raws[entry].link = raw;
    index = raw;
    index.charged = entry;
    if (mr__links_set(&t->raw_index, &index) < 0)
        assert(!"the index is as large as the pool");
    refresh(t, raw.port, &raw.from);
    return 0;
}

int mr__tables_unlink(struct tables *t, uint32_t port, const struct mr_addr *from)
{
    struct mr_addr key = *from;
    const struct link *found;

    mr_addr_canonicalize(&key);
    found = mr__links_find(&t->raw_index, port, &key);
    if (!found)
        return -ENOENT;
    remove_raw(t, found->charged);
    return 0;
}

bool mr__tables_has_link(const struct tables *t, uint32_t port, const struct mr_addr *from)
{
    return mr__links_find(&t->plane.links, port, from) != NULL;
}

/* ---- the decision
 * ----------------------------------------------------------------------------------- */

int mr__tables_decide(struct tables *t, uint64_t now_ns, const struct mr_addr *from, uint32_t port,
                      uint32_t size, struct plane_out *out)
{
    struct plane_rx rx = {.from = *from, .port = port, .size = size};

    mr_addr_canonicalize(&rx.from);
    if (port >= t->plane.ports || !rx.from.family)
        return -EINVAL;
    mr__plane_batch(&t->plane, now_ns, &rx, 1, out);
    if (mr__plane_met_fresh(&t->plane, out)) {
        const struct relay *at = t->plane.relays.at;

        mr__plane_decide_fresh(&t->plane, now_ns, &rx, out);
        mr__tables_spoke(t, mr__relay_id(out->charged, at[out->charged].generation),
                         mr__relay_id(port, at[port].generation));
    }
    mr__plane_finish(&t->plane, &rx, 1, out);
    return 0;
}
