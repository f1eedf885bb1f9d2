/* Decoding in shifts: when it begins, when it ends, and that everybody gets as many tokens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/shifts.h"
#include "support/answers.h"

enum { N_SEQ = 40, N_TOKENS = 60 };

int32_t __real_shifts_rows(struct shifts *s, int32_t n);
int32_t __wrap_shifts_rows(struct shifts *s, int32_t n);

/* ---- A machine, in numbers -------------------------------------------------------------- */

/* A step has passes of 64 rows, each of which takes as long whatever its rows; attention takes its
 * time for each row. */
struct machine {
    double pass, more, row; /* seconds: the first pass; each further one; a row */
    double jitter;          /* steps take up to this share more, in a cycle of five */
    int32_t steps;
};

static double step_seconds(struct machine *m, int32_t rows)
{
    double seconds = m->pass + (rows - 1) / 64 * m->more + rows * m->row;
    return seconds * (1 + m->jitter * (m->steps++ % 5) / 4);
}

/* Tokens per second of n sequences, over so many steps. */
static double tokens_per_second(struct shifts *s, struct machine *m, int32_t n, int32_t steps)
{
    double seconds = 0, tokens = 0;
    for (int32_t i = 0; i < steps; i++) {
        int32_t rows = __real_shifts_rows(s, n);
        assert_in_range(rows, 1, n);
        double taken = step_seconds(m, rows);
        shifts_note(s, rows, taken);
        seconds += taken;
        tokens += rows;
    }
    return tokens / seconds;
}

static double at_once(const struct machine *m, int32_t n)
{
    return n / (m->pass + (n - 1) / 64 * m->more + n * m->row);
}

static const struct machine steep = {.pass = 3e-3, .more = 1.5e-3, .row = 2e-5};

static void a_second_pass_for_a_few_rows_is_avoided(void **state)
{
    (void)state;
    for (int32_t n = 65; n <= 85; n++) {
        struct machine m = steep;
        struct shifts s;
        shifts_init(&s, 0);
        assert_true(tokens_per_second(&s, &m, n, 3000) > 0.98 * at_once(&m, 64));
        assert_true(s.are_better);
    }
}

static void a_second_pass_with_many_rows_is_not(void **state)
{
    (void)state;
    for (int32_t n = 98; n <= 128; n++) {
        struct machine m = steep;
        struct shifts s;
        shifts_init(&s, 0);
        assert_true(tokens_per_second(&s, &m, n, 3000) > 0.99 * at_once(&m, n));
        assert_false(s.are_better);
    }
}

static void where_rows_are_cheap_everybody_decodes(void **state)
{
    (void)state;
    struct machine m = {.pass = 3e-3, .more = 1e-5, .row = 2e-5, .jitter = 0.2};
    struct shifts s;
    shifts_init(&s, 0);
    assert_true(tokens_per_second(&s, &m, 65, 6000) > 0.98 * at_once(&m, 65) / 1.1);
}

static void jitter_does_not_hide_a_pass(void **state)
{
    (void)state;
    struct machine m = steep;
    m.jitter = 0.3;
    struct shifts s;
    shifts_init(&s, 0);
    tokens_per_second(&s, &m, 70, 1000);
    assert_true(s.are_better);
}

static void what_was_found_is_forgotten_when_it_changes(void **state)
{
    (void)state;
    struct machine m = steep;
    struct shifts s;
    shifts_init(&s, 0);
    tokens_per_second(&s, &m, 66, 300);
    assert_true(s.are_better);
    m.more = 0; /* as if another kernel were used from now on */
    tokens_per_second(&s, &m, 66, 600);
    assert_false(s.are_better);
    m = steep;
    for (int32_t n = 66; n < 110; n++) tokens_per_second(&s, &m, n, 10); /* users come */
    assert_int_equal(__real_shifts_rows(&s, 110), 110);
    for (int32_t n = 110; n > 70; n--) tokens_per_second(&s, &m, n, 10); /* and go */
    assert_int_equal(__real_shifts_rows(&s, 70), 64);
}

static void few_sequences_always_decode_together(void **state)
{
    (void)state;
    struct machine m = steep;
    struct shifts s;
    shifts_init(&s, 0);
    for (int32_t n = 0; n <= 32; n++) assert_int_equal(__real_shifts_rows(&s, n), n);
    shifts_init(&s, 48); /* guesses take up to 48 rows */
    for (int32_t n = 0; n <= 64; n++) {
        assert_int_equal(__real_shifts_rows(&s, n), n);
        shifts_note(&s, n, step_seconds(&m, n));
    }
    tokens_per_second(&s, &m, 65, 10);
    assert_true(s.are_better);
}

static void steps_that_were_not_as_asked_say_nothing(void **state)
{
    (void)state;
    struct shifts s;
    shifts_init(&s, 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(__real_shifts_rows(&s, 80), 80);
        shifts_note(&s, 79, 1e-9);
        shifts_note(&s, 80, -1);
        shifts_note(&s, 80, NAN);
    }
    assert_false(s.are_better);
}

/* ---- An engine -------------------------------------------------------------------------- */

static int32_t n_out; /* sequences that sit out each step; < 0: as the engine decides */

/* The linker puts this in front of the engine's own (see tests/CMakeLists.txt). */
int32_t __wrap_shifts_rows(struct shifts *s, int32_t n)
{
    if (n_out < 0) return __real_shifts_rows(s, n);
    return n > n_out ? n - n_out : n;
}

static carat_engine *open_tiny(double max_itl_ms)
{
    struct carat_engine_options options = {.size = sizeof options,
                                           .backend = "ref",
                                           .n_ctx = 128,
                                           .n_seq = N_SEQ,
                                           .max_itl_ms = max_itl_ms};
    return open_engine(models[GEMMA_E2B], &options);
}

static struct answer answers[N_SEQ], plain[N_SEQ];

static void submit_all(carat_engine *e, struct answer *a)
{
    memset(a, 0, N_SEQ * sizeof *a);
    for (int i = 0; i < N_SEQ; i++) {
        int32_t prompt[128];
        struct carat_request request = mixed_request(i % N_MIXED, prompt);
        request.max_tokens = N_TOKENS;
        request.ignore_stop = true;
        a[i].request = submit(e, &request);
    }
}

static void step(carat_engine *e)
{
    struct carat_error err = {0};
    assert_int_equal(carat_step(e, &err), 1);
    take_events(e, answers, N_SEQ);
}

/* The fewest and the most tokens that a sequence has got since it had `before` of them. */
static void count_tokens(const int32_t before[N_SEQ], int32_t *least, int32_t *most)
{
    *least = INT32_MAX;
    *most = 0;
    for (int i = 0; i < N_SEQ; i++) {
        int32_t n = answers[i].n - before[i];
        *least = n < *least ? n : *least;
        *most = n > *most ? n : *most;
    }
}

static const int32_t none[N_SEQ];

static void step_until_all_decode(carat_engine *e)
{
    int32_t least = 0, most;
    while (least == 0) {
        step(e);
        count_tokens(none, &least, &most);
    }
}

static void whoever_sits_out_is_the_last_to_do_so_again(void **state)
{
    (void)state;
    static const int32_t out[] = {1, 7, 20, 39};
    for (size_t k = 0; k < sizeof out / sizeof *out; k++) {
        carat_engine *e = open_tiny(0);
        submit_all(e, answers);
        n_out = 0;
        step_until_all_decode(e);
        int32_t before[N_SEQ], least, most;
        for (int i = 0; i < N_SEQ; i++) before[i] = answers[i].n;
        n_out = out[k];
        for (int i = 0; i < N_SEQ; i++) step(e);
        count_tokens(before, &least, &most);
        assert_int_equal(least, N_SEQ - out[k]); /* in as many steps as there are sequences */
        assert_int_equal(most, N_SEQ - out[k]);
        run_all(e, answers, N_SEQ);
        carat_engine_close(e);
    }
}

static void answers_in_shifts_are_those_without(void **state)
{
    (void)state;
    for (n_out = 0; n_out <= 21; n_out += 7) {
        carat_engine *e = open_tiny(0);
        struct answer *a = n_out == 0 ? plain : answers;
        submit_all(e, a);
        run_all(e, a, N_SEQ);
        for (int i = 0; i < N_SEQ; i++) check_same(&a[i], &plain[i]);
        carat_engine_close(e);
    }
}

static void the_engine_itself_tries_shifts_and_everybody_ends(void **state)
{
    (void)state;
    n_out = -1;
    carat_engine *e = open_tiny(0);
    submit_all(e, answers);
    step_until_all_decode(e);
    for (int i = 0; i < 12; i++) step(e); /* nobody ends before */
    assert_int_equal(e->shifts.size, 32);
    assert_int_equal(e->shifts.tried, 8);
    run_all(e, answers, N_SEQ);
    for (int i = 0; i < N_SEQ; i++) assert_int_equal(answers[i].n, N_TOKENS);
    carat_engine_close(e);
}

static void without_a_limit_of_time_nobody_sits_out(void **state)
{
    (void)state;
    n_out = -1;
    carat_engine *e = open_tiny(1e9);
    submit_all(e, answers);
    step_until_all_decode(e);
    int32_t least, most, before;
    count_tokens(none, &least, &before);
    for (int i = 0; i < 20; i++) {
        step(e);
        count_tokens(none, &least, &most);
        assert_int_equal(most, before + i + 1);
    }
    assert_int_equal(e->shifts.size, 0);
    run_all(e, answers, N_SEQ);
    carat_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_pass_for_a_few_rows_is_avoided),
        cmocka_unit_test(a_second_pass_with_many_rows_is_not),
        cmocka_unit_test(where_rows_are_cheap_everybody_decodes),
        cmocka_unit_test(jitter_does_not_hide_a_pass),
        cmocka_unit_test(what_was_found_is_forgotten_when_it_changes),
        cmocka_unit_test(few_sequences_always_decode_together),
        cmocka_unit_test(steps_that_were_not_as_asked_say_nothing),
        cmocka_unit_test(whoever_sits_out_is_the_last_to_do_so_again),
        cmocka_unit_test(answers_in_shifts_are_those_without),
        cmocka_unit_test(the_engine_itself_tries_shifts_and_everybody_ends),
        cmocka_unit_test(without_a_limit_of_time_nobody_sits_out),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
