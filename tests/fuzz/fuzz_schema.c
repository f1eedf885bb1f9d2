/* JSON schemas of any content, as JSON and in the syntax of calls. Where they compile, random
 * tokens are stepped through them, and masks must agree with checks of single tokens.
 *
 * Subject: src/grammar/json_schema.c 80
 * Subject: src/grammar/schema_view.c 80
 * Subject: src/grammar/regex.c 70
 * Subject: src/grammar/values.c 75
 * Subject: src/grammar/digits.c 60 */
#include <string.h>

#include "base/assert.h"
#include "fuzz/source.h"
#include "grammar/json_schema.h"
#include "json/json_tree.h"
#include "support/grammar_steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct grammar_fixture *fixture(void)
{
    static struct grammar_fixture f; /* one for all inputs */
    if (!f.index) grammar_fixture_open(&f, 1280);
    return &f;
}

static void check(const struct carat_value *schema, int32_t quote, uint64_t seed)
{
    enum { STEPS = 6 };
    const struct value_syntax syntax = {.quote = quote};
    const struct grammar_options options = {.trigger = -1};
    struct expr_builder b = {0};
    struct carat_error err = {0};
    const struct expr *body;
    carat_grammar *g = NULL;
    int status = json_schema_expr(&b, schema, &syntax, &body, &err);
    int32_t root = status ? -1 : rule_add(&b, "root", 4);
    rule_set(&b, root, body);
    if (!status) status = grammar_open(&g, &b, root, fixture()->index, &options, &err);
    builder_deinit(&b);
    carat_assert(status == CARAT_OK || err.message[0]);
    carat_assert(status == CARAT_OK || status == CARAT_EUSAGE || status == CARAT_EUNSUPPORTED);
    if (g) grammar_steps(g, fixture(), seed, STEPS);
    grammar_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_tree tree;
    struct carat_error err = {0};
    if (json_tree_read(&tree, size ? (const char *)data : "", size, JSON_PLAIN, &err)) return 0;
    check(&tree.root, -1, size);
    check(&tree.root, 52, size);
    json_tree_free(&tree);
    return 0;
}
