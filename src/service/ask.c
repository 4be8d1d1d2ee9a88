/* SPDX-License-Identifier: MIT */
/*
 * Questions to whoever decides. Control thread. One place counts what is pending and
 * turns an answer that comes later into a turn of its own. Start reading at mr__ask().
 */
#include "service/state.h"

#include <stdio.h>

bool mr__ask_is_wanted(const struct service *s, enum hook hook)
{
    return s->hooks && s->hooks->wants(s->hooks->self, hook);
}

bool mr__ask_is_busy(const struct service *s, enum hook hook)
{
    return s->n_pending >= MR_PENDING_MAX && mr__ask_is_wanted(s, hook);
}

static void on_done(struct hook_request *req, const struct hook_answer *answer)
{
    struct pending *p = (struct pending *)(void *)req;
    struct service *s = p->service;

    p->is_pending = false;
    s->n_pending--;
    mr__turn_begin(s, s->now_ns);
    p->answered(s, p, answer);
    mr__turn_end(s);
}

void mr__notice_fill(struct service *s, struct hook_event *ev)
{
    ev->now = mr__wall(s);
    ev->id = ++s->last_event;
}

void mr__ask(struct service *s, struct pending *p, struct hook_event *ev,
             void (*answered)(struct service *s, struct pending *p,
                              const struct hook_answer *answer))
{
    struct hook_answer answer = {.outcome = MR_HOOK_NO_OPINION};

    if (!mr__ask_is_wanted(s, ev->hook)) {
        answered(s, p, &answer);
        return;
    }
    if (s->n_pending >= MR_PENDING_MAX) {
        answer.outcome = MR_HOOK_BUSY;
        answered(s, p, &answer);
        return;
    }
    mr__notice_fill(s, ev);
    *p = (struct pending){
        .request = {.done = on_done},
        .service = s,
        .is_pending = true,
        .answered = answered,
    };
    s->n_pending++;
    s->asked++;
    s->hooks->ask(s->hooks->self, &p->request, ev);
}

void mr__ask_cancel(struct service *s, struct pending *p)
{
    if (p->is_pending) {
        s->hooks->cancel(s->hooks->self, &p->request);
        p->is_pending = false;
        s->n_pending--;
    }
}

bool mr__answer_refuses(const struct hook_answer *answer, struct refusal *why)
{
    switch (answer->outcome) {
    case MR_HOOK_NO_OPINION:
    case MR_HOOK_ADMIT:
        return false;
    case MR_HOOK_BUSY:
        *why = (struct refusal){.code = MR_CODE_BUSY};
        return true;
    case MR_HOOK_REFUSE:
    case MR_HOOK_FAILED:
        break;
    }
    *why = (struct refusal){.code = MR_CODE_REJECTED};
    snprintf(why->reason, sizeof why->reason, "%s",
             answer->reason[0] ? answer->reason : "policy-error");
    return true;
}
