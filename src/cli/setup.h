/* What computes, and what the engine decided by itself: for people and as JSON. */
#ifndef CLI_SETUP_H
#define CLI_SETUP_H

#include "base/buf.h"
#include "base/json_writer.h"
#include "carat.h"

/* One line without newline: "on NVIDIA H200, 20 of 42 layers, the others on ...". */
void setup_add_line(struct buf *out, const struct carat_setup *s);

/* The same as an object. */
void setup_add_json(struct json *j, const struct carat_setup *s);

/* Backends of this build, and why one cannot be used: "cuda (no driver), cpu, ref". */
void backends_add_line(struct buf *out);
void backends_add_json(struct json *j); /* [{"name":..,"problem":null}] */

/* Instruction sets of the CPU backend, which one is in use (`asked`, or the best), and why one
 * cannot be used: "avx512 (this processor has no avx512f), avx2 (in use), plain". */
void isas_add_line(struct buf *out, const char *asked);
void isas_add_json(struct json *j); /* [{"name":..,"problem":null}], best first */
const char *isa_in_use(const char *asked);

#endif
