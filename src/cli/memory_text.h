/* The memory table of an engine: for people, and as JSON. */
#ifndef CLI_MEMORY_TEXT_H
#define CLI_MEMORY_TEXT_H

#include "base/buf.h"
#include "base/json_writer.h"
#include "carat.h"

/* One line without newline: the memory taken, the memory available, and its uses. */
void memory_add_line(struct buf *out, const struct carat_memory *m);

/* The whole table, to the byte. */
void memory_add_table(struct buf *out, const struct carat_memory *m);

void memory_add_json(struct json *j, const struct carat_memory *m); /* the same as an object */

/* Reads "11G", "11GiB" (2^30 bytes each), "11GB" (10^9), a number of bytes, or "90%" into bytes or
 * percent of GPU memory. False: it is none of these. */
bool memory_read_limit(const char *text, int64_t *bytes, int32_t *percent);

#endif
