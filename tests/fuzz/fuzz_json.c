/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as JSON text. What is decoded must be written again, what was written must
 * decode, and from the second time on the text must stay the same (the first time numbers
 * are rounded to 15 digits); nothing may stay behind.
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

/* Replaces the value at the top by what its text decodes to, and pushes the text of that. */
static struct input write_again(lua_State *L)
{
    char why[MR_JSON_WHY_MAX];
    struct input out;

    mr__json_push(L, -1);
    out.text = lua_tolstring(L, -1, &out.n);
    if (mr__json_decode(L, out.text, out.n, why) != 0) {
        abort();
    }
    mr__json_push(L, -1);
    out.text = lua_tolstring(L, -1, &out.n);
    lua_insert(L, -2);
    return out;
}

static int round_trip(lua_State *L)
{
    const struct input *in = lua_touserdata(L, 1);
    struct input first, second;
    char why[MR_JSON_WHY_MAX];

    mr__json_open(L);
    if (mr__json_decode(L, in->text, in->n, why) != 0) {
        return 0;
    }
    first = write_again(L);
    second = write_again(L);
    if (first.n != second.n || memcmp(first.text, second.text, first.n) != 0) {
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
