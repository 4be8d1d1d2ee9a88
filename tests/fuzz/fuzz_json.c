/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as JSON text. What is decoded must be written again, and what was written must
 * decode and be written to the same text; nothing may stay behind.
 */
#include "script/json.h"
#include "script/state.h"

#include <lauxlib.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const char *text;
    size_t n;
};

static int round_trip(lua_State *L)
{
    const struct input *in = lua_touserdata(L, 1);
    char why[MR_JSON_WHY_MAX];
    const char *first, *second;
    size_t n, m;

    mr__json_open(L);
    if (mr__json_decode(L, in->text, in->n, why) != 0) {
        return 0;
    }
    /* Escapes may make a text longer than the bound; else what was read can be written. */
    mr__json_push(L, -1);
    first = lua_tolstring(L, -1, &n);
    if (mr__json_decode(L, first, n, why) != 0) {
        abort();
    }
    mr__json_push(L, -1);
    second = lua_tolstring(L, -1, &m);
    if (n != m || memcmp(first, second, n) != 0) {
        abort();
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {(const char *)data, size};
    struct script_failure failure;
    struct script_state st;

    if (mr__state_init(&st, 64u << 20) != 0) {
        return 0;
    }
    if (mr__state_enter(&st, round_trip, &in, &failure) != 0 && size < MR_JSON_BYTES_MAX / 8) {
        abort();
    }
    mr__state_deinit(&st);
    return 0;
}
