/* SPDX-License-Identifier: MIT */
/*
 * The command channel's connections: bytes in, lines out, one command at a time. Control
 * thread. Start reading at run_lines().
 *
 * Bytes are kept as they came; `scanned` says how many of them are known to hold no end
 * of a line, so that one byte a segment costs no more than one segment. While a command
 * waits, or others shall have their turn, the adapter is asked to stop reading: what is
 * kept then is bounded by what it had read already.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    SAY_MAX = 1024,            /* bytes of a line of ours but for echo: two ids and a word */
    INPUT_KEEP_BYTES = 65536,  /* a larger buffer goes back when it is empty */
    INPUT_MAX_BYTES = 8 << 20, /* an adapter that ignores `pause` loses the connection */
};

struct connection *mr__connection_find(const struct service *s, conn_id id)
{
    struct table_node *n = id ? mr__table_first(&s->connections, id) : NULL;

    return n ? MR_CONTAINER(n, struct connection, node) : NULL;
}

/* ---- output -------------------------------------------------------------------------------- */

void mr__connection_send(struct service *s, struct connection *c, const char *text, size_t n)
{
    if (!c->is_closing) {
        s->out.send(s->out.user, c->id, text, n);
    }
}

void mr__connection_say(struct service *s, struct connection *c, const char *format, ...)
{
    char line[SAY_MAX];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof line - 1) {
        n = (int)sizeof line - 2;
    }
    line[n] = '\n';
    mr__connection_send(s, c, line, (size_t)n + 1);
}

/* ---- end ----------------------------------------------------------------------------------- */

/* Everything about it goes, but for its memory, which callers up the stack may look at. */
static void detach(struct service *s, struct connection *c, enum session_end why)
{
    c->is_closing = true;
    mr__command_abandon(s, c);
    mr__list_remove(&c->task.link);
    mr__list_remove(&c->slowed);
    while (!mr__list_is_empty(&c->sessions)) {
        mr__session_end(s, MR_CONTAINER(c->sessions.next, struct session, at_connection), why);
    }
    mr__table_remove(&s->connections, &c->node);
    mr__list_remove(&c->link);
    mr__list_push_back(&s->dead_connections, &c->link);
    s->n_connections--;
    c->source->connections--;
    mr__source_put(s, c->source);
    c->source = NULL;
}

void mr__connection_close(struct service *s, struct connection *c)
{
    if (c->is_closing) {
        return;
    }
    detach(s, c, MR_SESSION_CLOSED);
    s->out.close(s->out.user, c->id);
}

static void free_connection(struct connection *c)
{
    mr__list_remove(&c->link);
    mr__free(c->in);
    mr__free(c);
}

void mr__connections_bury(struct service *s)
{
    while (!mr__list_is_empty(&s->dead_connections)) {
        free_connection(MR_CONTAINER(s->dead_connections.next, struct connection, link));
    }
}

/* Whoever waits for another's session fails when that one ends; the adapters may be gone by now, so
 * nothing may be said to him. */
void mr__connections_destroy(struct service *s)
{
    for (struct list *l = s->all_connections.next; l != &s->all_connections; l = l->next) {
        MR_CONTAINER(l, struct connection, link)->is_closing = true;
    }
    while (!mr__list_is_empty(&s->all_connections)) {
        detach(s, MR_CONTAINER(s->all_connections.next, struct connection, link),
               MR_SESSION_CLOSED);
    }
    mr__connections_bury(s);
}

/* ---- lines --------------------------------------------------------------------------------- */

enum line_result { LINE_NONE, LINE_FOUND, LINE_TOO_LONG };

struct line {
    const char *text;
    size_t n;
};

static void consume(struct connection *c, size_t n)
{
    c->in_at += n;
    c->scanned = 0;
}

/* Without an end so far: is it too long whatever comes? A CR may still belong to its end. */
static bool is_too_long(const char *text, size_t n)
{
    return n > MR_LINE_MAX + 1 || (n == MR_LINE_MAX + 1 && text[n - 1] != '\r');
}

/* What is there when no end of line is. */
static enum line_result take_rest(struct connection *c, const char *text, size_t n,
                                  struct line *line)
{
    c->scanned = n;
    if (c->is_skipping) {
        consume(c, n);
        return LINE_NONE;
    }
    if (is_too_long(text, n)) {
        consume(c, n);
        c->is_skipping = true;
        return LINE_TOO_LONG;
    }
    if (c->is_eof && n > 0) {
        consume(c, n);
        *line = (struct line){text, n};
        return n > MR_LINE_MAX ? LINE_TOO_LONG : LINE_FOUND;
    }
    return LINE_NONE;
}

static enum line_result take_line(struct connection *c, struct line *line)
{
    while (c->in_at < c->in_n) {
        const char *text = c->in + c->in_at;
        size_t n = c->in_n - c->in_at;
        const char *lf = memchr(text + c->scanned, '\n', n - c->scanned);

        if (!lf) {
            return take_rest(c, text, n, line);
        }
        size_t length = (size_t)(lf - text);
        consume(c, length + 1);
        if (c->is_skipping) {
            c->is_skipping = false;
            continue;
        }
        if (length > 0 && text[length - 1] == '\r') {
            length--;
        }
        *line = (struct line){text, length};
        return length > MR_LINE_MAX ? LINE_TOO_LONG : LINE_FOUND;
    }
    return LINE_NONE;
}

/* Moves what is left to the front once it is the smaller part, so that a long queue is not moved
 * for every few commands; gives memory back that a flood needed. */
static void compact(struct connection *c)
{
    if (c->in_at == c->in_n) {
        c->in_at = c->in_n = 0;
        if (c->in_cap > INPUT_KEEP_BYTES) {
            mr__free(c->in);
            c->in = NULL;
            c->in_cap = 0;
        }
    } else if (c->in_at >= c->in_n - c->in_at) {
        memmove(c->in, c->in + c->in_at, c->in_n - c->in_at);
        c->in_n -= c->in_at;
        c->in_at = 0;
    }
}

static void set_paused(struct service *s, struct connection *c, bool is_paused)
{
    if (c->is_paused != is_paused && !c->is_eof && !c->is_closing) {
        c->is_paused = is_paused;
        s->out.pause(s->out.user, c->id, is_paused);
    }
}

static struct pace pace_of(const struct service *s)
{
    const struct settings_values *v = mr__settings_values(s->settings);

    return (struct pace){1000000000 / v->commands_per_second, v->commands_burst};
}

/* What it sends waits in the kernel's buffers, then at the client: nothing is lost. */
static void slow_down(struct service *s, struct connection *c)
{
    s->figures.caps[MR_CAP_COMMANDS]++;
    c->slowed_until_ns = s->now_ns + (uint64_t)MR_SLOWED_MS * 1000000;
    mr__list_remove(&c->slowed);
    mr__list_push_back(&s->slowed, &c->slowed);
}

void mr__connections_go_on(struct service *s)
{
    while (!mr__list_is_empty(&s->slowed)) {
        struct connection *c = MR_CONTAINER(s->slowed.next, struct connection, slowed);
        if (s->now_ns < c->slowed_until_ns) {
            return;
        }
        mr__list_remove(&c->slowed);
        mr__task_ready(s, &c->task);
    }
}

/* A policy was asked: then others have a go as well, or who sends many such commands at once would
 * have the loop for himself for as long as the policy likes to think. */
static void run_lines(struct service *s, struct connection *c)
{
    struct line line;
    bool is_first_of_more = false, is_too_fast = false;
    const struct pace pace = pace_of(s);
    unsigned asked = s->asked;

    c->is_waiting = false;
    for (unsigned left = MR_COMMANDS_PER_TURN; !c->request.is_active && !c->is_closing; left--) {
        if (left == 0 || s->asked != asked || mr__turn_is_spent(s)) {
            is_first_of_more = c->in_at < c->in_n;
            break;
        }
        if (c->in_at < c->in_n && !mr__pace_fits(c->commands_full_ns, pace, s->now_ns)) {
            is_too_fast = true;
            break;
        }
        enum line_result result = take_line(c, &line);
        if (result == LINE_NONE) {
            break;
        }
        c->commands_full_ns = mr__pace_after(c->commands_full_ns, pace, s->now_ns);
        if (result == LINE_TOO_LONG) {
            mr__command_complain(s, c, MR_COMMAND_LINE, MR_CODE_TOO_LONG);
        } else {
            mr__command_run(s, c, line.text, line.n);
        }
    }
    if (c->is_closing) {
        return;
    }
    c->is_waiting = c->request.is_active;
    if (is_first_of_more) {
        mr__task_later(s, &c->task);
    } else if (is_too_fast) {
        slow_down(s, c);
    } else if (!c->is_waiting && c->is_eof) {
        mr__connection_close(s, c);
        return;
    }
    compact(c);
    set_paused(s, c, c->is_waiting || is_first_of_more || is_too_fast);
}

void mr__connection_resume(struct service *s, struct connection *c)
{
    if (c->is_waiting && !c->is_closing) {
        mr__task_ready(s, &c->task);
    }
}

static void run_task(struct service *s, struct task *task)
{
    struct connection *c = MR_CONTAINER(task, struct connection, task);

    if (c->is_refused) {
        mr__command_complain(s, c, MR_COMMAND_CONNECTION, c->refused_as);
        mr__connection_close(s, c);
        return;
    }
    run_lines(s, c);
}

/* Behind a NAT nobody can tell our public address but who set it up, so `connect` through the relay
 * would name one that reaches nobody. */
static void warn_of_private_address(struct service *s, const struct connection *c)
{
    char text[MR_ADDR_TEXT_MAX];
    bool is_private = mr_addr_classify(&c->local) & MR_ADDR_PRIVATE;
    bool from_outside = mr_addr_classify(&c->peer) == 0;

    if (is_private && from_outside && s->public_address.family == 0 && !s->has_warned_private) {
        s->has_warned_private = true;
        mr_addr_format_ip(&c->local, text, sizeof text);
        MR_LOG(s->log, MR_LOG_WARN, "tcp",
               "players reach us through a NAT: set public_address, or connect through the relay "
               "tells them a private address",
               LOG_STR("local", text));
    }
}

/* Not now: the adapter does not know the connection's id yet. */
static void refuse_soon(struct service *s, struct connection *c, enum code code)
{
    c->is_refused = true;
    c->refused_as = code;
    mr__task_later(s, &c->task);
}

/* ---- entry points -------------------------------------------------------------------------- */

/* NULL: out of memory, or it is one of too many to be told so. */
static struct connection *create(struct service *s, const struct mr_addr *peer,
                                 const struct mr_addr *local)
{
    struct mr_addr from = *peer, to = *local;

    mr_addr_canonicalize(&from);
    mr_addr_canonicalize(&to);
    struct source *source = mr__source_get(s, &from);
    if (!source) {
        return NULL;
    }
    bool is_full = mr__source_is_full(s, source, &from);
    s->figures.caps[MR_CAP_CONNECTIONS] += is_full;
    struct connection *c =
        is_full && !mr__source_may_answer(s, source) ? NULL : mr__alloc(1, sizeof *c);
    if (!c) {
        mr__source_put(s, source);
        return NULL;
    }
    c->id = ++s->last_connection;
    c->peer = from;
    c->local = to;
    c->source = source;
    source->connections++;
    mr__list_init(&c->sessions);
    mr__list_init(&c->task.link);
    mr__list_init(&c->slowed);
    c->task.run = run_task;
    mr__table_add(&s->connections, &c->node, c->id);
    mr__list_push_back(&s->all_connections, &c->link);
    s->n_connections++;
    if (is_full) {
        refuse_soon(s, c, MR_CODE_TOO_MANY);
    }
    return c;
}

static conn_id accept_connection(struct service *s, const struct mr_addr *peer,
                                 const struct mr_addr *local)
{
    char buf[MR_ADDR_TEXT_MAX];
    struct connection *c = create(s, peer, local);

    if (!c) {
        return 0;
    }
    warn_of_private_address(s, c);
    if (s->n_connections > mr__settings_values(s->settings)->max_connections) {
        s->figures.caps[MR_CAP_CONNECTIONS] += !c->is_refused;
        refuse_soon(s, c, MR_CODE_TOO_MANY);
    } else if (!c->is_refused && mr__blocks_have_net(s, &c->peer)) {
        refuse_soon(s, c, MR_CODE_BLOCKED);
    }
    MR_JOURNAL(s, MR_JOURNAL_CONNECTION, MR_LOG_DEBUG, "tcp", "connected", LOG_UINT("conn", c->id),
               LOG_STR("peer", mr__journal_address(s, buf, &c->peer)));
    return c->id;
}

conn_id mr__service_accept(struct service *s, const struct mr_addr *peer,
                           const struct mr_addr *local, uint64_t now_ns)
{
    size_t max = mr__settings_values(s->settings)->max_connections;

    /* Above twice the cap there is not even an answer. */
    if (s->is_stopping || s->n_connections >= 2 * max) {
        return 0;
    }
    mr__turn_begin(s, now_ns);
    conn_id id = accept_connection(s, peer, local);
    mr__turn_end(s);
    return id;
}

static int keep_input(struct connection *c, const void *data, size_t n)
{
    if (n > INPUT_MAX_BYTES - c->in_n) {
        return -ENOBUFS;
    }
    if (c->in_n + n > c->in_cap) {
        size_t cap = c->in_cap ? c->in_cap : 256;
        while (cap < c->in_n + n) {
            cap *= 2;
        }
        char *in = mr__realloc(c->in, cap, 1);
        if (!in) {
            return -ENOMEM;
        }
        c->in = in;
        c->in_cap = cap;
    }
    memcpy(c->in + c->in_n, data, n);
    c->in_n += n;
    return 0;
}

void mr__service_input(struct service *s, conn_id id, const void *data, size_t n, uint64_t now_ns)
{
    struct connection *c = mr__connection_find(s, id);

    if (!c || c->is_eof || c->is_refused || n == 0) {
        return;
    }
    mr__turn_begin(s, now_ns);
    if (keep_input(c, data, n) < 0) {
        MR_JOURNAL(s, MR_JOURNAL_CONNECTION, MR_LOG_WARN, "tcp", "closed: no room for its input",
                   LOG_UINT("conn", id));
        mr__connection_close(s, c);
    } else if (!c->is_paused) {
        run_lines(s, c);
    }
    mr__turn_end(s);
}

void mr__service_eof(struct service *s, conn_id id, uint64_t now_ns)
{
    struct connection *c = mr__connection_find(s, id);

    if (!c || c->is_eof) {
        return;
    }
    mr__turn_begin(s, now_ns);
    bool was_paused = c->is_paused;
    c->is_eof = true;
    if (!was_paused && !c->is_refused) {
        run_lines(s, c);
    }
    mr__turn_end(s);
}

void mr__service_closed(struct service *s, conn_id id, enum conn_end why, uint64_t now_ns)
{
    static const char *const names[] = {"closed", "reset", "timeout", "output", "shutdown"};
    static const enum session_end ends[] = {MR_SESSION_CLOSED, MR_SESSION_RESET, MR_SESSION_TIMEOUT,
                                            MR_SESSION_OUTPUT, MR_SESSION_DRAINED};
    struct connection *c = mr__connection_find(s, id);

    if (!c) {
        return;
    }
    mr__turn_begin(s, now_ns);
    MR_JOURNAL(s, MR_JOURNAL_CONNECTION, MR_LOG_DEBUG, "tcp", "gone", LOG_UINT("conn", id),
               LOG_STR("why", names[why]));
    s->figures.caps[MR_CAP_OUTPUT] += why == MR_CONN_OUTPUT;
    detach(s, c, ends[why]);
    mr__turn_end(s);
}
