/* SPDX-License-Identifier: MIT */
/*
 * `register-host`: a player asks for an id. Control thread. Nothing is taken before every
 * policy agreed, and then all of it or nothing: slots, ids, the session.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static void log_registered(struct service *s, const struct session *p)
{
    char buf[MR_ADDR_TEXT_MAX];

    MR_JOURNAL(s, MR_JOURNAL_SESSION, MR_LOG_INFO, "session", "registered",
               LOG_UINT("session", p->id), LOG_STRN("oid", p->oid, p->oid_n),
               LOG_STR("peer", mr__journal_address(s, buf, &p->connection->peer)));
}

/* The id that the policies chose, or a new one. */
static int choose_oid(struct service *s, struct str chosen, char **oid, size_t *n)
{
    if (chosen.n == 0) {
        return mr__draw_oid(s, oid, n);
    }
    *oid = mr__strndup(chosen.s, chosen.n);
    *n = chosen.n;
    return *oid ? 0 : -ENOMEM;
}

static int create(struct service *s, struct connection *c, const struct hook_answer *answer,
                  struct session **out)
{
    struct hook_map meta = mr__request_meta(&c->request);
    char *oid, *pid;
    size_t oid_n, pid_n;
    int rc = mr__draw_pid(s, &pid, &pid_n);

    if (rc < 0) {
        return rc;
    }
    rc = choose_oid(s, answer->oid, &oid, &oid_n);
    if (rc < 0) {
        explicit_bzero(pid, pid_n);
        mr__free(pid);
        return rc;
    }
    struct session *p = mr__session_create(s, c, c->request.session, oid, oid_n, pid, pid_n);
    if (!p) {
        return -ENOMEM;
    }
    if (mr__tags_merge(&p->tags, &answer->tags) < 0 || mr__tags_merge(&p->meta, &meta) < 0) {
        mr__session_end(s, p, MR_SESSION_CLOSED);
        return -ENOMEM;
    }
    *out = p;
    return 0;
}

static void answer_player(struct service *s, struct connection *c, const struct session *p)
{
    mr__connection_say(s, c, "set-oid %.*s", (int)p->oid_n, p->oid);
    mr__connection_say(s, c, "set-pid %.*s", (int)p->pid_n, p->pid);
    mr__command_succeed(s, c);
    mr__drain_tell(s, c); /* that nobody can join him now */
}

/* Nothing else may take the id between the end of its old session and the new one, so both happen
 * here, after everything that can be refused. */
static void register_player(struct service *s, struct connection *c,
                            const struct hook_answer *answer)
{
    struct session *old =
        answer->oid.n ? mr__session_by_oid(s, answer->oid.s, answer->oid.n) : NULL;
    struct held_slots slots;
    struct str full = {"", 0};
    struct session *p = NULL;

    if (old && !answer->takeover) {
        mr__command_fail(s, c, MR_CODE_REJECTED, "oid-taken");
        return;
    }
    int rc =
        mr__slots_take(s, answer->slots, answer->n_slots, old ? &old->slots : NULL, &slots, &full);
    if (rc == -ENOSPC) {
        struct refusal why;
        mr__refusal_full(&why, full);
        mr__command_fail(s, c, why.code, why.reason);
        return;
    }
    if (rc == 0) {
        rc = create(s, c, answer, &p);
        if (rc < 0) {
            mr__slots_release(s, &slots);
        }
    }
    if (rc < 0) {
        mr__command_fail(s, c, rc == -ENOSPC ? MR_CODE_NO_IDS : MR_CODE_BUSY, "");
        return;
    }
    assert(p);
    p->slots = slots;
    p->is_registered = true;
    if (old && old->connection == c) {
        mr__session_end(s, old, MR_SESSION_REPLACED); /* his own: the new ids say it all */
    } else if (old) {
        mr__session_expel(s, old, MR_SESSION_REPLACED, "replaced");
    }
    log_registered(s, p);
    answer_player(s, c, p);
}

static void on_answered(struct service *s, struct pending *pending,
                        const struct hook_answer *answer)
{
    struct request *r = MR_CONTAINER(pending, struct request, pending);
    struct connection *c = mr__request_connection(r);
    struct refusal why;

    if (mr__answer_refuses(answer, &why)) {
        mr__command_fail(s, c, why.code, why.reason);
        return;
    }
    /* What was blocked meanwhile has ended the sessions that were there, not those to come. */
    if (mr__blocks_have_net(s, &c->peer) || mr__blocks_have_tags(s, answer->tags)) {
        mr__command_fail(s, c, MR_CODE_BLOCKED, "");
        return;
    }
    register_player(s, c, answer);
}

void mr__registration_begin(struct service *s, struct connection *c)
{
    struct request *r = &c->request;

    if (c->n_sessions >= mr__settings_values(s->settings)->max_sessions_per_connection) {
        mr__command_fail(s, c, MR_CODE_TOO_MANY, "");
        return;
    }
    if (mr__blocks_have_net(s, &c->peer)) {
        mr__command_fail(s, c, MR_CODE_BLOCKED, "");
        return;
    }
    r->session = ++s->last_session;
    struct hook_session to_come = {
        .id = r->session,
        .tcp = c->peer,
        .meta = mr__request_meta(r),
        .since = mr__wall(s),
    };
    struct hook_event ev = {
        .hook = MR_HOOK_REGISTER,
        .session = &to_come,
        .meta = mr__request_meta(r),
    };
    mr__ask(s, &r->pending, &ev, on_answered);
}
