/* Chat requests with tools and forms: where they give a grammar, random tokens are stepped through
 * it. Masks agree with checks, and the parser reads every call without repair.
 *
 * Subject: src/grammar/call_grammar.c 100
 * Subject: src/grammar/chat_grammar.c 100 */
#include <string.h>

#include "base/assert.h"
#include "fuzz/source.h"
#include "grammar/chat_grammar.h"
#include "json/json_tree.h"
#include "support/grammar_steps.h"
#include "text/parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS = 40, N_VOCAB = 1280 };

static const struct grammar_fixture *fixture(void)
{
    static struct grammar_fixture f; /* one for all inputs */
    if (!f.index) grammar_fixture_open(&f, N_VOCAB);
    return &f;
}

static void check_calls(const int32_t *ids, size_t n)
{
    struct carat_parser *p;
    struct carat_error err;
    const struct carat_part *parts;
    size_t n_parts;
    carat_assert(parser_open(&p, fixture()->text.v, NULL, 0, &err) == CARAT_OK);
    carat_assert(parser_push(p, ids, n, &parts, &n_parts, &err) == CARAT_OK);
    for (size_t i = 0; i < n_parts; i++)
        carat_assert(parts[i].kind != CARAT_PART_TOOL_CALL || parts[i].is_complete);
    parser_close(p);
}

/* Marks come more often than chance would have them, so that calls begin and end. */
static int32_t draw(struct rng *r, struct grammar_state *s, const uint64_t *bits)
{
    static const int32_t marks[] = {48, 49, 52, 100, 101};
    int32_t mark = marks[rng_below(r, sizeof marks / sizeof *marks)];
    if (rng_below(r, 3) == 0 && grammar_state_allows(s, mark)) return mark;
    return draw_allowed(r, fixture(), bits, false);
}

static void walk(const carat_grammar *g, uint64_t seed)
{
    struct rng r = {.state = seed};
    struct grammar_state *s;
    struct carat_error err;
    uint64_t bits[N_VOCAB / 64];
    int32_t ids[STEPS];
    size_t n = 0;
    carat_assert(grammar_state_open(&s, g, NULL, 0, &err) == CARAT_OK);
    while (n < STEPS) {
        grammar_state_mask(s, bits);
        ids[n] = draw(&r, s, bits);
        if (ids[n] < 0) break;
        grammar_state_accept(s, ids[n++]);
    }
    check_calls(ids, n);
    grammar_state_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_tree tree;
    struct carat_error err = {0};
    carat_grammar *g = NULL;
    if (json_tree_read(&tree, size ? (const char *)data : "", size, JSON_CHAT_REQUEST, &err))
        return 0;
    int status = chat_grammar_open(&g, fixture()->text.v, fixture()->index, &tree.root, &err);
    carat_assert(status == CARAT_OK || (err.message[0] && !g));
    carat_assert(status == CARAT_OK || status == CARAT_EUSAGE || status == CARAT_EUNSUPPORTED);
    if (g) {
        grammar_steps(g, fixture(), size, 3);
        for (uint64_t seed = 0; seed < 3; seed++) walk(g, size + seed);
    }
    grammar_close(g);
    json_tree_free(&tree);
    return 0;
}
