/* What the CUDA backend copies to the device before a step: all of it lies in the bytes that were
 * counted, and runs are just the rows of one sequence that follow each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/step_arrays.h"
#include "base/rng.h"

enum { ROWS = 200, SEED = 41 };

struct made {
    int32_t id[ROWS], position[ROWS], sequence[ROWS], out_row[ROWS];
    struct step step;
};

/* Some single new tokens, then chunks of prompts. A sequence may have two chunks one after the
 * other that do not follow each other. */
static void make_step(struct made *m, struct rng *rng)
{
    struct step *s = &m->step;
    *s = (struct step){
        .id = m->id, .position = m->position, .sequence = m->sequence, .out_row = m->out_row};
    int32_t n = 1 + (int32_t)rng_below(rng, ROWS);
    s->n_decode = (int32_t)rng_below(rng, (uint32_t)n + 1);
    for (int32_t left = 0; s->n_token < n; s->n_token++, left--) {
        int32_t t = s->n_token;
        bool is_new = t < s->n_decode || left <= 0;
        if (is_new) left = 1 + (int32_t)rng_below(rng, 40);
        m->id[t] = (int32_t)rng_below(rng, 1000);
        m->sequence[t] = is_new ? (int32_t)rng_below(rng, 3) : m->sequence[t - 1];
        m->position[t] = is_new ? (int32_t)rng_below(rng, 500) : m->position[t - 1] + 1;
        if (rng_below(rng, 3) == 0) m->out_row[s->n_out++] = t;
    }
}

static bool follows(const struct made *m, int32_t before, int32_t t)
{
    return m->sequence[before] == m->sequence[t] && m->position[before] < m->position[t];
}

/* Runs of rows [begin, n): falling edges, whole runs, none that could be longer. */
static void check_runs(const struct made *m, const int32_t *out_row, int32_t begin, int32_t n,
                       const int32_t *edge, int32_t n_runs)
{
    int32_t run = 0;
    assert_true(n_runs <= n - begin);
    if (n_runs > 0) assert_int_equal(edge[0], n);
    if (n_runs == 0) assert_int_equal(begin, n);
    for (int32_t r = n - 1; r >= begin; r--) {
        int32_t t = out_row ? out_row[r] : r, before = out_row && r > 0 ? out_row[r - 1] : r - 1;
        bool is_first = edge[run + 1] == r;
        assert_int_equal(is_first, r == begin || !follows(m, before, t));
        if (is_first) run++;
    }
    assert_int_equal(run, n_runs);
}

static void runs_are_rows_of_one_sequence_that_follow_each_other(void **state)
{
    (void)state;
    struct rng rng = {SEED};
    static struct made m;
    print_message("seed %d\n", SEED);
    for (int i = 0; i < 500; i++) {
        make_step(&m, &rng);
        int32_t *memory = malloc(step_bytes(ROWS)); /* so that sanitizers see its end */
        assert_non_null(memory);
        struct step_arrays a = step_arrays_at(memory, ROWS);
        struct step_rows rows = step_arrays_fill(&a, &m.step);
        const struct step *s = &m.step;
        assert_memory_equal(a.id, m.id, (size_t)s->n_token * 4);
        assert_memory_equal(a.position, m.position, (size_t)s->n_token * 4);
        assert_memory_equal(a.sequence, m.sequence, (size_t)s->n_token * 4);
        assert_memory_equal(a.out_row, m.out_row, (size_t)s->n_out * 4);
        int32_t counts[5] = {s->n_token, s->n_decode, s->n_out, rows.n_runs[0], rows.n_runs[1]};
        assert_memory_equal(a.counts, counts, sizeof counts);
        int32_t n_decode_out = 0;
        while (n_decode_out < s->n_out && s->out_row[n_decode_out] < s->n_decode) n_decode_out++;
        assert_int_equal(rows.n_decode[ROWS_TOKEN], s->n_decode);
        assert_int_equal(rows.n_decode[ROWS_OUT], n_decode_out);
        check_runs(&m, NULL, s->n_decode, s->n_token, a.run[ROWS_TOKEN], rows.n_runs[ROWS_TOKEN]);
        check_runs(&m, m.out_row, n_decode_out, s->n_out, a.run[ROWS_OUT], rows.n_runs[ROWS_OUT]);
        free(memory);
    }
}

/* The most rows, each of its own sequence and wanted: every array is full. */
static void arrays_do_not_overlap(void **state)
{
    (void)state;
    static struct made m;
    m.step = (struct step){.n_token = ROWS,
                           .n_out = ROWS,
                           .id = m.id,
                           .position = m.position,
                           .sequence = m.sequence,
                           .out_row = m.out_row};
    for (int32_t t = 0; t < ROWS; t++) {
        m.id[t] = 1000 + t, m.position[t] = 2000 + t, m.sequence[t] = 3000 + t;
        m.out_row[t] = t;
    }
    int32_t *memory = malloc(step_bytes(ROWS));
    assert_non_null(memory);
    struct step_arrays a = step_arrays_at(memory, ROWS);
    step_arrays_fill(&a, &m.step);
    for (int32_t t = 0; t < ROWS; t++) {
        a.slot[t] = -t;
        a.pack[t] = (struct pack){4000 + t, 5000 + t, 6000 + t};
        a.member[t] = 7000 + t, a.is_packed[t] = 8000 + t;
    }
    for (int32_t t = 0; t < ROWS; t++) {
        assert_true(a.id[t] == 1000 + t && a.position[t] == 2000 + t && a.sequence[t] == 3000 + t);
        assert_true(a.out_row[t] == t && a.slot[t] == -t);
        assert_true(a.pack[t].first == 4000 + t && a.pack[t].n_tiles == 6000 + t);
        assert_true(a.member[t] == 7000 + t && a.is_packed[t] == 8000 + t);
    }
    for (int c = 0; c < ROW_CLASS_COUNT; c++)
        for (int32_t i = 0; i <= ROWS; i++) assert_int_equal(a.run[c][i], ROWS - i);
    assert_int_equal(a.counts[3], ROWS);
    assert_ptr_equal((char *)(a.is_packed + ROWS), (char *)memory + step_bytes(ROWS));
    assert_null(step_arrays_at(NULL, ROWS).counts);
    free(memory);
}

/* Rows after the last one are the first token of a sequence; nothing else changes. */
static void rows_that_are_not_there_are_harmless(void **state)
{
    (void)state;
    static int32_t memory[(STEP_COUNTS + (STEP_ARRAYS + 1) * ROWS)];
    static const int32_t n[ROW_CLASS_COUNT] = {120, 70};
    struct step_arrays a = step_arrays_at(memory, ROWS);
    memset(memory, 0x55, sizeof memory);
    step_arrays_pad(&a, &(struct step_rows){.n = {100, 64}}, n);
    for (int32_t t = 0; t < ROWS; t++) {
        int32_t token = t < 100 || t >= 120 ? 0x55555555 : 0;
        assert_true(a.id[t] == token && a.position[t] == token && a.sequence[t] == token);
        assert_int_equal(a.out_row[t], t < 64 || t >= 70 ? 0x55555555 : 0);
        assert_int_equal(a.slot[t], 0x55555555);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_rows_of_one_sequence_that_follow_each_other),
        cmocka_unit_test(arrays_do_not_overlap),
        cmocka_unit_test(rows_that_are_not_there_are_harmless),
    };
    return cmocka_run_group_tests_name("step arrays", tests, NULL, NULL);
}
