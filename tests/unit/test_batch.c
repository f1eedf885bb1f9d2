/* Which rows a step has, in which order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/batch.h"

enum { SLOTS = 5, ROWS = 200 };

static int32_t numbers[4][ROWS];

static struct step make_step(void)
{
    return (struct step){
        .id = numbers[0], .position = numbers[1], .sequence = numbers[2], .out_row = numbers[3]};
}

/* A sequence in a slot; n_rows of its n_prompt ids are in the step. */
static struct sequence make(int32_t slot, enum sequence_state state, int32_t n_prompt,
                            int32_t n_rows, int32_t *ids)
{
    for (int32_t i = 0; i < n_prompt; i++) ids[i] = slot * 1000 + i;
    return (struct sequence){
        .slot = slot, .state = state, .ids = ids, .n_prompt = n_prompt, .n_rows = n_rows};
}

static void rows_decode_first_then_short_prompts_then_long_ones(void **state)
{
    (void)state;
    static int32_t ids[SLOTS][ROWS];
    struct sequence all[SLOTS] = {make(0, SEQUENCE_PREFILL, SHORT_PROMPT, 40, ids[0]),
                                  make(1, SEQUENCE_PREFILL, SHORT_PROMPT - 1, 20, ids[1]),
                                  make(2, SEQUENCE_DECODE, 1, 1, ids[2]),
                                  make(3, SEQUENCE_PREFILL, 100, 30, ids[3]),
                                  make(4, SEQUENCE_PREFILL, 5, 5, ids[4])};
    struct sequence *slots[SLOTS];
    for (int i = 0; i < SLOTS; i++) slots[i] = &all[i];
    struct step step = make_step();
    batch_fill(&step, slots, SLOTS, 512);
    assert_int_equal(step.n_decode, 1);
    assert_int_equal(step.n_short, 1 + 20 + 5);
    assert_int_equal(step.n_token, 1 + 20 + 5 + 40 + 30);
    static const int32_t order[][2] = {{2, 1}, {1, 20}, {4, 5}, {0, 40}, {3, 30}};
    for (int32_t i = 0, row = 0; i < SLOTS; i++)
        for (int32_t k = 0; k < order[i][1]; k++, row++) {
            assert_int_equal(step.sequence[row], order[i][0]);
            assert_int_equal(step.id[row], order[i][0] * 1000 + k);
        }
    assert_int_equal(step.n_out, 2); /* the decoding one, and the prompt that ends */
    assert_int_equal(step.out_row[0], 0);
    assert_int_equal(step.out_row[1], 25);
    assert_int_equal(all[4].out_row, 1);
    assert_int_equal(all[3].out_row, -1);
}

static void without_prompts_all_rows_decode(void **state)
{
    (void)state;
    int32_t ids[1];
    struct sequence one = make(0, SEQUENCE_DECODE, 1, 1, ids), *slots[] = {&one};
    struct step step = make_step();
    batch_fill(&step, slots, 1, 512);
    assert_int_equal(step.n_token, 1);
    assert_int_equal(step.n_decode, 1);
    assert_int_equal(step.n_short, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_decode_first_then_short_prompts_then_long_ones),
        cmocka_unit_test(without_prompts_all_rows_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
