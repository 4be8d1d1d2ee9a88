/* SPDX-License-Identifier: MIT */
/*
 * Stores and limiters. Control thread. Both are shelves: entries in a keyed table, and in a
 * heap by the moment at which they may be forgotten (expired, or a bucket that is full
 * again). Keys come from players, so no step walks over all entries: table and heap grow a
 * piece at a time, what is due goes a few at a time, and looking never frees.
 * Start reading at make_room(), which holds all the bounds.
 */
#include "service/store.h"

#include "base/alloc.h"
#include "service/due.h"
#include "service/hash.h"
#include "service/list.h"
#include "service/table.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

enum {
    TICK_ENTRIES_MAX = 1000,
    WRITE_ENTRIES_MAX = 2, /* that a write forgets, so that it outruns what is added */
    /* Memory of an entry beside its own: its cells in table and heap, the heap's own of malloc. */
    ENTRY_EXTRA_BYTES = 48,
};

static const uint64_t SECOND_NS = 1000000000u;
/* Doubles are exact to 1e-16 of a burst; a wait that was told must be enough. */
static const double TOLERANCE = 1e-12;

struct entry {
    struct table_node node;
    struct due_node due; /* UINT64_MAX: never */
    union {
        double number;
        bool boolean;
        struct {
            char *s;
            uint32_t n;
        } text;
        struct {
            double taken; /* tokens that are not there again, at */
            uint64_t at_ns;
        } bucket;
    };
    uint16_t key_n;
    uint8_t type;
    char key[];
};

struct shelf {
    struct stores *stores;
    struct shelf *next;
    char *owner, *name;
    size_t owner_n, name_n;
    bool is_limiter;
    struct table entries;
    struct due due;
    uint64_t max;
};

struct store {
    struct shelf shelf;
    uint64_t ttl_ns;
};

struct limiter {
    struct shelf shelf;
    double rate, burst;
};

struct stores {
    struct shelf *first;
    struct shelf *gone; /* nobody's any more; their entries go a few at a time */
    unsigned n;
    size_t bytes;
    struct table_key key;
    uint64_t next_tick_ns;
};

/* ---- entries of a shelf ---------------------------------------------------------------------- */

static struct entry *entry_of(struct due_node *due)
{
    return MR_CONTAINER(due, struct entry, due);
}

static size_t entry_bytes(size_t key_n)
{
    return sizeof(struct entry) + key_n + ENTRY_EXTRA_BYTES;
}

static void forget(struct shelf *shelf, struct entry *e)
{
    mr__table_remove(&shelf->entries, &e->node);
    mr__due_remove(&shelf->due, &e->due);
    shelf->stores->bytes -= entry_bytes(e->key_n);
    if (e->type == MR_STORE_TEXT) {
        shelf->stores->bytes -= e->text.n;
        mr__free(e->text.s);
    }
    mr__free(e);
}

/* Forgets at most `most` of what is due; how many those were. */
static unsigned forget_due(struct shelf *shelf, uint64_t now_ns, unsigned most)
{
    struct due_node *first;
    unsigned n = 0;

    while (n < most && (first = mr__due_first(&shelf->due)) && first->at_ns <= now_ns) {
        forget(shelf, entry_of(first));
        n++;
    }
    return n;
}

/* One that is due is none, and may be there beside a new one of its key. */
static struct entry *find(const struct shelf *shelf, struct str key, uint64_t now_ns)
{
    uint64_t hash = mr__table_hash(&shelf->stores->key, key.s, key.n);
    struct table_node *node = mr__table_first(&shelf->entries, hash);

    for (; node; node = mr__table_next(node)) {
        struct entry *e = MR_CONTAINER(node, struct entry, node);
        if (e->due.at_ns > now_ns && e->key_n == key.n &&
            (key.n == 0 || memcmp(e->key, key.s, key.n) == 0)) {
            return e;
        }
    }
    return NULL;
}

static void free_shelf(struct shelf *shelf);

/* Forgets at most `most` of what nobody can see any more; how many those were. */
static unsigned forget_gone(struct stores *s, unsigned most)
{
    unsigned n = 0;

    while (s->gone && n < most) {
        struct shelf *shelf = s->gone;

        n += forget_due(shelf, UINT64_MAX, most - n);
        if (shelf->due.n == 0) {
            s->gone = shelf->next;
            free_shelf(shelf);
        }
    }
    return n;
}

static bool forget_one_anywhere(struct stores *s, uint64_t now_ns)
{
    if (forget_gone(s, 1) > 0) {
        return true;
    }
    for (struct shelf *shelf = s->first; shelf; shelf = shelf->next) {
        if (forget_due(shelf, now_ns, 1) > 0) {
            return true;
        }
    }
    return false;
}

/*
 * May `entries` more entries and `bytes` more bytes be kept? What is due makes room first, so
 * that "full" speaks of what can be seen.
 */
static int make_room(struct shelf *shelf, unsigned entries, size_t bytes, uint64_t now_ns)
{
    forget_due(shelf, now_ns, WRITE_ENTRIES_MAX);
    while (entries > 0 && shelf->entries.n + entries > shelf->max) {
        if (forget_due(shelf, now_ns, 1) == 0) {
            return -ENOSPC;
        }
    }
    while (shelf->stores->bytes + bytes > MR_STORES_BYTES_MAX) {
        if (!forget_one_anywhere(shelf->stores, now_ns)) {
            return -ENOSPC;
        }
    }
    return 0;
}

/* A new entry of a key that has none, with text_n bytes more to come. */
static int add(struct shelf *shelf, struct str key, size_t text_n, uint64_t due_ns, uint64_t now_ns,
               struct entry **out)
{
    int rc = make_room(shelf, 1, entry_bytes(key.n) + text_n, now_ns);

    if (rc < 0) {
        return rc;
    }
    struct entry *e = mr__alloc(1, sizeof *e + key.n);
    if (!e || mr__due_add(&shelf->due, &e->due, due_ns) < 0) {
        mr__free(e);
        return -ENOMEM;
    }
    if (key.n > 0) {
        memcpy(e->key, key.s, key.n);
    }
    e->key_n = (uint16_t)key.n;
    mr__table_add(&shelf->entries, &e->node, mr__table_hash(&shelf->stores->key, key.s, key.n));
    shelf->stores->bytes += entry_bytes(key.n);
    *out = e;
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

struct stores *mr__stores_create(const struct table_key *key)
{
    struct stores *s = mr__alloc(1, sizeof *s);

    if (s) {
        s->key = *key;
    }
    return s;
}

static void free_shelf(struct shelf *shelf)
{
    while (shelf->due.n > 0) {
        /* The last one of the heap: nothing has to move. */
        forget(shelf, entry_of(mr__due_at(&shelf->due, shelf->due.n - 1)));
    }
    mr__due_deinit(&shelf->due);
    mr__table_deinit(&shelf->entries);
    mr__free(shelf->owner);
    mr__free(shelf->name);
    mr__free(shelf);
}

void mr__stores_destroy(struct stores *s)
{
    if (!s) {
        return;
    }
    forget_gone(s, UINT32_MAX);
    while (s->first) {
        struct shelf *shelf = s->first;
        s->first = shelf->next;
        free_shelf(shelf);
    }
    mr__free(s);
}

/* A store may have millions of entries, so all but an empty one are left to the ticks. */
void mr__stores_keep(struct stores *s, bool (*is_kept)(void *user, struct str owner), void *user)
{
    struct shelf **at = &s->first;

    while (*at) {
        struct shelf *shelf = *at;

        if (is_kept(user, (struct str){shelf->owner, shelf->owner_n})) {
            at = &shelf->next;
            continue;
        }
        *at = shelf->next;
        s->n--;
        if (shelf->due.n == 0) {
            free_shelf(shelf);
        } else {
            shelf->next = s->gone;
            s->gone = shelf;
        }
    }
}

static bool is_same(const char *a, size_t a_n, struct str b)
{
    return a_n == b.n && (b.n == 0 || memcmp(a, b.s, b.n) == 0);
}

static struct shelf *find_shelf(const struct stores *s, struct str owner, struct str name,
                                bool is_limiter)
{
    struct shelf *shelf = s->first;

    while (shelf &&
           !(shelf->is_limiter == is_limiter && is_same(shelf->owner, shelf->owner_n, owner) &&
             is_same(shelf->name, shelf->name_n, name))) {
        shelf = shelf->next;
    }
    return shelf;
}

/* Finds or makes one; `size` is that of a struct store or limiter, which begin with their shelf. */
static int open_shelf(struct stores *s, struct str owner, struct str name, bool is_limiter,
                      uint64_t max, size_t size, struct shelf **out)
{
    if (max < 1 || max > MR_STORE_ENTRIES_MAX) {
        return -EINVAL;
    }
    struct shelf *shelf = find_shelf(s, owner, name, is_limiter);
    if (shelf) {
        shelf->max = max;
        *out = shelf;
        return 0;
    }
    if (s->n == MR_STORES_MAX) {
        return -ENOSPC;
    }
    shelf = mr__alloc(1, size);
    if (!shelf) {
        return -ENOMEM;
    }
    shelf->owner = mr__strndup(owner.s, owner.n);
    shelf->name = mr__strndup(name.s, name.n);
    if (mr__table_init(&shelf->entries) < 0 || !shelf->owner || !shelf->name) {
        free_shelf(shelf);
        return -ENOMEM;
    }
    shelf->stores = s;
    shelf->owner_n = owner.n;
    shelf->name_n = name.n;
    shelf->is_limiter = is_limiter;
    shelf->max = max;
    shelf->next = s->first;
    s->first = shelf;
    s->n++;
    *out = shelf;
    return 0;
}

int mr__stores_open(struct stores *s, struct str owner, struct str name, uint64_t max,
                    uint64_t ttl_ns, struct store **out)
{
    struct shelf *shelf;
    int rc = open_shelf(s, owner, name, false, max, sizeof(struct store), &shelf);

    if (rc < 0) {
        return rc;
    }
    *out = MR_CONTAINER(shelf, struct store, shelf);
    (*out)->ttl_ns = ttl_ns;
    return 0;
}

struct store *mr__stores_find(const struct stores *s, struct str owner, struct str name)
{
    struct shelf *shelf = find_shelf(s, owner, name, false);

    return shelf ? MR_CONTAINER(shelf, struct store, shelf) : NULL;
}

/* ---- stores ---------------------------------------------------------------------------------- */

static uint64_t later(uint64_t now_ns, uint64_t by_ns)
{
    return by_ns < UINT64_MAX - now_ns ? now_ns + by_ns : UINT64_MAX;
}

static uint64_t expiry(const struct store *s, uint64_t now_ns)
{
    return s->ttl_ns == 0 ? UINT64_MAX : later(now_ns, s->ttl_ns);
}

void mr__store_get(struct store *s, struct str key, uint64_t now_ns, struct store_value *out)
{
    const struct entry *e = find(&s->shelf, key, now_ns);

    *out = (struct store_value){.type = MR_STORE_NIL};
    if (!e) {
        return;
    }
    out->type = (enum store_type)e->type;
    if (e->type == MR_STORE_NUMBER) {
        out->number = e->number;
    } else if (e->type == MR_STORE_BOOLEAN) {
        out->boolean = e->boolean;
    } else {
        out->text = (struct str){.s = e->text.s, .n = e->text.n};
    }
}

/* The new text is there before the old one goes, so that a failure changes nothing. */
static int copy_text(const struct store_value *v, char **out)
{
    *out = NULL;
    if (v->type != MR_STORE_TEXT) {
        return 0;
    }
    *out = mr__strndup(v->text.s, v->text.n);
    return *out ? 0 : -ENOMEM;
}

/* Takes `text`. */
static void put(struct shelf *shelf, struct entry *e, const struct store_value *v, char *text)
{
    if (e->type == MR_STORE_TEXT) {
        shelf->stores->bytes -= e->text.n;
        mr__free(e->text.s);
    }
    e->type = (uint8_t)v->type;
    if (v->type == MR_STORE_NUMBER) {
        e->number = v->number;
    } else if (v->type == MR_STORE_BOOLEAN) {
        e->boolean = v->boolean;
    } else {
        e->text.s = text;
        e->text.n = (uint32_t)v->text.n;
        shelf->stores->bytes += v->text.n;
    }
}

static bool is_within(struct str key, const struct store_value *v)
{
    return key.n <= MR_STORE_KEY_MAX &&
           (v->type != MR_STORE_TEXT || v->text.n <= MR_STORE_VALUE_MAX);
}

/* e: the key's entry, or NULL. */
static int write_value(struct store *s, struct entry *e, struct str key,
                       const struct store_value *v, uint64_t now_ns)
{
    size_t text_n = v->type == MR_STORE_TEXT ? v->text.n : 0;
    char *text;
    int rc = copy_text(v, &text);

    if (rc == 0) {
        /* One that is there is not due, so making room does not take it. */
        rc = e ? make_room(&s->shelf, 0, text_n, now_ns)
               : add(&s->shelf, key, text_n, expiry(s, now_ns), now_ns, &e);
    }
    if (rc < 0) {
        mr__free(text);
        return rc;
    }
    put(&s->shelf, e, v, text);
    return 0;
}

int mr__store_set(struct store *s, struct str key, const struct store_value *v, uint64_t now_ns)
{
    if (v->type == MR_STORE_NIL) {
        mr__store_delete(s, key, now_ns);
        return 0;
    }
    return is_within(key, v) ? write_value(s, find(&s->shelf, key, now_ns), key, v, now_ns)
                             : -EINVAL;
}

int mr__store_add(struct store *s, struct str key, const struct store_value *v, uint64_t now_ns)
{
    if (find(&s->shelf, key, now_ns)) {
        return -EEXIST;
    }
    return mr__store_set(s, key, v, now_ns);
}

int mr__store_incr(struct store *s, struct str key, double by, uint64_t now_ns, double *sum)
{
    struct entry *e = find(&s->shelf, key, now_ns);

    if (e && e->type != MR_STORE_NUMBER) {
        return -EINVAL;
    }
    struct store_value v = {.type = MR_STORE_NUMBER, .number = (e ? e->number : 0) + by};
    if (!isfinite(v.number) || !is_within(key, &v)) {
        return -EINVAL;
    }
    int rc = write_value(s, e, key, &v, now_ns);
    if (rc == 0) {
        *sum = v.number;
    }
    return rc;
}

bool mr__store_delete(struct store *s, struct str key, uint64_t now_ns)
{
    struct entry *e = find(&s->shelf, key, now_ns);

    if (e) {
        forget(&s->shelf, e);
    }
    return e != NULL;
}

/* Each entry is forgotten once, whoever does it: the ticks have left little to do here. */
size_t mr__store_count(struct store *s, uint64_t now_ns)
{
    forget_due(&s->shelf, now_ns, UINT32_MAX);
    return s->shelf.entries.n;
}

/* ---- limiters -------------------------------------------------------------------------------- */

int mr__limiters_open(struct stores *s, struct str owner, struct str name, double rate,
                      double burst, uint64_t max, struct limiter **out)
{
    struct shelf *shelf;

    if (!(isfinite(rate) && rate > 0 && isfinite(burst) && burst >= 1)) {
        return -EINVAL;
    }
    int rc = open_shelf(s, owner, name, true, max, sizeof(struct limiter), &shelf);
    if (rc < 0) {
        return rc;
    }
    *out = MR_CONTAINER(shelf, struct limiter, shelf);
    (*out)->rate = rate;
    (*out)->burst = burst;
    return 0;
}

/* How long it takes until `tokens` have come, rounded up. */
static uint64_t time_for(const struct limiter *l, double tokens)
{
    double ns = ceil(tokens / l->rate * 1e9);

    return ns >= 0x1p63 ? UINT64_MAX - 1 : (uint64_t)ns;
}

/*
 * A bucket is kept as what was taken and has not come back yet: one that is full is zero and
 * need not be kept. This is GCRA with its one moment split into tokens and a time, so that a
 * bucket means the same after rate and burst have changed.
 */
int mr__limiter_take(struct limiter *l, struct str key, double n, uint64_t now_ns,
                     uint64_t *wait_ns)
{
    if (!(n > 0) || key.n > MR_STORE_KEY_MAX) {
        return -EINVAL;
    }
    if (n > l->burst) {
        *wait_ns = UINT64_MAX;
        return -EAGAIN;
    }
    struct entry *e = find(&l->shelf, key, now_ns);
    double taken = 0;
    if (e) {
        uint64_t past_ns = now_ns > e->bucket.at_ns ? now_ns - e->bucket.at_ns : 0;
        taken = fmax(0, e->bucket.taken - (double)past_ns * l->rate / 1e9);
    }
    double over = taken + n - l->burst;
    if (over > l->burst * TOLERANCE) {
        *wait_ns = time_for(l, over);
        return -EAGAIN;
    }
    uint64_t full_ns = later(now_ns, time_for(l, taken + n));
    if (e) {
        mr__due_move(&l->shelf.due, &e->due, full_ns);
    } else {
        int rc = add(&l->shelf, key, 0, full_ns, now_ns, &e);
        if (rc < 0) {
            return rc;
        }
    }
    e->bucket.taken = taken + n;
    e->bucket.at_ns = now_ns;
    return 0;
}

/* ---- time ------------------------------------------------------------------------------------ */

void mr__stores_tick(struct stores *s, uint64_t now_ns)
{
    unsigned left = TICK_ENTRIES_MAX;

    left -= forget_gone(s, left);
    for (struct shelf *shelf = s->first; shelf && left > 0; shelf = shelf->next) {
        left -= forget_due(shelf, now_ns, left);
    }
    s->next_tick_ns = left > 0 ? later(now_ns, SECOND_NS) : now_ns;
}

uint64_t mr__stores_deadline(const struct stores *s)
{
    return s->bytes > 0 ? s->next_tick_ns : UINT64_MAX;
}
