/* SPDX-License-Identifier: MIT */
/* See errand.h. Control thread. Start reading at mr__errand_begin(). */
#include "script/errand.h"

#include "base/alloc.h"
#include "script/holder.h"
#include "script/module_part.h"

struct errand {
    struct wait *wait;
    const struct script_host *host; /* of the generation, which outlives its waiting hooks */
    host_job job;
};

static void forget(void *user)
{
    struct errand *e = user;

    e->host->cancel(e->host->user, e->job);
    mr__free(e);
}

struct errand *mr__errand_begin(lua_State *L, const struct script_host *host, const char *function)
{
    struct holder *holder = mr__holder_push(L, mr__free);
    struct errand *e = holder->p = mr__alloc(1, sizeof *e);

    if (!e) {
        luaL_error(L, "%s: not enough memory", function);
        return NULL;
    }
    e->host = host;
    e->wait = mr__wait_begin(L, function, forget, e);
    holder->p = NULL;
    return e;
}

int mr__errand_go(lua_State *L, struct errand *e, host_job job)
{
    if (job == 0) {
        mr__wait_drop(e->wait);
        mr__free(e);
        return mr__module_fail(L, "not enough memory", "failed");
    }
    e->job = job;
    return mr__wait_yield(L, e->wait);
}

struct wait *mr__errand_end(struct errand *e)
{
    struct wait *w = e->wait;

    mr__free(e);
    return w;
}
