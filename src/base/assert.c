#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

/* The one place below cli/ that prints: the process is about to end and nothing else can. */
void carat_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "carat: internal error: %s (%s:%d)\n", condition, file, line);
    abort();
}
