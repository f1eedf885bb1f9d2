/* Rows of a table in host memory, in the order of steps: read ahead or with the step, whatever
 * happened in between. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/gather.h"
#include "base/mem.h"

enum { TABLE_ROWS = 50, ROW_BYTES = 34, ROWS_MAX = 9 };

static uint8_t table_rows[TABLE_ROWS][ROW_BYTES];
static const struct weight table = {.data = table_rows, .row_bytes = ROW_BYTES};

static struct gather gather;
static void *memory;

static int set_up(void **state)
{
    (void)state;
    for (int r = 0; r < TABLE_ROWS; r++)
        for (int i = 0; i < ROW_BYTES; i++) table_rows[r][i] = (uint8_t)(r * 5 + i);
    memory = mem_alloc(gather_bytes(ROWS_MAX, ROW_BYTES), 1);
    gather_init(&gather, memory, ROWS_MAX, ROW_BYTES);
    return memory ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    mem_free(memory);
    return mem_blocks_live() ? -1 : 0;
}

/* A step with `n_decode` single tokens in front, and what it announces. */
struct row_list {
    int32_t n_token, n_decode, id[ROWS_MAX], n_next, next_id[ROWS_MAX + 1];
};

static struct step step_of(struct row_list *l)
{
    return (struct step){.n_token = l->n_token, .n_decode = l->n_decode, .id = l->id,
                         .n_next = l->n_next, .next_id = l->next_id};
}

static void check_rows(const struct gathered *got, const struct step *step)
{
    assert_int_equal(got->n_first + got->n_rest, step->n_token);
    for (int32_t t = 0; t < step->n_token; t++) {
        const char *row = t < got->n_first ? got->first + (size_t)t * ROW_BYTES
                                           : got->rest + (size_t)(t - got->n_first) * ROW_BYTES;
        assert_memory_equal(row, table_rows[step->id[t]], ROW_BYTES);
    }
}

/* Runs the list; `n_ahead` rows are expected to be there. What is being copied must stay while the
 * rows behind it are read. */
static void run(struct row_list l, int32_t n_ahead)
{
    struct step step = step_of(&l);
    struct gathered got = gather_step(&gather, &table, &step);
    assert_int_equal(got.n_rest, n_ahead);
    check_rows(&got, &step);
    if (step.n_next) gather_ahead(&gather, &table, &step);
    check_rows(&got, &step);
}

static void rows_read_ahead_are_the_chunk_behind_decoding_rows(void **state)
{
    (void)state;
    run((struct row_list){4, 0, {7, 7, 0, 49}, 5, {3, 1, 4, 1, 5}}, 0);
    run((struct row_list){8, 3, {9, 2, 6, 3, 1, 4, 1, 5}, 2, {30, 31}}, 5);
    run((struct row_list){9, 7, {1, 2, 3, 4, 5, 6, 7, 30, 31}, 9, {8, 7, 6, 5, 4, 3, 2, 1, 0}}, 2);
    run((struct row_list){9, 0, {8, 7, 6, 5, 4, 3, 2, 1, 0}, 0, {0}}, 9);
    run((struct row_list){2, 2, {11, 12}, 1, {40}}, 0);
    run((struct row_list){1, 0, {40}, 0, {0}}, 1);
}

static void what_was_not_announced_is_read_with_the_step(void **state)
{
    (void)state;
    run((struct row_list){2, 0, {1, 2}, 3, {10, 11, 12}}, 0);
    run((struct row_list){3, 0, {10, 11, 13}, 3, {10, 11, 12}}, 0); /* another chunk */
    run((struct row_list){2, 0, {10, 11}, 3, {10, 11, 12}}, 0);     /* a shorter one */
    run((struct row_list){4, 0, {10, 11, 12, 13}, 2, {20, 21}}, 0); /* a longer one */
    run((struct row_list){3, 3, {1, 2, 3}, 0, {0}}, 0);             /* none */
    run((struct row_list){2, 0, {20, 21}, 0, {0}}, 0);              /* long forgotten */
}

static void a_chunk_larger_than_the_room_is_not_read_ahead(void **state)
{
    (void)state;
    run((struct row_list){1, 1, {1}, ROWS_MAX + 1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, 0);
    run((struct row_list){2, 1, {2, 1}, 1, {5}}, 0);
    run((struct row_list){1, 0, {5}, 0, {0}}, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_read_ahead_are_the_chunk_behind_decoding_rows, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_was_not_announced_is_read_with_the_step, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_chunk_larger_than_the_room_is_not_read_ahead, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
