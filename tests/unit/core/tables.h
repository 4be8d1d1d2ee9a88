/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the tables share: a memory block for planes and tables, short
 * ways to name addresses.
 */
#ifndef MR_TESTS_CORE_TABLES_H
#define MR_TESTS_CORE_TABLES_H

#include "test.h"

#include "base/alloc.h"
#include "core/pair.h"

static const uint64_t second = 1000000000u;

/* 10.0.0.<n>:4000 */
static inline struct mr_addr peer(unsigned n)
{
    return (struct mr_addr){
        .ip = {10, (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n}, .port = 4000, .family = 4};
}

static inline struct hash_key random_key(void)
{
    struct hash_key key;

    for (int i = 0; i < 4; i++)
        key.k[i] = test_random();
    return key;
}

/* All memory that planes and tables share, and a plane or tables over it. */
struct bed {
    struct relay_shared *shared;
    struct relay_limits *limits;
    struct limit_global *global;
    size_t shared_bytes, limits_bytes, own_bytes;
    void *own;
    struct plane_config config;
};

static inline void *bed_map(size_t bytes)
{
    void *p = mr__map(bytes);

    if (!p)
        abort();
    return p;
}

static inline void bed_open(struct bed *b, uint32_t ports, enum mr__pairing pairing)
{
    *b = (struct bed){.shared_bytes = (ports + MR__SHARED_EXTRA) * sizeof(struct relay_shared),
                      .limits_bytes = (ports + 1) * sizeof(struct relay_limits)};
    b->shared = bed_map(b->shared_bytes);
    b->limits = bed_map(b->limits_bytes);
    b->global = bed_map(sizeof *b->global);
    b->config = (struct plane_config){.ports = ports,
                                      .max_links = 4 * ports,
                                      .max_own = 16,
                                      .pairing = pairing,
                                      .key = random_key(),
                                      .shared = b->shared,
                                      .limits = b->limits,
                                      .global = b->global};
}

static inline void bed_plane(struct bed *b, struct plane *p)
{
    b->own_bytes = mr__plane_bytes(&b->config);
    b->own = bed_map(b->own_bytes);
    mr__plane_init(p, &b->config, b->own);
}

static inline void bed_tables(struct bed *b, struct tables *t, struct tables_config *config)
{
    config->plane = b->config;
    b->own_bytes = mr__tables_bytes(config);
    b->own = bed_map(b->own_bytes);
    mr__tables_init(t, config, b->own);
}

static inline void bed_close(struct bed *b)
{
    mr__unmap(b->own, b->own_bytes);
    mr__unmap(b->shared, b->shared_bytes);
    mr__unmap(b->limits, b->limits_bytes);
    mr__unmap(b->global, sizeof *b->global);
}

static inline uint64_t sum_of_verdicts(const struct plane *p)
{
    uint64_t sum = 0;

    for (int v = 0; v < MR_VERDICT_COUNT; v++)
        sum += p->totals.verdicts[v];
    return sum;
}

#endif
