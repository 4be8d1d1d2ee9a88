/* SPDX-License-Identifier: MIT */
/*
 * See supervisor.h. Each message goes to the path anew and not through a connected socket:
 * a supervisor that is replaced while we run has another socket there.
 */
#include "control/supervisor.h"

#include "base/alloc.h"
#include "io/unix.h"
#include "service/service.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 512 };

struct supervisor {
    uv_timer_t timer;
    struct service *service;
    char *path;
    int fd;
    bool has_watchdog;
};

static void send_text(struct supervisor *s, const char *text)
{
    (void)mr__unix_send(s->fd, s->path, text, strlen(text)); /* whoever does not hear us acts */
}

/* Behind the lines that are there already. */
static void add_status(struct supervisor *s, char text[TEXT_MAX])
{
    struct service_counts counts;
    const char *why = mr__service_not_ready(s->service, uv_hrtime());
    size_t n = strlen(text);

    mr__service_counts(s->service, &counts);
    snprintf(text + n, TEXT_MAX - n, "STATUS=%s; %zu sessions, %zu relays\n", why ? why : "serving",
             counts.sessions, counts.relays);
}

static void on_timer(uv_timer_t *timer)
{
    struct supervisor *s = timer->data;
    char text[TEXT_MAX] = "";

    if (s->has_watchdog && mr__service_is_alive(s->service, uv_hrtime())) {
        snprintf(text, sizeof text, "WATCHDOG=1\n");
    }
    add_status(s, text);
    send_text(s, text);
}

void mr__supervisor_ready(struct supervisor *s)
{
    char text[TEXT_MAX] = "READY=1\n";

    if (s) {
        add_status(s, text);
        send_text(s, text);
    }
}

void mr__supervisor_reloading(struct supervisor *s)
{
    char text[TEXT_MAX];

    if (s) {
        snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%llu\n",
                 (unsigned long long)(uv_hrtime() / 1000));
        send_text(s, text);
    }
}

void mr__supervisor_stopping(struct supervisor *s, uint64_t for_ns)
{
    char text[TEXT_MAX];

    if (s) {
        snprintf(text, sizeof text, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu\n",
                 (unsigned long long)(for_ns / 1000));
        add_status(s, text);
        send_text(s, text);
    }
}

/* ---- life -------------------------------------------------------------------------------- */

/* 0: there is none, or it is another process's. */
static uint64_t watchdog_ms(const struct supervisor_options *opts)
{
    unsigned long long us = opts->watchdog_us ? strtoull(opts->watchdog_us, NULL, 10) : 0;
    bool is_other = opts->watchdog_pid && *opts->watchdog_pid &&
                    strtoll(opts->watchdog_pid, NULL, 10) != (long long)getpid();

    return is_other ? 0 : us / 1000;
}

int mr__supervisor_create(struct supervisor **out, const struct supervisor_options *opts)
{
    uint64_t watchdog = watchdog_ms(opts), period = MR_SUPERVISOR_STATUS_MS;
    struct supervisor *s;

    *out = NULL;
    if (!opts->socket || !*opts->socket) {
        return 0;
    }
    s = mr__alloc(1, sizeof *s);
    if (!s) {
        return -ENOMEM;
    }
    s->path = mr__strndup(opts->socket, strlen(opts->socket));
    s->fd = s->path ? mr__unix_datagram() : -ENOMEM;
    if (s->fd < 0) {
        int rc = s->fd;
        mr__free(s->path);
        mr__free(s);
        return rc;
    }
    s->service = opts->service;
    s->has_watchdog = watchdog > 0;
    if (s->has_watchdog && watchdog / 2 < period) {
        period = watchdog / 2 > 0 ? watchdog / 2 : 1;
    }
    uv_timer_init(opts->loop, &s->timer);
    s->timer.data = s;
    uv_timer_start(&s->timer, on_timer, period, period);
    *out = s;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct supervisor *s = handle->data;

    mr__free(s->path);
    mr__free(s);
}

void mr__supervisor_destroy(struct supervisor *s)
{
    if (s) {
        mr__unix_close(s->fd);
        uv_close((uv_handle_t *)&s->timer, on_closed);
    }
}
