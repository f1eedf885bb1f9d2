/* An open model file: container, configuration, vocabulary. Read-only after open, except for
 * `tokens`, which has a lock. */
#ifndef ENGINE_MODEL_FILE_H
#define ENGINE_MODEL_FILE_H

#include <pthread.h>

#include "carat.h"
#include "base/arena.h"
#include "gguf/gguf.h"
#include "grammar/index.h"
#include "model/config.h"
#include "model/weights.h"
#include "text/vocab.h"

/* The vocabulary as grammars need it: built when the first one is opened. */
struct model_tokens {
    pthread_mutex_t lock;
    struct token_index *index; /* NULL: not yet */
};

struct carat_model {
    struct gguf *gguf;
    struct gemma_config config;
    struct weights weights; /* bound once to check the file; an engine binds its own copy */
    struct vocab *vocab;
    struct model_tokens *tokens;
    struct carat_model_info info;
    struct arena arena;
};

/* Adds a text of the file to `out`, safe for a terminal: valid UTF-8, no control characters or
 * marks of direction, limited length. */
void add_clean_value(const struct gguf *g, const char *key, struct buf *out);

#endif
