/* SPDX-License-Identifier: MIT */
/*
 * Commands on their way to the workers: numbered, in one order for all, never dropped.
 * Control thread. Start reading at mr__control_send().
 */
#include "engine/engine.h"

#include "base/alloc.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

enum { LOG_FIRST_CAPACITY = 256 };

static struct command *log_at(const struct command_log *log, uint64_t seq)
{
    return &log->at[seq & (log->capacity - 1)];
}

static int grow_log(struct command_log *log)
{
    uint64_t capacity = log->capacity ? log->capacity * 2 : LOG_FIRST_CAPACITY;
    struct command *at = mr__alloc(capacity, sizeof *at);

    if (!at)
        return -1;
    for (uint64_t seq = log->first; seq <= log->last; seq++)
        at[seq & (capacity - 1)] = *log_at(log, seq);
    mr__free(log->at);
    log->at = at;
    log->capacity = capacity;
    return 0;
}

int mr__control_init(struct mr *mr)
{
    mr->log.first = 1;
    return grow_log(&mr->log) < 0 ? -ENOMEM : 0;
}

/* Without memory for a longer log we do wait for the workers: it takes microseconds, and
 * to lose a command would leave a replica wrong for ever. */
static void make_room(struct mr *mr)
{
    struct command_log *log = &mr->log;

    while (log->last + 1 - log->first >= log->capacity && grow_log(log) < 0) {
        mr__control_flush(mr);
        if (mr->is_inline)
            mr__worker_turn(&mr->workers[0], 0);
        else
            sched_yield();
    }
}

struct command *mr__control_command(struct mr *mr, enum command_type type, uint32_t port)
{
    struct command_log *log = &mr->log;
    struct command *c;

    make_room(mr);
    c = log_at(log, log->last + 1);
    memset(c, 0, sizeof *c);
    c->seq = log->last + 1;
    c->type = type;
    c->port = port;
    return c;
}

void mr__control_send(struct mr *mr)
{
    mr->log.last++;
    if (!mr->is_gathering)
        mr__control_flush(mr);
}

/* A worker that has nothing else to do falls asleep between two commands and costs a system call to
 * wake: a thousand ends of relays would be two thousand of them. */
void mr__control_gather(struct mr *mr)
{
    mr->is_gathering = 1;
}

void mr__control_gathered(struct mr *mr)
{
    mr->is_gathering = 0;
    mr__control_flush(mr);
}

static void flush_to(struct mr *mr, uint32_t index)
{
    struct command_log *log = &mr->log;
    struct worker *w = &mr->workers[index];
    uint64_t before = log->sent[index];

    while (log->sent[index] < log->last) {
        struct command *c = mr__ring_reserve(&w->commands);

        if (!c)
            break;
        *c = *log_at(log, ++log->sent[index]);
        mr__ring_commit(&w->commands);
    }
    if (log->sent[index] != before && !mr->is_inline)
        mr__worker_wake(w);
}

void mr__control_flush(struct mr *mr)
{
    uint64_t least = mr->log.last;

    for (uint32_t i = 0; i < mr->worker_count; i++) {
        flush_to(mr, i);
        if (mr->log.sent[i] < least)
            least = mr->log.sent[i];
    }
    mr->log.first = least + 1;
}

uint64_t mr__control_in_force(const struct mr *mr)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < mr->worker_count; i++) {
        uint64_t applied = atomic_load_explicit(&mr->workers[i].applied_seq, memory_order_acquire);

        if (applied < least)
            least = applied;
    }
    return least;
}

int mr__control_await_barrier(struct mr *mr)
{
    if (mr->observed_ns >= mr->barrier_ns)
        return 0;
    for (uint32_t i = 0; i < mr->worker_count; i++) {
        if (atomic_load_explicit(&mr->workers[i].barrier_done, memory_order_acquire) < mr->barrier)
            return 1;
    }
    mr->observed_ns = mr->barrier_ns;
    return 0;
}

void mr__control_ask_barrier(struct mr *mr, uint64_t now_ns)
{
    if (mr__control_await_barrier(mr))
        return;
    mr->barrier++;
    mr->barrier_ns = now_ns;
    for (uint32_t i = 0; i < mr->worker_count; i++) {
        atomic_store_explicit(&mr->workers[i].barrier_wanted, mr->barrier, memory_order_release);
        if (!mr->is_inline)
            mr__worker_wake(&mr->workers[i]);
    }
}

void mr__control_on_link(void *user, enum mr__link_op op, const struct link *link)
{
    struct mr *mr = user;
    enum command_type type = op == MR__LINK_SET ? COMMAND_LINK : COMMAND_UNLINK;
    struct command *c = mr__control_command(mr, type, link->port);

    if (op == MR__LINK_SET)
        c->u.link = *link;
    else
        c->u.addr = link->from;
    mr__control_send(mr);
}

uint64_t mr_seq(const struct mr *mr)
{
    return mr->log.last;
}

uint64_t mr_in_force(const struct mr *mr)
{
    return mr__control_in_force(mr);
}

uint64_t mr_ping(struct mr *mr)
{
    (void)mr__control_command(mr, COMMAND_PING, 0);
    mr__control_send(mr);
    return mr->log.last;
}
