/* Where keys and values lie (plan/kv.h). test_kv_pages does the same with larger pages. */
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>

#include "plan/kv.h"

enum { SEQUENCES = 3, LAST = 100 };

static const int32_t pages[] = {1, 2, 3, 5, 8}; /* of a sequence */
enum { N_CAPACITIES = sizeof pages / sizeof *pages };

static struct kv_cache cache_at(int i)
{
    return kv_cache_shape(FORMAT_Q8_0, pages[i] * KV_PAGE, 3, 64);
}

static void a_cell_has_the_bytes_of_its_heads(void **state)
{
    (void)state;
    static const enum format formats[] = {FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q8_0};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct kv_cache c = kv_cache_shape(formats[i], KV_PAGE, 3, 64);
        assert_int_equal(c.head_bytes, format_row_bytes(formats[i], 64));
        assert_int_equal(kv_cell_bytes(&c), format_row_bytes(formats[i], 3 * 64));
        assert_null(c.k);
        assert_null(c.v);
    }
}

static void an_offset_is_that_of_an_identity_table(void **state)
{
    (void)state;
    size_t table[SEQUENCES * 8];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) table[i] = i;
    for (int i = 0; i < N_CAPACITIES; i++) {
        struct kv_cache c = cache_at(i);
        size_t cell_bytes = 3 * 68, page_bytes = KV_PAGE * cell_bytes;
        for (int32_t s = 0; s < SEQUENCES; s++)
            for (int32_t p = 0; p < LAST; p++)
                assert_int_equal(kv_offset(&c, s, p),
                                 table[s * pages[i] + p / KV_PAGE % pages[i]] * page_bytes +
                                     (size_t)(p % KV_PAGE) * cell_bytes);
    }
}

static void a_ring_uses_each_of_its_cells_once(void **state)
{
    (void)state;
    for (int i = 0; i < N_CAPACITIES; i++) {
        struct kv_cache c = cache_at(i);
        for (int32_t first = 0; first < 2 * c.capacity; first++) {
            char seen[SEQUENCES * 8 * KV_PAGE] = {0};
            for (int32_t s = 0; s < SEQUENCES; s++)
                for (int32_t p = first; p < first + c.capacity; p++) {
                    size_t offset = kv_offset(&c, s, p), bytes = (size_t)kv_cell_bytes(&c);
                    assert_int_equal(offset % bytes, 0);
                    assert_in_range(offset / bytes, 0, SEQUENCES * c.capacity - 1);
                    assert_int_equal(seen[offset / bytes]++, 0);
                    assert_int_equal(offset, kv_offset(&c, s, p + c.capacity));
                }
        }
    }
}

static void a_run_finds_the_same_cells_without_dividing(void **state)
{
    (void)state;
    for (int i = 0; i < N_CAPACITIES; i++) {
        struct kv_cache c = cache_at(i);
        for (int32_t first = 0; first < LAST; first++)
            for (int32_t s = 0; s < SEQUENCES; s++) {
                struct kv_run run = kv_run_from(&c, s, first);
                for (int32_t j = 0; j < c.capacity; j++)
                    assert_int_equal(kv_run_offset(&run, j), kv_offset(&c, s, first + j));
            }
    }
}

static void a_ring_of_cells_leads_to_the_same_addresses(void **state)
{
    (void)state;
    for (int i = 0; i < N_CAPACITIES; i++) {
        struct kv_cache c = cache_at(i);
        int32_t bytes = kv_cell_bytes(&c);
        for (int32_t s = 0; s < SEQUENCES; s++) {
            size_t first = kv_ring_offset(c.capacity, bytes, s);
            int32_t cell = kv_ring_cell(0, c.capacity);
            for (int32_t p = 0; p < LAST; p++, cell = kv_ring_wrap(cell + 1, c.capacity)) {
                assert_int_equal(cell, kv_ring_cell(p, c.capacity));
                assert_int_equal(first + kv_ring_cell_offset(bytes, cell), kv_offset(&c, s, p));
            }
        }
    }
}

static void a_stretch_ends_where_cells_stop_following_each_other(void **state)
{
    (void)state;
    for (int i = 0; i < N_CAPACITIES; i++) {
        struct kv_cache c = cache_at(i);
        size_t bytes = (size_t)kv_cell_bytes(&c);
        for (int32_t p = 0; p < LAST; p++) {
            int32_t n = kv_stretch(&c, p);
            assert_in_range(n, 1, c.capacity);
            for (int32_t j = 0; j < n; j++)
                assert_int_equal(kv_offset(&c, 1, p + j), kv_offset(&c, 1, p) + (size_t)j * bytes);
            assert_int_not_equal(kv_offset(&c, 1, p + n), kv_offset(&c, 1, p) + (size_t)n * bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cell_has_the_bytes_of_its_heads),
        cmocka_unit_test(an_offset_is_that_of_an_identity_table),
        cmocka_unit_test(a_ring_uses_each_of_its_cells_once),
        cmocka_unit_test(a_run_finds_the_same_cells_without_dividing),
        cmocka_unit_test(a_ring_of_cells_leads_to_the_same_addresses),
        cmocka_unit_test(a_stretch_ends_where_cells_stop_following_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
