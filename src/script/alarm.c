/* SPDX-License-Identifier: MIT */
/*
 * See alarm.h. A binary heap of pointers: thousands may wait, most of them are cleared
 * before they ring. Control thread only.
 */
#include "script/alarm.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>

void mr__alarms_deinit(struct alarms *as)
{
    mr__free(as->heap);
    *as = (struct alarms){0};
}

int mr__alarms_reserve(struct alarms *as, size_t n)
{
    size_t wanted = as->reserved + n;

    if (wanted > as->cap) {
        size_t cap = wanted < 64 ? 64 : wanted * 2;
        struct alarm **grown = mr__realloc(as->heap, cap, sizeof(void *));

        if (!grown) {
            return -ENOMEM;
        }
        as->heap = grown;
        as->cap = cap;
    }
    as->reserved = wanted;
    return 0;
}

void mr__alarms_release(struct alarms *as, size_t n)
{
    assert(as->reserved >= n && as->reserved - n >= as->n);
    as->reserved -= n;
}

static void put(struct alarms *as, size_t place, struct alarm *a)
{
    as->heap[place - 1] = a;
    a->place = place;
}

/* Moves the alarm to where it belongs from a place that is free. */
static void sift(struct alarms *as, size_t place, struct alarm *a)
{
    while (place > 1 && as->heap[place / 2 - 1]->at_ns > a->at_ns) {
        put(as, place, as->heap[place / 2 - 1]);
        place /= 2;
    }
    for (size_t child = place * 2; child <= as->n; child = place * 2) {
        if (child < as->n && as->heap[child]->at_ns < as->heap[child - 1]->at_ns) {
            child++;
        }
        if (as->heap[child - 1]->at_ns >= a->at_ns) {
            break;
        }
        put(as, place, as->heap[child - 1]);
        place = child;
    }
    put(as, place, a);
}

void mr__alarm_set(struct alarms *as, struct alarm *a, uint64_t at_ns)
{
    a->at_ns = at_ns;
    if (a->place == 0) {
        assert(as->n < as->reserved);
        as->n++;
        a->place = as->n;
        as->heap[as->n - 1] = a;
    }
    sift(as, a->place, a);
}

void mr__alarm_clear(struct alarms *as, struct alarm *a)
{
    struct alarm *last;
    size_t place = a->place;

    if (place == 0) {
        return;
    }
    last = as->heap[--as->n];
    a->place = 0;
    if (last != a) {
        sift(as, place, last);
    }
}

uint64_t mr__alarms_next(const struct alarms *as)
{
    return as->n > 0 ? as->heap[0]->at_ns : UINT64_MAX;
}

bool mr__alarms_ring(struct alarms *as, uint64_t now_ns)
{
    struct alarm *a;

    if (as->n == 0 || as->heap[0]->at_ns > now_ns) {
        return false;
    }
    a = as->heap[0];
    mr__alarm_clear(as, a);
    a->ring(a, now_ns);
    return true;
}
