/* SPDX-License-Identifier: MIT */
/*
 * See anchor.h. Control thread only.
 *
 *   registry[chunks_ref] ── { [1] = { [1] = value, [2] = false, ... }, [2] = { ... }, ... }
 */
#include "script/anchor.h"

#include "base/alloc.h"

#include <lauxlib.h>

enum {
    CHUNK = 64,
    CHUNKS_MAX = 256, /* 16,384 values: far above what may wait and be timed at once */
};

void mr__anchors_open(lua_State *L, struct anchors *as)
{
    *as = (struct anchors){0};
    lua_createtable(L, CHUNKS_MAX, 0);
    as->chunks_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

void mr__anchors_deinit(struct anchors *as)
{
    mr__free(as->free);
    *as = (struct anchors){0};
}

static void add_chunk(lua_State *L, struct anchors *as)
{
    size_t n = (as->n_chunks + 1) * CHUNK;
    uint16_t *grown;

    if (as->n_chunks == CHUNKS_MAX) {
        luaL_error(L, "more than %d values are held", CHUNKS_MAX * CHUNK);
    }
    luaL_checkstack(L, 4, "anchor");
    lua_createtable(L, CHUNK, 0);
    for (int i = 1; i <= CHUNK; i++) {
        lua_pushboolean(L, 0);
        lua_rawseti(L, -2, i);
    }
    grown = mr__realloc(as->free, n, sizeof *grown);
    if (!grown) {
        luaL_error(L, "not enough memory");
    }
    as->free = grown;
    lua_rawgeti(L, LUA_REGISTRYINDEX, as->chunks_ref);
    lua_insert(L, -2);
    lua_rawseti(L, -2, (int)as->n_chunks + 1);
    lua_pop(L, 1);
    for (size_t i = n; i > n - CHUNK; i--) {
        as->free[as->n_free++] = (uint16_t)i;
    }
    as->n_chunks++;
}

/* Pushes the table that has the number's place, which is returned. */
static int push_chunk(lua_State *L, const struct anchors *as, int number)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, as->chunks_ref);
    lua_rawgeti(L, -1, (number - 1) / CHUNK + 1);
    lua_remove(L, -2);
    return (number - 1) % CHUNK + 1;
}

int mr__anchor_add(lua_State *L, struct anchors *as)
{
    int number, place;

    luaL_checkstack(L, 4, "anchor");
    if (as->n_free == 0) {
        add_chunk(L, as);
    }
    number = as->free[--as->n_free];
    place = push_chunk(L, as, number);
    lua_insert(L, -2);
    lua_rawseti(L, -2, place);
    lua_pop(L, 1);
    return number;
}

void mr__anchor_push(lua_State *L, const struct anchors *as, int number)
{
    int place = push_chunk(L, as, number);

    lua_rawgeti(L, -1, place);
    lua_remove(L, -2);
}

void mr__anchor_remove(lua_State *L, struct anchors *as, int number)
{
    int place;

    if (number == 0) {
        return;
    }
    place = push_chunk(L, as, number);
    lua_pushboolean(L, 0);
    lua_rawseti(L, -2, place);
    lua_pop(L, 1);
    as->free[as->n_free++] = (uint16_t)number;
}
