/* SPDX-License-Identifier: MIT */
/*
 * The names of the verdicts, from the one list in verdict.h. Any thread.
 */
#include "core/verdict.h"

static const char *const names[] = {
#define X(constant, name, text) name,
    MR_VERDICTS (X)
#undef X
};

static const char *const texts[] = {
#define X(constant, name, text) text,
    MR_VERDICTS (X)
#undef X
};

const char *mr_verdict_name(enum mr_verdict v)
{
    return (unsigned)v < MR_VERDICT_COUNT ? names[v] : "?";
}

const char *mr_verdict_text(enum mr_verdict v)
{
    return (unsigned)v < MR_VERDICT_COUNT ? texts[v] : "?";
}
