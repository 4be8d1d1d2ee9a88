/* SPDX-License-Identifier: MIT */
/*
 * What the service writes into the log: addresses as the setting wants them, and no more
 * of one kind than a disk can bear. Control thread. A PID is given to nothing here.
 */
#include "service/state.h"

/* Below one record a second and player of a full server; a flood shows as its count. */
enum { RECORDS_PER_SECOND = 50, RECORDS_BURST = 200 };

const char *mr__journal_address(const struct service *s, char buf[MR_ADDR_TEXT_MAX],
                                const struct mr_addr *a)
{
    switch (mr__settings_values(s->settings)->log_addresses) {
    case MR_LOG_ADDRESSES_FULL:
        mr_addr_format(a, buf, MR_ADDR_TEXT_MAX);
        return buf;
    case MR_LOG_ADDRESSES_NET:
        mr_addr_format_net(a, buf, MR_ADDR_TEXT_MAX);
        return buf;
    default:
        return "-";
    }
}

bool mr__journal_may(struct service *s, enum journal_kind kind, enum log_level level)
{
    static const char *const names[MR_JOURNAL_KINDS] = {
        "connection", "session", "registrar", "relay", "join", "knock", "notice"};
    struct log_limiter *l = &s->journal[kind];

    if (!s->log || level < s->log->level ||
        !mr__log_limit(l, s->now_ns / 1000000, RECORDS_PER_SECOND, RECORDS_BURST)) {
        return false;
    }
    if (l->suppressed > 0) {
        MR_LOG(s->log, level, "log", "records suppressed", LOG_STR("kind", names[kind]),
               LOG_UINT("suppressed", l->suppressed));
        l->suppressed = 0;
    }
    return true;
}
