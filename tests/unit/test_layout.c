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

static struct pools_shape shape_of(const struct caches *k, int32_t chunk)
{
    struct pools_shape s = {
        .n_seq = k->n_seq, .chunk = chunk, .window_pages = k->window_pages, .split = 4096};
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
    struct caches_shape shape = {1 << 24, 1024, 512, FORMAT_F32, FORMAT_F32};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_products_stop_at_the_largest),
        cmocka_unit_test(caches_of_the_largest_model_do_not_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
