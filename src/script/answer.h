/* SPDX-License-Identifier: MIT */
/*
 * What hooks return: strict checks, and the rules by which the answers of a chain become
 * one. Control thread only. Start reading at mr__answer_read().
 */
#ifndef MR_SCRIPT_ANSWER_H
#define MR_SCRIPT_ANSWER_H

#include "service/hooks.h"

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

enum { ANSWER_WHY_MAX = 256 };

/* One policy's answer. Strings are borrowed from the values on the Lua stack it was read from. */
struct answer {
    enum hook_outcome outcome; /* NO_OPINION, ADMIT or REFUSE */
    char reason[MR_REASON_MAX + 1];
    uint64_t mute_ns;
    struct str oid;
    bool has_takeover, takeover;
    enum hook_via via;
    size_t n_tags, n_slots;
    struct hook_pair tags[MR_TAGS_MAX];
    char numbers[MR_TAGS_MAX][32]; /* tag values that were numbers */
    struct hook_slot slots[MR_SLOTS_MAX];
    struct hook_spec spec;
    struct mr_addr address;               /* lookup, admitted */
    char message[MR_LOOKUP_TEXT_MAX + 1]; /* lookup, refused; reason is the code */
};

/* The chain's answer so far, and the memory of what it says. */
struct merged_answer {
    struct hook_answer answer;
    char oid[MR_OID_MAX];
    struct hook_pair tags[MR_TAGS_MAX];
    char tag_keys[MR_TAGS_MAX][MR_KEY_MAX];
    char tag_values[MR_TAGS_MAX][MR_VALUE_MAX];
    struct hook_slot slots[MR_SLOTS_MAX];
    char slot_keys[MR_SLOTS_MAX][MR_SLOT_KEY_MAX];
    char message[MR_LOOKUP_TEXT_MAX + 1];
};

/* Reads the n values from index on (n may be 0) as the results of that hook. 0, or -EINVAL with
 * why, e.g. "returned tags.user, a table (a string or number is expected)". Never raises, calls
 * no metamethod and looks at no more keys than an answer may have. */
int mr__answer_read(lua_State *L, int index, int n, enum hook hook, const char *policy,
                    struct answer *out, char why[ANSWER_WHY_MAX]);

/* The same for `lookup` and for an endpoint's own function: an address as text or in a table with
 * ip, `nil, err[, code]`, `false, reason`. family: that was asked for, 4, 6, or 0 for either.
 * Raises when out of memory. */
int mr__answer_read_address(lua_State *L, int index, int n, int family, const char *policy,
                            struct answer *out, char why[ANSWER_WHY_MAX]);
/* A spec that no hook returned, at that index: of the config's `ports`, of relay.open(). why then
 * begins with what is wrong, e.g. "idle, -3 (seconds above 0 ...". */
int mr__answer_read_spec(lua_State *L, int index, struct answer *out, char why[ANSWER_WHY_MAX]);
/* No opinion. */
void mr__answer_clear(struct answer *out);

void mr__answer_begin(struct merged_answer *all);

/* Adds an answer whose outcome is ADMIT: the smaller of two numbers, tags and slots united, the
 * later oid, takeover, via and target. -E2BIG with why when they become too many; all is then as it
 * was. */
int mr__answer_merge(struct merged_answer *all, const struct answer *one, char why[ANSWER_WHY_MAX]);

/* Writes 1 to 64 of [a-z0-9._-] for any text: what else is in it becomes '-', what is too long is
 * cut, nothing becomes "-". */
void mr__answer_clean_reason(char out[MR_REASON_MAX + 1], const char *text, size_t n);

#endif
