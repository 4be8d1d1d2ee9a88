/* SPDX-License-Identifier: MIT */
/* See loop.h. */
#include "control/loop.h"

#include "base/alloc.h"

#include <errno.h>

enum { CLOSING_TURNS_MAX = 16 }; /* far more than callbacks that close one after the other */

struct loop {
    uv_loop_t uv;
    /* Keeps uv_run(ONCE) waiting also when nothing else holds the loop: who turns it knows what he
     * waits for, and a loop without a referenced handle would return at once, again and again. */
    uv_async_t hold;
};

int mr__loop_create(struct loop **out)
{
    struct loop *l = mr__alloc(1, sizeof *l);
    int rc;

    if (!l) {
        return -ENOMEM;
    }
    rc = uv_loop_init(&l->uv);
    if (rc < 0) {
        mr__free(l);
        return rc;
    }
    rc = uv_async_init(&l->uv, &l->hold, NULL);
    if (rc < 0) {
        uv_loop_close(&l->uv);
        mr__free(l);
        return rc;
    }
    *out = l;
    return 0;
}

int mr__loop_destroy(struct loop *l)
{
    if (!l) {
        return 0;
    }
    if (!uv_is_closing((uv_handle_t *)&l->hold)) {
        uv_close((uv_handle_t *)&l->hold, NULL);
    }
    /* A closing handle is due at once, so this waits for nothing; its callback may close another.
     * What is not closing is found by uv_loop_close(). */
    for (unsigned turn = 0; turn < CLOSING_TURNS_MAX && uv_loop_alive(&l->uv); turn++) {
        uv_run(&l->uv, UV_RUN_NOWAIT);
    }
    if (uv_loop_close(&l->uv) != 0) {
        return -EBUSY;
    }
    mr__free(l);
    return 0;
}

uv_loop_t *mr__loop_uv(struct loop *l)
{
    return &l->uv;
}

void mr__loop_wait(struct loop *l)
{
    uv_run(&l->uv, UV_RUN_ONCE);
}

void mr__loop_step(struct loop *l)
{
    uv_run(&l->uv, UV_RUN_NOWAIT);
}

void mr__loop_stop(struct loop *l)
{
    uv_stop(&l->uv);
}

int mr__loop_fd(const struct loop *l)
{
    return uv_backend_fd(&l->uv);
}

int mr__loop_timeout_ms(const struct loop *l)
{
    /* libuv reckons from when it looked at the clock last. */
    uv_update_time((uv_loop_t *)(uintptr_t)&l->uv);
    return uv_backend_timeout(&l->uv);
}
