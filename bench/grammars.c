/* Times of grammars on a vocabulary of the real size, without a model: compiling, masks and checks
 * along random walks through the schemas of tests/golden/schemas.json.
 *
 * usage: build/release/bench/grammars [STEPS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/mem.h"
#include "grammar/json_schema.h"
#include "json/json_tree.h"
#include "support/cost.h"
#include "support/grammars.h"

enum { N_VOCAB = 262144, WALKS = 4, TIMES_MAX = 1 << 17 };

struct times {
    double *seconds;
    size_t n;
};

static void add_time(struct times *t, double seconds)
{
    if (t->n < TIMES_MAX) t->seconds[t->n++] = seconds;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void print(const char *name, struct times *t)
{
    qsort(t->seconds, t->n, sizeof *t->seconds, compare);
    if (t->n == 0) return;
    printf("%-28s %8zu %10.1f %10.1f %10.1f %10.1f\n", name, t->n, t->seconds[t->n / 2] * 1e6,
           t->seconds[t->n * 95 / 100] * 1e6, t->seconds[t->n * 99 / 100] * 1e6,
           t->seconds[t->n - 1] * 1e6);
}

static carat_grammar *open_schema(const struct grammar_fixture *f, const struct carat_value *schema)
{
    const struct value_syntax json = {.quote = -1};
    const struct grammar_options options = {.trigger = -1};
    struct expr_builder b = {0};
    struct carat_error err = {0};
    const struct expr *body = NULL;
    carat_grammar *g;
    carat_assert(json_schema_expr(&b, schema, &json, &body, &err) == CARAT_OK);
    int32_t root = rule_add(&b, "root", 4);
    rule_set(&b, root, body);
    carat_assert(grammar_open(&g, &b, root, f->index, &options, &err) == CARAT_OK);
    builder_deinit(&b);
    return g;
}

struct figures {
    struct times compile, mask, check;
};

static void walk(const struct grammar_fixture *f, const carat_grammar *g, int steps, struct rng *r,
                 uint64_t *bits, struct figures *out)
{
    struct grammar_state *s;
    struct carat_error err;
    carat_assert(grammar_state_open(&s, g, NULL, 0, &err) == CARAT_OK);
    for (int i = 0; i < steps; i++) {
        double begin = cost_cpu_seconds();
        grammar_state_mask(s, bits);
        add_time(&out->mask, cost_cpu_seconds() - begin);
        int32_t id = draw_allowed(r, f, bits, false);
        if (id < 0) break;
        int32_t other = (int32_t)rng_below(r, N_VOCAB);
        begin = cost_cpu_seconds();
        (void)grammar_state_allows(s, other);
        grammar_state_accept(s, id);
        add_time(&out->check, cost_cpu_seconds() - begin);
    }
    grammar_state_close(s);
}

static void read_file(struct buf *text)
{
    char block[4096];
    FILE *file = fopen(CARAT_SOURCE_DIR "/tests/golden/schemas.json", "rb");
    carat_assert(file);
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) buf_add(text, block, n);
    fclose(file);
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 200;
    struct grammar_fixture f;
    struct buf text = {0};
    struct json_tree list;
    struct carat_error err;
    struct rng r = {.state = 1};
    struct figures all = {0};
    struct times *kinds[] = {&all.compile, &all.mask, &all.check};
    for (size_t i = 0; i < 3; i++) {
        kinds[i]->seconds = mem_alloc(TIMES_MAX, sizeof(double));
        carat_assert(kinds[i]->seconds);
    }
    double begin = cost_cpu_seconds();
    grammar_fixture_open(&f, N_VOCAB);
    index_close(f.index);
    printf("vocabulary: %.1f ms\n", (cost_cpu_seconds() - begin) * 1e3);
    begin = cost_cpu_seconds();
    carat_assert(index_open(&f.index, f.text.v, &err) == CARAT_OK);
    printf("index: %.1f ms, %u nodes of all tokens, %u of what follows plain characters\n",
           (cost_cpu_seconds() - begin) * 1e3, f.index->all.n_nodes, f.index->rest.n_nodes);
    uint64_t *bits = mem_alloc(index_words(f.index), sizeof *bits);
    read_file(&text);
    carat_assert(bits && json_tree_read(&list, text.data, text.length, JSON_OWN, &err) == CARAT_OK);
    printf("%-28s %8s %10s %10s %10s %10s  (us)\n", "", "n", "median", "p95", "p99", "most");
    for (size_t i = 0; i < list.root.as.array.count; i++) {
        const struct carat_value *entry = &list.root.as.array.items[i];
        struct times masks = {.seconds = all.mask.seconds + all.mask.n};
        begin = cost_cpu_seconds();
        carat_grammar *g = open_schema(&f, json_member(entry, "schema"));
        add_time(&all.compile, cost_cpu_seconds() - begin);
        size_t before = all.mask.n;
        for (int k = 0; k < WALKS; k++) walk(&f, g, steps, &r, bits, &all);
        masks.n = all.mask.n - before;
        print(json_member(entry, "name")->as.string.data, &masks);
        grammar_close(g);
    }
    print("all masks", &all.mask);
    print("checks, two tokens", &all.check);
    print("compiling", &all.compile);
    return 0;
}
