/* Structs of options that grow from version to version: carat.h, rule 5. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include <stddef.h>

#include "base/status.h"

/* Bytes of a struct up to the end of a member. */
#define SIZED_THROUGH(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))

/* Copies a caller's struct, whose first member is its size, to `to`, which has `bytes` bytes.
 * `first` is the size that 0 stands for. What the caller's struct lacks becomes 0.
 * CARAT_EUNSUPPORTED: it is longer, and the rest of it is not 0. `what` names it in messages. */
int sized_copy(void *to, size_t bytes, size_t first, const void *from, const char *what,
               struct carat_error *err);

#endif
