/* \n and the like in words of the command line. */
#ifndef CLI_ESCAPES_H
#define CLI_ESCAPES_H

#include "base/buf.h"

/* Adds `text` with \n, \t, \r, \", \' and \\ as the characters that they stand for. */
void add_unescaped(struct buf *out, const char *text);

#endif
