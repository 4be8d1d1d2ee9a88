/* SPDX-License-Identifier: MIT */
/*
 * Who is refused until when. Control thread. Blocks lie in one keyed table: nets by base and
 * length (a lookup tries the lengths that there are), sockets by address, sets of tags by
 * their first tag; and in a heap by their ends. Lists of policies are looked through one by
 * one, each by a binary search.
 *
 * The data plane's copy of the nets is made in mirror.c, texts are read in block_text.c.
 * Start reading at mr__blocks_add() and mr__blocks_until().
 */
#include "service/blocks.h"

#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Above it a block is for ever, and the clock does not run over. */
static const double SECONDS_MAX = 1e9;
static const uint64_t FOR_EVER = UINT64_MAX - 1; /* UINT64_MAX is "nothing is due" */

/* ---- finding --------------------------------------------------------------------------------- */

static uint64_t hash_address(const struct service *s, enum block_kind kind,
                             const struct mr_addr *addr, unsigned bits)
{
    const struct {
        uint32_t kind, bits;
        struct mr_addr addr;
    } key = {kind, bits, *addr};

    return mr__table_hash(&s->key, &key, sizeof key);
}

static uint64_t hash_tag(const struct service *s, const struct hook_pair *tag)
{
    const uint64_t key[2] = {mr__table_hash(&s->key, tag->key.s, tag->key.n),
                             mr__table_hash(&s->key, tag->value.s, tag->value.n)};

    return mr__table_hash(&s->key, key, sizeof key);
}

static uint64_t hash_of(const struct service *s, const struct block_what *what)
{
    return what->kind == MR_BLOCK_TAGS ? hash_tag(s, &what->tags.items[0])
                                       : hash_address(s, what->kind, &what->addr,
                                                      what->kind == MR_BLOCK_NET ? what->bits : 0);
}

static bool is_same_text(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

static bool are_same_tags(struct hook_map a, struct hook_map b)
{
    if (a.n != b.n) {
        return false;
    }
    for (size_t i = 0; i < a.n; i++) {
        if (!is_same_text(a.items[i].key, b.items[i].key) ||
            !is_same_text(a.items[i].value, b.items[i].value)) {
            return false;
        }
    }
    return true;
}

/* Both in their own form (tags sorted, bases without the bits behind their prefix). */
static bool is_same(const struct block_what *a, const struct block_what *b)
{
    if (a->kind != b->kind) {
        return false;
    }
    if (a->kind == MR_BLOCK_TAGS) {
        return are_same_tags(a->tags, b->tags);
    }
    return mr_addr_equal(&a->addr, &b->addr) && (a->kind != MR_BLOCK_NET || a->bits == b->bits);
}

static bool is_due(const struct service *s, const struct block *b)
{
    return b->due.at_ns <= s->now_ns;
}

/* The one that somebody asked for, not what followed from another. */
static struct block *find(const struct service *s, const struct block_what *what)
{
    struct table_node *n = mr__table_first(&s->blocks.table, hash_of(s, what));

    for (; n; n = mr__table_next(n)) {
        struct block *b = MR_CONTAINER(n, struct block, node);
        if (!b->parent && !is_due(s, b) && is_same(&b->what, what)) {
            return b;
        }
    }
    return NULL;
}

/* The latest end of those with that address; 0: there is none. */
static uint64_t end_at(const struct service *s, enum block_kind kind, const struct mr_addr *addr,
                       unsigned bits)
{
    const struct block_what what = {.kind = kind, .addr = *addr, .bits = bits};
    struct table_node *n = mr__table_first(&s->blocks.table, hash_of(s, &what));
    uint64_t end_ns = 0;

    for (; n; n = mr__table_next(n)) {
        const struct block *b = MR_CONTAINER(n, struct block, node);
        if (b->due.at_ns > end_ns && !is_due(s, b) && is_same(&b->what, &what)) {
            end_ns = b->due.at_ns;
        }
    }
    return end_ns;
}

static uint64_t end_of_lists(const struct service *s, const struct mr_addr *addr)
{
    for (const struct list *l = s->blocks.lists.next; l != &s->blocks.lists; l = l->next) {
        const struct block_list *list = MR_CONTAINER(l, struct block_list, link);
        if (mr__cidr_find(list->nets, addr) != (uint32_t)MR_NETS_NONE) {
            return UINT64_MAX;
        }
    }
    return 0;
}

static uint64_t net_until(const struct service *s, const struct mr_addr *a)
{
    const uint32_t *lengths = a->family == 4 ? s->blocks.lengths4 : s->blocks.lengths6;
    unsigned most = a->family == 4 ? 32 : 128;
    uint64_t until_ns = end_of_lists(s, a);

    for (unsigned bits = 0; bits <= most && until_ns != UINT64_MAX; bits++) {
        struct mr_addr base = *a;

        if (lengths[bits] == 0) {
            continue;
        }
        base.port = 0;
        base.scope_id = 0;
        mr__cidr_trim(&base, bits);
        uint64_t end_ns = end_at(s, MR_BLOCK_NET, &base, bits);
        until_ns = end_ns > until_ns ? end_ns : until_ns;
    }
    return until_ns;
}

bool mr__blocks_have_net(const struct service *s, const struct mr_addr *a)
{
    return a->family != 0 && net_until(s, a) != 0;
}

uint64_t mr__blocks_until(const struct service *s, const struct mr_addr *a)
{
    uint64_t net_ns = a->family != 0 ? net_until(s, a) : 0;
    uint64_t socket_ns = s->blocks.n_sockets > 0 ? end_at(s, MR_BLOCK_SOCKET, a, 0) : 0;

    return net_ns > socket_ns ? net_ns : socket_ns;
}

static bool has_all(struct hook_map tags, struct hook_map wanted)
{
    for (size_t i = 0, j = 0; i < wanted.n; i++) {
        for (j = 0; j < tags.n; j++) {
            if (is_same_text(tags.items[j].key, wanted.items[i].key) &&
                is_same_text(tags.items[j].value, wanted.items[i].value)) {
                break;
            }
        }
        if (j == tags.n) {
            return false;
        }
    }
    return true;
}

bool mr__blocks_have_tags(const struct service *s, struct hook_map tags)
{
    for (size_t i = 0; i < tags.n && s->blocks.n_tags > 0; i++) {
        struct table_node *n = mr__table_first(&s->blocks.table, hash_tag(s, &tags.items[i]));
        for (; n; n = mr__table_next(n)) {
            const struct block *b = MR_CONTAINER(n, struct block, node);
            if (b->what.kind == MR_BLOCK_TAGS && !is_due(s, b) && has_all(tags, b->what.tags)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- life of one block ----------------------------------------------------------------------- */

static void count(struct service *s, const struct block *b, int by)
{
    struct blocks *all = &s->blocks;
    uint32_t *length;

    switch (b->what.kind) {
    case MR_BLOCK_NET:
        length = b->what.addr.family == 4 ? all->lengths4 : all->lengths6;
        length[b->what.bits] += (uint32_t)by;
        all->is_mirror_old = true;
        break;
    case MR_BLOCK_SOCKET:
        all->n_sockets += (size_t)by;
        break;
    case MR_BLOCK_TAGS:
        all->n_tags += (size_t)by;
        break;
    }
    all->n_by_hand += b->parent ? 0 : (size_t)by;
}

static void free_block(struct block *b)
{
    mr__tags_deinit(&b->tags);
    mr__free(b->by);
    mr__free(b);
}

/* With the sockets that were blocked for its sake. */
static void drop(struct service *s, struct block *b)
{
    while (!mr__list_is_empty(&b->children)) {
        drop(s, MR_CONTAINER(b->children.next, struct block, sibling));
    }
    count(s, b, -1);
    mr__table_remove(&s->blocks.table, &b->node);
    mr__due_remove(&s->blocks.due, &b->due);
    mr__list_remove(&b->link);
    mr__list_remove(&b->sibling);
    free_block(b);
}

static void expire(struct service *s)
{
    struct due_node *first;

    while ((first = mr__due_first(&s->blocks.due)) && first->at_ns <= s->now_ns) {
        drop(s, MR_CONTAINER(first, struct block, due));
    }
}

static int compare_tags(const void *a, const void *b)
{
    const struct hook_pair *x = a, *y = b;
    size_t n = x->key.n < y->key.n ? x->key.n : y->key.n;
    int order = n > 0 ? memcmp(x->key.s, y->key.s, n) : 0;

    return order ? order : x->key.n < y->key.n ? -1 : x->key.n > y->key.n;
}

/* A copy of what was asked for, in its own form. */
static struct block *make(const struct block_what *what, struct str by)
{
    struct block *b = mr__alloc(1, sizeof *b);

    if (!b) {
        return NULL;
    }
    b->what = *what;
    b->by = mr__strndup(by.s, by.n);
    b->by_n = by.n;
    mr__list_init(&b->link);
    mr__list_init(&b->children);
    mr__list_init(&b->sibling);
    mr_addr_canonicalize(&b->what.addr);
    if (what->kind == MR_BLOCK_NET) {
        b->what.addr.port = 0;
        b->what.addr.scope_id = 0;
        mr__cidr_trim(&b->what.addr, what->bits);
    }
    if (!b->by || (what->kind == MR_BLOCK_TAGS && mr__tags_merge(&b->tags, &what->tags) < 0)) {
        free_block(b);
        return NULL;
    }
    if (b->tags.n > 1) {
        qsort(b->tags.items, b->tags.n, sizeof *b->tags.items, compare_tags);
    }
    b->what.tags = mr__tags_map(&b->tags);
    return b;
}

/* Takes b. */
static int enter(struct service *s, struct block *b, struct block *parent, uint64_t until_ns)
{
    int rc = mr__due_add(&s->blocks.due, &b->due, until_ns);

    if (rc < 0) {
        free_block(b);
        return rc;
    }
    b->parent = parent;
    if (parent) {
        mr__list_push_back(&parent->children, &b->sibling);
    }
    mr__list_push_back(&s->blocks.all, &b->link);
    mr__table_add(&s->blocks.table, &b->node, hash_of(s, &b->what));
    count(s, b, 1);
    return 0;
}

/* ---- what it ends ---------------------------------------------------------------------------- */

/* What is being blocked: one thing, or the nets of a list. */
struct cause {
    const struct block_what *what;
    const struct cidr *nets;
};

static bool covers_ip(const struct cause *cause, const struct mr_addr *a)
{
    if (a->family == 0) {
        return false;
    }
    if (cause->nets) {
        return mr__cidr_find(cause->nets, a) != (uint32_t)MR_NETS_NONE;
    }
    if (cause->what->kind != MR_BLOCK_NET || cause->what->addr.family != a->family) {
        return false;
    }
    struct mr_addr base = *a;
    mr__cidr_trim(&base, cause->what->bits);
    return mr_addr_same_ip(&base, &cause->what->addr);
}

static bool covers_socket(const struct cause *cause, const struct mr_addr *a)
{
    bool is_socket = cause->what && cause->what->kind == MR_BLOCK_SOCKET;

    return is_socket ? mr_addr_equal(a, &cause->what->addr) : covers_ip(cause, a);
}

static bool covers_tags(const struct cause *cause, const struct tags *tags)
{
    return cause->what && cause->what->kind == MR_BLOCK_TAGS &&
           mr__tags_have(tags, cause->what->tags);
}

static bool covers_session(const struct cause *cause, const struct session *p)
{
    return covers_tags(cause, &p->tags) || covers_ip(cause, &p->connection->peer) ||
           covers_socket(cause, &p->addr);
}

/* The owner is about to end and takes his relay along, unless somebody else plays through it. */
static bool ends_with_owner(const struct service *s, const struct seat *seat)
{
    struct table_node *n = seat->owner ? mr__table_first(&s->sessions, seat->owner) : NULL;

    return n && MR_CONTAINER(n, struct session, by_id)->is_ending;
}

/* The client behind it knows nothing of a block by tags and keeps sending; whoever plays from the
 * same socket and is not blocked plays on. Without memory or room the socket is let be: its player
 * is not welcome for ten minutes in any case. */
static void block_socket(struct service *s, struct block *parent, const struct mr_addr *addr)
{
    const struct block_what what = {.kind = MR_BLOCK_SOCKET, .addr = *addr};

    if (addr->family == 0 || mr__session_at(s, addr) || s->blocks.due.n >= MR_BLOCKS_MAX ||
        end_at(s, MR_BLOCK_SOCKET, addr, 0) >= parent->due.at_ns) {
        return;
    }
    struct block *b = make(&what, (struct str){parent->by, parent->by_n});
    if (b) {
        memcpy(b->reason, parent->reason, sizeof b->reason);
        (void)enter(s, b, parent, parent->due.at_ns);
    }
}

/* parent: the block by tags that it is about, or NULL. */
static unsigned end_sessions(struct service *s, const struct cause *cause, struct block *parent)
{
    unsigned n = 0;

    for (struct list *l = s->all_sessions.next; l != &s->all_sessions; l = l->next) {
        struct session *p = MR_CONTAINER(l, struct session, at_all);
        if (covers_session(cause, p)) {
            n += mr__session_end_soon(s, p, MR_SESSION_BLOCKED, "blocked");
        }
    }
    for (struct list *l = s->all_sessions.next; parent && l != &s->all_sessions; l = l->next) {
        const struct session *p = MR_CONTAINER(l, struct session, at_all);
        if (p->is_ending && covers_tags(cause, &p->tags)) {
            block_socket(s, parent, &p->addr);
        }
    }
    return n;
}

static unsigned end_relays(struct service *s, const struct cause *cause, struct block *parent)
{
    unsigned n = 0;

    for (struct list *l = s->pool.used.next; l != &s->pool.used; l = l->next) {
        struct seat *seat = MR_CONTAINER(l, struct seat, used);
        struct mr_relay_info info;

        if (seat->is_closing || ends_with_owner(s, seat) ||
            mr_relay_info(s->mr, seat->relay, &info) < 0 ||
            (!covers_tags(cause, &seat->tags) && !covers_socket(cause, &info.peer))) {
            continue;
        }
        mr__seat_close(s, seat, MR_SEAT_END_BLOCKED);
        if (parent) {
            block_socket(s, parent, &info.peer);
        }
        n++;
    }
    return n;
}

static unsigned end_covered(struct service *s, const struct cause *cause, struct block *parent)
{
    unsigned sessions = end_sessions(s, cause, parent);

    return sessions + end_relays(s, cause, parent);
}

/* ---- entry points: single blocks ------------------------------------------------------------- */

static uint64_t end_after(const struct service *s, double seconds)
{
    return seconds > SECONDS_MAX ? FOR_EVER : s->now_ns + (uint64_t)ceil(seconds * 1e9);
}

/* The later end, the new reason and asker. */
static void renew(struct service *s, struct block *b, struct block *with, uint64_t until_ns)
{
    uint64_t end_ns = until_ns > b->due.at_ns ? until_ns : b->due.at_ns;
    char *by = b->by;

    mr__due_move(&s->blocks.due, &b->due, end_ns);
    for (struct list *l = b->children.next; l != &b->children; l = l->next) {
        mr__due_move(&s->blocks.due, &MR_CONTAINER(l, struct block, sibling)->due, end_ns);
    }
    b->by = with->by;
    b->by_n = with->by_n;
    with->by = by;
    memcpy(b->reason, with->reason, sizeof b->reason);
    free_block(with);
}

static void log_block(struct service *s, const struct block *b, double seconds, unsigned ended)
{
    char text[MR_BLOCK_TEXT_MAX];

    mr__block_format(&b->what, text, sizeof text);
    if (b->what.kind == MR_BLOCK_SOCKET) {
        mr__journal_address(s, text, &b->what.addr);
    }
    MR_JOURNAL(s, MR_JOURNAL_BLOCK, MR_LOG_INFO, "block", "blocked", LOG_STR("what", text),
               LOG_DOUBLE("seconds", seconds), LOG_STR("reason", b->reason),
               LOG_STRN("by", b->by, b->by_n), LOG_UINT("ended", ended));
}

static bool is_possible(const struct block_what *what, double seconds)
{
    unsigned most = what->addr.family == 4 ? 32 : 128;

    if (!(seconds > 0)) {
        return false;
    }
    return what->kind == MR_BLOCK_TAGS
               ? what->tags.n > 0
               : what->addr.family != 0 && (what->kind != MR_BLOCK_NET || what->bits <= most);
}

int mr__blocks_add(struct service *s, const struct block_what *what, double seconds,
                   struct str reason, struct str by, unsigned *ended)
{
    uint64_t until_ns = end_after(s, seconds);

    if (!is_possible(what, seconds)) {
        return -EINVAL;
    }
    expire(s);
    struct block *b = make(what, by);
    if (!b) {
        return -ENOMEM;
    }
    mr__reason_clean(b->reason, reason, "blocked");
    struct block *old = find(s, &b->what);
    if (old) {
        renew(s, old, b, until_ns);
        b = old;
    } else if (s->blocks.due.n >= MR_BLOCKS_MAX) {
        free_block(b);
        return -ENOSPC;
    } else if (enter(s, b, NULL, until_ns) < 0) {
        return -ENOMEM;
    }
    const struct cause cause = {.what = &b->what};
    unsigned n = end_covered(s, &cause, what->kind == MR_BLOCK_TAGS ? b : NULL);
    log_block(s, b, seconds, n);
    if (ended) {
        *ended = n;
    }
    return 0;
}

unsigned mr__blocks_remove(struct service *s, const struct block_what *what)
{
    /* Its own form takes a copy; without memory for it nothing is found, and that is told. */
    struct block *form = is_possible(what, 1) ? make(what, (struct str){"", 0}) : NULL;
    struct block *b = form ? find(s, &form->what) : NULL;

    if (form) {
        free_block(form);
    }
    if (!b) {
        return 0;
    }
    drop(s, b);
    return 1;
}

/* ---- entry points: lists --------------------------------------------------------------------- */

static struct block_list *find_list(const struct service *s, struct str owner)
{
    for (struct list *l = s->blocks.lists.next; l != &s->blocks.lists; l = l->next) {
        struct block_list *list = MR_CONTAINER(l, struct block_list, link);
        if (is_same_text((struct str){list->owner, list->owner_n}, owner)) {
            return list;
        }
    }
    return NULL;
}

static void drop_list(struct service *s, struct block_list *list)
{
    s->blocks.is_mirror_old = true;
    s->blocks.n_listed -= mr__cidr_count(list->nets);
    mr__list_remove(&list->link);
    mr__cidr_unref(list->nets);
    mr__free(list->owner);
    mr__free(list);
}

static int add_list(struct service *s, struct str owner, struct cidr *nets, struct str reason)
{
    struct block_list *list = mr__alloc(1, sizeof *list);
    char *name = mr__strndup(owner.s, owner.n);

    if (!list || !name) {
        mr__free(list);
        mr__free(name);
        return -ENOMEM;
    }
    list->owner = name;
    list->owner_n = owner.n;
    list->nets = mr__cidr_ref(nets);
    mr__reason_clean(list->reason, reason, "blocked");
    mr__list_push_back(&s->blocks.lists, &list->link);
    s->blocks.n_listed += mr__cidr_count(nets);
    s->blocks.is_mirror_old = true;
    return 0;
}

/* A list that is read again every minute has mostly not changed: nobody it names is here, so there
 * is nothing to end, to copy to the workers or to say. */
static bool is_in_force(const struct block_list *list, const struct cidr *nets, struct str reason)
{
    const struct mr_nets *a = mr__cidr_ranges(list->nets), *b = mr__cidr_ranges(nets);
    char clean[MR_REASON_MAX + 1];

    mr__reason_clean(clean, reason, "blocked");
    return a->n4 == b->n4 && a->n6 == b->n6 && strcmp(list->reason, clean) == 0 &&
           (a->n4 == 0 || memcmp(a->v4, b->v4, a->n4 * sizeof *a->v4) == 0) &&
           (a->n6 == 0 || memcmp(a->v6, b->v6, a->n6 * sizeof *a->v6) == 0);
}

int mr__blocks_set_list(struct service *s, struct str owner, struct cidr *nets, struct str reason,
                        unsigned *ended)
{
    struct block_list *old = find_list(s, owner);
    unsigned n = 0;

    if (ended) {
        *ended = 0;
    }
    if (old && nets && is_in_force(old, nets, reason)) {
        return 0;
    }
    if (nets && mr__cidr_count(nets) > 0) {
        int rc = add_list(s, owner, nets, reason);
        if (rc < 0) {
            return rc;
        }
        n = end_covered(s, &(struct cause){.nets = nets}, NULL);
        MR_JOURNAL(s, MR_JOURNAL_BLOCK, MR_LOG_INFO, "block", "list of blocked nets replaced",
                   LOG_STRN("by", owner.s, owner.n), LOG_UINT("nets", mr__cidr_count(nets)),
                   LOG_UINT("ended", n));
    }
    if (old) {
        drop_list(s, old);
    }
    if (ended) {
        *ended = n;
    }
    return 0;
}

void mr__blocks_keep_lists(struct service *s, const struct str *owners, size_t n)
{
    struct list *next;

    for (struct list *l = s->blocks.lists.next; l != &s->blocks.lists; l = next) {
        struct block_list *list = MR_CONTAINER(l, struct block_list, link);
        size_t i = 0;

        next = l->next;
        while (i < n && !is_same_text((struct str){list->owner, list->owner_n}, owners[i])) {
            i++;
        }
        if (i == n) {
            drop_list(s, list);
        }
    }
}

/* ---- entry points: looking ------------------------------------------------------------------- */

void mr__blocks_each(const struct service *s, bool (*visit)(void *user, const struct block_view *b),
                     void *user)
{
    for (const struct list *l = s->blocks.all.next; l != &s->blocks.all; l = l->next) {
        const struct block *b = MR_CONTAINER(l, struct block, link);
        const struct block_view view = {
            .what = b->what,
            .reason = {b->reason, strlen(b->reason)},
            .by = {b->by, b->by_n},
            .seconds_left =
                b->due.at_ns == FOR_EVER ? INFINITY : (double)(b->due.at_ns - s->now_ns) / 1e9,
        };
        if (!b->parent && !is_due(s, b) && !visit(user, &view)) {
            return;
        }
    }
    for (const struct list *l = s->blocks.lists.next; l != &s->blocks.lists; l = l->next) {
        const struct block_list *list = MR_CONTAINER(l, struct block_list, link);
        const struct block_view view = {
            .is_list = true,
            .nets = mr__cidr_count(list->nets),
            .reason = {list->reason, strlen(list->reason)},
            .by = {list->owner, list->owner_n},
        };
        if (!visit(user, &view)) {
            return;
        }
    }
}

size_t mr__blocks_count(const struct service *s)
{
    return s->blocks.n_by_hand + s->blocks.n_listed;
}

/* ---- life ------------------------------------------------------------------------------------ */

void mr__blocks_init(struct service *s)
{
    mr__list_init(&s->blocks.all);
    mr__list_init(&s->blocks.lists);
}

void mr__blocks_destroy(struct service *s)
{
    while (!mr__list_is_empty(&s->blocks.all)) {
        drop(s, MR_CONTAINER(s->blocks.all.prev, struct block, link));
    }
    while (!mr__list_is_empty(&s->blocks.lists)) {
        drop_list(s, MR_CONTAINER(s->blocks.lists.next, struct block_list, link));
    }
    mr__due_deinit(&s->blocks.due);
}

void mr__blocks_run(struct service *s)
{
    expire(s);
    mr__mirror_run(s);
}

uint64_t mr__blocks_deadline(const struct service *s)
{
    const struct due_node *first = mr__due_first(&s->blocks.due);
    uint64_t end_ns = first ? first->at_ns : UINT64_MAX, mirror_ns = mr__mirror_deadline(s);

    return end_ns < mirror_ns ? end_ns : mirror_ns;
}
