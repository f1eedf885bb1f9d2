/* Where keys and values lie (plan/kv.h), with tables of shuffled pages. test_kv_pages does the same
 * with pages of another size. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/rng.h"
#include "plan/kv.h"

enum { SEQUENCES = 3, SLOTS_MAX = 8, LAST = 10 * KV_PAGE, N_PAGES = SEQUENCES * SLOTS_MAX + 1 };
enum { SEED = 20261122 };

static const int32_t slots[] = {1, 2, 3, 5, 8}; /* of a sequence */
enum { N_SLOTS = sizeof slots / sizeof *slots };

static int32_t table[SEQUENCES * SLOTS_MAX];

/* Every entry is another page, and none is page 0. */
static int shuffle_table(void **state)
{
    (void)state;
    struct rng rng = {.state = SEED};
    int32_t pages[N_PAGES];
    print_message("seed %d\n", SEED);
    for (int32_t i = 0; i < N_PAGES; i++) pages[i] = i;
    for (int32_t i = 1; i < N_PAGES; i++) {
        int32_t k = 1 + (int32_t)rng_below(&rng, (uint32_t)i), page = pages[i];
        pages[i] = pages[k];
        pages[k] = page;
    }
    memcpy(table, pages + 1, sizeof table);
    return 0;
}

static struct kv_cache cache_at(int i)
{
    struct kv_cache c = kv_cache_shape(FORMAT_Q8_0, slots[i], 3, 64);
    c.page_bytes += 512; /* of another layer */
    c.table = table;
    return c;
}

static void a_cell_has_the_bytes_of_its_heads(void **state)
{
    (void)state;
    static const enum format formats[] = {FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q8_0};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct kv_cache c = kv_cache_shape(formats[i], 5, 3, 64);
        assert_int_equal(c.head_bytes, format_row_bytes(formats[i], 64));
        assert_int_equal(kv_cell_bytes(&c), format_row_bytes(formats[i], 3 * 64));
        assert_int_equal(c.page_bytes, 2 * KV_PAGE * (size_t)kv_cell_bytes(&c));
        assert_int_equal(kv_capacity(&c), 5 * KV_PAGE);
        assert_null(c.k);
        assert_null(c.v);
        assert_null(c.table);
    }
}

/* Each column has one number of keys and one of values. They are the same unless it is turned, and
 * a head has no others. */
static void a_shared_cell_holds_each_column_once(void **state)
{
    (void)state;
    static const int32_t shapes[][2] = {{512, 128}, {512, 64}, {512, 448}, {256, 64}, {128, 64}};
    static const enum format formats[] = {FORMAT_F32, FORMAT_F16, FORMAT_BF16};
    for (size_t s = 0; s < 3 * sizeof shapes / sizeof *shapes; s++) {
        int32_t d = shapes[s / 3][0], turned = shapes[s / 3][1];
        struct kv_cache c = kv_cache_shape(formats[s % 3], 5, 3, d);
        kv_share(&c, turned);
        kv_place(&c, (void *)0x1000, 1);
        int32_t each = (int32_t)format_row_bytes(c.format, 1), n = d + turned;
        assert_int_equal(c.head_bytes, n * each);
        assert_int_equal(kv_position_bytes(&c), 3 * n * each);
        assert_int_equal(c.page_bytes, KV_PAGE * 3 * n * each);
        bool is_taken[1024] = {false};
        int32_t first = (int32_t)((char *)c.k - (char *)c.v) / each;
        for (int32_t i = 0; i < d; i++) {
            int32_t v = kv_value_place(&c, i), k = kv_key_place(&c, i);
            assert_int_equal(kv_value_column(&c, v), i);
            assert_int_equal(kv_key_column(&c, k), i);
            assert_in_range(v, 0, d - 1);
            assert_in_range(k, 0, d - 1);
            bool is_turned = i % (d / 2) < turned / 2;
            assert_int_equal(first + k == v, !is_turned);
            is_taken[v] = is_taken[first + k] = true;
        }
        for (int32_t i = 0; i < n; i++) assert_true(is_taken[i]);
    }
}

/* Blocks of 34 bytes: as many columns are kept twice as let keys begin at 16 bytes. */
static void shared_cells_of_q8_0_begin_where_kernels_can_read_them(void **state)
{
    (void)state;
    struct kv_cache c = kv_cache_shape(FORMAT_Q8_0, 5, 2, 512);
    kv_share(&c, 128);
    kv_place(&c, (void *)0x1000, 1);
    assert_int_equal(c.turned, 256);
    assert_int_equal(c.head_bytes, format_row_bytes(FORMAT_Q8_0, 512 + 256));
    assert_int_equal(c.head_bytes % 16, 0);
    assert_int_equal((char *)c.k - (char *)c.v, format_row_bytes(FORMAT_Q8_0, 256));
    for (int32_t i = 0; i < 512; i++) { /* two blocks of keys stay together */
        assert_int_equal(kv_key_column(&c, i), kv_key_column(&c, i - i % 64) + i % 64);
        assert_int_equal(kv_value_place(&c, kv_value_column(&c, i)), i);
        assert_int_equal(kv_key_place(&c, kv_key_column(&c, i)), i);
    }
    c = kv_cache_shape(FORMAT_Q8_0, 5, 2, 256);
    kv_share(&c, 64); /* all 256 would be kept twice */
    assert_int_equal(c.turned, 0);
    assert_int_equal(c.page_bytes, 2 * KV_PAGE * 2 * format_row_bytes(FORMAT_Q8_0, 256));
}

/* 32 columns that lie together, from a multiple of 32 on, stay together: kernels read, round and
 * store so many at once. */
static void blocks_of_a_shared_head_stay_whole(void **state)
{
    (void)state;
    struct kv_cache c = kv_cache_shape(FORMAT_F16, 1, 1, 512);
    kv_share(&c, 128);
    for (int32_t i = 0; i < 512; i++) {
        assert_int_equal(kv_value_column(&c, i), kv_value_column(&c, i - i % 32) + i % 32);
        assert_int_equal(kv_key_column(&c, i), kv_key_column(&c, i - i % 32) + i % 32);
        assert_int_equal(kv_value_column(&c, i - i % 32) % 32, 0);
    }
}

static void what_is_shared_follows_from_the_pairs_that_turn(void **state)
{
    (void)state;
    assert_int_equal(kv_turned(512, 64), 128);
    assert_int_equal(kv_turned(512, 65), 192);
    assert_int_equal(kv_turned(512, 1), 64);
    assert_int_equal(kv_turned(512, 0), 64);
    assert_int_equal(kv_turned(512, 256), 0); /* nothing: all of them turn */
    assert_int_equal(kv_turned(512, 225), 0);
    assert_int_equal(kv_turned(64, 8), 0);
    assert_int_equal(kv_turned(96, 8), 0); /* no whole blocks */
}

static void pages_hold_all_positions_and_no_page_is_empty(void **state)
{
    (void)state;
    assert_int_equal(kv_pages(0), 0);
    for (int32_t n = 1; n < LAST; n++) {
        assert_true(kv_pages(n) * KV_PAGE >= n);
        assert_true((kv_pages(n) - 1) * KV_PAGE < n);
    }
}

static void a_position_is_in_the_page_that_the_table_says(void **state)
{
    (void)state;
    for (int i = 0; i < N_SLOTS; i++) {
        struct kv_cache c = cache_at(i);
        size_t cell_bytes = 3 * 68, page_bytes = 2 * KV_PAGE * cell_bytes + 512;
        for (int32_t s = 0; s < SEQUENCES; s++)
            for (int32_t p = 0; p < LAST; p++) {
                size_t page = (size_t)table[s * slots[i] + p / KV_PAGE % slots[i]] * page_bytes;
                assert_int_equal(kv_page_offset(&c, s, p), page);
                assert_int_equal(kv_offset(&c, s, p), page + (size_t)(p % KV_PAGE) * cell_bytes);
            }
    }
}

static char seen[N_PAGES][KV_PAGE];

static void a_ring_uses_each_of_its_cells_once(void **state)
{
    (void)state;
    for (int i = 0; i < N_SLOTS; i++) {
        struct kv_cache c = cache_at(i);
        int32_t capacity = kv_capacity(&c);
        for (int32_t first = 0; first < 2 * capacity; first += 7) {
            memset(seen, 0, sizeof seen);
            for (int32_t s = 0; s < SEQUENCES; s++)
                for (int32_t p = first; p < first + capacity; p++) {
                    size_t offset = kv_offset(&c, s, p), bytes = (size_t)kv_cell_bytes(&c);
                    size_t page = offset / c.page_bytes, cell = offset % c.page_bytes / bytes;
                    assert_int_equal(offset % c.page_bytes % bytes, 0);
                    assert_in_range(page, 1, N_PAGES - 1);
                    assert_in_range(cell, 0, KV_PAGE - 1);
                    assert_int_equal(seen[page][cell]++, 0);
                    assert_int_equal(offset, kv_offset(&c, s, p + capacity));
                }
        }
    }
}

static void a_stretch_ends_where_cells_stop_following_each_other(void **state)
{
    (void)state;
    for (int i = 0; i < N_SLOTS; i++) {
        struct kv_cache c = cache_at(i);
        size_t bytes = (size_t)kv_cell_bytes(&c);
        for (int32_t p = 0; p < LAST; p++) {
            int32_t n = kv_stretch(p);
            assert_in_range(n, 1, KV_PAGE);
            for (int32_t j = 0; j < n; j++)
                assert_int_equal(kv_offset(&c, 1, p + j), kv_offset(&c, 1, p) + (size_t)j * bytes);
            assert_int_not_equal(kv_offset(&c, 1, p + n), kv_offset(&c, 1, p) + (size_t)n * bytes);
        }
    }
}

static void a_block_of_32_keys_is_a_stretch(void **state)
{
    (void)state;
    for (int32_t p = 0; p < LAST; p += 32) assert_true(kv_stretch(p) >= 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cell_has_the_bytes_of_its_heads),
        cmocka_unit_test(a_shared_cell_holds_each_column_once),
        cmocka_unit_test(shared_cells_of_q8_0_begin_where_kernels_can_read_them),
        cmocka_unit_test(blocks_of_a_shared_head_stay_whole),
        cmocka_unit_test(what_is_shared_follows_from_the_pairs_that_turn),
        cmocka_unit_test(pages_hold_all_positions_and_no_page_is_empty),
        cmocka_unit_test(a_position_is_in_the_page_that_the_table_says),
        cmocka_unit_test(a_ring_uses_each_of_its_cells_once),
        cmocka_unit_test(a_stretch_ends_where_cells_stop_following_each_other),
        cmocka_unit_test(a_block_of_32_keys_is_a_stretch),
    };
    return cmocka_run_group_tests(tests, shuffle_table, NULL);
}
