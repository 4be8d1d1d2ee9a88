/* SPDX-License-Identifier: MIT */
/*
 * See drain.h. Control thread. Whether it is over is looked at in ticks only: whoever asked
 * for it gets his answer, and players their notice, before anything stops.
 */
#include "service/drain.h"

#include "service/state.h"

#include <errno.h>
#include <string.h>

static const uint64_t second_ns = 1000000000;

static uint64_t left_ns(const struct service *s)
{
    return s->drain.until_ns > s->now_ns ? s->drain.until_ns - s->now_ns : 0;
}

/* ---- telling ------------------------------------------------------------------------------- */

void mr__drain_tell(struct service *s, struct connection *c)
{
    if (s->drain.is_on && mr__settings_values(s->settings)->errors) {
        uint64_t seconds = (left_ns(s) + second_ns - 1) / second_ns;
        mr__connection_say(s, c, "notice draining:%llu", (unsigned long long)seconds);
    }
}

/* A connection is one player, however many sessions it has. */
static void tell_all(struct service *s)
{
    for (struct list *l = s->all_connections.next, *next; l != &s->all_connections; l = next) {
        struct connection *c = MR_CONTAINER(l, struct connection, link);

        next = l->next;
        if (c->n_sessions == 0) {
            continue;
        }
        if (s->drain.is_on) {
            mr__drain_tell(s, c);
        } else if (mr__settings_values(s->settings)->errors) {
            mr__connection_say(s, c, "notice drain-cancelled");
        }
    }
}

/* ---- beginning, cancelling ----------------------------------------------------------------- */

static uint64_t duration_of(const struct service *s, uint64_t for_ns)
{
    const uint64_t max_ns = MR_DRAIN_MAX_S * second_ns;

    if (for_ns == MR_DRAIN_PRESET) {
        for_ns = mr__settings_values(s->settings)->drain_timeout_ns;
        for_ns = for_ns > 0 ? for_ns : MR_DRAIN_PRESET_S * second_ns;
    }
    return for_ns < max_ns ? for_ns : max_ns;
}

static void begin(struct service *s, uint64_t for_ns, struct str by)
{
    if (!s->drain.is_on) {
        s->drain.is_on = true;
        s->drain.number++;
    }
    s->drain.until_ns = s->now_ns + for_ns;
    MR_LOG(s->log, MR_LOG_INFO, "server", "draining", LOG_DOUBLE("seconds", (double)for_ns / 1e9),
           LOG_STRN("by", by.s, by.n));
    tell_all(s);
}

int mr__drain_begin(struct service *s, uint64_t for_ns, struct str by)
{
    for_ns = duration_of(s, for_ns);
    if (s->is_stopping || s->drain.is_over) {
        return -EBUSY;
    }
    if (s->drain.is_final && for_ns >= left_ns(s)) {
        return -EBUSY;
    }
    begin(s, for_ns, by);
    return 0;
}

void mr__drain_finally(struct service *s)
{
    uint64_t for_ns = duration_of(s, mr__settings_values(s->settings)->drain_timeout_ns);
    bool is_sooner = !s->drain.is_on || for_ns < left_ns(s);

    if (!s->drain.is_over && !s->drain.is_final) {
        s->drain.is_final = true;
        if (is_sooner) {
            begin(s, for_ns, (struct str){"stop", 4});
        }
    }
}

int mr__drain_cancel(struct service *s, struct str by)
{
    if (s->is_stopping || s->drain.is_final || s->drain.is_over) {
        return -EBUSY;
    }
    if (!s->drain.is_on) {
        return -ENOENT;
    }
    s->drain.is_on = false;
    MR_LOG(s->log, MR_LOG_INFO, "server", "drain cancelled", LOG_STRN("by", by.s, by.n));
    tell_all(s);
    return 0;
}

/* ---- who is affected, until when ----------------------------------------------------------- */

void mr__drain_mark(const struct service *s, struct session *p)
{
    p->drain = s->drain.is_on ? s->drain.number : 0;
}

bool mr__drain_keeps_from(const struct service *s, const struct session *host)
{
    return s->drain.is_on && host->drain == s->drain.number;
}

/* The sessions are in the order of their registration, so the first one tells of all. Those that
 * came later can be joined by nobody, and a game that they have joined has a relay or needs none.
 */
static bool is_empty(const struct service *s)
{
    const struct list *first = s->all_sessions.next;

    return mr__list_is_empty(&s->pool.used) &&
           (first == &s->all_sessions ||
            mr__drain_keeps_from(s, MR_CONTAINER(first, struct session, at_all)));
}

void mr__drain_run(struct service *s)
{
    if (!s->drain.is_on || s->drain.is_over) {
        return;
    }
    if (is_empty(s) || left_ns(s) == 0) {
        s->drain.is_over = true;
        MR_LOG(s->log, MR_LOG_INFO, "server", "drained",
               LOG_STR("why", is_empty(s) ? "nobody is left" : "the time is over"));
    }
}

uint64_t mr__drain_deadline(const struct service *s)
{
    if (!s->drain.is_on || s->drain.is_over) {
        return UINT64_MAX;
    }
    return is_empty(s) ? s->now_ns : s->drain.until_ns;
}

void mr__drain_look(const struct service *s, uint64_t now_ns, struct drain_view *out)
{
    *out = (struct drain_view){.is_on = s->drain.is_on, .is_final = s->drain.is_final};
    if (s->drain.is_on && s->drain.until_ns > now_ns) {
        out->seconds_left = (double)(s->drain.until_ns - now_ns) / 1e9;
    }
}

bool mr__service_is_drained(const struct service *s)
{
    return s->drain.is_over;
}

/* ---- for whoever owns the loop ------------------------------------------------------------- */

int mr__service_drain(struct service *s, uint64_t for_ns, const char *by, uint64_t now_ns)
{
    mr__turn_begin(s, now_ns);
    int rc = mr__drain_begin(s, for_ns, (struct str){by, strlen(by)});
    mr__turn_end(s);
    return rc;
}

int mr__service_drain_cancel(struct service *s, const char *by, uint64_t now_ns)
{
    mr__turn_begin(s, now_ns);
    int rc = mr__drain_cancel(s, (struct str){by, strlen(by)});
    mr__turn_end(s);
    return rc;
}

bool mr__service_drain_to_stop(struct service *s, uint64_t now_ns)
{
    mr__turn_begin(s, now_ns);
    if (mr__settings_values(s->settings)->drain_timeout_ns > 0) {
        mr__drain_finally(s);
    }
    bool is_waiting = s->drain.is_final && !s->drain.is_over && !is_empty(s) && left_ns(s) > 0;
    mr__turn_end(s);
    return is_waiting;
}
