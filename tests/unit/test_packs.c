/* Packs of rows that share pages: each row in one at most, rows of a pack of one group with equally
 * many segments, no pack too large, and none where there is nothing to share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/packs.h"
#include "backend/cuda/segments.h"
#include "base/rng.h"

enum { ROWS_MAX = 100 };

struct world {
    int32_t position[ROWS_MAX], out_row[ROWS_MAX], leader[ROWS_MAX], shared[ROWS_MAX];
    struct step step;
    struct pack pack[ROWS_MAX];
    int32_t member[ROWS_MAX], is_packed[ROWS_MAX], n_packs;
};

/* Rows of one group. */
static void world_init(struct world *w, int32_t rows, int32_t position, int32_t shared)
{
    *w = (struct world){.step = {.n_token = rows, .n_decode = rows, .n_out = rows}};
    for (int32_t r = 0; r < rows; r++) {
        w->position[r] = position;
        w->out_row[r] = r;
        w->shared[r] = shared;
    }
    w->step.position = w->position;
    w->step.out_row = w->out_row;
    w->step.leader = w->leader;
    w->step.shared = w->shared;
}

static void fill(struct world *w, const struct pack_rule *rule)
{
    memset(w->is_packed, 0xff, sizeof w->is_packed);
    w->n_packs = packs_fill(rule, &w->step, w->pack, w->member, w->is_packed);
}

static int32_t segments(const struct world *w, const struct pack_rule *rule, int32_t row)
{
    return segments_of((w->position[row] + TILE_KEYS) / TILE_KEYS, rule->splits);
}

static int32_t check_packs(const struct world *w, const struct pack_rule *rule)
{
    int32_t times[ROWS_MAX] = {0}, n = 0;
    for (int32_t i = 0; i < w->n_packs; i++) {
        const struct pack *p = &w->pack[i];
        assert_int_equal(p->first, n);
        assert_in_range(p->n_rows, 1, rule->rows);
        int32_t first = w->member[p->first];
        assert_int_equal(p->n_tiles * TILE_KEYS, w->shared[first]);
        for (int32_t m = p->first; m < p->first + p->n_rows; m++) {
            int32_t row = w->member[m];
            assert_in_range(row, 0, w->step.n_decode - 1);
            assert_int_equal(w->leader[row], w->leader[first]);
            assert_int_equal(segments(w, rule, row), segments(w, rule, first));
            times[row]++;
            n++;
        }
    }
    for (int32_t r = 0; r < w->step.n_token; r++) assert_int_equal(times[r], w->is_packed[r]);
    return n;
}

/* The models' global layers: query heads, key heads; rows of a pack. */
static void shapes(void **state)
{
    (void)state;
    assert_int_equal(pack_rule_of(8, 512, 2, SHARE_ON).rows, 8);  /* E4B */
    assert_int_equal(pack_rule_of(8, 512, 1, SHARE_ON).rows, 4);  /* E2B */
    assert_int_equal(pack_rule_of(16, 512, 1, SHARE_ON).rows, 4); /* 12B */
    assert_int_equal(pack_rule_of(6, 512, 2, SHARE_ON).rows, 8);
    assert_int_equal(pack_rule_of(2, 512, 2, SHARE_ON).rows, 32);
    assert_int_equal(pack_rule_of(8, 256, 2, SHARE_ON).rows, 0);
    assert_int_equal(pack_rule_of(8, 512, 2, SHARE_OFF).rows, 0);
}

static void even_packs(void **state)
{
    (void)state;
    struct pack_rule rule = pack_rule_of(8, 512, 2, SHARE_ON);
    struct world w;
    rule.least = (struct share_least){4, 2048};
    world_init(&w, 33, 9000, 8192);
    fill(&w, &rule);
    assert_int_equal(check_packs(&w, &rule), 33);
    assert_int_equal(w.n_packs, 5);
    for (int32_t i = 0; i < 5; i++) assert_in_range(w.pack[i].n_rows, 6, 7);
}

static void nothing_to_share(void **state)
{
    (void)state;
    struct pack_rule rule = pack_rule_of(8, 512, 2, SHARE_ON);
    struct world w;
    rule.least = (struct share_least){4, 2048};
    world_init(&w, 3, 9000, 8192);
    fill(&w, &rule);
    assert_int_equal(w.n_packs + check_packs(&w, &rule), 0); /* too few rows */
    world_init(&w, 8, 9000, 1024);
    fill(&w, &rule);
    assert_int_equal(w.n_packs + check_packs(&w, &rule), 0); /* too few positions */
    world_init(&w, 8, 9000, 8192);
    w.out_row[0] = 1;
    fill(&w, &rule);
    assert_int_equal(w.n_packs + check_packs(&w, &rule),
                     0); /* outputs that are not the first rows */
    world_init(&w, 8, 9000, 8192);
    w.step.leader = NULL;
    fill(&w, &rule);
    assert_int_equal(w.n_packs + check_packs(&w, &rule), 0);
    world_init(&w, 8, 9000, 8192);
    rule.rows = 0;
    fill(&w, &rule);
    assert_int_equal(w.n_packs + check_packs(&w, &rule), 0);
}

static void random_steps(void **state)
{
    (void)state;
    struct rng rng = {83};
    static const int32_t heads[][2] = {{8, 2}, {8, 1}, {16, 1}, {32, 4}, {9, 3}};
    for (int32_t i = 0; i < 3000; i++) {
        const int32_t *h = heads[i % 5];
        struct pack_rule rule = pack_rule_of(h[0], 512, h[1], SHARE_ON);
        if (i % 2) rule.least = (struct share_least){4, 2048};
        struct world w;
        int32_t rows = (int32_t)rng_below(&rng, ROWS_MAX + 1), groups[4];
        world_init(&w, rows, 0, 0);
        for (int g = 0; g < 4; g++) groups[g] = (int32_t)rng_below(&rng, 300) * KV_PAGE;
        w.step.n_decode = rows - (int32_t)rng_below(&rng, (uint32_t)rows / 2 + 1);
        int32_t leader[4] = {-1, -1, -1, -1}, wanted = 0;
        for (int32_t r = 0; r < w.step.n_decode; r++) {
            int32_t g = (int32_t)rng_below(&rng, 5);
            if (g < 4 && leader[g] < 0) leader[g] = r;
            w.leader[r] = g < 4 ? leader[g] : r;
            w.shared[r] = g < 4 ? groups[g] : 0;
            w.position[r] = w.shared[r] + (int32_t)rng_below(&rng, 1500);
        }
        fill(&w, &rule);
        for (int32_t r = 0; r < w.step.n_decode; r++) {
            int32_t alike = 0;
            for (int32_t q = 0; q < w.step.n_decode; q++)
                alike +=
                    w.leader[q] == w.leader[r] && segments(&w, &rule, q) == segments(&w, &rule, r);
            wanted += alike >= rule.least.rows && w.shared[r] >= rule.least.positions;
        }
        assert_int_equal(check_packs(&w, &rule), wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(even_packs),
        cmocka_unit_test(nothing_to_share),
        cmocka_unit_test(random_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
