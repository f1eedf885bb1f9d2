/* Touches everything that a successfully opened GGUF file promises to be readable. */
#ifndef SUPPORT_GGUF_WALK_H
#define SUPPORT_GGUF_WALK_H

#include "gguf/gguf.h"

/* Returns a sum over what was read, so that no read can be left out by the compiler. */
uint64_t gguf_walk(const struct gguf *g);

/* Whether two keys have the same type and value. */
bool gguf_same_key(const struct gguf_kv *a, const struct gguf_kv *b);

#endif
