/* Sizes of an engine before anything is allocated: the largest that a file and options can ask
 * for are sums that fit in no memory, and they must not wrap to small ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "engine/caches.h"
#include "engine/pools.h"
#include "support/gemma_file.h"

enum { SEED = 20261122 };

static struct pools_shape shape_of(const struct caches *k, int32_t chunk)
{
    struct pools_shape s = {.n_seq = k->n_seq,
                            .chunk = chunk,
                            .window_pages = k->window_pages,
                            .anchor_pages = k->anchor_pages,
                            .split = 4096};
    memcpy(s.slots, k->slots, sizeof s.slots);
    memcpy(s.page_bytes, k->page_bytes[0], sizeof s.page_bytes);
    return s;
}

static void sums_and_products_stop_at_the_largest(void **state)
{
    (void)state;
    assert_true(bytes_add(1, 2) == 3);
    assert_true(bytes_add(BYTES_MAX, 0) == BYTES_MAX);
    assert_true(bytes_add(BYTES_MAX, 1) == BYTES_MAX);
    assert_true(bytes_add(UINT64_MAX, UINT64_MAX) == BYTES_MAX);
    assert_true(bytes_multiply(3, 5) == 15);
    assert_true(bytes_multiply(0, UINT64_MAX) == 0);
    assert_true(bytes_multiply(UINT64_C(1) << 31, UINT64_C(1) << 31) == UINT64_C(1) << 62);
    assert_true(bytes_multiply(UINT64_C(1) << 31, UINT64_C(1) << 32) == BYTES_MAX);
    assert_true(bytes_multiply(UINT64_C(1) << 32, UINT64_C(1) << 32) == BYTES_MAX);
}

/* 256 layers of 2^20 numbers a position, 2^24 positions, 1024 sequences, 4 bytes: 2^65 in all. */
static void caches_of_the_largest_model_do_not_wrap(void **state)
{
    (void)state;
    static struct caches caches;
    static struct gemma_config c;
    static const struct split split;
    struct caches_shape shape = {1 << 24, 1024, 512, FORMAT_F32, FORMAT_F32, 0};
    c = (struct gemma_config){.n_layer = LAYERS_MAX, .n_kv_layer = LAYERS_MAX, .window = 1 << 24};
    for (int half = 0; half < 2; half++) { /* all layers global, then half of them local */
        struct target target = {0};
        for (int l = 0; l < LAYERS_MAX; l++)
            c.layer[l] = (struct layer_spec){
                .is_global = l % 2 >= half, .n_kv_heads = 1024, .head_dim = 1024};
        caches_plan(&caches, &c, &shape, &split);
        struct pools_shape s = shape_of(&caches, 512);
        struct pools pools = pools_fixed(&s);
        caches_set_pools(&caches, pools.n_pages, &target, 1);
        assert_int_equal(pools.n_pages[KV_GLOBAL], (1 << 24) / KV_PAGE * 1024 + 1);
        assert_true(caches.page_bytes[0][KV_GLOBAL] ==
                    (UINT64_C(1) << 23) * KV_PAGE * (size_t)(LAYERS_MAX >> half));
        assert_true(target.kv_global == BYTES_MAX);
        assert_true(target.kv_local == (half ? BYTES_MAX : 0));
        assert_true(target_kv_bytes(&target) == BYTES_MAX);
    }
}

/* ---- Pools ------------------------------------------------------------------------------ */

/* Caches of a real model, those of windows in f16. */
static void plan_formats(struct caches *k, enum gemma_size size, int32_t n_ctx, int32_t n_seq,
                         int32_t chunk, enum format global)
{
    static struct gemma_config c;
    static const struct split split;
    struct gemma_shape g = gemma_true_shape(size);
    struct caches_shape shape = {n_ctx, n_seq, chunk, FORMAT_F16, global, 128};
    c = (struct gemma_config){
        .n_layer = g.n_layer, .n_kv_layer = g.n_layer - g.n_shared, .window = g.window};
    for (int l = 0; l < g.n_layer; l++) {
        bool is_global = (l + 1) % g.period == 0;
        c.layer[l] = (struct layer_spec){.is_global = is_global,
                                         .k_eq_v = is_global && g.k_eq_v,
                                         .n_kv_heads = is_global ? g.n_kv_global : g.n_kv_local,
                                         .head_dim = is_global ? g.head_global : g.head_local};
    }
    caches_plan(k, &c, &shape, &split);
}

static void plan_real(struct caches *k, enum gemma_size size, int32_t n_ctx, int32_t n_seq,
                      int32_t chunk)
{
    plan_formats(k, size, n_ctx, n_seq, chunk, FORMAT_F16);
}

static uint64_t cache_bytes(struct caches *k, const struct pools *pools)
{
    struct target target = {0};
    caches_set_pools(k, pools->n_pages, &target, 1);
    return target_kv_bytes(&target);
}

/* The figures that the design gives, in bytes a position and bytes an anchor. */
static void real_models_have_the_known_sizes(void **state)
{
    (void)state;
    static const struct {
        enum gemma_size size;
        int local, global; /* KiB a position */
        double shared;     /* of `global`: what is kept where keys are values */
        double anchor;     /* MB */
    } known[] = {{GEMMA_E2B, 12, 6, 1, 6.3},
                 {GEMMA_E4B, 40, 16, 1, 21},
                 {GEMMA_12B, 320, 16, 0.625, 336},
                 {GEMMA_26B, 200, 20, 0.625, 210},
                 {GEMMA_31B, 800, 80, 0.625, 839}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        static struct caches k;
        plan_real(&k, known[i].size, 8192, 1, 512);
        assert_true(k.page_bytes[0][KV_LOCAL] == (uint64_t)known[i].local * 1024 * KV_PAGE);
        assert_true((double)k.page_bytes[0][KV_GLOBAL] ==
                    known[i].shared * known[i].global * 1024 * KV_PAGE);
        assert_true(caches_page_bytes(&k, KV_LOCAL) == k.page_bytes[0][KV_LOCAL]);
        double anchor = (double)k.anchor_pages * (double)k.page_bytes[0][KV_LOCAL] / 1e6;
        assert_true(anchor > 0.99 * known[i].anchor && anchor < 1.01 * known[i].anchor);
        plan_formats(&k, known[i].size, 8192, 1, 512, FORMAT_Q8_0); /* more is kept twice */
        double share = known[i].shared < 1 ? 0.75 : 1;
        assert_true((double)k.page_bytes[0][KV_GLOBAL] ==
                    share * known[i].global * 1024 * KV_PAGE / 64 * 34);
    }
}

/* 12B, 64 users: what they need, tables included, stays below 27 GB, where a window and a chunk for
 * each of them would take 64 GB. */
static void many_users_of_a_large_model_fit(void **state)
{
    (void)state;
    static const int32_t n_ctx[] = {2048, 2048 + 256};
    for (int i = 0; i < 2; i++) {
        static struct caches k;
        plan_real(&k, GEMMA_12B, n_ctx[i], 64, 2048);
        struct pools_shape s = shape_of(&k, 2048);
        struct pools full = pools_full(&s), fixed = pools_fixed(&s);
        uint64_t bytes = cache_bytes(&k, &full);
        print_message("12B, 64 users, %d positions: %.2f GB, %.2f GB with pages of their own\n",
                      n_ctx[i], (double)bytes / 1e9, (double)cache_bytes(&k, &fixed) / 1e9);
        assert_true(bytes < 27000000000);
        assert_int_equal(full.n_pages[KV_GLOBAL], 64 * kv_pages(n_ctx[i]) + 1);
    }
}

/* Whether n sequences can decode while `prompts` of them read `rows` rows in all, wherever the rows
 * begin: pages of positions [p - window + 1, p + rows) of each. */
static bool is_enough(const struct pools_shape *s, const struct pools *p, int32_t n,
                      int32_t prompts, int32_t window)
{
    int64_t needed = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t rows = i < prompts ? s->chunk / prompts + (i < s->chunk % prompts) : 1;
        int64_t seen = window - 1 + (rows > 0 ? rows : 1);
        int64_t pages = (seen + KV_PAGE - 2) / KV_PAGE + 1; /* from the last cell of a page on */
        needed += pages < s->slots[KV_LOCAL] ? pages : s->slots[KV_LOCAL];
    }
    return needed <= p->n_pages[KV_LOCAL] - 1;
}

static void running_sequences_find_local_pages_wherever_they_are(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++)
        for (int32_t n_seq = 1; n_seq <= 80; n_seq += 13)
            for (int32_t chunk = 1; chunk <= 2048; chunk = chunk * 3 + 1) {
                static struct caches k;
                int32_t window = gemma_true_shape((enum gemma_size)size).window;
                plan_real(&k, (enum gemma_size)size, 32768, n_seq, chunk);
                struct pools_shape s = shape_of(&k, chunk);
                struct pools full = pools_full(&s);
                for (int32_t prompts = 1; prompts <= n_seq && prompts <= 32; prompts++)
                    assert_true(is_enough(&s, &full, n_seq, prompts, window));
            }
}

static struct pools_shape draw_shape(struct rng *rng)
{
    struct pools_shape s = {.n_seq = 1 + (int32_t)rng_below(rng, 1024),
                            .chunk = 1 + (int32_t)rng_below(rng, 8192),
                            .split =
                                KV_PAGE + (int32_t)rng_below(rng, 1 << (7 + rng_below(rng, 18)))};
    s.slots[KV_GLOBAL] = 1 + (int32_t)rng_below(rng, 1 << rng_below(rng, 18));
    s.slots[KV_LOCAL] = 1 + (int32_t)rng_below(rng, (uint32_t)s.slots[KV_GLOBAL]);
    s.anchor_pages = 1 + (int32_t)rng_below(rng, (uint32_t)s.slots[KV_LOCAL]);
    s.window_pages = s.anchor_pages < s.slots[KV_LOCAL] ? s.anchor_pages + 1 : s.anchor_pages;
    for (int kind = 0; kind < KV_KINDS; kind++)
        if (rng_below(rng, 8)) s.page_bytes[kind] = UINT64_C(256) << rng_below(rng, 46);
    return s;
}

/* Random shapes, some without layers of a kind, some larger than any memory. */
static void pools_stay_within_their_bytes(void **state)
{
    (void)state;
    struct rng rng = {.state = SEED};
    print_message("seed %d\n", SEED);
    for (int i = 0; i < 20000; i++) {
        struct pools_shape s = draw_shape(&rng);
        if (!s.page_bytes[KV_LOCAL]) s.page_bytes[KV_GLOBAL] |= 256; /* no model has neither kind */
        struct pools one = pools_within(&s, 0, true), full = pools_full(&s);
        uint64_t least = pools_bytes(&s, &one);
        uint64_t bytes = bytes_add(least, bytes_multiply(least / 64, rng_below(&rng, 65536)));
        bool has_anchors = rng_below(&rng, 2);
        struct pools p = pools_within(&s, bytes, has_anchors);
        assert_int_equal(one.n_pages[KV_GLOBAL], s.slots[KV_GLOBAL] + 1);
        assert_int_equal(one.n_pages[KV_LOCAL], s.slots[KV_LOCAL] + 1);
        assert_int_equal(one.n_anchors, 0);
        assert_true(pools_bytes(&s, &p) <= bytes);
        assert_in_range(p.n_anchors, 0, has_anchors ? 1 << 30 : 0);
        for (int kind = 0; kind < KV_KINDS; kind++)
            assert_in_range(p.n_pages[kind], s.slots[kind] + 1, (1 << 30) + 1);
        if (!has_anchors) assert_true(p.n_pages[KV_GLOBAL] <= full.n_pages[KV_GLOBAL]);
    }
}

/* More bytes never give fewer local pages; nearly all are spent; and the anchors are those that go
 * with the global pages. */
static void pools_spend_what_they_get_in_proportion(void **state)
{
    (void)state;
    static struct caches k;
    plan_real(&k, GEMMA_E4B, 32768, 8, 2048);
    struct pools_shape s = shape_of(&k, 2048);
    struct pools last = pools_within(&s, 0, true), full = pools_full(&s);
    uint64_t least = pools_bytes(&s, &last), most = pools_bytes(&s, &full) * 4;
    for (uint64_t bytes = least; bytes < most; bytes += most / 1000) {
        struct pools p = pools_within(&s, bytes, true);
        assert_true(p.n_pages[KV_LOCAL] >= last.n_pages[KV_LOCAL]);
        assert_true(bytes - pools_bytes(&s, &p) < 160 << 20);
        int32_t wanted = pools_anchors_wanted(&s, &p);
        assert_true(p.n_anchors <= wanted + 1);
        if (p.n_pages[KV_GLOBAL] > full.n_pages[KV_GLOBAL])
            assert_in_range(p.n_anchors, wanted - 1, wanted + 1);
        last = p;
    }
    assert_true(last.n_anchors > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_products_stop_at_the_largest),
        cmocka_unit_test(caches_of_the_largest_model_do_not_wrap),
        cmocka_unit_test(real_models_have_the_known_sizes),
        cmocka_unit_test(many_users_of_a_large_model_fit),
        cmocka_unit_test(running_sequences_find_local_pages_wherever_they_are),
        cmocka_unit_test(pools_stay_within_their_bytes),
        cmocka_unit_test(pools_spend_what_they_get_in_proportion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
