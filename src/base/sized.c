#include "base/sized.h"

#include <string.h>

int sized_copy(void *to, size_t bytes, size_t first, const void *from, const char *what,
               struct carat_error *err)
{
    const unsigned char *given = from;
    size_t size;
    memcpy(&size, from, sizeof size);
    if (size == 0) size = first;
    if (size < sizeof size)
        return err_set(err, CARAT_EUSAGE, "%s: a size of %zu bytes expected, %zu found", what,
                       bytes, size);
    for (size_t i = bytes; i < size; i++) {
        if (given[i] == 0) continue;
        err_set(err, CARAT_EUNSUPPORTED,
                "%s: byte %zu of %zu is not 0, but this carat knows %zu bytes", what, i, size,
                bytes);
        err_hint(err, "the program was compiled for a later version of carat; use that one, or "
                      "leave out what it has added");
        return CARAT_EUNSUPPORTED;
    }
    memset(to, 0, bytes);
    memcpy(to, from, size < bytes ? size : bytes);
    memcpy(to, &bytes, sizeof bytes);
    return CARAT_OK;
}
