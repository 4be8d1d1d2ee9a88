/* SPDX-License-Identifier: MIT */
/* Players' connections and their datagrams to the registrar (bench.h). One thread. */
#include "module/bench.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

/* Where a peer of that kind reaches us: documentation addresses, but a private peer is served at a
 * private address only, and a loopback one on loopback. */
static struct mr_addr local_of(const struct mr_addr *peer, const char *port)
{
    unsigned kind = mr_addr_classify(peer);
    bool is_v4 = peer->family == 4;
    const char *ip = kind & MR_ADDR_LOOPBACK  ? (is_v4 ? "127.0.0.1" : "[::1]")
                     : kind & MR_ADDR_PRIVATE ? (is_v4 ? "10.255.255.254" : "[fdff::fffe]")
                                              : (is_v4 ? "192.0.2.1" : "[2001:db8:ffff::1]");
    struct mr_addr a = {.family = 0};
    char text[MR_ADDR_TEXT_MAX];
    size_t n = strlen(ip), m = strlen(port);

    memcpy(text, ip, n);
    memcpy(text + n, port, m);
    mr_addr_parse(&a, text, n + m, NULL);
    return a;
}

static struct wire *find_wire(const struct bench *b, conn_id id)
{
    size_t low = 0, high = b->n_wires;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (b->wires[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < b->n_wires && b->wires[low].id == id ? &b->wires[low] : NULL;
}

/* ---- what the service says ------------------------------------------------------------------- */

/* Keeps bytes behind what is there. */
static bool append(char **text, size_t *n, const char *data, size_t more)
{
    char *grown = more > 0 ? mr__realloc(*text, *n + more, 1) : *text;

    if (more > 0 && grown) {
        memcpy(grown + *n, data, more);
        *text = grown;
        *n += more;
    }
    return more == 0 || grown;
}

static void tell_line(struct bench *b, conn_id id, const char *line, size_t n)
{
    struct happening *h = mr__happening_add(&b->happenings, HAPPENED_LINE);

    if (h) {
        h->id = id;
    }
    mr__happening_text(&b->happenings, h, 0, (struct str){line, n});
}

static void on_send(void *user, conn_id id, const char *data, size_t n)
{
    struct bench *b = user;
    struct wire *w = find_wire(b, id);
    size_t done = 0;
    char *end;

    if (!w || !append(&w->out, &w->out_n, data, n)) {
        b->happenings.is_short = true;
        return;
    }
    while (done < w->out_n && (end = memchr(w->out + done, '\n', w->out_n - done)) != NULL) {
        tell_line(b, id, w->out + done, (size_t)(end - w->out) - done);
        done = (size_t)(end - w->out) + 1;
    }
    w->out_n -= done;
    if (done > 0 && w->out_n > 0) {
        memmove(w->out, w->out + done, w->out_n);
    }
}

static void end_wire(struct bench *b, struct wire *w)
{
    struct happening *h = mr__happening_add(&b->happenings, HAPPENED_CLOSED);

    if (h) {
        h->id = w->id;
    }
    mr__free(w->in);
    mr__free(w->out);
    *w = (struct wire){.id = w->id, .is_closed = true};
}

static void on_close(void *user, conn_id id)
{
    struct bench *b = user;
    struct wire *w = find_wire(b, id);

    if (w && !w->is_closed) {
        end_wire(b, w);
    }
}

static void on_pause(void *user, conn_id id, bool is_paused)
{
    struct wire *w = find_wire(user, id);

    if (w) {
        w->is_paused = is_paused;
    }
}

static void on_reply(void *user, const struct mr_addr *to, const struct mr_addr *local,
                     const char *data, size_t n)
{
    /* Whether the registrar knows a player is seen in his session. */
    (void)user;
    (void)to;
    (void)local;
    (void)data;
    (void)n;
}

/* splitmix64: the same ids, ports and keys for the same seed. */
static int on_random(void *user, void *buf, size_t n)
{
    struct bench *b = user;
    unsigned char *p = buf;

    for (size_t i = 0; i < n; i++) {
        uint64_t z = b->random += 0x9e3779b97f4a7c15u;

        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        p[i] = (unsigned char)(z ^ z >> 31);
    }
    return 0;
}

struct service_out mr__bench_out(struct bench *b)
{
    return (struct service_out){.user = b,
                                .send = on_send,
                                .close = on_close,
                                .pause = on_pause,
                                .reply = on_reply,
                                .random = on_random,
                                .lookup = mr__bench_lookup,
                                .lookup_cancel = mr__bench_lookup_cancel};
}

/* ---- what players do ------------------------------------------------------------------------- */

conn_id mr__bench_accept(struct bench *b, const struct mr_addr *peer)
{
    struct wire *grown = mr__realloc(b->wires, b->n_wires + 1, sizeof *grown);
    struct mr_addr local = local_of(peer, ":8890");
    conn_id id;

    if (!grown) {
        return 0;
    }
    b->wires = grown;
    id = mr__service_accept(b->service, peer, &local, b->now_ns);
    if (id != 0) {
        b->wires[b->n_wires++] = (struct wire){.id = id};
    }
    return id;
}

/* Hands over what one connection sent, until the service wants no more. */
static void feed(struct bench *b, size_t i)
{
    struct wire *w = &b->wires[i];

    if (w->is_closed || (w->in_n == 0 && !w->is_eof)) {
        return;
    }
    if (w->is_paused) {
        b->is_input_waiting = true;
        return;
    }
    if (w->in_n > 0) {
        char *in = w->in; /* the service may close the connection meanwhile */
        size_t n = w->in_n;

        w->in = NULL;
        w->in_n = 0;
        mr__service_input(b->service, w->id, in, n, b->now_ns);
        mr__free(in);
        b->is_input_waiting |= b->wires[i].is_eof;
        return;
    }
    w->is_eof = false;
    mr__service_eof(b->service, w->id, b->now_ns);
}

void mr__bench_feed(struct bench *b)
{
    if (b->is_input_waiting) {
        b->is_input_waiting = false;
        for (size_t i = 0; i < b->n_wires; i++) {
            feed(b, i);
        }
    }
}

int mr__bench_input(struct bench *b, conn_id id, const char *data, size_t n)
{
    struct wire *w = find_wire(b, id);

    if (!w || w->is_closed) {
        return -ENOENT;
    }
    if (!append(&w->in, &w->in_n, data, n)) {
        return -ENOMEM;
    }
    feed(b, (size_t)(w - b->wires));
    return 0;
}

int mr__bench_leave(struct bench *b, conn_id id, enum conn_end why)
{
    struct wire *w = find_wire(b, id);

    if (!w || w->is_closed) {
        return -ENOENT;
    }
    if (why == MR_CONN_CLOSED) {
        w->is_eof = true;
        feed(b, (size_t)(w - b->wires));
    } else {
        end_wire(b, w);
        mr__service_closed(b->service, id, why, b->now_ns);
    }
    return 0;
}

void mr__bench_registrar(struct bench *b, const struct mr_addr *from, const char *data, size_t n)
{
    struct mr_addr local = local_of(from, ":8809");

    mr__service_registrar(b->service, from, &local, data, n, b->now_ns);
}

void mr__bench_players_deinit(struct bench *b)
{
    for (size_t i = 0; i < b->n_wires; i++) {
        mr__free(b->wires[i].in);
        mr__free(b->wires[i].out);
    }
    mr__free(b->wires);
}
