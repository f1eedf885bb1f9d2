/* GBNF of any content. Where it compiles, random tokens are stepped through it, and masks must
 * agree with checks of single tokens.
 *
 * Subject: src/grammar/gbnf.c 95
 * Subject: src/grammar/lower.c 75
 * Subject: src/grammar/left.c 60
 * Subject: src/grammar/machine.c 80
 * Subject: src/grammar/mask.c 75 */
#include <string.h>

#include "base/assert.h"
#include "fuzz/source.h"
#include "support/grammar_steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { STEPS = 6 };
    static struct grammar_fixture f; /* one for all inputs */
    struct carat_error err = {0};
    carat_grammar *g;
    if (!f.index) grammar_fixture_open(&f, 1280);
    int status = gbnf_open(&g, &f, size ? (const char *)data : "", size, &err);
    carat_assert(status == CARAT_OK || err.message[0]);
    carat_assert(status == CARAT_OK || status == CARAT_EUSAGE || status == CARAT_EUNSUPPORTED);
    if (status) return 0;
    grammar_steps(g, &f, size, STEPS);
    grammar_close(g);
    return 0;
}
