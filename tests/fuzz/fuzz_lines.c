/* SPDX-License-Identifier: MIT */
/*
 * The command channel's framing: the same bytes in one piece and in any pieces must give
 * the same answers. The first byte seeds the cuts. Ids are drawn anew for each connection,
 * so they are masked.
 */
#include "base/alloc.h"
#include "service/service.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TURNS_MAX = 100000, WAITS_MAX = 100000 };

struct wire {
    conn_id id;
    char *text;
    size_t n, cap;
    bool is_paused, is_closed;
};

static struct wire wires[2];
static uint64_t now_ns, state;

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

static struct wire *find_wire(conn_id id)
{
    require(wires[0].id == id || wires[1].id == id);
    return &wires[wires[1].id == id];
}

static void on_send(void *user, conn_id id, const char *data, size_t n)
{
    struct wire *w = find_wire(id);

    (void)user;
    require(!w->is_closed);
    if (w->n + n > w->cap) {
        w->cap = (w->n + n) * 2;
        w->text = realloc(w->text, w->cap);
        require(w->text != NULL);
    }
    memcpy(w->text + w->n, data, n);
    w->n += n;
}

static void on_close(void *user, conn_id id)
{
    (void)user;
    find_wire(id)->is_closed = true;
}

static void on_pause(void *user, conn_id id, bool is_paused)
{
    (void)user;
    find_wire(id)->is_paused = is_paused;
}

static void on_reply(void *user, const struct mr_addr *to, const struct mr_addr *local,
                     const char *data, size_t n)
{
    (void)user;
    (void)to;
    (void)local;
    (void)data;
    (void)n;
    abort();
}

static int on_random(void *user, void *buf, size_t n)
{
    (void)user;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)buf)[i] = (unsigned char)(state >> 56);
    }
    return 0;
}

static uint64_t clock_ns(void *user)
{
    (void)user;
    return now_ns;
}

static void settle(struct service *s)
{
    for (unsigned i = 0; mr__service_deadline(s) <= now_ns; i++) {
        mr__service_tick(s, now_ns);
        require(i < TURNS_MAX);
    }
}

/* A client that commands too fast, or names too many wrong ids, is served later and loses nothing.
 */
static void wait_for(struct service *s, const bool *flag, bool value)
{
    settle(s);
    for (unsigned i = 0; *flag != value; i++) {
        require(i < WAITS_MAX && mr__service_deadline(s) != UINT64_MAX);
        now_ns = mr__service_deadline(s);
        settle(s);
    }
}

/* An id is as good as any other. Data of an echo may look like one: masked on both sides. */
static void mask_ids(struct wire *w)
{
    for (size_t i = 0; i < w->n; i++) {
        bool starts = i == 0 || w->text[i - 1] == '\n';
        if (starts && w->n - i > 8 &&
            (!memcmp(w->text + i, "set-oid ", 8) || !memcmp(w->text + i, "set-pid ", 8))) {
            for (i += 8; i < w->n && w->text[i] != '\n'; i++) {
                w->text[i] = '.';
            }
        }
    }
}

static void play(struct service *s, struct wire *w, const uint8_t *data, size_t size, bool is_cut)
{
    const struct mr_addr peer = {.ip = {10, 0, 0, 1}, .port = 5000, .family = 4};
    uint64_t cuts = size ? data[0] + 1 : 1;

    w->id = mr__service_accept(s, &peer, &peer, now_ns);
    require(w->id != 0);
    for (size_t i = 0; i < size;) {
        cuts = cuts * 6364136223846793005u + 1442695040888963407u;
        size_t n = is_cut ? 1 + (cuts >> 33) % ((cuts >> 60) == 0 ? 20000 : 9) : size;
        n = n < size - i ? n : size - i;
        mr__service_input(s, w->id, data + i, n, now_ns);
        i += n;
        wait_for(s, &w->is_paused, false);
    }
    mr__service_eof(s, w->id, now_ns);
    wait_for(s, &w->is_closed, true);
    mask_ids(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings *settings = mr__settings_create();
    struct mr_options o;
    struct mr *mr = NULL;
    struct service *s;

    now_ns = 1000000000;
    state = 1;
    memset(wires, 0, sizeof wires);
    mr_options_init(&o, sizeof o);
    o.workers = 0;
    o.io = MR_IO_NONE;
    o.max_ports = 4;
    o.hold.flows = 16;
    o.hold.memory_bytes = 65536;
    o.clock_ns = clock_ns;
    require(settings != NULL && mr_create(&mr, &o) == 0);
    struct service_options so = {
        .settings = settings,
        .mr = mr,
        .out = {.send = on_send,
                .close = on_close,
                .pause = on_pause,
                .reply = on_reply,
                .random = on_random},
    };
    require(mr__service_create(&s, &so, now_ns) == 0);
    mr__service_tick(s, now_ns);
    play(s, &wires[0], data, size, false);
    play(s, &wires[1], data, size, true);
    require(wires[0].n == wires[1].n);
    require(wires[0].n == 0 || !memcmp(wires[0].text, wires[1].text, wires[0].n));
    free(wires[0].text);
    free(wires[1].text);
    mr__service_destroy(s);
    mr_destroy(mr);
    mr__settings_destroy(settings);
    require(mr__alloc_live() == 0);
    return 0;
}
