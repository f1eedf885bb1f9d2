/* Rows of a table in host memory are brought to a cache in the order of the steps: read ahead or
 * with the step, whatever happened in between. The cache is host memory here, and copies are
 * made at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/gather.h"
#include "base/mem.h"
#include "base/rng.h"

enum { SEED = 3, TABLE_ROWS = 900, ROW_BYTES = 34, ROWS_MAX = 300, SLOTS_MAX = 2 * ROWS_MAX };

static uint8_t table_rows[TABLE_ROWS][ROW_BYTES];
static const struct weight table = {
    .data = table_rows, .n_expert = 1, .rows = TABLE_ROWS, .row_bytes = ROW_BYTES};

static struct gather gather;
static uint8_t cached[SLOTS_MAX][ROW_BYTES];
static void *memory;

static int set_up_with(int32_t rows_max)
{
    struct carat_error err = {0};
    for (int r = 0; r < TABLE_ROWS; r++)
        for (int i = 0; i < ROW_BYTES; i++) table_rows[r][i] = (uint8_t)(r * 5 + r / 256 + i);
    memset(cached, 0xee, sizeof cached);
    memory = mem_alloc(gather_bytes(&table, rows_max), 1);
    if (!memory) return -1;
    return gather_init(&gather, &table, rows_max, gather_slots(&table, rows_max, 0), memory, &err);
}

static int set_up(void **state)
{
    (void)state;
    return set_up_with(9);
}

static int set_up_large(void **state)
{
    (void)state;
    return set_up_with(ROWS_MAX);
}

static int tear_down(void **state)
{
    (void)state;
    gather_deinit(&gather);
    mem_free(memory);
    return mem_blocks_live() ? -1 : 0;
}

/* Brings the missing rows of the ids. Returns how many those were. */
static int32_t bring(const int32_t *id, int32_t n, int32_t *slot)
{
    int32_t n_copied = 0;
    gather_begin(&gather);
    for (int32_t i = 0; i < n; i += GATHER_ROWS) {
        struct gathered some[GATHER_ROWS];
        int32_t m = n - i < GATHER_ROWS ? n - i : GATHER_ROWS;
        int32_t n_some = gather_rows(&gather, id + i, m, slot ? slot + i : NULL, some);
        for (int32_t k = 0; k < n_some; k++) {
            assert_in_range(some[k].slot, 0, gather.cache.n_slots - some[k].n);
            memcpy(cached[some[k].slot], some[k].from, (size_t)some[k].n * ROW_BYTES);
            n_copied += some[k].n;
        }
    }
    return n_copied;
}

static void check_rows(const int32_t *id, int32_t n, const int32_t *slot)
{
    for (int32_t i = 0; i < n; i++)
        assert_memory_equal(cached[slot[i]], table_rows[id[i]], ROW_BYTES);
}

/* The ids of a step and those that it announces, and how many rows have to be brought for each.
 * The rows that a step reads must stay while the rows after them are brought. */
struct row_list {
    int32_t n, id[9], n_next, next_id[9];
};

static void run(struct row_list l, int32_t n_brought, int32_t n_ahead)
{
    int32_t slot[9];
    assert_int_equal(bring(l.id, l.n, slot), n_brought);
    check_rows(l.id, l.n, slot);
    assert_int_equal(bring(l.next_id, l.n_next, NULL), n_ahead);
    check_rows(l.id, l.n, slot);
}

static void what_was_announced_is_there(void **state)
{
    (void)state;
    run((struct row_list){4, {7, 7, 0, 49}, 5, {3, 1, 4, 1, 5}}, 3, 4);
    run((struct row_list){8, {9, 2, 6, 3, 1, 4, 1, 5}, 2, {30, 31}}, 3, 2);
    run((struct row_list){9, {51, 52, 53, 54, 55, 56, 57, 30, 31}, 9, {8, 7, 6, 5, 4, 3, 2, 1, 0}},
        7, 3);
    run((struct row_list){9, {8, 7, 6, 5, 4, 3, 2, 1, 0}, 0, {0}}, 0, 0);
    assert_int_equal(gather.n_asked, 4 + 8 + 9 + 9);
    assert_int_equal(gather.n_brought, 3 + 4 + 3 + 2 + 7 + 3);
}

static void what_was_not_announced_is_read_with_the_step(void **state)
{
    (void)state;
    run((struct row_list){2, {1, 2}, 3, {10, 11, 12}}, 2, 3);
    run((struct row_list){3, {10, 11, 13}, 3, {20, 21, 22}}, 1, 3); /* another chunk */
    run((struct row_list){2, {20, 21}, 3, {30, 31, 32}}, 0, 3);     /* a shorter one */
    run((struct row_list){4, {30, 31, 32, 33}, 2, {40, 41}}, 1, 2); /* a longer one */
    run((struct row_list){3, {1, 50, 51}, 0, {0}}, 2, 0);           /* none */
    run((struct row_list){2, {40, 41}, 0, {0}}, 0, 0);              /* not forgotten */
}

static void a_row_is_read_once_for_a_step(void **state)
{
    (void)state;
    run((struct row_list){9, {5, 5, 5, 5, 5, 5, 5, 5, 5}, 4, {5, 6, 5, 6}}, 1, 1);
    run((struct row_list){4, {5, 6, 5, 6}, 0, {0}}, 0, 0);
}

static void rows_side_by_side_are_one_copy(void **state)
{
    (void)state;
    struct gathered some[GATHER_ROWS];
    int32_t slot[9];
    gather_begin(&gather);
    assert_int_equal(gather_rows(&gather, (int32_t[]){1, 2, 3, 4}, 4, slot, some), 1);
    assert_int_equal(some[0].n, 4);
    assert_int_equal(gather_rows(&gather, (int32_t[]){2, 5, 3, 6}, 4, slot, some), 1);
    assert_int_equal(some[0].n, 2);
    assert_int_equal(gather_rows(&gather, (int32_t[]){1, 2, 5}, 3, slot, some), 0);
}

/* Random prompts in chunks, which come after decoding rows. Some chunks are not the announced
 * ones. */
static void many_steps_and_evictions(void **state)
{
    (void)state;
    struct rng rng = {.state = SEED};
    static int32_t id[ROWS_MAX], next[ROWS_MAX], slot[ROWS_MAX];
    int32_t n_next = 0;
    for (int step = 0; step < 300; step++) {
        int32_t n_decode = (int32_t)rng_below(&rng, 10), n = n_decode;
        int32_t most = 1 + (int32_t)rng_below(&rng, ROWS_MAX - 10);
        uint32_t n_ids = step % 60 < 30 ? TABLE_ROWS : 100;
        for (int32_t i = 0; i < n_decode; i++) id[i] = (int32_t)rng_below(&rng, n_ids);
        for (int32_t i = 0; i < n_next && step % 7; i++) id[n++] = next[i];
        bring(id, n, slot);
        n_next = most;
        for (int32_t i = 0; i < n_next; i++) next[i] = (int32_t)rng_below(&rng, n_ids);
        bring(next, n_next, NULL);
        check_rows(id, n, slot);
    }
    assert_in_range(gather.n_brought, 1000, 100000);
}

static void slots_are_two_steps_or_more_and_the_table_at_most(void **state)
{
    (void)state;
    assert_int_equal(gather_slots(&table, 10, 0), 20);
    assert_int_equal(gather_slots(&table, 10, 21 * ROW_BYTES - 1), 20);
    assert_int_equal(gather_slots(&table, 10, 21 * ROW_BYTES), 21);
    assert_int_equal(gather_slots(&table, 10, (size_t)1 << 50), TABLE_ROWS);
    assert_int_equal(gather_slots(&table, 800, 0), TABLE_ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_announced_is_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_not_announced_is_read_with_the_step, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_row_is_read_once_for_a_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_side_by_side_are_one_copy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_steps_and_evictions, set_up_large, tear_down),
        cmocka_unit_test(slots_are_two_steps_or_more_and_the_table_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
