#include "support/takes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void assert_takes(const carat_grammar *g, const struct grammar_fixture *f, const char *source,
                  const char *const *good, const char *const *bad)
{
    for (; *good; good++)
        if (!grammar_takes(g, f, *good, strlen(*good))) fail_msg("%s: %s", source, *good);
    for (; *bad; bad++)
        if (grammar_takes(g, f, *bad, strlen(*bad))) fail_msg("%s: not %s", source, *bad);
}
