/* SPDX-License-Identifier: MIT */
/* See own_loop.h. */
#include "control/own_loop.h"

#include "base/alloc.h"

#include <errno.h>

enum { CLOSING_TURNS_MAX = 16 }; /* far more than callbacks that close one after the other */

struct own_loop {
    uv_loop_t uv;
    /* Keeps uv_run(ONCE) waiting also when nothing else holds the loop: who turns it knows what he
     * waits for, and a loop without a referenced handle would return at once, again and again. */
    uv_async_t hold;
};

int mr__own_loop_create(struct own_loop **out)
{
    struct own_loop *l = mr__alloc(1, sizeof *l);
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

int mr__own_loop_destroy(struct own_loop *l)
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

uv_loop_t *mr__own_loop_uv(struct own_loop *l)
{
    return &l->uv;
}

void mr__own_loop_wait(struct own_loop *l)
{
    uv_run(&l->uv, UV_RUN_ONCE);
}

void mr__own_loop_step(struct own_loop *l)
{
    uv_run(&l->uv, UV_RUN_NOWAIT);
}

void mr__own_loop_stop(struct own_loop *l)
{
    uv_stop(&l->uv);
}

int mr__own_loop_fd(const struct own_loop *l)
{
    return uv_backend_fd(&l->uv);
}

int mr__own_loop_timeout_ms(const struct own_loop *l)
{
    /* libuv reckons from when it looked at the clock last. */
    uv_update_time((uv_loop_t *)(uintptr_t)&l->uv);
    return uv_backend_timeout(&l->uv);
}
