#include "support/grammar_steps.h"

#include "base/assert.h"
#include "base/mem.h"

void grammar_steps(const carat_grammar *g, const struct grammar_fixture *f, uint64_t seed, int n)
{
    struct rng r = {.state = seed};
    struct grammar_state *s;
    struct carat_error err;
    uint64_t *bits = mem_alloc(index_words(f->index), sizeof *bits);
    carat_assert(bits && grammar_state_open(&s, g, NULL, 0, &err) == CARAT_OK);
    int32_t last = -1, likely[8];
    for (int step = 0; step < n; step++) {
        grammar_state_mask(s, bits);
        int32_t n_likely = grammar_state_expect(s, last, likely, 8);
        carat_assert(n_likely >= 0 && n_likely <= 8);
        if (n_likely > 0) carat_assert(bits[likely[0] / 64] >> likely[0] % 64 & 1);
        bool is_dead = grammar_state_problem(s)[0];
        for (int32_t id = 0; id < vocab_count(f->text.v); id++) {
            bool is_allowed = grammar_state_allows(s, id);
            carat_assert(is_allowed == (bits[id / 64] >> id % 64 & 1));
            carat_assert(!(is_dead && is_allowed));
        }
        int32_t id = draw_allowed(&r, f, bits, rng_below(&r, 8) == 0);
        if (id < 0) break;
        grammar_state_accept(s, last = id);
    }
    grammar_state_accept(s, (int32_t)rng_below(&r, 1024));
    grammar_state_close(s);
    mem_free(bits);
}
